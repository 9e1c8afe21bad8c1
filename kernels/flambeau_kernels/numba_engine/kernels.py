"""Kernels of the kernel language as Python functions for numba: what `engine/language/lower.py` is for the llvm engine.

The syntax tree of a kernel is walked by the same `Lowering`, which writes the same instructions; conditions, loops and variables
become Python's own here. Between two of these stands one call of an intrinsic (`blocks.py`), which has the instructions.

What one call leaves to another one, variables and values, lies in memory of the function, as it does in the llvm engine's text: LLVM
makes registers of it in no time, where each variable of Python's costs several passes of numba. Only counters of loops, their bounds
and conditions are Python's.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from flambeau_kernels.engine.language import Construct, VectorKind
from flambeau_kernels.engine.language.lower import Lowering
from flambeau_kernels.engine.language.lower_code import PTR, Code, Pointer, Variable, say
from flambeau_kernels.engine.machine_code import llvm
from flambeau_kernels.numba_engine import functions
from flambeau_kernels.numba_engine.blocks import SHARED, intrinsic
from flambeau_kernels.numba_engine.functions import Function
from flambeau_kernels.scalar.symbols import BOOL, F64, I64, Kind, Symbol

__all__ = ["PythonCode", "PythonLowering", "Run", "address", "function"]


def address(kernel: FunctionType, symbol: str, types: dict[str, Any], constants: dict[str, Any]) -> int:
    """Where numba's code of the kernel is, ``void f(i64 chunk, ptr arguments)``, as `engine.launching.call.address` has it."""
    made = function(kernel, symbol, types, constants)
    if llvm.is_shown(kernel.__name__):
        print(made.shown(), file=sys.stderr)
    return functions.compiled(made, functions.TASK)


def function(kernel: FunctionType, symbol: str, types: dict[str, Any], constants: dict[str, Any]) -> Function:
    """The kernel as Python, for arguments of `types` (as `engine.language.lower.module_text` takes them) in slots of eight bytes."""
    machine = llvm.machine()
    code = PythonCode(machine.scales)
    lowering = PythonLowering(code, kernel, machine.register_bits)
    scope: dict[str, Any] = dict(constants)
    first, *_ = inspect.signature(kernel).parameters
    lowering.bind(scope, first, Symbol(code, "%chunk", I64))
    for k, (name, kind) in enumerate(types.items()):
        meant = {int: I64, float: F64}.get(kind, PTR)
        place = code.instruction(PTR, f"getelementptr i64, ptr %arguments, i64 {k}")
        value = code.instruction(meant, f"load {meant.llvm}, ptr {place.name}")
        lowering.bind(scope, name, value if meant is not PTR else Pointer(value, kind))
    lowering.function_body(kernel, scope)
    return code.function(symbol)


@dataclass
class Run:
    """Instructions that run one after the other, and where their call stands in the text.

    Attributes:
        reads: names given to what variables hold before the run.
        sets: names, or constants, of what variables hold after it.
        made: kinds of the values made in it, by name.
        asked: names of values that the statement after it reads.
        counter: of the loop that the run stands first in, or None.
    """

    indent: int
    lines: list[str] = field(default_factory=list)
    reads: dict[str, str] = field(default_factory=dict)
    sets: dict[str, str] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)
    asked: dict[str, None] = field(default_factory=dict)
    counter: str | None = None


_NAME = re.compile(r"%[A-Za-z_][\w.]*")


