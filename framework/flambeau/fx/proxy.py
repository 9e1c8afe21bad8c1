"""Proxies: values of a program that is traced. What is done to them becomes nodes of a Graph."""

from __future__ import annotations

import dis
import operator
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from types import FrameType
from typing import Any

from .. import _state, dtypes
from ..ops._spec import FUNCTION, METHOD
from ..tensor import Tensor
from . import traceback as fx_traceback
from .graph import Graph
from .node import Node, assertion, base_types

__all__ = [
    "Attribute", "GraphAppendingTracer", "ParameterProxy", "Proxy", "Scope", "ScopeContextManager", "TraceError", "TracerBase",
]  # fmt: skip


# What a node that is made while another is run again takes over of it; values and looks are its own.
_TAKEN_OVER = ("stack_trace", "nn_module_stack", "custom", "seq_nr")


class TraceError(ValueError):
    """A traced program does what depends on values, which it does not have while it is traced."""


class Scope:
    """Which module is being traced: its path and class."""

    def __init__(self, module_path: str, module_type: Any) -> None:
        self.module_path, self.module_type = module_path, module_type


class ScopeContextManager:
    """A region in which the scope is `current_scope`."""

    def __init__(self, scope: Scope, current_scope: Scope) -> None:
        self._scope, self._before = scope, (scope.module_path, scope.module_type)
        scope.module_path, scope.module_type = current_scope.module_path, current_scope.module_type

    def __enter__(self) -> Scope:
        return self._scope

    def __exit__(self, *_: object) -> None:
        self._scope.module_path, self._scope.module_type = self._before


