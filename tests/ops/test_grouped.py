"""Products of groups with a matrix each."""

from __future__ import annotations

import pytest

import flambeau as fb
from flambeau.testing import assert_close

F = fb.nn.functional


def _ends(*ends):
    return fb.tensor(ends, dtype=fb.int32)


def test_groups_of_rows_are_multiplied_by_their_own_matrices_and_the_rest_is_zero():
    x, weight = fb.randn(9, 4), fb.randn(3, 4, 5)

    made = F.grouped_mm(x, weight, offs=_ends(2, 2, 7))

    assert_close(made, fb.cat([x[:2] @ weight[0], x[2:7] @ weight[2], fb.zeros(2, 5)]))


def test_groups_of_columns_and_of_what_is_added():
    x, y = fb.randn(2, 3, 4), fb.randn(4, 6)
    flat, other = fb.randn(3, 6), fb.randn(6, 5)

    assert_close(F.grouped_mm(x, y, offs=_ends(1, 6)), fb.cat([x[0] @ y[:, :1], x[1] @ y[:, 1:]], 1))
    assert_close(F.grouped_mm(flat, other, offs=_ends(4, 6)), fb.stack([flat[:, :4] @ other[:4], flat[:, 4:] @ other[4:]]))


@pytest.mark.parametrize(
    ("a", "b", "ends"),
    [((5, 2), (3, 2, 4), (2, 2, 4)), ((2, 5), (5, 3), (1, 4)), ((2, 3, 2), (2, 4), (1, 3)), ((2, 3, 2), (2, 2, 4), None)],
)
def test_gradients_of_grouped_products_are_differences(a, b, ends):
    a, b = (fb.randn(*shape, dtype=fb.float64, requires_grad=True) for shape in (a, b))
    offs = None if ends is None else _ends(*ends)

    def product(a, b):
        return F.grouped_mm(a, b, offs=offs)

    assert fb.autograd.gradcheck(product, (a, b))
    assert fb.autograd.gradgradcheck(product, (a, b))


@pytest.mark.parametrize(
    ("a", "b", "options", "says"),
    [
        ((5, 2), (3, 2, 4), {}, "offsets if there is a 2d"),
        ((3, 5, 2), (3, 2, 4), {"offs": (1, 2, 3)}, "no offset if both"),
        ((5, 2), (3, 2, 4), {"offs": (1, 5)}, "offs has 2 groups"),
        ((5, 2), (3, 2, 4), {"offs": (1, 4, 2)}, r"rise.*\[1, 4, 2\]"),
        ((5, 2), (3, 2, 4), {"offs": (1, 4, 6)}, "at most 5"),
        ((5, 3), (3, 2, 4), {"offs": (1, 4, 5)}, "contraction dimension"),
        ((5,), (3, 2, 4), {"offs": (1, 4, 5)}, "mat_a has to be 2 or 3d"),
        ((5, 2), (3, 2, 4), {"offs": (1, 4, 5), "out_dtype": fb.float64}, "output dtype must match"),
    ],
)
def test_what_is_no_grouped_product_is_told(a, b, options, says):
    options = {name: _ends(*value) if name == "offs" else value for name, value in options.items()}
    with pytest.raises(RuntimeError, match=says):
        F.grouped_mm(fb.ones(*a), fb.ones(*b), **options)


def test_ends_of_groups_are_int32():
    with pytest.raises(RuntimeError, match=r"int32.*int64"):
        F.grouped_mm(fb.ones(5, 2), fb.ones(2, 2, 4), offs=fb.tensor([2, 5]))


def test_half_products_of_groups_are_rounded_once():
    x, weight = fb.randn(9, 64).bfloat16(), fb.randn(2, 64, 5).bfloat16()

    assert_close(F.grouped_mm(x, weight, offs=_ends(4, 9)), fb.cat([x[:4] @ weight[0], x[4:] @ weight[1]]))


def test_gradients_of_transposed_matrices_lie_as_these_do():
    weight = fb.randn(3, 5, 4, requires_grad=True)
    transposed = weight.mT
    transposed.retain_grad()

    F.grouped_mm(fb.randn(6, 4), transposed, offs=_ends(1, 4, 6)).sum().backward()

    assert transposed.grad.stride() == transposed.stride()


def test_examples_have_products_of_groups():
    x, weight = fb.randn(2, 6, 4), fb.randn(3, 4, 5)

    made = fb.func.vmap(lambda x: F.grouped_mm(x, weight, offs=_ends(1, 4, 6)))(x)

    assert_close(made, fb.stack([F.grouped_mm(x, weight, offs=_ends(1, 4, 6)) for x in x]))


def test_shapes_of_grouped_products_are_known_without_values():
    x, weight, ends = fb.empty(9, 4, device="meta"), fb.empty(3, 4, 5, device="meta"), fb.empty(3, dtype=fb.int32, device="meta")

    assert F.grouped_mm(x, weight, offs=ends).shape == (9, 5)
    assert F.grouped_mm(x.mT, x, offs=ends).shape == (3, 4, 4)


def test_autocast_leaves_grouped_products_as_they_are():
    with fb.autocast("cpu", dtype=fb.bfloat16):
        assert F.grouped_mm(fb.randn(6, 4), fb.randn(2, 4, 5), offs=_ends(1, 6)).dtype is fb.float32
