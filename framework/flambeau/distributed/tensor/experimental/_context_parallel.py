"""Sequences divided among ranks: each has stretches of queries, and keys and values of the others come by in a ring."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import flambeau as fb

from ....autograd import Function
from ....overrides import TorchFunctionMode
from ... import distributed_c10d as c10d

__all__ = ["context_parallel", "context_parallel_unshard", "set_rotate_method"]

_WAYS = ("alltoall", "allgather")
_way = _WAYS[0]


def set_rotate_method(rotate_method: str) -> None:
    """How keys and values of other ranks come, in regions of `context_parallel` that begin from now on.

    Args:
        rotate_method: ``"alltoall"``, the default, passes them on from rank to rank, so that none has those of all; ``"allgather"``
            gathers them at once, which takes more memory and waits once.
    Raises: NotImplementedError for others.
    """
    global _way
    if rotate_method not in _WAYS:
        raise NotImplementedError(f"context_parallel: keys and values come by {' or '.join(map(repr, _WAYS))}, not {rotate_method!r}")
    _way = rotate_method


class _Layout:
    """Which stretches of the sequence ranks have; a stretch is a number, in the order of the sequence."""

    def __init__(self, group: Any, balanced: bool) -> None:
        self.group, self.rank, self.size = group, group.rank(), group.size()
        self.each = 2 if balanced else 1               # stretches of a rank
        self.gathers = _way == "allgather"

    def stretches(self, rank: int) -> list[int]:
        """An early and a late one, so that what causal attention leaves out is the same for all ranks."""
        return [rank] if self.each == 1 else [rank, 2 * self.size - 1 - rank]

    def cut(self, tensor: Any, dim: int) -> Any:
        """What this rank has of `tensor`."""
        parts = tensor.tensor_split(self.size * self.each, dim)
        return fb.cat([parts[at] for at in self.stretches(self.rank)], dim)

    def whole(self, part: Any, dim: int) -> Any:
        """The tensor of which each rank has what `cut` gives: `part` here."""
        order = [at for rank in range(self.size) for at in self.stretches(rank)]
        pieces = [piece for one in self._of_all(part) for piece in one.tensor_split(self.each, dim)]
        return fb.cat([pieces[order.index(at)] for at in range(len(order))], dim)

    def in_turn(self, tensors: Sequence[Any]) -> Iterator[list[Any]]:
        """What this rank has of `tensors`, then what the rank before has, and so on until the one after."""
        if self.gathers:
            of_all = [self._of_all(t) for t in tensors]
            for turn in range(self.size):
                yield [x[(self.rank - turn) % self.size] for x in of_all]
            return
        here = list(tensors)
        for turn in range(self.size):
            yield here
            if turn + 1 < self.size:
                here = self.passed_on(here)

    def _of_all(self, tensor: Any) -> list[Any]:
        made = [fb.empty_like(tensor, memory_format=fb.contiguous_format) for _ in range(self.size)]
        c10d.all_gather(made, tensor.contiguous(), self.group)
        return made

    def passed_on(self, tensors: Sequence[Any]) -> list[Any]:
        """What the rank before has of `tensors`; the next one gets these."""
        peers = c10d.get_process_group_ranks(self.group)
        after, before = peers[(self.rank + 1) % self.size], peers[(self.rank - 1) % self.size]
        came = [fb.empty_like(t, memory_format=fb.contiguous_format) for t in tensors]
        sends = [c10d.P2POp(c10d.isend, t.contiguous(), after, self.group) for t in tensors]
        receives = [c10d.P2POp(c10d.irecv, t, before, self.group) for t in came]
        for work in c10d.batch_isend_irecv([*sends, *receives]):
            work.wait()
        return came


def _pairs(layout: _Layout, turn: int, causal: bool, mask: Any, length: int) -> Iterator[tuple[slice, slice, Any]]:
    """Which rows of the queries meet which rows of the keys that are here in a `turn`, and what is added to their products or None.

    `mask` has the rows of this rank, or one for all, and the columns of the whole sequence in its order.
    """
    source, step = (layout.rank - turn) % layout.size, length // layout.each
    for i, mine in enumerate(layout.stretches(layout.rank)):
        for j, theirs in enumerate(layout.stretches(source)):
            if not causal or theirs <= mine:
                rows, columns = slice(i * step, (i + 1) * step), slice(j * step, (j + 1) * step)
                part = None
                if mask is not None:
                    part = mask[..., rows if mask.shape[-2] > 1 else slice(0, 1), theirs * step : (theirs + 1) * step]
                elif causal and theirs == mine:
                    part = fb.full((step, step), -math.inf).triu(1)
                yield rows, columns, part


def _scores(q: Any, k: Any, scale: float, added: Any) -> Any:
    scores = (q @ k.mT) * scale                        # (..., L, S)
    return scores if added is None else scores + added.to(scores.dtype)


def _finite(logs: Any) -> Any:
    """`logs`, with 0 for rows that have met no key yet: what they would be the base of is exp(-inf)."""
    return logs.masked_fill(logs == -math.inf, 0.0)


class _Ring(Function):
    """Attention of the queries of this rank to the keys and values of all ranks, a stretch at a time."""

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, layout: _Layout, causal: bool, mask: Any, scale: float) -> Any:
        kind = fb.float32 if query.dtype in (fb.float16, fb.bfloat16) else query.dtype
        q, *mine = (x.detach().to(kind) for x in (query, key, value))
        length = q.shape[-2]
        out = q.new_zeros((*q.shape[:-1], value.shape[-1]))
        logs = q.new_full(tuple(q.shape[:-1]), -math.inf)          # of the sums of exponentials so far
        for turn, (k, v) in enumerate(layout.in_turn(mine)):
            for rows, columns, added in _pairs(layout, turn, causal, mask, length):
                scores = _scores(q[..., rows, :], k[..., columns, :], scale, added)
                before = logs[..., rows]
                after = fb.logaddexp(before, scores.logsumexp(-1))
                base = _finite(after)
                part = (scores - base.unsqueeze(-1)).exp() @ v[..., columns, :]
                out[..., rows, :] = out[..., rows, :] * (before - base).exp().unsqueeze(-1) + part
                logs[..., rows] = after
        ctx.save_for_backward(query, key, value, out, logs)
        ctx.how = layout, causal, mask, scale, kind
        return out.to(query.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        layout, causal, mask, scale, kind = ctx.how
        query, key, value, out, logs = ctx.saved_tensors
        q, grad, *mine = (x.detach().to(kind) for x in (query, grad, key, value))
        length = q.shape[-2]
        inner = (grad * out).sum(-1)
        dq, dk, dv = (fb.zeros_like(x) for x in (q, *mine))
        for turn, (k, v) in enumerate(layout.in_turn(mine)):
            for rows, columns, added in _pairs(layout, turn, causal, mask, length):
                qr, kc, vc, g = q[..., rows, :], k[..., columns, :], v[..., columns, :], grad[..., rows, :]
                weights = (_scores(qr, kc, scale, added) - _finite(logs[..., rows]).unsqueeze(-1)).exp()
                dv[..., columns, :] += weights.mT @ g
                slope = weights * (g @ vc.mT - inner[..., rows].unsqueeze(-1)) * scale
                dq[..., rows, :] += slope @ kc
                dk[..., columns, :] += slope.mT @ qr
            # Gradients travel beside what they belong to, and are at home after the last turn.
            dk, dv = layout.passed_on([dk, dv])
        return dq.to(query.dtype), dk.to(key.dtype), dv.to(value.dtype), None, None, None, None


class _Attention(TorchFunctionMode):
    """Answers attention of stretches of a sequence with that of the whole."""

    def __init__(self, layout: _Layout) -> None:
        super().__init__()
        self.layout = layout

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is not fb.nn.functional.scaled_dot_product_attention:
            return func(*args, **kwargs)
        return self._attend(*args, **kwargs)

    def _attend(
        self, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        if dropout_p:
            raise NotImplementedError("context_parallel: attention with dropout is not built; use dropout outside")
        length = query.shape[-2]
        if key.shape[-2] != length or value.shape[-2] != length:
            raise NotImplementedError(
                f"context_parallel: attention between sequences of different lengths is not built; queries have {length} places on this "
                f"rank, keys {key.shape[-2]} and values {value.shape[-2]}"
            )
        if length % self.layout.each:
            raise ValueError(f"context_parallel: queries have {length} places on this rank, which has {self.layout.each} stretches")
        if enable_gqa:
            key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
            value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
        scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
        return _Ring.apply(query, key, value, self.layout, is_causal, self._added(attn_mask, query, is_causal), scale)

    def _added(self, mask: Any, query: Any, causal: bool) -> Any:
        """What `mask` adds to products, or None."""
        if mask is None:
            return None
        if causal:
            raise RuntimeError("scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")
        if mask.requires_grad:
            raise NotImplementedError("context_parallel: the gradient of attn_mask is not built; give attention mask.detach()")
        length, total = query.shape[-2], query.shape[-2] * self.layout.size
        if mask.dim() < 2 or mask.shape[-2] not in (1, length) or mask.shape[-1] != total:
            raise ValueError(
                f"context_parallel: attn_mask has shape {tuple(mask.shape)}; it needs the {length} queries of this rank as rows, and "
                f"all {total} keys as columns: a mask of the whole sequence is one of `buffers`, along its dimension of queries"
            )
        if mask.dtype == fb.bool:
            return fb.zeros(mask.shape).masked_fill(~mask, -math.inf)
        return mask


@contextlib.contextmanager
def context_parallel(
    mesh: Any,
    *,
    buffers: Sequence[Any] | None = None,
    buffer_seq_dims: Sequence[int] | None = None,
    no_restore_buffers: set[Any] | None = None,
) -> Iterator[None]:
    """A region in which `buffers` hold the stretches of their sequence that this rank has, and attention sees the whole sequence.

    The sequence is cut into two stretches for each rank, of which rank r has number r from the beginning and number r from the end: so
    causal attention is the same work for all. Where that does not divide a sequence of `buffers`, each rank has one stretch, that of its
    number. Keys and values go round from rank to rank, so that none has those of all. Backward of what is computed inside belongs inside.
    A mask of attention has this rank's queries as rows, as one of `buffers` gets them, and the keys of the whole sequence as columns.

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
    size = group.size()
    for buffer, dim in zip(given, dims, strict=True):
        if buffer.shape[dim] % size:
            shape = tuple(buffer.shape)
            raise ValueError(f"context_parallel: {size} ranks do not divide the sequence of a buffer of shape {shape} along {dim}")
    layout = _Layout(group, all(b.shape[dim] % (2 * size) == 0 for b, dim in zip(given, dims, strict=True)))
    copies = [b.detach().clone() for b in given]
    for buffer, full, dim in zip(given, copies, dims, strict=True):
        buffer.data = layout.cut(full, dim).contiguous()
    try:
        with _Attention(layout):
            yield
    finally:
        for buffer, full in zip(given, copies, strict=True):
            if id(buffer) not in left:
                buffer.data = full


def context_parallel_unshard(mesh: Any, buffers: Sequence[Any], seq_dims: Sequence[int]) -> list[Any]:
    """The whole tensors of which each rank has in `buffers` what `context_parallel` gives it, in new memory and without a history.

    Args:
        mesh: of one dimension.
        buffers: as long on every rank; of two stretches where their length is even, as `context_parallel` cuts such a sequence.
        seq_dims: along which dimension the sequence of each of them goes.
    Raises: ValueError for lists of different lengths.
    """
    given, dims = list(buffers), list(seq_dims)
    if len(given) != len(dims):
        raise ValueError(f"`seq_dims` must have the same number of elements as `buffers`, got {len(dims)} and {len(given)}")
    layout = _Layout(mesh.get_group(), all(b.shape[dim] % 2 == 0 for b, dim in zip(given, dims, strict=True)))
    return [layout.whole(b.detach(), dim) for b, dim in zip(given, dims, strict=True)]
