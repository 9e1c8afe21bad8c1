"""Recurrent layers over sequences: a whole layer as one op where kernels take it, else composed of single steps.

A state is a tuple: ``(h,)`` for RNN and GRU, ``(h, c)`` for LSTM, each ``(batch, size)``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from flambeau_kernels.cpu import recurrent as kernels
from flambeau_kernels.vocabulary import sigmoid, tanh

from ... import _state
from ...tensor import Tensor
from .. import _dispatch
from .._promote import common, only
from .._spec import OPS, composite, describe, elementwise, gradients_of, primitive, whole_gradients

__all__ = ["Weights", "run_direction", "step"]

State = tuple[Tensor, ...]


class Weights(NamedTuple):
    """One layer, one direction. With gates G: w_ih (G * hidden, input), w_hh (G * hidden, out)."""

    w_ih: Tensor
    w_hh: Tensor
    b_ih: Tensor | None = None
    b_hh: Tensor | None = None
    w_hr: Tensor | None = None  # the projection of an LSTM


def run_direction(
    mode: str, input: Tensor, batch_sizes: Sequence[int] | None, state: State, w: Weights, backwards: bool
) -> tuple[Tensor, State]:
    """One layer in one direction: outputs shaped like the input, and the last state.

    Args:
        mode: 'RNN_TANH', 'RNN_RELU', 'GRU' or 'LSTM'.
        input: (T, batch, input), or packed (sum of batch sizes, input) with `batch_sizes`.
        backwards: from the last step to the first.
    Raises: RuntimeError for weights, states and batch sizes that do not go together.
    """
    if batch_sizes is None:
        _check_layer(mode, input, input.shape[1], state, w)
    else:
        batch_sizes = _checked_sizes(mode, tuple(batch_sizes), input.shape[0])
        _check_layer(mode, input, batch_sizes[0], state, w)
    if _state.transformed() and mode != "GRU" and w.w_hr is None:
        # As PyTorch has it: a GRU's state, and so its output, stays in float32.
        input, *lowered = _lowered((input, *state))
        state, w = tuple(lowered), Weights(*_lowered(w))
    if input._lacks_values and _is_looked_at((input, *state, *w)):
        return input.new_empty((*input.shape[:-1], state[0].shape[-1])), tuple([s.new_empty(s.shape) for s in state])
    made = _as_one_op(mode, input, batch_sizes, state, w, backwards)
    return _by_steps(mode, input, batch_sizes, state, w, backwards) if made is None else (made[0], made[1:])


def step(mode: str, input: Tensor, state: State, w: Weights) -> State:
    """The state after one more `input` (batch, input). Raises: RuntimeError as `run_direction`."""
    _check_layer(mode, input, input.shape[0], state, w)
    return STEPS[mode](_linear(input, w.w_ih, w.b_ih), state, w)


def _check_layer(mode: str, input: Tensor, batch: int, state: State, w: Weights) -> None:
    """Raise RuntimeError unless weights and states have the shapes that `input` and each other ask for.

    The weights of a module may be replaced by any others, and kernels follow their sizes.
    """
    count = 2 if mode == "LSTM" else 1
    if len(state) != count:
        raise RuntimeError(f"{mode}: expects {'two hidden states' if count == 2 else 'one hidden state'}, got {len(state)}")
    given, of_input, of_state = state[0].shape, w.w_ih.shape, w.w_hh.shape
    out = given[1] if len(given) == 2 else -1
    rows = of_input[0] if len(of_input) == 2 else -1
    hidden, gates = out if w.w_hr is None else state[1].shape[-1], kernels.GATES[mode]
    if (
        given == (batch, out) and rows == gates * hidden and of_input[1] == input.shape[-1] and of_state == (rows, out)
        and (count < 2 or state[1].shape == (batch, hidden)) and (w.w_hr is None or w.w_hr.shape == (out, hidden))
    ):  # fmt: skip
        return
    raise RuntimeError(
        f"{mode}: weights and states do not go together: with input features I and state features H "
        f"weight_ih is ({gates} * H, I), weight_hh ({gates} * H, H) and a state (batch, H); got\n"
        + describe(input=input, **{f"hx[{i}]": s for i, s in enumerate(state)}, **{n: t for n, t in _names(w) if t is not None})
    )


def _names(w: Weights) -> Any:
    return zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr"), w, strict=True)


@functools.lru_cache(256)
def _checked_sizes(mode: str, batch_sizes: tuple[int, ...], rows: int) -> tuple[int, ...]:
    """`batch_sizes` of packed sequences. Raises: RuntimeError unless they fall and add up to the `rows` of the data."""
    for at, n in enumerate(batch_sizes):
        if n.__class__ is not int:
            raise RuntimeError(f"{mode}: batch_sizes of a PackedSequence must be int64, got {n!r} at step {at}")
        if n < 0 or at and n > batch_sizes[at - 1]:
            raise RuntimeError(
                f"{mode}: batch_sizes of a PackedSequence must not grow or be negative, got {n} at step {at}"
                f"{f' after {batch_sizes[at - 1]}' if at else ''}"
            )
    if not batch_sizes or sum(batch_sizes) != rows:
        raise RuntimeError(
            f"{mode}: batch_sizes of a PackedSequence must add up to the {rows} rows of its data, they add up to {sum(batch_sizes)}"
        )
    return batch_sizes


def _is_looked_at(given: Any) -> bool:
    """Whether all that counts is how results look: fake tensors without a history, in what nobody records."""
    if not _state.INTERPRETED or any(x.kind != "fake" for x in _state.local.calls.interpreters):
        return False
    return not (_state.grad_enabled() and any(t is not None and t.requires_grad for t in given))


def _as_one_op(
    mode: str, input: Tensor, batch_sizes: Sequence[int] | None, state: State, w: Weights, backwards: bool
) -> tuple[Tensor, ...] | None:
    """Output and last state, where kernels take such a layer."""
    given = (input, *state, *w)
    is_recorded = _state.INTERPRETED and _dispatch.records_history(*given)
    if w.w_hr is not None or _state.INTERPRETED and not is_recorded and not _is_plain(given):
        return None
    rows = w.w_ih.shape[:1]
    if any(b is not None and b.shape != rows for b in (w.b_ih, w.b_hh)):
        return None                                   # one number for all gates, say
    arrays = [None if t is None else t._array for t in given]
    if not (kernels.fits(*arrays) if not input._lacks_values else not is_recorded or kernels.fits_looks(*arrays)):
        return None
    keep = _state.grad_enabled() and any(t is not None and t._node is not None for t in given)
    h, c = state if mode == "LSTM" else (*state, None)
    run = recurrent_layer.function if is_recorded else recurrent_layer.run
    return run(input, h, w.w_ih, w.w_hh, c, w.b_ih, w.b_hh, batch_sizes, mode, backwards, keep)


def _is_plain(given: Any) -> bool:
    """Whether nothing but autocast is in force for operands like these in this thread, and what others change nothing of."""
    calls = _state.local.calls
    others = [x for x in calls.interpreters if x.kind not in ("autocast", "profiler")]
    if calls.modes or not all(x.is_transparent for x in others):
        return False
    from .._dispatch import overriding_classes

    for interpreter in others:
        interpreter.settle()
    return not overriding_classes([t for t in given if t is not None])


def _lowered(given: Any) -> list[Any]:
    """Operands in autocast's lower precision, if it is on; weights as it has cast them before."""
    for caster in _state.local.calls.interpreters:
        if caster.kind == "autocast":
            given = [None if t is None else caster.lowered(t) for t in given]
    return list(given)


