"""Runs graphs of scripts: a graph is written as a function of Python, whose operators are ours, and compiled once."""

from __future__ import annotations

import math
import numbers
import operator
import sys
from collections.abc import Callable
from typing import Any

import flambeau as fb

from .. import _aten
from .._schema import FunctionSchema, Type
from ..autograd.grad_mode import is_grad_enabled
from ..futures import Future
from ._builtins import code_of, dtype_of, function_of, layout_of, memory_format_of, wrapped
from ._emit import Place
from ._ir import Block, Function, Graph, Node, Parameter, Value
from ._operators import is_builtin
from ._types import ANY, BOOL, COMPLEX, FLOAT, INT, TENSOR, ClassType, EnumType, NamedTupleType, NoType, is_subtype, text_of, type_of_value
from ._value_text import text_of_value

__all__ = ["Error", "JITException", "bound_arguments", "callable_of", "run"]


class Error(Exception):
    """An error that a script raises, or an assertion of it that fails."""


JITException = Error                                  # its name in PyTorch's compiled module
Error.__module__ = __name__.rpartition(".")[0]       # where programs find it


def callable_of(function: Function) -> Callable[..., Any]:
    """What runs the function on its parameters in their order, `self` first in a method."""
    if function.callable is None:
        _being_written.add(function)
        try:
            function.callable = _Writer(function).compiled()
        finally:
            _being_written.discard(function)
    return function.callable


def run(function: Function, args: list[Any]) -> Any:
    """The function on the values of its parameters.

    Raises: jit.Error for what the script raises; for what fails in it NotImplementedError or RuntimeError, with the places in the source.
    """
    grad_enabled = is_grad_enabled()
    try:
        return (function.callable or callable_of(function))(*args)
    except Exception as error:
        fb._C._set_grad_enabled(grad_enabled)             # a `with` statement may have been left
        failed = _with_places(error)
        if failed is None:
            raise
        raise failed from error.__cause__ if isinstance(error, Error) else error


def _with_places(error: Exception) -> Exception | None:
    """The error with the calls of scripts that led to it; None for an error that is not Python's or ours, which goes on as it is."""
    is_raised = isinstance(error, Error)
    if not is_raised and type(error).__module__ != "builtins" and not isinstance(error, fb.linalg.LinAlgError):
        return None
    places, at = [], error.__traceback__
    while at is not None:
        writer = at.tb_frame.f_globals.get("$writer")
        if writer is not None:
            places.append(writer.place_of(at.tb_lineno))
        at = at.tb_next
    if is_raised:
        what, kind = error.args[0], Error
    else:
        named = "KeyError: " if isinstance(error, KeyError) else ""
        what = f"RuntimeError: {named}{error.args[0] if named and error.args else error}"
        kind = NotImplementedError if isinstance(error, NotImplementedError) else RuntimeError
    return kind(
        "The following operation failed in the TorchScript interpreter.\nTraceback of TorchScript (most recent call last):\n"
        f"{''.join(places)}{what}\n"
    )


class _Later:
    """A function that is compiled when it is first called, which lets functions call themselves."""

    __slots__ = ("function",)

    def __init__(self, function: Function) -> None:
        self.function = function

    def __call__(self, *args: Any) -> Any:
        return (self.function.callable or callable_of(self.function))(*args)


_PLAIN = (bool, int, float, str, type(None))
_CAST = {"ScalarType": dtype_of, "Layout": layout_of, "MemoryFormat": memory_format_of}


