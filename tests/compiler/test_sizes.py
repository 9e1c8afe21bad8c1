"""Graphs for many sizes: how many a backend of the program's own is given, what they are given, and that results stay right."""

from __future__ import annotations

import gc
import importlib.util
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau import _dynamo
from flambeau._functorch.aot_autograd import make_boxed_func
from flambeau._inductor.compile_fx import compile_fx
from flambeau.compiler import _sizes
from flambeau.fx.passes.shape_prop import ShapeProp

SHAPES = [(3, 2), (4, 2), (5, 2), (6, 2)]


def scaled(x: Any) -> Any:
    return (x * 2 + 1).sum(0) * x.shape[0]


def product(x: Any, y: Any) -> Any:
    return x @ y.t() + x.reshape(-1).sum()


def counted(torch: Any, f: Callable[..., Any], calls: list[Any], mark: str | None = None, **settings_: Any) -> list[list[Any]]:
    """Of each graph that a backend is given, what the inputs are: shapes of tensors, and "n" for a number. Results have to be right."""
    graphs: list[list[Any]] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append([tuple(map(int, x.shape)) if isinstance(x, torch.Tensor) else "n" for x in inputs])
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(f, backend=backend, **settings_)
    for call in calls:
        args = [torch.ones(*a) if isinstance(a, tuple) else a for a in (call if isinstance(call, list) else [call])]
        if mark is not None:
            getattr(torch._dynamo, mark)(args[0], 0)
        assert torch.equal(compiled(*args), f(*args))
    return graphs


