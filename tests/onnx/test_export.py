"""`onnx.export` as a function: names, files, sizes, weights, errors, translations of the program's own."""

from __future__ import annotations

import io
import warnings

import pytest

import flambeau as fb
from comparing_onnx import agree, exported, reference  # pyright: ignore[reportMissingImports]
from flambeau import nn, onnx
from flambeau.onnx import errors, symbolic_helper, verification

package = pytest.importorskip("onnx.helper") and __import__("onnx")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.drop, self.second = nn.Linear(4, 48), nn.Dropout(), nn.Linear(48, 2)

    def forward(self, x, shift=None):
        y = self.second(self.drop(self.first(x).relu()))
        return y if shift is None else y + shift


def sizes_of(info):
    return [d.dim_param or d.dim_value for d in info.type.tensor_type.shape.dim]


def test_the_first_exporter_writes_a_file_of_the_model_in_eval_mode(tmp_path):
    net, x = Net(), fb.randn(3, 4)
    path = tmp_path / "net.onnx"

    made = onnx.export(net, x, path, input_names=["in"], output_names=["out"], dynamic_axes={"in": {0: "n"}, "out": [0]})

    assert made is None
    assert net.training
    assert list(tmp_path.iterdir()) == [path]
    model = package.load(path)
    package.checker.check_model(model, full_check=True)
    assert [x.version for x in model.opset_import] == [18]
    assert (sizes_of(model.graph.input[0]), sizes_of(model.graph.output[0])) == (["n", 4], ["out_dynamic_axes_1", 2])
    assert {w.name for w in model.graph.initializer} == set(net.state_dict())
    x = fb.randn(9, 4)
    assert fb.allclose(fb.tensor(reference(model).run(None, {"in": x.numpy()})[0]), net.eval()(x), atol=1e-5)


def test_names_that_a_program_has_not_are_those_of_its_values():
    program = exported(Net().eval(), fb.randn(3, 4), fb.randn(2))
    assert [x.name for x in program.model_proto.graph.input] == ["x", "shift"]
    program = exported(Net().eval(), fb.randn(3, 4), kwargs={"shift": fb.randn(2)}, input_names=["a"], output_names=["b"])
    assert [x.name for x in program.model_proto.graph.input] == ["a", "shift"]
    assert [x.name for x in program.model_proto.graph.output] == ["b"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"input_names": ["a", "b"]}, "1 inputs and 1 outputs"), ({"output_names": ["a", "b"]}, "given are 0 input_names and 2"),
        ({"input_names": ["a"], "output_names": ["a"]}, "'a'"), ({"output_names": ["first.weight"]}, "'first.weight'"),
    ],
)  # fmt: skip
def test_names_that_do_not_fit_are_refused(names, said, tmp_path):
    with pytest.raises(onnx.OnnxExporterError, match=said):
        onnx.export(Net(), fb.randn(3, 4), tmp_path / "net.onnx", **names)
    assert list(tmp_path.iterdir()) == []


def test_sizes_are_open_by_names_too():
    program = exported(lambda x, y: x @ y, fb.randn(3, 4), fb.randn(4, 5), dynamic_shapes=({0: "rows"}, {1: fb.export.Dim("columns")}))

    graph = program.model_proto.graph
    assert [sizes_of(x) for x in (*graph.input, *graph.output)] == [["rows", 4], [4, "columns"], ["rows", "columns"]]
    agree(lambda x, y: x @ y, program, fb.randn(7, 4), fb.randn(4, 2))
    program.rename_axes({"rows": "n"})
    assert sizes_of(graph.output[0]) == ["n", "columns"]


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.norm = nn.Parameter(fb.tensor(3.0)), nn.BatchNorm1d(2)

    def forward(self, scale):
        return self.norm(scale * self.scale)


def test_inputs_and_weights_of_one_name_are_told_apart():
    net, x = Scaled().eval(), fb.randn(3, 2)
    program = exported(net, x)

    assert program.model_proto.graph.input[0].name not in net.state_dict()
    agree(net, program, x)


