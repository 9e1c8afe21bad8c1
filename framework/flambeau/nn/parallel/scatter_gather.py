"""Batches split over devices, and joined again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as fb

from ... import _warn
from ...tensor import Tensor

__all__ = ["gather", "scatter", "scatter_kwargs"]


def cuda_devices(name: str, devices: Sequence[Any]) -> list[Any]:
    """The CUDA devices of these numbers or names. Raises: ValueError for the CPU."""
    found = [fb.device("cuda", d) if isinstance(d, int) else fb.device(d) for d in devices]
    for one in found:
        if one.type == "cpu":
            raise ValueError(f"{name}: Expected a non cpu device, but got: {one}")
    return found


def _is_namedtuple(x: Any) -> bool:
    return isinstance(x, tuple) and hasattr(x, "_fields")


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """`inputs` for each device: tensors are cut along `dim`, what holds them is built anew, everything else is handed out as it is.

    Args:
        inputs: a tensor, or tuples, lists and dicts of tensors and other objects.
        target_gpus: CUDA devices, as numbers or devices.
        dim: the dimension that is cut; the first pieces are the largest.
    Returns: a list (of tensors a tuple) with an entry for each device, fewer where a tensor is too short.
    Raises: ValueError for the CPU.
    """
    devices = cuda_devices("scatter", target_gpus)

    def pieces(x: Any) -> Any:
        if isinstance(x, Tensor):
            return tuple(part.to(device) for part, device in zip(x.chunk(len(devices), dim), devices, strict=False))
        if _is_namedtuple(x):
            return [type(x)(*parts) for parts in zip(*map(pieces, x), strict=False)]
        if isinstance(x, tuple) and x:
            return list(zip(*map(pieces, x), strict=False))
        if isinstance(x, list) and x:
            return [list(parts) for parts in zip(*map(pieces, x), strict=False)]
        if isinstance(x, dict) and x:
            keys = list(x)
            return [type(x)(zip(keys, parts, strict=True)) for parts in zip(*map(pieces, x.values()), strict=False)]
        return [x for _ in devices]

    return pieces(inputs)


def scatter_kwargs(
    inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, target_gpus: Sequence[Any], dim: int = 0
) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:
    """Positional and named arguments for each device; where there are fewer of one kind, empty ones are added.

    Args:
        inputs, kwargs: the arguments.
        target_gpus, dim: as of `scatter`.
    """
    positional = scatter(inputs, target_gpus, dim) if inputs else []
    named = scatter(kwargs, target_gpus, dim) if kwargs else []
    count = max(len(positional), len(named))
    positional = (*positional, *(() for _ in range(count - len(positional))))
    named = (*named, *({} for _ in range(count - len(named))))
    return positional, named


def gather(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """What modules gave on several devices, joined along `dim` on one: tensors, or tuples, lists and dicts of them.

    Args:
        outputs: one for each device. Scalars become a vector, with a warning. None stays None.
        target_device: a CUDA device, as a number or device, or "cpu".
        dim: along which tensors are joined.
    Raises: AssertionError for tensors on the CPU; ValueError for dicts of different keys.
    """
    device = fb.device("cuda", target_device) if isinstance(target_device, int) else fb.device(target_device)

    def joined(parts: Sequence[Any]) -> Any:
        first = parts[0]
        if isinstance(first, Tensor):
            if any(t.device.type == "cpu" for t in parts):
                raise AssertionError("Gather function not implemented for CPU tensors")
            if all(t.ndim == 0 for t in parts) and dim == 0:
                _warn.warn(
                    "Was asked to gather along dimension 0, but all input tensors were scalars; will instead unsqueeze and return "
                    "a vector."
                )
                parts = [t.reshape(1) for t in parts]
            return fb.cat([t.to(device) for t in parts], dim)
        if first is None:
            return None
        if isinstance(first, dict):
            if any(len(part) != len(first) for part in parts):
                raise ValueError("All dicts must have the same number of keys")
            return type(first)((key, joined([part[key] for part in parts])) for key in first)
        if _is_namedtuple(first):
            return type(first)._make(map(joined, zip(*parts, strict=True)))
        return type(first)(map(joined, zip(*parts, strict=True)))

    return joined(outputs)
