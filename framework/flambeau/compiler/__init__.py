"""`compile` and what programs ask of a compiler. Compiling is not built yet: functions run eagerly, with the same results."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from .. import _missing
from . import config

__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "config", "cudagraph_mark_step_begin", "disable", "is_compiling",
    "is_dynamo_compiling", "is_exporting", "list_backends", "load_cache_artifacts", "nested_compile_region", "reset",
    "save_cache_artifacts", "set_stance", "substitute_in_graph", "wrap_numpy",
]  # fmt: skip

_MODES = ("default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
# Each of them is run eagerly. The first computes with eager's own kernels in PyTorch too.
_BACKENDS = ("eager", "aot_eager", "cudagraphs", "inductor", "onnxrt", "openxla", "tvm")
_STANCES = (
    "default", "eager_then_compile", "aot_eager_then_compile", "force_eager", "eager_on_recompile", "fail_on_recompile",
)  # fmt: skip


def compile(  # PyTorch's name
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """`model`, a function or module, behind a wrapper as PyTorch's: calls run eagerly, with the same results.

    A module comes back as `flambeau._dynamo.OptimizedModule`, which shares the module's parameters and keeps the module
    as `_orig_mod`. Without `model` the result is a decorator.

    Args:
        model: what to compile, or None.
        fullgraph, dynamic: accepted; there is no graph to break and no shape to specialise on.
        backend: the name of a backend; see `list_backends`. A function would get a graph, and graphs are not recorded yet.
        mode: "default", "reduce-overhead", "max-autotune" or "max-autotune-no-cudagraphs".
        options: settings of the backend by name, instead of `mode`.
        disable: return `model` as it is.
    Raises: RuntimeError for an unknown mode or backend, or both of `mode` and `options`; AssertionError if `model` cannot
        be called; NotImplementedError for a function as `backend`.
    """
    if model is None:
        settings: dict[str, Any] = {"fullgraph": fullgraph, "dynamic": dynamic, "backend": backend, "mode": mode}
        return lambda found: compile(found, options=options, disable=disable, **settings)
    _check_settings(backend, mode, options)
    if disable:
        return model
    from .._dynamo import eval_frame

    assert callable(model), f"compile: model must be a function or Module, got {type(model).__name__}"
    _missing.note_eager("compile")
    return eval_frame.optimized(model)


def _check_settings(backend: Any, mode: Any, options: Any) -> None:
    if mode is not None and options is not None:
        raise RuntimeError("compile: either mode or options can be given, not both")
    if mode is not None and mode not in _MODES:
        raise RuntimeError(f"compile: unknown mode {mode!r}, it is one of {', '.join(_MODES)}")
    if callable(backend):
        raise _missing.not_built("compile(backend=function)", "name a backend, such as 'eager'; graphs are not recorded")
    if backend not in _BACKENDS:
        from .._dynamo.exc import InvalidBackend

        raise InvalidBackend(str(backend))


def reset() -> None:
    """Forget what was compiled: nothing is."""


def list_backends(exclude_tags: Iterable[str] | None = ("debug", "experimental")) -> list[str]:
    """The names of backends that compile, without those of the excluded tags; "eager" (tagged "debug") runs eagerly."""
    return [] if "debug" in (exclude_tags or ()) else ["eager"]


def allow_in_graph(fn: Any) -> Any:
    """`fn`, a function or several: a compiler shall call it without looking inside.

    Raises: AssertionError if it cannot be called.
    """
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(one) for one in fn]
    assert callable(fn), f"allow_in_graph: fn must be a function, got {type(fn).__name__}"
    return fn


def assume_constant_result(fn: Any) -> Any:
    """`fn`: a compiler may take its result to be the same in every call."""
    fn._dynamo_marked_constant = True
    return fn


def substitute_in_graph(
    original_fn: Callable[..., Any], *, can_constant_fold_through: bool = False, skip_signature_check: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function stands in for `original_fn` when a compiler meets it. Returns it as it is.

    `can_constant_fold_through` (results of constants are constants) and `skip_signature_check` speak to the compiler.
    Raises: TypeError if either is no function.
    """
    if not callable(original_fn):
        raise TypeError(f"substitute_in_graph: original_fn must be a function, got {type(original_fn).__name__}")

    def wrapper(traceable_fn: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(traceable_fn):
            raise TypeError(f"substitute_in_graph: expected a function, got {type(traceable_fn).__name__}")
        return traceable_fn

    return wrapper


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """`fn` behind a wrapper: it is left out of compiling. Without `fn`, a decorator.

    `recursive` says that what `fn` calls is left out too, `reason` why. A module is returned as it is, after its `forward` was marked.
    """
    if fn is None:
        return lambda found: disable(found, recursive, reason=reason)
    if isinstance(fn, type) or not callable(fn) or hasattr(fn, "forward"):
        return fn

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    wrapper._torchdynamo_disable = True  # type: ignore[attr-defined]
    wrapper._torchdynamo_orig_callable = fn  # type: ignore[attr-defined]
    return wrapper


def nested_compile_region(fn: Any = None, **settings: Any) -> Any:
    """`fn`: a compiler shall compile it once and use the result in every place. Without `fn`, a decorator."""
    return (lambda found: found) if fn is None else fn


class set_stance:  # PyTorch's name
    """Say what compiled functions do: a call, a context or a decorator; all stances run eagerly here.

    Args:
        stance: "default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile" or
            "aot_eager_then_compile".
        force_backend: the backend for all compiled functions, only with the stance "default".
        skip_guard_eval_unsafe: accepted; there are no guards.
    Raises: RuntimeError for another stance, or `force_backend` with one that is not "default".
    """

    _stance = "default"

    def __init__(self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None) -> None:
        if stance not in _STANCES:
            raise RuntimeError(f"set_stance: unknown stance {stance!r}, it is one of {', '.join(_STANCES)}")
        if force_backend is not None and stance != "default":
            raise RuntimeError(f"set_stance: force_backend goes with the stance 'default' alone, not with {stance!r}")
        if force_backend is not None:
            _check_settings(force_backend, None, None)
        self.stance = stance
        self._before = set_stance._stance
        set_stance._stance = stance

    def __enter__(self) -> None:
        set_stance._stance = self.stance

    def __exit__(self, *error: Any) -> None:
        set_stance._stance = self._before

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        set_stance._stance = self._before

        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with set_stance(self.stance):
                return fn(*args, **kwargs)

        return wrapper


def cudagraph_mark_step_begin() -> None:
    """Tell recorded CUDA graphs that a new step begins: there are none."""


def is_compiling() -> bool:
    """Whether this code is being compiled or exported: never, functions run eagerly."""
    return False


def is_dynamo_compiling() -> bool:
    """Whether this code is being compiled: never, functions run eagerly."""
    return False


def is_exporting() -> bool:
    """Whether this code is being exported: never."""
    return False


def save_cache_artifacts() -> None:
    """What was compiled, for other processes: None, as nothing is."""
    return


def load_cache_artifacts(serialized_artifacts: bytes) -> NoReturn:
    """Not built: raises NotImplementedError."""
    raise _missing.not_built("compiler.load_cache_artifacts", "functions run eagerly and need none")


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, which takes and returns numpy arrays, as a function of tensors."""
    from ..ops.create import as_tensor
    from ..tensor import Tensor
    from ..utils._pytree import tree_map

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        arrays = tree_map(lambda x: x.numpy() if isinstance(x, Tensor) else x, (args, kwargs))
        result = fn(*arrays[0], **arrays[1])
        return tree_map(lambda x: as_tensor(x) if hasattr(x, "__array__") else x, result)

    return wrapper


def __getattr__(name: str) -> Any:
    raise _missing.attribute_error(__name__, name)
