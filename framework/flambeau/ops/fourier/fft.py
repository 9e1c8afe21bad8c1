"""Discrete Fourier transforms: three kernels (complex, real to half a spectrum, half a spectrum to real) and their names.

The kernels do not normalise; `scale` carries the factor that the norm mode asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

import flambeau_kernels
from flambeau_kernels.engine.runtime.pool import get_num_threads
from flambeau_kernels.loading import scipy_module

from ... import dtypes
from ..._arrays import is_c_contiguous, strides_in
from ...tensor import Tensor, wrap_dim
from .._batching import along
from .._makers import refusing
from .._spec import (
    FUNCTION,
    OPS,
    OUT,
    Operand,
    composite,
    describe,
    int_list,
    need_int,
    need_sizes,
    out_of_shape,
    primitive,
)
from .._spec.plans import Plan

BOTH = FUNCTION | OUT


# -- kernels -------------------------------------------------------------------------------------------------------------


def _scaled(made: Any, scale: float, dtype: Any) -> Any:
    made = np.asarray(made, dtype)
    if scale != 1:
        made = np.multiply(made, made.real.dtype.type(scale))
    return made


def _complex_of(d: Any) -> np.dtype:
    return np.dtype(np.complex128 if d in (np.float64, np.complex128) else np.complex64)


def _real_of(d: Any) -> np.dtype:
    return np.dtype(np.float64 if d in (np.float64, np.complex128) else np.float32)


def _memory_order(a: Any, dims: Any, halved: bool) -> list[int]:
    """The dimensions of a result, the slowest in memory first: as the strides of `a` have them, those transformed behind the others.

    Of a transform to or from half a spectrum (`halved`) the last of `dims` is the fastest.
    """
    rest, moved = [d for d in range(a.ndim) if d not in dims], list(dims[: len(dims) - halved])
    if is_c_contiguous(a):
        return [*rest, *sorted(moved), *dims[len(moved) :]]
    strides = a.strides
    return [*sorted(rest, key=lambda d: -strides[d]), *sorted(moved, key=lambda d: -strides[d]), *dims[len(moved) :]]


def _by_lines(halved: bool) -> Any:
    """Have a kernel see dimensions in the order that the result has in memory, so that the lines it takes lie together."""

    def decorated(kernel: Any) -> Any:
        def run(a: Any, dims: Any, *args: Any) -> Any:
            order = _memory_order(a, dims, halved)
            if order == list(range(a.ndim)):
                return kernel(a, dims, *args)
            at = [order.index(d) for d in range(a.ndim)]
            lines = np.empty([a.shape[d] for d in order], a.dtype)
            flambeau_kernels.store(lines, a.transpose(order))
            made = kernel(lines, tuple([at[d] for d in dims]), *args)
            return np.ascontiguousarray(made).transpose(at)

        return run

    return decorated


def _spec(shape: Any, dtype: Any, input: Tensor, dims: Any, halved: bool) -> Any:
    """The spec of a result that a kernel under `_by_lines` makes."""
    return shape, dtype, strides_in(tuple(shape), dtype.itemsize, _memory_order(input._array, dims, halved))


def _normalization(saved: Any) -> int:
    """How the transform is scaled, as nodes show it: not at all, by one over the root of the number of elements, or by one over it."""
    sizes = list(saved["input_shape"])
    if "n" in saved:
        sizes[saved["dims"][-1]] = saved["n"]
    count, scale = prod([sizes[d] for d in saved["dims"]]), saved["scale"]
    return 0 if scale == 1 else 2 if abs(scale * count - 1) < 1e-9 else 1


@primitive(surface=0, linear_in=("input",), samples="of fft.fft", batch_rule=along)
def transform(input, dims, scale, inverse):
    """The complex transform of complex `input` over `dims`, with exponent sign + if `inverse`, times `scale`."""


transform.in_pieces(along="dims")


transform.shown_as(
    "FftC2CBackward0", hides="inverse scale input_shape", dim="dims", normalization=_normalization,
    forward=lambda saved: not saved["inverse"],
)  # fmt: skip
transform.keeps_to_show("input_shape")


@transform.kernel
@_by_lines(False)
def _transform(a, dims, scale, inverse):
    made = _compiled(0, a, dims, scale, inverse)
    if made is not None:
        return made
    if not a.size or not dims:
        return _scaled(a.copy(), scale, a.dtype)
    rule = scipy_module("fft").ifftn if inverse else scipy_module("fft").fftn
    return _scaled(rule(a, axes=dims, norm="forward" if inverse else "backward", workers=_workers(a)), scale, a.dtype)


def _compiled(kind: int, a: Any, dims: Any, scale: float, inverse: bool, n: int = 0) -> Any:
    """The transform by a kernel; None where there is none. `kind` is one of those of `fourier`."""
    if a.__class__ is not np.ndarray:
        return None
    from flambeau_kernels.cpu import fourier

    run = fourier.planned(kind, a.shape, a.dtype.char.lower(), tuple(dims), scale, inverse, n)
    return None if run is None else run(np.ascontiguousarray(a))


def _workers(a: Any) -> int:
    """Threads for scipy, of which each takes whole lines: results do not depend on their number."""
    return get_num_threads() if a.size >= MANY else 1


MANY = 1 << 15  # elements from which it pays to wake other threads


@transform.shape
def _transform_shape(input, dims, scale, inverse):
    return _spec(input.shape, input.dtype, input, dims, False)


@transform.vjp
def _transform_vjp(grad, dims, scale, inverse):
    return transform(grad, dims, scale, not inverse)


@transform.vjp_on_arrays
def _transform_vjp_on_arrays(grad, dims, scale, inverse):
    return (_transform(grad, dims, scale, not inverse),)


@primitive(surface=0, linear_in=("input",), samples="of fft.rfft", batch_rule=along)
def real_transform(input, dims, scale):
    """The transform of real `input` over `dims`, only the first ``n // 2 + 1`` values along the last of them."""


