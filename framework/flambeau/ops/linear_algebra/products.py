"""Products of vectors, matrices and batches of matrices."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from flambeau_kernels import COMPILED_FROM, hot_calls
from flambeau_kernels.cpu.products import matmul as kernel

from ... import dtypes
from ..._arrays import ndarray
from ...dtypes import FLOAT32, FLOAT64
from ...tensor import Tensor
from .._batching import check_examples
from .._spec import FOREACH, FUNCTION, METHOD, NEVER, OPS, OUT, ROWS, composite, describe, primitive
from .._spec.names import contracts, unnamed
from ._products import large, product, product_in, product_nt, product_nt_in, product_tn, product_tn_in, transposed, transposed_batch


def _kind(x: Tensor) -> str:
    return dtypes.scalar_type(x.dtype)


def _same_dtypes(name: str, **operands: Any) -> None:
    first = None
    for key, x in operands.items():
        if first is None:
            first = (key, x.dtype)
        elif x.dtype is not first[1]:
            raise RuntimeError(
                f"{name}: expected {first[0]} and {key} to have the same dtype, but got: {first[1]} != {x.dtype}\n{describe(**operands)}"
            )


def _sizes(x: Tensor) -> str:
    return "x".join(map(str, x.shape))


def _raise_unmatched(input: Tensor, other: Tensor, inner: int) -> None:
    """Say why `matmul` cannot multiply; the first line depends on the number of dimensions, as PyTorch's does."""
    n, m = input.ndim, other.ndim
    if n == 1 and m == 1:
        message = _unequal_vectors(input, other)
    elif n == 2 and m == 1:
        message = f"size mismatch, got input ({input.shape[0]}), mat ({_sizes(input)}), vec ({inner})"
    elif n <= 2 and m <= 2:
        message = f"mat1 and mat2 shapes cannot be multiplied ({'1x' if n == 1 else ''}{_sizes(input)} and {_sizes(other)})"
    elif n >= 3 and m >= 3:
        batch = prod(input.shape[:-2])
        message = (
            f"Expected size for first two dimensions of batch2 tensor to be: [{batch}, {input.shape[-1]}] but got: "
            f"[{batch}, {inner}]."
        )
    else:
        rows = prod(input.shape[:-1]) if n > 1 else 1
        message = f"mat1 and mat2 shapes cannot be multiplied ({rows}x{input.shape[-1]} and {inner}x{other.shape[-1] if m > 1 else 1})"
    raise RuntimeError(
        f"matmul: {message}\n  input has {input.shape[-1]} columns, other has {inner} rows; they must be equal\n"
        f"{describe(input=input, other=other)}"
    )


def _unequal_vectors(input: Tensor, other: Tensor) -> str:
    n, m = input.numel(), other.numel()
    return (
        f"inconsistent tensor size, expected tensor [{n}] and src [{m}] to have the same number of elements, "
        f"but got {n} and {m} elements respectively"
    )


def _check_mm(input, mat2):
    if input.ndim != 2:
        raise RuntimeError(f"mm: self must be a matrix, but input has {input.ndim} dimensions\n{describe(input=input, mat2=mat2)}")
    if mat2.ndim != 2:
        raise RuntimeError(f"mm: mat2 must be a matrix, but it has {mat2.ndim} dimensions\n{describe(input=input, mat2=mat2)}")
    if input._array.shape[1] != mat2._array.shape[0]:
        raise RuntimeError(
            f"mm: mat1 and mat2 shapes cannot be multiplied ({_sizes(input)} and {_sizes(mat2)}): input has {input.shape[1]} "
            f"columns, mat2 has {mat2.shape[0]} rows; they must be equal\n{describe(input=input, mat2=mat2)}"
        )
    if input._array.dtype != mat2._array.dtype:
        _same_dtypes("mm", input=input, mat2=mat2)


@primitive(
    surface=FUNCTION | METHOD | OUT | FOREACH, tensors=("input", "mat2"), linear_in=("input", "mat2"), check=_check_mm, autocast="lower",
    memory=ROWS,
    samples="x(2, 3), x(3, 4)",
    exact_out=True,
    cuda="matrices.product", costly=True,
    names=contracts("input", "mat2"),
)  # fmt: skip
def mm(input, mat2):
    """Matrix product ``(n, k), (k, m) -> (n, m)``; no broadcasting, one dtype for both.

    Raises: RuntimeError for other ranks, sizes that do not meet, or different dtypes.
    """


mm.shown_as(
    "MmBackward0",
    self_sym_sizes=lambda saved: tuple(saved["input"].shape), self_sym_strides=lambda saved: saved["input"].stride(),
    mat2_sym_sizes=lambda saved: tuple(saved["mat2"].shape), mat2_sym_strides=lambda saved: saved["mat2"].stride(),
)  # fmt: skip


