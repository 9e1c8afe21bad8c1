"""The loop around a formula, as LLVM IR text.

A kernel is ``void kernel(ptr pointers, i64 n0, i64 n1, ptr strides)``: `n1` rows of `n0` elements, both at
least 1. `pointers` has one address per operand, inputs first; `strides` has the inner and then the outer byte
stride of each. How an operand moves along a row is part of the kernel: `c`ontiguous, `s`calar (one value per
row), every second element (`d`istance two) or `g`eneral stride. Inputs are converted from the dtype they are
stored in to the kind the formula computes in, results to the dtype of their output; half types are widened by
instructions or shifts and rounded to nearest even.
"""
from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from flambeau_kernels.engine.launching.exact_products import rounded_once
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.scalar import complexes, halves
from flambeau_kernels.scalar import symbols as sy
from flambeau_kernels.scalar.complexes import PARTS, ComplexSymbol
from flambeau_kernels.scalar.symbols import (
    BOOL,
    F32,
    INT,
    KINDS,
    Block,
    Symbol,
    Unsupported,
)

_STORED = {**{name: kind.llvm for name, kind in KINDS.items()},
           "bool": "i8", "float16": "half", "bfloat16": "i16",
           "complex64": "float", "complex128": "double"}  # of either part
_BYTES = {"i8": 1, "half": 2, "i16": 2, "float": 4, "i32": 4, "double": 8, "i64": 8}


# Columns that are searched for rare arguments at a time: they stay in the innermost cache for the loop that follows.
PART = 1024
LONG = 400                                            # steps of a formula
_KEPT_BYTES = 2048                                    # of results that wait until it is known whether they hold
SHORT = 40                                            # steps of a formula that is written twice, for either half of an integer
GROUP = ", !llvm.access.group !0"


@dataclass(frozen=True, slots=True)
class Operand:
    """An array of a kernel: numpy's name of its dtype, and its access c, s, d or g."""

    dtype: str
    access: str

    @property
    def llvm(self) -> str:
        """The type that is loaded and stored: of the number, or of either part of a complex one."""
        return _STORED[self.dtype]

    @property
    def parts(self) -> int:
        """How many numbers an element is: two if it is a complex one."""
        return 2 if self.dtype in PARTS else 1

    @property
    def bytes(self) -> int:
        """The size of a whole element."""
        return self.parts * _BYTES[self.llvm]

    @property
    def element(self) -> str:
        """The type of a whole element."""
        return f"[2 x {self.llvm}]" if self.dtype in PARTS else self.llvm


@dataclass(frozen=True, slots=True)
class Kernel:
    """A finished kernel text; `cost` is a rough number of vector instructions per element of 32 bits; `bodies`, what the text was
    made of, for engines that write a loop of their own around it; `level`, of `llvm.compile_ir`."""

    symbol: str
    text: str
    cost: int
    bodies: Bodies

    @property
    def level(self) -> int:
        """There is nothing in a long formula's loop to repeat; LLVM makes the same code of it by fewer passes."""
        return llvm.PLAIN if _is_long(self.bodies) else llvm.EVERYTHING


def kernel(name: str, function: Callable[..., object], inputs: tuple[Operand, ...], outs: tuple[Operand, ...],
           compute: str, scales: bool = False, thorough: bool = False, register_bits: int | None = None) -> Kernel:
    """Text of the loop that runs `function` (bound to the compiled words) in `compute` over the operands.

    `thorough`: compiling may take long. `scales` and `register_bits`: of the machine, as `Block` has them.
    Raises: Unsupported, naming what the compiled tier cannot express.
    """
    check_dtypes(inputs, outs, compute)
    usual, values = trace(name, function, inputs, outs, compute, scales, register_bits=register_bits)
    careful, careful_values = usual, values
    if usual.rare:
        careful, careful_values = trace(name, function, inputs, outs, compute, scales, careful=True)
    for block in (usual, careful):
        block.lines = rounded_once(block.lines, block.needs)
    symbol = re.sub(r"\W", "_", f"{name}_{compute}")
    bodies = Bodies(inputs, outs, usual, values, careful, careful_values, thorough)
    if usual.rare or _is_long(bodies):
        bodies = replace(bodies, inputs=without_pairs(inputs))
    return Kernel(symbol, _loop_text(symbol, bodies), usual.cost, bodies)