class _Writer:
    def __init__(self, function: Function) -> None:
        self.function = function
        self.names: dict[Value, str] = {}
        self.count = 0
        self.globals: dict[str, Any] = {
            "inf": math.inf, "nan": math.nan, "error": _raise, "is_of": _is_of, "elements": _elements, "forked": _forked,
            "method_of": _method_of, "$writer": self,
            "wrapped": wrapped, "text_of": text_of_value,
        }  # fmt: skip
        self.known: dict[int, str] = {}
        self.lines: list[str] = []
        self.node: Node | None = None                 # what is written
        self.nodes: list[Node | None] = []            # what each line runs
        self.facts: dict[Value, Any] = {}             # values that are known before it runs: constants, and comparisons of them

    def compiled(self) -> Callable[..., Any]:
        if self.function.python is not None:
            return self._left_to_python()
        graph = self.function.graph
        names = [self.new(v) for v in graph._inputs]
        self.write(graph, "    ")
        result = self.of(graph._outputs[0]) if graph._outputs else "None"
        text = f"def script({', '.join(names)}):\n" + "".join(line + "\n" for line in self.lines) + f"    return {result}\n"
        exec(compile(text, f"<flambeau script {self.function.short_name}>", "exec"), self.globals)  # our own text
        return self.globals["script"]

    def _left_to_python(self) -> Callable[..., Any]:
        """The function of Python, whose result has to be of the type that is annotated."""
        python, kind = self.function.python, self.function.result or TENSOR

        def script_of_python(*args: Any) -> Any:
            made = given(python(*args), kind)
            if not fits(made, kind):
                raise RuntimeError(
                    f" expected value of type {text_of(kind)} for return value but instead got value of type {type(made).__name__}.\n"
                    f"Value: {made!r}"
                )
            return made

        return script_of_python

    # -- names

    def new(self, v: Value) -> str:
        name = self.names[v] = f"v{self.count}"
        self.count += 1
        return name

    def of(self, v: Value) -> str:
        return self.names[v]

    def thing(self, value: Any, stem: str) -> str:
        """The name of an object among the globals of the text."""
        key = id(value)
        if key not in self.known:
            self.known[key] = f"{stem}{len(self.known)}"
            self.globals[self.known[key]] = value
        return self.known[key]

    def literal(self, value: Any) -> str:
        if isinstance(value, _PLAIN):
            return repr(value)
        return self.thing(value, "c")

    # -- nodes

    def write(self, block: Block | Graph, indent: str) -> None:
        for node in block._nodes:
            self.node = node
            if node.kind() == "prim::Enter":
                indent = self.enter(node, indent)
                continue
            if node.kind() == "prim::Exit":
                self.line(indent, "pass")
                indent = indent[:-4]
                continue
            writer = _WRITERS.get(node.kind())
            if writer is not None:
                writer(self, node, indent)
            else:
                self.call(node, indent)

    def line(self, indent: str, text: str) -> None:
        self.lines.append(indent + text)
        self.nodes.append(self.node)

    def place_of(self, line: int) -> str:
        """Where what a line of the text runs stands in the source, for messages."""
        node = self.nodes[line - 2] if 2 <= line < len(self.nodes) + 2 else None
        place = getattr(node, "place", None)
        if not isinstance(place, Place):
            return ""
        first, *rest = place.marked().split("\n")
        return "\n".join([f"{first}, in {self.function.short_name}", *rest])

    def results(self, node: Node, indent: str, text: str) -> None:
        if not node._outputs:
            self.line(indent, text)
        elif len(node._outputs) == 1:
            self.line(indent, f"{self.new(node._outputs[0])} = {text}")
        else:
            self.line(indent, f"{', '.join([self.new(v) for v in node._outputs])} = {text}")

    def call(self, node: Node, indent: str) -> None:
        schema = node.schema
        if schema is None:
            raise NotImplementedError(f"jit: scripts with {node.kind()} are not built")
        if self.decides(node):
            return
        if is_builtin(schema) or node.kind() in _ATTRIBUTES:
            if self.inlines(node, indent):
                return
            function = function_of(node.kind())
            if function is None:
                raise NotImplementedError(f"jit: the operator {schema} of scripts is not built")
            self.results(node, indent, f"{self.thing(function, 'b')}({self.arguments(node, schema)})")
            return
        namespace, _, name = schema.name.partition("::")
        operator, first, by_name = _aten.direct(name, schema.overload_name or "default") if namespace == "aten" else (None, 0, ())
        if operator is None:
            operator, first = _operator(schema), len(node._inputs)
        text = f"{self.thing(operator, 'o')}({self.arguments(node, schema, first, by_name)})"
        if len(schema.returns) == 1 and schema.returns[0].type.kind == "List":
            text = f"list({text})"
        self.results(node, indent, text)

    def decides(self, node: Node) -> bool:
        """Compare constants now, so that branches which ask need not be written; whether it is a comparison of constants."""
        decide = _DECIDED.get(node.kind())
        if decide is None or not all(v in self.facts for v in node._inputs):
            return False
        fact = decide(*[self.facts[v] for v in node._inputs])
        self.facts[node._outputs[0]], self.names[node._outputs[0]] = fact, repr(fact)
        return True

    def inlines(self, node: Node, indent: str) -> bool:
        """Write arithmetic and comparison of numbers as Python's own; whether it is that."""
        template = _INLINE.get(node.kind())
        if template is None or len(node._inputs) != template.count("{") or not all(v.type() in _SCALARS for v in node._inputs):
            return False
        self.results(node, indent, template.format(*map(self.of, node._inputs)))
        if node._outputs[0].type() == INT and node.kind() in _WRAPPING:
            made = self.of(node._outputs[0])
            self.line(indent, f"if not -0x8000000000000000 <= {made} < 0x8000000000000000: {made} = wrapped({made})")
        return True

    def arguments(self, node: Node, schema: FunctionSchema, first: int = sys.maxsize, by_name: tuple[str, ...] = ()) -> str:
        """The text of the arguments. From `first` on, they are given by the names in `by_name`."""
        given = []
        for a, v in zip(schema.arguments, node._inputs, strict=True):
            given.append((a, v, self.cast(a.type, v)))
        while given and not given[-1][0].kwarg_only and self.is_default(*given[-1][:2]):
            given.pop()
        parts = []
        for a, v, text in given:
            if not a.kwarg_only:
                at = len(parts)
                parts.append(text if at < first else f"{by_name[at - first]}={text}")
            elif not self.is_default(a, v):
                parts.append(f"{a.name}={text}")
        return ", ".join(parts)

    def is_default(self, argument: Any, v: Value) -> bool:
        node = v.node
        if not argument.has_default_value() or node is None or node.kind() != "prim::Constant":
            return False
        default = code_of(argument.default_value)
        return type(node.constant) is type(default) and node.constant == default and not isinstance(default, fb.Tensor)

    def cast(self, kind: Type, v: Value) -> str:
        """The text of an argument; numbers that stand for dtypes and the like become these."""
        inner = kind.inner[0] if kind.kind == "Optional" else kind
        cast = _CAST.get(inner.kind)
        if cast is None:
            return self.of(v)
        node = v.node
        if node is not None and node.kind() == "prim::Constant":
            return self.literal(cast(node.constant))
        return f"{self.thing(cast, 'k')}({self.of(v)})"

    # -- the compiler's own kinds

    def constant(self, node: Node, indent: str) -> None:
        if "_function" in node.attributes:
            self.names[node._outputs[0]] = self.thing(_Later(node.attributes["_function"]), "f")
            return
        value = node.constant
        if isinstance(value, _PLAIN):
            self.facts[node._outputs[0]] = value
        text = self.literal(value)
        self.names[node._outputs[0]] = f"({text})" if isinstance(value, (int, float)) and not isinstance(value, bool) else text

    def make_tuple(self, node: Node, indent: str) -> None:
        kind = node._outputs[0].type()
        parts = ", ".join(map(self.of, node._inputs))
        if isinstance(kind, NamedTupleType):
            self.results(node, indent, f"{self.thing(kind.python_class, 'n')}({parts})")  # type: ignore[attr-defined]
        else:
            self.results(node, indent, f"({parts}{',' if len(node._inputs) == 1 else ''})")

    def make_list(self, node: Node, indent: str) -> None:
        self.results(node, indent, f"[{', '.join(map(self.of, node._inputs))}]")

    def make_dict(self, node: Node, indent: str) -> None:
        at = node._inputs
        self.results(node, indent, f"{{{', '.join(f'{self.of(k)}: {self.of(v)}' for k, v in zip(at[::2], at[1::2], strict=True))}}}")

    def unpack(self, node: Node, indent: str) -> None:
        if node._outputs:
            names = ", ".join([self.new(v) for v in node._outputs])
            self.line(indent, f"({names},) = {self.of(node._inputs[0])}")

    def element(self, node: Node, indent: str) -> None:
        self.results(node, indent, f"{self.of(node._inputs[0])}[{self.of(node._inputs[1])}]")

    def get(self, node: Node, indent: str) -> None:
        name, me = node.attributes["name"], self.of(node._inputs[0])
        place = _place_in_module(node._inputs[0].type(), name)
        if place is not None:
            self.results(node, indent, f"{me}.{place}[{name!r}]")
        else:
            self.results(node, indent, f"{me}.{name}" if name.isidentifier() else f"getattr({me}, {name!r})")

    def put(self, node: Node, indent: str) -> None:
        self.line(indent, f"setattr({self.of(node._inputs[0])}, {node.attributes['name']!r}, {self.of(node._inputs[1])})")

    def call_function(self, node: Node, indent: str) -> None:
        function = node.attributes["_function"]
        given = ", ".join(map(self.of, node._inputs))
        owner = node._inputs[0].type() if node.kind() == "prim::CallMethod" else None
        if isinstance(owner, ClassType) and owner.is_interface:
            me = self.of(node._inputs[0])
            self.results(node, indent, f"method_of({me}, {node.attributes['name']!r})({given})")
            return
        self.results(node, indent, f"{self.thing(_called(function), 'f')}({given})")

    def call_value(self, node: Node, indent: str) -> None:
        self.results(node, indent, f"{self.of(node._inputs[0])}({', '.join(map(self.of, node._inputs[1:]))})")

    def same(self, node: Node, indent: str) -> None:
        self.names[node._outputs[0]] = self.of(node._inputs[0])

    def nothing(self, node: Node, indent: str) -> None:
        self.names[node._outputs[0]] = "None"

    def raises(self, node: Node, indent: str) -> None:
        kind = self.of(node._inputs[1]) if len(node._inputs) > 1 else "None"
        self.line(indent, f"error({self.of(node._inputs[0])}, {kind})")

    def prints(self, node: Node, indent: str) -> None:
        self.line(indent, f"print({', '.join([f'text_of({self.of(v)})' for v in node._inputs])})")

    def asks_type(self, node: Node, indent: str) -> None:
        self.results(node, indent, f"is_of({self.of(node._inputs[0])}, {self.thing(node.attributes['_types'], 't')})")

    def formats(self, node: Node, indent: str) -> None:
        function = function_of(node.kind())
        self.results(node, indent, f"{self.thing(function, 'b')}({', '.join(map(self.of, node._inputs))})")

    def makes_object(self, node: Node, indent: str) -> None:
        kind: Any = node._outputs[0].type()
        made = self.thing(kind.python_class, "n")
        self.results(node, indent, f"{made}.__new__({made})")

    def branch(self, node: Node, indent: str) -> None:
        fact = self.facts.get(node._inputs[0])
        if isinstance(fact, bool):
            block = node._blocks[0 if fact else 1]
            self.write(block, indent)
            for made, v in zip(node._outputs, block._outputs, strict=True):
                self.names[made] = self.of(v)
                if v in self.facts:
                    self.facts[made] = self.facts[v]
            return
        names = [self.new(v) for v in node._outputs]
        for head, block in zip((f"if {self.of(node._inputs[0])}:", "else:"), node._blocks, strict=True):
            self.line(indent, head)
            self.write(block, indent + "    ")
            pairs = [(n, self.of(v)) for n, v in zip(names, block._outputs, strict=True)]
            if pairs:
                self.line(indent + "    ", f"{', '.join(n for n, _ in pairs)} = {', '.join(v for _, v in pairs)}")
            else:
                self.line(indent + "    ", "pass")

    def loop(self, node: Node, indent: str) -> None:
        (block,) = node._blocks
        count, begin, *initial = node._inputs
        carried = [self.new(v) for v in node._outputs]
        index = self.new(block._inputs[0])
        for v, name in zip(block._inputs[1:], carried, strict=True):
            self.names[v] = name
        if carried:
            self.line(indent, f"{', '.join(carried)} = {', '.join(map(self.of, initial))}")
        go_on = block._outputs[0]
        always = all(v.node is not None and v.node.kind() == "prim::Constant" and v.node.constant is True for v in (begin, go_on))
        test = self.new(Value(INT))
        if always:
            self.line(indent, f"for {index} in range({self.of(count)}):")
        else:
            self.line(indent, f"{test} = {self.of(begin)}")
            self.line(indent, f"for {index} in range({self.of(count)}):")
            self.line(indent + "    ", f"if not {test}: break")
        inner = indent + "    "
        self.write(block, inner)
        to, what = list(carried), [self.of(v) for v in block._outputs[1:]]
        if not always:
            to, what = [*to, test], [*what, self.of(go_on)]
        self.line(inner, f"{', '.join(to)} = {', '.join(what)}" if to else "pass")

    def enter(self, node: Node, indent: str) -> str:
        """Begin a `with` statement. Returns: the indent of what is in it, up to the ``prim::Exit`` of the block."""
        given = [f"{n}={self.cast_of(n, v)}" for n, v in zip(node.attributes["_names"], node._inputs, strict=True)]
        self.line(indent, f"with {self.thing(node.attributes['_class'], 'w')}({', '.join(given)}):")
        return indent + "    "

    def cast_of(self, name: str, v: Value) -> str:
        """The text of an argument, which is a dtype if it is called so."""
        return f"{self.thing(dtype_of, 'k')}({self.of(v)})" if name == "dtype" else self.of(v)

    def forks(self, node: Node, indent: str) -> None:
        name = f"fork{len(self.lines)}"
        self.line(indent, f"def {name}():")
        self.write(node._blocks[0], indent + "    ")
        self.line(indent + "    ", f"return {self.of(node._blocks[0]._outputs[0])}")
        made = self.new(node._outputs[0])
        self.line(indent, f"{made} = forked({name})")

    def waits(self, node: Node, indent: str) -> None:
        self.results(node, indent, f"{self.of(node._inputs[0])}.wait()")

    def lists_elements(self, node: Node, indent: str) -> None:
        self.results(node, indent, f"elements({self.of(node._inputs[0])}, {self.thing(node._outputs[0].type(), 't')})")


