"""Fourier transforms against their definition, and their derivatives against difference quotients."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb

rng = np.random.default_rng(0)
REAL = rng.standard_normal((3, 6))
COMPLEX = REAL + 1j * rng.standard_normal((3, 6))


def dft(a, sign=-1):
    """The transform along the last dimension, by its definition."""
    n = a.shape[-1]
    return a @ np.exp(sign * 2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n)


def test_fft_and_ifft_by_definition():
    x = fb.tensor(COMPLEX)

    np.testing.assert_allclose(fb.fft.fft(x).numpy(), dft(COMPLEX))
    np.testing.assert_allclose(fb.fft.ifft(x).numpy(), dft(COMPLEX, 1) / 6)
    np.testing.assert_allclose(fb.fft.fft2(x).numpy(), dft(dft(COMPLEX).T).T)


@pytest.mark.parametrize(("norm", "factor"), [("backward", 1), ("ortho", 6**-0.5), ("forward", 1 / 6)])
def test_norm_modes_share_a_factor_between_both_directions(norm, factor):
    x = fb.tensor(COMPLEX)

    np.testing.assert_allclose(fb.fft.fft(x, norm=norm).numpy(), dft(COMPLEX) * factor)
    np.testing.assert_allclose(fb.fft.ifft(fb.fft.fft(x, norm=norm), norm=norm).numpy(), COMPLEX)


@pytest.mark.parametrize("n", [4, 5, 6, 9])
def test_real_transforms_are_halves_of_complex_ones(n):
    x = fb.tensor(REAL)
    whole = fb.fft.fft(x, n).numpy()

    np.testing.assert_allclose(fb.fft.rfft(x, n).numpy(), whole[:, : n // 2 + 1])
    np.testing.assert_allclose(fb.fft.ihfft(x, n).numpy(), whole[:, : n // 2 + 1].conj() / n)
    np.testing.assert_allclose(fb.fft.irfft(fb.fft.rfft(x, n), n).numpy(), fb.fft.ifft(fb.fft.fft(x, n)).real.numpy(), atol=1e-12)
    np.testing.assert_allclose(fb.fft.hfft(fb.fft.ihfft(x, n), n).numpy(), fb.fft.ifft(fb.fft.fft(x, n)).real.numpy(), atol=1e-12)


def test_transforms_of_several_dimensions_undo_each_other():
    x = fb.tensor(rng.standard_normal((2, 3, 4, 5)))

    np.testing.assert_allclose(fb.fft.irfftn(fb.fft.rfftn(x, dim=(1, 3)), s=(3, 5), dim=(1, 3)).numpy(), x.numpy())
    np.testing.assert_allclose(fb.fft.hfftn(fb.fft.ihfftn(x), s=x.shape).numpy(), x.numpy())


@pytest.mark.parametrize(("name", "data"), [("fft", COMPLEX), ("ifft2", COMPLEX), ("rfft", REAL), ("irfft", COMPLEX), ("rfft2", REAL),
                                            ("hfft2", COMPLEX), ("ihfftn", REAL), ("irfftn", COMPLEX)])  # fmt: skip
def test_gradients_are_adjoints(name, data):
    fn = getattr(fb.fft, name)
    x = fb.tensor(data, requires_grad=True)
    out = fn(x)
    cotangent = fb.tensor(rng.standard_normal(out.shape) + (1j * rng.standard_normal(out.shape) if out.is_complex() else 0))
    (g,) = fb.autograd.grad(out, x, cotangent)
    direction = fb.tensor(rng.standard_normal(data.shape) + (1j * rng.standard_normal(data.shape) if np.iscomplexobj(data) else 0))

    along = (fn(direction).conj() * cotangent).sum().numpy().real  # transforms are linear
    assert (direction.conj() * g).sum().numpy().real == pytest.approx(along)


def test_the_gradient_of_a_squared_spectrum_can_be_differentiated_again():
    x = fb.tensor(REAL, requires_grad=True)
    (g,) = fb.autograd.grad((fb.fft.rfft(x).abs() ** 4).sum(), x, create_graph=True)
    (h,) = fb.autograd.grad(g.sum(), x)
    step = 1e-5
    sides = []
    for d in (step, -step):
        y = (x + d).detach().requires_grad_()
        sides.append(fb.autograd.grad((fb.fft.rfft(y).abs() ** 4).sum(), y)[0].numpy())

    np.testing.assert_allclose(h.numpy(), (sides[0] - sides[1]) / (2 * step), rtol=1e-5, atol=1e-4)


def test_shift_puts_zero_frequency_in_the_middle_and_back():
    f = fb.fft.fftfreq(5, d=0.5)

    assert fb.fft.fftshift(f).tolist() == pytest.approx([-0.8, -0.4, 0.0, 0.4, 0.8])
    assert fb.fft.ifftshift(fb.fft.fftshift(f)).tolist() == f.tolist()
    assert fb.fft.rfftfreq(4).tolist() == [0.0, 0.25, 0.5]


def test_refusals_name_what_was_given():
    x = fb.ones(4)
    with pytest.raises(RuntimeError, match=r"\(0\)"):
        fb.fft.fft(x, 0)
    with pytest.raises(RuntimeError, match='"half"'):
        fb.fft.fft(x, norm="half")
    with pytest.raises(RuntimeError, match="complex64"):
        fb.fft.rfft(x.to(fb.complex64))
    with pytest.raises(RuntimeError, match="unique"):
        fb.fft.fftn(fb.ones(2, 2), dim=(0, -2))


def test_any_number_of_threads_gives_the_same_bits():
    generator = fb.Generator().manual_seed(0)
    x = fb.randn(33, 1022, generator=generator)           # 2 * 7 * 73: no length of our kernels
    before = fb.get_num_threads()
    made = []
    try:
        for threads in (1, 2, 3):
            fb.set_num_threads(threads)
            half = fb.fft.rfft2(x)
            made.append((half, fb.fft.fft(x.to(fb.complex64)), fb.fft.irfft2(half)))
    finally:
        fb.set_num_threads(before)

    assert all(fb.equal(a, b) for one in made[1:] for a, b in zip(made[0], one, strict=True))
    assert fb.allclose(made[0][2], x, atol=1e-5)


@pytest.mark.parametrize("dim", [None, 0, -1, (0,), [1, 0]])
@pytest.mark.parametrize("shape", [(4, 5), (3, 0), (2, 3, 4)])
def test_shifts_of_frequencies_are_those_of_numpy(shape, dim):
    x = np.arange(np.prod(shape)).reshape(shape)

    for name in ("fftshift", "ifftshift"):
        np.testing.assert_array_equal(getattr(fb.fft, name)(fb.from_numpy(x), dim).numpy(), getattr(np.fft, name)(x, dim))


@pytest.mark.parametrize("shapes", [((5, 1), (5,)), ((), (2, 3)), ((4, 1, 5), (1, 3, 5)), ((3, 0), (1, 1))])
def test_complex_numbers_of_parts_that_broadcast(shapes):
    real, imag = (np.random.default_rng(0).standard_normal(shape) for shape in shapes)

    made = fb.complex(fb.from_numpy(real), fb.from_numpy(imag))

    assert made.is_contiguous()
    np.testing.assert_array_equal(made.numpy(), real + 1j * imag)


@pytest.mark.parametrize("norm", ["backward", "ortho"])
@pytest.mark.parametrize(("shape", "dim"), [((3, 8), -1), ((2, 9), -1), ((9, 3), 0), ((2, 1), -1)])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_gradients_are_those_of_the_matrix_of_the_transform(name: str, shape: tuple[int, ...], dim: int, norm: str) -> None:
    numbers = np.random.default_rng(1)
    complex_input = name in ("irfft", "hfft")
    leaf = fb.tensor(numbers.normal(size=shape) + (1j * numbers.normal(size=shape) if complex_input else 0), requires_grad=True)
    transform, n = getattr(fb.fft, name), shape[dim]
    given = (2 * n - 1,) if complex_input else ()
    made = transform(leaf, *given, dim=dim, norm=norm)
    grad = numbers.normal(size=made.shape) + (1j * numbers.normal(size=made.shape) if made.is_complex() else 0)
    parts = [np.eye(n), 1j * np.eye(n)] if complex_input else [np.eye(n)]
    # What each part of an element adds to the result, times the gradient.
    columns = [transform(fb.tensor(p), *given, dim=1, norm=norm).numpy() for p in parts]
    along = np.moveaxis(grad, dim, -1)
    expected = [np.real(along.conj() @ c.T) for c in columns]
    expected = np.moveaxis(expected[0] + 1j * expected[1] if complex_input else expected[0], -1, dim)

    for again in (False, True):                       # by rules on arrays, and on Tensors
        (found,) = fb.autograd.grad(made, leaf, fb.tensor(grad), create_graph=again, retain_graph=True)
        np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 8, 12, 300])
@pytest.mark.parametrize("trailing", [(1,), (1, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dimensions_of_one_element_behind_those_transformed_stay(n: int, trailing: tuple[int, ...], dtype: type) -> None:
    a = np.random.default_rng(n).standard_normal((2, n, *trailing)).astype(dtype)
    x, near = fb.from_numpy(a), {"rtol": 1e-4, "atol": 1e-4} if dtype is np.float32 else {}

    for dims in ((1,), (0, 1), (1, 2), (2, 1), (0, -1)):
        np.testing.assert_allclose(fb.fft.fftn(x, dim=dims).numpy(), np.fft.fftn(a, axes=dims), **near)
        np.testing.assert_allclose(fb.fft.ifftn(x, dim=dims).numpy(), np.fft.ifftn(a, axes=dims), **near)
        np.testing.assert_allclose(fb.fft.rfftn(x, dim=dims).numpy(), np.fft.rfftn(a, axes=dims), **near)
        np.testing.assert_allclose(fb.fft.fftn(x.to(fb.complex128), dim=dims).numpy(), np.fft.fftn(a.astype(np.complex128), axes=dims))
    half = fb.fft.rfft(x, dim=1)
    np.testing.assert_allclose(fb.fft.irfft(half, n, dim=1).numpy(), a, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(fb.fft.fftn(x, (n, 1), dim=(1, -1)).numpy(), np.fft.fftn(a, (n, 1), axes=(1, -1)), **near)