class PythonCode(Code):
    """A function for numba in the making: the text of its statements, and runs of instructions between them."""

    def __init__(self, scales: bool) -> None:
        super().__init__(scales)
        self.indent = 1
        self.run = Run(1)
        self.text: list[Run | tuple[int, str]] = [self.run]
        self.kinds: dict[str, str] = {"%chunk": "i64", "%arguments": "ptr"}
        self.memory: list[str] = []

    # Instructions
    def instruction(self, kind: Kind, text: str) -> Symbol:
        name = self.fresh("%v")
        self.run.lines.append(f"  {name} = {text}")
        # What is loaded has the type that the instruction says; `kind` may be what it is going to mean.
        llvm_type = text[5:].partition(", ptr")[0] if text.startswith("load ") else kind.llvm
        self.run.made[name] = self.kinds[name] = llvm_type
        return Symbol(self, name, kind)

    def effect(self, text: str) -> None:
        self.run.lines.append("  " + text)

    def slot(self, llvm: str, count: int = 1) -> str:
        """A variable of the text, which holds one value of the LLVM type `llvm`."""
        name = self.fresh("x")
        self.kinds[name] = llvm
        return name

    def array(self, llvm: str, count: int) -> Symbol:
        """Memory of this call."""
        name = self.fresh("%memory")
        self.memory.append(f"  {name} = alloca {llvm if count == 1 else f'[{count} x {llvm}]'}, align 64")
        self.kinds[name] = "ptr"
        return Symbol(self, name, PTR)

    def get(self, variable: Variable) -> Symbol:
        slot = variable.slot
        name = self.run.sets.get(slot) or self.run.reads.get(slot)
        if name is None:
            name = self.run.reads[slot] = self.fresh("%x")
            self.run.made[name] = self.kinds[name] = variable.kind.llvm
        return Symbol(self, name, variable.kind)

    def set(self, variable: Variable, value: Symbol) -> None:
        self.run.sets[variable.slot] = value.name

    has_jumps = False

    def label(self, name: str) -> None:
        raise AssertionError("numba has no jumps")

    def branch(self, text: str) -> None:
        raise AssertionError("numba has no jumps")

    # Statements
    def statement(self, text: str, deeper: int = 0) -> None:
        """A line of the text; what follows is indented by `deeper` more."""
        self.text.append((self.indent, text))
        self.indent += deeper
        self._begin()

    def end(self) -> None:
        """The end of an indented part."""
        self.text.append((self.indent, "pass"))
        self.indent -= 1
        self._begin()

    def name_of(self, value: Symbol) -> str:
        """`value` in a statement after this run."""
        if not value.name.startswith("%"):
            value = self.instruction(value.kind, f"bitcast {value.kind.llvm} {value.name} to {value.kind.llvm}")
        self.run.asked[value.name] = None
        return value.name[1:]

    def _begin(self) -> None:
        self.run = Run(self.indent)
        self.text.append(self.run)
        self._written.clear()

    def function(self, symbol: str) -> Function:
        """The whole text, once it is known what runs leave to each other."""
        runs = [one for one in self.text if isinstance(one, Run)]
        wanted = {slot for run in runs for slot in run.reads}
        given = {"%chunk", "%arguments"}
        left = {name for run in runs for name in _used(run, wanted) - run.made.keys() - given if not name.startswith("%memory")}
        held = [*wanted, *(name[1:] for name in left)]
        memory = [line.replace(line.split()[0], _place(line.split()[0][1:]), 1) for line in self.memory]
        memory += [f"  {_place(name)} = alloca {self.kinds.get(name) or self.kinds['%' + name]}" for name in sorted(held)]
        intrinsics: dict[str, Any] = {}
        comments: list[str] = []
        lines = [f"def {symbol}(chunk, arguments):"]
        if memory:
            self._write("memory", [], memory, [], True, intrinsics, comments)
            lines.append("    memory()")
        for one in self.text:
            if isinstance(one, Run):
                self._call(one, wanted, left, intrinsics, lines, comments)
            else:
                lines.append("    " * one[0] + one[1])
        return Function(symbol, "\n".join(lines) + "\n", intrinsics, "\n".join(comments))

    def _call(
        self, run: Run, wanted: set[str], left: set[str], intrinsics: dict[str, Any], lines: list[str], comments: list[str]
    ) -> None:
        """Write the call of what has the instructions of `run`."""
        used = _used(run, wanted)
        body = [f"  {name} = load {self.kinds[name]}, ptr {_place(slot)}" for slot, name in run.reads.items()]
        body += [f"  {name} = load {self.kinds[name]}, ptr {_place(name[1:])}" for name in sorted((used & left) - run.made.keys())]
        inputs = [name for name in ("%chunk", "%arguments") if name in used]
        if run.counter in wanted:
            inputs.append(f"%{run.counter}")
            body.insert(0, f"  store i64 %{run.counter}, ptr {_place(run.counter)}")
        body += [_MEMORY.sub(lambda found: _place(found[0][1:]), line) for line in run.lines]
        body += [f"  store {self.kinds[slot]} {_placed(value)}, ptr {_place(slot)}" for slot, value in run.sets.items() if slot in wanted]
        body += [f"  store {kind} {name}, ptr {_place(name[1:])}" for name, kind in run.made.items() if name in left]
        if not body:
            return
        name = f"part{len(intrinsics)}"
        self._write(name, inputs, body, list(run.asked), False, intrinsics, comments)
        call = f"{name}({', '.join(n[1:] for n in inputs)})"
        to = ", ".join(n[1:] for n in run.asked)
        lines.append("    " * run.indent + (f"{to} = {call}" if to else call))

    def _write(
        self, name: str, inputs: list[str], body: list[str], outs: list[str], at_entry: bool, intrinsics: dict[str, Any],
        comments: list[str],
    ) -> None:
        kinds = {n: self.kinds.get(n) or "i64" for n in (*inputs, *outs)}
        intrinsics[name] = intrinsic(name, [(n, kinds[n]) for n in inputs], body, self.needs, [(n, kinds[n]) for n in outs], at_entry)
        head = f"# {name}({', '.join(f'{kinds[n]} {n}' for n in inputs)}) -> {', '.join(outs)}"
        comments += [head, *(f"# {line}" for line in body), ""]