def test_a_model_in_training_is_exported_so():
    net, x = Scaled(), fb.randn(5, 2)
    program = exported(net, x, dynamic_shapes=({0: "n"},))

    agree(lambda x: net.norm(x * net.scale), program, fb.randn(8, 2))
    assert net.norm.num_batches_tracked == 1  # what was run here, and not the export


def test_results_keep_their_order_and_may_be_inputs_and_numbers():
    def several(x, n):
        return {"a": x, "b": [x * n, x.shape[0], x, n]}

    program = exported(several, fb.randn(3, 2), 2, dynamic_shapes=({0: fb.export.Dim("n")}, None))
    agree(several, program, fb.randn(5, 2), 2)


@pytest.mark.parametrize("kind", ["program", "script", "trace", "function of a script"])
def test_programs_scripts_and_traces_are_exported(kind):
    net, x = Net().eval(), fb.randn(3, 4)
    if kind == "program":
        program = onnx.export(fb.export.export(net, (x,)), dynamo=True)
    elif kind == "function of a script":
        net = fb.jit.script(lambda_of_two)
        program = exported(net, x)
    else:
        program = exported(fb.jit.trace(net, x) if kind == "trace" else fb.jit.script(nn.Sequential(nn.Linear(4, 2), nn.ReLU())), x)
        net = net if kind == "trace" else program.exported_program.module()
    agree(net, program, x)


def lambda_of_two(x):
    return x * 2 + 1


# -- files


def test_large_weights_go_to_a_file_beside(tmp_path):
    net, x = Net().eval(), fb.randn(3, 4)
    path = tmp_path / "net.onnx"
    program = onnx.export(net, (x,), path, dynamo=True)

    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.onnx"]  # none of its weights has a kilobyte
    net.second = nn.Linear(48, 32)
    program = onnx.export(net, (x,), path, dynamo=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.onnx", "net.onnx.data"]
    package.checker.check_model(str(path), full_check=True)
    model = package.load(path)
    assert fb.allclose(fb.tensor(reference(model).run(None, {"x": x.numpy()})[0]), net(x), atol=1e-5)
    whole = {w.name: w.raw_data for w in program.model_proto.graph.initializer}
    assert all(whole[w.name] == w.raw_data for w in model.graph.initializer)
    program.save(tmp_path / "one.onnx")
    assert not (tmp_path / "one.onnx.data").exists()
    assert len((tmp_path / "one.onnx").read_bytes()) > len(path.read_bytes())


def test_a_model_is_written_to_an_open_file():
    file = io.BytesIO()
    onnx.export(Net(), fb.randn(3, 4), file)
    package.checker.check_model(package.load_from_string(file.getvalue()), full_check=True)
    with pytest.raises(ValueError, match="path to put it beside"):
        onnx.export(Net(), (fb.randn(3, 4),), dynamo=True).save(file, external_data=True)


def test_weights_can_be_inputs(tmp_path):
    program = onnx.export(Net().eval(), (fb.randn(3, 4),), dynamo=True)
    program.save(tmp_path / "bare.onnx", include_initializers=False)
    program.save(tmp_path / "both.onnx", keep_initializers_as_inputs=True)
    bare, both = (package.load(tmp_path / name) for name in ("bare.onnx", "both.onnx"))
    names = ["x", "first.weight", "first.bias", "second.weight", "second.bias"]

    assert [sorted(x.name for x in m.graph.input) for m in (bare, both)] == [sorted(names)] * 2
    assert (len(bare.graph.initializer), len(both.graph.initializer)) == (0, 4)
    onnx.export(Net(), fb.randn(3, 4), tmp_path / "other.onnx", export_params=False)
    other = package.load(tmp_path / "other.onnx")
    assert sorted(x.name for x in other.graph.input) == sorted(names)
    assert not other.graph.initializer


def test_a_folder_that_is_missing_is_said_before_the_model_runs(tmp_path):
    class Never(nn.Module):
        def forward(self, x):
            raise AssertionError("ran")

    with pytest.raises(FileNotFoundError, match="nowhere"):
        onnx.export(Never(), fb.ones(1), tmp_path / "nowhere" / "net.onnx")
    with pytest.raises(IsADirectoryError):
        onnx.export(Never(), fb.ones(1), tmp_path)
    with pytest.raises(TypeError, match="got int"):
        onnx.export(Never(), fb.ones(1), 3)
    with pytest.raises(ValueError, match="f must be given"):
        onnx.export(Never(), fb.ones(1))


def test_a_file_that_cannot_be_finished_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "net.onnx"
    path.write_bytes(b"before")
    net = nn.Linear(32, 32)
    program = onnx.export(net, (fb.ones(1, 32),), dynamo=True)

    monkeypatch.setattr("flambeau.onnx._program._placed", lambda *args: (_ for _ in ()).throw(OSError("no space left")))
    with pytest.raises(OSError, match="no space"):
        program.save(path, external_data=True)
    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]
    assert path.read_bytes() == b"before"
    assert len(program.model_proto.graph.initializer) == 2


