"""Generated files are what the registry generates, and every addition to the public surface is a line in a diff."""

from __future__ import annotations

from pathlib import Path

import pytest

import make_stubs

LISTED = Path(__file__).parent / "public_names.txt"


@pytest.mark.parametrize("path", sorted(make_stubs.stubs()), ids=lambda p: p.name)
def test_the_stub_in_the_tree_is_the_generated_one(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == make_stubs.stubs()[path], "run: python .ci/make_stubs.py"


def test_public_names_are_those_listed() -> None:
    listed = LISTED.read_text(encoding="utf-8").split()

    assert make_stubs.public_names() == listed, "run: python .ci/make_stubs.py, and look at the difference"