def check_dtypes(inputs: tuple[Operand, ...], outs: tuple[Operand, ...], compute: str) -> None:
    """Raise Unsupported for a dtype that kernels do not know, or do not compute in."""
    for dtype in (compute, *(o.dtype for o in (*inputs, *outs))):
        if dtype not in _STORED:
            raise Unsupported(f"the dtype {dtype}")
    if compute not in KINDS and compute not in PARTS:
        raise Unsupported(f"computing in {compute}")


def result_dtypes(function: Callable[..., object], arguments: int, compute: str) -> tuple[str, ...]:
    """numpy's names of the dtypes `function` computes its results in, given arguments in `compute`."""
    block = new_block(compute)
    results = function(*(widen(block, k, Operand(compute, "c"), compute) for k in range(arguments)))
    results = results if isinstance(results, tuple) else (results,)
    return tuple(_dtype_of(as_symbol(block, r)) for r in results)


def _dtype_of(value: Symbol) -> str:
    if not isinstance(value, ComplexSymbol):
        return value.kind.name
    return next(name for name, part in PARTS.items() if part is value.kind)


def new_block(compute: str, scales: bool = False, careful: bool = False, register_bits: int | None = None) -> Block:
    return Block(PARTS.get(compute) or KINDS[compute], scales, careful, register_bits)


def trace(name: str, function: Callable[..., object], inputs: tuple[Operand, ...], outs: tuple[Operand, ...],
          compute: str, scales: bool, careful: bool = False, register_bits: int | None = None) -> tuple[Block, list[list[str]]]:
    """A block with the formula's code, and the names of the values to be stored in each output."""
    block = new_block(compute, scales, careful, register_bits)
    arguments = [widen(block, k, operand, compute) for k, operand in enumerate(inputs)]
    results = function(*arguments)
    results = results if isinstance(results, tuple) else (results,)
    if len(results) != len(outs):
        raise ValueError(f"{name}: the formula has {len(results)} results, {len(outs)} outputs were given")
    return block, [narrow(as_symbol(block, r), o) for r, o in zip(results, outs, strict=True)]


def raw_names(k: int, operand: Operand) -> tuple[str, str]:
    """Names of input `k` as loaded (the second for imaginary parts): per row for scalars, else per column."""
    return (f"%s{k}", f"%t{k}") if operand.access == "s" else (f"%x{k}", f"%y{k}")


def as_symbol(block: Block, result: Any) -> Symbol:
    if isinstance(result, Symbol):
        return result
    if isinstance(result, complex):
        return complexes.constant(block, result, block.compute)
    return block.constant(result, sy.weak(result, block.compute))


def widen(block: Block, k: int, operand: Operand, compute: str) -> Symbol:
    """Input `k`, as stored, in the form the formula sees it."""
    raw, imaginary = raw_names(k, operand)
    if operand.dtype in PARTS:
        if compute not in PARTS:
            raise Unsupported(f"{operand.dtype} arguments of a formula in {compute}")
        part = PARTS[operand.dtype]
        value = ComplexSymbol(Symbol(block, raw, part), Symbol(block, imaginary, part))
        return complexes.as_complex(value, block.compute)
    value = widen_real(block, raw, operand).to(block.compute)
    return complexes.as_complex(value, block.compute) if compute in PARTS else value


def widen_real(block: Block, raw: str, operand: Operand) -> Symbol:
    dtype = operand.dtype
    if dtype == "bool":
        return block.emit(BOOL, f"icmp ne i8 {raw}, 0")
    if dtype in halves.TYPES:
        return halves.widened(Symbol(block, raw, halves.TYPES[dtype]), dtype)
    return Symbol(block, raw, KINDS[dtype])


