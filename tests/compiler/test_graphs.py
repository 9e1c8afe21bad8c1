"""Backends of the program's own: what graphs they are given, when, and what their functions give."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fb
from flambeau import _dynamo, compiler
from flambeau.compiler import _backends

# Each defines `program(backend)` and returns what is compared with PyTorch, numbers as text.
PROGRAMS = {
    "a model trains": """
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        compiled = torch.compile(model, backend=backend)
        compiled(torch.arange(12.).reshape(3, 4) / 10).pow(2).mean().backward()
        return [f"{p.grad.sum().item():.5f}" for p in model.parameters()]
    """,
    "a branch": """
        @torch.compile(backend=backend)
        def f(a, b):
            y = a / (a.abs() + 1)
            if b.sum() < 0:
                b = b * -1
            return y * b
        return [f(torch.ones(3), -torch.ones(3)).tolist(), f(torch.ones(3), torch.ones(3)).tolist()]
    """,
    "a loop": """
        @torch.compile(backend=backend)
        def f(a):
            for _ in range(3):
                a = a * 2 + 1
            return a
        return [f(torch.ones(2)).tolist(), f(torch.ones(2)).tolist()]
    """,
    "several results": """
        @torch.compile(backend=backend)
        def f(a):
            u, v = a.chunk(2)
            return {"sum": u + v, "both": [u * v, 3, None]}
        r = f(torch.arange(4.))
        return [r["sum"].tolist(), r["both"][0].tolist(), r["both"][1:]]
    """,
    "without gradients": """
        layer = torch.nn.Linear(2, 2)
        torch.nn.init.ones_(layer.weight), torch.nn.init.zeros_(layer.bias)
        with torch.no_grad():
            r = torch.compile(layer, backend=backend)(torch.ones(1, 2))
        return [r.tolist(), r.requires_grad]
    """,
    "another shape": """
        @torch.compile(backend=backend, dynamic=False)
        def f(a):
            return a.sin() + 1
        return [f"{f(torch.ones(n)).sum().item():.4f}" for n in (2, 3, 2, 3)]
    """,
}


def graphs_and_result(torch: Any, text: str) -> tuple[list[Any], Any]:
    seen: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        calls = [node for node in graph.graph.nodes if node.op.startswith("call")]
        seen.append((len(calls), sorted(tuple(x.shape) for x in inputs)))
        return graph.forward

    torch._dynamo.reset()                             # PyTorch remembers shapes by file and line
    scope: dict[str, Any] = {"torch": torch}
    exec("def program(backend):\n" + "\n".join(line[4:] for line in text.splitlines() if line.strip()), scope)
    return seen, scope["program"](backend)


@pytest.mark.parametrize("name", PROGRAMS)
def test_backends_are_given_pytorchs_graphs(oracle: Any, name: str) -> None:
    ours, theirs = graphs_and_result(fb, PROGRAMS[name]), graphs_and_result(oracle, PROGRAMS[name])

    assert ours[1] == theirs[1]
    # PyTorch counts the parts of a split as calls of their own, whether read or not.
    assert [inputs for _, inputs in ours[0]] == [inputs for _, inputs in theirs[0]]
    if name not in ("a branch", "several results"):
        assert [calls for calls, _ in ours[0]] == [calls for calls, _ in theirs[0]]


def test_what_the_backend_returns_computes_the_results() -> None:
    @fb.compile(backend=lambda graph, inputs: lambda *args: (fb.full((3,), 7.0),))
    def f(x):
        return x + 1

    assert f(fb.ones(3)).tolist() == [7, 7, 7]


def test_a_path_is_compiled_once() -> None:
    compiled = []

    @fb.compile(backend=lambda graph, inputs: (compiled.append(graph), graph.forward)[1])
    def f(x, n):
        return x * n

    results = [f(fb.ones(2), n).tolist() for n in (2, 3, 2, 3, 2.0)]

    assert results == [[2, 2], [3, 3], [2, 2], [3, 3], [2, 2]]
    assert len(compiled) == 3


def test_inputs_have_names_of_parameters() -> None:
    seen = []
    layer = fb.nn.Linear(2, 2)
    fb.compile(layer, backend=lambda graph, inputs: (seen.append(graph), graph.forward)[1])(fb.ones(1, 2))

    names = [node.name for node in seen[0].graph.nodes if node.op == "placeholder"]

    assert names == ["l_input_", "l_self_parameters_weight_", "l_self_parameters_bias_"]


def test_a_graph_that_a_pass_has_changed_computes_what_it_says() -> None:
    def backend(graph: Any, inputs: Any) -> Any:
        for node in graph.graph.nodes:
            if node.target is fb.relu:
                node.target = fb.sigmoid
        graph.recompile()
        return graph.forward

    f = fb.compile(lambda x: fb.relu(x * 2), backend=backend)

    assert f(fb.zeros(2)).tolist() == [0.5, 0.5]


def test_views_of_results_stay_views_of_them() -> None:
    @fb.compile(backend=lambda graph, inputs: graph.forward)
    def f(x):
        y = x * 2
        return y, y[0]

    whole, row = f(fb.ones(2, 2, requires_grad=True))
    row.mul_(5)
    whole.sum().backward()

    assert row._base is whole
    assert whole.tolist() == [[10, 10], [2, 2]]


def test_a_backend_that_fails_is_named() -> None:
    def faulty(graph: Any, inputs: Any) -> Any:
        raise ValueError("no room")

    with pytest.raises(_dynamo.exc.BackendCompilerFailed, match=r"backend='faulty' raised:\nValueError: no room"):
        fb.compile(lambda x: x + 1, backend=faulty)(fb.ones(1))
    with pytest.raises(_dynamo.exc.BackendCompilerFailed, match="must return a function, not int"):
        fb.compile(lambda x: x + 1, backend=lambda graph, inputs: 3)(fb.ones(1))
    with pytest.raises(RuntimeError, match="gave 2 results for a graph with 1"):
        fb.compile(lambda x: x + 1, backend=lambda graph, inputs: lambda *args: (1, 2))(fb.ones(1))


def test_a_backends_error_can_be_asked_for_or_left_out(caplog: pytest.LogCaptureFixture) -> None:
    def faulty(graph: Any, inputs: Any) -> Any:
        raise ValueError("no room")

    with pytest.raises(_dynamo.exc.BackendCompilerFailed) as caught:
        fb.compile(lambda x: x + 1, backend=faulty)(fb.ones(1))
    assert (caught.value.backend_name, str(caught.value.inner_exception)) == ("faulty", "no room")
    with _dynamo.config.patch(suppress_errors=True):
        f = fb.compile(lambda x: x + 1, backend=faulty)
        assert [f(fb.ones(1)).item() for _ in range(2)] == [2, 2]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "no room" in caplog.text


@compiler.disable(reason="it is slow")
def left_out(x):
    return x.sin()


@pytest.mark.parametrize("backend", ["eager", "inductor", lambda graph, inputs: graph.forward], ids=["eager", "inductor", "own"])
@pytest.mark.parametrize(
    ("body", "says"), [("(_dynamo.graph_break('here'), x + 1)[1]", "here"), ("left_out(x) + 1", "it is slow")],
)  # fmt: skip
def test_fullgraph_refuses_what_ends_a_graph(body: str, says: str, backend: Any) -> None:
    f = eval(f"lambda x: {body}")

    with pytest.raises(_dynamo.exc.Unsupported, match=says):
        fb.compile(f, fullgraph=True, backend=backend)(fb.ones(3))
    fb.compile(f, backend=backend)(fb.ones(3))


BRANCHES = [
    "x if x.sum() > 0 else -x", "x if bool(x.sum() > 0) else -x", "x if (x.sum() > 0).item() else -x", "x.sum() > 0 and x", "not x.sum()",
    "print(x + 1)", "[1, 2][x.int()[0]]", "range(x.sum().int())",
]  # fmt: skip
VALUES = [
    "x.sum().item()", "float(x.sum()) * x", "int(x.sum())", "bool((x > 0).all())", "(x + 1).numpy().sum()", "x.int().tolist()",
    "f'{x.sum()}'", "fb.zeros(x.sum().int()).shape", "x.nonzero().shape",
    "fb.cond(x.sum() > 0, lambda x: x * 2, lambda x: x, (x,)).tolist()",
    "fb.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (fb.tensor(0), x))[1].tolist()",
]  # fmt: skip


@pytest.mark.parametrize("body", BRANCHES)
@pytest.mark.parametrize("backend", ["inductor", lambda graph, inputs: graph.forward], ids=["inductor", "own"])
def test_fullgraph_refuses_to_branch_on_values(body: str, backend: Any) -> None:
    f = eval(f"lambda x: {body}")

    with pytest.raises(_dynamo.exc.Unsupported, match="fullgraph=True"):
        fb.compile(f, fullgraph=True, backend=backend)(fb.ones(3))


@pytest.mark.parametrize("body", VALUES)
@pytest.mark.parametrize("backend", ["inductor", lambda graph, inputs: graph.forward], ids=["inductor", "own"])
def test_fullgraph_takes_values_that_decide_nothing(body: str, backend: Any) -> None:
    f = eval(f"lambda x: {body}")

    made, expected = fb.compile(f, fullgraph=True, backend=backend)(fb.ones(3)), f(fb.ones(3))

    assert made.equal(expected) if isinstance(expected, fb.Tensor) else made == expected


# As text, for pytest writes assertions of its files in other words.
POSITIVE = """
def positive(x):
    y = x * 2
    assert y.mean() > 0, "mean"
    assert (y > 0).all()
    assert bool(y.sum() > 0)
    return y + 1
