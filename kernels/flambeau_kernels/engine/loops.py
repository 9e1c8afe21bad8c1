"""The loop around a formula, as LLVM IR text.

A kernel is ``void kernel(ptr pointers, i64 n0, i64 n1, ptr strides)``: `n1` rows of `n0` elements, n0, n1 >= 1.
`pointers` has one address per operand, inputs first; `strides` has the inner and then the outer byte stride of each.
How an operand moves along a row is part of the kernel: `c`ontiguous, `s`calar (one value per row) or `g`eneral
stride. Inputs are converted from the dtype they are stored in to the kind the formula computes in, results to the
dtype of their output; half types are widened by instructions or shifts and rounded to nearest even.
"""
from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from flambeau_kernels.scalar import symbols as sy
from flambeau_kernels.scalar.symbols import BOOL, F32, F64, I32, INT, KINDS, UINT, Block, Symbol, Unsupported, select

_STORED = {"bool": "i8", "float16": "half", "bfloat16": "i16", **{k: v.llvm for k, v in KINDS.items() if k != "bool"}}


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
    block = Block(KINDS[compute], scales)
    arguments = [_widen(block, f"%x{k}", operand, KINDS[compute]) for k, operand in enumerate(inputs)]
    results = function(*arguments)
    results = results if isinstance(results, tuple) else (results,)
    if len(results) != len(outs):
        raise ValueError(f"{name}: the formula has {len(results)} results, {len(outs)} outputs were given")
    values = [_narrow(_as_symbol(block, r), o) for r, o in zip(results, outs, strict=True)]
    symbol = re.sub(r"\W", "_", f"{name}_{compute}")
    return Kernel(symbol, _loop_text(symbol, block, values, inputs, outs), block.cost)


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


def _loop_text(symbol: str, block: Block, values: list[tuple[str, str]],
               inputs: tuple[Operand, ...], outs: tuple[Operand, ...]) -> str:
    operands = (*inputs, *outs)
    numbered = list(enumerate(operands))
    text = [*sorted(block.needs),
            f"define void @{symbol}(ptr noalias readonly %pointers, i64 %n0, i64 %n1, ptr noalias readonly %strides) {{",
            "entry:"]
    for k, _ in numbered:
        text += [f"  %pp{k} = getelementptr ptr, ptr %pointers, i64 {k}", f"  %p{k} = load ptr, ptr %pp{k}",
                 f"  %is{k} = getelementptr i64, ptr %strides, i64 {2 * k}", f"  %inner{k} = load i64, ptr %is{k}",
                 f"  %os{k} = getelementptr i64, ptr %strides, i64 {2 * k + 1}", f"  %outer{k} = load i64, ptr %os{k}"]
    text += ["  br label %row", "row:", "  %j = phi i64 [0, %entry], [%jnext, %rowend]"]
    text += [f"  %r{k} = phi ptr [%p{k}, %entry], [%rnext{k}, %rowend]" for k, _ in numbered]
    text += [f"  %x{k} = load {o.llvm}, ptr %r{k}, align 1" for k, o in enumerate(inputs) if o.access == "s"]
    text += ["  br label %column", "column:", "  %i = phi i64 [0, %row], [%inext, %column]"]
    for k, operand in enumerate(inputs):
        if operand.access != "s":
            text += [*_address(k, operand),
                     f"  %x{k} = load {operand.llvm}, ptr %a{k}, align 1, !llvm.access.group !0"]
    text += block.lines
    for k, ((llvm, name), operand) in enumerate(zip(values, outs, strict=True), start=len(inputs)):
        text += [*_address(k, operand), f"  store {llvm} {name}, ptr %a{k}, align 1, !llvm.access.group !0"]
    text += ["  %inext = add nuw nsw i64 %i, 1", "  %more = icmp slt i64 %inext, %n0",
             "  br i1 %more, label %column, label %rowend, !llvm.loop !1", "rowend:"]
    text += [f"  %rnext{k} = getelementptr i8, ptr %r{k}, i64 %outer{k}" for k, _ in numbered]
    text += ["  %jnext = add nuw nsw i64 %j, 1", "  %again = icmp slt i64 %jnext, %n1",
             "  br i1 %again, label %row, label %done", "done:", "  ret void", "}",
             # Iterations do not depend on each other, also where an output is one of the inputs; the order
             # of loads and stores within an iteration stays. So there is no need for a second, in-place kernel.
             "!0 = distinct !{}", '!1 = distinct !{!1, !2, !3}', '!2 = !{!"llvm.loop.parallel_accesses", !0}',
             f'!3 = !{{!"llvm.loop.vectorize.enable", i1 {_pays_as_vectors(operands)}}}']
    return "\n".join(text) + "\n"


def _pays_as_vectors(operands: tuple[Operand, ...]) -> str:
    return "true" if any(o.access == "c" for o in operands) else "false"


def _address(k: int, operand: Operand) -> list[str]:
    if operand.access == "c":
        return [f"  %a{k} = getelementptr {operand.llvm}, ptr %r{k}, i64 %i"]
    return [f"  %o{k} = mul i64 %i, %inner{k}", f"  %a{k} = getelementptr i8, ptr %r{k}, i64 %o{k}"]

