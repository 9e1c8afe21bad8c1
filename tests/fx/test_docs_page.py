"""The page about graphs and the examples in docstrings do what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import flambeau as fb
from flambeau import fx

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fx.md"
MODULES = sorted(m.name for m in pkgutil.walk_packages(fx.__path__, "flambeau.fx."))


def test_the_programs_of_the_page_run():
    scope = {"__name__": "page"}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), scope)


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_docstrings_print_what_they_show(name):
    module = importlib.import_module(name)
    finder, runner = doctest.DocTestFinder(exclude_empty=True), doctest.DocTestRunner(verbose=False)
    said = []
    for test in finder.find(module, globs={"fb": fb, "fx": fx}):
        runner.run(test, out=said.append)

    assert runner.failures == 0, "".join(said)


@pytest.mark.parametrize("name", MODULES)
def test_names_that_modules_list_are_there(name):
    module = importlib.import_module(name)

    assert all(hasattr(module, listed) for listed in getattr(module, "__all__", ()))
