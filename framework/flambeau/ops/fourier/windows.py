"""Window functions, and the short-time Fourier transform they are made for."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from flambeau_kernels.cpu.creation import windows as kernel
from flambeau_kernels.cpu.tier import compiles

from ... import dtypes
from ..._warn import warn_once
from ...tensor import Tensor
from .. import _dispatch
from .._batching import leading
from .._spec import FUNCTION, METHOD, OPS, composite, describe, need_int, primitive
from .._spec.shapes import check_room

BLACKMAN = (0.42, 0.5, 0.08)
# Nuttall 1981, "Some windows with very good sidelobe behavior", IEEE Trans. ASSP 29(1), table II.
NUTTALL = (0.3635819, 0.4891775, 0.1365995, 0.0106411)


def _length(name: str, n: int) -> int:
    if not -(1 << 63) <= n < 1 << 63:
        raise ValueError(f"{name}(): Overflow when unpacking long long: the window length is {n}, and lengths are below 2**63")
    return n


def _made(name: str, values: Any, n: int, sym: bool, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    """A tensor of the window whose value at ``k`` of a span is ``values(k, span)``; a window of length 1 is 1."""
    from ..creation._options import _place, made_at

    span, d, place = n - 1 if sym else n, dtype or dtypes.get_default_dtype(), _place(device)
    check_room(name, (n,), d.numpy.itemsize, place is not None and place.type == "meta")
    return made_at(place, (n,), d.numpy, lambda: kernel.window(values, n, span, d.numpy), requires_grad)


# -- signal.windows --------------------------------------------------------------------------------------------------------


def _signal(name: str, values: Any, M: Any, sym: bool, dtype: Any, layout: Any, device: Any, requires_grad: bool) -> Tensor:
    from ...devices import strided

    if isinstance(M, Tensor) and M.ndim == 0 and not M.dtype.is_floating_point:
        M = M.item()
    if not isinstance(M, int):
        raise TypeError(f"{name}: the window length must be an int, got {type(M).__name__}")
    M = int(M)
    if _length(name, M) < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    if layout is not None and layout is not strided:
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    d = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype, name)
    if d not in (dtypes.float32, dtypes.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {d}")
    return _made(name, values, M, sym, d, device, requires_grad)


def _positive(what: str, value: Any) -> None:
    if value <= 0:
        raise ValueError(f"{what} must be positive, got: {value} instead.")


def signal_window(samples: str, takes_bools: bool = True) -> Any:
    """Declare a window of ``signal.windows``: the function checks its own arguments and returns the formula of the values.

    The public function takes the options of tensors too; with ``sym=False`` the window is one period of a periodic one.

    Args:
        takes_bools: whether True is a length of 1, as in PyTorch for most windows.
    """
    return lambda fn: _declare_window(fn, samples, "int | bool" if takes_bools else "int")


def _declare_window(fn: Any, samples: str, kind: str) -> Any:
    code = fn.__code__
    own = code.co_varnames[: code.co_argcount]
    defaults = dict(zip(own[len(own) - len(fn.__defaults__ or ()) :], fn.__defaults__ or (), strict=True))
    listed = "".join(f"{n}={defaults[n]!r}, " if n in defaults else f"{n}, " for n in own)
    text = (
        f"def {fn.__name__}(M: {kind}, *, {listed}sym=True, dtype=None, layout=None, device=None, requires_grad=False):\n"
        f"    return make(name, values({', '.join(own)}), M, sym, dtype, layout, device, requires_grad)\n"
    )
    scope: dict[str, Any] = {"make": _signal, "values": fn, "name": fn.__name__}
    exec(text, scope)  # our own text
    made = scope[fn.__name__]
    made.__doc__, made.__module__ = fn.__doc__, __name__
    composite(namespace="signal.windows", samples=samples)(made)
    return made


@signal_window("7; 8, sym=False")
def bartlett():
    """A triangle of `M` values that is 0 at both ends; `sym` as for `hann`."""
    return kernel.bartlett


@signal_window("7, a=(0.5, 0.3, 0.2)")
def general_cosine(a):
    """A sum of cosines with alternating signs and the coefficients `a`, a list; `M` and `sym` as for `hann`.

    Raises: TypeError, ValueError for coefficients that are no list or none.
    """
    if not isinstance(a, (list, tuple)):
        raise TypeError(f"general_cosine: Coefficients must be a list/tuple, got {type(a).__name__}")
    if not a:
        raise ValueError("general_cosine: Coefficients cannot be empty")
    return kernel.cosines(a)


@signal_window("7; 8, sym=False")
def blackman():
    """Three cosine terms, 0 at both ends: `M` values; `sym` as for `hann`.

    Source: Blackman and Tukey 1958, "The Measurement of Power Spectra".
    """
    return kernel.cosines(BLACKMAN)


@signal_window("7; 8, sym=False")
def nuttall():
    """Four cosine terms with very low side lobes: `M` values; `sym` as for `hann`.

    Source: Nuttall 1981, "Some windows with very good sidelobe behavior", IEEE Trans. ASSP 29(1).
    """
    return kernel.cosines(NUTTALL)


@signal_window("7, alpha=0.6")
def general_hamming(alpha=0.54):
    """``alpha - (1 - alpha) cos(2 pi k / span)`` at k from 0 to ``M - 1``; `M` and `sym` as for `hann`."""
    return kernel.cosines((alpha, 1 - alpha))


@signal_window("7; 8, sym=False")
def hamming():
    """`general_hamming` with 0.54, which nearly cancels the first side lobe; `M` and `sym` as for `hann`."""
    return kernel.cosines((0.54, 0.46))


@signal_window("7; 8, sym=False")
def hann():
    """A raised cosine, 0 at both ends: ``sin(pi k / span) ** 2`` at k from 0 to ``M - 1``.

    Args:
        M: how many values, >= 0; one value is 1.
        sym: a span of ``M - 1``, so that the ends are alike, for filters; otherwise of M, one period of a periodic
            window, for spectra.
        dtype: float32 or float64.
    Raises: ValueError for a negative M or another dtype.

    >>> fb.signal.windows.hann(5), fb.signal.windows.hann(4, sym=False)
    (tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000]), tensor([0.0000, 0.5000, 1.0000, 0.5000]))
    """
    return kernel.cosines((0.5, 0.5))


@signal_window("7; 8, sym=False", takes_bools=False)
def cosine():
    """Half a period of a sine, sampled at half integers, so never 0: `M` values; `sym` as for `hann`."""
    return kernel.half_sine


@signal_window("7, beta=8.0")
def kaiser(beta=12.0):
    """Kaiser's window of `M` values; `beta` trades the width of the main lobe for low side lobes; `sym` as for `hann`.

    Raises: ValueError for a negative `beta`; 0 gives all ones.
    Source: Kaiser and Schafer 1980, "On the use of the I0-sinh window for spectrum analysis", IEEE Trans. ASSP 28(1).
    """
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    return kernel.kaiser(beta)


@signal_window("7, std=2.0", takes_bools=False)
def gaussian(std=1.0):
    """A Gaussian of standard deviation `std`, in samples, about the middle of `M` values; `sym` as for `hann`.

    Raises: ValueError unless `std` is positive.
    """
    _positive("Standard deviation", std)
    return kernel.gaussian(std)


def _exponential(M: int, *, center=None, tau=1.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """``exp(-|k - center| / tau)`` at k from 0 to ``M - 1``.

    Args:
        center: in samples; the middle by default, and for symmetric windows always.
        tau: in samples, > 0.
        M, sym: as for `hann`.
    Raises: ValueError for a `tau` that is not positive, or a `center` with `sym`.
    """
    _positive("Tau", tau)
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    return _signal("exponential", kernel.exponential(center, tau), M, sym, dtype, layout, device, requires_grad)


_exponential.__name__ = "exponential"
composite(namespace="signal.windows", samples="7, tau=2.0; 8, center=1, sym=False")(_exponential)


# -- the top-level windows -------------------------------------------------------------------------------------------------


def _window(name: str, values: Any, n: Any, periodic: bool, dtype: Any, layout: Any, device: Any, requires_grad: bool) -> Tensor:
    from ..creation._options import _check_layout

    _check_layout(layout, name, error=RuntimeError)
    n = _length(name, need_int(name, "window_length", n))
    if n < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got window_length={n}")
    d = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype, name)
    if d.category != dtypes.FLOATING:
        raise RuntimeError(f"{name} expects floating point dtypes, got: {d}")
    return _made(name, values, n, not periodic, d, device, requires_grad)


@composite(samples="7; 8, False")
def hann_window(window_length: int, periodic=True, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """A raised cosine, ``sin(pi k / span) ** 2`` at k from 0 to ``window_length - 1``.

    Args:
        periodic: a span of `window_length`, one period of a periodic window, for spectra; otherwise one less, so that
            both ends are 0.
    Raises: RuntimeError for a negative length or a dtype that is not floating.

    >>> fb.hann_window(4), fb.hann_window(4, periodic=False)
    (tensor([0.0000, 0.5000, 1.0000, 0.5000]), tensor([0.0000, 0.7500, 0.7500, 0.0000]))
    """
    return _window("hann_window", kernel.cosines((0.5, 0.5)), window_length, periodic, dtype, layout, device, requires_grad)


@composite(samples="7; 8, False, 0.5")
def hamming_window(
    window_length: int, periodic=True, alpha=0.54, beta=0.46, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False
):
    """``alpha - beta cos(2 pi k / span)`` at k from 0; `window_length` and `periodic` as for `hann_window`."""
    return _window("hamming_window", kernel.cosines((alpha, beta)), window_length, periodic, dtype, layout, device, requires_grad)


@composite(samples="7; 8, False")
def blackman_window(window_length: int, periodic=True, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """Three cosine terms; `window_length` and `periodic` as for `hann_window`."""
    return _window("blackman_window", kernel.cosines(BLACKMAN), window_length, periodic, dtype, layout, device, requires_grad)


@composite(samples="7; 8, False")
def bartlett_window(window_length: int, periodic=True, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """A triangle; `window_length` and `periodic` as for `hann_window`."""
    return _window("bartlett_window", kernel.bartlett, window_length, periodic, dtype, layout, device, requires_grad)


@composite(samples="7; 8, False, 8.0")
def kaiser_window(
    window_length: int, periodic=True, beta=12.0, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False
):
    """Kaiser's window; `window_length` and `periodic` as for `hann_window`, `beta` as for `signal.windows.kaiser`."""
    return _window("kaiser_window", kernel.kaiser(beta), window_length, periodic, dtype, layout, device, requires_grad)


