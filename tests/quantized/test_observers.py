"""Observers and fake quantizations, beside PyTorch's."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import flambeau as fb
from flambeau.ao import quantization as ours

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("torch.ao.quantization")
pytestmark = [pytest.mark.filterwarnings("ignore::UserWarning"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]

RNG = np.random.default_rng(3)
SEEN = [RNG.normal(size=(4, 6)).astype(np.float32) * scale for scale in (1, 2, 0.5)]

OBSERVERS = {
    "affine": lambda q, m: q.MinMaxObserver(),
    "half": lambda q, m: q.MinMaxObserver(reduce_range=True),
    "symmetric": lambda q, m: q.MinMaxObserver(dtype=m.qint8, qscheme=m.per_tensor_symmetric),
    "symmetric unsigned": lambda q, m: q.MinMaxObserver(dtype=m.quint8, qscheme=m.per_tensor_symmetric),
    "own range": lambda q, m: q.MinMaxObserver(dtype=m.qint8, qscheme=m.per_tensor_symmetric, quant_min=-127, quant_max=127),
    "own half range": lambda q, m: q.MinMaxObserver(quant_min=0, quant_max=255, reduce_range=True),
    "int16": lambda q, m: q.MinMaxObserver(dtype=m.int16),
    "four bits": lambda q, m: q.MinMaxObserver(dtype=m.quint4x2),
    "moving": lambda q, m: q.MovingAverageMinMaxObserver(averaging_constant=0.1),
    "channels": lambda q, m: q.PerChannelMinMaxObserver(),
    "channels of another dimension": lambda q, m: q.PerChannelMinMaxObserver(ch_axis=1, dtype=m.qint8, qscheme=m.per_channel_symmetric),
    "channels with float zeros": lambda q, m: q.PerChannelMinMaxObserver(qscheme=m.per_channel_affine_float_qparams),
    "moving channels": lambda q, m: q.MovingAveragePerChannelMinMaxObserver(averaging_constant=0.3),
    "fixed": lambda q, m: q.default_fixed_qparams_range_neg1to1_observer(),
    "weights": lambda q, m: q.default_weight_observer(),
    "weights without -128": lambda q, m: q.per_channel_weight_observer_range_neg_127_to_127(),
}


def shown(make):
    """What our observer and PyTorch's say of the same tensors."""
    found = []
    for q, m in ((ours, fb), (theirs, torch)):
        observer = make(q, m)
        for x in SEEN:
            given = m.from_numpy(x)
            assert observer(given) is given
        found.append((observer, [t.numpy() for t in observer.calculate_qparams()]))
    return found


@pytest.mark.parametrize("name", OBSERVERS)
def test_scales_and_zero_points_are_pytorchs(name):
    (_, got), (_, want) = shown(OBSERVERS[name])

    np.testing.assert_allclose(got[0], want[0], rtol=1e-6)
    np.testing.assert_array_equal(got[1], want[1]) if got[1].dtype.kind == "i" else np.testing.assert_allclose(got[1], want[1], rtol=1e-5)
    assert [t.dtype for t in got] == [t.dtype for t in want]


@pytest.mark.parametrize("name", OBSERVERS)
def test_the_state_has_pytorchs_names_and_is_loaded(name):
    (mine, got), (other, _) = shown(OBSERVERS[name])

    assert list(mine.state_dict()) == list(other.state_dict())
    fresh = OBSERVERS[name](ours, fb)
    fresh.load_state_dict(mine.state_dict())
    np.testing.assert_array_equal(fresh.calculate_qparams()[0].numpy(), got[0])


def error_of(x: np.ndarray, scale: float, zero: int, limits: tuple[int, int]) -> float:
    """The mean squared error of quantizing `x`."""
    back = (np.clip(np.rint(x / scale) + zero, *limits) - zero) * scale
    return float(((back - x) ** 2).mean())


