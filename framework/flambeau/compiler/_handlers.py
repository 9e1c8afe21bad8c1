"""Whether the program would catch what an operation raises: then it has to be computed where it is called."""

from __future__ import annotations

import dis
import functools
import itertools
import os
import sys
from types import CodeType

from ..autograd.tape import OWN_FILES, is_own_file

_CALLER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_functions.py")  # which calls compiled functions


def would_be_caught() -> bool:
    """Whether the operation that is called now is inside a ``try`` of the compiled function, or of what that calls."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        own = OWN_FILES.get(name)
        if own is False or own is None and not is_own_file(name):
            if any(start <= frame.f_lasti < end for start, end in _tried(frame.f_code)):
                return True
        elif name == _CALLER:
            return False
        frame = frame.f_back  # type: ignore[assignment]  # None behind the last
    return False


@functools.lru_cache(4096)
def _tried(code: CodeType) -> tuple[tuple[int, int], ...]:
    """The parts of `code`, in bytes, that ``except`` or ``finally`` clauses are of; those of ``with`` pass exceptions on."""
    if not code.co_exceptiontable:
        return ()
    found = list(dis.get_instructions(code))
    after = {one.offset: following.opname for one, following in itertools.pairwise(found) if one.opname == "PUSH_EXC_INFO"}
    entries = dis.Bytecode(code).exception_entries    # type: ignore[attr-defined]
    return tuple([(e.start, e.end) for e in entries if after.get(e.target, "WITH_EXCEPT_START") != "WITH_EXCEPT_START"])
