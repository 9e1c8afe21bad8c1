"""`backward` and `grad`: asking the engine for derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _names, _state
from .._warn import warn_once
from ..ops._dispatch import dispatch_torch_function, overriding_classes
from ..tensor import Tensor, wrap
from . import engine
from .tape import Node, is_of_nobody

OVERRIDING, local = _state.OVERRIDING, _state.local
_state.share(globals(), "OVERRIDING")  # keeps it as it is there


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Add the gradients of `tensors` to the `.grad` of leaves, or of `inputs` only.

    Args:
        grad_tensors: the vector of the vector-Jacobian product, one per tensor; may be None for single elements.
        retain_graph: keep what the graph saved; by default as `create_graph`.
        create_graph: record the gradient computation, for higher derivatives.
        grad_variables: deprecated name of `grad_tensors`.
    Raises: RuntimeError when nothing requires grad, or a gradient is missing or of another shape.

    >>> x = fb.tensor([1.0, 2.0], requires_grad=True)
    >>> fb.autograd.backward(x * x, grad_tensors=fb.tensor([1.0, 10.0]))
    >>> x.grad
    tensor([ 2., 40.])
    """
    vectors = grad_tensors if grad_tensors is not None else grad_variables
    if (OVERRIDING or _state.IN_FORCE) and (local.calls.modes or overriding_classes((tensors,))):
        given = {"retain_graph": retain_graph, "create_graph": create_graph, "inputs": inputs}
        dispatch_torch_function(backward, overriding_classes((tensors,)), (tensors, vectors), given)
        return
    if _state.INTERPRETED and isinstance(tensors, Tensor) and vectors is None and inputs is None and not (retain_graph or create_graph):
        _state.event("backward", tensors, lambda: _backward(tensors, None, retain_graph, create_graph, None))
    else:
        _backward(tensors, vectors, retain_graph, create_graph, inputs)


def _backward(tensors: Any, vectors: Any, retain_graph: Any, create_graph: bool, inputs: Any) -> None:
    if create_graph:
        warn_once(
            "Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient, which keeps "
            "memory until the cycle is collected. Use autograd.grad instead, or set the .grad of your parameters to None after use"
        )
    tensors = _as_tuple(tensors)
    if inputs is not None:
        inputs = _as_tuple(inputs)
        if not inputs:
            raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    roots = make_roots(tensors, vectors, create_graph)
    keep = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        _run(roots, keep, create_graph)
        return
    nodes = list(dict.fromkeys(_node_of(x, "inputs") for x in inputs))
    tensors = {_node_of(x, "inputs"): x for x in reversed(inputs)}
    found = _run(roots, keep, create_graph, {node: i for i, node in enumerate(nodes)})
    for node, g in zip(nodes, found, strict=True):
        x = tensors[node]
        # Leaves have theirs already, and so have tensors that retain it.
        if g is None or not isinstance(x, Tensor) or x.retains_grad:
            continue
        g = engine.in_dtype(g if isinstance(g, Tensor) else wrap(np.array(g) if type(g) is np.ndarray else g), x._array.dtype)
        have = getattr(x, "_gradient", None)
        x._gradient = g if have is None else have + g


