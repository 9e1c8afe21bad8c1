"""Machines meet: rounds, late ones, dead ones, the end of a job, and agents on top. A machine is a thread here."""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from flambeau.distributed import FileStore, HashStore, TCPStore
from flambeau.distributed.elastic.agent.server import (
    SimpleElasticAgent,
    Worker,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from flambeau.distributed.elastic.agent.server.api import RunResult
from flambeau.distributed.elastic.agent.server.health_check_server import create_healthcheck_server
from flambeau.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from flambeau.distributed.elastic.control_plane import worker_main
from flambeau.distributed.elastic.multiprocessing import DefaultLogsSpecs
from flambeau.distributed.elastic.multiprocessing.errors import ChildFailedError
from flambeau.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousGracefulExitError,
    RendezvousHandlerRegistry,
    RendezvousParameters,
    RendezvousStateError,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)
from flambeau.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from flambeau.distributed.elastic.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler,
    RendezvousTimeout,
)
from flambeau.distributed.elastic.rendezvous.registry import get_rendezvous_handler
from flambeau.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from flambeau.distributed.elastic.utils import macros
from flambeau.distributed.elastic.utils.store import barrier, synchronize
from flambeau.distributed.launcher import LaunchConfig, elastic_launch

LIMIT = 60  # seconds; only a real hang takes so long


def machine(store, least=2, most=2, join=LIMIT, last_call=0.3, beat=0.1, attempts=30):
    timeout = RendezvousTimeout(timedelta(seconds=join), timedelta(seconds=last_call))
    backend = C10dRendezvousBackend(store, "job")
    return DynamicRendezvousHandler.from_backend("job", store, backend, least, most, "localhost", timeout, beat, attempts)


@pytest.fixture
def at_once():
    """Run functions at the same time; `at_once(f)` answers a future."""
    with ThreadPoolExecutor(8) as pool:
        yield pool.submit


@pytest.fixture
def store():
    return HashStore()


@pytest.fixture
def machines(store):
    made = []

    def make(**options):
        made.append(machine(store, **options))
        return made[-1]

    yield make
    for one in made:
        one.shutdown()


def waiting(handler, count):
    end = time.monotonic() + LIMIT
    while handler.num_nodes_waiting() != count and time.monotonic() < end:
        time.sleep(0.01)
    return handler.num_nodes_waiting()


# Meeting


def test_machines_get_different_ranks_and_one_store(machines, at_once):
    found = [f.result(LIMIT) for f in [at_once(machines(least=3, most=3).next_rendezvous) for _ in range(3)]]

    assert sorted(info.rank for info in found) == [0, 1, 2]
    assert {info.world_size for info in found} == {3}
    found[0].store.set("word", "told")
    assert found[2].store.get("word") == b"told"
    addresses = {(info.bootstrap_store_info.master_addr, info.bootstrap_store_info.master_port) for info in found}
    assert len(addresses) == 1


@pytest.mark.parametrize("kind", ["file", "tcp"])
def test_machines_meet_in_any_store(kind, tmp_path, monkeypatch, at_once):
    monkeypatch.setenv("FLAMBEAU_JOB_KEY", "k" * 32)
    if kind == "file":
        stores = [FileStore(str(tmp_path / "store")) for _ in range(2)]
    else:
        server = TCPStore("127.0.0.1", 0, None, True)
        stores = [server, server.clone()]
    handlers = [machine(store) for store in stores]

    found = [f.result(LIMIT) for f in [at_once(handler.next_rendezvous) for handler in handlers]]

    assert sorted(info.rank for info in found) == [0, 1]
    assert [handler.use_agent_store for handler in handlers] == [kind == "tcp"] * 2
    for handler in reversed(handlers):
        assert handler.shutdown()


def test_enough_machines_wait_for_more_and_then_begin(machines):
    begin = time.monotonic()
    info = machines(least=1, most=2, last_call=0.3).next_rendezvous()

    assert (info.rank, info.world_size) == (0, 1)
    assert time.monotonic() - begin >= 0.3


def test_a_late_machine_is_counted_and_takes_part_in_the_next_round(machines, at_once):
    first, late = (machines(least=1, most=2) for _ in range(2))
    old = first.next_rendezvous()
    assert first.num_nodes_waiting() == 0
    coming = at_once(late.next_rendezvous)
    assert waiting(first, 1) == 1

    again = first.next_rendezvous()

    assert again.world_size == coming.result(LIMIT).world_size == 2
    assert {again.rank, coming.result().rank} == {0, 1}
    old.store.set("key", "of the old round")
    assert not again.store.check(["key"])


