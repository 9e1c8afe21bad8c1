"""Windows against scipy, and the short-time transform against its definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.signal.windows as sw

import flambeau as fb
from comparing import disagreements, peak_of

W = fb.signal.windows
OF_SCIPY = {
    "bartlett": ({}, sw.bartlett, ()), "blackman": ({}, sw.blackman, ()), "cosine": ({}, sw.cosine, ()), "hann": ({}, sw.hann, ()),
    "hamming": ({}, sw.hamming, ()), "nuttall": ({}, sw.nuttall, ()), "kaiser": ({"beta": 8.0}, sw.kaiser, (8.0,)),
    "gaussian": ({"std": 2.0}, sw.gaussian, (2.0,)), "general_hamming": ({"alpha": 0.6}, sw.general_hamming, (0.6,)),
    "general_cosine": ({"a": [0.5, 0.3, 0.2]}, sw.general_cosine, ([0.5, 0.3, 0.2],)),
    "exponential": ({"tau": 3.0}, lambda n, tau, sym: sw.exponential(n, None, tau, sym), (3.0,)),
}  # fmt: skip


@pytest.mark.parametrize("sym", [True, False])
@pytest.mark.parametrize("name", OF_SCIPY)
def test_windows_agree_with_scipy(name, sym):
    options, of_scipy, args = OF_SCIPY[name]
    for n in (1, 2, 7, 8):
        made = getattr(W, name)(n, sym=sym, dtype=fb.float64, **options)

        np.testing.assert_allclose(made.numpy(), of_scipy(n, *args, sym=sym), atol=1e-14)


@pytest.mark.parametrize("name", ["hann", "hamming", "blackman", "bartlett", "kaiser"])
def test_top_level_windows_are_periodic_by_default(name):
    made = getattr(fb, f"{name}_window")(6)

    assert made.tolist() == getattr(W, name)(6, sym=False).tolist()
    assert made.dtype is fb.float32


def test_windows_refuse_what_has_no_meaning():
    with pytest.raises(ValueError, match="M=-1"):
        W.hann(-1)
    with pytest.raises(ValueError, match="positive"):
        W.gaussian(3, std=0)
    with pytest.raises(RuntimeError, match="window_length=-1"):
        fb.hann_window(-1)


def test_stft_is_the_transform_of_each_windowed_frame():
    x = np.random.default_rng(0).standard_normal(20)
    window = fb.hann_window(6, dtype=fb.float64)
    made = fb.stft(fb.tensor(x), 8, 3, 6, window, center=False, return_complex=True)

    padded = np.concatenate([[0], window.numpy(), [0]])
    frames = np.stack([x[t : t + 8] * padded for t in range(0, 13, 3)])
    np.testing.assert_allclose(made.numpy(), np.fft.rfft(frames).T, atol=1e-12)


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("complex_signal", [True, False])
def test_istft_undoes_stft(normalized, complex_signal):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 24)) + (1j * rng.standard_normal((2, 24)) if complex_signal else 0)
    options = {"n_fft": 8, "hop_length": 2, "window": fb.hann_window(8, dtype=fb.float64), "normalized": normalized}
    spectra = fb.stft(fb.tensor(x), return_complex=True, **options)
    back = fb.istft(spectra, length=24, onesided=not complex_signal, return_complex=complex_signal, **options)

    np.testing.assert_allclose(back.numpy(), x, atol=1e-12)


def test_istft_refuses_windows_that_leave_gaps():
    with pytest.raises(RuntimeError, match="cover"):
        fb.istft(fb.ones(3, 4, dtype=fb.complex64), 4, window=fb.zeros(4))


def test_the_gradient_of_istft_is_its_adjoint():
    rng = np.random.default_rng(0)
    x = fb.tensor(rng.standard_normal((5, 4)) + 1j * rng.standard_normal((5, 4)), requires_grad=True)
    way = fb.tensor(rng.standard_normal((5, 4)) + 1j * rng.standard_normal((5, 4)))
    out = fb.istft(x, 8, window=fb.ones(8))
    cotangent = fb.tensor(rng.standard_normal(out.shape))
    (g,) = fb.autograd.grad(out, x, cotangent)

    assert (way.conj() * g).sum().numpy().real == pytest.approx((fb.istft(way, 8, window=fb.ones(8)) * cotangent).sum().item())


def test_lengths_of_windows_beyond_all_memory_are_refused(oracle: Any) -> None:
    names = ("hann_window", "hamming_window", "kaiser_window", "bartlett_window", "blackman_window", "signal.windows.gaussian")
    programs = [f"torch.{name}({length})" for name in names for length in ("1 << 62", "1 << 63", "1 << 64")]
    programs += ["torch.hann_window(torch.tensor(4))"]
    programs += [f"torch.hann_window({length}, device='meta')" for length in ("1 << 62", "1 << 63")]

    assert not disagreements(oracle, "\n".join(programs))


def test_long_windows_take_the_memory_of_their_results() -> None:
    with peak_of() as peak:
        window = fb.hann_window(3 << 20)

    assert peak() < 1.5 * window.nbytes
    assert fb.equal(window[1 << 16 :: 1 << 16], fb.hann_window(3 << 20, dtype=fb.float64).float()[1 << 16 :: 1 << 16])
