"""Gradient scaling: growth, backoff, skipped steps and saved state."""

from __future__ import annotations

import pickle

import pytest

import flambeau as fb


def setting(**options):
    weight = fb.nn.Parameter(fb.ones(2))
    scaler = fb.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2, **options)
    return weight, fb.optim.SGD([weight], lr=0.5), scaler


def step(weight, optimizer, scaler, factor=1.0):
    optimizer.zero_grad()
    scaler.scale((weight * factor).sum()).backward()
    scaler.step(optimizer)
    scaler.update()


def test_steps_do_not_depend_on_the_scale():
    weight, optimizer, scaler = setting()
    step(weight, optimizer, scaler)

    assert weight.tolist() == [0.5, 0.5]


def test_the_scale_grows_after_good_steps_and_halves_after_a_bad_one():
    weight, optimizer, scaler = setting()
    scales = []
    for factor in (1.0, 1.0, float("inf"), 1.0, 1.0):
        before = weight.tolist()
        step(weight, optimizer, scaler, factor)
        scales.append(scaler.get_scale())
        if factor != 1.0:
            assert weight.tolist() == before

    assert scales == [8.0, 16.0, 8.0, 8.0, 16.0]


def test_unscaled_gradients_can_be_clipped():
    weight, optimizer, scaler = setting()
    scaler.scale(weight.sum()).backward()
    scaler.unscale_(optimizer)

    assert weight.grad.tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(optimizer)


def test_order_of_calls_is_checked():
    _, optimizer, scaler = setting()
    with pytest.raises(AssertionError, match="scale"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="Closure"):
        scaler.step(optimizer, closure=lambda: None)


def test_state_survives():
    weight, optimizer, scaler = setting()
    step(weight, optimizer, scaler)
    other = fb.amp.GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())

    assert other.state_dict() == scaler.state_dict() == pickle.loads(pickle.dumps(scaler)).state_dict()


def test_a_disabled_scaler_does_nothing():
    weight, optimizer, scaler = setting(enabled=False)
    step(weight, optimizer, scaler)

    assert weight.tolist() == [0.5, 0.5]
    assert (scaler.get_scale(), scaler.state_dict(), scaler.is_enabled()) == (1.0, {}, False)
