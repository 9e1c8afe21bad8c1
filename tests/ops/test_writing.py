"""In-place forms and their histories, zero gradients, and what was saved and overwritten before backward."""

from __future__ import annotations

import itertools
import math

import pytest

import flambeau as fb
from comparing import disagreements

F = fb.nn.functional


def numbers(*shape):
    return fb.arange(float(math.prod(shape))).view(shape) * 0.17 + 0.3


IN_PLACE = {
    "addmm_": lambda t: t.addmm_(numbers(4, 2), numbers(2, 4), beta=2, alpha=0.5),
    "addmm_ of itself": lambda t: t.addmm_(t, numbers(4, 4)),
    "addmm_ beta 0": lambda t: t.addmm_(numbers(4, 2), numbers(2, 4), beta=0),
    "addr_": lambda t: t.addr_(numbers(4), numbers(4), beta=0.5),
    "addbmm_": lambda t: t.addbmm_(numbers(2, 4, 3), numbers(2, 3, 4), beta=0.5),
    "renorm_": lambda t: t.renorm_(2, 0, 0.7),
    "mvlgamma_": lambda t: t.abs_().add_(3).mvlgamma_(2),
    "lerp_": lambda t: t.lerp_(numbers(4, 4), numbers(4, 4)),
    "ldexp_": lambda t: t.ldexp_(numbers(4)),
    "logit_": lambda t: t.mul_(0.05).add_(0.3).logit_(),
    "clamp_": lambda t: t.clamp_(numbers(4), numbers(4) + 0.2),
    "index_reduce_": lambda t: t.index_reduce_(0, fb.tensor([1, 1, 0, 3]), numbers(4, 4), "mean"),
    "div_ down": lambda t: t.div_(0.3, rounding_mode="floor"),
    "conj_physical_": lambda t: t.conj_physical_(),
    "eq_": lambda t: t.eq_(0.3),
    "gt_": lambda t: t.gt_(numbers(4)),
    "logical_not_": lambda t: t.logical_not_(),
    "fill_diagonal_": lambda t: t.fill_diagonal_(0.5),
    "uniform_": lambda t: t.uniform_(),
}
OUT_OF_PLACE = {
    "addmm_": lambda t: t.addmm(numbers(4, 2), numbers(2, 4), beta=2, alpha=0.5),
    "addmm_ of itself": lambda t: t.addmm(t, numbers(4, 4)),
    "addmm_ beta 0": lambda t: t * 0,
    "addr_": lambda t: t.addr(numbers(4), numbers(4), beta=0.5),
    "addbmm_": lambda t: t.addbmm(numbers(2, 4, 3), numbers(2, 3, 4), beta=0.5),
    "renorm_": lambda t: t.renorm(2, 0, 0.7),
    "mvlgamma_": lambda t: (t.abs() + 3).mvlgamma(2),
    "lerp_": lambda t: t.lerp(numbers(4, 4), numbers(4, 4)),
    "ldexp_": lambda t: t.ldexp(numbers(4)),
    "logit_": lambda t: (t * 0.05 + 0.3).logit(),
    "clamp_": lambda t: t.clamp(numbers(4), numbers(4) + 0.2),
    "index_reduce_": lambda t: t.index_reduce(0, fb.tensor([1, 1, 0, 3]), numbers(4, 4), "mean"),
    "div_ down": lambda t: t * 0,
    "conj_physical_": lambda t: t * 1,
    "eq_": lambda t: t * 0,
    "gt_": lambda t: t * 0,
    "logical_not_": lambda t: t * 0,
    "fill_diagonal_": lambda t: t * (1 - fb.eye(4)),
    "uniform_": lambda t: t * 0,
}


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("part", [lambda y: y[1], lambda y: y[1].t(), lambda y: y[1].view(4, 4)], ids=["slice", "turned", "view"])
def test_gradients_pass_an_in_place_operation_on_a_part(part, name):
    weights = numbers(2, 4, 4)

    def gradient(change):
        x = (numbers(2, 4, 4) - 1).requires_grad_()
        y = x * 1.5
        y = change(y)
        (y * weights).sum().backward()
        return x.grad

    def in_place(y):
        IN_PLACE[name](part(y))
        return y

    def out_of_place(y):
        made = OUT_OF_PLACE[name](part(y))
        turned = part(y).stride() != (4, 1)
        return fb.stack([y[0], made.t() if turned else made])

    assert fb.allclose(gradient(in_place), gradient(out_of_place), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["addmm_ of itself", "mvlgamma_", "eq_", "conj_physical_"])