class TracerBase:
    """What every tracer does: makes nodes and proxies, and says what cannot be traced."""

    graph: Graph
    record_stack_traces = False
    check_mutable_operations = False
    trace_asserts = False
    proxy_buffer_attributes = False
    traced_func_name = "forward"
    scope: Scope
    module_stack: OrderedDict[str, tuple[str, Any]]
    node_name_to_scope: dict[str, tuple[str, type]]

    def create_node(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Make a node at the graph's insertion point. Subclasses override it to check or change what is recorded."""
        if kind == "call_function" and self.check_mutable_operations:
            from .operator_schemas import check_for_mutable_operation

            check_for_mutable_operation(target, args, kwargs)
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        scope = getattr(self, "scope", None)
        if scope is not None:
            self.node_name_to_scope[node.name] = (scope.module_path, scope.module_type)
        if getattr(self, "module_stack", None):
            node.meta["nn_module_stack"] = self.module_stack.copy()
        if self.record_stack_traces and kind not in ("placeholder", "output"):
            node.stack_trace = self._stack_of_node()
        if kind != "placeholder" and fx_traceback.has_preserved_node_meta():
            current = fx_traceback.get_current_meta()
            node.meta.update({name: current[name] for name in _TAKEN_OVER if name in current})
        return node

    def _stack_of_node(self) -> str | None:
        """The lines of the program that the node which is being made comes from, as Python prints them, the innermost last."""
        return _users_stack()

    def proxy(self, node: Node) -> Proxy:
        """The Proxy of `node`."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """Make a node from arguments that may be proxies, and the Proxy of it.

        Args:
            kind, target, args, kwargs, name, type_expr: see `Graph.create_node`.
            proxy_factory_fn: makes the Proxy; `proxy` does by default.
        """
        given, by_name = self.create_arg(args), self.create_arg(kwargs)
        if not isinstance(given, tuple) or not isinstance(by_name, dict):
            raise AssertionError(f"create_proxy: args must stay a tuple and kwargs a dict, got {given!r} and {by_name!r}")
        node = self.create_node(kind, target, given, by_name, name, type_expr)
        return self.proxy(node) if proxy_factory_fn is None else proxy_factory_fn(node)

    def create_arg(self, a: Any) -> Any:
        """`a` as an argument of nodes: proxies become nodes, in containers too.

        Raises: NotImplementedError for a type that graphs cannot hold; RuntimeError for a dict with nodes among its keys.
        """
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple):
            if hasattr(a, "_make"):
                # Code that makes the same kind of tuple, for graphs know none but plain ones.
                return self.create_node("call_function", type(a), tuple(self.create_arg(x) for x in a), {})
            return tuple(self.create_arg(x) for x in a)
        if isinstance(a, list):
            return [self.create_arg(x) for x in a]
        if isinstance(a, dict):
            return self._arg_of_dict(a)
        if isinstance(a, slice):
            return slice(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if isinstance(a, range):
            return range(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if isinstance(a, (Node, *base_types)) or a is None or a is ...:
            return a
        if is_dataclass(a) and not isinstance(a, type):
            parts = {f.name: self.create_arg(getattr(a, f.name)) for f in fields(a)}
            return self.create_node("call_function", type(a), (), parts)
        if isinstance(a, (dtypes.finfo, dtypes.iinfo)) or callable(a) and hasattr(a, "flambeau_op"):
            return a
        import enum

        if isinstance(a, enum.Enum):
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def _arg_of_dict(self, a: dict[Any, Any]) -> dict[Any, Any]:
        made = {}
        for key, value in a.items():
            key = self.create_arg(key)
            parts = [key]
            while parts:
                part = parts.pop()
                if isinstance(part, Node):
                    raise RuntimeError(f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {part}")
                if isinstance(part, tuple):
                    parts.extend(part)
            made[key] = self.create_arg(value)
        return made

    def to_bool(self, obj: Proxy) -> bool:
        """The truth of a proxy: a TraceError, unless a subclass knows better."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """What ``for`` goes through in a proxy: a TraceError, unless a subclass knows better."""
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or **kwargs "
            "function argument. See the torch.fx docs on pytorch.org for a more detailed explanation of what types of control "
            "flow can be traced, and check out the Proxy docstring for help troubleshooting Proxy iteration errors"
        )

    def keys(self, obj: Proxy) -> Any:
        """What ``**proxy`` takes for keys: a call of its method."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """A tracer for those who make proxies of nodes themselves: it appends to `graph`."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.scope = Scope("", None)
        self.module_stack = OrderedDict()
        self.node_name_to_scope = {}


class Proxy:
    """Stands for a value while a program is traced: what is done to it becomes nodes.

    Operators, methods, attributes and functions that take it are recorded after `node`, whose value it is.

    Args:
        tracer: makes those nodes. Pass one to proxies that are to meet in one call.
    """

    node: Node
    tracer: TracerBase

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        # Functions look at the classes of their operands while there is a proxy, and not afterwards.
        _state.begin_interpreting()
        return object.__new__(cls)

    def __del__(self, end: Any = _state.end_interpreting) -> None:
        end()

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Any:
        # Numpy asks everything that it meets whether it is an array, and our operations ask operands for theirs.
        if k in ("node", "tracer", "_array") or k.startswith("__array"):
            raise AttributeError(k)
        return Attribute(self, k)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state

    def __deepcopy__(self, memo: dict[int, Any]) -> Proxy:
        return type(self)(self.node, self.tracer)

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        caller = sys._getframe(1)
        instruction = _instruction(caller)
        if instruction is not None and instruction.opname == "UNPACK_SEQUENCE":
            return (operator.getitem(self, i) for i in range(instruction.argval))  # type: ignore[call-overload]  # made below
        return self.tracer.iter(self)

    def __bool__(self) -> bool:
        if self.tracer.trace_asserts and _is_in_assert(sys._getframe(1)):
            self.tracer.create_proxy("call_function", assertion(), (self, "assertion failed"), {})
            return True
        return self.tracer.to_bool(self)

    def keys(self) -> Any:
        """What the tracer says the keys are, for ``**proxy``."""
        return self.tracer.keys(self)

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call "
            "torch.fx.wrap('len') at module scope"
        )

    @classmethod
    def __torch_function__(cls, orig_method: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tracer = _one_tracer(orig_method, args, kwargs)
        name = _method_name(orig_method)
        if name is not None:
            return tracer.create_proxy("call_method", name, args, kwargs)
        return tracer.create_proxy("call_function", orig_method, args, kwargs)


def _one_tracer(fn: Any, args: Any, kwargs: Any) -> TracerBase:
    """The tracer of the proxies among the arguments. Raises: RuntimeError if they have several."""
    found: dict[TracerBase, None] = {}
    parts = [*args, *kwargs.values()]
    while parts:
        part = parts.pop(0)
        if isinstance(part, Proxy):
            found[part.tracer] = None
        elif isinstance(part, (list, tuple)):
            parts.extend(part)
        elif isinstance(part, dict):
            parts.extend(part.values())
        elif isinstance(part, slice):
            parts.extend((part.start, part.stop, part.step))
    if len(found) > 1:
        raise RuntimeError(f"Found multiple different tracers {list(found)} while trying to trace operations {fn}")
    return next(iter(found))


def _method_name(fn: Any) -> str | None:
    """The name by which `fn` is called on its first argument, if it is a method of Tensor."""
    name = getattr(fn, "__name__", "")
    op = getattr(fn, "flambeau_op", None)
    if getattr(fn, "__qualname__", "").startswith("Tensor.") or op is not None and not op.surface & FUNCTION and op.surface & METHOD:
        return name
    return name if Tensor.__dict__.get(name) is fn and not hasattr(fn, "flambeau_op") else None


class Attribute(Proxy):
    """An attribute of a proxy: a node only if it is used as a value; calling it calls the method."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __deepcopy__(self, memo: dict[int, Any]) -> Proxy:
        return Attribute(self.root, self.attr)

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """The proxy of a parameter, whose shape is known while it is traced."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Any) -> None:
        super().__init__(node, tracer)
        self.param, self.name = param, name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        return self.param.shape

    def size(self, *args: Any) -> Any:
        return self.param.size(*args)

    def dim(self) -> int:
        return self.param.dim()

    @property
    def ndim(self) -> int:
        return self.param.ndim

    def numel(self) -> int:
        return self.param.numel()

    def nelement(self) -> int:
        return self.param.nelement()


_OPERATORS = (
    "eq", "ne", "lt", "gt", "le", "ge", "pos", "neg", "invert", "add", "sub", "mul", "floordiv", "truediv", "mod", "pow",
    "lshift", "rshift", "and_", "or_", "xor", "getitem", "matmul", "abs",
)  # fmt: skip
_REFLECTED = ("add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "lshift", "rshift", "and_", "or_", "xor", "matmul")


def _operator_method(fn: Any, reflected: bool) -> Any:
    def method(self: Proxy, *args: Any) -> Proxy:
        given = (*args, self) if reflected else (self, *args)
        return _one_tracer(fn, given, {}).create_proxy("call_function", fn, given, {})

    return method


for _name in _OPERATORS:
    setattr(Proxy, f"__{_name.rstrip('_')}__", _operator_method(getattr(operator, _name), False))
for _name in _REFLECTED:
    setattr(Proxy, f"__r{_name.rstrip('_')}__", _operator_method(getattr(operator, _name), True))
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]  # which `__eq__` took away


# -- the line that asks --------------------------------------------------------------------------------------------------


def _instruction(frame: FrameType) -> dis.Instruction | None:
    """The instruction that `frame` is at."""
    # The offset may be that of the data behind the instruction.
    reached = [i for i in dis.get_instructions(frame.f_code) if i.offset <= frame.f_lasti and i.opname != "CACHE"]
    return reached[-1] if reached else None


def _is_in_assert(frame: FrameType) -> bool:
    """Whether `frame` asks for the truth of what it asserts."""
    at = False
    for instruction in dis.get_instructions(frame.f_code):
        if at:
            return instruction.opname == "LOAD_ASSERTION_ERROR"
        at = instruction.offset == frame.f_lasti and "JUMP" in instruction.opname
    return False


def _users_stack() -> str:
    """The program's frames, innermost last, as Python prints them; frames of this package are left out."""
    import traceback

    package = __file__.rpartition("fx")[0]
    frames = [f for f in traceback.extract_stack() if not f.filename.startswith((package, "<flambeau "))]
    return "".join(traceback.format_list(frames)).strip()
