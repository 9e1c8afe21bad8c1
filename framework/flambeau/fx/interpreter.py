"""Running graphs node by node, on values or on proxies."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from ..nn import Module
from . import traceback as fx_traceback
from ._symbolic_trace import Tracer
from .graph import Graph
from .graph_module import GraphModule
from .node import Node, map_aggregate, map_arg
from .proxy import Proxy

__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Runs a graph node by node. Subclasses override `run_node`, or what it calls for each kind of node.

    Args:
        module: a GraphModule, or with `graph` any Module.
        garbage_collect_values: forget values after their last use.
        graph: what is run; by default the module's graph.

    >>> class Swapped(fb.fx.Interpreter):
    ...     def call_function(self, target, args, kwargs):
    ...         return super().call_function(fb.sigmoid if target is fb.neg else target, args, kwargs)
    >>> Swapped(fb.fx.symbolic_trace(lambda x: fb.neg(x))).run(fb.zeros(2))
    tensor([0.5000, 0.5000])
    """

    def __init__(self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module = module
        self.submodules = dict(self.module.named_modules())
        self.graph: Graph = graph if graph is not None else module.graph  # type: ignore[assignment]
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.args_iter: Iterator[Any] = iter(())
        if garbage_collect_values:
            self.user_to_last_uses = _last_uses(self.graph)

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True) -> Any:
        """Run the graph on `args`; returns its output.

        Args:
            initial_env: values of nodes that need not be computed.
            enable_io_processing: take and give what the graph's function takes and gives, not its leaves.
        """
        self.env = {} if initial_env is None else initial_env
        if enable_io_processing:
            args = self.graph.process_inputs(*args)
        self.args_iter = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                if not self.extra_traceback or "While executing %" in str(error.args[:1]):
                    raise
                message = error.args[0] if error.args else error
                text = f"{message}\n\nWhile executing {node.format_node()}\nOriginal traceback:\n{node.stack_trace}"
                if isinstance(error, KeyError):       # whose text is shown as that of a key, on one line
                    raise RuntimeError(text) from error
                error.args = (text, *error.args[1:])
                raise
            if self.garbage_collect_values:
                for done in self.user_to_last_uses.get(node, ()):
                    self.env.pop(done, None)
            if node.op == "output":
                result = self.env[node]
                return self.graph.process_outputs(result) if enable_io_processing else result
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:
        """`run` on the arguments in a list, which is emptied, so that they can be freed as soon as they are used."""
        env: dict[Node, Any] = {}
        inputs = iter(args_list)
        for node in self.graph.nodes:
            if node.op == "placeholder":
                env[node] = next(inputs)
        args_list.clear()
        return self.run(initial_env=env)

    def _set_current_node(self, node: Node) -> Any:
        return fx_traceback.set_current_meta(node)

    def run_node(self, n: Node) -> Any:
        """The value of the node `n`, computed by the method that its `op` names."""
        with self._set_current_node(n):
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The next argument, or the default. Raises: RuntimeError if there is neither."""
        if target.startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The attribute at the dotted path `target`."""
        return self.fetch_attr(target)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the function `target` gives for the arguments."""
        return target(*args, **kwargs)

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the method `target` of the first argument gives for the others."""
        self_obj, *rest = args
        return getattr(self_obj, target)(*rest, **kwargs)

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the submodule at the dotted path `target` gives for the arguments."""
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the graph returns."""
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """The attribute of the module at the dotted path `target`. Raises: RuntimeError if there is none."""
        found: Any = self.module
        parts = target.split(".")
        for i, part in enumerate(parts):
            if not hasattr(found, part):
                raise RuntimeError(f"Node referenced nonexistent target {'.'.join(parts[: i + 1])}")
            found = getattr(found, part)
        return found

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of `n`, with values for nodes."""
        args, kwargs = self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)
        return args, kwargs

    def map_nodes_to_values(self, args: Any, n: Node) -> Any:
        """`args` with values for nodes. Raises: RuntimeError, which names `n`, if one has not been computed."""

        def value_of(node: Node) -> Any:
            if node not in self.env:
                raise RuntimeError(
                    f"Node {n} referenced nonexistent value {node}! Run Graph.lint() to diagnose such issues"
                )
            return self.env[node]

        return map_arg(args, value_of)


class Transformer(Interpreter):
    """Makes another GraphModule of one: its nodes are run on proxies, and what methods return is recorded.

    Args:
        module: the GraphModule.

    >>> class Swapped(fb.fx.Transformer):
    ...     def call_function(self, target, args, kwargs):
    ...         return super().call_function(fb.sigmoid if target is fb.neg else target, args, kwargs)
    >>> print(Swapped(fb.fx.symbolic_trace(lambda x: fb.neg(x))).transform().code.strip())
    def forward(self, x):
        sigmoid = torch.sigmoid(x);  x = None
        return sigmoid
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)

        class TransformerTracer(Tracer):
            def __init__(self, graph: Graph) -> None:
                super().__init__()
                self.graph = graph
                self.root = module
                self.tensor_attrs = {}

            def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
                return True

        self.tracer = TransformerTracer(self.new_graph)

    def placeholder(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Proxy:
        """A proxy of an input of the new graph."""
        default = next(iter(args)) if args else inspect.Signature.empty
        return Proxy(self.new_graph.placeholder(target, default_value=default), self.tracer)

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Proxy:
        """A proxy of an attribute in the new graph."""
        return self.tracer.proxy(self.new_graph.get_attr(target))

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a submodule in the new graph."""
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a function in the new graph."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The new GraphModule."""
        with fx_traceback.preserve_node_meta():
            result = super().run(enable_io_processing=False)
        if result is not None:
            made = self.new_graph.output(map_aggregate(result, lambda a: a.node if isinstance(a, Proxy) else a))
            made.meta.update(self.graph.output_node().meta)
        return GraphModule(self.module, self.new_graph)


def _last_uses(graph: Graph) -> dict[Node, list[Node]]:
    """For each node, the values that are used by it and by none after it."""
    ending: dict[Node, list[Node]] = {}
    seen: set[Node] = set()
    for node in reversed(graph.nodes):
        for used in node.all_input_nodes:
            if used not in seen:
                seen.add(used)
                ending.setdefault(node, []).append(used)
    return ending
