"""Which memory a program needs at a time: values are dropped when their last reader has run, and chains write into operands that end there.

Nothing seen from outside is overwritten. Only values that the program has made itself and that nobody asks for are candidates; when a
chain is about to run, the counts of references say whether the array is held by anything else, a view or a node of the history perhaps.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, NamedTuple

import numpy as np

from .._arrays import ndarray
from ..tensor import wrap
from ._refs import read_by
from ._steps import Step

__all__ = ["Plan", "Planned", "is_ours_alone"]


class Planned(NamedTuple):
    """A part of a program, the numbers of its values, those that end with it, and the places of operands that it may write to."""

    part: Any
    numbers: Any
    ends: tuple[int, ...]
    spare: tuple[int, ...]


class Plan:
    """The parts of a program in order, see `Planned`.

    `peak` is the most bytes that its values have at a time, `total` what they have together. Views have none.
    """

    def __init__(self, parts: list[Any], wanted: frozenset[int]) -> None:
        last: dict[int, int] = {}
        for at, part in enumerate(parts):
            for number in [*_numbers_of(part), *_read_by(part)]:
                last[number] = at
        sizes: dict[int, int] = {}                    # of what owns memory
        owners: dict[int, int | None] = {}            # whose memory it is, None for an input's
        held: dict[int, set[int]] = {}                # by owner: the values that keep its memory
        self.parts: list[Planned] = []
        self.peak = self.total = now = 0
        for at, part in enumerate(parts):
            numbers = _numbers_of(part)
            ends = tuple([n for n in dict.fromkeys([*_read_by(part), *numbers]) if last[n] == at and n not in wanted])
            spare = tuple([
                k for k, ref in enumerate(part.operands)
                if ref.__class__ is int and ref in ends and ref not in numbers and owners.get(ref) == ref and held[ref] == {ref}
            ]) if part.__class__ is not Step and part.writes_over else ()  # fmt: skip
            over = sum(sizes[part.operands[k]] for k in spare[: len(numbers)])
            for number, look in zip(numbers, _looks_of(part), strict=True):
                owner = owners[number] = _viewed(part, owners) if part.__class__ is Step else number
                if owner is None:
                    continue                          # a view of an input
                if owner == number:
                    sizes[number] = look._array.nbytes
                    self.total += sizes[number]
                    now += sizes[number]
                held.setdefault(owner, set()).add(number)
            self.peak = max(self.peak, now - over)
            for number in ends:
                owner = owners[number]
                if owner is not None:
                    held[owner].discard(number)
                    if not held[owner]:
                        now -= sizes[owner]
            self.parts.append(Planned(part, numbers, ends, spare))


def _numbers_of(part: Any) -> Any:
    return range(part.first, part.first + len(part.results)) if part.__class__ is Step else part.values


def _read_by(part: Any) -> list[int]:
    return read_by(part.refs) if part.__class__ is Step else [ref for ref in part.operands if ref.__class__ is int and ref >= 0]


def _looks_of(part: Any) -> Any:
    if part.__class__ is Step:
        return part.results
    metas = {step.first: step.results[0] for step in part.steps}
    return [metas[value] for value in part.values]


def _viewed(step: Step, owners: dict[int, int | None]) -> int | None:
    """What owns the memory of a step's result: itself, or what it is a view of; None for an input."""
    if step.op.kind != "view" and not step.op.shares_memory or step.refs[0].__class__ is not int:
        return step.first
    return owners[step.refs[0]] if step.refs[0] >= 0 else None


def is_ours_alone(operands: list[Any], k: int) -> bool:
    """Whether nothing but this list, and its caller's name for it, refers to operand `k` and its memory."""
    if operands[k]._array.__class__ is not ndarray or _references(operands, k) != _references_of_one():
        return False
    flags = operands[k]._array.flags
    return bool(flags.owndata and flags.writeable)


@functools.cache
def _references_of_one() -> tuple[int, int]:
    return _references([wrap(np.empty(1))], 0)


def _references(operands: list[Any], k: int) -> tuple[int, int]:
    """To a tensor and its array, counted in one way, which versions of Python do differently."""
    return sys.getrefcount(operands[k]), sys.getrefcount(operands[k]._array)
