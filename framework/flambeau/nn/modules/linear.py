"""Linear layers: affine and bilinear maps of the last dimension."""

from __future__ import annotations

import math
from typing import Any

import flambeau as fb

from .. import functional as F
from .. import init
from ..parameter import Parameter, UninitializedParameter
from .lazy import LazyModuleMixin
from .module import Module

__all__ = ["Bilinear", "Identity", "LazyLinear", "Linear"]


class Identity(Module):
    """Returns its input. Takes any arguments and ignores them.

    Shapes: any, unchanged.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return input


class Linear(Module):
    """``input @ weight.T + bias``.

    Args:
        in_features, out_features: sizes of the last dimension of input and output.
        bias: whether to learn `bias`.
    Shapes: ``(*, in_features) -> (*, out_features)``; `weight` (out_features, in_features), `bias` (out_features,).
    Both are drawn uniformly from ``±1/sqrt(in_features)``.

    >>> nn.Linear(3, 2)(fb.ones(5, 3)).shape
    torch.Size([5, 2])
    """

    __constants__ = ["in_features", "out_features"]
    in_features: int
    out_features: int
    weight: fb.Tensor

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(fb.empty((out_features, in_features), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(fb.empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        # a = sqrt(5) makes the bound of kaiming_uniform_ 1 / sqrt(fan_in).
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        # Straight from the registry: attribute lookup of a parameter costs as much as a small matmul.
        parameters = self._parameters
        try:
            weight, bias = parameters["weight"], parameters["bias"]
        except KeyError:  # replaced by a parametrization, a pruning mask, a property
            weight, bias = self.weight, self.bias
        return F.linear(input, weight, bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class NonDynamicallyQuantizableLinear(Linear):
    """A Linear that quantization leaves alone: the output projection inside `MultiheadAttention`."""


class Bilinear(Module):
    """``input1 @ weight[k] @ input2 + bias[k]`` for each output feature k.

    Args:
        in1_features, in2_features, out_features: sizes of the last dimensions.
        bias: whether to learn `bias`.
    Shapes: ``(*, in1_features), (*, in2_features) -> (*, out_features)``; `weight` (out_features,
        in1_features, in2_features).
    Raises: ValueError if `in1_features` is not positive.
    """

    __constants__ = ["in1_features", "in2_features", "out_features"]

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"Bilinear: in1_features must be > 0, got {in1_features}")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.weight = Parameter(fb.empty((out_features, in1_features, in2_features), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(fb.empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights, uniformly from ``±1/sqrt(in1_features)``."""
        bound = 1 / math.sqrt(self.weight.size(1))
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: fb.Tensor, input2: fb.Tensor) -> fb.Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )


class LazyLinear(LazyModuleMixin, Linear):
    """A `Linear` whose `in_features` is the last dimension of its first input."""

    cls_to_become = Linear
    weight: UninitializedParameter
    bias: UninitializedParameter

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        # Sizes 0, and no bias, so that nothing is drawn yet.
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)  # pyright: ignore[reportIncompatibleVariableOverride]
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw new weights, once they have a shape."""
        if not self.has_uninitialized_params() and self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: fb.Tensor) -> None:
        """Take `in_features` from the last dimension of `input`."""
        if not self.has_uninitialized_params():
            return
        self._need_tensor(input)
        with fb.no_grad():
            self.in_features = input.shape[-1]
            self.weight.materialize((self.out_features, self.in_features))
            if self.bias is not None:
                self.bias.materialize((self.out_features,))
            self.reset_parameters()

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        # After loading a state_dict the parameters have shapes although no input was seen.
        if self.in_features == 0:
            self.in_features = input.shape[-1]
        return super().forward(input)
