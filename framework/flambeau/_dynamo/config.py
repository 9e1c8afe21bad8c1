"""Settings of PyTorch's compiler that programs change: kept as set; `disable`, the limits and `repro_after` have a meaning here."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

verbose = False
suppress_errors = False
disable = False
cache_size_limit = recompile_limit = 8
accumulated_cache_size_limit = accumulated_recompile_limit = 256
fail_on_recompile_limit_hit = False
error_on_recompile = False
dynamic_shapes = True
assume_static_by_default = True
automatic_dynamic_shapes = True
force_parameter_static_shapes = True
force_nn_module_property_static_shapes = True
specialize_int = False
specialize_float = False
capture_scalar_outputs = False
capture_dynamic_output_shape_ops = False
allow_unspec_int_on_nn_module = False
allow_rnn = False
optimize_ddp: bool | str = True
guard_nn_modules = True
inline_inbuilt_nn_modules = True
skip_nnmodule_hook_guards = True
compiled_autograd = False
numpy_default_float = "float64"
trace_numpy = True
log_level = None
repro_after: str | None = os.environ.get("TORCHDYNAMO_REPRO_AFTER")  # "dynamo" or "aot": write a script when a backend fails
repro_level = int(os.environ.get("TORCHDYNAMO_REPRO_LEVEL", "2"))  # 1 the whole graph, 2 or 3 the smallest, 4 also where numbers differ


@contextlib.contextmanager
def patch(arg1: Any = None, arg2: Any = None, **changes: Any) -> Iterator[None]:
    """A context or decorator with other settings: ``patch("verbose", True)``, ``patch({...})`` or ``patch(verbose=True)``.

    Raises: AttributeError for a name that is no setting.
    """
    wanted = dict(arg1) if isinstance(arg1, dict) else {} if arg1 is None else {arg1: arg2}
    wanted.update(changes)
    settings = globals()
    unknown = [name for name in wanted if name not in _SETTINGS]
    if unknown:
        raise AttributeError(f"_dynamo.config.patch: {unknown[0]} is no setting known here")
    before = {name: settings[name] for name in wanted}
    settings.update(wanted)
    try:
        yield
    finally:
        settings.update(before)


_SETTINGS = frozenset(
    name for name in globals() if name[0] != "_" and name not in ("annotations", "contextlib", "os", "Iterator", "Any", "patch")
)