_WRITERS: dict[str, Callable[[_Writer, Node, str], None]] = {
    "prim::Constant": _Writer.constant, "prim::TupleConstruct": _Writer.make_tuple, "prim::ListConstruct": _Writer.make_list,
    "prim::DictConstruct": _Writer.make_dict, "prim::TupleUnpack": _Writer.unpack, "prim::ListUnpack": _Writer.unpack,
    "prim::TupleIndex": _Writer.element, "prim::GetAttr": _Writer.get, "prim::SetAttr": _Writer.put,
    "prim::CallFunction": _Writer.call_function, "prim::CallMethod": _Writer.call_function, "prim::PythonOp": _Writer.call_function,
    "prim::unchecked_cast": _Writer.same, "prim::Uninitialized": _Writer.nothing, "prim::RaiseException": _Writer.raises,
    "prim::Print": _Writer.prints, "prim::isinstance": _Writer.asks_type, "aten::format": _Writer.formats,
    "aten::percentFormat": _Writer.formats, "prim::CreateObject": _Writer.makes_object, "prim::If": _Writer.branch,
    "prim::Loop": _Writer.loop, "prim::fork": _Writer.forks, "aten::wait": _Writer.waits, "prim::EnumName": _Writer.formats,
    "prim::EnumValue": _Writer.formats, "prim::tolist": _Writer.lists_elements,
}  # fmt: skip


