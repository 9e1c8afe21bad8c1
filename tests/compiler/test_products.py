"""Products and the chains behind them in one pass: bits, memory, and what is left to two passes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.compiler import _products, _programs, _recorder
from flambeau.compiler._products import Finished
from flambeau.nn import functional as F
from flambeau_kernels.cpu import tier
from flambeau_kernels.cpu.products import matmul
from fused_programs import parts_of, same

pytestmark = pytest.mark.skipif(not tier.compiles(), reason="nothing is compiled here")


@pytest.fixture(autouse=True, scope="module")
def _small_programs_fuse() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_recorder, "RECORDED_FROM", 1024)
        patch.setattr(_programs, "FUSED_FROM", 1024)
        patch.setattr(_programs, "WORTH", 0)
        patch.setattr(_products, "WIDE", 0)
        patch.setattr(_products, "FINISHED_FROM", 0)
        yield


def randn(*shape: int, dtype: Any = fb.float32) -> fb.Tensor:
    return fb.randn(*shape, dtype=dtype)


PRODUCTS: dict[str, Any] = {
    "mm": lambda d: (fb.mm, randn(130, 70, dtype=d), randn(70, 90, dtype=d)),
    "mm of a transpose": lambda d: (fb.mm, randn(70, 130, dtype=d).t(), randn(90, 70, dtype=d).t()),
    "@": lambda d: (lambda a, b: a @ b, randn(65, 100, dtype=d), randn(100, 64, dtype=d)),
    "a long sum": lambda d: (fb.matmul, randn(40, 900, dtype=d), randn(900, 40, dtype=d)),
    "a small product": lambda d: (fb.mm, randn(40, 4, dtype=d), randn(4, 40, dtype=d)),
    "a column": lambda d: (fb.mm, randn(4000, 90, dtype=d), randn(90, 1, dtype=d)),
    "bmm": lambda d: (fb.bmm, randn(3, 70, 70, dtype=d), randn(3, 70, 90, dtype=d)),
    "batches with @": lambda d: (lambda a, b: a @ b, randn(5, 80, 80, dtype=d), randn(5, 80, 80, dtype=d).mT),
    "linear": lambda d: (F.linear, randn(120, 80, dtype=d), randn(70, 80, dtype=d)),
    "linear with a bias": lambda d: (lambda a, w: F.linear(a, w, w[:, 0]), randn(120, 80, dtype=d), randn(70, 80, dtype=d)),
    "linear of sequences": lambda d: (lambda a, w: F.linear(a, w, w[:, 1]), randn(4, 33, 80, dtype=d), randn(70, 80, dtype=d)),
    "addmm": lambda d: (lambda a, b: fb.addmm(b[0], a, b), randn(130, 70, dtype=d), randn(70, 90, dtype=d)),
}

UNARY = ["sin", "exp", "tanh", "abs", "sigmoid", "relu", "square", "neg"]
BESIDE = ["number", "full", "row", "first", "scalar tensor", "column"]
step = st.one_of(
    st.tuples(st.sampled_from(UNARY), st.none()), st.tuples(st.sampled_from(["add", "mul", "sub", "maximum"]), st.sampled_from(BESIDE)),
)


def program(product: Any, plan: Any, kept: Any, a: fb.Tensor, b: fb.Tensor, beside: Any) -> list[fb.Tensor]:
    values = [product(a, b)]
    for name, what in plan:
        x = values[-1]
        if what is None:
            values.append(getattr(x, name)())
            continue
        others = {"number": 0.7, "full": beside[0], "row": beside[1], "first": values[0], "scalar tensor": beside[2], "column": beside[3]}
        values.append(getattr(x, name)(fb.tensor(0.7, dtype=x.dtype) if name == "maximum" and what == "number" else others[what]))
    return [values[-1], *[values[k % len(values)] for k in kept]]


@settings(max_examples=80, deadline=None)
@given(
    name=st.sampled_from(list(PRODUCTS)), plan=st.lists(step, min_size=1, max_size=6), kept=st.lists(st.integers(0, 6), max_size=1),
    dtype=st.sampled_from([fb.float32, fb.float64]), gradients=st.booleans(), mode=st.sampled_from(["default", "reduce-overhead"]),
)  # fmt: skip
def test_random_chains_behind_products_have_the_bits_of_their_operations(
    name: str, plan: Any, kept: Any, dtype: Any, gradients: bool, mode: str
) -> None:
    fb.manual_seed(len(plan))
    product, a, b = PRODUCTS[name](dtype)
    shape = product(a, b).shape
    beside = [randn(*shape, dtype=dtype), randn(shape[-1], dtype=dtype), randn(1, dtype=dtype)[0], randn(*shape[:-1], 1, dtype=dtype)]
    if gradients:
        a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
    compiled = fb.compile(program, mode=mode)
    expected = program(product, plan, kept, a, b, beside)
    for _ in range(_programs.FUSED_AFTER + 2):
        made = compiled(product, plan, kept, a, b, beside)

        assert all(same(x, y) for x, y in zip(made, expected, strict=True))
        if gradients:
            found = [fb.autograd.grad(one[0].sum(), (a, b)) for one in (made, program(product, plan, kept, a, b, beside))]
            assert all(same(x, y) for x, y in zip(*found, strict=True))


@pytest.mark.skipif(not matmul.has_microkernels(), reason="products are left to BLAS here, which knows no chains")
@pytest.mark.parametrize("name", ["mm", "@", "bmm", "linear", "linear with a bias", "linear of sequences", "addmm"])
@pytest.mark.parametrize("beside", [False, True])
def test_products_and_chains_are_one_pass(name: str, beside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    product, a, b = PRODUCTS[name](fb.float32)
    other = fb.randn(product(a, b).shape)

    def f(a: fb.Tensor, b: fb.Tensor, other: fb.Tensor) -> fb.Tensor:
        y = product(a, b)
        return ((y + other) * 0.5).tanh() if beside and name != "addmm" else (y * 0.5).tanh() + 1.0

    attached: list[bool] = []
    attach = matmul._Then.attach

    def noted(self: Any, *args: Any) -> None:
        attach(self, *args)
        attached.append(self.attached)

    monkeypatch.setattr(matmul._Then, "attach", noted)
    compiled = fb.compile(f)
    for _ in range(_programs.FUSED_AFTER + 2):
        made = compiled(a, b, other)

        assert same(made, f(a, b, other))
    (part,) = parts_of(compiled)
    assert isinstance(part, Finished)
    assert attached
    assert all(attached)
    assert part.saved() == (len(part.steps) - 1) * other.numel()
    assert "tanh" in compiled.explain().segments[0].kernels[0]


def test_a_product_that_is_asked_for_is_not_joined() -> None:
    def f(a: fb.Tensor, b: fb.Tensor) -> Any:
        y = a @ b
        return y, (y * 2.0).sin()

    a, b = fb.randn(70, 70), fb.randn(70, 70)
    compiled = fb.compile(f)
    for _ in range(_programs.FUSED_AFTER + 2):
        assert all(same(x, y) for x, y in zip(compiled(a, b), f(a, b), strict=True))

    assert not any(isinstance(part, Finished) for part in parts_of(compiled))


def test_a_network_is_products_with_their_chains() -> None:
    net = fb.nn.Sequential(fb.nn.Linear(80, 120), fb.nn.GELU(), fb.nn.Linear(120, 90), fb.nn.SiLU(), fb.nn.Linear(90, 70)).eval()
    x, compiled = fb.randn(64, 80), fb.compile(net.__call__)
    with fb.no_grad():
        for _ in range(_programs.FUSED_AFTER + 2):
            assert same(compiled(x), net(x))

    assert sum(isinstance(part, Finished) for part in parts_of(compiled)) == 2


@pytest.mark.parametrize(("least", "finished"), [(130 * 90 * 4, 1), (130 * 90 * 4 + 1, 0)])
def test_results_that_stay_in_a_cache_are_left_to_a_pass_of_their_own(least: int, finished: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(_products, "FINISHED_FROM", least)
    compiled, a, b = fb.compile(lambda a, b: (a @ b * 2 + 1).tanh()), randn(130, 70), randn(70, 90)
    for _ in range(5):
        assert same(compiled(a, b), (a @ b * 2 + 1).tanh())

    assert sum(isinstance(part, Finished) for part in parts_of(compiled)) == finished
