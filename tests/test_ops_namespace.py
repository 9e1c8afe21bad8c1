"""`torch.ops`: operators by namespace, name and overload."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Hashable
from typing import Any

import pytest

import flambeau as fb
from flambeau import _aten, _ops
from flambeau.ops import _derive
from flambeau.ops._spec import OPS

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
    recorded = make_fx(lambda x: fb.cdist(x, x, 3.0))(x)
    (target,) = (n.target for n in recorded.graph.nodes if str(n.target).startswith("prims."))

    assert f"torch.ops.{target}(" in recorded.code
    assert getattr(fb.ops.prims, target._opname).default == target == pickle.loads(pickle.dumps(target))
    assert fb.equal(recorded(x), fb.cdist(x, x, 3.0))
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


def meant(value: Any) -> Any:
    """A default as schemas and functions may write it: one number for each dimension, what is contiguous, int64 by its number."""
    if isinstance(value, (list, tuple)):
        return meant(value[0]) if len(set(value)) == 1 else tuple(value)
    return {"valid": 0, fb.contiguous_format: 0, fb.int64: 4}.get(value, value) if isinstance(value, Hashable) else value


# What None stands for in these arguments, in functions or in schemas.
NONE_STANDS_FOR = {
    "pin_memory": False, "memory_format": fb.preserve_format, "stride": (), "dims": (), "unbiased": True, "nan": 0.0, "masked_grad": True,
    "shared": False, "compute_mode": "use_mm_for_euclid_dist_if_necessary", "dtype": 4,
}  # fmt: skip
ALIKE = {("norm", "p"): (2, "fro")}                    # over all elements both are the root of the sum of squares


def test_defaults_of_functions_are_those_of_the_schemas_of_their_operators() -> None:
    differing, compared = [], 0
    for name, overloads in _aten.index().items():
        found = _aten.function_of(name)
        if found is None:
            continue
        parameters = inspect.signature(_aten.public_function_of(name) or found).parameters
        variadic = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        for overload, text in overloads.items():
            if len(text) < 2 or "__torch__" in text:
                continue
            schema = _aten.schema(name, overload)
            for argument in schema.arguments:
                if any(a.is_out for a in schema.arguments) or not argument.has_default_value() or argument.name == "reduction":
                    continue                          # words in one, numbers in the other; the next test
                compared += 1
                if argument.name not in parameters:
                    differing += [] if variadic else [(name, overload, argument.name, "is not taken")]
                    continue
                default = parameters[argument.name].default
                pair = [NONE_STANDS_FOR.get(argument.name) if d is None else d for d in (argument.default_value, default)]
                if meant(pair[0]) != meant(pair[1]) and (argument.default_value, default) != ALIKE.get((name, argument.name)):
                    differing.append((name, overload, argument.name, argument.default_value, default))
    assert compared > 1000
    assert differing == []


def test_losses_take_the_mean_where_their_schema_says_so() -> None:
    x, target = fb.tensor([[0.5, -1.0], [2.0, 0.25]]), fb.tensor([[0.25, 0.5], [0.75, 0.5]])
    checked = []
    for name, overloads in _aten.index().items():
        for overload, text in overloads.items():
            if "reduction=1" not in text or "reduction=1, *, Tensor(a!)" in text or _aten.function_of(name) is None:
                continue
            wanted = [a for a in _aten.schema(name, overload).arguments if not a.has_default_value()]
            if any(a.is_out for a in wanted) or len(wanted) != 2 or name.startswith("nll_loss") or "multilabel" in name:
                continue
            labels = fb.tensor([0, 1]) if name in ("multi_margin_loss", "cross_entropy_loss") else target
            call = getattr(getattr(aten, name), overload)
            total = call(x.sigmoid(), labels, reduction=0).mean()
            assert call(x.sigmoid(), labels).equal(call(x.sigmoid(), labels, reduction=1)), name
            fb.testing.assert_close(call(x.sigmoid(), labels), total)
            checked.append(name)
    assert len(checked) > 8


def test_operators_of_rrelu_draw_the_slopes_that_they_leave_in_noise() -> None:
    x = fb.tensor([[-1.0, 2.0], [3.0, -4.0]])
    mean = x.where(x > 0, x * (1 / 8 + 1 / 3) / 2)

    noise = fb.zeros(2, 2)
    fb.testing.assert_close(aten.rrelu_with_noise.default(x, noise), mean)
    assert not noise.any()
    drawn = aten.rrelu_with_noise.default(x, noise, 0.1, 0.3, True, fb.Generator().manual_seed(3))
    assert drawn.equal(x * noise)
    assert bool(((noise == 1) == (x > 0)).all() and ((noise >= 0.1) & (noise <= 0.3) | (x > 0)).all())
    again, slopes = aten.rrelu_with_noise_functional.default(x, fb.zeros(2, 2), 0.1, 0.3, True, fb.Generator().manual_seed(3))
    assert again.equal(drawn)
    assert slopes.equal(noise)
    assert aten.rrelu.default(x, 0.1, 0.3, True, generator=fb.Generator().manual_seed(3)).equal(drawn)


def test_operators_take_what_only_their_schemas_have() -> None:
    x = fb.tensor([[-1.0, 2.0, -3.0]])

    assert aten.elu_.default(x.clone(), 1, 2, 3).equal(aten.elu.default(x, 1, 2, 3))
    assert aten.copy.default(x, fb.zeros(3), non_blocking=False).tolist() == [[0, 0, 0]]
    assert aten.expand_copy.default(x, [2, 3], implicit=True).shape == (2, 3)
    assert aten.einsum.default("ij->i", [x], path=None).tolist() == [-2]
    assert aten.layer_norm.default(x, [3], cudnn_enable=False).equal(fb.nn.functional.layer_norm(x, [3]))
    assert aten.tril_indices.default(2, 2, pin_memory=False).equal(fb.tril_indices(2, 2))
    assert len(aten.histogram.bin_ct(x)[0]) == 100
    labels = fb.tensor([1])
    smoothed = fb.nn.functional.cross_entropy(x, labels, label_smoothing=0.5)
    assert aten.cross_entropy_loss.default(x, labels, None, 1, -100, 0.5).equal(smoothed)


def test_every_operator_that_a_declaration_names_computes() -> None:
    _derive.load_all()
    named = {name for op in OPS.values() for inplace in (False, True) for name, _ in _aten._names(op, inplace) if name in _aten.index()}

    assert len(named) > 500
    assert [name for name in sorted(named) if _aten.function_of(name) is None] == []
    x = fb.tensor([-1.0, 2.0])
    assert aten.gelu_.default(x.clone(), approximate="tanh").equal(fb.nn.functional.gelu(x, approximate="tanh"))
    assert aten._pdist_forward.default(fb.tensor([[0.0], [1.0], [3.0]])).tolist() == [1, 3, 2]


def test_batch_norm_without_running_statistics_is_an_overload() -> None:
    x = fb.arange(12.0).view(3, 2, 2)
    found = aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-5)
    running = fb.zeros(2), fb.ones(2)
    tracked = aten._native_batch_norm_legit(x, None, None, *running, True, 0.1, 1e-5)
    outs = [fb.empty(0), fb.empty(0), fb.empty(0)]
    aten._native_batch_norm_legit.no_stats_out(x, None, None, True, 0.1, 1e-5, out=outs[0], save_mean=outs[1], save_invstd=outs[2])

    for made in (found, tracked, outs):
        for y, expected in zip(made, fb.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5), strict=True):
            assert y.equal(expected)
    assert running[0].tolist() == pytest.approx([0.45, 0.65])
