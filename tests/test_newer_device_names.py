"""Names of device modules that the documentation lacks: beside PyTorch's build for the CPU, which has none of these devices."""

from __future__ import annotations

import importlib

import pytest

import flambeau as fb

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(fb.cuda.is_available(), reason="the answers are those without a device"),
]

CALLS = {
    "accelerator": """
        empty_cache() empty_host_cache() get_memory_info() max_memory_allocated() max_memory_reserved() memory_allocated()
        memory_reserved() memory_stats() reset_accumulated_memory_stats() reset_peak_memory_stats() get_device_capability()
        device_index(0).__enter__() device_index(None).__enter__() memory.memory_allocated()
    """,
    "xpu": """
        MemPool() XPUGraph() can_device_access_peer(0,1) clock_rate() device_memory_used() get_per_process_memory_fraction()
        graph_pool_handle() is_tf32_supported() memory_snapshot() memory_usage() power_draw() temperature() utilization()
        set_per_process_memory_fraction(0.5) default_generators.__len__()
    """,
    "mtia": """
        MTIAGraph() get_device_properties() get_rng_state_all() graph_pool_handle() initial_seed() is_bf16_supported() memory_allocated()
        reset_peak_memory_stats() set_rng_state_all([]) default_generators.__len__() memory.memory_allocated()
    """,
    "cuda": """
        caching_allocator_enable() current_solver_handle() host_memory_stats_as_nested_dict() nvtx.range_start('a') nvtx.range_end(1)
        cudaStatus.SUCCESS.__int__() cudaStatus.ERROR_NOT_READY.__int__() check_error(2) CudaError(2) FloatStorage(3)
        caching_allocator_disabled().__enter__() amp.amp_definitely_not_available() has_half.__bool__() has_magma.__bool__()
        tunable.set_numerical_check_tolerances(True) BFloat16Storage.__name__.__str__() ComplexFloatStorage.__module__.__str__()
    """,
    "backends": """
        cusparselt.get_max_alg_id() mps.get_core_count() mps.get_name() mps.is_macos13_or_newer() kleidiai.is_available()
    """,
    "cpu": "Event().query() Event().record() Event().wait() Event().synchronize()",
    "mps": "load_metallib('')",
}  # fmt: skip


def outcome(lib, module, call):
    """What a call gives, or "raises"."""
    found = importlib.import_module(f"{lib.__name__}.{module}")
    if lib is torch:
        for name in ("kleidiai", "memory"):
            if importlib.util.find_spec(f"torch.{module}.{name}"):
                importlib.import_module(f"torch.{module}.{name}")
    try:
        return eval(f"found.{call}", {"found": found})
    except Exception:
        return "raises"


@pytest.mark.parametrize(("module", "call"), [(module, call) for module, calls in CALLS.items() for call in calls.split()])
def test_devices_that_are_not_there_answer_as_in_torch(module, call):
    ours = outcome(fb, module, call) if not call.startswith("memory.") or module != "accelerator" else outcome(fb, module, call[7:])

    assert ours == outcome(torch, module, call)


def test_errors_have_the_types_of_torch():
    for module, call in (("accelerator", "memory_allocated()"), ("mtia", "initial_seed()"), ("xpu", "can_device_access_peer(0, 1)")):
        errors = []
        for lib in (fb, torch):
            found = importlib.import_module(f"{lib.__name__}.{module}")
            with pytest.raises((RuntimeError, AssertionError)) as caught:
                eval(f"found.{call}", {"found": found})
            errors.append(caught.type)
        assert errors[0] is errors[1], (module, call)


def test_what_the_processor_has():
    ours, theirs = fb.cpu.get_capabilities(), torch.cpu.get_capabilities()
    flags = [name for name in ours if isinstance(ours[name], bool)]

    assert len(flags) > 30
    assert {name: ours[name] for name in flags} == {name: theirs[name] for name in flags}
    assert (ours["architecture"], ours["num_logical_cores"]) == (theirs["architecture"], theirs["num_logical_cores"])


def test_storages_on_cuda_are_no_storages_on_the_cpu():
    assert not isinstance(fb.FloatStorage(2), fb.cuda.FloatStorage)
    assert fb.cuda.HalfStorage.dtype is fb.float16
    ours, theirs = ({name for name in dir(lib.cuda) if name.endswith("Storage") and name[0] != "_"} for lib in (fb, torch))
    assert ours == theirs


def test_nccl_is_not_there():
    assert fb.cuda.nccl.is_available([fb.ones(2)]) is torch.cuda.nccl.is_available([torch.ones(2)]) is False
    with pytest.raises(RuntimeError):
        fb.cuda.nccl.all_reduce([fb.ones(2)])
