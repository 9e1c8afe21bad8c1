"""Quantization of traced models: layers are joined, observers go in, and operations on integers take the place of observed ones.

A model is traced by `fx.symbolic_trace`, so its flow must not depend on values. `prepare_fx` (or `prepare_qat_fx`, for training) puts
observers in; the model then sees some data, or is trained; `convert_fx` gives the model that computes with integers.
"""

from __future__ import annotations

import copy
from typing import Any

from ... import _missing
from ...fx import GraphModule
from ...nn import Module
from .backend_config import BackendConfig
from .backend_config.native import get_native_backend_config
from .fx import _convert, _prepare
from .fx._tracing import fuse, keep_attributes, traced
from .fx.custom_config import ConvertCustomConfig, FuseCustomConfig, PrepareCustomConfig
from .qconfig_mapping import QConfigMapping

__all__ = ["convert_fx", "convert_to_reference_fx", "fuse_fx", "prepare_fx", "prepare_qat_fx"]


def _read(kind: Any, value: Any) -> Any:
    """`value` as a config of its class, which dictionaries say too."""
    if value is None:
        return kind()
    return kind.from_dict(value) if isinstance(value, dict) else value


def _backend(value: BackendConfig | dict[str, Any] | None) -> BackendConfig:
    return get_native_backend_config() if value is None else _read(BackendConfig, value)


def fuse_fx(
    model: Module, fuse_custom_config: FuseCustomConfig | dict[str, Any] | None = None,
    backend_config: BackendConfig | dict[str, Any] | None = None,
) -> GraphModule:  # fmt: skip
    """The traced model with layers joined that follow each other: a convolution with its normalization and ReLU, and so on.

    Args:
        model: in evaluation mode; normalizations are folded into weights.
        fuse_custom_config: attributes of `model` to keep.
        backend_config: which layers are joined; those of the native backend by default.
    Raises: TraceError for a model that cannot be traced; AssertionError for one in training mode.

    >>> model = fb.nn.Sequential(fb.nn.Conv2d(1, 2, 3), fb.nn.BatchNorm2d(2), fb.nn.ReLU()).eval()
    >>> type(getattr(fb.ao.quantization.quantize_fx.fuse_fx(model), "0")).__name__
    'ConvReLU2d'
    """
    custom = _read(FuseCustomConfig, fuse_custom_config)
    made, _ = traced(model)
    fuse(made, _backend(backend_config), is_qat=False)
    keep_attributes(model, made, custom.preserved_attributes)
    return made


def _prepared(
    model: Module, qconfig_mapping: Any, is_qat: bool, example_inputs: Any, prepare_custom_config: Any, equalization: Any,
    backend_config: Any,
) -> GraphModule:  # fmt: skip
    if equalization is not None:
        raise _missing.not_built("ao.quantization.quantize_fx.prepare_fx(_equalization_config=)", "leave the argument out")
    if not isinstance(qconfig_mapping, (QConfigMapping, dict)):
        raise ValueError(f"qconfig_mapping must be a QConfigMapping or a dictionary, got {type(qconfig_mapping).__name__}")
    return _prepare.prepare(
        model, copy.deepcopy(_read(QConfigMapping, qconfig_mapping)), is_qat, example_inputs,
        _read(PrepareCustomConfig, prepare_custom_config), _backend(backend_config),
    )  # fmt: skip


def prepare_fx(
    model: Module, qconfig_mapping: QConfigMapping | dict[str, Any], example_inputs: Any,
    prepare_custom_config: PrepareCustomConfig | dict[str, Any] | None = None, _equalization_config: Any = None,
    backend_config: BackendConfig | dict[str, Any] | None = None,
) -> GraphModule:  # fmt: skip
    """The traced model with layers joined and observers put in, for quantization after training; run it on data, then `convert_fx`.

    Args:
        model: in evaluation mode. Its layers are used, so copy it first if it is needed further.
        qconfig_mapping: which QConfig each operation gets; operations without one stay as they are.
        example_inputs: a tuple of arguments.
        prepare_custom_config: what is done otherwise than usual.
        backend_config: what the backend computes; that of the native one by default.
    Raises: TraceError for a model that cannot be traced; ValueError for a mapping of another kind; NotImplementedError for
        `_equalization_config`.

    >>> model = fb.nn.Sequential(fb.nn.Linear(4, 4), fb.nn.ReLU()).eval()
    >>> mapping = fb.ao.quantization.get_default_qconfig_mapping("x86")
    >>> prepared = fb.ao.quantization.quantize_fx.prepare_fx(model, mapping, (fb.ones(2, 4),))
    >>> _ = prepared(fb.ones(2, 4))
    >>> type(getattr(fb.ao.quantization.quantize_fx.convert_fx(prepared), "0")).__name__
    'LinearReLU'
    """
    return _prepared(model, qconfig_mapping, False, example_inputs, prepare_custom_config, _equalization_config, backend_config)


