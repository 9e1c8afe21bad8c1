"""What the pages say is so: programs run, links lead somewhere, the settings listed are all there are."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import numpy as np
import pytest

from flambeau_kernels.cuda import device

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page that are written in `language`."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def test_the_first_program_of_the_readme_learns_a_sine(fresh_python):
    program = blocks(ROOT / "README.md", "python")[0]

    out = fresh_python("-c", program)

    error, estimate = re.fullmatch(r"mean squared error (\S+), sin\(1\) is about (\S+)\n", out).groups()
    assert float(error) < 1e-3
    assert float(estimate) == pytest.approx(0.8415, abs=0.02)


def test_the_first_program_of_getting_started_prints_its_gradient(fresh_python):
    program = blocks(ROOT / "docs" / "getting_started.md", "python")[0]
    # log(mean(exp(s))) over s = a a' has the softmax of all of s as its gradient, P, and a itself (P + P') a.
    a = np.array([[1.0, 2.0], [3.0, 4.0]])
    weights = np.exp(a @ a.T)
    weights /= weights.sum()

    numbers = re.findall(r"-?\d+\.\d+(?:e-?\d+)?", fresh_python("-c", program))

    expected = (weights + weights.T) @ a
    assert np.array(numbers, dtype=float).reshape(2, 2) == pytest.approx(expected, abs=1e-3, rel=1e-3)


def test_files_that_the_page_of_internals_names_are_there():
    files = [f"/{path.relative_to(ROOT)}" for room in ("framework", "kernels", "tests") for path in (ROOT / room).rglob("*.py")]
    named = set(re.findall(r"`([\w/.]+\.py)`", (ROOT / "docs" / "internals.md").read_text()))

    assert named
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in files)] == []


SESSIONS = [page for page in PAGES if any(">>>" in block for block in blocks(page, "python"))]


@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:Error detected in SqrtBackward0")
@pytest.mark.parametrize("page", SESSIONS, ids=lambda page: page.stem)
def test_the_sessions_of_a_page_print_what_it_shows(page, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)  # for the files that a session writes
    if page.stem == "tensorboard":
        pytest.importorskip("tensorboard")
    if page.stem == "onnx":
        pytest.importorskip("onnx.helper")
    if page.stem == "cuda":
        monkeypatch.setenv("FLAMBEAU_CUDA_SIMULATOR", "1")
        device.find.cache_clear()
        request.addfinalizer(device.find.cache_clear)
    text = "\n".join(block for block in blocks(page, "python") if ">>>" in block)
    test = doctest.DocTestParser().get_doctest(text, {}, page.stem, str(page), 0)
    report: list[str] = []

    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.append)

    assert result.failed == 0, "".join(report)


def test_the_pages_of_public_behaviour_have_sessions():
    found = {page.stem for page in SESSIONS}

    assert {"tensors", "autograd", "nn", "optim", "data", "saving", "random", "errors"} <= found
    assert {"tensorboard", "monitor", "futures", "hub", "testing", "quasirandom", "benchmark"} <= found


def test_the_program_of_the_new_op_runs():
    for program in blocks(ROOT / "docs" / "adding_an_op.md", "python"):
        exec(program, {})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_to_files(page):
    # Code has brackets of its own.
    links = re.findall(r"\]\(([^)#]+)", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE))

    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]

    assert missing == []


def test_every_environment_variable_is_in_the_table_of_settings():
    sources = (file for folder in ("framework", "kernels") for file in (ROOT / folder).rglob("*.py"))
    read = {name for file in sources for name in re.findall(r"FLAMBEAU_[A-Z_]*[A-Z]", file.read_text())}
    settings = (ROOT / "docs" / "getting_started.md").read_text()

    listed = set(re.findall(r"^\| `(FLAMBEAU_[A-Z_]+)`", settings, flags=re.MULTILINE))

    assert listed == read


def test_the_page_of_operations_is_what_the_registry_says(fresh_python):
    # The reference tier compiles nothing, and answers the same dtypes.
    fresh_python(ROOT / ".ci" / "make_ops_page.py", "--check", FLAMBEAU_BACKEND="numpy")
