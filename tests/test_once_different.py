"""Programs that once came out differently from PyTorch, by what they are about."""

from __future__ import annotations

from typing import Any

import pytest

from comparing import disagreements

PROGRAMS = {
    "refusals have PyTorch's types": """
~torch.ones(2)
~torch.ones(2, dtype=torch.complex64)
~torch.ones(0)
~torch.tensor([True, False]), ~torch.tensor(3)
torch.ones(2).bitwise_not()
torch.bitwise_not(torch.ones(2))
torch.sign(torch.ones(2, dtype=torch.complex64))
torch.kthvalue(torch.ones(2, dtype=torch.complex64), 1)
torch.mode(torch.ones(2, dtype=torch.complex64))
""",
    "parameters of norms of no elements have gradients of zero": """
w = torch.ones(3, requires_grad=True); F.batch_norm(torch.ones(2, 3, 0), None, None, w, w * 1, training=True).sum().backward(); w.grad
w = torch.ones(3, requires_grad=True); F.instance_norm(torch.ones(2, 3, 0), None, None, w, w * 1).sum().backward(); w.grad
x = torch.ones(2, 3, 0, requires_grad=True); F.instance_norm(x).sum().backward(); x.grad
m, v = torch.zeros(3), torch.ones(3); F.instance_norm(torch.ones(2, 3, 0), m, v); m, v
""",
    "parts of embedding bags": """
torch.ops.aten._embedding_bag(torch.arange(12.0).view(6, 2), torch.tensor([0, 1, 3]), torch.tensor([0, 2]))
torch.ops.aten._embedding_bag(torch.arange(12.0).view(6, 2).double(), torch.tensor([0, 1, 3]), torch.tensor([0, 2]))
torch.ops.aten._embedding_bag(torch.ones(6, 2), torch.tensor([0, 1, 3]), torch.tensor([0, 2, 3]), False, 0, False, None, True, 1)
torch.ops.aten._embedding_bag(torch.arange(12.0).view(6, 2), torch.tensor([0, 1, 3]), torch.tensor([0, 2]), False, 1)
torch.ops.aten._embedding_bag_forward_only(torch.ones(6, 2), torch.tensor([0, 1, 3]), torch.tensor([0, 2, 3]), False, 0, False, None, True)
torch.ops.aten._embedding_bag_forward_only(torch.arange(12.0).view(6, 2), torch.tensor([0, 1, 3]), torch.tensor([0, 2]), False, 2)
""",
    "dual tensors show their tangents": """
a = torch.autograd.forward_ad; a.enter_dual_level(); x = repr(a.make_dual(torch.arange(3.0), torch.ones(3)) * 2); a.exit_dual_level(); x
a = torch.autograd.forward_ad; a.enter_dual_level(); x = repr(a.make_dual(torch.tensor(1.0), torch.tensor(2.0))); a.exit_dual_level(); x
a = torch.autograd.forward_ad; a.enter_dual_level(); x = repr(torch.arange(3.0)); a.exit_dual_level(); x
a = torch.autograd.forward_ad; x = torch.ones(2, 2); a.enter_dual_level(); x = repr(a.make_dual(x, x * 1)); a.exit_dual_level(); x
""",
}


@pytest.mark.oracle
@pytest.mark.parametrize("subject", PROGRAMS)
def test_programs_come_out_as_pytorchs(subject: str, oracle: Any) -> None:
    assert disagreements(oracle, PROGRAMS[subject]) == []
