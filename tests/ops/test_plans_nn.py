"""Short ways of comparisons, losses, layers and pools: the fallback's results, dtypes, strides, history and errors."""

from __future__ import annotations

import functools
import itertools
import re

import numpy as np
import pytest

import flambeau as fb
from flambeau.ops._refusal import refusal, types_of
from flambeau.ops._spec import OPS

F = fb.nn.functional
_TOLERANCES = {fb.float16: 2e-3, fb.bfloat16: 2e-2, fb.float32: 3e-6, fb.float64: 1e-13, fb.complex64: 3e-6}


def general(op: str, args: tuple) -> object:
    """What the fallback makes of `args`, or the error it raises."""
    record = OPS[op]
    given = dict(zip(record.params, args, strict=False))
    args = tuple(given.get(name, record.defaults.get(name)) for name in record.params)
    try:
        return record.run(*args)
    except Exception as error:  # of two things that are wrong schemas name the types, as calls do
        raise refusal(op.rpartition(".")[2], record.params, args, record.defaults, False, error, types_of(record)) or error from None


def outcome(call, *args) -> object:
    try:
        return call(*args)
    except Exception as error:
        return error


def named(error: object) -> str:
    """The argument that a TypeError is about."""
    return re.findall(r"argument '(\w+)'", str(error))[0]


def same(made: object, expected: object) -> None:
    if isinstance(expected, Exception):
        assert type(made) is type(expected)
        # Calls may name an argument of another type before the fallback does, in the words of schemas.
        assert str(made) == str(expected) or isinstance(made, TypeError) and named(made) == named(expected)
    elif isinstance(expected, tuple):
        assert type(made) is type(expected)
        for m, e in zip(made, expected, strict=True):
            same(m, e)
    elif isinstance(expected, fb.Tensor):
        assert type(made) is fb.Tensor
        assert (made.dtype, made.shape, made.stride(), made.requires_grad) == (
            expected.dtype, expected.shape, expected.stride(), expected.requires_grad)  # fmt: skip
        values = [(t.float() if t.dtype is fb.bfloat16 else t).detach().numpy() for t in (made, expected)]
        np.testing.assert_allclose(*values, rtol=_TOLERANCES.get(made.dtype, 0), atol=1e-7)
        assert (made.grad_fn is None) == (expected.grad_fn is None)
    else:
        assert type(made) is type(expected)
        assert made == expected


def agree(op: str, *args: object) -> None:
    """The public function of `op` does as the fallback, and passes the same gradients."""
    record, expected = OPS[op], outcome(general, op, args)
    count = len(record.positional)
    named = dict(zip(record.keyword_only, args[count:], strict=False))
    # Plans are made in a first call and used by others.
    for _ in range(2):
        made = outcome(functools.partial(record.function, **named), *args[:count])
        same(made, expected)
    leaves = [a for a in args if isinstance(a, fb.Tensor) and a.requires_grad]
    if leaves and isinstance(expected, fb.Tensor) and expected.requires_grad:
        weights = fb.rand(expected.shape, dtype=expected.dtype)
        found = fb.autograd.grad((made * weights).sum(), leaves, allow_unused=True)
        wanted = fb.autograd.grad((expected * weights).sum(), leaves, allow_unused=True)
        for f, w in zip(found, wanted, strict=True):
            assert (f is None) == (w is None)
            if f is not None:
                same(f.detach(), w.detach())


