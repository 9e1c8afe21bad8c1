"""Programs run with Flambeau and with PyTorch in processes that may die: what the fuzzers share.

A source yields programs (text) and is told what became of each. Workers are forked, write down which program they are about
to run, and are killed when it takes too long; whoever dies is replaced, and the program it died of is a finding:

- abort: the process ended, by a signal or the guard around arrays (`FLAMBEAU_GUARD_MEMORY=1`), unless the unit's programs end
  PyTorch alone so, and not ours alone: what it wrote beside its arrays comes to light in the middle of anything;
- hang: longer than the limit, where PyTorch answers within a tenth of it: what takes PyTorch as long loops as often, and is given
  up as soon as that is known;
- untyped: an exception of a kind that PyTorch's callers do not expect, and PyTorch does not raise;
- fell: an exception that no line of ours raised on purpose, where PyTorch answers or raises another type.

Other disagreements with PyTorch are counted as notes: `refused`, `accepted`, `type` and `value`.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dis
import functools
import json
import mmap
import os
import random
import resource
import select
import signal
import struct
import sys
import tempfile
import time
import traceback
import types
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fuzz.values import UNSAFE

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 30.0                                          # seconds for a program; the first of an op compiles its kernels
STARTING = 2.0                                        # seconds that a process may take to be there, on a busy machine
MEMORY = 4 << 30                                      # bytes that a worker may have beyond what it began with
FAILURES = ("abort", "hang", "untyped", "fell")
NOTES = ("refused", "accepted", "type", "value")
TYPED = frozenset(("RuntimeError", "TypeError", "ValueError", "IndexError", "NotImplementedError", "_LinAlgError", "LinAlgError"))
# Errors of PyTorch's own too: they count where a line of ours raises one and PyTorch refuses the call, perhaps for another argument.
OF_NUMBERS = ("OverflowError", "ZeroDivisionError")

T = TypeVar("T")
Source = Callable[[int], Generator[str, "tuple[Outcome, Outcome]", None]]


class Outcome(NamedTuple):
    """What became of a program: a value, or an exception's type and first line."""

    value: Any = None
    error: str | None = None
    said: str = ""
    fell: bool = False                                # raised by an instruction that is no `raise` of ours
    place: str = ""                                   # where
    kinds: tuple[str, ...] = ()                       # the exception's type and those above it: what a caller may catch it by


class Finding(NamedTuple):
    """A program whose outcome is wrong, and why."""

    kind: str
    unit: int
    program: str
    ours: str
    theirs: str
    place: str

    def __str__(self) -> str:
        program = self.program.replace("\n", "\n    ")
        return f"{self.kind} (unit {self.unit})\n    {program}\n  PyTorch:  {self.theirs}\n  Flambeau: {self.ours}\n  {self.place}"


@dataclass
class Report:
    """Findings, the first of each place, and how often everything was seen."""

    programs: int = 0
    answered: int = 0
    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    findings: dict[tuple[str, ...], Finding] = field(default_factory=dict)

    def add(self, finding: Finding) -> bool:
        self.counts[finding.kind] += 1
        key = finding.kind, finding.place or finding.program, finding.ours[:40]
        new = key not in self.findings
        self.findings.setdefault(key, finding)
        return new

    def failures(self) -> list[Finding]:
        return [f for f in self.findings.values() if f.kind in FAILURES]

    def summary(self) -> str:
        failed = sum(self.counts[k] for k in FAILURES)
        counted = ", ".join(f"{k} {self.counts[k]}" for k in (*FAILURES, *NOTES, "both hang", "theirs died"))
        return f"{self.programs} programs, {self.answered} answered by both; {failed} failures ({counted})"


# -- one program -----------------------------------------------------------------------------------------------------------


def outcome(lib: Any, scope: dict[str, Any], program: str) -> Outcome:
    """What `program` leaves in ``result`` with `lib` as ``torch``, or the exception it ends with."""
    lib.manual_seed(0)
    names = {"torch": lib, "F": lib.nn.functional, "np": np, **scope}
    try:
        exec(compile(program, "<program>", "exec"), names)
        return Outcome(described(lib, names.get("result")))
    except Exception as error:  # every kind is judged
        fell, place = _fault(error)
        kinds = tuple(kind.__name__ for kind in type(error).__mro__)
        return Outcome(error=kinds[0], said=str(error).partition("\n")[0][:300], fell=fell, place=place, kinds=kinds)


