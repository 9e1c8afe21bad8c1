"""Python text of graphs."""

from __future__ import annotations

import builtins
import enum
import math
import operator
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .. import devices, dtypes
from .._ops import OpOverload
from ..tensor import Tensor
from ..utils import _pytree as pytree
from . import _pytree as fx_pytree
from ._names import Namespace, is_reached, qualified_name
from .node import Node, _type_repr

TransformCodeFunc = Callable[[list[str]], list[str]]


@dataclass
class PythonCode:
    """The text of a graph, and what the names in it mean that it does not define."""

    src: str
    globals: dict[str, Any]
    _lineno_map: dict[int, int | None] | None = field(default=None)
    _prologue_start: int = 0


# How calls of functions of `operator` are written.
_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "truediv": "/", "mod": "%", "pow": "**", "matmul": "@",
    "lshift": "<<", "rshift": ">>", "and_": "&", "or_": "|", "xor": "^",
    "eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">=",
}  # fmt: skip
_MAGIC = {getattr(operator, name): f"{{}} {sign} {{}}" for name, sign in _INFIX.items()} | {
    operator.getitem: "{}[{}]", operator.pos: "+{}", operator.neg: "-{}", operator.invert: "~{}",
}  # fmt: skip
_STORING = {
    getattr(operator, f"i{name.rstrip('_')}"): f"{{}} {sign}= {{}}" for name, sign in _INFIX.items() if name not in
    ("eq", "ne", "lt", "gt", "le", "ge")
}  # fmt: skip

_DTYPES = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "complex32": "c32", "complex64": "c64",
    "complex128": "c128", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "bool": "b8", "uint8": "u8",
    "uint16": "u16", "uint32": "u32", "uint64": "u64", "float8_e4m3fn": "f8e4m3fn", "float8_e5m2": "f8e5m2",
    "float8_e4m3fnuz": "f8e4m3fnuz", "float8_e5m2fnuz": "f8e5m2fnuz", "float8_e8m0fnu": "f8e8m0fnu",
}  # fmt: skip


class _Global(NamedTuple):
    """A name that generated code may use: the import that gives it, and the object."""

    name: str
    import_text: str
    obj: Any


def _standing_globals() -> list[_Global]:
    package = sys.modules[__name__.partition(".")[0]]
    return [
        _Global("inf", "from math import inf", math.inf),
        _Global("nan", "from math import nan", math.nan),
        _Global("NoneType", "NoneType = type(None)", type(None)),
        _Global("torch", "import flambeau as torch", package),
        _Global("device", "from flambeau import device", devices.device),
        _Global("fx_pytree", "import flambeau.fx._pytree as fx_pytree", fx_pytree),
        _Global("pytree", "import flambeau.utils._pytree as pytree", pytree),
    ]


def import_text_of(globals_: dict[str, Any]) -> str:
    """Python text that gives the names of `globals_` their meaning in another process."""
    known = {g.name: g.import_text for g in _standing_globals()}
    lines = {known[name] if name in known else _import_of(name, obj) for name, obj in globals_.items()}
    return "\n".join(sorted(lines))


def _import_of(name: str, obj: Any) -> str:
    if name in builtins.__dict__ and builtins.__dict__[name] is obj:
        return f"{name} = __import__('builtins').{name}"
    module, own = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None)
    if obj is ...:
        return f"{name} = ..."
    if not module or not own or "<" in own:
        return f"{name} = {obj!r}"
    return f"import {module}\n{name} = {module}.{own}"


def _path_text(base: str, target: str) -> str:
    """``base.a.b`` as text, for parts that are no identifiers too."""
    for part in target.split("."):
        base = f"{base}.{part}" if part.isidentifier() else f'getattr({base}, "{part}")'
    return base


def tensor_annotation(node: Node, include_stride: bool = False, include_device: bool = False) -> str:
    """What is known of the tensor that `node` computes, ``f32[2, 3]``, or nothing."""
    for key in ("val", "example_value", "tensor_meta"):
        value = node.meta.get(key)
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
        if shape is None or dtype is None:
            continue
        is_tensor = isinstance(value, Tensor)
        text = f"{_DTYPES.get(dtype.name, dtype.name)}[{', '.join(map(str, shape))}]"
        if include_stride and is_tensor:
            text += f"[{', '.join(map(str, value.stride()))}]"
        if include_device and is_tensor:
            text += str(value.device)
        return text
    return ""


