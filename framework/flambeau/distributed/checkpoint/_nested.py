"""Nested dicts and lists as one dict of names, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import flambeau as fb

__all__ = ["flatten_state_dict", "set_element", "unflatten_state_dict"]


def _is_container(value: Any) -> bool:
    """Whether the parts of `value` are saved each for itself: dicts are, and lists with a dict or a tensor somewhere inside."""
    if isinstance(value, Mapping):
        return True
    return isinstance(value, list) and any(isinstance(v, (Mapping, fb.Tensor)) or _is_container(v) for v in value)


def flatten_state_dict(state_dict: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, tuple[Any, ...]]]:
    """The parts of `state_dict` by name, and by the same name the keys and places that lead to each.

    Raises: ValueError if two parts have one name.
    """
    parts: dict[str, Any] = {}
    paths: dict[str, tuple[Any, ...]] = {}

    def visit(path: tuple[Any, ...], value: Any) -> None:
        if path and not _is_container(value):
            name = ".".join(map(str, path))
            if name in parts:
                raise ValueError(f"checkpoint: two values are named {name!r}; rename a key with a dot in it")
            parts[name], paths[name] = value, path
            return
        for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            visit((*path, key), inner)

    visit((), state_dict)
    return parts, paths


def set_element(root: Any, path: tuple[Any, ...], value: Any) -> None:
    """Store `value` at `path`; dicts and lists that are not there yet are made, a list where the next part of the path is a number."""
    here = root
    for at, key in enumerate(path[:-1]):
        fresh: Any = [] if type(path[at + 1]) is int else {}
        if isinstance(here, list):
            _fill_to(here, key)
            if here[key] is None:
                here[key] = fresh
        elif key not in here:
            here[key] = fresh
        here = here[key]
    if isinstance(here, list):
        _fill_to(here, path[-1])
    here[path[-1]] = value


def _fill_to(values: list[Any], place: int) -> None:
    values += [None] * (place + 1 - len(values))


def unflatten_state_dict(parts: Mapping[str, Any], paths: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Undo `flatten_state_dict`."""
    made: dict[str, Any] = {}
    for name, value in parts.items():
        set_element(made, paths[name], value)
    return made
