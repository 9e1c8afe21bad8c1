"""The workers of one machine: started together, watched together, ended together."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import enum
import logging
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing import connection
from types import FrameType
from typing import Any

from ....multiprocessing.spawn import _end_with_parent
from .errors import ProcessFailure, record
from .redirects import redirect
from .subprocess_handler import SubprocessHandler, get_subprocess_handler
from .tail_log import TailLog

__all__ = [
    "DefaultLogsSpecs",
    "LogsDest",
    "LogsSpecs",
    "MultiprocessContext",
    "PContext",
    "RunProcsResult",
    "SignalException",
    "Std",
    "SubprocessContext",
    "to_map",
]

_log = logging.getLogger(__name__)


class SignalException(Exception):
    """A signal asked this process to end.

    Args:
        msg: the text.
        sigval: the signal; kept as an attribute.
    """

    def __init__(self, msg: str, sigval: signal.Signals) -> None:
        super().__init__(msg)
        self.sigval = sigval


def _raise_signal(number: int, frame: FrameType | None) -> None:
    # What ends the workers now must not be cut short by the next signal.
    for name in _signals_to_handle():
        signal.signal(name, signal.SIG_IGN)
    raise SignalException(f"Process {os.getpid()} got signal: {number}", signal.Signals(number))


def _signals_to_handle() -> list[signal.Signals]:
    names = os.environ.get("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT")
    found = []
    for name in filter(None, (part.strip() for part in names.split(","))):
        if name not in signal.Signals.__members__:
            raise ValueError(f"TORCHELASTIC_SIGNALS_TO_HANDLE names {name!r}, which is no signal: {names!r}")
        found.append(signal.Signals[name])
    return found


@contextlib.contextmanager
def _signals_raise() -> Any:
    """Inside of it the first signal that asks this process to end raises a `SignalException`; later ones are ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers belong to the main thread
        return
    before = {number: signal.getsignal(number) for number in _signals_to_handle()}
    try:
        for number in before:
            signal.signal(number, _raise_signal)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Std(enum.IntFlag):
    """Streams of a worker: NONE, OUT, ERR or ALL of them."""

    NONE = 0
    OUT = 1
    ERR = 2
    ALL = OUT | ERR

    @classmethod
    def from_str(cls, vm: str) -> Std | dict[int, Std]:
        """The streams that a command line names.

        Args:
            vm: "0" none, "1" stdout, "2" stderr, "3" both, for all workers; or one for each, as ``0:1,1:2``.
        Raises: ValueError for anything else.
        """
        if re.fullmatch(r"[0-3]", vm):
            return cls(int(vm))
        if re.fullmatch(r"(\d+:[0-3],)*\d+:[0-3]", vm):
            return {int(rank): cls(int(value)) for rank, value in (part.split(":") for part in vm.split(","))}
        raise ValueError(f"Std: {vm!r} must be a number from 0 to 3, or rank:number,... such as 0:1,1:2")


def to_map(val_or_map: Std | dict[int, Std], local_world_size: int) -> dict[int, Std]:
    """The streams of each worker.

    Args:
        val_or_map: one value for all, or some by local rank; the others have none.
        local_world_size: how many workers there are.
    """
    if isinstance(val_or_map, Std):
        return dict.fromkeys(range(local_world_size), val_or_map)
    return {rank: val_or_map.get(rank, Std.NONE) for rank in range(local_world_size)}


@dataclasses.dataclass
class LogsDest:
    """Paths of what workers write, by local rank.

    Args:
        stdouts, stderrs: files of what they print; "" for those that print where this process does.
        tee_stdouts, tee_stderrs: those of these files that are printed here too.
        error_files: files for their exceptions.
    """

    stdouts: dict[int, str] = dataclasses.field(default_factory=dict)
    stderrs: dict[int, str] = dataclasses.field(default_factory=dict)
    tee_stdouts: dict[int, str] = dataclasses.field(default_factory=dict)
    tee_stderrs: dict[int, str] = dataclasses.field(default_factory=dict)
    error_files: dict[int, str] = dataclasses.field(default_factory=dict)


