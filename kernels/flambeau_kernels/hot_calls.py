"""The operations that dispatch is made of, on small float32 and float64 arrays, as fast as Python can call them.

Each function answers for the arguments it was made for and returns None for all others, before having written anything;
the caller then computes otherwise. At first they are numpy's functions; once that repays (`takeover.py`) the native launchers
of the engine take their names, from a cache or when a thread in the background has compiled them.

Use them as attributes of this module (``hot_calls.matmul(a, b)``): names are rebound when launchers arrive. A launcher takes
C-contiguous operands; ``numpy_matmul`` and so on stay, for what launchers refuse. Elementwise operations have builtins of
their own, made for the operands they meet (`engine/calls/direct.py`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from . import COMPILED_FROM
from .takeover import CALL, LAUNCHERS, LAUNCHERS_UNKEPT, LOADED, Waiting

ndarray = np.ndarray
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
Call = Callable[..., Any]

# Multiplications of the largest product of matrices computed here, and of a matrix and a vector: up to them OpenBLAS works on
# one thread. More go to `cpu/products/matmul.py`.
MOST_PRODUCTS, MOST_THIN_PRODUCTS = 1 << 18, 1 << 13
MOST_PRODUCTS_WITHOUT_BLAS = 1 << 11  # the same of dtypes that numpy multiplies without BLAS
MOST_PRODUCTS_OF_MANY = 1 << 9                        # of each product of a batch that numpy goes through
MOST_VIEWS = 32                                       # of one storage; the caller of `view_of` and `views_of` looks after more of them


# -- by numpy ------------------------------------------------------------------------------------------------------------


def _two_matrices(a: Any, b: Any) -> bool:
    if a.__class__ is not ndarray or b.__class__ is not ndarray:
        return False
    d = a.dtype
    return (d is FLOAT32 or d is FLOAT64) and b.dtype is d and a.ndim == 2 and b.ndim == 2


def _pays_by_numpy(rows: int, inner: int, columns: int) -> bool:
    return rows * inner * columns <= (MOST_PRODUCTS if rows > 1 and columns > 1 else MOST_THIN_PRODUCTS)


def numpy_matmul(a: Any, b: Any) -> Any:
    """``a @ b`` of matrices. `dot` calls the BLAS routine `matmul` calls, in a third of the time."""
    if not _two_matrices(a, b):
        return None
    (m, k), (inner, n) = a.shape, b.shape
    return a.dot(b) if k == inner and _pays_by_numpy(m, k, n) else None


def numpy_matmul_nt(a: Any, b: Any) -> Any:
    """``a @ b.T`` of matrices."""
    if not _two_matrices(a, b):
        return None
    (m, k), (n, inner) = a.shape, b.shape
    return a.dot(b.T) if k == inner and _pays_by_numpy(m, k, n) else None


def numpy_matmul_tn(a: Any, b: Any) -> Any:
    """``a.T @ b`` of matrices."""
    if not _two_matrices(a, b):
        return None
    (k, m), (inner, n) = a.shape, b.shape
    return a.T.dot(b) if k == inner and _pays_by_numpy(m, k, n) else None


def numpy_linear(x: Any, weight: Any, bias: Any) -> Any:
    """``x @ weight.T + bias`` of matrices and a vector."""
    made = _BY_NUMPY["matmul_nt"](x, weight)
    if made is None or bias.__class__ is not ndarray or bias.dtype is not x.dtype or bias.shape != made.shape[1:]:
        return None
    with contextlib.suppress(RuntimeWarning):
        np.add(made, bias, made)
    return made


def numpy_sum(a: Any) -> Any:
    """The sum of all elements, 0-d."""
    if a.__class__ is not ndarray or (a.dtype is not FLOAT32 and a.dtype is not FLOAT64) or a.size >= COMPILED_FROM:
        return None
    try:
        return np.asarray(np.add.reduce(a, None))
    except RuntimeWarning:
        return None


def asked_address(a: ndarray) -> int:
    """Where the first element of `a` is, as numpy says it."""
    return a.__array_interface__["data"][0]


def read_address(a: ndarray) -> int:
    """The same, read where arrays keep it, in an eighth of the time; `_keeps_addresses` says whether it is there."""
    return _words[id(a) // _WORD + _BEHIND_HEAD]


# Memory as words, the first of which is number -1: a pointer of ctypes is read without an event for hooks of audits, but may not be NULL.
_WORD = ctypes.sizeof(ctypes.c_size_t)
_words = ctypes.cast(_WORD, ctypes.POINTER(ctypes.c_size_t))
_BEHIND_HEAD = object.__basicsize__ // _WORD - 1


def _keeps_addresses() -> bool:
    """Whether an array's address is the first field behind the head of every object, where C programs that use numpy read it."""
    if sys.implementation.name != "cpython":          # else an `id` need be no address
        return False
    samples = (np.empty(3), np.zeros((2, 5), np.int8)[:, 1:], np.array(1.5))
    return all(read_address(a) == asked_address(a) for a in samples)


