"""`fx.symbolic_trace` records the graphs that PyTorch records, and they compute what the program computes."""

from __future__ import annotations

import contextlib
import copy
import gc
import importlib
import io
import operator
import pickle
from math import sqrt

import numpy as np
import pytest

import flambeau as fb
from flambeau import fx
from fx.programs import PROGRAMS, spelled

torch = pytest.importorskip("torch")
torch_fx = importlib.import_module("torch.fx")

fx.wrap("sqrt")
fx.wrap("len")


@fx.wrap
def doubled(x):
    return x * 2


def both(name):
    make, shape = PROGRAMS[name]
    ours, theirs = make(fb), make(torch)
    if isinstance(ours, fb.nn.Module):
        ours.load_state_dict({k: fb.from_numpy(v.numpy()) for k, v in theirs.state_dict().items()})
        ours.eval(), theirs.eval()
    array = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    return ours, theirs, array


def leaves(value):
    return fb.utils._pytree.tree_leaves(value)


@pytest.mark.parametrize("name", PROGRAMS)
def test_graph_code_and_table_are_pytorchs(name):
    ours, theirs, _ = both(name)
    mine, expected = fx.symbolic_trace(ours), torch_fx.symbolic_trace(theirs)

    assert str(mine.graph) == spelled(str(expected.graph))
    assert mine.code == spelled(expected.code)
    assert str(mine) == spelled(str(expected))
    assert mine.print_readable(print_output=False) == spelled(expected.print_readable(print_output=False))
    assert [list(n.meta) for n in mine.graph.nodes] == [list(n.meta) for n in expected.graph.nodes]


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_was_traced_computes_the_same(name):
    ours, theirs, array = both(name)
    mine = fx.symbolic_trace(ours)

    found = leaves(mine(fb.from_numpy(array)))
    for f, e in zip(found, leaves(ours(fb.from_numpy(array))), strict=True):
        assert f.detach().numpy().tobytes() == e.detach().numpy().tobytes()
    expected = torch.utils._pytree.tree_leaves(theirs(torch.from_numpy(array)))
    for f, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(f.detach().numpy(), e.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_interpreted_transformed_copied_and_pickled_graphs_compute_the_same(name):
    ours, _, array = both(name)
    mine, x = fx.symbolic_trace(ours), fb.from_numpy(array)
    expected = leaves(mine(x))
    again = fx.symbolic_trace(mine)
    copies = {
        "interpreter": fx.Interpreter(mine).run,
        "transformer": fx.Transformer(mine).transform(),
        "deepcopy": copy.deepcopy(mine),
        "copy": copy.copy(mine),
        "pickle": pickle.loads(pickle.dumps(mine)),
        "graph": fx.GraphModule(mine, copy.deepcopy(mine.graph)),
        "traced again": again,
    }

    for how, run in copies.items():
        for f, e in zip(leaves(run(x)), expected, strict=True):
            assert f.detach().numpy().tobytes() == e.detach().numpy().tobytes(), how
    assert copies["pickle"].code == copies["deepcopy"].code == again.code == mine.code
    assert str(copies["pickle"].graph) == str(mine.graph)


def test_table_of_the_documentation():
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        fx.symbolic_trace(lambda x, y: x + y).graph.print_tabular()

    assert shown.getvalue().splitlines() == [
        "opcode         name    target                   args    kwargs",
        "-------------  ------  -----------------------  ------  --------",
        "placeholder    x       x                        ()      {}",
        "placeholder    y       y                        ()      {}",
        "call_function  add     <built-in function add>  (x, y)  {}",
        "output         output  output                   (add,)  {}",
    ]


# -- what cannot be traced -----------------------------------------------------------------------------------------------


def decides(x):
    return x if x.sum() > 0 else -x


def loops(x):
    return [y for y in x]  # noqa: C416


def unpacks(x):
    return dict(**x)


def measures(x):
    return x.shape[0] and x.__len__()


def stores(x):
    x[0] = 1
    return x


def asserts(x):
    assert x.sum() > 0
    return x


def negates(x):
    return not x


def counts(x):
    return range(x)


def converts(x):
    return int(x)


@pytest.mark.parametrize("program", [decides, loops, unpacks, stores, asserts, negates, counts, converts])
def test_errors_of_control_flow_are_pytorchs(program):
    with pytest.raises(Exception) as expected:  # noqa: PT011  # whatever PyTorch raises
        torch_fx.symbolic_trace(program)
    with pytest.raises(Exception) as found:  # noqa: PT011
        fx.symbolic_trace(program)

    assert found.type.__name__ == expected.type.__name__
    assert [c.__name__ for c in found.type.__mro__] == [c.__name__ for c in expected.type.__mro__]
    assert str(found.value) == str(expected.value)


def test_len_is_refused_unless_it_is_wrapped():
    def counted(x):
        return x.__len__()

    with pytest.raises(RuntimeError, match=r"'len' is not supported in symbolic tracing by default.*torch\.fx\.wrap\('len'\)"):
        fx.symbolic_trace(counted)


def normalize(x):
    return doubled(x / sqrt(len(x)))


def test_wrapped_functions_are_calls_in_the_graph():
    gm = fx.symbolic_trace(normalize)

    assert [n.target for n in gm.graph.nodes if n.op == "call_function"] == [len, sqrt, operator.truediv, doubled]
    assert "doubled" in gm.code
    assert "len_1 = len(x)" in gm.code
    assert 'wrap("len")' in gm.code
    x = fb.ones(4)
    assert gm(x).tolist() == normalize(x).tolist() == [1.0] * 4
    again = fx.symbolic_trace(gm)
    assert again.code == gm.code
    assert again(x).tolist() == [1.0] * 4
    assert pickle.loads(pickle.dumps(gm)).code == gm.code


def test_functions_of_math_are_calls_without_being_wrapped():
    import math

    def root(x):
        return math.sqrt(x) * math.pi

    gm = fx.symbolic_trace(root)
    assert "math_sqrt(x)" in gm.code
    assert gm(fb.tensor(4.0)) == 2 * math.pi
    assert math.sqrt(4) == 2
    assert not hasattr(math.sqrt, "__wrapped__")


def test_wrap_wants_the_top_level_of_a_module():
    with pytest.raises(NotImplementedError, match="wrap must be called at the top level of a module"):
        fx.wrap("len")
    with pytest.raises(RuntimeError, match="Unsupported type for global function"):
        fx.wrap(3)


# -- concrete arguments --------------------------------------------------------------------------------------------------


def flagged(x, flag):
    return x if flag else x * 2


def added(x):
    out = 0
    for v in x.values():
        out += v
    return out


@pytest.mark.parametrize(
    ("program", "concrete"),
    [
        (flagged, lambda m: {"flag": True}),
        (flagged, lambda m: {"flag": False}),
        (flagged, lambda m: {"flag": None}),
        (added, lambda m: {"x": {"a": m.PH, "b": m.PH, "c": m.PH}}),
        (lambda a, b: a[0] * b["k"][1], lambda m: {"a": [m.PH, 1], "b": {"k": (m.PH, m.PH)}}),
        (lambda x, *, y=2: x * y, lambda m: {"y": 3}),
    ],
)
def test_concrete_arguments_give_pytorchs_code(program, concrete):
    mine = fx.symbolic_trace(program, concrete_args=concrete(fx))
    expected = torch_fx.symbolic_trace(program, concrete_args=concrete(torch_fx))

    assert mine.code == expected.code
    assert str(mine.graph) == str(expected.graph)


def test_containers_are_taken_apart_and_put_together():
    assert fx.symbolic_trace(added, concrete_args={"x": {"a": fx.PH, "b": fx.PH, "c": fx.PH}})({"a": 1, "b": 2, "c": 4}) == 7
    pair = fx.symbolic_trace(lambda p: (p["a"] + 1, {"b": p["b"]}), concrete_args={"p": {"a": fx.PH, "b": fx.PH}})
    assert pair({"a": 1, "b": 5}) == (2, {"b": 5})


def test_a_specialized_argument_is_checked():
    gm = fx.symbolic_trace(flagged, concrete_args={"flag": False})

    assert gm(3, False) == 6
    with pytest.raises(AssertionError, match="flag has been specialized to have value False but got another value"):
        gm(3, True)


# -- signatures ----------------------------------------------------------------------------------------------------------


def annotated(x: int, y: float = 1.5) -> float:
    return x * y


def various(x, y=None, *args, k=3, **kw):
    return x + k, args[0], kw["a"]


@pytest.mark.parametrize("program", [annotated, various, lambda *, a, b=1: a, lambda x: None, lambda x: [x, {"a": (x,)}]])
def test_signatures_are_pytorchs(program):
    mine, expected = fx.symbolic_trace(program), torch_fx.symbolic_trace(program)

    assert mine.code == expected.code
    assert str(mine.graph) == str(expected.graph)


def test_variable_arguments_reach_the_graph():
    gm = fx.symbolic_trace(various)

    # As in PyTorch, what follows ``*args`` comes before it in the graph.
    assert gm(1, 2, 5, 10, a="b") == (6, 10, "b")


# -- tracers -------------------------------------------------------------------------------------------------------------


class Inner(fb.nn.Module):
    def forward(self, x):
        return fb.neg(x)


class Outer(fb.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.linear = fb.nn.Linear(2, 2)

    def forward(self, x):
        return self.inner(self.linear(x))


def test_a_tracer_says_which_modules_are_leaves():
    class KeepInner(fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return isinstance(m, Inner)

    model = Outer()
    graph = KeepInner().trace(model)

    assert [(n.op, str(n.target)) for n in graph.nodes if n.op == "call_module"] == [("call_module", "inner")]
    gm, x = fx.GraphModule(model, graph), fb.ones(1, 2)
    assert gm(x).tolist() == model(x).tolist()


def test_lines_of_the_program_are_recorded_where_asked():
    class Lines(fx.Tracer):
        record_stack_traces = True

    tracer = Lines()
    gm = fx.GraphModule(Outer(), tracer.trace(Outer()))

    (neg,) = [n for n in gm.graph.nodes if n.target is fb.neg]
    assert "return fb.neg(x)" in neg.stack_trace.splitlines()[-1]
    assert "in forward" in neg.stack_trace
    assert "code: return fb.neg(x)" in gm.print_readable(print_output=False)


def test_in_place_calls_are_refused_where_asked():
    class Functional(fx.Tracer):
        check_mutable_operations = True

    with pytest.raises(RuntimeError, match="Tried to trace mutable operation relu_"):
        Functional().trace(lambda x: fb.relu_(x))


def test_tracing_leaves_nothing_behind():
    call, get = fb.nn.Module.__call__, fb.nn.Module.__getattr__
    gc.collect()
    before = sum(count for _, count in fb._state._in_force.values())
    with pytest.raises(fx.proxy.TraceError):
        fx.symbolic_trace(decides)
    fx.symbolic_trace(Outer())

    assert fb.nn.Module.__call__ is call
    assert fb.nn.Module.__getattr__ is get
    assert not fx._symbolic_trace.is_fx_tracing()
    gc.collect()
    assert sum(count for _, count in fb._state._in_force.values()) == before


def test_modules_of_other_threads_are_not_traced():
    import threading

    found = []

    class Elsewhere(fb.nn.Module):
        def forward(self, x):
            model = fb.nn.Linear(2, 2)
            thread = threading.Thread(target=lambda: found.append(model(fb.ones(1, 2)).shape))
            thread.start()
            thread.join()
            return x + 1

    assert "x + 1" in fx.symbolic_trace(Elsewhere()).code
    assert found == [(1, 2)]


def test_two_tracers_may_not_meet():
    g, h = fx.Graph(), fx.Graph()
    a, b = fx.Proxy(g.placeholder("a")), fx.Proxy(h.placeholder("b"))

    with pytest.raises(RuntimeError, match="Found multiple different tracers"):
        fb.add(a, b)


def test_proxies_record_functions_outside_of_traces():
    graph = fx.Graph()
    tracer = fx.proxy.GraphAppendingTracer(graph)
    x = fx.Proxy(graph.placeholder("x"), tracer)

    graph.output((fb.relu((x > 0) * x) + fb.nn.functional.pad(x, (1, 1))).node)
    graph.lint()
    assert fx.GraphModule({}, graph).code.splitlines()[-1].strip() == ""
    assert "pad(x, (1, 1)" in fx.GraphModule({}, graph).code


def test_import_of_the_package_does_not_load_fx(fresh_python):
    code = "import sys, flambeau; assert not [m for m in sys.modules if m.startswith('flambeau.fx')]; flambeau.fx.Graph()"
    fresh_python("-c", code)


class Table(fb.nn.Module):
    """Constants that meet sizes, devices and dtypes of an input."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", fb.arange(6.0))

    def forward(self, x):
        rows = self.table.to(x.device).view(x.shape[0], -1) + self.table.type_as(x).narrow(0, x.shape[0] - 1, x.shape[1])
        return rows.T @ self.table.new_ones(x.shape) + self.table.repeat(x.shape[0]).sum()


def test_methods_of_constants_are_recorded_where_they_meet_what_is_traced():
    gm = fx.symbolic_trace(lambda x: fb.ones(3).to(x.device).view(x.shape[0], -1).copy_(x))

    assert "to = _tensor_constant0.to(getattr_1)" in gm.code
    assert ".view(getitem, -1)" in gm.code
    assert ".copy_(x)" in gm.code
    net = Table()
    traced = fx.symbolic_trace(net)
    assert fb.equal(traced(fb.ones(3, 2)), net(fb.ones(3, 2)))
    assert fb.equal(traced(fb.ones(6, 1)), net(fb.ones(6, 1)))
    assert "_array" not in fx.symbolic_trace(lambda x: fb.ones(3) @ x).code


@pytest.mark.parametrize(("library", "tracing"), [(fb, fx), (torch, torch_fx)], ids=["ours", "PyTorch's"])
def test_operators_are_recorded_as_the_overloads_that_are_called(library, tracing):
    aten = library.ops.aten
    gm = tracing.symbolic_trace(lambda x: aten.add.Tensor(aten.sin.default(x), x, alpha=2) + aten.cos(x) + aten.max.dim(x, 0)[0])

    targets = [str(n.target) for n in gm.graph.nodes if n.op == "call_function" and "aten" in str(n.target)]
    assert targets == ["aten.sin.default", "aten.add.Tensor", "aten.cos", "aten.max.dim"]
    assert [n.name for n in gm.graph.nodes][1:3] == ["sin_default", "add_tensor"]
    x = library.ones(2, 2)
    assert library.equal(gm(x), x.sin() + x * 2 + x.cos() + x.max(0)[0])


def test_patterns_of_operators_are_found_in_recordings():
    from flambeau.fx.experimental.proxy_tensor import make_fx

    gm = make_fx(lambda x: fb.sin(x) + fb.addmm(x, x, x))(fb.ones(2, 2))
    found = fx.replace_pattern(gm, lambda a: fb.ops.aten.sin.default(a), lambda a: fb.ops.aten.cos.default(a))

    assert len(found) == 1
    assert fb.ops.aten.cos.default in [n.target for n in gm.graph.nodes]
    assert [n.target for n in fx.symbolic_trace(gm).graph.nodes if n.op == "call_function"] == [
        n.target for n in gm.graph.nodes if n.op == "call_function"
    ]


@pytest.mark.parametrize(("library", "tracing"), [(fb, fx), (torch, torch_fx)], ids=["ours", "PyTorch's"])
def test_different_inputs_of_a_pattern_are_different_values(library, tracing):
    gm = tracing.symbolic_trace(lambda x, y: library.add(x, y) * library.add(y, y))

    found = tracing.replace_pattern(gm, lambda a, b: library.add(a, b), lambda a, b: library.sub(a, b))

    assert len(found) == 1
    assert gm(library.tensor(5.0), library.tensor(2.0)) == 12.0


@pytest.mark.parametrize(("library", "tracing"), [(fb, fx), (torch, torch_fx)], ids=["ours", "PyTorch's"])
def test_shape_propagation_names_the_node_that_fails(library, tracing):
    prop = importlib.import_module(f"{tracing.__name__}.passes.shape_prop").ShapeProp
    gm = tracing.symbolic_trace(lambda x: library.sin(x).nothing_of_that_name())

    with pytest.raises(RuntimeError, match="ShapeProp error for: node=%nothing_of_that_name") as caught:
        prop(gm).propagate(library.ones(2))

    assert isinstance(caught.value.__cause__, AttributeError)
