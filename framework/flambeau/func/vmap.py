"""`vmap`: map a function of single examples over a dimension of its arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import _names
from .._errors import RefusedForBatches
from ..ops import _dispatch
from ..ops._spec.names import no_names
from ..tensor import Tensor
from ..utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_structure
from ..utils._pytree import tree_unflatten as tree_unflatten  # which packages take from here
from .batching import BatchedTensor, VmapLevel

__all__ = ["vmap"]

_ONE_TENSOR = frozenset((Tensor, BatchedTensor))  # classes of what is one tensor, and no structure of others


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """`func`, which sees single examples, as a function of batches.

    Args:
        in_dims: for each argument the dimension that counts examples, or None; nested as the arguments are.
        out_dims: where results have that dimension.
        randomness: 'error', 'different' numbers for each example, or the 'same'.
        chunk_size: how many examples to run at a time; all by default.
    Raises: ValueError for dimensions that do not fit the arguments or results, RuntimeError for an unknown
        `randomness`.

    >>> fb.vmap(fb.dot)(fb.ones(4, 3), fb.ones(4, 3))
    tensor([3., 3., 3., 3.])
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return vmap_impl(func, in_dims, out_dims, randomness, chunk_size, *args, **kwargs)

    if not hasattr(func, "__name__"):
        wrapped.__name__ = type(func).__name__
    return wrapped


def batch_size(func: Any, in_dims: Any, args: tuple[Any, ...]) -> int:
    """How many examples ``vmap(func, in_dims)(*args)`` runs over. Raises: what that raises for dimensions that do not fit."""
    return _process_batched_inputs(in_dims, args, func)[0]


def _get_name(func: Any) -> str:
    return func.__name__ if hasattr(func, "__name__") else repr(func)


def vmap_impl(func: Any, in_dims: Any, out_dims: Any, randomness: str, chunk_size: int | None, *args: Any, **kwargs: Any) -> Any:
    size, flat_dims, flat_args, spec = _process_batched_inputs(in_dims, args, func)
    if chunk_size is None or chunk_size >= size:
        return _run(func, size, flat_dims, flat_args, spec, out_dims, randomness, kwargs)
    from ..random import default_generator

    state = default_generator.get_state() if randomness == "same" else None
    parts = []
    for start in range(0, size, chunk_size):
        if state is not None:
            default_generator.set_state(state)        # so that chunks draw the same too
        length = min(chunk_size, size - start)
        piece = [x if d is None else x.narrow(d, start, length) for x, d in zip(flat_args, flat_dims, strict=True)]
        parts.append(_run(func, length, flat_dims, piece, spec, out_dims, randomness, kwargs))
    return _joined(parts, out_dims)


# Packages whose arguments hold tensors of their own kind put functions of theirs in the place of the three below that have PyTorch's names.


def _process_batched_inputs(in_dims: Any, args: tuple[Any, ...], func: Any) -> tuple[int, list[Any], Any, Any]:
    """The batch size, for each leaf of the arguments its dimension (counted from the front) or None, the leaves, and what they are of.

    The last is None where each argument is a leaf.
    """
    name = _get_name(func)
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): expected `in_dims` to be int or a (potentially nested) tuple "
            f"matching the structure of inputs, got: {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap "
            "over a function with no inputs."
        )
    if in_dims.__class__ is int and _ONE_TENSOR.issuperset(map(type, args)):
        flat, spec, dims = args, None, [in_dims] * len(args)
    else:
        flat, spec = tree_flatten(args)
        dims = _broadcast_to_and_flatten(in_dims, spec, is_leaf=lambda x: x is None)
    if dims is None:
        raise ValueError(
            f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): in_dims is not compatible with the structure of `inputs`. "
            f"in_dims has structure {tree_structure(in_dims)} but inputs has structure {spec}."
        )
    dims = [_checked_dim(x, d, name, in_dims) for x, d in zip(flat, dims, strict=True)]
    sizes = [x._array.shape[d] for x, d in zip(flat, dims, strict=True) if d is not None]
    if not sizes:
        raise ValueError(
            f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): at least one of the inputs must have a dimension to "
            "map over"
        )
    if sizes.count(sizes[0]) != len(sizes):
        raise ValueError(
            f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the "
            "mapped dimension"
        )
    return sizes[0], dims, flat, spec


def _checked_dim(x: Any, dim: Any, name: str, in_dims: Any) -> int | None:
    if dim is None:
        return None
    where = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): Got in_dim={dim} for"
    if not isinstance(dim, int):
        raise ValueError(f"{where} an input but in_dim must be either an integer dimension or None.")
    if not isinstance(x, Tensor):
        raise ValueError(
            f"{where} an input but the input is of type {type(x)}. We cannot vmap over non-Tensor arguments, "
            "please use None as the respective in_dim"
        )
    if x.__class__ is not Tensor and _names.of(x):
        raise no_names(f"vmap({name})", x)
    ndim = x._array.ndim
    if not -ndim <= dim < ndim:
        raise ValueError(
            f"{where} some input, but that input is a Tensor of dimensionality {x.ndim} so expected in_dim to satisfy "
            f"-{x.ndim} <= in_dim < {x.ndim}."
        )
    return dim % ndim


