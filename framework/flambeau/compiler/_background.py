"""Kernels that are compiled while the operations they stand for go on answering.

What is fused has the bits of its operations, so it makes no difference to results when a kernel takes over. With
``torch._inductor.config.compile_threads`` 1 a call waits for what it is the first to need; with more, one thread compiles, and ends
when nothing is left to do. LLVM gives up the interpreter lock.
"""

from __future__ import annotations

import collections
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ..tensor import Tensor
from ._formulas import Number

__all__ = ["Kernel", "stand_in", "wait"]

_jobs: collections.deque[Kernel] = collections.deque()
_change = threading.Condition()
_running = 0                                          # jobs that are being done


class Kernel:
    """Something to compile. Args: prepare: does it; called once, in any thread."""

    __slots__ = ("is_ready", "prepare", "_asked")

    def __init__(self, prepare: Callable[[], Any]) -> None:
        self.prepare = prepare
        self.is_ready = self._asked = False

    def ready(self) -> bool:
        """Whether the kernel may be called now; if not, it is about to be compiled."""
        if self.is_ready:
            return True
        from .._inductor import config

        if not self._asked:
            self._asked = True
            if config.compile_threads <= 1:
                self.compile()
            else:
                _start(self)
        return self.is_ready

    def compile(self) -> None:
        """Prepare it; it is ready then."""
        try:
            self.prepare()
        except Exception:  # the call that needs the kernel meets the same, and says it
            pass
        finally:
            self.is_ready = True


def _start(kernel: Kernel) -> None:
    global _running
    with _change:
        _jobs.append(kernel)
        if _running == 0:
            _running = 1
            threading.Thread(target=_work, name="flambeau compile").start()


def _work() -> None:
    global _running
    while True:
        with _change:
            if not _jobs:
                _running = 0
                _change.notify_all()
                return
            kernel = _jobs.popleft()
        kernel.compile()


def wait(timeout: float | None = None) -> bool:
    """Wait until nothing is left to compile, `timeout` seconds at most. Returns: whether that is so."""
    with _change:
        return _change.wait_for(lambda: _running == 0, timeout)


def _forget_jobs() -> None:
    # In the child of a fork no thread does them.
    global _change, _running
    for kernel in _jobs:
        kernel._asked = False
    _jobs.clear()
    _change, _running = threading.Condition(), 0


def stand_in(look: Any) -> Any:
    """An array with the shape, strides and dtype of a tensor or array, and next to no memory, which nothing may read; or a number."""
    if isinstance(look, Number):
        return np.asarray(look.value)
    array = look._array if isinstance(look, Tensor) else look
    dtype = np.dtype(look.dtype.numpy) if isinstance(look, Tensor) else array.dtype
    return np.lib.stride_tricks.as_strided(np.empty(1, dtype), array.shape, array.strides)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_jobs)
