"""How ops run on pieces of their operands: which dimensions may be divided among processes, and what the results then are.

A rule lists ways. An op has it by its kind (elementwise: dimensions that broadcast; reductions; views: by strides), or its declaration
writes one: ``mm.pieces("ik,kj->ij")``. In such a text each operand, and after the arrow each result, has a sign for each dimension:

=============  ==========================================================================================================
a letter       a dimension that may be divided, in all that have the letter; where no result has it, these are parts of a sum
``_``          a dimension that stays whole, and ``*`` any number of them
``...``        any number of dimensions that broadcast from the right, each of which may be divided
``+``          in front of an operand: it is added, so where others give parts of a sum it has to be one of these parts
``?``          in place of an operand: its elements are not read, and it may lie in any way
=============  ==========================================================================================================

Ops that go along a dimension name its parameter: ``softmax_along.pieces(along="dim")``. What neither says, a function says.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ...tensor import Tensor

__all__ = [
    "DividedCall",
    "Place",
    "Way",
    "along",
    "batches_of",
    "everywhere",
    "grouped",
    "of_function",
    "of_text",
    "subsets",
    "view_ways",
]

# The dimension that is divided; None: the whole; "sum", "avg", "min", "max" or "product": parts that this makes the value of; "any": of an
# operand that is not read.
Place = int | str | None


class Way(NamedTuple):
    """A way to run on pieces: where each tensor among the operands lies, and each result."""

    operands: tuple[Place, ...]
    results: tuple[Place, ...]


class DividedCall:
    """A call that a rule is asked about. Tensors are looked at by shape and dtype alone; lists of them count one by one.

    Attributes:
        named: the arguments by parameter.
        operands: the tensors among them, in the order of parameters.
        results: what the call gives, on meta.
        count: of pieces.
    """

    def __init__(self, op: Any, args: tuple[Any, ...], results: Sequence[Any], count: int) -> None:
        self.op, self.args, self.results, self.count = op, args, tuple(results), count
        self.named = dict(zip(op.params, args, strict=True))
        self.operands: list[Any] = [x for _, x in self._tensors()]
        self.names = [name for name, _ in self._tensors()]

    def _tensors(self) -> Iterator[tuple[str, Any]]:
        for name, value in self.named.items():
            for x in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(x, Tensor):
                    yield name, x

    def __getitem__(self, name: str) -> Any:
        return self.named[name]

    def dims(self, name: str) -> tuple[int, ...]:
        """The dimensions of the first operand that the parameter `name` gives, counted from the front; all where it gives none."""
        given, ndim = self.named[name], self.operands[0].ndim
        if given is None or isinstance(given, (list, tuple)) and not given:
            return tuple(range(ndim))
        return (
            tuple([d % ndim for d in (given if isinstance(given, (list, tuple)) else (given,))])
            if ndim
            else ()
        )

    def replicated(self) -> Way:
        return self.way({})

    def way(self, operands: dict[int, Place], result: Place = None) -> Way:
        """The way of `operands` by their number, the others whole, and all results alike."""
        return Way(tuple([operands.get(i) for i in range(len(self.operands))]), (result,) * len(self.results))

    def pieces_are_full(self, size: int) -> bool:
        """Whether no piece of a dimension of `size` is empty."""
        return size > (self.count - 1) * math.ceil(size / self.count)


Rule = Callable[[DividedCall], list[Way]]


# -- texts -----------------------------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    signs: tuple[str, ...]
    added: bool

    def labels(self, ndim: int) -> tuple[Any, ...] | None:
        """A label for each of `ndim` dimensions, None for what stays whole; None if there are not so many."""
        if self.signs == ("?",):
            return (None,) * ndim
        many = next((i for i, s in enumerate(self.signs) if s in ("*", "...")), None)
        extra = ndim - len(self.signs) + (many is not None)
        if extra < 0 or many is None and extra:
            return None
        found: list[Any] = []
        for sign in self.signs:
            if sign == "...":
                found += [("...", extra - i) for i in range(extra)]
            elif sign == "*":
                found += [None] * extra
            else:
                found.append(None if sign == "_" else sign)
        return tuple(found)


def _part(text: str) -> _Part:
    signs = tuple(re.findall(r"\.\.\.|[a-z_*?]", text))
    if "".join(signs) != text.lstrip("+"):
        raise ValueError(f"pieces: {text!r} has other signs than letters, '_', '*', '...', '?' and a '+' in front")
    return _Part(signs, text.startswith("+"))


@functools.lru_cache(1024)
def of_text(text: str) -> Rule:
    """The rule that `text` writes; operands are the op's tensor parameters in order, also those not given; of a composition those given."""
    left, _, right = text.partition("->")
    before, after = [_part(t.strip()) for t in left.split(",")], [_part(t.strip()) for t in right.split(",")]

    def rule(asked: DividedCall) -> list[Way]:
        named = dict.fromkeys((*getattr(asked.op, "tensor_params", ()), *asked.names))
        by_name = dict(zip(named, before, strict=False))
        parts = [by_name[name] for name in asked.names]
        found = [part.labels(x.ndim) for part, x in zip(parts, asked.operands, strict=True)]
        made = [part.labels(x.ndim) for part, x in zip(after, asked.results, strict=False)]
        if None in found or None in made or len(made) != len(asked.results):
            return [asked.replicated()]
        ways = [*_by_labels(asked, parts, found, made), *_linear(asked)]
        free = {i for i, part in enumerate(parts) if part.signs == ("?",)}
        return [Way(tuple(["any" if i in free else p for i, p in enumerate(w.operands)]), w.results) for w in ways] if free else ways

    return rule


