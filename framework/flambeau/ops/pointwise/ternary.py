"""Elementwise operations of three and more operands."""

from __future__ import annotations

from typing import Any

from flambeau_kernels.vocabulary import isfinite, isinf, isnan, maximum, minimum

from ... import dtypes
from ..._arrays import address, ndarray
from ..._warn import warn_once
from ...tensor import Tensor
from .._promote import common, like_input, real_common, refuse, result_type
from .._spec import (
    EXACTLY,
    FOREACH,
    FUNCTION,
    INPLACE,
    METHOD,
    OUT,
    composite,
    elementwise,
    looks_at,
)
from .._spec.names import keep
from .binary import check_tensors


@looks_at("range")
def check_fits(op: Any, *args: Any) -> None:
    """Raise RuntimeError for a number that the common dtype cannot hold."""
    for x in args:
        if not isinstance(x, Tensor):
            dtypes.check_number(x, result_type(args))


def _copy_dtype(op: Any, args: Any) -> Any:
    """Computed in the source's dtype, stored in the target's."""
    return args[1].dtype, args[0].dtype


@elementwise(
    surface=INPLACE,
    namespace="Tensor",
    dtype=_copy_dtype,
    partials={"input": lambda: 0, "source": lambda: 1},
    title="CopyBackwards",
    operator="copy(input, source)",
    float8=True,
    public_name="copy",
)
def overwrite(input, source):
    """`source` in the place of `input`: what ``copy_`` stores."""
    return source


overwrite.node_class.name = lambda node: f"torch::autograd::{node.title}"  # a node of the engine's own to PyTorch


def _is_there(target: Any, args: Any) -> bool:
    """Whether the source is `target` as it is in memory. PyTorch lets that be copied even to elements that share places."""
    if not isinstance(args[0], Tensor) or type(target) is not Tensor:
        return False
    a, b = target._array, args[0]._array
    if a.__class__ is not ndarray or b.__class__ is not ndarray or 0 not in a.strides:
        return False
    if a.dtype != b.dtype or address(a) != address(b):
        return False
    shape = (1,) * (a.ndim - b.ndim) + b.shape
    strides = (0,) * (a.ndim - b.ndim) + b.strides
    return len(shape) == a.ndim and all(
        n == 1 or s == (0 if m == 1 else t) for n, s, m, t in zip(a.shape, a.strides, shape, strides, strict=True)
    )


overwrite.stores_what_is_there = _is_there


def _where_dtype(op: Any, args: Any) -> Any:
    d = result_type(args[1:])
    return d, d


@looks_at("range")
def _check_where(op: Any, condition: Any, input: Any, other: Any) -> None:
    if condition.dtype not in (dtypes.bool, dtypes.uint8):
        got = dtypes.scalar_type(condition.dtype)
        raise RuntimeError(f"where expected condition to be a boolean tensor, but got a tensor with dtype {got}")
    if condition.dtype is dtypes.uint8:
        warn_once(
            "where received a uint8 condition tensor. This behavior is deprecated and will be removed in a future version of PyTorch. "
            "Use a boolean condition instead."
        )
    check_fits(op, input, other)


@elementwise(
    surface=0,
    dtype=_where_dtype,
    check=_check_where,
    title="WhereBackward0",
    vjp={"input": lambda grad, condition: where(condition, grad, 0), "other": lambda grad, condition: where(condition, 0, grad)},
    operator="where(condition, input, other)",
    samples="b(2, 3), x(2, 3), x(2, 3); b(2, 3), x(3), x(2, 1)",
    float8=True,
)
def choose(condition, input, other):
    """`input` where `condition` holds, `other` elsewhere."""
    return where(condition != 0, input, other)


@composite(
    surface=FUNCTION | OUT, overlap=EXACTLY, samples="b(2, 3), x(2, 3), x(3); b(2, 3), 1.0, x(2, 3)", exact_out=True, elements="mapped",
)
def where(condition, input=None, other=None):
    """`input` where `condition` holds and `other` elsewhere; with `condition` alone, its non-zero places per dimension.

    Args:
        condition: bool; broadcasts with the others.
        input, other: Tensors or numbers; different dtypes are promoted.

    >>> x = fb.tensor([-1.0, 2.0])
    >>> fb.where(x > 0, x, 0.0)
    tensor([0., 2.])
    """
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    return choose.function(condition, input, other)


