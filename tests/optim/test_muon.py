"""Muon, beside PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("shape", [(2, 3), (6, 4), (5, 5), (1, 7)])
@pytest.mark.parametrize(
    "options",
    [
        {}, {"nesterov": False, "weight_decay": 0.0}, {"adjust_lr_fn": "original", "momentum": 0.5}, {"adjust_lr_fn": "match_rms_adamw"},
        {"ns_steps": 2, "ns_coefficients": (2.0, -1.5, 0.5)},
    ],
)  # fmt: skip
def test_steps_are_those_of_torch(shape, options):
    rng = np.random.default_rng(0)
    start, grads = rng.standard_normal(shape).astype(np.float32), rng.standard_normal((4, *shape)).astype(np.float32)
    ends = []
    for lib in (fb, torch):
        p = lib.nn.Parameter(lib.tensor(start))
        optimizer = lib.optim.Muon([p], lr=0.1, **options)
        for grad in grads:
            p.grad = lib.tensor(grad)
            optimizer.step()
        ends.append((p.detach().numpy(), optimizer.state[p]["momentum_buffer"].numpy(), optimizer.state_dict()["param_groups"]))

    # The iteration is in bfloat16: sums that are added in another order are rounded to the same numbers nearly always.
    np.testing.assert_allclose(ends[0][0], ends[1][0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ends[0][1], ends[1][1], rtol=1e-5, atol=1e-6)
    assert ends[0][2] == ends[1][2]


@pytest.mark.parametrize(
    ("shape", "options"),
    [((2,), {}), ((2, 2), {"lr": -1}), ((2, 2), {"momentum": -1}), ((2, 2), {"weight_decay": -1}), ((2, 2), {"adjust_lr_fn": "q"})],
)
def test_what_does_not_fit_is_refused_in_torchs_words(shape, options):
    said = []
    for lib in (fb, torch):
        with pytest.raises(ValueError, match=r"(?i)muon|rate|momentum|decay") as caught:
            lib.optim.Muon([lib.nn.Parameter(lib.ones(shape))], **options)
        said.append(str(caught.value))

    assert said[0] == said[1]


@pytest.mark.parametrize("options", [{"ns_steps": 100}, {"ns_coefficients": (1, 2)}])
def test_an_iteration_that_cannot_be_is_refused(options):
    p = fb.nn.Parameter(fb.ones(2, 2))
    p.grad = fb.ones(2, 2)
    with pytest.raises(ValueError, match=r"steps must be less|exactly 3"):
        fb.optim.Muon([p], **options).step()
