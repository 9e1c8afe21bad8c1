"""The loop around a formula as a Python function for numba: what `engine/launching/loops.py` is for the llvm engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from flambeau_kernels.engine.launching import loops
from flambeau_kernels.engine.launching.loops import PART, Bodies, Operand
from flambeau_kernels.numba_engine import functions
from flambeau_kernels.numba_engine.blocks import READ, WRITTEN, intrinsic
from flambeau_kernels.numba_engine.functions import Function
from flambeau_kernels.scalar.complexes import PARTS
from flambeau_kernels.scalar.symbols import Block

__all__ = ["address", "function"]

# Values of these types pass between pieces of code as integers of as many bits.
_CARRIED = {"half": "i16"}


def address(kernel: loops.Kernel) -> int:
    """Where numba's code of `kernel` is, ``void kernel(ptr pointers, i64 n0, i64 n1, ptr strides)``."""
    return functions.compiled(function(kernel), functions.LOOP)


def function(kernel: loops.Kernel) -> Function:
    """The loop of `kernel` as Python; as the llvm engine has it, so that the same elements are careful ones."""
    return _Loop(kernel.symbol, kernel.bodies).function()


# Parts of a row, in which rare arguments are looked for first.
_GUARDED = f"""\
        for first in range(0, n0, {PART}):
            stop = min(first + {PART}, n0)
            found = 0
            for i in range(first, stop):
                found |= look({{given}})
            if found:
                for i in range(first, stop):
                    careful({{given}})
            else:
                for i in range(first, stop):
                    element({{given}})
"""


