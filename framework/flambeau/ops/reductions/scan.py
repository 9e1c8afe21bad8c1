"""Running totals and differences along a dimension."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels.cpu.indexing import scatter
from flambeau_kernels.cpu.reductions import scan as kernel
from flambeau_kernels.cpu.reductions.along import Along

from ... import _state, dtypes
from ...dtypes import FLOATING, from_numpy_dtype
from ...tensor import Tensor, wrap_dim
from .. import _dispatch
from .._batching import along
from .._spec import (
    EXACTLY,
    FUNCTION,
    INPLACE,
    METHOD,
    OUT,
    ROWS,
    Operand,
    composite,
    int_list,
    need_int,
    primitive,
)
from .._spec.names import keep
from .._spec.plans import MOST_BY_NUMPY
from ..shapes.join import cat
from ..shapes.slices import narrow

EVERY = FUNCTION | METHOD | INPLACE | OUT


# -- sums and products -----------------------------------------------------------------------------------------------------


def _dtype_of_total(given: Any, dtype: Any) -> Any:
    """`dtype`, or int64 for integers and bools."""
    return dtype or (dtypes.int64 if given.category < FLOATING else given)


def _check_scan(input, dim, dtype):
    return input, wrap_dim(dim, input.ndim), None if dtype is None else dtypes.as_dtype(dtype)


def _total_shape(input, dim, dtype):
    return input.shape, _dtype_of_total(input.dtype, dtype)


@primitive(
    surface=EVERY, check=_check_scan, autocast=(None, "float32"), overlap=EXACTLY,
    samples="x(2, 3), 1; x(2, 3), 0, dtype=fb.float64",
    dtype_of_out=True,
    batch_rule=along,
    cuda="sums.cumsum",
    elements="along", costly=True,
    names=keep,
    deferrable=True,
)
def cumsum(input, dim, *, dtype=None):
    """The sums of the elements up to each place along `dim`: the shape of `input`.

    Args:
        dtype: `input` is converted to it first; int64 for integers and bools by default.

    >>> fb.cumsum(fb.tensor([1, 2, 3]), dim=0)
    tensor([1, 3, 6])
    """


cumsum.shown_as(hides="input_dtype")


cumsum.in_pieces(along="dim")


@cumsum.kernel
def _cumsum(a, dim, dtype):
    return kernel.cumsum(a, dim, _dtype_of_total(from_numpy_dtype(a.dtype), dtype).numpy)


cumsum.shape(_total_shape)


def _planned_totals(along: Along) -> Any:
    """The plan of a scan along `dim`."""

    def rule(a, dim, dtype=None):
        if dtype is None:
            return along(a, dim)
        wanted = dtype.numpy
        if a.dtype.char not in "?bBhilfd" or a.size > MOST_BY_NUMPY:
            return None
        if wanted.char in "bBhil" and a.dtype.kind != "f":
            # Numbers wrap around, so that it does not matter whether they or their sums are made narrow.
            wide = along(a, dim)
            return wide if wide is None or wide.dtype is wanted else kernels.cast(wide, wanted)
        if wanted.char not in "fd":
            return None                               # integers made of floats have no history
        return along(a if a.dtype is wanted else kernels.cast(a, wanted), dim)

    return rule


cumsum.plan(_planned_totals(Along("running", "add")), wraps="dim")


def reverse_cumsum(x: Tensor, dim: int) -> Tensor:
    """The sums of the elements from each place on."""
    return x.flip(dim).cumsum(dim).flip(dim) if x.ndim else x


@cumsum.vjp
def _cumsum_vjp(grad, input_dtype, dim):
    made = reverse_cumsum(grad, dim)
    return (made if made.dtype is input_dtype else _converted(made, input_dtype),)


def _converted(grad: Tensor, dtype: Any) -> Tensor:
    return (grad.real if grad.is_complex() and not dtype.is_complex else grad).to(dtype)


@cumsum.vjp_on_arrays
def _cumsum_vjp_on_arrays(grad, input_dtype, dim):
    return (kernels.cast(kernel.reverse_cumsum(grad, dim), input_dtype.numpy),)


@primitive(
    surface=EVERY, check=_check_scan, autocast=(None, "float32"), overlap=EXACTLY, samples="x(2, 3), 1; x(2, 3), 0", dtype_of_out=True,
    batch_rule=along,
    cuda="sums.cumprod",
    elements="along", costly=True,
    names=keep,
    deferrable=True,
)
def cumprod(input, dim, *, dtype=None):
    """The products of the elements up to each place along `dim`: the shape of `input`.

    Args:
        dtype: `input` is converted to it first; int64 for integers and bools by default.
    """


cumprod.shown_as(hides="dtype")


cumprod.in_pieces(along="dim")


@cumprod.kernel
def _cumprod(a, dim, dtype):
    return kernel.cumprod(a, dim, _dtype_of_total(from_numpy_dtype(a.dtype), dtype).numpy)


cumprod.shape(_total_shape)


cumprod.plan(_planned_totals(Along("running", "mul")), wraps="dim")


@cumprod.vjp
def _cumprod_vjp(grad, out, input, dim, dtype):
    if not input.numel():
        return (input.new_zeros(input.shape),)
    x = input if input.dtype is grad.dtype else input.to(grad.dtype)
    if not x.ndim:
        made = grad
    elif not _dispatch.is_seen(x) and (x._lacks_values or bool((x != 0).all())):  # without values it lies as it mostly will
        made = reverse_cumsum(grad * out.conj(), dim) / x.conj()
    elif _state.grad_enabled():
        made = _cumprod_grad_exact(grad, x, dim)
    else:
        made = _cumprod_grad_beside_zeros(grad, out, x, dim)
    return (made if made.dtype is input.dtype else _converted(made, input.dtype),)


def _cumprod_grad_exact(grad: Tensor, x: Tensor, dim: int) -> Tensor:
    """Each element's gradient from the products that leave it out: right to every order, quadratic in the length."""
    n = x.shape[dim]
    before = cat([x.new_ones(narrow(x, dim, 0, 1).shape), cumprod(narrow(x, dim, 0, n - 1), dim)], dim)
    parts = []
    for i in range(n):
        start = narrow(before, dim, i, 1)
        others = cat([start, start * cumprod(narrow(x, dim, i + 1, n - i - 1), dim)], dim) if i + 1 < n else start
        parts.append((narrow(grad, dim, i, n - i) * others.conj()).sum(dim, True))
    return cat(parts, dim)


