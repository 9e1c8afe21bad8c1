"""Native launchers: Python builtins for the hottest operations on small arrays, without a ufunc's overhead.

`load()["sum"](a)` takes an exact float32 or float64 ndarray, C-contiguous, of few elements, and
returns a new array; for any other argument it returns None and the caller takes the fallback. Nothing
raises but a failed allocation. All launchers are one object file: compiling it takes two seconds, loading it
from the cache four milliseconds.
"""
from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau_kernels
from flambeau_kernels import engines, hot_calls
from flambeau_kernels.engine.builtins import pyabi
from flambeau_kernels.engine.machine_code import llvm

__all__ = ["available", "compile_ahead", "load", "module_text"]


def available() -> tuple[bool, str]:
    """Whether launchers work in this process, and if not, why. Cheap: it loads nothing."""
    if not engines.chosen().launches:
        return False, f"the {flambeau_kernels.backend()} backend has no code of its own for small calls"
    reason = _failure or _reason_against()
    return reason is None, reason or "native launchers are on"


def load(compile: bool = True) -> dict[str, Callable[..., Any]]:
    """The launchers by name, loaded once; empty where they are not `available` or fail their self-test.

    Args:
        compile: whether to compile them, which takes seconds, when no cached object is found.

    sum (array) to 0-d, of up to 4,096 elements; matmul (a, b), matmul_nt (a @ b.T), matmul_tn (a.T @ b), 2-D,
        stored by rows or by columns; matmul, matmul_nt and linear of bfloat16 too, by rows;
        linear (x, weight, bias); bmm (a, b), 3-D; outer (a, b), 1-D.
        cat stack (list of arrays, dim), of up to 64 kB; view expand (array, tuple of sizes), unsqueeze (array, dim) and
        restrided (array, shape, strides, bytes to skip), of any dtype; steps (array), its strides in elements; address
        (array), of its first element; transposed (array, dim, dim), permuted (array, tuple of dims), select (array, dim, index)
        and part (array, tuple that is a key), of any dtype.
        pick_along pick_slices put_along add_along put_slices add_slices pick_pairs, by places, of halves and small integers too: `picks`.
        same (array, array): 1 if all their elements are equal, else 0.
        over view_of views_of sizes_of store_in, and ``seen_<name>`` for those that make views, for objects of the class that
        `hot_calls.of_class` was given: `make_objects`.
        normals (a kernel's table, state, position, tuple of sizes), draws (those, an array of the dtype, words for the
        kernel) and redraws (an array to fill in place of sizes and dtype) for `cpu.random.stream`.
    All have the bits of numpy's functions.
    """
    global _loaded, _failure
    if not available()[0]:
        return {}
    if _loaded is None:
        made = _from_disk_or_compiled(compile)
        if made is None:
            return {}
        # Only running them shows whether objects are made and counted as this interpreter does it. Other threads may
        # use the objects whose references are counted, so one bad count proves nothing.
        for _ in range(3):
            _failure = _self_test(made)
            if _failure is None:
                break
        _loaded = {} if _failure else made
    return _loaded


_loaded: dict[str, Callable[..., Any]] | None = None
_failure: str | None = None


@functools.cache
def _reason_against() -> str | None:
    if os.environ.get("FLAMBEAU_LAUNCHERS", "1") == "0":
        return "FLAMBEAU_LAUNCHERS=0 switches them off"
    return pyabi.problem() or llvm.available()


# --- the operations -----------------------------------------------------------------------------------------

# name: whether the transpose of the first, and of the second, operand is meant
_PRODUCTS = {"matmul": (False, False), "matmul_nt": (False, True), "matmul_tn": (True, False)}
_NEED_BLAS = (*_PRODUCTS, "linear", "bmm")


def _names() -> list[str]:
    return [*_PRODUCTS, "sum", "linear", "bmm", "outer",
            "normals", "draws", "redraws", "same", "cat", "stack", *_OF_PLACES, *_OF_ANY_DTYPE]


