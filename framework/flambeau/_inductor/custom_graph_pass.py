"""Bases of passes over graphs that programs write, see `_inductor.config.post_grad_custom_post_pass`."""

from __future__ import annotations

import abc
import functools
import hashlib
from typing import Any

__all__ = ["CustomGraphModulePass", "CustomGraphPass", "get_hash_for_files"]


class CustomGraphPass(abc.ABC):
    """A function of a graph, which it changes, that says by `uuid` which it is."""

    @abc.abstractmethod
    def __call__(self, graph: Any) -> None:
        """Change `graph`."""

    @abc.abstractmethod
    def uuid(self) -> Any:
        """What tells the pass from others, for caches of graphs: there are none here, so it is not asked for."""


class CustomGraphModulePass(abc.ABC):
    """A function of a module of a graph, which it changes, that says by `uuid` which it is."""

    @abc.abstractmethod
    def __call__(self, gm: Any) -> None:
        """Change `gm`."""

    @abc.abstractmethod
    def uuid(self) -> Any:
        """What tells the pass from others."""


@functools.cache
def get_hash_for_files(paths: tuple[str, ...], extra: str = "") -> bytes:
    """A hash of the contents of files and of `extra`, for `uuid`."""
    found = hashlib.sha256(extra.encode())
    for path in paths:
        with open(path, "rb") as file:
            found.update(path.encode() + file.read())
    return found.digest()
