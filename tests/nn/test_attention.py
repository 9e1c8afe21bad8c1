"""Ways of computing attention, and causal masks by name, beside PyTorch's."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest

import flambeau as fb
import flambeau.nn.functional as F
from flambeau.nn.attention import SDPBackend, sdpa_kernel
from flambeau.nn.attention.bias import CausalBias, CausalVariant, causal_lower_right, causal_upper_left

torch = pytest.importorskip("torch")
their_bias_module = pytest.importorskip("torch.nn.attention.bias")
BACKENDS = [SDPBackend[name] for name in torch.nn.attention.SDPBackend.__members__]


def flags(lib):
    cuda = lib.backends.cuda
    return [cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled(), cuda.cudnn_sdp_enabled()]


def operands(*shapes):
    fb.manual_seed(0)
    made = [fb.randn(*shape) for shape in shapes]
    return made, [torch.tensor(x.tolist()) for x in made]


def same(got, want):
    return fb.allclose(got.detach(), fb.tensor(want.detach().tolist()), atol=1e-6, rtol=1e-5)


def outcome(lib, attention, chosen, arguments, kwargs):
    backends = [getattr(attention.SDPBackend, b.name) for b in chosen]
    with warnings.catch_warnings(), attention.sdpa_kernel(backends):
        warnings.simplefilter("ignore")
        seen = flags(lib)
        try:
            made = lib.nn.functional.scaled_dot_product_attention(*arguments, **kwargs)
        except RuntimeError as error:
            return seen, "No available kernel" if "No available" in str(error) else "No viable backend"
    return seen, made


def test_backends_are_named_and_numbered_as_in_pytorch():
    assert [(b.name, b.value, repr(b), int(b)) for b in SDPBackend] == [
        (b.name, b.value, repr(b), int(b)) for b in torch.nn.attention.SDPBackend.__members__.values()
    ]


@pytest.mark.parametrize("chosen", [*itertools.combinations(BACKENDS, 1), *itertools.combinations(BACKENDS[1:], 2), ()])
@pytest.mark.parametrize("case", ["plain", "causal", "mask", "mask with a gradient", "three dimensions"])
def test_a_chosen_backend_answers_or_refuses_as_pytorchs(chosen, case):
    shape = (2, 5, 4) if case == "three dimensions" else (2, 2, 5, 4)
    ours, theirs = operands(shape, shape, shape, (5, 5))
    kwargs = {"is_causal": case == "causal"}
    for tensors in (ours, theirs):
        tensors[3].requires_grad_(case == "mask with a gradient")
    count = 4 if "mask" in case else 3

    seen, got = outcome(fb, fb.nn.attention, chosen, ours[:count], kwargs)
    expected, want = outcome(torch, torch.nn.attention, chosen, theirs[:count], kwargs)

    assert seen == expected
    assert got == want if isinstance(want, str) else same(got, want)
    assert flags(fb) == [True] * 4


def test_the_math_backend_holds_the_scores_and_flash_does_not():
    (q,), _ = operands((1, 2, 9, 4))
    q.requires_grad_()
    with sdpa_kernel(SDPBackend.MATH):
        composed = F.scaled_dot_product_attention(q, q, q)
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
        fused = F.scaled_dot_product_attention(q, q, q)

    assert "FlashAttention" in fused.grad_fn.name()
    assert "FlashAttention" not in composed.grad_fn.name()
    assert fb.allclose(fused, composed, atol=1e-6)
    assert fb.allclose(*(fb.autograd.grad(x.square().sum(), q)[0] for x in (fused, composed)), atol=1e-6)


def test_a_function_is_decorated():
    @sdpa_kernel(SDPBackend.MATH)
    def inside():
        return flags(fb)

    assert inside() == inside() == [False, False, True, False]
    assert flags(fb) == [True] * 4


@pytest.mark.parametrize("bad", [1, "MATH", None, (SDPBackend.MATH,), {SDPBackend.MATH}])
def test_what_is_no_backend_is_refused(bad):
    with pytest.raises(AssertionError, match=f"got {type(bad).__name__}"), sdpa_kernel(bad):
        pass


def test_priorities_are_kept_for_the_region():
    from flambeau.nn import attention

    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
        assert attention._cur_sdpa_kernel_backends(with_priority=True) == [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]
    assert attention._cur_sdpa_kernel_backends(with_priority=True)[0] is SDPBackend.FLASH_ATTENTION


def test_switches_of_the_process_and_their_region():
    cuda = fb.backends.cuda
    cuda.enable_math_sdp(False)
    cuda.enable_flash_sdp(False)
    try:
        with pytest.raises(RuntimeError, match="No viable backend"):
            F.scaled_dot_product_attention(*[fb.ones(1, 1, 2, 2)] * 3)
    finally:
        cuda.enable_math_sdp(True)
        cuda.enable_flash_sdp(True)
    with pytest.warns(FutureWarning, match="sdp_kernel"), cuda.sdp_kernel(enable_flash=False):
        assert flags(fb) == [False, True, True, True]
    assert flags(fb) == [True] * 4


def test_cuda_kernels_are_not_there_to_be_used():
    cuda, q = fb.backends.cuda, fb.ones(1, 1, 2, 2)
    params = cuda.SDPAParams(q, q, q, None, 0.0, False, False)

    for can_use in (cuda.can_use_flash_attention, cuda.can_use_efficient_attention, cuda.can_use_cudnn_attention):
        assert can_use(params) is False
        with pytest.warns(UserWarning, match=can_use.__name__):
            can_use(params, debug=True)
        with pytest.raises(TypeError, match="SDPAParams"):
            can_use(3)
    assert (params.query is q, params.dropout, params.enable_gqa) == (True, 0.0, False)


@pytest.mark.filterwarnings("ignore:Lower right causal bias")
@pytest.mark.parametrize("name", ["causal_upper_left", "causal_lower_right"])
@pytest.mark.parametrize("sizes", [(3, 5), (5, 3), (4, 4), (1, 6), (6, 1)])
@pytest.mark.parametrize("kwargs", [{}, {"scale": 0.3}, {"enable_gqa": True}])
def test_causal_biases_mask_as_pytorchs(name, sizes, kwargs):
    ours, theirs = operands((2, 2, sizes[0], 4), (2, 2, sizes[1], 4), (2, 2, sizes[1], 3))
    bias = getattr(fb.nn.attention.bias, name)(*sizes)
    their_bias = getattr(their_bias_module, name)(*sizes)

    assert repr(bias) == repr(their_bias)
    assert (tuple(bias.shape), bias.variant, bias.seq_len_q, bias.seq_len_kv) == (
        tuple(their_bias.shape), their_bias.variant, their_bias.seq_len_q, their_bias.seq_len_kv,
    )  # fmt: skip
    want = torch.nn.functional.scaled_dot_product_attention(*theirs, their_bias, **kwargs)
    assert same(F.scaled_dot_product_attention(*ours, bias, **kwargs), want)
    assert same(F.scaled_dot_product_attention(*ours, attn_mask=bias, **kwargs), want)


def test_causal_biases_have_gradients():
    ours, theirs = operands((1, 2, 3, 4), (1, 2, 5, 4))
    for x in (*ours, *theirs):
        x.requires_grad_()
    F.scaled_dot_product_attention(ours[0], ours[1], ours[1], causal_lower_right(3, 5)).square().sum().backward()
    bias = their_bias_module.causal_lower_right(3, 5)
    torch.nn.functional.scaled_dot_product_attention(theirs[0], theirs[1], theirs[1], bias).square().sum().backward()

    assert all(same(x.grad, y.grad) for x, y in zip(ours, theirs, strict=True))


def test_a_causal_bias_and_is_causal_exclude_each_other():
    q = fb.ones(1, 1, 2, 2)
    with pytest.raises(ValueError, match="causal=True"):
        F.scaled_dot_product_attention(q, q, q, causal_upper_left(2, 2), is_causal=True)


def test_more_queries_than_keys_are_warned_about():
    with pytest.warns(UserWarning, match="seq_len_q > seq_len_kv"):
        causal_lower_right(5, 3)


@pytest.mark.parametrize("sizes", [(3,), (3, 4, 5), ((3, 4),)])
def test_a_bias_has_two_sizes(sizes):
    with pytest.raises(AssertionError, match="only supports 2D"):
        causal_upper_left(*sizes)
    with pytest.raises(AssertionError, match="only supports 2D"):
        causal_lower_right(*sizes)


def test_a_variant_is_no_number():
    with pytest.raises(AssertionError, match="must be a CausalVariant, got int"):
        CausalBias(3, 3, 4)
    assert [v.value for v in CausalVariant] == [1, 2]


def test_attention_whose_weights_or_heads_were_replaced_is_refused_by_type():
    x = fb.ones(5, 2, 4)
    flat, several = (fb.nn.MultiheadAttention(4, 2, bias=False, add_zero_attn=True) for _ in range(2))
    flat.in_proj_weight = fb.nn.Parameter(fb.ones(12))
    several.num_heads = (2, 2)
    several.in_proj_weight = None

    with pytest.raises(RuntimeError, match="projection weights must be matrices"):
        flat(x, x + 1, x)
    with pytest.raises(TypeError, match="num_heads must be int, not tuple"):
        several(x, x, x)


@pytest.mark.parametrize("weight", [None, fb.nn.Parameter(fb.ones(0, 4)), fb.nn.Parameter(fb.ones(5, 4)), fb.nn.Parameter(fb.ones(4))])
def test_separate_weights_of_attention_have_the_shape_of_what_they_project(oracle: Any, weight: Any) -> None:
    for lib in (oracle, fb):
        m = lib.nn.MultiheadAttention(4, 2, kdim=3, vdim=3)
        m.q_proj_weight = None if weight is None else lib.nn.Parameter(lib.ones(*weight.shape))

        with pytest.raises(AssertionError, match="q_proj_weight is None" if weight is None else "expecting query weights shape"):
            m(lib.ones(2, 1, 4), lib.ones(2, 1, 3), lib.ones(2, 1, 3))
