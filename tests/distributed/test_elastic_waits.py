"""Machines do not wait for one that has died."""

from __future__ import annotations

import threading
import time

import flambeau.distributed as dist
from flambeau.distributed.elastic.agent.server import WorkerSpec
from flambeau.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from flambeau.distributed.elastic.multiprocessing import DefaultLogsSpecs
from flambeau.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters
from flambeau.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from flambeau.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler


class _OneIsGone(RendezvousHandler):
    """Two machines have met, and the other one has died since."""

    def get_backend(self):
        return "test"

    def next_rendezvous(self):
        raise AssertionError("not asked for")

    def is_closed(self):
        return False

    def set_closed(self):
        pass

    def num_nodes_waiting(self):
        return 0

    def ranks_gone(self):
        return {1}

    def get_run_id(self):
        return "job"

    def shutdown(self):
        return True


def test_nobody_waits_for_a_machine_that_died_when_all_had_met_or_when_workers_have_ended():
    spec = WorkerSpec("role", 1, _OneIsGone(), entrypoint=print)
    agent = LocalElasticAgent(spec, DefaultLogsSpecs())
    group, store = agent._worker_group, dist.HashStore()
    group.store, group.group_rank, group.group_world_size = store, 0, 2
    begin = time.monotonic()

    assert agent._reported_counts(store, 0, 2, spec) is None
    agent._exit_barrier()

    assert time.monotonic() - begin < 5
    store.set("agents/1", '["role", 3]')
    assert agent._reported_counts(store, 0, 2, spec) == [["role", 1], ["role", 3]]


def test_ranks_of_machines_that_left_a_round_are_told():
    store = dist.HashStore()
    parameters = RendezvousParameters("c10d", "", "job", 2, 2, local_addr="127.0.0.1", last_call_timeout=1, join_timeout=20)
    first, second = (create_handler(store, C10dRendezvousBackend(store, "job"), parameters) for _ in range(2))
    found = {}
    other = threading.Thread(target=lambda: found.update(rank=second.next_rendezvous().rank))
    other.start()
    first.next_rendezvous()
    other.join(20)

    assert first.ranks_gone() == set()
    second.leave()

    assert first.ranks_gone() == {found["rank"]}
    first.shutdown()
