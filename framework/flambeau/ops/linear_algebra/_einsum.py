"""How an equation of `einsum` is computed: by a route of matrix and elementwise products that is worked out once, or term by term."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...tensor import Tensor
from .products import bmm, dot, mm, mv, products


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


def _product_of(a: _Term, b: _Term, needed: set[Any], wanted: list[Any]) -> _Term:
    """The two terms multiplied, with what neither the result nor later terms need summed away."""
    alone = {x for x in (*a.labels, *b.labels) if a.size(x) == b.size(x) == 1}
    columns_of = [x for x in b.labels if x not in a.labels and x in needed]
    if _come_first(columns_of, [x for x in a.labels if x not in b.labels and x in needed], wanted, alone):
        a, b = b, a
    a = a.summed([x for x in a.labels if x not in needed and b.size(x) == 1])
    b = b.summed([x for x in b.labels if x not in needed and a.size(x) == 1])
    both = [x for x in a.labels if x in b.labels]
    rows = [x for x in a.labels if x not in both]
    columns = [x for x in b.labels if x not in both]
    inner = [x for x in both if x not in needed]
    batch, rows, columns = (_as_in(wanted, group) for group in ([x for x in both if x in needed], rows, columns))
    sizes = {x: max(a.size(x), b.size(x)) if 0 not in (a.size(x), b.size(x)) else 0 for x in (*a.labels, *b.labels)}
    labels = [*batch, *rows, *columns]
    if not inner:
        return _Term(a.arranged([batch, rows, columns]) * b.arranged([batch, rows, columns]), labels)
    if a.tensor.dtype is not b.tensor.dtype:
        raise RuntimeError(f"einsum(): expected scalar type {a.tensor.dtype} but found {b.tensor.dtype}; convert one with .to()")
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


class _Factors(NamedTuple):
    """An elementwise product of two terms: how their dimensions are ordered, and which of the result each has."""

    left: tuple[int, ...] | None
    right: tuple[int, ...] | None
    in_left: tuple[bool, ...]
    in_right: tuple[bool, ...]


class _Route(NamedTuple):
    labels: tuple[tuple[Any, ...], ...]
    steps: tuple[_Step | _Factors, ...]
    last: tuple[int, ...] | None


def _order(labels: Any, wanted: Any) -> tuple[int, ...] | None:
    order = tuple(labels.index(x) for x in wanted)
    return None if order == tuple(range(len(order))) else order


@functools.lru_cache(512)
def _route(equation: str, ndims: tuple[int, ...], ones: frozenset[tuple[int, int]] = frozenset()) -> _Route | None:
    """How an equation is computed by matrix products alone, if it is: every label of a term is in the result or in one other.

    Args:
        ones: the operands' dimensions of size 1, which have no say in the order of memory: pairs of operand and dimension.
    """
    try:
        terms, output, _ = _read_arguments(equation, ndims)
        widest = _expand_ellipsis(terms, [_Dims(n) for n in ndims])
        wanted = _output_labels(output, terms, widest)
    except (RuntimeError, ValueError):                # raised again where the operands are known
        return None
    if any(len(set(labels)) != len(labels) for labels in terms):
        return None
    alone = {terms[i][d] for i, d in ones}
    a, steps = terms[0], []
    for i, b in enumerate(terms[1:], 1):
        needed = {*wanted, *(x for later in terms[i + 1 :] for x in later)}
        both = [x for x in a if x in b]
        batch, inner = [x for x in both if x in needed], [x for x in both if x not in needed]
        rows, columns = [x for x in a if x not in both], [x for x in b if x not in both]
        if not needed.issuperset((*rows, *columns)):
            return None
        batch, rows, columns = (_as_in(wanted, group) for group in (batch, rows, columns))
        if not inner:
            order = [*batch, *rows, *columns]
            last = i == len(terms) - 1 and [x for x in wanted if x in order]
            order = last if last and len(last) == len(order) else order
            in_left, in_right = (tuple(x in t for x in order) for t in (a, b))
            steps.append(_Factors(_order(a, [x for x in order if x in a]), _order(b, [x for x in order if x in b]), in_left, in_right))
            a = order
            continue
        turned = _come_first(columns, rows, wanted, alone)
        first, second, rows, columns = (b, a, columns, rows) if turned else (a, b, rows, columns)
        counts = (len(batch), len(rows), len(inner), len(columns))
        steps.append(_Step(_order(first, [*batch, *rows, *inner]), _order(second, [*batch, *inner, *columns]), counts, turned))
        a = [*batch, *rows, *columns]
    return _Route(tuple(map(tuple, terms)), tuple(steps), _order(a, wanted))


def _as_in(wanted: list[Any], labels: list[Any]) -> list[Any]:
    """`labels` in the order that those of the result have, the others behind them."""
    return sorted(labels, key=lambda x: wanted.index(x) if x in wanted else len(wanted))


def _come_first(labels: list[Any], others: list[Any], wanted: list[Any], alone: set[Any]) -> bool:
    """Whether all `labels` of the result come before the `others`, where those `alone` do not count: then theirs is the slower memory."""
    first, second = ([wanted.index(x) for x in group if x in wanted and x not in alone] for group in (labels, others))
    return bool(first) and bool(second) and max(first) < min(second)


class _Dims(NamedTuple):
    ndim: int


def _by_route(equation: str, operands: Any) -> Tensor | None:
    """The result by the route of the equation; None for operands or sizes that it does not fit."""
    for t in operands:
        if not isinstance(t, Tensor) or t.dtype is not operands[0].dtype:
            return None
    shapes = [t.shape for t in operands]
    ones = [(i, d) for i, shape in enumerate(shapes) if 1 in shape for d, n in enumerate(shape) if n == 1]
    route = _route(equation, tuple(map(len, shapes)), frozenset(ones)) if ones else _route(equation, tuple(map(len, shapes)))
    if route is None:
        return None
    sizes: dict[Any, int] = {}
    for t, labels in zip(operands, route.labels, strict=True):
        for label, n in zip(labels, t.shape, strict=True):
            if sizes.setdefault(label, n) != n:
                return None
    made = operands[0]
    for step, other in zip(route.steps, operands[1:], strict=True):
        if isinstance(step, _Factors):
            made = _spread_out(made, step.left, step.in_left) * _spread_out(other, step.right, step.in_right)
            continue
        a, b = (other, made) if step.turned else (made, other)
        a = a if step.left is None else a.permute(step.left)
        b = b if step.right is None else b.permute(step.right)
        made = _matrices_product(a, b, step.counts)
    return made if route.last is None else made.permute(route.last)


def _spread_out(x: Tensor, order: tuple[int, ...] | None, there: tuple[bool, ...]) -> Tensor:
    """`x` with its dimensions in this order, and of size 1 where it has none."""
    x = x if order is None else x.permute(order)
    if all(there):
        return x
    sizes = iter(x.shape)
    return x.reshape([next(sizes) if own else 1 for own in there])


class _Look(NamedTuple):
    """What an equation does to one term: the diagonals it takes, the dimensions it adds up, and the order of the others."""

    diagonals: tuple[tuple[int, int], ...]
    dropped: list[int]
    order: tuple[int, ...] | None


@functools.lru_cache(512)
def _look(equation: str, ndim: int) -> _Look | None:
    try:
        terms, output, _ = _read_arguments(equation, (ndim,))
        wanted = _output_labels(output, terms, _expand_ellipsis(terms, [_Dims(ndim)]))
    except (RuntimeError, ValueError):                # raised again where the operand is known
        return None
    labels, diagonals = terms[0], []
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:                 # the diagonal of two dimensions comes last
            first = labels.index(label)
            second = labels.index(label, first + 1)
            diagonals.append((first, second))
            labels = [*labels[:first], *labels[first + 1 : second], *labels[second + 1 :], label]
    dropped = [i for i, x in enumerate(labels) if x not in wanted]
    return _Look(tuple(diagonals), dropped, _order([x for x in labels if x in wanted], wanted))


def _of_one(equation: str, operands: Any) -> Tensor | None:
    """The result for one operand; None for one that it does not fit."""
    x = operands[0] if operands else None
    if not isinstance(x, Tensor):
        return None
    look = _look(equation, x.ndim)
    if look is None:
        return None
    for first, second in look.diagonals:
        if x.shape[first] != x.shape[second]:
            return None
        x = x.diagonal(0, first, second)
    if look.dropped:
        x = x.sum(look.dropped)
    return x if look.order is None and x is not operands[0] else x.permute(look.order or list(range(x.ndim)))


def _matrices_product(a: Tensor, b: Tensor, counts: tuple[int, int, int, int]) -> Tensor:
    """Batch, rows and inner dimensions of `a` times batch, inner dimensions and columns of `b`."""
    batch, rows, inner, columns = counts
    if not batch and inner == 1 and columns == 0 and rows <= 1:
        return mv(a, b) if rows else dot(a, b)
    shape, split = tuple(a.shape), batch + rows
    result = (*shape[:split], *b.shape[batch + inner :])
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


def evaluate(equation: Any, operands: Any) -> Tensor:
    """The result of `einsum`."""
    if not operands:
        raise ValueError(
            "einsum(): must specify the equation string and at least one operand, or at least one operand and its subscripts list"
        )
    if isinstance(equation, str):
        made = (_by_route if len(operands) > 1 else _of_one)(equation, operands)
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
        made = _product_of(made, part, {*wanted, *(x for later in parts[i + 1 :] for x in later.labels)}, wanted)
    dropped = [made.labels.index(x) for x in made.labels if x not in wanted]
    if dropped:  # the sum of integers is int64 here, as that of `sum`
        made = _Term(made.tensor.sum(dropped), [x for x in made.labels if x in wanted])
    return made.tensor.permute([made.labels.index(x) for x in wanted])