# -- short-time Fourier transform ------------------------------------------------------------------------------------------


def _centred(window: Tensor | None, n_fft: int, win_length: int, like: Tensor) -> Tensor | None:
    """The window of length `n_fft` with `window`, or ones, in its middle; None for all ones."""
    if win_length == n_fft:
        return window
    left = (n_fft - win_length) // 2
    inner = like.new_ones((win_length,), dtype=like.dtype.to_real()) if window is None else window
    return OPS["cat"].function([inner.new_zeros((left,)), inner, inner.new_zeros((n_fft - win_length - left,))])


_NO_WINDOW = (
    "A window was not provided. A rectangular window will be applied, which `window=torch.ones(n_fft)` asks for without this warning."
)


def _check_frames(name: str, n_fft: int, hop: int, win: int, window: Any, input: Tensor) -> None:
    for what, value in (("hop_length", hop), ("win_length", win)):
        if value <= 0:
            raise RuntimeError(f"{name}: expected {what} > 0, but got {what}={value}")
    if win > n_fft:
        raise RuntimeError(f"{name}: expected 0 < win_length <= n_fft, but got win_length={win} and n_fft={n_fft}")
    if window is not None and (window.ndim != 1 or window.shape[0] != win):
        raise RuntimeError(
            f"{name}: expected a 1D window tensor of size equal to win_length={win}, but got window with size {tuple(window.shape)}\n"
            f"{describe(input=input)}"
        )


