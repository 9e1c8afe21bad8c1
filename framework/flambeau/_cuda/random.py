"""Random numbers on CUDA devices: Philox counters, so each element is a function of seed, draw and its place alone.

The numbers are those of `flambeau_kernels.cpu.random.philox.PhiloxStream`, computed where they are needed. The functions here
stand in for those of `flambeau_kernels.cpu.random` when the array to be filled is a device's.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from flambeau_kernels.cpu.random.philox import KEY_STEPS, ROUNDS, PhiloxStream
from flambeau_kernels.cuda import launch
from flambeau_kernels.formula import Formula
from flambeau_kernels.vocabulary import cos, log1p, sin, sqrt, where

from ..tensor import wrap
from . import arrays

__all__ = ["DeviceStream", "default_stream", "restart_all"]

_UINT64, _FLOAT32, _FLOAT64 = np.dtype(np.uint64), np.dtype(np.float32), np.dtype(np.float64)


class DeviceStream(PhiloxStream):
    """The stream of a device's generator."""

    def manual_seed(self, seed: int) -> None:
        self._seed, self.offset = seed % (1 << 64), 0

    def seed(self) -> int:
        self.manual_seed(secrets.randbits(63))
        return self._seed

    def clone(self) -> DeviceStream:
        return DeviceStream(self._seed, self.offset)


_defaults: dict[int, DeviceStream] = {}


def default_stream(index: int) -> DeviceStream:
    """The stream of the default generator of device `index`, which starts with the seed of the CPU's."""
    found = _defaults.get(index)
    if found is None:
        from ..random import default_generator

        found = _defaults[index] = DeviceStream(default_generator.initial_seed())
    return found


def restart_all(seed: int) -> None:
    """Start the default streams of all devices with `seed`."""
    for stream in _defaults.values():
        stream.manual_seed(seed)


def _stream_for(stream: Any, a: Any) -> DeviceStream:
    from ..random import default_generator

    if isinstance(stream, DeviceStream):
        return stream
    if stream is default_generator._stream:
        return default_stream(a.device.id)
    raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu': make it by torch.Generator(device='cuda')")


# -- formulas ----------------------------------------------------------------------------------------------------------------


def _block(block, offset, seed):
    """The four words of a counter block, ten rounds of Philox4x32."""
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    c0, c1, c2, c3 = block & 0xFFFFFFFF, block >> 32, offset & 0xFFFFFFFF, offset >> 32
    for _ in range(ROUNDS):
        first, second = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1 = (second >> 32) ^ c1 ^ k0, second & 0xFFFFFFFF
        c2, c3 = (first >> 32) ^ c3 ^ k1, first & 0xFFFFFFFF
        k0, k1 = (k0 + KEY_STEPS[0]) & 0xFFFFFFFF, (k1 + KEY_STEPS[1]) & 0xFFFFFFFF
    return c0, c1, c2, c3


def _word(i, offset, seed):
    c0, c1, c2, c3 = _block(i >> 2, offset, seed)
    lane = i & 3
    return where(lane < 2, where(lane == 0, c0, c1), where(lane == 2, c2, c3))


def _double(i, offset, seed):
    c0, c1, c2, c3 = _block(i >> 1, offset, seed)
    odd = (i & 1) == 1
    return (where(odd, c2, c0) << 32) | where(odd, c3, c1)


def _unit24(i, offset, seed):
    return (_word(i, offset, seed) >> 8) * 2.0**-24


def _unit11(i, offset, seed):
    return (_word(i, offset, seed) >> 21) * 2.0**-11


def _unit8(i, offset, seed):
    return (_word(i, offset, seed) >> 24) * 2.0**-8


def _unit53(i, offset, seed):
    return (_double(i, offset, seed) >> 11) * 2.0**-53


def _normal32(i, offset, seed):
    c0, c1, c2, c3 = _block(i >> 2, offset, seed)
    second = (i & 2) == 2
    radius = sqrt(-2.0 * log1p(-(where(second, c2, c0) * 2.0**-32)))
    angle = where(second, c3, c1) * 2.0**-32 * 6.283185307179586
    return radius * where((i & 1) == 1, sin(angle), cos(angle))


def _normal53(i, offset, seed):
    c0, c1, c2, c3 = _block(i >> 1, offset, seed)
    radius = sqrt(-2.0 * log1p(-((((c0 << 32) | c1) >> 11) * 2.0**-53)))
    angle = (((c2 << 32) | c3) >> 11) * 2.0**-53 * 6.283185307179586
    return radius * where((i & 1) == 1, sin(angle), cos(angle))


