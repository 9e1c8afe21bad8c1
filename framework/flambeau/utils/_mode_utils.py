"""Small helpers around modes."""

from __future__ import annotations

from typing import Any

__all__ = ["all_same_mode"]


def all_same_mode(modes: Any) -> bool:
    """Whether all of `modes` are one object."""
    return all(m is modes[0] for m in modes)


class no_dispatch:  # a context manager
    """A region without interpreters: neither dispatch modes nor transforms."""

    def __enter__(self) -> None:
        from .. import _state

        self.before = _state.local.calls.interpreters
        _state.local.calls.interpreters = ()

    def __exit__(self, *_: object) -> None:
        from .. import _state

        _state.local.calls.interpreters = self.before
