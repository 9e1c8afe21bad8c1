"""Workers of one machine, their timers, events and numbers."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from flambeau.distributed.elastic import events, metrics, timer
from flambeau.distributed.elastic.events import Event, EventSource, NodeState, RdzvEvent
from flambeau.distributed.elastic.multiprocessing import (
    DefaultLogsSpecs,
    SignalException,
    Std,
    start_processes,
    to_map,
)
from flambeau.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure, record

# What workers run.


def double(x):
    return 2 * x


def rank_and_size():
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def say(word):
    print(word, os.environ["WORD"], flush=True)
    print("bad", word, file=sys.stderr, flush=True)
    return word


def fail_at(local_rank, which):
    if local_rank == which:
        raise ValueError("the loss is lost")
    time.sleep(60)


def big(count):
    return b"x" * count


def kill_itself():
    os.kill(os.getpid(), signal.SIGKILL)


def too_slow(queue):
    timer.configure(timer.LocalTimerClient(queue))
    with timer.expires(after=0.2):
        time.sleep(60)


def in_time(queue):
    timer.configure(timer.LocalTimerClient(queue))
    with timer.expires(after=30):
        pass


def too_slow_by_file(path):
    with timer.expires(after=0.2, client=timer.FileTimerClient(path, signal.SIGTERM)):
        time.sleep(60)


class Collected(metrics.MetricHandler):
    def __init__(self):
        self.found = []

    def emit(self, metric_data):
        self.found.append(metric_data)


# Events and numbers


def test_events_are_read_as_they_were_written():
    event = Event("started", EventSource.WORKER, 5, {"rank": 1, "why": None})
    met = RdzvEvent("met", "job", "two machines", "host", 7, NodeState.RUNNING, rank=1)

    assert Event.deserialize(str(event)) == event
    assert RdzvEvent.deserialize(met.serialize()) == met
    assert json.loads(event.serialize())["source"] == "WORKER"


def test_events_are_those_of_pytorch(oracle):
    from torch.distributed.elastic import events as theirs

    for ours, other in (
        (Event("a", EventSource.AGENT, 5, {"b": 1}), theirs.Event("a", theirs.EventSource.AGENT, 5, {"b": 1})),
        (
            RdzvEvent("a", "r", "m", "h", 1, NodeState.FAILED, rank=2),
            theirs.RdzvEvent("a", "r", "m", "h", 1, theirs.NodeState.FAILED, rank=2),
        ),
    ):
        assert ours.serialize() == other.serialize()


def test_an_unknown_destination_of_events_is_refused():
    with pytest.raises(KeyError, match="nowhere"):
        events.record(Event("a", EventSource.AGENT), "nowhere")


def test_numbers_go_to_the_handler_of_their_group():
    of_group, of_all = Collected(), Collected()
    metrics.configure(of_all)
    metrics.configure(of_group, "mine")
    try:
        metrics.put_metric("count", 3, "mine")
        metrics.publish_metric("other", "count", 4)

        @metrics.prof(group="mine")
        def fails():
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            fails()
    finally:
        metrics.configure(metrics.NullMetricHandler())
        metrics.configure(metrics.NullMetricHandler(), "mine")

    assert [(m.group_name, m.name, m.value) for m in of_all.found] == [("other", "count", 4)]
    assert (of_group.found[0].name, of_group.found[0].value) == ("count", 3)
    assert [m.name.rpartition("fails.")[2] for m in of_group.found[1:]] == ["failure", "duration.ms"]


def test_numbers_on_the_console_are_printed_as_by_pytorch(oracle, capsys):
    from torch.distributed.elastic import metrics as theirs

    for lib in (metrics, theirs):
        lib.api.ConsoleMetricHandler().emit(lib.api.MetricData(1.5, "group", "name", 3))
    ours, other = capsys.readouterr().out.splitlines()

    assert ours == other == "[1.5][group]: name=3"


# Timers


def test_a_process_that_takes_longer_than_it_said_is_killed():
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    server = timer.LocalTimerServer(queue, max_interval=0.05)
    server.start()
    try:
        slow, quick = (context.Process(target=fn, args=(queue,)) for fn in (too_slow, in_time))
        slow.start()
        quick.start()
        slow.join(30)
        quick.join(30)
    finally:
        server.stop()

    assert (slow.exitcode, quick.exitcode) == (-signal.SIGKILL, 0)


def test_a_process_is_ended_by_the_signal_it_chose_over_a_pipe(tmp_path):
    path, told = str(tmp_path / "timers"), []
    server = timer.FileTimerServer(path, "job", 0.05, log_event=lambda name, request: told.append(name))
    server.start()
    try:
        assert os.stat(path).st_mode & 0o777 == 0o600
        process = multiprocessing.get_context("spawn").Process(target=too_slow_by_file, args=(path,))
        process.start()
        process.join(30)
    finally:
        server.stop()

    assert process.exitcode == -signal.SIGTERM
    assert not os.path.exists(path)
    assert [told[0], *told[1:4], told[-1]] == [
        "watchdog started", "set timer", "timer expired", "kill worker process", "watchdog stopped",
    ]  # fmt: skip


def test_lines_that_are_no_requests_do_not_stop_a_timer_server(tmp_path):
    path = str(tmp_path / "timers")
    server = timer.FileTimerServer(path, "job", 0.05)
    server.start()
    try:
        with open(path, "wb") as pipe:
            pipe.write(b"\xff\xfe\n{}\n[1]\n" + timer.FileTimerRequest(1, "scope", 1e12, 9).to_json().encode() + b"\n")
        end = time.monotonic() + 10
        while not server.get_expired_timers(1e12) and time.monotonic() < end:
            time.sleep(0.01)
        assert server.get_expired_timers(1e12) == {1: [timer.FileTimerRequest(1, "scope", 1e12, 9)]}
    finally:
        server.stop()


def test_timers_without_a_server_say_so(tmp_path):
    with pytest.raises(RuntimeError, match="Configure timer client"), timer.expires(after=1):
        pass
    client = timer.FileTimerClient(str(tmp_path / "none"))
    with pytest.raises(BrokenPipeError, match="FileTimerServer is not available"):
        client.acquire("scope", 1.0)


# Workers


def envs(count, **more):
    return {rank: {"RANK": str(rank), "WORLD_SIZE": str(count), **more} for rank in range(count)}


def run(tmp_path, entrypoint, args, environment=None, method="spawn", **specs):
    given = dict(enumerate(args))
    logs = DefaultLogsSpecs(str(tmp_path / "logs"), **specs)
    context = start_processes("worker", entrypoint, given, environment or envs(len(args)), logs, start_method=method)
    try:
        return context.wait(60), context
    finally:
        context.close()


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_functions_return_their_values(tmp_path, method):
    result, _ = run(tmp_path, double, [(2,), ("a",)], method=method)

    assert not result.is_failed()
    assert result.return_values == {0: 4, 1: "aa"}


def test_functions_find_their_environment(tmp_path):
    result, _ = run(tmp_path, rank_and_size, [(), ()])

    assert result.return_values == {0: (0, 2), 1: (1, 2)}


def test_values_larger_than_a_pipe_arrive(tmp_path):
    result, _ = run(tmp_path, big, [(3_000_000,)])

    assert len(result.return_values[0]) == 3_000_000


def test_output_goes_to_files_and_is_shown(tmp_path, capfd):
    result, _ = run(
        tmp_path, say, [("one",), ("two",)], envs(2, WORD="x"), redirects=Std.ERR, tee={0: Std.OUT}
    )

    read = {name: Path(path).read_text() for name, path in (("out", result.stdouts[0]), ("err", result.stderrs[1]))}
    out, err = capfd.readouterr()
    assert read == {"out": "one x\n", "err": "bad two\n"}
    assert sorted(out.splitlines()) == ["[worker0]:one x", "two x"]
    assert result.stdouts[1] == ""
    assert "bad" not in err


def test_the_first_failure_ends_the_others_and_is_told(tmp_path):
    begin = time.monotonic()
    result, context = run(tmp_path, fail_at, [(0, 1), (1, 1)])

    assert time.monotonic() - begin < 30
    assert list(result.failures) == [1]
    assert result.failures[1].message["message"] == "ValueError: the loss is lost"
    assert "fail_at" in result.failures[1].message["extraInfo"]["py_callstack"]
    with pytest.raises(ProcessLookupError):
        os.kill(context.pids()[0], 0)


def test_a_worker_that_was_killed_is_told_with_its_signal(tmp_path):
    result, _ = run(tmp_path, kill_itself, [()])

    assert result.failures[0].signal_name() == "SIGKILL"
    assert "Signal 9 (SIGKILL)" in result.failures[0].message


def test_programs_are_workers_too(tmp_path):
    result, _ = run(tmp_path, "/bin/sh", [("-c", "echo $RANK"), ("-c", "exit 3")], redirects=Std.OUT)

    assert list(result.failures) == [1]
    assert result.failures[1].exitcode == 3
    assert Path(result.stdouts[0]).read_text() == "0\n"


def test_waiting_for_workers_that_run_on_ends_in_time(tmp_path):
    logs = DefaultLogsSpecs(str(tmp_path))
    context = start_processes("worker", "/bin/sleep", {0: ("60",)}, {0: {}}, logs)
    try:
        begin = time.monotonic()
        assert context.wait(0) is None
        assert context.wait(0.1, 0.05) is None
        assert time.monotonic() - begin < 5
    finally:
        context.close()
    with pytest.raises(ProcessLookupError):
        os.kill(context.pids()[0], 0)


def test_a_signal_raises_while_workers_run_and_handlers_come_back(tmp_path):
    before = signal.getsignal(signal.SIGHUP)
    context = start_processes("worker", "/bin/sleep", {0: ("60",)}, {0: {}}, DefaultLogsSpecs(str(tmp_path)))
    try:
        with pytest.raises(SignalException) as caught:
            os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGHUP)  # the second one is ignored while workers are ended
    finally:
        context.close()

    assert caught.value.sigval == signal.SIGHUP
    assert signal.getsignal(signal.SIGHUP) is before


def test_ranks_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(RuntimeError, match="envs, local rank mapping mismatch"):
        start_processes("worker", "/bin/true", {0: ()}, {1: {}}, DefaultLogsSpecs(str(tmp_path)))
    with pytest.raises(ValueError, match="none"):
        start_processes("worker", double, {0: (1,)}, {0: {}}, DefaultLogsSpecs(str(tmp_path)), start_method="none")


@pytest.mark.parametrize("text", ["0", "1", "2", "3", "0:1,1:2", "0:3", "4", "x", "0:9", "", "0=1"])
def test_streams_are_read_from_a_command_line_as_by_pytorch(text, oracle):
    from torch.distributed.elastic.multiprocessing import Std as Theirs

    try:
        expected = Theirs.from_str(text)
    except ValueError:
        with pytest.raises(ValueError, match="must be a number from 0 to 3"):
            Std.from_str(text)
        return
    assert Std.from_str(text) == expected


def test_each_worker_has_its_streams():
    assert to_map(Std.OUT, 2) == {0: Std.OUT, 1: Std.OUT}
    assert to_map({1: Std.ALL}, 2) == {0: Std.NONE, 1: Std.ALL}


# Errors


def test_the_failure_that_came_first_is_on_top(tmp_path):
    paths = {}
    for rank, when in ((0, 20), (1, 10)):
        paths[rank] = str(tmp_path / f"{rank}.json")
        text = {"message": {"message": f"error of {rank}", "extraInfo": {"timestamp": str(when)}}}
        (tmp_path / f"{rank}.json").write_text(json.dumps(text))
    error = ChildFailedError("train.py", {rank: ProcessFailure(rank, 7, 1, path) for rank, path in paths.items()})

    assert error.get_first_failure()[0] == 1
    assert str(error).index("error of 1") < str(error).index("error of 0")


def test_an_error_of_a_worker_is_handed_to_the_launcher_above(tmp_path, monkeypatch):
    inner, outer = tmp_path / "inner.json", tmp_path / "outer.json"
    inner.write_text(json.dumps({"message": {"message": "ValueError: lost", "extraInfo": {"timestamp": "5"}}}))
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(outer))

    @record
    def launch():
        raise ChildFailedError("train.py", {0: ProcessFailure(0, 7, 1, str(inner))})

    with pytest.raises(ChildFailedError):
        launch()

    assert ProcessFailure(0, 8, 1, str(outer)).message["message"] == "ValueError: lost"
