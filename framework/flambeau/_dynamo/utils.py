"""What packages ask of compilation."""

from __future__ import annotations

import collections
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = [
    "checkpoint_params", "clone_input", "clone_inputs", "compilation_time_metrics", "compile_times", "counters", "disable_cache_limit",
    "dynamo_timed", "hashable", "identity", "is_compile_supported", "istype", "nothing", "preserve_rng_state", "rmse", "same", "timed",
]  # fmt: skip

# What compiling for backends of programs has met, by kind: 'frames', 'stats' (graphs and calls in them) and 'graph_break' by reason.
counters: collections.defaultdict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)


# Seconds of what compiling graphs for backends of programs took, by name.
compilation_time_metrics: dict[str, list[float]] = {}


@contextlib.contextmanager
def dynamo_timed(key: str, *_: Any, **__: Any) -> Iterator[None]:
    """Put the seconds that the context takes into `compilation_time_metrics`, under `key`."""
    began = time.perf_counter()
    try:
        yield
    finally:
        compilation_time_metrics.setdefault(key, []).append(time.perf_counter() - began)


def compile_times(repr: str = "str", aggregate: bool = False) -> str | tuple[list[str], list[str]] | None:
    """What compiling graphs for backends of programs took, in seconds: as a table, or with "csv" as names and times.

    Args:
        aggregate: the sum of each name in both forms; else a table has the times one after the other.
    """
    sums = {name: f"{sum(times):.6f}" for name, times in compilation_time_metrics.items()}
    if repr == "csv":
        return list(sums), list(sums.values())
    if repr != "str":
        return None
    shown = {
        name: ", ".join([f"{t:.4f}" for t in ([sum(times)] if aggregate else times)]) for name, times in compilation_time_metrics.items()
    }  # fmt: skip
    width = max([len("Function"), *map(len, shown)])
    right = max([len("Runtimes (s)"), *map(len, shown.values())])
    lines = [f"{'Function':<{width}}  {'Runtimes (s)':>{right}}", f"{'-' * width}  {'-' * right}"]
    lines += [f"{name:<{width}}  {times:>{right}}" for name, times in shown.items()]
    return "\n".join(["TorchDynamo compilation metrics:", *lines])


def clone_input(x: Any, *, dtype: Any = None) -> Any:
    """A copy of a tensor, of the same strides, that requires grad and has a gradient as `x` does."""
    from ..autograd import no_grad

    with no_grad():
        made = x.detach().clone().to(x.dtype if dtype is None else dtype)
    made.requires_grad_(x.requires_grad and made.is_floating_point())
    if x.is_leaf and x.grad is not None:
        made.grad = clone_input(x.grad, dtype=dtype)
    return made


def clone_inputs(example_inputs: Any) -> Any:
    """Copies of the tensors in a list, or in a dict of values and sequences; other values stay themselves."""
    from ..tensor import Tensor

    def copied(x: Any) -> Any:
        if isinstance(x, (list, tuple)):
            return type(x)([copied(one) for one in x])
        return clone_input(x) if isinstance(x, Tensor) else x

    if isinstance(example_inputs, dict):
        return {name: copied(value) for name, value in example_inputs.items()}
    return [copied(x) for x in example_inputs]


def rmse(ref: Any, res: Any) -> Any:
    """The square root of the mean of the squared differences."""
    return ((ref - res) ** 2).mean().sqrt()


def istype(obj: object, allowed_types: Any) -> bool:
    """Whether the type of `obj` is one of these, not a class derived from one."""
    return type(obj) in allowed_types if isinstance(allowed_types, (tuple, list, set)) else type(obj) is allowed_types


def checkpoint_params(gm: Any) -> Callable[[], None]:
    """A function that puts parameters and buffers of a module, their gradients and the random generator back as they are now."""
    from .. import random
    from ..autograd import no_grad

    state = random.get_rng_state()
    kept = [(x, x._version, x.detach().clone(), None if x.grad is None else x.grad.clone()) for x in (*gm.parameters(), *gm.buffers())]

    def restore() -> None:
        with no_grad():
            random.set_rng_state(state)
            for x, version, values, grad in kept:
                x.grad = grad
                if x._version != version:
                    x.copy_(values)

    return restore


