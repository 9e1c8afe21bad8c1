"""What every engine offers: a process group with collectives, and the Work that each call returns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from ..futures import Future
from ._errors import DistBackendError

__all__ = ["ProcessGroup", "Work", "done", "flat_parts"]


class Work:
    """A call that runs, or has run: `wait` for it, or ask.

    Programs get one from calls with ``async_op=True`` and from `isend` and `irecv`.
    """

    def __init__(self, result: Any = None) -> None:
        self._future: Future[Any] = Future()
        self._result = result
        self._source: int = -1
        self._begin: Callable[[float | None], None] | None = None

    def boxed(self) -> Work:
        """The call as an object that may be handed on; `unbox` gives the call again. Here it is the call itself."""
        return self

    @staticmethod
    def unbox(boxed: Any, /) -> Work:
        """The call that `boxed` made into an object.

        Raises: TypeError for another object.
        """
        if not isinstance(boxed, Work):
            raise TypeError(f"Work.unbox: expected what Work.boxed returned, got {type(boxed).__name__}")
        return boxed

    def _finish(self, error: BaseException | None = None) -> None:
        if error is None:
            self._future.set_result(self._result)
        else:
            self._future.set_exception(error)

    def is_completed(self) -> bool:
        """Whether it has ended, well or badly."""
        return self._future.done()

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return self._future.done() and self._future._error is None

    def exception(self) -> BaseException | None:
        """What it failed with, or None."""
        return self._future._error if self._future.done() else None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until it has ended; True.

        Args:
            timeout: how long at most; None leaves it to the group's timeout.
        Raises: what the call failed with; DistBackendError after `timeout`.
        """
        seconds = timeout.total_seconds() if timeout else None
        if self._begin is not None and not self._future.done():
            self._begin(seconds)
        with self._future._finished:
            if not self._future._finished.wait_for(self._future.done, seconds or None):
                raise DistBackendError(f"Work.wait: not completed within {seconds:g} s")
        self._future.wait()
        return True

    def synchronize(self) -> None:
        """Wait until it has ended."""
        self.wait()

    def result(self) -> list[Any]:
        """The tensors it wrote, once it has ended."""
        return self._future.value()

    def source_rank(self) -> int:
        """The rank that a receive got its message from."""
        return self._source

    def get_future(self) -> Future[Any]:
        """A future of the tensors it writes."""
        return self._future

    def get_future_result(self) -> Future[int]:
        """A future of 0, or of what it failed with."""

        def zero(future: Future[Any]) -> int:
            future.value()  # raises what the call failed with
            return 0

        return self._future.then(zero)


def done(result: Any = None) -> Work:
    """Work that has ended."""
    work = Work(result)
    work._finish()
    return work


