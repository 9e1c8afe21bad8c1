"""Layers for training with activations that are quantized when the model runs."""

from __future__ import annotations

from typing import Any

from .. import Linear as _Linear
from .. import need_qconfig

__all__ = ["Linear"]


class Linear(_Linear):
    """`ao.nn.qat.Linear` for activations that are quantized when the model runs.

    Raises: ValueError for an observer of activations that keeps more than it saw last.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, qconfig: Any = None, device: Any = None, dtype: Any = None
    ) -> None:
        from ....quantization.qconfig import _activation_is_memoryless

        if not _activation_is_memoryless(need_qconfig("Linear", qconfig)):
            raise ValueError(
                "Dynamic QAT requires a memoryless observer. This means a MovingAverage observer with averaging constant equal to 1"
            )
        super().__init__(in_features, out_features, bias, qconfig, device, dtype)