def timed(model: Callable[..., Any], example_inputs: Iterable[Any], times: int = 1) -> tuple[Any, float]:
    """The result of ``model(*example_inputs)``, called `times` times with the same random numbers, and the seconds that took."""
    from .. import random

    given, result = list(example_inputs), None
    began = time.perf_counter()
    for _ in range(times):
        random.manual_seed(1337)
        result = model(*given)
    return result, time.perf_counter() - began


@contextlib.contextmanager
def disable_cache_limit() -> Iterator[None]:
    """A context without limits of how many graphs a function has."""
    from . import config

    with config.patch(recompile_limit=2**63, accumulated_recompile_limit=2**63):
        yield


@contextlib.contextmanager
def preserve_rng_state() -> Iterator[None]:
    """A context behind which the random generator is as before."""
    from .. import random

    state = random.get_rng_state()
    try:
        yield
    finally:
        random.set_rng_state(state)


def hashable(x: Any) -> bool:
    """Whether `x` has a hash."""
    try:
        hash(x)
    except (TypeError, ValueError):                   # ValueError: of a memoryview that may be written
        return False
    return True


def nothing(*args: Any, **kwargs: Any) -> None:
    """Do nothing."""


def identity(x: Any) -> Any:
    """`x`."""
    return x


def is_compile_supported(device_type: Any) -> bool:
    """Whether `compile` makes kernels for tensors on devices of this kind: it does for the CPU, and runs eagerly elsewhere."""
    return device_type == "cpu"


def same(ref: Any, res: Any, fp64_ref: Any = None, cos_similarity: bool = False, tol: float = 1e-4, equal_nan: bool = False,
         exact_dtype: bool = True) -> bool:  # fmt: skip
    """Whether two results are close: tensors, numbers, and sequences, mappings and data of such.

    Args:
        fp64_ref: the result in double precision; then `res` may be as far from it as `ref` is, twice over, and `tol` more.
        cos_similarity: whether a cosine of 0.99 or more between tensors is enough.
        tol: relative and absolute.
        equal_nan: whether what is no number equals itself.
        exact_dtype: whether dtypes have to be equal.
    """
    from ..tensor import Tensor

    settings: Any = {"cos_similarity": cos_similarity, "tol": tol, "equal_nan": equal_nan, "exact_dtype": exact_dtype}
    if isinstance(ref, (list, tuple)):
        others = fp64_ref if fp64_ref is not None else [None] * len(ref)
        return isinstance(res, (list, tuple)) and len(ref) == len(res) and all(
            same(a, b, c, **settings) for a, b, c in zip(ref, res, others, strict=True)
        )  # fmt: skip
    if isinstance(ref, dict):
        return isinstance(res, dict) and ref.keys() == res.keys() and all(
            same(ref[k], res[k], None if fp64_ref is None else fp64_ref[k], **settings) for k in ref
        )  # fmt: skip
    if isinstance(ref, Tensor):
        return isinstance(res, Tensor) and _close(ref, res, fp64_ref, **settings)
    if isinstance(ref, float):
        return isinstance(res, float) and (abs(ref - res) <= tol + tol * abs(ref) or equal_nan and ref != ref and res != res or ref == res)
    if hasattr(ref, "__dict__") and type(ref).__eq__ is object.__eq__:
        return type(ref) is type(res) and same(vars(ref), vars(res), **settings)
    return type(ref) is type(res) and bool(ref == res)


def _close(ref: Any, res: Any, fp64_ref: Any, cos_similarity: bool, tol: float, equal_nan: bool, exact_dtype: bool) -> bool:
    from ..dtypes import float64
    from ..nn.functional import cosine_similarity

    if ref.shape != res.shape or exact_dtype and ref.dtype is not res.dtype:
        return False
    if ref.dtype.category < 2 and res.dtype.category < 2:
        return bool((ref.to(res.dtype) == res).all())
    a, b = ref.detach().to(float64), res.detach().to(float64)
    if cos_similarity:
        return bool((a == b).all()) or cosine_similarity(a.flatten(), b.flatten(), 0, 1e-6).item() >= 0.99
    if a.allclose(b, tol, tol, equal_nan):
        return True
    if fp64_ref is None:
        return False
    exact = fp64_ref.detach().to(float64)

    def error(x: Any) -> float:
        return ((x - exact) ** 2).mean().sqrt().item()

    return error(b) <= 2 * error(a) + tol / 10
