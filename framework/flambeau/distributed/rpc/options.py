"""How the agent of a worker works."""

from __future__ import annotations

from typing import Any

from . import constants

__all__ = ["RpcBackendOptions", "TensorPipeRpcBackendOptions"]


class RpcBackendOptions:
    """What `init_rpc` is told of calls.

    Args:
        rpc_timeout: seconds that a call may take; 0 is without an end.
        init_method: where workers meet, as of `init_process_group`.
    Raises: ValueError for a negative timeout.
    """

    def __init__(self, rpc_timeout: float = constants.DEFAULT_RPC_TIMEOUT_SEC, init_method: str = constants.DEFAULT_INIT_METHOD) -> None:
        if rpc_timeout < 0:
            raise ValueError(f"RpcBackendOptions: rpc_timeout is seconds, 0 or more, got {rpc_timeout}")
        self._rpc_timeout = float(rpc_timeout)
        self._init_method = init_method

    @property
    def rpc_timeout(self) -> float:
        """Seconds that a call may take; 0 is without an end."""
        return self._rpc_timeout

    @rpc_timeout.setter
    def rpc_timeout(self, seconds: float) -> None:
        self._rpc_timeout = float(seconds)

    @property
    def init_method(self) -> str:
        """Where workers meet."""
        return self._init_method

    @init_method.setter
    def init_method(self, method: str) -> None:
        self._init_method = method


class TensorPipeRpcBackendOptions(RpcBackendOptions):
    """Options of the one agent there is, under PyTorch's name for it.

    Args:
        num_worker_threads: how many calls of others run at once.
        rpc_timeout: seconds that a call may take; 0 is without an end.
        init_method: where workers meet, as of `init_process_group`.
        device_maps, devices: of CUDA; only None and empty ones are built.
        _transports, _channels: taken for compatibility; calls go over authenticated sockets.
    Raises: ValueError for less than one thread; NotImplementedError for devices.
    """

    def __init__(
        self,
        *,
        num_worker_threads: int = constants.DEFAULT_NUM_WORKER_THREADS,
        rpc_timeout: float = constants.DEFAULT_RPC_TIMEOUT_SEC,
        init_method: str = constants.DEFAULT_INIT_METHOD,
        device_maps: dict[str, dict[Any, Any]] | None = None,
        devices: list[Any] | None = None,
        _transports: list[Any] | None = None,
        _channels: list[Any] | None = None,
    ) -> None:
        super().__init__(rpc_timeout, init_method)
        if num_worker_threads < 1:
            raise ValueError(f"TensorPipeRpcBackendOptions: num_worker_threads must be at least 1, got {num_worker_threads}")
        self._threads = num_worker_threads
        for to, device_map in (device_maps or {}).items():
            self.set_device_map(to, device_map)
        self.set_devices(devices or [])

    @property
    def num_worker_threads(self) -> int:
        """How many calls of others run at once."""
        return self._threads

    @property
    def device_maps(self) -> dict[str, dict[Any, Any]]:
        """Devices of this worker and where their tensors arrive, by name of the other worker: none is built."""
        return {}

    @property
    def devices(self) -> list[Any]:
        """The CUDA devices that calls use: none."""
        return []

    def set_device_map(self, to: str, device_map: dict[Any, Any]) -> None:
        """Say on which devices of worker `to` tensors of this worker's devices arrive; only the empty map is built."""
        if device_map:
            raise NotImplementedError(f"rpc: the device map {device_map} to {to!r} is not built yet; calls carry CPU tensors")

    def set_devices(self, devices: list[Any]) -> None:
        """Say which CUDA devices calls use; only none is built."""
        if devices:
            raise NotImplementedError(f"rpc: devices={devices} is not built yet; calls carry CPU tensors")
