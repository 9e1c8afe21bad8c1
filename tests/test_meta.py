"""Tensors of the meta device, which have shapes, dtypes and strides and no elements: nothing is computed, whatever the sizes."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flambeau as fb
from comparing import disagreements
from flambeau.ops import _derive, _spec

_derive.load_all()
ROOM = 2 << 30                                        # bytes of addresses, beside those in use, for whatever a test does


@pytest.fixture(autouse=True)
def little_room() -> Iterator[None]:
    """An end to the addresses that this process may have: what allocates after all gets MemoryError at once, and halts no machine."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def test_creation_on_meta_takes_no_memory(oracle: Any) -> None:
    programs = """
    torch.arange(10**13, device='meta')
    torch.arange(0, 10**12, dtype=torch.float32, device='meta')
    torch.range(0, 1e12, device='meta')
    torch.linspace(0, 1, 10**12, device='meta')
    torch.linspace(0, torch.tensor(1., device='meta'), 10**12, device='meta')
    torch.linspace(0, torch.tensor(1., device='meta'), 10)
    torch.logspace(0, 1, 10**12, dtype=torch.float64, device='meta')
    torch.arange(10**12, out=torch.empty(0, dtype=torch.int64, device='meta'))
    torch.eye(10**6, device='meta')
    torch.eye(10**6, 10**7, dtype=torch.bool, device='meta')
    torch.tril_indices(10**6, 10**6, device='meta')
    torch.triu_indices(10**6, 10**5, 5, device='meta')
    torch.empty_strided((10**6, 10**6), (1, 10**6), device='meta')
    torch.empty_permuted((10**6, 10**6), (1, 0), device='meta')
    torch.randn(10**6, 10**6, device='meta')
    torch.randperm(10**12, device='meta')
    torch.normal(0., 1., (10**12,), device='meta')
    torch.hann_window(10**12, device='meta')
    torch.kaiser_window(10**12, periodic=False, device='meta')
    torch.signal.windows.gaussian(10**12, device='meta')
    torch.fft.fftfreq(10**12, device='meta')
    torch.fft.rfftfreq(10**12, device='meta')
    torch.empty_like(torch.empty(10**6, 10**6, device='meta').t())
    torch.rand_like(torch.empty(10**6, 10**6, device='meta').t())
    torch.full_like(torch.empty(10**6, 10**6, device='meta'), 2)
    torch.empty(10**6, 10**6, device='meta').t().clone()
    torch.nn.init.trunc_normal_(torch.empty(10**6, 10**6, device='meta'))
    torch.nn.init.dirac_(torch.empty(10**4, 10**4, 10**3, device='meta'))
    torch.nn.init.sparse_(torch.empty(10**6, 10**6, device='meta'), 0.5)
    """

    assert not disagreements(oracle, programs)


def test_numbers_that_do_not_fit_the_dtype_make_a_meta_tensor_which_holds_none_of_them(oracle: Any) -> None:
    programs = """
    torch.zeros(2, dtype=torch.int64, device='meta').new_tensor(2**64)
    torch.zeros(2, dtype=torch.int64, device='meta').new_tensor([1, -2**63 - 1])
    torch.zeros(2, device='meta').new_tensor([[10**400], [1]])
    torch.tensor(2**70, device='meta')
    torch.tensor([2**70, 1.5], device='meta')
    torch.tensor([300, -1], dtype=torch.uint8, device='meta')
    torch.tensor(float('nan'), dtype=torch.int32, device='meta')
    torch.tensor(1j, dtype=torch.float32, device='meta')
    torch.as_tensor(2**70, device='meta')
    torch.asarray([2**70], device='meta')
    torch.tensor([torch.ones((), device='meta'), 2], device='meta')
    torch.scalar_tensor(2**70, device='meta')
    torch.scalar_tensor(2**70)
    torch.tensor(['a'], device='meta')
    torch.tensor(['a'], dtype=torch.float32, device='meta')
    torch.tensor([None], device='meta')
    """

    assert not disagreements(oracle, programs)


def test_every_op_with_a_kernel_says_its_shape_without_running_it() -> None:
    silent = [op.qualified for op in _spec.OPS.values() if op.kind == "primitive" and op.shape_rule is None]

    assert not silent