@_names.names_by("unnamed")
def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of `outputs` with respect to `inputs`, without touching `.grad`.

    Args:
        grad_outputs: the vector of the vector-Jacobian product, one per output.
        retain_graph: keep what the graph saved; by default as `create_graph`.
        create_graph: record the gradient computation, for higher derivatives.
        only_inputs: deprecated and without effect.
        allow_unused: whether an input that did not take part gives None instead of an error.
        is_grads_batched: the first dimension of `grad_outputs` counts vectors.
        materialize_grads: zeros instead of None for inputs that did not take part.
    Returns: a tuple, one for each input.
    Raises: RuntimeError for inputs that do not require grad or were not used.

    >>> x = fb.tensor(3.0, requires_grad=True)
    >>> (slope,) = fb.autograd.grad(x**3, x, create_graph=True)
    >>> slope, fb.autograd.grad(slope, x)
    (tensor(27., grad_fn=<MulBackward0>), (tensor(18.),))
    """
    outputs, inputs = _as_tuple(outputs), _as_tuple(inputs)
    if (OVERRIDING or _state.IN_FORCE) and (local.calls.modes or overriding_classes((outputs, inputs))):
        return dispatch_torch_function(grad, overriding_classes((outputs, inputs)), (outputs, inputs), {
            "grad_outputs": grad_outputs, "retain_graph": retain_graph, "create_graph": create_graph, "only_inputs": only_inputs,
            "allow_unused": allow_unused, "is_grads_batched": is_grads_batched, "materialize_grads": materialize_grads,
        })  # fmt: skip
    if not inputs:
        raise RuntimeError("autograd.grad(): `inputs` cannot be empty; give the tensors to differentiate with respect to")
    if allow_unused is None:
        allow_unused = materialize_grads
    elif materialize_grads and not allow_unused:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False.")
    keep = create_graph if retain_graph is None else retain_graph
    if is_grads_batched:
        return _batched(outputs, inputs, _as_tuple(grad_outputs), keep, create_graph, allow_unused, materialize_grads)
    if _state.INTERPRETED and any(x.kind in ("vmap", "jvp") for x in _state.local.calls.interpreters):
        from ..func.transforms import grad_among_levels

        found = grad_among_levels(outputs, inputs, _as_tuple(grad_outputs), keep, create_graph)
    else:
        found = plain_grad(outputs, inputs, grad_outputs, keep, create_graph)
    for i, (g, x) in enumerate(zip(found, inputs, strict=True)):
        if g is None:
            if not allow_unused:
                raise RuntimeError(
                    "One of the differentiated Tensors appears to not have been used in the graph. Set allow_unused=True if this "
                    "is the desired behavior."
                )
            if materialize_grads:
                found[i] = _zeros_like(x)
    return tuple(found)


def plain_grad(outputs: Any, inputs: Any, grad_outputs: Any, keep: bool, create_graph: bool) -> list[Tensor | None]:
    """The gradients by one run of the engine; under `create_graph` they travel as Tensors."""
    roots = make_roots(outputs, grad_outputs, create_graph)
    nodes = [_node_of(x, "inputs") for x in inputs]
    targets = {n: i for i, n in enumerate(dict.fromkeys(nodes))}
    found = _run(roots, keep, create_graph, targets, accumulate=False)
    made: list[Any] = []
    for node, x in zip(nodes, inputs, strict=True):
        g = found[targets[node]]
        if g is not None:
            g = g if isinstance(g, Tensor) else _fresh(g, made)
            g = engine.in_dtype(g, x._array.dtype) if isinstance(x, Tensor) else g
        made.append(g)
    return made


def _run(roots: Any, keep: bool, create_graph: bool, targets: Any = None, accumulate: bool = True) -> list[Any]:
    """`engine.run_backward`, watched in anomaly mode."""
    if not _state.interpreted():
        return engine.run_backward(roots, keep, create_graph, targets, accumulate)
    _state.settle()
    from .anomaly_mode import watching

    with watching(roots):
        return engine.run_backward(roots, keep, create_graph, targets, accumulate)


def _fresh(g: Any, made: list[Any]) -> Tensor:
    """A Tensor over `g`; a copy if an earlier result has the same memory."""
    if any(m is not None and m._array is g for m in made):
        g = g.copy()
    return wrap(g)


def _zeros_like(x: Tensor) -> Tensor:
    from ..ops.creation.create import zeros_like

    return zeros_like(x)


def _batched(outputs: Any, inputs: Any, vectors: Any, keep: bool, create_graph: bool, allow_unused: bool, zeros: bool) -> Any:
    from ..func.batching import VmapLevel
    from ..ops import _dispatch

    level = VmapLevel(next(v.shape[0] for v in vectors if v is not None), "error")
    _dispatch.push(level)
    try:
        given = tuple(None if v is None else level.wrap(v) for v in vectors)
        found = grad(outputs, inputs, given, keep, create_graph, allow_unused=allow_unused, materialize_grads=zeros)
    finally:
        _dispatch.pop(level)
    return tuple(None if g is None else level.full(g) for g in found)


def _as_tuple(x: Any) -> tuple[Any, ...]:
    return (x,) if isinstance(x, Tensor) or x is None or _is_edge(x) else tuple(x)


def _is_edge(x: Any) -> bool:
    return isinstance(x, tuple) and hasattr(x, "ownership_token")


def _node_of(x: Any, name: str) -> Node:
    if _is_edge(x):
        return x.node if x.ownership_token is None else x.ownership_token
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be Tensors, got {type(x).__name__}")
    if x._node is None:
        raise RuntimeError("One of the differentiated Tensors does not require grad")
    return x._node


def make_roots(tensors: Any, grads: Any, as_tensors: bool) -> list[tuple[Node, Any]]:
    """Pairs of node and initial gradient. Raises: RuntimeError as `backward`."""
    given = _as_tuple(grads) if grads is not None else (None,) * len(tensors)
    if len(given) != len(tensors):
        raise RuntimeError(f"got {len(tensors)} tensors and {len(given)} gradients")
    roots = []
    for t, g in zip(tensors, given, strict=True):
        if _is_edge(t):
            if g is None:
                raise RuntimeError("grad_outputs must be given for a GradientEdge, which has no value to make them from")
            roots.append((_node_of(t, "tensors"), g if as_tensors else g._array))
            continue
        if not isinstance(t, Tensor):
            raise TypeError(f"element of tensors must be a Tensor, got {type(t).__name__}")
        if t._node is None or is_of_nobody(t._node):
            raise RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn")
        roots.append((t._node, initial_gradient(t, g, as_tensors)))
    return roots


def initial_gradient(t: Tensor, g: Any, as_tensor: bool) -> Any:
    if g is None:
        if t._array.size != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        if t.dtype.is_complex:
            raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {t.dtype}")
        one = _ones_like(t)
        return one if as_tensor else one._array
    if not isinstance(g, Tensor):
        raise TypeError(f"gradients can be either Tensors or None, but got {type(g).__name__}")
    if g._array.shape != t._array.shape:
        raise RuntimeError(f"Mismatch in shape: grad_output[0] has a shape of {g.shape} and output[0] has a shape of {t.shape}.")
    if g.dtype.is_complex != t.dtype.is_complex:
        raise RuntimeError(
            "For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in dtype: "
            f"grad_output[0] has a dtype of {g.dtype} and output[0] has a dtype of {t.dtype}."
        )
    if g.__class__ is not Tensor and _names.of(g):
        g = g.rename(None)                            # derivatives have nothing to do with names
    g = engine.in_dtype(g, t._array.dtype)
    return g if as_tensor else g._array


def _ones_like(t: Tensor) -> Tensor:
    from ..ops.creation.create import ones_like

    return ones_like(t)


__all__ = ["backward", "grad"]