# -- programs


def test_weights_are_replaced_by_others():
    net, x = Net().eval(), fb.randn(3, 4)
    program, other = exported(net, x), Net().eval()

    program.apply_weights(other.state_dict())
    agree(other, program, x)
    with pytest.warns(UserWarning, match="'more' not found"):
        program.apply_weights({"more": fb.ones(1)})
    with pytest.raises(ValueError, match=r"first\.bias"):
        program.apply_weights({"first.weight": fb.zeros(48, 4), "first.bias": fb.ones(1)})
    agree(other, program, x)


def test_values_inside_are_computed():
    x = fb.randn(3, 4)
    program = exported(lambda x: (x.relu() * 2).sum(), x)
    inner = next(node.output[0] for node in program.model_proto.graph.node if node.op_type == "Relu")

    relu, whole = program.compute_values([inner, program.model_proto.graph.output[0].name], (x,))
    assert relu.equal(x.relu())
    assert fb.allclose(whole, (x.relu() * 2).sum())
    with pytest.raises(ValueError, match="'nothing'"):
        program.compute_values(["nothing"], (x,))
    with pytest.raises(ValueError, match=r"inputs \['x'\]"):
        program(x, x)


def test_equal_values_are_computed_once():
    def twice(x):
        return x.exp() + x.exp().clone() * 1

    plain, better = (exported(twice, fb.randn(3), optimize=optimize) for optimize in (False, True))
    assert [len(p.model_proto.graph.node) for p in (plain, better)] == [6, 3]
    plain.optimize()
    assert len(plain.model_proto.graph.node) == 3
    agree(twice, plain, fb.randn(3))


def test_a_program_is_verified_and_reported(tmp_path):
    program = onnx.export(
        Net().eval(), (fb.randn(3, 4),), dynamo=True, verify=True, report=True, profile=True, dump_exported_program=True,
        artifacts_dir=tmp_path,
    )  # fmt: skip
    page, dump = sorted(tmp_path.iterdir())

    assert "| Gemm | 2 |" in page.read_text()
    assert "## Time" in page.read_text()
    assert fb.export.load(dump).module()(fb.ones(3, 4)).shape == (3, 2)
    assert all(each.max_abs_diff < 1e-5 for each in verification.verify_onnx_program(program))


def test_code_sees_that_it_is_exported():
    seen = []

    def watching(x):
        seen.append(onnx.is_in_onnx_export())
        return x + 1

    exported(watching, fb.ones(2))
    assert set(seen) == {True}
    assert not onnx.is_in_onnx_export()


# -- operators without a translation


