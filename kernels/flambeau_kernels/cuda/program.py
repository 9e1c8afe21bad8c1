"""A kernel between its formula and its code: phases of LLVM IR, and the module they become for the device or the simulator.

A phase is what every thread does between two barriers: a function of its place ``(tid, ctaid, ntid, nctaid)``, the block's
shared memory, a constant `span` of the phase's own, and the kernel's arguments, each of 8 bytes. For the device an entry reads
its place from the special registers and calls the phases with barriers between them. For the simulator an entry on the host
runs every phase for the threads of a block in turn, block after block, so the text of the phases is the same in both.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import functions

__all__ = ["Program", "device_text", "host_text", "phase"]

_PLACE = "i32 %tid, i32 %ctaid, i32 %ntid, i32 %nctaid, ptr %shared, i32 %span"


@dataclass(frozen=True, slots=True)
class Program:
    """A kernel text.

    Attributes: `slots`, the type of each argument, ``ptr`` or ``i64``, and its name in the phases; `needs`, declarations;
    `functions`, the text of the phases; `phases`, their names and spans in order; `lacking`, names from `functions` that they call;
    `shared`, bytes of memory each block shares; `threads` of a block.
    """

    symbol: str
    slots: tuple[tuple[str, str], ...]
    needs: frozenset[str]
    functions: str
    phases: tuple[tuple[str, int], ...]
    lacking: frozenset[str] = frozenset()
    shared: int = 0
    threads: int = 256


def phase(name: str, slots: tuple[tuple[str, str], ...], body: list[str]) -> str:
    """The text of a phase."""
    arguments = "".join(f", {kind} %{slot}" for kind, slot in slots)
    return "\n".join([f"define internal void @{name}({_PLACE}{arguments}) alwaysinline {{", "entry:", *body, "}"])


def _common(program: Program) -> str:
    text, needs = functions.definitions(set(program.lacking))
    return "\n".join([*sorted(program.needs | needs), text, program.functions])


def device_text(program: Program) -> str:
    """The module whose function `program.symbol` is a kernel of the device."""
    parameters = ", ".join(f"{kind} %{slot}" for kind, slot in program.slots)
    given = "".join(f", {kind} %{slot}" for kind, slot in program.slots)
    registers = {"tid": "tid.x", "ctaid": "ctaid.x", "ntid": "ntid.x", "nctaid": "nctaid.x"}
    lines = [_common(program), *(f"declare i32 @llvm.nvvm.read.ptx.sreg.{r}()" for r in registers.values())]
    shared = "null"
    if program.shared:
        lines += [f"@block = internal addrspace(3) global [{program.shared} x i8] undef, align 16", "declare void @llvm.nvvm.barrier0()"]
    lines += [f"define ptx_kernel void @{program.symbol}({parameters}) {{", "entry:"]
    lines += [f"  %{name} = call i32 @llvm.nvvm.read.ptx.sreg.{register}()" for name, register in registers.items()]
    if program.shared:
        lines.append("  %shared = addrspacecast ptr addrspace(3) @block to ptr")
        shared = "%shared"
    place = f"i32 %tid, i32 %ctaid, i32 %ntid, i32 %nctaid, ptr {shared}"
    for at, (name, span) in enumerate(program.phases):
        if at:
            lines.append("  call void @llvm.nvvm.barrier0()")
        lines.append(f"  call void @{name}({place}, i32 {span}{given})")
    return "\n".join([*lines, "  ret void", "}", ""])


def host_text(program: Program) -> str:
    """The module whose ``void symbol(ptr arguments, i32 blocks, i32 threads)`` does on the host what a launch does."""
    lines = [_common(program), f"define void @{program.symbol}(ptr %arguments, i32 %nctaid, i32 %ntid) {{", "entry:"]
    for at, (kind, slot) in enumerate(program.slots):
        lines += [f"  %slot.{at} = getelementptr i64, ptr %arguments, i64 {at}", f"  %{slot} = load {kind}, ptr %slot.{at}"]
    lines += [f"  %shared = alloca [{max(program.shared, 16)} x i8], align 16", "  br label %block",
              "block:", "  %ctaid = phi i32 [0, %entry], [%ctaid.next, %blockend]", "  br label %phase0"]
    given = "".join(f", {kind} %{slot}" for kind, slot in program.slots)
    for at, (name, span) in enumerate(program.phases):
        after = f"phase{at + 1}" if at + 1 < len(program.phases) else "blockend"
        lines += [f"phase{at}:", f"  br label %thread{at}", f"thread{at}:",
                  f"  %tid{at} = phi i32 [0, %phase{at}], [%tid{at}.next, %thread{at}]",
                  f"  call void @{name}(i32 %tid{at}, i32 %ctaid, i32 %ntid, i32 %nctaid, ptr %shared, i32 {span}{given})",
                  f"  %tid{at}.next = add nuw i32 %tid{at}, 1", f"  %tid{at}.more = icmp ult i32 %tid{at}.next, %ntid",
                  f"  br i1 %tid{at}.more, label %thread{at}, label %{after}"]
    lines += ["blockend:", "  %ctaid.next = add nuw i32 %ctaid, 1", "  %more = icmp ult i32 %ctaid.next, %nctaid",
              "  br i1 %more, label %block, label %done", "done:", "  ret void", "}", ""]
    return "\n".join(lines)
