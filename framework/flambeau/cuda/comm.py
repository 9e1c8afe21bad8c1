"""Tensors to and from several CUDA devices; gradients flow through all of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..devices import device as _device_type
from ..tensor import Tensor

__all__ = ["broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter"]


def _place(device: Any) -> _device_type:
    return _device_type("cuda", device) if isinstance(device, int) else _device_type(device)


def _one_of(name: str, devices: Any, out: Any, other: str = "devices") -> None:
    if (devices is None) == (out is None):
        raise RuntimeError(f"{name}: exactly one of '{other}' and 'out' must be specified, but got {other}={devices} and out={out}")


def broadcast(tensor: Tensor, devices: Sequence[Any] | None = None, *, out: Sequence[Tensor] | None = None) -> Any:
    """Copies of `tensor` on `devices`, or in the tensors `out`.

    Raises: RuntimeError unless one of the two is given, or without a device.
    """
    _one_of("cuda.comm.broadcast", devices, out)
    if out is not None:
        for target in out:
            target.copy_(tensor)
        return tuple(out)
    return tuple(tensor.to(_place(device)) for device in devices or ())


def broadcast_coalesced(tensors: Sequence[Tensor], devices: Sequence[Any], buffer_size: int = 10485760) -> Any:
    """For each of `devices` the list of copies of `tensors` there.

    Args:
        tensors: any dtypes and shapes.
        devices: indices or devices.
        buffer_size: bytes that PyTorch copies at once; not used.
    Raises: RuntimeError without a device.
    """
    return tuple([tensor.to(_place(device)) for tensor in tensors] for device in devices)


def reduce_add(inputs: Sequence[Tensor], destination: Any = None) -> Tensor:
    """The sum of `inputs`, which have one shape and each a CUDA device, on `destination` or the current device.

    Raises: AssertionError for a tensor on the CPU; ValueError for other shapes; RuntimeError for none at all.
    """
    if not inputs:
        raise IndexError("cuda.comm.reduce_add: expected tensors, got none")
    for at, tensor in enumerate(inputs):
        if not tensor.is_cuda:
            raise AssertionError(f"cuda.comm.reduce_add expects all inputs to be on GPUs, but input {at} is on {tensor.device}")
        if tensor.shape != inputs[0].shape:
            raise ValueError(
                f"cuda.comm.reduce_add: input {at} has an invalid size: got {tuple(tensor.shape)}, but expected {tuple(inputs[0].shape)}"
            )
    from . import current_device

    place = _place(current_device() if destination is None else destination)
    total = inputs[0].to(place)
    for tensor in inputs[1:]:
        total = total + tensor.to(place)
    return total


def reduce_add_coalesced(inputs: Sequence[Sequence[Tensor]], destination: Any = None, buffer_size: int = 10485760) -> Any:
    """`reduce_add` of the first tensors of all lists, of the second ones, and so on.

    Args:
        inputs: one list of tensors for each device.
        destination: where sums go.
        buffer_size: not used.
    """
    return tuple(reduce_add(group, destination) for group in zip(*inputs, strict=True))


def scatter(
    tensor: Tensor, devices: Sequence[Any] | None = None, chunk_sizes: Sequence[int] | None = None, dim: int = 0,
    streams: Any = None, *, out: Sequence[Tensor] | None = None,
) -> Any:  # fmt: skip
    """Parts of `tensor` on `devices`, or in the tensors `out`.

    Args:
        tensor: what is cut along `dim`.
        devices: indices or devices.
        chunk_sizes: the length of each part; by default as equal as `chunk` makes them.
        dim: the dimension that is cut.
        streams: not used; parts are copied in order.
        out: tensors that take the parts, whose lengths they give.
    Raises: RuntimeError unless one of `devices` and `out` is given, or without a device.
    """
    _one_of("cuda.comm.scatter", devices, out)
    if out is not None:
        for target, part in zip(out, tensor.split([each.shape[dim] for each in out], dim), strict=True):
            target.copy_(part)
        return tuple(out)
    places = [_place(device) for device in devices or ()]
    parts = tensor.chunk(len(places), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    return tuple(part.to(place) for part, place in zip(parts, places, strict=False))


def gather(tensors: Sequence[Tensor], dim: int = 0, destination: Any = None, *, out: Tensor | None = None) -> Tensor:
    """`tensors` joined along `dim`, on `destination` (the current CUDA device by default, or 'cpu') or in `out`.

    Raises: RuntimeError if `destination` and `out` are both given, or without a device.
    """
    from .. import cat

    if out is not None:
        if destination is not None:
            raise RuntimeError("cuda.comm.gather: 'destination' must not be specified when 'out' is specified")
        return out.copy_(cat([tensor.to(out.device) for tensor in tensors], dim))
    if destination is None:
        from . import current_device

        destination = current_device()
    place = _device_type("cpu") if destination == -1 else _place(destination)
    return cat([tensor.to(place) for tensor in tensors], dim)
