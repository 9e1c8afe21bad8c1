"""Which module takes the place of which when a model is quantized."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ...nn import functional as F
from ...nn import modules as nn
from ..nn import intrinsic, qat
from ..nn import quantized as nnq
from ..nn.intrinsic import qat as joined_qat
from ..nn.intrinsic import quantized as joined_quantized
from ..nn.intrinsic.quantized import dynamic as joined_dynamic
from ..nn.qat import dynamic as qat_dynamic
from ..nn.quantized import dynamic, functional, reference
from .fake_quantize import (
    default_fixed_qparams_range_0to1_fake_quant,
    default_fixed_qparams_range_neg1to1_fake_quant,
)
from .stubs import DeQuantStub, QuantStub

__all__ = [
    "DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS", "DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS", "DEFAULT_MODULE_TO_ACT_POST_PROCESS",
    "DEFAULT_QAT_MODULE_MAPPINGS", "DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS", "DEFAULT_STATIC_QUANT_MODULE_MAPPINGS",
    "get_default_compare_output_module_list",
    "get_default_dynamic_quant_module_mappings", "get_default_float_to_quantized_operator_mappings", "get_default_qat_module_mappings",
    "get_default_qconfig_propagation_list", "get_default_static_quant_module_mappings",
    "get_default_static_quant_reference_module_mappings", "get_dynamic_quant_module_class",
    "get_embedding_qat_module_mappings", "get_embedding_static_quant_module_mappings", "get_quantized_operator",
    "get_static_quant_module_class", "no_observer_set",
]  # fmt: skip

DEFAULT_STATIC_QUANT_MODULE_MAPPINGS: dict[Callable[..., Any], Any] = {
    QuantStub: nnq.Quantize,
    DeQuantStub: nnq.DeQuantize,
    nn.BatchNorm2d: nnq.BatchNorm2d,
    nn.BatchNorm3d: nnq.BatchNorm3d,
    nn.Dropout: nnq.Dropout,
    nn.Conv1d: nnq.Conv1d,
    nn.Conv2d: nnq.Conv2d,
    nn.Conv3d: nnq.Conv3d,
    nn.ConvTranspose1d: nnq.ConvTranspose1d,
    nn.ConvTranspose2d: nnq.ConvTranspose2d,
    nn.ConvTranspose3d: nnq.ConvTranspose3d,
    nn.ELU: nnq.ELU,
    nn.Embedding: nnq.Embedding,
    nn.EmbeddingBag: nnq.EmbeddingBag,
    nn.GroupNorm: nnq.GroupNorm,
    nn.Hardswish: nnq.Hardswish,
    nn.InstanceNorm1d: nnq.InstanceNorm1d,
    nn.InstanceNorm2d: nnq.InstanceNorm2d,
    nn.InstanceNorm3d: nnq.InstanceNorm3d,
    nn.LayerNorm: nnq.LayerNorm,
    nn.LeakyReLU: nnq.LeakyReLU,
    nn.Linear: nnq.Linear,
    nn.ReLU6: nnq.ReLU6,
    nn.PReLU: nnq.PReLU,
    nnq.FloatFunctional: nnq.QFunctional,
    intrinsic.BNReLU2d: joined_quantized.BNReLU2d,
    intrinsic.BNReLU3d: joined_quantized.BNReLU3d,
    intrinsic.ConvReLU1d: joined_quantized.ConvReLU1d,
    intrinsic.ConvReLU2d: joined_quantized.ConvReLU2d,
    intrinsic.ConvReLU3d: joined_quantized.ConvReLU3d,
    intrinsic.LinearReLU: joined_quantized.LinearReLU,
    joined_qat.ConvBn1d: nnq.Conv1d,
    joined_qat.ConvBn2d: nnq.Conv2d,
    joined_qat.ConvBn3d: nnq.Conv3d,
    joined_qat.ConvBnReLU1d: joined_quantized.ConvReLU1d,
    joined_qat.ConvBnReLU2d: joined_quantized.ConvReLU2d,
    joined_qat.ConvBnReLU3d: joined_quantized.ConvReLU3d,
    joined_qat.ConvReLU1d: joined_quantized.ConvReLU1d,
    joined_qat.ConvReLU2d: joined_quantized.ConvReLU2d,
    joined_qat.ConvReLU3d: joined_quantized.ConvReLU3d,
    joined_qat.LinearReLU: joined_quantized.LinearReLU,
    joined_qat.LinearBn1d: nnq.Linear,
    qat.Linear: nnq.Linear,
    qat.Conv1d: nnq.Conv1d,
    qat.Conv2d: nnq.Conv2d,
    qat.Conv3d: nnq.Conv3d,
}

DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS: dict[Callable[..., Any], Any] = {
    QuantStub: nnq.Quantize,
    DeQuantStub: nnq.DeQuantize,
    nn.Linear: reference.Linear,
    nn.Conv1d: reference.Conv1d,
    nn.Conv2d: reference.Conv2d,
    nn.Conv3d: reference.Conv3d,
    nn.ConvTranspose1d: reference.ConvTranspose1d,
    nn.ConvTranspose2d: reference.ConvTranspose2d,
    nn.ConvTranspose3d: reference.ConvTranspose3d,
    nn.Embedding: reference.Embedding,
    nn.EmbeddingBag: reference.EmbeddingBag,
    nn.GRUCell: reference.GRUCell,
    nn.LSTMCell: reference.LSTMCell,
    nn.RNNCell: reference.RNNCell,
    nn.LSTM: reference.LSTM,
}

DEFAULT_QAT_MODULE_MAPPINGS: dict[Callable[..., Any], Any] = {
    nn.Conv2d: qat.Conv2d,
    nn.Conv3d: qat.Conv3d,
    nn.Linear: qat.Linear,
    intrinsic.ConvBn1d: joined_qat.ConvBn1d,
    intrinsic.ConvBn2d: joined_qat.ConvBn2d,
    intrinsic.ConvBn3d: joined_qat.ConvBn3d,
    intrinsic.ConvBnReLU1d: joined_qat.ConvBnReLU1d,
    intrinsic.ConvBnReLU2d: joined_qat.ConvBnReLU2d,
    intrinsic.ConvBnReLU3d: joined_qat.ConvBnReLU3d,
    intrinsic.ConvReLU2d: joined_qat.ConvReLU2d,
    intrinsic.ConvReLU3d: joined_qat.ConvReLU3d,
    intrinsic.LinearReLU: joined_qat.LinearReLU,
    intrinsic.LinearBn1d: joined_qat.LinearBn1d,
}

DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS: dict[Callable[..., Any], Any] = {
    nn.GRUCell: dynamic.GRUCell,
    nn.Linear: dynamic.Linear,
    qat_dynamic.Linear: dynamic.Linear,
    nn.LSTM: dynamic.LSTM,
    nn.GRU: dynamic.GRU,
    nn.LSTMCell: dynamic.LSTMCell,
    nn.RNNCell: dynamic.RNNCell,
    intrinsic.LinearReLU: joined_dynamic.LinearReLU,
    nn.EmbeddingBag: nnq.EmbeddingBag,
    nn.Embedding: nnq.Embedding,
}

_INCLUDE_QCONFIG_PROPAGATE_LIST: set[Any] = {nn.Sequential}

DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS: dict[Callable[..., Any] | str, Any] = {
    F.elu: functional.elu,
    F.hardswish: functional.hardswish,
    F.leaky_relu: functional.leaky_relu,
}

# Modules whose results have a range that is known, and so a scale.
DEFAULT_MODULE_TO_ACT_POST_PROCESS: dict[Callable[..., Any], Any] = {
    nn.Hardsigmoid: default_fixed_qparams_range_0to1_fake_quant,
    nn.Sigmoid: default_fixed_qparams_range_0to1_fake_quant,
    nn.Softmax: default_fixed_qparams_range_0to1_fake_quant,
    nn.Tanh: default_fixed_qparams_range_neg1to1_fake_quant,
}


def no_observer_set() -> set[Any]:
    """Modules whose results no observer looks at."""
    from ..nn import quantizable

    return {quantizable.LSTM, quantizable.MultiheadAttention}


def get_default_static_quant_module_mappings() -> dict[Callable[..., Any], Any]:
    """A copy of the mapping of static quantization."""
    return copy.deepcopy(DEFAULT_STATIC_QUANT_MODULE_MAPPINGS)


def get_default_static_quant_reference_module_mappings() -> dict[Callable[..., Any], Any]:
    """A copy of the mapping to reference layers."""
    return copy.deepcopy(DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS)


def get_default_qat_module_mappings() -> dict[Callable[..., Any], Any]:
    """A copy of the mapping of quantization aware training."""
    return copy.deepcopy(DEFAULT_QAT_MODULE_MAPPINGS)


def get_default_dynamic_quant_module_mappings() -> dict[Callable[..., Any], Any]:
    """A copy of the mapping of dynamic quantization."""
    return copy.deepcopy(DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS)


def get_embedding_static_quant_module_mappings() -> dict[Callable[..., Any], Any]:
    """The mapping of static quantization with embeddings trained by `qat`."""
    return {**get_default_static_quant_module_mappings(), qat.EmbeddingBag: nnq.EmbeddingBag, qat.Embedding: nnq.Embedding}


def get_embedding_qat_module_mappings() -> dict[Callable[..., Any], Any]:
    """The mapping of quantization aware training with embeddings."""
    return {**get_default_qat_module_mappings(), nn.EmbeddingBag: qat.EmbeddingBag, nn.Embedding: qat.Embedding}


def get_default_float_to_quantized_operator_mappings() -> dict[Callable[..., Any] | str, Any]:
    """A copy of the mapping of functions."""
    return copy.deepcopy(DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS)


def get_static_quant_module_class(
    float_module_class: Callable[..., Any], additional_static_quant_mapping: dict[Any, Any] | None = None, is_reference: bool = False
) -> Any:
    """The class that takes the place of `float_module_class`. Raises: AssertionError where there is none.

    Args:
        additional_static_quant_mapping: counts before the default one.
        is_reference: give the class of the reference layer.
    """
    usual = DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS if is_reference else DEFAULT_STATIC_QUANT_MODULE_MAPPINGS
    found = {**usual, **(additional_static_quant_mapping or {})}.get(float_module_class)
    if found is None:
        raise AssertionError(f"Floating point module class {float_module_class} does not have a corresponding quantized module class")
    return copy.deepcopy(found)


def get_dynamic_quant_module_class(
    float_module_class: Callable[..., Any], additional_dynamic_quant_mapping: dict[Any, Any] | None = None
) -> Any:
    """The class of dynamic quantization that takes the place of `float_module_class`. Raises: AssertionError where there is none."""
    found = {**DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS, **(additional_dynamic_quant_mapping or {})}.get(float_module_class)
    if found is None:
        raise AssertionError(f"Floating point module class {float_module_class} does not have a corresponding quantized module class")
    return copy.deepcopy(found)


def get_default_qconfig_propagation_list() -> set[Callable[..., Any]]:
    """The classes of modules that a QConfig is given to."""
    return set(DEFAULT_STATIC_QUANT_MODULE_MAPPINGS) | set(DEFAULT_QAT_MODULE_MAPPINGS) | set(
        DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS
    ) | _INCLUDE_QCONFIG_PROPAGATE_LIST  # fmt: skip


def get_default_compare_output_module_list() -> set[Callable[..., Any]]:
    """The classes of modules whose results `torch.ao.ns` compares."""
    found: set[Any] = set(_INCLUDE_QCONFIG_PROPAGATE_LIST)
    for mapping in (DEFAULT_STATIC_QUANT_MODULE_MAPPINGS, DEFAULT_QAT_MODULE_MAPPINGS, DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS):
        found |= {*mapping, *mapping.values()}
    return found


def get_quantized_operator(float_op: Callable[..., Any] | str) -> Callable[..., Any]:
    """The function on quantized tensors that takes the place of `float_op`. Raises: AssertionError where there is none."""
    found = DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS.get(float_op)
    if found is None:
        raise AssertionError(f"Operator {float_op} does not have corresponding quantized op")
    return found
