"""Exported programs: what they compute, what they say of their inputs, and as files; beside PyTorch's where that is installed."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import io
import json
import operator
import re
import warnings
import zipfile

import pytest

import flambeau as fb
from flambeau import library, nn
from flambeau._dynamo.exc import UserError
from flambeau._library.fake_profile import unsafe_generate_fake_kernels
from flambeau.export import Dim, ShapesCollection, dims, draft_export, export, load, save
from flambeau.export.dynamic_shapes import AdditionalInputs, refine_dynamic_shapes_from_suggested_fixes
from flambeau.export.graph_signature import InputKind, OutputKind
from flambeau.fx.experimental.symbolic_shapes import ConstraintViolationError
from flambeau.utils import _pytree as pytree


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(3, 4), nn.BatchNorm1d(4)
        self.plain = fb.ones(4)

    def forward(self, x, scale=2.0):
        return {"y": self.norm(self.first(x)).relu() * scale + self.plain}, x.sum()


class Branch(nn.Module):
    def forward(self, x):
        return x + 1 if x.shape[0] > 3 else x - 1


class Shifted(nn.Module):
    def forward(self, x, y):
        return x + y[1:]


def test_a_program_gives_what_its_module_gives_for_open_sizes():
    net = Net().eval()
    program = export(net, (fb.randn(5, 3),), dynamic_shapes={"x": {0: Dim("batch")}})
    x = fb.randn(9, 3)

    (made, total), (expected, wanted) = program.module()(x), net(x)

    assert made["y"].equal(expected["y"])
    assert total.equal(wanted)


def test_a_program_in_training_writes_buffers_as_its_module_does():
    net, x = Net(), fb.randn(6, 3)
    start = {name: value.clone() for name, value in net.state_dict().items()}
    program = export(net, (x,))
    assert all(start[name].equal(value) for name, value in net.state_dict().items())
    expected = net(x)[0]["y"]
    after = {name: value.clone() for name, value in net.state_dict().items()}
    net.load_state_dict(start)

    made = program.module()(x)[0]["y"]

    assert made.equal(expected)
    assert all(after[name].equal(value) for name, value in net.state_dict().items())


def test_gradients_reach_the_parameters_of_a_program():
    net, x = Net().eval(), fb.randn(4, 3)
    program = export(net, (x,))

    program.module()(x)[0]["y"].sum().backward()
    found = program.state_dict["first.weight"].grad.clone()
    net.zero_grad()
    net(x)[0]["y"].sum().backward()

    assert found.equal(net.first.weight.grad)


def test_the_signature_says_what_inputs_and_outputs_are():
    program = export(Net(), (fb.randn(5, 3),), {"scale": 3.0})
    signature = program.graph_signature

    assert signature.parameters == ("first.weight", "first.bias", "norm.weight", "norm.bias")
    assert signature.buffers == ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked")
    assert signature.lifted_tensor_constants == ("plain",)
    assert signature.user_inputs == ("x", 3.0)
    assert len(signature.user_outputs) == 2
    assert signature.inputs_to_parameters["p_first_weight"] == "first.weight"
    assert [name for name, _ in program.named_parameters()] == list(signature.parameters)
    assert [name for name, _ in program.named_buffers()] == list(signature.buffers)
    assert list(program.constants) == ["plain"]
    assert [entry.fqn for entry in program.module_call_graph] == ["", "first", "norm"]
    assert re.search(r"\nGraph signature: \n    # inputs\n    p_first_weight: PARAMETER target='first.weight'\n", str(program))
    assert re.search(r"\n    \n    # outputs\n", str(program))
    assert re.fullmatch(r"<flambeau.export.exported_program.ExportedProgram object at 0x\w+>", repr(program))


def test_ranges_and_relations_of_sizes():
    d = Dim("d", min=3, max=6)

    program = export(Shifted(), (fb.ones(5), fb.ones(6)), dynamic_shapes=({0: d}, {0: d + 1}))

    assert sorted(map(str, program.range_constraints.values())) == ["VR[3, 6]", "VR[4, 7]"]
    assert program.module()(fb.ones(4), fb.ones(5)).tolist() == [2.0] * 4
    with pytest.raises(AssertionError, match=r"Guard failed: x.size\(\)\[0\] <= 6"):
        program.module()(fb.ones(7), fb.ones(8))


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda m: m(fb.randn(3, 4)), AssertionError, r"Guard failed: x.size\(\)\[1\] == 3"),
        (lambda m: m(fb.randn(65, 3)), AssertionError, r"Guard failed: x.size\(\)\[0\] <= 64"),
        (lambda m: m(fb.randn(1, 3)), AssertionError, r"Guard failed: x.size\(\)\[0\] >= 2"),
        (lambda m: m(fb.randn(3)), AssertionError, r"Guard failed: x.ndim == 2"),
        (lambda m: m(fb.ones(3, 3).long()), AssertionError, r"Guard failed: x.dtype"),
        (lambda m: m(2), AssertionError, r"Guard failed: x is a Tensor"),
        (lambda m: m(), ValueError, "exported input tree spec"),
        (lambda m: m(fb.randn(3, 3), 1), ValueError, "exported input tree spec"),
        (lambda m: m.train(), NotImplementedError, r"Calling train\(\) is not supported yet"),
        (lambda m: m.eval(), NotImplementedError, r"Calling eval\(\) is not supported yet"),
    ],
)
def test_inputs_that_the_graph_does_not_hold_for_are_refused(call, error, said):
    module = export(Net(), (fb.randn(5, 3),), dynamic_shapes={"x": {0: Dim("batch", min=2, max=64)}}).module()

    with pytest.raises(error, match=said):
        call(module)


_ROW, _SQUARE = fb.arange(8.0), fb.arange(64.0).reshape(8, 8)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x + _ROW,
        lambda x: _ROW * x,
        lambda x: fb.where(x > 0, _ROW, x),
        lambda x: fb.lerp(x, _ROW, 0.5),
        lambda x: fb.addmm(_ROW, x, _SQUARE),
        lambda x: x.view(x.shape[0], 8, 1) + _ROW[:, None],
        lambda x: fb.baddbmm(_ROW, x[:, None], _SQUARE.expand(x.shape[0], 8, 8)),
        lambda x: x.clone().add_(_ROW),
        lambda x: fb.empty_like(x).copy_(_ROW),
        lambda x: x.masked_fill(_ROW > 3, 1.0),
        lambda x: x - x.mean(0),
        lambda x: fb.nn.functional.prelu(x, _ROW),
        lambda x: fb.nn.functional.conv1d(x[:, :, None], _SQUARE[:, :, None], _ROW) + _ROW[:, None],
        lambda x: fb.nn.functional.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None]),
        lambda x: fb.nn.functional.binary_cross_entropy_with_logits(x, fb.sigmoid(x), _ROW),
    ],
)
def test_a_batch_as_large_as_a_row_by_chance_stays_open(program):
    class Runs(nn.Module):
        def forward(self, x):
            return program(x)

    exported = export(Runs(), (fb.randn(8, 8),), dynamic_shapes={"x": {0: Dim("batch")}})

    x = fb.randn(5, 8)
    fb.testing.assert_close(exported.module()(x), program(x))


def test_constants_among_the_inputs_are_those_of_the_example():
    program = export(Net(), (fb.randn(5, 3), 3.0))

    with pytest.raises(AssertionError, match=r"Guard failed: scale == 3.0, got 2.0"):
        program.module()(fb.randn(5, 3), 2.0)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: export(fb.relu, (fb.ones(1),)), ValueError, "Expected `mod` to be an instance of `torch.nn.Module`"),
        (lambda: export(Net(), fb.ones(2, 3)), UserError, "Expecting `args` to be a tuple"),
        (lambda: export(Net(), (fb.ones(2, 3), 1, 2)), TypeError, "do not fit the forward"),
        (lambda: export(Net(), (fb.ones(2, 3),), dynamic_shapes={"z": None}), UserError, r"top-level keys must be the arg names \['x'\]"),
        (lambda: export(Shifted(), (fb.ones(5), fb.ones(6)), dynamic_shapes={"x": None}), UserError, "keys must be the arg names"),
        (lambda: export(Net(), (fb.ones(2, 3),), dynamic_shapes=({2: Dim("b")},)), UserError, "is no dimension"),
        (lambda: export(Net(), (fb.ones(2, 3),), dynamic_shapes=({0: 7},)), ConstraintViolationError, "does not match input size of 2"),
        (lambda: export(Net(), (fb.ones(2, 3),), dynamic_shapes=({0: "b"},)), UserError, "but got 'b' instead"),
        (lambda: export(Net(), (fb.ones(2, 3),), dynamic_shapes=([Dim("b")],)), UserError, "expected 2, but got 1 instead"),
        (lambda: export(Net(), (fb.ones(2, 3),), dynamic_shapes=({0: Dim("b", min=4)},)), ConstraintViolationError, r"2 not in range \[4"),
        (lambda: export(Net(), (fb.ones(3, 3),), dynamic_shapes=({0: Dim("b") * 2},)), UserError, r"of the form 2\*b, where b is"),
        (lambda: export(Branch(), (fb.ones(5),), dynamic_shapes=({0: Dim("b")},)), UserError, r"b = Dim\('b', min=4\)"),
        (lambda: export(Net(), (fb.ones(2, 3),), dynamic_shapes=({1: Dim("b")},)), UserError, r"specialized it to be a constant \(3\)"),
        (lambda: export(Shifted(), (fb.ones(5), fb.ones(6)), dynamic_shapes=({0: Dim("dx")}, {0: Dim("dy")})), UserError, "dy = dx"),
        (lambda: export(Net(), (fb.ones(2, 3),))(fb.ones(2, 3)), RuntimeError, "Unable to call ExportedProgram directly"),
        (lambda: Dim("b", min=4, max=2), AssertionError, "inconsistent min=4, max=2"),
        (lambda: Dim("not one"), AssertionError, "valid identifier, got not one"),
        (lambda: Dim(...), AttributeError, "'ellipsis' object has no attribute 'isidentifier'"),
    ],
)
def test_what_cannot_be_exported_is_refused(call, error, said):
    with pytest.raises(error, match=said):
        call()


def test_a_program_that_asks_for_values_is_refused():
    class Asks(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(Exception, match="data-dependent"):
        export(Asks(), (fb.ones(2),))


def test_suggested_fixes_can_be_taken():
    shapes = {"x": {0: Dim("b")}}
    with pytest.raises(UserError) as caught:
        export(Branch(), (fb.ones(5),), dynamic_shapes=shapes)

    refined = refine_dynamic_shapes_from_suggested_fixes(str(caught.value), shapes)

    assert export(Branch(), (fb.ones(5),), dynamic_shapes=refined).module()(fb.ones(8)).tolist() == [2.0] * 8


def test_hints_leave_sizes_open_where_the_program_does():
    program = export(Net().eval(), (fb.randn(5, 3),), dynamic_shapes=((Dim.AUTO, Dim.AUTO),))

    assert program.module()(fb.randn(2, 3))[1].ndim == 0
    with pytest.raises(AssertionError, match=r"size\(\)\[1\] == 3"):
        program.module()(fb.randn(2, 4))
    with pytest.raises(UserError, match="constant"):
        export(Net().eval(), (fb.randn(5, 3),), dynamic_shapes=((None, Dim.DYNAMIC),))


class Chosen(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = by

    def forward(self, x, y):
        return x + y if self.by(x, y) else x * 3


CHOICES = {
    "one size": (lambda x, y: x.shape[0] == 5, [(3, 3), (4, 4), (6, 6)], [(5, 5)]),
    "a multiple": (lambda x, y: x.shape[0] % 2 == 0, [(2, 2), (4, 4), (6, 6)], [(3, 3), (5, 5)]),
    "two sizes": (lambda x, y: x.shape[0] == y.shape[0], [(2, 2), (6, 6)], [(4, 1), (1, 4)]),
    "a square": (lambda x, y: x.shape[0] ** 2 > 10 * y.shape[0] - 25, [(4, 4), (6, 6)], [(5, 5)]),
    "a quotient": (lambda x, y: x.shape[0] // 3 == 1, [(3, 3), (5, 5)], [(6, 6), (2, 2)]),
    "a float": (lambda x, y: x.shape[0] / 3 > 1.5, [(2, 2), (4, 4)], [(5, 5)]),
}


@pytest.mark.parametrize("name", CHOICES)
def test_a_program_is_refused_sizes_for_which_its_module_would_decide_otherwise(name):
    by, fit, others = CHOICES[name]
    module = Chosen(by)
    program = export(module, (fb.ones(4), fb.ones(4)), dynamic_shapes=({0: Dim.AUTO}, {0: Dim.AUTO}))
    save(program, file := io.BytesIO())
    file.seek(0)

    for each in (program, load(file), program.run_decompositions()):
        run = each.module()
        for m, n in fit:
            x, y = fb.arange(1.0, m + 1), fb.arange(1.0, n + 1)
            assert run(x, y).equal(module(x, y))
        for m, n in others:
            with pytest.raises(AssertionError, match=r"Guard failed: .*[xy]\.size\(\)\[0\]"):
                run(fb.ones(m), fb.ones(n))


@pytest.mark.parametrize(("by", "said"), [(lambda x, y: x.shape[0] == 5, "b != 5"), (lambda x, y: x.shape[0] % 2 == 0, "(b % 2) == 0")])
def test_a_choice_that_no_range_of_a_dim_says_is_refused(by, said):
    b = Dim("b")

    with pytest.raises(UserError, match=re.escape(f"Not all values of b satisfy {said}, asked in {__file__}")):
        export(Chosen(by), (fb.ones(4), fb.ones(4)), dynamic_shapes=({0: b}, {0: b}))


def test_what_operators_compare_does_not_close_sizes():
    b = Dim("b")
    program = export(nn.Linear(4, 4), (fb.ones(3, 4),), dynamic_shapes=({0: b},))

    assert [tuple(program.module()(fb.ones(n, 4)).shape) for n in (1, 3, 4, 7)] == [(1, 4), (3, 4), (4, 4), (7, 4)]


@pytest.mark.parametrize("text", ["print(n0)", "n0.__class__", "(lambda: n0)()", "'a' * n0", "n1 > 2", "[n0]", "9 ** 9 ** 9", "n0 ** 9"])
def test_relations_in_files_are_of_numbers_alone(text):
    program = export(Chosen(CHOICES["a multiple"][0]), (fb.ones(4), fb.ones(4)), dynamic_shapes=({0: Dim.AUTO}, {0: Dim.AUTO}))
    save(program, file := io.BytesIO())
    damaged = io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(damaged, "w") as new:
        data = json.loads(old.read("program.json"))
        data["relations"][0] = [text, [[0, 0]], ["x"]]
        new.writestr("program.json", json.dumps(data))
        new.writestr("values.pt", old.read("values.pt"))
    damaged.seek(0)

    with pytest.raises(RuntimeError, match="is no relation of sizes"):
        load(damaged)


def test_shapes_can_be_said_of_tensors_and_by_more_examples():
    class Nested(nn.Module):
        def forward(self, x):
            return x["a"].sum(0) + x["b"][0].sum(0)

    a, b = fb.ones(3, 2), fb.ones(4, 2)
    shapes = ShapesCollection()
    shapes[a] = {0: Dim("rows")}
    more = AdditionalInputs()
    more.add(({"a": fb.ones(3, 2), "b": [fb.ones(6, 2)]},))

    first = export(Nested(), ({"a": a, "b": [b]},), dynamic_shapes=shapes)
    second = export(Nested(), ({"a": a, "b": [b]},), dynamic_shapes=more)

    assert shapes.dynamic_shapes(Nested(), ({"a": a, "b": [b]},))["x"]["b"] == [None]
    assert first.module()({"a": fb.ones(7, 2), "b": [b]}).tolist() == [11.0, 11.0]
    assert second.module()({"a": a, "b": [fb.ones(9, 2)]}).tolist() == [12.0, 12.0]
    more.verify(second)
    assert first.graph_signature.user_inputs == ("x_a", "x_b_0")


def test_decomposed_programs_give_new_values_of_buffers_first():
    net, x = Net(), fb.randn(6, 3)
    program = export(net, (fb.randn(5, 3),), dynamic_shapes={"x": {0: Dim("batch", min=2)}}).run_decompositions()

    kinds = [spec.kind for spec in program.graph_signature.output_specs]
    assert kinds == [OutputKind.BUFFER_MUTATION] * 3 + [OutputKind.USER_OUTPUT] * 2
    assert set(program.graph_signature.buffers_to_mutate.values()) == set(program.graph_signature.buffers)
    called = [str(node.target) for node in program.graph.nodes if "aten" in str(node.target)]
    assert not any(name.split(".")[1].endswith("_") for name in called)
    start = {name: value.clone() for name, value in net.state_dict().items()}
    made = program.module()(x)[0]["y"]
    moved = {name: value.clone() for name, value in net.state_dict().items()}
    net.load_state_dict(start)
    assert fb.allclose(made, net(x)[0]["y"], atol=1e-6)
    assert all(fb.allclose(moved[name].double(), value.double(), atol=1e-6) for name, value in net.state_dict().items())


def test_a_table_of_decompositions_can_be_changed():
    table = fb.export.default_decompositions()
    table.pop(fb.ops.aten.gelu.default, None)

    assert fb.ops.aten.gelu.default not in table.copy()
    assert len(table.materialize()) > 50
    program = export(nn.Sequential(nn.GELU(), nn.SiLU()), (fb.ones(2),)).run_decompositions(table)
    assert "aten.gelu.default" in str(program.graph)


# -- as files --------------------------------------------------------------------------------------------------------------


def saved(program, **given):
    file = io.BytesIO()
    save(program, file, **given)
    file.seek(0)
    return file


def test_a_program_is_saved_and_loaded():
    program = export(Net().eval(), (fb.randn(5, 3), 3.0), dynamic_shapes={"x": {0: Dim("batch", max=9)}, "scale": None})
    texts = {"note.txt": ""}

    again = load(saved(program, extra_files={"note.txt": "hello"}), extra_files=texts)
    x = fb.randn(7, 3)

    assert texts == {"note.txt": "hello"}
    assert again.module()(x, 3.0)[0]["y"].equal(program.module()(x, 3.0)[0]["y"])
    assert str(again.graph) == str(program.graph)
    assert str(again.graph_signature) == str(program.graph_signature)
    assert list(map(str, again.range_constraints.values())) == ["VR[0, 9]"]
    assert next(iter(again.graph.nodes)).meta["val"].shape == (4, 3)
    with pytest.raises(AssertionError, match="<= 9"):
        again.module()(fb.randn(10, 3), 3.0)


def test_networks_of_many_kinds_come_back_from_files():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    convolutional = nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2 * 3 * 3, 2)).eval()
    for net, x in ((layer, fb.randn(2, 5, 8)), (convolutional, fb.randn(2, 1, 8, 8)), (nn.LSTM(3, 4).eval(), fb.randn(5, 2, 3))):
        again = load(saved(export(net, (x,)))).module()(x)

        for made, expected in zip(fb.utils._pytree.tree_leaves(again), fb.utils._pytree.tree_leaves(net(x)), strict=True):
            assert fb.allclose(made, expected, atol=1e-6)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data["nodes"].__setitem__(-2, {**data["nodes"][-2], "target": ["function", "load"]}),
        lambda data: data["nodes"].__setitem__(-2, {**data["nodes"][-2], "target": ["operator", "os.system.default"]}),
        lambda data: data["nodes"].__setitem__(-2, {**data["nodes"][-2], "op": "call_method", "target": "__reduce__"}),
        lambda data: data["nodes"].__setitem__(-2, {**data["nodes"][-2], "op": "get_attr", "target": "__class__"}),
        lambda data: data["nodes"].__setitem__(-2, {**data["nodes"][-2], "target": ["number", "attrgetter"]}),
        lambda data: data.update(version=99),
        lambda data: data.pop("inputs"),
        lambda data: data["nodes"][-1].update(args=["dtype", "torch.load"]),
    ],
)
def test_a_file_calls_nothing_but_operators(damage):
    with zipfile.ZipFile(saved(export(nn.ReLU(), (fb.ones(2),)))) as archive:
        data, values = json.loads(archive.read("program.json")), archive.read("values.pt")
    damage(data)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("program.json", json.dumps(data))
        archive.writestr("values.pt", values)

    with pytest.raises(RuntimeError, match=r"export.load: the file"):
        load(file)


def test_what_is_no_program_is_refused():
    with pytest.raises(RuntimeError, match="no exported program"):
        load(io.BytesIO(b"nothing"))
    with pytest.raises(TypeError, match="must be an instance of 'ExportedProgram'"):
        save(nn.ReLU(), io.BytesIO())


def test_dataclasses_are_inputs_and_results():
    @dataclasses.dataclass
    class Pair:
        one: fb.Tensor
        two: fb.Tensor

    class Swap(nn.Module):
        def forward(self, pair):
            return Pair(pair.two, pair.one + 1)

    fb.export.register_dataclass(Pair, serialized_type_name="tests.export.Pair")
    made = export(Swap(), (Pair(fb.zeros(1), fb.ones(1)),)).module()(Pair(fb.zeros(1), fb.ones(1)))

    assert (made.one.item(), made.two.item()) == (1.0, 1.0)
    with pytest.raises(AssertionError, match="Only dataclasses"):
        fb.export.register_dataclass(int)


def test_programs_move_to_devices():
    program = fb.export.passes.move_to_device_pass(export(Net().eval(), (fb.randn(5, 3),)), "meta")

    assert {x.device.type for x in program.state_dict.values()} == {"meta"}
    assert all(isinstance(program.state_dict[name], nn.Parameter) for name in program.graph_signature.parameters)


def test_dims_makes_several():
    a, b = dims("a", "b", min=2)

    assert (repr(a), repr(b), repr(2 * a + 1), repr(Dim.AUTO)) == ("Dim('a', min=2)", "Dim('b', min=2)", "2*a + 1", "DimHint(AUTO)")


def test_operators_and_inputs_are_those_of_pytorchs_programs():
    torch = pytest.importorskip("torch")
    found = {}
    for lib in (torch, fb):
        net = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.LayerNorm(4), lib.nn.GELU(), lib.nn.Linear(4, 2))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = lib.export.export(net, (lib.ones(5, 3),), dynamic_shapes=({0: lib.export.Dim("batch", min=2, max=8)},))
        signature = program.graph_signature
        found[lib] = (
            [str(node.target) for node in program.graph.nodes], [(spec.kind.name, spec.target) for spec in signature.input_specs],
            signature.user_inputs, signature.user_outputs, [str(r) for r in program.range_constraints.values()],
        )  # fmt: skip

    assert found[fb] == found[torch]
    assert InputKind.PARAMETER.name == "PARAMETER"


def test_programs_with_branches_and_repetitions_are_exported_with_their_graphs() -> None:
    from flambeau._higher_order_ops import associative_scan, scan

    class Program(fb.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = fb.nn.Parameter(fb.tensor(2.0))

        def forward(self, x: fb.Tensor) -> fb.Tensor:
            summed = associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic")
            carry, steps = scan(lambda c, y: (c + y, c * y), fb.zeros(2), summed)
            return fb.cond(carry.sum() > 0, lambda y: y * self.scale, lambda y: -y, (steps,))

    net = Program()
    program = fb.export.export(net, (fb.ones(3, 2),), dynamic_shapes=({0: fb.export.Dim("n", min=2)},)).module()

    for x in (fb.ones(3, 2), -fb.ones(5, 2), fb.linspace(-1, 2, 8).view(4, 2)):
        assert fb.equal(program(x), net(x))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.LSTM(3, 4, 2, batch_first=True)

    def forward(self, x):
        return self.cells(x)[0]


def test_recurrent_layers_are_one_operator_for_sequences_of_any_length():
    model = Recurrent()
    program = export(model, (fb.randn(2, 5, 3),), dynamic_shapes=({0: Dim("batch"), 1: Dim("time")},))
    file = io.BytesIO()
    fb.export.save(program, file)
    file.seek(0)

    x = fb.randn(3, 7, 3)
    assert [str(n.target) for n in program.graph.nodes].count("aten.lstm.input") == 1
    assert program.module()(x).equal(model(x))
    assert fb.export.load(file).module()(x).equal(model(x))


def test_nodes_say_which_lines_of_modules_they_come_from():
    class Doubling(nn.Module):
        def forward(self, x):
            return x * 2

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Doubling()

        def forward(self, x):
            y = self.inner(x)
            return y + 1

    program = export(Model(), (fb.ones(2),))
    mul, add = [node for node in program.graph.nodes if node.op == "call_function"]

    assert [line.strip() for line in mul.stack_trace.splitlines()][1::2] == ["y = self.inner(x)", "return x * 2"]
    assert add.stack_trace.endswith("return y + 1")
    text = str(program)
    assert f"# File: {__file__}:" in text
    assert "in forward, code: return x * 2" in text
    assert "No stacktrace" not in text
    assert "code: return y + 1" in str(program.run_decompositions())
    file = io.BytesIO()
    save(program, file)
    file.seek(0)
    assert [node.stack_trace for node in load(file).graph.nodes] == [node.stack_trace for node in program.graph.nodes]


def test_sizes_of_one_name_are_one_size():
    class Sum(nn.Module):
        def forward(self, a, b):
            return a + b

    program = export(Sum(), (fb.ones(3, 2), fb.ones(3, 2)), dynamic_shapes=({0: Dim("batch")}, {0: Dim("batch")}))

    assert program.module()(fb.ones(5, 2), fb.ones(5, 2)).shape == (5, 2)
    with pytest.raises(AssertionError, match=r"Guard failed: .*a.size\(\)\[0\]"):
        program.module()(fb.ones(5, 2), fb.ones(1, 2))
    with pytest.raises(UserError, match=r"different definitions .*min=0.*min=2"):
        export(Sum(), (fb.ones(3, 2), fb.ones(3, 2)), dynamic_shapes=({0: Dim("batch", min=2)}, {0: Dim("batch")}))
    with pytest.raises(UserError, match=r"of c = L\['b'\].size\(\)\[0\] and batch = L\['a'\].size\(\)\[0\] must always be equal"):
        export(Sum(), (fb.ones(3, 2), fb.ones(3, 2)), dynamic_shapes=({0: Dim("batch")}, {0: Dim("c")}))


def test_sizes_without_names_are_shown_from_2_on():
    class Double(nn.Module):
        def forward(self, x):
            return x * 2

    for hint, shown in ((Dim.AUTO, "VR[2, int_oo]"), (Dim.DYNAMIC(max=9), "VR[2, 9]"), (Dim.AUTO(min=3, max=9), "VR[3, 9]")):
        program = export(Double(), (fb.ones(4, 2),), dynamic_shapes=({0: hint},))
        file = io.BytesIO()
        save(program, file)
        file.seek(0)
        assert [str(r) for r in program.range_constraints.values()] == [shown]
        assert [str(r) for r in load(file).range_constraints.values()] == [shown]
    assert program.module()(fb.ones(9, 2)).shape == (9, 2)
    assert export(Double(), (fb.ones(4, 2),), dynamic_shapes=({0: Dim.AUTO},)).module()(fb.ones(1, 2)).shape == (1, 2)
    with pytest.raises(AssertionError, match=">= 3, got 2"):
        program.module()(fb.ones(2, 2))


class Keeper(nn.Module):
    """Assigns to buffers, and has one layer under two names."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", fb.zeros(2))
        self.register_buffer("scale", fb.ones(2), persistent=False)
        self.plain, self.first = fb.zeros(2), nn.Linear(2, 2)
        self.second = self.first

    def forward(self, x):
        self.count = self.count + x.sum(0)
        self.scale = self.scale * 2
        return self.second(self.first(x)) * self.scale + self.count + self.plain


