"""Common subexpressions: calls that compute the same are done once."""

from __future__ import annotations

from typing import Any

from ..... import _aten
from ....graph import Graph
from ....graph_module import GraphModule
from ....node import Node, _writes
from ...infra.pass_base import PassBase, PassResult

__all__ = ["CSEPass", "get_CSE_banned_ops"]


def get_CSE_banned_ops() -> set[Any]:
    """Names of functions whose calls are never taken for the same: those that draw random numbers or leave memory as it is."""
    return {*_aten.random_names(), "empty", "empty_like"}


class CSEPass(PassBase):
    """Has calls of one function with the same arguments done once.

    Calls that draw random numbers or write, calls of methods in place, and calls of modules are left alone; so is what reads a value
    that is written.

    Args:
        banned_ops: functions, or names of them, to leave alone; `get_CSE_banned_ops` by default.

    >>> gm = fb.fx.symbolic_trace(lambda x: fb.sin(x) + fb.sin(x))
    >>> print(fb.fx.passes.dialect.common.cse_pass.CSEPass()(gm).graph_module.code.strip())
    def forward(self, x):
        sin = torch.sin(x);  x = None
        add = sin + sin;  sin = None
        return add
    """

    def __init__(self, banned_ops: set[Any] | None = None) -> None:
        super().__init__()
        self.banned_ops = get_CSE_banned_ops() if banned_ops is None else banned_ops

    def call(self, graph_module: GraphModule) -> PassResult:
        """Make the new graph; the module given stays as it is."""
        old = graph_module.graph
        new = Graph(tracer_cls=old._tracer_cls, tracer_extras=old._tracer_extras)
        new._codegen = old._codegen
        written = any(self._stores(node) for node in old.nodes)
        env: dict[Node, Node] = {}
        seen: dict[Any, Node] = {}
        modified = False
        for node in old.nodes:
            key = None if written or not self._may_be_shared(node) else _key(node, env)
            if key is not None and key in seen:
                env[node], modified = seen[key], True
                continue
            env[node] = new.node_copy(node, env.__getitem__)
            if key is not None:
                seen[key] = env[node]
        return PassResult(GraphModule(graph_module, new, graph_module._get_name()), modified)

    def _stores(self, node: Node) -> bool:
        """Whether `node` may write in a value, after which other calls with it give something else."""
        if node.op == "call_function":
            return _writes(node) or node.kwargs.get("inplace") is True
        return node.op == "call_method" and node.target.endswith("_") and not node.target.endswith("__")

    def _may_be_shared(self, node: Node) -> bool:
        if node.op == "get_attr":
            return True
        if node.op not in ("call_function", "call_method") or node.is_impure():
            return False
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        return node.target not in self.banned_ops and name not in self.banned_ops


def _key(node: Node, env: dict[Node, Node]) -> Any:
    """Equal for calls that compute the same; None for arguments that cannot be compared."""
    found = (node.op, node.target, _frozen(node.args, env), _frozen(node.kwargs, env))
    try:
        hash(found)
    except TypeError:
        return None
    return found


def _frozen(arg: Any, env: dict[Node, Node]) -> Any:
    if isinstance(arg, Node):
        return env[arg]
    if isinstance(arg, (list, tuple)):
        return type(arg).__name__, tuple(_frozen(a, env) for a in arg)
    if isinstance(arg, dict):
        return "dict", tuple((k, _frozen(v, env)) for k, v in arg.items())
    if isinstance(arg, slice):
        return "slice", tuple(_frozen(a, env) for a in (arg.start, arg.stop, arg.step))
    # 1, 1.0 and True are equal, and are other arguments; so are 0.0 and -0.0.
    return type(arg), repr(arg) if isinstance(arg, float) else arg
