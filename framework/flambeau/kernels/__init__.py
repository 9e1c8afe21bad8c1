"""Kernels: which run and why (`explain`), and kernels of your own (`elementwise`, `reduction`, `loop`)."""

from __future__ import annotations

from . import words
from ._elementwise import elementwise
from ._explain import backend, cache_folder, explain, set_backend, warmup

__all__ = ["backend", "cache_folder", "elementwise", "explain", "set_backend", "warmup", "words"]
