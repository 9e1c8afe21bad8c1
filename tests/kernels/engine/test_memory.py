"""The caching allocator: exact figures, blocks used again, limits, threads and forks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import flambeau as fb
from flambeau_kernels import backend, memory
from flambeau_kernels.engine.runtime import allocator

pytestmark = pytest.mark.skipif(backend() == "numpy" or allocator.record() is None, reason="the caching allocator is off here")
MB = 1 << 20


@pytest.fixture(autouse=True)
def from_nothing_kept():
    memory.keep_freed()
    memory.release()


def in_use():
    return memory.statistics()["allocated_bytes"]


@pytest.mark.parametrize("size", [1 << 16, (1 << 16) + 1, 3 * MB, 5 * MB + 7, 40 * MB])
def test_an_array_counts_as_its_size_class_until_it_is_free(size):
    before = in_use()
    a = np.empty(size, np.uint8)

    assert size <= allocator.block_size(size) <= size * 9 / 8
    assert in_use() - before == allocator.block_size(size)
    del a
    assert in_use() == before


def test_memory_shared_with_numpy_counts_until_numpy_lets_it_go():
    before = in_use()
    t = fb.empty(MB)
    shared = t.numpy()
    view = shared[10:20]
    del t, shared
    assert in_use() - before == 4 * MB
    del view
    assert in_use() == before


def test_a_freed_block_is_used_again_for_its_class():
    a = np.empty(MB)
    address = a.ctypes.data
    del a
    reused = memory.statistics()["reused"]

    b = np.empty(MB - 5000)

    assert b.ctypes.data == address
    assert memory.statistics()["reused"] == reused + 1


def test_zeros_are_zero_in_used_blocks():
    a = np.full(MB, 7.0)
    del a

    assert not np.zeros(MB).any()


def test_resizing_keeps_the_values_and_the_figures():
    before = in_use()
    for start, end in ((100, MB), (MB, 100), (MB, 3 * MB), (5 * MB, 40 * MB), (40 * MB, MB)):
        a = np.arange(start, dtype=np.uint8)
        a.resize(end, refcheck=False)
        kept = min(start, end)
        assert (a[:kept] == np.arange(kept, dtype=np.uint8)).all()
        del a
    assert in_use() == before


def test_the_limit_and_release():
    limit = memory.statistics()["cache_limit_bytes"]
    try:
        fb.cpu.set_cache_limit(2 * MB)
        del (arrays := [np.empty(MB, np.uint8) for _ in range(4)])[:]
        assert memory.statistics()["cached_bytes"] <= 2 * MB
        fb.cpu.empty_cache()
        stats = fb.cpu.memory_stats()
        assert stats["cached_bytes"] == 0
        assert stats["reserved_bytes"] == stats["allocated_bytes"]
        assert arrays == []
    finally:
        fb.cpu.set_cache_limit(limit)


def test_what_is_kept_is_no_more_than_was_in_use_at_once():
    fb.cpu.reset_peak_memory_stats()
    for size in range(MB, 60 * MB, MB):
        np.empty(size, np.uint8)

    assert memory.statistics()["cached_bytes"] <= max(allocator.SPARE, fb.cpu.max_memory_allocated())


def test_sizes_of_the_past_make_room_for_those_in_use():
    fb.cpu.reset_peak_memory_stats()
    for size in (70, 90, 50):                        # more than was in use at once, and all of it is kept no longer
        np.empty(size * MB, np.uint8)
    address = np.empty(60 * MB, np.uint8).ctypes.data

    reused = memory.statistics()["reused"]

    assert np.empty(60 * MB, np.uint8).ctypes.data == address
    assert memory.statistics()["reused"] == reused + 1


@pytest.mark.parametrize("bits", [46, 47, 48, 49, 52, 56, 59])
@pytest.mark.parametrize("make", [np.empty, np.zeros])
def test_arrays_that_no_address_space_holds_are_refused(make, bits):
    for size in (1 << bits, (1 << bits) - 1, (1 << bits) + 1):
        with pytest.raises(MemoryError):
            make(size, np.uint8)


def test_peaks():
    fb.cpu.reset_peak_memory_stats()
    before = fb.cpu.memory_allocated()
    a, b = np.empty(MB), np.empty(MB)
    del a, b

    assert fb.cpu.max_memory_allocated() == before + 16 * MB
    assert fb.cpu.max_memory_reserved() >= fb.cpu.max_memory_allocated()
    fb.cpu.reset_peak_memory_stats()
    assert fb.cpu.max_memory_allocated() == before


@pytest.mark.parametrize(("size", "error"), [(-1, ValueError), (1.5, TypeError), (True, TypeError)])
def test_a_limit_that_is_none(size, error):
    with pytest.raises(error, match="size must"):
        fb.cpu.set_cache_limit(size)


def test_arrays_are_freed_by_other_threads_than_made_them():
    before = in_use()
    arrays = []

    def make(k):
        memory.keep_freed()
        for _ in range(50):
            arrays.append(np.full(MB // 4, k))
            arrays.pop(0) if len(arrays) > 8 else None

    threads = [threading.Thread(target=make, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all((a == a[0]).all() for a in arrays)
    arrays.clear()

    assert in_use() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_goes_on_with_what_it_inherited():
    a = np.full(MB, 3.0)
    child = os.fork()
    if child == 0:
        good = (a == 3).all() and not np.zeros(MB).any()
        del a
        os._exit(0 if good else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


LITTLE_ROOM = """
import mmap, resource
from pathlib import Path
import flambeau as fb
used = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
resource.setrlimit(resource.RLIMIT_AS, (used + {room}, resource.RLIM_INFINITY))
for call in (lambda: fb.linalg.lu_factor(fb.ones(2, 1, 1)), lambda: fb.special.zeta(fb.tensor(3.0), fb.tensor(2.0))):
    try:
        call()
    except RuntimeError as error:
        print(error)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(fb.linalg.lu_factor(fb.ones(2, 1, 1)).LU.tolist())
