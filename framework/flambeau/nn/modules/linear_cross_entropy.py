"""The cross entropy of a linear layer's logits, for many classes: a chunk of rows at a time, never all logits at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import flambeau as fb

from ... import _state
from ...autograd import Function
from ...tensor import Tensor
from .. import functional as F
from .linear import Linear
from .module import Module

__all__ = ["LinearCrossEntropyLoss", "LinearCrossEntropyOptions"]

# Logits of a chunk: 16 MiB of float32, from which products of matrices are as fast as they get.
CHUNK_LOGITS = 1 << 22
FEWEST_ROWS = 64


@dataclass
class LinearCrossEntropyOptions:
    """How `LinearCrossEntropyLoss` cuts its work.

    Args:
        allow_retain_graph: accepted; a graph may be kept either way.
        batch_chunk_size: rows of a chunk; None for as many as have four million logits.
        chunking_method: 'auto' for chunks of rows, None for one chunk.
        acc_policy: accepted: 'accurate', 'balanced', 'compact' or 'auto'. Sums over chunks are float32, or float64.
        acc_dtype: the dtype of sums over chunks; None for float32, of float64 parameters float64.
    Raises: ValueError for a chunk size below 1, or another method or policy.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None

    def __post_init__(self) -> None:
        if self.batch_chunk_size is not None and self.batch_chunk_size < 1:
            raise ValueError(f"LinearCrossEntropyOptions: batch_chunk_size must be positive, got {self.batch_chunk_size}")
        if self.chunking_method not in ("auto", None):
            raise ValueError(f"LinearCrossEntropyOptions: chunking_method must be 'auto' or None, got {self.chunking_method!r}")
        if self.acc_policy not in ("accurate", "balanced", "compact", "auto"):
            raise ValueError(f"LinearCrossEntropyOptions: unknown acc_policy {self.acc_policy!r}")


