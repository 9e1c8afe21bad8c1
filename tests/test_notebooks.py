"""The notebooks under examples/, each with few steps: they run, and PyTorch in Flambeau's place finds the same losses."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Two networks against each other double a difference of rounding in a few steps, so they are compared early.
STEPS = {"dqn": 120, "gpt_characters": 6, "unet": 4, "vae": 40, "gan": 10, "diffusion": 40}
NOTEBOOKS = sorted(path.stem for path in (ROOT / "examples").glob("*.ipynb") if path.stem != "kernels")

pytestmark = [
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("sklearn", "matplotlib", "tqdm")),
        reason="scikit-learn, matplotlib or tqdm is not installed",
    ),
    pytest.mark.slow,
]

RUN = """
import json, pathlib, re, sys
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
plt.show = lambda: plt.close("all")  # a backend that is not interactive leaves figures open
name, steps, framework = sys.argv[1:]
scope = {"__name__": "notebook"}
for cell in json.loads(pathlib.Path(name).read_text())["cells"]:
    if cell["cell_type"] == "code":
        text = re.sub(r"^STEPS = \\d+", f"STEPS = {steps}", "".join(cell["source"]), flags=re.M)
        exec(compile(re.sub(r"\\bflambeau\\b", framework, text), name, "exec"), scope)
assert plt.get_fignums() == [], "a plot was not shown"
print(json.dumps([scope["fb"].__name__, scope["losses"]]))
"""


def losses(name: str, framework: str) -> list[float]:
    """The losses of the notebook `name`, run in a process of its own with few steps."""
    given = [str(ROOT / "examples" / f"{name}.ipynb"), str(STEPS.get(name, 10)), framework]
    done = subprocess.run([sys.executable, "-c", RUN, *given], capture_output=True, text=True, timeout=300, env=_environment())
    assert done.returncode == 0, done.stderr
    imported, found = json.loads(done.stdout.splitlines()[-1])
    assert imported == framework
    return found


def _environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("FLAMBEAU_AS")}
    return kept | {"PYTHONPATH": os.pathsep.join((str(ROOT / "framework"), str(ROOT / "kernels"))), "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_and_pytorch_finds_the_same_losses(name):
    ours = losses(name, "flambeau")

    assert len(ours) >= 4
    assert all(map(math.isfinite, ours))
    if importlib.util.find_spec("torch") is None:
        pytest.skip("it runs; PyTorch, to compare with, is not installed")
    assert ours == pytest.approx(losses(name, "torch"), abs=1e-4, rel=1e-4)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_written_without_results_and_in_one_form(name):
    found = json.loads((ROOT / "examples" / f"{name}.ipynb").read_text())

    assert found["cells"][0]["cell_type"] == "markdown"
    assert [c["outputs"] for c in found["cells"] if c["cell_type"] == "code" and c["outputs"]] == []
    assert re.search(r"^STEPS = \d+$", "".join(found["cells"][1]["source"]), flags=re.MULTILINE)
