"""Fake quantization: modules that round numbers as quantizing would, and keep them numbers, so that a model can be trained with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import flambeau as fb

from ...nn import Module
from ...ops._quantized.ranges import fitting
from ...tensor import Tensor
from .observer import (
    FixedQParamsObserver,
    HistogramObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    _with_args,
    default_fixed_qparams_range_0to1_observer,
    default_fixed_qparams_range_neg1to1_observer,
)
from .utils import SYMMETRIC, is_per_channel, is_per_tensor, limits_of

__all__ = [
    "FakeQuantize", "FakeQuantizeBase", "FixedQParamsFakeQuantize", "FusedMovingAvgObsFakeQuantize",
    "default_affine_fixed_qparams_fake_quant", "default_dynamic_fake_quant", "default_embedding_fake_quant",
    "default_embedding_fake_quant_4bit", "default_fake_quant", "default_fixed_qparams_range_0to1_fake_quant",
    "default_fixed_qparams_range_neg1to1_fake_quant", "default_fused_act_fake_quant", "default_fused_per_channel_wt_fake_quant",
    "default_fused_wt_fake_quant", "default_histogram_fake_quant", "default_per_channel_weight_fake_quant",
    "default_symmetric_fixed_qparams_fake_quant", "default_weight_fake_quant", "disable_fake_quant", "disable_observer",
    "enable_fake_quant", "enable_observer", "fused_per_channel_wt_fake_quant_range_neg_127_to_127",
    "fused_wt_fake_quant_range_neg_127_to_127",
]  # fmt: skip


class FakeQuantizeBase(ABC, Module):
    """What all fake quantizations have: the buffers `fake_quant_enabled` and `observer_enabled`, which switch their two halves."""

    fake_quant_enabled: Tensor
    observer_enabled: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("fake_quant_enabled", fb.tensor([1], dtype=fb.uint8))
        self.register_buffer("observer_enabled", fb.tensor([1], dtype=fb.uint8))

    @abstractmethod
    def forward(self, x: Any) -> Any:
        """`x`, rounded as quantizing would."""

    @abstractmethod
    def calculate_qparams(self, **kwargs: Any) -> Any:
        """Scale and zero point that fit what was seen."""

    def enable_fake_quant(self, enabled: bool = True) -> None:
        """Round what passes, or not."""
        self.fake_quant_enabled[0] = 1 if enabled else 0

    def disable_fake_quant(self) -> None:
        """Let numbers pass as they are."""
        self.enable_fake_quant(False)

    def enable_observer(self, enabled: bool = True) -> None:
        """Let what passes change scale and zero point, or not."""
        self.observer_enabled[0] = 1 if enabled else 0

    def disable_observer(self) -> None:
        """Keep scale and zero point as they are."""
        self.enable_observer(False)

    with_args = classmethod(_with_args)


class FakeQuantize(FakeQuantizeBase):
    """An observer, and rounding by the scale and zero point it finds; gradients pass where numbers are inside of its range.

    Args:
        observer: a class of `observer`.
        quant_min, quant_max: the integers to use; those of the dtype by default.
        is_dynamic: whether scales are found anew for each input when the model runs.
        observer_kwargs: arguments of the observer, such as `dtype`, `qscheme`, `reduce_range` and `ch_axis`.
    Raises: AssertionError for integers that the dtype does not hold.

    >>> rounding = fb.ao.quantization.FakeQuantize()
    >>> rounding(fb.tensor([-1.0, 0.3, 2.0]))
    tensor([-1.0000,  0.3059,  2.0000])
    """

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self, observer: Any = MovingAverageMinMaxObserver, quant_min: int | None = None, quant_max: int | None = None,
        is_dynamic: bool = False, **observer_kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        if quant_min is not None and quant_max is not None:
            if quant_min > quant_max:
                raise AssertionError(f"quant_min must be less than or equal to quant_max, got {quant_min} and {quant_max}")
            kind = observer_kwargs.get("dtype", fb.quint8)
            if hasattr(observer, "p"):                # a recipe, whose dtype counts
                kind = getattr(getattr(observer, "p", {}), "keywords", {}).get("dtype", kind)
            low, high = limits_of(kind)
            for name, value, fits in (("quant_min", quant_min, low <= quant_min), ("quant_max", quant_max, quant_max <= high)):
                if not fits:
                    raise AssertionError(f"{name} out of bound: {value} is not within {kind}, from {low} to {high}")
            observer_kwargs.update(quant_min=quant_min, quant_max=quant_max)
        observer_kwargs["is_dynamic"] = is_dynamic
        self.activation_post_process = observer(**observer_kwargs)
        self.quant_min, self.quant_max = self.activation_post_process.quant_min, self.activation_post_process.quant_max
        self.is_dynamic = self.activation_post_process.is_dynamic
        float_zero = getattr(self.activation_post_process, "qscheme", None) is fb.per_channel_affine_float_qparams
        self.register_buffer("scale", fb.tensor([1.0], dtype=fb.float))
        self.register_buffer("zero_point", fb.tensor([0], dtype=fb.float if float_zero else fb.int))
        self.dtype = self.activation_post_process.dtype
        self.qscheme = self.activation_post_process.qscheme
        self.ch_axis = getattr(self.activation_post_process, "ch_axis", -1)
        if not (is_per_channel(self.qscheme) or is_per_tensor(self.qscheme)):
            raise AssertionError(f"Only per channel and per tensor quantization are supported in fake quantize got qscheme: {self.qscheme}")
        self.is_per_channel = is_per_channel(self.qscheme)

    def calculate_qparams(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Scale and zero point that the observer finds."""
        return self.activation_post_process.calculate_qparams()

    def forward(self, X: Any) -> Any:
        """`X`, observed and rounded, as far as both are switched on."""
        if self.observer_enabled[0] == 1:
            self.activation_post_process(X.detach())
            scale, zero = self.calculate_qparams()
            for buffer, found in ((self.scale, scale), (self.zero_point, zero)):
                buffer.resize_(found.shape).copy_(found)
        return self._rounded(X) if self.fake_quant_enabled[0] == 1 else X

    def _rounded(self, x: Tensor) -> Tensor:
        low, high = int(self.activation_post_process.quant_min), int(self.activation_post_process.quant_max)
        if self.is_per_channel:
            return fb.fake_quantize_per_channel_affine(x, self.scale, self.zero_point, self.ch_axis, low, high)
        return fb.fake_quantize_per_tensor_affine(x, self.scale, self.zero_point, low, high)

    def extra_repr(self) -> str:
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, observer_enabled={self.observer_enabled}, "
            f"quant_min={self.activation_post_process.quant_min}, quant_max={self.activation_post_process.quant_max}, dtype={self.dtype}, "
            f"qscheme={self.qscheme}, ch_axis={self.ch_axis}, scale={self.scale}, zero_point={self.zero_point}"
        )

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "scale"], destination[prefix + "zero_point"] = self.scale, self.zero_point

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any, **kwargs: Any) -> None:
        for name in ("scale", "zero_point"):           # whose length is that of the channels seen
            if prefix + name in state_dict:
                getattr(self, name).resize_(state_dict[prefix + name].shape)
        super()._load_from_state_dict(state_dict, prefix, *rest, **kwargs)


