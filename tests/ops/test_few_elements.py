"""Few elements of operands whose kinds were met before: numpy's answer without checks is that of the first call."""

import importlib
import itertools
import subprocess
import sys

import numpy as np
import pytest

import flambeau as fb
import flambeau_kernels as kernels
from flambeau.ops import _derive
from flambeau.ops._spec import OPS, few_elements
from flambeau_kernels.quiet import ignore_fp_flags, restore_fp_flags
from flambeau_kernels.takeover import FORMULA, Waiting

elementwise = importlib.import_module("flambeau.ops._spec.elementwise")  # the package's name of it is the decorator
_derive.load_all()
# Formulas that are not exact are specialised in their first call, and are no matter of these answers.
BY_NAME = {op.name: op for op in OPS.values() if isinstance(op, elementwise.ElementwiseOp) and op.formula.exact}
OPERANDS = [
    fb.tensor([[0.5, -1.5, float("nan")], [3.0, 0.0, float("inf")]]), fb.tensor([1.5, -2.0, 7.0], dtype=fb.float64),
    fb.tensor([[3, -7, 0], [1, 2, 5]]), fb.tensor([True, False, True]), fb.tensor(2.5, dtype=fb.float64), fb.tensor(3), fb.zeros(0, 1),
    2, 1.5, True,
]  # fmt: skip


@pytest.fixture(autouse=True)
def _nothing_is_specialised(monkeypatch):
    """Other tests of this process may have had formulas specialised, whose builtins are asked first."""
    for op in BY_NAME.values():
        monkeypatch.setattr(op, "waiting", Waiting(FORMULA))
        for formula in (op.formula, op.short):
            if formula is not None:
                monkeypatch.setattr(formula, "direct", lambda *operands: None)
    few_elements.met_before.clear()


def answered(op, args):
    token = ignore_fp_flags()
    try:
        return op.run(*args)
    except (TypeError, ValueError, RuntimeError, AttributeError) as error:
        return type(error), str(error)
    finally:
        restore_fp_flags(token)


def told(made):
    if isinstance(made, tuple):
        return made
    a = made._array
    return a.dtype, a.shape, a.strides, a.tobytes(), type(made._node)


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_the_second_call_is_the_first(name):
    op = BY_NAME[name]
    count = len(op.positional)
    rest = [op.defaults[n] for n in op.params[count:]]
    some = OPERANDS if count < 3 else OPERANDS[::2]

    for args in itertools.product(some, repeat=min(count, 3)):
        args = (*args, *[op.defaults.get(n, 1.0) for n in op.params[len(args) : count]], *rest)
        few_elements.met_before.clear()
        op.waiting.again()
        first = told(answered(op, args))
        assert told(answered(op, args)) == first


def test_a_history_is_recorded_and_a_shape_that_does_not_fit_is_refused():
    x, y = fb.ones(2, 3).requires_grad_(), fb.ones(3)
    op = BY_NAME["mul"]
    op.run(x, y)
    assert few_elements.met_before

    op.run(x, y).sum().backward()

    assert fb.equal(x.grad, fb.ones(2, 3))
    with pytest.raises(RuntimeError, match="4"):
        op.run(x, fb.ones(4))


@pytest.mark.parametrize("other", [2.0, fb.tensor([1.0, 2.0, 3.0])], ids=["number", "tensor"])
def test_in_place_forms_write_the_same_and_count_the_version(other):
    first, second = fb.ones(2, 3), fb.ones(2, 3)
    BY_NAME["sub"].run_inplace(first, other, 1)

    BY_NAME["sub"].run_inplace(second, other, 1)

    assert fb.equal(first, second)
    assert second._version == 1


def test_a_target_that_an_operand_overlaps_is_refused_in_later_calls_too():
    memory = np.arange(4, dtype=np.float32)
    op = BY_NAME["mul"]
    op.run_inplace(fb.ones(3), fb.ones(3))

    with pytest.raises(RuntimeError, match="single memory location"):
        op.run_inplace(fb.from_numpy(memory)[1:], fb.from_numpy(memory)[:-1])


def test_a_gradient_of_few_elements_is_computed_by_numpy_in_its_second_call_too(monkeypatch):
    x = fb.randn(5, 1, requires_grad=True)
    weight = fb.randn(5, 3)

    def gradient():
        return fb.autograd.grad(fb.where(weight > 0, x, weight).sum(), x)[0]

    first, launched = gradient(), []
    monkeypatch.setattr(kernels, "launch", lambda *args: launched.append(args))

    assert gradient().equal(first)
    assert not launched


