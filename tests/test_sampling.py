"""A run that takes one case in some takes each of them in a few turns, and leaves out no test."""

from __future__ import annotations

import pytest

from sampling import taken

CASES = ["of one", *(f"of {count}[{dtype}-{at}]" for count in (1, 2, 3, 4, 9) for at in range(count) for dtype in ("float32", "float64"))]


@pytest.mark.parametrize("step", [1, 2, 3, 5])
@pytest.mark.parametrize("first", [0, 1, 7])
def test_turns_in_a_row_take_every_case_and_each_turn_some_of_every_test(step: int, first: int) -> None:
    turns = [taken(CASES, step, first + turn) for turn in range(step)]

    assert set.union(*turns) == set(range(len(CASES)))
    for turn in turns:
        assert {CASES[at].partition("[")[0] for at in turn} == {case.partition("[")[0] for case in CASES}
        assert sum(CASES[at].startswith("of 9[") for at in turn) in (18 // step, -(-18 // step))


def test_a_turn_has_cases_of_every_dtype() -> None:
    for turn in range(2):
        large = [CASES[at] for at in taken(CASES, 2, turn) if CASES[at].startswith("of 9[")]
        assert {case.partition("[")[2].partition("-")[0] for case in large} == {"float32", "float64"}
