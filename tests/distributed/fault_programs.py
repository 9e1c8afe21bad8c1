"""What the ranks of `test_faults.py` run. Each prints what it was told, and how long that took."""

from __future__ import annotations

import json
import os
import signal
import time
from datetime import timedelta

import flambeau as fb
import flambeau.distributed as dist
from flambeau.distributed.checkpoint import CheckpointException

RANK = int(os.environ.get("RANK", "0"))


def told(call, seconds):
    """Run `call`, which must raise within `seconds`; the message."""
    begin = time.monotonic()
    try:
        call()
    except (RuntimeError, CheckpointException) as error:
        taken = time.monotonic() - begin
        assert taken < seconds, f"{taken:.1f} s: {error}"
        print(f"rank {RANK} was told after {taken:.3f} s")
        return str(error)
    raise AssertionError("nothing was raised")


def mismatches():
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    size = dist.get_world_size()
    large = fb.ones(50_000 + (RANK == 1))             # compiles a kernel, for which the ranks take different times
    dist.barrier()
    text = told(lambda: dist.all_reduce(fb.ones(2 + (RANK == 1))), 2)
    assert "all_reduce" in text and "(3,)" in text and "(2,)" in text and "fault_programs.py" in text and "rank 1" in text, (
        text
    )
    text = told(lambda: dist.all_reduce(large), 2)
    assert "(50001,)" in text, text
    text = told(lambda: dist.all_reduce(fb.ones(2, dtype=fb.float64 if RANK == 0 else fb.float32)), 2)
    assert "float64" in text and "float32" in text, text
    text = told(lambda: dist.barrier() if size - 1 == RANK else dist.all_reduce(fb.ones(2)), 2)
    assert "barrier" in text and "all_reduce" in text, text
    text = told(lambda: dist.all_reduce(fb.ones(2), dist.ReduceOp.MAX if RANK else dist.ReduceOp.SUM), 2)
    assert "MAX" in text and "SUM" in text, text
    text = told(lambda: dist.broadcast(fb.ones(2), src=RANK % 2), 2)
    assert "from 0" in text and "from 1" in text, text
    text = told(lambda: dist.all_gather([fb.zeros(2)] * size, fb.ones(2 + RANK)), 2)
    assert "room for" in text, text
    splits = [1] * size
    text = told(lambda: dist.all_to_all_single(fb.zeros(size), fb.ones(size + RANK), splits, [1 + RANK, *splits[1:]]), 2)
    assert "room for" in text, text
    work = dist.all_reduce(fb.ones(1 + RANK), async_op=True)
    text = told(work.wait, 2)
    assert "(1,)" in text, text
    if RANK == 0:
        dist.send(fb.ones(3), 1)
    if RANK == 1:
        text = told(lambda: dist.recv(fb.ones(4), 0), 2)
        assert "(3,)" in text and "(4,)" in text, text
    # The group goes on.
    x = fb.ones(70_000)
    dist.all_reduce(x)
    assert x[0] == size
    assert dist.ledger()[-1]["state"] == "completed"
    assert sum(entry["state"] == "failed" for entry in dist.ledger()) >= 9
    dist.destroy_process_group()


def died():
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    large = fb.ones(100_000)                          # compiles a kernel
    dist.barrier()
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    text = told(lambda: [dist.all_reduce(large) for _ in range(3)], 5)
    assert "rank 1" in text and "gone" in text and "fault_programs.py" in text, text
    text = told(lambda: dist.recv(fb.ones(1), 1), 5)
    assert "rank 1" in text, text


def raising():
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    dist.barrier()
    if RANK == 1:
        raise ValueError("a mistake in the program")
    text = told(lambda: [dist.all_reduce(fb.ones(100_000)) for _ in range(3)], 5)
    assert "rank 1" in text and "gone" in text and "fault_programs.py" in text, text


def wrong_order():
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    dist.barrier()
    first, second = fb.ones(3), fb.ones(5)
    calls = [first, second] if RANK else [second, first]
    for _ in range(2):                                 # both calls of both ranks, and neither waits for the other
        text = told(lambda: dist.all_reduce(calls.pop()), 2)
        assert "(3,)" in text and "(5,)" in text and "rank 0" in text and "rank 1" in text, text
    dist.barrier()
    dist.destroy_process_group()


def key_missing():
    if RANK == 1:
        del os.environ["FLAMBEAU_JOB_KEY"]
        os.environ["XDG_RUNTIME_DIR"] = os.environ["FOLDER"]
    text = told(lambda: dist.init_process_group("gloo", timeout=timedelta(seconds=3)), 8)
    assert "job key" in text or "joined" in text, text
    if RANK:
        assert "job key" in text and "FLAMBEAU_JOB_KEY" in text, text


