"""Run a script twice, under Python's profiler and under that of autograd, and print a summary of both."""

from __future__ import annotations

import argparse
import cProfile
import io
import os
import platform
import pstats
import sys
from collections.abc import Callable, Sequence
from typing import Any

_LINES = 15


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m flambeau.utils.bottleneck",
        description="Run a script under the profilers of Python and of autograd, and print what took most time. It has to end by itself.",
    )
    parser.add_argument("scriptfile", help="the script to run, twice")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="arguments of the script")
    return parser.parse_args(arguments)


def _runner(script: str, arguments: Sequence[str]) -> Callable[[], None]:
    """What runs `script` as the main program. Raises: SystemExit if it cannot be read."""
    try:
        with open(script, "rb") as file:
            code = compile(file.read(), script, "exec")
    except OSError as error:
        raise SystemExit(f"bottleneck: cannot read {script}: {error.strerror}") from error

    def run() -> None:
        sys.argv = [script, *arguments]
        sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
        try:
            exec(code, {"__file__": script, "__name__": "__main__", "__package__": None, "__cached__": None})
        finally:
            del sys.path[0]

    return run


def _section(title: str, text: str) -> None:
    rule = "-" * 80
    print(f"{rule}\n  {title}\n{rule}\n{text}")


def _by_python(run: Callable[[], None]) -> str:
    profile = cProfile.Profile()
    profile.enable()
    try:
        run()
    finally:
        profile.disable()
    out = io.StringIO()
    pstats.Stats(profile, stream=out).sort_stats("tottime").print_stats(_LINES)
    return out.getvalue()


def _by_autograd(run: Callable[[], None]) -> str:
    from ...autograd.profiler import profile

    with profile() as made:
        run()
    events: Any = made.key_averages()  # type: ignore[union-attr]  # it is enabled
    return events.table(sort_by="self_cpu_time_total", row_limit=_LINES, header=f"top {_LINES} by self time")


def main(arguments: Sequence[str] | None = None) -> None:
    """Profile the script that the command line names.

    Args:
        arguments: a command line in the place of this process's.
    """
    from ... import __version__

    given = _parsed(arguments)
    run = _runner(given.scriptfile, given.args)
    before = sys.argv
    try:
        python, autograd = _by_python(run), _by_autograd(run)
    finally:
        sys.argv = before
    _section("Environment", f"flambeau {__version__}, Python {platform.python_version()}, {platform.platform()}, {os.cpu_count()} CPUs")
    _section("cProfile output", python)
    _section("autograd profiler output (CPU)", autograd)


if __name__ == "__main__":
    main()
