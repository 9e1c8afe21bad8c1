"""Which QConfig each operation of a traced model gets."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import flambeau as fb

from ...nn import functional as F
from ...nn import modules as nn
from .fake_quantize import FixedQParamsFakeQuantize, default_weight_fake_quant
from .observer import (
    default_fixed_qparams_range_0to1_observer,
    default_fixed_qparams_range_neg1to1_observer,
    default_placeholder_observer,
    default_weight_observer,
)
from .qconfig import (
    QConfig,
    QConfigAny,
    default_quint8_weight_qconfig,
    default_reuse_input_qconfig,
    default_symmetric_qnnpack_qat_qconfig,
    default_symmetric_qnnpack_qconfig,
    get_default_qat_qconfig,
    get_default_qconfig,
)

__all__ = ["QConfigMapping", "get_default_qat_qconfig_mapping", "get_default_qconfig_mapping"]

_GLOBAL_DICT_KEY = ""
_STYLES = ("global_qconfig", "object_type_qconfigs", "module_name_regex_qconfigs", "module_name_qconfigs",
           "module_name_object_type_order_qconfigs")  # fmt: skip


class QConfigMapping:
    """Which QConfig the operations of a model get: what says more about one counts before what says less.

    From the least to the most: for all (`set_global`), for a type of module or function (`set_object_type`), for names of modules that
    match a pattern, for a name of a module, for the n-th operation of a type within a module. Each method returns the mapping.

    >>> mapping = fb.ao.quantization.QConfigMapping().set_global(None)
    >>> mapping.set_object_type(fb.nn.Linear, fb.ao.quantization.default_qconfig).object_type_qconfigs[fb.nn.Linear].weight().dtype
    torch.qint8
    """

    def __init__(self) -> None:
        self.global_qconfig: QConfigAny = None
        self.object_type_qconfigs: OrderedDict[Callable[..., Any] | str, QConfigAny] = OrderedDict()
        self.module_name_regex_qconfigs: OrderedDict[str, QConfigAny] = OrderedDict()
        self.module_name_qconfigs: OrderedDict[str, QConfigAny] = OrderedDict()
        self.module_name_object_type_order_qconfigs: OrderedDict[tuple[str, Any, int], QConfigAny] = OrderedDict()

    def set_global(self, global_qconfig: QConfigAny) -> QConfigMapping:
        """Give it to all that nothing else is said of."""
        self.global_qconfig = global_qconfig
        return self

    def set_object_type(self, object_type: Callable[..., Any] | str, qconfig: QConfigAny) -> QConfigMapping:
        """Give it to a class of modules, a function, or a method, by its name."""
        self.object_type_qconfigs[object_type] = qconfig
        return self

    def set_module_name_regex(self, module_name_regex: str, qconfig: QConfigAny) -> QConfigMapping:
        """Give it to modules whose whole name matches; of several patterns the one set first counts."""
        self.module_name_regex_qconfigs[module_name_regex] = qconfig
        return self

    def set_module_name(self, module_name: str, qconfig: QConfigAny) -> QConfigMapping:
        """Give it to a module and all within it that nothing else is said of."""
        self.module_name_qconfigs[module_name] = qconfig
        return self

    def set_module_name_object_type_order(
        self, module_name: str, object_type: Callable[..., Any], index: int, qconfig: QConfigAny
    ) -> QConfigMapping:
        """Give it to the operation number `index`, from 0, of a type within a module."""
        self.module_name_object_type_order_qconfigs[(module_name, object_type, index)] = qconfig
        return self

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for style in _STYLES:
            value = getattr(self, style)
            lines.append(f" {style}")
            if isinstance(value, OrderedDict) and value:
                lines += [f"  {name}: {config}" for name, config in value.items()]
            else:
                lines.append(f"  {value}")
        return "\n".join([*lines, ")"])

    def to_dict(self) -> dict[str, Any]:
        """The mapping as a dictionary, which `from_dict` reads."""
        return {
            _GLOBAL_DICT_KEY: self.global_qconfig,
            "object_type": list(self.object_type_qconfigs.items()),
            "module_name_regex": list(self.module_name_regex_qconfigs.items()),
            "module_name": list(self.module_name_qconfigs.items()),
            "module_name_object_type_order": [(*key, value) for key, value in self.module_name_object_type_order_qconfigs.items()],
        }

    @classmethod
    def from_dict(cls, qconfig_dict: dict[str, Any]) -> QConfigMapping:
        """The mapping that a dictionary says; keys that are missing say nothing."""
        made = cls()
        if _GLOBAL_DICT_KEY in qconfig_dict:
            made.set_global(qconfig_dict[_GLOBAL_DICT_KEY])
        for key, setter in (("object_type", made.set_object_type), ("module_name_regex", made.set_module_name_regex),
                            ("module_name", made.set_module_name),
                            ("module_name_object_type_order", made.set_module_name_object_type_order)):  # fmt: skip
            for entry in qconfig_dict.get(key, []):
                setter(*entry)
        return made


# Functions and modules whose results have a range that is known.
_FIXED_QPARAMS_OP_TO_OBSERVER: dict[Any, Any] = {
    nn.Hardsigmoid: default_fixed_qparams_range_0to1_observer,
    F.hardsigmoid: default_fixed_qparams_range_0to1_observer,
    "hardsigmoid": default_fixed_qparams_range_0to1_observer,
    "hardsigmoid_": default_fixed_qparams_range_0to1_observer,
    nn.Sigmoid: default_fixed_qparams_range_0to1_observer,
    fb.sigmoid: default_fixed_qparams_range_0to1_observer,
    "sigmoid": default_fixed_qparams_range_0to1_observer,
    "sigmoid_": default_fixed_qparams_range_0to1_observer,
    nn.Softmax: default_fixed_qparams_range_0to1_observer,
    nn.Tanh: default_fixed_qparams_range_neg1to1_observer,
    fb.tanh: default_fixed_qparams_range_neg1to1_observer,
    "tanh": default_fixed_qparams_range_neg1to1_observer,
    "tanh_": default_fixed_qparams_range_neg1to1_observer,
}


def _mapping(is_qat: bool, default: QConfig, backend: str) -> QConfigMapping:
    weight = default_weight_fake_quant if is_qat else default_weight_observer
    made = QConfigMapping().set_global(default).set_object_type("reshape", default_reuse_input_qconfig)
    # Where weights of linear layers have a scale for each channel on x86, those of transposed convolutions have one, as in PyTorch.
    transposed = QConfig(activation=default.activation, weight=weight) if backend in ("fbgemm", "x86") else default
    for kind in (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, F.conv_transpose1d, F.conv_transpose2d,
                 F.conv_transpose3d):  # fmt: skip
        made.set_object_type(kind, transposed)
    layer_norm = QConfig(activation=default.activation, weight=default_placeholder_observer)
    made.set_object_type(F.layer_norm, layer_norm).set_object_type(nn.LayerNorm, layer_norm)
    made.set_object_type(nn.PReLU, default_quint8_weight_qconfig)
    for kind, observer in _FIXED_QPARAMS_OP_TO_OBSERVER.items():
        activation = FixedQParamsFakeQuantize.with_args(observer=observer) if is_qat else observer
        made.set_object_type(kind, QConfig(activation=activation, weight=weight))
    return made


def get_default_qconfig_mapping(backend: str = "x86", version: int = 0) -> QConfigMapping:
    """The mapping of static quantization after training; see `get_default_qconfig`."""
    return _mapping(False, get_default_qconfig(backend, version), backend)


def get_default_qat_qconfig_mapping(backend: str = "x86", version: int = 1) -> QConfigMapping:
    """The mapping of quantization aware training; see `get_default_qat_qconfig`."""
    return _mapping(True, get_default_qat_qconfig(backend, version), backend)


def _get_symmetric_qnnpack_qconfig_mapping() -> QConfigMapping:
    """The mapping of the backend "qnnpack" with symmetric int8."""
    return get_default_qconfig_mapping("qnnpack").set_global(default_symmetric_qnnpack_qconfig)


def _get_symmetric_qnnpack_qat_qconfig_mapping() -> QConfigMapping:
    """The mapping of training for the backend "qnnpack" with symmetric int8."""
    return get_default_qat_qconfig_mapping("qnnpack").set_global(default_symmetric_qnnpack_qat_qconfig)
