"""Programs that record no gradient as one native call on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels import hot_calls
from flambeau_kernels.engine.calls import launch_table
from flambeau_kernels.quiet import ignore_fp_flags, restore_fp_flags

from .. import _state
from ..tensor import Tensor, wrap
from ._launches import LaunchTable, Unknown, chain_in, python_step_in, step_in
from ._memory import Plan
from ._refs import tensors_in
from ._steps import Constant, Step

__all__ = ["ArrayRun", "StepOnArrays", "arguments_of"]

# Bytes that values of a program have, all of which are held while its table is made; and that nodes have saved, which the engine lets go
# of one after the other, and a written order of all at the end.
MOST_SAVED = 1 << 24
# Calls at which a step is made a table, or another one of what has become native in the meantime.
NOT_YET, NOT_HERE = "it has not been replayed often enough", "native code walks no tables here"
NO_LAUNCHES = "most of it is no launches"
TOO_LARGE = "values of more than 16 MB, beside which calls cost nothing"
TABULATED_AT = (4, 32, 256, 2048)


class ArrayRun:
    """A program that records no gradient, on arrays: one native call of a table. ``f(*inputs)`` gives its results, or None.

    Args:
        plan: of steps and fused chains.
        wanted: the numbers of its results.
    """

    def __init__(self, plan: Plan, wanted: list[int]) -> None:
        self.plan, self.wanted = plan, wanted
        self.calls = 0
        self.table: LaunchTable | None = None
        self.why = NOT_YET                            # there is none
        self.walk: Any = None
        self.generation = -1

    def builtin(self, inputs: list[Tensor]) -> Any:
        """What gives the arrays of results for those of inputs, and runs no Python; None where there is none, or not yet."""
        self._note_call(inputs)
        return self.walk if self.generation == hot_calls.generation and self.table is not None and not self.table.others else None

    def _note_call(self, inputs: Any) -> None:
        if self.calls < TABULATED_AT[-1]:
            self.calls += 1
            if self.calls in TABULATED_AT:
                self._tabulate([x._array for x in inputs])

    def __call__(self, *inputs: Tensor) -> Any:
        """The results, or None: then nothing has been done."""
        self._note_call(inputs)
        if self.generation != hot_calls.generation or _state.MARKING:
            return None
        found = self.walk(*[x._array for x in inputs])
        return None if found is None else [wrap(a) for a in found]

    def _tabulate(self, arrays: list[Any]) -> None:
        if not launch_table.available() or self.plan.total > MOST_SAVED:
            self.why = TOO_LARGE if launch_table.available() else NOT_HERE
            return
        quiet = ignore_fp_flags()
        try:
            table, results = self._table(arrays)
        except Unknown as error:
            self.why = str(error)
            return
        finally:
            restore_fp_flags(quiet)
        self.why = NO_LAUNCHES
        # An entry of Python takes longer than a line of the text does.
        if table.native <= 2 * len(table.others) or self.table is not None and len(table.others) >= len(self.table.others):
            return
        for k, made in enumerate(results):            # what shares memory is a view, which has to know of what
            if made.base is not None or any(np.may_share_memory(made, other) for other in (*arrays, *results[:k])):
                self.why = "a result is a view"
                return
        self.table, self.walk, self.generation = table, table.finish(results), hot_calls.generation

    def _table(self, arrays: list[Any]) -> tuple[LaunchTable, list[Any]]:
        table = LaunchTable(arrays)
        known: dict[int, Any] = {-1 - at: a for at, a in enumerate(arrays)}
        for part, _, _, spare in self.plan.parts:
            if part.__class__ is not Step:
                known.update(zip(part.values, chain_in(table, part, known, spare), strict=True))
                continue
            made = step_in(table, part, known.__getitem__)
            if made is None:
                made = python_step_in(table, part, known.__getitem__, StepOnArrays(part))
            if part.several is None:
                known[part.first] = made
            else:
                known.update({part.first + k: table.item(made, k) for k in range(len(made))})
        return table, [known[number] for number in self.wanted]


class StepOnArrays:
    """A step on arrays by its operation."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.places = {ref: k for k, ref in reversed([*enumerate(tensors_in(step.refs))])}

    def __call__(self, *arrays: Any) -> Any:
        tensors = [wrap(a) for a in arrays]
        values = {ref: tensors[k] for ref, k in self.places.items()}
        made = self.step.op.enter(*arguments_of(self.step, values, None))
        return made._array if self.step.several is None else tuple([one._array for one in made])


def arguments_of(step: Step, values: dict[int, Any], inputs: Any) -> list[Any]:
    """The arguments of a step; without `inputs` these are among `values`."""

    def of(ref: Any) -> Any:
        if ref.__class__ is int:
            return values[ref] if inputs is None or ref >= 0 else inputs[-1 - ref]
        return ref.value if ref.__class__ is Constant else type(ref)([of(r) for r in ref])

    return [of(ref) for ref in step.refs]