def test_what_is_assigned_to_buffers_is_their_new_value():
    model, x = Keeper(), fb.ones(3, 2)
    program = export(model, (x,))
    assert model.count.equal(fb.zeros(2))
    decomposed = program.run_decompositions()
    assert sorted(decomposed.graph_signature.buffers_to_mutate.values()) == ["count", "scale"]
    assert (program.dialect, decomposed.dialect) == ("TRAINING", "ATEN")
    for each in (program, decomposed):
        model = Keeper()
        made = each.module()
        made.load_state_dict(model.state_dict())
        made.count.zero_()
        made.scale.fill_(1)
        for _ in range(2):
            assert made(x).equal(model(x))
        assert made.count.equal(model.count)
        assert made.scale.equal(model.scale)
        assert sorted(made.state_dict()) == sorted(model.state_dict())


def test_parameters_of_several_names_are_inputs_under_each():
    model = Keeper()
    program = export(model, (fb.ones(3, 2),))

    assert program.graph_signature.parameters == ("first.weight", "first.bias", "second.weight", "second.bias")
    assert sorted(program.state_dict) == sorted(model.state_dict())
    made = program.module()
    assert made.first.weight is made.second.weight
    assert [name for name, _ in made.named_parameters()] == ["first.weight", "first.bias"]


