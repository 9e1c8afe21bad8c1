"""A quantizer of tables of embeddings."""

from __future__ import annotations

import copy
from typing import Any

import flambeau as fb

from ....fx import GraphModule
from ..observer import PerChannelMinMaxObserver
from .quantizer import QuantizationAnnotation, QuantizationSpec, Quantizer
from .utils import OperatorConfig, OperatorPatternType, QuantizationConfig

__all__ = ["EmbeddingQuantizer", "get_embedding_operators_config"]


def get_embedding_operators_config() -> OperatorConfig:
    """Rows of a table as uint8, each with a scale and a zero point that are floats."""
    weight = QuantizationSpec(
        dtype=fb.uint8, qscheme=fb.per_channel_affine_float_qparams, ch_axis=0,
        observer_or_fake_quant_ctr=PerChannelMinMaxObserver.with_args(eps=2**-12),
    )  # fmt: skip
    return OperatorConfig(config=QuantizationConfig(None, None, weight, None), operators=[[fb.nn.Embedding]])


class EmbeddingQuantizer(Quantizer):
    """Quantizes the tables of `embedding`, each row for itself."""

    @classmethod
    def get_supported_quantization_configs(cls) -> list[QuantizationConfig]:
        """What it can say: one config."""
        return [get_embedding_operators_config().config]

    @classmethod
    def get_supported_operator_for_quantization_config(cls, quantization_config: QuantizationConfig) -> list[OperatorPatternType]:
        """The operators that it quantizes so."""
        known = get_embedding_operators_config()
        return known.operators if quantization_config == known.config else []

    @classmethod
    def get_supported_operators(cls) -> list[OperatorConfig]:
        """What it quantizes, and how."""
        return copy.deepcopy([get_embedding_operators_config()])

    def annotate(self, model: GraphModule) -> GraphModule:
        """Annotate the table of each `embedding`."""
        weight: Any = get_embedding_operators_config().config.weight
        for node in model.graph.nodes:
            if node.op == "call_function" and node.target is fb.ops.aten.embedding.default and "quantization_annotation" not in node.meta:
                node.meta["quantization_annotation"] = QuantizationAnnotation(input_qspec_map={node.args[0]: weight}, _annotated=True)
        return model

    def validate(self, model: GraphModule) -> None:
        """Every such graph is right."""