def narrow(value: Symbol, operand: Operand) -> list[str]:
    """Names of `value`, or of its two parts, in the form `operand` stores."""
    if operand.dtype in PARTS:
        parts = complexes.as_complex(value, PARTS[operand.dtype])
        return [parts.re.name, parts.im.name]
    if isinstance(value, ComplexSymbol) and operand.dtype != "bool":
        value = value.re                              # a real output keeps the real part
    return [narrow_real(value, operand)]


def narrow_real(value: Symbol, operand: Operand) -> str:
    dtype = operand.dtype
    if dtype == "bool":
        return value.block.emit(INT[8], f"zext i1 {value.to(BOOL).name} to i8").name
    if dtype in halves.TYPES:                         # by way of float32, as in PyTorch
        return halves.stored(value.to(F32), dtype).name
    return value.to(KINDS[dtype]).name


@dataclass(frozen=True, slots=True)
class Bodies:
    """Operands, the formula's code for usual arguments and, if that is not all of them, for any, and whether compiling may take long."""

    inputs: tuple[Operand, ...]
    outs: tuple[Operand, ...]
    usual: Block
    values: list[list[str]]
    careful: Block
    careful_values: list[list[str]]
    thorough: bool = False


def _loop_text(symbol: str, bodies: Bodies) -> str:
    operands = list(enumerate((*bodies.inputs, *bodies.outs)))
    memcpy = {"declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"} if _is_long(bodies) else set()
    text = [*sorted(bodies.usual.needs | bodies.careful.needs | memcpy),
            f"define void @{symbol}(ptr noalias readonly %pointers, i64 %n0, i64 %n1, "
            "ptr noalias readonly %strides) {",
            "entry:"]
    for k, _ in operands:
        text += [f"  %pp{k} = getelementptr ptr, ptr %pointers, i64 {k}", f"  %p{k} = load ptr, ptr %pp{k}",
                 f"  %is{k} = getelementptr i64, ptr %strides, i64 {2 * k}",
                 f"  %inner{k} = load i64, ptr %is{k}",
                 f"  %os{k} = getelementptr i64, ptr %strides, i64 {2 * k + 1}",
                 f"  %outer{k} = load i64, ptr %os{k}"]
    if _is_long(bodies):
        text += _pads(bodies)
    text += ["  br label %row", "row:", "  %j = phi i64 [0, %entry], [%jnext, %rowend]"]
    text += [f"  %r{k} = phi ptr [%p{k}, %entry], [%rnext{k}, %rowend]" for k, _ in operands]
    for k, operand in enumerate(bodies.inputs):
        if operand.access == "s":
            text += load_lines(operand, f"%r{k}", f"%u{k}", raw_names(k, operand), "")
    columns = _padded_columns if _is_long(bodies) else _guarded_columns if bodies.usual.rare else _plain_columns
    text += columns(bodies)
    text += ["rowend:", *(f"  %rnext{k} = getelementptr i8, ptr %r{k}, i64 %outer{k}" for k, _ in operands)]
    text += ["  %jnext = add nuw nsw i64 %j, 1", "  %again = icmp slt i64 %jnext, %n1",
             "  br i1 %again, label %row, label %done", "done:", "  ret void", "}",
             # Iterations do not depend on each other, also where an output is one of the inputs; the order of
             # loads and stores within an iteration stays. So there is no need for a second, in-place kernel.
             "!0 = distinct !{}", '!1 = !{!"llvm.loop.parallel_accesses", !0}',
             f'!2 = !{{!"llvm.loop.vectorize.enable", i1 {_pays_as_vectors(operands)}}}',
             '!3 = !{!"llvm.loop.vectorize.enable", i1 false}',
             *_together(bodies), f"!5 = distinct !{{!5, !1, !2{', !8' if _is_long(bodies) else ''}}}", "!6 = distinct !{!6, !1, !3, !7}",
             '!7 = !{!"llvm.loop.unroll.disable"}']
    return "\n".join(text) + "\n"


