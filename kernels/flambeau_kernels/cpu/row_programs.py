"""Several operations on the rows of a matrix as one kernel: formulas, sums and extremes, softmax, normalizations.

A program is a list of stages. Each reads and makes values, which are whole rows or one number a row, and a chunk takes its rows through
all of them while they are in the nearest cache. Values that nobody asks for are never written to memory.

The bits are those of the operations one after the other, by construction: stages are the functions that the operations' own kernels
call for a row (`block_of`, `spread_of_row`, `softmax_row`, `normalize_row`), on the same numbers, and chunks are cut where theirs are, or
between rows.
Reductions that leave the order of their sums to LLVM have no stage (`Total.takes`).
"""

from __future__ import annotations

import functools
import itertools
import linecache
from typing import Any, NamedTuple

import numpy as np

from flambeau_kernels.engine.language import Kernel, float32, float64, independent, local, rolled
from flambeau_kernels.formula import Formula
from flambeau_kernels.vocabulary import round_to_bfloat16, round_to_float16

from . import tier
from .norm.rows import normalize_row
from .reductions._folds import fold
from .reductions.reduce import Reduction, magnitude
from .reductions.reduce_loops import (
    BLOCK,
    GRAIN,
    ON_VECTORS,
    block_of,
    finished,
    identity_of,
    joined,
    pieces_of_rows,
)
from .reductions.softmax_loops import softmax_row
from .reductions.variance_loops import GRAIN as GRAIN_OF_SPREADS
from .reductions.variance_loops import IN_VECTORS_FROM, spread_of_row

__all__ = ["LONGEST", "Grid", "Map", "Normal", "RowProgram", "Shares", "Spread", "Total", "grid_of", "is_one_spread"]

CHUNK = 32768  # elements of a chunk of rows: about 20 microseconds
LONGEST = 4096  # elements of a row of which there is a copy on the stack
MOST_COPIES = 4

ndarray = np.ndarray


# What rounds the numbers of a row that are in a half type when they are stored.
_ROUNDS = {"float16": round_to_float16, "bfloat16": round_to_bfloat16}


class Map(NamedTuple):
    """A formula of the values and operands `of`, row by row; it makes `to`. `of` has names, and numbers for themselves."""

    formula: Formula
    of: tuple[Any, ...]
    to: tuple[Any, ...]


class Total(NamedTuple):
    """A reduction of the row `of` to one number a row, `to`."""

    how: Reduction
    of: Any
    to: Any

    @staticmethod
    def takes(how: Reduction, dtype: np.dtype) -> bool:
        """Whether the order of its sums is written down, for elements of `dtype`."""
        if dtype.char not in "fd" and dtype.name not in _ROUNDS:
            return False
        if how.combine == "add":
            return how.term in ON_VECTORS
        return how.combine in ("max", "min") and how.term in (None, magnitude)


class Spread(NamedTuple):
    """The variance of the row `of` with ``count - correction`` for the count, or its root: one number a row, `to`."""

    correction: float
    root: bool
    of: Any
    to: Any


class Shares(NamedTuple):
    """softmax of the row `of`, or with `logs` log_softmax: the row `to`."""

    logs: bool
    of: Any
    to: Any


class Normal(NamedTuple):
    """The row `of` normalized, less its mean if `centred`, times the operand `weight` and plus `bias`, if they are not None: `to`.

    Three numbers a row are found beside it: `moments` names mean, variance and ``1 / sqrt(variance + eps)``.
    """

    centred: bool
    eps: float
    weight: Any
    bias: Any
    of: Any
    to: Any
    moments: tuple[Any, Any, Any]


class Grid(NamedTuple):
    """`rows` rows of `length` elements, each in `pieces` pieces of `per_piece` elements."""

    rows: int
    length: int
    pieces: int
    per_piece: int


