"""What a quantizer says of a graph: how the values of its edges and nodes are quantized."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ....fx import GraphModule, Node

__all__ = [
    "DerivedQuantizationSpec", "EdgeOrNode", "FixedQParamsQuantizationSpec", "QuantizationAnnotation", "QuantizationSpec",
    "QuantizationSpecBase", "Quantizer", "SharedQuantizationSpec",
]  # fmt: skip

EdgeOrNode = tuple[Node, Node] | Node  # an operand of a node, as (where it comes from, who reads it); or the result of a node


class QuantizationSpecBase(ABC):  # noqa: B024  # a name for all of them, as PyTorch has it
    """How a value is quantized."""


@dataclass(eq=True, frozen=True)
class QuantizationSpec(QuantizationSpecBase):
    """A value whose scale and zero point an observer finds.

    Args:
        dtype: of the integers: `int8`, `uint8`, `int16`, `int32`; or `float16`.
        observer_or_fake_quant_ctr: gives an observer, or in training a fake quantization, for these arguments.
        quant_min, quant_max: the integers in use; those of `dtype` by default.
        qscheme: `per_tensor_affine` and so on; the observer's by default.
        ch_axis: the dimension of channels, per channel.
        is_dynamic: whether the scale is found anew in each call.
    Raises: ValueError for an empty range, or a negative `ch_axis`.
    """

    dtype: Any
    observer_or_fake_quant_ctr: Callable[..., Any]
    quant_min: int | None = None
    quant_max: int | None = None
    qscheme: Any = None
    ch_axis: int | None = None
    is_dynamic: bool = False

    def __post_init__(self) -> None:
        if self.quant_min is not None and self.quant_max is not None and self.quant_min > self.quant_max:
            raise ValueError(f"quant_min {self.quant_min} must be <= quant_max {self.quant_max}.")
        if self.ch_axis is not None and self.ch_axis < 0:
            raise ValueError("Ch_axis is < 0.")


@dataclass(eq=True, frozen=True)
class FixedQParamsQuantizationSpec(QuantizationSpecBase):
    """A value whose scale and zero point are known, such as the result of `sigmoid`."""

    dtype: Any
    scale: float
    zero_point: int
    quant_min: int | None = None
    quant_max: int | None = None
    qscheme: Any = None
    is_dynamic: bool = False


@dataclass(eq=True, frozen=True)
class SharedQuantizationSpec(QuantizationSpecBase):
    """A value that has the scale and the zero point of another, `edge_or_node`."""

    edge_or_node: Any


@dataclass(eq=True, frozen=True)
class DerivedQuantizationSpec(QuantizationSpecBase):
    """A value whose scale and zero point ``derive_qparams_fn(observers)`` gives, of those of other values; of a bias, say.

    Args:
        derived_from: edges and nodes, in the order in which the function gets their observers.
    """

    derived_from: list[Any]
    derive_qparams_fn: Callable[[list[Any]], tuple[Any, Any]]
    dtype: Any
    quant_min: int | None = None
    quant_max: int | None = None
    qscheme: Any = None
    ch_axis: int | None = None
    is_dynamic: bool = False


@dataclass
class QuantizationAnnotation:
    """What a quantizer says of a node, in ``node.meta["quantization_annotation"]``.

    Args:
        input_qspec_map: how its operands are quantized, by node.
        output_qspec: how its result is.
        allow_implicit_sharing: whether an operand shares the scale of a result that it is, where both are quantized in the same way.
    """

    input_qspec_map: dict[Node, QuantizationSpecBase | None] = field(default_factory=dict)
    output_qspec: QuantizationSpecBase | None = None
    allow_implicit_sharing: bool = True
    _annotated: bool = False


class Quantizer(ABC):
    """Says how the values of a graph are quantized; a backend has one of its own."""

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """The graph to annotate; `model` unless a quantizer changes it first."""
        return model

    @abstractmethod
    def annotate(self, model: GraphModule) -> GraphModule:
        """Put a `QuantizationAnnotation` on each node that is to be quantized, and return `model`."""

    @abstractmethod
    def validate(self, model: GraphModule) -> None:
        """Raise an error if the annotated graph is none that the backend runs."""

    def prepare_obs_or_fq_callback(self, model: GraphModule, edge_or_node_to_obs_or_fq: dict[Any, Any]) -> None:
        """Change the observers that are about to be put in, by edge or node."""
        return
