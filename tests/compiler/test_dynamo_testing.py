"""What programs test their own compilation with."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fb
from flambeau._dynamo import testing, utils
from flambeau._dynamo.backends.common import aot_autograd


def test_counters_count_graphs_and_calls() -> None:
    plain, over = testing.CompileCounter(), testing.CompileCounterWithBackend("eager")
    for counter in (plain, over):
        f = fb.compile(lambda x: x.sin().cos(), backend=counter)
        for _ in range(3):
            assert fb.equal(f(fb.ones(2)), fb.ones(2).sin().cos())

        assert (counter.frame_count, counter.op_count) == (1, 2)
    assert len(over.graphs) == 1
    plain.clear()
    over.clear()
    assert (plain.frame_count, plain.op_count, over.frame_count, over.graphs) == (0, 0, 0, [])


def test_what_was_compiled_is_counted_for_all() -> None:
    utils.counters.clear()

    @fb.compile(backend=testing.EagerAndRecordGraphs())
    def f(x: fb.Tensor) -> fb.Tensor:
        y = x + 1
        return y * 2 if y.sum() > 0 else y

    for _ in range(3):
        f(fb.ones(2))

    assert dict(utils.counters["stats"]) == {"unique_graphs": 2, "calls_captured": 4}
    assert dict(utils.counters["frames"]) == {"total": 1, "ok": 1}
    assert dict(utils.counters["graph_break"]) == {"a value was asked for": 1}


def test_graphs_of_operators_come_forward_first() -> None:
    seen: list[tuple[str, list[str]]] = []

    def compiler(name: str) -> Any:
        return lambda graph, inputs: (seen.append((name, [str(n.target) for n in graph.graph.nodes if n.op == "call_function"])), graph)[1]

    f = fb.compile(lambda x: (x.sin() * 2).sum(), backend=aot_autograd(fw_compiler=compiler("forward"), bw_compiler=compiler("backward")))
    x = fb.ones(2, requires_grad=True)
    f(x).backward()

    assert [name for name, _ in seen] == ["forward", "backward"]
    assert seen[0][1] == ["aten.sin.default", "aten.mul.Tensor", "aten.sum.default"]
    assert fb.allclose(x.grad, 2 * fb.ones(2).cos())  # type: ignore[arg-type]  # backward has given it
    recorder = testing.AotEagerAndRecordGraphs()
    fb.compile(lambda x: x.sin().sum(), backend=recorder)(x).backward()
    assert [len(found) for found in (recorder.graphs, recorder.fw_graphs, recorder.bw_graphs)] == [1, 1, 1]
    with pytest.raises(TypeError, match="fw_compiler"):
        aot_autograd()


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1.0, 1.0 + 1e-6), (1.0, 1.1), (float("nan"), float("nan")), (1, 1), (1, 2), ([1.0], [1.0]), ([1.0], [1.0, 2.0]),
        ({"a": 1.0}, {"a": 2.0}),
        ("tensor", 1e-7), ("tensor", 1e-2), ("int tensor", 0), ("int tensor", 1), ("dtype", 0),
    ],
)  # fmt: skip
def test_same_judges_as_in_pytorch(oracle: Any, a: Any, b: Any) -> None:
    from torch._dynamo.utils import same

    def made(T: Any) -> Any:
        if a == "tensor":
            return T.ones(3), T.ones(3) + b
        if a == "int tensor":
            return T.ones(3, dtype=T.int64), T.ones(3, dtype=T.int64) + b
        return (T.ones(3), T.ones(3, dtype=T.float64)) if a == "dtype" else (a, b)

    assert utils.same(*made(fb)) == same(*made(oracle), log_error=lambda *args: None)


def test_a_result_may_be_as_wrong_as_the_one_it_is_compared_with() -> None:
    exact = fb.full((4,), 1.0, dtype=fb.float64)

    assert utils.same(fb.full((4,), 1.01), fb.full((4,), 0.99), exact)
    assert not utils.same(fb.full((4,), 1.0), fb.full((4,), 0.99), exact)
    assert utils.same(fb.tensor([1.0, 2.0]), fb.tensor([1.0, 2.2]), cos_similarity=True)
