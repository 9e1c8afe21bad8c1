"""A writer of LLVM IR functions with loops and conditions, for code that is mostly addresses and vectors.

Variables are stack slots, which LLVM turns into registers; so the writer needs neither phi nodes nor names that
are known in advance.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flambeau_kernels.engine.machine_code import llvm

NO_LOOP_PASSES = "!0"                                 # the loop is written as it shall run

METADATA = """
!0 = distinct !{!0, !1, !2}
!1 = !{!"llvm.loop.vectorize.enable", i1 false}
!2 = !{!"llvm.loop.unroll.disable"}
"""


def compiled(symbol: str, facts: object, text: Callable[[], str]) -> int:
    """Address of function `symbol` of the module `text()`, which `facts` and the modules of this folder decide.

    Writing a text takes twenty times as long as loading what was made of it.
    """
    return llvm.compile_lazily(_all_facts(symbol, facts), text, symbol, llvm.WRITTEN)


def is_kept(symbol: str, facts: object) -> bool:
    """Whether `compiled` would find the function in the cache."""
    return llvm.is_cached(_all_facts(symbol, facts), llvm.WRITTEN)


def _all_facts(symbol: str, facts: object) -> str:
    return f"{symbol}|{facts}|{_sources()}"


@functools.cache
def _sources() -> str:
    """Changes with the modules of this folder."""
    with os.scandir(os.path.dirname(os.path.abspath(__file__))) as entries:
        return repr(sorted((e.name, e.stat().st_size, e.stat().st_mtime_ns) for e in entries if e.name.endswith(".py")))


class Function:
    """One function in the making; every method that computes returns the name of its value."""

    def __init__(self, signature: str) -> None:
        self._head = f"define {signature} {{"
        self._slots: list[str] = []
        self._lines: list[str] = []
        self._names = 0

    def text(self) -> str:
        return "\n".join([self._head, "entry:", *self._slots, "  br label %body", "body:", *self._lines, "}", ""])

    def fresh(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def do(self, *instructions: str) -> None:
        self._lines += [f"  {instruction}" for instruction in instructions]

    def let(self, instruction: str) -> str:
        name = self.fresh("%t")
        self.do(f"{name} = {instruction}")
        return name

    def label(self, name: str) -> None:
        self._lines.append(f"{name}:")

    # -- integers ----------------------------------------------------------------------------------------------

    def add(self, a: str | int, b: str | int) -> str:
        return self.let(f"add i64 {a}, {b}")

    def sub(self, a: str | int, b: str | int) -> str:
        return self.let(f"sub i64 {a}, {b}")

    def mul(self, a: str | int, b: str | int) -> str:
        return self.let(f"mul i64 {a}, {b}")

    def div(self, a: str | int, b: str | int) -> str:
        return self.let(f"udiv i64 {a}, {b}")

    def rem(self, a: str | int, b: str | int) -> str:
        return self.let(f"urem i64 {a}, {b}")

    def least(self, a: str | int, b: str | int) -> str:
        return self.let(f"call i64 @llvm.smin.i64(i64 {a}, i64 {b})")

    def compare(self, how: str, a: str | int, b: str | int) -> str:
        return self.let(f"icmp {how} i64 {a}, {b}")

    def both(self, *conditions: str) -> str:
        made = conditions[0]
        for condition in conditions[1:]:
            made = self.let(f"and i1 {made}, {condition}")
        return made

    def bit(self, flags: str, bit: int) -> str:
        return self.compare("ne", self.let(f"and i64 {flags}, {bit}"), 0)

    # -- memory ------------------------------------------------------------------------------------------------

    def variable(self, kind: str) -> str:
        """A stack slot; read with `load`, written with `store`."""
        name = self.fresh("%v")
        self._slots.append(f"  {name} = alloca {kind}")
        return name

    def at(self, base: str, offset: str | int, kind: str = "i8") -> str:
        """The address `offset` elements of `kind` (bytes by default) behind `base`."""
        return self.let(f"getelementptr {kind}, ptr {base}, i64 {offset}")

    def load(self, kind: str, pointer: str, align: int | None = None) -> str:
        return self.let(f"load {kind}, ptr {pointer}" + (f", align {align}" if align else ""))

    def store(self, kind: str, value: str | int, pointer: str, align: int | None = None) -> None:
        self.do(f"store {kind} {value}, ptr {pointer}" + (f", align {align}" if align else ""))

    def field(self, table: str, index: int, kind: str = "i64") -> str:
        """Slot `index` of a table of 64-bit words."""
        return self.load(kind, self.at(table, index, "i64"))

    # -- control -----------------------------------------------------------------------------------------------

    @contextmanager
    def loop(self, low: str | int, high: str | int, step: str | int = 1) -> Iterator[str]:
        """Run the body with the counter, from `low` while it is below `high`."""
        counter, name = self.variable("i64"), self.fresh("loop")
        self.store("i64", low, counter)
        self.do(f"br label %{name}.head")
        self.label(f"{name}.head")
        i = self.load("i64", counter)
        self.do(f"br i1 {self.compare('slt', i, high)}, label %{name}.body, label %{name}.end")
        self.label(f"{name}.body")
        yield i
        self.store("i64", self.add(i, step), counter)
        self.do(f"br label %{name}.head, !llvm.loop {NO_LOOP_PASSES}")
        self.label(f"{name}.end")

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """Run the body if `condition` (an i1) holds."""
        name = self.fresh("if")
        self.do(f"br i1 {condition}, label %{name}.then, label %{name}.end")
        self.label(f"{name}.then")
        yield
        self.do(f"br label %{name}.end")
        self.label(f"{name}.end")

    @contextmanager
    def unless(self, condition: str) -> Iterator[None]:
        """Run the body if `condition` does not hold."""
        name = self.fresh("if")
        self.do(f"br i1 {condition}, label %{name}.end, label %{name}.else")
        self.label(f"{name}.else")
        yield
        self.do(f"br label %{name}.end")
        self.label(f"{name}.end")
