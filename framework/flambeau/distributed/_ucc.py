"""The engine ucc: calls are told and checked as those of mpi, and collectives of an Open MPI that was built with UCC move the elements."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from ._errors import DistBackendError
from ._gloo import _bytes, _Call
from ._moved import MovedGroup
from ._mpi import MpiMesh

__all__ = ["UccGroup", "require", "why_not"]


@functools.cache
def why_not() -> str:
    """What the engine lacks here, and how to get it; an empty text where it lacks nothing."""
    if find_spec("mpi4py") is None:
        return 'it needs the package mpi4py: pip install "flambeau[mpi]"'
    program = shutil.which("ompi_info")
    if program is None:
        return "UCC is used through Open MPI, whose program ompi_info is not there: install an Open MPI that was built with UCC"
    found = subprocess.run([program, "--parsable"], capture_output=True, text=True, check=False).stdout
    if not any(line.startswith("mca:coll:ucc:") for line in found.splitlines()):
        return (
            f"the Open MPI of {program} was built without UCC: install UCC and an Open MPI configured with --with-ucc, "
            "and build mpi4py with it; the engine mpi needs no UCC"
        )
    return ""


def require() -> None:
    """Let the Open MPI of this process use UCC; before mpi4py starts it.

    Raises: ImportError without mpi4py, DistBackendError without UCC; both say what to install.
    """
    lacks = why_not()
    if lacks:
        raise (ImportError if "mpi4py:" in lacks else DistBackendError)(f"init_process_group: the engine ucc is not there: {lacks}")
    os.environ.setdefault("OMPI_MCA_coll_ucc_enable", "1")
    os.environ.setdefault("OMPI_MCA_coll_ucc_priority", "100")


class UccGroup(MovedGroup):
    """Ranks of a job that ``mpiexec`` started, with collectives of MPI."""

    engine = "ucc"
    _mesh: MpiMesh
    _comm: Any = None

    def _connected(self) -> Any:
        """MPI's name for the members; they make it in their first call."""
        if self._comm is None:
            everybody: Any = self._mesh.communicator
            members = everybody.Get_group().Incl(self.ranks)
            self._comm = everybody.Create_group(members, 1 + self._id % 30000)
        return self._comm

    def _takes(self, tensor: Any) -> bool:
        return isinstance(getattr(tensor, "_array", None), np.ndarray)

    def _finished(self, call: _Call, request: Any) -> None:
        """Wait for what MPI does; a timeout ends the wait, and MPI ends the job when a rank dies."""
        idle = 0
        while not request.Test():
            if time.monotonic() > call.end:
                raise DistBackendError(f"{call.name}: call {call.seq} of group {self._name!r} at {call.site}: MPI did not end it in time")
            idle += 1
            time.sleep(0 if idle < 200 else 5e-5)

    def _swap(self, call: _Call, outgoing: Sequence[Any], incoming: Sequence[Any]) -> None:
        given, counts = self._side_by_side(outgoing)
        room, wanted = self._side_by_side(incoming)
        self._finished(call, self._connected().Ialltoallv([given, counts], [room, wanted]))
        at = 0
        for flat, count in zip(incoming, wanted, strict=True):
            if count:
                _bytes(flat._array)[:] = room[at : at + count]
            at += count

    def _side_by_side(self, flats: Sequence[Any]) -> tuple[np.ndarray, list[int]]:
        """All bytes for or of the other ranks, and how many each has."""
        parts = [
            np.empty(0, np.uint8) if flat is None or peer == self._rank else _bytes(flat._array) for peer, flat in enumerate(flats)
        ]
        return np.concatenate(parts), [part.size for part in parts]

    def _spread(self, call: _Call, flat: Any, root: int) -> None:
        self._finished(call, self._connected().Ibcast(_bytes(flat._array), root))

    def _join(self, call: _Call, gathered: Any, part: Any) -> None:
        self._finished(call, self._connected().Iallgather(_bytes(part._array), _bytes(gathered._array)))
