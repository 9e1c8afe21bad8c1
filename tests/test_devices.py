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
    with pytest.raises(AttributeError, match=r"torch.onnx.dynamo_export is not built yet"):
        fb.onnx.dynamo_export  # noqa: B018  # reading it is the test


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
    torch.set_default_device('meta'); r = torch.tensor([2]).device; torch.set_default_device('cpu'); torch.set_default_device(None); r
    torch.set_default_device('meta'); r = torch.Tensor(2).device, torch.LongTensor([2]).device; torch.set_default_device(None); r
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


def test_modules_of_devices_that_are_not_here_answer_as_pytorch_without_them(oracle: Any) -> None:
    programs = """
    torch.mps.device_count(), torch.mps.is_available()
    torch.mps.synchronize()
    torch.mps.get_rng_state()
    torch.mps.set_rng_state(torch.zeros(3))
    torch.mps.manual_seed(1)
    torch.mps.seed()
    torch.mps.empty_cache()
    torch.mps.set_per_process_memory_fraction(0.5)
    torch.mps.set_per_process_memory_fraction(5.)
    torch.mps.set_per_process_memory_fraction('a')
    torch.mps.current_allocated_memory()
    torch.mps.driver_allocated_memory()
    torch.mps.recommended_max_memory()
    torch.mps.compile_shader('x')
    torch.mps.profiler.start()
    torch.mps.profiler.stop()
    torch.mps.profiler.profile().__enter__()
    torch.mtia.is_available(), torch.mtia.is_initialized(), torch.mtia.device_count()
    torch.mtia.init()
    torch.mtia.current_device()
    torch.mtia.current_stream()
    torch.mtia.default_stream()
    torch.mtia.memory_stats(), torch.mtia.memory.memory_stats(), torch.mtia.max_memory_allocated()
    torch.mtia.get_device_capability()
    torch.mtia.empty_cache()
    torch.mtia.record_memory_history()
    torch.mtia.snapshot()
    torch.mtia.set_device(0)
    torch.mtia.set_device(-1)
    torch.mtia.set_device(None)
    torch.mtia.set_stream(None)
    torch.mtia.stream(None)
    torch.mtia.StreamContext(None)
    torch.mtia.synchronize()
    torch.mtia.device(-1).__enter__()
    torch.mtia.device(0).__enter__()
    torch.mtia.set_rng_state(torch.zeros(3))
    torch.mtia.get_rng_state()
    torch.xpu.is_available(), torch.xpu.is_initialized(), torch.xpu.device_count()
    torch.xpu.init()
    torch.xpu.current_device()
    torch.xpu.set_device(0)
    torch.xpu.device(0).__enter__()
    torch.xpu.device_of(torch.ones(1)).__enter__()
    torch.xpu.get_arch_list(), torch.xpu.get_gencode_flags()
    torch.xpu.get_device_capability()
    torch.xpu.get_device_name()
    torch.xpu.get_device_properties()
    torch.xpu.get_stream_from_external(0)
    torch.xpu.current_stream()
    torch.xpu.set_stream(None)
    torch.xpu.stream(None).__enter__()
    torch.xpu.synchronize()
    torch.xpu.Event()
    torch.xpu.Stream()
    torch.xpu.get_rng_state()
    torch.xpu.get_rng_state_all()
    torch.xpu.set_rng_state(torch.zeros(3))
    torch.xpu.set_rng_state_all([])
    torch.xpu.initial_seed()
    torch.xpu.manual_seed(0), torch.xpu.manual_seed_all(0), torch.xpu.seed(), torch.xpu.seed_all()
    torch.xpu.empty_cache()
    torch.xpu.max_memory_allocated(), torch.xpu.max_memory_reserved(), torch.xpu.memory_allocated(), torch.xpu.memory_reserved()
    torch.xpu.mem_get_info()
    torch.xpu.memory_stats(), torch.xpu.memory_stats_as_nested_dict()
    """

    assert not disagreements(oracle, programs)


def test_streams_and_events_of_the_cpu_are_pytorchs(oracle: Any) -> None:
    programs = """
    torch.Event('cpu')
    torch.Event('meta')
    torch.Event('mps')
    torch.Event('zzz')
    torch.Event('cpu', enable_timing=True)
    torch.Event('cpu').query(), torch.Event('cpu').event_id, torch.Event('cpu').device
    torch.Event('cpu').record()
    torch.Event('cpu').synchronize(), torch.Event('cpu').wait()
    torch.Event('cpu').elapsed_time(torch.Event('cpu'))
    torch.Event('cpu', enable_timing=True).elapsed_time(torch.Event('cpu', enable_timing=True))
    torch.Stream('cpu')
    torch.Stream('meta')
    torch.Stream(device='xpu', priority=1)
    torch.Stream('cpu').query(), torch.Stream('cpu').stream_id, torch.Stream('cpu').device, torch.Stream('cpu').device_index
    torch.Stream('cpu').synchronize()
    torch.Stream('cpu').record_event()
    torch.Stream('cpu').wait_event(torch.Event('cpu'))
    torch.Stream('cpu').wait_stream(torch.Stream('cpu'))
    torch.Stream('cpu').__enter__()
    torch.Stream('cpu') == torch.Stream('cpu'), torch.Stream('cpu') == torch.Stream('meta')
    torch.cpu.amp.GradScaler(enabled=False).is_enabled()
    torch.cpu.amp.autocast()(lambda: (torch.ones(2, 2) @ torch.ones(2, 2)).dtype)()
    """

    assert not disagreements(oracle, programs)


