"""Differences between values, and a program beside a model in ONNX's format."""

from __future__ import annotations

import json
import math
import sys
from types import SimpleNamespace

import pytest

import flambeau as fb
from comparing import disagreements
from flambeau.onnx import verification

PROGRAMS = """
    v.VerificationInfo.from_tensors("n", torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.1, 2.0, 3.5])).asdict()
    v.VerificationInfo.from_tensors("n", torch.tensor([1.0, 0.0]).double(), torch.tensor([1.0, 1e-5])).asdict()
    v.VerificationInfo.from_tensors("n", torch.tensor([1, 2]), torch.tensor([1, 4])).asdict()
    v.VerificationInfo.from_tensors("n", torch.tensor([True, False]), torch.tensor([True, True])).asdict()
    v.VerificationInfo.from_tensors("n", torch.zeros(0), torch.zeros(0)).asdict()
    v.VerificationInfo.from_tensors("n", torch.tensor([[2.0], [4.0]]).half(), torch.tensor([2.0, 30.0])).asdict()
"""


def test_differences_are_counted_as_pytorch_counts_them(oracle):
    programs = "\n".join(f"    from torch.onnx import verification as v; {line.strip()}" for line in PROGRAMS.strip().splitlines())

    assert not disagreements(oracle, programs)


def test_a_value_that_is_no_number_makes_the_largest_difference_none():
    made = verification.VerificationInfo.from_tensors("n", fb.tensor([1.0, math.nan]), fb.tensor([1.0, 1.0]))

    assert math.isnan(made.max_abs_diff)
    assert made.abs_diff_hist[0].sum() == 1
    assert json.loads(json.dumps(made.asdict()))["expected_dtype"] == "torch.float32"
    with pytest.raises(RuntimeError):
        verification.VerificationInfo.from_tensors("n", fb.ones(2), fb.ones(3))


class Net(fb.nn.Module):
    def forward(self, x, y):
        return x @ y, (x @ y).relu()


def model_of(bias):
    from onnx import TensorProto, helper

    kinds = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 2]) for n in ("x", "y", "product", "positive")]
    nodes = [
        helper.make_node("MatMul", ["x", "y"], ["plain"]), helper.make_node("Add", ["plain", "bias"], ["product"]),
        helper.make_node("Relu", ["plain"], ["positive"]),
    ]  # fmt: skip
    weights = [helper.make_tensor("bias", TensorProto.FLOAT, [1], [bias])]
    return helper.make_model(helper.make_graph(nodes, "net", kinds[:2], kinds[2:], weights))


def test_a_program_is_compared_with_a_model_output_by_output():
    pytest.importorskip("onnx.helper")  # `onnx` alone is also a folder of these tests
    x, y = fb.tensor([[1.0, -2.0], [0.5, 3.0]]), fb.eye(2) * 2
    program = fb.export.export(Net(), (x, y))
    right, wrong = (SimpleNamespace(exported_program=program, model_proto=model_of(bias)) for bias in (0.0, 0.25))

    assert [(i.name, i.max_abs_diff) for i in verification.verify_onnx_program(right)] == [("product", 0), ("positive", 0)]
    assert [i.max_abs_diff for i in verification.verify_onnx_program(wrong, (x * 2, y))] == [0.25, 0]
    with pytest.raises(NotImplementedError, match="compare_intermediates"):
        verification.verify_onnx_program(right, compare_intermediates=True)
    with pytest.raises(ValueError, match="example inputs"):
        verification.verify_onnx_program(SimpleNamespace(exported_program=bare(program), model_proto=model_of(0.0)))


def bare(program):
    return SimpleNamespace(example_inputs=None, module=program.module)


def test_another_number_of_outputs_is_refused():
    pytest.importorskip("onnx.helper")  # `onnx` alone is also a folder of these tests
    model = model_of(0.0)
    del model.graph.output[1]
    program = SimpleNamespace(exported_program=fb.export.export(Net(), (fb.eye(2), fb.eye(2))), model_proto=model)

    with pytest.raises(ValueError, match="2 outputs"):
        verification.verify_onnx_program(program)


def test_without_onnx_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx.reference", None)
    program = fb.export.export(Net(), (fb.ones(1, 2), fb.eye(2)))

    with pytest.raises(ImportError, match=r"flambeau\[onnx\]"):
        fb.onnx.verification.verify_onnx_program(SimpleNamespace(exported_program=program, model_proto=None))
