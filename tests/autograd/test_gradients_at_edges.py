"""Gradients where there is nothing: divisions by zero, batches and features of size 0, targets that are all ignored."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import flambeau as fb

QUOTIENTS: dict[str, Any] = {
    "x / 0": lambda x: x / 0, "x / 0.0": lambda x: x / 0.0, "x / -0.0": lambda x: x / -0.0, "0 / x": lambda x: 0 / (x - 1),
    "div_": lambda x: (x * 1).div_(0), "truncated": lambda x: x.div(0, rounding_mode="trunc"), "power": lambda x: (x - 1) ** -1,
    "addcdiv": lambda x: x.addcdiv(x, x * 0), "xlogy": lambda x: x.xlogy(0), "remainder": lambda x: x.remainder(0),
}  # fmt: skip


def values(x: Any) -> Any:
    return np.array(x.tolist(), float)


@pytest.mark.parametrize("name", QUOTIENTS)
def test_division_by_zero_has_a_gradient_and_a_second_one(oracle: Any, name: str) -> None:
    seen = []
    for lib in (oracle, fb):
        x = lib.arange(1.0, 4.0).requires_grad_()
        made = QUOTIENTS[name](x)
        made.sum().backward()
        y = lib.arange(1.0, 4.0).requires_grad_()
        (first,) = lib.autograd.grad(QUOTIENTS[name](y).sum(), y, create_graph=True)
        (second,) = lib.autograd.grad((first * y).sum(), y)
        seen.append((values(made), values(x.grad), values(first), values(second)))

    for ours, theirs in zip(seen[1], seen[0], strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_division_by_zero_has_a_tangent() -> None:
    _, tangent = fb.func.jvp(lambda x: x / 0, (fb.ones(2),), (fb.ones(2),))

    assert tangent.tolist() == [float("inf")] * 2


@pytest.mark.parametrize(
    ("name", "weight", "options"),
    [
        ("conv1d", (3, 2, 2), {}), ("conv2d", (3, 2, 2, 2), {}), ("conv2d", (3, 2, 3, 3), {"padding": 1}),
        ("conv2d", (3, 2, 2, 2), {"stride": 2}),
        ("conv2d", (4, 1, 2, 2), {"groups": 2}), ("conv2d", (2, 2, 1, 1), {}), ("conv3d", (3, 2, 2, 2, 2), {}),
        ("conv_transpose1d", (2, 3, 2), {}), ("conv_transpose2d", (2, 3, 2, 2), {}),
    ],
)  # fmt: skip
def test_convolution_of_an_empty_batch_has_gradients_of_zero(oracle: Any, name: str, weight: Any, options: Any) -> None:
    seen = []
    for lib in (oracle, fb):
        x = lib.ones((0, 2, *[5] * (len(weight) - 2)), requires_grad=True)
        w = lib.ones(weight, requires_grad=True)
        made = getattr(lib.nn.functional, name)(x, w, **options)
        made.sum().backward()
        seen.append((tuple(made.shape), x.grad.tolist(), w.grad.tolist()))

    assert seen[1] == seen[0]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("features", "results"), [(0, 3), (3, 0), (3, 2)])
@pytest.mark.parametrize("batch", [(2,), (), (0,), (2, 3)])
def test_linear_of_no_features_gives_the_bias_and_gradients(oracle: Any, bias: bool, features: int, results: int, batch: Any) -> None:
    seen = []
    for lib in (oracle, fb):
        x, w = lib.ones((*batch, features), requires_grad=True), lib.ones((results, features), requires_grad=True)
        b = lib.ones(results, requires_grad=True) if bias else None
        made = lib.nn.functional.linear(x, w, b)
        made.sum().backward()
        seen.append((made.tolist(), *[None if t is None else t.grad.tolist() for t in (x, w, b)]))

    assert seen[1] == seen[0]


@pytest.mark.parametrize("name", ["cov", "corrcoef"])
@pytest.mark.parametrize("shape", [(3, 1), (3, 0), (0, 3), (0,), (1,), (1, 1), ()])
def test_covariance_of_too_few_columns_has_the_gradients_of_pytorch(oracle: Any, name: str, shape: Any) -> None:
    seen = []
    for lib in (oracle, fb):
        x = lib.ones(shape, requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")           # of degrees of freedom
            made = getattr(lib, name)(x)
        made.sum().backward()
        seen.append((values(made), values(x.grad)))

    for ours, theirs in zip(seen[1], seen[0], strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
@pytest.mark.parametrize(("n", "d"), [(3, 0.0), (4, 0), (0, 0.0), (0, 1.0), (1, 0.0), (5, -0.0)])
def test_frequencies_of_samples_without_spacing_are_infinite(oracle: Any, name: str, n: int, d: float) -> None:
    np.testing.assert_array_equal(values(getattr(fb.fft, name)(n, d)), values(getattr(oracle.fft, name)(n, d)))


# -- targets that do not count -----------------------------------------------------------------------------------------------


SHAPES = {"rows": ((3, 4), (3,)), "one": ((4,), ()), "images": ((2, 4, 2, 2), (2, 2, 2)), "nothing": ((0, 4), (0,))}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("loss", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("shape", SHAPES)
def test_targets_that_are_all_ignored_get_no_gradient(
    oracle: Any, shape: str, loss: str, reduction: str, smoothing: float, weighted: bool
) -> None:
    scores, targets = SHAPES[shape]
    options = {"label_smoothing": smoothing} if loss == "cross_entropy" else {}
    seen = []
    for lib in (oracle, fb):
        x = lib.ones(scores, requires_grad=True)
        weight = lib.arange(4.0) if weighted else None
        made = getattr(lib.nn.functional, loss)(x, lib.full(targets, -100), weight=weight, reduction=reduction, **options)
        made.sum().backward()
        y = lib.ones(scores, requires_grad=True)
        again = getattr(lib.nn.functional, loss)(y, lib.full(targets, -100), weight=weight, reduction=reduction, **options)
        (first,) = lib.autograd.grad(again.sum(), y, create_graph=True)
        seen.append((values(made), values(x.grad), values(first)))

    for ours, theirs in zip(seen[1], seen[0], strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_an_infinite_gradient_does_not_reach_what_is_ignored() -> None:
    for loss in (fb.nn.functional.nll_loss, fb.nn.functional.cross_entropy):
        x = fb.zeros(2, 3, requires_grad=True)
        loss(x, fb.tensor([1, -100]), reduction="sum").backward(fb.tensor(float("inf")))

        assert x.grad[1].tolist() == [0.0] * 3


META: dict[str, Any] = {
    "prod": lambda lib, x, t: x.prod(), "prod of rows": lambda lib, x, t: x.prod(1), "nll_loss": lambda lib, x, t: lib.nll_loss(x, t),
    "each nll_loss": lambda lib, x, t: lib.nll_loss(x, t, reduction="none"), "cross_entropy": lambda lib, x, t: lib.cross_entropy(x, t),
    "smoothed": lambda lib, x, t: lib.cross_entropy(x, t, label_smoothing=0.1),
    "weighted": lambda lib, x, t: lib.cross_entropy(x, t, weight=x[0].detach(), label_smoothing=0.1),
    "probabilities": lambda lib, x, t: lib.cross_entropy(x, x.detach()),
}  # fmt: skip


@pytest.mark.parametrize("name", META)
def test_losses_and_products_go_backward_on_the_meta_device(name: str) -> None:
    x = fb.ones(3, 4, device="meta", requires_grad=True)
    target = fb.zeros(3, dtype=fb.int64, device="meta")
    made = META[name](fb.nn.functional, x, target)
    made.sum().backward()

    assert made.is_meta
    assert (x.grad.shape, x.grad.device.type) == (x.shape, "meta")


def test_the_operand_that_says_only_in_which_direction_the_next_number_lies_has_no_part_in_derivatives() -> None:
    x, y = fb.tensor([1.0, 2.0, 3.0], requires_grad=True), fb.tensor([2.0, 2.0, 1.0], requires_grad=True)
    fb.nextafter(x, y).sum().backward()
    _, tangent = fb.func.jvp(fb.nextafter, (x.detach(), y.detach()), (fb.full((3,), 3.0), fb.full((3,), 5.0)))

    assert (x.grad.tolist(), y.grad.tolist(), tangent.tolist()) == ([1, 0, 1], [0, 0, 0], [3, 0, 3])


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("shape", "dim"), [((37, 41), None), ((3, 515), 1), ((70000,), None)], ids=str)
def test_gradients_of_means_divide_by_counts_that_halves_do_not_have(shape, dim, dtype, oracle):
    found = []
    for framework in (fb, oracle):
        x = framework.ones(shape).to(getattr(framework, dtype)).requires_grad_()
        y = x.mean(dim)
        (gradient,) = framework.autograd.grad(y, x, framework.ones_like(y))
        found.append(gradient.float().tolist())
    assert found[0] == found[1]


def test_losses_of_many_halves_have_gradients():
    x, y = fb.randn(300, 259).half().requires_grad_(), fb.randn(300, 259).half()
    (gradient,) = fb.autograd.grad(fb.nn.functional.mse_loss(x, y), x)
    exact = 2 * (x.detach().double() - y.double()) / x.numel()
    fb.testing.assert_close(gradient.double(), exact, rtol=2e-3, atol=6e-8)  # the smallest number of float16 is 6e-8
