"""`python -m flambeau.distributed.run`: start the processes of a program, watch them, start them again when one fails.

    python -m flambeau.distributed.run --standalone --nproc-per-node 2 train.py --its --arguments

Workers find RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and the job's key in their environment, so
`init_process_group()` needs no arguments.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Sequence
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any, BinaryIO

from ._errors import DistNetworkError

if TYPE_CHECKING:
    from .elastic.multiprocessing.errors import ProcessFailure

__all__ = ["get_args_parser", "main", "parse_args", "run"]

_GRACE = 10.0  # seconds between SIGTERM and SIGKILL


def get_args_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="flambeau.distributed.run", description="Start the processes of a distributed program."
    )
    add = parser.add_argument
    add("--nnodes", default="1", help="number of machines; each runs this command with its own --node-rank")
    add("--nproc-per-node", "--nproc_per_node", default="1", help="processes on this machine: a number, or cpu, or auto")
    add("--rdzv-backend", "--rdzv_backend", default="static", help="static or c10d; both meet at one TCP store")
    add("--rdzv-endpoint", "--rdzv_endpoint", default="", help="host:port of the store")
    add("--rdzv-id", "--rdzv_id", default="none", help="name of the job")
    add("--rdzv-conf", "--rdzv_conf", default="", help="key=value,...: timeout in seconds")
    add("--standalone", action="store_true", help="one machine: the store takes a free port")
    add("--max-restarts", "--max_restarts", type=int, default=0, help="how often workers are started again after a failure")
    add("--monitor-interval", "--monitor_interval", type=float, default=0.1, help="seconds between looks at the workers")
    add("--start-method", "--start_method", default="spawn", help="taken for compatibility")
    add("--role", default="default", help="what the workers are called")
    add("-m", "--module", action="store_true", help="the script is a module, as for python -m")
    add("--no-python", "--no_python", action="store_true", help="the script is a program of its own")
    add("--run-path", "--run_path", action="store_true", help="taken for compatibility")
    add("--log-dir", "--log_dir", default=None, help="folder for what workers print")
    add("-r", "--redirects", default="0", help="1 stdout, 2 stderr, 3 both into files, for all workers or as 0:1,1:2")
    add("-t", "--tee", default="0", help="as --redirects, and print it too")
    add("--local-ranks-filter", "--local_ranks_filter", default="", help="taken for compatibility")
    add("--node-rank", "--node_rank", type=int, default=0, help="which machine this is")
    add("--master-addr", "--master_addr", default="127.0.0.1", help="address of machine 0")
    add("--master-port", "--master_port", type=int, default=29500, help="port of the store there")
    add("--local-addr", "--local_addr", default=None, help="address of this machine")
    add("--use-env", "--use_env", action="store_true", help=argparse.SUPPRESS)
    add("training_script", help="the program")
    add("training_script_args", nargs=argparse.REMAINDER, help="its arguments")
    return parser


def parse_args(args: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line `args`, that of this process if None."""
    return get_args_parser().parse_args(args)


def _processes(text: str) -> int:
    if text in ("cpu", "auto"):
        return os.cpu_count() or 1
    if text == "gpu":
        raise ValueError("--nproc-per-node gpu: engines work on the CPU; give a number")
    count = int(text)
    if count < 1:
        raise ValueError(f"--nproc-per-node must be 1 at least, got {count}")
    return count


def _machines(text: str) -> int:
    least, _, most = text.partition(":")
    if most and most != least:
        raise NotImplementedError(f"--nnodes {text}: a number of machines that changes is not built yet; give one number")
    return int(least)


def _choices(text: str, count: int) -> list[int]:
    """Which streams of each worker: one number for all, or ``rank:number,...``."""
    if ":" not in text:
        return [int(text)] * count
    found = [0] * count
    for part in text.split(","):
        rank, _, which = part.partition(":")
        found[int(rank)] = int(which)
    return found


