"""Where the random generators of a process stand: Python's, numpy's and ours, so that a pass can go on from there."""

from __future__ import annotations

import ctypes
import random
from typing import Any

import numpy as np

import flambeau as fb

__all__ = ["restore", "snapshot"]

# 624 words and a position, as numpy documents the state of MT19937.
_MT19937_BYTES = 625 * 4
_last: tuple[bytes, dict[str, Any]] | None = None


def snapshot() -> dict[str, Any]:
    """The states of the three global generators, made of tensors and plain numbers."""
    version, words, gauss = random.getstate()
    return {
        "python": (version, np.array(words, np.uint32).tobytes(), gauss),
        "numpy": _numpy_state(),
        "flambeau": fb.default_generator._stream.get_state().tobytes(),
    }


def restore(states: dict[str, Any]) -> None:
    """Put the generators where `snapshot` found them."""
    version, words, gauss = states["python"]
    random.setstate((version, tuple(np.frombuffer(words, np.uint32).tolist()), gauss))
    numpy = states["numpy"]
    if "key" in numpy:
        numpy = {**numpy, "state": {"key": np.frombuffer(numpy["key"], np.uint32), "pos": numpy["pos"]}}
    np.random.set_state(numpy)
    fb.default_generator._stream.set_state(np.frombuffer(states["flambeau"], np.uint8).copy())


def _numpy_state() -> dict[str, Any]:
    """As `numpy.random.get_state(legacy=False)`, which takes fifty microseconds: asked again only when something was drawn."""
    global _last
    source = np.random.get_bit_generator()  # type: ignore[attr-defined]
    if type(source) is not np.random.MT19937:
        return np.random.get_state(legacy=False)  # type: ignore[return-value]
    memory = ctypes.string_at(source.ctypes.state_address, _MT19937_BYTES)
    # A normal number that was drawn in advance could have been used up without a change of the words.
    if _last is None or _last[0] != memory or _last[1]["has_gauss"]:
        state: Any = np.random.get_state(legacy=False)
        words = state.pop("state")
        _last = memory, {**state, "key": words["key"].tobytes(), "pos": int(words["pos"])}
    return _last[1]