_OF_PLACES = ("pick_along", "put_along", "add_along", "put_slices", "add_slices", "pick_pairs", "pick_slices")
_OF_ANY_DTYPE = ("view", "expand", "unsqueeze", "restrided", "steps", "address", "transposed", "permuted", "select", "part")
_VIEWS = {"view": 1, "expand": 1, "unsqueeze": 1, "permuted": 1, "part": 1, "transposed": 2, "select": 2}  # and their arguments
_MADE = ("over", "view_of", "views_of", "sizes_of", "store_in")
_OF_OBJECTS = (*_MADE, *(f"seen_{name}" for name in _VIEWS))


def module_text(scales: bool = False) -> str:
    """All launchers as one LLVM module; `scales` as for `symbols.Block`."""
    from flambeau_kernels.engine.builtins import compare, draws, fastcall, make_objects, picks, products, shapes, sums

    module = fastcall.Module(scales)
    for name, transposed in _PRODUCTS.items():
        if transposed[0]:
            products.matmul(module, name, transposed)
        else:
            products.matmul_and_halves(module, name, turned=transposed[1])
    sums.total(module, "sum")
    products.linear(module, "linear")
    products.batches(module, "bmm")
    products.outer(module, "outer")
    shapes.join(module, "cat", new_dimension=False)
    shapes.join(module, "stack", new_dimension=True)
    shapes.view(module, "view")
    shapes.expand(module, "expand")
    shapes.unsqueeze(module, "unsqueeze")
    shapes.restrided(module, "restrided")
    for write in (shapes.transposed, shapes.permuted, shapes.select, shapes.part):
        write(module, write.__name__)
    shapes.steps(module, "steps")
    shapes.address(module, "address")
    picks.picks(module)
    make_objects.over(module, "over")
    make_objects.view_of(module, "view_of")
    make_objects.views_of(module, "views_of")
    for view, arguments in _VIEWS.items():
        make_objects.view_by(module, f"seen_{view}", view, arguments)
    make_objects.sizes_of(module, "sizes_of")
    make_objects.store_in(module, "store_in")
    draws.normals(module, "normals")
    draws.draws(module, "draws")
    draws.redraws(module, "redraws")
    compare.same(module, "same")
    return module.text()


# --- loading ------------------------------------------------------------------------------------------------

def _from_disk_or_compiled(compile: bool) -> dict[str, Callable[..., Any]] | None:
    global _disk_refused
    body = _object_code(compile)
    if body is None:
        return None
    if body is _body:
        return _builtins(body)
    try:
        return _builtins(body)
    except RuntimeError:                              # what cannot be loaded, whatever its header said
        pass
    _disk_refused = True
    return _from_disk_or_compiled(compile)


_disk_refused = False                                 # what the cache has for the launchers cannot be loaded


def _builtins(body: bytes) -> dict[str, Callable[..., Any]]:
    names = [name for name in _names() if pyabi.has_blas() or name not in _NEED_BLAS]
    code = llvm.machine().load(body, tuple(f"fb_{name}" for name in (*names, *_OF_OBJECTS)))
    made = pyabi.new_builtins({name: code[f"fb_{name}"] for name in names}, pyabi.table())
    if hot_calls.objects is not None:
        table = pyabi.object_table(hot_calls.objects)
        made.update(pyabi.new_builtins({name: code[f"fb_{name}"] for name in _OF_OBJECTS}, table))
    return made


def _object_code(compile: bool) -> bytes | None:
    """The object file of all launchers, from the cache or made now; None if it is missing and not to be made.

    It is found by the sources that write it: writing its text takes ten times as long as loading the object.
    """
    machine = llvm.machine()
    global _body
    key = hashlib.sha256(f"launchers|{machine.fingerprint}|{_sources()}".encode()).hexdigest()
    body = _body or (None if _disk_refused else llvm.disk().get(key))
    if body is None and compile:
        body = _body = llvm.emitted("launchers", module_text(machine.scales))
        llvm.disk().put(key, body)
    return body