_DECIDED: dict[str, Callable[..., Any]] = {
    "aten::eq": operator.eq, "aten::ne": operator.ne, "aten::__is__": operator.is_, "aten::__isnot__": operator.is_not,
    "aten::__not__": operator.not_, "aten::__and__": operator.and_, "aten::__or__": operator.or_,
}  # fmt: skip
_SCALARS = (INT, FLOAT, BOOL)
_INLINE = {
    "aten::add": "{} + {}", "aten::sub": "{} - {}", "aten::mul": "{} * {}", "aten::neg": "-{}", "aten::lt": "{} < {}",
    "aten::le": "{} <= {}", "aten::gt": "{} > {}", "aten::ge": "{} >= {}", "aten::eq": "{} == {}", "aten::ne": "{} != {}",
    "aten::__not__": "not {}", "aten::__and__": "{} & {}", "aten::__or__": "{} | {}", "aten::__xor__": "{} ^ {}",
    "aten::__lshift__": "{} << {}",
    "aten::__rshift__": "{} >> {}",
}  # fmt: skip
_WRAPPING = frozenset(("aten::add", "aten::sub", "aten::mul", "aten::neg", "aten::__lshift__"))


# Operators of `torch.ops.aten` that no public function here computes alone.
_ATTRIBUTES = frozenset(("aten::numpy_T", "aten::mT", "aten::mH", "aten::matrix_H", "aten::is_leaf"))


