"""The loss of a linear layer in chunks: PyTorch's loss, its gradients, and no array of all logits."""

from __future__ import annotations

import pytest

import flambeau as fb
import flambeau.nn.functional as F
from flambeau import nn

torch = pytest.importorskip("torch")
OPTIONS = nn.LinearCrossEntropyOptions(batch_chunk_size=4)
KINDS = {
    "plain": {}, "sum": {"reduction": "sum"}, "each": {"reduction": "none"}, "ignored": {"ignore_index": 2},
    "smooth": {"label_smoothing": 0.2}, "bias": {"bias": True}, "weighted": {"weight": True},
    "all": {"bias": True, "weight": True, "label_smoothing": 0.1, "ignore_index": 1},
    "wide": {"out_features": (2, 3)}, "wide, each": {"out_features": (2, 3), "reduction": "none", "bias": True},
}  # fmt: skip


def pair(kind, dtype="float32", probabilities=False):
    """Our loss in chunks and PyTorch's, with the same parameters, inputs and targets."""
    kwargs = dict(KINDS[kind])
    fb.manual_seed(0)
    x, factors = fb.randn(11, 5, dtype=getattr(fb, dtype)), fb.rand(7, dtype=getattr(fb, dtype)) + 0.1
    extra = kwargs.get("out_features", ())
    target = fb.randint(0, 7, (11, *extra))
    if probabilities:
        target = fb.randn(11, 7, *extra, dtype=getattr(fb, dtype)).softmax(1)
    weighted = kwargs.pop("weight", False)
    ours = nn.LinearCrossEntropyLoss(5, 7, dtype=getattr(fb, dtype), weight=factors if weighted else None, options=OPTIONS, **kwargs)
    their_weight = torch.tensor(factors.tolist(), dtype=getattr(torch, dtype)) if weighted else None
    their = torch.nn.LinearCrossEntropyLoss(5, 7, dtype=getattr(torch, dtype), weight=their_weight, **kwargs)
    their.load_state_dict({name: torch.tensor(p.tolist(), dtype=getattr(torch, dtype)) for name, p in ours.state_dict().items()})
    their_x = torch.tensor(x.tolist(), dtype=getattr(torch, dtype))
    their_target = torch.tensor(target.tolist(), dtype=getattr(torch, dtype if probabilities else "int64"))
    return (ours, x.requires_grad_(), target), (their, their_x.requires_grad_(), their_target)