def test_a_machine_too_many_waits_until_there_is_a_place(machines, at_once):
    first, spare = (machines(least=1, most=1) for _ in range(2))
    first.next_rendezvous()
    coming = at_once(spare.next_rendezvous)
    time.sleep(0.3)
    assert (first.num_nodes_waiting(), coming.done()) == (0, False)

    first.leave()

    assert coming.result(LIMIT).rank == 0


def test_a_machine_whose_heart_stopped_is_taken_out(machines, at_once):
    alive, dead = (machines(least=1, most=2, attempts=10) for _ in range(2))
    for f in [at_once(alive.next_rendezvous), at_once(dead.next_rendezvous)]:
        assert f.result(LIMIT).world_size == 2
    dead._stop_heartbeats()  # as if it were killed: it says nothing

    info = alive.next_rendezvous()

    assert (info.rank, info.world_size) == (0, 1)


def test_a_machine_that_was_taken_for_dead_meets_the_others_again(machines, at_once):
    alive, paused = (machines(least=1, most=2, attempts=10) for _ in range(2))
    for f in [at_once(alive.next_rendezvous), at_once(paused.next_rendezvous)]:
        f.result(LIMIT)
    paused._stop_heartbeats()
    end = time.monotonic() + LIMIT
    while len(alive._read()[0].members) > 1 and time.monotonic() < end:
        time.sleep(0.02)
    coming = at_once(paused.next_rendezvous)
    assert waiting(alive, 1) == 1

    assert alive.next_rendezvous().world_size == coming.result(LIMIT).world_size == 2


def test_too_few_machines_raise_and_leave_nothing(machines):
    lonely = machines(least=2, most=2, join=0.3)
    with pytest.raises(RendezvousTimeoutError, match=r"1 machines within 0.3 s, 2 are the least"):
        lonely.next_rendezvous()

    assert lonely._read()[0].members == []


def test_nobody_meets_when_the_job_has_ended(machines, at_once):
    first, spare, late = (machines(least=1, most=1) for _ in range(3))
    first.next_rendezvous()
    coming = at_once(spare.next_rendezvous)
    time.sleep(0.3)
    assert not first.is_closed()
    assert first.shutdown()

    with pytest.raises(RendezvousGracefulExitError):
        coming.result(LIMIT)
    with pytest.raises(RendezvousClosedError, match="'job' is closed"):
        late.next_rendezvous()


def test_a_state_that_is_none_is_refused(store, machines):
    store.set("rendezvous/job/state", '{"round": "one"}')
    with pytest.raises(RendezvousStateError, match="no state of a rendezvous"):
        machines().next_rendezvous()
    store.set("rendezvous/job/state", machines()._node)
    with pytest.raises(RendezvousStateError):
        machines().is_closed()
    store.delete_key("rendezvous/job/state")


def test_a_store_that_is_gone_is_told(monkeypatch):
    monkeypatch.setenv("FLAMBEAU_JOB_KEY", "k" * 32)
    server = TCPStore("127.0.0.1", 0, None, True)
    handler = machine(server.clone(), least=1, most=1)
    handler.next_rendezvous()
    server.close()

    with pytest.raises(RendezvousConnectionError, match="is gone"):
        handler.num_nodes_waiting()
    assert not handler.shutdown()


def test_many_machines_that_come_and_go_always_agree(store, at_once):
    handlers = [machine(store, least=2, most=3, last_call=0.05) for _ in range(5)]
    found, lock = {}, threading.Lock()

    def live(handler):
        for _ in range(4):
            info = handler.next_rendezvous()
            with lock:
                found.setdefault(info.store._prefix, []).append((info.rank, info.world_size))
        handler.leave()

    running = [at_once(live, handler) for handler in handlers]
    end = time.monotonic() + LIMIT
    while sum(future.done() for future in running) < 4 and time.monotonic() < end:
        time.sleep(0.05)
    handlers[0].set_closed()  # the last one finds no other
    for future in running:
        if future.exception(LIMIT) is not None:
            assert isinstance(future.exception(), RendezvousClosedError | RendezvousGracefulExitError)

    errors = sum(future.exception() is not None for future in running)
    assert errors <= 1
    missing = 0
    for ranks in found.values():
        size = ranks[0][1]
        assert 2 <= size <= 3
        assert len(set(ranks)) == len(ranks)
        assert set(ranks) <= {(rank, size) for rank in range(size)}
        missing += size - len(ranks)
    # One that finds the job ended may have been in a round that it had not yet seen complete.
    assert missing <= errors


