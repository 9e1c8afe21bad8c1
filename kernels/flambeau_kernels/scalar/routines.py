"""Functions with loops of their own that formulas call: each as LLVM IR for one number, and for vectors of several.

A call of a function in a loop would keep LLVM from making the loop vector code, unless it is told (by the attribute
``vector-function-abi-variant``) of functions that compute several at once. So a `Routine` is text for any number of lanes, whose
loop goes on while it does for any of them.
"""
from __future__ import annotations

from collections.abc import Callable

from flambeau_kernels.scalar.symbols import Block, Kind, Symbol, literal

WIDTHS = (2, 4, 8, 16)


class Lanes:
    """So many numbers of `kind` side by side: how IR calls their types, and what it takes to say."""

    def __init__(self, kind: Kind, count: int):
        self.kind, self.count = kind, count
        one = count == 1
        self.t = kind.llvm if one else f"<{count} x {kind.llvm}>"
        self.c = "i1" if one else f"<{count} x i1>"
        self.intrinsic = ("" if one else f"v{count}") + ("f" if kind.family == "f" else "i") + str(kind.bits)

    def all(self, number: int) -> str:
        """The integer `number` in every lane."""
        return str(number) if self.count == 1 else f"splat ({self.kind.llvm} {number})"

    def real(self, number: float) -> str:
        """The float `number` in every lane."""
        text = literal(number, self.kind)
        return text if self.count == 1 else f"splat ({self.kind.llvm} {text})"

    def any(self, name: str, of: str) -> tuple[str, str]:
        """An instruction by which `name` says whether any lane of `of` holds, and what has to be declared for it."""
        if self.count == 1:
            return f"  {name} = or i1 {of}, false", ""
        reduce = f"i1 @llvm.vector.reduce.or.v{self.count}i1({self.c}"
        return f"  {name} = call {reduce} {of})", f"declare {reduce})"


class Routine:
    """A function of `arguments` numbers of one kind.

    Args:
        body: ``body(lanes)`` gives the instructions, from the label ``entry`` on, of a function of %a0, %a1, ..., and the
            declarations they need.
        cost: as that of `Block.emit`.
    """

    def __init__(self, name: str, arguments: int, body: Callable[[Lanes], tuple[str, set[str]]], cost: int):
        self.name, self.arguments, self.body, self.cost = name, arguments, body, cost

    def __call__(self, *args: Symbol) -> Symbol:
        kind, block = args[0].kind, args[0].block
        name = self._define(block, kind, 1)
        told = ""
        if not block.careful:                         # which is no vector code, and the only form there is on a device
            form = "_ZGV_LLVM_N{}" + "v" * self.arguments + "_{}({})"
            widths = [n for n in WIDTHS if 128 <= n * kind.bits <= 512]
            variants = ",".join(form.format(n, name, self._define(block, kind, n)) for n in widths)
            told = f' "vector-function-abi-variant"="{variants}"'
        values = ", ".join(f"{kind.llvm} {a.name}" for a in args)
        return block.emit(kind, f"call {kind.llvm} @{name}({values}) nounwind willreturn memory(none){told}", self.cost)

    def _define(self, block: Block, kind: Kind, count: int) -> str:
        lanes = Lanes(kind, count)
        name = f"flambeau_{self.name}_{kind.llvm}" + (f"_v{count}" if count > 1 else "")
        body, declarations = self.body(lanes)
        block.needs |= declarations - {""}
        parameters = ", ".join(f"{lanes.t} %a{k}" for k in range(self.arguments))
        # Not inlined: LLVM looks for vector forms where it sees calls.
        block.needs.add(f"define {lanes.t} @{name}({parameters}) noinline nounwind willreturn memory(none) {{\n{body}}}")
        return name