def layouts(*shape: int, dtype: str = "float32") -> list[fb.Tensor]:
    """A contiguous tensor, a transposed one, one of every second element, and a leaf."""
    made = fb.rand(shape).to(getattr(fb, dtype))
    found = [made]
    if len(shape) > 1:
        found += [made.transpose(-1, -2).contiguous().transpose(-1, -2), fb.cat([made, made], -1)[..., ::2]]
    if made.is_floating_point():
        found.append(made.clone().requires_grad_())
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "uint8", "bool", "complex64"])
def test_comparisons(dtype):
    kind = getattr(fb, dtype)
    shapes = [(), (0,), (3,), (2, 3)]
    for shape in shapes:
        a = (fb.rand(shape) * 3).to(kind)
        for b in (a, a.clone(), (fb.rand(shape) * 3).to(kind), fb.zeros(2, 3, dtype=kind), fb.zeros(shape)):
            for name, extra in itertools.product(("equal", "isclose", "allclose"), [(), (0.0, 0.5), (0.1, 0.0), (0.0, 0.0), (-1.0,)]):
                if name != "equal" or not extra:
                    agree(name, a, b, *extra)


def test_comparisons_of_what_is_not_finite():
    values = fb.tensor([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan])
    a, b = (t.contiguous() for t in fb.meshgrid(values, values, indexing="ij"))
    for name in ("equal", "isclose", "allclose"):
        agree(name, a, b)
        agree(name, a[:2, :3].contiguous(), b[:2, :3].contiguous())
        agree(name, a, a)
        agree(name, a[:, 5:], 3)
    agree("isclose", a, b, 1e-5, 1e-8, True)


POOLS = {1: (2, 3, 12), 2: (2, 3, 6, 8), 3: (1, 2, 4, 6, 4)}


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_pools_of_windows(n, dtype):
    last = n * (2,)
    for x in (*layouts(*POOLS[n], dtype=dtype), *layouts(*POOLS[n][1:], dtype=dtype), fb.zeros(2)):
        odd = [((2.0,) * n,), (2.0,), ([2] * n,), (0,), (2, 0), (20,), (2, 2, 2), (True,)]
        for extra in [(2,), (last,), (2, 1), (3, 2, 1), (3, None, 1), *odd]:
            agree(f"nn.functional.avg_pool{n}d", x, *extra)
            agree(f"nn.functional.max_pool{n}d", x, *extra)
        agree(f"nn.functional.avg_pool{n}d", x, 3, 2, 1, True, False)
        agree(f"nn.functional.max_pool{n}d", x, 3, 2, 1, 1, True)
        agree(f"nn.functional.max_pool{n}d", x, 2, 1, 0, 2, False, True)
        if n > 1:
            agree(f"nn.functional.avg_pool{n}d", x, 2, None, 0, False, True, 3)
            agree(f"nn.functional.avg_pool{n}d", x, 2, None, 0, False, True, 0)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_pools_of_given_sizes(n, dtype):
    for x in (*layouts(*POOLS[n], dtype=dtype), *layouts(*POOLS[n][1:], dtype=dtype), fb.zeros(2), fb.zeros(0, *POOLS[n][1:])):
        for size in (1, 2, 3, 4, (2,) * n, (3,) * n, (2.0,) * n, [2] * n, (1,) * n, -1, 0, None):
            agree(f"nn.functional.adaptive_avg_pool{n}d", x, size)
            agree(f"nn.functional.adaptive_max_pool{n}d", x, size)
        agree(f"nn.functional.adaptive_max_pool{n}d", x, 2, True)


def test_plans_are_not_shared_by_what_is_only_equal():
    x = fb.rand(1, 2, 4, 4)
    F.max_pool2d(x, 2)
    F.max_pool2d(x, (2, 2))
    for wrong in (2.0, (2.0, 2.0), (2, 2.0)):
        with pytest.raises(TypeError, match="kernel_size"):
            F.max_pool2d(x, wrong)


def test_maxima_pass_on_nan_and_the_first_of_equals():
    x = fb.tensor([[[1.0, np.nan, 2.0, 2.0, 3.0, 0.0]]], requires_grad=True)
    F.max_pool1d(x.detach(), 2)
    made = F.max_pool1d(x, 2)
    made.sum().backward()
    assert made.tolist()[0][0][1:] == [2.0, 3.0]
    assert np.isnan(made.tolist()[0][0][0])
    assert x.grad.tolist() == [[[0.0, 1.0, 1.0, 0.0, 1.0, 0.0]]]