numpy_address = read_address if _keeps_addresses() else asked_address


def refuse(*args: Any) -> None:
    """Stands for a launcher that only saves steps: the caller has its own way with numpy."""


def refuse_and_count(*args: Any) -> None:
    """As `refuse`, for operations that a program may call without any of the others."""


_BY_NUMPY: dict[str, Call] = {
    "matmul": numpy_matmul,
    "matmul_nt": numpy_matmul_nt, "matmul_tn": numpy_matmul_tn, "linear": numpy_linear, "sum": numpy_sum,
    "cat": refuse_and_count, "stack": refuse_and_count, "view": refuse_and_count, "expand": refuse_and_count,
    "unsqueeze": refuse_and_count, "steps": refuse, "address": numpy_address, "restrided": refuse_and_count, "normals": refuse_and_count,
    "draws": refuse_and_count, "redraws": refuse_and_count, "same": refuse_and_count, "bmm": refuse_and_count, "outer": refuse_and_count,
    "pick_along": refuse_and_count, "put_along": refuse_and_count, "add_along": refuse_and_count, "put_slices": refuse_and_count,
    "add_slices": refuse_and_count, "pick_pairs": refuse_and_count, "pick_slices": refuse_and_count, "over": refuse,
    "view_of": refuse, "views_of": refuse_and_count, "sizes_of": refuse, "store_in": refuse, "transposed": refuse, "permuted": refuse,
    "select": refuse, "part": refuse, "seen_view": refuse_and_count, "seen_expand": refuse_and_count, "seen_unsqueeze": refuse_and_count,
    "seen_permuted": refuse_and_count, "seen_part": refuse_and_count, "seen_transposed": refuse_and_count,
    "seen_select": refuse_and_count,
}  # fmt: skip


# -- objects around arrays -------------------------------------------------------------------------------------------------


class Objects:
    """The class that `over`, `view_of` and `views_of` make objects of, and others read; see `engine/builtins/make_objects.py`."""

    __slots__ = ("cls", "slots", "sizes", "other_sizes", "bound", "unlisted")

    def __init__(
        self, cls: type, slots: dict[str, str], sizes: type, other_sizes: Call, bound: Call, unlisted: tuple[type, str, Any] | None = None
    ) -> None:
        self.cls = cls
        self.slots = slots                            # names of the slots meant by array, record, node, link and grad
        self.sizes = sizes                            # a class of tuples
        self.other_sizes = other_sizes                # what `sizes_of` answers where the builtin is not made for it
        self.bound = bound                            # called when launchers take the names, or give them back
        # A class of nodes, one of its slots, and what is in it: storages do not list the views of objects that have such a node.
        self.unlisted = unlisted


objects: Objects | None = None
stand_in: type | None = None                          # a class whose objects are taken as those of `objects.cls` are
objects_changed: list[Call] = []                      # called when one of these does, or whether new objects are marked


def of_class(given: Objects, by_python: Call) -> None:
    """Let the launchers make objects of a class; until there are any, `over` is `by_python`."""
    global objects
    objects = given
    _BY_NUMPY.update(over=by_python, sizes_of=given.other_sizes)
    _UNCOUNTED.update((by_python, given.other_sizes))
    start_over()
    _tell_of_objects()


def take_as_object(cls: type) -> None:
    """Let builtins take objects of `cls` as those of the class that `of_class` was given: it adds nothing that they know."""
    global stand_in
    stand_in = cls
    _tell_of_objects()


def marks_objects() -> bool:
    """Whether new objects are marked, which is the caller's business."""
    return "over" in _refused


def _tell_of_objects() -> None:
    for tell in objects_changed:
        tell()


def objects_by_caller(on: bool) -> None:
    """Let `over` be the function that `of_class` was given, or stop doing so: it knows what new objects are to be marked with."""
    global _refused
    if objects is None:
        return
    if on:
        _refused = _refused | {"over": _BY_NUMPY["over"]}
    else:
        _refused = {name: fn for name, fn in _refused.items() if name != "over"}
    globals()["over"] = _BY_NUMPY["over"] if on else _found.get("over", _BY_NUMPY["over"])
    _tell_of_objects()


_found: dict[str, Call] = {}                          # launchers, once they have the names
_UNCOUNTED: set[Call] = {refuse, numpy_address}                      # what comes along with other calls


# -- by launchers, once there are some -----------------------------------------------------------------------------------

