"""Layers spread over a device mesh: the names, for programs that only mention them. What would spread one says that it is not built."""

from __future__ import annotations

from typing import Any

from .. import _unbuilt

__all__ = [
    "ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput", "RowwiseParallel",
    "SequenceParallel", "loss_parallel", "parallelize_module",
]  # fmt: skip


class ParallelStyle:
    """How a module is spread; the base of the styles, and of a program's own.

    Raises: NotImplementedError when one is made.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _unbuilt(f"parallel.{type(self).__name__}")()


class ColwiseParallel(ParallelStyle):
    """Spread a weight by its rows, the columns of the product."""


class RowwiseParallel(ParallelStyle):
    """Spread a weight by its columns, the rows of the product."""


class SequenceParallel(ParallelStyle):
    """Spread the positions of a sequence."""


class PrepareModuleInput(ParallelStyle):
    """Spread the arguments of a module."""


class PrepareModuleOutput(ParallelStyle):
    """Spread the results of a module."""


class PrepareModuleInputOutput(ParallelStyle):
    """Spread arguments and results of a module."""


loss_parallel, parallelize_module = _unbuilt("parallel.loss_parallel"), _unbuilt("parallel.parallelize_module")
