"""Activations against closed forms, scipy and published values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import special

import flambeau as fb
import flambeau.nn.functional as F

X = np.array([-30.0, -3.0, -1.5, -0.5, 0.0, 0.25, 1.0, 2.0, 3.0, 30.0])
NEGATIVE = X < 0


def values(result: fb.Tensor) -> np.ndarray:
    return result.detach().numpy()


def slope(fn: Any, at: np.ndarray) -> np.ndarray:
    x = fb.tensor(at).requires_grad_()
    fn(x).sum().backward()
    return x.grad.numpy()


CLOSED_FORMS = {
    "relu": (lambda x: F.relu(x), np.where(NEGATIVE, 0, X)),
    "relu6": (lambda x: F.relu6(x), np.clip(X, 0, 6)),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.2), np.where(NEGATIVE, 0.2 * X, X)),
    "elu": (lambda x: F.elu(x, 1.5), np.where(NEGATIVE, 1.5 * np.expm1(X), X)),
    "celu": (lambda x: F.celu(x, 2.0), np.where(NEGATIVE, 2 * np.expm1(X / 2), X)),
    "selu": (F.selu, 1.0507009873554805 * np.where(NEGATIVE, 1.6732632423543772 * np.expm1(X), X)),
    "hardtanh": (lambda x: F.hardtanh(x, -2, 0.5), np.clip(X, -2, 0.5)),
    "hardsigmoid": (F.hardsigmoid, np.clip(X / 6 + 0.5, 0, 1)),
    "hardswish": (F.hardswish, X * np.clip(X / 6 + 0.5, 0, 1)),
    "hardshrink": (lambda x: F.hardshrink(x, 1.0), np.where(np.abs(X) > 1, X, 0)),
    "softshrink": (lambda x: F.softshrink(x, 0.5), np.sign(X) * np.maximum(np.abs(X) - 0.5, 0)),
    "threshold": (lambda x: F.threshold(x, 0.5, 9.0), np.where(X > 0.5, X, 9)),
    "softsign": (F.softsign, X / (1 + np.abs(X))),
    "tanhshrink": (F.tanhshrink, X - np.tanh(X)),
    "silu": (F.silu, X * special.expit(X)),
    "mish": (F.mish, X * np.tanh(np.logaddexp(0, X))),
    "logsigmoid": (F.logsigmoid, special.log_expit(X)),
    "softplus": (F.softplus, np.logaddexp(0, X)),
    "gelu": (F.gelu, X * special.ndtr(X)),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), 0.5 * X * (1 + np.tanh(math.sqrt(2 / math.pi) * (X + 0.044715 * X**3)))),
}


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_an_activation_has_its_closed_form(name: str) -> None:
    fn, expected = CLOSED_FORMS[name]

    np.testing.assert_allclose(values(fn(fb.tensor(X))), expected, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "elu", "celu", "selu", "hardtanh", "threshold", "rrelu"])
def test_the_form_with_an_underscore_stores_in_its_argument(name: str) -> None:
    arguments = {"threshold": (0.5, 9.0)}.get(name, ())
    x = fb.tensor(X)
    expected = values(getattr(F, name)(x, *arguments))

    assert getattr(F, f"{name}_")(x, *arguments) is x
    np.testing.assert_array_equal(x.numpy(), expected)


def test_an_activation_in_place_has_the_derivative_of_the_other_form() -> None:
    for fn in (F.relu, F.silu, F.elu, F.leaky_relu, F.hardswish, F.mish):
        np.testing.assert_allclose(slope(lambda x, fn=fn: fn(x * 1, inplace=True), X), slope(fn, X))


def test_relu_has_derivative_zero_at_zero_and_keeps_nan() -> None:
    assert slope(F.relu, np.array([0.0, -0.0, 1.0])).tolist() == [0, 0, 1]
    assert math.isnan(float(fb.relu(fb.tensor(math.nan))))


def test_a_second_derivative_of_relu_is_zero_rather_than_missing() -> None:
    x = fb.tensor([-1.0, 2.0], requires_grad=True)
    (first,) = fb.autograd.grad(fb.relu(x).sum(), x, create_graph=True)
    (second,) = fb.autograd.grad(first.sum(), x)

    assert second.tolist() == [0, 0]


def test_softplus_stays_finite_where_exp_overflows() -> None:
    x = fb.tensor([-1e4, 0.0, 1e4])

    np.testing.assert_allclose(F.softplus(x).numpy(), [0.0, math.log(2.0), 1e4], rtol=1e-6)
    np.testing.assert_allclose(slope(F.softplus, np.array([-1e4, 0.0, 1e4])), [0, 0.5, 1])


def test_gelu_keeps_the_digits_of_its_left_tail() -> None:
    # -8 times the standard normal's distribution at -8, which is 6.22096e-16.
    np.testing.assert_allclose(float(F.gelu(fb.tensor(-8.0))), -4.976768e-15, rtol=1e-4)


def test_prelu_has_one_slope_for_each_channel() -> None:
    x = fb.full((2, 3, 2), -1.0)

    assert F.prelu(x, fb.tensor([0.1, 0.2, 0.3]))[0, :, 0].tolist() == pytest.approx([-0.1, -0.2, -0.3])
    with pytest.raises(RuntimeError, match="parameter numbers = 2 and channel size = 3"):
        F.prelu(x, fb.tensor([0.1, 0.2]))


def test_glu_gates_the_first_half_with_the_second() -> None:
    assert F.glu(fb.tensor([[1.0, 2.0, 0.0, -1.0]])).tolist() == [pytest.approx([0.5, 2 / (1 + math.e)])]
    with pytest.raises(RuntimeError, match="dimension 1 is size 3"):
        F.glu(fb.ones(2, 3))


# -- softmax -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax_and_its_logarithm_agree_with_scipy(dim: int) -> None:
    x = np.random.default_rng(0).normal(size=(3, 4, 5)) * 10

    np.testing.assert_allclose(fb.softmax(fb.tensor(x), dim).numpy(), special.softmax(x, dim), rtol=1e-12)
    np.testing.assert_allclose(fb.log_softmax(fb.tensor(x), dim).numpy(), special.log_softmax(x, dim), rtol=1e-12)
    np.testing.assert_allclose(F.softmin(fb.tensor(x), dim).numpy(), special.softmax(-x, dim), rtol=1e-12)
    np.testing.assert_allclose(fb.logsumexp(fb.tensor(x), dim).numpy(), special.logsumexp(x, dim), rtol=1e-12)


def test_softmax_does_not_overflow_and_halves_are_summed_in_float32() -> None:
    assert fb.softmax(fb.tensor([1e4, 1e4]), 0).tolist() == [0.5, 0.5]
    assert float(fb.softmax(fb.zeros(4096, dtype=fb.float16), 0).float().sum()) == pytest.approx(1, abs=1e-3)


def test_logsumexp_of_infinities_and_of_nothing() -> None:
    inf = math.inf

    assert fb.logsumexp(fb.tensor([[-inf, -inf], [inf, 0.0], [0.0, 0.0]]), 1).tolist() == pytest.approx([-inf, inf, math.log(2)])
    assert fb.logsumexp(fb.zeros(0), 0).item() == -inf


def test_gradients_of_softmax_are_its_jacobian() -> None:
    x = np.array([0.3, -1.0, 2.0])
    p = special.softmax(x)
    for fn, jacobian in ((fb.softmax, np.diag(p) - np.outer(p, p)), (fb.log_softmax, np.eye(3) - p)):
        rows = []
        for i in range(3):
            leaf = fb.tensor(x).requires_grad_()
            fn(leaf, 0)[i].backward()
            rows.append(leaf.grad.numpy())
        np.testing.assert_allclose(rows, jacobian, atol=1e-12)


def test_softmax_without_a_dim_says_so_and_refuses_integers() -> None:
    with pytest.warns(UserWarning, match="Implicit dimension choice"):
        F.softmax(fb.zeros(2, 2))
    with pytest.raises(RuntimeError, match=r"not implemented for torch.int64"):
        fb.softmax(fb.zeros(2, dtype=fb.int64), 0)
    assert fb.softmax(fb.zeros(2, dtype=fb.int64), 0, dtype=fb.float64).dtype is fb.float64


def test_a_hard_gumbel_sample_of_a_number_is_one() -> None:
    logits = fb.tensor(0.5, requires_grad=True)
    sample = F.gumbel_softmax(logits, dim=0, hard=True)
    sample.backward()

    assert sample.item() == 1
    assert logits.grad.item() == 0


def test_a_hard_gumbel_sample_is_one_hot_and_passes_the_gradient_of_the_soft_one() -> None:
    fb.manual_seed(0)
    logits = fb.zeros(4, 3, requires_grad=True)
    sample = F.gumbel_softmax(logits, hard=True)
    (sample * fb.arange(3.0)).sum().backward()

    assert sorted(set(sample.detach().round().flatten().tolist())) == [0, 1]
    np.testing.assert_allclose(sample.detach().sum(1).numpy(), 1, atol=1e-6)
    assert float(logits.grad.abs().sum()) > 0


# -- randomness ----------------------------------------------------------------------------------------------------------


def test_dropout_scales_what_it_keeps_and_drops_the_share_it_should() -> None:
    fb.manual_seed(1)
    made = F.dropout(fb.ones(20000), 0.3)

    assert sorted(set(made.tolist())) == pytest.approx([0, 1 / 0.7])
    assert float((made == 0).float().mean()) == pytest.approx(0.3, abs=0.01)


def test_dropout_draws_what_the_default_generator_gives() -> None:
    from flambeau_kernels.cpu.random import MT19937Stream

    fb.manual_seed(7)
    kept = MT19937Stream(7).uniform64(6) < 0.4

    assert (F.dropout(fb.ones(6), 0.6) != 0).tolist() == kept.tolist()


def test_dropout_outside_training_is_the_input_itself() -> None:
    x = fb.ones(3)

    assert F.dropout(x, 0.5, training=False) is x
    assert F.dropout(x, 1.0).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match=r"between 0 and 1, but got 1.5"):
        F.dropout(x, 1.5)


def test_feature_dropout_drops_whole_channels() -> None:
    fb.manual_seed(0)
    made = F.dropout2d(fb.ones(8, 8, 3, 3), 0.5).numpy().reshape(64, 9)

    assert {len(set(row)) for row in made} == {1}
    assert 0 < (made[:, 0] == 0).sum() < 64


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    fb.manual_seed(0)
    x = fb.randn(200000)
    made = F.alpha_dropout(x, 0.2, training=True)

    assert float(made.mean()) == pytest.approx(0, abs=0.02)
    assert float(made.var()) == pytest.approx(1, abs=0.03)


def test_rrelu_takes_the_mean_slope_in_evaluation_and_draws_one_in_training() -> None:
    x = fb.full((1000,), -1.0)
    slopes = -F.rrelu(x, 0.1, 0.3, training=True)

    assert F.rrelu(x, 0.1, 0.3)[0].item() == pytest.approx(-0.2)
    assert 0.1 <= float(slopes.min()) < 0.12
    assert 0.28 < float(slopes.max()) <= 0.3


@pytest.mark.parametrize("dtype", [fb.float16, fb.bfloat16, fb.float32, fb.float64], ids=str)
@pytest.mark.parametrize("count", [1, 2, 17, 5000])
def test_gelu_at_infinity_is_infinite_for_any_layout(count, dtype):
    several = fb.full((count, 3), math.inf, dtype=dtype)
    for x in (several, several[:, :2], several.t(), several[0, 0]):
        for approximate in ("none", "tanh"):
            assert F.gelu(x, approximate=approximate).isposinf().all()
        assert F.gelu(-x).isnan().all()


def test_gelu_of_the_largest_and_smallest_numbers():
    x = fb.tensor([3e38, -3e38, 1e38, -1e38, math.nan, -math.inf, 0.0, -0.0, 1e-38, -1e-40])
    found = F.gelu(x)

    np.testing.assert_array_equal(found, np.float32([3e38, -0.0, 1e38, -0.0, math.nan, math.nan, 0, -0.0, 5e-39, -5e-41]))
    np.testing.assert_array_equal(np.signbit(found)[[1, 3, 6, 7]], [True, True, False, True])


@pytest.mark.parametrize("count", [1, 8, 17, 5000])
@pytest.mark.parametrize("name", ["hardshrink", "softshrink", "hardtanh", "relu6", "hardswish", "elu"])
def test_gradients_at_nan_are_those_of_pytorchs_long_tensors_for_any_length(name, count, oracle):
    def gradient(lib, n):
        x = lib.full((n,), math.nan).requires_grad_()
        getattr(lib.nn.functional, name)(x).sum().backward()
        return x.grad

    found, expected = gradient(fb, count), gradient(oracle, 4096)[0].item()

    np.testing.assert_array_equal(found, np.full(count, expected, np.float32))


@pytest.mark.parametrize("fn", [fb.sgn, fb.angle])
def test_the_gradient_of_the_sign_and_angle_of_real_numbers_is_0_also_at_nan_and_inf(fn: Any) -> None:
    x = fb.tensor([float("nan"), float("inf"), -float("inf"), 2.0], requires_grad=True)
    fn(x).sum().backward()
    assert x.grad.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("program", ["F.celu(x, {})", "fb.celu(x, {})", "F.celu_(x.clone(), {})", "fb.celu_(x.clone(), {})"])
def test_celu_refuses_zero_also_once_it_has_a_builtin(program):
    x = fb.linspace(-2, 2, 20)
    for _ in range(3):
        eval(program.format("0.5"), {"F": F, "fb": fb, "x": x})

    with pytest.raises(RuntimeError, match="alpha cannot be 0"):
        eval(program.format("0.0"), {"F": F, "fb": fb, "x": x})


def test_softshrink_refuses_negative_numbers_also_once_it_has_a_builtin():
    x = fb.linspace(-2, 2, 20)
    for _ in range(3):
        F.softshrink(x, 0.5), F.softshrink(x, 0.5, out=fb.empty(20)), F.softshrink(x, 1)

    for refused in (-0.5, -1):
        with pytest.raises(RuntimeError, match=f"greater or equal to 0, but found to be {refused}"):
            F.softshrink(x, refused)
        with pytest.raises(RuntimeError, match=f"greater or equal to 0, but found to be {refused}"):
            F.softshrink(x, refused, out=fb.empty(20))
    np.testing.assert_array_equal(F.softshrink(x, float("nan")).numpy(), np.zeros(20, "float32"))
