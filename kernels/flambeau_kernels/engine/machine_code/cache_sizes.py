"""Sizes of this processor's caches, as the operating system tells them.

They decide how much is packed at a time, and whether at all, never the order of a sum: the bits of results are the same with any.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

__all__ = ["Caches", "caches"]

# Where nothing is told: the smallest first cache of current processors, and a usual second one.
FIRST, WAYS, SECOND = 32 << 10, 8, 1 << 20


class Caches(NamedTuple):
    """Bytes of the first cache for data, how many lines it holds that are a multiple of its ways' size apart, and of the second."""

    first: int
    ways: int
    second: int


@functools.cache
def caches() -> Caches:
    """Those of a core of this machine; usual ones for what the system does not tell, which is all where it is not Linux."""
    first, second = _told(1, "Data"), _told(2, "Unified")
    return Caches(
        first.get("size") or FIRST, first.get("ways_of_associativity") or WAYS, second.get("size") or SECOND,
    )


# Where Linux describes the caches of the first processor, a folder each.
FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")


def _told(level: int, kind: str) -> dict[str, int]:
    """The numbers in the description of one cache, sizes in bytes; none where there is no description."""
    for folder in sorted(FOLDER.glob("index*")):
        words = {file: _word(folder / file) for file in ("level", "type", "size", "ways_of_associativity")}
        if words["level"] == str(level) and words["type"] in (kind, "Unified"):
            return {name: number for name, word in words.items() if (number := _number(word)) is not None}
    return {}


def _word(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _number(word: str) -> int | None:
    """``512K`` as a number."""
    digits, unit = (word[:-1], word[-1]) if word[-1:] in _UNITS else (word, "")
    return int(digits) << _UNITS.get(unit, 0) if digits.isascii() and digits.isdecimal() else None


_UNITS = {"K": 10, "M": 20, "G": 30}