def test_attributes_that_are_assigned_stay_what_they_were():
    class Assigning(nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = fb.ones(2)

        def forward(self, x):
            self.shift = self.shift + 1
            self.last = x * 2
            return x + self.shift

    model = Assigning()
    before = model.shift
    with pytest.warns(UserWarning, match="The tensor attributes self.shift, self.last were assigned during export"):
        program = export(model, (fb.ones(2),))
    assert model.shift is before
    assert not hasattr(model, "last")
    assert program.graph_signature.lifted_tensor_constants == ("shift",)
    assert program.module()(fb.ones(2)).equal(fb.full((2,), 3.0))


def test_shapes_of_tensors_that_are_no_inputs_are_refused():
    x, shapes = fb.ones(2, 3), ShapesCollection()
    shapes[x] = {0: Dim("b")}

    with pytest.raises(ValueError, match="were not found in args"):
        export(Net(), (fb.ones(2, 3),), dynamic_shapes=shapes)
    with pytest.raises(AssertionError, match="do not match: expected"):
        shapes[x] = {0: Dim("c")}
    with pytest.raises(ValueError, match=r"keywords \['z'\] but expected \[\]"):
        export(Net(), (x,)).module()(z=x)


def test_masks_are_made_for_any_length():
    class Masked(nn.Module):
        def forward(self, x):
            at = fb.arange(x.shape[1], device=x.device)
            seen = x.new_ones((), dtype=fb.bool) & (at[None, :] <= at[:, None])
            return x.new_full((x.shape[1],), 2.0) * x.masked_fill(~seen, 0.0)

    program = export(Masked(), (fb.ones(5, 5),), dynamic_shapes=({0: Dim("t"), 1: Dim("t")},))

    x = fb.randn(9, 9)
    assert program.module()(x).equal(Masked()(x))
    assert [str(r) for r in program.range_constraints.values()] == ["VR[0, int_oo]"]
    assert all("val" in node.meta for node in program.graph.nodes if "new" in node.name)


class Applied(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.run, self.layer = run, nn.Linear(3, 4)

    def forward(self, x):
        return self.run(self, x)


@pytest.mark.parametrize("run", [
    lambda m, x: m.layer(x), lambda m, x: m.layer(x[0]), lambda m, x: m.layer(x[:, None]), lambda m, x: 1 - x,
    lambda m, x: x.sigmoid().logit(0.1), lambda m, x: x.transpose(0, 1), lambda m, x: x.narrow(1, 0, 2), lambda m, x: x.square(),
    lambda m, x: x.unsqueeze(0).squeeze(), lambda m, x: (x > 9).all(), lambda m, x: (x > 0).all(1), lambda m, x: x.std(1),
    lambda m, x: fb.var_mean(x, 1), lambda m, x: fb.std_mean(x), lambda m, x: x.clamp_min(0), lambda m, x: fb.count_nonzero(x, 0),
    lambda m, x: nn.functional.celu(x, 0.5), lambda m, x: nn.functional.selu(x), lambda m, x: 2.5 - (x * 9).int(),
])  # fmt: skip
def test_decomposed_programs_have_core_operators_alone(run):
    model, x = Applied(run), fb.randn(5, 3)
    program = export(model, (x,)).run_decompositions()

    called = [node.target for node in program.graph.nodes if node.op == "call_function" and hasattr(node.target, "tags")]
    assert [str(target) for target in called if fb.Tag.core not in target.tags] == []
    for a, b in zip(pytree.tree_leaves(program.module()(x)), pytree.tree_leaves(model(x)), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert fb.allclose(a, b, atol=1e-6)


def test_operators_that_the_table_lacks_stay_whole():
    table = fb.export.default_decompositions()
    table.pop(fb.ops.aten.linear.default)
    program = export(nn.Linear(3, 4), (fb.ones(2, 3),))

    assert "aten.linear.default" in str(program.run_decompositions(table).graph)
    assert "aten.linear.default" in str(program.run_decompositions({}).graph)
    assert "aten.addmm.default" in str(program.run_decompositions().graph)


def test_arguments_of_any_number_are_inputs_each():
    class Sum(nn.Module):
        def forward(self, x, *others, scale=1):
            return (x + sum(others)) * scale

    x = fb.ones(2)
    program = export(Sum(), (x, x, x), {"scale": 3})

    assert program.graph_signature.user_inputs == ("x", "others_1", "others_2", 3)
    assert program.module()(x, x * 2, x * 3, scale=3).equal(x * 18)


LAYERS = {
    "batch norm": (lambda: nn.BatchNorm2d(3), (2, 3, 4, 4)), "layer norm": (lambda: nn.LayerNorm(4), (2, 3, 4)),
    "group norm": (lambda: nn.GroupNorm(2, 4), (2, 4, 3)), "rms norm": (lambda: nn.RMSNorm(4), (2, 4)),
    "pool": (lambda: nn.Sequential(nn.MaxPool1d(2), nn.AvgPool1d(2), nn.AdaptiveAvgPool1d(3)), (2, 3, 16)),
    "lstm": (lambda: nn.LSTM(4, 3, batch_first=True), (2, 5, 4)), "linear": (lambda: nn.Linear(4, 3), (2, 5, 4)),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), (2, 5, 8)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers_with_parameters_become_core_operators(name):
    make, shape = LAYERS[name]
    layer, x = make(), fb.randn(*shape)
    program = export(layer, (x,)).run_decompositions()

    nodes = [node.target for node in program.graph.nodes if node.op == "call_function" and node.target is not operator.getitem]
    in_training = {fb.ops.aten._native_batch_norm_legit_functional.default}     # PyTorch's programs have it as well
    assert not [str(target) for target in nodes if fb.Tag.core not in target.tags and target not in in_training]
    expected, found = (pytree.tree_leaves(f(x)) for f in (copy.deepcopy(layer), program.module()))
    for y, z in zip(expected, found, strict=True):
        assert fb.allclose(y, z, rtol=1e-4, atol=1e-5)


class _Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.linear, self.drop = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2), nn.Dropout(0.5)

    def forward(self, x):
        x = nn.functional.adaptive_avg_pool2d(self.norm(self.conv(x)).relu(), 1).flatten(1)
        x = nn.functional.layer_norm(self.drop(self.linear(x)), (2,))[None, None]
        return nn.functional.scaled_dot_product_attention(x, x, x)


def _linear_of_two(x, weight, bias=None):
    aten = fb.ops.aten
    y = aten.matmul.default(x, aten.t.default(weight))
    return y if bias is None else aten.add.Tensor(y, bias)


# What is taken out of the default table, or the table itself, or what a function of the program's own is for: which operators
# PyTorch 2.13 has in the program then.
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("out", "stays"),
    [
        (["conv2d.default"], {"conv2d"}), (["linear.default", "layer_norm.default"], {"linear", "layer_norm"}),
        (["scaled_dot_product_attention.default"], {"scaled_dot_product_attention"}), ([], set()),
        (["adaptive_avg_pool2d.default", "conv2d.default"], {"adaptive_avg_pool2d", "conv2d"}),
        ({}, {"conv2d", "linear", "layer_norm", "scaled_dot_product_attention", "adaptive_avg_pool2d"}),
    ],
)
def test_what_a_table_has_no_decomposition_of_stays_an_operator(out, stays, training):
    table = fb.export.default_decompositions() if isinstance(out, list) else out
    for name in out:
        packet, overload = name.split(".")
        del table[getattr(getattr(fb.ops.aten, packet), overload)]
    model, x = _Several().train(training), fb.randn(2, 3, 5, 5)
    program = export(model, (x,)).run_decompositions(table)

    found = {node.target._opname for node in program.graph.nodes if node.op == "call_function" and node.target is not operator.getitem}
    every = {"conv2d", "linear", "layer_norm", "scaled_dot_product_attention", "adaptive_avg_pool2d"}
    assert found & every == stays
    made = {"_native_batch_norm_legit_functional", "native_dropout"} if training else {"_native_batch_norm_legit_no_training", "clone"}
    assert made <= found
    fb.manual_seed(1)
    expected = copy.deepcopy(model)(x)
    fb.manual_seed(1)
    assert fb.allclose(program.module()(x), expected, atol=1e-5)


def test_functions_of_a_table_of_the_programs_own_stand_for_compositions():
    aten = fb.ops.aten
    table = fb.export.default_decompositions()
    table[aten.linear.default] = _linear_of_two
    model, x = _Several().eval(), fb.randn(2, 3, 5, 5)
    program = export(model, (x,)).run_decompositions(table)

    targets = [node.target for node in program.graph.nodes]
    assert aten.addmm.default not in targets
    assert targets.index(aten.mm.default) + 1 == targets.index(aten.add.Tensor)
    assert fb.allclose(program.module()(x), model(x), atol=1e-5)


# Layers, in training where that makes a difference, and operators of PyTorch that are all that their programs hold.
@pytest.mark.parametrize(
    ("make", "shape", "wanted"),
    [
        (lambda: nn.AdaptiveMaxPool1d(2), (2, 3, 8), ["unsqueeze", "adaptive_max_pool2d", "squeeze"]),
        (lambda: nn.AdaptiveMaxPool3d(2), (2, 3, 4, 4, 4), ["adaptive_max_pool3d"]),
        (lambda: nn.FractionalMaxPool2d(2, output_size=(3, 3)), (2, 3, 8, 8), ["rand", "fractional_max_pool2d"]),
        (nn.RReLU, (4, 6), ["empty", "rrelu_with_noise_functional"]),
        (nn.Dropout2d, (2, 3, 8, 8), ["empty", "bernoulli", "div", "mul"]),
        (lambda: nn.InstanceNorm1d(3), (2, 3, 8), ["native_group_norm"]),
        (
            lambda: nn.InstanceNorm1d(3, track_running_stats=True), (2, 3, 8),
            ["repeat", "repeat", "view", "_native_batch_norm_legit_functional", *["view", "mean", "copy"] * 2, "view"],
        ),
    ],
    ids=lambda x: "",
)  # fmt: skip
def test_programs_taken_apart_have_operators_of_pytorch_alone(make, shape, wanted):
    layer, x = make().train(), fb.rand(shape)
    before = copy.deepcopy(layer.state_dict())
    program = export(layer, (x,)).run_decompositions()

    nodes = [node.target for node in program.graph.nodes if node.op == "call_function" and node.target is not operator.getitem]
    assert [target._opname for target in nodes] == wanted
    assert {target.namespace for target in nodes} == {"aten"}
    layer.load_state_dict(before)
    fb.manual_seed(1)
    expected = layer(x)
    fb.manual_seed(1)
    run = program.module()
    assert fb.allclose(run(x), expected, atol=1e-5)
    for name, value in layer.state_dict().items():
        assert fb.allclose(run.state_dict()[name].double(), value.double(), atol=1e-6)


def test_results_of_sizes_that_values_decide_stay_open_in_programs_taken_apart():
    def picked(x):
        return x.nonzero() * 2, fb.argwhere(x), x[x > 0] + 1, x[:, x[0] > 0], x.masked_select(x > 0)

    class Picks(nn.Module):
        def forward(self, x):
            return picked(x)

    program = export(Picks(), (fb.eye(3),))
    apart = program.run_decompositions()

    found = [str(node.target) for node in apart.graph.nodes if node.op == "call_function"]
    wanted = ["nonzero.default", "mul.Tensor", "nonzero.default", "gt.Scalar", "index.Tensor", "add.Tensor"]
    assert found[:6] == [f"aten.{name}" for name in wanted]
    assert not [name for name in found if "prims" in name]
    for x in (fb.eye(3), -fb.eye(3), fb.arange(9.0).reshape(3, 3)):
        for run in (program.module(), apart.module()):
            assert all(map(fb.equal, run(x), picked(x)))


def _half_without_history(x, layer):
    with fb.no_grad():
        y = layer(x)
    return (y * layer(x)).sum()


# What PyTorch 2.13's programs give: gradients of what the program computes, where it asks for them.
@pytest.mark.parametrize(
    "f",
    [
        _half_without_history,
        lambda x, layer: (x.detach() * layer(x)).sum(),
        lambda x, layer: layer(fb.no_grad()(lambda z: z * 2)(x) * x).sum(),
        lambda x, layer: (layer(x) if fb.is_grad_enabled() else x).sum(),
        lambda x, layer: nn.functional.dropout2d(x[..., None, None], 0.25, True).sum() + layer(x).sum(),
    ],
    ids=["no_grad", "detach", "decorated", "asked", "dropout2d"],
)
def test_programs_have_the_gradients_of_the_module(f):
    class Runs(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x):
            return f(x, self.layer)

    model = Runs()
    found = []
    for run in (model, export(model, (fb.ones(2, 3, requires_grad=True),)).module()):
        x = fb.ones(2, 3, requires_grad=True)
        fb.manual_seed(3)
        run(x).backward()
        found.append([x.grad, *(p.grad for p in run.parameters())])
    assert all(map(fb.equal, *found))


def test_a_recorded_tensor_and_what_is_detached_of_it_are_told_apart():
    gm = fb.fx.experimental.proxy_tensor.make_fx(lambda x: x.detach() * x, tracing_mode="fake")(fb.ones(2))

    names = {node.name: node for node in gm.graph.nodes}
    assert [n.name for n in names["mul"].args] == ["detach", "x_1"]


def test_sizes_that_are_multiples_of_a_name_alone_stay_open():
    class Halves(nn.Module):
        def forward(self, x, y):
            return x.reshape(2, -1).sum(1), x + y

    half = Dim("half")
    program = export(Halves(), (fb.ones(6), fb.ones(6)), dynamic_shapes={"x": {0: 2 * half}, "y": {0: 2 * half}})

    sums, both = program.module()(fb.ones(10), fb.ones(10))
    assert sums.tolist() == [5.0, 5.0]
    assert both.shape == (10,)
    with pytest.raises(AssertionError, match="% 2"):
        program.module()(fb.ones(9), fb.ones(9))


class _Chooses(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", fb.zeros(()))

    def forward(self, x):
        self.count += 1
        places = x.nonzero()
        if places.shape[0] > 2:
            x = x * 2
        for _ in range(int(self.count.item())):
            x = x + 1
        return x


def test_a_draft_takes_what_python_asks_for_from_the_example_and_asserts_it():
    module, x = _Chooses(), fb.ones(4, 3)
    with pytest.raises(RuntimeError, match="data-dependent"):
        export(module, (x,))

    program = draft_export(module, (x,))
    failures = program._report.failures
    run = program.module()

    assert module.count == 0
    assert [(f.failure_type.name, f.data["expr"], f.data["result"]) for f in failures] == [
        ("DATA_DEPENDENT_ERROR", "u0 > 2", "True"), ("DATA_DEPENDENT_ERROR", "TruncToInt(zuf0)", "1"),
    ]  # fmt: skip
    assert [at["name"] for at in failures[0].data["user_stack"]] == ["forward"]
    assert not program._report.successful()
    assert "u0 > 2" in str(program._report)
    with pytest.raises(RuntimeError):                 # the example had more than two places
        run(fb.zeros(4, 3))
    assert program.module()(x).equal(fb.full((4, 3), 3.0))


def test_a_draft_opens_sizes_as_far_as_the_program_allows():
    class One(nn.Module):
        def forward(self, x):
            return x + 1 if x.shape[0] == 4 else x * 2

    program = draft_export(One(), (fb.ones(4, 3),), dynamic_shapes={"x": {0: Dim("b")}})
    (failure,) = program._report.failures

    assert failure.failure_type.name == "GUARD_ADDED"
    assert (failure.data["expr"], failure.data["symbol_to_sources"]) == ("Eq(s0, 4)", {"s0": "L['x'].size()[0]"})
    assert failure.data["new_dynamic_shapes"] == {"x": {0: Dim.AUTO}}
    assert program.range_constraints == {}


@contextlib.contextmanager
def _closing(lib):
    try:
        yield lib
    finally:
        lib._destroy()


def test_a_draft_makes_fake_kernels_of_what_operators_give():
    with _closing(library.Library("drafts", "DEF")) as lib:
        lib.define("missing(Tensor x) -> Tensor")
        lib.impl("missing", lambda x: x[x > 0], "CPU")
        lib.define("wrong(Tensor x) -> (Tensor, Tensor)")
        lib.impl("wrong", lambda x: (x.sum(), x + 1), "CPU")
        library.register_fake("drafts::wrong", lambda x: (fb.empty_like(x), fb.empty_like(x)), lib=lib)

        class Calls(nn.Module):
            def forward(self, x):
                total, more = fb.ops.drafts.wrong(x)
                return fb.ops.drafts.missing(x) * total + more.sum()

        x = fb.ones(3)
        program = draft_export(Calls(), (x,))
        missing = program._report.op_profiles["drafts.missing.default"]

        kinds = {f.data["op"]: f.failure_type.name for f in program._report.failures}
        assert kinds == {"drafts.wrong.default": "MISMATCHED_FAKE_KERNEL", "drafts.missing.default": "MISSING_FAKE_KERNEL"}
        assert [p.out_profile.rank for p in missing] == [1]
        y = fb.tensor([1.0, -1.0, 2.0])
        assert program.module()(y).equal(Calls()(y))
        with pytest.raises(NotImplementedError, match="fake"):
            export(Calls(), (x,))
        with unsafe_generate_fake_kernels(program._report.op_profiles):
            export(Calls(), (x,))


def test_a_draft_of_a_program_without_issues_is_what_export_gives():
    net, x = Net().eval(), fb.randn(5, 3)
    program = draft_export(net, (x,), dynamic_shapes={"x": {0: Dim("batch")}})

    assert program._report.successful()
    assert str(program.graph) == str(export(net, (x,), dynamic_shapes={"x": {0: Dim("batch")}}).graph)


def test_lines_without_a_text_are_shown_as_not_found():
    names = {"nn": nn}
    exec(compile("class Doubled(nn.Module):\n    def forward(self, x):\n        return x * 2\n", "<no file>", "exec"), names)
    shown = str(export(names["Doubled"](), (fb.ones(2),)))

    assert "# No stacktrace found for following nodes" in shown
