"""Methods of our own modules as scripts have them, where the methods themselves use more of Python than scripts do.

The functions here are never called: their source is compiled, with the module as ``self``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flambeau as torch

from ..nn import functional as F
from ..nn import modules as layers
from ..nn.modules.adaptive import _ASMoutput
from ..ops._entry import compile_text
from ..tensor import Tensor

__all__ = ["form_of"]

aten = torch.ops.aten

_FORMS: dict[tuple[type, str], Callable[..., Any]] = {}


def form_of(cls: type, name: str) -> Callable[..., Any] | None:
    """The form of the method that instances of the class have; None where it is compiled from its own source."""
    for c in cls.__mro__:
        if (c, name) in _FORMS:
            return _FORMS[c, name]
        if name in vars(c):
            return None
    return None


def _form(*classes: type, name: str = "forward") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a function be the form of the method of the classes."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        for cls in classes:
            _FORMS[cls, name] = fn
        return fn

    return register


def _of_each_dimension(text: str, module: Any, cls: str, name: str = "forward") -> None:
    """Let the functions of this text for ``n`` of 1, 2 and 3 dimensions be the forms of the method of the classes.

    In it ``zeros`` are as many, and ``unbatched`` the number of dimensions of an input without a batch.
    """
    for n in (1, 2, 3):
        written = text.strip().format(n=n, zeros=[0] * n, unbatched=n + 1)
        inside, made = "".join(f"    {line}\n" for line in written.split("\n")), written.split("(")[0].split()[1]
        fn = compile_text(f"def make():\n{inside}    return {made}\n", f"form of {cls.format(n=n)}", {}, globals())
        _form(getattr(module, cls.format(n=n)), name=name)(fn)


@_form(layers.linear.Linear)
def _linear(self, input: Tensor) -> Tensor:
    return F.linear(input, self.weight, self.bias)


@_form(layers.module.Module, name="_weight_and_bias")
def _parameters(self):
    return self.weight, self.bias


@_form(layers.sparse.Embedding)
def _embedding(self, input: Tensor) -> Tensor:
    return F.embedding(
        input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
    )


@_form(layers.container.Sequential)
def _sequential(self, input):
    for module in self:
        input = module(input)
    return input


# -- convolutions --------------------------------------------------------------------------------------------------------


_PADDED = """
def _conv{n}d(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if self.padding_mode != "zeros":
        kind = "replicate" if self.padding_mode == "replicate" else "reflect" if self.padding_mode == "reflect" else "circular"
        wide = aten.pad(input, self._reversed_padding_repeated_twice, kind)
        return aten.conv{n}d(wide, weight, bias, self.stride, {zeros}, self.dilation, self.groups)
    return aten.conv{n}d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)
"""
_of_each_dimension(_PADDED, layers.conv, "Conv{n}d", name="_conv_forward")


def _wanted_padding(
    input: Tensor, output_size: list[int] | None, own: list[int], stride: list[int], padding: list[int], kernel: list[int],
    dilation: list[int],
) -> list[int]:  # fmt: skip
    """What is added to one side of a transposed convolution's result."""
    if output_size is None:
        return own
    dims = len(kernel)
    sizes = output_size[len(output_size) - dims :]
    found: list[int] = []
    for d in range(dims):
        least = (input.size(input.dim() - dims + d) - 1) * stride[d] - 2 * padding[d] + dilation[d] * (kernel[d] - 1) + 1
        if sizes[d] < least or sizes[d] > least + stride[d] - 1:
            raise ValueError(f"requested an output size of {output_size}, but valid sizes of dimension {d} are from {least} on")
        found.append(sizes[d] - least)
    return found


_TRANSPOSED = """
def _transposed{n}d(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
    more = _wanted_padding(input, output_size, self.output_padding, self.stride, self.padding, self.kernel_size, self.dilation)
    return aten.conv_transpose{n}d(input, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation)
"""
_of_each_dimension(_TRANSPOSED, layers.conv, "ConvTranspose{n}d")


# -- normalization -------------------------------------------------------------------------------------------------------


@_form(layers.batchnorm.BatchNorm1d, layers.instancenorm.InstanceNorm1d, name="_check_input_dim")
def _two_or_three(self, input: Tensor) -> None:
    if input.dim() != 2 and input.dim() != 3:
        raise ValueError(f"expected 2D or 3D input (got {input.dim()}D input)")


