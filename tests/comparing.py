"""Small programs run with PyTorch and with Flambeau, whose outcomes must be the same."""

from __future__ import annotations

import ast
import contextlib
import copy
import io
import pickle
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import flambeau as fb

__all__ = ["disagreements", "outcome", "peak_of"]


@contextlib.contextmanager
def peak_of() -> Iterator[Callable[[], int]]:
    """A context that gives a function, which tells how many bytes the arrays made inside took at most at one time."""
    found: list[int] = []
    tracemalloc.start()
    try:
        yield lambda: found[0]
        found.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def outcome(lib: Any, program: str) -> Any:
    """What the last expression of `program` gives with `lib` as ``torch``, or the type of error it ends with."""
    lib.manual_seed(0)
    scope = {"torch": lib, "F": lib.nn.functional, "np": np, "copy": copy, "pickle": pickle, "io": io}
    *body, last = ast.parse(program).body
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(compile(ast.Module(body, []), "<program>", "exec"), scope)
            if not isinstance(last, ast.Expr):
                exec(compile(ast.Module([last], []), "<program>", "exec"), scope)
                return None
            return described(lib, eval(compile(ast.Expression(last.value), "<program>", "eval"), scope))
        except Exception as error:  # PyTorch raises these of every kind
            return Raised(_public_name(type(error)), f"{error}"[:200])


def _public_name(kind: type) -> str:
    """The name that users know a type of error by: of what it derives from, where it is one of ours alone."""
    if kind.__module__ != "flambeau._errors" or hasattr(fb, kind.__name__):
        return kind.__name__
    return "NotImplementedError" if issubclass(kind, NotImplementedError) else _public_name(kind.__mro__[1])


class Raised:
    """An error, equal to those of the same type; the message is for who reads what disagrees."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind, self.message = kind, message

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Raised) and other.kind == self.kind

    def __hash__(self) -> int:
        return hash(self.kind)

    def __repr__(self) -> str:
        return f"raises {self.kind}: {self.message}"


def described(lib: Any, value: Any) -> Any:
    """`value` in terms that both libraries share."""
    if isinstance(value, lib.Tensor):
        plain = value.detach()
        elements = None if plain.is_meta else [repr(x) for x in _flat(plain.tolist())]
        facts = tuple(value.shape), str(value.dtype), str(value.device), value.requires_grad, value.is_leaf
        return *facts, value.stride() if value.numel() else None, elements
    if isinstance(value, np.ndarray):
        return value.shape, str(value.dtype), value.strides, [repr(x) for x in _flat(value.tolist())]
    if isinstance(value, (tuple, list)):
        return type(value).__name__, [described(lib, x) for x in value]
    return repr(value)


def _flat(nested: Any) -> Any:
    if not isinstance(nested, list):
        yield nested
        return
    for x in nested:
        yield from _flat(x)


def disagreements(oracle: Any, programs: str) -> list[str]:
    """The lines of `programs` that do not come out the same, with both outcomes."""
    found = []
    for program in filter(None, map(str.strip, programs.splitlines())):
        ours, theirs = outcome(fb, program), outcome(oracle, program)
        if ours != theirs:
            found.append(f"{program}\n  PyTorch:  {theirs}\n  Flambeau: {ours}")
    return found