def _together(bodies: Bodies) -> list[str]:
    """The usual loop's metadata. Of a formula of many steps several vectors are computed side by side: one would mostly wait.

    In 32 registers and with constants as operands four take up to two fifths off. In 16 registers two do, for each constant is then
    loaded once for both. Where there is more code compiling would take too long, and of short formulas LLVM knows best. Of very long
    chains the last vector is masked, for a loop over what is left would be half of the code. A chain of several
    formulas, which is compiled while others answer, is a longer wait, of which four take up to a quarter more off in any registers.
    Two of halves of integers are four vectors.
    """
    steps = len(bodies.usual.lines)
    code = steps + (len(bodies.careful.lines) if bodies.usual.rare else 0)
    if _is_long(bodies):
        lanes = bodies.usual.in_lanes
        width = [f'!9 = !{{!"llvm.loop.vectorize.width", i32 {lanes}}}'] if lanes else []
        return [f"!4 = distinct !{{!4, !1, !2, !8{', !9' if lanes else ''}}}", '!8 = !{!"llvm.loop.interleave.count", i32 1}', *width]
    if steps > LONG:
        return ["!4 = distinct !{!4, !1, !2, !8}", '!8 = !{!"llvm.loop.vectorize.predicate.enable", i1 true}']
    if not _in_halves(bodies) and (steps < 16 or code > (1000 if bodies.thorough else 160)):
        return ["!4 = distinct !{!4, !1, !2}"]
    count = 4 if not _in_halves(bodies) and (bodies.thorough or bodies.usual.scales and code <= 110) else 2
    return ["!4 = distinct !{!4, !1, !2, !8}", f'!8 = !{{!"llvm.loop.interleave.count", i32 {count}}}']


def _in_halves(bodies: Bodies) -> bool:
    """Whether elements are computed two at a time: neighbours of bfloat16 are the halves of an integer, so that widening and
    narrowing them takes no shuffles. Of longer formulas that is little, and they would take twice as long to compile.
    """
    moving = [o for o in (*bodies.inputs, *bodies.outs) if o.access != "s"]
    return (not bodies.usual.rare and len(bodies.usual.lines) <= SHORT
            and all(o.dtype == "bfloat16" and o.access == "c" for o in moving))


def _halves_columns(bodies: Bodies) -> list[str]:
    """Pairs of columns, and the last one if their number is odd."""
    moving = [k for k, operand in enumerate(bodies.inputs) if operand.access != "s"]
    outs = range(len(bodies.inputs), len(bodies.inputs) + len(bodies.outs))
    lines = [f"  %a{k} = getelementptr i32, ptr %r{k}, i64 %i" for k in (*moving, *outs)]
    for k in moving:
        lines += [f"  %x{k} = load i32, ptr %a{k}, align 1{GROUP}", f"  %low.x{k} = trunc i32 %x{k} to i16",
                  f"  %o{k} = lshr i32 %x{k}, 16", f"  %high.x{k} = trunc i32 %o{k} to i16"]
    for half in ("low", "high"):
        lines += _renamed(half, bodies.usual.lines)
    for k, (name,) in zip(outs, bodies.values, strict=True):
        low, high = (_renamed(half, [name])[0] for half in ("low", "high"))
        lines += [f"  %low.o{k} = zext i16 {low} to i32", f"  %high.o{k} = zext i16 {high} to i32",
                  f"  %up.o{k} = shl i32 %high.o{k}, 16", f"  %both.o{k} = or i32 %up.o{k}, %low.o{k}",
                  f"  store i32 %both.o{k}, ptr %a{k}, align 1{GROUP}"]
    body = [*bodies.usual.lines, *store_lines(bodies, bodies.values)]
    return ["  %pairs = lshr i64 %n0, 1", "  %whole = shl i64 %pairs, 1", "  %several = icmp sgt i64 %pairs, 0",
            "  br i1 %several, label %column, label %between",
            *_loop_of("column", "row", "0", "%pairs", lines, "!4", "between"),
            "between:", "  %odd = icmp slt i64 %whole, %n0", "  br i1 %odd, label %last, label %rowend",
            *_column_loop("last", "between", "%whole", "%n0", bodies, _renamed("last", body), "!6", "rowend")]


