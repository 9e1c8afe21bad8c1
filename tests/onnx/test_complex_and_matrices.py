"""Complex numbers as pairs, Fourier transforms, linear algebra by loops, and masks as indices."""

from __future__ import annotations

import math

import numpy as np
import pytest

import flambeau as fb
from comparing_onnx import agree, exported  # pyright: ignore[reportMissingImports]
from flambeau import linalg, nn, onnx
from flambeau.onnx import OnnxExporterError

DRAW = np.random.default_rng(5)


def real(*shape):
    return fb.from_numpy(DRAW.standard_normal(shape).astype(np.float32))


def imaginary(*shape):
    return fb.complex(real(*shape), real(*shape))


def check(fn, *args, tolerance=1e-5, **settings):
    agree(fn, exported(fn, *args, **settings), *args, tolerance=tolerance)


ARITHMETIC = {
    "sums": lambda z, x: (z + z * x, z - 2j, 3 - z, z + x),
    "products": lambda z, x: (z * z, z * 1j, x * (2 - 1j), z.square()),
    "quotients": lambda z, x: (z / (z + 3), z / 2, 1 / z, x / z),
    "parts": lambda z, x: (z.real, z.imag, z.abs(), z.angle(), z.conj() * 1),
    "functions": lambda z, x: (fb.exp(z), fb.log(z), z**3),
    "comparisons": lambda z, x: (z == z.conj(), z != 0),
    "matrices": lambda z, x: (z @ z.mT, z.mH @ z, z @ z[0]),
    "moves": lambda z, x: (z.reshape(4, 3), z.T, z[1:, ::2], z[0], z.unsqueeze(0), z.flip(0), fb.cat([z, z], 1), fb.stack([z, z * 2])),
    "reductions": lambda z, x: (z.sum(), z.mean(1), z.sum(0, keepdim=True), z.cumsum(1)),
    "made": lambda z, x: (fb.complex(x, x + 1), fb.polar(x.abs(), x), fb.view_as_real(z), fb.view_as_complex(x.reshape(3, 2, 2))),
    "choices": lambda z, x: (fb.where(x > 0, z, z * 2), z.index_select(1, fb.tensor([2, 0])), fb.cat([z, x + 0j])),
}  # fmt: skip


@pytest.mark.parametrize("name", ARITHMETIC)
def test_complex_numbers_are_pairs(name):
    check(ARITHMETIC[name], imaginary(3, 4), real(3, 4))


