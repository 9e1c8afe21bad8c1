"""Losses of scores that are divided along their classes: ranks exchange a few numbers for each row, never scores."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import flambeau as fb

from ....autograd import Function
from ....overrides import TorchFunctionMode
from ... import distributed_c10d as c10d
from .._dtensor import DTensor
from .._redistribute import local_part
from .._utils import compute_local_shape_and_global_offset
from ..placement_types import Partial, Placement, Replicate, Shard

__all__ = ["loss_parallel"]

F = fb.nn.functional


@contextlib.contextmanager
def loss_parallel() -> Iterator[None]:
    """A context in which `cross_entropy` of scores that are divided along their classes leaves them where they are.

    For each row ranks exchange a maximum, a sum and the score of its class; backward exchanges nothing, and belongs into the context too,
    as in PyTorch. `target` holds classes, and is whole on every rank, or divided along the same rows as the scores; `weight` is whole. The
    loss is whole on every rank; where dimensions of the mesh divide rows, it is a part of a sum along those, or for
    ``reduction="none"`` in pieces. Scores that are not divided along their classes go the usual way.

    Raises: NotImplementedError for probabilities as targets, and for `label_smoothing`.
    """
    with _Losses():
        yield


class _Losses(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.cross_entropy:
            scores = args[0] if args else kwargs.get("input")
            if isinstance(scores, DTensor) and any(p.is_shard(_class_dim(scores)) for p in scores.placements):
                return _cross_entropy(*args, **kwargs)
        return func(*args, **kwargs)


def _class_dim(scores: Any) -> int:
    return 0 if scores.ndim == 1 else 1


def _cross_entropy(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None,
    reduction: str = "mean", label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    if label_smoothing:
        raise NotImplementedError("loss_parallel: cross_entropy with label_smoothing is not built; redistribute the scores first")
    if target.dtype.is_floating_point:
        raise NotImplementedError("loss_parallel: cross_entropy with probabilities as targets is not built; redistribute the scores first")
    if size_average is not None or reduce is not None:
        reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    dim = _class_dim(input)
    rows = (*input.shape[:dim], *input.shape[dim + 1 :])
    if tuple(target.shape) != rows:
        raise ValueError(f"cross_entropy: target has shape {tuple(target.shape)}, scores of shape {tuple(input.shape)} need {rows}")
    if weight is not None and tuple(weight.shape) != (input.shape[dim],):
        raise RuntimeError(f"cross_entropy: weight has shape {tuple(weight.shape)}, and there are {input.shape[dim]} classes")
    # Sums that are not taken yet have no exponential: they are put together first.
    kept: list[Placement] = [Replicate() if p.is_partial() else p for p in input.placements]
    if kept != list(input.placements):
        input = input.redistribute(placements=kept)
    own = _rows_of(target, input.device_mesh, [_of_rows(p, dim) for p in kept])
    if isinstance(weight, DTensor):
        weight = weight.full_tensor()
    return _Loss.apply(input, own, weight, ignore_index, reduction, dim)


def _of_rows(placement: Placement, dim: int) -> Placement:
    """How what has no classes lies where the scores lie as `placement`."""
    if isinstance(placement, Shard) and placement.dim != dim:
        return Shard(placement.dim - (placement.dim > dim))
    return Replicate()


def _rows_of(target: Any, mesh: Any, placements: Sequence[Placement]) -> Any:
    if isinstance(target, DTensor):
        return target.redistribute(placements=placements).to_local()
    where = mesh.get_coordinate()
    for at, placement in enumerate(placements):
        if isinstance(placement, Shard):
            target = local_part(target, placement.dim, mesh.size(at), where[at])
    return target


def _reduced(tensor: Any, mesh: Any, dims: Sequence[int], op: Any = c10d.ReduceOp.SUM) -> Any:
    for at in dims:
        c10d.all_reduce(tensor, op=op, group=mesh.get_group(at))
    return tensor


class _Loss(Function):
    @staticmethod
    def forward(ctx: Any, input: Any, target: Any, weight: Any, ignored: int, reduction: str, dim: int) -> Any:
        mesh, placements, classes = input.device_mesh, input.placements, input.shape[dim]
        over_classes = [at for at, p in enumerate(placements) if p.is_shard(dim)]
        over_rows = [at for at, p in enumerate(placements) if p.is_shard() and at not in over_classes]
        _, offsets = compute_local_shape_and_global_offset(tuple(input.shape), mesh, placements)
        local, first = input._local_tensor.detach(), offsets[dim]
        scores = local.float() if local.dtype in (fb.float16, fb.bfloat16) else local
        counts = target != ignored
        if bool((counts & ((target < 0) | (target >= classes))).any()):
            wrong = target[counts & ((target < 0) | (target >= classes))][0].item()
            raise IndexError(f"Target {wrong} is out of bounds: cross_entropy has {classes} classes")
        highest = scores.amax(dim) if scores.shape[dim] else scores.new_full(tuple(target.shape), -float("inf"))
        highest = _reduced(highest.contiguous(), mesh, over_classes, c10d.ReduceOp.MAX)
        # The score of the class of a row is on one rank, and nothing on the others.
        here = counts & (target >= first) & (target < first + scores.shape[dim])
        places = fb.where(here, target - first, 0).unsqueeze(dim)
        shifted = scores - highest.unsqueeze(dim)
        if scores.shape[dim]:
            own = fb.where(here, shifted.gather(dim, places).squeeze(dim), 0)
        else:
            own = fb.zeros_like(highest)
        sums = _reduced(fb.stack([shifted.exp().sum(dim), own]), mesh, over_classes)
        logs, own = sums[0].log(), sums[1]
        factors = counts.to(scores.dtype)
        if weight is not None:
            factors = factors * weight.detach().to(scores.dtype)[fb.where(counts, target, 0)]
        if reduction == "mean":
            factors = factors / _reduced(factors.sum(), mesh, over_rows)
        losses = (logs - own) * factors
        made = losses if reduction == "none" else losses.sum()
        ctx.saved = (fb.exp(shifted - logs.unsqueeze(dim)), here, places, factors)
        ctx.spec, ctx.dim, ctx.dtype = input._spec, dim, local.dtype
        laid_out = [_of_rows(p, dim) for p in placements]
        if reduction == "none":
            shape = tuple(n for at, n in enumerate(input.shape) if at != dim)
        else:
            laid_out, shape = [Partial() if isinstance(p, Shard) else p for p in laid_out], ()
        ctx.laid_out = tuple(Replicate() if isinstance(p, Partial) else p for p in laid_out)
        made = made.to(local.dtype)
        strides = fb.empty(shape, device="meta").stride()
        return DTensor._of(made, mesh, laid_out, shape, strides)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        probabilities, here, places, factors = ctx.saved
        scale = grad._local_as(ctx.laid_out).to(probabilities.dtype) * factors
        slope = probabilities
        if probabilities.shape[ctx.dim]:
            slope = probabilities.scatter_add(ctx.dim, places, -here.to(probabilities.dtype).unsqueeze(ctx.dim))
        made = (slope * scale.unsqueeze(ctx.dim)).to(ctx.dtype)
        meta = ctx.spec.tensor_meta
        return DTensor._of(made, ctx.spec.mesh, ctx.spec.placements, meta.shape, meta.stride), None, None, None, None, None
