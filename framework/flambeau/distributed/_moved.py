"""Groups whose calls are told and checked as those of gloo, while a library moves the elements: NCCL, or the collectives of MPI.

A library offers few things: parts for each rank at once, a broadcast, the parts of all ranks one after the other. What it would
add in an order of its own is combined here, in the order of ranks, so that results have the bits of the other engines.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fb

from ._engine import Work
from ._gloo import GlooGroup, _Call, _describe, _factor, _one_dtype, _uneven
from ._ledger import bytes_of
from ._reduce import RedOpType, check_reducible

__all__ = ["MovedGroup", "combined"]


class MovedGroup(GlooGroup):
    """Ranks whose tensors a library moves; what it does not take goes the way of gloo.

    An engine defines `_takes`, `_swap`, `_spread` and `_join`, and what it combines itself. Those get flat tensors, after all
    ranks are known to mean the same call.
    """

    # What an engine defines

    def _takes(self, tensor: Any) -> bool:
        """Whether the library moves this tensor."""
        raise NotImplementedError

    def _swap(self, call: _Call, outgoing: Sequence[Any], incoming: Sequence[Any]) -> None:
        """Give each rank its one of `outgoing`, and fill `incoming` with what each has for this one; not the own part."""
        raise NotImplementedError

    def _spread(self, call: _Call, flat: Any, root: int) -> None:
        """Fill `flat` with that of `root`."""
        raise NotImplementedError

    def _join(self, call: _Call, gathered: Any, part: Any) -> None:
        """Fill `gathered` with the parts of all ranks, which have one size."""
        raise NotImplementedError

    def _combines(self, flat: Any, how: Any) -> bool:
        """Whether the library combines these elements to the bits that the order of ranks gives."""
        return False

    def _all_reduce(self, call: _Call, flat: Any, how: Any) -> None:
        """Combine `flat` in place, where `_combines`."""
        raise NotImplementedError

    def _reduce(self, call: _Call, flat: Any, root: int, how: Any) -> None:
        """Combine `flat` in place on `root`, where `_combines`."""
        raise NotImplementedError

    def _reduce_scatter(self, call: _Call, part: Any, gathered: Any, how: Any) -> None:
        """Fill `part` with this rank's part of `gathered`, combined, where `_combines`."""
        raise NotImplementedError

    def _surroundings(self, tensor: Any) -> Callable[[], contextlib.AbstractContextManager[Any]]:
        """What `tensor` is moved in: asked where the program calls, entered where the call runs."""
        return contextlib.nullcontext

    # Calls

    def _moved(
        self, name: str, strict: list[Any], move: Callable[[_Call], None], tensors: Sequence[Any], result: list[Any],
        async_op: bool, count: int, info: Any = None, check: Any = None,
    ) -> Work:  # fmt: skip
        surroundings = self._surroundings(tensors[0])

        def run(call: _Call) -> None:
            self._exchange(call, None, info, check)
            self._release(call)
            with fb.no_grad(), surroundings():
                move(call)

        # A rank whose tensors go another way calls something else.
        return self._call(name, [*strict, f"by {self.engine}"], run, result, async_op, count=count)

    def _swapped(self, call: _Call, outgoing: Sequence[Any], incoming: Sequence[Any]) -> None:
        """As `_swap`, with the own part."""
        own = outgoing[self._rank]
        if own is not None and incoming[self._rank] is not None:
            incoming[self._rank].copy_(own)
        self._swap(call, outgoing, incoming)

    def _received(self, call: _Call, outgoing: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Exchange parts, and write what came into `outputs`; they may share memory with what goes out."""
        incoming = [None if output is None else _room(output, output.numel()) for output in outputs]
        self._swapped(call, outgoing, incoming)
        for output, part in zip(outputs, incoming, strict=True):
            if output is not None:
                _write(output, part)

    def all_reduce(self, tensors: Sequence[Any], op: Any, async_op: bool, name: str = "all_reduce") -> Work:
        if not self._takes(tensors[0]):
            return super().all_reduce(tensors, op, async_op, name)
        how = check_reducible(name, op, tensors[0])
        _one_dtype(name, tensors)

        def move(call: _Call) -> None:
            flat = fb.cat([_flat(tensor) for tensor in tensors])
            if self._combines(flat, how):
                self._all_reduce(call, flat, how)
            else:
                flat = self._in_order_of_ranks(call, flat, how)
            at = 0
            for tensor in tensors:
                _write(tensor, flat[at : at + tensor.numel()])
                at += tensor.numel()

        strict = [[_describe(tensor) for tensor in tensors], str(how[0])]
        return self._moved(name, strict, move, tensors, list(tensors), async_op, bytes_of(tensors), _factor(how))

    def _in_order_of_ranks(self, call: _Call, flat: Any, how: Any) -> Any:
        """Each rank combines one piece, and all get the pieces: what is sent is what a ring would send."""
        step = -(-flat.numel() // self._size)
        padded = fb.cat([flat, flat.new_zeros(step * self._size - flat.numel())])
        pieces = [padded[at * step : (at + 1) * step] for at in range(self._size)]
        incoming = [_room(flat, step) for _ in pieces]
        self._swapped(call, pieces, incoming)
        gathered = _room(flat, step * self._size)
        self._join(call, gathered, combined(incoming, how))
        return gathered[: flat.numel()]

    def broadcast(self, tensors: Sequence[Any], root: int, async_op: bool, name: str = "broadcast") -> Work:
        if not self._takes(tensors[0]):
            return super().broadcast(tensors, root, async_op, name)

        def move(call: _Call) -> None:
            for tensor in tensors:
                flat = _flat(tensor)
                self._spread(call, flat, root)
                _write(tensor, flat)

        strict = [[[str(t.dtype), t.numel()] for t in tensors], f"from {self.ranks[root]}"]
        return self._moved(name, strict, move, tensors, list(tensors), async_op, bytes_of(tensors))

    def reduce(self, tensor: Any, root: int, op: Any, async_op: bool) -> Work:
        if not self._takes(tensor):
            return super().reduce(tensor, root, op, async_op)
        how = check_reducible("reduce", op, tensor)

        def move(call: _Call) -> None:
            flat = _flat(tensor)
            here = self._rank == root
            if self._combines(flat, how):
                flat = flat.clone()  # what other ranks have in it is not told
                self._reduce(call, flat, root, how)
            else:
                incoming = [_room(flat, flat.numel()) if here else None for _ in self.ranks]
                self._swapped(call, [flat if at == root else None for at in range(self._size)], incoming)
                flat = combined(incoming, how) if here else flat
            if here:
                _write(tensor, flat)

        strict = [[_describe(tensor)], str(how[0]), f"to {self.ranks[root]}"]
        return self._moved("reduce", strict, move, [tensor], [tensor], async_op, bytes_of([tensor]), _factor(how))

    def all_gather(self, outputs: Sequence[Any], tensor: Any, async_op: bool, name: str = "all_gather") -> Work:
        if not self._takes(tensor):
            return super().all_gather(outputs, tensor, async_op, name)
        self._check_count(name, "the output list", outputs)
        _one_dtype(name, [tensor, *outputs])
        sizes = [output.numel() for output in outputs]

        def check(infos: list[Any]) -> str:
            return _uneven([[size] * len(infos) for size, _ in infos], [wanted for _, wanted in infos])

        def move(call: _Call) -> None:
            flat = _flat(tensor)
            if len(set(sizes)) > 1:
                self._received(call, [flat] * self._size, outputs)
                return
            gathered = _room(flat, sum(sizes))
            self._join(call, gathered, flat)
            for output, part in zip(outputs, gathered.view(self._size, -1) if sizes[0] else [gathered] * self._size, strict=True):
                _write(output, part)

        info = [tensor.numel(), sizes]
        return self._moved(name, [str(tensor.dtype)], move, [tensor], list(outputs), async_op, bytes_of(outputs), info, check)

    def gather(self, outputs: Sequence[Any], tensor: Any, root: int, async_op: bool) -> Work:
        if not self._takes(tensor):
            return super().gather(outputs, tensor, root, async_op)
        here = self._rank == root
        if here:
            self._check_count("gather", "gather_list", outputs)
            _one_dtype("gather", [tensor, *outputs])

        def check(infos: list[Any]) -> str:
            wanted, sizes = infos[root][1], [size for size, _ in infos]
            if wanted == sizes:
                return ""
            return f"the gather_list of rank {self.ranks[root]} has room for {wanted} elements, ranks have {sizes}"

        def move(call: _Call) -> None:
            outgoing = [_flat(tensor) if at == root else None for at in range(self._size)]
            self._received(call, outgoing, outputs if here else [None] * self._size)

        info = [tensor.numel(), [output.numel() for output in outputs]]
        strict = [[_describe(tensor)], f"to {self.ranks[root]}"]
        count = bytes_of([tensor]) * self._size
        return self._moved("gather", strict, move, [tensor], list(outputs), async_op, count, info, check)

    def scatter(self, tensor: Any, inputs: Sequence[Any], root: int, async_op: bool) -> Work:
        if not self._takes(tensor):
            return super().scatter(tensor, inputs, root, async_op)
        here = self._rank == root
        if here:
            self._check_count("scatter", "scatter_list", inputs)
            _one_dtype("scatter", [tensor, *inputs])

        def check(infos: list[Any]) -> str:
            given, sizes = infos[root][1], [size for size, _ in infos]
            if given == sizes:
                return ""
            return f"the scatter_list of rank {self.ranks[root]} has {given} elements, ranks have room for {sizes}"

        def move(call: _Call) -> None:
            outgoing = [_flat(source) for source in inputs] if here else [None] * self._size
            self._received(call, outgoing, [tensor if at == root else None for at in range(self._size)])

        info = [tensor.numel(), [source.numel() for source in inputs]]
        strict = [[_describe(tensor)], f"from {self.ranks[root]}"]
        count = bytes_of([tensor]) * self._size
        return self._moved("scatter", strict, move, [tensor], [tensor], async_op, count, info, check)

    def reduce_scatter(self, output: Any, inputs: Sequence[Any], op: Any, async_op: bool, name: str = "reduce_scatter") -> Work:
        if not self._takes(output):
            return super().reduce_scatter(output, inputs, op, async_op, name)
        how = check_reducible(name, op, output)
        self._check_count(name, "the input list", inputs)
        _one_dtype(name, [output, *inputs])
        sizes = [source.numel() for source in inputs]

        def check(infos: list[Any]) -> str:
            return _uneven([given for _, given in infos], [[size] * len(infos) for size, _ in infos])

        def move(call: _Call) -> None:
            parts = [_flat(source) for source in inputs]
            part = _room(output, output.numel())
            if len(set(sizes)) == 1 and self._combines(part, how):
                self._reduce_scatter(call, part, fb.cat(parts), how)
            else:
                incoming = [_room(output, output.numel()) for _ in parts]
                self._swapped(call, parts, incoming)
                part = combined(incoming, how)
            _write(output, part)

        info = [output.numel(), sizes]
        strict = [str(output.dtype), str(how[0])]
        return self._moved(name, strict, move, [output], [output], async_op, bytes_of(inputs), info, check)

    def all_to_all(self, outputs: Sequence[Any], inputs: Sequence[Any], async_op: bool, name: str = "all_to_all") -> Work:
        if not self._takes(outputs[0]):
            return super().all_to_all(outputs, inputs, async_op, name)
        self._check_count(name, "the output list", outputs)
        self._check_count(name, "the input list", inputs)
        _one_dtype(name, [*outputs, *inputs])

        def check(infos: list[Any]) -> str:
            return _uneven([given for given, _ in infos], [wanted for _, wanted in infos])

        info = [[source.numel() for source in inputs], [output.numel() for output in outputs]]
        return self._moved(
            name, [str(outputs[0].dtype)], lambda call: self._received(call, [_flat(source) for source in inputs], outputs),
            outputs, list(outputs), async_op, bytes_of(inputs), info, check,
        )  # fmt: skip


def _flat(tensor: Any) -> Any:
    return tensor.detach().contiguous().view(-1)


def _room(like: Any, count: int) -> Any:
    return fb.empty(count, dtype=like.dtype, device=like.device)


def _write(tensor: Any, flat: Any) -> None:
    tensor.detach().copy_(flat.view(tensor.shape))


_COMBINE: dict[RedOpType, Callable[[Any, Any], Any]] = {
    RedOpType.SUM: fb.add,
    RedOpType.AVG: fb.add,
    RedOpType.PREMUL_SUM: fb.add,
    RedOpType.PRODUCT: fb.mul,
    RedOpType.MIN: fb.minimum,
    RedOpType.MAX: fb.maximum,
    RedOpType.BAND: fb.bitwise_and,
    RedOpType.BOR: fb.bitwise_or,
    RedOpType.BXOR: fb.bitwise_xor,
}


def combined(parts: Sequence[Any], how: tuple[RedOpType, float | None]) -> Any:
    """A new tensor: `parts`, one of each rank, combined from rank 0 on as `_reduce.reduce_arrays` does on the host."""
    kind, factor = how
    given = parts[0].dtype
    wide = given
    if given.is_complex and given.itemsize < 8:
        wide = fb.complex64
    elif given.is_floating_point and given.itemsize < 4:
        wide = fb.float32
    exact = given.is_floating_point or given.is_complex

    def term(part: Any) -> Any:
        part = part.to(wide)
        if factor is None:
            return part
        return (part * factor if exact else part.double() * factor).to(wide)

    total = term(parts[0]).clone()
    for part in parts[1:]:
        total = _COMBINE[kind](total, term(part))
    if kind is RedOpType.AVG:
        total = total / len(parts) if exact else fb.div(total, len(parts), rounding_mode="trunc")
    return total.to(given)
