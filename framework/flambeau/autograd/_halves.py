"""Backward in two halves: the gradients of some inputs now, those of everything else later.

The first half goes along the nodes that lead to the inputs. Where such a node has a parent that does not, a weight for example,
the gradient that arrived at the node is kept, and the second half begins there. So no gradient is computed twice.
Hooks are called in the first half, but those of weights, which get their gradient in the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import _state
from ..tensor import Tensor, wrap
from .engine import nodes_leading_to, run_backward, through_tensors
from .graph import _put_away, _restore
from .tape import Node, OutputNode, add_hook

__all__ = ["SecondHalf", "backward_to_inputs"]


class SecondHalf:
    """What is left of a backward after `backward_to_inputs`."""

    def __init__(self, leading: Any, roots: list[tuple[Node, Any]], kept: list[tuple[Node, Any]]) -> None:
        self._leading, self._roots, self._kept = leading, roots, kept

    def run(self) -> None:
        """Add the gradients of all leaves but the inputs to their `.grad`.

        Raises: RuntimeError when it is run twice.
        """
        if self._leading is None:
            raise RuntimeError("backward in two halves: the second half has run already")
        roots = self._roots
        for node, grad in self._kept:
            aside = [parent if parent is not None and parent not in self._leading else None for parent in node.parents]
            grads = _through(node, grad, {parent for parent in aside if parent is not None})
            roots += [(parent, g) for parent, g in zip(aside, grads, strict=False) if parent is not None and g is not None]
        self._leading = None
        self._roots, self._kept = [], []
        run_backward(roots, False, False)


def _through(node: Node, grad: Any, wanted: set[Node]) -> Any:
    """The gradients of the parents of `node`, of which only those in `wanted` are needed, by the engine's rules."""
    running = _state.local.backward
    before, recording = running.wanted, _state.set_grad(False)
    running.wanted = wanted
    is_packed = "unpacked_from" in node.__dict__
    if is_packed:
        _restore(node)
    try:
        tensors = grad if type(grad) is list else [grad]
        if not all(g is None or type(g._array) is np.ndarray for g in tensors):
            return node.vjp(grad)
        arrays = [None if g is None else g._array for g in tensors]
        given = arrays if type(grad) is list else arrays[0]
        return node.vjp_on_arrays(given) if node.has_array_vjp else through_tensors(node, given)
    finally:
        if is_packed:
            _put_away(node)
        running.wanted = before
        _state.set_grad(recording)


def backward_to_inputs(
    outputs: Sequence[Tensor], grads: Sequence[Tensor], inputs: Sequence[Tensor]
) -> tuple[list[Tensor | None], SecondHalf]:
    """The gradients of `inputs`, and what gives the leaves theirs later.

    Args:
        outputs: tensors that require grad.
        grads: the gradients of `outputs`, of their shapes.
        inputs: leaves that require grad; nothing is added to their `.grad`.
    Returns: a gradient for each input, None where `outputs` do not depend on it; and the `SecondHalf`, which keeps the graph.
    """
    roots = [(_node(output), grad._array) for output, grad in zip(outputs, grads, strict=True)]
    sought = [_node(x) for x in inputs]
    leading = nodes_leading_to(roots, dict.fromkeys(sought, 0))
    places: dict[Node, int] = {}
    for node in sought:
        places.setdefault(node, len(places))
    boundary = [
        node
        for node in leading
        if isinstance(node, Node) and node not in places and any(p is not None and p not in leading for p in node.parents)
    ]
    aside = [(node, grad) for node, grad in roots if node not in leading]
    towards = [(node, grad) for node, grad in roots if node in leading]
    with_slots = {node.parents[0] for node in leading if type(node) is OutputNode}
    kept: list[tuple[Node, Any]] = []
    # What arrives at a node is taken as its hooks leave it.
    handles = [add_hook(node, "pre", _keeper(kept, node, node in with_slots)) for node in boundary]
    try:
        found = run_backward(towards, True, False, places, accumulate=False) if towards else [None] * len(places)
    finally:
        for handle in handles:
            handle.remove()
    results = [found[places[node]] for node in sought]
    given: list[Tensor | None] = [
        None if grad is None else grad if isinstance(grad, Tensor) else wrap(grad) for grad in results
    ]
    return given, SecondHalf(leading, aside, kept)


def _keeper(kept: list[tuple[Node, Any]], node: Node, has_slots: bool) -> Any:
    def keep(grads: Any) -> None:
        missing = node.shape - len(grads) if has_slots else 0
        kept.append((node, [*grads, *[None] * missing] if has_slots else grads[0]))

    return keep


def _node(tensor: Tensor) -> Node:
    node = tensor._node
    if node is None:
        raise RuntimeError("backward in two halves: a tensor that does not require grad has no gradient")
    return node
