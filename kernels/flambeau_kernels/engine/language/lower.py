"""From the syntax tree of a kernel (see `language/`) to LLVM IR text.

`module_text` is the interface. A `Lowering` walks the statements and expressions of one kernel and writes into one
`Code`: straight-line values are the `Symbol`s that formulas use, so every elementary function works here as well;
variables are stack slots, which LLVM turns into registers. What operators do is in `lower_values.py`, the language's
own words are in `lower_words.py`.
"""
from __future__ import annotations

import ast
import builtins
import functools
import inspect
import linecache
import operator
import textwrap
from collections.abc import Iterable
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any

from flambeau_kernels.engine import language as lg
from flambeau_kernels.engine.language import Construct, VectorKind
from flambeau_kernels.engine.language.lower_code import PTR, Code, NotInLanguage, Outlined, Pointer, Variable
from flambeau_kernels.engine.language.lower_words import Words
from flambeau_kernels.formula import Formula
from flambeau_kernels.scalar.symbols import BOOL, F64, I64, Kind, Symbol
from flambeau_kernels.scalar.words import OF_ELEMENTS
from flambeau_kernels.vocabulary import Word

__all__ = ["NotInLanguage", "module_text"]


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
    first, *_ = _signature(function).parameters
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
    text = [*sorted(code.needs), *lowering.outlined, f"define internal void @body({signature}) alwaysinline {{", "entry:", *code.slots,
            *code.lines, "  ret void", "}", f"define void @{symbol}(i64 %chunk, ptr noalias %arguments) {{", *loads,
            f"  call void @body({call})", "  ret void", "}", *code.metadata]
    return "\n".join(text) + "\n"


_LOOPS = (lg.unroll, lg.independent, lg.brief, lg.rolled, lg.repeated)


