"""Recurrent layers over sequences, and their cells for one step at a time."""

from __future__ import annotations

import math
import numbers
import warnings
from typing import Any

import flambeau as fb

from ... import _state
from .. import init
from ..parameter import Parameter
from ..utils.rnn import PackedSequence
from .module import Module

__all__ = ["RNNBase", "RNN", "LSTM", "GRU", "RNNCellBase", "RNNCell", "LSTMCell", "GRUCell"]

Tensor = fb.Tensor

_GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "GRU": 3, "LSTM": 4}


def apply_permutation(tensor: Tensor, permutation: Tensor, dim: int = 1) -> Tensor:
    """`tensor` with the indices along `dim` rearranged."""
    return tensor.index_select(dim, permutation)


def _is_under_autocast(input: Tensor) -> bool:
    return input.device.type != "meta" and fb.is_autocast_enabled(input.device.type)


class RNNBase(Module):
    """What RNN, LSTM and GRU share: arguments, weights, and running over padded or packed sequences.

    Args:
        mode: 'RNN_TANH', 'RNN_RELU', 'LSTM' or 'GRU'.
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional: as for `RNN`.
        proj_size: as for `LSTM`.
    Parameters, for layer k and with ``_reverse`` appended for the backward direction: ``weight_ih_lk`` (gates *
    hidden, input), ``weight_hh_lk`` (gates * hidden, out), ``bias_ih_lk``, ``bias_hh_lk``, and for a projected LSTM
    ``weight_hr_lk`` (proj_size, hidden). All are drawn uniformly from ``±1/sqrt(hidden_size)``.

    Raises: TypeError or ValueError for arguments out of range.
    """

    __constants__ = [
        "mode",
        "input_size",
        "hidden_size",
        "num_layers",
        "bias",
        "batch_first",
        "dropout",
        "bidirectional",
        "proj_size",
    ]

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(self._checked_dropout(dropout, num_layers))
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._check_sizes()
        self._make_weights({"device": device, "dtype": dtype})
        self.reset_parameters()

    def _checked_dropout(self, dropout: Any, num_layers: int) -> float:
        p: Any = dropout  # a type checker knows no order of numbers.Number
        if isinstance(dropout, bool) or not isinstance(dropout, numbers.Number) or not 0 <= p <= 1:
            raise ValueError(f"{self.mode}: dropout must be a probability between 0 and 1, got {dropout!r}")
        if p > 0 and num_layers == 1:
            warnings.warn(
                f"{self.mode}: dropout={dropout} acts between layers, so it does nothing with num_layers=1",
                stacklevel=5,
            )
        return p

    def _check_sizes(self) -> None:
        if self.mode not in _GATES:
            raise ValueError(f"unknown RNN mode {self.mode!r}; choose from {', '.join(_GATES)}")
        for name, kind in (
            ("input_size", int),
            ("hidden_size", int),
            ("num_layers", int),
            ("proj_size", int),
            ("bias", bool),
            ("batch_first", bool),
        ):
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{self.mode}: {name} must be {kind.__name__}, got {getattr(self, name)!r}")
        for name in ("input_size", "hidden_size", "num_layers"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{self.mode}: {name} must be > 0, got {getattr(self, name)}")
        if self.proj_size < 0:
            raise ValueError(f"{self.mode}: proj_size must be >= 0, got {self.proj_size}")
        if self.proj_size >= self.hidden_size:
            raise ValueError(f"{self.mode}: proj_size={self.proj_size} must be below hidden_size={self.hidden_size}")

    def _make_weights(self, options: dict[str, Any]) -> None:
        rows = _GATES[self.mode] * self.hidden_size
        out = self.proj_size or self.hidden_size
        directions = 2 if self.bidirectional else 1
        self._all_weights: list[list[str]] = []
        for layer in range(self.num_layers):
            columns = self.input_size if layer == 0 else out * directions
            shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, columns), "weight_hh": (rows, out)}
            if self.bias:
                shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
            if self.proj_size:
                shapes["weight_hr"] = (self.proj_size, self.hidden_size)
            for direction in range(directions):
                suffix = f"_l{layer}" + "_reverse" * direction
                for name, shape in shapes.items():
                    setattr(self, name + suffix, Parameter(fb.empty(shape, **options)))
                self._all_weights.append([name + suffix for name in shapes])

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Tensor]:
        return [getattr(self, name) for name in self._flat_weights_names]

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The weights per layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Does nothing: the weights need not lie in one block. PyTorch's code calls this for cuDNN."""

    def reset_parameters(self) -> None:
        """Draw new weights."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    # -- checking --------------------------------------------------------------------------------------------

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """Raises ValueError for a wrong dtype, RuntimeError for a wrong number of dimensions or features."""
        weight = getattr(self, self._all_weights[0][0])
        if not isinstance(weight, Tensor):
            raise TypeError(f"{self.mode}: {self._all_weights[0][0]} must be a Tensor, not {type(weight).__name__}")
        # Under autocast the products convert both.
        if input.dtype != weight.dtype and not (_state.IN_FORCE and _is_under_autocast(input)):
            raise ValueError(f"{self.mode}: input is {input.dtype}, the weights are {weight.dtype}; convert one with .to()")
        dims = 2 if batch_sizes is not None else 3
        if input.dim() != dims:
            raise RuntimeError(f"{self.mode}: input must have {dims} dimensions, got {tuple(input.shape)}")
        if input.size(-1) != self.input_size:
            raise RuntimeError(
                f"{self.mode}: input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.size(-1)}, "
                f"for input {tuple(input.shape)}"
            )

    def _state_size(self, input: Tensor, batch_sizes: Tensor | None, size: int) -> tuple[int, int, int]:
        if batch_sizes is not None:
            batch = int(batch_sizes[0])
        else:
            batch = input.size(0 if self.batch_first else 1)
        return self.num_layers * (2 if self.bidirectional else 1), batch, size

    def get_expected_hidden_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """The shape a hidden state must have: (layers * directions, batch, out)."""
        return self._state_size(input, batch_sizes, self.proj_size or self.hidden_size)

    def check_hidden_size(
        self,
        hx: Tensor,
        expected_hidden_size: tuple[int, int, int],
        msg: str = "Expected hidden size {}, got {}",
    ) -> None:
        """Raises RuntimeError unless `hx` has the expected shape."""
        if not isinstance(hx, Tensor):
            raise TypeError(f"{self.mode}: a hidden state must be a Tensor, not {type(hx).__name__}")
        if tuple(hx.shape) != tuple(expected_hidden_size):
            raise RuntimeError(f"{self.mode}: " + msg.format(expected_hidden_size, list(hx.shape)))

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """Raises as `check_input` and `check_hidden_size`."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """The state with its batch rearranged."""
        return hx if permutation is None else apply_permutation(hx, permutation)

    # -- running ---------------------------------------------------------------------------------------------

    def _initial_state(self, input: Tensor, batch_sizes: Tensor | None) -> Any:
        return fb.zeros(self.get_expected_hidden_size(input, batch_sizes), dtype=input.dtype, device=input.device)

    def _check_state_dims(self, hx: Any, dims: int, input_text: str) -> None:
        if hx.dim() != dims:
            raise RuntimeError(
                f"{self.mode}: for {input_text} input hx must have {dims} dimensions, got {hx.dim()}"
            )

    def _map_state(self, function: Any, hx: Any) -> Any:
        """`function` of the state; an LSTM overrides it, its state having two parts."""
        return function(hx)

    def forward(self, input: Any, hx: Any = None) -> Any:
        """Run over a sequence.

        Args:
            input: (T, N, input_size), or (N, T, input_size) with `batch_first`, or (T, input_size), or packed.
            hx: the initial state, (layers * directions, N, out), or without N; zero by default.
        Returns: the outputs of the last layer, shaped like the input with directions * out features, and the last
        state, shaped like `hx`.
        """
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        if input.dim() not in (2, 3):
            raise ValueError(f"{self.mode}: input must have 2 or 3 dimensions, got {tuple(input.shape)}")
        batched = input.dim() == 3
        batch_dim = 0 if self.batch_first else 1
        if hx is not None:
            text = "batched 3-D" if batched else "unbatched 2-D"
            self._map_state(lambda s: self._check_state_dims(s, input.dim(), text), hx)
        if not batched:
            input = input.unsqueeze(batch_dim)
            hx = None if hx is None else self._map_state(lambda s: s.unsqueeze(1), hx)
        if hx is None:
            hx = self._initial_state(input, None)
        self.check_forward_args(input, hx, None)
        output, hidden = self._run_padded(input, hx)
        if not batched:
            return output.squeeze(batch_dim), self._map_state(lambda s: s.squeeze(1), hidden)
        return output, hidden

    def _forward_packed(self, packed: PackedSequence, hx: Any) -> Any:
        data, batch_sizes, sorted_indices, unsorted_indices = packed
        if hx is None:
            hx = self._initial_state(data, batch_sizes)
        else:
            # Packing sorted the sequences by length; the state follows.
            hx = self.permute_hidden(hx, sorted_indices)
        self.check_forward_args(data, hx, batch_sizes)
        output, hidden = self._run(data, batch_sizes.tolist(), hx)
        return (
            PackedSequence(output, batch_sizes, sorted_indices, unsorted_indices),
            self.permute_hidden(hidden, unsorted_indices),
        )

    def _run_padded(self, input: Tensor, hx: Any) -> tuple[Tensor, Any]:
        if _state.IN_FORCE:
            from . import _recurrent

            given = (
                input, hx if isinstance(hx, Tensor) else list(hx), self._flat_weights, self.bias, self.num_layers, self.dropout,
                self.training, self.bidirectional, self.batch_first,
            )  # fmt: skip
            found = _recurrent.as_operator(f"{self.mode}.input", given)
            if found is not NotImplemented:
                output, *last = found
                return output, tuple(last) if isinstance(hx, tuple) else last[0]
        output, hidden = self._run(input.transpose(0, 1) if self.batch_first else input, None, hx)
        return output.transpose(0, 1) if self.batch_first else output, hidden

    def _run(self, input: Tensor, batch_sizes: list[int] | None, hx: Any) -> tuple[Tensor, Any]:
        from . import _recurrent  # with the op and its kernels, which few programs need

        state = hx if isinstance(hx, tuple) else (hx,)
        # By the names that there are: attributes may have been changed since.
        first = self._all_weights[0]
        weights = _recurrent.weights_of(self._flat_weights, len(first) > 3, len(first) % 2 == 1)
        self._check_weights(weights)
        output, last = _recurrent.run(
            self.mode,
            input,
            batch_sizes,
            state,
            weights,
            self.num_layers,
            self.dropout,
            self.training,
            self.bidirectional,
        )
        return output, last if isinstance(hx, tuple) else last[0]

    def _check_weights(self, weights: Any) -> None:
        """Raise unless there are weights for every layer and direction."""
        if not isinstance(self.mode, str) or self.mode not in _GATES:
            raise ValueError(f"unknown RNN mode {self.mode!r}; choose from {', '.join(_GATES)}")
        directions = 2 if self.bidirectional else 1
        if len(weights) != self.num_layers * directions:
            raise RuntimeError(
                f"{self.mode}: num_layers={self.num_layers} with {directions} direction{'s' * (directions - 1)} takes "
                f"{self.num_layers * directions} sets of weights, but the module has {len(weights)}"
            )
        for names, w in zip(self._all_weights, weights, strict=True):
            for name, t in ((names[0], w.w_ih), (names[1], w.w_hh)):
                if t is None:
                    raise TypeError(f"{self.mode}: {name} must be a Tensor, not NoneType")

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        if self.proj_size != 0:
            parts.append(f"proj_size={self.proj_size}")
        if self.num_layers != 1:
            parts.append(f"num_layers={self.num_layers}")
        if self.bias is not True:
            parts.append(f"bias={self.bias}")
        if self.batch_first is not False:
            parts.append(f"batch_first={self.batch_first}")
        if self.dropout != 0:
            parts.append(f"dropout={self.dropout}")
        if self.bidirectional is not False:
            parts.append(f"bidirectional={self.bidirectional}")
        return ", ".join(parts)


class RNN(RNNBase):
    """An Elman network: ``h' = tanh(W_ih x + b_ih + W_hh h + b_hh)``, or with the ReLU.

    Args:
        input_size, hidden_size: numbers of features.
        num_layers: how many layers, each reading the outputs of the one before.
        nonlinearity: ``'tanh'`` or ``'relu'``.
        bias: whether to learn biases.
        batch_first: whether the batch comes before the sequence in inputs and outputs, not in states.
        dropout: probability of dropping outputs between layers, in training.
        bidirectional: whether a second set of weights reads the sequence backwards.
    A call takes the input, ``(L, N, input_size)``, ``(L, input_size)`` or a `PackedSequence`, and a state
    ``(num_layers * directions, N, hidden_size)``, zeros by default; it returns the outputs
    ``(L, N, directions * hidden_size)`` and the last state.

    >>> outputs, state = nn.RNN(10, 20, num_layers=2)(fb.ones(5, 3, 10))
    >>> outputs.shape, state.shape
    (torch.Size([5, 3, 20]), torch.Size([2, 3, 20]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # nonlinearity stands fourth when given by position.
        if len(args) > 3:
            nonlinearity = args[3]
            args = args[:3] + args[4:]
        else:
            nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if "proj_size" in kwargs:
            raise ValueError("RNN: proj_size is for LSTM only")
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNN: nonlinearity must be 'tanh' or 'relu', got {nonlinearity!r}")
        super().__init__(f"RNN_{nonlinearity.upper()}", *args, **kwargs)
        self.nonlinearity = nonlinearity


class GRU(RNNBase):
    """Gated recurrent units. Arguments as `RNN`, without `nonlinearity`.

    ``r = sigmoid(W_ir x + b_ir + W_hr h + b_hr)``, ``z`` alike, ``n = tanh(W_in x + b_in + r * (W_hn h +
    b_hn))``, ``h' = (1 - z) * n + z * h``; weights hold r, z, n in this order.
    Source: Cho et al. 2014, arXiv:1406.1078, with the reset gate behind the product.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("GRU: proj_size is for LSTM only")
        super().__init__("GRU", *args, **kwargs)


class LSTM(RNNBase):
    """Long short-term memory. Arguments as `RNN`, without `nonlinearity`, and:

    Args:
        proj_size: if > 0, h is projected to this many features.

    The state is the pair of h and c, ``(layers * directions, N, out)`` and ``(layers * directions, N,
    hidden_size)``. ``i, f, o = sigmoid(...)`` and ``g = tanh(...)`` of ``W_ih x + b_ih + W_hh h + b_hh``;
    ``c' = f * c + i * g``, ``h' = o * tanh(c')``; weights hold i, f, g, o in this order.
    Source: Hochreiter & Schmidhuber 1997; projections Sak et al. 2014, arXiv:1402.1128.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def get_expected_cell_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """The shape a cell state must have: (layers * directions, batch, hidden_size)."""
        return self._state_size(input, batch_sizes, self.hidden_size)

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden[0], self.get_expected_hidden_size(input, batch_sizes), "Expected hidden[0] size {}, got {}")
        self.check_hidden_size(hidden[1], self.get_expected_cell_size(input, batch_sizes), "Expected hidden[1] size {}, got {}")

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        if permutation is None:
            return hx
        return tuple(apply_permutation(s, permutation) for s in hx)

    def _map_state(self, function: Any, hx: Any) -> Any:
        return tuple(function(s) for s in hx)

    def _initial_state(self, input: Tensor, batch_sizes: Tensor | None) -> Any:
        options = {"dtype": input.dtype, "device": input.device}
        return (
            fb.zeros(self.get_expected_hidden_size(input, batch_sizes), **options),
            fb.zeros(self.get_expected_cell_size(input, batch_sizes), **options),
        )

    def _run(self, input: Tensor, batch_sizes: list[int] | None, hx: Any) -> tuple[Tensor, Any]:
        return super()._run(input, batch_sizes, tuple(hx))


class RNNCellBase(Module):
    """What the cells share: arguments, weights, and one step.

    Args:
        input_size, hidden_size: numbers of features.
        bias: whether to learn `bias_ih` and `bias_hh`.
        num_chunks: gates; ``weight_ih`` is (gates * hidden_size, input_size), ``weight_hh`` (gates *
            hidden_size, hidden_size).
    All are drawn uniformly from ``±1/sqrt(hidden_size)``.
    """

    __constants__ = ["input_size", "hidden_size", "bias"]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        options = {"device": device, "dtype": dtype}
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(fb.empty((rows, input_size), **options))
        self.weight_hh = Parameter(fb.empty((rows, hidden_size), **options))
        self.register_parameter("bias_ih", Parameter(fb.empty(rows, **options)) if bias else None)
        self.register_parameter("bias_hh", Parameter(fb.empty(rows, **options)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights, uniformly from ``±1/sqrt(hidden_size)``."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _step(self, mode: str, input: Tensor, state: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
        """One step, with or without a batch dimension; a missing state is zero, two parts for an LSTM."""
        from . import _recurrent

        size = input.shape
        if len(size) != 2:
            return self._step_without_batch(mode, input, state)
        if state is None:
            zeros = fb.zeros(size[0], self.hidden_size, dtype=input.dtype, device=input.device)
            state = (zeros, zeros) if mode == "LSTM" else (zeros,)
        # Most calls fit; which part does not is looked for when one does not.
        if size[1] != self.input_size or any(part.shape != (size[0], self.hidden_size) for part in state):
            return self._step_without_batch(mode, input, state)
        weights = _recurrent.Weights(self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        if weights.w_ih is None or weights.w_hh is None:
            raise TypeError(f"{type(self).__name__}: weight_ih and weight_hh must be Tensors, not NoneType")
        if _state.IN_FORCE:
            hx = list(state) if mode == "LSTM" else state[0]
            found = _recurrent.as_operator(f"{mode}_cell", (input, hx, weights.w_ih, weights.w_hh, weights.b_ih, weights.b_hh))
            if found is not NotImplemented:
                return found if mode == "LSTM" else (found,)
        return _recurrent.step(mode, input, state, weights)

    def _step_without_batch(self, mode: str, input: Tensor, state: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
        """One step of a vector, where a state may have a batch dimension of its own. Raises: what shapes that do not fit raise."""
        name = type(self).__name__
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead: {tuple(input.shape)}")
        for i, part in enumerate(state or ()):
            if part.dim() not in (1, 2):
                raise ValueError(f"{name}: hx[{i}] must have 1 or 2 dimensions, got {tuple(part.shape)}")
        batched = input.dim() == 2
        rows = input if batched else input.unsqueeze(0)
        if state is not None and not batched:
            state = tuple(part.unsqueeze(0) if part.dim() == 1 else part for part in state)
        self._check_shapes(name, rows, state or ())
        made = self._step(mode, rows, state)
        return made if batched else tuple(part.squeeze(0) for part in made)

    def _check_shapes(self, name: str, input: Tensor, state: tuple[Tensor, ...]) -> None:
        if input.size(1) != self.input_size:
            raise RuntimeError(
                f"{name}: input has inconsistent input_size: got {input.size(1)} expected {self.input_size}, for input {tuple(input.shape)}"
            )
        for part in state:
            if tuple(part.shape) != (input.size(0), self.hidden_size):
                rows, wide = part.shape if part.dim() == 2 else (input.size(0), part.size(-1))
                wrong = f"Input batch size {input.size(0)} doesn't match hidden0 batch size {rows}"
                if rows == input.size(0):
                    wrong = f"hidden0 has inconsistent hidden_size: got {wide}, expected {self.hidden_size}"
                raise RuntimeError(
                    f"{name}: {wrong}: hx must be {(input.size(0), self.hidden_size)} for input {tuple(input.shape)}, "
                    f"got {tuple(part.shape)}"
                )

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            text += f", nonlinearity={self.nonlinearity}"
        return text


class RNNCell(RNNCellBase):
    """One step of an `RNN`: ``(N, input_size), (N, hidden_size) -> (N, hidden_size)``, or all without N.

    Args:
        nonlinearity: ``'tanh'`` or ``'relu'``.
    A call without a state starts from zeros.
    """

    __constants__ = ["input_size", "hidden_size", "bias", "nonlinearity"]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=1, device=device, dtype=dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"RNNCell: nonlinearity must be 'tanh' or 'relu', got {self.nonlinearity!r}")
        return self._step(f"RNN_{self.nonlinearity.upper()}", input, None if hx is None else (hx,))[0]


class LSTMCell(RNNCellBase):
    """One step of an `LSTM`: ``(N, input_size), ((N, hidden_size), (N, hidden_size)) -> (h', c')``.

    N may be left out. A call without a state starts from zeros.
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=4, device=device, dtype=dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        h, c = self._step("LSTM", input, None if hx is None else tuple(hx))
        return h, c


class GRUCell(RNNCellBase):
    """One step of a `GRU`: ``(N, input_size), (N, hidden_size) -> (N, hidden_size)``, or all without N."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=3, device=device, dtype=dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step("GRU", input, None if hx is None else (hx,))[0]
