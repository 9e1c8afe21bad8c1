"""Complex numbers in a model: ONNX's operators know none, so each is two real values; inputs and outputs have pairs in a last dimension."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import flambeau as fb

from .. import _aten
from ..tensor import Tensor
from ..utils import _pytree as pytree
from ._graph import Graph, Value
from ._translate import TRANSLATORS
from .errors import OnnxExporterError

__all__ = ["Complex", "is_concerned", "packed", "translated", "unpacked"]

COMPLEX_TRANSLATORS: dict[str, Callable[..., Any]] = {}


@dataclasses.dataclass(frozen=True)
class Complex:
    """A complex value: its real and its imaginary part."""

    re: Value
    im: Value

    @property
    def dtype(self) -> Any:
        """The complex dtype."""
        return self.re.dtype.to_complex()

    @property
    def shape(self) -> Any:
        """Sizes, as of a Value."""
        return self.re.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.re.ndim

    def with_shape(self, shape: Any) -> Complex:
        """The same parts, whose sizes are known."""
        return Complex(self.re._replace(shape=shape), self.im._replace(shape=shape))


def packed(g: Graph, z: Complex) -> Value:
    """The parts beside each other in a last dimension."""
    parts = [g.op("Unsqueeze", x, [-1]) for x in (z.re, z.im)]
    return g.op("Concat", *parts, axis=-1, shape=None if z.shape is None else (*z.shape, 2))


def unpacked(g: Graph, x: Value) -> Complex:
    """The parts of pairs in the last dimension."""
    shape = None if x.shape is None else x.shape[:-1]
    re, im = (g.op("Gather", x, np.array(at, dtype=np.int64), axis=-1, shape=shape) for at in (0, 1))
    return Complex(re, im)


def is_concerned(args: Any, kwargs: Any, out: Any) -> bool:
    """Whether an operator takes or gives complex values."""
    given = pytree.tree_leaves((args, kwargs))
    return any(isinstance(x, (Complex, complex)) for x in given) or any(
        isinstance(x, Tensor) and x.dtype.is_complex for x in pytree.tree_leaves(out)
    )


def translated(g: Graph, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The result of an operator on complex values; NotImplemented where there is no translation."""
    own = COMPLEX_TRANSLATORS.get(name)
    if own is not None:
        return own(g, *args, **kwargs)
    if name not in TRANSLATORS or not _goes_by_parts(name):
        return NotImplemented
    out = g.out
    g.out = pytree.tree_map(_real_of, out)
    found = [TRANSLATORS[name](g, *map(part, args), **{k: part(x) for k, x in kwargs.items()}) for part in (_real(g), _imaginary(g))]
    g.out = out
    if isinstance(found[0], Value):
        return Complex(*found)
    return tuple(Complex(re, im) for re, im in zip(*found, strict=True))


def _real_of(x: Any) -> Any:
    """A fake tensor of the dtype of the parts of `x`, if that is complex."""
    return x.abs() if isinstance(x, Tensor) and x.dtype.is_complex else x


def _goes_by_parts(name: str) -> bool:
    """Whether the operator moves or adds elements, so that each part of its result is that of the parts."""
    return name in _BY_PARTS or any(op.kind == "view" or op.elements == "moved" for op in _aten.ops_of(name.split(".")[1]))


def _real(g: Graph) -> Callable[[Any], Any]:
    def real(x: Any) -> Any:
        if isinstance(x, list):
            return [real(each) for each in x]
        return x.re if isinstance(x, Complex) else x.real if isinstance(x, complex) else x

    return real


def _imaginary(g: Graph) -> Callable[[Any], Any]:
    def imaginary(x: Any) -> Any:
        if isinstance(x, list):
            return [imaginary(each) for each in x]
        if isinstance(x, Value) and x.dtype.is_floating_point:
            return g.op("Mul", x, g.const(0.0, x.dtype), shape=x.shape)
        return x.im if isinstance(x, Complex) else x.imag if isinstance(x, complex) else x

    return imaginary


