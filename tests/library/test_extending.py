"""What the pages on extending show runs alike under PyTorch and here."""

from __future__ import annotations

import pytest

import flambeau as fb
from comparing import described
from library.stand_ins import PROGRAMS


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # PyTorch's own forward mode uses it
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_programs_of_extending_behave_as_in_pytorch(program, oracle):
    ours, theirs = (described(lib, program(lib)) for lib in (fb, oracle))

    assert ours == theirs
