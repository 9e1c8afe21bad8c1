"""Speed beside PyTorch's, in one run: ``python bench/against_torch.py [--only REGEX] [--quick] [--check] [--list]``.

Each framework has a process of its own with the same number of threads. For each case of `cases.py` both build the same inputs
from numpy, run the step twice and say what came out; only if they agree is the case timed, by turns, until the ratio is steady.
The ratio is PyTorch's time over Flambeau's: above 1 Flambeau is faster. Beside it stands the standard error of the ratio's mean.
The cases "starting" begin a process for each sample.

Prints a row for each case, the geometric mean of each group, and a last line for all. The exit status is 1 if a result was wrong
or a framework failed, and 2 without PyTorch.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PATHS = [str(ROOT / "framework"), str(ROOT / "kernels"), str(HERE)]
WORKER = "from cases import work; work()"


class Failure(Exception):
    """A framework's process answered with an error, or not at all."""


class Framework:
    """A process in which one framework runs cases.

    Args:
        package: its name, `flambeau` or `torch`.
        threads: that it may use.
    """

    def __init__(self, package: str, threads: int) -> None:
        self.package, self.threads = package, threads
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.environment(), text=True
        )
        self.version = self.ask(begin=package, threads=threads)

    def environment(self) -> dict[str, str]:
        """The environment of its processes."""
        count = str(self.threads)
        path = os.pathsep.join([*PATHS, os.environ.get("PYTHONPATH", "")])
        return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count}

    def ask(self, **question: Any) -> Any:
        """The answer of the process to `question`. Raises: Failure."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failure(f"{self.package} ended with status {self.process.wait()}") from None
        line = self.process.stdout.readline()
        if not line:
            raise Failure(f"{self.package} ended with status {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise Failure(f"{self.package}: {answer['error']}")
        return answer["answer"]

    def start(self, program: str) -> float:
        """Seconds of a new process that runs `program`, in which T is the framework's name."""
        begin = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", program.replace("T", self.package)], env=self.environment(), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Failure(f"{self.package}: {done.stderr.strip().splitlines()[-1] if done.stderr else done.returncode}")
        return time.perf_counter() - begin

    def stop(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)


def differences(ours: Any, theirs: Any, tolerance: float) -> str:
    """What differs between two results as `cases.summary` tells them; empty if they agree."""
    if len(ours) != len(theirs):
        return f"{len(ours)} results, PyTorch {len(theirs)}"
    for one, other in zip(ours, theirs, strict=True):
        for what in ("shape", "dtype"):
            if one[what] != other[what]:
                return f"{what} {one[what]}, PyTorch {other[what]}"
        for a, b in zip(one["values"], other["values"], strict=True):
            if not (a == b or math.isnan(a) and math.isnan(b) or abs(a - b) <= tolerance * (other["size"] + abs(b))):
                return f"value {a:.9g}, PyTorch {b:.9g}"
    return ""


def sample(ours: Any, theirs: Any, seconds: float) -> tuple[list[float], list[float]]:
    """Times of both by turns, for `seconds` or until the ratio is known to 1 percent; `ours` and `theirs` give one sample each."""
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 3:
        order = ((0, ours), (1, theirs))
        for which, take in order if len(times[0]) % 2 else reversed(order):
            times[which].append(take())
        if len(times[0]) >= 6 and spread(times) < 0.01:
            break
    return times


def spread(times: tuple[list[float], list[float]]) -> float:
    """The standard error of the mean of the ratios' logarithms."""
    logs = [math.log(b / a) for a, b in zip(*times, strict=True)]
    return statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf


def said(seconds: float) -> str:
    """A time in words of four digits."""
    for unit, size in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds / 1e-9:.4g} ns"


