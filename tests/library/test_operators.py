"""Operators that programs define: the same definitions and calls under PyTorch and here."""

from __future__ import annotations

import pytest

import flambeau as fb
from comparing import described
from library.programs import PROGRAMS


@pytest.mark.oracle
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_operators_behave_as_in_pytorch(program, oracle):
    ours, theirs = (described(lib, program(lib)) for lib in (fb, oracle))

    assert ours == theirs
