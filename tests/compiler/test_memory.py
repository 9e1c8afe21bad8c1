"""Memory of compiled programs: values end with their last reader, chains write over what ends, and nothing seen from outside changes."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.compiler import _memory, _programs, _recorder
from flambeau_kernels import memory
from flambeau_kernels.cpu import tier
from fused_programs import parts_of, same

pytestmark = pytest.mark.skipif(not tier.compiles(), reason="nothing is compiled here")


@pytest.fixture(autouse=True, scope="module")
def _small_programs_fuse() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_recorder, "RECORDED_FROM", 256)
        patch.setattr(_programs, "FUSED_FROM", 256)
        patch.setattr(_programs, "WORTH", 0)
        yield


@pytest.fixture
def over(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each operand that a chain might write over, whether it did."""
    found: list[bool] = []
    plain = _programs.Chain._over

    def _over(self: Any, operands: Any, k: int) -> Any:
        array = plain(self, operands, k)
        found.append(array is not None)
        return array

    monkeypatch.setattr(_programs.Chain, "_over", _over)
    return found


def peak_of(f: Any, *args: Any) -> int:
    """Bytes that arrays take at most during a call, beyond what is there before."""
    gc.collect()
    memory.reset_peaks()
    before = memory.statistics()["allocated_bytes"]
    f(*args)
    return memory.statistics()["peak_allocated_bytes"] - before


def layers(x: fb.Tensor, w: fb.Tensor) -> fb.Tensor:
    for _ in range(6):
        x = fb.tanh(x @ w) * 0.5 + 1.0
    return x


def test_a_replayed_program_keeps_what_is_still_read_alone(counted_memory: None) -> None:
    x, w = fb.randn(512, 512), fb.randn(512, 512)
    compiled = fb.compile(layers, mode="reduce-overhead")
    for _ in range(6):
        compiled(x, w)
    assert same(compiled(x, w), layers(x, w))

    assert peak_of(compiled, x, w) <= 2.1 * x.nbytes
    assert compiled.explain().segments[0].bytes_at_most <= 2 * x.nbytes


def test_a_recorded_program_keeps_what_is_still_read_alone(counted_memory: None) -> None:
    def f(x: fb.Tensor) -> fb.Tensor:
        for _ in range(6):
            x = fb.softmax(x.sin().flip(0) + x, 0).flip(0)
        return x

    x = fb.randn(600, 512)
    compiled = fb.compile(f, mode="reduce-overhead")
    compiled(x)
    peak = peak_of(compiled, x)                       # of a call that is recorded still

    assert peak <= 3.5 * x.nbytes
    assert compiled.explain().segments[0].bytes_at_most == 3 * x.nbytes


def test_what_is_planned_is_what_the_counters_say(counted_memory: None) -> None:
    def f(x: fb.Tensor) -> fb.Tensor:
        a = x.flip(0)
        b = (a + 1.0).sin()                           # a is read again
        c = b.flip(1)
        return (c * a).cos() + c

    x = fb.randn(512, 512)
    compiled = fb.compile(f, mode="reduce-overhead")
    for _ in range(10):                               # in one of which all values are held, while a table is made of them
        compiled(x)

    (segment,) = compiled.explain().segments
    assert segment.bytes_at_most == 3 * x.nbytes
    assert abs(peak_of(compiled, x) - segment.bytes_at_most) < 0.1 * x.nbytes


def test_a_chain_writes_over_an_operand_that_ends(over: list[bool]) -> None:
    x, w = fb.randn(64, 64), fb.randn(64, 64)
    compiled = fb.compile(layers, mode="reduce-overhead")
    expected = layers(x, w)
    for _ in range(6):
        assert same(compiled(x, w), expected)

    assert over
    assert all(over)


SEEN: dict[str, Any] = {
    "the argument": lambda x, keep: x,
    "a view of the argument": lambda x, keep: x.view(-1).view(x.shape),
    "a detached argument": lambda x, keep: x.detach(),
    "a kept value": lambda x, keep: keep(x.flip(0)),
    "a view that is kept": lambda x, keep: (y := x.flip(0), keep(y.view(-1)))[0],
    "a slice that is kept": lambda x, keep: (y := x.flip(0), keep(y[1:]))[0],
    "an array of numpy": lambda x, keep: (y := x.flip(0), keep(y.numpy()))[0],
    "an attribute": lambda x, keep: (y := x.flip(0), setattr(keep(x), "beside", y))[0],
}


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("what", SEEN)
def test_what_is_seen_from_outside_is_not_written_over(what: str, mode: str) -> None:
    x = fb.randn(32, 32)
    kept: list[Any] = []

    def f(x: fb.Tensor) -> fb.Tensor:
        y = SEEN[what](x, lambda one: kept.append(one) or one)
        return (y * 2.0 + 1.0).sin()

    compiled, copy = fb.compile(f, mode=mode), x.clone()
    for _ in range(6):
        made = compiled(x)
        held = [fb.as_tensor(one).clone() for one in kept[-1:]]
        kept.clear()
        expected = f(x)

        assert same(x, copy)
        assert same(made, expected)
        assert all(same(a, fb.as_tensor(b).clone()) for a, b in zip(held, kept, strict=True))
        assert what != "an attribute" or same(x.beside, x.flip(0))
        kept.clear()