def _where_method(self: Any, condition: Any, other: Any = None, *, x2: Any = None) -> Any:
    """`self` where `condition` holds, `other` (also called `x2`) elsewhere."""
    if (other is None) is (x2 is None):
        raise TypeError("where(): give the values where condition does not hold once, as other")
    return choose.function(condition, self, x2 if other is None else other)


Tensor.where = _where_method  # type: ignore[attr-defined]


@elementwise(
    surface=0,
    dtype=common,
    title="LerpBackward0",
    partials={
        "input": lambda weight: 1 - weight,
        "end": lambda weight: weight,
        "weight": lambda input, end: end - input,
    },
    operator="lerp(input, end, weight)",
)
def interpolate_between(input, end, weight):
    """`input` where `weight` is 0, `end` where it is 1, and the straight line through both elsewhere."""
    step = end - input
    # Measured from the nearer end, so both ends come out exact.
    return where(abs(weight) < 0.5, input + weight * step, end - step * (1 - weight))


interpolate_between.shown_of("LerpBackward1", "input", "end", "weight")


@composite(
    surface=FUNCTION | METHOD | INPLACE | OUT | FOREACH, overlap=EXACTLY,
    samples="x(2, 3), x(2, 3), 0.3; x(2, 3), x(3), u(2, 3)",
)
def lerp(input, end, weight):
    """`input` where `weight` is 0, `end` where it is 1, and the straight line through both elsewhere.

    Args:
        weight: a number or a Tensor, any size: outside [0, 1] the line goes on. A scalar Tensor may be of any dtype.
    Raises: RuntimeError unless `input` and `end` (and any other Tensor `weight`) share one floating or complex dtype.
    """
    if not isinstance(end, Tensor):
        raise TypeError(f"lerp(): argument 'end' (position 2) must be Tensor, not {type(end).__name__}")
    for name, x in (("end", end), ("weight", weight)):
        if isinstance(x, Tensor) and x.dtype is not input.dtype and (x is end or x.ndim):
            raise RuntimeError(f"lerp: expected dtype {input.dtype} for `{name}`, but got dtype {x.dtype}")
    if input.dtype.category < dtypes.FLOATING:
        raise NotImplementedError(f'"lerp" not implemented for {input.dtype}; use a floating dtype')
    return interpolate_between.function(input, end, weight)


def _between_of_one_dtype(input, end, weight):
    """The op of arguments that `lerp` takes."""
    if not isinstance(end, Tensor) or input.dtype.category < dtypes.FLOATING:
        return None
    if any(isinstance(x, Tensor) and x.dtype is not input.dtype for x in (end, weight)):
        return None
    return interpolate_between, (input, end, weight)


lerp.forwards(to=_between_of_one_dtype)


@looks_at("dtypes")
def _check_value(op: Any, *args: Any) -> None:
    check_tensors(op, *args[:3])
    d = result_type(args[:3])
    value = args[3]
    if d.category < dtypes.FLOATING and isinstance(value, float):
        raise RuntimeError(f"{op.name}: For integral input tensors, argument value must not be a floating point number.")


def _common_of_three(op: Any, args: Any) -> Any:
    d = result_type(args[:3])
    return d, d


def _by_a_factor(run: Any) -> Any:
    """`addcmul` or `addcdiv` of each tensor of a list, which takes the factor by its place too, and one for each tensor as `scalars`."""

    def one(tensor: Tensor, tensor1: Tensor, tensor2: Tensor, value: Any = 1, scalars: Any = None) -> Tensor:
        return run(tensor, tensor1, tensor2, value=value if scalars is None else scalars)

    return one


