"""Derivatives of and through sparse tensors, and sparse gradients of dense ones."""

from __future__ import annotations

import pytest

import flambeau as fb

check = fb.sparse.as_sparse_gradcheck(fb.autograd.gradcheck)
D = {"dtype": fb.float64}
MATRIX = fb.tensor([[0.0, 0, 3, 0], [4, 0, 5, 1], [0, 0, 0, 0], [0, 7, 0, 0]], **D)
RIGHT = fb.arange(8.0, **D).reshape(4, 2) / 7


def operand(layout, twice=False):
    if twice:
        return fb.sparse_coo_tensor([[0, 1, 0], [2, 0, 2]], [1.0, 4.0, 2.0], (4, 4), **D).requires_grad_()
    return MATRIX.to_sparse(layout=layout, blocksize=(2, 2) if layout in (fb.sparse_bsr, fb.sparse_bsc) else None).requires_grad_()


FUNCTIONS = {
    "to_dense": lambda x: x.to_dense(),
    "scaled": lambda x: (x * 3).to_dense(),
    "squared": lambda x: (x**2).to_dense(),
    "product": lambda x: (x * x).to_dense(),
    "sum": lambda x: (x + x * 2).to_dense(),
    "dense product": lambda x: (x * MATRIX).to_dense(),
    "mm": lambda x: fb.sparse.mm(x, RIGHT),
    "transposed mm": lambda x: fb.sparse.mm(x.t(), RIGHT),
    "sparse mm": lambda x: (x @ x).to_dense(),
    "total": lambda x: x.sum(),
    "sampled": lambda x: fb.sparse.sampled_addmm(x, RIGHT, RIGHT.t()).to_dense(),
    "converted": lambda x: x.to_sparse_csc().to_sparse().to_dense(),
    "row": lambda x: x.to_sparse()[1].to_dense(),
    "picked": lambda x: x.to_sparse().index_select(0, fb.tensor([1, 1, 3])).to_dense(),
    "joined": lambda x: fb.cat((x.to_sparse(), x.to_sparse()), 1).to_dense(),
}  # fmt: skip


@pytest.mark.parametrize("layout", [fb.sparse_coo, fb.sparse_csr, fb.sparse_csc, fb.sparse_bsr], ids=lambda layout: layout.name)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_with_respect_to_values(name, layout):
    assert check(FUNCTIONS[name], (operand(layout),), masked=True)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_derivatives_of_softmax(name):
    for dim in (0, 1):
        assert check(lambda x, dim=dim: getattr(fb.sparse, name)(x, dim).to_dense(), (operand(fb.sparse_coo),), masked=True)


def test_derivatives_of_second_order():
    x, weight = operand(fb.sparse_csr), RIGHT.clone().requires_grad_()
    twice = fb.sparse.as_sparse_gradcheck(fb.autograd.gradgradcheck)

    assert twice(fb.sparse.mm, (x, weight), masked=True)
    assert twice(lambda x: (x * x).to_dense(), (operand(fb.sparse_coo),), masked=True)


def test_the_gradient_of_values_given_to_a_constructor():
    values = fb.tensor([1.0, 4.0, 2.0], **D).requires_grad_()
    x = fb.sparse_coo_tensor([[0, 1, 0], [2, 0, 2]], values, (4, 4))
    (x.to_dense() * fb.arange(16.0, **D).reshape(4, 4)).sum().backward()

    assert values.grad.tolist() == [2, 4, 2]


def test_the_gradient_is_dense_where_it_is_asked_not_to_be_masked():
    x = operand(fb.sparse_coo)
    x.to_dense(masked_grad=False).sum().backward()

    assert x.grad.layout is fb.strided
    assert x.grad.tolist() == fb.ones(4, 4).tolist()


def test_gradients_of_several_uses_are_added_up():
    x = operand(fb.sparse_coo, twice=True)
    (x.to_dense().sum() + fb.sparse.mm(x, RIGHT).sum()).backward()
    x.to_dense().sum().backward()
    expected = 2 + RIGHT.sum(1)

    assert x.grad.layout is fb.sparse_coo
    assert x.grad.coalesce().to_dense()[0, 2] == expected[2]


