"""Chains of elementwise operations as one kernel: the bits of the operations one after the other."""

from __future__ import annotations

import random

import pytest

import flambeau as fb
from flambeau.compiler import _programs
from fused_programs import parts_of, same, same_at_every_number_of_threads

UNARY = ["sin", "exp", "tanh", "abs", "neg", "sigmoid", "square", "relu", "sign", "floor", "erf", "expm1", "atan", "rsqrt", "log1p"]
BINARY = ["add", "sub", "mul", "div", "maximum", "minimum", "atan2"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(6))
def test_a_random_chain_has_the_bits_of_its_operations(seed: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_programs, "WORTH", 0)
    choose = random.Random(seed)
    plan = [(choose.choice(UNARY), choose.choice(BINARY), choose.randrange(4), choose.choice([0.1, 2, -0.3, None])) for _ in range(5)]

    def f(*inputs: fb.Tensor) -> list[fb.Tensor]:
        values = list(inputs)
        for unary, binary, at, number in plan:
            other = number if number is not None and binary in ("add", "sub", "mul", "div") else values[at]
            values.append(getattr(fb, binary)(getattr(values[-1], unary)(), other))
        return [values[-1], values[-2]]

    fb.manual_seed(seed)
    inputs = [fb.randn(130, 1024, dtype=getattr(fb, dtype)) for _ in range(3)] + [fb.randn(1024, dtype=getattr(fb, dtype))]
    compiled = fb.compile(f)
    expected = f(*inputs)
    results = [compiled(*inputs) for _ in range(_programs.FUSED_AFTER + 2)]

    for result in results:
        assert all(same(a, b) for a, b in zip(result, expected, strict=True))
    assert parts_of(compiled)


def test_ten_operations_on_a_large_tensor_are_one_kernel() -> None:
    def f(x):
        for _ in range(5):
            x = x * 1.5 + 0.25
        return x

    compiled = fb.compile(f)
    x = fb.randn(1 << 18)
    for _ in range(_programs.FUSED_AFTER + 1):
        result = compiled(x)

    (chain,) = parts_of(compiled)
    assert len(chain.steps) == 10
    assert same(result, f(x))


def test_small_tensors_are_left_alone() -> None:
    compiled = fb.compile(lambda x: (x * 2 + 1).relu())

    compiled(fb.ones(10))

    assert not parts_of(compiled)


def test_a_formula_of_numbers_alone_rounds_as_its_operation_does() -> None:
    def f(x, y):
        return fb.lerp(x, y, 0.8898952778543142) * 1.7 + fb.lerp(y, x, 0.8515816791764154)  # weights from whose 1 - w float32 rounds

    x, y = fb.randn(1 << 18), fb.randn(1 << 18)
    compiled = fb.compile(f)
    for _ in range(_programs.FUSED_AFTER + 1):
        result = compiled(x, y)

    assert parts_of(compiled)
    assert same(result, f(x, y))


def test_integers_and_halves_keep_their_roundings() -> None:
    def f(x):
        return (x.half() * 3 + 1) * 0.1, (x * 10).int() * 3 // 2, x.double() * 0.1 + x

    compiled, x = fb.compile(f), fb.randn(1 << 18)
    for _ in range(_programs.FUSED_AFTER + 2):
        result = compiled(x)

    for a, b in zip(result, f(x), strict=True):
        assert a.dtype is b.dtype
        assert fb.equal(a, b)


def test_a_chain_of_transposed_operands_keeps_their_order() -> None:
    def f(x, y):
        return (x.t() * 2 + y.t()).exp() - y

    x, y = fb.randn(400, 400), fb.randn(400, 400)
    compiled = fb.compile(f)
    for _ in range(_programs.FUSED_AFTER + 2):
        result = compiled(x, y)

    assert result.stride() == f(x, y).stride()
    assert same(result, f(x, y))


def test_the_same_bits_at_every_number_of_threads() -> None:
    assert same_at_every_number_of_threads(lambda x: (x.sin() * 2 + x.exp()).tanh(), fb.randn(1 << 18))


def test_a_chain_is_not_computed_twice_to_look_for_arguments_that_sin_takes_otherwise() -> None:
    def f(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        return ((((x * 2).sin() + y) * x).sin() - y).exp() * y

    x, y = fb.randn(512, 512), fb.randn(512, 512)
    compiled = fb.compile(f)
    for _ in range(_programs.FUSED_AFTER + 2):
        compiled(x, y)

    assert same(compiled(x, y), f(x, y))
    assert [len(chain.steps) for chain in parts_of(compiled)] == [4, 4]
