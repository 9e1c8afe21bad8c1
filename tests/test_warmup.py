"""`python -m flambeau.warmup` leaves nothing to compile for programs of the usual kinds."""

from __future__ import annotations

import re

import pytest

import flambeau as fb
from flambeau import warmup
from flambeau_kernels.engine.machine_code import llvm

pytestmark = pytest.mark.skipif(fb.kernels.backend() == "numpy" or llvm.available() is not None, reason="nothing is compiled here")


def test_a_second_run_finds_everything_in_the_cache(tmp_path, fresh_python):
    def figures():
        said = fresh_python("-m", "flambeau.warmup", "--no-formulas", FLAMBEAU_CACHE=str(tmp_path))
        return [int(n) for n in re.match(r"(\d+) kernels compiled, (\d+) found in the cache", said).groups()]

    compiled, _ = figures()

    assert compiled > 50
    assert figures()[0] == 0


def test_formulas_are_those_of_all_ops_and_their_gradients():
    names = {f.name for f in warmup.formulas()}

    assert {"exp", "exp_grad_input", "add_grad_other", "gelu_exact_grad_input"} <= names


def test_a_dtype_that_is_none_is_refused(capsys):
    with pytest.raises(SystemExit):
        warmup.main(["--dtypes", "float33"])

    assert "float33" in capsys.readouterr().err
