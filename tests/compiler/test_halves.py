"""Half types in fused kernels: every result is rounded to them, as the operations one after the other do it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.compiler import _programs, _recorder
from flambeau.ops import _derive
from flambeau.ops._spec import FUNCTION, OPS
from flambeau_kernels import Formula
from flambeau_kernels.reference import WORDS_READ
from flambeau_kernels.vocabulary import round_to_bfloat16, round_to_float16
from fused_programs import parts_of, same

HALVES = [fb.float16, fb.bfloat16]


@pytest.fixture(autouse=True, scope="module")
def _small_programs_fuse() -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(_recorder, "RECORDED_FROM", 1024)
        patch.setattr(_programs, "FUSED_FROM", 1024)
        patch.setattr(_programs, "WORTH", 0)
        yield


def takes_halves(op: Any) -> bool:
    """Whether the op has a half result of half operands."""
    x = fb.empty(2, dtype=fb.float16, device="meta")
    try:
        return op.function(*[x] * len(op.positional)).dtype is fb.float16
    except (TypeError, RuntimeError, NotImplementedError, ValueError):
        return False


_derive.load_all()
OF_HALVES = sorted(
    {name for name, op in OPS.items() if op.kind == "elementwise" and op.public and op.surface & FUNCTION and takes_halves(op)}
)


def test_most_elementwise_operations_are_tried() -> None:
    assert len(OF_HALVES) > 80


step = st.tuples(st.sampled_from(OF_HALVES), st.lists(st.integers(-3, 9), min_size=4, max_size=4), st.booleans())


def program(plan: list[Any], inputs: list[fb.Tensor]) -> list[fb.Tensor]:
    values = [*inputs, inputs[0] * 1]
    for name, places, shrinks in plan:
        op = OPS[name]
        # The newest value first; other operands are values, or numbers.
        others = [values[k % len(values)] if k >= 0 else k * 0.3 for k in places[: len(op.positional) - 1]]
        made = op.function(values[-1], *others)
        values.append(made.tanh() if shrinks else made)
    return values[len(inputs) + 1 :]


def results(plan: list[Any], run: Any, dtype: Any, gradients: bool) -> list[Any]:
    fb.manual_seed(3)
    inputs = [fb.randn(s).to(dtype).requires_grad_(gradients) for s in ((40, 256), (40, 256), (256,))]
    try:
        made = run(plan, inputs)
        recorded = [r for r in made if r.requires_grad]
        if not recorded:
            return made
        return [*made, *fb.autograd.grad([(r * 0.5).sum() for r in recorded], inputs, allow_unused=True)]
    except (TypeError, NotImplementedError) as error:  # a number where only tensors go, or a derivative that nobody has defined
        return [type(error)]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])  # kernels of smaller programs take long
@given(plan=st.lists(step, min_size=2, max_size=6), gradients=st.booleans())
def test_random_chains_of_all_operations_have_their_bits(dtype: Any, plan: Any, gradients: bool) -> None:
    expected = results(plan, program, dtype, gradients)
    compiled = fb.compile(program)
    for _ in range(_programs.FUSED_AFTER + 2):
        found = results(plan, compiled, dtype, gradients)

        assert len(found) == len(expected)
        assert all(a is b if isinstance(b, type) else same(widened(a), widened(b)) for a, b in zip(found, expected, strict=True))


def to_float16(a):
    return round_to_float16(a) * 1


def to_bfloat16(a):
    return round_to_bfloat16(a) * 1


def widened(x: Any) -> Any:
    return None if x is None else x.float()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_chain_of_halves_is_one_kernel(dtype: Any) -> None:
    def f(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        return (x * 1.3 + y).sigmoid() * y - x

    compiled = fb.compile(f)
    x, y = fb.randn(512, 512).to(dtype), fb.randn(512).to(dtype)
    results = [compiled(x, y) for _ in range(_programs.FUSED_AFTER + 1)]

    (chain,) = parts_of(compiled)
    assert len(chain.steps) == 5
    assert fb.equal(results[-1], f(x, y))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_rounding_to_a_half_type_is_a_word_with_the_same_bits_in_all_readings(name: str) -> None:
    import flambeau_kernels as kernels

    half = getattr(fb, name)
    x = np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, np.uint32).view(np.float32)
    x[:8] = 0.0, -0.0, np.inf, -np.inf, 65520.0, 1e-8, 3.4e38, -1e-45
    x[np.isnan(x)] = np.nan
    expected = fb.from_numpy(x).to(half).float().numpy()

    rounded = {"float16": to_float16, "bfloat16": to_bfloat16}[name]
    out = np.empty_like(x)
    kernels.launch(Formula(rounded), (x,), (out,), x.dtype)
    with np.errstate(all="ignore"):
        assert WORDS_READ[f"round_to_{name}"](x).tobytes() == expected.tobytes()
    np.testing.assert_array_equal(out, expected)
    from flambeau.ops._spec.derivatives import tensor_words

    assert fb.equal(Formula(rounded).bind(tensor_words())(fb.from_numpy(x)).nan_to_num(7.0), fb.from_numpy(expected).nan_to_num(7.0))