@pytest.mark.parametrize("shape", ["normal", "uniform", "lognormal", "laplace"])
def test_a_histogram_gives_a_range_as_good_as_pytorchs(shape):
    draws = [getattr(np.random.default_rng(i), shape)(size=4000).astype(np.float32) * (1 + i) for i in range(3)]
    errors = []
    for q, m in ((ours, fb), (theirs, torch)):
        observer = q.HistogramObserver()
        for x in draws:
            observer(m.from_numpy(x))
        scale, zero = observer.calculate_qparams()
        errors.append(error_of(np.concatenate(draws), float(scale), int(zero), (0, 255)))

    assert errors[0] <= errors[1] * 1.02


def test_a_histogram_keeps_its_count_when_the_range_grows():
    observer = ours.HistogramObserver(bins=64)
    for x in (fb.zeros(5), fb.tensor([-1.0, 2.0]), fb.tensor([7.0])):
        observer(x)

    assert abs(observer.histogram.sum().item() - 8) < 1e-4
    assert (observer.min_val.item(), observer.max_val.item()) == (-1, 7)


def test_nothing_seen_gives_a_scale_of_one_and_says_so():
    with pytest.warns(UserWarning, match="must run observer"):
        scale, zero = ours.MinMaxObserver().calculate_qparams()
    assert (scale.item(), zero.item()) == (1, 0)


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: ours.MinMaxObserver(dtype=fb.float32), AssertionError, "only works for"),
        (lambda: ours.MinMaxObserver(qscheme=fb.per_channel_affine), NotImplementedError, "MinMaxObserver's qscheme only support"),
        (lambda: ours.MinMaxObserver(quant_min=5, quant_max=9), AssertionError, "must include 0"),
        (lambda: ours.MinMaxObserver(qscheme=fb.per_tensor_symmetric, reduce_range=True), NotImplementedError, "Cannot reduce range"),
        (lambda: ours.PerChannelMinMaxObserver(qscheme=fb.per_tensor_affine), NotImplementedError, "PerChannelMinMaxObserver's qscheme"),
        (lambda: ours.HistogramObserver(is_dynamic=True), NotImplementedError, "doesn't support dynamic"),
        (lambda: ours.PlaceholderObserver().calculate_qparams(), Exception, "should not be called"),
        (lambda: ours.QConfig(ours.MinMaxObserver(), ours.MinMaxObserver), ValueError, "pass observer class instead"),
        (lambda: ours.FakeQuantize(quant_min=0, quant_max=300), AssertionError, "quant_max out of bound"),
        (lambda: ours.get_default_qconfig("abacus"), AssertionError, "backend: abacus not supported"),
        (lambda: ours.get_block_size((2, 3), 4), AssertionError, "must be a Granularity"),
        (lambda: ours.load_observer_state_dict(fb.nn.Linear(1, 1), {"activation_post_process.x": 1}), RuntimeError, "Unexpected keys"),
    ],
)
def test_what_does_not_fit_is_refused(make, error, said):
    with pytest.raises(error, match=said):
        make()


def test_recipes_give_and_override_arguments():
    recipe = ours.MinMaxObserver.with_args(dtype=fb.qint8).with_args(quant_min=-10, quant_max=20)
    counted = iter(range(9))
    late = ours.PlaceholderObserver.with_callable_args(custom_op_name=lambda: f"op{next(counted)}")

    assert (recipe().dtype, recipe().quant_min, recipe(quant_min=-5, quant_max=5).quant_max) == (fb.qint8, -10, 5)
    assert [late().custom_op, late().custom_op] == ["op0", "op1"]
    assert ours.qconfig_equals(ours.default_qconfig, ours.QConfig(ours.default_observer, ours.default_weight_observer))
    assert not ours.qconfig_equals(ours.default_qconfig, ours.default_per_channel_qconfig)


@pytest.mark.parametrize("granularity", [("PerTensor",), ("PerAxis", 1), ("PerRow",), ("PerToken",), ("PerGroup", 3)])
def test_block_sizes_are_pytorchs(granularity):
    name, *given = granularity

    assert ours.get_block_size((4, 6), getattr(ours, name)(*given)) == theirs.get_block_size((4, 6), getattr(theirs, name)(*given))
    assert ours.get_block_size((4, 6), ours.PerBlock((2, 3))) == (2, 3)


