"""``mode="reduce-overhead"`` of whole training steps: forward, backward and the optimizer's step without the Python between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as fb
from flambeau import nn
from flambeau.compiler._replay import STABLE_AFTER
from flambeau.nn import functional as F

CALLS = STABLE_AFTER + 6


class Tangled(nn.Module):
    """Gradients arrive twice at nodes and at parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6, bias=False)
        self.scale = nn.Parameter(fb.ones(6))

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        h = self.first(x).tanh()
        h = h * self.scale + self.second(h) + self.first(h) * h
        return F.softmax(h, -1) + F.layer_norm(h, (6,), self.scale)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 6))


def convolution() -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 3, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(18, 6))


def sgd(p: Any) -> fb.optim.Optimizer:
    return fb.optim.SGD(p, 0.05)


OPTIMIZERS: list[Callable[[Any], fb.optim.Optimizer]] = [
    sgd, lambda p: fb.optim.SGD(p, 0.05, momentum=0.9), lambda p: fb.optim.AdamW(p, 0.01), lambda p: fb.optim.RMSprop(p, 0.01),
    lambda p: fb.optim.SGD(p, 0.05, foreach=False),
]  # fmt: skip


def losses(make: Any, optimizer: Any, compiled: bool, between: Any = None, **options: Any) -> tuple[list[Any], int]:
    """What some steps give: losses, gradients and parameters; and how often Python ran."""
    fb.manual_seed(0)
    model = make()
    steps = optimizer(model.parameters())
    ran: list[int] = []

    def step(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        ran.append(1)
        steps.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        steps.step()
        return loss

    called = fb.compile(step, **(options or {"mode": "reduce-overhead"})) if compiled else step
    found: list[Any] = []
    for k in range(CALLS):
        if between is not None:
            between(k, model, steps, found)
        loss = called(fb.randn(4, 6), fb.randn(4, 6))
        assert loss.requires_grad
        found += [loss.item(), loss.grad_fn.name(), *[p.grad.tolist() for p in model.parameters() if p.grad is not None]]
    return [*found, *[p.tolist() for p in model.parameters()]], len(ran)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("make", [perceptron, Tangled, convolution])
def test_replayed_steps_give_the_bits_of_eager_ones(make: Any, optimizer: Any) -> None:
    expected, _ = losses(make, optimizer, False)
    found, ran = losses(make, optimizer, True)

    assert found == expected
    # Momentum and means are made in the first step, by the same operations.
    assert ran == STABLE_AFTER


def change_rate(k: int, model: Any, steps: Any, found: Any) -> None:
    steps.param_groups[0]["lr"] = 0.1 / (k + 1)


def add_hook(k: int, model: Any, steps: Any, found: Any) -> None:
    if k == STABLE_AFTER + 2:
        next(model.parameters()).register_hook(lambda g: found.append(g.sum().item()) or g * 0.5)


def see_steps(k: int, model: Any, steps: Any, found: Any) -> None:
    if k == STABLE_AFTER + 2:
        steps.register_step_post_hook(lambda *args: found.append("stepped"))


def write_parameters(k: int, model: Any, steps: Any, found: Any) -> None:
    with fb.no_grad():
        next(model.parameters()).mul_(0.9)


def freeze(k: int, model: Any, steps: Any, found: Any) -> None:
    next(model.parameters()).requires_grad_(k != STABLE_AFTER + 2)


def load_state(k: int, model: Any, steps: Any, found: Any) -> None:
    if k == STABLE_AFTER + 1:
        found.append(model.state_dict())
        found[-1] = {name: p.clone() for name, p in found[-1].items()}
    if k == STABLE_AFTER + 3:
        at = next(i for i, x in enumerate(found) if isinstance(x, dict))
        model.load_state_dict(found.pop(at))


@pytest.mark.parametrize("between", [change_rate, add_hook, see_steps, write_parameters, freeze, load_state])
def test_what_changes_between_steps_is_seen(between: Any) -> None:
    for optimizer in OPTIMIZERS[:3]:
        expected, _ = losses(perceptron, optimizer, False, between)
        assert losses(perceptron, optimizer, True, between)[0] == expected


def test_gradients_add_up_where_a_step_forgets_none() -> None:
    def run(compiled: bool) -> list[Any]:
        fb.manual_seed(0)
        model = perceptron()

        def accumulate(x: fb.Tensor) -> fb.Tensor:
            loss = model(x).square().mean()
            loss.backward()
            return loss

        called = fb.compile(accumulate, mode="reduce-overhead") if compiled else accumulate
        return [called(fb.randn(3, 6)).item() for _ in range(CALLS)] + [p.grad.tolist() for p in model.parameters()]

    assert run(True) == run(False)


def test_a_replayed_loss_has_no_graph_left() -> None:
    model = perceptron()

    def step(x: fb.Tensor) -> fb.Tensor:
        loss = F.mse_loss(model(x), x)
        loss.backward()
        return loss

    called = fb.compile(step, mode="reduce-overhead")
    for _ in range(CALLS):
        loss = called(fb.randn(2, 6))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_a_step_that_also_clips_runs_in_python() -> None:
    def run(compiled: bool) -> list[Any]:
        fb.manual_seed(0)
        model = perceptron()
        steps = sgd(model.parameters())

        def step(x: fb.Tensor) -> fb.Tensor:
            steps.zero_grad()
            loss = F.mse_loss(model(x), x)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            steps.step()
            return loss

        called = fb.compile(step, mode="reduce-overhead") if compiled else step
        return [called(fb.randn(3, 6)).item() for _ in range(CALLS)]

    assert run(True) == run(False)


def test_verifying_a_step_changes_nothing() -> None:
    expected, _ = losses(perceptron, OPTIMIZERS[2], False)
    found, ran = losses(perceptron, OPTIMIZERS[2], True, options={"verify_every": 2})

    assert found == expected
    assert ran > STABLE_AFTER


def test_verifying_finds_a_step_that_depends_on_what_its_arguments_do_not_show() -> None:
    model, factor = perceptron(), [1.0]
    steps = sgd(model.parameters())

    def step(x: fb.Tensor) -> fb.Tensor:
        steps.zero_grad()
        loss = F.mse_loss(model(x) * factor[0], x)
        loss.backward()
        steps.step()
        return loss

    called = fb.compile(step, options={"verify_every": 2})
    for _ in range(CALLS):
        called(fb.ones(2, 6))
    factor[0] = 2.0

    def twice() -> None:
        called(fb.ones(2, 6))
        called(fb.ones(2, 6))

    with pytest.raises(RuntimeError, match="depends on something that its arguments do not show"):
        twice()


@pytest.mark.parametrize("same_object", [False, True])
def test_gradients_of_arguments_go_to_those_of_the_call(same_object: bool) -> None:
    model = perceptron()

    def step(x: fb.Tensor) -> fb.Tensor:
        loss = F.mse_loss(model(x), fb.ones_like(x)) if same_object else model(x).square().mean()
        loss.backward()
        return loss

    called = fb.compile(step, mode="reduce-overhead")
    one = fb.randn(2, 6, requires_grad=True)
    for _ in range(CALLS):
        x = one if same_object else fb.randn(2, 6, requires_grad=True)
        x.grad = None
        called(x)
        assert x.grad is not None
        found, x.grad = x.grad, None
        step(x)
        assert fb.equal(found, x.grad)
