"""The pool of Python's `multiprocessing`, which carries tensors as handles on their memory."""

from __future__ import annotations

from multiprocessing.pool import Pool
from multiprocessing.queues import SimpleQueue

__all__ = ["Pool", "SimpleQueue"]
