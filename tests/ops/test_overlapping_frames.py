"""Overlapping frames are added up in their order, whatever adds them."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
from flambeau.ops.fourier.windows import overlap_add


def added(frames, hop):
    *batch, count, n = frames.shape
    made = np.zeros((*batch, (count - 1) * hop + n), frames.dtype)
    for t in range(count):
        made[..., t * hop : t * hop + n] += frames[..., t, :]
    return made


@pytest.mark.parametrize("shape", [(2, 3), (1, 40, 16), (3, 5, 400), (2, 2, 126, 256), (40, 1, 64), (2, 3, 20000)], ids=str)
@pytest.mark.parametrize("hop", [1, 3, 64, 300])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
def test_sums_have_the_bits_of_adding_frame_by_frame(shape, hop, dtype):
    rng = np.random.default_rng(0)
    frames = rng.standard_normal(shape).astype(dtype)
    if dtype is np.complex64:
        frames = frames + 1j * rng.standard_normal(shape).astype(np.float32)

    made = overlap_add(fb.tensor(frames), hop)

    assert made.numpy().tobytes() == added(frames, hop).tobytes()


def test_copies_of_one_frame_are_added_without_being_made():
    frame = fb.tensor(np.random.default_rng(1).standard_normal(300))

    made = overlap_add(frame.expand(2, 50, 300), 70)

    assert made.numpy().tobytes() == added(np.broadcast_to(frame.numpy(), (2, 50, 300)), 70).tobytes()


@pytest.mark.parametrize(("n", "hop", "length"), [(256, 64, 8000), (16, 4, 100), (400, 100, 5000)])
def test_istft_gives_the_signal_back(n, hop, length):
    x = fb.tensor(np.random.default_rng(2).standard_normal((2, length)))
    window = fb.hann_window(n, dtype=fb.float64)

    spectra = fb.stft(x, n, hop, window=window, return_complex=True)
    back = fb.istft(spectra, n, hop, window=window, length=length)

    assert fb.allclose(back, x, rtol=1e-10, atol=1e-12)