# Parameters, kinds, addresses


def test_options_are_read_as_by_pytorch(oracle):
    from torch.distributed.elastic.rendezvous import RendezvousParameters as Theirs

    options = {"a": "1", "b": "no", "c": "x", "d": 3, "e": True, "f": "T", "g": "yes", "h": "0", "i": " 1 "}
    ours, theirs = (kind("b", "e", "i", 1, 2, **options) for kind in (RendezvousParameters, Theirs))
    for name in [*options, "none"]:
        for method in ("get", "get_as_bool", "get_as_int"):
            try:
                expected = getattr(theirs, method)(name)
            except ValueError:
                with pytest.raises(ValueError, match=f"'{name}'"):
                    getattr(ours, method)(name)
                continue
            assert getattr(ours, method)(name) == expected, (name, method)


@pytest.mark.parametrize(("backend", "least", "most"), [("", 1, 1), ("b", 0, 1), ("b", 2, 1)])
def test_parameters_that_do_not_fit_are_refused(backend, least, most):
    with pytest.raises(ValueError, match="must be"):
        RendezvousParameters(backend, "e", "i", least, most)


@pytest.mark.parametrize(
    "text", ["", None, "h", "h:1", "h:99999", ":5", "h:x", "[::1]:4", "http://h:3", "h:0", "10.0.0.1:7", "h:", "[::1]"]
)
def test_endpoints_are_read_as_by_pytorch(text, oracle):
    from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint as theirs

    try:
        expected = theirs(text, 29)
    except ValueError:
        with pytest.raises(ValueError, match="rendezvous endpoint"):
            parse_rendezvous_endpoint(text, 29)
        return
    assert parse_rendezvous_endpoint(text, 29) == expected


def test_times_of_a_rendezvous_are_those_of_pytorch(oracle):
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousTimeout as Theirs

    for name in ("join", "last_call", "close", "heartbeat"):
        assert getattr(RendezvousTimeout(), name) == getattr(Theirs(), name)
        with pytest.raises(ValueError, match=f"{name} timeout"):
            RendezvousTimeout(**{name: timedelta(0)})


def test_a_kind_of_rendezvous_has_one_maker(machines):
    registry = RendezvousHandlerRegistry()
    registry.register("c10d", lambda params: machines())
    assert registry.create_handler(RendezvousParameters("c10d", "", "job", 1, 1)).get_backend() == "c10d"
    registry.register("other", lambda params: machines())

    with pytest.raises(ValueError, match="already registered"):
        registry.register("c10d", lambda params: machines())
    with pytest.raises(ValueError, match="'none' is not registered"):
        registry.create_handler(RendezvousParameters("none", "", "job", 1, 1))
    with pytest.raises(RuntimeError, match="'c10d' does not match the requested backend 'other'"):
        registry.create_handler(RendezvousParameters("other", "", "job", 1, 1))


def test_machines_with_given_ranks_share_a_store(monkeypatch):
    monkeypatch.setenv("FLAMBEAU_JOB_KEY", "k" * 32)
    handler = get_rendezvous_handler(RendezvousParameters("static", "127.0.0.1:0", "job", 1, 1, rank=0))
    first, second = handler.next_rendezvous(), handler.next_rendezvous()
    first.store.set("key", "1")

    assert (first.rank, first.world_size, handler.use_agent_store) == (0, 1, True)
    assert not second.store.check(["key"])
    assert handler.shutdown()


@pytest.mark.parametrize(
    ("endpoint", "most", "options", "message"),
    [("h:1", 1, {}, "rank is absent"), ("h", 1, {"rank": 0}, "port is absent"), ("h:1", 2, {"rank": 0}, "changes"),
     ("h:1", 1, {"rank": 1}, "rank 1 of 1")],
)  # fmt: skip
def test_given_ranks_that_do_not_fit_are_refused(endpoint, most, options, message):
    with pytest.raises(ValueError, match=message):
        get_rendezvous_handler(RendezvousParameters("static", endpoint, "job", 1, most, **options))