def test_the_gradient_of_a_real_angle_is_real():
    x = fb.tensor([1.0, -2.0], requires_grad=True)
    for _ in range(3):
        (grad,) = fb.autograd.grad(fb.angle(x).sum(), x)

        assert grad.dtype == fb.float32
        assert grad.tolist() == [0.0, 0.0]


@pytest.mark.skipif(kernels.cpu_backend() != "llvm", reason="its builtins are the native engine's")
def test_a_recorded_write_in_place_is_the_builtins_once_the_formula_is_specialised(monkeypatch):
    x = fb.randn(60, 10, requires_grad=True)

    def write():
        made = x.clone().tanh_()
        return made, fb.autograd.grad(made.sum(), x)[0]

    first = write()
    launched = []
    monkeypatch.setattr(elementwise.ElementwiseOp, "launch", lambda self, *args: launched.append(self.name))
    second = write()

    assert not launched
    assert all(a.equal(b) for a, b in zip(first, second, strict=True))
    assert second[0]._version == 1


@pytest.mark.skipif(not kernels.engines.chosen().compiles, reason="numpy computes everything")
@pytest.mark.parametrize("shape", [(8,), (32, 32), (100, 100)], ids=str)
def test_what_numpy_computes_as_soon_as_a_kernel_is_computed_without_checks_from_the_second_call_on(shape, monkeypatch):
    """Results of 256 elements and more took 22 us in each of the first 350 calls, which checked all their operands."""
    x, y = fb.randn(shape), fb.randn(shape)
    calls = {"add": (x, 1.0, 1), "sub": (x, y, 1), "mul": (x, y), "neg": (x,)}
    first = {name: BY_NAME[name].run(*args) for name, args in calls.items()}
    anew = []
    monkeypatch.setattr(elementwise.ElementwiseOp, "_run_anew", lambda self, args: anew.append(self.name))

    for name, args in calls.items():
        assert told(BY_NAME[name].run(*args)) == told(first[name])
    assert not anew


def test_rows_and_columns_that_make_many_elements_are_left_to_kernels(monkeypatch):
    column, row = fb.randn(300, 1), fb.randn(1, 300)
    first, launched = BY_NAME["mul"].run(column, row), []
    launch = kernels.launch
    monkeypatch.setattr(kernels, "launch", lambda *args: launched.append(args) or launch(*args))

    assert BY_NAME["mul"].run(column, row).equal(first)
    assert launched


_OPS_IN_MANY_CALLS = '''
import flambeau as fb
from flambeau.ops import _derive
from flambeau.ops._spec import OPS

_derive.load_all()
numbers = fb.Generator().manual_seed(3)


def count_of_answers(op, dtype, shapes):
    values = [fb.rand(shape, generator=numbers).mul(1.8).sub(0.9).to(dtype) for shape in shapes]
    weight, found = None, set()
    for _ in range(40):
        leaves = [value.clone().requires_grad_() for value in values]
        y = op.function(*leaves)
        weight = fb.rand(y.shape, generator=numbers).sub(0.5).to(y.dtype) if weight is None else weight
        gradients = fb.autograd.grad(y, leaves, weight, allow_unused=True)
        found.add(tuple(x.detach().view(fb.uint8).numpy().tobytes() for x in (y, *gradients) if x is not None))
    return len(found)


tried = 0
for name, op in OPS.items():
    count = len([p for p in op.positional if p not in op.defaults])
    for shapes in ([(5, 7)] * count, [(5, 7), *[(7,)] * (count - 1)]):
        try:
            answers = count_of_answers(op, fb.float32, shapes) if op.kind == "elementwise" and not op.random else 1
        except (TypeError, RuntimeError, ValueError, NotImplementedError):   # it takes other operands, or has no gradient
            continue
        tried += 1
        if answers > 1:
            print(name, shapes, answers)
print(tried > 150)
'''


def test_gradients_are_the_same_before_and_after_kernels_take_over():
    done = subprocess.run([sys.executable, "-c", _OPS_IN_MANY_CALLS], capture_output=True, text=True, check=True)

    assert done.stdout == "True\n"
