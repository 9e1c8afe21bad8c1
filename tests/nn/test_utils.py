"""`nn.utils`: clipping, flattening, fusing, packing, parametrizing, pruning, and stateless calls."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import flambeau as fb
from flambeau import nn
from flambeau.nn.utils import parametrizations, parametrize, prune, stateless
from flambeau.nn.utils import rnn as packing


def close(left: fb.Tensor, right: Any, tolerance: float = 1e-5) -> None:
    right = right.detach().numpy() if isinstance(right, fb.Tensor) else right
    np.testing.assert_allclose(left.detach().numpy(), right, rtol=tolerance, atol=tolerance)


def with_gradients(*values: list[float]) -> list[nn.Parameter]:
    made = []
    for value in values:
        p = nn.Parameter(fb.zeros(len(value)))
        p.grad = fb.tensor(value)
        made.append(p)
    return made


# -- gradients and vectors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("norm_type", "norm"), [(2.0, 13.0), (1.0, 19.0), (float("inf"), 12.0)])
def test_gradients_are_scaled_to_a_common_norm(norm_type, norm):
    a, b, unused = *with_gradients([3.0, 4.0], [12.0]), nn.Parameter(fb.zeros(1))

    total = nn.utils.clip_grad_norm_([a, b, unused], norm / 2, norm_type)

    close(total, norm)
    close(a.grad, [1.5, 2.0])
    close(b.grad, [6.0])


@pytest.mark.parametrize(("dtype", "rtol"), [(fb.float32, 1e-6), (fb.float64, 1e-6), (fb.bfloat16, 2e-2)])
@pytest.mark.parametrize("strided", [False, True])
def test_many_large_gradients_are_scaled_together(dtype, rtol, strided):
    params = [nn.Parameter(fb.zeros(50, n, dtype=dtype)) for n in (1, 30, 200)]
    for p in params:
        p.grad = fb.randn(50, 2 * p.shape[1]).to(dtype)[:, ::2] if strided else fb.randn(p.shape).to(dtype)
    grads = [p.grad for p in params if p.grad is not None]
    before, versions = [g.double().numpy().copy() for g in grads], [g._version for g in grads]
    norm = float(np.linalg.norm(np.concatenate([g.reshape(-1) for g in before])))

    total = nn.utils.clip_grad_norm_(params, norm / 4)

    np.testing.assert_allclose(total.item(), norm, rtol=rtol)
    for g, expected, version in zip(grads, before, versions, strict=True):
        np.testing.assert_allclose(g.double().numpy(), expected / 4, rtol=rtol, atol=1e-6)
        assert g._version == version + 1


def test_a_gradient_that_two_parameters_share_is_scaled_for_each():
    a, b = nn.Parameter(fb.zeros(5000)), nn.Parameter(fb.zeros(5000))
    a.grad = b.grad = fb.ones(5000)

    nn.utils.clip_grad_norm_([a, b], 50.0)

    np.testing.assert_allclose(a.grad.numpy(), 0.25, rtol=1e-5)


def test_small_gradients_are_left_alone():
    (a,) = with_gradients([3.0, 4.0])

    nn.utils.clip_grad_norm_(a, 100.0)

    close(a.grad, [3.0, 4.0])


def test_nonfinite_norms_raise_when_asked_to():
    (a,) = with_gradients([float("nan")])

    with pytest.raises(RuntimeError, match="nan"):
        nn.utils.clip_grad_norm_(a, 1.0, error_if_nonfinite=True)


def test_gradients_are_clamped():
    (a,) = with_gradients([3.0, -0.5])

    nn.utils.clip_grad_value_([a], 1.0)

    close(a.grad, [1.0, -0.5])


def test_parameters_become_a_vector_and_views_of_one():
    m = nn.Linear(2, 3)

    assert nn.utils.parameters_to_vector(m.parameters()).shape == (9,)
    vector = fb.arange(9.0)
    nn.utils.vector_to_parameters(vector, m.parameters())
    close(m.bias, [6.0, 7.0, 8.0])
    with pytest.raises(TypeError, match="list"):
        nn.utils.vector_to_parameters([1.0], m.parameters())


# -- fusing -------------------------------------------------------------------------------------------------


def evaluation_norm(cls: type, size: int) -> nn.Module:
    norm = cls(size).eval()
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2.0)
    with fb.no_grad():
        norm.weight.normal_()
        norm.bias.normal_()
    return norm


@pytest.mark.parametrize("transpose", [False, True])
def test_a_fused_convolution_also_normalizes(transpose):
    conv = (nn.ConvTranspose2d if transpose else nn.Conv2d)(2, 3, 2, bias=False).eval()
    norm = evaluation_norm(nn.BatchNorm2d, 3)
    x = fb.randn(2, 2, 4, 4)

    fused = nn.utils.fuse_conv_bn_eval(conv, norm, transpose)

    close(fused(x), norm(conv(x)))


def test_a_fused_linear_layer_also_normalizes():
    linear, norm, x = nn.Linear(2, 3).eval(), evaluation_norm(nn.BatchNorm1d, 3), fb.randn(4, 2)

    close(nn.utils.fuse_linear_bn_eval(linear, norm)(x), norm(linear(x)))
    with pytest.raises(AssertionError, match="eval"):
        nn.utils.fuse_linear_bn_eval(nn.Linear(2, 3), norm)


def test_skip_init_draws_nothing():
    fb.manual_seed(0)
    expected = fb.rand(1)
    fb.manual_seed(0)

    m = nn.utils.skip_init(nn.Linear, 2, 3)

    assert tuple(m.weight.shape) == (3, 2)
    assert not m.weight.is_meta
    close(fb.rand(1), expected)
    with pytest.raises(RuntimeError, match="device"):
        nn.utils.skip_init(nn.ReLU)


# -- sequences ----------------------------------------------------------------------------------------------


SEQUENCES = [[1.0, 2.0, 3.0], [1.0, 2.0], [1.0, 2.0, 3.0, 4.0, 5.0]]


def test_padding_right_and_left():
    sequences = [fb.tensor(s) for s in SEQUENCES]

    close(packing.pad_sequence(sequences, True)[1], [1.0, 2.0, 0.0, 0.0, 0.0])
    close(packing.pad_sequence(sequences, True, 9.0, "left")[1], [9.0, 9.0, 9.0, 1.0, 2.0])
    assert packing.pad_sequence(sequences).shape == (5, 3)


def test_packing_sorts_and_unpacking_restores_the_order():
    packed = packing.pack_sequence([fb.tensor(s) for s in SEQUENCES], enforce_sorted=False)

    assert packed.batch_sizes.tolist() == [3, 3, 2, 1, 1]
    assert packed.sorted_indices.tolist() == [2, 0, 1]
    close(packed.data, [1, 1, 1, 2, 2, 2, 3, 3, 4, 5])
    assert [s.tolist() for s in packing.unpack_sequence(packed)] == SEQUENCES


def test_unpacking_to_a_given_length():
    packed = packing.pack_sequence([fb.ones(2), fb.ones(1)])

    padded, lengths = packing.pad_packed_sequence(packed, True, -1.0, total_length=3)

    close(padded, [[1, 1, -1], [1, -1, -1]])
    assert lengths.tolist() == [2, 1]
    with pytest.raises(ValueError, match="total_length=1"):
        packing.pad_packed_sequence(packed, total_length=1)


@pytest.mark.parametrize("sizes", [[1 << 62, 1 << 62], [3, -9], [], [2, 3]], ids=str)
def test_unpacking_of_batch_sizes_that_do_not_fit_ends_at_once(sizes):
    packed = packing.PackedSequence(fb.ones(5, 3), fb.tensor(sizes, dtype=fb.int64))

    with pytest.raises(RuntimeError):
        packing.pad_packed_sequence(packed)


def test_no_step_is_left_of_a_negative_length():
    assert [len(s) for s in packing.unpad_sequence(fb.ones(5, 2), fb.tensor([-3, 2]))] == [0, 2]


@pytest.mark.parametrize("lengths", [[2, 3], [0, 1], [4, 2], [3]])
def test_unfit_lengths_raise(lengths):
    with pytest.raises(RuntimeError, match="length"):
        packing.pack_padded_sequence(fb.ones(3, 2, 4), lengths)


@pytest.mark.parametrize("cls", [nn.RNN, nn.GRU, nn.LSTM])
def test_a_packed_sequence_gives_what_each_sequence_gives_alone(cls):
    m = cls(3, 4, num_layers=2, bidirectional=True)
    sequences = [fb.randn(n, 3) for n in (3, 5, 1)]

    packed, state = m(packing.pack_sequence(sequences, enforce_sorted=False))

    for i, (got, sequence) in enumerate(zip(packing.unpack_sequence(packed), sequences, strict=True)):
        alone, last = m(sequence)
        close(got, alone)
        for whole, single in zip(
            *((s if isinstance(s, tuple) else (s,)) for s in (state, last)), strict=True
        ):
            close(whole[:, i], single)


# -- other parameters ---------------------------------------------------------------------------------------


def test_a_functional_call_uses_the_given_tensors_and_restores_the_modules():
    m = nn.Linear(2, 2)
    weight = m.weight
    given = {"weight": fb.eye(2), "bias": fb.ones(2)}

    result = stateless._functional_call(m, given, fb.zeros(1, 2))

    close(result, [[1.0, 1.0]])
    assert m.weight is weight


def test_a_functional_call_reaches_all_paths_of_a_tied_weight():
    m = nn.Linear(2, 2)
    m.tied = m.weight

    with pytest.raises(ValueError, match="same parameter"):
        stateless._functional_call(m, {"weight": fb.eye(2), "tied": fb.ones(2, 2)}, fb.ones(1, 2))
    with pytest.raises(RuntimeError, match="Missing"):
        stateless._functional_call(m, {"weight": fb.eye(2)}, fb.ones(1, 2), strict=True)


# -- parametrizations ---------------------------------------------------------------------------------------


class Symmetric(nn.Module):
    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return x.triu() + x.triu(1).T

    def right_inverse(self, x: fb.Tensor) -> fb.Tensor:
        return x.triu()


def test_a_parametrized_weight_is_computed_when_read():
    m = parametrize.register_parametrization(nn.Linear(3, 3), "weight", Symmetric())

    close(m.weight, m.weight.T)
    assert type(m).__name__ == "ParametrizedLinear"
    assert isinstance(m, nn.Linear)
    assert list(m.state_dict()) == ["bias", "parametrizations.weight.original"]
    m(fb.ones(1, 3)).sum().backward()
    assert m.parametrizations.weight.original.grad is not None
    with parametrize.cached():
        assert m.weight is m.weight
    assert m.weight is not m.weight


def test_a_parametrized_weight_is_assigned_through_the_inverse():
    m = parametrize.register_parametrization(nn.Linear(3, 3), "weight", Symmetric())

    m.weight = fb.eye(3)

    close(m.weight, np.eye(3))
    m = parametrize.register_parametrization(nn.Linear(3, 3), "bias", nn.Tanh())
    with pytest.raises(RuntimeError, match="right_inverse"):
        m.bias = fb.ones(3)


def test_parametrizations_are_removed_with_the_value_or_the_original():
    for leave in (True, False):
        m = parametrize.register_parametrization(nn.Linear(3, 3), "bias", nn.Tanh())
        original, value = m.parametrizations.bias.original.detach().clone(), m.bias.detach().clone()

        parametrize.remove_parametrizations(m, "bias", leave)

        assert type(m) is nn.Linear
        close(m.bias, value if leave else original)


def test_parametrized_modules_copy_but_do_not_pickle():
    m = parametrize.register_parametrization(nn.Linear(3, 3), "weight", Symmetric())

    close(copy.deepcopy(m).weight, m.weight)
    with pytest.raises(RuntimeError, match="state_dict"):
        pickle.dumps(m)


def test_a_parametrization_must_keep_the_shape():
    with pytest.raises(ValueError, match="shape"):
        parametrize.register_parametrization(nn.Linear(2, 3), "weight", nn.Flatten(0))


@pytest.mark.parametrize("orthogonal_map", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(3, 3), (3, 5), (5, 3)])
def test_orthogonal_weights_stay_orthogonal(orthogonal_map, shape):
    m = parametrizations.orthogonal(nn.Linear(*shape), orthogonal_map=orthogonal_map)

    with fb.no_grad():
        # The householder map keeps a sign on the diagonal, which training does not move either.
        m.parametrizations.weight.original.add_(0.3 * (1 - fb.eye(shape[1], shape[0])))

    w = m.weight if shape[0] >= shape[1] else m.weight.T
    close(w @ w.T, np.eye(min(shape)), 1e-4)


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm_splits_length_and_direction(dim):
    plain = nn.Linear(3, 2)
    m = parametrizations.weight_norm(copy.deepcopy(plain), dim=dim)

    close(m.weight, plain.weight)
    with fb.no_grad():
        m.parametrizations.weight.original0.mul_(2.0)
    close(m.weight, 2 * plain.weight)


def test_spectral_norm_makes_the_largest_singular_value_one():
    m = parametrizations.spectral_norm(nn.Linear(6, 4), n_power_iterations=20)

    close(fb.tensor(np.linalg.svd(m.weight.detach().numpy(), compute_uv=False)[0]), 1.0, 1e-3)


# -- pruning ------------------------------------------------------------------------------------------------


def test_pruning_masks_the_smallest_and_remove_makes_it_permanent():
    m = nn.Linear(4, 3)
    original = m.weight.detach().numpy().copy()

    prune.l1_unstructured(m, "weight", 5)

    assert sorted(m.state_dict()) == ["bias", "weight_mask", "weight_orig"]
    kept = np.sort(np.abs(original).ravel())[5]
    close(m.weight, np.where(np.abs(original) >= kept, original, 0))
    assert prune.is_pruned(m)
    prune.remove(m, "weight")
    assert sorted(m.state_dict()) == ["bias", "weight"]
    assert not prune.is_pruned(m)
    assert int((m.weight == 0).sum()) == 5


def test_further_pruning_takes_from_what_is_left():
    m = prune.l1_unstructured(nn.Linear(4, 3), "weight", 4)

    prune.l1_unstructured(m, "weight", 0.5)
    assert int((m.weight_mask == 0).sum()) == 8
    prune.ln_structured(m, "weight", 1, 2, 0)
    assert any(row == [0.0] * 4 for row in m.weight_mask.tolist())


def test_global_pruning_compares_across_parameters():
    small, large = nn.Linear(2, 2), nn.Linear(2, 2)
    with fb.no_grad():
        large.weight.fill_(10.0)

    prune.global_unstructured([(small, "weight"), (large, "weight")], prune.L1Unstructured, amount=0.5)

    assert small.weight_mask.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert large.weight_mask.tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize(
    ("amount", "error"), [(-1, ValueError), (1.5, ValueError), (100, ValueError), ("x", TypeError)]
)
def test_unfit_amounts_raise_and_leave_the_module_as_it_was(amount, error):
    m = nn.Linear(2, 2)

    with pytest.raises(error, match="prune"):
        prune.l1_unstructured(m, "weight", amount)

    assert sorted(m.state_dict()) == ["bias", "weight"]
    assert not prune.is_pruned(m)


class _Doubled(nn.Module):
    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return x * 2


class _OneMore(nn.Module):
    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return x + 1

    def right_inverse(self, x: fb.Tensor) -> fb.Tensor:
        return x - 1


def test_a_further_parametrization_leaves_the_originals_as_they_are():
    m = nn.Linear(2, 2, bias=False)
    nn.init.ones_(m.weight)
    parametrize.register_parametrization(m, "weight", _Doubled())

    parametrize.register_parametrization(m, "weight", _OneMore())

    assert m.parametrizations.weight.original.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert m.weight.tolist() == [[3.0, 3.0], [3.0, 3.0]]
    with pytest.raises(RuntimeError, match="parametrization _Doubled does not implement right_inverse"):
        m.weight = fb.ones(2, 2)


@pytest.mark.parametrize("dim", [5, -3])
def test_weight_norm_refuses_a_dimension_that_is_not_there(dim: int) -> None:
    with pytest.warns(FutureWarning), pytest.raises(IndexError, match="out of range"):
        nn.utils.weight_norm(nn.Linear(2, 3), dim=dim)
