"""`flex_attention` in one kernel: whether a call is for it, and its derivatives."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import flambeau as fb
from flambeau_kernels.cpu import tier
from flambeau_kernels.cpu.attention import flex_tiles, tiles

from ... import _state
from ..._arrays import ndarray
from ...autograd import Function
from ...tensor import Tensor, wrap
from ._block_mask import BlockMask, noop_mask
from ._trace import Traced, Untraceable, Wanted, trace

__all__ = ["Plan", "Unfused", "attend", "plan"]

# Scores from which the kernel pays: it is compiled anew for each score and mask function, for half a second.
FUSED_FROM = 1 << 16
# The most memory for sums of gradients at captured tensors, which each head of keys has for itself.
MOST_SUMS = 1 << 28


class Unfused(Exception):
    """Why plain ops compute a call."""


class Plan(NamedTuple):
    """How the kernel computes a call, and what else can: `composed` with the arguments of `flex_attention`."""

    lists: flex_tiles.Lists
    changes: flex_tiles.Changes
    numbers: np.ndarray
    places: list[int]
    tensors: list[Tensor]
    wanted: list[Wanted]
    scale: float
    composed: Any
    formula_text: str

    def sums(self) -> int:
        """Elements of all gradients at tensors that functions read."""
        return sum(self.tensors[one.tensor].numel() for one in self.wanted)


def plan(query: Tensor, key: Tensor, value: Tensor, score_mod: Any, block_mask: BlockMask | None, scale: float, composed: Any) -> Plan:
    """How the kernel computes this call: a function of shapes, strides, dtypes, settings and of what the functions do.

    Raises: Unfused where plain ops are to compute it, with the reason.
    """
    if not _state.left_alone():
        raise Unfused("a transform, a mode or autocast watches the ops of this call")
    arrays: Any = [x._array if type(x) in (Tensor, fb.nn.Parameter) else None for x in (query, key, value)]
    if any(a.__class__ is not ndarray for a in arrays):
        raise Unfused("query, key and value are not all plain tensors on the CPU")
    if not query.dtype is key.dtype is value.dtype:
        raise Unfused("query, key and value have different dtypes")
    scores = math.prod(query.shape[:3]) * key.shape[2]
    if scores < FUSED_FROM:
        raise Unfused(f"there are {scores} scores; the kernel pays from {FUSED_FROM}")
    if not tiles.fits(arrays[0], arrays[2]):
        raise Unfused("the kernel takes from 8 queries on, widths up to 256, and floating dtypes of 16 to 64 bits")
    if not tier.compiles():
        raise Unfused("nothing is compiled here")
    sizes = (*query.shape[:3], key.shape[2])
    lists = flex_tiles.full(sizes[2], sizes[3]) if block_mask is None else _lists(block_mask, sizes)
    working = fb.float64 if query.dtype is fb.float64 else fb.float32
    mask_mod = None if block_mask is None or block_mask.mask_mod is noop_mask else block_mask.mask_mod
    made = _planned(lists, score_mod, mask_mod, working, sizes, scale, composed)
    if flex_tiles.spread_bytes(arrays[0], arrays[1], made.sums()) > MOST_SUMS:
        raise Unfused(f"sums of gradients at captured tensors would take more than {MOST_SUMS >> 20} MiB")
    return made


def _planned(lists: flex_tiles.Lists, score_mod: Any, mask_mod: Any, working: Any, sizes: Any, scale: float, composed: Any) -> Plan:
    if score_mod is None and mask_mod is None:
        return Plan(lists, flex_tiles.Changes(), np.zeros(1, np.int64), [], [], [], scale, composed, "scores as they are")
    try:
        masked = trace(score_mod, mask_mod, working, sizes)
        full = masked if mask_mod is None else None if score_mod is None else trace(score_mod, None, working, sizes)
    except Untraceable as error:
        raise Unfused(str(error)) from None
    # What `full` reads was noted first in both traces, in the same order, so one table serves both.
    changes = _changes(full, masked, score_mod is not None)
    return Plan(lists, changes, masked.numbers, masked.places, masked.tensors, masked.wanted, scale, composed, masked.text)


def _changes(full: Traced | None, masked: Traced, slopes: bool) -> flex_tiles.Changes:
    def of(traced: Traced | None) -> tuple[Any, Any]:
        if traced is None:
            return None, None
        return traced.function, traced.grad if slopes else traced.function

    (first, first_grad), (second, second_grad) = of(full), of(masked)
    return flex_tiles.Changes(first, second, first_grad, second_grad, masked.spread)


def _lists(mask: BlockMask, sizes: tuple[int, int, int, int]) -> flex_tiles.Lists:
    rows = -(-sizes[2] // mask.BLOCK_SIZE[0])

    def listed(counts: Any, indices: Any) -> tuple[np.ndarray, np.ndarray]:
        if counts is None:
            counts, indices = fb.zeros(1, 1, rows, dtype=fb.int32), fb.zeros(1, 1, rows, 1, dtype=fb.int32)
        arrays = [x._array if type(x) is Tensor else None for x in (counts, indices)]
        if any(a.__class__ is not ndarray for a in arrays):
            raise Unfused("the lists of block_mask are no plain tensors on the CPU")
        shape = indices.shape
        fits = len(shape) == 4 and tuple(counts.shape) == tuple(shape[:3]) and shape[3] and shape[2] >= rows
        if not fits or shape[0] not in (1, sizes[0]) or shape[1] not in (1, sizes[1]):
            raise Unfused(f"the lists of block_mask have shapes {tuple(counts.shape)} and {tuple(shape)}")
        made = [np.ascontiguousarray(a, np.int32) for a in arrays]
        return made[0], made[1]

    return flex_tiles.Lists(
        *listed(mask.kv_num_blocks, mask.kv_indices), *listed(mask.full_kv_num_blocks, mask.full_kv_indices), *mask.BLOCK_SIZE
    )


def attend(plan: Plan, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """The result, and the logarithms ``(B, H, L)`` of the sums."""
    return _FlexAttention.apply(plan, query, key, value, *plan.tensors)


class _FlexAttention(Function):
    """One kernel forward, one backward; under ``create_graph`` the derivatives of plain ops."""

    @staticmethod
    def forward(ctx: Any, plan: Plan, query: Tensor, key: Tensor, value: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        arrays = [t._array for t in tensors]
        out, logs, right = flex_tiles.flex(
            query._array, key._array, value._array, plan.lists, plan.changes, plan.numbers, plan.places, arrays, plan.scale
        )
        if not right:
            raise IndexError(
                "flex_attention: score_mod or mask_mod reads a tensor with an index that is out of bounds; the tensors it reads "
                f"have shapes {', '.join(str(tuple(t.shape)) for t in tensors)}"
            )
        made, kept = wrap(out), wrap(logs)
        ctx.plan = plan
        ctx.save_for_backward(query, key, value, made, kept, *tensors)
        lse = logs[..., 0]
        return made, wrap(np.where(lse == np.inf, -np.inf, lse))

    @staticmethod
    def backward(ctx: Any, grad: Tensor, lse_grad: Tensor) -> Any:
        plan: Plan = ctx.plan
        query, key, value, out, logs, *tensors = ctx.saved_tensors
        if fb.is_grad_enabled():
            # Functions read their tensors themselves, so what is wanted are these; each once, with all of its gradient.
            # Of query, key and value that are one tensor each has a view, so that each gets its own gradient.
            query, key, value = (x.view_as(x) for x in (query, key, value))
            others = {id(t): t for t in (plan.tensors[one.tensor] for one in plan.wanted)}
            wanted = [*(x for x in (query, key, value) if x.requires_grad), *others.values()]
            results = plan.composed(query, key, value)
            found = iter(fb.autograd.grad(results, wanted, (grad, lse_grad), create_graph=True, allow_unused=True))
            first = [next(found) if x.requires_grad else None for x in (query, key, value)]
            left = dict(zip(others, found, strict=True))
            return None, *first, *(left.pop(id(t), None) for t in plan.tensors)
        *made, sums = flex_tiles.flex_grad(
            grad._array, np.ascontiguousarray(lse_grad._array, logs._array.dtype), query._array, key._array, value._array,
            plan.lists, plan.changes, plan.numbers, plan.places, [t._array for t in tensors],
            out._array, logs._array, plan.scale, plan.sums(),
        )  # fmt: skip
        spread: list[Tensor | None] = [None] * len(tensors)
        for one in plan.wanted:
            like = tensors[one.tensor]
            spread[one.tensor] = wrap(sums[one.begin : one.begin + like.numel()].reshape(like.shape)).to(like.dtype)
        return None, *map(wrap, made), *spread
