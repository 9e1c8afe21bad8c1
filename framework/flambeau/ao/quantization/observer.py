"""Observers: modules that look at the tensors that pass and say with which scale and zero point they are to be quantized."""

from __future__ import annotations

import functools
import warnings
from abc import ABC, abstractmethod
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np

import flambeau as fb

from ...nn import Module
from ...tensor import Tensor
from .utils import SYMMETRIC, check_min_max_valid, limits_of, validate_qmin_qmax

__all__ = [
    "AffineQuantizedObserverBase", "FixedQParamsObserver", "Granularity", "HistogramObserver", "MappingType", "MinMaxObserver",
    "MovingAverageMinMaxObserver", "MovingAveragePerChannelMinMaxObserver", "NoopObserver", "ObserverBase", "PerAxis", "PerBlock",
    "PerChannelMinMaxObserver", "PerGroup", "PerRow", "PerTensor", "PerToken", "PlaceholderObserver", "RecordingObserver",
    "ReuseInputObserver", "TorchAODType", "UniformQuantizationObserverBase", "ZeroPointDomain",
    "default_affine_fixed_qparams_observer", "default_debug_observer", "default_dynamic_quant_observer",
    "default_fixed_qparams_range_0to1_observer", "default_fixed_qparams_range_neg1to1_observer", "default_float_qparams_observer",
    "default_float_qparams_observer_4bit", "default_histogram_observer", "default_observer", "default_per_channel_weight_observer",
    "default_placeholder_observer", "default_reuse_input_observer", "default_symmetric_fixed_qparams_observer",
    "default_weight_observer", "get_block_size", "get_observer_state_dict", "load_observer_state_dict",
    "per_channel_weight_observer_range_neg_127_to_127", "weight_observer_range_neg_127_to_127",
]  # fmt: skip

_EPS = float(np.finfo(np.float32).eps)


class _PartialWrapper:
    """A class, or a recipe for its objects, with some arguments given; `with_args` gives more."""

    def __init__(self, p: Any, callable_args: dict[str, Any] | None = None) -> None:
        self.p = p
        self.callable_args = callable_args or {}

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """The object. Arguments given as functions are called for it."""
        made = {name: make() for name, make in self.callable_args.items() if name not in keywords}
        return self.p(*args, **made, **keywords)

    def __repr__(self) -> str:
        return f"{self.p!r}{self.callable_args!r}"

    def with_args(self, **kwargs: Any) -> _PartialWrapper:
        """The same with more arguments given."""
        return _with_args(self, **kwargs)

    def with_callable_args(self, **kwargs: Any) -> _PartialWrapper:
        """The same with arguments that functions without parameters give, each time an object is made."""
        return _PartialWrapper(self.p, {**self.callable_args, **kwargs})


def _with_args(cls_or_self: Any, **kwargs: Any) -> _PartialWrapper:
    """A recipe for objects of a class with these arguments.

    >>> fb.ao.quantization.MinMaxObserver.with_args(dtype=fb.qint8)().dtype
    torch.qint8
    """
    return _PartialWrapper(functools.partial(cls_or_self, **kwargs))


def _with_callable_args(cls_or_self: Any, **kwargs: Any) -> _PartialWrapper:
    """A recipe for objects of a class, with arguments that functions without parameters give, each time an object is made."""
    return _PartialWrapper(functools.partial(cls_or_self), kwargs)


# -- bases -----------------------------------------------------------------------------------------------------------------


class ObserverBase(ABC, Module):
    """What all observers have: a `dtype` to quantize to, `forward` that looks at a tensor and returns it, and `calculate_qparams`.

    Args:
        dtype: what is to be quantized to.
        is_dynamic: whether scale and zero point are found anew for each input when the model runs.
    """

    def __init__(self, dtype: Any, is_dynamic: bool = False) -> None:
        super().__init__()
        self.dtype = dtype
        self.is_dynamic = is_dynamic

    @abstractmethod
    def forward(self, x: Any) -> Any:
        """Look at `x` and return it."""

    @abstractmethod
    def calculate_qparams(self, **kwargs: Any) -> Any:
        """Scale and zero point that fit what was seen."""

    with_args = classmethod(_with_args)
    with_callable_args = classmethod(_with_callable_args)


