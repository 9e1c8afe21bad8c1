"""Passes over graphs: they give the graphs that PyTorch's give, and keep what the program computes."""

from __future__ import annotations

import importlib
import itertools
import operator
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

import flambeau as fb
from flambeau import fx
from fx.programs import PROGRAMS, spelled

torch = pytest.importorskip("torch")
pytest.importorskip("hypothesis")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402


def of(package, name):
    return importlib.import_module(f"{package.__name__}.fx.passes.{name}")


def readable(gm):
    return spelled(gm.print_readable(print_output=False))


both = pytest.mark.parametrize("package", [fb, torch], ids=["ours", "pytorch"])


# -- shapes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_shapes_are_found_as_pytorch_finds_them(name):
    make, shape = PROGRAMS[name]
    seen = []
    for package in (fb, torch):
        gm = importlib.import_module(f"{package.__name__}.fx").symbolic_trace(make(package))
        of(package, "shape_prop").ShapeProp(gm).propagate(package.ones(shape))
        # The memory order of an LSTM's results is another than PyTorch's.
        metas = [str(n.meta.get("tensor_meta")) for n in gm.graph.nodes] if name != "recurrent" else []
        seen.append((readable(gm), metas))

    assert seen[0] == seen[1]


# -- splitting -----------------------------------------------------------------------------------------------------------


def computed(package, steps):
    """A function of two values made of `steps`: (function, first operand, second operand) by place."""
    functions = [operator.add, operator.mul, package.maximum, operator.sub]

    def program(x, y):
        values = [x, y]
        for f, i, j in steps:
            values.append(functions[f](values[i % len(values)], values[j % len(values)]))
        return values[-1], values[len(values) // 2]

    return program


programs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=9)


@settings(max_examples=30)
@given(programs, st.lists(st.integers(0, 1), min_size=9, max_size=9), st.booleans(), st.booleans())
def test_a_module_is_split_as_pytorch_splits_it(steps, jumps, keep_names, keep_inputs):
    made = []
    for package in (fb, torch):
        gm = importlib.import_module(f"{package.__name__}.fx").symbolic_trace(computed(package, steps))
        numbers = iter(sum(jumps[: i + 1]) for i in range(9))
        split = of(package, "split_module").split_module(
            gm, gm, lambda node, numbers=numbers: next(numbers), keep_original_node_name=keep_names,
            keep_original_input_name=keep_inputs,
        )  # fmt: skip
        made.append(split)
        x, y = package.tensor(3.0), package.tensor(-2.0)
        assert [v.item() for v in split(x, y)] == [v.item() for v in gm(x, y)]

    assert readable(made[0]) == readable(made[1])


def test_a_module_is_split_by_itself_where_no_root_is_given():
    gm = fx.symbolic_trace(fb.nn.Sequential(fb.nn.Linear(3, 4), fb.nn.ReLU()))

    parts = of(fb, "split_module").split_module(gm, None, lambda node: node.name)

    x = fb.randn(2, 3)
    assert fb.equal(parts(x), gm(x))
    assert len(list(parts.children())) == 2