_BY_PARTS = {
    f"aten.{name}"
    for name in (
        "neg.default", "sum.default", "sum.dim_IntList", "mean.default", "mean.dim", "cumsum.default", "clone.default", "alias.default",
        "detach.default", "view.default", "reshape.default", "flatten.using_ints", "unflatten.int", "expand.default", "expand_as.default",
        "slice.Tensor", "select.int", "index.Tensor", "constant_pad_nd.default", "where.self", "tril.default", "triu.default",
        "unbind.int", "split.Tensor", "split_with_sizes.default", "chunk.default", "stack.default", "repeat.default", "lift_fresh.default",
    )
}  # fmt: skip


# -- arithmetic ------------------------------------------------------------------------------------------------------------


def _translates(*operators: str) -> Callable[[Any], Any]:
    def register(fn: Any) -> Any:
        for name in operators:
            COMPLEX_TRANSLATORS[name] = fn
        return fn

    return register


def _lifted(g: Graph, x: Any, like: Complex) -> Complex:
    """`x`, a value or a number, as complex."""
    real = like.re.dtype
    if isinstance(x, Complex):
        return x
    if isinstance(x, Value):
        x = g.cast(x, real)
        return Complex(x, g.op("Mul", x, g.const(0.0, real), shape=x.shape))
    return Complex(g.const(x.real, real), g.const(float(x.imag), real))


def _both(g: Graph, a: Any, b: Any) -> tuple[Complex, Complex]:
    like = next((x for x in (a, b) if isinstance(x, Complex)), None)
    if like is None:                                  # a real value and a complex number
        value = a if isinstance(a, Value) else b
        value = g.cast(value, g.out.dtype.to_real())
        like = Complex(value, g.const(0.0, value.dtype))
    return _lifted(g, a, like), _lifted(g, b, like)


@_translates("aten.add.Tensor", "aten.add.Scalar")
def _add(g: Graph, a: Any, b: Any, *, alpha: Any = 1) -> Complex:
    a, b = _both(g, a, b if alpha == 1 else _mul(g, b, alpha))
    return Complex(g.op("Add", a.re, b.re), g.op("Add", a.im, b.im))


@_translates("aten.sub.Tensor", "aten.sub.Scalar")
def _sub(g: Graph, a: Any, b: Any, *, alpha: Any = 1) -> Complex:
    a, b = _both(g, a, b if alpha == 1 else _mul(g, b, alpha))
    return Complex(g.op("Sub", a.re, b.re), g.op("Sub", a.im, b.im))


@_translates("aten.rsub.Tensor", "aten.rsub.Scalar")
def _rsub(g: Graph, a: Any, b: Any, alpha: Any = 1) -> Complex:
    return _sub(g, b, a, alpha=alpha)


@_translates("aten.mul.Tensor", "aten.mul.Scalar")
def _mul(g: Graph, a: Any, b: Any) -> Complex:
    return _product(g, "Mul", *_both(g, a, b))


@_translates("aten.mm.default", "aten.bmm.default", "aten.matmul.default", "aten.mv.default", "aten.dot.default")
def _matmul(g: Graph, a: Any, b: Any) -> Complex:
    return _product(g, "MatMul", *_both(g, a, b))


def _product(g: Graph, kind: str, a: Complex, b: Complex) -> Complex:
    re = g.op("Sub", g.op(kind, a.re, b.re), g.op(kind, a.im, b.im))
    return Complex(re, g.op("Add", g.op(kind, a.re, b.im), g.op(kind, a.im, b.re)))


@_translates("aten.square.default")
def _square(g: Graph, z: Complex) -> Complex:
    return _mul(g, z, z)