FAKES = [
    "default_fake_quant", "default_weight_fake_quant", "default_per_channel_weight_fake_quant", "default_dynamic_fake_quant",
    "default_fused_act_fake_quant", "default_fused_wt_fake_quant", "default_fused_per_channel_wt_fake_quant",
    "default_fixed_qparams_range_0to1_fake_quant", "fused_wt_fake_quant_range_neg_127_to_127", "default_embedding_fake_quant",
]  # fmt: skip


@pytest.mark.parametrize("name", FAKES)
def test_fake_quantization_rounds_as_pytorchs(name):
    values = []
    for q, m in ((ours, fb), (theirs, torch)):
        fake = getattr(q, name)()
        for x in SEEN:
            given = m.from_numpy(x).requires_grad_()
            made = fake(given)
        made.sum().backward()
        values.append([made.detach().numpy(), given.grad.numpy(), fake.scale.numpy(), fake.zero_point.numpy(), list(fake.state_dict())])

    for got, want in zip(*(v[:4] for v in values), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert values[0][4] == values[1][4]


def test_ranges_on_one_side_of_zero_keep_their_scale_in_fused_symmetric_schemes():
    rows = np.array([[-1, 2], [1, 3], [-3, -1], [0, 2], [0, 0], [-1e-9, 1e-9]], np.float32)
    found = []
    for q, m in ((ours, fb), (theirs, torch)):
        fake = q.default_fused_per_channel_wt_fake_quant()
        fake(m.from_numpy(rows))
        found.append((fake.scale.numpy(), fake.zero_point.numpy()))

    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-6)
    np.testing.assert_array_equal(found[0][1], found[1][1])


def test_the_two_halves_of_a_fake_quantization_are_switched():
    fake = ours.default_fused_act_fake_quant()
    model = fb.nn.Sequential(fake)
    x = fb.tensor([-1.0, 0.303, 2.0])

    model.apply(ours.disable_fake_quant)
    assert fb.equal(model(x), x)
    model.apply(ours.disable_observer)
    model.apply(ours.enable_fake_quant)
    before = fake.scale.clone()
    assert not fb.equal(model(10 * x), 10 * x)
    assert fb.equal(fake.scale, before)
    model.apply(ours.enable_observer)
    model(10 * x)
    assert not fb.equal(fake.scale, before)


@pytest.mark.parametrize("backend", ["x86", "fbgemm", "qnnpack", "onednn"])
@pytest.mark.parametrize("qat", [False, True])
def test_default_qconfigs_make_pytorchs_observers(backend, qat):
    def described(q):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            config = q.get_default_qat_qconfig(backend) if qat else q.get_default_qconfig(backend)
            mapping = (q.get_default_qat_qconfig_mapping if qat else q.get_default_qconfig_mapping)(backend)
            parts = []
            for c in (config, *mapping.object_type_qconfigs.values()):
                made = (c.activation(), c.weight())
                parts.append([(type(p).__name__, str(p.dtype), getattr(p, "quant_min", 0), getattr(p, "quant_max", 0)) for p in made])
            return parts, [getattr(kind, "__name__", kind) for kind in mapping.object_type_qconfigs]

    assert described(ours) == described(theirs)


def test_a_mapping_is_written_and_read():
    a, b, c, d = (ours.QConfig(ours.MinMaxObserver, ours.MinMaxObserver.with_args(eps=e)) for e in (1e-3, 1e-4, 1e-5, 1e-6))
    mapping = ours.QConfigMapping().set_global(a).set_object_type(fb.nn.Linear, b).set_module_name_regex("layers.*", c)
    mapping.set_module_name("layers.1", d).set_module_name_object_type_order("layers", fb.add, 1, None)

    written = mapping.to_dict()

    assert written == {
        "": a, "object_type": [(fb.nn.Linear, b)], "module_name_regex": [("layers.*", c)], "module_name": [("layers.1", d)],
        "module_name_object_type_order": [("layers", fb.add, 1, None)],
    }  # fmt: skip
    assert ours.QConfigMapping.from_dict(written).to_dict() == written
    assert "module_name_regex_qconfigs" in repr(mapping)
