"""A module that another worker has, called as if it were here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fb

from ... import rpc
from ...rpc import _agent

__all__ = ["RemoteModule"]


def _create(module_cls: Callable[..., Any], args: Any, kwargs: Any, device: str) -> Any:
    module = module_cls(*args, **kwargs)
    if not isinstance(module, fb.nn.Module):
        raise ValueError(f"RemoteModule: module_cls must make an nn.Module, {module_cls!r} made a {type(module).__name__}")
    return rpc.RRef(module.to(device))


def _forward(rref: Any, args: Any, kwargs: Any) -> Any:
    return rref.local_value()(*args, **kwargs)


def _parameters(rref: Any, recurse: bool) -> list[Any]:
    return [rpc.RRef(param) for param in rref.local_value().parameters(recurse)]


class RemoteModule(fb.nn.Module):
    """A module made by a worker and kept there; calls, and backward in a distributed context, go to it.

    Args:
        remote_device: "worker" or "worker/device".
        module_cls: a class that both sides import by name.
        args, kwargs: of the class.
    Raises: AssertionError outside of RPC; ValueError for a bad `remote_device`, or where `module_cls` makes no module; what making it
        raises.
    """

    def __init__(
        self,
        remote_device: str,
        module_cls: Callable[..., Any],
        args: Any = None,
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if _agent._agent is None:
            raise AssertionError("RemoteModule only works in RPC.")
        self.on, _, device = remote_device.partition("/")
        if not self.on:
            raise ValueError(f"RemoteModule: remote_device must be 'worker' or 'worker/device', got {remote_device!r}")
        self.device = device or "cpu"
        if fb.device(self.device).type != "cpu":
            raise NotImplementedError(f"RemoteModule: the device {self.device} is not built yet; calls carry CPU tensors")
        self.module_rref = rpc.rpc_sync(self.on, _create, (module_cls, tuple(args or ()), dict(kwargs or {}), self.device))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the remote module returns."""
        return self.forward_async(*args, **kwargs).wait()

    def forward_async(self, *args: Any, **kwargs: Any) -> Any:
        """The future of what the remote module returns."""
        return rpc.rpc_async(self.on, _forward, (self.module_rref, args, kwargs))

    def remote_parameters(self, recurse: bool = True) -> list[Any]:
        """References to the remote module's parameters, for `DistributedOptimizer`; its own alone unless `recurse`."""
        return rpc.rpc_sync(self.on, _parameters, (self.module_rref, recurse))

    def get_module_rref(self) -> Any:
        """The reference to the remote module."""
        return self.module_rref

    def parameters(self, recurse: bool = True) -> Any:
        """There are none here.

        Raises: ValueError; `remote_parameters` has them.
        """
        raise ValueError("Method ``parameters`` not supported for RemoteModule. Please use ``remote_parameters`` instead.")