# -- one op --------------------------------------------------------------------------------------------------------------


def _check_sizes(input, h, w_ih, w_hh, c, b_ih, b_hh, batch_sizes, mode, backwards, keep):
    """Raise RuntimeError unless sizes fit: graphs hand in what they are given."""
    rows, hidden = w_hh._array.shape
    expected = [(w_ih, (rows, input._array.shape[-1]), "w_ih"), (h, (h._array.shape[0], hidden), "h")]
    expected += [(b, (rows,), name) for b, name in ((b_ih, "b_ih"), (b_hh, "b_hh")) if b is not None]
    expected += [] if c is None else [(c, h._array.shape, "c")]
    expected += [(h, (input._array.shape[1], hidden), "h")] if batch_sizes is None else []
    for tensor, shape, name in expected:
        if tensor._array.shape != shape:
            raise RuntimeError(f"recurrent_layer: {name} is expected to have the shape {tuple(shape)}, got {tuple(tensor._array.shape)}")
    if rows != {"LSTM": 4, "GRU": 3}.get(mode, 1) * hidden:
        raise RuntimeError(f"recurrent_layer: w_hh of {mode} cannot have the shape {(rows, hidden)}")


@primitive(
    surface=0, tensors=("input", "h", "w_ih", "w_hh", "c", "b_ih", "b_hh"), keeps=True, check=_check_sizes,
    samples=(
        "x(4, 2, 3), x(2, 5), x(20, 3), x(20, 5), x(2, 5), x(20), x(20), keep=True; "
        "x(4, 2, 3), x(2, 5), x(5, 3), x(5, 5), None, x(5), x(5), None, 'RNN_TANH', keep=True"
    ),
)
def recurrent_layer(
    input, h, w_ih, w_hh, c=None, b_ih=None, b_hh=None, batch_sizes=None, mode="LSTM", backwards=False, keep=False
):
    """One recurrent layer in one direction over whole sequences; see `run_direction`.

    ``(T, N, I), (N, H) -> (T, N, H), (N, H)``, for an LSTM with a `c` and its last value too.
    """


