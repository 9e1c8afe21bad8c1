"""Operators that compute margin losses and their gradients as graphs of PyTorch's call them, by the rules of the losses."""

from __future__ import annotations

from .._spec import composite, gradients_of
from .margin import multi_margin_loss, multilabel_margin_loss

__all__: list[str] = []

_REDUCTIONS = ("none", "mean", "sum")                 # as operators number them


@composite(surface=0, reads_parts=True, samples="x(3), x(3, 4), i(4, 3), 1, 1.0, None, 0; x(), x(3, 4), i(4, 3), 2, 0.5, k(4), 1")
def multi_margin_loss_backward(grad_output, self, target, p, margin, weight=None, reduction=1):
    """The gradient of `multi_margin_loss` by its input `self`."""
    how = _REDUCTIONS[reduction]
    return gradients_of(lambda x: multi_margin_loss(x, target, p, margin, weight, reduction=how), grad_output, (self,), (True,))[0]


def _belongs(self, target):
    """1 in the dtype of `self` where a sample has the class of the column, which `target` lists up to the first -1."""
    rows = target.reshape(-1, target.shape[-1] if target.ndim else 1)
    listed = (rows >= 0).long().cumprod(1)            # 1 before the first -1 of a row
    return rows.new_zeros(rows.shape).scatter_add(1, rows * listed, listed).ne(0).to(self.dtype).reshape(target.shape)


@composite(surface=0, reads_parts=True, samples="x(2, 4), fb.tensor([[3, 0, -1, 1], [1, -1, 0, 2]]), 1")
def multilabel_margin_loss_forward(self, target, reduction):
    """`multilabel_margin_loss`, and where samples have the class of the column: 1, else 0."""
    return multilabel_margin_loss(self, target, reduction=_REDUCTIONS[reduction]), _belongs(self, target)


@composite(surface=0, reads_parts=True, samples="x(), x(2, 4), fb.tensor([[3, 0, -1, 1], [1, -1, 0, 2]]), 1, k(2, 4)")
def multilabel_margin_loss_backward(grad_output, self, target, reduction, is_target):
    """The gradient of `multilabel_margin_loss` by its input `self`."""
    how = _REDUCTIONS[reduction]
    return gradients_of(lambda x: multilabel_margin_loss(x, target, reduction=how), grad_output, (self,), (True,))[0]
