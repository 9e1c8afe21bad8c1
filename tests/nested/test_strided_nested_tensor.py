"""Nested tensors of the layout `strided`: beside PyTorch's, and what they refuse."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest

import flambeau as fb
from flambeau import nested

# `f` has parts of 2 x 3 and 1 x 3, `g` of 2 x 3 and 1 x 2, `n` vectors of whole numbers; `w` is a table of 4 x 3.
SAME_AS_PYTORCH = """
n
f
g
h
h * 2
(f.dim(), f.ndim, f.size(0), f.size(2), f.size(-1), f.numel(), f.nelement(), f.dtype, f.layout, f.is_nested, f.is_contiguous())
(h.requires_grad, h.is_leaf, h.grad, f.detach().requires_grad)
n.values()
n._nested_tensor_size()
g._nested_tensor_strides()
g._nested_tensor_storage_offsets()
f.unbind()
f[0]
f[-1]
f[0, 1]
f[..., 0]
f.select(0, 1)
f.select(1, 0)
f.select(2, 0)
f + f
f - 1
2 * f
f * torch.tensor(2.0)
f / f.add(1)
-f
f > 1
f.masked_fill(f > 2, 0)
f.clone().fill_(3)
f.clone().zero_()
f.clone().add_(1).mul_(f)
f.sin()
f.abs()
F.relu(f)
F.gelu(f).half()
F.silu(f)
f.isnan()
f.double()
f.to(torch.int64)
torch.zeros_like(f)
torch.ones_like(f)
f.sum(-1, keepdim=True)
f.softmax(-1)
F.softmax(g, -1)
f.softmax(1)
F.dropout(f, 0.5, False)
F.linear(f, w[:2])
F.linear(f, w[:2], w[0, :2])
F.layer_norm(f, (3,), w[0], w[1])
F.embedding(n, w)
f.transpose(1, 2)
g.transpose(-1, -2)
f.mT
f.unsqueeze(1)
f.unsqueeze(-1)
f.unsqueeze(1).squeeze(1)
f.view(2, -1, 3, 1)
f.reshape(2, -1, 1, 3)
f.chunk(3, -1)
f.narrow(0, 1, 1)
torch.cat([f, f])
torch.cat([f, f * 2], -1)
torch.cat([f, h.detach()], dim=2)
f.split([1, 2], -1)
f.split([1, 2], dim=2)
torch.split(f, [3], 2)
f.split_with_sizes([1, 1, 1], 2)
f.swapaxes(1, 2)
f.swapdims(-1, 1)
f.matmul(f.transpose(1, 2))
torch.bmm(f, f.transpose(1, 2))
F.scaled_dot_product_attention(f.unsqueeze(1), f.unsqueeze(1), f.unsqueeze(1))
f.to_padded_tensor(0.5)
torch.nested.to_padded_tensor(g, -1.0)
torch.nested.to_padded_tensor(f, 0.5, (3, 4, 5))
torch.nested.nested_tensor([])
torch.nested.nested_tensor([]).dim()
torch.nested.nested_tensor([1, 2])
torch.nested.nested_tensor([[1.0, 2.0], [3.0]], dtype=torch.float64)
torch.nested.as_nested_tensor(w)
torch.nested.as_nested_tensor([w, w[0]][:1], dtype=torch.int32)
torch.nested.narrow(w, 0, 1, 2)
""".strip().split("\n")


def names(torch):
    make = torch.nested.nested_tensor
    parts = [torch.arange(6.0).view(2, 3), torch.arange(3.0).view(1, 3)]
    return {
        "torch": torch, "F": torch.nn.functional, "f": make(parts), "h": make(parts, requires_grad=True),
        "g": make([torch.arange(6.0).view(2, 3), torch.arange(2.0).view(1, 2)]), "n": make([[1, 2, 3], [1], [1, 2]]),
        "w": torch.arange(12.0).view(4, 3),
    }  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("text", SAME_AS_PYTORCH)
def test_answers_are_pytorchs(text, oracle):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = repr(eval(text, names(oracle)))

    assert repr(eval(text, names(fb))) == theirs


def test_gradients_of_a_leaf_are_nested():
    h = nested.nested_tensor([fb.ones(2, 3), fb.ones(1, 2)], requires_grad=True)
    (h * h * 3).sum().backward()

    assert [part.tolist() for part in h.grad.unbind()] == [[[6.0] * 3] * 2, [[6.0, 6.0]]]


def test_gradients_reach_the_parts_and_the_weight():
    a, b = fb.ones(2, 3, requires_grad=True), fb.ones(1, 3, requires_grad=True)
    layer = fb.nn.Linear(3, 2)
    made = layer(nested.as_nested_tensor([a, b]))
    made.to_padded_tensor(0.0).sum().backward()

    wanted = layer.weight.detach().sum(0)
    assert fb.equal(a.grad, wanted.expand(2, 3))
    assert fb.equal(b.grad, wanted.expand(1, 3))
    assert layer.weight.grad.tolist() == [[3.0] * 3] * 2


def test_parts_are_views():
    nt = nested.nested_tensor([fb.zeros(2), fb.zeros(1)])
    nt[0].fill_(7)

    assert [part.tolist() for part in nt] == [[7.0, 7.0], [0.0]]
    assert nt.copy_(nt * 2) is nt
    assert nt.values().tolist() == [14.0, 14.0, 0.0]


def test_copies_and_pickles():
    nt = nested.nested_tensor([fb.ones(2), fb.zeros(1)], requires_grad=True)

    for made in (copy.deepcopy(nt), pickle.loads(pickle.dumps(nt))):
        assert repr(made) == repr(nt)


@pytest.mark.parametrize(
    ("run", "kind", "words"),
    [
        (lambda f, g: f.shape, RuntimeError, "no shape"),
        (lambda f, g: f.size(1), RuntimeError, "dimension 1 is irregular"),
        (lambda f, g: f.size(3), IndexError, "out of range"),
        (lambda f, g: f.stride(), RuntimeError, "no strides"),
        (lambda f, g: f + g, RuntimeError, "broadcasting"),
        (lambda f, g: f + fb.ones(1, 1, 3), RuntimeError, "non-nested other"),
        (lambda f, g: f.sum(-1), RuntimeError, "keepdim=True"),
        (lambda f, g: f.sum(1, keepdim=True), RuntimeError, "last dimension alone"),
        (lambda f, g: f.softmax(0), RuntimeError, "dimension 0"),
        (lambda f, g: fb.nn.functional.linear(g, fb.ones(2, 3)), RuntimeError, "trailing dimension"),
        (lambda f, g: f.transpose(0, 1), RuntimeError, "cannot be transposed"),
        (lambda f, g: f.unbind(1), RuntimeError, "along dimension 0"),
        (lambda f, g: f[2], IndexError, "out of bounds"),
        (lambda f, g: f.reshape(2, -1), RuntimeError, "shape"),
        (lambda f, g: f @ fb.ones(3, 2), RuntimeError, "nested"),
        (lambda f, g: f.sort(), NotImplementedError, "unbind"),
        (lambda f, g: f.to_padded_tensor(0, (2, 1, 3)), RuntimeError, "Truncation"),
        (lambda f, g: nested.nested_tensor([fb.ones(2), fb.ones(2, 3)]), RuntimeError, "same dimension"),
        (lambda f, g: nested.narrow(fb.ones(3, 4), 1, 0, fb.tensor([1, 2, 3])), RuntimeError, "integers"),
    ],
)
def test_refusals(run, kind, words):
    f = nested.nested_tensor([fb.ones(2, 3), fb.ones(1, 3)])
    g = nested.nested_tensor([fb.ones(2, 3), fb.ones(1, 2)])

    with pytest.raises(kind, match=words):
        run(f, g)


def test_a_mask_says_how_much_of_each_row_counts():
    x = fb.arange(12.0).view(2, 3, 2).requires_grad_()
    mask = fb.tensor([[True, True, False], [False, False, False]])
    made = fb._nested_tensor_from_mask(x, mask)
    made.to_padded_tensor(0.0).sum().backward()

    assert [part.tolist() for part in made.unbind()] == [[[0, 1], [2, 3]], []]
    assert x.grad.tolist() == [[[1, 1], [1, 1], [0, 0]], [[0, 0]] * 3]

    gap = fb.tensor([[False, True, True], [True, False, False]])
    assert fb._nested_tensor_from_mask_left_aligned(x, mask)
    assert not fb._nested_tensor_from_mask_left_aligned(x, gap)
    assert [len(part) for part in fb._nested_tensor_from_mask(x, gap, mask_check=False).unbind()] == [2, 1]
    for wrong, words in ((gap, "left-aligned"), (mask.float(), "Bool"), (mask[:, :2], "size"), (mask[..., None], "2D")):
        with pytest.raises(RuntimeError, match=words):
            fb._nested_tensor_from_mask(x, wrong)
    assert [len(part) for part in fb._nested_tensor_from_tensor_list([fb.ones(2), fb.ones(3)]).unbind()] == [2, 3]


def test_parts_are_joined_and_split_along_their_dimensions():
    x = nested.nested_tensor([fb.rand(2, 3), fb.rand(1, 3)], requires_grad=True)

    long = fb.cat([x, x * 2], 1)
    left, right = fb.cat([x, x * 2], -1).split([3, 3], -1)
    (slope,) = fb.autograd.grad((right.values() * 3).sum(), x)

    assert [tuple(part.shape) for part in long.unbind()] == [(4, 3), (2, 3)]
    assert all(fb.equal(a, b) for a, b in zip(left.unbind(), x.unbind(), strict=True))
    assert all(part.eq(6).all() for part in slope.unbind())


@pytest.mark.parametrize(
    ("call", "said"),
    [(lambda x: fb.cat([x, fb.ones(2, 1, 3)], 1), "to be nested"), (lambda x: fb.cat([x, x[:1]], 1), "agree"),
     (lambda x: x.split(1, -1), "list of sizes"), (lambda x: x.split([1, 1], -1), "sum"), (lambda x: x.split([1, 1], 0), "last dimension")],
)  # fmt: skip
def test_what_does_not_fit_together_is_refused(call, said):
    with pytest.raises(RuntimeError, match=said):
        call(nested.nested_tensor([fb.rand(2, 3), fb.rand(1, 3)]))
