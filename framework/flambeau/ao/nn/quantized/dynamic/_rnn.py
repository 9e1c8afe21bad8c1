"""Recurrent layers and cells whose weights are quantized; inputs and states are quantized when they run, results are dense."""

from __future__ import annotations

import warnings
from typing import Any

import flambeau as fb

from .....nn import Module
from .....nn import modules as float_modules
from .....nn.modules.rnn import apply_permutation
from .....nn.utils.rnn import PackedSequence
from .....tensor import Tensor
from .._base import quantize_weight
from ._linear import weighted

__all__ = ["GRU", "LSTM", "GRUCell", "LSTMCell", "PackedParameter", "RNNBase", "RNNCell", "RNNCellBase", "apply_permutation"]

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def _quantized(weight: Tensor, config: Any, dtype: Any) -> Tensor:
    """`weight` in `dtype`, by the observer of weights of `config`."""
    if dtype is fb.float16:
        return weight.detach().half()
    observer = config.weight()
    observer(weight)
    return quantize_weight(weight, observer)


def _config_of(cls: Any, mod: Any) -> Any:
    """The `qconfig` of `mod`. Raises: AssertionError for another layer than `cls` is made from, or one without it."""
    if type(mod) is not cls.float_class:
        raise AssertionError(f"nn.quantized.dynamic.{cls.__name__}.from_float only works for {cls.float_class.__name__}")
    config = getattr(mod, "qconfig", None)
    if config is None:
        raise AssertionError("Input float module must have qconfig defined")
    return config


