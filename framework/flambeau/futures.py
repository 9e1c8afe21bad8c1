"""Results that are still to come, and what is done with them when they have."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")
S = TypeVar("S")


class Future(Generic[T]):
    """A value that some thread sets once, or the exception that it failed with.

    Args:
        devices: CUDA devices, with indices, whose work a value may stand for.
    Raises: ValueError for devices without an index; RuntimeError for CUDA devices where there are none.
    """

    def __init__(self, *, devices: list[Any] | None = None) -> None:
        self._finished = threading.Condition()
        self._is_done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future[T]], Any]] = []
        if devices:
            _check_devices(devices)

    def done(self) -> bool:
        """Whether there is a value or an exception."""
        return self._is_done

    def wait(self) -> T:
        """The value, when it is there.

        Raises: the exception that was set instead.
        """
        with self._finished:
            self._finished.wait_for(lambda: self._is_done)
        return self._outcome()

    def value(self) -> T:
        """The value, which has to be there already.

        Raises: RuntimeError if it is not; the exception that was set instead.
        """
        if not self._is_done:
            raise RuntimeError("Future.value: the future is not completed; call wait() first")
        return self._outcome()

    def _outcome(self) -> T:
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def set_result(self, result: T) -> None:
        """Complete the future with `result` and call what waits for it.

        Raises: RuntimeError if it is completed already.
        """
        self._complete(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Complete the future with an exception, which `wait` and `value` raise.

        Raises: AssertionError if `result` is no exception; RuntimeError if the future is completed already.
        """
        if not isinstance(result, BaseException):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._complete(None, result)

    def _complete(self, value: Any, error: BaseException | None) -> None:
        with self._finished:
            if self._is_done:
                raise RuntimeError(
                    "Attempting to mark a completed Future as complete again. Note that a Future can only be marked "
                    "completed once."
                )
            self._value, self._error, self._is_done = value, error, True
            callbacks, self._callbacks = self._callbacks, []
            self._finished.notify_all()
        for callback in callbacks:
            self._call(callback)

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Call ``callback(self)`` on completion, at once if that has been. Its exceptions are printed and go nowhere else."""
        with self._finished:
            if not self._is_done:
                self._callbacks.append(callback)
                return
        self._call(callback)

    def _call(self, callback: Callable[[Future[T]], Any]) -> None:
        try:
            callback(self)
        except Exception:
            # Whoever completes the future has nothing to do with what others made of it.
            traceback.print_exc()

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """A future of what ``callback(self)`` returns once this one is completed; its exceptions become that future's."""
        following: Future[S] = Future()

        def run(future: Future[T]) -> None:
            try:
                result = callback(future)
            except Exception as error:
                following.set_exception(error)
            else:
                following.set_result(result)

        self.add_done_callback(run)
        return following


def _check_devices(devices: list[Any]) -> None:
    import flambeau as fb

    for given in devices:
        device = fb.device(given)
        if device.type == "cuda" and not fb.cuda.is_available():
            raise RuntimeError(f"Future: devices holds {device}, but there is no CUDA device")
        if device.index is None:
            raise ValueError(f"Expected devices to have indices, got {device}")


def collect_all(futures: list[Future]) -> Future[list[Future]]:
    """A future of the list `futures`, completed when all of them are; with the first exception if one failed."""
    collected: Future[list[Future]] = Future()
    left = len(futures)
    lock = threading.Lock()
    if not futures:
        collected.set_result([])

    def one_less(_: Future) -> None:
        nonlocal left
        with lock:
            left -= 1
            last = not left
        if last:
            failed = next((future._error for future in futures if future._error is not None), None)
            collected.set_exception(failed) if failed is not None else collected.set_result(futures)

    for future in futures:
        future.add_done_callback(one_less)
    return collected


def wait_all(futures: list[Future]) -> list[Any]:
    """The values of all `futures`, when they are there.

    Raises: the first exception among them.
    """
    return [future.wait() for future in collect_all(futures).wait()]
