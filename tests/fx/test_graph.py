"""Graphs and nodes: making, moving, replacing and erasing them, the checks, and GraphModules of them."""

from __future__ import annotations

import gc
import importlib
import linecache
import operator
import pickle
import sys

import pytest

import flambeau as fb
from flambeau import fx

torch = pytest.importorskip("torch")
torch_fx = importlib.import_module("torch.fx")
hypothesis = pytest.importorskip("hypothesis")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

KINDS = ("function", "method", "erase", "replace", "before", "after", "move", "dead", "arg", "copy")


def edited(package, steps):
    """A graph of `package` after `steps`, with what each step said, or the type of its error."""
    tensors = fb if package is fx else torch
    graph = package.Graph()
    nodes = [graph.placeholder("x"), graph.placeholder("y")]
    graph.output((nodes[0], nodes[1]))
    said = []
    for kind, i, j, k in steps:
        live = [n for n in nodes if not n._erased]
        a, b = live[i % len(live)], live[j % len(live)]
        try:
            said.append(step(graph, nodes, kind, a, b, k, tensors))
        except (RuntimeError, AssertionError) as error:
            said.append(type(error).__name__)
    return graph, said


def step(graph, nodes, kind, a, b, k, tensors):
    functions = [tensors.add, tensors.relu, operator.mul, tensors.cat, sum]
    if kind == "function":
        with graph.inserting_before(graph.output_node()):
            more = () if k % 5 == 2 else (slice(b, None),)
            nodes.append(graph.call_function(functions[k % 5], (a, [b, {"k": a}], *more), {"alpha": b} if more else {}))
    elif kind == "method":
        with graph.inserting_after(a):
            nodes.append(graph.call_method(["relu", "addMul", "__add__", "sum"][k % 4], (a, k)))
    elif kind == "erase":
        graph.erase_node(a)
    elif kind == "replace":
        return [n.name for n in a.replace_all_uses_with(b, delete_user_cb=lambda user: k % 3 > 0 or user is not b)]
    elif kind == "before":
        with graph.inserting_before(a):
            nodes.append(graph.create_node("call_function", tensors.neg, (b,), {}, name=["n", "neg_5", "x_1", "max"][k % 4]))
    elif kind == "after":
        with graph.inserting_after(a):
            nodes.append(graph.get_attr(["w", "layer.weight", "layer.0.bias"][k % 3]))
    elif kind == "move":
        if a is not b:
            (a.prepend if k % 2 else a.append)(b)
    elif kind == "dead":
        return graph.eliminate_dead_code()
    elif kind == "arg":
        if a.op == "call_function":
            a.update_arg(0, b)
            a.insert_arg(1, (b, k))
            a.update_kwarg("beta", a)
    elif kind == "copy":
        with graph.inserting_before(graph.output_node()):
            nodes.append(graph.node_copy(a))
    return None


steps = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), max_size=14
)  # fmt: skip


@settings(max_examples=60)
@given(steps)
def test_edits_leave_the_graph_that_pytorch_has(plan):
    mine, said = edited(fx, plan)
    expected, expected_said = edited(torch_fx, plan)

    assert said == expected_said
    assert str(mine) == str(expected)
    assert [[n.name for n in node.users] for node in mine.nodes] == [[n.name for n in node.users] for node in expected.nodes]
    assert [[n.name for n in node.all_input_nodes] for node in mine.nodes] == [
        [n.name for n in node.all_input_nodes] for node in expected.nodes
    ]
    assert [n.name for n in reversed(mine.nodes)] == [n.name for n in reversed(expected.nodes)]
    assert len(mine.nodes) == len(expected.nodes) == len(list(mine.nodes))
    assert lint(mine) == lint(expected)
    assert mine.python_code("self").src == expected.python_code("self").src
    assert [n.name for n in sorted(mine.nodes)] == [n.name for n in mine.nodes]


def lint(graph):
    try:
        graph.lint()
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return None


@settings(max_examples=40)
@given(steps)
def test_pickled_and_copied_graphs_are_equal(plan):
    import copy

    graph, _ = edited(fx, plan)
    if lint(graph) is not None:
        return

    assert str(pickle.loads(pickle.dumps(graph))) == str(graph)
    assert str(copy.deepcopy(graph)) == str(graph)