@_form(layers.batchnorm.BatchNorm2d, name="_check_input_dim")
def _four(self, input: Tensor) -> None:
    if input.dim() != 4:
        raise ValueError(f"expected 4D input (got {input.dim()}D input)")


@_form(layers.batchnorm.BatchNorm3d, name="_check_input_dim")
def _five(self, input: Tensor) -> None:
    if input.dim() != 5:
        raise ValueError(f"expected 5D input (got {input.dim()}D input)")


@_form(layers.batchnorm.BatchNorm1d, layers.batchnorm.BatchNorm2d, layers.batchnorm.BatchNorm3d)
def _batch_norm(self, input: Tensor) -> Tensor:
    self._check_input_dim(input)
    momentum = 0.0 if self.momentum is None else self.momentum
    if self.training and self.track_running_stats and self.num_batches_tracked is not None:
        self.num_batches_tracked.add_(1)
        if self.momentum is None:
            momentum = 1.0 / float(self.num_batches_tracked)
    by_batch = True if self.training else self.running_mean is None and self.running_var is None
    if not self.training or self.track_running_stats:
        return F.batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, by_batch, momentum, self.eps)
    return F.batch_norm(input, None, None, self.weight, self.bias, by_batch, momentum, self.eps)


_INSTANCE_NORM = """
def _instance_norm{n}d(self, input: Tensor) -> Tensor:
    momentum = 0.0 if self.momentum is None else self.momentum
    by_instance = self.training or not self.track_running_stats
    whole = input.unsqueeze(0) if input.dim() == {unbatched} else input
    made = F.instance_norm(whole, self.running_mean, self.running_var, self.weight, self.bias, by_instance, momentum, self.eps)
    return made.squeeze(0) if input.dim() == {unbatched} else made
"""
_of_each_dimension(_INSTANCE_NORM, layers.instancenorm, "InstanceNorm{n}d")


# -- pooling and padding -------------------------------------------------------------------------------------------------


_MAX_POOL = """
def _max_pool{n}d(self, input: Tensor):
    return F.max_pool{n}d(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)
"""
_of_each_dimension(_MAX_POOL, layers.pooling, "MaxPool{n}d")


@_form(layers.activation.Softmax2d)
def _softmax2d(self, input: Tensor) -> Tensor:
    if input.dim() != 4 and input.dim() != 3:
        raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
    return F.softmax(input, -3)


@_form(layers.padding.CircularPad1d, layers.padding.CircularPad2d, layers.padding.CircularPad3d)
def _circular(self, input: Tensor) -> Tensor:
    return aten.pad(input, self.padding, "circular")


@_form(layers.upsampling.Upsample)
def _upsample(self, input: Tensor) -> Tensor:
    return F.interpolate(
        input, self.size, self.scale_factor, self.mode, self.align_corners, recompute_scale_factor=self.recompute_scale_factor
    )


# -- losses ----------------------------------------------------------------------------------------------------------------


@_form(layers.loss.GaussianNLLLoss)
def _gaussian_nll(self, input: Tensor, target: Tensor, var: Tensor) -> Tensor:
    return F.gaussian_nll_loss(input, target, var, self.full, self.eps, self.reduction)


@_form(layers.loss.CTCLoss)
def _ctc(self, log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor) -> Tensor:
    return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity)


# -- recurrent -----------------------------------------------------------------------------------------------------------


