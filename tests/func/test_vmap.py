"""vmap: the batch equals a stack of single calls, for rules and for ops without one; dimensions, randomness, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb

F = fb.nn.functional


def batch(*shape, seed=0):
    return fb.tensor(np.random.default_rng(seed).normal(size=shape))


def check(f, *args, in_dims=0):
    """``vmap(f)`` equals f on one example after another."""
    dims = in_dims if isinstance(in_dims, tuple) else (in_dims,) * len(args)
    size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
    rows = [f(*(x if d is None else x.select(d, i) for x, d in zip(args, dims, strict=True))) for i in range(size)]
    found = fb.vmap(f, in_dims=dims)(*args)
    for one, column in zip(*((found,), (rows,)) if isinstance(found, fb.Tensor) else (found, zip(*rows, strict=True)), strict=True):
        expected = np.stack([r.numpy() for r in column])
        assert one.dtype is column[0].dtype
        np.testing.assert_allclose(one.numpy(), expected, rtol=1e-10, atol=1e-12)


ONE = {
    "elementwise": lambda x: x.sin() * 2 + x,
    "sum": lambda x: x.sum(),
    "sum over a dimension": lambda x: x.sum(-1, keepdim=True),
    "mean over several": lambda x: x.mean((0, 1)),
    "prod": lambda x: x.prod(1),
    "any": lambda x: (x > 0).any(0),
    "var": lambda x: x.var(0),
    "amax": lambda x: x.amax(0),
    "max with indices": lambda x: tuple(x.max(1)),
    "argmax of all": lambda x: x.argmax(),
    "sort": lambda x: tuple(x.sort(1)),
    "topk": lambda x: tuple(x.topk(2, 0)),
    "cumsum": lambda x: x.cumsum(1),
    "softmax": lambda x: x.softmax(0),
    "logsumexp": lambda x: x.logsumexp(1),
    "norm": lambda x: x.pow(2).sum().sqrt(),
    "reshape": lambda x: x.reshape(2, -1),
    "view": lambda x: x.view(-1),
    "transpose": lambda x: x.t(),
    "permute": lambda x: x.permute(1, 0),
    "unsqueeze": lambda x: x.unsqueeze(-1).unsqueeze(0).squeeze(),
    "expand": lambda x: x.unsqueeze(0).expand(3, -1, -1),
    "select": lambda x: x[1],
    "slice": lambda x: x[:, 1:],
    "newaxis": lambda x: x[None, ..., 0],
    "negative step of dims": lambda x: x.flip(-1),
    "roll": lambda x: x.roll(1, 0),
    "index": lambda x: x[[1, 0, 1]],
    "index of the second dimension": lambda x: x[:, [2, 0]],
    "index of both": lambda x: x[[0, 1], [2, 0]],
    "split": lambda x: x.split(2, 1),
    "chunk": lambda x: x.chunk(2, 0),
    "unbind": lambda x: x.unbind(1),
    "diagonal": lambda x: x.diagonal(),
    "tril": lambda x: x.tril(),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "cat": lambda x: fb.cat([x, x * 2], 1),
    "stack": lambda x: fb.stack([x, x * 2], 1),
    "where": lambda x: fb.where(x > 0, x, 0.0),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "product": lambda x: x @ x.t(),
    "gather": lambda x: x.gather(1, (x > 0).long()),
    "conversion": lambda x: x.float().to(fb.int64),
    "median": lambda x: x.median(),
    "layer_norm": lambda x: F.layer_norm(x, (3,)),
    "gelu": lambda x: F.gelu(x),
    "pad": lambda x: F.pad(x, (1, 1)),
    "repeat": lambda x: x.repeat(2, 1),
    "masked_fill": lambda x: x.masked_fill(x > 0, -1.0),
    "index_select": lambda x: x.index_select(1, fb.tensor([2, 0])),
    "detach": lambda x: x.detach() * 2,
    "zeros_like": lambda x: fb.zeros_like(x) + x,
}


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_one_operand(name, dim):
    check(ONE[name], batch(2, 3, 4).movedim(-1, dim), in_dims=dim)


TWO = {
    "add": (lambda a, b: a + b, (3,), (2, 3)),
    "matrix product": (lambda a, b: a @ b, (2, 3), (3, 4)),
    "matrix by vector": (lambda a, b: a @ b, (2, 3), (3,)),
    "vector by matrix": (lambda a, b: a @ b, (3,), (3, 2)),
    "dot": (lambda a, b: a @ b, (3,), (3,)),
    "batches of matrices": (lambda a, b: a @ b, (4, 2, 3), (3, 2)),
    "linear": (lambda a, b: F.linear(a, b), (2, 3), (4, 3)),
    "linear of a vector": (lambda a, b: F.linear(a, b, b[:, 0]), (3,), (4, 3)),
    "outer": (lambda a, b: fb.outer(a, b), (3,), (2,)),
    "cat": (lambda a, b: fb.cat([a, b]), (2, 3), (4, 3)),
    "maximum": (lambda a, b: fb.maximum(a, b), (2, 1), (3,)),
    "convolution": (lambda a, b: F.conv1d(a, b), (1, 2, 5), (3, 2, 3)),
    "loss": (lambda a, b: F.mse_loss(a, b), (3,), (3,)),
    "setitem": (lambda a, b: _assigned(a, b), (3, 2), (2,)),
}


def _assigned(a, b):
    made = a.clone()
    made[1] = b
    made[:, 0] += 1.0
    return made


@pytest.mark.parametrize("name", TWO)
@pytest.mark.parametrize("dims", [(0, 0), (0, None), (None, 0), (-1, 0)])
def test_two_operands(name, dims):
    if name == "setitem" and dims[0] is None:
        pytest.skip("a batch cannot be stored in one example")
    f, first, second = TWO[name]
    a, b = (batch(*s, *(() if d is None else (4,)), seed=i) for i, (s, d) in enumerate(((first, dims[0]), (second, dims[1]))))
    a, b = (x if d is None else x.movedim(-1, d) for x, d in zip((a, b), dims, strict=True))

    check(f, a, b, in_dims=dims)


def test_index_by_batched_indices():
    x, at = batch(4, 3, 2), fb.tensor([[0, 2], [1, 1], [2, 0], [0, 0]])

    check(lambda a, i: a[i], x, at), check(lambda a, i: a[i], x[0], at, in_dims=(None, 0)), check(lambda a, i: a[:, i % 2], x, at)


def test_promotion_is_that_of_single_examples():
    scalars, vectors = fb.ones(3, dtype=fb.float64), fb.ones(3, 2, dtype=fb.float32)

    assert fb.vmap(lambda s, v: s * v)(scalars, vectors).dtype is fb.float32


def test_nested_maps_multiply_every_pair():
    a, b = batch(3), batch(4, seed=1)
    found = fb.vmap(lambda x: fb.vmap(lambda y: x * y)(b))(a)

    np.testing.assert_allclose(found.numpy(), np.outer(a.numpy(), b.numpy()))


def test_out_dims_and_nested_arguments():
    x, y = batch(3, 2), batch(5, 3, seed=1)
    first, second = fb.vmap(lambda d, s: (d["x"] * s, d["y"] + s), in_dims=({"x": 0, "y": 1}, None), out_dims=(1, 0))({"x": x, "y": y}, 2.0)

    assert (first.shape, second.shape) == ((2, 3), (3, 5))


def test_chunks_give_the_whole():
    x = batch(7, 3)
    np.testing.assert_array_equal(fb.vmap(fb.sin, chunk_size=3)(x).numpy(), x.sin().numpy())


def test_history_passes_through():
    x = batch(3, 2).requires_grad_()
    fb.vmap(lambda row: (row * row).sum())(x).sum().backward()

    np.testing.assert_allclose(x.grad.numpy(), 2 * x.detach().numpy())


def test_in_place_operations_write_to_the_batch():
    def f(row):
        made = row.clone()
        made.add_(1).mul_(row)
        made[0] = 7.0
        return made

    check(f, batch(3, 2))


def test_rows_of_an_identity_as_gradients():
    x = batch(3).requires_grad_()
    (rows,) = fb.autograd.grad(x**2, x, fb.eye(3, dtype=fb.float64), is_grads_batched=True)

    np.testing.assert_allclose(rows.numpy(), np.diag(2 * x.detach().numpy()))


@pytest.mark.parametrize("randomness", ["different", "same"])
def test_random_numbers_of_examples(randomness):
    found = fb.vmap(lambda x: x + fb.rand(2, dtype=fb.float64), randomness=randomness)(fb.zeros(3, 2, dtype=fb.float64))
    dropped = fb.vmap(lambda x: F.dropout(x), randomness=randomness)(fb.ones(4, 64))

    assert bool((found[0] == found[1]).all()) is (randomness == "same")
    assert bool((dropped[0] == dropped[1]).all()) is (randomness == "same")
    assert set(dropped.unique().tolist()) <= {0.0, 2.0}


def test_numbers_that_differ_are_those_of_one_draw_of_the_whole_batch():
    def drawn(f, size=3, **how):
        fb.manual_seed(0)
        return fb.vmap(f, randomness="different", **how)(fb.zeros(size, 20))

    fb.manual_seed(0)
    batch = fb.randn(3, 20)                           # normal numbers come in blocks of sixteen
    fb.manual_seed(0)
    nested = fb.randn(3, 4, 5)

    for f in (lambda x: fb.randn(20), fb.randn_like, lambda x: x.clone().normal_(), lambda x: fb.normal(x, fb.ones_like(x))):
        assert drawn(f).tolist() == batch.tolist()
    assert drawn(lambda x: fb.vmap(lambda y: fb.randn(5), randomness="different")(x[:4])).tolist() == nested.tolist()


def test_examples_may_have_chances_and_deviations_of_their_own():
    chances = fb.tensor([[0.0, 1.0, 0.0], [1.0, 1.0, 0.0]])

    coins = fb.vmap(lambda p: fb.zeros_like(p).bernoulli_(p), randomness="different")(chances)

    assert coins.tolist() == chances.tolist()
    with pytest.raises(RuntimeError, match="std >= 0"):
        fb.vmap(lambda x: fb.normal(x, x), randomness="different")(fb.tensor([[1.0], [-1.0]]))


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda x: x.item(), "item"),
        (lambda x: x if x > 0 else -x, "control flow"),
        (lambda x: fb.zeros(()).add_(x), "in.?place"),
        (lambda x: x + fb.rand(()), "random"),
        (lambda x: F.dropout(x), "random"),
        (lambda x: x.nonzero(), "dynamic shape"),
        (lambda x: x.numpy(), "values"),
    ],
)
def test_what_a_batch_cannot_do(f, words):
    with pytest.raises(RuntimeError, match=words):
        fb.vmap(f)(fb.ones(3))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: fb.vmap(fb.sin)(), ValueError),
        (lambda: fb.vmap(fb.sin, in_dims=None)(fb.ones(2)), ValueError),
        (lambda: fb.vmap(fb.sin, in_dims=1)(fb.ones(2)), ValueError),
        (lambda: fb.vmap(fb.add)(fb.ones(2), 1.0), ValueError),
        (lambda: fb.vmap(fb.add)(fb.ones(2), fb.ones(3)), ValueError),
        (lambda: fb.vmap(fb.add, in_dims=(0,))(fb.ones(2), fb.ones(2)), ValueError),
        (lambda: fb.vmap(lambda x: 3)(fb.ones(2)), ValueError),
        (lambda: fb.vmap(lambda x: x, out_dims=None)(fb.ones(2)), ValueError),
        (lambda: fb.vmap(lambda x: x, out_dims=(0, 0))(fb.ones(2)), ValueError),
        (lambda: fb.vmap(fb.sin, randomness="some"), RuntimeError),
        (lambda: fb.vmap(fb.sin, chunk_size=0), ValueError),
    ],
)
def test_arguments_that_do_not_fit(call, error):
    with pytest.raises(error):
        call()


def test_an_error_inside_leaves_nothing_behind():
    with pytest.raises(ZeroDivisionError):
        fb.vmap(lambda x: 1 / 0)(fb.ones(2))

    assert not fb._state.local.calls.interpreters


def test_examples_draw_permutations_of_their_own_and_tensors_like_one_that_is_no_batch():
    xs, one = fb.arange(24.0).view(4, 6), fb.zeros(6)

    different = fb.vmap(lambda x: x * 0 + fb.randperm(6), randomness="different")(xs)
    same = fb.vmap(lambda x: x * 0 + fb.randperm(6), randomness="same")(xs)
    like = fb.vmap(lambda x: x * 0 + fb.rand_like(one), randomness="different")(xs)

    assert all(row.sort()[0].tolist() == list(range(6)) for row in different)
    assert len({tuple(row.tolist()) for row in different}) > 1
    assert (same == same[0]).all()
    assert len({tuple(row.tolist()) for row in like}) == 4
    for draw in (lambda: fb.randperm(6), lambda: fb.rand_like(one)):
        with pytest.raises(RuntimeError, match="randomness error mode"):
            fb.vmap(lambda x, draw=draw: x + draw())(xs)


def test_chunks_draw_the_same_where_examples_do():
    drawn = fb.vmap(lambda x: x * 0 + fb.rand(2), randomness="same", chunk_size=2)(fb.ones(5, 2))

    assert (drawn == drawn[0]).all()
