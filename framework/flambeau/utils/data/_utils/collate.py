"""From a list of samples to a batch: tensors are stacked, numbers become tensors, containers are gone through."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

import flambeau as fb

__all__ = ["collate", "default_collate", "default_collate_fn_map", "default_convert", "stacks_tensors"]

# The dtypes of numpy's texts and objects, which no tensor has.
np_str_obj_array_pattern = re.compile(r"[SaUO]")
_CollateMap = dict[Any, Callable[..., Any]]


def default_convert(data: Any) -> Any:
    """Numpy arrays inside `data` as tensors over the same memory; everything else as it is.

    Lists and tuples become lists; other containers keep their type where it can be made again.
    """
    if isinstance(data, fb.Tensor):
        return data
    if isinstance(data, (np.ndarray, np.generic)):
        return fb.as_tensor(data) if _is_numeric(data.dtype) else data
    if isinstance(data, Mapping):
        return _same_mapping(data, {key: default_convert(data[key]) for key in data})
    if isinstance(data, tuple):
        parts = [default_convert(part) for part in data]
        return type(data)(*parts) if hasattr(data, "_fields") else parts
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes, bytearray)):
        return _same_sequence(data, [default_convert(part) for part in data])
    return data


def _is_numeric(dtype: np.dtype) -> bool:
    # Half types of other packages are of kind "V", and registered with numpy.
    return dtype.kind in "biufc" or dtype.isbuiltin == 2


def default_collate(batch: list[Any]) -> Any:
    """A batch from a list of samples of one kind.

    Tensors, numpy arrays and numbers become tensors with a new first dimension; str and bytes stay a list;
    dicts, namedtuples, tuples and lists are gone through (plain tuples come back as lists).
    Raises: TypeError for samples of another kind; RuntimeError if shapes or lengths differ.

    >>> default_collate([(1, "a"), (2, "b")])
    [tensor([1, 2]), ('a', 'b')]
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def collate(batch: Sequence[Any], *, collate_fn_map: _CollateMap | None = None) -> Any:
    """Like `default_collate`, with the rule for each element type taken from `collate_fn_map`.

    Args:
        collate_fn_map: from a type (or tuple of types) to ``rule(batch, *, collate_fn_map)``. An exact type
            is looked for first, then in order the first entry the sample is an instance of.
    """
    sample = batch[0]
    rule = _rule_for(sample, collate_fn_map)
    if rule is not None:
        return rule(batch, collate_fn_map=collate_fn_map)
    if isinstance(sample, Mapping):
        columns = {key: [each[key] for each in batch] for key in sample}
        made = {key: collate(column, collate_fn_map=collate_fn_map) for key, column in columns.items()}
        return _same_mapping(sample, made)
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        return type(sample)(*_collate_columns(batch, collate_fn_map))
    if isinstance(sample, Sequence):
        return _collate_sequences(batch, collate_fn_map)
    raise TypeError(
        f"default_collate: cannot batch samples of {type(sample)}; it takes tensors, numpy arrays, numbers, "
        f"str, bytes, "
        "dicts, tuples and lists. Pass collate_fn to DataLoader for anything else"
    )


def _rule_for(sample: Any, collate_fn_map: _CollateMap | None) -> Callable[..., Any] | None:
    if collate_fn_map is None:
        return None
    exact = collate_fn_map.get(type(sample))
    if exact is not None:
        return exact
    return next((rule for kind, rule in collate_fn_map.items() if isinstance(sample, kind)), None)


def _collate_sequences(batch: Sequence[Any], collate_fn_map: _CollateMap | None) -> Any:
    lengths = {len(sample) for sample in batch}
    if len(lengths) > 1:
        raise RuntimeError(f"default_collate: samples of a batch must have equal length, got lengths {sorted(lengths)}")
    columns = _collate_columns(batch, collate_fn_map)
    return columns if isinstance(batch[0], tuple) else _same_sequence(batch[0], columns)


def _collate_columns(batch: Sequence[Any], collate_fn_map: _CollateMap | None) -> list[Any]:
    # Columns are tuples, so text inside samples comes back as a tuple of str, as in PyTorch.
    return [collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch, strict=True)]


def _same_mapping(like: Any, items: dict[Any, Any]) -> Any:
    """`items` in a mapping of the type of `like`; a dict if that type cannot be made from it."""
    try:
        if isinstance(like, MutableMapping):
            # A copy keeps what the constructor does not take, such as the factory of a defaultdict.
            made = copy.copy(like)
            made.update(items)
            return made
        return type(like)(items)
    except TypeError:
        return items


def _same_sequence(like: Any, items: list[Any]) -> Any:
    """`items` in a sequence of the type of `like`; a list if that type cannot be made from it."""
    try:
        if isinstance(like, MutableSequence):
            made = copy.copy(like)
            for at, item in enumerate(items):
                made[at] = item
            return made
        return type(like)(items)
    except TypeError:
        return items


# -- rules ---------------------------------------------------------------------------------------------------


def collate_tensor_fn(batch: Any, *, collate_fn_map: _CollateMap | None = None) -> Any:
    return fb.stack(list(batch), 0)


def stacks_tensors() -> bool:
    """Whether `default_collate` stacks tensors by the rule here, and not by one that a program has put in its place."""
    return default_collate_fn_map.get(fb.Tensor) is collate_tensor_fn


def collate_numpy_array_fn(batch: Any, *, collate_fn_map: _CollateMap | None = None) -> Any:
    if not _is_numeric(batch[0].dtype):
        raise TypeError(f"default_collate: numpy arrays of dtype {batch[0].dtype} cannot become tensors; pass collate_fn")
    return collate([fb.as_tensor(array) for array in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch: Any, *, collate_fn_map: _CollateMap | None = None) -> Any:
    return fb.as_tensor(batch)


def collate_float_fn(batch: Any, *, collate_fn_map: _CollateMap | None = None) -> Any:
    return fb.tensor(batch, dtype=fb.float64)


def collate_int_fn(batch: Any, *, collate_fn_map: _CollateMap | None = None) -> Any:
    return fb.tensor(batch)


def collate_str_fn(batch: Any, *, collate_fn_map: _CollateMap | None = None) -> Any:
    return batch


default_collate_fn_map: _CollateMap = {
    fb.Tensor: collate_tensor_fn,
    np.ndarray: collate_numpy_array_fn,
    # Not np.generic: np.str_ and np.bytes_ follow the rules of str and bytes.
    (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}
