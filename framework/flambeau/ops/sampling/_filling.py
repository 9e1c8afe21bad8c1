"""How functions that fill a tensor in place with random numbers are entered.

Few numbers are drawn by one native call, which all else about the function would take several times as long as. Which draws there are,
and for what arguments, is declared; `filling` writes the entry point from that, which asks whether nobody has a say, tries them, and
marks the write. The decorated function answers everything else.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from .. import _entry

__all__ = ["filling"]

_REAL = frozenset((int, float))
_FREE = "not (IN_FORCE or MARKED) and generator is self._node is self._view_of is None and (a := self._array).__class__ is ndarray"


def filling(kernels: Callable[[], Any], generator_of: Callable[[], Any], *draws: str) -> Callable[[Any], Any]:
    """Declare the draws of a function ``fill_(self, ..., *, generator=None)``.

    Args:
        kernels: gives the module of functions that draw.
        generator_of: gives the default generator.
        draws: when to try which of these functions, and with what behind stream and array, as in ``"p.__class__ is float: coins(p)"``.
            These are texts of parameters, where REAL are the classes of real numbers, and ZERO and ONE these numbers as defaults have
            them. Such a function says whether it has filled the array; else it has drawn nothing.
    """

    def declare(fn: Any) -> Any:
        constants: dict[str, Any] = {"fn": fn, "kernels": kernels, "generator_of": generator_of, "REAL": _REAL, "ZERO": 0, "ONE": 1}
        params, given, named = [], [], []
        for name, parameter in inspect.signature(fn).parameters.items():
            star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
            if parameter.kind is parameter.KEYWORD_ONLY and "*" not in params and not any(p[0] == "*" for p in params):
                params.append("*")
            has_default = parameter.default is not parameter.empty
            params.append(f"{star}{name}{f'=default_{name}' if has_default else ''}")
            if has_default:
                constants[f"default_{name}"] = parameter.default
            given.append(f"{name}={name}" if parameter.kind is parameter.KEYWORD_ONLY else f"{star}{name}")
            named += [name] * (star == "**")
        tries = []
        for draw in draws:
            when, _, call = draw.partition(": ")
            name, _, arguments = call.partition("(")
            tries.append(f"{when} and kernels().{name}(generator_of()._stream, a{', ' if arguments != ')' else ''}{arguments}")
        lines = [
            f"if {_FREE}{''.join(f' and not {name}' for name in named)} and ({' or '.join(tries)}):",
            "    record = self._storage",
            "    record[0] += 1",
            "    record[1] = next_seq()",
            "    return self",
            f"return fn({', '.join(given)})",
        ]
        body = "".join(f"        {line}\n" for line in lines)
        text = f"def make({', '.join(constants)}):\n    def {fn.__name__}({', '.join(params)}):\n{body}    return {fn.__name__}\n"
        return functools.wraps(fn)(_entry.compile_text(text, fn.__name__, constants))

    return declare