def _fault(error: BaseException) -> tuple[bool, str]:
    """Whether nobody raised `error` on purpose, and the last line of ours that it came through."""
    frames = [(tb.tb_frame.f_code, tb.tb_lasti, line) for tb, line in _steps(error.__traceback__)]
    ours = [f for f in frames if _is_ours(f[0])]
    if not ours:
        return False, ""                              # of the call itself: PyTorch's own, or a wrong signature
    code, at, line = ours[-1]
    raised = frames[-1][0] is code and _is_raise(code, at)
    wrong = type(error) in (SystemError, AssertionError, UnboundLocalError, RecursionError)
    return not raised or wrong, f"{Path(code.co_filename).name}:{line} {code.co_name}"


def _steps(tb: types.TracebackType | None) -> Iterator[tuple[types.TracebackType, int]]:
    while tb is not None:
        yield tb, tb.tb_lineno
        tb = tb.tb_next


def _is_ours(code: types.CodeType) -> bool:
    name = code.co_filename
    return "/flambeau/" in name or "/flambeau_kernels/" in name or name.startswith("<flambeau")


def _is_raise(code: types.CodeType, at: int) -> bool:
    return dis.opname[code.co_code[at]] in ("RAISE_VARARGS", "RERAISE")


def described(lib: Any, value: Any) -> Any:
    """`value` in terms that both libraries share: shapes, dtypes, and elements as float64 or complex128."""
    if isinstance(value, lib.Tensor):
        plain = value.detach()
        if plain.is_meta or plain.numel() > 100_000:
            return tuple(plain.shape), str(plain.dtype), None
        kind = lib.complex128 if plain.is_complex() else lib.float64 if plain.is_floating_point() else lib.int64
        if plain.dtype == lib.bool or kind == lib.int64:
            return tuple(plain.shape), str(plain.dtype), plain.to(lib.int64).contiguous().numpy().copy()
        return tuple(plain.shape), str(plain.dtype), plain.to(kind).resolve_conj().resolve_neg().contiguous().numpy().copy()
    if isinstance(value, (tuple, list)):
        return [described(lib, x) for x in value]
    return repr(value)[:200] if value is None or isinstance(value, (bool, int, float, complex, str)) else type(value).__name__


def alike(ours: Any, theirs: Any) -> bool:
    """Whether two descriptions agree, elements within roundings of their dtype."""
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(alike, ours, theirs))
    if isinstance(ours, tuple) and isinstance(theirs, tuple):
        if ours[:2] != theirs[:2] or (ours[2] is None) != (theirs[2] is None):
            return False
        near = {"torch.float64": 1e-7, "torch.complex128": 1e-7, "torch.float32": 1e-3, "torch.complex64": 1e-3}.get(ours[1], 5e-2)
        with np.errstate(all="ignore"):
            return ours[2] is None or bool(np.allclose(ours[2], theirs[2], near, near, equal_nan=True))
    return ours == theirs


def judge(ours: Outcome, theirs: Outcome) -> str | None:
    """The kind of finding, or None where nothing is wrong."""
    if ours.error is None:
        if theirs.error is not None:
            return "accepted"
        return None if alike(ours.value, theirs.value) else "value"
    same, typed = theirs.error in ours.kinds, not TYPED.isdisjoint(ours.kinds)
    typed = typed or ours.error in OF_NUMBERS and not ours.fell and theirs.error is not None
    if ours.said.startswith("no device") or ours.error == "NotImplementedError" and not ours.fell:
        return None if same else "refused"
    if ours.error == "SystemError" or not typed and not same:
        return "untyped"
    if ours.fell and not same:
        return "fell"
    return None if same else "refused" if theirs.error is None else "type"


def judge_damaged(ours: Outcome, undamaged: Callable[[], Outcome]) -> str | None:
    """`judge`, of a program that overwrites indices: `undamaged` runs the rest of it with PyTorch, which may raise what ours does."""
    if ours.error is None or not ours.fell or not TYPED.isdisjoint(ours.kinds):
        return None
    return None if undamaged().error in ours.kinds else "untyped"


def without_damage(program: str) -> str:
    """`program` less the lines that overwrite indices."""
    return "\n".join(line for line in program.splitlines() if not line.startswith(("alone(", "tamper(")))


# -- workers ---------------------------------------------------------------------------------------------------------------