@composite(
    surface=FUNCTION | METHOD, numpy_names=False, autocast=("float32", None),
    samples="x(32), 8, window=k(8), return_complex=True; x(2, 32), 8, 4, return_complex=True, center=False",
    read_in_python=("n_fft", "center", "pad_mode"),
)
def stft(
    input, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window=None, center=True, pad_mode="reflect",
    normalized=False, onesided: bool | None = None, return_complex: bool | None = None, align_to_window: bool | None = None
):
    """The transforms of windowed frames of a signal: ``(..., n) -> (..., frequencies, frames)``.

    Args:
        n_fft: length of each transform, in samples; `win_length`, at most that, of the part the window covers.
        hop_length: samples between the starts of frames; a quarter of `n_fft` by default.
        center: pad the signal, by `pad_mode`, so that frame t is centred at sample ``t * hop_length``.
        normalized: divide by the square root of `n_fft`.
        onesided: only non-negative frequencies; the default for real signals and windows.
        return_complex: must be given for real signals; False gives real and imaginary parts in a last dimension.
        align_to_window: without `center`, let the first window, not the first transform, begin with the signal.
    Raises: RuntimeError for lengths that do not fit.
    """
    if not isinstance(input, Tensor):
        raise TypeError(f"stft(): argument 'input' must be Tensor, not {type(input).__name__}")
    if align_to_window is not None and center:
        raise RuntimeError("stft align_to_window should only be set when center = false")
    if window is None:
        warn_once(f"{_NO_WINDOW} Other windows such as torch.hann_window or torch.hamming_window reduce spectral leakage.")
    if return_complex is False:
        warn_once(
            "stft with return_complex=False is deprecated. In a future pytorch release, stft will return complex tensors for all "
            "inputs, and return_complex=False will raise an error.\n"
            "Note: you can still call torch.view_as_real on the complex output to recover the old return format."
        )
    hop = n_fft // 4 if hop_length is None else need_int("stft", "hop_length", hop_length)
    win = n_fft if win_length is None else need_int("stft", "win_length", win_length)
    if input.dtype.category < dtypes.FLOATING or input.ndim not in (1, 2):
        raise RuntimeError(f"stft: expected a tensor of floating point or complex values with 1 or 2 dimensions\n{describe(input=input)}")
    x = input.unsqueeze(0) if input.ndim == 1 else input
    if center:
        pad = n_fft // 2
        x = OPS["nn.functional.pad"].function(x.unsqueeze(0), (pad, pad), pad_mode).squeeze(0)
    elif align_to_window:
        pad = (n_fft - win) // 2
        x = OPS["nn.functional.pad"].function(x, (pad, pad))
    n_fft = need_int("stft", "n_fft", n_fft)
    if not 0 < n_fft <= x.shape[-1]:
        raise RuntimeError(f"stft: expected 0 < n_fft <= {x.shape[-1]}, but got n_fft={n_fft}")
    _check_frames("stft", n_fft, hop, win, window, input)
    complex_in = x.is_complex() or window is not None and window.is_complex()
    if return_complex is None and not complex_in:
        raise RuntimeError("stft requires the return_complex parameter be given for real inputs. return_complex=True gives complex results")
    if onesided and complex_in:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    frames = x.unfold(-1, n_fft, hop)  # (batch, frames, n_fft)
    shape = _centred(window, n_fft, win, x)
    frames = frames if shape is None else frames * shape
    norm = "ortho" if normalized else None
    half = not complex_in if onesided is None else onesided
    made = OPS["fft.rfft" if half else "fft.fft"].function(frames, None, -1, norm).transpose(1, 2)
    made = made.squeeze(0) if input.ndim == 1 else made
    return made if return_complex or return_complex is None else OPS["view_as_real"].function(made)


