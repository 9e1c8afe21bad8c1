"""Gradients of inputs first and of weights later are those of one backward."""

from __future__ import annotations

import pytest

import flambeau as fb
from flambeau import nn
from flambeau.autograd._halves import backward_to_inputs


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
