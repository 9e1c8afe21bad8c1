"""Everyday programs give the warnings that PyTorch gives, of the same category and as often."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.mark.oracle
def test_programs_are_warned_as_pytorch_warns_them(oracle: Any, fresh_python: Any) -> None:
    ours, theirs = (fresh_python(Path(__file__).with_name("warned.py"), name).splitlines() for name in ("flambeau", "torch"))

    assert len(ours) == len(theirs) > 40
    assert [(a, b) for a, b in zip(ours, theirs, strict=True) if a != b] == []