_ObserverBase = ObserverBase
_TENSOR_SCHEMES = (fb.per_tensor_affine, fb.per_tensor_symmetric)
_CHANNEL_SCHEMES = (fb.per_channel_affine, fb.per_channel_symmetric, fb.per_channel_affine_float_qparams)


class UniformQuantizationObserverBase(ObserverBase):
    """An observer whose scale and zero point follow from the smallest and the largest number it has seen.

    Affine schemes put these two at the ends of the integers, with 0 on an integer; symmetric ones put 0 in their middle.

    Args:
        dtype: a quantized or integer dtype.
        qscheme: one of `per_tensor_affine`, `per_tensor_symmetric`, and the same per channel.
        reduce_range: use half of the integers, which PyTorch needs on processors without wide sums of products.
        quant_min, quant_max: the integers to use, both or none; they must include 0.
        factory_kwargs: `dtype` and `device` of the buffers.
        eps: the smallest scale.
        is_dynamic: see `ObserverBase`.
    Raises: AssertionError for other dtypes or a range without 0; NotImplementedError for schemes that do not fit.
    """

    eps: Tensor
    min_val: Tensor
    max_val: Tensor

    def __init__(
        self, dtype: Any = fb.quint8, qscheme: Any = fb.per_tensor_affine, reduce_range: bool = False, quant_min: int | None = None,
        quant_max: int | None = None, factory_kwargs: dict[str, Any] | None = None, eps: float = _EPS, is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(dtype=dtype, is_dynamic=is_dynamic, **kwargs)
        self.qscheme = qscheme
        self.reduce_range = reduce_range
        self.register_buffer("eps", fb.tensor([eps], **(factory_kwargs or {})))
        if qscheme not in (*_TENSOR_SCHEMES, *_CHANNEL_SCHEMES):
            raise AssertionError(f"{type(self).__name__}: qscheme must be one of {(*_TENSOR_SCHEMES, *_CHANNEL_SCHEMES)}, got {qscheme}")
        if qscheme in SYMMETRIC and dtype is fb.quint8 and reduce_range:
            raise NotImplementedError("Cannot reduce range for symmetric quantization for quint8: use qint8, or an affine qscheme")
        self.has_customized_qrange = quant_min is not None and quant_max is not None
        if self.has_customized_qrange:
            validate_qmin_qmax(quant_min, quant_max)
        self.quant_min, self.quant_max = limits_of(
            dtype, quant_min if self.has_customized_qrange else None, quant_max if self.has_customized_qrange else None, reduce_range
        )

    def _calculate_qparams(self, min_val: Tensor, max_val: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and zero point, vectors of one for each channel or of one, for numbers from `min_val` to `max_val`."""
        if not check_min_max_valid(min_val, max_val):
            return fb.tensor([1.0], device=min_val.device), fb.tensor([0], device=min_val.device)
        low, high = fb.clamp(min_val, max=0.0).reshape(-1), fb.clamp(max_val, min=0.0).reshape(-1)
        steps = float(self.quant_max - self.quant_min)
        if self.qscheme in SYMMETRIC:
            scale = fb.maximum(fb.maximum(-low, high) / (steps / 2), self.eps)
            return scale, fb.full(scale.shape, self._middle(), dtype=fb.int64, device=scale.device)
        if self.qscheme is fb.per_channel_affine_float_qparams:
            low, high = min_val.reshape(-1), max_val.reshape(-1)
            scale = (high - low) / steps
            scale = fb.where(scale > self.eps, scale, fb.ones_like(scale))
            return scale, -low / scale
        scale = fb.maximum((high - low) / steps, self.eps)
        zero = self.quant_min - fb.round(low / scale).to(fb.int)
        return scale, fb.clamp(zero, self.quant_min, self.quant_max)

    def _middle(self) -> int:
        """The integer that stands for 0 in symmetric schemes."""
        if self.dtype not in (fb.quint8, fb.uint8):
            return 0
        return (self.quant_min + self.quant_max) // 2 if self.has_customized_qrange else 128

    def reset_min_max_vals(self) -> None:
        """Forget what was seen."""
        raise NotImplementedError(f"{type(self).__name__} keeps no smallest and largest number to forget")


_UniformQuantizationObserverBase = UniformQuantizationObserverBase


# -- ranges ----------------------------------------------------------------------------------------------------------------


def _need_scheme(observer: str, qscheme: Any, allowed: tuple[Any, ...]) -> None:
    if qscheme not in allowed:
        raise NotImplementedError(f"{observer}'s qscheme only support {' and '.join(map(str, allowed))}. but got: {qscheme}")


class MinMaxObserver(UniformQuantizationObserverBase):
    """Keeps the smallest and the largest of all numbers that pass.

    See `UniformQuantizationObserverBase` for the arguments; `qscheme` is one per tensor.

    >>> observer = fb.ao.quantization.MinMaxObserver()
    >>> _ = observer(fb.tensor([-1.0, 3.0]))
    >>> observer.calculate_qparams()
    (tensor([0.0157]), tensor([64], dtype=torch.int32))
    """

    def __init__(
        self, dtype: Any = fb.quint8, qscheme: Any = fb.per_tensor_affine, reduce_range: bool = False, quant_min: int | None = None,
        quant_max: int | None = None, factory_kwargs: dict[str, Any] | None = None, eps: float = _EPS, is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        _need_scheme(type(self).__name__, qscheme, _TENSOR_SCHEMES)
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, factory_kwargs, eps, is_dynamic, **kwargs)
        self.register_buffer("min_val", fb.tensor(float("inf"), **(factory_kwargs or {})))
        self.register_buffer("max_val", fb.tensor(float("-inf"), **(factory_kwargs or {})))

    def forward(self, x_orig: Any) -> Any:
        """Take the numbers of `x_orig` in and return it."""
        if x_orig.numel() == 0:
            return x_orig
        low, high = fb.aminmax(x_orig.detach().to(self.min_val.dtype))
        self.min_val.copy_(fb.min(low, self.min_val))
        self.max_val.copy_(fb.max(high, self.max_val))
        return x_orig

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Scale (float32) and zero point (int), vectors of one element."""
        return self._calculate_qparams(self.min_val, self.max_val)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}" if self.min_val.ndim else (
            f"min_val={self.min_val.item()}, max_val={self.max_val.item()}"
        )

    def reset_min_max_vals(self) -> None:
        """Forget what was seen."""
        self.min_val.fill_(float("inf"))
        self.max_val.fill_(float("-inf"))


