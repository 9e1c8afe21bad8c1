"""Activations, normalizations, dropout and embeddings on quantized tensors, and the ways in and out."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from ....nn import Module
from ....nn import functional as F
from ....nn import modules as float_modules
from ....ops._quantized.layers import computed, need_quantized
from ....tensor import Tensor
from ._base import output_scale

__all__ = [
    "BatchNorm2d", "BatchNorm3d", "DeQuantize", "Dropout", "ELU", "GroupNorm", "Hardswish", "InstanceNorm1d", "InstanceNorm2d",
    "InstanceNorm3d", "LayerNorm", "LeakyReLU", "MaxPool2d", "PReLU", "Quantize", "ReLU6", "Sigmoid", "Softmax",
]  # fmt: skip


class Quantize(Module):
    """Quantizes a dense tensor with one scale.

    Args:
        scale, zero_point: of the result.
        dtype: a quantized dtype.

    >>> fb.ao.nn.quantized.Quantize(1.0, 2, fb.quint8)(fb.tensor([[1.0, -1.0]])).int_repr()
    tensor([[3, 1]], dtype=torch.uint8)
    """

    scale: Tensor
    zero_point: Tensor

    def __init__(self, scale: Any, zero_point: Any, dtype: Any, factory_kwargs: dict[str, Any] | None = None) -> None:
        super().__init__()
        made = factory_kwargs or {}
        self.register_buffer("scale", fb.tensor([float(scale)], **made))
        self.register_buffer("zero_point", fb.tensor([int(zero_point)], dtype=fb.long, **made))
        self.dtype = dtype

    def forward(self, X: Tensor) -> Tensor:
        """`X` quantized."""
        return fb.quantize_per_tensor(X, float(self.scale), int(self.zero_point), self.dtype)

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Quantize:
        """What quantizes as the observer of `mod` says. Raises: AssertionError without one."""
        if not hasattr(mod, "activation_post_process"):
            raise AssertionError("Quantize.from_float: the module must have an observer, activation_post_process")
        scale, zero = output_scale(mod.activation_post_process)
        return Quantize(scale, zero, mod.activation_post_process.dtype)

    def extra_repr(self) -> str:
        return f"scale={self.scale}, zero_point={self.zero_point}, dtype={self.dtype}"


class DeQuantize(Module):
    """The numbers of a quantized tensor."""

    def forward(self, Xq: Tensor) -> Tensor:
        """`Xq` in float32."""
        return Xq.dequantize()

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> DeQuantize:
        """The module itself, whatever `mod` is."""
        return DeQuantize()


class MaxPool2d(float_modules.MaxPool2d):
    """`nn.MaxPool2d` of a quantized tensor."""

    def forward(self, input: Tensor) -> Tensor:
        """The largest numbers of windows, quantized as `input` is."""
        from .functional import max_pool2d

        return max_pool2d(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """`mod` itself, which takes both kinds of tensors."""
        return mod


# -- activations ------------------------------------------------------------------------------------------------------------


class ReLU6(float_modules.ReLU):
    """Numbers from 0 to 6, quantized as they are.

    Args:
        inplace: store in the input.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Numbers of `input` kept between 0 and 6."""
        made = computed("relu6", F.relu6, [input])
        return input.copy_(made) if self.inplace else made

    def _get_name(self) -> str:
        return "QuantizedReLU6"

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> ReLU6:
        """The quantized module of `mod`."""
        return ReLU6(mod.inplace)


class Hardswish(float_modules.Hardswish):
    """`nn.Hardswish`, quantized with `scale` and `zero_point`."""

    scale: Tensor
    zero_point: Tensor

    def __init__(self, scale: float, zero_point: int, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.register_buffer("scale", fb.tensor(scale))
        self.register_buffer("zero_point", fb.tensor(zero_point))

    def forward(self, input: Tensor) -> Tensor:
        """The quantized result."""
        return computed("hardswish", F.hardswish, [input], float(self.scale), int(self.zero_point))

    def _get_name(self) -> str:
        return "QuantizedHardswish"

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Hardswish:
        """The quantized module of an observed one."""
        return Hardswish(*output_scale(mod.activation_post_process))

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Hardswish:
        """The quantized module with the scale given."""
        return cls(float(scale), int(zero_point))


class ELU(float_modules.ELU):
    """`nn.ELU`, quantized with `scale` and `zero_point`."""

    def __init__(self, scale: float, zero_point: int, alpha: float = 1.0) -> None:
        super().__init__(alpha)
        self.scale, self.zero_point = scale, zero_point

    def forward(self, input: Tensor) -> Tensor:
        """The quantized result."""
        return computed("elu", lambda x: F.elu(x, self.alpha), [input], self.scale, self.zero_point)

    def _get_name(self) -> str:
        return "QuantizedELU"

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> ELU:
        """The quantized module of an observed one."""
        return ELU(*output_scale(mod.activation_post_process), mod.alpha)

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> ELU:
        """The quantized module with the scale given."""
        return cls(float(scale), int(zero_point), mod.alpha)


class LeakyReLU(float_modules.LeakyReLU):
    """`nn.LeakyReLU`, quantized with `scale` and `zero_point`."""

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self, scale: float, zero_point: int, negative_slope: float = 1e-2, inplace: bool = False, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(negative_slope, inplace)
        self.register_buffer("scale", fb.tensor(scale))
        self.register_buffer("zero_point", fb.tensor(zero_point))

    def forward(self, input: Tensor) -> Tensor:
        """The quantized result."""
        return computed("leaky_relu", lambda x: F.leaky_relu(x, self.negative_slope), [input], float(self.scale), int(self.zero_point))

    def _get_name(self) -> str:
        return "QuantizedLeakyReLU"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> LeakyReLU:
        """The quantized module of an observed one."""
        return cls(*output_scale(mod.activation_post_process), mod.negative_slope, mod.inplace)

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> LeakyReLU:
        """The quantized module with the scale given."""
        return cls(float(scale), int(zero_point), mod.negative_slope, mod.inplace)


class Sigmoid(float_modules.Sigmoid):
    """`nn.Sigmoid`, quantized with `output_scale` and `output_zero_point`."""

    def __init__(self, output_scale: float, output_zero_point: int) -> None:
        super().__init__()
        self.output_scale, self.output_zero_point = output_scale, output_zero_point

    def forward(self, input: Tensor) -> Tensor:
        """The quantized result."""
        return computed("sigmoid", fb.sigmoid, [input], self.output_scale, self.output_zero_point)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Sigmoid:
        """The quantized module of an observed one."""
        return cls(*output_scale(mod.activation_post_process))


class Softmax(float_modules.Softmax):
    """`nn.Softmax`, quantized with `scale` and `zero_point`."""

    def __init__(self, dim: int | None = None, scale: float = 1.0, zero_point: int = 0) -> None:
        super().__init__()
        self.dim, self.scale, self.zero_point = dim, scale, zero_point

    def forward(self, input: Tensor) -> Tensor:
        """The quantized result."""
        return computed("softmax", lambda x: F.softmax(x, self.dim), [input], self.scale, self.zero_point)

    def _get_name(self) -> str:
        return "QuantizedSoftmax"

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Softmax:
        """The quantized module of an observed one."""
        return Softmax(mod.dim, *output_scale(mod.activation_post_process))

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Softmax:
        """The quantized module with the scale given."""
        return cls(mod.dim, float(scale), int(zero_point))


class PReLU(Module):
    """`nn.PReLU` with a quantized weight, quantized with `output_scale` and `output_zero_point`.

    Args:
        num_parameters: how many slopes are learned.
    """

    def __init__(self, output_scale: float, output_zero_point: int, num_parameters: int = 1) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.scale, self.zero_point = output_scale, output_zero_point
        self.set_weight(fb.quantize_per_tensor(fb.randn(num_parameters), 1.0, 0, fb.quint8))

    def set_weight(self, w: Tensor) -> None:
        """Give the module a quantized weight, ``(num_parameters,)``."""
        self.__dict__["weight"] = w

    def forward(self, input: Tensor) -> Tensor:
        """The quantized result."""
        return computed("prelu", F.prelu, [input, self.__dict__["weight"]], self.scale, self.zero_point)

    def _get_name(self) -> str:
        return "QuantizedPReLU"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> PReLU:
        """The quantized module of an observed one."""
        return cls.from_reference(mod, *output_scale(mod.activation_post_process))

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> PReLU:
        """The quantized module with the scale given."""
        made = cls(float(scale), int(zero_point), mod.num_parameters)
        weight = mod.weight.detach().float()
        observer = mod.qconfig.weight()
        observer(weight)
        kind, zero = observer.dtype, output_scale(observer)
        made.set_weight(fb.quantize_per_tensor(weight, *zero, kind))
        return made


class Dropout(float_modules.Dropout):
    """Dropout of a quantized tensor, which is `input` itself outside of training."""

    def forward(self, input: Tensor) -> Tensor:
        """`input`."""
        return input

    def _get_name(self) -> str:
        return "QuantizedDropout"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Dropout:
        """The quantized module of `mod`."""
        return cls(mod.p, mod.inplace)

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Dropout:
        """The quantized module of `mod`."""
        return cls(mod.p, mod.inplace)


# -- normalizations ---------------------------------------------------------------------------------------------------------


class _BatchNorm(float_modules.batchnorm._BatchNorm):
    """The running statistics' affine map of a quantized tensor, with the buffers `scale` and `zero_point` of its results.

    Args:
        eps: added to the variance.
        momentum: kept; the statistics do not move.
    """

    operator, dims, relu = "", 0, False
    scale: Tensor
    zero_point: Tensor

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, device: Any = None, dtype: Any = None) -> None:
        super().__init__(num_features, eps, momentum, True, True, device, dtype)
        self.register_buffer("scale", fb.tensor(1.0))
        self.register_buffer("zero_point", fb.tensor(0))

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim != self.dims + 2:
            raise ValueError(f"Input shape must be `(N, C, {', '.join('DHW'[-self.dims :])})`! Got {tuple(input.shape)}")

    def forward(self, input: Tensor) -> Tensor:
        """The quantized result."""
        need_quantized(self.operator, input=input)
        self._check_input_dim(input)

        def normalized(x: Tensor) -> Tensor:
            made = F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
            return F.relu(made) if self.relu else made

        return computed(self.operator, normalized, [input], float(self.scale), int(self.zero_point))

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The quantized module of an observed one."""
        bn = mod[0] if isinstance(mod, float_modules.Sequential) else mod
        return cls.from_reference(bn, *output_scale(mod.activation_post_process))

    @classmethod
    def from_reference(cls, bn: Any, output_scale: float, output_zero_point: int) -> Any:
        """The quantized module with the scale given."""
        made = cls(bn.num_features, bn.eps, device=bn.running_mean.device)
        for name in ("weight", "bias", "running_mean", "running_var"):
            value = getattr(bn, name)
            if value is not None:
                getattr(made, name).data.copy_(value.detach())
        made.scale.fill_(float(output_scale))
        made.zero_point.fill_(int(output_zero_point))
        return made.eval()


