"""QConfigs: which observers, or fake quantizations, the activations and the weights of a module get."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import flambeau as fb

from ...nn import Identity, Module
from .fake_quantize import (
    FakeQuantize,
    FusedMovingAvgObsFakeQuantize,
    default_dynamic_fake_quant,
    default_embedding_fake_quant,
    default_embedding_fake_quant_4bit,
    default_fake_quant,
    default_fused_act_fake_quant,
    default_fused_per_channel_wt_fake_quant,
    default_fused_wt_fake_quant,
    default_per_channel_weight_fake_quant,
    default_weight_fake_quant,
    fused_per_channel_wt_fake_quant_range_neg_127_to_127,
    fused_wt_fake_quant_range_neg_127_to_127,
)
from .observer import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    NoopObserver,
    PlaceholderObserver,
    _PartialWrapper,
    default_debug_observer,
    default_dynamic_quant_observer,
    default_float_qparams_observer,
    default_float_qparams_observer_4bit,
    default_observer,
    default_per_channel_weight_observer,
    default_placeholder_observer,
    default_reuse_input_observer,
    default_weight_observer,
    per_channel_weight_observer_range_neg_127_to_127,
    weight_observer_range_neg_127_to_127,
)

__all__ = [
    "QConfig", "QConfigAny", "QConfigDynamic", "default_activation_only_qconfig", "default_debug_qconfig", "default_dynamic_qat_qconfig",
    "default_dynamic_qconfig", "default_embedding_qat_qconfig", "default_embedding_qat_qconfig_4bit", "default_per_channel_qconfig",
    "default_per_channel_symmetric_qnnpack_qat_qconfig", "default_per_channel_symmetric_qnnpack_qconfig", "default_qat_qconfig",
    "default_qat_qconfig_v2", "default_qconfig", "default_quint8_weight_qconfig", "default_reuse_input_qconfig",
    "default_symmetric_qnnpack_qat_qconfig", "default_symmetric_qnnpack_qconfig", "default_weight_only_qconfig",
    "float16_dynamic_qconfig", "float16_static_qconfig", "float_qparams_weight_only_qconfig", "float_qparams_weight_only_qconfig_4bit",
    "get_default_qat_qconfig", "get_default_qat_qconfig_dict", "get_default_qconfig", "get_default_qconfig_dict",
    "per_channel_dynamic_qconfig", "qconfig_equals",
]  # fmt: skip


class _Pair(NamedTuple):
    activation: Any
    weight: Any


class QConfig(_Pair):
    """What makes the observers, or fake quantizations, of activations and of weights: two classes or recipes, not objects.

    Args:
        activation, weight: called without arguments, each makes a module; see `ObserverBase.with_args`.
    Raises: ValueError for modules.

    >>> fb.ao.quantization.QConfig(fb.ao.quantization.default_observer, fb.ao.quantization.default_weight_observer).weight().dtype
    torch.qint8
    """

    __slots__ = ()

    def __new__(cls, activation: Any, weight: Any) -> QConfig:
        if isinstance(activation, Module) or isinstance(weight, Module):
            raise ValueError("QConfig received observer instance, please pass observer class instead: use MyObserver.with_args(x=1)")
        return super().__new__(cls, activation, weight)


class QConfigDynamic(_Pair):
    """An older word for a QConfig whose activations are quantized when the model runs; use `QConfig`."""

    __slots__ = ()

    def __new__(cls, activation: Any = Identity, weight: Any = Identity) -> QConfigDynamic:
        if isinstance(weight, Module):
            raise ValueError("QConfigDynamic received observer instance, please pass observer class instead: use MyObserver.with_args(x=1)")
        return super().__new__(cls, activation, weight)


QConfigAny = QConfig | None

default_qconfig = QConfig(activation=default_observer, weight=default_weight_observer)
default_debug_qconfig = QConfig(weight=default_weight_observer, activation=default_debug_observer)
default_per_channel_qconfig = QConfig(activation=default_observer, weight=default_per_channel_weight_observer)
default_dynamic_qconfig = QConfig(activation=default_dynamic_quant_observer, weight=default_weight_observer)
float16_dynamic_qconfig = QConfig(
    activation=PlaceholderObserver.with_args(dtype=fb.float16, is_dynamic=True), weight=PlaceholderObserver.with_args(dtype=fb.float16)
)
float16_static_qconfig = QConfig(
    activation=PlaceholderObserver.with_args(dtype=fb.float16), weight=PlaceholderObserver.with_args(dtype=fb.float16)
)
per_channel_dynamic_qconfig = QConfig(activation=default_dynamic_quant_observer, weight=default_per_channel_weight_observer)
float_qparams_weight_only_qconfig = QConfig(activation=default_placeholder_observer, weight=default_float_qparams_observer)
float_qparams_weight_only_qconfig_4bit = QConfig(activation=default_placeholder_observer, weight=default_float_qparams_observer_4bit)
default_qat_qconfig = QConfig(activation=default_fake_quant, weight=default_weight_fake_quant)
default_dynamic_qat_qconfig = QConfig(activation=default_dynamic_fake_quant, weight=default_weight_fake_quant)
default_weight_only_qconfig = QConfig(activation=Identity, weight=default_weight_fake_quant)
default_activation_only_qconfig = QConfig(activation=default_fake_quant, weight=Identity)
default_qat_qconfig_v2 = QConfig(activation=default_fused_act_fake_quant, weight=default_fused_wt_fake_quant)
default_reuse_input_qconfig = QConfig(activation=default_reuse_input_observer, weight=NoopObserver)
default_quint8_weight_qconfig = QConfig(activation=HistogramObserver, weight=MinMaxObserver)
default_symmetric_qnnpack_qconfig = QConfig(
    activation=HistogramObserver.with_args(dtype=fb.qint8, reduce_range=False, eps=2**-12), weight=weight_observer_range_neg_127_to_127
)
default_per_channel_symmetric_qnnpack_qconfig = QConfig(
    activation=HistogramObserver.with_args(dtype=fb.qint8, reduce_range=False, eps=2**-12),
    weight=per_channel_weight_observer_range_neg_127_to_127,
)
_qnnpack_activation = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, quant_min=-128, quant_max=127, dtype=fb.qint8, reduce_range=False, eps=2**-12
)
default_symmetric_qnnpack_qat_qconfig = QConfig(activation=_qnnpack_activation, weight=fused_wt_fake_quant_range_neg_127_to_127)
default_per_channel_symmetric_qnnpack_qat_qconfig = QConfig(
    activation=_qnnpack_activation, weight=fused_per_channel_wt_fake_quant_range_neg_127_to_127
)
default_embedding_qat_qconfig = QConfig(activation=NoopObserver.with_args(dtype=fb.float32), weight=default_embedding_fake_quant)
default_embedding_qat_qconfig_4bit = QConfig(activation=NoopObserver.with_args(dtype=fb.float32), weight=default_embedding_fake_quant_4bit)

# For each backend: whether half of the integers are used, None where nothing is said of it, and whether weights have a scale per channel.
_BACKENDS: dict[str, tuple[bool | None, bool]] = {
    "fbgemm": (True, True), "x86": (True, True), "qnnpack": (False, False), "onednn": (None, True)
}  # fmt: skip


def _backend(caller: str, backend: str, version: int, versions: str) -> tuple[bool | None, bool]:
    if backend not in _BACKENDS:
        raise AssertionError(f"backend: {backend} not supported. backend must be one of {['fbgemm', 'x86', 'qnnpack', 'onednn']}")
    if str(version) not in versions.split(" or "):
        raise AssertionError(f"Version number: {version} in {caller} is not supported. Version number must be {versions}")
    return _BACKENDS[backend]


def get_default_qconfig(backend: str = "x86", version: int = 0) -> QConfig:
    """The QConfig of static quantization after training.

    Args:
        backend: "x86" (default), "fbgemm", "qnnpack" or "onednn", the libraries that PyTorch computes with.
        version: 0.
    Raises: AssertionError for others.
    """
    half, channels = _backend("get_default_qconfig", backend, version, "0")
    return QConfig(
        activation=HistogramObserver.with_args(reduce_range=bool(half)),
        weight=default_per_channel_weight_observer if channels else default_weight_observer,
    )


def get_default_qat_qconfig(backend: str = "x86", version: int = 1) -> QConfig:
    """The QConfig of quantization aware training; see `get_default_qconfig`. Version 1 has PyTorch's fused fake quantization."""
    half, channels = _backend("get_default_qat_qconfig", backend, version, "0 or 1")
    kind = FusedMovingAvgObsFakeQuantize if version else FakeQuantize
    given = {} if half is None else {"reduce_range": half}
    activation = kind.with_args(observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255, **given)
    if version:
        weight = default_fused_per_channel_wt_fake_quant if channels else default_fused_wt_fake_quant
    else:
        weight = default_per_channel_weight_fake_quant if channels else default_weight_fake_quant
    return QConfig(activation=activation, weight=weight)


