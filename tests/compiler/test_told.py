"""What the compiler tells of itself: counters, times, callbacks; and what `_dynamo.utils` has beside them."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fb
from flambeau import _dynamo
from flambeau._dynamo import callback, utils


def own(graph: Any, inputs: Any) -> Any:
    return graph.forward


def test_callbacks_are_called_around_the_compiling_of_a_graph() -> None:
    told: list[Any] = []
    handler = callback.callback_handler
    callback.on_compile_start(lambda args: told.append(("start", args)))
    callback.on_compile_end(lambda args: told.append(("end", args)))
    try:
        f = fb.compile(lambda x: x * 2, backend=lambda graph, inputs: (told.append("backend"), graph.forward)[1], dynamic=False)
        for n in (2, 2, 3):
            f(fb.ones(n))
    finally:
        handler.clear()

    assert [one if isinstance(one, str) else one[0] for one in told] == ["start", "backend", "end"] * 2
    assert told[0][1].callback_trigger is callback.CallbackTrigger.DYNAMO
    assert [told[k][1].compile_id.partition("/")[2] for k in (0, 3)] == ["0", "1"]


def test_times_of_compiling_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utils, "compilation_time_metrics", {})
    assert utils.compile_times("csv") == ([], [])
    fb.compile(lambda x: x * 2, backend=own)(fb.ones(2))
    names, seconds = utils.compile_times("csv", aggregate=True)

    assert names == ["_compile.compile_inner"]
    assert 0 <= float(seconds[0]) < 60
    assert utils.compile_times().startswith("TorchDynamo compilation metrics:\nFunction ")
    assert utils.compile_times("other") is None


def breaking(x):
    _dynamo.graph_break()
    return x * 2


def breaking_inside(x):
    with _dynamo.error_on_graph_break(True):
        _dynamo.graph_break()
    return x * 2


def test_ends_of_graphs_may_be_errors_in_a_part_of_a_program() -> None:
    with pytest.raises(_dynamo.exc.Unsupported, match="graph_break"):
        fb.compile(breaking_inside, backend=own)(fb.ones(2))
    with pytest.raises(_dynamo.exc.Unsupported, match="graph_break"):
        _dynamo.error_on_graph_break(True)(fb.compile(breaking, backend=own))(fb.ones(2))
    with _dynamo.error_on_graph_break(False):
        assert fb.compile(breaking, backend=own, fullgraph=True)(fb.ones(2)).tolist() == [2, 2]
    assert fb.compile(breaking, backend=own)(fb.ones(2)).tolist() == [2, 2]
    with pytest.raises(_dynamo.exc.Unsupported):
        fb.compile(breaking, backend=own, fullgraph=True)(fb.ones(2))


def test_inputs_are_copied_with_what_they_require() -> None:
    x = fb.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    a, (b, n) = utils.clone_inputs([x, (fb.ones(2), 3)])

    assert (a.requires_grad, a.grad.tolist(), b.requires_grad, n) == (True, [3, 3], False, 3)
    assert a is not x
    assert utils.clone_input(x, dtype=fb.float64).dtype is fb.float64
    assert utils.clone_inputs({"x": x})["x"].tolist() == [1, 1]


def test_parameters_are_put_back() -> None:
    net = fb.nn.Linear(2, 2)
    before = net.weight.detach().clone()
    restore = utils.checkpoint_params(net)
    first = fb.rand(3)
    with fb.no_grad():
        net.weight.add_(1)
    net(fb.ones(2)).sum().backward()
    restore()

    assert net.weight.equal(before)
    assert net.weight.grad is None
    assert fb.rand(3).equal(first)


def test_small_functions_of_utils() -> None:
    with utils.disable_cache_limit():
        assert _dynamo.config.recompile_limit > 1000
    with utils.preserve_rng_state():
        first = fb.rand(2)
    assert first.equal(fb.rand(2))
    assert utils.rmse(fb.tensor([1.0, 2.0]), fb.tensor([1.0, 4.0])).item() == pytest.approx(2**0.5)
    assert [utils.istype([], (list, tuple)), utils.istype(True, int)] == [True, False]
    assert [utils.hashable(1), utils.hashable([])] == [True, False]
    result, seconds = utils.timed(lambda n: fb.rand(n), [3], times=2)
    assert (tuple(result.shape), seconds >= 0) == ((3,), True)
    with _dynamo.patch_dynamo_config(verbose=True):
        assert _dynamo.config.verbose
