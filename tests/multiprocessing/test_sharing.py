"""Tensors between processes: one memory, seen from both sides, and nothing left behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import flambeau as fb
import flambeau.multiprocessing as mp

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is shared on Linux only")

SECONDS = 60


class Tagged(fb.Tensor):
    pass


@pytest.fixture(params=["file_descriptor", "file_system"])
def strategy(request):
    before = mp.get_sharing_strategy()
    mp.set_sharing_strategy(request.param)
    yield request.param
    mp.set_sharing_strategy(before)


@pytest.fixture(autouse=True)
def nothing_left_behind():
    yield
    gc.collect()
    assert shared_files() == []


def shared_files(pid=None):
    """The named blocks of this process, or of another."""
    return [name for name in os.listdir("/dev/shm") if name.startswith(f"flambeau-{pid or os.getpid()}-")]


def _serve(connection, function, args):
    try:
        answer = function(*args)
    except Exception as error:
        answer = error
    connection.send(answer)
    # What was sent belongs to this process until it has been taken.
    connection.recv()


def ask(function, *args, method="fork"):
    """What ``function(*args)`` returns or raises in another process."""
    context = mp.get_context(method)
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, function, args), daemon=True)
    process.start()
    theirs.close()
    try:
        assert ours.poll(SECONDS), "no answer"
        answer = ours.recv()
        ours.send(None)
        process.join(SECONDS)
    finally:
        process.kill()
        process.join()
        ours.close()
    if isinstance(answer, Exception):
        raise answer
    return answer


# What each process runs


def add_one(x):
    x += 1
    return x.is_shared()


def describe(x):
    return type(x).__name__, x.dtype, tuple(x.shape), x.stride(), x.storage_offset(), x.requires_grad, x.grad, x.tolist()


def write_through_one(x, views, storage):
    x[0, 0] = 7
    same = len({t.untyped_storage().data_ptr() for t in (x, *views)}) == 1 and storage.data_ptr() == x.data_ptr()
    return [view.tolist() for view in views], same


def make(n):
    return fb.arange(n) * 2.0


# Memory


def test_shared_memory_is_one_memory_for_every_tensor_over_it():
    x = fb.arange(6.0).reshape(2, 3)
    row, turned, of_view = x[1], x.t(), x.t().detach()[1:].detach()
    assert not row.is_shared()

    assert of_view.share_memory_() is of_view
    x[1, 1] = 9.0

    assert all(t.is_shared() for t in (x, row, turned, of_view))
    assert row.tolist() == [3.0, 9.0, 5.0]
    assert of_view[0, 1].item() == 9.0
    assert not (x + 1).is_shared()
    assert not x.clone().is_shared()


@pytest.mark.oracle
def test_what_is_shared_agrees_with_pytorch(oracle):
    def facts(framework):
        empty, x = framework.empty(0), framework.arange(6.0)
        layer = framework.nn.Linear(2, 2)
        layer.weight.grad = framework.ones(2, 2)
        layer.share_memory()
        return [
            empty.is_shared(), empty.share_memory_().is_shared(), x.data_ptr() == x.share_memory_().data_ptr(), x[1:].is_shared(),
            x.data_ptr() == x.share_memory_().data_ptr(), x.untyped_storage().filename, framework.empty(2, device="meta").is_shared(),
            layer.weight.is_shared(), layer.bias.is_shared(), layer.weight.grad.is_shared(), x.untyped_storage().is_shared(),
            framework.UntypedStorage(4).share_memory_().is_shared(), framework.UntypedStorage._new_shared(4).is_shared(),
            sorted(framework.multiprocessing.get_all_sharing_strategies()), framework.multiprocessing.get_sharing_strategy(),
        ]  # fmt: skip

    assert facts(fb) == facts(oracle)


def test_shared_storages_keep_their_size():
    x = fb.arange(4.0).share_memory_()

    with pytest.raises(RuntimeError, match="keep their size, which is 16 bytes; got 80"):
        x.resize_(20)
    assert x.resize_(2).tolist() == [0.0, 1.0]
    assert not x.untyped_storage().resizable()
    with pytest.raises(RuntimeError, match="only available on CPU"):
        fb.empty(2, device="meta").share_memory_()


def test_descriptors_and_memory_are_given_back():
    opened = len(os.listdir("/proc/self/fd"))
    kept = [fb.ones(10).share_memory_() for _ in range(20)]
    assert len(os.listdir("/proc/self/fd")) == opened + 20
    del kept
    gc.collect()

    assert len(os.listdir("/proc/self/fd")) == opened


def test_files_with_a_name_cost_no_descriptor_and_go_with_the_last_tensor():
    mp.set_sharing_strategy("file_system")
    try:
        opened = len(os.listdir("/proc/self/fd"))
        kept = [fb.ones(10).share_memory_() for _ in range(20)]
    finally:
        mp.set_sharing_strategy("file_descriptor")
    assert len(os.listdir("/proc/self/fd")) == opened
    assert len(shared_files()) == 20
    part = kept[0][3:]
    del kept
    gc.collect()

    assert len(shared_files()) == 1
    assert part.tolist() == [1.0] * 7


def test_strategies_are_known_by_name():
    with pytest.raises(AssertionError, match=r"'file_descriptor', 'file_system'.*got 'files'"):
        mp.set_sharing_strategy("files")


# The trip


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_both_sides_write_to_one_memory(strategy, method):
    x = fb.zeros(3)
    x.share_memory_()
    if method == "spawn":
        assert ask(add_one, x, method="spawn")
    else:
        ask(add_one, x)
        requests, answers = mp.SimpleQueue(), mp.SimpleQueue()
        process = mp.Process(target=_echo, args=(requests, answers), daemon=True)
        process.start()
        requests.put(x)
        back = answers.get()
        requests.put(None)
        process.join(SECONDS)
        assert back.data_ptr() == x.data_ptr(), "it was here already"
        x -= 1

    assert x.tolist() == [1.0] * 3


def _echo(requests, answers):
    while (x := requests.get()) is not None:
        add_one(x)
        answers.put(x)


def test_what_another_process_made_arrives(strategy):
    made = ask(make, 4)

    assert made.tolist() == [0.0, 2.0, 4.0, 6.0]
    assert made.is_shared()
    made += 1


def test_views_of_one_storage_stay_views_of_one_storage(strategy):
    x = fb.arange(6.0).reshape(2, 3)
    seen, same = ask(write_through_one, x, [x[0], x.t()], x.untyped_storage(), method="spawn")

    assert same
    assert seen == [[7.0, 1.0, 2.0], [[7.0, 3.0], [1.0, 4.0], [2.0, 5.0]]]
    assert x[0, 0].item() == 7.0


@pytest.mark.parametrize(
    "make_tensor",
    [
        lambda f: f.arange(6.0).reshape(2, 3).t()[1:],
        lambda f: f.ones(1).expand(3),
        lambda f: f.tensor(True),
        lambda f: f.tensor([1.5, 2.0], dtype=f.bfloat16),
        lambda f: f.tensor([1j]),
        lambda f: f.empty(0, 3),
        lambda f: f.nn.Parameter(f.ones(2)),
        lambda f: f.nn.Parameter(f.ones(2), requires_grad=False),
        lambda f: f.ones(2, requires_grad=True),
        lambda f: (f.ones(2, requires_grad=True) * 2).detach(),
    ],
)
@pytest.mark.oracle
def test_kinds_of_tensor_arrive_as_pytorchs_do(oracle, make_tensor):
    arrived = []
    for framework in (fb, oracle):
        x = make_tensor(framework)
        if x.requires_grad:
            x.grad = framework.ones(2)
            x.note = "stays here"
        # Sent and received here: the way is the same.
        ours, theirs = framework.multiprocessing.Pipe()
        ours.send(x)
        back = theirs.recv()
        ours.close()
        theirs.close()
        kind, dtype, *rest = describe(back)
        arrived.append((kind, str(dtype).partition(".")[2], *rest, hasattr(back, "note")))

    assert arrived[0] == arrived[1]


def test_subclasses_meta_tensors_and_modules_arrive():
    tagged = fb.ones(2).as_subclass(Tagged)
    tagged.note = "sent"
    layer = fb.nn.Sequential(fb.nn.Linear(2, 3), fb.nn.BatchNorm1d(3))
    ours, theirs = mp.Pipe()
    ours.send((tagged, fb.empty(2, 3, device="meta"), layer))
    back, meta, module = theirs.recv()
    ours.close()
    theirs.close()

    assert (type(back), back.note, back.data_ptr()) == (Tagged, "sent", tagged.data_ptr())
    assert (meta.device.type, tuple(meta.shape)) == ("meta", (2, 3))
    assert module[0].weight.data_ptr() == layer[0].weight.data_ptr()
    assert isinstance(module[0].weight, fb.nn.Parameter)
    assert set(module.state_dict()) == set(layer.state_dict())


def test_history_does_not_cross():
    x = fb.ones(2, requires_grad=True) * 2
    ours, theirs = mp.Pipe()

    with pytest.raises(RuntimeError, match=r"shape \(2,\) has autograd history.*detach"):
        ours.send(x)
    with pytest.raises(RuntimeError, match="autograd history"):
        ours.send(x.as_subclass(Tagged))
    ours.close()
    theirs.close()


def test_pools_and_queues_carry_tensors():
    with mp.get_context("fork").Pool(2) as pool:
        made = pool.map(make, [1, 2, 3])
        assert [x.tolist() for x in made] == [[0.0], [0.0, 2.0], [0.0, 2.0, 4.0]]
        shared = fb.zeros(2).share_memory_()
        assert pool.apply(add_one, (shared,))
        pool.close()
        pool.join()

    assert shared.tolist() == [1.0, 1.0]


def _train(model, steps):
    optimizer = fb.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        (model(fb.ones(1, 2)) - 3).pow(2).sum().backward()
        optimizer.step()


def test_processes_train_one_model():
    model = fb.nn.Linear(2, 1)
    model.share_memory()
    processes = [mp.Process(target=_train, args=(model, 30), daemon=True) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(SECONDS)

    assert [process.exitcode for process in processes] == [0, 0]
    assert abs(model(fb.ones(1, 2)).item() - 3) < 0.05
    assert model.weight.grad is None


# Faults


def _leave(connection, x):
    connection.send(x)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_sender_that_ended_is_named():
    ours, theirs = mp.Pipe()
    process = mp.Process(target=_leave, args=(theirs, fb.ones(3)), daemon=True)
    process.start()
    process.join(SECONDS)

    with pytest.raises(ConnectionError, match="ended before it was received"):
        ours.recv()
    ours.close()
    theirs.close()


PROGRAM = """
import os, signal, sys, time
import flambeau as fb
import flambeau.multiprocessing as mp

