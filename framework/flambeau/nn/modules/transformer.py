"""The transformer: encoder and decoder layers, stacks of them, and both together.

Inputs are ``(L, N, E)``, with `batch_first` ``(N, L, E)``, or without N. Masks are boolean, True where
attention is not
allowed, or floating, added to the scores: `mask` arguments ``(L, S)`` or ``(N * heads, L, S)``, `key_padding_mask`
arguments ``(N, S)`` or ``(S,)``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import flambeau as fb

from ... import _state
from ..._warn import warn
from .. import functional as F
from .. import init
from . import module as modules
from ._attention import additive_mask, warn_of_mixed_masks
from ._trail import note_module
from .activation import GELU, MultiheadAttention, ReLU
from .container import ModuleList
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .normalization import LayerNorm

__all__ = [
    "Transformer",
    "TransformerEncoder",
    "TransformerDecoder",
    "TransformerEncoderLayer",
    "TransformerDecoderLayer",
]

Tensor = fb.Tensor
Activation = str | Callable[[Tensor], Tensor]


def _causal_mask(size: int, device: Any = None, dtype: Any = None) -> Tensor:
    """(size, size): 0 on and below the diagonal, minus infinity above."""
    return fb.triu(fb.full((size, size), float("-inf"), device=device, dtype=dtype), diagonal=1)


def _is_causal(mask: Tensor | None, is_causal: bool | None, size: int | None) -> bool:
    """Whether `mask` is the causal mask, found by comparing when `is_causal` does not say."""
    if is_causal is not None or mask is None:
        return bool(is_causal)
    length = mask.size(-2) if size is None else size
    # Decided in the mask's own dtype; a boolean or wrongly sized mask is never equal.
    causal = _causal_mask(length, mask.device, mask.dtype if mask.is_floating_point() else None)
    if mask.size() != causal.size():
        return False
    equal: Any = mask == causal
    return bool(equal.all())


def _get_activation_fn(activation: str) -> Callable[[Tensor], Tensor]:
    """The function "relu" or "gelu", under PyTorch's name. Raises: RuntimeError for another word."""
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    return _activation(activation)


def _activation(activation: Activation) -> Callable[[Tensor], Tensor]:
    if not isinstance(activation, str):
        return activation
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f"activation must be 'relu', 'gelu' or a function, got {activation!r}")
    return F.relu if activation == "relu" else F.gelu


class _Layer(Module):
    """What encoder and decoder layers share: attention to themselves, and the feed-forward half."""

    __constants__ = ["norm_first"]
    _last_dropout: str  # the name of the dropout behind the feed-forward network

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("activation", F.relu)

    def _add_parts(
        self, count: int, d_model: int, hidden: int, dropout: float, activation: Activation, eps: float, norm_first: bool, bias: bool,
        options: dict[str, Any],
    ) -> None:  # fmt: skip
        """The feed-forward network, and `count` layer norms and dropouts: what follows the attentions in the order of parameters."""
        self.linear1 = Linear(d_model, hidden, bias=bias, **options)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(hidden, d_model, bias=bias, **options)
        self.norm_first = norm_first
        for i in range(1, count + 1):
            setattr(self, f"norm{i}", LayerNorm(d_model, eps=eps, bias=bias, **options))
        for i in range(1, count + 1):
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.activation: Any = _activation(activation)

    def _sa_block(self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False) -> Tensor:
        attended, _ = self.self_attn(
            x,
            x,
            x,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            need_weights=False,
            is_causal=is_causal,
        )
        return self.dropout1(attended)

    def _feed(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))

    def _ff_block(self, x: Tensor) -> Tensor:
        return getattr(self, self._last_dropout)(self._feed(x))

    def _fed(self, x: Tensor, normalized: Tensor) -> Tensor:
        """``x + self._ff_block(normalized)``; where nobody could tell, without passes of their own for activation and sum."""
        if not self._is_plain():
            return x + self._ff_block(normalized)
        hidden = _linear(self.linear1, normalized, self.activation.flambeau_op.name, spread=True)
        return _linear(self.linear2, hidden, residual=x)

    def _is_plain(self) -> bool:
        """Whether the feed-forward network is in evaluation and just what its constructor made it, without hooks."""
        if self.training or _state.grad_enabled() or modules._watching_all or not _state.left_alone():
            return False
        for method, own in ((self._ff_block, _Layer._ff_block), (self._feed, _Layer._feed)):
            if getattr(method, "__func__", None) is not own:
                return False
        parts = self._modules
        for kind, name in ((Linear, "linear1"), (Linear, "linear2"), (Dropout, "dropout"), (Dropout, self._last_dropout)):
            part = parts.get(name)
            if type(part) is not kind or part._watched or part.training or "forward" in part.__dict__:
                return False
        return getattr(getattr(self.activation, "flambeau_op", None), "finishes_products", False)


