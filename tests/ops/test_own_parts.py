"""Operands that share memory with what is written: parts of the tensor itself, tensors beside it, and what PyTorch refuses."""

from __future__ import annotations

from typing import Any

from comparing import disagreements

START = "x = torch.arange(12.0).reshape(3, 4); "


def agree(oracle: Any, programs: str) -> None:
    lines = [START + line.strip() for line in programs.splitlines() if line.strip()]
    assert not disagreements(oracle, "\n".join(lines))


def test_a_part_of_the_tensor_itself_may_be_assigned_to_it(oracle: Any) -> None:
    agree(oracle, """
        x[0] = x[0][2]; x
        x[:] = x[1]; x
        x[...] = x[2, 3]; x
        x[:, 1:] = x[:, :1]; x
        x[None, ...] = x; x
        x[1] = x[1:2]; x
        x.t()[:] = x[:, 1:2].t()[0, 0]; x
        x.fill_(x[2, 1]); x
        y = x[0]; y.fill_(y[1]); x
        x[0, 0] = x; x
        x.copy_(x[1]); x
        x[1:] = x[:-1]; x
    """)


def test_gradients_of_a_part_assigned_to_the_whole(oracle: Any) -> None:
    agree(oracle, """
        x.requires_grad_(); y = x * 2; y[:] = y[1]; (y**2).sum().backward(); x.grad.tolist()
        x.requires_grad_(); y = x * 2; y[0] = y[0][2]; (y**2).sum().backward(); x.grad.tolist()
        x.requires_grad_(); y = x * 2; y.fill_(y[2, 1]); (y**2).sum().backward(); x.grad.tolist()
    """)
