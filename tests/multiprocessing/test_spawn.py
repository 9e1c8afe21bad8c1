"""Processes started and watched together."""

from __future__ import annotations

import inspect
import logging
import os
import pickle
import signal
import sys
import time

import pytest

import flambeau as fb
import flambeau.multiprocessing as mp

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks")

SECONDS = 60


def note(rank, seen):
    seen[rank] = rank + 1


def raise_on_one(rank):
    if rank == 1:
        raise ValueError("one is bad")
    time.sleep(SECONDS)


def leave_on_one(rank):
    if rank == 1:
        sys.exit(3)
    time.sleep(SECONDS)


def die_on_one(rank):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(SECONDS)


def die_after_a_while(rank, stubborn):
    if rank == 1:
        raise ValueError("x" * 3_000_000)
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(SECONDS)


def interrupt(rank):
    raise KeyboardInterrupt


def leave_quietly(rank):
    sys.exit(0)


def sleep_for_long(rank):
    time.sleep(SECONDS)


def forked(function, *args, **settings):
    return mp.start_processes(function, args, nprocs=2, start_method="fork", **settings)


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_every_process_gets_its_number(method):
    seen = fb.zeros(2).share_memory_()

    assert mp.start_processes(note, (seen,), nprocs=2, start_method=method) is None
    assert seen.tolist() == [1.0, 2.0]


def test_forkservers_may_start_in_parallel(monkeypatch):
    monkeypatch.setenv(mp.ENV_VAR_PARALLEL_START, "1")
    seen = fb.zeros(3).share_memory_()
    mp.start_processes(note, (seen,), nprocs=3, start_method="forkserver")

    assert seen.tolist() == [1.0, 2.0, 3.0]


def test_the_traceback_of_the_first_that_raised_comes_back(caplog):
    started = time.monotonic()
    with pytest.raises(mp.ProcessRaisedException, match=r"(?s)Process 1 terminated.*in raise_on_one.*one is bad") as caught:
        forked(raise_on_one)

    assert time.monotonic() - started < 10
    assert caught.value.error_index == 1
    assert gone(caught.value.error_pid)
    assert "SIGTERM" in caplog.text


@pytest.mark.parametrize(
    ("function", "said", "code", "name"),
    [
        (leave_on_one, "process 1 terminated with exit code 3", 3, None),
        (die_on_one, "process 1 terminated with signal SIGKILL", -9, "SIGKILL"),
    ],
)
def test_processes_that_end_without_an_exception_are_told(function, said, code, name):
    started = time.monotonic()
    with pytest.raises(mp.ProcessExitedException) as caught:
        forked(function)

    assert str(caught.value) == said
    assert (caught.value.exit_code, caught.value.signal_name) == (code, name)
    assert time.monotonic() - started < 10
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), again.args, again.exit_code) == (mp.ProcessExitedException, (said,), code)


def test_a_clean_end_is_none():
    assert forked(interrupt) is None
    assert forked(leave_quietly) is None
    assert mp.start_processes(leave_quietly, nprocs=0) is None


def test_contexts_are_joined_step_by_step():
    context = forked(sleep_for_long, join=False)

    assert type(context) is mp.ProcessContext
    assert context.pids() == [process.pid for process in context.processes]
    assert context.join(timeout=0.01) is False
    context.processes[0].kill()
    with pytest.raises(mp.ProcessExitedException, match="process 0 terminated with signal SIGKILL"):
        context.join()
    assert all(gone(pid) for pid in context.pids())


def test_stubborn_processes_are_killed(monkeypatch):
    monkeypatch.setattr(sys.modules["flambeau.multiprocessing.spawn"], "_PATIENCE", 0.2)
    context = forked(die_after_a_while, True, join=False)
    time.sleep(0.2)
    with pytest.raises(mp.ProcessRaisedException, match="xxxx") as caught:
        context.join(grace_period=0.1)

    # The end of the text is kept.
    assert len(caught.value.msg) < 1_100_000
    assert all(gone(pid) for pid in context.pids())


def test_spawn_spawns_whatever_it_is_told():
    seen = fb.zeros(1).share_memory_()
    with pytest.warns(FutureWarning, match="start_method='fork'"):
        context = mp.spawn(note, (seen,), join=False, start_method="fork")

    assert type(context.processes[0]).__name__ == "SpawnProcess"
    while not context.join(SECONDS):
        pass
    assert seen.tolist() == [1.0]


def test_functions_that_cannot_be_sent_start_nothing():
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        mp.spawn(lambda rank: None)


def _start_and_die(pids):
    context = mp.start_processes(sleep_for_long, nprocs=1, start_method="fork", join=False)
    pids[0] = context.pids()[0]
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells children of their parent's end")
def test_processes_end_with_a_parent_that_is_killed():
    pids = fb.zeros(1, dtype=fb.int64).share_memory_()
    parent = mp.get_context("fork").Process(target=_start_and_die, args=(pids,))
    parent.start()
    parent.join(SECONDS)
    deadline = time.monotonic() + 10
    while not gone(int(pids[0])) and time.monotonic() < deadline:
        time.sleep(0.02)

    assert pids[0] > 0
    assert gone(int(pids[0]))


@pytest.mark.oracle
def test_names_and_signatures_are_pytorchs(oracle):
    theirs = oracle.multiprocessing
    public = {name for name in dir(theirs) if not name.startswith("_")} - {"multiprocessing", "sys", "torch"}

    assert public <= set(dir(mp))
    for name in ("spawn", "start_processes", "set_sharing_strategy", "get_sharing_strategy", "ProcessContext", "SpawnContext"):
        assert list(inspect.signature(getattr(mp, name)).parameters) == list(inspect.signature(getattr(theirs, name)).parameters)
    assert logging.getLogger("flambeau.multiprocessing.spawn").level == logging.NOTSET
