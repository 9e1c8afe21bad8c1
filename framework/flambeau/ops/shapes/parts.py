"""Views of parts: diagonals, windows, real and imaginary parts; complex numbers as pairs of real ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels import hot_calls

from ... import _state, dtypes
from ..._arrays import MetaArray, as_meta, empty_like_layout, ndarray, permutation, restrided
from ..._state import interpreted
from ..._symbolic import as_size
from ..._warn import warn_once
from ...tensor import Tensor, wrap_dim
from .._batching import run, same_dims, shifted
from .._spec import (
    EXACTLY,
    FUNCTION,
    INPLACE,
    METHOD,
    OPS,
    OUT,
    composite,
    elementwise,
    refuse_other_dtype_out,
    view,
)
from .expand import broadcast_tensors
from .join import stack
from .permute import adjoint, permute, transpose
from .slices import slice_dim

_COMPLEX = {np.dtype(np.float32): np.dtype(np.complex64), np.dtype(np.float64): np.dtype(np.complex128)}
_PARTS = {whole: part for part, whole in _COMPLEX.items()}


@view(surface=FUNCTION | METHOD, samples="x(3, 4); x(2, 3, 4), 1, 0, 2", elements="moved")
def diagonal(input, offset=0, dim1=0, dim2=1):
    """A view of the diagonal over `dim1` and `dim2`, as the last dimension.

    Args:
        offset: how far above the main diagonal; negative below.
    """


@diagonal.undone
def _diagonal_undone(new, source, offset, dim1, dim2):
    return source.diagonal_scatter(new, offset, dim1, dim2)


@diagonal.kernel
def _diagonal(a, offset, dim1, dim2):
    offset = as_size(offset)
    if a.__class__ is ndarray:
        if offset == 0 and dim1 == 0 and dim2 == 1 and a.ndim == 2:
            made = hot_calls.restrided(a, (min(a.shape),), (sum(a.strides),), 0)
            if made is not None:
                return made
        try:
            made = a.diagonal(offset, dim1, dim2)
            if a.flags.writeable:
                made.flags.writeable = True
            return made
        except (ValueError, TypeError):  # dims that do not fit: `np.transpose` does not name the op, the checks below do
            pass
    i, j = wrap_dim(dim1, a.ndim), wrap_dim(dim2, a.ndim)
    if i == j:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    rows, columns = a.shape[i], a.shape[j]
    length = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    skip = (offset * a.strides[j] if offset >= 0 else -offset * a.strides[i]) if length else 0
    kept = [d for d in range(a.ndim) if d not in (i, j)]
    shape = (*(a.shape[d] for d in kept), length)
    strides = (*(a.strides[d] for d in kept), a.strides[i] + a.strides[j])
    return restrided(a, shape, strides, skip)


@diagonal.vjp
def _diagonal_vjp(grad, input_shape, offset, dim1, dim2):
    full_grad = grad.new_zeros(input_shape)
    full_grad.diagonal(offset, dim1, dim2).copy_(grad)
    return (full_grad,)


diagonal.shows_part()


@diagonal.batch
def _diagonal_batch(level: Any, op: Any, args: Any) -> Any:
    x, offset, dim1, dim2 = args
    return level.wrap(run(op, level.front(x), offset, shifted(x, dim1), shifted(x, dim2)))


@view(surface=METHOD, samples="x(5), 0, 3, 1; x(2, 6), 1, 2, 2", elements="moved")
def unfold(self, dimension, size: int, step: int):
    """A view of all windows of `size` elements, `step` apart, along `dimension`; the windows become the last dimension.

    >>> fb.arange(4).unfold(0, 2, 1)
    tensor([[0, 1],
            [1, 2],
            [2, 3]])
    """


@unfold.kernel
def _unfold(a, dimension, size, step):
    d = wrap_dim(dimension, a.ndim)
    n = a.shape[d] if a.ndim else 1
    if not 0 <= size <= n:
        raise RuntimeError(f"maximum size for tensor at dimension {d} is {n} but size is {size}")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    if a.ndim == 0:
        return restrided(a, (size,), (a.itemsize,))
    shape, strides = list(a.shape), list(a.strides)
    last = strides[d]
    shape[d] = (n - size) // step + 1
    strides[d] = last * min(step, n + 1)              # of a lone window any step is the same
    return restrided(a, (*shape, size), (*strides, last))


@unfold.vjp
def _unfold_vjp(grad, self_shape, dimension, size, step):
    full_grad = grad.new_zeros(self_shape)
    if not self_shape:
        return (grad.sum(),)
    d = wrap_dim(dimension, len(self_shape))
    count = grad.shape[d]
    for k in range(size):  # windows overlap, so each offset within them is added by itself
        part = slice_dim.function(full_grad, d, k, k + (count - 1) * step + 1, step)
        part.add_(grad.select(-1, k))
    return (full_grad,)


@unfold.batch
def _unfold_batch(level: Any, op: Any, args: Any) -> Any:
    x, dimension, size, step = args
    if x.ndim == 0:
        return level.wrap(run(op, level.front(x).unsqueeze(-1), 1, size, step).squeeze(1))
    return level.wrap(run(op, level.front(x), shifted(x, dimension), size, step))


@view(surface=FUNCTION, samples="c(2, 3)", batch_rule=same_dims)
def view_as_real(input):
    """A view of a complex tensor as a real one with a last dimension of size 2: real and imaginary parts.

    Raises: RuntimeError for real tensors.
    """


view_as_real.shown_as(hides="input_shape")


@view_as_real.undone
def _complex_again(new, source):
    return view_as_complex(new)


view_as_real.in_pieces("...->..._")


@view_as_real.kernel
def _view_as_real(a):
    d = dtypes.from_numpy_dtype(a.dtype)
    if not d.is_complex:
        raise RuntimeError("view_as_real is only supported for complex tensors")
    real = d.to_real().numpy
    if type(a) is MetaArray:
        return as_meta(a, (*a.shape, 2), real, (*a.strides, real.itemsize))
    if type(a) is np.ndarray:                         # complex32 too, whose parts numpy does not know
        parts = a[..., None].view(real) if a.ndim else a.reshape(1).view(real)
    else:
        parts = a.real
    return restrided(parts, (*a.shape, 2), (*a.strides, real.itemsize))


@view_as_real.forwards
def _rows_as_real(input):
    a = input._array
    real = _PARTS.get(a.dtype) if a.__class__ is ndarray and a.flags.c_contiguous and a.ndim and a.size else None
    return None if real is None else view_as_real.of(input, a.view(real).reshape((*a.shape, 2)), ())


@view_as_real.vjp
def _view_as_real_vjp(grad):
    return (view_as_complex(grad.contiguous()),)


def _begins_with_a_pair(input):
    if isinstance(input, Tensor) and input.storage_offset() % 2 and input.ndim and input.shape[-1] == 2:
        raise RuntimeError(
            f"Tensor must have a storage_offset divisible by 2: view_as_complex got one of {input.storage_offset()}; clone() it first"
        )


@view(surface=FUNCTION, check=_begins_with_a_pair, autocast=("float32", None), samples="x(3, 2)", batch_rule=same_dims)
def view_as_complex(input):
    """A view of a real tensor whose last dimension has size 2 as a complex one; the inverse of `view_as_real`.

    Raises: RuntimeError for other sizes, dtypes, or strides that do not pair the parts.
    """


@view_as_complex.undone
def _real_again(new, source):
    return view_as_real(new)


view_as_complex.in_pieces("..._->...")


@view_as_complex.kernel
def _view_as_complex(a):
    d = dtypes.from_numpy_dtype(a.dtype)
    if d.name not in ("float16", "float32", "float64"):
        raise RuntimeError(f"view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: {d}")
    if a.ndim == 0 or a.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    if any(s % (2 * a.itemsize) for s, n in zip(a.strides[:-1], a.shape, strict=False) if n != 1):
        raise RuntimeError("Tensor must have a stride divisible by 2 for all but last dimension")
    if a.strides[-1] != a.itemsize and (a.size or any(a.strides)):
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    target = d.to_complex().numpy
    if type(a) is MetaArray:
        return as_meta(a, a.shape[:-1], target, a.strides[:-1])
    return a.view(target)[..., 0] if a.size else np.empty(a.shape[:-1], target)


@view_as_complex.forwards
def _rows_as_complex(input):
    a = input._array
    if a.__class__ is not ndarray or not a.flags.c_contiguous or not a.ndim or a.shape[-1] != 2 or not a.size:
        return None
    whole = _COMPLEX.get(a.dtype)
    if whole is None or input._view_of is not None and input.storage_offset() % 2:
        return None
    return view_as_complex.of(input, a.view(whole).reshape(a.shape[:-1]), ())


@view_as_complex.vjp
def _view_as_complex_vjp(grad):
    return (view_as_real(grad),)


def _part(index: int) -> Any:
    def kernel(a: Any) -> Any:
        d = dtypes.from_numpy_dtype(a.dtype)
        if type(a) is MetaArray:
            real = d.to_real().numpy
            return as_meta(a, a.shape, real, a.strides, index * real.itemsize)
        if d is dtypes.complex32:
            return _view_as_real(a)[..., index]
        return a.real if index == 0 else a.imag

    return kernel


@view(surface=0, samples="of real", public_name="real", batch_rule=same_dims)
def real_part(input):
    """The real part of a complex tensor, a view."""


real_part.in_pieces("...->...")


real_part.kernel(_part(0))


@real_part.vjp
def _real_vjp(grad):
    return (complex_of(grad, grad.new_zeros(grad.shape)),)


@view(surface=0, samples="of imag", public_name="imag", batch_rule=same_dims)
def imag_part(input):
    """The imaginary part of a complex tensor, a view."""


imag_part.in_pieces("...->...")


imag_part.kernel(_part(1))


@imag_part.vjp
def _imag_vjp(grad):
    return (complex_of(grad.new_zeros(grad.shape), grad),)


def complex_of(real: Tensor, imag: Tensor) -> Tensor:
    """The complex tensor of two real ones."""
    return view_as_complex(stack([real, imag], -1))


@composite(surface=FUNCTION | OUT, samples="x(2, 3), x(2, 3)")
def complex(real, imag):  # PyTorch's name
    """The complex tensor with parts `real` and `imag`, of one floating dtype."""
    for name, x in (("real", real), ("imag", imag)):
        if not isinstance(x, Tensor):
            raise TypeError(f"complex(): argument '{name}' must be Tensor, not {type(x).__name__}")
    for x in (real, imag):
        if x.dtype.name not in ("float16", "float32", "float64"):
            got = f"{dtypes.scalar_type(real.dtype)} and {dtypes.scalar_type(imag.dtype)}"
            raise RuntimeError(f"Expected both inputs to be Half, Float or Double tensors but got {got}")
    if real.dtype is not imag.dtype:
        wanted, got = dtypes.scalar_type(real.dtype), dtypes.scalar_type(imag.dtype)
        raise RuntimeError(f"Expected object of scalar type {wanted} but got scalar type {got} for second argument")
    real, imag = broadcast_tensors(real, imag)
    order = permutation(real._array.shape, [real._array, imag._array])
    if order == [*range(real.ndim)]:
        return complex_of(real, imag)
    back = [order.index(d) for d in range(real.ndim)]
    return complex_of(real.permute(order), imag.permute(order)).permute(back)


complex.result_shown_as("ComplexBackward0")


@complex.plan(tensors=("real", "imag"), dtypes="efd")
def _complex_of_parts(a, b):
    """Of one dtype."""
    wanted = _COMPLEX.get(a.dtype)
    if wanted is None:
        return None
    plain = a.flags.c_contiguous and b.flags.c_contiguous
    if a.shape == b.shape:
        made = np.empty(a.shape, wanted) if plain else empty_like_layout(a.shape, wanted, (a, b))
    elif plain:
        made = np.empty(np.broadcast(a, b).shape, wanted)
    else:
        return None
    made.real, made.imag = a, b
    return made


refuse_other_dtype_out(complex, lambda real: real.dtype.to_complex())


@composite(surface=FUNCTION | OUT, autocast=("float32", None), reads_parts=True, samples="p(2, 3), x(2, 3)")
def polar(abs, angle):
    """Complex values from magnitudes and angles in radians."""
    for name, x in (("abs", abs), ("angle", angle)):
        if not isinstance(x, Tensor):
            raise TypeError(f"polar(): argument '{name}' must be Tensor, not {type(x).__name__}")
    if abs.dtype is not angle.dtype:
        raise RuntimeError(f"polar: expected abs and angle of one dtype, but got {abs.dtype} and {angle.dtype}; convert one of them")
    return complex(abs * angle.cos(), abs * angle.sin())


polar.result_shown_as("PolarBackward0")


@polar.plan(tensors=("abs", "angle"), dtypes="fd")
def _polar_of_parts(length, angle):
    """By the formulas that it is made of, once they are compiled."""
    multiply = OPS["mul"].formula.direct
    cosine, sine = OPS["cos"].formula.direct(angle), OPS["sin"].formula.direct(angle)
    if cosine is None or sine is None:
        return None
    across, up = multiply(length, cosine), multiply(length, sine)
    return None if across is None or up is None else _complex_of_parts(across, up)


refuse_other_dtype_out(polar, lambda abs: abs.dtype.to_complex())


@composite(surface=FUNCTION, samples="c(2, 3); x(2, 3)")
def real(input):
    """The real part of complex tensors, a view; real tensors as they are."""
    return real_part.function(input) if input.is_complex() else input


@composite(surface=FUNCTION, samples="c(2, 3)")
def imag(input):
    """The imaginary part of complex tensors, a view. Raises: RuntimeError for real ones."""
    if not input.is_complex():
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return imag_part.function(input)


@composite(surface=FUNCTION | METHOD, samples="c(2, 3); x(2, 3)")
def conj(input):
    """The complex conjugate; a real tensor as it is."""
    return conj_physical(input) if input.is_complex() else input


@elementwise(
    surface=0, vjp={"input": lambda grad: conj(grad)}, title="ConjPhysicalBackward0", operator="conj_physical(input)", public_name="conj",
)
def conjugate(input):
    """The complex conjugate."""
    return conj(input)


@composite(surface=FUNCTION | METHOD | INPLACE | OUT, overlap=EXACTLY, samples="c(2, 3); x(2, 3)", exact_out=True)
def conj_physical(input):
    """The complex conjugate; a real tensor as it is."""
    return conjugate.function(input) if input.is_complex() else input


def _matrix_transpose(self: Tensor) -> Tensor:
    """A view with the last two dimensions exchanged. Raises: RuntimeError for fewer than two."""
    a = self._array
    if not (_state.IN_FORCE and interpreted()) and a.__class__ is ndarray and a.ndim >= 2:
        made = transpose.usual(self, -2, -1)
        return transpose.of(self, a.swapaxes(-2, -1), (-2, -1)) if made is None else made
    if self.ndim == 0:
        warn_once("Tensor.mT is deprecated on 0-D tensors. This function is the identity in these cases.")
        return self
    if self.ndim < 2:
        raise RuntimeError(f"tensor.mT is only supported on matrices or batches of matrices. Got {self.ndim}-D tensor.")
    return self.transpose(-2, -1)


def _conjugate_number(name: str, self: Tensor) -> Tensor:
    warn_once(f"Tensor.{name} is deprecated on 0-D tensors. Consider using x.conj().")
    return self.conj()


def _adjoint(self: Tensor) -> Tensor:
    """The conjugate transpose of the last two dimensions; of real tensors a view. See `adjoint`."""
    if self.ndim == 0:
        return _conjugate_number("mH", self)
    if self.ndim < 2:
        raise RuntimeError(f"tensor.mH is only supported on matrices or batches of matrices. Got {self.ndim}-D tensor.")
    return adjoint(self)


def _hermitian(self: Tensor) -> Tensor:
    """The conjugate transpose of a matrix; of a real one a view."""
    if self.ndim not in (0, 2):
        raise RuntimeError(
            f"tensor.H is only supported on matrices (2-D tensors). Got {self.ndim}-D tensor."
            + (" For batches of matrices, consider using tensor.mH" if self.ndim > 2 else "")
        )
    return _conjugate_number("H", self) if self.ndim == 0 else adjoint(self)


def _set_part(index: int) -> Any:
    def store(self: Tensor, value: Any) -> None:
        part = (real if index == 0 else imag)(self)
        part.copy_(value if isinstance(value, Tensor) else OPS["fill"].function(part.detach(), value))

    return store


def _reversed(self: Tensor) -> Tensor:
    """A view with all dimensions in reverse order; meant for two."""
    if not (_state.IN_FORCE and interpreted()):
        a = self._array
        if a.__class__ is ndarray and a.ndim == 2:
            made = permute.usual(self, (1, 0))
            return permute.of(self, a.T, ((1, 0),)) if made is None else made
    if self.ndim == 0:
        warn_once("Tensor.T is deprecated on 0-D tensors. This function is the identity in these cases.")
    elif self.ndim != 2:
        warn_once(
            "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated and it will throw an error in "
            "a future release. Consider `x.mT` to transpose batches of matrices or `x.permute(*torch.arange(x.ndim - 1, -1, -1))` to "
            "reverse the dimensions of a tensor."
        )
    return self.permute(tuple(range(self.ndim - 1, -1, -1)))


Tensor.T = property(_reversed)  # type: ignore[attr-defined]
Tensor.mT = property(_matrix_transpose)  # type: ignore[attr-defined]
Tensor.mH = property(_adjoint)  # type: ignore[attr-defined]
Tensor.H = property(_hermitian)  # type: ignore[attr-defined]
Tensor.real = property(real, _set_part(0))  # type: ignore[attr-defined]
Tensor.imag = property(imag, _set_part(1))  # type: ignore[attr-defined]
