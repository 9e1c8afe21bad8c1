"""Generated files are what the registry generates, and every addition to the public surface is a line in a diff."""

from __future__ import annotations

from pathlib import Path

import pytest

from flambeau.ops import _stubs

LISTED = Path(__file__).parent / "public_names.txt"


@pytest.mark.parametrize("path", sorted(_stubs.stubs()), ids=lambda p: p.name)
def test_the_stub_in_the_tree_is_the_generated_one(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == _stubs.stubs()[path], "run: python -m flambeau.ops._stubs"


def test_public_names_are_those_listed() -> None:
    listed = LISTED.read_text(encoding="utf-8").split()

    assert _stubs.public_names() == listed, "run: python -m flambeau.ops._stubs, and look at the difference"