def test_plans_go_with_the_backend():
    from flambeau_kernels import backend, set_backend

    before, x = backend(), fb.rand(2, 3, 8)
    made = F.avg_pool1d(x, 2)
    try:
        set_backend("numpy")
        np.testing.assert_allclose(F.avg_pool1d(x, 2).numpy(), made.numpy(), rtol=1e-6)
    finally:
        set_backend(before)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "bool", "complex64"])
def test_pads(dtype):
    for x in (*layouts(2, 3, dtype=dtype), *layouts(1, 2, 3, 4, dtype=dtype), fb.rand(()), fb.zeros(0, 3), fb.rand(2, 1, 3, 3)):
        for amounts in [(1, 1), [1, 2], (-1, 1), (-1, -1), (1, 0, 2, 1), (-5, 1), (1.5, 1), (1,), (0, 0), (-3, 0), (0, 1, -1, 0)]:
            for value in (None, 1, 2.5):
                agree("nn.functional.pad", x, amounts, "constant", value)
            for mode in ("reflect", "replicate", "circular", "mirror"):
                agree("nn.functional.pad", x, amounts, mode)
                agree("nn.functional.pad", x, amounts, mode, 1.0)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8", "int64"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_interpolations(n, dtype):
    linear = {1: ["linear"], 2: ["bilinear", "bicubic"], 3: ["trilinear"]}[n]
    for x in (*layouts(2, *(3, 4, 5)[:n], 3, dtype=dtype), *layouts(2, 1, *(4, 3, 2)[:n], dtype=dtype), fb.zeros(3)):
        for mode in ("nearest", "nearest-exact", "area", *linear, "cubic"):
            odd = [((3.0,) * n, None), (None, [2.0] * n), (0, None), (None, None)]
            for size, factor in [(2, None), (None, 2), (None, 1.5), ((3,) * n, None), *odd]:
                agree("nn.functional.interpolate", x, size, factor, mode)
            for align in (True, False):
                agree("nn.functional.interpolate", x, 5, None, mode, align)
        agree("nn.functional.interpolate", x, None, 1.3, linear[0], None, True)
        agree("nn.functional.interpolate", x, 2, None, linear[0], False, None, True)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "bool"])
def test_rearrangements(dtype):
    for x in (*layouts(2, 4, 2, 4, dtype=dtype), *layouts(8, 2, 2, dtype=dtype), fb.zeros(0, 4, 2, 2), fb.zeros(2)):
        for number in (1, 2, 3, 2.0, 0):
            for op in ("pixel_shuffle", "pixel_unshuffle", "channel_shuffle"):
                agree(op, x, number)
        for settings in [(2,), ((1, 2),), (2, 1, 1), (2, 2), (2, 1, (0, 1), 2), ([2, 2],), (0,), (9,)]:
            agree("nn.functional.unfold", x, *settings)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "complex64"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_convolutions(n, dtype):
    extents, kernel = (7, 6, 5)[:n], (3, 2, 2)[:n]
    weights = [*layouts(4, 2, *kernel, dtype=dtype), fb.rand(4, 1, *kernel), fb.rand(3)]
    biases = [None, fb.rand(4).to(weights[0].dtype), fb.rand(4, requires_grad=True), fb.rand(3)]
    inputs = [*layouts(2, 2, *extents, dtype=dtype), fb.rand(2, *extents), fb.rand(0, 2, *extents)]
    for x, w, b in itertools.product(inputs, weights, biases):
        odd = [(1, "same"), (2, "same"), (0,), (1.0,), (1, 9, 9)]
        for settings in [(), (2,), (1, 1), (1, (1,) * n), (1, 0, 2), (1, 0, 1, 2), *odd]:
            agree(f"conv{n}d", x, w, b, *settings)
    inputs = [*layouts(2, 4, *extents, dtype=dtype), fb.rand(4, *extents)]
    for x, w, b in itertools.product(inputs, weights, (None, fb.rand(2, requires_grad=True))):
        for settings in [(), (2,), (1, 1), (2, 0, 1), (2, 0, 2), (1, 0, 0, 2), (1, 0, 0, 1, 2), ((2,) * n, (1,) * n, (1,) * n)]:
            agree(f"conv_transpose{n}d", x, w, b, *settings)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64"])
