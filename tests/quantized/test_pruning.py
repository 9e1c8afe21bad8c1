"""Sparsifiers and their schedulers, beside PyTorch's."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import flambeau as fb
from flambeau.ao import pruning

torch = pytest.importorskip("torch")
theirs = importlib.import_module("torch.ao.pruning")
BOTH = ((fb, pruning), (torch, theirs))
pytestmark = pytest.mark.filterwarnings("ignore")


def model(lib, weight):
    made = lib.nn.Sequential(lib.nn.Linear(weight.shape[1], weight.shape[0]), lib.nn.ReLU())
    with lib.no_grad():
        made[0].weight.copy_(lib.tensor(weight))
        made[0].bias.zero_()
    return made


def masks(make, weight, config=None):
    found = []
    for lib, room in BOTH:
        net = model(lib, weight)
        sparsifier = make(room)
        sparsifier.prepare(net, config)
        sparsifier.step()
        found.append(net[0].parametrizations.weight[0].mask.numpy().astype(np.float32))
    return found


@pytest.mark.parametrize("level", [0.0, 0.05, 0.14, 0.16, 0.3, 0.5, 0.95, 1.0])
@pytest.mark.parametrize(("block", "zeros"), [((1, 4), None), ((2, 4), None), ((2, 2), 3), ((1, 4), 2), ((3, 1), 0)])
@pytest.mark.parametrize("norm", [None, 1, 2])
def test_the_least_blocks_are_masked(level, block, zeros, norm):
    weight = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    padded = zeros is not None and (5 % block[0] or 6 % block[1])
    weight = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32) if padded else weight

    ours, real = masks(lambda room: room.WeightNormSparsifier(level, block, zeros, norm), weight)
    np.testing.assert_array_equal(ours, real)


@pytest.mark.parametrize("nearliness", [-1, 1, 3, 5])
def test_a_band_is_kept(nearliness):
    ours, real = masks(lambda room: room.NearlyDiagonalSparsifier(nearliness), np.ones((6, 7), np.float32))

    np.testing.assert_array_equal(ours, real)
    for lib, room in BOTH:
        for wrong in (2, 13):
            sparsifier = room.NearlyDiagonalSparsifier(wrong)
            sparsifier.prepare(model(lib, np.ones((6, 7), np.float32)), None)
            with pytest.raises(ValueError, match="nearliness can"):
                sparsifier.step()


def test_a_sparsifier_from_start_to_end():
    told = []
    weight = np.arange(16, dtype=np.float32).reshape(2, 8)
    for lib, room in BOTH:
        net = model(lib, weight)
        sparsifier = room.WeightNormSparsifier()
        sparsifier.prepare(net, [{"tensor_fqn": "0.weight", "sparsity_level": 0.25, "more": 5}])
        lines = [repr(sparsifier)]
        sparsifier.step()
        out = net(lib.ones(1, 8)).detach().numpy().tolist()
        held = sparsifier.state_dict()
        other = room.WeightNormSparsifier()
        fresh = model(lib, weight)
        other.prepare(fresh, None)
        other.load_state_dict(held)
        loaded = fresh(lib.ones(1, 8)).detach().numpy().tolist()
        sparsifier.squash_mask(params_to_keep=("sparse_block_shape",), params_to_keep_per_layer={"0": ("sparsity_level",)})
        lines += [repr(net), net[0].sparse_params, net[0].weight.detach().numpy().tolist(), isinstance(net[0].weight, lib.nn.Parameter)]
        lines += [list(held["state"]), held["groups"], [g["more"] for g in other.groups]]
        with pytest.raises(AssertionError, match="tensor_fqn is a required argument"):
            room.WeightNormSparsifier().prepare(net, [{}])
        with pytest.raises(NotImplementedError, match="L-q is not yet implemented"):
            room.WeightNormSparsifier(norm="q")
        with pytest.raises(NotImplementedError):
            sparsifier.convert(net)
        told.append((lines, out, loaded))

    assert told[0] == told[1]


@pytest.mark.parametrize(
    "make",
    [
        lambda room, s: room.LambdaSL(s, lambda epoch: 0.9**epoch),
        lambda room, s: room.CubicSL(s, init_sl=0.2, init_t=3, delta_t=2, total_t=4, initially_zero=True),
        lambda room, s: room.CubicSL(s, init_sl=0.1, delta_t=2, total_t=5),
    ],
)
def test_sparsity_by_the_step(make):
    levels = []
    for lib, room in BOTH:
        sparsifier = room.WeightNormSparsifier(0.8)
        sparsifier.prepare(model(lib, np.ones((2, 4), np.float32)), None)
        scheduler = make(room, sparsifier)
        found = [scheduler.get_last_sl()]
        for _ in range(12):
            scheduler.step()
            found.append(scheduler.get_last_sl())
        levels.append((found, sparsifier.groups[0]["sparsity_level"], scheduler.last_epoch, sorted(scheduler.state_dict())))
        with pytest.raises(ValueError, match="Expected 1 lr_lambdas, but got 2"):
            room.LambdaSL(sparsifier, [abs, abs])

    assert levels[0] == levels[1]


def test_names_of_modules():
    for lib, room in BOTH:
        net = model(lib, np.ones((2, 4), np.float32))
        assert room.fqn_to_module(net, "0") is net[0]
        assert room.fqn_to_module(net, "") is net
        assert (room.fqn_to_module(net, "9"), room.module_to_fqn(net, net[1]), room.module_to_fqn(net, net)) == (None, "1", "")
        found = room.get_arg_info_from_tensor_fqn(net, "0.weight")
        assert (found["module_fqn"], found["module"] is net[0], found["tensor_name"]) == ("0", True, "weight")
        mask = room.FakeSparsity(lib.tensor([1.0, 0.0]))
        assert (mask(lib.tensor([2.0, 3.0])).tolist(), mask.state_dict()) == ([2, 0], {})
        with pytest.raises(AssertionError):
            mask(lib.ones(3))
