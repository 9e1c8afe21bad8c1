"""Chains with reductions, softmaxes and normalizations in one kernel: bits, gradients and histories of the operations."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.compiler import _programs, _recorder
from flambeau.compiler._rows import Rows
from flambeau.nn import functional as F
from flambeau_kernels.cpu import tier
from flambeau_kernels.cpu.reductions.reduce import Reduction
from flambeau_kernels.cpu.row_programs import RowProgram, Total, grid_of
from fused_programs import parts_of, same, same_at_every_number_of_threads

pytestmark = pytest.mark.skipif(not tier.compiles(), reason="nothing is compiled here")

UNARY = ["sin", "exp", "tanh", "abs", "sigmoid", "square", "relu", "atan", "log1p", "detach"]
BINARY = ["add", "sub", "mul", "div", "maximum"]
SHAPES = [(40, 256), (5, 9, 130), (3, 4099), (70, 61), (8192,), (2, 70, 8, 8)]


@pytest.fixture(autouse=True, scope="module")
def _small_programs_fuse() -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(_recorder, "RECORDED_FROM", 1024)
        patch.setattr(_programs, "FUSED_FROM", 1024)
        patch.setattr(_programs, "WORTH", 0)
        yield


def last(x: fb.Tensor) -> int:
    return x.shape[-1]


ROWS: dict[str, Any] = {
    "softmax": lambda x, w: F.softmax(x, -1),
    "log_softmax": lambda x, w: F.log_softmax(x, -1),
    "layer_norm": lambda x, w: F.layer_norm(x, (last(x),), w, w * 2),
    "plain layer_norm": lambda x, w: F.layer_norm(x, (last(x),)),
    "layer_norm of two": lambda x, w: F.layer_norm(x, x.shape[-2:]),
    "rms_norm": lambda x, w: F.rms_norm(x, (last(x),), w),
    "sum": lambda x, w: x - x.sum(-1, keepdim=True),
    "mean": lambda x, w: x * x.mean(-1, keepdim=True),
    "amax": lambda x, w: x - x.amax(-1, True),
    "amin": lambda x, w: x / x.amin(dim=-1, keepdim=True),
    "norm": lambda x, w: x / fb.linalg.vector_norm(x, 2, -1, True),
    "variance": lambda x, w: (x - x.mean(-1, True)) * ((x - x.mean(-1, True)) ** 2).mean(-1, True),
    "total": lambda x, w: x * x.mean(),
    "var": lambda x, w: x * x.var(-1, keepdim=True),
    "var of two": lambda x, w: x - x.var((-2, -1), keepdim=True, correction=0),
    "std": lambda x, w: (x - x.mean(-1, True)) / x.std(-1, keepdim=True),
    "var_mean": lambda x, w: (lambda v, m: (x - m) * v * w)(*fb.var_mean(x, -1, correction=0, keepdim=True)),
    "std_mean": lambda x, w: (lambda s, m: (x - m) / s)(*fb.std_mean(x, -1, keepdim=True)),
    "layer_norm by hand": lambda x, w: (x - x.mean(-1, True)) / (x.var(-1, keepdim=True, correction=0) + 1e-5).sqrt() * w + w,
    "first dimension": lambda x, w: x + x.sum(0, keepdim=True),
}
ENDS: dict[str, Any] = {
    "nothing": lambda x: x,
    "sum": lambda x: x.sum(),
    "mean of rows": lambda x: x.mean(-1),
    "norm": lambda x: x.norm(),
    "largest": lambda x: x.abs().amax(-1),
    "two": lambda x: (x.amax(-1) - x.mean(-1), x.sum(-1)),
}

step = st.one_of(
    st.tuples(st.sampled_from(UNARY), st.just(""), st.integers(0, 9), st.just(None)),
    st.tuples(st.just(""), st.sampled_from(BINARY), st.integers(0, 9), st.sampled_from([None, 0.1, 2, -0.3])),
    st.tuples(st.just("rows"), st.sampled_from(list(ROWS)), st.integers(0, 9), st.just(None)),
)


def program(plan: list[Any], end: str, inputs: list[fb.Tensor], kept: list[int]) -> list[fb.Tensor]:
    *values, w = inputs
    values[-1] = values[-1] * 1
    for kind, name, at, number in plan:
        x = values[-1]
        if kind == "rows":
            made = ROWS[name](x, w)
        elif kind:
            made = getattr(x, kind)()
        else:
            made = getattr(fb, name)(x, number if number is not None and name != "maximum" else values[at % len(values)])
        values.append(made)
    ended = ENDS[end](values[-1])
    return [*(ended if isinstance(ended, tuple) else (ended,)), *[values[k % len(values)] for k in kept]]


@settings(max_examples=30, deadline=None)  # each compiles kernels of its own
@given(
    plan=st.lists(step, min_size=1, max_size=7), kept=st.lists(st.integers(0, 12), max_size=1), end=st.sampled_from(list(ENDS)),
    shape=st.sampled_from(SHAPES), dtype=st.sampled_from([fb.float32, fb.float64, fb.float16, fb.bfloat16]),
    what=st.sampled_from(["values", "backward", "hook", "second derivative"]),
)  # fmt: skip
def test_random_programs_have_the_bits_of_their_operations(plan: Any, kept: Any, end: str, shape: Any, dtype: Any, what: str) -> None:
    def run(f: Any) -> list[Any]:
        fb.manual_seed(3)
        shapes = [(*shape[:-1], 1), shape, shape, (shape[-1],)]
        inputs = [fb.randn(s).to(dtype).requires_grad_(what != "values" and k != 1) for k, s in enumerate(shapes)]
        seen: list[Any] = []
        if what == "hook":
            inputs[0].register_hook(lambda g: seen.append(g.clone()))
        results = f(plan, end, inputs, kept)
        found: list[Any] = [*results, [r.grad_fn.name() if r.grad_fn is not None else None for r in results]]
        recorded = [r for r in results if r.requires_grad]
        if not recorded:
            return found
        fb.manual_seed(5)
        total = sum((r * fb.randn(r.shape, dtype=dtype)).sum() for r in recorded)
        assert isinstance(total, fb.Tensor)
        if what == "second derivative":
            sources = [x for x in inputs if x.requires_grad]
            first = fb.autograd.grad(total, sources, create_graph=True, allow_unused=True)
            again = sum((g * g).sum() for g in first if g is not None)
            if isinstance(again, fb.Tensor) and again.requires_grad:
                found += fb.autograd.grad(again, sources, allow_unused=True)
            return [*found, *first]
        total.backward()
        return [*found, *seen, *[x.grad for x in inputs]]

    expected = run(program)
    compiled = fb.compile(program)
    for _ in range(_programs.FUSED_AFTER + 2):
        found = run(compiled)
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert a == b if isinstance(a, list) else same(a, b)


@pytest.mark.parametrize(("name", "f"), [
    ("sum", lambda x, y: (x * y + 1).sum()), ("rows", lambda x, y: (x * y).exp().mean(-1)),
    ("softmax", lambda x, y: F.softmax(x * 0.3 + y, -1) * y), ("norm", lambda x, y: F.layer_norm(x + y, (512,)).sigmoid()),
    ("by hand", lambda x, y: (x - x.mean(-1, True)) * y),
    ("std", lambda x, y: (x * y - x.mean(-1, True)) / (x * y).std(-1, keepdim=True)),
    ("var_mean", lambda x, y: (lambda v, m: (x - m) * v + y)(*fb.var_mean(x + y, -1, keepdim=True))),
    ("norms", lambda x, y: fb.linalg.vector_norm(x - y, 2, -1)),
])  # fmt: skip
def test_a_chain_and_what_follows_it_are_one_kernel(name: str, f: Any) -> None:
    compiled = fb.compile(f)
    x, y = fb.randn(512, 512), fb.randn(512, 512)
    results = [compiled(x, y) for _ in range(_programs.FUSED_AFTER + 1)]

    (rows,) = parts_of(compiled)
    assert isinstance(rows, Rows)
    assert rows.text in str(compiled.explain()).replace("   | ", "")
    assert same(results[-1], f(x, y))


def test_the_larger_of_zeros_of_both_signs_is_the_one_that_the_operation_gives() -> None:
    def f(x: fb.Tensor, y: fb.Tensor) -> tuple[fb.Tensor, ...]:
        h = (x * 1.0).maximum(y)
        return h, h.minimum(x), h.sum(-1)

    x = fb.tensor([0.0, -0.0] * (1 << 15)).view(64, 1024)
    compiled = fb.compile(f)
    results = [compiled(x, -x) for _ in range(_programs.FUSED_AFTER + 1)]

    (rows,) = parts_of(compiled)
    assert isinstance(rows, Rows)
    assert all(same(a, b) for a, b in zip(results[-1], f(x, -x), strict=True))


def test_what_lies_between_is_not_written_to_memory() -> None:
    compiled = fb.compile(lambda x, y: F.softmax((x * y + 1).tanh(), -1))
    x, y = fb.randn(256, 1024), fb.randn(256, 1024)
    compiled(x, y)

    (segment,) = compiled.explain().segments
    assert segment.bytes_saved == 3 * x.nbytes


def test_the_same_bits_at_every_number_of_threads() -> None:
    assert same_at_every_number_of_threads(lambda x: (x.exp() * 2).sum(), fb.randn(1 << 20))


def test_a_program_of_rows_does_not_depend_on_their_number() -> None:
    how, dtype = Reduction("sum_of_rows", "add"), fb.float32.numpy
    texts = set()
    for shape in ((64, 300), (700, 1000)):
        grid = grid_of(shape, (1,), dtype)
        assert grid is not None
        texts.add(RowProgram(dtype, [Total(how, "x", "y")], {"x": "full"}, {"y"}, grid).text)

    assert len(texts) == 1


def test_rows_that_are_too_long_for_copies_are_refused() -> None:
    from flambeau_kernels.cpu.row_programs import Grid, Map, Shares
    from flambeau_kernels.formula import Formula

    formula = Formula(lambda x: x + x, "double")
    with pytest.raises(ValueError, match="5000 elements"):
        RowProgram(fb.float32.numpy, [Map(formula, ("x",), ("y",)), Shares(False, "y", "z")], {"x": "full"}, {"z"}, Grid(9, 5000, 1, 5000))


@pytest.mark.parametrize("loss", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits"])
def test_losses_with_kernels_of_their_own_keep_them(loss: str) -> None:
    def f(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        return getattr(F, loss)(x * 1.5, y)

    x, y = fb.randn(100, 100, requires_grad=True), fb.rand(100, 100)
    compiled = fb.compile(f)
    expected = f(x, y)
    (slope,) = fb.autograd.grad(expected, x)
    for _ in range(_programs.FUSED_AFTER + 2):
        found = compiled(x, y)
        assert found.grad_fn.name() == expected.grad_fn.name()
        assert same(found, expected)
        assert same(fb.autograd.grad(found, x)[0], slope)