@pytest.mark.parametrize("columns", [1, 3, 8, 20, 70])
def test_norms_of_rows(dtype, columns):
    kind = getattr(fb, dtype)
    parameters = [None, *(fb.rand(columns, requires_grad=grad, dtype=kind if kind.is_floating_point else None) for grad in (False, True))]
    for x in (*layouts(3, columns, dtype=dtype), fb.rand(columns).to(kind), fb.rand(0, columns).to(kind), fb.rand(2)):
        for weight, shape, eps in itertools.product(parameters, (columns, (columns,), [columns], (3, columns), (), 2.0), (1e-5, 1)):
            agree("nn.functional.rms_norm", x, shape, weight, eps)
            agree("nn.functional.layer_norm", x, shape, weight, parameters[1], eps)
        agree("nn.functional.rms_norm", x, columns)
        agree("nn.functional.layer_norm", x, columns, parameters[0], parameters[2])
        agree("nn.functional.layer_norm", x, columns, fb.rand(columns, dtype=fb.float64))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64"])
def test_likelihoods(dtype):
    kind = getattr(fb, dtype)
    targets = [fb.tensor([1, 0, 2]), fb.tensor([1, -100, 2]), fb.tensor([1, 3, 2]), fb.tensor([-1, 0, 0]), fb.tensor([1, 0])]
    weights = [None, fb.tensor([0.5, 2.0, 1.0]).to(kind), fb.rand(3, requires_grad=True), fb.rand(2)]
    cases = [(x, t) for x in layouts(3, 3, dtype=dtype) for t in (*targets, targets[0].int(), targets[0][::2])]
    cases += [(x, fb.tensor(t)) for x in layouts(3, dtype=dtype) for t in (1, -100, 5, [2])]
    cases += [(fb.rand(2, 3, 4).to(kind), fb.ones(2, 4, dtype=fb.int64)), (fb.rand(0, 3).to(kind), fb.ones(0, dtype=fb.int64))]
    for (x, t), w in itertools.product(cases, weights):
        for ignored, reduction in [(-100, "mean"), (-100, "sum"), (-100, "none"), (1, "mean"), (-1, "sum"), (2, "none"), (-100, "max")]:
            agree("nn.functional.nll_loss", x, t, w, None, ignored, None, reduction)
            for smoothing in (0.0, 0.1):
                agree("nn.functional.cross_entropy", x, t, w, None, ignored, None, reduction, smoothing)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 2, 5), (1, 1, 3, 2, 2), (2, 3, 0), (4, 3, 30, 90)])
def test_likelihoods_of_images(shape, dtype):
    kind = getattr(fb, dtype)
    classes, places = shape[1], (shape[0], *shape[2:])
    target = fb.randint(0, classes, places)
    last = target.clone()
    last.reshape(-1)[-1:] = -100
    targets = [target, last, target + 1, target.flip(-1), target[..., None], target.int(), target[..., :1]]
    weights = [None, fb.rand(classes).to(kind), fb.rand(classes).to(kind).requires_grad_(), fb.rand(classes + 1)]
    for x, t, w in itertools.product(layouts(*shape, dtype=dtype)[:4], targets, weights):
        for ignored, reduction in [(-100, "mean"), (-100, "sum"), (-100, "none"), (0, "mean"), (-100, "max")]:
            agree("nn.functional.nll_loss", x, t, w, None, ignored, None, reduction)
            agree("nn.functional.cross_entropy", x, t, w, None, ignored, None, reduction)
    agree("nn.functional.cross_entropy", fb.rand(shape), fb.rand(shape))
    agree("nn.functional.cross_entropy", fb.rand(shape), target, None, None, -100, None, "mean", 0.1)


