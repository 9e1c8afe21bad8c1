"""What the nodes of a graph compute, told without computing it: `FakeTensorProp`."""

from __future__ import annotations

from typing import Any

from ..._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from ...tensor import Tensor
from ...utils import _pytree as pytree
from ..graph_module import GraphModule
from ..node import Node
from .shape_prop import OnFakes, _extract_tensor_metadata

__all__ = ["FakeTensorProp"]


class FakeTensorProp(OnFakes):
    """Runs a graph on fake tensors; each node is given what it computes, as ``node.meta["val"]`` and ``node.meta["tensor_meta"]``.

    Args:
        module: whose graph is run. Its parameters and buffers are stood for.
        mode: the `FakeTensorMode` to run in; a new one if there is none.

    >>> from flambeau.fx.passes.fake_tensor_prop import FakeTensorProp
    >>> gm = fb.fx.symbolic_trace(lambda x: fb.relu(x).sum(0))
    >>> FakeTensorProp(gm).propagate(fb.ones(2, 3))
    FakeTensor(..., size=(3,))
    >>> [tuple(n.meta["val"].shape) for n in gm.graph.nodes if n.op == "call_function"]
    [(2, 3)]
    """

    def __init__(self, module: GraphModule, mode: FakeTensorMode | None = None) -> None:
        super().__init__(module, FakeTensorMode(allow_non_fake_inputs=True) if mode is None else mode)

    def run_node(self, n: Node) -> Any:
        """What `n` gives, noted in its `meta`."""
        result = super().run_node(n)
        n.meta["val"] = result
        if isinstance(result, Tensor):
            n.meta["tensor_meta"] = _extract_tensor_metadata(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """What the graph gives for fake tensors that stand for those among `args`."""
        return self.propagate_dont_convert_inputs(
            *pytree.tree_map(lambda x: self._mode.from_tensor(x) if isinstance(x, Tensor) else x, args)
        )

    def propagate_dont_convert_inputs(self, *args: Any) -> Any:
        """What the graph gives for `args`, which are fake. Raises: AssertionError for a tensor that is not."""
        for x in pytree.tree_leaves(args):
            if isinstance(x, Tensor) and not isinstance(x, FakeTensor):
                raise AssertionError(f"propagate_dont_convert_inputs: expected fake tensors, got one of shape {tuple(x.shape)} with values")
        with self._mode:
            return super().run(*args)