mm.in_pieces("ik,kj->ij")


mm.kernel(product)


@mm.plan(native="hot_calls.enter_matmul(input, mat2)")
def _product_of_matrices(a: Any, b: Any) -> Any:
    """Two matrices of one floating dtype."""
    if a.ndim != 2 or b.ndim != 2:
        return None
    made = hot_calls.matmul(a, b)
    if made is None:
        made = kernel.product_by_numpy(a, b)
        if made is None:
            made = large(a, b)
    return made


def _product_then(a: Any, b: Any, then: Any, beside: Any) -> Any:
    """A product, and a formula of its elements, where our own kernels or the pass after them compute both; None for small products."""
    if a.__class__ is not ndarray or b.__class__ is not ndarray or a.shape[-2] == 1 or b.shape[-1] == 1:
        return None
    if a.dtype.char not in "fd" or a.size * b.shape[-1] <= kernel.MOST_PRODUCTS * (prod(a.shape[:-2]) if a.ndim > 2 else 1):
        return None                                   # which numpy computes, in an order of its own
    return kernel.matmul_then(a, b, then, beside=beside)


mm.finished_by = _product_then
mm.launches(product_in)


@mm.vjp_launches
def _mm_vjp_launches(table, grad, input, mat2, needs_input, needs_mat2):
    if is_column_major(input) or is_column_major(mat2):
        return None
    of_input = product_nt_in(table, grad, mat2) if needs_input else None
    of_mat2 = product_tn_in(table, input, grad) if needs_mat2 else None
    return None if of_input is None and needs_input or of_mat2 is None and needs_mat2 else (of_input, of_mat2)


@mm.shape
def _mm_shape(input, mat2):
    return (input.shape[0], mat2.shape[1]), input.dtype


@mm.vjp
def _mm_vjp(grad, input, mat2):
    return (lambda: mm(grad, adjoint(mat2)), lambda: mm(adjoint(input), grad))


@mm.vjp_on_arrays
def _mm_vjp_on_arrays(grad, input, mat2, needs_input, needs_mat2):
    return (
        None if not needs_input else product_nt(mat2, grad).T if is_column_major(input) else product_nt(grad, mat2),
        None if not needs_mat2 else product_tn(grad, input).T if is_column_major(mat2) else product_tn(input, grad),
    )


@mm.batch
def _mm_batch(level: Any, op: Any, args: Any) -> Any:
    check_examples(op, args)
    return level.wrap(OPS["matmul"].function(*map(level.front, args)))


def is_column_major(x: Any) -> bool:
    """Whether a real matrix has contiguous columns: so should its gradient, which a transpose then turns into rows."""
    return x.strides[0] < x.strides[1] and x.dtype.kind == "f" and x.strides[0] == x.itemsize


def adjoint(x: Tensor) -> Tensor:
    return x.mH if x.is_complex() else x.transpose(-2, -1)


def _check_bmm(input, mat2):
    for name, x in (("input", input), ("mat2", mat2)):
        if x.ndim != 3:
            raise RuntimeError(
                f"bmm: {'batch1' if x is input else 'batch2'} must be a 3D tensor, but {name} has {x.ndim} dimensions\n"
                f"{describe(input=input, mat2=mat2)}"
            )
    if input.shape[0] != mat2.shape[0] or input.shape[2] != mat2.shape[1]:
        raise RuntimeError(
            f"bmm: Expected size for first two dimensions of batch2 tensor to be: [{input.shape[0]}, {input.shape[2]}] but got: "
            f"[{mat2.shape[0]}, {mat2.shape[1]}].\n{describe(input=input, mat2=mat2)}"
        )
    _same_dtypes("bmm", input=input, mat2=mat2)


@primitive(
    surface=FUNCTION | METHOD | OUT, tensors=("input", "mat2"), linear_in=("input", "mat2"), check=_check_bmm, autocast="lower",
    memory=ROWS,
    samples="x(2, 3, 4), x(2, 4, 2)",
    exact_out=True,
    cuda="matrices.product", costly=True,
    names=contracts("input", "mat2"),
)  # fmt: skip
def bmm(input, mat2):
    """Matrix products of two batches ``(b, n, k), (b, k, m) -> (b, n, m)``; no broadcasting, one dtype for both.

    Raises: RuntimeError for other ranks, sizes that do not meet, or different dtypes.
    """


bmm.in_pieces("bik,bkj->bij")


bmm.kernel(product)
bmm.finished_by = _product_then