class MovingAverageMinMaxObserver(MinMaxObserver):
    """Keeps moving averages of the smallest and the largest number of each tensor.

    Args:
        averaging_constant: the weight of each new tensor.
    The others are those of `MinMaxObserver`.
    """

    def __init__(
        self, averaging_constant: float = 0.01, dtype: Any = fb.quint8, qscheme: Any = fb.per_tensor_affine, reduce_range: bool = False,
        quant_min: int | None = None, quant_max: int | None = None, eps: float = _EPS, is_dynamic: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        _need_scheme(type(self).__name__, qscheme, _TENSOR_SCHEMES)
        if is_dynamic and averaging_constant != 1:
            raise NotImplementedError(
                "MovingAverageMinMaxObserver doesn't support dynamic quantization for averaging constant of "
                f"{averaging_constant}: use 1"
            )
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, eps=eps, is_dynamic=is_dynamic, **kwargs)
        self.averaging_constant = averaging_constant

    def forward(self, x_orig: Any) -> Any:
        """Take the smallest and the largest number of `x_orig` in and return it."""
        if x_orig.numel() == 0:
            return x_orig
        low, high = fb.aminmax(x_orig.detach().to(self.min_val.dtype))
        if self.min_val.isinf().item() and self.max_val.isinf().item():
            self.min_val.copy_(low)
            self.max_val.copy_(high)
        else:
            self.min_val.copy_(self.min_val + self.averaging_constant * (low - self.min_val))
            self.max_val.copy_(self.max_val + self.averaging_constant * (high - self.max_val))
        return x_orig


