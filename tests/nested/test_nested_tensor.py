"""Nested tensors of the layout `jagged`: beside PyTorch's, part by part, and in a program that trains."""

from __future__ import annotations

import copy
import pickle
import re

import pytest

import flambeau as fb
from flambeau import nested, nn

F = nn.functional

SAME_AS_PYTORCH = """
nt
nt.shape
(nt.size(0), nt.dim(), nt.numel(), nt.dtype, nt.layout, nt.is_nested, nt.is_contiguous(), nt.requires_grad, len(nt))
nt.values()
nt.offsets()
nt.stride()
nt.unbind()
nt[0]
nt[0, 1]
nt[..., 0].shape
nt.sum()
nt.sum(1)
nt.sum(2)
nt.mean()
nt.mean(1)
nt.mean(-1).shape
nt.amax(1)
nt.max(1)
nt.sum(-1, keepdim=True).shape
nt.prod(1)
nt.any()
nt.all()
nt.sum((0, 1))
nt.argmax(1)
nt + nt
nt + 1
nt * torch.ones(3)
(nt + torch.tensor([[[1.0]], [[2.0]]])).values()
(nt + torch.arange(18.0).reshape(2, 3, 3)).values()
nt.sin().shape
nt > 2
-nt
F.relu(nt).shape
F.linear(nt, torch.ones(4, 3)).values()
nt @ torch.ones(3, 4)
torch.bmm(nt, torch.ones(2, 3, 4)).values()
F.softmax(nt, -1).values()
F.softmax(nt, 1).values()
F.layer_norm(nt, (3,)).values()
F.dropout(nt, 0.0).shape
nt.transpose(1, 2).shape
nt.transpose(1, 2).is_contiguous()
nt.unsqueeze(-1).shape
nt.unsqueeze(1).shape
nt.unflatten(-1, [1, 3]).shape
nt.view(2, -1, 1, 3).shape
nt.reshape(2, -1, 3, 1).shape
nt.permute(0, 2, 1).shape
torch.cat([nt, nt], 2).shape
torch.stack([nt, nt], 2).shape
nt.chunk(2, 0)
nt.chunk(3, -1)[0].shape
nt.split(1, -1)[0].shape
nt.select(2, 0).shape
nt.narrow(2, 0, 1).shape
nt.to(torch.int64).shape
torch.zeros_like(nt)
torch.where(nt > 2, nt, 0.0).values()
nt.clamp(0, 2).values()
nt.expand(2, -1, 3).shape
nt.select(0, 1)
nt.select(dim=0, index=-1)
nt.masked_fill(nt > 2, -1.0).values()
nt.clone().zero_().values()
nt.clone().fill_(3).values()
nt.swapaxes(1, 2).values()
nt.mT.shape
torch.broadcast_tensors(nt, nt)[1].values()
F.l1_loss(nt, nt * 2)
torch.autograd.grad((g * g).sum(), g)[0].values()
torch.autograd.grad(g.softmax(1).values().sum(), [g], allow_unused=True)[0].shape
torch.autograd.backward([(g * g).sum()])
(torch.autograd.backward([(g * g).sum(), g.sum()]), g.grad.values())[1]
N.to_padded_tensor(nt, 0.0)
nt.to_padded_tensor(0.0, (2, 4, 3)).shape
N.to_padded_tensor(nt, 0.0, (2, 2, 3))
N.nested_tensor([a, torch.ones(2, 4)], layout=J).shape
N.nested_tensor([[1.0], [2.0, 3.0]], layout=J).shape
N.as_nested_tensor(torch.ones(2, 3, 4), layout=J).shape
N.nested_tensor_from_jagged(b, torch.tensor([0, 1, 3])).shape
N.nested_tensor_from_jagged(b, lengths=torch.tensor([1, 2])).offsets()
N.nested_tensor_from_jagged(b, torch.tensor([0, 1, 3]), torch.tensor([1, 1])).unbind()
N.narrow(torch.ones(3, 5, 4), 1, 0, torch.tensor([3, 2, 5]), layout=J).offsets()
N.narrow(torch.ones(3, 5, 4), 1, 0, torch.tensor([3, 2, 5]), layout=J).contiguous().offsets()
N.narrow(torch.ones(3, 5, 4), 1, torch.tensor([0, 1, 0]), torch.tensor([3, 2, 5]), layout=J).offsets()
N.masked_select(torch.arange(6.0).reshape(2, 3), torch.tensor([[True, False, True], [False, True, False]])).values()
N.masked_select(torch.arange(6.0).reshape(2, 3), torch.tensor([False])).offsets()
N.masked_select(torch.arange(6.0).reshape(2, 3), torch.tensor([True, False, True])).offsets()
N.masked_select(torch.arange(6.0).reshape(2, 3), torch.tensor([[True], [False]])).values()
N.masked_select(torch.arange(24.0).reshape(2, 3, 4), torch.tensor([True, False, True, True])).offsets()
N.masked_select(torch.arange(24.0).reshape(2, 3, 4), torch.tensor(True)).values()
N.masked_select(torch.arange(3.0), torch.tensor([True, False, True])).offsets()
"""

