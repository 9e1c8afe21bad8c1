"""The loop around a formula, as LLVM IR text.

A kernel is ``void kernel(ptr pointers, i64 n0, i64 n1, ptr strides)``: `n1` rows of `n0` elements, both at
least 1. `pointers` has one address per operand, inputs first; `strides` has the inner and then the outer byte
stride of each. How an operand moves along a row is part of the kernel: `c`ontiguous, `s`calar (one value per
row) or `g`eneral stride. Inputs are converted from the dtype they are stored in to the kind the formula
computes in, results to the dtype of their output; half types are widened by instructions or shifts and
rounded to nearest even.
"""
from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from flambeau_kernels.scalar import symbols as sy
from flambeau_kernels.scalar.symbols import (
    BOOL,
    F32,
    I32,
    INT,
    KINDS,
    UINT,
    Block,
    Symbol,
    Unsupported,
    select,
)

_STORED = {**{name: kind.llvm for name, kind in KINDS.items()},
           "bool": "i8", "float16": "half", "bfloat16": "i16"}


# Columns that are searched for rare arguments at a time: they stay in the innermost cache for the loop that
# follows.
PART = 1024
_HALF = sy.Kind("float16", "half", 16, "f")           # stored, never computed in


@dataclass(frozen=True, slots=True)
class Operand:
    """An array of a kernel: numpy's name of its dtype, and its access c, s or g."""

    dtype: str
    access: str

    @property
    def llvm(self) -> str:
        return _STORED[self.dtype]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A finished kernel text; `cost` is a rough number of vector instructions per element of 32 bits."""

    symbol: str
    text: str
    cost: int


def kernel(name: str, function: Callable[..., object], inputs: tuple[Operand, ...], outs: tuple[Operand, ...],
           compute: str, scales: bool = False) -> Kernel:
    """Text of the loop that runs `function` (bound to the compiled words) in `compute` over the operands.

    Raises: Unsupported, naming what the compiled tier cannot express.
    """
    for dtype in (compute, *(o.dtype for o in (*inputs, *outs))):
        if dtype not in _STORED:
            raise Unsupported(f"the dtype {dtype}")
    if compute not in KINDS:
        raise Unsupported(f"computing in {compute}")
    usual, values = _trace(name, function, inputs, outs, Block(KINDS[compute], scales))
    careful, careful_values = usual, values
    if usual.rare:
        block = Block(KINDS[compute], scales, careful=True)
        careful, careful_values = _trace(name, function, inputs, outs, block)
    symbol = re.sub(r"\W", "_", f"{name}_{compute}")
    bodies = _Bodies(inputs, outs, usual, values, careful, careful_values)
    return Kernel(symbol, _loop_text(symbol, bodies), usual.cost)


def result_dtypes(function: Callable[..., object], arguments: int, compute: str) -> tuple[str, ...]:
    """numpy's names of the dtypes `function` computes its results in, given arguments in `compute`."""
    block = Block(KINDS[compute])
    results = function(*(Symbol(block, f"%x{k}", block.compute) for k in range(arguments)))
    results = results if isinstance(results, tuple) else (results,)
    return tuple(_as_symbol(block, r).kind.name for r in results)


def _trace(name: str, function: Callable[..., object], inputs: tuple[Operand, ...], outs: tuple[Operand, ...],
           block: Block) -> tuple[Block, list[tuple[str, str]]]:
    """`block` filled with the formula's code, and what is to be stored in each output (LLVM type, name)."""
    arguments = [_widen(block, _raw(k, o), o, block.compute) for k, o in enumerate(inputs)]
    results = function(*arguments)
    results = results if isinstance(results, tuple) else (results,)
    if len(results) != len(outs):
        raise ValueError(f"{name}: the formula has {len(results)} results, {len(outs)} outputs were given")
    return block, [_narrow(_as_symbol(block, r), o) for r, o in zip(results, outs, strict=True)]


def _raw(k: int, operand: Operand) -> str:
    """Name of input `k` as loaded: once per row for scalars, else in the loop over columns."""
    return f"%s{k}" if operand.access == "s" else f"%x{k}"


