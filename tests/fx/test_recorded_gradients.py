"""Gradients of the registry's operations, recorded as graphs on fake and on real tensors: they are those of plain runs."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import flambeau as fb
from flambeau._subclasses import DataDependentOutputException, DynamicOutputShapeException
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.ops._spec.samples import function_of
from flambeau.utils import _pytree as pytree
from properties.cases import OPS, Case, cases

# FLAMBEAU_TEST_EVERY_OP=1 records every sample of the registry, else one in twelve.
EVERY = cases(draws=False)
CASES = EVERY if os.environ.get("FLAMBEAU_TEST_EVERY_OP") else EVERY[::12]


def slope_of(case: Any) -> tuple[Any, list[Any]] | None:
    """A function of tensors that gives gradients of the case's operation, and the tensors; None where there are no such gradients."""
    sample = case.sample()
    leaves, spec = pytree.tree_flatten((tuple(sample.args), sample.kwargs))
    tensors = [a for a in leaves if isinstance(a, fb.Tensor)]
    wanted = [t.is_floating_point() and t.layout is fb.strided for t in tensors]
    fn = function_of(case.op)

    def slope(*given: Any) -> Any:
        own = [x.detach().requires_grad_() if want else x for x, want in zip(given, wanted, strict=True)]
        rest = iter(own)
        args, kwargs = pytree.tree_unflatten([next(rest) if isinstance(a, fb.Tensor) else a for a in leaves], spec)
        results = [r for r in pytree.tree_leaves(fn(*args, **kwargs)) if isinstance(r, fb.Tensor) and r.requires_grad]
        total = sum((r * 0.7).square().sum() for r in results if r.is_floating_point())
        return fb.autograd.grad(total, [x for x, want in zip(own, wanted, strict=True) if want], allow_unused=True)

    given = [t.detach().clone() for t in tensors]
    try:
        slope(*given)
    except Exception:                                 # there is no gradient, or the operation refuses copies of its operands
        return None
    return slope, given


