"""Whether the program would catch what an operation raises: then it has to be computed where it is called."""

from __future__ import annotations

import contextlib
import dis
import functools
import itertools
import os
import sys
from types import CodeType, FrameType
from typing import Any

from ..autograd.tape import OWN_FILES, is_own_file

_CALLER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_functions.py")  # which calls compiled functions
_PACKAGE = __name__.partition(".")[0]


def would_be_caught() -> bool:
    """Whether the operation that is called now is inside a ``try`` of the compiled function, or of what that calls.

    So it is inside a ``with`` whose context manager may pass over exceptions: any but those of this package and `nullcontext`.
    """
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        own = OWN_FILES.get(name)
        if own is False or own is None and not is_own_file(name):
            if any(start <= frame.f_lasti < end and not _lets_pass(frame, names) for start, end, names in _tried(frame.f_code)):
                return True
        elif name == _CALLER:
            return False
        frame = frame.f_back  # type: ignore[assignment]  # None behind the last
    return False


@functools.lru_cache(4096)
def _tried(code: CodeType) -> tuple[tuple[int, int, tuple[str, ...]], ...]:
    """The parts of `code`, in bytes, that ``except``, ``finally`` or ``with`` are of.

    With them go the names, as ``("fb", "no_grad")``, of what a ``with`` enters or calls for that; none where that is not known.
    """
    if not code.co_exceptiontable:
        return ()
    found = list(dis.get_instructions(code))
    after = {one.offset: following.opname for one, following in itertools.pairwise(found) if one.opname == "PUSH_EXC_INFO"}
    entries: list[Any] = [e for e in dis.Bytecode(code).exception_entries if e.target in after]  # type: ignore[attr-defined]
    begins: dict[int, int] = {}                       # of what a handler is for, by the handler
    for e in entries:
        begins[e.target] = min(begins.get(e.target, e.start), e.start)
    names = {
        target: _entered(found, begin) if after[target] == "WITH_EXCEPT_START" else ()
        for target, begin in begins.items()
    }  # fmt: skip
    return tuple([(e.start, e.end, names[e.target]) for e in entries])


def _entered(code: list[dis.Instruction], begin: int) -> tuple[str, ...]:
    """The names of what the ``with`` enters whose body begins at the byte `begin`: an object, or what is called to make one."""
    before = [k for k, one in enumerate(code) if one.offset < begin]
    at = next((k for k in reversed(before) if code[k].opname == "BEFORE_WITH" or code[k].argval == "__exit__"), 0)
    while at > 0 and code[at].opname in ("BEFORE_WITH", "COPY", "LOAD_SPECIAL"):
        at -= 1
    places = code[at].positions
    if at == 0 or places is None or places.lineno is None:
        return ()
    first, last = (places.lineno, places.col_offset), (places.end_lineno, places.end_col_offset)
    expression = []
    for one in reversed(code[: at + 1]):
        p = one.positions
        if p is None or p.lineno is None or not first <= (p.lineno, p.col_offset) <= (p.end_lineno, p.end_col_offset) <= last:
            break
        expression.append(one)
    expression.reverse()
    while expression and expression[0].opname == "PUSH_NULL":
        expression.pop(0)
    if not expression or not expression[0].opname.startswith(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF")):
        return ()
    if any("JUMP" in one.opname for one in expression):  # one of several
        return ()
    names = [expression[0].argval]
    for one in expression[1:]:
        if one.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            break
        names.append(one.argval)
    called = expression[-1].opname.startswith("CALL")
    return tuple(names) if called or len(names) == len(expression) else ()


def _lets_pass(frame: FrameType, names: tuple[str, ...]) -> bool:
    """Whether what these names stand for in `frame` enters something that passes exceptions on."""
    if not names:
        return False
    missing = object()
    found: Any = missing
    for scope in (frame.f_locals, frame.f_globals, frame.f_builtins):
        found = scope.get(names[0], missing)
        if found is not missing:
            break
    for name in names[1:]:
        found = getattr(found, name, missing)
    if found is contextlib.nullcontext or isinstance(found, contextlib.nullcontext):
        return True
    made_by = found if isinstance(found, type) or hasattr(found, "__code__") or hasattr(found, "__func__") else type(found)
    return getattr(made_by, "__module__", "").partition(".")[0] == _PACKAGE


__all__ = ["would_be_caught"]
