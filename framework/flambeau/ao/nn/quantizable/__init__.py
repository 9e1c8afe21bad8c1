"""LSTM and multi-head attention written out in operations that observers look at, so that they can be quantized statically."""

from __future__ import annotations

import math
from typing import Any

import flambeau as fb

from ....nn import functional as F
from ....nn import modules as nn
from ....tensor import Tensor
from ...quantization.stubs import DeQuantStub, QuantStub
from ..quantized import FloatFunctional

__all__ = ["LSTM", "LSTMCell", "MultiheadAttention"]


class LSTMCell(nn.Module):
    """A cell of an LSTM in observed operations.

    Args:
        input_dim, hidden_dim: sizes of the last dimension of the input and the states.
        bias: whether the two linear maps have one.
        split_gates: one map for each gate, so that each has a scale of its own.
    """

    def __init__(
        self, input_dim: int, hidden_dim: int, bias: bool = True, device: Any = None, dtype: Any = None, *, split_gates: bool = False
    ) -> None:
        super().__init__()
        made = {"device": device, "dtype": dtype}
        self.input_size, self.hidden_size, self.bias, self.split_gates = input_dim, hidden_dim, bias, split_gates
        names = ("input", "forget", "cell", "output")
        if split_gates:
            self.igates: Any = nn.ModuleDict({name: nn.Linear(input_dim, hidden_dim, bias=bias, **made) for name in names})
            self.hgates: Any = nn.ModuleDict({name: nn.Linear(hidden_dim, hidden_dim, bias=bias, **made) for name in names})
            self.gates: Any = nn.ModuleDict({name: FloatFunctional() for name in names})
        else:
            self.igates = nn.Linear(input_dim, 4 * hidden_dim, bias=bias, **made)
            self.hgates = nn.Linear(hidden_dim, 4 * hidden_dim, bias=bias, **made)
            self.gates = FloatFunctional()
        self.input_gate, self.forget_gate = nn.Sigmoid(), nn.Sigmoid()
        self.cell_gate, self.output_gate = nn.Tanh(), nn.Sigmoid()
        self.fgate_cx, self.igate_cgate = FloatFunctional(), FloatFunctional()
        self.fgate_cx_igate_cgate, self.ogate_cy = FloatFunctional(), FloatFunctional()
        self.initial_hidden_state_qparams: tuple[float, int] = (1.0, 0)
        self.initial_cell_state_qparams: tuple[float, int] = (1.0, 0)
        self.hidden_state_dtype = self.cell_state_dtype = fb.quint8

    def forward(self, x: Tensor, hidden: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """The next hidden and cell state."""
        if hidden is None:
            hidden = self.initialize_hidden(x.shape[0], x.is_quantized)
        hx, cx = hidden
        if self.split_gates:
            parts = {name: self.gates[name].add(self.igates[name](x), self.hgates[name](hx)) for name in self.gates}
            into, forget, cell, out = (parts[name] for name in ("input", "forget", "cell", "output"))
        else:
            into, forget, cell, out = self.gates.add(self.igates(x), self.hgates(hx)).chunk(4, 1)
        kept = self.fgate_cx.mul(self.forget_gate(forget), cx)
        added = self.igate_cgate.mul(self.input_gate(into), self.cell_gate(cell))
        cy = self.fgate_cx_igate_cgate.add(kept, added)
        hy = self.ogate_cy.mul(self.output_gate(out), cy.tanh())
        return hy, cy

    def initialize_hidden(self, batch_size: int, is_quantized: bool = False) -> tuple[Tensor, Tensor]:
        """States of zeros for a batch."""
        h, c = fb.zeros(batch_size, self.hidden_size), fb.zeros(batch_size, self.hidden_size)
        if is_quantized:
            h = fb.quantize_per_tensor(h, *self.initial_hidden_state_qparams, self.hidden_state_dtype)
            c = fb.quantize_per_tensor(c, *self.initial_cell_state_qparams, self.cell_state_dtype)
        return h, c

    def _get_name(self) -> str:
        return "QuantizableLSTMCell"

    @classmethod
    def from_params(cls, wi: Tensor, wh: Tensor, bi: Any = None, bh: Any = None, split_gates: bool = False) -> LSTMCell:
        """A cell of weights and biases as `nn.LSTM` has them."""
        if (bi is None) != (bh is None):
            raise AssertionError("bi and bh must both be None or both have values")
        made = cls(wi.shape[1], wh.shape[1], bi is not None, split_gates=split_gates)
        for maps, weight, bias in ((made.igates, wi, bi), (made.hgates, wh, bh)):
            if not split_gates:
                maps.weight = _parameter(weight)
                maps.bias = None if bias is None else _parameter(bias)
                continue
            parts = zip(maps.values(), weight.chunk(4, 0), bias.chunk(4, 0) if bias is not None else (None,) * 4, strict=True)
            for linear, w, b in parts:
                linear.weight, linear.bias = _parameter(w), None if b is None else _parameter(b)
        return made

    @classmethod
    def from_float(cls, other: Any, use_precomputed_fake_quant: bool = False, split_gates: bool = False) -> LSTMCell:
        """The cell of a `nn.LSTMCell` with a `qconfig`."""
        if type(other) is not nn.LSTMCell or not hasattr(other, "qconfig"):
            raise AssertionError("The float module must be an LSTMCell with a 'qconfig'")
        made = cls.from_params(other.weight_ih, other.weight_hh, other.bias_ih, other.bias_hh, split_gates)
        made.qconfig = other.qconfig
        for maps in (made.igates, made.hgates):
            for linear in maps.values() if split_gates else (maps,):
                linear.qconfig = other.qconfig
        return made


def _parameter(value: Tensor) -> Any:
    return fb.nn.Parameter(value.detach())


class _LSTMSingleLayer(nn.Module):
    """One direction of a layer, over steps along the first dimension."""

    def __init__(self, cell: LSTMCell) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor, hidden: Any = None) -> Any:
        """The hidden states of all steps, and the last states."""
        outs = []
        for step in x:
            hidden = self.cell(step, hidden)
            outs.append(hidden[0])
        return fb.stack(outs, 0), hidden


