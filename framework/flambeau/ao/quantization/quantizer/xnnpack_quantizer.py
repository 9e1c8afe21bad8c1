"""The quantizer of the XNNPACK backend: 8-bit integers, activations affine and weights symmetric."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import flambeau as fb

from ....fx import GraphModule, Node
from ..fake_quantize import FakeQuantize, FusedMovingAvgObsFakeQuantize
from ..observer import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)
from .quantizer import QuantizationSpec, Quantizer
from .utils import OperatorConfig, OperatorPatternType, QuantizationConfig
from .xnnpack_quantizer_utils import OP_TO_ANNOTATOR, propagate_annotation

__all__ = ["XNNPACKQuantizer", "get_symmetric_quantization_config"]


@functools.lru_cache
def get_symmetric_quantization_config(
    is_per_channel: bool = False, is_qat: bool = False, is_dynamic: bool = False, act_qmin: int = -128, act_qmax: int = 127,
    weight_qmin: int = -127, weight_qmax: int = 127,
) -> QuantizationConfig:  # fmt: skip
    """Activations as int8 with a zero point, weights as int8 around 0.

    Args:
        is_per_channel: a scale for each channel of a weight.
        is_qat: with fake quantization, for training; else with observers.
        is_dynamic: the scales of activations are found anew in each call.
        act_qmin, act_qmax, weight_qmin, weight_qmax: the integers in use.
    """
    more: dict[str, Any] = {"eps": 2**-12}
    observer: Any
    if is_qat:
        observer = FakeQuantize if is_dynamic else FusedMovingAvgObsFakeQuantize
        if is_dynamic:
            more |= {"observer": MovingAverageMinMaxObserver.with_args(averaging_constant=1)}
    else:
        observer = PlaceholderObserver if is_dynamic else HistogramObserver
    activation = QuantizationSpec(
        dtype=fb.int8, quant_min=act_qmin, quant_max=act_qmax, qscheme=fb.per_tensor_affine, is_dynamic=is_dynamic,
        observer_or_fake_quant_ctr=observer.with_args(**more),
    )  # fmt: skip
    more = {"eps": 2**-12}
    if is_qat:
        more["observer"] = MovingAveragePerChannelMinMaxObserver if is_per_channel else MovingAverageMinMaxObserver
        observer = FusedMovingAvgObsFakeQuantize
    else:
        observer = PerChannelMinMaxObserver if is_per_channel else MinMaxObserver
    weight = QuantizationSpec(
        dtype=fb.int8, quant_min=weight_qmin, quant_max=weight_qmax, ch_axis=0, is_dynamic=False,
        qscheme=fb.per_channel_symmetric if is_per_channel else fb.per_tensor_symmetric,
        observer_or_fake_quant_ctr=observer.with_args(**more),
    )  # fmt: skip
    return QuantizationConfig(activation, None if is_dynamic else activation, weight, None, is_qat)


def _supported_symmetric_quantized_operators() -> dict[str, list[OperatorPatternType]]:
    from ....nn import functional as F

    return {
        "conv2d": [[fb.nn.Conv2d, fb.nn.ReLU], [fb.nn.Conv2d, F.relu], [F.conv2d, fb.nn.ReLU], [F.conv2d, F.relu]],
        "linear": [[fb.nn.Linear], [F.linear]],
        "add": [[fb.add]], "adaptive_avg_pool2d": [[fb.nn.AdaptiveAvgPool2d], [F.adaptive_avg_pool2d]],
    }  # fmt: skip


def _supported_configs() -> list[QuantizationConfig]:
    return [
        get_symmetric_quantization_config(), get_symmetric_quantization_config(is_qat=True),
        get_symmetric_quantization_config(is_per_channel=True), get_symmetric_quantization_config(is_per_channel=True, is_qat=True),
    ]  # fmt: skip


def _in_module(name: str) -> Callable[[Node], bool]:
    """A filter of the nodes that run within the module at the path `name`."""

    def wanted(node: Node) -> bool:
        stack = node.meta.get("nn_module_stack") or {}
        return any(path == name or path.startswith(f"{name}.") for path, _ in stack.values())

    return wanted


def _in_class(cls: Any) -> Callable[[Node], bool]:
    """A filter of the nodes that run within a module of the class `cls`."""
    full = f"{cls.__module__}.{cls.__qualname__}"

    def wanted(node: Node) -> bool:
        stack = node.meta.get("nn_module_stack") or {}
        return any(kind in (full, cls) for _, kind in stack.values())

    return wanted


class XNNPACKQuantizer(Quantizer):
    """Says that layers, sums, products and what moves numbers between them are of 8-bit integers.

    Of the settings the most special counts: that of a module's name, then of its class, then of an operator, then the global one.

    >>> from flambeau.ao.quantization.quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
    >>> quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config())
    """

    supported_config_and_operators = property(lambda self: self.get_supported_operators())

    # In the order in which they are looked for: longer patterns come first.
    STATIC_QAT_ONLY_OPS = ["conv_bn_relu", "conv_bn", "conv_transpose_bn_relu", "conv_transpose_bn"]
    STATIC_OPS = [
        "linear_relu", "linear", "conv_relu", "conv", "conv_transpose_relu", "adaptive_avg_pool2d", "gru_io_only", "add_relu", "add",
        "mul_relu", "mul", "cat",
    ]  # fmt: skip
    DYNAMIC_OPS = ["linear"]

    def __init__(self) -> None:
        super().__init__()
        self.global_config: QuantizationConfig | None = None
        self.operator_type_config: dict[Any, QuantizationConfig | None] = {}
        self.module_type_config: dict[Any, QuantizationConfig | None] = {}
        self.module_name_config: dict[str, QuantizationConfig | None] = {}
        self.filter_fn: Callable[[Node], bool] | None = None

    @classmethod
    def get_supported_quantization_configs(cls) -> list[QuantizationConfig]:
        """The configs that the backend runs."""
        return _supported_configs()

    @classmethod
    def get_supported_operator_for_quantization_config(cls, quantization_config: QuantizationConfig | None) -> list[OperatorPatternType]:
        """The patterns that the backend runs so; all of them for None."""
        known = _supported_symmetric_quantized_operators().values()
        if quantization_config is not None and quantization_config not in _supported_configs():
            return []
        return [pattern for patterns in known for pattern in patterns]

    @classmethod
    def get_supported_operators(cls) -> list[OperatorConfig]:
        """Patterns and configs that the backend runs."""
        patterns = [pattern for each in _supported_symmetric_quantized_operators().values() for pattern in each]
        return [OperatorConfig(config, copy.copy(patterns)) for config in _supported_configs()]

    def set_global(self, quantization_config: QuantizationConfig) -> XNNPACKQuantizer:
        """The config of what no other setting is of."""
        self.global_config = quantization_config
        return self

    def set_operator_type(self, operator_type: Any, quantization_config: QuantizationConfig) -> XNNPACKQuantizer:
        """The config of calls of an operator, such as ``torch.ops.aten.linear.default``."""
        self.operator_type_config[operator_type] = quantization_config
        return self

    def set_module_type(self, module_type: Any, quantization_config: QuantizationConfig | None) -> XNNPACKQuantizer:
        """The config of what modules of a class run; None to leave them as they are."""
        self.module_type_config[module_type] = quantization_config
        return self

    def set_module_name(self, module_name: str, quantization_config: QuantizationConfig | None) -> XNNPACKQuantizer:
        """The config of what the module at a path runs; None to leave it as it is."""
        self.module_name_config[module_name] = quantization_config
        return self

    def set_filter_function(self, filter_fn: Callable[[Node], bool]) -> XNNPACKQuantizer:
        """Annotate nothing but nodes that `filter_fn` takes."""
        self.filter_fn = filter_fn
        return self

    def annotate(self, model: GraphModule) -> GraphModule:
        """Annotate each pattern, as the most special setting for it says."""
        placed: list[Callable[[Node], bool]] = []     # what settings of names and classes are of, which others leave alone
        for name, config in self.module_name_config.items():
            self._annotate(model, config, _in_module(name))
            placed.append(_in_module(name))
        for cls, config in self.module_type_config.items():
            wanted = _in_class(cls)
            self._annotate(model, config, _but(wanted, list(placed)))
            placed.append(wanted)
        for target, config in self.operator_type_config.items():
            self._annotate(model, config, _but(lambda node, target=target: node.target is target, placed))
        known = set(self.operator_type_config)
        self._annotate(model, self.global_config, _but(lambda node: node.target not in known, placed))
        propagate_annotation(model)
        return model

    def _annotate(self, model: GraphModule, config: QuantizationConfig | None, wanted: Callable[[Node], bool]) -> None:
        if config is None:
            return
        if self.filter_fn is not None:
            inner, chosen = wanted, self.filter_fn
            wanted = lambda node: inner(node) and chosen(node)  # noqa: E731
        if config.input_activation is not None and config.input_activation.is_dynamic:
            patterns = self.DYNAMIC_OPS
        else:
            patterns = [*(self.STATIC_QAT_ONLY_OPS if config.is_qat else ()), *self.STATIC_OPS]
        for pattern in patterns:
            OP_TO_ANNOTATOR[pattern](model, config, wanted)

    def validate(self, model: GraphModule) -> None:
        """Every such graph is right."""


def _but(wanted: Callable[[Node], bool], others: list[Callable[[Node], bool]]) -> Callable[[Node], bool]:
    """A filter of what `wanted` takes and none of `others` does."""
    return lambda node: wanted(node) and not any(other(node) for other in others)
