"""The programs under examples/ as a user runs them, in processes of their own."""

from __future__ import annotations

import importlib.util
import json
import linecache
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = (ROOT / "framework", ROOT / "kernels")
DIGITS = ROOT / "examples" / "digits.py"

pytestmark = [
    pytest.mark.skipif(not importlib.util.find_spec("sklearn"), reason="scikit-learn is not installed"),
    pytest.mark.slow,
]


def losses(output: str) -> list[float]:
    """Training and test loss of every epoch a run of digits.py has printed."""
    lines = re.findall(r"^epoch +\d+  loss ([\d.]+)  test loss ([\d.]+)", output, flags=re.MULTILINE)
    return [float(value) for line in lines for value in line]


@pytest.fixture(scope="module")
def as_torch(tmp_path_factory) -> Path:
    """digits.py as a PyTorch user has it: one import differs."""
    text = DIGITS.read_text()
    assert text.count("import flambeau as torch\n") == 1
    path = tmp_path_factory.mktemp("swapped") / "digits.py"
    path.write_text(text.replace("import flambeau as torch\n", "import torch\n"))
    return path


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """Where a run of two epochs on Flambeau has left its results."""
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def two_epochs(fresh_python, results) -> list[float]:
    """The losses of that run."""
    return losses(fresh_python(DIGITS, "--epochs", 2, "--out", results))


def test_digits_learns(two_epochs):
    first, _, second, _ = two_epochs

    assert second < first / 2


def test_digits_writes_a_checkpoint_and_plots(two_epochs, results):
    written = {path.name for path in results.iterdir()}

    plots = {"learning_curve.png", "confusion_matrix.png"}
    assert written == {"checkpoint.pt"} | (plots if importlib.util.find_spec("matplotlib") else set())


def test_a_resumed_run_goes_on_as_if_never_interrupted(fresh_python, tmp_path, two_epochs):
    first = losses(fresh_python(DIGITS, "--epochs", 1, "--out", tmp_path))

    second = losses(fresh_python(DIGITS, "--epochs", 2, "--out", tmp_path, "--resume"))

    assert first + second == two_epochs


def test_swapped_in_by_the_environment_the_losses_are_the_same(fresh_python, tmp_path, as_torch, two_epochs):
    # Start-up files are read from site folders only; an installed Flambeau has this one there.
    (tmp_path / "sitecustomize.py").write_text(f"import site\nsite.addsitedir({str(SOURCES[0])!r})\n")

    output = fresh_python(
        as_torch, "--epochs", 1, "--out", tmp_path, path=(tmp_path, *SOURCES), FLAMBEAU_AS_TORCH="1"
    )

    assert losses(output) == two_epochs[:2]


def test_swapped_in_by_the_command_the_losses_are_the_same(fresh_python, tmp_path, as_torch, two_epochs):
    output = fresh_python("-m", "flambeau", as_torch, "--epochs", 1, "--out", tmp_path)

    assert losses(output) == two_epochs[:2]


@pytest.mark.oracle
def test_real_torch_prints_the_same_losses(fresh_python, tmp_path, as_torch, two_epochs):
    if not importlib.util.find_spec("torch"):
        pytest.skip("torch is not installed")

    # On one thread: several of PyTorch's wait for each other in loops, for longer than they compute.
    expected = losses(fresh_python(as_torch, "--epochs", 2, "--out", tmp_path, path=(), OMP_NUM_THREADS="1"))

    assert len(expected) == 4
    assert two_epochs == pytest.approx(expected, abs=1e-4)


def test_the_cells_of_the_notebook_of_kernels_run(monkeypatch, capsys):
    cells = json.loads((DIGITS.parent / "kernels.ipynb").read_text())["cells"]
    found = importlib.util.find_spec
    # PyTorch is compared by those who run the notebook.
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None if name == "torch" else found(name, package))
    scope = {"__name__": "notebook"}

    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            text = "".join(cell["source"]).replace("SIZE = 1_000_000", "SIZE = 2000").replace("range(40)", "range(1)")
            name = f"<cell {number}>"
            monkeypatch.setitem(linecache.cache, name, (len(text), None, text.splitlines(True), name))
            exec(compile(text, name, "exec"), scope)

    assert scope["SIZE"] == 2000
    assert re.findall(r"^(\w+) +[\d.]+ ms$", capsys.readouterr().out, flags=re.MULTILINE) == ["kernel", "numpy"] * 3