_MEMORY = re.compile(r"%memory\d+\b")


def _used(run: Run, wanted: set[str]) -> set[str]:
    """Names of values that `run` needs."""
    used = {name for line in run.lines for name in _NAME.findall(line)} | run.asked.keys()
    return used | {name for slot, name in run.sets.items() if slot in wanted and name.startswith("%")}


def _place(name: str) -> str:
    """Where the memory called `name` begins."""
    return f"{SHARED}{name}"


def _placed(value: str) -> str:
    return _place(value[1:]) if _MEMORY.fullmatch(value) else value


class PythonLowering(Lowering):
    """As `Lowering`, with Python's conditions, loops and variables."""

    code: PythonCode

    # Values
    def set(self, variable: Variable, value: Any, name: str) -> None:
        if variable.dtype is not None:
            if not isinstance(value, Pointer) or value.dtype != variable.dtype:
                self.refuse(f"{name} is a pointer to {variable.dtype} and cannot hold {say(value)}")
            value = value.address
        self.code.set(variable, self.as_kind(value, variable.kind, name))

    def get(self, variable: Variable) -> Any:
        value = self.code.get(variable)
        return value if variable.dtype is None else Pointer(value, variable.dtype)

    def call_local(self, kind: Kind | str, count: int) -> Pointer:
        dtype: str | Kind = kind if isinstance(kind, (VectorKind, str)) else kind.name
        probe = Pointer(Symbol(self.code, "", PTR), dtype)
        return Pointer(self.code.array(probe.llvm, count), dtype)

    def call_function_outlined(self, function: FunctionType, args: list[Any], keywords: dict[str, Any]) -> None:
        if self.call_function(function, args, keywords) is not None:
            self.refuse(f"{function.__name__} has a result, so it cannot be called apart")

    # Statements
    def choose(self, condition: Symbol) -> None:
        self.code.statement(f"if {self.code.name_of(self.truth(condition))}:", 1)

    def otherwise(self) -> None:
        self.code.end()
        self.code.statement("else:", 1)

    def do_If(self, s: ast.If) -> None:
        condition = self.value(s.test)
        if not isinstance(condition, Symbol):
            self.statements(s.body if condition else s.orelse)
            return
        self.choose(condition)
        self.statements(s.body)
        if s.orelse:
            self.otherwise()
            self.statements(s.orelse)
        self.code.end()

    def do_While(self, s: ast.While) -> None:
        code = self.code
        code.statement("while True:", 1)
        condition = self.value(s.test)
        if isinstance(condition, Symbol):
            code.statement(f"if not {code.name_of(self.truth(condition))}: break")
        elif not condition:
            code.statement("break")
        self.loops.append(("continue", "break"))
        self.statements(s.body)
        self.loops.pop()
        code.end()

    def jump(self, which: int) -> None:
        if not self.loops:
            self.refuse("break and continue belong to loops that run (unrolled ones have none)")
        self.code.statement(self.loops[-1][which])

    def counted(self, s: ast.For, bounds: list[Symbol], how: Construct | None, times: int) -> None:
        code = self.code
        assert isinstance(s.target, ast.Name)
        counter = Variable(code.slot("i64"), I64, None)
        code.statement(f"for {counter.slot} in range({', '.join(code.name_of(b.to(I64)) for b in bounds)}):", 1)
        self.after_for(counter.slot)
        self.scope[s.target.id] = counter
        self.loops.append(("continue", "break"))
        self.statements(s.body)
        self.loops.pop()
        code.end()

    def after_for(self, counter: str) -> None:
        """What stands first in a loop."""
        self.code.run.counter = counter

    def enter_group(self, how: Construct | None) -> str:
        return ""

    # Expressions
    def of_BoolOp(self, node: ast.BoolOp) -> Any:
        is_and = isinstance(node.op, ast.And)
        first, rest = self.undecided(node)
        if not rest:
            return first
        code = self.code
        answer = Variable(code.slot("i1"), BOOL, None)
        self.set(answer, self.truth(first), "the answer")
        for node_k in rest:
            known = self.get(answer)
            self.choose(known if is_and else ~known)
            self.set(answer, self.truth(self.value(node_k)), "the answer")
        for _ in rest:
            code.end()
        return self.get(answer)

    def of_IfExp(self, node: ast.IfExp) -> Any:
        condition = self.value(node.test)
        if not isinstance(condition, Symbol):
            return self.value(node.body if condition else node.orelse)
        scope: dict[str, Any] = {}
        self.choose(condition)
        self.bind(scope, "one", self.value(node.body))
        self.otherwise()
        self.bind(scope, "one", self.value(node.orelse))
        self.code.end()
        return self.get(scope["one"])
