"""Gradients of inputs first and of weights later are those of one backward."""

from __future__ import annotations

import pytest

import flambeau as fb
from flambeau import nn
from flambeau.autograd._halves import backward_to_inputs
from flambeau.utils.checkpoint import checkpoint


class Odd(nn.Module):
    """Weights that are shared, reparametrized, split into several results, or reached without the input."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.scale = nn.Parameter(fb.rand(4))
        self.norm = nn.LayerNorm(4)
        self.lstm = nn.LSTM(4, 4, batch_first=True)

    def forward(self, x):
        weight = self.a.weight * self.scale
        h = fb.nn.functional.linear(self.a(x), weight).tanh()
        h = fb.nn.functional.linear(self.norm(h) + self.scale, weight)
        left, right = self.b(self.a(h)).split(2, dim=1)
        top, _ = fb.cat([left, right * 2], 1).topk(3, dim=1)
        h, _ = self.lstm(fb.cat([top, x[:, :1]], 1).unsqueeze(1))
        return h.squeeze(1), self.scale.exp()


def both(model, x, grads):
    mine, whole = x.clone().requires_grad_(), x.clone().requires_grad_()
    outputs = model(mine)
    found, rest = backward_to_inputs(outputs, grads, [mine])
    assert all(p.grad is None for p in model.parameters())
    assert mine.grad is None
    rest.run()
    halves = [p.grad for p in model.parameters()]
    model.zero_grad()
    fb.autograd.backward(model(whole), grads)
    return found[0], halves, whole.grad, [p.grad for p in model.parameters()], rest


def test_two_halves_of_a_backward_give_the_gradients_of_the_whole():
    fb.manual_seed(3)
    model, x = Odd(), fb.randn(5, 4)

    found, halves, expected, whole, rest = both(model, x, [fb.randn(5, 4), fb.randn(4)])

    assert fb.allclose(found, expected, atol=1e-6)
    for mine, theirs in zip(halves, whole, strict=True):
        assert fb.allclose(mine, theirs, atol=1e-5)
    with pytest.raises(RuntimeError, match="already"):
        rest.run()


def test_the_second_half_adds_to_gradients_and_calls_their_hooks_once():
    layer, x = nn.Linear(2, 2), fb.ones(3, 2).requires_grad_()
    calls = []
    layer.weight.register_post_accumulate_grad_hook(lambda p: calls.append(p.grad.clone()))
    layer.weight.grad = fb.ones(2, 2)
    out = layer(layer(x))
    _, rest = backward_to_inputs([out], [fb.ones(3, 2)], [x])

    rest.run()

    whole = nn.Linear(2, 2)
    whole.load_state_dict(layer.state_dict())
    whole(whole(x)).sum().backward()
    assert len(calls) == 1
    assert fb.allclose(layer.weight.grad, whole.weight.grad + 1)


def test_outputs_that_do_not_depend_on_the_inputs_wait_for_the_second_half():
    layer, x = nn.Linear(2, 2), fb.ones(1, 2).requires_grad_()
    found, rest = backward_to_inputs([layer(fb.ones(1, 2))], [fb.ones(1, 2)], [x])
    assert found == [None]
    assert layer.weight.grad is None

    rest.run()

    assert fb.equal(layer.weight.grad, fb.ones(2, 2))


class Cube(fb.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x**3 * weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return 3 * x**2 * weight * grad, (x**3 * grad).sum(0)


class Hooked(nn.Module):
    """Layers whose gradients hooks change, and a custom function."""

    def __init__(self, calls):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Parameter(fb.rand(4))
        self.calls = calls

    def forward(self, x):
        h = self.a(x)
        h.register_hook(lambda grad: self.calls.append("tensor") or grad * 3)
        h = self.b(h.tanh())
        h.grad_fn.register_prehook(lambda grads: (grads[0] * 2,))
        return (Cube.apply(h, self.c),)


class Saved(nn.Module):
    """Layers whose saved tensors are packed, and layers that are computed again."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))

    def forward(self, x):
        with fb.autograd.graph.saved_tensors_hooks(lambda t: t.numpy().copy(), lambda a: fb.from_numpy(a)):
            h = self.a(x).sigmoid()
        h = checkpoint(self.b, h, use_reentrant=False)
        return (checkpoint(self.b, h * 2, use_reentrant=False),)


class Usual(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        self.conv, self.norm = nn.Conv1d(5, 5, 3, padding=1), nn.BatchNorm1d(5)
        self.gru = nn.GRU(4, 4)

    def forward(self, x):
        h = self.norm(self.conv(self.layer(x.reshape(1, 5, 4))))
        return self.gru(h)[0].reshape(5, 4), self.norm.weight * h.mean()


@pytest.mark.parametrize("make", [lambda: Hooked([]), Saved, Usual], ids=["hooks", "saved", "layers"])
def test_two_halves_see_hooks_and_packed_values(make):
    fb.manual_seed(5)
    model, x = make(), fb.randn(5, 4)
    grads = [fb.randn(out.shape) for out in model(x)]

    found, halves, expected, whole, _ = both(model, x, grads)

    assert fb.allclose(found, expected, atol=1e-5)
    for mine, theirs in zip(halves, whole, strict=True):
        assert fb.allclose(mine, theirs, atol=1e-5)


def test_hooks_are_called_once():
    model, x = Hooked([]), fb.randn(5, 4).requires_grad_()

    _, rest = backward_to_inputs(model(x), [fb.ones(5, 4)], [x])
    rest.run()

    assert model.calls == ["tensor"]
