"""The launcher: what workers find, how failures are told, restarts and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from flambeau.distributed.elastic.multiprocessing.errors import ProcessFailure

ROOT = Path(__file__).resolve().parent.parent.parent

PROGRAM = """
import os, signal, sys, time
import flambeau as fb, flambeau.distributed as dist
from flambeau.distributed.elastic.multiprocessing.errors import record

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # in one piece: workers share what they print to

@record
def main():
    rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    assert dist.is_torchelastic_launched() and dist.get_node_local_rank() == rank
    dist.init_process_group()
    x = fb.tensor([rank + 1])
    dist.all_reduce(x)
    what = sys.argv[1]
    if what == "sum":
        say("sum", x.item(), *sys.argv[2:])
    if what == "raise" and rank == 1:
        raise ValueError("the loss is lost")
    if what == "kill" and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "once":
        if attempt == 0 and rank == 0:
            sys.exit(3)
        dist.barrier()
        say("attempt", attempt)
    if what == "sleep" or (what in ("raise", "kill") and rank == 0):
        say("pid", os.getpid())
        time.sleep(60)
    dist.destroy_process_group()

main()
"""


def start(tmp_path, *arguments, module="run", size=2):
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'framework'}{os.pathsep}{ROOT / 'kernels'}"}
    environment.pop("FLAMBEAU_JOB_KEY", None)
    options, rest = [a for a in arguments if a.startswith("--")], [a for a in arguments if not a.startswith("--")]
    command = [sys.executable, "-m", f"flambeau.distributed.{module}", "--standalone", "--nproc-per-node", str(size)]
    command += ["--log-dir", str(tmp_path / "logs"), *options, str(tmp_path / "program.py"), *rest]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )


def ended(process):
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, out, err


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_workers_find_each_other_and_their_arguments(tmp_path):
    code, out, err = ended(start(tmp_path, "sum", "a", "b", "--tee=3"))

    assert code == 0, err
    assert sorted(out.split("\n")) == ["", "[default0]:sum 3 a b", "[default1]:sum 3 a b"]
    assert len(list((tmp_path / "logs").rglob("stdout.log"))) == 2


def test_the_first_failure_is_told_and_the_others_are_ended(tmp_path):
    begin = time.monotonic()
    code, out, err = ended(start(tmp_path, "raise"))

    assert code == 1
    assert "FAILED" in err
    assert "rank 1" in err
    assert "ValueError: the loss is lost" in err
    assert gone(int(out.split()[1]))
    assert time.monotonic() - begin < 30


def test_workers_are_started_again_after_a_failure(tmp_path):
    code, out, err = ended(start(tmp_path, "--max-restarts=1", "once"))

    assert code == 0, err
    assert out.split("\n").count("attempt 1") == 2
    assert "rank 0 ended with 3" in err


def test_a_signal_to_the_launcher_ends_the_workers(tmp_path):
    process = start(tmp_path, "sleep")
    try:
        pids = [int(process.stdout.readline().split()[1]) for _ in range(2)]
        process.send_signal(signal.SIGTERM)
    finally:
        code, _, err = ended(process)

    assert code == 128 + signal.SIGTERM, err
    assert all(gone(pid) for pid in pids)


def test_a_failure_has_the_name_of_its_signal():
    assert ProcessFailure(0, 1, -9, "<N/A>").signal_name() == "SIGKILL"
    assert ProcessFailure(0, 1, 3, "<N/A>").signal_name() == "<N/A>"