def _product_of_batches(a: Any, b: Any) -> Any:
    """Two batches of matrices of one floating dtype."""
    made = hot_calls.bmm(a, b)
    if made is not None:
        return made
    d = a.dtype
    if d is not FLOAT32 and d is not FLOAT64 or b.dtype is not d or a.ndim < 3:
        return None
    if a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        return None
    made = kernel.batch_by_numpy(a, b)
    return kernel.matmul(a, b) if made is None else made


@bmm.plan(native="hot_calls.enter_bmm(input, mat2)")
def _product_of_two_batches(a: Any, b: Any) -> Any:
    return _product_of_batches(a, b) if a.ndim == 3 else None


@bmm.shape
def _bmm_shape(input, mat2):
    return (input.shape[0], input.shape[1], mat2.shape[2]), input.dtype


@bmm.vjp
def _bmm_vjp(grad, input, mat2):
    return (lambda: bmm(grad, adjoint(mat2)), lambda: bmm(adjoint(input), grad))


@bmm.vjp_on_arrays
def _bmm_vjp_on_arrays(grad, input, mat2):
    return (lambda: _batch_product(grad, transposed_batch(mat2)), lambda: _batch_product(transposed_batch(input), grad))


@bmm.batch
def _bmm_batch(level: Any, op: Any, args: Any) -> Any:
    check_examples(op, args)
    return level.wrap(OPS["matmul"].function(*(level.front(x) for x in args)))


def _batch_product(a: Any, b: Any) -> Any:
    made = kernel.batch_by_numpy(a, b)
    return product(a, b) if made is None else made


@primitive(surface=0, tensors=("input", "mat2"), linear_in=("input", "mat2"), memory=ROWS, samples="of matmul", cuda="matrices.product")
def products(input, mat2):
    """Matrix products ``(*, n, k) @ (*, k, m) -> (*, n, m)`` over several equal leading dimensions, of any strides."""


products.in_pieces("...ik,...kj->...ij")


@products.decomposition
def _product_parts(input: Tensor, mat2: Tensor) -> Tensor:
    if input.ndim <= 3:
        return (mm if input.ndim == 2 else bmm).function(input, mat2)
    made = bmm.function(input.reshape(-1, *input.shape[-2:]), mat2.reshape(-1, *mat2.shape[-2:]))
    return made.view(*input.shape[:-1], mat2.shape[-1])


products.shown_as("BmmBackward0")
products.kernel(product)
products.plan(_product_of_batches, native="hot_calls.enter_bmm(input, mat2)")


@products.shape
def _products_shape(input, mat2):
    return (*input.shape[:-1], mat2.shape[-1]), input.dtype


@products.vjp
def _products_vjp(grad, input, mat2):
    return (lambda: products(grad, adjoint(mat2)), lambda: products(adjoint(input), grad))


products.vjp_on_arrays(_bmm_vjp_on_arrays)


@products.batch
def _products_batch(level: Any, op: Any, args: Any) -> Any:
    return level.wrap(OPS["matmul"].function(*(level.front(x) for x in args)))


def _check_mv(input, vec):
    if input.ndim != 2 or vec.ndim != 1:
        raise RuntimeError(
            f"vector + matrix @ vector expected, got {input.ndim}, {input.ndim}, {vec.ndim}\n{describe(input=input, vec=vec)}"
        )
    if input.shape[1] != vec.shape[0]:
        raise RuntimeError(
            f"mv: size mismatch, got input ({input.shape[0]}), mat ({_sizes(input)}), vec ({vec.shape[0]})\n"
            f"{describe(input=input, vec=vec)}"
        )
    _same_dtypes("mv", input=input, vec=vec)


@primitive(
    surface=FUNCTION | METHOD | OUT, tensors=("input", "vec"), linear_in=("input", "vec"), check=_check_mv, autocast=(None, "lower"),
    samples="x(2, 3), x(3)",
    exact_out=True,
    cuda="matrices.product", costly=True,
    names=contracts("input", "vec"),
)
def mv(input, vec):
    """Matrix times vector, ``(n, m) @ (m,) -> (n,)``."""


mv.in_pieces("ik,k->i")


mv.kernel(product)
mv.shape(lambda input, vec: (input.shape[:1], input.dtype))


mv.plan(kernel.vector_by_numpy)


@mv.vjp_on_arrays
def _mv_vjp_on_arrays(grad, input, vec):
    return (lambda: grad[:, None] * (vec if vec.dtype.kind != "c" else vec.conj()), lambda: product(transposed(input), grad))


@mv.vjp
def _mv_vjp(grad, input, vec):
    return (lambda: outer(grad, vec.conj()), lambda: mv(adjoint(input), grad))