def test_likelihoods_of_many_targets():
    for n in (19, 21, 63, 65, 300):
        x, t = fb.rand(n, 5, requires_grad=True), fb.randint(0, 5, (n,))
        for reduction, weight in itertools.product(("mean", "sum", "none"), (None, fb.rand(5))):
            agree("nn.functional.nll_loss", x, t, weight, None, -100, None, reduction)
            agree("nn.functional.cross_entropy", x, t, weight, None, -100, None, reduction)
        agree("nn.functional.nll_loss", x, t + 1)


def test_a_certain_prediction_costs_nothing():
    x = fb.tensor([[0.0, -np.inf], [-np.inf, 0.0]], requires_grad=True)
    assert F.cross_entropy(x.detach(), fb.tensor([0, 1])).item() == 0.0
    assert F.cross_entropy(x.detach(), fb.tensor([0, 0])).item() == np.inf
    F.nll_loss(x, fb.tensor([0, 1])).backward()
    assert x.grad.tolist() == [[-0.5, 0.0], [0.0, -0.5]]


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64])
@pytest.mark.parametrize("shape", [(3, 5), (1, 7), (4, 1), (2, 3, 6)])
def test_gradients_of_norms_of_few_rows(shape, dtype):
    """Those of the differentiable expression, which records them again."""
    x, g = fb.randn(shape, dtype=dtype, requires_grad=True), fb.randn(shape, dtype=dtype)
    for norm, weighted, biased in itertools.product((F.layer_norm, F.rms_norm), (False, True), (False, True)):
        weight = fb.rand(shape[1:], dtype=dtype, requires_grad=True) if weighted else None
        bias = fb.rand(shape[1:], dtype=dtype, requires_grad=True) if biased and norm is F.layer_norm else None
        made = norm(x, shape[1:], weight, *([bias] if norm is F.layer_norm else []))
        leaves = [t for t in (x, weight, bias) if t is not None]
        expected = fb.autograd.grad(made, leaves, g, create_graph=True)
        for m, e in zip(fb.autograd.grad(made, leaves, g), expected, strict=True):
            assert (m.shape, m.dtype) == (e.shape, e.dtype)
            tolerance = 2e-5 if dtype is fb.float32 else 1e-12
            np.testing.assert_allclose(m.numpy(), e.detach().numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64"])
@pytest.mark.parametrize("shape", [(4, 6), (40, 6), (2, 6, 3), (2, 6, 5, 4), (2, 1, 4, 4), (3, 6, 1), (1, 6), (0, 6, 2), (6,)])
def test_norms_of_channels(shape, dtype):
    kind = getattr(fb, dtype)
    channels = shape[1] if len(shape) > 1 else 1
    real = kind if kind.is_floating_point else fb.float32
    parameters = [None, fb.rand(channels, dtype=real), fb.rand(channels, dtype=real, requires_grad=True), fb.rand(channels + 1)]
    for x, weight, bias in itertools.product(layouts(*shape, dtype=dtype), parameters, (None, parameters[2])):
        for count, eps in [(1, 1e-5), (channels, 1e-5), (4, 1e-5), (0, 1), (True, 1e-3)]:
            agree("nn.functional.group_norm", x, count, weight, bias, eps)
        for training, momentum, eps in [(True, 0.1, 1e-5), (False, 0.1, 1e-5), (True, 1, 1e-3), (True, 0.1, 0.0), (True, None, 1e-5)]:
            right = (fb.zeros(channels, dtype=real), fb.ones(channels, dtype=real))
            statistics = [None, right, (fb.zeros(channels + 1), fb.ones(channels))]
            for given in statistics:
                compare_batch_norm(x, given or (None, None), weight, bias, training, momentum, eps)


def compare_batch_norm(x, statistics, weight, bias, *settings):
    """As `agree`, with statistics that both ways move."""
    ways = []
    for way in (lambda *args: general("nn.functional.batch_norm", args), F.batch_norm):
        moved = [None if s is None else s.clone() for s in statistics]
        made = outcome(way, x, *moved, weight, bias, *settings)
        leaves = [a for a in (x, weight, bias) if a is not None and a.requires_grad]
        slopes = ()
        if leaves and isinstance(made, fb.Tensor):
            slopes = fb.autograd.grad((made * made.detach()).sum(), leaves, allow_unused=True)
        versions = [None if s is None else s._version for s in moved]
        ways.append((made, *moved, *slopes, *versions))
    (expected, *others), (made, *own) = ways
    same(made, expected)
    for m, e in zip(own, others, strict=True):
        same(m, e)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64"])
def test_attention(dtype):
    kind = getattr(fb, dtype)
    values = [fb.rand(*shape).to(kind) for shape in ((2, 4, 5, 8), (2, 2, 5, 8), (5, 8))]
    values.append(fb.rand(2, 5, 4, 8).to(kind).transpose(1, 2))
    if kind.is_floating_point:
        values.append(fb.rand(2, 4, 5, 8).to(kind).requires_grad_())
    for q, k in itertools.product(values, values):
        odd = [(None, 2.0), (fb.ones(5, 5, dtype=fb.bool),), (None, 0.0, False, None, True)]
        for settings in [(), (None, 0.0, True), (None, 0.0, False, 0.5), *odd]:
            agree("nn.functional.scaled_dot_product_attention", q, k, k, *settings)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("shape", [(3, 4), (4,), (2, 3, 4), (0, 4), ()])
def test_directions_and_distances(shape, dtype):
    others = layouts(*shape, dtype=dtype)
    others += [others[0] * 0, fb.rand(4), others[0] * 1e30]
    for x in others:
        for p, dim in itertools.product((2.0, 1.0, 2, 3.0, 0.0), (0, 1, -1, 2, -3, (0, 1), 1.0)):
            agree("nn.functional.normalize", x, p, dim)
        for y in others:
            for dim in (0, 1, -1, 5):
                agree("nn.functional.cosine_similarity", x, y, dim)
            for p, keepdim in itertools.product((2.0, 1, 3.0, 0.0), (False, True)):
                agree("nn.functional.pairwise_distance", x, y, p, 1e-6, keepdim)


@pytest.mark.parametrize("n", [32, 64, 96])
def test_more_elements_than_few(n):
    x, y = fb.randn(n, n), fb.randn(n, n)
    for dim in (0, 1, -1):
        agree("nn.functional.cosine_similarity", x, y, dim)
        agree("nn.functional.normalize", x, 2.0, dim)
        agree("nn.functional.normalize", x, 1.0, dim)
    agree("nn.functional.multi_margin_loss", x, fb.randint(0, n, (n,)), 1, 1.0, None, None, None, "none")
    compare_batch_norm(x, (fb.rand(n), fb.rand(n) + 1), fb.rand(n, requires_grad=True), None, False, 0.1, 1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_losses_of_margins(dtype):
    signs = fb.tensor([1.0, -1.0, 0.0]).to(getattr(fb, dtype))
    for x in (*layouts(3, 3, dtype=dtype), *layouts(3, dtype=dtype), fb.rand(3, 2, 3)):
        y = x.detach() * 0.7
        for reduction, margin in itertools.product(("mean", "sum", "none", "max"), (1.0, 0.1, 0)):
            agree("nn.functional.hinge_embedding_loss", x, signs, margin, None, None, reduction)
            agree("nn.functional.cosine_embedding_loss", x, y.flip(0), signs, margin, None, None, reduction)
            agree("nn.functional.triplet_margin_loss", x, y, y.flip(-1), margin, 2, 1e-6, False, None, None, reduction)
            agree("nn.functional.triplet_margin_loss", x, y, y.flip(-1), margin, 1, 1e-6, True, None, None, reduction)
            for target, p in itertools.product(([0, 2, 1], [0, 3, 1], [-1, 0, 0], [1]), (1, 2, 3)):
                agree("nn.functional.multi_margin_loss", x, fb.tensor(target), p, margin, None, None, None, reduction)
        agree("nn.functional.multi_margin_loss", x, fb.tensor([0, 1, 2]), 1, 1.0, fb.rand(3).to(x.dtype))
    odd = fb.tensor([[np.nan, 1.0, 2.0], [1.0, np.nan, 0.0], [-np.inf, 0.0, 1.0]]).to(getattr(fb, dtype))
    for target in ([0, 0, 1], [1, 2, 2]):
        agree("nn.functional.multi_margin_loss", odd, fb.tensor(target), 1, 1.0, None, None, None, "none")


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64, fb.bfloat16])
def test_clipping_of_few_gradients(dtype):
    values = [-3.0, -0.5, 0.0, 0.25, 7.0, np.inf, np.nan]
    whole = fb.zeros(14, dtype=dtype)
    for grad in (fb.tensor(values, dtype=dtype), whole[::2], whole[:7]):
        grad.copy_(fb.tensor(values))
        leaf = fb.zeros(7, dtype=dtype, requires_grad=True)
        leaf.grad = grad
        before = grad._version
        fb.nn.utils.clip_grad_value_([leaf, fb.zeros(1)], 0.5)
        same(leaf.grad, fb.tensor(values, dtype=dtype).clamp(-0.5, 0.5) if grad.is_contiguous() else grad)
        assert leaf.grad is grad
        assert grad.tolist()[:6] == [-0.5, -0.5, 0.0, 0.25, 0.5, 0.5]
        assert grad._version == before + 1


