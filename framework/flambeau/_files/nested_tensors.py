"""Nested tensors in ``.pt`` files: the parts that PyTorch writes of them, and tensors of such parts.

A file can give any parts, so they are checked before they are used. `load` imports this module once a file names a nested tensor.
"""

from __future__ import annotations

import math
from pickle import UnpicklingError
from typing import Any

import flambeau as fb
from flambeau.nested._construction import _check_places
from flambeau.nested._nested_tensor import NestedTensor
from flambeau.nested._strided import StridedNestedTensor, as_strided_nested

__all__ = ["PARTS", "file_parts", "jagged_of", "strided_of"]

Tensor = fb.Tensor
PARTS = frozenset(("_elements", "_offsets", "_lengths", "_ragged_idx"))  # attributes that jagged tensors are made of


def file_parts(nested: Any) -> tuple[str, tuple[Any, ...]]:
    """What a file is to hold of `nested`: the layout's name, and the arguments of PyTorch's function that makes it again."""
    if isinstance(nested, StridedNestedTensor):
        sizes, strides = nested._nested_tensor_size(), nested._nested_tensor_strides()
        return "strided", (nested._elements, sizes, strides, nested._nested_tensor_storage_offsets())
    parts = {
        "values": nested._elements.detach(), "offsets": nested._offsets, "lengths": nested._lengths, "_ragged_idx": nested._ragged_idx,
        "_metadata_cache": {}, "requires_grad": nested.requires_grad,
    }  # fmt: skip
    return "jagged", (parts,)


def strided_of(buffer: Any, sizes: Any, strides: Any, offsets: Any) -> StridedNestedTensor:
    """The nested tensor of the layout `strided` whose parts lie in `buffer`, a vector, as `sizes`, `strides` and `offsets` say.

    Raises: UnpicklingError for parts that are malformed or outside the buffer.
    """
    if not isinstance(buffer, Tensor) or buffer.ndim != 1:
        raise UnpicklingError("load: the elements of a nested tensor must be a vector")
    starts = _ints(offsets, 1)
    if not starts:                                        # for which PyTorch writes numbers as sizes and strides
        return StridedNestedTensor(buffer, (), 1)
    shapes, steps = [tuple(row) for row in _ints(sizes, 2)], [tuple(row) for row in _ints(strides, 2)]
    if not len(shapes) == len(steps) == len(starts) or len(shapes[0]) != len(steps[0]):
        raise UnpicklingError("load: the sizes, strides and offsets of a nested tensor do not belong together")
    counts = [math.prod(shape) for shape in shapes]
    for shape, step, start, count in zip(shapes, steps, starts, counts, strict=True):
        last = start + sum((n - 1) * s for n, s in zip(shape, step, strict=True))
        if min((start, *shape, *step)) < 0 or count and last >= buffer.numel():
            raise UnpicklingError(f"load: a part of shape {shape} and strides {step} is outside its nested tensor")
    if sum(counts) > buffer.numel():                      # parts that overlap would be copied apart
        raise UnpicklingError(f"load: a nested tensor of {sum(counts)} elements does not fit into {buffer.numel()}")
    parts = [buffer.as_strided(shape, step, start) for shape, step, start in zip(shapes, steps, starts, strict=True)]
    follow = [sum(counts[:i]) for i in range(len(counts))] == starts and sum(counts) == buffer.numel()
    if follow and all(part.is_contiguous() for part in parts):
        return StridedNestedTensor(buffer, tuple(shapes), len(shapes[0]) + 1)
    requires_grad = buffer.requires_grad
    return as_strided_nested([part.detach() for part in parts]).requires_grad_(requires_grad)


def _ints(numbers: Any, ndim: int) -> Any:
    """The ints of a file's tensor of `ndim` dimensions."""
    if not isinstance(numbers, Tensor) or numbers.dtype is not fb.int64 or numbers.ndim != ndim:
        raise UnpicklingError(f"load: sizes, strides and offsets of a nested tensor must be int64 tensors, these of {ndim} dimensions")
    if numbers.numel() * numbers.element_size() > numbers.untyped_storage().nbytes():
        raise UnpicklingError("load: the sizes of a nested tensor are more than what the file holds of them")
    return numbers.tolist()


def jagged_of(parts: Any) -> NestedTensor:
    """The nested tensor of the layout `jagged` of a file's dict of its parts. Raises: UnpicklingError for malformed ones."""
    missing: Any = object()
    found = parts if isinstance(parts, dict) else {}
    values, offsets, lengths, ragged = (found.get(name, missing) for name in ("values", "offsets", "lengths", "_ragged_idx"))
    tensors = [values, offsets] if lengths is None else [values, offsets, lengths]
    if not all(isinstance(part, Tensor) for part in tensors) or type(ragged) is not int or not 1 <= ragged <= values.ndim:
        raise UnpicklingError("load: the parts of a nested tensor are missing or malformed")
    try:
        _check_places(values.shape[ragged - 1], offsets, lengths)
    except RuntimeError as error:
        raise UnpicklingError(f"load: the parts of a nested tensor are malformed: {error}") from None
    made = NestedTensor(values, offsets, lengths, ragged)
    return made.requires_grad_() if parts.get("requires_grad") else made
