"""What dispatch modes see of a program: PyTorch's operators, with the arguments that their schemas have."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import flambeau as fb
from flambeau import _aten
from flambeau.ops import _derive
from flambeau.ops._spec import OPS
from flambeau.utils._python_dispatch import BaseTorchDispatchMode, TorchDispatchMode

_derive.load_all()

# Programs of `x` (4, 4), `b` (2, 4, 4), `i` a (2, 2, 4, 4) image, `n` (4, 4) int64, `y` (4, 4) that requires grad, in which both
# libraries see the same.
SAME = """
x + x
x + 2
torch.add(x, x, alpha=3)
1 - x
x - 1
x / 2
x * x
x > 2
x == x
x ** 2
2 ** x
x @ x
x @ x[0]
F.softmax(x, -1)
F.log_softmax(x, -1)
x.clamp(0, 1)
torch.clamp(x, min=x)
x[1:3, 0]
x[None, 1:]
x[..., 0]
x.t()
x.view(2, 8)
x.reshape(-1)
b.permute(2, 0, 1)
b.transpose(1, 2)
x.unsqueeze(0)
x[None].squeeze(0)
x.expand(3, 4, 4)
x.to(torch.float64)
x.clone()
x.t().contiguous()
x.clone().add_(1)
x.clone().mul_(x)
x.clone().copy_(x)
x.sum()
x.sum(1, keepdim=True)
x.mean()
x.mean(0)
x.var(0)
x.std()
x.max()
x.max(1)
x.amax(1)
x.argmax(1)
x.prod()
torch.cat([x, x])
torch.stack([x, x])
x.split([1, 3])
F.conv2d(i, i)
F.conv2d(i, i, stride=2, padding=1)
F.gelu(x)
F.gelu(x, approximate='tanh')
F.relu(x)
F.silu(x)
F.mse_loss(x, x)
F.mse_loss(x, x, reduction='sum')
F.avg_pool2d(i, 2)
F.pad(x, (1, 1))
x.masked_fill(x > 0, 0)
x.gather(1, n)
x.scatter(1, n, x)
x.index_select(0, n[0])
x.cumsum(0)
x.sort()
x.topk(2)
x.tril()
x.norm()
torch.linalg.norm(x)
torch.linalg.qr(x)
torch.where(x > 0, x, x)
x.detach()
x.neg()
x.abs()
torch.bmm(b, b)
torch.addmm(x, x, x)
x.flip(0)
x.roll(1, 0)
"""


class Seen(TorchDispatchMode):
    """Notes the operators and passes on."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.calls: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        self.calls.append((func, args, kwargs))
        return func(*args, **(kwargs or {}))


def operands(lib: Any) -> dict[str, Any]:
    drawn = np.random.default_rng(0)
    x, b, i = (lib.from_numpy(drawn.standard_normal(s).astype(np.float32)) for s in ((4, 4), (2, 4, 4), (2, 2, 4, 4)))
    n = lib.from_numpy(drawn.integers(0, 4, (4, 4)))
    return {"torch": lib, "F": lib.nn.functional, "x": x, "b": b, "i": i, "n": n, "y": x.clone().requires_grad_(True)}


def seen(lib: Any, program: str) -> list[str]:
    mode = importlib.import_module(f"{lib.__name__}.utils._python_dispatch").TorchDispatchMode
    names: list[str] = []

    class Names(mode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append(str(func))
            return func(*args, **(kwargs or {}))

    scope = operands(lib)
    with Names():
        eval(program, scope)
    return names


def test_modes_see_the_operators_that_pytorch_shows(oracle: Any) -> None:
    programs = SAME.split("\n")[1:-1]
    differing = [f"{p}: {ours} {theirs}" for p in programs if (ours := seen(fb, p)) != (theirs := seen(oracle, p))]

    assert not differing


@pytest.mark.parametrize("program", SAME.split("\n")[1:-1])
def test_operators_called_with_what_a_mode_is_given_give_the_same_bits(program: str) -> None:
    plain = eval(program, operands(fb))
    with BaseTorchDispatchMode():
        passed_on = eval(program, operands(fb))

    fb.testing.assert_close(passed_on, plain, rtol=0, atol=0)


def test_backward_is_seen_as_operators() -> None:
    scope = operands(fb)
    with Seen() as mode:
        eval("F.softmax(y @ x, 1).square().sum().backward()", scope)

    assert {"aten.mm.default", "aten._softmax.default", "aten.mul.Tensor", "aten.sum.default"} <= set(mode.names)
    assert not [n for n in mode.names if n.startswith("prims.")]


def test_arguments_that_have_their_defaults_are_left_out() -> None:
    x = fb.ones(2, 3)
    with Seen() as mode:
        fb.add(x, x, alpha=1)
        x.sum(1)
        x.sum((0, 1), True)

    assert [(args[1:], kwargs) for _, args, kwargs in mode.calls[:1]] == [((x,), {})]
    assert [(args[1:], kwargs) for _, args, kwargs in mode.calls[1:]] == [(([1],), {}), (([0, 1], True), {})]


def test_operators_have_the_schemas_that_programs_look_at() -> None:
    assert str(fb.ops.aten.add.Tensor._schema) == "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
    assert fb.ops.aten.add_.Tensor._schema.is_mutable
    assert not fb.ops.aten.add.Tensor._schema.is_mutable
    with pytest.raises(AttributeError, match="no overload name 'wrong'"):
        fb.ops.aten.add.wrong  # noqa: B018


def test_every_schema_of_the_index_can_be_read() -> None:
    for name, overloads in _aten.index().items():
        for overload, text in overloads.items():
            if "__torch__" not in text:  # classes of C++
                assert _aten.schema(name, overload).overload_name == overload.replace("default", "")


@pytest.mark.parametrize("name", sorted(key for key, op in OPS.items() if op.operator))
def test_the_operator_that_a_declaration_names_is_one(name: str) -> None:
    op = OPS[name]
    for found, _ in _aten._names(op, False):
        assert found in _aten.index() or f"{found}_" in _aten.index()
