"""Symbolic tracing: running a program on proxies to record what it does."""

from __future__ import annotations

import builtins
import collections
import functools
import inspect
import itertools
import math
import sys
import threading
import warnings
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from ..nn import Module, Parameter, Sequential
from ..ops._derive import load
from ..ops._spec import METHOD, OPS
from ..tensor import Tensor
from ..utils import _pytree as pytree
from ._codegen import _PyTreeCodeGen, _PyTreeInfo
from .graph import Graph
from .graph_module import GraphModule
from .node import assertion, base_types, has_side_effect
from .proxy import ParameterProxy, Proxy, Scope, ScopeContextManager, TracerBase

__all__ = [
    "PH", "PHBase", "PHWithMeta", "ProxyableClassMeta", "Tracer", "is_fx_symbolic_tracing", "is_fx_tracing", "symbolic_trace",
    "wrap",
]  # fmt: skip

_HAS_VARSTUFF = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


class _Tracing(threading.local):
    """What this thread is tracing."""

    depth = 0


_tracing = _Tracing()


def is_fx_tracing() -> bool:
    """Whether a program is being traced in this thread."""
    return _tracing.depth > 0


is_fx_symbolic_tracing = is_fx_tracing


class PHBase:
    """Among concrete arguments: this one stays an input of the graph."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


class PHWithMeta(PHBase):
    """A `PH` whose proxies take over `ph_key`."""

    def __init__(self, ph_key: str | None = None) -> None:
        self.ph_key = ph_key

    def transfer_metadata_to_proxy(self, proxy: Any) -> None:
        if self.ph_key is not None:
            proxy.node.meta["ph_key"] = self.ph_key


class ProxyableClassMeta(type):
    """The metaclass of classes whose instances may be made while a program is traced, from proxies: a node makes them."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        proxy = _find_proxy((args, kwargs))
        if proxy is None:
            return super().__call__(*args, **kwargs)
        return proxy.tracer.create_proxy("call_function", cls, args, kwargs)


# -- functions that are not traced into ----------------------------------------------------------------------------------

# (id of a module's globals, name) -> those globals.
_wrapped_fns_to_patch: dict[tuple[int, str], dict[str, Any]] = {}


def wrap(fn_or_name: str | Callable[..., Any]) -> str | Callable[..., Any]:
    """Have calls of a function recorded as they are; to be called at the top level of a module, or used as decorator there.

    Args:
        fn_or_name: a function of the calling module, or the name of one: ``wrap("len")``.
    Raises: RuntimeError for anything else; NotImplementedError if it is not called at the top level of a module.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    if isinstance(fn_or_name, str):
        name = fn_or_name
    elif hasattr(fn_or_name, "__code__"):
        name = fn_or_name.__code__.co_name  # the name it has in its module, whatever `__name__` says
    else:
        raise AssertionError("Callable must be a global function")
    caller = sys._getframe(1)
    if caller.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped_fns_to_patch[(id(caller.f_globals), name)] = caller.f_globals
    return fn_or_name


def _find_proxy(values: Any) -> Proxy | None:
    """A proxy in nested containers."""
    parts = [*values]
    while parts:
        part = parts.pop()
        if isinstance(part, Proxy):
            return part
        if isinstance(part, (list, tuple)):
            parts.extend(part)
        elif isinstance(part, dict):
            parts.extend(part.values())
        elif isinstance(part, slice):
            parts.extend((part.start, part.stop, part.step))
    return None


def _create_wrapped_func(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, recorded where it meets a proxy."""

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxy = _find_proxy((args, kwargs))
        if proxy is None:
            return fn(*args, **kwargs)
        made = proxy.tracer.create_proxy("call_function", fn, args, kwargs)
        made.node.meta["is_wrapped"] = True
        return made

    return wrapped


@functools.cache
def _recorded_methods() -> list[tuple[str, Any]]:
    """Methods of Tensor that ask no classes of their arguments, recorded where a constant of the program meets a proxy.

    These are methods that are no ops, and views, whose other arguments are numbers.
    """
    load("creation.new")                                  # whose methods are given sizes
    own = [(name, method) for name, method in Tensor.__dict__.items() if callable(method) and not name.startswith("_")]
    found = {name: method for name, method in own if not hasattr(method, "flambeau_op")}
    views = (op for op in OPS.values() if op.kind == "view" and op.surface & METHOD and not op.namespace)
    found.update({op.name: getattr(Tensor, op.name) for op in views})
    return [(name, _recorded_method(name, method)) for name, method in found.items()]


