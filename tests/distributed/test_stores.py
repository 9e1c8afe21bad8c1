"""Stores, each kind by the same checks."""

from __future__ import annotations

import os
import socket
import threading
import time
from datetime import timedelta

import pytest

import flambeau.distributed as dist


@pytest.fixture(params=["hash", "file", "tcp", "prefix"])
def store(request, monkeypatch, tmp_path):
    monkeypatch.setenv("FLAMBEAU_JOB_KEY", "a key for these tests only")
    made = {
        "hash": lambda: dist.HashStore(),
        "file": lambda: dist.FileStore(str(tmp_path / "store")),
        "tcp": lambda: dist.TCPStore("127.0.0.1", 0, 1, True, wait_for_workers=False),
        "prefix": lambda: dist.PrefixStore("p", dist.HashStore()),
    }[request.param]()
    made.set_timeout(timedelta(seconds=5))
    yield made
    getattr(made, "close", lambda: None)()


def test_values_are_bytes_by_key(store):
    store.set("a", "1")
    store.set("b", b"\0\xff")
    store.set("empty", "")

    assert (store.get("a"), store.get("b"), store.get("empty")) == (b"1", b"\0\xff", b"")
    assert store.num_keys() == 3
    assert sorted(store.list_keys()) == ["a", "b", "empty"]
    assert store.check(["a", "b"])
    assert not store.check(["a", "c"])
    assert store.delete_key("a")
    assert not store.delete_key("a")


def test_counts_comparisons_and_lists(store):
    assert [store.add("n", 3), store.add("n", -1)] == [3, 2]
    assert store.get("n") == b"2"
    assert store.compare_set("c", "x", "y") == b"x"
    assert not store.check(["c"])
    assert store.compare_set("c", "", "y") == b"y"
    assert store.compare_set("c", "z", "w") == b"y"
    assert store.compare_set("c", "y", "w") == b"w"
    store.append("l", "ab")
    store.append("l", "cd")
    assert store.get("l") == b"abcd"
    store.multi_set(["x", "y"], ["1", "2"])
    assert store.multi_get(["y", "x"]) == [b"2", b"1"]
    assert store.has_extended_api()


def test_queues_give_what_came_first(store):
    store.queue_push("q", "1")
    store.queue_push("q", "2")

    assert store.queue_len("q") == 2
    assert store.check(["q"])
    assert [store.queue_pop("q"), store.queue_pop("q")] == [b"1", b"2"]
    with pytest.raises(dist.QueueEmptyError):
        store.queue_pop("q", block=False)


def test_a_wait_ends_when_the_key_comes(store):
    writer = store.clone()
    thread = threading.Thread(target=lambda: (time.sleep(0.2), writer.set("late", "x")))
    begin = time.monotonic()
    thread.start()

    assert store.get("late") == b"x"
    store.wait(["late"], timedelta(seconds=1))

    assert 0.15 < time.monotonic() - begin < 2
    thread.join()


def test_a_key_that_does_not_come_is_named(store):
    store.set("there", "1")
    begin = time.monotonic()
    with pytest.raises(dist.DistStoreError, match=r"not set: .*never"):
        store.wait(["there", "never"], timedelta(seconds=0.1))
    store.set_timeout(timedelta(seconds=0.1))
    with pytest.raises(dist.DistStoreError, match="timeout"):
        store.get("never")
    assert time.monotonic() - begin < 2
    assert store.timeout == timedelta(seconds=0.1)


def test_values_that_do_not_fit_are_refused(store):
    with pytest.raises(TypeError, match="value must be str or bytes"):
        store.set("a", 1)
    with pytest.raises(TypeError, match="amount"):
        store.add("a", "x")
    store.set("w", "x")
    with pytest.raises(dist.DistStoreError, match="no number"):
        store.add("w", 1)
    with pytest.raises(ValueError, match="2 keys and 1 values"):
        store.multi_set(["a", "b"], ["1"])
    with pytest.raises(TypeError, match="timedelta"):
        store.wait(["a"], 3)


def test_an_interrupted_request_does_not_answer_the_next_one(monkeypatch):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    store.set("first", "1")
    store.set("second", "2")

    def interrupted(longest=0):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(store._connection, "receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.get("first")

    assert store.get("second") == b"2"
    assert store.add("count", 1) == 1


def test_two_processes_of_a_file_see_each_others_keys(tmp_path):
    one, two = dist.FileStore(str(tmp_path / "s"), 2), dist.FileStore(str(tmp_path / "s"), 2)
    one.set("a", "1")

    assert two.get("a") == b"1"
    assert two.add("n", 2) == 2
    assert one.add("n", 3) == 5

    one.close()
    assert (tmp_path / "s").exists()
    two.close()
    assert not (tmp_path / "s").exists()


def test_a_file_that_is_no_store_is_refused(tmp_path):
    (tmp_path / "s").write_bytes(b"something else entirely")

    with pytest.raises(dist.DistStoreError, match="something else than a store"):
        dist.FileStore(str(tmp_path / "s")).set("a", "1")


def test_prefixes_keep_keys_apart():
    base = dist.HashStore()
    dist.PrefixStore("x", base).set("k", "1")
    dist.PrefixStore("y", dist.PrefixStore("x", base)).set("k", "2")

    assert base.get("x/k") == b"1"
    assert base.get("x/y/k") == b"2"
    assert dist.PrefixStore("x", base).underlying_store is base


def bound_socket():
    made = socket.socket()
    made.bind(("127.0.0.1", 0))
    return made, made.getsockname()[1]


def test_a_server_listens_on_a_socket_that_is_bound_already():
    bound, port = bound_socket()
    server = dist.TCPStore("127.0.0.1", port, is_master=True, master_listen_fd=bound.detach())
    client = dist.TCPStore("127.0.0.1", port)
    client.set("k", "v")

    assert server.port == port
    assert server.get("k") == b"v"


def test_a_socket_of_another_port_is_refused():
    (bound, port), (other, another) = bound_socket(), bound_socket()

    with bound, other, pytest.raises(dist.DistStoreError, match=f"is bound to port {port}, expected to be bound to port {another}"):
        dist.TCPStore("127.0.0.1", another, is_master=True, master_listen_fd=bound.fileno())


def test_what_is_no_socket_is_refused(tmp_path):
    (tmp_path / "f").write_text("")
    descriptor = os.open(tmp_path / "f", os.O_RDONLY)

    with pytest.raises(dist.DistNetworkError, match=f"file descriptor {descriptor}"):
        dist.TCPStore("127.0.0.1", 29999, is_master=True, master_listen_fd=descriptor)
    os.close(descriptor)


def test_an_engine_of_a_program_is_told_of_its_group_and_of_its_options():
    told = []

    class Engine(dist.ProcessGroup):
        def barrier(self, *args, **kwargs):
            pass

    def make(options, pg_options):
        told.append((options.group_rank, options.group_size, options.timeout, options.global_ranks_in_group, pg_options))
        options.store.set(f"of {options.group_id}", "1")
        return Engine(options.group_rank, options.group_size)

    dist.Backend.register_backend("told", make, extended_api=True)
    try:
        dist.init_process_group("told", store=dist.HashStore(), rank=0, world_size=1, pg_options="first")
        dist.new_group([0], timedelta(seconds=7), "told", pg_options="second")
    finally:
        dist.destroy_process_group()
        del dist.Backend._makers["told"]
        dist.Backend.backend_list.remove("told")

    assert told == [(0, 1, timedelta(minutes=30), [], "first"), (0, 1, timedelta(seconds=7), [0], "second")]
