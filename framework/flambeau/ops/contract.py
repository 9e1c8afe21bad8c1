"""Sums of products over chosen dimensions: einsum, tensordot, inner and cross products, covariances, norms."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from flambeau_kernels.cpu.softmax import widen

from .. import dtypes
from ..tensor import Tensor, wrap_dim
from ._spec import (
    FUNCTION,
    INPLACE,
    METHOD,
    OPS,
    OUT,
    broadcast_shapes,
    composite,
    describe,
    primitive,
    sum_tensor_to,
    wrap_dims,
)
from .linalg import bmm, mm, products

# -- einsum ------------------------------------------------------------------------------------------------------------------


class _Term:
    """A tensor with a label for each dimension; labels are letters, or ints for the dimensions of an ellipsis."""

    __slots__ = ("labels", "tensor")

    def __init__(self, tensor: Tensor, labels: list[Any]) -> None:
        self.tensor = tensor
        self.labels = labels

    def size(self, label: Any) -> int:
        return self.tensor.shape[self.labels.index(label)] if label in self.labels else 1

    def arranged(self, groups: list[list[Any]]) -> Tensor:
        """The tensor with its dimensions in the order of `groups`; a label it lacks gets size 1."""
        order = [label for group in groups for label in group]
        have = [label for label in order if label in self.labels]
        moved = self.tensor.permute([self.labels.index(label) for label in have])
        return moved.reshape([self.size(label) for label in order])

    def summed(self, labels: list[Any]) -> _Term:
        """The term with `labels` summed away."""
        dims = [self.labels.index(label) for label in labels if label in self.labels]
        if not dims:
            return self
        kept = [label for label in self.labels if label not in labels]
        # Integers keep their dtype, for the product that follows needs equal ones.
        return _Term(self.tensor.sum(dims, dtype=self.tensor.dtype), kept)


def _split_equation(equation: str) -> tuple[list[str], str | None]:
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    plain = text.replace("...", "").replace("->", "")
    for i, c in enumerate(plain):
        if not (c.isascii() and c.isalpha()) and c != ",":
            raise RuntimeError(
                f"einsum(): invalid subscript given at index {i} in the equation string, subscripts must be in [a-zA-Z]: {equation!r}"
            )
    return left.split(","), right if arrow else None


def _parse_labels(text: str, operand: int) -> list[Any]:
    """Letters, with Ellipsis standing for the dimensions not named."""
    if text.count("...") > 1:
        raise RuntimeError(f"einsum(): found '.' for operand {operand} for which an ellipsis was already found")
    before, dots, after = text.partition("...")
    return [*before, *([Ellipsis] if dots else []), *after]


def _sublist_labels(subscripts: Any, operand: int) -> list[Any]:
    made: list[Any] = []
    for s in subscripts:
        if s is Ellipsis:
            made.append(Ellipsis)
            continue
        if not 0 <= s < 52:
            raise ValueError(f"einsum(): subscript {s} of operand {operand} is not within the valid range [0, 52)")
        made.append(chr(ord("A") + s) if s < 26 else chr(ord("a") + s - 26))
    return made


def _read_arguments(equation: Any, operands: Any) -> tuple[list[list[Any]], Any, list[Tensor]]:
    """Labels of each operand, labels of the result (None when not given), operands."""
    if isinstance(equation, Tensor):
        # A single sublist arrives as if it were a list of operands.
        sublists = any(isinstance(x, (list, tuple, Tensor)) for x in operands)
        values = [equation, *operands] if sublists or not operands else [equation, list(operands)]
        pairs = len(values) // 2
        tensors = values[0 : 2 * pairs : 2]
        terms = [_sublist_labels(s, i) for i, s in enumerate(values[1 : 2 * pairs : 2])]
        output = _sublist_labels(values[-1], len(tensors)) if len(values) % 2 else None
        return terms, output, tensors
    if not operands:
        raise ValueError("einsum(): give the equation string and at least one operand, or at least one operand and its subscripts list")
    texts, right = _split_equation(equation)
    if len(texts) != len(operands):
        more = "more" if len(operands) > len(texts) else "fewer"
        raise RuntimeError(f"einsum(): {more} operands were provided than the equation {equation!r} has: {len(operands)} for {len(texts)}")
    terms = [_parse_labels(t, i) for i, t in enumerate(texts)]
    return terms, None if right is None else _parse_labels(right, len(texts)), list(operands)


def _expand_ellipsis(terms: list[list[Any]], tensors: Sequence[Any]) -> int:
    """Replace each Ellipsis by ints counted from the last dimension it stands for (-1, -2, ...); returns the largest count."""
    widest = 0
    for i, (labels, tensor) in enumerate(zip(terms, tensors, strict=True)):
        if Ellipsis in labels:
            count = tensor.ndim - len(labels) + 1
            if count < 0:
                raise RuntimeError(
                    f"einsum(): the number of subscripts in the equation ({len(labels) - 1}) is more than the number of dimensions "
                    f"({tensor.ndim}) for operand {i}"
                )
            at = labels.index(Ellipsis)
            labels[at : at + 1] = range(-count, 0)
            widest = max(widest, count)
        elif len(labels) != tensor.ndim:
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({len(labels)}) does not match the number of dimensions "
                f"({tensor.ndim}) for operand {i} and no ellipsis was given"
            )
    return widest


def _output_labels(output: Any, terms: list[list[Any]], widest: int) -> list[Any]:
    seen = [label for labels in terms for label in labels]
    if output is None:
        letters = {label for label in seen if not isinstance(label, int)}
        return [*range(-widest, 0), *sorted(label for label in letters if seen.count(label) == 1)]
    made: list[Any] = []
    for label in output:
        if label is Ellipsis:
            made += range(-widest, 0)
            continue
        if output.count(label) > 1:
            raise RuntimeError(f"einsum(): output subscript {label} appears more than once in the output")
        if label not in seen:
            raise RuntimeError(f"einsum(): output subscript {label} does not appear in the equation for any input operand")
        made.append(label)
    return made


def _without_repeats(tensor: Tensor, labels: list[Any], operand: int) -> _Term:
    """Repeated labels become diagonals."""
    labels = list(labels)
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            if tensor.shape[first] != tensor.shape[second]:
                raise RuntimeError(
                    f"einsum(): subscript {label} is repeated for operand {operand} but the sizes don't match, "
                    f"{tensor.shape[second]} != {tensor.shape[first]}"
                )
            tensor = tensor.diagonal(0, first, second).movedim(-1, first)
            del labels[second]
    return _Term(tensor, labels)


def _check_sizes(terms: list[_Term]) -> None:
    sizes: dict[Any, int] = {}
    for i, term in enumerate(terms):
        for label, n in zip(term.labels, term.tensor.shape, strict=True):
            have = sizes.get(label, 1)
            if have != n and n != 1:
                if have != 1:
                    raise RuntimeError(
                        f"einsum(): subscript {label} has size {n} for operand {i} which does not broadcast with size {have} seen before"
                    )
                sizes[label] = n
    for term in terms[1:]:
        if term.tensor.dtype is not terms[0].tensor.dtype:
            raise RuntimeError(f"einsum(): expected scalar type {terms[0].tensor.dtype} but found {term.tensor.dtype}")


def _product_of(a: _Term, b: _Term, needed: set[Any]) -> _Term:
    """The two terms multiplied, with what neither the result nor later terms need summed away."""
    a = a.summed([x for x in a.labels if x not in needed and b.size(x) == 1])
    b = b.summed([x for x in b.labels if x not in needed and a.size(x) == 1])
    both = [x for x in a.labels if x in b.labels]
    rows = [x for x in a.labels if x not in both]
    columns = [x for x in b.labels if x not in both]
    inner = [x for x in both if x not in needed]
    batch = [x for x in both if x in needed]
    sizes = {x: max(a.size(x), b.size(x)) if 0 not in (a.size(x), b.size(x)) else 0 for x in (*a.labels, *b.labels)}
    labels = [*batch, *rows, *columns]
    if not inner:
        return _Term(a.arranged([batch, rows, columns]) * b.arranged([batch, rows, columns]), labels)
    left = a.arranged([batch, rows, inner]).expand([sizes[x] for x in (*batch, *rows, *inner)])
    right = b.arranged([batch, inner, columns]).expand([sizes[x] for x in (*batch, *inner, *columns)])
    counts = [_count(sizes, group) for group in (batch, rows, inner, columns)]
    x = left.reshape(counts[0], counts[1], counts[2])
    y = right.reshape(counts[0], counts[2], counts[3])
    made = bmm(x, y) if batch else mm(x.squeeze(0), y.squeeze(0))
    return _Term(made.reshape([sizes[label] for label in labels]), labels)


class _Step(NamedTuple):
    """A product of two terms: how their dimensions are ordered (None as they are), and how many of them are batch, rows, inner
    dimensions and columns. `turned` if the second term has the rows.
    """

    left: tuple[int, ...] | None
    right: tuple[int, ...] | None
    counts: tuple[int, int, int, int]
    turned: bool


class _Route(NamedTuple):
    labels: tuple[tuple[Any, ...], ...]
    steps: tuple[_Step, ...]
    last: tuple[int, ...] | None


def _order(labels: Any, wanted: Any) -> tuple[int, ...] | None:
    order = tuple(labels.index(x) for x in wanted)
    return None if order == tuple(range(len(order))) else order


@functools.lru_cache(512)
def _route(equation: str, ndims: tuple[int, ...]) -> _Route | None:
    """How an equation is computed by matrix products alone, if it is: every label of a term is in the result or in one other."""
    try:
        terms, output, _ = _read_arguments(equation, ndims)
        widest = _expand_ellipsis(terms, [_Dims(n) for n in ndims])
        wanted = _output_labels(output, terms, widest)
    except (RuntimeError, ValueError):                # said again where the operands are known
        return None
    if any(len(set(labels)) != len(labels) for labels in terms):
        return None
    a, steps = terms[0], []
    for i, b in enumerate(terms[1:], 1):
        needed = {*wanted, *(x for later in terms[i + 1 :] for x in later)}
        both = [x for x in a if x in b]
        batch, inner = [x for x in both if x in needed], [x for x in both if x not in needed]
        rows, columns = [x for x in a if x not in both], [x for x in b if x not in both]
        if not inner or not needed.issuperset((*rows, *columns)):
            return None
        turned = i == len(terms) - 1 and wanted == [*batch, *columns, *rows]
        first, second, rows, columns = (b, a, columns, rows) if turned else (a, b, rows, columns)
        counts = (len(batch), len(rows), len(inner), len(columns))
        steps.append(_Step(_order(first, [*batch, *rows, *inner]), _order(second, [*batch, *inner, *columns]), counts, turned))
        a = [*batch, *rows, *columns]
    return _Route(tuple(map(tuple, terms)), tuple(steps), _order(a, wanted))


class _Dims(NamedTuple):
    ndim: int


def _by_route(equation: str, operands: Any) -> Tensor | None:
    """The result by the route of the equation; None for operands or sizes that it does not fit."""
    for t in operands:
        if not isinstance(t, Tensor) or t.dtype is not operands[0].dtype:
            return None
    route = _route(equation, tuple(t.ndim for t in operands))
    if route is None:
        return None
    sizes: dict[Any, int] = {}
    for t, labels in zip(operands, route.labels, strict=True):
        for label, n in zip(labels, t._a.shape, strict=True):
            if sizes.setdefault(label, n) != n:
                return None
    made = operands[0]
    for step, other in zip(route.steps, operands[1:], strict=True):
        a, b = (other, made) if step.turned else (made, other)
        a = a if step.left is None else a.permute(step.left)
        b = b if step.right is None else b.permute(step.right)
        made = _matrices_product(a, b, step.counts)
    return made if route.last is None else made.permute(route.last)


def _matrices_product(a: Tensor, b: Tensor, counts: tuple[int, int, int, int]) -> Tensor:
    """Batch, rows and inner dimensions of `a` times batch, inner dimensions and columns of `b`."""
    batch, rows, inner, columns = counts
    shape, split = tuple(a._a.shape), batch + rows
    result = (*shape[:split], *b._a.shape[batch + inner :])
    if rows != 1 or inner != 1:
        a = a.reshape(*shape[:batch], math.prod(shape[batch:split]), math.prod(shape[split:]))
    if columns != 1 or inner != 1:
        b = b.reshape(*shape[:batch], math.prod(shape[split:]), math.prod(result[split:]))
    made = mm(a, b) if not batch else bmm(a, b) if batch == 1 else products(a, b)
    return made if rows == columns == 1 else made.reshape(result)


def _count(sizes: dict[Any, int], labels: list[Any]) -> int:
    total = 1
    for label in labels:
        total *= sizes[label]
    return total


@composite(surface=FUNCTION, spread="operands", autocast="lower")
def einsum(equation, operands):
    """The sum of products that `equation` writes in Einstein's notation, such as ``'bij,bjk->bik'``.

    Labels repeated within an operand take its diagonal, labels missing from the right side are summed over,
    '...' stands
    for broadcast dimensions. Without ``->`` the result has the labels that occur once, in alphabetical order.
    The form
    ``einsum(x, [0, 1], y, [1, 2], [0, 2])`` numbers the labels instead.
    Raises: RuntimeError for an equation that does not go with the operands.

    >>> a = fb.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> fb.einsum("ii", a), fb.einsum("ij->j", a)
    (tensor(5.), tensor([4., 6.]))
    """
    if isinstance(equation, str) and len(operands) > 1:
        made = _by_route(equation, operands)
        if made is not None:
            return made
    terms, output, tensors = _read_arguments(equation, operands)
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise TypeError(f"einsum(): expected Tensor as operand {i}, got {type(t).__name__}")
    widest = _expand_ellipsis(terms, tensors)
    wanted = _output_labels(output, terms, widest)
    parts = [_without_repeats(t, labels, i) for i, (t, labels) in enumerate(zip(tensors, terms, strict=True))]
    _check_sizes(parts)
    made = parts[0]
    for i, part in enumerate(parts[1:], 1):
        made = _product_of(made, part, {*wanted, *(x for later in parts[i + 1 :] for x in later.labels)})
    dropped = [made.labels.index(x) for x in made.labels if x not in wanted]
    if dropped:  # the sum of integers is int64 here, as that of `sum`
        made = _Term(made.tensor.sum(dropped), [x for x in made.labels if x in wanted])
    return made.tensor.permute([made.labels.index(x) for x in wanted])


# -- products over dimensions --------------------------------------------------------------------------------------------------


def _contracted_dims(a: Tensor, b: Tensor, dims: Any) -> tuple[list[int], list[int]]:
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.ndim, b.ndim):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        return list(range(a.ndim - dims, a.ndim)), list(range(dims))
    left, right = dims
    left = [left] if isinstance(left, int) else list(left)
    right = [right] if isinstance(right, int) else list(right)
    if len(left) != len(right):
        raise RuntimeError(f"tensordot: both dimension lists should have same length, got {left} and {right}")
    return list(wrap_dims("tensordot", left, a.ndim)) if left else [], list(wrap_dims("tensordot", right, b.ndim)) if right else []


@composite(surface=FUNCTION | OUT)
def tensordot(a, b, dims=2):
    """The sum of products of `a` and `b` over pairs of dimensions.

    Args:
        dims: how many, the last of `a` against the first of `b`; or two lists that pair dimensions of `a`
            with those of `b`.
    Returns: the dimensions of `a` that are left, then those of `b`.

    >>> fb.tensordot(fb.ones(2, 3, 4), fb.ones(4, 3, 5), dims=([1, 2], [1, 0])).shape
    torch.Size([2, 5])
    """
    if a.dtype is not b.dtype:
        raise RuntimeError(f"tensordot: both inputs should have same dtype, got {a.dtype} and {b.dtype}")
    left, right = _contracted_dims(a, b, dims)
    for i, j in zip(left, right, strict=True):
        n, m = a.shape[i], b.shape[j]
        if n != m and 1 not in (n, m):
            raise RuntimeError(
                f"tensordot: contracted dimensions need to match, but first has size {n} in dim {i} and second has size {m} in dim {j}"
            )
        if n == 1 and m != 1:
            b = b.sum(j, keepdim=True, dtype=b.dtype)
        elif m == 1 and n != 1:
            a = a.sum(i, keepdim=True, dtype=a.dtype)
    free_a = [d for d in range(a.ndim) if d not in left]
    free_b = [d for d in range(b.ndim) if d not in right]
    shape = [a.shape[d] for d in free_a] + [b.shape[d] for d in free_b]
    rows, inner, columns = (_numel(x, d) for x, d in ((a, free_a), (a, left), (b, free_b)))
    made = mm(a.permute([*free_a, *left]).reshape(rows, inner), b.permute([*right, *free_b]).reshape(inner, columns))
    return made.reshape(shape)


def _numel(x: Tensor, dims: list[int]) -> int:
    total = 1
    for d in dims:
        total *= x.shape[d]
    return total


@composite(surface=FUNCTION | METHOD | OUT)
def inner(input, other):
    """The sums of products over the last dimensions of both; with a 0-d operand, the product."""
    if input.dtype is not other.dtype and input.ndim and other.ndim:
        raise RuntimeError(f"inner: both inputs should have same dtype, got {input.dtype} and {other.dtype}")
    if not input.ndim or not other.ndim:
        return input * other
    if input.shape[-1] != other.shape[-1]:
        raise RuntimeError(
            f"inner() the last dimension must match on both input tensors but got shapes {list(input.shape)} and {list(other.shape)}"
        )
    return tensordot(input, other, [[-1], [-1]])


def _check_cross(input, other, dim):
    if input.ndim != other.ndim:
        raise RuntimeError(f"cross: inputs must have the same number of dimensions.\n{describe(input=input, other=other)}")
    if input.dtype is not other.dtype:
        raise RuntimeError(f"cross: expected both inputs to have the same dtype, got {input.dtype} and {other.dtype}")
    broadcast_shapes(cross_along, (input, other))
    d = wrap_dim(dim, input.ndim)
    if not input.ndim or input.shape[d] != 3 or other.shape[d] != 3:
        raise RuntimeError(f"cross: inputs dimension {dim} must have length 3.\n{describe(input=input, other=other)}")
    return input, other, d - max(input.ndim, 1)


@primitive(surface=0, tensors=("input", "other"), check=_check_cross)
def cross_along(input, other, dim):
    """The vector products of vectors along `dim`, counted from the end."""


cross_along.node_class.title = "LinalgCrossBackward0"


@cross_along.kernel
def _cross(a, b, dim):
    x, y = (np.moveaxis(widen(v), dim, 0) for v in (a, b))
    made = np.stack([x[(i + 1) % 3] * y[(i + 2) % 3] - x[(i + 2) % 3] * y[(i + 1) % 3] for i in range(3)], dim)
    return made.astype(a.dtype, copy=False)


@cross_along.shape
def _cross_shape(input, other, dim):
    return broadcast_shapes(cross_along, (input, other)), input.dtype


@cross_along.vjp
def _cross_vjp(grad, input, other, dim):
    return (
        lambda: sum_tensor_to(cross_along.function(other.conj(), grad, dim), tuple(input.shape)),
        lambda: sum_tensor_to(cross_along.function(grad, input.conj(), dim), tuple(other.shape)),
    )


@composite(surface=FUNCTION | METHOD | OUT)
def cross(input, other, dim=None):
    """The vector products of the 3-vectors along `dim`, by default the first dimension of size 3.

    `input` and `other` broadcast. Raises: RuntimeError where no dimension has size 3.
    """
    if dim is None:
        shape = broadcast_shapes(cross, (input, other))
        if 3 not in input.shape:
            raise RuntimeError(f"cross: no dimension of size 3 in input of shape {tuple(input.shape)}; broadcast shape {shape}")
        dim = list(input.shape).index(3)
    return cross_along.function(input, other, dim)


# -- covariance ----------------------------------------------------------------------------------------------------------------


def _check_weights(x: Tensor, weights: Any, label: str, integral: bool) -> None:
    if weights is None:
        return
    if weights.ndim > 1:
        raise RuntimeError(f"cov(): expected {label} to have one or fewer dimensions but got {label} with {weights.ndim} dimensions")
    if (weights.dtype.category == dtypes.INTEGER) is not integral or not integral and not weights.is_floating_point():
        kind = "integral" if integral else "floating point"
        raise RuntimeError(f"cov(): expected {label} to have {kind} dtype but got {label} with {weights.dtype}")
    if weights.numel() != x.shape[1]:
        raise RuntimeError(f"cov(): expected {label} to have the same numel as there are observations: {weights.numel()} != {x.shape[1]}")
    if not weights.is_meta and weights.numel() and weights._a.min() < 0:
        raise RuntimeError(f"cov(): {label} cannot be negative")


@composite(surface=FUNCTION | METHOD)
def cov(input, *, correction=1, fweights=None, aweights=None):
    """The covariance matrix of variables, one a row, over observations, one a column: ``(n, observations) -> (n, n)``.

    Args:
        correction: what is taken off the number of observations in the denominator.
        fweights: how often each observation counts, integers.
        aweights: how much each observation weighs, floating.

    >>> fb.cov(fb.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    if input.ndim > 2:
        raise RuntimeError(f"cov(): expected input to have two or fewer dimensions but got an input with {input.ndim} dimensions")
    if input.dtype is dtypes.bool:
        raise RuntimeError("cov(): bool dtype is not supported for input")
    x = input.unsqueeze(0) if input.ndim == 1 else input.reshape(1, 1) if not input.ndim else input
    _check_weights(x, fweights, "fweights", True)
    _check_weights(x, aweights, "aweights", False)
    w = fweights if aweights is None else aweights if fweights is None else fweights * aweights
    w = None if w is None else w.reshape(-1)
    total: Any = x.shape[1] if w is None else w.sum()
    if w is not None and not w.is_meta and w.numel() and float(total) == 0:
        raise RuntimeError("cov(): weights sum to zero, can't be normalized")
    mean = (x if w is None else x * w).sum(1, keepdim=True) / total
    if w is None or not correction or aweights is None:
        free = total - correction
    else:
        free = total - correction * (w * aweights.reshape(-1)).sum() / total
    if (free.detach().item() if isinstance(free, Tensor) and not free.is_meta else free if not isinstance(free, Tensor) else 1) <= 0:
        import warnings

        warnings.warn("cov(): degrees of freedom is <= 0. Correction should be less than the number of observations.", stacklevel=3)
        free = free.clamp(min=0) if isinstance(free, Tensor) else 0
    off = x - mean
    weighted = off if w is None else off * w
    return (mm(off, weighted.to(off.dtype).transpose(0, 1).conj()) / free).squeeze()


@composite(surface=FUNCTION | METHOD)
def corrcoef(input):
    """The correlation coefficients of variables, one a row, over observations, one a column.

    ``(n, observations) -> (n, n)``, ones on the diagonal.
    """
    if input.ndim > 2:
        raise RuntimeError(f"corrcoef(): expected input to have two or fewer dimensions but got an input with {input.ndim} dimensions")
    c = cov(input)
    if not c.ndim:
        return c / c
    variance = c.diagonal()
    deviation = (variance.real if variance.is_complex() else variance).sqrt()
    c = c / deviation.unsqueeze(1) / deviation.unsqueeze(0)
    if c.is_complex():
        return OPS["complex"].function(c.real.clamp(-1, 1), c.imag.clamp(-1, 1))
    return c.clamp(-1, 1)


# -- norms -----------------------------------------------------------------------------------------------------------------------


def _vector_norm(x: Tensor, p: Any, dim: Any, keepdim: bool, dtype: Any = None) -> Tensor:
    return OPS["linalg.vector_norm"].function(x, p, dim, keepdim, dtype=dtype)


@composite(surface=FUNCTION | METHOD | OUT)
def norm(input, p="fro", dim=None, keepdim=False, *, dtype=None):
    """The `p`-norm over `dim` (or of all elements), or the Frobenius ('fro') or nuclear ('nuc') norm of matrices.

    `linalg.vector_norm` and `linalg.matrix_norm` say which of the two they are.
    Raises: RuntimeError for integers, which have to be converted first.
    """
    if not input.dtype.category >= dtypes.FLOATING:
        raise RuntimeError(f"norm: Expected a floating point or complex tensor as input. Got {input.dtype}")
    dims = [dim] if isinstance(dim, int) else dim
    if p == "fro" and (dims is None or len(dims) <= 2):
        return _vector_norm(input, 2, dims, keepdim, dtype)
    if isinstance(p, str):
        if p not in ("fro", "nuc"):
            raise RuntimeError(f"norm: Order {p!r} not supported; there are 'fro', 'nuc' and numbers")
        dims = list(range(input.ndim)) if dims is None else dims
        if len(dims) != 2:
            raise RuntimeError(f"norm: dim must be a 2-tuple for p={p!r}. Got {dims}")
        return OPS["linalg.matrix_norm"].function(input, p, tuple(dims), keepdim, dtype=dtype)
    return _vector_norm(input, 2 if p is None else p, dims, keepdim, dtype)


@composite(surface=FUNCTION | METHOD)
def dist(input, other, p=2):
    """The `p`-norm of ``input - other``, which broadcast: a scalar."""
    return _vector_norm(input - other, p, None, False)


@composite(surface=FUNCTION | METHOD | INPLACE | OUT)
def renorm(input, p, dim, maxnorm):
    """`input` with each slice along `dim` scaled down to a `p`-norm of `maxnorm` where its norm is more.

    >>> fb.renorm(fb.tensor([[3.0, 4.0], [0.1, 0.1]]), p=2, dim=0, maxnorm=1)
    tensor([[0.6000, 0.8000],
            [0.1000, 0.1000]])
    """
    if isinstance(p, complex) or not p > 0:
        raise RuntimeError(f"renorm: non-positive-norm not supported, got p={p}")
    if input.ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions")
    if isinstance(maxnorm, complex) or not maxnorm >= 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    d = wrap_dim(dim, input.ndim)
    lengths = _vector_norm(input, p, [k for k in range(input.ndim) if k != d], True)
    # The small number keeps the quotient finite for slices of zeros.
    factor = OPS["where"].function(lengths > maxnorm, maxnorm / (lengths + 1e-7), 1.0)
    return input * factor.to(input.dtype)