class _LSTMLayer(nn.Module):
    """A layer in one or both directions."""

    def __init__(self, forward: LSTMCell, backward: LSTMCell | None, batch_first: bool) -> None:
        super().__init__()
        self.batch_first, self.bidirectional = batch_first, backward is not None
        self.layer_fw = _LSTMSingleLayer(forward)
        if backward is not None:
            self.layer_bw = _LSTMSingleLayer(backward)

    def forward(self, x: Tensor, hidden: Any = None) -> Any:
        """The hidden states of all steps, and the last states."""
        if self.batch_first:
            x = x.transpose(0, 1)
        if not self.bidirectional:
            out, (h, c) = self.layer_fw(x, None if hidden is None else tuple(t[0] for t in hidden) if hidden[0].ndim == 3 else hidden)
            return out.transpose(0, 1) if self.batch_first else out, (h, c)
        first, second = (None, None) if hidden is None else ((hidden[0][0], hidden[1][0]), (hidden[0][1], hidden[1][1]))
        there, (h1, c1) = self.layer_fw(x, first)
        back, (h2, c2) = self.layer_bw(x.flip(0), second)
        out = fb.cat([there, back.flip(0)], -1)
        return out.transpose(0, 1) if self.batch_first else out, (fb.stack([h1, h2]), fb.stack([c1, c2]))


