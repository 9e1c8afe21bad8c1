"""Splitting for backends and finding the nodes that a backend computes wrongly: the parts and the culprits that PyTorch's have."""

from __future__ import annotations

import importlib
import sys

import pytest

import flambeau as fb
from flambeau.fx.passes import net_min_base, splitter_base
from flambeau.fx.passes.operator_support import OperatorSupport

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def no_command_line(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["program"])


def of(package, name):
    return importlib.import_module(f"{package.__name__}.fx.passes.{name}")


# -- splitting -----------------------------------------------------------------------------------------------------------


def branches(t):
    def program(x):
        a = t.relu(x)
        b, d = t.sin(a), t.cos(a)
        return t.add(t.relu(b), d)

    return program


def size_of_supported(t):
    def program(x):
        a = t.relu(x)
        n = a.size(0)
        return t.sin(a).reshape(n, -1)

    return program


def size_of_unsupported(t):
    def program(x):
        a = t.sin(x)
        n = a.size(0)
        return t.relu(a).reshape(n, -1)

    return program


def size_among_results(t):
    return lambda x: (t.relu(x), x.size(0))


def items(t):
    def program(x):
        found = t.topk(t.relu(x), 1)
        return t.relu(t.sin(found[0])) + found[1]

    return program


def sum_of_sizes(t):
    def program(x):
        a = t.relu(x)
        m = a.size(0) + 1
        return t.relu(t.sin(a).repeat(m, 1))

    return program


