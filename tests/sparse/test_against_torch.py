"""Sparse tensors beside PyTorch's: the same calls, layouts, values, gradients and printed texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as fb

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore:Sparse:UserWarning"),
              pytest.mark.filterwarnings("ignore:.*beta state.*:UserWarning")]  # fmt: skip

DENSE = np.array([[0.0, 0, 3, 0], [4, 0, 5, 0], [0, 0, 0, 0]], np.float32)
OTHER = np.array([[0.0, 2, 7, 0], [0, 0, -1, 0], [6, 0, 0, 0]], np.float32)
BATCH = np.array([[[0.0, 1], [2, 0], [0, 0], [3, 4]], [[5, 0], [0, 6], [7, 8], [0, 0]]], np.float32)


class Operands:
    """The operands of the cases in one of both libraries."""

    def __init__(self, lib: Any) -> None:
        self.lib = lib
        self.dense = lib.tensor(DENSE)
        self.other = lib.tensor(OTHER)
        self.coo = self.dense.to_sparse()
        self.second = self.other.to_sparse()
        self.twice = lib.sparse_coo_tensor([[0, 1, 1, 0], [2, 0, 2, 2]], [1.0, 4.0, 5.0, 2.0], (3, 4))
        self.hybrid = lib.tensor(BATCH).to_sparse(2)
        self.csr, self.csc = self.dense.to_sparse_csr(), self.dense.to_sparse_csc()
        self.square = lib.tensor(np.kron(np.eye(2), np.ones((2, 2))).astype(np.float32))
        self.bsr, self.bsc = self.square.to_sparse_bsr((2, 2)), self.square.to_sparse_bsc((2, 2))
        self.batched = lib.tensor(BATCH).to_sparse_csr()
        self.right = lib.tensor(np.arange(8, dtype=np.float32).reshape(4, 2) - 3)
        self.vector = lib.tensor(np.arange(4, dtype=np.float32))


CASES = {
    "coordinates": lambda o: o.coo,
    "uncoalesced": lambda o: o.twice,
    "hybrid": lambda o: o.hybrid,
    "csr": lambda o: o.csr,
    "csc": lambda o: o.csc,
    "bsr": lambda o: o.bsr,
    "bsc": lambda o: o.bsc,
    "batched csr": lambda o: o.batched,
    "no values": lambda o: o.lib.sparse_coo_tensor((2, 3)),
    "other dtype": lambda o: o.lib.sparse_coo_tensor([[0, 1]], [1, 2], (3,), dtype=o.lib.float64),
    "smallest size": lambda o: o.lib.sparse_coo_tensor([[0, 4], [1, 2]], [1.0, 2.0]),
    "smallest csr": lambda o: o.lib.sparse_csr_tensor([0, 2, 3], [0, 4, 1], [1.0, 2.0, 3.0]),
    "smallest bsc": lambda o: o.lib.sparse_bsc_tensor([0, 1, 2], [0, 1], [[[3.0, 4]], [[7.0, 8]]]),
    "compressed": lambda o: o.lib.sparse_compressed_tensor([0, 1, 2], [0, 1], [3.0, 4.0], layout=o.lib.sparse_csc),
    "bool": lambda o: (o.dense > 3).to_sparse(),
    "complex": lambda o: (o.dense * 1j).to_sparse(),
    "many values": lambda o: o.lib.eye(300).to_sparse_csr(),
    "coalesce": lambda o: o.twice.coalesce(),
    "indices": lambda o: o.coo.indices(),
    "values": lambda o: o.csr.values(),
    "crow": lambda o: o.bsr.crow_indices(),
    "rows": lambda o: o.csc.row_indices(),
    "counts": lambda o: o.lib.tensor([o.coo._nnz(), o.twice._nnz(), o.csr._nnz(), o.bsr._nnz(), o.batched._nnz(), o.hybrid.sparse_dim(),
                                      o.hybrid.dense_dim(), o.batched.dense_dim(), o.dense.sparse_dim(), o.dense.dense_dim()]),
    "csr to csc": lambda o: o.csr.to_sparse_csc(),
    "csc to bsr": lambda o: o.square.to_sparse_csc().to_sparse_bsr((2, 2)),
    "coo to bsc": lambda o: o.square.to_sparse().to_sparse_bsc((2, 2)),
    "csr to coo": lambda o: o.csr.to_sparse(),
    "csc to coo": lambda o: o.csc.to_sparse(),
    "bsr to coo": lambda o: o.bsr.to_sparse(),
    "batched to coo": lambda o: o.batched.to_sparse(),
    "dense dim": lambda o: o.lib.tensor(BATCH).to_sparse_csr(dense_dim=1),
    "to dense": lambda o: o.twice.to_dense(),
    "batched to dense": lambda o: o.batched.to_dense(),
    "hybrid to dense": lambda o: o.hybrid.to_dense(),
    "mask": lambda o: o.other.sparse_mask(o.coo),
    "mask by csr": lambda o: o.other.sparse_mask(o.csr),
    "mask of sparse": lambda o: o.second.sparse_mask(o.coo),
    "double": lambda o: o.csr.double(),
    "clone": lambda o: o.twice.clone(),
    "detach": lambda o: o.coo.detach(),
    "sum of sparse": lambda o: o.coo + o.second,
    "sum with alpha": lambda o: o.lib.add(o.coo, o.second, alpha=-2),
    "difference": lambda o: o.coo - o.second,
    "dense and sparse": lambda o: o.other + o.twice,
    "dense and csr": lambda o: o.other + o.csr,
    "dense less sparse": lambda o: o.other - o.coo,
    "csr and csr": lambda o: o.csr + o.other.to_sparse_csr(),
    "scaled": lambda o: o.twice * 2,
    "scaled csr": lambda o: 3 * o.csr,
    "divided": lambda o: o.coo / 2,
    "floor divided": lambda o: o.twice // 2,
    "product of sparse": lambda o: o.coo * o.second,
    "product with dense": lambda o: o.coo * o.other,
    "product of csr": lambda o: o.csr * o.other.to_sparse_csr(),
    "csr with dense": lambda o: o.csr * o.other,
    "negated": lambda o: -o.twice,
    "squared": lambda o: o.twice**2,
    "root": lambda o: o.twice.sqrt(),
    "relu": lambda o: o.second.relu(),
    "sum": lambda o: o.coo.sum(),
    "sum of csr": lambda o: o.csr.sum(),
    "sum over rows": lambda o: o.lib.sparse.sum(o.coo, 0),
    "sum over columns": lambda o: o.lib.sparse.sum(o.twice, [1]),
    "sum over a dense dimension": lambda o: o.lib.sparse.sum(o.hybrid, 2),
    "sum over sparse dimensions": lambda o: o.lib.sparse.sum(o.hybrid, (0, 1)),
    "csr sum": lambda o: o.csr.sum(1, keepdim=True),
    "norm": lambda o: o.twice.norm(),
    "any": lambda o: o.coo.any(),
    "transposed": lambda o: o.coo.t(),
    "turned csr": lambda o: o.csr.t(),
    "turned bsr": lambda o: o.bsr.transpose(0, 1),
    "permuted": lambda o: o.coo.permute(1, 0),
    "row": lambda o: o.coo[1],
    "column": lambda o: o.coo[:, 2],
    "element": lambda o: o.twice[0, 2],
    "row of csr": lambda o: o.csr[1],
    "selected": lambda o: o.hybrid.select(0, 1),
    "selected dense": lambda o: o.hybrid.select(2, 0),
    "index select": lambda o: o.coo.index_select(0, o.lib.tensor([1, 0, 1])),
    "narrow copy": lambda o: o.coo.narrow_copy(1, 1, 2),
    "unsqueezed": lambda o: o.coo.unsqueeze(1),
    "joined": lambda o: o.lib.cat((o.coo, o.second)),
    "joined columns": lambda o: o.lib.cat((o.coo, o.second), 1),
    "joined dense": lambda o: o.lib.cat((o.hybrid, o.hybrid), 2),
    "stacked": lambda o: o.lib.stack((o.coo, o.second), 1),
    "zeros like": lambda o: o.lib.zeros_like(o.coo),
    "zeros like csr": lambda o: o.lib.zeros_like(o.csr),
    "zeros like bsr": lambda o: o.lib.zeros_like(o.bsr, dtype=o.lib.float64),
    "zeros like a batch": lambda o: o.lib.zeros_like(o.batched),
    "ones like csr": lambda o: o.lib.ones_like(o.csr),
    "ones like bsc": lambda o: o.lib.ones_like(o.bsc, dtype=o.lib.int64),
    "ones like a batch": lambda o: o.lib.ones_like(o.batched),
    "full like csc": lambda o: o.lib.full_like(o.csc, 2.5),
    "full like csr of zeros": lambda o: o.lib.full_like(o.csr, 0),
    "full like half": lambda o: o.lib.full_like(o.csr.bfloat16(), 1.7).float(),
    "full like another dtype": lambda o: o.lib.full_like(o.csr, 2, dtype=o.lib.bool),
    "filled after empty like": lambda o: o.lib.empty_like(o.csr).fill_(3),
    "zeros": lambda o: o.lib.zeros(2, 3, layout=o.lib.sparse_coo),
    "empty csr": lambda o: o.lib.empty(2, 3, layout=o.lib.sparse_csr),
    "mm": lambda o: o.lib.mm(o.twice, o.right),
    "at": lambda o: o.coo @ o.right,
    "dense at sparse": lambda o: o.right.t() @ o.coo.t(),
    "csr at": lambda o: o.csr @ o.right,
    "csc at": lambda o: o.csc @ o.right,
    "bsr at": lambda o: o.bsr @ o.right,
    "dense at csr": lambda o: o.right.t() @ o.square.to_sparse_csr(),
    "sparse at sparse": lambda o: o.coo @ o.second.t(),
    "csr at csr": lambda o: o.csr @ o.other.t().to_sparse_csr(),
    "mv": lambda o: o.csr @ o.vector,
    "bmm": lambda o: o.lib.bmm(o.lib.stack((o.coo, o.second)), o.lib.stack((o.right, -o.right))),
    "addmm": lambda o: o.lib.addmm(o.lib.ones(3, 2), o.coo, o.right, beta=2, alpha=3),
    "sparse mm": lambda o: o.lib.sparse.mm(o.csr, o.right),
    "mean of products": lambda o: o.lib.sparse.mm(o.csr, o.right, "mean"),
    "largest products": lambda o: o.lib.sparse.mm(o.csr, o.right, "amax"),
    "smallest products": lambda o: o.lib.sparse.mm(o.csr, o.right, "amin"),
    "sparse addmm": lambda o: o.lib.sparse.addmm(o.lib.ones(3, 2), o.coo, o.right, beta=2, alpha=3),
    "smm": lambda o: o.lib.smm(o.coo, o.right),
    "hspmm": lambda o: o.lib.hspmm(o.coo, o.right),
    "sspaddmm": lambda o: o.lib.sspaddmm(o.lib.eye(3, 2).to_sparse(), o.coo, o.right, beta=2, alpha=3),
    "sampled": lambda o: o.lib.sparse.sampled_addmm(o.csr, o.other @ o.right, o.right.t(), beta=0.5, alpha=2.0),
    "softmax": lambda o: o.lib.sparse.softmax(o.twice, 1),
    "softmax over rows": lambda o: o.lib.sparse.softmax(o.coo, 0, dtype=o.lib.float64),
    "softmax of hybrid": lambda o: o.lib.sparse.softmax(o.hybrid, 2),
    "log softmax": lambda o: o.lib.sparse.log_softmax(o.second, 1),
    "log softmax over a sparse dimension": lambda o: o.lib.sparse.log_softmax(o.hybrid, 0),
    "diagonals": lambda o: o.lib.sparse.spdiags(o.dense + 1, o.lib.tensor([0, -1, 2]), (5, 5)),
    "csr diagonals": lambda o: o.lib.sparse.spdiags(o.dense + 1, o.lib.tensor([0, -1, 2]), (3, 4), o.lib.sparse_csr),
    "dense in place": lambda o: o.other.clone().add_(o.twice, alpha=2),
    "sparse in place": lambda o: o.coo.clone().add_(o.second),
    "scaled in place": lambda o: o.coo.clone().mul_(3),
    "cleared": lambda o: o.coo.clone().zero_(),
    "copied": lambda o: o.coo.clone().copy_(o.second),
    "divided in place": lambda o: o.coo.clone().div_(4),
    "floor divided in place": lambda o: o.coo.clone().floor_divide_(2),
    "added into": lambda o: o.lib.add(o.coo, o.second, out=o.lib.zeros(3, 4).to_sparse()),
    "multiplied into": lambda o: o.lib.mm(o.coo, o.right, out=o.lib.empty(3, 2)),
    "sum of integers": lambda o: o.lib.sparse.sum(o.coo.int(), 0),
    "total of integers": lambda o: o.lib.sparse.sum(o.coo.int()),
    "product of integers and a number": lambda o: o.coo.int() * 2.5,
    "sparse rows of a product": lambda o: o.lib.hsmm(o.coo, o.right),
    "no elements": lambda o: o.lib.zeros(0, 3).to_sparse(),
    "no values by columns": lambda o: o.lib.zeros(2, 3).to_sparse_csc(),
    "a number": lambda o: o.lib.tensor(3.0).to_sparse(),
    "product without values": lambda o: o.lib.sparse_coo_tensor((3, 4)) @ o.right,
    "singular values": lambda o: o.lib.svd_lowrank(o.coo, 2)[1],
    "principal components": lambda o: o.lib.pca_lowrank(o.coo, 2)[1],
    "eigenvalue": lambda o: o.lib.lobpcg((o.lib.eye(9) * 3).to_sparse(), k=1)[0],
    "turned in place": lambda o: o.coo.clone().t_(),
    "grown": lambda o: o.coo.clone().sparse_resize_((5, 6), 2, 0),
    "cleared and resized": lambda o: o.coo.clone().sparse_resize_and_clear_((2, 3, 4), 1, 2),
    "resized as": lambda o: o.lib.zeros(2, 2).to_sparse().resize_as_(o.coo),
}  # fmt: skip
ZERO_PRESERVING = ("abs", "asin", "asinh", "atan", "atanh", "ceil", "floor", "log1p", "neg", "round", "sin", "sinh", "sign", "sgn",
                   "signbit", "tan", "tanh", "trunc", "expm1", "sqrt", "isinf", "isposinf", "isneginf", "isnan", "erf", "erfinv", "deg2rad",
                   "rad2deg", "conj_physical")  # fmt: skip


def dense_of(x: Any) -> np.ndarray:
    x = x.detach()
    return x.to_dense().numpy() if "sparse" in str(x.layout) else x.numpy()


def assert_same(ours: Any, theirs: Any) -> None:
    assert str(ours.layout) == str(theirs.layout)
    assert str(ours.dtype) == str(theirs.dtype)
    assert tuple(ours.shape) == tuple(theirs.shape)
    np.testing.assert_allclose(dense_of(ours), dense_of(theirs), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_calls_give_the_same_layout_and_values(name, oracle):
    assert_same(CASES[name](Operands(fb)), CASES[name](Operands(oracle)))


@pytest.mark.parametrize(
    ("left", "right"),
    [([1, 1], [0, 0]), ([0, 1, 1, 1], [1, 1]), ([1, 1], [0, 1, 1, 3, 3]), ([], [2, 2]), ([2, 2, 3], []), ([0, 0], [0, 0])],
)
def test_sums_of_places_in_order_are_in_their_joint_order(left, right, oracle):
    def total(lib):
        x = lib.sparse_coo_tensor([left], [100.0 * (i + 1) for i in range(len(left))], (4,))
        y = lib.sparse_coo_tensor([right], [i + 1.0 for i in range(len(right))], (4,))
        made = x - 2 * y
        return made._indices().tolist(), made._values().tolist(), made.is_coalesced()

    assert total(fb) == total(oracle)


@pytest.mark.parametrize("layout", ["coo", "csr", "bsc"])
@pytest.mark.parametrize("name", ZERO_PRESERVING)
def test_functions_that_keep_zeros_are_applied_to_values(name, layout, oracle):
    scale = 0.1 if name in ("asin", "atanh", "erfinv") else 1.0
    made, expected = (getattr(getattr(Operands(lib), layout) * scale, name)() for lib in (fb, oracle))

    assert_same(made, expected)


PRINTED = ("coordinates", "uncoalesced", "hybrid", "csr", "csc", "bsr", "bsc", "batched csr", "no values", "other dtype", "bool", "complex",
           "many values", "dense dim", "scaled csr", "sum over rows", "zeros")  # fmt: skip


@pytest.mark.parametrize("name", PRINTED)
def test_texts_are_the_same(name, oracle):
    assert repr(CASES[name](Operands(fb))) == repr(CASES[name](Operands(oracle)))


def test_texts_say_what_is_recorded(oracle):
    for lib in (fb, oracle):
        x = lib.eye(2).to_sparse().requires_grad_()
        assert "requires_grad=True" in repr(x)
        assert "grad_fn=<MulBackward0>" in repr(x * 2)


GRADIENTS = {
    "to dense": lambda o, x: x.to_dense(),
    "sum of sparse": lambda o, x: (x + x).to_dense(),
    "product of sparse": lambda o, x: (x * x).to_dense(),
    "product with dense": lambda o, x: (x * o.other).to_dense(),
    "dense and sparse": lambda o, x: o.other + x,
    "scaled": lambda o, x: (x * 3).to_dense(),
    "negated": lambda o, x: (-x).to_dense(),
    "transposed": lambda o, x: x.t().to_dense(),
    "sparse sum": lambda o, x: o.lib.sparse.sum(x),
    "sparse sum over rows": lambda o, x: o.lib.sparse.sum(x, 0).to_dense(),
    "values": lambda o, x: x.coalesce().values(),
    "sparse mm": lambda o, x: o.lib.sparse.mm(x, o.weight),
    "mm": lambda o, x: o.lib.mm(x, o.weight),
    "sparse addmm": lambda o, x: o.lib.sparse.addmm(o.bias, x, o.weight),
    "softmax": lambda o, x: o.lib.sparse.softmax(x, 1).to_dense(),
    "log softmax": lambda o, x: o.lib.sparse.log_softmax(x, 0).to_dense(),
}  # fmt: skip


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_the_same_and_as_sparse(name, oracle):
    found = []
    for lib in (fb, oracle):
        o: Any = Operands(lib)
        o.weight, o.bias = o.right.clone().requires_grad_(), lib.ones(3, 2).requires_grad_()
        x = o.coo.detach().requires_grad_()
        made = GRADIENTS[name](o, x)
        (made * lib.arange(1.0, 1 + made.numel()).reshape(made.shape)).sum().backward()
        found.append([x.grad, o.weight.grad, o.bias.grad])

    for ours, theirs in zip(*found, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert_same(ours, theirs)


def checked_csr(o: Any, rows: list[int], columns: list[int]) -> Any:
    return o.lib.sparse_csr_tensor(rows, columns, [1.0, 2, 3, 4], (2, 2), check_invariants=True)


REFUSED = {
    "counts that differ": lambda o: o.lib.sparse_coo_tensor([[0, 1]], [1.0], (2,)),
    "too few sizes": lambda o: o.lib.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (2, 3)),
    "an index out of range": lambda o: o.lib.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (2,), check_invariants=True),
    "a negative index": lambda o: o.lib.sparse_coo_tensor([[0, -1]], [1.0, 2.0], (2,), check_invariants=True),
    "rows that do not begin at 0": lambda o: checked_csr(o, [1, 2, 4], [0, 1, 0, 1]),
    "columns out of range": lambda o: checked_csr(o, [0, 2, 4], [0, 1, 0, 5]),
    "columns out of order": lambda o: checked_csr(o, [0, 2, 4], [1, 0, 0, 1]),
    "a count that is no row's": lambda o: checked_csr(o, [0, 2, 5], [0, 1, 0, 1]),
    "too many rows": lambda o: checked_csr(o, [0, 2, 4, 4], [0, 1, 0, 1]),
    "no layout": lambda o: o.lib.sparse_compressed_tensor([0, 1], [0], [1.0]),
    "indices of a dense tensor": lambda o: o.dense.indices(),
    "values that are not coalesced": lambda o: o.twice.values(),
    "rows of columns": lambda o: o.csc.crow_indices(),
    "blocks that do not fit": lambda o: o.dense.to_sparse_bsr((2, 2)),
    "batches that differ": lambda o: o.lib.tensor([[[1.0, 0]], [[1, 1]]]).to_sparse_csr(),
    "cosine": lambda o: o.coo.cos(),
    "the power of 0": lambda o: o.coo**0,
    "a sparse divisor": lambda o: o.dense / o.coo,
    "a number added": lambda o: o.coo + 1,
    "reshape": lambda o: o.coo.reshape(4, 3),
    "ones like coordinates": lambda o: o.lib.ones_like(o.coo),
    "ones in coordinates": lambda o: o.lib.ones_like(o.dense, layout=o.lib.sparse_coo),
    "strides in coordinates": lambda o: o.lib.empty_strided((2, 3), (3, 1), layout=o.lib.sparse_coo),
    "assignment": lambda o: o.coo.__setitem__(0, 1),
    "numpy": lambda o: o.coo.numpy(),
    "storage": lambda o: o.coo.untyped_storage(),
    "address": lambda o: o.csr.data_ptr(),
    "dense and sparse joined": lambda o: o.lib.cat((o.coo, o.dense)),
    "sizes that do not multiply": lambda o: o.coo @ o.dense,
    "dimensions of another kind": lambda o: o.coo.clone().sparse_resize_((3, 4, 1), 2, 1),
    "sizes that shrink": lambda o: o.coo.clone().sparse_resize_((2, 2), 2, 0),
    "diagonals twice": lambda o: o.lib.sparse.spdiags(o.dense, o.lib.tensor([0, 0, 1]), (3, 3)),
    "copying dense to sparse": lambda o: o.coo.clone().copy_(o.dense),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_pytorch_refuses_raises_its_kind_of_exception(name, oracle):
    with pytest.raises(Exception) as theirs:  # noqa: PT011  # which one is what is compared
        REFUSED[name](Operands(oracle))
    with pytest.raises(Exception) as ours:  # noqa: PT011
        REFUSED[name](Operands(fb))

    assert issubclass(ours.type, theirs.type)