_UNIT = {"float64": Formula(_unit53), "float16": Formula(_unit11), "bfloat16": Formula(_unit8)}
_UNIT32, _DOUBLE = Formula(_unit24), Formula(_double)
_NORMAL32, _NORMAL53 = Formula(_normal32), Formula(_normal53)


def _drawn(formula: Formula, stream: DeviceStream, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """One number for each element of `shape`, in row-major order; the stream goes on to its next draw."""
    made = arrays.library().ndarray(shape, dtype)
    numbers = arrays.library().arange(made.size, dtype=_UINT64).reshape(shape)
    seeds = (np.uint64(stream.offset), np.uint64(stream.initial_seed()))
    launch.launch(formula, (numbers, *seeds), (made,), _UINT64)
    stream.advance()
    return made


def _unit(stream: Any, a: Any) -> Any:
    """Uniform numbers in [0, 1) like `a`, as a Tensor in float32 or float64."""
    name = a.dtype.name
    return wrap(_drawn(_UNIT.get(name, _UNIT32), _stream_for(stream, a), a.shape, _FLOAT64 if name == "float64" else _FLOAT32))


def _put(a: Any, values: Any) -> Any:
    launch.copy(a, values._array)
    return a


# -- draws, as `flambeau_kernels.cpu.random` has them --------------------------------------------------------------------------


def uniform(stream: Any, a: Any, low: float = 0.0, high: float = 1.0) -> Any:
    if a.dtype.kind == "c":
        raise NotImplementedError("rand: complex numbers are not drawn on device cuda yet")
    u = _unit(stream, a)
    return _put(a, u if (low, high) == (0, 1) else u * (high - low) + low)


def normal(stream: Any, a: Any, mean: float = 0.0, std: float = 1.0) -> Any:
    if a.dtype.kind == "c":
        raise NotImplementedError("randn: complex numbers are not drawn on device cuda yet")
    wide = a.dtype == _FLOAT64
    z = wrap(_drawn(_NORMAL53 if wide else _NORMAL32, _stream_for(stream, a), a.shape, _FLOAT64 if wide else _FLOAT32))
    return _put(a, z if (mean, std) == (0, 1) else z * std + mean)


def log_normal(stream: Any, a: Any, mean: float, std: float) -> Any:
    wide = a.dtype == _FLOAT64
    z = wrap(_drawn(_NORMAL53 if wide else _NORMAL32, _stream_for(stream, a), a.shape, _FLOAT64 if wide else _FLOAT32))
    return _put(a, (z * std + mean).exp())


def bernoulli(stream: Any, a: Any, p: Any) -> Any:
    u = wrap(_drawn(_UNIT["float64"], _stream_for(stream, a), a.shape, _FLOAT64))
    return _put(a, u < (wrap(p).double() if hasattr(p, "shape") else p))


def exponential(stream: Any, a: Any, lambd: float) -> Any:
    return _put(a, -(-_unit(stream, a)).log1p() / lambd)


def cauchy(stream: Any, a: Any, median: float, sigma: float) -> Any:
    return _put(a, ((_unit(stream, a) - 0.5) * np.pi).tan() * sigma + median)


def geometric(stream: Any, a: Any, p: float) -> Any:
    return _put(a, ((-_unit(stream, a)).log1p() / float(np.log1p(-p))).ceil().clamp(min=1))


def _words(stream: Any, a: Any) -> Any:
    return _drawn(_DOUBLE, _stream_for(stream, a), a.shape, _UINT64)


_RANGE = Formula(lambda word, span: word % span, "in_range")


def randint(stream: Any, a: Any, low: int, high: int) -> Any:
    words = _words(stream, a)
    span = high - low
    if span < 1 << 64:
        launch.launch(_RANGE, (words, np.uint64(span)), (words,), _UINT64)
    return _put(a, wrap(words.view(np.int64)) + low)


def random_bits(stream: Any, a: Any) -> Any:
    kind = a.dtype.kind
    if kind == "b":
        return randint(stream, a, 0, 2)
    digits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}.get(a.dtype.name) or a.dtype.itemsize * 8 - (kind == "i")
    return randint(stream, a, 0, 1 << digits) if digits < 64 else _put(a, wrap(_words(stream, a)))


def _not_drawn(name: str) -> Any:
    """What stands for a function of the CPU's that has none here, or None for another name."""
    from flambeau_kernels.cpu import random as of_cpu

    def missing(*_: Any) -> Any:
        raise NotImplementedError(f"{name}: not drawn on device cuda yet. Draw on the CPU and move the result: .cuda()")

    return missing if name in of_cpu.__all__ else None


def __getattr__(name: str) -> Any:
    made = None if name.startswith("__") else _not_drawn(name)
    if made is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return made
