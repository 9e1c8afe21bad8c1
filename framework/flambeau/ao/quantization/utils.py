"""Facts about dtypes, schemes and QConfigs of quantization that several modules of this room, and programs, ask for."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import flambeau as fb

from ...tensor import Tensor
from .quant_type import QuantType

__all__ = [
    "SYMMETRIC", "MatchAllNode", "activation_dtype", "activation_is_dynamically_quantized", "activation_is_int8_quantized",
    "activation_is_int32_quantized", "activation_is_statically_quantized", "calculate_qmin_qmax", "check_min_max_valid",
    "determine_qparams", "get_combined_dict", "get_fqn_to_example_inputs", "get_qconfig_dtypes", "get_qparam_dict", "get_quant_type",
    "get_swapped_custom_module_class", "getattr_from_fqn", "has_no_children_ignoring_parametrizations", "is_per_channel",
    "is_per_tensor", "limits_of", "op_is_int8_dynamically_quantized", "to_underlying_dtype", "validate_qmin_qmax", "weight_dtype",
    "weight_is_quantized", "weight_is_statically_quantized",
]  # fmt: skip

SYMMETRIC = (fb.per_tensor_symmetric, fb.per_channel_symmetric)

# Dtypes of integers to quantize to, and the limits of those that numpy does not know as they are.
_LIMITS: dict[Any, tuple[int, int]] = {
    fb.quint4x2: (0, 15),
    fb.quint2x4: (0, 3),
    **{
        kind: (int(np.iinfo(like).min), int(np.iinfo(like).max))
        for kind, like in (
            (fb.quint8, np.uint8), (fb.qint8, np.int8), (fb.qint32, np.int32), (fb.uint8, np.uint8), (fb.int8, np.int8),
            (fb.int16, np.int16), (fb.uint16, np.uint16), (fb.int32, np.int32),
        )
    },
    fb.float8_e5m2: (int(fb.finfo(fb.float8_e5m2).min), int(fb.finfo(fb.float8_e5m2).max)),
    fb.float8_e4m3fn: (int(fb.finfo(fb.float8_e4m3fn).min), int(fb.finfo(fb.float8_e4m3fn).max)),
}  # fmt: skip


def limits_of(dtype: Any, quant_min: int | None = None, quant_max: int | None = None, reduce_range: bool = False) -> tuple[int, int]:
    """The smallest and the largest integer of `dtype`, or those given; half of them with `reduce_range`.

    Raises: AssertionError for a dtype that observers do not quantize to.
    """
    if dtype not in _LIMITS:
        raise AssertionError(f"Default Observer only works for {tuple(_LIMITS)} data type, got {dtype}")
    low, high = _LIMITS[dtype] if quant_min is None or quant_max is None else (quant_min, quant_max)
    return (low // 2, high // 2) if reduce_range else (low, high)


def validate_qmin_qmax(quant_min: Any, quant_max: Any) -> None:
    """Raise AssertionError unless ``quant_min <= 0 <= quant_max`` are two integers in order."""
    if not quant_min <= 0 <= quant_max:
        raise AssertionError(f"Used-specified quantization range must include 0. Got quant_min={quant_min}, quant_max={quant_max}")
    if quant_min >= quant_max:
        raise AssertionError(f"qmin must be less than qmax. Got quant_min={quant_min}, quant_max={quant_max}")


def check_min_max_valid(min_val: Tensor, max_val: Tensor) -> bool:
    """Whether something was seen; False with a warning where nothing was.

    Raises: AssertionError where a smallest number is above the largest.
    """
    if min_val.numel() == 0 or max_val.numel() == 0 or bool(((min_val == float("inf")) & (max_val == float("-inf"))).any()):
        warnings.warn("must run observer before calling calculate_qparams. Returning default values.", stacklevel=4)
        return False
    if bool((min_val > max_val).any()):
        raise AssertionError(f"min {min_val} should be less than max {max_val}")
    return True


def is_per_tensor(qscheme: Any) -> bool:
    """Whether all elements share a scale."""
    return qscheme in (fb.per_tensor_affine, fb.per_tensor_symmetric)


def is_per_channel(qscheme: Any) -> bool:
    """Whether each channel has its scale."""
    return qscheme in (fb.per_channel_affine, fb.per_channel_affine_float_qparams, fb.per_channel_symmetric)


# -- what a QConfig asks for -------------------------------------------------------------------------------------------------

_OF_8_BITS = (fb.quint8, fb.qint8, fb.uint8, fb.int8)
_QUANTIZED = (*_OF_8_BITS, fb.float16, fb.quint4x2, fb.int32, fb.float8_e5m2, fb.float8_e4m3fn)


def activation_dtype(qconfig: Any) -> Any:
    """The dtype of results and inputs."""
    return qconfig.activation().dtype


def weight_dtype(qconfig: Any) -> Any:
    """The dtype of weights."""
    return qconfig.weight().dtype


def activation_is_dynamically_quantized(qconfig: Any) -> bool:
    """Whether inputs are quantized when a layer runs."""
    return get_qconfig_dtypes(qconfig)[2]


def activation_is_statically_quantized(qconfig: Any) -> bool:
    """Whether results are quantized with a scale that is known before."""
    dtype, _, dynamic = get_qconfig_dtypes(qconfig)
    return dtype in _QUANTIZED and not dynamic


def activation_is_int8_quantized(qconfig: Any) -> bool:
    """Whether results and inputs are integers of 8 bits."""
    return activation_dtype(qconfig) in _OF_8_BITS


def activation_is_int32_quantized(qconfig: Any) -> bool:
    """Whether results and inputs are integers of 32 bits."""
    return activation_dtype(qconfig) in (fb.qint32, fb.int32)


def weight_is_quantized(qconfig: Any) -> bool:
    """Whether weights are quantized, or in float16."""
    return weight_dtype(qconfig) in _QUANTIZED


def weight_is_statically_quantized(qconfig: Any) -> bool:
    """Whether weights are integers of 8 bits."""
    return weight_dtype(qconfig) in _OF_8_BITS


def op_is_int8_dynamically_quantized(qconfig: Any) -> bool:
    """Whether inputs are quantized to 8 bits when a layer runs, and weights have 8 bits."""
    return activation_dtype(qconfig) in (fb.quint8, fb.uint8) and activation_is_dynamically_quantized(qconfig) and (
        weight_dtype(qconfig) in (fb.qint8, fb.int8)
    )  # fmt: skip


def get_qconfig_dtypes(qconfig: Any) -> tuple[Any, Any, bool]:
    """The dtypes of results and of weights, and whether inputs are quantized when a layer runs. Raises: AssertionError for None."""
    if qconfig is None:
        raise AssertionError("qconfig must be provided to extract dtypes")
    activation, weight = qconfig.activation(), qconfig.weight()
    return activation.dtype, weight.dtype, bool(getattr(activation, "is_dynamic", False))


def get_quant_type(qconfig: Any) -> QuantType:
    """What kind of quantization `qconfig` asks for. Raises: ValueError where it asks for none."""
    if qconfig is None:
        raise AssertionError("qconfig must be provided to determine quant type")
    activation, weight = qconfig.activation(), qconfig.weight()
    if weight.dtype in (*_OF_8_BITS, fb.float16, fb.quint4x2):
        if getattr(activation, "is_dynamic", False):
            return QuantType.DYNAMIC
        if activation.dtype in (*_OF_8_BITS, fb.float16, fb.quint4x2, fb.int32):
            return QuantType.STATIC
        return QuantType.WEIGHT_ONLY
    if weight.dtype is fb.float16:
        return QuantType.DYNAMIC if getattr(activation, "is_dynamic", False) else QuantType.STATIC
    raise ValueError(f"Unrecognized dtype combination in get_quant_type: activation({activation.dtype}),weight({weight.dtype})")


def get_qparam_dict(observer_or_fake_quant: Any) -> dict[str, Any]:
    """What an observer says of the numbers it saw: "qscheme", "dtype", "scale", "zero_point", "axis", "quant_min", "quant_max"."""
    qscheme = getattr(observer_or_fake_quant, "qscheme", None)
    parameters: dict[str, Any] = {"qscheme": qscheme, "dtype": observer_or_fake_quant.dtype}
    if qscheme is None:
        return parameters
    if is_per_tensor(qscheme):
        parameters["qscheme"] = fb.per_tensor_affine
    elif qscheme is fb.per_channel_symmetric:
        parameters["qscheme"] = fb.per_channel_affine
    elif not is_per_channel(qscheme):
        raise RuntimeError(f"Unrecognized qscheme: {qscheme}")
    if is_per_channel(parameters["qscheme"]):
        parameters["axis"] = observer_or_fake_quant.ch_axis
    parameters["scale"], parameters["zero_point"] = observer_or_fake_quant.calculate_qparams()
    for name in ("quant_min", "quant_max"):
        if hasattr(observer_or_fake_quant, name):
            parameters[name] = getattr(observer_or_fake_quant, name)
    return parameters


# -- scales ------------------------------------------------------------------------------------------------------------------


def calculate_qmin_qmax(quant_min: Any, quant_max: Any, has_customized_qrange: bool, dtype: Any, reduce_range: bool) -> tuple[int, int]:
    """The smallest and the largest integer to quantize to, half of the range where `reduce_range`.

    Args:
        quant_min, quant_max: those of the program, which count where `has_customized_qrange`.
        dtype: what to quantize to.
    """
    if has_customized_qrange:
        if dtype in (fb.qint32, fb.int32):
            if not 0 < quant_max - quant_min + 1 <= 2**32:
                raise AssertionError("quantization range should be positive and not exceed the maximum bit range (=4294967296).")
        elif not 0 < quant_max - quant_min + 1 <= 256:
            raise AssertionError("quantization range should be positive and not exceed the maximum bit range (=256).")
        # Toward numbers below, as PyTorch halves a range that was asked for.
        return (quant_min // 2, quant_max // 2) if reduce_range else (quant_min, quant_max)
    if dtype in (fb.qint8, fb.int8):
        return (-64, 63) if reduce_range else (-128, 127)
    if dtype in (fb.quint8, fb.uint8):
        return (0, 127) if reduce_range else (0, 255)
    if dtype in (fb.qint32, fb.int32):
        return -(2**31), 2**31 - 1
    if dtype in (fb.uint16,):
        return 0, 2**16 - 1
    if dtype in (fb.int16,):
        return -(2**15), 2**15 - 1
    return 0, 15


def determine_qparams(
    min_val: Tensor, max_val: Tensor, quant_min: int, quant_max: int, dtype: Any, eps: Tensor, has_customized_qrange: bool,
    qscheme: Any = fb.per_tensor_affine,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The scale, in float64, and the zero point, in int64, for numbers from `min_val` to `max_val`.

    Args:
        min_val, max_val: a number each, or one for each channel.
        quant_min, quant_max: the smallest and the largest integer.
        eps: the smallest scale.
        has_customized_qrange: whether those integers are the program's: then symmetric zero points are in their middle.
    """
    if not check_min_max_valid(min_val, max_val):
        return fb.tensor([1.0]), fb.tensor([0])
    low, high = min_val.clamp(max=0), max_val.clamp(min=0)
    eps = eps.to(fb.float64)
    if qscheme in SYMMETRIC:
        high = fb.max(-low, high)
        scale = fb.max((high / (float(quant_max - quant_min) / 2)).to(fb.float64), eps)
        zero = fb.zeros(low.shape, dtype=fb.int64)
        if dtype in (fb.uint8, fb.quint8):
            zero = fb.full_like(zero, (quant_min + quant_max) // 2 if has_customized_qrange else 128)
    elif qscheme is fb.per_channel_affine_float_qparams:
        scale = (max_val - min_val) / float(quant_max - quant_min)
        scale = fb.where(scale > eps, scale, fb.ones_like(scale))
        zero = -1 * min_val / scale
    else:
        scale = fb.max(((high - low) / float(quant_max - quant_min)).to(fb.float64), eps)
        zero = (quant_min - fb.round(low / scale)).to(fb.int).clamp(quant_min, quant_max)
    scale = scale.to(fb.float64)
    return scale.reshape(-1) if scale.ndim == 0 else scale, (zero.reshape(-1) if zero.ndim == 0 else zero).to(fb.int64)


def to_underlying_dtype(qdtype: Any) -> Any:
    """The dtype of the integers of `qdtype`. Raises: AssertionError where it has none."""
    held = {fb.quint8: fb.uint8, fb.qint8: fb.int8, fb.qint32: fb.int32, fb.quint4x2: fb.uint8, fb.quint2x4: fb.uint8}
    plain = (fb.uint8, fb.int8, fb.uint16, fb.int16, fb.int32, fb.float8_e5m2, fb.float8_e4m3fn)
    made = held.get(qdtype, qdtype if qdtype in plain else None)
    if made is None:
        raise AssertionError(f"Unsupported dtype: {qdtype}")
    return made


# -- modules -----------------------------------------------------------------------------------------------------------------


class MatchAllNode:
    """A node pattern that matches all nodes, used in defining fusion patterns."""


def get_combined_dict(default_dict: dict[Any, Any], additional_dict: dict[Any, Any]) -> dict[Any, Any]:
    """A dict of both, the second counting before the first."""
    return {**default_dict, **additional_dict}


def getattr_from_fqn(obj: Any, fqn: str) -> Any:
    """The attribute of `obj` that has the dotted name `fqn`."""
    for name in fqn.split("."):
        obj = getattr(obj, name)
    return obj


def has_no_children_ignoring_parametrizations(module: Any) -> bool:
    """Whether no modules are in `module`, or those of parametrizations alone."""
    names = list(module._modules)
    return not names or names == ["parametrizations"]


def get_swapped_custom_module_class(custom_module: Any, custom_module_class_mapping: dict[Any, Any], qconfig: Any) -> Any:
    """The class that takes the place of that of `custom_module` for the kind of quantization `qconfig` asks for.

    Raises: AssertionError where the mapping has none.
    """
    mapping = custom_module_class_mapping.get(get_quant_type(qconfig), {})
    found = mapping.get(type(custom_module))
    if found is None:
        raise AssertionError(f"did not find corresponding observed module class for {type(custom_module)} in mapping: {mapping}")
    return found


def get_fqn_to_example_inputs(model: Any, example_inputs: tuple[Any, ...]) -> dict[str, tuple[Any, ...]]:
    """The positional arguments that each module of `model` gets in ``model(*example_inputs)``, by its name; "" for `model` itself."""
    found: dict[str, tuple[Any, ...]] = {}

    def noted(name: str) -> Any:
        def hook(_module: Any, args: tuple[Any, ...]) -> None:
            found[name] = args

        return hook

    handles = [module.register_forward_pre_hook(noted(name)) for name, module in model.named_modules()]
    try:
        model(*example_inputs)
    finally:
        for handle in handles:
            handle.remove()
    return found
