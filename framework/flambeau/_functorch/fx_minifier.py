"""Making a graph that fails smaller, as long as it fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..fx.graph import Graph
from ..fx.graph_module import GraphModule
from ..fx.interpreter import Interpreter
from ..fx.node import Node, map_arg
from ..tensor import Tensor

__all__ = ["minifier"]

Fails = Callable[[GraphModule, Sequence[Any]], bool]


def minifier(
    fail_f: GraphModule, inps: Sequence[Any], module_fails: Fails, dump_state: Callable[..., Any] | None = None, *,
    save_dir: str | None = None, offload_to_disk: bool = False, skip_offload: bool = False, skip_sanity: bool = False,
    max_granularity: int | None = None,
) -> tuple[GraphModule, Sequence[Any]]:  # fmt: skip
    """The smallest graph that was found to fail as `fail_f` does, and its inputs.

    Args:
        fail_f: a graph without submodules that are called.
        inps: its inputs.
        module_fails: ``(graph, inputs) -> bool`` says whether a graph fails; what it raises counts as no failure.
        dump_state: called with each smaller graph and its inputs.
        skip_sanity: do not look at whether `fail_f` fails.
        max_granularity: the most operations that are taken away at once.
        save_dir, offload_to_disk, skip_offload: taken for PyTorch's sake; inputs stay in memory.
    Raises: RuntimeError if `fail_f` does not fail.

    The end of the graph is cut off, results are left out, and operations become inputs with the values that they have, many at a time
    and then fewer, until no single step of these makes a graph that still fails.

    >>> gm = fb.fx.symbolic_trace(lambda x: ((x + 1).relu() * 2).sigmoid())
    >>> small, inputs = minifier(gm, [fb.ones(2)], lambda g, _: any(n.name == "relu" for n in g.graph.nodes))
    >>> [n.op for n in small.graph.nodes]
    ['placeholder', 'call_method', 'output']
    """

    def fails(graph: Graph, inputs: Sequence[Any]) -> bool:
        try:
            return bool(module_fails(GraphModule(fail_f, _copied(graph)), [_copy(x) for x in inputs]))
        except Exception:  # a smaller graph that is no graph of the same kind
            return False

    state = _State(_copied(fail_f.graph), list(inps), fails, fail_f, dump_state)
    if not skip_sanity and not module_fails(GraphModule(fail_f, _copied(fail_f.graph)), list(inps)):
        raise RuntimeError("minifier: the graph does not fail: module_fails(fail_f, inps) is false")
    while True:
        size = _calls(state.graph)
        step = 1
        while step * 2 <= min(size, max_granularity or size):
            step *= 2
        before = state.measure()
        while step >= 1:
            for shrink in (_cut_the_end, _leave_out_results, _give_operands, _make_inputs):
                while shrink(state, step):
                    pass
            step //= 2
        _drop_unused(state)
        if state.measure() == before:
            break
    return GraphModule(fail_f, state.graph), state.inputs


def _copy(x: Any) -> Any:
    return x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x


class _State:
    """The smallest graph so far, and its inputs."""

    def __init__(self, graph: Graph, inputs: list[Any], fails: Callable[[Graph, Any], bool], root: Any, dump: Any) -> None:
        self.graph, self.inputs, self.fails, self.root, self.dump = graph, inputs, fails, root, dump

    def measure(self) -> tuple[int, int, int]:
        """What has to become smaller."""
        return _calls(self.graph), len(self.inputs), len(_results(self.graph))

    def take(self, graph: Graph, inputs: list[Any]) -> bool:
        """Take over a smaller graph if it fails. Returns whether it does."""
        graph.eliminate_dead_code()
        if not self.fails(graph, inputs):
            return False
        self.graph, self.inputs = graph, inputs
        if self.dump is not None:
            self.dump(GraphModule(self.root, graph), inputs)
        return True


def _calls(graph: Graph) -> int:
    return sum(node.op not in ("placeholder", "output", "get_attr") for node in graph.nodes)


def _results(graph: Graph) -> list[Any]:
    found: list[Any] = []
    map_arg(graph.find_nodes(op="output")[0].args[0], lambda n: found.append(n))
    return found


def _copied(graph: Graph) -> Graph:
    made, env = Graph(), {}
    for node in graph.nodes:
        env[node] = made.node_copy(node, env.__getitem__)
    return made


def _with_results(graph: Graph, results: list[str]) -> Graph:
    """A copy that gives the nodes of these names, as a tuple."""
    made = _copied(graph)
    by_name = {node.name: node for node in made.nodes}
    output = made.find_nodes(op="output")[0]
    output.args = (tuple([by_name[name] for name in results]),)
    return made


def _cut_the_end(state: _State, step: int) -> bool:
    nodes = [n for n in state.graph.nodes if n.op not in ("placeholder", "output", "get_attr")]
    last = [n.name for n in _results(state.graph)]
    for at in range(step, len(nodes), step):
        result = [nodes[len(nodes) - 1 - at].name]
        if result != last and state.take(_with_results(state.graph, result), state.inputs):
            return True
    return False


def _leave_out_results(state: _State, step: int) -> bool:
    names = [n.name for n in _results(state.graph)]
    for at in range(0, len(names), step):
        kept = names[:at] + names[at + step :]
        if kept and state.take(_with_results(state.graph, kept), state.inputs):
            return True
    return False


def _give_operands(state: _State, step: int) -> bool:
    """Give what a result is made of in its place."""
    names = [n.name for n in _results(state.graph)]
    for at, node in enumerate(_results(state.graph)):
        below = [n.name for n in node.all_input_nodes if n.op != "placeholder" and n.name not in names]
        kept = [*names[:at], *below, *names[at + 1 :]]
        if kept and node.op not in ("placeholder", "get_attr") and state.take(_with_results(state.graph, kept), state.inputs):
            return True
    return False


def _make_inputs(state: _State, step: int) -> bool:
    nodes = [n.name for n in state.graph.nodes if n.op not in ("placeholder", "output", "get_attr")]
    values = _Values(GraphModule(state.root, state.graph))
    try:
        values.run(*state.inputs)
    except Exception:  # it fails where it runs, so there are no values to put in
        if not values.found:
            return False
    for at in range(0, len(nodes), step):
        chunk = {name for name in nodes[at : at + step] if isinstance(values.found.get(name), Tensor)}
        if not chunk or len(chunk) == len(nodes):
            continue
        graph, env = Graph(), {}
        inputs = list(state.inputs)
        places = [n for n in state.graph.nodes if n.op == "placeholder"]
        for node in places:
            env[node] = graph.node_copy(node, env.__getitem__)
        for node in state.graph.nodes:
            if node.name in chunk:
                env[node] = graph.placeholder(node.name)
                inputs.append(values.found[node.name].detach())
        # Placeholders come first.
        for node in state.graph.nodes:
            if node not in env:
                env[node] = graph.node_copy(node, env.__getitem__)
        graph, inputs = _without_unused(graph, inputs)
        if _calls(graph) < len(nodes) and state.take(graph, inputs):
            return True
    return False


def _drop_unused(state: _State) -> None:
    graph, inputs = _without_unused(_copied(state.graph), state.inputs)
    if len(inputs) < len(state.inputs):
        state.take(graph, inputs)


def _without_unused(graph: Graph, inputs: list[Any]) -> tuple[Graph, list[Any]]:
    graph.eliminate_dead_code()
    kept = []
    for node, value in zip([n for n in graph.nodes if n.op == "placeholder"], inputs, strict=True):
        if node.users:
            kept.append(value)
        else:
            graph.erase_node(node)
    return graph, kept


class _Values(Interpreter):
    """Runs a graph and keeps what its nodes give."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.found: dict[str, Any] = {}

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        self.found[n.name] = result
        return result