class LogsSpecs(abc.ABC):
    """Which streams of which workers go to files; a program's own kind defines `reify`.

    Args:
        log_dir: the folder of the files; a temporary one if None.
        redirects: streams that go to files.
        tee: streams that go to files and are printed here too.
        local_ranks_filter: the workers whose output is printed here; None for all.
    """

    def __init__(
        self,
        log_dir: str | None = None,
        redirects: Std | dict[int, Std] = Std.NONE,
        tee: Std | dict[int, Std] = Std.NONE,
        local_ranks_filter: set[int] | None = None,
    ) -> None:
        self._root_log_dir = log_dir
        self._redirects, self._tee, self._local_ranks_filter = redirects, tee, local_ranks_filter

    @abc.abstractmethod
    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """The paths for workers that are about to start.

        Args:
            envs: their environments, by local rank.
        """

    @property
    @abc.abstractmethod
    def root_log_dir(self) -> str:
        """The folder of all files."""


class DefaultLogsSpecs(LogsSpecs):
    """Files ``<log_dir>/<job>_.../attempt_<n>/<local rank>/stdout.log``, ``stderr.log`` and ``error.json``.

    Args:
        log_dir, redirects, tee, local_ranks_filter: as for `LogsSpecs`.
    Raises: NotADirectoryError if `log_dir` is a file.
    """

    def __init__(
        self,
        log_dir: str | None = None,
        redirects: Std | dict[int, Std] = Std.NONE,
        tee: Std | dict[int, Std] = Std.NONE,
        local_ranks_filter: set[int] | None = None,
    ) -> None:
        if log_dir is not None and os.path.exists(log_dir) and not os.path.isdir(log_dir):
            raise NotADirectoryError(f"log_dir: {log_dir} is a file")
        super().__init__(log_dir or tempfile.mkdtemp(prefix="flambeau_run_"), redirects, tee, local_ranks_filter)
        self._run_log_dir: str | None = None

    @property
    def root_log_dir(self) -> str:
        """The folder of all files."""
        assert self._root_log_dir is not None
        return self._root_log_dir

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """The paths for workers with the environments `envs`; their folders are made, for this user only."""
        count = len(envs)
        if not count:
            return LogsDest()
        first = next(iter(envs.values()))
        attempt, run = first.get("TORCHELASTIC_RESTART_COUNT", "0"), first.get("TORCHELASTIC_RUN_ID", "test_run_id")
        if self._run_log_dir is None:
            os.makedirs(self.root_log_dir, exist_ok=True)
            # A name of its own, for the same job may run on several machines that share a file system.
            self._run_log_dir = tempfile.mkdtemp(prefix=f"{run}_", dir=self.root_log_dir)
        redirects, tees = to_map(self._redirects, count), to_map(self._tee, count)
        dest = LogsDest()
        for rank in range(count):
            folder = os.path.join(self._run_log_dir, f"attempt_{attempt}", str(rank))
            # Workers of a machine that meets others again without a failure start once more in the same attempt.
            os.makedirs(folder, exist_ok=True)
            dest.error_files[rank] = os.path.join(folder, "error.json")
            with contextlib.suppress(FileNotFoundError):
                os.remove(dest.error_files[rank])
            shown = self._local_ranks_filter is None or rank in self._local_ranks_filter
            for bit, name, files, printed in (
                (Std.OUT, "stdout", dest.stdouts, dest.tee_stdouts),
                (Std.ERR, "stderr", dest.stderrs, dest.tee_stderrs),
            ):
                path = os.path.join(folder, f"{name}.log")
                to_file = bool((redirects[rank] | tees[rank]) & bit) or not shown
                files[rank] = path if to_file else ""
                if tees[rank] & bit and shown:
                    printed[rank] = path
        return dest

    def __repr__(self) -> str:
        return (
            f"DefaultLogsSpecs(root_log_dir={self._root_log_dir}, redirects={self._redirects}, tee={self._tee}, "
            f"local_ranks_filter={self._local_ranks_filter})"
        )