def _recorded_method(name: str, method: Any) -> Any:
    @functools.wraps(method)
    def recorded(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        proxy = _find_proxy((args, kwargs)) if args or kwargs else None
        if proxy is None:
            return method(self, *args, **kwargs)
        return proxy.tracer.create_proxy("call_method", name, (self, *args), kwargs)

    return recorded


_ABSENT = object()


class _Patcher:
    """Replaces entries of namespaces and attributes of classes, and puts everything back in the end."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._visited: set[int] = set()
        self._patched: set[tuple[int, str]] = set()

    def patch_entry(self, namespace: dict[str, Any], name: str, value: Any) -> None:
        if (id(namespace), name) in self._patched:
            return
        self._patched.add((id(namespace), name))
        before = namespace.get(name, _ABSENT)
        namespace[name] = value

        def undo() -> None:
            if before is _ABSENT:
                del namespace[name]
            else:
                namespace[name] = before

        self._undo.append(undo)

    def patch_method(self, cls: type, name: str, value: Any) -> None:
        before = cls.__dict__[name]
        setattr(cls, name, value)
        self._undo.append(lambda: setattr(cls, name, before))

    def visit_once(self, thing: Any) -> bool:
        """Whether this is the first time that `thing` is met."""
        first = id(thing) not in self._visited
        self._visited.add(id(thing))
        return first

    def __enter__(self) -> _Patcher:
        return self

    def __exit__(self, *_: object) -> None:
        while self._undo:
            self._undo.pop()()


def _patch_wrapped_functions(patcher: _Patcher) -> None:
    for (_, name), namespace in list(_wrapped_fns_to_patch.items()):
        fn: Any = namespace.get(name, _ABSENT)
        if fn is _ABSENT:
            fn = getattr(builtins, name, _ABSENT)
        if fn is not _ABSENT:
            patcher.patch_entry(namespace, name, _create_wrapped_func(fn))


def _autowrap_check(patcher: _Patcher, namespace: dict[str, Any], function_ids: set[int]) -> None:
    """Record calls of the functions of these ids wherever `namespace` has them."""
    if not patcher.visit_once(namespace):
        return
    for name, value in list(namespace.items()):
        if not name.startswith("_") and callable(value) and id(value) in function_ids:
            patcher.patch_entry(namespace, name, _create_wrapped_func(value))


# -- the tracer ----------------------------------------------------------------------------------------------------------


class Tracer(TracerBase):
    """Records a Module or function by running it on proxies. Subclasses change what is recorded.

    Args:
        autowrap_modules: modules whose functions are recorded as calls.
        autowrap_functions: further functions that are.
        param_shapes_constant: shapes of parameters are numbers in the trace, not nodes.

    >>> class KeepDropout(fb.fx.Tracer):
    ...     def is_leaf_module(self, m, module_qualified_name):
    ...         return isinstance(m, fb.nn.Dropout)
    >>> model = fb.nn.Sequential(fb.nn.ReLU(), fb.nn.Dropout())
    >>> print(fb.fx.GraphModule(model, KeepDropout().trace(model)).code.strip())
    def forward(self, input):
        input_1 = input
        relu = torch.nn.functional.relu(input_1, inplace = False);  input_1 = None
        _1 = getattr(self, "1")(relu);  relu = None
        return _1
    """

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        self._autowrap_function_ids = {
            id(value)
            for name, value in itertools.chain.from_iterable(m.__dict__.items() for m in autowrap_modules)
            if not name.startswith("_") and callable(value)
        }
        self._autowrap_function_ids.update(id(f) for f in autowrap_functions)
        self._autowrap_search = list(autowrap_modules)
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[Module, str] | None = None
        self.root_module_name = ""
        self.scope = Scope("", None)
        self.module_stack: collections.OrderedDict[str, tuple[str, Any]] = collections.OrderedDict()
        self.num_calls: dict[str, int] = {}
        self.node_name_to_scope: dict[str, tuple[str, type]] = {}
        self._qualname_counter: dict[str, int] = collections.Counter()

    def get_fresh_qualname(self, prefix: str) -> str:
        """``prefix0``, ``prefix1`` or the next name that is no attribute of the root."""
        i = self._qualname_counter[prefix]
        while hasattr(self.root, f"{prefix}{i}"):
            i += 1
        self._qualname_counter[prefix] = i + 1
        return f"{prefix}{i}"

    def create_arg(self, a: Any) -> Any:
        """`a` as an argument of nodes.

        Parameters, buffers and other tensors that the root has become ``get_attr`` nodes; tensors that it has not are given
        to it first, under names such as ``_tensor_constant0``.
        """
        if isinstance(a, Parameter):
            for name, parameter in self.root.named_parameters():
                if a is parameter:
                    return self.create_node("get_attr", name, (), {})
            raise NameError("parameter is not a member of this module")
        if isinstance(a, Tensor):
            for name, buffer in self.root.named_buffers():
                if a is buffer:
                    return self.create_node("get_attr", name, (), {})
            name = self.tensor_attrs.get(id(a))
            if name is None:
                name = self.get_fresh_qualname("_tensor_constant")
                self.tensor_attrs[id(a)] = name
                setattr(self.root, name, a)
            return self.create_node("get_attr", name, (), {})
        if isinstance(a, Module):
            for name, module in self.root.named_modules():
                if a is module:
                    return self.create_node("get_attr", name, (), {})
        return super().create_arg(a)

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether calls of `m` are recorded as such: those of the modules that ``nn`` offers, but for Sequential."""
        return m.__module__.startswith(("flambeau.nn", "flambeau.ao.nn")) and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """The dotted path of `mod` below the root. Raises: NameError if it is not there."""
        if self.submodule_paths:
            path = self.submodule_paths.get(mod)
            if path is None:
                raise NameError("module is not installed as a submodule")
            return path
        for name, module in self.root.named_modules():
            if mod is module:
                return name
        raise NameError("module is not installed as a submodule")

    def call_module(self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a call of the module `m` gives: a proxy of a ``call_module`` node for leaves, else what ``forward`` returns.

        Args:
            forward: runs the module's code.
            args, kwargs: of the call.
        """
        path = self.path_of_module(m)
        with ScopeContextManager(self.scope, Scope(path, type(m))):
            calls = self.num_calls.get(path, 0)
            self.num_calls[path] = calls + 1
            key = f"{path}@{calls}" if calls else path
            self.module_stack[key] = (path, type(m))
            try:
                if self.is_leaf_module(m, path):
                    return self.create_proxy("call_module", path, args, kwargs)
                return forward(*args, **kwargs)
            finally:
                self.module_stack.popitem()

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """What a module's attribute is while it is traced: a proxy for parameters.

        Args:
            attr: its name.
            attr_val: its value.
            parameter_proxy_cache: proxies made so far, by dotted path.
        """
        if isinstance(attr_val, Parameter):
            return self._proxy_of_attribute(attr_val, self.root.named_parameters(), parameter_proxy_cache)
        if self.proxy_buffer_attributes and isinstance(attr_val, Tensor):
            return self._proxy_of_attribute(attr_val, self.root.named_buffers(), parameter_proxy_cache)
        return attr_val

    def _proxy_of_attribute(self, value: Any, named: Any, cache: dict[str, Any]) -> Any:
        for name, found in named:
            if value is not found:
                continue
            if name not in cache:
                factory: Any = None
                if self.param_shapes_constant:
                    factory = functools.partial(self._parameter_proxy, name, value)
                cache[name] = self.create_proxy("get_attr", name, (), {}, proxy_factory_fn=factory)
            return cache[name]
        return value

    def _parameter_proxy(self, name: str, param: Any, node: Any) -> ParameterProxy:
        return ParameterProxy(self, node, name, param)

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Callable[..., Any], list[Any]]:
        """Make the inputs of the graph from the parameters of `root_fn`.

        Args:
            is_module: whether the first parameter is the module.
            concrete_args: a dict, or a tuple in order, of arguments that are no inputs.
        Returns: the function to run, and its arguments.
        """
        fn = inspect.unwrap(root_fn)
        code = fn.__code__
        total = code.co_argcount + code.co_kwonlyargcount
        names = iter(code.co_varnames)
        args: list[Any] = []
        skipped = 0
        if is_module:
            if total == 0:
                raise RuntimeError("``self`` argument cannot be part of *args expansion!")
            next(names)
            args.append(self.root)
            skipped = 1
        parameters = inspect.signature(fn).parameters
        if isinstance(concrete_args, tuple):
            if len(concrete_args) != total - skipped:
                raise RuntimeError(
                    f"Tracing expected {total - skipped} arguments but got {len(concrete_args)} concrete arguments"
                )
            concrete_args = dict(zip(code.co_varnames[skipped:total], concrete_args, strict=True))
        counter = itertools.count(1)

        def placeholder(name: str) -> Any:
            return self._placeholder(name, concrete_args, parameters, fn, counter)

        inputs = [placeholder(next(names)) for _ in range(skipped, total)]
        # What is given by keyword only is given to the function so.
        positional = code.co_argcount - skipped
        args.extend(inputs[:positional])
        by_name = dict(zip(code.co_varnames[code.co_argcount : total], inputs[positional:], strict=True))
        rest: Any = ()
        given: dict[str, Any] = {}
        if concrete_args is None:
            if code.co_flags & inspect.CO_VARARGS:
                rest = self.create_proxy("placeholder", "*" + next(names), (), {}, name=None)
                rest = (rest,)
            if code.co_flags & inspect.CO_VARKEYWORDS:
                given = {"**": self.create_proxy("placeholder", "**" + next(names), (), {})}
        flat = None if not isinstance(concrete_args, dict) else self._flattened(root_fn, args, by_name, is_module)
        if flat is not None:
            return flat
        root_fn = _calling(root_fn, by_name, rest, given)
        return root_fn, args

    def _placeholder(self, name: str, concrete_args: Any, parameters: Any, fn: Any, counter: Any) -> Any:
        annotation = _annotations(fn).get(name)
        parameter = parameters.get(name)
        default = () if parameter is None or parameter.default is inspect.Parameter.empty else (parameter.default,)
        if concrete_args is None or name not in concrete_args:
            return self.create_proxy("placeholder", name, default, {}, type_expr=annotation)

        def replace(leaf: Any) -> Any:
            made = self.create_proxy("placeholder", f"{name}_{next(leaves)}", default, {})
            if isinstance(leaf, PHBase):
                if isinstance(leaf, PHWithMeta):
                    leaf.transfer_metadata_to_proxy(made)
                return made
            self._assert_specialized(made, name, leaf)
            return leaf

        leaves = itertools.count(1)
        return pytree.tree_map(replace, concrete_args[name])

    def _assert_specialized(self, proxy: Proxy, name: str, value: Any) -> None:
        """Have the graph check that it is called with the value that it was traced for."""
        text = f"{name} has been specialized to have value {value} but got another value"
        if type(value) is bool or isinstance(value, base_types) and not isinstance(value, Tensor):
            self.create_proxy("call_function", assertion(), (proxy == value, text), {})
        elif value is None:
            self.create_proxy("call_function", _assert_is_none, (proxy, text), {})
        else:
            warnings.warn(
                f"Was not able to add assertion to guarantee correct input {name} to specialized function. It is up to the user "
                "to make sure that your inputs match the inputs you specialized the function with.",
                stacklevel=2,
            )

    def _flattened(self, fn: Any, args: list[Any], by_name: dict[str, Any], is_module: bool) -> Any:
        """The function on leaves, if some argument is a container; None if none is."""
        given = args[1:] if is_module else args
        values = [*given, *by_name.values()]
        leaves, spec = pytree.tree_flatten(values)
        if all(child.is_leaf() for child in spec.children()):
            return None
        names = list(inspect.signature(inspect.unwrap(fn)).parameters)
        orig_args = names[1:] if is_module else names

        def flatten_fn(*flat: Any) -> Any:
            tree = pytree.tree_unflatten(flat, spec)
            positional, rest = tree[: len(given)], tree[len(given) :]
            out = fn(*(args[:1] if is_module else ()), *positional, **dict(zip(by_name, rest, strict=True)))
            flat_out, out_spec = pytree.tree_flatten(out)
            codegen: Any = self.graph._codegen
            codegen.pytree_info = codegen.pytree_info._replace(out_spec=out_spec)
            return flat_out

        self.graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(orig_args[: len(values)], spec, None)))
        return flatten_fn, leaves

    def trace(self, root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> Graph:
        """The Graph of what `root` does.

        Args:
            root: a Module or a function of Python.
            concrete_args: arguments that are no inputs, by name: the program is traced for these values, so it may decide
                by them. In containers, `PH` stands for parts that are inputs.
        Raises: TraceError if the program decides by values; AssertionError if `root` is neither.

        Tensors that are constants of the program become attributes of `self.root`, of which a GraphModule is to be made.
        """
        _tracing.depth += 1
        try:
            return self._trace(root, concrete_args)
        finally:
            _tracing.depth -= 1

    def _trace(self, root: Any, concrete_args: Any) -> Graph:
        if isinstance(root, Module):
            self.root = root
            if not hasattr(type(root), self.traced_func_name):
                raise AssertionError(f"traced_func_name={self.traced_func_name} doesn't exist in {type(root).__name__}")
            fn: Any = getattr(type(root), self.traced_func_name)
            self.root_module_name = root._get_name()
            self.submodule_paths = {mod: name for name, mod in root.named_modules()}
        else:
            self.root = Module()
            fn = root
        self.graph = Graph(tracer_cls=getattr(self, "__class__", None))
        self.tensor_attrs: dict[int, str] = {}
        self._held: list[Any] = []  # keeps tensors alive whose ids are keys
        self._collect_tensors(self.root, [])
        if not isinstance(fn, FunctionType):
            raise AssertionError(f"Expected FunctionType, got {type(fn)}")
        namespace = fn.__globals__
        returns = _annotations(fn).get("return")
        given = fn
        fn, args = self.create_args_for_root(fn, isinstance(root, Module), concrete_args)
        with _Patcher() as patcher:
            self._patch_modules(patcher)
            for name, method in _recorded_methods():
                patcher.patch_method(Tensor, name, method)
            _patch_wrapped_functions(patcher)
            _autowrap_check(patcher, namespace, self._autowrap_function_ids)
            for module in self._autowrap_search:
                _autowrap_check(patcher, module.__dict__, self._autowrap_function_ids)
            self._patcher = patcher
            result = self.create_arg(fn(*args))
            self.create_node("output", "output", (result,), {}, type_expr=returns if fn is given else None)
        self.submodule_paths = None
        return self.graph

    def _collect_tensors(self, module: Module, path: list[str]) -> None:
        """Note where the root has tensors that are neither parameters nor buffers."""
        for name, value in module.__dict__.items():
            if isinstance(value, Tensor):
                self.tensor_attrs[id(value)] = ".".join([*path, name])
                self._held.append(value)
        for name, child in module.named_children():
            self._collect_tensors(child, [*path, name])

    def _patch_modules(self, patcher: _Patcher) -> None:
        """Have calls and attributes of modules come to this tracer, in this thread."""
        get, call = Module.__getattr__, Module.__call__
        cache: dict[str, Any] = {}
        thread = threading.get_ident()

        @functools.wraps(get)
        def traced_getattr(mod: Module, attr: str) -> Any:
            value = get(mod, attr)
            return self.getattr(attr, value, cache) if threading.get_ident() == thread else value

        @functools.wraps(call)
        def traced_call(mod: Module, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != thread:
                return call(mod, *args, **kwargs)

            def forward(*args: Any, **kwargs: Any) -> Any:
                return call(mod, *args, **kwargs)

            namespace = getattr(getattr(mod, "forward", mod), "__globals__", {})
            _autowrap_check(patcher, namespace, self._autowrap_function_ids)
            return self.call_module(mod, forward, args, kwargs)

        patcher.patch_method(Module, "__getattr__", traced_getattr)
        patcher.patch_method(Module, "__call__", traced_call)


def _annotations(fn: Any) -> dict[str, Any]:
    """The annotations of `fn`; those of our own modules are for readers and type checkers, and no part of a program."""
    own = (getattr(fn, "__module__", None) or "").partition(".")[0] == __name__.partition(".")[0]
    return {} if own else getattr(fn, "__annotations__", {})


def _calling(fn: Any, by_name: dict[str, Any], rest: Any, given: dict[str, Any]) -> Any:
    """`fn` with its keyword arguments, and proxies for what ``*args`` and ``**kwargs`` hold."""
    if not by_name and not rest and not given:
        return fn
    if not rest and not given:
        called = functools.partial(fn, **by_name)
    else:
        flat = _patch_function(inspect.unwrap(fn))

        def called(*args: Any) -> Any:  # type: ignore[misc]
            return flat(*args, *by_name.values(), *rest, *given.values())

    called.__annotations__ = getattr(fn, "__annotations__", {})  # type: ignore[attr-defined]
    return called


def _patch_function(fn: Any) -> Any:
    """`fn` with ``*args`` and ``**kwargs`` as two plain parameters, so that they may be proxies."""
    code = fn.__code__
    flags = code.co_flags & ~_HAS_VARSTUFF
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    plain = code.replace(co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=flags)
    return FunctionType(plain, fn.__globals__, fn.__name__, None, fn.__closure__)


def _assert_is_none(value: Any, msg: str) -> None:
    """Raise AssertionError with `msg` unless `value` is None."""
    if value is not None:
        raise AssertionError(msg)


def symbolic_trace(root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """A GraphModule that does what `root` does, recorded by running it on proxies.

    Args:
        root: a Module or a function of Python.
        concrete_args: see `Tracer.trace`.

    >>> print(fb.fx.symbolic_trace(lambda x: fb.relu(x) + 1).code.strip())
    def forward(self, x):
        relu = torch.relu(x);  x = None
        add = relu + 1;  relu = None
        return add
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    if isinstance(root, GraphModule):
        name = root._get_name()
    return GraphModule(tracer.root, graph, name)


has_side_effect(_assert_is_none)
