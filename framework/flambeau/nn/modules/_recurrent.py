"""The arithmetic of recurrent layers: one step of each kind of cell, and running it along a sequence.

A state is a tuple: ``(h,)`` for RNN and GRU, ``(h, c)`` for LSTM, each ``(batch, size)``. Weights of one
    layer and
direction come in the order w_ih, w_hh, then, if there are any, b_ih, b_hh, and w_hr, the projection of an
LSTM.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flambeau as fb

from .. import functional as F

Tensor = fb.Tensor
State = tuple[Tensor, ...]


class Weights(NamedTuple):
    """One layer, one direction. With gates G: w_ih (G * hidden, input), w_hh (G * hidden, out)."""

    w_ih: Tensor
    w_hh: Tensor
    b_ih: Tensor | None = None
    b_hh: Tensor | None = None
    w_hr: Tensor | None = None


def _tanh_step(from_input: Tensor, state: State, w: Weights) -> State:
    return (fb.tanh(from_input + F.linear(state[0], w.w_hh, w.b_hh)),)


def _relu_step(from_input: Tensor, state: State, w: Weights) -> State:
    return (fb.relu(from_input + F.linear(state[0], w.w_hh, w.b_hh)),)


def _lstm_step(from_input: Tensor, state: State, w: Weights) -> State:
    h, c = state
    gates = from_input + F.linear(h, w.w_hh, w.b_hh)  # (batch, 4 * hidden)
    enter, forget, new, leave = gates.chunk(4, -1)
    c = fb.sigmoid(forget) * c + fb.sigmoid(enter) * fb.tanh(new)
    h = fb.sigmoid(leave) * fb.tanh(c)
    return (h if w.w_hr is None else F.linear(h, w.w_hr)), c


def _gru_step(from_input: Tensor, state: State, w: Weights) -> State:
    h = state[0]
    reset_x, update_x, new_x = from_input.chunk(3, -1)
    reset_h, update_h, new_h = F.linear(h, w.w_hh, w.b_hh).chunk(3, -1)
    new = fb.tanh(new_x + fb.sigmoid(reset_x + reset_h) * new_h)
    return (new + fb.sigmoid(update_x + update_h) * (h - new),)


STEPS: dict[str, Callable[[Tensor, State, Weights], State]] = {
    "RNN_TANH": _tanh_step,
    "RNN_RELU": _relu_step,
    "LSTM": _lstm_step,
    "GRU": _gru_step,
}


def step(mode: str, input: Tensor, state: State, w: Weights) -> State:
    """The state after one more `input` (batch, input)."""
    return STEPS[mode](F.linear(input, w.w_ih, w.b_ih), state, w)


def _along(
    steps: Sequence[Tensor], state: State, advance: Callable[[Tensor, State], State]
) -> tuple[list, State]:
    """Outputs after each step, and the last state, when every step has the whole batch."""
    outputs = []
    for x in steps:
        state = advance(x, state)
        outputs.append(state[0])
    return outputs, state


def _along_shrinking(
    steps: Sequence[Tensor], state: State, advance: Callable[[Tensor, State], State]
) -> tuple[list, State]:
    """As `_along` for packed sequences: each step has the sequences that go on, which come first."""
    outputs, ended = [], []
    for x in steps:
        going_on = x.shape[0]
        if going_on < state[0].shape[0]:
            ended.append(tuple(s[going_on:] for s in state))
            state = tuple(s[:going_on] for s in state)
        state = advance(x, state)
        outputs.append(state[0])
    # The sequence that ended first is the last of the batch.
    parts = [state, *reversed(ended)]
    return outputs, tuple(fb.cat(column) for column in zip(*parts, strict=True)) if ended else state


def _along_growing(
    steps: Sequence[Tensor], state: State, advance: Callable[[Tensor, State], State]
) -> tuple[list, State]:
    """As `_along` for packed sequences read from their ends: shorter ones join in with their initial
    states."""
    outputs: list[Tensor] = []
    now = tuple(s[:0] for s in state)
    for x in reversed(steps):
        have, need = now[0].shape[0], x.shape[0]
        if need > have:
            now = tuple(
                fb.cat((n, s[have:need])) if have else s[:need] for n, s in zip(now, state, strict=True)
            )
        now = advance(x, now)
        outputs.append(now[0])
    return outputs[::-1], now


def _run_direction(
    mode: str, input: Tensor, batch_sizes: list[int] | None, state: State, w: Weights, backwards: bool
) -> tuple[Tensor, State]:
    """One layer in one direction: outputs shaped like the input, and the last state."""

    def advance(x: Tensor, state: State) -> State:
        return STEPS[mode](x, state, w)

    from_input = F.linear(input, w.w_ih, w.b_ih)  # for all steps at once: one large product
    if batch_sizes is not None:
        steps = from_input.split(batch_sizes)
        outputs, state = (_along_growing if backwards else _along_shrinking)(steps, state, advance)
        return fb.cat(outputs), state
    steps = from_input.unbind(0)
    outputs, state = _along(steps[::-1] if backwards else steps, state, advance)
    return fb.stack(outputs[::-1] if backwards else outputs), state


def run(
    mode: str,
    input: Tensor,
    batch_sizes: list[int] | None,
    initial: State,
    weights: Sequence[Weights],
    num_layers: int,
    dropout: float,
    training: bool,
    bidirectional: bool,
) -> tuple[Tensor, State]:
    """All layers of a recurrent network.

    Args:
        input: (T, batch, input), or packed (sum of batch sizes, input).
        batch_sizes: of the packed steps, falling; None if not packed.
        initial: states stacked over layers and directions, (layers * directions, batch, size) each.
        weights: per layer, and per direction inside it.
        dropout: probability for the outputs of every layer but the last, in training.
    Returns: outputs (T, batch, directions * out), or packed, and the last states, stacked like `initial`.
    """
    if batch_sizes is None and input.shape[0] == 0:
        raise RuntimeError(
            f"{mode}: the sequence must have at least one step, got input {tuple(input.shape)}"
        )
    directions = 2 if bidirectional else 1
    last: list[State] = []
    for layer in range(num_layers):
        outputs = []
        for direction in range(directions):
            place = layer * directions + direction
            output, state = _run_direction(
                mode, input, batch_sizes, tuple(s[place] for s in initial), weights[place], direction == 1
            )
            outputs.append(output)
            last.append(state)
        input = fb.cat(outputs, -1) if bidirectional else outputs[0]
        if dropout and training and layer < num_layers - 1:
            input = F.dropout(input, dropout, True)
    return input, tuple(fb.stack(column) for column in zip(*last, strict=True))


def weights_of(flat: Sequence[Any], has_biases: bool, projected: bool) -> list[Weights]:
    """The flat list of a module's weights, grouped per layer and direction."""
    size = 2 + 2 * has_biases + projected
    groups = []
    for start in range(0, len(flat), size):
        w_ih, w_hh, *rest = flat[start : start + size]
        b_ih, b_hh = rest[:2] if has_biases else (None, None)
        groups.append(Weights(w_ih, w_hh, b_ih, b_hh, rest[-1] if projected else None))
    return groups
