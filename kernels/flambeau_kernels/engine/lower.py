"""From the syntax tree of a kernel (see `language.py`) to LLVM IR text.

`module_text` is the interface. A `Lowering` walks the statements of one kernel and writes into one `Code`:
straight-line values are the `Symbol`s that formulas use, so every elementary function works here as well;
variables are stack slots, which LLVM turns into registers.
"""
from __future__ import annotations

import ast
import builtins
import functools
import inspect
import math
import operator
import textwrap
from collections.abc import Callable, Iterable
from types import BuiltinFunctionType, FunctionType
from typing import Any, NoReturn

from flambeau_kernels.engine import language as lg
from flambeau_kernels.engine import loops
from flambeau_kernels.engine.language import Construct, VectorKind, vector_kind
from flambeau_kernels.scalar import symbols as sy
from flambeau_kernels.scalar.symbols import (
    BOOL,
    F32,
    F64,
    I64,
    INT,
    KINDS,
    Block,
    Kind,
    Symbol,
    literal,
    select,
)
from flambeau_kernels.scalar.words import READING
from flambeau_kernels.vocabulary import Word

PTR = Kind("pointer", "ptr", 64, "p")
_HALVES = ("float16", "bfloat16")
_C_FUNCTIONS = frozenset(("cos", "exp", "lgamma", "log", "log1p", "pow", "sin", "tan"))
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift}
_COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq), ast.NotEq: ("!=", operator.ne), ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le), ast.Gt: (">", operator.gt), ast.GtE: (">=", operator.ge)}
_PREDICATES = {"==": ("oeq", "eq"), "!=": ("une", "ne"), "<": ("olt", "slt"), "<=": ("ole", "sle"),
               ">": ("ogt", "sgt"), ">=": ("oge", "sge")}


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
        return F32 if self.dtype in _HALVES else KINDS[self.dtype]


class Apart:
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

    def __init__(self, scales: bool):
        super().__init__(F32, scales, careful=True)
        self.slots: list[str] = []
        self.open = True                              # whether the current basic block still lacks its end
        self.flags = ""
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
        self.slots.append(f"  {name} = alloca {llvm}, i64 {count}, align 64")
        return name

    def node(self, text: str) -> str:
        """A metadata node, with ``{self}`` standing for its own name."""
        name = f"!{len(self.metadata)}"
        self.metadata.append(f"{name} = {text.replace('{self}', name)}")
        return name


def module_text(function: FunctionType, symbol: str, types: dict[str, Any], constants: dict[str, Any],
                aliased: bool, scales: bool, register_bits: int) -> str:
    """A module with ``void symbol(i64 chunk, ptr arguments)``, the arguments in slots of eight bytes.

    Args:
        types: for each parameter but the first and the constants: the name of a dtype (a pointer to it), or
            ``int`` or ``float``.
    """
    code = Code(scales)
    lowering = Lowering(code, function, register_bits)
    scope: dict[str, Any] = dict(constants)
    first, *_ = inspect.signature(function).parameters
    parameters = [("i64", "%chunk")]
    lowering.bind(scope, first, Symbol(code, "%chunk", I64))
    loads = []
    for k, (name, kind) in enumerate(types.items()):
        llvm = {int: "i64", float: "double"}.get(kind, "ptr")
        loads += [f"  %p{k} = getelementptr i64, ptr %arguments, i64 {k}", f"  %a{k} = load {llvm}, ptr %p{k}"]
        parameters.append((llvm if llvm != "ptr" or aliased else "ptr noalias", f"%a{k}"))
        value = Symbol(code, f"%a{k}", {int: I64, float: F64}.get(kind, PTR))
        lowering.bind(scope, name, value if llvm != "ptr" else Pointer(value, kind))
    lowering.function_body(function, scope)
    code.branch("label %leave")
    code.label("leave")
    signature = ", ".join(f"{llvm} {name}" for llvm, name in parameters)
    call = ", ".join(f"{llvm.split()[0]} {name}" for llvm, name in parameters)
    text = [*sorted(code.needs), *lowering.apart, f"define internal void @body({signature}) alwaysinline {{", "entry:", *code.slots,
            *code.lines, "  ret void", "}", f"define void @{symbol}(i64 %chunk, ptr noalias %arguments) {{", *loads,
            f"  call void @body({call})", "  ret void", "}", *code.metadata]
    return "\n".join(text) + "\n"


