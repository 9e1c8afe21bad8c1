"""Errors of workers: `record` writes them to a file, and the launcher reads what went wrong first."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["ChildFailedError", "ErrorHandler", "ProcessFailure", "get_error_handler", "record"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclasses.dataclass
class ProcessFailure:
    """How a worker ended: its `local_rank`, `pid`, `exitcode` and `error_file`; `message` is what it said, `timestamp` when (seconds)."""

    local_rank: int
    pid: int
    exitcode: int
    error_file: str
    message: Any = ""
    timestamp: int = dataclasses.field(default_factory=lambda: int(time.time()))

    def signal_name(self) -> str:
        """The name of the signal that ended it, or ``<N/A>``."""
        return signal.Signals(-self.exitcode).name if self.exitcode < 0 else "<N/A>"


class ChildFailedError(Exception):
    """Workers failed.

    Args:
        name: the program.
        failures: a `ProcessFailure` for each rank that failed, the first of them first.
    """

    def __init__(self, name: str, failures: dict[int, ProcessFailure]) -> None:
        self.name, self.failures = name, failures
        rows = [
            f"  rank {rank} (local rank {f.local_rank}, process {f.pid}): exit code {f.exitcode}"
            f"{f' ({f.signal_name()})' if f.exitcode < 0 else ''}, error file {f.error_file}\n    {f.message}".rstrip()
            for rank, f in failures.items()
        ]
        super().__init__("\n".join([f"{name} FAILED; the first failure is on top", *rows]))

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        """The rank that failed first, and how."""
        return next(iter(self.failures.items()))


class ErrorHandler:
    """Writes the exception of a worker to the file that its launcher named."""

    def initialize(self) -> None:
        """Print the lines of Python when the process crashes."""
        import faulthandler

        faulthandler.enable(all_threads=True)

    def record_exception(self, e: BaseException) -> None:
        """Write `e` to the file in ``TORCHELASTIC_ERROR_FILE``; without one it does nothing."""
        path = os.environ.get("TORCHELASTIC_ERROR_FILE")
        if not path:
            return
        text = "".join(traceback.format_exception(type(e), e, e.__traceback__))
        about = {
            "message": f"{type(e).__name__}: {e}",
            "extraInfo": {"py_callstack": text, "timestamp": str(int(time.time()))},
        }
        with open(path, "w") as file:
            json.dump({"message": about}, file)


def get_error_handler() -> ErrorHandler:
    """The handler that `record` uses."""
    return ErrorHandler()


def record(fn: F, error_handler: ErrorHandler | None = None) -> F:
    """Decorate the main function of a worker: what it raises is written to the launcher's error file, and raised.

    Args:
        fn: the function.
        error_handler: another handler than `ErrorHandler`.
    """
    handler = error_handler or get_error_handler()

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        handler.initialize()
        try:
            return fn(*args, **kwargs)
        except SystemExit as error:
            if error.code:
                handler.record_exception(error)
            raise
        except Exception as error:
            handler.record_exception(error)
            raise

    return wrapper  # pyright: ignore[reportReturnType]  # it has the signature of fn
