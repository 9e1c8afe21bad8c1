"""The linear layer, of one weight and of a weight for each example."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from flambeau_kernels import hot_calls
from flambeau_kernels.cpu.products import matmul as kernel

from ..._arrays import ndarray
from ...dtypes import FLOAT32, FLOAT64
from ...tensor import Tensor
from .._batching import check_examples, run
from .._spec import FUNCTION, OPS, OUT, describe, primitive, sum_to, sum_to_in
from ._products import large, product, product_in, product_nt_in, product_tn, product_tn_in
from .products import _same_dtypes, adjoint, bmm, mm, mv


def _check_linear(input, weight, bias):
    a, w = input._array, weight._array
    if a.ndim == 0 or w.ndim not in (1, 2) or a.shape[-1] != w.shape[-1]:
        given, wanted = (x.shape[-1] if x.ndim else 0 for x in (a, w))
        rows = prod(a.shape[:-1])
        if w.ndim == 1:
            words = f"size mismatch, got input ({rows}), mat ({rows}x{given}), vec ({wanted})"
        else:
            words = f"mat1 and mat2 shapes cannot be multiplied ({rows}x{given} and {wanted}x{prod(w.shape[:-1])})"
        raise RuntimeError(
            f"linear: {words}: input has {given} features in its last dimension, weight expects {wanted}\n"
            f"{describe(input=input, weight=weight)}"
        )
    if bias is not None and bias._array.shape != w.shape[:-1]:
        shape = (*a.shape[:-1], *w.shape[:-1])
        given = bias._array.shape
        if len(given) > len(shape) or any(n not in (1, m) for n, m in zip(reversed(given), reversed(shape), strict=False)):
            pairs = enumerate(zip(reversed(given), reversed(shape), strict=False), 1)
            at, n, m = next(((len(shape) - i, n, m) for i, (n, m) in pairs if n not in (1, m)), (0, given[0], shape[0]))
            raise RuntimeError(
                f"linear: The expanded size of the tensor ({m}) must match the existing size ({n}) at non-singleton dimension {at}.  "
                f"Target sizes: {list(shape)}.  Tensor sizes: {list(given)}: bias {given} does not expand to the output; weight expects "
                f"{w.shape[:-1]}\n"
                f"{describe(input=input, weight=weight, bias=bias)}"
            )
    if a.dtype != w.dtype or (bias is not None and bias._array.dtype != a.dtype):
        _same_dtypes("linear", input=input, weight=weight, **({} if bias is None else {"bias": bias}))


@primitive(
    surface=FUNCTION | OUT, namespace="nn.functional", tensors=("input", "weight", "bias"), check=_check_linear, autocast="lower",
    numpy_names=True, turns=("bias", "input", "weight"),
    samples="x(2, 3), x(4, 3), x(4); x(2, 2, 3), x(4, 3)",
    exact_out=True,
    cuda="matrices.linear",
)  # fmt: skip
def linear(input, weight, bias=None):
    """``input @ weight.T + bias`` over the last dimension: ``(*, in), (out, in), (out) -> (*, out)``.

    A vector `weight` gives ``(*)``. Raises: RuntimeError for sizes or dtypes that do not go together.

    >>> F.linear(fb.tensor([1.0, 2.0]), fb.tensor([[1.0, 1.0], [0.0, 3.0]]), fb.tensor([0.5, 0.0]))
    tensor([3.5000, 6.0000])
    """


linear.shown_by(
    "Node if input._array.ndim != 2 else MM if bias is None else ADDMM",
    MM=linear.classes_by_title["MmBackward0"], ADDMM=linear.classes_by_title["AddmmBackward0"],
)  # fmt: skip


def _turned(saved: Any) -> Any:
    """The second matrix of the product that nodes show."""
    weight = saved["weight"]
    return weight.t() if isinstance(weight, Tensor) else None


# PyTorch's node is of a product with the transpose, and perhaps a sum, of matrices.
_SECOND = {
    "mat2": _turned, "mat2_sym_sizes": lambda saved: tuple(reversed(saved["weight"].shape)),
    "mat2_sym_strides": lambda saved: tuple(reversed(saved["weight"].stride())),
}  # fmt: skip
linear.shown_for(
    "MmBackward0", hides="weight bias_shape", edges="input weight", **_SECOND,
    self_sym_sizes=lambda saved: tuple(saved["input"].shape), self_sym_strides=lambda saved: saved["input"].stride(),
)  # fmt: skip
linear.shown_for(
    "AddmmBackward0", hides="weight bias_shape", edges="bias input weight", **_SECOND, mat1="input",
    alpha=lambda saved: 1, beta=lambda saved: 1,
    mat1_sym_sizes=lambda saved: tuple(saved["input"].shape), mat1_sym_strides=lambda saved: saved["input"].stride(),
)  # fmt: skip


linear.in_pieces("...k,nk,+n->...n")


@linear.kernel
def _linear(a, w, b):
    if w.ndim == 1:
        made = product(a, w)
        return np.asarray(made if b is None else made + b)
    rows = a if a.ndim == 2 else a.reshape(prod(a.shape[:-1]), a.shape[-1])
    if b is not None and b.shape == w.shape[:1] and type(a) is ndarray and type(w) is ndarray and type(b) is ndarray:
        return kernel.matmul(rows, w.T, bias=b).reshape(*a.shape[:-1], w.shape[0])
    made = product(rows, w.T).reshape(*a.shape[:-1], w.shape[0])
    return made if b is None else made + b


def _large_linear(a: Any, w: Any, b: Any) -> Any:
    """``a @ w.T + b`` of matrices and a vector of one floating dtype; None for anything else."""
    if type(a) is not ndarray or type(w) is not ndarray or type(b) is not ndarray or w.ndim != 2:
        return None
    d = a.dtype
    if (d is FLOAT32 or d is FLOAT64) and w.dtype is d and b.dtype is d and a.shape[1] == w.shape[1] and b.shape == w.shape[:1]:
        return kernel.matmul(a, w.T, bias=b)
    return None


@linear.plan(native="hot_calls.enter_matmul_nt(input, weight) if bias is None else hot_calls.enter_linear(input, weight, bias)")
def _rows_through_weights(a: Any, w: Any, b: Any) -> Any:
    """Rows of one floating dtype through a weight matrix, or None."""
    rows = a
    if a.ndim != 2:
        if w.ndim != 2 or a.__class__ is not ndarray or not a.size:
            return None
        rows = a.reshape(-1, a.shape[-1])
    if b is None:
        o = hot_calls.matmul_nt(rows, w)
        if o is None:
            o = hot_calls.numpy_matmul_nt(rows, w)
            if o is None and w.ndim == 2:
                o = large(rows, w.T)
    else:
        o = hot_calls.linear(rows, w, b)
        if o is None:
            o = hot_calls.numpy_linear(rows, w, b)
            if o is None:
                o = _large_linear(rows, w, b)
    return o if o is None or rows is a else o.reshape(*a.shape[:-1], o.shape[1])


def _linear_then(a: Any, w: Any, b: Any, then: Any, beside: Any) -> Any:
    """Rows through a weight matrix, and a formula of the result's elements; None for small products and what is no matrix."""
    if a.__class__ is not ndarray or w.__class__ is not ndarray or w.ndim != 2 or b is not None and b.shape != w.shape[:1]:
        return None
    rows = a.reshape(-1, a.shape[-1])
    if a.dtype.char not in "fd" or rows.shape[0] == 1 or w.shape[0] == 1 or rows.size * w.shape[0] <= kernel.MOST_PRODUCTS:
        return None
    if beside is not None:
        beside = beside.reshape(-1, w.shape[0])
    return kernel.matmul_then(rows, w.T, then, bias=b, beside=beside).reshape(*a.shape[:-1], w.shape[0])


