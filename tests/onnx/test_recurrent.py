"""Recurrent layers are nodes of ONNX, for sequences of any length."""

from __future__ import annotations

import itertools

import pytest

import comparing_onnx  # pyright: ignore[reportMissingImports]
import flambeau as fb
from comparing_onnx import agree, exported
from flambeau import nn
from flambeau.export import Dim

KINDS = {
    "LSTM": (nn.LSTM, {}), "GRU": (nn.GRU, {}), "RNN": (nn.RNN, {}), "RNN of relu": (nn.RNN, {"nonlinearity": "relu"}),
    "LSTM with a projection": (nn.LSTM, {"proj_size": 2}),
}  # fmt: skip


def kinds_of(program):
    return [node.op_type for node in program.model_proto.graph.node]


@pytest.fixture
def by_runtime(request, monkeypatch):
    """ONNX's evaluator has no relu in recurrent layers: then onnxruntime alone runs the model."""
    if request.node.callspec.params["name"] == "RNN of relu":
        monkeypatch.setattr(comparing_onnx, "reference", pytest.importorskip("onnxruntime").InferenceSession)


@pytest.mark.usefixtures("by_runtime")
@pytest.mark.parametrize(("layers", "bidirectional", "batch_first", "bias"), list(itertools.product((1, 2), *[(False, True)] * 3)))
@pytest.mark.parametrize("name", KINDS)
def test_layers_of_open_length_and_batch(name, layers, bidirectional, batch_first, bias):
    kind, settings = KINDS[name]
    fb.manual_seed(0)
    model = kind(3, 4, layers, bidirectional=bidirectional, batch_first=batch_first, bias=bias, **settings)
    program = exported(model, fb.randn(2, 5, 3), dynamic_shapes=({0: Dim("a"), 1: Dim("b")},))

    agree(model, program, fb.randn(3, 7, 3))
    assert kinds_of(program).count("Scan" if "proj" in name else name.split()[0]) == layers * (1 + ("proj" in name and bidirectional))


@pytest.mark.usefixtures("by_runtime")
@pytest.mark.parametrize("name", KINDS)
def test_layers_from_a_state_and_without_a_batch(name):
    kind, settings = KINDS[name]
    fb.manual_seed(0)
    model = kind(3, 4, 2, bidirectional=True, **settings)
    h = fb.randn(4, 2, settings.get("proj_size", 4))
    state = (h, fb.randn(4, 2, 4)) if kind is nn.LSTM else h
    x = fb.randn(5, 2, 3)

    agree(model, exported(model, x, state), x, state)
    agree(model, exported(model, x[:, 0]), x[:, 0])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("cell", "node"), [(nn.LSTMCell, "LSTM"), (nn.GRUCell, "GRU"), (nn.RNNCell, "RNN")])
def test_cells(cell, node, bias):
    model = cell(3, 4, bias=bias)
    program = exported(model, fb.randn(2, 3), dynamic_shapes=({0: Dim("batch")},))

    agree(model, program, fb.randn(5, 3))
    assert kinds_of(program).count(node) == 1


@pytest.mark.parametrize("opset", [17, 18, 21])
def test_layers_by_version(opset):
    model, x = nn.LSTM(3, 4, 2, bidirectional=True), fb.randn(5, 2, 3)

    agree(model, exported(model, x, opset_version=opset), x)


def test_dropout_between_layers_in_training_is_refused():
    model = nn.GRU(3, 4, 2, dropout=0.5)

    with pytest.raises(fb.onnx.OnnxExporterError, match="eval mode"):
        exported(model, fb.randn(5, 2, 3))
    agree(model.eval(), exported(model, fb.randn(5, 2, 3)), fb.randn(5, 2, 3))
