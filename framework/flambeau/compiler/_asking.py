"""Whether a function that is to be one graph may ask for a value: it may where its way does not hang on it.

PyTorch records numbers that `item()` gives as symbols and turns ``assert`` into a check that runs with the graph, and it refuses branches.
Here Python has the number itself, and what is behind it is recorded as before. So nothing but a branch has to be refused.
"""

from __future__ import annotations

import dis
import functools
import itertools
import os
import sys
from types import CodeType
from typing import NoReturn

from ..autograd.tape import OWN_FILES, is_own_file

__all__ = ["may_ask", "refuse"]

_HERE = os.path.dirname(os.path.abspath(__file__))
_OF_DEFERRED = os.path.join(_HERE, "_deferred.py")    # what settles a pending result before a method of it runs
_RECORDING = {_OF_DEFERRED, os.path.abspath(__file__)}
_RECORDING.update(os.path.join(_HERE, f"{name}.py") for name in ("_recorder", "_whole", "_functions"))
# Methods that give a number, text or an array, with which the program goes on.
_GIVE_VALUES = {"item", "tolist", "numpy", "__int__", "__float__", "__format__", "__bool__"}


def refuse(why: str) -> NoReturn:
    """Raise Unsupported: a function that is to be one graph is not, because of `why`."""
    from .._dynamo import exc

    raise exc.Unsupported(
        f"fullgraph=True: {why}, where the function is to be one graph; leave values in tensors and choose by where() or cond() instead of "
        "branching on them, do not print them, or compile with fullgraph=False"
    )


def may_ask() -> bool:
    """Whether the program, which is asking for a value now, does not branch on it, or does so in an ``assert`` alone.

    A function of this package may ask: `while_loop` for its condition, `zeros` for a size.
    """
    frame = sys._getframe(1)
    method = None
    while frame is not None:
        name = frame.f_code.co_filename
        own = OWN_FILES.get(name)
        if own is False or own is None and not is_own_file(name):
            return method in _GIVE_VALUES and not _branches(frame.f_code, frame.f_lasti)
        if name not in _RECORDING:
            return True
        if name == _OF_DEFERRED and frame.f_code.co_name == "method":
            method = frame.f_locals["name"]
        frame = frame.f_back  # type: ignore[assignment]  # None behind the last
    return False


@functools.lru_cache(4096)
def _branches(code: CodeType, place: int) -> bool:
    """Whether what runs at `place`, in bytes, decides over a jump by itself or by its result, other than that of an ``assert``."""
    found = [one for one in dis.get_instructions(code) if one.opname not in ("TO_BOOL", "NOT_TAKEN", "EXTENDED_ARG")]
    at = max((k for k, one in enumerate(found) if one.offset <= place), default=0)
    for one, following in itertools.pairwise(found[at : at + 3]):
        if one.opname == "UNARY_NOT":
            return True
        if "JUMP" in one.opname and "IF" in one.opname:
            return not (following.opname == "LOAD_ASSERTION_ERROR" or following.argrepr == "AssertionError")
    return False
