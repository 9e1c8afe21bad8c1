"""The engine mpi: the calls of gloo, checked and combined in the same order, over messages of MPI (the extra ``mpi``)."""

from __future__ import annotations

import atexit
import struct
import threading
import time
from typing import Any

from ._errors import DistBackendError
from ._gloo import GlooGroup
from ._mesh import _HEADER, BYE, Mesh
from ._pack import pack

__all__ = ["MpiGroup", "MpiMesh"]

_LEAVING_SECONDS = 5.0
_TAG = 0


def _mpi() -> Any:
    try:
        from mpi4py import MPI  # pyright: ignore[reportMissingImports]  # an extra
    except ImportError as error:
        raise ImportError(
            f'the engine mpi needs the package mpi4py and a library of MPI: pip install "flambeau[mpi]" ({error})'
        ) from error
    return MPI


class MpiMesh(Mesh):
    """All processes that ``mpiexec`` started, and a thread that takes in what they send.

    Who may take part is the affair of MPI: no job key is asked for.

    Raises: ImportError without the package; DistBackendError for a library of MPI that threads may not call together.
    """

    def __init__(self) -> None:
        self._MPI = _mpi()
        if self._MPI.Query_thread() < self._MPI.THREAD_MULTIPLE:
            raise DistBackendError("init_process_group: the engine mpi needs a library of MPI with MPI_THREAD_MULTIPLE")
        self.communicator = self._MPI.COMM_WORLD.Dup()
        super().__init__(None, self.communicator.Get_rank(), 1, 0.0, "")
        self.size = self.communicator.Get_size()
        self._thread = threading.Thread(target=self._receive, name="from MPI", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def _receive(self) -> None:
        idle, status = 0, self._MPI.Status()
        while not (self._closing and len(self.gone) == self.size - 1) and time.monotonic() < self._deadline:
            # Of our own tag alone: MPI makes groups by messages with the tag that it was given for them.
            message = self.communicator.Improbe(tag=_TAG, status=status)
            if message is None:
                # Answers come soon after questions; a rank that computes is not disturbed.
                idle += 1
                time.sleep(0 if idle < 200 else 5e-5)
                continue
            idle = 0
            frame = bytearray(status.Get_count(self._MPI.BYTE))
            message.Recv([frame, self._MPI.BYTE])
            try:
                self._sort(status.Get_source(), frame)
            except (ValueError, TypeError, struct.error) as error:
                self._lost(status.Get_source(), f"rank {status.Get_source()} sent what is no message: {error}")

    _deadline = float("inf")

    def send(self, peer: int, kind: int, group: int, number: int, meta: Any = None, *payload: Any) -> None:
        """A frame to `peer`; as `Mesh.send`."""
        if peer == self.rank:
            super().send(peer, kind, group, number, meta, *payload)
            return
        packed = b"" if meta is None else pack(meta)
        frame = b"".join([_HEADER.pack(kind, group, number, len(packed)), packed, *(memoryview(part).cast("B") for part in payload)])
        self.communicator.Send([frame, self._MPI.BYTE], dest=peer, tag=_TAG)

    def close(self) -> None:
        """Tell the others, and wait until they have told too: MPI ends when all have called it."""
        if self._closing:
            return
        atexit.unregister(self.close)
        for peer in range(self.size):
            if peer != self.rank:
                self.send(peer, BYE, 0, 0)
        self._deadline = time.monotonic() + _LEAVING_SECONDS
        self._closing = True
        self._thread.join(_LEAVING_SECONDS + 1)


class MpiGroup(GlooGroup):
    """Ranks of a job that ``mpiexec`` started."""

    engine = "mpi"
