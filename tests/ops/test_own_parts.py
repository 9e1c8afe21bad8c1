"""Operands that share memory with what is written: parts of the tensor itself, tensors beside it, and what PyTorch refuses."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import flambeau as fb
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


# -- what PyTorch refuses --------------------------------------------------------------------------------------------------

TARGETS = {
    "dense": "m[10:26].view(4, 4)",
    "gappy": "m[8:40].view(4, 8)[:, 2:6]",
    "turned": "m[10:26].view(4, 4).t()",
    "vector": "m[10:14]",
}
OPERANDS = ("x", "x.view_as(x)", "x.detach()", "x.data", "x[1]", "x[1:2]", "x.flatten()[2]", "x.t()", "x[None]", "m[11:27].view(4, 4)",
            "m[11:15]", "m[30:46].view(4, 4)", "m[50]", "m[10:26:4]")  # fmt: skip
OF_FLOATS = """
    x.add_(o)
    x.pow_(o)
    x.div_(o)
    x /= o
    x.div_(o, rounding_mode="floor")
    x.float_power_(o)
    x.heaviside_(o)
    x.copy_(o)
    x[...] = o
    x[0] = o
    x.fill_(o)
    x.lerp_(o, 0.5)
    x.lerp_(torch.ones_like(x), o)
    x.addcmul_(o, torch.ones_like(x))
    x.clamp_(o)
    x.clamp_(max=o)
    x.ldexp_(o)
    x.masked_fill_(torch.ones(x.shape, dtype=torch.bool), o)
    x[torch.ones(x.shape, dtype=torch.bool)] = o
    x[torch.tensor([0, 1])] = o
    x.index_put_((torch.tensor([0, 1]),), o)
    x.index_put_((torch.tensor([0, 1]),), o, accumulate=True)
    x.index_add_(0, torch.arange(o.shape[0]), o)
    x.index_copy_(0, torch.arange(o.shape[0]), o)
    x.index_reduce_(0, torch.arange(o.shape[0]), o, "amax")
    x.scatter_(0, torch.zeros(o.shape, dtype=torch.int64), o)
    x.scatter_(0, torch.zeros(o.shape, dtype=torch.int64), o, reduce="add")
    x.scatter_add_(0, torch.zeros(o.shape, dtype=torch.int64), o)
    x.scatter_reduce_(0, torch.zeros(o.shape, dtype=torch.int64), o, "sum")
    x.put_(torch.zeros(o.shape, dtype=torch.int64), o)
    x.addr_(o, torch.ones(4))
    x.addmm_(o, torch.eye(4))
    torch.where(torch.ones(x.shape, dtype=torch.bool), o, x, out=x)
"""
OF_INTEGERS = """
    x.bitwise_and_(o)
    x[o] = 1
    x.index_put_((o,), torch.tensor(1))
    x.index_fill_(0, o, 1)
    x.scatter_(0, o, 1)
    x.scatter_(0, o, torch.ones(o.shape, dtype=torch.int64))
    x.scatter_add_(0, o, torch.ones(o.shape, dtype=torch.int64))
    x.put_(o, torch.ones(o.shape, dtype=torch.int64))
"""
OF_BOOLEANS = """
    x.logical_xor_(o)
    x.masked_fill_(o, True)
    x[o] = True
"""
REFUSED = "single memory location"
# Here PyTorch compares row by row, and rows are without gaps.
BY_ROWS = ("gappy", "m[11:27].view(4, 4)", "x.index_reduce_")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["float32", "int64", "bool"])
def test_operands_in_the_memory_that_is_written_are_refused_where_pytorch_refuses_them(oracle: Any, kind: str, target: str) -> None:
    """Where PyTorch takes them its result may depend on the order in which it goes through them, so values are not compared."""
    wrong = []
    for line in {"float32": OF_FLOATS, "int64": OF_INTEGERS, "bool": OF_BOOLEANS}[kind].split("\n"):
        for operand in OPERANDS:
            if (target, operand) == BY_ROWS[:2] and line.strip().startswith(BY_ROWS[2]):
                continue
            theirs, ours = (refusal(lib, kind, target, operand, line.strip()) for lib in (oracle, fb))
            if (REFUSED in theirs) is not (REFUSED in ours) and (not theirs or not ours):
                wrong.append(f"{line.strip()} with o = {operand}: PyTorch {theirs[:60]!r}, Flambeau {ours[:60]!r}")

    assert not wrong


def refusal(lib: Any, kind: str, target: str, operand: str, line: str) -> str:
    """What the error of `line` says; nothing where there is none."""
    names = {"torch": lib, "m": (lib.arange(60) % 3).to(getattr(lib, kind))}
    try:
        exec(f"x = {TARGETS[target]}; o = {operand}", names)
    except (RuntimeError, IndexError):  # no such operand of this target
        return "none"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(line, names)
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        return str(error) or type(error).__name__
    return ""


def test_a_tensor_without_elements_is_not_written_by_itself_either(oracle):
    programs = """
    x = torch.zeros(0); x[x > 1] = x
    x = torch.zeros(0); x[...] = x; x.shape
    x = torch.zeros(0, 0); torch.mm(x, x, out=x)
    x = torch.zeros(0); torch.cat([x, x], out=x).shape
    y = (torch.zeros(3, dtype=torch.complex128, requires_grad=True) * 1).split(1)[0]; y.clamp_(-1, 1)
    x = torch.zeros(2, 3); x[torch.tensor(0)] = 1 << 70
    """

    assert not disagreements(oracle, programs)
