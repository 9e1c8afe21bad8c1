"""Losses of spread scores."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = ["loss_parallel"]


@contextlib.contextmanager
def loss_parallel() -> Iterator[None]:
    """A context in which `cross_entropy` takes scores that are divided along their classes.

    It does so everywhere: the scores are put together, and each rank computes the same loss. The context is there for programs that
    enter it; backward belongs into it too, as in PyTorch.
    """
    yield