def _stepped(mode: str, from_input: Tensor, from_state: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The next state, the hidden one first, from what the input and the last hidden state give to the gates."""
    if mode == "LSTM":
        into, keep, new, out = (from_input + from_state).chunk(4, -1)
        cell = keep.sigmoid() * state[1] + into.sigmoid() * new.tanh()
        return out.sigmoid() * cell.tanh(), cell
    if mode == "GRU":
        (ri, zi, ni), (rh, zh, nh) = from_input.chunk(3, -1), from_state.chunk(3, -1)
        reset, keep = (ri + rh).sigmoid(), (zi + zh).sigmoid()
        new = (ni + reset * nh).tanh()
        return ((state[0] - new) * keep + new,)
    total = from_input + from_state
    return (total.tanh() if mode == "RNN_TANH" else total.relu(),)


class PackedParameter(Module):
    """The weights and biases of one direction of one layer, an entry of `state_dict`."""

    def __init__(self, param: Any) -> None:
        super().__init__()
        self.__dict__["param"] = tuple(param)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "param"] = self.__dict__["param"]

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing_keys: Any, unexpected_keys: Any, error_msgs: Any
    ) -> None:
        if prefix + "param" in state_dict:
            self.__dict__["param"] = tuple(state_dict[prefix + "param"])
        elif strict:
            missing_keys.append(prefix + "param")


class RNNBase(Module):
    """The base of recurrent layers with quantized weights; see `nn.LSTM` for the arguments.

    Args:
        dtype: of the weights: `qint8` or `float16`.
    """

    _version = 2
    float_class: Any = None

    def __init__(
        self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, dtype: Any = fb.qint8,
    ) -> None:  # fmt: skip
        super().__init__()
        if not 0 <= dropout <= 1 or isinstance(dropout, bool):
            raise ValueError(
                f"dropout should be a number in range [0, 1] representing the probability of an element being zeroed: {dropout}"
            )
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers greater than 1, "
                f"but got dropout={dropout} and num_layers={num_layers}", stacklevel=3,
            )  # fmt: skip
        if dtype not in (fb.qint8, fb.float16):
            raise RuntimeError(f"Unsupported dtype: {dtype}; use qint8 or float16")
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, float(dropout), bidirectional
        self.dtype, self.training = dtype, False
        wide = _GATES[mode] * hidden_size
        made = []
        for layer in range(num_layers):
            for _ in range(2 if bidirectional else 1):
                entering = input_size if layer == 0 else hidden_size * (2 if bidirectional else 1)
                weights = [fb.randn(wide, entering), fb.randn(wide, hidden_size)]
                kept = [
                    w.half() if dtype is fb.float16 else fb.quantize_per_tensor(w, 0.1, 0, fb.qint8) for w in weights
                ]  # fmt: skip
                made.append(PackedParameter((*kept, *(fb.randn(wide) if bias else None for _ in range(2)))))
        self._all_weight_values = fb.nn.ModuleList(made)

    def _get_name(self) -> str:
        return f"DynamicQuantized{type(self).__name__}"

    def extra_repr(self) -> str:
        parts = f"{self.input_size}, {self.hidden_size}"
        for name, default in (("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0), ("bidirectional", False)):
            if getattr(self, name) != default:
                parts += f", {name}={getattr(self, name)}"
        return parts

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"

    def _entries(self) -> list[tuple[str, Any]]:
        """The name's end of each direction of each layer, and its weights and biases."""
        ends = [f"l{layer}{end}" for layer in range(self.num_layers) for end in (("", "_reverse") if self.bidirectional else ("",))]
        return list(zip(ends, self._all_weight_values, strict=True))

    def get_weight(self) -> dict[str, Tensor]:
        """The quantized weights, by the names of `nn.LSTM`."""
        return {f"weight_{what}_{end}": kept.param[i] for end, kept in self._entries() for i, what in enumerate(("ih", "hh"))}

    def get_bias(self) -> dict[str, Tensor]:
        """The biases, by the names of `nn.LSTM`."""
        return {f"bias_{what}_{end}": kept.param[2 + i] for end, kept in self._entries() for i, what in enumerate(("ih", "hh"))}

    def set_weight_bias(self, weight_bias_dict: dict[str, Tensor]) -> None:
        """Give the layer quantized weights and biases, by the names of `nn.LSTM`."""
        for end, kept in self._entries():
            names = [f"{kind}_{what}_{end}" for kind in ("weight", "bias") for what in ("ih", "hh")]
            kept.__dict__["param"] = tuple(weight_bias_dict.get(name) for name in names)

    def _run(self, input: Any, state: tuple[Tensor, ...] | None) -> tuple[Any, tuple[Tensor, ...]]:
        packed = isinstance(input, PackedSequence)
        if packed:
            data, sizes, order, back = input.data, input.batch_sizes.tolist(), input.sorted_indices, input.unsorted_indices
        else:
            if input.dim() != 3:
                raise RuntimeError(f"input must have 3 dimensions, got {input.dim()}")
            steps = input.transpose(0, 1) if self.batch_first else input
            data, sizes, order, back = steps.flatten(0, 1), [steps.shape[1]] * steps.shape[0], None, None
        if data.shape[-1] != self.input_size:
            raise RuntimeError(f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {data.shape[-1]}")
        batch, rows = max(sizes, default=0), self.num_layers * (2 if self.bidirectional else 1)
        shape = (rows, batch, self.hidden_size)
        parts = 2 if self.mode == "LSTM" else 1
        if state is None:
            state = tuple(data.new_zeros(shape, dtype=fb.float32) for _ in range(parts))
        elif order is not None:
            state = tuple(s.index_select(1, order) for s in state)
        for s in state:
            if tuple(s.shape) != shape:
                raise RuntimeError(f"Expected hidden size {shape}, got {tuple(s.shape)}")
        last = []
        for layer in range(self.num_layers):
            if layer and self.dropout and self.training:
                data = fb.dropout(data, self.dropout, True)
            made = []
            for reverse in range(2 if self.bidirectional else 1):
                at = layer * (2 if self.bidirectional else 1) + reverse
                out, ended = self._directed(data, sizes, tuple(s[at] for s in state), self._all_weight_values[at].param, bool(reverse))
                made.append(out)
                last.append(ended)
            data = made[0] if len(made) == 1 else fb.cat(made, -1)
        ended = tuple(fb.stack([s[i] for s in last]) for i in range(parts))
        if packed:
            if back is not None:
                ended = tuple(s.index_select(1, back) for s in ended)
            return PackedSequence(data, input.batch_sizes, input.sorted_indices, input.unsorted_indices), ended
        out = data.reshape(len(sizes), batch, -1)
        return out.transpose(0, 1) if self.batch_first else out, ended

    def _directed(
        self, data: Tensor, sizes: list[int], state: tuple[Tensor, ...], params: tuple[Any, ...], reverse: bool
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """One direction of a layer over steps of `sizes` rows each: the results by rows of `data`, and the last state."""
        into, onto, into_bias, onto_bias = params
        entering = weighted(data, into, into_bias)
        starts = [0]
        for n in sizes:
            starts.append(starts[-1] + n)
        outs: list[Any] = [None] * len(sizes)
        current = state
        for t in reversed(range(len(sizes))) if reverse else range(len(sizes)):
            n = sizes[t]
            now = tuple(s[:n] for s in current)
            now = _stepped(self.mode, entering[starts[t] : starts[t + 1]], weighted(now[0], onto, onto_bias), now)
            outs[t] = now[0]
            current = tuple(fb.cat([new, old[n:]]) if n < len(old) else new for new, old in zip(now, current, strict=True))
        return (fb.cat(outs) if outs else data.new_zeros(0, self.hidden_size)), current

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of one of `torch.nn` with a `qconfig`. Raises: AssertionError for another layer, or one without it."""
        config = _config_of(cls, mod)
        kind = config.weight().dtype
        made = cls(mod.input_size, mod.hidden_size, mod.num_layers, mod.bias, mod.batch_first, mod.dropout, mod.bidirectional, dtype=kind)
        given: dict[str, Any] = {}
        for end, _ in made._entries():
            for what in ("ih", "hh"):
                given[f"weight_{what}_{end}"] = _quantized(getattr(mod, f"weight_{what}_{end}"), config, kind)
                if mod.bias:
                    given[f"bias_{what}_{end}"] = getattr(mod, f"bias_{what}_{end}")
        made.set_weight_bias(given)
        return made


class LSTM(RNNBase):
    """`nn.LSTM` with quantized weights.

    >>> layer = fb.ao.nn.quantized.dynamic.LSTM(10, 20, 2)
    >>> out, (h, c) = layer(fb.randn(5, 3, 10))
    >>> out.shape, h.shape
    (torch.Size([5, 3, 20]), torch.Size([2, 3, 20]))
    """

    float_class = float_modules.LSTM

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def forward(self, input: Any, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Any, tuple[Tensor, Tensor]]:
        """Results and last states, as those of `nn.LSTM`."""
        return self._run(input, hx)  # type: ignore[return-value]


class GRU(RNNBase):
    """`nn.GRU` with quantized weights.

    >>> out, h = fb.ao.nn.quantized.dynamic.GRU(10, 20)(fb.randn(5, 3, 10))
    >>> out.shape, h.shape
    (torch.Size([5, 3, 20]), torch.Size([1, 3, 20]))
    """

    float_class = float_modules.GRU

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("GRU", *args, **kwargs)

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        """Results and last states, as those of `nn.GRU`."""
        out, state = self._run(input, None if hx is None else (hx,))
        return out, state[0]


# -- cells ------------------------------------------------------------------------------------------------------------------


class RNNCellBase(Module):
    """The base of cells with quantized weights.

    Args:
        input_size, hidden_size: sizes of the last dimension of the input and the state.
        bias: whether there are biases.
        num_chunks: how many gates.
        dtype: of the weights: `qint8` or `float16`.
    """

    mode = ""
    float_class: Any = None

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, num_chunks: int = 4, dtype: Any = fb.qint8) -> None:
        super().__init__()
        if dtype not in (fb.qint8, fb.float16):
            raise RuntimeError(f"Unsupported dtype: {dtype}; use qint8 or float16")
        self.input_size, self.hidden_size, self.bias, self.weight_dtype = input_size, hidden_size, bias, dtype
        wide = num_chunks * hidden_size
        kept = {}
        for what, size in (("ih", input_size), ("hh", hidden_size)):
            w = fb.randn(wide, size)
            kept[f"weight_{what}"] = w.half() if dtype is fb.float16 else fb.quantize_per_tensor(w, 0.1, 0, fb.qint8)
            kept[f"bias_{what}"] = fb.randn(wide) if bias else None
        self.set_weight_bias(kept)

    def _get_name(self) -> str:
        return f"DynamicQuantized{type(self).__name__}"

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")

    def set_weight_bias(self, weight_bias_dict: dict[str, Any]) -> None:
        """Give the cell quantized weights and biases: "weight_ih", "weight_hh", "bias_ih", "bias_hh"."""
        self.__dict__["_kept"] = dict(weight_bias_dict)

    def get_weight(self) -> dict[str, Tensor]:
        """The quantized weights, "weight_ih" and "weight_hh"."""
        return {name: self.__dict__["_kept"][name] for name in ("weight_ih", "weight_hh")}

    def get_bias(self) -> dict[str, Tensor | None]:
        """The biases, "bias_ih" and "bias_hh"."""
        return {name: self.__dict__["_kept"].get(name) for name in ("bias_ih", "bias_hh")}

    def check_forward_input(self, input: Tensor) -> None:
        """Raise RuntimeError for an input of another size."""
        if input.shape[-1] != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {input.shape[-1]}, expected {self.input_size}")

    def check_forward_hidden(self, input: Tensor, hx: Tensor, hidden_label: str = "") -> None:
        """Raise RuntimeError for a state that does not fit the input."""
        if input.shape[0] != hx.shape[0]:
            raise RuntimeError(f"Input batch size {input.shape[0]} doesn't match hidden{hidden_label} batch size {hx.shape[0]}")
        if hx.shape[1] != self.hidden_size:
            raise RuntimeError(f"hidden{hidden_label} has inconsistent hidden_size: got {hx.shape[1]}, expected {self.hidden_size}")

    def _next(self, input: Tensor, state: Any) -> Any:
        self.check_forward_input(input)
        for i, s in enumerate(state):
            self.check_forward_hidden(input, s, f"[{i}]" if len(state) > 1 else "")
        kept = self.__dict__["_kept"]
        entering = weighted(input, kept["weight_ih"], kept.get("bias_ih"))
        return _stepped(self.mode, entering, weighted(state[0], kept["weight_hh"], kept.get("bias_hh")), state)

    def _start(self, input: Tensor) -> Tensor:
        return input.new_zeros(input.shape[0], self.hidden_size)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        kept = self.__dict__["_kept"]
        for what in ("ih", "hh"):
            destination[f"{prefix}_packed_weight_{what}"] = (kept[f"weight_{what}"], kept.get(f"bias_{what}"))

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing_keys: Any, unexpected_keys: Any, error_msgs: Any
    ) -> None:
        given = {}
        for what in ("ih", "hh"):
            name = f"{prefix}_packed_weight_{what}"
            if name in state_dict:
                given[f"weight_{what}"], given[f"bias_{what}"] = state_dict[name]
            elif strict:
                missing_keys.append(name)
        if len(given) == 4:
            self.set_weight_bias(given)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The cell of one of `torch.nn` with a `qconfig`. Raises: AssertionError for another cell, or one without it."""
        config = _config_of(cls, mod)
        kind = config.weight().dtype
        given = {"nonlinearity": mod.nonlinearity} if hasattr(mod, "nonlinearity") else {}
        made = cls(mod.input_size, mod.hidden_size, mod.bias, dtype=kind, **given)
        kept: dict[str, Any] = {}
        for what in ("ih", "hh"):
            kept[f"weight_{what}"] = _quantized(getattr(mod, f"weight_{what}"), config, kind)
            kept[f"bias_{what}"] = getattr(mod, f"bias_{what}") if mod.bias else None
        made.set_weight_bias(kept)
        return made


class RNNCell(RNNCellBase):
    """`nn.RNNCell` with quantized weights.

    Args:
        nonlinearity: "tanh" or "relu".
    """

    float_class = float_modules.RNNCell

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", dtype: Any = fb.qint8) -> None:
        super().__init__(input_size, hidden_size, bias, 1, dtype)
        if nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {nonlinearity}")
        self.nonlinearity = nonlinearity
        self.mode = "RNN_TANH" if nonlinearity == "tanh" else "RNN_RELU"

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next state."""
        return self._next(input, (self._start(input) if hx is None else hx,))[0]


class LSTMCell(RNNCellBase):
    """`nn.LSTMCell` with quantized weights."""

    mode = "LSTM"
    float_class = float_modules.LSTMCell

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, num_chunks=4, **kwargs)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """The next hidden and cell state."""
        return self._next(input, (self._start(input), self._start(input)) if hx is None else hx)


class GRUCell(RNNCellBase):
    """`nn.GRUCell` with quantized weights."""

    mode = "GRU"
    float_class = float_modules.GRUCell

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, dtype: Any = fb.qint8) -> None:
        super().__init__(input_size, hidden_size, bias, 3, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next state."""
        return self._next(input, (self._start(input) if hx is None else hx,))[0]
