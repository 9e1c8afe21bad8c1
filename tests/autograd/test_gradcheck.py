"""gradcheck passes right derivatives and catches wrong ones, in every mode."""

from __future__ import annotations

import pytest

import flambeau as fb
from flambeau.autograd import GradcheckError, gradcheck, gradgradcheck

FAST = pytest.mark.parametrize("fast", [False, True])


def real(*shape):
    return fb.randn(shape, dtype=fb.float64, requires_grad=True)


def complex_(*shape):
    return fb.randn(shape, dtype=fb.complex128, requires_grad=True)


RIGHT = {
    "product": (lambda a, b: (b @ a).tanh(), lambda: (real(3), real(2, 3))),
    "two results": (lambda a: (a.sin(), a.sum()), lambda: (real(3),)),
    "complex": (lambda a: a * a.conj() * a, lambda: (complex_(2),)),
    "complex to real": (lambda a: a.abs(), lambda: (complex_(2),)),
    "complex and real": (lambda a, b: a * b, lambda: (complex_(2), real(2))),
    "softmax": (lambda a: fb.softmax(a, -1), lambda: (real(2, 3),)),
    "constant": (lambda a: a.detach().sign(), lambda: (real(2),)),
}


@FAST
@pytest.mark.parametrize("name", RIGHT)
def test_right_derivatives_pass(name, fast):
    f, inputs = RIGHT[name]

    assert gradcheck(f, inputs(), fast_mode=fast, check_forward_ad=True, check_batched_grad=True, check_grad_dtypes=True)
    assert gradgradcheck(f, inputs(), fast_mode=fast, check_fwd_over_rev=True, check_batched_grad=True)


class Wrong(fb.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


@FAST
def test_a_wrong_backward_is_caught(fast):
    with pytest.raises(GradcheckError, match="numerical"):
        gradcheck(Wrong.apply, real(3), fast_mode=fast)
    assert not gradcheck(Wrong.apply, real(3), fast_mode=fast, raise_exception=False)


class WrongForward(Wrong):
    @staticmethod
    def backward(ctx, grad):
        return grad * 2

    @staticmethod
    def jvp(ctx, tangent):
        return tangent * 3


@FAST
def test_a_wrong_jvp_is_caught(fast):
    assert gradcheck(WrongForward.apply, real(3), fast_mode=fast)
    with pytest.raises(GradcheckError, match="forward mode"):
        gradcheck(WrongForward.apply, real(3), fast_mode=fast, check_forward_ad=True)


class WrongTwice(fb.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 2 * x.detach()


@FAST
def test_a_wrong_second_derivative_is_caught(fast):
    assert gradcheck(WrongTwice.apply, real(3), fast_mode=fast)
    with pytest.raises(GradcheckError):
        gradgradcheck(WrongTwice.apply, real(3), fast_mode=fast)


class Noisy(WrongTwice):
    calls = 0

    @staticmethod
    def backward(ctx, grad):
        Noisy.calls += 1
        (x,) = ctx.saved_tensors
        return grad * 2 * x * (1 + 1e-7 * (Noisy.calls % 2))


def test_a_backward_that_varies_is_caught():
    with pytest.raises(GradcheckError, match="not reentrant"):
        gradcheck(Noisy.apply, fb.ones(1, dtype=fb.float64, requires_grad=True))
    assert gradcheck(Noisy.apply, fb.ones(1, dtype=fb.float64, requires_grad=True), nondet_tol=1e-6)


def test_inputs_that_cannot_be_checked():
    with pytest.raises(ValueError, match="require"):
        gradcheck(fb.sin, fb.ones(1, dtype=fb.float64))
    with pytest.warns(UserWarning, match="double precision"), pytest.raises(GradcheckError):
        gradcheck(fb.sin, fb.ones(1, requires_grad=True))
    with pytest.raises(RuntimeError, match="stride 0"):
        gradcheck(fb.sin, fb.ones(1, dtype=fb.float64).expand(3).detach().requires_grad_())


# -- sparse inputs -------------------------------------------------------------------------------------------------------


def sparse_inputs():
    rows = fb.tensor([[1.0, 0, 2], [0, 0, 3], [4, 0, 0], [0, 5, 0]], dtype=fb.float64)
    hybrid = fb.sparse_coo_tensor([[0, 2]], fb.randn(2, 3, dtype=fb.float64), (4, 3))
    return [
        rows.to_sparse(), rows.to_sparse_csr(), rows.to_sparse_csc(), rows[:, :2].to_sparse_bsr((2, 1)), rows[:, :2].to_sparse_bsc((1, 2)),
        hybrid,
    ]  # fmt: skip


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("fast", [False, True])
def test_sparse_inputs_are_checked_where_elements_are_specified_or_everywhere(number, fast):
    x = sparse_inputs()[number].requires_grad_()
    masked, whole = (lambda a: a.to_dense(masked_grad=True).sin()), (lambda a: a.to_dense(masked_grad=False).sin())

    assert fb.autograd.gradcheck(masked, [x], masked=True, fast_mode=fast)
    assert fb.autograd.gradcheck(whole, [x], masked=True, fast_mode=fast)
    assert fb.autograd.gradcheck(whole, [x], masked=False, fast_mode=fast)
    assert fb.autograd.gradgradcheck(whole, [x], masked=True)
    with pytest.raises(fb.autograd.gradcheck.GradcheckError, match="Jacobian mismatch for output 0 with respect to input 0"):
        fb.autograd.gradcheck(masked, [x], masked=False, fast_mode=fast)


def test_sparse_products_pass_and_sparse_results_are_refused():
    x = sparse_inputs()[0].requires_grad_()
    b = fb.randn(3, 2, dtype=fb.float64, requires_grad=True)

    assert fb.autograd.gradcheck(fb.sparse.mm, (x, b), masked=True)
    assert fb.autograd.gradcheck(lambda a: fb.sparse.sum(a), (x,), masked=True)
    with pytest.raises(ValueError, match="Sparse output is not supported at gradcheck yet"):
        fb.autograd.gradcheck(lambda a: a * 2, (x,), masked=True)