def measure(case: Any, ours: Framework, theirs: Framework, seconds: float) -> tuple[float, str]:
    """The ratio of `case` (nan if it failed, 0 if it is not to be timed) and its row."""
    if case.starts:
        times = sample(lambda: ours.start(case.step), lambda: theirs.start(case.step), 3 * seconds)
    else:
        found = [framework.ask(prepare=case.id) for framework in (ours, theirs)]
        wrong = differences(*found, case.tolerance)
        if wrong:
            return math.nan, f"WRONG: {wrong}"
        if not seconds:
            return 0.0, "agrees"
        times = sample(lambda: ours.ask(time=True), lambda: theirs.ask(time=True), seconds)
    fastest = statistics.median(times[0]), statistics.median(times[1])
    ratio = math.sqrt(fastest[1] / fastest[0] * min(times[1]) / min(times[0]))
    return ratio, f"{said(fastest[0]):>10} {said(fastest[1]):>10} {ratio:>7.2f}x {spread(times):>5.0%}"


def mean(ratios: list[float]) -> float:
    """The geometric mean."""
    return math.exp(statistics.fmean(map(math.log, ratios)))


def main() -> int:
    """Run the command line."""
    from cases import CASES

    parser = argparse.ArgumentParser(description="Flambeau's speed beside PyTorch's, in one run.")
    parser.add_argument("--only", default="", help="regular expression over group/name")
    parser.add_argument("--quick", action="store_true", help="the first case of several like it, a third of the time each")
    parser.add_argument("--check", action="store_true", help="compare results, time nothing")
    parser.add_argument("--list", action="store_true", help="list the cases and end")
    parser.add_argument("--threads", type=int, default=2, help="threads of each framework (2)")
    parser.add_argument("--json", type=Path, help="write the ratios to this file")
    given = parser.parse_args()
    chosen = [c for c in CASES if re.search(given.only, c.id) and (c.core or not given.quick)]
    if given.check:
        chosen = [c for c in chosen if not c.starts]
    if given.list or not chosen:
        print("\n".join(c.id + ("  (core)" if c.core else "") for c in chosen) or f"no case is named {given.only!r}")
        return not chosen
    if importlib.util.find_spec("torch") is None:
        print('PyTorch is not installed here: pip install -e ".[oracle]"')
        return 2
    ours, theirs = Framework("flambeau", given.threads), Framework("torch", given.threads)
    print(f"flambeau {ours.version} and torch {theirs.version}, {given.threads} threads, Python {sys.version.split()[0]}\n")
    print(f"{'case':<44} {'flambeau':>10} {'torch':>10} {'ratio':>8} {'+-':>5}")
    ratios: dict[str, float] = {}
    for case in chosen:
        try:
            ratio, row = measure(case, ours, theirs, 0.0 if given.check else 0.5 if given.quick else 1.5)
        except Failure as failure:
            ratio, row = math.nan, f"FAILED: {failure}"
            for framework in (ours, theirs):
                if framework.process.poll() is not None:
                    framework.__init__(framework.package, framework.threads)
        ratios[case.id] = ratio
        print(f"{case.id:<44} {row}", flush=True)
    ours.stop()
    theirs.stop()
    if given.json:
        given.json.write_text(json.dumps(ratios, indent=1), encoding="utf-8")
    wrong = [name for name, ratio in ratios.items() if math.isnan(ratio)]
    timed = {name: ratio for name, ratio in ratios.items() if ratio > 0}
    print()
    for group in dict.fromkeys(name.partition("/")[0] for name in timed):
        of_group = [ratio for name, ratio in timed.items() if name.startswith(f"{group}/")]
        print(f"{group:<20} {len(of_group):>3} cases  geometric mean {mean(of_group):5.2f}x  behind {sum(r < 1 for r in of_group)}")
    total = f"geometric mean {mean(list(timed.values())):.2f}x over {len(timed)} cases, " if timed else ""
    behind = f"{sum(r < 1 for r in timed.values())} behind, " if timed else f"{len(ratios) - len(wrong)} agree, "
    print(f"against torch: {total}{behind}{len(wrong)} wrong or failed")
    return bool(wrong)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    raise SystemExit(main())