def test_an_operator_without_a_translation_is_named(tmp_path):
    class Part(nn.Module):
        def forward(self, x):
            return fb.linalg.svdvals(x)

    with pytest.raises(errors.UnsupportedOperatorError, match=r"svd.* in 1 \(.*Part\).* has no translation"):
        onnx.export(nn.Sequential(nn.Linear(4, 4), Part()), fb.randn(4, 4), tmp_path / "net.onnx")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="opset_version must be from 17"):
        onnx.export(nn.ReLU(), fb.ones(1), tmp_path / "net.onnx", opset_version=3)


@fb.library.custom_op("onnx_tests::twice_plus", mutates_args=())
def twice_plus(x: fb.Tensor, y: fb.Tensor, n: int) -> fb.Tensor:
    return x * 2 + y * n


@twice_plus.register_fake
def _(x, y, n):
    return fb.empty_like(x)


def own(x):
    return twice_plus(x, x, 3).relu()


def test_operators_of_programs_are_translated_by_functions_of_theirs():
    def translation(g, x, y, n):
        return g.op("Add", g.op("Add", x, x), g.op("Mul", y, g.op("Constant", value_t=fb.tensor(float(n)))))

    x = fb.randn(3)
    agree(own, exported(own, x, custom_translation_table={fb.ops.onnx_tests.twice_plus.default: translation}), x)
    with pytest.raises(errors.UnsupportedOperatorError, match="onnx_tests::twice_plus"):
        exported(own, x)
    onnx.register_custom_op_symbolic("onnx_tests::twice_plus", symbolic_helper.parse_args("v", "v", "i")(translation), 9)
    try:
        agree(own, exported(own, x), x)
    finally:
        onnx.unregister_custom_op_symbolic("onnx_tests::twice_plus", 9)
    with pytest.raises(TypeError, match="must be a function"):
        exported(own, x, custom_translation_table={fb.ops.onnx_tests.twice_plus.default: 3})


def test_operators_may_stay_as_those_of_a_domain():
    program = onnx.export(
        own, (fb.randn(3),), dynamo=True, custom_opsets={"mine": 2},
        custom_translation_table={fb.ops.onnx_tests.twice_plus.default: lambda g, x, y, n: g.op("mine::TwicePlus", x, y, n_i=n)},
    )  # fmt: skip
    first = program.model_proto.graph.node[0]

    assert (first.domain, first.op_type, first.attribute[0].i) == ("mine", "TwicePlus", 3)
    assert {(x.domain, x.version) for x in program.model_proto.opset_import} == {("", 18), ("mine", 2)}


@pytest.mark.parametrize("dtype", [fb.float16, fb.bfloat16, fb.float64])
def test_types_of_weights_are_kept(dtype):
    net, x = nn.Linear(4, 3).to(dtype), fb.randn(2, 4).to(dtype)
    program = exported(lambda x: nn.functional.linear(x, net.weight, net.bias) + 1.5, x)

    info = program.model_proto.graph.output[0].type.tensor_type.elem_type
    assert info == onnx.JitScalarType.from_dtype(dtype).onnx_type()
    agree(lambda x: net(x) + 1.5, program, x, tolerance=2e-2 if dtype is not fb.float64 else 1e-9, runtime=dtype is not fb.bfloat16)


@pytest.mark.parametrize("opset", [17, 18, 20, 21])
def test_versions_of_operators_are_those_asked_for(opset):
    net, x = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.GLU()), fb.randn(3, 4)
    program = exported(lambda x: net(x).amax(1) + x.mean(1), x, opset_version=opset)

    assert program.model_proto.opset_import[0].version == opset
    agree(lambda x: net(x).amax(1) + x.mean(1), program, x)