def _place_in_module(kind: Type, name: str) -> str | None:
    """Where a module has the attribute: ``_parameters`` and the like, which are looked up without `Module.__getattr__`."""
    if not isinstance(kind, ClassType) or not kind.is_module or kind.is_interface:
        return None
    found = kind.attributes.get(name)
    if isinstance(found, ClassType) and found.is_module:
        return "_modules"
    return "_parameters" if name in kind.parameters else "_buffers" if name in kind.buffers else None


_being_written: set[Function] = set()


def _called(function: Function) -> Callable[..., Any]:
    """What a call in a script runs: the function as it is written, or where it is being written what looks for it in each call."""
    if function.callable is None and function not in _being_written:
        callable_of(function)
    return function.callable or _later(function)


def _later(function: Function) -> _Later:
    made = getattr(function, "later", None)
    if made is None:
        made = function.later = _Later(function)  # type: ignore[attr-defined]
    return made


def _operator(schema: FunctionSchema) -> Any:
    namespace, _, name = schema.name.partition("::")
    return getattr(getattr(getattr(fb.ops, namespace), name), schema.overload_name or "default")


def _method_of(me: Any, name: str) -> Callable[..., Any]:
    kind: Any = getattr(me, "_script_type", None)
    if kind is None:                                  # an instance of a class that was scripted
        from ._python import class_type

        kind = class_type(type(me))
    function = kind.methods.get(name) or kind.compiler.method(kind, name)
    return callable_of(function)