def test_gradients_pass_an_in_place_operation_on_a_whole_tensor(name):
    grads = []
    for change in (IN_PLACE[name], OUT_OF_PLACE[name]):
        x = numbers(4, 4).requires_grad_()
        y = x * 1.5
        y = change(y)
        (y * numbers(4, 4)).sum().backward()
        grads.append(x.grad)

    assert fb.allclose(*grads, rtol=1e-4)


# -- zero gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grad", [math.inf, math.nan])
@pytest.mark.parametrize(
    "f",
    [
        fb.floor, fb.ceil, fb.trunc, fb.round, fb.sign, lambda x: x.round(decimals=1), lambda x: x.div(2, rounding_mode="floor"),
        lambda x: (x * 1).fill_(2), lambda x: (x * 1).copy_(fb.ones(2)), lambda x: (x * 1).normal_(), lambda x: fb.normal(x, 1.0),
        lambda x: fb.poisson(x), lambda x: fb.bernoulli(x / 10),
    ],
    ids=["floor", "ceil", "trunc", "round", "sign", "round1", "quotient", "fill", "copy", "draw", "normal", "poisson", "bernoulli"],
)  # fmt: skip
def test_a_gradient_of_zero_stays_zero_whatever_arrives(f, grad):
    x = fb.tensor([1.5, 2.5], requires_grad=True)
    f(x).backward(fb.tensor([grad, grad]))

    assert x.grad.tolist() == [0.0, 0.0]


def test_overwritten_elements_get_no_nan_from_behind():
    x = fb.tensor([1.5, 2.5], requires_grad=True)
    y = x * 1
    y[0] = 3.0
    y.backward(fb.tensor([math.nan, 1.0]))

    assert x.grad.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("f", [fb.max, fb.amax, fb.median])
def test_only_the_chosen_element_gets_an_infinite_gradient(f):
    x = fb.tensor([1.0, 2.0, 0.0], requires_grad=True)
    f(x).backward(fb.tensor(math.inf))

    assert sorted(x.grad.tolist()) == [0.0, 0.0, math.inf]


def test_beta_zero_does_not_carry_nan_of_the_input_on():
    x = fb.full((2, 2), math.nan, requires_grad=True)

    assert fb.addmm(x, fb.ones(2, 2), fb.ones(2, 2), beta=0).tolist() == [[2.0, 2.0], [2.0, 2.0]]


# -- derivatives that nobody has defined -----------------------------------------------------------------------------------


UNDEFINED = {
    "floor_divide": lambda x: x // 2,
    "floor_divide_": lambda x: (x * 1).floor_divide_(2),
    "heaviside": lambda x: fb.heaviside(x, fb.ones(3)),
    "unique": fb.unique,
    "unique with counts": lambda x: fb.unique(x, return_inverse=True, return_counts=True)[0],
    "unique along": lambda x: x.view(3, 1).unique(dim=0),
    "unique_consecutive": fb.unique_consecutive,
    "histogram": lambda x: fb.histogram(x, 3)[0],
    "bincount": lambda x: fb.bincount(fb.tensor([0, 1, 2]), x),
    "igamma": lambda x: fb.special.gammainc(x, fb.ones(3)),
}


@pytest.mark.parametrize("name", UNDEFINED)
def test_a_derivative_that_nobody_defined_is_refused_when_it_is_asked_for(name):
    y = UNDEFINED[name](fb.tensor([1.0, 2.0, 2.0], requires_grad=True))

    assert y.requires_grad
    with pytest.raises(NotImplementedError, match=r"derivative for '_?[a-z]+.*' is not implemented"):
        y.sum().backward()
    assert not UNDEFINED[name](fb.tensor([1.0, 2.0, 2.0])).requires_grad