_COMPILED_FROM = 512                                  # elements of frames; fewer are soon added by numpy


@primitive(surface=0, samples="of istft", batch_rule=leading)
def overlap_add(frames, hop):
    """The sum of frames that start `hop` apart: ``(..., count, n) -> (..., (count - 1) * hop + n)``."""


overlap_add.in_pieces("...__->..._")


@overlap_add.kernel
def _overlap_add(a, hop):
    count, n = a.shape[-2:]
    if a.size >= _COMPILED_FROM and a.dtype.kind in "fc" and compiles():
        from flambeau_kernels.cpu.fourier.overlap import overlapped

        # Complex samples are two numbers side by side.
        numbers, parts = (np.ascontiguousarray(a).view(a.real.dtype), 2) if a.dtype.kind == "c" else (a, 1)
        made = overlapped(numbers.reshape(prod(a.shape[:-2]), count, n * parts), hop * parts)
        return made.view(a.dtype).reshape(*a.shape[:-2], -1)
    made = np.zeros((*a.shape[:-2], (count - 1) * hop + n), a.dtype)
    for t in range(count):
        made[..., t * hop : t * hop + n] += a[..., t, :]
    return made


@overlap_add.shape
def _overlap_add_shape(frames, hop):
    count, n = frames.shape[-2:]
    return (*frames.shape[:-2], (count - 1) * hop + n), frames.dtype