@_form(layers.rnn.LSTM)
def _lstm(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    batched = input.dim() == 3
    batch_dim = 0 if self.batch_first else 1
    x = input if batched else input.unsqueeze(batch_dim)
    count = x.size(0 if self.batch_first else 1)
    layers_count = self.num_layers * (2 if self.bidirectional else 1)
    if hx is None:
        out = self.proj_size if self.proj_size > 0 else self.hidden_size
        hidden = torch.zeros([layers_count, count, out], dtype=input.dtype, device=input.device)
        cell = torch.zeros([layers_count, count, self.hidden_size], dtype=input.dtype, device=input.device)
    else:
        hidden = hx[0] if batched else hx[0].unsqueeze(1)
        cell = hx[1] if batched else hx[1].unsqueeze(1)
    result, h, c = aten.lstm(
        x, [hidden, cell], self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional,
        self.batch_first,
    )  # fmt: skip
    if batched:
        return result, (h, c)
    return result.squeeze(batch_dim), (h.squeeze(1), c.squeeze(1))


@_form(layers.rnn.GRU)
def _gru(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
    batched = input.dim() == 3
    batch_dim = 0 if self.batch_first else 1
    x = input if batched else input.unsqueeze(batch_dim)
    count = x.size(0 if self.batch_first else 1)
    layers_count = self.num_layers * (2 if self.bidirectional else 1)
    if hx is None:
        hidden = torch.zeros([layers_count, count, self.hidden_size], dtype=input.dtype, device=input.device)
    else:
        hidden = hx if batched else hx.unsqueeze(1)
    result, h = aten.gru(
        x, hidden, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional, self.batch_first
    )
    if batched:
        return result, h
    return result.squeeze(batch_dim), h.squeeze(1)


@_form(layers.rnn.RNN)
def _rnn(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
    batched = input.dim() == 3
    batch_dim = 0 if self.batch_first else 1
    x = input if batched else input.unsqueeze(batch_dim)
    count = x.size(0 if self.batch_first else 1)
    layers_count = self.num_layers * (2 if self.bidirectional else 1)
    if hx is None:
        hidden = torch.zeros([layers_count, count, self.hidden_size], dtype=input.dtype, device=input.device)
    else:
        hidden = hx if batched else hx.unsqueeze(1)
    if self.mode == "RNN_TANH":
        result, h = aten.rnn_tanh(
            x, hidden, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional, self.batch_first
        )
    else:
        result, h = aten.rnn_relu(
            x, hidden, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional, self.batch_first
        )
    if batched:
        return result, h
    return result.squeeze(batch_dim), h.squeeze(1)


@_form(layers.rnn.RNNCell)
def _rnn_cell(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
    x = input if input.dim() == 2 else input.unsqueeze(0)
    if hx is None:
        hidden = torch.zeros([x.size(0), self.hidden_size], dtype=input.dtype, device=input.device)
    else:
        hidden = hx if input.dim() == 2 else hx.unsqueeze(0)
    if self.nonlinearity == "tanh":
        made = aten.rnn_tanh_cell(x, hidden, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    else:
        made = aten.rnn_relu_cell(x, hidden, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    return made if input.dim() == 2 else made.squeeze(0)


@_form(layers.rnn.GRUCell)
def _gru_cell(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
    x = input if input.dim() == 2 else input.unsqueeze(0)
    if hx is None:
        hidden = torch.zeros([x.size(0), self.hidden_size], dtype=input.dtype, device=input.device)
    else:
        hidden = hx if input.dim() == 2 else hx.unsqueeze(0)
    made = aten.gru_cell(x, hidden, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    return made if input.dim() == 2 else made.squeeze(0)


@_form(layers.rnn.LSTMCell)
def _lstm_cell(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
    x = input if input.dim() == 2 else input.unsqueeze(0)
    if hx is None:
        hidden = torch.zeros([x.size(0), self.hidden_size], dtype=input.dtype, device=input.device)
        cell = hidden
    else:
        hidden = hx[0] if input.dim() == 2 else hx[0].unsqueeze(0)
        cell = hx[1] if input.dim() == 2 else hx[1].unsqueeze(0)
    h, c = aten.lstm_cell(x, [hidden, cell], self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    if input.dim() == 2:
        return h, c
    return h.squeeze(0), c.squeeze(0)


# -- attention -----------------------------------------------------------------------------------------------------------


def _as_addend(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A mask as what is added to scores: -inf where a mask of truths is true."""
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        return torch.zeros(mask.size(), dtype=dtype, device=mask.device).masked_fill_(mask, float("-inf"))
    return mask


def _attention(
    query: Tensor, key: Tensor, value: Tensor, heads: int, in_weight: Tensor | None, in_bias: Tensor | None,
    bias_k: Tensor | None, bias_v: Tensor | None, add_zero: bool, dropout: float, out_weight: Tensor, out_bias: Tensor | None,
    training: bool, padding: Tensor | None, need_weights: bool, mask: Tensor | None, q_weight: Tensor | None,
    k_weight: Tensor | None, v_weight: Tensor | None, average: bool, is_causal: bool,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Attention of (L, N, E) to (S, N, E)."""
    length, count, width = query.size(0), query.size(1), query.size(2)
    part = width // heads
    b_q: Tensor | None = None
    b_k: Tensor | None = None
    b_v: Tensor | None = None
    if in_bias is not None:
        b_q, b_k, b_v = in_bias[:width], in_bias[width : 2 * width], in_bias[2 * width :]
    if in_weight is not None:
        q = aten.linear(query, in_weight[:width], b_q)
        k = aten.linear(key, in_weight[width : 2 * width], b_k)
        v = aten.linear(value, in_weight[2 * width :], b_v)
    else:
        assert q_weight is not None
        assert k_weight is not None
        assert v_weight is not None
        q = aten.linear(query, q_weight, b_q)
        k = aten.linear(key, k_weight, b_k)
        v = aten.linear(value, v_weight, b_v)
    added = _as_addend(mask, query.dtype)
    hidden = _as_addend(padding, query.dtype)
    if added is not None and added.dim() == 3:
        added = added.view([count, heads, length, -1])
    if is_causal and added is None:
        added = torch.full([length, k.size(0)], float("-inf"), dtype=query.dtype, device=query.device).triu(1)
    if bias_k is not None and bias_v is not None:
        k = torch.cat([k, bias_k.repeat(1, count, 1)])
        v = torch.cat([v, bias_v.repeat(1, count, 1)])
        if added is not None:
            added = aten.pad(added, [0, 1])
        if hidden is not None:
            hidden = aten.pad(hidden, [0, 1])
    q = q.reshape(length, count, heads, part).permute(1, 2, 0, 3)
    k = k.reshape(k.size(0), count, heads, part).permute(1, 2, 0, 3)
    v = v.reshape(v.size(0), count, heads, part).permute(1, 2, 0, 3)
    if add_zero:
        nothing = torch.zeros([count, heads, 1, part], dtype=k.dtype, device=k.device)
        k = torch.cat([k, nothing], dim=2)
        v = torch.cat([v, nothing], dim=2)
        if added is not None:
            added = aten.pad(added, [0, 1])
        if hidden is not None:
            hidden = aten.pad(hidden, [0, 1])
    if hidden is not None:
        spread = hidden.view([count, 1, 1, k.size(2)])
        added = spread if added is None else added + spread
    p = dropout if training else 0.0
    if not need_weights:
        made = aten.scaled_dot_product_attention(q, k, v, added, p)
        made = made.permute(2, 0, 1, 3).reshape(length, count, width)
        return aten.linear(made, out_weight, out_bias), None
    scores = torch.matmul(q * (1.0 / math.sqrt(float(part))), k.transpose(-2, -1))
    if added is not None:
        scores = scores + added
    weights = aten.softmax(scores, -1)
    made = torch.matmul(aten.dropout(weights, p, True) if p > 0.0 else weights, v)
    made = made.permute(2, 0, 1, 3).reshape(length, count, width)
    return aten.linear(made, out_weight, out_bias), weights.mean(1) if average else weights


@_form(layers.activation.MultiheadAttention)
def _multihead_attention(
    self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None, need_weights: bool = True,
    attn_mask: Tensor | None = None, average_attn_weights: bool = True, is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    batched = query.dim() == 3
    if not batched:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    elif self.batch_first:
        query, key, value = query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)
    made, weights = _attention(
        query, key, value, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k, self.bias_v, self.add_zero_attn,
        self.dropout, self.out_proj.weight, self.out_proj.bias, self.training, key_padding_mask, need_weights, attn_mask,
        self.q_proj_weight, self.k_proj_weight, self.v_proj_weight, average_attn_weights, is_causal,
    )  # fmt: skip
    if not batched:
        return made.squeeze(1), None if weights is None else weights.squeeze(0)
    return made.transpose(0, 1) if self.batch_first else made, weights


@_form(layers.transformer.TransformerEncoderLayer)
def _encoder_layer(
    self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    mask = _as_addend(src_mask, src.dtype)
    padding = _as_addend(src_key_padding_mask, src.dtype)
    x = src
    if self.norm_first:
        y = self.norm1(x)
        x = x + self.dropout1(self.self_attn(y, y, y, padding, False, mask, True, is_causal)[0])
        return x + self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(self.norm2(x))))))
    x = self.norm1(x + self.dropout1(self.self_attn(x, x, x, padding, False, mask, True, is_causal)[0]))
    return self.norm2(x + self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x))))))


@_form(layers.transformer.TransformerDecoderLayer)
def _decoder_layer(
    self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
    tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool = False,
    memory_is_causal: bool = False,
) -> Tensor:  # fmt: skip
    x = tgt
    if self.norm_first:
        y = self.norm1(x)
        x = x + self.dropout1(self.self_attn(y, y, y, tgt_key_padding_mask, False, tgt_mask, True, tgt_is_causal)[0])
        y = self.norm2(x)
        attended = self.multihead_attn(y, memory, memory, memory_key_padding_mask, False, memory_mask, True, memory_is_causal)[0]
        x = x + self.dropout2(attended)
        return x + self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(self.norm3(x))))))
    x = self.norm1(x + self.dropout1(self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask, True, tgt_is_causal)[0]))
    attended = self.multihead_attn(x, memory, memory, memory_key_padding_mask, False, memory_mask, True, memory_is_causal)[0]
    x = self.norm2(x + self.dropout2(attended))
    return self.norm3(x + self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x))))))