linear.finished_by = _linear_then


@linear.launches
def _linear_launches(table, a, w, b):
    rows = _rows_in(table, a)
    if rows is None or w.ndim != 2:
        return None
    if b is None:
        made = product_nt_in(table, rows, w)
    else:
        made = table.call(hot_calls.linear, rows, w, b)
        if made is None and min(*rows.shape, *w.shape) > 1 and a.dtype is w.dtype is b.dtype and a.dtype.char in "fd":
            made = kernel.matmul_in(table, rows, table.view(w, w.T), b)
    return made if made is None or rows is a else table.view(made, made.reshape(*a.shape[:-1], made.shape[1]))


def _rows_in(table, a):
    """A contiguous array as a matrix of its rows."""
    if a.ndim == 2:
        return a
    return table.view(a, a.reshape(-1, a.shape[-1])) if a.ndim and a.size and a.flags.c_contiguous else None


@linear.vjp_launches
def _linear_vjp_launches(table, grad, input, weight, bias_shape, needs_input, needs_weight, needs_bias):
    rows = _rows_in(table, grad)
    flat = _rows_in(table, input) if needs_weight else None
    if weight.ndim != 2 or rows is None or flat is None and needs_weight:
        return None
    of_input = product_in(table, rows, weight) if needs_input else None
    of_weight = product_tn_in(table, rows, flat) if needs_weight else None
    if of_input is None and needs_input or of_weight is None and needs_weight:
        return None
    if of_input is not None and rows is not grad:
        of_input = table.view(of_input, of_input.reshape(input.shape))
    return of_input, of_weight, sum_to_in(table, _rows_of_bias(grad, rows, bias_shape), bias_shape) if needs_bias else None


@linear.shape
def _linear_shape(input, weight, bias):
    return (*input.shape[:-1], *weight.shape[:-1]), input.dtype


@linear.vjp(input="weight", weight="input", bias="")
def _linear_vjp(grad, input, weight, bias_shape):
    if weight.ndim == 1:
        flat = grad.reshape(-1)
        return (
            lambda: grad.unsqueeze(-1) * weight.conj(),
            lambda: mv(adjoint(input.reshape(-1, input.shape[-1])), flat).reshape(weight.shape),
            lambda: _bias_grad(grad, bias_shape),
        )
    rows = grad.reshape(-1, grad.shape[-1])
    return (
        lambda: grad @ weight.conj(),
        lambda: mm(rows.transpose(0, 1), input.reshape(-1, input.shape[-1]).conj()),
        lambda: _bias_grad(_rows_of_bias(grad, rows, bias_shape), bias_shape),
    )


