"""Operators on each element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flambeau as fb

from .._graph import Graph, Value, promoted
from ._table import translates

__all__: list[str] = []

# -- one operand -----------------------------------------------------------------------------------------------------------

_SAME = {  # by operator: that of ONNX which takes the same types
    "aten.abs.default": "Abs", "aten.neg.default": "Neg", "aten.relu.default": "Relu", "aten.sign.default": "Sign",
}  # fmt: skip
_FLOATING = {  # those that compute in floating point: integers are cast first
    "aten.exp.default": "Exp", "aten.log.default": "Log", "aten.sqrt.default": "Sqrt", "aten.sin.default": "Sin",
    "aten.cos.default": "Cos", "aten.tan.default": "Tan", "aten.asin.default": "Asin", "aten.acos.default": "Acos",
    "aten.atan.default": "Atan", "aten.sinh.default": "Sinh", "aten.cosh.default": "Cosh", "aten.tanh.default": "Tanh",
    "aten.asinh.default": "Asinh", "aten.acosh.default": "Acosh", "aten.atanh.default": "Atanh", "aten.erf.default": "Erf",
    "aten.reciprocal.default": "Reciprocal", "aten.sigmoid.default": "Sigmoid",
}  # fmt: skip
_ROUNDING = {"aten.ceil.default": "Ceil", "aten.floor.default": "Floor", "aten.round.default": "Round"}


def _of_kind(kind: str, floating: bool) -> Callable[..., Value]:
    def translate(g: Graph, input: Value) -> Value:
        return g.op(kind, g.cast(input, g.out.dtype) if floating else input)

    return translate


for _table, _floats in ((_SAME, False), (_FLOATING, True)):
    for _name, _kind in _table.items():
        translates(_name)(_of_kind(_kind, _floats))


def _rounding(kind: str) -> Callable[..., Value]:
    def translate(g: Graph, input: Value) -> Value:
        return g.op(kind, input) if input.dtype.is_floating_point else input

    return translate


for _name, _kind in _ROUNDING.items():
    translates(_name)(_rounding(_kind))


@translates("aten.trunc.default", "aten.fix.default")
def trunc(g: Graph, input: Value) -> Value:
    if not input.dtype.is_floating_point:
        return input
    return g.op("Mul", g.op("Sign", input), g.op("Floor", g.op("Abs", input)))


@translates("aten.frac.default")
def frac(g: Graph, input: Value) -> Value:
    return g.op("Sub", input, trunc(g, input))


@translates("aten.round.decimals")
def round_decimals(g: Graph, input: Value, *, decimals: int = 0) -> Value:
    scale = g.const(10.0**decimals, input.dtype)
    return g.op("Div", g.op("Round", g.op("Mul", input, scale)), scale)


@translates("aten.rsqrt.default")
def rsqrt(g: Graph, input: Value) -> Value:
    return g.op("Reciprocal", g.op("Sqrt", g.cast(input, g.out.dtype)))


@translates("aten.exp2.default")
def exp2(g: Graph, input: Value) -> Value:
    return g.op("Pow", g.const(2.0, g.out.dtype), g.cast(input, g.out.dtype))


@translates("aten.expm1.default")
def expm1(g: Graph, input: Value) -> Value:
    return g.op("Sub", g.op("Exp", g.cast(input, g.out.dtype)), g.const(1.0, g.out.dtype))


@translates("aten.log1p.default")
def log1p(g: Graph, input: Value) -> Value:
    return g.op("Log", g.op("Add", g.cast(input, g.out.dtype), g.const(1.0, g.out.dtype)))


@translates("aten.log2.default")
def log2(g: Graph, input: Value) -> Value:
    return g.op("Div", g.op("Log", g.cast(input, g.out.dtype)), g.const(math.log(2.0), g.out.dtype))


@translates("aten.log10.default")
def log10(g: Graph, input: Value) -> Value:
    return g.op("Div", g.op("Log", g.cast(input, g.out.dtype)), g.const(math.log(10.0), g.out.dtype))


@translates("aten.erfc.default", "aten.special_erfc.default")
def erfc(g: Graph, input: Value) -> Value:
    return g.op("Sub", g.const(1.0, g.out.dtype), g.op("Erf", g.cast(input, g.out.dtype)))


@translates("aten.square.default")
def square(g: Graph, input: Value) -> Value:
    return g.op("Mul", input, input)


@translates("aten.positive.default", "aten.alias.default", "aten.detach.default", "aten.lift_fresh_copy.default", "aten.lift_fresh.default")
def same(g: Graph, input: Value) -> Value:
    return g.op("Identity", input)


@translates("aten.clone.default", "aten.contiguous.default")
def clone(g: Graph, input: Value, *, memory_format: Any = None) -> Value:
    return g.op("Identity", input)


@translates("aten.dropout.default", "aten.feature_dropout.default", "aten.alpha_dropout.default", "aten.feature_alpha_dropout.default")
def dropout(g: Graph, input: Value, p: float, train: bool) -> Value:
    if not train or p == 0:
        return g.op("Identity", input)
    return g.op("Dropout", input, g.const(p, fb.float32), g.const(True))


@translates("aten.deg2rad.default")
def deg2rad(g: Graph, input: Value) -> Value:
    return g.op("Mul", g.cast(input, g.out.dtype), g.const(math.pi / 180, g.out.dtype))


@translates("aten.rad2deg.default")
def rad2deg(g: Graph, input: Value) -> Value:
    return g.op("Mul", g.cast(input, g.out.dtype), g.const(180 / math.pi, g.out.dtype))


@translates("aten.isnan.default")
def isnan(g: Graph, input: Value) -> Value:
    if not input.dtype.is_floating_point:
        return g.op("Less", input, input, dtype=fb.bool)
    return g.op("IsNaN", input, dtype=fb.bool)


@translates("aten.isinf.default")
def isinf(g: Graph, input: Value) -> Value:
    return g.op("IsInf", g.cast(input, fb.float32), dtype=fb.bool)


@translates("aten.isfinite.default")
def isfinite(g: Graph, input: Value) -> Value:
    x = g.cast(input, fb.float32)
    return g.op("Not", g.op("Or", g.op("IsInf", x, dtype=fb.bool), g.op("IsNaN", x, dtype=fb.bool)))


@translates("aten.logical_not.default")
def logical_not(g: Graph, input: Value) -> Value:
    return g.op("Not", g.cast(input, fb.bool))


@translates("aten.bitwise_not.default")
def bitwise_not(g: Graph, input: Value) -> Value:
    return g.op("Not", input) if input.dtype is fb.bool else g.op("BitwiseNot", input)


@translates("aten.nan_to_num.default")
def nan_to_num(g: Graph, input: Value, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Value:
    if not input.dtype.is_floating_point:
        return g.op("Identity", input)
    limits = fb.finfo(input.dtype)
    zero = g.const(0.0, input.dtype)
    high, low = (g.const(b if a is None else a, input.dtype) for a, b in ((posinf, limits.max), (neginf, limits.min)))
    infinite = g.op("IsInf", g.cast(input, fb.float32) if input.dtype is not fb.float64 else input, dtype=fb.bool)
    x = g.op("Where", infinite, g.op("Where", g.op("Greater", input, zero, dtype=fb.bool), high, low, dtype=input.dtype), input,
             dtype=input.dtype)  # fmt: skip
    missing = g.op("IsNaN", input, dtype=fb.bool)
    return g.op("Where", missing, g.const(nan or 0.0, input.dtype), x, dtype=input.dtype)


@translates("aten._to_copy.default")
def to_copy(
    g: Graph, input: Value, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
    non_blocking: bool = False, memory_format: Any = None,
) -> Value:  # fmt: skip
    return to_dtype(g, input, dtype or input.dtype)


@translates("aten.to.dtype", "aten._cast_Float.default", "prims.convert_element_type.default", "aten.to.device")
def to_dtype(g: Graph, input: Value, dtype: Any, *others: Any, **named: Any) -> Value:
    wanted = g.out.dtype if g.out is not None else dtype
    if input.dtype is wanted:
        return g.op("Identity", input)
    return g.cast(input, wanted)


# -- activations -----------------------------------------------------------------------------------------------------------


@translates("aten.relu6.default")
def relu6(g: Graph, input: Value) -> Value:
    return clip(g, input, 0, 6)


@translates("aten.hardtanh.default")
def hardtanh(g: Graph, input: Value, min_val: float = -1, max_val: float = 1) -> Value:
    return clip(g, input, min_val, max_val)


@translates("aten.leaky_relu.default")
def leaky_relu(g: Graph, input: Value, negative_slope: float = 0.01) -> Value:
    return g.op("LeakyRelu", input, alpha=float(negative_slope))


@translates("aten.elu.default")
def elu(g: Graph, input: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    zero = g.const(0.0, input.dtype)
    negative = g.op("Sub", g.op("Exp", g.op("Mul", g.op("Min", input, zero), g.const(float(input_scale), input.dtype))),
                    g.const(1.0, input.dtype))  # fmt: skip
    negative = g.op("Mul", negative, g.const(float(alpha), input.dtype))
    made = g.op("Where", g.op("Greater", input, zero, dtype=fb.bool), input, negative, dtype=input.dtype)
    return g.op("Mul", made, g.const(float(scale), input.dtype))


@translates("aten.celu.default")
def celu(g: Graph, input: Value, alpha: float = 1.0) -> Value:
    return elu(g, input, alpha, 1, 1 / alpha)


@translates("aten.selu.default")
def selu(g: Graph, input: Value) -> Value:
    return elu(g, input, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@translates("aten.gelu.default")
def gelu(g: Graph, input: Value, *, approximate: str = "none") -> Value:
    def number(x: float) -> Value:
        return g.const(x, input.dtype)

    half = g.op("Mul", input, number(0.5))
    if approximate == "tanh":
        cube = g.op("Mul", g.op("Mul", input, input), input)
        inner = g.op("Mul", g.op("Add", input, g.op("Mul", cube, number(0.044715))), number(math.sqrt(2 / math.pi)))
        return g.op("Mul", half, g.op("Add", g.op("Tanh", inner), number(1.0)))
    return g.op("Mul", half, g.op("Add", g.op("Erf", g.op("Mul", input, number(math.sqrt(0.5)))), number(1.0)))


@translates("aten.silu.default")
def silu(g: Graph, input: Value) -> Value:
    return g.op("Mul", input, g.op("Sigmoid", input))


@translates("aten.softplus.default")
def softplus(g: Graph, input: Value, beta: float = 1, threshold: float = 20) -> Value:
    scaled = g.op("Mul", input, g.const(float(beta), input.dtype))
    smooth = g.op("Div", g.op("Softplus", scaled), g.const(float(beta), input.dtype))
    above = g.op("Greater", scaled, g.const(float(threshold), input.dtype), dtype=fb.bool)
    return g.op("Where", above, input, smooth, dtype=input.dtype)


@translates("aten.mish.default")
def mish(g: Graph, input: Value) -> Value:
    return g.op("Mul", input, g.op("Tanh", g.op("Softplus", input)))


@translates("aten.hardsigmoid.default")
def hardsigmoid(g: Graph, input: Value) -> Value:
    lifted = clip(g, g.op("Add", input, g.const(3.0, input.dtype)), 0, 6)
    return g.op("Div", lifted, g.const(6.0, input.dtype))


@translates("aten.hardswish.default")
def hardswish(g: Graph, input: Value) -> Value:
    return g.op("Mul", input, hardsigmoid(g, input))


@translates("aten.log_sigmoid.default")
def log_sigmoid(g: Graph, input: Value) -> Value:
    return g.op("Neg", g.op("Softplus", g.op("Neg", input)))


@translates("aten.softshrink.default")
def softshrink(g: Graph, input: Value, lambd: float = 0.5) -> Value:
    bound = g.const(float(lambd), input.dtype)
    shrunk = g.op("Max", g.op("Sub", g.op("Abs", input), bound), g.const(0.0, input.dtype))
    return g.op("Mul", g.op("Sign", input), shrunk)


@translates("aten.hardshrink.default")
def hardshrink(g: Graph, input: Value, lambd: float = 0.5) -> Value:
    inside = g.op("LessOrEqual", g.op("Abs", input), g.const(float(lambd), input.dtype), dtype=fb.bool)
    return g.op("Where", inside, g.const(0.0, input.dtype), input, dtype=input.dtype)


@translates("aten.threshold.default")
def threshold(g: Graph, input: Value, threshold: float, value: float) -> Value:
    above = g.op("Greater", input, g.const(threshold, input.dtype), dtype=fb.bool)
    return g.op("Where", above, input, g.const(value, input.dtype), dtype=input.dtype)


@translates("aten.prelu.default", "aten._prelu_kernel.default")
def prelu(g: Graph, input: Value, weight: Value) -> Value:
    if input.ndim > 2 and weight.ndim == 1:
        weight = g.reshape(weight, [-1, *[1] * (input.ndim - 2)])
    return g.op("PRelu", input, weight)


@translates("aten.glu.default")
def glu(g: Graph, input: Value, dim: int = -1) -> Value:
    if g.opset >= 18:
        a, b = g.op("Split", input, outputs=2, axis=dim, num_outputs=2)
    else:
        a, b = g.op("Split", input, outputs=2, axis=dim)
    return g.op("Mul", a, g.op("Sigmoid", b))


@translates("aten.logit.default")
def logit(g: Graph, input: Value, eps: float | None = None) -> Value:
    x = g.cast(input, g.out.dtype)
    x = x if eps is None else clip(g, x, eps, 1 - eps)
    return g.op("Log", g.op("Div", x, g.op("Sub", g.const(1.0, x.dtype), x)))


# -- two operands ----------------------------------------------------------------------------------------------------------


@translates("aten.add.Tensor", "aten.add.Scalar")
def add(g: Graph, input: Any, other: Any, *, alpha: Any = 1) -> Value:
    if g.out.dtype is fb.bool:
        return g.binary("Or", input, other, fb.bool)
    if alpha != 1:
        other = g.binary("Mul", other, alpha, g.out.dtype)
    return g.binary("Add", input, other, g.out.dtype)


@translates("aten.sub.Tensor", "aten.sub.Scalar", "aten.subtract.Tensor")
def sub(g: Graph, input: Any, other: Any, *, alpha: Any = 1) -> Value:
    if alpha != 1:
        other = g.binary("Mul", other, alpha, g.out.dtype)
    return g.binary("Sub", input, other, g.out.dtype)


@translates("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(g: Graph, input: Any, other: Any, alpha: Any = 1) -> Value:
    return sub(g, other, input, alpha=alpha)


@translates("aten.mul.Tensor", "aten.mul.Scalar", "aten.multiply.Tensor")
def mul(g: Graph, input: Any, other: Any) -> Value:
    return g.binary("And" if g.out.dtype is fb.bool else "Mul", input, other, g.out.dtype)


@translates("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor", "aten.divide.Tensor")
def div(g: Graph, input: Any, other: Any) -> Value:
    return g.binary("Div", input, other, g.out.dtype)


@translates("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(g: Graph, input: Any, other: Any, *, rounding_mode: str | None = None) -> Value:
    if rounding_mode is None:
        return div(g, input, other)
    if rounding_mode == "floor":
        return floor_divide(g, input, other)
    quotient = g.binary("Div", input, other, g.out.dtype)  # of integers, ONNX truncates
    return trunc(g, quotient)


@translates("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(g: Graph, input: Any, other: Any) -> Value:
    dtype = g.out.dtype
    if dtype.is_floating_point:
        return g.op("Floor", g.binary("Div", input, other, dtype))
    a, b = g.like(input, dtype), g.like(other, dtype)
    rest = g.op("Mod", a, b)                          # has the sign of the divisor, so what is left divides evenly
    return g.op("Div", g.op("Sub", a, rest), b)


@translates("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor")
def remainder(g: Graph, input: Any, other: Any) -> Value:
    dtype = g.out.dtype
    a, b = g.like(input, dtype), g.like(other, dtype)
    if not dtype.is_floating_point:
        return g.op("Mod", a, b)
    return g.op("Sub", a, g.op("Mul", g.op("Floor", g.op("Div", a, b)), b))


@translates("aten.fmod.Tensor", "aten.fmod.Scalar")
def fmod(g: Graph, input: Any, other: Any) -> Value:
    return g.op("Mod", g.like(input, g.out.dtype), g.like(other, g.out.dtype), fmod=1)


@translates("aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def power(g: Graph, input: Any, exponent: Any) -> Value:
    dtype = g.out.dtype
    if not isinstance(exponent, Value) and exponent in (0.5, 2):
        x = g.like(input, dtype)
        return g.op("Sqrt", x) if exponent == 0.5 else g.op("Mul", x, x)
    return g.binary("Pow", input, exponent, dtype)


@translates("aten.maximum.default", "aten.fmax.default")
def maximum(g: Graph, input: Value, other: Value) -> Value:
    return g.binary("Or" if g.out.dtype is fb.bool else "Max", input, other, g.out.dtype)


@translates("aten.minimum.default", "aten.fmin.default")
def minimum(g: Graph, input: Value, other: Value) -> Value:
    return g.binary("And" if g.out.dtype is fb.bool else "Min", input, other, g.out.dtype)


@translates("aten.clamp.default", "aten.clip.default", "aten.clamp.Tensor", "aten.clip.Tensor")
def clip(g: Graph, input: Value, min: Any = None, max: Any = None) -> Value:
    dtype = promoted(input, *(x for x in (min, max) if x is not None))
    x = g.cast(input, dtype)
    if min is not None:
        x = g.op("Max", x, g.like(min, dtype))
    return x if max is None else g.op("Min", x, g.like(max, dtype))


@translates("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(g: Graph, input: Value, min: Any) -> Value:
    return clip(g, input, min)


@translates("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(g: Graph, input: Value, max: Any) -> Value:
    return clip(g, input, None, max)


@translates("aten.atan2.default")
def atan2(g: Graph, input: Value, other: Value) -> Value:
    dtype = g.out.dtype
    y, x = g.cast(input, dtype), g.cast(other, dtype)
    zero, pi = g.const(0.0, dtype), g.const(math.pi, dtype)
    # The angle from the nearer axis, which also holds where x is 0.
    steep = g.op("Greater", g.op("Abs", y), g.op("Abs", x), dtype=fb.bool)
    top, below = g.op("Where", steep, x, y, dtype=dtype), g.op("Where", steep, y, x, dtype=dtype)
    none = g.op("Equal", below, zero, dtype=fb.bool)
    angle = g.op("Atan", g.op("Div", top, g.op("Where", none, g.const(1.0, dtype), below, dtype=dtype)))
    up = g.op("Where", g.op("Less", y, zero, dtype=fb.bool), g.const(-1.0, dtype), g.const(1.0, dtype), dtype=dtype)
    from_y = g.op("Sub", g.op("Mul", up, g.const(math.pi / 2, dtype)), angle)
    left = g.op("Less", x, zero, dtype=fb.bool)
    from_x = g.op("Where", left, g.op("Add", angle, g.op("Mul", up, pi)), angle, dtype=dtype)
    return g.op("Where", steep, from_y, from_x, dtype=dtype)


@translates("aten.hypot.default")
def hypot(g: Graph, input: Value, other: Value) -> Value:
    a, b = g.cast(input, g.out.dtype), g.cast(other, g.out.dtype)
    return g.op("Sqrt", g.op("Add", g.op("Mul", a, a), g.op("Mul", b, b)))


@translates("aten.logaddexp.default")
def logaddexp(g: Graph, input: Value, other: Value) -> Value:
    a, b = g.cast(input, g.out.dtype), g.cast(other, g.out.dtype)
    apart = g.op("Neg", g.op("Abs", g.op("Sub", a, b)))
    return g.op("Add", g.op("Max", a, b), log1p(g, g.op("Exp", apart)))


@translates("aten.xlogy.Tensor", "aten.xlogy.Scalar_Other", "aten.xlogy.Scalar_Self")
def xlogy(g: Graph, input: Any, other: Any) -> Value:
    a, b = g.like(input, g.out.dtype), g.like(other, g.out.dtype)
    zero = g.const(0.0, a.dtype)
    return g.op("Where", g.op("Equal", a, zero, dtype=fb.bool), zero, g.op("Mul", a, g.op("Log", b)), dtype=a.dtype)


@translates("aten.lerp.Scalar", "aten.lerp.Tensor")
def lerp(g: Graph, input: Value, end: Value, weight: Any) -> Value:
    step = g.op("Mul", g.op("Sub", end, input), g.like(weight, input.dtype))
    return g.op("Add", input, step)


@translates("aten.addcmul.default")
def addcmul(g: Graph, input: Value, tensor1: Value, tensor2: Value, *, value: Any = 1) -> Value:
    product = g.binary("Mul", tensor1, tensor2, g.out.dtype)
    return g.binary("Add", input, product if value == 1 else g.binary("Mul", product, value, g.out.dtype), g.out.dtype)


@translates("aten.addcdiv.default")
def addcdiv(g: Graph, input: Value, tensor1: Value, tensor2: Value, *, value: Any = 1) -> Value:
    ratio = g.binary("Div", tensor1, tensor2, g.out.dtype)
    return g.binary("Add", input, ratio if value == 1 else g.binary("Mul", ratio, value, g.out.dtype), g.out.dtype)


_COMPARISONS = {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}


def _comparison(kind: str, negate: bool = False) -> Callable[..., Value]:
    def translate(g: Graph, input: Any, other: Any) -> Value:
        dtype = promoted(input, other)
        if dtype is fb.bool and kind != "Equal":
            dtype = fb.uint8
        made = g.op(kind, g.like(input, dtype), g.like(other, dtype), dtype=fb.bool)
        return g.op("Not", made) if negate else made

    return translate


for _short, _kind in _COMPARISONS.items():
    translates(f"aten.{_short}.Tensor", f"aten.{_short}.Scalar")(_comparison(_kind))
translates("aten.ne.Tensor", "aten.ne.Scalar")(_comparison("Equal", negate=True))


def _logical(kind: str) -> Callable[..., Value]:
    def translate(g: Graph, input: Value, other: Value) -> Value:
        return g.op(kind, g.cast(input, fb.bool), g.cast(other, fb.bool))

    return translate


def _bitwise(kind: str, plain: str) -> Callable[..., Value]:
    def translate(g: Graph, input: Any, other: Any) -> Value:
        dtype = g.out.dtype
        return g.binary(plain if dtype is fb.bool else kind, input, other, dtype)

    return translate


for _short, _kind in (("and", "And"), ("or", "Or"), ("xor", "Xor")):
    translates(f"aten.logical_{_short}.default")(_logical(_kind))
    translates(f"aten.bitwise_{_short}.Tensor", f"aten.bitwise_{_short}.Scalar", f"aten.__{_short}__.Tensor",
               f"aten.__{_short}__.Scalar")(_bitwise(f"Bitwise{_kind}", _kind))  # fmt: skip


@translates("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(g: Graph, condition: Value, input: Any, other: Any) -> Value:
    dtype = g.out.dtype
    return g.op("Where", g.cast(condition, fb.bool), g.like(input, dtype), g.like(other, dtype), dtype=dtype)


@translates("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(g: Graph, input: Value, mask: Value, value: Any) -> Value:
    return g.op("Where", mask, g.like(value, input.dtype), input, dtype=input.dtype)


@translates("aten.heaviside.default")
def heaviside(g: Graph, input: Value, values: Value) -> Value:
    zero = g.const(0, input.dtype)
    positive = g.cast(g.op("Greater", input, zero, dtype=fb.bool), input.dtype)
    return g.op("Where", g.op("Equal", input, zero, dtype=fb.bool), values, positive, dtype=input.dtype)


@translates("aten.copysign.Tensor", "aten.copysign.Scalar")
def copysign(g: Graph, input: Value, other: Any) -> Value:
    dtype = g.out.dtype
    size = g.op("Abs", g.like(input, dtype))
    b, zero = g.like(other, dtype), g.const(0.0, dtype)
    signed = g.op("Where", g.op("Equal", b, zero, dtype=fb.bool), g.op("Reciprocal", b), b, dtype=dtype)  # tells -0 from 0
    negative = g.op("Less", signed, zero, dtype=fb.bool)
    return g.op("Where", negative, g.op("Neg", size), size, dtype=dtype)
