"""What goes wrong in workers is an error in words within two seconds, and leaves nothing behind."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import flambeau as fb
from flambeau.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
from leftovers import files_of_ended_processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc and /dev/shm")


class Calls(Dataset):
    """Sample ``i`` is ``function(i)``; after three of them."""

    def __init__(self, function, length=12):
        self.function, self.length = function, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        # Batches large enough to travel through shared memory.
        return fb.ones(30_000) * (self.function(index) if index == 7 else index)


def raise_error(index):
    raise ZeroDivisionError("seven is bad")


def hang(index):
    time.sleep(60)


def hang_deaf(index):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(60)


def kill(index):
    os.kill(os.getpid(), signal.SIGKILL)


def crash(index):
    ctypes.string_at(0)


def leave(index):
    os._exit(3)


FAULTS = {
    "raises": (raise_error, ZeroDivisionError, r"(?s)worker 1.*in raise_error.*seven is bad"),
    "hangs": (hang, RuntimeError, r"(?s)timed out.*0\.5 seconds.*DataLoader worker 1 was here.*in hang"),
    "hangs and ignores SIGTERM": (hang_deaf, RuntimeError, r"(?s)timed out.*in hang_deaf"),
    "is killed": (kill, RuntimeError, r"worker 1 \(pid \d+\) was killed by signal 9 \(out of memory\?\)"),
    "crashes": (crash, RuntimeError, r"(?s)worker 1 .* was killed by signal 11.*worker 1 was here.*in crash"),
    "leaves": (leave, RuntimeError, r"worker 1 \(pid \d+\) exited with code 3"),
}


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_errors_in_words_and_leave_nothing(fault, persistent):
    function, kind, said = FAULTS[fault]
    # Python's helper processes start once for the program.
    list(DataLoader(Calls(int, 1), num_workers=1))
    gc.collect()
    descriptors, mapped = len(os.listdir("/proc/self/fd")), shared_mappings()
    # A worker that is merely slow on a busy machine does not hang.
    timeout = 0.5 if "hangs" in fault else 30
    loader = DataLoader(Calls(function), num_workers=2, timeout=timeout, persistent_workers=persistent)
    batches = iter(loader)
    processes = batches._pool._processes
    got = [next(batches)[0, 0].item() for _ in range(7)]
    started = time.monotonic()

    with pytest.raises(kind, match=said):
        next(batches)
    took = time.monotonic() - started
    del batches, loader
    gc.collect()

    assert took < 10                                  # well before anything waits for it in vain
    assert got == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert not any(process.is_alive() for process in processes)
    assert not any(process in multiprocessing.active_children() for process in processes)
    del processes
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert shared_mappings() == mapped
    assert not files_of_ended_processes()


def shared_mappings():
    with open("/proc/self/maps") as file:
        return sum("memfd:flambeau" in line for line in file)


# Threads


def test_threads_yield_the_same_batches_and_share_the_dataset():
    read = []

    class Squares(Dataset):
        def __len__(self):
            return 10

        def __getitem__(self, index):
            info = get_worker_info()
            read.append((threading.current_thread().name, info.id, info.num_workers, info.dataset is self))
            time.sleep(0.001 * (index % 3))
            return index * index

    loader = DataLoader(Squares(), 3, num_workers=2, worker_type="thread")

    assert [batch.tolist() for batch in loader] == [[0, 1, 4], [9, 16, 25], [36, 49, 64], [81]]
    assert {(worker, count, same) for _, worker, count, same in read} == {(0, 2, True), (1, 2, True)}
    assert get_worker_info() is None
    assert os.getpid() not in [process.pid for process in multiprocessing.active_children()]


@pytest.mark.parametrize("persistent", [False, True])
def test_threads_end_with_the_pass_or_the_loader(persistent):
    def count():
        return sum(thread.name.startswith("flambeau-dataloader") for thread in threading.enumerate())

    loader = DataLoader(range(10), 2, num_workers=2, worker_type="thread", persistent_workers=persistent)
    assert list(map(fb.Tensor.tolist, loader)) == list(map(fb.Tensor.tolist, loader))
    assert count() == (2 if persistent else 0)
    next(iter(loader))
    del loader
    gc.collect()
    deadline = time.monotonic() + 5
    while count() and time.monotonic() < deadline:
        time.sleep(0.01)

    assert count() == 0


FINALIZERS = """
import gc, threading
from flambeau.utils.data._utils import threads

class Cycle:
    def __init__(self):
        self.me = self

    def __del__(self):
        threading.Thread(target=int).start()

gc.set_threshold(1, 1, 1)
for _ in range(200):
    Cycle()
    threads._current_frames()
print("done")
"""


def test_asking_where_threads_are_runs_no_finalizer():
    # Python holds the lock of its list of threads meanwhile, and a finalizer that starts a thread waits for it.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", FINALIZERS], env=environment, capture_output=True, text=True, timeout=20)

    assert done.stdout == "done\n"


def test_threads_pass_exceptions_on_with_their_traceback():
    loader = DataLoader(Calls(raise_error), num_workers=2, worker_type="thread")

    with pytest.raises(ZeroDivisionError, match=r"(?s)worker 1.*in raise_error.*seven is bad") as caught:
        list(loader)
    assert str(caught.value.__cause__) == "seven is bad"

    def refuse(worker):
        raise OSError("no")

    with pytest.raises(OSError, match=r"(?s)worker_init_fn of DataLoader worker 0"):
        list(DataLoader(range(3), num_workers=1, worker_type="thread", worker_init_fn=refuse))


def test_threads_that_hang_are_shown_and_let_go():
    release = threading.Event()
    loader = DataLoader(Calls(lambda index: release.wait(30)), num_workers=2, worker_type="thread", timeout=0.3)
    started = time.monotonic()

    with pytest.raises(RuntimeError, match=r"(?s)timed out.*0\.3 seconds.*DataLoader worker 1 was here.*release\.wait"):
        list(loader)
    assert time.monotonic() - started < 10
    release.set()
    del loader
    gc.collect()


def test_threads_read_streams_in_turn():
    class Stream(IterableDataset):
        def __iter__(self):
            worker = get_worker_info().id
            return iter(range(100 * worker, 100 * worker + 3 + 2 * worker))

    loader = DataLoader(Stream(), None, num_workers=2, worker_type="thread")

    assert list(loader) == [0, 100, 1, 101, 2, 102, 103, 104]


def test_threads_fetch_side_by_side():
    class Slow(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            time.sleep(0.1)
            return index

    started = time.monotonic()
    list(DataLoader(Slow(), 2, num_workers=4, worker_type="thread"))

    assert time.monotonic() - started < 0.6


def test_worker_types_are_checked():
    with pytest.raises(ValueError, match="worker_type must be 'process' or 'thread', got 'green'"):
        DataLoader(range(3), worker_type="green")
    with pytest.raises(ValueError, match="multiprocessing_context='fork' is for worker_type='process'"):
        DataLoader(range(3), num_workers=1, worker_type="thread", multiprocessing_context="fork")
