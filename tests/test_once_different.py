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
    "views taken before their base requires grad join once the memory is written": """
BEGIN v.mul_(2); END; ((v * v).sum().backward(), x.grad)[1], v, v.grad_fn.name()
BEGIN x.mul_(2); END; ((v * v).sum().backward(), x.grad)[1], v, v.grad_fn.name()
BEGIN x.mul_(2); END; ((v[0] * v[1]).sum().backward(), x.grad)[1], v[0].grad_fn.next_functions[0][0].name()
BEGIN x.mul_(2); END; [(v * v).sum().backward() for _ in range(2)]; x.grad, v.is_leaf
BEGIN v.mul_(2); END; v.mul_(2)
BEGIN v.mul_(2); END; v.grad_fn; v.retain_grad(); (v * v).sum().backward(); v.grad, x.grad
BEGIN v.mul_(2); END; torch.autograd.grad(torch.autograd.grad((v * v * v).sum(), x, create_graph=True)[0].sum(), x)
BEGIN v.mul_(2); END; x.requires_grad_(False); v.requires_grad
BEGIN END; (v * v).sum().backward(); x.grad, v, v.grad_fn
BEGIN END; (v * 2).grad_fn.next_functions, v.retains_grad
BEGIN END; v.mul_(2)
BEGIN END; x.data.mul_(2); v.grad_fn, v.is_leaf
BEGIN v.mul_(2); END; pickle.loads(pickle.dumps(v)), copy.copy(v)
BEGIN v.mul_(2); END; copy.deepcopy(v)
BEGIN END; copy.deepcopy(v)
""".replace("BEGIN", "x = torch.arange(4.0); v = x.view(2, 2); x.requires_grad_(); g = torch.no_grad(); g.__enter__();")
    .replace("END", "g.__exit__(None, None, None)"),
    "noise of examples that share the input is drawn as PyTorch draws it": """
torch.func.jacfwd(lambda x: F.dropout(x, 0.5, training=True), randomness="different")(torch.ones(4))
torch.func.jacfwd(lambda x: F.dropout(x, 0.5, training=True), randomness="same")(torch.ones(4))
torch.func.jacfwd(lambda x: F.dropout1d(x, 0.5, training=True), randomness="different")(torch.ones(3, 2))
torch.func.jacfwd(lambda x: F.alpha_dropout(x, 0.5, training=True), randomness="different")(torch.ones(4))
torch.func.vmap(lambda y: F.dropout(torch.ones(4), 0.5) + y * 0, randomness="different")(torch.ones(4))
torch.func.vmap(lambda y: F.dropout(torch.ones(4), 0.5) + y * 0, randomness="same")(torch.ones(4))
torch.func.vmap(lambda y: F.dropout(torch.ones(4), 0.5) + y * 0)(torch.ones(4))
""",
    "linearize takes code that writes in place": """
y, f = torch.func.linearize(lambda x: x.clone().relu_().square_() * x, torch.tensor([0.5, 1.0, -2.0])); y, f(torch.arange(3.0))
y, f = torch.func.linearize(lambda x: (x * 2).square_().mul_(3).abs_(), torch.tensor([0.5, 1.0, -2.0])); y, f(torch.arange(3.0))
y, f = torch.func.linearize(lambda x: F.relu(x * 2, inplace=True).mul_(x).pow_(2), torch.ones(3)); y, f(torch.arange(3.0))
""",
    "functions run once where what they branch on is the same for all examples": """
SEEN torch.func.hessian(lambda x: (seen.append(1), (x**3).sum() if x.sum() > 0 else x.sum())[1])(torch.ones(3)), seen
SEEN torch.func.hessian(lambda x: (seen.append(1), (x**3).sum() * x.detach().max().item())[1])(torch.ones(3)), seen
SEEN torch.func.hessian(lambda x: (seen.append(1), (x[x > 1] ** 3).sum())[1])(torch.arange(3.0)), seen
SEEN torch.func.hessian(lambda x: (seen.append(1), (x**3).sum() * x.detach().tolist()[1])[1])(torch.arange(3.0)), seen
SEEN torch.func.hessian(lambda x: (seen.append(1), (x**3).sum() * x.nonzero().shape[0])[1])(torch.arange(3.0)), seen
SEEN f = lambda x: (seen.append(1), x.prod() if x.isnan().any() else x @ x)[1]; torch.func.jacfwd(torch.func.grad(f))(torch.ones(3)), seen
SEEN torch.func.vmap(torch.func.hessian(lambda x: (x**3).sum() if x.sum() > 0 else x.sum()))(torch.ones(2, 3)), seen
""".replace("SEEN", "seen = [];"),
    "memory of images of one channel": """
torch.ones(2, 1, 3, 4).to(memory_format=torch.channels_last)
torch.ones(1, 1, 3, 4).to(memory_format=torch.channels_last)
torch.ones(2, 3, 1, 1).to(memory_format=torch.channels_last)
torch.ones(2, 1, 1, 1).to(memory_format=torch.channels_last)
torch.ones(2, 1, 1, 4).to(memory_format=torch.channels_last)
torch.ones(2, 1, 3, 4, 5).to(memory_format=torch.channels_last_3d)
torch.ones(2, 1, 3, 4).contiguous(memory_format=torch.channels_last)
torch.ones(2, 1, 3, 4).to(memory_format=torch.channels_last).to(memory_format=torch.contiguous_format)
[torch.ones(4, 3, 1, 2).permute(3, 2, 1, 0).double().stride() for _ in range(300)][-1]
torch.ones(4, 3, 1, 2).permute(3, 2, 1, 0).double()
torch.ones(4, 3, 1, 2).permute(3, 2, 1, 0).clone(), torch.ones(4, 3, 1, 2).permute(3, 2, 1, 0) + 1
torch.empty_like(torch.ones(4, 3, 1, 2).permute(3, 2, 1, 0)).stride()
torch.nn.Conv2d(1, 2, 1).to(memory_format=torch.channels_last).weight.stride()
torch.nn.Conv2d(3, 2, 1).to(memory_format=torch.channels_last).weight.stride()
""",
    "tensors made of tensors pass gradients on": """
x = torch.ones(2, requires_grad=True); torch.Tensor(x).sum().backward(); x.grad
x = torch.ones(2, requires_grad=True); torch.Tensor(x).grad_fn.name()
x = torch.ones(2, requires_grad=True); y = type("S", (torch.Tensor,), {})(x); (y * 2).sum().backward(); type(y).__name__, y.is_leaf, x.grad
x = torch.ones(2, requires_grad=True); torch.FloatTensor(x * 2)
x = torch.ones(2); y = torch.Tensor(x); y.add_(1); x
""",
    "single values": """
torch.tensor(2).is_nonzero(), torch.tensor([0.0]).is_nonzero()
torch.ones(2).is_nonzero()
torch.ones(0).is_nonzero()
np.float32(1) in torch.arange(3), np.int64(7) in torch.arange(3), np.bool_(True) in torch.arange(3)
[1] in torch.arange(3)
""",
    "numbers indexed by bools": """
x = torch.tensor(5.0, requires_grad=True); y = x[True]; (y * y).sum().backward(); y, x.grad
x = torch.tensor(5.0, requires_grad=True); y = x[None, True]; y.sum().backward(); y, x.grad
x = torch.ones(2, requires_grad=True); y = x[..., None, None]; (y * y).sum().backward(); y.shape, x.grad
x = torch.tensor(5.0, requires_grad=True); y = x[torch.tensor(False)]; y.sum().backward(); y, x.grad
x = torch.tensor(5.0, requires_grad=True); y = x * 1; y[True] += 3.0; y.backward(); y, x.grad
x = torch.tensor(5.0, requires_grad=True); y = x * 1; y[True] *= 3.0; y.backward(); y, x.grad
x = torch.tensor(5.0); x[True] = torch.tensor(2); x
x = torch.arange(3.0); x[True] = torch.tensor([2, 3, 4]); x
x = torch.arange(3.0); x[False] = torch.tensor([2, 3]); x
x = torch.arange(3.0); x[False] = "a"; x
x = torch.arange(3.0); x[True, 0] = 7.0; x
""",
    "what is written around a view by as_strided has tangents that gradients pass through": "".join(
        f"f = lambda x: [y := x * x, {written}, y][-1]; X = torch.arange(9.0).view(3, 3) / 2 - 1; "
        "torch.func.jvp(torch.func.grad(lambda x: (f(x) ** 2).sum()), (X,), (X + 1,))\n"
        for written in (
            "y[1:].as_strided((2,), (2,), 0).mul_(3)",
            "y[1:].as_strided((2,), (2,), 0).mul_(x.sum())",
            "y[1:].as_strided((2,), (2,), 0).copy_(x[0, :2])",
            "y[1:].as_strided((2, 2), (2, 1), 0)[0].mul_(3)",
            "y[1:].as_strided((2,), (2,), 3).mul_(3)",
        )
    ),
}


@pytest.mark.oracle
@pytest.mark.parametrize("subject", PROGRAMS)
def test_programs_come_out_as_pytorchs(subject: str, oracle: Any) -> None:
    assert disagreements(oracle, PROGRAMS[subject]) == []
