"""Lists of tensors: operations that their list form has beyond those of the registry's tests."""

from __future__ import annotations

import pytest

import flambeau as fb
from comparing import disagreements


def lists():
    return [fb.tensor([1.25, -2.5]), fb.tensor([3.75])]


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("_foreach_maximum", (1.5,), [[1.5, 1.5], [3.75]]),
        ("_foreach_minimum", ([1.0, 0.0],), [[1.0, -2.5], [0.0]]),
        ("_foreach_div", ([2.0, 0.5],), [[0.625, -1.25], [7.5]]),
        ("_foreach_div", (2.0,), [[0.625, -1.25], [1.875]]),
        ("_foreach_round", (), [[1, -2], [4]]),
        ("_foreach_sign", (), [[1, -1], [1]]),
        ("_foreach_clone", (), [[1.25, -2.5], [3.75]]),
        ("_foreach_powsum", (), [7.8125, 14.0625]),
    ],
)
def test_each_tensor_is_answered_by_itself(name, arguments, expected):
    assert [t.tolist() for t in getattr(fb, name)(lists(), *arguments)] == expected


@pytest.mark.parametrize("name", ["_foreach_maximum_", "_foreach_minimum_", "_foreach_div_"])
def test_lists_are_written_in_place(name):
    tensors = lists()
    expected = [t.tolist() for t in getattr(fb, name[:-1])(lists(), 2.0)]

    getattr(fb, name)(tensors, 2.0)

    assert [t.tolist() for t in tensors] == expected


def test_products_of_lists():
    made = fb._foreach_mm([fb.eye(2) * 3], [fb.ones(2, 2)])

    assert [t.tolist() for t in made] == [[[3, 3], [3, 3]]]
    assert not hasattr(fb, "_foreach_mm_")


@pytest.mark.parametrize(
    "factors", [{"value": 0.5}, {"scalars": [0.5, 2.0]}, {"scalars": fb.tensor([0.5, 2.0])}], ids=["one", "list", "vector"]
)
@pytest.mark.parametrize("by_place", [True, False])
def test_the_factor_of_lists_goes_by_place_or_name_and_may_be_one_for_each_tensor(factors, by_place):
    given = next(iter(factors.values()))
    ones = [fb.ones(2), fb.ones(1)]
    args, named = ((given,), {}) if by_place else ((), factors)

    made = fb._foreach_addcmul(ones, ones, lists(), *args, **named)
    fb._foreach_addcdiv_(ones, ones, [fb.full((2,), 4.0), fb.full((1,), 4.0)], *args, **named)

    second = given if isinstance(given, float) else 2.0
    assert [t.tolist() for t in made] == [[1.625, -0.25], [1 + 3.75 * second]]
    assert [t.tolist() for t in ones] == [[1.125, 1.125], [1 + second / 4]]


def test_norms_of_lists_are_of_the_order_and_dtype_asked_for():
    lists = [fb.tensor([3.0, -4.0]), fb.tensor([[1.0, 2.0], [2.0, 0.0]])]

    assert [x.item() for x in fb._foreach_norm(lists)] == [5.0, 3.0]
    assert [x.item() for x in fb._foreach_norm(lists, 1)] == [7.0, 5.0]
    assert [x.item() for x in fb._foreach_norm(lists, ord=float("inf"))] == [4.0, 2.0]
    assert {x.dtype for x in fb._foreach_norm(lists, dtype=fb.float64)} == {fb.float64}
    with pytest.raises(TypeError):
        fb._foreach_norm(lists, p=1)


def test_there_are_list_forms_of_what_pytorch_has_them_of(oracle):
    assert not disagreements(oracle, "sorted(name for name in dir(torch) if name.startswith('_foreach_'))")
