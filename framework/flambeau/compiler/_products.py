"""Products together with the chains behind them: the formula is applied to blocks of the product while they are in the cache.

What stands here decides which these are. How a product and a formula are computed in one pass, with the bits of two, an op says itself
(`Op.finished_by`). It is so where nothing is saved for a derivative.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels.cpu import tier
from flambeau_kernels.cpu.products import matmul

from .._arrays import is_c_contiguous
from ..tensor import Tensor, wrap
from ._refs import GroupFormula, read_by
from ._steps import Step

__all__ = ["Finished", "joined"]

FINISHED_FROM = 1 << 23                               # bytes of a product; less stays in caches until the chain reads it
WIDE = 1024                                           # columns from which formulas of exp and its like run as fast in pieces of rows


class Finished:
    """A product and the chain behind it.

    Args:
        product: a step whose op has `finished_by`.
        group: elementwise steps, of which one reads the product.
        value: what is asked for, the number of one of them.
    Raises: ValueError where the formula reads more than the product and one array beside it, or is faster in a pass of its own.
    """

    writes_over = False
    histories: Any = {}  # never written

    def __init__(self, product: Step, group: list[Step], value: int) -> None:
        made = GroupFormula(group, (value,), product.first)
        if len(made.operands) > 2 or any(ref.__class__ is not int for ref in made.operands):
            raise ValueError("more than an array beside the product")
        if not made.formula.exact and product.results[0]._array.shape[-1] < WIDE:
            raise ValueError("rows are short for a costly formula")
        self.product, self.formula = product, made.formula
        self.steps, self.values = (product, *group), (value,)
        self.beside = made.operands[1] if len(made.operands) > 1 else None
        self.operands = (*product.refs, *made.operands[1:])
        look = product.results[0]
        self.shape, self.dtype = look._array.shape, np.dtype(look.dtype.numpy)
        self.itemsize = self.dtype.itemsize
        self.title = "_".join([product.op.name, *dict.fromkeys(step.op.name for step in group)])[:60]
        self.text = f"# {product.op.public_name}, and of its elements\n{made.text}"

    def prepare(self) -> None:
        """Compile the formula's loop."""
        matmul.prepare_then(self.formula, self.dtype, self.beside is not None)

    def run(self, operands: list[Any]) -> list[Tensor]:
        """The value that is asked for; `operands` are tensors and constants."""
        given = [a._array if isinstance(a, Tensor) else a for a in operands]
        beside = None
        if self.beside is not None:
            beside = np.broadcast_to(given.pop(), self.shape)
        made = self.product.op.finished_by(*given, self.formula, beside)
        if made is None:
            made = self.product.op.enter(*operands[: len(given)])._array
            inputs = (made,) if beside is None else (made, beside)
            out = np.empty(self.shape, self.dtype)
            kernels.launch(self.formula, inputs, (out,), self.dtype)
            made = out
        return [wrap(made)]

    def saved(self) -> int:
        """The elements of all results that are not written to memory."""
        return (len(self.steps) - 1) * math.prod(self.shape)


def joined(items: list[Any], wanted: frozenset[int]) -> list[Any]:
    """`items`, groups and steps in order, with a `Finished` in the place of a product and the group that alone reads it."""
    readers: dict[int, set[int]] = {}
    for at, item in enumerate(items):
        for value in _reads(item):
            readers.setdefault(value, set()).add(at)
    found = list(items)
    for at, item in enumerate(items):
        if not isinstance(item, Step) or not _is_product(item) or item.first in wanted or len(readers.get(item.first, ())) != 1:
            continue
        (place,) = readers[item.first]
        group = found[place]
        if not isinstance(group, list) or not _fits(group, item):
            continue
        own = {step.first for step in group}
        asked = [v for v in own if v in wanted or readers.get(v, set()) - {place}]
        if len(asked) != 1:
            continue
        try:
            found[place] = Finished(item, group, asked[0])
        except ValueError:
            continue
        found[at] = None
    return [item for item in found if item is not None]


def _is_product(step: Step) -> bool:
    """Whether the step is a product that is computed faster together with what follows."""
    if step.op.finished_by is None or not tier.compiles() or step.several is not None:
        return False
    made = step.results[0]
    if made.dtype.numpy not in (np.float32, np.float64) or made.requires_grad or not is_c_contiguous(made._array):
        return False
    return made._array.nbytes >= FINISHED_FROM


def _fits(group: list[Step], product: Step) -> bool:
    """Whether what the group reads beside the product lies row by row, or is one row for all, and nothing is saved."""
    look = product.results[0]
    shape, own = look._array.shape, {step.first for step in group}
    for step in group:
        if step.results[0].requires_grad or step.results[0]._array.shape != shape or step.results[0].dtype is not look.dtype:
            return False
        for operand, ref in zip(step.looks, step.refs, strict=True):
            if isinstance(operand, Tensor) and ref not in own and ref != product.first:
                array = operand._array
                if operand.dtype is not look.dtype or not is_c_contiguous(array) or array.shape != shape and array.shape != shape[-1:]:
                    return False
    return True


def _reads(item: Any) -> list[int]:
    """The values that a group, a step or a fused part reads."""
    if isinstance(item, list):
        return [v for step in item for v in read_by(step.refs)]
    return read_by(item.refs) if isinstance(item, Step) else [v for step in item.steps for v in read_by(step.refs)]