class _Layout(NamedTuple):
    """What `fold` looks at of an array in C order."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    ndim: int


def is_one_spread(shape: tuple[int, ...], axes: tuple[int, ...], dtype: np.dtype) -> bool:
    """Whether variances of arrays in C order over their last dimensions are found by rows, each in one piece."""
    grid = grid_of(shape, axes, dtype, GRAIN_OF_SPREADS)
    return grid is not None and grid.pieces == 1 and grid.length >= IN_VECTORS_FROM


def grid_of(shape: tuple[int, ...], axes: tuple[int, ...], dtype: np.dtype, grain: int = GRAIN) -> Grid | None:
    """How a reduction of arrays in C order over their last dimensions is cut; None for other dimensions."""
    ndim = len(shape)
    if not axes or sorted(axes) != list(range(ndim - len(axes), ndim)) or not tier.compiles() or 0 in shape:
        return None
    strides, step = [], dtype.itemsize
    for n in reversed(shape):
        strides.insert(0, step)
        step *= n
    layout: Any = _Layout(shape, tuple(strides), dtype.itemsize, ndim)
    found = fold(layout, axes, False, grain)
    if found is None or found.copied is not None or found.cut.loop != "rows":
        return None
    _, _, pieces, runs, per_run, _, _, _, r0, r1, _ = found.cut.numbers
    if r0 != 1 or runs != 1:
        return None
    length = r1
    rows = functools.reduce(lambda a, b: a * b, shape, 1) // length
    return Grid(rows, length, pieces, per_run if pieces > 1 else length)


_serial = itertools.count()


class RowProgram:
    """Stages as one kernel, for arrays of one dtype on one grid.

    Args:
        dtype: float32 or float64, or a half type, of which rows are stored so and computed with in float32.
        stages: in order.
        places: for each operand, where its elements are: 'full' for those of the grid, 'column' for one row that all have in common,
            'row' for one number a row, 'one' for one element, 'number' for a number of Python.
        kept: values that become arrays.
        grid: where the program runs.
    Raises: ValueError where rows are too long for the copies that the stages need.
    """

    def __init__(self, dtype: np.dtype, stages: list[Any], places: dict[Any, str], kept: set[Any], grid: Grid) -> None:
        self.dtype, self.grid = dtype, grid
        self.operands, self.kept = list(places), [*kept]
        self.full = {v for stage in stages for v in _rows_made(stage)}
        writing = _Writing(dtype, stages, places, self.kept, grid)
        self.text = writing.text
        types = tuple([float if places[name] == "number" else dtype for name in self.operands])
        self.totals = {stage.to: stage.how for stage in stages if isinstance(stage, Total)} if grid.pieces > 1 else {}
        outs = tuple([np.dtype(np.float64) if name in self.totals and self._wide(name) else dtype for name in self.kept])
        self.out_dtypes = outs
        self._kernel = Kernel(writing.function, False)
        self._form: Any = None                        # compiled in the first call
        self._types, self._constants = (*types, *outs, int, int, int, int, int, int), writing.constants
        per = max(1, CHUNK // grid.per_piece)
        self.items = grid.rows * grid.pieces
        self.numbers = (self.items, per, grid.length, grid.pieces, grid.per_piece, grid.length)
        self.chunks = -(-self.items // per)

    def _wide(self, name: Any) -> bool:
        """Whether totals of pieces are added in float64."""
        return self.totals[name].combine == "add"

    def prepare(self) -> None:
        """Compile the kernel, if it is not yet."""
        if self._form is None:
            self._form = self._kernel.form(self._types, self._constants)

    def __call__(self, operands: list[Any]) -> dict[Any, ndarray]:
        """The values that are kept, by name: arrays ``(rows, length)`` or ``(rows,)``. `operands` in the order of `places`."""
        grid = self.grid
        made = [
            np.empty((grid.rows, grid.length) if name in self.full else self.items, dtype)
            for name, dtype in zip(self.kept, self.out_dtypes, strict=True)
        ]
        self.prepare()
        self._form(self.chunks, True, *operands, *made, *self.numbers)
        found = dict(zip(self.kept, made, strict=True))
        for name, how in self.totals.items():
            found[name] = self._joined(found[name], how)
        return found

    def launch_in(self, table: Any, operands: list[Any], shapes: dict[Any, tuple[int, ...]]) -> dict[Any, ndarray] | None:
        """`__call__` as entries of a `LaunchTable`, for arrays of these `shapes`; None for values that have none there."""
        if not shapes.keys() >= set(self.kept):
            return None
        self.prepare()
        shape_of = {name: shapes[name] if name not in self.totals else (self.items,) for name in self.kept}
        made = [table.new(shape_of[name], dtype) for name, dtype in zip(self.kept, self.out_dtypes, strict=True)]
        if not table.run(self._form, self.chunks, True, *operands, *made, *self.numbers):
            return None
        found = dict(zip(self.kept, made, strict=True))
        for name, how in self.totals.items():
            parts, found[name] = found[name], table.new(shapes[name], self.dtype)
            table.run(self._join(parts, how), 1, False, parts, found[name], self.grid.rows, self.grid.pieces, self.grid.length)
        return found

    def _joined(self, parts: ndarray, how: Reduction) -> ndarray:
        grid, out = self.grid, np.empty(self.grid.rows, self.dtype)
        self._join(parts, how)(1, False, parts, out, grid.rows, grid.pieces, grid.length)
        return out

    def _join(self, parts: ndarray, how: Reduction) -> Any:
        """What puts the pieces of rows together."""
        return pieces_of_rows.form((parts.dtype, self.dtype, int, int, int), {"COMBINE": how.combine, "FINISH": how.finish})


def _rows_made(stage: Any) -> tuple[Any, ...]:
    """The values of a stage that are rows."""
    if isinstance(stage, Map):
        return stage.to
    return () if isinstance(stage, (Total, Spread)) else (stage.to,)


class _Writing:
    """The text of a program's kernel, while it is written."""

    def __init__(self, dtype: np.dtype, stages: list[Any], places: dict[Any, str], kept: list[Any], grid: Grid) -> None:
        self.stages, self.places, self.grid = stages, places, grid
        self.kind = float64 if dtype.itemsize == 8 else float32
        self.rounds = _ROUNDS.get(dtype.name)
        self.scope: dict[str, Any] = {
            "__name__": __name__, "block_of": block_of, "joined": joined, "finished": finished, "softmax_row": softmax_row,
            "normalize_row": normalize_row, "spread_of_row": spread_of_row, "float64": float64, "independent": independent,
            "rolled": rolled, "local": local,
        }  # fmt: skip
        if self.rounds is not None:
            self.scope[self.rounds.name] = self.rounds
        self.constants: dict[str, Any] = {
            "KIND": self.kind, "STORED": self.kind if self.rounds is None else dtype.name, "BLOCK": BLOCK, "PIECES": grid.pieces > 1,
            "BFLOAT16": dtype.name == "bfloat16",
        }  # fmt: skip
        self.given = {name: f"a{i}" for i, name in enumerate(places)}
        self.outs = {name: f"o{i}" for i, name in enumerate(kept)}
        self.last_read = {name: k for k, stage in enumerate(stages) for name in _read(stage)}
        self.pointers: dict[Any, str] = {}            # rows that lie in memory: what points at their beginning
        self.numbers: dict[Any, str] = {}             # one a row
        self.head: list[str] = []
        self.body: list[str] = []
        self.copies = 0                               # of whole rows
        self._operands()
        k = 0
        while k < len(stages):
            k = self._stage(k)
        if self.copies > MOST_COPIES or self.copies and grid.length > LONGEST:
            raise ValueError(f"rows of {grid.length} elements are too long for {self.copies} copies")
        parameters = ", ".join(["chunk", *self.given.values(), *self.outs.values(), "items", "per", "n", "pieces", "per_piece", "count"])
        lines = [
            f"def fused_rows({parameters}, *, {', '.join(self.constants)}):", *[f"    {line}" for line in self.head],
            "    for item in rolled(range(chunk * per, min(items, chunk * per + per))):",
            *[f"        {line}" for line in self.body],
        ]  # fmt: skip
        self.text = "\n".join(lines) + "\n"
        file = f"<flambeau rows {next(_serial)}>"
        linecache.cache[file] = (len(self.text), None, self.text.splitlines(True), file)
        exec(compile(self.text, file, "exec"), self.scope)  # the text is made of names of this class's own
        self.function = self.scope["fused_rows"]

    def _operands(self) -> None:
        put = self.body.append
        if self.grid.pieces > 1:
            put("row, at0 = item // pieces, (item % pieces) * per_piece")
            put("size = min(per_piece, n - at0)")
        else:
            put("row, at0, size = item, 0, n")
        for name, place in self.places.items():
            a = self.given[name]
            if place == "full":
                put(f"x{a} = {a} + (row * n + at0)")
                self.pointers[name] = f"x{a}"
            elif place == "column":
                put(f"x{a} = {a} + at0")
                self.pointers[name] = f"x{a}"
            else:
                put(f"x{a} = {a}[row]" if place == "row" else f"x{a} = KIND({a}[0])" if place == "one" else f"x{a} = KIND({a})")
                self.numbers[name] = f"x{a}"

    def _row(self, name: Any, block: bool = False) -> str:
        """What points at a row that a stage writes: its array, or a copy on the stack; of a `block` alone if that is enough."""
        if name in self.outs:
            o = self.outs[name]
            self.body.append(f"y{o} = {o} + (row * n + at0)")
            self.pointers[name] = f"y{o}"
        else:
            copy = f"b{len(self.head)}"
            self.head.append(f"{copy} = local(STORED, {'BLOCK' if block else LONGEST})")
            self.copies += not block
            self.pointers[name] = copy
        return self.pointers[name]

    def _stage(self, k: int) -> int:
        """Write stage `k`, and the reductions after it that read it, block by block. Returns: the number of the next stage."""
        stage = self.stages[k]
        if isinstance(stage, Map):
            end = k + 1
            while end < len(self.stages) and isinstance(self.stages[end], Total) and self.stages[end].of in stage.to:
                end += 1
            self._map(stage, k, self.stages[k + 1 : end], end)
            return end
        if isinstance(stage, Total):
            self._blocks([stage], None, lambda total: self.pointers[total.of] + " + at")
        elif isinstance(stage, Spread):
            self.body += [
                f"free{k} = max(float64(count) - {float(stage.correction)!r}, 0.0)",
                f"r{k} = spread_of_row({self.pointers[stage.of]}, size, free{k}, KIND, {stage.root})",
            ]
            self.numbers[stage.to] = f"r{k}"
            if stage.to in self.outs:
                self.body.append(f"{self.outs[stage.to]}[row] = r{k}")
        elif isinstance(stage, Shares):
            source = self.pointers[stage.of]
            stored = not stage.logs
            self.body.append(f"softmax_row({source}, {self._row(stage.to)}, size, KIND, {stage.logs}, {stored})")
        else:
            weight, bias = (self.pointers[p] if p is not None else self.pointers[stage.of] for p in (stage.weight, stage.bias))
            source, to = self.pointers[stage.of], self._row(stage.to)
            found = [f"m{k}_{i}" for i in range(3)]
            self.body.append(
                f"{', '.join(found)} = normalize_row({source}, {to}, {weight}, {bias}, size, {stage.eps!r}, KIND, {stage.centred}, "
                f"{stage.weight is not None}, {stage.bias is not None})"
            )
            for name, value in zip(stage.moments, found, strict=True):
                self.numbers[name] = value
                if name in self.outs:
                    self.body.append(f"{self.outs[name]}[row] = {value}")
        return k + 1

    def _map(self, stage: Map, k: int, totals: list[Total], end: int) -> None:
        formula = f"FORMULA_{k}"
        self.constants[formula] = stage.formula
        arguments = [f"{self.pointers[name]}[@]" if name in self.pointers else self.numbers[name] for name in stage.of]
        made = [f"t{k}_{i}" for i in range(len(stage.to))]
        # What only these reductions read need not be a whole row.
        is_kept = {name: name in self.outs or self.last_read.get(name, -1) >= end for name in stage.to}
        targets = {name: self._row(name, not is_kept[name]) for name in stage.to}

        def loop(at: str, size: str) -> list[str]:
            call = f"{formula}({', '.join(arguments)})".replace("@", f"{at}i")
            stores = [f"    {targets[name]}[{at if is_kept[name] else ''}i] = {t}" for name, t in zip(stage.to, made, strict=True)]
            return [f"for i in independent(range({size})):", f"    {', '.join(made)} = {call}", *stores]

        if totals:
            self._blocks(totals, loop("at + ", "some"), lambda total: targets[total.of] + (" + at" if is_kept[total.of] else ""))
        else:
            self.body += loop("", "size")

    def _blocks(self, totals: list[Total], before: list[str] | None, place: Any) -> None:
        """Reduce rows block by block; `before` makes a block, and ``place(total)`` says where it is."""
        put, lines = self.body.append, list(before or ())
        ends = []
        for total in totals:
            at = len(self.constants)
            how = total.how
            adds = how.combine == "add"
            self.constants |= {f"COMBINE_{at}": how.combine, f"TERM_{at}": how.term,
                               f"TOTAL_{at}": float64 if adds else self.kind, f"START_{at}": identity_of(how.combine, self.kind),
                               f"SIZES_{at}": None if adds else how.term is magnitude,
                               f"FINISH_{at}": how.finish if self.grid.pieces == 1 else None}  # fmt: skip
            put(f"s{at} = TOTAL_{at}(START_{at})")
            lines.append(f"p{at} = block_of({place(total)}, some, COMBINE_{at}, TERM_{at}, KIND, START_{at}, SIZES_{at}, BFLOAT16)")
            lines.append(f"s{at} = joined(s{at}, TOTAL_{at}(p{at}), COMBINE_{at})")
            if self.grid.pieces > 1:
                ends.append(f"{self.outs[total.to]}[item] = s{at}")
                continue
            made = f"finished(s{at}, count, FINISH_{at}, KIND)"
            ends.append(f"r{at} = {made if self.rounds is None else f'{self.rounds.name}({made})'}")
            self.numbers[total.to] = f"r{at}"
            if total.to in self.outs:
                ends.append(f"{self.outs[total.to]}[row] = r{at}")
        put("for at in rolled(range(0, size, BLOCK)):")
        put("    some = min(BLOCK, size - at)")
        self.body += [f"    {line}" for line in lines] + ends


def _read(stage: Any) -> tuple[Any, ...]:
    return stage.of if isinstance(stage, Map) else (stage.of,)
