"""All parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

import flambeau as fb

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters: Iterable[fb.Tensor]) -> fb.Tensor:
    """The elements of all parameters, one after the other: ``(total,)``.

    Raises: TypeError if devices differ.
    """
    parameters = list(parameters)
    _check_same_device(parameters)
    return fb.cat([param.reshape(-1) for param in parameters])


def vector_to_parameters(vec: fb.Tensor, parameters: Iterable[fb.Tensor]) -> None:
    """Make the parameters' data views of consecutive parts of `vec`.

    Raises: TypeError if `vec` is no tensor or devices differ.
    """
    if not isinstance(vec, fb.Tensor):
        raise TypeError(f"vector_to_parameters: vec must be a Tensor, got {type(vec).__name__}")
    parameters = list(parameters)
    _check_same_device(parameters)
    start = 0
    for param in parameters:
        param.data = vec[start : start + param.numel()].view_as(param).data
        start += param.numel()


def _check_same_device(parameters: list[fb.Tensor]) -> None:
    devices = {str(param.device) for param in parameters}
    if len(devices) > 1:
        raise TypeError(f"parameters are on different devices, which is not supported: {', '.join(sorted(devices))}")
