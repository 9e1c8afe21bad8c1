"""Patterns of module and file names, in which ``**`` stands for any number of whole parts."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["GlobGroup", "GlobPattern"]

GlobPattern = str | Iterable[str]


class GlobGroup:
    """Names that match one of some patterns and none of others.

    A name and a pattern consist of parts, as ``a.b.c`` of three. In a part of a pattern ``*`` stands for any characters; a
    part ``**`` stands for any number of parts, none included.

    Args:
        include: a pattern or several.
        exclude: a pattern or several whose names do not match.
        separator: what stands between parts.
    Raises: ValueError for a part with ``**`` and something else; TypeError for what is no pattern.

    >>> GlobGroup("flambeau.*").matches("flambeau.nn")
    True
    >>> GlobGroup("flambeau.**", exclude="flambeau.nn").matches("flambeau.nn")
    False
    """

    def __init__(self, include: GlobPattern, *, exclude: GlobPattern = (), separator: str = ".") -> None:
        self._text = f"GlobGroup(include={include}, exclude={exclude})"
        self.separator = separator
        self.include = [_compiled(pattern, separator) for pattern in _listed(include)]
        self.exclude = [_compiled(pattern, separator) for pattern in _listed(exclude)]

    def matches(self, candidate: str) -> bool:
        """Whether the name `candidate` is in the group."""
        name = self.separator + candidate
        return any(p.fullmatch(name) for p in self.include) and not any(p.fullmatch(name) for p in self.exclude)

    def __repr__(self) -> str:
        return self._text


def _listed(patterns: GlobPattern) -> list[str]:
    return [patterns] if isinstance(patterns, str) else list(patterns)


def _compiled(pattern: str, separator: str) -> re.Pattern[str]:
    # The separator is written in front of every part, so that no part at all is the empty text.
    return re.compile("".join(_part(part, re.escape(separator)) for part in pattern.split(separator)), re.DOTALL)


def _part(part: str, separator: str) -> str:
    other = f"(?:(?!{separator}).)"
    if part == "**":
        return f"(?:{separator}{other}+)*"
    if "**" in part:
        raise ValueError(f"** can only appear as an entire path segment, got {part!r}")
    return separator + f"{other}*".join(map(re.escape, part.split("*")))
