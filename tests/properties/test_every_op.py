"""What holds for every declared op, tried with the calls of its declaration: elementwise, composed, primitive, view and reduction.

A new declaration adds its tests. What an op does not promise is named here, with the reason.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from typing import Any

import pytest

import flambeau as fb
from flambeau.autograd import gradcheck, gradgradcheck
from flambeau.ops import _spec
from flambeau.ops._spec.nodes import tensor_names
from flambeau.ops._spec.primitive import PrimitiveNode
from flambeau.ops._spec.samples import function_of, reached_by, samples_of
from properties.cases import EVERYTHING, OPS, Case, bits, cases, looks, mapped, tensors_in

ALL, UNDRAWN = cases(), cases(draws=False)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


def every(found: list[Case]) -> Any:
    return pytest.mark.parametrize("case", found, ids=[case.name for case in found])


@pytest.mark.parametrize("op", OPS, ids=[op.qualified for op in OPS])
def test_an_op_has_calls_to_try_it_with(op):
    if reached_by(op):
        assert not op.surface or op.kind == "composite", "a public op has calls of its own"
        assert samples_of(_spec.OPS[reached_by(op)])
    else:
        assert samples_of(op)


# -- tensors without values ----------------------------------------------------------------------------------------------

# The shape of the result, or the result itself, is read from values; `nonzero_static` has PyTorch's strides, which differ there too.
READ_VALUES = {
    "masked_select", "nonzero", "nonzero_rows", "repeated_places", "argwhere", "unique", "unique_consecutive", "bincount",
    "histogram", "histogramdd",
    "nonzero_static", "allclose", "equal", "cpu", "repeat_interleave-1", "nn.functional.gaussian_nll_loss",
}

@every([case for case in ALL if not {case.name, case.op.qualified} & READ_VALUES])
def test_a_meta_tensor_gives_the_shape_dtype_and_strides_of_the_real_one(case):
    sample = case.sample()
    given = mapped(lambda t: t.to("meta"), sample)
    if not tensors_in(given.args):
        pytest.skip("it takes no tensors")
    real, known = tensors_in(case.call(sample)), tensors_in(case.call(given))
    assert [looks(t) for t in known] == [looks(t) for t in real]


# -- what operands hold --------------------------------------------------------------------------------------------------


def holding(values: tuple[float, ...], t: fb.Tensor) -> fb.Tensor:
    """`t` with `values` among its own."""
    if not t.dtype.is_floating_point and not t.dtype.is_complex or not t.numel():
        return t
    flat = t.detach().clone().reshape(-1)
    for i, value in enumerate(values):
        flat[i * (flat.numel() - 1) // max(len(values) - 1, 1)] = value
    return flat.reshape(t.shape)


@every(ALL)
def test_an_op_that_draws_random_numbers_declares_it(case):
    sample = case.sample()
    fb.manual_seed(0)
    before = fb.get_rng_state()
    function_of(case.op)(*sample.args, **sample.kwargs)
    if not fb.equal(fb.get_rng_state(), before):
        assert case.op.random


@every([case for case in ALL if case.op.surface])
def test_an_op_of_infinities_and_nan_gives_no_warning_of_numpys(case):
    for values in ((math.inf, 0.0, -math.inf), (math.nan,), (1e38, -1e38)):
        for needs_grad in (False, True):
            given = mapped(lambda t, v=values: holding(v, t), case.sample(fb.float32))
            leaves = [t.requires_grad_() for t in given.tensors if needs_grad]
            with warnings.catch_warnings(), contextlib.suppress(RuntimeError, ValueError, IndexError, TypeError, OverflowError):
                warnings.simplefilter("error", RuntimeWarning)
                for made in tensors_in(case.call(given)):
                    if leaves and made.requires_grad:
                        made.sum().abs().backward(retain_graph=True)


# -- forms -----------------------------------------------------------------------------------------------------------------


@every([case for case in ALL if case.op.surface & _spec.FUNCTION and case.op.surface & _spec.METHOD and case.op.qualified not in
        ("bernoulli", "multinomial") and isinstance(case.sample().args[0], fb.Tensor)])  # fmt: skip
def test_the_method_is_the_function(case):
    sample = case.sample()
    fb.manual_seed(0)
    made = getattr(sample.args[0], case.op.name)(*sample.args[1:], **sample.kwargs)
    wanted = case.call(case.sample())
    assert [(looks(t), bits(t)) for t in tensors_in(made)] == [(looks(t), bits(t)) for t in tensors_in(wanted)]


@every([case for case in ALL if case.op.surface & _spec.OUT])
def test_out_holds_the_result(case):
    wanted = tensors_in(result := case.call(case.sample()))
    outs = [fb.empty(0, dtype=t.dtype) for t in wanted]
    sample = case.sample()
    fb.manual_seed(0)
    made = function_of(case.op)(*sample.args, **sample.kwargs, out=outs[0] if isinstance(result, fb.Tensor) else tuple(outs))
    assert all(a is b for a, b in zip(tensors_in(made), outs, strict=True))
    assert [(t.shape, t.dtype, bits(t)) for t in outs] == [(t.shape, t.dtype, bits(t)) for t in wanted]


@every([case for case in ALL if case.op.surface & _spec.INPLACE and case.op.surface & _spec.METHOD])
def test_the_form_in_place_stores_the_result(case):
    sample, wanted = case.sample(), case.call(case.sample())
    target = sample.args[0]
    if not isinstance(target, fb.Tensor) or not isinstance(wanted, fb.Tensor) or looks(target)[:2] != looks(wanted)[:2]:
        pytest.skip("the result is no tensor like the first argument")
    fb.manual_seed(0)
    assert getattr(target, f"{case.op.name}_")(*sample.args[1:], **sample.kwargs) is target
    assert bits(target) == bits(wanted)


# -- derivatives -----------------------------------------------------------------------------------------------------------

# Results that are determined up to a factor, or by arguments that are read as something else than numbers.
UNDETERMINED = {"linalg.eig-0", "linalg.eig-1"}
# PyTorch has no second derivative of it either, and says so.
ONCE = {"nn.functional.ctc_loss"}


def differentiable(case: Case, op_fn: Any = None) -> tuple[Any, list[fb.Tensor]]:
    """A function of tensors that have a derivative, and these; none where there is nothing to differentiate."""
    sample = case.sample()
    origins = sample.tensors

    def fn(*given: fb.Tensor) -> tuple[fb.Tensor, ...]:
        # Ops that store in their first argument get one that is no leaf.
        placed = [getattr(o, "projection", fb.clone)(t) for o, t in zip(origins, given, strict=True)]
        made = tensors_in(case.call(sample.with_tensors(placed)))
        return tuple(t for t in made if t.dtype.is_floating_point or t.dtype.is_complex)

    def with_history(*given: fb.Tensor) -> tuple[fb.Tensor, ...]:
        return tuple(t for t in fn(*given) if t.requires_grad)

    inputs = [t.detach().clone() for t in origins]
    for t in inputs:                                  # one after the other: PyTorch has no derivative for some parameters
        t.requires_grad_()
        try:
            fb.autograd.grad([o.abs().sum() for o in with_history(*inputs)], t, allow_unused=True)
        except NotImplementedError as error:
            if not str(error).startswith("the derivative for"):
                raise
            t.requires_grad_(False)
    if not any(t.requires_grad for t in inputs) or not with_history(*inputs):
        return None, []
    return with_history, inputs


# They read a triangle of a factor, and have the derivative of the product of all of it, as in PyTorch (tests/ops/test_matrices.py).
OF_A_PRODUCT = {"cholesky_solve", "cholesky_inverse"}


@every([case for case in UNDRAWN if case.name not in UNDETERMINED and case.op.qualified not in OF_A_PRODUCT])
def test_first_derivatives_are_differences_in_both_modes(case):
    fn, inputs = differentiable(case)
    if fn is None:
        pytest.skip("it has no derivative")
    gradcheck(fn, inputs, fast_mode=True, check_forward_ad=case.op.qualified not in ONCE)


@every([case for case in UNDRAWN if case.name not in UNDETERMINED and case.op.qualified not in ONCE | OF_A_PRODUCT])
def test_second_derivatives_are_differences(case):
    fn, inputs = differentiable(case)
    if fn is None:
        pytest.skip("it has no derivative")
    gradgradcheck(fn, inputs, fast_mode=True, atol=1e-4)


# Its second operand has a gradient of zero: PyTorch's gradients of a layer's operands depend on all of them.
DEPENDS = "depends_on"


@every(UNDRAWN)
def test_an_operand_has_a_gradient_unless_the_declaration_says_that_it_has_no_derivative(case):
    fn, inputs = differentiable(case)
    if fn is None:
        pytest.skip("it has no derivative")
    for made in fn(*inputs):
        node = made.grad_fn
        if not isinstance(node, PrimitiveNode) or node.shape or node.lengths is not None or node.op.name == DEPENDS:
            continue
        op = node.op
        operands = zip(tensor_names(op), node.parents, node.vjp(fb.ones_like(made)), strict=True)
        without = {name for name, parent, grad in operands if parent is not None and grad is None}

        assert without <= op.without_derivative


# -- vmap ------------------------------------------------------------------------------------------------------------------

# Refused as in PyTorch: a result whose shape is another for each example, one that is no tensor, statistics that examples share,
# and what counts as drawing numbers, also where they are given.
NOT_MAPPED = {
    *(f"nn.functional.fractional_max_pool{n}d{end}" for n in (2, 3) for end in ("", "_with_indices")),
    "masked_select", "is_same_size", "allclose", "equal", "batch_norm-0", "native_batch_norm", "nn.functional.batch_norm-0",
    "nn.functional.instance_norm-1", "_native_batch_norm_legit_functional",
}


@every([case for case in UNDRAWN if not {case.name, case.op.qualified} & NOT_MAPPED])
def test_vmap_is_a_loop(case):
    sample = case.sample()
    if not sample.tensors:
        pytest.skip("nothing to map over")
    pairs = [fb.stack([t, t * 0.8]) for t in sample.tensors]

    def fn(*given: fb.Tensor) -> Any:
        return tuple(tensors_in(case.call(sample.with_tensors(list(given)))))

    mapped_over = fb.vmap(fn)(*(t.clone() for t in pairs))
    for at in (0, 1):
        for one, wanted in zip(mapped_over, fn(*(t[at].clone() for t in pairs)), strict=True):
            fb.testing.assert_close(one[at], wanted, rtol=1e-9, atol=1e-9, equal_nan=True)


# -- interpreters ----------------------------------------------------------------------------------------------------------


class Labelled(fb.Tensor):
    pass


@every(ALL)
def test_a_subclass_gets_the_same_bits_in_its_class(case):
    given = mapped(lambda t: t.as_subclass(Labelled), case.sample())
    if not tensors_in(given.args):
        pytest.skip("it takes no tensors")
    made, wanted = tensors_in(case.call(given)), tensors_in(case.call(case.sample()))
    assert {type(t) for t in made} <= {Labelled}
    plain = [t.as_subclass(fb.Tensor) for t in made]
    assert [(looks(t), bits(t)) for t in plain] == [(looks(t), bits(t)) for t in wanted]


# No tensors come out of them, and nothing is recorded.
UNRECORDED = {"allclose", "equal", "is_same_size"}


# A recording looks at all objects of the process first, so a part of them has to do; FLAMBEAU_TEST_EVERY_OP=1 takes them all.
RECORDED = [case for case in UNDRAWN if case.op.surface and case.op.qualified not in UNRECORDED]


@every(RECORDED if EVERYTHING else RECORDED[::8])
def test_a_recording_gives_the_same_bits(case):
    from flambeau.fx.experimental.proxy_tensor import make_fx

    sample = case.sample()
    if not sample.tensors:
        pytest.skip("it takes no tensors that are recorded")

    def fn(*given: fb.Tensor) -> Any:
        return tuple(tensors_in(case.call(sample.with_tensors([t.clone() for t in given]))))

    wanted = fn(*sample.tensors)
    made = make_fx(fn)(*sample.tensors)(*sample.tensors)
    assert [(looks(t), bits(t)) for t in made] == [(looks(t), bits(t)) for t in wanted]


# -- beside PyTorch --------------------------------------------------------------------------------------------------------


def _to_torch(torch: Any, value: Any) -> Any:
    if isinstance(value, fb.Tensor):
        return torch.from_numpy(value.resolve_conj().numpy().copy())
    if isinstance(value, (tuple, list)):
        return type(value)(_to_torch(torch, v) for v in value)
    if isinstance(value, (fb.dtype, type(fb.channels_last))):
        return getattr(torch, str(value).partition(".")[2])
    return value


def _public(torch: Any, op: Any) -> Any:
    """PyTorch's function of the name, or None."""
    found = torch if op.surface & _spec.FUNCTION else torch.Tensor
    for part in (op.qualified if op.surface & _spec.FUNCTION else op.name).removeprefix("Tensor.").split("."):
        found = getattr(found, part, None)
    return found


