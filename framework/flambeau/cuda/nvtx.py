"""Marks for NVIDIA's profilers, by cupy. Without a CUDA device they raise RuntimeError."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ._unbuilt import unbuilt

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]


def _nvtx() -> Any:
    from . import require

    return require("cuda.nvtx").cuda.nvtx


_depth = 0


def mark(msg: str) -> None:
    """Mark this moment with `msg`. Raises: RuntimeError without a device."""
    _nvtx().Mark(msg)


def range_push(msg: str) -> int:
    """Begin a range named `msg`. Returns: how many are open around it. Raises: RuntimeError without a device."""
    global _depth
    _nvtx().RangePush(msg)
    _depth += 1
    return _depth - 1


def range_pop() -> int:
    """End the range begun last. Returns: how many are open around it. Raises: RuntimeError without a device."""
    global _depth
    _nvtx().RangePop()
    _depth = max(_depth - 1, 0)
    return _depth


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:  # PyTorch's name
    """A context, or decorator, that is a range named ``msg.format(*args, **kwargs)``. Raises: RuntimeError without a device."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()


_unbuilt = unbuilt("cuda.nvtx", ("range_end", "range_start"), "range_push and range_pop make ranges that end in the order of beginning")
range_end, range_start = _unbuilt["range_end"], _unbuilt["range_start"]