def _run(func: Any, size: int, dims: Any, flat: Any, spec: Any, out_dims: Any, randomness: str, kwargs: Any) -> Any:
    level = VmapLevel(size, randomness)
    _dispatch.push(level)
    try:
        result = func(*_create_batched_inputs(dims, flat, level, spec), **kwargs)
    except RefusedForBatches:
        if not level.repeats or randomness != "error":
            raise
        result = None
    finally:
        _dispatch.pop(level)
    if result is None and level.repeats:
        # It may be that what was refused is the same for all examples, and a batch only so that each has gradients of its own.
        result = _one_by_one(func, size, dims, flat, spec, level, kwargs)
    return _unwrap_batched(result, out_dims, level, size, func)


def _one_by_one(func: Any, size: int, dims: Any, flat: Any, spec: Any, level: VmapLevel, kwargs: Any) -> Any:
    """What `func` gives for one example after another, as batches of `level`; what is the same object for all is no batch."""
    rows = []
    for i in range(size):
        example = [x if d is None else x.select(d, i) for x, d in zip(flat, dims, strict=True)]
        rows.append(tree_flatten(func(*(example if spec is None else spec.unflatten(example)), **kwargs)))
    columns = zip(*(leaves for leaves, _ in rows), strict=True)
    return rows[0][1].unflatten([c[0] if all(x is c[0] for x in c) else level.stacked(list(c)) for c in columns])


def _create_batched_inputs(flat_in_dims: Any, flat_args: Any, vmap_level: VmapLevel, args_spec: Any) -> Any:
    """The arguments as `func` sees them, one example each."""
    inside = [x if d is None else vmap_level.wrap(x, d) for x, d in zip(flat_args, flat_in_dims, strict=True)]
    return inside if args_spec is None else args_spec.unflatten(inside)


def _unwrap_batched(batched_outputs: Any, out_dims: Any, vmap_level: VmapLevel, batch_size: int, func: Any) -> Any:
    """The results of all examples, of what `func` gave for one."""
    name = _get_name(func)
    if out_dims.__class__ is int and batched_outputs.__class__ in _ONE_TENSOR:
        return _maybe_remove_batch_dim(name, batched_outputs, vmap_level, batch_size, out_dims)
    leaves, out_spec = tree_flatten(batched_outputs)
    wanted = _out_dims(out_dims, out_spec, batched_outputs, name)
    return out_spec.unflatten(
        [_maybe_remove_batch_dim(name, x, vmap_level, batch_size, d) for x, d in zip(leaves, wanted, strict=True)]
    )


def _add_batch_dim(x: Tensor, in_dim: int, vmap_level: VmapLevel) -> Tensor:
    """`x` seen one example at a time: without its dimension `in_dim`."""
    return vmap_level.wrap(x, in_dim % x.ndim)


def _out_dims(out_dims: Any, spec: Any, result: Any, name: str) -> list[Any]:
    if isinstance(result, Tensor) and isinstance(out_dims, tuple) and len(out_dims) == 1:
        out_dims = out_dims[0]
    dims = _broadcast_to_and_flatten(out_dims, spec, is_leaf=lambda x: x is None)
    if dims is None or not all(d is None or isinstance(d, int) for d in dims):
        raise ValueError(
            f"vmap({name}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure of `outputs`. "
            f"out_dims has structure {tree_structure(out_dims)} but outputs has structure {spec}."
        )
    return dims


def _maybe_remove_batch_dim(name: str, batched_output: Any, vmap_level: VmapLevel, batch_size: int, out_dim: Any) -> Any:
    """The result of all examples, numbered by its dimension `out_dim`, of what `name` gave for one.

    Raises: ValueError if it is no Tensor.
    """
    if not isinstance(batched_output, Tensor):
        raise ValueError(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(batched_output)}. Did you mean to set "
            "out_dims= to None for output?"
        )
    if out_dim is None:
        if vmap_level.has(batched_output):
            raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
        return batched_output
    return _remove_batch_dim(batched_output, vmap_level, batch_size, out_dim)


def _remove_batch_dim(x: Tensor, vmap_level: VmapLevel, batch_size: int, out_dim: int) -> Tensor:
    """As `_maybe_remove_batch_dim`, of a Tensor."""
    repeated = vmap_level.full(x)
    return repeated if out_dim == 0 else repeated.movedim(0, out_dim)


def _joined(parts: list[Any], out_dims: Any) -> Any:
    from ..ops._spec import OPS

    columns = [tree_flatten(p) for p in parts]
    spec = columns[0][1]
    if isinstance(out_dims, tuple) and len(out_dims) == 1 and spec.is_leaf():
        out_dims = out_dims[0]
    dims = _broadcast_to_and_flatten(out_dims, spec, is_leaf=lambda x: x is None)
    assert dims is not None  # every part has been checked
    rows = zip(*(leaves for leaves, _ in columns), strict=True)
    return spec.unflatten([row[0] if d is None else OPS["cat"].function(list(row), d) for row, d in zip(rows, dims, strict=True)])
