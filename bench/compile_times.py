"""What compiling kernels costs: `python bench/compile_times.py program.py [arguments]`.

The program runs with the object cache off, so that each of its kernels is compiled; afterwards a table says, for
every object, how many milliseconds of a processor its lowering to LLVM IR, LLVM's optimisation and its code
generation took, and how many instructions the optimisation left; the last words of a line say where loops that were to be vectors
are none.
The last line has the totals, and how many objects took longer than `LIMIT` milliseconds, which none should on a quiet machine.
``-m module`` runs a module (``-m pytest tests/kernels/products/test_matmul.py`` compiles what those tests need) and
``-c text`` runs text.
"""
from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence

from flambeau_kernels.engine.machine_code import llvm

LIMIT = 100  # milliseconds


def table(compiled: Sequence[llvm.Compiled]) -> str:
    """One line per object, the slowest first, and their total."""
    head = f"{'ms':>7} {'write':>7} {'opt':>7} {'codegen':>7} {'IR KB':>7} {'instr':>7} {'obj KB':>7}  kernel"
    slow = sum(1e3 * _seconds(c) > LIMIT for c in compiled)
    total = llvm.Compiled(
        f"{len(compiled)} objects, {slow} of them above {LIMIT} ms", sum(c.writing for c in compiled), sum(c.optimising for c in compiled),
        sum(c.emitting for c in compiled), sum(c.text_bytes for c in compiled), sum(c.object_bytes for c in compiled),
        sum(c.scalar for c in compiled), sum(c.instructions for c in compiled))
    return "\n".join([head, *map(_line, sorted(compiled, key=_seconds, reverse=True)), _line(total)])


def _seconds(c: llvm.Compiled) -> float:
    return c.writing + c.optimising + c.emitting


def _line(c: llvm.Compiled) -> str:
    refused = f", {c.scalar} loops in no vectors" if c.scalar else ""
    times = " ".join(f"{1e3 * t:7.1f}" for t in (_seconds(c), c.writing, c.optimising, c.emitting))
    return f"{times} {c.text_bytes / 1024:7.1f} {c.instructions:7} {c.object_bytes / 1024:7.1f}  {c.name}{refused}"


def main(arguments: list[str]) -> None:
    os.environ["FLAMBEAU_CACHE"] = "off"
    if not arguments:
        raise SystemExit(__doc__)
    llvm.watch = True
    how, rest = (arguments[0], arguments[1:]) if arguments[0] in ("-m", "-c") else ("", arguments)
    sys.argv, sys.path[0] = rest, "" if how else os.path.dirname(os.path.abspath(rest[0]))  # as Python has them
    try:
        if how == "-m":
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        elif how == "-c":
            exec(compile(rest[0], "<text>", "exec"), {"__name__": "__main__"})
        else:
            runpy.run_path(rest[0], run_name="__main__")
    finally:                                          # programs end by SystemExit
        print(table(llvm.compiled))


if __name__ == "__main__":
    main(sys.argv[1:])
