"""What a recorded path is made into: its operations one after the other, with chains of them fused, or a graph for a backend.

Fused kernels have the bits of the operations they stand for. An elementwise operation whose operands, arithmetic and result are of
one floating dtype rounds after every word of its formula, and so does the formula of a chain: it calls theirs one after the other, on
the same numbers. Half types are computed with in float32, and results of operations are rounded to them by words of the chain's formula.
Operations that convert between dtypes, or choose their formula by numbers, are not fused.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels import engines
from flambeau_kernels.formula import Formula

from .. import _state
from .._arrays import is_c_contiguous
from .._inference import is_inference
from ..dtypes import bool as bool_
from ..tensor import Tensor, wrap
from . import _products, _rows
from ._array_runs import ArrayRun
from ._background import Kernel, stand_in
from ._backward import History, formula_of, has_gradients
from ._deferred import become
from ._formulas import FUSED_DTYPES, Number, looks_first, widens
from ._memory import Plan, is_ours_alone
from ._recorder import RECORDED_FROM
from ._refs import GroupFormula, decoded, read_by
from ._rows import Rows
from ._steps import Constant, Step

FUSED_FROM = RECORDED_FROM                                    # elements of a chain
# Bytes that need not be written to memory and read again; with fewer, recording a call costs more than a chain saves.
WORTH = 1 << 20
FUSED_AFTER = 2                                       # calls of a path, for a kernel takes some 20 ms to compile
_MOST_FUSED = 32                                      # operations of a chain, and half as many operands


class Launch:
    """A formula on operands of always the same looks, `looks`; its `count` results are contiguous and of `look`.

    What runs it is found once, when it is prepared.
    """

    __slots__ = ("formula", "looks", "look", "count", "strides", "numbers", "run_planned", "engine")

    def __init__(self, formula: Formula, looks: tuple[Any, ...], look: Any, count: int) -> None:
        self.formula, self.looks, self.look, self.count = formula, looks, look, count
        self.strides = [(k, x._array.strides) for k, x in enumerate(looks) if isinstance(x, Tensor)]
        # Where operands are numbers, the arrays of them.
        self.numbers = [(k, np.asarray(x.value)) for k, x in enumerate(looks) if isinstance(x, Number)]
        self.run_planned: Any = None
        self.engine: Any = None

    def prepare(self) -> None:
        """Compile the kernel."""
        outs = (stand_in(self.look),) * self.count
        found = kernels.planned(self.formula, tuple([stand_in(look) for look in self.looks]), outs, outs[0].dtype)
        self.run_planned, self.engine = found, engines.chosen()

    def is_planned_for(self, operands: list[Any]) -> bool:
        """Whether `run_planned` takes these arrays and numbers."""
        if self.run_planned is None or self.engine is not engines.chosen():
            return False
        return not [k for k, strides in self.strides if operands[k].strides != strides]

    def run(self, operands: list[Any], outs: tuple[Any, ...]) -> None:
        """Compute `outs` of arrays and numbers."""
        if not self.is_planned_for(operands):
            kernels.launch(self.formula, tuple(operands), outs, outs[0].dtype)
            return
        for k, number in self.numbers:
            operands[k] = number
        self.run_planned(*operands, *outs)


class Chain(NamedTuple):
    """Some elementwise operations as one: a formula, its operands, and the values that are asked for.

    Where gradients are recorded, `history` has what the formula gives beside them.
    """

    formula: Formula
    operands: tuple[Any, ...]
    values: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: Any
    steps: tuple[Step, ...]
    history: History | None
    text: str
    looks: tuple[Any, ...]                            # of the operands: tensors of the same looks, and numbers
    launch: Launch

    def prepare(self) -> None:
        """Compile the kernel."""
        self.launch.prepare()

    @property
    def writes_over(self) -> bool:
        """Whether results may take the places of operands: where nothing is saved."""
        return self.history is None

    def run(self, operands: list[Any], spare: tuple[int, ...] = ()) -> list[Tensor]:
        """The values that are asked for; `operands` are tensors and numbers.

        Those at the places `spare` are needed by nobody else, unless the counts of references say so, and may be written over.
        """
        history = self.history
        if history is not None and _state.MARKED and any(isinstance(a, Tensor) and is_inference(a) for a in operands):
            return self._one_by_one(operands)         # one of the operations says what it may not save
        kept = () if history is None else history.kept
        count = len(self.values) + len(kept)
        over = [a for k in spare[:count] if (a := self._over(operands, k)) is not None] if spare else ()
        outs = (*over, *[np.empty(self.shape, self.dtype) for _ in range(count - len(over))])
        self.launch.run([a._array if isinstance(a, Tensor) else a for a in operands], outs)
        results = [wrap(out) for out in outs[: len(self.values)]]
        if history is not None:
            tensors = {ref: a for ref, a in zip(self.operands, operands, strict=True) if ref.__class__ is int}
            history.record(tensors, dict(zip(self.values, results, strict=True)), dict(zip(kept, outs[len(results) :], strict=True)))
        return results

    def _over(self, operands: list[Any], k: int) -> Any:
        """The array of an operand, if results may be written there."""
        if not is_ours_alone(operands, k):
            return None
        array = operands[k]._array
        return array if array.shape == self.shape and array.dtype == self.dtype and array.flags.c_contiguous else None

    def _one_by_one(self, operands: list[Any]) -> list[Tensor]:
        known = {ref: a for ref, a in zip(self.operands, operands, strict=True) if ref.__class__ is int}
        for step in self.steps:
            known[step.first] = step.op.enter(*[known[ref] if ref.__class__ is int else ref.value for ref in step.refs])
        return [known[value] for value in self.values]

    def saved(self) -> int:
        """The elements of all results that are not written to memory."""
        return (len(self.steps) - len(self.values)) * math.prod(self.shape)

    @property
    def title(self) -> str:
        return self.formula.name

    @property
    def itemsize(self) -> int:
        return np.dtype(self.dtype).itemsize

    @property
    def histories(self) -> dict[int, History]:
        return {} if self.history is None else {0: self.history}


class Program:
    """Computes the values `wanted` of a path by its own operations.

    Args:
        fuse: compute chains of elementwise operations by one kernel, and nothing that no result needs.
        records_all: the path may have operations that can fail, or draw: these are computed in any case.
    """

    def __init__(self, step: Step, wanted: tuple[int, ...], fuse: bool, records_all: bool = False) -> None:
        self.steps = step.path()
        self.count = step.first + len(step.results)
        self.wanted = frozenset(wanted)
        self.calls = 0
        self.seconds = 0.0                            # of the last call that was timed
        self.fuses = fuse
        if fuse:
            self.steps = _needed(self.steps, self.wanted, records_all)
        self._first: Plan | None = None               # of the operations, while kernels of chains are not there
        self._final: Plan | None = None
        self._run: ArrayRun | None = None
        self.generation = -1                          # of the builtin that `natively` has given, see `hot_calls.generation`

    # What is fused is looked for when it is asked for: shapes that are met once need not know.

    @functools.cached_property
    def fused(self) -> list[Any] | None:
        """The steps with chains in the place of some; None where chains are not worth it."""
        if not self.fuses:
            return None
        fused = _chained(self.steps, self.wanted)
        return fused if sum(part.saved() * part.itemsize for part in fused if not isinstance(part, Step)) >= WORTH else None

    @functools.cached_property
    def chains(self) -> list[Chain | Rows]:
        """The parts that are kernels."""
        return [part for part in self.fused or () if not isinstance(part, Step)]

    @functools.cached_property
    def kernels(self) -> list[Kernel]:
        """The kernels of `chains`."""
        return [Kernel(chain.prepare) for chain in self.chains]

    @functools.cached_property
    def spared(self) -> int:
        """The bytes that need not be written to memory and read again."""
        return sum(chain.saved() * chain.itemsize for chain in self.chains)

    @functools.cached_property
    def loose(self) -> int:
        """How many operations are recorded and join no kernel, but for views."""
        return sum(isinstance(part, Step) and part.op.kind != "view" for part in self.fused or self.steps)

    def may_fuse(self) -> bool:
        """Whether results that chains need not write could be worth it, by their sizes alone."""
        if not self.fuses:
            return False
        between = [step for step in self.steps if step.op.kind != "view" and step.first not in self.wanted]
        return sum(result._array.nbytes for step in between for result in step.results) >= WORTH

    def parts(self) -> list[Any]:
        """What is computed one after the other: steps and chains."""
        return self.fused if self.calls > FUSED_AFTER and self.fused is not None and self.chains and self.ready() else self.steps

    def plan(self) -> Plan:
        """The parts that are computed, and what ends with each of them."""
        if self._final is not None:
            return self._final
        parts = self.parts()
        waits = parts is self.steps and (self.calls <= FUSED_AFTER or bool(self.chains))
        if self._first is None or parts is not self.steps:
            found = Plan(parts, self.wanted)
            if waits:
                self._first = found
            else:
                self._final = found
            return found
        if not waits:
            self._final = self._first
        return self._first

    def is_final(self) -> bool:
        """Whether chains run as kernels, if there are any."""
        return self._final is not None

    def natively(self, inputs: list[Tensor]) -> Any:
        """The builtin that gives arrays of the values asked for, in order, for those of inputs; None where there is none, or not yet."""
        if self._final is None or self._records:
            return None
        if self._run is None:
            self._run = ArrayRun(self._final, sorted(self.wanted))
        found = self._run.builtin(inputs)
        self.generation = self._run.generation
        return found

    @functools.cached_property
    def _records(self) -> bool:
        """Whether some result has a history, or there is none, or memory is written to."""
        return not self.wanted or any(step.stores or any(result.requires_grad for result in step.results) for step in self.steps)

    @property
    def bytes_at_most(self) -> int:
        """What values take at a time."""
        return self.plan().peak

    def ready(self) -> bool:
        """Whether kernels of chains are compiled; they are going to be."""
        return not [kernel for kernel in self.kernels if not kernel.ready()]

    def __call__(self, inputs: list[Tensor], made: dict[int, Any]) -> None:
        """Compute; the Deferreds `made`, by number, become tensors."""
        self.calls += 1
        values: list[Any] = [None] * self.count
        for part, numbers, ends, spare in (self._final or self.plan()).parts:
            if part.__class__ is not Step:
                operands = [
                    ref.value if ref.__class__ is not int else inputs[-1 - ref] if ref < 0 else values[ref] for ref in part.operands
                ]
                if spare:
                    for number in ends:
                        values[number] = None
                    results: Any = part.run(operands, spare)
                else:
                    results = part.run(operands)
                operands = None
            elif part.stores:
                part.op.enter_inplace(*[decoded(ref, values, inputs) for ref in part.refs])
                results = ()
            else:
                results = part.op.enter(*[decoded(ref, values, inputs) for ref in part.refs])
                if part.several is None:
                    results = (results,)
            for number, one in zip(numbers, results, strict=True):
                deferred = made.get(number)
                if deferred is not None:
                    become(deferred, one)
                values[number] = one if deferred is None else deferred
            results = one = deferred = None
            for number in ends:
                values[number] = None


def _needed(steps: list[Step], wanted: frozenset[int], may_fail: bool) -> list[Step]:
    """Those of `steps` that results need; with `may_fail` also operations whose values decide whether they raise, or that draw."""
    asked, kept = set(wanted), []
    for step in reversed(steps):
        is_due = may_fail and (step.op.kind not in ("elementwise", "view") or step.op.fails_by_elements(step.looks))
        if is_due or step.stores or any(step.first + i in asked for i in range(len(step.results))):
            kept.append(step)
            asked.update(read_by(step.refs))
    return kept[::-1]


def _chained(steps: list[Step], wanted: frozenset[int]) -> list[Any]:
    """`steps` with chains, and rows, in the place of what fuses."""
    readers: dict[int, int] = {}
    for step in steps:
        for value in read_by(step.refs):
            readers[value] = readers.get(value, 0) + 1
    parts: list[Any] = []
    for run in _between_stores(steps):
        if run[0].stores:
            parts += run
            continue
        own = {step.first for step in run}
        read_elsewhere = {value for step in steps if step.first not in own or step.stores for value in read_by(step.refs)}
        asked = wanted | read_elsewhere
        for item in _products.joined(_rows.joined(_grouped(run, asked), asked), asked):
            if isinstance(item, list):
                parts.extend([_chain(item, readers, asked)] if len(item) > 1 else item)
            else:
                parts.append(item)
    return parts


def _between_stores(steps: list[Step]) -> list[list[Step]]:
    """`steps` divided into those that write to memory, each alone, and what lies between them: nothing moves from before one behind it."""
    runs: list[list[Step]] = []
    for step in steps:
        if not runs or step.stores or runs[-1][0].stores:
            runs.append([])
        runs[-1].append(step)
    return runs


def _grouped(steps: list[Step], wanted: frozenset[int]) -> list[Any]:
    """`steps` with lists of those that one formula can compute."""
    items: list[Any] = []
    group: list[Step] = []
    costly: set[int] = set()                          # values of the group that take more than arithmetic to compute
    readers: dict[int, set[int]] = {value: {-1} for value in wanted}  # by value: the first values of steps that read it, -1 for the caller
    for step in steps:
        for value in read_by(step.refs):
            readers.setdefault(value, set()).add(step.first)

    def close() -> None:
        items.extend(_with_own_truths(group, readers))
        group.clear()
        costly.clear()

    for step in steps:
        if _fuses(step):
            formula, of = formula_of(step)[0], set(read_by(step.refs))
            twice = not costly.isdisjoint(of) and looks_first(formula, "float64" if _computes_in(step).itemsize == 8 else "float32")
            if group and (twice or _looks(group[0]) != _looks(step) or len(group) >= _MOST_FUSED or not _go_together(group, step)):
                close()
            group.append(step)
            if not formula.exact or not costly.isdisjoint(of):
                costly.add(step.first)
        else:
            # What arrives at a node from several others is added in their order, which a chain between them would change.
            if {s.first for s in group}.intersection(read_by(step.refs)) or _followed(step) & set().union(*map(_followed, group)):
                close()
            items.append(step)
    close()
    return items


def _with_own_truths(group: list[Step], readers: dict[int, set[int]]) -> list[Any]:
    """The group, divided at those of its truth values that others read too: chains give numbers of one dtype."""
    own = {step.first for step in group}
    for at, step in enumerate(group):
        if step.results[0].dtype is bool_ and not readers.get(step.first, {-1}) <= own:
            return [*_with_own_truths(group[:at], readers), step, *_with_own_truths(group[at + 1 :], readers)]
    return [group[:]] if group else []


def _go_together(group: list[Step], step: Step) -> bool:
    """Whether `step` may be in a chain with `group`: one that reads truth values, or gives them, keeps nothing for a derivative."""
    return not (_has_truths(step) and _has_gradients(group) or any(map(_has_truths, group)) and _has_gradients([step]))


def _has_truths(step: Step) -> bool:
    return any(a.dtype is bool_ for a in (*step.looks, step.results[0]) if isinstance(a, Tensor))


def _has_gradients(steps: list[Step]) -> bool:
    return any(step.results[0].requires_grad for step in steps)


def _followed(step: Step) -> set[int]:
    """The values and inputs that gradients go to from `step`."""
    if not any(result.requires_grad for result in step.results):
        return set()
    found: set[int] = set()

    def look(a: Any, ref: Any) -> None:
        if ref.__class__ is int:
            if a.requires_grad:
                found.add(ref)
        elif ref.__class__ is not Constant:
            for x, r in zip(a, ref, strict=True):
                look(x, r)

    for a, ref in zip(step.looks, step.refs, strict=True):
        look(a, ref)
    return found


def _looks(step: Step) -> Any:
    return step.results[0]._array.shape, _computes_in(step)


def _computes_in(step: Step) -> Any:
    """The dtype of the result, or of the numbers whose comparison it is."""
    made = step.results[0].dtype
    return next((a.dtype for a in step.looks if isinstance(a, Tensor)), made) if made is bool_ else made


def _fuses(step: Step) -> bool:
    """Whether the operation is a formula whose operands, arithmetic and result are of one dtype, over enough elements.

    The result may be truth values, and so may operands be where no gradient is recorded.
    """
    op, made, dtype = step.op, step.results[0], _computes_in(step)
    if op.of_elements is not None:
        if made.requires_grad or dtype.itemsize == 2:  # to which numbers among its arguments are rounded once
            return False
    elif op.kind != "elementwise" or "run" in op.__dict__ or "launch" in op.__dict__:
        return False
    if made._array.size < FUSED_FROM or dtype not in FUSED_DTYPES or not is_c_contiguous(made._array):
        return False
    is_truth = made.dtype is bool_
    for a in step.looks:
        if not isinstance(a, Tensor):
            if not _fits(a):
                return False
        elif a.dtype is not dtype and (a.dtype is not bool_ or is_truth or made.requires_grad):
            return False
    if op.kind == "elementwise":
        compute, result = op.dtype_rule(op, step.looks[: len(op.positional)])
        if compute is not dtype or result is not made.dtype:
            return False
    if dtype.itemsize == 2 and widens(formula_of(step)[0]):
        return False
    return not made.requires_grad or has_gradients(step)


def _fits(number: Any) -> bool:
    return number.__class__ is float or number.__class__ is int and abs(number) < 2**53


def _chain(group: list[Step], readers: dict[int, int], wanted: frozenset[int]) -> Chain:
    """The steps of `group` as one formula."""
    within: dict[int, int] = {}
    for step in group:
        for value in read_by(step.refs):
            within[value] = within.get(value, 0) + 1
    values = tuple([step.first for step in group if step.first in wanted or readers.get(step.first, 0) > within.get(step.first, 0)])
    history = History(group, values) if any(step.results[0].requires_grad for step in group) else None
    made = GroupFormula(group, (*values, *(history.kept if history is not None else ())))
    looks = group[-1].results[0]                      # of numbers: whoever reads a truth value comes behind it
    shape, dtype = looks._array.shape, np.dtype(looks.dtype.numpy)
    known = {ref: look for step in group for look, ref in zip(step.looks, step.refs, strict=True) if ref.__class__ is int}
    operands = tuple([known[ref] if ref.__class__ is int else ref for ref in made.operands])
    launch = Launch(made.formula, operands, looks, len(values) + len(history.kept if history is not None else ()))
    return Chain(made.formula, made.operands, values, shape, dtype, tuple(group), history, made.text, operands, launch)
