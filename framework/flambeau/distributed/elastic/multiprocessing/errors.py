"""Errors of workers: `record` writes them to a file, and the launcher reads what went wrong first."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import signal
import socket
import time
import traceback
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

__all__ = ["ChildFailedError", "ErrorHandler", "ProcessFailure", "get_error_handler", "record"]

F = TypeVar("F", bound=Callable[..., Any])

_NONE = "<NONE>"
_NO_FILE = "<N/A>"


@dataclasses.dataclass
class ProcessFailure:
    """How a worker ended; what it wrote is read when this is made.

    Attributes: error_file_data (what the file holds), message (what the worker said), timestamp (when, in seconds since 1970).

    Args:
        local_rank: which of its machine's workers it was.
        pid: its process id.
        exitcode: how it ended; the number of a signal is negative.
        error_file: the path of what it wrote; ``<N/A>`` if it wrote nothing.
    """

    local_rank: int
    pid: int
    exitcode: int
    error_file: str
    error_file_data: dict[str, Any] = dataclasses.field(init=False)
    message: Any = dataclasses.field(init=False)
    timestamp: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.error_file_data = {"message": _NONE}
        if os.path.isfile(self.error_file):
            with open(self.error_file, encoding="utf-8") as file:
                self.error_file_data = json.load(file)
            self.message = self.error_file_data.get("message", _NONE)
            extra = self.message.get("extraInfo", {}) if isinstance(self.message, dict) else {}
            self.timestamp = int(extra.get("timestamp", 0))
            return
        self.error_file = _NO_FILE
        self.timestamp = int(time.time())
        if self.exitcode < 0:
            self.message = f"Signal {-self.exitcode} ({self.signal_name()}) received by PID {self.pid}"
        else:
            self.message = "it wrote no error; decorate its main function with flambeau.distributed.elastic.multiprocessing.errors.record"

    def signal_name(self) -> str:
        """The name of the signal that ended it, or ``<N/A>``."""
        if self.exitcode >= 0:
            return _NO_FILE
        try:
            return signal.Signals(-self.exitcode).name
        except ValueError:
            return f"<Unknown signal {-self.exitcode}>"

    def timestamp_isoformat(self) -> str:
        """When it failed, as a date and a time of day of this place."""
        return datetime.fromtimestamp(self.timestamp).isoformat(sep="_")

    def _text(self) -> str:
        return str(self.message.get("message", self.message) if isinstance(self.message, dict) else self.message)


class ChildFailedError(Exception):
    """Workers failed; the message has the first failure on top.

    Args:
        name: the program.
        failures: a `ProcessFailure` for each rank that failed.
    Raises: AssertionError without failures.
    """

    def __init__(self, name: str, failures: dict[int, ProcessFailure]) -> None:
        if not failures:
            raise AssertionError(f"ChildFailedError of {name} needs the failures, got none")
        self.name, self.failures = name, failures
        super().__init__(self.format_msg())

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        """The rank that failed first, and how."""
        return min(self.failures.items(), key=lambda item: item[1].timestamp)

    def format_msg(self, boarder_delim: str = "=", section_delim: str = "-") -> str:
        """The text of the error: the first failure, then the others.

        Args:
            boarder_delim, section_delim: one letter each, of which lines around and between its parts are made.
        """
        first, failure = self.get_first_failure()
        title = f"{self.name} FAILED; the first failure is on top"
        others = [self._row(rank, f) for rank, f in sorted(self.failures.items()) if rank != first]
        parts = [self._row(first, failure), *([section_delim * len(title)] if others else []), *others]
        return "\n".join([boarder_delim * len(title), title, section_delim * len(title), *parts, boarder_delim * len(title)])

    @staticmethod
    def _row(rank: int, failure: ProcessFailure) -> str:
        name = f" ({failure.signal_name()})" if failure.exitcode < 0 else ""
        return (
            f"  rank {rank} (local rank {failure.local_rank}, process {failure.pid}, host {socket.gethostname()}) "
            f"at {failure.timestamp_isoformat()}: exit code {failure.exitcode}{name}, error file {failure.error_file}\n"
            f"    {failure._text()}"
        )


class ErrorHandler:
    """Writes the exception of a worker to the file that its launcher named."""

    def _path(self) -> str | None:
        return os.environ.get("TORCHELASTIC_ERROR_FILE") or None

    def initialize(self) -> None:
        """Print the lines of Python when the process crashes."""
        import faulthandler

        faulthandler.enable(all_threads=True)

    def record_exception(self, e: BaseException) -> None:
        """Write `e` to the file in ``TORCHELASTIC_ERROR_FILE``; without one it does nothing."""
        text = "".join(traceback.format_exception(type(e), e, e.__traceback__))
        self._write(
            {
                "message": {
                    "message": f"{type(e).__name__}: {e}",
                    "extraInfo": {"py_callstack": text, "timestamp": str(int(time.time()))},
                }
            }
        )

    def dump_error_file(self, rootcause_error_file: str, error_code: int = 0) -> None:
        """Write to the file of this process what a worker of it wrote, so that a launcher above finds the first cause.

        Args:
            rootcause_error_file: what the worker wrote.
            error_code: put into it, if not 0.
        """
        with open(rootcause_error_file, encoding="utf-8") as file:
            data = json.load(file)
        if error_code and isinstance(data.get("message"), dict):
            data["message"]["errorCode"] = error_code
        self._write(data)

    def _write(self, data: dict[str, Any]) -> None:
        path = self._path()
        if path is None:
            return
        # A file that is there is whole: the launcher may look while it is written.
        temporary = f"{path}.{os.getpid()}"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(data, file)
        os.replace(temporary, path)


def get_error_handler() -> ErrorHandler:
    """The handler that `record` uses."""
    return ErrorHandler()


def record(fn: F, error_handler: ErrorHandler | None = None) -> F:
    """Decorate the main function of a worker: what it raises is written to the launcher's error file, and raised.

    A `ChildFailedError` writes the error of the worker that failed first.

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
        except ChildFailedError as error:
            _, failure = error.get_first_failure()
            if failure.error_file == _NO_FILE:
                handler.record_exception(error)
            else:
                handler.dump_error_file(failure.error_file, failure.exitcode)
            raise
        except Exception as error:
            handler.record_exception(error)
            raise

    return wrapper  # pyright: ignore[reportReturnType]  # it has the signature of fn
