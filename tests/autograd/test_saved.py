"""What nodes keep for backward, under PyTorch's names: `grad_fn._saved_result` and its like."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fb
from comparing import disagreements


def test_nodes_show_what_they_saved(oracle: Any) -> None:
    setting = "x = torch.arange(12.0).reshape(3, 4).add_(1).requires_grad_(); y = x.detach().sqrt().requires_grad_(); "
    programs = """
    f = (x * y).grad_fn; f._saved_self, f._saved_other.shape
    f = x.exp().grad_fn; f._saved_result.shape
    f = x.sigmoid().grad_fn; f._saved_result.shape
    f = x.relu().grad_fn; f._saved_result
    f = x.sqrt().grad_fn; f._saved_result
    f = x.abs().grad_fn; f._saved_self
    f = torch.atan2(x, y).grad_fn; f._saved_self, f._saved_other
    f = (x / y).grad_fn; f._saved_other
    f = (x @ y.t()).grad_fn; f._saved_self, f._saved_mat2
    f = torch.bmm(x[None], y.t()[None]).grad_fn; f._saved_self, f._saved_mat2
    f = x.sum(1).grad_fn; f._saved_self_sym_sizes, f._saved_dim, f._saved_keepdim
    f = x.amax(1).grad_fn; f._saved_self, f._saved_result, f._saved_dim, f._saved_keepdim
    f = x.prod().grad_fn; f._saved_self, f._saved_result
    f = x.softmax(1).grad_fn; f._saved_dim
    f = x.log_softmax(1).grad_fn; f._saved_dim
    f = x.view(12).grad_fn; f._saved_self_sym_sizes
    f = x[0].grad_fn; f._saved_self_sym_sizes
    f = x[:1].expand(3, 4).grad_fn; f._saved_self_sym_sizes
    f = x.gather(1, torch.zeros(3, 1, dtype=torch.int64)).grad_fn; f._saved_dim, f._saved_index
    f = x.masked_fill(x > 2, 0).grad_fn; f._saved_mask
    f = torch.where(x > 2, x, y).grad_fn; f._saved_condition
    f = torch.nn.functional.conv2d(x[None], y[None, None, :, :2]).grad_fn; f._saved_stride, f._saved_padding, f._saved_groups
    x.exp().grad_fn._saved_nothing
    z = x.exp(); z.sum().backward(); z.grad_fn._saved_result
    z = x.exp(); f = (z * 1).exp().grad_fn; f._saved_result.shape
    '_saved_result' in dir(x.exp().grad_fn), '_saved_self' in dir((x * y).grad_fn)
    """

    assert not disagreements(oracle, "\n".join(setting + line.strip() for line in programs.splitlines() if line.strip()))


def test_what_was_overwritten_is_not_shown() -> None:
    x = fb.ones(3, requires_grad=True)
    y = x.exp()
    z = y.sin()
    y.add_(1)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        _ = z.grad_fn._saved_self