class _Worker:
    """One process of the program, and the threads that copy what it prints."""

    def __init__(self, rank: int, local_rank: int, command: list[str], environment: dict[str, str]) -> None:
        self.rank, self.local_rank = rank, local_rank
        self.command, self.environment = command, environment
        self.error_file = environment["TORCHELASTIC_ERROR_FILE"]
        self.process: subprocess.Popen[bytes] | None = None
        self.copying: list[threading.Thread] = []

    def start(self, folder: str, redirect: int, tee: int, role: str) -> None:
        streams: dict[str, Any] = {}
        for bit, name in ((1, "stdout"), (2, "stderr")):
            if tee & bit:
                streams[name] = subprocess.PIPE
            elif redirect & bit:
                streams[name] = open(os.path.join(folder, f"{name}.log"), "wb")  # noqa: SIM115  # closed once the worker has it
        # A session of its own: what it starts is ended with it.
        started: Any = subprocess.Popen(self.command, env=self.environment, start_new_session=True, **streams)
        self.process = started
        for bit, name in ((1, "stdout"), (2, "stderr")):
            if tee & bit:
                source = getattr(self.process, name)
                self._copy(source, os.path.join(folder, f"{name}.log"), getattr(sys, name), f"[{role}{self.local_rank}]:")
            elif name in streams:
                streams[name].close()

    def _copy(self, source: BinaryIO, path: str, shown: Any, prefix: str) -> None:
        def run() -> None:
            with open(path, "wb") as file, source:
                for line in source:
                    file.write(line)
                    shown.write(prefix + line.decode(errors="replace"))
                    shown.flush()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self.copying.append(thread)

    def signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, number)

    def failure(self) -> ProcessFailure:
        """How it ended, read from its error file while that is there."""
        from .elastic.multiprocessing.errors import ProcessFailure  # where it is needed: workers start sooner

        assert self.process is not None
        return ProcessFailure(self.local_rank, self.process.pid, self.process.returncode, self.error_file)

    def failed_at(self) -> float:
        """When it wrote its error, in seconds; those that wrote none are the last."""
        return os.stat(self.error_file).st_mtime if os.path.exists(self.error_file) else float("inf")


