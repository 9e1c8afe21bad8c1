"""Reductions and loops that programs write: `fb.kernels.reduction` and `fb.kernels.loop`."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
from flambeau.kernels import words
from flambeau.kernels.words import abs, exp, float64, independent, local, log, sqrt, unroll

reduction, loop = fb.kernels.reduction, fb.kernels.loop


@reduction(finish=lambda total, count: sqrt(total / count))
def root_mean_square(x):
    """The square root of the mean square."""
    return x * x


@reduction(combine="mul")
def product_of_squares(x):
    return 1 + x * x


@reduction(combine="max")
def largest_size(x):
    return abs(x)


@reduction(combine="or")
def has_negative(x):
    return x < 0


@reduction(finish=lambda total: log(total))
def log_sum_exp(x):
    return exp(x)


@reduction
def squared_distance(a, b):
    step = a - b
    return step * step


@pytest.mark.parametrize("dim", [None, 0, 1, (0, 2)])
@pytest.mark.parametrize("op", [root_mean_square, product_of_squares, largest_size, log_sum_exp], ids=lambda op: op.__name__)
def test_derivatives_of_reductions_are_derived_to_second_order(op, dim):
    x = fb.randn(2, 3, 2, dtype=fb.float64, requires_grad=True)

    assert fb.autograd.gradcheck(lambda x: op(x, dim, True), (x,), check_forward_ad=True)
    assert fb.autograd.gradgradcheck(lambda x: op(x, dim), (x,))


@pytest.mark.parametrize("dim", [None, 0, 1])
@pytest.mark.parametrize("shape", [(3, 4), (300, 700)])
def test_values_of_reductions_are_those_of_separate_ops(shape, dim):
    x = fb.randn(shape)
    dims = (0, 1) if dim is None else dim

    fb.testing.assert_close(root_mean_square(x, dim), (x * x).mean(dim).sqrt())
    fb.testing.assert_close(log_sum_exp(x, dim), x.logsumexp(dims))
    assert fb.equal(largest_size(x, dim), x.abs().amax(dims))
    assert fb.equal(has_negative(x, dim), (x < 0).any(dim))
    fb.testing.assert_close(squared_distance(x, x[:1], dim), (x - x[:1]).square().sum(dim))


def test_reductions_take_out_and_keepdim_and_have_shapes_without_values():
    x, out = fb.tensor([[3.0, 4.0]]), fb.empty(1, 1)

    assert root_mean_square(x, -1, keepdim=True, out=out) is out
    assert out.item() == pytest.approx(12.5**0.5)
    assert root_mean_square(fb.empty(2, 3, device="meta"), 1).shape == (2,)
    assert fb.vmap(root_mean_square)(fb.ones(4, 3)).tolist() == [1.0] * 4
    assert root_mean_square.__doc__ == "The square root of the mean square."


def test_integers_add_up_in_int64_and_fractions_of_them_are_floating():
    assert squared_distance(fb.arange(4), 1).item() == 6
    assert squared_distance(fb.arange(4, dtype=fb.int8), 1).dtype is fb.int64
    assert root_mean_square(fb.tensor([3, 4])).dtype is fb.float32


def test_of_no_elements_sums_are_zero_and_extremes_refused():
    assert squared_distance(fb.empty(0), 1).item() == 0.0
    assert product_of_squares(fb.empty(0)).item() == 1.0
    with pytest.raises(IndexError, match="largest_size"):
        largest_size(fb.empty(0))


@pytest.mark.parametrize(("make", "error", "said"), [
    (lambda: reduction(combine="xor"), ValueError, "combine.*'xor'"),
    (lambda: reduction(abs), TypeError, "def"),
    (lambda: reduction(finish=lambda a, b, c: a)(lambda_named()), TypeError, "finish"),
])  # fmt: skip
def test_what_is_no_reduction_is_refused(make, error, said):
    with pytest.raises(error, match=said):
        make()


def lambda_named():
    def named(x):
        return x

    return named


def test_parameters_that_reductions_have_are_refused():
    with pytest.raises(TypeError, match="'dim'"):

        @reduction
        def along(dim):
            return dim


# -- loops


@loop(mutates_args=("out",))
def running_maximum(row, x, out, n):
    """The largest so far in each row."""
    best = x[row * n]
    for i in range(row * n, row * n + n):
        best = max(best, x[i])
        out[i] = best


def smoothed(left, here, right, SHARE):
    return here * (1 - 2 * SHARE) + (left + right) * SHARE


@loop(mutates_args=("out",))
def smooth(row, x, out, n, *, SHARE=0.25):
    here, to = x + row * n, out + row * n
    to[0] = here[0]
    to[n - 1] = here[n - 1]
    for j in independent(range(1, n - 1)):
        to[j] = smoothed(here[j - 1], here[j], here[j + 1], SHARE)


@loop(mutates_args=("out",))
def four_sums(chunk, x, out, n):
    sums = local(float64, 4)
    for k in unroll(range(4)):
        sums[k] = 0.0
    for i in range(n):
        sums[i % 4] += exp(float64(x[i]))
    for k in unroll(range(4)):
        out[k] = words.log(sums[k])


@pytest.mark.parametrize("dtype", [fb.float16, fb.bfloat16, fb.float32, fb.float64, fb.int64, fb.int8])
def test_a_loop_runs_over_the_memory_of_tensors_of_every_kind(dtype):
    x = (fb.randn(7, 40) * 10).to(dtype)
    out = fb.empty_like(x)

    running_maximum(7, x, out, 40)

    assert fb.equal(out, x.cummax(1).values)


def test_a_loop_calls_functions_and_takes_constants():
    x = fb.randn(5, 9)
    out, other = fb.empty(5, 9), fb.empty(5, 9)

    smooth(5, x, out, 9)
    smooth(5, x, other, 9, SHARE=0.5)

    fb.testing.assert_close(out[:, 1:-1], x[:, 1:-1] / 2 + (x[:, :-2] + x[:, 2:]) / 4)
    fb.testing.assert_close(other[:, 1:-1], (x[:, :-2] + x[:, 2:]) / 2)


def test_a_loop_has_memory_of_its_own_and_words():
    x, out = fb.randn(22), fb.empty(4, dtype=fb.float64)

    four_sums(1, x, out, 22)

    expected = [np.log(np.exp(x[k::4].double().numpy()).sum()) for k in range(4)]
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-13)


def test_what_is_read_may_lie_in_any_way_and_what_is_written_may_not():
    x = fb.randn(6, 4)
    out = fb.empty(4, 6)

    running_maximum(4, x.t(), out, 6)

    assert fb.equal(out, x.t().cummax(1).values)
    with pytest.raises(RuntimeError, match=r"'out' is written and not contiguous.*\(4, 6\)"):
        running_maximum(4, out, fb.empty(6, 4).t(), 6)


def test_a_history_notices_what_a_loop_writes():
    x = fb.ones(1, 3, requires_grad=True)
    scaled = x * 2
    squared = scaled * scaled

    with fb.no_grad():
        running_maximum(1, fb.ones(1, 3), scaled, 3)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squared.sum().backward()


def test_a_loop_is_an_operator_with_shapes_and_a_derivative():
    @fb.library.custom_op("user_loops::smooth", mutates_args=())
    def smooth_op(x: fb.Tensor) -> fb.Tensor:
        out = fb.empty_like(x)
        smooth(x.shape[0], x, out, x.shape[1])
        return out

    @smooth_op.register_fake
    def _(x):
        return fb.empty_like(x)

    def backward(ctx, grad):
        ends = fb.zeros_like(grad)
        ends[:, 1:-1] = grad[:, 1:-1]
        made = ends / 2
        made[:, :-1] += ends[:, 1:] / 4
        made[:, 1:] += ends[:, :-1] / 4
        made[:, 0] += grad[:, 0]
        made[:, -1] += grad[:, -1]
        return made

    smooth_op.register_autograd(backward)
    x = fb.randn(2, 5, dtype=fb.float64, requires_grad=True)

    assert fb.autograd.gradcheck(smooth_op, (x,))
    assert smooth_op(fb.empty(2, 5, device="meta")).shape == (2, 5)
    fb.library.opcheck(smooth_op, (x,))


@pytest.mark.parametrize(("args", "error", "said"), [
    ((1, fb.ones(3), fb.ones(3)), TypeError, "x, out, n; got 2 of these, n not"),
    ((1, fb.ones(3), 2.0, 3), TypeError, "'out' is written"),
    ((1, "x", fb.ones(3), 3), TypeError, "'x' must be Tensor, int or float, not str"),
    ((1.0, fb.ones(3), fb.ones(3), 3), TypeError, "chunks must be int"),
    ((-1, fb.ones(3), fb.ones(3), 3), ValueError, "at least 0, got -1"),
    ((1, fb.ones(3, requires_grad=True), fb.ones(3), 3), RuntimeError, "'x' requires grad"),
    ((1, fb.ones(3, dtype=fb.complex64), fb.ones(3), 3), TypeError, r"'x' is torch.complex64.*view_as_real\(x\)"),
    ((1, fb.ones(3).to(fb.float8_e5m2), fb.ones(3), 3), TypeError, r"'x' is torch.float8_e5m2.*x.float\(\)"),
])  # fmt: skip
def test_wrong_arguments_of_a_loop_are_named(args, error, said):
    with pytest.raises(error, match=rf"running_maximum.*{said}"):
        running_maximum(*args)


def test_arguments_of_a_loop_may_be_named_and_constants_may_not_be_left_out():
    @loop(mutates_args=("out",))
    def scaled(i, x, out, *, BY):
        out[i] = x[i] * BY

    x, out = fb.randn(2, 3), fb.empty(2, 3)
    running_maximum(2, x, n=3, out=out)
    assert fb.equal(out, x.cummax(1).values)
    scaled(6, out=out, BY=2, x=x)
    assert fb.equal(out, x * 2)
    for call, said in [
        (lambda: running_maximum(2, x, out, 3, x=x), "'x' is given twice"),
        (lambda: running_maximum(2, x, out, 3, m=3), r"'m' is no parameter; these are \['x', 'out', 'n'\]"),
        (lambda: running_maximum(2, x, n=3), "x, out, n; got 2 of these, out not"),
        (lambda: running_maximum(2, x, out, 3, 4), "x, out, n; got 4 of these"),
        (lambda: scaled(6, x, out), r"scaled: the constant 'BY' is not given, as in scaled\(..., BY=...\)"),
    ]:
        with pytest.raises(TypeError, match=said):
            call()


def test_stores_to_what_is_not_named_as_written_are_refused_in_whichever_way_they_are_reached():
    def put(to, j, value):
        to[j] = value

    @loop(mutates_args=("out",))
    def itself(i, x, out):
        x[i] = out[i]

    @loop(mutates_args=("out",))
    def moved(i, x, out):
        here, to = x + i, out + i
        to[0] = here[0]
        here[0] += 1

    @loop(mutates_args=("out",))
    def by_a_function(i, x, out):
        put(out, i, x[i])
        put(x, i, out[i])

    @loop(mutates_args=("out", "x"))
    def named(i, x, out):
        put(out, i, x[i])
        x[i] = out[i] + 1

    x, out = fb.zeros(5), fb.empty(5)
    for kernel in (itself, moved, by_a_function):
        with pytest.raises(TypeError, match="elements of x are stored to, which mutates_args does not name"):
            kernel(5, x, out)
    named(5, x, out)
    assert x.tolist() == [1] * 5


def test_memory_in_common_is_refused():
    x = fb.ones(2, 3)

    with pytest.raises(RuntimeError, match="'out', which is written, shares memory with 'x'"):
        running_maximum(2, x, x, 3)


def test_what_is_no_loop_is_refused():
    with pytest.raises(ValueError, match=r"mutates_args has \['y'\]"):
        loop(running_maximum.kernel.function, mutates_args=("y",))
    with pytest.raises(TypeError, match="def"):
        loop(max, mutates_args=())
    scope = {}
    exec("def made(chunk, out):\n    out[0] = 1", scope)
    with pytest.raises(OSError, match="made has no source"):
        loop(scope["made"], mutates_args=("out",))


def test_python_says_where_an_index_leaves_its_tensor():
    from flambeau_kernels.engine.language import interpret

    x, out = np.ones(5), np.empty(6)

    with pytest.raises(IndexError, match="running_maximum: in chunk 1: index 5 of 'x', which has 5 elements"):
        interpret.run(running_maximum.kernel.function, 2, {"x": x, "out": out, "n": 3}, {})


def test_a_float_is_float64_and_does_not_fit_a_float32_on_either_backend():
    @loop(mutates_args=("out",))
    def fill(chunk, out, value):
        out[chunk] = value

    with pytest.raises(TypeError, match=r"fill.*float32 and cannot hold .*float64.*; write float32\(...\)"):
        fill(1, fb.empty(1), 0.5)
    out = fb.empty(1, dtype=fb.float64)
    fill(1, out, 0.5)
    assert out.item() == 0.5


def test_compiled_loops_have_the_bits_that_python_gives():
    from flambeau_kernels.engine.language import interpret

    x = fb.randn(4, 9)
    out, expected = fb.empty(4, 9), np.empty((4, 9), np.float32)

    smooth(4, x, out, 9)
    interpret.run(smooth.kernel.function, 4, {"x": x.numpy(), "out": expected, "n": 9}, {"SHARE": 0.25})

    assert (out.numpy() == expected).all()
