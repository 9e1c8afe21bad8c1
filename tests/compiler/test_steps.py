"""``mode="reduce-overhead"`` of whole training steps: forward, backward and the optimizer's step without the Python between."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as fb
from flambeau import nn
from flambeau.compiler import _scheduled
from flambeau.compiler._replay import STABLE_AFTER
from flambeau.nn import functional as F
from flambeau_kernels import hot_calls
from flambeau_kernels.engine.calls import launch_table
from unseen import counted, reader

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
    def step(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        steps.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        steps.step()
        return loss

    step, ran = counted(step)
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
    read = reader(factor)
    steps = sgd(model.parameters())

    def step(x: fb.Tensor) -> fb.Tensor:
        steps.zero_grad()
        loss = F.mse_loss(model(x) * read(), x)
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


@pytest.fixture
def tabled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The steps that were made, which become tables after a few calls."""
    made: list[Any] = []
    plain = _scheduled.ArrayStep.__init__

    def init(self: Any, *args: Any) -> None:
        plain(self, *args)
        made.append(self)

    monkeypatch.setattr(_scheduled.ArrayStep, "__init__", init)
    monkeypatch.setattr(_scheduled, "TABULATED_AT", (1, 3))
    has_products()
    return made


def deep() -> nn.Module:
    """Products of our own kernels, and a bias that is not of the last layer."""
    return nn.Sequential(nn.Linear(6, 96), nn.GELU(), nn.Linear(96, 64, bias=False), nn.Sigmoid(), nn.Linear(64, 6))


def has_products() -> bool:
    """Whether products of small matrices are builtins by now, see `hot_calls`."""
    hot_calls.engine_is_in_use()
    return hot_calls.linear.__class__ is type(len)


walks = pytest.mark.skipif(not launch_table.available(), reason="native code does not walk tables here")


@walks
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("make", [perceptron, Tangled, convolution, deep])
def test_steps_in_one_native_call_give_the_bits_of_eager_ones(make: Any, threads: int, tabled: list[Any]) -> None:
    before = fb.get_num_threads()
    fb.set_num_threads(threads)
    try:
        for optimizer in OPTIMIZERS[:3]:
            assert losses(make, optimizer, True)[0] == losses(make, optimizer, False)[0]
    finally:
        fb.set_num_threads(before)

    assert len(tabled) == 3
    assert all((step.table is None) is (make is Tangled) for step in tabled)
    if make is perceptron and has_products():         # sums of rows come to be native when they are called often
        assert all({*step.table.others} <= {"mse_loss: numpy's dot", "sum of a broadcast gradient"} for step in tabled)


@walks
def test_large_products_are_launches_of_a_step() -> None:
    net = nn.Sequential(nn.Linear(96, 128), nn.ReLU(), nn.Linear(128, 32))
    x, y, steps = fb.randn(160, 96), fb.randn(160, 32), sgd(net.parameters())

    def step(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        steps.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        return loss

    expected = step(x, y).item(), [p.grad.clone() for p in net.parameters()]
    compiled = fb.compile(step, mode="reduce-overhead")
    for _ in range(STABLE_AFTER + 2 + _scheduled.TABULATED_AT[0]):
        assert compiled(x, y).item() == expected[0]
        assert all(fb.equal(p.grad, g) for p, g in zip(net.parameters(), expected[1], strict=True))


def replace_storage(k: int, model: Any, steps: Any, found: Any) -> None:
    for p in model.parameters():
        p.data = p.data * 0.75 if k % 2 else p.data.clone()


def other_products(k: int, model: Any, steps: Any, found: Any) -> None:
    if k == STABLE_AFTER + 3:
        hot_calls.start_over()


def other_layout(k: int, model: Any, steps: Any, found: Any) -> None:
    if k == STABLE_AFTER + 3:
        p = next(model.parameters())
        p.data = p.data.t().contiguous().t()


@walks
@pytest.mark.parametrize("between", [replace_storage, other_products, other_layout, change_rate, add_hook, write_parameters, freeze])
def test_what_changes_between_steps_of_one_native_call_is_seen(between: Any, tabled: list[Any]) -> None:
    for optimizer in OPTIMIZERS[:3]:
        expected, _ = losses(perceptron, optimizer, False, between)
        assert losses(perceptron, optimizer, True, between)[0] == expected
    assert any(step.table is not None for step in tabled)


@walks
def test_an_explanation_says_what_of_a_step_runs_in_python(tabled: list[Any]) -> None:
    net = perceptron()
    steps = sgd(net.parameters())

    @fb.compile(mode="reduce-overhead")
    def step(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        steps.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        steps.step()
        return loss

    for _ in range(CALLS):
        step(fb.randn(4, 6), fb.randn(4, 6))
    (found,) = step.explain().replays

    assert found.calls == CALLS - STABLE_AFTER
    assert found.launches >= (8 if has_products() else 4)
    assert found.python[0] == "SGD.zero_grad()"
    assert found.python[-1] == "SGD.step()"
    assert "mse_loss: numpy's dot" in found.python
    assert "in Python: SGD.step()" in str(step.explain())
    assert "in Python: SGD.step()" in step.explain().html()


@walks
def test_steps_of_several_threads_keep_apart(tabled: list[Any]) -> None:
    w = fb.nn.Parameter(fb.randn(6, 6))
    inputs = [fb.randn(5, 6) for _ in range(4)]

    def loss_of(x: fb.Tensor) -> fb.Tensor:
        loss = F.linear(x, w).tanh().square().mean()
        loss.backward()
        return loss

    expected = [loss_of(x).item() for x in inputs]
    compiled = fb.compile(loss_of, mode="reduce-overhead")
    for x in inputs * 3:
        compiled(x)
    wrong: list[Any] = []

    def run(at: int) -> None:
        wrong.extend([at for _ in range(40) if compiled(inputs[at]).item() != expected[at]])

    threads = [threading.Thread(target=run, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong
    assert any(step.table is not None for step in tabled)
