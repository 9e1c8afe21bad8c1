"""Parameters are stepped together, large ones where they lie; nobody can tell but by the clock."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import flambeau as fb
from flambeau.optim._elementwise import ElementwiseOptimizer

SIZES = [(16,), (4, 4), (), (3,), (2, 0), (7, 5), (72, 72)]  # the last one is large
CASES = [
    ("SGD", {}), ("SGD", {"momentum": 0.9, "nesterov": True}), ("SGD", {"momentum": 0.9, "dampening": 0.5}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1}), ("AdamW", {}), ("Adamax", {}), ("NAdam", {}),
    ("RAdam", {}), ("Adagrad", {"lr_decay": 0.1}), ("Adadelta", {}),
    ("RMSprop", {"centered": True, "momentum": 0.5}), ("Rprop", {}), ("ASGD", {"t0": 2}),
]


def draw(seed, dtype=fb.float32):
    rng = np.random.default_rng(seed)
    return [fb.from_numpy(np.asarray(rng.standard_normal(s))).to(dtype) for s in SIZES]


def make(name, options, foreach, dtype=fb.float32):
    params = [fb.nn.Parameter(t) for t in draw(0, dtype)]
    return params, getattr(fb.optim, name)(params, foreach=foreach, **options)


def step(params, optimizer, seed, missing=()):
    for i, (p, g) in enumerate(zip(params, draw(seed, params[0].dtype), strict=True)):
        p.grad = None if i in missing else g
    optimizer.step()


def bits(tensor):
    return tensor.detach().double().numpy().tobytes()


def assert_same_bits(one, other):
    for p, q in zip(one[0], other[0], strict=True):
        assert bits(p) == bits(q)
    states = one[1].state_dict()["state"], other[1].state_dict()["state"]
    assert list(states[0]) == list(states[1])
    for i, state in states[0].items():
        for key, value in state.items():
            assert bits(value) == bits(states[1][i][key]), (i, key)


def buckets(optimizer):
    return optimizer._plans[0].buckets


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64, fb.bfloat16, fb.float16], ids=str)
@pytest.mark.parametrize(("name", "options"), CASES)
def test_stepping_together_gives_the_bits_of_stepping_one_by_one(name, options, dtype):
    together, alone = make(name, options, None, dtype), make(name, options, False, dtype)

    for seed in range(1, 6):
        step(*together, seed)
        step(*alone, seed)

    assert len(buckets(together[1])) == 1
    assert not together[1]._plans[0].singles
    assert not buckets(alone[1])
    assert_same_bits(together, alone)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_so_it_does_when_gradients_come_and_go(name, options):
    together, alone = make(name, options, None), make(name, options, False)

    for seed, missing in enumerate([(), (0, 3), (0,), (), (1, 2, 3, 4, 5), ()], start=1):
        step(*together, seed, missing)
        step(*alone, seed, missing)

    assert_same_bits(together, alone)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_so_it_does_when_together_they_are_large_enough_for_a_compiled_kernel(name, options):
    results = []
    for foreach in (None, False):
        rng = np.random.default_rng(0)
        values = [rng.standard_normal(64).astype("float32") for _ in range(80)]
        params = [fb.nn.Parameter(fb.from_numpy(v)) for v in values]
        optimizer = getattr(fb.optim, name)(params, foreach=foreach, **options)
        for _ in range(3):
            for p in params:
                p.grad = fb.from_numpy(rng.standard_normal(64).astype("float32"))
            optimizer.step()
        results.append([bits(p) for p in params])

    assert results[0] == results[1]


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64, fb.bfloat16, fb.float16], ids=str)
@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.3}, {"maximize": True, "lr": 1}, {"lr": np.float64(0.3)}], ids=str)
def test_so_it_does_once_the_rule_is_called_natively(options, dtype):
    together, alone = make("SGD", options, None, dtype), make("SGD", options, False, dtype)

    for seed in range(1, 40):
        for params, optimizer in (together, alone):
            step(params, optimizer, seed)
            for p in params:   # gradients that are views, rows of which lie apart, and of no memory of their own
                p.grad = [p.grad.repeat(2, 1)[::2], p.grad.t().contiguous().t()][seed % 2] if p.ndim == 2 else p.grad
            optimizer.step()

    assert_same_bits(together, alone)


def edit_in_place(params, optimizer):
    optimizer.state[params[0]]["exp_avg"].mul_(2.0)


def replace(params, optimizer):
    optimizer.state[params[1]]["exp_avg_sq"] = fb.full(params[1].shape, 3.0)


def replace_step(params, optimizer):
    optimizer.state[params[3]]["step"] = fb.tensor(40.0)


def edit_step_in_place(params, optimizer):
    optimizer.state[params[3]]["step"].fill_(40.0)


def forget(params, optimizer):
    del optimizer.state[params[2]]


def forget_all(params, optimizer):
    optimizer.state.clear()


def take_out(params, optimizer):
    del optimizer.state[params[5]]["exp_avg"]


def reload(params, optimizer):
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


def new_memory(params, optimizer):
    params[0].data = params[0].data.clone() + 1.0


def transposed_memory(params, optimizer):
    params[1].data = params[1].data.clone().t()


def write_parameter(params, optimizer):
    with fb.no_grad():
        params[5].zero_()


def other_options(params, optimizer):
    optimizer.param_groups[0].update(amsgrad=True, weight_decay=0.3, maximize=True)


def other_group(params, optimizer):
    optimizer.add_param_group({"params": [fb.nn.Parameter(fb.ones(3))], "foreach": False})


EDITS = [
    edit_in_place, replace, replace_step, edit_step_in_place, forget, forget_all, take_out, reload,
    new_memory, transposed_memory, write_parameter, other_options, other_group,
]


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("edit", EDITS)
def test_what_users_change_between_steps_is_honoured(edit, large):
    together, alone = make("Adam", {}, None), make("Adam", {}, False)
    for pair in (together, alone):
        step(*pair, 1)
        step(*pair, 2)
        edit(pair[0][-1:] * 6 if large else pair[0], pair[1])
        step(*pair, 3)
        step(*pair, 4)

    assert_same_bits(together, alone)
    untouched = make("Adam", {}, None)
    for seed in (1, 2, 3, 4):
        step(*untouched, seed)
    changed = any(bits(p) != bits(q) for p, q in zip(together[0], untouched[0], strict=True))
    assert changed is (edit not in (reload, other_group))


def test_state_tensors_have_the_shape_of_their_parameter_and_small_ones_share_one_memory():
    params, optimizer = make("Adam", {}, None)
    step(params, optimizer, 1)

    means = [optimizer.state[p]["exp_avg"] for p in params]

    assert [tuple(m.shape) for m in means] == SIZES
    assert len({m.untyped_storage().data_ptr() for m in means[:-1]}) == 1
    assert means[-1].untyped_storage().nbytes() == 72 * 72 * 4


@pytest.mark.parametrize("which", [0, -1])
def test_a_state_tensor_stays_the_same_object_over_steps(which):
    params, optimizer = make("Adam", {}, None)
    step(params, optimizer, 1)
    before = optimizer.state[params[which]]["exp_avg"]

    step(params, optimizer, 2)

    assert optimizer.state[params[which]]["exp_avg"] is before


@pytest.mark.parametrize("which", [0, -1])
def test_versions_count_the_steps(which):
    params, optimizer = make("Adam", {}, None)
    step(params, optimizer, 1)
    before = params[which]._version, optimizer.state[params[which]]["exp_avg"]._version

    step(params, optimizer, 2)

    assert params[which]._version == before[0] + 1
    assert optimizer.state[params[which]]["exp_avg"]._version == before[1] + 1


def test_parameters_over_the_same_memory_are_not_stepped_together():
    p = fb.nn.Parameter(fb.zeros(4))
    q, apart = fb.nn.Parameter(p.data[1:]), fb.nn.Parameter(fb.zeros(3))
    p.grad, q.grad, apart.grad = fb.ones(4), fb.ones(3), fb.ones(3)

    fb.optim.SGD([p, apart, q], lr=1.0).step()

    assert p.detach().tolist() == [-1.0, -2.0, -2.0, -2.0]
    assert apart.detach().tolist() == [-1.0] * 3


@pytest.mark.parametrize(("name", "options"), CASES)
def test_gradients_of_a_large_parameter_may_lie_otherwise(name, options):
    together, alone = make(name, options, None), make(name, options, False)
    for params, optimizer in (together, alone):
        for seed in (1, 2, 3):
            step(params, optimizer, seed)
            params[-1].grad = params[-1].grad.t()
            optimizer.step()
            params[-1].grad = fb.ones(1).expand(72, 72)
            optimizer.step()

    assert_same_bits(together, alone)


def test_one_large_parameter_is_planned_too():
    params = [fb.nn.Parameter(fb.zeros(72, 72))]
    optimizer = fb.optim.Adam(params, lr=0.5)
    params[0].grad = fb.ones(72, 72)

    optimizer.step()

    assert not optimizer._plans[0].singles
    fb.testing.assert_close(params[0].detach(), fb.full((72, 72), -0.5))


def test_large_and_small_parameters_mix():
    params = [fb.nn.Parameter(fb.ones(5000)), fb.nn.Parameter(fb.ones(3)), fb.nn.Parameter(fb.ones(4))]
    optimizer = fb.optim.SGD(params, lr=0.25)
    for p in params:
        p.grad = fb.ones_like(p).detach()

    optimizer.step()

    assert [set(p.detach().tolist()) for p in params] == [{0.75}] * 3


def test_every_elementwise_optimizer_is_covered_here():
    covered = {name for name, _ in CASES}

    for name in fb.optim.__all__:
        getattr(fb.optim, name)                       # modules are imported when a name of theirs is read
    assert {c.__name__ for c in ElementwiseOptimizer.__subclasses__()} | {"AdamW"} == covered