_body: bytes | None = None                            # compiled in this process


def compile_ahead() -> None:
    """Compile the launchers if no cache has them, so that `load(compile=False)` finds them; for another thread."""
    if available()[0] and _loaded is None:
        with contextlib.suppress(engines.Refused):       # numpy's functions stay then
            _object_code(compile=True)


def _sources() -> str:
    """Digest of every file that has a part in the text of the launchers."""
    own = pathlib.Path(__file__).parent
    engine = own.parent
    launching = [engine / "launching" / name for name in ("call.py", "journal.py")]
    files = [*sorted(own.glob("*.py")), *launching, *sorted((engine.parent / "scalar").glob("*.py"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


_WRONG = "the self-test of the launchers gave wrong results"


def _self_test(launchers: dict[str, Callable[..., Any]]) -> str | None:
    """What goes wrong when launchers run, or None: results, refusals, and references after many calls."""
    rounds = 16                                       # every process that compiles waits for them
    for dtype in (np.float32, np.float64):
        a = np.arange(1, 7, dtype=dtype).reshape(2, 3)
        if not _runs_right(launchers, a):             # what Python keeps of a first call is no loss
            return _WRONG
        counted = (a, a.dtype, np.ndarray, None)
        # Enough references that a launcher which loses some is found out before an object is freed.
        spare = [counted] + [item for item in counted for _ in range(32 * rounds)]
        before = [sys.getrefcount(item) for item in counted]
        if not all(_runs_right(launchers, a) for _ in range(rounds)):
            return _WRONG
        # A wrong count is off by one for each round; Python itself moves the count of None a little.
        if any(abs(sys.getrefcount(item) - n) > rounds // 2 for item, n in zip(counted, before, strict=True)):
            pyabi.keep_forever(spare)                 # so that what was lost is never missed
            return "the self-test of the launchers lost or leaked references"
    return None


def _runs_right(launchers: dict[str, Callable[..., Any]], a: np.ndarray) -> bool:
    cat, stack, view = (launchers[name] for name in ("cat", "stack", "view"))
    shaped = view(a, (-1, 2))
    if shaped is None or shaped.base is not (a if a.base is None else a.base) or shaped.ctypes.data != a.ctypes.data:
        return False
    total = launchers["sum"]
    if not total(a, a) is total("2") is cat([a, a[:1]], -1) is None:
        return False
    made = (total(a), cat([a, a], -1), stack([a, a], 0), shaped)
    expected = (a.sum(), np.concatenate((a, a), -1), np.stack((a, a)), a.reshape(3, 2))
    return _places_right(launchers, a) and _objects_right(launchers, a) and all(
        type(m) is np.ndarray and m.dtype is a.dtype and np.array_equal(m, e) for m, e in zip(made, expected, strict=True))


def _places_right(launchers: dict[str, Callable[..., Any]], a: np.ndarray) -> bool:
    """Whether elements are picked, stored and added where they should be."""
    pick, put, add, put_slices, add_slices, pairs, slices = (launchers[name] for name in _OF_PLACES)
    at, twice, wrong, k = np.array([[1, 0, 1]]), np.array([[1, 0, 1]] * 2), np.array([[0, 2, 0]]), np.array([1, 1])
    stored, added, summed = np.zeros((3, *a.shape), a.dtype)
    if pick(a, 0, wrong) is not None or put(a, 0, wrong, stored[:1]) is not None or add(a, 2, at, stored[:1]) is not None:
        return False
    picked, paired, sliced = pick(a, 0, at), pairs(a, k - 2, k), slices(a, 1, np.array([[2], [0]]))
    if picked is None or paired is None or sliced is None or slices(a, 0, k + 1) is not None or put(stored, 0, at, a[1:]) is not stored:
        return False
    if add(added, -2, twice, a) is not added or add_slices(summed, 0, k, a) is not summed:
        return False
    if put_slices(a.copy(), 0, k, a) is None or put_slices(stored, 0, at, a) is not None:
        return False
    expected = [[4, 2, 6]], [5, 5], [[[3], [1]], [[6], [4]]], [[0, 5, 0], [4, 0, 6]], [[0, 7, 0], [5, 0, 9]], [[0, 0, 0], [5, 7, 9]]
    return tuple(made.tolist() for made in (picked, paired, sliced, stored, added, summed)) == expected


def _objects_right(launchers: dict[str, Callable[..., Any]], a: np.ndarray) -> bool:
    """Whether objects around arrays, and views of arrays, are made as they should be."""
    unsqueeze, expand, restrided = (launchers[name] for name in ("unsqueeze", "expand", "restrided"))
    step, size = a.strides, a.itemsize
    views = ((unsqueeze(a, 1), (2, 1, 3), (step[0], step[0], step[1])), (unsqueeze(a, -1), (2, 3, 1), (*step, size)),
             (expand(a, (4, -1, 3)), (4, 2, 3), (0, *step)), (restrided(a, (2,), (size,), size), (2,), (size,)))
    if launchers["steps"](a) != (a.shape[1], 1) or launchers["address"](a) != a.ctypes.data:
        return False
    if any(v is None or (v.shape, v.strides) != (shape, strides) for v, shape, strides in views) or expand(a, (2, 4)) is not None:
        return False
    of = hot_calls.objects
    if of is None:
        return True
    over, view_of, views_of, sizes_of, store_in = (launchers[name] for name in _MADE)
    array, record, node, link, grad = (of.slots[name] for name in ("array", "record", "node", "link", "grad"))
    first = over(a)
    second = view_of(first, a, "op", (1,), True)
    third = view_of(second, a, "again", (), False)
    target, source = over(np.zeros_like(a)), over(a + 1)
    noded = over(np.zeros_like(a))
    below = view_of(noded, getattr(noded, array), "op", (), False)
    setattr(noded, node, "node")
    refused = store_in(target, over(a[:1])), store_in(target, source, target), store_in(below, source), store_in(target, source, "2")
    stored = store_in(target, source, first, None, 2.0, 1) is True and np.array_equal(getattr(target, array), a + 1)
    into_view = view_of(target, getattr(target, array), "op", (), False)
    stored = stored and store_in(into_view, over(a), over(a.T)) is True and np.array_equal(getattr(target, array), a)
    rows, columns = views_of(third, 0, None, ["x", "y"], (0,), True), views_of(source, -1, (1, 2), "op", [(0,), (1,)], False)
    if rows is None or columns is None or views_of(source, 1, (1, 1), "op", (), False) is not None:
        return False
    parts = zip((*rows, *columns), (*a, a[:, :1] + 1, a[:, 1:] + 1), strict=True)
    apart = all(np.array_equal(getattr(made, array), part) for made, part in parts)
    apart = apart and [view() for view in getattr(first, record)[3]] == [second, *rows]
    apart = apart and getattr(rows[1], link) == (first, "y", (0,), getattr(third, link)) and getattr(columns[1], link)[1:3] == ("op", (1,))
    return (
        apart and stored and refused == (None,) * 4 and
        type(first) is type(second) is type(third) is of.cls and getattr(second, array) is a
        and getattr(first, node) is getattr(first, link) is getattr(third, node) is getattr(first, grad) is None
        and getattr(second, link) == (first, "op", (1,), None) and getattr(third, link)[1:] == ("again", (), getattr(second, link))
        and getattr(third, link)[0] is first and getattr(third, record) is getattr(first, record)
        and getattr(first, record)[:3] == [0, 0, None]
        and type(sizes_of(first)) is of.sizes and tuple(sizes_of(first)) == a.shape
    )
