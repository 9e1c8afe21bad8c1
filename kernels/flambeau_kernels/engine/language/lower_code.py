"""What lowering writes into: a function body in the making, and the values that are not numbers (see `lower.py`)."""
from __future__ import annotations

from types import FunctionType

from flambeau_kernels.engine.launching import loops
from flambeau_kernels.scalar.symbols import F32, KINDS, Block, Kind, Symbol

PTR = Kind("pointer", "ptr", 64, "p")
HALVES = ("float16", "bfloat16")


class NotInLanguage(TypeError):
    """A kernel uses what the kernel language does not have; the message names file and line."""


class Pointer:
    """The address of elements of `dtype`: numpy's name of it, or a vector kind."""

    __slots__ = ("address", "dtype")

    def __init__(self, address: Symbol, dtype: str | Kind):
        self.address, self.dtype = address, dtype

    @property
    def llvm(self) -> str:
        if isinstance(self.dtype, Kind):
            return self.dtype.llvm
        return loops.Operand(self.dtype, "c").llvm

    @property
    def kind(self) -> Kind:
        """What an element is once it is loaded."""
        if isinstance(self.dtype, Kind):
            return self.dtype
        return F32 if self.dtype in HALVES else KINDS[self.dtype]


class Outlined:
    """A function that is to be called, not inlined."""

    __slots__ = ("function",)

    def __init__(self, function: FunctionType):
        self.function = function


class Variable:
    """A stack slot of one kind; `dtype` is set where it holds a pointer."""

    __slots__ = ("dtype", "kind", "slot")

    def __init__(self, slot: str, kind: Kind, dtype: str | Kind | None):
        self.slot, self.kind, self.dtype = slot, kind, dtype


class Code(Block):
    """A function body in the making: basic blocks, stack slots, and the flags of the moment."""

    has_jumps = True                                  # whether `branch` and `label` can be asked for

    def __init__(self, scales: bool):
        super().__init__(F32, scales, careful=True)
        self.slots: list[str] = []
        self.open = True                              # whether the current basic block still lacks its end
        self.flags = ""
        self.calls = 0                                # of functions, so far
        self.group = ""                               # metadata of loads and stores in an independent loop
        self.count = 0
        self.metadata: list[str] = []

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def emit(self, kind: Kind, text: str, cost: int = 1) -> Symbol:
        if self.flags and text[0] == "f" and text.split(" ", 1)[0] in ("fadd", "fsub", "fmul", "fdiv"):
            name, rest = text.split(" ", 1)
            text = f"{name} {self.flags} {rest}"
        key = (text, kind)
        symbol = self._written.get(key)
        if symbol is None:
            symbol = self.instruction(kind, text)
            self._written[key] = symbol
        return symbol

    def instruction(self, kind: Kind, text: str) -> Symbol:
        """As `emit`, for what must not be shared: loads and calls with effects."""
        name = self.fresh("%v")
        self.lines.append(f"  {name} = {text}")
        return Symbol(self, name, kind)

    def effect(self, text: str) -> None:
        self.lines.append("  " + text)

    def label(self, name: str) -> None:
        if self.open:
            self.lines.append(f"  br label %{name}")
        self.lines.append(f"{name}:")
        self._written.clear()
        self.open = True

    def branch(self, text: str) -> None:
        if self.open:
            self.lines.append("  br " + text)
        self.open = False

    def slot(self, llvm: str, count: int = 1) -> str:
        name = self.fresh("%s")
        # An array as one value: passes that take variables apart look at no others.
        self.slots.append(f"  {name} = alloca {llvm if count == 1 else f'[{count} x {llvm}]'}, align 64")
        return name

    def node(self, text: str) -> str:
        """A metadata node, with ``{self}`` standing for its own name."""
        name = f"!{len(self.metadata)}"
        self.metadata.append(f"{name} = {text.replace('{self}', name)}")
        return name


def say(value: object) -> str:
    """What a message calls a value."""
    if isinstance(value, Symbol):
        return value.kind.name
    return f"a pointer to {value.dtype}" if isinstance(value, Pointer) else repr(value)