def _cumprod_grad_beside_zeros(grad: Tensor, out: Tensor, x: Tensor, dim: int) -> Tensor:
    """First order only: before the first zero by division, at it from the products without it, after it nothing."""
    zero = x == 0
    seen = zero.cumsum(dim)
    first = zero & (seen == 1)
    divided = reverse_cumsum(grad * out.conj(), dim) / x.masked_fill(zero, 1).conj()
    without = cumprod(x.masked_fill(first, 1), dim).masked_fill(seen == 0, 0)
    at_first = (grad * without.conj()).sum(dim, True)
    return at_first.where(first, divided.masked_fill(seen != 0, 0))


# -- extremes --------------------------------------------------------------------------------------------------------------


def _cumulative_extreme(name: str, largest: bool, doc: str) -> Any:
    def check(input, dim):
        if input.is_complex():
            raise NotImplementedError(f'"{name}" not implemented for {input.dtype}: complex values have no order')
        return input, wrap_dim(dim, input.ndim)

    def declared(input, dim):
        pass

    declared.__name__, declared.__doc__ = name, doc
    op = primitive(
        surface=FUNCTION | METHOD | OUT, returns=("values", "indices"), check=check, memory=ROWS, samples="d(2, 3), 1; d(2, 3), 0",
        exact_out=True, batch_rule=along,
    )(declared)
    op.shown_as(f"{name.title()}Backward0", hides="input_shape", indices="out1", self=Operand("input"))
    op.in_pieces(along="dim")
    op.kernel(lambda a, dim: kernel.cumextreme(a, dim, largest))
    op.shape(lambda input, dim: [(tuple(input.shape), input.dtype), (tuple(input.shape), dtypes.int64)])
    op.vjp(_extreme_vjp)
    op.vjp_on_arrays(_extreme_vjp_on_arrays, only_first=True)
    op.plan(_planned_totals(Along("running_extremes", largest)), wraps="dim")
    return op