class Lowering(Words):
    """Lowers the functions of one kernel into `code`."""

    def __init__(self, code: Code, function: FunctionType, register_bits: int):
        super().__init__(code, function, register_bits)
        self.loops: list[tuple[str, str]] = []        # labels of continue and break
        self.depth = 0
        self.scope: dict[str, Any] = {}
        self.function = function
        self.outlined: list[str] = []                    # texts of functions that are not inlined
        self.outlined_names: dict[tuple[Any, ...], str] = {}

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
            bound = _signature(function).bind(*args, **keywords)
        except TypeError as error:
            self.refuse(f"{function.__name__}: {error}")
        bound.apply_defaults()
        scope: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            self.bind(scope, name, value)
        return self.function_body(function, scope)

    def call_outlined(self, function: FunctionType) -> Outlined:
        return Outlined(function)

    def call_function_outlined(self, function: FunctionType, args: list[Any], keywords: dict[str, Any]) -> None:
        """Call `function` as one of its own, made on the first call with these kinds and constants."""
        bound = _signature(function).bind(*args, **keywords)
        bound.apply_defaults()
        arguments: dict[str, Any] = {
            name: self.number(v) if isinstance(v, (bool, int, float)) and not name.isupper() else v
            for name, v in bound.arguments.items()}
        passed = {name: v for name, v in arguments.items() if isinstance(v, (Symbol, Pointer))}
        key = (function, *((name, v.dtype if isinstance(v, Pointer) else v.kind if name in passed else v, type(v))
                           for name, v in arguments.items()))
        if key not in self.outlined_names:
            self.outlined_names[key] = f"@outlined{len(self.outlined_names)}"
            self.outlined += self.outlined_lines(self.outlined_names[key], function, arguments)
        values = [v.address if isinstance(v, Pointer) else v for v in passed.values()]
        given = ", ".join(f"{v.kind.llvm} {v.name}" for v in values)
        self.code.effect(f"call void {self.outlined_names[key]}({given})")
        self.code.calls += 1

    def outlined_lines(self, symbol: str, function: FunctionType, arguments: dict[str, Any]) -> list[str]:
        code = Code(self.code.scales)
        code.needs, code.metadata = self.code.needs, self.code.metadata
        inner = Lowering(code, function, self.register_bits)
        inner.outlined, inner.outlined_names, inner.depth = self.outlined, self.outlined_names, self.depth
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
        elif not condition:
            return
        code.label(body)
        self.loops.append((head, after))
        self.statements(s.body)
        self.loops.pop()
        code.branch(f"label %{head}")
        code.label(after)

    def do_Return(self, s: ast.Return) -> None:
        self.refuse("return stands at the end of a function; what it would leave out goes under an `if`")

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
        if isinstance(steps, ast.Call) and self.value(steps.func) in _LOOPS:
            how = self.value(steps.func)
            if how is lg.unroll:
                for value in self.value(steps.args[0]):
                    self.bind_constant(s.target, value)
                    self.statements(s.body)
                return
            times = self.value(steps.args[1]) if len(steps.args) > 1 else 1
            steps = steps.args[0]
        if not isinstance(steps, ast.Call) or self.value(steps.func) is not range or s.orelse:
            self.refuse("for runs over range(...), unroll(...), or a range in independent, brief, rolled or repeated")
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
        group, calls = code.group, code.calls
        parallel = self.enter_group(how)
        self.loops.append((again, after))
        self.statements(s.body)
        self.loops.pop()
        code.group = group
        metadata = self.loop_metadata(how, times, parallel, code.calls > calls)
        code.label(again)
        following = code.instruction(I64, f"add nsw i64 {self.get(counter).name}, {step.name}")
        self.set(counter, following, s.target.id)
        code.branch(f"label %{head}{metadata}")
        code.label(after)

    def enter_group(self, how: Construct | None) -> str:
        """What marks the loads and stores of a loop as independent, from here on; empty for other loops."""
        code = self.code
        if how not in (lg.independent, lg.brief):
            code.group = ""
            return ""
        group = code.node("distinct !{}")
        code.group = f", !llvm.access.group {group}"
        return code.node(f'!{{!"llvm.loop.parallel_accesses", {group}}}')

    def loop_metadata(self, how: Construct | None, times: int, parallel: str, calls: bool) -> str:
        """The marks of a loop; `calls`, whether it calls functions, around which LLVM makes no vectors, and says so if told to."""
        code = self.code
        if how is None:
            return ""
        if how is lg.repeated:
            count = code.node(f'!{{!"llvm.loop.unroll.count", i32 {times}}}')
            return f", !llvm.loop {code.node(f'distinct !{{{{self}}, {count}}}')}"
        if how not in (lg.independent, lg.brief):
            once = code.node('!{!"llvm.loop.unroll.disable"}')
            single = code.node('!{!"llvm.loop.vectorize.enable", i1 false}')
            return f", !llvm.loop {code.node(f'distinct !{{{{self}}, {once}, {single}}}')}"
        if calls:
            return f", !llvm.loop {code.node(f'distinct !{{{{self}}, {parallel}}}')}"
        enable = code.node('!{!"llvm.loop.vectorize.enable", i1 true}')
        short = "" if how is lg.independent else "".join(f", {code.node(mark)}" for mark in self.one_copy(times))
        return f", !llvm.loop {code.node(f'distinct !{{{{self}}, {parallel}, {enable}{short}}}')}"

    def one_copy(self, times: int) -> list[str]:
        """The marks of a loop whose body is to be compiled once: masks, or else `times` vectors together and what is left over."""
        side_by_side = [f'!{{!"llvm.loop.interleave.count", i32 {times}}}']
        return [*side_by_side, '!{!"llvm.loop.vectorize.predicate.enable", i1 true}'] if self.register_bits == 512 else side_by_side

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
            text = f"fneg {value.kind.llvm}" if value.kind.family == "f" else f"sub {value.kind.llvm} zeroinitializer,"
            return self.code.emit(value.kind, f"{text} {value.name}")
        return {ast.USub: operator.neg, ast.Invert: operator.invert, ast.UAdd: operator.pos}[type(node.op)](value)

    def of_BinOp(self, node: ast.BinOp) -> Any:
        return self.binary(node.op, self.value(node.left), self.value(node.right))

    def of_Compare(self, node: ast.Compare) -> Any:
        left, result = self.value(node.left), None
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node)
            one = self.compare(op, left, right)
            result = one if result is None else (result & one)
            left = right
        return result

    def undecided(self, node: ast.BoolOp) -> tuple[Any, list[ast.expr]]:
        """What `and` or `or` comes to by the operands whose values are known now, and the operands that may still decide otherwise."""
        is_and = isinstance(node.op, ast.And)
        first, rest = self.value(node.values[0]), node.values[1:]
        while not isinstance(first, Symbol):
            if bool(first) != is_and or not rest:
                return first, []
            first, rest = self.value(rest[0]), rest[1:]
        return first, rest

    def of_BoolOp(self, node: ast.BoolOp) -> Any:
        """`and` and `or` do not look at what follows once the answer is known."""
        is_and = isinstance(node.op, ast.And)
        first, rest = self.undecided(node)
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
        if isinstance(function, Outlined):
            return self.call_function_outlined(function.function, args, keywords)
        if isinstance(function, Construct):
            return getattr(self, "call_" + function.name)(*args, **keywords)
        if isinstance(function, Kind):
            return self.converted(args[0], function)
        if isinstance(function, Word):
            return self.word(function.name, args)
        if isinstance(function, Formula):
            return function.bind(OF_ELEMENTS)(*args)
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


def _is_host(function: FunctionType) -> bool:
    """Functions of the kernel language's own modules compute constants while compiling."""
    return function.__module__ == lg.__name__


_signature = functools.cache(inspect.signature)


@functools.cache
def _tree(function: FunctionType) -> tuple[ast.FunctionDef, int]:
    """The syntax tree of `function`, and the line of its file that the tree calls 1."""
    code = function.__code__
    first = code.co_firstlineno
    linecache.checkcache(code.co_filename)            # a notebook's user may have written another file
    lines = linecache.getlines(code.co_filename, function.__globals__)[first - 1 : _last_line(code)]
    try:
        tree = _parsed(lines)
    except (SyntaxError, IndexError):                 # the interpreter keeps no ends of lines, or the file is not at hand
        lines, first = inspect.getsourcelines(function)
        tree = _parsed(lines)
    assert isinstance(tree, ast.FunctionDef)
    return tree, first


def _parsed(lines: list[str]) -> ast.stmt:
    return ast.parse(textwrap.dedent("".join(lines))).body[0]


def _last_line(code: CodeType) -> int:
    """The last line that `code` has instructions for: `inspect` reads the text word by word for that, which takes ten times as long."""
    inner = [_last_line(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return max([end or 0 for _, end, _, _ in code.co_positions()] + inner)
