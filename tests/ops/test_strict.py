"""FLAMBEAU_STRICT=1: a broken plan is an error; without the variable it is slower, and arguments it refuses never show."""

import pytest

BROKEN = """
import flambeau as fb
from flambeau.ops._spec import OPS

def broken(*args):
    raise ValueError("a bug of the rule")

x, places = fb.ones(3, 4), fb.tensor([[0, 1]])
OP = {op}
{breaking}
try:
    {call}
    print("answered")
except AssertionError as error:
    print(type(error).__name__, str(error).split(";")[0], "|", type(error.__cause__).__name__)
"""
CASES = {
    "a plan that computes": ("gather", "OP.plan(broken)", "x.gather(0, places)"),
    "a plan that stores": ("index_add", "OP.plan(broken, stores=True)", "x.index_add_(0, fb.tensor([0]), fb.ones(1, 4))"),
    "a plan of few elements": ("kron", "OP.plan(broken, tensors=('input', 'other'), most_by_numpy=64)", "fb.kron(x, x)"),
    "a plan for each shape": ("gather", "OP.plan(broken, by='shape', tensors=('input', 'index'))", "x.gather(0, places)"),
    "what forwards": ("scatter_reduce", "OP.forwards(broken)", "x.scatter_reduce(0, places, x, 'sum')"),
}


def script(case):
    name, breaking, call = CASES[case]
    return BROKEN.format(op=f"OPS[{name!r}]", breaking=breaking, call=call)


@pytest.mark.parametrize("case", CASES)
def test_a_plan_that_is_broken_is_an_error_of_strict_processes_alone(case, fresh_python):
    said = fresh_python("-c", script(case), FLAMBEAU_STRICT="1")
    assert said.startswith("BrokenPlan ")
    assert "its plan raised ValueError: a bug of the rule | ValueError" in said
    assert fresh_python("-c", script(case), FLAMBEAU_STRICT="0").strip() == "answered"


REFUSED = """
import numpy as np
import flambeau as fb
x, places = fb.ones(3, 4), fb.tensor([[0, 1]])
print(x.gather(np.int64(0), places).tolist(), fb.nn.functional.layer_norm(x, fb.Size([4])).sum().item())
mask = fb.ones(2, 3, 4, dtype=fb.bool)
print(x.masked_fill(mask, 2.0).shape, x.masked_fill(mask, fb.tensor(2.0)).shape, fb.tensor(3.0).flip(0), x[:, 1:].flip(0, 1).shape)
larger = lambda: x.clone().masked_fill_(mask, 2.0)
beyond = lambda: x.index_add_(0, fb.tensor([9]), fb.ones(1, 4))
for call in (larger, beyond, lambda: x.gather(5, places), lambda: x.gather(0, [[0]])):
    try:
        call()
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_arguments_that_plans_refuse_have_the_same_answers_and_errors_in_strict_processes(fresh_python):
    usual = fresh_python("-c", REFUSED, FLAMBEAU_STRICT="0")
    assert usual.count("Error") >= 4
    assert usual.startswith("[[1.0, 1.0]] 0.0")
    assert fresh_python("-c", REFUSED, FLAMBEAU_STRICT="1") == usual


def test_plans_tell_dtypes_among_plain_arguments(fresh_python):
    call = "import flambeau as fb; print(fb.ones(3, 2).sum(0, dtype=fb.float64).tolist())"
    assert fresh_python("-c", call, FLAMBEAU_STRICT="1").strip() == "[3.0, 3.0]"


FOREIGN = """
import sys
import numpy as np
import flambeau_kernels as kernels
from flambeau_kernels.formula import Formula

twin = np.dtype(np.float32, metadata={"of": "a record"})
assert twin == np.float32
doubled = Formula(lambda a: a + a, "doubled")
out = np.zeros(3, np.float32)
try:
    kernels.launch(doubled, (np.ones(3, twin),), (out,), np.dtype(np.float32))
except AssertionError as error:
    print(error)
kernels.launch(doubled, (np.ones(3, np.float32), ), (out,), np.dtype(np.float32))
print(out.tolist(), "flambeau_kernels.own_dtypes" in sys.modules)
"""


def test_a_dtype_that_no_kernel_is_found_by_does_not_reach_a_formula(fresh_python):
    said = fresh_python("-c", FOREIGN, FLAMBEAU_STRICT="1")

    assert said.startswith("doubled: dtype('float32') is equal to a dtype of ours and another object")
    assert said.endswith("[2.0, 2.0, 2.0] True\n")
    assert fresh_python("-c", FOREIGN, FLAMBEAU_STRICT="0") == "[2.0, 2.0, 2.0] False\n"
