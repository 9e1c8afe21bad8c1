"""Chains together with the reductions, softmaxes and normalizations before and after them: one kernel, row by row.

What stands here decides which operations those are, and gives the results their histories, which are the ones of the operations. The
kernel and why it has the bits of the operations are in `flambeau_kernels.cpu.row_programs`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from flambeau_kernels.cpu import tier
from flambeau_kernels.cpu.row_programs import Grid, Map, RowProgram, Total, grid_of

from .. import _state
from .._arrays import MetaArray, is_c_contiguous
from .._inference import is_inference
from .._settings import get_num_threads
from ..ops._spec.in_rows import InRows
from ..tensor import Tensor, wrap
from ._backward import History
from ._formulas import FUSED_DTYPES, Number
from ._refs import GroupFormula, decoded, read_by, tensors_in
from ._steps import Constant, Step

LARGER_THAN = 4096                                    # elements; with as many or fewer, operations have kernels of another order
ALONE_UP_TO = 65536                                   # elements that may be fewer pieces than there are threads


class Looks(NamedTuple):
    """What all rows of a program have in common."""

    shape: tuple[int, ...]
    dtype: Any
    across: int                                       # dimensions of a row, the last ones


class Rows:
    """Operations that one kernel computes row by row.

    Args:
        items: groups of elementwise steps, and steps that have a stage, in order.
        looks: of the rows.
        asked: values that are asked for outside.
    Raises: ValueError where no kernel can be made of them.
    """

    def __init__(self, items: list[Any], looks: Looks, asked: set[int]) -> None:
        self.items, self.looks = items, looks
        self.steps = tuple([step for item in items for step in (item if isinstance(item, list) else [item])])
        made = {step.first for step in self.steps}
        self.itemsize = looks.dtype.itemsize
        self.histories: dict[int, History] = {}       # by item
        arrays = {step.first for step in self.steps if step.first in asked}
        arrays |= {item.first for item in items if isinstance(item, Step) and _ends_rows(item)}
        for at in range(len(items) - 1, -1, -1):      # what later ones save, earlier ones have to give
            item = items[at]
            if isinstance(item, Step):
                arrays |= _saved(item) & made
            elif any(step.results[0].requires_grad for step in item):
                history = self.histories[at] = History(item, tuple([step.first for step in item if step.first in arrays]))
                arrays |= (history.read & made) - set(history.places)
        self.arrays = arrays
        self._write(arrays)

    def _write(self, arrays: set[int]) -> None:
        places: dict[Any, str] = {}
        stages: list[Any] = []
        texts: list[str] = []
        kept: list[Any] = []
        self.operands: tuple[Any, ...] = ()
        made: set[int] = set()
        self.moments: dict[int, tuple[Any, ...]] = {}
        self.hows: dict[int, Any] = {}

        def place(ref: Any, where: str) -> Any:
            if ref not in made:
                places.setdefault(ref, where)
            return ref

        for at, item in enumerate(self.items):
            if isinstance(item, list):
                history = self.histories.get(at)
                extra = history.kept if history is not None else ()
                later = {v for other in self.items[at + 1 :] for v in _reads(other)}
                results = tuple([s.first for s in item if s.first in arrays or s.first in later or s.first in extra])
                found = GroupFormula(item, results)
                wheres = {ref: where_in(look, self.looks) for step in item for look, ref in zip(step.looks, step.refs, strict=True)
                          if isinstance(look, Tensor)}  # fmt: skip
                names = tuple([
                    place(ref, "number") if ref.__class__ is Number else place(ref, wheres[ref] or "") for ref in found.operands
                ])  # fmt: skip
                stages.append(Map(found.formula, names, results))
                texts.append(found.text)
                kept += [v for v in results if v in arrays or v in extra]
                made.update(results)
            else:
                how = self.hows[at] = item.op.in_rows(*item.looks)
                params = dict(zip(item.op.params, item.refs, strict=True))
                moments = self.moments[at] = tuple([("moment", item.first, i) for i in range(how.moments)])
                for name in how.columns:
                    place(params[name], "column")
                place(item.refs[0], "full")
                stages.append(how.stage(params.__getitem__, item.first, moments))
                texts.append(f"# {item.op.public_name} of rows")
                kept += [v for v in (item.first, *moments) if v in arrays or v.__class__ is tuple and item.results[0].requires_grad]
                made.add(item.first)
        self.operands = tuple(places)
        grid = self._grid(stages)
        dtype = np.dtype(self.looks.dtype)
        self.program = RowProgram(dtype, stages, places, set(dict.fromkeys(kept)), grid)
        self.values = tuple([step.first for step in self.steps if step.first in arrays])
        self.title = "_".join(["rows", *dict.fromkeys(step.op.name for step in self.steps)])[:60]
        self.text = "\n".join(texts)

    def _grid(self, stages: list[Any]) -> Grid:
        looks = self.looks
        size, length = math.prod(looks.shape), math.prod(looks.shape[len(looks.shape) - looks.across :])
        grid = Grid(size // length, length, 1, length)
        totals = [stage for stage in stages if isinstance(stage, Total)]
        if totals:                                    # where there are spreads as well, these have said that rows are not cut
            ndim = len(looks.shape)
            cut = grid_of(looks.shape, tuple(range(ndim - looks.across, ndim)), np.dtype(looks.dtype))
            names = {total.to for total in totals}
            inside = any(name in names for stage in stages if isinstance(stage, Map) for name in stage.of)
            if cut is None or cut.pieces > 1 and (inside or not all(isinstance(stage, (Map, Total)) for stage in stages)):
                raise ValueError("a reduction that is cut in pieces goes with formulas before it alone")
            grid = cut
        if grid.rows * grid.pieces < get_num_threads() and size > ALONE_UP_TO:
            raise ValueError("threads would have nothing to share")
        return grid

    writes_over = False                               # an operand may be read again when a part of the result is there

    def prepare(self) -> None:
        """Compile the kernel."""
        self.program.prepare()

    def run(self, operands: list[Any]) -> list[Tensor]:
        """The values that are asked for; `operands` are tensors and numbers."""
        known: dict[Any, Any] = dict(zip(self.operands, operands, strict=True))
        if self.histories and _state.MARKED and any(isinstance(a, Tensor) and is_inference(a) for a in operands):
            return self._one_by_one(known)            # one of the operations says what it may not save
        found = self.program([a._array if isinstance(a, Tensor) else a for a in operands])
        shape = self.looks.shape
        for at, item in enumerate(self.items):
            if isinstance(item, Step):
                self._finish(at, item, found, known)
                continue
            made = {step.first: wrap(found[step.first].reshape(shape)) for step in item if step.first in self.arrays}
            history = self.histories.get(at)
            nodes: Any = [None] * len(item)
            if history is not None:
                kept = {value: found[value].reshape(shape) for value in history.kept}
                nodes = history.record(known, made, kept)
            for step, node in zip(item, nodes, strict=True):
                known[step.first] = made[step.first] if step.first in made else self._stand_in(node)
        return [known[value] for value in self.values]

    def launch_in(self, table: Any, given: list[Any]) -> Any:
        """The values that are asked for as entries of a `LaunchTable`, where no gradient is recorded; or None."""
        if self.histories or any(step.results[0].requires_grad for step in self.steps):
            return None
        found = self.program.launch_in(table, given, {step.first: step.results[0]._array.shape for step in self.steps})
        return None if found is None else [found[value] for value in self.values]

    def _finish(self, at: int, step: Step, found: dict[Any, Any], known: dict[Any, Any]) -> None:
        """The result of a step that has a stage."""
        look = step.results[0]._array
        args = [decoded(ref, known, _Refs(known)) for ref in step.refs]
        # What only the next stage reads has a history, and no memory.
        made = found[step.first].reshape(look.shape) if step.first in found else self._stand_in(None)._array
        moments = tuple([found[name].reshape(-1, 1) for name in self.moments[at] if name in found])
        how = self.hows[at]
        if len(moments) != how.moments:
            how = InRows(how.axes, how.stage, how.columns, how.moments)
        result = step.op.of_rows(args, made, moments, how)
        if result._node is not None:
            result._node.where = step.where
        known[step.first] = result

    def _stand_in(self, node: Any) -> Tensor:
        """A tensor without memory, for what only the next stage reads."""
        return wrap(MetaArray(self.looks.shape, np.dtype(self.looks.dtype)), node)

    def _one_by_one(self, known: dict[Any, Any]) -> list[Tensor]:
        for step in self.steps:
            known[step.first] = step.op.enter(*[decoded(ref, known, _Refs(known)) for ref in step.refs])
        return [known[value] for value in self.values]

    def saved(self) -> int:
        """The elements of all results that are not written to memory."""
        full = math.prod(self.looks.shape)
        return full * sum(step.results[0]._array.size == full and step.first not in self.arrays for step in self.steps)


class _Refs:
    """Inputs by the numbers that `decoded` asks with."""

    def __init__(self, known: dict[Any, Any]) -> None:
        self.known = known

    def __getitem__(self, at: int) -> Any:
        return self.known[-1 - at]


def _ends_rows(step: Step) -> bool:
    """Whether the result is no rows, but a number of each."""
    return step.results[0]._array.size != step.looks[0]._array.size


def _saved(step: Step) -> set[int]:
    """The values that the derivative of a step reads."""
    if not step.results[0].requires_grad:
        return set()
    op = step.op
    found = {ref for name, ref in zip(op.params, step.refs, strict=True) if name in op.saved_names and ref.__class__ is int}
    return found | ({step.first} if "out" in op.saved_names else set())


def _reads(item: Any) -> list[int]:
    """The values that a group or step reads."""
    return [v for step in item for v in read_by(step.refs)] if isinstance(item, list) else read_by(item.refs)


def where_in(look: Tensor, looks: Looks) -> str | None:
    """Where the elements of an operand are beside the rows, as `RowProgram` says it; None if nowhere that it knows."""
    array, shape, ndim = look._array, looks.shape, len(looks.shape)
    if look.dtype.numpy != looks.dtype or not is_c_contiguous(array):
        return None
    own = (1,) * (ndim - array.ndim) + array.shape
    at = ndim - looks.across
    if own == shape:
        return "full"
    if array.size == 1:
        return "one"
    if own[at:] == shape[at:] and math.prod(own[:at]) == 1:
        return "column"
    if own[:at] == shape[:at] and math.prod(own[at:]) == 1:
        return "row"
    return None


def _looks_of(step: Any) -> Looks | None:
    """The rows that a step works on; None if it has no stage."""
    op = step.op
    if op.in_rows is None or not tier.compiles() or step.several is not None or step.refs[0].__class__ is not int:
        return None
    look = step.looks[0]
    array = look._array
    if array.size <= LARGER_THAN or not is_c_contiguous(array) or look.dtype not in FUSED_DTYPES:
        return None
    how = op.in_rows(*step.looks)
    if how is None or not how.axes or sorted(how.axes) != list(range(array.ndim - len(how.axes), array.ndim)):
        return None
    given = dict(zip(op.params, step.looks, strict=True))
    if not all(is_c_contiguous(given[name]._array) for name in how.columns):
        return None
    return Looks(array.shape, look.dtype.numpy, len(how.axes))


def joined(items: list[Any], wanted: frozenset[int]) -> list[Any]:
    """`items`, groups and steps in order, with `Rows` in the place of what one kernel can do."""
    readers: dict[int, int] = {}
    for item in items:
        for value in _reads(item):
            readers[value] = readers.get(value, 0) + 1
    found: list[Any] = []
    at = 0
    while at < len(items):
        end, looks = _run_from(items, at)
        rows = None
        while rows is None and looks is not None and end - at > 1:
            run = items[at:end]
            if all(isinstance(item, list) for item in run):
                break
            rows = _rows(run, looks, readers, wanted)
            end -= rows is None
        if rows is None:
            found.append(items[at])
            at += 1
        else:
            found.append(rows)
            at = end
    return found


def _rows(run: list[Any], looks: Looks, readers: dict[int, int], wanted: frozenset[int]) -> Rows | None:
    within: dict[int, int] = {}
    for item in run:
        for value in _reads(item):
            within[value] = within.get(value, 0) + 1
    steps = [step for item in run for step in (item if isinstance(item, list) else [item])]
    asked = {s.first for s in steps if s.first in wanted or readers.get(s.first, 0) > within.get(s.first, 0)}
    try:
        rows = Rows(run, looks, asked)
    except ValueError:                                # rows are too long, or too few
        return None
    return rows if rows.saved() else None


def _run_from(items: list[Any], at: int) -> tuple[int, Looks | None]:
    """Where the items end that one kernel could do, from `at` on, and the looks of their rows."""
    looks = next((found for item in items[at : at + 2] if isinstance(item, Step) and (found := _looks_of(item))), None)
    if looks is None:
        return at + 1, None
    made: set[int] = set()
    end = at
    while end < len(items):
        item = items[end]
        if isinstance(item, list):
            fits = _group_fits(item, looks)
        else:
            fits = _looks_of(item) == looks and not set(tensors_in(item.refs[1:])) & made
        if not fits or made and not made.intersection(_reads(item)):
            break
        made |= {step.first for step in (item if isinstance(item, list) else [item])}
        end += 1
    return end, looks


def _group_fits(group: list[Step], looks: Looks) -> bool:
    own = {step.first for step in group}
    for step in group:
        if step.results[0]._array.shape != looks.shape or step.results[0].dtype.numpy != looks.dtype:
            return False
        for look, ref in zip(step.looks, step.refs, strict=True):
            if isinstance(look, Tensor):
                if ref not in own and where_in(look, looks) is None:
                    return False
            elif ref.__class__ is not Constant:
                return False
    return True
