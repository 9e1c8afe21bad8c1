"""What PyTorch takes at the edges is taken, with its results: no batch, no elements, zeros, parts of tensors, Python's protocols."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as fb
from comparing import disagreements
from flambeau import nn


def test_layers_without_a_batch_or_channels_give_empty_results(oracle: Any) -> None:
    programs = """
    [x.shape for x in torch.nn.MultiheadAttention(4, 2, batch_first=True)(*(torch.zeros(0, 3, 4),) * 3)]
    [x.shape for x in torch.nn.MultiheadAttention(4, 2)(*(torch.zeros(3, 0, 4),) * 3)]
    [x.shape for x in torch.nn.MultiheadAttention(4, 2).eval()(torch.zeros(3, 0, 4), torch.zeros(5, 0, 4), torch.zeros(5, 0, 4))]
    torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)(torch.zeros(0, 3, 4)).shape
    torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()(torch.zeros(0, 3, 4)).shape
    torch.nn.Transformer(4, 2, 1, 1, 8, batch_first=True)(torch.zeros(0, 3, 4), torch.zeros(0, 2, 4)).shape
    F.adaptive_avg_pool1d(torch.ones(2, 0, 4), 2).shape
    F.adaptive_avg_pool2d(torch.ones(2, 0, 4, 4), 2).shape
    F.adaptive_avg_pool3d(torch.ones(2, 0, 4, 4, 4), 2).shape
    F.linear(torch.ones(3, 0), torch.ones(2, 0), torch.ones(2))
    x = torch.ones(0, 2, 5, 5, requires_grad=True); m = torch.nn.Conv2d(2, 3, 3); m(x).sum().backward(); x.grad.shape, m.weight.grad.sum()
    torch.conv_tbc(torch.zeros(0, 2, 2), torch.ones(2, 2, 1), torch.ones(1), 1).tolist()
    x = torch.ones(5, 17, requires_grad=True); x.as_strided((0, 2), (1, 1), (1 << 31) - 1).sum().backward(); x.grad.sum()
    """

    assert not disagreements(oracle, programs)


def test_divisions_by_zero_have_the_derivatives_of_ieee_numbers(oracle: Any) -> None:
    programs = """
    x = torch.ones(2, requires_grad=True); (x / 0).sum().backward(); x.grad
    x = torch.ones(2, requires_grad=True); (x / 0.0).sum().backward(); x.grad
    x = torch.ones(2, requires_grad=True); (x * 1).div_(0).sum().backward(); x.grad
    x = torch.zeros(2, requires_grad=True); (0 / x).sum().backward(); x.grad
    x = torch.zeros(2, requires_grad=True); (x**-1).sum().backward(); x.grad
    x = torch.ones(2, requires_grad=True); torch.fmod(x, 0).sum().backward(); x.grad
    x = torch.ones(2, requires_grad=True); torch.remainder(x, 0).sum().backward(); x.grad
    x = torch.zeros(2, requires_grad=True); torch.atan2(x, torch.zeros(2)).sum().backward(); x.grad
    x = torch.zeros(2, requires_grad=True); torch.atan2(torch.zeros(2), x).sum().backward(); x.grad
    x = torch.ones(2, 1, requires_grad=True); torch.cov(x).sum().backward(); x.grad
    x = torch.ones(2, 1, requires_grad=True); torch.corrcoef(x).sum().backward(); x.grad
    torch.fft.fftfreq(4, 0.0)
    torch.fft.rfftfreq(4, 0.0)
    torch.linalg.cond(torch.zeros(2, 2), 1)
    torch.linalg.cond(torch.zeros(3, 2, 2), 'fro')
    torch.linalg.cond(torch.zeros(2, 2), float('inf'))
    torch.linalg.cond(torch.zeros(2, 2), 'nuc')
    torch.linalg.cond(torch.zeros(2, 2))
    """

    assert not disagreements(oracle, programs)


def test_tensors_are_made_of_and_written_by_what_python_has(oracle: Any) -> None:
    programs = """
    x = torch.ones(2, dtype=torch.complex64); x.real = 0; x
    x = torch.ones(2, dtype=torch.complex64); x.imag = 3; x
    x = torch.ones(2, dtype=torch.complex64); x.imag = torch.tensor([3.0, 4.0]); x
    list(reversed(torch.tensor([1, 2, 3])))
    reversed(torch.arange(4).reshape(2, 2))
    reversed(torch.tensor(2.0))
    torch.IntTensor(range(4))
    torch.FloatTensor(range(4))
    torch.view_as_real(torch.logspace(0, 1j, 3)).round(decimals=4)
    torch.view_as_real(torch.logspace(1j, 2, 3, dtype=torch.complex128)).round(decimals=9)
    torch.logspace(0, 1j, 3, dtype=torch.float64)
    torch.rand(3, dtype=torch.complex32)
    torch.randn(5, dtype=torch.complex32).dtype
    torch.empty_strided((2, 3), (1, 2), dtype=torch.complex32).stride()
    torch.tensor(torch.tensor([1.0, 2.0]).untyped_storage(), dtype=torch.uint8)
    [x.shape for x in torch.linalg.lstsq(torch.ones(3, 2), torch.ones(3, 0))][:1]
    torch.addr(torch.ones(2, 2, dtype=torch.int64), torch.tensor([1, 2]), torch.tensor([1, 2]), beta=0.5)
    torch.addr(torch.ones(2, 2, dtype=torch.int64), torch.tensor([1, 2]), torch.tensor([1, 2]), beta=2)
    F.embedding_bag(torch.arange(5), torch.ones(5, 2), torch.tensor([0, 2, 4]), mode='sum', include_last_offset=True)
    """

    assert not disagreements(oracle, programs)
    assert fb.tensor([np.array(1), 2]).tolist() == [1, 2]


def test_fills_and_stores_may_write_expanded_tensors(oracle: Any) -> None:
    programs = """
    x = torch.zeros(1, 3).expand(2, 3); x.masked_fill_(torch.tensor([True, False, True]), 1.0); x
    x = torch.zeros(1, 3).expand(2, 3); x.masked_fill_(torch.tensor([True, False, True]), torch.tensor(2.0)); x
    x = torch.zeros(1, 3).expand(2, 3); x[torch.tensor([[True, False, True]] * 2)] = 1.0; x
    x = torch.zeros(1, 3).expand(2, 3); x[torch.tensor([0])] = 1.0; x
    x = torch.zeros(1, 3).expand(2, 3); x.index_put_((torch.tensor([0]),), torch.tensor(2.0)); x
    x = torch.zeros(1, 3).expand(2, 3); x.index_fill_(1, torch.tensor([0]), 1.0); x
    x = torch.zeros(1, 3).expand(2, 3); x.index_fill_(1, torch.tensor([0]), torch.tensor(1.0)); x
    x = torch.zeros(1, 3).expand(2, 3); x.masked_scatter_(torch.tensor([True, False, True]), torch.ones(6)); x
    x = torch.zeros(1, 3).expand(2, 3); x.index_copy_(0, torch.tensor([0]), torch.ones(1, 3)); x
    x = torch.zeros(1, 3).expand(2, 3); x.add_(1); x
    """

    assert not disagreements(oracle, programs)
    fb.set_warn_always(True)
    try:
        with pytest.warns(UserWarning, match="masked_fill_ on expanded tensors is deprecated"):
            fb.zeros(1, 3).expand(2, 3).masked_fill_(fb.tensor([True, False, True]), 1)
    finally:
        fb.set_warn_always(False)


def test_setup_context_is_given_the_defaults_of_forward():
    class Times(fb.autograd.Function):
        @staticmethod
        def forward(x, factor=3.0):
            return x * factor

        @staticmethod
        def setup_context(ctx, inputs, output):
            _, ctx.factor = inputs

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.factor, None

    x = fb.ones(2, requires_grad=True)
    (Times.apply(x) + Times.apply(x, 2.0)).sum().backward()

    assert x.grad.tolist() == [5.0, 5.0]


def test_hooks_that_always_run_do_so_when_a_hook_before_forward_raises():
    layer, seen = nn.Linear(2, 2), []

    def refuse(module, args):
        raise ValueError("not this one")

    layer.register_forward_pre_hook(refuse)
    layer.register_forward_hook(lambda module, args, output: seen.append(output), always_call=True)
    with pytest.raises(ValueError, match="not this one"):
        layer(fb.ones(1, 2))

    assert seen == [None]


def test_a_tensor_may_have_two_parametrizations_without_inverse():
    class Times(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        def forward(self, x):
            return x * self.factor

    layer = nn.Linear(2, 2)
    before = layer.weight.detach().clone()
    for factor in (2.0, 3.0):
        nn.utils.parametrize.register_parametrization(layer, "weight", Times(factor))

    fb.testing.assert_close(layer.weight, before * 6)


def test_a_grad_scaler_stays_finite():
    p = nn.Parameter(fb.ones(1))
    scaler, optimizer = fb.amp.GradScaler("cpu", init_scale=3e38, growth_interval=1), fb.optim.SGD([p], 0.1)
    scaler.scale((p * 0).sum()).backward()
    scaler.step(optimizer)
    scaler.update()

    assert scaler.get_scale() == pytest.approx(3e38)


def test_derivatives_of_scattered_parts_and_inverses_are_those_of_differences():
    made = fb.rand(3, 3, dtype=fb.float64, generator=fb.Generator().manual_seed(0)) + 2 * fb.eye(3, dtype=fb.float64)
    tangent = fb.arange(9.0, dtype=fb.float64).reshape(3, 3)
    for fn in (lambda x: fb.cholesky_inverse(x.tril()), lambda x: fb.cholesky_inverse(x.triu(), True), fb.cov, fb.corrcoef):
        _, slope = fb.func.jvp(fn, (made,), (tangent,))
        fb.testing.assert_close(slope, (fn(made + 1e-6 * tangent) - fn(made - 1e-6 * tangent)) / 2e-6, rtol=1e-6, atol=1e-7)
    x, src = (fb.rand(4, 4, dtype=fb.float64), fb.rand(2, 2, dtype=fb.float64))
    assert fb.autograd.gradcheck(lambda x, s: fb.as_strided_scatter(x, s, (2, 2), (2, 1), 1), (x.requires_grad_(), src.requires_grad_()))
    assert fb.autograd.gradgradcheck(fb.cov, made.requires_grad_())


def test_a_storage_of_bytes_is_read_as_elements_of_the_dtype_asked_for(oracle: Any) -> None:
    programs = """
    torch.tensor(torch.tensor([1.0, 2.0]).untyped_storage(), dtype=torch.float32)
    torch.tensor(torch.tensor([1.0, 2.0, 3.0]).untyped_storage(), dtype=torch.float64)
    torch.tensor(torch.tensor([1.0, 2.0]).untyped_storage())
    torch.as_tensor(torch.tensor([1.0, 2.0]).untyped_storage(), dtype=torch.uint8)
    torch.asarray(torch.tensor([1.0, 2.0]).untyped_storage(), dtype=torch.float32)
    torch.ones(2).new_tensor(torch.tensor([1.0, 2.0]).untyped_storage())
    torch.tensor(torch.tensor([1.0, 2.0]).storage(), dtype=torch.float64)
    """

    assert not disagreements(oracle, programs)


def test_a_lazy_module_takes_the_state_of_one_that_has_seen_nothing_either(oracle: Any) -> None:
    programs = """
    str(torch.nn.LazyLinear(3).load_state_dict(torch.nn.LazyLinear(3).state_dict()))
    str(torch.nn.LazyBatchNorm1d().load_state_dict(torch.nn.LazyBatchNorm1d().state_dict()))
    m = torch.nn.LazyLinear(3); s = torch.nn.LazyLinear(3).state_dict(); m.load_state_dict(s); m(torch.ones(1, 2)).shape
    torch.nn.Linear(2, 3).load_state_dict(torch.nn.LazyLinear(3).state_dict())
    """

    assert not disagreements(oracle, programs)


def test_a_tensor_of_one_integer_counts():
    two, five = fb.tensor(2), fb.tensor(5, dtype=fb.int32)

    assert fb.equal(fb.linspace(0, 1, five), fb.linspace(0, 1, 5))
    assert fb.equal(fb.logspace(0, 1, five), fb.logspace(0, 1, 5))
    assert fb.equal(fb.signal.windows.hann(five), fb.signal.windows.hann(5))
    assert [t.tolist() for t in fb.split(fb.arange(3), two)] == [[0, 1], [2]]
    assert fb.equal(fb.matrix_power(2 * fb.eye(2), two), 4 * fb.eye(2))
    for call in (lambda x: fb.linspace(0, 1, x), fb.signal.windows.hann, lambda x: fb.matrix_power(fb.eye(2), x)):
        for wrong in (fb.tensor(2.0), fb.tensor([2])):
            with pytest.raises(TypeError, match="int"):
                call(wrong)


def test_products_without_a_sum_mix_dtypes_in_einsum():
    whole, halves = fb.arange(6, dtype=fb.int32).reshape(2, 3), fb.full((2, 3), 0.5)

    assert fb.equal(fb.einsum("ij,ij->ij", whole, halves), whole * halves)
    assert fb.equal(fb.einsum("ij,kl->ijkl", whole, halves), whole[:, :, None, None] * halves)
    with pytest.raises(RuntimeError, match=r"expected scalar type torch\.int32 but found torch\.float32"):
        fb.einsum("ij,kj->ik", whole, halves)


def test_max_and_min_are_names_of_reductions_in_scatter_reduce():
    index, src = fb.tensor([0, 1, 0]), fb.tensor([-1.0, 2.0, 3.0])
    for short, long in (("max", "amax"), ("min", "amin")):
        assert fb.equal(fb.zeros(2).scatter_reduce(0, index, src, short), fb.zeros(2).scatter_reduce(0, index, src, long))
        assert fb.equal(fb.zeros(2).scatter_reduce_(0, index, src, short), fb.zeros(2).scatter_reduce(0, index, src, long))


def test_what_is_saved_for_backward_need_be_a_tensor_only_where_there_is_a_backward():
    class Keeps(fb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, "word")
            return x * 2

    assert Keeps.apply(fb.ones(1)).tolist() == [2.0]
    with pytest.raises(TypeError, match="argument of type str"):
        Keeps.apply(fb.ones(1, requires_grad=True))


def test_a_tensor_of_one_number_stands_for_a_number_beside_others(oracle: Any) -> None:
    programs = """
    torch.arange(6).clamp(0, torch.tensor(3))
    torch.arange(6).clamp(torch.tensor(1.5), 3)
    torch.arange(6).clip(torch.tensor(True), max=3)
    torch.arange(6).clamp_(1, torch.tensor(3))
    torch.clamp(torch.arange(6), 1, torch.tensor(3), out=torch.empty(0, dtype=torch.int64))
    torch.arange(6.0).clamp(torch.tensor(1.5, dtype=torch.float64), 3)
    torch.arange(6.0).clamp(torch.tensor([1.5]), 3)
    torch.arange(6.0).clamp(torch.tensor(1.5, requires_grad=True), 3)
    x = torch.arange(6.0, requires_grad=True); x.clamp(torch.tensor(1.5), 3).sum().backward(); x.grad
    torch.manual_seed(0); torch.normal(torch.tensor(0.5), 1.0, (3,))
    torch.manual_seed(0); torch.normal(0.5, torch.tensor(2.0), (3,))
    torch.normal(torch.ones(2), 1.0, (2,))
    torch.normal(torch.tensor(1.0, requires_grad=True), 1.0, (2,))
    torch.histc(torch.arange(3.0), torch.tensor(3))
    torch.histc(torch.arange(3.0), torch.tensor(3.0))
    torch.histc(torch.arange(3.0), torch.tensor([3]))
    """

    assert not disagreements(oracle, programs)


def test_numbers_alone_are_added_multiplied_and_divided(oracle: Any) -> None:
    programs = """
    torch.add(3, 2)
    torch.add(3, 2.5, alpha=2)
    torch.add(True, 2)
    torch.sub(3.5, 2)
    torch.subtract(3, 2, alpha=2)
    torch.mul(3, 2j)
    torch.multiply(3.5, 2)
    torch.div(7, 2)
    torch.div(-7, 2, rounding_mode="trunc")
    torch.div(-7, 2, rounding_mode="floor")
    torch.divide(7, 2.5, rounding_mode="floor")
    torch.true_divide(3, 2)
    torch.floor_divide(-7, 2)
    torch.div(7, 2, out=torch.empty(()))
    torch.remainder(7, 2)
    torch.pow(7, 2)
    torch.add("a", 2)
    """

    assert not disagreements(oracle, programs)


def test_types_of_numbers_stand_for_dtypes_wherever_a_dtype_may_be_given(oracle: Any) -> None:
    x = "torch.ones(2, 2)"
    calls = f"""
    torch.softmax({x}, 0, dtype=float); F.softmin({x}, 0, dtype=float); {x}.log_softmax(0, float)
    torch.special.log_softmax({x}, 0, dtype=float)
    torch.cumsum({x}, 0, dtype=float); torch.cumprod({x}, 0, dtype=int); torch.nansum({x}, dtype=float)
    torch.linalg.vector_norm({x}, dtype=float); torch.linalg.norm({x}, dtype=float); torch.linalg.matrix_norm({x}, dtype=float)
    torch.norm({x}, dtype=float); torch.hann_window(3, dtype=float); torch.bartlett_window(3, dtype=float).dtype
    torch.linspace(0, 1, 3, dtype=float); torch.logspace(0, 1, 3, dtype=float); torch.randperm(3, dtype=float)
    torch.frombuffer(bytearray(8), dtype=float); torch.fft.fftfreq(3, dtype=float); torch.fft.rfftfreq(3, dtype=float)
    torch.finfo(float); torch.iinfo(int); torch.promote_types(float, torch.int32); torch.can_cast(float, int)
    torch.nn.Linear(2, 2).to(float).weight.dtype; torch.nn.Linear(2, 2).to(dtype=float).weight.dtype; torch.nn.Linear(2, 2).to(int)
    torch.softmax({x}, 0, str); torch.randperm(3, dtype=str); torch.finfo(int); torch.can_cast(str, int)
    """

    assert not disagreements(oracle, calls.replace("; ", "\n"))


def test_numbers_of_numpy_and_objects_with_an_index_are_numbers(oracle: Any) -> None:
    programs = """
    torch.arange(np.float32(2.5))
    torch.arange(0, 5, np.float32(1.5))
    torch.arange(np.float16(0.5), np.int64(3))
    torch.arange(np.bool_(True))
    torch.range(np.float32(0.5), np.int64(3))
    torch.matrix_power(torch.eye(2), np.int64(2))
    torch.ones(np.array(2))
    torch.fft.fftfreq(torch.tensor(4), torch.tensor(2.0))
    torch.fft.rfftfreq(np.int64(4), np.float64(2.0))
    torch.histogram(torch.arange(9.0), weight=torch.ones(9))[0].shape
    torch.Generator(None).device
    torch.ones(2, device="meta").get_device()
    torch.scalar_tensor(torch.tensor(2)), torch.scalar_tensor(np.float32(1.5)), torch.scalar_tensor(True)
    F.avg_pool1d(torch.ones(1, 3, 4), torch.tensor(2)), F.max_pool2d(torch.ones(1, 4, 4), torch.tensor(2))
    F.adaptive_max_pool1d(torch.ones(1, 3, 4), torch.tensor(2)), F.group_norm(torch.arange(8.0).view(2, 4), torch.tensor(2))
    F.pixel_shuffle(torch.arange(4.0).view(1, 4, 1, 1), torch.tensor(2))
    F.channel_shuffle(torch.arange(4.0).view(1, 4, 1, 1), torch.tensor(2))
    """  # fmt: skip

    assert not disagreements(oracle, programs)


@pytest.mark.filterwarnings("ignore:from is out of bounds", "ignore:to - 1 is out of bounds")
def test_random_integers_beyond_what_a_floating_dtype_holds(oracle: Any) -> None:
    rng = np.random.default_rng(0)
    programs = """
    torch.empty(3, dtype=torch.float16).random_(2**15)
    torch.empty(3, dtype=torch.float16).random_(2**16)
    torch.empty(3, dtype=torch.bfloat16).random_(2**15), torch.randint(2**33, (3,), dtype=torch.bfloat16)
    torch.empty(3).random_(2**24), torch.empty(3).random_(2**24 + 1), torch.empty(3).random_(2**40), torch.empty(3).random_(-2**31, 2**31)
    torch.randint(2**24 + 5, (3,), dtype=torch.float32), torch.randint_like(torch.ones(3), 2**53)
    torch.randint(2**60, (3,), dtype=torch.float64)
    torch.empty(3, dtype=torch.bfloat16).random_(640448510743125650, 643498137275661931)
    """  # fmt: skip
    for _ in range(60):
        name, bits = rng.choice(["float32", "float64", "bfloat16"]), int(rng.choice([14, 26, 30, 40, 60]))
        low, high = sorted(int(n) for n in rng.integers(-(1 << bits), 1 << bits, 2))
        programs += f"\ntorch.empty(3, dtype=torch.{name}).random_({low}, {high + 5000})"

    assert not disagreements(oracle, programs)
