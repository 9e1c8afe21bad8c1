"""Pooling against scipy's filters, small cases by hand, and transposes."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
from scipy import ndimage

import flambeau as fb
import flambeau.nn.functional as F
from comparing import disagreements

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 8, 9))


def values(t: fb.Tensor) -> np.ndarray:
    return t.detach().numpy()


def test_max_pool_agrees_with_a_maximum_filter() -> None:
    expected = ndimage.maximum_filter(X, (1, 1, 3, 3), mode="constant", cval=-np.inf)[..., ::2, ::2]

    np.testing.assert_array_equal(values(F.max_pool2d(fb.tensor(X), 3, 2, 1)), expected)


def test_avg_pool_agrees_with_a_uniform_filter() -> None:
    expected = ndimage.uniform_filter(X, (0, 0, 3, 3), mode="constant")[..., ::2, ::2]

    np.testing.assert_allclose(values(F.avg_pool2d(fb.tensor(X), 3, 2, 1)), expected, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_pools_of_every_dimension(n: int) -> None:
    x = RNG.normal(size=(2, 3, *(4,) * n))
    blocks = x.reshape(2, 3, *(2, 2) * n)
    axes = tuple(3 + 2 * i for i in range(n))
    pools: list[Any] = [
        getattr(F, f"{name}{n}d")
        for name in ("max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool")
    ]

    made = [values(pool(fb.tensor(x), 2)) for pool in pools]

    for got, expected in zip(made, [blocks.max(axes), blocks.mean(axes)] * 2, strict=True):
        np.testing.assert_allclose(got, expected)


def test_ceil_mode_adds_a_window_unless_it_would_start_in_the_padding() -> None:
    x = fb.tensor([[[1.0, 2, 3, 4, 5]]])

    assert F.max_pool1d(x, 2, 2, ceil_mode=True).tolist() == [[[2, 4, 5]]]
    assert F.max_pool1d(x, 1, 3, ceil_mode=True).tolist() == [[[1, 4]]]


@pytest.mark.parametrize(("options", "expected"), [
    ({}, [1 / 2, 5 / 2, 5 / 2]),
    ({"count_include_pad": False}, [1, 5 / 2, 5]),
], ids=["padding counts", "padding does not count"])  # fmt: skip
def test_padding_in_means(options: dict[str, bool], expected: list[float]) -> None:
    x = fb.tensor([[[1.0, 2, 3, 5]]])

    assert F.avg_pool1d(x, 2, 2, 1, **options).tolist() == [[expected]]


def test_divisor_override_replaces_the_counts() -> None:
    assert F.avg_pool2d(fb.ones(1, 4, 4), 2, divisor_override=8).tolist() == [[[0.5, 0.5], [0.5, 0.5]]]


def test_indices_are_of_the_first_of_equal_values_and_count_through_the_plane() -> None:
    x = fb.tensor([[[1.0, 7, 2], [7, 0, 7]]])

    made, at = F.max_pool2d(x, 2, 1, return_indices=True)

    assert made.tolist() == [[[7, 7]]]
    assert at.tolist() == [[[1, 1]]]


def test_nan_wins() -> None:
    made, at = F.max_pool1d(fb.tensor([[1.0, float("nan"), 3.0, 4.0]]), 2, return_indices=True)

    assert np.isnan(made.numpy()[0, 0])
    assert at.tolist() == [[1, 3]]


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_gradient_of_a_maximum_goes_to_where_it_was(stride: int) -> None:
    x = fb.tensor(X).requires_grad_()
    y, at = F.max_pool2d(fb.tensor(X), 3, stride, 1, return_indices=True)
    g = RNG.normal(size=tuple(y.shape))
    expected = np.zeros((2, 3, 72))
    for plane in np.ndindex(2, 3):
        np.add.at(expected[plane], at.numpy()[plane].reshape(-1), g[plane].reshape(-1))

    F.max_pool2d(x, 3, stride, 1).backward(fb.tensor(g))

    np.testing.assert_allclose(x.grad.numpy().reshape(2, 3, 72), expected)


@pytest.mark.parametrize("pool", [
    lambda x: F.avg_pool2d(x, (3, 2), (2, 1), 1, ceil_mode=True, count_include_pad=False),
    lambda x: F.adaptive_avg_pool2d(x, (3, 4)),
    lambda x: F.adaptive_avg_pool2d(x, 1),
    lambda x: F.adaptive_avg_pool2d(x, (4, 3)),
], ids=["avg", "uneven", "global", "even"])  # fmt: skip
def test_gradients_of_means_are_transposes(pool: Any) -> None:
    x = fb.tensor(X).requires_grad_()
    direction = RNG.normal(size=X.shape)
    g = RNG.normal(size=tuple(pool(x).shape))

    pool(x).backward(fb.tensor(g))

    np.testing.assert_allclose(
        (x.grad.numpy() * direction).sum(), (g * values(pool(fb.tensor(direction)))).sum()
    )


def test_adaptive_ranges_overlap_where_they_must() -> None:
    x = fb.tensor([[[1.0, 2, 3, 4, 5]]])

    assert F.adaptive_avg_pool1d(x, 3).tolist() == [[[1.5, 3, 4.5]]]
    made, at = F.adaptive_max_pool1d(x, 3, return_indices=True)
    assert made.tolist() == [[[2, 4, 5]]]
    assert at.tolist() == [[[1, 3, 4]]]


def test_lp_pool_is_a_norm_of_each_window() -> None:
    x = fb.tensor([[[3.0, 4, 6, 8]]])

    np.testing.assert_allclose(F.lp_pool1d(x, 2, 2).numpy(), [[[5, 10]]], rtol=1e-6)
    np.testing.assert_allclose(F.lp_pool2d(fb.ones(1, 4, 4), 1, 2).numpy(), np.full((1, 2, 2), 4.0))
    np.testing.assert_allclose(
        F.lp_pool3d(fb.ones(1, 2, 2, 2), 3, 2).numpy(), np.full((1, 1, 1, 1), 2.0), rtol=1e-6
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("shape", "counts"),
    [
        ((2, 3, 100), (7,)), ((1, 2, 5000), (300,)), ((2, 3, 5), (8,)), ((1, 2, 13, 37), (6, 5)), ((2, 1, 8, 6), (4, 3)),
        ((1, 1, 2, 5000), (2, 3)), ((1, 2, 5, 6, 41), (2, 4, 3)), ((1, 2, 4, 4, 4), (2, 2, 4)),
    ],
)  # fmt: skip
def test_gradients_of_adaptive_means_are_shared_evenly_in_each_range(shape: tuple[int, ...], counts: tuple[int, ...], dtype: Any) -> None:
    n, planes = len(counts), shape[0] * shape[1]
    leaf = fb.zeros(shape, dtype=fb.from_numpy(np.zeros(1, dtype)).dtype, requires_grad=True)
    made = getattr(F, f"adaptive_avg_pool{n}d")(leaf, counts)
    grad = RNG.normal(size=made.shape).astype(dtype)
    expected = np.zeros((planes, *shape[2:]))
    for window in itertools.product(*map(range, counts)):
        at = tuple(slice(j * size // m, -(-(j + 1) * size // m)) for j, size, m in zip(window, shape[2:], counts, strict=True))
        share = grad.reshape(planes, *counts)[(slice(None), *window)] / expected[(0, *at)].size
        expected[(slice(None), *at)] += share.reshape(-1, *(1,) * n)

    made.backward(fb.tensor(grad))

    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(values(leaf.grad).reshape(expected.shape), expected, rtol=4 * eps, atol=4 * eps)


def _largest(x: np.ndarray, ends: list[list[tuple[int, int]]]) -> tuple[np.ndarray, np.ndarray]:
    """The maximum of each window of one plane, and its place: the first of equal ones, of several nan the last."""
    values, places = [], []
    for window in itertools.product(*ends):
        at = [np.ravel_multi_index(i, x.shape) for i in itertools.product(*(range(*pair) for pair in window))]
        found = [i for i in at if np.isnan(x.flat[i])][-1:] or [max(at, key=lambda i: (x.flat[i], -i))]
        values.append(x.flat[found[0]])
        places.append(found[0])
    shape = [len(e) for e in ends]
    return np.reshape(values, shape), np.reshape(places, shape)


def _with_ties_and_nan(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    x = np.random.default_rng(3).integers(-3, 3, shape).astype(dtype)
    x.reshape(-1)[::53], x.reshape(-1)[1::31] = np.nan, -np.inf
    x[0, 0] = -np.inf
    return x


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("shape", "counts"),
    [((2, 3, 100), (7,)), ((2, 3, 5), (3,)), ((1, 2, 13, 37), (6, 5)), ((2, 1, 7, 50), (3, 2)), ((1, 2, 5, 6, 41), (2, 4, 3))],
)
def test_maxima_over_uneven_ranges_and_their_places(shape: tuple[int, ...], counts: tuple[int, ...], dtype: Any) -> None:
    x, n = _with_ties_and_nan(shape, dtype), len(counts)
    ends = [[(j * size // m, -(-(j + 1) * size // m)) for j in range(m)] for size, m in zip(shape[2:], counts, strict=True)]
    expected = [_largest(plane, ends) for plane in x.reshape(-1, *shape[2:])]

    for _ in range(2):                                # the second by the plan
        made, at = getattr(F, f"adaptive_max_pool{n}d")(fb.tensor(x), counts, return_indices=True)
        values = getattr(F, f"adaptive_max_pool{n}d")(fb.tensor(x), counts)

        np.testing.assert_array_equal(made.numpy().reshape(-1, *counts), [v for v, _ in expected])
        np.testing.assert_array_equal(at.numpy().reshape(-1, *counts), [p for _, p in expected])
        np.testing.assert_array_equal(values.numpy(), made.numpy())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("extents", "kernel"), [((9, 11), (3, 2)), ((5, 40), (2, 12)), ((5, 6, 7), (2, 3, 1))])
def test_fractional_windows_of_each_plane_are_its_own(extents: tuple[int, ...], kernel: tuple[int, ...], dtype: Any) -> None:
    n, count = len(extents), 3
    x = _with_ties_and_nan((2, 3, *extents), dtype)
    samples = np.random.default_rng(0).random((2, 3, n)).astype(dtype)
    expected = []
    for plane, u in zip(x.reshape(6, *extents), samples.reshape(6, n)[:, :: -1 if n == 2 else 1].astype(float), strict=True):
        alphas = [(size - k) / (count - 1) for size, k in zip(extents, kernel, strict=True)]
        starts = [[int((j + s) * a) - int(s * a) for j in range(count - 1)] for s, a in zip(u, alphas, strict=True)]
        starts = [[*line, size - k] for line, size, k in zip(starts, extents, kernel, strict=True)]
        expected.append(_largest(plane, [[(at, at + k) for at in line] for line, k in zip(starts, kernel, strict=True)]))
    pool = getattr(F, f"fractional_max_pool{n}d")

    leaf = fb.tensor(x, requires_grad=True)
    made, at = pool(leaf, kernel, output_size=count, return_indices=True, _random_samples=fb.tensor(samples))
    np.testing.assert_array_equal(made.detach().numpy().reshape(6, *(count,) * n), [v for v, _ in expected])
    np.testing.assert_array_equal(at.numpy().reshape(6, *(count,) * n), [p for _, p in expected])
    assert made.grad_fn.name() == f"FractionalMaxPool{n}DBackward0"
    made.backward(fb.ones_like(made))
    hits = np.zeros((6, x[0, 0].size))
    for plane, (_, places) in zip(hits, expected, strict=True):
        np.add.at(plane, places.reshape(-1), 1)
    np.testing.assert_array_equal(leaf.grad.numpy().reshape(6, -1), hits)


def test_fractional_windows_under_vmap_are_those_of_each_image() -> None:
    x, samples = fb.rand(4, 1, 3, 9, 9), fb.rand(1, 3, 2)
    pool = functools.partial(F.fractional_max_pool2d, kernel_size=2, output_size=4, _random_samples=samples)

    assert fb.equal(fb.func.vmap(pool, randomness="same")(x), fb.stack([pool(image) for image in x]))


def test_fractional_windows_outside_the_input_are_refused() -> None:
    samples = fb.tensor([[[0.5, 0.5], [3e16, 0.5]]], dtype=fb.float64)

    with pytest.raises(RuntimeError, match="puts a window outside"):
        F.fractional_max_pool2d(fb.zeros(1, 2, 8, 8), 2, output_size=6, _random_samples=samples)


def test_fractional_windows_end_at_the_end_and_pick_their_maxima() -> None:
    x = fb.arange(64.0).view(1, 1, 8, 8)

    made, at = F.fractional_max_pool2d(x, 2, output_size=5, return_indices=True)

    np.testing.assert_array_equal(made.numpy().reshape(-1), at.numpy().reshape(-1))
    assert made[0, 0, -1, -1] == 63
    assert set(np.diff(made.numpy()[0, 0, -1])) <= {1.0, 2.0}
    assert tuple(F.fractional_max_pool3d(fb.rand(1, 2, 6, 6, 6), 2, output_ratio=0.5).shape) == (
        1,
        2,
        3,
        3,
        3,
    )


@pytest.mark.parametrize("n", [1, 2, 3])
def test_unpooling_puts_maxima_back(n: int) -> None:
    x = fb.tensor(RNG.uniform(1, 2, size=(1, 2, *(4,) * n)))
    pool, unpool = getattr(F, f"max_pool{n}d"), getattr(F, f"max_unpool{n}d")
    made, at = pool(x, 2, return_indices=True)

    back = unpool(made, at, 2)

    assert ((back == x) | (back == 0)).all()
    np.testing.assert_array_equal(pool(back, 2).numpy(), made.numpy())


def test_errors_say_what_does_not_fit() -> None:
    with pytest.raises(RuntimeError, match="half of effective kernel size"):
        F.max_pool1d(fb.zeros(1, 4), 2, padding=2)
    with pytest.raises(RuntimeError, match="too small"):
        F.avg_pool2d(fb.zeros(1, 2, 2), 3)
    with pytest.raises(NotImplementedError, match="bool"):
        F.max_pool1d(fb.zeros(1, 4, dtype=fb.bool), 2)


@pytest.mark.parametrize("dtype", [fb.float16, fb.float32, fb.float64])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_gradient_of_a_window_that_lies_in_the_padding_alone_goes_nowhere(n, dtype):
    pool = getattr(fb.nn.functional, f"max_pool{n}d")
    x = fb.ones(2, 3, *(1,) * n, dtype=dtype, requires_grad=True)
    for _ in range(3):
        values, places = pool(x, 2, 2, 1, 2, ceil_mode=True, return_indices=True)
        (grad,) = fb.autograd.grad(values.sum(), x)
        (other,) = fb.autograd.grad(pool(x, 2, 2, 1, 2, ceil_mode=True).sum(), x)

        assert (values == -fb.inf).all()
        assert (places >= 1).all()
        assert not grad.any()
        assert not other.any()


def test_indices_of_maxima_changed_behind_autograds_back_write_nowhere():
    x = fb.randn(2, 3, 8, 8, requires_grad=True)
    values, places = fb.nn.functional.max_pool2d(x, 2, return_indices=True)
    places.numpy()[0] = 1 << 40
    places.numpy()[1, 0] = -5

    values.sum().backward()

    assert x.grad[0].sum() == 0
    assert x.grad[1].sum() == 32


@pytest.mark.parametrize(("extent", "count"), [(30_000, 20_000), (20_001, 30_000), (50_000, 3)])
def test_adaptive_pools_into_ranges_that_are_not_even(extent: int, count: int, oracle: Any) -> None:
    values, grad = np.random.default_rng(0).standard_normal((2, extent)), np.random.default_rng(1).standard_normal((2, count))
    found = []
    for lib in (fb, oracle):
        x = lib.tensor(values[None], requires_grad=True)
        mean = lib.nn.functional.adaptive_avg_pool1d(x, count)
        largest, at = lib.nn.functional.adaptive_max_pool1d(x, count, return_indices=True)
        ((mean + largest) * lib.tensor(grad)).sum().backward()
        found.append([t.detach().numpy() for t in (mean, largest, at, x.grad)])

    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-12, 1e-12)


@pytest.mark.parametrize("shape", [(1, 0, 4, 4), (0, 4, 4), (1, 2, 0, 4), (2, 0, 4), (0, 2, 0, 4)])
def test_the_mean_of_no_elements_is_pooled(shape: Any, oracle: Any) -> None:
    found = []
    for lib in (fb, oracle):
        x = lib.zeros(shape, requires_grad=True)
        made = lib.nn.functional.adaptive_avg_pool2d(x, (1, 1))
        made.sum().backward()
        found.append((made.detach().numpy(), x.grad.numpy()))

    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(("kernel", "padding"), [((1 << 31) - 1, 0), (1 << 29, 1 << 28), (1 << 20, 7)])
@pytest.mark.parametrize("included", [True, False])
def test_windows_that_reach_far_beyond_the_input_are_pooled_at_once(kernel: int, padding: int, included: bool, oracle: Any) -> None:
    found = []
    for lib in (fb, oracle):
        x = (lib.arange(8.0).reshape(1, 2, 4) * (1 << 20)).requires_grad_()
        kinds = lib.nn.functional
        means = kinds.avg_pool1d(x, kernel, padding=padding, ceil_mode=True, count_include_pad=included)
        largest, at = kinds.max_pool1d(x, kernel, padding=padding, ceil_mode=True, return_indices=True)
        (means + largest).sum().backward()
        found.append([t.detach().numpy() for t in (means, largest, at, x.grad)])

    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-6)


@pytest.mark.parametrize("name", ["adaptive_max_pool2d", "adaptive_avg_pool2d"])
def test_no_ranges_along_one_axis_take_no_time_along_another(name: str) -> None:
    pooled = getattr(F, name)

    assert pooled(fb.ones(3, 2, 5, 5), (1 << 33, 0)).shape == (3, 2, 1 << 33, 0)
    if name == "adaptive_max_pool2d":
        values, places = pooled(fb.ones(3, 2, 5, 5), (0, 1 << 33), return_indices=True)
        assert values.shape == places.shape == (3, 2, 0, 1 << 33)
        assert places.dtype is fb.int64


def test_windows_over_three_dimensions_are_no_larger_than_the_input(oracle: Any) -> None:
    programs = """
    F.avg_pool3d(torch.ones(1, 1, 2, 2, 2), 3, ceil_mode=True)
    F.avg_pool3d(torch.ones(1, 1, 2, 4, 4), 3, ceil_mode=True)
    F.avg_pool3d(torch.ones(1, 1, 2, 2, 2), 3, padding=1)
    F.avg_pool3d(torch.ones(1, 1, 3, 3, 3), 3, padding=1)
    F.avg_pool3d(torch.ones(0, 1, 2, 2, 2), 3, ceil_mode=True)
    F.avg_pool3d(torch.ones(1, 1, 2, 4, 4, device='meta'), 3, ceil_mode=True)
    F.avg_pool2d(torch.ones(1, 1, 2, 2), 3, ceil_mode=True)
    F.lp_pool3d(torch.ones(1, 1, 2, 4, 4), 2, (3, 1, 1), ceil_mode=True)
    F.lp_pool2d(torch.ones(1, 1, 2, 2), 2, 3, ceil_mode=True)
    F.max_pool3d(torch.ones(1, 1, 2, 2, 2), 3, ceil_mode=True)
    """

    assert not disagreements(oracle, programs)


def test_norms_of_order_zero_are_pooled_as_in_pytorch(oracle: Any) -> None:
    programs = """
    F.lp_pool1d(torch.ones(1, 1, 4) * 2, 0, 2)
    F.lp_pool1d(torch.ones(1, 1, 4) * 2, 0., 2)
    F.lp_pool1d(torch.ones(1, 1, 4) * 2, False, 2)
    F.lp_pool1d(torch.ones(1, 1, 4) * 2, 0j, 2)
    F.lp_pool1d(torch.ones(1, 1, 4) * 2, np.float64(0), 2)
    F.lp_pool2d(torch.ones(1, 1, 4, 4) * 2, torch.tensor(0.), 2)
    F.lp_pool2d(torch.ones(1, 1, 4, 4) * 2, torch.tensor([2., 3., 2., 3.]), 1)
    F.lp_pool1d(torch.ones(1, 1, 4, dtype=torch.int32) * 2, 2., 2)
    F.lp_pool1d(torch.ones(1, 1, 4, dtype=torch.int32) * 2, 2, 2)
    F.lp_pool1d(torch.ones(1, 1, 4, dtype=torch.bool), 2, 2)
    torch.nn.LPPool3d(0, 2)(torch.ones(1, 1, 4, 4, 4))
    """

    assert not disagreements(oracle, programs)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("shape", "count"), [((2, 3, 700), 300), ((2, 1, 100), 301), ((1, 2, 5000), 257), ((2, 700, 3), 300), ((2, 90, 5), 400)]
)
def test_means_of_many_ranges_have_the_bits_of_one_range_after_the_other(shape, count, dtype, monkeypatch):
    from flambeau_kernels.cpu import pool as kernels

    x = np.random.default_rng(0).normal(size=shape).astype(dtype)
    counts = (count, shape[2]) if shape[2] < 10 else (shape[1], count)
    grad = np.random.default_rng(1).normal(size=(shape[0], *counts)).astype(dtype)
    means, spread = kernels._adaptive_mean(x, counts), kernels.adaptive_spread(grad, shape[1:])
    monkeypatch.setattr(kernels, "MANY_RANGES", 1 << 60)

    np.testing.assert_array_equal(means, kernels._adaptive_mean(x, counts))
    np.testing.assert_array_equal(spread, kernels.adaptive_spread(grad, shape[1:]))


def test_the_infinite_norm_of_windows_is_their_largest_or_least_magnitude() -> None:
    x = fb.tensor([[[-5.0, 1.0, 2.0, -3.0, 0.5, -7.0, 2.0]]])
    assert F.lp_pool1d(x, float("inf"), 3, 2).tolist() == [[[5, 3, 7]]]
    assert F.lp_pool1d(x, -float("inf"), 3, 2).tolist() == [[[1, 0.5, 0.5]]]
    images = fb.arange(-8.0, 8.0).reshape(1, 4, 4)
    assert F.lp_pool2d(images, float("inf"), 2).tolist() == [[[8, 6], [5, 7]]]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("stride", [1, 2, 3, 4, 5])
def test_strided_windows_along_long_rows_hold_every_element(stride, dtype):
    x = np.random.default_rng(stride).permutation(3 * 103).reshape(3, 103).astype(dtype)
    windows = np.lib.stride_tricks.sliding_window_view(x, 4, 1)[:, ::stride]
    values, places = F.max_pool1d(fb.tensor(x), 4, stride, return_indices=True)

    np.testing.assert_array_equal(F.max_pool1d(fb.tensor(x), 4, stride).numpy(), windows.max(-1))
    np.testing.assert_array_equal(values.numpy(), windows.max(-1))
    np.testing.assert_array_equal(places.numpy(), windows.argmax(-1) + np.arange(windows.shape[1]) * stride)
    np.testing.assert_array_equal(F.avg_pool1d(fb.tensor(x), 4, stride).numpy(), windows.mean(-1, dtype="float64").astype(dtype))


@pytest.mark.parametrize(("shape", "counts"), [((3, 2, 1000), (7,)), ((2, 3, 50, 103), (4, 9)), ((2, 1, 9, 11, 37), (2, 3, 5))])
def test_means_over_uneven_ranges_agree_with_means_one_axis_after_the_other(shape, counts):
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    pool = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}[len(counts)]

    exact = pool(fb.tensor(x.astype("float64")), counts).numpy()
    by_hand = x.astype("float64")
    for axis, (size, count) in enumerate(zip(shape[2:], counts, strict=True), 2):
        ranges = [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]
        by_hand = np.stack([by_hand.take(range(*r), axis).mean(axis) for r in ranges], axis)
    np.testing.assert_allclose(exact, by_hand, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(pool(fb.tensor(x), counts).numpy(), exact, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: F.adaptive_avg_pool2d(x, (2, None)), ValueError),
        (lambda x: F.adaptive_max_pool2d(x, (2, None)), ValueError),
        (lambda x: F.adaptive_avg_pool3d(x, (2, None, 1)), ValueError),
        (lambda x: F.adaptive_avg_pool3d(x[:, :0, None, None, None], (2, None, 1)), RuntimeError),
        (lambda x: F.fractional_max_pool2d(x[:, :0, None, None], 2, output_ratio=(0.5, 0.5)), RuntimeError),
    ],
)
def test_a_size_left_to_the_input_is_not_what_is_wrong_with_the_input(call, error):
    with pytest.raises(error, match="nput"):
        call(fb.zeros(2, 3))


POOLS: dict[str, Any] = {
    "max": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max, dilated": lambda x: F.max_pool2d(x, 3, (1, 2), 1, 2),
    "max, rounded up": lambda x: F.max_pool2d(x, (3, 2), (2, 3), 1, ceil_mode=True),
    "max, adaptive": lambda x: F.adaptive_max_pool2d(x, (5, 4)),
    "max, more than there are": lambda x: F.adaptive_max_pool2d(x, 30),
    "mean": lambda x: F.avg_pool2d(x, 2),
    "mean, overlapping": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "mean, padding does not count": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
    "mean, divided": lambda x: F.avg_pool2d(x, (2, 3), divisor_override=7),
    "mean, adaptive": lambda x: F.adaptive_avg_pool2d(x, (5, 4)),
    "mean, more than there are": lambda x: F.adaptive_avg_pool2d(x, 30),
    "area": lambda x: F.interpolate(x, (9, 31), mode="area"),
}


@pytest.mark.parametrize("channels", [16, 19, 100])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("name", POOLS)
def test_pools_of_channels_that_lie_last_have_the_bits_of_planes(name: str, dtype: str, channels: int) -> None:
    pool, x = POOLS[name], RNG.normal(size=(3, channels, 13, 18))
    x[0, :, :9, :9] = np.round(x[0, :, :9, :9]) + 0.0  # ties
    x[1, 3, 5, 6:8] = np.nan
    planes = fb.tensor(x).to(getattr(fb, dtype))
    last = planes.to(memory_format=fb.channels_last)
    grad = fb.tensor(RNG.normal(size=tuple(pool(planes).shape))).to(planes.dtype)

    made = []
    for each, g in ((planes, grad), (last, grad.to(memory_format=fb.channels_last))):
        with_history = each.detach().requires_grad_()
        result = pool(with_history)
        result.backward(g)
        made.append((pool(each), result, with_history.grad))

    for expected, got in zip(*made, strict=True):
        assert got.is_contiguous(memory_format=fb.channels_last)
        np.testing.assert_array_equal(got.detach().double().numpy(), expected.detach().double().numpy())


def test_long_windows_of_channels_that_lie_last_are_as_exact_as_planes() -> None:
    x = fb.tensor(RNG.normal(size=(2, 32, 57, 56)))
    expected = values(F.adaptive_avg_pool2d(x, (3, 2)))

    errors = [
        np.square(values(F.adaptive_avg_pool2d(each, (3, 2)).double()) - expected).mean()
        for each in (x.float(), x.float().to(memory_format=fb.channels_last))
    ]

    assert errors[1] <= 1.1 * errors[0]


def test_volumes_whose_channels_lie_last_have_the_maxima_of_planes_and_their_places() -> None:
    x = fb.tensor(np.round(RNG.normal(size=(2, 17, 5, 6, 7))))

    planes = F.max_pool3d(x, (2, 3, 2), 2, 1, return_indices=True)
    last = F.max_pool3d(x.to(memory_format=fb.channels_last_3d), (2, 3, 2), 2, 1, return_indices=True)

    for got, expected in zip(last, planes, strict=True):
        assert got.is_contiguous(memory_format=fb.channels_last_3d)
        assert got.tolist() == expected.tolist()