class CodeGen:
    """How a graph is written as a Python function. Subclasses change its head, what it returns, and its arguments."""

    def __init__(self) -> None:
        self._body_transformer: TransformCodeFunc | None = None
        self._func_name = "forward"

    # -- what subclasses override

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The line that begins the function, given its parameters and the annotation of its result."""
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        return f"def {self._func_name}({', '.join(free_vars)}){maybe_return_annotation}:"

    def generate_output(self, output_args: Any) -> str:
        """The line that ends it."""
        return f"return {self._text_of_output(output_args)}"

    def process_inputs(self, *args: Any) -> Any:
        """What the graph's inputs are, for a call with `args`."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """What the caller gets, if the graph's output is `outputs`."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Names that the head or the end needs, and their meanings."""
        return []

    # -- the text

    def _text_of_output(self, args: Any) -> str:
        return self._writer.argument(args) if getattr(self, "_writer", None) is not None else repr(args)

    def _gen_python_code(
        self,
        nodes: Any,
        root_module: str,
        namespace: Namespace,
        *,
        verbose: bool = False,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        record_func: bool = False,
    ) -> PythonCode:
        writer = _Writer(self, list(nodes), root_module, namespace, verbose, include_stride, include_device, colored)
        self._writer: _Writer | None = writer
        try:
            return writer.write()
        finally:
            self._writer = None