def get_default_qconfig_dict(backend: str = "x86", version: int = 0) -> dict[str, Any]:
    """An older word for ``get_default_qconfig_mapping(backend, version).to_dict()``."""
    from .qconfig_mapping import get_default_qconfig_mapping

    warnings.warn("get_default_qconfig_dict is deprecated: use get_default_qconfig_mapping", FutureWarning, stacklevel=2)
    return get_default_qconfig_mapping(backend, version).to_dict()


def get_default_qat_qconfig_dict(backend: str = "x86", version: int = 1) -> dict[str, Any]:
    """An older word for ``get_default_qat_qconfig_mapping(backend, version).to_dict()``."""
    from .qconfig_mapping import get_default_qat_qconfig_mapping

    warnings.warn("get_default_qat_qconfig_dict is deprecated: use get_default_qat_qconfig_mapping", FutureWarning, stacklevel=2)
    return get_default_qat_qconfig_mapping(backend, version).to_dict()


def qconfig_equals(q1: QConfigAny, q2: QConfigAny) -> bool:
    """Whether two QConfigs make the same modules. Recipes are equal if they give the same arguments to the same class."""
    if q1 is None or q2 is None:
        return q1 == q2
    return _recipe(q1.activation) == _recipe(q2.activation) and _recipe(q1.weight) == _recipe(q2.weight)