class PerChannelMinMaxObserver(UniformQuantizationObserverBase):
    """Keeps the smallest and the largest number of each channel.

    Args:
        ch_axis: the dimension of the channels.
        qscheme: one per channel.
    The others are those of `MinMaxObserver`.
    """

    _moves = False

    def __init__(
        self, ch_axis: int = 0, dtype: Any = fb.quint8, qscheme: Any = fb.per_channel_affine, reduce_range: bool = False,
        quant_min: int | None = None, quant_max: int | None = None, factory_kwargs: dict[str, Any] | None = None, eps: float = _EPS,
        is_dynamic: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        _need_scheme("PerChannelMinMaxObserver", qscheme, _CHANNEL_SCHEMES)
        if is_dynamic:
            raise NotImplementedError("PerChannelMinMaxObserver doesn't support dynamic quantization")
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, factory_kwargs, eps, is_dynamic, **kwargs)
        self.ch_axis = ch_axis
        self.register_buffer("min_val", fb.tensor([], **(factory_kwargs or {})))
        self.register_buffer("max_val", fb.tensor([], **(factory_kwargs or {})))

    def forward(self, x_orig: Any) -> Any:
        """Take the numbers of each channel of `x_orig` in and return it."""
        if x_orig.numel() == 0:
            return x_orig
        rows = x_orig.detach().to(self.min_val.dtype).transpose(0, self.ch_axis).flatten(1)
        low, high = fb.aminmax(rows, dim=1)
        if self.min_val.numel():
            low, high = self._joined(low, high)
        self.min_val.resize_(low.shape).copy_(low)
        self.max_val.resize_(high.shape).copy_(high)
        return x_orig

    def _joined(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return fb.min(low, self.min_val), fb.max(high, self.max_val)

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Scales (float32) and zero points (int), vectors of one for each channel."""
        return self._calculate_qparams(self.min_val, self.max_val)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any, **kwargs: Any) -> None:
        for name in ("min_val", "max_val"):            # whose length is that of the channels seen
            if prefix + name in state_dict:
                getattr(self, name).resize_(state_dict[prefix + name].shape)
        super()._load_from_state_dict(state_dict, prefix, *rest, **kwargs)

    def reset_min_max_vals(self) -> None:
        """Forget what was seen."""
        self.min_val = fb.rand(0)
        self.max_val = fb.rand(0)


class MovingAveragePerChannelMinMaxObserver(PerChannelMinMaxObserver):
    """Keeps moving averages of the smallest and the largest number of each channel; see `MovingAverageMinMaxObserver`."""

    def __init__(
        self, averaging_constant: float = 0.01, ch_axis: int = 0, dtype: Any = fb.quint8, qscheme: Any = fb.per_channel_affine,
        reduce_range: bool = False, quant_min: int | None = None, quant_max: int | None = None, eps: float = _EPS,
        is_dynamic: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(ch_axis, dtype, qscheme, reduce_range, quant_min, quant_max, eps=eps, is_dynamic=is_dynamic, **kwargs)
        self.averaging_constant = averaging_constant

    def _joined(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        new = self.averaging_constant
        return self.min_val + new * (low - self.min_val), self.max_val + new * (high - self.max_val)


class HistogramObserver(UniformQuantizationObserverBase):
    """Keeps a histogram of the numbers that pass, and chooses the range whose quantization has the least squared error.

    Numbers outside of the range are clipped, which costs the square of the distance; those inside are rounded, which costs a twelfth of
    the squared step. All pairs of bins are tried as ends of the range.

    Args:
        bins: of the histogram.
    The others are those of `MinMaxObserver`.
    """

    histogram: Tensor

    def __init__(
        self, bins: int = 2048, dtype: Any = fb.quint8, qscheme: Any = fb.per_tensor_affine, reduce_range: bool = False,
        quant_min: int | None = None, quant_max: int | None = None, factory_kwargs: dict[str, Any] | None = None, eps: float = _EPS,
        is_dynamic: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        _need_scheme("HistogramObserver", qscheme, _TENSOR_SCHEMES)
        if is_dynamic:
            raise NotImplementedError("HistogramObserver doesn't support dynamic quantization")
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, factory_kwargs, eps, is_dynamic, **kwargs)
        self.bins = bins
        made = factory_kwargs or {}
        self.register_buffer("histogram", fb.zeros(bins, **made))
        self.register_buffer("min_val", fb.tensor(float("inf"), **made))
        self.register_buffer("max_val", fb.tensor(float("-inf"), **made))
        self.dst_nbins = self.quant_max - self.quant_min + 1

    def forward(self, x_orig: Any) -> Any:
        """Take the numbers of `x_orig` in and return it."""
        if x_orig.numel() == 0:
            return x_orig
        x = x_orig.detach().to(self.histogram.dtype)
        x = x[fb.isfinite(x)]
        if x.numel() == 0:
            warnings.warn("HistogramObserver: a tensor without finite numbers is not counted", stacklevel=2)
            return x_orig
        low, high = (t.item() for t in fb.aminmax(x))
        seen = not self.min_val.isinf().item()
        if seen:
            low, high = min(low, self.min_val.item()), max(high, self.max_val.item())
        counts = fb.histc(x, self.bins, min=low, max=high)
        if seen:
            counts = counts + self._spread(low, high)
        self.histogram.copy_(counts)
        self.min_val.fill_(low)
        self.max_val.fill_(high)
        return x_orig

    def _spread(self, low: float, high: float) -> Tensor:
        """The histogram over the range from `low` to `high`; what a bin counts is spread evenly over its width."""
        old_low, old_high = self.min_val.item(), self.max_val.item()
        counts = self.histogram.double().numpy()
        if (low, high) == (old_low, old_high):
            return self.histogram
        edges = np.linspace(low, high, self.bins + 1)
        if old_low == old_high:                       # one number alone
            spread = np.zeros(self.bins)
            spread[min(int(np.searchsorted(edges, old_low, "right")) - 1, self.bins - 1)] = counts.sum()
        else:
            below = np.concatenate([[0.0], np.cumsum(counts)])
            spread = np.diff(np.interp(edges, np.linspace(old_low, old_high, self.bins + 1), below))
        return fb.from_numpy(spread).to(self.histogram.dtype)

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Scale (float32) and zero point (int), vectors of one element."""
        if self.min_val.isinf().item() and self.max_val.isinf().item():
            warnings.warn("must run observer before calling calculate_qparams. Returning default scale and zero point", stacklevel=2)
            return fb.tensor([1.0]), fb.tensor([0])
        low, high = _least_error_range(self.histogram.double().numpy(), self.min_val.item(), self.max_val.item(), self.dst_nbins)
        return self._calculate_qparams(self.min_val.new_tensor(low), self.max_val.new_tensor(high))

    def extra_repr(self) -> str:
        return f"min_val={self.min_val.item()}, max_val={self.max_val.item()}"

    def reset_min_max_vals(self) -> None:
        """Forget what was seen."""
        self.min_val.fill_(float("inf"))
        self.max_val.fill_(float("-inf"))
        self.histogram.zero_()


def _least_error_range(counts: Any, low: float, high: float, steps: int) -> tuple[float, float]:
    """The ends of the range, of all pairs of bins' edges, whose quantization in `steps` integers has the least squared error."""
    bins = len(counts)
    if not counts.sum() or low == high:
        return low, high
    edges = np.linspace(low, high, bins + 1)
    middles = (edges[1:] + edges[:-1]) / 2
    zeroth, first, second = (np.concatenate([[0.0], np.cumsum(counts * middles**k)]) for k in range(3))
    # What is clipped at an edge e costs the sum of count * (middle - e)^2 over the bins beyond it.
    below = second - 2 * edges * first + edges**2 * zeroth
    above = (second[-1] - second) - 2 * edges * (first[-1] - first) + edges**2 * (zeroth[-1] - zeroth)
    best = np.inf, 0, bins
    for at in range(bins):
        width, inside = edges[at + 1 :] - edges[at], zeroth[at + 1 :] - zeroth[at]
        error = below[at] + above[at + 1 :] + inside * (width / (steps - 1)) ** 2 / 12
        to = int(error.argmin())
        if error[to] < best[0]:
            best = error[to], at, at + 1 + to
    return float(edges[best[1]]), float(edges[best[2]])


# -- observers that choose nothing -----------------------------------------------------------------------------------------


class FixedQParamsObserver(ObserverBase):
    """An observer whose scale and zero point are given, for functions with a known range.

    Args:
        scale, zero_point: what `calculate_qparams` gives.
        dtype, qscheme, quant_min, quant_max, is_dynamic: see `UniformQuantizationObserverBase`.
    """

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self, scale: float, zero_point: int, dtype: Any = fb.quint8, qscheme: Any = fb.per_tensor_affine, quant_min: int = 0,
        quant_max: int = 255, is_dynamic: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        if is_dynamic:
            raise NotImplementedError("FixedQParamsObserver doesn't support dynamic quantization")
        super().__init__(dtype=dtype, is_dynamic=is_dynamic, **kwargs)
        self.quant_min, self.quant_max = quant_min, quant_max
        self.register_buffer("scale", fb.tensor([scale], dtype=fb.float))
        self.register_buffer("zero_point", fb.tensor([zero_point], dtype=fb.int))
        self.qscheme = qscheme

    def forward(self, X: Any) -> Any:
        """`X` itself."""
        return X

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The scale and zero point given."""
        return self.scale, self.zero_point


class PlaceholderObserver(ObserverBase):
    """Stands where a dtype is to be known and nothing is to be looked at, as for float16 or dynamic quantization.

    Args:
        dtype: what is to be quantized to.
        custom_op_name: kept as `custom_op`.
        compute_dtype: an older word for a dynamic `dtype`.
        quant_min, quant_max, qscheme, eps, is_dynamic: see `UniformQuantizationObserverBase`.
    """

    def __init__(
        self, dtype: Any = fb.float32, custom_op_name: str = "", compute_dtype: Any = None, quant_min: int | None = None,
        quant_max: int | None = None, qscheme: Any = None, eps: float | None = None, is_dynamic: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(dtype=dtype, is_dynamic=is_dynamic)
        self.qscheme = fb.per_tensor_affine if qscheme is None else qscheme
        self.quant_min, self.quant_max = quant_min, quant_max
        self.eps = _EPS if eps is None else eps
        self.custom_op = custom_op_name
        if compute_dtype:
            warnings.warn("Please use `is_dynamic` instead of `compute_dtype`, which will go", stacklevel=2)
            self.is_dynamic = True

    def forward(self, x: Any) -> Any:
        """`x` itself."""
        return x

    def extra_repr(self) -> str:
        return f"dtype={self.dtype}, is_dynamic={self.is_dynamic}"

    def calculate_qparams(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise Exception("calculate_qparams should not be called for PlaceholderObserver: it looks at nothing")  # PyTorch's


class RecordingObserver(ObserverBase):
    """Keeps copies of all tensors that pass, for debugging."""

    __annotations__ = {"tensor_val": list}

    def __init__(self, dtype: Any = fb.quint8) -> None:
        super().__init__(dtype=dtype, is_dynamic=False)
        self.tensor_val: list[Tensor] = []

    def forward(self, x: Any) -> Any:
        """Keep a copy of `x` and return it."""
        self.tensor_val.append(x.clone())
        return x

    def calculate_qparams(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise Exception("calculate_qparams should not be called for RecordingObserver: it keeps tensors only")  # PyTorch's

    def get_tensor_value(self) -> list[Tensor]:
        """The copies, in the order in which the tensors passed."""
        return self.tensor_val


class NoopObserver(ObserverBase):
    """Looks at nothing, for dtypes that need no scale, such as float16.

    Args:
        custom_op_name: kept as `custom_op`.
    """

    def __init__(self, dtype: Any = fb.float16, custom_op_name: str = "") -> None:
        super().__init__(dtype=dtype, is_dynamic=False)
        self.custom_op = custom_op_name

    def forward(self, x: Any) -> Any:
        """`x` itself."""
        return x

    def calculate_qparams(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise Exception("calculate_qparams should not be called for NoopObserver: it looks at nothing")  # PyTorch's


class ReuseInputObserver(ObserverBase):
    """Says that the result of an operation is quantized as its input is, as for `reshape`. It observes nothing itself."""

    def __init__(self) -> None:
        super().__init__(fb.quint8, is_dynamic=False)

    def forward(self, x: Any) -> Any:
        """`x` itself."""
        return x

    def calculate_qparams(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise Exception("calculate_qparams should not be called for ReuseInputObserver: ask that of the input")  # PyTorch's


# -- how finely numbers share a scale --------------------------------------------------------------------------------------


class MappingType(Enum):
    """How numbers are mapped to integers."""

    SYMMETRIC = auto()
    SYMMETRIC_NO_CLIPPING_ERR = auto()
    ASYMMETRIC = auto()


class ZeroPointDomain(Enum):
    """Whether zero points are integers, numbers, or absent."""

    INT = auto()
    FLOAT = auto()
    NONE = auto()


class TorchAODType(Enum):
    """Integers of few bits that are no dtypes of tensors."""

    INT1 = auto()
    INT2 = auto()
    INT3 = auto()
    INT4 = auto()
    INT5 = auto()
    INT6 = auto()
    INT7 = auto()


@dataclass(frozen=True)
class Granularity:
    """Which elements share a scale."""


@dataclass(frozen=True)
class PerBlock(Granularity):
    """Blocks of a size for each dimension."""

    block_size: tuple[int, ...]


@dataclass(frozen=True)
class PerTensor(Granularity):
    """All elements."""


@dataclass(frozen=True)
class PerAxis(Granularity):
    """The elements of one index of a dimension."""

    axis: int


@dataclass(frozen=True)
class PerGroup(Granularity):
    """Runs of so many elements of the last dimension."""

    group_size: int


class PerRow(Granularity):
    """The elements of the last dimension."""


class PerToken(Granularity):
    """The elements of the last dimension, for activations."""


def get_block_size(input_shape: tuple[int, ...], granularity: Granularity) -> tuple[int, ...]:
    """The size of the block of elements that share a scale, along each dimension of `input_shape`.

    Raises: AssertionError for what is no granularity; ValueError for one that does not fit.

    >>> fb.ao.quantization.get_block_size((4, 6), fb.ao.quantization.PerGroup(3))
    (1, 3)
    """
    if not isinstance(granularity, Granularity):
        raise AssertionError(f"get_block_size: granularity must be a Granularity, got {type(granularity).__name__}")
    shape = tuple(input_shape)
    if isinstance(granularity, PerTensor):
        return shape
    if isinstance(granularity, PerAxis):
        axis = granularity.axis % len(shape)
        return (*shape[:axis], 1, *shape[axis + 1 :])
    if isinstance(granularity, (PerRow, PerToken)):
        return (1,) * (len(shape) - 1) + (shape[-1],)
    if isinstance(granularity, PerGroup):
        if len(shape) != 2:
            raise AssertionError(f"Expecting input shape dim to be 2 for per group quantization, got {shape}")
        return (1, granularity.group_size)
    if isinstance(granularity, PerBlock):
        return granularity.block_size
    raise ValueError(f"Unsupported Granularity: {granularity}")


class AffineQuantizedObserverBase(ABC, Module):
    """The base of observers whose scale is shared by blocks of elements; `forward` and `calculate_qparams` are a subclass's.

    Args:
        mapping_type: a `MappingType`.
        target_dtype: what is to be quantized to.
        granularity: which elements share a scale.
        quant_min, quant_max: the integers to use.
        eps: the smallest scale.
        scale_dtype, zero_point_dtype: dtypes of the results.
        preserve_zero: whether 0 is to be an integer.
        zero_point_domain: a `ZeroPointDomain`.
    """

    with_args = classmethod(_with_args)

    def __init__(
        self, mapping_type: MappingType, target_dtype: Any, granularity: Granularity, quant_min: int | None = None,
        quant_max: int | None = None, eps: float | None = None, scale_dtype: Any = None, zero_point_dtype: Any = None,
        preserve_zero: bool = True, zero_point_domain: ZeroPointDomain | None = ZeroPointDomain.INT, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        if granularity is None:
            raise AssertionError("granularity is None: give a Granularity, such as PerTensor()")
        if zero_point_domain is None:
            raise AssertionError("Please use ZeroPointDomain.NONE instead of None")
        if kwargs:
            raise TypeError(f"{type(self).__name__}: unexpected arguments {', '.join(kwargs)}")
        self.mapping_type, self.target_dtype, self.granularity = mapping_type, target_dtype, granularity
        self.quant_min, self.quant_max, self.eps = quant_min, quant_max, eps
        self.scale_dtype, self.zero_point_dtype = scale_dtype, zero_point_dtype
        self.preserve_zero, self.zero_point_domain = preserve_zero, zero_point_domain

    @abstractmethod
    def forward(self, input: Tensor) -> Tensor:
        """Look at `input` and return it."""

    @abstractmethod
    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """Scale and zero point, one for each block."""


# -- state ------------------------------------------------------------------------------------------------------------------


def _is_activation_post_process(module: Any) -> bool:
    """Whether `module` is an observer or a fake quantization."""
    from .fake_quantize import FakeQuantizeBase

    return isinstance(module, (ObserverBase, FakeQuantizeBase))


def get_observer_state_dict(mod: Module) -> OrderedDict[str, Any]:
    """The entries of ``mod.state_dict()`` that belong to observers, so that they can be saved beside a model."""
    return OrderedDict((name, value) for name, value in mod.state_dict().items() if "activation_post_process" in name)


def load_observer_state_dict(mod: Module, obs_dict: Any) -> None:
    """Load what `get_observer_state_dict` gave into the observers of `mod`.

    Raises: RuntimeError for observers of `mod` without an entry, and for entries without an observer.
    """
    wanted = {name for name in mod.state_dict() if "activation_post_process" in name}
    missing, unexpected = sorted(wanted - set(obs_dict)), sorted(set(obs_dict) - wanted)
    for word, names in (("Missing", missing), ("Unexpected", unexpected)):
        if names:
            raise RuntimeError(f"{word} keys for observer state dict: {', '.join(map(repr, names))}")
    mod.load_state_dict(obs_dict, strict=False)


# -- recipes in use ----------------------------------------------------------------------------------------------------------

default_observer = MinMaxObserver.with_args(quant_min=0, quant_max=127)
default_placeholder_observer = PlaceholderObserver
default_debug_observer = RecordingObserver
default_weight_observer = MinMaxObserver.with_args(dtype=fb.qint8, qscheme=fb.per_tensor_symmetric)
weight_observer_range_neg_127_to_127 = MinMaxObserver.with_args(
    dtype=fb.qint8, qscheme=fb.per_tensor_symmetric, quant_min=-127, quant_max=127, eps=2**-12
)
default_histogram_observer = HistogramObserver.with_args(quant_min=0, quant_max=127)
default_per_channel_weight_observer = PerChannelMinMaxObserver.with_args(dtype=fb.qint8, qscheme=fb.per_channel_symmetric)
per_channel_weight_observer_range_neg_127_to_127 = PerChannelMinMaxObserver.with_args(
    dtype=fb.qint8, qscheme=fb.per_channel_symmetric, quant_min=-127, quant_max=127, eps=2**-12
)
default_dynamic_quant_observer = PlaceholderObserver.with_args(dtype=fb.quint8, quant_min=0, quant_max=255, is_dynamic=True)
default_float_qparams_observer = PerChannelMinMaxObserver.with_args(dtype=fb.quint8, qscheme=fb.per_channel_affine_float_qparams, ch_axis=0)
default_float_qparams_observer_4bit = PerChannelMinMaxObserver.with_args(
    dtype=fb.quint4x2, qscheme=fb.per_channel_affine_float_qparams, ch_axis=0
)
default_fixed_qparams_range_neg1to1_observer = FixedQParamsObserver.with_args(
    scale=2.0 / 256.0, zero_point=128, dtype=fb.quint8, quant_min=0, quant_max=255
)
default_fixed_qparams_range_0to1_observer = FixedQParamsObserver.with_args(
    scale=1.0 / 256.0, zero_point=0, dtype=fb.quint8, quant_min=0, quant_max=255
)
default_symmetric_fixed_qparams_observer = default_fixed_qparams_range_neg1to1_observer
default_affine_fixed_qparams_observer = default_fixed_qparams_range_0to1_observer
default_reuse_input_observer = ReuseInputObserver