def _renamed(prefix: str, lines: list[str]) -> list[str]:
    """`lines` with names of their own for the values of a column."""
    return [re.sub(r"%([vxyaob])(\d+)\b", rf"%{prefix}.\1\2", line) for line in lines]


def _plain_columns(bodies: Bodies) -> list[str]:
    if _in_halves(bodies):
        return _halves_columns(bodies)
    body = [*bodies.usual.lines, *store_lines(bodies, bodies.values)]
    if _has_pairs(bodies.inputs):
        return ["  %head = add nsw i64 %n0, -1", "  %several = icmp sgt i64 %head, 0",
                "  br i1 %several, label %column, label %between",
                *_column_loop("column", "row", "0", "%head", bodies, body, "!4", "between"),
                "between:", "  br label %last",
                *_column_loop("last", "between", "%head", "%n0", replace(bodies, inputs=without_pairs(bodies.inputs)),
                              _renamed("last", body), "!6", "rowend")]
    return ["  br label %column", *_column_loop("column", "row", "0", "%n0", bodies, body, "!4", "rowend")]


def _guarded_columns(bodies: Bodies) -> list[str]:
    """Blocks of columns: look for rare arguments first, then run the usual or the careful loop."""
    rare = bodies.usual.rare
    look = _renamed("look", [*_lines_behind([symbol.name for symbol in rare], bodies.usual.lines), *_seen(rare)])
    usual = [*bodies.usual.lines, *store_lines(bodies, bodies.values)]
    careful = _renamed("care", [*bodies.careful.lines, *store_lines(bodies, bodies.careful_values)])
    last = f"%any{len(rare) - 1}"
    return ["  br label %part", "part:", "  %from = phi i64 [0, %row], [%to, %partend]",
            f"  %full = add i64 %from, {PART}", "  %short = icmp slt i64 %full, %n0",
            "  %to = select i1 %short, i64 %full, i64 %n0", "  br label %look",
            *_column_loop("look", "part", "%from", "%to", bodies, look, "!5", "choose",
                          [f"  %seen = phi i32 [0, %part], [{last}, %look]"]),
            "choose:", f"  %found = icmp ne i32 {last}, 0",
            "  br i1 %found, label %care, label %column",
            *_column_loop("column", "choose", "%from", "%to", bodies, usual, "!4", "partend"),
            *_column_loop("care", "choose", "%from", "%to", bodies, careful, "!6", "partend"),
            "partend:", "  %rest = icmp slt i64 %to, %n0", "  br i1 %rest, label %part, label %rowend"]


def _seen(rare: list[Symbol]) -> list[str]:
    """What keeps whether any of `rare` has held in a loop: ``%any`` of the last one is next time's ``%seen``."""
    lines = []
    for n, symbol in enumerate(rare):
        lines += [f"  %rare{n} = zext i1 {symbol.name} to i32",
                  f"  %any{n} = or i32 {'%seen' if n == 0 else f'%any{n - 1}'}, %rare{n}"]
    return lines


def _is_long(bodies: Bodies) -> bool:
    """Whether the formula has so many steps that no loop around it is to be compiled twice: see `_padded_columns`."""
    operands = list(enumerate((*bodies.inputs, *bodies.outs)))
    steps = len(bodies.usual.lines) + (len(bodies.careful.lines) if bodies.usual.rare else 0)
    called = sum(need.count("\n") for need in bodies.usual.needs if need.startswith("define"))
    return steps + called > LONG and not bodies.thorough and _pays_as_vectors(operands) == "true"


def _moving(bodies: Bodies) -> list[tuple[int, Operand]]:
    """The inputs that have an element for each column."""
    return [(k, operand) for k, operand in enumerate(bodies.inputs) if operand.access != "s"]


def _results(bodies: Bodies) -> list[tuple[int, Operand]]:
    return list(enumerate(bodies.outs, start=len(bodies.inputs)))


def _padded_length(bodies: Bodies) -> int:
    """Of how many columns whole vectors are made: as many as LLVM may compute at once in the widest registers."""
    return bodies.usual.register_bits // 8 // max(operand.bytes // operand.parts for _, operand in (*_moving(bodies), *_results(bodies)))


