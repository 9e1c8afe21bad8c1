"""Where the processes of one machine tell each other their calls: memory of each, which the others read.

A rank writes what it calls, with data that is small, into its own board and then raises the board's count; the others wait
for the count, which needs no thread and no message. Boards need writes of one process to be seen in order by another, which
x86-64 promises to ordinary instructions.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import platform
import struct
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ._mesh import Segment

__all__ = ["BLOCK", "Board", "Posted", "boards_work_here", "spins_for"]

BLOCK = 1 << 22  # bytes of a tensor that all ranks combine at a time: they stay in the cache from one rank to the next
_SLOT = 1 << 17
_ROOM = _SLOT - 128  # bytes of one call in a slot
_SLOTS = 4096  # where the first slot begins; before it are the counts, each in a line of the cache of its own
_RING = _SLOTS + 2 * _SLOT
_SIZE = _RING + 2 * BLOCK  # only what is written to is memory
_POSTED, _FINISHED = 0, 16  # places of the counts, in words of 8 bytes
_PHASES = 20  # bits of a count that number the steps of a call
# number of the call, time, bytes of what must agree and of what may differ, bytes of data, turn of the ring
_HEADER = struct.Struct("<QdIIQQ")
_BY_SOCKET = 0xFFFFFFFF
_SYS_FUTEX = 202  # x86-64
_FUTEX_WAIT, _FUTEX_WAKE = 0, 1
_LEAST_SPINS = 32
_SLICE = 0.05  # seconds after which a sleeper looks whether the other rank is still there


def boards_work_here() -> bool:
    """Whether this machine keeps the order of writes, and has the call to sleep for a count."""
    return platform.system() == "Linux" and platform.machine() == "x86_64"


def spins_for(size: int) -> int:
    """How often to look at most before sleeping: some 50 us when each rank may have a core, else not at all."""
    return 1500 if size <= len(os.sched_getaffinity(0)) else 0


class Posted(NamedTuple):
    """One call on a board: what must agree and what may differ, both packed, its data, and when it was posted."""

    number: int
    when: float
    head: bytes
    tail: bytes
    data: np.ndarray
    turn: int
    by_socket: bool


class _Pause(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


@functools.cache
def _system_call() -> Callable[..., int]:
    call = ctypes.CDLL(None).syscall
    call.restype = ctypes.c_long
    # As pointers and longs: what is left to ctypes would pass addresses as 32 bits.
    call.argtypes = [ctypes.c_long, ctypes.c_void_p, ctypes.c_long, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
    return call


class Board:
    """The board of one rank in one group; `memory` is its own or that of another process.

    Args:
        memory: `Board.size` bytes that processes share, zero at first.
        spins: how often the others look at most before they sleep.
    """

    size = _SIZE

    def __init__(self, memory: mmap.mmap, spins: int = 0) -> None:
        self._most = self._spins = spins
        self._bytes = memoryview(memory)
        self._words = self._bytes.cast("Q")
        self._array = np.frombuffer(memory, np.uint8)
        self._address = self._array.ctypes.data

    @classmethod
    def make(cls) -> tuple[Board, Segment]:
        """A new board, and the memory that other processes open."""
        segment = Segment(_SIZE)
        return cls(segment.memory), segment

    # What its owner does

    def write(self, number: int, head: bytes, tail: bytes, data: np.ndarray | None, turn: int) -> bool:
        """Write a call; False when it is too large, and the others are told to look for a message instead."""
        count = 0 if data is None else data.nbytes
        at = _SLOTS + (number & 1) * _SLOT
        meta = len(head) + len(tail)
        fits = meta + 64 + count <= _ROOM
        _HEADER.pack_into(self._bytes, at, number, time.monotonic(), len(head) if fits else _BY_SOCKET, len(tail), count, turn)
        if fits:
            self._bytes[at + 64 : at + 64 + meta] = head + tail
            if data is not None:
                begin = at + 64 + (meta + 63 & ~63)
                self._array[begin : begin + count] = data
        return fits

    def post(self, number: int, phase: int = 0) -> None:
        """Let the others see all that was written before."""
        self._raise(_POSTED, number << _PHASES | phase)

    def finish(self, number: int) -> None:
        """Let the others see that this rank has read what they lent it in the call `number`."""
        self._raise(_FINISHED, number << _PHASES)

    def _raise(self, word: int, count: int) -> None:
        self._words[word] = count
        _system_call()(_SYS_FUTEX, self._address + 8 * word, _FUTEX_WAKE, 0x7FFFFFFF, None, None, 0)

    # What the others do

    def wait(self, number: int, phase: int, end: float, gone: Callable[[], bool], looks: bool = False) -> bool:
        """Wait until the owner has posted this step of this call; False when it is `gone` before, or at the time `end`.

        With `looks` it looks for a while before it sleeps.
        """
        return self._reaches(_POSTED, number << _PHASES | phase, end, gone, looks)

    def has(self, number: int, phase: int) -> bool:
        """Whether the owner has posted this step of this call."""
        return self._words[_POSTED] >= number << _PHASES | phase

    def wait_finished(self, number: int, end: float, gone: Callable[[], bool]) -> bool:
        """Wait until the owner has read what it was lent in the call `number`; as `wait`."""
        return self._reaches(_FINISHED, number << _PHASES, end, gone, False)

    def _reaches(self, word: int, count: int, end: float, gone: Callable[[], bool], looks: bool) -> bool:
        words = self._words
        if looks:
            for _ in range(self._spins):
                if words[word] >= count:
                    self._spins = min(2 * self._spins, self._most)
                    return True
            # Where ranks share a core, looking only keeps the other one from coming.
            self._spins = min(max(self._spins // 4, _LEAST_SPINS), self._most)
        while (seen := words[word]) < count:
            left = end - time.monotonic()
            if gone() or left <= 0:
                return words[word] >= count  # what it posted before it left counts
            pause = _Pause(0, int(min(left, _SLICE) * 1e9))
            # Returns at once when the count is no longer what was seen.
            _system_call()(_SYS_FUTEX, self._address + 8 * word, _FUTEX_WAIT, seen & 0xFFFFFFFF, ctypes.addressof(pause), None, 0)
        return True

    def read(self, number: int) -> Posted:
        """What the slot of the call `number` has; its number is another one where the owner has gone on."""
        at = _SLOTS + (number & 1) * _SLOT
        found, when, head, tail, count, turn = _HEADER.unpack_from(self._bytes, at)
        if head == _BY_SOCKET:
            return Posted(found, when, b"", b"", self._array[:0], turn, True)
        begin = at + 64 + (head + tail + 63 & ~63)
        meta = bytes(self._bytes[at + 64 : at + 64 + head + tail])
        return Posted(found, when, meta[:head], meta[head:], self._array[begin : begin + count], turn, False)

    def latest(self) -> Posted | None:
        """The last call that was posted, or None."""
        number = self._words[_POSTED] >> _PHASES
        return self.read(number) if number else None

    def block(self, turn: int) -> np.ndarray:
        """The memory of a block of the turn `turn`, which its owner and the others write and read in steps."""
        at = _RING + (turn & 1) * BLOCK
        return self._array[at : at + BLOCK]

    def close(self) -> None:
        """Let go of the memory."""
        del self._array
        self._words.release()
        self._bytes.release()


