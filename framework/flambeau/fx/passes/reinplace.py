"""Operations in place of those that make new memory, where nobody can tell: `reinplace`."""

from __future__ import annotations

from typing import Any

import flambeau

from ..._arrays import root_of
from ...tensor import Tensor
from ...utils import _pytree as pytree
from ..graph_module import GraphModule
from ..interpreter import Interpreter
from ..node import Node

__all__ = ["reinplace"]


class _Memory(Interpreter):
    """Runs a graph, and notes which memory each node's tensors are in."""

    def __init__(self, gm: GraphModule) -> None:
        super().__init__(gm, garbage_collect_values=False)
        self.values: dict[Node, Any] = {}             # kept, so that no memory is given out twice

    def run_node(self, n: Node) -> Any:
        self.values[n] = super().run_node(n)
        return self.values[n]

    def of(self, node: Node) -> set[int]:
        """The memory of the tensors that `node` gives."""
        return {id(root_of(x._array)) for x in pytree.tree_leaves(self.values[node]) if isinstance(x, Tensor)}


def reinplace(gm: GraphModule, *sample_args: Any) -> GraphModule:
    """Change operators of `gm` to their in-place forms where what they write to is used no more. Returns: `gm`.

    Args:
        gm: of operators without effects, as `make_fx` of a functionalized program gives.
        sample_args: inputs to find out with which values share memory; they are not written to.

    An operator writes to its first operand if that has the shape, strides and dtype of the result, lies in memory that the graph made,
    and neither it nor a view of it is used later. Inputs and attributes of the module keep their values.

    >>> from flambeau.fx.experimental.proxy_tensor import make_fx
    >>> gm = make_fx(lambda x: x.sin().add(1))(fb.ones(2))
    >>> [str(n.target) for n in fb.fx.passes.reinplace.reinplace(gm, fb.ones(2)).graph.nodes if n.op == "call_function"]
    ['aten.sin.default', 'aten.add_.Tensor']
    """
    memory = _Memory(gm)
    with flambeau.no_grad():
        memory.run(*[x.clone() if isinstance(x, Tensor) else x for x in sample_args])
    nodes = list(gm.graph.nodes)
    last_use: dict[int, int] = {}                     # of memory: the place of the last node that reads it
    for at, node in enumerate(nodes):
        for used in node.all_input_nodes:
            last_use.update(dict.fromkeys(memory.of(used), at))
    given = {m for n in nodes if n.op in ("placeholder", "get_attr") for m in memory.of(n)}
    merged: dict[int, int] = {}                       # memory that is no longer made, and that in whose place it is

    def real(m: int) -> int:
        while m in merged:
            m = merged[m]
        return m

    for at, node in enumerate(nodes):
        written = _in_place_form(node)
        if written is None or not _fits(memory, node):
            continue
        target = node.args[0]
        (place,), (made,) = memory.of(target), memory.of(node)
        others = [n for n in node.all_input_nodes if n is not target]
        uses = sum(x is target for x in pytree.tree_leaves((node.args, node.kwargs)))
        if real(place) in given or place == made or uses > 1 or any(real(place) in map(real, memory.of(n)) for n in others):
            continue
        if any(last_use.get(m, -1) > at for m in _all_in(real(place), last_use, real)):
            continue
        node.target = written
        merged[made] = real(place)
    gm.recompile()
    return gm


def _all_in(place: int, known: Any, real: Any) -> list[int]:
    """The names of memory that is, by now, that of `place`."""
    return [m for m in (*known, place) if real(m) == place]


def _in_place_form(node: Node) -> Any:
    """The operator that stores what that of `node` returns; None if there is none, or it is one already."""
    name = getattr(node.target, "_overloadname", None)
    packet = getattr(node.target, "overloadpacket", None)
    if node.op != "call_function" or name is None or packet is None or not node.args or not isinstance(node.args[0], Node):
        return None
    schema = getattr(node.target, "_schema", None)    # private operators have none
    if schema is None or schema.is_mutable or any(a.alias_info is not None for a in schema.arguments):
        return None
    return getattr(getattr(flambeau.ops.aten, f"{packet.__name__}_", None), name, None)


def _fits(memory: _Memory, node: Node) -> bool:
    """Whether the first operand of `node` is like its result, each element at a place of its own."""
    made, target = memory.values[node], memory.values[node.args[0]]
    if not isinstance(made, Tensor) or not isinstance(target, Tensor):
        return False
    same = made.shape == target.shape and made.stride() == target.stride() and made.dtype == target.dtype
    return same and not any(n > 1 and s == 0 for n, s in zip(target.shape, target.stride(), strict=True))
