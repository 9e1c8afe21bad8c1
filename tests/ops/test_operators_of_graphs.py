"""Operators that programs meet in graphs of PyTorch give here what they give there."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

import flambeau as fb

torch = pytest.importorskip("torch")

POOL2, POOL3 = "[2, 2], [2, 2], [0, 0], False, True, None", "[2, 2, 2], [1, 1, 1], [1, 0, 1], True, False, 3"
CALLS = [
    "convolution_backward(x(1, 3, 4), x(1, 2, 6), x(3, 2, 3), [3], [1], [0], [1], False, [0], 1, [True, True, True])",
    "convolution_backward(x(2, 4, 3, 3), x(2, 4, 5, 5), x(4, 2, 3, 3), None, [2, 2], [1, 1], [1, 1], False, [0, 0], 2, "
    "[True, False, False])",
    "convolution_backward(x(1, 2, 7, 7), x(1, 3, 4, 4), x(3, 2, 3, 3), [2], [2, 2], [1, 1], [1, 1], True, [0, 0], 1, [True, True, True])",
    f"avg_pool2d_backward(x(1, 2, 2, 2), x(1, 2, 4, 5), {POOL2})",
    "avg_pool2d_backward(x(2, 2, 2), x(2, 4, 5), [2, 2], [], [0, 0], False, True, None)",
    f"avg_pool3d_backward(x(1, 2, 5, 4, 5), x(1, 2, 4, 5, 4), {POOL3})", "_adaptive_avg_pool2d_backward(x(1, 2, 2, 3), x(1, 2, 4, 5))",
    "_adaptive_avg_pool3d_backward(x(1, 2, 2, 3, 2), x(1, 2, 4, 5, 4))",
    "max_pool2d_with_indices_backward(x(1, 2, 2, 2), (s := x(1, 2, 4, 5)), [2, 2], [2, 2], [0, 0], [1, 1], False, "
    "max_pool2d_with_indices(s, [2, 2])[1])",
    "max_pool3d_with_indices_backward(x(1, 2, 1, 2, 2), (s := x(1, 2, 2, 4, 5)), [2, 2, 2], [2, 2, 2], [0, 0, 0], [1, 1, 1], False, "
    "max_pool3d_with_indices(s, [2, 2, 2])[1])",
    "adaptive_max_pool2d_backward(x(1, 2, 3, 2), (s := x(1, 2, 4, 5)), adaptive_max_pool2d(s, [3, 2])[1])",
    "adaptive_max_pool3d_backward(x(1, 2, 1, 3, 2), (s := x(1, 2, 2, 4, 5)), adaptive_max_pool3d(s, [1, 3, 2])[1])",
    "fractional_max_pool2d_backward(x(1, 2, 2, 2), (s := x(1, 2, 4, 5)), [2, 2], [2, 2], "
    "fractional_max_pool2d(s, [2, 2], [2, 2], x(1, 2, 2).sigmoid())[1])",
    "replication_pad1d_backward(x(1, 2, 8), x(1, 2, 5), [1, 2])", "replication_pad2d_backward(x(1, 2, 7, 8), x(1, 2, 4, 5), [1, 2, 2, 1])",
    "replication_pad3d_backward(x(1, 2, 6, 7, 8), x(1, 2, 3, 4, 5), [1, 2, 2, 1, 1, 2])", "hardshrink_backward(x(4, 6), x(4, 6), 0.5)",
    "softshrink_backward(x(4, 6), x(4, 6), 0.5)", "rrelu_with_noise_backward(x(4), x(4), x(4), 0.1, 0.3, True, False)",
    "rrelu_with_noise_backward(x(4), x(4), x(4), 0.1, 0.3, False, False)",
    "upsample_nearest1d_backward(x(1, 2, 8), [8], [1, 2, 3])", "upsample_nearest2d_backward(x(1, 2, 8, 3), [8, 3], [1, 2, 3, 5])",
    "upsample_nearest3d_backward(x(1, 2, 4, 8, 3), [4, 8, 3], [1, 2, 2, 3, 5], 2.0, None, None)",
    "_upsample_nearest_exact1d_backward(x(1, 2, 8), [8], [1, 2, 3])",
    "_upsample_nearest_exact2d_backward(x(1, 2, 8, 3), [8, 3], [1, 2, 3, 5])",
    "_upsample_nearest_exact3d_backward(x(1, 2, 4, 8, 3), [4, 8, 3], [1, 2, 2, 3, 5])",
    "upsample_linear1d_backward(x(1, 2, 8), [8], [1, 2, 3], True)",
    "upsample_bilinear2d_backward(x(1, 2, 8, 3), [8, 3], [1, 2, 3, 5], False)",
    "upsample_bicubic2d_backward(x(1, 2, 8, 3), [8, 3], [1, 2, 3, 5], False)",
    "upsample_trilinear3d_backward(x(1, 2, 4, 8, 3), [4, 8, 3], [1, 2, 2, 3, 5], True)",
    "_upsample_bilinear2d_aa_backward(x(1, 2, 2, 3), [2, 3], [1, 2, 6, 5], False)",
    "_upsample_bicubic2d_aa_backward(x(1, 2, 2, 3), [2, 3], [1, 2, 6, 5], False)",
    "grid_sampler_2d_backward(x(1, 2, 3, 2), x(1, 2, 4, 3), x(1, 3, 2, 2), 0, 1, False, [True, True])",
    "grid_sampler_2d_backward(x(1, 2, 3, 2), x(1, 2, 4, 3), x(1, 3, 2, 2), 0, 0, True, [False, True])",
    "grid_sampler_3d_backward(x(1, 2, 2, 3, 2), x(1, 2, 3, 4, 3), x(1, 2, 3, 2, 3), 0, 0, False, [True, True])",
    "multi_margin_loss_backward(x(3), x(3, 4), n(3) % 4, 1, 1.0, None, 0)",
    "multi_margin_loss_backward(x(), x(3, 4), n(3) % 4, 2, 0.5, x(4).abs(), 1)",
    "multilabel_margin_loss_forward((s := x(3, 4)), n(3, 4) % 4, 1)",
    "multilabel_margin_loss_backward(x(), (s := x(3, 4)), (t := n(3, 4) % 4), 1, multilabel_margin_loss_forward(s, t, 1)[1])",
    "_fft_c2c(z(3, 4), [0, 1], 0, True)",
    "_fft_c2c(z(3, 4), [1], 2, False)", "_fft_c2c(z(3, 4), [0], 1, False)", "_fft_r2c(x(3, 4), [0, 1], 1, True)",
    "_fft_r2c(x(3, 5), [1], 2, False)", "_fft_c2r(z(3, 4), [0, 1], 2, 6)", "_fft_c2r(z(3, 4), [1], 0, 7)",
    "_linalg_svd(x(4, 3), False, False)[1]", "_linalg_svd(x(4, 3))[1]", "_linalg_eigh(x(4, 4), 'U', False)[0]", "_linalg_det(x(3, 3))[0]",
    "_linalg_slogdet(x(3, 3))[:2]",
    "_linalg_solve_ex(x(3, 3), x(3, 2))[0]", "_cdist_backward(x(3, 2), (s := x(3, 4)), (t := x(2, 4)), 2.0, cdist(s, t))",
    "_pdist_backward(x(6), (s := x(4, 3)), 3.0, _pdist_forward(s, 3.0))",
    "_stack([x(3), x(3)], 1)", "_conj(z(3)).resolve_conj()", "_conj_physical(z(3))",
    "lift(x(3))", "_is_all_true(x(3) > 0)", "_is_any_true(x(3) > 0)", "_aminmax(x(3, 4))", "_aminmax(x(3, 4), 1, True)",
    "_index_put_impl(x(4, 3), [n(2) % 4], x(2, 3), True)", "masked_scatter_backward(x(4, 3), x(4, 3) > 0, [2, 7])",
    "_trilinear(x(2, 3), x(4, 3), x(2, 4), [1], [0], [2], [2])", "embedding_renorm(x(5, 3), n(2) % 5, 0.5, 2.0)",
]  # fmt: skip


class Words(dict):
    """Names of a call: what draws numbers, and operators."""

    def __init__(self, module: Any, call: str) -> None:
        draw = np.random.default_rng(zlib.crc32(call.encode()))
        super().__init__(
            x=lambda *shape: module.from_numpy(np.asarray(draw.standard_normal(shape))),
            z=lambda *shape: module.from_numpy(draw.standard_normal(shape) + 1j * draw.standard_normal(shape)),
            n=lambda *shape: module.from_numpy(np.asarray(draw.integers(0, 100, shape))),
        )
        self.operators = module.ops.aten

    def __missing__(self, name: str) -> Any:
        if name.startswith("__"):
            raise KeyError(name)
        return getattr(self.operators, name)


def leaves(made: Any) -> list[Any]:
    return [y for x in made for y in leaves(x)] if isinstance(made, (tuple, list)) else [made]


@pytest.mark.parametrize("call", CALLS)
def test_an_operator_gives_what_it_gives_in_pytorch(call: str) -> None:
    found, expected = (leaves(eval(call, Words(module, call))) for module in (fb, torch))

    assert len(found) == len(expected)
    for x, y in zip(found, expected, strict=True):
        if isinstance(y, torch.Tensor) and y.numel():
            assert str(x.dtype) == str(y.dtype)
            np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-9, atol=1e-12)


def test_an_error_of_lapack_says_where():
    with pytest.raises(fb.linalg.LinAlgError, match="Batch element 1"):
        fb.ops.aten._linalg_check_errors(fb.tensor([0, 2]), "linalg.inv", is_matrix=False)
    assert fb.ops.aten._linalg_check_errors(fb.tensor(0), "linalg.inv", is_matrix=True) is None
