"""Indexing, draws and writes into views end no recording: they give what they give by themselves, and raise where they are called."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.compiler import _programs
from flambeau.nn import functional as F
from flambeau.nn.attention import SDPBackend, sdpa_kernel
from fused_programs import same

END = {"the end of the function"}
SIZE = 256
AT = fb.arange(300) * 7 % SIZE
ALONG = fb.arange(SIZE * 100).reshape(SIZE, 100) * 11 % SIZE


def whys(compiled: Any) -> set[str]:
    return {segment.why for segment in compiled.explain().segments}


def in_heads(x: fb.Tensor) -> fb.Tensor:
    return x.view(4, 64, 4, 64).transpose(1, 2)


READS: dict[str, Any] = {
    "number": lambda x, y: (x * 2.0)[3] + y[0] * 2.0,
    "slices": lambda x, y: (x * 2.0)[3:, 1::2] + 1.0,
    "places": lambda x, y: (x * 2.0)[AT] + 1.0,
    "places from behind": lambda x, y: (x * 2.0)[AT - SIZE] + 1.0,
    "places behind a slice": lambda x, y: (x * 2.0)[1:, AT] * 3.0,
    "pairs of places": lambda x, y: (x * 2.0)[AT, AT.flip(0)] * 3.0 + (x + y).sum(),
    "int32": lambda x, y: (x * 2.0)[AT.int()] + F.embedding(AT.int(), y * 2.0),
    "gather": lambda x, y: (x * 2.0).gather(1, ALONG) + 1.0,
    "index_select": lambda x, y: (x * 2.0).index_select(-1, AT) + 1.0,
    "embedding": lambda x, y: F.embedding(AT, x * 2.0, padding_idx=3) + y[0],
    "linear": lambda x, y: F.linear(x * 2.0, y) + 1.0,
    "attention": lambda x, y: F.scaled_dot_product_attention(*map(in_heads, (x * 2.0, y, y + 1.0))).transpose(1, 2).reshape(16, -1) + 1.0,
    "reshape of a turned tensor": lambda x, y: (x * 2.0).t().reshape(-1) * 2.0,
    "like": lambda x, y: fb.zeros_like(x * 2.0) + fb.full_like(x + y, 3.0) + (x * 3.0).new_ones(SIZE, SIZE) + x,
}  # fmt: skip
DRAWS: dict[str, Any] = {
    "dropout": lambda x, y: F.dropout(x * 2.0 + y, 0.3) + y,
    "two dropouts": lambda x, y: F.dropout(F.dropout(x * 2.0, 0.3) + y, 0.1) * x,
    "of nobody": lambda x, y: [F.dropout(x * 2.0, 0.3), x + y][1],
    "of everything and nothing": lambda x, y: F.dropout(x * 2.0, 1.0) + F.dropout(y * 2.0, 0.0) + F.dropout(x * 3.0, 0.5, False),
    "of turned tensors": lambda x, y: F.dropout((x * 2.0).t(), 0.3) + y,
    "of channels": lambda x, y: F.dropout2d((x * 2.0).view(4, 16, 32, 32), 0.2) + 1.0,
    "coins": lambda x, y: fb.bernoulli(x * 2.0, 0.3) + fb.bernoulli((y * 0.1).clamp(0.0, 1.0)) + x,
    "coins at first": lambda x, y: fb.bernoulli(x, 0.3) + fb.bernoulli(y * 2.0, 0.5) * 3.0 + x,
    "alpha": lambda x, y: F.alpha_dropout(x * 2.0, 0.2, True) + y,
    "like": lambda x, y: fb.randn_like(x * 2.0) + fb.rand_like(y * 2.0) * x,
}  # fmt: skip


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", [*READS, *DRAWS])
def test_reads_and_draws_end_no_recording(name: str, gradients: bool) -> None:
    f = (READS | DRAWS)[name]
    compiled = fb.compile(f)
    for call in range(5):
        found = []
        for run in (f, compiled):
            fb.manual_seed(call)
            x, y = fb.randn(SIZE, SIZE, requires_grad=gradients), fb.randn(SIZE, SIZE)
            made = run(x, y)
            drawn = fb.rand(3)
            if made.requires_grad:
                (made * made).sum().backward()
            found.append((made, drawn, x.grad, made._base is None))

        assert all(same(a, b) for a, b in zip(found[0][:3], found[1][:3], strict=True))
        assert found[0][3] is found[1][3]
    assert whys(compiled) <= END or name in ("alpha", "coins")  # noise is written to when it has been read, chances are looked at


@pytest.mark.parametrize("read", [
    lambda y, at: y[at], lambda y, at: y.gather(0, at.view(-1, 1)), lambda y, at: y.index_select(0, at), lambda y, at: F.embedding(at, y),
    lambda y, at: y[:, at], lambda y, at: fb.take_along_dim(y, at.view(-1, 1), 0),
], ids=["index", "gather", "index_select", "embedding", "behind a slice", "take_along_dim"])  # fmt: skip
def test_places_outside_are_an_error_where_they_are_read(read: Any) -> None:
    def f(x: fb.Tensor, at: fb.Tensor) -> Any:
        y = x * 2.0
        try:
            z = read(y, at)
        except Exception as error:
            return type(error), str(error), y + 1.0
        return z, z, y + 1.0

    compiled = fb.compile(f)
    good, bad = fb.arange(200), fb.arange(200) + 100
    for at in (good, good, good, bad, good, bad, bad, good):
        x = fb.randn(SIZE, SIZE)
        made, expected = compiled(x, at), f(x, at)

        assert same(made[2], expected[2])
        assert made[:2] == expected[:2] if at is bad else same(made[0], expected[0])
    with pytest.raises((IndexError, RuntimeError), match="out of"):
        fb.compile(lambda x, at: read(x * 2.0, at) + 1.0)(fb.randn(SIZE, SIZE), bad)


def test_places_that_are_written_later_are_read_before() -> None:
    def f(x: fb.Tensor, at: fb.Tensor) -> fb.Tensor:
        y = (x * 2.0)[at]
        at += 1
        return y + 1.0

    compiled, x = fb.compile(f), fb.randn(SIZE, SIZE)
    for _ in range(4):
        assert same(compiled(x, AT.clone()), f(x, AT.clone()))


def test_other_ways_of_attention_are_other_recordings() -> None:
    def f(q: fb.Tensor) -> fb.Tensor:
        return F.scaled_dot_product_attention(q * 2.0, q, q) + 1.0

    compiled, q = fb.compile(f), fb.randn(4, 4, 64, 64)
    for _ in range(3):
        for way in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
            with sdpa_kernel(way):
                assert same(compiled(q), f(q))


def test_what_is_beside_the_memory_of_pending_results_is_written_at_once() -> None:
    def f(x: fb.Tensor, count: fb.Tensor) -> Any:
        y = x * 2.0
        count.add_(1.0)
        noise = fb.empty(SIZE).normal_()
        z = y + noise
        noise.zero_()                                 # which is what a pending result reads
        x.view(-1)[:3].mul_(0.0)
        return z + count, x + 0.0

    compiled, counts = fb.compile(f), (fb.zeros(1), fb.zeros(1))
    for call in range(5):
        start = fb.randn(SIZE, SIZE)
        found = []
        for run, count in zip((f, compiled), counts, strict=True):
            fb.manual_seed(call)
            found.append(run(start.clone(), count))

        assert all(same(a, b) for a, b in zip(*found, strict=True))
    assert same(*counts)


# -- writes


def rows(x: fb.Tensor, y: fb.Tensor) -> Any:
    a = x * 2.0
    a[0] = 1
    a[:, 1] = y[1]
    a[3:5].add_(2)
    a[2].zero_()
    return a + 1.0


def views_and_their_base(x: fb.Tensor, y: fb.Tensor) -> Any:
    a = x * 2.0
    b = a[1:]
    c = a + 1.0
    a.add_(y)
    d = a * 2.0
    b.mul_(3)
    return a, b, c, d


def masks(x: fb.Tensor, y: fb.Tensor) -> Any:
    a = x * 2.0
    a[y > 0] = 0.5
    a[1:].masked_fill_(y[1:] < -1, 3.0)
    return a + 1.0


def places(x: fb.Tensor, y: fb.Tensor) -> Any:
    a = x * 2.0
    a[AT[:30]] = y[:30]
    a[:, AT[:3]] = 5.0
    return a + 1.0


def every_other(x: fb.Tensor, y: fb.Tensor) -> Any:
    a = (x * 2.0).view(-1)
    a[::2] = y.view(-1)[: a.numel() // 2]
    a[1::2] *= 3
    return a.view(SIZE, SIZE) + y


def turned(x: fb.Tensor, y: fb.Tensor) -> Any:
    a = x * 2.0
    a[1:] = a[:-1].clone()
    b = a.t()
    b[0] = a[0] + 1.0
    return a, b


def in_a_loop(x: fb.Tensor, y: fb.Tensor) -> Any:
    a = x * 2.0
    parts = [a[i] for i in range(4)]
    for i, part in enumerate(parts):
        part += i
    return a + y, parts[0]


def sums_of_a_part(x: fb.Tensor, y: fb.Tensor) -> Any:
    a = x * 2.0
    a[1:, ::2] += y[1:, ::2]
    a[0] *= a[0]
    return a - y


def halves(x: fb.Tensor, y: fb.Tensor) -> Any:
    a = x * 2.0
    b, c = a.chunk(2)
    b.copy_(y[:128])
    c.fill_(0.25)
    return a * y


def without_history(x: fb.Tensor, y: fb.Tensor) -> Any:
    a = x * 2.0
    b = a.detach()
    b[0] = 5.0
    c = a * 2.0
    a.mul_(2)
    return a, b, c


def copy_of_a_turned_one(x: fb.Tensor, y: fb.Tensor) -> Any:
    a = x.reshape(128, 512) * 2.0
    b = a.t().reshape(-1)
    b[0] = 5.0
    return b * 2.0, a * 2.0, b


def dropped(x: fb.Tensor, y: fb.Tensor) -> Any:
    a = x * 2.0
    b = a[2]
    b.add_(y[0])
    del a
    return b * 2.0


def of_an_operand(x: fb.Tensor, y: fb.Tensor) -> Any:
    a = y[0].clone()
    y[1] = x[0] * 2.0
    return a + y[1], y * 2.0


def refused(x: fb.Tensor, y: fb.Tensor) -> Any:
    a = x * 2.0
    told = []
    for write in (
        lambda: a[:1].expand(SIZE, SIZE).add_(1), lambda: a[1:].copy_(a[:-1]), lambda: a[0].add_(fb.zeros(3, 1)),
        lambda: a[0].copy_(fb.zeros(7)), lambda: a.int()[0].add_(0.5), lambda: a.__setitem__(SIZE, 1.0), lambda: a[0].fill_(1j),
        lambda: a.__setitem__(AT + 1000, 1.0),
    ):  # fmt: skip
        try:
            write()
        except Exception as error:
            told.append((type(error), str(error)))
    return a, told


WHOLE = [rows, views_and_their_base, masks, every_other, turned, in_a_loop, sums_of_a_part, halves, copy_of_a_turned_one, dropped]
WRITES = [*WHOLE, places, without_history, of_an_operand, refused]


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(alike, a, b))
    if not isinstance(a, fb.Tensor):
        return a == b
    return same(a, b) and a._version == b._version and (a._base is None) is (b._base is None)


@pytest.mark.parametrize("f", WRITES, ids=lambda f: f.__name__)
def test_writes_into_views_are_seen_by_all_that_share_the_memory(f: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_programs, "WORTH", 1)
    compiled = fb.compile(f)
    for call in range(6):
        fb.manual_seed(call)
        x, y = fb.randn(SIZE, SIZE), fb.randn(SIZE, SIZE)
        own = x.clone(), y.clone()
        made, expected = compiled(x, y), f(*own)

        assert alike(made, expected)
        assert same(x, own[0])
        assert same(y, own[1])


@pytest.mark.parametrize("f", WHOLE, ids=lambda f: f.__name__)
def test_writes_into_views_end_no_recording(f: Any) -> None:
    compiled = fb.compile(f)
    x, y = fb.randn(SIZE, SIZE), fb.randn(SIZE, SIZE)
    for _ in range(3):
        compiled(x, y)

    assert whys(compiled) <= END


def test_what_was_saved_before_it_was_written_is_refused_by_backward() -> None:
    def f(w: fb.Tensor, x: fb.Tensor) -> fb.Tensor:
        a = x * 2.0
        z = w * a
        a[0] += 1
        return z

    compiled = fb.compile(f)
    for run in (f, compiled, compiled, compiled):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            run(fb.randn(SIZE, SIZE, requires_grad=True), fb.randn(SIZE, SIZE)).sum().backward()


# -- compositions


STEPS: dict[str, Any] = {
    "mul": lambda a, b, k: (a * 1.5, b),
    "add": lambda a, b, k: (a + b, b),
    "swap": lambda a, b, k: (b, a),
    "relu": lambda a, b, k: (a.relu() - 0.25, b),
    "mean": lambda a, b, k: (a, b - a.mean(-1, keepdim=True)),
    "softmax": lambda a, b, k: (a, (a + b).softmax(-1)),
    "drop": lambda a, b, k: (F.dropout(a, 0.25), b),
    "noise": lambda a, b, k: (a, b + fb.rand_like(b)),
    "read rows": lambda a, b, k: (a[(fb.arange(SIZE) * (2 * k + 1)) % SIZE], b),
    "gather": lambda a, b, k: (a, b.gather(1, (fb.arange(SIZE).expand(SIZE, SIZE) + k) % SIZE)),
    "turn": lambda a, b, k: (a.t(), b),
    "turn in memory": lambda a, b, k: (a.t().reshape(SIZE, SIZE), b),
    "share": lambda a, b, k: (a, a.view(SIZE, SIZE)),
    "part of both": lambda a, b, k: (a[k:], b[: SIZE - k]) if len(a) == len(b) == SIZE else (a, b),
    "grow": lambda a, b, k: (fb.cat([a, b])[:SIZE] if a.shape[1] == b.shape[1] else a, b),
    "row": lambda a, b, k: (a.__setitem__(k, 0.5), (a, b))[1],
    "column": lambda a, b, k: (a.__setitem__((slice(None), k), b[0, : len(a)] if len(a) <= b.shape[1] else 2.0), (a, b))[1],
    "row of the other": lambda a, b, k: (a[k].copy_(b[0]) if a.shape[1] == b.shape[1] else a, (a, b))[1],
    "add in place": lambda a, b, k: (a.add_(0.125), b),
    "scale a part": lambda a, b, k: (a[k : k + 9].mul_(2.0), (a, b))[1],
    "mask": lambda a, b, k: (a.__setitem__(a > 1.0, 0.75), (a, b))[1],
    "keep": lambda a, b, k: (a, b),
}  # fmt: skip


@pytest.mark.parametrize("gradients", [False, True])
@settings(max_examples=25, deadline=None)
@given(program=st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 5)), min_size=3, max_size=12))
def test_compositions_have_the_bits_of_eager(gradients: bool, program: list[tuple[str, int]]) -> None:
    def f(x: fb.Tensor, y: fb.Tensor) -> Any:
        a, b = x * 2.0, y + 1.0
        seen: list[Any] = []
        for name, k in program:
            try:
                a, b = STEPS[name](a, b, k)
            except (RuntimeError, IndexError) as error:
                seen.append(type(error))
            seen.append(tuple(a.shape))
        return a, b, a + 0.5, seen

    before, _programs.WORTH = _programs.WORTH, 1
    try:
        compiled = fb.compile(f)
        for call in range(4):
            found = []
            for run in (f, compiled):
                fb.manual_seed(call)
                x, y = fb.randn(SIZE, SIZE, requires_grad=gradients), fb.randn(SIZE, SIZE)
                made = run(x, y)
                drawn = fb.rand(2)
                told = None
                try:
                    if gradients and made[2].requires_grad:
                        made[2].square().sum().backward()
                except RuntimeError as error:
                    told = type(error)
                found.append((*made[:3], made[3], drawn, x.grad, told))

            assert all(alike(a, b) for a, b in zip(*found, strict=True) if a is not None)
            assert [a is None for a in found[0]] == [b is None for b in found[1]]
    finally:
        _programs.WORTH = before


# -- garbage


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_finalizers_of_cycles_read_what_was_pending(mode: str) -> None:
    met: list[Any] = []

    class Holder:
        def __init__(self, *held: fb.Tensor) -> None:
            self.held, self.me = held, self

        def __del__(self) -> None:
            a, b = self.held
            met.append((a.tolist()[0][0], b[0].sum().item(), (a + b)[0, 0].item()))
            b.add_(1.0)
            met.append(b[0, 0].item())

    def f(x: fb.Tensor) -> fb.Tensor:
        a = x * 2.0
        b = a + 1.0
        first = Holder(a, b)
        second = Holder(x * 3.0, x - 1.0)
        del a, b, first, second
        c = x * 5.0
        gc.collect()
        return c + 1.0

    compiled = fb.compile(f, mode=mode)
    for call in range(6):
        x = fb.full((SIZE, SIZE), float(call))
        made, told = compiled(x), met[:]
        met.clear()
        expected = f(x)

        assert same(made, expected)
        assert told == met
        met.clear()


def test_collections_in_the_midst_of_computing_lose_nothing() -> None:
    met: list[Any] = []

    class Holder:
        def __init__(self, held: fb.Tensor) -> None:
            self.held, self.me = held, self

        def __del__(self) -> None:
            met.append(self.held[0, 0].item())

    def f(x: fb.Tensor) -> fb.Tensor:
        Holder(x * 2.0)
        y = (x + 1.0) * 3.0
        return (y - x) * 0.5

    compiled, x = fb.compile(f), fb.ones(SIZE, SIZE)
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for _ in range(8):
            assert same(compiled(x), f(x))
    finally:
        gc.set_threshold(*before)
    gc.collect()

    assert met == [2.0] * 16


@pytest.mark.parametrize("loss", [F.cross_entropy, lambda y, t: F.nll_loss(y.log_softmax(-1), t)], ids=["cross_entropy", "nll_loss"])
def test_a_class_that_does_not_exist_is_an_error_where_the_loss_is_called(loss: Any) -> None:
    def f(x: fb.Tensor, target: fb.Tensor) -> fb.Tensor:
        y = x * 2.0
        try:
            z = loss(y, target)
        except IndexError:
            return y - 1.0
        return z + y

    compiled, x = fb.compile(f), fb.randn(SIZE, SIZE)
    wrong, ignored = fb.arange(SIZE) * 1, fb.arange(SIZE) * 1
    wrong[3], ignored[3] = SIZE, -100
    for _ in range(4):
        for target in (fb.arange(SIZE), ignored, wrong):
            assert same(compiled(x, target), f(x, target))
