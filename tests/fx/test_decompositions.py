"""Decompositions give what the operator gives that they stand for."""

from __future__ import annotations

import re
import warnings
import zlib
from typing import Any

import numpy as np
import pytest

import flambeau as fb
from flambeau import _aten
from flambeau._decomp import get_decompositions
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.ops._spec.samples import function_of, samples_of
from flambeau.utils import _pytree as pytree

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
    f"binary_cross_entropy_backward(x(), {X}.sigmoid(), {Y}.sigmoid(), {Z}.abs(), 1)", f"mish_backward({X}, {Y})",
    f"soft_margin_loss_backward(x(), {X}, {Y}.sign(), 1)", f"_prelu_kernel_backward({X}, {Y}, x(6))",
    "unfold_backward(x(4, 3, 2), [4, 7], 1, 2, 2)",
    "native_layer_norm_backward(x(4, 6), x(4, 6), [6], x(4, 1), x(4, 1).abs(), x(6), x(6), [True, True, True])",
    "native_layer_norm_backward(x(4, 6), x(4, 6), [6], x(4, 1), x(4, 1).abs(), None, None, [True, False, False])",
    "native_group_norm_backward(x(2, 4, 3), x(2, 4, 3), x(2, 2), x(2, 2).abs(), x(4), 2, 4, 3, 2, [True, True, True])",
    "native_batch_norm_backward(x(5, 3, 2), x(5, 3, 2), x(3), None, None, x(3), x(3).abs(), True, 1e-5, [True, True, True])",
    "native_batch_norm_backward(x(5, 3, 2), x(5, 3, 2), x(3), x(3), x(3).abs(), None, None, False, 1e-5, [True, True, True])",
    "embedding_dense_backward(x(3, 4), n(3) % 5, 5, 1, False)", "embedding_dense_backward(x(2, 3, 4), n(2, 3) % 5, 5, -1, True)",
    "reflection_pad1d_backward(x(2, 9), x(2, 5), [1, 3])", "reflection_pad2d_backward(x(2, 3, 5, 9), x(2, 3, 4, 5), [3, 1, 0, 1])",
    "reflection_pad2d_backward(x(1, 4, 7), x(1, 4, 5), [3, -1, 0, 0])", "diagonal_backward(x(3), [4, 4], 1, 0, 1)",
    "nll_loss_forward(x(4, 6), n(4) % 6, None, 1, -100)", "nll_loss_forward(x(4, 6), n(4) % 6, x(6).abs(), 2, 3)",
    "nll_loss_forward(x(4, 6), n(4) % 6, x(6).abs(), 0, 3)", "nll_loss2d_forward(x(2, 6, 2, 2), n(2, 2, 2) % 6, None, 1, -100)",
    "nll_loss_backward(x(), x(4, 6), n(4) % 6, x(6).abs(), 1, 3, x().abs())", "nll_loss_backward(x(4), x(4, 6), n(4) % 6, None, 0, 3, x())",
    "nll_loss2d_backward(x(), x(2, 6, 2, 2), n(2, 2, 2) % 6, x(6).abs(), 1, 3, x().abs())", "_weight_norm_interface(x(4, 3), x(4, 1), 0)",
    "_euclidean_dist(x(4, 3), x(5, 3))", "take(x(4, 3), n(5) % 12)", "roll(x(4, 3), [1, -5], [0, 1])",
    "select_scatter(x(4, 3), x(4), 1, -1)", "index_add(x(4, 3), 1, n(2) % 3, x(4, 2), alpha=2.0)",
    "index_copy(x(4, 3), 0, n(1) % 4, x(1, 3))", "linalg_cross(x(4, 3), x(4, 3))", "tril(x(4, 3), -1)", "triu(x(2, 4, 3), 1)",
    "_safe_softmax(x(4, 3), 1)", "upsample_linear1d(x(2, 3, 5), [8], False)", "upsample_linear1d(x(2, 3, 5), [8], True)",
    "upsample_nearest2d(x(2, 3, 5, 4), [8, 3])", "_upsample_nearest_exact1d(x(2, 3, 5), [8])", "aminmax(x(4, 3), dim=1)",
    f"logaddexp2({X}, {Y})", "pixel_shuffle(x(2, 8, 3, 2), 2)", "pixel_unshuffle(x(2, 2, 4, 6), 2)",
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_a_decomposition_gives_what_its_operator_gives(call: str) -> None:
    def evaluated(module: Any, function: Any) -> Any:
        draw = np.random.default_rng(zlib.crc32(call.encode()))
        x = lambda *shape: module.from_numpy(np.asarray(draw.standard_normal(shape)))  # noqa: E731  # a word of the calls
        n = lambda *shape: module.from_numpy(np.asarray(draw.integers(0, 100, shape)))  # noqa: E731  # another
        return eval(call, {"x": x, "n": n, call.partition("(")[0]: function})

    name = call.partition("(")[0]
    decomposition = get_decompositions([getattr(fb.ops.aten, name)])[getattr(fb.ops.aten, name).default]
    expected = evaluated(torch, getattr(torch.ops.aten, name))

    assert_results_agree(evaluated(fb, decomposition), expected)
    assert_results_agree(evaluated(fb, getattr(fb.ops.aten, name)), expected)


