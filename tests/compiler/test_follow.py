"""Following a recording by native code: what it takes for the same as before, and what it leaves to be looked at."""

from __future__ import annotations

import contextlib
import gc
import math
import sys
import threading
import weakref
from typing import Any

import pytest

import flambeau as fb
from flambeau import _state
from flambeau._interpreters import Interpreter, pop, push
from flambeau.compiler import _background, _functions, _programs, _recorder
from flambeau_kernels.engine.calls import follow

F = fb.nn.functional
pytestmark = pytest.mark.skipif(follow.builtin() is None, reason="native code does not read objects here")


@pytest.fixture(autouse=True)
def _small_programs_fuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_recorder, "RECORDED_FROM", 1)
    monkeypatch.setattr(_programs, "FUSED_FROM", 1)
    monkeypatch.setattr(_programs, "WORTH", 0)


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operations that were not followed by native code."""
    found: list[str] = []
    plain = _recorder.Recorder._deferred

    def deferred(self: Any, op: Any, args: Any, written: Any) -> Any:
        found.append(op.name)
        return plain(self, op, args, written)

    monkeypatch.setattr(_recorder.Recorder, "_deferred", deferred)
    return found


def test_all_operations_are_followed_natively(looked_at: list[str]) -> None:
    w = fb.nn.Parameter(fb.randn(4, 6), requires_grad=False)

    @fb.compile
    def f(x: fb.Tensor, n: int) -> fb.Tensor:
        y = x * 0.5 + w
        return (y.view(6 * n).view(n, 6).tanh() * (0.1 + 0.2) - x).clamp(-1000, 1000)

    x = fb.randn(4, 6)
    for _ in range(3):
        f(x, 4)
    looked_at.clear()
    result = f(x, 4)

    assert looked_at == []
    assert fb.equal(result, ((x * 0.5 + w).tanh() * (0.1 + 0.2) - x).clamp(-1000, 1000))


@pytest.mark.parametrize("how", ["no_grad", "inference_mode", "saved tensors", "default dtype"])
def test_what_decides_over_results_may_change_between_calls(how: str, looked_at: list[str]) -> None:
    packed: list[Any] = []

    def pack(x: fb.Tensor) -> fb.Tensor:
        packed.append(x)
        return x

    def changed() -> Any:
        if how == "saved tensors":
            return fb.autograd.graph.saved_tensors_hooks(pack, lambda x: x)
        return contextlib.nullcontext() if how == "default dtype" else getattr(fb, how)()

    def f(x: fb.Tensor) -> fb.Tensor:
        return (x * x).sigmoid() * fb.tensor(2).mul(1.5)

    compiled, x = fb.compile(f), fb.randn(4, requires_grad=True)
    for _ in range(4):
        for changes in (False, True):
            with changed() if changes else contextlib.nullcontext():
                if changes and how == "default dtype":
                    fb.set_default_dtype(fb.float64)
                try:
                    expected = f(x)
                    before = len(packed)
                    made = compiled(x)
                finally:
                    fb.set_default_dtype(fb.float32)
                if changes and how == "saved tensors":
                    assert len(packed) > before

            assert fb.equal(made, expected)
            assert (made.dtype, made.requires_grad, made.is_inference()) == (
                expected.dtype, expected.requires_grad, expected.is_inference(),
            )  # fmt: skip


def test_a_function_of_several_segments_begins_each_as_it_did() -> None:
    def f(x: fb.Tensor) -> fb.Tensor:
        y = x * 2.0 + 1.0
        if y.sum() > 0:
            y = y.abs() - x
        return x.neg() * y

    compiled = fb.compile(f)
    for x in [fb.ones(4), fb.ones(4), -fb.ones(4), fb.ones(4), -fb.ones(4), fb.ones(2, 2)] * 2:
        assert fb.equal(compiled(x), f(x))


@pytest.mark.parametrize(
    ("first", "then"),
    [(0.0, -0.0), (1, True), (1, 1.0), (2, 3), (0.5, 0.25), (1 << 70, 1 << 71), (300, 301), (math.nan, 1.0), (2.0, math.inf)],
)
def test_constants_that_are_equal_to_python_are_told_apart(first: Any, then: Any) -> None:
    def divided(x: fb.Tensor, c: Any) -> fb.Tensor:
        y = x * 2.0
        return (y * c + y).copysign(y * c)

    f, x = fb.compile(divided), fb.tensor([1.0, -2.0, 3.0])
    for c in (first, then, first, then, then, first):
        results = [fb.tensor(0)] * 2
        for at, run in enumerate((f, divided)):
            try:
                results[at] = run(x, c)
            except (RuntimeError, OverflowError) as error:
                results[at] = fb.tensor([len(str(error))])

        assert results[0].dtype is results[1].dtype
        assert fb.equal(results[0].nan_to_num(7.0), results[1].nan_to_num(7.0))


def test_shapes_strides_dtypes_and_histories_of_new_inputs_are_told_apart() -> None:
    def f(x: fb.Tensor, w: fb.Tensor) -> fb.Tensor:
        return (x + 1.0) * w

    compiled, x = fb.compile(f), fb.randn(3, 3)
    others = [fb.randn(3, 3), fb.randn(3), fb.randn(3, 3).t(), fb.randn(3, 3).double(), fb.randn(3, 1).expand(3, 3),
              fb.randn(3, 3, requires_grad=True), fb.nn.Parameter(fb.randn(3, 3)), fb.tensor(2.0)]  # fmt: skip
    for _ in range(3):
        for w in others:
            made, expected = compiled(x, w), f(x, w)

            assert (made.dtype, made.stride(), made.requires_grad) == (expected.dtype, expected.stride(), expected.requires_grad)
            assert fb.equal(made, expected)


def test_an_input_that_is_given_twice_is_one() -> None:
    def f(x: fb.Tensor, a: fb.Tensor, b: fb.Tensor) -> fb.Tensor:
        return fb.addcmul(x * 2.0, a, b) + a

    compiled, x, a, b = fb.compile(f), fb.randn(4), fb.randn(4), fb.randn(4)
    for pair in [(a, b), (a, a), (a, b), (b, b), (x, a), (x, x)] * 2:
        assert fb.equal(compiled(x, *pair), f(x, *pair))


@pytest.mark.parametrize("what", ["no_grad", "inference", "default dtype", "saved tensors", "autocast"])
def test_what_changes_results_in_the_midst_of_a_function_is_seen(what: str) -> None:
    packed: list[int] = []

    def changed() -> Any:
        if what == "saved tensors":
            return fb.autograd.graph.saved_tensors_hooks(lambda t: (packed.append(1), t)[1], lambda t: t)
        if what == "autocast":
            return fb.autocast("cpu", fb.bfloat16)
        return fb.no_grad() if what == "no_grad" else fb.inference_mode()

    def f(x: fb.Tensor, switched: bool) -> fb.Tensor:
        y = x * 2.0
        if not switched:
            return (y * 0.5).exp() @ y
        if what == "default dtype":
            fb.set_default_dtype(fb.float64)
            try:
                return (y * 0.5).exp() * fb.tensor(1.0)
            finally:
                fb.set_default_dtype(fb.float32)
        with changed():
            return (y * 0.5).exp() @ y

    compiled, x = fb.compile(f), fb.randn(4, 4, requires_grad=True)
    for switched in (False, False, True, False, True, True, False):
        expected, before = f(x, switched), len(packed)
        made = compiled(x, switched)

        assert (made.dtype, made.requires_grad, len(packed)) == (expected.dtype, expected.requires_grad, 2 * before)
        assert fb.equal(made, expected)
        packed.clear()


COMPOSITIONS: dict[str, Any] = {
    "einsum": lambda y, w: fb.einsum("ij,jk->ik", y, w),
    "tensordot": lambda y, w: fb.tensordot(y, w, 1),
    "attention": lambda y, w: fb.nn.functional.scaled_dot_product_attention(y[None], w[None], w[None]),
    "chain": lambda y, w: fb.linalg.multi_dot([y, w, y]),
    "bilinear": lambda y, w: fb.nn.functional.bilinear(y, y, w[None]),
    "cosine": lambda y, w: fb.nn.functional.cosine_similarity(y, w),
    "norm": lambda y, w: fb.nn.functional.layer_norm(y, (4,), w[0]),
    "cell": lambda y, w: fb.gru_cell(y, y, w.repeat(3, 1), w.repeat(3, 1)),
}


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_autocast_within_a_function_reaches_what_compositions_are_made_of(name: str) -> None:
    def f(x: fb.Tensor, w: fb.Tensor) -> fb.Tensor:
        y = x * 2.0
        with fb.autocast("cpu", fb.bfloat16):
            return COMPOSITIONS[name](y, w)

    compiled, x, w = fb.compile(f), fb.randn(4, 4), fb.randn(4, 4)
    for _ in range(4):
        made, expected = compiled(x, w), f(x, w)

        assert made.dtype is expected.dtype
        assert fb.equal(made, expected)


def test_references_are_given_back() -> None:
    w, c = fb.randn(5), 0.1 + 0.2

    @fb.compile
    def f(x: fb.Tensor) -> fb.Tensor:
        return ((x + 1.0) * w).sin() * c

    x = fb.randn(5)
    for _ in range(5):
        f(x)
    gc.collect()
    before = [sys.getrefcount(one) for one in (x, w, c, w._storage[0], _recorder.Deferred)]
    for _ in range(100):
        f(x)
    gc.collect()

    after = [sys.getrefcount(one) for one in (x, w, c, w._storage[0], _recorder.Deferred)]
    assert all(abs(a - b) < 50 for a, b in zip(before, after, strict=True))


def test_a_call_leaves_nothing_for_the_garbage_collector() -> None:
    @fb.compile
    def f(x: fb.Tensor) -> fb.Tensor:
        return (x + 1.0).sin() * 2.0

    x = fb.randn(5)
    for _ in range(4):
        f(x)
    gc.collect()
    gc.disable()
    try:
        for _ in range(10):
            result = weakref.ref(f(x))
            assert result() is None

        # One recorder waits for the next call.
        assert sum(type(one) is _recorder.Recorder and one.title.startswith("test_a_call_leaves") for one in gc.get_objects()) <= 1
    finally:
        gc.enable()


def test_a_finalizer_that_asks_for_a_value_does_not_disturb_the_path() -> None:
    latest: list[fb.Tensor] = []
    asked: list[float] = []

    class Asks:
        itself: Any = None

        def __del__(self) -> None:
            asked.extend([one.sum().item() for one in latest[-1:]])

    def f(x: fb.Tensor) -> fb.Tensor:
        y = x + 1.0
        for k in range(200):
            y = y * 1.01
            latest[:] = [y]
            if k % 20 == 0:
                one = Asks()
                one.itself = one
        latest.clear()
        return y

    compiled, x, before = fb.compile(f), fb.randn(5), gc.get_threshold()
    gc.set_threshold(40)
    try:
        for _ in range(20):
            assert fb.equal(compiled(x), f(x))
    finally:
        gc.set_threshold(*before)
    assert asked


def test_who_follows_calls_is_asked_before_all_else() -> None:
    class Follows(Interpreter):
        asked: list[str] = []
        declines = _state.FOLLOWS

        def following(self, op: Any, *args: Any) -> Any:
            self.asked.append(op.name)
            return args[0] if op.name in ("mul", "tanh", "cat") else None

    x, follows = fb.randn(3), Follows()
    push(follows)
    try:
        results = [x * 2.0, x.tanh(), fb.cat((x, x))[0], x.exp()]
    finally:
        pop(follows)

    assert all(one is x for one in results[:3])
    assert follows.asked == ["mul", "tanh", "cat", "exp"]
    assert (x * 2.0) is not x


AT, SMALL = fb.tensor([2, 0, 1, 2]), fb.tensor([2, 0, 1, 2], dtype=fb.int32)
CALLS: dict[str, Any] = {
    "cat": lambda y, x: fb.cat([y, x, y], 1),
    "stack": lambda y, x: fb.stack((x, y), 0),
    "embedding": lambda y, x: F.embedding(AT, y),
    "index": lambda y, x: y[AT] + x[SMALL],
    "index behind a slice": lambda y, x: y[1:, AT],
    "pairs of places": lambda y, x: y[AT, AT],
    "places from behind": lambda y, x: y[AT - 4],
    "index_select": lambda y, x: y.index_select(1, AT),
    "gather": lambda y, x: y.gather(0, AT[None]),
    "addmm": lambda y, x: fb.addmm(x[0], y, x),
    "a copy that is reshaped": lambda y, x: y.t().reshape(-1) * 2.0,
    "twice in its first call": lambda y, x: y * (x * x),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_lists_places_and_compositions_are_followed_natively(name: str, looked_at: list[str]) -> None:
    def f(x: fb.Tensor) -> fb.Tensor:
        return CALLS[name](x * 0.5, x) + 1.0

    compiled = fb.compile(f)
    for _ in range(4):
        x = fb.randn(4, 4)
        looked_at.clear()
        made = compiled(x)

        assert fb.equal(made, f(x))
        assert made._base is None
    assert looked_at == []


def test_lists_of_other_tensors_and_lengths_are_other_calls() -> None:
    def f(x: fb.Tensor, parts: Any, dim: int) -> fb.Tensor:
        y = x * 2.0
        return fb.cat([y, *parts], dim) + fb.stack([y, x, *parts])[-1].sum()

    compiled, x, z = fb.compile(f), fb.randn(3, 3), fb.randn(3, 3)
    given = [([z], 0), ([z], 1), ([x], 0), ([z, z], 0), ([z, x, z], 0), ((x, x), 1), ([z.t()], 0), ([], 0), ([z.double()], 0)]
    for _ in range(4):
        for parts, dim in given:
            assert fb.equal(compiled(x, parts, dim), f(x, parts, dim))


def test_places_are_looked_at_in_every_call(looked_at: list[str]) -> None:
    def f(x: fb.Tensor, at: fb.Tensor) -> fb.Tensor:
        return F.embedding(at, x * 2.0) + 1.0

    compiled, x = fb.compile(f), fb.randn(4, 4)
    for at in [AT, AT, AT, AT.flip(0), fb.tensor([3, 3, 3, 3]), fb.tensor([0, 1, 2, 3, 0, 1, 2, 3])[::2]]:
        assert fb.equal(compiled(x, at), f(x, at))
    for bad in ([0, 1, 2, 4], [-1, 0, 0, 0]):
        with pytest.raises(IndexError):
            compiled(x, fb.tensor(bad))
    looked_at.clear()
    compiled(x, AT)
    assert looked_at == []


def test_references_in_lists_are_given_back() -> None:
    w = fb.randn(5)

    @fb.compile
    def f(x: fb.Tensor) -> fb.Tensor:
        return fb.cat([x * 2.0, w, w]) + 1.0

    x = fb.randn(5)
    for _ in range(5):
        f(x)
    gc.collect()
    before = [sys.getrefcount(one) for one in (x, w, w._storage[0], _recorder.Deferred)]
    for _ in range(100):
        f(x)
    gc.collect()

    after = [sys.getrefcount(one) for one in (x, w, w._storage[0], _recorder.Deferred)]
    assert all(abs(a - b) < 50 for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("name", ["relu", "relu6", "leaky_relu", "elu", "selu", "celu", "silu", "mish", "hardswish", "hardsigmoid", "gelu"])
def test_activations_are_followed_as_the_operations_they_are(name: str, looked_at: list[str]) -> None:
    activation = getattr(fb.nn.functional, name)
    f = fb.compile(lambda x: activation(activation(x) * 2))
    x = fb.randn(40, 50)
    results = [f(x) for _ in range(3)]

    assert looked_at.count("mul") == 1
    assert len(looked_at) == 3
    assert all(fb.equal(y, activation(activation(x) * 2)) for y in results)


OF_ONE_OPERATION = {
    "softmax": lambda x, y: F.softmax(x, -1), "layer_norm": lambda x, y: F.layer_norm(x, (6,)), "where": lambda x, y: fb.where(x > 0, x, y),
    "var": lambda x, y: x.var(-1), "norm": lambda x, y: x.norm(), "max": lambda x, y: fb.max(x, y), "lerp": lambda x, y: fb.lerp(x, y, 0.5),
    "hardtanh": lambda x, y: F.hardtanh(x), "clamp": lambda x, y: x.clamp(y, y + 1), "pow": lambda x, y: x**2 + x**0.5,
    "reshape": lambda x, y: x.reshape(6, -1), "slices": lambda x, y: x[1:, ::2] * 2, "int": lambda x, y: x[1], "none": lambda x, y: x[None],
    "view": lambda x, y: x.view(6, -1), "chunk": lambda x, y: x.chunk(2, 1)[1], "split": lambda x, y: x.split([1, 3], 0)[1],
    "unbind": lambda x, y: x.unbind()[2], "topk": lambda x, y: x.topk(2).values, "max along": lambda x, y: x.max(1)[0],
    "sort": lambda x, y: x.sort(descending=True).values,
}  # fmt: skip


@pytest.mark.parametrize("name", OF_ONE_OPERATION)
def test_compositions_of_one_operation_are_followed_as_they_are_written(name: str, looked_at: list[str], monkeypatch: Any) -> None:
    def f(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        return OF_ONE_OPERATION[name](x * 2, y)

    came: list[str] = []
    plain = _recorder.Recorder.run
    monkeypatch.setattr(_recorder.Recorder, "run", lambda self, op, *rest: came.append(op.name) or plain(self, op, *rest))
    monkeypatch.setattr(_functions.Function, "_leave", lambda self, signature: None)
    compiled, x, y = fb.compile(f), fb.rand(4, 6), fb.rand(4, 6)
    for _ in range(3):
        compiled(x, y)
    came.clear()
    looked_at.clear()

    assert fb.equal(compiled(x, y), f(x, y))
    assert (came, looked_at) == ([], [])


@pytest.mark.parametrize("name", ["chunk", "split", "unbind", "topk", "sort", "max"])
def test_several_results_are_followed_together(name: str, looked_at: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_functions.Function, "_leave", lambda self, signature: None)
    more = {"chunk": (2,), "split": (2,), "unbind": (), "topk": (2, 0), "sort": (0,), "max": (0,)}[name]
    given: list[Any] = []

    def f(x: fb.Tensor) -> fb.Tensor:
        parts = getattr(x * 2, name)(*more)
        given[:] = [type(parts)]
        first, *others = parts
        del parts
        return first * others[-1].double() if others else first + 1

    compiled = fb.compile(f)
    for n in (4, 2, 4):
        x = fb.rand(n, 6)
        expected, kind = f(x), given[0]
        for _ in range(5):
            looked_at.clear()
            assert fb.equal(compiled(x), expected)
            assert given[0] is kind
        assert looked_at == ([] if n == 4 else ["mul"])  # the first operation of the tree is expected as it was first


def test_several_results_that_are_let_go_of_one_by_one() -> None:
    def f(x: fb.Tensor) -> list[fb.Tensor]:
        a, b, c = (x * 2).chunk(3)
        kept = weakref.ref(b)
        d = b + 1
        del a, b
        assert kept() is None
        return [c, d]

    compiled, x = fb.compile(f), fb.rand(6, 5)
    for _ in range(12):
        assert all(fb.equal(a, b) for a, b in zip(compiled(x), f(x), strict=True))


def test_autocast_that_is_switched_on_later_reaches_the_parts_of_compositions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_functions.Function, "_leave", lambda self, signature: None)
    switched = [False]

    def f(x: fb.Tensor) -> fb.Tensor:
        y = x * 2
        with fb.autocast("cpu", dtype=fb.bfloat16, enabled=switched[0]):
            return F.softmax(y, -1)

    compiled, x = fb.compile(f), fb.randn(4, 6).bfloat16()
    for _ in range(3):
        for switched[0] in (False, True):
            found = compiled(x)
            assert found.dtype is f(x).dtype
            assert fb.equal(found, f(x))


@pytest.mark.parametrize("key", [slice(0, 2), slice(0, 3), slice(None, 2, 2), (slice(0, 2), 1)], ids=str)
def test_slices_are_told_apart(key: Any) -> None:
    compiled = fb.compile(lambda x, key: (x * 2)[key] + 1)
    x = fb.randn(4, 6)
    for _ in range(2):
        for one in (slice(0, 2), key, slice(2), (slice(0, 2), 0)):
            assert fb.equal(compiled(x, one), (x * 2)[one] + 1)


def written_over(x: Any, y: Any) -> Any:
    a = x * 2
    same = a
    a += y
    a *= 1.5
    a.relu_().clamp_(0, 2)
    same.exp_()
    return a, same, a._version


def with_a_view(x: Any, y: Any) -> Any:
    a = x * 2
    part = a[0]
    a += y
    part.mul_(2)
    return a, part


def with_a_transposed_operand(x: Any, y: Any) -> Any:
    a = (x * 2)[:, :4]
    a += a.t()
    return a


def with_another_dtype(x: Any, y: Any) -> Any:
    a = x * 2
    try:
        a.add_(y.to(fb.complex64))
    except RuntimeError:
        a += y.double()
    return a


def read_before_and_after(x: Any, y: Any) -> Any:
    a = x * 2
    before = a * y
    a -= y
    row = a.sum(-1)
    a /= 2
    return before, row, a * before


def with_wider_operand(x: Any, y: Any) -> Any:
    a = x[0] * 2
    try:
        a += y
    except RuntimeError as error:
        return a, str(error)[:20]


IN_PLACE = (written_over, with_a_view, with_a_transposed_operand, with_another_dtype, read_before_and_after, with_wider_operand)


@pytest.mark.parametrize("f", IN_PLACE, ids=lambda f: f.__name__)
def test_operations_in_place_give_what_they_give_at_once(f: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_functions.Function, "_leave", lambda self, signature: None)
    compiled, x, y = fb.compile(f), fb.randn(4, 6), fb.randn(4, 6)
    kept = x.clone()
    for _ in range(5):
        found, expected = ([r] if isinstance(r, fb.Tensor) else r for r in (compiled(x, y), f(x, y)))
        for a, b in zip(found, expected, strict=True):
            assert (fb.equal(a, b) and a._version == b._version) if isinstance(a, fb.Tensor) else a == b
        assert fb.equal(x, kept)


def test_operations_in_place_join_a_chain_and_are_followed(looked_at: list[str]) -> None:
    compiled, x, y = fb.compile(written_over), fb.randn(4, 6), fb.randn(4, 6)
    for _ in range(4):
        compiled(x, y)
    looked_at.clear()
    compiled(x, y)

    assert looked_at == []
    assert [segment.why for segment in compiled.explain().segments] == ["a value was asked for"]  # of _version


@pytest.mark.parametrize("saves", [True, False])
def test_what_is_saved_for_a_gradient_is_not_written_over_unseen(saves: bool) -> None:
    w = fb.ones(4, 6, requires_grad=True)

    def f(x: Any) -> Any:
        a = x * 2
        z = w * a if saves else w + a
        a += 1
        return z.sum()

    compiled, x = fb.compile(f), fb.randn(4, 6)
    for _ in range(4):
        if saves:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                compiled(x).backward()
        else:
            compiled(x).backward()


def test_other_threads_are_not_followed() -> None:
    x, seen = fb.randn(5), []

    def elsewhere() -> None:
        y = x * 2.0                                   # which the path of the compiled function expects
        seen.append((type(y), y.tolist()))

    @fb.compile
    def f(x: fb.Tensor, asks: bool) -> fb.Tensor:
        if asks:
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
        return x * 2.0 + 1.0

    for asks in [False] * 5 + [True]:
        result = f(x, asks)

    assert seen == [(fb.Tensor, (x * 2.0).tolist())]
    assert fb.equal(result, x * 2.0 + 1.0)


def test_compiled_functions_in_two_threads_are_both_followed(looked_at: list[str]) -> None:
    meet, found = threading.Barrier(2), []

    @fb.compile
    def f(x: fb.Tensor, waits: bool) -> fb.Tensor:
        y = x * 2.0
        if waits:
            meet.wait(60)
        y = y.tanh()
        if waits:
            meet.wait(60)
        return y - x

    x = fb.randn(5)

    def run() -> None:
        found.append(f(x, True))

    for k in range(4):
        if k == 3:
            looked_at.clear()
        threads = [threading.Thread(target=run) for _ in range(2)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()

    assert looked_at == []
    assert len(found) == 8
    assert all(fb.equal(one, (x * 2.0).tanh() - x) for one in found)


def test_a_mode_in_the_midst_of_a_function_sees_operations_that_are_expected() -> None:
    class Mode(fb.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func.__name__)
            return func(*args, **kwargs or {})

    seen: list[str] = []

    @fb.compile
    def f(x: fb.Tensor, mode: Any) -> fb.Tensor:
        y = x * 2.0
        with mode:
            y = y.tanh()
        return y + 1.0

    x = fb.randn(5)
    for _ in range(4):
        f(x, contextlib.nullcontext())
    result = f(x, Mode())

    assert seen == ["tanh"]
    assert fb.equal(result, (x * 2.0).tanh() + 1.0)


def test_a_recorded_operation_enters_one_function_of_python() -> None:
    entered: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            entered.append(frame.f_code.co_name)

    @fb.compile
    def f(x: fb.Tensor, looks: bool) -> fb.Tensor:
        if looks:
            sys.setprofile(note)
        y = fb.where(x > 0, (x * 2.0 - x).tanh() + 3.0, x)
        sys.setprofile(None)
        return y

    x = fb.randn(5)
    for _ in range(4):
        f(x, False)
    f(x, True)

    assert entered == ["__gt__", "__mul__", "__sub__", "tanh", "__add__", "where"]


def test_calls_with_and_without_gradients_by_turns_are_all_usual_ones() -> None:
    @fb.compile
    def f(x: fb.Tensor) -> fb.Tensor:
        return (x * 2.0).tanh() + x

    x = fb.randn(5, requires_grad=True)
    for _ in range(8):
        f(x)
        with fb.no_grad():
            f(x)
    _background.wait()
    for _ in range(3):
        f(x)
        with fb.no_grad():
            f(x)

    assert None not in f.explain.__self__.usual
