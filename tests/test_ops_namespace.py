"""`torch.ops`: operators by namespace, name and overload."""

from __future__ import annotations

import copy
import pickle

import pytest

import flambeau as fb
from flambeau import _aten, _ops

aten = _ops.ops.aten


def test_an_overload_is_named_hashed_and_called():
    add = aten.add.Tensor

    assert (str(add), add.name(), add.__name__, add.namespace) == ("aten.add.Tensor", "aten::add.Tensor", "add.Tensor", "aten")
    assert aten.mm.default.name() == "aten::mm"
    assert repr(add) == "<OpOverload(op='aten.add', overload='Tensor')>"
    assert aten.add.Tensor is add
    assert {add: 1}[aten.add.Tensor] == 1
    assert add is not aten.add.Scalar
    assert add.overloadpacket is aten.add
    assert add(fb.ones(1), fb.ones(1), alpha=2).tolist() == [3]
    assert isinstance(add, _ops.OpOverload)
    assert isinstance(aten.add, _ops.OpOverloadPacket)


@pytest.mark.parametrize(
    ("operator", "arguments", "expected"),
    [
        (aten.sum.dim_IntList, (fb.ones(2, 2), [0]), [2, 2]),
        (aten.slice.Tensor, (fb.arange(5), 0, 1, 4, 2), [1, 3]),
        (aten.view.default, (fb.arange(4), [2, 2]), [[0, 1], [2, 3]]),
        (aten.relu_.default, (fb.tensor([-1.0, 2.0]),), [0, 2]),
        (aten.mse_loss.default, (fb.ones(2), fb.zeros(2), 2), 2),
        (aten.index.Tensor, (fb.arange(4).reshape(2, 2), [None, fb.tensor([1])]), [[1], [3]]),
        (aten.linalg_vector_norm.default, (fb.tensor([3.0, 4.0]),), 5),
        (aten._softmax.default, (fb.zeros(2), 0, False), [0.5, 0.5]),
        (aten.embedding.default, (fb.arange(4.0).reshape(2, 2), fb.tensor([1])), [[2, 3]]),
        (aten.sym_size.int, (fb.ones(2, 3), 1), 3),
        (aten.mul.Scalar, (fb.ones(2), 3), [3, 3]),
    ],
)
def test_operators_compute_what_their_public_functions_do(operator, arguments, expected):
    found = operator(*arguments)

    assert (found.tolist() if isinstance(found, fb.Tensor) else found) == expected


def test_the_first_argument_is_called_self():
    assert aten.add.Tensor(self=fb.ones(1), other=fb.ones(1)).tolist() == [2]


def test_a_copy_has_the_dtype_asked_for():
    assert aten._to_copy.default(fb.ones(2), dtype=fb.float64).dtype == fb.float64


def test_unknown_names_are_attribute_errors_and_unbuilt_operators_refuse_the_call():
    with pytest.raises(AttributeError, match=r"'aten\.add' has no overload name 'nope'"):
        aten.add.nope  # noqa: B018  # asking is the test
    with pytest.raises(AttributeError, match="'no_such_operator'"):
        aten.no_such_operator  # noqa: B018  # asking is the test
    with pytest.raises(NotImplementedError, match=r"ops\.aten\._cudnn_rnn is not built yet"):
        aten._cudnn_rnn.default()


def test_operators_survive_pickles_and_copies():
    assert pickle.loads(pickle.dumps(aten.mm.default)) is aten.mm.default
    assert copy.deepcopy(aten.mm) is aten.mm


def test_third_parties_register_their_own():
    with pytest.raises(AttributeError):
        _ops.ops.tests_of_ops.triple  # noqa: B018  # asking is the test

    made = _ops.register("tests_of_ops", "triple", lambda x: x * 3)

    assert _ops.ops.tests_of_ops.triple.default is made
    assert _ops.ops.tests_of_ops.triple(2) == 6
    with pytest.raises(RuntimeError, match="registered already"):
        _ops.register("tests_of_ops", "triple", abs)