OURS, THEIRS, BETWEEN = 1, 2, 0
_HEAD = struct.Struct("qqdq")                         # unit, phase, when it began, length of the programs
_BETWEEN_PROGRAMS = "\0"
_ROOM = 1 << 20


class Slot:
    """Memory that a worker shares with its parent: what it has run of a unit, and is about to run."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, _ROOM)

    def write(self, unit: int, phase: int, programs: list[str]) -> None:
        text = _BETWEEN_PROGRAMS.join(programs).encode()[: _ROOM - _HEAD.size]
        self.memory[_HEAD.size : _HEAD.size + len(text)] = text
        self.memory[: _HEAD.size] = _HEAD.pack(unit, phase, time.monotonic(), len(text))

    def read(self) -> tuple[int, int, float, list[str]]:
        unit, phase, began, length = _HEAD.unpack(self.memory[: _HEAD.size])
        text = self.memory[_HEAD.size : _HEAD.size + length].decode(errors="replace")
        return unit, phase, began, text.split(_BETWEEN_PROGRAMS)


def _work(units: Iterable[int], source: Source, libs: Any, scopes: Any, slot: Slot, send: Callable[[Any], None]) -> None:
    """Run the programs of `units`, and report what is wrong."""
    warnings.simplefilter("ignore")
    np.seterr(all="warn")
    (ours_lib, theirs_lib), (ours_scope, theirs_scope) = libs, scopes
    for unit in units:
        programs: list[str] = []
        answered = 0
        running = source(unit)
        try:
            program = next(running)
            while True:
                programs.append(program)
                slot.write(unit, OURS, programs)
                ours = outcome(ours_lib, ours_scope, program)
                slot.write(unit, THEIRS, programs)
                theirs = outcome(theirs_lib, theirs_scope, program)
                if theirs.said == UNSAFE:
                    kind = judge_damaged(ours, functools.partial(outcome, theirs_lib, theirs_scope, without_damage(program)))
                else:
                    kind = judge(ours, theirs)
                slot.write(unit, BETWEEN, programs)
                answered += ours.error is None and theirs.error is None
                if kind is not None:
                    send([kind, unit, program, _line(ours, theirs), _line(theirs, ours), ours.place])
                program = running.send((ours, theirs))
        except StopIteration:
            pass
        send([len(programs), answered, unit])


def _line(one: Outcome, other: Outcome) -> str:
    if one.error is not None:
        return f"{one.error}: {one.said}"
    return repr(one.value)[:400] if other.error is None else "answers"


class Worker:
    """A forked process with a share of the units."""

    def __init__(self, units: list[int], source: Source, libs: Any, scopes: Any) -> None:
        self.units, self.slot, self.buffer = units, Slot(), b""
        self.status: int | None = None
        self.asked = 0.0                              # when the program began of which PyTorch was asked whether it ends
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the worker lives
        self.slot.write(-1, BETWEEN, [])
        self.receive, send = os.pipe()
        sys.stdout.flush()
        self.process = os.fork()
        if self.process == 0:
            status = 1
            try:
                os.close(self.receive)
                os.dup2(self.errors.fileno(), 2)
                _limit_memory()
                _work(units, source, libs, scopes, self.slot, lambda x: _send(send, x))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(send)

    def lines(self) -> list[Any]:
        """What the worker has sent since the last time."""
        while select.select([self.receive], [], [], 0)[0]:
            read = os.read(self.receive, 1 << 16)
            if not read:
                break
            self.buffer += read
        *whole, self.buffer = self.buffer.split(b"\n")
        return [json.loads(line) for line in whole]

    def ended(self) -> int | None:
        """The exit status, or None while it runs."""
        if self.status is None:
            done, status = os.waitpid(self.process, os.WNOHANG)
            self.status = status if done else None
        return self.status

    def kill(self) -> None:
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)

    def complaint(self) -> str:
        self.errors.seek(0)
        return self.errors.read()[-1500:].decode(errors="replace").strip()

    def close(self) -> None:
        os.close(self.receive)
        self.errors.close()
        self.slot.memory.close()


def spread(names: Sequence[T], seed: int) -> Callable[[int], T]:
    """Which of `names` a unit is about: each once before any comes again, in another order every time and for every seed."""

    def of(unit: int) -> T:
        again, at = divmod(unit, len(names))
        return random.Random(f"{seed} {again}").sample(names, len(names))[at]

    return of


def _send(pipe: int, message: Any) -> None:
    text = json.dumps(message).encode() + b"\n"
    while text:
        text = text[os.write(pipe, text) :]


def _limit_memory() -> None:
    """Let sizes that are out of the question fail at once instead of filling the machine."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    bound = pages * mmap.PAGESIZE + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _alone(lib: Any, scope: dict[str, Any], programs: list[str], limit: float) -> int | None:
    """How a process of its own ends in which `lib` runs `programs`: the exit status, or None for longer than the limit."""
    process = os.fork()
    if process == 0:
        with contextlib.suppress(BaseException):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            _limit_memory()
            for program in programs:
                outcome(lib, scope, program)
        os._exit(0)
    end = time.monotonic() + limit
    while time.monotonic() < end:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.05)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return None


