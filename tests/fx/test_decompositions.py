"""Decompositions give what the operator gives that they stand for."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

import flambeau as fb
from flambeau._decomp import get_decompositions

torch = pytest.importorskip("torch")

X, Y, Z = "x(4, 6)", "x(4, 6)", "x(4, 6)"
CALLS = [
    f"gelu_backward({X}, {Y})", f"gelu_backward({X}, {Y}, approximate='tanh')", f"hardtanh_backward({X}, {Y}, -1.0, 0.5)",
    f"leaky_relu_backward({X}, {Y}, 0.1, False)", f"elu_backward({X}, 1.5, 1.2, 0.8, False, {Y})",
    f"elu_backward({X}, 1.5, 1.2, 1.0, True, {Y})", f"softplus_backward({X}, {Y}, 2.0, 1.0)", f"hardsigmoid_backward({X}, {Y} * 3)",
    f"hardswish_backward({X}, {Y} * 3)", f"logit_backward({X}, {Y})", f"logit_backward({X}, {Y}, 0.2)",
    f"log_sigmoid_backward({X}, (y := {Y}), (-y.abs()).exp())", f"native_dropout_backward({X}, {Y} > 0, 2.0)",
    f"mse_loss_backward(x(), {X}, {Y}, 1)", f"mse_loss_backward({X}, {Y}, {Z}, 0)", f"smooth_l1_loss_backward(x(), {X}, {Y}, 2, 0.7)",
    f"smooth_l1_loss_backward({X}, {Y}, {Z}, 0, 0.7)", f"huber_loss_backward(x(), {X}, {Y}, 1, 0.7)", f"glu({X}, 1)",
    f"glu_backward(x(4, 3), {X}, 1)", "select_backward(x(4), [4, 6], 1, 2)", "slice_backward(x(4, 2), [4, 6], 1, 1, 5, 2)",
    f"logaddexp2({X}, {Y})", "pixel_shuffle(x(2, 8, 3, 2), 2)", "pixel_unshuffle(x(2, 2, 4, 6), 2)",
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_a_decomposition_gives_what_its_operator_gives(call: str) -> None:
    def evaluated(module: Any, function: Any) -> Any:
        draw = np.random.default_rng(zlib.crc32(call.encode()))
        x = lambda *shape: module.from_numpy(np.asarray(draw.standard_normal(shape)))  # noqa: E731  # a word of the calls
        return eval(call, {"x": x, call.partition("(")[0]: function})

    name = call.partition("(")[0]
    (decomposition, *_) = set(get_decompositions([getattr(fb.ops.aten, name)]).values())
    found, expected = evaluated(fb, decomposition), evaluated(torch, getattr(torch.ops.aten, name))

    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-9, atol=1e-12)
