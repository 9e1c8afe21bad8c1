"""Kernels: which run and why (`explain`), and kernels of your own (`elementwise`, `reduction`, `loop`)."""

from __future__ import annotations

from . import words
from ._elementwise import elementwise
from ._explain import backend, cache_folder, explain, set_backend, warmup
from ._loop import Loop, loop
from ._reduction import reduction

__all__ = ["Loop", "backend", "cache_folder", "elementwise", "explain", "loop", "reduction", "set_backend", "warmup", "words"]
