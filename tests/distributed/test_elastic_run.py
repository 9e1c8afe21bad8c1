"""Launchers that meet: machines that come late, workers and launchers that are killed. Each launcher stands for a machine."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

PROGRAM = """
import os, signal, sys, time
import flambeau as fb, flambeau.distributed as dist

what, size, rank = sys.argv[1], int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

if size == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    say("alone", os.getpid())
    time.sleep(120)
dist.init_process_group()
x = fb.tensor([rank + 1])
dist.all_reduce(x)
say("sum", x.item(), "of", size, os.getpid())
if size == 2 and what == "shrink":
    while True:
        dist.barrier()  # until a rank is gone
        time.sleep(0.05)
if what == "kill" and rank == 1 and not os.path.exists("killed"):
    open("killed", "x").close()
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
dist.destroy_process_group()
"""


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Launcher:
    """A launcher with its workers; what it prints is in files."""

    def __init__(self, folder, name, environment, arguments):
        self.out, self.err = folder / f"{name}.out", folder / f"{name}.err"
        command = [sys.executable, "-m", "flambeau.distributed.run", *arguments]
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen(command, env=environment, stdout=out, stderr=err, cwd=folder)

    def said(self, word, count=1):
        """The last `count` lines with `word`, once they are there."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            found = [line for line in self.out.read_text().splitlines() if word in line]
            if len(found) >= count:
                return found
            time.sleep(0.05)
        raise AssertionError(f"no {word!r} in {self.out.read_text()!r}, {self.err.read_text()!r}")

    def ended(self):
        return self.process.wait(60)


@pytest.fixture
def launch(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'framework'}{os.pathsep}{ROOT / 'kernels'}",
        "FLAMBEAU_JOB_KEY": secrets.token_hex(16),
        "FLAMBEAU_NUM_THREADS": "1",
    }
    port, running = free_port(), []

    def start(what, restarts=1):
        options = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=4,join_timeout=60"
        arguments = ["--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "job"]
        arguments += ["--rdzv-conf", options, "--max-restarts", str(restarts), "--log-dir", str(tmp_path / "logs")]
        running.append(Launcher(tmp_path, f"launcher{len(running)}", environment, [*arguments, "program.py", what]))
        return running[-1]

    yield start
    for launcher in running:
        launcher.process.kill()
        launcher.process.wait(60)


def gone(pid):
    """Whether a process ends within the limit."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


def test_a_machine_that_comes_late_takes_part(launch):
    first = launch("grow", restarts=0)
    alone = int(first.said("alone")[0].split()[1])
    second = launch("grow", restarts=0)

    assert (first.ended(), second.ended()) == (0, 0), first.err.read_text() + second.err.read_text()
    assert [line.split()[:4] for launcher in (first, second) for line in launcher.said("sum")] == [["sum", "3", "of", "2"]] * 2
    assert gone(alone)
    assert "1 machines came" in first.err.read_text()


def test_workers_of_all_machines_start_again_when_one_is_killed(launch):
    launchers = [launch("kill"), launch("kill")]

    assert [launcher.ended() for launcher in launchers] == [0, 0], "".join(one.err.read_text() for one in launchers)
    for launcher in launchers:
        assert [line.split()[:4] for line in launcher.said("sum", 2)][-1] == ["sum", "3", "of", "2"]
    assert "ended with -9" in "".join(launcher.err.read_text() for launcher in launchers)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not end the processes of one that was killed")
def test_the_others_go_on_when_a_launcher_is_killed(launch):
    first = launch("shrink")
    first.said("alone")  # so it is the one that serves the store
    second = launch("shrink")
    worker = int(second.said("of 2")[-1].split()[4])
    second.process.send_signal(signal.SIGKILL)

    assert gone(worker)
    assert first.ended() == 0, first.err.read_text()
    assert first.said("sum", 2)[-1].split()[:4] == ["sum", "1", "of", "1"]
    assert "is gone: it missed 4 heartbeats" in first.err.read_text()