@dataclasses.dataclass
class RunProcsResult:
    """How workers ended, by local rank.

    Args:
        return_values: what functions returned; None for programs.
        failures: those that failed.
        stdouts, stderrs: files of what they printed.
    """

    return_values: dict[int, Any] = dataclasses.field(default_factory=dict)
    failures: dict[int, ProcessFailure] = dataclasses.field(default_factory=dict)
    stdouts: dict[int, str] = dataclasses.field(default_factory=dict)
    stderrs: dict[int, str] = dataclasses.field(default_factory=dict)

    def is_failed(self) -> bool:
        """Whether one or more failed."""
        return bool(self.failures)


class PContext(abc.ABC):
    """Workers of one machine, as functions or as programs; `start_processes` makes and starts them.

    Args:
        name: what they are called in their output.
        entrypoint: a function, or the path of a program.
        args: arguments of each, by local rank.
        envs: environment variables of each.
        logs_specs: where their output goes.
        log_line_prefixes: put before lines that are printed here; ``[name rank]:`` without spaces if None.
    Raises: RuntimeError for local ranks of `args` and `envs` that differ.
    """

    def __init__(
        self,
        name: str,
        entrypoint: Callable[..., Any] | str,
        args: dict[int, tuple[Any, ...]],
        envs: dict[int, dict[str, str]],
        logs_specs: LogsSpecs,
        log_line_prefixes: dict[int, str] | None = None,
    ) -> None:
        _check_ranks(args, envs)
        self.name, self.entrypoint, self.args, self.envs = name, entrypoint, args, envs
        self.nprocs = len(args)
        dest = logs_specs.reify(envs)
        self.stdouts, self.stderrs, self.error_files = dest.stdouts, dest.stderrs, dest.error_files
        self._tails = [
            TailLog(name, dest.tee_stdouts, sys.stdout, log_line_prefixes),
            TailLog(name, dest.tee_stderrs, sys.stderr, log_line_prefixes),
        ]
        self._handlers: contextlib.ExitStack | None = None

    def start(self) -> None:
        """Start the workers. Until `close`, a signal that asks this process to end raises a `SignalException` in its main thread."""
        self._handlers = contextlib.ExitStack()
        self._handlers.enter_context(_signals_raise())
        try:
            self._start()
        except BaseException:
            self.close(signal.SIGKILL)
            raise
        for tail in self._tails:
            tail.start()

    @abc.abstractmethod
    def _start(self) -> None:
        """Start each worker."""

    @abc.abstractmethod
    def _poll(self) -> RunProcsResult | None:
        """How they ended, when all have or one has failed; else None. Then the others are ended."""

    @abc.abstractmethod
    def _close(self, death_sig: signal.Signals, timeout: int = 30) -> None:
        """End those that run: by `death_sig`, and after `timeout` seconds by SIGKILL."""

    @abc.abstractmethod
    def _wait_for_one(self, seconds: float) -> None:
        """Wait until a worker may have ended."""

    @abc.abstractmethod
    def pids(self) -> dict[int, int]:
        """Process ids by local rank."""

    def wait(self, timeout: float = -1, period: float = 1) -> RunProcsResult | None:
        """Wait until all workers have ended, or one has failed; then the others are ended.

        Args:
            timeout: seconds to wait at most; 0 looks once, and a negative number waits for as long as it takes.
            period: seconds between two looks.
        Returns: how they ended; None if they still run.
        """
        end = time.monotonic() + timeout if timeout >= 0 else float("inf")
        while True:
            result = self._poll()
            if result is not None:
                self._stop_tails()
                return result
            left = end - time.monotonic()
            if left <= 0:
                return None
            self._wait_for_one(min(period, left))

    def close(self, death_sig: signal.Signals | None = None, timeout: int = 30) -> None:
        """End the workers that still run, and show the rest of what they printed.

        Args:
            death_sig: the signal that asks them to end; SIGTERM if None.
            timeout: seconds they have before they are killed.
        """
        self._close(signal.SIGTERM if death_sig is None else death_sig, timeout)
        self._stop_tails()
        if self._handlers is not None:
            handlers, self._handlers = self._handlers, None
            handlers.close()

    def _stop_tails(self) -> None:
        for tail in self._tails:
            tail.stop()

    def _failure(self, local_rank: int, pid: int, code: int) -> ProcessFailure:
        return ProcessFailure(local_rank, pid, code, self.error_files.get(local_rank, ""))


