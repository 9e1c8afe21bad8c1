"""The k largest or smallest elements of rows.

For few of them, a heap holds the best k so far with the worst on top. Elements are looked at in blocks: the least key of a block,
which vectorises, tells whether any of it beats the worst of the heap, and after the first few blocks hardly one
does. Long rows are cut into pieces of fixed length, whose heaps are merged. For many, the last one
is found by its rank (`ranks`), and those before it are collected and sorted (`radix`). Of equal elements the first ones
are taken, and they come in the order they had.

Source: Williams 1964, "Algorithm 232: Heapsort", CACM 7(6).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.engine.language import kernel, outlined, widened

from .keys import is_wide, key_at, raw
from .radix import sort_rows
from .ranks import best

__all__ = ["topk"]

PIECE = 1 << 16                                      # elements of a row that one heap looks at
WORK = 1 << 15                                       # elements per chunk of short rows
BLOCK, PART = 64, 16
LARGEST_HEAP = 128                                            # the largest k for a heap


def topk(a: np.ndarray, k: int, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    """``(rows, n) -> (rows, k), (rows, k)``: values and places, the best first; ``0 < k <= n``, C order."""
    rows, n = a.shape
    if k > LARGEST_HEAP:
        places = best(a, k, largest)
        values, order = sort_rows(np.take_along_axis(a, places, 1), largest)
        return values, np.take_along_axis(places, order, 1)
    length = max(PIECE, 8 * k)
    pieces = -(-n // length)
    tasks = rows * pieces
    each = max(1, WORK // min(n, length))
    keys = np.empty(tasks * k, np.int64 if is_wide(a.dtype) else np.int32)
    at = np.empty(tasks * k, np.int64)
    best_of_pieces.run(-(-tasks // each), a, keys, at, n, k, pieces, length, tasks, each, -1 if largest else 0)
    values, places = np.empty((rows, k), a.dtype), np.empty((rows, k), np.int64)
    together = max(1, WORK // (64 * k * pieces))
    merge_pieces.run(-(-rows // together), keys, at, raw(a), raw(values), places, n, k, pieces, rows, together)
    return values, places


@kernel
def best_of_pieces(chunk: Any, a: Any, keys: Any, at: Any, n: Any, k: Any, pieces: Any, length: Any, tasks: Any, each: Any,
                   flip: Any) -> Any:  # fmt: skip
    """The heap of each piece of each row; `flip` is -1 to look for the largest."""
    for task in range(chunk * each, min(tasks, chunk * each + each)):
        first = (task % pieces) * length
        row = a + (task // pieces) * n
        best_of(row, first, min(n, first + length), k, keys + task * k, at + task * k, flip)


def best_of(row: Any, first: Any, last: Any, k: Any, keys: Any, at: Any, flip: Any) -> Any:
    kind = widened(keys)
    full, mask = kind((1 << (kind.bits - 1)) - 1), kind(flip)
    filled = min(k, last - first)
    for j in range(filled):
        keys[j] = key_at(row, first + j) ^ mask
        at[j] = first + j
    for j in range(filled, k):                       # a short piece is filled up with what loses against everything
        keys[j] = full
        at[j] = 0x7FFFFFFFFFFFFFFF
    start = k // 2
    while start > 0:
        start -= 1
        outlined(sink)(keys, at, start, k)
    i = first + filled
    while i < last:
        if i + BLOCK > last:
            outlined(replace)(row, i, last, k, keys, at, mask)
        elif least_key(row, i, BLOCK, full, mask) < keys[0]:
            for part in range(BLOCK // PART):
                start = i + part * PART
                if least_key(row, start, PART, full, mask) < keys[0]:
                    outlined(replace)(row, start, start + PART, k, keys, at, mask)
        i += BLOCK


def least_key(row: Any, first: Any, COUNT: Any, full: Any, mask: Any) -> Any:
    least = full
    for j in range(COUNT):
        least = min(least, key_at(row, first + j) ^ mask)
    return least


def replace(row: Any, first: Any, last: Any, k: Any, keys: Any, at: Any, mask: Any) -> Any:
    """Let every element that comes before the worst of the heap take its place."""
    for j in range(first, last):
        key = key_at(row, j) ^ mask
        if key < keys[0]:                            # an equal one comes later and loses
            keys[0] = key
            at[0] = j
            outlined(sink)(keys, at, 0, k)


def after(keys: Any, at: Any, i: Any, key: Any, place: Any) -> Any:
    """Whether heap element `i` comes after `key` from `place`."""
    return keys[i] > key or keys[i] == key and at[i] > place


def sink(keys: Any, at: Any, start: Any, k: Any) -> Any:
    """Let element `start` of a heap of `k` sink to where both its children come before it."""
    i = start
    key, place = keys[i], at[i]
    going = 2 * i + 1 < k
    while going:
        child = 2 * i + 1
        if child + 1 < k and after(keys, at, child + 1, keys[child], at[child]):
            child += 1
        going = after(keys, at, child, key, place)
        if going:
            keys[i] = keys[child]
            at[i] = at[child]
            i = child
            going = 2 * i + 1 < k
    keys[i] = key
    at[i] = place


@kernel
def merge_pieces(chunk: Any, keys: Any, at: Any, bits: Any, values: Any, places: Any, n: Any, k: Any, pieces: Any, rows: Any,
                 together: Any) -> Any:  # fmt: skip
    """Bring the best of all pieces into the first heap of each row, order it, and write elements and places."""
    for row in range(chunk * together, min(rows, chunk * together + together)):
        heap, where_from = keys + row * pieces * k, at + row * pieces * k
        for j in range(k, pieces * k):
            if after(heap, where_from, 0, heap[j], where_from[j]):
                heap[0] = heap[j]
                where_from[0] = where_from[j]
                sink(heap, where_from, 0, k)
        left = k
        while left > 1:                              # the worst goes to the end of what is left
            left -= 1
            key, place = heap[left], where_from[left]
            heap[left] = heap[0]
            where_from[left] = where_from[0]
            heap[0] = key
            where_from[0] = place
            sink(heap, where_from, 0, left)
        for j in range(k):
            places[row * k + j] = where_from[j]
            values[row * k + j] = bits[row * n + where_from[j]]
