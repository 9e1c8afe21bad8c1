"""A short run of `random_programs.py`, which is the command for long ones."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

import flambeau as fb


@pytest.fixture(scope="module")
def random_programs() -> Any:
    spec = importlib.util.spec_from_file_location("random_programs", Path(__file__).with_name("random_programs.py"))
    assert spec is not None
    assert spec.loader is not None
    made = sys.modules["random_programs"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("seed", [0, 1_000_000])
def test_random_programs_have_the_outcomes_of_pytorch(random_programs: Any, oracle: Any, seed: int) -> None:
    compare = random_programs.Comparison(fb, oracle)

    for at, program in random_programs.programs(oracle, seed, 60):
        found = compare(program)
        assert found is None, "\n".join([f"# seed {at}", *compare.shortest(program)[0], f"# {found}"])


def test_a_program_that_disagrees_is_found_and_made_short(random_programs: Any, oracle: Any) -> None:
    class Wrong:
        """Flambeau, in which every product is a sum."""

        def __getattr__(self, name: str) -> Any:
            return fb.add if name == "mul" else getattr(fb, name)

    compare = random_programs.Comparison(Wrong(), oracle)
    short, words = compare.shortest(["a = torch.ones(3)", "b = a + 1", "c = torch.mul(a, a)", "d = a.sin()"])

    assert short == ["a = torch.ones(3)", "c = torch.mul(a, a)"]
    assert words.startswith("c = torch.mul(a, a): c: values: Flambeau")