def _check_ranks(args: dict[int, Any], envs: dict[int, Any]) -> None:
    expected = set(range(len(args)))
    for name, given in (("args", args), ("envs", envs)):
        if set(given) != expected:
            raise RuntimeError(f"{name}, local rank mapping mismatch, expected: {expected}, actual: {set(given)}")


def _end_all(running: list[tuple[Callable[[int], None], Callable[[float | None], bool]]], death_sig: int, timeout: float) -> None:
    """Signal workers, wait for them, and kill those that stay."""
    for send, _ in running:
        send(death_sig)
    end = time.monotonic() + timeout
    for send, ended in running:
        if not ended(max(0.0, end - time.monotonic())):
            _log.warning("a worker did not end within %s s of signal %s; it is killed", timeout, death_sig)
            send(signal.SIGKILL)
            ended(None)


def _run_function(
    local_rank: int,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    env: dict[str, str],
    stdout: str,
    stderr: str,
    error_file: str,
    answer: Any,
) -> None:
    """What the process of a function runs."""
    _end_with_parent(os.getppid())
    os.environ.update(env)
    os.environ["TORCHELASTIC_ERROR_FILE"] = error_file
    for number in _signals_to_handle():
        signal.signal(number, signal.SIG_DFL)  # a forked process has those of the agent
    with contextlib.ExitStack() as streams:
        for name, path in (("stdout", stdout), ("stderr", stderr)):
            if path:
                streams.enter_context(redirect(name, path))
        answer.send(record(fn)(*args))
        answer.close()


class MultiprocessContext(PContext):
    """Workers that are functions, each in a process of `multiprocessing`.

    Args:
        name, args, envs, logs_specs, log_line_prefixes: as for `PContext`.
        entrypoint: a function; one of a module, unless `start_method` is 'fork'.
        start_method: 'spawn', 'fork' or 'forkserver'.
    """

    def __init__(
        self,
        name: str,
        entrypoint: Callable[..., Any],
        args: dict[int, tuple[Any, ...]],
        envs: dict[int, dict[str, str]],
        start_method: str,
        logs_specs: LogsSpecs,
        log_line_prefixes: dict[int, str] | None = None,
    ) -> None:
        from .... import multiprocessing

        self._context: Any = multiprocessing.get_context(start_method)
        super().__init__(name, entrypoint, args, envs, logs_specs, log_line_prefixes)
        self.start_method = start_method
        self._processes: dict[int, Any] = {}
        self._answers: dict[int, Any] = {}
        self._values: dict[int, Any] = {}

    def _start(self) -> None:
        for rank in range(self.nprocs):
            self._answers[rank], theirs = self._context.Pipe(duplex=False)
            process = self._context.Process(
                target=_run_function,
                args=(
                    rank, self.entrypoint, self.args[rank], self.envs[rank], self.stdouts[rank], self.stderrs[rank],
                    self.error_files[rank], theirs,
                ),
            )
            process.start()
            self._processes[rank] = process
            theirs.close()

    def _take_values(self) -> None:
        for rank, answer in list(self._answers.items()):
            if answer.poll():
                # An end without a value is told by the exit code.
                with contextlib.suppress(EOFError):
                    self._values[rank] = answer.recv()
                answer.close()
                del self._answers[rank]

    def _poll(self) -> RunProcsResult | None:
        codes = {rank: process.exitcode for rank, process in self._processes.items()}
        # Asked first: a process that has ended has sent all that it sends.
        self._take_values()
        failed = [rank for rank, code in codes.items() if code]
        if failed:
            _let_others_fail()
            found = {rank: process.exitcode for rank, process in self._processes.items() if process.exitcode}
            self._close(signal.SIGTERM)
            failures = {rank: self._failure(rank, self._processes[rank].pid, code) for rank, code in found.items()}
            return RunProcsResult({}, failures, self.stdouts, self.stderrs)
        if any(code is None for code in codes.values()):
            return None
        for process in self._processes.values():
            process.join()
        return RunProcsResult(self._values, {}, self.stdouts, self.stderrs)

    def _wait_for_one(self, seconds: float) -> None:
        running = [process.sentinel for process in self._processes.values() if process.exitcode is None]
        connection.wait([*running, *self._answers.values()], seconds)

    def _close(self, death_sig: signal.Signals, timeout: int = 30) -> None:
        def sender(process: Any) -> Callable[[int], None]:
            return lambda number: os.kill(process.pid, number) if process.exitcode is None else None

        def waiter(process: Any) -> Callable[[float | None], bool]:
            def ended(seconds: float | None) -> bool:
                process.join(seconds)
                return process.exitcode is not None

            return ended

        running = [process for process in self._processes.values() if process.is_alive()]
        _end_all([(sender(process), waiter(process)) for process in running], death_sig, timeout)
        for answer in self._answers.values():
            answer.close()
        self._answers.clear()

    def pids(self) -> dict[int, int]:
        """Process ids by local rank."""
        return {rank: int(process.pid) for rank, process in self._processes.items()}


