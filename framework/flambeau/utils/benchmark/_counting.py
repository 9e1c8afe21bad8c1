"""Runs a statement under valgrind's callgrind and reads the instructions it counted.

The statement runs in a process of its own. Counting is switched on around the loop alone, by a request that valgrind finds in the
instruction stream: rotations that change nothing, followed by an exchange of a register with itself. Anywhere else they do nothing.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import mmap
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import flambeau as fb

from .callgrind import CallgrindStats, FunctionCounts
from .measurement import TaskSpec

__all__ = ["count", "run"]

_PROGRAMS = ("valgrind", "callgrind_annotate")
# The request, for x86-64: an array of six words comes in rdi; the answer, or 0 outside valgrind, goes out in rax.
_REQUEST = bytes.fromhex("4889f8 31d2 48c1c703 48c1c70d 48c1c73d 48c1c733 4887db 4889d0 c3".replace(" ", ""))
_CALLGRIND = ord("C") << 24 | ord("T") << 16
_DUMP, _START, _STOP = _CALLGRIND, _CALLGRIND + 4, _CALLGRIND + 5
_WARM_UP = 300  # runs after which kernels are compiled, and builtins are there
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_baselines: dict[Any, tuple[FunctionCounts, FunctionCounts]] = {}


class Requests:
    """Requests to valgrind, which do nothing outside it. A few instructions each: they are counted with the loop."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._page.write(_REQUEST)
        place = ctypes.addressof(ctypes.c_char.from_buffer(self._page))
        self._words = (ctypes.c_uint64 * 6)()
        self._call = functools.partial(ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(place), ctypes.addressof(self._words))

    def __call__(self, number: int) -> int:
        """Send request `number`; 0 outside valgrind."""
        self._words[0] = number
        return self._call()


def run(task: TaskSpec, given: dict[str, Any], number: int, repeats: int | None, baseline: bool, keep: bool) -> Any:
    """See `Timer.collect_callgrind`. Raises: RuntimeError, NotImplementedError, ValueError."""
    if platform.machine() not in ("x86_64", "AMD64"):
        raise NotImplementedError(f"benchmark.Timer.collect_callgrind: built for x86-64, not for {platform.machine()}")
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        raise RuntimeError(
            f"benchmark.Timer.collect_callgrind: {' and '.join(missing)} not found; install valgrind, or measure time by blocked_autorange"
        )
    for name, value in given.items():
        _check_global(name, value)
    if number < 1 or repeats is not None and repeats < 1:
        raise ValueError(f"benchmark.Timer.collect_callgrind: number and repeats must be positive, got {number} and {repeats}")
    empty = (FunctionCounts((), True), FunctionCounts((), False))
    if baseline:
        key = number, sys.executable
        if key not in _baselines:
            _baselines[key] = count(TaskSpec("pass", "pass"), {}, number, 1)[0][:2]
        empty = _baselines[key]
    found = []
    for inclusive, exclusive, text in count(task, given, number, repeats or 1):
        found.append(
            CallgrindStats(
                task_spec=task, number_per_run=number, built_with_debug_symbols=True,
                baseline_inclusive_stats=empty[0], baseline_exclusive_stats=empty[1],
                stmt_inclusive_stats=inclusive, stmt_exclusive_stats=exclusive, stmt_callgrind_out=text if keep else None,
            )
        )  # fmt: skip
    return found[0] if repeats is None else tuple(found)


def _check_global(name: str, value: Any) -> None:
    if value is fb or isinstance(value, (fb.nn.Module, fb.Tensor, *_PLAIN)):
        return
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple, set)) else None
    if parts is None:
        raise ValueError(
            f"benchmark.Timer.collect_callgrind: globals[{name!r}] is a {type(value).__name__}; the statement runs in another process, "
            "which is given plain values, tensors and modules. Make other things in setup"
        )
    for part in parts:
        _check_global(name, part)


def count(task: TaskSpec, given: dict[str, Any], number: int, repeats: int) -> list[tuple[FunctionCounts, FunctionCounts, str]]:
    """Inclusive and exclusive counts of `number` runs, and what callgrind wrote, `repeats` times. Raises: RuntimeError."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "callgrind.out"
        fb.save({name: value for name, value in given.items() if value is not fb}, str(Path(folder) / "globals.pt"))
        settings = [task.stmt, task.setup, str(number), str(repeats), str(task.num_threads), folder]
        command = [
            "valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--dump-instr=no", "--instr-atstart=no",
            sys.executable, "-c", "from flambeau.utils.benchmark._counting import work; work()", *settings,
        ]  # fmt: skip
        # valgrind knows no AVX-512; names of dicts are looked up in the same order in every run.
        path = os.pathsep.join(filter(None, [*sys.path, os.environ.get("PYTHONPATH", "")]))
        environment = {**os.environ, "PYTHONPATH": path, "FLAMBEAU_CPU": "x86-64-v3", "PYTHONHASHSEED": "0"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(
                f"benchmark.Timer.collect_callgrind: the statement failed under valgrind (status {done.returncode}):\n{done.stderr[-4000:]}"
            )
        return [_read(out.with_name(f"{out.name}.{i + 1}")) for i in range(repeats)]


def work() -> None:
    """What the process under valgrind does."""
    stmt, setup, number, repeats, threads, folder = sys.argv[1:]
    fb.set_num_threads(int(threads))
    with fb.serialization.allow_unsafe_pickle():      # the file is this program's own, written a moment ago
        scope = {"torch": fb, **fb.load(str(Path(folder) / "globals.pt"), weights_only=False)}
    exec(compile(setup, "<setup>", "exec"), scope)
    text = "def loop(times):\n    for _ in times:\n" + "".join(f"        {line}\n" for line in stmt.splitlines())
    exec(compile(text, "<stmt>", "exec"), scope)
    loop = scope["loop"]
    loop(range(_WARM_UP))
    gc.collect()
    gc.disable()                                      # a collection would be counted with the run that it falls into
    request = Requests()
    for _ in range(int(repeats)):
        times = range(int(number))
        request(_START)
        loop(times)
        request(_STOP)
        request(_DUMP)


def _read(path: Path) -> tuple[FunctionCounts, FunctionCounts, str]:
    return _annotated(path, True), _annotated(path, False), path.read_text(encoding="utf-8")


def _annotated(path: Path, inclusive: bool) -> FunctionCounts:
    """The counts of a file of callgrind's, the largest first."""
    # "--inclusive=no" is taken for yes by some releases.
    command = ["callgrind_annotate", "--threshold=100", "--auto=no", *(["--inclusive=yes"] if inclusive else []), str(path)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    begin = next(i for i, line in enumerate(lines) if re.match(r"Ir\s+file:function", line)) + 2
    rows = (re.match(r"\s*([\d,]+)\s+(?:\(\s*[\d.]+%\))?\s*(\S.*)$", line) for line in lines[begin:])
    data = [(int(row[1].replace(",", "")), row[2].strip()) for row in rows if row is not None]
    return FunctionCounts(sorted(data, reverse=True), inclusive)