def test_operations_on_meta_compute_nothing(oracle: Any) -> None:
    setting = "b = torch.empty(10**6, 10**6, device='meta'); i = torch.empty(10**6, dtype=torch.int64, device='meta'); "
    programs = """
    F.interpolate(b[None, None], scale_factor=2)
    F.interpolate(b[None], scale_factor=30, mode='linear')
    F.interpolate(b[None, None], scale_factor=0.5, mode='bicubic', antialias=True)
    F.interpolate(b[None, None], size=(3 * 10**6, 10**6), mode='area')
    F.grid_sample(b[None, None], torch.empty(1, 10**5, 10**5, 2, device='meta'), align_corners=False)
    F.affine_grid(torch.empty(1, 2, 3, device='meta'), (1, 1, 10**6, 10**6), align_corners=False)
    F.unfold(torch.empty(1, 3, 10**5, 10**5, device='meta'), 3)
    F.fold(torch.empty(1, 27, 10**10, device='meta'), (10**5, 10**5), 3, padding=1)
    F.adaptive_avg_pool2d(b[None], (10**5, 10**5))
    F.adaptive_max_pool1d(b, 10**6 - 1)
    F.conv2d(b[None, None], torch.empty(1, 1, 3, 3, device='meta'))
    F.conv_transpose2d(b[None, None], torch.empty(1, 1, 3, 3, device='meta'), stride=2)
    F.alpha_dropout(b, 0.5, True)
    F.feature_alpha_dropout(b[None], 0.5, True)
    F.rrelu(b, training=True)
    F.gumbel_softmax(b, hard=True)
    F.pdist(torch.empty(10**6, 10, device='meta'))
    F.multi_margin_loss(b, i)
    F.multilabel_margin_loss(b, b.long())
    F.embedding_bag(i, torch.empty(10, 5, device='meta'), torch.empty(3, dtype=torch.int64, device='meta'))
    F.one_hot(i, 1000)
    b.flip(0)
    b.roll(1, 0)
    b.rot90()
    b @ b[0]
    b[0] @ b[0]
    b[i]
    b[i, i]
    b[:, i, None]
    b.index_put((b > 0,), b[0, 0])
    b[b > 0] = 0
    b.diff()
    torch.frexp(b)
    torch.repeat_interleave(b, 3)
    torch.repeat_interleave(b, i, 0, output_size=10**10)
    torch.linalg.matrix_rank(b)
    torch.linalg.cond(b)
    torch.linalg.matrix_power(b, 0)
    torch.linalg.lu(b)
    torch.lu_unpack(b, i.int())
    """

    assert not disagreements(oracle, "\n".join(setting + line.strip() for line in programs.splitlines() if line.strip()))


def test_recurrent_layers_on_meta_take_a_billion_steps() -> None:
    x = fb.empty(10**9, 2, 3, device="meta")

    out, (h, c) = fb.nn.LSTM(3, 4, 2, device="meta")(x)
    both, last = fb.nn.GRU(3, 4, bidirectional=True, device="meta")(x)

    assert [tuple(t.shape) for t in (out, h, c, both, last)] == [(10**9, 2, 4), (2, 2, 4), (2, 2, 4), (10**9, 2, 8), (2, 2, 4)]


@pytest.mark.parametrize(("size", "count"), [(100, 2 * 10**7), (3 * 10**7 + 1, 2 * 10**7), (10**12 + 1, 10**12)])
def test_adaptive_maxima_of_meta_tensors_list_no_elements(size: int, count: int) -> None:
    x = fb.empty(1, 1, size, device="meta", requires_grad=True)
    started = time.perf_counter()
    values, indices = fb.nn.functional.adaptive_max_pool1d(x, count, return_indices=True)
    values.sum().backward()

    assert time.perf_counter() - started < 2  # 10 s and 900 MiB with a table of what each range has
    assert (values.shape, indices.shape, indices.dtype) == ((1, 1, count), (1, 1, count), fb.int64)
    assert x.grad is not None
    assert (x.grad.shape, x.grad.is_meta) == (x.shape, True)


def test_adaptive_maxima_are_found_without_a_loop_over_the_results() -> None:
    x = fb.arange(7.0).reshape(1, 7)
    started = time.perf_counter()
    many = fb.nn.functional.adaptive_max_pool1d(x, 10**6)

    assert time.perf_counter() - started < 2  # 10 s with a loop
    assert many[0, :: 10**5].tolist() == [float(i * 7 // 10) for i in range(10)]


@pytest.mark.parametrize(
    "loss",
    [
        lambda x: fb.nn.functional.cross_entropy(x, fb.empty(10**5, dtype=fb.int64, device="meta")),
        lambda x: fb.nn.functional.conv2d(x[None, None], x[None, None, :3, :3]).sum(),
        lambda x: fb.nn.functional.adaptive_max_pool2d(x[None], 10**5 - 1).sum(),
        lambda x: fb.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]).sum(),
        lambda x: fb.nn.functional.ctc_loss(x[:, None], x[:1, :3].long(), (2,), (3,)),
        lambda x: (x.flip(0).roll(1, 0) @ x[0]).sum(),
        lambda x: fb.nn.functional.interpolate(x[None, None], scale_factor=2, mode="bilinear").sum(),
        lambda x: fb.nn.GRU(10**5, 2, device="meta")(x[None])[0].sum(),
    ],
)
def test_gradients_on_meta_have_the_shapes_of_real_ones(loss: Any) -> None:
    x = fb.empty(10**5, 10**5, device="meta", requires_grad=True)
    loss(x).backward()

    assert x.grad is not None
    assert (x.grad.shape, x.grad.dtype, x.grad.is_meta) == (x.shape, x.dtype, True)


def test_counts_and_running_products_have_gradients_on_meta_and_a_loss_that_reads_variances_says_it_cannot(oracle: Any) -> None:
    programs = """
    x = torch.ones(2, 3, device='meta', requires_grad=True); torch.poisson(x).sum().backward(); x.grad
    x = torch.ones(2, 3, device='meta', requires_grad=True); x.cumprod(1).sum().backward(); x.grad
    x = torch.ones(2, 3, device='meta', requires_grad=True); torch.autograd.grad(x.cumprod(0).sum(), x, create_graph=True)[0].requires_grad
    x = torch.ones(2, 3, device='meta'); F.gaussian_nll_loss(x, x, 0.5)
    x = torch.ones(2, 3, device='meta'); F.gaussian_nll_loss(x, x, x)
    """

    assert not disagreements(oracle, programs)
