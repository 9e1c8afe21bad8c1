"""A version string that compares as a version, as `torch.__version__` does."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["TorchVersion"]

# The public shape of PEP 440, with the letters PyTorch's releases use.
_PATTERN = re.compile(
    r"v?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[._-]?(?P<phase>a|alpha|b|beta|c|rc|pre|preview)[._-]?(?P<phase_number>\d*))?"
    r"(?:[._-]?(?P<post>post|rev|r)[._-]?(?P<post_number>\d*))?"
    r"(?:[._-]?(?P<dev>dev)[._-]?(?P<dev_number>\d*))?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[._-][a-z0-9]+)*))?",
    re.IGNORECASE,
)
_PHASES = {"a": 1, "alpha": 1, "b": 2, "beta": 2, "c": 3, "rc": 3, "pre": 3, "preview": 3}
_DEV_ONLY, _FINAL = 0, 4


class TorchVersion(str):
    """A `str` whose order is that of versions; the other side may be a string or a tuple such as `(2, 6)`.

    Strings that are no versions compare as strings.

    >>> TorchVersion("2.10.0+flambeau") > "2.9", TorchVersion("2.10.0") >= (2, 10)
    (True, True)
    """

    __slots__ = ()
    __hash__ = str.__hash__

    def __lt__(self, other: Any) -> bool:
        return _compare(self, other, str.__lt__, tuple.__lt__)

    def __le__(self, other: Any) -> bool:
        return _compare(self, other, str.__le__, tuple.__le__)

    def __gt__(self, other: Any) -> bool:
        return _compare(self, other, str.__gt__, tuple.__gt__)

    def __ge__(self, other: Any) -> bool:
        return _compare(self, other, str.__ge__, tuple.__ge__)

    def __eq__(self, other: Any) -> bool:
        return _compare(self, other, str.__eq__, tuple.__eq__)

    def __ne__(self, other: Any) -> bool:
        return _compare(self, other, str.__ne__, tuple.__ne__)


def _compare(mine: str, other: Any, as_text: Any, as_versions: Any) -> Any:
    if isinstance(other, (tuple, list)):
        other = ".".join(map(str, other))
    if not isinstance(other, str):
        return NotImplemented
    left, right = _key(mine), _key(other)
    if left is None or right is None:
        return as_text(mine, str(other))
    return as_versions(left, right)


def _key(text: str) -> tuple[Any, ...] | None:
    """The order of PEP 440: 1.0.dev1 < 1.0a1 < 1.0rc1 < 1.0 < 1.0+local < 1.0.post1; None for no version."""
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        return None
    release = [int(part) for part in match["release"].split(".")]
    while release and release[-1] == 0:
        release.pop()
    if match["phase"]:
        phase = _PHASES[match["phase"].lower()]
    else:
        phase = _DEV_ONLY if match["dev"] and not match["post"] else _FINAL
    post = int(match["post_number"] or 0) if match["post"] else -1
    dev = int(match["dev_number"] or 0) if match["dev"] else float("inf")
    return tuple(release), phase, int(match["phase_number"] or 0), post, dev, _local_key(match["local"])


def _local_key(local: str | None) -> tuple[tuple[int, int | str], ...]:
    """Numbers sort above words, and any local part above none."""
    parts = re.split(r"[._-]", local.lower()) if local else []
    return tuple((1, int(part)) if part.isdigit() else (0, part) for part in parts)
