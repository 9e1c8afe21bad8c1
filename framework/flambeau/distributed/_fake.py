"""The engine of one process that stands for any number of ranks: shapes and calls are those of a real job, data is its own.

Programs plan with it: nothing is sent, and what other ranks would give is taken to be what this one has.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import flambeau as fb

from ._engine import ProcessGroup, Work, done
from ._ledger import bytes_of, call_site, note
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
        self.ranks: Sequence[int] = range(size) if ranks is None else list(ranks)

    def _done(self, name: str, result: Any, count: int = 0) -> Work:
        what = ", ".join(f"{tensor.dtype} {tuple(tensor.shape)}" for tensor in (result or ())[:4])
        if result and len(result) > 4:
            what += ", ..."
        note(self._name, self._size, 0, name, what, count, call_site()).end("completed")
        return done(result)

    def all_reduce(self, tensors: Sequence[Any], op: Any, async_op: bool, name: str = "all_reduce") -> Work:
        check_reducible(name, op, tensors[0])
        return self._done(name, list(tensors), bytes_of(tensors))

    def broadcast(self, tensors: Sequence[Any], root: int, async_op: bool, name: str = "broadcast") -> Work:
        return self._done(name, list(tensors), bytes_of(tensors))

    def reduce(self, tensor: Any, root: int, op: Any, async_op: bool) -> Work:
        check_reducible("reduce", op, tensor)
        return self._done("reduce", [tensor], bytes_of([tensor]))

    def all_gather(self, outputs: Sequence[Any], tensor: Any, async_op: bool, name: str = "all_gather") -> Work:
        for output in outputs:
            _write(output, tensor)
        return self._done(name, list(outputs), bytes_of(outputs))

    def all_gather_into_tensor(self, output: Any, tensor: Any, async_op: bool) -> Work:
        _write(output.view(self._size, tensor.numel()), tensor.reshape(1, -1).expand(self._size, -1))
        return self._done("all_gather_into_tensor", [output], bytes_of([output]))

    def gather(self, outputs: Sequence[Any], tensor: Any, root: int, async_op: bool) -> Work:
        for output in outputs:
            _write(output, tensor)
        return self._done("gather", list(outputs), bytes_of([tensor]) * self._size)

    def scatter(self, tensor: Any, inputs: Sequence[Any], root: int, async_op: bool) -> Work:
        if inputs:
            _write(tensor, inputs[self._rank])
        return self._done("scatter", [tensor], bytes_of([tensor]) * self._size)

    def reduce_scatter(self, output: Any, inputs: Sequence[Any], op: Any, async_op: bool, name: str = "reduce_scatter") -> Work:
        check_reducible(name, op, output)
        _write(output, inputs[self._rank])
        return self._done(name, [output], bytes_of(inputs))

    def reduce_scatter_tensor(self, output: Any, input: Any, op: Any, async_op: bool) -> Work:
        check_reducible("reduce_scatter_tensor", op, output)
        _write(output, input.detach().view(self._size, output.numel())[self._rank])
        return self._done("reduce_scatter_tensor", [output], bytes_of([input]))

    def all_to_all(self, outputs: Sequence[Any], inputs: Sequence[Any], async_op: bool, name: str = "all_to_all") -> Work:
        for output, given in zip(outputs, inputs, strict=True):
            if output.numel() == given.numel():
                _write(output, given)
        return self._done(name, list(outputs), bytes_of(inputs))

    def barrier(self, timeout: timedelta | None, async_op: bool, name: str = "barrier") -> Work:
        return self._done(name, None)

    def send(self, tensor: Any, peer: int, tag: int) -> Work:
        return self._done("send", [tensor], bytes_of([tensor]))

    def recv(self, tensor: Any, peer: int | None, tag: int) -> Work:
        work = self._done("recv", [tensor], bytes_of([tensor]))
        work._source = 0 if peer is None else self.ranks[peer]
        return work