class TransformerEncoderLayer(_Layer):
    """Self-attention, then a feed-forward network, each added to its input and normalized.

    Args:
        d_model: size E of the features.
        nhead: number of attention heads.
        dim_feedforward: size of the hidden layer.
        dropout: probability of dropping, in training.
        activation: ``'relu'``, ``'gelu'`` or a function.
        layer_norm_eps: eps of the layer norms.
        batch_first: whether the batch comes before the sequence.
        norm_first: whether to normalize before attention and feed-forward rather than after.
        bias: whether linear layers and layer norms have one.
    Shapes: ``(S, N, E)`` or ``(S, E)``, unchanged; with `batch_first` N comes first.
    """

    _last_dropout = "dropout2"

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        options = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **options)
        self._add_parts(2, d_model, dim_feedforward, dropout, activation, layer_norm_eps, norm_first, bias, options)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        warn_of_mixed_masks(src_key_padding_mask=src_key_padding_mask, src_mask=src_mask)
        padding = additive_mask(src_key_padding_mask, "src_key_padding_mask", src.dtype)
        mask = additive_mask(src_mask, "src_mask", src.dtype)
        x = src
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), mask, padding, is_causal)
            return self._fed(x, self.norm2(x))
        x = self.norm1(x + self._sa_block(x, mask, padding, is_causal))
        return self.norm2(self._fed(x, x))


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to `memory`, then a feed-forward network, each added to its input.

    Arguments as `TransformerEncoderLayer`. Each sum is normalized, or with `norm_first` the input of each part.
    Shapes: ``(T, N, E)``, `memory` ``(S, N, E)`` -> ``(T, N, E)``; with `batch_first` N comes first.
    """

    _last_dropout = "dropout3"

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        options = {"device": device, "dtype": dtype}
        attention = {"dropout": dropout, "batch_first": batch_first, "bias": bias, **options}
        self.self_attn = MultiheadAttention(d_model, nhead, **attention)
        self.multihead_attn = MultiheadAttention(d_model, nhead, **attention)
        self._add_parts(3, d_model, dim_feedforward, dropout, activation, layer_norm_eps, norm_first, bias, options)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        other = (memory_mask, memory_key_padding_mask, memory_is_causal)
        x = tgt
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), *own)
            x = x + self._mha_block(self.norm2(x), memory, *other)
            return self._fed(x, self.norm3(x))
        x = self.norm1(x + self._sa_block(x, *own))
        x = self.norm2(x + self._mha_block(x, memory, *other))
        return self.norm3(self._fed(x, x))

    def _mha_block(
        self,
        x: Tensor,
        mem: Tensor,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        attended, _ = self.multihead_attn(
            x,
            mem,
            mem,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            is_causal=is_causal,
            need_weights=False,
        )
        return self.dropout2(attended)


def _linear(layer: Linear, x: Tensor, activation: str | None = None, residual: Tensor | None = None, spread: bool = False) -> Tensor:
    """``residual + activation(layer(x))``; an error names the layer, as a call of it would."""
    from ...ops.layers.fused import linear_activation

    try:
        return linear_activation.run(x, layer.weight, layer.bias, activation, residual, spread)
    except Exception as error:
        note_module(error, layer)
        raise


def _get_clones(module: Module, N: int) -> ModuleList:  # PyTorch's name and parameters, which copies of its layers use
    return ModuleList([copy.deepcopy(module) for _ in range(N)])


def _sequence_length(x: Tensor, batch_first: bool) -> int:
    return x.shape[1 if batch_first and x.dim() == 3 else 0]


def _why_not_nested(layer: Any) -> str:
    """What keeps PyTorch from leaving padded positions of such layers out; empty where nothing does."""
    if not isinstance(layer, TransformerEncoderLayer):
        return "encoder_layer was not a TransformerEncoderLayer"
    attention = layer.self_attn
    reasons = {
        "norm_first was True": layer.norm_first,
        "self_attn.batch_first was not True (use batch_first for better inference performance)": not attention.batch_first,
        "self_attn was passed bias=False": attention.in_proj_bias is None,
        "self_attn has keys or values of another size than queries": attention.in_proj_weight is None,
        "activation was neither relu nor gelu": not (layer.activation in (F.relu, F.gelu) or isinstance(layer.activation, (ReLU, GELU))),
        "norm1.eps was not equal to norm2.eps": layer.norm1.eps != layer.norm2.eps,
        "self_attn.num_heads is odd": attention.num_heads % 2 == 1,
    }
    return next((f"encoder_layer.{words}" for words, holds in reasons.items() if holds), "")


class TransformerEncoder(Module):
    """`num_layers` copies of `encoder_layer`, one after the other, then `norm` if given.

    Args:
        enable_nested_tensor, mask_check: accepted for PyTorch's signature; padded positions are always computed.
    Shapes as of `TransformerEncoderLayer`.
    """

    __constants__ = ["norm"]

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _get_clones(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = enable_nested_tensor
        missing = _why_not_nested(encoder_layer) if enable_nested_tensor else ""
        self.use_nested_tensor = enable_nested_tensor and not missing
        if missing:
            warn(f"enable_nested_tensor is True, but self.use_nested_tensor is False because {missing}")
        self.mask_check = mask_check

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        warn_of_mixed_masks(src_key_padding_mask=src_key_padding_mask, mask=mask)
        padding = additive_mask(src_key_padding_mask, "src_key_padding_mask", src.dtype)
        mask = additive_mask(mask, "mask", src.dtype)
        batch_first = self.layers[0].self_attn.batch_first if len(self.layers) else False
        causal = _is_causal(mask, is_causal, _sequence_length(src, batch_first))
        output = src
        for layer in self.layers:
            output = layer(output, src_mask=mask, is_causal=causal, src_key_padding_mask=padding)
        return output if self.norm is None else self.norm(output)


class TransformerDecoder(Module):
    """`num_layers` copies of `decoder_layer`, one after the other, then `norm` if given.

    Shapes as of `TransformerDecoderLayer`.
    """

    __constants__ = ["norm"]

    def __init__(self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = _get_clones(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        batch_first = self.layers[0].self_attn.batch_first if len(self.layers) else False
        causal = _is_causal(tgt_mask, tgt_is_causal, _sequence_length(tgt, batch_first))
        output = tgt
        for layer in self.layers:
            output = layer(
                output,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=causal,
                memory_is_causal=memory_is_causal,
            )
        return output if self.norm is None else self.norm(output)


class Transformer(Module):
    """An encoder that reads `src` and a decoder that reads `tgt` and what the encoder made.

    Args:
        num_encoder_layers, num_decoder_layers: depths.
        custom_encoder, custom_decoder: modules to use instead.
    The others as `TransformerEncoderLayer`. Matrices are drawn by `xavier_uniform_`.
    Source: Vaswani et al. 2017, "Attention is all you need".
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        options = {"device": device, "dtype": dtype}
        layer = (
            d_model,
            nhead,
            dim_feedforward,
            dropout,
            activation,
            layer_norm_eps,
            batch_first,
            norm_first,
            bias,
        )

        def norm() -> LayerNorm:
            return LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **options)

        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            encoder_layer = TransformerEncoderLayer(*layer, **options)
            self.encoder = TransformerEncoder(encoder_layer, num_encoder_layers, norm())
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            decoder_layer = TransformerDecoderLayer(*layer, **options)
            self.decoder = TransformerDecoder(decoder_layer, num_decoder_layers, norm())
        self._reset_parameters()
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def _reset_parameters(self) -> None:
        for param in self.parameters():
            if param.dim() > 1:
                init.xavier_uniform_(param)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Shapes: src ``(S, N, E)``, tgt ``(T, N, E)`` -> ``(T, N, E)``.

        Raises: RuntimeError if batch or feature sizes differ.
        """
        batch = 0 if self.batch_first else 1
        shapes = f"src {tuple(src.shape)} and tgt {tuple(tgt.shape)}"
        if src.dim() == 3 and src.size(batch) != tgt.size(batch):
            raise RuntimeError(f"Transformer: batch sizes differ: {shapes}")
        if src.size(-1) != self.d_model or tgt.size(-1) != self.d_model:
            raise RuntimeError(f"Transformer: the last dimension must be d_model={self.d_model}: {shapes}")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """The causal mask (sz, sz): 0 on and below the diagonal, minus infinity above."""
        return _causal_mask(sz, device, dtype)