class _Writer:
    """One writing of one graph."""

    def __init__(
        self,
        codegen: CodeGen,
        nodes: list[Node],
        root: str,
        namespace: Namespace,
        verbose: bool,
        include_stride: bool,
        include_device: bool,
        colored: bool,
    ) -> None:
        self.codegen, self.nodes, self.root, self.namespace = codegen, nodes, root, namespace
        self.verbose, self.include_stride, self.include_device, self.colored = verbose, include_stride, include_device, colored
        self.parameters: list[str] = []
        self.body: list[str] = []
        self.globals: dict[str, Any] = {}
        self._named: dict[int, str] = {}
        self.wrapped: dict[str, None] = {}
        self.returns = ""

    def write(self) -> PythonCode:
        for name, _, obj in _standing_globals():
            self.globals[name], self._named[id(obj)] = obj, name
        for name, obj in self.codegen.additional_globals():
            self.global_name(name, obj)
        ending = self._last_uses()
        lines: list[int | None] = []
        last_place = None
        for node in self.nodes:
            if self.verbose:
                last_place = self._say_where(node, last_place)
            before = len(self.body)
            self._statement(node)
            if node.op not in ("placeholder", "output"):
                self._let_go(node, ending.get(node, []))
            lines.extend([node._position] * (len(self.body) - before))
        if not self.body:
            self.body.append("pass\n")
        if self.codegen._body_transformer:
            self.body = self.codegen._body_transformer(self.body)
        head = self.codegen.gen_fn_def(self.parameters, self.returns)
        code = "".join(self.body).lstrip("\n")
        code = "\n".join("    " + line for line in code.split("\n"))
        wraps = "\n".join(f'torch.fx._symbolic_trace.wrap("{name}")' for name in self.wrapped)
        prologue = f"\n{wraps}\n\n{head}"
        start = prologue.count("\n") + 1
        return PythonCode(f"{prologue}\n{code}", self.globals, dict(enumerate(lines, 1)), _prologue_start=start)

    # -- names

    def global_name(self, hint: str, obj: Any) -> str:
        """The name under which the code finds `obj`."""
        if _in_package(obj):
            path = qualified_name(obj) if hasattr(obj, "__name__") else repr(obj)
            if path.startswith("torch.") and is_reached(path, obj):
                return path
        if id(obj) not in self._named:
            name = self.namespace.create_name(hint, obj if _is_builtin(hint, obj) else None)
            self._named[id(obj)] = name
            self.globals[name] = obj
        return self._named[id(obj)]

    def type_name(self, annotation: Any) -> str:
        """The text of an annotation."""
        if annotation == ():
            return "()"
        origin = getattr(annotation, "__origin__", None)
        if origin is not None or type(annotation).__name__ == "UnionType":
            spelled = getattr(annotation, "_name", None)
            if origin is None or "Union" in repr(origin) or spelled in ("Optional", "Union"):
                import typing

                origin, base = typing.Union, "typing.Union"
            elif hasattr(annotation, "__module__") and annotation.__module__ == "typing" and spelled:
                import typing

                origin, base = getattr(typing, spelled), f"typing.{spelled}"
            else:
                base = _type_repr(origin)
            base = self.global_name(base, origin)
            inner = [self.type_name(a) for a in getattr(annotation, "__args__", ())]
            return f"{base}[{','.join(inner)}]" if inner else base
        return self.global_name(_type_repr(annotation), annotation)

    # -- arguments

    def argument(self, arg: Any) -> str:
        """The text of one argument."""
        if isinstance(arg, tuple):
            if hasattr(arg, "_make"):
                return f"{self.global_name(qualified_name(type(arg)), type(arg))}({', '.join(map(self.argument, arg))})"
            inner = ", ".join(map(self.argument, arg))
            return f"({inner},)" if len(arg) == 1 else f"({inner})"
        if isinstance(arg, list):
            return f"[{', '.join(map(self.argument, arg))}]"
        if isinstance(arg, dict):
            return "{" + ", ".join(f"{key!r}: {self.argument(value)}" for key, value in arg.items()) + "}"
        if isinstance(arg, slice):
            return f"slice({self.argument(arg.start)}, {self.argument(arg.stop)}, {self.argument(arg.step)})"
        if isinstance(arg, enum.Enum):
            cls = type(arg)
            return f"{self.global_name(f'{cls.__module__}.{cls.__qualname__}', cls)}.{arg.name}"
        if isinstance(arg, (Node, dtypes.dtype, devices.memory_format, devices.layout)):
            return repr(arg)
        if isinstance(arg, (str, int, float, complex, bool, type(None), devices.device, range, type(...), bytes)):
            return repr(arg)
        if isinstance(arg, Tensor):
            return self.global_name(f"_tensor_{type(arg).__name__}", arg)
        if callable(arg):
            return self.global_name(qualified_name(arg), arg)
        return self.global_name(f"_{type(arg).__name__}", arg)

    def arguments(self, args: Any, kwargs: Any) -> str:
        positional = [self.argument(a) for a in args]
        return ", ".join([*positional, *(f"{name} = {self.argument(value)}" for name, value in kwargs.items())])

    # -- statements

    def _statement(self, node: Node) -> None:
        write = getattr(self, f"_{node.op}", None)
        if write is None:
            raise NotImplementedError(f"node: {node.op} {node.target}")
        write(node)

    def _left(self, node: Node) -> str:
        """What stands before the ``=``."""
        if self.verbose:
            known = tensor_annotation(node, self.include_stride, self.include_device)
            return f'{node!r}: "{known}"' if known else repr(node)
        return repr(node) if node.type is None else f"{node!r} : {self.type_name(node.type)}"

    def _placeholder(self, node: Node) -> None:
        if self.verbose:
            known = tensor_annotation(node, self.include_stride, self.include_device)
            annotation = f': "{known}"' if known else ""
        else:
            annotation = ""
        if not annotation and node.type is not None:
            annotation = f" : {self.type_name(node.type)}"
        default = f" = {self.argument(node.args[0])}" if node.args else ""
        self.parameters.append(f"{node.target}{annotation}{default}")
        plain = node.target.replace("*", "")
        if plain != repr(node):
            self.body.append(f"{node!r} = {plain}\n")

    def _call_method(self, node: Node) -> None:
        called = _path_text(self.argument(node.args[0]), node.target)
        self.body.append(f"{self._left(node)} = {called}({self.arguments(node.args[1:], node.kwargs)})")

    def _call_function(self, node: Node) -> None:
        target, args, kwargs = node.target, node.args, node.kwargs
        name = qualified_name(target)
        if target in _MAGIC and not kwargs:
            self.body.append(f"{self._left(node)} = {_MAGIC[target].format(*map(self.argument, args))}")
            return
        if target in _STORING and not kwargs:
            first, second = map(self.argument, args)
            self.body.append(f"{_STORING[target].format(first, second)};  {self._left(node)} = {first}")
            return
        called = self.global_name(name, target)
        if target is getattr and len(args) == 2 and isinstance(args[1], str) and args[1].isidentifier():
            self.body.append(f"{self._left(node)} = {_path_text(self.argument(args[0]), args[1])}")
            return
        self.body.append(f"{self._left(node)} = {called}({self.arguments(args, kwargs)})")
        if node.meta.get("is_wrapped", False):
            self.wrapped.setdefault(called)

    def _call_module(self, node: Node) -> None:
        called = _path_text(self.root, node.target)
        self.body.append(f"{self._left(node)} = {called}({self.arguments(node.args, node.kwargs)})")

    def _get_attr(self, node: Node) -> None:
        self.body.append(f"{self._left(node)} = {_path_text(self.root, node.target)}")

    def _output(self, node: Node) -> None:
        if node.type is not None:
            self.returns = f" -> {self.type_name(node.type)}"
        self.body.append(f"{self.codegen.generate_output(node.args[0])}\n")

    # -- when values end

    def _last_uses(self) -> dict[Node, list[Node]]:
        """For each node the values that nobody uses after it."""
        ending: dict[Node, list[Node]] = {}
        seen: set[Node] = set()
        for node in reversed(self.nodes):
            for used in node._input_nodes:
                if used not in seen:
                    seen.add(used)
                    ending.setdefault(node, []).append(used)
        return ending

    def _let_go(self, node: Node, ended: list[Node]) -> None:
        names = [repr(n) for n in ended] + ([] if node.users else [repr(node)])
        self.body.append(f";  {' = '.join(names)} = None\n" if names else "\n")

    def _say_where(self, node: Node, last_place: str | None) -> str | None:
        """Write a comment with the line of the program that `node` comes from, where it is another than `last_place`."""
        if node.op in ("placeholder", "output"):
            return last_place
        place = _place_of(node.stack_trace or "") or "No stacktrace found for following nodes"
        if place == last_place:
            return last_place
        text = f"# {place}"
        self.body.append(f"\n\033[2m{text}\033[0m\n" if self.colored else f"\n{text}\n")
        return place