def _at_once(bodies: Bodies) -> bool:
    """Whether rare arguments are looked for along with the formula, most of which would have to be computed for that alone."""
    usual = bodies.usual
    return 2 * len(_lines_behind([symbol.name for symbol in usual.rare], usual.lines)) > len(usual.lines)


def _part_length(bodies: Bodies) -> int:
    """Columns of a part; fewer where its results wait in memory of the function, until it is known whether they hold."""
    return _KEPT_BYTES // max(o.bytes for o in bodies.outs) if _at_once(bodies) else PART


def _pads(bodies: Bodies) -> list[str]:
    """Memory for the last columns of a row, or for all results of a part."""
    columns = _padded_length(bodies)
    kept = _part_length(bodies) if _at_once(bodies) else columns
    return [*(f"  %pad{k} = alloca [{columns} x {o.element}], align 64" for k, o in _moving(bodies)),
            *(f"  %pad{k} = alloca [{kept} x {o.element}], align 64" for k, o in _results(bodies))]


def _padded_columns(bodies: Bodies) -> list[str]:
    """As `_guarded_columns`, in whole vectors alone: what is left of a row is copied to a pad, with its last column repeated.

    A loop over columns that fill no vector would be one more copy of the formula. In a part, `%at` are the places of its first
    column, `%q` where it is read and written, with a distance of `%step` bytes: in the pad if it is what is left. `%gap` is the distance
    of results in their places.
    """
    at_once, rare = _at_once(bodies), bodies.usual.rare
    moving, results, shift = _moving(bodies), _results(bodies), _padded_length(bodies).bit_length() - 1
    inside = replace(bodies, outs=tuple(Operand(o.dtype, "c") for o in bodies.outs)) if at_once else bodies
    written = "pad" if at_once else "q"
    first, last = ("look" if rare and not at_once else "column"), f"%any{len(rare) - 1}"
    lines = ["  br label %part", "part:", "  %from = phi i64 [0, %row], [%to, %partend]", "  %left = sub i64 %n0, %from",
             f"  %many = icmp sgt i64 %left, {_part_length(bodies)}", f"  %most = select i1 %many, i64 {_part_length(bodies)}, i64 %left",
             f"  %whole = lshr i64 %most, {shift}", "  %short = icmp eq i64 %whole, 0",
             "  %vectors = select i1 %short, i64 1, i64 %whole", f"  %count = shl nuw nsw i64 %vectors, {shift}",
             "  %real = select i1 %short, i64 %left, i64 %count", "  %to = add nuw nsw i64 %from, %real",
             *(f"  %gap{k} = add i64 %inner{k}, 0" for k, _ in results)]
    for k, operand in (*moving, *results):
        lines += [re.sub(r"%i\b", "%from", re.sub(r"%([ao])(\d)", r"%\1t\2", line)) for line in address_lines(k, operand)]
    lines += ["  %end = add nsw i64 %real, -1", "  br i1 %short, label %fill, label %ready"]
    fill = ["  %over = icmp slt i64 %i, %real", "  %near = select i1 %over, i64 %i, i64 %end"]
    for k, operand in moving:
        there = [re.sub(r"%i\b", "%near", line) for line in _based("at", "inner", address_lines(k, operand))]
        fill += [*there, _in_pad(k, operand), *_copied(k, operand, f"%a{k}", f"%in{k}")]
    lines += [*_loop_of("fill", "part", "0", "%count", _renamed("fill", fill), "!6", "ready"), "ready:"]
    for k, operand in (*moving, *([] if at_once else results)):
        lines += [f"  %q{k} = phi ptr [%at{k}, %part], [%pad{k}, %fill]"]
        if operand.access == "g":
            lines += [f"  %step{k} = phi i64 [%inner{k}, %part], [{operand.bytes}, %fill]"]
    lines += [f"  br label %{first}"]
    seen = _seen(rare)
    if first == "look":
        look = [*_lines_behind([symbol.name for symbol in rare], bodies.usual.lines), *seen]
        lines += [*_based("q", "step", _column_loop("look", "ready", "0", "%count", bodies, _renamed("look", look), "!5", "choose",
                                                    [f"  %seen = phi i32 [0, %ready], [{last}, %look]"])),
                  "choose:", f"  %found = icmp ne i32 {last}, 0", "  br i1 %found, label %care, label %column"]
    stores = _based(written, "step", store_lines(inside, bodies.values))
    before, phis = ("ready", [f"  %seen = phi i32 [0, %ready], [{last}, %column]"]) if at_once else ("choose" if rare else "ready", [])
    lines += _based("q", "step", _column_loop("column", before, "0", "%count", bodies,
                                              [*bodies.usual.lines, *(seen if at_once else []), *stores], "!4", "usual", phis))
    if at_once:
        lines += ["usual:", f"  %found = icmp ne i32 {last}, 0", "  br i1 %found, label %care, label %give"]
    else:
        lines += ["usual:", "  br i1 %short, label %give, label %partend"]
    lines += _given_back(results)
    if rare:
        care = [*bodies.careful.lines, *_based("at", "gap", store_lines(bodies, bodies.careful_values))]
        lines += _based("q", "step", _column_loop("care", "choose" if first == "look" else "usual", "0", "%real", bodies,
                                                  _renamed("care", care), "!6", "partend"))
    return [*lines, "partend:", "  %rest = icmp slt i64 %to, %n0", "  br i1 %rest, label %part, label %rowend"]