"""


@pytest.mark.parametrize("room", [70 * MB, 130 * MB])
def test_a_process_without_room_for_lapack_goes_on(room):
    command = [sys.executable, "-c", LITTLE_ROOM.format(room=room)]
    # To import numba takes more room than there is.
    environment = os.environ | {"FLAMBEAU_BACKEND": "llvm"}
    program = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)

    assert program.returncode == 0, program.stderr
    assert "can't allocate memory" in program.stdout
    assert program.stdout.endswith("[[[1.0]], [[1.0]]]\n")


FIRST = """
import numpy as np
import flambeau as fb
import flambeau.nn.functional as F
x = fb.from_numpy(np.ones((40, 1000), np.float32))
CALL
print(np._core.multiarray.get_handler_name(np.empty(1 << 20)))
"""


@pytest.mark.parametrize("call", ["x.softmax(-1)", "F.layer_norm(x, (1000,))", "F.cross_entropy(x, fb.arange(40))"])
def test_freed_memory_is_kept_from_the_first_kernel_on(call, fresh_python):
    assert fresh_python("-c", FIRST.replace("CALL", call), FLAMBEAU_BACKEND="llvm").strip() == "flambeau"


MANY_BLOCKS = """
import flambeau as fb
from flambeau_kernels import memory

def kilobytes(what):
    with open("/proc/self/smaps_rollup") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(what))

arrays = [fb.ones(512, 512) for _ in range(60)]
print(kilobytes("AnonHugePages:"), kilobytes("Rss:"))
del arrays
memory.release()
print(kilobytes("Rss:"))
"""


def offers_huge_pages():
    try:
        with open("/sys/kernel/mm/transparent_hugepage/enabled") as modes:
            return "[never]" not in modes.read()
    except OSError:
        return False


@pytest.mark.skipif(not offers_huge_pages(), reason="the system has no huge pages to offer")
def test_blocks_of_a_megabyte_share_huge_pages_and_are_given_back(fresh_python):
    (huge, full), (released,) = (map(int, line.split()) for line in fresh_python("-c", MANY_BLOCKS).splitlines())

    assert huge > 20 * 1024
    assert full - released > 50 * 1024