def _recipe(maker: Any) -> Any:
    if not isinstance(maker, _PartialWrapper):
        return maker
    kind, given = maker.p, {}
    while hasattr(kind, "keywords"):                  # a partial of a recipe
        given = {**kind.keywords, **given}
        kind = kind.func.p if isinstance(kind.func, _PartialWrapper) else kind.func
    return kind, {name: _recipe(value) for name, value in given.items()}, maker.callable_args


def _activation_is_memoryless(qconfig: QConfig) -> bool:
    """Whether the observer of activations keeps only what it saw last."""
    from .fake_quantize import FakeQuantizeBase

    made = qconfig.activation()
    observer = made.activation_post_process if isinstance(made, FakeQuantizeBase) else made
    return getattr(observer, "averaging_constant", None) == 1


def _add_module_to_qconfig_obs_ctr(qconfig: Any, module: Module | None) -> Any:
    """`qconfig` whose observers are made on the device of `module`."""
    if module is None or qconfig is None or type(qconfig) is not QConfig:
        return qconfig
    places = {t.device for t in (*module.parameters(), *module.buffers())}
    place = next(iter(places)) if len(places) == 1 else None
    if place is None or place.type == "cpu":
        return qconfig

    def on_it(maker: Any) -> Any:
        def make() -> Any:
            return maker().to(place)

        return make

    return QConfig(on_it(qconfig.activation), on_it(qconfig.weight))


def _assert_valid_qconfig(qconfig: QConfigAny, mod: Module) -> None:
    """Raise AssertionError where a transposed convolution would get a scale per channel, which PyTorch's has not."""
    from ...nn import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
    from .observer import MovingAveragePerChannelMinMaxObserver, PerChannelMinMaxObserver

    if qconfig is None or not isinstance(mod, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) or qconfig.weight is None:
        return
    made = qconfig.weight()
    if isinstance(made, (PerChannelMinMaxObserver, MovingAveragePerChannelMinMaxObserver)):
        raise AssertionError("Per channel weight observer is not supported yet for ConvTranspose{n}d.")

