"""How many inputs a module takes in a second, called by one or several threads."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from typing import Any

__all__ = ["ExecutionStats", "ThroughputBenchmark", "format_time"]


def format_time(time_us: float | None = None, time_ms: float | None = None, time_s: float | None = None) -> str:
    """A time as text: ``'1.500ms'``. Raises: AssertionError unless one of microseconds, milliseconds and seconds is given."""
    given = [scale * t for t, scale in ((time_us, 1.0), (time_ms, 1e3), (time_s, 1e6)) if t is not None]
    if len(given) != 1:
        raise AssertionError("Expected only one of time_us, time_ms, time_s is given.")
    microseconds = given[0]
    if microseconds >= 1e6:
        return f"{microseconds / 1e6:.3f}s"
    return f"{microseconds / 1e3:.3f}ms" if microseconds >= 1e3 else f"{microseconds:.3f}us"


class ExecutionStats:
    """What `ThroughputBenchmark.benchmark` measured."""

    def __init__(self, latency_avg_ms: float, num_iters: int, num_calling_threads: int) -> None:
        self._latency_avg_ms, self._num_iters, self._num_calling_threads = latency_avg_ms, num_iters, num_calling_threads

    @property
    def latency_avg_ms(self) -> float:
        """Milliseconds of a call, on average."""
        return self._latency_avg_ms

    @property
    def num_iters(self) -> int:
        """How many calls were measured."""
        return self._num_iters

    @property
    def iters_per_second(self) -> float:
        """Calls in a second, of all threads."""
        return self.num_iters / self.total_time_seconds

    @property
    def total_time_seconds(self) -> float:
        """Seconds that all calls took."""
        return self.num_iters * (self.latency_avg_ms / 1000.0) / self._num_calling_threads

    def __str__(self) -> str:
        return "\n".join([
            f"Average latency per example: {format_time(time_ms=self.latency_avg_ms)}",
            f"Total number of iterations: {self.num_iters}",
            f"Total number of iterations per second (across all threads): {self.iters_per_second:.2f}",
            f"Total time: {format_time(time_s=self.total_time_seconds)}",
        ])


class ThroughputBenchmark:
    """Calls a module with inputs that were added, from several threads.

    Args:
        module: what is called: a module, or a script of one.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self._inputs: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def run_once(self, *args: Any, **kwargs: Any) -> Any:
        """``module(*args, **kwargs)``."""
        return self._module(*args, **kwargs)

    def add_input(self, *args: Any, **kwargs: Any) -> None:
        """Add arguments that `benchmark` draws from."""
        self._inputs.append((args, kwargs))

    def benchmark(
        self, num_calling_threads: int = 1, num_warmup_iters: int = 10, num_iters: int = 100, profiler_output_path: str = ""
    ) -> ExecutionStats:
        """Call the module and measure.

        Args:
            num_calling_threads: threads that call it at the same time.
            num_warmup_iters: calls in each thread before any is measured.
            num_iters: calls that are measured, of all threads together; the last ones may be more.
            profiler_output_path: a file for a trace of the calls that are measured; none if empty.
        Raises: RuntimeError where no inputs have been added.
        """
        if not self._inputs:
            raise RuntimeError("Please provide benchmark inputs. Did you forget to call add_input()?")
        turns = iter(range(num_iters))
        ready = threading.Barrier(num_calling_threads + 1)
        failures: list[BaseException] = []

        def call(number: int) -> None:
            draw = random.Random(number)
            try:
                for _ in range(num_warmup_iters):
                    self._call(draw)
                ready.wait()
                while next(turns, None) is not None:
                    self._call(draw)
            except BaseException as error:
                failures.append(error)
                ready.abort()

        threads = [threading.Thread(target=call, args=(number,)) for number in range(num_calling_threads)]
        for thread in threads:
            thread.start()
        with contextlib.suppress(threading.BrokenBarrierError):  # a call failed; its error is raised below
            ready.wait()
        with _traced(profiler_output_path):
            started = time.perf_counter()
            for thread in threads:
                thread.join()
            taken = time.perf_counter() - started
        errors = [error for error in failures if not isinstance(error, threading.BrokenBarrierError)]
        if errors:
            raise errors[0]
        return ExecutionStats(taken * 1000.0 * num_calling_threads / num_iters, num_iters, num_calling_threads)

    def _call(self, draw: random.Random) -> None:
        args, kwargs = draw.choice(self._inputs)
        self._module(*args, **kwargs)


def _traced(path: str) -> Any:
    """A context that writes a trace of what runs within to `path`, or nothing where that is empty."""
    if not path:
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def traced() -> Any:
        from ..autograd.profiler import profile

        with profile() as found:
            yield
        found.export_chrome_trace(path)

    return traced()