def test_the_address_of_a_store_is_that_of_rank_0(store):
    there = RendezvousStoreInfo.build(0, store, "10.0.0.1", 77)

    assert RendezvousStoreInfo.build(1, store, "10.0.0.2") == there == RendezvousStoreInfo("10.0.0.1", 77)


# Stores between agents


def test_all_ranks_get_what_all_said(store, at_once):
    running = [at_once(synchronize, store, str(rank).encode(), rank, 3, "said/", LIMIT) for rank in range(3)]

    assert [f.result(LIMIT) for f in running] == [[b"0", b"1", b"2"]] * 3


def test_a_barrier_names_who_is_missing(store, at_once):
    for f in [at_once(barrier, store, 2, "one", LIMIT, rank) for rank in range(2)]:
        f.result(LIMIT)
    with pytest.raises(RuntimeError, match="ranks machine 1 of 2 did not come"):
        barrier(store, 2, "two", 0.1, 0, lambda rank: f"machine {rank}", 0.1)


def test_words_that_stand_for_the_rank_are_replaced_as_by_pytorch(oracle):
    from torch.distributed.elastic.utils import macros as theirs

    words = ["a${local_rank}", "$local_rank", "$x", 3]
    assert macros.substitute(words, "7") == theirs.substitute(words, "7")


# Agents


class Scripted(SimpleElasticAgent):
    """An agent whose workers are a list of states."""

    def __init__(self, spec, states):
        super().__init__(spec, exit_barrier_timeout=LIMIT)
        self.states, self.log = iter(states), []

    def _start_workers(self, worker_group):
        self.log.append("start")
        return {worker.local_rank: f"id{worker.local_rank}" for worker in worker_group.workers}

    def _stop_workers(self, worker_group):
        self.log.append("stop")

    def _monitor_workers(self, worker_group):
        return RunResult(next(self.states))

    def _shutdown(self, death_sig=15, timeout=30):
        self.log.append("shutdown")


def spec_of(handler, count=1, **options):
    return WorkerSpec("trainer", count, handler, entrypoint=len, monitor_interval=0.01, **options)


HEALTHY, FAILED, SUCCEEDED = WorkerState.HEALTHY, WorkerState.FAILED, WorkerState.SUCCEEDED


@pytest.mark.parametrize(
    ("states", "restarts", "log", "state"),
    [
        ([HEALTHY, SUCCEEDED], 0, ["start", "shutdown"], SUCCEEDED),
        ([FAILED, SUCCEEDED], 1, ["start", "stop", "start", "shutdown"], SUCCEEDED),
        ([WorkerState.UNHEALTHY, FAILED], 1, ["start", "stop", "start", "stop", "shutdown"], FAILED),
    ],
)
def test_workers_are_started_again_until_no_restart_is_left(machines, states, restarts, log, state):
    agent = Scripted(spec_of(machines(least=1, most=1), max_restarts=restarts), states)

    assert agent.run().state is state
    assert agent.log == log
    assert agent.get_worker_group().state is state


def test_an_agent_stops_at_a_state_that_it_does_not_know(machines):
    agent = Scripted(spec_of(machines(least=1, most=1)), [WorkerState.UNKNOWN])
    with pytest.raises(RuntimeError, match="are UNKNOWN"):
        agent.run()
    assert agent.log == ["start", "shutdown"]


def test_ranks_go_by_machine_and_by_role(machines, at_once):
    specs = [
        WorkerSpec(role, count, machines(least=3, most=3), entrypoint=len) for role, count in (("a", 2), ("b", 1), ("a", 3))
    ]
    agents = [Scripted(spec, []) for spec in specs]
    groups = [agent.get_worker_group() for agent in agents]
    for f in [at_once(agent._rendezvous, group) for agent, group in zip(agents, groups, strict=True)]:
        f.result(LIMIT)
    groups.sort(key=lambda group: group.group_rank)

    assert [worker.global_rank for group in groups for worker in group.workers] == list(range(6))
    for role, size in (("a", 5), ("b", 1)):
        workers = [worker for group in groups if group.spec.role == role for worker in group.workers]
        assert [worker.role_rank for worker in workers] == list(range(size))
        assert {(worker.role_world_size, worker.world_size) for worker in workers} == {(size, 6)}