@_translates("aten.div.Tensor", "aten.div.Scalar", "prims.true_divide.default")
def _div(g: Graph, a: Any, b: Any) -> Complex:
    if isinstance(b, (Value, int, float)):
        divisor = g.like(b, a.re.dtype)
        return Complex(g.op("Div", a.re, divisor), g.op("Div", a.im, divisor))
    a, b = _both(g, a, b)
    length = g.op("Add", g.op("Mul", b.re, b.re), g.op("Mul", b.im, b.im))
    product = _product(g, "Mul", a, _conj(g, b))
    return Complex(g.op("Div", product.re, length), g.op("Div", product.im, length))


@_translates("aten.reciprocal.default")
def _reciprocal(g: Graph, z: Complex) -> Complex:
    return _div(g, 1, z)


@_translates("aten.conj_physical.default", "aten._conj.default", "aten.conj.default", "aten._conj_physical.default")
def _conj(g: Graph, z: Complex) -> Complex:
    return Complex(z.re, g.op("Neg", z.im))


@_translates("aten.pow.Tensor_Scalar")
def _pow(g: Graph, z: Complex, exponent: Any) -> Complex:
    if not isinstance(exponent, int) or not 0 < exponent < 16:
        raise OnnxExporterError(f"powers of complex numbers are of whole exponents from 1 to 15, got {exponent}")
    made = z
    for _ in range(exponent - 1):
        made = _mul(g, made, z)
    return made


@_translates("aten.exp.default")
def _exp(g: Graph, z: Complex) -> Complex:
    return _polar(g, g.op("Exp", z.re), z.im)


@_translates("aten.log.default")
def _log(g: Graph, z: Complex) -> Complex:
    return Complex(g.op("Log", _abs(g, z)), _angle(g, z))


@_translates("aten.eq.Tensor", "aten.eq.Scalar")
def _eq(g: Graph, a: Any, b: Any) -> Value:
    a, b = _both(g, a, b)
    equal = [g.op("Equal", x, y, dtype=fb.bool) for x, y in ((a.re, b.re), (a.im, b.im))]
    return g.op("And", *equal)


@_translates("aten.ne.Tensor", "aten.ne.Scalar")
def _ne(g: Graph, a: Any, b: Any) -> Value:
    return g.op("Not", _eq(g, a, b))


# -- parts -----------------------------------------------------------------------------------------------------------------


@_translates("prims.real_part.default", "aten.real.default")
def _real_part(g: Graph, z: Complex) -> Value:
    return z.re


@_translates("prims.imag_part.default", "aten.imag.default")
def _imag_part(g: Graph, z: Complex) -> Value:
    return z.im


@_translates("aten.abs.default")
def _abs(g: Graph, z: Complex) -> Value:
    return g.op("Sqrt", g.op("Add", g.op("Mul", z.re, z.re), g.op("Mul", z.im, z.im)))


@_translates("aten.angle.default")
def _angle(g: Graph, z: Complex) -> Value:
    out, g.out = g.out, _real_of(g.out)
    made = TRANSLATORS["aten.atan2.default"](g, z.im, z.re)
    g.out = out
    return made


@_translates("aten.complex.default")
def _complex(g: Graph, real: Value, imag: Value) -> Complex:
    return Complex(real, imag)


@_translates("aten.polar.default")
def _polar(g: Graph, abs: Value, angle: Value) -> Complex:
    return Complex(g.op("Mul", abs, g.op("Cos", angle)), g.op("Mul", abs, g.op("Sin", angle)))


@_translates("aten.view_as_real.default", "aten.view_as_real_copy.default")
def _view_as_real(g: Graph, z: Complex) -> Value:
    return packed(g, z)


@_translates("aten.view_as_complex.default", "aten.view_as_complex_copy.default")
def _view_as_complex(g: Graph, x: Value) -> Complex:
    return unpacked(g, x)


@_translates("aten._to_copy.default", "aten.to.dtype")
def _to_copy(g: Graph, x: Any, dtype: Any = None, *others: Any, **options: Any) -> Any:
    dtype = g.out.dtype
    if not dtype.is_complex:
        return g.cast(x.re, dtype)
    real = dtype.to_real()
    if isinstance(x, Complex):
        return Complex(g.cast(x.re, real), g.cast(x.im, real))
    x = g.cast(x, real)
    return Complex(x, g.op("Mul", x, g.const(0.0, real), shape=x.shape))