def _based(rows: str, distance: str, lines: list[str]) -> list[str]:
    """`lines` that count columns from the addresses `rows`, by the names of others for what lies between two."""
    return [re.sub(r"%inner(\d)", rf"%{distance}\1", re.sub(r"%r(\d)", rf"%{rows}\1", line)) for line in lines]


def _copied(k: int, operand: Operand, source: str, target: str) -> list[str]:
    """Load the element at `source` and store it at `target`."""
    lines = [*load_lines(operand, source, f"%b{k}", (f"%x{k}", f"%y{k}"), ""), f"  store {operand.llvm} %x{k}, ptr {target}, align 1"]
    if operand.dtype in PARTS:
        lines += [f"  {target}.im = getelementptr {operand.llvm}, ptr {target}, i64 1",
                  f"  store {operand.llvm} %y{k}, ptr {target}.im, align 1"]
    return lines


def _in_pad(k: int, operand: Operand) -> str:
    return f"  %in{k} = getelementptr {operand.element}, ptr %pad{k}, i64 %i"


def _given_back(results: list[tuple[int, Operand]]) -> list[str]:
    """Blocks that store the results of a part, which wait in pads, in their places."""
    lines, strided = ["give:"], []
    for k, operand in results:
        if operand.access == "c":
            lines += [f"  %bytes{k} = mul nuw nsw i64 %real, {operand.bytes}",
                      f"  call void @llvm.memcpy.p0.p0.i64(ptr align 1 %at{k}, ptr align 64 %pad{k}, i64 %bytes{k}, i1 false)"]
        else:
            strided += [*_based("at", "inner", address_lines(k, operand)), _in_pad(k, operand), *_copied(k, operand, f"%in{k}", f"%a{k}")]
    if not strided:
        return [*lines, "  br label %partend"]
    return [*lines, "  br label %back", *_loop_of("back", "give", "0", "%real", _renamed("back", strided), "!6", "partend")]


def _lines_behind(names: list[str], lines: list[str]) -> list[str]:
    """Those of `lines` that compute the values `names`."""
    needed, behind = set(names), []
    for line in reversed(lines):
        name, text = line.split(" = ", 1)
        if name.strip() in needed:
            needed |= set(re.findall(r"%\w+", text))
            behind.append(line)
    return behind[::-1]