def test_libraries_in_cpp_are_refused(tmp_path):
    with pytest.raises(OSError, match="Could not load"):
        _ops.ops.load_library(tmp_path / "missing.so")
    (tmp_path / "there.so").touch()
    # Packages that go on without their library, as torchvision does, wait for an OSError.
    for kind in (NotImplementedError, OSError):
        with pytest.raises(kind, match="load_library"):
            _ops.ops.load_library(tmp_path / "there.so")


def test_under_the_name_of_torch_ops_is_this_namespace(fresh_python):
    code = "import flambeau.swap; flambeau.swap.install(); import torch, flambeau._ops; print(torch.ops is flambeau._ops.ops)"

    assert fresh_python("-c", code).strip() == "True"


def test_operators_have_the_tags_of_pytorch(oracle):
    index = _aten.index()
    for name in sorted(index)[::7]:
        for overload in index[name]:
            theirs = getattr(getattr(oracle.ops.aten, name), overload).tags
            found = _aten.tags(name, overload)
            assert sorted(tag.name for tag in found) == sorted(tag.name for tag in theirs), (name, overload)
    assert fb.Tag.pointwise in fb.ops.aten.sin.default.tags
    assert fb.Tag.core not in fb.ops.aten.sin_.default.tags


def test_every_op_is_an_operator_with_a_schema():
    from flambeau import _aten
    from flambeau.ops import _derive, _spec

    _derive.load_all()
    for op in dict.fromkeys(_spec.OPS.values()):
        name = _aten.name_of(op)
        if name is not None and _aten.index()[name]:
            packet = getattr(fb.ops.aten, name)
            assert all(getattr(packet, overload)._schema.name == f"aten::{name}" for overload in packet.overloads()), op
        else:
            packet = getattr(fb.ops.prims, op.name)
            assert packet.default._schema.name == f"prims::{op.name}", op
            assert [a.name for a in packet.default._schema.arguments] == list(op.params), op
            if op.surface & _spec.OUT:
                assert packet.out._schema.arguments[-1].is_out, op


def test_a_recorded_graph_reaches_operators_of_prims():
    from flambeau.fx.experimental.proxy_tensor import make_fx

    x = fb.randn(3, 4)
    recorded = make_fx(lambda x: fb.cdist(x, x))(x)
    (target,) = (n.target for n in recorded.graph.nodes if str(n.target).startswith("prims."))

    assert f"torch.ops.{target}(" in recorded.code
    assert getattr(fb.ops.prims, target._opname).default == target == pickle.loads(pickle.dumps(target))
    assert fb.equal(recorded(x), fb.cdist(x, x))
    with pytest.raises(AttributeError, match="has no overload name 'out'"):
        _ = fb.ops.prims.length_along.out


def test_a_class_of_a_library_in_c_is_said_not_to_exist():
    with pytest.raises(RuntimeError, match=r"class 'xielu\.XIELU', but it does not exist"):
        fb.classes.xielu.XIELU()
    assert fb.classes.xielu is fb.classes.xielu
    assert fb.classes.loaded_libraries == set()
    with pytest.raises(OSError, match=r"Could not load this library: /nowhere\.so"):
        fb.classes.load_library("/nowhere.so")


def test_the_legacy_memory_format_is_the_contiguous_one():
    x = fb.zeros(1, 2, 3, 4).to(memory_format=fb.channels_last)

    assert fb.empty_like(x, memory_format=fb.legacy_contiguous_format).is_contiguous()


def test_operators_that_a_module_of_the_package_computes_are_there_before_it_is_loaded(fresh_python):
    fresh_python("-c", "import flambeau as fb; fb.ops.aten._grouped_mm(fb.ones(4, 3), fb.ones(2, 3, 5), fb.tensor([2, 4], dtype=fb.int32))")
