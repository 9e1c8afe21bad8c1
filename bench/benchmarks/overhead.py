"""The cost of a call: 4x4 operands, where nearly all time is dispatch.

    cd bench && asv run --python=same --quick        # the checkout that is installed here
    cd bench && asv continuous main~1 main           # two commits, each in an environment of its own

Every operation is timed for Flambeau and, where it is installed, for PyTorch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

Step = Callable[[], Any]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape, dtype=np.float32)


def pair(T: Any, grad: bool) -> tuple[Any, Any]:
    a, b = T.from_numpy(normal(4, 4)), T.from_numpy(normal(4, 4, seed=1))
    return a.requires_grad_(grad), b.requires_grad_(grad)


def add(T: Any, grad: bool) -> Step:
    a, b = pair(T, grad)
    return lambda: a + b


def mul_scalar(T: Any, grad: bool) -> Step:
    a, _ = pair(T, grad)
    return lambda: a * 2.0


def matmul(T: Any, grad: bool) -> Step:
    a, b = pair(T, grad)
    return lambda: a @ b


def view(T: Any, grad: bool) -> Step:
    a, _ = pair(T, grad)
    return lambda: a.view(2, 8)


def transpose(T: Any, grad: bool) -> Step:
    a, _ = pair(T, grad)
    return lambda: a.transpose(0, 1)


def index_int(T: Any, grad: bool) -> Step:
    a, _ = pair(T, grad)
    return lambda: a[1]


def index_slice(T: Any, grad: bool) -> Step:
    a, _ = pair(T, grad)
    return lambda: a[1:3, ::2]


def total(T: Any, grad: bool) -> Step:
    a, _ = pair(T, grad)
    return lambda: a.sum()


def item(T: Any, grad: bool) -> Step:
    a, _ = pair(T, grad)
    return lambda: a[0, 0].item()


def zeros(T: Any, grad: bool) -> Step:
    return lambda: T.zeros(4, 4, requires_grad=grad)


def cat(T: Any, grad: bool) -> Step:
    a, b = pair(T, grad)
    return lambda: T.cat([a, b], dim=1)


def add_inplace(T: Any, grad: bool) -> Step:
    # Without grad either way: a leaf that requires grad refuses to be overwritten.
    a, b = pair(T, False)
    b = b * 1e-6
    return lambda: a.add_(b)


def linear(T: Any, grad: bool) -> Step:
    layer, x = T.nn.Linear(4, 4), T.from_numpy(normal(4, 4))

    def step() -> Any:
        with T.set_grad_enabled(grad):
            return layer(x)

    return step


OPERATIONS = {
    "add": add,
    "mul_scalar": mul_scalar,
    "matmul": matmul,
    "view": view,
    "transpose": transpose,
    "index_int": index_int,
    "index_slice": index_slice,
    "sum": total,
    "item": item,
    "zeros": zeros,
    "cat": cat,
    "add_inplace": add_inplace,
    "linear": linear,
}


def chain_of_twenty(T: Any) -> Step:
    """Twenty operations forward, and back through all of them."""
    a, b = pair(T, True)

    def step() -> Any:
        a.grad = None
        x = a
        for _ in range(5):
            x = x * b
            x = x + 0.5
            x = x.tanh()
            x = x - b
        x.sum().backward()
        return a.grad

    return step


def tiny_mlp_step(T: Any) -> Step:
    """One training step of an 8-16-4 network on 16 samples."""
    nn = T.nn
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = T.optim.SGD(net.parameters(), lr=1e-3)
    labels = np.random.default_rng(0).integers(0, 4, 16, dtype=np.int64)
    x, y = T.from_numpy(normal(16, 8)), T.from_numpy(labels)

    def step() -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def adam_small(T: Any) -> Step:
    """Adam over a hundred parameters of 16 values."""
    parameters = [T.from_numpy(normal(16, seed=i)).requires_grad_() for i in range(100)]
    gradients = [T.from_numpy(normal(16, seed=1000 + i)) for i in range(100)]
    optimizer = T.optim.Adam(parameters, lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()

    return step


TRAINING = {"chain20": chain_of_twenty, "tiny_mlp": tiny_mlp_step, "adam_100x16": adam_small}


def framework(name: str) -> Any:
    """The package, or asv's sign for "not here"."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise NotImplementedError(f"{name} is not installed") from error


class Call:
    """One operation."""

    param_names = ("operation", "grad", "framework")
    params = (list(OPERATIONS), [False, True], ["flambeau", "torch"])

    def setup(self, operation: str, grad: bool, package: str) -> None:
        self.step = OPERATIONS[operation](framework(package), grad)
        self.step()

    def time_call(self, operation: str, grad: bool, package: str) -> None:
        self.step()


class Training:
    """Operations and gradients together, as a training loop has them."""

    param_names = ("loop", "framework")
    params = (list(TRAINING), ["flambeau", "torch"])

    def setup(self, loop: str, package: str) -> None:
        self.step = TRAINING[loop](framework(package))
        self.step()

    def time_step(self, loop: str, package: str) -> None:
        self.step()