def _by_labels(asked: DividedCall, parts: Any, found: Any, made: Any) -> Iterator[Way]:
    for label in dict.fromkeys(x for labels in (*found, *made) for x in labels if x is not None):
        sizes = {
            x.shape[labels.index(label)]
            for x, labels in zip(asked.operands, found, strict=True)
            if label in labels
        }
        summed = not any(label in labels for labels in made)
        if isinstance(label, tuple):  # where others have one element, they broadcast
            sizes.discard(1)
        if len(sizes) != 1:
            continue
        operands: list[Place] = []
        for part, x, labels in zip(parts, asked.operands, found, strict=True):
            there = label in labels and x.shape[labels.index(label)] != 1
            operands.append(labels.index(label) if there else "sum" if summed and part.added else None)
        if any(isinstance(p, int) for p in operands):
            yield Way(
                tuple(operands),
                tuple(
                    ["sum" if summed else labels.index(label) if label in labels else None for labels in made]
                ),
            )
    yield asked.replicated()


def _linear(asked: DividedCall) -> Iterator[Way]:
    """Ways of parts of a sum: an op that is linear in an operand gives them for these."""
    linear = getattr(asked.op, "linear_in", ())
    if len(asked.results) == 1 and linear and all(name in linear for name in asked.names):
        for i in range(len(asked.operands)):
            yield asked.way({i: "sum"}, "sum")


def of_function(fn: Callable[[DividedCall], Any]) -> Rule:
    """The rule that asks `fn`, which gives ways or a text."""

    def rule(asked: DividedCall) -> list[Way]:
        found = fn(asked)
        return of_text(found)(asked) if isinstance(found, str) else [asked.replicated(), *found]

    return rule


def batches_of(count: int, operands: int, results: int) -> str:
    """The text of ops whose last `count` dimensions are whole, in all operands and results, and whose other ones are alike."""
    part = "..." + "_" * count
    return f"{','.join([part] * operands)}->{','.join([part] * results)}"


# -- along dimensions --------------------------------------------------------------------------------------------------------


def along(name: str) -> Rule:
    """The rule of ops that go along the dimensions that the parameter `name` gives, of operands with equally many: divided along others.

    Results have these dimensions, or lack them.
    """

    def rule(asked: DividedCall) -> list[Way]:
        first, dims = asked.operands[0], asked.dims(name)
        ways = [asked.replicated(), *_linear(asked)]
        for d in range(first.ndim):
            if d in dims or any(x.ndim != first.ndim or x.shape[d] != first.shape[d] for x in asked.operands):
                continue
            places = tuple(
                [d if r.ndim == first.ndim else d - sum(x < d for x in dims) for r in asked.results]
            )
            ways.append(Way((d,) * len(asked.operands), places))
        return ways

    return rule


