"""Autocast on the CPU: which ops run in which precision, where it ends, and what it does to gradients."""

from __future__ import annotations

import threading

import pytest

import flambeau as fb

F = fb.nn.functional


def matrix(*shape, dtype=fb.float32):
    return fb.ones(shape, dtype=dtype)


@pytest.mark.parametrize("low", [fb.bfloat16, fb.float16])
@pytest.mark.parametrize(
    "f",
    [
        lambda a: a @ a,
        lambda a: fb.mm(a, a),
        lambda a: F.linear(a, a, a[0]),
        lambda a: fb.addmm(a, a, a),
        lambda a: F.conv1d(a[None], a[:, :, None]),
        lambda a: fb.bmm(a[None], a[None]),
    ],
)
def test_products_run_in_the_lower_precision(f, low):
    with fb.autocast("cpu", dtype=low):
        assert f(matrix(3, 3)).dtype is low


def test_losses_and_products_of_elements_run_in_float32():
    half = matrix(3, dtype=fb.bfloat16)
    with fb.autocast("cpu"):
        assert F.mse_loss(half, half).dtype is fb.float32
        assert half.prod().dtype is fb.float32
        assert fb.fft.rfft(half).dtype is fb.complex64


def test_joining_takes_the_widest():
    with fb.autocast("cpu"):
        assert fb.cat([matrix(2), matrix(2, dtype=fb.bfloat16)]).dtype is fb.float32


@pytest.mark.parametrize("f", [lambda a: a + a, lambda a: a.relu(), lambda a: a.sum()])
def test_other_ops_follow_their_inputs(f):
    with fb.autocast("cpu"):
        assert f(matrix(3)).dtype is fb.float32
        assert f(matrix(3, dtype=fb.bfloat16)).dtype is fb.bfloat16


def test_double_precision_and_in_place_forms_stay():
    target = matrix(2, 2)
    with fb.autocast("cpu"):
        assert (matrix(2, 2, dtype=fb.float64) @ matrix(2, 2, dtype=fb.float64)).dtype is fb.float64
        target.addmm_(target, target)

    assert target.dtype is fb.float32


def test_regions_nest_and_end():
    a = matrix(2, 2)
    with fb.autocast("cpu"):
        with fb.autocast("cpu", enabled=False):
            assert (a @ a).dtype is fb.float32
            assert not fb.is_autocast_enabled("cpu")
        assert (a @ a).dtype is fb.bfloat16

    assert (a @ a).dtype is fb.float32
    assert not fb._state.local.calls.interpreters


def test_decorated_functions():
    @fb.autocast("cpu")
    def f(a):
        return a @ a

    assert f(matrix(2, 2)).dtype is fb.bfloat16


def test_gradients_have_the_dtype_of_their_parameters():
    weight = matrix(2, 3).requires_grad_()
    with fb.autocast("cpu"):
        loss = F.linear(matrix(4, 3), weight).sum()
    loss.backward()

    assert weight.grad.dtype is fb.float32
    assert weight.grad.tolist() == [[4.0] * 3] * 2


def test_a_weight_is_cast_once_in_a_region():
    weight = matrix(2, 2).requires_grad_()
    with fb.autocast("cpu"):
        F.linear(matrix(1, 2), weight), F.linear(matrix(1, 2), weight)
        assert len(fb.amp.autocast_mode._thread_state().cache) == 1

    assert not fb.amp.autocast_mode._thread_state().cache


def test_other_threads_are_not_concerned():
    seen = []
    with fb.autocast("cpu"):
        thread = threading.Thread(target=lambda: seen.append((matrix(2, 2) @ matrix(2, 2)).dtype))
        thread.start(), thread.join()

    assert seen == [fb.float32]


def test_settings_that_do_not_exist():
    with pytest.raises(ValueError, match="device_type"):
        fb.autocast(3)
    with pytest.raises(RuntimeError, match="abacus"):
        fb.autocast("abacus")
    with pytest.warns(UserWarning, match="target dtype is not supported"):
        assert not fb.autocast("cpu", dtype=fb.float64)._enabled


class Doubled(fb.autograd.Function):
    seen: list = []

    @staticmethod
    @fb.amp.custom_fwd(device_type="cpu", cast_inputs=fb.float32)
    def forward(ctx, x):
        Doubled.seen.append((x.dtype, fb.is_autocast_enabled("cpu")))
        return x * 2

    @staticmethod
    @fb.amp.custom_bwd(device_type="cpu")
    def backward(ctx, grad):
        Doubled.seen.append(fb.is_autocast_enabled("cpu"))
        return grad * 2


def test_custom_functions_cast_and_remember():
    Doubled.seen.clear()
    with fb.autocast("cpu"):
        y = Doubled.apply(matrix(2, dtype=fb.bfloat16).requires_grad_())
    y.sum().backward()

    assert Doubled.seen == [(fb.float32, False), False]


def test_autocast_is_off_for_devices_that_have_none():
    assert not any(fb.is_autocast_enabled(kind) for kind in ("mps", "xpu", "hpu"))
    with pytest.raises(RuntimeError, match="Expected one of"):
        fb.is_autocast_enabled("toaster")
