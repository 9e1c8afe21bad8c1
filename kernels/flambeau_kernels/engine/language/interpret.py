"""The kernel language run by Python: for the numpy backend, and to see where an index leaves its array.

It has the words that kernels of programs are written with: loops, kinds of numbers, `local` and the vocabulary. Vectors and
pointers to addresses have no meaning here, so that a kernel with them raises NotImplementedError.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels import vocabulary
from flambeau_kernels.engine import language
from flambeau_kernels.engine.language import Construct
from flambeau_kernels.formula import Formula
from flambeau_kernels.reference import WORDS_READ
from flambeau_kernels.scalar.symbols import Kind
from flambeau_kernels.vocabulary import Word

__all__ = ["Pointer", "run"]


class Pointer:
    """Element `at` of a flat array. Raises: IndexError where an index leaves the array."""

    __slots__ = ("array", "at", "name", "wide")

    def __init__(self, array: np.ndarray, name: str, at: int = 0) -> None:
        self.array, self.name, self.at = array, name, at
        self.wide = kernels._WIDE.get(array.dtype)

    def __add__(self, n: int) -> Pointer:
        return Pointer(self.array, self.name, self.at + int(n))

    __radd__ = __add__

    def __sub__(self, n: int) -> Pointer:
        return self + -n

    def _place(self, i: Any) -> int:
        place = self.at + int(i)
        if not 0 <= place < self.array.size:
            raise IndexError(f"index {place} of {self.name!r}, which has {self.array.size} elements")
        return place

    def __getitem__(self, i: Any) -> Any:
        found = self.array[self._place(i)]
        return found if self.wide is None else self.wide.type(found)

    def __setitem__(self, i: Any, value: Any) -> None:
        kind = self.wide or self.array.dtype
        if isinstance(value, np.floating) and (kind.kind != "f" or value.dtype.itemsize > kind.itemsize):
            raise TypeError(f"an element of {self.name!r} is {kind} and cannot hold {value.dtype}; write {kind}(...)")
        if not self.array.flags.writeable:
            raise TypeError(f"elements of {self.name} are stored to, which mutates_args does not name")
        self.array[self._place(i)] = value


def run(function: types.FunctionType, chunks: int, args: dict[str, Any], constants: dict[str, Any]) -> None:
    """Run chunks ``0 ... chunks - 1`` of a kernel one after the other.

    Args:
        args: the parameters after the first by name: contiguous arrays, ints and floats. Arrays that are not writeable are only read.
    """
    reading = _read(function, {})
    given = [
        Pointer(a.reshape(-1), name) if isinstance(a, np.ndarray) else np.float64(a) if isinstance(a, float) else a
        for name, a in args.items()
    ]
    with np.errstate(all="ignore"):
        for chunk in range(chunks):
            try:
                reading(chunk, *given, **constants)
            except (IndexError, TypeError) as error:
                raise type(error)(f"{function.__name__}: in chunk {chunk}: {error}") from None


def _read(value: Any, done: dict[int, Any]) -> Any:
    """`value`, which a kernel refers to, as Python runs it."""
    if isinstance(value, (Construct, Kind, Word)):
        return _WORDS.get(value.name) or _refused(value.name)
    if isinstance(value, Formula):
        return _of_numbers(value.bind(WORDS_READ))
    if isinstance(value, types.ModuleType) and vars(value).get("where") is vocabulary.where:
        words = {name: v for name, v in vars(value).items() if isinstance(v, (Construct, Kind, Word))}
        return types.SimpleNamespace(**{name: _read(v, done) for name, v in words.items()})
    if not isinstance(value, types.FunctionType):
        return value
    if id(value) in done:
        return done[id(value)]
    if value.__module__ == language.__name__:
        return value
    scope: dict[str, Any] = {"__builtins__": __builtins__, "__name__": value.__module__}
    cells = tuple(types.CellType(_read(cell.cell_contents, done)) for cell in value.__closure__ or ())
    made = done[id(value)] = types.FunctionType(value.__code__, scope, value.__name__, value.__defaults__, cells or None)
    made.__kwdefaults__ = value.__kwdefaults__
    for name in value.__code__.co_names:
        if name in value.__globals__:
            scope[name] = _read(value.__globals__[name], done)
    return made


def _refused(name: str) -> Callable[..., Any]:
    def word(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{name}: a kernel with this word runs compiled only: FLAMBEAU_BACKEND=llvm, where llvmlite works")

    return word


def _of_numbers(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A word of arrays as one of numbers."""
    def word(*args: Any) -> Any:
        return np.asarray(fn(*(np.asarray(a)[()] if isinstance(a, (int, float)) else a for a in args)))[()]

    return word


@contextlib.contextmanager
def _flags(*names: str) -> Any:
    yield


def _local(kind: np.dtype, count: int) -> Pointer:
    # What is read before it is written is a nan, or the largest integer, rather than what lay there.
    dtype = np.dtype(kind)
    filler = np.nan if dtype.kind == "f" else np.iinfo(dtype).max if dtype.kind in "iu" else True
    return Pointer(np.full(count, filler, dtype), "local")


def _same(x: Any, *options: Any) -> Any:
    return x


_WORDS: dict[str, Any] = {name: _of_numbers(word) for name, word in WORDS_READ.items()}
_WORDS.update(dict.fromkeys(("unroll", "independent", "brief", "rolled", "repeated"), _same))
_WORDS.update(flags=_flags, local=_local, prefetch=lambda p: None, outlined=_same)
_WORDS.update({name: getattr(np, name) for name in (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "bool",
)})  # fmt: skip
