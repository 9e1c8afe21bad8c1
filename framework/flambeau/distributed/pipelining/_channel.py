"""What the ranks of a pipeline send to each other: tensors, what is known of them, and the news that one has failed.

A tensor's message is named by step, direction, stage and microbatch, so it does not matter in which order ranks send and
receive. While a rank waits it also listens for failures: one that fails tells all others, and nobody waits for it.
"""

from __future__ import annotations

import threading
import weakref
from datetime import timedelta
from typing import Any

import flambeau as fb

from .._errors import DistBackendError
from .._pack import pack, unpack

__all__ = ["FORWARD", "BACKWARD", "Channel", "ElsewhereError", "channel_of"]

FORWARD, BACKWARD = 0, 1
_FAILURE = (1 << 63) - 1
_NOTICE_BYTES = 4096
# Room for the parts of a name; they are far more than any pipeline has.
_STAGES, _MICROBATCHES, _PARTS = 1 << 12, 1 << 16, 1 << 8


class ElsewhereError(RuntimeError):
    """Another rank has failed, and has told all others."""


class Channel:
    """The messages of one group.

    Args:
        group: the ranks of the pipeline.
    """

    def __init__(self, group: Any) -> None:
        self._group = group
        self._step = 0
        self._news = threading.Event()
        self._notice: Any = None
        self._notice_work: Any = None
        self._failed: dict[int, str] = {}

    def begin_step(self) -> None:
        """The next step begins; all ranks of the group count them alike.

        Raises: RuntimeError if another rank has failed in this step already.
        """
        self._step += 1
        self._failed = {step: text for step, text in self._failed.items() if step >= self._step - 1}
        if self._group.size() > 1 and self._notice_work is None:
            self._listen()
        self._raise_failures()

    # Tensors

    def _tag(self, direction: int, stage: int, microbatch: int, part: int) -> int:
        tag = (self._step % (1 << 25) * 2 + direction) * _STAGES + stage
        return (tag * _MICROBATCHES + microbatch) * _PARTS + part

    def send_object(self, value: Any, peer: int, direction: int, stage: int, microbatch: int) -> None:
        """Send plain data to `peer`; the names are those of the tensors that follow."""
        data = fb.frombuffer(bytearray(pack(value)), dtype=fb.uint8)
        self._group.send(fb.tensor([data.numel()]), peer, self._tag(direction, stage, microbatch, 0)).wait()
        self._group.send(data, peer, self._tag(direction, stage, microbatch, 1)).wait()

    def receive_object(self, peer: int, direction: int, stage: int, microbatch: int) -> Any:
        """What `send_object` sent."""
        size = fb.zeros(1, dtype=fb.int64)
        self._wait([self._group.recv(size, peer, self._tag(direction, stage, microbatch, 0))])
        data = fb.empty(int(size), dtype=fb.uint8)
        self._wait([self._group.recv(data, peer, self._tag(direction, stage, microbatch, 1))])
        return unpack(data.numpy().tobytes())

    def send(self, tensors: Any, peer: int, direction: int, stage: int, microbatch: int) -> None:
        """Send tensors to `peer`.

        Args:
            tensors: what is sent.
            peer: a rank of the group.
            direction: FORWARD or BACKWARD.
            stage: the stage that receives.
            microbatch: its number.
        """
        for at, tensor in enumerate(tensors):
            self._group.send(tensor.detach(), peer, self._tag(direction, stage, microbatch, 2 + at)).wait()

    def receive(self, tensors: Any, peer: int, direction: int, stage: int, microbatch: int) -> None:
        """Fill `tensors` with what `send` sent.

        Raises: RuntimeError that says which rank failed, here or elsewhere; DistBackendError after the timeout.
        """
        self._wait(
            [self._group.recv(x, peer, self._tag(direction, stage, microbatch, 2 + at)) for at, x in enumerate(tensors)]
        )

    def _wait(self, works: list[Any]) -> None:
        """Wait until all `works` have ended, or a rank has failed."""
        if all(work.is_completed() for work in works):
            for work in works:
                work.wait()
            return
        self._news.clear()
        for work in works:
            work.get_future().add_done_callback(lambda _: self._news.set())
        limit = self._group.timeout.total_seconds()
        while True:
            self._raise_failures()
            pending = [work for work in works if not work.is_completed()]
            if not pending:
                break
            if not self._news.wait(limit):
                self._give_up(pending[0], limit)
            self._news.clear()
        for work in works:
            try:
                work.wait()
            except DistBackendError as error:
                self._raise_failures()  # a rank that failed says why before it goes
                raise DistBackendError("\n  ".join([str(error), *self._failed.values()])) from error

    def _give_up(self, work: Any, limit: float) -> None:
        try:
            work.wait(timedelta(milliseconds=1))
        except DistBackendError as error:  # it says what is known of the rank that does not send
            raise DistBackendError(f"pipelining: no message for {limit:g} s, the timeout of the group\n  {error}") from error

    # Failures

    def tell(self, text: str) -> None:
        """Let all other ranks know that this one has failed in this step."""
        data = pack([self._step, text.encode()[: _NOTICE_BYTES - 64].decode(errors="ignore")])
        notice = fb.frombuffer(bytearray((len(data).to_bytes(4, "little") + data).ljust(_NOTICE_BYTES, b"\0")), dtype=fb.uint8)
        for peer in range(self._group.size()):
            if peer != self._group.rank():
                try:
                    self._group.send(notice, peer, _FAILURE).wait()
                except DistBackendError:
                    continue  # it is gone; those that wait for it are told so by the engine

    def _listen(self) -> None:
        self._notice = fb.zeros(_NOTICE_BYTES, dtype=fb.uint8)
        self._notice_work = self._group.recv(self._notice, None, _FAILURE)
        self._notice_work.get_future().add_done_callback(lambda _: self._news.set())

    def _raise_failures(self) -> None:
        """Raise for the failure of another rank in this step.

        A rank may be ahead and fail in a later step, which does not keep this one from ending. What failed in earlier steps
        is over; it is told only if something follows from it.
        """
        while self._notice_work is not None and self._notice_work.is_success():
            raw = self._notice.numpy().tobytes()
            size = int.from_bytes(raw[:4], "little")
            if not size:
                self._notice_work = None  # the fake engine, whose other ranks say nothing
                return
            step, text = unpack(raw[4 : 4 + size])
            self._listen()
            self._failed.setdefault(step, text)
        if self._step in self._failed:
            raise ElsewhereError(self._failed[self._step])


_channels: weakref.WeakKeyDictionary[Any, Channel] = weakref.WeakKeyDictionary()


def channel_of(group: Any) -> Channel:
    """The channel of `group`; all schedules of a group share it."""
    found = _channels.get(group)
    if found is None:
        found = _channels[group] = Channel(group)
    return found