# Vectors of singular values have no sign of their own; LAPACK has it from the order of memory.
OTHER_SIGNS = {"linalg.svd", "svd"}
# PyTorch multiplies its factors in the lower precision; here one kernel of LAPACK computes it.
OTHER_PRECISION = {"linalg.pinv"}
# PyTorch has it in float32 and half types.
NOT_IN_DOUBLE = {"nn.functional.grouped_mm"}
# Our `convolution` has defaults; these have a tensor where PyTorch takes numbers alone.
OTHER_PARAMETERS = {"convolution", "celu", "threshold", "nn.functional.softplus", "hardshrink", "nn.functional.softshrink"}


@pytest.mark.oracle
@pytest.mark.parametrize("mixed", [False, True], ids=["plain", "autocast"])
@every([case for case in UNDRAWN if case.op.surface & (_spec.FUNCTION | _spec.METHOD) and case.op.qualified not in OTHER_PARAMETERS])
def test_values_and_dtypes_are_those_of_pytorch(case, mixed, oracle):
    theirs = _public(oracle, case.op)
    if theirs is None:
        pytest.skip("PyTorch has no public function of the name")
    if case.op.qualified in (OTHER_PRECISION if mixed else OTHER_SIGNS):
        pytest.skip("another by nature")
    sample = case.sample(fb.float32 if mixed or case.op.qualified in NOT_IN_DOUBLE else None)
    args, kwargs = _to_torch(oracle, sample.args), {name: _to_torch(oracle, value) for name, value in sample.kwargs.items()}
    with oracle.autocast("cpu", dtype=oracle.bfloat16, enabled=mixed):
        wanted = [t.detach().resolve_conj().resolve_neg() for t in _tensors_of(oracle, theirs(*args, **kwargs))]
    with fb.autocast("cpu", dtype=fb.bfloat16, enabled=mixed):
        made = tensors_in(case.call(sample))
    assert [(tuple(t.shape), str(t.dtype)) for t in made] == [(tuple(t.shape), str(t.dtype)) for t in wanted]
    if not mixed:
        for one, other in zip(made, wanted, strict=True):
            room = 1e-6 if one.dtype in (fb.float32, fb.complex64) else 1e-9
            fb.testing.assert_close(one.resolve_conj(), fb.from_numpy(other.numpy()), rtol=room, atol=room, equal_nan=True)


def _tensors_of(torch: Any, result: Any) -> list[Any]:
    if isinstance(result, torch.Tensor):
        return [result]
    return [t for value in result for t in _tensors_of(torch, value)] if isinstance(result, (tuple, list)) else []