def _raise(message: str, kind: str | None) -> None:
    name = "RuntimeError" if kind in (None, "builtins.AssertionError", "builtins.RuntimeError") else kind
    raise Error(f"{name}: {message}")


def _forked(task: Callable[[], Any]) -> Future[Any]:
    """The future of a task, whose error is raised where it is waited for."""
    future: Future[Any] = Future()
    try:
        future.set_result(task())
    except Exception as error:
        future.set_exception(error)
    return future


def _elements(tensor: Any, kind: Type) -> Any:
    """The elements of a tensor as lists of the type. Raises: RuntimeError where they are others."""
    found = tensor.tolist()
    if not fits(found, kind):
        raise RuntimeError(
            f"Output annotation element type and runtime tensor element type must match for tolist(): annotated {text_of(kind)}, and the "
            f"tensor has {tensor.dim()} dimensions of {tensor.dtype}"
        )
    return found


def _is_of(value: Any, kinds: tuple[Type, ...]) -> bool:
    return any(fits(value, kind) for kind in kinds)


# -- arguments from Python -----------------------------------------------------------------------------------------------


_CONTAINERS: dict[str, type] = {"AnyListType": list, "AnyTupleType": tuple, "AnyDictType": dict}


def fits(value: Any, kind: Type) -> bool:
    """Whether a value of Python is one of the type."""
    if kind == ANY:
        return True
    if kind == TENSOR:
        return isinstance(value, fb.Tensor)
    if kind.kind in _CONTAINERS:
        return isinstance(value, _CONTAINERS[kind.kind])
    if kind.kind == "Optional":
        return value is None or fits(value, kind.inner[0])
    if kind.kind == "Union":
        return any(fits(value, k) for k in kind.inner)
    if kind.kind == "List":
        return isinstance(value, list) and all(fits(v, kind.inner[0]) for v in value)
    if kind.kind == "Dict":
        return isinstance(value, dict) and all(fits(k, kind.inner[0]) and fits(v, kind.inner[1]) for k, v in value.items())
    if kind.kind == "Tuple":
        return isinstance(value, tuple) and len(value) == len(kind.inner) and all(map(fits, value, kind.inner))
    if isinstance(kind, (ClassType, EnumType)):
        if getattr(kind, "is_interface", False):
            return hasattr(value, "_script_type")
        return getattr(value, "_script_type", None) is kind or kind.python_class is not None and isinstance(value, kind.python_class)  # type: ignore[union-attr]
    if kind.kind == "Future":
        return isinstance(value, Future)
    try:
        return is_subtype(type_of_value(code_of(value)), kind)
    except NoType:
        return False


