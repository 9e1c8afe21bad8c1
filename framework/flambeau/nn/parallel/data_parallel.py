"""A batch split over the CUDA devices of one process; on the CPU, and on one device, the module alone."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from ... import _missing
from ..modules.module import Module

__all__ = ["DataParallel", "data_parallel"]


def _devices(device_ids: Any) -> list[int]:
    if not fb.cuda.is_available():
        return []
    found = range(fb.cuda.device_count()) if device_ids is None else device_ids
    return [fb.device(d).index or 0 if not isinstance(d, int) else d for d in found]


def _check_one(name: str, devices: list[int]) -> None:
    if len(devices) > 1:
        advice = "give device_ids with one device; splitting a batch over several is not written"
        raise _missing.not_built(f"{name} over {len(devices)} devices", advice)


class DataParallel(Module):
    """`module` over batches split along `dim`; without CUDA devices, or with one, it runs as it is.

    Args:
        module: what to run; it is kept as `module`, so that keys of `state_dict` begin with ``module.``.
        device_ids: CUDA devices, None for all.
        output_device: where results go, None for the first device.
        dim: the dimension of the batch.
    Raises: NotImplementedError for more than one device.
    """

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        super().__init__()
        self.dim = dim
        self.module = module
        self.device_ids = _devices(device_ids)
        _check_one("nn.DataParallel", self.device_ids)
        if self.device_ids:
            self.output_device = self.device_ids[0] if output_device is None else output_device
            self.module.to(fb.device("cuda", self.device_ids[0]))

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """What `module` gives, with tensors moved to its device."""
        if self.device_ids:
            inputs, kwargs = _moved((inputs, kwargs), self.device_ids[0])
        return self.module(*inputs, **kwargs)


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
    Raises: NotImplementedError for more than one device.
    """
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    devices = _devices(device_ids)
    _check_one("nn.parallel.data_parallel", devices)
    kwargs = module_kwargs or {}
    if devices:
        inputs, kwargs = _moved((inputs, kwargs), devices[0])
    return module(*inputs, **kwargs)


def _moved(tree: Any, index: int) -> Any:
    from ...utils._pytree import tree_map_only

    device = fb.device("cuda", index)
    return tree_map_only(fb.Tensor, lambda t: t.to(device), tree)
