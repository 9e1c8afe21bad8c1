"""A training step is wholly seen by a dispatch mode: what it saw, run again on copies of the first state, ends in the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as fb
from flambeau import nn
from flambeau._subclasses import FakeTensorMode
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.utils._python_dispatch import TorchDispatchMode
from flambeau.utils._pytree import tree_leaves, tree_map


def place(x: Any) -> Any:
    """Equal for tensors that are the same elements of memory."""
    a = x._array
    return a.__array_interface__["data"][0], a.shape, a.strides, a.dtype


class Recording(TorchDispatchMode):
    """Keeps each operator with its arguments and results."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, result))
        return result

    def replay(self, state: dict[Any, Any]) -> int:
        """Run what was recorded on the tensors of `state`, by place in memory of those they stand for. Returns: tensors not found."""
        unknown = 0

        def stands_for(x: Any) -> Any:
            nonlocal unknown
            if not isinstance(x, fb.Tensor):
                return x
            if place(x) not in state:
                unknown += 1
                state[place(x)] = x.detach().clone()
            return state[place(x)]

        with fb.no_grad():
            for func, args, kwargs, result in self.calls:
                args, kwargs = tree_map(stands_for, (args, kwargs))
                made = func(*args, **kwargs)
                pairs = zip(tree_leaves(result), tree_leaves(made), strict=True)
                state |= {place(old): new for old, new in pairs if isinstance(old, fb.Tensor)}
        return unknown


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.3), nn.Flatten(), nn.Linear(64, 5)
        )

    def forward(self, x: Any) -> Any:
        return self.body(x.view(-1, 1, 8, 8))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.layer = nn.Linear(8, 16), nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.out = nn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        return self.out(self.layer(self.into(x.view(-1, 8, 8))).mean(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.out = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        return self.out(self.body(x.view(-1, 8, 8))[0][:, -1])


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 5))


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: fb.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "Adam": lambda p: fb.optim.Adam(p, 0.01),
    "AdamW": lambda p: fb.optim.AdamW(p, 0.01, amsgrad=True),
    "RMSprop": lambda p: fb.optim.RMSprop(p, 0.01, centered=True),
    "Adagrad": lambda p: fb.optim.Adagrad(p, 0.01),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", [perceptron, Classifier, Transformer, Recurrent])
def test_a_training_step_run_from_its_recording_gives_the_same_bits(model: Any, optimizer: str) -> None:
    fb.manual_seed(0)
    net = model()
    steps = OPTIMIZERS[optimizer](net.parameters())
    made = [x for entry in steps.state.values() for x in entry.values()]
    inputs = [*net.parameters(), *net.buffers(), *made]
    state = {place(x): x.detach().clone() for x in inputs}
    draws = fb.get_rng_state()

    with Recording() as recording:
        data, target = fb.randn(6, 64), fb.randint(0, 5, (6,))
        for _ in range(2):
            steps.zero_grad()
            nn.functional.cross_entropy(net(data), target).backward()
            steps.step()
    fb.set_rng_state(draws)
    unknown = recording.replay(state)

    assert unknown == 0
    for trained in (*net.parameters(), *net.buffers()):
        fb.testing.assert_close(state[place(trained)], trained.detach(), rtol=0, atol=0)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", [perceptron, Classifier, Transformer, Recurrent])
def test_a_training_step_without_values_gives_all_shapes_and_dtypes(model: Any, optimizer: str) -> None:
    def looks_after_steps() -> list[Any]:
        net = model()
        steps = OPTIMIZERS[optimizer](net.parameters())
        data, target = fb.randn(6, 64), fb.randint(0, 5, (6,))
        with Recording() as recording:
            for _ in range(2):
                steps.zero_grad()
                loss = nn.functional.cross_entropy(net(data), target)
                loss.backward()
                steps.step()
        assert len(recording.calls) > 200
        kept = [x for entry in steps.state.values() for x in entry.values() if isinstance(x, fb.Tensor)]
        ends = [loss, *net.parameters(), *net.buffers(), *[p.grad for p in net.parameters()], *kept]
        return [(x.shape, x.dtype, x.stride(), x.requires_grad) for x in ends]

    expected = looks_after_steps()
    with fb.device("meta"):
        assert looks_after_steps() == expected
    with FakeTensorMode():
        assert looks_after_steps() == expected


@pytest.mark.parametrize("model", [perceptron, Classifier, Transformer, Recurrent])
def test_a_step_that_is_seen_computes_what_one_does_that_is_not(model: Any) -> None:
    trained = []
    for seen in (False, True):
        fb.manual_seed(0)
        net = model()
        # Adam would turn the rounding of gradients that are zero, such as a bias's before a normalization, into steps.
        steps = fb.optim.SGD(net.parameters(), 0.1)
        data, target = fb.randn(6, 64), fb.randint(0, 5, (6,))
        mode = Recording()
        for _ in range(2):
            if seen:
                mode.__enter__()
            steps.zero_grad()
            nn.functional.cross_entropy(net(data), target).backward()
            steps.step()
            if seen:
                mode.__exit__(None, None, None)
        trained.append([x.detach() for x in (*net.parameters(), *net.buffers())])

    for plain, watched in zip(*trained, strict=True):
        fb.testing.assert_close(watched, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["eigvalsh", "eigvals", "svdvals"])
def test_values_of_a_factorization_have_the_same_bits_when_recorded(name):
    x = fb.rand(5, 5, generator=fb.Generator().manual_seed(0))

    def f(x):
        return getattr(fb.linalg, name)(x + x.mT)

    assert fb.equal(make_fx(f)(x)(x), f(x))
    assert fb.autograd.gradcheck(make_fx(lambda a: f(a).abs().sum())(x.double()), (x.double().requires_grad_(),))
