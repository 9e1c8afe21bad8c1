"""Objects that native code refers to until the process ends.

When the interpreter ends it takes modules apart and frees what they hold, while threads of the pool still sleep in
their record and arrays are still being freed by the allocator's code. What those use is never freed.
"""
from __future__ import annotations

import ctypes
from typing import TypeVar

T = TypeVar("T")


def never_freed(thing: T) -> T:
    """`thing`, which from now on outlives the interpreter."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing
