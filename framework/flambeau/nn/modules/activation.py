"""Nonlinearities as modules, and multi-head attention. Shapes are unchanged unless a class says otherwise."""

from __future__ import annotations

import warnings
from typing import Any

import flambeau as fb

from .. import functional as F
from .. import init
from ..parameter import Parameter
from ._attention import multi_head_attention
from .linear import NonDynamicallyQuantizableLinear
from .module import Module
from .utils import _NamesItsConstructor

__all__ = [
    "Threshold",
    "ReLU",
    "RReLU",
    "Hardtanh",
    "ReLU6",
    "Sigmoid",
    "Hardsigmoid",
    "Tanh",
    "SiLU",
    "Mish",
    "Hardswish",
    "ELU",
    "CELU",
    "SELU",
    "GLU",
    "GELU",
    "Hardshrink",
    "LeakyReLU",
    "LogSigmoid",
    "Softplus",
    "Softshrink",
    "MultiheadAttention",
    "PReLU",
    "Softsign",
    "Tanhshrink",
    "Softmin",
    "Softmax",
    "Softmax2d",
    "LogSoftmax",
]

Tensor = fb.Tensor


def _flag(inplace: bool, separator: str = "") -> str:
    return f"{separator}inplace=True" if inplace else ""


class _MaybeInplace(Module):
    """What functions without parameters of their own have: whether they store in their input."""

    __constants__ = ["inplace"]

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return _flag(self.inplace)


class Threshold(Module):
    """The input where it exceeds `threshold`, else `value`."""

    __constants__ = ["threshold", "value", "inplace"]

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}" + _flag(self.inplace, ", ")


class ReLU(_MaybeInplace):
    """``max(input, 0)``."""

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input, self.inplace)


class RReLU(Module):
    """The input where positive, else its product with a slope drawn from ``[lower, upper]``.

    In evaluation the slope is their mean.
    Source: Xu et al. 2015, "Empirical evaluation of rectified activations in convolutional network".
    """

    __constants__ = ["lower", "upper", "inplace"]

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}" + _flag(self.inplace, ", ")


class Hardtanh(Module):
    """The input clamped to ``[min_val, max_val]``. Raises: AssertionError unless ``min_val < max_val``.

    Args:
        min_value, max_value: deprecated names of `min_val` and `max_val`.
    """

    __constants__ = ["min_val", "max_val", "inplace"]

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__()
        if min_value is not None:
            warnings.warn("Hardtanh: min_value is deprecated; use min_val", FutureWarning, stacklevel=2)
            min_val = min_value
        if max_value is not None:
            warnings.warn("Hardtanh: max_value is deprecated; use max_val", FutureWarning, stacklevel=2)
            max_val = max_value
        self.min_val = min_val
        self.max_val = max_val
        self.inplace = inplace
        if not max_val > min_val:
            # PyTorch raises AssertionError for exactly this.
            raise AssertionError(f"{type(self).__name__}: min_val={min_val} must be below max_val={max_val}")

    def forward(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}" + _flag(self.inplace, ", ")


class ReLU6(Hardtanh):
    """``min(max(input, 0), 6)``."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return _flag(self.inplace)


class Sigmoid(Module):
    """``1 / (1 + exp(-input))``."""

    def forward(self, input: Tensor) -> Tensor:
        return fb.sigmoid(input)


class Hardsigmoid(Module):
    """``relu6(input + 3) / 6``: a piecewise linear sigmoid."""

    __constants__ = ["inplace"]

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.hardsigmoid(input, self.inplace)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input: Tensor) -> Tensor:
        return fb.tanh(input)


class SiLU(_MaybeInplace):
    """``input * sigmoid(input)``, also called swish."""

    def forward(self, input: Tensor) -> Tensor:
        return F.silu(input, self.inplace)


class Mish(_MaybeInplace):
    """``input * tanh(softplus(input))``."""

    def forward(self, input: Tensor) -> Tensor:
        return F.mish(input, self.inplace)


class Hardswish(Module):
    """``input * relu6(input + 3) / 6``. Source: Howard et al. 2019, "Searching for MobileNetV3"."""

    __constants__ = ["inplace"]

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.hardswish(input, self.inplace)


class ELU(Module):
    """The input where positive, else ``alpha * (exp(input) - 1)``.

    Source: Clevert et al. 2015, arXiv:1511.07289.
    """

    __constants__ = ["alpha", "inplace"]

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + _flag(self.inplace, ", ")


class CELU(Module):
    """The input where positive, else ``alpha * (exp(input / alpha) - 1)``.

    Source: Barron 2017, arXiv:1704.07483.
    """

    __constants__ = ["alpha", "inplace"]

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.celu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + _flag(self.inplace, ", ")


class SELU(_MaybeInplace):
    """A scaled ELU that keeps mean 0 and variance 1. Source: Klambauer et al. 2017, arXiv:1706.02515."""

    def forward(self, input: Tensor) -> Tensor:
        return F.selu(input, self.inplace)


class GLU(Module):
    """``a * sigmoid(b)`` for the two halves a, b of the input along `dim`, whose even size is halved."""

    __constants__ = ["dim"]

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class GELU(Module):
    """``input * Phi(input)`` with the normal distribution function Phi.

    Args:
        approximate: ``'none'``, or ``'tanh'`` for an approximation by a tanh.
    Source: Hendrycks & Gimpel 2016, arXiv:1606.08415.
    """

    __constants__ = ["approximate"]

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class Hardshrink(Module):
    """0 where the input lies in ``[-lambd, lambd]``, else the input."""

    __constants__ = ["lambd"]

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return F.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class LeakyReLU(Module):
    """The input where positive, else ``negative_slope * input``."""

    __constants__ = ["inplace", "negative_slope"]

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}" + _flag(self.inplace, ", ")


class LogSigmoid(Module):
    """``log(sigmoid(input))``, without overflow."""

    def forward(self, input: Tensor) -> Tensor:
        return F.logsigmoid(input)


class Softplus(Module):
    """``log(1 + exp(beta * input)) / beta``; the input itself where ``beta * input > threshold``."""

    __constants__ = ["beta", "threshold"]

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class Softshrink(Module):
    """The input moved by `lambd` towards 0, and 0 where it does not reach."""

    __constants__ = ["lambd"]

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return F.softshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return str(self.lambd)


class PReLU(Module):
    """The input where positive, else its product with a learned slope: one for all, or one per channel.

    Args:
        num_parameters: 1 or the number of channels, which is the size of dimension 1.
        init: first value of the slopes.
    Source: He et al. 2015, arXiv:1502.01852.
    """

    __constants__ = ["num_parameters"]
    num_parameters: int

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(fb.empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the slopes back to their first value."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class Softsign(Module):
    """``input / (1 + |input|)``."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softsign(input)


class Tanhshrink(Module):
    """``input - tanh(input)``."""

    def forward(self, input: Tensor) -> Tensor:
        return F.tanhshrink(input)


class _OverDim(_NamesItsConstructor, Module):
    """Softmax and its relatives: one argument, the dimension along which the results belong together."""

    __constants__ = ["dim"]

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("dim", None)


