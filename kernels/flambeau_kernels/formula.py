"""A formula: one straight-line scalar function, and the ways it can be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

from . import vocabulary

_WORDS = frozenset((*vocabulary.WORDS, *vocabulary.HOST_WORDS))
# Words whose value in real numbers leaves no choice: IEEE 754 or whole numbers say every bit.
_EXACT_WORDS = frozenset((
    "abs", "sqrt", "rsqrt", "floor", "ceil", "trunc", "nearbyint", "copysign", "where", "minimum", "maximum", "fmin", "fmax",
    "isnan", "isinf", "isfinite", "logical_not", "logical_and", "logical_or", "logical_xor", "signbit", "sign", "real", "imag",
    "conj", "bit_not", "fmod", "remainder", "floor_divide", "gcd", "lcm", "round_to_float16", "round_to_bfloat16",
))  # fmt: skip


def refuse(*operands: Any) -> None:
    """The answer to operands that a builtin was not made for: None."""


class Formula:
    """A straight-line Python function over the scalar vocabulary.

    `direct` computes it on operands of dtypes it was specialised for (`flambeau_kernels.specialise`), arrays of shapes that broadcast and
    numbers, and returns a new array; `direct_` stores the result in its first operand; `enter` takes objects that hold arrays
    and returns a new one; `enter_` stores in the first of them where nothing is to be recorded, `enter_unrecorded_` whatever the history
    of operands, `enter_untracked_` in marked memory too. `direct_before` and `enter_before` store in what is given before the operands.
    None: the caller goes its own way.

    Args:
        fn: the function. Its globals and closure may hold numbers and further straight-line functions.
        name: what kernels made from it are called; the function's name by default.
        ufunc: a numpy ufunc that computes exactly `fn`, used by the numpy tier to spare the temporaries.
        thorough: whether compiling it may take long, for the sake of its speed.
    """

    __slots__ = (
        "fn", "name", "ufunc", "thorough", "_bound", "_key", "_exact", "__weakref__", "compiled", "direct", "direct_", "enter", "enter_",
        "enter_unrecorded_", "enter_untracked_", "direct_before", "enter_before",
    )  # fmt: skip

    def __init__(self, fn: Callable[..., Any], name: str | None = None, ufunc: Any = None, thorough: bool = False) -> None:
        if not isinstance(fn, FunctionType):
            raise TypeError(f"a formula is a plain Python function, got {type(fn).__name__}")
        self.fn = fn
        self.name = name or fn.__name__
        self.ufunc = ufunc
        self.thorough = thorough
        self._bound: dict[int, Callable[..., Any]] = {}
        self._key: str | None = None
        self._exact: bool | None = None
        self.compiled: Any = None  # whatever the engine keeps for it
        self.direct: Callable[..., Any] = refuse
        self.direct_: Callable[..., Any] = refuse
        self.enter: Callable[..., Any] = refuse
        self.enter_: Callable[..., Any] = refuse
        self.enter_unrecorded_: Callable[..., Any] = refuse
        self.enter_untracked_: Callable[..., Any] = refuse
        self.direct_before: Callable[..., Any] = refuse
        self.enter_before: Callable[..., Any] = refuse

    def __repr__(self) -> str:
        return f"Formula({self.name})"

    @property
    def parameters(self) -> tuple[str, ...]:
        code = self.fn.__code__
        return code.co_varnames[: code.co_argcount]

    def bind(self, words: Mapping[str, Any]) -> Callable[..., Any]:
        """The same code with the vocabulary's words looked up in `words`, helper functions included."""
        bound = self._bound.get(id(words))
        if bound is None:
            bound = self._bound[id(words)] = rebind(self.fn, words, {})
        return bound

    @property
    def exact(self) -> bool:
        """Whether every reading gives the same bits for real numbers: it is made of arithmetic, comparisons and choices alone."""
        if self._exact is None:
            self._exact = _is_exact(self.fn, set())
        return self._exact

    @property
    def key(self) -> str:
        """Text that changes whenever the computation does: code, constants, closure, helpers."""
        if self._key is None:
            self._key = _describe(self.fn, set())
        return self._key


def rebind(fn: Any, words: Mapping[str, Any], done: dict[int, Any]) -> Any:
    """Copy `fn` so that every word, in it or in the functions it calls, comes from `words`."""
    if isinstance(fn, ModuleType) and vars(fn).get("where") is vocabulary.where:
        return SimpleNamespace(**words)               # a module of words, whose names are written out: words.exp(x)
    if not isinstance(fn, FunctionType):
        return fn
    if id(fn) in done:
        return done[id(fn)]
    scope: dict[str, Any] = {"__builtins__": __builtins__, "__name__": fn.__globals__.get("__name__")}
    copy = FunctionType(fn.__code__, scope, fn.__name__, fn.__defaults__, fn.__closure__)
    copy.__kwdefaults__ = fn.__kwdefaults__
    done[id(fn)] = copy
    for name in names_of(fn):
        if name in words:
            scope[name] = words[name]
        elif name in fn.__globals__:
            scope[name] = rebind(fn.__globals__[name], words, done)
    if fn.__closure__:
        cells = tuple(_cell(rebind(cell.cell_contents, words, done)) for cell in fn.__closure__)
        closed = FunctionType(fn.__code__, scope, fn.__name__, fn.__defaults__, cells)
        done[id(fn)] = closed
        return closed
    return copy


def names_of(fn: FunctionType) -> tuple[str, ...]:
    return fn.__code__.co_names


def _is_exact(fn: Any, seen: set[int]) -> bool:
    """Whether `fn`, a function or constant that a formula refers to, rounds in one way only."""
    if not isinstance(fn, FunctionType):
        return isinstance(fn, (int, float))
    if id(fn) in seen:
        return True
    seen.add(id(fn))
    if _has_powers(fn.__code__.co_code):
        return False
    for name in names_of(fn):
        if name not in _EXACT_WORDS and (name in _WORDS or name not in fn.__globals__ or not _is_exact(fn.__globals__[name], seen)):
            return False
    return all(_is_exact(cell.cell_contents, seen) for cell in fn.__closure__ or ())


def _has_powers(code: bytes) -> bool:
    import opcode

    operation = opcode.opmap["BINARY_OP"]
    return any(op == operation and arg in _POWERS for op, arg in zip(code[::2], code[1::2], strict=True))


_POWERS = (8, 21)  # CPython's NB_POWER and NB_INPLACE_POWER, the arguments of BINARY_OP for ** and **=


def _cell(value: Any) -> Any:
    return (lambda: value).__closure__[0]  # type: ignore[index]  # the only way to make a cell without ctypes


def _describe(fn: Any, seen: set[int]) -> str:
    if not isinstance(fn, FunctionType):
        return repr(fn)
    if id(fn) in seen:
        return fn.__name__
    seen.add(id(fn))
    code = fn.__code__
    parts = [code.co_name, code.co_code.hex(), repr(code.co_consts), repr(code.co_names), repr(code.co_varnames)]
    helpers = (name for name in names_of(fn) if name not in _WORDS and name in fn.__globals__)
    parts.extend(name + "=" + _describe(fn.__globals__[name], seen) for name in helpers)
    parts += [_describe(cell.cell_contents, seen) for cell in fn.__closure__ or ()]
    return "|".join(parts)