def assert_results_agree(found: Any, expected: Any) -> None:
    for x, y in zip(*(made if isinstance(made, tuple) else (made,) for made in (found, expected)), strict=True):
        assert (x is None) == (y is None)
        if y is not None:
            np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-9, atol=1e-12)


NAMES = sorted({name.partition(".")[0] for name in _aten.decomposed_by_pytorch(by_default=True)})
# Operators of our own that PyTorch's core set has no counterpart of, or which compute in another way.
KEPT = re.compile(
    "aten.matrix_exp.default|prims.(real_transform|transform|inverse_to_real|overlap_add|svdvals_of|svd_of|solution_of|cholesky_of|cholesky_solution|ldl_of|lu_of|"
    "triangular_solution|row_order|qr_of|slogdet_of|det_of|eigh_of|eigvals_of|eigvalsh_of|pseudo_inverse|ctc|embedding_bag|bags_of_rows|"
    "starts_of_bags|sizes_of_bags|max_unpool.d|bounded_rows|window_max|moved_to_moments|piecewise_constant|window_max_with_indices|convolution|resample).*"
)


@pytest.mark.parametrize("name", NAMES)
def test_programs_of_core_operators_have_the_values_of_what_was_taken_apart(name: str) -> None:
    found = [op for op in _aten.ops_of(name) if op.surface and op.samples and not op.random and op.kind != "elementwise"]
    if not found:
        pytest.skip("no calls to try it with reach it")
    op = found[0]
    sample = samples_of(op)[0]
    leaves, spec = pytree.tree_flatten((sample.args, sample.kwargs))
    at = [i for i, x in enumerate(leaves) if isinstance(x, fb.Tensor)]

    def run(*tensors: Any) -> Any:
        given = list(leaves)
        for i, x in zip(at, tensors, strict=True):
            given[i] = x
        args, kwargs = pytree.tree_unflatten(given, spec)
        return function_of(op)(*args, **kwargs)

    tensors = [leaves[i].detach() for i in at]
    if any(x.layout is not fb.strided or x.is_quantized for x in tensors):
        pytest.skip("of strided tensors alone")
    table = dict(fb.export.default_decompositions().items())
    with fb.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")               # deprecated names
        graph = make_fx(run, table)(*(x.clone() for x in tensors))
        expected, made = (pytree.tree_leaves(f(*(x.clone() for x in tensors))) for f in (run, graph))

    left = [str(node.target) for node in graph.graph.nodes if node.op == "call_function" and node.target in table]
    assert not [x for x in left if not KEPT.fullmatch(x)]
    for x, y in zip(expected, made, strict=True):
        if isinstance(x, fb.Tensor) and x.layout is fb.strided and not x.is_quantized:
            assert (x.dtype, x.shape) == (y.dtype, y.shape)
            assert fb.allclose(x, y, rtol=1e-9, atol=1e-10, equal_nan=True)


def test_the_formula_of_an_operator_rounds_halves_once():
    x = fb.linspace(-3, 3, 101, dtype=fb.float16)
    for name in ("sinc", "mish", "logaddexp2", "softplus"):
        operator = getattr(fb.ops.aten, name).default
        args = (x, x.flip(0)) if name == "logaddexp2" else (x,)
        made = make_fx(lambda *args, operator=operator: operator(*args), get_decompositions([operator]))(*args)(*args)
        assert made.dtype is fb.float16
        expected = operator(*(x.float() for x in args))
        assert ((made - expected).abs() <= 6e-4 * expected.abs() + 1e-7).all()


def test_writes_are_taken_apart_as_the_operator_and_a_copy():
    x, y = fb.randn(4), fb.randn(4)
    table = get_decompositions([fb.ops.aten.lerp_.Scalar, fb.ops.aten.lerp.Scalar, fb.ops.aten.silu, fb.ops.aten.silu.out])
    graph = make_fx(lambda x, y: x.clone().lerp_(y, 0.25), table)(x, y)

    assert "lerp" not in graph.code
    assert graph.graph.find_nodes(op="call_function", target=fb.ops.aten.copy_.default)
    assert fb.allclose(graph(x, y), x.lerp(y, 0.25))
    out = fb.empty(0)
    assert table[fb.ops.aten.silu.out](x, out=out) is out
    assert fb.allclose(out, fb.nn.functional.silu(x))


def test_the_tables_have_what_pytorch_has_in_them():
    ours, theirs = ({str(op) for op in module.export.default_decompositions()} for module in (fb, torch))
    # Operators of sparse and quantized tensors, of other devices, and questions that are no computations are not built.
    assert len(theirs & ours) > 740
    asked = {str(op) for op in get_decompositions([fb.ops.aten.relu, fb.ops.aten.native_layer_norm_backward, fb.ops.aten.tril])}
    assert asked == {str(op) for op in torch._decomp.get_decompositions(
        [torch.ops.aten.relu, torch.ops.aten.native_layer_norm_backward, torch.ops.aten.tril]
    )} - {"aten.native_layer_norm_backward.out"} | asked & {"aten.native_layer_norm_backward.out"}


def test_windows_as_columns_are_decomposed_without_a_recorder():
    x, settings = fb.randn(1, 2, 5, 6), ([2, 3], [1, 2], [1, 1], [2, 1])
    decomposed = get_decompositions([fb.ops.aten.im2col])[fb.ops.aten.im2col.default](x, *settings)

    assert fb.equal(decomposed, fb.nn.functional.unfold(x, *settings))
