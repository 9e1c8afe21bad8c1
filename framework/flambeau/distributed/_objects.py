"""Collectives on Python objects."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from ._collectives import _peer
from ._engine import ProcessGroup
from ._groups import _group
from ._pack import pack, unpack
from ._point_to_point import recv, send


def _to_tensor(value: Any) -> Any:
    data = bytearray(pack(value))
    return fb.frombuffer(data, dtype=fb.uint8)


def _of_tensor(tensor: Any) -> Any:
    return unpack(tensor._array.tobytes())


def _gathered(found: ProcessGroup, value: Any) -> list[Any]:
    """The bytes of each rank's `value`, as tensors."""
    mine = _to_tensor(value)
    sizes = [fb.zeros(1, dtype=fb.int64, device="cpu") for _ in range(found.size())]
    found.all_gather(sizes, fb.tensor([mine.numel()], device="cpu"), False)
    outputs = [fb.empty(int(size), dtype=fb.uint8, device="cpu") for size in sizes]
    found.all_gather(outputs, mine, False)
    return outputs


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Give all ranks the `obj` of each; it must be data, see `allow_pickle`.

    Args:
        object_list: written; one place for each rank.
        obj: numbers, text, lists, dicts, tensors and the like.
        group: as for `all_reduce`.
    Raises: TypeError for what is no data.
    """
    found = _group("all_gather_object", group)
    if found is None:
        return
    if len(object_list) != found.size():
        raise ValueError(f"all_gather_object: object_list has {len(object_list)} places for {found.size()} ranks")
    object_list[:] = [_of_tensor(tensor) for tensor in _gathered(found, obj)]


def gather_object(
    obj: Any, object_gather_list: Any = None, dst: int | None = None, group: Any = None, group_dst: int | None = None
) -> None:
    """Give one rank the `obj` of each; it must be data, see `allow_pickle`.

    Args:
        obj: as for `all_gather_object`.
        object_gather_list: written on that rank, one place for each; None on the others.
        dst: that rank, in the job; 0 if None. `group_dst` is it in the group.
        group: as for `all_reduce`.
        group_dst: see `dst`.
    """
    found = _group("gather_object", group)
    if found is None:
        return
    root = _peer("gather_object", found, dst, group_dst, "dst", 0)
    if found.rank() == root:
        if object_gather_list is None or len(object_gather_list) != found.size():
            raise ValueError(f"gather_object: object_gather_list must have {found.size()} places on rank {root} of the group")
    elif object_gather_list is not None:
        raise ValueError("Argument ``object_gather_list`` must NOT be specified on non-destination ranks.")
    tensors = _gathered(found, obj)
    if object_gather_list is not None:
        object_gather_list[:] = [_of_tensor(tensor) for tensor in tensors]


def broadcast_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None
) -> None:
    """Give all ranks the objects that one has; they must be data, see `allow_pickle`.

    Args:
        object_list: sent on that rank, written on the others; of one length.
        src: that rank, in the job; 0 if None. `group_src` is it in the group.
        group: as for `all_reduce`.
        device: taken for compatibility.
        group_src: see `src`.
    """
    found = _group("broadcast_object_list", group)
    if found is None:
        return
    root = _peer("broadcast_object_list", found, src, group_src, "src", 0)
    here = found.rank() == root
    data = _to_tensor(list(object_list)) if here else None
    about = fb.tensor([data.numel() if here else 0, len(object_list) if here else 0], device="cpu")
    found.broadcast([about], root, False)
    size, count = about.tolist()
    if count != len(object_list):
        raise ValueError(
            f"broadcast_object_list: rank {root} of the group sends {count} objects, and object_list has {len(object_list)} places"
        )
    tensor = data if here else fb.empty(size, dtype=fb.uint8, device="cpu")
    found.broadcast([tensor], root, False)
    if not here:
        object_list[:] = _of_tensor(tensor)


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: Any = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """Give each rank its object of a list that one has; it must be data, see `allow_pickle`.

    Args:
        scatter_object_output_list: its first place is written.
        scatter_object_input_list: the list, on that rank.
        src: that rank, in the job; 0 if None. `group_src` is it in the group.
        group: as for `all_reduce`.
        group_src: see `src`.
    """
    found = _group("scatter_object_list", group)
    if found is None:
        return
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    root = _peer("scatter_object_list", found, src, group_src, "src", 0)
    here = found.rank() == root
    if here and (scatter_object_input_list is None or len(scatter_object_input_list) != found.size()):
        raise ValueError(f"scatter_object_list: scatter_object_input_list must have {found.size()} objects on rank {root} of the group")
    parts = [_to_tensor(value) for value in scatter_object_input_list] if here else []
    sizes = fb.tensor([part.numel() for part in parts] if here else [0] * found.size(), device="cpu")
    found.broadcast([sizes], root, False)
    mine = fb.empty(int(sizes[found.rank()]), dtype=fb.uint8, device="cpu")
    empty = [fb.empty(0, dtype=fb.uint8, device="cpu")] * found.size()
    outputs = [mine if at == root else empty[at] for at in range(found.size())]
    found.all_to_all(outputs, parts or empty, False)
    scatter_object_output_list[0] = _of_tensor(mine)


def send_object_list(
    object_list: list[Any], dst: int | None = None, group: Any = None, device: Any = None, group_dst: int | None = None
) -> None:
    """Send objects to one rank; they must be data, see `allow_pickle`.

    Args:
        object_list: the objects.
        dst: the rank, in the job; `group_dst` is it in the group.
        group: as for `all_reduce`.
        device: taken for compatibility.
        group_dst: see `dst`.
    """
    data = _to_tensor(list(object_list))
    send(fb.tensor([data.numel(), len(object_list)], device="cpu"), dst, group, 0, group_dst)
    send(data, dst, group, 0, group_dst)


def recv_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None
) -> int:
    """Receive objects that a rank sends, and return that rank; -1 outside of the group.

    Args:
        object_list: written; as long as the list that is sent.
        src: the rank, in the job; None for any. `group_src` is it in the group.
        group: as for `all_reduce`.
        device: taken for compatibility.
        group_src: see `src`.
    """
    about = fb.zeros(2, dtype=fb.int64, device="cpu")
    source = recv(about, src, group, 0, group_src)
    if source == -1:
        return -1
    size, count = about.tolist()
    data = fb.empty(size, dtype=fb.uint8, device="cpu")
    recv(data, source, group)
    if count != len(object_list):
        raise ValueError(f"recv_object_list: rank {source} sent {count} objects, and object_list has {len(object_list)} places")
    object_list[:] = _of_tensor(data)
    return source
