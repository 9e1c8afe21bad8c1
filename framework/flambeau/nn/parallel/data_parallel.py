"""A batch split over the CUDA devices of one process; on the CPU, and on one device, the module alone."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from ..modules.module import Module
from .parallel_apply import parallel_apply
from .replicate import replicate
from .scatter_gather import gather, scatter_kwargs

__all__ = ["DataParallel", "data_parallel"]


def _devices(device_ids: Any) -> list[int]:
    if not fb.cuda.is_available():
        return []
    found = range(fb.cuda.device_count()) if device_ids is None else device_ids
    return [d if isinstance(d, int) else fb.device(d).index or 0 for d in found]


class DataParallel(Module):
    """`module` over batches split along `dim`; without CUDA devices, or with one, it runs as it is.

    In each call the module is copied to all devices, each of which gets its part of the batch; results are joined on one
    device, and gradients are summed at the module's own parameters.

    Args:
        module: what to run; it is kept as `module`, so that keys of `state_dict` begin with ``module.``.
        device_ids: CUDA devices, None for all. The first holds the module.
        output_device: where results go, None for the first device.
        dim: the dimension of the batch.
    Raises: RuntimeError where parameters or buffers are not on the first device.
    """

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        super().__init__()
        self.dim = dim
        self.module = module
        self.device_ids = _devices(device_ids)
        if self.device_ids:
            self.output_device = self.device_ids[0] if output_device is None else output_device
            if len(self.device_ids) == 1:
                self.module.to(fb.device("cuda", self.device_ids[0]))

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """What `module` gives, with tensors moved to its devices."""
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        return _run(self.module, inputs, kwargs, self.device_ids, self.output_device, self.dim)


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """One call of `module` as `DataParallel` makes it.

    Args:
        module, device_ids, output_device, dim: as of `DataParallel`.
        inputs, module_kwargs: the positional arguments (a tuple, or the only one) and the others by name.
    """
    inputs = inputs if isinstance(inputs, tuple) else (inputs,) if inputs is not None else ()
    devices = _devices(device_ids)
    kwargs = module_kwargs or {}
    if not devices:
        return module(*inputs, **kwargs)
    return _run(module, inputs, kwargs, devices, devices[0] if output_device is None else output_device, dim)


def _run(module: Module, inputs: Any, kwargs: Any, devices: list[int], output_device: Any, dim: int) -> Any:
    first = fb.device("cuda", devices[0])
    for t in (*module.parameters(), *module.buffers()):
        if t.device != first:
            raise RuntimeError(
                f"module must have its parameters and buffers on device {first} (device_ids[0]) but found one of them on device: {t.device}"
            )
    positional, named = scatter_kwargs(inputs, kwargs, devices, dim)
    if not positional:
        positional, named = ((),), ({},)
    if len(devices) == 1:
        return module(*positional[0], **named[0])
    replicas = replicate(module, devices[: len(positional)])
    outputs = parallel_apply(replicas, positional, named, devices[: len(positional)])
    return gather(outputs, output_device, dim)
