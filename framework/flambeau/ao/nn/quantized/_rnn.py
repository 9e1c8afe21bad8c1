"""LSTM and multi-head attention that compute with integers, made of observed ones."""

from __future__ import annotations

from typing import Any

from .. import quantizable

__all__ = ["LSTM", "MultiheadAttention"]


class LSTM(quantizable.LSTM):
    """A quantized LSTM: `torch.ao.quantization.convert` makes it of an observed one."""

    def _get_name(self) -> str:
        return "QuantizedLSTM"

    @classmethod
    def from_float(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            "It looks like you are trying to convert a non-observed LSTM module. Please, see the examples on quantizable LSTMs."
        )

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        """The quantized layer of an observed one. Raises: AssertionError for another module."""
        if type(other) is not quantizable.LSTM:
            raise AssertionError(f"quantized.LSTM.from_observed: needs a quantizable.LSTM, got {type(other).__name__}")
        from ...quantization import convert

        made = convert(other, inplace=False, remove_qconfig=True)
        made.__class__ = cls
        for layer in made.layers:
            for part in ("layer_fw", "layer_bw"):
                cell = getattr(getattr(layer, part, None), "cell", None)
                if cell is not None:
                    cell.initial_hidden_state_qparams = cell.ogate_cy.scale, cell.ogate_cy.zero_point
                    cell.initial_cell_state_qparams = cell.fgate_cx_igate_cgate.scale, cell.fgate_cx_igate_cgate.zero_point
        return made


class MultiheadAttention(quantizable.MultiheadAttention):
    """A quantized multi-head attention: `torch.ao.quantization.convert` makes it of an observed one."""

    def _get_name(self) -> str:
        return "QuantizedMultiheadAttention"

    @classmethod
    def from_float(cls, other: Any) -> Any:
        raise NotImplementedError(
            "It looks like you are trying to convert a non-observed MHA module. Please, see the examples on quantizable MHAs."
        )

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        """The quantized layer of an observed one. Raises: AssertionError for another module."""
        if type(other) is not quantizable.MultiheadAttention:
            raise AssertionError(f"quantized.MultiheadAttention.from_observed: needs a quantizable one, got {type(other).__name__}")
        from ...quantization import convert

        made = convert(other, inplace=False, remove_qconfig=True)
        made.__class__ = cls
        return made
