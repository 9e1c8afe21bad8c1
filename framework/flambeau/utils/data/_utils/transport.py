"""How batches travel from a worker process: a pickle, with the memory of arrays beside it.

Each worker has one socket pair. A message is a pickled header, small or large, followed either by the raw
buffers or, where they are worth it, by the descriptor of an anonymous memory file that holds them. The
receiver maps that file and the arrays look straight into the mapping. Such a file has no name, so it cannot
be left behind, however a process ends.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import socket
from typing import Any

import numpy as np

import flambeau as fb

__all__ = ["receive", "send"]

# Below this many bytes a copy through the socket is cheaper than making and mapping a memory file.
_WORTH_MAPPING = 64 * 1024
# Cache line: kernels like arrays to start on one.
_ALIGNMENT = 64
_HAS_MEMORY_FILES = hasattr(os, "memfd_create") and hasattr(socket, "send_fds")


class _BatchPickler(pickle.Pickler):
    """Protocol 5 with buffers out of band; tensors leave as their array."""

    def __init__(self, file: Any, buffers: list[pickle.PickleBuffer]) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffers.append)

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, fb.Tensor):
            return NotImplemented
        if not obj.is_leaf:
            raise RuntimeError(
                "DataLoader: a worker produced a tensor that has autograd history, which cannot leave its "
                "process; "
                "call detach() on it in the dataset or collate_fn"
            )
        if type(obj) is not fb.Tensor or obj.device.type != "cpu" or obj.__dict__:
            return NotImplemented
        # Bytes, because numpy pickles the half types by value instead of as a buffer.
        values = np.ascontiguousarray(obj.detach()._array)
        return _tensor_from_bytes, (
            values.reshape(-1).view(np.uint8), obj.dtype, tuple(obj.shape), obj.requires_grad,
        )


def _tensor_from_bytes(values: np.ndarray, dtype: Any, shape: tuple[int, ...], requires_grad: bool) -> Any:
    from flambeau.tensor import wrap

    made = wrap(values.view(dtype.numpy).reshape(shape))
    return made.requires_grad_() if requires_grad else made


def dumps(obj: Any) -> tuple[bytes, list[memoryview]]:
    """`obj` as a pickle and the buffers that go with it. Raises: what pickling `obj` raises."""
    out = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    _BatchPickler(out, buffers).dump(obj)
    return out.getvalue(), [buffer.raw() for buffer in buffers]


def send(connection: Any, head: Any, body: Any) -> None:
    """Send ``(head, body)`` to the process at the other end.

    Raises: what pickling `body` raises, before anything is sent; OSError if the other end has gone.
    """
    pickled, buffers = dumps(body)
    total = sum(_aligned(buffer.nbytes) for buffer in buffers)
    mapped = _HAS_MEMORY_FILES and total >= _WORTH_MAPPING
    connection.send((head, pickled, [buffer.nbytes for buffer in buffers], mapped))
    if mapped:
        _send_mapped(connection, buffers, total)
    else:
        for buffer in buffers:
            connection.send_bytes(buffer)


def receive(connection: Any) -> tuple[Any, Any]:
    """The next ``(head, load)``, where ``load()`` unpickles the body. Raises: EOFError if the other end has gone."""
    head, pickled, sizes, mapped = connection.recv()
    if mapped:
        buffers = _receive_mapped(connection, sizes)
    else:
        # bytearrays, so that the arrays over them can be written to.
        buffers = [bytearray(connection.recv_bytes()) for _ in sizes]
    return head, lambda: pickle.loads(pickled, buffers=buffers)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _send_mapped(connection: Any, buffers: list[memoryview], total: int) -> None:
    descriptor = os.memfd_create("flambeau-batch", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, total)
        at = 0
        for buffer in buffers:
            _write_all(descriptor, buffer, at)
            at += _aligned(buffer.nbytes)
        with _socket_of(connection) as channel:
            socket.send_fds(channel, [b"f"], [descriptor])
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, buffer: memoryview, at: int) -> None:
    rest = buffer.cast("B")
    while rest.nbytes:
        written = os.pwrite(descriptor, rest, at)
        rest, at = rest[written:], at + written


def _receive_mapped(connection: Any, sizes: list[int]) -> list[memoryview]:
    with _socket_of(connection) as channel:
        note, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
    if not note:
        raise EOFError
    try:
        view = memoryview(mmap.mmap(descriptors[0], 0))
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    buffers, at = [], 0
    for size in sizes:
        buffers.append(view[at : at + size])
        at += _aligned(size)
    return buffers


def _socket_of(connection: Any) -> socket.socket:
    """The socket below a multiprocessing connection (a duplicate descriptor, to be closed)."""
    return socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)
