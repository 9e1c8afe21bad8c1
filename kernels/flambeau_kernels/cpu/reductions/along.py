"""Operations along dimensions of small arrays, answered by a native builtin once a program has proved to call them often.

``sums.call(a, dim, keepdim)`` is None until then, and for every argument the builtin was not made for; the caller then asks
``sums.learn(a, dim, keepdim)``, which counts, and takes the fallback if that has no answer either. The builtins have the
bits of the fallback, so which of the two answers makes no difference but to time. ``sums.enter(object, dim, keepdim)`` is
`call` for an object that holds an array, and makes objects (`engine/calls/objects.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels import engines

from ...takeover import AT_ONCE, KERNEL, Waiting

__all__ = ["ALL", "ONE", "SEVERAL", "SEVERAL_OR_NONE", "Along"]

ndarray = np.ndarray
# What `dim` may be beside an int, as `engine.calls.along` has it: no more, None for all, and a list or tuple as well, an empty one of which
# means all dimensions, or none.
ONE, ALL, SEVERAL, SEVERAL_OR_NONE = range(4)
NUMBER, ARRAY = 1, 2
# Elements up to which numpy does the work, and small kernels do the same.
MOST = 4096
_COST = 2.0  # of a call by numpy in calls on few elements: it loses ten microseconds and more

_made: list[Along] = []
_learning = threading.Lock()


def refuse(*args: Any) -> None:
    """Stands for a builtin that is not there yet."""


class Along:
    """An operation along dimensions.

    Args:
        task: of `along_loops.TASKS`, which tells the kernel for a dtype; `options` go to it.
        dims: what `dim` may be: `ONE`, `ALL`, `SEVERAL` or `SEVERAL_OR_NONE`.
        most_along: elements of the longest line.
        takes_k: whether there is a fourth argument, a number from 1 to the length of a line.
        takes_array: whether it is another array of the same dtype, of at most `most_beside` elements.
        at_once: learn it in the first call, as numpy would give other bits.
    """

    __slots__ = ("_head", "_most_along", "_most_beside", "_options", "_price", "_takes", "_task", "_waiting", "call", "dims", "enter")

    def __init__(self, task: str, *options: Any, dims: int = ONE, most_along: int = MOST, takes_k: bool = False,
                 takes_array: bool = False, most_beside: int = MOST, at_once: bool = False) -> None:  # fmt: skip
        self._task, self._options, self.dims = task, options, dims
        self._takes = NUMBER if takes_k else ARRAY if takes_array else 0
        self._most_along, self._most_beside = most_along, most_beside
        self._price = AT_ONCE if at_once else KERNEL
        self.call: Callable[..., Any] = refuse
        self.enter: Callable[..., Any] = refuse
        self._head: Any = None
        self._waiting: dict[np.dtype, Waiting | None] = {}  # None: nothing is to come
        _made.append(self)

    def __call__(self, a: Any, *args: Any) -> Any:
        """The result, or None if the fallback is to find it."""
        found = self.call(a, *args)
        return self.learn(a, *args) if found is None else found

    def learn(self, a: Any, *args: Any) -> Any:
        """Count a call that the builtin did not answer; the answer if this is the one by which it learned to."""
        if a.__class__ is not ndarray:
            return None
        dtype = a.dtype
        if dtype not in self._waiting:
            self._waiting[dtype] = Waiting(self._price)
        waiting = self._waiting[dtype]
        if waiting is not None and (compile := waiting.due(_COST)) is not None:
            self._teach(dtype, compile)
            return self.call(a, *args)
        return None

    def _teach(self, dtype: np.dtype, compile: bool) -> None:
        """Let the builtin answer for `dtype` if its kernel is in the cache, or may be compiled now."""
        if not engines.chosen().launches or not dtype.isnative:
            return
        with _learning:
            if self._waiting.get(dtype, self) is None:  # another thread did
                return
            from ...engine.builtins import launchers

            if not launchers.available()[0]:
                return
            from ...engine.calls import along, objects
            from ...engine.launching import call

            loops = import_module(".along_loops", __package__)
            task = loops.TASKS[self._task](dtype, *self._options)
            if task is None:
                self._waiting[dtype] = None
                return
            if not compile and not call.is_cached(task.kernel, along.types_of(dtype, task, self._takes == ARRAY), task.constants):
                return
            if self._head is None:
                self._head = along.Head(self.dims, MOST, self._most_along, self._takes, self._most_beside)
            self._head.add(f"{self._task} {self._options}", dtype, task)
            self._waiting[dtype] = None
            self.call, self.enter = self._head.builtin, objects.entering(self._head.builtin)

    def forget(self) -> None:
        """Take the fallback again."""
        self.call = self.enter = refuse
        self._head = None
        self._waiting.clear()


def _forget() -> None:
    for each in _made:
        each.forget()


kernels.plans_kept_elsewhere.append(_forget)
