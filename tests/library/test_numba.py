"""Functions of numba over tensors: `library.wrap_numba` and `library.numba_op`."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import flambeau as fb
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.library import numba_op, wrap_numba

numba = pytest.importorskip("numba")


@numba.njit
def _decay(x, factor, out):
    state = 0.0
    for i in range(x.size):
        state = factor * state + x[i]
        out[i] = state


@numba.vectorize
def _soft(a, b):
    return a * b / (1 + abs(a))


@numba.njit
def _sums(x):
    return x.sum(), x + x


decay = wrap_numba(_decay, mutates_args=("out",))


@numba_op("user_numba::decay")
def decay_op(x: fb.Tensor, factor: float) -> fb.Tensor:
    out = fb.empty_like(x)
    decay(x, factor, out)
    return out


def _backward(ctx, grad):
    return decay_op(grad.flip(0), ctx.factor).flip(0), None


def _setup(ctx, inputs, output):
    ctx.factor = inputs[1]


decay_op.register_autograd(_backward, setup_context=_setup)
decay_op.register_autocast("cpu", fb.float32)
soft_op = numba_op("user_numba::soft", _soft)


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64])
def test_a_kernel_of_njit_has_the_memory_of_the_tensors(dtype):
    x, out = fb.ones(4, dtype=dtype), fb.empty(8, dtype=dtype)[::2]

    decay(x, 0.5, out)

    assert out.tolist() == [1.0, 1.5, 1.75, 1.875]


def test_a_store_in_a_tensor_that_is_not_named_is_refused():
    with pytest.raises(numba.core.errors.TypingError, match="readonly"):
        wrap_numba(_decay)(fb.ones(4), 0.5, fb.empty(4))


def test_a_history_notices_what_a_kernel_writes():
    x = fb.ones(3, requires_grad=True)
    doubled = x * 2
    squared = doubled * doubled

    with fb.no_grad():
        decay(fb.ones(3), 0.5, doubled)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squared.sum().backward()


def test_results_are_new_tensors():
    total, doubled = wrap_numba(_sums)(fb.ones(3))

    assert total == 3.0
    assert doubled.tolist() == [2.0, 2.0, 2.0]

    same = wrap_numba(numba.njit(lambda x: x))
    x = fb.ones(2)
    same(x).fill_(5)
    assert x.tolist() == [1.0, 1.0]


def test_an_operator_has_a_derivative_shapes_batches_autocast_and_is_one_node():
    x = fb.randn(6, dtype=fb.float64, requires_grad=True)

    assert fb.autograd.gradcheck(lambda x: decay_op(x, 0.5), (x,))
    assert fb.autograd.gradgradcheck(lambda x: decay_op(x, 0.5), (x,))
    assert decay_op(fb.empty(6, device="meta"), 0.5).shape == (6,)
    with fb.autocast("cpu"):
        assert decay_op(fb.ones(2, dtype=fb.bfloat16), 0.5).dtype is fb.float32
    assert "user_numba.decay" in make_fx(lambda x: decay_op(x, 0.5))(x.detach()).code
    fb.library.opcheck(decay_op, (x, 0.5))


def test_a_function_of_vectorize_for_all_threads_is_taken():
    @numba.vectorize(["float64(float64, float64)"], target="parallel")
    def difference(x, y):
        return x - y

    op = numba_op("user_numba::difference", difference)

    assert op(fb.ones(3, 1), fb.zeros(2)).tolist() == [[1.0, 1.0]] * 3
    assert fb.vmap(op)(fb.ones(2, 3), fb.ones(2)).shape == (2, 3)


def test_a_parameter_of_vectorize_that_is_annotated_as_a_number_takes_one():
    @numba.vectorize
    def power(x, exponent: float):
        return x**exponent

    op = numba_op("user_numba::power", power)
    op.register_autograd(
        lambda ctx, grad: (grad * ctx.exponent * ctx.saved_tensors[0] ** (ctx.exponent - 1), None),
        setup_context=lambda ctx, inputs, output: (ctx.save_for_backward(inputs[0]), setattr(ctx, "exponent", inputs[1])),
    )
    x = fb.tensor([1.0, 2.0], dtype=fb.float64, requires_grad=True)

    assert op(x, 3.0).tolist() == [1.0, 8.0]
    assert fb.autograd.gradcheck(lambda x: op(x, 3.0), (x,))
    assert fb.vmap(op, (0, None))(fb.ones(2, 3), 2).shape == (2, 3)
    assert op(fb.empty(4, device="meta"), 2.0).shape == (4,)
    with pytest.raises(RuntimeError, match="float exponent"):
        op(x, x)


def test_a_function_of_vectorize_broadcasts_with_shapes_and_batches():
    a, b = fb.randn(3, 1), fb.randn(4)

    made = soft_op(a, b)

    fb.testing.assert_close(made, a * b / (1 + a.abs()), check_dtype=False)  # numba adds an integer to a float32 in float64
    assert soft_op(fb.empty(3, 1, device="meta"), fb.empty(4, device="meta", dtype=fb.float64)).dtype is fb.float64
    assert soft_op(fb.empty(3, 1, device="meta"), fb.empty(4, device="meta")).shape == (3, 4)
    batch = fb.randn(5, 3, 1)
    assert fb.equal(fb.vmap(soft_op, (0, None))(batch, b), soft_op(batch, b))
    assert fb.equal(fb.vmap(soft_op, (None, 1))(a, fb.ones(4, 7)), soft_op(a, fb.ones(4)).expand(7, 3, 4))


def test_a_kernel_that_is_an_operator_by_itself_says_what_it_writes():
    def doubled(x: fb.Tensor, out: fb.Tensor) -> None:
        for i in range(x.size):
            out[i] = 2 * x[i]

    op = numba_op("user_numba::doubled", numba.njit(doubled), mutates_args=("out",))
    out = fb.empty(3)
    op(fb.ones(3), out)

    assert out.tolist() == [2.0, 2.0, 2.0]
    assert "Tensor(a1!) out" in str(op._opoverload._schema)


@pytest.mark.parametrize(("call", "error", "said"), [
    (lambda: wrap_numba(len), TypeError, "numba.njit"),
    (lambda: wrap_numba(_decay, mutates_args=("y",)), ValueError, r"\['y'\]"),
    (lambda: wrap_numba(_decay, mutates_args="out"), ValueError, "'out'"),
    (lambda: decay[1, 2], TypeError, "grid"),
    (lambda: decay(fb.ones(2, requires_grad=True), 0.5, fb.ones(2)), RuntimeError, "'x' requires grad"),
    (lambda: decay(fb.ones(2, dtype=fb.bfloat16), 0.5, fb.ones(2)), TypeError, "'x' is torch.bfloat16"),
    (lambda: decay(fb.ones(2, dtype=fb.float16), 0.5, fb.ones(2)), TypeError, r"'x' is torch.float16.*convert it with .float\(\)"),
    (lambda: wrap_numba(_sums)(fb.empty(2, device="meta")), NotImplementedError, "register_fake"),
])  # fmt: skip
def test_what_cannot_be_is_refused(call, error, said):
    with pytest.raises(error, match=said):
        call()


def test_functions_compiled_for_signatures_take_tensors_that_may_be_written():
    fixed = numba.njit("void(float64[:], float64[:])")(lambda x, out: None)

    wrap_numba(fixed, mutates_args="unknown")(fb.ones(2, dtype=fb.float64), fb.ones(2, dtype=fb.float64))


def test_kernels_of_cuda_run_in_the_simulator_of_numba(fresh_python):
    program = """