# By name: a function, its calls, how a dimension is marked, and settings of `compile`.
CASES: dict[str, tuple[Any, list[Any], str | None, dict[str, Any]]] = {
    "a size that changes": (scaled, SHAPES, None, {}),
    "all sizes": (scaled, SHAPES, None, {"dynamic": True}),
    "no sizes": (scaled, SHAPES, None, {"dynamic": False}),
    "a marked size": (scaled, SHAPES, "mark_dynamic", {}),
    "a marked size alone": (scaled, SHAPES, "mark_dynamic", {"dynamic": False}),
    "a size that may be one": (scaled, SHAPES, "maybe_mark_dynamic", {}),
    "1, which is never an input": (scaled, [(1, 2), *SHAPES], "mark_dynamic", {}),
    "equal sizes apart": (scaled, [(3, 3), (4, 4), (4, 5)], None, {}),
    "equal sizes at once": (scaled, [(3, 3), (4, 4), (4, 5)], None, {"dynamic": True}),
    "several inputs at once": (product, [[(3, 2), (4, 2)], [(5, 2), (4, 2)], [(5, 3), (7, 3)]], None, {"dynamic": True}),
    "an int": (lambda x, n: x * n, [[(2,), n] for n in (2, 3, 0, 1, -4)], None, {}),
    "a branch by a size": (lambda x: x.sum() if x.shape[0] > 4 else x * 2, SHAPES, None, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_graphs_are_as_many_as_pytorchs_and_have_as_many_numbers(oracle: Any, name: str) -> None:
    f, calls, mark, given_ = CASES[name]

    ours, theirs = (counted(torch, f, calls, mark, **given_) for torch in (fb, oracle))

    assert [sorted(graph, key=str) for graph in ours] == [sorted(graph, key=str) for graph in theirs]

def test_another_number_of_dimensions_is_another_graph() -> None:
    assert counted(fb, lambda x: x.sum(-1).softmax(0), [(3,) * k for k in (2, 3, 4)]) == [[(3, 3)], [(3, 3, 3)], [(3, 3, 3, 3)]]


def test_numbers_that_python_computes_of_sizes_are_inputs_too() -> None:
    def f(x: Any) -> Any:
        return x.reshape(x.shape[0] // 2, 2, -1)[: x.shape[0] // 4] * (1.5 * x.shape[0])

    graphs = counted(fb, f, [(8,), (16,), (24,), (8,)])

    assert graphs == [[(8,)], ["n", (16,), "n", "n", "n"]]


def test_symbols_come_before_the_input_whose_sizes_they_are() -> None:
    seen: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        seen.append((graph, inputs))
        return graph.forward

    f = fb.compile(product, backend=backend, dynamic=True)
    assert f(fb.ones(3, 2), fb.ones(4, 2)).shape == (3, 4)
    graph, inputs = seen[0]

    assert [int(x) if isinstance(x, fb.SymInt) else tuple(x.shape) for x in inputs] == [4, 2, (4, 2), 3, (3, 2)]
    values = [node.meta["example_value"] for node in graph.graph.nodes if node.op == "placeholder"]
    assert [x if isinstance(x, fb.SymInt) else (tuple(x.shape), x.device.type) for x in values] == [
        inputs[0], inputs[1], ((4, 2), "meta"), inputs[3], ((3, 2), "meta"),
    ]  # fmt: skip
    first = weakref.ref(inputs[2])                    # the graph keeps the looks of inputs alone
    seen.clear()
    del inputs, values
    gc.collect()
    assert first() is None


def test_what_is_compiled_serves_more_shapes_than_are_recorded() -> None:
    graphs: list[Any] = []
    f = fb.compile(lambda x: x * 2 + x.shape[0], backend=lambda graph, inputs: (graphs.append(1), graph.forward)[1])

    assert [f(fb.ones(n))[0].item() for n in range(2, 300)] == [2 + n for n in range(2, 300)]
    assert len(graphs) == 2
    assert f(fb.ones(1)).tolist() == [3]
    assert len(graphs) == 3


def test_shapes_are_served_where_compiling_is_an_error() -> None:
    f = fb.compile(lambda x: x * 2, backend=lambda graph, inputs: graph.forward)
    f(fb.ones(3)), f(fb.ones(4))

    with _dynamo.config.patch(error_on_recompile=True), fb.compiler.set_stance("fail_on_recompile"):
        assert f(fb.ones(5)).tolist() == [2] * 5
        with pytest.raises(RuntimeError, match="Detected recompile"):
            f(fb.ones(5, 2))


def test_what_looks_otherwise_has_graphs_of_its_own() -> None:
    graphs: list[Any] = []
    f = fb.compile(lambda x: x * 2 + 1, backend=lambda graph, inputs: (graphs.append(1), graph.forward)[1])
    x = fb.ones(4, 6)
    calls = [x, fb.ones(5, 6), x.double(), x.clone().requires_grad_(), x.t(), x[:, ::2], fb.ones(6, 4).t(), fb.ones(7, 6)]

    counts = []
    for a in calls:
        assert fb.equal(f(a), a * 2 + 1)
        counts.append(len(graphs))
    with fb.no_grad():
        f(x)

    assert counts == [1, 2, 3, 4, 5, 6, 6, 6]
    assert len(graphs) == 7


def test_settings_say_which_sizes_may_be_inputs() -> None:
    with _dynamo.config.patch(automatic_dynamic_shapes=False):
        assert len(counted(fb, scaled, SHAPES)) == 4
    with _dynamo.config.patch(assume_static_by_default=False):
        assert counted(fb, scaled, SHAPES) == [["n", "n", (3, 2)]]
    ints = [[(2,), n] for n in (2, 3, 4)]
    with _dynamo.config.patch(specialize_int=True):
        assert len(counted(fb, lambda x, n: x * n, ints)) == 3
    assert len(counted(fb, scaled, SHAPES, "mark_static")) == 4


def test_parameters_have_one_size() -> None:
    layer = fb.nn.Linear(3, 4)

    assert counted(fb, layer, [(k, 3) for k in (2, 3, 4, 5)]) == [[(2, 3), (4, 3), (4,)], ["n", (3, 3), (4, 3), (4,)]]
    assert counted(fb, layer, [(k, 3) for k in (2, 3, 4, 5)], dynamic=True) == [["n", "n", (2, 3), (4, 3), (4,)]]


@pytest.mark.parametrize("handed_on", ["aot", "inner", "inductor", "propagated"])
def test_graphs_for_many_sizes_may_be_handed_on(handed_on: str) -> None:
    counts = [0]
    layer = fb.nn.Linear(3, 4)

    def compiler(graph: Any, inputs: Any) -> Any:
        counts[0] += 1
        return make_boxed_func(graph.forward)

    def propagating(graph: Any, inputs: Any) -> Any:
        counts[0] += 1
        ShapeProp(graph).propagate(*inputs)
        assert graph(*inputs)[0].shape == (inputs[0 if len(inputs) == 3 else 1].shape[0], 4)
        return graph

    backend = {
        "aot": _dynamo.backends.common.aot_autograd(fw_compiler=compiler),
        "inner": lambda graph, inputs: compile_fx(graph, inputs, inner_compile=compiler),
        "inductor": lambda graph, inputs: (counts.__setitem__(0, counts[0] + 2), compile_fx(graph, inputs))[1],
        "propagated": propagating,
    }[handed_on]

    def f(x: Any) -> Any:
        return fb.relu(layer(x.reshape(x.shape[0] * 1, 3))) * x.shape[0] / (x.shape[0] + 0.5)

    compiled = fb.compile(f, backend=backend)
    for n in (3, 4, 5, 6, 4):
        x = fb.randn(n, 3, requires_grad=True)
        expected = f(x)
        found = compiled(x)
        assert fb.equal(found, expected)
        (wanted,), (grad,) = fb.autograd.grad(expected.sum(), x), fb.autograd.grad(found.sum(), x)
        assert fb.allclose(grad, wanted, rtol=1e-6)
    assert counts[0] == (2 if handed_on == "propagated" else 4)  # of operators, forward and backward apart


@pytest.mark.parametrize("numbers", [(5, 1, 7), (0, 1, 2, 3), (1, 0, 5, 2), (2.5, 0.0, 1.0, -0.0)])
def test_numbers_that_begin_with_0_or_1_are_inputs_of_graphs_of_operators(numbers: tuple[float, ...]) -> None:
    f = fb.compile(lambda x, k: x * k + 1, backend=_dynamo.backends.common.aot_autograd(fw_compiler=lambda graph, inputs: graph))

    assert [f(fb.ones(1), k).item() for k in numbers] == [k + 1 for k in numbers]


def test_graphs_of_operators_are_made_in_inference_mode() -> None:
    f = fb.compile(lambda x: x * x.shape[0], backend=_dynamo.backends.common.aot_autograd(fw_compiler=lambda graph, inputs: graph))

    with fb.inference_mode():
        assert [f(fb.ones(n)).tolist() for n in (2, 3, 4)] == [[n] * n for n in (2, 3, 4)]


def test_without_sympy_each_size_has_a_graph_of_its_own(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(_sizes.importlib.util, "find_spec", lambda name: None if name == "sympy" else find(name))

    assert counted(fb, scaled, SHAPES) == [[shape] for shape in SHAPES]
    assert "flambeau[symbolic]" in caplog.text


STEPS: list[Callable[[Any], Any]] = [
    lambda x: x * x.shape[0],
    lambda x: x.reshape(-1, x.shape[0]),
    lambda x: x[: max(x.shape[0] // 2, 1)],
    lambda x: fb.cat([x, x]),
    lambda x: x.t().contiguous(),
    lambda x: x + x.sum(0, keepdim=True) / x.shape[-1],
    lambda x: fb.nn.functional.pad(x, (0, x.shape[0] % 3)),
    lambda x: x.expand(x.shape[0], x.shape[1]).narrow(0, 0, x.shape[0]),
]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(range(len(STEPS))), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=6), st.sampled_from([None, True, False]),
)  # fmt: skip
def test_results_are_those_of_the_function_for_all_sizes(chain: list[int], shapes: list[tuple[int, int]], dynamic: bool | None) -> None:
    def f(x: Any) -> Any:
        for at in chain:
            x = STEPS[at](x)
        return x

    def tried(g: Callable[[Any], Any], x: Any) -> Any:
        try:
            return g(x)
        except (RuntimeError, ZeroDivisionError) as error:  # of an empty tensor, whose -1 could be any number
            return type(error)

    compiled = fb.compile(f, backend=lambda graph, inputs: graph.forward, dynamic=dynamic, recompile_limit=100)
    for shape in shapes:
        x = fb.arange(float(shape[0] * shape[1])).reshape(shape)
        expected, found = tried(f, x), tried(compiled, x)
        assert fb.equal(found, expected) if isinstance(expected, fb.Tensor) else found is expected


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x[1:] * x[:-1], lambda x: x[:2] * 2, lambda x: x[::2] * x.shape[0], lambda x: x[-3:].sin(),
        lambda x: x.roll(x.shape[0] // 2, 0),
    ],
    ids=["shifted", "front", "every other", "end", "rolled"],
)  # fmt: skip
def test_gradients_of_slices_are_for_many_sizes(f: Callable[[Any], Any]) -> None:
    graphs: list[Any] = []

    def compiler(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    compiled = fb.compile(f, backend=_dynamo.backends.common.aot_autograd(fw_compiler=compiler))
    for n in range(6, 16, 2):
        x = fb.randn(n, requires_grad=True)
        assert fb.equal(fb.autograd.grad(compiled(x).sum(), x)[0], fb.autograd.grad(f(x).sum(), x)[0])
    assert len(graphs) == 4                           # forward and backward apart, for one size and for all others


@pytest.mark.parametrize("name", ["lstm", "jvp"])
def test_inputs_of_graphs_of_operators_may_be_parts_of_one_memory(name: str) -> None:
    """Symbols of the sizes of that memory, which was an argument when it was first looked at, were those of its parts."""
    layer = fb.nn.LSTM(3, 4)

    def f(x: Any) -> Any:
        return layer(x)[0] if name == "lstm" else fb.func.jvp(lambda r: (r * 2 + 1).sin() * r, (x,), (x,))[1]

    compiled = fb.compile(f, backend=_dynamo.backends.common.aot_autograd(fw_compiler=lambda graph, inputs: graph))
    for batch in (2, 4, 5):
        x = fb.randn(3, batch, 3)
        assert fb.allclose(compiled(x), f(x), atol=1e-6)


def test_no_input_is_kept_alive() -> None:
    for backend in (lambda graph, inputs: graph.forward, _dynamo.backends.common.aot_autograd(fw_compiler=lambda graph, inputs: graph)):
        f = fb.compile(lambda x: (x * 2).sin(), backend=backend)
        for n in (3, 4, 5):
            x = fb.ones(n, requires_grad=True)
            f(x)
            there = weakref.ref(x)
            del x
            gc.collect()
            assert there() is None


@pytest.mark.parametrize(
    ("bounds", "says"), [({"min": 7, "max": 10}, r"6 not in range \[7, 10\]"), ({"max": 5}, r"6 not in range \[0, 5\]")],
)  # fmt: skip
def test_a_size_outside_the_range_of_its_mark_is_an_error(bounds: dict[str, int], says: str) -> None:
    from flambeau.fx.experimental.symbolic_shapes import ConstraintViolationError

    x = fb.ones(6, 4)
    fb._dynamo.mark_dynamic(x, 0, **bounds)
    with pytest.raises(ConstraintViolationError, match=says):
        fb.compile(lambda x: x * 2, backend=lambda graph, inputs: graph.forward)(x)
    y = fb.ones(8, 4)
    fb._dynamo.mark_dynamic(y, [0], min=7, max=10)
    assert fb.compile(lambda x: x * 2, backend=lambda graph, inputs: graph.forward)(y).shape == (8, 4)
    with pytest.raises(TypeError):
        fb._dynamo.mark_dynamic(y, 0, smallest=3)