def given(value: Any, kind: Type) -> Any:
    """An argument as a script takes it: lists for tuples, numbers for dtypes."""
    inner = kind.inner[0] if kind.kind == "Optional" else kind
    if inner.kind == "List" and isinstance(value, (tuple, fb.Size)):
        return [given(v, inner.inner[0]) for v in value]
    if inner in _NUMBERS:
        return _number(value, inner)
    if inner.kind == "Device" and isinstance(value, str):
        return fb.device(value)
    return value


_NUMBERS = (INT, FLOAT, COMPLEX, BOOL)


def _number(value: Any, kind: Type) -> Any:
    """A number of another type than the parameter, where the one stands for the other; as it is where it does not."""
    if isinstance(value, fb.Tensor) and value.dim() == 0 and kind != BOOL:
        value = value.item()
    elif isinstance(value, numbers.Integral) and not isinstance(value, int):
        value = int(value)                            # numpy's numbers
    if kind == INT:
        return int(value) if isinstance(value, bool) else code_of(value)
    if kind == FLOAT:
        return float(value) if isinstance(value, numbers.Real) else value
    if kind == COMPLEX:
        return complex(value) if isinstance(value, numbers.Complex) else value
    return bool(value) if type(value) is int else value


def _are_tensors(function: Function, args: tuple[Any, ...]) -> bool:
    """Whether all parameters are Tensors, but for the module whose method it is, and the arguments are."""
    first = function.first_tensor
    if first is None:
        kinds = [p.type for p in function.parameters]
        first = 1 if kinds and isinstance(kinds[0], ClassType) and kinds[0].is_module and not kinds[0].is_interface else 0
        function.first_tensor = first = first if all(k == TENSOR for k in kinds[first:]) else -1
    if first < 0:
        return False
    for x in args[first:] if first else args:  # noqa: SIM110  # a loop, for it is in every call
        if not isinstance(x, fb.Tensor):
            return False
    return True


def bound_arguments(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Values for the parameters. Raises: RuntimeError for arguments that are missing, too many, unknown or of other types."""
    parameters, name = function.parameters, function.short_name
    if not kwargs and len(args) == len(parameters) and _are_tensors(function, args):
        return list(args)
    if len(args) > len(parameters):
        raise RuntimeError(
            f"{name}() expected at most {len(parameters)} argument(s) but received {len(args)} argument(s). Declaration: "
            f"{function.schema_text()}"
        )
    named = dict(kwargs)
    found = []
    for at, p in enumerate(parameters):
        if at < len(args):
            value = args[at]
            if p.name in named:
                raise RuntimeError(
                    f"Argument '{p.name}' specified both as positional and keyword argument. Schema: {function.schema_text()}"
                )
        elif p.name in named:
            value = named.pop(p.name)
        elif p.default is not Parameter.NONE_GIVEN:
            found.append(p.default if not isinstance(p.default, (list, dict)) else p.default.copy())
            continue
        else:
            raise RuntimeError(f"{name}() is missing value for argument '{p.name}'. Declaration: {function.schema_text()}")
        value = given(value, p.type)
        if not (p.type == TENSOR and isinstance(value, fb.Tensor)) and not fits(value, p.type):
            raise RuntimeError(
                f"{name}() Expected a value of type '{text_of(p.type)}' for argument '{p.name}' but instead found type "
                f"'{type(value).__name__}'.\nPosition: {at}\nValue: {value!r}\nDeclaration: {function.schema_text()}"
            )
        found.append(value)
    if named:
        raise RuntimeError(f"Unknown keyword argument '{next(iter(named))}' for operator '{name}'. Schema: {function.schema_text()}")
    return found
