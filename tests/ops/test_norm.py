"""Normalization against its defining formulas, and its derivatives against finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as fb
import flambeau.nn.functional as F
import flambeau_kernels as kernels
from flambeau.utils.flop_counter import FlopCounterMode

RNG = np.random.default_rng(0)
X = RNG.normal(2.0, 3.0, size=(4, 6, 5))
W, B = RNG.normal(size=6), RNG.normal(size=6)
EPS = 1e-5


def standardized(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + EPS)


def per_channel(p: np.ndarray) -> np.ndarray:
    return p[:, None]


def layer(x: Any, w: Any, b: Any) -> Any:
    return F.layer_norm(x.transpose(1, 2), (6,), w, b)


def batch(x: Any, w: Any, b: Any) -> Any:
    return F.batch_norm(x, None, None, w, b, training=True)


def group(x: Any, w: Any, b: Any) -> Any:
    return F.group_norm(x, 2, w, b)


def instance(x: Any, w: Any, b: Any) -> Any:
    return F.instance_norm(x, weight=w, bias=b)


def rms(x: Any, w: Any, b: Any) -> Any:
    return F.rms_norm(x.transpose(1, 2), (6,), w, EPS) + b


EXPECTED = {
    layer: standardized(X.swapaxes(1, 2), (2,)) * W + B,
    batch: standardized(X, (0, 2)) * per_channel(W) + per_channel(B),
    group: standardized(X.reshape(4, 2, 3, 5), (2, 3)).reshape(X.shape) * per_channel(W) + per_channel(B),
    instance: standardized(X, (2,)) * per_channel(W) + per_channel(B),
    rms: X.swapaxes(1, 2) / np.sqrt((X.swapaxes(1, 2) ** 2).mean(-1, keepdims=True) + EPS) * W + B,
}


@pytest.mark.parametrize("norm", EXPECTED, ids=lambda f: f.__name__)
def test_values(norm: Any) -> None:
    made = norm(*map(fb.tensor, (X, W, B)))

    np.testing.assert_allclose(made.numpy(), EXPECTED[norm], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("norm", EXPECTED, ids=lambda f: f.__name__)
def test_first_and_second_derivatives_agree_with_finite_differences(norm: Any) -> None:
    def loss(*arrays: np.ndarray) -> float:
        return float((norm(*map(fb.tensor, arrays)) ** 3).sum())

    def slopes(*arrays: np.ndarray) -> list[np.ndarray]:
        operands = [fb.tensor(a).requires_grad_() for a in arrays]
        (norm(*operands) ** 3).sum().backward()
        return [t.grad.numpy() for t in operands]

    arrays = (X, W, B)
    directions = [RNG.normal(size=a.shape) for a in arrays]
    step = 1e-6
    above, below = ([a + s * d for a, d in zip(arrays, directions, strict=True)] for s in (step, -step))
    operands = [fb.tensor(a).requires_grad_() for a in arrays]
    first = fb.autograd.grad((norm(*operands) ** 3).sum(), operands, create_graph=True)
    along = sum((g * fb.tensor(d)).sum() for g, d in zip(first, directions, strict=True))
    second = fb.autograd.grad(along, operands)

    np.testing.assert_allclose(float(along), (loss(*above) - loss(*below)) / (2 * step), rtol=1e-6)
    for mine, raw, up, down in zip(second, slopes(*arrays), slopes(*above), slopes(*below), strict=True):
        expected = (up - down) / (2 * step)
        np.testing.assert_allclose(mine.numpy(), expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
        assert raw.shape == mine.shape
    for raw, through_tensors in zip(slopes(*arrays), first, strict=True):
        np.testing.assert_allclose(raw, through_tensors.detach().numpy(), rtol=1e-8, atol=1e-9)


def test_variance_survives_a_mean_far_from_zero() -> None:
    # Squares of 3e4 leave float32 no digits for a deviation of 1.
    x = (X.reshape(4, -1) + 3e4).astype(np.float32)
    expected = standardized(x.astype(np.float64), (1,))

    made = F.layer_norm(fb.tensor(x), (30,)).numpy()
    by_channel = F.batch_norm(fb.tensor(x.T.copy()), None, None, training=True).numpy()

    np.testing.assert_allclose(made, expected, atol=2e-3)
    np.testing.assert_allclose(by_channel[:, 0] * 0, 0)
    assert np.abs(by_channel).max() < 6


def test_training_moves_running_statistics_in_place_by_momentum() -> None:
    mean, var = fb.zeros(6, dtype=fb.float64), fb.ones(6, dtype=fb.float64)
    kept = mean

    F.batch_norm(fb.tensor(X), mean, var, training=True, momentum=0.25)

    assert kept is mean
    assert mean._version == 1
    np.testing.assert_allclose(mean.numpy(), 0.25 * X.mean((0, 2)))
    np.testing.assert_allclose(var.numpy(), 0.75 + 0.25 * X.var((0, 2), ddof=1))


def test_evaluation_uses_and_keeps_running_statistics() -> None:
    mean, var = RNG.normal(size=6), RNG.uniform(0.5, 2, size=6)
    running = [fb.tensor(mean), fb.tensor(var)]

    y = F.batch_norm(fb.tensor(X), *running, fb.tensor(W), fb.tensor(B))

    expected = (X - per_channel(mean)) / np.sqrt(per_channel(var) + EPS) * per_channel(W) + per_channel(B)
    np.testing.assert_allclose(y.numpy(), expected)
    np.testing.assert_array_equal(running[0].numpy(), mean)


def test_instance_norm_running_statistics_are_averages_over_images() -> None:
    mean, var = fb.zeros(6, dtype=fb.float64), fb.zeros(6, dtype=fb.float64)

    F.instance_norm(fb.tensor(X), mean, var, momentum=1.0)

    np.testing.assert_allclose(mean.numpy(), X.mean(2).mean(0))
    np.testing.assert_allclose(var.numpy(), X.var(2, ddof=1).mean(0))


def test_one_value_per_channel_is_refused_in_training() -> None:
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        F.batch_norm(fb.zeros(1, 3), None, None, training=True)


def test_half_input_is_rounded_once_and_takes_float_parameters() -> None:
    x = X.astype(np.float16)

    y = F.layer_norm(fb.tensor(x), (6, 5), fb.ones(6, 5), fb.zeros(6, 5))

    assert y.dtype is fb.float16
    np.testing.assert_array_equal(y.numpy(), standardized(x.astype(np.float32), (1, 2)).astype(np.float16))


@pytest.mark.parametrize("dtype", [fb.float32, fb.bfloat16])
@pytest.mark.parametrize("channels_last", [False, True])
def test_a_node_shows_the_statistics_that_were_found_and_those_that_were_moved(dtype: Any, channels_last: bool) -> None:
    x = fb.randn(3, 2, 4, 5).to(dtype)
    x = (x.to(memory_format=fb.channels_last) if channels_last else x).requires_grad_()
    mean, variance = fb.zeros(2), fb.ones(2)

    node = F.batch_norm(x, mean, variance, training=True).grad_fn

    assert node._saved_running_mean.tolist() == mean.tolist() != [0, 0]
    assert node._saved_running_var.tolist() == variance.tolist() != [1, 1]
    np.testing.assert_allclose((node._saved_result1 * 0.1).numpy(), mean.numpy(), rtol=1e-6)


def test_moments_of_a_batch_have_no_history() -> None:
    x = fb.randn(3, 2, 4, requires_grad=True)

    out, mean, inverse = fb.native_batch_norm(x, None, None, fb.zeros(2), fb.ones(2), True, 0.1, 1e-5)

    assert out.requires_grad
    assert not mean.requires_grad
    assert not inverse.requires_grad
    assert type(out.grad_fn).__name__ == "NativeBatchNormBackward0"


def test_no_images_make_running_statistics_of_images_nan_and_leave_those_of_batches() -> None:
    of_images, of_batches = fb.zeros(2), fb.zeros(2)

    F.instance_norm(fb.ones(0, 2, 3), of_images, fb.ones(2))
    F.batch_norm(fb.ones(0, 2, 3), of_batches, fb.ones(2), training=True)

    assert of_images.isnan().all()
    assert of_batches.tolist() == [0, 0]


def test_native_forms_return_statistics() -> None:
    _, mean, inverse = fb.native_batch_norm(fb.tensor(X), None, None, None, None, True, 0.1, EPS)
    _, layer_mean, _ = fb.native_layer_norm(fb.tensor(X), (6, 5), None, None, EPS)
    _, group_mean, _ = fb.native_group_norm(fb.tensor(X), None, None, 4, 6, 5, 2, EPS)

    np.testing.assert_allclose(mean.numpy(), X.mean((0, 2)))
    np.testing.assert_allclose(inverse.numpy(), 1 / np.sqrt(X.var((0, 2)) + EPS))
    np.testing.assert_allclose(layer_mean.numpy(), X.mean((1, 2), keepdims=True))
    np.testing.assert_allclose(group_mean.numpy(), X.reshape(4, 2, -1).mean(2))


def test_local_response_norm_divides_by_neighbouring_channels() -> None:
    squares = np.pad(X**2, [(0, 0), (1, 1), (0, 0)])
    around = (squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]) / 3

    y = F.local_response_norm(fb.tensor(X), 3, alpha=0.5, beta=0.75, k=2.0)

    np.testing.assert_allclose(y.numpy(), X / (2 + 0.5 * around) ** 0.75)


def test_normalized_vectors_have_length_one_and_zeros_stay() -> None:
    x = np.array([[3.0, 4.0], [0.0, 0.0]])

    assert F.normalize(fb.tensor(x)).tolist() == [[0.6, 0.8], [0.0, 0.0]]


@pytest.mark.parametrize("size", [(2, 3, 4), (4, 96, 64)])
@pytest.mark.parametrize("norm", [F.layer_norm, F.rms_norm], ids=["layer_norm", "rms_norm"])
def test_rows_that_lie_across_memory(norm: Any, size: tuple[int, ...]) -> None:
    images = fb.randn(*size, dtype=fb.float64)
    found = []
    for x in (images.mT, images.mT.contiguous()):
        leaf = x.detach().requires_grad_()
        made = norm(leaf, size[1:2])
        made.sin().sum().backward()
        found.append((made, leaf.grad))

    assert fb.allclose(found[0][0], found[1][0])
    assert fb.allclose(found[0][1], found[1][1])


@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 4), (2, 3, 5, 5)], ids=str)
@pytest.mark.parametrize("dtype", [fb.float32, fb.float64], ids=str)
def test_batch_norm_by_running_statistics_has_the_same_bits_however_it_is_called(shape: tuple[int, ...], dtype: Any) -> None:
    fb.manual_seed(3)
    x, mean, variance = fb.randn(shape, dtype=dtype) + 7, fb.randn(3, dtype=dtype) + 7, fb.rand(3, dtype=dtype) + 0.1
    x[0, 0] = mean[0]                                 # a difference of 0, whose sign the weight decides
    for weight, bias in ((fb.tensor([-1.5, 0.3, 1.7], dtype=dtype), fb.randn(3, dtype=dtype)), (None, None)):
        usual = F.batch_norm(x, mean, variance, weight, bias)
        in_order = fb.batch_norm(x, weight, bias, mean, variance, False, 0.1, 1e-5, False)
        turned = F.batch_norm(x.transpose(0, -1).contiguous().transpose(0, -1), mean, variance, weight, bias)
        with FlopCounterMode(display=False):
            counted = F.batch_norm(x, mean, variance, weight, bias)

        for other in (in_order, turned, counted):
            assert other.contiguous().numpy().tobytes() == usual.numpy().tobytes()


@pytest.mark.parametrize("shape", [(24, 24), (300, 16), (2, 8, 24, 24)], ids=str)
@pytest.mark.parametrize("step", [0, 2], ids=["expanded", "every second"])
def test_batch_norm_by_statistics_that_are_not_contiguous_reads_only_them(shape: tuple[int, ...], step: int) -> None:
    fb.manual_seed(1)
    c = shape[1]
    x = fb.randn(shape)
    x = x.to(memory_format=fb.channels_last) if x.ndim == 4 else x
    parts = [fb.full((2 * c,), 1e9).as_strided((c,), (step,)) for _ in range(4)]
    for part in parts:
        own = part[:1] if step == 0 else part
        own[:] = fb.rand(len(own)) + 0.5
    made = []
    for mean, variance, weight, bias in (parts, [p.contiguous() for p in parts]):
        operands = [p.detach().requires_grad_() for p in (x, weight, bias)]
        y = F.batch_norm(operands[0], mean, variance, *operands[1:])
        made.append([y, *fb.autograd.grad(y, operands, y.detach())])

    for of_strided, of_contiguous in zip(*made, strict=True):
        assert of_strided.equal(of_contiguous)


@pytest.mark.parametrize("shape", [(3, 5), (4, 1000), (40, 200), (2, 4, 6, 6)], ids=str)
@pytest.mark.parametrize("call", [F.normalize, F.cosine_similarity], ids=["normalize", "cosine_similarity"])
def test_directions_along_rows_have_the_same_bits_whether_they_are_recorded_or_not(shape: tuple[int, ...], call: Any) -> None:
    fb.manual_seed(2)
    x = fb.randn(shape)
    others = () if call is F.normalize else (fb.randn(shape),)

    recorded = call(x.clone().requires_grad_(), *others, dim=-1).detach()

    assert call(x, *others, dim=-1).numpy().tobytes() == recorded.numpy().tobytes()


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_rms_norm_of_halves_with_a_float_weight_is_of_halves_and_rounded_once(kind: str) -> None:
    x = fb.tensor(RNG.normal(size=(8, 33))).to(getattr(fb, kind))
    weight = fb.tensor(RNG.normal(size=33), dtype=fb.float32)

    made = F.rms_norm(x, (33,), weight)

    wide = x.double()
    expected = wide * (wide.square().mean(-1, keepdim=True) + fb.finfo(fb.float32).eps).rsqrt() * weight.double()
    assert made.dtype is x.dtype
    assert (made == expected.to(x.dtype)).double().mean() > 0.98  # float32 beneath rounds elsewhere now and then
    assert F.rms_norm(x.float(), (33,), weight.double()).dtype is fb.float32


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize(("shape", "groups", "offset"), [((4, 64, 32, 32), 8, 0), ((2, 19, 47, 13), 19, 5), ((2, 100, 9, 50), 5, 0),
                                                         ((2, 32, 5, 12, 11), 4, 30)])  # fmt: skip
def test_groups_of_channels_that_lie_last_are_normalized_as_exactly_as_planes(shape, groups, offset, dtype):
    form, kind = (fb.channels_last if len(shape) == 4 else fb.channels_last_3d), getattr(fb, dtype)
    rng = np.random.default_rng(3)
    x, weight, bias, grad = (
        fb.tensor(rng.normal(size=size) + move).to(kind) for size, move in ((shape, offset), (shape[1], 0), (shape[1], 0), (shape, 0))
    )

    def gradients(*operands, memory):
        image, *parameters, g = operands
        given = [t.detach().to(memory_format=memory) if t.ndim > 1 else t.detach() for t in (image, *parameters)]
        for t in given:
            t.requires_grad_()
        out = F.group_norm(given[0], groups, *given[1:])
        out.backward(g.to(memory_format=memory))
        assert out.is_contiguous(memory_format=memory)
        return [t.detach().double().numpy() for t in (out, *(t.grad for t in given))]

    threads = fb.get_num_threads()
    try:
        made = []
        for count in (1, 3):
            fb.set_num_threads(count)
            made.append(gradients(x, weight, bias, grad, memory=form))
    finally:
        fb.set_num_threads(threads)
    for one, several in zip(*made, strict=True):
        np.testing.assert_array_equal(one, several)
    planes = gradients(x, weight, bias, grad, memory=fb.contiguous_format)
    if dtype == "float64":
        for got, expected in zip(made[0], planes, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-11)
        return
    exact = gradients(*(t.double() for t in (x, weight, bias, grad)), memory=fb.contiguous_format)
    # numpy sums in float32, in another order on each processor: means are right to half a rounding of theirs.
    of_means = fb.finfo(kind).eps / 2 * (abs(offset) + 1) if kernels.backend() == "numpy" else 0.0
    for got, before, expected in zip(made[0], planes, exact, strict=True):
        assert np.square(got - expected).mean() ** 0.5 <= max(1.25 * np.square(before - expected).mean() ** 0.5, of_means)


def test_groups_of_channels_that_lie_last_keep_to_themselves_what_is_not_finite():
    x = fb.tensor(np.random.default_rng(3).normal(size=(2, 32, 20, 20)))
    x[0, 3, 4, 5], x[1, 30, 1, 1] = fb.inf, fb.nan

    made = F.group_norm(x.to(memory_format=fb.channels_last), 4)

    expected = F.group_norm(x, 4)
    assert made.isnan().tolist() == expected.isnan().tolist()
    np.testing.assert_allclose(made.numpy(), expected.numpy(), rtol=1e-12, atol=1e-12)