real_transform.in_pieces(along="dims")


real_transform.shown_as(
    "FftR2CBackward0", hides="input_shape scale", dim="dims", normalization=_normalization, self=Operand("input"),
    onesided=lambda saved: True,
)  # fmt: skip


@real_transform.kernel
@_by_lines(True)
def _real_transform(a, dims, scale):
    made = _compiled(1, a, dims, scale, False)
    if made is not None:
        return made
    shape = _half_shape(a.shape, dims[-1])
    if not a.size:
        return np.zeros(shape, _complex_of(a.dtype))
    return _scaled(scipy_module("fft").rfftn(a, axes=dims, workers=_workers(a)), scale, _complex_of(a.dtype))


def _half_shape(shape: Any, d: int) -> tuple[int, ...]:
    return (*shape[:d], shape[d] // 2 + 1, *shape[d + 1 :])


@real_transform.shape
def _real_transform_shape(input, dims, scale):
    return _spec(_half_shape(input.shape, dims[-1]), input.dtype.to_complex(), input, dims, True)


@real_transform.vjp
def _real_transform_vjp(grad, input_shape, dims, scale):
    # The values left out of the result have no gradient; the adjoint of the whole transform does the rest.
    full = resize(grad, dims[-1], input_shape[dims[-1]])
    return transform(full, dims, scale, True).real


@real_transform.vjp_on_arrays
def _real_transform_vjp_on_arrays(grad, input_shape, dims, scale):
    full = np.zeros(input_shape, grad.dtype)
    full[tuple([slice(n) for n in grad.shape])] = grad
    return (np.array(_transform(full, dims, scale, True).real, order="K"),)


@primitive(surface=0, linear_in=("input",), samples="of fft.irfft", batch_rule=along)
def inverse_to_real(input, dims, n, scale):
    """Real values of length `n` along the last of `dims`, whose transform begins with `input`; not normalised."""


inverse_to_real.in_pieces(along="dims")


inverse_to_real.shown_as("FftC2RBackward0", hides="n scale input_shape", normalization=_normalization, dim="dims")
inverse_to_real.keeps_to_show("input_shape")


@inverse_to_real.kernel
@_by_lines(True)
def _inverse_to_real(a, dims, n, scale):
    made = _compiled(2, a, dims, scale, True, n)
    if made is not None:
        return made
    shape = [*a.shape]
    shape[dims[-1]] = n
    if not a.size:
        return np.zeros(shape, _real_of(a.dtype))
    made = scipy_module("fft").irfftn(a, s=[shape[d] for d in dims], axes=dims, norm="forward", workers=_workers(a))
    return _scaled(made, scale, _real_of(a.dtype))


@inverse_to_real.shape
def _inverse_to_real_shape(input, dims, n, scale):
    d = dims[-1]
    return _spec((*input.shape[:d], n, *input.shape[d + 1 :]), input.dtype.to_real(), input, dims, True)


@inverse_to_real.vjp
def _inverse_to_real_vjp(grad, dims, n, scale):
    half = real_transform(grad, dims, scale)
    # Each value between the ends stands for itself and its mirror image.
    weights = half.real.detach().new_ones([n // 2 + 1 if d == dims[-1] else 1 for d in range(half.ndim)])
    weights.narrow(dims[-1], 1, n - n // 2 - 1).fill_(2)
    return half * weights


@inverse_to_real.vjp_on_arrays
def _inverse_to_real_vjp_on_arrays(grad, dims, n, scale):
    half = _real_transform(grad, dims, scale)
    half[(slice(None),) * dims[-1] + (slice(1, n - n // 2),)] *= 2
    return (half,)


# -- arguments -----------------------------------------------------------------------------------------------------------


def resize(x: Tensor, dim: int, n: int) -> Tensor:
    """`x` cut, or padded with zeros, to length `n` along `dim`."""
    have = x.shape[dim]
    if have > n:
        return x.narrow(dim, 0, n)
    if have == n:
        return x
    return OPS["nn.functional.pad"].function(x, [0] * (2 * (x.ndim - 1 - dim) + 1) + [n - have])


def _operand(name: str, input: Any, want: str) -> Tensor:
    """`input` in a dtype transforms work in. Raises: TypeError, RuntimeError for what has no transform."""
    if not isinstance(input, Tensor):
        raise TypeError(f"fft_{name}(): argument 'input' must be Tensor, not {type(input).__name__}")
    d = input.dtype
    if d in (dtypes.float16, dtypes.bfloat16, dtypes.complex32) or d.name.startswith("float8"):
        raise RuntimeError(f"{name}: Unsupported dtype {d.name}; transforms take float32, float64, complex64 and complex128")
    if want == "real":
        if d.is_complex:
            raise RuntimeError(f"{name} expects a real input tensor, but got {d.name}\n{describe(input=input)}")
        return input if d.is_floating_point else input.to(dtypes.get_default_dtype())
    if d.is_complex:
        return input
    wide = d if d.is_floating_point else dtypes.get_default_dtype()
    return input.to(wide.to_complex())


def _check_length(n: int) -> int:
    if n < 1:
        raise RuntimeError(f"Invalid number of data points ({n}) specified; a transform needs at least 1")
    return n


def _factor(norm: Any, inverse: bool, count: int) -> float:
    """What the norm mode multiplies a transform of `count` values by."""
    if norm not in (None, "backward", "forward", "ortho"):
        raise RuntimeError(f'Invalid normalization mode: "{norm}"; there are "forward", "backward" and "ortho"')
    if norm == "ortho":
        return 1.0 / float(count) ** 0.5
    return 1.0 / count if (norm == "forward") != inverse else 1.0


def _plan(rule: Any, name: str, input: Tensor, s: Any, dim: Any, norm: Any, inverse: bool) -> Plan | None:
    """How a contiguous Tensor is transformed."""
    a, kind = input._array, {_to_complex: 0, _from_real: 1, _to_real: 2}[rule]
    char = a.dtype.char
    if char not in ("fdFD", "fd", "fdFD")[kind] or kind and inverse != (kind == 2):
        return None
    dims, sizes = _layout(name, input, s, dim)
    if not dims:
        return None
    lengths = [a.shape[d] if n == -1 else _check_length(n) for d, n in zip(dims, sizes, strict=True)]
    if kind == 2:
        lengths[-1] = _check_length(2 * (a.shape[dims[-1]] - 1) if sizes[-1] == -1 else sizes[-1])
    needed = [*lengths[:-1], lengths[-1] // 2 + 1] if kind == 2 else lengths
    from flambeau_kernels.cpu import fourier
    from flambeau_kernels.cpu.shapes.move import in_rows

    order = _memory_order(a, dims, kind > 0)
    fitted = dict(zip(dims, needed, strict=True))
    at, shape = [order.index(d) for d in range(a.ndim)], tuple([fitted.get(d, a.shape[d]) for d in order])
    scale = _factor(norm, inverse, prod(lengths))
    run = fourier.planned(kind, shape, char.lower(), tuple([at[d] for d in dims]), scale, inverse, lengths[-1])
    if run is None:
        return None
    widened = a.dtype if kind == 1 else _complex_of(a.dtype)
    kept = tuple([slice(min(n, a.shape[d])) for n, d in zip(shape, order, strict=True)])
    if any([n > a.shape[d] for n, d in zip(shape, order, strict=True)]):  # noqa: C419  # a list takes half as long
        if prod(shape) > _MOST_PADDED:
            return None

        def of_padded(a: Any) -> Any:
            lines = np.zeros(shape, widened)
            lines[kept] = a.transpose(order)[kept]
            return run(lines).transpose(at)

        return Plan(of_padded)
    if widened is not a.dtype or needed != [a.shape[d] for d in dims]:
        return Plan(lambda a: run(np.ascontiguousarray(a.transpose(order)[kept], widened)).transpose(at))
    along = dims, *((scale, inverse), (scale,), (lengths[-1], scale))[kind]
    of_lines = run if order == sorted(order) else lambda a: run(in_rows(a.transpose(order))).transpose(at)
    return Plan(of_lines, (transform, real_transform, inverse_to_real)[kind], lambda _, x: (x, *along))


def _dim(x: Tensor, dim: int) -> int:
    if not x.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    return wrap_dim(dim, x.ndim)


def _layout(name: str, x: Tensor, s: Any, dim: Any) -> tuple[tuple[int, ...], list[int]]:
    """The dimensions to transform, and the length to give each (-1 for the one it has)."""
    if isinstance(dim, (int, np.integer)):
        dim = (dim,)
    if s is not None:
        single = isinstance(s, (int, np.integer)) and s.__class__ is not bool or isinstance(s, Tensor) and not s.ndim
        s = need_sizes(f"fft_{name}", "s", (s,) if single else s)
    if s is not None and dim is None and len(s) > x.ndim:
        raise RuntimeError(f"{name}: Got shape with {len(s)} values but input tensor only has {x.ndim} dimensions.")
    if dim is None:
        dims = tuple(range(x.ndim)) if s is None else tuple(range(x.ndim - len(s), x.ndim))
    else:
        dims = tuple(_dim(x, d) for d in dim)
    if len(set(dims)) != len(dims):
        raise RuntimeError(f"{name}: FFT dims must be unique, got {tuple(dim)}")  # pyright: ignore[reportArgumentType]  # the arguments rule the other types out
    if s is not None and len(s) != len(dims):
        raise RuntimeError(f"{name}: When given, dim and shape arguments must have the same length, got {len(dims)} and {len(s)}")
    if s is not None and any(not -_MOST <= n <= _MOST for n in s):
        raise TypeError(f"fft_{name}(): argument 's' must be below 2**63: Overflow when unpacking long long, got {tuple(s)}")
    return dims, [-1] * len(dims) if s is None else [int(n) for n in s]


_MOST = (1 << 63) - 1
_MOST_PADDED = 1 << 20  # elements of what is padded, beyond which its operations cost nothing


# -- transforms over given dimensions --------------------------------------------------------------------------------------


def _to_complex(name: str, input: Any, s: Any, dim: Any, norm: Any, inverse: bool) -> Tensor:
    x = _operand(name, input, "complex")
    dims, sizes = _layout(name, x, s, dim)
    for d, n in zip(dims, sizes, strict=True):
        x = resize(x, d, _check_length(x.shape[d] if n == -1 else n))
    return transform(x, dims, _factor(norm, inverse, prod(x.shape[d] for d in dims)), inverse)


def _from_real(name: str, input: Any, s: Any, dim: Any, norm: Any, inverse: bool) -> Tensor:
    x = _operand(name, input, "real")
    dims, sizes = _layout(name, x, s, dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    for d, n in zip(dims, sizes, strict=True):
        x = resize(x, d, _check_length(x.shape[d] if n == -1 else n))
    factor = _factor(norm, inverse, prod(x.shape[d] for d in dims))
    if not inverse:
        return real_transform(x, dims, factor)
    made = real_transform(x, dims[-1:], factor).conj()
    return transform(made, dims[:-1], 1.0, True) if dims[1:] else made


def _to_real(name: str, input: Any, s: Any, dim: Any, norm: Any, inverse: bool) -> Tensor:
    x = _operand(name, input, "complex")
    dims, sizes = _layout(name, x, s, dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    last = 2 * (x.shape[dims[-1]] - 1) if sizes[-1] == -1 else sizes[-1]
    _check_length(last)
    for d, n in zip(dims[:-1], sizes[:-1], strict=True):
        x = resize(x, d, _check_length(x.shape[d] if n == -1 else n))
    x = resize(x, dims[-1], last // 2 + 1)
    if not inverse:
        x = x.conj()
    count = last * prod(x.shape[d] for d in dims[:-1])
    return inverse_to_real(x, dims, last, _factor(norm, inverse, count))


def _doc(what: str, where: str, stem: str, length: str) -> str:
    of = "the result" if stem in ("irfft", "hfft") else "`input`"
    default = "2 * (size - 1) of the last dimension" if stem in ("irfft", "hfft") else "its own size"
    return f"""{what.capitalize()} over {where}.

    Args:
        {length}: length{" of each dimension" * (length == "s")} that {of} has, by default {default}; values are cut or padded with zeros.
        dim: over which{"; all, or as many of the last as `s` has, by default" * (where == "several dimensions")}.
        norm: where the division by the number of values goes: 'backward' (the inverse, the default), 'forward' (the other) or
            'ortho' (half to each, by its square root).
    Raises: RuntimeError for a length below 1, another `norm`, or {"complex" if stem in ("rfft", "ihfft") else "half precision"} input.
    """


def _declare(stem: str, rule: Any, inverse: bool, what: str, *samples: str) -> None:
    """Declare the transform `stem`, which computes `what` by `rule`: over one dimension, two, and several, with their samples."""

    def one(input, n: int | None = None, dim=-1, norm: str | None = None):  # PyTorch's name
        if n is not None and need_int(f"fft_{stem}", "n", n) < 1:
            _check_length(int(n))
        if isinstance(input, Tensor):
            dim = _dim(input, dim)
        return rule(stem, input, None if n is None else (n,), (dim,), norm, inverse)

    def two(input, s: int | Sequence[int] | None = None, dim=(-2, -1), norm: str | None = None):
        if dim is None:
            raise TypeError(f"fft_{stem}2(): argument 'dim' must be tuple of ints, not NoneType")
        return rule(f"{stem}2", input, s, dim, norm, inverse)

    def many(input, s: int | Sequence[int] | None = None, dim: int | Sequence[int] | None = None, norm: str | None = None):
        return rule(f"{stem}n", input, s, dim, norm, inverse)

    forms = (one, "", "one dimension"), (two, "2", "two dimensions"), (many, "n", "several dimensions")
    for (fn, suffix, where), sample in zip(forms, samples, strict=True):
        name = f"{stem}{suffix}"
        fn.__name__ = fn.__qualname__ = name
        fn.__code__ = fn.__code__.replace(co_name=name)
        fn.__doc__ = _doc(what, where, stem, "n" if fn is one else "s")
        # The transforms of Hermitian signals along several dimensions are on none of PyTorch's lists.
        cast = ("float32", None) if fn is one or stem not in ("hfft", "ihfft") else None
        op = composite(surface=BOTH, namespace="fft", operator=f"fft_{name}", autocast=cast, samples=sample)(fn)
        op.plan(partial(_plan_one if fn is one else _plan_several, rule, name, inverse), by="shape")


def _plan_one(rule: Any, name: str, inverse: bool, input: Tensor, n: Any, dim: Any, norm: Any) -> Plan | None:
    return _plan(rule, name, input, None if n is None else (n,), (dim,), norm, inverse)


def _plan_several(rule: Any, name: str, inverse: bool, input: Tensor, s: Any, dim: Any, norm: Any) -> Plan | None:
    return _plan(rule, name, input, s, dim, norm, inverse)


_declare(
    "fft", _to_complex, False, "the transform",
    "x(2, 5); c(2, 4); x(6, 2), 4, 0, norm='ortho'", "x(2, 3, 4); c(3, 4), (2, 3), (0, 1), 'forward'", "x(2, 3, 2); c(3, 4), norm='ortho'",
)  # fmt: skip
_declare(
    "ifft", _to_complex, True, "the inverse transform",
    "c(2, 5); x(2, 4), 6", "c(2, 3, 4)", "c(2, 3, 2), dim=(0, 2)",
)  # fmt: skip
_declare(
    "rfft", _from_real, False, "the non-negative frequencies of the transform of real values",
    "x(2, 5); x(6, 2), 4, 0, norm='ortho'", "x(2, 3, 4)", "x(2, 3, 2), dim=(0, 1)",
)  # fmt: skip
_declare(
    "irfft", _to_real, True, "the real values with the non-negative frequencies `input`, inverse of the real transform,",
    "c(2, 3), 4; c(2, 4), 7", "c(2, 3, 3), (3, 4)", "c(2, 3), (2, 5)",
)  # fmt: skip
_declare(
    "hfft", _to_real, False, "the real transform of the Hermitian values that begin with `input`,",
    "c(2, 3), 4", "c(2, 3), (2, 4)", "c(2, 3), (2, 4)",
)  # fmt: skip
_declare(
    "ihfft", _from_real, True, "the first half of the Hermitian inverse transform of real values",
    "x(2, 5)", "x(3, 4)", "x(3, 4)",
)  # fmt: skip


# -- order and frequencies -----------------------------------------------------------------------------------------------


def _rolled(input: Tensor, dim: Any, amount: Any) -> Tensor:
    dims = list(range(input.ndim)) if dim is None else int_list(dim)
    dims = [wrap_dim(d, input.ndim) for d in dims]
    if not dims:
        raise RuntimeError("`shifts` required")
    return OPS["roll"].function(input, [amount(input.shape[d]) for d in dims], dims)


@composite(namespace="fft", samples="x(2, 5); x(4, 3), 0")
def fftshift(input, dim: int | Sequence[int] | None = None):
    """`input` with the zero frequency moved to the middle of each of `dim`, all by default.

    >>> fb.fft.fftshift(fb.fft.fftfreq(4))
    tensor([-0.5000, -0.2500,  0.0000,  0.2500])
    """
    return _rolled(input, dim, lambda n: n // 2)


@composite(namespace="fft", samples="x(2, 5); x(4, 3), 0")
def ifftshift(input, dim: int | Sequence[int] | None = None):
    """The inverse of `fftshift`, from which it differs where a length is odd."""
    return _rolled(input, dim, lambda n: (n + 1) // 2)


@fftshift.forwards
def _forward(input, dim):
    return _answered(input, dim, 0)


@ifftshift.forwards
def _backward(input, dim):
    return _answered(input, dim, 1)


def _answered(input: Tensor, dim: Any, odd: int) -> Any:
    """What `roll` answers of a row-major array."""
    a = input._array
    if a.__class__ is not np.ndarray or not a.flags.c_contiguous:
        return None
    shape = a.shape
    if dim is None and shape:
        return OPS["roll"].answer(input, tuple([(n + odd) // 2 for n in shape]), tuple(range(len(shape))))
    if isinstance(dim, (list, tuple)):
        dims = tuple([wrap_dim(d, len(shape)) for d in dim])
        return OPS["roll"].answer(input, tuple([(shape[d] + odd) // 2 for d in dims]), dims)
    if dim is None or dim.__class__ is not int or not -len(shape) <= dim < len(shape):
        return None
    return OPS["roll"].answer(input, (shape[dim] + odd) // 2, dim)


def _spacing(d: Any) -> Any:
    """`d` as a number."""
    return d.item() if isinstance(d, Tensor) and d.ndim == 0 else d


def _samples_apart(name: str, n: Any, d: Any, layout: Any, out: Any) -> tuple[int, float]:
    from ..creation._options import _check_layout

    _check_layout(layout, name, out)
    return need_int(name, "n", n), _spacing(d)


def _frequencies(name: str, count: int, counts: Any, n: int, d: float, out: Any, dtype: Any, options: dict[str, Any]) -> Tensor:
    wanted = dtypes.as_dtype(dtype, name) if dtype is not None else dtypes.get_default_dtype() if out is None else out.dtype
    if wanted.category < dtypes.FLOATING:
        raise RuntimeError(f"{name} requires a floating point or complex dtype, got {wanted.name}")
    if count < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {count}: [{count}]")
    from ..creation._options import _place, made_at
    from ..creation.from_values import array_of

    def values() -> Any:
        with np.errstate(divide="ignore", invalid="ignore"):
            return array_of(counts() * np.divide(1.0, n * d), wanted)  # of no spacing, infinite, and nan at 0

    made = made_at(_place(options["device"]), (count,), wanted.numpy, values, options["requires_grad"], out)
    if out is None:
        return made
    place = options["device"]
    return out_of_shape(name, out, tuple(made.shape), dtype, place, "range").copy_(made.view(out.shape))


@refusing
def fftfreq(n: int, d: float = 1.0, *, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
            requires_grad: bool = False, pin_memory: bool = False) -> Tensor:  # fmt: skip
    """The frequencies, in cycles per unit of the sample spacing `d`, of the values of a transform of length `n`."""
    n, d = _samples_apart("fftfreq", n, d, layout, out)

    def counts() -> Any:
        return np.concatenate([np.arange((n + 1) // 2), np.arange(-(n // 2), 0)])

    return _frequencies("fftfreq", n, counts, n, d, out, dtype, {"device": device, "requires_grad": requires_grad})


@refusing
def rfftfreq(n: int, d: float = 1.0, *, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
             requires_grad: bool = False, pin_memory: bool = False) -> Tensor:  # fmt: skip
    """The frequencies, in cycles per unit of `d`, of the values of a real transform of length `n`."""
    n, d = _samples_apart("rfftfreq", n, d, layout, out)
    options = {"device": device, "requires_grad": requires_grad}
    return _frequencies("rfftfreq", n // 2 + 1, lambda: np.arange(n // 2 + 1), n, d, out, dtype, options)
