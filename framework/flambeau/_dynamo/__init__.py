"""Private names of PyTorch's compiler that programs use."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .._on_demand import names_on_demand
from ..compiler import (
    _check_settings,
    _functions,
    _marked,
    allow_in_graph,
    assume_constant_result,
    disable,
    is_compiling,
    list_backends,
    reset,
    set_stance,
    substitute_in_graph,
)
from . import backends, config, eval_frame, exc, utils
from ._explain import explain
from ._export import ExportResult, export
from .backends.registry import lookup_backend, register_backend
from .eval_frame import OptimizedModule, is_dynamo_supported, is_inductor_supported

__all__ = [
    "ExportResult", "OptimizedModule",
    "allow_in_graph", "assume_constant_result", "backends", "config", "disable", "disallow_in_graph", "eval_frame",
    "exc", "explain", "export", "forbid_in_graph", "graph_break", "is_compiling", "is_dynamo_supported", "is_inductor_supported",
    "disable_nested_graph_breaks", "dont_skip_tracing", "error_on_graph_break", "list_backends", "lookup_backend", "mark_dynamic",
    "mark_static", "mark_static_address", "maybe_mark_dynamic", "nonstrict_trace", "optimize", "optimize_assert", "patch_dynamo_config",
    "register_backend", "reset", "reset_code_caches", "run", "set_stance", "skip_frame", "substitute_in_graph", "utils",
]  # fmt: skip


def mark_dynamic(
    t: Any, index: Any, *, hint_override: int | None = None, min: int | None = None, max: int | None = None, specialize_on: Any = None
) -> None:  # fmt: skip
    """Say that dimension `index` of `t` (or each of several) has many sizes: graphs have it as an input.

    Args:
        min, max: the smallest and largest size. Where a graph is made for `t` and its size is another, that raises
            `torch.fx.experimental.symbolic_shapes.ConstraintViolationError`.
        hint_override, specialize_on: accepted.
    Raises: AssertionError for an index that is no int, list or tuple.
    """
    _mark(t, "_dynamo_dynamic_indices", index)
    if min is not None or max is not None:
        ranges = dict(getattr(t, "_dynamo_dynamic_ranges", {}))
        t._dynamo_dynamic_ranges = ranges | dict.fromkeys((index,) if isinstance(index, int) else index, (min, max))


def mark_unbacked(t: Any, index: Any, **settings: Any) -> None:
    """As `mark_dynamic`: here graphs are recorded, with sizes at hand, so a size that nothing is known of is one that has many values."""
    _mark(t, "_dynamo_unbacked_indices", index)
    _mark(t, "_dynamo_dynamic_indices", index)


def maybe_mark_dynamic(t: Any, index: Any) -> None:
    """As `mark_dynamic`, a wish rather than a claim."""
    _mark(t, "_dynamo_weak_dynamic_indices", index)


def mark_static(t: Any, index: Any = None) -> None:
    """Say that the size of dimension `index` of `t` (None: of all) is no input of graphs. Modules and their classes may be marked, too."""
    if isinstance(t, type) or not hasattr(t, "dim"):
        t._dynamo_marked_static = True
        return
    _mark(t, "_dynamo_static_indices", range(t.dim()) if index is None else index)


def _mark(t: Any, name: str, index: Any) -> None:
    assert isinstance(index, (int, list, tuple, range)), f"Expected index to be int, list, or tuple, got {type(index)}"
    indices = (index,) if isinstance(index, int) else tuple(index)
    setattr(t, name, getattr(t, name, set()) | set(indices))


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Say that the memory of tensor `t` stays where it is. Raises: TypeError for anything but a tensor."""
    from ..tensor import Tensor

    if not isinstance(t, Tensor):
        raise TypeError(f"mark_static_address: t must be a Tensor, got {type(t).__name__}")
    t._dynamo_static_input_type = "guarded" if guard else "unguarded"  # type: ignore[attr-defined]