def test_results_without_elements_or_terms_have_a_history_too():
    image = fb.ones(0, 3, 8, 8, requires_grad=True)
    pooled, places = fb.nn.FractionalMaxPool2d(2, output_size=3, return_indices=True)(image)
    table = fb.ones(4, 3, requires_grad=True)
    bags = F.embedding_bag(fb.zeros(0, dtype=fb.int64), table, fb.tensor([0, 0]), mode="max")
    reflectors = fb.ones(3, 3, requires_grad=True)
    product = fb.linalg.householder_product(reflectors, fb.ones(0))
    (pooled.sum() + bags.sum() + product.sum()).backward()

    assert (pooled.shape, places.requires_grad) == ((0, 3, 3, 3), False)
    assert image.grad.shape == image.shape
    assert table.grad.eq(0).all()
    assert reflectors.grad.eq(0).all()


# -- overwriting what was saved --------------------------------------------------------------------------------------------


def at_places(*values):
    return lambda: fb.tensor(values)


def in_place_of(*key):
    def use(x, i):
        y = x * 1
        y[tuple(i if k == "i" else k for k in key)] = fb.ones(())
        return y * x

    return use


SAVED = {
    "x[i]": (lambda x, i: x[i], at_places(1, 2)),
    "x[i, i]": (lambda x, i: x[i, i], at_places(1, 2)),
    "x[:, i]": (lambda x, i: x[:, i], at_places(1, 2)),
    "x[i, None]": (lambda x, i: x[i, None], at_places(1, 2)),
    "x[..., i]": (lambda x, i: x[..., i], at_places(1, 2)),
    "x[i] = y": (in_place_of("i"), at_places(1, 2)),
    "x[:, i] = y": (in_place_of(slice(None), "i"), at_places(1, 2)),
    "x[i, i] = y": (in_place_of("i", "i"), at_places(1, 2)),
    "index_put": (lambda x, i: x.index_put((i,), x[:2]), at_places(1, 2)),
    "index_put_": (lambda x, i: (x * 1).index_put_((i,), x[:2] * 1, accumulate=True), at_places(1, 2)),
    "cross_entropy": (lambda x, i: F.cross_entropy(x, fb.tensor([0, 1, 2]), weight=i), lambda: fb.ones(4)),
    "ctc_loss": (lambda x, i: i.copy_(F.ctc_loss(x.log_softmax(1), fb.tensor([1]), (3,), (1,))), lambda: fb.ones(())),
}


@pytest.mark.parametrize("name", SAVED)
def test_places_that_were_overwritten_before_backward_are_noticed(name):
    use, places = SAVED[name]
    grads = []
    for overwrite in (False, True):
        x = (numbers(3, 4) * 1).requires_grad_()
        i = places()
        y = use(x * 1, i)
        if overwrite and name != "ctc_loss":
            i.zero_()
        if overwrite and name != "ctc_loss":
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.square().sum().backward()
            return
        y.square().sum().backward()
        grads.append(x.grad)

    assert fb.equal(*grads)


def test_statistics_that_batch_norm_hands_out_are_not_those_it_reads():
    grads = []
    for overwrite in (False, True):
        x = numbers(3, 4).requires_grad_()
        out, mean, inverse = fb.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)
        if overwrite:
            mean.zero_(), inverse.zero_()
        (out * numbers(3, 4)).sum().backward()
        grads.append(x.grad)

    assert fb.equal(*grads)


def test_statistics_have_a_history_where_pytorch_gives_them_one():
    x = numbers(2, 4).requires_grad_()
    of_layer = fb.native_layer_norm(x, (4,), None, None, 1e-5)
    of_group = fb.native_group_norm(x, None, None, 2, 4, 1, 2, 1e-5)

    assert [t.requires_grad for t in of_layer] == [True, False, False]
    assert [t.requires_grad for t in of_group] == [True, True, True]


