"""The loader with worker processes: the same batches, faults of every kind, and nothing left behind."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import flambeau as fb
from flambeau.utils.data import DataLoader, Dataset, IterableDataset, Sampler, TensorDataset, get_worker_info

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="forks"),
    # More workers than CPUs are wanted here.
    pytest.mark.filterwarnings("ignore:DataLoader. num_workers:UserWarning"),
]


class Calls(Dataset):
    """Sample ``i`` is ``function(i)``."""

    def __init__(self, function, length=8):
        self.function = function
        self.length = length

    def __getitem__(self, index):
        return self.function(index)

    def __len__(self):
        return self.length


class Stream(IterableDataset):
    """In worker ``w``: ``3 + 2 * w`` numbers from ``100 * w``."""

    def __iter__(self):
        worker = get_worker_info().id
        return iter(range(100 * worker, 100 * worker + 3 + 2 * worker))


def identity(index):
    return index


def fail_on_three(index):
    if index == 3:
        raise ValueError("three is bad")
    return index


def lists(loader):
    return [batch.tolist() if isinstance(batch, fb.Tensor) else batch for batch in loader]


def children():
    """The processes that have this one as their parent, the dead ones not yet waited for included."""
    # -ww: a long path would otherwise push the names below past the eightieth column.
    command = ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(os.getpid())]
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    # The helpers of multiprocessing stay for the life of the program.
    others = ("ps -ww", "resource_tracker", "forkserver")
    return [line for line in lines if not any(word in line for word in others)]


@pytest.fixture(autouse=True)
def nothing_left_behind():
    before, opened = children(), open_descriptors()
    yield
    gc.collect()
    assert children() == before
    # Up to two belong to multiprocessing's own helper processes.
    assert open_descriptors() <= opened + 2


def open_descriptors():
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


# The same batches


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("prefetch", [1, 2, 5])
def test_batches_come_in_order(workers, prefetch):
    def slow_if_even(index):
        time.sleep(0.002 * (index % 2 == 0))
        return index

    loader = DataLoader(Calls(slow_if_even, 11), 2, num_workers=workers, prefetch_factor=prefetch)

    assert lists(loader) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10]]
    assert lists(loader) == lists(DataLoader(Calls(identity, 11), 2))


@pytest.mark.oracle
@pytest.mark.parametrize("workers", [0, 2])
def test_shuffled_orders_and_generators_agree_with_pytorch(oracle, workers):
    outcomes = []
    for framework in (fb, oracle):
        framework.manual_seed(5)
        dataset = framework.utils.data.TensorDataset(framework.arange(10))
        loader = framework.utils.data.DataLoader(dataset, 4, shuffle=True, num_workers=workers)
        orders = [[batch[0].tolist() for batch in loader] for _ in range(2)]
        outcomes.append((orders, framework.rand(2).tolist()))

    assert outcomes[0] == outcomes[1]


@pytest.mark.oracle
def test_random_numbers_in_workers_are_pytorchs(oracle):
    outcomes = []
    for framework in (fb, oracle):
        framework.manual_seed(5)

        def draw(index, framework=framework):
            seed = framework.utils.data.get_worker_info().seed
            return seed, framework.initial_seed(), framework.rand(1).item(), random.random(), np.random.rand()

        loader = framework.utils.data.DataLoader(Calls(draw, 6), None, num_workers=2)
        outcomes.append([list(map(float, sample)) for sample in loader])

    assert outcomes[0] == outcomes[1]


@pytest.mark.oracle
def test_persistent_workers_draw_as_pytorchs(oracle):
    outcomes = []
    for framework in (fb, oracle):
        framework.manual_seed(5)
        settings = {"shuffle": True, "num_workers": 2, "persistent_workers": True}
        loader = framework.utils.data.DataLoader(Calls(identity, 7), 2, **settings)
        orders = [[batch.tolist() for batch in loader] for _ in range(3)]
        outcomes.append((orders, framework.rand(2).tolist()))
        del loader
        gc.collect()

    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("prefetch", [2, 3])
def test_keys_are_drawn_no_further_ahead_than_pytorch_draws_them(prefetch):
    class Counting(Sampler):
        drawn = 0

        def __iter__(self):
            for key in range(100):
                self.drawn += 1
                yield key

    sampler = Counting()
    loader = DataLoader(Calls(identity, 100), 2, sampler=sampler, num_workers=2, prefetch_factor=prefetch)
    batches = iter(loader)
    drawn = [sampler.drawn]
    for _ in range(3):
        next(batches)
        drawn.append(sampler.drawn)

    ahead = 2 * 2 * prefetch
    assert drawn == [ahead, ahead + 2, ahead + 4, ahead + 6]


def test_workers_know_themselves():
    def describe(index):
        info = get_worker_info()
        return info.id, info.num_workers, info.seed - info.id, len(info.dataset)

    seen = set(map(tuple, DataLoader(Calls(describe), None, num_workers=2)))

    assert {(each[0], each[1], each[3]) for each in seen} == {(0, 2, 8), (1, 2, 8)}
    assert len({each[2] for each in seen}) == 1
    assert get_worker_info() is None


def test_streams_are_read_in_turn():
    assert lists(DataLoader(Stream(), 2, num_workers=3)) == [
        [0, 1], [100, 101], [200, 201], [2], [102, 103], [202, 203], [104], [204, 205], [206],
    ]  # fmt: skip
    assert lists(DataLoader(Stream(), 2, num_workers=3, drop_last=True)) == [
        [0, 1], [100, 101], [200, 201], [102, 103], [202, 203], [204, 205],
    ]  # fmt: skip
    assert lists(DataLoader(Stream(), None, num_workers=2)) == [0, 100, 1, 101, 2, 102, 103, 104]


def test_out_of_order_yields_what_is_ready_first():
    def first_is_slow(index):
        time.sleep(0.5 if index == 0 else 0.0)
        return index

    batches = lists(DataLoader(Calls(first_is_slow), None, num_workers=2, in_order=False))

    # Number 2 waits behind 0 in the same worker.
    assert batches == [1, 3, 4, 5, 6, 7, 0, 2]


def test_worker_init_fn_runs_after_seeding():
    def double(worker):
        get_worker_info().dataset.length = fb.initial_seed()

    loader = DataLoader(
        Calls(lambda index: get_worker_info().dataset.length - get_worker_info().seed), None, num_workers=2,
        worker_init_fn=double,
    )  # fmt: skip

    assert set(loader) == {0}


def test_an_iterator_that_has_ended_stays_ended():
    batches = iter(DataLoader(Calls(identity, 2), num_workers=2))

    assert len(list(batches)) == 2
    assert list(batches) == []


# Persistent workers


def test_persistent_workers_stay_and_start_anew():
    loader = DataLoader(Calls(lambda index: os.getpid()), None, num_workers=2, persistent_workers=True)
    first, second = set(loader), set(loader)

    assert len(first) == 2
    assert first == second


def test_a_pass_left_early_does_not_disturb_the_next():
    loader = DataLoader(Calls(identity, 20), 2, num_workers=2, persistent_workers=True)
    for _ in range(3):
        assert next(iter(loader)).tolist() == [0, 1]

    assert lists(loader) == lists(DataLoader(Calls(identity, 20), 2))


def test_persistent_streams_start_anew():
    loader = DataLoader(Stream(), None, num_workers=2, persistent_workers=True)

    assert list(loader) == list(loader) == [0, 100, 1, 101, 2, 102, 103, 104]


# What travels


def test_batches_of_every_kind_arrive_whole():
    def sample(index):
        return {
            "large": fb.full((300, 300), index), "small": fb.tensor(index),
            "half": fb.ones(3, dtype=fb.bfloat16), "empty": fb.zeros(0, 4),
            "turned": fb.arange(6).reshape(2, 3).t(), "grown": fb.ones(2, requires_grad=True),
            "array": np.full((200, 200), index), "text": "x" * 100_000, "nothing": None, "set": {index},
        }  # fmt: skip

    for index, got in enumerate(DataLoader(Calls(sample, 5), None, num_workers=2, collate_fn=identity)):
        expected = sample(index)
        for name in ("large", "small", "half", "empty", "turned"):
            assert got[name].dtype is expected[name].dtype
            assert got[name].tolist() == expected[name].tolist(), name
        assert got["grown"].requires_grad
        assert got["grown"].is_leaf
        assert (got["array"] == index).all()
        assert (got["text"], got["nothing"], got["set"]) == ("x" * 100_000, None, {index})


@pytest.mark.parametrize("size", [10, 100_000])
def test_received_tensors_can_be_written_to_and_outlive_the_loader(size):
    batches = list(DataLoader(TensorDataset(fb.zeros(4, size)), 2, num_workers=2))
    gc.collect()
    for (batch,) in batches:
        batch += 1

    assert [batch.sum().item() for (batch,) in batches] == [2 * size] * 2


def test_many_keys_and_many_results_do_not_block_each_other():
    # Both directions carry more than a socket holds.
    loader = DataLoader(Calls(lambda index: "x" * 2000, 20_000), 10_000, num_workers=1, collate_fn=identity)

    assert [len(batch) for batch in loader] == [10_000, 10_000]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_start_methods(method):
    dataset = TensorDataset(fb.arange(6.0), fb.arange(6))
    loader = DataLoader(dataset, 4, num_workers=1, multiprocessing_context=method)

    assert [[part.tolist() for part in batch] for batch in loader] == [
        [[0, 1, 2, 3], [0, 1, 2, 3]], [[4, 5], [4, 5]],
    ]  # fmt: skip


# Faults


class Unmakeable(Exception):
    def __init__(self, one, two):
        super().__init__(one, two)


def raise_unmakeable(index):
    raise Unmakeable(1, 2)


def raise_key_error(index):
    raise KeyError("missing")


def test_exceptions_have_their_type_and_the_workers_traceback():
    with pytest.raises(ValueError, match=r"(?s)worker 1.*in fail_on_three.*three is bad"):
        lists(DataLoader(Calls(fail_on_three), num_workers=2))
    with pytest.raises(KeyError) as caught:
        lists(DataLoader(Calls(raise_key_error), num_workers=1))
    assert "in raise_key_error\n" in str(caught.value)


def test_exceptions_that_cannot_be_made_again_are_runtime_errors():
    class Local(Exception):
        pass

    def raise_local(index):
        raise Local("here")

    with pytest.raises(RuntimeError, match=r"(?s)Unmakeable.*in raise_unmakeable"):
        lists(DataLoader(Calls(raise_unmakeable), num_workers=1))
    with pytest.raises(RuntimeError, match=r"(?s)Local.*in raise_local"):
        lists(DataLoader(Calls(raise_local), num_workers=1))


def test_loading_goes_on_after_an_exception():
    batches, got = iter(DataLoader(Calls(fail_on_three, 6), num_workers=2)), []
    while True:
        try:
            got.append(next(batches).item())
        except StopIteration:
            break
        except ValueError:
            got.append("bad")

    assert got == [0, 1, 2, "bad", 4, 5]


def test_exceptions_before_the_first_batch_are_reported():
    def refuse(worker):
        raise OSError(f"worker {worker} refuses")

    class Broken(IterableDataset):
        def __iter__(self):
            raise ValueError("no stream")

    with pytest.raises(OSError, match=r"(?s)worker_init_fn.*worker 0 refuses"):
        lists(DataLoader(Calls(identity), num_workers=2, worker_init_fn=refuse))
    with pytest.raises(ValueError, match=r"(?s)iter\(dataset\).*no stream"):
        lists(DataLoader(Broken(), num_workers=2))


def test_what_cannot_leave_a_worker_is_reported():
    with pytest.raises(RuntimeError, match=r"(?s)autograd history.*detach"):
        lists(DataLoader(Calls(lambda index: fb.ones(2, requires_grad=True) * index), None, num_workers=1))
    with pytest.raises((AttributeError, TypeError, RuntimeError), match=r"(?s)sending its batch"):
        lists(DataLoader(Calls(lambda index: lambda: index), None, num_workers=1))


@pytest.mark.parametrize(
    ("end", "how"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "killed by signal 9"),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), "killed by signal 15"),
        (lambda: os._exit(3), "exited with code 3"),
        (lambda: sys.exit(4), "exited with code 4"),
    ],
    ids=["SIGKILL", "SIGTERM", "_exit", "sys.exit"],
)
@pytest.mark.parametrize("persistent", [False, True])
def test_a_dead_worker_is_noticed(end, how, persistent):
    def die_on_three(index):
        if index == 3:
            end()
        return index

    loader = DataLoader(Calls(die_on_three), num_workers=2, persistent_workers=persistent)
    started = time.monotonic()

    with pytest.raises(RuntimeError, match=rf"worker 1 \(pid \d+\) (was )?{how}"):
        lists(loader)
    assert time.monotonic() - started < 10
    assert [batch.item() for _, batch in zip(range(3), loader, strict=False)] == [0, 1, 2]
    del loader


def test_a_worker_killed_while_idle_is_noticed_when_it_is_needed():
    batches = iter(DataLoader(Calls(lambda index: os.getpid(), 100), None, num_workers=1))
    os.kill(next(batches), signal.SIGKILL)

    with pytest.raises(RuntimeError, match="signal 9"):
        list(batches)


def test_a_timeout_is_noticed():
    loader = DataLoader(Calls(lambda index: time.sleep(60)), None, num_workers=2, timeout=0.3)
    started = time.monotonic()

    with pytest.raises(RuntimeError, match=r"timed out.*0\.3 seconds"):
        next(iter(loader))
    assert time.monotonic() - started < 10


def test_dropping_the_iterator_ends_the_workers():
    batches = iter(DataLoader(Calls(lambda index: os.getpid()), None, num_workers=1))
    worker = next(batches)
    del batches
    gc.collect()

    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def test_a_forked_child_leaves_the_workers_of_its_parent_alone():
    batches = iter(DataLoader(Calls(identity, 6), None, num_workers=1))
    next(batches)
    child = os.fork()
    if not child:
        try:
            batches._finalizer()
        finally:
            os._exit(0)
    os.waitpid(child, 0)

    assert list(batches) == [1, 2, 3, 4, 5]


PROGRAM = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
import flambeau as fb
from flambeau.utils.data import DataLoader

class Slow:
    def __getitem__(self, index):
        if index:
            time.sleep(60)
        return os.getpid()
    def __len__(self):
        return 100

{body}
"""


