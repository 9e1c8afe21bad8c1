"""Recurrent layers: a node for each layer, which runs both directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .._control_flow import repeat
from .._graph import Graph, Value
from ..errors import OnnxExporterError
from ._table import translates

__all__: list[str] = []


class _Kind(NamedTuple):
    """A recurrent layer in ONNX."""

    node: str
    gates: tuple[int, ...]                            # where ONNX's gates stand among PyTorch's
    activations: tuple[str, ...] = ()                 # where they are not the node's own
    states: int = 1


_KINDS = {
    "lstm": _Kind("LSTM", (0, 3, 1, 2), states=2),    # input, output, forget, cell of ONNX; PyTorch has input, forget, cell, output
    "gru": _Kind("GRU", (1, 0, 2)),                   # update, reset, new of ONNX; PyTorch has reset, update, new
    "rnn_tanh": _Kind("RNN", (0,), ("Tanh",)),
    "rnn_relu": _Kind("RNN", (0,), ("Relu",)),
}


def _layers(name: str) -> Callable[..., tuple[Value, ...]]:
    kind = _KINDS[name]

    def translate(
        g: Graph, input: Value, hx: Any, params: Sequence[Value], has_biases: bool, num_layers: int, dropout: float, train: bool,
        bidirectional: bool, batch_first: bool,
    ) -> tuple[Value, ...]:  # fmt: skip
        if dropout and train and num_layers > 1:
            raise OnnxExporterError("dropout between recurrent layers is not built: export the model in eval mode")
        states = list(hx) if isinstance(hx, (list, tuple)) and not isinstance(hx, Value) else [hx]
        directions = 2 if bidirectional else 1
        each = len(params) // (num_layers * directions)
        projected = each == 3 + 2 * has_biases
        x = g.transpose(input, [1, 0, 2]) if batch_first else input  # (steps, batch, features), as runtimes have it
        last: list[list[Value]] = [[] for _ in states]
        run = _projected_layer if projected else _layer
        for layer in range(num_layers):
            first = layer * directions
            weights = [params[(first + d) * each : (first + d + 1) * each] for d in range(directions)]
            begun = [g.op("Slice", s, [first], [first + directions], [0]) for s in states] if num_layers > 1 else states
            x, *ended = run(g, kind, x, weights, begun, has_biases)
            for kept, state in zip(last, ended, strict=True):
                kept.append(state)
        output = g.transpose(x._replace(shape=(None,) * 3), [1, 0, 2]) if batch_first else x
        return output, *(g.op("Concat", *kept, axis=0) if num_layers > 1 else kept[0] for kept in last)

    return translate


def _layer(
    g: Graph, kind: _Kind, x: Value, weights: Sequence[Sequence[Value]], states: Sequence[Value], has_biases: bool
) -> tuple[Value, ...]:
    """Outputs ``(steps, batch, directions * features)``, and the last states."""

    def ordered(of: Value) -> Value:
        """Rows of the gates in ONNX's order."""
        if len(kind.gates) == 1:
            return of
        parts = g.op("Split", of, **({"num_outputs": len(kind.gates)} if g.opset >= 18 else {}), outputs=len(kind.gates), axis=0)
        return g.op("Concat", *(parts[i] for i in kind.gates), axis=0)

    def together(parts: Sequence[Value]) -> Value:
        each = [g.op("Unsqueeze", part, [0]) for part in parts]
        return each[0] if len(each) == 1 else g.op("Concat", *each, axis=0)

    of_input, of_state = (together([ordered(w[at]) for w in weights]) for at in (0, 1))
    bias = together([g.op("Concat", ordered(w[2]), ordered(w[3]), axis=0) for w in weights]) if has_biases else None
    assert weights[0][1].shape is not None
    settings: dict[str, Any] = {"hidden_size": weights[0][1].shape[1]}
    if len(weights) == 2:
        settings["direction"] = "bidirectional"
    if kind.activations:
        settings["activations"] = list(kind.activations) * len(weights)
    if kind.node == "GRU":
        settings["linear_before_reset"] = 1           # the reset gate acts behind the product
    steps, *last = g.op(kind.node, x, of_input, of_state, bias, None, *states, outputs=1 + kind.states, **settings)
    if len(weights) == 1:
        return g.op("Squeeze", steps, [1]), *last
    # (steps, directions, batch, features)
    return g.op("Reshape", g.op("Transpose", steps, perm=[0, 2, 1, 3]), [0, 0, -1]), *last