_waiting = Waiting(LAUNCHERS)
_looking = threading.Lock()
_compiler: threading.Thread | None = None


def _counted(fn: Call) -> Call:
    def call(*args: Any) -> Any:
        compile = _waiting.due()
        if compile is not None:
            _look_for_launchers(compile)
        return fn(*args)

    return call


def engine_is_in_use() -> None:
    """Bind the names to launchers now if a cache has them: what takes long to load is there, for another reason."""
    compile = _waiting.due(LOADED / CALL)
    if compile is not None:
        _look_for_launchers(compile)


def _look_for_launchers(compile: bool) -> None:
    """Bind the names to launchers if a cache has them, or to numpy's functions for good if there will be none. Or `compile` them."""
    global _compiler
    if not _looking.acquire(blocking=False):
        return
    try:
        from .engine.builtins import launchers
        from .engine.calls import objects as around
        from .engine.machine_code import llvm

        found = launchers.load(compile=False) if launchers.available()[0] else {}
        if found:
            _found.update(found)
            globals().update({name: found.get(name, fn) for name, fn in _BY_NUMPY.items()} | _refused)
            globals().update({f"enter_{name}": around.entering(found[name]) for name in _ENTERED if name not in _refused})
            if objects is not None:
                objects.bound()
        elif not launchers.available()[0] or (_compiler is not None and not _compiler.is_alive()):
            globals().update(_BY_NUMPY | _refused)
        elif not compile:
            _waiting.price = LAUNCHERS if llvm.disk().why_off is None else LAUNCHERS_UNKEPT
        else:
            _waiting.again()                          # to look whether they are compiled
            if _compiler is None:
                _compiler = threading.Thread(target=_compile, name="flambeau launchers")
                _compiler.start()
    finally:
        _looking.release()


def _compile() -> None:
    from .engine.builtins import launchers

    with contextlib.suppress(AttributeError, OSError):  # Linux has priorities of threads
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
    launchers.compile_ahead()


# Another number whenever functions that were found here may have to be others: of another backend, or without products.
generation = 0


def start_over() -> None:
    """Begin with numpy's functions again; for a new choice of backend."""
    global _waiting, generation
    generation += 1
    _waiting = Waiting(LAUNCHERS)
    _found.clear()
    globals().update({name: fn if fn in _UNCOUNTED else _counted(fn) for name, fn in _BY_NUMPY.items()} | _refused)
    globals().update({f"enter_{name}": refuse for name in _ENTERED})
    if objects is not None:
        objects.bound()


def refuse_products(on: bool) -> None:
    """Leave all matrix products to the fallback, or stop doing so."""
    global _refused
    own = {name: fn for name, fn in _refused.items() if name == "over"}
    _refused = own | (dict.fromkeys((*_PRODUCTS, "matmul", "matmul_nt", "matmul_tn", "linear", "bmm"), refuse) if on else {})
    globals().update(_PRODUCTS)
    start_over()


_PRODUCTS: dict[str, Call] = {"numpy_matmul": numpy_matmul, "numpy_matmul_nt": numpy_matmul_nt, "numpy_linear": numpy_linear}
_refused: dict[str, Call] = {}
# Launchers that ``enter_<name>`` calls with objects, see `engine/calls/objects.py`.
_ENTERED = ("matmul", "matmul_nt", "bmm", "linear")


matmul: Call
enter_matmul: Call
enter_bmm: Call
enter_matmul_nt: Call
enter_linear: Call
matmul_nt: Call
matmul_tn: Call
linear: Call
sum: Call  # used as an attribute of this module
cat: Call
stack: Call
view: Call
expand: Call
unsqueeze: Call
transposed: Call  # (array, dim, dim), permuted of (array, dims), select of (array, dim, index), part of (array, key)
permuted: Call
select: Call
part: Call
seen_view: Call  # (object, sizes, op, whether operations are recorded) as an object, whose node is True where it should have one
seen_expand: Call
seen_unsqueeze: Call
seen_permuted: Call
seen_part: Call
seen_transposed: Call
seen_select: Call
restrided: Call
steps: Call  # of an array, in elements
address: Call  # of an array's first element
over: Call
view_of: Call
views_of: Call  # (source, dim, sizes or None, ops, rest, registered) of all parts along a dimension, as a tuple
sizes_of: Call
store_in: Call  # (target, source, *operands) of objects: True once the elements of the source are in the target's memory
normals: Call
bmm: Call
outer: Call
pick_along: Call
put_along: Call
add_along: Call
put_slices: Call
add_slices: Call
pick_pairs: Call
pick_slices: Call
draws: Call
redraws: Call
same: Call  # whether all elements are
start_over()