class LinearCrossEntropyLoss(Module):
    """`CrossEntropyLoss` of `Linear`, whose logits never exist all at once.

    Rows are taken in chunks. Where gradients are wanted of a mean or sum they are computed with the loss, chunk by chunk, so
    that no logits are kept for backward.

    Args:
        in_features, num_classes: widths of the input and of the logits.
        out_features: further dimensions of the logits, and of the classes: logits are ``(N, num_classes, *out_features)``.
        bias: whether the layer has one.
        reduction: 'mean', 'sum', or 'none' for a loss for each row.
        weight: ``(num_classes,)``, a factor for each class; the mean is weighted by it.
        ignore_index: classes of this value do not count; -100 by default.
        label_smoothing: share of each target spread over all classes, 0 to 1.
        options: how work is cut.
    Shapes: input ``(N, in_features)`` or ``(in_features,)``; target as of `CrossEntropyLoss`.
    Raises: RuntimeError for an input or target that does not fit; ValueError for a wrong number of targets.

    >>> loss = nn.LinearCrossEntropyLoss(8, 1000)
    >>> loss(fb.zeros(4, 8), fb.tensor([1, 2, 3, 4])).detach()
    tensor(6.9078)
    """

    def __init__(
        self, in_features: int, num_classes: int, *, out_features: tuple[int, ...] = (), bias: bool = False, device: Any = None,
        dtype: Any = None, reduction: str = "mean", weight: Tensor | None = None, ignore_index: int | None = None,
        label_smoothing: float = 0.0, options: LinearCrossEntropyOptions | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.linear = Linear(in_features, num_classes * math.prod(out_features), bias=bias, device=device, dtype=dtype)
        self.register_buffer("weight", weight)
        self.num_classes, self.out_features = num_classes, out_features
        self.reduction, self.ignore_index, self.label_smoothing = reduction, ignore_index, label_smoothing
        self.options = options

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of ``(N, in_features)`` rows."""
        self._check(input, target)
        weight, bias = self.linear.weight, self.linear.bias
        rows = input.shape[0] if input.ndim == 2 else 1
        size = self._chunk_rows()
        if input.ndim == 1 or rows <= size or not _state.left_alone():
            return self._composed(input, weight, bias, target, self.reduction)
        return _LinearCrossEntropy.apply(self, size, self._divisor(target), input, weight, bias, target)

    def _check(self, input: Tensor, target: Tensor) -> None:
        name = "LinearCrossEntropyLoss"
        if self.reduction not in ("mean", "sum", "none"):
            raise ValueError(f"{name}: {self.reduction} is not a valid value for reduction")
        if input.ndim not in (1, 2):
            raise RuntimeError(f"{name}: expected input with dimensionality 1 or 2, got {input.ndim}")
        if input.shape[-1] != self.linear.in_features:
            raise RuntimeError(
                f"{name}: expected equal input and linear_weight last dimensions (in_features), got {input.shape[-1]} and "
                f"{self.linear.in_features}, respectively"
            )
        logits = (*input.shape[:-1], self.num_classes, *self.out_features)
        if tuple(target.shape) != logits and target.dtype not in (fb.int64, fb.uint8):
            raise RuntimeError(f"{name}: expected target dtype to be Long or Byte, but got {target.dtype}")
        if input.ndim == 2 and target.ndim and target.shape[0] != input.shape[0]:
            raise ValueError(f"Expected input batch_size ({input.shape[0]}) to match target batch_size ({target.shape[0]}).")

    def _chunk_rows(self) -> int:
        """Rows of a chunk: a function of sizes and options alone."""
        options = self.options or LinearCrossEntropyOptions()
        if options.chunking_method is None:
            return 1 << 62
        return options.batch_chunk_size or max(FEWEST_ROWS, CHUNK_LOGITS // max(1, self.linear.out_features))

    def _ignored(self) -> int:
        return -100 if self.ignore_index is None else self.ignore_index

    def _divisor(self, target: Tensor) -> Tensor | None:
        """What the sum of losses is divided by, of a mean."""
        if self.reduction != "mean":
            return None
        if target.is_floating_point():
            return fb.tensor(float(target.numel() // self.num_classes))
        counted = target[target != self._ignored()]
        if self.weight is None:
            return fb.tensor(float(counted.numel()))
        return self.weight[counted.to(fb.int64)].sum()

    def _composed(self, input: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, reduction: str) -> Tensor:
        """The loss of rows by their logits."""
        logits = F.linear(input, weight, bias)
        if self.out_features:
            logits = logits.reshape(*input.shape[:-1], self.num_classes, *self.out_features)
        return F.cross_entropy(
            logits, target, weight=self.weight, ignore_index=self._ignored(), reduction=reduction, label_smoothing=self.label_smoothing
        )

    def _sums(self) -> Any:
        """The dtype of sums over chunks."""
        if self.options is not None and self.options.acc_dtype is not None:
            return self.options.acc_dtype
        return fb.float64 if self.linear.weight.dtype is fb.float64 else fb.float32

    def extra_repr(self) -> str:
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, out_features={self.out_features}, "
            f"bias={self.linear.bias is not None}, reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )


class _LinearCrossEntropy(Function):
    """Losses of rows in chunks, with the gradients of their sum where those are wanted."""

    @staticmethod
    def forward(
        ctx: Any, loss: LinearCrossEntropyLoss, size: int, divisor: Tensor | None, input: Tensor, weight: Tensor,
        bias: Tensor | None, target: Tensor,
    ) -> Tensor:  # fmt: skip
        ctx.loss, ctx.size, ctx.divisor = loss, size, divisor
        ctx.save_for_backward(input, weight, bias, target)
        each = loss.reduction == "none"
        ctx.grads = None
        if not each and any(ctx.needs_input_grad):
            total, ctx.grads = _gradients(ctx, (input, weight, bias, target), None)
        else:
            parts = [
                loss._composed(x, weight, bias, t, "none" if each else "sum")
                for x, t in zip(input.split(size), target.split(size), strict=True)
            ]
            if each:
                return fb.cat(parts)
            total = fb.stack(parts).to(loss._sums()).sum()
        if divisor is not None:
            total = total / divisor
        return total.to(input.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        tensors = ctx.saved_tensors
        if fb.is_grad_enabled():                          # a derivative of this one is wanted: by plain ops
            target = tensors[3]
            # Views, so that an input that is the weight as well gets the gradient of each by itself.
            input, weight, bias = (None if x is None else x.view_as(x) for x in tensors[:3])
            made = ctx.loss._composed(input, weight, bias, target, ctx.loss.reduction)
            wanted = [x for x in (input, weight, bias) if x is not None and x.requires_grad]
            found = iter(fb.autograd.grad(made, wanted, grad, create_graph=True))
            return None, None, None, *(next(found) if x is not None and x.requires_grad else None for x in (input, weight, bias)), None
        if ctx.grads is None:
            return None, None, None, *_gradients(ctx, tensors, grad)[1], None
        factor = grad if ctx.divisor is None else grad / ctx.divisor
        return None, None, None, *(None if g is None else g * factor.to(g.dtype) for g in ctx.grads), None


def _gradients(ctx: Any, tensors: tuple[Any, ...], grad: Tensor | None) -> tuple[Tensor, list[Tensor | None]]:
    """The sum of losses, and its gradients at input, weight and bias; with `grad`, of the losses times that."""
    loss, size = ctx.loss, ctx.size
    input, weight, bias, target = tensors
    sums = loss._sums()
    wanted = ctx.needs_input_grad[3:6]
    grads: list[Tensor | None] = [
        fb.zeros(x.shape, dtype=sums, device=x.device) if w else None for x, w in zip((input, weight, bias), wanted, strict=True)
    ]
    rows: list[Tensor] = []
    totals: list[Tensor] = []
    grad_rows = (None,) * len(target.split(size)) if grad is None else grad.split(size)
    for x, t, g in zip(input.split(size), target.split(size), grad_rows, strict=True):
        leaves = [None if y is None else y.detach().requires_grad_(w) for y, w in zip((x, weight, bias), wanted, strict=True)]
        with fb.enable_grad():
            made = loss._composed(*leaves, t, "sum" if g is None else "none")
        asked = [y for y in leaves if y is not None and y.requires_grad]
        found = iter(fb.autograd.grad(made, asked, g))
        totals.append(made.detach().sum())
        for k, w in enumerate(wanted):
            if w and k == 0:
                rows.append(next(found))
            elif w:
                held = grads[k]
                assert held is not None
                held += next(found)
    if wanted[0]:
        grads[0] = fb.cat(rows)
    kept = [None if g is None else g.to(x.dtype) for g, x in zip(grads, (input, weight, bias), strict=True)]
    return fb.stack(totals).to(sums).sum(), kept
