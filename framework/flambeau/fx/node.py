"""Node: one call, input or result in a Graph."""

from __future__ import annotations

import functools
import importlib
import inspect
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from .. import devices, dtypes
from ..ops._makers import install_functions
from ..tensor import Tensor
from ._names import qualified_name
from .immutable_collections import immutable_dict, immutable_list

if TYPE_CHECKING:
    from .graph import Graph
    from .operator_schemas import ArgsKwargsPair

__all__ = ["Argument", "Node", "Target", "has_side_effect", "map_aggregate", "map_arg"]

BaseArgumentTypes = Union[  # noqa: UP007  # a name that programs use at run time
    str, int, float, bool, complex, dtypes.dtype, Tensor, devices.device, devices.memory_format, devices.layout
]
base_types = BaseArgumentTypes.__args__
Target: TypeAlias = Union[Callable[..., Any], str]  # noqa: UP007
Argument = Union[
    tuple["Argument", ...], Sequence["Argument"], Mapping[str, "Argument"], slice, range, "Node", BaseArgumentTypes, None
]

_legal_ops = dict.fromkeys(("placeholder", "call_method", "call_module", "call_function", "get_attr", "output", "root"))

_side_effectful_functions: set[Callable[..., Any]] = set()


def has_side_effect(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Keep calls of `fn` in graphs though nobody uses the result; returns `fn`."""
    _side_effectful_functions.add(fn)
    return fn


def assertion() -> Callable[..., Any]:
    """``torch._assert``, under the name by which programs reach it."""
    return importlib.import_module(__package__.partition(".")[0])._assert


# Functions that make tensors, or answer about them, ask the classes of their arguments from here on.
install_functions()
has_side_effect(assertion())
has_side_effect(importlib.import_module(f"{__package__.partition('.')[0]}._C")._set_grad_enabled)


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """`a` with every Node in it, in lists, tuples, dicts and slices too, replaced by ``fn(node)``."""
    if not callable(fn):
        raise AssertionError("torch.fx.map_arg(a, fn): fn must be a callable")
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """`a` with every leaf replaced by ``fn(leaf)``; lists and dicts come back unchangeable."""
    if isinstance(a, tuple):
        made = [map_aggregate(x, fn) for x in a]
        return type(a)(*made) if hasattr(a, "_make") else tuple(made)
    if isinstance(a, list):
        return immutable_list([map_aggregate(x, fn) for x in a])
    if isinstance(a, dict):
        return immutable_dict({key: map_aggregate(x, fn) for key, x in a.items()})
    if isinstance(a, slice):
        return slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    return fn(a)


def _type_repr(obj: Any) -> str:
    """A type as its user wrote it, for printing."""
    if isinstance(obj, type) and not hasattr(obj, "__args__"):
        if obj.__module__ == "builtins":
            return obj.__qualname__
        module = obj.__module__
        if module.partition(".")[0] == "flambeau":
            return qualified_name(obj)
        return f"{module}.{obj.__qualname__}"
    if obj is ...:
        return "..."
    if inspect.isfunction(obj):
        return obj.__name__
    return repr(obj).replace("flambeau.", "torch.")


def _discoverable(target: Any) -> str:
    """The dotted name under which the function `target` is printed."""
    name = qualified_name(target)
    if "." not in name:
        return f"builtins.{name}"
    return name.replace("_operator.", "operator.", 1) if name.startswith("_operator.") else name


class Node:
    """One step of a Graph.

    What `target`, `args` and `kwargs` mean follows from `op`:

    - ``placeholder``: an input. `target` is the parameter's name; `args` is empty or has its default.
    - ``get_attr``: a parameter, buffer or other attribute of the module; `target` is its dotted path.
    - ``call_function``: `target` is the function.
    - ``call_module``: `target` is the dotted path of the module to call.
    - ``call_method``: `target` is the name of the method, called on ``args[0]``.
    - ``output``: what the graph returns is ``args[0]``.

    Args:
        graph: the Graph it belongs to.
        name: unique in the graph; the name of its value in generated code.
        return_type: annotation of its value, if known.
    Raises: AssertionError for an unknown `op`; ValueError if `target` is not what `op` needs.
    """

    _args: tuple[Any, ...]
    _kwargs: dict[str, Any]
    graph: Graph
    name: str
    op: str
    target: Any
    users: dict[Node, None]
    type: Any
    meta: dict[str, Any]

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        return_type: Any = None,
    ) -> None:
        if op not in _legal_ops:
            raise AssertionError(f"op {op!r} is not in _legal_ops")
        if op == "call_function":
            if not callable(target):
                raise ValueError(
                    f"Node [graph = {graph}, name = '{name}'] target {target} has type {_class_name(target)} but a "
                    "Callable is expected"
                )
        elif not isinstance(target, str):
            raise ValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type {_class_name(target)} but a str is expected"
            )
        self.graph, self.name, self.op, self.target = graph, name, op, target
        self._input_nodes: dict[Node, None] = {}
        self.users = {}
        self.type = return_type
        self.meta = {}
        self._erased = False
        self._position = 0
        self._repr_fn: Callable[[Node], str] | None = None
        self._prev = self._next = self
        self._args, self._kwargs = (), immutable_dict()
        self._set_arguments(args, kwargs)

    # -- the list of nodes

    @property
    def next(self) -> Node:
        """The node after this one."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Move `x`, of the same graph, to the place before this node. Raises: AssertionError for a node of another graph."""
        if self.graph is not x.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if self is x:
            return
        x._unlink()
        before = self._prev
        before._next, x._prev = x, before
        x._next, self._prev = self, x
        self.graph._positions_hold = False

    def append(self, x: Node) -> None:
        """Move `x`, of the same graph, to the place after this node."""
        if x is self._next:
            return
        self._next.prepend(x)

    def _unlink(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    def _place(self) -> int:
        if not self.graph._positions_hold:
            self.graph._number_nodes()
        return self._position

    def __lt__(self, other: Node) -> bool:
        return self._place() < other._place()

    def __gt__(self, other: Node) -> bool:
        return self._place() > other._place()

    def __le__(self, other: Node) -> bool:
        return self is other or self < other

    def __ge__(self, other: Node) -> bool:
        return self is other or self > other

    # -- arguments and uses

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments. Assigning others updates who uses what."""
        return self._args

    @args.setter
    def args(self, a: tuple[Any, ...]) -> None:
        self._set_arguments(a, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments. Assigning others updates who uses what."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, k: dict[str, Any]) -> None:
        self._set_arguments(self._args, k)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once, in order."""
        return list(self._input_nodes)

    def _set_arguments(self, args: Any, kwargs: Any) -> None:
        inputs: dict[Node, None] = {}

        def note(node: Node) -> Node:
            inputs[node] = None
            return node

        args, kwargs = map_arg(tuple(args), note), map_arg(dict(kwargs), note)
        for node in self._input_nodes:
            node.users.pop(self, None)
        for node in inputs:
            node.users.setdefault(self)
        self._args, self._kwargs, self._input_nodes = args, kwargs, inputs

    def update_arg(self, idx: int, arg: Any) -> None:
        """Put `arg` in the place of the positional argument `idx`."""
        args = list(self.args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Any) -> None:
        """Put `arg` before the positional argument `idx`. Raises: AssertionError if `idx` is not in 0..len(args)."""
        if not 0 <= idx <= len(self.args):
            raise AssertionError(f"insert_args index must be between 0 and len(self.args), got {idx} of {len(self.args)}")
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key: str, arg: Any) -> None:
        """Put `arg` in the place of the keyword argument `key`."""
        self.kwargs = {**self.kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Use `new_input` wherever this node uses `old_input`."""

        def other(node: Node) -> Node:
            return new_input if node is old_input else node

        self._tell_replaced(old_input, new_input.name, self)
        self._set_arguments(map_arg(self.args, other), map_arg(self.kwargs, other))

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] = lambda user: True,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Make everybody who uses this node use `replace_with`; returns those who did.

        Args:
            delete_user_cb: asked for each user whether it is to change.
            propagate_meta: copy `meta` to `replace_with`, which must have none.
        """
        if propagate_meta:
            if replace_with.meta:
                raise AssertionError(
                    "Called node.replace_all_uses_with(replace_with, propagate_meta=True), but replace_with already has .meta keys"
                )
            replace_with.meta.update(self.meta)
        changed = [user for user in list(self.users) if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    def _tell_replaced(self, old: Node, new: str, user: Node) -> None:
        for hook in getattr(self.graph.owning_module, "_replace_hooks", None) or ():
            hook(old=old, new=new, user=user)

    # -- what it says

    @property
    def stack_trace(self) -> str | None:
        """Where the program made this node, innermost last, if that was recorded."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def __repr__(self) -> str:
        return self._repr_fn(self) if self._repr_fn else self.name

    def _pretty_print_target(self, target: Any) -> str:
        return target if isinstance(target, str) else _discoverable(target)

    def format_node(
        self,
        placeholder_names: list[str] | None = None,
        maybe_return_typename: list[str] | None = None,
        *,
        include_tensor_metadata: bool = False,
    ) -> str | None:
        """This node on one line.

        Args:
            placeholder_names, maybe_return_typename: for `Graph.__str__`: lists that take names of inputs and the type returned.
            include_tensor_metadata: say dtype and shape, where they are known.
        """
        annotation = f"{_type_repr(self.type)} " if self.type else ""
        if include_tensor_metadata and self.op != "output":
            from ._codegen import tensor_annotation

            annotation = f"{tensor_annotation(self) or annotation.strip()} ".lstrip()
        head = f"%{self.name} : {annotation}[num_users={len(self.users)}] = "
        target = self._pretty_print_target(self.target)
        if self.op == "placeholder":
            if placeholder_names is not None:
                placeholder_names.append(f"{self.target}{f' : {annotation.strip()}' if annotation else ''}")
            default = f"(default={self.args[0]})" if self.args else ""
            return f"{head}{self.op}[target={self.target}]{default}"
        if self.op == "get_attr":
            return f"{head}{self.op}[target={target}]"
        if self.op == "output":
            if self.type and maybe_return_typename:
                maybe_return_typename[0] = f" -> {_type_repr(self.type)}"
            return f"return {self.args[0]}"
        return f"{head}{self.op}[target={target}](args = {_formatted(self.args)}, kwargs = {_formatted(self.kwargs)})"

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether this node must stay though nobody uses it: an input or the output, or a call that does something else too.

        Args:
            impure_random: whether drawing random numbers is something else, as later draws are others without it.
        """
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            return self.target in _side_effectful_functions or _writes(self) or impure_random and _draws(self.target)
        if self.op == "call_module":
            module = self.graph.owning_module
            if module is None:
                raise AssertionError("self.graph.owning_module not set for purity check")
            return getattr(module.get_submodule(self.target), "_is_impure", False)
        return False

    def normalized_arguments(
        self,
        root: Any,
        arg_types: tuple[Any, ...] | None = None,
        kwarg_types: dict[str, Any] | None = None,
        normalize_to_only_use_kwargs: bool = False,
    ) -> ArgsKwargsPair | None:
        """The arguments bound to the parameters of what is called, defaults filled in; None where there is no signature.

        Args:
            root: the module in which ``call_module`` finds its target.
            arg_types, kwarg_types: types of the arguments, to tell overloads apart.
            normalize_to_only_use_kwargs: give all of them by keyword.
        """
        from .operator_schemas import normalize_function, normalize_module

        if self.op == "call_function":
            return normalize_function(
                self.target, self.args, self.kwargs, arg_types, kwarg_types, normalize_to_only_use_kwargs
            )
        if self.op == "call_module":
            return normalize_module(root, self.target, self.args, self.kwargs, normalize_to_only_use_kwargs)
        return None

    def _rename(self, candidate: str) -> None:
        """Call this node `candidate`, or something like it that is free."""
        if candidate == self.name:
            return
        self.name = self.graph._graph_namespace.create_name(candidate, None)
        self.graph._graph_namespace.rename(self, self.name)

    def __deepcopy__(self, memo: Any) -> Any:
        raise RuntimeError(f"Node {self.name!r} cannot be copied by itself: copy its graph, or use Graph.node_copy")

    def __reduce__(self) -> Any:
        raise TypeError(f"Node {self.name!r} cannot be pickled by itself: pickle its graph or GraphModule")


_WRITING_OPERATORS = frozenset((operator.setitem, operator.delitem))


def _writes(node: Node) -> bool:
    """Whether the function that `node` calls stores in one of its arguments, as far as its declaration says."""
    target = node.target
    if hasattr(target, "overloads"):
        target = getattr(target, target.overloads()[0])
    if target in _WRITING_OPERATORS or node.kwargs.get("out") is not None:
        return True
    schema = getattr(target, "_schema", None)         # of an operator
    if schema is not None:
        return any(a.is_write for a in schema.arguments)
    op = getattr(target, "flambeau_op", None)
    return op is not None and target.__name__ == f"{op.name}_"


def _draws(target: Any) -> bool:
    """Whether a function or operator draws random numbers."""
    if hasattr(target, "overloads"):
        target = getattr(target, target.overloads()[0])
    op = getattr(target, "flambeau_op", None)
    if op is None and target in _drawing_makers():
        return True
    return op is not None and op.random or any(tag.name == "nondeterministic_seeded" for tag in getattr(target, "tags", ()))


@functools.cache
def _drawing_makers() -> frozenset[Callable[..., Any]]:
    """Functions that make tensors of random numbers, as they are now and as programs had them before `install_functions`."""
    names = ("normal", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm")
    public = [getattr(importlib.import_module(__package__.partition(".")[0]), name) for name in names]
    return frozenset([*public, *map(inspect.unwrap, public)])


def _class_name(obj: Any) -> str:
    return type(obj).__name__


def _formatted(arg: Any) -> str:
    """An argument as graphs print it: values by name behind a %, strings bare."""
    if isinstance(arg, list):
        return f"[{', '.join(map(_formatted, arg))}]"
    if isinstance(arg, tuple):
        if hasattr(arg, "_make"):
            return repr(arg)
        return f"({_formatted(arg[0])},)" if len(arg) == 1 else f"({', '.join(map(_formatted, arg))})"
    if isinstance(arg, dict):
        return "{" + ", ".join(f"{key}: {_formatted(value)}" for key, value in arg.items()) + "}"
    if isinstance(arg, Node):
        return f"%{arg}"
    return str(arg)


def nodes_in(values: Iterable[Any]) -> list[Node]:
    """The nodes in `values`, lists and dicts among them, each once, in order."""
    found: dict[Node, None] = {}

    def note(node: Node) -> Node:
        found[node] = None
        return node

    map_arg(list(values), note)
    return list(found)
