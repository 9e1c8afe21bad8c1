"""The patterns that this package computes with quantized tensors, which are those of PyTorch's own backends."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import flambeau as fb

from ....nn import functional as F
from ....nn import modules as nn
from ...nn import intrinsic, qat
from ...nn.intrinsic import qat as joined_qat
from ...nn.quantized import reference
from ..fuser_method_mappings import get_fuser_method
from . import BackendConfig, BackendPatternConfig, DTypeConfig, DTypeWithConstraints, ObservationType

__all__ = [
    "get_fbgemm_backend_config", "get_native_backend_config", "get_onednn_backend_config", "get_qnnpack_backend_config",
]  # fmt: skip

_WEIGHTED = DTypeConfig(fb.quint8, fb.quint8, fb.qint8, fb.float)
_DYNAMIC = DTypeConfig(fb.quint8, fb.float, fb.qint8, fb.float, is_dynamic=True)
_HALF = DTypeConfig(fb.float16, fb.float, fb.float16, fb.float, is_dynamic=True)
_PLAIN = DTypeConfig(fb.quint8, fb.quint8)
_NORMALIZED = DTypeConfig(fb.quint8, fb.quint8, fb.float, fb.float)
_TABLES = [DTypeConfig(fb.float, fb.float, fb.quint8), DTypeConfig(fb.float, fb.float, fb.quint4x2)]


def _fixed(scale: float, zero_point: int) -> DTypeConfig:
    kind = DTypeWithConstraints(
        fb.quint8, quant_min_lower_bound=0, quant_max_upper_bound=255, scale_exact_match=scale, zero_point_exact_match=zero_point
    )
    return DTypeConfig(kind, kind)


_FROM_0_TO_1, _FROM_MINUS_1_TO_1 = _fixed(1 / 256, 0), _fixed(2 / 256, 128)
_SHARED = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT
_WEIGHT_AND_BIAS = {"weight": 1, "bias": 2}


def _configs(patterns: Iterable[Any], dtypes: list[DTypeConfig], kind: Any = None) -> list[BackendPatternConfig]:
    made = [BackendPatternConfig(pattern).set_dtype_configs(dtypes) for pattern in patterns]
    return made if kind is None else [config.set_observation_type(kind) for config in made]


def _layer(layer: Any, trained: Any, function: Any, joined: Any, joined_trained: Any, dtypes: list[DTypeConfig]) -> Any:
    """A layer with a weight, alone and before a ReLU, as a module, a function, and in training."""
    of_reference = getattr(reference, layer.__name__)
    relus = (nn.ReLU, F.relu)
    configs = _configs([layer, trained, joined, joined_trained, function, *((layer, relu) for relu in relus),
                        *((function, relu) for relu in relus)], dtypes)  # fmt: skip
    alone, in_training, both, both_trained, called = configs[:5]
    alone.set_qat_module(trained)
    both.set_qat_module(joined_trained)
    for config in (alone, in_training, both, both_trained):
        config.set_root_module(layer).set_reference_quantized_module(of_reference)
    called._set_input_type_to_index(_WEIGHT_AND_BIAS)
    for config in configs[5:7]:
        config.set_fused_module(joined).set_fuser_method(get_fuser_method((layer, nn.ReLU)))
    for config in configs[7:]:
        config._set_input_type_to_index(_WEIGHT_AND_BIAS)
    return configs


def _with_normalization(layer: Any, norm: Any, joined: Any, joined_trained: Any, dtypes: list[DTypeConfig]) -> Any:
    """A layer and a normalization, which a convolution may have a ReLU after."""
    of_reference = getattr(reference, layer.__name__)
    configs = _configs([(layer, norm), joined[0], joined_trained[0]], dtypes)
    configs[0].set_fused_module(joined[0]).set_fuser_method(get_fuser_method((layer, norm)))
    if len(joined) > 1:
        configs += _configs([(layer, norm, nn.ReLU), (layer, norm, F.relu), joined[1], joined_trained[1]], dtypes)
        for config in configs[3:5]:
            config.set_fused_module(joined[1]).set_fuser_method(get_fuser_method((layer, norm, nn.ReLU)))
    for config in configs:
        for before, after in zip(joined, joined_trained, strict=True):
            if config.pattern is before:
                config.set_qat_module(after)
        if config.pattern in (*joined, *joined_trained):
            config.set_root_module(layer).set_reference_quantized_module(of_reference)
    return configs


def _weighted() -> list[BackendPatternConfig]:
    made: list[BackendPatternConfig] = []
    for n in (1, 2, 3):
        conv, norm, transposed = (getattr(nn, f"{name}{n}d") for name in ("Conv", "BatchNorm", "ConvTranspose"))
        joined = [getattr(intrinsic, f"{name}{n}d") for name in ("ConvBn", "ConvBnReLU")]
        trained = [getattr(joined_qat, f"{name}{n}d") for name in ("ConvBn", "ConvBnReLU")]
        made += _layer(
            conv, getattr(qat, f"Conv{n}d"), getattr(F, f"conv{n}d"), getattr(intrinsic, f"ConvReLU{n}d"),
            getattr(joined_qat, f"ConvReLU{n}d"), [_WEIGHTED],
        )  # fmt: skip
        made += _with_normalization(conv, norm, joined, trained, [_WEIGHTED])
        alone, fused, called = _configs([transposed, (transposed, norm), getattr(F, f"conv_transpose{n}d")], [_WEIGHTED])
        alone.set_root_module(transposed).set_reference_quantized_module(getattr(reference, transposed.__name__))
        fused.set_fuser_method(get_fuser_method((transposed, norm)))
        called._set_input_type_to_index(_WEIGHT_AND_BIAS)
        made += [alone, fused, called]
    dtypes = [_WEIGHTED, _DYNAMIC, _HALF]
    made += _layer(nn.Linear, qat.Linear, F.linear, intrinsic.LinearReLU, joined_qat.LinearReLU, dtypes)
    return made + _with_normalization(nn.Linear, nn.BatchNorm1d, [intrinsic.LinearBn1d], [joined_qat.LinearBn1d], dtypes)


def _binary() -> list[BackendPatternConfig]:
    different = ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT
    by_operands = {0: different, 1: _SHARED, 2: different}
    patterns = [
        pattern for function in (operator.add, fb.add, operator.mul, fb.mul)
        for pattern in ((function, nn.ReLU), (function, F.relu), (function, fb.relu), function)
    ]  # fmt: skip
    return [c._set_num_tensor_args_to_observation_type(by_operands) for c in _configs(patterns, [_PLAIN])]


def _normalized() -> list[BackendPatternConfig]:
    made = []
    for norm, joined in ((nn.BatchNorm2d, intrinsic.BNReLU2d), (nn.BatchNorm3d, intrinsic.BNReLU3d)):
        configs = _configs([norm, joined, (norm, nn.ReLU), (norm, F.relu)], [_PLAIN])
        for config in configs[2:]:
            config.set_fused_module(joined).set_fuser_method(get_fuser_method((norm, nn.ReLU)))
        made += configs
    made += _configs([nn.LayerNorm, F.layer_norm], [_NORMALIZED])
    made[-1]._set_input_type_to_index({"weight": 2, "bias": 3})
    groups, instances = _configs([F.group_norm, F.instance_norm], [_PLAIN])
    groups._set_input_type_to_index({"weight": 2, "bias": 3})
    instances._set_input_type_to_index({"weight": 3, "bias": 4})
    return [*made, groups, instances]


def _tables() -> list[BackendPatternConfig]:
    made = []
    for table, trained in ((nn.Embedding, qat.Embedding), (nn.EmbeddingBag, qat.EmbeddingBag)):
        alone, in_training = _configs([table, trained], _TABLES)
        alone.set_qat_module(trained)
        for config in (alone, in_training):
            config.set_root_module(table).set_reference_quantized_module(getattr(reference, table.__name__))
        made += [alone, in_training]
    recurrent = [nn.GRUCell, nn.LSTMCell, nn.RNNCell, nn.LSTM, nn.GRU]
    return made + [c.set_root_module(c.pattern) for c in _configs(recurrent, [_DYNAMIC, _HALF])]


_OWN_SCALE = (
    fb.matmul, nn.ELU, nn.LeakyReLU, nn.Hardswish, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, nn.Dropout, nn.PReLU,
    F.elu, F.hardswish, F.leaky_relu, F.dropout,
)  # fmt: skip
_RANGE_0_TO_1 = (
    nn.Hardsigmoid, F.hardsigmoid, "hardsigmoid", "hardsigmoid_", nn.Sigmoid, fb.sigmoid, "sigmoid", "sigmoid_", nn.Softmax
)  # fmt: skip
_RANGE_MINUS_1_TO_1 = (nn.Tanh, fb.tanh, "tanh", "tanh_")
_SAME_SCALE = (
    fb.cat, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.Hardtanh,
    nn.Identity, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.PixelShuffle, nn.PixelUnshuffle, nn.ReLU, nn.ReLU6,
    fb.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d, F.hardtanh, F.hardtanh_, F.interpolate, F.max_pool1d,
    F.max_pool2d, F.max_pool3d, fb.pixel_shuffle, fb.pixel_unshuffle, F.relu, F.relu6, fb.avg_pool1d, F.avg_pool2d, F.avg_pool3d,
    fb.clamp, fb.flatten, fb.mean, fb.narrow, fb.repeat_interleave, fb.transpose, fb.squeeze, fb.stack, fb.unsqueeze, operator.floordiv,
    "contiguous", "clamp", "detach", "detach_", "mean", "permute", "repeat", "repeat_interleave", "reshape", "resize_", "relu", "relu_",
    "squeeze", "squeeze_", "transpose", "unsqueeze", "unsqueeze_", "view",
)  # fmt: skip


def get_native_backend_config() -> BackendConfig:
    """The config of PyTorch's own backends, "fbgemm" and "qnnpack" together; `prepare_fx` takes it where none is given."""
    made = BackendConfig("native").set_backend_pattern_configs(_weighted()).set_backend_pattern_configs(_binary())
    made.set_backend_pattern_configs(_configs(_OWN_SCALE, [_PLAIN]))
    made.set_backend_pattern_configs(_configs(_RANGE_0_TO_1, [_FROM_0_TO_1]))
    made.set_backend_pattern_configs(_configs(_RANGE_MINUS_1_TO_1, [_FROM_MINUS_1_TO_1]))
    made.set_backend_pattern_configs(_configs(_SAME_SCALE, [_PLAIN], _SHARED))
    made.set_backend_pattern_configs(_configs(("shape", "size"), [_PLAIN], ObservationType.INPUT_OUTPUT_NOT_OBSERVED))
    return made.set_backend_pattern_configs(_normalized()).set_backend_pattern_configs(_tables())


def get_fbgemm_backend_config() -> BackendConfig:
    """The native config under the name "fbgemm": this package has one set of kernels."""
    return get_native_backend_config().set_name("fbgemm")


def get_onednn_backend_config() -> BackendConfig:
    """The native config under the name "onednn": this package has one set of kernels."""
    return get_native_backend_config().set_name("onednn")


def get_qnnpack_backend_config() -> BackendConfig:
    """The native config under the name "qnnpack": this package has one set of kernels."""
    return get_native_backend_config().set_name("qnnpack")
