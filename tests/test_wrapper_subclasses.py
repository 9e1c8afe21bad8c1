"""Wrapper subclasses: tensors without memory whose class answers every op by `__torch_dispatch__`."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import flambeau as fb

# Programs of `x` (2, 3), a wrapper; whatever they give is one too. In the second list both libraries ask the class for the same.
RESULTS = """
x.split(1)[0]
F.linear(x, x)
F.layer_norm(x, (3,))
F.dropout(x, 0.5)
x.detach()
x.reshape(3, 2)
F.cross_entropy(x, torch.tensor([0, 2]))
torch.zeros_like(x)
x.new_zeros(2)
x.fill_(1.0)
x.normal_()
"""
CALLS = """
x + 1
1 - x
x * torch.ones(3)
x @ x.t()
F.softmax(x, 1)
x.sum()
x.mean(0)
x.view(6)
x.t()
x[0]
x[0, 1:]
x.clamp(0, 1)
torch.zeros_like(x)
x.new_zeros(2)
x.add_(1)
torch.cat([x, x])
x.to(torch.float64)
x.clone()
x.var(0)
x.max(1)
F.gelu(x)
x == x
x.sum().item()
x.fill_(1.0)
x.normal_()
torch.where(x > 0, x, x)
x.unsqueeze(0)
x.cumsum(1)
"""
# Functions whose gradients pass through the class.
DERIVED = """
F.softmax(x, 1)
F.log_softmax(x, 1)
F.layer_norm(x, (3,))
F.gelu(x)
F.relu(x)
F.cross_entropy(x, torch.tensor([0, 2]))
x.var(1)
x[0, 1:]
x.split([1, 2], 1)[1]
torch.cat([x, x])
x.max(1)[0]
x.amax(1)
x.mean(0)
x * x
x / 3
x ** 3
x.reshape(3, 2).t()
torch.where(x.detach() > 0, x, 0)
x.cumsum(0)
x.norm()
F.max_pool1d(x[None], 2)
F.conv1d(x[None], torch.ones(2, 2, 2))
F.linear(x, torch.ones(2, 3), torch.ones(2))
F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None])
F.embedding(torch.tensor([0, 1]), x)
x @ x.t()
"""


def lines(programs: str) -> list[str]:
    return programs.split("\n")[1:-1]


def wrapper(lib: Any) -> Any:
    """A class that holds another tensor, does to it what it is asked, and notes what that was."""
    tree_map = importlib.import_module(f"{lib.__name__}.utils._pytree").tree_map

    class Holding(lib.Tensor):  # pyright: ignore[reportUntypedBaseClass]  # of either library
        asked: list[str] = []

        @staticmethod
        def __new__(cls, inner, requires_grad=False):
            return lib.Tensor._make_wrapper_subclass(
                cls, inner.shape, dtype=inner.dtype, device=inner.device, strides=inner.stride(), requires_grad=requires_grad
            )

        def __init__(self, inner, requires_grad=False):
            self.inner = inner

        __torch_function__ = lib._C._disabled_torch_function_impl

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            cls.asked.append(str(func))
            args, kwargs = tree_map(lambda x: x.inner if isinstance(x, cls) else x, (args, kwargs or {}))
            return tree_map(lambda x: cls(x) if isinstance(x, lib.Tensor) else x, func(*args, **kwargs))

    return Holding


def values(lib: Any) -> Any:
    return lib.tensor([[0.1, 0.5, -0.3], [0.7, -0.2, 0.4]])


def test_a_wrapper_has_the_shape_dtype_and_device_that_it_was_made_with() -> None:
    x = wrapper(fb)(values(fb).t())

    assert (tuple(x.shape), x.dtype, str(x.device), x.stride(), x.storage_offset()) == ((3, 2), fb.float32, "cpu", (1, 3), 0)
    assert not x.is_meta
    assert not x.requires_grad
    assert x.is_leaf


@pytest.mark.parametrize("program", lines(RESULTS) + lines(CALLS))
def test_results_are_wrappers_of_what_the_plain_program_gives(program: str) -> None:
    cls = wrapper(fb)
    scope = {"torch": fb, "F": fb.nn.functional}
    fb.manual_seed(0)
    plain = eval(program, {**scope, "x": values(fb)})
    fb.manual_seed(0)
    made = eval(program, {**scope, "x": cls(values(fb))})

    unwrapped = fb.utils._pytree.tree_map(lambda x: x.inner if isinstance(x, cls) else x, made)
    fb.testing.assert_close(unwrapped, plain, rtol=0, atol=0)
    assert cls.asked or "detach" in program


@pytest.mark.parametrize("program", lines(CALLS))
def test_classes_are_asked_for_pytorchs_operators(program: str, oracle: Any) -> None:
    asked = []
    for lib in (fb, oracle):
        cls = wrapper(lib)
        eval(program, {"torch": lib, "F": lib.nn.functional, "x": cls(values(lib))})
        asked.append(cls.asked)

    assert asked[0] == asked[1]


@pytest.mark.parametrize("program", lines(DERIVED))
def test_gradients_pass_through_the_class(program: str) -> None:
    cls = wrapper(fb)
    scope = {"torch": fb, "F": fb.nn.functional}
    plain, wrapped = values(fb).requires_grad_(True), cls(values(fb), requires_grad=True)
    eval(program, {**scope, "x": plain}).exp().sum().backward()
    result = eval(program, {**scope, "x": wrapped})
    result.exp().sum().backward()

    assert type(result) is type(wrapped.grad) is cls
    assert result.grad_fn is not None
    fb.testing.assert_close(wrapped.grad.inner, plain.grad)


def test_second_derivatives_pass_through_the_class() -> None:
    cls = wrapper(fb)
    x = cls(values(fb), requires_grad=True)
    first = fb.autograd.grad((x**3).sum(), x, create_graph=True)[0]
    second = fb.autograd.grad(first.sum(), x)[0]

    fb.testing.assert_close(second.inner, 6 * values(fb))


def test_modules_train_on_wrappers() -> None:
    cls = wrapper(fb)
    fb.manual_seed(0)
    net = fb.nn.Linear(3, 2)
    plain = [p.detach().clone().requires_grad_(True) for p in net.parameters()]
    net.weight = fb.nn.Parameter(cls(net.weight.detach().clone()))
    held = net.weight.inner
    for _ in range(2):
        loss = net(values(fb)).square().sum()
        loss.backward()
        with fb.no_grad():
            for p in net.parameters():
                p.sub_(p.grad, alpha=0.1)
                p.grad = None
        fb.nn.functional.linear(values(fb), *plain).square().sum().backward()
        with fb.no_grad():
            for p in plain:
                p.sub_(p.grad, alpha=0.1)
                p.grad = None

    assert isinstance(net.weight, cls)
    assert isinstance(net.weight, fb.nn.Parameter)
    fb.testing.assert_close(held, plain[0].detach())
    fb.testing.assert_close(net.bias.detach(), plain[1].detach())


def test_a_class_that_answers_nothing_is_named() -> None:
    class Silent(fb.Tensor):
        __torch_function__ = fb._C._disabled_torch_function_impl

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    x = Silent._make_wrapper_subclass(Silent, (2,))

    with pytest.raises(TypeError, match=r"aten\.add\.Tensor.*Silent"):
        x + 1


def test_a_wrapper_needs_a_class_that_answers() -> None:
    class Mute(fb.Tensor):
        pass

    with pytest.raises(RuntimeError, match="Mute must define __torch_dispatch__"):
        fb.Tensor._make_wrapper_subclass(Mute, (2,))


def test_recorded_wrappers_are_not_written_in_place() -> None:
    x = wrapper(fb)(values(fb), requires_grad=True) * 1

    with pytest.raises(NotImplementedError, match="in place is not built for recorded operands of Holding"):
        x.add_(1)
