"""Values of the indexed ops (select, rows, mask, put), worked out by hand or by numpy."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb
from flambeau.ops._spec import OPS

X = fb.arange(12.0).reshape(3, 4)
AT = fb.tensor([[2, 0, 1, 2]])
ROWS = fb.tensor([2, 0, 2])


def at(*values):
    return fb.tensor(values)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (lambda: X.gather(0, AT), [[8, 1, 6, 11]]),
        (lambda: X.gather(1, fb.tensor([[3, 3], [0, 1]])), [[3, 3], [4, 5]]),
        (lambda: fb.zeros(3, 4).scatter(0, AT, fb.ones(1, 4)), [[0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 1]]),
        (lambda: fb.zeros(2, 2).scatter(1, fb.tensor([[1], [0]]), 7.0), [[0, 7], [7, 0]]),
        (lambda: fb.ones(3).scatter(0, at(0, 0), 3.0, reduce="multiply"), [9, 1, 1]),
        (lambda: fb.ones(3).scatter_add(0, at(0, 2, 0), at(1.0, 2.0, 4.0)), [6, 1, 3]),
        (lambda: fb.ones(3).scatter_reduce(0, at(0, 0), at(3.0, 5.0), "mean"), [3, 1, 1]),
        (lambda: fb.ones(3).scatter_reduce(0, at(0, 0), at(3.0, 5.0), "prod", include_self=False), [15, 1, 1]),
        (lambda: fb.ones(3).scatter_reduce(0, at(0, 0), at(-3.0, 5.0), "amax"), [5, 1, 1]),
        (lambda: fb.ones(3).scatter_reduce(0, at(0, 0), at(-3.0, 5.0), "amin"), [-3, 1, 1]),
        (lambda: fb.take_along_dim(X, X.argmax(1, keepdim=True), 1), [[3], [7], [11]]),
        (lambda: X.index_select(0, at(2, 0))[:, 0], [8, 0]),
        (lambda: fb.zeros(3, 1).index_add(0, ROWS, fb.ones(3, 1), alpha=2), [[2], [0], [4]]),
        (lambda: fb.zeros(3, 1).index_copy(0, ROWS, at(1.0, 2.0, 3.0).view(3, 1)), [[2], [0], [3]]),
        (lambda: fb.zeros(3, 2).index_fill(0, at(-1), 5), [[0, 0], [0, 0], [5, 5]]),
        (lambda: fb.full((3,), 2.0).index_reduce(0, ROWS, at(1.0, 3.0, 5.0), "mean"), [2.5, 2, 8 / 3]),
        (lambda: X.take(at(-1, 5)), [11, 5]),
        (lambda: fb.zeros(2, 2).put(at(3, 0, 3), at(1.0, 2.0, 4.0), accumulate=True), [[2, 0], [0, 5]]),
        (lambda: X[0].masked_fill(X[0] > 1, -1), [0, 1, -1, -1]),
        (lambda: X.masked_select(X % 5 == 0), [0, 5, 10]),
        (lambda: fb.zeros(2, 2).masked_scatter(fb.tensor([[True, False], [True, True]]), X), [[0, 0], [1, 2]]),
        (lambda: fb.tensor([[0, 3], [4, 0]]).nonzero(), [[0, 1], [1, 0]]),
        (lambda: fb.stack(fb.tensor([[0, 3], [4, 0]]).nonzero(as_tuple=True)), [[0, 1], [1, 0]]),
        (lambda: fb.argwhere(at(0, 2, 3)), [[1], [2]]),
        (lambda: fb.nonzero_static(at(0, 2), size=2), [[1], [-1]]),
        (lambda: fb.zeros(2, 2).select_scatter(fb.ones(2), 1, 0), [[1, 0], [1, 0]]),
        (lambda: fb.zeros(4).slice_scatter(fb.ones(2), 0, 1, None, 2), [0, 1, 0, 1]),
        (lambda: fb.zeros(2, 2).diagonal_scatter(at(1.0, 2.0)), [[1, 0], [0, 2]]),
        (lambda: fb.zeros(2, 2).as_strided_scatter(at(1.0, 2.0), (2,), (2,), 1), [[0, 1], [0, 2]]),
        (lambda: fb.stack(fb.unravel_index(at(5, 11), (3, 4))), [[1, 2], [1, 3]]),
    ],
)
def test_values(found, expected):
    np.testing.assert_allclose(found().numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("dim", [1, -1, 0])
def test_large_gathers_and_their_gradients(dim):
    x = fb.randn(50, 300).double().requires_grad_()
    at = fb.randint(0, 50, (50, 300))
    seed = fb.randn(50, 300).double()
    made = x.gather(dim, at)
    made.backward(seed)
    expected = np.zeros((50, 300))
    for i, j in np.ndindex(50, 300):
        k = at.numpy()[i, j]
        expected[(k, j) if dim == 0 else (i, k)] += seed.numpy()[i, j]

    np.testing.assert_array_equal(made.detach().numpy(), np.take_along_axis(x.detach().numpy(), at.numpy(), dim))
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("wrong", [-1, 300])
def test_large_gathers_and_selections_out_of_range(wrong):
    x, at = fb.randn(50, 300), fb.randint(0, 50, (50, 300))
    at[30, 7] = wrong

    with pytest.raises(RuntimeError, match=f"index {wrong} is out of bounds for dimension 1 with size 300"):
        x.gather(1, at)
    with pytest.raises(IndexError, match=f"index {wrong}"):
        x.T.index_select(0, at[30])


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: X.gather(0, fb.tensor([[3]])), RuntimeError, "index 3 is out of bounds for dimension 0 with size 3"),
        (lambda: X.gather(0, fb.tensor([[0.5]])), RuntimeError, "float32"),
        (lambda: X.index_select(0, at(-1)), IndexError, "index -1"),
        (lambda: X.scatter(0, AT, fb.ones(1, 3)), RuntimeError, "no larger size than src"),
        (lambda: X.scatter_reduce(0, AT, X, "median"), RuntimeError, "median"),
        (lambda: X.masked_fill(X, 1), RuntimeError, "boolean masks"),
        (lambda: X.masked_scatter(X > 3, fb.ones(2)), RuntimeError, "2 < 8"),
        (lambda: X.take(at(12)), IndexError, "index 12"),
    ],
)
def test_mistakes_are_explained(call, error, said):
    with pytest.raises(error, match=said):
        call()


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_gradients_of_scatter_reduce_agree_with_finite_differences(reduce, include_self):
    start = np.array([1.5, 0.0, -2.0, 3.0])
    source = np.array([0.5, 0.0, 4.0, -1.25])
    where = fb.tensor([0, 1, 0, 3])
    weights = fb.tensor([1.0, 2, 3, 4])

    def total(a, b):
        made = fb.tensor(a).scatter_reduce(0, where, fb.tensor(b), reduce, include_self=include_self)
        return (made * weights).sum().item()

    x, s = fb.tensor(start, requires_grad=True), fb.tensor(source, requires_grad=True)
    (x.scatter_reduce(0, where, s, reduce, include_self=include_self) * weights).sum().backward()
    step = 1e-6 * np.eye(4)

    if reduce not in ("amax", "amin"):  # the zeros tie there
        np.testing.assert_allclose(x.grad.numpy(), [(total(start + h, source) - total(start - h, source)) / 2e-6 for h in step], atol=1e-6)
        np.testing.assert_allclose(s.grad.numpy(), [(total(start, source + h) - total(start, source - h)) / 2e-6 for h in step], atol=1e-6)
    else:
        assert x.grad[2] == 3
        assert s.grad[1] + x.grad[1] == 2


def test_sums_of_halves_are_rounded_once():
    ones = fb.ones(4096, dtype=fb.float16)

    assert fb.zeros(1, dtype=fb.float16).index_add(0, fb.zeros(4096, dtype=fb.int64), ones).item() == 4096


def test_scatter_add_gives_the_same_bits_every_time():
    rng = np.random.default_rng(0)
    where, values = fb.tensor(rng.integers(0, 7, 5000)), fb.tensor(rng.standard_normal(5000).astype(np.float32))

    runs = {tuple(fb.zeros(7).scatter_add(0, where, values).tolist()) for _ in range(3)}

    assert len(runs) == 1


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64, fb.int64, fb.bfloat16], ids=str)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_an_expanded_index_gives_the_bits_of_its_copy(dim, dtype):
    a = fb.randn(6, 5, 4).to(dtype)
    shape = [6, 5, 4]
    shape[dim] = 9
    shown = [1, 1, 1]
    shown[dim] = 9
    index = fb.randint(0, a.shape[dim], (9,)).view(shown).expand(shape)
    src = fb.randn(shape).to(dtype)

    for at in (index, index[:, :, :3], index[:5]):  # of all slices, of a part of each, and of some
        whole = at.clone(memory_format=fb.contiguous_format)
        assert fb.equal(a.gather(dim, at), a.gather(dim, whole))
        assert fb.equal(a.scatter_add(dim, at, src), a.scatter_add(dim, whole, src))
        assert fb.equal(a.clone().scatter_add_(dim, at, src), a.scatter_add(dim, whole, src))
        for reduce in ("sum", "mean", "amax", "prod"):
            expected = a.scatter_reduce(dim, whole, src, reduce, include_self=False)
            assert fb.equal(a.scatter_reduce(dim, at, src, reduce, include_self=False), expected)


def test_an_expanded_index_out_of_range_is_refused():
    index = fb.tensor([0, 7]).view(2, 1).expand(2, 3)

    with pytest.raises(RuntimeError, match="index 7"):
        fb.zeros(3, 3).gather(0, index)
    with pytest.raises(RuntimeError, match="index 7"):
        fb.zeros(3, 3).scatter_add_(0, index, fb.ones(2, 3))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_places_that_broadcast_are_taken_by_a_plan_as_by_operations(dim):
    x = fb.arange(24).view(2, 3, 4)
    op = OPS["take_along_dim"]
    for shape in ((2, 1, 1), (1, 3, 1), (2, 3, 4), (1, 1, 1), (2, 1, 4)):
        at = fb.randint(-2, 2, shape)

        planned, composed = op.answer(x, at, dim), op.run(x, at, dim)

        assert planned is not None
        assert planned.tolist() == composed.tolist()
        assert planned.stride() == composed.stride()
    with pytest.raises((RuntimeError, IndexError)):
        fb.take_along_dim(x, fb.full((1, 1, 1), 9), dim)
    with pytest.raises(RuntimeError):
        fb.take_along_dim(x, fb.zeros(3, 2, 5, dtype=fb.int64), 0)
    y = fb.rand(2, 3, requires_grad=True)
    fb.take_along_dim(y, fb.tensor([[1], [0]]), 1).sum().backward()
    assert y.grad.tolist() == [[0, 1, 0], [1, 0, 0]]


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax"])
@pytest.mark.parametrize("shapes", [((1,), ()), ((), (1,)), ((), ())])
def test_gradients_of_a_source_without_dimensions_are_those_of_one_element(reduce, shapes):
    found = []
    for index_shape, src_shape in (shapes, ((1,), (1,))):
        x, src = fb.tensor([2.0, 3.0, 5.0], requires_grad=True), fb.full(src_shape, 7.0, requires_grad=True)
        x.scatter_reduce(0, fb.ones(index_shape, dtype=fb.int64), src, reduce).pow(2).sum().backward()
        assert src.grad.shape == src_shape
        found.append((x.grad.tolist(), src.grad.item()))

    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["scatter", "scatter_add", "scatter_reduce", "scatter_"])
def test_a_source_without_dimensions_is_one_element(name):
    one, rest = fb.tensor(1.0), ("sum",) if name == "scatter_reduce" else ()

    def call(x, index, src):
        return getattr(x.clone(), name)(0, index, src, *rest)

    assert call(fb.zeros(3), fb.tensor([0]), one).tolist() == [1.0, 0.0, 0.0]
    for x in (fb.zeros(3), fb.tensor(5.0)):
        with pytest.raises(RuntimeError, match=r"Expected index \[2\] to be no larger than self"):
            call(x, fb.tensor([0, 0]), one)


@pytest.mark.parametrize("dtype", [fb.bfloat16, fb.float16, fb.float32, fb.uint8], ids=str)
@pytest.mark.parametrize("value", [3, 0.1, -2.5, 65504.0, 1e5])
def test_a_number_is_stored_as_a_tensor_of_it(value, dtype):
    if not dtype.is_floating_point and value != 3 or dtype is fb.float16 and value == 1e5:
        return
    a, index, whole = fb.zeros(4, 5, dtype=dtype), fb.tensor([[1, 0], [3, 3]]), fb.tensor(value).to(dtype)
    src, mask = whole.expand(2, 2).clone(), fb.eye(4, 5, dtype=fb.bool)

    assert fb.equal(a.scatter(0, index, value), a.scatter(0, index, src))
    assert fb.equal(a.clone().scatter_(0, index, value), a.scatter(0, index, src))
    assert fb.equal(a.index_fill(1, index[0], value), a.index_fill(1, index[0], whole))
    assert fb.equal(a.masked_fill(mask, value), a.masked_fill(mask, whole))


def test_a_number_that_a_half_cannot_hold_is_refused():
    a = fb.zeros(4, 5, dtype=fb.float16)

    for call in (lambda: a.scatter(0, fb.tensor([[1]]), 1e5), lambda: a.index_fill_(0, fb.tensor([1]), 1e5)):
        with pytest.raises(RuntimeError, match="overflow"):
            call()