def _as_symbol(block: Block, result: object) -> Symbol:
    return result if isinstance(result, Symbol) else block.constant(result, sy.weak(result, block.compute))


def _widen(block: Block, raw: str, operand: Operand, compute: sy.Kind) -> Symbol:
    """The stored value `raw` as the formula sees it."""
    dtype = operand.dtype
    if dtype == "bool":
        value = block.emit(BOOL, f"icmp ne i8 {raw}, 0")
    elif dtype == "float16":
        value = block.emit(F32, f"fpext half {raw} to float")
    elif dtype == "bfloat16":
        value = sy.shift_left(block.emit(I32, f"zext i16 {raw} to i32"), 16).float_of_bits()
    else:
        value = Symbol(block, raw, KINDS[dtype])
    return value.to(compute)


def _narrow(value: Symbol, operand: Operand) -> tuple[str, str]:
    """LLVM type and name of `value` in the form `operand` stores."""
    dtype = operand.dtype
    if dtype == "bool":
        return "i8", value.block.emit(INT[8], f"zext i1 {value.to(BOOL).name} to i8").name
    if dtype == "bfloat16":
        return "i16", _round_to_bfloat16(value.to(F32)).name
    if dtype == "float16":
        if value.kind.bits > 16 and value.kind is not F32:   # by way of float32 they would be rounded twice
            raise Unsupported(f"float16 results of a formula in {value.kind.name}")
        return "half", value.block.emit(_HALF, f"fptrunc float {value.to(F32).name} to half").name
    return operand.llvm, value.to(KINDS[dtype]).name


def _round_to_bfloat16(x: Symbol) -> Symbol:
    bits = Symbol(x.block, x.bits().name, UINT[32])
    last = sy.shift_right(bits, 16) & 1
    rounded = sy.shift_right(bits + (last + 0x7FFF), 16)
    # Rounding could carry a nan's payload away; bfloat16's quiet nan keeps the sign.
    nan = sy.shift_right(bits, 16) | 0x7FC0
    return select(x == x, rounded, nan).to(UINT[16])


@dataclass(frozen=True, slots=True)
class _Bodies:
    """Operands, and the formula's code for usual arguments and, if that is not all of them, for any."""

    inputs: tuple[Operand, ...]
    outs: tuple[Operand, ...]
    usual: Block
    values: list[tuple[str, str]]
    careful: Block
    careful_values: list[tuple[str, str]]


def _loop_text(symbol: str, bodies: _Bodies) -> str:
    operands = list(enumerate((*bodies.inputs, *bodies.outs)))
    text = [*sorted(bodies.usual.needs | bodies.careful.needs),
            f"define void @{symbol}(ptr noalias readonly %pointers, i64 %n0, i64 %n1, "
            "ptr noalias readonly %strides) {",
            "entry:"]
    for k, _ in operands:
        text += [f"  %pp{k} = getelementptr ptr, ptr %pointers, i64 {k}", f"  %p{k} = load ptr, ptr %pp{k}",
                 f"  %is{k} = getelementptr i64, ptr %strides, i64 {2 * k}",
                 f"  %inner{k} = load i64, ptr %is{k}",
                 f"  %os{k} = getelementptr i64, ptr %strides, i64 {2 * k + 1}",
                 f"  %outer{k} = load i64, ptr %os{k}"]
    text += ["  br label %row", "row:", "  %j = phi i64 [0, %entry], [%jnext, %rowend]"]
    text += [f"  %r{k} = phi ptr [%p{k}, %entry], [%rnext{k}, %rowend]" for k, _ in operands]
    text += [f"  %s{k} = load {o.llvm}, ptr %r{k}, align 1"
             for k, o in enumerate(bodies.inputs) if o.access == "s"]
    text += _guarded_columns(bodies) if bodies.usual.rare else _plain_columns(bodies)
    text += ["rowend:", *(f"  %rnext{k} = getelementptr i8, ptr %r{k}, i64 %outer{k}" for k, _ in operands)]
    text += ["  %jnext = add nuw nsw i64 %j, 1", "  %again = icmp slt i64 %jnext, %n1",
             "  br i1 %again, label %row, label %done", "done:", "  ret void", "}",
             # Iterations do not depend on each other, also where an output is one of the inputs; the order of
             # loads and stores within an iteration stays. So there is no need for a second, in-place kernel.
             "!0 = distinct !{}", '!1 = !{!"llvm.loop.parallel_accesses", !0}',
             f'!2 = !{{!"llvm.loop.vectorize.enable", i1 {_pays_as_vectors(operands)}}}',
             '!3 = !{!"llvm.loop.vectorize.enable", i1 false}',
             "!4 = distinct !{!4, !1, !2}", "!5 = distinct !{!5, !1, !2}", "!6 = distinct !{!6, !1, !3}"]
    return "\n".join(text) + "\n"


