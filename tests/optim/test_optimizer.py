"""The base class: groups, checks, hooks, checkpoints, copies; and what a step means beside its numbers."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import flambeau as fb
from flambeau.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
    required,
)

DENSE = [
    "SGD",
    "Adam",
    "AdamW",
    "Adamax",
    "NAdam",
    "RAdam",
    "Adagrad",
    "Adadelta",
    "RMSprop",
    "Rprop",
    "ASGD",
    "Adafactor",
]


def parameter(*shape, value=1.0):
    return fb.nn.Parameter(fb.full(shape, value))


def stepped(optimizer, value=1.0, times=1):
    for _ in range(times):
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad = fb.full_like(p, value).detach()
        optimizer.step()
    return optimizer


def values(tensor):
    return tensor.detach().numpy().copy()


# -- groups ------------------------------------------------------------------------------------------------


def test_groups_take_the_defaults_they_do_not_give():
    optimizer = fb.optim.SGD(
        [{"params": [parameter(2)]}, {"params": parameter(3), "lr": 0.5, "note": 7}], lr=0.1
    )

    first, second = optimizer.param_groups

    assert (first["lr"], second["lr"], second["note"], second["momentum"]) == (0.1, 0.5, 7, 0)
    assert len(second["params"]) == 1


def test_each_group_is_stepped_with_its_own_rate():
    p, q = parameter(2), parameter(2)

    stepped(fb.optim.SGD([{"params": [p]}, {"params": [q], "lr": 0.5}], lr=0.25))

    assert values(p).tolist() == [0.75, 0.75]
    assert values(q).tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: fb.optim.SGD(fb.ones(2)), TypeError, r"one Tensor of shape \(2,\)"),
        (lambda: fb.optim.SGD([]), ValueError, "empty"),
        (lambda: fb.optim.SGD([1]), TypeError, "int"),
        (lambda: fb.optim.SGD([{"params": {parameter(1)}}]), TypeError, "order"),
        (lambda: fb.optim.SGD([parameter(2) * 2]), ValueError, "non-leaf"),
        (lambda: fb.optim.SGD([{"lr": 1}]), KeyError, "params"),
        (lambda: fb.optim.SGD([parameter(1), ("b", parameter(1))]), ValueError, "1 of 2 lack a name"),
        (lambda: fb.optim.SGD([parameter(1)]).add_param_group([parameter(1)]), TypeError, "list"),
        (
            lambda: fb.optim.SGD([parameter(1)]).add_param_group({"params": [("b", parameter(1))]}),
            ValueError,
            "names",
        ),
        (lambda: Optimizer([parameter(1)], {"lr": required}), ValueError, "'lr'"),
        (lambda: Optimizer([parameter(1)], {}).step(), NotImplementedError, "step"),
        (lambda: fb.optim.SGD([parameter(1)], lr=-1), ValueError, "learning rate: -1"),
        (lambda: fb.optim.SGD([parameter(1)], lr=fb.ones(2)), ValueError, r"\(2,\)"),
        (lambda: fb.optim.SGD([parameter(1)], nesterov=True), ValueError, "momentum=0"),
        (lambda: fb.optim.SGD([parameter(1)], fused=True, foreach=True), RuntimeError, "foreach"),
        (
            lambda: fb.optim.SGD([parameter(1)], fused=True, differentiable=True),
            RuntimeError,
            "differentiable",
        ),
        (lambda: fb.optim.Adam([parameter(1)], betas=(0.9, 1.0)), ValueError, "index 1: 1.0"),
        (
            lambda: fb.optim.Adam([parameter(1)], lr=fb.tensor(0.1), foreach=True),
            ValueError,
            "lr as a Tensor",
        ),
        (lambda: fb.optim.Adam([parameter(1)], betas=(0.9, fb.tensor(0.9))), ValueError, "both floats"),
        (lambda: stepped(fb.optim.Adam([parameter(1)], capturable=True)), AssertionError, "capturable"),
        (
            lambda: stepped(fb.optim.Adam([parameter(1)], foreach=True, differentiable=True)),
            AssertionError,
            "foreach",
        ),
        (lambda: fb.optim.Rprop([parameter(1)], etas=(1.2, 1.3)), ValueError, "1.2, 1.3"),
        (lambda: fb.optim.Adadelta([parameter(1)], rho=1.1), ValueError, "1.1"),
        (lambda: fb.optim.RMSprop([parameter(1)], momentum=-1.0), ValueError, "momentum value: -1.0"),
        (lambda: fb.optim.Adafactor([parameter(1)], d=0.5), ValueError, "0.5"),
        (lambda: stepped(fb.optim.SparseAdam([parameter(1)])), RuntimeError, "dense gradients"),
    ],
)
def test_refuses(make, error, match):
    with pytest.raises(error, match=match):
        make()


def test_a_parameter_may_not_be_in_two_groups():
    p = parameter(1)
    with pytest.raises(ValueError, match="more than one parameter group"):
        fb.optim.SGD([{"params": [p]}, {"params": [p]}])


def test_a_parameter_listed_twice_warns_and_is_stepped_twice():
    p = parameter(2)
    with pytest.warns(UserWarning, match="duplicate"):
        optimizer = fb.optim.SGD([p, p], lr=0.25)

    stepped(optimizer)

    assert values(p).tolist() == [0.5, 0.5]


def test_names_are_kept_in_groups_and_checkpoints():
    optimizer = fb.optim.SGD([("weight", parameter(2)), ("bias", parameter(1))])

    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]
    assert optimizer.state_dict()["param_groups"][0]["params"] == [0, 1]


# -- steps -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DENSE)
def test_parameters_without_gradient_are_left_alone(name):
    p, q = parameter(2), parameter(2)
    p.grad = fb.ones(2)

    getattr(fb.optim, name)([p, q]).step()

    assert values(q).tolist() == [1.0, 1.0]
    assert values(p).tolist() != [1.0, 1.0]


@pytest.mark.parametrize("name", DENSE)
def test_empty_and_zero_dimensional_parameters_are_stepped(name):
    params = [parameter(0), parameter(), parameter(3, 1)]

    stepped(getattr(fb.optim, name)(params), times=2)

    assert [tuple(p.shape) for p in params] == [(0,), (), (3, 1)]
    assert params[1].item() < 1.0


@pytest.mark.parametrize("name", DENSE)
def test_maximizing_mirrors_minimizing(name):
    p, q = parameter(3, value=0.0), parameter(3, value=0.0)

    stepped(getattr(fb.optim, name)([p]), value=2.0, times=3)
    stepped(getattr(fb.optim, name)([q], maximize=True), value=-2.0, times=3)

    np.testing.assert_array_equal(values(p), values(q))


def test_a_step_without_weight_decay_leaves_infinite_parameters_infinite():
    p = parameter(2, value=float("inf"))

    stepped(fb.optim.SGD([p]))

    assert np.isposinf(values(p)).all()


def test_the_first_step_of_adam_has_the_size_of_the_rate():
    p = parameter(3, value=0.0)
    p.grad = fb.tensor([1e-3, -2.0, 50.0])

    fb.optim.Adam([p], lr=0.5, eps=0.0).step()

    np.testing.assert_allclose(values(p), [-0.5, 0.5, -0.5], 1e-6)


def test_sgd_follows_its_closed_form_on_a_quadratic():
    p = parameter(1, value=4.0)
    optimizer = fb.optim.SGD([p], lr=0.1)
    for _ in range(20):
        optimizer.zero_grad()
        (p * p).sum().backward()
        optimizer.step()

    assert p.item() == pytest.approx(4.0 * 0.8**20, rel=1e-5)


def test_closures_run_with_gradients_and_their_result_is_returned():
    p = parameter(2)
    optimizer = fb.optim.SGD([p], lr=0.25)

    def closure():
        optimizer.zero_grad()
        loss = (p * 2).sum()
        loss.backward()
        return loss

    with fb.no_grad():
        loss = optimizer.step(closure)

    assert loss.item() == 4.0
    assert values(p).tolist() == [0.5, 0.5]


def test_a_step_in_place_is_noticed_by_saved_tensors():
    p = parameter(2)
    loss = (p * p).sum()
    p.grad = fb.ones(2)

    fb.optim.SGD([p]).step()

    with pytest.raises(RuntimeError, match=r"in-?place"):
        loss.backward()


def test_zero_grad_forgets_or_fills():
    p = parameter(2)
    optimizer = fb.optim.SGD([p])
    p.grad = kept = fb.ones(2)

    optimizer.zero_grad(set_to_none=False)
    assert p.grad is kept
    assert kept.tolist() == [0.0, 0.0]
    optimizer.zero_grad()
    assert p.grad is None


@pytest.mark.parametrize(
    ("name", "options"), [("SGD", {"momentum": 0.9}), ("Adam", {}), ("Adagrad", {}), ("Rprop", {})]
)
def test_a_differentiable_step_gives_the_slope_of_finite_differences(name, options):
    def final(rate):
        w = fb.tensor([0.5, -1.5], dtype=fb.float64)
        p = w.clone()
        optimizer = getattr(fb.optim, name)([w], lr=0.1, differentiable=True, **options)
        optimizer.param_groups[0].update(params=[p], lr=rate)
        for slope in (1.0, 3.0):
            p.grad = fb.tensor([slope, -0.5], dtype=fb.float64)
            optimizer.step()
        return (p * p).sum()

    rate = fb.tensor(0.1, dtype=fb.float64, requires_grad=True)
    if name == "Rprop":  # its steps do not depend on the rate after the first
        assert final(0.1).item() != final(0.2).item()
        return
    final(rate).backward()

    h = 1e-6
    slope = (final(0.1 + h).item() - final(0.1 - h).item()) / (2 * h)
    assert rate.grad.item() == pytest.approx(slope, rel=1e-6)


# -- hooks -------------------------------------------------------------------------------------------------


def test_step_hooks_run_in_order_around_the_step():
    log = []
    optimizer = fb.optim.SGD([parameter(1)])
    optimizer.register_step_pre_hook(lambda o, args, kwargs: log.append("pre"))
    optimizer.register_step_post_hook(lambda o, args, kwargs: log.append("post"))
    handles = [
        register_optimizer_step_pre_hook(lambda o, args, kwargs: log.append("global pre")),
        register_optimizer_step_post_hook(lambda o, args, kwargs: log.append("global post")),
    ]

    stepped(optimizer)
    for handle in handles:
        handle.remove()
    stepped(optimizer)

    assert log == ["global pre", "pre", "post", "global post", "pre", "post"]


def test_a_pre_hook_may_replace_the_arguments():
    optimizer = fb.optim.SGD([parameter(1)])
    optimizer.register_step_pre_hook(lambda o, args, kwargs: ((args[0], lambda: 7), {}))

    assert optimizer.step(lambda: 3) == 7


def test_a_pre_hook_may_return_nothing_else():
    optimizer = fb.optim.SGD([parameter(1)])
    optimizer.register_step_pre_hook(lambda o, args, kwargs: 3)
    with pytest.raises(RuntimeError, match="new_args"):
        optimizer.step()


def test_hooks_run_once_when_a_step_calls_its_base_class():
    class Loud(fb.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    log = []
    optimizer = Loud([parameter(1)])
    optimizer.register_step_post_hook(lambda o, args, kwargs: log.append("post"))

    stepped(optimizer)

    assert log == ["post"]


def test_checkpoint_hooks_see_and_may_replace_the_checkpoint():
    log = []
    optimizer = fb.optim.Adam([parameter(1)])
    optimizer.register_state_dict_pre_hook(lambda o: log.append("saving"))
    optimizer.register_state_dict_post_hook(lambda o, saved: {**saved, "extra": 1})
    optimizer.register_load_state_dict_pre_hook(
        lambda o, saved: {k: v for k, v in saved.items() if k != "extra"}
    )
    optimizer.register_load_state_dict_post_hook(lambda o: log.append("loaded"))

    saved = optimizer.state_dict()
    optimizer.load_state_dict(saved)

    assert saved["extra"] == 1
    assert log == ["saving", "loaded"]


# -- checkpoints and copies --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize(
    "copied", [lambda o: pickle.loads(pickle.dumps(o)), copy.deepcopy], ids=["pickle", "deepcopy"]
)
def test_copies_continue_alike(name, copied):
    optimizer = stepped(getattr(fb.optim, name)([parameter(2, 3), parameter(4)]), times=2)

    twin = copied(optimizer)

    stepped(optimizer, 0.5)
    stepped(twin, 0.5)
    for p, q in zip(optimizer.param_groups[0]["params"], twin.param_groups[0]["params"], strict=True):
        assert p is not q
        np.testing.assert_array_equal(values(p), values(q))


@pytest.mark.parametrize("name", DENSE)
def test_a_loaded_checkpoint_continues_alike(name):
    first = stepped(getattr(fb.optim, name)([parameter(2, 3), parameter(4)]), times=2)
    params = [fb.nn.Parameter(p.detach().clone()) for p in first.param_groups[0]["params"]]
    second = getattr(fb.optim, name)(params)

    second.load_state_dict(copy.deepcopy(first.state_dict()))

    stepped(first, 0.5)
    stepped(second, 0.5)
    for p, q in zip(first.param_groups[0]["params"], params, strict=True):
        np.testing.assert_array_equal(values(p), values(q))


def test_loading_converts_state_to_the_parameter_but_not_the_step():
    saved = stepped(fb.optim.Adam([parameter(2)])).state_dict()
    p = fb.nn.Parameter(fb.ones(2, dtype=fb.float64))
    optimizer = fb.optim.Adam([p])

    optimizer.load_state_dict(saved)

    assert optimizer.state[p]["exp_avg"].dtype is fb.float64
    assert optimizer.state[p]["step"].dtype is fb.float32


def test_loading_refuses_groups_of_another_size():
    saved = fb.optim.SGD([parameter(1)]).state_dict()
    with pytest.raises(ValueError, match="1 parameters, the optimizer's has 2"):
        fb.optim.SGD([parameter(1), parameter(1)]).load_state_dict(saved)
    with pytest.raises(ValueError, match="0 parameter groups, the optimizer has 1"):
        fb.optim.SGD([parameter(1)]).load_state_dict({"state": {}, "param_groups": []})


def test_step_counts_of_old_checkpoints_may_be_numbers():
    optimizer = fb.optim.Adam([parameter(2)])
    saved = optimizer.state_dict()
    saved["state"] = {0: {"step": 3, "exp_avg": fb.ones(2), "exp_avg_sq": fb.ones(2)}}
    del saved["param_groups"][0]["fused"]

    optimizer.load_state_dict(saved)
    stepped(optimizer)

    assert optimizer.state_dict()["state"][0]["step"].item() == 4.0


def test_a_subclass_that_never_called_our_constructor_steps_and_takes_hooks():
    class Plain(fb.optim.Optimizer):
        def __init__(self, params):
            self.param_groups, self.state, self.defaults = [{"params": list(params)}], {}, {}

        def step(self):
            for p in self.param_groups[0]["params"]:
                p.data.sub_(p.grad)

    weight, seen = fb.nn.Parameter(fb.ones(2)), []
    optimizer = Plain([weight])
    optimizer.register_step_post_hook(lambda *_: seen.append(1))
    weight.sum().backward()

    optimizer.step()
    optimizer.zero_grad()

    assert (weight.tolist(), seen, weight.grad) == ([0, 0], [1], None)
    assert not hasattr(optimizer, "no_such_attribute")
