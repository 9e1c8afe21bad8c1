"""What goes wrong between processes ends in a sentence that names the culprit, and never in a hang."""

from __future__ import annotations

import errno
import os
import secrets
import socket
import struct
import time
from datetime import timedelta

import pytest

import flambeau.distributed as dist
from flambeau.distributed._pack import pack, unpack
from leftovers import files_of_ended_processes


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    """Shared memory has no name in any folder, and no process of a test outlives it."""
    before = set(files_of_ended_processes())
    yield
    assert set(files_of_ended_processes()) <= before


def test_ranks_that_call_different_things_all_learn_who_called_what(ranks):
    ranks("fault_programs.mismatches", 3)


def test_a_killed_rank_is_named_at_once(ranks):
    ended = ranks("fault_programs.died", 3, check=False)

    assert ended.codes == [0, -9, 0], ended.out


def test_a_rank_that_raises_is_named_at_once(ranks):
    ended = ranks("fault_programs.raising", 3, check=False)

    assert ended.codes == [0, 1, 0], ended.out
    assert "a mistake in the program" in ended.out[1]


def test_ranks_that_call_in_different_orders_are_told_so(ranks):
    ranks("fault_programs.wrong_order", 2)


def test_a_failed_call_leaves_the_last_calls_in_a_file(ranks, tmp_path):
    ranks("fault_programs.recorded", 2, TORCH_FR_BUFFER_SIZE="3", TORCH_FR_DUMP_TEMP_FILE=str(tmp_path / "calls_"))


def test_a_full_disk_fails_the_save_on_all_ranks_and_leaves_the_last_one(ranks):
    ranks("fault_programs.disk_full", 2)


@pytest.mark.parametrize("what", ["late", "too_late", "left", "stopped", "wrong_key", "key_missing", "missing"])
def test_a_rank_that_does_not_come_is_named_within_the_timeout(ranks, what):
    ranks(f"fault_programs.{what}", 2)


def test_a_killed_store_is_named(ranks):
    ended = ranks("fault_programs.store_killed", 2, check=False)

    assert ended.codes == [-9, 0], ended.out


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("FLAMBEAU_JOB_KEY", secrets.token_hex(16))
    store = dist.TCPStore("127.0.0.1", 0, 1, True, timeout=timedelta(seconds=5))
    yield store
    store.close()


def test_the_store_listens_where_it_was_told_to(server):
    with socket.socket() as sock:
        sock.settimeout(0.5)
        status = sock.connect_ex(("127.0.0.2", server.port))

    assert status == errno.ECONNREFUSED


def test_strangers_learn_nothing_and_hold_nobody_up(server):
    quiet = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(50)]
    for at in range(500):
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            sock.sendall(secrets.token_bytes(64 if at % 2 else 8))

    server.set("a", "1")

    assert server.get("a") == b"1"
    assert server.clone().get("a") == b"1"
    for sock in quiet:
        sock.close()


def test_frames_that_promise_too_much_are_refused(server):
    client = server.clone()
    client._connection.sock.sendall(struct.pack("<Q", 1 << 60))

    with pytest.raises(dist.DistNetworkError, match="is gone"):
        client.set("a", "1")
    server.set("b", "2")
    assert server.get("b") == b"2"


def test_requests_that_are_none_are_answered_with_an_error(server):
    client = server.clone()
    for junk in (
        [],
        [None],
        [None, "__init__"],
        [None, "values"],
        ["x", 3],
        [None, "set", 1, 2, 3],
        [None, "add", "k", "x"],
    ):
        client._connection.send(pack(junk))
        good, _ = unpack(client._connection.receive())
        assert not good, junk
    client._connection.send(b"\xff\xff junk")
    assert unpack(client._connection.receive())[0] is False

    server.set("b", "2")
    assert client.get("b") == b"2"


def test_a_hundred_thousand_malformed_frames_are_answered_with_errors(server):
    client = server.clone()
    link = client._connection
    good = pack([None, "set", "a", b"1"])
    frames = []
    for at in range(1000):
        junk = bytearray(good)
        junk[(at * 7) % len(junk)] ^= 1 + at % 255
        junk[(at * 13 + 5) % len(junk)] ^= 1 + at % 113
        frames.append(bytes(junk[: len(junk) - at % 3]))
    refused = 0

    for _ in range(100):
        link.sock.sendall(b"".join(struct.pack("<Q", len(frame)) + frame for frame in frames))
        refused += sum(unpack(link.receive())[0] is False for _ in frames)

    assert refused > 90_000                            # a few still mean something
    server.set("b", "2")
    assert client.get("b") == b"2"


def test_bytes_that_are_no_packed_data_are_refused_quickly():
    good = pack([1, "two", {"three": (4.0, b"5")}, {6}])
    begin = time.monotonic()
    refused = 0
    for at in range(4000):
        junk = bytearray(good)
        for change in range(1 + at % 3):
            junk[(at * 7 + change * 13) % len(junk)] = (at * 31 + change) % 256
        try:
            unpack(junk)
        except (ValueError, TypeError):
            refused += 1
    assert refused > 2000
    for end in range(len(good)):
        with pytest.raises(ValueError, match="distributed:"):
            unpack(good[:end])
    with pytest.raises(ValueError, match="deeper"):
        unpack(b"l\1\0\0\0\0\0\0\0" * 5000)
    assert time.monotonic() - begin < 5


def test_pickled_objects_are_not_read_unless_asked_for():
    before = dist.allow_pickle(True)
    data = pack(timedelta(seconds=3))
    dist.allow_pickle(False)
    try:
        with pytest.raises(TypeError, match="does not unpickle"):
            unpack(data)
        with pytest.raises(TypeError, match="allow_pickle"):
            pack(timedelta(seconds=3))
    finally:
        dist.allow_pickle(before)


def test_a_key_file_that_others_can_read_is_refused(monkeypatch, tmp_path):
    path = tmp_path / "key"
    path.write_text(secrets.token_hex(16))
    path.chmod(0o644)
    monkeypatch.delenv("FLAMBEAU_JOB_KEY", raising=False)
    monkeypatch.setenv("FLAMBEAU_JOB_KEY_FILE", str(path))
    with pytest.raises(dist.DistNetworkError, match=r"mode 0644.*0600"):
        dist.TCPStore("127.0.0.1", 0, 1, True)
    path.chmod(0o600)

    store = dist.TCPStore("127.0.0.1", 0, 1, True)

    store.close()


def test_the_key_of_a_user_is_made_once_and_for_nobody_else(monkeypatch, tmp_path):
    monkeypatch.delenv("FLAMBEAU_JOB_KEY", raising=False)
    monkeypatch.delenv("FLAMBEAU_JOB_KEY_FILE", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    from flambeau.distributed._wire import job_key

    first = job_key()

    assert job_key() == first
    assert len(first) == 64
    assert os.stat(tmp_path / "flambeau" / "job.key").st_mode & 0o777 == 0o600