import warnings
warnings.simplefilter("ignore")
from numba import cuda
import flambeau as fb

@cuda.jit
def add_one(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] + 1

kernel = fb.library.wrap_numba(add_one, mutates_args=("out",))

@fb.library.numba_op("user_numba::add_one")
def op(x: fb.Tensor) -> fb.Tensor:
    out = fb.empty_like(x)
    kernel[1, 8](x, out)
    return out

print(op(fb.arange(5.0)).tolist(), tuple(op(fb.empty(5, device="meta")).shape))
try:
    kernel(fb.ones(1), fb.ones(1))
except TypeError as error:
    print(error)
"""

    said = fresh_python("-c", program, NUMBA_ENABLE_CUDASIM="1")

    assert "[1.0, 2.0, 3.0, 4.0, 5.0] (5,)" in said
    assert "add_one[blocks, threads]" in said


def test_zero_copy(monkeypatch):
    seen = []

    class Watched(fb.library._numba.NumbaKernel):
        def _given(self, name, a):
            made = super()._given(name, a)
            seen.append(made)
            return made

    x, out = fb.ones(3), fb.empty(3)
    Watched(_decay, ("out",))(x, 0.5, out)

    assert np.shares_memory(seen[0], x.numpy())
    assert np.shares_memory(seen[2], out.numpy())


def test_the_programs_of_the_page_run():
    page = (Path(__file__).resolve().parents[2] / "docs" / "kernels.md").read_text()
    programs = [p for p in re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL) if "import numba" in p]

    for program in programs:
        exec(program, {"__name__": "program"})
    assert len(programs) == 2


def test_what_is_written_is_written_once():
    out = fb.empty(3)
    before = out._version

    decay(fb.ones(3), 0.5, out)

    assert out._version == before + 1


def test_a_function_of_arrays_by_guvectorize_is_no_function_of_numbers():
    @numba.guvectorize(["(float64[:], float64[:])"], "(n)->()")
    def total(x, out):
        out[0] = x.sum()

    rows, sums = fb.ones(2, 3, dtype=fb.float64), fb.empty(2, dtype=fb.float64)
    wrap_numba(total, mutates_args=("x", "out"))(rows, sums)

    assert sums.tolist() == [3, 3]
    with pytest.raises(ValueError, match="x must have a type annotation"):
        numba_op("user_numba::total", total)
