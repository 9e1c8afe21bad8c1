"""What packages ask of compilation."""

from __future__ import annotations

import collections
from typing import Any

__all__ = ["counters", "is_compile_supported", "same"]

# What compiling for backends of programs has met, by kind: 'frames', 'stats' (graphs and calls in them) and 'graph_break' by reason.
counters: collections.defaultdict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)


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
