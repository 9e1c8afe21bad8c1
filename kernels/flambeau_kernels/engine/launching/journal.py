"""The last compiled loops that ran, for `explain`: native code notes the plan it runs in a small ring.

A note costs a nanosecond. What a plan is, is said by `name`, when the plan is made.
"""
from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Callable

import numpy as np

from flambeau_kernels.engine.runtime.never_freed import never_freed

LENGTH = 64                                           # entries of the ring; a power of two
# The record: how many notes there were, then the address of the plan and the number of chunks for each entry.

_names: dict[int, tuple[weakref.ref[np.ndarray], Callable[[], str]]] = {}


@functools.cache
def record() -> ctypes.Array[ctypes.c_int64]:
    """The record, which lives as long as the process."""
    return never_freed((ctypes.c_int64 * (1 + 2 * LENGTH))())


def address() -> int:
    """The record's address, for native code."""
    return ctypes.addressof(record())


def name(table: np.ndarray, describe: Callable[[], str]) -> None:
    """Say what the plan in `table` is; `describe` is called when somebody asks."""
    key = table.ctypes.data
    # The names are given along because at the end of the process globals go first.
    _names[key] = weakref.ref(table, lambda _, names=_names: names.pop(key, None)), describe


def count() -> int:
    """How many plans have run so far."""
    return record()[0]


def note(table: np.ndarray, chunks: int) -> None:
    """Note that the plan in `table` runs, where native code does not do so itself."""
    notes = record()
    k = notes[0] % LENGTH
    notes[1 + 2 * k], notes[2 + 2 * k] = table.ctypes.data, chunks
    notes[0] += 1


def since(before: int) -> list[tuple[str, int]]:
    """What ran since `count` was `before`, oldest first, at most `LENGTH`: its description and number of chunks."""
    notes = record()
    found = []
    for k in range(max(before, notes[0] - LENGTH), notes[0]):
        plan, chunks = notes[1 + 2 * (k % LENGTH)], notes[2 + 2 * (k % LENGTH)]
        table, describe = _names.get(plan, (lambda: None, None))
        found.append((describe() if describe is not None and table() is not None else "a plan that is gone", chunks))
    return found


def ir(prefix: str, plan: str, chunks: str) -> str:
    """LLVM IR that notes `plan` in the record ``%<prefix>ring``. The caller holds the interpreter lock."""
    p = f"%{prefix}"
    return f"""
  {p}n = load i64, ptr {p}ring
  {p}n1 = add i64 {p}n, 1
  store i64 {p}n1, ptr {p}ring
  {p}k = and i64 {p}n, {LENGTH - 1}
  {p}k2 = mul i64 {p}k, 2
  {p}k3 = add i64 {p}k2, 1
  {p}entry = getelementptr i64, ptr {p}ring, i64 {p}k3
  store ptr {plan}, ptr {p}entry
  {p}second = getelementptr i64, ptr {p}entry, i64 1
  store i64 {chunks}, ptr {p}second
"""