@overlap_add.vjp
def _overlap_add_vjp(grad, frames_shape, hop):
    return grad.unfold(-1, frames_shape[-1], hop)


@composite(surface=FUNCTION | METHOD, samples="c(5, 9), 8, window=k(8)")
def istft(
    input, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window=None, center=True, normalized=False,
    onesided: bool | None = None, length: int | None = None, return_complex=False
):
    """The signal whose `stft` is nearest to `input`: ``(..., frequencies, frames) -> (..., n)``.

    Args: as for `stft`; `length` is how many samples to return, as many as the frames reach by default.
    Raises: RuntimeError where the windows leave samples uncovered.
    Source: Griffin and Lim 1984, "Signal estimation from modified short-time Fourier transform", IEEE Trans. ASSP 32(2).
    """
    if not isinstance(input, Tensor):
        raise TypeError(f"istft(): argument 'input' must be Tensor, not {type(input).__name__}")
    if not input.is_complex():
        raise RuntimeError("istft requires a complex-valued input tensor matching the output from stft with return_complex=True.")
    if window is None:
        warn_once(f"{_NO_WINDOW} Please provide the same window used by stft to make the inversion lossless.")
    hop = n_fft // 4 if hop_length is None else need_int("istft", "hop_length", hop_length)
    win = n_fft if win_length is None else need_int("istft", "win_length", win_length)
    if input.ndim not in (2, 3) or not input.numel():
        raise RuntimeError(f"istft: expected a tensor with 2 or 3 dimensions and at least one element\n{describe(input=input)}")
    half = onesided if onesided is not None else n_fft // 2 + 1 == input.shape[-2]
    wanted = n_fft // 2 + 1 if half else n_fft
    if input.shape[-2] != wanted:
        raise RuntimeError(
            f"istft: expected the frequency dimension (3rd to the last) of the input to be {wanted} for n_fft={n_fft} "
            f"and onesided={half}, but got {input.shape[-2]}"
        )
    if not 0 < hop <= win:
        raise RuntimeError(f"istft: expected 0 < hop_length <= win_length, but got hop_length={hop} and win_length={win}")
    _check_frames("istft", n_fft, hop, win, window, input)
    if return_complex:
        if half:
            raise RuntimeError("Cannot have onesided output if window or input is complex")
    elif window is not None and window.is_complex():
        raise RuntimeError("istft: Complex windows are incompatible with return_complex=False")
    spectra = (input.unsqueeze(0) if input.ndim == 2 else input).transpose(1, 2)
    norm = "ortho" if normalized else None
    frames = _frames_of(spectra, n_fft, norm, return_complex)
    made = _overlapped(frames, _centred(window, n_fft, win, input), hop, n_fft // 2 if center else 0, length)
    return made.squeeze(0) if input.ndim == 2 else made


istft.in_pieces("...__,_->..._")


def _frames_of(spectra: Tensor, n_fft: int, norm: Any, return_complex: bool) -> Tensor:
    if return_complex:
        return OPS["fft.ifft"].function(spectra, None, -1, norm)
    return OPS["fft.irfft"].function(spectra[..., : n_fft // 2 + 1], n_fft, -1, norm)


def _overlapped(frames: Tensor, window: Tensor | None, hop: int, start: int, length: Any) -> Tensor:
    """Frames, windowed once more, added up and divided by what the squared windows add up to."""
    count, n = frames.shape[-2:]
    w = frames.new_ones((n,)) if window is None else window
    total = overlap_add(frames * w, hop)
    weight = overlap_add((w * w).expand(1, count, n), hop)
    end = total.shape[-1] - start if length is None else min(start + length, total.shape[-1])
    total, weight = total[..., start:end], weight[..., start:end]
    least = float(weight.detach().abs().min()) if weight.numel() and _dispatch.may_be_checked(weight) else 1.0
    if not least > 1e-11:
        raise RuntimeError(f"istft: window overlap add min: {least:g}; the windows must cover every sample")
    made = total / weight
    missing = 0 if length is None else length - made.shape[-1]
    if missing > 0:
        import warnings

        warnings.warn(f"istft: the frames end {missing} samples before length={length}; padding with zeros", stacklevel=3)
        made = OPS["cat"].function([made, made.new_zeros((*made.shape[:-1], missing))], -1)
    return made