class LSTM(nn.Module):
    """`nn.LSTM` in operations that observers look at; see `nn.LSTM` for the arguments.

    Args:
        split_gates: see `LSTMCell`.

    >>> layer = fb.ao.nn.quantizable.LSTM(10, 20, 2)
    >>> out, (h, c) = layer(fb.randn(5, 3, 10))
    >>> out.shape, h.shape
    (torch.Size([5, 3, 20]), torch.Size([2, 3, 20]))
    """

    _FLOAT_MODULE = nn.LSTM

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
        bidirectional: bool = False, device: Any = None, dtype: Any = None, *, split_gates: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        if not isinstance(dropout, (int, float)) or isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError(
                f"dropout should be a number in range [0, 1] representing the probability of an element being zeroed: {dropout}"
            )
        self.input_size, self.hidden_size, self.num_layers, self.bias = input_size, hidden_size, num_layers, bias
        self.batch_first, self.dropout, self.bidirectional, self.training = batch_first, float(dropout), bidirectional, False
        made = {"device": device, "dtype": dtype, "split_gates": split_gates}
        layers = []
        for i in range(num_layers):
            entering = input_size if i == 0 else hidden_size * (2 if bidirectional else 1)
            cells = [LSTMCell(entering, hidden_size, bias, **made) for _ in range(2 if bidirectional else 1)]
            layers.append(_LSTMLayer(cells[0], cells[1] if bidirectional else None, False))
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, hidden: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Results and last states, as those of `nn.LSTM`."""
        if self.batch_first:
            x = x.transpose(0, 1)
        directions = 2 if self.bidirectional else 1
        states: list[Any] = [None] * self.num_layers
        if hidden is not None:
            h, c = (t.reshape(self.num_layers, directions, -1, self.hidden_size) for t in hidden)
            states = [(h[i], c[i]) if directions == 2 else (h[i, 0], c[i, 0]) for i in range(self.num_layers)]
        ended = []
        for layer, state in zip(self.layers, states, strict=True):
            x, last = layer(x, state)
            if self.training and self.dropout:
                x = fb.dropout(x, self.dropout, True)
            ended.append(last)
        both = []
        for i in range(2):
            parts = [last[i] if directions == 2 else last[i].unsqueeze(0) for last in ended]
            both.append(fb.cat(parts, 0))
        return x.transpose(0, 1) if self.batch_first else x, (both[0], both[1])

    def _get_name(self) -> str:
        return "QuantizableLSTM"

    @classmethod
    def from_float(cls, other: Any, qconfig: Any = None, split_gates: bool = False) -> LSTM:
        """The layer of a `nn.LSTM`, whose parameters it takes, with its `qconfig` or the one given.

        Raises: AssertionError for another layer, or one without a `qconfig`.
        """
        if not isinstance(other, nn.LSTM) or not (hasattr(other, "qconfig") or qconfig):
            raise AssertionError(f"quantizable.LSTM.from_float: needs an LSTM with a qconfig, got {type(other).__name__}")
        made = cls(
            other.input_size, other.hidden_size, other.num_layers, other.bias, other.batch_first, other.dropout, other.bidirectional,
            split_gates=split_gates,
        )  # fmt: skip
        made.qconfig = getattr(other, "qconfig", qconfig)
        for i, layer in enumerate(made.layers):
            for end, part in (("", "layer_fw"), ("_reverse", "layer_bw")):
                if hasattr(layer, part):
                    kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
                    given: list[Any] = [getattr(other, f"{kind}_l{i}{end}", None) for kind in kinds]
                    getattr(layer, part).cell = LSTMCell.from_params(*given, split_gates=split_gates)
        made.train(other.training)
        return _observed(made, other.training)

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        """Raise NotImplementedError: that of `ao.nn.quantized` is meant."""
        raise NotImplementedError(
            "It looks like you are trying to convert a non-quantizable LSTM module. Please, see torch.ao.nn.quantized.LSTM"
        )


def _observed(made: Any, training: bool) -> Any:
    """`made` with observers in its parts, or fake quantizations where it is trained."""
    from ...quantization import prepare, prepare_qat

    return prepare_qat(made, inplace=True) if training else prepare(made.eval(), inplace=True)


class MultiheadAttention(nn.MultiheadAttention):
    """`nn.MultiheadAttention` in operations that observers look at; see `nn.MultiheadAttention` for the arguments.

    The products with keys and values stay dense, between a `DeQuantStub` and a `QuantStub`.
    """

    _FLOAT_MODULE = nn.MultiheadAttention

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
        add_zero_attn: bool = False, kdim: int | None = None, vdim: int | None = None, batch_first: bool = False, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first, device, dtype)
        made = {"device": device, "dtype": dtype}
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias"):
            if name in self._parameters:
                self._parameters.pop(name)
        self.linear_Q = nn.Linear(embed_dim, embed_dim, bias=bias, **made)
        self.linear_K = nn.Linear(self.kdim, embed_dim, bias=bias, **made)
        self.linear_V = nn.Linear(self.vdim, embed_dim, bias=bias, **made)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias, **made)
        self.q_scaling_product = FloatFunctional()
        self.quant_attn_output, self.quant_attn_output_weights = QuantStub(), QuantStub()
        self.dequant_q, self.dequant_k, self.dequant_v = DeQuantStub(), DeQuantStub(), DeQuantStub()

    def _get_name(self) -> str:
        return "QuantizableMultiheadAttention"

    @classmethod
    def from_float(cls, other: Any) -> MultiheadAttention:
        """The layer of a `nn.MultiheadAttention` with a `qconfig`, whose parameters it takes."""
        if type(other) is not nn.MultiheadAttention or not hasattr(other, "qconfig"):
            raise AssertionError(f"quantizable.MultiheadAttention.from_float: needs one with a qconfig, got {type(other).__name__}")
        if other.bias_k is not None or other.add_zero_attn:
            raise NotImplementedError("quantizable.MultiheadAttention.from_float: add_bias_kv and add_zero_attn are not built")
        made = cls(
            other.embed_dim, other.num_heads, other.dropout, other.in_proj_bias is not None, kdim=other.kdim, vdim=other.vdim,
            batch_first=other.batch_first,
        )  # fmt: skip
        if other._qkv_same_embed_dim:
            weights = other.in_proj_weight.chunk(3, 0)
        else:
            weights = (other.q_proj_weight, other.k_proj_weight, other.v_proj_weight)
        biases = other.in_proj_bias.chunk(3, 0) if other.in_proj_bias is not None else (None, None, None)
        for linear, weight, bias in zip((made.linear_Q, made.linear_K, made.linear_V), weights, biases, strict=True):
            linear.weight, linear.bias = _parameter(weight), None if bias is None else _parameter(bias)
        made.out_proj.weight, made.out_proj.bias = other.out_proj.weight, other.out_proj.bias
        made.qconfig = other.qconfig
        made.train(other.training)
        return _observed(made, other.training)

    def dequantize(self) -> nn.MultiheadAttention:
        """The layer of `torch.nn` with the numbers that the quantized weights stand for."""
        made = nn.MultiheadAttention(
            self.embed_dim, self.num_heads, self.dropout, True, self.bias_k is not None, self.add_zero_attn, self.kdim, self.vdim,
            self.batch_first,
        )  # fmt: skip

        def numbers(linear: Any) -> tuple[Tensor, Tensor]:
            weight, bias = linear._weight_bias() if hasattr(linear, "_weight_bias") else (linear.weight, linear.bias)
            weight = weight.dequantize() if weight.is_quantized else weight
            return weight, fb.zeros(len(weight)) if bias is None else bias

        parts = [numbers(linear) for linear in (self.linear_Q, self.linear_K, self.linear_V)]
        if made._qkv_same_embed_dim:
            made.in_proj_weight = _parameter(fb.cat([w for w, _ in parts]))
        else:
            for name, (w, _) in zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), parts, strict=True):
                setattr(made, name, _parameter(w))
        made.in_proj_bias = _parameter(fb.cat([b for _, b in parts]))
        weight, bias = numbers(self.out_proj)
        made.out_proj.weight, made.out_proj.bias = _parameter(weight), _parameter(bias)
        return made

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None, need_weights: bool = True,
        attn_mask: Tensor | None = None, average_attn_weights: bool = True, is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """The attended values and the weights, as those of `nn.MultiheadAttention`."""
        if attn_mask is not None and is_causal:
            raise AssertionError("Only allow causal mask or attn_mask")
        if self.batch_first:
            query, key, value = (t.transpose(0, 1) for t in (query, key, value))
        steps, batch, _ = query.shape
        wide = self.embed_dim // self.num_heads
        q = self.q_scaling_product.mul_scalar(self.linear_Q(query), 1 / math.sqrt(wide))
        k, v = self.linear_K(key), self.linear_V(value)
        q, k, v = self.dequant_q(q), self.dequant_k(k), self.dequant_v(v)
        q, k, v = (t.reshape(t.shape[0], batch * self.num_heads, wide).transpose(0, 1) for t in (q, k, v))
        scores = fb.bmm(q, k.transpose(1, 2))
        if is_causal:
            attn_mask = fb.ones(steps, k.shape[1], dtype=fb.bool).triu(1)
        if attn_mask is not None:
            mask = attn_mask.unsqueeze(0) if attn_mask.ndim == 2 else attn_mask
            scores = scores.masked_fill(mask, float("-inf")) if mask.dtype is fb.bool else scores + mask
        if key_padding_mask is not None:
            hidden = key_padding_mask.reshape(batch, 1, 1, -1).expand(-1, self.num_heads, -1, -1).reshape(batch * self.num_heads, 1, -1)
            scores = scores.masked_fill(hidden, float("-inf")) if hidden.dtype is fb.bool else scores + hidden
        weights = F.dropout(F.softmax(scores, -1), self.dropout, self.training)
        out = fb.bmm(weights, v).transpose(0, 1).reshape(steps, batch, self.embed_dim)
        out = self.out_proj(self.quant_attn_output(out))
        if self.batch_first:
            out = out.transpose(0, 1)
        weights = self.quant_attn_output_weights(weights)
        if not need_weights:
            return out, None
        weights = weights.reshape(batch, self.num_heads, steps, -1)
        return out, weights.mean(1) if average_attn_weights else weights