def test_what_workers_are_is_checked(machines):
    handler = machines()
    for options in ({"count": 0}, {"entrypoint": None}, {"monitor_interval": 0}):
        given = {"entrypoint": len, "count": 1, "monitor_interval": 1, **options}
        with pytest.raises(AssertionError, match="WorkerSpec"):
            WorkerSpec("role", given.pop("count"), handler, **given)
    with pytest.raises(NotImplementedError, match="numa_options is not built"):
        spec_of(handler, numa_options=object())


def test_workers_print_as_by_pytorch(machines, oracle):
    from torch.distributed.elastic.agent.server import Worker as Theirs
    from torch.distributed.elastic.agent.server import WorkerState as TheirState

    assert str(Worker(1, 2, 3, 4, 5)) == str(Theirs(1, 2, 3, 4, 5))
    assert [str(worker) for worker in WorkerGroup(spec_of(machines(), 2)).workers] == [str(Theirs(0)), str(Theirs(1))]
    for state in WorkerState:
        assert WorkerState.is_running(state) == TheirState.is_running(TheirState[state.name])
        assert str(state) == str(TheirState[state.name])


def two(word):
    return word, os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["TORCHELASTIC_RESTART_COUNT"]


def once(folder):
    """Rank 0 fails at first."""
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "0":
        raise ValueError("the loss is lost")
    return os.environ["LOCAL_RANK"]


def test_agents_run_functions_and_return_their_values(machines, tmp_path):
    spec = WorkerSpec("trainer", 2, machines(least=1, most=1), entrypoint=two, args=("a${local_rank}",))
    result = LocalElasticAgent(spec, DefaultLogsSpecs(str(tmp_path)), exit_barrier_timeout=LIMIT).run()

    assert not result.is_failed()
    assert result.return_values == {0: ("a0", "0", "2", "0"), 1: ("a1", "1", "2", "0")}


def config(tmp_path, **options):
    logs = DefaultLogsSpecs(str(tmp_path))
    return LaunchConfig(
        1, 1, 1, logs, "job", rdzv_backend="c10d", rdzv_endpoint="127.0.0.1:0", monitor_interval=0.05, **options
    )


def test_a_launched_function_starts_again_or_raises_what_failed(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_JOB_KEY", "k" * 32)

    assert elastic_launch(config(tmp_path, max_restarts=1), once)(str(tmp_path)) == {0: "0"}
    with pytest.raises(ChildFailedError, match="ValueError: the loss is lost"):
        elastic_launch(config(tmp_path, max_restarts=0), once)(str(tmp_path))


def test_a_health_check_tells_an_agent_that_looks_from_one_that_does_not():
    looked = [time.time()]
    server = create_healthcheck_server(lambda: looked[0], 0, 5)
    server.start()
    try:
        url = f"http://127.0.0.1:{server.port}/"
        assert urllib.request.urlopen(url, timeout=LIMIT).status == 200
        looked[0] -= 60
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(url, timeout=LIMIT)
        caught.value.close()
        assert caught.value.code == 503
    finally:
        server.stop()


# Commands that workers answer


def ask(path, method, command):
    client = http.client.HTTPConnection("worker", timeout=LIMIT)
    with socket.socket(socket.AF_UNIX) as client.sock:
        client.sock.connect(path)
        client.request(method, f"/handler/{command}")
        answer = client.getresponse()
        return answer.status, answer.read().decode()


def test_a_worker_answers_commands_while_it_runs(tmp_path, monkeypatch):
    path = str(tmp_path / "worker")
    monkeypatch.setenv("TORCH_WORKER_SERVER_SOCKET", path)
    with worker_main():
        assert os.stat(path).st_mode & 0o777 == 0o600
        assert json.loads(ask(path, "GET", "")[1]) == ["dump_traceback", "ledger", "ping"]
        assert ask(path, "POST", "ping") == (200, "pong\n")
        assert "test_a_worker_answers_commands" in ask(path, "POST", "dump_traceback")[1]
        assert isinstance(json.loads(ask(path, "POST", "ledger")[1]), list)
        assert ask(path, "POST", "none")[0] == 404
    assert not os.path.exists(path)
    monkeypatch.delenv("TORCH_WORKER_SERVER_SOCKET")
    with worker_main():
        assert not os.path.exists(path)