# -- Fourier transforms ----------------------------------------------------------------------------------------------------


def _dft(g: Graph, z: Complex, dim: int, n: Any, norm: str | None, inverse: bool) -> Complex:
    """The transform along `dim` of `n` elements, which are cut off or zeros where there are others."""
    dim %= z.ndim
    assert z.shape is not None
    n = z.shape[dim] if n is None else n
    if not isinstance(n, int):
        raise OnnxExporterError("transforms along open sizes are not built")
    x = packed(g, z)
    if z.shape[dim] != n:
        x = g.op("Slice", x, [0], [n], [dim]) if z.shape[dim] > n else g.op("Pad", x, _behind(z.ndim + 1, dim, n - z.shape[dim]))
    lone = z.ndim == 1                                # the operator wants a dimension beside the transformed one
    x = g.op("Unsqueeze", x, [0]) if lone else x
    if g.opset >= 20:
        made = g.op("DFT", x, None, g.const(dim + lone, fb.int64), inverse=int(inverse))
    else:
        made = g.op("DFT", x, axis=dim + lone, inverse=int(inverse))
    made = g.op("Squeeze", made, [0]) if lone else made
    # The operator divides the inverse by the number of elements.
    share = {None: inverse, "backward": inverse, "ortho": 0.5, "forward": not inverse}[norm]
    factor = n ** (int(inverse) - float(share))
    made = made if factor == 1 else g.op("Mul", made, g.const(factor, made.dtype))
    shape = (*z.shape[:dim], n, *z.shape[dim + 1 :])
    return unpacked(g, made._replace(shape=(*shape, 2)))


def _behind(ndim: int, dim: int, count: int) -> list[int]:
    return [0] * ndim + [count if d == dim else 0 for d in range(ndim)]


def _as_complex(g: Graph, x: Any) -> Complex:
    if isinstance(x, Complex):
        return x
    x = x if x.dtype.is_floating_point else g.cast(x, fb.get_default_dtype())
    return Complex(x, g.op("Mul", x, g.const(0.0, x.dtype), shape=x.shape))


def _half_spectrum(g: Graph, x: Any, n: Any, dim: int, norm: str | None) -> Complex:
    made = _dft(g, _as_complex(g, x), dim, n, norm, False)
    assert made.shape is not None
    dim %= made.ndim
    count = made.shape[dim] // 2 + 1
    shape = (*made.shape[:dim], count, *made.shape[dim + 1 :])
    return Complex(*(g.op("Slice", part, [0], [count], [dim], shape=shape) for part in (made.re, made.im)))


def _from_half(g: Graph, z: Any, n: Any, dim: int, norm: str | None) -> Value:
    """Real numbers, from the first half of their spectrum; the second has the conjugates."""
    z = _as_complex(g, z)
    assert z.shape is not None
    dim %= z.ndim
    have = z.shape[dim]
    n = 2 * (have - 1) if n is None else n
    if not isinstance(have, int) or not isinstance(n, int):
        raise OnnxExporterError("transforms along open sizes are not built")
    places = [min(k, n - k) for k in range(n)]
    signs = [0.0 if 2 * k % n == 0 else 1.0 if 2 * k < n else -1.0 for k in range(n)]
    if max(places) >= have:                           # what is not given is 0
        missing = _behind(z.ndim, dim, max(places) + 1 - have)
        z = Complex(g.op("Pad", z.re, missing), g.op("Pad", z.im, missing))
    shape = None if z.shape is None else (*z.shape[:dim], n, *z.shape[dim + 1 :])
    re, im = (g.op("Gather", part, np.array(places, dtype=np.int64), axis=dim) for part in (z.re, z.im))
    column = g.const(fb.tensor(signs, dtype=re.dtype).reshape([-1, *[1] * (len(g.out.shape) - 1 - dim)]))
    whole = Complex(re, g.op("Mul", im, column))
    shape = tuple(n if d == dim else m for d, m in enumerate(g.out.shape)) if shape is None else shape
    return _dft(g, whole.with_shape(shape), dim, n, norm, True).re