def test_models_of_pytorch_give_the_same(oracle, tmp_path):
    """PyTorch's own exporter needs the package onnxscript."""
    pytest.importorskip("onnxscript")
    import torch

    theirs = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8)).eval()
    ours = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8)).eval()
    ours.load_state_dict({name: fb.from_numpy(x.numpy().copy()) for name, x in theirs.state_dict().items()})
    x = fb.randn(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(theirs, (torch.from_numpy(x.numpy()),), tmp_path / "theirs.onnx", dynamo=True)
    model = package.load(tmp_path / "theirs.onnx")
    made = reference(model).run(None, {model.graph.input[0].name: x.numpy()})[0]
    assert fb.allclose(exported(ours, x)(x)[0], fb.tensor(made), atol=1e-5)


def test_errors_and_nodes_say_the_line_of_the_program():
    class Model(fb.nn.Module):
        def forward(self, x):
            return fb.linalg.eigvals(x)

    with pytest.raises(onnx.errors.UnsupportedOperatorError, match=r'\n  File ".*test_export.py", line \d+, in forward$'):
        exported(Model(), fb.ones(2, 2))
    node = exported(fb.nn.Linear(2, 3), fb.ones(2, 2)).model_proto.graph.node[0]
    assert 'linear.py", line ' in node.doc_string


class Of(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, x):
        return self.fn(x)


def ran(program, example, axes, x):
    written = io.BytesIO()
    onnx.export(Of(program), (example,), written, input_names=["x"], dynamic_axes={"x": axes}, dynamo=False)
    return fb.from_numpy(reference(package.load_from_string(written.getvalue())).run(None, {"x": x.numpy()})[0])


@pytest.mark.parametrize(
    ("program", "example", "axes", "other"),
    [
        (lambda x: x.view(x.size(0), -1) * 2, (1, 3, 2), {0: "n"}, (4, 3, 2)), (lambda x: x.flatten(1) + 1, (1, 2, 2), {0: "n"}, (3, 2, 2)),
        (lambda x: nn.functional.interpolate(x, size=(x.shape[2] * 2, x.shape[3])), (1, 1, 4, 4), {0: "n", 2: "h", 3: "w"}, (2, 1, 6, 8)),
        (lambda x: x + fb.arange(x.shape[1]), (1, 1), {0: "n", 1: "m"}, (3, 7)),
    ],
)  # fmt: skip
def test_sizes_that_are_one_in_the_example_stay_open(program, example, axes, other):
    x = fb.rand(other)

    fb.testing.assert_close(ran(program, fb.rand(example), axes, x), program(x))


@pytest.mark.parametrize(
    ("program", "sizes"),
    [
        (lambda x: x.chunk(2), (8, 9)), (lambda x: x.chunk(4), (9, 5)), (lambda x: x.split(4), (8, 5)),
        (lambda x: x.tensor_split(3), (7, 2)), (lambda x: fb.vsplit(x, 2), (4, 10)),
    ],
)  # fmt: skip
def test_parts_along_an_open_size(program, sizes):
    written = io.BytesIO()
    onnx.export(Of(program), (fb.rand(6, 2),), written, input_names=["x"], dynamic_axes={"x": {0: "n"}}, dynamo=False)
    model = reference(package.load_from_string(written.getvalue()))

    for n in sizes:
        x = fb.rand(n, 2)
        fb.testing.assert_close([fb.from_numpy(y) for y in model.run(None, {"x": x.numpy()})], list(program(x)))


def test_attention_of_one_example_takes_many():
    layer = nn.MultiheadAttention(4, 2, batch_first=True).eval()
    x = fb.rand(3, 5, 4)

    got = ran(lambda x: layer(x, x, x)[0], fb.rand(1, 4, 4), {0: "n", 1: "length"}, x)

    fb.testing.assert_close(got, layer(x, x, x)[0].detach())


def test_a_program_that_takes_one_alone_where_a_size_is_to_be_open_is_warned_of():
    with pytest.warns(UserWarning, match="sizes that are 1 in the example"):
        got = ran(lambda x: x.expand(5, 3) * 1, fb.ones(1, 3), {0: "n"}, fb.ones(1, 3))

    assert got.shape == (5, 3)