"""


@pytest.mark.parametrize("backend", ["inductor", lambda graph, inputs: graph.forward], ids=["inductor", "own"])
def test_fullgraph_takes_assertions_of_tensors(backend: Any) -> None:
    scope: dict[str, Any] = {}
    exec(POSITIVE, scope)
    f = fb.compile(scope["positive"], fullgraph=True, backend=backend)

    assert f(fb.ones(3)).tolist() == [3, 3, 3]
    with pytest.raises(AssertionError, match="mean"):
        fb.compile(scope["positive"], fullgraph=True, backend=backend)(-fb.ones(3))


def test_fullgraph_takes_models_in_training() -> None:
    model = fb.nn.Sequential(fb.nn.Conv2d(1, 2, 3), fb.nn.BatchNorm2d(2), fb.nn.ReLU(inplace=True), fb.nn.Dropout(0.5), fb.nn.Flatten())

    fb.compile(model, fullgraph=True)(fb.rand(2, 1, 5, 5)).sum().backward()

    assert model[0].weight.grad is not None


def test_explain_counts_graphs_and_says_why_they_end() -> None:
    def f(x):
        y = x * 2
        if y.sum() > 0:
            y = y + 1
        fb._dynamo.graph_break()
        return y.sin()

    found = _dynamo.explain(f)(fb.ones(2))

    assert (found.graph_count, found.graph_break_count, found.op_count) == (3, 2, 5)
    assert [reason.reason for reason in found.break_reasons] == ["a value was asked for", "graph_break('')"]
    assert [reason.user_stack[0].line for reason in found.break_reasons] == ["if y.sum() > 0:", "fb._dynamo.graph_break()"]
    assert "Graph Count: 3" in str(found)
    assert "in f>: if y.sum() > 0:" in str(found)


def test_a_path_too_many_is_run_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    f = fb.compile(lambda x, n: x * n, backend=lambda graph, inputs: (compiled.append(1), graph.forward)[1], dynamic=False)

    with _dynamo.config.patch(recompile_limit=2):
        assert [f(fb.ones(1), n).item() for n in range(5)] == [0, 1, 2, 3, 4]
        assert len(compiled) == 2
    refused = pytest.raises(_dynamo.exc.FailOnRecompileLimitHit, match="was compiled 2 times")
    with _dynamo.config.patch(recompile_limit=2, fail_on_recompile_limit_hit=True), refused:
        f(fb.ones(1), 7)


def test_parts_of_a_function_are_counted_apart() -> None:
    graphs = []

    @fb.compile(backend=lambda graph, inputs: (graphs.append(1), graph.forward)[1])
    def f(x):
        for n in range(4):
            x = x * (n + 2)
            _dynamo.graph_break()
        return x

    with _dynamo.config.patch(recompile_limit=2):
        assert f(fb.ones(1)).item() == 120
    with _dynamo.config.patch(recompile_limit=2), compiler.set_stance("fail_on_recompile"):
        assert f(fb.ones(1)).item() == 120
        with pytest.raises(RuntimeError, match="Detected recompile"):
            f(fb.ones(2))
    assert len(graphs) == 4
    with _dynamo.config.patch(error_on_recompile=True), pytest.raises(_dynamo.exc.RecompileError, match=r"f, and"):
        f(fb.ones(3))
    with _dynamo.config.patch(accumulated_recompile_limit=5):
        f(fb.ones(4))
    assert len(graphs) == 5


def test_a_stance_may_compile_what_is_called_again() -> None:
    compiled = []
    f = fb.compile(lambda x: x + 1, backend=lambda graph, inputs: (compiled.append(1), graph.forward)[1])

    counts = []
    with compiler.set_stance("eager_then_compile"):
        for _ in range(3):
            assert f(fb.ones(1)).item() == 2
            counts.append(len(compiled))
    assert counts == [0, 1, 1]


def test_settings_have_the_names_and_values_of_pytorchs(oracle: Any) -> None:
    theirs, ours = oracle._dynamo.config.get_config_copy(), _dynamo.config

    assert ours._SETTINGS - {"log_level"} <= theirs.keys()
    assert {name for name in ours._SETTINGS - {"log_level"} if getattr(ours, name) != theirs[name]} == set()


def test_limits_have_two_names_and_a_mistyped_setting_is_noticed() -> None:
    with _dynamo.config.patch(cache_size_limit=3):
        assert _dynamo.config.recompile_limit == 3 == _dynamo.config.cache_size_limit
    assert _dynamo.config.recompile_limit == 8
    with pytest.raises(AttributeError, match=r"config\.recompile_limits does not exist"):
        _dynamo.config.recompile_limits = 3
    with pytest.raises(AttributeError, match="supress_errors"):
        _dynamo.config.patch(supress_errors=True).__enter__()


def test_what_stands_in_for_a_function_has_its_parameters() -> None:
    def original(x, n=2):
        return x * n

    with pytest.raises(TypeError, match="parameters"):
        compiler.substitute_in_graph(original)(lambda x, m=2: x)
    with pytest.raises(TypeError, match="parameters"):
        compiler.substitute_in_graph(original)(lambda x, n=3: x)
    with pytest.raises(TypeError, match="must be a function"):
        compiler.substitute_in_graph(int)
    compiler.substitute_in_graph(original, skip_signature_check=True)(lambda y: y)
    with pytest.raises(ValueError, match="already"):
        compiler.substitute_in_graph(original)(lambda x, n=2: x)


def test_code_knows_that_it_is_exported() -> None:
    seen = []

    class Asks(fb.nn.Module):
        def forward(self, x):
            seen.append((compiler.is_exporting(), compiler.is_compiling(), compiler.is_dynamo_compiling()))
            return x + 1

    fb.export.export(Asks(), (fb.ones(2),))
    Asks()(fb.ones(2))
    assert seen == [(True, True, False), (False, False, False)]


def test_stances() -> None:
    compiled = []
    f = fb.compile(lambda x: x + 1, backend=lambda graph, inputs: (compiled.append(1), graph.forward)[1])

    with compiler.set_stance("force_eager"):
        f(fb.ones(1))
    with compiler.set_stance("eager_on_recompile"):
        f(fb.ones(1))
    with compiler.set_stance("fail_on_recompile"), pytest.raises(RuntimeError, match="recompile"):
        f(fb.ones(1))
    assert not compiled
    f(fb.ones(1))
    with compiler.set_stance("fail_on_recompile"):
        f(fb.ones(1))
        with pytest.raises(RuntimeError, match="recompile"):
            f(fb.ones(2))
    with compiler.set_stance("eager_on_recompile"):
        assert f(fb.ones(3)).tolist() == [2, 2, 2]
    assert len(compiled) == 1
    assert f(fb.ones(3)).tolist() == [2, 2, 2]
    assert len(compiled) == 2
    with compiler.set_stance(force_backend=lambda graph, inputs: lambda *args: (fb.zeros(1),)):
        assert fb.compile(lambda x: x * 5)(fb.ones(1)).item() == 0


def test_backends_are_registered_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from flambeau._dynamo.backends import registry

    monkeypatch.setattr(_backends, "_found", dict(_backends._found))

    def twice_of_the_tests(graph: Any, inputs: Any) -> Any:
        return lambda *args: [2 * x for x in graph.forward(*args)]

    registry.register_backend(twice_of_the_tests)

    assert fb.compile(lambda x: x + 1, backend="twice_of_the_tests")(fb.ones(1)).item() == 4
    assert "twice_of_the_tests" in compiler.list_backends()
    assert registry.lookup_backend("twice_of_the_tests") is twice_of_the_tests


def test_code_knows_that_it_is_compiled() -> None:
    f = fb.compile(lambda: (compiler.is_compiling(), compiler.disable(compiler.is_compiling)(), compiler.is_compiling()))

    assert f() == (True, False, True)
    assert not compiler.is_compiling()


def test_reset_forgets() -> None:
    compiled = []
    f = fb.compile(lambda x: x + 1, backend=lambda graph, inputs: (compiled.append(1), graph.forward)[1])

    f(fb.ones(1))
    compiler.reset()
    f(fb.ones(1))

    assert len(compiled) == 2


def test_memory_written_by_no_operation_is_noticed() -> None:
    def f(x):
        y = x * 2
        x._storage[0] += 1  # what says that its memory has been written
        return y

    with pytest.raises(RuntimeError, match="was written to by no operation"):
        fb.compile(f, backend=lambda graph, inputs: graph.forward)(fb.ones(2))


def test_fullgraph_raises_at_the_limit_of_graphs() -> None:
    f = fb.compile(lambda x, n: x + len(n), backend=lambda graph, inputs: graph.forward, fullgraph=True, dynamic=False, recompile_limit=2)
    for n in ("a", "ab"):
        f(fb.ones(2), n)
    with pytest.raises(_dynamo.exc.FailOnRecompileLimitHit, match=r"was compiled 2 times.*fullgraph=True"):
        f(fb.ones(2), "abc")


def test_run_uses_the_graphs_that_there_are() -> None:
    made = []

    def backend(graph, inputs):
        made.append(tuple(inputs[0].shape))
        return graph.forward

    f = fb.compile(lambda x: x * 2, backend=backend, dynamic=False)
    f(fb.ones(3))
    only_run = _dynamo.run(f)

    assert [only_run(fb.ones(n)).tolist() for n in (3, 5)] == [[2] * 3, [2] * 5]
    assert made == [(3,)]
    f(fb.ones(5))
    assert made == [(3,), (5,)]
    assert _dynamo.run()(lambda x: x + 1)(1) == 2
    with pytest.raises(AssertionError, match="run: fn must be"):
        _dynamo.run(3)