def _extreme_vjp(grad, out1, input_shape, dim):
    return (grad[0].new_zeros(input_shape).scatter_add(dim, out1, grad[0]),)


def _extreme_vjp_on_arrays(grad, out1, input_shape, dim):
    if not input_shape:
        return (grad.copy(),)
    made = np.zeros(input_shape, grad.dtype)
    if not scatter.combine_along(made, dim, out1, grad, "sum"):
        scatter.add_at(made.reshape(-1), scatter.places(made.shape, out1, dim), grad.reshape(-1))
    return (made,)


cummax = _cumulative_extreme("cummax", True, "The largest element up to each place along `dim`, and where it is; nan wins.")
cummin = _cumulative_extreme("cummin", False, "The smallest element up to each place along `dim`, and where it is; nan wins.")


def _check_logcumsumexp(input, dim):
    if input.dtype.category < FLOATING:
        raise NotImplementedError(f'"logcumsumexp" not implemented for {input.dtype}; convert it with .to(torch.float32)')
    return input, wrap_dim(dim, input.ndim)


@primitive(
    surface=FUNCTION | METHOD | OUT, check=_check_logcumsumexp, overlap=EXACTLY, memory=ROWS,
    samples="x(2, 3), 1; x(2, 3), 0",
    exact_out=True,
    batch_rule=along,
)
def logcumsumexp(input, dim):
    """``log(cumsum(exp(input)))`` along `dim`, computed without overflow."""


logcumsumexp.in_pieces(along="dim")


@logcumsumexp.kernel
def _logcumsumexp(a, dim):
    return kernel.logcumsumexp(a, dim)


logcumsumexp.plan(kernel.logs, wraps="dim")


@logcumsumexp.shape
def _logcumsumexp_shape(input, dim):
    return input.shape, input.dtype


@logcumsumexp.vjp
def _logcumsumexp_vjp(grad, out, input, dim):
    if not input.numel():
        return (input.new_zeros(input.shape),)
    # The gradients' logarithms are summed, as the exponentials may overflow: of real ones, positive and negative apart.
    floor = dtypes.finfo(grad.dtype).min

    def part(g: Tensor, there: Tensor) -> Tensor:
        logs = g.masked_fill(~there, 1).log().masked_fill(~there, floor)
        return (reverse_logcumsumexp(logs - out, dim) + input).exp()

    if input.is_complex():
        return (part(grad.conj(), grad != 0).conj(),)
    return (part(grad, grad > 0) - part(-grad, grad < 0),)


@logcumsumexp.jvp
def _logcumsumexp_jvp(args, tangents, out):
    # Not the transpose of the rule above: that is linear in the gradient, but not in how it computes.
    (input, dim), tangent = args, tangents[0]
    if not input.numel():
        return tangent
    limits = dtypes.finfo(input.dtype)
    weights = (input - input.detach().real.amax(dim, keepdim=True)).exp()
    sums = weights.cumsum(dim)
    fits = sums.detach().abs() > limits.tiny / limits.eps

    def part(t: Tensor, there: Tensor) -> Tensor:
        logs = t.masked_fill(~there, 1).log().masked_fill(~there, limits.min)
        return ((logs + input).logcumsumexp(dim) - out).exp()

    # Where all weights so far vanish beside the largest of the line, their logarithms are summed.
    apart = part(tangent, tangent != 0) if input.is_complex() else part(tangent, tangent > 0) - part(-tangent, tangent < 0)
    return ((weights * tangent).cumsum(dim) / sums.masked_fill(~fits, 1)).where(fits, apart)


def reverse_logcumsumexp(x: Tensor, dim: int) -> Tensor:
    return x.flip(dim).logcumsumexp(dim).flip(dim) if x.ndim else x


# -- differences -------------------------------------------------------------------------------------------------------------