def _plain_columns(bodies: _Bodies) -> list[str]:
    body = [*bodies.usual.lines, *_stores(bodies, bodies.values)]
    return ["  br label %column", *_column_loop("column", "row", "0", "%n0", bodies, body, "!4", "rowend")]


def _guarded_columns(bodies: _Bodies) -> list[str]:
    """Blocks of columns: look for rare arguments first, then run the usual or the careful loop."""
    rare = bodies.usual.rare
    look = [*bodies.usual.lines]
    for n, symbol in enumerate(rare):
        look += [f"  %rare{n} = zext i1 {symbol.name} to i32",
                 f"  %any{n} = or i32 {'%seen' if n == 0 else f'%any{n - 1}'}, %rare{n}"]
    # The search computes all of the formula as written here; what the answer does not need, LLVM removes.
    look = [re.sub(r"%([vxao])(\d+)\b", r"%look.\1\2", line) for line in look]
    usual = [*bodies.usual.lines, *_stores(bodies, bodies.values)]
    careful = [re.sub(r"%([vxao])(\d+)\b", r"%care.\1\2", line)
               for line in (*bodies.careful.lines, *_stores(bodies, bodies.careful_values))]
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


def _column_loop(label: str, before: str, start: str, stop: str, bodies: _Bodies, body: list[str],
                 metadata: str,
                 after: str, phis: list[str] | tuple[()] = ()) -> list[str]:
    """Blocks of IR that run `body` for columns [start, stop), entered from block `before`, left to `after`.
    """
    i = f"%{label}.i"
    loads = []
    for k, operand in enumerate(bodies.inputs):
        if operand.access != "s":
            loads += [*_address(k, operand),
                      f"  %x{k} = load {operand.llvm}, ptr %a{k}, align 1, !llvm.access.group !0"]
    if label != "column":
        loads = [re.sub(r"%([vxao])(\d+)\b", rf"%{label}.\1\2", line) for line in loads]
    lines = [re.sub(r"%i(?=,|$)", i, line) for line in (*loads, *body)]
    return [f"{label}:", f"  {i} = phi i64 [{start}, %{before}], [{i}next, %{label}]", *phis, *lines,
            f"  {i}next = add nuw nsw i64 {i}, 1", f"  %{label}.more = icmp slt i64 {i}next, {stop}",
            f"  br i1 %{label}.more, label %{label}, label %{after}, !llvm.loop {metadata}"]


def _stores(bodies: _Bodies, values: list[tuple[str, str]]) -> list[str]:
    text = []
    for k, ((llvm, name), operand) in enumerate(zip(values, bodies.outs, strict=True),
                                                start=len(bodies.inputs)):
        text += [*_address(k, operand), f"  store {llvm} {name}, ptr %a{k}, align 1, !llvm.access.group !0"]
    return text


def _pays_as_vectors(operands: list[tuple[int, Operand]]) -> str:
    return "true" if any(o.access == "c" for _, o in operands) else "false"


def _address(k: int, operand: Operand) -> list[str]:
    if operand.access == "c":
        return [f"  %a{k} = getelementptr {operand.llvm}, ptr %r{k}, i64 %i"]
    return [f"  %o{k} = mul i64 %i, %inner{k}", f"  %a{k} = getelementptr i8, ptr %r{k}, i64 %o{k}"]

