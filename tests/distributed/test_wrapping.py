"""Private names for spread networks that other packages use: wrappers, scalers, and states that come from one process."""

from __future__ import annotations

import functools
import re

import pytest

import flambeau as fb
from flambeau import nn
from flambeau.distributed import checkpoint, utils
from flambeau.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    CheckpointWrapper,
    OffloadWrapper,
    apply_activation_checkpointing,
    checkpoint_wrapper,
    offload_wrapper,
)
from flambeau.distributed.checkpoint.format_utils import _EmptyStateDictLoadPlanner
from flambeau.distributed.checkpoint.state_dict_loader import _load_state_dict
from flambeau.distributed.fsdp.wrap import (
    _recursive_wrap,
    lambda_auto_wrap_policy,
    size_based_auto_wrap_policy,
)
from flambeau.distributed.tensor import Shard


@pytest.mark.parametrize("program", ["scaled", "alike", "optimizer_states"])
def test_processes_agree(ranks, program):
    ranks(f"wrapping_programs.{program}", 2)


class Counting(nn.Module):
    """Counts its forward passes; `scale` may be given by name."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.calls = 0

    def forward(self, x, scale=1.0):
        self.calls += 1
        return (self.inner(x) * scale).exp()


@pytest.mark.parametrize("kind", list(CheckpointImpl))
def test_wrapped_modules_run_again_for_backward_and_have_the_gradients_of_plain_ones(kind):
    plain = Counting()
    wrapped = checkpoint_wrapper(plain, kind)
    x, scale = fb.randn(2, 3, requires_grad=True), fb.tensor(0.5, requires_grad=True)
    expected = fb.autograd.grad(plain(x, scale=scale).sum(), [x, scale, *plain.parameters()])
    plain.calls = 0

    wrapped(x, scale=scale).sum().backward()

    assert wrapped.calls == 2
    for leaf, grad in zip((x, scale, *wrapped.parameters()), expected, strict=True):
        assert fb.equal(leaf.grad, grad)


def test_wrappers_leave_names_of_parameters_and_keys_of_states():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Sequential(nn.Linear(3, 1)))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, nn.Linear))

    assert [type(model[i]) for i in (0, 1)] == [CheckpointWrapper, nn.ReLU]
    assert isinstance(model[2][0], CheckpointWrapper)
    assert list(model.state_dict()) == list(before)
    assert [name for name, _ in model[0].named_parameters()] == ["weight", "bias"]
    assert model[0].in_features == 2

    for parameter in model.parameters():
        parameter.data.zero_()
    assert str(model.load_state_dict(before)) == "<All keys matched successfully>"
    assert all(fb.equal(value, before[name]) for name, value in model.state_dict().items())


def test_functions_of_ones_own_checkpoint():
    asked = []

    def own(module, *args, label, **kwargs):
        asked.append(label)
        return module(*args, **kwargs)

    layer = checkpoint_wrapper(nn.Linear(2, 2), checkpoint_fn=own, label="here")
    layer(fb.ones(1, 2))

    assert asked == ["here"]


def test_what_waits_in_the_memory_of_the_host_has_the_same_gradients():
    layer = offload_wrapper(nn.Sequential(nn.Linear(2, 2), nn.Tanh()))
    x = fb.ones(1, 2, requires_grad=True)
    expected = fb.autograd.grad(layer._checkpoint_wrapped_module(x).sum(), x)[0]

    layer(x).sum().backward()

    assert isinstance(layer, OffloadWrapper)
    assert isinstance(layer[1], nn.Tanh)
    assert fb.equal(x.grad, expected)


class Wrapped(nn.Module):
    def __init__(self, module, tag):
        super().__init__()
        self.module, self.tag = module, tag


def test_policies_wrap_children_and_the_module_itself():
    policy = functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda module: isinstance(module, nn.Linear))
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4)))
    found, count = _recursive_wrap(model, policy, Wrapped, {model[0]}, set(), only_wrap_children=True, tag=3)

    assert (found, count) == (model, 20)
    assert isinstance(model[0], nn.Linear)
    assert model[1][0].tag == 3
    assert isinstance(_recursive_wrap(nn.Linear(2, 2), policy, Wrapped, set(), set(), tag=1)[0], Wrapped)


def test_modules_that_are_not_looked_into_are_left_to_what_contains_them():
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=1)
    model = nn.Sequential(nn.MultiheadAttention(4, 2), nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4)))
    found, count = _recursive_wrap(model, policy, Wrapped, set(), set(), tag=1)

    assert count == 120
    assert isinstance(found, Wrapped)
    assert [type(part) for part in found.module] == [nn.MultiheadAttention, Wrapped, nn.Sequential]


@pytest.mark.parametrize(
    ("size", "pieces"),
    [(10, [(3, 0), (3, 3), (3, 6), (1, 9)]), (5, [(2, 0), (2, 2), (1, 4), (0, 5)]), (2, [(1, 0), (1, 1), (0, 2), (0, 2)])],
)
def test_pieces_of_a_dimension_are_as_large_as_can_be_from_the_first(size, pieces):
    assert [Shard.local_shard_size_and_offset(size, 4, rank) for rank in range(4)] == pieces
    assert [Shard(0)._local_shard_size_and_offset(size, 4, rank) for rank in range(4)] == pieces


def test_floating_inputs_are_cast(capsys):
    args, kwargs = utils._cast_forward_inputs(fb.float16, fb.ones(1), 3, fb.ones(1, dtype=fb.int64), a=[fb.ones(1)])

    assert [getattr(x, "dtype", x) for x in args] == [fb.float16, 3, fb.int64]
    assert kwargs["a"][0].dtype is fb.float16
    utils._p_assert(False, "only said", raise_assertion_error=False)
    assert "only said" in capsys.readouterr().out


def test_checkpoints_are_read_into_empty_dicts_by_keys(tmp_path):
    saved = {"model": {"weight": fb.ones(2), "bias": fb.zeros(1)}, "step": fb.tensor(3)}
    checkpoint.save(saved, checkpoint_id=tmp_path, no_dist=True)

    for keys, expected in ((None, ["model", "step"]), ({"model"}, ["model"]), ({"step"}, ["step"])):
        found = {}
        _load_state_dict(found, checkpoint.FileSystemReader(tmp_path), planner=_EmptyStateDictLoadPlanner(keys), no_dist=True)
        assert sorted(found) == expected
    found = {}
    planner = _EmptyStateDictLoadPlanner({"model.bias"})
    _load_state_dict(found, checkpoint.FileSystemReader(tmp_path), planner=planner, no_dist=True)
    assert re.sub(r"\s", "", str(found)) == "{'model':{'bias':tensor([0.])}}"