def same(got, want, tolerance=1e-6):
    return tuple(got.shape) == tuple(want.shape) and fb.allclose(
        got.detach().double(), fb.tensor(want.detach().double().tolist(), dtype=fb.float64), atol=tolerance, rtol=10 * tolerance
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("probabilities", [False, True])
def test_losses_and_gradients_are_pytorchs(kind, probabilities):
    if probabilities and "ignore_index" in KINDS[kind]:
        pytest.skip("probabilities have no class to ignore")
    (loss, x, target), (their, their_x, their_target) = pair(kind, probabilities=probabilities)
    got, want = loss(x, target), their(their_x, their_target)
    assert same(got, want)

    for factor in (1.0, 3.0):                             # the graph may be kept
        (got.sin().sum() * factor).backward(retain_graph=True)
    (their(their_x, their_target).sin().sum() * 4).backward()

    assert same(x.grad, their_x.grad)
    assert [name for name, _ in loss.named_parameters()] == [name for name, _ in their.named_parameters()]
    assert all(same(p.grad, q.grad) for p, q in zip(loss.parameters(), their.parameters(), strict=True))
    with fb.no_grad():
        assert same(loss(x, target), want)


def test_it_is_written_as_in_pytorch():
    ours, theirs = nn.LinearCrossEntropyLoss(5, 7, bias=True), torch.nn.LinearCrossEntropyLoss(5, 7, bias=True)

    assert repr(ours) == repr(theirs)
    assert repr(nn.LinearCrossEntropyOptions()) == repr(torch.nn.LinearCrossEntropyOptions())


def test_initial_values_are_those_of_a_linear_layer():
    fb.manual_seed(3)
    loss = nn.LinearCrossEntropyLoss(5, 7, bias=True)
    fb.manual_seed(3)
    layer = nn.Linear(5, 7)

    assert fb.equal(loss.linear.weight, layer.weight)
    assert fb.equal(loss.linear.bias, layer.bias)


@pytest.mark.parametrize("frozen", ["input", "linear.weight", "linear.bias"])
def test_gradients_that_nobody_wants_are_left_out(frozen):
    (loss, x, target), _ = pair("bias")
    named = {"input": x, **dict(loss.named_parameters())}
    named[frozen].requires_grad_(False)

    loss(x, target).backward()

    assert {name for name, p in named.items() if p.grad is None} == {frozen}


def test_second_derivatives():
    (loss, x, target), _ = pair("all", "float64")

    def of(x, weight, bias):
        return nn.functional.cross_entropy(F.linear(x, weight, bias), target, loss.weight, ignore_index=1, label_smoothing=0.1)

    parameters = (x, loss.linear.weight, loss.linear.bias)

    def second(function):
        first = fb.autograd.grad(function(*parameters), parameters, create_graph=True)
        return fb.autograd.grad(sum(g.square().sum() for g in first), parameters)

    for got, want in zip(second(lambda *_: loss(x, target)), second(of), strict=True):
        assert fb.allclose(got, want, atol=1e-12)


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_sums_over_chunks_are_wide(dtype):
    (loss, x, target), (their, their_x, their_target) = pair("bias", dtype)
    loss(x, target).backward()
    their(their_x, their_target).backward()

    assert loss.linear.weight.grad.dtype is getattr(fb, dtype)
    assert same(loss.linear.weight.grad, their.linear.weight.grad, 2e-2 if dtype == "bfloat16" else 1e-12)


def test_no_array_holds_all_logits():
    """Peak memory of the step stays far below what 4096 rows of 8192 logits take, 128 MiB."""
    from flambeau_kernels import memory

    if fb.kernels.backend() == "numpy":
        pytest.skip("numpy's own memory is not counted")
    fb.manual_seed(0)
    loss, x, target = nn.LinearCrossEntropyLoss(16, 8192), fb.randn(4096, 16), fb.randint(0, 8192, (4096,))
    loss(x, target).backward()
    memory.reset_peaks()
    before = memory.statistics()["allocated_bytes"]
    loss(x, target).backward()

    assert memory.statistics()["peak_allocated_bytes"] - before < 80 * 2**20


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda m, x, t: m(x[None], t), RuntimeError, "dimensionality 1 or 2, got 3"),
        (lambda m, x, t: m(x[:, :4], t), RuntimeError, "got 4 and 5, respectively"),
        (lambda m, x, t: m(x, t[:3]), ValueError, r"batch_size \(11\) to match target batch_size \(3\)"),
        (lambda m, x, t: m(x, t.float()), RuntimeError, "Long or Byte"),
        (lambda m, x, t: m(x, t.int()), RuntimeError, "Long or Byte"),
        (lambda m, x, t: m(x, t + 7), IndexError, "out of bounds"),
        (lambda m, x, t: nn.LinearCrossEntropyLoss(5, 7, reduction="foo")(x, t), ValueError, "foo is not a valid value"),
        (lambda m, x, t: nn.LinearCrossEntropyOptions(batch_chunk_size=0), ValueError, "must be positive, got 0"),
    ],
)
def test_wrong_arguments_are_refused(call, error, match):
    (loss, x, target), _ = pair("plain")
    with pytest.raises(error, match=match):
        call(loss, x, target)


def test_single_rows_and_rows_that_do_not_count():
    loss = nn.LinearCrossEntropyLoss(5, 7, options=OPTIONS)
    x = fb.randn(9, 5)

    assert fb.allclose(loss(x[0], fb.tensor(3)), F.cross_entropy(F.linear(x[0], loss.linear.weight), fb.tensor(3)))
    assert loss(x, fb.full((9,), -100)).isnan()
