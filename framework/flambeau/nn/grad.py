"""Gradients of convolutions as functions: of the input from the weight, of the weight from the input."""

from __future__ import annotations

from typing import Any

import flambeau as fb

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]


def _gradient(dims: int, of: str, input: Any, weight: Any, grad_output: Any, settings: dict[str, Any]) -> Any:
    """The gradient of a convolution in `of`, "input" or "weight"; differentiable itself where gradients are recorded."""
    recording = fb.is_grad_enabled()
    with fb.enable_grad():
        operands = {"input": input, "weight": weight}
        out = getattr(fb, f"conv{dims}d")(**operands, **settings)
        return fb.autograd.grad(out, operands[of], grad_output, create_graph=recording)[0]


def _placeholder(size: Any, like: Any) -> Any:
    return fb.zeros(tuple(size), dtype=like.dtype, device=like.device, requires_grad=True)


def conv1d_input(
    input_size: Any, weight: Any, grad_output: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    """The gradient of `conv1d` in its input, of shape `input_size`, from `weight` and the gradient of the result."""
    settings = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return _gradient(1, "input", _placeholder(input_size, grad_output), weight, grad_output, settings)


def conv1d_weight(
    input: Any, weight_size: Any, grad_output: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    """The gradient of `conv1d` in its weight, of shape `weight_size`, from `input` and the gradient of the result."""
    settings = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return _gradient(1, "weight", input, _placeholder(weight_size, grad_output), grad_output, settings)


def conv2d_input(
    input_size: Any, weight: Any, grad_output: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    """The gradient of `conv2d` in its input, of shape `input_size`, from `weight` and the gradient of the result."""
    settings = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return _gradient(2, "input", _placeholder(input_size, grad_output), weight, grad_output, settings)


def conv2d_weight(
    input: Any, weight_size: Any, grad_output: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    """The gradient of `conv2d` in its weight, of shape `weight_size`, from `input` and the gradient of the result."""
    settings = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return _gradient(2, "weight", input, _placeholder(weight_size, grad_output), grad_output, settings)


def conv3d_input(
    input_size: Any, weight: Any, grad_output: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    """The gradient of `conv3d` in its input, of shape `input_size`, from `weight` and the gradient of the result."""
    settings = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return _gradient(3, "input", _placeholder(input_size, grad_output), weight, grad_output, settings)


def conv3d_weight(
    input: Any, weight_size: Any, grad_output: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    """The gradient of `conv3d` in its weight, of shape `weight_size`, from `input` and the gradient of the result."""
    settings = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return _gradient(3, "weight", input, _placeholder(weight_size, grad_output), grad_output, settings)
