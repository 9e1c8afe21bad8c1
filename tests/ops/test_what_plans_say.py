"""What a `Plan` says of its calls is what they do: the node that results get, what it saves, and what is written."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fb
from flambeau.ops._spec import OPS
from flambeau.ops._spec.plans import Plan

F = fb.nn.functional


def _image(*shape: int) -> Any:
    return (fb.arange(float(fb.Size(shape).numel())).reshape(shape) * 0.3).sin()


# The op that has the plan, and a call of it of a first operand with a history.
CALLS: dict[str, Any] = {
    "nn.functional.layer_norm": lambda x: F.layer_norm(x, (4,), _image(4), _image(4)),
    "nn.functional.rms_norm": lambda x: F.rms_norm(x, (4,), _image(4)),
    "nn.functional.group_norm": lambda x: F.group_norm(x, 2, _image(4), _image(4)),
    "nn.functional.batch_norm": lambda x: F.batch_norm(x, fb.zeros(4), fb.ones(4), _image(4), _image(4), True),
    "nn.functional.conv2d": lambda x: F.conv2d(x, _image(3, 4, 3, 3), _image(3)),
    "nn.functional.conv_transpose2d": lambda x: F.conv_transpose2d(x, _image(4, 3, 3, 3), _image(3)),
    "nn.functional.avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "nn.functional.max_pool2d": lambda x: F.max_pool2d(x, 2),
    "nn.functional.adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 2),
    "nn.functional.pad": lambda x: F.pad(x, (1, 1)),
    "nn.functional.interpolate": lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
    "nn.functional.scaled_dot_product_attention": lambda x: F.scaled_dot_product_attention(x, x * 2, x * 3),
}


def _plans_of(name: str) -> list[Plan]:
    return [plan for plan in OPS[name].plans.values() if plan is not None]


@pytest.mark.parametrize("name", CALLS)
def test_results_have_the_node_that_the_plan_names_and_save_what_it_says(name: str) -> None:
    x = _image(2, 4, 4, 4).requires_grad_()
    OPS[name].plans.clear()
    made = CALLS[name](x)
    plans = _plans_of(name)
    if not plans:
        pytest.skip("no compiled kernel here: the fallback answers")
    (plan,) = plans
    node = made.grad_fn

    assert node.op is plan.records
    assert plan.saves == plan.records.saved_names
    assert len(node.saved) == len(plan.saves)
    before = OPS[name].plans
    again = CALLS[name](x)
    assert OPS[name].plans is before
    assert fb.equal(again, made)
    again.sum().backward()
    assert x.grad is not None


def test_running_statistics_that_a_plan_has_written_have_another_version() -> None:
    mean, variance, x = fb.zeros(4), fb.ones(4), _image(2, 4, 4, 4)
    OPS["nn.functional.batch_norm"].plans.clear()
    for _ in range(2):
        versions = mean._version, variance._version
        F.batch_norm(x, mean, variance, training=True)

        assert (mean._version, variance._version) == (versions[0] + 1, versions[1] + 1)
    for plan in _plans_of("nn.functional.batch_norm"):
        assert plan.writes == ("running_mean", "running_var")


def test_a_plan_that_writes_nothing_says_so() -> None:
    OPS["nn.functional.batch_norm"].plans.clear()
    mean, variance = fb.zeros(4), fb.ones(4)
    F.batch_norm(_image(2, 4, 4, 4), mean, variance)

    assert (mean._version, variance._version) == (0, 0)
    assert all(plan.writes == () for plan in _plans_of("nn.functional.batch_norm"))


@pytest.mark.parametrize("name", ["sum", "mean", "amax"])
def test_large_reductions_have_the_node_that_their_plan_names(name: str) -> None:
    x = _image(300, 400).requires_grad_()
    op = OPS[name]
    op.plans.clear()
    for _ in range(2):
        node = getattr(x, name)(1).grad_fn

        assert node.op is op
        for plan in _plans_of(name):
            assert plan.records is op
            assert set(plan.saves) == {n for n, v in zip(("out", "input"), node.saved, strict=False) if v is not None}
