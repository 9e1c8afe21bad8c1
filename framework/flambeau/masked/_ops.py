"""Functions of the elements that a mask selects: the others take the value that changes no result, and are not counted."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import flambeau as fb

from ..dtypes import dtype as DType
from ..tensor import Tensor
from .maskedtensor import MaskedTensor

_INFINITE = float("inf")


# -- masks -----------------------------------------------------------------------------------------------------------------


def _combine_input_and_mask(op: Callable[..., Any], input: Tensor | MaskedTensor, mask: Tensor | None, *args: Any) -> Tensor:
    """The Tensor that `op` computes with: `input`, with the identity of `op` where `mask`, or its own, is False."""
    data, chosen = _parts(input, mask)
    return data if chosen is None else fb.where(chosen, data, _identity(op.__name__, data, *args))


def _parts(input: Any, mask: Any) -> tuple[Tensor, Tensor | None]:
    """The elements of `input` and which of them count, None for all; of a MaskedTensor those of its mask alone."""
    if isinstance(input, MaskedTensor):
        own = input.get_mask()
        return input.get_data(), own if mask is None else own & _input_mask(input.get_data(), mask=mask)
    if not isinstance(input, Tensor):
        raise TypeError(f"masked: input must be a Tensor or MaskedTensor, got {type(input).__name__}")
    return input, None if mask is None else _input_mask(input, mask=mask)


def _input_mask(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The mask `kwargs["mask"]` in the shape of `input`.

    Raises: ValueError without a mask; IndexError for one of more dimensions; RuntimeError where it does not broadcast.
    """
    mask = kwargs.get("mask")
    if mask is None:
        raise ValueError(f"_input_mask requires explicit mask: give mask=, a bool Tensor that broadcasts to {tuple(input.shape)}")
    if not isinstance(mask, Tensor):
        raise TypeError(f"masked: mask must be a Tensor of bool, got {type(mask).__name__}")
    if mask.ndim > input.ndim:
        raise IndexError(
            f"_input_mask expected broadcastable mask (got mask dimensionality higher than of the input): input {tuple(input.shape)}, "
            f"mask {tuple(mask.shape)}"
        )
    if mask.shape != input.shape:
        mask = mask.expand(input.shape)
    return mask if mask.dtype is fb.bool else mask.to(fb.bool)


def _masked_function(identity: Any, *, reduces: bool = False) -> Callable[[Any], Any]:
    """Declare a masked function: the number that changes no result, or ``fn(dtype, *args)`` giving it, and whether it reduces `dim`."""

    def declare(fn: Any) -> Any:
        fn._identity, fn._reduces = identity, reduces
        return fn

    return declare


