"""Kernels that take the place of a few of numpy's calls have their bits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import flambeau as fb
from flambeau.ops.creation import ranges
from flambeau.ops.images import grid_sampling
from flambeau_kernels import hot_calls, takeover
from flambeau_kernels.cpu.linear_algebra import distance_rows
from flambeau_kernels.cpu.losses import ctc
from flambeau_kernels.cpu.tier import compiles
from flambeau_kernels.engine.builtins import launchers

pytestmark = pytest.mark.skipif(not compiles(), reason="nothing can be compiled here")


def is_native(run):
    """Whether the kernel of a twin has taken over."""
    found = dict(zip(run.__code__.co_freevars, [c.cell_contents for c in run.__closure__], strict=True))
    return found["native"] is not None if "native" in found else is_native(found["run"])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("squared", [True, False])
def test_distances_of_few_rows(dtype, squared, monkeypatch):
    monkeypatch.setattr(takeover, "CALL", 1e9)
    rng = np.random.default_rng(0)
    for lead, m, n, d in itertools.product(((), (2,), (2, 3)), (1, 3), (1, 4), (1, 7, 8, 20)):
        x, y = rng.normal(size=(*lead, m, d)).astype(dtype), rng.normal(size=(*lead, n, d)).astype(dtype)
        off = x[..., :, None, :] - y[..., None, :, :]
        expected = np.sqrt(np.add.reduce(off * off, -1)) if squared else np.add.reduce(np.abs(off), -1)
        run = distance_rows.planned(x.shape, y.shape, np.dtype(dtype), squared)

        assert all(run(x, y).tobytes() == expected.tobytes() for _ in range(4))
        assert is_native(run)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_evenly_spaced_numbers(dtype, monkeypatch):
    monkeypatch.setattr(takeover, "CALL", 1e9)
    ranges._steps_by_kernel.cache_clear()
    dtype = np.dtype(dtype)
    run = ranges._steps_by_kernel(dtype)
    for start, end, steps in itertools.product((0, -0.0, 0.1, -3, 1e30), (1, -0.0, 7.3, 10**6), (2, 5, 40, 41, 1000)):
        expected = ranges._between(start, end, steps, dtype)

        assert all(run(start, end, steps)[0].tobytes() == expected.tobytes() for _ in range(3))
    assert is_native(run)


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64])
def test_dropout_draws_the_same_in_both_ways(dtype):
    x = fb.rand(5, 7, dtype=dtype) + 1
    for p, seed in itertools.product((0.3, 0.5), range(400)):
        fb.manual_seed(seed)
        made = fb.nn.functional.dropout(x, p)
        fb.manual_seed(seed)
        coins = fb.empty(5, 7, dtype=dtype).bernoulli_(1 - p)

        assert ((made == 0) == (coins == 0)).all()
        np.testing.assert_allclose(made.numpy(), (x * coins / (1 - p)).numpy(), rtol=1e-6)


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_images_looked_up_at_points(dtype, mode, padding, monkeypatch):
    monkeypatch.setattr(takeover, "CALL", 1e9)
    for align, shape in itertools.product((True, False), ((1, 3, 7, 8), (2, 2, 5, 1))):
        x, grid = fb.randn(shape, dtype=dtype), fb.rand(shape[0], 3, 4, 2, dtype=dtype) * 3 - 1.5
        grid[0, 0, 0, 0] = float("nan")
        expected = grid_sampling._grid_sample("grid_sample", x, grid, mode, padding, align)

        for _ in range(5):
            made = fb.nn.functional.grid_sample(x, grid, mode, padding, align)
            assert made.numpy().tobytes() == expected.numpy().tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ctc_of_both_tiers(dtype, monkeypatch):
    rng = np.random.default_rng(0)
    for steps, batch, classes, width in ((1, 2, 3, 0), (6, 3, 4, 2), (9, 2, 3, 4), (40, 5, 7, 12)):
        logs = np.log(rng.dirichlet(np.ones(classes), (steps, batch))).astype(dtype)
        targets, grad = rng.integers(1, classes, (batch, width)), rng.normal(size=batch).astype(dtype)
        inputs, lengths = rng.integers(0, steps + 1, batch), rng.integers(0, width + 1, batch)
        made, kept = ctc.ctc(logs, targets, inputs, lengths, 0)
        slope = ctc.ctc_grad(grad, logs, inputs, lengths, kept, True)
        with monkeypatch.context() as by_numpy:
            by_numpy.setattr(ctc, "compiles", lambda: False)
            expected, kept = ctc.ctc(logs, targets, inputs, lengths, 0)
            wanted = ctc.ctc_grad(grad, logs, inputs, lengths, kept, True)

        tolerance = 1e-4 if dtype is np.float32 else 1e-10
        np.testing.assert_allclose(made, expected, rtol=tolerance)
        np.testing.assert_allclose(slope, wanted, rtol=tolerance, atol=tolerance)
        few = ctc.losses_by_kernel(logs, targets, inputs, lengths, 0, 0, False)
        assert few.tobytes() == made.tobytes()


def test_ctc_of_few_samples_leaves_wrong_arguments_alone():
    logs, targets, lengths = np.zeros((3, 2, 4), np.float32), np.array([[1], [2]]), np.array([1, 1])

    assert ctc.losses_by_kernel(logs, targets, np.array([3, 4]), lengths, 0, 2, False) is None
    assert ctc.losses_by_kernel(logs, targets, np.array([3, 3]), np.array([1, 2]), 0, 2, False) is None
    assert ctc.losses_by_kernel(logs, np.array([[1], [4]]), np.array([3, 3]), lengths, 0, 2, False) is None


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64])
@pytest.mark.parametrize("name", ["uniform_", "normal_", "bernoulli_", "exponential_"])
def test_draws_in_place_are_the_same_with_and_without_launchers(dtype, name, monkeypatch):
    if not launchers.load():
        pytest.skip("no launchers here")
    for shape in ((4, 4), (7,), (), (0,), (40, 50)):
        x = fb.empty(shape, dtype=dtype)
        getattr(x, name)()                            # by which the kernel is there
        found = []
        for redraws in (launchers.load()["redraws"], hot_calls.refuse):
            monkeypatch.setattr(hot_calls, "redraws", redraws)
            fb.manual_seed(3)
            version = x._version
            found.append([getattr(x, name)().numpy().tobytes() for _ in range(60)])
            assert x._version == version + 60

        assert found[0] == found[1]


def test_draws_in_place_go_to_memory_that_may_be_written_alone(monkeypatch):
    if not launchers.load():
        pytest.skip("no launchers here")
    monkeypatch.setattr(hot_calls, "redraws", launchers.load()["redraws"])
    x = fb.zeros(4, 4)
    x[:, 1].uniform_()
    x.t()[2:].uniform_()
    leaf = fb.zeros(4, requires_grad=True)

    assert (x[:, 0] == 0).all()
    with pytest.raises(RuntimeError, match="leaf"):
        leaf.uniform_()
