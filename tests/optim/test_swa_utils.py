"""Weight averaging."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
from flambeau.optim import swa_utils


class Affine(fb.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = fb.nn.Parameter(fb.ones(3))
        self.register_buffer("offset", fb.zeros(1))

    def forward(self, x):
        return x * self.weight + self.offset


def averaged(values, **options):
    """The average after the model's weight has had these values."""
    model = Affine()
    average = swa_utils.AveragedModel(model, **options)
    for value in values:
        with fb.no_grad():
            model.weight.fill_(value)
            model.offset.fill_(value * 10)
        average.update_parameters(model)
    return average


def test_the_default_is_the_mean_of_all_models():
    average = averaged([1.0, 2.0, 6.0])

    np.testing.assert_allclose(average.module.weight.detach().numpy(), 3.0, 1e-6)
    assert average.n_averaged.item() == 3
    assert average(fb.ones(3)).detach().numpy() == pytest.approx(3.0 + 60.0)


@pytest.mark.parametrize("options", [
    {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.75)}, {"avg_fn": swa_utils.get_ema_avg_fn(0.75)},
])
def test_the_exponential_average_keeps_its_decay(options):
    average = averaged([1.0, 2.0, 6.0], **options)

    expected = 0.75 * (0.75 * 1.0 + 0.25 * 2.0) + 0.25 * 6.0
    np.testing.assert_allclose(average.module.weight.detach().numpy(), expected, 1e-6)


@pytest.mark.parametrize("options", [
    {"multi_avg_fn": swa_utils.get_swa_multi_avg_fn()}, {"avg_fn": swa_utils.get_swa_avg_fn()},
])
def test_the_named_mean_is_the_default(options):
    np.testing.assert_allclose(averaged([1.0, 5.0], **options).module.weight.detach().numpy(), 3.0, 1e-6)


def test_buffers_are_copied_or_averaged():
    assert averaged([1.0, 3.0]).module.offset.item() == 30.0
    assert averaged([1.0, 3.0], use_buffers=True).module.offset.item() == 20.0


def test_the_average_is_apart_from_the_model_and_named_after_it():
    model = Affine()
    average = swa_utils.AveragedModel(model)
    with fb.no_grad():
        model.weight.fill_(9.0)

    assert average.module.weight.detach().tolist() == [1.0, 1.0, 1.0]
    assert list(average.state_dict()) == ["n_averaged", "module.weight", "module.offset"]


def test_refuses_two_functions_and_decays_outside_one():
    with pytest.raises(AssertionError, match="only one"):
        swa_utils.AveragedModel(Affine(), avg_fn=lambda a, b, c: a, multi_avg_fn=lambda a, b, c: None)
    with pytest.raises(ValueError, match="2"):
        swa_utils.get_ema_multi_avg_fn(2)


def test_update_bn_takes_plain_means_over_the_batches():
    rng = np.random.default_rng(0)
    batches = [rng.standard_normal((4, 2)).astype("float32") + i for i in range(3)]
    layer = fb.nn.BatchNorm1d(2)
    model = fb.nn.Sequential(layer).eval()

    swa_utils.update_bn(
        [fb.from_numpy(b) if i else (fb.from_numpy(b), i) for i, b in enumerate(batches)], model
    )

    np.testing.assert_allclose(layer.running_mean.numpy(), np.mean([b.mean(0) for b in batches], 0), 1e-5)
    np.testing.assert_allclose(
        layer.running_var.numpy(), np.mean([b.var(0, ddof=1) for b in batches], 0), 1e-5
    )
    assert (layer.momentum, model.training) == (0.1, False)