@_form(layers.transformer.TransformerEncoder)
def _encoder(
    self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None, is_causal: bool | None = None
) -> Tensor:
    causal = False if is_causal is None else is_causal
    x = src
    for layer in self.layers:
        x = layer(x, mask, src_key_padding_mask, causal)
    if self.norm is not None:
        x = self.norm(x)
    return x


@_form(layers.transformer.TransformerDecoder)
def _decoder(
    self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
    tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
    tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
) -> Tensor:  # fmt: skip
    causal = False if tgt_is_causal is None else tgt_is_causal
    x = tgt
    for layer in self.layers:
        x = layer(x, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, causal, memory_is_causal)
    if self.norm is not None:
        x = self.norm(x)
    return x


@_form(layers.transformer.Transformer)
def _transformer(
    self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None,
    memory_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
    memory_key_padding_mask: Tensor | None = None, src_is_causal: bool | None = None, tgt_is_causal: bool | None = None,
    memory_is_causal: bool = False,
) -> Tensor:  # fmt: skip
    memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
    return self.decoder(
        tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal, memory_is_causal
    )


@_form(layers.adaptive.AdaptiveLogSoftmaxWithLoss)
def _adaptive_log_softmax(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
    is_batched = target_.dim() > 0
    if target_.dim() > 1:
        raise RuntimeError("AdaptiveLogSoftmaxWithLoss: the target must have 0 or 1 dimensions")
    if input_.dim() != target_.dim() + 1:
        raise RuntimeError("AdaptiveLogSoftmaxWithLoss: a target of (N,) needs (N, F) input, one of () needs (F,) input")
    if is_batched and input_.size(0) != target_.size(0):
        raise RuntimeError("AdaptiveLogSoftmaxWithLoss: batch sizes differ")
    input = input_ if is_batched else input_.unsqueeze(0)
    target = target_ if is_batched else target_.unsqueeze(0)
    first = ((target >= 0) & (target < self.cutoffs[0])).nonzero().squeeze(1)
    found = first.numel()
    in_head = torch.empty_like(target).index_copy(0, first, target.index_select(0, first))
    where: list[Tensor] = []
    parts: list[Tensor] = []
    for i, cluster in enumerate(self.tail):
        low, high = self.cutoffs[i], self.cutoffs[i + 1]
        rows = ((target >= low) & (target < high)).nonzero().squeeze(1)
        if rows.numel() > 0:
            found += rows.numel()
            logits = cluster(input.index_select(0, rows))
            in_head = in_head.index_fill(0, rows, self.shortlist_size + i)
            where.append(rows)
            parts.append(F.log_softmax(logits, dim=1).gather(1, (target.index_select(0, rows) - low).unsqueeze(1)).squeeze(1))
    if found != target.size(0):
        raise RuntimeError("AdaptiveLogSoftmaxWithLoss: targets must be from 0 to n_classes - 1")
    output = F.log_softmax(self.head(input), dim=1).gather(1, in_head.unsqueeze(1)).squeeze(1)
    for rows, inside in zip(where, parts):  # noqa: B905  # scripts have no `strict`
        output = output.index_add(0, rows, inside)
    return _ASMoutput(output if is_batched else output.squeeze(0), (-output).mean())
