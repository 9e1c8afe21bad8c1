"""Where and how elements are kept: meta tensors, memory formats, sizes, devices that are not here."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fb
from comparing import disagreements


def test_meta_tensors_follow_shapes_and_strides_without_memory() -> None:
    x = fb.empty(1000, 1000, 1000, device="meta")
    y = (x.transpose(0, 2) + 1)[:, 1:, None].sum(0)

    assert y.shape == (999, 1, 1000)
    assert y.is_meta
    assert y.data_ptr() == 0


def test_a_meta_tensor_has_nothing_to_copy() -> None:
    with pytest.raises(NotImplementedError, match="no data"):
        fb.ones(2).copy_(fb.ones(2, device="meta"))


def test_like_tensors_leave_the_meta_device_when_asked() -> None:
    assert fb.zeros_like(fb.empty(2, 2, device="meta"), device="cpu").tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_channels_last_stays_through_copies_and_elementwise_operations() -> None:
    x = fb.rand(2, 3, 4, 5).to(memory_format=fb.channels_last)

    for y in (x.clone(), x.double(), x + 1, x.relu(), x * fb.rand(3, 1, 1), fb.empty_like(x)):
        assert y.is_contiguous(memory_format=fb.channels_last)
    assert x.contiguous().is_contiguous()


def test_devices_that_are_not_here_say_how_to_get_them() -> None:
    if fb.cuda.is_available():
        pytest.skip("there is a CUDA device")

    assert fb.cuda.device_count() == 0
    assert not fb.mps.is_available()
    assert not fb.xpu.is_available()
    for use in (lambda: fb.ones(1).cuda(), fb.cuda.synchronize, fb.cuda.Stream, fb.cuda.current_device):
        with pytest.raises(RuntimeError, match=r"flambeau\[cuda\]"):
            use()


def test_backends_answer_for_this_installation() -> None:
    assert fb.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2", "AVX512")
    assert not fb.backends.mkldnn.is_available()
    with fb.backends.cudnn.flags(benchmark=True):
        assert fb.backends.cudnn.benchmark
    assert not fb.backends.cudnn.benchmark
    assert "kernels" in fb.__config__.show()


def test_what_tensors_lack_is_named() -> None:
    with pytest.raises(AttributeError, match="QInt8Storage"):
        fb.QInt8Storage  # noqa: B018  # reading it is the test


def test_tensors_without_memory_know_their_shape(oracle: Any) -> None:
    programs = """
    torch.empty_like(torch.empty(2, 3, device='meta'), device='cpu').shape
    torch.zeros_like(torch.empty(2, 3, device='meta'), device='cpu')
    torch.full_like(torch.empty(2, 3, device='meta'), 3, device='cpu')
    torch.ones_like(torch.zeros(2, 3), device='meta')
    torch.tensor([[1, 2], [3, 4]], device='meta')
    torch.zeros(2, 3, device='meta')
    torch.arange(3, device='meta')
    with_ = torch.device('meta'); with_.__enter__(); r = torch.zeros(2); with_.__exit__(None, None, None); r.device
    torch.tensor(3.0, device='meta').item()
    torch.tensor(3.0, device='meta').tolist()
    torch.masked_select(torch.empty(3, device='meta'), torch.empty(3, device='meta', dtype=torch.bool))
    torch.nonzero(torch.empty(3, device='meta'))
    torch.unique(torch.empty(3, device='meta'))
    torch.nonzero_static(torch.empty(3, device='meta'), size=2)
    torch.repeat_interleave(torch.empty(3, device='meta'), 2)
    torch.repeat_interleave(torch.empty(3, device='meta', dtype=torch.int64))
    torch.bernoulli(torch.empty(3, device='meta'))
    torch.multinomial(torch.empty(2, 3, device='meta'), 2)
    torch.nn.functional.one_hot(torch.empty(3, device='meta', dtype=torch.int64))
    torch.nn.functional.one_hot(torch.empty(3, device='meta', dtype=torch.int64), 4)
    torch.ones(2, device='meta').numpy()
    x = torch.ones(2, 3, device='meta'); copy.deepcopy(x)
    torch.ones(2).to('meta')
    torch.ones(2, device='meta').to('cpu')
    torch.ones(2, device='meta').cpu()
    torch.ones(2, device='meta') + 1
    torch.ones(2, device='meta') + torch.ones(2)
    torch.ones(2, device='meta') + torch.tensor(1.0)
    torch.ones(2, 3, device='meta').t()
    torch.ones(2, 3, device='meta') @ torch.ones(3, 4, device='meta')
    torch.ones(2, 3, device='meta').sum(1)
    torch.ones(2, 3, device='meta')[1]
    torch.ones(2, 3, device='meta')[:, 1:].stride()
    torch.ones(2, 3, device='meta')[:, 1:].storage_offset()
    torch.ones(2, 3, device='meta').add_(1)
    torch.ones(2, 3, device='meta').clone()
    torch.ones(2, 3, device='meta').view(6).shape
    bool(torch.ones(1, device='meta'))
    torch.ones(2, device='meta').requires_grad_().sum().backward()
    torch.ones(2, device='meta').copy_(torch.ones(2))
    torch.ones(2).copy_(torch.ones(2, device='meta'))
    torch.equal(torch.ones(2, device='meta'), torch.ones(2, device='meta'))
    torch.set_default_device('meta'); r = torch.zeros(2).device; torch.set_default_device(None); r
    torch.set_default_device('meta'); r = torch.tensor([2]).device; torch.set_default_device('cpu'); r
    """

    assert not disagreements(oracle, programs)


def test_memory_formats_survive(oracle: Any) -> None:
    programs = """
    torch.ones_like(torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last))
    torch.ones_like(torch.ones(2, 3).t(), memory_format=torch.contiguous_format)
    torch.empty(2, 3, 4, 5, memory_format=torch.channels_last).stride()
    torch.empty(2, 3, memory_format=torch.channels_last).stride()
    torch.empty(2, 3, memory_format=torch.preserve_format).stride()
    torch.zeros(2, memory_format=torch.contiguous_format)
    torch.ones(1, 3, 1, 1).is_contiguous(memory_format=torch.channels_last)
    torch.ones(2, 3, 4, 5).contiguous(memory_format=torch.channels_last).stride()
    torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last).clone().stride()
    torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last).to(torch.float64).stride()
    torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last).add(1).stride()
    (torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last) * torch.ones(3, 1, 1)).stride()
    (torch.ones(3, 1, 1) * torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last)).stride()
    torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last).relu().stride()
    torch.cat([torch.ones(2, 3, 4, 6).to(memory_format=torch.channels_last)] * 2).stride()
    torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last).sum(1).stride()
    torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last).contiguous().stride()
    torch.ones(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d).stride()
    torch.ones(2, 3, 4).to(memory_format=torch.channels_last)
    torch.ones(2, 3).contiguous(memory_format=torch.preserve_format)
    pickle.loads(pickle.dumps(torch.channels_last)) is torch.channels_last
    x = torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last); x.dim_order()
    """

    assert not disagreements(oracle, programs)


def test_sizes_are_tuples_of_ints(oracle: Any) -> None:
    programs = """
    torch.tensor(torch.Size([1, 2]))
    torch.zeros(torch.Size([2]))
    torch.Tensor(torch.Size([2, 3])).shape
    pickle.loads(pickle.dumps(torch.Size([1, 2])))
    torch.Size([1, 2]) + (3,)
    (3,) + torch.Size([1, 2])
    torch.Size([1, 2])[1:]
    torch.Size([1, 2]) * 2
    torch.Size([1, 2]) == (1, 2)
    torch.Size([1, 2]).numel()
    torch.Size((1.5,))
    torch.Size(3)
    torch.Size([torch.tensor(2)])
    torch.Size([1, 2]) + [3]
    torch.Size([1, 2, 3]).count(1)
    sorted(torch.Size([3, 1]))
    """

    assert not disagreements(oracle, programs)


def test_devices_are_parsed_and_compared(oracle: Any) -> None:
    programs = """
    torch.zeros(2, layout=torch.strided)
    pickle.loads(pickle.dumps(torch.device('cpu')))
    torch.device('cpu:0')
    torch.device('')
    torch.device(torch.device('cpu'))
    torch.device('cpu') == 'cpu'
    torch.device('cpu') == torch.device('cpu', 0)
    torch.device(None)
    torch.device(1.5)
    torch.ones(2).layout
    torch.ones(2).get_device()
    torch.get_default_device()
    """

    assert not disagreements(oracle, programs)


@pytest.mark.parametrize("kind", ["mps", "xpu", "hpu", "xla"])
def test_devices_without_kernels_are_refused_and_not_taken_for_the_cpu(kind):
    for make in (lambda: fb.ones(1).to(kind), lambda: fb.ones(1, device=kind), lambda: fb.nn.Linear(1, 1).to(kind)):
        with pytest.raises(RuntimeError, match=f"no support for {kind} devices"):
            make()