@composite(
    surface=FUNCTION | METHOD | OUT, overlap=EXACTLY,
    samples="x(5); x(2, 4), 2; x(2, 4), dim=0, prepend=x(1, 4)",
)
def diff(input, n=1, dim=-1, prepend=None, append=None):
    """The `n`-th differences of neighbours along `dim`, which loses `n` elements; of bools, whether they differ.

    Args:
        prepend, append: what goes before and after `input` along `dim` first.

    >>> fb.diff(fb.tensor([1, 4, 9]), prepend=fb.tensor([0]))
    tensor([1, 3, 5])
    """
    if not input.ndim:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if need_int("diff", "n", n) < 0:
        raise RuntimeError(f"order must be non-negative but got {n}: n of diff")
    d = wrap_dim(dim, input.ndim)
    parts = [p for p in (prepend, input, append) if p is not None]
    for p in parts:
        if p.ndim != input.ndim:
            raise RuntimeError(
                f"diff expects prepend or append to be the same dimension as input. Got {p.ndim} and {input.ndim} dimensions"
            )
        if any(p.shape[k] != input.shape[k] for k in range(input.ndim) if k != d):
            raise RuntimeError(
                "diff expects the shape of tensor to prepend or append to match that of input except along the differencing dimension; "
                + "".join(
                    f"input.size({k}) = {n}, but got tensor.size({k}) = {m}"
                    for k, (n, m) in enumerate(zip(input.shape, p.shape, strict=True)) if k != d and n != m
                )
            )
    if n == 0:
        return input.clone()
    x = cat(parts, d) if len(parts) > 1 else input
    for _ in range(min(n, x.shape[d])):
        size = x.shape[d]
        later, earlier = narrow(x, d, 1, size - 1), narrow(x, d, 0, size - 1)
        x = later.logical_xor(earlier) if x.dtype is dtypes.bool else later - earlier
    return x


@primitive(surface=0, samples="of diff")
def differences(input, dim):
    """``input[i + 1] - input[i]`` along `dim`: what `diff` is for small tensors without a history."""


differences.in_pieces(along="dim")


differences.shown_as("SubBackward0")


def _neighbours(a: Any, dim: int) -> tuple[Any, Any]:
    """All but the first and all but the last elements along `dim`."""
    before = (slice(None),) * dim
    return a[(*before, slice(1, None))], a[(*before, slice(None, -1))]


@differences.kernel
def _differences(a, dim):
    later, earlier = _neighbours(a, dim)
    return later - earlier


@differences.shape
def _differences_shape(input, dim):
    shape = list(input.shape)
    shape[dim] = max(shape[dim] - 1, 0)
    return shape, input.dtype


@differences.vjp
def _differences_vjp(grad, dim):
    # Of neighbours again, with zeros around, and the other way round.
    edge = grad.new_zeros(narrow(grad, dim, 0, 1).shape)
    return (-differences(cat([edge, grad, edge], dim), dim),)


@differences.vjp_on_arrays
def _differences_vjp_on_arrays(grad, input_shape, dim):
    made = np.zeros(input_shape, grad.dtype)
    later, earlier = _neighbours(made, dim)
    later += grad
    earlier -= grad
    return (made,)


_DIFFERENCES = Along("differences", takes_k=True)


@diff.forwards
def _first_differences(input, n, dim, prepend, append):
    if n != 1 or prepend is not None or append is not None or dim.__class__ is not int:
        return None
    # The plan waits until it has proved to be called often. One node in the place of three would add gradients in another order.
    return None if input._node is not None and _state.grad_enabled() else differences.answer(input, dim)


@differences.plan(
    wraps="dim", native="LINES.enter(input, dim, False, input._array.shape[dim] - 1)", names={"LINES": _DIFFERENCES}
)  # fmt: skip
def _planned_differences(a, dim):
    return _DIFFERENCES(a, dim, False, a.shape[dim] - 1)


