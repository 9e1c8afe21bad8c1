"""Padding, interpolation, sampling and rearrangement against numpy, scipy and small cases by hand."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
from scipy import ndimage

import flambeau as fb
import flambeau.nn.functional as F
from flambeau.ops._spec import OPS
from flambeau_kernels import takeover
from flambeau_kernels.cpu.tier import compiles

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 5, 6))


@pytest.mark.parametrize(
    ("mode", "numpy_mode"),
    [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap"), ("constant", "constant")],
)
def test_padding_agrees_with_numpy(mode: str, numpy_mode: str) -> None:
    made = F.pad(fb.tensor(X), (1, 2, 3, 4), mode)

    np.testing.assert_array_equal(made.numpy(), np.pad(X, [(0, 0), (0, 0), (3, 4), (1, 2)], numpy_mode))


def test_negative_padding_cuts_and_constants_fill() -> None:
    x = fb.tensor([[1, 2, 3], [4, 5, 6]])

    assert fb.constant_pad_nd(x, (-1, 1), 9).tolist() == [[2, 3, 9], [5, 6, 9]]
    assert F.pad(x, (0, -2, 1, 0), value=7).tolist() == [[7], [1], [4]]


def transposes(fn: Any, *shape: int) -> None:
    """Assert that the gradient of the linear `fn` is its transpose."""
    x = fb.tensor(RNG.normal(size=shape)).requires_grad_()
    direction = RNG.normal(size=shape)
    y = fn(x)
    g = RNG.normal(size=tuple(y.shape))
    y.backward(fb.tensor(g))

    np.testing.assert_allclose(
        (x.grad.numpy() * direction).sum(), (g * fn(fb.tensor(direction)).numpy()).sum()
    )


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular", "constant"])
@pytest.mark.parametrize("amounts", [(2, 3, 1, 4), (-1, 2, 3, -2)], ids=["grow", "grow and cut"])
def test_gradients_of_padding_are_transposes(mode: str, amounts: tuple[int, ...]) -> None:
    transposes(lambda x: F.pad(x, amounts, mode), 2, 3, 5, 6)


@pytest.mark.parametrize("options", [
    {"mode": "nearest"}, {"mode": "nearest-exact"}, {"mode": "area"}, {"mode": "bilinear"}, {"mode":
    "bilinear", "align_corners": True}, {"mode": "bicubic"},
    {"mode": "bilinear", "antialias": True}, {"mode": "bicubic", "antialias": True},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("size", [(9, 4), (3, 11)], ids=str)
def test_gradients_of_interpolation_are_transposes(options: dict[str, Any], size: tuple[int, int]) -> None:
    transposes(lambda x: F.interpolate(x, size, **options), 2, 3, 5, 6)


def test_aligned_corners_interpolate_like_numpy() -> None:
    x = RNG.normal(size=7)
    expected = np.interp(np.linspace(0, 6, 16), np.arange(7), x)

    made = F.interpolate(fb.tensor(x[None, None]), 16, mode="linear", align_corners=True)

    np.testing.assert_allclose(made.numpy()[0, 0], expected)


def test_unaligned_centres_interpolate_like_scipy() -> None:
    at = (np.arange(10) + 0.5) * 5 / 10 - 0.5, (np.arange(9) + 0.5) * 6 / 9 - 0.5
    expected = ndimage.map_coordinates(X[0, 0], np.meshgrid(*at, indexing="ij"), order=1, mode="nearest")

    made = F.interpolate(fb.tensor(X), (10, 9), mode="bilinear")

    np.testing.assert_allclose(made.numpy()[0, 0], expected)


def test_cubic_interpolation_spreads_an_impulse_by_keys_kernel() -> None:
    # The kernel with a = -0.75 at distances 1/4, 3/4, 5/4 and 7/4.
    kernel = [0.87890625, 0.26171875, -0.10546875, -0.03515625]
    x = fb.zeros(1, 1, 1, 8)
    x[..., 3] = 1

    made = F.interpolate(x, (1, 16), mode="bicubic").numpy()[0, 0, 0]

    np.testing.assert_allclose(made, [0, 0, 0, *kernel[::-1], *kernel, 0, 0, 0, 0, 0])


def test_nearest_and_its_exact_form_differ_by_half_an_element() -> None:
    x = fb.arange(5.0).view(1, 1, 5)

    assert F.interpolate(x, 3).tolist() == [[[0, 1, 3]]]
    assert F.interpolate(x, 3, mode="nearest-exact").tolist() == [[[0, 2, 4]]]
    assert F.interpolate(x, scale_factor=2)[0, 0].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    with pytest.warns(UserWarning, match="upsample_nearest` is deprecated"):
        made = F.upsample_nearest(fb.tensor(X), scale_factor=2)
    np.testing.assert_array_equal(made.numpy(), X.repeat(2, 2).repeat(2, 3))
    with pytest.warns(UserWarning, match="upsample_bilinear` is deprecated"):
        made = F.upsample_bilinear(fb.tensor(X), (9, 9))
    np.testing.assert_array_equal(
        made.numpy(), F.interpolate(fb.tensor(X), (9, 9), mode="bilinear", align_corners=True).numpy()
    )


def test_antialiased_halving_weighs_by_a_triangle_twice_as_wide() -> None:
    x = np.zeros(8)
    x[3] = 1
    made = F.interpolate(
        fb.tensor(np.broadcast_to(x, (1, 1, 8, 8)).copy()), (8, 4), mode="bilinear", antialias=True
    )

    np.testing.assert_allclose(made.numpy()[0, 0, 0], [0, 3 / 8, 1 / 8, 0])


def test_area_is_adaptive_mean() -> None:
    x = fb.arange(5.0).view(1, 1, 5)

    assert F.interpolate(x, 2, mode="area").tolist() == [[[1, 3]]]


def test_bytes_are_rounded_to_bytes() -> None:
    x = fb.tensor([[[[0, 255]]]], dtype=fb.uint8)

    assert F.interpolate(x, (1, 4), mode="bilinear").tolist() == [[[[0, 64, 191, 255]]]]


def coordinates(n: int) -> tuple[np.ndarray, np.ndarray]:
    """A grid of points, some outside, and the same points in elements, rows first."""
    grid = RNG.uniform(-1.4, 1.4, size=(1, 7, 1, 2))
    return grid, np.stack([((grid[..., d] + 1) * size - 1) / 2 for d, size in ((1, 5), (0, 6))])


@pytest.mark.parametrize(
    ("padding", "scipy_mode"), [("zeros", "grid-constant"), ("border", "nearest"), ("reflection", "reflect")]
)
def test_sampling_agrees_with_scipy(padding: str, scipy_mode: str) -> None:
    grid, at = coordinates(2)
    expected = ndimage.map_coordinates(X[0, 1], at.reshape(2, -1), order=1, mode=scipy_mode)

    made = F.grid_sample(fb.tensor(X[:1]), fb.tensor(grid), padding_mode=padding, align_corners=False)

    np.testing.assert_allclose(made.numpy()[0, 1].reshape(-1), expected, atol=1e-12)


def test_gradient_of_sampling_agrees_with_finite_differences() -> None:
    grid, _ = coordinates(2)
    for mode in ("bilinear", "bicubic"):
        points = fb.tensor(grid).requires_grad_()
        F.grid_sample(fb.tensor(X[:1]), points, mode, align_corners=False).sum().backward()
        direction, step = RNG.normal(size=grid.shape), 1e-7

        up, down = (
            float(F.grid_sample(fb.tensor(X[:1]), fb.tensor(grid + s * direction), mode, align_corners=False).sum())
            for s in (step, -step)
        )

        np.testing.assert_allclose(
            (points.grad.numpy() * direction).sum(), (up - down) / (2 * step), rtol=1e-5
        )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize(
    ("extents", "pad"),
    [((9,), (3, 2)), ((9, 11), (3, 2, 1, 4)), ((5, 70), (4, -2, -1, 3)), ((5, 6, 7), (1, 2, 3, 0, 2, 4)), ((4, 5), (0, 0, 0, 0))],
)
def test_gradients_of_padding_return_to_where_elements_came_from(
    extents: tuple[int, ...], pad: tuple[int, ...], mode: str, dtype: Any
) -> None:
    leaf = fb.zeros(2, 3, *extents, dtype=fb.from_numpy(np.zeros(1, dtype)).dtype, requires_grad=True)
    size = int(np.prod(extents))
    came_from = F.pad(fb.arange(float(size)).view(1, 1, *extents), pad, mode).long().numpy().reshape(-1)
    made = F.pad(leaf, pad, mode)
    grad = RNG.normal(size=made.shape).astype(dtype)
    expected = np.zeros((6, size))
    for plane, given in zip(expected, grad.reshape(6, -1), strict=True):
        np.add.at(plane, came_from, given)

    made.backward(fb.tensor(grad))

    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(leaf.grad.numpy().reshape(6, size), expected, rtol=4 * eps, atol=16 * eps)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("extents", [(5, 6), (3, 4, 5)], ids=str)
def test_the_identity_map_samples_the_input_itself(extents: tuple[int, ...], align: bool) -> None:
    n = len(extents)
    x = fb.tensor(RNG.normal(size=(1, 2, *extents)))
    theta = fb.eye(n, n + 1, dtype=fb.float64).unsqueeze(0)

    for mode in ("bilinear", "nearest"):
        made = F.grid_sample(x, F.affine_grid(theta, x.shape, align), mode, align_corners=align)
        np.testing.assert_allclose(made.numpy(), x.numpy(), atol=1e-12)


def test_pixel_shuffle_moves_channels_into_pixels_and_back() -> None:
    x = fb.arange(16.0).view(1, 4, 2, 2)

    made = F.pixel_shuffle(x, 2)

    assert made[0, 0].tolist() == [[0, 4, 1, 5], [8, 12, 9, 13], [2, 6, 3, 7], [10, 14, 11, 15]]
    np.testing.assert_array_equal(F.pixel_unshuffle(made, 2).numpy(), x.numpy())


def test_channel_shuffle_interleaves_groups() -> None:
    x = fb.arange(6.0).view(1, 6, 1)

    assert F.channel_shuffle(x, 2).flatten().tolist() == [0, 3, 1, 4, 2, 5]


def test_unfold_lists_windows_and_fold_counts_how_often_elements_are_in_them() -> None:
    x = fb.tensor(X)
    windows = np.lib.stride_tricks.sliding_window_view(X, (3, 2), (2, 3))

    columns = F.unfold(x, (3, 2))

    np.testing.assert_array_equal(columns.numpy(), windows.transpose(0, 1, 4, 5, 2, 3).reshape(2, 18, 15))
    counts = F.fold(F.unfold(fb.ones(1, 1, 4, 4), 2), 4, 2)
    assert counts[0, 0].tolist() == [[1, 2, 2, 1], [2, 4, 4, 2], [2, 4, 4, 2], [1, 2, 2, 1]]
    transposes(lambda t: F.fold(t, (5, 6), (3, 2), padding=1, stride=2), 1, 18, 12)


def test_settings_that_do_not_go_together_are_refused() -> None:
    x = fb.tensor(X)

    with pytest.raises(ValueError, match="only one of size or scale_factor"):
        F.interpolate(x, 2, 2.0)
    with pytest.raises(ValueError, match="align_corners"):
        F.interpolate(x, 2, mode="nearest", align_corners=True)
    with pytest.raises(NotImplementedError, match="trilinear"):
        F.interpolate(x, 2, mode="trilinear")
    with pytest.raises(RuntimeError, match="less than the corresponding input dimension"):
        F.pad(x, (6, 0, 0, 0), "reflect")
    with pytest.raises(ValueError, match="bilinear"):
        F.grid_sample(x, fb.zeros(2, 1, 1, 2), "linear")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.filterwarnings("ignore:Default grid_sample and affine_grid behavior has changed")
@pytest.mark.parametrize("align", [False, True, None])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_compiled_look_up_has_the_bits_of_the_general_way(mode: str, padding: str, align: Any, dtype: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(takeover, "CALL", 1e9)
    rng = np.random.default_rng(0)
    for shape, places in [((2, 3, 8, 8), (5, 7)), ((1, 1, 1, 1), (3, 2)), ((2, 1, 1, 6), (1, 4)), ((3, 40, 4, 5), (30, 20))]:
        x = rng.standard_normal(shape).astype(dtype)
        points = rng.uniform(-1.5, 1.5, (shape[0], *places, 2)).astype(dtype)
        points[0, 0, 0], points[0, -1, -1] = (np.nan, -1), (np.inf, 1)
        points[0, 0, 1], points[-1, -1, 0] = (-np.inf, 1e30), (-1, 0)
        x[0, 0, 0, 0] = np.inf
        for values in (x, x.transpose(0, 1, 3, 2)):
            given = fb.tensor(np.ascontiguousarray(values)), fb.tensor(points)
            general = OPS["nn.functional.grid_sample"].run(*given, mode, padding, align)
            for _ in range(2):  # plans of the first call have loops from the second on
                made = F.grid_sample(*given, mode, padding, align)
            assert (made.shape, made.dtype, made.stride()) == (general.shape, general.dtype, general.stride())
            np.testing.assert_array_equal(made.numpy(), general.numpy())
            assert made.isnan().sum() or made.numpy().tobytes() == general.numpy().tobytes()
    leaf = fb.tensor(x, requires_grad=True)
    assert F.grid_sample(leaf, fb.tensor(points), mode, padding, align).requires_grad
    for wrong in (points[:1], points[..., :1], np.zeros(points.shape, np.float16)):
        with pytest.raises(RuntimeError, match="expected"):
            F.grid_sample(leaf, fb.tensor(wrong), mode, padding, align)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_compiled_look_up_in_volumes_has_the_bits_of_the_composition(mode, padding, monkeypatch):
    monkeypatch.setattr(takeover, "CALL", 1e9)
    for align, dtype, extents, places in itertools.product(
        (False, True), (np.float32, np.float64), ((3, 4, 5), (1, 2, 1)), ((1, 2, 3), (9, 7, 8))
    ):
        volumes, points, _ = _looked_up_at_points(extents, (*places[:1], places[1] + 2, *places[2:]), dtype)
        points[0, 0, 0, 0], points[1, 0, 0, 0] = (np.nan, 0.5, -0.5), (0.25, np.inf, 1e30)
        given = fb.tensor(volumes), fb.tensor(points)
        expected = OPS["nn.functional.grid_sample"].run(*given, mode, padding, align)

        for _ in range(2):
            made = F.grid_sample(*given, mode, padding, align)
        np.testing.assert_array_equal(made.numpy(), expected.numpy())


# -- points of images, by kernels --------------------------------------------------------------------------------------------


def _looked_up_at_points(extents, places, dtype, special=False):
    numbers = np.random.default_rng(0)
    images = numbers.standard_normal((2, 5, *extents)).astype(dtype)
    points = (numbers.random((2, *places, len(extents))) * 6 - 3).astype(dtype)
    if special:
        points[0, 1, 2, ..., :2], points[1, 0, 1, ..., :2], points[0, 0, 0, ..., :2] = (np.nan, 0.3), (0.2, np.inf), (-np.inf, np.nan)
        points[1, 1, :4, ..., -2:] = np.reshape([(-1, -1), (1, 1), (1e30, 0), (0, -1e30)], (4, *(1,) * (len(extents) - 2), 2))
    return images, points, numbers.standard_normal((2, 5, *places)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("extents", "places", "modes"), [
    ((17, 9), (23, 31), ("bilinear", "nearest", "bicubic")), ((1, 3), (2, 4), ("bilinear", "bicubic")),
    ((5, 4, 7), (6, 5, 9), ("bilinear", "nearest")), ((2, 1, 3), (2, 5, 1), ("bilinear", "nearest")),
])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("special", [False, True])
def test_looked_up_points_and_their_gradients_are_the_compositions(dtype, extents, places, modes, padding, align, special):
    for mode in modes:
        _agrees_with_the_composition(_looked_up_at_points(extents, places, dtype, special), mode, padding, align)


def _agrees_with_the_composition(operands, mode, padding, align):
    from flambeau.ops.images import grid_sampling

    images, points, grad = operands
    made = []
    for way in ("short", "composed"):
        x, at = fb.from_numpy(images.copy()).requires_grad_(), fb.from_numpy(points.copy()).requires_grad_()
        out = (
            fb.nn.functional.grid_sample(x, at, mode, padding, align) if way == "short"
            else grid_sampling._grid_sample("grid_sample", x, at, mode, padding, align)
        )  # fmt: skip
        out.backward(fb.from_numpy(grad))
        made.append((out.detach().numpy(), x.grad.numpy(), at.grad.numpy()))
    tolerance = 1e-5 if images.dtype == np.float32 else 1e-12

    assert np.array_equal(made[0][0], made[1][0], equal_nan=True)
    for found, expected in zip(made[0][1:], made[1][1:], strict=True):
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * 20)


@pytest.mark.parametrize("channels", [1, 4, 17])
def test_gradients_of_one_operand_and_of_any_number_of_channels(channels):
    numbers = np.random.default_rng(0)
    images, points = numbers.standard_normal((1, channels, 6, 7)), numbers.random((1, 70, 63, 2)) * 2 - 1
    both = [fb.from_numpy(a).requires_grad_() for a in (images, points)]
    fb.nn.functional.grid_sample(*both, align_corners=True).square().sum().backward()

    for wanted in (0, 1):
        given = [fb.from_numpy(a).requires_grad_(i == wanted) for i, a in enumerate((images, points))]
        fb.nn.functional.grid_sample(*given, align_corners=True).square().sum().backward()

        assert fb.equal(given[wanted].grad, both[wanted].grad)
        assert given[1 - wanted].grad is None


@pytest.mark.parametrize(
    ("extents", "mode", "padding"),
    [((7, 9), "bilinear", "zeros"), ((7, 9), "bicubic", "zeros"), ((7, 9), "bicubic", "reflection"), ((3, 4, 5), "bilinear", "reflection")],
)
def test_looked_up_points_differentiate_again(extents, mode, padding):
    from flambeau.ops.images import grid_sampling

    numbers = np.random.default_rng(0)
    images, points = numbers.standard_normal((1, 4, *extents)), numbers.random((1, 5, *extents[1:], len(extents))) * 3 - 1.5
    made = []
    for by in (F.grid_sample, functools.partial(grid_sampling._grid_sample, "grid_sample")):
        x, at = fb.from_numpy(images).requires_grad_(), fb.from_numpy(points).requires_grad_()
        first = fb.autograd.grad(by(x * 2, at, mode, padding, False).square().sum(), (x, at), create_graph=True)
        made.append(fb.autograd.grad(first[0].square().sum() + first[1].square().sum(), (x, at)))

    for one, other in zip(*made, strict=True):
        assert fb.allclose(one, other, rtol=1e-9)


@pytest.mark.skipif(not compiles(), reason="no compiler")
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_looked_up_points_are_recorded_as_one_operation_and_not_as_a_composition(mode):
    image = fb.ones(1, 3, 4, 4, requires_grad=True)

    made = F.grid_sample(image, fb.zeros(1, 2, 2, 2), mode, "reflection", align_corners=False)

    assert made.grad_fn.name() == "GridSampler2DBackward0"


@pytest.mark.skipif(not compiles(), reason="no compiler")
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_points_of_volumes_are_recorded_as_one_operation_and_not_as_a_composition(mode):
    volume = fb.ones(1, 3, 4, 4, 4, requires_grad=True)

    made = F.grid_sample(volume, fb.zeros(1, 2, 2, 2, 3), mode, align_corners=False)

    assert made.grad_fn.name() == "GridSampler3DBackward0"


@pytest.mark.parametrize("shape", [(0, 3, 2, 2), (0, 3, 2, 2, 2)])
def test_grid_sample_of_no_images_has_a_history(shape: tuple[int, ...]) -> None:
    images = fb.zeros(shape, requires_grad=True)
    grid = fb.zeros(0, *shape[2:], len(shape) - 2, requires_grad=True)
    made = F.grid_sample(images, grid, align_corners=False)
    made.sum().backward()
    assert made.shape == shape
    assert images.grad.shape == shape
    assert grid.grad.shape == grid.shape


RESAMPLED: list[dict[str, Any]] = [
    {"scale_factor": 2},
    {"size": (5, 31)},
    {"size": (31, 9), "mode": "nearest-exact"},
    {"scale_factor": 2, "mode": "bilinear"},
    {"size": (31, 5), "mode": "bilinear", "align_corners": True},
    {"size": (31, 5), "mode": "bicubic"},
    {"size": (7, 5), "mode": "bilinear", "antialias": True},
]


@pytest.mark.parametrize("channels", [3, 16, 19, 100])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("options", RESAMPLED, ids=str)
def test_images_whose_channels_lie_last_are_resampled_to_the_bits_of_planes(options: dict[str, Any], dtype: str, channels: int) -> None:
    x = RNG.normal(size=(2, channels, 13, 18))
    x[1, 2, 5, 6:10:3] = np.nan, np.inf
    planes = fb.tensor(x).to(getattr(fb, dtype))
    grad = fb.tensor(RNG.normal(size=tuple(F.interpolate(planes, **options).shape))).to(planes.dtype)

    made = []
    for form in (fb.contiguous_format, fb.channels_last):
        image = planes.detach().to(memory_format=form).requires_grad_()
        result = F.interpolate(image, **options)
        result.backward(grad.to(memory_format=form))
        assert result.is_contiguous(memory_format=form)
        assert image.grad.is_contiguous(memory_format=form)
        made.append((F.interpolate(image.detach(), **options), result, image.grad))

    for got, expected in zip(*reversed(made), strict=True):
        np.testing.assert_array_equal(got.detach().double().numpy(), expected.detach().double().numpy())


@pytest.mark.parametrize("mode", ["nearest", "trilinear"])
def test_volumes_whose_channels_lie_last_are_resampled_as_volumes_in_rows_are(mode: str) -> None:
    x = fb.tensor(RNG.normal(size=(2, 17, 3, 4, 5)))

    expected, got = (F.interpolate(x.to(memory_format=form), (5, 3, 7), mode=mode) for form in (fb.contiguous_format, fb.channels_last_3d))

    assert got.is_contiguous(memory_format=fb.channels_last_3d)
    np.testing.assert_array_equal(got.numpy(), expected.numpy())


def test_bytes_whose_channels_lie_last_are_copied_to_the_nearest() -> None:
    x = fb.tensor(RNG.integers(0, 256, (2, 3, 4, 5))).to(fb.uint8)

    got = F.interpolate(x.to(memory_format=fb.channels_last), (7, 3))

    assert got.is_contiguous(memory_format=fb.channels_last)
    assert got.tolist() == F.interpolate(x, (7, 3)).tolist()


def test_points_are_looked_up_alike_with_the_corners_left_to_the_default() -> None:
    image, points = fb.tensor(RNG.normal(size=(2, 3, 5, 6))), fb.tensor(RNG.uniform(-1.1, 1.1, (2, 40, 50, 2)))

    for _ in range(3):  # the kernel takes over from one call to the next
        with pytest.warns(UserWarning, match="align_corners"):
            made = F.grid_sample(image, points)
        assert made.tolist() == F.grid_sample(image, points, align_corners=False).tolist()


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_images_and_points_in_any_order_of_memory_are_looked_up_alike(mode: str) -> None:
    image, flow = fb.tensor(RNG.normal(size=(2, 3, 5, 6))), fb.tensor(RNG.uniform(-1.1, 1.1, (2, 2, 40, 50)))
    made = []

    for form in (fb.contiguous_format, fb.channels_last):
        x, points = image.to(memory_format=form).detach().clone().requires_grad_(), flow.permute(0, 2, 3, 1)
        points = (points.contiguous() if form is fb.contiguous_format else points).detach().requires_grad_()
        for _ in range(3):
            out = F.grid_sample(x, points, mode=mode, align_corners=True)
        out.sum().backward()
        assert out.is_contiguous()
        made.append((out.tolist(), x.grad.tolist(), points.grad.tolist()))

    assert made[0] == made[1]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize(("shape", "grid"), [((2, 3, 7, 70), (2, 40, 50, 2)), ((1, 2, 3, 5, 9), (1, 5, 20, 21, 3))], ids=["2-d", "3-d"])
def test_halves_are_looked_up_by_the_roundings_of_the_composition(
    shape: tuple[int, ...], grid: tuple[int, ...], align: bool, padding: str, mode: str, dtype: str
) -> None:
    kind = getattr(fb, dtype)
    image, points = fb.tensor(RNG.normal(size=shape)).to(kind), fb.tensor(RNG.uniform(-1.4, 1.4, grid))
    points.view(-1)[:3] = fb.tensor([float("nan"), float("inf"), -float("inf")])
    points = points.to(kind)
    how = {"mode": mode, "padding_mode": padding, "align_corners": align}

    recorded = F.grid_sample(image.clone().requires_grad_(), points, **how)

    for _ in range(3):  # the kernel takes over from one call to the next
        np.testing.assert_array_equal(F.grid_sample(image, points, **how).float().numpy(), recorded.detach().float().numpy())


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "reflection"])
@pytest.mark.parametrize(("shape", "grid"), [((2, 5, 7, 30), (2, 40, 50, 2)), ((1, 3, 3, 5, 9), (1, 5, 20, 21, 3))], ids=["2-d", "3-d"])
def test_images_whose_channels_lie_last_are_looked_up_to_the_bits_of_planes(
    shape: tuple[int, ...], grid: tuple[int, ...], padding: str, mode: str, dtype: str
) -> None:
    if mode == "bicubic" and len(shape) == 5:
        pytest.skip("of images alone")
    image = fb.tensor(RNG.normal(size=shape)).to(getattr(fb, dtype))
    last = image.to(memory_format=fb.channels_last if image.ndim == 4 else fb.channels_last_3d)
    points = fb.tensor(RNG.uniform(-1.4, 1.4, grid)).to(image.dtype)
    how = {"mode": mode, "padding_mode": padding, "align_corners": False}

    for _ in range(3):  # the kernel takes over from one call to the next
        results = []
        for x in (image, last):
            of = x.detach().requires_grad_(), points.detach().requires_grad_()
            made = F.grid_sample(*of, **how)
            results.append((F.grid_sample(x, points, **how), made, *fb.autograd.grad(made.sum(), of)))
            assert made.is_contiguous()
        for got, expected in zip(*reversed(results), strict=True):
            np.testing.assert_array_equal(got.detach().double().numpy(), expected.detach().double().numpy())