def prepare_qat_fx(
    model: Module, qconfig_mapping: QConfigMapping | dict[str, Any], example_inputs: Any,
    prepare_custom_config: PrepareCustomConfig | dict[str, Any] | None = None,
    backend_config: BackendConfig | dict[str, Any] | None = None,
) -> GraphModule:  # fmt: skip
    """`prepare_fx` for quantization aware training: layers round their weights, and train them so.

    Args:
        model: in training mode.
        qconfig_mapping: with QConfigs of fake quantizations, as `get_default_qat_qconfig_mapping` gives.
        example_inputs, prepare_custom_config, backend_config: see `prepare_fx`.
    """
    return _prepared(model, qconfig_mapping, True, example_inputs, prepare_custom_config, None, backend_config)


def _converted(model: Any, custom: Any, is_reference: bool, qconfig_mapping: Any, backend_config: Any) -> GraphModule:
    if not isinstance(model, GraphModule) or "quantization" not in model.meta:
        raise ValueError(f"input model must be a GraphModule that prepare_fx or prepare_qat_fx made, got {type(model).__name__}")
    if qconfig_mapping is not None or backend_config is not None:
        raise _missing.not_built(
            "ao.quantization.quantize_fx.convert_fx(qconfig_mapping=, backend_config=)", "give them to prepare_fx, and leave them out here"
        )
    custom = _read(ConvertCustomConfig, custom)
    made = _convert.convert(model, custom, is_reference)
    keep_attributes(model, made, custom.preserved_attributes)
    return made


def convert_fx(
    graph_module: GraphModule, convert_custom_config: ConvertCustomConfig | dict[str, Any] | None = None, _remove_qconfig: bool = True,
    qconfig_mapping: QConfigMapping | dict[str, Any] | None = None, backend_config: BackendConfig | dict[str, Any] | None = None,
    keep_original_weights: bool = False,
) -> GraphModule:  # fmt: skip
    """The model that computes with integers, of what `prepare_fx` or `prepare_qat_fx` made and what its observers saw.

    Args:
        graph_module: it is changed; copy it first if it is needed further.
        convert_custom_config: what is done otherwise than usual.
        _remove_qconfig: whether layers lose their attribute `qconfig`; they do.
        qconfig_mapping, backend_config: not built; those given to `prepare_fx` count.
        keep_original_weights: not built.
    Returns: a GraphModule. Operations that have no kernel for integers compute with the numbers of quantized tensors.
    Raises: ValueError for another module; NotImplementedError for arguments that are not built.
    """
    if keep_original_weights:
        raise _missing.not_built("ao.quantization.quantize_fx.convert_fx(keep_original_weights=)", "copy the model before it is prepared")
    return _converted(graph_module, convert_custom_config, False, qconfig_mapping, backend_config)


def convert_to_reference_fx(
    graph_module: GraphModule, convert_custom_config: ConvertCustomConfig | dict[str, Any] | None = None, _remove_qconfig: bool = True,
    qconfig_mapping: QConfigMapping | dict[str, Any] | None = None, backend_config: BackendConfig | dict[str, Any] | None = None,
) -> GraphModule:  # fmt: skip
    """`convert_fx`, with what integers mean in place of them: each tensor is quantized and taken as numbers again.

    The layers are those of `ao.nn.quantized.reference`. Backends follow this model.
    """
    return _converted(graph_module, convert_custom_config, True, qconfig_mapping, backend_config)
