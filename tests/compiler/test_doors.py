"""Names by which programs reach the compiler: settings of `compile`, filters of guards, `_inductor.compile`, `compile_fx`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import flambeau as fb
from flambeau import compiler
from flambeau._inductor import compile_fx as doors

FILTERS = (
    "keep_portable_guards_unsafe", "keep_tensor_guards_unsafe", "skip_all_guards_unsafe", "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe", "skip_guard_on_inbuilt_nn_modules_unsafe",
)  # fmt: skip


def entries(parameter: Any, tensor: Any) -> list[Any]:
    """What PyTorch gives to filters of guards: one of each kind that a filter tells apart."""

    def entry(kind: str, value: Any, is_global: bool = False, module: bool = False, own: bool = False) -> Any:
        source = SimpleNamespace(is_unspecialized_nn_module=lambda: module, is_unspecialized_builtin_nn_module=lambda: own)
        return SimpleNamespace(
            name="x", guard_type=kind, value=value, is_global=is_global, has_value=True, orig_guard=SimpleNamespace(source=source)
        )

    return [
        entry("TENSOR_MATCH", tensor), entry("TENSOR_MATCH", parameter), entry("TENSOR_MATCH", tensor, is_global=True),
        entry("SHAPE_ENV", None), entry("GLOBAL_STATE", None), entry("GRAD_MODE", None), entry("CONSTANT_MATCH", 3, is_global=True),
        entry("TYPE_MATCH", None, module=True), entry("TYPE_MATCH", None, module=True, own=True),
    ]  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("name", FILTERS)
def test_filters_of_guards_keep_what_those_of_pytorch_keep(name: str, oracle: Any) -> None:
    ours = getattr(compiler, name)(entries(fb.nn.Parameter(fb.ones(1)), fb.ones(1)))
    theirs = getattr(oracle.compiler, name)(entries(oracle.nn.Parameter(oracle.ones(1)), oracle.ones(1)))
    assert ours == theirs


def test_parameters_are_kept_where_that_is_asked_for() -> None:
    given = entries(fb.nn.Parameter(fb.ones(1)), fb.ones(1))
    assert compiler.keep_tensor_guards_unsafe(given, keep_parameters=True)[:3] == [True, True, True]


@pytest.mark.parametrize("name", FILTERS)
def test_compile_takes_filters_of_guards(name: str) -> None:
    f = fb.compile(lambda x: x * 2, options={"guard_filter_fn": getattr(compiler, name)})
    assert f(fb.ones(2)).tolist() == [2, 2]


def test_a_backend_is_not_given_the_filter() -> None:
    seen: list[Any] = []

    def backend(graph: Any, inputs: Any, **settings: Any) -> Any:
        seen.append(settings)
        return graph.forward

    for options in ({"guard_filter_fn": compiler.skip_all_guards_unsafe}, {"guard_filter_fn": len, "a": 3}):
        fb.compile(lambda x: x * 2, backend=backend, options=options)(fb.ones(2))
    assert seen == [{}, {"options": {"a": 3}}]
    with pytest.raises(TypeError, match="must be a function of a list of guards"):
        fb.compile(lambda x: x, options={"guard_filter_fn": 3})


@pytest.mark.parametrize(("limit", "expected"), [(None, 8), (2, 2), (0, 0), (20, 12)])
def test_a_function_may_have_a_limit_of_its_own_for_graphs(limit: int | None, expected: int) -> None:
    made: list[Any] = []
    f = fb.compile(
        lambda x, n: x * n, backend=lambda graph, inputs: (made.append(1), graph.forward)[1], dynamic=False, recompile_limit=limit
    )  # fmt: skip

    assert [f(fb.ones(1), n).item() for n in range(12)] == list(range(12))
    assert len(made) == expected


def test_the_default_backend_is_the_one_that_was_set() -> None:
    made: list[Any] = []
    compiler.set_default_backend(lambda graph, inputs: (made.append(1), graph.forward)[1])
    try:
        assert fb.compile(lambda x: x * 2)(fb.ones(2)).tolist() == [2, 2]
        fb.compile(lambda x: x * 2, backend="inductor")(fb.ones(2))
        assert made == [1]
        compiler.set_default_backend("no such backend")
        with pytest.raises(fb._dynamo.exc.InvalidBackend):
            fb.compile(lambda x: x)
        with pytest.raises(TypeError, match="must be a string or callable"):
            compiler.set_default_backend(3)
    finally:
        compiler.set_default_backend(None)
    assert compiler.get_default_backend() == "inductor"


def test_inductor_compiles_a_graph() -> None:
    x, y = fb.randn(512, 256), fb.randn(512, 256)

    def f(x: Any, y: Any) -> Any:
        return (x * 2 + y).sigmoid() * y, x + 1

    found = fb._inductor.compile(fb.fx.symbolic_trace(f), [x, y])
    for _ in range(4):
        results = found(x, y)
    assert isinstance(results, list)
    assert all(fb.equal(a, b) for a, b in zip(results, f(x, y), strict=True))
    assert fb._inductor.compile(fb.fx.symbolic_trace(lambda x: x * 2), [x])(fb.ones(2)).tolist() == [2, 2]
    with pytest.raises(AttributeError, match="zz does not exist"):
        fb._inductor.compile(fb.fx.symbolic_trace(f), [x, y], options={"zz": 3})


def test_a_backend_may_change_a_graph_and_hand_it_to_compile_fx() -> None:
    def backend(graph: Any, inputs: Any) -> Any:
        for node in graph.graph.nodes:
            if node.target is fb.relu:
                node.target = fb.sigmoid
        graph.recompile()
        return doors.compile_fx(graph, inputs)

    f = fb.compile(lambda x: fb.relu(x * 2).sum(), backend=backend)
    x = fb.randn(300, 300, requires_grad=True)
    for _ in range(4):
        (gradient,) = fb.autograd.grad(f(x), x)
    (expected,) = fb.autograd.grad(fb.sigmoid(x * 2).sum(), x)
    assert fb.equal(f(x), fb.sigmoid(x * 2).sum())
    assert fb.equal(gradient, expected)


def test_an_inner_compiler_is_given_graphs_of_operators() -> None:
    seen: list[Any] = []

    def inner(graph: Any, inputs: Any, **settings: Any) -> Any:
        seen.append([node.target for node in graph.graph.nodes if node.op == "call_function"])
        return doors.compile_fx_inner(graph, inputs, **settings)

    f = fb.compile(lambda x: (x.sin() * 2).sum(), backend=lambda graph, inputs: doors.compile_fx(graph, inputs, inner_compile=inner))
    x = fb.randn(3, requires_grad=True)
    (gradient,) = fb.autograd.grad(f(x), x)

    assert fb.equal(gradient, x.cos() * 2)
    assert len(seen) == 2
    assert fb.ops.aten.sin.default in seen[0]
    assert fb.ops.aten.cos.default in seen[1]


def test_what_is_not_built_says_so() -> None:
    with pytest.raises(NotImplementedError, match="is not built yet"):
        fb._inductor.aot_compile(None, ())


@pytest.mark.oracle
def test_settings_of_aot_autograd_are_those_of_pytorch(oracle: Any) -> None:
    from torch._functorch import config as theirs

    ours = fb._functorch.config
    known = {name: value for name, value in vars(ours).items() if name in ours._SETTINGS}
    assert len(known) > 50
    assert known == {name: getattr(theirs, name) for name in known}


def test_settings_of_aot_autograd_are_kept() -> None:
    config = fb._functorch.config
    with config.patch(donated_buffer=False, activation_memory_budget=0.5):
        assert (config.donated_buffer, config.activation_memory_budget) == (False, 0.5)
    assert config.donated_buffer is True
    with pytest.raises(AttributeError, match=r"torch\._functorch\.config\.no_such does not exist"):
        config.no_such = 1
    with pytest.raises(AttributeError, match="no_such does not exist"), config.patch("no_such", 1):
        pass