def with_parameters(t):
    class Program(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.l, self.p = t.nn.Linear(3, 3), t.nn.Parameter(t.ones(3))

        def forward(self, x):
            return t.relu(self.l(x) + self.p) * self.p

    return Program()


SPLITS = [
    (branches, ["torch.relu"]),
    (branches, ["torch.relu", "torch.cos"]),
    (branches, []),
    (branches, ["torch.relu", "torch.sin", "torch.cos", "torch.add"]),
    (size_of_supported, ["torch.relu", "size"]),
    (size_of_supported, ["size", "torch.sin"]),
    (size_of_unsupported, ["torch.relu", "reshape", "size"]),
    (size_of_unsupported, ["size", "reshape"]),
    (size_of_unsupported, ["torch.relu", "size"]),
    (size_among_results, ["torch.relu", "size"]),
    (items, ["torch.relu", "torch.topk", "_operator.getitem"]),
    (items, ["torch.topk", "_operator.getitem", "_operator.add"]),
    (items, ["torch.relu", "torch.topk"]),
    (sum_of_sizes, ["torch.relu", "size", "_operator.add"]),
    (sum_of_sizes, ["torch.sin", "size", "repeat"]),
    (sum_of_sizes, ["torch.sin", "repeat"]),
    (with_parameters, ["torch.nn.modules.linear.Linear"]),
    (with_parameters, ["torch.relu", "_operator.mul"]),
]
SETTINGS = [
    {},
    {"min_acc_module_size": 2},
    {"allow_non_tensor": True},
    {"allow_non_tensor": True, "skip_fusion": True},
    {"allow_non_tensor": True, "skip_fusion": True, "move_non_tensor_nodes_on_boundary": True},
]


def splitter(package, make, names, x=None, **settings):
    base = of(package, "splitter_base")
    gm = importlib.import_module(f"{package.__name__}.fx").symbolic_trace(make(package))
    support = of(package, "operator_support").OperatorSupport(dict.fromkeys(names))
    return base._SplitterBase(gm, (package.ones(2, 3),), support, base._SplitterSettingBase(**settings))


@pytest.mark.parametrize(("make", "names"), SPLITS)
@pytest.mark.parametrize("settings", SETTINGS)
def test_programs_are_split_where_pytorch_splits_them(make, names, settings):
    seen = []
    for package in (fb, torch):
        result = splitter(package, make, names, **settings).generate_split_results()
        parts = {}
        for name in result.submodule_inputs:
            nodes = list(getattr(result.split_module, name).graph.nodes)
            # PyTorch puts inputs in front of what uses them first, we put them in front of all.
            inputs = [str(n) for n in nodes if n.op == "placeholder"]
            parts[name] = (inputs, [str(n) for n in nodes if n.op != "placeholder"])
        seen.append((parts, {n: [str(getattr(v, "shape", v)) for v in given] for n, given in result.submodule_inputs.items()}))

    assert seen[0] == seen[1]


def test_split_programs_compute_what_the_whole_computes():
    x = fb.arange(6.0).view(2, 3) - 2

    for make, names in SPLITS:
        whole = make(fb)
        gm = fb.fx.symbolic_trace(whole)
        support = OperatorSupport(dict.fromkeys(names))
        split = splitter_base._SplitterBase(gm, (x,), support, splitter_base._SplitterSettingBase()).generate_split_results()
        expected, found = whole(x), split.split_module(x)

        assert fb.equal(expected, found) if isinstance(expected, fb.Tensor) else fb.equal(expected[0], found[0])


@pytest.mark.parametrize(("make", "names"), [SPLITS[0], SPLITS[4], SPLITS[16]])
def test_previews_say_what_pytorchs_say(make, names, capsys):
    seen = []
    for package in (fb, torch):
        split = splitter(package, make, names, allow_non_tensor=True, skip_fusion=True)
        seen.append((split.split_preview(), split.node_support_preview().replace("flambeau.", "torch.")))

    assert seen[0] == seen[1]


def test_a_part_that_cannot_be_lowered_is_reported_with_its_culprit():
    class Refusing(splitter_base._SplitterBase):
        def _lower_model_to_backend(self, mod, inputs):
            raise RuntimeError("no such operator")

        def _find_culprit(self, mod, inputs):
            return "relu is the culprit"

    gm = fb.fx.symbolic_trace(branches(fb))
    split = Refusing(gm, (fb.ones(2),), OperatorSupport({"torch.relu": None}), splitter_base._SplitterSettingBase())

    assert split.split_preview().count("Run into an error during lowering!\nrelu is the culprit") == 2


def test_more_parts_than_the_settings_allow_are_refused():
    with pytest.raises(ValueError, match=r"max_acc_splits.*2 parts"):
        splitter(fb, branches, ["torch.relu"], max_acc_splits=1).generate_split_results()


def test_a_graph_is_tagged_once():
    split = splitter(fb, branches, ["torch.relu"])
    split.generate_split_results()

    with pytest.raises(splitter_base.FxNetSplitterInternalError, match="relu was already tagged"):
        split.generate_split_results()


def test_a_part_takes_nodes_of_the_backend_that_it_alone_uses():
    seen = []
    for package in (fb, torch):
        split = splitter(package, branches, ["torch.relu", "torch.cos"])
        split.generate_split_results()
        parents = {tag: sorted(map(str, split.find_parent_nodes_of_subgraph(tag))) for tag in split.tags}
        split.extend_acc_subgraph(split.tags[-1])
        seen.append((parents, [getattr(node, "tag", None) for node in split.module.graph.nodes]))

    assert seen[0] == seen[1]


def test_options_of_the_command_line_are_settings(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["program", "--min_acc_module_size", "3", "--skip-fusion", "--another"])

    seen = [vars(of(package, "splitter_base")._SplitterSettingBase(allow_non_tensor=True)) for package in (fb, torch)]

    assert seen[0] == seen[1]


def test_events_of_nodes_are_written_as_pytorch_writes_them(tmp_path):
    seen = []
    for package in (fb, torch):
        first, second = list(importlib.import_module(f"{package.__name__}.fx").symbolic_trace(lambda x: x + 1).graph.nodes)[:2]
        tracker = of(package, "splitter_base").NodeEventTracker(1, str(tmp_path / package.__name__))
        tracker.add(second, "one")
        tracker.add(second, "two", first)
        tracker.add(first, "zero")
        lines = []
        tracker.print_node(second.name, recursive=True, writer=lines.append)
        tracker.print_all(writer=lines.append)
        tracker.dump()
        seen.append((tracker.to_dict(), lines, (tmp_path / f"{package.__name__}_all.txt").read_text()))

    assert seen[0] == seen[1]


# -- minimizing ----------------------------------------------------------------------------------------------------------


def chain(t):
    def program(x):
        a = t.relu(x)
        c, d = t.relu(t.sin(a)), t.cos(a)
        return t.tanh(t.add(c, d))

    return program


def minimizer(package, wrong, exported=None, raising=False, **settings):
    base = of(package, "net_min_base")
    tree_map = importlib.import_module(f"{package.__name__}.utils._pytree").tree_map

    class Minimizer(base._MinimizerBase):
        def run_a(self, mod, inputs, report_idx=-1):
            return mod(*inputs)

        def run_b(self, mod, inputs, report_idx=-1):
            differs = any(node.name in wrong and node.op == "call_function" for node in mod.graph.nodes)
            if differs and raising:
                raise ValueError("not supported")
            return tree_map(lambda value: value + 1 if differs else value, mod(*inputs))

    def compare(a, b, names):
        pairs = [(a, b)] if isinstance(a, package.Tensor) else list(zip(a, b, strict=True))
        return max(float((x - y).abs().max()) for x, y in pairs), all(package.equal(x, y) for x, y in pairs)

    gm = importlib.import_module(f"{package.__name__}.fx").symbolic_trace(chain(package))
    return Minimizer(gm, (package.linspace(-1, 1, 6),), compare, base._MinimizerSettingBase(**settings), exported)


SEARCHES = [
    *[(wrong, {"traverse_method": method, "find_all": all_}, {}) for wrong in (("sin",), ("sin", "add"), ("tanh",), ())
      for method, all_ in (("sequential", False), ("sequential", True), ("binary", False), ("accumulate", False), ("accumulate", True))],
    *[(wrong, {"traverse_method": "block"}, {"find_last_node": last}) for wrong in (("sin",), ("relu_1", "cos"), ("tanh",), ())
      for last in (None, True, False)],
    (("sin", "add"), {"find_all": True, "accumulate_error": True}, {}),
    (("sin", "add"), {"find_all": True, "all_outputs": True}, {}),
    (("sin",), {}, {"start": "relu_1"}),
    (("add",), {}, {"start": "relu_1", "end": "cos"}),
    (("sin",), {}, {"start": "missing"}),
]  # fmt: skip


@pytest.mark.parametrize("raising", [False, True])
@pytest.mark.parametrize(("wrong", "settings", "given"), SEARCHES)
def test_searches_find_the_nodes_that_pytorchs_find(wrong, settings, given, raising, capsys):
    seen = []
    for package in (fb, torch):
        found = minimizer(package, wrong, raising=raising, **settings)
        culprits = sorted(map(str, found.minimize(**given)))
        # The search for a block halves in other places than PyTorch's, and runs no part twice.
        results = {key: round(value, 3) for key, value in found.results.items()}
        seen.append((culprits, results if settings.get("traverse_method") != "block" else None))

    assert seen[0] == seen[1]


def test_halving_finds_all_nodes_that_differ(capsys):
    found = minimizer(fb, ("sin", "add"), traverse_method="binary", find_all=True)

    assert {str(node) for node in found.minimize()} == {"sin", "add"}


def test_each_step_of_a_search_is_reported_as_pytorch_reports_it(capsys):
    seen = []
    for package in (fb, torch):
        found = minimizer(package, ("sin",), find_all=True)
        found.minimize()
        capsys.readouterr()
        found.print_reports()
        seen.append(capsys.readouterr().out)

    assert "Found culprit from numeric error: sin" in seen[0]
    assert seen[0] == seen[1]


def test_parts_that_differ_are_handed_to_the_exporter():
    exported = []
    found = minimizer(fb, ("add",), lambda inputs, part, name: exported.append((len(inputs), name)))

    assert {str(node) for node in found.minimize()} == {"add"}
    assert exported == [(2, "add_cpu"), (2, "add_acc")]


def test_blocks_between_skipped_nodes_are_run_each_and_all_culprits_told():
    found = minimizer(fb, ("sin", "add"), traverse_method="skip")

    assert {str(node) for node in found.minimize(skip_nodes=["relu_1"])} == {"relu", "sin", "cos", "add", "tanh"}


@pytest.mark.parametrize(("wrong", "culprits"), [((), 0), (("sin",), 6)])
def test_a_defined_search_tells_its_nodes_when_they_differ(wrong, culprits):
    assert len(minimizer(fb, wrong, traverse_method="defined").minimize()) == culprits


def test_nodes_are_run_as_one_part(capsys):
    minimizer(fb, ("sin",)).run_nodes("sin", "cos")

    assert "Result mismatch for (('relu_1', 'cos'),)" in capsys.readouterr().out


def test_nodes_with_others_between_them_are_no_part():
    found = minimizer(fb, ())
    nodes = {node for node in found.module.graph.nodes if node.name in ("sin", "add")}

    with pytest.raises(net_min_base.FxNetMinimizerBadModuleError, match="add needs nodes"):
        found._build_submodule(nodes)


def test_a_search_that_is_not_there_is_refused():
    with pytest.raises(RuntimeError, match="Unknown traverse method wide"):
        minimizer(fb, (), traverse_method="wide").minimize()
    with pytest.raises(RuntimeError, match="skip_nodes"):
        minimizer(fb, (), traverse_method="skip").minimize()


def test_a_splitter_is_called_for_the_module_in_parts(capsys):
    gm = fb.fx.symbolic_trace(branches(fb))
    made = splitter_base._SplitterBase(gm, (fb.ones(2, 2),), OperatorSupport({"torch.relu": None}), splitter_base._SplitterSettingBase())()

    assert [name for name, _ in made.named_children()] == ["_run_on_acc_0", "_run_on_cpu_1", "_run_on_acc_2", "_run_on_cpu_3"]
    assert fb.equal(made(fb.ones(2, 2)), gm(fb.ones(2, 2)))
    assert capsys.readouterr().out == "Got 2 acc subgraphs and 2 non-acc subgraphs\n"


@pytest.mark.parametrize("method", ["binary", "accumulate"])
def test_a_part_that_gives_several_results_to_others_is_searched(method):
    """The module that is run for inputs takes all results of the part, where the part is to give one of them alone."""

    class Minimizer(net_min_base._MinimizerBase):
        def run_a(self, mod, inputs, report_idx=-1):
            return mod(*inputs)

        def run_b(self, mod, inputs, report_idx=-1):
            return mod(*inputs) + any(node.target is fb.cos for node in mod.graph.nodes)

    gm = fb.fx.symbolic_trace(lambda x: (fb.sin(x).cos() * 2, fb.sin(x).sum(), fb.cos(x)))
    settings = net_min_base._MinimizerSettingBase(traverse_method=method)
    found = Minimizer(gm, (fb.ones(3),), lambda a, b, names: (0.0, fb.equal(a, b)), settings).minimize()

    assert [node.name for node in found] == ["cos_1"]