@recurrent_layer.in_pieces
def _layer_pieces(asked):
    """Sequences of equal length are independent; of packed ones the rows of a step lie among those of others."""
    if asked["batch_sizes"] is not None:
        return []
    steps, cell = "_b_,b_,__,__,b_,_,_", asked["c"] is not None
    return f"{steps}->_b_,b_{',b_' if cell else ''}"


@recurrent_layer.kernel
def _layer(x, h, w_ih, w_hh, c, b_ih, b_hh, batch_sizes, mode, backwards, keep):
    return kernels.run(x, h, c, w_ih, w_hh, b_ih, b_hh, batch_sizes, mode, backwards, keep)


@recurrent_layer.shape
def _layer_shape(input, h, w_ih, w_hh, c, *_):
    hidden = w_hh.shape[1]
    made = [((*input.shape[:-1], hidden), input.dtype), ((h.shape[0], hidden), input.dtype)]
    return made if c is None else [*made, made[1]]


@recurrent_layer.vjp
def _layer_vjp(grad, input, h, w_ih, w_hh, c, b_ih, b_hh, batch_sizes, mode, backwards):
    if _dispatch.takes_gradients_whole():
        return recurrent_layer_backward.function(
            *grad[:2], input, h, w_ih, w_hh, grad[2] if c is not None else None, c, b_ih, b_hh, batch_sizes, mode, backwards
        )
    given = (input, h, w_ih, w_hh, c, b_ih, b_hh)
    wanted = [t is not None and t.requires_grad for t in given]
    if not _dispatch.is_seen(input) and input._lacks_values:
        return [t.new_empty(t.shape) if want else None for t, want in zip(given, wanted, strict=True)]
    return _layer_vjp_by_steps(grad, given, batch_sizes, mode, backwards, wanted)


@recurrent_layer.vjp_on_arrays(of_all=True)
def _layer_vjp_on_arrays(grad, input, w_ih, w_hh, batch_sizes, mode, backwards, kept,
               needs_input, needs_w_ih, needs_w_hh, needs_b_ih, needs_b_hh):  # fmt: skip
    return kernels.run_grad(
        grad, input, w_ih, w_hh, batch_sizes, mode, backwards, kept, (needs_input, needs_w_ih, needs_w_hh, needs_b_ih, needs_b_hh)
    )


@composite(
    surface=0, one_node=True,
    samples=(
        "x(4, 2, 5), x(2, 5), x(4, 2, 3), x(2, 5), x(20, 3), x(20, 5), x(2, 5), x(2, 5), x(20), x(20); "
        "x(4, 2, 5), x(2, 5), x(4, 2, 3), x(2, 5), x(5, 3), x(5, 5), None, None, x(5), x(5), None, 'RNN_TANH'"
    ),
)
def recurrent_layer_backward(
    grad, grad_h, input, h, w_ih, w_hh, grad_c=None, c=None, b_ih=None, b_hh=None, batch_sizes: Sequence[int] | None = None, mode="LSTM",
    backwards=False,
):  # fmt: skip
    """The gradients of `recurrent_layer` by all its tensors, of those that are there."""
    given = (input, h, w_ih, w_hh, c, b_ih, b_hh)
    wanted = [t is not None for t in given]
    grads = (grad, grad_h) if c is None else (grad, grad_h, grad_c)
    return whole_gradients(
        lambda *given: recurrent_layer.run(*given, batch_sizes, mode, backwards, True),
        lambda: _layer_vjp_by_steps(grads, given, batch_sizes, mode, backwards, wanted),
        grads, given, wanted,
    )  # fmt: skip


@recurrent_layer_backward.batch
def _layer_backward_in_batch(level, op, args):
    return NotImplemented                             # one example after another: weights of their own make networks of their own


def _layer_vjp_by_steps(grad: Any, given: Any, batch_sizes: Any, mode: str, backwards: bool, wanted: Sequence[bool]) -> tuple[Any, ...]:
    """The gradient as something to differentiate again: that of the layer composed of steps."""
    return gradients_of(functools.partial(_composed, batch_sizes, mode, backwards), grad, given, wanted)


def _composed(
    batch_sizes: Any, mode: str, backwards: bool, input: Any, h: Any, w_ih: Any, w_hh: Any, c: Any, b_ih: Any, b_hh: Any
) -> tuple[Tensor, ...]:
    """Output and last state of the layer composed of steps."""
    output, last = _by_steps(mode, input, batch_sizes, (h,) if c is None else (h, c), Weights(w_ih, w_hh, b_ih, b_hh), backwards)
    return output, *last


# -- composed of steps ---------------------------------------------------------------------------------------------------


