"""A cut of least weight, which says what is kept for a derivative and what is computed again."""

from __future__ import annotations

import collections
import math
from typing import Any


class Flow:
    """A network of pipes, and how much flows through it."""

    def __init__(self) -> None:
        self.room: dict[Any, dict[Any, float]] = collections.defaultdict(dict)

    def add(self, a: Any, b: Any, room: float) -> None:
        self.room[a][b] = self.room[a].get(b, 0.0) + room
        self.room[b].setdefault(a, 0.0)

    def cut(self, start: Any, end: Any) -> set[Any]:
        """What is still within reach of `start` when no more can flow to `end`: the near side of a cut of least weight."""
        while True:
            came = self._reach(start)
            if end not in came:
                return set(came)
            path, at = [], end
            while at != start:
                path.append((came[at], at))
                at = came[at]
            most = min(self.room[a][b] for a, b in path)
            if most == math.inf:
                raise RuntimeError("partition: the derivative uses results of several parts as a whole, which cannot be kept")
            for a, b in path:
                self.room[a][b] -= most
                self.room[b][a] += most

    def _reach(self, start: Any) -> dict[Any, Any]:
        came: dict[Any, Any] = {start: None}
        waiting = collections.deque([start])
        while waiting:
            at = waiting.popleft()
            for to, room in self.room[at].items():
                if room > 0 and to not in came:
                    came[to] = at
                    waiting.append(to)
        return came
