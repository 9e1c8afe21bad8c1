"""What the pages say is so: programs run, links lead somewhere, the settings listed are all there are."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_to_files(page):
    links = re.findall(r"\]\(([^)#]+)", page.read_text())

    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]

    assert missing == []


def test_every_environment_variable_is_in_the_table_of_settings():
    sources = (file for folder in ("framework", "kernels") for file in (ROOT / folder).rglob("*.py"))
    read = {name for file in sources for name in re.findall(r"FLAMBEAU_[A-Z_]*[A-Z]", file.read_text())}
    settings = (ROOT / "docs" / "getting_started.md").read_text()

    listed = set(re.findall(r"^\| `(FLAMBEAU_[A-Z_]+)`", settings, flags=re.MULTILINE))

    assert listed == read