@mv.batch
def _mv_batch(level: Any, op: Any, args: Any) -> Any:
    check_examples(op, args)
    a, v = args
    if not level.has(a):
        return level.wrap(OPS["matmul"].function(level.front(v), a.transpose(0, 1)))
    return level.wrap(OPS["matmul"].function(level.front(a), level.front(v).unsqueeze(-1)).squeeze(-1))


def _check_dot(input, tensor):
    if input.ndim != 1 or tensor.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {input.ndim}D and {tensor.ndim}D tensors\n{describe(input=input, tensor=tensor)}")
    if input.dtype is not tensor.dtype:
        raise RuntimeError(f"dot : expected both vectors to have same dtype, but found {_kind(input)} and {_kind(tensor)}")
    if input.numel() != tensor.numel():
        raise RuntimeError(_unequal_vectors(input, tensor))


@primitive(
    surface=FUNCTION | METHOD | OUT, tensors=("input", "tensor"), linear_in=("input", "tensor"), check=_check_dot, autocast=(None, "lower"),
    samples="x(3), x(3)",
    exact_out=True,
    cuda="matrices.dot", costly=True,
    names=unnamed,
)
def dot(input, tensor):
    """The sum of products of two vectors ``(n), (n) -> ()``; see `vdot` for conjugation.

    Raises: RuntimeError unless both are vectors of one length and dtype.
    """


dot.in_pieces("k,k->")


@dot.kernel
def _dot(a, b):
    return np.asarray(product(a, b))


dot.plan(kernel.dot_by_numpy)
dot.shape(lambda input, tensor: ((), input.dtype))


@dot.vjp_on_arrays
def _dot_vjp_on_arrays(grad, input, tensor):
    if grad.dtype.kind == "c":
        return (lambda: grad * tensor.conj(), lambda: grad * input.conj())
    return (lambda: grad * tensor, lambda: grad * input)


@dot.vjp
def _dot_vjp(grad, input, tensor):
    return (lambda: grad * tensor.conj(), lambda: grad * input.conj())


@dot.batch
def _dot_batch(level: Any, op: Any, args: Any) -> Any:
    check_examples(op, args)
    a, b = map(level.full, args)
    return level.wrap(OPS["matmul"].function(a.unsqueeze(1), b.unsqueeze(2)).reshape(level.size))


@composite(
    surface=FUNCTION | METHOD | OUT, reads_parts=lambda input, other: input.dtype.is_complex,
    samples="x(3), x(3); c(3), c(3)", exact_out=True,
)
def vdot(input, other):
    """`dot` with `input` conjugated: ``(n), (n) -> ()``."""
    return dot(input.conj(), other)


vdot.result_shown_as("VdotBackward0")


@vdot.forwards
def _dot_of_real_vectors(input, other):
    return dot.answer(input, other) if input._array.dtype.kind != "c" else None


@composite(surface=FUNCTION | METHOD | OUT, aliases=("ger",), overlap=NEVER, samples="x(2), x(3)")
def outer(input, vec2: Tensor):
    """All products of an element of `input` and one of `vec2`: ``(n), (m) -> (n, m)``."""
    if input.ndim != 1 or vec2.ndim != 1:
        raise RuntimeError(f"outer: Expected 1-D argument self and vec2, but got {input.ndim}-D and {vec2.ndim}-D")
    return input.unsqueeze(1) * vec2


@outer.plan(tensors=("input", "vec2"), dtypes="fdil", builtin="hot_calls.outer(a_input, a_vec2)")
def _outer_of_vectors(a, b):
    if a.ndim == b.ndim == 1 and a.size * b.size >= COMPILED_FROM:
        return OPS["mul"].formula.direct(a[:, None], b)
    return np.multiply(a[:, None], b) if a.ndim == 1 == b.ndim else None