def _dims_of(x: Any, s: Any, dim: Any) -> tuple[list[int], list[Any]]:
    """The transformed dimensions, and how many elements each is to have."""
    dims = list(dim) if dim is not None else list(range(-len(s), 0)) if s is not None else list(range(-x.ndim, 0))
    sizes = [None] * len(dims) if s is None else [None if n == -1 else n for n in s]
    return dims, sizes


def _many(inverse: bool, default: Any) -> Callable[..., Complex]:
    def translate(g: Graph, x: Any, s: Any = None, dim: Any = default, norm: str | None = None) -> Complex:
        dims, sizes = _dims_of(x, s, dim)
        z = _as_complex(g, x)
        for d, n in zip(dims, sizes, strict=True):
            z = _dft(g, z, d, n, norm, inverse)
        return z

    return translate


def _one(inverse: bool) -> Callable[..., Complex]:
    def translate(g: Graph, x: Any, n: Any = None, dim: int = -1, norm: str | None = None) -> Complex:
        return _dft(g, _as_complex(g, x), dim, n, norm, inverse)

    return translate


@_translates("aten.fft_rfft.default")
def _rfft(g: Graph, x: Value, n: Any = None, dim: int = -1, norm: str | None = None) -> Complex:
    return _half_spectrum(g, x, n, dim, norm)


@_translates("aten.fft_irfft.default")
def _irfft(g: Graph, z: Complex, n: Any = None, dim: int = -1, norm: str | None = None) -> Value:
    return _from_half(g, z, n, dim, norm)


_OTHER_WAY = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}


@_translates("aten.fft_hfft.default")
def _hfft(g: Graph, z: Any, n: Any = None, dim: int = -1, norm: str | None = None) -> Value:
    return _from_half(g, _conj(g, _as_complex(g, z)), n, dim, _OTHER_WAY[norm])


@_translates("aten.fft_ihfft.default")
def _ihfft(g: Graph, x: Value, n: Any = None, dim: int = -1, norm: str | None = None) -> Complex:
    return _conj(g, _half_spectrum(g, x, n, dim, _OTHER_WAY[norm]))


def _rfftn(default: Any) -> Callable[..., Complex]:
    def translate(g: Graph, x: Value, s: Any = None, dim: Any = default, norm: str | None = None) -> Complex:
        dims, sizes = _dims_of(x, s, dim)
        z = _half_spectrum(g, x, sizes[-1], dims[-1], norm)
        for d, n in zip(dims[:-1], sizes[:-1], strict=True):
            z = _dft(g, z, d, n, norm, False)
        return z

    return translate


def _irfftn(default: Any) -> Callable[..., Value]:
    def translate(g: Graph, z: Complex, s: Any = None, dim: Any = default, norm: str | None = None) -> Value:
        dims, sizes = _dims_of(z, s, dim)
        for d, n in zip(dims[:-1], sizes[:-1], strict=True):
            z = _dft(g, z, d, n, norm, True)
        return _from_half(g, z, sizes[-1], dims[-1], norm)

    return translate


for _inverse, _word in ((False, "fft"), (True, "ifft")):
    _translates(f"aten.fft_{_word}.default")(_one(_inverse))
    _translates(f"aten.fft_{_word}2.default")(_many(_inverse, (-2, -1)))
    _translates(f"aten.fft_{_word}n.default")(_many(_inverse, None))
for _end, _default in (("2", (-2, -1)), ("n", None)):
    _translates(f"aten.fft_rfft{_end}.default")(_rfftn(_default))
    _translates(f"aten.fft_irfft{_end}.default")(_irfftn(_default))
