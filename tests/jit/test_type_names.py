"""Types, schemas and other names of the compiled half of PyTorch, which are at the top level too: beside PyTorch's."""

from __future__ import annotations

import pytest

import flambeau as fb

torch = pytest.importorskip("torch")
PLAIN = """
    AnyType BoolType ComplexType DeviceObjType FloatType IntType NoneType NumberType PyObjectType StreamObjType StringType TensorType
"""
COMPOUND = {
    "list": lambda t: t.ListType(t.IntType.get()),
    "optional": lambda t: t.OptionalType(t.TensorType.get()),
    "dict": lambda t: t.DictType(t.StringType.get(), t.IntType.get()),
    "tuple": lambda t: t.TupleType([t.IntType.get(), t.TensorType.get()]),
    "future": lambda t: t.FutureType(t.IntType.get()),
    "union": lambda t: t.UnionType([t.IntType.get(), t.TensorType.get()]),
    "await": lambda t: t.AwaitType(t.IntType.get()),
    "rref": lambda t: t.RRefType(t.IntType.get()),
    "nested": lambda t: t.ListType(t.OptionalType(t.TensorType.get())),
    "of tensors": lambda t: t.ListType.ofTensors(),
    "of bools": lambda t: t.ListType.ofBools(),
    "of strings": lambda t: t.ListType.ofStrings(),
    "optional tensor": lambda t: t.OptionalType.ofTensor(),
    "unified": lambda t: t.unify_type_list([t.IntType.get(), t.IntType.get()]),
}


@pytest.mark.parametrize("name", PLAIN.split())
def test_types_without_others_in_them(name):
    ours, theirs = getattr(fb, name), getattr(torch, name)

    assert (str(ours.get()), ours.get().annotation_str) == (str(theirs.get()), theirs.get().annotation_str)
    assert ours.get() == ours.get()
    assert isinstance(ours.get(), ours)
    assert getattr(fb._C, name) is ours
    with pytest.raises(TypeError):
        ours()


@pytest.mark.parametrize("made", COMPOUND)
def test_types_of_others(made):
    ours, theirs = COMPOUND[made](fb), COMPOUND[made](torch)

    assert (str(ours), ours.annotation_str) == (str(theirs), theirs.annotation_str)
    assert [str(t) for t in ours.containedTypes()] == [str(t) for t in theirs.containedTypes()]
    for question in ("getElementType", "getKeyType", "getValueType"):
        if hasattr(theirs, question):
            assert str(getattr(ours, question)()) == str(getattr(theirs, question)())
    assert ours == COMPOUND[made](fb)
    assert isinstance(ours, getattr(fb, theirs.kind()))


def test_schemas_are_read():
    text = "aten::add.Tensor(Tensor(a!) self, Tensor? other=None, *, Scalar alpha=1, int[2] k=[1, 2]) -> (Tensor(a!) out, int)"
    told = []
    for lib in (fb, torch):
        schema = lib.parse_schema(text)
        assert lib.parse_schema is lib._C.parse_schema
        assert isinstance(schema, lib.FunctionSchema)
        assert all(isinstance(a, lib.Argument) for a in schema.arguments)
        arguments = [
            (a.name, str(a.type), a.N, a.has_default_value(), a.default_value, a.kwarg_only, a.is_out, a.is_write) for a in schema.arguments
        ]
        told.append((str(schema), schema.name, schema.overload_name, arguments, len(schema.returns), schema.is_mutable))
        assert isinstance(schema.arguments[3].type, lib.ListType)
        assert isinstance(schema.arguments[1].type, lib.OptionalType)
        assert not isinstance(schema.arguments[1].type, lib.TensorType)

    assert told[0] == told[1]
    with pytest.raises(RuntimeError):
        fb.parse_schema("bad(")


def test_types_that_cannot_be_one_are_refused():
    for lib in (fb, torch):
        with pytest.raises(RuntimeError, match="Could not unify type list since element 1 of type float"):
            lib.unify_type_list([lib.IntType.get(), lib.FloatType.get()])
        inferred = lib._C.InferredType("no") if lib is torch else fb.InferredType("no")
        assert (inferred.success(), inferred.reason()) == (False, "no")
    assert fb.InferredType(fb.IntType.get()).type() == fb.IntType.get()


def test_graphs_are_of_the_classes_at_the_top_level():
    script = fb.jit.trace(lambda x: x + 1, fb.ones(2))

    assert isinstance(script.graph, fb.Graph)
    assert fb.Graph is fb._C.Graph
    assert all(isinstance(node, fb.Node) for node in script.graph.nodes())
    assert all(isinstance(value, fb._C.Value) for value in script.graph.inputs())
    assert fb.JITException is fb._C.JITException is fb.jit.Error


FACTS = """
    has_lapack has_openmp has_spectral USE_GLOBAL_DEPS USE_RTLD_GLOBAL_WITH_LIBTORCH PRIVATE_OPS is_autocast_ipu_enabled()
    is_autocast_xla_enabled() is_anomaly_enabled() is_anomaly_check_nan_enabled() init_num_threads() is_distributed(0)
    prepare_multiprocessing_environment('x')
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("fact", FACTS.split())
def test_facts(fact):
    lists = {"is_distributed(0)": "is_distributed(lib.ones(1))"}
    expression = f"lib.{lists.get(fact, fact)}"
    assert eval(expression, {"lib": fb}) == eval(expression, {"lib": torch})


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.slice_copy(t.arange(6), 0, 1, 5, 2), lambda t: t.slice_copy(t.arange(6).view(2, 3), -1, 1),
        lambda t: t.stack(t.split_copy(t.arange(4), 2)), lambda t: t.crow_indices_copy(t.eye(2).to_sparse_csr()),
        lambda t: t.col_indices_copy(t.eye(2).to_sparse_csr()), lambda t: t.row_indices_copy(t.eye(2).to_sparse_csc()),
        lambda t: t.ccol_indices_copy(t.eye(2).to_sparse_csc()), lambda t: t.slice_inverse(t.arange(6)[1:3], t.arange(6), 0, 1, 3),
        lambda t: t.int_repr(t.quantize_per_tensor(t.ones(2), 0.5, 1, t.qint8)),
        lambda t: t.tensor(t.q_scale(t.quantize_per_tensor(t.ones(2), 0.5, 1, t.qint8))),
        lambda t: t.tensor(t.q_zero_point(t.quantize_per_tensor(t.ones(2), 0.5, 1, t.qint8))),
        lambda t: t.q_per_channel_scales(t.quantize_per_channel(t.ones(2, 2), t.ones(2), t.zeros(2), 0, t.qint8)).double(),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_functions_at_the_top_level(call):
    ours, theirs = call(fb), call(torch)

    assert ours.tolist() == theirs.tolist()
    assert str(ours.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2]


@pytest.mark.parametrize("name", ["eig", "symeig", "lstsq", "solve", "matrix_rank"])
def test_functions_that_were_removed_say_so(name):
    for lib in (fb, torch):
        with pytest.raises(RuntimeError, match=r"deprecated since version 1.9 and is now removed"):
            getattr(lib, name)(*[lib.eye(2)] * (2 if name in ("lstsq", "solve") else 1))


def test_a_property_of_a_class():
    for lib in (fb, torch):

        class Named:
            @lib.classproperty
            def name(cls):
                return cls.__name__

        assert (Named.name, Named().name) == ("Named", "Named")