# -- elementwise -------------------------------------------------------------------------------------------------------------


def everywhere(asked: DividedCall) -> list[Way]:
    """The ways of ops whose results depend element by element on operands that broadcast."""
    ways = [asked.replicated()]
    shape = tuple(asked.results[0].shape) if asked.results else ()
    for dim in range(len(shape)):
        operands: list[Place] = []
        for x in asked.operands:
            own = dim - (len(shape) - x.ndim)
            operands.append(own if own >= 0 and x.shape[own] != 1 else None)
        if shape[dim] != 1 and any(p is not None for p in operands):
            ways.append(Way(tuple(operands), (dim,) * len(asked.results)))
    return ways


# -- views -------------------------------------------------------------------------------------------------------------------


def view_ways(asked: DividedCall) -> list[Way]:
    """The ways of a view: a dimension may be divided that is one of the result, with the same elements and the same step."""
    source = asked.operands[0]
    ways = [asked.replicated(), asked.way({0: "sum"}, "sum")]
    if asked.op.sized_by:
        return ways + [
            asked.way({0: d}, to) for d, to in grouped(source.shape, asked.results[0].shape, asked.count)
        ]
    shape = tuple(source.shape)
    made = _on_meta(asked, shape)
    steps = _steps(shape)
    for d, size in enumerate(shape):
        if size == 1 or not made:
            continue
        places = [_place_of(x, size, steps[d]) for x in made]
        if None in places or len(set(places)) != 1:
            continue
        piece = math.ceil(size / asked.count)
        smaller = [_on_meta(asked, (*shape[:d], n, *shape[d + 1 :])) for n in {piece, size % piece} - {0}]
        if all(views is not None and all(x.shape[places[0]] in (piece, size % piece) for x in views) for views in smaller):
            ways.append(asked.way({0: d}, places[0]))
    return ways


def _on_meta(asked: DividedCall, shape: tuple[int, ...]) -> list[Any] | None:
    """The views of a row-major meta tensor of `shape`; None if there is none with the other arguments."""
    import flambeau as fb

    source, op = fb.empty(shape, dtype=asked.operands[0].dtype, device="meta"), asked.op
    args = asked.args if op.for_pieces is None else op.for_pieces(*asked.args)
    try:
        made = op.run(source, *args[1:])
    except (IndexError, RuntimeError, ValueError):  # such as a stretch that reaches beyond the piece
        return None
    return list(made) if isinstance(made, (list, tuple)) else [made]


def _steps(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[d + 1 :]) for d in range(len(shape))]


def _place_of(view: Any, size: int, step: int) -> int | None:
    return next(
        (
            i
            for i, (n, s) in enumerate(zip(view.shape, view.stride(), strict=True))
            if n == size and s == step
        ),
        None,
    )


def grouped(before: Sequence[int], after: Sequence[int], count: int) -> Iterator[tuple[int, int]]:
    """Of a tensor that takes another shape, or is expanded: pairs of dimensions that may be divided into `count` equal pieces alike."""
    if math.prod(before) != math.prod(after):  # expanded
        more = len(after) - len(before)
        yield from ((d, d + more) for d, n in enumerate(before) if n != 1)
        return
    for d, to in _runs(before, after):
        if before[d] == after[to] or before[d] % count == 0 == after[to] % count:
            yield d, to


def _runs(before: Sequence[int], after: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The first dimensions of the shortest runs of equal size in both."""
    i = j = 0
    while i < len(before) and j < len(after):
        if before[i] == 1 or after[j] == 1:  # belongs to no run
            i, j = i + (before[i] == 1), j + (before[i] != 1)
            continue
        begin = i, j
        a, b = before[i], after[j]
        i, j = i + 1, j + 1
        while a != b and (i < len(before) or j < len(after)):
            if a < b and i < len(before):
                a, i = a * before[i], i + 1
            elif j < len(after):
                b, j = b * after[j], j + 1
            else:
                break
        if a == b:
            yield begin


def subsets(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The subsets that are not empty."""
    return itertools.chain.from_iterable(itertools.combinations(names, n) for n in range(1, len(names) + 1))
