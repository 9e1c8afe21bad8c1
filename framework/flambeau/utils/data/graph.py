"""Which pipes a pipe is made of."""

from __future__ import annotations

from typing import Any

from flambeau.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

__all__ = ["traverse", "traverse_dps"]


def traverse_dps(datapipe: Any) -> dict[int, tuple[Any, Any]]:
    """By its id, `datapipe` with the same of those it holds in attributes, containers and plain objects."""
    return _graph(datapipe, set())


def traverse(datapipe: Any, only_datapipe: bool | None = None) -> dict[int, tuple[Any, Any]]:
    """See `traverse_dps`; an older name."""
    return traverse_dps(datapipe)


def _graph(pipe: Any, seen: set[int]) -> dict[int, tuple[Any, Any]]:
    if id(pipe) in seen:
        return {}
    seen = seen | {id(pipe)}
    inner: dict[int, tuple[Any, Any]] = {}
    for part in _pipes_of(vars(pipe), set()):
        inner.update(_graph(part, seen))
    return {id(pipe): (pipe, inner)}


def _pipes_of(value: Any, seen: set[int]) -> list[Any]:
    """The nearest pipes inside `value`."""
    if isinstance(value, (IterDataPipe, MapDataPipe)):
        return [value]
    if id(value) in seen:
        return []
    seen.add(id(value))
    if isinstance(value, dict):
        parts: Any = value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = value
    elif type(value).__module__.startswith("flambeau.utils.data.datapipes") and hasattr(value, "__dict__"):
        parts = vars(value).values()
    else:
        return []
    return [pipe for part in parts for pipe in _pipes_of(part, seen)]
