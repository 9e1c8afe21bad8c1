"""Settings of PyTorch's code generator that programs change. All are kept as set; docs/compile.md says which of them mean something here.

`trace.enabled` and `debug` write the debug folder, below `trace.debug_dir`; `triton.cudagraphs` is the mode "reduce-overhead" of what is
compiled while it is set; with `compile_threads` 1 calls wait for kernels; `freezing` computes once what follows from parameters. Nothing
reads the others.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

debug = False
freezing = False
cpp_wrapper = False
max_autotune = False
max_autotune_gemm = False
max_autotune_pointwise = False
coordinate_descent_tuning = False
coordinate_descent_check_all_directions = False
epilogue_fusion = True
fx_graph_cache = True
fx_graph_remote_cache = None
force_fuse_int_mm_with_mul = False
use_mixed_mm = True
conv_1x1_as_mm = False
split_reductions = True
fallback_random = False
shape_padding = True
compile_threads = int(os.environ.get("TORCHINDUCTOR_COMPILE_THREADS", 2))
triton = SimpleNamespace(cudagraphs=False, cudagraph_trees=True, unique_kernel_names=True, cudagraph_skip_dynamic_graphs=False)
cpp = SimpleNamespace(threads=-1, simdlen=None, enable_kernel_profile=False)
trace = SimpleNamespace(enabled=False, debug_dir=None, fx_graph=True, fx_graph_transformed=True, output_code=True, graph_diagram=False)
_GROUPS = ("triton", "cpp", "trace")


def names() -> list[str]:
    """All settings, those of a group with its name before a dot."""
    plain = sorted(name for name in _SETTINGS if name not in _GROUPS)
    return plain + [f"{group}.{name}" for group in _GROUPS for name in vars(globals()[group])]


def is_setting(name: str) -> bool:
    """Whether there is a setting of this name, such as ``max_autotune`` or ``triton.cudagraphs``."""
    head, dot, rest = name.partition(".")
    if dot:
        return head in _GROUPS and hasattr(globals()[head], rest)
    return name in _SETTINGS


@contextlib.contextmanager
def patch(arg1: Any = None, arg2: Any = None, **changes: Any) -> Iterator[None]:
    """A context or decorator with other settings: ``patch("freezing", True)``, ``patch({"triton.cudagraphs": True})``.

    Raises: AttributeError for a name that is no setting.
    """
    wanted = dict(arg1) if isinstance(arg1, dict) else {} if arg1 is None else {arg1: arg2}
    wanted.update(changes)
    for name in wanted:
        if not is_setting(name):
            raise AttributeError(f"_inductor.config.patch: {name} is no setting known here")
    before = {name: _exchange(name, value) for name, value in wanted.items()}
    try:
        yield
    finally:
        for name, value in before.items():
            _exchange(name, value)


def _exchange(name: str, value: Any) -> Any:
    """Set a setting; returns what it was."""
    head, dot, rest = name.partition(".")
    place = vars(globals()[head]) if dot else globals()
    before, place[rest if dot else name] = place[rest if dot else name], value
    return before


_OTHERS = ("annotations", "contextlib", "os", "Iterator", "SimpleNamespace", "Any", "patch", "is_setting", "names")
_SETTINGS = frozenset(name for name in globals() if name[0] != "_" and name not in _OTHERS)
