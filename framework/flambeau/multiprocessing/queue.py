"""The queues of Python's `multiprocessing`, which carry tensors as handles on their memory."""

from __future__ import annotations

from multiprocessing.queues import Queue, SimpleQueue
from multiprocessing.reduction import ForkingPickler

__all__ = ["ForkingPickler", "Queue", "SimpleQueue"]
