"""A backward that runs inside other backwards so deep that Python's stack would overflow: in a thread with a stack of its own."""

from __future__ import annotations

import contextvars
import ctypes
import threading
from collections.abc import Callable
from typing import Any

from .. import _state

_LOOKS_UP = 0.5  # seconds between two moments at which a waiting thread can be interrupted


def in_a_thread(function: Callable[..., Any], *args: Any) -> Any:
    """``function(*args)`` in a new thread that has the state of this one, which waits.

    Raises: what `function` raises. An interruption of the waiting thread is passed on to the one that works.
    """
    state = dict(_state.local.__dict__)
    here, there = _state.local.backward, _state.Backward()
    there.roots, there.wanted = here.roots, here.wanted
    outcome: list[Any] = [None, None]

    def work() -> None:
        # Both threads count as one: this one starts with the other's settings, and leaves them as they were.
        _state.local.__dict__.update(state, backward=there)
        try:
            outcome[0] = function(*args)
        except BaseException as error:
            outcome[1] = error

    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), name="flambeau backward", daemon=True)
    thread.start()
    while thread.is_alive():
        try:
            thread.join(_LOOKS_UP)
        except KeyboardInterrupt:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(KeyboardInterrupt))
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]
