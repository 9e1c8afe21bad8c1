"""Recurrent layers and cells that compute in float32 with the numbers of quantized weights."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from .....nn import modules as nn
from .....tensor import Tensor
from ._weights import PER_CHANNEL, dequantized, quantized_weight

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNNBase", "RNNCell", "RNNCellBase", "get_quantized_weight"]

_UNTOLD = {"qscheme": fb.per_tensor_affine, "dtype": fb.quint8, "scale": 1.0, "zero_point": 0}


def get_quantized_weight(module: Any, wn: str) -> Tensor:
    """The weight `wn` of `module` quantized, by the scheme, dtype, scale, zero point and axis that the module has for it."""
    if not hasattr(module, wn):
        raise AssertionError(f"{type(module).__name__} has no weight {wn}")
    parameters = [getattr(module, f"{wn}_{what}") for what in ("qscheme", "dtype", "scale", "zero_point", "axis_int")]
    return quantized_weight(getattr(module, wn), *parameters)


class _Recurrent:
    """What layers and cells share: how each weight is quantized."""

    def _weights_of(self: Any) -> list[str]:
        return [name for name in self._parameters if name.startswith("weight")]

    def _init_weight_qparams_dict(self: Any, weight_qparams_dict: Any, device: Any = None) -> None:
        self.is_decomposed = weight_qparams_dict["is_decomposed"]
        for name, qparams in weight_qparams_dict.items():
            if name == "is_decomposed":
                continue
            setattr(self, f"{name}_qscheme", qparams["qscheme"])
            setattr(self, f"{name}_dtype", qparams["dtype"])
            if qparams["qscheme"] not in (None, fb.per_tensor_affine, *PER_CHANNEL):
                raise AssertionError(f"qscheme: {qparams['qscheme']} is not support in {self._get_name()}")
            if qparams["qscheme"] is None:
                continue
            for what, kind in (("scale", fb.float), ("zero_point", fb.int)):
                number = qparams[what]
                self.register_buffer(
                    f"{name}_{what}",
                    number.detach().clone() if isinstance(number, Tensor) else fb.tensor(number, dtype=kind, device=device),
                )
            axis = int(qparams["axis"]) if qparams["qscheme"] in PER_CHANNEL else 0
            self.register_buffer(f"{name}_axis", fb.tensor(axis, dtype=fb.int, device=device))
            setattr(self, f"{name}_axis_int", axis)

    def _quantized(self, name: str) -> Tensor:
        return get_quantized_weight(self, name)

    def _numbers(self, name: str) -> Tensor:
        return dequantized(self._quantized(name))

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}(Reference)"


class RNNCellBase(_Recurrent, nn.RNNCellBase):
    """The base of cells.

    Args:
        weight_qparams_dict: "weight_ih" and "weight_hh", each with "qscheme", "dtype", "scale", "zero_point" and, for scales per channel,
            "axis"; and "is_decomposed", a bool. By default a scale of 1 and a zero point of 0, in quint8.
    Raises: AssertionError for another number of entries.
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: Any = None,
        weight_qparams_dict: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, num_chunks, device=device, dtype=dtype)
        parameters = weight_qparams_dict or {"weight_ih": _UNTOLD, "weight_hh": _UNTOLD, "is_decomposed": False}
        if len(parameters) != 3:
            raise AssertionError(f"Expected length for weight_qparams_dict to be 3 for {self._get_name()}, got {len(parameters)}")
        self._init_weight_qparams_dict(parameters, device)

    def get_quantized_weight_ih(self) -> Tensor:
        """The weight of inputs, quantized."""
        return self._quantized("weight_ih")

    def get_quantized_weight_hh(self) -> Tensor:
        """The weight of states, quantized."""
        return self._quantized("weight_hh")

    def get_weight_ih(self) -> Tensor:
        """The numbers of the quantized weight of inputs."""
        return self._numbers("weight_ih")

    def get_weight_hh(self) -> Tensor:
        """The numbers of the quantized weight of states."""
        return self._numbers("weight_hh")

    def _weights_and_biases(self) -> tuple[Any, ...]:
        return self.get_weight_ih(), self.get_weight_hh(), self.bias_ih, self.bias_hh

    def _rows(self, input: Tensor, state: Any) -> tuple[Tensor, Any, bool]:
        """The input as rows, the states, by default 0, as rows, and whether there was one row alone, without a dimension for it."""
        if input.dim() not in (1, 2):
            raise AssertionError(f"{type(self).__name__}: Expected input to be 1-D or 2-D but received {input.dim()}-D tensor")
        alone = input.dim() == 1
        rows = input.unsqueeze(0) if alone else input
        if state is None:
            return rows, None, alone
        if isinstance(state, tuple):
            return rows, tuple(s.unsqueeze(0) if alone else s for s in state), alone
        return rows, state.unsqueeze(0) if alone else state, alone

    @classmethod
    def _from(cls, mod: Any, weight_qparams_dict: Any, *more: Any) -> Any:
        made = cls(
            mod.input_size, mod.hidden_size, mod.bias, *more, device=mod.weight_ih.device, dtype=mod.weight_ih.dtype,
            weight_qparams_dict=weight_qparams_dict,
        )  # fmt: skip
        for name, parameter in mod._parameters.items():
            setattr(made, name, parameter)
        return made

    @classmethod
    def from_float(cls, mod: Any, weight_qparams_dict: Any) -> Any:
        """The reference cell of a float one, whose parameters it takes; see the class for `weight_qparams_dict`."""
        return cls._from(mod, weight_qparams_dict)


