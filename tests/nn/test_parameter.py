"""Parameters, buffers, and those whose shape is not known yet."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import flambeau as fb
from comparing import disagreements
from flambeau import nn


def test_a_parameter_is_a_tensor_whose_results_are_plain():
    p = nn.Parameter(fb.ones(2))

    assert isinstance(p, fb.Tensor)
    assert p.requires_grad
    assert p.is_leaf
    assert type(p + 1) is fb.Tensor
    assert not isinstance(p + 1, nn.Parameter)
    assert repr(p) == "Parameter containing:\ntensor([1., 1.], requires_grad=True)"


def test_a_parameter_shares_the_memory_of_its_data():
    data = fb.zeros(2)
    p = nn.Parameter(data)

    data[0] = 5.0

    assert p[0].item() == 5.0
    assert nn.Parameter().numel() == 0


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_copies_of_parameters_are_parameters(duplicate):
    p = nn.Parameter(fb.ones(2), requires_grad=False)
    p.note = "kept"

    other = duplicate(p)

    assert type(other) is nn.Parameter
    assert not other.requires_grad
    assert other.data_ptr() != p.data_ptr()


def test_integers_cannot_require_gradients():
    with pytest.raises(RuntimeError):
        nn.Parameter(fb.ones(2, dtype=fb.int32))
    assert not nn.Parameter(fb.ones(2, dtype=fb.int32), requires_grad=False).requires_grad


def test_a_buffer_is_a_marked_tensor():
    b = nn.Buffer(fb.ones(1), persistent=False)

    assert type(b) is fb.Tensor
    assert isinstance(b, nn.Buffer)
    assert not b.persistent
    assert not isinstance(fb.ones(1), nn.Buffer)


def test_an_uninitialized_parameter_refuses_to_be_used():
    p = nn.UninitializedParameter()

    with pytest.raises(ValueError, match="Attempted to use an uninitialized parameter in"):
        p + 1
    with pytest.raises(RuntimeError, match="access the shape of an uninitialized parameter"):
        p.shape  # noqa: B018 - reading it is the test
    assert repr(p) == "<UninitializedParameter>"


def test_methods_that_are_no_operations_are_refused_by_uninitialized_parameters_as_by_pytorch(oracle: Any) -> None:
    calls = ("requires_grad_()", "requires_grad_(False)", "detach()", "detach_()", "retain_grad()", "register_hook(print)", "zero_()",
             "numel()", "item()", "tolist()", "numpy()", "normal_()", "uniform_()", "half()", "is_floating_point()")  # fmt: skip
    programs = [f"str(torch.nn.UninitializedParameter().{call})" for call in calls]
    programs += ["torch.nn.UninitializedBuffer().requires_grad_()", "torch.nn.LazyLinear(3).requires_grad_(False)"]
    programs += ["m = torch.nn.LazyLinear(3); m.weight.requires_grad = False; m(torch.ones(1, 2)); m.weight.requires_grad"]
    programs += ["torch.nn.UninitializedParameter().__class__.requires_grad.__set__(torch.nn.UninitializedParameter(), 1)"]

    assert not disagreements(oracle, "\n".join(programs))


def test_materializing_makes_ordinary_tensors():
    p, b = nn.UninitializedParameter(dtype=fb.float64), nn.UninitializedBuffer()

    p.materialize((2, 3))
    b.materialize((4,), dtype=fb.int64)

    assert type(p) is nn.Parameter
    assert (tuple(p.shape), p.dtype, p.requires_grad) == ((2, 3), fb.float64, True)
    assert type(b) is fb.Tensor
    assert b.dtype == fb.int64
    assert type(p + 1) is type(b + 1) is fb.Tensor


def test_a_lazy_module_becomes_an_ordinary_one():
    m = nn.LazyLinear(3)
    assert m.has_uninitialized_params()

    m(fb.ones(2, 5))

    assert type(m) is nn.Linear
    assert repr(m) == "Linear(in_features=5, out_features=3, bias=True)"
    assert not m._forward_pre_hooks
    assert not m._load_state_dict_pre_hooks


def test_a_lazy_module_converts_before_it_has_values():
    m = nn.LazyLinear(3).double()

    assert m(fb.ones(2, 5, dtype=fb.float64)).dtype == fb.float64


def test_a_lazy_module_loads_the_state_of_an_initialized_one():
    source, m = nn.Linear(5, 3), nn.LazyLinear(3)

    m.load_state_dict(source.state_dict())

    assert tuple(m.weight.shape) == (3, 5)
    assert m(fb.ones(1, 5)).tolist() == source(fb.ones(1, 5)).tolist()


def test_an_initialized_module_cannot_load_a_lazy_state():
    with pytest.raises(RuntimeError, match="access the shape of an uninitialized parameter"):
        nn.Linear(5, 3).load_state_dict(nn.LazyLinear(3).state_dict())


def test_lazy_modules_copy():
    m = copy.deepcopy(nn.Sequential(nn.LazyLinear(3)))

    assert tuple(m(fb.ones(2, 4)).shape) == (2, 3)


def test_operations_on_parameters_take_the_plans_of_tensors():
    from flambeau.ops import _entry
    from flambeau.ops.shapes import join

    p = nn.Parameter(fb.ones(2))

    assert _entry._scope["Parameter"] is nn.Parameter
    assert nn.Parameter in _entry._scope["PLAIN"]
    assert join.cat.answer([p, p], 0).tolist() == [1.0] * 4
    assert type(p * p) is type(p + 1) is type(fb.cat([p, p])) is fb.Tensor
    (p * p + fb.cat([p, p])[1:3]).sum().backward()
    assert p.grad.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("make", [lambda: nn.LazyLinear(2), lambda: nn.LazyConv2d(2, 3), lambda: nn.LazyBatchNorm1d()])
def test_a_lazy_module_says_that_its_input_is_no_tensor(make):
    with pytest.raises(TypeError, match="must be Tensor, not dict"):
        make()({})


def test_attention_says_what_is_wrong_with_replaced_parameters_and_inputs():
    x = fb.ones(2, 3, 4)
    layer = nn.MultiheadAttention(4, 2)
    layer.in_proj_bias = nn.Parameter(fb.ones(1))
    with pytest.raises(RuntimeError, match="in_proj_bias must have 3 \\* embed_dim = 12 rows"):
        layer(x, x, x)
    layer.in_proj_weight = None
    with pytest.raises(AssertionError, match="in_proj_weight is None"):
        layer(x, x, x)
    with pytest.raises(TypeError, match="'value' must be Tensor, not int"):
        layer(x, x, 3)


def test_uninitialized_parameters_take_the_conversions_of_pytorch(oracle: Any) -> None:
    casts = ("half()", "float()", "double()", "bfloat16()", "char()", "long()", "byte()", "bool()", "cfloat()", "type(torch.float16)",
             "type()", "cpu()", "to(torch.int8)", "to(torch.bfloat16)", "clone()")  # fmt: skip
    programs = [f"torch.nn.LazyLinear(1).weight.{cast}.dtype" for cast in casts]
    casts = ("half()", "bfloat16()", "to(torch.bfloat16)", "type(torch.half)")
    programs += [f"torch.nn.LazyLinear(1).{cast}.weight.dtype" for cast in casts]
    programs += ["torch.nn.LazyBatchNorm2d().bfloat16()", "torch.nn.LazyLinear(1).bfloat16()(torch.tensor(1.))"]
    programs += ["torch.nn.LazyLinear(1).to_empty(device='cpu')", "torch.nn.LazyLinear(1).cpu().double()(torch.ones(3).double()).dtype"]

    assert not disagreements(oracle, "\n".join(programs))


def test_data_of_a_parameter_without_a_shape_is_an_empty_tensor():
    layer = fb.nn.LazyLinear(3, dtype=fb.float64)
    data = layer.weight.data

    assert type(data) is fb.Tensor
    assert (data.shape, data.dtype) == ((0,), fb.float64)
    assert layer(fb.ones(1, 2, dtype=fb.float64)).shape == (1, 3)