# Seconds. Workers that fail because of the first one do so soon after it, and their errors are told too.
_OTHERS = 0.2


def _let_others_fail() -> None:
    time.sleep(_OTHERS)


class SubprocessContext(PContext):
    """Workers that are programs.

    Args:
        name, args, envs, logs_specs, log_line_prefixes: as for `PContext`.
        entrypoint: the path of the program.
    """

    def __init__(
        self,
        name: str,
        entrypoint: str,
        args: dict[int, tuple[Any, ...]],
        envs: dict[int, dict[str, str]],
        logs_specs: LogsSpecs,
        log_line_prefixes: dict[int, str] | None = None,
    ) -> None:
        super().__init__(name, entrypoint, args, envs, logs_specs, log_line_prefixes)
        self.subprocess_handlers: dict[int, SubprocessHandler] = {}

    def _start(self) -> None:
        assert isinstance(self.entrypoint, str)
        for rank in range(self.nprocs):
            env = {**self.envs[rank], "TORCHELASTIC_ERROR_FILE": self.error_files[rank]}
            self.subprocess_handlers[rank] = get_subprocess_handler(
                self.entrypoint, self.args[rank], env, self.stdouts[rank], self.stderrs[rank], rank
            )

    def _codes(self) -> dict[int, int | None]:
        return {rank: handler.proc.poll() for rank, handler in self.subprocess_handlers.items()}

    def _poll(self) -> RunProcsResult | None:
        codes = self._codes()
        if any(codes.values()):
            _let_others_fail()
            found = {rank: code for rank, code in self._codes().items() if code}
            self._close(signal.SIGTERM)
            failures = {
                rank: self._failure(rank, self.subprocess_handlers[rank].proc.pid, code) for rank, code in found.items()
            }
            return RunProcsResult({}, failures, self.stdouts, self.stderrs)
        if any(code is None for code in codes.values()):
            return None
        return RunProcsResult(dict.fromkeys(codes), {}, self.stdouts, self.stderrs)

    def _wait_for_one(self, seconds: float) -> None:
        time.sleep(seconds)

    def _close(self, death_sig: signal.Signals, timeout: int = 30) -> None:
        import subprocess

        def waiter(handler: SubprocessHandler) -> Callable[[float | None], bool]:
            def ended(seconds: float | None) -> bool:
                try:
                    handler.proc.wait(seconds)
                except subprocess.TimeoutExpired:
                    return False
                return True

            return ended

        def sender(handler: SubprocessHandler) -> Callable[[int], None]:
            return lambda number: handler.close(signal.Signals(number))

        handlers = list(self.subprocess_handlers.values())
        _end_all([(sender(handler), waiter(handler)) for handler in handlers], death_sig, timeout)

    def pids(self) -> dict[int, int]:
        """Process ids by local rank."""
        return {rank: handler.proc.pid for rank, handler in self.subprocess_handlers.items()}