def test_shapes_are_found_on_fake_tensors_for_modules_and_parameters_too():
    class Model(fb.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.p = fb.nn.Linear(3, 4), fb.nn.Parameter(fb.ones(4))

        def forward(self, x):
            return self.linear(x) + self.p

    gm = fx.symbolic_trace(Model())
    of(fb, "shape_prop").ShapeProp(gm, fb._subclasses.FakeTensorMode()).propagate(fb.ones(2, 3))

    assert [tuple(n.meta["tensor_meta"].shape) for n in gm.graph.nodes] == [(2, 3), (2, 4), (4,), (2, 4), (2, 4)]


def test_submodules_that_need_each_other_are_refused():
    gm = fx.symbolic_trace(lambda x: fb.relu(fb.neg(fb.relu(x))))

    with pytest.raises(RuntimeError, match="cycle exists between partitions!"):
        of(fb, "split_module").split_module(gm, gm, lambda node: int(node.target is fb.neg))


def test_modules_and_attributes_go_where_they_are_used():
    class Net(fb.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = fb.nn.Linear(2, 2), fb.nn.Sequential(fb.nn.Linear(2, 2))
            self.scale = fb.nn.Parameter(fb.ones(2))

        def forward(self, x):
            return self.b(self.a(x) * self.scale)

    net, names = Net(), {}
    gm = fx.symbolic_trace(net)
    split = of(fb, "split_module").split_module(gm, net, lambda node: int(node.name == "b_0"), names)

    assert names == {"submod_0.a": "a", "submod_1.b_0": "b.0"}
    assert sorted(split.state_dict()) == ["scale", "submod_0.a.bias", "submod_0.a.weight", "submod_1.b_0.bias", "submod_1.b_0.weight"]
    assert split(fb.ones(1, 2)).tolist() == net(fb.ones(1, 2)).tolist()


@both
def test_nodes_are_split_by_tags(package):
    class Net(package.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear1, self.linear2, self.linear3 = (package.nn.Linear(2, 2) for _ in range(3))

        def forward(self, x1, x2):
            return self.linear3(package.cat([self.linear1(x1), self.linear2(x2)]))

    net = Net()
    gm = importlib.import_module(f"{package.__name__}.fx").symbolic_trace(net)
    for node in gm.graph.nodes:
        if node.op.startswith("call"):
            node.tag = {"linear1": "left", "linear2": "right"}.get(node.name, "main")
    split, names = of(package, "split_utils").split_by_tags(gm, ["left", "right", "main"], return_fqn_mapping=True)

    assert names == {"linear1": "left.linear1", "linear2": "right.linear2", "linear3": "main.linear3"}
    assert split.code.replace(";  ", "; ").strip().splitlines() == [
        "def forward(self, x1, x2):",
        "    left = self.left(x1); x1 = None",
        "    right = self.right(x2); x2 = None",
        "    main = self.main(left, right); left = right = None",
        "    return main",
    ]
    x = package.ones(1, 2)
    assert split(x, x).tolist() == net(x, x).tolist()


# -- partitions ----------------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(programs, st.sets(st.integers(0, 3)), st.booleans())
def test_partitions_are_fused_without_circles_and_compute_the_same(steps, supported, single):
    functions = [operator.add, operator.mul, fb.maximum, operator.sub]
    chosen = {functions[i] for i in supported}
    program = computed(fb, steps)
    gm = fx.symbolic_trace(program)
    support = of(fb, "operator_support").create_op_support(lambda modules, node: node.target in chosen)
    partitioner = of(fb, "infra.partitioner").CapabilityBasedPartitioner(gm, support, allows_single_node_partition=single)
    partitions = partitioner.propose_partitions()
    fused = partitioner.fuse_partitions(partitions)

    fused.graph.lint()
    x, y = fb.tensor(3.0), fb.tensor(-2.0)
    assert [v.item() for v in fused(x, y)] == [v.item() for v in program(x, y)]
    assert sum(p.size() for p in partitions) + len([n for n in fused.graph.nodes if n.op == "call_function" and
            n.target is not operator.getitem]) == len(steps)  # fmt: skip
    assert single or all(p.size() > 1 for p in partitions)


@both
def test_partitions_are_pytorchs(package):
    def program(a, b, c):
        d = a + b
        e = d + c
        h = package.sin(e)
        j = package.relu(h) * d + h
        return package.cos(j) + d, e

    gm = importlib.import_module(f"{package.__name__}.fx").symbolic_trace(program)
    supported = (operator.add, package.relu, operator.mul)
    support = of(package, "operator_support").create_op_support(lambda modules, node: node.target in supported)
    partitioner = of(package, "infra.partitioner").CapabilityBasedPartitioner(gm, support)
    found = [sorted(n.name for n in p.nodes) for p in partitioner.propose_partitions()]
    code = partitioner.partition_and_fuse().code

    assert found == [["add_2", "mul", "relu"], ["add", "add_1"]]
    assert code.replace(";  ", "; ").strip().splitlines() == [
        "def forward(self, a, b, c):",
        "    fused_1 = self.fused_1(a, b, c); a = b = c = None",
        "    getitem = fused_1[0]",
        "    getitem_1 = fused_1[1]; fused_1 = None",
        "    sin = torch.sin(getitem_1)",
        "    fused_0 = self.fused_0(sin, getitem); sin = None",
        "    cos = torch.cos(fused_0); fused_0 = None",
        "    add_3 = cos + getitem; cos = getitem = None",
        "    return (add_3, getitem_1)",
    ]


@both
def test_support_is_told_by_tables_and_dtypes(package):
    support = of(package, "operator_support")
    gm = importlib.import_module(f"{package.__name__}.fx").symbolic_trace(lambda x: package.relu(package.sin(x + 1)))
    of(package, "shape_prop").ShapeProp(gm).propagate(package.ones(2))
    modules, (add, sin, relu) = {}, [n for n in gm.graph.nodes if n.op == "call_function"]
    table = support.OperatorSupport({"_operator.add": None, "torch.relu": (((package.float64,),), {}), "torch.sin":
                                     (((package.float32,),), {})})  # fmt: skip
    no_sin = support.OpSupports.decline_if_node_in_names({"sin"})

    assert [table.is_node_supported(modules, n) for n in (add, sin, relu)] == [True, True, False]
    assert [support.chain(table, no_sin).is_node_supported(modules, n) for n in (add, sin, relu)] == [True, False, False]
    assert [support.any_chain(table, no_sin).is_node_supported(modules, n) for n in (add, sin, relu)] == [True] * 3
    declines = support.OpSupports.decline_if_input_dtype(package.float32)
    assert not declines.is_node_supported(modules, relu)


# -- common subexpressions -----------------------------------------------------------------------------------------------


def shared(x):
    a = x.cos() + x.cos()
    return fb.sin(x) + fb.sin(x) + fb.sum(x, 0) + fb.sum(x, dim=0) + x[0] + x[0] + a


def test_equal_calls_are_done_once():
    result = of(fb, "dialect.common.cse_pass").CSEPass()(fx.symbolic_trace(shared))
    x = fb.tensor([1.0, 2.0])

    assert result.modified
    assert [n.name for n in result.graph_module.graph.nodes if n.op.startswith("call") and "add" not in n.name] == [
        "cos", "sin", "sum_1", "sum_2", "getitem",
    ]  # fmt: skip
    assert result.graph_module(x).tolist() == shared(x).tolist()
    assert not of(fb, "dialect.common.cse_pass").CSEPass()(result.graph_module).modified


@pytest.mark.parametrize("program", [
    lambda x: fb.rand_like(x) + fb.rand_like(x),
    lambda x: fb.nn.functional.dropout(x) + fb.nn.functional.dropout(x),
    lambda x: x + x.add_(1) + x.add_(1),
    lambda x: (x * 1) + (x * 1.0) + (x * True) + (x * -0.0) + (x * 0.0),
])  # fmt: skip
def test_calls_that_differ_are_left_apart(program):
    assert not of(fb, "dialect.common.cse_pass").CSEPass()(fx.symbolic_trace(program)).modified


# -- managers ------------------------------------------------------------------------------------------------------------


@both
def test_passes_run_in_an_order_that_keeps_constraints(package):
    manager = of(package, "infra.pass_manager")
    result = of(package, "infra.pass_base").PassResult
    gm = importlib.import_module(f"{package.__name__}.fx").symbolic_trace(lambda x: x + 1)
    ran = []

    def make(name):
        def run(module):
            ran.append(name)
            return result(module, name == "a")

        run.__name__ = name
        return run

    a, b, c = make("a"), make("b"), make("c")
    before = manager.this_before_that_pass_constraint
    done = manager.PassManager([a, b, c], constraints=[before(c, a)], steps=2)(gm)

    assert ran == ["b", "c", "a"] * 2
    assert done.modified
    with pytest.raises(RuntimeError, match="Circular dependency detected"):
        manager.PassManager([a, b], constraints=[before(a, b), before(b, a)])(gm)
    with pytest.raises(RuntimeError, match="pass schedule constraint violated"):
        manager.PassManager([a, b], constraints=[before(b, a)]).validate_constraints()
    with pytest.raises(Exception, match="An error occurred when running the '<lambda>' pass after the following passes"):
        manager.PassManager([a, lambda module: None])(gm)
    with pytest.raises(TypeError, match="should only take in one variable"):
        manager.PassManager([a]).add_checks(lambda x, y: None)


@both
def test_a_pass_is_checked_before_and_after(package):
    base, fxp = of(package, "infra.pass_base"), importlib.import_module(f"{package.__name__}.fx")
    said = []

    class ToMul(base.PassBase):
        def requires(self, graph_module):
            said.append("before")

        def ensures(self, graph_module):
            said.append("after")

        def call(self, graph_module):
            for node in graph_module.graph.nodes:
                if node.target is operator.add:
                    node.target = operator.mul
            return base.PassResult(graph_module, True)

    done = of(package, "infra.pass_manager").PassManager([ToMul()])(fxp.symbolic_trace(lambda x: x + 5))

    assert said == ["before", "after"]
    assert done.graph_module(3) == 15


@both
def test_the_older_manager_hands_results_on(package):
    old = of(package, "pass_manager")
    manager = old.PassManager.build_from_passlist([old.loop_pass(lambda x: x + 1, n_iter=3)])
    manager.add_pass(old.loop_pass(lambda x: x * 2, predicate=lambda x: x < 50))

    assert manager(1) == 64
    assert old.inplace_wrapper(lambda x: None)(3) == 3
    with pytest.raises(AssertionError, match="Exactly one of"):
        old.loop_pass(lambda x: x)


# -- sizes, targets, order -----------------------------------------------------------------------------------------------


@both
def test_sizes_count_bytes_of_results_and_parameters(package):
    gm = importlib.import_module(f"{package.__name__}.fx").symbolic_trace(
        package.nn.Sequential(package.nn.Linear(4, 2), package.nn.Linear(2, 2))
    )
    of(package, "graph_manipulation").get_size_of_all_nodes(gm, [package.ones(3, 4)])

    assert [tuple(n.size_bytes) for n in gm.graph.nodes if n.op != "output"] == [(48, 48), (24, 64), (24, 48)]


@both
def test_targets_are_replaced(package):
    gm = importlib.import_module(f"{package.__name__}.fx").symbolic_trace(lambda x: package.sin(x) + 1)
    of(package, "graph_manipulation").replace_target_nodes_with(gm, "call_function", package.sin, "call_method", "cos")

    assert "sin = x.cos()" in gm.code


def test_graphs_out_of_order_are_put_in_order():
    gm = fx.symbolic_trace(lambda x: fb.relu(fb.neg(x)) + 1)
    nodes = {n.name: n for n in gm.graph.nodes}
    nodes["neg"].prepend(nodes["relu"])
    with pytest.raises(RuntimeError, match="used before it has been defined"):
        gm.graph.lint()
    of(fb, "tools_common").legalize_graph(gm)

    gm.graph.lint()
    assert [n.name for n in gm.graph.nodes] == ["x", "neg", "relu", "add", "output"]
    nodes["neg"].update_arg(0, nodes["relu"])
    with pytest.raises(RuntimeError, match="Input graph has cycles"):
        of(fb, "tools_common").legalize_graph(gm)


def test_attributes_of_modules_are_kept_at_nodes():
    model = fb.nn.Sequential(fb.nn.Linear(2, 2))
    gm = fx.symbolic_trace(model)
    of(fb, "param_fetch").lift_lowering_attrs_to_nodes(gm)
    (node,) = [n for n in gm.graph.nodes if n.op == "call_module"]

    assert node.attrs_for_lowering["name"] == "torch.nn.modules.linear.Linear"
    assert node.attrs_for_lowering["weight"] is model[0].weight


# -- patterns ------------------------------------------------------------------------------------------------------------


def patterns(package):
    t = package
    return SimpleNamespace(
        program=lambda x, w1, w2: x + t.max(t.cat([w1, w2]).sum()) + t.max(t.cat([w2, w1]).sum()),
        cases=[
            (lambda a, b: t.cat([a, b]), lambda a, b: t.stack([a, b])),
            (lambda a, b: t.cat([a, b]).sum(), lambda a, b: a.sum() + b.sum()),
            (lambda a: t.max(a), lambda a: t.neg(t.relu(a))),
            (lambda a, b: a + b, lambda a, b: t.sub(a, b)),
            (lambda a: t.min(a), lambda a: a),
            (lambda a: t.max(a), lambda a: a),
            (lambda a, b, c: a + t.max(b) + t.max(c), lambda a, b, c: a * b * c),
        ],
    )


@pytest.mark.parametrize("i", range(7))
def test_patterns_are_replaced_as_by_pytorch(i):
    codes, found = [], []
    for package in (fb, torch):
        fxp = importlib.import_module(f"{package.__name__}.fx")
        given_ = patterns(package)
        gm = fxp.symbolic_trace(given_.program)
        matches = fxp.replace_pattern(gm, *given_.cases[i])
        gm.graph.lint()
        codes.append(gm.code)
        found.append([(m.anchor.name, sorted((k.name, v.name) for k, v in m.nodes_map.items())) for m in matches])

    assert codes[0] == codes[1]
    assert found[0] == found[1]


def test_filters_and_literals_decide_about_matches():
    rewriter = fx.subgraph_rewriter
    gm = fx.symbolic_trace(lambda x: (x + 1) * (x + 2) * (x + 3))
    done = rewriter.replace_pattern_with_filters(
        gm, lambda a: a + 7, lambda a: a - 5, ignore_literals=True,
        match_filters=[lambda match, graph, pattern: match.anchors[0].name != "x" and match.returning_nodes[0].args[1] != 2],
    )  # fmt: skip

    assert len(done) == 2
    assert all(len(r.replacements) == 1 for r in done)
    assert gm(10) == 5 * 12 * 5
    assert not rewriter.replace_pattern_with_filters(gm, lambda a: a + 7, lambda a: a)
    callback = rewriter.replace_pattern_with_filters(
        gm, lambda a: a + 2, replacement_callback=lambda match, graph, pattern: fx.symbolic_trace(lambda a: a * 100).graph
    )
    assert len(callback) == 1
    assert gm(10) == 5 * 1000 * 5


# -- pictures ------------------------------------------------------------------------------------------------------------


def test_a_picture_has_all_nodes_and_edges(tmp_path):
    gm = fx.symbolic_trace(fb.nn.Sequential(fb.nn.Linear(2, 3), fb.nn.ReLU()))
    of(fb, "shape_prop").ShapeProp(gm).propagate(fb.ones(1, 2))
    dot = of(fb, "graph_drawer").FxGraphDrawer(gm, "net").get_dot_graph()
    dot.write_raw(tmp_path / "net.dot")
    text = (tmp_path / "net.dot").read_text()

    assert text.startswith('digraph "net" {')
    for node in gm.graph.nodes:
        assert f'"{node.name}" [label="name=%{node.name}\\l' in text
        assert all(f'"{node.name}" -> "{user.name}";' in text for user in node.users)
    assert "weight: torch.float32 (3, 2)" in text
    assert "shape=(1, 3)" in text


def test_pictures_are_drawn_without_graphviz(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    gm = fx.symbolic_trace(lambda x, y: (fb.relu(x) + y).sum() * y)
    dot = of(fb, "graph_drawer").FxGraphDrawer(gm, "<net>").get_dot_graph()
    dot.write_svg(tmp_path / "net.svg")
    root = ElementTree.parse(tmp_path / "net.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    boxes = {g.attrib["id"]: g.findall(f"{space}rect")[0].attrib for g in root.findall(f"{space}g")}
    top = {name: float(box["y"]) for name, box in boxes.items()}

    assert list(boxes) == [node.name for node in gm.graph.nodes]
    assert root.findall(f"{space}title")[0].text == "<net>"
    assert len(root.findall(f"{space}path")) == sum(len(node.users) for node in gm.graph.nodes)
    assert all(top[node.name] < top[user.name] for node in gm.graph.nodes for user in node.users)
    rows = {}
    for box in boxes.values():
        rows.setdefault(box["y"], []).append((float(box["x"]), float(box["x"]) + float(box["width"])))
    assert all(a[1] < b[0] for row in rows.values() for a, b in itertools.pairwise(sorted(row)))  # boxes are clear of each other
    with pytest.raises(RuntimeError, match="'pdf' needs Graphviz"):
        dot.create("pdf")


def test_pictures_are_drawn_as_png(tmp_path):
    image = pytest.importorskip("PIL.Image")
    functorch = importlib.import_module("flambeau._functorch.compile")
    functorch.draw_graph(fx.symbolic_trace(lambda x: fb.relu(x) + 1), str(tmp_path / "net.png"))
    with image.open(tmp_path / "net.png") as picture:
        assert picture.format == "PNG"
        assert len(picture.getcolors(1 << 16)) > 4    # boxes, letters and arrows


class _Activated(fb.nn.Module):
    def __init__(self):
        super().__init__()
        self.relu = fb.nn.ReLU()

    def forward(self, x):
        return self.relu(x) + 1


class _Activation(fb.nn.Module):
    def __init__(self):
        super().__init__()
        self.relu = fb.nn.ReLU()

    def forward(self, x):
        return self.relu(x)


class _Other(fb.nn.Module):
    def __init__(self):
        super().__init__()
        self.new = fb.nn.Hardtanh()

    def forward(self, x):
        return self.new(x)


class _Scaled(fb.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = fb.nn.Module()
        self.inner.scale = fb.nn.Parameter(fb.tensor([2.0, 3.0]))
        self.register_buffer("shift", fb.tensor([10.0, 20.0]))

    def forward(self, x):
        return x * self.inner.scale + self.shift


@pytest.mark.parametrize("traced", [False, True], ids=["modules", "graph modules"])
@pytest.mark.parametrize(("replacement", "state", "result"), [
    (_Other, [], [0.0, 2.0]), (_Scaled, ["inner.scale", "shift"], [7.0, 36.0]),
], ids=["submodule", "parameter and buffer"])  # fmt: skip
def test_a_replacement_brings_what_it_has_where_the_pattern_calls_submodules(replacement, state, result, traced):
    gm = fx.symbolic_trace(_Activated())
    pattern, new = _Activation(), replacement()
    if traced:
        pattern, new = fx.symbolic_trace(pattern), fx.symbolic_trace(new)

    assert len(fx.replace_pattern(gm, pattern, new)) == 1
    assert sorted(gm.state_dict()) == state
    assert not hasattr(gm, "relu")
    assert gm(fb.tensor([-2.0, 5.0])).tolist() == result