@elementwise(
    dtype=refuse("bool")(_common_of_three),
    check=_check_value,
    partials={
        "input": lambda: 1,
        "tensor1": lambda tensor2, value: value * tensor2,
        "tensor2": lambda tensor1, value: value * tensor1,
    },
    older=(("input", "value", "tensor1", "tensor2"),),
)
def addcmul(input, tensor1, tensor2, *, value=1):
    """``input + value * tensor1 * tensor2``, elementwise."""
    return input + value * tensor1 * tensor2


addcmul.on_lists(_by_a_factor(addcmul.function), _by_a_factor(lambda tensor, *args, **named: tensor.addcmul_(*args, **named)), vectors=True)


@looks_at("dtypes")
def _refuse_integers(op: Any, *args: Any) -> None:
    check_tensors(op, *args[:3])
    if result_type(args[:3]).category < dtypes.FLOATING:
        raise RuntimeError("Integer division with addcdiv is not supported; convert the tensors to a floating dtype first")


@elementwise(
    dtype=_common_of_three,
    check=_refuse_integers,
    partials={
        "input": lambda: 1,
        "tensor1": lambda tensor2, value: value / tensor2,
        "tensor2": lambda tensor1, tensor2, value: -value * tensor1 / (tensor2 * tensor2),
    },
    older=(("input", "value", "tensor1", "tensor2"),),
)
def addcdiv(input, tensor1, tensor2, *, value=1):
    """``input + value * tensor1 / tensor2``, elementwise, for floating dtypes."""
    return input + value * (tensor1 / tensor2)


addcdiv.on_lists(_by_a_factor(addcdiv.function), _by_a_factor(lambda tensor, *args, **named: tensor.addcdiv_(*args, **named)), vectors=True)


# -- clamping ------------------------------------------------------------------------------------------------------------


@elementwise(
    surface=0, dtype=real_common, title="ClampBackward1", check=check_fits,
    vjp={
        "input": lambda grad, input, min, max: where((input >= min) & (input <= max), grad, 0),
        "min": lambda grad, input, min, max: where((input < min) & (min < max), grad, 0),
        "max": lambda grad, input, min, max: where((input > max) | (max < min), grad, 0),
    },
    operator="clamp(input, min, max)",
    public_name="clamp",
    quantized="as_operand",
)  # fmt: skip
def clamp_both(input, min, max):
    """`input`, not below `min` and not above `max`."""
    return minimum(maximum(input, min), max)


@elementwise(
    surface=0, dtype=real_common, title="ClampMinBackward0", check=check_fits,
    vjp={
        "input": lambda grad, input, min: where(input >= min, grad, 0),
        "min": lambda grad, input, min: where(input < min, grad, 0),
    },
    operator="clamp_min(input, min)",
    public_name="clamp",
    quantized="as_operand",
)  # fmt: skip
def clamp_below(input, min):
    """`input`, not below `min`."""
    return maximum(input, min)


clamp_below.shown_of("ClampMinBackward1", "input", "min")


@elementwise(
    surface=0, dtype=real_common, title="ClampMaxBackward0", check=check_fits,
    vjp={
        "input": lambda grad, input, max: where(input <= max, grad, 0),
        "max": lambda grad, input, max: where(input > max, grad, 0),
    },
    operator="clamp_max(input, max)",
    public_name="clamp",
    quantized="as_operand",
)  # fmt: skip
def clamp_above(input, max):
    """`input`, not above `max`."""
    return minimum(input, max)


clamp_above.shown_of("ClampMaxBackward1", "input", "max")


@composite(
    surface=FUNCTION | METHOD | INPLACE | OUT, aliases=("clip",), overlap=EXACTLY,
    samples="x(2, 3), -0.5, 0.7; x(2, 3), max=0.1; x(2, 3), x(2, 3, low=-1, high=-0.5), x(3, low=0.5, high=1)",
    exact_out=True,
    names=keep,
)
def clamp(input, min=None, max=None):
    """`input` limited to ``[min, max]``; either may be None, a number or a Tensor. Beside a number a Tensor of no dimensions is one too.

    If ``min > max`` the result is `max`. The gradient is 1 within the limits, both included, and 0 outside.
    Raises: RuntimeError when both are None.

    >>> fb.clamp(fb.tensor([-1.0, 0.5, 2.0]), 0, 1)
    tensor([0.0000, 0.5000, 1.0000])
    """
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    if max is None:
        return clamp_below.function(input, min)
    if min is None:
        return clamp_above.function(input, max)
    if isinstance(min, Tensor) is not isinstance(max, Tensor):
        min, max = _number_in(min), _number_in(max)
    return clamp_both.function(input, min, max)