def disallow_in_graph(fn: Any) -> Any:
    """`fn`, a function or several: its calls end graphs for backends of a program's own, and are in none.

    Raises: AssertionError if it cannot be called.
    """
    if isinstance(fn, (list, tuple)):
        return [disallow_in_graph(one) for one in fn]
    assert callable(fn), f"disallow_in_graph: fn must be a function, got {type(fn).__name__}"
    _marked.disallow(fn)
    return fn


def forbid_in_graph(fn: Any) -> Any:
    """`fn`, a function or several: compiled functions that call it raise AssertionError.

    Raises: AssertionError if it cannot be called.
    """
    if isinstance(fn, (list, tuple)):
        return [forbid_in_graph(one) for one in fn]
    assert callable(fn), f"forbid_in_graph: fn must be a function, got {type(fn).__name__}"
    _marked.forbid(fn)
    fn._dynamo_forbidden = True  # type: ignore[attr-defined]
    return fn


def nonstrict_trace(traceable_fn: Callable[..., Any]) -> Callable[..., Any]:
    """`traceable_fn`: a compiler shall record what it computes without reading its source."""
    return traceable_fn


def graph_break(msg: str = "") -> None:
    """End the graph here: what is pending is computed."""
    _functions.break_here(f"graph_break({msg!r})")


def skip_frame(msg: str = "") -> None:
    """Leave the calling function to Python, which runs it anyway."""


def run(fn: Any = None) -> Any:
    """`fn`, in which compiled functions use the graphs that there are, and run as they are where another would be made. Or a decorator.

    Raises: AssertionError if it cannot be called.
    """
    if fn is None:
        return run
    assert callable(fn), f"run: fn must be a function or Module, got {type(fn).__name__}"

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        before = set_stance.now
        if before[0] == "default":
            set_stance.now = "eager_on_recompile", before[1]
        try:
            return fn(*args, **kwargs)
        finally:
            set_stance.now = before

    return wrapper


class error_on_graph_break:  # PyTorch's name
    """A context or decorator: whether graphs that end before their function does are an error, in the place of `fullgraph`."""

    def __init__(self, error_on_graph_break: bool) -> None:
        self.wanted = bool(error_on_graph_break)
        self._before: list[Any] = []

    def __enter__(self) -> None:
        self._before.append(_functions.refuse_breaks(self.wanted))

    def __exit__(self, *error: Any) -> None:
        _functions.refuse_breaks(*self._before.pop())

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with error_on_graph_break(self.wanted):
                return fn(*args, **kwargs)

        return wrapper


patch_dynamo_config = config.patch


def dont_skip_tracing(fn: Any = None) -> Any:
    """`fn`, whose file a compiler shall read: what Python runs is recorded in any case. Without `fn`, a decorator."""
    return (lambda found: found) if fn is None else fn


def disable_nested_graph_breaks(fn: Any = None) -> Any:
    """`fn`, which a compiler shall not read on where a graph in it ends: Python goes on there anyway. Without `fn`, a decorator."""
    return (lambda found: found) if fn is None else fn


def reset_code_caches() -> None:
    """Forget what was compiled and recorded, as `reset`."""
    reset()


def optimize(
    backend: Any = "inductor", *, nopython: bool = False, guard_export_fn: Any = None, dynamic: bool | None = None, **settings: Any
) -> Any:  # fmt: skip
    """A decorator as `compile`'s; `nopython` is its `fullgraph`."""
    chosen = _check_settings(backend, None, None)._replace(dynamic=dynamic)
    return lambda fn: eval_frame.optimized(fn, chosen, nopython)


def optimize_assert(backend: Any, **settings: Any) -> Any:
    """As `optimize`, for one whole graph."""
    return optimize(backend, **{**settings, "nopython": True})


__getattr__, __dir__ = names_on_demand(__name__, modules=("callback", "comptime", "decorators", "external_utils"))