class _Loop:
    def __init__(self, name: str, bodies: Bodies) -> None:
        self.name, self.bodies = name, bodies
        self.operands = (*bodies.inputs, *bodies.outs)
        self.once = [(k, o) for k, o in enumerate(bodies.inputs) if o.access == "s"]
        # A result may be an operand, in place. Where there is one number to store, it waits for all that are read, so a loop may
        # still be made of vectors; of several, or of two parts, the first one stored could be read for the second one.
        separate = len(bodies.outs) == 1 and bodies.outs[0].dtype not in PARTS
        self.read, self.written = (READ, WRITTEN) if separate else ("", "")
        self.intrinsics: dict[str, Any] = {}
        self.lines: list[str] = []

    def function(self) -> Function:
        rows = [f"r{k}" for k in range(len(self.operands))]
        inner = [f"inner{k}" for k, o in enumerate(self.operands) if o.access in "gd"]
        outer = [f"outer{k}" for k in range(len(self.operands))]
        single = [name[1:] for k, o in self.once for name in self._raw(k, o)]
        self._start(rows, inner, outer)
        text = [f"def {self.name}(pointers, n0, n1, strides):", f"    {', '.join([*rows, *inner, *outer])} = start(pointers, strides)",
                "    for _ in range(n1):"]  # fmt: skip
        if single:
            self._row()
            text += [f"        {', '.join(single)} = row({', '.join(f'r{k}' for k, _ in self.once)})"]
        given = ", ".join(["i", *rows, *inner, *single])
        usual, careful, inputs = self.bodies.usual, self.bodies.careful, self.bodies.inputs
        stores = loops.store_lines(self.bodies, self.bodies.values)
        self._element("element", usual, stores, rows, inner, inputs)
        single_reads = loops.without_pairs(inputs)
        if single_reads != inputs:
            # After the last element there may be no memory to read a pair from.
            self._element("last", usual, stores, rows, inner, single_reads)
            text += ["        for i in range(n0 - 1):", f"            element({given})",
                     "        for i in range(max(n0 - 1, 0), n0):", f"            last({given})"]  # fmt: skip
        elif not usual.rare:
            text += ["        for i in range(n0):", f"            element({given})"]
        else:
            self._element("careful", careful, loops.store_lines(self.bodies, self.bodies.careful_values), rows, inner, inputs)
            self._look(usual, rows, inner)
            text += _GUARDED.format(given=given).splitlines()
        self._intrinsic("onward", [*((f"%{r}", "ptr") for r in rows), *((f"%{o}", "i64") for o in outer)],
                        [f"  %next{k} = getelementptr i8, ptr %r{k}, i64 %outer{k}" for k in range(len(rows))], (),
                        [(f"%next{k}", "ptr") for k in range(len(rows))])  # fmt: skip
        text += [f"        {', '.join(rows)} = onward({', '.join([*rows, *outer])})"]
        return Function(self.name, "\n".join(text) + "\n", self.intrinsics, "\n".join(self.lines))

    def _start(self, rows: list[str], inner: list[str], outer: list[str]) -> None:
        lines = []
        for k in range(len(self.operands)):
            lines += [f"  %pp{k} = getelementptr ptr, ptr %pointers, i64 {k}", f"  %r{k} = load ptr, ptr %pp{k}",
                      f"  %is{k} = getelementptr i64, ptr %strides, i64 {2 * k}", f"  %inner{k} = load i64, ptr %is{k}",
                      f"  %os{k} = getelementptr i64, ptr %strides, i64 {2 * k + 1}", f"  %outer{k} = load i64, ptr %os{k}"]  # fmt: skip
        outs = [*((f"%{r}", "ptr") for r in rows), *((f"%{n}", "i64") for n in (*inner, *outer))]
        self._intrinsic("start", [("%pointers", "ptr"), ("%strides", "ptr")], lines, (), outs)

    def _raw(self, k: int, operand: Operand) -> tuple[str, ...]:
        return loops.raw_names(k, operand)[: 2 if operand.dtype in PARTS else 1]

    def _row(self) -> None:
        lines, outs = [], []
        for k, operand in self.once:
            names = loops.raw_names(k, operand)
            carried = _CARRIED.get(operand.llvm)
            for name, line in zip((names[0], None, names[1]), loops.load_lines(operand, f"%r{k}", f"%u{k}", names, ""), strict=False):
                lines.append(line)
                if name is not None and carried is not None:
                    lines.append(f"  {name}.bits = bitcast {operand.llvm} {name} to {carried}")
            outs += [(f"{n}.bits" if carried else n, carried or operand.llvm) for n in self._raw(k, operand)]
        self._intrinsic("row", [(f"%r{k}", "ptr") for k, _ in self.once], lines, (), outs)

    def _given(self, rows: Sequence[str], inner: Sequence[str], read: Sequence[Operand]) -> tuple[list[tuple[str, str]], list[str]]:
        """Arguments of what runs for an element, and the instructions it begins with."""
        inputs = [("%i", "i64"), *((f"%{r}", "ptr") for r in rows), *((f"%{n}", "i64") for n in inner)]
        lines: list[str] = []
        for k, operand in self.once:
            carried = _CARRIED.get(operand.llvm)
            for name in self._raw(k, operand):
                inputs.append((f"{name}.bits" if carried else name, carried or operand.llvm))
                if carried:
                    lines.append(f"  {name} = bitcast {carried} {name}.bits to {operand.llvm}")
        for k, operand in enumerate(read):
            if operand.access != "s":
                names = loops.raw_names(k, operand)
                lines += [*loops.address_lines(k, operand), *(loops.load_first_lines(k, operand, self.read) if operand.access == "d" else
                                                              loops.load_lines(operand, f"%a{k}", f"%b{k}", names, self.read))]
        return inputs, lines

    def _element(
        self, name: str, block: Block, stores: list[str], rows: list[str], inner: list[str], read: Sequence[Operand]
    ) -> None:
        inputs, lines = self._given(rows, inner, read)
        body = [*lines, *block.lines, *(line.replace(loops.GROUP, self.written) for line in stores)]
        self._intrinsic(name, inputs, body, block.needs, [])

    def _look(self, block: Block, rows: list[str], inner: list[str]) -> None:
        inputs, lines = self._given(rows, inner, self.bodies.inputs)
        seen = "0"
        body = [*lines, *block.lines]
        for n, symbol in enumerate(block.rare):
            body += [f"  %rare{n} = zext i1 {symbol.name} to i64", f"  %any{n} = or i64 {seen}, %rare{n}"]
            seen = f"%any{n}"
        self._intrinsic("look", inputs, body, block.needs, [(seen, "i64")])

    def _intrinsic(
        self, name: str, inputs: Sequence[tuple[str, str]], lines: list[str], needs: Iterable[str], outs: list[tuple[str, str]]
    ) -> None:
        self.intrinsics[name] = intrinsic(name, inputs, lines, needs, outs)
        operands = ", ".join(f"{llvm} {n}" for n, llvm in inputs)
        self.lines += [f"# {name}({operands})", *(f"# {line}" for line in lines), ""]