def _number_in(bound):
    """`bound` as the number that it has to be beside another one: the element of a Tensor without dimensions and gradient."""
    if not isinstance(bound, Tensor):
        return bound
    if bound.ndim or bound.requires_grad:
        raise TypeError("clamp() received an invalid combination of arguments: 'min' and 'max' must both be Numbers or Tensors")
    return bound.item()


def _by_bounds(input, min, max):
    """The op of the numbers that are given."""
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        return None
    if min is not None and max is not None:
        return clamp_both, (input, min, max)
    return (clamp_above, (input, max)) if max is not None else None if min is None else (clamp_below, (input, min))


clamp.forwards(to=_by_bounds)


@composite(surface=FUNCTION | METHOD | INPLACE | OUT | FOREACH, overlap=EXACTLY, samples="x(2, 3), 0.1; x(2, 3), x(3)", exact_out=True)
def clamp_min(input, min):
    """`input`, not below `min`."""
    return clamp_below.function(input, min)


clamp_min.forwards(to=lambda input, min: None if isinstance(min, Tensor) else (clamp_below, (input, min)))


@composite(surface=FUNCTION | METHOD | INPLACE | OUT | FOREACH, overlap=EXACTLY, samples="x(2, 3), 0.1; x(2, 3), x(3)", exact_out=True)
def clamp_max(input, max):
    """`input`, not above `max`."""
    return clamp_above.function(input, max)


clamp_max.forwards(to=lambda input, max: None if isinstance(max, Tensor) else (clamp_above, (input, max)))


@elementwise(
    surface=0, dtype=like_input, title="NanToNumBackward0",
             vjp={"input": lambda grad, input: where(isfinite(input), grad, 0)}, operator="nan_to_num(input, nan, posinf, neginf)",
    samples="x(2, 3), 0.0, 1.0, -1.0",
    public_name="nan_to_num",
)  # fmt: skip
def replace_nonfinite(input, nan, posinf, neginf):
    """`input` with nan and infinities replaced."""
    kept = where(isnan(input), nan, input)
    return where(isinf(kept) & (kept > 0), posinf, where(isinf(kept) & (kept < 0), neginf, kept))


@composite(
    surface=FUNCTION | METHOD | INPLACE | OUT, overlap=EXACTLY, samples="x(2, 3); x(2, 3), 1.0, 2.0, 3.0", exact_out=True,
    elements="mapped",
)
def nan_to_num(input, nan=0.0, posinf: float | None = None, neginf: float | None = None):
    """`input` with nan replaced by `nan`, infinities by `posinf` and `neginf`.

    The largest and smallest finite values stand in for infinities by default.
    """
    if not input.dtype.category >= dtypes.FLOATING:
        return input.clone()
    if input.is_complex():
        from .. import _derive

        parts = _derive.lookup("", "view_as_real")(input.resolve_conj())
        return _derive.lookup("", "view_as_complex")(nan_to_num(parts, nan, posinf, neginf))
    return replace_nonfinite.function(*_replacements(input, nan, posinf, neginf))


def _replacements(input, nan, posinf, neginf):
    """The arguments of `replace_nonfinite`."""
    info = dtypes.finfo(input.dtype)
    top = info.max if posinf is None else posinf
    bottom = info.min if neginf is None else neginf
    return input, 0.0 if nan is None else nan, top, bottom


def _of_floating(input, nan, posinf, neginf):
    """The op of floating numbers; complex ones have two parts, and all others are what they are."""
    if input.dtype.category is not dtypes.FLOATING:
        return None
    return replace_nonfinite, _replacements(input, nan, posinf, neginf)


nan_to_num.forwards(to=_of_floating)


