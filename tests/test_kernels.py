"""What `fb.kernels` says about kernels."""

from __future__ import annotations

import re

import pytest

import flambeau as fb

compiled = pytest.mark.skipif(fb.kernels.backend() == "numpy" or fb.kernels.cache_folder() is None, reason="nothing is compiled here")
in_llvm = pytest.mark.skipif(fb.kernels.backend() != "llvm", reason="tests/kernels/backends/test_numba_engine.py asks what numba shows")
explain = fb.kernels.explain


@compiled
def test_small_arrays_run_on_the_numpy_tier_and_say_from_where_the_other_pays():
    said = explain("reciprocal", fb.ones(4))

    assert said.startswith("reciprocal(float32 (4,)): numpy tier: 4 elements; the compiled tier pays")


@compiled
def test_functions_whose_last_bit_depends_on_the_tier_are_compiled_at_every_size():
    assert explain("exp", fb.ones(4)).startswith("exp(float32 (4,)): compiled tier")


@compiled
@in_llvm
def test_a_formula_shows_its_loops_and_its_code():
    said = explain(fb.exp, fb.ones(300, 400))

    assert "compiled tier" in said
    assert "dimensions 120000 after merging" in said
    assert "define void @exp_float32" in said


@compiled
@pytest.mark.parametrize(("name", "args", "words"), [
    ("nn.functional.softmax", (fb.ones(300, 300), -1), "kernel softmax_rows"),
    ("matmul", (fb.ones(300, 300), fb.ones(300, 300)), r"matrix product \(300, 300\) @ \(300, 300\) in float32"),
    ("linalg.svd", (fb.ones(3, 3),), "numpy tier: no compiled loop"),
])  # fmt: skip
def test_other_ops_name_what_ran(name, args, words):
    assert re.search(words, explain(name, *args))


@pytest.mark.parametrize("name", ["nothing_of_the_kind", "pi"])
def test_a_name_that_is_no_function(name):
    with pytest.raises(AttributeError):
        explain(name, fb.ones(2))


def test_the_numpy_backend_says_so(fresh_python):
    program = "import flambeau as fb; print(fb.kernels.explain('exp', fb.ones(10000)))"

    assert "FLAMBEAU_BACKEND=numpy" in fresh_python("-c", program, FLAMBEAU_BACKEND="numpy")


@compiled
@in_llvm
def test_kernels_are_shown_when_the_environment_names_them(fresh_python, tmp_path):
    program = (
        "import sys; sys.stderr = sys.stdout\n"
        "import flambeau as fb; fb.nn.functional.silu(fb.ones(5000)); fb.ones(300, 300).softmax(-1)"
    )

    said = fresh_python("-c", program, FLAMBEAU_SHOW_KERNELS="silu,softmax_rows", FLAMBEAU_CACHE=str(tmp_path))

    assert said.count("; kernel silu") == 1
    assert "; kernel softmax_rows" in said
    assert ";     return input * sigmoid(input)" in said
    assert "define void @silu_float32" in said
    assert "; assembly" in said
