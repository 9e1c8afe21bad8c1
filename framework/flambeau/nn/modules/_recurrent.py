"""The layers of a recurrent network, one after the other and in both directions; each is an op of `ops/layers/recurrent.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as fb

from ... import _state
from ...ops.layers.recurrent import State, Weights, run_direction, step
from .. import functional as F

__all__ = ["Weights", "as_operator", "run", "step", "weights_of"]

Tensor = fb.Tensor


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
        raise RuntimeError(f"{mode}: the sequence must have at least one step, got input {tuple(input.shape)}")
    directions = 2 if bidirectional else 1
    last: list[State] = []
    for layer in range(num_layers):
        outputs = []
        for direction in range(directions):
            place = layer * directions + direction
            state = tuple(s[place] for s in initial)
            output, state = run_direction(mode, input, batch_sizes, state, weights[place], direction == 1)
            outputs.append(output)
            last.append(state)
        input = fb.cat(outputs, -1) if bidirectional else outputs[0]
        if dropout and training and layer < num_layers - 1:
            input = F.dropout(input, dropout, True)
    return input, tuple(fb.stack(column) for column in zip(*last, strict=True))


def as_operator(name: str, args: tuple[Any, ...]) -> Any:
    """What an operator of PyTorch's gives that runs all layers, or a step, where exported programs have it whole; else NotImplemented.

    Args:
        name: of the operator, as in ``LSTM.input`` or ``GRU_cell``.
    """
    for interpreter in reversed(_state.local.calls.interpreters):
        packet, _, overload = name.lower().partition(".")
        result = interpreter.run_whole(getattr(getattr(fb.ops.aten, packet), overload or "default"), args)
        if result is not NotImplemented:
            return result
    return NotImplemented


def weights_of(flat: Sequence[Any], has_biases: bool, projected: bool) -> list[Weights]:
    """The flat list of a module's weights, grouped per layer and direction."""
    size = 2 + 2 * has_biases + projected
    groups = []
    for start in range(0, len(flat), size):
        w_ih, w_hh, *rest = flat[start : start + size]
        b_ih, b_hh = rest[:2] if has_biases else (None, None)
        groups.append(Weights(w_ih, w_hh, b_ih, b_hh, rest[-1] if projected else None))
    return groups