@settings(max_examples=200)
@given(st.lists(st.sampled_from(
    ["add", "add_1", "add_5", "add_05", "sum", "sum_1", "sum_9", "x", "x_0", "x_00", "self", "torch", "inf", "int_2", "1a", "a b",
     "FooBar", "", "_", "__a__", "class", "len_1", "_1", "a__1", "device"]), max_size=12))  # fmt: skip
def test_names_are_those_that_pytorch_gives(names):
    def given_names(package):
        graph = package.Graph()
        return [graph.create_node("placeholder", "p", name=name).name for name in names]

    assert given_names(fx) == given_names(torch_fx)


# -- what is refused -----------------------------------------------------------------------------------------------------


def refusals(package, tensors):
    def graph():
        g = package.Graph()
        return g, g.placeholder("x")

    def erase_used():
        g, x = graph()
        g.call_function(tensors.relu, (x,))
        g.erase_node(x)

    def erase_elsewhere():
        _g, x = graph()
        graph()[0].erase_node(x)

    def move_elsewhere():
        graph()[1].prepend(graph()[1])

    def insert_elsewhere():
        graph()[0].inserting_before(graph()[1])

    def use_elsewhere():
        g, _ = graph()
        g.call_function(operator.neg, (graph()[1],))
        g.lint()

    def unknown_op():
        graph()[0].create_node("bad", "x")

    def no_function():
        graph()[0].call_function("text")

    def no_name():
        package.Node(graph()[0], "a", "call_method", len, (), {})

    def list_of_args():
        graph()[0].create_node("call_function", len, [1])

    def missing_target():
        g, x = graph()
        g.output(g.call_module("zzz", (x,)))
        package.GraphModule(tensors.nn.Module(), g)

    def missing_key():
        g, x = graph()
        g.output(g.call_module("zzz", (x,)))
        package.GraphModule({}, g)

    def odd_root():
        package.GraphModule(3, graph()[0])

    def no_graph():
        g, x = graph()
        g.output(x)
        package.GraphModule({}, g).graph = 3

    def no_output():
        graph()[0].output_node()

    def any_function():
        graph()[0].find_nodes(op="call_function")

    def changes_args():
        g, x = graph()
        g.call_function(sum, ([x],)).args[0].append(x)

    def changes_kwargs():
        g, x = graph()
        g.call_function(sum, (), {"a": x}).kwargs["a"] = 1

    def sets_item():
        package.immutable_collections.immutable_list([1])[0] = 2

    def nothing_to_trace():
        package.symbolic_trace(3)

    def unknown_value():
        package.symbolic_trace(lambda x: (x, object()))

    def set_of_nodes():
        package.symbolic_trace(lambda x: {x})

    def node_as_key():
        package.symbolic_trace(lambda x: {(x,): 1})

    return {f.__name__: f for f in locals().values() if callable(f) and getattr(f, "__code__", None) and not f.__code__.co_argcount
            and f is not graph}  # fmt: skip


@pytest.mark.parametrize("name", refusals(fx, fb))
def test_refusals_are_pytorchs(name):
    with pytest.raises(Exception) as expected:  # noqa: PT011  # whatever PyTorch raises
        refusals(torch_fx, torch)[name]()
    with pytest.raises(Exception) as found:  # noqa: PT011
        refusals(fx, fb)[name]()

    assert found.type is expected.type
    assert str(found.value).splitlines()[0] == str(expected.value).splitlines()[0]


# -- GraphModules --------------------------------------------------------------------------------------------------------