class FixedQParamsFakeQuantize(FakeQuantize):
    """Rounding by a scale and zero point that are given.

    Args:
        observer: makes a `FixedQParamsObserver`.
    """

    def __init__(self, observer: Any) -> None:
        super().__init__(observer=observer)
        if not isinstance(self.activation_post_process, FixedQParamsObserver):
            made = type(self.activation_post_process).__name__
            raise AssertionError(f"{type(self).__name__}'s observer must be a FixedQParamsObserver, got {made}")
        self._observer_ctr = observer
        self.scale = self.activation_post_process.scale
        self.zero_point = self.activation_post_process.zero_point
        if not is_per_tensor(self.qscheme):
            raise AssertionError(f"Only per tensor quantization is supported FixedQParamsFakeQuantize module, got qscheme:{self.qscheme}")

    def calculate_qparams(self) -> Any:
        """The scale and zero point given."""
        return self.scale, self.zero_point

    def extra_repr(self) -> str:
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, observer_enabled={self.observer_enabled}, scale={self.scale}, "
            f"zero_point={self.zero_point}, dtype={self.dtype}, quant_min={self.activation_post_process.quant_min}, "
            f"quant_max={self.activation_post_process.quant_max}, qscheme={self.qscheme}"
        )


class FusedMovingAvgObsFakeQuantize(FakeQuantize):
    """`FakeQuantize` with a moving average in one operation of PyTorch's; its symmetric schemes count for ranges around 0 alone.

    The arguments are those of `FakeQuantize`; the observer keeps moving averages.
    """

    def __init__(
        self, observer: Any = MovingAverageMinMaxObserver, quant_min: int = 0, quant_max: int = 255, is_dynamic: bool = False,
        **observer_kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(observer, quant_min, quant_max, is_dynamic, **observer_kwargs)
        if not isinstance(self.activation_post_process, (MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver)):
            made = type(self.activation_post_process).__name__
            raise AssertionError(f"Fused observer+fake_quant module only works with MovingAverageMinMaxObserver, got {made}")
        self.fake_quant_enabled = fb.tensor([1], dtype=fb.long)
        self.observer_enabled = fb.tensor([1], dtype=fb.long)

    def forward(self, X: Any) -> Any:
        """`X`, observed and rounded, as far as both are switched on."""
        observer = self.activation_post_process
        if self.observer_enabled[0] == 1 and X.numel():
            observer(X.detach())
            low, high = observer.min_val.reshape(-1).cpu().numpy(), observer.max_val.reshape(-1).cpu().numpy()
            scale, zero = fitting(low, high, int(observer.quant_min), int(observer.quant_max), self.qscheme in SYMMETRIC)
            for buffer, found in ((self.scale, scale), (self.zero_point, zero)):
                buffer.resize_(found.shape).copy_(fb.from_numpy(found))
        return self._rounded(X) if self.fake_quant_enabled[0] == 1 else X

    def extra_repr(self) -> str:
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, observer_enabled={self.observer_enabled}, scale={self.scale}, "
            f"zero_point={self.zero_point}, dtype={self.dtype}, quant_min={self.activation_post_process.quant_min}, "
            f"quant_max={self.activation_post_process.quant_max}, qscheme={self.qscheme}, "
            f"reduce_range={self.activation_post_process.reduce_range}"
        )