UNARY = ["sin", "exp", "tanh", "relu", "square"]
OTHERS: dict[str, Any] = {
    "flip": lambda x: x.flip(0), "view": lambda x: x.view(-1).view(x.shape), "t": lambda x: x.t().contiguous(),
    "softmax": lambda x: x.softmax(-1), "matmul": lambda x: x @ x, "slice": lambda x: x[:16].repeat(2, 1),
    "expand": lambda x: x[:1].expand(32, 32), "same": lambda x: x.contiguous(), "cumsum": lambda x: x.cumsum(0),
    "chunk": lambda x: fb.cat(x.chunk(2)[::-1]), "sum": lambda x: x.sum(0),
}  # fmt: skip
step = st.one_of(
    st.tuples(st.sampled_from(UNARY), st.integers(0, 9)),
    st.tuples(st.sampled_from(["add", "mul", "maximum"]), st.integers(0, 9)),
    st.tuples(st.sampled_from(list(OTHERS)), st.integers(0, 9)),
)


@settings(max_examples=40, deadline=None)
@given(
    plan=st.lists(step, min_size=2, max_size=12), kept=st.lists(st.integers(0, 12), max_size=2),
    mode=st.sampled_from(["default", "reduce-overhead"]),
)  # fmt: skip
def test_random_programs_overwrite_nothing(plan: Any, kept: Any, mode: str) -> None:
    def f(x: fb.Tensor, y: fb.Tensor) -> list[fb.Tensor]:
        values = [x, y]
        for name, at in plan:
            last, other = values[-1], values[at % len(values)]
            if name in OTHERS:
                values.append(OTHERS[name](last if last.ndim == 2 and last.shape[0] == 32 else x * 1.5))
            else:
                values.append(getattr(last, name)() if name in UNARY else getattr(fb, name)(last, other))
        return [values[-1], *[values[k % len(values)] for k in kept]]

    fb.manual_seed(len(plan))
    x, y = fb.randn(32, 32), fb.randn(32, 32)
    before = [x.clone(), y.clone()]
    expected = [one.clone() for one in f(x, y)]
    compiled = fb.compile(f, mode=mode)
    for _ in range(6):
        made = compiled(x, y)
        assert all(same(a.clone(), b) for a, b in zip(made, expected, strict=True))
        compiled(y, x)                                # memory of the first call is used again
        assert all(same(a.clone(), b) for a, b in zip(made, expected, strict=True))
        assert all(same(a, b) for a, b in zip((x, y), before, strict=True))


def test_a_tensor_is_ours_alone_if_nothing_else_refers_to_it_or_its_memory() -> None:
    operands: list[Any] = [fb.ones(8) * 2]
    assert _memory.is_ours_alone(operands, 0)

    held: Any = operands[0]
    assert not _memory.is_ours_alone(operands, 0)
    held = operands[0]._array
    assert not _memory.is_ours_alone(operands, 0)
    held = operands[0].view(2, 4)
    assert not _memory.is_ours_alone(operands, 0)
    held = memoryview(operands[0].numpy())
    assert not _memory.is_ours_alone(operands, 0)
    held = fb.utils.dlpack.to_dlpack(operands[0])
    assert not _memory.is_ours_alone(operands, 0)
    del held
    assert _memory.is_ours_alone(operands, 0)


def test_something_is_written_over_in_random_programs(over: list[bool]) -> None:
    def f(x: fb.Tensor) -> fb.Tensor:
        return OTHERS["slice"](((x @ x).sin() * 2.0).flip(0).tanh() * 3.0)

    compiled, x = fb.compile(f, mode="reduce-overhead"), fb.randn(32, 32)
    for _ in range(6):
        compiled(x)

    assert parts_of(compiled)
    assert over.count(True) >= 2


def test_what_a_function_holds_is_not_written_because_a_small_operation_reads_a_pending_result() -> None:
    def f(x: fb.Tensor) -> fb.Tensor:
        y = (x * 2 + 1).sigmoid()
        return (y * y).mean(1, keepdim=True).expand(-1, 3) * 0.5

    x = fb.randn(512, 512)
    compiled = fb.compile(f)
    for _ in range(_programs.FUSED_AFTER + 2):
        compiled(x)

    assert same(compiled(x), f(x))
    (segment,) = compiled.explain().segments
    assert segment.bytes < x.nbytes
