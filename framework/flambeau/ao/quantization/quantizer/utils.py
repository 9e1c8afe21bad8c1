"""What quantizers of backends have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import flambeau as fb

from ....fx import Node
from .quantizer import QuantizationAnnotation, QuantizationSpec

__all__ = [
    "OperatorConfig", "OperatorPatternType", "QuantizationConfig", "get_bias_qspec", "get_input_act_qspec", "get_output_act_qspec",
    "get_weight_qspec",
]  # fmt: skip

OperatorPatternType = list[Callable[..., Any]]


@dataclass(eq=True, frozen=True)
class QuantizationConfig:
    """How the operands, the weight, the bias and the result of an operation are quantized; None for what stays as it is."""

    input_activation: QuantizationSpec | None
    output_activation: QuantizationSpec | None
    weight: QuantizationSpec | None
    bias: QuantizationSpec | None
    is_qat: bool = False


class OperatorConfig(NamedTuple):
    """Patterns of operations that may be quantized as `config` says."""

    config: QuantizationConfig
    operators: list[OperatorPatternType]


_SCHEMES = fb.per_tensor_affine, fb.per_tensor_symmetric


def get_input_act_qspec(quantization_config: QuantizationConfig | None) -> Any:
    """How operands are quantized. Raises: AssertionError for a scheme that is none of activations."""
    return _of_activations(None if quantization_config is None else quantization_config.input_activation)


def get_output_act_qspec(quantization_config: QuantizationConfig | None) -> Any:
    """How results are quantized. Raises: AssertionError for a scheme that is none of activations."""
    return _of_activations(None if quantization_config is None else quantization_config.output_activation)


def _of_activations(spec: QuantizationSpec | None) -> QuantizationSpec | None:
    assert spec is None or spec.qscheme in _SCHEMES, f"activations have one scale, got {spec.qscheme}"
    return spec


def get_weight_qspec(quantization_config: QuantizationConfig | None) -> Any:
    """How weights are quantized. Raises: ValueError for a scheme that is none of weights."""
    spec = None if quantization_config is None else quantization_config.weight
    if spec is not None and spec.qscheme not in (fb.per_tensor_symmetric, fb.per_channel_symmetric, None):
        raise ValueError(f"Unsupported quantization_spec {spec} for weight")
    return spec


def get_bias_qspec(quantization_config: QuantizationConfig | None) -> Any:
    """How biases are quantized: not at all, or to floats. Raises: AssertionError for integers."""
    spec = None if quantization_config is None else quantization_config.bias
    assert spec is None or spec.dtype is fb.float, "Only float dtype for bias is supported for bias right now"
    return spec


def annotate_operand(node: Node, operand: Any, spec: Any) -> None:
    """Say how `operand` of `node` is quantized."""
    annotation = node.meta.setdefault("quantization_annotation", QuantizationAnnotation())
    if spec is not None:
        annotation.input_qspec_map[operand] = spec


def annotate_result(node: Node, spec: Any) -> None:
    """Say how the result of `node` is quantized."""
    annotation = node.meta.setdefault("quantization_annotation", QuantizationAnnotation())
    annotation.output_qspec = spec


def mark(nodes: Any) -> None:
    """Say that `nodes` are done, so that other patterns leave them as they are."""
    for node in nodes:
        node.meta.setdefault("quantization_annotation", QuantizationAnnotation())._annotated = True


def is_marked(nodes: Any) -> bool:
    """Whether some pattern has taken one of `nodes`."""
    return any("quantization_annotation" in node.meta and node.meta["quantization_annotation"]._annotated for node in nodes)
