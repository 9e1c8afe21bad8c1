"""The engine nccl: calls are told and checked as those of gloo, and NCCL moves tensors of CUDA devices (cupy, the extra ``cuda``)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import flambeau as fb

from ._engine import Work
from ._errors import DistBackendError
from ._gloo import _Call
from ._mesh import Mesh
from ._moved import MovedGroup
from ._pack import pack, unpack
from ._reduce import RedOpType
from ._stores import Store

__all__ = ["NcclGroup", "require", "why_not"]

_INTEGERS = ("int8", "uint8", "int32", "uint32", "int64", "uint64")
_FLOATS = ("float16", "float32", "float64")
_OPS = {RedOpType.SUM: "SUM", RedOpType.PRODUCT: "PROD", RedOpType.MIN: "MIN", RedOpType.MAX: "MAX"}


def why_not() -> str:
    """What the engine lacks here, and how to get it; an empty text where it lacks nothing."""
    from flambeau_kernels.cuda import device

    library, reason = device.find()
    if library is None:
        return reason
    if not getattr(getattr(library.cuda, "nccl", None), "available", False):
        return "cupy finds no NCCL; install it with: python -m cupyx.tools.install_library --library nccl --cuda 13.x"
    return ""


def require() -> Any:
    """cupy's module of NCCL.

    Raises: NoCudaDevice without cupy or a device, DistBackendError without NCCL; both say what to install.
    """
    found = fb.cuda.require("init_process_group: the engine nccl")
    lacks = why_not()
    if lacks:
        raise DistBackendError(f"init_process_group: the engine nccl is not there: {lacks}")
    return found.cuda.nccl


class NcclGroup(MovedGroup):
    """Ranks with a CUDA device each.

    Collectives of tensors there go by NCCL, on the stream that is current where the program calls, and tensors of the CPU as by
    gloo. Messages from rank to rank go over the host, for those of NCCL have neither tags nor a source that is left open.

    Args:
        mesh, ranks, name, timeout: as of `GlooGroup`.
        store: where rank 0 of the group leaves what the others find NCCL's by.
    """

    engine = "nccl"

    def __init__(self, mesh: Mesh, ranks: Sequence[int], name: str, timeout: timedelta, store: Store) -> None:
        self._nccl = require()
        self._store = store
        self._communicator: Any = None
        super().__init__(mesh, ranks, name, timeout)

    def _connected(self) -> Any:
        """The communicator; ranks make it in their first call, for then each has chosen its device."""
        if self._communicator is not None:
            return self._communicator
        if self._rank == 0:
            self._store.set("id", pack(list(self._nccl.get_unique_id())))
        found = unpack(self._store.get("id"))
        self._communicator = made = self._nccl.NcclCommunicator(self._size, tuple(found), self._rank)

        def abort() -> bool:
            if self._communicator is not made:
                return True
            dead = [rank for rank in self._others if rank in self._mesh.gone and rank not in self._mesh.left]
            if dead:
                # What waits on the device for that rank ends; the next call names it.
                self._communicator = None
                made.abort()
            return bool(dead)

        self._mesh.on_message(abort)
        return made

    def close(self) -> None:
        made = self._communicator
        if made is not None:
            fb.cuda.synchronize()
        super().close()
        if made is not None and self._communicator is made:
            self._communicator = None
            made.destroy()

    # What is moved

    def _takes(self, tensor: Any) -> bool:
        return tensor.is_cuda

    def _surroundings(self, tensor: Any) -> Callable[[], contextlib.AbstractContextManager[Any]]:
        stream = fb.cuda.current_stream(tensor.device)

        @contextlib.contextmanager
        def entered() -> Any:
            with fb.cuda.device(tensor.device), fb.cuda.stream(stream):
                yield

        return entered

    def _kind(self, flat: Any) -> tuple[int, int]:
        """NCCL's number of elements, and its dtype."""
        name = str(flat.dtype).rpartition(".")[2]
        return flat.numel(), getattr(self._nccl, f"NCCL_{name.upper()}")

    def _op(self, how: Any) -> int:
        return getattr(self._nccl, f"NCCL_{_OPS[how[0]]}")

    def _swap(self, call: _Call, outgoing: Sequence[Any], incoming: Sequence[Any]) -> None:
        communicator, stream = self._connected(), _stream()
        self._nccl.groupStart()
        try:
            for peer in range(self._size):
                if peer == self._rank:
                    continue
                for flat, go in ((outgoing[peer], communicator.send), (incoming[peer], communicator.recv)):
                    if flat is not None and flat.numel():
                        go(flat.data_ptr(), flat.nbytes, self._nccl.NCCL_UINT8, peer, stream)
        finally:
            self._nccl.groupEnd()

    def _spread(self, call: _Call, flat: Any, root: int) -> None:
        at = flat.data_ptr()
        self._connected().broadcast(at, at, flat.nbytes, self._nccl.NCCL_UINT8, root, _stream())

    def _join(self, call: _Call, gathered: Any, part: Any) -> None:
        self._connected().allGather(part.data_ptr(), gathered.data_ptr(), part.nbytes, self._nccl.NCCL_UINT8, _stream())

    def _combines(self, flat: Any, how: Any) -> bool:
        name = str(flat.dtype).rpartition(".")[2]
        # Integers have the same bits in any order, and so has a sum of two. NCCL's own order is left for no other.
        return name in _INTEGERS and how[0] in _OPS or name in _FLOATS and how[0] is RedOpType.SUM and self._size <= 2

    def _all_reduce(self, call: _Call, flat: Any, how: Any) -> None:
        at = flat.data_ptr()
        self._connected().allReduce(at, at, *self._kind(flat), self._op(how), _stream())

    def _reduce(self, call: _Call, flat: Any, root: int, how: Any) -> None:
        at = flat.data_ptr()
        self._connected().reduce(at, at, *self._kind(flat), self._op(how), root, _stream())

    def _reduce_scatter(self, call: _Call, part: Any, gathered: Any, how: Any) -> None:
        self._connected().reduceScatter(gathered.data_ptr(), part.data_ptr(), *self._kind(part), self._op(how), _stream())

    # Point to point

    def send(self, tensor: Any, peer: int, tag: int) -> Work:
        return super().send(tensor.detach().cpu(), peer, tag)

    def recv(self, tensor: Any, peer: int | None, tag: int) -> Work:
        if not self._takes(tensor):
            return super().recv(tensor, peer, tag)
        surroundings = self._surroundings(tensor)
        host = fb.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
        arriving = super().recv(host, peer, tag)
        work = Work([tensor])
        work._begin = arriving._begin

        def arrived(_: Any) -> None:
            error = arriving.exception()
            if error is None:
                work._source = arriving._source
                with fb.no_grad(), surroundings():
                    tensor.detach().copy_(host)
            work._finish(error)

        arriving.get_future().add_done_callback(arrived)
        return work


def _stream() -> int:
    return fb.cuda.current_stream().cuda_stream