def _column_loop(label: str, before: str, start: str, stop: str, bodies: Bodies, body: list[str],
                 metadata: str,
                 after: str, phis: list[str] | tuple[()] = ()) -> list[str]:
    """Blocks of IR that run `body` for columns [start, stop), entered from block `before`, left to `after`.
    """
    loads = []
    for k, operand in enumerate(bodies.inputs):
        if operand.access != "s":
            loads += [*address_lines(k, operand), *(load_first_lines(k, operand, GROUP) if operand.access == "d" else
                                               load_lines(operand, f"%a{k}", f"%b{k}", raw_names(k, operand), GROUP))]
    if label != "column":
        loads = _renamed(label, loads)
    return _loop_of(label, before, start, stop, [*loads, *body], metadata, after, phis)


def _loop_of(label: str, before: str, start: str, stop: str, lines: list[str], metadata: str, after: str,
             phis: list[str] | tuple[()] = ()) -> list[str]:
    """Blocks of IR that run `lines`, where ``%i`` counts from `start` to `stop`."""
    i = f"%{label}.i"
    lines = [re.sub(r"%i(?=,|$)", i, line) for line in lines]
    return [f"{label}:", f"  {i} = phi i64 [{start}, %{before}], [{i}next, %{label}]", *phis, *lines,
            f"  {i}next = add nuw nsw i64 {i}, 1", f"  %{label}.more = icmp slt i64 {i}next, {stop}",
            f"  br i1 %{label}.more, label %{label}, label %{after}, !llvm.loop {metadata}"]


def load_lines(operand: Operand, address: str, second: str, names: tuple[str, str], group: str) -> list[str]:
    """Load the element at `address`; the address of an imaginary part is called `second`."""
    text = [f"  {names[0]} = load {operand.llvm}, ptr {address}, align 1{group}"]
    if operand.dtype in PARTS:
        text += [f"  {second} = getelementptr {operand.llvm}, ptr {address}, i64 1",
                 f"  {names[1]} = load {operand.llvm}, ptr {second}, align 1{group}"]
    return text


def store_lines(bodies: Bodies, values: list[list[str]]) -> list[str]:
    text = []
    for k, (names, operand) in enumerate(zip(values, bodies.outs, strict=True), start=len(bodies.inputs)):
        text += [*address_lines(k, operand), f"  store {operand.llvm} {names[0]}, ptr %a{k}, align 1{GROUP}"]
        if operand.dtype in PARTS:
            text += [f"  %b{k} = getelementptr {operand.llvm}, ptr %a{k}, i64 1",
                     f"  store {operand.llvm} {names[1]}, ptr %b{k}, align 1{GROUP}"]
    return text


def _pays_as_vectors(operands: list[tuple[int, Operand]]) -> str:
    return "true" if any(o.access == "c" for _, o in operands) else "false"


# Every second element is the first of a pair, which is read as one integer: gathering takes twice as long. The last one has
# no pair that may be read, so the loop ends before it.
_BITS = {"half": 16, "float": 32, "i8": 8, "i16": 16, "i32": 32}


def _pair(operand: Operand) -> str:
    return f"i{2 * _BITS[operand.llvm]}"


def load_first_lines(k: int, operand: Operand, group: str) -> list[str]:
    """Load the pair at ``%a`` and take its first element."""
    bits = f"i{_BITS[operand.llvm]}"
    return [f"  %b{k} = load {_pair(operand)}, ptr %a{k}, align 1{group}", f"  %o{k} = trunc {_pair(operand)} %b{k} to {bits}",
            f"  %x{k} = bitcast {bits} %o{k} to {operand.llvm}"]


def _has_pairs(operands: tuple[Operand, ...]) -> bool:
    return any(o.access == "d" for o in operands)


def without_pairs(operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
    return tuple(Operand(o.dtype, "g") if o.access == "d" else o for o in operands)


def address_lines(k: int, operand: Operand) -> list[str]:
    if operand.access == "c":
        return [f"  %a{k} = getelementptr {operand.element}, ptr %r{k}, i64 %i"]
    if operand.access == "d":
        return [f"  %a{k} = getelementptr {_pair(operand)}, ptr %r{k}, i64 %i"]
    return [f"  %o{k} = mul i64 %i, %inner{k}", f"  %a{k} = getelementptr i8, ptr %r{k}, i64 %o{k}"]