@composite(
    surface=FUNCTION | METHOD | OUT, aliases=("linalg.matmul",), autocast="lower",
    samples="x(2, 3), x(3, 4); x(3), x(3); x(2, 1, 3, 4), x(2, 4, 2); x(2, 3), x(3)",
    exact_out=True,
    names=contracts("input", "other"),
)
def matmul(input, other):
    """The product of two tensors, vectors counting as matrices of one row or column.

    ``(n), (n) -> ()``; ``(n, k), (k) -> (n)``; ``(k), (k, m) -> (m)``; ``(n, k), (k, m) -> (n, m)``. More
    dimensions:
    matrices of the last two, batched over the others, which broadcast.
    Raises: RuntimeError for a 0-d operand, sizes that do not meet, or different dtypes.

    >>> fb.matmul(fb.ones(5, 1, 2, 3), fb.ones(4, 3, 6)).shape
    torch.Size([5, 4, 2, 6])
    """
    if not isinstance(input, Tensor) or not isinstance(other, Tensor):
        bad = "input" if not isinstance(input, Tensor) else "other"
        raise TypeError(f"matmul(): argument '{bad}' must be Tensor, not {type(other if bad == 'other' else input).__name__}")
    n, m = input._array.ndim, other._array.ndim
    if n == 0 or m == 0:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {n}D and {m}D")
    _same_dtypes("matmul", input=input, other=other)
    inner = other._array.shape[0 if m == 1 else -2]
    if input._array.shape[-1] != inner:
        _raise_unmatched(input, other, inner)
    if n == 2 and m == 2:
        return mm(input, other)
    if n == 1 and m == 1:
        return dot(input, other)
    if n == 2 and m == 1:
        return mv(input, other)
    if n == 1 and m == 2:
        return mm(input.unsqueeze(0), other).squeeze(0)
    return _batched(input, other)


def _by_rank(input: Any, other: Any) -> Tensor | None:
    """The product that operands of other ranks than two come to."""
    n, m = input._array.ndim, other._array.ndim
    if m == 1 and n <= 2:
        return (mv if n == 2 else dot).answer(input, other)
    if n == m > 2 and input._array.shape[:-2] == other._array.shape[:-2]:
        return (bmm if n == 3 else products).answer(input, other)
    return None


def _matmul_answer(input: Any, other: Any) -> Any:
    """Two matrices, or batches of equal numbers of them, have an op of their own."""
    if not isinstance(input, Tensor) or not isinstance(other, Tensor) or input.ndim != other.ndim or input.ndim not in (2, 3):
        return None
    return (mm if input.ndim == 2 else bmm, (input, other)) if input.shape[:-2] == other.shape[:-2] else None


matmul.forwards(mm, _by_rank, to=_matmul_answer)


@matmul.plan(tensors=("input", "other"))
def _stretched(a: Any, b: Any) -> Any:
    """A vector or batches on one side."""
    if not a.ndim or not b.ndim or not a.size:
        return None
    if b.ndim > 2:
        return kernel.batch_by_numpy(a, b)
    if a.ndim > 2:
        made = kernel.product_by_numpy(a.reshape(-1, a.shape[-1]), b)
        return None if made is None else made.reshape(*a.shape[:-1], *b.shape[1:])
    return kernel.product_by_numpy(a, b)


def _batched(input: Tensor, other: Tensor) -> Tensor:
    """Products over leading dimensions; a matrix on the right of a batch folds the batch into rows."""
    n, m = input.ndim, other.ndim
    if m <= 2:
        rows = input.reshape(input.shape[:-1].numel(), input.shape[-1])
        if m == 1:
            return mv(rows, other).view(input.shape[:-1])
        return mm(rows, other).view(*input.shape[:-1], other.shape[-1])
    a = input.unsqueeze(0) if n == 1 else input
    first, second = tuple(a.shape[:-2]), tuple(other.shape[:-2])
    if first != second:
        from ..shapes.expand import broadcast_shapes

        batch = tuple(broadcast_shapes(first, second))
        a = a if first == batch else a.expand(batch + tuple(a.shape[-2:]))
        other = other if second == batch else other.expand(batch + tuple(other.shape[-2:]))
    made = bmm(a, other) if a.ndim == 3 else products(a, other)
    return made.squeeze(-2) if n == 1 else made


@composite(surface=FUNCTION | OUT, variadic="matrices", samples="x(2, 3), x(3, 4), x(4, 2)", exact_out=True)
def chain_matmul(matrices):
    """The product of one or more matrices, given one by one, in the cheapest order; see `linalg.multi_dot`."""
    from .matrix import multi_dot

    if not matrices:
        raise RuntimeError("chain_matmul(): Expected one or more matrices")
    for i, x in enumerate(matrices):
        if not isinstance(x, Tensor):
            raise TypeError(
                f"chain_matmul(): argument 'matrices' (position 1) must be tuple of Tensors, but element {i} is {type(x).__name__}"
            )
        if x.ndim != 2:
            raise RuntimeError(f"chain_matmul(): matrix {i} must have 2 dimensions, it has {x.ndim}")
    return matrices[0].clone() if len(matrices) == 1 else multi_dot(list(matrices))


chain_matmul.deprecation = (
    "torch.chain_matmul is deprecated and will be removed in a future PyTorch release. Use torch.linalg.multi_dot instead, which "
    "accepts a list of two or more tensors rather than multiple parameters."
)