class _Stopped(Exception):
    """A signal asked this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Agent:
    """All workers of this machine, from their start to their end."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.count = _processes(args.nproc_per_node)
        self.machines = _machines(args.nnodes)
        if self.machines > 1 and args.max_restarts:
            raise NotImplementedError("--max-restarts with several machines is not built yet; restart all machines together")
        if not 0 <= args.node_rank < self.machines:
            raise ValueError(f"--node-rank {args.node_rank} of {self.machines} machines")
        self.redirects, self.tees = _choices(args.redirects, self.count), _choices(args.tee, self.count)
        self.folder = args.log_dir or tempfile.mkdtemp(prefix="flambeau_run_")
        self.job = uuid.uuid4().hex if args.rdzv_id == "none" else args.rdzv_id
        self.workers: list[_Worker] = []
        self.store: Any = None

    def run(self) -> dict[int, ProcessFailure]:
        """Run to the end; the failures by rank, empty when all went well."""
        self._serve()
        try:
            for attempt in range(self.args.max_restarts + 1):
                self._start(attempt)
                failures = self._watch()
                if not failures or attempt == self.args.max_restarts:
                    return failures
                rank, failure = next(iter(failures.items()))
                print(
                    f"flambeau.distributed.run: rank {rank} ended with {failure.exitcode}; "
                    f"starting all workers again ({attempt + 1} of {self.args.max_restarts})",
                    file=sys.stderr,
                )
            return {}
        finally:
            self._stop(signal.SIGTERM)
            if self.store is not None:
                self.store.close()

    def _serve(self) -> None:
        from ._stores import TCPStore

        os.environ.setdefault("FLAMBEAU_JOB_KEY", secrets.token_hex(32)) if self.machines == 1 else None
        host, port = self.args.master_addr, self.args.master_port
        if self.args.rdzv_endpoint:
            host, _, given = self.args.rdzv_endpoint.partition(":")
            port = int(given or 29400)
        if self.args.standalone:
            host, port = "127.0.0.1", 0
        wait = timedelta(seconds=900)
        self.store = TCPStore(host, port, None, self.args.node_rank == 0, wait, wait_for_workers=False)
        self.address, self.port = host, self.store.port

    def _start(self, attempt: int) -> None:
        self.workers = []
        first = self.args.node_rank * self.count
        for local in range(self.count):
            rank = first + local
            folder = os.path.join(self.folder, self.job, f"attempt_{attempt}", str(local))
            os.makedirs(folder, exist_ok=True)
            worker = _Worker(rank, local, self._command(local), self._environment(rank, local, attempt, folder))
            self.workers.append(worker)
            worker.start(folder, self.redirects[local], self.tees[local], self.args.role)

    def _command(self, local_rank: int) -> list[str]:
        args = self.args
        rest = [args.training_script, *args.training_script_args]
        if args.no_python:
            return rest
        return [sys.executable, "-u", *(["-m"] if args.module else []), *rest]

    def _environment(self, rank: int, local: int, attempt: int, folder: str) -> dict[str, str]:
        size = self.count * self.machines
        given = {
            "LOCAL_RANK": local, "RANK": rank, "GROUP_RANK": self.args.node_rank, "ROLE_RANK": rank, "ROLE_NAME": self.args.role,
            "LOCAL_WORLD_SIZE": self.count, "WORLD_SIZE": size, "GROUP_WORLD_SIZE": self.machines, "ROLE_WORLD_SIZE": size,
            "MASTER_ADDR": self.address, "MASTER_PORT": self.port, "TORCHELASTIC_RESTART_COUNT": attempt,
            "TORCHELASTIC_MAX_RESTARTS": self.args.max_restarts, "TORCHELASTIC_RUN_ID": self.job,
            "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_ERROR_FILE": os.path.join(folder, "error.json"),
        }  # fmt: skip
        threads = {} if self.count == 1 or "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": "1"}
        return {**os.environ, **threads, **{name: str(value) for name, value in given.items()}}

    def _watch(self) -> dict[int, ProcessFailure]:
        """Wait until all workers have ended well, or one has not; then the others are ended. Returns: failures by rank, the first first."""
        while True:
            codes = [worker.process.poll() for worker in self.workers if worker.process is not None]
            failed = [worker for worker, code in zip(self.workers, codes, strict=True) if code]
            if failed:
                # Those that fail because of the first one do so soon after it, and their errors are told too.
                time.sleep(0.2)
                self._stop(signal.SIGTERM)
                return {worker.rank: worker.failure() for worker in sorted(failed, key=_Worker.failed_at)}
            if all(code == 0 for code in codes):
                self._stop(signal.SIGTERM)
                return {}
            time.sleep(self.args.monitor_interval)

    def _stop(self, number: int) -> None:
        for worker in self.workers:
            worker.signal(number)
        end = time.monotonic() + _GRACE
        for worker in self.workers:
            if worker.process is None:
                continue
            try:
                worker.process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.signal(signal.SIGKILL)
                worker.process.wait()
            for thread in worker.copying:
                thread.join(1.0)


def run(args: argparse.Namespace) -> None:
    """Run the program that `args`, of `parse_args`, describe.

    Raises: ChildFailedError, which names the process that failed first.
    """
    from .elastic.multiprocessing.errors import ChildFailedError

    agent = _Agent(args)
    failures = agent.run()
    if failures:
        raise ChildFailedError(args.training_script, failures)


def _ask_to_stop(number: int, frame: FrameType | None) -> None:
    raise _Stopped(number)


def main(args: Sequence[str] | None = None) -> None:
    """The command: runs the program, and ends this process with status 1 when it failed.

    Args:
        args: the command line; that of this process if None.
    """
    from .elastic.multiprocessing.errors import ChildFailedError

    before = {number: signal.signal(number, _ask_to_stop) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        run(parse_args(args))
    except ChildFailedError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    except _Stopped as error:
        sys.exit(128 + error.number)
    except (DistNetworkError, ValueError, NotImplementedError) as error:
        print(f"flambeau.distributed.run: {error}", file=sys.stderr)
        sys.exit(2)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    main()