class Softmin(_OverDim):
    """``softmax(-input)`` along `dim`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_OverDim):
    """``exp(input) / sum(exp(input))`` along `dim`: positive, adding up to 1. Shapes: any, unchanged."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax2d(Module):
    """Softmax over the channels of each pixel.

    Shapes: ``(N, C, H, W)`` or ``(C, H, W)``; ValueError for others.
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (3, 4):
            raise ValueError(f"Softmax2d: expected 3 or 4 dimensions, got {tuple(input.shape)}")
        return F.softmax(input, -3)


class LogSoftmax(_OverDim):
    """``log(softmax(input))`` along `dim`, without underflow."""

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class MultiheadAttention(Module):
    """Attention in several heads: each weighs the values by how well their keys match a query.

    Args:
        embed_dim: size E of queries and outputs; each of `num_heads` heads has ``embed_dim / num_heads`` of it.
        dropout: probability of dropping an attention weight, in training.
        bias: whether the projections have one.
        add_bias_kv: whether to append a learned key and value to every sequence.
        add_zero_attn: whether to append a zero key and value to every sequence.
        kdim, vdim: sizes of keys and values; `embed_dim` by default.
        batch_first: whether the batch comes before the sequence in inputs and outputs.
    Shapes: query ``(L, N, E)``, key ``(S, N, kdim)``, value ``(S, N, vdim)``, or all without N ->
        output ``(L, N, E)`` and weights ``(N, L, S)``; with `batch_first` N comes first.
    Raises: ValueError unless `embed_dim` and `num_heads` are positive; AssertionError unless the one divides
        the other.
    Source: Vaswani et al. 2017, "Attention is all you need".
    """

    __constants__ = ["batch_first"]
    bias_k: Tensor | None
    bias_v: Tensor | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(f"MultiheadAttention: embed_dim and num_heads must be > 0, got {embed_dim} and {num_heads}")
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError(f"MultiheadAttention: embed_dim={embed_dim} must be divisible by num_heads={num_heads}")
        self._make_parameters(bias, add_bias_kv, {"device": device, "dtype": dtype})
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _make_parameters(self, bias: bool, add_bias_kv: bool, options: dict[str, Any]) -> None:
        def parameter(wanted: bool, *shape: int) -> Parameter | None:
            return Parameter(fb.empty(shape, **options)) if wanted else None

        size, same = self.embed_dim, self._qkv_same_embed_dim
        # One matrix for queries, keys and values when their sizes agree, else one each. Separate ones are
        # made first and the others only reserved, so that state_dict has the order it has in PyTorch.
        if same:
            self.register_parameter("in_proj_weight", parameter(True, 3 * size, size))
        self.register_parameter("q_proj_weight", parameter(not same, size, size))
        self.register_parameter("k_proj_weight", parameter(not same, size, self.kdim))
        self.register_parameter("v_proj_weight", parameter(not same, size, self.vdim))
        if not same:
            self.register_parameter("in_proj_weight", None)
        self.register_parameter("in_proj_bias", parameter(bias, 3 * size))
        self.out_proj = NonDynamicallyQuantizableLinear(size, size, bias=bias, **options)
        self.bias_k = parameter(add_bias_kv, 1, 1, size)
        self.bias_v = parameter(add_bias_kv, 1, 1, size)

    def _reset_parameters(self) -> None:
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            if getattr(self, name) is not None:
                init.xavier_uniform_(getattr(self, name))
        if self.in_proj_bias is not None:
            init.constant_(self.in_proj_bias, 0.0)
            init.constant_(self.out_proj.bias, 0.0)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def __setstate__(self, state: dict[str, Any]) -> None:
        state.setdefault("_qkv_same_embed_dim", True)
        super().__setstate__(state)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend.

        Args:
            key_padding_mask: (N, S) or (S,); True, or an addend to the scores, at keys to ignore.
            need_weights: whether to return the attention weights; without them it is faster.
            attn_mask: (L, S) or (N * num_heads, L, S); True, or an addend, at pairs to ignore.
            average_attn_weights: whether the weights returned are the mean over the heads.
            is_causal: says that `attn_mask` is the causal mask, which may then be skipped in favour of a faster way.
        Returns: the output, and the weights or None.
        """
        return multi_head_attention(
            self, query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights,
            is_causal,
        )

    def merge_masks(self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, query: Tensor) -> tuple[Tensor | None, int | None]:
        """Both masks in one, and its kind: 0 attention, 1 padding, 2 both, None neither.

        Shapes: with `attn_mask`, ``(N, num_heads, L, S)``.
        """
        if attn_mask is None:
            return (None, None) if key_padding_mask is None else (key_padding_mask, 1)
        batch, length = query.shape[0], query.shape[1]
        if attn_mask.dim() == 3:
            merged = attn_mask.view(batch, -1, length, attn_mask.shape[-1])
        else:
            merged = attn_mask.view(1, 1, length, -1).expand(batch, self.num_heads, -1, -1)
        if key_padding_mask is not None:
            merged = merged + key_padding_mask.view(batch, 1, 1, -1).expand(-1, self.num_heads, -1, -1)
        return merged, 2
