"""Sending from one rank to another, one by one and in batches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from ._collectives import _peer, _tensor, _Works
from ._engine import Work
from ._groups import _default, _group, get_global_rank


def isend(tensor: Any, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> Work | None:
    """Send `tensor` to one rank; see `send`."""
    _tensor("isend", "tensor", tensor)
    found = _group("isend", group)
    return None if found is None else found.send(tensor, _peer("isend", found, dst, group_dst, "dst"), _tag("isend", tag))


def irecv(tensor: Any, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> Work | None:
    """Receive into `tensor` when it comes; see `recv`."""
    _tensor("irecv", "tensor", tensor)
    found = _group("irecv", group)
    if found is None:
        return None
    peer = None if src is None and group_src is None else _peer("irecv", found, src, group_src, "src")
    return found.recv(tensor, peer, _tag("irecv", tag))


def _tag(name: str, tag: Any) -> int:
    if isinstance(tag, bool) or not isinstance(tag, int) or tag < 0:
        raise ValueError(f"{name}: tag must be an int that is not negative, got {tag!r}")
    return tag


def send(tensor: Any, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Send `tensor` to one rank, which receives it by `recv`.

    Args:
        tensor: what is sent; it may be changed when this returns.
        dst: the rank, in the job; `group_dst` is it in the group.
        group: as for `all_reduce`.
        tag: a number that the receive names too.
        group_dst: see `dst`.
    Raises: ValueError for sending to oneself; DistBackendError if that rank is gone.
    """
    found = _group("send", group)
    if found is not None and _peer("send", found, dst, group_dst, "dst") == found.rank():
        raise ValueError("Invalid destination rank: destination rank should not be the same as the rank of the current process.")
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(tensor: Any, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """Receive into `tensor` what a rank sends to this one, and return that rank; -1 outside of the group.

    Args:
        tensor: written; of the dtype and number of elements that are sent.
        src: the rank, in the job; None for any. `group_src` is it in the group.
        group: as for `all_reduce`.
        tag: the number that was sent along.
        group_src: see `src`.
    Raises: DistBackendError for another dtype or size, after the timeout, or if that rank is gone.
    """
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    return work.source_rank()


class P2POp:
    """One send or receive of `batch_isend_irecv`.

    Args:
        op: `isend` or `irecv`.
        tensor: what is sent, or written.
        peer: the other rank, in the job; `group_peer` is it in the group.
        group, tag: as for `send`.
        group_peer: see `peer`.
    Raises: ValueError for another `op`.
    """

    def __init__(
        self,
        op: Callable[..., Any],
        tensor: Any,
        peer: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueError("Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or ``torch.distributed.irecv``.")
        self.op, self.tensor, self.group, self.tag = op, _tensor("P2POp", "tensor", tensor), group, tag
        found = _default() if group is None else group
        self.group_peer = _peer("P2POp", found, peer, group_peer, "peer")
        self.peer = get_global_rank(found, self.group_peer)

    def __repr__(self) -> str:
        return f"P2POp({self.op.__name__} pg={self.group}, peer={self.peer}, tag={self.tag}, shape={tuple(self.tensor.shape)})"


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Any]:
    """Start sends and receives, and return their `Work`, in order.

    Args:
        p2p_op_list: of `P2POp`, all of one group.
    Raises: RuntimeError or ValueError for another list.
    """
    if not isinstance(p2p_op_list, list) or not p2p_op_list or not all(isinstance(item, P2POp) for item in p2p_op_list):
        raise ValueError("Invalid ``p2p_op_list``. Each op is expected to to be of type ``torch.distributed.P2POp``.")
    if any(item.group != p2p_op_list[0].group for item in p2p_op_list):
        raise ValueError("All ops need to use the same group.")
    return [
        item.op(item.tensor, group=item.group, tag=item.tag, **{_SIDE[item.op]: item.group_peer}) for item in p2p_op_list
    ]


_SIDE: dict[Any, str] = {isend: "group_dst", irecv: "group_src"}


@contextlib.contextmanager
def _coalescing_manager(group: Any = None, device: Any = None, async_ops: bool = False) -> Iterator[Any]:
    """Calls inside of it run as they come; ``cm.wait()`` waits for those that were appended to it."""
    works = _Works()
    yield works
    if not async_ops:
        works.wait()