def _check_segments(y: Tensor, x: Any, dx: Any, dim: int, name: str) -> Any:
    """Raise what is wrong; returns the coordinates `x`, of as many dimensions as `y` where they are one vector, or None."""
    for label, t in (("y", y), ("x", x)):
        if isinstance(t, Tensor) and t.dtype is dtypes.bool:
            raise RuntimeError(f"{name}: received a bool input for `{label}`, but bool is not supported")
    if not y.ndim:
        raise IndexError(f"{name}: Dimension specified as {dim} but tensor has no dimensions")
    d = wrap_dim(dim, y.ndim)
    n = y.shape[d]
    if x is None:
        if isinstance(dx, (complex, bool)):
            raise RuntimeError(f"{name}: Currently, we only support dx as a real number, got {dx!r}")
        return None
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}(): argument 'x' must be Tensor, not {type(x).__name__}")
    if n == 0:
        return None
    if x.ndim == 0:
        raise IndexError(f"{name}: `x` must have at least one dimension")
    if x.ndim == 1:
        if x.shape[0] != n:
            raise RuntimeError(f"{name}: There must be one `x` value for each sample point, got {x.shape[0]} for {n}")
        return x.view([n if k == d else 1 for k in range(y.ndim)])
    x = x.view([1] * (y.ndim - x.ndim) + list(x.shape)) if x.ndim < y.ndim else x
    if x.shape[wrap_dim(dim, x.ndim)] != n and x.shape[wrap_dim(dim, x.ndim)] != 1:
        raise RuntimeError(f"{name}: There must be one `x` value for each sample point, got {tuple(x.shape)} for {tuple(y.shape)}")
    return x


def _segments(y: Tensor, x: Any, dim: int) -> Tensor:
    """Twice the area under each segment of `y` along `dim`, if segments without `x` are 1 long."""
    d = wrap_dim(dim, y.ndim)
    n = y.shape[d]
    pairs = narrow(y, d, 1, max(n - 1, 0)) + narrow(y, d, 0, max(n - 1, 0)) if n else y
    return pairs if x is None else pairs * diff(x, 1, wrap_dim(dim, x.ndim))


@composite(surface=FUNCTION, aliases=("trapz",), samples="x(2, 4); x(2, 4), x(4); x(3, 2), dx=0.5, dim=0")
def trapezoid(y, x=None, *, dx=1, dim=-1):
    """The area under `y` along `dim` by the trapezoid rule, between points `x` or points `dx` apart.

    >>> fb.trapezoid(fb.tensor([1.0, 2.0, 3.0]), fb.tensor([0.0, 1.0, 3.0]))
    tensor(6.5000)
    """
    x = _check_segments(y, x, dx, dim, "trapezoid")
    if not y.shape[dim]:
        return y.sum(dim).to(y.dtype)
    if x is not None:
        return _segments(y, x, dim).sum(dim) / 2
    # Integers are added up in int64, and never multiplied.
    return (y.sum(dim) - (y.select(dim, 0) + y.select(dim, -1)) / 2.0) * dx


@composite(surface=FUNCTION, samples="x(2, 4); x(2, 4), x(4); x(3, 2), dx=0.5, dim=0")
def cumulative_trapezoid(y, x=None, *, dx=1, dim=-1):
    """The areas under `y` from its first point to each later one along `dim`, by the trapezoid rule.

    Args:
        x, dx: as for `trapezoid`. The result has one element less than `y` along `dim`.
    """
    x = _check_segments(y, x, dx, dim, "cumulative_trapezoid")
    doubled = _segments(y, x, dim)
    return (doubled * (dx / 2.0)).cumsum(dim) if x is None else doubled.cumsum(dim) / 2


# -- numerical gradients -----------------------------------------------------------------------------------------------------