class Lowering:
    """Lowers the functions of one kernel into `code`."""

    def __init__(self, code: Code, function: FunctionType, register_bits: int):
        self.code = code
        self.register_bits = register_bits
        self.at: tuple[FunctionType, int] = (function, 0)
        self.loops: list[tuple[str, str]] = []        # labels of continue and break
        self.depth = 0
        self.scope: dict[str, Any] = {}
        self.function = function
        self.apart: list[str] = []                    # texts of functions that are not inlined
        self.names_apart: dict[tuple[Any, ...], str] = {}

    def refuse(self, what: str) -> NoReturn:
        function, line = self.at
        raise NotInLanguage(f"{function.__code__.co_filename}:{line}, in kernel code {function.__name__}: {what}")

    # Functions
    def function_body(self, function: FunctionType, scope: dict[str, Any]) -> Any:
        """Lower the body of `function`; its result is that of the `return` at its end."""
        tree, first = _tree(function)
        outside, loops_outside = self.at, self.loops
        self.depth += 1
        if self.depth > 30:
            self.refuse("functions cannot call themselves")
        before = self.scope, self.function
        self.scope, self.function = scope, function
        self.loops = []
        result = None
        for statement in tree.body:
            self.at = (function, first + statement.lineno - 1)
            if isinstance(statement, ast.Return):
                result = None if statement.value is None else self.read(statement.value)
            else:
                self.statement(statement)
        self.at, self.loops = outside, loops_outside
        self.scope, self.function = before
        self.depth -= 1
        return result

    def call_function(self, function: FunctionType, args: list[Any], keywords: dict[str, Any]) -> Any:
        try:
            bound = inspect.signature(function).bind(*args, **keywords)
        except TypeError as error:
            self.refuse(f"{function.__name__}: {error}")
        bound.apply_defaults()
        scope: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            self.bind(scope, name, value)
        return self.function_body(function, scope)

    def call_apart(self, function: FunctionType) -> Apart:
        return Apart(function)

    def call_function_apart(self, function: FunctionType, args: list[Any], keywords: dict[str, Any]) -> None:
        """Call `function` as one of its own, made on the first call with these kinds and constants."""
        bound = inspect.signature(function).bind(*args, **keywords)
        bound.apply_defaults()
        arguments: dict[str, Any] = {
            name: self.number(v) if isinstance(v, (bool, int, float)) and not name.isupper() else v
            for name, v in bound.arguments.items()}
        passed = {name: v for name, v in arguments.items() if isinstance(v, (Symbol, Pointer))}
        key = (function, *((name, v.dtype if isinstance(v, Pointer) else v.kind if name in passed else v, type(v))
                           for name, v in arguments.items()))
        if key not in self.names_apart:
            self.names_apart[key] = f"@apart{len(self.names_apart)}"
            self.apart += self.lines_apart(self.names_apart[key], function, arguments)
        values = [v.address if isinstance(v, Pointer) else v for v in passed.values()]
        given = ", ".join(f"{v.kind.llvm} {v.name}" for v in values)
        self.code.effect(f"call void {self.names_apart[key]}({given})")

    def lines_apart(self, symbol: str, function: FunctionType, arguments: dict[str, Any]) -> list[str]:
        code = Code(self.code.scales)
        code.needs, code.metadata = self.code.needs, self.code.metadata
        inner = Lowering(code, function, self.register_bits)
        inner.apart, inner.names_apart, inner.depth = self.apart, self.names_apart, self.depth
        scope: dict[str, Any] = {}
        parameters = []
        for name, value in arguments.items():
            if isinstance(value, Pointer):
                parameters.append(f"ptr noalias %{name}")
                inner.bind(scope, name, Pointer(Symbol(code, f"%{name}", PTR), value.dtype))
            elif isinstance(value, Symbol):
                parameters.append(f"{value.kind.llvm} %{name}")
                inner.bind(scope, name, Symbol(code, f"%{name}", value.kind))
            else:
                inner.bind(scope, name, value)
        if inner.function_body(function, scope) is not None:
            inner.refuse(f"{function.__name__} has a result, so it cannot be called apart")
        code.branch("label %leave")
        code.label("leave")
        return [f"define internal void {symbol}({', '.join(parameters)}) noinline {{", "entry:", *code.slots, *code.lines,
                "  ret void", "}"]

    # Statements
    def statements(self, body: Iterable[ast.stmt]) -> None:
        for statement in body:
            self.statement(statement)

    def statement(self, s: ast.stmt) -> None:
        self.at = (self.function, _tree(self.function)[1] + s.lineno - 1)
        method = getattr(self, "do_" + type(s).__name__, None)
        if method is None:
            self.refuse(f"{type(s).__name__} is not in the kernel language")
        method(s)

    def do_Expr(self, s: ast.Expr) -> None:
        if not isinstance(s.value, ast.Constant):     # a docstring
            self.value(s.value)

    def do_Pass(self, s: ast.Pass) -> None:
        pass

    def do_Assign(self, s: ast.Assign) -> None:
        value = self.read(s.value)
        for target in s.targets:
            self.assign(target, value)

    def do_AugAssign(self, s: ast.AugAssign) -> None:
        value = self.binary(s.op, self.target_value(s.target), self.read(s.value))
        self.assign(s.target, value)

    def target_value(self, target: ast.expr) -> Any:
        return self.read(ast.copy_location(
            ast.Name(target.id, ast.Load()) if isinstance(target, ast.Name)
            else ast.Subscript(target.value, target.slice, ast.Load()) if isinstance(target, ast.Subscript)
            else target, target))

    def assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Tuple):
            for part, one in zip(target.elts, value, strict=True):
                self.assign(part, one)
        elif isinstance(target, ast.Subscript):
            self.store(self.read(target.value), self.read(target.slice), value)
        elif isinstance(target, ast.Name):
            self.bind(self.scope, target.id, value)
        else:
            self.refuse("only names, elements and tuples of them are assigned to")

    def bind(self, scope: dict[str, Any], name: str, value: Any) -> None:
        """Give `name` a value: a variable for what exists at run time, else a constant."""
        held = scope.get(name)
        if isinstance(held, Variable):
            self.set(held, value, name)
            return
        if isinstance(value, (bool, int, float)) and not name.isupper():
            value = self.number(value)
        if isinstance(value, Pointer):
            variable = Variable(self.code.slot("ptr"), PTR, value.dtype)
        elif isinstance(value, Symbol):
            variable = Variable(self.code.slot(value.kind.llvm), value.kind, None)
        else:
            scope[name] = value
            return
        scope[name] = variable
        self.set(variable, value, name)

    def set(self, variable: Variable, value: Any, name: str) -> None:
        if variable.dtype is not None:
            if not isinstance(value, Pointer) or value.dtype != variable.dtype:
                self.refuse(f"{name} is a pointer to {variable.dtype} and cannot hold {_say(value)}")
            value = value.address
        value = self.as_kind(value, variable.kind, name)
        self.code.effect(f"store {variable.kind.llvm} {value.name}, ptr {variable.slot}")

    def as_kind(self, value: Any, kind: Kind, name: str) -> Symbol:
        """`value` as `kind`, where that is the same kind or a Python number."""
        if isinstance(value, (bool, int, float)):
            return self.constant(value, kind)
        if isinstance(value, Symbol) and value.kind == kind:
            return value
        return self.refuse(f"{name} is {kind.name} and cannot hold {_say(value)}; convert it first")

    def do_If(self, s: ast.If) -> None:
        condition = self.value(s.test)
        if not isinstance(condition, Symbol):
            self.statements(s.body if condition else s.orelse)
            return
        code = self.code
        yes, no, after = code.fresh("yes"), code.fresh("no"), code.fresh("after")
        code.branch(f"i1 {self.truth(condition).name}, label %{yes}, label %{no if s.orelse else after}")
        code.label(yes)
        self.statements(s.body)
        code.branch(f"label %{after}")
        if s.orelse:
            code.label(no)
            self.statements(s.orelse)
            code.branch(f"label %{after}")
        code.label(after)

    def do_While(self, s: ast.While) -> None:
        code = self.code
        head, body, after = code.fresh("while"), code.fresh("body"), code.fresh("after")
        code.branch(f"label %{head}")
        code.label(head)
        condition = self.value(s.test)
        if isinstance(condition, Symbol):
            code.branch(f"i1 {self.truth(condition).name}, label %{body}, label %{after}")
        code.label(body)
        self.loops.append((head, after))
        self.statements(s.body)
        self.loops.pop()
        code.branch(f"label %{head}")
        code.label(after)

    def do_Return(self, s: ast.Return) -> None:
        self.refuse("return stands at the end of a function")

    def do_Break(self, s: ast.Break) -> None:
        self.jump(1)

    def do_Continue(self, s: ast.Continue) -> None:
        self.jump(0)

    def jump(self, which: int) -> None:
        if not self.loops:
            self.refuse("break and continue belong to loops that run (unrolled ones have none)")
        self.code.branch(f"label %{self.loops[-1][which]}")
        self.code.label(self.code.fresh("unreached"))

    def do_With(self, s: ast.With) -> None:
        call = s.items[0].context_expr
        if not isinstance(call, ast.Call) or self.value(call.func) is not lg.flags:
            self.refuse("with is for flags(...)")
        before = self.code.flags
        self.code.flags = " ".join([before, *(self.value(a) for a in call.args)]).strip()
        self.statements(s.body)
        self.code.flags = before

    def do_For(self, s: ast.For) -> None:
        steps, how, times = s.iter, None, 1
        if isinstance(steps, ast.Call) and self.value(steps.func) in (lg.unroll, lg.independent, lg.rolled, lg.repeated):
            how = self.value(steps.func)
            if how is lg.unroll:
                for value in self.value(steps.args[0]):
                    self.bind_constant(s.target, value)
                    self.statements(s.body)
                return
            times = self.value(steps.args[1]) if how is lg.repeated else 1
            steps = steps.args[0]
        if not isinstance(steps, ast.Call) or self.value(steps.func) is not range or s.orelse:
            self.refuse("for runs over range(...), unroll(...), or a range in independent, rolled or repeated")
        self.counted(s, [self.number(self.value(a)) for a in steps.args], how, times)

    def bind_constant(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Tuple):
            for part, one in zip(target.elts, value, strict=True):
                self.bind_constant(part, one)
        else:
            assert isinstance(target, ast.Name)
            self.scope[target.id] = value

    def counted(self, s: ast.For, bounds: list[Symbol], how: Construct | None, times: int) -> None:
        code = self.code
        start, stop, step = {1: lambda b: (self.number(0), b, self.number(1)),
                             2: lambda a, b: (a, b, self.number(1)), 3: lambda a, b, c: (a, b, c)}[len(bounds)](*bounds)
        assert isinstance(s.target, ast.Name)
        counter = Variable(code.slot("i64"), I64, None)
        head, body, again, after = (code.fresh(n) for n in ("loop", "body", "again", "after"))
        self.set(counter, start, s.target.id)
        code.branch(f"label %{head}")
        code.label(head)
        i = self.get(counter)
        code.branch(f"i1 {(i < stop).name}, label %{body}, label %{after}")
        code.label(body)
        self.scope[s.target.id] = counter
        group = code.group
        metadata = self.loop_metadata(how, times)
        self.loops.append((again, after))
        self.statements(s.body)
        self.loops.pop()
        code.group = group
        code.label(again)
        following = code.instruction(I64, f"add nsw i64 {self.get(counter).name}, {step.name}")
        self.set(counter, following, s.target.id)
        code.branch(f"label %{head}{metadata}")
        code.label(after)

    def loop_metadata(self, how: Construct | None, times: int) -> str:
        code = self.code
        if how is lg.repeated:
            code.group = ""
            count = code.node(f'!{{!"llvm.loop.unroll.count", i32 {times}}}')
            return f", !llvm.loop {code.node(f'distinct !{{{{self}}, {count}}}')}"
        if how is not lg.independent:
            code.group = ""
            if how is None:
                return ""
            once = code.node('!{!"llvm.loop.unroll.disable"}')
            single = code.node('!{!"llvm.loop.vectorize.enable", i1 false}')
            return f", !llvm.loop {code.node(f'distinct !{{{{self}}, {once}, {single}}}')}"
        group = code.node("distinct !{}")
        parallel = code.node(f'!{{!"llvm.loop.parallel_accesses", {group}}}')
        enable = code.node('!{!"llvm.loop.vectorize.enable", i1 true}')
        loop = code.node(f"distinct !{{{{self}}, {parallel}, {enable}}}")
        code.group = f", !llvm.access.group {group}"
        return f", !llvm.loop {loop}"

    # Memory
    def get(self, variable: Variable) -> Any:
        value = self.code.instruction(variable.kind, f"load {variable.kind.llvm}, ptr {variable.slot}")
        return value if variable.dtype is None else Pointer(value, variable.dtype)

    def offset(self, pointer: Pointer, index: Any) -> Symbol:
        i = self.index(index)
        return self.code.emit(PTR, f"getelementptr {pointer.llvm}, ptr {pointer.address.name}, i64 {i.name}")

    def index(self, value: Any) -> Symbol:
        if isinstance(value, int):
            return self.constant(value, I64)
        if isinstance(value, Symbol) and value.kind.family in "iub":
            return value.to(I64)
        return self.refuse(f"an index is an integer, got {_say(value)}")

    def load(self, pointer: Any, index: Any) -> Symbol:
        if not isinstance(pointer, Pointer):
            self.refuse(f"only pointers have elements, got {_say(pointer)}")
        address = self.offset(pointer, index)
        align = "" if isinstance(pointer.dtype, VectorKind) else ", align 1"
        text = f"load {pointer.llvm}, ptr {address.name}{align}{self.code.group}"
        if isinstance(pointer.dtype, Kind):
            return self.code.instruction(pointer.dtype, text)
        # The type of the raw value is written by `text`; what it means is told by the dtype.
        raw = self.code.instruction(PTR, text)
        return loops._widen_real(self.code, raw.name, loops.Operand(pointer.dtype, "c"))

    def store(self, pointer: Any, index: Any, value: Any) -> None:
        if not isinstance(pointer, Pointer):
            self.refuse(f"only pointers have elements, got {_say(pointer)}")
        value = self.as_kind(value, pointer.kind, "an element")
        name = value.name
        if isinstance(pointer.dtype, str):
            name = loops._narrow_real(value, loops.Operand(pointer.dtype, "c"))
        align = "" if isinstance(pointer.dtype, VectorKind) else ", align 1"
        address = self.offset(pointer, index)
        self.code.effect(f"store {pointer.llvm} {name}, ptr {address.name}{align}{self.code.group}")

    # Expressions
    def read(self, node: ast.expr) -> Any:
        return self.value(node)

    def value(self, node: ast.expr) -> Any:
        method = getattr(self, "of_" + type(node).__name__, None)
        if method is None:
            self.refuse(f"{type(node).__name__} is not in the kernel language")
        return method(node)

    def of_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def of_Tuple(self, node: ast.Tuple) -> Any:
        return tuple(self.value(e) for e in node.elts)

    def of_List(self, node: ast.List) -> Any:
        return [self.value(e) for e in node.elts]

    def of_Name(self, node: ast.Name) -> Any:
        function = self.function
        if node.id in self.scope:
            held = self.scope[node.id]
            return self.get(held) if isinstance(held, Variable) else held
        if function.__closure__ and node.id in function.__code__.co_freevars:
            return function.__closure__[function.__code__.co_freevars.index(node.id)].cell_contents
        if node.id in function.__globals__:
            return function.__globals__[node.id]
        if hasattr(builtins, node.id):
            return getattr(builtins, node.id)
        return self.refuse(f"the name {node.id} is not defined")

    def of_Attribute(self, node: ast.Attribute) -> Any:
        owner = self.value(node.value)
        if isinstance(owner, (Symbol, Pointer)):
            self.refuse("values have no attributes")
        return getattr(owner, node.attr)

    def of_Subscript(self, node: ast.Subscript) -> Any:
        owner, index = self.value(node.value), self.value(node.slice)
        return self.load(owner, index) if isinstance(owner, Pointer) else owner[index]

    def of_UnaryOp(self, node: ast.UnaryOp) -> Any:
        value = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return ~self.truth(value) if isinstance(value, Symbol) else not value
        if isinstance(value, Symbol) and isinstance(value.kind, VectorKind) and isinstance(node.op, ast.USub):
            return self.code.emit(value.kind, f"fneg {value.kind.llvm} {value.name}")
        return {ast.USub: operator.neg, ast.Invert: operator.invert, ast.UAdd: operator.pos}[type(node.op)](value)

    def of_BinOp(self, node: ast.BinOp) -> Any:
        return self.binary(node.op, self.value(node.left), self.value(node.right))

    def binary(self, op: ast.operator, a: Any, b: Any) -> Any:
        if isinstance(a, Pointer) and isinstance(op, (ast.Add, ast.Sub)):
            return Pointer(self.offset(a, self.index(b) if isinstance(op, ast.Add) else -self.index(b)), a.dtype)
        if isinstance(a, Pointer) or isinstance(b, Pointer):
            self.refuse("pointers can only be moved by + and -")
        if any(isinstance(v, Symbol) and isinstance(v.kind, VectorKind) for v in (a, b)):
            a, b = self.as_vectors(a, b)
            name = {ast.BitAnd: "and", ast.BitOr: "or"}.get(type(op))
            if name is not None and a.kind.family != "f":
                return self.code.emit(a.kind, f"{name} {a.kind.llvm} {a.name}, {b.name}")
            name = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}.get(type(op))
            if name is None:
                self.refuse("vectors have + - * /, those of integers and truth values also & |")
            prefix = "f" if a.kind.family == "f" else ""
            return self.code.emit(a.kind, f"{prefix}{name} {a.kind.llvm} {a.name}, {b.name}")
        whole = isinstance(op, (ast.FloorDiv, ast.Mod)) and any(isinstance(v, Symbol) for v in (a, b))
        if whole:
            a, b = sy.pair(a, b)
            if a.kind.family in "iu":                 # of non-negative numbers
                name = "udiv" if isinstance(op, ast.FloorDiv) else "urem"
                return self.code.emit(a.kind, f"{name} {a.kind.llvm} {a.name}, {b.name}")
        shift = isinstance(op, (ast.LShift, ast.RShift))
        if shift and isinstance(a, Symbol) and isinstance(b, int):
            return (sy.shift_left if isinstance(op, ast.LShift) else sy.shift_right)(a, b)
        return _BINARY[type(op)](a, b)

    def as_vectors(self, *values: Any) -> list[Any]:
        kind: Any = next(v.kind for v in values if isinstance(v, Symbol) and isinstance(v.kind, VectorKind))
        return [v if isinstance(v, Symbol) and v.kind == kind else self.splat(v, kind) for v in values]

    def splat(self, value: Any, kind: Any) -> Symbol:
        one = self.as_kind(value, kind.of, "a lane")
        first = self.code.emit(kind, f"insertelement {kind.llvm} poison, {kind.of.llvm} {one.name}, i64 0")
        zeros = f"<{kind.count} x i32> zeroinitializer"
        return self.code.emit(kind, f"shufflevector {kind.llvm} {first.name}, {kind.llvm} poison, {zeros}")

    def of_Compare(self, node: ast.Compare) -> Any:
        left, result = self.value(node.left), None
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node)
            one = self.compare(op, left, right)
            result = one if result is None else (result & one)
            left = right
        return result

    def compare(self, op: ast.cmpop, a: Any, b: Any) -> Any:
        if isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
            if isinstance(a, (Symbol, Pointer)):
                return isinstance(op, (ast.IsNot, ast.NotIn))
            table = {ast.Is: operator.is_, ast.IsNot: operator.is_not, ast.In: lambda x, y: x in y,
                     ast.NotIn: lambda x, y: x not in y}
            return table[type(op)](a, b)
        sign, plain = _COMPARISONS[type(op)]
        if any(isinstance(v, Symbol) and isinstance(v.kind, VectorKind) for v in (a, b)):
            a, b = self.as_vectors(a, b)
            word = "fcmp" if a.kind.family == "f" else "icmp"
            predicate = _PREDICATES[sign][word == "icmp"]
            return self.code.emit(vector_kind(BOOL, a.kind.count),
                                  f"{word} {predicate} {a.kind.llvm} {a.name}, {b.name}")
        return plain(a, b)

    def of_BoolOp(self, node: ast.BoolOp) -> Any:
        """`and` and `or` do not look at what follows once the answer is known."""
        is_and = isinstance(node.op, ast.And)
        first = self.value(node.values[0])
        rest = node.values[1:]
        while not isinstance(first, Symbol):
            if bool(first) != is_and or not rest:
                return first
            first, rest = self.value(rest[0]), rest[1:]
        if not rest:
            return first
        code = self.code
        answer = Variable(code.slot("i1"), BOOL, None)
        self.set(answer, self.truth(first), "the answer")
        done = code.fresh("known")
        for node_k in rest:
            further = code.fresh("further")
            known = self.get(answer)
            targets = (further, done) if is_and else (done, further)
            code.branch(f"i1 {known.name}, label %{targets[0]}, label %{targets[1]}")
            code.label(further)
            self.set(answer, self.truth(self.value(node_k)), "the answer")
        code.label(done)
        return self.get(answer)

    def truth(self, value: Any) -> Symbol:
        if isinstance(value, Symbol):
            return value.to(BOOL)
        return self.constant(bool(value), BOOL)

    def of_IfExp(self, node: ast.IfExp) -> Any:
        condition = self.value(node.test)
        if not isinstance(condition, Symbol):
            return self.value(node.body if condition else node.orelse)
        code = self.code
        yes, no, after = code.fresh("yes"), code.fresh("no"), code.fresh("after")
        code.branch(f"i1 {self.truth(condition).name}, label %{yes}, label %{no}")
        code.label(yes)
        scope: dict[str, Any] = {}
        self.bind(scope, "one", self.value(node.body))
        code.branch(f"label %{after}")
        code.label(no)
        self.bind(scope, "one", self.value(node.orelse))
        code.branch(f"label %{after}")
        code.label(after)
        return self.get(scope["one"])

    # Calls
    def of_Call(self, node: ast.Call) -> Any:
        function = self.value(node.func)
        args: list[Any] = []
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                args.extend(self.value(arg.value))
            else:
                args.append(self.value(arg))
        keywords = {k.arg: self.value(k.value) for k in node.keywords if k.arg is not None}
        if isinstance(function, Apart):
            return self.call_function_apart(function.function, args, keywords)
        if isinstance(function, Construct):
            return getattr(self, "call_" + function.name)(*args, **keywords)
        if isinstance(function, Kind):
            return self.converted(args[0], function)
        if isinstance(function, Word):
            return self.word(function.name, args)
        if function in (min, max):
            return functools.reduce(functools.partial(self.smaller, function), args)
        if function is abs and isinstance(args[0], Symbol):
            return abs(args[0])
        if function in (int, float, bool) and isinstance(args[0], Symbol):
            return self.converted(args[0], {int: I64, float: F64, bool: BOOL}[function])
        if isinstance(function, FunctionType) and not _is_host(function):
            return self.call_function(function, args, keywords)
        if isinstance(function, BuiltinFunctionType) and function.__module__ == "math":
            return self.call_math(function.__name__, args)
        if any(isinstance(a, (Symbol, Pointer)) for a in args):
            self.refuse(f"{function!r} cannot be called on values of the kernel")
        return function(*args, **keywords)

    def call_math(self, name: str, args: list[Any]) -> Any:
        """Functions of the `math` module are the C library's, in float64, to the last bit."""
        if not any(isinstance(a, Symbol) for a in args):
            return getattr(math, name)(*args)
        values = [self.number(a).to(F64) for a in args]
        exact = {"sqrt": sy.sqrt, "floor": sy.floor, "ceil": sy.ceil}.get(name)
        if exact is not None:
            return exact(values[0])
        if name not in _C_FUNCTIONS:
            self.refuse(f"math.{name} is not among {', '.join(sorted(_C_FUNCTIONS))}, sqrt, floor and ceil")
        self.code.needs.add(f"declare double @{name}({', '.join(['double'] * len(values))})")
        return self.code.instruction(F64, f"call double @{name}({', '.join(f'double {v.name}' for v in values)}) nobuiltin")

    def smaller(self, function: Any, a: Any, b: Any) -> Any:
        if not isinstance(a, Symbol) and not isinstance(b, Symbol):
            return function(a, b)
        a, b = sy.pair(a, b)
        return select(b < a if function is min else b > a, b, a)

    def converted(self, value: Any, kind: Kind) -> Symbol:
        if isinstance(kind, VectorKind):
            return self.convert_vector(value, kind)
        if isinstance(value, (bool, int, float)):
            return self.constant(value, kind)
        if isinstance(value, Pointer) and kind is I64:
            return self.code.emit(I64, f"ptrtoint ptr {value.address.name} to i64")
        if not isinstance(value, Symbol):
            return self.refuse(f"{_say(value)} cannot be converted to {kind.name}")
        if kind.family == "i" and value.kind.family == "f":
            return sy.to_integer(value, kind)
        return value.to(kind)

    def convert_vector(self, value: Any, kind: VectorKind) -> Symbol:
        if not isinstance(value, Symbol) or not isinstance(value.kind, VectorKind):
            return self.splat(value, kind)
        old, new = value.kind.of, kind.of
        if old == new:
            return value
        if old.family == new.family == "f":
            word = "fpext" if new.bits > old.bits else "fptrunc"
        elif new.family == "f":
            word = "sitofp"
        elif old.family == "f":
            word = "fptosi"
        else:
            word = "trunc" if new.bits < old.bits else "sext"
        return self.code.emit(kind, f"{word} {value.kind.llvm} {value.name} to {kind.llvm}")

    def word(self, name: str, args: list[Any]) -> Any:
        vectors = [a.kind for a in args if isinstance(a, Symbol) and isinstance(a.kind, VectorKind)]
        if vectors:
            return self.vector_word(name, args)
        if name == "fma":                             # in kernels it is the instruction, rounded once
            return sy.fma(*self.symbols(args))
        return READING[name](*args)

    def symbols(self, args: list[Any]) -> list[Symbol]:
        kind = next(a.kind for a in args if isinstance(a, Symbol))
        return [a if isinstance(a, Symbol) else self.constant(a, kind) for a in args]

    def vector_word(self, name: str, args: list[Any]) -> Symbol:
        """Words that are one instruction on vectors."""
        if name == "where":
            yes, no = self.as_vectors(args[1], args[2])
            text = f"select {args[0].kind.llvm} {args[0].name}, {yes.kind.llvm} {yes.name}, {no.kind.llvm} {no.name}"
            return self.code.emit(yes.kind, text)
        found = {"fma": "fma", "minimum": "minimum", "maximum": "maximum", "fmin": "minnum", "fmax": "maxnum",
                 "abs": "fabs", "sqrt": "sqrt", "floor": "floor", "nearbyint": "nearbyint"}.get(name)
        if found is None:
            self.refuse(f"{name} of vectors")
        values = self.as_vectors(*args)
        kind: Any = values[0].kind
        full = f"@llvm.{found}.v{kind.count}f{kind.bits}"
        self.code.needs.add(f"declare {kind.llvm} {full}({', '.join([kind.llvm] * len(values))})")
        return self.code.emit(kind, f"call {kind.llvm} {full}({', '.join(f'{kind.llvm} {v.name}' for v in values)})")

    def call_local(self, kind: Kind | str, count: int) -> Pointer:
        dtype: str | Kind = kind if isinstance(kind, (VectorKind, str)) else kind.name
        probe = Pointer(Symbol(self.code, "", PTR), dtype)
        return Pointer(Symbol(self.code, self.code.slot(probe.llvm, count), PTR), dtype)

    def call_pointer(self, address: Symbol, kind: Kind | str) -> Pointer:
        name = kind.name if isinstance(kind, Kind) and not isinstance(kind, VectorKind) else kind
        return Pointer(self.code.emit(PTR, f"inttoptr i64 {self.index(address).name} to ptr"), name)

    def call_bitcast(self, value: Any, kind: Kind) -> Any:
        if isinstance(value, Pointer):
            return Pointer(value.address, kind if isinstance(kind, (VectorKind, str)) else kind.name)
        return self.code.emit(kind, f"bitcast {value.kind.llvm} {value.name} to {kind.llvm}")

    def call_prefetch(self, place: Pointer) -> None:
        self.code.needs.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.code.effect(f"call void @llvm.prefetch.p0(ptr {place.address.name}, i32 0, i32 3, i32 1)")

    def call_vector(self, kind: Kind, count: int) -> VectorKind:
        return vector_kind(kind, count)

    def call_lanes(self, kind: Kind) -> int:
        return self.register_bits // kind.bits

    def call_widened(self, place: Pointer) -> Kind:
        return place.kind

    def call_broadcast(self, value: Any, count: int) -> Symbol:
        one = value if isinstance(value, Symbol) else self.number(value)
        kind = vector_kind(one.kind, count)
        assert isinstance(kind, VectorKind)
        return self.splat(one, kind)

    def call_load(self, place: Pointer, index: Any, count: int, first: Any = None, other: Any = None) -> Symbol:
        """`count` consecutive elements, or the `first` of them beside `other` (0); half types come as float32."""
        address = self.offset(place, index)
        raw_kind = vector_kind(Kind("raw", place.llvm, 0, "i"), count)
        if first is None:
            text = f"load {raw_kind.llvm}, ptr {address.name}, align 1{self.code.group}"
            return self.widened(self.code.instruction(raw_kind, text), place, count)
        name = f"@llvm.masked.load.v{count}{_suffix(place.llvm)}.p0"
        mask = self.first_lanes(first, count)
        self.code.needs.add(f"declare {raw_kind.llvm} {name}(ptr, i32, {mask.kind.llvm}, {raw_kind.llvm})")
        text = (f"call {raw_kind.llvm} {name}(ptr {address.name}, i32 1, {mask.kind.llvm} {mask.name}, "
                f"{raw_kind.llvm} zeroinitializer)")
        value = self.widened(self.code.instruction(raw_kind, text), place, count)
        return value if other is None else self.vector_word("where", [mask, value, other])

    def widened(self, raw: Symbol, place: Pointer, count: int) -> Symbol:
        """Elements of `place` as they lie in memory, as vectors of the kind that is computed in."""
        raw_kind: Any = raw.kind
        kind = vector_kind(place.kind, count)
        if place.dtype == "float16":
            return self.code.emit(kind, f"fpext {raw_kind.llvm} {raw.name} to {kind.llvm}")
        if place.dtype == "bfloat16":
            whole = vector_kind(INT[32], count)
            wide = self.code.emit(whole, f"zext {raw_kind.llvm} {raw.name} to {whole.llvm}")
            sixteen = "<" + ", ".join(["i32 16"] * count) + ">"
            moved = self.code.emit(whole, f"shl {whole.llvm} {wide.name}, {sixteen}")
            return self.code.emit(kind, f"bitcast {whole.llvm} {moved.name} to {kind.llvm}")
        return Symbol(self.code, raw.name, kind)

    def first_lanes(self, first: Any, count: int) -> Symbol:
        """Truth values that say which of `count` lanes are among the `first`."""
        kind = vector_kind(INT[32], count)
        numbers = "<" + ", ".join(f"i32 {k}" for k in range(count)) + ">"
        limit = self.splat(self.constant(first, INT[32]) if isinstance(first, int) else first.to(INT[32]), kind)
        return self.code.emit(vector_kind(BOOL, count), f"icmp sgt {kind.llvm} {limit.name}, {numbers}")

    def call_shuffle(self, a: Symbol, b: Symbol, lanes: Any) -> Symbol:
        if not isinstance(a.kind, VectorKind) or a.kind != b.kind:
            self.refuse(f"shuffle takes two vectors of one kind, got {_say(a)} and {_say(b)}")
        chosen = ", ".join(f"i32 {k}" for k in lanes)
        return self.code.emit(vector_kind(a.kind.of, len(lanes)), f"shufflevector {a.kind.llvm} {a.name}, {b.kind.llvm} "
                              f"{b.name}, <{len(lanes)} x i32> <{chosen}>")

    def call_store(self, place: Pointer, index: Any, value: Symbol, first: Any = None) -> None:
        """Consecutive elements, or the `first` of them; half types are rounded."""
        if not isinstance(value, Symbol) or not isinstance(value.kind, VectorKind):
            self.refuse(f"store takes a vector, got {_say(value)}")
        if value.kind.of != place.kind or place.dtype == "bool":
            self.refuse(f"a vector of {value.kind.of.name} cannot be stored to {place.dtype}")
        count = value.kind.count
        if place.dtype in _HALVES:
            value = self.halved(value, place, count)
        address = self.offset(place, index)
        if first is not None:
            mask = self.first_lanes(first, count)
            name = f"@llvm.masked.store.v{count}{_suffix(place.llvm)}.p0"
            self.code.needs.add(f"declare void {name}({value.kind.llvm}, ptr, i32, {mask.kind.llvm})")
            self.code.effect(f"call void {name}({value.kind.llvm} {value.name}, ptr {address.name}, i32 1, "
                             f"{mask.kind.llvm} {mask.name})")
            return
        self.code.effect(f"store {value.kind.llvm} {value.name}, ptr {address.name}, align 1{self.code.group}")

    def halved(self, value: Symbol, place: Pointer, count: int) -> Symbol:
        """A vector of `count` float32 as the elements of `place`, rounded to nearest even."""
        code = self.code
        half = vector_kind(Kind("raw", place.llvm, 16, "i"), count)
        if place.dtype == "float16":
            return code.emit(half, f"fptrunc {value.kind.llvm} {value.name} to {half.llvm}")
        whole = vector_kind(INT[32], count)

        def step(operation: str, a: Symbol, b: Symbol | int) -> Symbol:
            other = self.constant(b, whole) if isinstance(b, int) else b
            return code.emit(whole, f"{operation} {whole.llvm} {a.name}, {other.name}")

        bits = code.emit(whole, f"bitcast {value.kind.llvm} {value.name} to {whole.llvm}")
        upper = step("lshr", bits, 16)
        rounded = step("lshr", step("add", bits, step("add", step("and", upper, 1), 0x7FFF)), 16)
        # Rounding could carry a nan's payload away; bfloat16's quiet nan keeps the sign.
        nan = code.emit(vector_kind(BOOL, count), f"fcmp uno {value.kind.llvm} {value.name}, {value.name}")
        chosen = code.emit(whole, f"select {nan.kind.llvm} {nan.name}, {whole.llvm} {step('or', upper, 0x7FC0).name}, "
                           f"{whole.llvm} {rounded.name}")
        return code.emit(half, f"trunc {whole.llvm} {chosen.name} to {half.llvm}")

    def call_lane_sum(self, value: Symbol) -> Symbol:
        kind = value.kind
        assert isinstance(kind, VectorKind)
        count, code = kind.count, self.code
        while count > 1:                              # fold the upper half onto the lower one
            count //= 2
            mask = ", ".join(f"i32 {count + k}" for k in range(count))
            low = ", ".join(f"i32 {k}" for k in range(count))
            half = vector_kind(kind.of, count)
            text = "shufflevector {0} {1}, {0} poison, <{2} x i32> <{3}>"
            upper = code.emit(half, text.format(value.kind.llvm, value.name, count, mask))
            lower = code.emit(half, text.format(value.kind.llvm, value.name, count, low))
            value = code.emit(half, f"fadd {half.llvm} {lower.name}, {upper.name}")
        return code.emit(kind.of, f"extractelement {value.kind.llvm} {value.name}, i64 0")

    # Numbers
    def number(self, value: Any) -> Symbol:
        """A Python number as a value of the kernel; values stay as they are."""
        if isinstance(value, Symbol):
            return value
        if isinstance(value, bool):
            return self.constant(value, BOOL)
        if isinstance(value, (int, float)):
            return self.constant(value, I64 if isinstance(value, int) else F64)
        return self.refuse(f"a number is needed here, got {_say(value)}")

    def constant(self, value: Any, kind: Kind) -> Symbol:
        if isinstance(kind, VectorKind):
            return self.splat(Symbol(self.code, literal(value, kind.of), kind.of), kind)
        return Symbol(self.code, literal(value, kind), kind)


def _say(value: Any) -> str:
    if isinstance(value, Symbol):
        return value.kind.name
    return f"a pointer to {value.dtype}" if isinstance(value, Pointer) else repr(value)


def _suffix(llvm: str) -> str:
    """How the names of overloaded intrinsics spell an LLVM type."""
    return {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16"}.get(llvm, llvm)


def _is_host(function: FunctionType) -> bool:
    """Functions of the kernel language's own modules compute constants while compiling."""
    return function.__module__ == lg.__name__


@functools.cache
def _tree(function: FunctionType) -> tuple[ast.FunctionDef, int]:
    """The syntax tree of `function`, and the line of its file that the tree calls 1."""
    lines, first = inspect.getsourcelines(function)
    tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    return tree, first