def disk_full():
    """A file of rank 1 cannot grow: both learn it, and the checkpoint before is whole."""
    import resource

    import flambeau.distributed.checkpoint as dcp

    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    folder = os.path.join(os.environ["FOLDER"], "checkpoint")
    dcp.save({f"x{RANK}": fb.full((1000,), 1.0)}, checkpoint_id=folder)
    before = sorted(os.listdir(folder))
    if RANK == 1:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    text = told(lambda: dcp.save({f"x{RANK}": fb.full((1_000_000,), 2.0)}, checkpoint_id=folder), 10)
    assert "RANK 1" in text and "File too large" in text, text
    if RANK == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    dist.barrier()
    assert sorted(os.listdir(folder)) == before, (before, os.listdir(folder))
    state = {"x0": fb.zeros(1000), "x1": fb.zeros(1000)}
    dcp.load(state, checkpoint_id=folder)
    assert state["x0"].eq(1).all() and state["x1"].eq(1).all()
    dist.destroy_process_group()


def late():
    dist.init_process_group("gloo", timeout=timedelta(seconds=1))
    dist.barrier()
    if RANK == 1:
        time.sleep(2.2)
        return
    text = told(lambda: dist.all_reduce(fb.ones(3)), 4)
    assert "rank 1 did not come" in text and "timeout" in text and "barrier" in text, text
    text = told(lambda: dist.monitored_barrier(timeout=timedelta(seconds=0.3)), 2)
    assert "monitoredBarrier" in text and "rank 1" in text, text


def recorded():
    """The calls of a rank are in a file when one has failed."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    for _ in range(5):
        dist.barrier()
    told(lambda: dist.all_reduce(fb.ones(2 + RANK)), 5)
    with open(f"{os.environ['TORCH_FR_DUMP_TEMP_FILE']}{RANK}") as file:
        found = json.load(file)
    assert found["rank"] == RANK
    assert [(entry["op"], entry["state"]) for entry in found["entries"]] == [
        ("barrier", "completed"), ("barrier", "completed"), ("all_reduce", "failed")
    ], found  # fmt: skip
    dist.destroy_process_group()


def too_late():
    """Rank 1 comes to a call that rank 0 has given up, twice over."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=0.5))
    dist.barrier()
    if RANK == 1:
        time.sleep(2.5)
        text = told(lambda: dist.all_reduce(fb.ones(3)), 1)
        assert "rank 0 has given this call up and gone on to call 4" in text, text
        return
    for _ in range(3):
        told(lambda: dist.all_reduce(fb.ones(3)), 2)
    time.sleep(2)


def left():
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    dist.barrier()
    if RANK == 1:
        dist.destroy_process_group()
        return
    text = told(lambda: dist.all_reduce(fb.ones(3)), 3)
    assert "rank 1 has left" in text, text


def stopped():
    dist.init_process_group("gloo", timeout=timedelta(seconds=1.5))
    others = [None] * dist.get_world_size()
    dist.all_gather_object(others, os.getpid())
    if RANK == 1:
        time.sleep(2.5)
        return
    os.kill(others[1], signal.SIGSTOP)
    try:
        text = told(lambda: dist.all_reduce(fb.ones(3)), 3)
    finally:
        os.kill(others[1], signal.SIGCONT)
    assert "stopped" in text and "rank 1" in text, text


def store_killed():
    folder = os.environ["FOLDER"]
    if RANK == 0:
        store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), None, True)
        while not os.path.exists(f"{folder}/connected"):
            time.sleep(0.01)
        assert store.get("there") == b"1"
        os.kill(os.getpid(), signal.SIGKILL)
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), None, False)
    store.set("there", "1")
    open(f"{folder}/connected", "w").close()
    text = told(lambda: store.get("never"), 10)
    assert "is gone" in text and os.environ["MASTER_PORT"] in text, text


def wrong_key():
    os.environ["FLAMBEAU_JOB_KEY"] = f"the key of rank {RANK}, no other has it"
    text = told(lambda: dist.init_process_group("gloo", timeout=timedelta(seconds=3)), 8)
    assert "job key" in text or "joined" in text, text
    if RANK:
        assert "job key" in text, text


def missing():
    if RANK == 1:
        return
    text = told(lambda: dist.init_process_group("gloo", timeout=timedelta(seconds=1)), 4)
    assert "1 of 2" in text, text
