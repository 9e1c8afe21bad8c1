"""Modules of settings: their names may be set and patched, and no others."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

__all__ = ["settings_of"]


class _Settings(ModuleType):
    """A module of settings, some of which have other names; what is no setting cannot be set."""

    def __getattr__(self, name: str) -> Any:
        aliases = self.__dict__["_ALIASES"]
        if name in aliases:
            return self.__dict__[aliases[name]]
        raise AttributeError(f"{_shown(self.__name__)}.{name} does not exist")

    def __setattr__(self, name: str, value: Any) -> None:
        name = self.__dict__["_ALIASES"].get(name, name)
        if name not in self.__dict__["_SETTINGS"] and name[:2] != "__":
            raise AttributeError(f"{_shown(self.__name__)}.{name} does not exist")
        super().__setattr__(name, value)


def _shown(module: str) -> str:
    return f"torch.{module.partition('.')[2]}"


def settings_of(module: str, others: tuple[str, ...], aliases: Mapping[str, str] | None = None) -> Callable[..., Any]:
    """Let the module of this name be one of settings: those that it has so far. Returns: its `patch`.

    Args:
        others: names in it that are no settings; those that begin with ``_`` are none.
        aliases: other names of settings.
    """
    itself = sys.modules[module]
    place = vars(itself)
    other_names = place["_ALIASES"] = dict(aliases or {})
    names = place["_SETTINGS"] = frozenset(name for name in place if name[0] != "_" and name not in others)
    itself.__class__ = _Settings

    @contextlib.contextmanager
    def patch(arg1: Any = None, arg2: Any = None, **changes: Any) -> Iterator[None]:
        """A context or decorator with other settings: ``patch("verbose", True)``, ``patch({...})`` or ``patch(verbose=True)``.

        Raises: AttributeError for a name that is no setting.
        """
        given: dict[str, Any] = dict(arg1) if isinstance(arg1, dict) else {} if arg1 is None else {arg1: arg2}
        wanted: dict[str, Any] = {other_names.get(name, name): value for name, value in {**given, **changes}.items()}
        unknown = [name for name in wanted if name not in names]
        if unknown:
            raise AttributeError(f"{module.partition('.')[2]}.patch: {unknown[0]} is no setting known here")
        before = {name: place[name] for name in wanted}
        place.update(wanted)
        try:
            yield
        finally:
            place.update(before)

    return patch