class Nested(fb.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = fb.nn.Sequential(fb.nn.Linear(2, 3), fb.nn.ReLU())
        self.unused = fb.nn.Linear(1, 1)
        self.register_buffer("offset", fb.ones(3))

    def forward(self, x):
        return self.layers(x) + self.offset


def test_code_follows_the_graph_after_recompile():
    gm = fx.symbolic_trace(lambda x, y: fb.add(x, y))
    (node,) = gm.graph.find_nodes(op="call_function", target=fb.add)
    node.target = fb.mul
    assert gm(fb.tensor(3.0), fb.tensor(4.0)) == 7
    gm.recompile()

    assert gm(fb.tensor(3.0), fb.tensor(4.0)) == 12
    assert "torch.mul(x, y)" in gm.code


def test_submodules_are_added_and_deleted():
    gm = fx.symbolic_trace(Nested())
    assert [n for n, _ in gm.named_modules() if n] == ["layers", "layers.0", "layers.1"]

    assert gm.add_submodule("a.b", fb.nn.ReLU())
    assert not gm.add_submodule("offset.b", fb.nn.ReLU())
    assert gm.get_submodule("a.b")(fb.tensor(-1.0)) == 0
    gm.delete_all_unused_submodules()
    assert not hasattr(gm, "a")
    assert gm.delete_submodule("layers.1")
    assert not gm.delete_submodule("layers.1")
    assert not gm.delete_submodule("no.where")
    with pytest.raises(RuntimeError, match=r"Node layers_1 target layers\.1 references nonexistent attribute 1 of layers"):
        gm.graph.lint()


def test_state_is_shared_with_the_module_that_was_traced():
    model = Nested()
    gm = fx.symbolic_trace(model)

    assert gm.layers[0] is model.layers[0] if isinstance(gm.layers, fb.nn.Sequential) else gm.get_submodule("layers.0") is model.layers[0]
    assert list(gm.state_dict()) == ["offset", "layers.0.weight", "layers.0.bias"] or set(gm.state_dict()) == {
        "offset", "layers.0.weight", "layers.0.bias",
    }  # fmt: skip
    gm(fb.ones(1, 2)).sum().backward()
    assert model.layers[0].weight.grad is not None


def test_hooks_hear_of_nodes_that_are_made_replaced_and_erased():
    gm = fx.symbolic_trace(lambda x: fb.relu(x))
    heard = []
    gm._register_create_node_hook(lambda node: heard.append(("made", node.name)))
    gm._register_erase_node_hook(lambda node: heard.append(("erased", node.name)))
    relu = next(n for n in gm.graph.nodes if n.op == "call_function")
    with gm.graph.inserting_after(relu), gm._set_replace_hook(lambda old, new, user: heard.append((old.name, new, user.name))):
        neg = gm.graph.call_function(fb.neg, (relu.args[0],))
        relu.replace_all_uses_with(neg)
    gm.graph.erase_node(relu)

    assert heard == [("made", "neg"), ("relu", "neg", "output"), ("erased", "relu")]


def test_code_may_be_changed_when_it_is_generated():
    gm = fx.symbolic_trace(lambda x: x + 1)
    with gm.graph.on_generate_code(lambda _: lambda body: ["x = x * 10\n", *body]):
        gm.recompile()
    assert gm(2) == 21
    gm.recompile()
    assert gm(2) == 3


def test_a_module_written_to_a_folder_is_imported(tmp_path, monkeypatch):
    gm, x = fx.symbolic_trace(Nested()), fb.ones(2, 2)
    gm.to_folder(tmp_path / "written_module", "Written")
    monkeypatch.syspath_prepend(str(tmp_path))
    made = importlib.import_module("written_module").Written()
    del sys.modules["written_module"]

    assert made(x).tolist() == gm(x).tolist()
    assert made.state_dict().keys() == gm.state_dict().keys()


def test_an_error_names_the_generated_line():
    gm = fx.symbolic_trace(lambda x: fb.matmul(x, x))

    with pytest.raises(RuntimeError) as found:
        gm(fb.ones(2, 3))
    assert any("matmul = torch.matmul(x, x)" in note for note in found.value.__notes__)
    with pytest.raises(RuntimeError) as found:
        fx.Interpreter(gm).run(fb.ones(2, 3))
    assert "\n\nWhile executing %matmul" in str(found.value)


def test_interpreter_keeps_values_where_asked():
    gm = fx.symbolic_trace(lambda x: fb.relu(x) + 1)
    kept, freed = fx.Interpreter(gm, garbage_collect_values=False), fx.Interpreter(gm)
    kept.run(fb.tensor(2.0)), freed.run(fb.tensor(2.0))

    assert [n.name for n in kept.env] == ["x", "relu", "add", "output"]
    assert [n.name for n in freed.env] == ["output"]
    boxed = [fb.tensor(2.0)]
    assert freed.boxed_run(boxed) == 3
    assert boxed == []
    with pytest.raises(RuntimeError, match="Expected positional argument for parameter x, but one was not passed in!"):
        freed.run()


def test_transformer_replaces_calls():
    class Swapped(fx.Transformer):
        def call_function(self, target, args, kwargs):
            return super().call_function(fb.sigmoid if target is fb.neg else target, args, kwargs)

        def call_method(self, target, args, kwargs):
            return super().call_method("neg" if target == "sigmoid" else target, args, kwargs)

    gm = Swapped(fx.symbolic_trace(lambda x: fb.neg(x).sigmoid())).transform()
    x = fb.tensor([1.0, -2.0])

    assert gm(x).tolist() == fb.sigmoid(x).neg().tolist()


def test_dead_code_with_effects_stays():
    def program(x):
        fb.neg(x)
        fb._assert(x.sum() < 10, "too much")
        fb.relu_(x)
        return x + 1

    gm = fx.symbolic_trace(program)
    assert gm.graph.eliminate_dead_code()
    assert not gm.graph.eliminate_dead_code()
    gm.recompile()

    assert [n.name for n in gm.graph.nodes] == ["x", "sum_1", "lt", "_assert", "relu_", "add", "output"]
    with pytest.raises(AssertionError, match="too much"):
        gm(fb.tensor([20.0]))


def test_texts_of_graphs_that_are_gone_are_not_kept():
    traced = fx.symbolic_trace(fb.nn.ReLU())
    file = type(traced).forward.__code__.co_filename
    assert "relu" in "".join(linecache.getlines(file))

    del traced
    gc.collect()

    assert file not in linecache.cache


class Missing(dict):
    def __missing__(self, key):
        raise KeyError(key)


fx.wrap("looked_up")


def looked_up(x):
    return Missing()["q"]


def test_an_interpreter_says_in_the_message_what_it_was_executing():
    gm = fx.symbolic_trace(lambda x: looked_up(x))
    interpreter = fx.Interpreter(gm)

    with pytest.raises(RuntimeError, match=r"^q\n\nWhile executing %looked_up : \[num_users=1\] = call_function") as found:
        interpreter.run(fb.ones(1))
    assert isinstance(found.value.__cause__, KeyError)
    interpreter.extra_traceback = False
    with pytest.raises(KeyError, match=r"^'q'$"):
        interpreter.run(fb.ones(1))


@pytest.mark.parametrize(("target", "args"), [
    (fb.rand, (2,)), (fb.randn, (2,)), (fb.randint, (3, (2,))), (fb.randperm, (3,)), (fb.normal, (0.0, 1.0, (2,))),
    (fb.rand_like, (1,)), (fb._C._set_grad_enabled, (True,)), (fb.ops.aten.rand.default, ([2],)),
], ids=["rand", "randn", "randint", "randperm", "normal", "rand_like", "_set_grad_enabled", "operator"])  # fmt: skip
def test_calls_that_draw_or_switch_histories_stay_though_nobody_uses_them(target, args):
    graph = fx.Graph()
    graph.call_function(target, args)
    graph.call_function(fb.zeros, (2,))
    graph.output(None)
    graph.eliminate_dead_code()

    assert [n.target for n in graph.nodes if n.op == "call_function"] == [target]


def test_a_transformer_keeps_where_nodes_come_from():
    class Layer(fb.nn.Module):
        def __init__(self):
            super().__init__()
            self.act = fb.nn.ReLU()

        def forward(self, x):
            return self.act(x) + 1

    class Negated(fx.Transformer):
        def call_function(self, target, args, kwargs):
            return super().call_function(fb.neg, (super().call_function(target, args, kwargs),), {})

    gm = fx.symbolic_trace(Layer())
    for node in gm.graph.nodes:
        node.meta.update(stack_trace=f"line of {node.name}", custom={"tag": node.name}, val=3)

    made = {n.name: n.meta for n in Negated(gm).transform().graph.nodes}
    assert [(name, m.get("stack_trace"), m.get("custom")) for name, m in made.items()] == [
        ("x", None, None), ("act", "line of act", {"tag": "act"}), ("add", "line of add", {"tag": "add"}),
        ("neg", "line of add", {"tag": "add"}), ("output", "line of output", {"tag": "output"}),
    ]
    assert list(made["act"]["nn_module_stack"].values()) == [("act", fb.nn.ReLU)]
    assert "val" not in made["add"]                   # what is computed may be something else