def _is_theirs(libs: Any, scopes: Any, programs: list[str], limit: float) -> bool:
    """Whether PyTorch alone dies of `programs`, but for the last, and we alone do not, of all."""
    ours, theirs = ((lib, scope) for lib, scope in zip(libs, scopes, strict=True))
    return _alone(*ours, programs, limit) == 0 and _alone(*theirs, programs[:-1], limit) not in (0, None)


def run(
    units: Iterable[int], source: Source, libs: Any, scopes: Any, jobs: int = 2, limit: float = LIMIT,
    show: Callable[[Finding], None] | None = None,
) -> Report:  # fmt: skip
    """Run the programs that `source` has for each of `units`, in `jobs` processes at a time."""
    report = Report()
    every = list(units)
    shares = [every[i::jobs] for i in range(jobs)]
    workers = [Worker(share, source, libs, scopes) for share in shares if share]

    def found(finding: Finding) -> None:
        if report.add(finding) and show is not None:
            show(finding)

    while workers:
        time.sleep(0.05)
        for i, worker in reversed(list(enumerate(workers))):
            status = worker.ended()
            for line in worker.lines():
                if len(line) == 3:
                    report.programs += line[0]
                    report.answered += line[1]
                else:
                    found(Finding(*line))
            unit, phase, began, programs = worker.slot.read()
            program = programs[-1]
            waited = time.monotonic() - began if status is None and phase != BETWEEN else 0.0
            both_hang = False
            if phase == OURS and waited > limit / 10 and worker.asked != began:
                worker.asked = began
                asked = _alone(libs[1], scopes[1], [without_damage(program)], max(limit / 10, STARTING))
                if worker.ended() is not None or worker.slot.read()[2] != began:
                    continue
                both_hang = asked is None
            hangs = both_hang or waited > limit
            if hangs:
                worker.kill()
            elif status is None:
                continue
            if status != 0:
                if phase == THEIRS or not hangs and _is_theirs(libs, scopes, programs, limit):
                    report.counts["theirs died"] += 1
                elif both_hang:
                    report.counts["both hang"] += 1
                elif hangs:
                    found(Finding("hang", unit, program, f"no answer within {limit} s", "answers", ""))
                else:
                    found(Finding("abort", unit, program, f"status {status}: {worker.complaint()}", "", ""))
            if status != 0 and unit < 0:
                raise RuntimeError(f"a worker ended before its first program: {worker.complaint()}")
            left = worker.units[worker.units.index(unit) + 1 :] if status != 0 else []
            worker.close()
            workers[i : i + 1] = [Worker(left, source, libs, scopes)] if left else []
    return report


# -- commands --------------------------------------------------------------------------------------------------------------


def libraries() -> tuple[Any, Any]:
    """Flambeau under the guard, and PyTorch on one thread."""
    os.environ.setdefault("FLAMBEAU_GUARD_MEMORY", "1")
    import torch

    import flambeau

    torch.set_num_threads(1)
    flambeau.set_num_threads(2)
    return flambeau, torch


def parser(said: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=said, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--seed", type=int, default=0, help="which names come first, and with which arguments: other seeds, other programs")
    made.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    made.add_argument("--limit", type=float, default=LIMIT, help="seconds for a program")
    made.add_argument("--only", default="", help="a regular expression of the names to run")
    made.add_argument("--notes", action="store_true", help="show the disagreements too that are no failures")
    return made


def shown(notes: bool) -> Callable[[Finding], None]:
    def show(finding: Finding) -> None:
        if notes or finding.kind in FAILURES:
            print(finding, flush=True)

    return show