def _projected_layer(
    g: Graph, kind: _Kind, x: Value, weights: Sequence[Sequence[Value]], states: Sequence[Value], has_biases: bool
) -> tuple[Value, ...]:
    """An LSTM whose output is projected, which ONNX has no node for: step by step."""
    outputs, last = [], []
    for d, w in enumerate(weights):
        w_ih, w_hh, w_hr = (g.transpose(part, [1, 0]) for part in (w[0], w[1], w[-1]))
        biases = [w[2], w[3]] if has_biases else []

        def step(h: Value, c: Value, part: Value, w_hh: Value = w_hh, w_hr: Value = w_hr) -> list[Value]:
            gates = g.op("Add", part, g.op("MatMul", h, w_hh))
            enter, forget, fresh, leave = g.op("Split", gates, **({"num_outputs": 4} if g.opset >= 18 else {}), outputs=4, axis=-1)
            kept = g.op("Mul", g.op("Sigmoid", forget), c)
            cell = g.op("Add", kept, g.op("Mul", g.op("Sigmoid", enter), g.op("Tanh", fresh)))
            shown = g.op("MatMul", g.op("Mul", g.op("Sigmoid", leave), g.op("Tanh", cell)), w_hr)
            return [shown, cell, shown]

        of_input = g.op("MatMul", x, w_ih)
        for bias in biases:
            of_input = g.op("Add", of_input, bias)
        begun = [g.op("Squeeze", g.op("Slice", s, [d], [d + 1], [0]), [0]) for s in states]
        h, c, output = repeat(g, step, begun, [of_input._replace(shape=(None,) * 3)], 0, d == 1)
        outputs.append(output)
        last.append((h, c))
    both = [[g.op("Unsqueeze", state, [0]) for state in column] for column in zip(*last, strict=True)]
    joined = [column[0] if len(column) == 1 else g.op("Concat", *column, axis=0) for column in both]
    return outputs[0] if len(outputs) == 1 else g.op("Concat", *outputs, axis=-1), *joined


for _name in _KINDS:
    translates(f"aten.{_name}.input")(_layers(_name))


@translates("aten.lstm_cell.default")
def lstm_cell(
    g: Graph, input: Value, hx: Sequence[Value], w_ih: Value, w_hh: Value, b_ih: Value | None = None, b_hh: Value | None = None
) -> tuple[Value, ...]:
    return _one_step(g, "lstm", input, hx, w_ih, w_hh, b_ih, b_hh)


def _one_step(
    g: Graph, name: str, input: Value, hx: Sequence[Value], w_ih: Value, w_hh: Value, b_ih: Value | None, b_hh: Value | None
) -> tuple[Value, ...]:
    biases = [] if b_ih is None else [b_ih, b_hh]
    states = [g.op("Unsqueeze", s, [0]) for s in hx]
    _, *last = _layer(g, _KINDS[name], g.op("Unsqueeze", input, [0]), [[w_ih, w_hh, *biases]], states, bool(biases))
    return tuple(g.op("Squeeze", s, [0]) for s in last)


def _cell(name: str) -> Callable[..., Value]:
    def translate(
        g: Graph, input: Value, hx: Value, w_ih: Value, w_hh: Value, b_ih: Value | None = None, b_hh: Value | None = None
    ) -> Value:
        return _one_step(g, name, input, [hx], w_ih, w_hh, b_ih, b_hh)[0]

    return translate


for _name in ("gru", "rnn_tanh", "rnn_relu"):
    translates(f"aten.{_name}_cell.default")(_cell(_name))
