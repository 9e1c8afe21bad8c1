"""The CPU's random numbers: PyTorch's where it is installed, published and measured values everywhere."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import flambeau as fb
import flambeau_kernels as kernels
from flambeau_kernels import engines, hot_calls
from flambeau_kernels.cpu import random
from flambeau_kernels.cpu.random import MT19937Stream, PhiloxStream
from flambeau_kernels.cpu.random import stream as random_stream
from flambeau_kernels.cpu.random.arithmetic import fma
from flambeau_kernels.engine.builtins import launchers
from flambeau_kernels.engine.runtime import pool

try:
    import torch
except ImportError:
    torch = None


def needs_torch(test):
    """Skip `test` where there is no PyTorch, or one whose float32 arithmetic is not fused."""
    fused = torch is not None and torch.backends.cpu.get_cpu_capability().startswith("AVX")
    reason = "PyTorch is not installed" if torch is None else "PyTorch rounds otherwise without AVX2"
    return pytest.mark.oracle(pytest.mark.skipif(not fused, reason=reason)(test))


HALF = ("float16", "bfloat16")
FLOATING = (*HALF, "float32", "float64")
SIZES = (1, 2, 3, 15, 16, 17, 31, 32, 33, 100, 623, 624, 625, 1000, 4096, 10000)


def dtype_of(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def assert_same_bits(ours, theirs):
    theirs = theirs.detach().resolve_conj()
    if theirs.dtype == torch.bfloat16:
        theirs, ours = theirs.view(torch.int16), ours.view(np.int16)
    theirs = theirs.numpy()
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    if ours.dtype.kind == "f":
        theirs, ours = (array.view(f"u{array.itemsize}") for array in (theirs, ours))
    np.testing.assert_array_equal(ours, theirs)


def assert_same_state(stream):
    np.testing.assert_array_equal(stream.get_state(), torch.get_rng_state().numpy())


# The stream


def test_words_are_the_published_ones_of_mt19937():
    # The ten thousandth word from the reference seed, as the C++ standard requires it of mt19937.
    words = MT19937Stream(5489).random32(10000)

    assert words[-1] == 4123659995


def test_known_draws_from_seed_zero():
    # Measured with torch.manual_seed(0).
    uniform = random.uniform(MT19937Stream(0), np.empty(3, np.float32))
    few = random.normal(MT19937Stream(0), np.empty(3, np.float32))
    many = random.normal(MT19937Stream(0), np.empty(16, np.float32))
    double = random.normal(MT19937Stream(0), np.empty(16))
    integers = random.randint(MT19937Stream(0), np.empty(3, np.int64), 0, 10)

    assert (uniform * 2**24).tolist() == [8325804, 12888623, 1484405]
    assert few.tolist() == [1.5409960746765137, -0.293428897857666, -2.1787893772125244]
    assert many[:3].tolist() == [-1.1258398294448853, -1.152360200881958, -0.2505785822868347]
    assert double[:3].tolist() == [-2.310411800234176, -0.3732508612577643, -1.0608166785462863]
    assert integers.tolist() == [4, 9, 3]


def test_the_same_seed_gives_the_same_words_and_another_seed_others():
    first = MT19937Stream(1).random32(4)

    assert first.tolist() == MT19937Stream(1).random32(4).tolist()
    assert first.tolist() != MT19937Stream(2).random32(4).tolist()


def test_a_negative_seed_counts_back_from_two_to_the_64():
    assert MT19937Stream(-1).initial_seed() == 2**64 - 1


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
def test_a_seed_out_of_range_is_refused(seed):
    with pytest.raises(ValueError, match=str(seed)):
        MT19937Stream(seed)


def test_seed_chooses_anew_and_reports_the_choice():
    stream = MT19937Stream(0)

    chosen = stream.seed()

    assert stream.initial_seed() == chosen
    assert stream.random32(3).tolist() == MT19937Stream(chosen).random32(3).tolist()
    assert stream.seed() != chosen


@pytest.mark.parametrize("drawn", [0, 1, 623, 624, 625, 2000])
def test_a_restored_state_goes_on_where_it_was_saved(drawn):
    stream = MT19937Stream(7)
    stream.random32(drawn)
    random.normal(stream, np.empty(3))
    state = stream.get_state()
    expected = random.normal(stream, np.empty(5)), stream.random32(700)

    again = MT19937Stream().set_state(state)

    assert random.normal(again, np.empty(5)).tolist() == expected[0].tolist()
    assert again.random32(700).tolist() == expected[1].tolist()
    assert again.get_state().tolist() == stream.get_state().tolist()


def test_a_clone_is_independent():
    stream = MT19937Stream(7)
    other = stream.clone()
    ahead = other.random32(10)

    assert stream.random32(10).tolist() == ahead.tolist()
    assert other.initial_seed() == 7


def test_random64_puts_the_first_word_on_top():
    words = MT19937Stream(3).random32(2)

    assert MT19937Stream(3).random64(1)[0] == (int(words[0]) << 32) + int(words[1])


def test_what_is_drawn_rewound_comes_again():
    stream = MT19937Stream(3)
    with stream.rewound():
        ahead = stream.random32(1000)

    assert stream.random32(1000).tolist() == ahead.tolist()


@pytest.mark.parametrize(("state", "error", "words"), [
    (np.zeros(5056, np.int32), TypeError, "int32"),
    (b"state", TypeError, "bytes"),
    (np.zeros(100, np.uint8), RuntimeError, "5056.*100"),
    (np.zeros(5056, np.uint8), RuntimeError, "seeded=0"),
])
def test_a_state_that_is_none_is_refused(state, error, words):
    with pytest.raises(error, match=words):
        MT19937Stream().set_state(state)


@needs_torch
@pytest.mark.parametrize("seed", [0, 5, 2**31, 2**40 + 5, -3, 2**64 - 1])
@pytest.mark.parametrize("drawn", [0, 1, 3, 623, 624, 625, 2500])
def test_saved_states_are_pytorchs_byte_for_byte(seed, drawn):
    torch.manual_seed(seed)
    torch.empty(drawn).uniform_()
    torch.empty(3).normal_()
    stream = MT19937Stream(seed)
    random.uniform(stream, np.empty(drawn, np.float32))
    random.normal(stream, np.empty(3, np.float32))

    assert_same_state(stream)


@needs_torch
def test_pytorch_goes_on_from_our_state():
    stream = MT19937Stream(11)
    random.normal(stream, np.empty(1001, np.float32))
    generator = torch.Generator()
    generator.set_state(torch.from_numpy(stream.get_state()))

    theirs = torch.empty(5, dtype=torch.float64).normal_(generator=generator)
    assert_same_bits(random.normal(stream, np.empty(5)), theirs)


@needs_torch
def test_the_unseeded_stream_has_pytorchs_default_seed():
    assert MT19937Stream().initial_seed() == torch.Generator().initial_seed()


# Every filling distribution against PyTorch: name -> (PyTorch's in-place call, ours)

FILLS = {
    "uniform": (lambda t: t.uniform_(), lambda s, a: random.uniform(s, a)),
    "uniform(-3, 7)": (lambda t: t.uniform_(-3, 7), lambda s, a: random.uniform(s, a, -3, 7)),
    "uniform(0.1, 0.7)": (lambda t: t.uniform_(0.1, 0.7), lambda s, a: random.uniform(s, a, 0.1, 0.7)),
    "uniform(1000, 1001)": (lambda t: t.uniform_(1000, 1001), lambda s, a: random.uniform(s, a, 1000, 1001)),
    "uniform(1, 1)": (lambda t: t.uniform_(1, 1), lambda s, a: random.uniform(s, a, 1, 1)),
    "normal": (lambda t: t.normal_(), lambda s, a: random.normal(s, a)),
    "normal(0, 0.02)": (lambda t: t.normal_(0, 0.02), lambda s, a: random.normal(s, a, 0, 0.02)),
    "normal(1.7, 0.3)": (lambda t: t.normal_(1.7, 0.3), lambda s, a: random.normal(s, a, 1.7, 0.3)),
    "normal(-2, 0)": (lambda t: t.normal_(-2, 0), lambda s, a: random.normal(s, a, -2, 0)),
    "log_normal": (lambda t: t.log_normal_(0.5, 0.3), lambda s, a: random.log_normal(s, a, 0.5, 0.3)),
    "exponential": (lambda t: t.exponential_(), lambda s, a: random.exponential(s, a)),
    "exponential(2.7)": (lambda t: t.exponential_(2.7), lambda s, a: random.exponential(s, a, 2.7)),
    "geometric": (lambda t: t.geometric_(0.3), lambda s, a: random.geometric(s, a, 0.3)),
    "cauchy": (lambda t: t.cauchy_(1.5, 0.3), lambda s, a: random.cauchy(s, a, 1.5, 0.3)),
    "bernoulli(0.3)": (lambda t: t.bernoulli_(0.3), lambda s, a: random.bernoulli(s, a, 0.3)),
    "random_()": (lambda t: t.random_(), lambda s, a: random.random_bits(s, a)),
    "random_(-5, 50)": (lambda t: t.random_(-5, 50), lambda s, a: random.randint(s, a, -5, 50)),
}


def assert_fills_alike(name, theirs, ours, seed=0):
    """Both fill, agree bit for bit, and leave their generators in the same state."""
    call, kernel = FILLS[name]
    torch.manual_seed(seed)
    call(theirs)
    stream = MT19937Stream(seed)
    kernel(stream, ours)
    assert_same_bits(ours, theirs)
    assert_same_state(stream)


@needs_torch
@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("name", FILLS)
def test_fills_the_numbers_pytorch_fills(name, dtype):
    for seed, size in enumerate((0, *SIZES)):
        theirs = torch.empty(size, dtype=getattr(torch, dtype))
        assert_fills_alike(name, theirs, np.empty(size, dtype_of(dtype)), seed)


@needs_torch
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "bool"])
def test_integers_are_pytorchs(dtype):
    last = 2 if dtype == "bool" else 100
    for size in SIZES:
        torch.manual_seed(size)
        theirs = torch.empty(size, dtype=getattr(torch, dtype))
        stream, ours = MT19937Stream(size), np.empty(size, dtype)

        assert_same_bits(random.random_bits(stream, ours), theirs.random_())
        assert_same_bits(random.randint(stream, ours, 0, last), theirs.random_(0, last))
        assert_same_bits(random.bernoulli(stream, ours, 0.4), theirs.bernoulli_(0.4))
        if dtype != "bool":
            assert_same_bits(random.geometric(stream, ours, 0.01), theirs.geometric_(0.01))
        assert_same_state(stream)


@pytest.mark.parametrize("size", [1, 16, 17, 1000, 1024, 1040])
def test_draws_go_on_alike_whichever_call_first_met_their_kernel(size):
    """`random_` without bounds, and `normal_` of any mean, are one native call once their kernels are there."""
    for fill in (lambda x: x.long().random_(), lambda x: x.int().random_(), lambda x: x.random_(), lambda x: x.normal_(1, 0.5)):
        drawn = []
        for _ in range(3):
            fb.manual_seed(size)
            drawn.append([fill(fb.empty(size)).tolist() for _ in range(3)] + [fb.random.get_rng_state().tolist()])

        assert drawn[0] == drawn[1] == drawn[2]


@needs_torch
@pytest.mark.parametrize("size", [16, 17, 100, 607, 609, 625, 1000, 1025, 4095])
def test_normal_numbers_of_any_size_go_on_as_pytorchs(size):
    """The last 16 are made anew where there are others than multiples of 16, from words that may lie in the next block."""
    fb.manual_seed(size)
    torch.manual_seed(size)
    for _ in range(4):
        assert_same_bits(fb.empty(size).normal_().numpy(), torch.empty(size).normal_())
        assert_same_bits(fb.randn(size).numpy(), torch.randn(size))
        assert_same_bits(fb.empty(size).normal_(0, 0.02).numpy(), torch.empty(size).normal_(0, 0.02))
        assert_same_bits(fb.rand(3).numpy(), torch.rand(3))


@needs_torch
def test_methods_that_fill_go_on_as_pytorchs():
    for dtype in ("int64", "int32", "uint8", "float32", "float64"):
        ours, theirs = fb.empty(32, dtype=getattr(fb, dtype)), torch.empty(32, dtype=getattr(torch, dtype))
        fb.manual_seed(5)
        torch.manual_seed(5)
        for _ in range(3):
            assert_same_bits(ours.random_().numpy(), theirs.random_())
        if theirs.is_floating_point():
            for mean, std in ((0, 0.02), (1.5, 1.0), (0, 1), (-3.0, 0)):
                np.testing.assert_allclose(ours.normal_(mean, std).numpy(), theirs.normal_(mean, std).numpy(), rtol=1e-6, atol=1e-6)
        assert ours.random_().tolist() == theirs.random_().tolist()


@needs_torch
@pytest.mark.parametrize(("low", "high"), [
    (0, 1), (0, 2**28 - 1), (0, 2**28), (-5, 2**31), (0, 2**32), (-(2**62), 2**62), (-(2**63), 2**63 - 1),
    (7, 2**63 - 1),
])
def test_integer_ranges_of_every_width_are_pytorchs(low, high):
    torch.manual_seed(1)
    stream = MT19937Stream(1)

    ours = random.randint(stream, np.empty(1000, np.int64), low, high)

    assert_same_bits(ours, torch.randint(low, high, (1000,)))
    assert_same_state(stream)


@needs_torch
def test_the_whole_of_int64_is_pytorchs():
    torch.manual_seed(1)

    ours = random.randint(MT19937Stream(1), np.empty(1000, np.int64), -(2**63), 2**63)

    assert_same_bits(ours, torch.empty(1000, dtype=torch.int64).random_(-(2**63), None))


@needs_torch
@pytest.mark.parametrize("start", [0, 1, -5])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "int16", "bool"])
def test_a_range_without_an_end_goes_to_the_last_integer_that_has_neighbours(dtype, start):
    if dtype == "bool" and start < 0:
        pytest.skip("negative numbers are no truth values")
    made = []
    for lib in (fb, torch):
        lib.manual_seed(2)
        made.append(lib.zeros(100, dtype=getattr(lib, dtype)).random_(start, None).tolist())

    assert made[0] == made[1]


@needs_torch
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_numbers_are_pytorchs(dtype):
    for size in (1, 3, 7, 8, 9, 20, 1000):
        torch.manual_seed(size)
        stream = MT19937Stream(size)
        like = getattr(torch, dtype)
        theirs = (torch.rand(size, dtype=like), torch.randn(size, dtype=like),
                  torch.empty(size, dtype=like).normal_(1, 3))
        ours = (random.uniform(stream, np.empty(size, dtype)), random.normal(stream, np.empty(size, dtype)),
                random.normal(stream, np.empty(size, dtype), 1, 3))

        for mine, its in zip(ours, theirs, strict=True):
            assert_same_bits(mine, its)
        assert_same_state(stream)


# Views: name -> a view of an array or a tensor of shape (12, 10, 9)
VIEWS = {
    "transposed": lambda a: a.swapaxes(0, 1),
    "turned": lambda a: a.swapaxes(0, 2),
    "every second": lambda a: a[::2, :, ::3],
    "a column": lambda a: a[:, 2:3, 1],
    "turned part": lambda a: a[1:5, 2:4].swapaxes(0, 2),
    "one element": lambda a: a[3, 4, 5, ...],
    "channels last": lambda a: a[:, None].swapaxes(1, 3),
    "five times nothing": lambda a: a[2:7, 0:0],
}


@needs_torch
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(
    "name", ["uniform", "normal(1.7, 0.3)", "exponential", "bernoulli(0.3)", "random_(-5, 50)"]
)
def test_views_are_filled_in_pytorchs_order_and_nothing_else_is(name, view):
    for dtype in ("float32", "float64", "float16"):
        theirs, ours = torch.zeros(12, 10, 9, dtype=getattr(torch, dtype)), np.zeros((12, 10, 9), dtype)

        torch.manual_seed(0)
        FILLS[name][0](VIEWS[view](theirs))
        stream = MT19937Stream(0)
        FILLS[name][1](stream, VIEWS[view](ours))

        assert_same_bits(ours, theirs)
        assert_same_state(stream)


@needs_torch
@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("chance", FLOATING)
def test_coins_with_their_own_chances_are_pytorchs(dtype, chance):
    chances = np.random.default_rng(0).random((30, 20)).astype(dtype_of(chance))
    theirs = torch.from_numpy(chances.astype(np.float64)).to(getattr(torch, chance))
    torch.manual_seed(2)
    stream = MT19937Stream(2)

    ours = random.bernoulli(stream, np.empty((20, 30), dtype_of(dtype)).T, chances)

    assert_same_bits(ours, torch.empty(20, 30, dtype=getattr(torch, dtype)).T.bernoulli_(theirs))
    assert_same_state(stream)


@needs_torch
def test_a_dropout_mask_is_a_coin_of_the_chance_to_keep():
    torch.manual_seed(4)

    keep = random.bernoulli(MT19937Stream(4), np.empty(5000, np.float32), 1 - 0.3)

    assert_same_bits(keep / np.float32(1 - 0.3), torch.nn.functional.dropout(torch.ones(5000), 0.3))


@pytest.mark.parametrize("size", [5, 20_000])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_coins_fall_on_either_side_of_a_number_that_was_drawn(dtype, size):
    drawn = MT19937Stream(5).uniform64(size)
    one = 1.25 if dtype != "int64" else 1
    for chance in (0.0, 1e-320, 2.0**-53, float(drawn[3]), float(np.nextafter(drawn[3], 1)), 1 - 2.0**-53, 1.0):
        made = random.bernoulli(MT19937Stream(5), np.empty(size, dtype), chance, one)

        np.testing.assert_array_equal(made, np.where(drawn < chance, one, 0).astype(dtype))


@needs_torch
def test_the_spare_normal_passes_between_calls_and_dtypes():
    torch.manual_seed(0)
    stream = MT19937Stream(0)
    calls = ((1, "float32"), (4, "float64"), (20, "float32"), (3, "float16"), (2, "float64"), (7, "float32"))
    for size, dtype in calls:
        theirs = torch.empty(size, dtype=getattr(torch, dtype)).normal_(1, 2)

        assert_same_bits(random.normal(stream, np.empty(size, dtype), 1, 2), theirs)
    assert_same_state(stream)


@needs_torch
def test_float32_normals_agree_in_every_bit_over_a_million_arguments():
    torch.manual_seed(9)
    stream = MT19937Stream(9)

    assert_same_bits(random.normal(stream, np.empty(1_000_000, np.float32)), torch.randn(1_000_000))
    assert_same_state(stream)


# Distributions that return new arrays


@needs_torch
@pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 257, 1000, 10000])
@pytest.mark.parametrize("dtype", ["int64", "int32", "float32", "float64"])
def test_permutations_are_pytorchs(n, dtype):
    torch.manual_seed(n)
    stream = MT19937Stream(n)

    assert_same_bits(random.randperm(stream, n, dtype), torch.randperm(n, dtype=getattr(torch, dtype)))
    assert_same_state(stream)


def test_a_permutation_holds_every_integer_once():
    assert sorted(random.randperm(MT19937Stream(1), 1000).tolist()) == list(range(1000))


def parameters(shape, dtype, top, seed=0):
    values = np.random.default_rng(seed).random(shape) * top
    values.flat[0] = 0
    return values.astype(dtype)


@needs_torch
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1, 2, 7, 100, 3000])
@pytest.mark.parametrize("top", [0.5, 3, 12, 60, 1e4])
def test_gamma_poisson_and_binomial_are_pytorchs(dtype, size, top):
    values, chances = parameters(size, dtype, top), parameters(size, dtype, 1, seed=1)
    theirs, p = torch.from_numpy(values), torch.from_numpy(chances)
    torch.manual_seed(size)
    stream = MT19937Stream(size)

    assert_same_bits(random.standard_gamma(stream, values), torch._standard_gamma(theirs))
    assert_same_bits(random.poisson(stream, values), torch.poisson(theirs))
    assert_same_bits(random.binomial(stream, np.round(values), chances), torch.binomial(theirs.round(), p))
    assert_same_state(stream)


@needs_torch
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gamma_numbers_of_what_is_no_shape_end(dtype):
    values = np.array([np.nan, 2, -1, 0.5, -np.inf, 3, np.inf, -0.3, -1e-30, -1e38, 1, -0.66, -0.67, 2], dtype)
    torch.manual_seed(5)
    stream = MT19937Stream(5)

    assert_same_bits(random.standard_gamma(stream, values), torch._standard_gamma(torch.from_numpy(values)))
    assert_same_state(stream)
    points = np.array([[np.nan, 1], [np.inf, 1], [-1, 2]], dtype)
    np.testing.assert_allclose(random.dirichlet(stream, points), torch._sample_dirichlet(torch.from_numpy(points)).numpy(), rtol=4e-16)


@needs_torch
@pytest.mark.parametrize("dtype", HALF)
def test_half_rates_are_pytorchs(dtype):
    rates = parameters((20, 30), dtype_of(dtype), 30)
    torch.manual_seed(1)
    stream = MT19937Stream(1)

    theirs = torch.poisson(torch.from_numpy(rates.astype(np.float32)).to(getattr(torch, dtype)))

    assert_same_bits(random.poisson(stream, rates), theirs)
    assert_same_state(stream)


@needs_torch
@pytest.mark.parametrize("shape", [(50, 1), (50, 2), (20, 7), (4, 5, 300)])
def test_dirichlet_is_pytorchs_in_float32_and_within_an_ulp_in_float64(shape):
    alpha = parameters(shape, np.float64, 2) + 1e-3
    torch.manual_seed(3)
    its_alpha = torch.from_numpy(alpha)
    theirs = torch._sample_dirichlet(its_alpha), torch._sample_dirichlet(its_alpha.float())
    stream = MT19937Stream(3)
    double, single = random.dirichlet(stream, alpha), random.dirichlet(stream, alpha.astype(np.float32))

    # PyTorch adds a row's float64 numbers in an order of its own.
    np.testing.assert_allclose(double, theirs[0].numpy(), rtol=4e-16)
    assert_same_bits(single, theirs[1])
    assert_same_state(stream)


@needs_torch
@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("shape", [(1,), (6,), (3, 40), (2, 2000), (9, 300)])
def test_draws_from_weights_are_pytorchs(dtype, shape):
    weights = (parameters(shape, np.float64, 1) + 1e-2).astype(dtype_of(dtype))
    theirs = torch.from_numpy(weights.astype(np.float64)).to(getattr(torch, dtype))
    torch.manual_seed(5)
    stream = MT19937Stream(5)

    for count, replacement in ((1, False), (1, True), (500, True)):
        ours = random.multinomial(stream, weights, count, replacement)
        assert ours.flags.c_contiguous
        assert_same_bits(ours, torch.multinomial(theirs, count, replacement))
    if dtype not in HALF:                            # half quotients tie; PyTorch leaves their order open
        some = max(1, shape[-1] // 2)
        assert_same_bits(random.multinomial(stream, weights, some), torch.multinomial(theirs, some))
        assert_same_state(stream)


def test_a_weight_of_zero_is_never_drawn():
    weights = np.array([0.0, 1.0, 0.0, 3.0, 0.0])

    drawn = random.multinomial(MT19937Stream(0), weights, 1000, replacement=True)
    pair = random.multinomial(MT19937Stream(0), weights, 2)

    assert set(drawn.tolist()) == {1, 3}
    assert sorted(pair.tolist()) == [1, 3]


# The tiers


@pytest.fixture
def on_both_tiers():
    """Calls a function of a stream under the compiled and the numpy tier: both results and both final states."""
    def call(draw):
        told = []
        for name in (before if compiles else "llvm", "numpy"):
            kernels.set_backend(name)
            stream = MT19937Stream(0)
            stream.random32(100)
            told.append((draw(stream).tobytes(), stream.get_state().tolist()))
        return told

    before, compiles = kernels.backend(), kernels.engines.chosen().compiles
    yield call
    kernels.set_backend(before)


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("name", FILLS)
def test_both_tiers_fill_the_same_numbers(name, dtype, on_both_tiers):
    for shape in ((5,), (20011,), (40, 33)):
        compiled, interpreted = on_both_tiers(lambda stream, n=shape: FILLS[name][1](stream, np.empty(n, dtype_of(dtype)).T))

        assert compiled == interpreted


@pytest.mark.parametrize("draw", [
    lambda stream: random.standard_gamma(stream, parameters(3000, np.float64, 3)),
    lambda stream: random.poisson(stream, parameters(3000, np.float64, 30)),
    lambda stream: random.binomial(
        stream, np.round(parameters(3000, np.float64, 90)), parameters(3000, np.float64, 1, 1)),
    lambda stream: random.randperm(stream, 5000),
    lambda stream: random.multinomial(stream, parameters((7, 900), np.float32, 3), 40, True),
    lambda stream: random.bernoulli(stream, np.empty((30, 40), np.float32), parameters((30, 40), np.float32, 1)),
    lambda stream: random.randint(stream, np.empty(9000, np.int64), -7, 2**40),
], ids=["gamma", "poisson", "binomial", "randperm", "multinomial", "bernoulli", "randint"])
def test_both_tiers_draw_the_same_numbers(draw, on_both_tiers):
    compiled, interpreted = on_both_tiers(draw)

    assert compiled == interpreted


@pytest.mark.parametrize("name", ["uniform(-3, 7)", "normal(1.7, 0.3)", "exponential", "bernoulli(0.3)", "random_(-5, 50)"])
def test_the_number_of_threads_does_not_change_the_numbers(name):
    before, drawn = pool.get_num_threads(), []
    for threads in (1, 2, 4):
        pool.set_num_threads(threads)
        drawn.append(FILLS[name][1](MT19937Stream(0), np.empty(100_003, np.float32)).tobytes())
    pool.set_num_threads(before)

    assert drawn[0] == drawn[1] == drawn[2]


def test_a_remainder_is_exact_for_every_kind_of_divisor():
    words = MT19937Stream(0).random32(20_000).astype(np.int64)
    for count in (1, 2, 3, 10, 255, 2**16, 2**16 + 1, 2**28 - 1):
        drawn = random.randint(MT19937Stream(0), np.empty(20_000, np.int64), 0, count)

        np.testing.assert_array_equal(drawn, words % count)


def test_numba_is_not_imported_by_drawing(fresh_python):
    program = ("import sys\nimport numpy as np\nfrom flambeau_kernels.cpu import random\n"
               "stream = random.MT19937Stream(0)\nrandom.normal(stream, np.empty(10**6))\n"
               "random.poisson(stream, np.full(10**5, 3.0))\nrandom.randperm(stream, 10**6)\nprint('numba' in sys.modules)")

    assert fresh_python("-c", program, FLAMBEAU_BACKEND="llvm").strip() == "False"


def test_fused_multiply_add_rounds_once():
    from fractions import Fraction

    rng = np.random.default_rng(0)
    a = rng.random(2000)
    for b, c in ((0.6, 0.1), (-7.3, 3.9), (1e300, -3e299), (3e-300, 1e-300), (1e-30, 1.0), (1 + 2**-52, -1)):
        expected = [float(Fraction(float(x)) * Fraction(b) + Fraction(c)) for x in a]

        assert fma(a, b, c).tolist() == expected


# Bounds and moments, without PyTorch


@pytest.mark.parametrize("dtype", FLOATING)
def test_uniform_numbers_stay_below_the_upper_end_where_rounding_would_reach_it(dtype):
    values = random.uniform(MT19937Stream(0), np.empty(200_000, dtype_of(dtype)), 1000, 1024)
    values = values.astype(np.float64)

    assert values.min() >= 1000
    assert values.max() < 1024


def test_normal_numbers_have_their_mean_spread_and_no_correlation():
    values = random.normal(MT19937Stream(0), np.empty(200_000), 3.0, 2.0)

    # Five standard errors of each estimate.
    assert abs(values.mean() - 3) < 5 * 2 / math.sqrt(values.size)
    assert abs(values.var() - 4) < 5 * 4 * math.sqrt(2 / values.size)
    assert abs(np.corrcoef(values[:-8], values[8:])[0, 1]) < 5 / math.sqrt(values.size)


@pytest.mark.parametrize(("call", "words"), [
    (lambda s, a: random.uniform(s, a, 2, 1), "from=2.*to=1"),
    (lambda s, a: random.uniform(s, a, -3e38, 3e38), "3e\\+38"),
    (lambda s, a: random.uniform(s, a, math.nan, 1), "nan"),
    (lambda s, a: random.normal(s, a, 0, -1), "std=-1"),
    (lambda s, a: random.log_normal(s, a, 0, 0), "std=0"),
    (lambda s, a: random.exponential(s, a, 0), "lambda=0"),
    (lambda s, a: random.geometric(s, a, 1), "p=1"),
    (lambda s, a: random.cauchy(s, a, 0, 0), "sigma=0"),
    (lambda s, a: random.bernoulli(s, a, 1.5), "p=1.5"),
    (lambda s, a: random.bernoulli(s, a, np.full(4, np.nan)), "nan"),
    (lambda s, a: random.randint(s, a, 5, 5), "from=5.*to=5"),
    (lambda s, a: random.randint(s, a.astype(np.uint8), 0, 300), "299.*uint8"),
    (lambda s, a: random.randperm(s, -1), "n=-1"),
    (lambda s, a: random.randperm(s, 300, np.uint8), "255.*300"),
    (lambda s, a: random.poisson(s, -a - 1), "-1"),
    (lambda s, a: random.multinomial(s, a, 1), "sum of probabilities"),
    (lambda s, a: random.multinomial(s, a - 1, 1), "-1"),
    (lambda s, a: random.multinomial(s, a + 1, 5), "5 of 4"),
    (lambda s, a: random.multinomial(s, a + 1, 0), "0"),
    (lambda s, a: random.multinomial(s, np.ones(4, int), 1), "int64"),
])
def test_impossible_parameters_are_refused_with_their_values(call, words):
    with pytest.raises(RuntimeError, match=words):
        call(MT19937Stream(0), np.zeros(4, np.float32))


@pytest.mark.parametrize(("call", "dtype"), [
    (random.uniform, "int64"), (random.normal, "int32"), (random.log_normal, "complex64"),
    (random.exponential, "int64"), (random.cauchy, "bool"), (random.bernoulli, "complex64"),
    (lambda stream, out: random.geometric(stream, out, 0.5), "bool"),
    (lambda stream, out: random.randint(stream, out, 0, 2), "complex128"),
])
def test_arrays_that_cannot_hold_the_numbers_are_refused(call, dtype):
    with pytest.raises(NotImplementedError, match=dtype):
        call(MT19937Stream(0), np.empty(3, dtype))


def test_types_without_a_rule_are_refused():
    with pytest.raises(NotImplementedError, match="uint32"):
        random.random_bits(MT19937Stream(0), np.empty(3, np.uint32))
    with pytest.raises(NotImplementedError, match="int64"):
        random.poisson(MT19937Stream(0), np.ones(3, np.int64))
    with pytest.raises(NotImplementedError, match="float16"):
        random.standard_gamma(MT19937Stream(0), np.ones(3, np.float16))


# Philox


@pytest.mark.parametrize(("counter", "key", "words"), [
    ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     "d16cfe09 94fdcceb 5001e420 24126ea1"),
])
def test_philox_gives_the_published_known_answers(counter, key, words):
    # Known-answer vectors of Salmon et al. 2011 for Philox4x32 with ten rounds.
    drawn = random.philox4x32(np.array(counter, np.uint32).reshape(4, 1), key)

    assert " ".join(f"{word:08x}" for word in drawn[:, 0]) == words


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("method", ["uniform", "normal"])
def test_any_part_of_a_philox_draw_can_be_made_alone(dtype, method):
    whole = getattr(PhiloxStream(5, 2), method)(np.empty(1003, dtype_of(dtype)))

    for start, stop in ((0, 1), (1, 4), (3, 1003), (500, 501), (7, 64)):
        part = getattr(PhiloxStream(5, 2), method)(np.empty(stop - start, dtype_of(dtype)), start=start)
        assert part.tobytes() == whole[start:stop].tobytes()


def test_philox_draws_differ_by_seed_and_by_offset():
    starts = (0, 1, 2**32)
    draws = [PhiloxStream(seed, offset).words(0, 4).tolist() for seed in starts for offset in starts]

    assert len({tuple(draw) for draw in draws}) == len(draws)


def test_philox_numbers_have_the_moments_of_their_distributions():
    uniform = PhiloxStream(1).uniform(np.empty(200_000, np.float32)).astype(np.float64)
    normal = PhiloxStream(1).normal(np.empty(200_000, np.float32), 3.0, 2.0).astype(np.float64)

    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 5 / math.sqrt(12 * uniform.size)
    assert abs(normal.mean() - 3) < 5 * 2 / math.sqrt(normal.size)
    assert abs(normal.var() - 4) < 5 * 4 * math.sqrt(2 / normal.size)
    assert abs(np.corrcoef(normal[:-1], normal[1:])[0, 1]) < 5 / math.sqrt(normal.size)


def test_a_philox_state_goes_on_where_it_was_saved():
    stream = PhiloxStream(-1, 7).advance(3)

    again = PhiloxStream().set_state(stream.get_state())

    assert (again.initial_seed(), again.offset) == (2**64 - 1, 10)
    assert again.words(0, 5).tolist() == stream.clone().words(0, 5).tolist()


@pytest.mark.parametrize("arguments", [(2**64, 0), (0, -1), (0, 2**64)])
def test_a_philox_stream_out_of_range_is_refused(arguments):
    with pytest.raises(ValueError, match="PhiloxStream"):
        PhiloxStream(*arguments)


# The short way of a few numbers


def test_few_normals_are_the_same_numbers_by_every_way_of_asking():
    ways = (lambda: fb.randn(4, 8), lambda: fb.randn((4, 8)), lambda: fb.randn(size=(4, 8)), lambda: fb.empty(4, 8).normal_(),
            lambda: fb.randn(4, 8, dtype=fb.float32), lambda: fb.randn(4, 8, generator=fb.Generator().manual_seed(7)))  # fmt: skip
    made = []
    for way in ways:
        fb.manual_seed(7)
        made.append(way().tolist())

    assert all(numbers == made[0] for numbers in made)


def test_few_normals_respect_the_defaults_and_refuse_what_is_no_size():
    with fb.device("meta"):
        assert fb.randn(4, 4).is_meta
    before = fb.get_default_dtype()
    try:
        fb.set_default_dtype(fb.float64)
        assert fb.randn(4, 4).dtype is fb.float64
    finally:
        fb.set_default_dtype(before)
    assert fb.randn(4, 4, requires_grad=True).requires_grad
    with pytest.raises(RuntimeError, match="negative"):
        fb.randn(-4, -4)
    with pytest.raises(TypeError):
        fb.randn(True, 16)


@needs_torch
def test_few_normals_leave_the_generator_where_pytorch_leaves_it():
    fb.manual_seed(3)
    torch.manual_seed(3)
    for shape in ((4, 4), (3, 5), (16,), (64, 64), (4, 4), (5000,), (2, 8)):
        assert_same_bits(fb.randn(*shape).numpy(), torch.randn(*shape))

    np.testing.assert_array_equal(fb.get_rng_state().numpy(), torch.get_rng_state().numpy())


# --- a few numbers ------------------------------------------------------------------------------------------------

DRAWS = {
    "uniform": lambda s, a: random.uniform(s, a), "between": lambda s, a: random.uniform(s, a, -1.5, 2.0),
    "normal": lambda s, a: random.normal(s, a), "scaled": lambda s, a: random.normal(s, a, 0.5, 3.0),
    "coins": lambda s, a: random.bernoulli(s, a, 0.3), "bits": lambda s, a: random.random_bits(s, a),
    "coins each": lambda s, a: random.bernoulli(s, a, np.linspace(0, 1, a.size, dtype=a.dtype).reshape(a.shape)),
    "integers": lambda s, a: random.randint(s, a, -3, 60), "exponential": lambda s, a: random.exponential(s, a, 1.5),
    "wide integers": lambda s, a: random.randint(s, a, 0, 1 << 30),
}


@pytest.mark.skipif(not random_stream.compiles(), reason="no kernels")
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("name", DRAWS)
def test_a_few_numbers_are_those_that_the_long_way_draws(name, dtype, monkeypatch):
    if dtype is np.int64 and name not in ("coins", "bits", "integers", "wide integers"):
        pytest.skip("of floating dtypes")
    short, long = random_stream.MT19937Stream(5), random_stream.MT19937Stream(5)
    for k, shape in enumerate([(3,), (4, 4), (1,), (10,), (), (0,), (1024,), (33, 31), (15,), (2, 5), (300,)] * 3):
        few = DRAWS[name](short, np.empty(shape, dtype))
        with monkeypatch.context() as patch:
            patch.setattr(random_stream, "MOST_AT_ONCE", 0)
            expected = DRAWS[name](long, np.empty(shape, dtype))
        np.testing.assert_array_equal(few, expected, err_msg=f"{k} {shape}")
        np.testing.assert_array_equal(short.get_state(), long.get_state())


@pytest.mark.skipif(not random_stream.compiles(), reason="no kernels")
def test_permutations_of_a_few_are_those_of_the_long_way(monkeypatch):
    short, long = random_stream.MT19937Stream(5), random_stream.MT19937Stream(5)
    for n in (0, 1, 2, 3, 10, 31, 32, 33, 700, 1024, 1025):
        few = random.randperm(short, n)
        with monkeypatch.context() as patch:
            patch.setattr(random_stream, "MOST_AT_ONCE", 0)
            expected = random.randperm(long, n)
        np.testing.assert_array_equal(few, expected)
        assert few.dtype == np.int64
        np.testing.assert_array_equal(short.get_state(), long.get_state())


def test_chances_outside_of_0_to_1_draw_nothing():
    stream = random_stream.MT19937Stream(5)
    before = stream.get_state()
    for wrong in (-0.1, 1.5, np.nan):
        with pytest.raises(RuntimeError, match="p_in >= 0 && p_in <= 1 to be true"):
            random.bernoulli(stream, np.empty(3, np.float32), np.array([0.5, wrong, 0.5], np.float32))
    np.testing.assert_array_equal(stream.get_state(), before)


def test_threads_that_draw_a_few_get_each_number_once():
    import threading

    stream, other = random_stream.MT19937Stream(5), random_stream.MT19937Stream(5)
    found: list[np.ndarray] = []

    def work() -> None:
        found.extend(random.uniform(stream, np.empty(16 if k % 3 else 1300, np.float32)) for k in range(300))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = random.uniform(other, np.empty(sum(a.size for a in found), np.float32))

    np.testing.assert_array_equal(np.sort(np.concatenate(found)), np.sort(expected))
    np.testing.assert_array_equal(stream.get_state(), other.get_state())


@pytest.mark.parametrize("size", [1, 16, 17, 700, 1024, 1025])
def test_few_numbers_between_bounds_are_the_same_by_one_native_call(size, monkeypatch):
    if launchers.load():
        monkeypatch.setattr(hot_calls, "redraws", launchers.load()["redraws"])
    cases = [(random.uniform, random.refill_between, dtype, (-1, 1)) for dtype in (np.float32, np.float64)]
    cases += [(random.randint, random.refill_integers, dtype, (-3, 10)) for dtype in (np.int32, np.int64)]
    for fill, refill, dtype, bounds in cases:
        one, other = random.MT19937Stream(5), random.MT19937Stream(5)
        for _ in range(3):
            expected, found = np.empty(size, dtype), np.empty(size, dtype)
            fill(one, expected, *bounds)
            if (answered := refill(other, found, *bounds)):
                np.testing.assert_array_equal(found, expected)
            else:
                fill(other, found, *bounds)
        np.testing.assert_array_equal(one.get_state(), other.get_state())
        assert answered == (size <= 1024) or not launchers.load() or not engines.chosen().compiles


@pytest.mark.parametrize(("name", "dtype", "args"), [
    ("uniform_", "float32", ()), ("uniform_", "float64", (0.0, 1.0)), ("uniform_", "float32", (-1, 2)), ("normal_", "float32", ()),
    ("normal_", "float32", (1, 2.5)), ("random_", "int64", ()), ("random_", "float32", (100,)), ("random_", "int32", (-5, 100)),
    ("random_", "int64", (0, 2**40)), ("exponential_", "float32", ()), ("exponential_", "float32", (2.0,)),
    ("bernoulli_", "float32", (0.3,)),
])  # fmt: skip
@pytest.mark.parametrize("count", [0, 16, 33])
def test_the_entry_of_a_fill_draws_what_the_function_behind_it_draws(name, dtype, args, count):
    hot_calls.engine_is_in_use()
    entry = getattr(fb.Tensor, name)
    made = []
    for fill in (entry, entry.__wrapped__):
        fb.manual_seed(3)
        t = fb.zeros(count, dtype=getattr(fb, dtype))
        for _ in range(3):                            # the first call of a kind compiles its loop
            assert fill(t, *args) is t
        assert t._version == 3
        made.append((t, fb.rand(3)))
    assert made[0][0].equal(made[1][0])
    assert made[0][1].equal(made[1][1])


def test_a_fill_of_a_tensor_that_others_have_a_say_in_is_not_entered_at_once():
    x = fb.zeros(4, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        x.uniform_()
    y = x * 1
    y.view(2, 2).normal_()
    y.sum().backward()
    assert x.grad.equal(fb.zeros(4))
    with fb.inference_mode():
        frozen = fb.ones(3)
    with pytest.raises(RuntimeError, match="nference"):
        frozen.random_(0, 5)
