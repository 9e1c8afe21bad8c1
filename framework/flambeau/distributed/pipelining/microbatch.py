"""A batch cut into microbatches, and results of microbatches put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fb

from ...utils._pytree import tree_flatten, tree_unflatten

__all__ = ["TensorChunkSpec", "merge_chunks", "split_args_kwargs_into_chunks"]


class TensorChunkSpec:
    """A tensor is cut along a dimension.

    Args:
        split_dim: the dimension.
    """

    def __init__(self, split_dim: int) -> None:
        self.split_dim = split_dim

    def __repr__(self) -> str:
        return f"{type(self).__module__}.{type(self).__name__}({self.split_dim})"

    def __str__(self) -> str:
        return f"TensorChunkSpec({self.split_dim})"

    @staticmethod
    def from_tuple(chunk_dims: tuple[int, ...]) -> tuple[TensorChunkSpec, ...]:
        """A spec for each of several positional arguments; `chunk_dims` has their dimensions."""
        return tuple(TensorChunkSpec(dim) for dim in chunk_dims)

    @staticmethod
    def from_dict(chunk_dims: dict[str, int]) -> dict[str, TensorChunkSpec]:
        """A spec for each of several keyword arguments; `chunk_dims` has their dimensions."""
        return {name: TensorChunkSpec(dim) for name, dim in chunk_dims.items()}


class _Replicate:
    """Each microbatch gets all of the value."""


class _CustomReducer:
    """Results of microbatches are combined by a function.

    Args:
        init_value: what it begins with.
        reduce_fn: called with what there is so far and the next result.
    """

    def __init__(self, init_value: Any, reduce_fn: Callable[[Any, Any], Any]) -> None:
        self.init_value, self.reduce_fn = init_value, reduce_fn


sum_reducer = _CustomReducer(0.0, lambda total, value: total + value)


def _is_spec(value: Any) -> bool:
    return value is _Replicate or isinstance(value, TensorChunkSpec | _Replicate | _CustomReducer)


def _replicates(spec: Any) -> bool:
    return spec is _Replicate or isinstance(spec, _Replicate)


def _specs(name: str, value: Any, given: Any) -> tuple[list[Any], list[Any], Any]:
    """The leaves of `value`, the spec of each, and how they are nested; without `given` tensors are cut along dimension 0."""
    leaves, tree = tree_flatten(value)
    if given is None:
        return leaves, [TensorChunkSpec(0) if isinstance(leaf, fb.Tensor) else _Replicate for leaf in leaves], tree
    if _is_spec(given):
        return leaves, [given] * len(leaves), tree
    specs, spec_tree = tree_flatten(given, is_leaf=_is_spec)
    if spec_tree != tree:
        raise ValueError(f"{name}: the chunk spec {given} does not have the nesting of the value, {tree}")
    return leaves, specs, tree


def _rows(name: str, leaf: Any, spec: Any) -> int | None:
    """How many slices `leaf` has to share out; None where all get the whole."""
    if _replicates(spec):
        return None
    if not isinstance(spec, TensorChunkSpec) or not isinstance(leaf, fb.Tensor):
        raise ValueError(f"{name}: Unsupported chunk spec: {spec} and value: {leaf} combination.")
    if leaf.dim() == 0:
        raise IndexError(f"{name}: Dimension specified as {spec.split_dim} but tensor has no dimensions; give it the spec _Replicate")
    if not -leaf.dim() <= spec.split_dim < leaf.dim():
        raise IndexError(f"{name}: {spec} names no dimension of a tensor of shape {tuple(leaf.shape)}")
    return leaf.shape[spec.split_dim]


def split_args_kwargs_into_chunks(
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    chunks: int,
    args_chunk_spec: tuple[TensorChunkSpec, ...] | None = None,
    kwargs_chunk_spec: dict[str, TensorChunkSpec] | None = None,
) -> tuple[list[tuple[Any, ...]], list[dict[str, Any]]]:
    """Cut arguments into microbatches; tensors are cut, other values go to each.

    Args:
        args, kwargs: the arguments for a whole batch.
        chunks: how many microbatches; fewer come back if a tensor has fewer slices. Sizes differ by one at most.
        args_chunk_spec, kwargs_chunk_spec: how each is cut, nested as they are; None cuts tensors along dimension 0.
    Returns: lists of positional and of keyword arguments, one for each microbatch.
    Raises: AssertionError for specs of other arguments; ValueError for a spec that does not fit; IndexError for a dimension.
    """
    name = "split_args_kwargs_into_chunks"
    kwargs = {} if kwargs is None else kwargs
    if chunks < 1:
        raise ValueError(f"{name}: chunks must be 1 or more, got {chunks}")
    if args_chunk_spec is not None and len(args_chunk_spec) != len(args):
        raise AssertionError(f"{name}: args_chunk_spec has {len(args_chunk_spec)} specs for {len(args)} positional arguments")
    if kwargs_chunk_spec is not None and not set(kwargs_chunk_spec) <= set(kwargs):
        raise AssertionError(
            f"{name}: kwargs_chunk_spec names {sorted(set(kwargs_chunk_spec) - set(kwargs))}, which are no keyword arguments"
        )
    pieces = [_specs(name, arg, args_chunk_spec[at] if args_chunk_spec else None) for at, arg in enumerate(args)]
    pieces += [_specs(name, value, (kwargs_chunk_spec or {}).get(key)) for key, value in kwargs.items()]
    sizes = [_rows(name, leaf, spec) for leaves, specs, _ in pieces for leaf, spec in zip(leaves, specs, strict=True)]
    count = min([chunks, *(size for size in sizes if size is not None)])
    if count == 0:
        raise ValueError(f"{name}: a tensor that is to be cut has no elements along its dimension")
    cut: list[list[Any]] = []
    for leaves, specs, tree in pieces:
        parts = [
            [leaf] * count if _replicates(spec) else list(fb.tensor_split(leaf, count, spec.split_dim))
            for leaf, spec in zip(leaves, specs, strict=True)
        ]
        cut.append([tree_unflatten([part[at] for part in parts], tree) for at in range(count)])
    rows = [tuple(part[at] for part in cut[: len(args)]) for at in range(count)]
    named = [dict(zip(kwargs, (part[at] for part in cut[len(args) :]), strict=True)) for at in range(count)]
    return rows, named


def merge_chunks(chunks: list[Any], chunk_spec: Any) -> Any:
    """Put the results of microbatches together.

    Args:
        chunks: results, all nested alike.
        chunk_spec: nested as they are; tensors are concatenated along the dimension of their `TensorChunkSpec`. None
            concatenates along dimension 0.
    Returns: one value, nested as each of them.
    Raises: IndexError for no chunks; ValueError for nesting that differs; what `cat` raises.
    """
    flat = [tree_flatten(chunk) for chunk in chunks]
    leaves, tree = flat[0]
    if any(other != tree for _, other in flat):
        raise ValueError(f"merge_chunks: chunks are nested differently: {[str(other) for _, other in flat]}")
    if chunk_spec is None:
        specs: list[Any] = [TensorChunkSpec(0)] * len(leaves)
    else:
        _, specs, _ = _specs("merge_chunks", chunks[0], chunk_spec)
    merged = [_merged([part[at] for part, _ in flat], spec) for at, spec in enumerate(specs)]
    return tree_unflatten(merged, tree)


def _merged(values: list[Any], spec: Any) -> Any:
    if _replicates(spec):
        return values[0]
    if isinstance(spec, _CustomReducer):
        total = spec.init_value
        for value in values:
            total = spec.reduce_fn(total, value)
        return total
    if not isinstance(spec, TensorChunkSpec):
        raise ValueError(f"merge_chunks: Unsupported chunk spec: {spec}")
    return fb.cat(values, spec.split_dim)
