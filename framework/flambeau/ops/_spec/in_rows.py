"""How an operation works by rows, for kernels that do several operations at once (`flambeau_kernels.cpu.row_programs`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class InRows:
    """What an op's `in_rows` says of a call.

    Attributes:
        axes: the dimensions of the first operand that make a row.
        stage: ``stage(name, to, moments)`` is the stage: ``name(parameter)`` is what an operand is called in the program, `to` the result.
        columns: parameters that are one row which all rows have in common.
        moments: how many numbers a row the stage finds besides.
        kept: ``kept(*arrays)`` of these, each ``(rows, 1)``, is what the op's kernel keeps for the derivative.
    """

    __slots__ = ("axes", "stage", "columns", "moments", "kept")

    def __init__(
        self,
        axes: tuple[int, ...],
        stage: Callable[..., Any],
        columns: tuple[str, ...] = (),
        moments: int = 0,
        kept: Callable[..., Any] | None = None,
    ) -> None:
        self.axes, self.stage, self.columns, self.moments, self.kept = axes, stage, columns, moments, kept
