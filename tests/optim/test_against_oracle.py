"""Every optimizer and option, step by step against the oracle: parameters, state, checkpoints."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb

torch = pytest.importorskip("torch")

SHAPES = [(3, 4), (5,), (), (2, 1, 3)]
CASES = [
    ("SGD", {}),
    ("SGD", {"momentum": 0.9}),
    ("SGD", {"momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1, "maximize": True}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("Adam", {}),
    ("Adam", {"betas": (0.0, 0.5)}),
    ("Adam", {"betas": (0.3, 0.99), "weight_decay": 0.1, "amsgrad": True}),
    ("Adam", {"weight_decay": 0.1, "maximize": True}),
    ("Adam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("AdamW", {}),
    ("AdamW", {"weight_decay": 0.3, "amsgrad": True, "maximize": True}),
    ("Adamax", {"weight_decay": 0.1}),
    ("Adamax", {"maximize": True, "betas": (0.4, 0.9)}),
    ("NAdam", {}),
    ("NAdam", {"weight_decay": 0.1, "momentum_decay": 0.01}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    ("RAdam", {}),
    ("RAdam", {"betas": (0.9, 0.8), "weight_decay": 0.1}),
    ("RAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    ("Adagrad", {"lr_decay": 0.5, "weight_decay": 0.1, "initial_accumulator_value": 0.1}),
    ("Adagrad", {"maximize": True}),
    ("Adadelta", {"rho": 0.8, "weight_decay": 0.1}),
    ("Adadelta", {"maximize": True, "lr": 0.5}),
    ("RMSprop", {}),
    ("RMSprop", {"momentum": 0.5, "weight_decay": 0.1}),
    ("RMSprop", {"centered": True, "alpha": 0.9}),
    ("RMSprop", {"centered": True, "momentum": 0.5, "maximize": True, "alpha": 0.4}),
    ("Rprop", {}),
    ("Rprop", {"etas": (0.4, 1.5), "step_sizes": (1e-3, 0.02), "maximize": True}),
    ("ASGD", {"lambd": 0.1, "weight_decay": 0.1}),
    ("ASGD", {"t0": 2, "alpha": 0.5, "maximize": True}),
]
ADAFACTOR = [
    ("Adafactor", {}),
    ("Adafactor", {"weight_decay": 0.1, "maximize": True, "d": 1.5}),
    ("Adafactor", {"beta2_decay": -1.0, "eps": (1e-5, 1e-2)}),
]
# A few units in the last place of a step, accumulated over the steps below.
TOLERANCE = {"float32": (2e-6, 2e-7), "float64": (1e-13, 1e-14), "complex64": (2e-6, 2e-7)}
STEPS = 7


def draw(dtype, seed, shapes=SHAPES):
    rng = np.random.default_rng(seed)
    made = [
        rng.standard_normal(s) + (1j * rng.standard_normal(s) if dtype.startswith("c") else 0) for s in shapes
    ]
    return [np.asarray(m, dtype) for m in made]


def trained(T, name, options, dtype, seed=0, shapes=SHAPES, skip=lambda step, i: False):
    """Parameters and optimizer after some steps; `skip` says which parameters have no gradient in a step."""
    params = [T.nn.Parameter(T.from_numpy(a.copy())) for a in draw(dtype, seed, shapes)]
    optimizer = getattr(T.optim, name)(params, **options)
    for step in range(STEPS):
        for i, (p, g) in enumerate(zip(params, draw(dtype, 100 + step, shapes), strict=True)):
            p.grad = None if skip(step, i) else T.from_numpy(g)
        optimizer.step()
    return params, optimizer


def plain(tensor):
    return tensor.detach().numpy()


def assert_agree(ours, theirs, dtype):
    rtol, atol = TOLERANCE[dtype]
    if isinstance(ours[1], fb.optim.ASGD) and dtype == "float64":
        # The oracle rounds the learning rate to float32 at places that depend on its implementation.
        rtol, atol = 1e-7, 1e-8
    for i, (p, q) in enumerate(zip(ours[0], theirs[0], strict=True)):
        np.testing.assert_allclose(plain(p), plain(q), rtol, atol, err_msg=f"parameter {i}")
    mine, reference = ours[1].state_dict()["state"], theirs[1].state_dict()["state"]
    assert list(mine) == list(reference)
    for i in mine:
        assert list(mine[i]) == list(reference[i])
        for key, value in mine[i].items():
            expected = plain(reference[i][key])
            assert (plain(value).dtype, plain(value).shape) == (expected.dtype, expected.shape)
            np.testing.assert_allclose(plain(value), expected, rtol, atol, err_msg=f"{key} of parameter {i}")


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("foreach", [None, False, True])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_steps_give_the_oracles_numbers(name, options, foreach, dtype):
    options = {**options, "foreach": foreach}

    assert_agree(trained(fb, name, options, dtype), trained(torch, name, options, dtype), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "options"), ADAFACTOR)
def test_adafactor_gives_the_oracles_numbers(name, options, dtype):
    # The means over rows and columns may be added in another order.
    ours, theirs = trained(fb, name, options, dtype), trained(torch, name, options, dtype)

    for p, q in zip(ours[0], theirs[0], strict=True):
        np.testing.assert_allclose(plain(p), plain(q), 2e-5 if dtype == "float32" else 1e-12, 1e-6)
    mine, reference = ours[1].state_dict()["state"], theirs[1].state_dict()["state"]
    assert [list(mine[i]) for i in mine] == [list(reference[i]) for i in reference]


@pytest.mark.parametrize(("name", "options"), [c for c in CASES if c[0] in ("SGD", "Adam", "ASGD", "NAdam")])
def test_parameters_that_miss_gradients_keep_their_own_step_count(name, options):
    def skip(step, i):
        return (step + i) % 3 == 0

    ours, theirs = (trained(T, name, options, "float32", skip=skip) for T in (fb, torch))

    assert_agree(ours, theirs, "float32")


@pytest.mark.parametrize(("name", "options"), CASES + ADAFACTOR)
def test_checkpoints_of_the_oracle_can_be_continued(name, options):
    params, trainer = trained(torch, name, options, "float64")
    saved = trainer.state_dict()

    def continued(T):
        def convert(value):
            return T.from_numpy(np.array(plain(value)))

        mine = [T.nn.Parameter(convert(p)) for p in params]
        optimizer = getattr(T.optim, name)(mine)
        state = {i: {k: convert(v) for k, v in entry.items()} for i, entry in saved["state"].items()}
        optimizer.load_state_dict({**saved, "state": state})
        for p, g in zip(mine, draw("float64", 500), strict=True):
            p.grad = T.from_numpy(g)
        optimizer.step()
        return mine, optimizer

    assert_agree(continued(fb), continued(torch), "float64")


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "Rprop"])
def test_rates_held_in_tensors_are_read_at_each_step(name):
    results = []
    for T in (fb, torch):
        rate = T.tensor(0.05)
        p = T.nn.Parameter(T.ones(3))
        optimizer = getattr(T.optim, name)([p], lr=rate)
        for value in (0.05, 0.5):
            rate.fill_(value)
            p.grad = T.tensor([1.0, -2.0, 0.5])
            optimizer.step()
        results.append(plain(p))

    np.testing.assert_allclose(results[0], results[1], 1e-6)


def test_printed_form_is_the_oracles():
    def text(T):
        groups = [
            {"params": [T.nn.Parameter(T.ones(2))]},
            {"params": [T.nn.Parameter(T.ones(2))], "lr": 0.5, "x": "y"},
        ]
        return str(T.optim.AdamW(groups, lr=0.25))

    assert text(fb) == text(torch)
