"""Graph: a program as an ordered list of Nodes."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from ._codegen import CodeGen, PythonCode, TransformCodeFunc, _PyTreeCodeGen, _PyTreeInfo
from ._names import Namespace, name_of_function, snake_case
from .node import Node, Target, _legal_ops, map_aggregate, map_arg

__all__ = ["CodeGen", "Graph", "PythonCode", "_PyTreeCodeGen", "_PyTreeInfo", "map_aggregate", "map_arg"]


class _node_list:
    """The nodes of a graph in order. Nodes may be added and erased while it is iterated over."""

    def __init__(self, graph: Graph, direction: str = "_next") -> None:
        self.graph, self.direction = graph, direction

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Node]:
        node = getattr(self.graph._root, self.direction)
        while node is not self.graph._root:
            if not node._erased:
                yield node
            node = getattr(node, self.direction)

    def __reversed__(self) -> Iterator[Node]:
        return iter(_node_list(self.graph, "_next" if self.direction == "_prev" else "_prev"))


class _InsertPoint:
    """Where new nodes go, until the region ends."""

    def __init__(self, graph: Graph, new_insert: Callable[[Node], None]) -> None:
        self.graph = graph
        self.before, graph._insert = graph._insert, new_insert

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.graph._insert = self.before


class _RestoreCodegen:
    def __init__(self, codegen: CodeGen, before: TransformCodeFunc | None) -> None:
        self.codegen, self.before = codegen, before

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.codegen._body_transformer = self.before


class Graph:
    """A program as a list of Nodes: inputs, calls, and one output. See `Node` for what each kind means.

    Args:
        owning_module: the GraphModule that has it.
        tracer_cls, tracer_extras: the Tracer that made it, and what it was given; a GraphModule made of this graph is
            copied and pickled with them.

    >>> graph = fb.fx.Graph()
    >>> x = graph.placeholder("x")
    >>> _ = graph.output(graph.call_function(fb.relu, (x,)))
    >>> print(graph)
    graph():
        %x : [num_users=1] = placeholder[target=x]
        %relu : [num_users=1] = call_function[target=torch.relu](args = (%x,), kwargs = {})
        return relu
    """

    def __init__(
        self,
        owning_module: Any = None,
        tracer_cls: type | None = None,
        tracer_extras: dict[str, Any] | None = None,
    ) -> None:
        self._root: Node = Node(self, "", "root", "", (), {})
        self._insert: Callable[[Node], None] = self._root.prepend
        self._len = 0
        self._positions_hold = True
        self._graph_namespace = Namespace()
        self._owning_module = owning_module
        self._tracer_cls = tracer_cls
        self._tracer_extras = tracer_extras
        self._codegen: CodeGen = CodeGen()

    @property
    def owning_module(self) -> Any:
        """The GraphModule that has this graph, if any."""
        return self._owning_module

    @owning_module.setter
    def owning_module(self, mod: Any) -> None:
        self._owning_module = mod

    @property
    def nodes(self) -> _node_list:
        """The nodes, in order; ``reversed(graph.nodes)`` goes the other way. It may be changed while it is iterated over."""
        return _node_list(self)

    def _number_nodes(self) -> None:
        for i, node in enumerate(self.nodes):
            node._position = i
        self._root._position = -1
        self._positions_hold = True

    def output_node(self) -> Node:
        """The node of the output. Raises: AssertionError if the last node is none."""
        last = self._root._prev
        if last.op != "output":
            raise AssertionError(f"Expected output node, got op={last.op}")
        return last

    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Node]:
        """The nodes with this `op` and `target`, in order.

        Args:
            target: of ``call_function`` it must be given; of others, None stands for any.
            sort: kept for PyTorch's signature; the result is always in order.
        """
        if op == "call_function" and target is None:
            raise AssertionError("target must not be None for call_function op")
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    # -- making nodes

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Make a node and put it at the insertion point; returns it.

        Args:
            op, target, args, kwargs: see `Node`.
            name: what its value is called in code, if that is free.
            type_expr: annotation of its value.
        Raises: AssertionError for an unknown `op`, or arguments that are no tuple and dict.
        """
        if op not in _legal_ops:
            raise AssertionError(f"op {op!r} is not in _legal_ops")
        args, kwargs = () if args is None else args, {} if kwargs is None else kwargs
        if not isinstance(args, tuple):
            raise AssertionError(f"args must be a tuple, got {type(args)}")
        if not isinstance(kwargs, dict):
            raise AssertionError(f"kwargs must be a dict, got {type(kwargs)}")
        name = self._graph_namespace.create_name(self._target_to_str(target) if name is None else name, None)
        node = Node(self, name, op, target, args, kwargs, type_expr)
        self._graph_namespace.associate_name_with_obj(name, node)
        self._insert(node)
        self._len += 1
        for hook in getattr(self.owning_module, "_create_node_hooks", None) or ():
            hook(node)
        return node

    def _target_to_str(self, target: Target | None) -> str:
        if callable(target):
            text = name_of_function(target)
        else:
            text = str(target)
            if text.startswith("__") and text.endswith("__"):
                text = text[2:-2]
        return snake_case(text)

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = inspect.Signature.empty) -> Node:
        """An input. `name` is the parameter, ``*args`` and ``**kwargs`` included; without `default_value` it must be given."""
        args = () if default_value is inspect.Signature.empty else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """A parameter, buffer or other attribute of the module, by its dotted path. Warns if the owning module lacks it."""
        if self.owning_module is not None and not _has_attribute(self.owning_module, qualified_name):
            import warnings

            warnings.warn(
                "Attempted to insert a get_attr Node with no underlying reference in the owning GraphModule! Call "
                "GraphModule.add_submodule to add the necessary submodule, GraphModule.add_parameter to add the necessary "
                "Parameter, or nn.Module.register_buffer to add the necessary buffer",
                stacklevel=2,
            )
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A call of the submodule at the dotted path `module_name`. Raises: AttributeError if the owning module lacks it."""
        if self.owning_module is not None and not _has_attribute(self.owning_module, module_name):
            raise AttributeError(f"{type(self.owning_module).__name__} has no attribute `{module_name}`")
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self,
        method_name: str,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A call of the method `method_name` of ``args[0]``."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        type_expr: Any = None,
        name: str | None = None,
    ) -> Node:
        """A call of `the_function`."""
        return self.create_node("call_function", the_function, args, kwargs, name=name, type_expr=type_expr)

    def output(self, result: Any, type_expr: Any = None) -> Node:
        """What the program returns: nodes, numbers, and tuples, lists and dicts of them."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Any] = lambda x: x) -> Node:
        """A copy of `node`, which may be of another graph; `arg_transform` gives for its arguments the nodes of this one."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        if not isinstance(args, tuple):
            raise AssertionError(f"node_copy: args must be a tuple, got {type(args)}")
        made = self.create_node(node.op, node.target, args, dict(kwargs), node.name, node.type)
        made.meta = copy.copy(node.meta)
        return made

    def graph_copy(self, g: Graph, val_map: dict[Node, Any], return_output_node: bool = False) -> Any:
        """Copy all nodes of `g` to the insertion point but its output.

        Args:
            val_map: receives which node of this graph stands for which of `g`; nodes that are in it are not copied.
            return_output_node: give the output node of `g` too.
        Returns: what stands for the value that `g` returns, None if it has no output.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                value = map_arg(node.args[0], val_map.__getitem__)
                return (value, node) if return_output_node else value
            val_map[node] = self.node_copy(node, val_map.__getitem__)
        return None

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        made = Graph(tracer_cls=self._tracer_cls, tracer_extras=self._tracer_extras)
        result = made.graph_copy(self, {}, return_output_node=True)
        made._codegen = copy.deepcopy(self._codegen)
        if result is not None:
            value, old = result
            new = made.create_node("output", "output", (value,), name=old.name, type_expr=old.type)
            new.meta = copy.copy(old.meta)
        return made

    # -- changing it

    def erase_node(self, to_erase: Node) -> None:
        """Take a node out that nobody uses. Raises: RuntimeError if somebody does, or it is of another graph."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: {to_erase.users}!"
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            import warnings

            warnings.warn(f"erase_node({to_erase}) on an already erased node", stacklevel=2)
            return
        for hook in getattr(self.owning_module, "_erase_node_hooks", None) or ():
            hook(to_erase)
        to_erase._unlink()
        to_erase._erased = True
        self._len -= 1
        to_erase._set_arguments((), {})

    def inserting_before(self, n: Node | None = None) -> _InsertPoint:
        """New nodes go before `n`, by default before all others: for good, or in a ``with`` statement until its end."""
        if n is None:
            return self.inserting_after(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert before is not in graph.")
        return _InsertPoint(self, n.prepend)

    def inserting_after(self, n: Node | None = None) -> _InsertPoint:
        """New nodes go after `n`, by default after all others: for good, or in a ``with`` statement until its end."""
        if n is None:
            return self.inserting_before(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert after is not in graph.")
        return _InsertPoint(self, n.append)

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Erase nodes that nobody uses and that do nothing else.

        Args:
            is_impure_node: whether a node must stay; `Node.is_impure` by default.
        Returns: whether there were any. Raises: RuntimeError for a graph that is not in order, see `lint`.
        """
        self.lint()
        impure = Node.is_impure if is_impure_node is None else is_impure_node
        changed = False
        for node in reversed(self.nodes):
            if not node.users and not impure(node):
                self.erase_node(node)
                changed = True
        return changed

    def _clear_nodes(self) -> None:
        for node in reversed(self.nodes):
            node._set_arguments((), {})
            self.erase_node(node)

    # -- checking

    def lint(self) -> None:
        """Check that nodes are of this graph, have names of their own, are in order, and that their targets exist.

        Raises: RuntimeError saying which node breaks which rule.
        """
        seen_names: set[str] = set()
        seen: set[Node] = set()
        for node in self.nodes:
            if node.op not in _legal_ops or node.op == "root":
                raise RuntimeError(f"Node {node} had unknown opcode {node.op}!")
            if node.graph is not self:
                raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
            for arg in node._input_nodes:
                if arg.graph is not self:
                    raise RuntimeError(
                        f"Argument '{arg}' of Node '{node}' does not belong to this Graph, but was used as an argument! If you "
                        "are copying nodes from another graph, make sure to use ``arg_transform`` on node_copy() to remap values"
                        f"\n{self}"
                    )
                if arg not in seen:
                    raise RuntimeError(
                        f"Argument '{arg}' of Node '{node}' was used before it has been defined! Please check that Nodes in the "
                        f"graph are topologically ordered\n{self}"
                    )
            if node.name in seen_names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            seen.add(node)
            seen_names.add(node.name)
        if self.owning_module is not None:
            for node in self.nodes:
                self._check_target(node)

    def _check_target(self, node: Node) -> None:
        if node.op == "call_function":
            if not callable(node.target):
                raise ValueError(f"Node {node} target {node.target} has type {type(node.target)} but a Callable is expected")
            return
        if not isinstance(node.target, str):
            raise ValueError(f"Node {node} target {node.target} has type {type(node.target)} but a str is expected")
        if node.op not in ("get_attr", "call_module"):
            return
        found = self.owning_module
        for part in node.target.split("."):
            if not hasattr(found, part):
                raise RuntimeError(
                    f"Node {node} target {node.target} references nonexistent attribute {part} of {_path_before(node.target, part)}"
                )
            found = getattr(found, part)
        from ..nn import Module

        if node.op == "call_module" and not isinstance(found, Module):
            raise RuntimeError(f"Node {node} target {node.target} does not refer to a Module, but to a {type(found).__name__}")

    # -- as text

    def python_code(
        self,
        root_module: str,
        *,
        verbose: bool = False,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        expanded_def: bool = False,
        record_func: bool = False,
    ) -> PythonCode:
        """The graph as the text of a function.

        Args:
            root_module: what the code calls the module, usually ``self``.
            verbose: say where nodes come from and what is known of their values.
            include_stride, include_device: say that too.
            colored: with escape codes for a terminal.
        """
        if not self._positions_hold:
            self._number_nodes()
        # Names of nodes stand; others keep clear of them.
        namespace = Namespace()
        for node in self.nodes:
            namespace.associate_name_with_obj(node.name, node)
        return self._codegen._gen_python_code(
            self.nodes, root_module, namespace, verbose=verbose, include_stride=include_stride,
            include_device=include_device, colored=colored,
        )  # fmt: skip

    def __str__(self) -> str:
        return self.print_nodes()

    def print_nodes(self, *, include_tensor_metadata: bool = False) -> str:
        """One line for each node."""
        names: list[str] = []
        returns = [""]
        lines = [
            n.format_node(names, returns, include_tensor_metadata=include_tensor_metadata) if include_tensor_metadata
            else n.format_node(names, returns) for n in self.nodes
        ]  # fmt: skip
        return "graph():" + "".join(f"\n    {line}" for line in lines if line)

    def print_tabular(self) -> None:
        """Print a table of the nodes."""
        print(self._tabulated())

    def _tabulated(self) -> str:
        rows = [[n.op, n.name, str(n.target), str(n.args), str(n.kwargs)] for n in self.nodes]
        return _table(["opcode", "name", "target", "args", "kwargs"], rows)

    def set_codegen(self, codegen: CodeGen) -> None:
        """Write this graph by `codegen`."""
        self._codegen = codegen

    def on_generate_code(self, make_transformer: Callable[[TransformCodeFunc | None], TransformCodeFunc]) -> _RestoreCodegen:
        """Change the lines of generated code.

        Args:
            make_transformer: is given the function that changes them now, or None, and returns the one to change them
                from here on: lines in, lines out.
        Returns: a region at whose end the function before is in force again; without ``with``, the change stays.
        """
        before = self._codegen._body_transformer
        self._codegen._body_transformer = make_transformer(before)
        return _RestoreCodegen(self._codegen, before)

    def process_inputs(self, *args: Any) -> Any:
        """What the placeholders are, for a call with `args`."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """What the caller gets for the output `out`."""
        return self._codegen.process_outputs(out)

    # -- pickling: nodes by number

    def __getstate__(self) -> dict[str, Any]:
        number = {node: i for i, node in enumerate(self.nodes)}

        def marked(value: Any) -> Any:
            return map_arg(value, lambda n: _NodeNumber(number[n]))

        rows = [(n.op, n.target, n.name, marked(n.args), marked(n.kwargs), n.type, n.meta.get("is_wrapped", False)) for n in self.nodes]
        return {
            "rows": rows, "codegen": self._codegen, "tracer_cls": self._tracer_cls, "tracer_extras": self._tracer_extras,
        }  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        Graph.__init__(self, None, state["tracer_cls"], state["tracer_extras"])
        self._codegen = state["codegen"]
        made: list[Node] = []

        def node_of(value: Any) -> Any:
            return map_aggregate(value, lambda x: made[x.number] if isinstance(x, _NodeNumber) else x)

        late: list[tuple[Node, Any, Any]] = []
        for op, target, name, args, kwargs, type_expr, is_wrapped in state["rows"]:
            node = self.create_node(op, target, (), {}, name, type_expr)
            if is_wrapped:
                node.meta["is_wrapped"] = True
            made.append(node)
            late.append((node, args, kwargs))
        for node, args, kwargs in late:
            node._set_arguments(node_of(args), node_of(kwargs))


class _NodeNumber:
    """Stands for a node in a pickle."""

    def __init__(self, number: int) -> None:
        self.number = number


def _path_before(target: str, part: str) -> str:
    return target[: target.index(part)].rstrip(".") or "the module"


def _has_attribute(module: Any, path: str) -> bool:
    for part in path.split("."):
        if not hasattr(module, part):
            return False
        module = getattr(module, part)
    return True


def _table(head: list[str], rows: list[list[str]]) -> str:
    """Columns as wide as their longest entry, or two more than their head, two spaces apart, under a line of dashes."""
    widths = [max(len(title) + 2, *(len(row[i]) for row in rows)) if rows else len(title) + 2 for i, title in enumerate(head)]
    dashes = ["-" * width for width in widths]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in (head, dashes, *rows)]
    return "\n".join(line.rstrip() for line in lines)
