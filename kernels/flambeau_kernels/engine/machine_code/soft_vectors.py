"""Vectors of float16 for processors that have no instructions to convert them: functions of the module, one for each number of lanes.

LLVM calls a function for each lane instead, wherever a conversion stands, which was most of the code of kernels for x86-64 before AVX2 and
most of their time. Here conversions become calls of functions that take the steps of `soft_halves.py` in vectors, after LLVM has made what
vectors it can.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from flambeau_kernels.engine.machine_code import soft_halves

__all__ = ["with_functions"]

_WIDENED = re.compile(r"= fpext <(\d+) x half> (.+) to <\1 x float>")
_NARROWED = re.compile(r"= fptrunc <(\d+) x float> (.+) to <\1 x half>")


def with_functions(text: str) -> str:
    """The optimised module `text`, or one of the same meaning in which functions convert vectors of halves."""
    functions: dict[str, str] = {}

    def call(match: re.Match[str], source: str, target: str, name: str, body: Callable[[str, int], str]) -> str:
        lanes, value = match.groups()
        name = f"{name}_{lanes}"
        if name not in functions:
            head, rest = body(name, int(lanes)).split(" {", 1)
            functions[name] = f"{head.replace('define', 'define internal')} noinline {{{rest}"
        return f"= call <{lanes} x {target}> @{name}(<{lanes} x {source}> {value})"

    text = _WIDENED.sub(lambda match: call(match, "half", "float", "widened", soft_halves.widening), text)
    text = _NARROWED.sub(lambda match: call(match, "float", "half", "narrowed", soft_halves.narrowing), text)
    return "\n".join((text, *functions.values()))
