"""What stands for ``cupy.cuda.nccl`` on the simulated device: its interface, over the engine gloo and memory at addresses."""

from __future__ import annotations

import ctypes
import os
import secrets
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np

import flambeau as fb
import flambeau.distributed as dist
from flambeau.distributed._gloo import GlooGroup
from flambeau.distributed._mesh import Mesh

_DTYPES = {"INT8": 0, "UINT8": 1, "INT32": 2, "UINT32": 3, "INT64": 4, "UINT64": 5, "FLOAT16": 6, "FLOAT32": 7, "FLOAT64": 8}
_NUMPY = {number: np.dtype(name.lower()) for name, number in _DTYPES.items()}
_OPS = {"SUM": 0, "PROD": 1, "MAX": 2, "MIN": 3}
_REDUCE = {0: dist.ReduceOp.SUM, 1: dist.ReduceOp.PRODUCT, 2: dist.ReduceOp.MAX, 3: dist.ReduceOp.MIN}

calls: list[str] = []
_waiting: list[tuple[str, Any, fb.Tensor, int]] = []  # what a group of calls has so far


def _at(address: int, count: int, kind: int) -> fb.Tensor:
    dtype = _NUMPY[kind]
    if not count:
        return fb.from_numpy(np.empty(0, dtype))
    memory = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)
    return fb.from_numpy(np.ctypeslib.as_array(memory).view(dtype))


def get_unique_id() -> tuple[int, ...]:
    return tuple(byte - 128 for byte in secrets.token_bytes(128))


def groupStart() -> None:
    global _waiting
    _waiting = []


def groupEnd() -> None:
    global _waiting
    given, _waiting = _waiting, []
    works = [getattr(group, name)(tensor, peer, 0) for name, group, tensor, peer in sorted(given, key=lambda one: one[0] == "recv")]
    for work in works:
        work.wait()


class NcclCommunicator:
    def __init__(self, ndev: int, commId: tuple, rank: int) -> None:
        assert type(commId) is tuple
        assert len(commId) == 128
        name = bytes(byte + 128 for byte in commId[:8]).hex()
        store = dist.FileStore(os.path.join(os.environ["FOLDER"], f"nccl-{name}"), ndev)
        self.mesh = Mesh(store, rank, ndev, 20.0, "127.0.0.1")
        self.group = GlooGroup(self.mesh, range(ndev), "NCCL", timedelta(seconds=20))
        self.rank, self.ndev = rank, ndev

    def allReduce(self, sendbuf, recvbuf, count, datatype, op, stream):
        calls.append("allReduce")
        out = _at(recvbuf, count, datatype).copy_(_at(sendbuf, count, datatype))
        self.group.all_reduce([out], _REDUCE[op], False)

    def reduce(self, sendbuf, recvbuf, count, datatype, op, root, stream):
        calls.append("reduce")
        out = _at(sendbuf, count, datatype).clone()
        self.group.reduce(out, root, _REDUCE[op], False)
        if self.rank == root:
            _at(recvbuf, count, datatype).copy_(out)

    def broadcast(self, sendbuff, recvbuff, count, datatype, root, stream):
        calls.append("broadcast")
        out = _at(recvbuff, count, datatype)
        if self.rank == root:
            out.copy_(_at(sendbuff, count, datatype))
        self.group.broadcast([out], root, False)

    def allGather(self, sendbuf, recvbuf, count, datatype, stream):
        calls.append("allGather")
        self.group.all_gather_into_tensor(_at(recvbuf, count * self.ndev, datatype), _at(sendbuf, count, datatype), False)

    def reduceScatter(self, sendbuf, recvbuf, recvcount, datatype, op, stream):
        calls.append("reduceScatter")
        whole = _at(sendbuf, recvcount * self.ndev, datatype)
        self.group.reduce_scatter_tensor(_at(recvbuf, recvcount, datatype), whole, _REDUCE[op], False)

    def send(self, sendbuf, count, datatype, peer, stream):
        calls.append("send")
        _waiting.append(("send", self.group, _at(sendbuf, count, datatype), peer))

    def recv(self, recvbuf, count, datatype, peer, stream):
        calls.append("recv")
        _waiting.append(("recv", self.group, _at(recvbuf, count, datatype), peer))

    def destroy(self):
        calls.append("destroy")
        self.group.close()
        self.mesh.close()

    def abort(self):
        calls.append("abort")


def install() -> None:
    """Let the simulated device have NCCL."""
    from flambeau_kernels.cuda import device

    numbers = {f"NCCL_{name}": number for name, number in (_DTYPES | _OPS).items()}
    device.find()[0].cuda.nccl = SimpleNamespace(
        available=True, get_unique_id=get_unique_id, NcclCommunicator=NcclCommunicator, groupStart=groupStart, groupEnd=groupEnd, **numbers
    )