REFUSED_AS_PYTORCH = """
nt[:, 0]
nt.sum(0)
nt.sum((1, 2))
nt + N.nested_tensor([a, b], layout=J)
torch.matmul(nt, nt.transpose(1, 2))
nt.flatten(1, 2)
torch.cat([nt, nt], 0)
nt.sort(1)
nt.tolist()
nt.numpy()
N.nested_tensor([a, torch.ones(2, 2, 2)], layout=J)
N.nested_tensor([], layout=J)
N.nested_tensor([1.0, 2.0], layout=J)
N.nested_tensor_from_jagged(b)
"""


def worlds(lib):
    a, b = lib.arange(6.0).reshape(2, 3), lib.arange(9.0).reshape(3, 3) + 10
    nt = lib.nested.nested_tensor([a, b], layout=lib.jagged)
    g = nt.detach().clone().requires_grad_()
    return {"torch": lib, "N": lib.nested, "J": lib.jagged, "F": lib.nn.functional, "a": a, "b": b, "nt": nt, "g": g}


def shown(value):
    """The text of a value, in which one symbol stands for all ragged sizes."""
    return re.sub(r"\s+", " ", re.sub(r"j\d+", "j", repr(value)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", SAME_AS_PYTORCH.strip().splitlines())
def test_an_operation_gives_what_pytorch_gives(text):
    torch = pytest.importorskip("torch")

    assert shown(eval(text, worlds(fb))) == shown(eval(text, worlds(torch)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", REFUSED_AS_PYTORCH.strip().splitlines())
def test_what_pytorch_refuses_is_refused_with_its_type_of_error(text):
    torch = pytest.importorskip("torch")

    with pytest.raises((RuntimeError, NotImplementedError)) as theirs:
        eval(text, worlds(torch))
    with pytest.raises(type(theirs.value)):
        eval(text, worlds(fb))


def test_the_ragged_size_is_a_symbol():
    nt = worlds(fb)["nt"]
    size = nt.size(1)

    assert isinstance(size, fb.SymInt)
    assert size == nt.sin().size(1)
    assert size != 3
    assert size >= 2
    assert size in {size}
    assert repr(3 * size) == f"3*{size}"
    with pytest.raises(ValueError, match="indeterminate"):
        int(size)
    with pytest.raises(ValueError, match="indeterminate"):
        assert size > 3


def test_gradients_reach_the_parts_of_as_nested_tensor():
    a, b = fb.ones(2, 3, requires_grad=True), fb.ones(4, 3, requires_grad=True)

    (nested.as_nested_tensor([a, b], layout=fb.jagged) ** 2).sum().backward()

    assert a.grad.tolist() == [[2.0] * 3] * 2
    assert b.grad.tolist() == [[2.0] * 3] * 4


def test_the_gradient_of_a_nested_tensor_is_nested():
    nt = nested.nested_tensor([fb.ones(2), fb.ones(3)], layout=fb.jagged, requires_grad=True)

    (nt * 3).sum().backward()

    assert nt.is_leaf
    assert [part.tolist() for part in nt.grad.unbind()] == [[3.0] * 2, [3.0] * 3]


def test_a_nested_tensor_copies_and_its_parts_are_views():
    a = fb.ones(2, 3)
    nt = nested.nested_tensor([a, fb.ones(1, 3)], layout=fb.jagged)

    nt.unbind()[0].mul_(3)

    assert a.tolist() == [[1.0] * 3] * 2
    assert nt.values().tolist() == [[3.0] * 3] * 2 + [[1.0] * 3]


def test_tensors_with_the_same_offsets_go_together():
    nt = worlds(fb)["nt"]

    other = nested.nested_tensor_from_jagged(fb.ones(5, 3), nt.offsets())

    assert (nt + other).values().equal(nt.values() + 1)


def test_holes_are_left_out():
    padded = fb.arange(24.0).reshape(2, 4, 3)
    nt = nested.narrow(padded, 1, 0, fb.tensor([1, 3]), layout=fb.jagged)

    assert not nt.is_contiguous()
    assert nt.sum() == padded[0, :1].sum() + padded[1, :3].sum()
    assert nt.numel() == 12
    assert F.softmax(nt, 1).unbind()[1].equal(F.softmax(padded[1, :3], 0))
    assert nested.to_padded_tensor(nt, -1.0).equal(fb.stack([fb.cat([padded[0, :1], fb.full((2, 3), -1.0)]), padded[1, :3]]))


@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_nested_tensor_is_copied_and_pickled(again):
    nt = worlds(fb)["nt"]

    assert shown(again(nt)) == shown(nt)
    assert again(nt).values().equal(nt.values())


def test_a_nested_tensor_runs_in_a_compiled_function():
    nt = worlds(fb)["nt"]

    assert fb.compile(lambda x: x.sin() + 1)(nt).values().equal(nt.values().sin() + 1)


def test_attention_stays_within_a_sequence():
    nt = nested.nested_tensor([fb.randn(3, 2, 4), fb.randn(5, 2, 4)], layout=fb.jagged).transpose(1, 2)

    for causal in (False, True):
        made = F.scaled_dot_product_attention(nt, nt, nt, is_causal=causal)

        for part, x in zip(made.unbind(), nt.unbind(), strict=True):
            assert fb.allclose(part, F.scaled_dot_product_attention(x, x, x, is_causal=causal), atol=1e-6)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: nested.nested_tensor([fb.ones(2, 3), fb.ones(3, 4)], layout=fb.jagged), RuntimeError, "more than one dimension"),
        (lambda: nested.nested_tensor_from_jagged(fb.ones(3), fb.tensor([0, 9])), RuntimeError, "must lie within the 3 rows"),
        (lambda: nested.nested_tensor_from_jagged(fb.ones(3), fb.tensor([2, 1])), RuntimeError, "one after the other|must lie within"),
        (lambda: nested.nested_tensor_from_jagged(fb.ones(3), fb.tensor([0.0, 3.0])), RuntimeError, "must be a vector of ints"),
        (lambda: nested.narrow(fb.ones(2, 3), 1, 0, fb.tensor([1, 4]), layout=fb.jagged), RuntimeError, "must lie within the 3"),
        (lambda: nested.narrow(fb.ones(2, 3), 0, 0, 1, layout=fb.jagged), RuntimeError, "only supports dim=1"),
        (lambda: nested.to_padded_tensor(fb.ones(2), 0.0), TypeError, "must be a nested tensor"),
    ],
)
def test_what_does_not_fit_is_refused(call, error, said):
    with pytest.raises(error, match=said):
        call()


PROGRAM = """
import warnings
warnings.simplefilter("ignore")
lib.manual_seed(0)
nn, F = lib.nn, lib.nn.functional

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 8)
        self.norm, self.q, self.k, self.v, self.out = nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, ids):
        x = self.embed(ids)
        y = self.norm(x)
        q, k, v = (layer(y).unflatten(-1, [2, 4]).transpose(1, 2) for layer in (self.q, self.k, self.v))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))
        return self.head(F.gelu(x)).mean(1)

model = Block()
optimizer = lib.optim.AdamW(model.parameters(), lr=1e-2)
losses = []
for step in range(8):
    words = [lib.randint(12, (n,)) for n in (3, 7, 2, 5)]
    if at_once:
        made = model(lib.nested.nested_tensor(words, layout=lib.jagged))
    else:
        made = lib.cat([model(w[None]) for w in words])
    loss = F.cross_entropy(made, lib.tensor([int(w.sum()) % 3 for w in words]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""


def test_a_transformer_over_sequences_of_any_length_trains_as_under_pytorch():
    torch = pytest.importorskip("torch")
    found = {}
    for lib in (torch, fb):
        scope = {"lib": lib, "at_once": lib is fb}    # one sequence after another under PyTorch, which has no such attention on the CPU
        exec(PROGRAM, scope)
        found[lib] = scope["losses"]

    assert found[fb] == pytest.approx(found[torch], rel=1e-4)


@pytest.mark.parametrize("run", [lambda x: fb.float_power(x, 2), lambda x: fb.heaviside(x, fb.tensor(0.5)), lambda x: fb.polygamma(1, x),
                                 lambda x: fb.logaddexp(x, x), lambda x: fb.ldexp(x, fb.tensor(2)), lambda x: 3 - x])  # fmt: skip
def test_operators_of_elements_run_on_nested_and_masked_tensors(run):
    rows = [fb.tensor([0.5, 2.0]), fb.tensor([1.0, 3.0, 4.0])]
    mask = fb.tensor([True, False, True])

    for made, row in zip(run(fb.nested.nested_tensor(rows, layout=fb.jagged)).unbind(), rows, strict=True):
        assert made.equal(run(row))
    masked = run(fb.masked.masked_tensor(rows[1], mask))
    assert masked.get_mask().equal(mask)
    assert masked.get_data()[mask].equal(run(rows[1])[mask])


@pytest.mark.parametrize("name", ["nansum", "nanmean", "count_nonzero"])
def test_any_reduction_goes_part_by_part(name):
    nt = fb.nested.nested_tensor([fb.tensor([[1.0, 0.0]]), fb.tensor([[0.0, 2.0], [3.0, 0.0]])], layout=fb.jagged)
    reduce = getattr(fb, name)

    assert reduce(nt, 1).tolist() == [reduce(part, 0).tolist() for part in nt.unbind()]
    assert reduce(nt).tolist() == reduce(fb.cat(nt.unbind())).tolist()


@pytest.mark.parametrize("parts", [[fb.tensor([1, 2]), fb.full((3,), 1.5)], [fb.ones(2), fb.ones(3).double()], [[1, 2], [1.5]]], ids=str)
@pytest.mark.parametrize("dtype", [None, fb.float32])
def test_parts_of_several_dtypes_are_refused_rather_than_rounded(parts, dtype):
    with pytest.raises(RuntimeError, match="must have the same dtype"):
        nested.nested_tensor(parts, layout=fb.jagged, dtype=dtype)
    if isinstance(parts[0], fb.Tensor):
        with pytest.raises(RuntimeError, match="must have the same dtype"):
            nested.as_nested_tensor(parts, layout=fb.jagged)


@pytest.mark.filterwarnings("ignore:.*batchmean")
@pytest.mark.parametrize(
    "name", ["mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div",
             "poisson_nll_loss", "soft_margin_loss", "hinge_embedding_loss"],
)  # fmt: skip
def test_losses_are_of_all_elements(name):
    loss = getattr(F, name)
    x = nested.nested_tensor([fb.rand(2, 3), fb.rand(1, 3)], layout=fb.jagged, requires_grad=True)
    y = (x.detach() * 0.9).requires_grad_(False)

    assert fb.equal(loss(x, y), loss(x.values(), y.values()))
    each = loss(x, y, reduction="none")
    assert fb.equal(each.values(), loss(x.values(), y.values(), reduction="none"))
    assert each.offsets() is x.offsets()
    (slope,) = fb.autograd.grad(loss(x, y), x)
    assert slope.shape == x.shape


MADE = {
    "jagged": lambda: nested.nested_tensor([fb.rand(2, 3), fb.rand(1, 3)], layout=fb.jagged, requires_grad=True),
    "strided": lambda: nested.nested_tensor([fb.rand(2, 3), fb.rand(1, 3)], requires_grad=True),
    "masked": lambda: fb.masked.masked_tensor(fb.rand(2), fb.tensor([True, False]), requires_grad=True),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors")
@pytest.mark.parametrize("cut", [lambda x: x.detach(), lambda x: x.data, fb.detach, lambda x: x.detach_()])
@pytest.mark.parametrize("kind", MADE)
def test_a_detached_tensor_over_another_has_no_history(kind, cut):
    x = MADE[kind]()

    made = cut(x * 2)

    assert type(made) is type(x)
    assert not made.requires_grad
    assert made.is_leaf
    assert cut(x).requires_grad_().is_leaf


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors")
@pytest.mark.parametrize("kind", MADE)
def test_a_tensor_over_another_says_what_its_elements_say(kind):
    x, seen = MADE[kind](), []
    y = x * 2
    y.retain_grad()
    x.register_post_accumulate_grad_hook(seen.append)
    y.sum().backward()
    before = x._version
    with fb.no_grad():
        x.mul_(2)

    assert y.retains_grad
    assert len(seen) == 1
    assert seen[0] is x
    assert x._version == before + 1
    again = copy.copy(x)
    assert type(again) is type(x)
    assert again._elements is x._elements


@pytest.mark.parametrize("kind", ["jagged", "strided"])
def test_data_of_nested_tensors_is_set(kind):
    x = MADE[kind]()

    x.data = x.data * 0 + 3

    assert x.requires_grad
    assert all(part.eq(3).all() for part in x.detach().unbind())


def test_losses_of_parts_with_holes_are_refused():
    x = nested.narrow(fb.rand(2, 5), 1, fb.tensor([0, 1]), fb.tensor([2, 3]), layout=fb.jagged)

    with pytest.raises(RuntimeError, match="holes"):
        F.mse_loss(x, x)
    with pytest.raises(RuntimeError, match="batchmean"):
        F.kl_div(x.contiguous(), x.contiguous(), reduction="batchmean")


@pytest.mark.parametrize("dim", [0, -1])
def test_chunks_are_part_of_one_compiled_graph(dim):
    nt = fb.nested.nested_tensor([fb.randn(2, 4), fb.randn(3, 4), fb.randn(1, 4)], layout=fb.jagged)

    def f(x):
        first, second = (x * 2).chunk(2, dim)
        return first.sin() + 1, second * 3

    compiled = fb.compile(f, fullgraph=True)
    for _ in range(4):
        for made, expected in zip(compiled(nt), f(nt), strict=True):
            assert made.values().equal(expected.values())
            assert made.offsets().equal(expected.offsets())
