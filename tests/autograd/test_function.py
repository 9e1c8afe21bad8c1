"""Custom `autograd.Function`s that do unusual things, and hooks that return what they should not."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fb


def function(forward: Any, backward: Any) -> Any:
    """A Function of the two."""
    return type("Custom", (fb.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def backward_of(result: Any) -> Any:
    """The gradient that reaches the argument of a Function whose backward returns `result`."""
    x = fb.ones(2, requires_grad=True)
    function(lambda ctx, x: x * 2, lambda ctx, grad: result).apply(x).sum().backward()
    return x.grad


def test_what_is_marked_dirty_must_be_returned() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        x.add_(1)
        ctx.mark_dirty(x)
        return x.clone()

    with pytest.raises(RuntimeError, match="dirty"):
        function(forward, lambda ctx, grad: grad).apply(fb.ones(2, requires_grad=True) * 1)


def test_results_that_are_no_tensors_get_no_gradient() -> None:
    arrived: list[Any] = []

    def backward(ctx: Any, *grads: Any) -> Any:
        arrived.extend(grads)
        return grads[0]

    x = fb.ones(2, requires_grad=True)
    first, *_ = function(lambda ctx, x: (x * 2, 5, None), backward).apply(x)
    first.sum().backward()

    assert arrived[0].tolist() == [1, 1]
    assert arrived[1:] == [None, None]


@pytest.mark.parametrize("result", [fb.ones(1), fb.ones(3), "a", (fb.ones(2), fb.ones(2))], ids=["small", "large", "str", "two"])
def test_a_gradient_that_cannot_be_the_arguments_is_refused(result: Any) -> None:
    with pytest.raises(RuntimeError, match="Custom"):
        backward_of(result)


def test_a_gradient_that_was_broadcast_is_summed() -> None:
    assert backward_of(fb.ones(3, 2)).tolist() == [3, 3]


@pytest.mark.parametrize("forward", [lambda ctx, x: x.view(-1), lambda ctx, x: x], ids=["view", "same"])
def test_writing_to_a_view_that_a_function_returned_is_refused(forward: Any) -> None:
    made = function(forward, lambda ctx, grad: grad.view(2, 2)).apply(fb.ones(2, 2, requires_grad=True) * 1)

    assert made._is_view()
    with pytest.raises(RuntimeError, match=r"CustomBackward is a view.*clone"):
        made.mul_(2)


@pytest.mark.parametrize("hook", [lambda g: g[:1], lambda g: g.double()], ids=["size", "type"])
def test_a_hook_may_not_change_the_size_or_type_of_a_gradient(hook: Any) -> None:
    x = fb.ones(3, requires_grad=True)
    x.register_hook(hook)

    with pytest.raises(RuntimeError, match="has changed the"):
        (x * 1).sum().backward()


@pytest.mark.parametrize("given", [(), (5,)])
def test_setup_context_gets_the_defaults_of_forward(given: Any) -> None:
    class Scaled(fb.autograd.Function):
        @staticmethod
        def forward(x: Any, factor: float = 3, shift: float = 1) -> Any:
            return x * factor + shift

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            _, ctx.factor, ctx.shift = inputs

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            assert ctx.needs_input_grad == (True, False, False)
            return grad * ctx.factor, None, None

    x = fb.ones(2, requires_grad=True)
    made = Scaled.apply(x, *given)
    made.sum().backward()

    factor = given[0] if given else 3
    assert made.tolist() == [factor + 1.0] * 2
    assert x.grad.tolist() == [factor] * 2


def test_the_node_of_a_function_applies_its_backward():
    class Triple(fb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.factor = 3
            return x * 3

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.factor

    node = Triple.apply(fb.ones(2, requires_grad=True)).grad_fn
    assert isinstance(node, fb.autograd.function.BackwardCFunction)
    assert node.apply(fb.ones(2)).tolist() == [3.0, 3.0]


def test_a_saved_result_leads_on_though_the_program_drops_it() -> None:
    class Cube(fb.autograd.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x**3, 3 * x**2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(inputs[0], output[1])

        @staticmethod
        def backward(ctx: Any, grad: Any, grad_of_slope: Any) -> Any:
            x, slope = ctx.saved_tensors
            return grad * slope + grad_of_slope * 6 * x

    def cube(x: Any) -> Any:
        return Cube.apply(x)[0]

    x = fb.tensor(0.75, dtype=fb.float64)
    assert fb.func.grad(fb.func.grad(cube))(x) == 4.5
    assert fb.func.grad(fb.func.grad(fb.func.grad(cube)))(x) == 6
    x.requires_grad_()
    (slope,) = fb.autograd.grad(cube(x), x, create_graph=True)
    assert fb.autograd.grad(slope, x)[0] == 4.5


class _Cube(fb.autograd.Function):
    """With the exponential of its operand as a second result."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**3, x.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output[1])
        ctx.save_for_forward(*inputs, output[1])

    @staticmethod
    def backward(ctx, g, h):
        x, e = ctx.saved_tensors
        return 3 * x**2 * g + h * e

    @staticmethod
    def jvp(ctx, t):
        x, e = ctx.saved_tensors
        return 3 * x**2 * t, t * e


def test_second_derivatives_of_a_function_with_a_rule_for_vmap():
    f = lambda x: sum(y.sum() for y in _Cube.apply(x))  # noqa: E731
    x = fb.tensor([1.0, -2.0, 0.5], dtype=fb.float64)
    expected = (6 * x + x.exp()).diag()

    fb.testing.assert_close(fb.func.hessian(f)(x), expected)
    fb.testing.assert_close(fb.vmap(fb.func.hessian(f))(fb.stack([x, x]))[1], expected)
    fb.testing.assert_close(fb.func.jvp(fb.func.grad(f), (x,), (x,))[1], expected @ x)