def test_operations_in_place_are_recorded():
    x = operand(fb.sparse_coo)
    y = x * 1
    y.mul_(2)
    y.add_(x)
    y.to_dense().sum().backward()

    assert set(x.grad.coalesce().values().tolist()) == {3.0}
    with pytest.raises(RuntimeError, match="leaf Variable"):
        x.mul_(2)


# -- sparse gradients of dense tensors -------------------------------------------------------------------------------------


def table(sparse, **options):
    fb.manual_seed(3)
    return fb.nn.Embedding(6, 3, sparse=sparse, **options)


@pytest.mark.parametrize("options", [{}, {"padding_idx": 1}, {"scale_grad_by_freq": True}, {"max_norm": 1.0}])
def test_the_gradient_of_a_sparse_embedding_is_that_of_a_dense_one(options):
    at = fb.tensor([[0, 1, 5], [3, 0, 0]])
    found = []
    for sparse in (True, False):
        e = table(sparse, **options)
        (e(at) * fb.arange(18.0).reshape(2, 3, 3)).sum().backward()
        found.append(e.weight.grad)

    assert found[0].layout is fb.sparse_coo
    assert (found[0].sparse_dim(), found[0].dense_dim()) == (1, 1)
    assert fb.allclose(found[0].to_dense(), found[1])


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_the_gradient_of_a_sparse_bag_is_that_of_a_dense_one(mode):
    found = []
    for sparse in (True, False):
        fb.manual_seed(0)
        bag = fb.nn.EmbeddingBag(6, 3, mode=mode, sparse=sparse)
        made = bag(fb.tensor([0, 1, 5, 3, 0]), fb.tensor([0, 2, 2]))
        (made * fb.arange(9.0).reshape(3, 3)).sum().backward()
        found.append((made.detach(), bag.weight.grad))

    assert found[0][1].layout is fb.sparse_coo
    assert fb.allclose(found[0][0], found[1][0])
    assert fb.allclose(found[0][1].to_dense(), found[1][1])


@pytest.mark.parametrize("dim", [0, 1])
def test_the_gradient_of_gather_may_be_sparse(dim):
    at = fb.tensor([[0, 1], [1, 1]])
    found = []
    for sparse in (True, False):
        x = fb.arange(6.0).reshape(2, 3).requires_grad_()
        (fb.gather(x, dim, at, sparse_grad=sparse) * fb.tensor([[1.0, 2], [3, 4]])).sum().backward()
        found.append(x.grad)

    assert found[0].layout is fb.sparse_coo
    assert found[0].to_dense().tolist() == found[1].tolist()


def test_the_sparse_gradient_of_a_scalar_that_was_gathered_has_one_element():
    x = fb.tensor(2.0, requires_grad=True)
    fb.gather(x, 0, fb.tensor(0), sparse_grad=True).backward()

    assert x.grad.layout is fb.sparse_coo
    assert tuple(x.grad._indices().shape) == (0, 1)
    assert x.grad._values().tolist() == [1.0]


def test_sparse_and_dense_gradients_of_one_table_are_added_up():
    e = table(True)
    (e(fb.tensor([0, 1])).sum() + e.weight.sum()).backward()

    assert e.weight.grad.layout is fb.strided
    assert e.weight.grad[:3].tolist() == [[2] * 3, [2] * 3, [1] * 3]


