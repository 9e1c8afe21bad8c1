"""Which cases of parametrized tests a run takes that takes some of them: `pytest --one-in N --turn T`."""

from __future__ import annotations

import collections
import zlib
from collections.abc import Sequence


def taken(cases: Sequence[str], step: int, turn: int) -> set[int]:
    """Places in `cases`, which are pytest's names ``test[case]``, of those that run in this turn: of each test one in `step`.

    Any `step` turns in a row take all of them, and each turn at least one of every test.
    """
    tests: dict[str, list[int]] = collections.defaultdict(list)
    for place, name in enumerate(cases):
        tests[name.partition("[")[0]].append(place)
    found: set[int] = set()
    for places in tests.values():
        # In an order of its own: every second case in the order of the table would have one of two dtypes alone.
        places.sort(key=lambda place: zlib.crc32(cases[place].encode()))
        found.update(places[turn % min(step, len(places)) :: step])
    return found