class BatchNorm2d(_BatchNorm):
    """`nn.BatchNorm2d` of a quantized tensor, by its running statistics."""

    operator, dims = "batch_norm2d", 2

    def _get_name(self) -> str:
        return "QuantizedBatchNorm2d"


class BatchNorm3d(_BatchNorm):
    """`nn.BatchNorm3d` of a quantized tensor, by its running statistics."""

    operator, dims = "batch_norm3d", 3

    def _get_name(self) -> str:
        return "QuantizedBatchNorm3d"


class LayerNorm(float_modules.LayerNorm):
    """`nn.LayerNorm`, quantized with `scale` and `zero_point`."""

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self, normalized_shape: Any, weight: Any, bias: Any, scale: float, zero_point: int, eps: float = 1e-5,
        elementwise_affine: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(normalized_shape, eps, elementwise_affine, device=device, dtype=dtype)
        self.weight, self.bias = weight, bias
        self.register_buffer("scale", fb.tensor(scale))
        self.register_buffer("zero_point", fb.tensor(zero_point))

    def forward(self, input: Tensor) -> Tensor:
        """The quantized result."""
        return computed(
            "layer_norm", lambda x: F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps), [input], float(self.scale),
            int(self.zero_point),
        )  # fmt: skip

    def _get_name(self) -> str:
        return "QuantizedLayerNorm"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> LayerNorm:
        """The quantized module of an observed one."""
        return cls.from_reference(mod, *output_scale(mod.activation_post_process))

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> LayerNorm:
        """The quantized module with the scale given."""
        return cls(mod.normalized_shape, mod.weight, mod.bias, float(scale), int(zero_point), mod.eps, mod.elementwise_affine)