def test_inputs_outputs_and_parameters_have_pairs_in_a_last_dimension():
    class Rotated(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(imaginary(4))

        def forward(self, z):
            return z * self.weight

    model, z = Rotated(), imaginary(3, 4)
    program = exported(model, z)

    graph = program.model_proto.graph
    shapes = [[d.dim_value for d in x.type.tensor_type.shape.dim] for x in (*graph.input, *graph.output)]
    assert shapes == [[3, 4, 2], [3, 4, 2]]
    agree(model, program, z)


def test_what_has_no_complex_translation_is_named():
    with pytest.raises(OnnxExporterError, match="atanh"):
        onnx.export(lambda z: fb.atanh(z), (imaginary(3),), dynamo=True)


TRANSFORMS = {
    "fft": lambda x, z: (fb.fft.fft(x), fb.fft.fft(z, 6, 0), fb.fft.ifft(z, norm="ortho"), fb.fft.ifft(x, 3, norm="forward")),
    "several": lambda x, z: (fb.fft.fft2(x), fb.fft.ifftn(z, norm="ortho"), fb.fft.fftn(z, (2, 5))),
    "real": lambda x, z: (fb.fft.rfft(x), fb.fft.rfft(x, 7, 0, "ortho"), fb.fft.rfft2(x), fb.fft.rfftn(x, norm="forward")),
    "to_real": lambda x, z: (fb.fft.irfft(z), fb.fft.irfft(z, 5), fb.fft.irfft(z, 9, 0), fb.fft.irfft2(z), fb.fft.irfftn(z, norm="ortho")),
    "hermitian": lambda x, z: (fb.fft.hfft(z), fb.fft.hfft(z, 5, norm="ortho"), fb.fft.ihfft(x), fb.fft.ihfft(x, norm="forward")),
    "shifts": lambda x, z: (fb.fft.fftshift(z), fb.fft.ifftshift(x, 1)),
    "lines": lambda x, z: (fb.fft.fft(x[0]), fb.fft.irfft(z[0])),
}  # fmt: skip


@pytest.mark.parametrize("opset", [18, 20])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_fourier_transforms(name, opset):
    check(TRANSFORMS[name], real(3, 8), imaginary(3, 8), opset_version=opset)


def test_an_fft_between_layers_of_a_model():
    class Mixer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.out = nn.LayerNorm(8), nn.Linear(8, 8)

        def forward(self, x):
            return self.out(fb.fft.fft2(self.norm(x)).real)

    model, x = Mixer(), real(2, 4, 8)
    agree(model, exported(model, x), x, tolerance=1e-4)


A = real(2, 4, 4) + 3 * fb.eye(4)
SPD = A @ A.mT
MATRICES = {
    "inv": (lambda a: (linalg.inv(a), fb.inverse(a[0])), A),
    "pivots": (linalg.inv, fb.tensor([[0.0, 2.0], [3.0, 1.0]])),
    "solve": (lambda a, b: (linalg.solve(a, b), linalg.solve(a[0], b[0, :, 0]), linalg.solve(a, b.mT, left=False)), A, real(2, 4, 3)),
    "slogdet": (lambda a: (linalg.slogdet(a)[0], linalg.slogdet(-a[:, :3, :3])[0], linalg.slogdet(a)[1]), A),
    "logdet": (fb.logdet, SPD),
    "matrix_power": (lambda a: linalg.matrix_power(a, -2), A),
    "cholesky": (lambda a: (linalg.cholesky(a), linalg.cholesky(a[0], upper=True)), SPD),
    "triangles": (
        lambda a, b: (linalg.solve_triangular(a, b, upper=True), linalg.solve_triangular(a, b, upper=False, unitriangular=True)),
        A, real(2, 4, 3),
    ),
    "cholesky_solve": (
        lambda a, b: (fb.cholesky_solve(b, linalg.cholesky(a)), fb.cholesky_inverse(linalg.cholesky(a))), SPD, real(2, 4, 3),
    ),
    "norms": (lambda a: (linalg.matrix_norm(a), linalg.norm(a, 1, (1, 2)), linalg.matrix_norm(a, math.inf), linalg.vector_norm(a, 3)), A),
    "products": (lambda a: (linalg.multi_dot([a[0], a[1], a[0]]), linalg.vecdot(a, a), linalg.cross(a[:, :3], a[:, 1:], dim=1)), A),
}  # fmt: skip


@pytest.mark.parametrize("name", MATRICES)
def test_linear_algebra(name):
    fn, *args = MATRICES[name]
    check(fn, *args, tolerance=2e-4)


MASKS = {
    "rows": lambda x, m: x[m[:, 0]],
    "elements": lambda x, m: x[m],
    "columns": lambda x, m: x[:, m[0]],
    "beside_slices": lambda x, m: x[1:, m[0]],
    "of_a_condition": lambda x, m: x[x > 0] * 2,
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_are_indices(name):
    check(MASKS[name], real(3, 4), fb.tensor(DRAW.integers(0, 2, (3, 4)).astype(bool)))


def test_elements_that_a_mask_says_are_written():
    mask = fb.tensor([True, False, True])

    def written(x, y):
        return x.index_put((mask,), y), x.index_put((mask, fb.tensor([0, 2])), y[:, 0], accumulate=True)

    check(written, real(3, 4), real(2, 4))
