"""Copies of a module on several devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..modules.module import Module
from .scatter_gather import cuda_devices

__all__ = ["replicate"]


def replicate(network: Module, devices: Sequence[Any], detach: bool = False) -> list[Any]:
    """A copy of `network` for each device, whose parameters are copies with history: gradients reach the module's own.

    Args:
        network: a module on a CUDA device.
        devices: CUDA devices, as numbers or devices.
        detach: leave the history out.
    Returns: modules that hold tensors in the place of parameters; of a module that is used twice, one copy.
    Raises: AssertionError for a module on the CPU; ValueError for the CPU among the devices.
    """
    found = cuda_devices("replicate", devices)
    tensors = [*network.parameters(), *network.buffers()]
    if found and any(t.device.type == "cpu" for t in tensors):
        raise AssertionError("Broadcast function not implemented for CPU tensors")
    return [_copy(network, device, detach) for device in found]


def _copy(network: Module, device: Any, detach: bool) -> Module:
    copies: dict[int, Any] = {}

    def tensor(x: Any) -> Any:
        if x is None:
            return None
        if id(x) not in copies:
            # A copy even where it is on the device already: a parameter would collect gradients itself.
            copies[id(x)] = (x.detach() if detach else x).to(device, copy=True)
        return copies[id(x)]

    def module(m: Any) -> Any:
        if m is None or id(m) in copies:
            return None if m is None else copies[id(m)]
        made = copies[id(m)] = m.__new__(type(m))
        made.__dict__ = m.__dict__.copy()
        made._parameters = {}
        made._former_parameters = {name: tensor(p) for name, p in m._parameters.items()}
        made.__dict__.update(made._former_parameters)
        made._buffers = {name: tensor(b) for name, b in m._buffers.items()}
        made._modules = {name: module(child) for name, child in m._modules.items()}
        made._is_replica = True
        return made

    return module(network)
