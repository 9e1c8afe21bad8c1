"""Kernels that programs write: `fb.kernels.elementwise`."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path

import numpy as np
import pytest

import flambeau as fb
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.kernels import words
from flambeau.kernels.words import (
    abs,
    atan2,
    copysign,
    erf,
    exp,
    fma,
    fmod,
    hypot,
    isnan,
    lgamma,
    log,
    log1p,
    maximum,
    minimum,
    sigmoid,
    sqrt,
    tanh,
    where,
)
from flambeau.ops._spec.base import NAMES_IN_TEXTS

elementwise = fb.kernels.elementwise


@elementwise
def huber(error, delta):
    """Quadratic near zero, linear beyond `delta`."""
    size = abs(error)
    return where(size < delta, error * error / 2, delta * (size - delta / 2))


@elementwise
def six(a, b, c, d, e, f, *, scale=2.0):
    return tanh(a * b) + log(1 + c * c) * d**2 + exp(-e) * minimum(f, a) + a**b * scale


def test_a_scalar_function_is_an_op_that_broadcasts_and_stores_in_out():
    error, delta = fb.tensor([[0.5], [-3.0]]), fb.tensor([1.0, 2.0])
    out = fb.empty(2, 2)

    made = huber(error, delta, out=out)

    assert made is out
    assert made.tolist() == [[0.125, 0.125], [2.5, 4.0]]
    assert huber.__doc__ == "Quadratic near zero, linear beyond `delta`."


@pytest.mark.parametrize("size", [3, 5000, 100_003])
@pytest.mark.parametrize("dtype", [fb.float16, fb.bfloat16, fb.float32, fb.float64])
def test_values_are_those_of_the_library_function_at_every_size(size, dtype):
    error = fb.randn(size, dtype=dtype)

    made = huber(error, 1.0)

    assert made.dtype is dtype
    expected = fb.nn.functional.huber_loss(error, fb.zeros_like(error), reduction="none")
    fb.testing.assert_close(made, expected, rtol=float(fb.finfo(dtype).eps), atol=0)


def test_the_derivative_is_derived_from_the_formula_to_second_order():
    args = [(fb.rand(3, 2, dtype=fb.float64) + 0.5).requires_grad_() for _ in range(6)]

    assert fb.autograd.gradcheck(six, args)
    assert fb.autograd.gradgradcheck(six, args)
    assert fb.autograd.gradcheck(lambda *a: six(*a, scale=0.5), args, check_forward_ad=True)


def _formulas():
    def powers(x, y):
        return x**y + 2.0**x - x**-1.5 + (x // 2) * y + x % y

    def ratios(x, y):
        return x / y - y / (1 + x * x) + -x + +y

    def angles(x, y):
        return atan2(x, y) * hypot(x, y) + copysign(x, y) + fmod(x, y)

    def special(x, y):
        return lgamma(x) * erf(y) + log1p(x) * sigmoid(y) + words.rsqrt(x) + words.digamma(y) + words.special_i0(x)

    def rounded(x, y):
        return x * words.floor(y) + words.nearbyint(x) * y + words.trunc(x) + fma(x, y, x)

    def choices(x, y):
        return where((x > y) & ~isnan(x), maximum(x, 2 * y), minimum(x, y)) * where(True, x, y)

    return [powers, ratios, angles, special, rounded, choices]


@pytest.mark.parametrize("fn", _formulas(), ids=lambda fn: fn.__name__)
def test_derived_derivatives_agree_with_finite_differences(fn):
    op = elementwise(fn)
    x = fb.tensor([0.3, 1.7, 2.2, 3.4], dtype=fb.float64, requires_grad=True)
    y = fb.tensor([1.3, 0.8, 2.6, 1.9], dtype=fb.float64, requires_grad=True)

    assert fb.autograd.gradcheck(op, (x, y))


def test_a_branch_that_is_not_taken_leaves_no_nan_in_the_derivative():
    @elementwise
    def root(x):
        return where(x > 0, sqrt(x), 0)

    x = fb.tensor([-1.0, 0.0, 4.0], requires_grad=True)

    (grad,) = fb.autograd.grad(root(x).sum(), x)

    assert grad.tolist() == [0.0, 0.0, 0.25]


def test_a_derivative_that_is_given_is_used():
    @elementwise(partials={"x": lambda out: out * 10})
    def growth(x):
        return exp(x)

    x = fb.zeros(2, requires_grad=True)

    assert fb.autograd.grad(growth(x).sum(), x)[0].tolist() == [10.0, 10.0]


def test_an_op_without_partials_has_no_history():
    @elementwise(partials={})
    def doubled(x):
        return 2 * x

    assert not doubled(fb.ones(2, requires_grad=True)).requires_grad


def test_what_the_formula_makes_of_integers_decides_the_dtype():
    @elementwise
    def whole(a, b):
        return a * b + 2

    @elementwise
    def halved(a):
        return a / 2

    @elementwise
    def shifted(a):
        return a + 0.5

    @elementwise
    def close(a, b):
        return abs(a - b) < 2

    ints = fb.arange(4)
    assert whole(ints, ints).dtype is fb.int64
    assert whole(ints, fb.ones(4, dtype=fb.float16)).dtype is fb.float16
    assert halved(ints).dtype is fb.float32
    assert shifted(ints).tolist() == [0.5, 1.5, 2.5, 3.5]
    assert close(ints, 3).tolist() == [False, False, True, True]


def test_complex_numbers_are_taken_where_the_derivative_is_holomorphic():
    @elementwise
    def square_exp(z):
        return exp(z * z)

    z = fb.randn(3, dtype=fb.complex128, requires_grad=True)

    assert fb.autograd.gradcheck(square_exp, (z,))
    with pytest.raises(NotImplementedError, match=r"huber.*complex"):
        huber(z, 1.0)


def test_the_op_is_batched_autocast_shown_in_graphs_and_has_shapes_without_values():
    @elementwise(autocast="float32")
    def scaled(x, y):
        return x * y

    batch = fb.rand(5, 3)
    assert fb.equal(fb.vmap(huber, (0, None))(batch, 1.0), huber(batch, 1.0))
    assert huber(fb.empty(2, 1, device="meta"), fb.empty(3, device="meta")).shape == (2, 3)
    with fb.autocast("cpu"):
        assert scaled(fb.ones(2, dtype=fb.bfloat16), 2).dtype is fb.float32
    assert "huber" in make_fx(lambda x: huber(x, 1.0))(batch).code


def test_two_kernels_of_one_name_stand_beside_each_other_and_beside_the_op_of_that_name():
    def relu(x):
        return where(x > 0, x, -x)

    first, second = elementwise(relu), elementwise(lambda_named(lambda x: x + 1, "relu"))

    assert first(fb.tensor([-2.0])).item() == 2.0
    assert second(fb.tensor([-2.0])).item() == -1.0
    assert fb.relu(fb.tensor([-2.0])).item() == 0.0


def lambda_named(fn, name):
    fn.__name__ = name
    return fn


def _branches(x):
    return x if x > 0 else -x


def _calls_math(x):
    return math.exp(x)


def _calls_numpy(x):
    return np.exp(x)


def _calls_method(x):
    return x.exp()


def _returns_two(x):
    return x, x


def _returns_text(x):
    return "x"


@pytest.mark.parametrize(("fn", "said"), [
    (_branches, r"_branches: .*where\(condition"),
    (_calls_math, r"_calls_math: .*exp\(x\) for math.exp"),
    (_calls_numpy, "_calls_numpy: .*words"),
    (_calls_method, r"_calls_method: .*'exp'"),
    (_returns_two, "_returns_two: .*one result"),
    (_returns_text, "_returns_text: .*str"),
    (lambda x: x, "def"),
    (len, "def"),
    (lambda_named(lambda *xs: 0, "many"), r"\*xs"),
    (lambda_named(lambda out: out, "to"), "'out'"),
    (lambda_named(lambda x, *, k: x, "free"), "'k'"),
])  # fmt: skip
def test_what_is_no_formula_is_refused_where_it_is_written(fn, said):
    with pytest.raises(TypeError, match=said):
        elementwise(fn)


def test_a_word_without_a_derivative_says_what_to_give():
    with pytest.raises(NotImplementedError, match=r"special_polygamma.*partials"):
        elementwise(lambda_named(lambda x: words.special_polygamma(2, x), "step"))


def test_parameters_may_have_any_name():
    @elementwise(partials={"a": lambda new, out: out / new, "kind": lambda: 0})
    def made(a, kind, new=2.0, *, local=1.0):
        return a * new + kind * local

    a = fb.tensor([1.0, 2.0], requires_grad=True)

    assert made(a=a, kind=fb.ones(2), local=3.0).tolist() == [5.0, 7.0]
    assert fb.autograd.grad(made(a, 0).sum(), a)[0].tolist() == [1.0, 2.0]
    with pytest.raises(TypeError, match="kind"):
        made(a)


@pytest.mark.parametrize("name", sorted(NAMES_IN_TEXTS))
def test_parameters_may_be_called_as_what_is_written_for_operations_calls_its_own(name, tmp_path, monkeypatch):
    (tmp_path / "named_kernels.py").write_text(
        "from flambeau.kernels import elementwise\n"
        f"@elementwise(partials={{'a': lambda {name}: {name}, {name!r}: lambda a: a}})\n"
        f"def product(a, {name}):\n    return a * {name}\n"
        f"@elementwise(partials={{{name!r}: lambda factor: factor}})\n"
        f"def scaled({name}, *, factor=2.0):\n    return {name} * factor\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "named_kernels", raising=False)
    kernels = importlib.import_module("named_kernels")
    a, b = (fb.rand(5, requires_grad=True) for _ in range(2))

    for _ in range(3):                                # the later calls go natively
        made = kernels.product(a, b)
        assert made.tolist() == (a * b).tolist()
        assert [g.tolist() for g in fb.autograd.grad(made.sum(), (a, b))] == [b.tolist(), a.tolist()]
        assert kernels.product(a=a.detach(), **{name: 3.0}).tolist() == (a * 3.0).tolist()
        assert kernels.scaled(**{name: a}).tolist() == (a * 2.0).tolist()
    assert fb.vmap(kernels.product)(a, b).tolist() == (a * b).tolist()
    assert fb.func.jvp(kernels.product, (a.detach(), b.detach()), (b.detach(), a.detach()))[1].tolist() == (b * b + a * a).tolist()
    with pytest.raises(TypeError, match=name):
        kernels.product(a)
    monkeypatch.delitem(sys.modules, "named_kernels")


def test_operands_that_are_no_tensors_are_refused():
    with pytest.raises(TypeError, match="huber"):
        huber(1.0, 2.0)
    with pytest.raises(RuntimeError, match=r"huber"):
        huber(fb.ones(2), fb.ones(3))


@pytest.mark.oracle
def test_real_torch_has_the_same_values_and_gradients():
    torch = pytest.importorskip("torch")
    error = np.linspace(-3, 3, 1001)
    x, y = fb.tensor(error, requires_grad=True), torch.tensor(error, requires_grad=True)

    huber(x, 0.7).sum().backward()
    torch.nn.functional.huber_loss(y, torch.zeros_like(y), reduction="sum", delta=0.7).backward()

    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-15)


@pytest.mark.skipif(fb.kernels.backend() == "numpy" or fb.kernels.cache_folder() is None, reason="nothing is compiled here")
def test_formulas_and_reductions_run_on_a_simulated_device(fresh_python):
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import flambeau as fb
from test_user_kernels import huber
from test_user_loops import root_mean_square

x = fb.linspace(-2, 2, 9)
on_device = x.cuda().requires_grad_()
made = huber(on_device, 1.0)
made.sum().backward()
assert made.is_cuda and fb.equal(made.cpu(), huber(x, 1.0))
assert fb.equal(on_device.grad.cpu(), x.clamp(-1, 1))
assert abs(root_mean_square(on_device.detach()).item() - root_mean_square(x).item()) < 1e-6
print("same")
"""

    assert "same" in fresh_python("-c", program, FLAMBEAU_CUDA_SIMULATOR="1")