class ProcessGroup:
    """Ranks that call collectives together; what an engine derives from.

    Args:
        rank: this process within the group.
        size: how many there are.
        name: what the group is called in messages.
        timeout: how long a call waits for the other ranks.
    """

    engine = ""

    def __init__(self, rank: int, size: int, name: str = "", timeout: timedelta = timedelta(minutes=30)) -> None:
        self._rank, self._size, self._name = rank, size, name
        self.timeout = timeout
        self.group_desc = ""
        self._queue: list[Callable[[], None]] = []
        self._ready = threading.Condition()
        self._worker: threading.Thread | None = None
        self._busy = False
        self._closed = False

    def rank(self) -> int:
        """The rank of this process in the group."""
        return self._rank

    def size(self) -> int:
        """How many ranks there are."""
        return self._size

    def name(self) -> str:
        """The name of the engine."""
        return self.engine

    @property
    def group_name(self) -> str:
        """The name of the group."""
        return self._name

    # Order: calls run one after the other, in a thread when they are asynchronous

    def _submit(self, run: Callable[[], None], result: Any, async_op: bool) -> Work:
        """Run in the order of calls: here, or by the group's thread when `async_op` or when that has work."""
        work = Work(result)
        with self._ready:
            if self._closed:
                raise DistBackendError(f"distributed: the process group {self._name!r} has been destroyed")
            alone = not async_op and not self._queue and not self._busy
            if alone:
                self._busy = True
            else:
                self._queue.append(lambda: _run(run, work))
                if self._worker is None:
                    self._worker = threading.Thread(target=self._work, name=f"group {self._name}", daemon=True)
                    self._worker.start()
                self._ready.notify_all()
        if alone:
            try:
                run()
            finally:
                with self._ready:
                    self._busy = False
                    self._ready.notify_all()
            work._finish()
        elif not async_op:
            work.wait()
        return work

    def _work(self) -> None:
        while True:
            with self._ready:
                self._ready.wait_for(lambda: (self._queue and not self._busy) or self._closed)
                if not self._queue:
                    return
                run = self._queue.pop(0)
                self._busy = True
            try:
                run()
            finally:
                with self._ready:
                    self._busy = False
                    self._ready.notify_all()

    def close(self) -> None:
        """End the group; what was submitted runs first."""
        with self._ready:
            self._ready.wait_for(lambda: not self._queue and not self._busy, self.timeout.total_seconds())
            self._closed = True
            self._ready.notify_all()

    # What an engine defines; each takes ranks of the group, and the name that messages and the ledger call it by

    def _not_there(self, name: str) -> NotImplementedError:
        return NotImplementedError(f"{name}: the engine {self.engine or type(self).__name__!r} does not have it")

    def all_reduce(self, tensors: Sequence[Any], op: Any, async_op: bool, name: str = "all_reduce") -> Work:
        """Combine `tensors` of all ranks in place."""
        raise self._not_there("all_reduce")

    def broadcast(self, tensors: Sequence[Any], root: int, async_op: bool, name: str = "broadcast") -> Work:
        """Give all ranks the `tensors` of `root`."""
        raise self._not_there("broadcast")

    def reduce(self, tensor: Any, root: int, op: Any, async_op: bool) -> Work:
        """Combine `tensor` of all ranks on `root`."""
        raise self._not_there("reduce")

    def all_gather(self, outputs: Sequence[Any], tensor: Any, async_op: bool, name: str = "all_gather") -> Work:
        """Give all ranks each rank's `tensor`."""
        raise self._not_there("all_gather")

    def all_gather_into_tensor(self, output: Any, tensor: Any, async_op: bool) -> Work:
        """Give all ranks each rank's `tensor`, one after the other in `output`."""
        return self.all_gather(flat_parts(output, self._size), tensor, async_op, "all_gather_into_tensor")

    def gather(self, outputs: Sequence[Any], tensor: Any, root: int, async_op: bool) -> Work:
        """Give `root` each rank's `tensor`."""
        raise self._not_there("gather")

    def scatter(self, tensor: Any, inputs: Sequence[Any], root: int, async_op: bool) -> Work:
        """Give each rank its piece of the `inputs` of `root`."""
        raise self._not_there("scatter")

    def reduce_scatter(self, output: Any, inputs: Sequence[Any], op: Any, async_op: bool, name: str = "reduce_scatter") -> Work:
        """Combine the pieces that all ranks have for this one."""
        raise self._not_there("reduce_scatter")

    def reduce_scatter_tensor(self, output: Any, input: Any, op: Any, async_op: bool) -> Work:
        """Combine what all ranks have in `input` for this one, the parts for all ranks one after the other."""
        return self.reduce_scatter(output, flat_parts(input, self._size), op, async_op, "reduce_scatter_tensor")

    def all_to_all(self, outputs: Sequence[Any], inputs: Sequence[Any], async_op: bool, name: str = "all_to_all") -> Work:
        """Give each rank its piece of everyone's `inputs`."""
        raise self._not_there("all_to_all")

    def barrier(self, timeout: timedelta | None, async_op: bool, name: str = "barrier") -> Work:
        """Wait until all ranks have called it."""
        raise self._not_there("barrier")

    def send(self, tensor: Any, peer: int, tag: int) -> Work:
        """Send `tensor` to `peer`."""
        raise self._not_there("send")

    def recv(self, tensor: Any, peer: int | None, tag: int) -> Work:
        """Fill `tensor` with what `peer`, or anyone, sends."""
        raise self._not_there("recv")


def flat_parts(tensor: Any, count: int) -> list[Any]:
    """`tensor`, which is contiguous, in `count` equal flat parts over its own memory."""
    flat = tensor.detach().view(-1)
    step = flat.numel() // count
    return [flat[at * step : (at + 1) * step] for at in range(count)]


def _run(run: Callable[[], None], work: Work) -> None:
    try:
        run()
    except Exception as error:
        work._finish(error)  # raised by whoever waits
    else:
        work._finish()


def until(timeout: timedelta) -> float:
    return time.monotonic() + timeout.total_seconds()