@pytest.mark.filterwarnings("ignore")                # the program itself warns as well
@pytest.mark.parametrize("mode", ["fake", "real"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_recorded_gradients_are_those_of_plain_runs(case: Any, mode: str) -> None:
    if case.op.name == "recurrent_layer_backward":
        pytest.skip("what runs backwards is recorded; where it is differentiated again, layers are taken apart into steps")
    found = slope_of(case)
    if found is None:
        pytest.skip("has no gradient, or refuses copies of its operands")
    slope, given = found
    expected = slope(*given)
    try:
        graph = make_fx(slope, tracing_mode=mode)(*given)
    except (DataDependentOutputException, DynamicOutputShapeException):
        return                                        # what depends on values cannot be recorded without them
    except Exception as error:                        # nor what rules read beside operations; that has to say so
        if "was made by what cannot be recorded" in f"{error} {error.__cause__}":
            return
        raise
    for ours, plain in zip(graph(*given), expected, strict=True):
        assert (ours is None) == (plain is None)
        if plain is not None and plain.layout is fb.strided:
            assert (ours.shape, ours.dtype) == (plain.shape, plain.dtype)
            fb.testing.assert_close(ours, plain, equal_nan=True)


def test_gradients_beside_zeros_are_recorded_for_both() -> None:
    def slopes(x: Any) -> Any:
        x = x.detach().requires_grad_()
        return fb.autograd.grad(x.prod(1).sum() + (x.cumprod(1) * fb.arange(4.0)).sum(), x)

    plain, zeros = fb.tensor([[1.0, 2.0, 3.0, 0.5]]), fb.tensor([[1.0, 0.0, 3.0, 0.5], [0.0, 2.0, 0.0, 1.0]])
    for mode in ("fake", "real"):
        for first in (plain, zeros):
            graph = make_fx(slopes, tracing_mode=mode)(first)
            assert graph(first)[0].numpy().tobytes() == slopes(first)[0].numpy().tobytes()
    graph = make_fx(slopes)(fb.ones(2, 4))
    assert np.isfinite(graph(zeros)[0].numpy()).all()
    fb.testing.assert_close(graph(zeros)[0], slopes(zeros)[0])


@pytest.mark.parametrize("f", [
    lambda x: fb.linalg.eigh(x + x.mT)[1].abs(), lambda x: fb.linalg.svd(x)[0].abs(), lambda x: fb.linalg.lu_factor(x)[0],
], ids=["eigh", "svd", "lu_factor"])  # fmt: skip
def test_gradients_of_decompositions_read_no_memory_that_nobody_wrote(f: Any) -> None:
    def slopes(x: Any) -> Any:
        x = x.detach().requires_grad_()
        return fb.autograd.grad(f(x).square().mul(fb.arange(9.0).reshape(3, 3)).sum(), x)

    x = fb.from_numpy(np.random.default_rng(0).normal(size=(3, 3)))
    for mode in ("fake", "real"):
        graph = make_fx(slopes, tracing_mode=mode)(x)
        assert not [n for n in graph.graph.nodes if "empty" in n.name]
        fb.testing.assert_close(graph(x)[0], slopes(x)[0])


# What these compute from sizes alone, or look at in kernels, was no part of graphs of their gradients.
RECORDED_TOO = [
    "nn.functional.ctc_loss-0", "nn.functional.ctc_loss-1", "nn.functional.embedding_bag-0", "nn.functional.embedding_bag-1",
    "nn.functional.embedding_bag-2", "nn.functional.affine_grid-0", "affine_grid_generator-0", "nn.functional.pdist-0",
    "nn.functional.pdist-1", "ormqr-1", "orgqr-0", "linalg.householder_product-0", "linalg.lu-1", "combinations-1",
    "repeat_interleave-0", "quantile-1", "nanquantile-1", "cov-2", "istft-0",
]  # fmt: skip


@pytest.mark.parametrize("mode", ["fake", "real"])
@pytest.mark.parametrize("name", RECORDED_TOO)
def test_gradients_of_what_depends_on_sizes_and_indices_are_recorded(name: str, mode: str) -> None:
    at = int(name.rpartition("-")[2])
    case = next(c for op in OPS if (c := Case(op, at)).name == name)  # the reference tier has the first samples alone in `EVERY`
    slope, given = slope_of(case)
    expected = slope(*given)

    found = make_fx(slope, tracing_mode=mode)(*given)(*given)
    for ours, plain in zip(found, expected, strict=True):
        assert (ours is None) == (plain is None)
        if plain is not None:
            fb.testing.assert_close(ours, plain, equal_nan=True)


@pytest.mark.parametrize("mode", ["fake", "real", "symbolic"])
def test_graphs_of_ctc_loss_hold_for_other_labels_and_lengths(mode: str) -> None:
    def slope(x: Any, labels: Any, inputs: Any, lengths: Any) -> Any:
        x = x.detach().requires_grad_()
        loss = fb.nn.functional.ctc_loss(x.log_softmax(-1), labels, inputs, lengths, zero_infinity=True)
        return fb.autograd.grad(loss, x)[0]

    fb.manual_seed(0)
    graph = make_fx(slope, tracing_mode=mode)(
        fb.randn(6, 2, 4), fb.tensor([[1, 2], [3, 3]]), fb.tensor([6, 5]), fb.tensor([2, 1])
    )
    for inputs in ([5, 3], [6, 1]):                   # of the second, nothing has two labels
        given = fb.randn(6, 2, 4), fb.tensor([[3, 1], [2, 1]]), fb.tensor(inputs), fb.tensor([1, 2])
        assert graph(*given).numpy().tobytes() == slope(*given).numpy().tobytes()
    with pytest.raises(RuntimeError, match="labels must lie in"):
        graph(given[0], given[1] + 5, *given[2:])


@pytest.mark.parametrize("mode", ["fake", "real"])
@pytest.mark.parametrize("settings", [
    {"mode": "sum"}, {"mode": "mean", "padding_idx": 1}, {"mode": "max"}, {"mode": "sum", "scale_grad_by_freq": True},
    {"mode": "mean", "include_last_offset": True}, {"mode": "sum", "weighted": True},
], ids=str)  # fmt: skip
def test_graphs_of_embedding_bag_hold_for_other_indices_and_offsets(settings: Any, mode: str) -> None:
    weighted = settings.get("weighted", False)
    settings = {k: v for k, v in settings.items() if k != "weighted"}

    def slope(table: Any, indices: Any, offsets: Any, weights: Any) -> Any:
        own = [table.detach().requires_grad_(), weights.detach().requires_grad_()][: 1 + weighted]
        made = fb.nn.functional.embedding_bag(indices, own[0], offsets, per_sample_weights=own[1] if weighted else None, **settings)
        return fb.autograd.grad(made.square().sum(), own)

    fb.manual_seed(0)
    graph = make_fx(slope, tracing_mode=mode)(fb.randn(6, 5), fb.randint(6, (9,)), fb.tensor([0, 3, 3, 7]), fb.randn(9))
    given = fb.randn(6, 5), fb.randint(6, (9,)), fb.tensor([0, 1, 5, 8]), fb.randn(9)
    for ours, plain in zip(graph(*given), slope(*given), strict=True):
        assert ours.numpy().tobytes() == plain.numpy().tobytes()


def test_reflected_operators_are_seen_as_they_were_written() -> None:
    seen = []

    class Watch(fb.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append((func, len(args)))
            return func(*args, **(kwargs or {}))

    x = fb.full((2,), 4.0)
    with Watch():
        made = [1 / x, 2 - x, 2**x, 9 // x, 9 % x]
    expected = [fb.Tensor.__rtruediv__, fb.Tensor.__rsub__, fb.Tensor.__rpow__, fb.Tensor.__rfloordiv__, fb.Tensor.__rmod__]
    assert seen == [(func, 2) for func in expected]
    assert [m[0].item() for m in made] == [0.25, -2.0, 16.0, 2.0, 1.0]
