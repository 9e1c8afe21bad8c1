"""The engine of one process that stands for any number of ranks: shapes and calls are those of a real job, data is its own.

Programs plan with it: nothing is sent, and what other ranks would give is taken to be what this one has.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import flambeau as fb

from ._engine import ProcessGroup, Work, done
from ._ledger import call_site, note
from ._reduce import check_reducible

__all__ = ["FakeGroup", "FakeStore"]

from ._stores import HashStore


class FakeStore(HashStore):
    """The store of a job in one process."""


def _write(target: Any, source: Any) -> None:
    with fb.no_grad():
        target.detach().copy_(source.detach().reshape(target.shape))


class FakeGroup(ProcessGroup):
    """Rank `rank` of `size`, alone."""

    engine = "fake"

    def __init__(self, rank: int, size: int, name: str, timeout: timedelta, ranks: Sequence[int] | None = None) -> None:
        super().__init__(rank, size, name, timeout)
        self.ranks = list(range(size)) if ranks is None else list(ranks)

    def _done(self, name: str, result: Any) -> Work:
        what = ", ".join(f"{tensor.dtype} {tuple(tensor.shape)}" for tensor in result or ())
        note(self._name, 0, name, what, call_site()).end("completed")
        return done(result)

    def all_reduce(self, tensors: Sequence[Any], op: Any, async_op: bool, name: str = "all_reduce") -> Work:
        check_reducible(name, op, tensors[0])
        return self._done(name, list(tensors))

    def broadcast(self, tensors: Sequence[Any], root: int, async_op: bool, name: str = "broadcast") -> Work:
        return self._done(name, list(tensors))

    def reduce(self, tensor: Any, root: int, op: Any, async_op: bool) -> Work:
        check_reducible("reduce", op, tensor)
        return self._done("reduce", [tensor])

    def all_gather(self, outputs: Sequence[Any], tensor: Any, async_op: bool, name: str = "all_gather") -> Work:
        for output in outputs:
            _write(output, tensor)
        return self._done(name, list(outputs))

    def gather(self, outputs: Sequence[Any], tensor: Any, root: int, async_op: bool) -> Work:
        for output in outputs:
            _write(output, tensor)
        return self._done("gather", list(outputs))

    def scatter(self, tensor: Any, inputs: Sequence[Any], root: int, async_op: bool) -> Work:
        if inputs:
            _write(tensor, inputs[self._rank])
        return self._done("scatter", [tensor])

    def reduce_scatter(
        self, output: Any, inputs: Sequence[Any], op: Any, async_op: bool, name: str = "reduce_scatter"
    ) -> Work:
        check_reducible(name, op, output)
        _write(output, inputs[self._rank])
        return self._done(name, [output])

    def all_to_all(self, outputs: Sequence[Any], inputs: Sequence[Any], async_op: bool, name: str = "all_to_all") -> Work:
        for output, given in zip(outputs, inputs, strict=True):
            if output.numel() == given.numel():
                _write(output, given)
        return self._done(name, list(outputs))

    def barrier(self, timeout: timedelta | None, async_op: bool, name: str = "barrier") -> Work:
        return self._done(name, None)

    def send(self, tensor: Any, peer: int, tag: int) -> Work:
        return self._done("send", [tensor])

    def recv(self, tensor: Any, peer: int | None, tag: int) -> Work:
        work = self._done("recv", [tensor])
        work._source = 0 if peer is None else self.ranks[peer]
        return work
