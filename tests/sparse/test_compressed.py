"""Compressed layouts: conversions between all of them, batches and blocks, and operations with dense counterparts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse

import flambeau as fb

MATRIX = fb.tensor([[0.0, 0, 3, 0], [4, 0, 5, 1], [0, 0, 0, 0], [0, 7, 0, 0]])
LAYOUTS = [fb.strided, fb.sparse_coo, fb.sparse_csr, fb.sparse_csc, fb.sparse_bsr, fb.sparse_bsc]
BLOCKED = (fb.sparse_bsr, fb.sparse_bsc)


def converted(x, layout):
    if layout is fb.strided:
        return x.to_dense()
    return x.to_sparse(layout=layout, blocksize=(2, 2) if layout in BLOCKED else None)


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(LAYOUTS, 2)), ids=lambda layout: layout.name)
def test_every_layout_converts_to_every_other(first, second):
    made = converted(converted(MATRIX, first), second)

    assert made.layout is second
    assert made.to_dense().tolist() == MATRIX.tolist()


@pytest.mark.parametrize("layout", LAYOUTS[2:], ids=lambda layout: layout.name)
def test_batches_convert_and_multiply(layout):
    batch = fb.stack((MATRIX, MATRIX.flip(1)))
    x = converted(batch, layout)

    assert x.to_dense().tolist() == batch.tolist()
    assert x.to_sparse().to_dense().tolist() == batch.tolist()
    assert fb.bmm(x, batch).tolist() == fb.bmm(batch, batch).tolist()
    assert x.transpose(1, 2).to_dense().tolist() == batch.mT.tolist()


@pytest.mark.parametrize("layout", LAYOUTS[1:], ids=lambda layout: layout.name)
def test_products_are_those_of_dense_matrices(layout):
    x, right = converted(MATRIX, layout), fb.arange(8.0).reshape(4, 2)

    assert (x @ right).tolist() == (MATRIX @ right).tolist()
    assert (right.t() @ x).tolist() == (right.t() @ MATRIX).tolist()
    assert (x @ right[:, 0]).tolist() == (MATRIX @ right[:, 0]).tolist()
    assert (x @ x).to_dense().tolist() == (MATRIX @ MATRIX).tolist()
    assert fb.nn.functional.linear(right.t(), x).tolist() == fb.nn.functional.linear(right.t(), MATRIX).tolist()


@pytest.mark.parametrize("layout", LAYOUTS[2:], ids=lambda layout: layout.name)
def test_arithmetic_keeps_the_layout(layout):
    x, y = converted(MATRIX, layout), converted(MATRIX.t().contiguous(), layout)
    for made, expected in (
        (x + y, MATRIX + MATRIX.t()), (x - y, MATRIX - MATRIX.t()), (x * y, MATRIX * MATRIX.t()), (x / 4, MATRIX / 4), (-x, -MATRIX),
        (x * MATRIX.t(), MATRIX * MATRIX.t()), (x.sin(), MATRIX.sin()), (x.double(), MATRIX.double()),
    ):  # fmt: skip
        assert made.layout is layout
        assert made.to_dense().tolist() == expected.tolist()
    assert (MATRIX + x).tolist() == (MATRIX * 2).tolist()


def test_values_are_written_in_place():
    x = MATRIX.to_sparse_csr()
    x.mul_(2)
    x.values().add_(1)

    assert x.values().tolist() == [7, 9, 11, 3, 15]
    assert x.zero_().to_dense().sum() == 0


def test_dense_dimensions_go_along():
    x = fb.arange(16.0).reshape(2, 4, 2)
    for layout in LAYOUTS[2:]:
        made = x.to_sparse(layout=layout, blocksize=(2, 2) if layout in BLOCKED else None, dense_dim=1)
        assert (made.sparse_dim(), made.dense_dim()) == (2, 1)
        assert made.to_dense().tolist() == x.tolist()


def test_sampled_products_come_in_every_layout():
    a, b = fb.arange(8.0).reshape(4, 2), fb.arange(8.0).reshape(2, 4)
    for layout in LAYOUTS[1:]:
        x = converted(MATRIX, layout)
        made = fb.sparse.sampled_addmm(x, a, b)
        expected = (MATRIX + (a @ b)) * x.sparse_mask(x).to_dense().sign().abs() if layout not in BLOCKED else None
        if expected is not None:
            assert made.to_dense().tolist() == expected.tolist()


@pytest.mark.parametrize("layout", LAYOUTS[1:], ids=lambda layout: layout.name)
def test_systems_are_solved(layout):
    matrix = MATRIX.double() + 8 * fb.eye(4, dtype=fb.float64)
    right = fb.arange(4.0, dtype=fb.float64)
    x = converted(matrix, layout)

    assert fb.allclose(matrix @ fb.sparse.spsolve(x, right), right)
    assert fb.allclose(matrix.T @ fb.sparse.spsolve(x, right, left=False), right)
    with pytest.raises(RuntimeError, match="singular"):
        fb.sparse.spsolve(converted(MATRIX.double(), layout), right)
    with pytest.raises(NotImplementedError, match="spsolve"):
        fb.sparse.spsolve(x.requires_grad_(), right).sum().backward()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("rows", "columns", "width", "count"), [(50, 40, 7, 900), (300, 500, 64, 9000), (200, 100, 129, 1)])
def test_products_add_up_in_the_order_of_elements(rows, columns, width, count, dtype):
    rng = np.random.default_rng(0)
    at = np.stack((rng.integers(0, rows, count), rng.integers(0, columns, count)))
    x = fb.sparse_coo_tensor(fb.from_numpy(at), fb.from_numpy(rng.standard_normal(count).astype(dtype)), (rows, columns)).coalesce()
    right = rng.standard_normal((columns, width)).astype(dtype)
    expected = scipy.sparse.csr_matrix((x.values().numpy(), tuple(x.indices().numpy())), (rows, columns)) @ right

    assert np.array_equal((x @ fb.from_numpy(right)).numpy(), expected)
    assert np.array_equal((x.to_sparse_csr() @ fb.from_numpy(right)).numpy(), expected)


@pytest.mark.parametrize("make", [
    lambda: fb.sparse_coo_tensor([[0, 5], [0, 0]], [1.0, 2.0], (2, 3)),
    lambda: fb.sparse_coo_tensor([[0, 1], [0, -1]], [1.0, 2.0], (2, 3)),
    lambda: fb.sparse_csr_tensor([0, 1, 2], [0, 9], [1.0, 2.0], (2, 3)),
    lambda: fb.sparse_csr_tensor([0, 1, 5], [0, 1], [1.0, 2.0], (2, 3)),
    lambda: fb.sparse_csr_tensor([0, 3, 2], [0, 1], [1.0, 2.0], (2, 3)),
])  # fmt: skip
def test_indices_that_nobody_checked_are_not_read_beyond(make):
    with pytest.raises((RuntimeError, IndexError)):
        make() @ fb.ones(3, 2)
    with pytest.raises((RuntimeError, IndexError)):
        make().to_dense()


def test_fill_writes_the_values_that_are_there():
    x = fb.tensor([[0.0, 3.0], [4.0, 0.0]]).to_sparse_csr()

    assert x.fill_(2) is x
    assert x.to_dense().tolist() == [[0.0, 2.0], [2.0, 0.0]]
    with pytest.raises(NotImplementedError):
        x.to_sparse_coo().fill_(2)
    with pytest.raises(RuntimeError, match="negative dimension"):
        fb.sparse_coo_tensor([[0], [1]], [1.0], (-1, 3))