@composite(surface=FUNCTION, samples="x(5); x(4, 5), spacing=0.5, edge_order=2; x(4, 5), dim=1")
def gradient(input, *, spacing=None, dim=None, edge_order=1):
    """Estimates of the derivatives of `input` along each of `dim`, second-order accurate inside.

    Args:
        spacing: distance of neighbours (a number, or one per dimension; 1 by default), or their coordinates (a vector
            per dimension).
        edge_order: 1 or 2: order of the differences at both ends.
    Returns: a tuple with one tensor per dimension.

    >>> fb.gradient(fb.tensor([1.0, 4.0, 9.0, 16.0]))
    (tensor([3., 4., 6., 7.]),)
    """
    if edge_order not in (1, 2):
        raise RuntimeError(f"torch.gradient only supports edge_order=1 and edge_order=2. Got {edge_order}")
    if input.dtype in (dtypes.uint8, dtypes.bool):
        raise RuntimeError(f"torch.gradient does not support {input.dtype} input.")
    dims = list(range(input.ndim)) if dim is None else int_list(dim)
    if len({wrap_dim(d, input.ndim) for d in dims}) != len(dims):
        raise RuntimeError(f"torch.gradient: a dim appears multiple times in the list of dims {dims}")
    steps = _spacings(spacing, len(dims))
    found = []
    for d, step in zip(dims, steps, strict=True):
        d = wrap_dim(d, input.ndim)
        if not input.ndim or input.shape[d] < edge_order + 1:
            raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
        if isinstance(step, Tensor) and step.ndim and step.shape[0] != input.shape[d]:
            raise RuntimeError(
                f"torch.gradient expected each spacing vector to have the size of its dimension, got {step.shape[0]} for {input.shape[d]}"
            )
        found.append(_slopes(input, d, step, edge_order))
    return tuple(found)


def _spacings(spacing: Any, count: int) -> list[Any]:
    if spacing is None:
        return [1] * count
    if isinstance(spacing, Tensor) and spacing.ndim == 0 or not isinstance(spacing, (list, tuple, Tensor)):
        return [spacing] * count
    steps = [spacing] if isinstance(spacing, Tensor) else list(spacing)
    if len(steps) != count:
        raise RuntimeError(
            f"torch.gradient expected spacing to be unspecified, a scalar, or a list of one element per dimension: got {len(steps)} "
            f"for {count}"
        )
    if any(isinstance(s, Tensor) and s.ndim > 1 for s in steps):
        raise RuntimeError("torch.gradient expected each element of spacing to have one dimension")
    return steps


def _slopes(x: Tensor, d: int, step: Any, edge_order: int) -> Tensor:
    n = x.shape[d]

    def at(start: int, length: int) -> Tensor:
        return narrow(x, d, start, length)

    if isinstance(step, Tensor) and step.ndim:
        h = diff(step).reshape([n - 1 if k == d else 1 for k in range(x.ndim)])
        left, right = narrow(h, d, 0, n - 2), narrow(h, d, 1, n - 2)
    else:
        h = left = right = step

    def gap(i: int) -> Any:
        return narrow(h, d, i, 1) if isinstance(step, Tensor) and step.ndim else step

    if x.dtype.category < FLOATING:
        x = x.to(dtypes.get_default_dtype())
    if isinstance(step, Tensor) and step.ndim:
        inner = (
            at(0, n - 2) * (-right / (left * (left + right)))
            + at(1, n - 2) * ((right - left) / (left * right))
            + at(2, n - 2) * (left / (right * (left + right)))
        )
    else:
        inner = (at(2, n - 2) - at(0, n - 2)) / (2 * step)
    if edge_order == 1:
        first, last = (at(1, 1) - at(0, 1)) / gap(0), (at(n - 1, 1) - at(n - 2, 1)) / gap(n - 2)
    else:
        first = _edge(at(0, 1), at(1, 1), at(2, 1), gap(0), gap(1))
        last = -_edge(at(n - 1, 1), at(n - 2, 1), at(n - 3, 1), gap(n - 2), gap(n - 3))
    return cat([first, inner, last], d)


def _edge(f0: Tensor, f1: Tensor, f2: Tensor, a: Any, b: Any) -> Tensor:
    """The slope at `f0` of the parabola through it and the next two values, `a` and then `b` further on."""
    return f0 * (-(2 * a + b) / (a * (a + b))) + f1 * ((a + b) / (a * b)) - f2 * (a / (b * (a + b)))


__all__ = ["cummax", "cummin", "cumprod", "cumsum", "diff", "gradient", "logcumsumexp"]
