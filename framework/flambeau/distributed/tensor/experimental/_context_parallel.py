"""Sequences divided among ranks: each has a stretch of the queries, and attends to keys and values of all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import flambeau as fb

from ....overrides import TorchFunctionMode
from ...nn import functional as collectives

__all__ = ["context_parallel"]


class _Attention(TorchFunctionMode):
    """Answers attention of stretches of a sequence with that of the whole."""

    def __init__(self, group: Any) -> None:
        super().__init__()
        self.group, self.rank, self.size = group, group.rank(), group.size()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is not fb.nn.functional.scaled_dot_product_attention:
            return func(*args, **kwargs)
        return self._attend(func, *args, **kwargs)

    def _attend(
        self, attend: Any, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
        **kwargs: Any,
    ) -> Any:  # fmt: skip
        if attn_mask is not None or dropout_p:
            raise NotImplementedError("context_parallel: attention with a mask or dropout is not built; use is_causal, and dropout outside")
        key, value = (fb.cat(collectives.all_gather(x.contiguous(), self.group), -2) for x in (key, value))
        if is_causal:
            length = query.shape[-2]
            places = fb.arange(length).unsqueeze(1) + self.rank * length
            attn_mask = fb.arange(key.shape[-2]).unsqueeze(0) <= places
        return attend(query, key, value, attn_mask, 0.0, False, **kwargs)


@contextlib.contextmanager
def context_parallel(
    mesh: Any,
    *,
    buffers: Sequence[Any] | None = None,
    buffer_seq_dims: Sequence[int] | None = None,
    no_restore_buffers: set[Any] | None = None,
) -> Iterator[None]:
    """A region in which `buffers` hold the stretch of their sequence that this rank has, and attention sees the whole sequence.

    Each rank has the stretch of its number. Backward of what is computed inside belongs inside too.

    Args:
        mesh: of one dimension.
        buffers: tensors, changed in place; their shapes change as well.
        buffer_seq_dims: along which dimension the sequence of each of them goes.
        no_restore_buffers: those of them that need not be whole again afterwards.
    Raises: ValueError for lists of different lengths, foreign buffers in `no_restore_buffers`, or a sequence that the ranks do not divide.
    """
    given, dims = list(buffers or ()), list(buffer_seq_dims or ())
    left = {id(b) for b in no_restore_buffers or ()}
    if len(given) != len(dims):
        raise ValueError(f"`seq_dims` must have the same number of elements as `buffers`, got {len(dims)} and {len(given)}")
    if not left <= {id(b) for b in given}:
        raise ValueError("`no_restore_buffers` must be a subset of `buffers`.")
    group = mesh.get_group()
    size, rank = group.size(), group.rank()
    for buffer, dim in zip(given, dims, strict=True):
        if buffer.shape[dim] % size:
            shape = tuple(buffer.shape)
            raise ValueError(f"context_parallel: {size} ranks do not divide the sequence of a buffer of shape {shape} along {dim}")
    whole = [b.detach().clone() for b in given]
    for buffer, full, dim in zip(given, whole, dims, strict=True):
        length = full.shape[dim] // size
        buffer.data = full.narrow(dim, rank * length, length).clone(memory_format=fb.contiguous_format)
    try:
        with _Attention(group):
            yield
    finally:
        for buffer, full in zip(given, whole, strict=True):
            if id(buffer) not in left:
                buffer.data = full


