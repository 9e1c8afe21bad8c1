"""Quantizers: what says how the values of an exported program are quantized, for `quantize_pt2e`."""

from __future__ import annotations

from . import composable_quantizer, embedding_quantizer, quantizer, utils, xnnpack_quantizer, xnnpack_quantizer_utils
from .composable_quantizer import ComposableQuantizer
from .embedding_quantizer import EmbeddingQuantizer
from .quantizer import (
    DerivedQuantizationSpec,
    EdgeOrNode,
    FixedQParamsQuantizationSpec,
    QuantizationAnnotation,
    QuantizationSpec,
    QuantizationSpecBase,
    Quantizer,
    SharedQuantizationSpec,
)
from .xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config

__all__ = [
    "ComposableQuantizer", "DerivedQuantizationSpec", "EdgeOrNode", "EmbeddingQuantizer", "FixedQParamsQuantizationSpec",
    "QuantizationAnnotation", "QuantizationSpec", "QuantizationSpecBase", "Quantizer", "SharedQuantizationSpec", "XNNPACKQuantizer",
    "composable_quantizer", "embedding_quantizer", "get_symmetric_quantization_config", "quantizer", "utils", "xnnpack_quantizer",
    "xnnpack_quantizer_utils",
]  # fmt: skip
