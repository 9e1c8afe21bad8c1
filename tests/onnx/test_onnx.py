"""What programs ask of `torch.onnx` without exporting."""

from __future__ import annotations

import pytest

import flambeau as fb
from flambeau import onnx
from flambeau.onnx import symbolic_helper


def test_nothing_is_being_exported():
    assert not onnx.is_in_onnx_export()


def test_translations_are_kept_and_forgotten():
    onnx.register_custom_op_symbolic("mine::triple", abs, 9)
    assert onnx._symbolics["mine::triple", 9] is abs
    onnx.unregister_custom_op_symbolic("mine::triple", 9)
    assert ("mine::triple", 9) not in onnx._symbolics
    with pytest.raises(onnx.OnnxExporterError, match="namespace::name, got 'triple'"):
        onnx.register_custom_op_symbolic("triple", abs, 9)


def test_the_mode_of_a_model_comes_back():
    model = fb.nn.Sequential(fb.nn.Dropout(), fb.nn.Dropout().eval())

    with onnx.select_model_mode_for_export(model, onnx.TrainingMode.EVAL):
        assert [part.training for part in model.modules()] == [False] * 3
    assert [part.training for part in model.modules()] == [True, True, False]


def test_kinds_of_numbers_are_converted():
    kind = onnx.JitScalarType.from_dtype(fb.int64)

    assert (kind.scalar_name(), kind.torch_name(), kind.onnx_type(), kind.dtype()) == ("Long", "int64_t", 7, fb.int64)
    assert onnx.JitScalarType.from_onnx_type(1) is onnx.JitScalarType.from_value(fb.ones(1)) is onnx.JitScalarType.FLOAT
    assert not onnx.JitScalarType.COMPLEX32.onnx_compatible()
    with pytest.raises(onnx.OnnxExporterError):
        onnx.JitScalarType.from_onnx_type(99)


def test_decorators_return_the_translation():
    @symbolic_helper.parse_args("v", "i")
    def translate(g, x, n):
        return n

    assert translate(None, None, 3) == 3
    with pytest.raises(ValueError, match="'z'"):
        symbolic_helper.parse_args("z")