class GroupNorm(float_modules.GroupNorm):
    """`nn.GroupNorm`, quantized with `scale` and `zero_point`."""

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self, num_groups: int, num_channels: int, weight: Any, bias: Any, scale: float, zero_point: int, eps: float = 1e-5,
        affine: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(num_groups, num_channels, eps, affine, device, dtype)
        self.weight, self.bias = weight, bias
        self.register_buffer("scale", fb.tensor(scale))
        self.register_buffer("zero_point", fb.tensor(zero_point))

    def forward(self, input: Tensor) -> Tensor:
        """The quantized result."""
        return computed(
            "group_norm", lambda x: F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps), [input], float(self.scale),
            int(self.zero_point),
        )  # fmt: skip

    def _get_name(self) -> str:
        return "QuantizedGroupNorm"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> GroupNorm:
        """The quantized module of an observed one."""
        return cls(mod.num_groups, mod.num_channels, mod.weight, mod.bias, *output_scale(mod.activation_post_process), mod.eps, mod.affine)


class _InstanceNorm(float_modules.instancenorm._InstanceNorm):
    operator = "instance_norm"
    dims = 0
    scale: Tensor
    zero_point: Tensor

    def __init__(
        self, num_features: int, weight: Any, bias: Any, scale: float, zero_point: int, eps: float = 1e-5, momentum: float = 0.1,
        affine: bool = False, track_running_stats: bool = False, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)
        self.weight, self.bias = weight, bias
        self.register_buffer("scale", fb.tensor(scale))
        self.register_buffer("zero_point", fb.tensor(zero_point))

    def _get_no_batch_dim(self) -> int:
        return self.dims + 1

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim not in (self.dims + 1, self.dims + 2):
            raise ValueError(f"expected {self.dims + 1}D or {self.dims + 2}D input (got {input.ndim}D input)")

    def forward(self, input: Tensor) -> Tensor:
        """The quantized result."""
        return computed(
            self.operator, lambda x: F.instance_norm(x, weight=self.weight, bias=self.bias, eps=self.eps), [input], float(self.scale),
            int(self.zero_point),
        )  # fmt: skip

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The quantized module of an observed one."""
        return cls.from_reference(mod, *output_scale(mod.activation_post_process))

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Any:
        """The quantized module with the scale given."""
        return cls(mod.num_features, mod.weight, mod.bias, float(scale), int(zero_point), mod.eps, affine=mod.affine)


class InstanceNorm1d(_InstanceNorm):
    """Instance normalization quantized with `scale` and `zero_point`; see `nn.InstanceNorm1d` for the other arguments."""

    dims = 1


class InstanceNorm2d(_InstanceNorm):
    """Instance normalization quantized with `scale` and `zero_point`; see `nn.InstanceNorm2d` for the other arguments."""

    dims = 2


class InstanceNorm3d(_InstanceNorm):
    """Instance normalization quantized with `scale` and `zero_point`; see `nn.InstanceNorm3d` for the other arguments."""

    dims = 3