def test_expanded_tensors_with_a_history_are_filled_with_numbers(oracle):
    programs = """
    a = torch.ones(3, requires_grad=True); b = a * 2; b.expand(2, 3).fill_(0.5); (b, b._version)
    a = torch.ones(3, requires_grad=True); b = (a * 2).expand(2, 3); b.fill_(0.5); (b, b._version)
    a = torch.ones(3, 1, requires_grad=True); b = a * 2; c = b.expand(3, 2)[1:]; c.zero_(); (b, c, b._version)
    torch.ones(3, requires_grad=True).mul(1).expand(2, 3).fill_(torch.tensor(0.5))
    """

    assert not disagreements(oracle, programs)


def test_the_gradient_of_a_source_that_a_lone_index_took_one_element_of():
    source = fb.ones(2, requires_grad=True)
    fb.ones(1).scatter_reduce_(0, fb.tensor(0), source, "sum").sum().backward()

    assert source.grad.tolist() == [1, 0]             # PyTorch refuses to go back


def test_masked_writes_into_expanded_tensors_store_what_is_masked_alone(oracle):
    programs = """
    x = torch.zeros(1).expand(4); x.masked_fill_(torch.tensor([True, False, True, False]), 1)
    x = torch.zeros(2, 1).expand(2, 4); x.masked_fill_(torch.tensor([True, False, False, False]), 1)
    x = torch.zeros(2, 1).expand(2, 4); x.masked_fill_(torch.tensor([[True], [False]]), torch.tensor(2.))
    x = torch.full((1,), float('nan')).expand(3); x.masked_fill_(torch.tensor([True, False, False]), 1)
    x = torch.zeros(1, dtype=torch.bfloat16).expand(4); x.masked_fill_(torch.tensor([True, False, True, False]), 1)
    x = torch.zeros(1).expand(4); x.index_fill_(0, torch.tensor([0]), 1)
    x = torch.zeros(1).expand(4); x[torch.tensor([True, False, True, False])] = 3; x
    """

    assert not disagreements(oracle, programs)


def test_what_was_filled_while_expanded_sends_no_gradient_back():
    a = fb.ones(3, 1, requires_grad=True)
    b = a * 2
    b.expand(3, 2)[1:].fill_(0.5)
    (b * 3).sum().backward()

    assert a.grad.tolist() == [[6], [0], [0]]         # PyTorch fills, and refuses to go back


def test_real_numbers_in_complex_form_fill_masks(oracle):
    programs = """
    torch.ones(2).masked_fill_(torch.tensor([True, False]), torch.tensor(2 + 0j))
    torch.ones(2).masked_fill_(torch.tensor([True, False]), 2 + 0j)
    torch.ones(2).masked_fill(torch.tensor([True, False]), torch.tensor(2 + 1j))
    torch.ones(2).masked_fill(torch.tensor([True, False]), 2 + 1j)
    torch.ones(2).long().masked_fill(torch.tensor([True, False]), torch.tensor(2 + 0j))
    """

    assert not disagreements(oracle, programs)


ONE_OPERAND = ["neg", "abs", "sqrt", "exp", "log", "sin", "floor", "square", "sign", "reciprocal"]


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64, fb.int32, fb.int64], ids=str)
@pytest.mark.parametrize("apart", [2, 3, 4, 8, 16])
def test_columns_that_are_written_to_hold_what_a_column_of_their_own_would(apart, dtype):
    names = ONE_OPERAND if dtype.is_floating_point else ["neg", "abs", "square", "sign"]
    for name, count in itertools.product(names, (2, 5, 33)):
        of = getattr(fb, name)
        columns = fb.arange(1, 1 + count * apart, dtype=dtype).view(count, apart)
        alone = of(columns[:, 0].clone())
        out = fb.zeros(count, apart, dtype=alone.dtype)
        of(columns[:, 0], out=out[:, 0])
        assert fb.equal(out[:, 0], alone), name
        getattr(columns[:, 0], name + "_")()
        assert fb.equal(columns[:, 0], alone), name