def _rows_of_bias(grad: Any, rows: Any, bias_shape: tuple[int, ...]) -> Any:
    """What is added up for the gradient of a bias: rows. Sums follow the order of memory, which for rows is one however `grad` lies."""
    return rows if len(bias_shape) < 2 else grad


def _bias_grad(grad: Tensor, shape: Any) -> Tensor:
    from .._spec import sum_tensor_to

    return sum_tensor_to(grad, shape)


@linear.vjp_on_arrays
def _linear_vjp_on_arrays(grad, input, weight, bias_shape, needs_input, needs_weight, needs_bias):
    if weight.ndim == 1:
        return (
            lambda: grad[..., None] * weight.conj(),
            lambda: np.asarray(product(input.reshape(grad.size, input.shape[-1]).T.conj(), grad.reshape(-1))),
            lambda: sum_to(grad, bias_shape),
        )
    is_complex = grad.dtype.kind == "c"
    to_weight, rows = None, grad
    if grad.ndim != 2 and (needs_weight or needs_bias):
        rows = grad.reshape(prod(grad.shape[:-1]), grad.shape[-1])
    if needs_weight:
        flat = input if input.ndim == 2 else input.reshape(len(rows), input.shape[-1])
        to_weight = product(rows.T, flat.conj()) if is_complex else product_tn(rows, flat)
    return (
        product(grad, weight.conj() if is_complex else weight) if needs_input else None,
        to_weight,
        sum_to(_rows_of_bias(grad, rows, bias_shape), bias_shape) if needs_bias else None,
    )


@linear.batch
def _linear_batch(level: Any, op: Any, args: Any) -> Any:
    input, weight, bias = args
    check_examples(op, args)
    if not level.has(weight) and not level.has(bias):
        return level.wrap(run(op, level.front(input), weight, bias))
    if weight.ndim == 1:
        return NotImplemented
    return level.wrap(run(OPS["linear_of_each"], level.full(input), level.full(weight), None if bias is None else level.full(bias)))


@primitive(
    surface=0, tensors=("input", "weight", "bias"),
    samples="x(2, 3), x(2, 4, 3), x(2, 4); x(2, 5, 3), x(2, 4, 3); x(2, 2, 2, 3), x(2, 4, 3), x(2, 4)",
)  # fmt: skip
def linear_of_each(input, weight, bias=None):
    """`linear` of each example by a weight of its own: ``(b, *, in), (b, out, in), (b, out) -> (b, *, out)``."""


linear_of_each.in_pieces("b...k,bnk,+bn->b...n")


@linear_of_each.kernel
def _linear_of_each(a, w, b):
    count = prod(a.shape[1:-1])
    if not w.strides[0] and a.shape[0] > 1:               # the weight is one for all
        made = product(a.reshape(a.shape[0] * count, a.shape[-1]), w[0].T).reshape(a.shape[0], count, w.shape[1])
    else:
        made = product(a.reshape(a.shape[0], count, a.shape[-1]), w.swapaxes(1, 2))
    if b is not None:
        made += b[:, None, :]
    return made.reshape(*a.shape[:-1], w.shape[1])


@linear_of_each.shape
def _linear_of_each_shape(input, weight, bias):
    return (*input.shape[:-1], weight.shape[1]), input.dtype


@linear_of_each.decomposition
def _linear_of_each_parts(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    from .product_sums import baddbmm

    rows, turned = _rows_of_each(input), weight.transpose(1, 2)
    made = bmm.function(rows, turned) if bias is None else baddbmm.function(bias.unsqueeze(1), rows, turned)
    return made.reshape(*input.shape[:-1], weight.shape[1])


def _conjugate(x: Tensor) -> Tensor:
    return x.conj() if x.dtype.is_complex else x


def _rows_of_each(x: Tensor) -> Tensor:
    return x if x.ndim == 3 else x.unsqueeze(1) if x.ndim == 2 else x.reshape(x.shape[0], prod(x.shape[1:-1]), x.shape[-1])


@linear_of_each.vjp(input="weight", weight="input", bias="")
def _linear_of_each_vjp(grad, input, weight):
    rows = _rows_of_each(grad)
    return (
        lambda: bmm(rows, _conjugate(weight)).reshape(input.shape),
        lambda: bmm(rows.transpose(1, 2), _conjugate(_rows_of_each(input))),
        lambda: grad if grad.ndim == 2 else rows.sum(1),
    )


@linear_of_each.batch
def _linear_of_each_batch(level: Any, op: Any, args: Any) -> Any:
    given = [None if x is None else level.full(x).flatten(0, 1) for x in args]
    return level.wrap(run(op, *given).unflatten(0, (level.size, args[1].shape[0])))