# -- switches for whole models ---------------------------------------------------------------------------------------------


def disable_fake_quant(mod: Any) -> None:
    """Switch rounding off where `mod` is a fake quantization: ``model.apply(disable_fake_quant)``."""
    if isinstance(mod, FakeQuantizeBase):
        mod.disable_fake_quant()


def enable_fake_quant(mod: Any) -> None:
    """Switch rounding on where `mod` is a fake quantization: ``model.apply(enable_fake_quant)``."""
    if isinstance(mod, FakeQuantizeBase):
        mod.enable_fake_quant()


def disable_observer(mod: Any) -> None:
    """Keep the scale where `mod` is a fake quantization: ``model.apply(disable_observer)``."""
    if isinstance(mod, FakeQuantizeBase):
        mod.disable_observer()


def enable_observer(mod: Any) -> None:
    """Let the scale follow what passes where `mod` is a fake quantization: ``model.apply(enable_observer)``."""
    if isinstance(mod, FakeQuantizeBase):
        mod.enable_observer()


# -- recipes in use ----------------------------------------------------------------------------------------------------------

default_fake_quant = FakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255, dtype=fb.quint8, qscheme=fb.per_tensor_affine, reduce_range=True
)
default_weight_fake_quant = FakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, quant_min=-128, quant_max=127, dtype=fb.qint8, qscheme=fb.per_tensor_symmetric,
    reduce_range=False,
)  # fmt: skip
default_dynamic_fake_quant = FakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255, is_dynamic=True, dtype=fb.quint8, averaging_constant=1
)
default_fixed_qparams_range_neg1to1_fake_quant = FixedQParamsFakeQuantize.with_args(observer=default_fixed_qparams_range_neg1to1_observer)
default_fixed_qparams_range_0to1_fake_quant = FixedQParamsFakeQuantize.with_args(observer=default_fixed_qparams_range_0to1_observer)
default_symmetric_fixed_qparams_fake_quant = default_fixed_qparams_range_neg1to1_fake_quant
default_affine_fixed_qparams_fake_quant = default_fixed_qparams_range_0to1_fake_quant
default_per_channel_weight_fake_quant = FakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver, quant_min=-128, quant_max=127, dtype=fb.qint8, qscheme=fb.per_channel_symmetric,
    reduce_range=False, ch_axis=0,
)  # fmt: skip
default_embedding_fake_quant = FakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver, qscheme=fb.per_channel_affine_float_qparams, dtype=fb.quint8, quant_min=0,
    quant_max=255, ch_axis=0, averaging_constant=1,
)  # fmt: skip
default_embedding_fake_quant_4bit = FakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver, qscheme=fb.per_channel_affine_float_qparams, ch_axis=0, dtype=fb.quint4x2,
    averaging_constant=1,
)  # fmt: skip
default_histogram_fake_quant = FakeQuantize.with_args(
    observer=HistogramObserver, quant_min=0, quant_max=255, dtype=fb.quint8, qscheme=fb.per_tensor_affine, reduce_range=True
)
default_fused_act_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255, dtype=fb.quint8
)
default_fused_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, quant_min=-128, quant_max=127, dtype=fb.qint8, qscheme=fb.per_tensor_symmetric
)
default_fused_per_channel_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver, quant_min=-128, quant_max=127, dtype=fb.qint8, qscheme=fb.per_channel_symmetric
)
fused_wt_fake_quant_range_neg_127_to_127 = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, quant_min=-127, quant_max=127, dtype=fb.qint8, qscheme=fb.per_tensor_symmetric, eps=2**-12
)
fused_per_channel_wt_fake_quant_range_neg_127_to_127 = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver, quant_min=-127, quant_max=127, dtype=fb.qint8, qscheme=fb.per_channel_symmetric,
    eps=2**-12,
)  # fmt: skip
