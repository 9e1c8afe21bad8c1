"""Functions with loops of their own that formulas call: each as LLVM IR for one number, and for vectors of several.

A call of a function in a loop would keep LLVM from making the loop vector code, unless it is told (by the attribute
``vector-function-abi-variant``) of functions that compute several at once. So a `Routine` is text for any number of lanes, whose
loop goes on while it does for any of them.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from flambeau_kernels.scalar.symbols import Block, Kind, Symbol, literal

WIDTHS = (2, 4, 8, 16)
_TYPE = re.compile(r"(?<![\w.%])(double|float|i\d+)\b")
_TYPE_OR_NUMBER = re.compile(_TYPE.pattern + r"|(?<=[ (])(?:0x[0-9A-F]{16}|-?\d+|true|false)(?![\w.])")
_SUFFIX = re.compile(r"(?<=\.)([fi]\d+)(?=[.(])")


class Lanes:
    """So many numbers of `kind` side by side: how IR calls their types, and what it takes to say. `scales`: as `Block`."""

    def __init__(self, kind: Kind, count: int, scales: bool = False):
        self.kind, self.count, self.scales = kind, count, scales
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

    def lines(self, lines: Iterable[str]) -> list[str]:
        """Straight-line code of a block, or its declarations of intrinsics, with as many values side by side in the place of each.

        For calls all whose operands vary: no tables, and no intrinsics with settings.
        """
        return [self._line(line) for line in lines] if self.count > 1 else list(lines)

    def _line(self, line: str) -> str:
        def widened(found: re.Match[str]) -> str:
            if found[1]:
                return f"<{self.count} x {found[1]}>"
            kind = [*_TYPE.finditer(line, 0, found.start())][-1][1]
            return f"splat ({kind} {found[0]})"

        return _TYPE_OR_NUMBER.sub(widened, _SUFFIX.sub(rf"v{self.count}\1", line))

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
        widest: whether it is so long that there is one form for vectors alone, that of the machine's widest; formulas that call it
            are computed in as many lanes.
    """

    def __init__(self, name: str, arguments: int, body: Callable[[Lanes], tuple[str, set[str]]], cost: int, widest: bool = False):
        self.name, self.arguments, self.body, self.cost, self.widest = name, arguments, body, cost, widest

    def __call__(self, *args: Symbol) -> Symbol:
        kind, block = args[0].kind, args[0].block
        attribute = ""
        if block.careful:                             # which is no vector code, and the only form there is on a device
            name = self._define(block, kind, 1)
        else:
            form = "_ZGV_LLVM_N{}" + "v" * self.arguments + "_{}({})"
            widths = [n for n in WIDTHS if block.register_bits // 2 <= n * kind.bits <= block.register_bits]
            if self.widest:
                widths, block.in_lanes = widths[-1:], widths[-1]
                name = self._define_by(block, kind, widths[-1])
            else:
                name = self._define(block, kind, 1)
            variants = ",".join(form.format(n, name, self._define(block, kind, n)) for n in widths)
            attribute = f' "vector-function-abi-variant"="{variants}"'
        values = ", ".join(f"{kind.llvm} {a.name}" for a in args)
        return block.emit(kind, f"call {kind.llvm} @{name}({values}) nounwind willreturn memory(none){attribute}", self.cost)

    def _define(self, block: Block, kind: Kind, count: int) -> str:
        lanes = Lanes(kind, count, block.scales)
        name = f"flambeau_{self.name}_{kind.llvm}" + (f"_v{count}" if count > 1 else "")
        body, declarations = self.body(lanes)
        block.needs |= declarations - {""}
        parameters = ", ".join(f"{lanes.t} %a{k}" for k in range(self.arguments))
        # Not inlined: LLVM looks for vector forms where it sees calls.
        block.needs.add(f"define {lanes.t} @{name}({parameters}) noinline nounwind willreturn memory(none) {{\n{body}}}")
        return name


    def _define_by(self, block: Block, kind: Kind, count: int) -> str:
        """The form for one number by that for `count`: LLVM calls the latter in its place, so it is there for the sake of a name."""
        name, of = f"flambeau_{self.name}_{kind.llvm}", Lanes(kind, count)
        parameters = ", ".join(f"{kind.llvm} %a{k}" for k in range(self.arguments))
        lines = []
        for k in range(self.arguments):
            lines.append(f"  %one{k} = insertelement {of.t} poison, {kind.llvm} %a{k}, i32 0")
            lines.append(f"  %all{k} = shufflevector {of.t} %one{k}, {of.t} poison, <{count} x i32> zeroinitializer")
        given = ", ".join(f"{of.t} %all{k}" for k in range(self.arguments))
        lines += [f"  %made = call {of.t} @{name}_v{count}({given})", f"  %first = extractelement {of.t} %made, i32 0"]
        body = "\n".join([*lines, f"  ret {kind.llvm} %first", ""])
        block.needs.add(f"define {kind.llvm} @{name}({parameters}) noinline nounwind willreturn memory(none) {{\n{body}}}")
        return name


def written_once(name: str, arguments: int, function: Callable[..., Symbol], kind: Kind) -> Routine:
    """The routine that computes what `function` of so many numbers of `kind` does, which is long straight-line code (see `Lanes.lines`)."""

    def body(lanes: Lanes) -> tuple[str, set[str]]:
        block = Block(kind, lanes.scales, careful=lanes.count == 1)  # of one number: nothing of it is vector code
        result = function(*(Symbol(block, f"%a{k}", kind) for k in range(arguments)))
        lines = [*lanes.lines(block.lines), f"  ret {lanes.t} {result.name}"]
        return "\n".join(lines) + "\n", set(lanes.lines(sorted(block.needs)))

    block = Block(kind)
    function(*(Symbol(block, f"%a{k}", kind) for k in range(arguments)))
    return Routine(name, arguments, body, block.cost // (kind.bits // 32), widest=True)
