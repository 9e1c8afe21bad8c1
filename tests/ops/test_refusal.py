"""Calls that no op can answer end at once, in an exception of PyTorch's type that names the argument."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import flambeau as fb
from comparing import disagreements
from flambeau.ops._spec import OPS

F = fb.nn.functional


@pytest.fixture(autouse=True)
def soon() -> Iterator[None]:
    """No call here takes seconds."""

    def late(*_: Any) -> None:
        raise TimeoutError("it goes on and on")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


# -- arguments of the wrong kind -------------------------------------------------------------------------------------------


def test_junk_is_refused_as_a_type_error(oracle: Any) -> None:
    programs = """
    torch.addmm([torch.ones(2)], torch.ones(2, 2), torch.ones(2, 2))
    torch.Tensor.addmm_(torch.ones(2, 2), torch.ones(2, 2), ())
    torch.diagonal_scatter(torch.ones(2, 2), ())
    torch.scatter_reduce(lambda *a: 1, 0, torch.tensor([0]), torch.ones(1), 'amin')
    torch.scatter_reduce(torch.ones(2), 0, torch.strided, torch.ones(1), 'amin')
    torch.masked_scatter(torch.ones(2), [None], torch.ones(2))
    torch.cummax(torch.ones(2), np.ones(3))
    torch.argmax(torch.ones(3), keepdim=torch.ones(2, 0))
    torch.einsum(3, torch.ones(2))
    torch.einsum([1, 'a'], torch.ones(2), torch.ones(2))
    torch.kron(torch.ones(2), 2.0)
    torch.inner(torch.ones(2, 2), 1j)
    torch.diff(torch.ones(3), prepend=(2, 3))
    torch.istft(torch.ones(3, 3, dtype=torch.complex64), 4, window=())
    torch.chain_matmul((1.5, 2))
    torch.atleast_1d((1, 3))
    torch.broadcast_to(np.float64(2), (4,))
    torch.ger(torch.ones(2), [[2], [3]])
    torch.moveaxis(float('inf'), (0, 1), (1, 0))
    torch.cumulative_trapezoid(3.5)
    torch.index_copy(torch.ones(2), 0, [], torch.ones(2))
    torch.group_norm(torch.ones(2, 4), 2, eps=[1, 'a'])
    torch.full_like((3,), 1)
    torch.full_like(torch.ones(2), 1, memory_format=-100)
    torch.fill_((1.5, 2), 1)
    F.cross_entropy(torch.ones(3, 4), torch.tensor([0, 1, 2]), ignore_index=None)
    F.nll_loss(torch.ones(3, 4), torch.tensor([0, 1, 2]), ignore_index='a')
    torch.convolution(torch.ones(1, 2, 4), torch.ones(2, 2, 1), None, (1,), (0,), (1,), False, (0,), np.ones(3))
    torch.eye(np.ones(3))
    torch.chain_matmul('a')
    torch.embedding(torch.ones(2, 2), torch.tensor([0]), -1, 3)
    torch.embedding(torch.ones(()), torch.tensor([0]))
    torch.empty_strided((1, 3, 1), torch.ones(3))
    torch.chunk(torch.ones(5), torch.ones(1), 0)
    torch.chunk(torch.ones(5), 1, 1 << 63)
    torch.binomial(torch.ones(2, 5), torch.ones(3, 3, 5))
    """

    assert not disagreements(oracle, programs)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fb.addmm([1], fb.ones(2, 2), fb.ones(2, 2)), r"addmm\(\): argument 'input' \(position 1\) must be Tensor, not list"),
        (lambda: fb.argmax(fb.ones(2), keepdim=fb.ones(3)), r"'keepdim' \(position 3\) must be bool, not Tensor"),
        (lambda: F.nll_loss(fb.ones(1, 2), fb.tensor([0]), ignore_index=None), r"'ignore_index' \(position 5\) must be int, not NoneType"),
        (lambda: fb.chain_matmul(fb.ones(2, 2), 1), r"tuple of Tensors, but element 1 is int"),
    ],
)
def test_the_argument_is_named_with_what_it_must_be(call: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        call()


def test_errors_of_functions_that_users_pass_are_left_alone() -> None:
    def distance(x: Any, y: Any) -> Any:
        return x.no_such_attribute

    with pytest.raises(AttributeError, match="no_such_attribute"):
        F.triplet_margin_with_distance_loss(fb.ones(2), fb.ones(2), fb.ones(2), distance_function=distance)


# -- sizes -----------------------------------------------------------------------------------------------------------------


def test_sizes_that_overflow_are_runtime_errors(oracle: Any) -> None:
    programs = """
    torch.zeros(1 << 62)
    torch.zeros(1 << 62, 1 << 62)
    torch.ones(1 << 31, 1 << 31, 1 << 31)
    torch.zeros(3, 1 << 70)
    torch.empty(1 << 62)
    torch.full((1 << 62,), 2)
    torch.zeros(1 << 62, 4, dtype=torch.uint8, device='meta')
    torch.zeros(1).expand(1 << 62, 1 << 10)
    torch.zeros(1).repeat(1 << 62, 1 << 10)
    torch.eye(1 << 40)
    torch.arange(1 << 62)
    torch.linspace(0, 1, 1 << 62)
    torch.randperm(1 << 62)
    torch.rand(1 << 62)
    torch.randint(3, (1 << 62,))
    torch.diag_embed(torch.ones(3), 1 << 40)
    torch.diag(torch.ones(3), 1 << 62)
    F.one_hot(torch.tensor([1]), 1 << 62)
    torch.repeat_interleave(torch.tensor([1 << 62]))
    torch.histc(torch.ones(3), 1 << 62)
    torch.multinomial(torch.ones(3), 1 << 62, True)
    F.pad(torch.ones(4), (1 << 62, 1 << 62))
    torch.combinations(torch.ones(1), 1 << 62, True)
    """

    assert not disagreements(oracle, programs)


def test_more_memory_than_there_is_is_a_runtime_error(oracle: Any) -> None:
    programs = """
    torch.zeros(1 << 45)
    torch.ones(1 << 45)
    torch.rand(1 << 45)
    torch.full((1 << 45,), 1.0)
    torch.arange(1 << 45)
    torch.tril_indices(1 << 30, 1 << 30)
    F.interpolate(torch.ones(1, 1, 4), 1 << 45)
    F.adaptive_avg_pool1d(torch.ones(1, 1, 4), 1 << 45)
    torch.bincount(torch.tensor([3, 1 << 45]))
    """

    assert not disagreements(oracle, programs)


@pytest.mark.parametrize("count", [7, 3000])
@pytest.mark.parametrize("largest", [(1 << 63) - 1, (1 << 63) - 2, (1 << 62), 1 << 45])
def test_bincount_of_huge_values_is_refused_before_anything_is_written(largest: int, count: int) -> None:
    x = fb.zeros(count, dtype=fb.int64)
    x[3] = largest

    for _ in range(3):
        with pytest.raises(RuntimeError, match=r"overflow|allocate"):
            fb.bincount(x)
    with pytest.raises(RuntimeError, match=r"overflow|allocate"):
        fb.bincount(x, weights=fb.ones(count))


@pytest.mark.parametrize("pool", [F.adaptive_avg_pool1d, F.adaptive_max_pool1d])
@pytest.mark.parametrize("size", [1 << 40, 1 << 62])
def test_adaptive_pools_of_sizes_that_no_memory_holds_end_at_once(pool: Any, size: int) -> None:
    with pytest.raises(RuntimeError, match=r"overflowed|allocate"):
        pool(fb.ones(1, 1, 4), size)


@pytest.mark.parametrize("stride", [1 << 40, (1 << 62) - 1, (1 << 63) - 1])
@pytest.mark.parametrize("count", [1, 2])
def test_a_convolution_of_one_window_may_have_any_stride(stride: int, count: int) -> None:
    x, weight = fb.randn(2, 2, 5).requires_grad_(), fb.randn(3, 2, 4).requires_grad_()
    y, v = x.detach().requires_grad_(), weight.detach().requires_grad_()

    for _ in range(count):
        F.conv1d(x, weight, stride=stride).square().sum().backward()
        F.conv1d(y, v, stride=2).square().sum().backward()

    assert fb.equal(x.grad, y.grad)
    assert fb.equal(weight.grad, v.grad)


def test_a_transposed_convolution_of_one_element_may_have_any_stride() -> None:
    x, weight = fb.randn(2, 2, 1), fb.randn(2, 3, 4)

    made = F.conv_transpose1d(x, weight, stride=1 << 62, output_padding=2)

    assert fb.equal(made, F.conv_transpose1d(x, weight, stride=3, output_padding=2))


def test_a_lone_tap_may_have_any_dilation() -> None:
    x, weight = fb.randn(2, 2, 5), fb.randn(3, 2, 1)

    assert fb.equal(F.conv1d(x, weight, dilation=1 << 62), F.conv1d(x, weight))


@pytest.mark.parametrize(
    "call",
    [
        lambda: F.conv_transpose2d(fb.ones(1, 1, 2, 2), fb.ones(1, 1, 2, 2), stride=1 << 40),
        lambda: F.conv_transpose2d(fb.ones(1, 1, 2, 2), fb.ones(1, 1, 2, 2), stride=1 << 62),
        lambda: F.conv2d(fb.ones(1, 1, 4, 4), fb.ones(1, 1, 2, 2), padding=1 << 40),
        lambda: F.conv2d(fb.ones(1, 1, 4, 4), fb.ones(1, 1, 2, 2), padding=1 << 40, stride=1 << 40),
        lambda: F.max_pool1d(fb.ones(1, 1, 4), 1 << 40, padding=1 << 39),
        lambda: F.avg_pool2d(fb.ones(1, 1, 4, 4), 1 << 40, padding=1 << 39),
        lambda: F.affine_grid(fb.ones(2, 2, 3), (2, 1, 3, (1 << 63) - 1), align_corners=False),
        lambda: fb.mvlgamma(fb.ones(3) * 9, 1 << 40),
        lambda: fb.mvlgamma(fb.ones(3) * 9, 1 << 62),
    ],
)
def test_sizes_are_looked_at_before_anything_loops_over_them(call: Any) -> None:
    with pytest.raises(RuntimeError, match=r"overflow|allocate"):
        call()


def test_mvlgamma_of_many_terms_adds_them_at_once(oracle: Any) -> None:
    x = fb.tensor([900.0, 5000.0], dtype=fb.float64)

    assert fb.mvlgamma(x, 1000).tolist() == pytest.approx(oracle.mvlgamma(oracle.tensor(x.tolist(), dtype=oracle.float64), 1000).tolist())


def _within_itself(*values: Any) -> list[Any]:
    made = list(values)
    made.append(made)
    return made


class Endless:
    """A sequence whose elements are itself, or that has others than it says."""

    def __init__(self, length: int, element: Any = None) -> None:
        self.length, self.element = length, element

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self if self.element is None else self.element


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (_within_itself(), ValueError),
        (_within_itself(1, 2), TypeError),
        ([_within_itself(), _within_itself()], ValueError),
        (Endless(1), ValueError),
        (Endless(2), ValueError),
        (Endless(1 << 62, 1.0), RuntimeError),
        (Endless(3, 1.0), ValueError),
        (range(1 << 62), RuntimeError),
    ],
)
@pytest.mark.parametrize("make", [fb.tensor, fb.as_tensor])
def test_sequences_without_an_end_are_refused(make: Any, data: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        make(data)


def test_a_list_that_holds_itself_twice_does_not_double_at_every_level() -> None:
    twice: list[Any] = []
    twice += [twice, twice]

    with pytest.raises(ValueError, match="too many dimensions"):
        fb.tensor(twice)


def test_junk_that_random_calls_found_is_refused_in_pytorchs_types(oracle: Any) -> None:
    programs = """
    torch.range(torch.tensor(1.0, requires_grad=True), 5, 1)
    torch.range(torch.tensor(1.0), 5, 1)
    torch.narrow_copy(torch.rand(5), -1, '', 1)
    F.embedding_bag(torch.zeros(4, dtype=torch.int64), torch.ones(1, 8), torch.tensor([0, 2]), max_norm=torch.ones(5))
    F.pixel_shuffle(torch.ones(3, 5, 3), np.ones(3))
    torch.linalg.pinv(torch.ones(2, 2), rtol='')
    torch.linalg.solve_ex(torch.ones(0, 3, 3), torch.tensor(1.0))
    torch.fft.rfft2(torch.ones(5, 2, 1), [1, 'a'])
    torch.ones(2, 0, 3).index_put((torch.tensor([-3, 1, 0, 0, 0]),), torch.ones(5, 3))
    torch.ones(5, 2, 3, 3).index_put((torch.tensor([0, 1]), torch.tensor([16, -17])), torch.ones(2))
    torch.ones(5, 2).index_put((torch.tensor([0, 9]),), torch.ones(2))
    torch.ones(17).cov(fweights=np.ones(3))
    torch.ones(3).is_set_to(np.ones(3))
    torch.ones(3).is_set_to(1j)
    torch.ones(2, 1, 0).mvlgamma(1 << 63)
    torch.ones(2).normal_('', 3)
    torch.ones(2).normal_(np.ones(3))
    torch.ones(2).uniform_(np.ones(3), 2)
    torch.ones(5, 7).roll(torch.tensor([[1], [2]]), (1, 0))
    torch.ones(2, 4).repeat_interleave((1 << 63) - 1, 1)
    F.bilinear(torch.ones(2, 4), torch.ones(2, 4), torch.ones(4, 4, 4), torch.ones(3))
    F.pad(torch.ones(1, 4), (0, 1), value=torch.ones(17))
    torch.ones(1).permute(np.int64(1))
    torch.ones(2, 3).set_(storage_offset=np.ones(3))
    torch.ones(2, 3).multinomial(np.ones(3), True)
    torch.ones(5, 1).nanmean(dtype=torch.tensor(1.0))
    torch.ones(4).resize_((1, 4, 1 << 62, 7))
    torch.ones(4).resize_((1 << 62, 4))
    torch.ones(1).var(-1, correction=1j)
    torch.arange(-(1 << 70), 7.5, requires_grad=17)
    torch.arange(-2.5, 10, dtype='a')
    """

    assert not disagreements(oracle, programs)
    with pytest.raises(RuntimeError, match="Low precision"):
        fb.svd_lowrank(fb.ones(1, 4, dtype=fb.float16))
    with pytest.raises(TypeError, match="'value' must be Tensor"):
        F.multi_head_attention_forward(
            fb.ones(1, 1, 4), fb.ones(1, 1, 4), 3, 4, 1, None, None, None, None, False, 0.0, fb.ones(4, 4), None, False  # type: ignore[arg-type]
        )


@pytest.mark.parametrize("write", [fb.Tensor.random_, fb.Tensor.normal_, fb.Tensor.bernoulli_])
def test_draws_into_expanded_tensors_are_refused(write: Any) -> None:
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        write(fb.zeros(1).expand(3))


# -- what random calls found ------------------------------------------------------------------------------------------------


def test_integers_past_2_to_the_63_are_refused_by_ranges_as_pytorch_does(oracle: Any) -> None:
    programs = """
    torch.arange(1, 1 << 63, 2)
    torch.arange(1 << 63)
    torch.arange(0, 1 << 64)
    torch.arange(1 << 63, (1 << 63) + 2)
    torch.arange(0., 5, 1 << 70)
    torch.arange(0., 1 << 63, 1 << 62)
    torch.arange(0, 1 << 63, dtype=torch.float32)
    torch.arange(-(1 << 70), 0, device=torch.ones(3))
    torch.range(0, 1 << 63)
    torch.logspace(1, 0, (1 << 63) - 1, 0.5)
    """

    assert not disagreements(oracle, programs)


@pytest.mark.parametrize("shape", [(5, 5), (1, 5), (2, 4), (2, 6), (5,), ()])
def test_pivots_that_do_not_belong_to_the_matrices_are_refused(shape: tuple[int, ...]) -> None:
    # PyTorch reads and writes beside its arrays for some of these in lu_unpack.
    packed, pivots = fb.eye(5).expand(2, 5, 5), fb.ones(shape, dtype=fb.int32)

    with pytest.raises(RuntimeError, match=r"torch\.lu_unpack: .*pivots.*\(?\[?2, 5, 5"):
        fb.lu_unpack(packed, pivots)
    with pytest.raises(RuntimeError, match=r"linalg\.lu_solve: .*pivots.*\(?\[?2, 5, 5"):
        fb.linalg.lu_solve(packed, pivots, fb.ones(2, 5, 1))


def test_indices_of_a_part_of_a_huge_triangle_are_had_at_once() -> None:
    side = 1 << 40

    assert fb.tril_indices(side, 0).shape == (2, 0)
    assert fb.tril_indices(side, side, 2 - side).tolist() == [[side - 2, side - 1, side - 1], [0, 0, 1]]
    assert fb.triu_indices(side, side, side - 2).tolist() == [[0, 0, 1], [side - 2, side - 1, side - 1]]


def test_what_an_empty_batch_is_resampled_to_may_be_huge() -> None:
    assert F.interpolate(fb.ones(0, 2, 3), 1 << 40).shape == (0, 2, 1 << 40)
    assert F.interpolate(fb.ones(0, 2, 3, 3), (1 << 40, 2), mode="bicubic").shape == (0, 2, 1 << 40, 2)


def test_a_window_of_far_more_channels_than_there_are_holds_them_all() -> None:
    x, size = fb.tensor([[[3.0], [4.0]]]), 1 << 40

    assert fb.allclose(F.local_response_norm(x, size, alpha=size, beta=1.0), x / 26)


def test_numbers_of_numpy_are_sizes_and_dimensions(oracle: Any) -> None:
    programs = """
    torch.ones(6).reshape(np.int64(6))
    torch.ones(6).view(np.int64(6))
    torch.ones(1).expand(np.int64(6))
    torch.ones(1).broadcast_to(np.int64(6))
    torch.ones(6).broadcast_to(2, 6)
    torch.ones(6).permute(np.int64(0))
    torch.ones(6).flip(np.int64(0))
    torch.ones(6).tile(np.int32(2))
    torch.ones(6).repeat(np.int64(2))
    torch.ones(6).sum_to_size(np.int64(1))
    torch.ones(6).resize_(np.int64(6))
    torch.ones(6).resize_(torch.tensor(6))
    torch.ones(1, 6).squeeze(np.int64(0))
    torch.ones(1, 6).squeeze(torch.tensor(0))
    torch.tensor_split(torch.ones(6), np.int64(2))
    """

    assert not disagreements(oracle, programs)


def test_what_a_second_search_found_is_refused_in_pytorchs_types(oracle: Any) -> None:
    programs = """
    F.lp_pool1d(torch.ones(1, 4, 9), 2, (3,))
    F.lp_pool1d(torch.ones(1, 4, 9), 0, 3)
    F.multilabel_soft_margin_loss(torch.ones(()), torch.ones(()))
    F.multilabel_soft_margin_loss(torch.ones(3), torch.ones(3) > 0)
    F.interpolate(torch.ones(5, 5, 0), scale_factor=1.7, mode='trilinear')
    F.batch_norm(torch.ones(2, 3, 4), torch.ones(3), torch.ones(3), training=True, momentum=torch.ones((), requires_grad=True))
    F.instance_norm(torch.ones(2, 3, 4), torch.ones(3), torch.ones(3), momentum=torch.tensor(0.5)).shape
    torch.einsum(torch.ones(2))
    torch.ones(2).fill_(1 << 70)
    torch.ones(2).bfloat16().fill_(1 << 70)
    torch.ones(2).fill_(np.ones(3))
    torch.histc(torch.ones(3), 1 << 62)
    torch.histc(torch.ones(3), 1 << 63)
    torch.histogram(torch.ones(3), 1 << 50)
    torch.histogram(torch.ones(3), 1 << 63)
    torch.ones(5000).bitwise_not_()
    torch.unravel_index(torch.tensor([1]), (1 << 70,))
    torch.ones(3).set_(torch.ones(3), 1 << 62, (1,), (1,))
    torch.multinomial(torch.ones(3), torch.tensor(2, dtype=torch.uint8), True).shape
    torch.chunk(torch.ones(3), 1 << 63, -(1 << 63))
    torch.unflatten(torch.ones(2, 1), -1, 0)
    torch.broadcast_to(torch.ones(1), 1 << 40)
    F.adaptive_max_pool2d(torch.ones(2, 16, 6, 16), ((1 << 62) - 1, 0))
    F.pad(torch.zeros(0, 4, dtype=torch.int8), (1, 1), 'constant', 1 << 63)
    torch.zeros(2, dtype=torch.int64) + (1 << 70)
    torch.permute(torch.ones(2, 2, 1), (1, 1 << 33, 2))
    torch.fft.ifftn(torch.ones(2, 3, 3), (4, 1), np.int64(1))
    torch.ones(0, 2)[[0, 0]] = torch.ones(0, 2)
    torch.nn.MultiheadAttention(8, 4, batch_first=True)(torch.ones(1, 1, 8), torch.ones(()), torch.ones(1, 1, 8))
    torch.nn.AdaptiveLogSoftmaxWithLoss(6, 9, [3, 6])(torch.ones(4, 6), torch.full((4,), float('inf')))
    """

    assert not disagreements(oracle, programs)


@pytest.mark.parametrize("name", [n for n in dir(fb.special) if "polynomial" in n])
def test_polynomials_of_half_precision_are_refused_before_they_loop(name: str) -> None:
    for dtype in (fb.bfloat16, fb.float16):
        with pytest.raises(NotImplementedError, match=f'"{name}" not implemented for torch.(bfloat16|float16)'):
            getattr(fb.special, name)(fb.ones(3, dtype=dtype) / 3, 1 << 62)


def test_polynomials_of_huge_degrees_are_had_at_once_where_they_are_known() -> None:
    ends = fb.tensor([1.0, -1.0])

    assert fb.special.legendre_polynomial_p(ends, 1 << 40).tolist() == [1, 1]
    assert fb.special.legendre_polynomial_p(ends, fb.tensor([2**23 + 1, 2**23 + 1])).tolist() == [1, -1]
    assert fb.special.legendre_polynomial_p(ends, -1).tolist() == [0, 0]
    assert fb.special.laguerre_polynomial_l(fb.zeros(2), 1 << 40).tolist() == [1, 1]


def test_eigenvalues_of_any_number_of_empty_matrices_are_had_at_once(oracle: Any) -> None:
    programs = """
    torch.linalg.eigvalsh(torch.ones(1 << 40, 0, 0)).shape
    torch.linalg.eigh(torch.ones(3, 0, 0))
    torch.linalg.eig(torch.ones(3, 0, 0).double())
    """

    assert not disagreements(oracle, programs)


def test_a_gradient_that_no_memory_holds_is_a_runtime_error() -> None:
    with pytest.raises(RuntimeError, match="backward: can't allocate memory"):
        fb.ones(1, requires_grad=True).expand(1 << 50)[:1].sum().backward()


def test_what_a_third_search_found_is_answered_or_refused_as_by_pytorch(oracle: Any) -> None:
    programs = """
    torch.cov(torch.ones(1, 5), fweights=np.int64(1))
    torch.logspace([[1, 2], [3]], 10, 2)
    torch.linspace([[1, 2], [3]], 10, 2)
    torch.randint_like(torch.ones(2), torch.tensor(1), b'x')
    torch.randint_like(torch.ones(2), high=torch.ones(2, 2), low=float('nan'))
    torch.randint_like(torch.ones(2), 1.5)
    torch.ones(3).exponential_(np.ones(3))
    torch.ones(3).geometric_(np.ones(3))
    torch.ones(3).bernoulli_(np.ones(3))
    torch.ones(30).stft(6, return_complex=True, hop_length=(2,))
    torch.histogramdd(torch.arange(8.0).reshape(4, 2), np.int64(1)).hist
    torch.ones(2).diag_embed(torch.tensor(1))
    torch.gradient(torch.arange(15.0).reshape(3, 5), dim=np.int64(1))
    torch.fft.ifftshift(torch.arange(9.0).reshape(3, 3), np.int64(1))
    torch.fft.fftshift(torch.arange(9.0).reshape(3, 3), torch.tensor(1))
    torch.fft.fftshift(torch.tensor(1.0))
    torch.fft.ifftshift(torch.ones(2, 2), ())
    torch.ones(2).cpu(None)
    torch.ones(2).cpu(memory_format=3)
    torch.ones(2).contiguous(memory_format=None)
    torch.linalg.norm(torch.ones(2, 2), dim=np.int64(1))
    torch.linalg.norm(torch.ones(2, 2), dim=torch.tensor(1))
    torch.ones(3, 1, 1).roll((0, 2, 1), np.int64(1))
    torch.arange(3.0).reshape(3, 1, 1).roll(np.int64(1), np.int64(0))
    torch.arange(3.0).reshape(3, 1, 1).roll(torch.tensor(1), torch.tensor(0))
    F.pairwise_distance(torch.ones(2, 3), torch.zeros(2, 3), 1 << 70)
    a = torch.eye(3).reshape(1, 3, 3).requires_grad_(); y = torch.linalg.pinv(a, atol=torch.zeros(2, 3)); y.sum().backward(); a.grad.shape
    """

    assert not disagreements(oracle, programs)


@pytest.mark.parametrize("name", ["inv", "cholesky_ex", "lu_factor", "solve", "matmul"])
def test_any_number_of_empty_matrices_is_looped_over_by_nobody(name: str) -> None:
    x = fb.ones(1 << 24, 0, 0)
    began = time.perf_counter()
    made = fb.matmul(x, x) if name == "matmul" else getattr(fb.linalg, name)(x, *([x] if name == "solve" else []))

    assert tuple((made[0] if isinstance(made, tuple) else made).shape) == (1 << 24, 0, 0)
    assert time.perf_counter() - began < 5


def test_a_multivariate_gamma_function_of_nothing_has_no_terms_to_add() -> None:
    assert fb.mvlgamma(fb.ones(3, 0), 1 << 40).shape == (3, 0)


def test_an_unpooled_plane_of_negative_size_is_refused_with_its_size() -> None:
    pooled, places = F.max_pool3d(fb.ones(1, 1, 4, 4, 4), 2, return_indices=True)

    with pytest.raises(RuntimeError, match=r"max_unpool3d: .* output of size \(-1, -1, -3\), which must not be negative"):
        F.max_unpool3d(pooled, places, 2, (3, 3, 1), 3)


@pytest.mark.parametrize(("call", "said"), [
    (lambda: fb.special.log_softmax(fb.ones(2), -1, 3), "'dtype' must be torch.dtype, not int"),
    (lambda: fb.ones(2).repeat_interleave(math.nan), "'repeats' must be int, not float"),
    (lambda: fb.empty_like(fb.ones(2), memory_format=np.ones(3)), "'memory_format' must be torch.memory_format, not ndarray"),
    (lambda: fb.rand_like(fb.ones(2), requires_grad=np.ones(3)), "'requires_grad' must be bool, not ndarray"),
    (lambda: fb.empty_like(fb.ones(2), requires_grad=np.ones(3)), "'requires_grad' must be bool, not ndarray"),
    (lambda: fb.istft(fb.ones(4, 3) + 0j, 6, window=fb.hann_window(6), win_length=math.nan), "'win_length' .* must be int, not float"),
])  # fmt: skip
def test_arguments_of_another_kind_are_refused_by_name(call: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        call()


@pytest.mark.parametrize("call", [
    lambda train: fb.dropout(fb.ones(3), 0.5, train),
    lambda train: fb.dropout_(fb.ones(3), 0.5, train=train),
    lambda train: fb.alpha_dropout(fb.ones(3), 0.5, train),
    lambda train: fb.batch_norm(fb.ones(3, 4), None, None, None, None, train, 0.1, 1e-5, False),
    lambda train: fb.instance_norm(fb.ones(1, 3, 4), None, None, None, None, train, 0.1, 1e-5, False),
])  # fmt: skip
@pytest.mark.parametrize("train", [1, 1.0, "yes"])
def test_a_flag_without_a_default_that_is_a_number_or_text_is_refused(call: Any, train: Any) -> None:
    call(True)
    with pytest.raises(TypeError, match=f"must be bool, not {type(train).__name__}"):
        call(train)


def test_what_a_fourth_search_found_is_answered_or_refused_as_by_pytorch(oracle: Any) -> None:
    programs = """
    torch.zeros(2, device=1 << 70)
    torch.dequantize(-1)
    torch.dequantize(torch.strided)
    torch.roll(torch.ones(3, 5), range(2), (0, 1))
    torch.roll(torch.ones(3, 5), range(1 << 62), (0, 1))
    F.adaptive_avg_pool2d(torch.ones(3, 1, 5, 6), torch.tensor(float('nan')))
    F.pad(torch.ones(2, dtype=torch.bfloat16), (1, 2), value=1 << 63)
    torch.constant_pad_nd(torch.ones(0, dtype=torch.bfloat16), (1, 2), 1 << 63)
    torch.zeros_like(torch.ones(2), layout=np.ones(3))
    x = torch.arange(3., requires_grad=True); x.var(correction=torch.tensor(0.5)).backward(); x.grad
    x = torch.arange(3., requires_grad=True); torch.var_mean(x, correction=torch.tensor(1, dtype=torch.uint8))[0].backward(); x.grad
    torch.ones(3).std(correction=(1, 2))
    torch.ones(3).std(correction=1j)
    torch.randn_like(torch.ones(()), layout=np.ones(3))
    torch.randint(pin_memory=np.ones(3))
    torch.randint(3, (2,), pin_memory=np.ones(3))
    torch.rand(2, pin_memory=np.ones(3))
    torch.zeros(2, layout=np.ones(3))
    torch.embedding(torch.ones(5, 3, requires_grad=True), torch.tensor([0]), padding_idx=1 << 63)
    torch.embedding(torch.ones(5, 3, requires_grad=True), torch.tensor([0]), padding_idx=1.5)
    x = torch.ones(5, 3, requires_grad=True); torch.embedding(x, torch.tensor([0]), padding_idx=7).sum().backward(); x.grad
    torch.tensor(torch.ones(()), dtype=np.ones(3))
    torch.conv_transpose2d(torch.ones(2, 1, 1, 5), torch.ones(1, 3, 5, 2), groups=torch.tensor(1))
    torch.conv2d(torch.ones(2, 1, 5, 5), torch.ones(1, 1, 5, 2), groups=torch.tensor(1.))
    torch.triangular_solve(torch.ones(0, 3, 2), torch.ones(0, 3, 3), unitriangular=float('nan'))
    torch.linalg.solve_triangular(torch.ones(0, 3, 3), torch.ones(0, 3, 2), upper=1)
    torch.zeros(3).random_(np.ones(3))
    torch.zeros(3).random_(np.int64(1))
    F.embedding(torch.tensor(1), torch.ones(5, 5), max_norm=[torch.ones(2)])
    torch.zeros(np.int64((1 << 63) - 1))
    torch.zeros(3).set_(torch.zeros(4), 0, (2,), (-1,))
    torch.zeros(3).set_(torch.zeros(4), 0, (-2,), (1,))
    torch.zeros(3).set_(torch.zeros(4), 0, (2, 2), (1,))
    torch.zeros(3).set_(torch.zeros(4), 0, (1 << 40, 1 << 40), (0, 0))
    torch.zeros(3).set_(stride=np.ones(3))
    F.gaussian_nll_loss(torch.ones(3, 3), torch.ones(3, 3), torch.ones(3), eps=(3, 1, 3))
    F.nll_loss(torch.tensor(0.5), torch.tensor(0))
    F.nll_loss(torch.tensor(0.5), torch.tensor(0), torch.ones(1), ignore_index=-1)
    torch.zeros(2).type(1)
    torch.zeros(2).resize_('a')
    torch.zeros(2).resize_((1.5,))
    torch.roll(torch.ones(5), [torch.ones(2)], (0,))
    torch.roll(torch.ones(5), (np.int64(2),), (0,))
    F.avg_pool2d(torch.ones(1, 2, 9, 9), 2, divisor_override=(2, 2))
    F.avg_pool2d(torch.ones(0, 3, 5, 3), (2, 3), 2, divisor_override=(2, 2))
    F.avg_pool2d(torch.ones(1, 2, 9, 9), 2, divisor_override=True)
    F.lp_pool2d(torch.ones(2, 3, 5, 4), 3.5, torch.tensor(math.nan), 2)
    F.fractional_max_pool3d(torch.ones(1, 1, 4, 4, 4), torch.tensor(2.), (1, 2, 3))
    F.embedding(torch.tensor(1), torch.ones(2, 4), torch.tensor(1.))
    F.embedding(torch.tensor(1), torch.ones(2, 4), torch.tensor(1))
    F.embedding(torch.tensor(1), torch.ones(2, 4), True)
    torch.tensordot(torch.ones(2, 3), torch.ones(3), np.int64(1))
    torch.tensordot(torch.ones(2, 3), torch.ones(3), 1.0)
    torch.linalg.cross(torch.ones(2, 3, dtype=torch.bool), torch.ones(2, 3, dtype=torch.bool))
    torch.fft.irfft2(torch.ones(3, 3), (1 << 70,), (-1,))
    torch.fft.irfftn(torch.ones(()), (3,), (-1,))
    torch.group_norm(torch.ones(5, 0, 5, 3), (1 << 62) - 1)
    F.group_norm(torch.ones(0, 4, 5), 2, eps=range(3))
    torch.bincount(torch.tensor([1, 2]), minlength=torch.ones(2, dtype=torch.bool))
    torch.bincount(torch.tensor([1, 2]), minlength=True)
    F.upsample(torch.ones(1, 1, 4, 4), scale_factor=torch.ones(2, 2))
    torch.nn.LSTMCell(4, 2)(torch.ones(1, 4), ())
    torch.nn.LSTMCell(4, 2)(torch.ones(1, 4), (torch.ones(1, 2),))
    torch.nn.LSTMCell(4, 2)(torch.ones(1, 4), (torch.ones(1, 2),) * 3)
    """

    assert not disagreements(oracle, programs.replace("math.nan", "float('nan')"))


def test_which_error_a_number_of_more_than_64_bits_is_depends_on_the_parameter(oracle: Any) -> None:
    programs = """
    F.hinge_embedding_loss(torch.ones(3, dtype=torch.int64), torch.ones(3, dtype=torch.int64), margin=1 << 70)
    F.pad(torch.ones(2, dtype=torch.int64), (1, 1), value=1 << 70)
    torch.add(torch.ones(2, dtype=torch.int64), 1, alpha=1 << 70)
    F.threshold(torch.ones(2, dtype=torch.int64), 1 << 70, 0)
    torch.full((2,), 1 << 70)
    torch.bincount(torch.tensor([1, 2]), minlength=1 << 70)
    torch.topk(torch.ones(3), 1 << 70)
    torch.kthvalue(torch.ones(3), 1 << 70)
    torch.tril(torch.ones(3, 3), 1 << 70)
    torch.vander(torch.ones(3), 1 << 70)
    torch.conv2d(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 2, 2), groups=1 << 70)
    torch.zeros(1 << 70)
    torch.arange(start=0, end=1 << 70)
    """

    assert not disagreements(oracle, programs)


@pytest.mark.parametrize("repeats", [[(1 << 63) - 1, (1 << 63) - 1, 4], [1 << 62, 1 << 62, 1 << 62], [1 << 61, 1, 1]], ids=str)
def test_repeats_that_are_too_many_together_are_refused_before_anything_is_written(repeats: list[int]) -> None:
    counts = fb.tensor(repeats)

    with pytest.raises(RuntimeError, match="repeat_interleave"):
        fb.repeat_interleave(counts)
    for shape in ((3,), (3, 2), (3, 0)):
        with pytest.raises(RuntimeError, match="repeat_interleave"):
            fb.ones(*shape).repeat_interleave(counts, 0)
    with pytest.raises(RuntimeError, match="repeat_interleave"):
        fb.ones(2, 0).repeat_interleave(1 << 62, 0)


def test_a_padding_that_cuts_all_off_has_nothing_to_wrap_around() -> None:
    for pairs in ((-3, 1), (-3, 3), (0, -3)):
        with pytest.raises(RuntimeError, match="pad: "):
            F.pad(fb.ones(1, 2, 3), pairs, "circular")
    assert F.pad(fb.tensor([[[1.0, 2.0, 3.0]]]), (-2, 2), "circular").tolist() == [[[3.0, 3.0, 3.0]]]


@pytest.mark.parametrize("count", [3, 30000])
def test_a_histogram_of_a_range_without_width_counts_in_its_middle(count: int, oracle: Any) -> None:
    for value, dtype in ((1e9, "float32"), (1e17, "float64"), (-1e30, "float32")):
        for bins in (1, 2, 7, 100):
            assert not disagreements(oracle, f"torch.histc(torch.full(({count},), {value}, dtype=torch.{dtype}), {bins})")


@pytest.mark.parametrize("count", [1, 4000])
def test_a_histogram_of_subnormal_numbers_counts_each_of_them(count: int) -> None:
    least = 2.0**-149
    x = fb.tensor([0.0, least, 2 * least, 3 * least, 8 * least] * count)

    for wanted in ([4, 1], [2, 2, 0, 1], [1, 1, 1, 1, 0, 0, 0, 1]):
        assert fb.histc(x, len(wanted), max=8 * least).tolist() == [n * count for n in wanted]


def test_a_convolution_of_planes_without_width_is_of_its_padding_alone() -> None:
    x, weight = fb.ones(2, 1, 5, 0), fb.ones(3, 1, 2, 1)

    assert F.conv2d(x, weight, padding=1).tolist() == fb.zeros(2, 3, 6, 2).tolist()


@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
def test_a_range_to_a_complex_number_is_refused() -> None:
    with pytest.raises(RuntimeError, match="cannot be converted to type double"):
        fb.range(0, fb.rand((), dtype=fb.complex64))


@pytest.mark.parametrize("mode", ["nearest", "linear", "area"])
@pytest.mark.parametrize("factor", [1j, (1j,)])
def test_interpolate_refuses_complex_factors_by_name(mode, factor):
    with pytest.raises(TypeError, match=r"'scale_factor'.*1j"):
        fb.nn.functional.interpolate(fb.ones(1, 1, 4), scale_factor=factor, mode=mode)


def test_interpolate_says_that_antialiasing_needs_images_before_it_reads_factors():
    with pytest.raises(ValueError, match=r"restricted to bilinear and bicubic"):
        fb.nn.functional.interpolate(fb.ones(1, 1, 4), scale_factor=1j, antialias=True)


def test_interpolate_has_no_mode_for_matrices():
    with pytest.raises(NotImplementedError, match=r"Only 3D, 4D and 5D input Tensors supported .got 2D."):
        fb.nn.functional.interpolate(fb.ones(2, 4), scale_factor=2)


@pytest.mark.parametrize("name", ["svd_lowrank", "pca_lowrank"])
def test_low_rank_factors_refuse_iterations_whose_history_no_memory_holds(name):
    with pytest.raises(RuntimeError, match=r"svd_lowrank.*2, 10"):
        getattr(fb, name)(fb.rand(6, 4, requires_grad=True), 2, niter=2**63 - 1)


def test_expand_names_the_last_dimension_that_does_not_fit():
    with pytest.raises(RuntimeError, match=r"expanded size of the tensor \(4\) must match the existing size \(3\) at .* dimension 2"):
        fb.ones(2, 3).expand(5, 6, 4)


@pytest.mark.parametrize("high", ["a", 1.5, True, [2.0, 3.0]])
def test_randint_refuses_bounds_that_are_no_integers(high):
    high = fb.tensor(high) if isinstance(high, list) else high
    with pytest.raises(TypeError, match="'high' must be int"):
        fb.randint(high, (2,))
    with pytest.raises(TypeError, match="'low' must be int"):
        fb.randint(high, 9, (2,))


OF_NO_SIZES = """
torch.ones(2, 2).reshape({})
torch.ones(2, 2).reshape(True)
torch.ones(2, 2).reshape(1 << 70)
torch.ones(2, 2).reshape(torch.ones(2))
torch.ones(2, 2).expand({})
torch.ones(2, 2).expand(1 << 70)
torch.ones(2, 2).permute(True)
torch.ones(2, 2).permute(1 << 70)
torch.sum(torch.ones(2, 2), dim=1 << 70)
torch.softmax(torch.ones(2, 2), dim=1 << 70)
torch.softmax(torch.ones(2, 2), dim=torch.ones(2))
torch.nn.functional.layer_norm(torch.ones(2, 3), {})
torch.nn.functional.layer_norm(torch.ones(2, 3), True)
torch.nn.functional.layer_norm(torch.ones(2, 3), torch.ones(2))
torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.tensor([0, 1]), ignore_index=True)
torch.randint(1 << 70, (2,))
torch.randint(-(1 << 70), 5, (2,))
torch.manual_seed(1 << 70)
""".strip().splitlines()


@pytest.mark.parametrize("program", OF_NO_SIZES)
def test_what_is_no_integer_of_64_bits_is_not_said_to_misfit_a_tensor(oracle, program):
    with pytest.raises(Exception) as theirs:  # noqa: PT011  # of any class: ours is asked for the same
        eval(program, {"torch": oracle})

    with pytest.raises(theirs.type):
        eval(program, {"torch": fb})


def test_sizes_that_do_misfit_a_tensor_are_a_runtime_error_still():
    with pytest.raises(RuntimeError, match=r"shape '\[5\]' is invalid for input of size 4"):
        fb.ones(2, 2).reshape(5)
    with pytest.raises(IndexError, match="Dimension out of range"):
        fb.sum(fb.ones(2, 2), dim=7)


@pytest.mark.parametrize(("x", "y"), [((3, 1), (1, 4)), ((2, 3), (2, 1))])
def test_vecdot_broadcasts_along_the_dimension_it_sums(oracle, x, y):
    found = fb.linalg.vecdot(fb.full(x, 2.0), fb.full(y, 3.0))

    assert found.tolist() == oracle.linalg.vecdot(oracle.full(x, 2.0), oracle.full(y, 3.0)).tolist()


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 2, 2), (40, 40)])
def test_the_sign_of_a_nan_determinant_is_zero(shape):
    sign, log = fb.linalg.slogdet(fb.full(shape, float("nan")))

    assert not sign.any()
    assert log.isnan().all()


OF_BOOLS_AND_NO_LISTS = """
torch.ones(3, 2).sum(True)
torch.ones(3, 2).sum(dim=(True,))
torch.ones(3, 2).t().contiguous().t().sum(True)
torch.ones(3, 2).mean(True)
torch.ones(3, 2).max(True)
torch.ones(3, 2).argmax(True)
torch.ones(3, 2).cumsum(True)
torch.softmax(torch.ones(3, 2), dim=True)
torch.nn.functional.softmax(torch.ones(3, 2), True)
torch.cat([torch.ones(3, 2)], True)
torch.stack([torch.ones(3, 2)], True)
torch.ones(3, 2).unsqueeze(True)
torch.ones(3, 1).squeeze(True)
torch.ones(3, 2).transpose(True, 0)
torch.ones(3, 2).flip(True)
torch.ones(3, 2).roll(True)
torch.ones(3, 2).roll(1, True)
torch.ones(3, 2).select(0, True)
torch.ones(3, 2).diagonal(True)
torch.ones(3, 2).diff(True)
torch.ones(3, 2).view(True, 6)
torch.ones(3, 2).reshape(True, 6)
torch.ones(3, 2).expand(True, 3, 2)
torch.ones(3, 2).repeat(True, 1)
torch.ones(6).as_strided((2,), (1,), True)
torch.split(torch.ones(3), True)
torch.split(torch.ones(3), [True, 2])
torch.split(torch.ones(3), 1 << 70)
torch.chunk(torch.ones(3), True)
torch.chunk(torch.ones(3), 1 << 70)
torch.linspace(0, 1, True)
torch.cross(torch.ones(2, 3), torch.ones(2, 3), True)
torch.nn.functional.avg_pool2d(torch.ones(1, 2, 4, 4), (True, 2))
torch.nn.functional.adaptive_avg_pool2d(torch.ones(1, 2, 4, 4), True)
torch.zeros({})
torch.zeros(range(2))
torch.zeros(size={})
torch.full({}, 1)
torch.randn({})
torch.ones(2).new_zeros({})
torch.ones(6).view(range(2, 4))
torch.ones(6).reshape(range(2, 4))
torch.ones(1).expand(range(2, 4))
torch.ones(1).repeat(range(2, 4))
torch.ones(1).tile({})
torch.ones(2, 3).unflatten(1, range((1 << 63) - 1))
torch.ones(2, 3).flip({})
torch.ones(2, 3).squeeze({})
torch.ones(2, 3).movedim({}, {})
torch.nn.functional.pad(torch.ones(3), {})
torch.nn.functional.pad(torch.ones(3), torch.tensor([1, 1]))
torch.nn.functional.interpolate(torch.ones(1, 1, 3), scale_factor=torch.tensor(2.0))
torch.nn.functional.interpolate(torch.ones(1, 1, 3), scale_factor='2')
torch.ones(3).add(1 << 70)
torch.ones(3) + (1 << 64)
torch.ones(3) > -(1 << 64)
(1 << 70) * torch.ones(3)
torch.ones(3).add_(1, alpha=1 << 70)
torch.ones(3).clamp(0, 1 << 70)
torch.ones(3).pow(1 << 70)
torch.where(torch.ones(3) > 0, torch.ones(3), 1 << 70)
torch.linalg.norm(torch.ones(3), 1 << 70)
torch.linalg.matrix_norm(torch.ones(3, 3), 1 << 70)
torch.norm(torch.ones(3), 1 << 70)
""".strip().splitlines()


@pytest.mark.parametrize("program", OF_BOOLS_AND_NO_LISTS)
def test_bools_other_sequences_and_numbers_of_more_than_64_bits_are_no_arguments(oracle, program):
    with pytest.raises(Exception) as theirs:  # noqa: PT011  # of any class: ours is asked for the same
        eval(program, {"torch": oracle})

    for _ in range(3):                                # also where the operation has answered usual calls before
        with pytest.raises(theirs.type):
            eval(program, {"torch": fb})
        fb.ones(3, 2).sum(1), fb.ones(3, 2).transpose(1, 0), fb.ones(3).add(1), fb.ones(3).clamp(0, 1)


def test_numbers_of_64_bits_without_a_sign_are_operands(oracle):
    for number in ((1 << 64) - 1, 1 << 63, -(1 << 63)):
        assert (fb.ones(3) + number).tolist() == (oracle.ones(3) + number).tolist()
        assert fb.ones(3).clamp(max=number).tolist() == oracle.ones(3).clamp(max=number).tolist()


def test_the_factor_of_a_number_less_a_tensor_may_be_given_by_position(oracle):
    assert fb.rsub(fb.ones(3), 2, 3).tolist() == oracle.rsub(oracle.ones(3), 2, 3).tolist() == [-1.0] * 3


def test_arguments_are_of_the_types_that_declarations_give_them_where_no_schema_does(oracle: Any) -> None:
    programs = """
    torch.unique(torch.ones(3), 1)
    torch.unique(torch.ones(3), return_inverse=1)
    torch.ones(3).unique(return_counts=None)
    torch.stft(torch.ones(20), 8, onesided=1, return_complex=True)
    torch.stft(torch.ones(20), 8, return_complex=1)
    torch.istft(torch.ones(5, 9, dtype=torch.complex64), 8, onesided=1)
    torch.istft(torch.ones(5, 9, dtype=torch.complex64), 8, length=True)
    torch.lu(torch.eye(2), 1)
    F.grid_sample(torch.ones(1, 1, 2, 2), torch.ones(1, 2, 2, 2), align_corners=1)
    F.affine_grid(torch.ones(1, 2, 3), (1, 1, 2, 2), align_corners=1)
    F.interpolate(torch.ones(1, 1, 2), 2, mode='linear', align_corners=1)
    F.dropout1d(torch.ones(1, 1, 2), training=1)
    F.dropout2d(torch.ones(1, 1, 2, 2), training=None)
    F.dropout3d(torch.ones(1, 1, 2, 2, 2), training=[1, True])
    F.alpha_dropout(True)
    F.feature_alpha_dropout(1.5)
    torch.resolve_conj(1)
    torch.resolve_neg('a')
    torch.narrow(torch.ones(4), 0, True, 1)
    torch.narrow_copy(torch.ones(4), 0, True, 1)
    torch.narrow(torch.ones(4), 0, torch.tensor(1), 1)
    torch.adjoint(np.int64(1))
    torch.kron(torch.ones(2), np.ones(2))
    torch.inner(torch.ones(2), np.float64(2))
    torch.outer(torch.ones(2), np.ones(2))
    torch.tile(np.ones(2), (1,))
    F.rms_norm(torch.ones(2, 2), (2,), eps=torch.ones(1))
    F.rms_norm(torch.ones(2, 2), (2,), eps=1)
    torch.ones(2, 2).fill_diagonal_(1, 1)
    torch.ones(2).copy_(torch.zeros(2), 1)
    torch.ones(2).type(torch.float64, 1)
    torch.ones(2).set_(torch.ones(2), stride=(1,))
    torch.logspace(0, 1, 3, 1j)
    torch.logspace(0, 1, 3, None)
    torch.rand(2, requires_grad=np.ones(2))
    torch.ones(2).resize_(2, memory_format=(1, 2))
    torch.ones(2).resize_(memory_format=(1, 2))
    torch.ones(2).resize_(True)
    torch.ones(2).resize_()
    """

    assert not disagreements(oracle, programs)


def test_numbers_are_refused_where_three_tensors_are_taken(oracle: Any) -> None:
    programs = """
    torch.addcmul(torch.ones(2), 2, torch.ones(2))
    torch.addcmul(torch.ones(2), torch.ones(2), 2.0)
    torch.addcdiv(torch.ones(2), True, torch.ones(2))
    torch.ones(2).addcmul_(1, torch.ones(2))
    torch.ones(2).addcdiv_(torch.ones(2), 1.0)
    torch.lerp(torch.ones(2), 1, 0.5)
    torch.ones(2).lerp_(1, 0.5)
    torch.logaddexp2(torch.ones(2), 1)
    torch.addcmul(torch.ones(2), torch.ones(2), torch.ones(2), value=2)
    """

    assert not disagreements(oracle, programs)


def test_bools_in_a_list_are_integers_only_where_integers_are_taken(oracle: Any) -> None:
    programs = """
    torch.argmax(torch.ones(2), keepdim=[1, True])
    torch.topk(torch.ones(2), 1, 0, [1, True])
    torch.tensordot([1, True], torch.ones(2), ([1, 2], [0, 1]))
    F.rrelu([1, True], upper=True)
    torch.ones(4).view(4, True)
    torch.ones(4).view((4, True))
    torch.ones(4).view(True, 4)
    torch.ones(2, 3).sum(dim=torch.tensor(True))
    torch.ones(2, 3).std(dim=torch.tensor(True))
    torch.ones(2, 3).amax(dim=torch.tensor(True))
    """

    assert not disagreements(oracle, programs)


def test_what_pytorch_reads_in_python_and_what_a_number_stands_for_is_taken(oracle: Any) -> None:
    programs = """
    torch.stft(torch.ones(20), 8, center=(), return_complex=True).abs().sum(0)
    torch.stft(torch.ones(20), 8, center=1, return_complex=True).shape
    torch.stft(torch.ones(20), 8, center=False, pad_mode=1, return_complex=True).shape
    torch.logspace(0, 2, 3, torch.tensor(2))
    torch.logspace(0, 2, 3, torch.tensor(2.5))
    torch.zeros(2).copy_(True)
    torch.zeros(2, dtype=torch.int64).copy_(1.7)
    torch.zeros(2, dtype=torch.complex64).copy_(1j)
    F.hardtanh_(torch.tensor([0.0, 1.5, 3.0]), 2, 1)
    """

    assert not disagreements(oracle, programs)


def test_a_pool_without_windows_in_one_dimension_says_that_the_stride_of_another_is_zero(oracle: Any) -> None:
    programs = """
    torch.max_pool2d(torch.ones(0, 8, 1, 9), (2, 1), [1, 0], ceil_mode=True)
    F.avg_pool2d(torch.ones(1, 8, 1, 9), (2, 1), [1, 0])
    """

    assert not disagreements(oracle, programs)


def test_storages_and_distances_that_no_memory_holds_are_runtime_errors_at_once() -> None:
    many = fb.ones(1, 1).expand(1 << 40, 1)
    for call in (lambda: fb.UntypedStorage(1 << 62), lambda: fb.cdist(many, many)):
        with pytest.raises(RuntimeError, match=r"memory|overflow"):
            call()
    with pytest.raises(ValueError, match="Overflow"):
        fb.UntypedStorage(1 << 63)
    with pytest.raises(ValueError, match="too large"):
        F.pixel_shuffle(fb.ones(1, 4, 1, 1), 1 << 40)
    assert fb.UntypedStorage(1 << 40, device="meta").nbytes() == 1 << 40


def test_masks_and_static_keys_of_attention_must_be_tensors() -> None:
    x, given = fb.ones(3, 2, 4), (4, 2, fb.ones(12, 4), fb.ones(12), None, None, False, 0.0, fb.ones(4, 4), fb.ones(4), False)
    for name in ("key_padding_mask", "attn_mask", "static_k", "static_v"):
        with pytest.raises(TypeError, match=f"'{name}'.*must be Tensor, not"):
            F.multi_head_attention_forward(x, x, x, *given, **{name: np.ones(2)})


def test_an_uninitialized_parameter_has_no_length() -> None:
    with pytest.raises(ValueError, match="Attempted to use an uninitialized parameter"):
        len(fb.nn.LazyLinear(2).weight)


def test_a_subclass_that_has_had_an_instance_changes_nothing_for_arrays_and_numbers_of_numpy() -> None:
    class Loud(fb.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return super().__torch_function__(func, types, args, kwargs or {})

    fb.ones(2).as_subclass(Loud)
    for call in (lambda: fb.adjoint(np.int64(1)), lambda: fb.tile(np.ones(2), (1,)), lambda: fb.kron(fb.ones(2), np.ones(2))):
        with pytest.raises(TypeError, match="must be Tensor, not"):
            call()
    assert (np.float64(2) / fb.ones(2)).tolist() == [2, 2]


def test_zero_and_fill_take_the_operators_name_of_their_tensor() -> None:
    x = fb.ones(2)
    assert fb.ops.aten.zero_(self=x) is x
    assert fb.ops.aten.fill_(self=x, value=3).tolist() == [3, 3]


def test_nothing_is_computed_of_an_array_that_a_function_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    laguerre = fb.special.laguerre_polynomial_l
    laguerre(fb.ones(3, dtype=fb.float64), 5)             # whose kernel is there then; a large degree would take it minutes
    op = OPS["special.laguerre_polynomial_l"]
    monkeypatch.setattr(type(op), "formula_of", lambda *args: pytest.fail("computed"))
    with pytest.raises(TypeError, match="must be Tensor, not ndarray"):
        laguerre(np.ones(3), 1 << 40)


def test_the_length_of_a_transform_is_refused_as_in_python() -> None:
    x = fb.ones(100)
    with pytest.raises(RuntimeError, match="Padding size should be less than"):
        fb.stft(x, 1 << 63, return_complex=True)
    with pytest.raises(ValueError, match="2\\*\\*63"):
        fb.stft(x, 1 << 63, center=False, return_complex=True)
    with pytest.raises(TypeError, match="'n_fft' must be int, not bool"):
        fb.stft(x, True, return_complex=True)


UNLIKE = """
F.binary_cross_entropy_with_logits(x, x, weight={})
F.binary_cross_entropy_with_logits(x, x, pos_weight={})
F.poisson_nll_loss(x, {})
F.soft_margin_loss(x, {})
F.pairwise_distance({}, x)
F.pairwise_distance(x, {})
torch.fft.fftn(x, s={})
torch.fft.hfftn(x, s={})
torch.fft.rfft2(x, s={})
torch.linalg.pinv(x, atol={})
torch.linalg.pinv(x, rtol={})
"""


@pytest.mark.parametrize("call", UNLIKE.strip().splitlines())
def test_arguments_of_types_that_pytorch_refuses_are_refused(call, oracle):
    given = ["1", "0.5", "True", "'a'", "1j", "[1.0, 2.0]", "(2, 2)", "{1, 2}", "np.ones(2)", "[True, False]", "np.int64(1)"]

    assert not disagreements(oracle, "\n".join(f"x = torch.ones(2, 3); y = {call.format(each)}; y.shape" for each in given))