def work(x, made):
    made.put(fb.ones(1000).share_memory_())
    x += 1
    time.sleep(60)

if __name__ == "__main__":
    mp.set_sharing_strategy(sys.argv[1])
    x, made = fb.zeros(1000).share_memory_(), mp.get_context("fork").SimpleQueue()
    worker = mp.get_context("fork").Process(target=work, args=(x, made))
    worker.start()
    y = made.get()
    print(os.getpid(), worker.pid, flush=True)
    time.sleep(60)
"""


def test_nothing_is_left_when_a_program_is_killed(strategy, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    program = subprocess.Popen(
        [sys.executable, script, strategy], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    pids = [int(pid) for pid in program.stdout.readline().split()]
    files = [name for pid in pids for name in shared_files(pid)]
    assert len(files) == (2 if strategy == "file_system" else 0)

    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    program.communicate(timeout=SECONDS)

    deadline = time.monotonic() + 10
    while any(shared_files(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [name for pid in pids for name in shared_files(pid)] == []


# Under the name of torch


def test_programs_of_pytorch_run(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent("""
        from flambeau import swap
        swap.install()
        import torch
        import torch.multiprocessing as mp
        from torch.multiprocessing.spawn import ProcessContext

        def work(rank, x):
            x[rank] = torch.tensor(float(rank + 1))

        if __name__ == "__main__":
            x = torch.zeros(2).share_memory_()
            mp.spawn(work, args=(x,), nprocs=2)
            print(torch.__version__, x.tolist(), issubclass(mp.SpawnContext, ProcessContext))
    """))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=SECONDS)

    assert (done.stdout, done.stderr) == ("2.7.0+flambeau [1.0, 2.0] True\n", "")
