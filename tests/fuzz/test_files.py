"""The search over mutated files, for a few seconds; `files.py` beside it is the command for more."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

COMMAND = Path(__file__).parent / "files.py"


def test_mutated_files_are_read_or_refused(fresh_python):
    said = fresh_python(COMMAND, "--count", 1200, "--seed", 1)

    assert said.endswith("1200 cases, seed 1: 0 failures\n"), said
    for kind in ("archive", "legacy", "safetensors", "cache"):
        assert f"{kind} read" in said


def test_what_a_worker_says_and_how_it_ends_are_failures(monkeypatch):
    spec = importlib.util.spec_from_file_location("fuzz_files", COMMAND)
    files = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(files)
    asked = []

    def worker(options, first, count):
        asked.append((first, count))
        if first == 0:
            return ["0", "1", '{"case": 1, "kind": "cache", "error": "KeyError: 3"}', "2", "LLVM ERROR: no"], -6
        return [*map(str, range(first, first + count)), '{"counts": {"cache read": 7}}'], 0

    monkeypatch.setattr(files, "run_worker", worker)
    counts, failures = files.run_workers(argparse.Namespace(first=0, count=10))

    assert failures == ["case 1 (cache): KeyError: 3", "case 2: the process ended with status -6 LLVM ERROR: no"]
    assert asked == [(0, 10), (3, 7)]
    assert counts == {"cache read": 7}
