"""Operators slower than PyTorch's: ``python bench/operators.py [--only REGEX] [--samples 3] [--part 1/4] [--below 1]``.

Times samples of PyTorch's database of operators, most of which are small, by both in one process, with one thread, after a warm-up in
which kernels are compiled. Prints the operators whose samples take longer than PyTorch's in the geometric mean, the furthest behind
last; the samples of an operator are chosen to differ in their arguments, and those without elements are left out. Each line has the mean
of the ratios (PyTorch's time over Flambeau's) and the worst sample. The last line counts all of them. All operators take ten minutes;
``--part 1/4`` measures every fourth. What a sample cannot be called with, by either, is passed over: `tests/conformance` says why.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

WARM_UP, CALLS = 0.03, 400  # seconds and calls before measurement, whichever is reached first
LOOP = 0.002                # seconds of a measured loop


class Measured(NamedTuple):
    ratio: float
    ours: float  # microseconds
    theirs: float
    call: str


def microseconds(call: Callable[[], Any]) -> float:
    """CPU time of the quickest of three loops."""
    begin = time.process_time()
    calls = 0
    while calls < CALLS and time.process_time() - begin < WARM_UP:
        call()
        calls += 1
    begin = time.process_time()
    call()
    count = max(1, min(200, int(LOOP / max(time.process_time() - begin, 1e-6))))
    least = math.inf
    for _ in range(3):
        begin = time.process_time()
        for _ in range(count):
            call()
        least = min(least, (time.process_time() - begin) / count)
    return least * 1e6


def told(value: Any) -> str:
    """An argument in a few characters."""
    if hasattr(value, "shape"):
        return f"{str(value.dtype).partition('.')[2]}{list(value.shape)}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(told, value))}]"
    return repr(value)


def features(sample: Any) -> set[str]:
    """What tells samples of one operator apart: numbers and options as they are, and ranks and dtypes of tensors."""
    named = [*enumerate((sample.input, *sample.args)), *sample.kwargs.items()]
    return {f"{name}={value.ndim},{value.dtype}" if hasattr(value, "ndim") else f"{name}={value!r}"[:60] for name, value in named}


def chosen(samples: list[Any], limit: int) -> list[Any]:
    """At most `limit` samples: each adds as much as any to what those before it have."""
    left, seen, made = [(s, features(s)) for s in samples], set(), []  # type: ignore[var-annotated]
    while left and len(made) < limit:
        best = max(range(len(left)), key=lambda i: (len(left[i][1] - seen), -i))
        sample, has = left.pop(best)
        seen |= has
        made.append(sample)
    return made


def measured(entry: Any, dtype: Any, limit: int) -> Iterator[Measured]:
    """The samples of an operator that both run."""
    from against_torch import Given
    from crossing import Absent, counterpart, seed, tensors

    try:
        function = counterpart(entry.op)
    except Absent:
        return
    seed()
    samples = [s for s in entry.sample_inputs("cpu", dtype) if all(t.numel() for t in tensors((s.input, s.args, s.kwargs)))]
    for sample in chosen(samples, limit):
        try:
            given = Given(sample)
            calls = [
                lambda s=s, f=f: f(s.input, *s.args, **s.kwargs) for s, f in ((given, function), (sample, entry.op))
            ]
            # By turns, so that what else the machine does meets both.
            times = [[microseconds(call) for call in calls] for _ in range(2)]
        except Exception:  # a failure that the conformance tests tell
            continue
        ours, theirs = (min(pair) for pair in zip(*times, strict=True))
        words = [*map(told, (sample.input, *sample.args)), *(f"{k}={told(v)}" for k, v in sample.kwargs.items())]
        yield Measured(theirs / ours, ours, theirs, f"({', '.join(words)})"[:120])


def main() -> None:
    root = Path(__file__).resolve().parents[1]
    sys.path.insert(0, str(root / "tests" / "conformance"))
    import torch
    from against_torch import ops

    import flambeau

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="operators whose names contain this expression")
    parser.add_argument("--dtype", default="float32", help="of samples; operators without it are passed over")
    parser.add_argument("--samples", type=int, default=3, help="of an operator, at most")
    parser.add_argument("--part", default="1/1", help="as 2/4: the second of every four operators")
    parser.add_argument("--below", type=float, default=1.0, help="print operators whose mean ratio is less")
    options = parser.parse_args()
    part, parts = (int(n) for n in options.part.split("/"))
    for lib in (torch, flambeau):
        lib.set_num_threads(1)
    warnings.simplefilter("ignore")
    dtype = getattr(torch, options.dtype)
    names = [name for name, entry in ops().items() if re.search(options.only, name) and dtype in entry.dtypes]
    means: dict[str, float] = {}
    lines: list[tuple[float, str]] = []
    for name in names[part - 1 :: parts]:
        found = list(measured(ops()[name], dtype, options.samples))
        if not found:
            continue
        mean = means[name] = math.exp(sum(math.log(m.ratio) for m in found) / len(found))
        worst = min(found)
        if mean < options.below:
            line = f"{mean:7.2f}x  {name:40}  {worst.ours:9.1f} us  PyTorch {worst.theirs:9.1f} us  {worst.call}"
            lines.append((mean, line))
    for _, line in sorted(lines, reverse=True):
        print(line)
    if not means:
        sys.exit(f"no operator is called {options.only!r}")
    mean = math.exp(sum(map(math.log, means.values())) / len(means))
    print(f"operators: geomean {mean:.2f}x over {len(means)} operators, {sum(m < 1 for m in means.values())} behind")


if __name__ == "__main__":
    main()
