"""Complete programs, unmodified under Flambeau in the name of torch: the numbers are PyTorch's where it is installed.

Each file beside this one is a program that prints losses. All of them run in one process for each of the two, started as
``python -m flambeau`` and as ``python``.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PROGRAMS = sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("test_"))

RUN_ALL = """
import contextlib, io, json, pathlib, runpy, sys
told = {}
for path in sys.argv[1:]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        runpy.run_path(path, run_name="__main__")
    told[pathlib.Path(path).stem] = [float(word) for word in out.getvalue().split()]
import torch
print(json.dumps([torch.__version__, told]))
"""


def run_all(*start: str, **environment: str):
    """The version of torch and, for each program, the numbers that it prints."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLAMBEAU_AS")}
    kept |= environment
    kept["PYTHONPATH"] = os.pathsep.join((str(ROOT / "framework"), str(ROOT / "kernels")))
    paths = [str(HERE / f"{name}.py") for name in PROGRAMS]
    done = subprocess.run([sys.executable, *start, "-c", RUN_ALL, *paths], env=kept, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def ours():
    version, told = run_all("-m", "flambeau")
    assert version.endswith("+flambeau")
    return told


@pytest.fixture(scope="module")
def theirs():
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    version, told = run_all(OMP_NUM_THREADS="1")  # more threads than free cores wait for each other
    assert "flambeau" not in version
    return told


def test_there_are_fourteen_programs():
    assert len(PROGRAMS) == 14


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_to_its_end(ours, name):
    assert len(ours[name]) >= 4
    assert all(map(math.isfinite, ours[name]))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_the_numbers_of_pytorch(ours, theirs, name):
    assert ours[name] == pytest.approx(theirs[name], rel=1e-4, abs=1e-5)
