"""Modules as functions of their parameters, and odds and ends around the transforms."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import _state
from ..ops._spec import OPS
from ..tensor import Tensor
from ..utils import _pytree as pytree
from .batching import BatchedTensor

__all__ = ["debug_unwrap", "functional_call", "functionalize", "replace_all_batch_norm_modules_", "stack_module_state"]


def functional_call(
    module: Any, parameter_and_buffer_dicts: Any, args: Any = None, kwargs: dict[str, Any] | None = None, *,
    tie_weights: bool = True, strict: bool = False,
) -> Any:  # fmt: skip
    """Call `module` with the given tensors in place of its parameters and buffers.

    Args:
        parameter_and_buffer_dicts: tensors by path, in one dict or a sequence of dicts that share no path.
        args, kwargs: the positional arguments, a tuple, or a single one; and those by name.
        tie_weights: whether a tensor given for one path of a shared parameter counts for its other paths.
        strict: whether every parameter and buffer must be given, and nothing else.
    Raises: ValueError for a path given twice or other types; RuntimeError for missing or unexpected paths.

    >>> line = nn.Linear(1, 1)
    >>> fb.func.functional_call(line, {"weight": fb.full((1, 1), 2.0), "bias": fb.ones(1)}, fb.tensor([3.0]))
    tensor([7.])
    """
    from ..nn.utils.stateless import _functional_call

    given = parameter_and_buffer_dicts
    if not isinstance(given, dict):
        if not isinstance(given, (tuple, list)) or not all(isinstance(d, dict) for d in given):
            raise ValueError(f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got {type(given)}")
        names = [n for d in given for n in d]
        repeated = sorted({n for n in names if names.count(n) > 1})
        if repeated:
            raise ValueError(f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous")
        given = {n: t for d in given for n, t in d.items()}
    return _functional_call(module, given, args, kwargs, tie_weights=tie_weights, strict=strict)


def stack_module_state(models: Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters and the buffers of several modules of one class, each stacked along a new first dimension.

    Raises: RuntimeError for no modules, different classes, or modules both in training and evaluation.
    """
    models = list(models)
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if not (all(m.training for m in models) or not any(m.training for m in models)):
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    parameters = {n: _stacked([dict(m.named_parameters())[n] for m in models]) for n, _ in models[0].named_parameters()}
    buffers = {n: _stacked([dict(m.named_buffers())[n] for m in models]) for n, _ in models[0].named_buffers()}
    return parameters, buffers


def _stacked(tensors: list[Tensor]) -> Tensor:
    needs = tensors[0].requires_grad
    if any(t.requires_grad != needs for t in tensors):
        raise RuntimeError("Expected parameters from each model to have the same .requires_grad")
    made = OPS["stack"].function([t.detach() for t in tensors], 0)
    return made.requires_grad_(needs)


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """`func`, of which `make_fx` records operations without writes, and what it writes to its arguments as copies in the end.

    Args:
        func: a function of tensors.
        remove: ``mutations``, or ``mutations_and_views``, which has views recorded as operators that copy.
    Raises: RuntimeError for another `remove`; NotImplementedError while recording, for writes that no operator without writes
        stands for.

    Where nothing is recorded, `func` itself runs, as nothing can tell the difference. Arguments that share memory count as tensors of
    their own, recorded or not: what `func` writes to one of them is not seen in another before it returns.

    >>> from flambeau.fx.experimental.proxy_tensor import make_fx
    >>> gm = make_fx(fb.func.functionalize(lambda x: x.clone().add_(1)))(fb.ones(2))
    >>> [n.name for n in gm.graph.nodes]
    ['x_1', 'clone', 'add', 'output']
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(f"functionalize(f, remove='mutations'|'mutations_and_views'): received invalid argument for remove={remove}")

    @functools.wraps(func, updated=())
    def functional(*args: Any, **kwargs: Any) -> Any:
        for interpreter in reversed(_state.local.calls.interpreters):
            result = interpreter.run_functional(func, args, kwargs, remove == "mutations_and_views")
            if result is not NotImplemented:
                return result
        leaves, spec = pytree.tree_flatten((args, kwargs))
        tensors = {id(x): x for x in leaves if isinstance(x, Tensor)}
        memories = {id(x._storage) if x._storage is not None else id(x) for x in tensors.values()}
        if len(memories) == len(tensors):
            return func(*args, **kwargs)
        # Arguments of one memory are tensors of their own to the program, as in its graph.
        copies = {k: x.clone() for k, x in tensors.items()}
        versions = {k: x._version for k, x in copies.items()}
        apart, named = pytree.tree_unflatten([copies.get(id(x), x) for x in leaves], spec)
        result = func(*apart, **named)
        for k, x in tensors.items():
            if copies[k]._version != versions[k]:
                x.copy_(copies[k])
        return result

    return functional


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """The tensor behind those that transforms see: all examples at once, without tangents."""
    if isinstance(tensor, BatchedTensor):
        return debug_unwrap(tensor._value) if recurse else tensor._value
    tangents = tensor.__dict__.get("_tangents")
    if tangents:
        return next(iter(tangents)).primal_of(tensor)
    return tensor


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Let every batch norm in `root` use the statistics of its batch, as under vmap running ones cannot be updated."""
    for module in root.modules():
        if hasattr(module, "track_running_stats") and hasattr(module, "num_batches_tracked") and "BatchNorm" in type(module).__name__:
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


