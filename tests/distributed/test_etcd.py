"""Machines meet in etcd: against a small server of the protocol, by the package that talks to a real one."""

from __future__ import annotations

import importlib.util
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest

import flambeau.distributed as dist
from flambeau.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousParameters
from flambeau.distributed.elastic.rendezvous.etcd_rendezvous import EtcdRendezvousHandler
from flambeau.distributed.elastic.rendezvous.etcd_rendezvous_backend import EtcdRendezvousBackend
from flambeau.distributed.elastic.rendezvous.etcd_server import EtcdServer
from flambeau.distributed.elastic.rendezvous.etcd_store import EtcdStore
from flambeau.distributed.elastic.rendezvous.registry import get_rendezvous_handler

HERE = Path(__file__).resolve().parent
needs_the_package = pytest.mark.skipif(importlib.util.find_spec("etcd") is None, reason="needs python-etcd")


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "etcd", None)

    for make in (
        lambda: EtcdStore(None, "/x"),
        lambda: EtcdRendezvousBackend(None, "job"),
        lambda: get_rendezvous_handler(RendezvousParameters("etcd", "127.0.0.1:1", "job", 1, 1)),
    ):
        with pytest.raises(ImportError, match=r'needs the package python-etcd: pip install "flambeau\[etcd\]"'):
            make()


@pytest.fixture
def server(tmp_path, monkeypatch):
    command = tmp_path / "etcd"
    command.write_text(f"#!{sys.executable}\nimport runpy\nrunpy.run_path({str(HERE / 'fake_etcd.py')!r}, run_name='__main__')\n")
    command.chmod(0o755)
    monkeypatch.setenv("TORCHELASTIC_ETCD_BINARY_PATH", str(command))
    made = EtcdServer()
    made.start(timeout=20)
    yield made
    made.stop()


@needs_the_package
def test_keys_of_a_store_are_set_counted_compared_and_waited_for(server):
    first = EtcdStore(server.get_client(), "/job/a", timeout=timedelta(seconds=5))
    other = EtcdStore(server.get_client(), "/job/a/", timeout=timedelta(seconds=0.3))

    first.set("a/b c", b"\x00\xff")
    first.append("a/b c", "x")
    assert other.get("a/b c") == b"\x00\xffx"
    assert other.compare_set("new", "", "1") == b"1"
    assert first.compare_set("new", "0", "2") == b"1"
    assert first.compare_set("new", "1", "2") == b"2"
    threads = [threading.Thread(target=lambda: [first.clone().add("count", 1) for _ in range(10)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert other.add("count", 2) == 42
    assert sorted(first.list_keys()) == ["a/b c", "count", "new"]
    assert first.num_keys() == 3
    assert EtcdStore(server.get_client(), "/job/b").num_keys() == 0
    assert first.delete_key("new")
    assert not first.delete_key("new")
    assert not first.check(["new", "count"])
    with pytest.raises(dist.DistStoreError, match="not set: new"):
        other.get("new")
    threading.Timer(0.2, lambda: other.set("late", "1")).start()
    first.wait(["late"])
    with pytest.raises(NotImplementedError, match="no queues"):
        first.queue_push("q", "1")


@needs_the_package
def test_a_state_is_changed_by_one_machine_at_a_time(server):
    backend = EtcdRendezvousBackend(server.get_client(), "job")

    assert backend.get_state() is None
    made = backend.set_state(b"one")
    assert made is not None
    assert made[2]
    _, token, _ = made
    assert backend.set_state(b"other") == (b"one", token, False)
    assert backend.set_state(b"two", token)[2]
    assert backend.set_state(b"three", token)[::2] == (b"two", False)
    assert backend.get_state()[0] == b"two"


@needs_the_package
def test_two_machines_meet(server):
    found = {}

    def meet(name):
        config = {"last_call_timeout": 1, "join_timeout": 20}
        handler = get_rendezvous_handler(RendezvousParameters("etcd", server.get_endpoint(), "job", 2, 2, local_addr="127.0.0.1", **config))
        assert isinstance(handler, EtcdRendezvousHandler)
        info = handler.next_rendezvous()
        info.store.set(name, str(info.rank))
        info.store.wait(["x", "y"])
        found[name] = info.rank, info.world_size, handler.get_run_id()
        handler.shutdown()

    threads = [threading.Thread(target=meet, args=(name,)) for name in "xy"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert sorted(found.values()) == [(0, 2, "job"), (1, 2, "job")]


@needs_the_package
def test_a_server_that_is_gone_is_named(server, caplog):
    store = EtcdStore(server.get_client(), "/job")
    endpoint = server.get_endpoint()
    server.stop()
    caplog.clear()

    with pytest.raises(dist.DistNetworkError, match=r"etcd store /job/ at http.*cannot be reached"):
        store.set("a", "1")
    with pytest.raises(RendezvousConnectionError, match=f"etcd rendezvous of job 'job' at {endpoint}"):
        get_rendezvous_handler(RendezvousParameters("etcd-v2", endpoint, "job", 1, 1, read_timeout=1))


def test_a_command_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_ETCD_BINARY_PATH", "/no/such/etcd")

    with pytest.raises(FileNotFoundError, match="there is no command /no/such/etcd"):
        EtcdServer().start()
