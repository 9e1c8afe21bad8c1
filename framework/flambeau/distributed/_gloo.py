"""The engine over shared memory and sockets.

Each collective begins with every rank telling every other what it calls: the number of the call in its group, the operation,
dtypes and shapes, and the line of the program. Small data travels with that; larger data lies in memory that the
ranks of one machine share, or follows over the socket. Nothing is read before all ranks are known to mean the same call.

Between processes of one machine the first call of a group goes over sockets and tells where each rank's board lies (`_board.py`);
later ones are told there.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from ..tensor import bump
from . import _mesh
from ._board import BLOCK, Board, boards_work_here, spins_for
from ._engine import ProcessGroup, Work
from ._errors import DistBackendError
from ._ledger import Entry, bytes_of, call_site, dump_of_failure, note
from ._pack import pack, unpack
from ._reduce import check_reducible, reduce_arrays, reduce_into

__all__ = ["GlooGroup"]

INLINE = 32768  # bytes up to which data travels with the announcement
_SMALLEST_SEGMENT = 1 << 20


def _array(tensor: Any, name: str) -> np.ndarray:
    array = getattr(tensor, "_array", None)
    if not isinstance(array, np.ndarray):
        place = getattr(tensor, "device", None)
        raise NotImplementedError(f"{name}: the engine gloo takes tensors of the CPU, got one of {place or type(tensor).__name__}")
    return array


def _describe(tensor: Any) -> list[Any]:
    return [str(tensor.dtype), list(tensor.shape)]


def _text(strict: Any) -> str:
    """What a rank called, for people: dtypes with shapes, then what else counts."""
    parts = []
    for item in strict:
        if isinstance(item, list) and item and all(isinstance(pair, list) and len(pair) == 2 for pair in item):
            parts += [f"{kind} {tuple(shape) if isinstance(shape, list) else shape}" for kind, shape in item[:4]]
            parts += ["..."] * (len(item) > 4)
        elif item is not None:
            parts.append(str(item))
    return ", ".join(parts)


class _Call:
    """One collective of one rank: what it is called with, and what has come of it."""

    __slots__ = ("end", "entry", "name", "seq", "site", "strict", "waits")

    def __init__(self, name: str, seq: int, strict: list[Any], site: str, end: float, entry: Entry, waits: bool) -> None:
        self.name, self.seq, self.strict, self.site, self.end, self.entry = name, seq, strict, site, end, entry
        self.waits = waits  # the program waits; in the group's thread a call sleeps at once, for the program computes


class GlooGroup(ProcessGroup):
    """Ranks of one job on connections that all groups share.

    Args:
        mesh: the connections.
        ranks: the members, as ranks of the job, in the order of the group.
        name: the group's name, the same on all members.
        timeout: how long a call waits for the other ranks.
    """

    engine = "gloo"

    def __init__(self, mesh: _mesh.Mesh, ranks: Sequence[int], name: str, timeout: timedelta) -> None:
        super().__init__(list(ranks).index(mesh.rank), len(ranks), name, timeout)
        self._mesh = mesh
        self.ranks = list(ranks)
        self._others = [rank for rank in ranks if rank != mesh.rank]
        # Frames carry a number for the group. Names are agreed upon, so their digests are too.
        self._id = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
        self._next = itertools.count(1)
        self._shares = set(ranks) <= mesh.shares_memory
        self._segments: list[_mesh.Segment | None] = [None, None]
        self._posts = itertools.count(1)
        # What waits until the others have read a segment; it gives the ranks that have not.
        self._unread: list[Callable[[_Call], list[int]] | None] = [None, None]
        self._board: Board | None = None  # this rank's
        self._board_memory: _mesh.Segment | None = None
        self._boards: dict[int, Board] | None = None  # those of the others, by rank of the job; None where messages are sent
        self._without: set[int] = set(self._others)  # ranks whose first call has not been heard
        self._turn = 0
        self._reads = False

    # One call

    def _call(
        self,
        name: str,
        strict: list[Any],
        run: Callable[[_Call], None],
        result: Any,
        async_op: bool,
        timeout: timedelta | None = None,
        *,
        count: int = 0,
    ) -> Work:
        seq, site = next(self._next), call_site()
        entry = note(self._name, self._size, seq, name, _text(strict), count, site)
        seconds = (timeout or self.timeout).total_seconds()
        if not async_op and not self._queue:
            call = _Call(name, seq, strict, site, time.monotonic() + seconds, entry, True)
        else:
            call = _Call(name, seq, strict, site, float("inf"), entry, False)

        def carry_out() -> None:
            if call.end == float("inf"):
                call.end = time.monotonic() + seconds  # the wait begins when the call's turn comes
            try:
                run(call)
            except BaseException:
                entry.end("failed")
                dump_of_failure(self._mesh.rank)
                raise
            entry.end("completed")

        return self._submit(carry_out, result, async_op)

    def _exchange(
        self, call: _Call, data: dict[int, np.ndarray] | np.ndarray | None, info: Any = None, check: Any = None
    ) -> dict[int, np.ndarray]:
        """Announce `call` to all, with `data` for all or for some group ranks; what the others sent for this one.

        Args:
            call: what is called.
            data: bytes, one array for all or by group rank.
            info: what ranks may differ in, such as uneven sizes.
            check: called with all infos by group rank; the text it returns is what is wrong, on all ranks.
        Returns: bytes by group rank, this one's own among them; where an array lies in shared memory it is valid until
            `_release`.
        """
        if call.seq > 1 and self._has_boards(call):
            return self._exchange_on_boards(call, data, info, check)
        mesh = self._mesh
        refs = self._post(0, data, call)
        board = self._make_board() if call.seq == 1 else None
        for at, peer in enumerate(self.ranks):
            if peer != mesh.rank:
                payload, ref = self._part(data, refs, at)
                meta = [call.name, call.strict, call.site, info, ref, board]
                mesh.send(peer, _mesh.CALL, self._id, call.seq, meta, *payload)
        came = mesh.take(_mesh.CALL, self._id, call.seq, self._others, call.end)
        if call.seq == 1:
            self._find_boards(came)
        if len(came) < len(self._others):
            raise self._lonely(call, came)
        found: dict[int, np.ndarray] = {}
        wrong = self._differences(call, came, info, check)
        for at, peer in enumerate(self.ranks):
            if peer == mesh.rank:
                own = data.get(at) if isinstance(data, dict) else data
                if own is not None:
                    found[at] = own
                continue
            meta, payload = came[peer]
            if meta[4] is not None:
                if wrong:
                    mesh.send(peer, _mesh.ACK, self._id, meta[4][0])
                else:
                    found[at] = self._map(peer, meta[4])
            elif len(payload):
                found[at] = np.frombuffer(payload, np.uint8)
        if wrong:
            raise DistBackendError(wrong)
        call.entry.state = "exchanging"
        self._borrowed = [(peer, meta[4][0]) for peer, (meta, _) in came.items() if meta[4] is not None]
        return found

    _borrowed: list[tuple[int, int]] = []

    def _release(self, call: _Call) -> None:
        """Tell the owners of shared memory that it has been read."""
        if self._reads:
            assert self._board is not None
            self._board.finish(call.seq)
            self._reads = False
        for peer, post in self._borrowed:
            self._mesh.send(peer, _mesh.ACK, self._id, post)
        self._borrowed = []

    def _second(self, call: _Call, data: np.ndarray | None, to: Sequence[int] | None, of: Sequence[int]) -> dict[int, np.ndarray]:
        """The second half of a call: send `data` to the group ranks `to`, None for all, and get that of the ranks `of`."""
        mesh = self._mesh
        targets = [at for at in (range(self._size) if to is None else to) if at != self._rank]
        refs = self._post(1, dict.fromkeys(targets, data) if data is not None else None, call, shared=True)
        for at in targets:
            payload, ref = self._part(data, refs, at)
            mesh.send(self.ranks[at], _mesh.SECOND, self._id, call.seq, [ref], *payload)
        sources = [self.ranks[at] for at in of if at != self._rank]
        came = mesh.take(_mesh.SECOND, self._id, call.seq, sources, call.end)
        if len(came) < len(sources):
            raise self._lonely(call, came, sources)
        found = {}
        for at in of:
            if at == self._rank:
                continue
            meta, payload = came[self.ranks[at]]
            if meta[0] is not None:
                found[at] = self._map(self.ranks[at], meta[0])
                self._borrowed.append((self.ranks[at], meta[0][0]))
            else:
                found[at] = np.frombuffer(payload, np.uint8)
        return found

    def _part(self, data: Any, refs: dict[int, Any] | None, at: int) -> tuple[tuple[Any, ...], Any]:
        """What goes to group rank `at`: the bytes themselves, or where they lie."""
        if refs is not None:
            return (), refs.get(at)
        piece = data.get(at) if isinstance(data, dict) else data
        return (() if piece is None else (piece,)), None

    def _post(self, which: int, data: Any, call: _Call, shared: bool = False) -> dict[int, Any] | None:
        """Put what is large into shared memory and say where, for each group rank; None where it travels by socket."""
        if data is None or not self._shares or self._size == 1:
            return None
        one = not isinstance(data, dict)
        pieces = {-1: data} if one else {at: piece for at, piece in data.items() if at != self._rank and piece is not None}
        if shared and pieces:
            pieces, one = {-1: next(iter(pieces.values()))}, True  # the same for all
        total = sum(piece.nbytes + 63 & ~63 for piece in pieces.values())
        if total <= INLINE:
            return None
        readers = [
            peer
            for at, peer in enumerate(self.ranks)
            if peer != self._mesh.rank and (at in data if isinstance(data, dict) else True)
        ]
        segment = self._segment(which, total, call)
        post = next(self._posts)
        refs: dict[int, Any] = {}
        at_byte = 0
        for at, piece in pieces.items():
            view = np.frombuffer(segment.memory, np.uint8, piece.nbytes, at_byte)
            np.copyto(view, piece)
            refs[at] = [post, segment.serial, segment.descriptor, segment.size, at_byte, piece.nbytes]
            at_byte += piece.nbytes + 63 & ~63
        if call.seq > 1 and self._boards is not None:
            self._unread[which] = lambda now: self._not_finished(now, call.seq, readers)
        else:
            self._unread[which] = lambda now: self._not_acknowledged(now, post, readers)
        return {self.ranks.index(peer): refs[-1] for peer in readers} if one else refs

    def _segment(self, which: int, total: int, call: _Call) -> _mesh.Segment:
        unread = self._unread[which]
        if unread is not None:
            missing = unread(call)
            if missing:
                raise self._lonely(call, {}, missing)
            self._unread[which] = None
        segment = self._segments[which]
        if segment is None or segment.size < total:
            if segment is not None:
                segment.close()
            segment = self._segments[which] = _mesh.Segment(max(_SMALLEST_SEGMENT, 1 << (total - 1).bit_length()))
        return segment

    def _map(self, peer: int, ref: list[int]) -> np.ndarray:
        _, serial, descriptor, size, at, count = ref
        return np.frombuffer(self._mesh.memory_of(peer, serial, descriptor, size), np.uint8, count, at)

    def _not_acknowledged(self, call: _Call, post: int, readers: list[int]) -> list[int]:
        found = self._mesh.take(_mesh.ACK, self._id, post, readers, call.end)
        return [peer for peer in readers if peer not in found]

    def _not_finished(self, call: _Call, seq: int, readers: list[int]) -> list[int]:
        assert self._boards is not None
        gone = self._mesh.gone
        boards = self._boards
        return [
            peer for peer in readers if not boards[peer].wait_finished(seq, call.end, functools.partial(gone.__contains__, peer))
        ]

    # Calls that are told on boards

    def _make_board(self) -> list[int] | None:
        """Make this rank's board, where all ranks may read it; where it lies."""
        if not self._shares or self._size == 1 or not boards_work_here():
            return None
        self._board, memory = Board.make()
        self._board_memory, self._boards = memory, {}
        self._mesh.boards.append(self._heard)
        return [memory.serial, memory.descriptor, memory.size]

    def _find_boards(self, came: dict[int, tuple[Any, Any]]) -> None:
        """Open the boards that the first calls told of."""
        self._without -= came.keys()
        for peer, (meta, _) in came.items():
            if self._boards is None:
                return
            if meta[5] is None:
                self._boards = None  # one that does not share memory with all: nobody uses boards
                return
            try:
                self._boards[peer] = Board(self._mesh.memory_of(peer, *meta[5]), spins_for(self._size))
            except OSError:
                # It left after its first call; the next call of this rank finds no board, and says that it is gone.
                self._without.add(peer)

    def _has_boards(self, call: _Call) -> bool:
        """Whether the group's calls are told on boards; where first calls were not heard in time, they are waited for."""
        if self._without:
            came = self._mesh.take(_mesh.CALL, self._id, 1, self._without, call.end)
            self._find_boards(came)
            if self._without:
                raise self._lonely(call, {}, sorted(self._without))
        return self._boards is not None

    def _heard(self, peer: int) -> tuple[float, str] | None:
        board = (self._boards or {}).get(peer)
        last = board.latest() if board else None
        if last is None or last.by_socket:
            return None
        name, _, site = unpack(last.head)
        return last.when, f"{name} #{last.number} at {site}"

    def _exchange_on_boards(self, call: _Call, data: Any, info: Any, check: Any) -> dict[int, np.ndarray]:
        """As `_exchange`, after the first call."""
        board, mesh = self._board, self._mesh
        assert board is not None
        refs = self._post(0, data, call)
        table, flat = None, None
        if refs is None and data is not None:
            if isinstance(data, dict):
                table, flat = _side_by_side(data, self._rank)
            else:
                flat = data
        head = pack([call.name, call.strict, call.site])
        plain = info is None and refs is None and table is None
        tail = b"" if plain else pack([info, refs, table])
        if not board.write(call.seq, head, tail, flat, self._turn):
            meta = [call.name, call.strict, call.site, info, refs, table]
            for peer in self._others:
                mesh.send(peer, _mesh.CALL, self._id, call.seq, meta, *(() if flat is None else (flat,)))
        board.post(call.seq)
        self._wait_all(call, 0)
        came = {peer: self._posted(call, peer, head) for peer in self._others}
        self._turns = {peer: found[2] for peer, found in came.items()}
        # What is the same on all ranks to the byte needs no reading.
        if check is not None or any(meta is not None for meta, _, _ in came.values()):
            own = (call.name, call.strict, call.site, info, None, None)
            metas = {peer: (meta or own, payload) for peer, (meta, payload, _) in came.items()}
            wrong = self._differences(call, metas, info, check)
            if wrong:
                board.finish(call.seq)
                raise DistBackendError(wrong)
        call.entry.state = "exchanging"
        found: dict[int, np.ndarray] = {}
        for at, peer in enumerate(self.ranks):
            if peer == mesh.rank:
                own = data.get(at) if isinstance(data, dict) else data
                if own is not None:
                    found[at] = own
                continue
            meta, payload, _ = came[peer]
            theirs, places = (None, None) if meta is None else (meta[4], meta[5])
            if theirs is not None:
                if self._rank in theirs:
                    found[at] = self._map(peer, theirs[self._rank])
                    self._reads = True
            elif places is None:
                if len(payload):
                    found[at] = payload
            elif self._rank in places:
                begin, count = places[self._rank]
                found[at] = payload[begin : begin + count]
        return found

    _turns: dict[int, int] = {}

    def _wait_all(self, call: _Call, phase: int) -> None:
        """Wait until all others have come to this step of `call`."""
        boards, gone = self._boards, self._mesh.gone
        assert boards is not None

        def lost() -> bool:
            return bool(gone) and any(peer in gone and not boards[peer].has(call.seq, phase) for peer in self._others)

        for peer in self._others:
            if not boards[peer].wait(call.seq, phase, call.end, lost, call.waits):
                missing = [one for one in self._others if not boards[one].has(call.seq, phase)]
                raise self._lonely(call, {}, missing or [peer])

    def _posted(self, call: _Call, peer: int, head: bytes) -> tuple[Any, Any, int]:
        """What `peer` posted for `call`: None or what it says, its data, and the turn of its ring."""
        assert self._boards is not None
        found = self._boards[peer].read(call.seq)
        if found.number != call.seq:
            raise DistBackendError(
                f"{call.name}: call {call.seq} of group {self._name!r} ({_text(call.strict)}) at {call.site}: "
                f"rank {peer} has given this call up and gone on to call {found.number}; this rank came too late"
            )
        if found.by_socket:
            came = self._mesh.take(_mesh.CALL, self._id, call.seq, [peer], call.end)
            if peer not in came:
                raise self._lonely(call, {}, [peer])
            meta, payload = came[peer]
            return meta, np.frombuffer(payload, np.uint8), found.turn
        if found.head == head and not found.tail:
            return None, found.data, found.turn
        tail = unpack(found.tail) if found.tail else [None, None, None]
        return [*unpack(found.head), *tail], found.data, found.turn

    # What can be wrong

    def _differences(self, call: _Call, came: dict[int, tuple[Any, Any]], info: Any, check: Any) -> str:
        mesh = self._mesh
        metas = {
            peer: (call.name, call.strict, call.site, info) if peer == mesh.rank else came[peer][0] for peer in self.ranks
        }
        first = metas[self.ranks[0]]
        if any(meta[0] != first[0] or meta[1] != first[1] for meta in metas.values()):
            return self._table(call, metas, "ranks called different things")
        if check is not None:
            wrong = check([metas[peer][3] for peer in self.ranks])
            if wrong:
                return self._table(call, metas, wrong)
        return ""

    def _table(self, call: _Call, metas: dict[int, Any], title: str) -> str:
        rows = [
            f"  rank {peer}  {meta[0]}({_text(meta[1])}{'' if meta[3] is None else f'; sizes {meta[3]}'})  at {meta[2]}"
            for peer, meta in sorted(metas.items())
        ]
        names = "/".join(dict.fromkeys(meta[0] for meta in metas.values()))
        return "\n".join([f"{names}: call {call.seq} of group {self._name!r}: {title}", *rows])

    def _lonely(self, call: _Call, came: dict[int, Any], wanted: Sequence[int] | None = None) -> DistBackendError:
        """The error of a call that not all ranks came to."""
        with self._mesh.changed:
            missing = [peer for peer in (wanted or self._others) if peer not in came]
            states = [self._mesh.condition_of(peer) for peer in missing]
        dead = [peer for peer in missing if peer in self._mesh.gone]
        if dead:
            title = f"rank {', '.join(map(str, dead))} is gone"
        else:
            title = f"rank {', '.join(map(str, missing))} did not come within {time.monotonic() - call.entry.began:.1f} s (timeout)"
        lines = [f"{call.name}: call {call.seq} of group {self._name!r} ({_text(call.strict)}) at {call.site}: {title}"]
        return DistBackendError("\n  ".join([*lines, *states, "flambeau.distributed.ledger() lists the calls of this rank"]))

    # Collectives

    def all_reduce(self, tensors: Sequence[Any], op: Any, async_op: bool, name: str = "all_reduce") -> Work:
        arrays = [_array(tensor, name) for tensor in tensors]
        how = check_reducible(name, op, tensors[0])
        _one_dtype(name, tensors)
        strict = [[_describe(tensor) for tensor in tensors], str(how[0])]

        def run(call: _Call) -> None:
            flat = _flat(arrays)
            total = self._all_reduced(call, flat, how)
            _store_flat(tensors, arrays, total)
            self._release(call)

        return self._call(name, strict, run, list(tensors), async_op, count=bytes_of(tensors))

    def _all_reduced(self, call: _Call, flat: np.ndarray, how: Any) -> np.ndarray:
        if flat.nbytes <= INLINE or self._size == 1:
            parts = self._exchange(call, _bytes(flat), _factor(how))
            return reduce_arrays(how, self._in_order(parts, flat, how))
        if call.seq > 1 and self._has_boards(call):
            self._combine_in_blocks(call, flat, how)
            return flat
        # Each rank combines one piece, in the order of ranks, and all get the pieces.
        ends = [flat.size * at // self._size for at in range(self._size + 1)]
        raw, unit = _bytes(flat), flat.itemsize
        mine = slice(ends[self._rank], ends[self._rank + 1])
        if self._shares:
            parts = self._exchange(call, raw, _factor(how))
            pieces = {at: part[mine.start * unit : mine.stop * unit] for at, part in parts.items()}
        else:
            pieces = self._exchange(
                call, {at: raw[ends[at] * unit : ends[at + 1] * unit] for at in range(self._size)}, _factor(how)
            )
        reduced = reduce_arrays(how, self._in_order(pieces, flat, how))
        total = np.empty_like(flat)
        total[mine] = reduced
        for at, piece in self._second(call, _bytes(reduced), None, range(self._size)).items():
            _bytes(total)[ends[at] * unit : ends[at + 1] * unit] = piece
        return total

    def _combine_in_blocks(self, call: _Call, flat: np.ndarray, how: Any) -> None:
        """Combine `flat` in place, block by block: each rank combines one piece of a block on its board, and all copy the pieces.

        A block lies in one half of the ring, the next in the other one. A rank that has posted a block has read the
        one before, so nothing is written over that anybody still reads.
        """
        board, boards, turns = self._board, self._boards, self._turns
        assert board is not None
        assert boards is not None
        step = BLOCK // flat.itemsize
        for number, begin in enumerate(range(0, flat.size, step)):
            block = flat[begin : begin + step]
            ends = [block.size * at // self._size for at in range(self._size + 1)]
            own = board.block(self._turn)[: block.nbytes].view(block.dtype)
            mine = slice(ends[self._rank], ends[self._rank + 1])
            own[: mine.start] = block[: mine.start]
            own[mine.stop :] = block[mine.stop :]
            if number == 0:
                self._exchange_on_boards(call, None, _factor(how), None)
                turns = self._turns
            else:
                board.post(call.seq, 2 * number)
                self._wait_all(call, 2 * number)
            theirs = {
                peer: boards[peer].block(turns[peer] + number)[: block.nbytes].view(block.dtype) for peer in self._others
            }
            terms = [block[mine] if peer == self._mesh.rank else theirs[peer][mine] for peer in self.ranks]
            reduce_into(how, terms, own[mine])
            block[mine] = own[mine]
            board.post(call.seq, 2 * number + 1)
            self._wait_all(call, 2 * number + 1)
            for at, peer in enumerate(self.ranks):
                if peer != self._mesh.rank:
                    piece = slice(ends[at], ends[at + 1])
                    block[piece] = theirs[peer][piece]
            self._turn += 1

    def _in_order(self, parts: dict[int, np.ndarray], like: np.ndarray, how: Any) -> list[np.ndarray]:
        empty = np.empty(0, np.uint8)
        return [parts.get(at, empty).view(like.dtype) for at in range(self._size)]

    def broadcast(self, tensors: Sequence[Any], root: int, async_op: bool, name: str = "broadcast") -> Work:
        arrays = [_array(tensor, name) for tensor in tensors]
        strict = [[[str(t.dtype), t.numel()] for t in tensors], f"from {self.ranks[root]}"]

        def run(call: _Call) -> None:
            data = np.concatenate([_bytes(_contiguous(array)) for array in arrays]) if self._rank == root else None
            parts = self._exchange(call, data)
            if self._rank != root:
                _store_bytes(tensors, arrays, parts.get(root, np.empty(0, np.uint8)))
            self._release(call)

        return self._call(name, strict, run, list(tensors), async_op, count=bytes_of(tensors))

    def reduce(self, tensor: Any, root: int, op: Any, async_op: bool) -> Work:
        array = _array(tensor, "reduce")
        how = check_reducible("reduce", op, tensor)

        def run(call: _Call) -> None:
            flat = _contiguous(array).reshape(-1)
            parts = self._exchange(call, {root: _bytes(flat)}, _factor(how))
            if self._rank == root:
                _store_flat([tensor], [array], reduce_arrays(how, self._in_order(parts, flat, how)))
            self._release(call)

        strict = [[_describe(tensor)], str(how[0]), f"to {self.ranks[root]}"]
        return self._call("reduce", strict, run, [tensor], async_op, count=bytes_of([tensor]))

    def all_gather(self, outputs: Sequence[Any], tensor: Any, async_op: bool, name: str = "all_gather") -> Work:
        array = _array(tensor, name)
        targets = [_array(output, name) for output in outputs]
        self._check_count(name, "the output list", outputs)
        _one_dtype(name, [tensor, *outputs])
        info = [array.size, [target.size for target in targets]]

        def check(infos: list[Any]) -> str:
            return _uneven([[size] * len(infos) for size, _ in infos], [wanted for _, wanted in infos])

        def run(call: _Call) -> None:
            parts = self._exchange(call, _bytes(_contiguous(array)), info, check)
            self._store_parts(outputs, targets, parts)
            self._release(call)

        return self._call(name, [str(tensor.dtype)], run, list(outputs), async_op, count=bytes_of(outputs))

    def _store_parts(self, outputs: Sequence[Any], targets: Sequence[np.ndarray], parts: dict[int, np.ndarray]) -> None:
        empty = np.empty(0, np.uint8)
        # This rank's own part may lie in one of the outputs, so it is copied before they are written.
        own = parts.get(self._rank)
        if own is not None:
            parts[self._rank] = own.copy()
        for at, (output, target) in enumerate(zip(outputs, targets, strict=True)):
            _store_bytes([output], [target], parts.get(at, empty))

    def _check_count(self, name: str, what: str, items: Sequence[Any]) -> None:
        if len(items) != self._size:
            raise ValueError(
                f"{name}: {what} holds {len(items)} tensors for a group of {self._size} ranks; it needs one of each rank"
            )

    def gather(self, outputs: Sequence[Any], tensor: Any, root: int, async_op: bool) -> Work:
        array = _array(tensor, "gather")
        targets = [_array(output, "gather") for output in outputs]
        if self._rank == root:
            self._check_count("gather", "gather_list", outputs)
            _one_dtype("gather", [tensor, *outputs])
        info = [array.size, [target.size for target in targets]]

        def check(infos: list[Any]) -> str:
            wanted = infos[root][1]
            sizes = [size for size, _ in infos]
            return (
                ""
                if wanted == sizes
                else f"the gather_list of rank {self.ranks[root]} has room for {wanted} elements, ranks have {sizes}"
            )

        def run(call: _Call) -> None:
            parts = self._exchange(call, {root: _bytes(_contiguous(array))}, info, check)
            if self._rank == root:
                self._store_parts(outputs, targets, parts)
            self._release(call)

        strict = [[_describe(tensor)], f"to {self.ranks[root]}"]
        return self._call("gather", strict, run, list(outputs), async_op, count=bytes_of([tensor]) * self._size)

    def scatter(self, tensor: Any, inputs: Sequence[Any], root: int, async_op: bool) -> Work:
        array = _array(tensor, "scatter")
        sources = [_array(source, "scatter") for source in inputs]
        if self._rank == root:
            self._check_count("scatter", "scatter_list", inputs)
            _one_dtype("scatter", [tensor, *inputs])
        info = [array.size, [source.size for source in sources]]

        def check(infos: list[Any]) -> str:
            given = infos[root][1]
            sizes = [size for size, _ in infos]
            return (
                ""
                if given == sizes
                else f"the scatter_list of rank {self.ranks[root]} has {given} elements, ranks have room for {sizes}"
            )

        def run(call: _Call) -> None:
            data = {at: _bytes(_contiguous(source)) for at, source in enumerate(sources)} if self._rank == root else None
            parts = self._exchange(call, data, info, check)
            _store_bytes([tensor], [array], parts.get(root, np.empty(0, np.uint8)))
            self._release(call)

        strict = [[_describe(tensor)], f"from {self.ranks[root]}"]
        return self._call("scatter", strict, run, [tensor], async_op, count=bytes_of([tensor]) * self._size)

    def reduce_scatter(self, output: Any, inputs: Sequence[Any], op: Any, async_op: bool, name: str = "reduce_scatter") -> Work:
        target = _array(output, name)
        sources = [_array(source, name) for source in inputs]
        how = check_reducible(name, op, output)
        self._check_count(name, "the input list", inputs)
        _one_dtype(name, [output, *inputs])
        info = [target.size, [source.size for source in sources]]

        def check(infos: list[Any]) -> str:
            return _uneven([given for _, given in infos], [[size] * len(infos) for size, _ in infos])

        def run(call: _Call) -> None:
            parts = self._exchange(call, {at: _bytes(_contiguous(source)) for at, source in enumerate(sources)}, info, check)
            _store_flat([output], [target], reduce_arrays(how, self._in_order(parts, target, how)))
            self._release(call)

        return self._call(name, [str(output.dtype), str(how[0])], run, [output], async_op, count=bytes_of(inputs))

    def all_to_all(self, outputs: Sequence[Any], inputs: Sequence[Any], async_op: bool, name: str = "all_to_all") -> Work:
        targets = [_array(output, name) for output in outputs]
        sources = [_array(source, name) for source in inputs]
        self._check_count(name, "the output list", outputs)
        self._check_count(name, "the input list", inputs)
        _one_dtype(name, [*outputs, *inputs])
        info = [[source.size for source in sources], [target.size for target in targets]]

        def check(infos: list[Any]) -> str:
            return _uneven([given for given, _ in infos], [wanted for _, wanted in infos])

        def run(call: _Call) -> None:
            parts = self._exchange(call, {at: _bytes(_contiguous(source)) for at, source in enumerate(sources)}, info, check)
            self._store_parts(outputs, targets, parts)
            self._release(call)

        return self._call(name, [str(outputs[0].dtype)], run, list(outputs), async_op, count=bytes_of(inputs))

    def barrier(self, timeout: timedelta | None, async_op: bool, name: str = "barrier") -> Work:
        return self._call(name, [], lambda call: self._met(call), None, async_op, timeout)

    def _met(self, call: _Call) -> None:
        self._exchange(call, None)

    # Point to point

    def send(self, tensor: Any, peer: int, tag: int) -> Work:
        array = _contiguous(_array(tensor, "send"))
        target = self.ranks[peer]
        site = call_site()
        what = f"{_text([[_describe(tensor)]])}, to {target}, tag {tag}"
        entry = note(self._name, self._size, 0, "send", what, bytes_of([tensor]), site)
        if target in self._mesh.gone:
            entry.end("failed")
            raise DistBackendError(f"send to rank {target} at {site}: {self._mesh.gone[target]}")
        self._mesh.send(target, _mesh.MESSAGE, self._id, tag, [_describe(tensor), site], _bytes(array))
        entry.end("completed")
        work = Work([tensor])
        work._finish()
        return work

    def recv(self, tensor: Any, peer: int | None, tag: int) -> Work:
        array = _array(tensor, "recv")
        sources = self.ranks if peer is None else [self.ranks[peer]]
        site = call_site()
        whom = "any rank" if peer is None else f"rank {sources[0]}"
        what = f"{_text([[_describe(tensor)]])}, from {whom}, tag {tag}"
        entry = note(self._name, self._size, 0, "recv", what, bytes_of([tensor]), site)
        work = Work([tensor])
        mesh = self._mesh

        def fail(error: Exception) -> None:
            entry.end("failed")
            work._finish(error)

        def attempt() -> bool:
            if work.is_completed():
                return True
            found = mesh.message(self._id, sources, tag)
            if found is None:
                gone = [rank for rank in sources if rank in mesh.gone]
                if gone and (peer is not None or len(gone) == len(self._others)):
                    fail(DistBackendError(f"recv from {whom} (tag {tag}) at {site}: {mesh.gone[gone[0]]}"))
                    return True
                return False
            source, meta, payload = found
            (kind, shape), sent_at = meta
            if kind != str(tensor.dtype) or len(payload) != array.nbytes:
                fail(
                    DistBackendError(
                        f"recv: rank {source} sent something else than rank {mesh.rank} receives (tag {tag})\n"
                        f"  rank {source}  send({kind} {tuple(shape)})  at {sent_at}\n"
                        f"  rank {mesh.rank}  recv({tensor.dtype} {tuple(tensor.shape)})  at {site}"
                    )
                )
                return True
            _store_bytes([tensor], [array], np.frombuffer(payload, np.uint8))
            work._source = source
            entry.end("completed")
            work._finish()
            return True

        def begin(seconds: float | None) -> None:
            limit = self.timeout.total_seconds() if seconds is None else seconds
            with mesh.changed:
                if not mesh.changed.wait_for(work.is_completed, limit):
                    states = [mesh.condition_of(rank) for rank in sources if rank != mesh.rank]
                    title = f"recv from {whom} (tag {tag}) at {site}: nothing came within {limit:.1f} s (timeout)"
                    fail(DistBackendError("\n  ".join([title, *states])))

        work._begin = begin
        mesh.on_message(attempt)
        return work

    def close(self) -> None:
        super().close()
        if self._board is not None and self._board_memory is not None:
            self._mesh.boards.remove(self._heard)
            for board in (self._board, *(self._boards or {}).values()):
                board.close()
            self._board_memory.close()
            self._board = self._board_memory = self._boards = None
        for segment in self._segments:
            if segment is not None:
                segment.close()
        self._segments = [None, None]


# Arrays and bytes


def _contiguous(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array)


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _flat(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return (
        _contiguous(arrays[0]).reshape(-1) if len(arrays) == 1 else np.concatenate([array.reshape(-1) for array in arrays])
    )


def _side_by_side(data: dict[int, np.ndarray], rank: int) -> tuple[dict[int, list[int]], np.ndarray | None]:
    """Where each rank's data begins and how long it is, and all of it in one array."""
    pieces = {at: piece for at, piece in data.items() if at != rank and piece is not None}
    table, begin = {}, 0
    for at, piece in pieces.items():
        table[at] = [begin, piece.nbytes]
        begin += piece.nbytes
    return table, np.concatenate(list(pieces.values())) if pieces else None


def _store_flat(tensors: Sequence[Any], arrays: Sequence[np.ndarray], total: np.ndarray) -> None:
    at = 0
    for tensor, array in zip(tensors, arrays, strict=True):
        part = total[at : at + array.size].reshape(array.shape)
        if not _same_memory(part, array):  # what was combined in place is there
            np.copyto(array, part)
        bump(tensor)
        at += array.size


def _same_memory(one: np.ndarray, other: np.ndarray) -> bool:
    return (
        one.__array_interface__["data"] == other.__array_interface__["data"]
        and one.strides == other.strides
        and one.dtype == other.dtype
    )


def _store_bytes(tensors: Sequence[Any], arrays: Sequence[np.ndarray], data: np.ndarray) -> None:
    at = 0
    for tensor, array in zip(tensors, arrays, strict=True):
        np.copyto(array, data[at : at + array.nbytes].view(array.dtype).reshape(array.shape))
        bump(tensor)
        at += array.nbytes


def _one_dtype(name: str, tensors: Sequence[Any]) -> None:
    kinds = {str(tensor.dtype) for tensor in tensors}
    if len(kinds) > 1:
        raise RuntimeError(f"{name}: all tensors of a call must have one dtype, got {', '.join(sorted(kinds))}")


def _factor(how: Any) -> Any:
    return None if how[1] is None else f"factor {how[1]}"


def _uneven(given: list[list[int]], wanted: list[list[int]]) -> str:
    """What ranks give to each other against what they have room for, both by rank and by the other rank."""
    for i, row in enumerate(given):
        for j, size in enumerate(row):
            if wanted[j][i] != size:
                return f"rank {i} of the group gives rank {j} of it {size} elements, which has room for {wanted[j][i]}"
    return ""