def _is_builtin(name: str, obj: Any) -> bool:
    return name in builtins.__dict__ and builtins.__dict__[name] is obj


def _in_package(obj: Any) -> bool:
    module = getattr(obj, "__module__", None)
    if isinstance(obj, OpOverload):                  # its module is a namespace of operators
        return True
    # Some classes are of torch while `import torch` gives this package.
    return isinstance(module, str) and module.partition(".")[0] in (__name__.partition(".")[0], "torch") and not isinstance(obj, Tensor)


_FRAME = re.compile(r'^File "(.+)", line (\d+), in (.+)$')


def _place_of(trace: str) -> str:
    """The innermost line of a stack trace: file, line number, function and text; nothing where no file has the text."""
    lines = [line.strip() for line in trace.strip().split("\n")]
    for i in range(len(lines) - 2, -1, -1):
        found = _FRAME.match(lines[i])
        if found:
            return f"File: {found[1]}:{found[2]} in {found[3]}, code: {lines[i + 1]}"
    return ""


class _PyTreeInfo(NamedTuple):
    """Structure of inputs and outputs of a graph whose own inputs and outputs are the leaves."""

    orig_args: list[str]
    in_spec: Any
    out_spec: Any


class _PyTreeCodeGen(CodeGen):
    """A function whose arguments are nested containers; the graph sees their leaves."""

    def __init__(self, pytree_info: _PyTreeInfo) -> None:
        super().__init__()
        self.pytree_info = pytree_info

    def process_inputs(self, *inputs: Any) -> Any:
        return pytree.tree_leaves(inputs)

    def process_outputs(self, outputs: Any) -> Any:
        if self.pytree_info.out_spec is None:
            return outputs
        if not isinstance(outputs, (list, tuple)):
            outputs = [outputs]
        return pytree.tree_unflatten(outputs, self.pytree_info.out_spec)

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        names = list(self.pytree_info.orig_args)
        if not names or names[0] != "self":
            names.insert(0, "self")
        head = super().gen_fn_def(names, maybe_return_annotation)
        if not free_vars:
            return head
        leaves = [v.partition(":")[0].partition("=")[0].strip() for v in free_vars]
        given = [name for name in names if name != "self"]
        if self._has_keywords():
            count = self.pytree_info.in_spec.children_specs[0].num_children
            by_name = ", ".join(f"{name!r}: {name}" for name in given[count:])
            tree = f"(({''.join(f'{name}, ' for name in given[:count])}), {{{by_name}}})"
        elif self.pytree_info.in_spec is None or self.pytree_info.in_spec.num_children == len(given):
            tree = f"[{', '.join(given)}]"
        else:
            tree = ", ".join(given)
        return f"{head}\n    {', '.join(leaves)}, = fx_pytree.tree_flatten_spec({tree}, self._in_spec)"

    def _has_keywords(self) -> bool:
        """Whether the inputs are a tuple of arguments and a dict of those by name."""
        spec = self.pytree_info.in_spec
        if spec is None or spec.type is not tuple or spec.num_children != 2:
            return False
        first, second = spec.children_specs
        return first.type is tuple and second.type is dict and first.num_children + second.num_children == len(self.pytree_info.orig_args)

    def generate_output(self, output_args: Any) -> str:
        if self.pytree_info.out_spec is None:
            return super().generate_output(output_args)
        return f"return pytree.tree_unflatten({self._text_of_output(output_args)}, self._out_spec)"

