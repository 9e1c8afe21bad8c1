"""The elementwise kernel around a formula: each thread computes every so-many-th element (a grid-stride loop).

The element with number `i`, counted along the merged dimensions of `engine.launching.plan`, is found in each operand by dividing `i`
into places along the dimensions; an operand that is contiguous as a whole needs none of that. Numbers among the operands are
arguments of the kernel. How the scalar formula is traced, and how dtypes are widened and narrowed, is `engine.launching.loops`' as on
the CPU; the careful form of a formula with rare arguments is the only one here, its rare part behind a branch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from flambeau_kernels.engine.launching import loops
from flambeau_kernels.engine.launching.loops import Operand
from flambeau_kernels.scalar.complexes import PARTS

from . import functions
from .program import Program, phase

__all__ = ["THREADS", "Walk", "address", "indices", "kernel", "load", "places", "store"]

THREADS = 256


@dataclass(frozen=True, slots=True)
class Walk:
    """How a kernel finds elements: so many merged dimensions, 32-bit or 64-bit arithmetic, and per operand its access.

    Access is 'w' (contiguous as a whole), 'n' (a number, given as an argument), or 'g' (by its strides along the dimensions).
    """

    dims: int
    wide: bool
    access: str

    @property
    def index(self) -> str:
        return "i64" if self.wide else "i32"


def kernel(name: str, function: Callable[..., object], inputs: tuple[Operand, ...], outs: tuple[Operand, ...], compute: str,
           walk: Walk) -> Program:  # fmt: skip
    """The kernel that runs `function` (bound to the compiled words) in `compute` over the operands.

    Arguments: one address per array and one or two slots per number, inputs first; the number of elements; the lengths of all
    dimensions but the outermost, outermost first; the strides of each 'g' operand in bytes, outermost first.
    Raises: Unsupported, naming what kernels cannot express.
    """
    loops.check_dtypes(inputs, outs, compute)
    block, values = loops.trace(name, function, inputs, outs, compute, scales=False, careful=True)
    lines, lacking = functions.complete(block.lines)
    operands = (*inputs, *outs)
    slots = _slots(operands, walk)
    index = walk.index
    body = []
    for k, operand in enumerate(inputs):
        if walk.access[k] == "n":
            body += _number(k, operand)
    body += indices(slots, walk.wide)
    to = "zext i32 {} to i64" if walk.wide else "add i32 {}, 0"
    body += [f"  %c = {to.format('%ctaid')}", f"  %t = {to.format('%tid')}", f"  %b = {to.format('%ntid')}",
             f"  %g = {to.format('%nctaid')}", f"  %first0 = mul {index} %c, %b", f"  %first = add {index} %first0, %t",
             f"  %step = mul {index} %g, %b", f"  %some = icmp ult {index} %first, %n.i", "  br i1 %some, label %loop, label %done",
             "loop:", f"  %i = phi {index} [%first, %entry], [%i.next, %loop]"]  # fmt: skip
    if "g" in walk.access:
        body += places("%i", "l", walk.dims, index)
    for k, operand in enumerate(inputs):
        if walk.access[k] != "n":
            body += [*address(k, operand, walk), *load(operand, f"%a{k}", loops.raw_names(k, operand))]
    body += lines
    for k, (names, operand) in enumerate(zip(values, outs, strict=True), start=len(inputs)):
        body += [*address(k, operand, walk), *store(operand, f"%a{k}", names)]
    body += [f"  %i.next = add {index} %i, %step", f"  %more = icmp ult {index} %i.next, %n.i",
             "  br i1 %more, label %loop, label %done", "done:", "  ret void"]  # fmt: skip
    symbol = re.sub(r"\W", "_", f"{name}_{compute}")
    text = phase("all", slots, body)
    return Program(symbol, slots, frozenset(block.needs), text, (("all", 0),), frozenset(lacking), threads=THREADS)


def _slots(operands: tuple[Operand, ...], walk: Walk) -> tuple[tuple[str, str], ...]:
    slots = []
    for k, operand in enumerate(operands):
        if walk.access[k] == "n":
            slots += [("i64", f"number{k}"), *([("i64", f"imag{k}")] if operand.dtype in PARTS else [])]
        else:
            slots.append(("ptr", f"p{k}"))
    slots.append(("i64", "n"))
    if "g" in walk.access:
        slots += [("i64", f"l{d}") for d in range(1, walk.dims)]
    slots += [("i64", f"s{k}_{d}") for k, access in enumerate(walk.access) if access == "g" for d in range(walk.dims)]
    return tuple(slots)


def indices(slots: tuple[tuple[str, str], ...], wide: bool) -> list[str]:
    """Lengths, strides and counts among `slots` in the arithmetic that places are found in, as ``%<slot>.i``."""
    convert = "add i64 %{0}, 0" if wide else "trunc i64 %{0} to i32"
    own = [slot for kind, slot in slots if kind == "i64" and not slot.startswith(("number", "imag"))]
    return [f"  %{slot}.i = {convert.format(slot)}" for slot in own]


def _number(k: int, operand: Operand) -> list[str]:
    """A number that is an argument, as if it had been loaded: its bits are the lowest of a slot."""
    lines = []
    for slot, name in zip(("number", "imag"), loops.raw_names(k, operand)[: 1 + (operand.dtype in PARTS)], strict=False):
        kind = operand.llvm
        bits = {"half": 16, "float": 32, "double": 64}.get(kind) or int(kind[1:])
        cut = f"trunc i64 %{slot}{k} to i{bits}" if bits < 64 else f"add i64 %{slot}{k}, 0"
        if kind[0] == "i":
            lines.append(f"  {name} = {cut}")
        else:
            lines += [f"  %{slot}{k}.bits = {cut}", f"  {name} = bitcast i{bits} %{slot}{k}.bits to {kind}"]
    return lines


def places(of: str, lengths: str, dims: int, index: str, prefix: str = "d") -> list[str]:
    """Divide the number `of` into places ``%<prefix>0``, ... along `dims` dimensions of lengths ``%<lengths>1.i``, ..."""
    lines = []
    rest = of
    for d in range(dims - 1, 0, -1):
        lines += [f"  %{prefix}{d} = urem {index} {rest}, %{lengths}{d}.i", f"  %{prefix}q{d} = udiv {index} {rest}, %{lengths}{d}.i"]
        rest = f"%{prefix}q{d}"
    return [*lines, f"  %{prefix}0 = add {index} {rest}, 0"]


def address(k: int, operand: Operand, walk: Walk) -> list[str]:
    """The address of operand `k` at the element whose places are ``%d0``, ..."""
    index = walk.index
    if walk.access[k] == "w":
        widened = "%i" if walk.wide else f"%w{k}"
        lines = [] if walk.wide else [f"  %w{k} = zext i32 %i to i64"]
        return [*lines, f"  %a{k} = getelementptr inbounds {operand.element}, ptr %p{k}, i64 {widened}"]
    lines = []
    for d in range(walk.dims):
        lines.append(f"  %m{k}_{d} = mul {index} %d{d}, %s{k}_{d}.i")
        lines.append(f"  %o{k}_{d} = add {index} %m{k}_{d}, {f'%o{k}_{d - 1}' if d else 0}")
    offset = f"%o{k}_{walk.dims - 1}"
    if not walk.wide:
        lines.append(f"  %w{k} = sext i32 {offset} to i64")
        offset = f"%w{k}"
    return [*lines, f"  %a{k} = getelementptr i8, ptr %p{k}, i64 {offset}"]


def load(operand: Operand, at: str, names: tuple[str, str]) -> list[str]:
    """Load the element at `at`, with the imaginary part beside it if it has one."""
    lines = [f"  {names[0]} = load {operand.llvm}, ptr {at}"]
    if operand.dtype in PARTS:
        lines += [f"  {at}.im = getelementptr {operand.llvm}, ptr {at}, i64 1", f"  {names[1]} = load {operand.llvm}, ptr {at}.im"]
    return lines


def store(operand: Operand, at: str, names: list[str]) -> list[str]:
    """Store `names`, a value or its two parts, at `at`."""
    lines = [f"  store {operand.llvm} {names[0]}, ptr {at}"]
    if operand.dtype in PARTS:
        lines += [f"  {at}.im = getelementptr {operand.llvm}, ptr {at}, i64 1", f"  store {operand.llvm} {names[1]}, ptr {at}.im"]
    return lines