STEPS = {
    "SGD": (fb.optim.SGD, {"lr": 0.1}),
    "ascending SGD": (fb.optim.SGD, {"lr": 0.1, "maximize": True}),
    "Adagrad": (fb.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.1}),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_with_sparse_gradients_are_those_with_dense_ones(name):
    make, options = STEPS[name]
    found = []
    for sparse in (True, False):
        e = table(sparse)
        optimizer = make(e.parameters(), **options)
        for i in range(3):
            optimizer.zero_grad()
            e(fb.tensor([i, 0, i])).square().sum().backward()
            optimizer.step()
        found.append(e.weight.detach())

    assert fb.allclose(*found)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize(
    ("name", "options"),
    [("SparseAdam", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9}), ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
     ("SGD", {"lr": 0.1, "momentum": 0.8, "dampening": 0.2, "maximize": True}), ("Adagrad", {"lr": 0.2, "eps": 1e-3})],
)  # fmt: skip
def test_steps_with_sparse_gradients_are_pytorchs(name, options, oracle):
    found = []
    for lib in (fb, oracle):
        e = lib.nn.Embedding(6, 3, sparse=True)
        with lib.no_grad():
            e.weight.copy_(lib.arange(18.0).reshape(6, 3) / 9)
        optimizer = getattr(lib.optim, name)(e.parameters(), **options)
        for i in range(4):
            optimizer.zero_grad()
            e(lib.tensor([i, 0, i, 5])).square().sum().backward()
            optimizer.step()
        found.append(e.weight.detach())

    assert fb.allclose(found[0], fb.from_numpy(found[1].numpy()), atol=1e-6)


def test_sgd_steps_a_sparse_parameter():
    p = fb.nn.Parameter(fb.eye(3).to_sparse())
    fb.sparse.mm(p, fb.ones(3, 1)).sum().backward()
    fb.optim.SGD([p], lr=0.5).step()

    assert p.detach().to_dense().tolist() == (fb.eye(3) / 2).tolist()
    with pytest.raises(NotImplementedError, match="sparse_coo"):
        fb.optim.Adagrad([p], lr=0.5)


def test_optimizers_that_take_no_sparse_gradients_say_which_does():
    e = table(True)
    e(fb.tensor([0])).sum().backward()
    with pytest.raises(RuntimeError, match=r"Adam does not support sparse gradients.*SparseAdam"):
        fb.optim.Adam(e.parameters()).step()
    with pytest.raises(RuntimeError, match="RMSprop does not support sparse gradients"):
        fb.optim.RMSprop(e.parameters()).step()
    with pytest.raises(NotImplementedError, match="norm"):
        fb.nn.utils.clip_grad_norm_(e.parameters(), 1.0)


def test_zero_grad_clears_a_sparse_gradient():
    e = table(True)
    e(fb.tensor([0, 1])).sum().backward()
    e.zero_grad(set_to_none=False)

    assert e.weight.grad._nnz() == 0
    assert e.weight.grad.shape == (6, 3)


@pytest.mark.parametrize(
    ("f", "of_dense"),
    [
        (lambda s: s, lambda d: d),
        (lambda s: s * 2 + s, lambda d: d * 3),
        (lambda s: s + s.clone(), lambda d: d * 2),
        (lambda s: s.t() + s.t(), lambda d: d * 2),
        (lambda s: s.coalesce() - 3 * s, lambda d: d * -2),
        (lambda s: s * s, lambda d: d * d),
    ],
)
def test_values_of_one_place_get_its_gradient_however_often_their_tensor_is_used(f, of_dense):
    indices = fb.tensor([[1, 0, 0, 1], [0, 1, 1, 2]])
    values = fb.tensor([5.0, 3.0, 4.0, 2.0], requires_grad=True)
    again = values.detach().clone().requires_grad_()
    dense = fb.zeros(2, 3).index_put((indices[0], indices[1]), again, accumulate=True)

    f(fb.sparse_coo_tensor(indices, values, (2, 3))).to_dense().pow(2).sum().backward()
    of_dense(dense).pow(2).sum().backward()

    assert values.grad.tolist() == again.grad.tolist()


def test_the_gradient_of_a_sparse_leaf_has_each_place_once():
    s = fb.sparse_coo_tensor([[1, 0, 0], [0, 1, 1]], [5.0, 3.0, 4.0], (2, 3), requires_grad=True)

    s.to_dense().pow(2).sum().backward()

    assert s.grad.to_dense().tolist() == [[0.0, 14.0, 0.0], [10.0, 0.0, 0.0]]
