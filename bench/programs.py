"""CPU seconds of whole programs under Flambeau in the name of torch, beside PyTorch's: ``python bench/programs.py [--runs 11] [words]``.

The programs are those of `tests/programs` and those over other people's packages in `tests/packages`, as far as the packages are
installed; with words, those whose names contain one. Each program imports what it names, runs once to load or compile kernels, and then
`--runs` times on both sides by turns, each side in a process of its own with one thread. A line has the quickest run of Flambeau and of
PyTorch and their ratio, and then the same of the imports and of the first run after them. The last lines are the geometric means of the
ratios (PyTorch's time over Flambeau's) and how many are below 1.
"""

from __future__ import annotations

import argparse
import compileall
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]

# Reads paths of programs, a line each, and answers each with the CPU seconds up to the end of its imports, which for the first are those
# since the process began, and of its run, and with what was printed. Imports are those before the first variable, function or block.
WORKER = """
import ast, contextlib, io, json, os, runpy, sys, time
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
times, kept = [0.0], {}
def is_setting(s):
    return isinstance(s, (ast.Import, ast.ImportFrom, ast.Expr)) or isinstance(s, ast.Assign) and not isinstance(s.targets[0], ast.Name)
for line in sys.stdin:
    path, out = line.strip(), io.StringIO()
    with open(path) as file:
        body = ast.parse(file.read()).body
    ends = (i for i, s in enumerate(body) if not is_setting(s))
    body = body[:next(ends, len(body))]
    while body and not isinstance(body[-1], (ast.Import, ast.ImportFrom)):
        body.pop()
    exec(compile(ast.Module(body, []), path, "exec"), {"__name__": "imports"})
    times.append(time.process_time())
    with contextlib.redirect_stdout(out):
        made = runpy.run_path(path, run_name="__main__")
    kept = kept or made                               # what the first has registered stays
    times.append(time.process_time())
    print(json.dumps([times[1] - times[0], times[2] - times[1], out.getvalue()]), file=answers, flush=True)
    times = times[2:]
"""


def programs() -> dict[str, tuple[str, str]]:
    """The text of each program by its name, and what PyTorch's side runs before it the first time."""
    sys.path.insert(0, str(ROOT / "tests"))  # from where it imports its other files
    spec: Any = importlib.util.spec_from_file_location("packages", ROOT / "tests" / "packages" / "test_packages.py")
    packages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(packages)
    files = sorted((ROOT / "tests" / "programs").glob("*.py"))
    texts = {path.stem: (path.read_text(), "") for path in files if not path.stem.startswith("test_")}
    for name, text in packages.PROGRAMS.items():
        package = name.partition(".")[0]
        if all(importlib.util.find_spec(needed) for needed in (package, *packages.NEEDS.get(package, ()))):
            texts[name] = text, packages.DECLARE_OPERATORS if importlib.util.find_spec("torchvision") else ""
    return texts


class Side:
    """A process that runs programs, under Flambeau if `flags` say so."""

    def __init__(self, folder: str, *flags: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FLAMBEAU_AS")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment |= {"OMP_NUM_THREADS": "1", "FLAMBEAU_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
        environment["PYTHONPATH"] = os.pathsep.join(
            (str(ROOT / "framework"), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", ""))
        )
        command = [sys.executable, *flags, "-c", WORKER]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed by `close`
        self._process = subprocess.Popen(
            command, env=environment, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )

    def run(self, path: str) -> tuple[float, float, str]:
        """CPU seconds of the imports of the program at `path` and of its run, and what it prints. Raises: RuntimeError if it fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(path, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            self._process.wait()
            self._errors.seek(0)
            raise RuntimeError(self._errors.read()[-2000:])
        imports, seconds, printed = json.loads(answer)
        return imports, seconds, printed

    def close(self) -> None:
        self._process.communicate()
        self._errors.close()


class Measured(NamedTuple):
    """CPU seconds of Flambeau and of PyTorch."""

    imports: tuple[float, float]
    first: tuple[float, float]
    quickest: tuple[float, float]
    same: bool  # whether their numbers are equal to 1e-4


def measure(text: str, before: str, runs: int) -> Measured:
    """What a program takes on both sides, by turns."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, "ours.py"), os.path.join(folder, "theirs.py")]
        for path in paths:
            Path(path).write_text(text)
        earlier = 0.0
        sides = [Side(folder, "-m", "flambeau"), Side(folder)]
        try:
            if before:
                Path(folder, "before.py").write_text(before)
                earlier = sum(sides[1].run(os.path.join(folder, "before.py"))[:2])
            ours, theirs = (side.run(path) for side, path in zip(sides, paths, strict=True))
            best = [math.inf, math.inf]
            for _ in range(runs):
                for i, side in enumerate(sides):
                    best[i] = min(best[i], side.run(paths[i])[1])
        finally:
            for side in sides:
                side.close()
    numbers = [[float(word) for word in printed.split()] for _, _, printed in (ours, theirs)]
    same = len(numbers[0]) == len(numbers[1])
    same = same and all(math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-5) for a, b in zip(*numbers, strict=True))
    return Measured((ours[0], theirs[0] + earlier), (ours[1], theirs[1]), (best[0], best[1]), same)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--runs", type=int, default=11)
    given = parser.parse_args()
    for folder in ("framework", "kernels"):               # as they are where they are installed
        compileall.compile_dir(ROOT / folder, quiet=1)
    chosen = {n: t for n, t in programs().items() if not given.words or any(w in n for w in given.words)}
    ratios: dict[str, list[float]] = {"programs": [], "imports": [], "first runs": []}
    failed = 0
    for name, (text, before) in chosen.items():
        try:
            found = measure(text, before, given.runs)
        except RuntimeError as error:
            failed += 1
            print(f"{name:28} failed: {error}", flush=True)
            continue
        failed += not found.same
        said = []
        for kept, (ours, theirs) in zip(ratios.values(), (found.quickest, found.imports, found.first), strict=True):
            kept.append(theirs / ours)
            said.append(f"{ours:8.4f} {theirs:8.4f} {theirs / ours:6.2f}x")
        print(f"{name:28} {' |'.join(said)}{'' if found.same else '  other numbers'}", flush=True)
    for what, kept in ratios.items():
        mean = math.exp(sum(map(math.log, kept)) / len(kept)) if kept else math.nan
        print(f"{what}: geometric mean {mean:.2f}x over {len(kept)}, {sum(r < 1 for r in kept)} behind")
    print(f"{failed} failed or differ")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