def test_switches_of_backends_answer_as_pytorch_without_cuda(oracle: Any) -> None:
    if fb.cuda.is_available():
        pytest.skip("there is a CUDA device")
    programs = """
    torch.backends.cuda.cufft_plan_cache[0]
    torch.backends.cuda.cufft_plan_cache['cpu']
    torch.backends.cuda.preferred_blas_library().name
    torch.backends.cuda.preferred_blas_library('zz')
    torch.backends.cuda.preferred_blas_library(5)
    torch.backends.cuda.preferred_blas_library('cublaslt')
    torch.backends.cuda.preferred_blas_library('default').name
    torch.backends.cuda.preferred_linalg_library('default').name
    torch.backends.cuda.preferred_linalg_library('magma')
    torch.backends.cuda.preferred_linalg_library('zz')
    torch.backends.cuda.preferred_linalg_library('default').name
    torch.backends.cuda.preferred_rocm_fa_library('ck').name
    torch.backends.cuda.preferred_rocm_fa_library('default').value
    torch.backends.cuda.preferred_rocm_fa_library('zz')
    mha = torch.backends.mha; mha.set_fastpath_enabled(False); r = mha.get_fastpath_enabled(); mha.set_fastpath_enabled(True); r
    torch.backends.mkl.verbose(torch.backends.mkl.VERBOSE_OFF).__enter__()
    torch.backends.mkl.verbose(5).__enter__()
    torch.backends.mkldnn.VERBOSE_ON_CREATION, torch.backends.mkldnn.VERBOSE_ON, torch.backends.mkldnn.VERBOSE_OFF
    torch.cuda.get_gencode_flags(), torch.cuda.is_tf32_supported(), torch.cuda.host_memory_stats()
    torch.cuda.nvtx.mark('a')
    torch.cuda.nvtx.range('a').__enter__()
    torch.cuda.MemPool()
    torch.cuda.gds.gds_register_buffer(torch.ones(1).untyped_storage())
    torch.cuda.memory.caching_allocator_enable(True)
    """

    assert not disagreements(oracle, programs)


def test_names_of_cuda_that_need_a_device_say_how_to_get_one() -> None:
    if fb.cuda.is_available():
        pytest.skip("there is a CUDA device")
    cuda = fb.cuda
    uses = [
        cuda.cudart, cuda.current_blas_handle, cuda.memory_snapshot, cuda.get_sync_debug_mode, cuda.tunable.enable, cuda.comm.gather,
        cuda.memory._record_memory_history, cuda.memory._snapshot, cuda.MemPool, cuda.use_mem_pool(None).__enter__, cuda.nvtx.range_pop,
        lambda *_: cuda.comm.broadcast(fb.ones(2), [0]), lambda *_: cuda.comm.scatter(fb.ones(2), [0, 1]),
        lambda *_: fb.backends.cuda.cufft_plan_cache.size,
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(RuntimeError, match=r"flambeau\[cuda\]"):
            use([fb.ones(2)]) if use is cuda.comm.gather else use()
    assert not cuda.tunable.is_enabled()
    with pytest.raises(AssertionError, match="input 0 is on cpu"):
        cuda.comm.reduce_add([fb.ones(2)])
    with pytest.raises(RuntimeError, match="exactly one"):
        cuda.comm.broadcast(fb.ones(2))


def test_what_is_not_built_for_cuda_names_itself_and_the_way_round() -> None:
    cuda = fb.cuda
    for use, words in (
        (lambda: cuda.jiterator._create_jit_fn("template <typename T> T f(T x) { while (x < 1) x += 1; }"), r"'while'.*kernels\.loop"),
        (lambda: cuda.gds.GdsFile(__file__, 0), "mmap=True"),
        (cuda._sanitizer.enable_cuda_sanitizer, "compute-sanitizer"),
        (lambda: cuda.CUDAPluggableAllocator("a.so", "a", "f"), "cupy"),
        (lambda: cuda.Event.from_ipc_handle(0, b""), "between processes"),
    ):
        with pytest.raises(NotImplementedError, match=words):
            use()


def test_extensions_in_other_languages_are_refused_with_what_to_use() -> None:
    from flambeau.utils import cpp_extension

    for use in (
        lambda: cpp_extension.load("name", ["a.cpp"]), lambda: cpp_extension.load_inline("name", "int x;"),
        lambda: cpp_extension.CppExtension("name", []), lambda: cpp_extension.CUDAExtension("name", []),
        lambda: cpp_extension.SyclExtension("name", []), cpp_extension.BuildExtension,
        lambda: cpp_extension.BuildExtension.with_options(use_ninja=False)(),
    ):  # fmt: skip
        with pytest.raises(NotImplementedError, match=r"flambeau\.library\.custom_op"):
            use()
    assert cpp_extension.include_paths() == []
    assert cpp_extension.is_ninja_available() in (True, False)


@pytest.mark.parametrize("program", [
    "torch.ones(2).untyped_storage().hpu()", "torch.ones(2).untyped_storage().mps()", "torch.ones(2).storage().hpu()",
    "setattr(torch.Generator(), 'device', 'cpu')",
])  # fmt: skip
def test_storages_go_to_no_device_that_is_not_there(oracle, program):
    assert not disagreements(oracle, program)


def test_switches_of_onednn_are_kept_inside_a_block(oracle):
    programs = """
    torch.backends.mkldnn.enabled, torch.backends.mkldnn.deterministic, torch.backends.mkldnn.allow_tf32
    f = torch.backends.mkldnn.flags(deterministic=True); f.__enter__(); r = torch.backends.mkldnn.enabled; f.__exit__(None, None, None); r
    torch.backends.mkldnn.enabled
    """

    assert not disagreements(oracle, programs)