def _linear(x: Tensor, weight: Tensor, bias: Any = None) -> Tensor:
    return OPS["nn.functional.linear"].function(x, weight, bias)


def _tanh_step(from_input: Tensor, state: State, w: Weights) -> State:
    return ((from_input + _linear(state[0], w.w_hh, w.b_hh)).tanh(),)


def _relu_step(from_input: Tensor, state: State, w: Weights) -> State:
    return ((from_input + _linear(state[0], w.w_hh, w.b_hh)).relu(),)


@elementwise(
    surface=0,
    dtype=only("floating")(common),
    partials={
        "enter": lambda enter, fresh: sigmoid(enter) * (1 - sigmoid(enter)) * tanh(fresh),
        "forget": lambda forget, cell: sigmoid(forget) * (1 - sigmoid(forget)) * cell,
        "fresh": lambda enter, fresh: sigmoid(enter) * (1 - tanh(fresh) * tanh(fresh)),
        "cell": lambda forget: sigmoid(forget),
    },
)
def cell_after(enter, forget, fresh, cell):
    """The cell of an LSTM after a step, of its gates before their functions."""
    return sigmoid(forget) * cell + sigmoid(enter) * tanh(fresh)


@elementwise(
    surface=0,
    dtype=only("floating")(common),
    partials={
        "leave": lambda leave, cell: sigmoid(leave) * (1 - sigmoid(leave)) * tanh(cell),
        "cell": lambda leave, cell: sigmoid(leave) * (1 - tanh(cell) * tanh(cell)),
    },
)
def left_of_cell(leave, cell):
    """What an LSTM shows of its cell."""
    return sigmoid(leave) * tanh(cell)


def _lstm_step(from_input: Tensor, state: State, w: Weights) -> State:
    h, c = state
    gates = from_input + _linear(h, w.w_hh, w.b_hh)  # (batch, 4 * hidden)
    enter, forget, new, leave = gates.chunk(4, -1)
    if _state.are_seen() and not _dispatch.records_history(gates, c):  # by who is to see PyTorch's
        c = forget.sigmoid() * c + enter.sigmoid() * new.tanh()
        h = leave.sigmoid() * c.tanh()
    else:
        c = cell_after.function(enter, forget, new, c)
        h = left_of_cell.function(leave, c)
    return (h if w.w_hr is None else _linear(h, w.w_hr)), c


def _gru_step(from_input: Tensor, state: State, w: Weights) -> State:
    h = state[0]
    reset_x, update_x, new_x = from_input.chunk(3, -1)
    reset_h, update_h, new_h = _linear(h, w.w_hh, w.b_hh).chunk(3, -1)
    new = (new_x + (reset_x + reset_h).sigmoid() * new_h).tanh()
    return (new + (update_x + update_h).sigmoid() * (h - new),)


STEPS: dict[str, Callable[[Tensor, State, Weights], State]] = {
    "RNN_TANH": _tanh_step,
    "RNN_RELU": _relu_step,
    "LSTM": _lstm_step,
    "GRU": _gru_step,
}


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
    return outputs, tuple(_cat(column) for column in zip(*parts, strict=True)) if ended else state


def _along_growing(
    steps: Sequence[Tensor], state: State, advance: Callable[[Tensor, State], State]
) -> tuple[list, State]:
    """As `_along` for packed sequences read from their ends: shorter ones join in with their initial states."""
    outputs: list[Tensor] = []
    now = tuple(s[:0] for s in state)
    for x in reversed(steps):
        have, need = now[0].shape[0], x.shape[0]
        if need > have:
            now = tuple(_cat((n, s[have:need])) if have else s[:need] for n, s in zip(now, state, strict=True))
        now = advance(x, now)
        outputs.append(now[0])
    return outputs[::-1], now


def _cat(parts: Any) -> Tensor:
    return OPS["cat"].function(list(parts), 0)


def _by_steps(
    mode: str, input: Tensor, batch_sizes: Sequence[int] | None, state: State, w: Weights, backwards: bool
) -> tuple[Tensor, State]:
    """`run_direction` of single operations: under transforms and modes, for a projected LSTM, for second
    derivatives, on devices without values, and where nothing is compiled."""

    def advance(x: Tensor, state: State) -> State:
        return STEPS[mode](x, state, w)

    from_input = _linear(input, w.w_ih, w.b_ih)  # for all steps at once: one large product
    if batch_sizes is not None:
        steps = from_input.split(batch_sizes)
        outputs, state = (_along_growing if backwards else _along_shrinking)(steps, state, advance)
        return _cat(outputs), state
    steps = from_input.unbind(0)
    outputs, state = _along(steps[::-1] if backwards else steps, state, advance)
    return OPS["stack"].function(outputs[::-1] if backwards else outputs, 0), state
