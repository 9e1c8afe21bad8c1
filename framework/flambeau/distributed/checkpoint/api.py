"""The error of a save or load that some ranks could not do."""

from __future__ import annotations

import traceback
from typing import Any

__all__ = ["CheckpointException"]


class CheckpointException(BaseException):
    """What went wrong in a checkpoint, by rank. As in PyTorch it is no `Exception`: all ranks stop, not those that failed alone."""

    def __init__(self, msg: str, failures: dict[int, tuple[BaseException, traceback.StackSummary]]) -> None:
        super().__init__(msg, failures)
        self._failures = failures

    @property
    def failures(self) -> dict[int, tuple[BaseException, traceback.StackSummary]]:
        """Exception and where it was raised, by rank."""
        return self._failures

    def __str__(self) -> str:
        lines = [f"CheckpointException ranks:{self._failures.keys()}"]
        for rank, (error, stack) in self._failures.items():
            lines.append(f"Traceback (most recent call last): (RANK {rank})\n")
            if stack:
                lines += stack.format()
            lines += traceback.format_exception_only(type(error), error)
        return "\n".join([lines[0], "".join(lines[1:])])


def failure_of(error: BaseException) -> tuple[BaseException, traceback.StackSummary]:
    """`error` with where it was raised."""
    return error, traceback.extract_tb(error.__traceback__)


def packed(failure: tuple[BaseException, traceback.StackSummary]) -> tuple[Any, ...]:
    """A failure as data that other ranks can be sent."""
    error, stack = failure
    args = [a for a in error.args if isinstance(a, (str, int, float))]
    return type(error).__name__, args or [str(error)], [(f.filename, f.lineno or 0, f.name, f.line or "") for f in stack]


def unpacked(data: tuple[Any, ...]) -> tuple[BaseException, traceback.StackSummary]:
    """What `packed` made; of an exception that is not Python's own, a RuntimeError with its name."""
    import builtins

    name, args, frames = data
    kind = getattr(builtins, name, None)
    known = isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, UnicodeError)
    error = kind(*args) if known else RuntimeError(f"{name}: {' '.join(map(str, args))}")  # type: ignore[misc]
    return error, traceback.StackSummary.from_list([tuple(f) for f in frames])