def test_a_plan_is_found_by_a_size_as_by_a_tuple():
    from flambeau.ops._spec import plans

    x = fb.rand(3, 4)

    assert plans._typed(x.shape[1:]) == (fb.Size, 4, int)
    assert F.layer_norm(x, x.shape[1:]).tolist() == F.layer_norm(x, (4,)).tolist()


@pytest.mark.parametrize("shape", [(2, 4, 7, 6), (4, 7, 6)])
def test_convolutions_of_one_image_and_with_padding_in_words(shape):
    x, weight, bias = fb.randn(*shape), fb.randn(3, 4, 3, 3), fb.randn(3)
    for padding, dilation in (("same", 1), ("same", 2), ("valid", 1), (1, 1), ((0, 2), (1, 2))):
        agree("conv2d", x, weight, bias, 1, padding, dilation, 1)
    agree("conv_transpose2d", x, fb.randn(4, 3, 3, 2), bias, 2, 1, 1, 1, 1)
    # The reference kernels have no plans of convolutions.
    assert (OPS["conv2d"].answer(x, weight, bias, 1, "same", 1, 1) is None) == (OPS["conv2d"].answer(x, weight, bias, 1, 1, 1, 1) is None)


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 4, 4), (2, 3), (2, 3, 1), (1, 3, 40, 50)])
def test_instance_norm_with_and_without_parameters(shape):
    x = fb.randn(*shape)
    for leaf in (x, x.clone().requires_grad_()):
        agree("nn.functional.instance_norm", leaf, None, None, None, None, True, 0.1, 1e-5)
        weight, bias = fb.rand(3, requires_grad=True), fb.rand(3)
        agree("nn.functional.instance_norm", leaf, None, None, weight, bias, True, 0.1, 1e-5)
        agree("nn.functional.instance_norm", leaf, None, None, None, bias, True, 0.1, 1e-3)
        agree("nn.functional.instance_norm", leaf, fb.zeros(3), fb.ones(3), None, bias, False, 0.1, 1e-3)
    if len(shape) > 2 and shape[2] > 1:
        groups = OPS["nn.functional.group_norm"].answer(x, 3, None, None, 1e-5)  # of which the reference kernels plan the small ones
        assert (OPS["nn.functional.instance_norm"].answer(x, None, None, None, None, True, 0.1, 1e-5) is None) == (groups is None)