def run_program(body):
    """A process in a group of its own that runs `body`; Ctrl-C reaches it even where a shell started us in the background."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", PROGRAM.format(body=body)], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def wait_for_death(pid, seconds=20.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


WAITING = """
for pid in DataLoader(Slow(), None, num_workers=1):
    print(pid, flush=True)
"""


def test_ctrl_c_ends_the_program_and_its_workers():
    program = run_program(WAITING)
    worker = int(program.stdout.readline())
    time.sleep(0.3)
    started = time.monotonic()
    # As a terminal does: to the whole group.
    os.killpg(program.pid, signal.SIGINT)
    _, errors = program.communicate(timeout=30)

    assert program.returncode == -signal.SIGINT
    assert errors.count("KeyboardInterrupt") == 1
    assert time.monotonic() - started < 10
    assert wait_for_death(worker)


def test_workers_end_when_their_parent_is_killed():
    idle = """
batches = iter(DataLoader([1, 2, 3], None, num_workers=1))
next(batches)
print(batches._pool._processes[0].pid, flush=True)
time.sleep(60)
"""
    program = run_program(idle)
    worker = int(program.stdout.readline())
    program.kill()
    program.communicate()

    assert wait_for_death(worker)


def test_a_program_that_ends_in_the_middle_of_a_pass_ends_its_workers():
    program = run_program("""
batches = iter(DataLoader([1, 2, 3] * 100, None, num_workers=2, persistent_workers=True))
next(batches)
print(*[process.pid for process in batches._pool._processes], flush=True)
""")
    output, errors = program.communicate(timeout=30)

    assert (program.returncode, errors) == (0, "")
    assert all(wait_for_death(int(pid)) for pid in output.split())