class RNNCell(RNNCellBase):
    """`nn.RNNCell` with the numbers of quantized weights."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device: Any = None, dtype: Any = None,
        weight_qparams_dict: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, 1, device, dtype, weight_qparams_dict)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next state."""
        rows, state, alone = self._rows(input, hx)
        if state is None:
            state = rows.new_zeros(rows.shape[0], self.hidden_size)
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        function = fb.rnn_tanh_cell if self.nonlinearity == "tanh" else fb.rnn_relu_cell
        made = function(rows, state, *self._weights_and_biases())
        return made.squeeze(0) if alone else made

    @classmethod
    def from_float(cls, mod: Any, weight_qparams_dict: Any) -> Any:
        """The reference cell of a float one; see `RNNCellBase`."""
        return cls._from(mod, weight_qparams_dict, mod.nonlinearity)


class LSTMCell(RNNCellBase):
    """`nn.LSTMCell` with the numbers of quantized weights."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None,
        weight_qparams_dict: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, 4, device, dtype, weight_qparams_dict)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """The next hidden and cell state."""
        rows, state, alone = self._rows(input, hx)
        if state is None:
            zeros = rows.new_zeros(rows.shape[0], self.hidden_size)
            state = (zeros, zeros)
        made = fb.lstm_cell(rows, state, *self._weights_and_biases())
        return (made[0].squeeze(0), made[1].squeeze(0)) if alone else made


class GRUCell(RNNCellBase):
    """`nn.GRUCell` with the numbers of quantized weights."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None,
        weight_qparams_dict: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, 3, device, dtype, weight_qparams_dict)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next state."""
        rows, state, alone = self._rows(input, hx)
        if state is None:
            state = rows.new_zeros(rows.shape[0], self.hidden_size)
        made = fb.gru_cell(rows, state, *self._weights_and_biases())
        return made.squeeze(0) if alone else made


class RNNBase(_Recurrent, nn.RNNBase):
    """The base of layers; `weight_qparams_dict` has an entry for each weight, by its name in `nn.LSTM`, and "is_decomposed"."""

    def __init__(
        self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: Any = None, dtype: Any = None,
        weight_qparams_dict: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        nn.RNNBase.__init__(                          # not that of `nn.LSTM`, which gives the mode itself
            self, mode, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device, dtype
        )  # fmt: skip
        parameters = weight_qparams_dict or {**dict.fromkeys(self._weights_of(), _UNTOLD), "is_decomposed": False}
        self._init_weight_qparams_dict(parameters, device)

    def get_quantized_weight_bias_dict(self) -> dict[str, Tensor]:
        """The quantized weights and the biases, by name."""
        names = self._flat_weights_names
        return {name: self._quantized(name) if name.startswith("weight") else getattr(self, name) for name in names}

    def get_flat_weights(self) -> list[Tensor]:
        """The numbers of the quantized weights, and the biases, in the order of `nn.LSTM`."""
        return [self._numbers(name) if name.startswith("weight") else getattr(self, name) for name in self._flat_weights_names]

    @property
    def _flat_weights(self) -> list[Tensor]:
        """What the layer computes with."""
        return self.get_flat_weights()

    @classmethod
    def from_float(cls, mod: Any, weight_qparams_dict: Any) -> Any:
        """The reference layer of a float one, whose parameters it takes."""
        made = cls(
            mod.input_size, mod.hidden_size, mod.num_layers, mod.bias, mod.batch_first, mod.dropout, mod.bidirectional,
            weight_qparams_dict=weight_qparams_dict,
        )  # fmt: skip
        for name in mod._flat_weights_names:
            setattr(made, name, getattr(mod, name))
        return made


class LSTM(RNNBase, nn.LSTM):
    """`nn.LSTM` with the numbers of quantized weights."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        RNNBase.__init__(self, "LSTM", *args, **kwargs)


class GRU(RNNBase, nn.GRU):
    """`nn.GRU` with the numbers of quantized weights."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        RNNBase.__init__(self, "GRU", *args, **kwargs)