def _output_mask(op: Callable[..., Any], input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Which elements of ``op(input, ..., mask=mask)`` come from an element that counts. Raises: ValueError for other functions."""
    declared = getattr(globals().get(op.__name__), "_reduces", None)
    if declared is None or op.__name__ == "logaddexp":
        raise ValueError(f"_output_mask: expected a masked function, got {op.__name__}")
    if not declared:
        return _input_mask(input, **kwargs)
    at = 1 if op.__name__ == "norm" else 0            # after the order
    dim = args[at] if len(args) > at else kwargs.get("dim")
    if op.__name__ == "median" and dim is None:
        dim = -1
    return _any(_input_mask(input, **kwargs), dim, builtins.bool(kwargs.get("keepdim", False)))


def _any(mask: Tensor, dim: Any, keepdim: bool) -> Tensor:
    return mask.any(_dims(dim, mask.ndim), keepdim=keepdim) if mask.ndim else mask


def _dims(dim: Any, ndim: int) -> tuple[int, ...]:
    """The dimensions that `dim` names, from the front; all for None or (). Raises: IndexError, RuntimeError for repeats."""
    if dim is None or dim == ():
        return tuple(range(ndim))
    found: list[int] = []
    for d in (dim,) if isinstance(dim, int) else dim:
        at = d if ndim else (0 if d in (0, -1) else d)
        if not -max(ndim, 1) <= at < max(ndim, 1):
            raise IndexError(f"Dimension out of range (expected to be in range of [{-max(ndim, 1)}, {max(ndim, 1) - 1}], but got {d})")
        at %= max(ndim, 1)
        if at in found:
            raise RuntimeError(f"dim={at} appears multiple times in the list of dims")
        found.append(at)
    return tuple(sorted(found)) if ndim else ()


# -- identities --------------------------------------------------------------------------------------------------------------


def _identity(name: str, input: Tensor, *args: Any) -> Tensor:
    """The number that changes no result of the function `name`, 0-d in the dtype of `input`.

    Raises: NotImplementedError for dtypes that have none.
    """
    value = getattr(globals().get(name), "_identity", None)
    if value is None:
        raise NotImplementedError(f"identity of {name}: it is no masked function")
    return input.new_full((), value(name, input.dtype, *args) if callable(value) else value)


def _smallest(name: str, d: DType, *_: Any) -> float | int:
    return _extreme(name, d, -1)


def _largest(name: str, d: DType, *_: Any) -> float | int:
    return _extreme(name, d, 1)


def _nan_or_largest(name: str, d: DType, *_: Any) -> float | int:
    return math.nan if d.is_floating_point else _extreme(name, d, 1)


def _zero_or_largest(name: str, d: DType, order: Any = None, *_: Any) -> float | int:
    """Of norms: the identity of the smallest magnitude, whose order is -inf, or of a sum."""
    return _INFINITE if order == -_INFINITE else 0


def _extreme(name: str, d: DType, sign: int) -> float | int:
    """The largest number of the dtype, or with a negative `sign` the smallest."""
    if d.is_complex and name == "logsumexp":
        return -_INFINITE
    if d.is_complex:
        raise TypeError(f"masked {name}: complex numbers have no order; got an input of {d}")
    if d is fb.bool:
        raise NotImplementedError(f"identity of {name} on {d} input")
    if d.is_floating_point:
        return sign * _INFINITE
    limits = fb.iinfo(d)
    return limits.max if sign > 0 else limits.min


def _filled(name: str, input: Any, mask: Any, dtype: DType | None, *args: Any) -> Tensor:
    """`input` in `dtype`, with the identity of the function `name` where it does not count."""
    data, chosen = _parts(input, mask)
    if dtype is not None:
        data = data.to(dtype)
    return data if chosen is None else fb.where(chosen, data, _identity(name, data, *args))


def _summed_in(input: Any, dtype: DType | None) -> DType | None:
    """The dtype of sums and products: int64 for smaller integers."""
    d = _parts(input, None)[0].dtype
    return dtype or (None if d.is_floating_point or d.is_complex else fb.int64)


# -- reductions --------------------------------------------------------------------------------------------------------------


@_masked_function(0, reduces=True)
def sum(
    input: Tensor | MaskedTensor, dim: Any = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The sum over `dim` of the elements that `mask` selects, 0 where it selects none.

    Args:
        input: ``(*)``.
        dim: an int or a tuple of ints; None or () for all.
        keepdim: leave reduced dimensions with size 1.
        dtype: to convert to first; integers are summed in int64 by default.
        mask: bool, broadcasts to `input`.

    >>> fb.masked.sum(fb.tensor([[1, 2], [3, 4]]), 1, mask=fb.tensor([[True, False], [False, False]]))
    tensor([1, 0])
    """
    x = _filled("sum", input, mask, _summed_in(input, dtype))
    return x.sum(_dims(dim, x.ndim), keepdim=keepdim)


@_masked_function(1, reduces=True)
def prod(
    input: Tensor | MaskedTensor, dim: Any = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The product over `dim` of the elements that `mask` selects, 1 where it selects none; see `sum`."""
    made = _filled("prod", input, mask, _summed_in(input, dtype))
    if not made.ndim:
        return made.prod()
    for d in reversed(_dims(dim, made.ndim)):
        made = made.prod(d, keepdim=keepdim)
    return made


@_masked_function(_smallest, reduces=True)
def amax(
    input: Tensor | MaskedTensor, dim: Any = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The largest over `dim` of the elements that `mask` selects, the smallest number of the dtype where it selects none; see `sum`."""
    x = _filled("amax", input, mask, dtype)
    return x.amax(_dims(dim, x.ndim), keepdim=keepdim)


@_masked_function(_largest, reduces=True)
def amin(
    input: Tensor | MaskedTensor, dim: Any = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The smallest over `dim` of the elements that `mask` selects, the largest number of the dtype where it selects none; see `sum`."""
    x = _filled("amin", input, mask, dtype)
    return x.amin(_dims(dim, x.ndim), keepdim=keepdim)


@_masked_function(_smallest, reduces=True)
def argmax(
    input: Tensor | MaskedTensor, dim: int | None = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Where along `dim` the largest of the elements is that `mask` selects, as numbers of the dtype of `input`; see `sum`."""
    x = _filled("argmax", input, mask, dtype)
    return x.argmax(dim, keepdim).to(x.dtype)


@_masked_function(_largest, reduces=True)
def argmin(
    input: Tensor | MaskedTensor, dim: int | None = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Where along `dim` the smallest of the elements is that `mask` selects, as numbers of the dtype of `input`; see `sum`."""
    x = _filled("argmin", input, mask, dtype)
    return x.argmin(dim, keepdim).to(x.dtype)


@_masked_function(0, reduces=True)
def mean(
    input: Tensor | MaskedTensor, dim: Any = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The mean over `dim` of the elements that `mask` selects, nan where it selects none; see `sum`.

    Raises: ValueError for integers without a `dtype`.
    """
    data, chosen = _parts(input, mask)
    kind = dtype or data.dtype
    if not (kind.is_floating_point or kind.is_complex):
        raise ValueError(f"mean(): Could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: {kind}")
    dims = _dims(dim, data.ndim)
    if chosen is None:
        return data.mean(dims, keepdim=keepdim, dtype=dtype)
    return sum(input, dim, keepdim=keepdim, dtype=dtype, mask=mask) / chosen.sum(dims, keepdim=keepdim)


@_masked_function(_nan_or_largest, reduces=True)
def median(
    input: Tensor | MaskedTensor, dim: int = -1, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The median along `dim`, the lower of two, of the elements that `mask` selects; nan where it selects none.

    Raises: ValueError where it selects none of integers, which have no nan. See `sum` for the arguments.
    """
    data, chosen = _parts(input, mask)
    data = data if dtype is None else data.to(dtype)
    if data.is_floating_point():
        return _filled("median", data, chosen, None).nanmedian(dim, keepdim).values
    if chosen is None or builtins.bool(chosen.all()):
        return data.median(dim, keepdim).values
    if not builtins.bool(_any(chosen, dim, False).all()):
        raise ValueError("masked median expects no fully masked out rows if dtype is not floating point")
    wide = fb.where(chosen, data.double(), math.nan)
    return wide.nanmedian(dim, keepdim).values.to(data.dtype)


@_masked_function(_zero_or_largest, reduces=True)
def norm(
    input: Tensor | MaskedTensor, ord: float = 2.0, dim: Any = None, *, keepdim: bool = False, dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The vector norm of order `ord` over `dim` of the elements that `mask` selects; see `sum`."""
    x = _filled("norm", input, mask, dtype, ord)
    return fb.linalg.vector_norm(x, ord, _dims(dim, x.ndim), keepdim)


def _correction(unbiased: bool | None, correction: float | None) -> float:
    if unbiased is not None and correction is not None:
        raise AssertionError("Only one of unbiased and correction may be given")
    if correction is not None:
        return correction
    return 1 if unbiased is None else int(unbiased)


@_masked_function(0, reduces=True)
def var(
    input: Tensor | MaskedTensor, dim: Any = None, unbiased: bool | None = None, *, correction: float | None = None,
    keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The variance over `dim` of the elements that `mask` selects, in the dtype of `input`; see `sum`.

    Args:
        unbiased: divide by one less than the number of elements (the default), or by that number.
        correction: what is taken from the number of elements instead.
    """
    less = _correction(unbiased, correction)
    data, chosen = _parts(input, mask)
    if data.dtype is fb.bool:
        raise RuntimeError("masked var: subtraction of bool tensors is not supported; convert the input by dtype=")
    kind = dtype or data.dtype
    data = data.to(kind if kind.is_floating_point or kind.is_complex else fb.float32)
    dims = _dims(dim, data.ndim)
    if chosen is None:
        return data.var(dims, correction=less, keepdim=keepdim).to(data.dtype)
    count = chosen.sum(dims, keepdim=True)
    away = fb.where(chosen, data - fb.where(chosen, data, 0).sum(dims, keepdim=True) / count, 0)
    squares = away * away.conj() if data.is_complex() else away * away
    total = squares.sum(dims, keepdim=keepdim)
    count = count if keepdim else count.reshape(total.shape)
    return total / (count - less).clamp(min=0)


@_masked_function(0, reduces=True)
def std(
    input: Tensor | MaskedTensor, dim: Any = None, unbiased: bool | None = None, *, correction: float | None = None,
    keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The standard deviation over `dim` of the elements that `mask` selects; see `var`."""
    return var(input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask).sqrt()


@_masked_function(_smallest, reduces=True)
def logsumexp(
    input: Tensor | MaskedTensor, dim: Any = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The logarithm of the sum of exponentials over `dim` of the elements that `mask` selects, -inf where it selects none; see `sum`."""
    x = _filled("logsumexp", input, mask, dtype)
    return fb.logsumexp(x, _dims(dim, x.ndim), keepdim).to(x.dtype)


# -- along a dimension -------------------------------------------------------------------------------------------------------


@_masked_function(0)
def cumsum(input: Tensor | MaskedTensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Sums of the elements up to each place along `dim` that `mask` selects, in the dtype of `input`; see `sum`."""
    x = _filled("cumsum", input, mask, dtype)
    return x.cumsum(dim).to(x.dtype)


@_masked_function(1)
def cumprod(input: Tensor | MaskedTensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Products of the elements up to each place along `dim` that `mask` selects, in the dtype of `input`; see `sum`."""
    x = _filled("cumprod", input, mask, dtype)
    return x.cumprod(dim).to(x.dtype)


@_masked_function(_smallest)
def softmax(input: Tensor | MaskedTensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """The softmax along `dim` of the elements that `mask` selects, 0 at the others, nan where it selects none; see `sum`."""
    return fb.softmax(_filled("softmax", input, mask, dtype), dim)


@_masked_function(_smallest)
def log_softmax(input: Tensor | MaskedTensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """The logarithm of `softmax`, -inf at elements that `mask` does not select."""
    return fb.log_softmax(_filled("log_softmax", input, mask, dtype), dim)


@_masked_function(_largest)
def softmin(input: Tensor | MaskedTensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """`softmax` of the negative input."""
    return fb.nn.functional.softmin(_filled("softmin", input, mask, dtype), dim)


@_masked_function(_zero_or_largest)
def normalize(
    input: Tensor | MaskedTensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The elements that `mask` selects divided by their `norm` of order `ord` along `dim`, or by `eps` if that is larger; else 0."""
    data, chosen = _parts(input, mask)
    data = data if dtype is None else data.to(dtype)
    length = norm(data, ord, dim, keepdim=True, mask=chosen)
    divided = data / fb.maximum(length, length.new_full((), eps))
    return divided if chosen is None else fb.where(chosen, divided, 0)


@_masked_function(_smallest)
def logaddexp(
    input: Tensor | MaskedTensor, other: Tensor | MaskedTensor, *, dtype: DType | None = None, input_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """``log(exp(input) + exp(other))`` without what a mask does not select: -inf where neither is.

    Args:
        input_mask, other_mask: bool, broadcast to `input` and `other`.
    The other arguments are those of `sum`.
    """
    return fb.logaddexp(_filled("logaddexp", input, input_mask, dtype), _filled("logaddexp", other, other_mask, dtype))
