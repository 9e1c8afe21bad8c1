"""The main process's side of the workers: starting them, talking to them, noticing their death, ending them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from multiprocessing.connection import wait
from typing import Any

import flambeau as fb
from flambeau import _shared_memory, multiprocessing
from flambeau.utils.data._utils import transport
from flambeau.utils.data._utils.worker import Request, WorkerSettings, work

__all__ = ["WorkerPool"]

# How long, in seconds, workers may take to end by themselves before they are terminated, and then killed.
_PATIENCE = 5.0
# How long after SIGTERM, for those that are ended because something went wrong.
_SHORT_PATIENCE = 0.5
# Room for the stacks of a worker, and how long it may take to write them.
_STACK_BYTES = 1 << 16
_STACK_PATIENCE = 0.5


class WorkerPool:
    """The worker processes of one iterator, each at the end of its own connection."""

    def __init__(self, loader: Any, base_seed: int) -> None:
        context = loader.multiprocessing_context or multiprocessing.get_context()
        self._connections: list[Any] = []
        self._processes: list[Any] = []
        self._stacks: list[Any] = []
        self._closed = False
        self._process_id = os.getpid()
        try:
            for worker in range(loader.num_workers):
                self._start(context, self._settings(loader, worker, base_seed))
        except BaseException:
            self.close()
            raise

    def _settings(self, loader: Any, worker: int, base_seed: int) -> WorkerSettings:
        stacks = fb.UntypedStorage._new_shared(_STACK_BYTES) if _shared_memory.strategy() == "file_descriptor" else None
        self._stacks.append(stacks)
        return WorkerSettings(
            worker, loader.num_workers, base_seed, loader.dataset, loader._fetcher_maker(),
            loader.worker_init_fn, loader.prefetch_factor * loader.num_workers, stacks,
        )

    def _start(self, context: Any, settings: WorkerSettings) -> None:
        ours, theirs = context.Pipe()
        self._connections.append(ours)
        # A forked child holds copies of our ends too; only by closing them does it notice when we close ours.
        inherited = list(self._connections) if context.get_start_method() == "fork" else []
        process = context.Process(target=work, args=(settings, theirs, inherited), daemon=True)
        try:
            process.start()
        finally:
            theirs.close()
        self._processes.append(process)

    def send(self, worker: int, request: Request) -> None:
        """Send `request`; a dead worker is noticed by `receive`."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._connections[worker].send(request)

    def receive(self, timeout: float, workers: set[int]) -> Any:
        """The next message from any of `workers`, as `transport.receive` gives it.

        Raises: RuntimeError after `timeout` seconds (0 waits for ever), or if a worker that owes an answer has died.
        """
        sources = {self._connections[worker]: worker for worker in workers}
        ready = wait(list(sources), timeout or None)
        if not ready:
            raise RuntimeError(
                f"DataLoader timed out: no batch came from its workers in {timeout} seconds; raise timeout, "
                f"or look for what blocks the dataset with num_workers=0{self._where_they_hang(workers)}"
            )
        connection: Any = ready[0]
        try:
            return transport.receive(connection)
        except (EOFError, ConnectionResetError):
            raise RuntimeError(self._obituary(sources[connection])) from None

    def _obituary(self, worker: int) -> str:
        process = self._processes[worker]
        process.join(_PATIENCE)
        code = process.exitcode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"exited with code {code}"
        hint = " (out of memory?)" if code == -9 else ""
        return (
            f"DataLoader worker {worker} (pid {process.pid}) {how}{hint} before its batch was done. "
            f"Its own error, if any, is in the output above; num_workers=0 gives a plain traceback{self._stack_of(worker)}"
        )

    def _where_they_hang(self, workers: set[int]) -> str:
        """What the `workers` that owe an answer are doing, for an error message."""
        asked = [worker for worker in sorted(workers) if self._stacks[worker] is not None]
        for worker in asked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._processes[worker].pid, signal.SIGUSR1)
        deadline = time.monotonic() + _STACK_PATIENCE
        while not all(self._stack_of(worker) for worker in asked) and time.monotonic() < deadline:
            time.sleep(0.01)
        return "".join(self._stack_of(worker) for worker in asked)

    def _stack_of(self, worker: int) -> str:
        """The stack that a worker has left, the innermost call first; empty if there is none."""
        if self._stacks[worker] is None:
            return ""
        written = self._stacks[worker]._bytes.tobytes().rstrip(b"\0").decode(errors="replace")
        # The thread that waits for requests has nothing to say.
        threads = [text for text in written.split("\n\n") if "in _receive\n" not in text and text.strip()]
        return "".join(f"\nDataLoader worker {worker} was here:\n{text.rstrip()}" for text in threads)

    def close(self, patience: float = _PATIENCE) -> None:
        """End all workers; safe to call again.

        They are told to stop, and get a SIGTERM after `patience` seconds and a SIGKILL soon after that.
        """
        # A forked child that happens to inherit the pool must leave its parent's workers alone.
        if self._closed or os.getpid() != self._process_id:
            return
        self._closed = True
        for connection in self._connections:
            # Said as well as shown by closing: another child may have inherited, and so keep open, our end.
            with contextlib.suppress(OSError):
                connection.send(None)
            connection.close()
        self._join(patience)
        for end in ("terminate", "kill"):
            for process in self._processes:
                if process.is_alive():
                    getattr(process, end)()
            self._join(_SHORT_PATIENCE if end == "terminate" else _PATIENCE)

    def drop(self) -> None:
        """`close`, for the collector."""
        self.close()

    def _join(self, patience: float) -> None:
        deadline = time.monotonic() + patience
        for process in self._processes:
            process.join(max(0.0, deadline - time.monotonic()))
