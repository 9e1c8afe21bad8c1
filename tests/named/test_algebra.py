"""Which names go together, against a model that goes through dimensions one by one; and what may be a name."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flambeau as fb
from flambeau import _names

pytestmark = pytest.mark.filterwarnings("ignore:Named tensors and all their associated APIs")

NAMES = st.lists(st.sampled_from(["A", "B", "C", None]), max_size=4).map(tuple).filter(
    lambda names: all(names.count(name) < 2 for name in names if name is not None)
)


def unified(a, b):
    """The model: names from the right, or None where they do not go together."""
    length = max(len(a), len(b))
    a, b = (None,) * (length - len(a)) + a, (None,) * (length - len(b)) + b
    # A name that is in both stands at one place, and no place has two of them.
    for x, y in itertools.product(range(length), repeat=2):
        if a[x] is not None and a[x] == b[y] and x != y or x == y and None not in (a[x], b[y]) and a[x] != b[y]:
            return None
    return tuple(x or y for x, y in zip(a, b, strict=True))


@given(NAMES, NAMES)
def test_names_unify_as_those_of_a_sum(a, b):
    expected = unified(a, b)
    x, y = fb.ones((2,) * len(a)).rename(*a) if a else fb.ones(()), fb.ones((2,) * len(b)).rename(*b) if b else fb.ones(())

    if expected is None:
        with pytest.raises(RuntimeError, match="when attempting to broadcast dims"):
            _names.unify(a, b)
        with pytest.raises(RuntimeError, match="when attempting to broadcast dims"):
            x + y
    else:
        assert _names.unify(a, b) == _names.unify(b, a) == expected
        assert (x + y).names == expected


@given(st.sampled_from(["A", "B", None]), st.sampled_from(["A", "B", None]))
def test_two_names_match_where_they_are_equal_or_one_is_none(a, b):
    assert _names.match(a, b) == (a == b or None in (a, b))


@given(st.permutations("ABCD"), st.lists(st.sampled_from("ABCDXY"), unique=True))
def test_tensors_are_aligned_to_an_order_of_all_their_names(own, wanted):
    own = own[:3]
    x = fb.arange(24).reshape(2, 3, 4).rename(*own)

    if set(own) <= set(wanted):
        made = x.align_to(*wanted)

        sizes = dict(zip(own, x.shape, strict=True))
        assert made.names == tuple(wanted)
        assert tuple(made.shape) == tuple(sizes.get(name, 1) for name in wanted)
        assert made.data_ptr() == x.data_ptr()
        # Back again: the order of the elements is told by the names alone.
        back = made.rename(None).sum([i for i, name in enumerate(wanted) if name not in own])
        order = [name for name in wanted if name in own]
        assert back.permute([order.index(name) for name in own]).tolist() == x.rename(None).tolist()
    else:
        with pytest.raises(RuntimeError, match="Cannot find dim"):
            x.align_to(*wanted)


@given(st.permutations("ABC"), st.integers(0, 3), st.integers(0, 3))
def test_an_ellipsis_stands_for_the_names_that_are_not_mentioned(mentioned, count, at):
    x = fb.zeros(2, 3, 4, names=("A", "B", "C"))
    front, back = mentioned[:count][:at], mentioned[:count][at:]

    made = x.align_to(*front, ..., *back)

    assert made.names == (*front, *[name for name in "ABC" if name not in mentioned[:count]], *back)


@given(NAMES, st.lists(st.sampled_from(["A", "B", "C", None, ...]), max_size=5))
def test_names_are_refined_where_there_were_none(own, names):
    x = fb.zeros((1,) * len(own)).rename(*own) if own else fb.zeros(())
    full = names
    if names.count(...) == 1:
        at = names.index(...)
        behind = len(names) - at - 1
        full = [*names[:at], *own[at : max(at, len(own) - behind)], *names[at + 1 :]]
    named = [name for name in full if name is not None]
    fits = names.count(...) < 2 and len(full) == len(own) and len(set(named)) == len(named)

    if fits and all(old in (None, new) for old, new in zip(own, full, strict=True)):
        assert x.refine_names(*names).names == tuple(full)
        assert x.names == own
    else:
        with pytest.raises(RuntimeError):
            x.refine_names(*names)


@pytest.mark.parametrize("name", ["1a", "a b", "_a", "", "a.b", "a-b", "é"])
def test_what_is_no_identifier_is_no_name(name):
    with pytest.raises(RuntimeError, match="Invalid name: a valid identifier"):
        fb.zeros(2, names=(name,))


@pytest.mark.parametrize("names", ["AB", 3, {"A", "B"}, (3, "B")])
def test_names_are_a_sequence_of_text(names):
    with pytest.raises(TypeError, match="name"):
        fb.zeros(2, 3, names=names)


def test_names_do_not_repeat_and_are_as_many_as_dimensions():
    with pytest.raises(RuntimeError, match=r"duplicate names. Got names: \['N', 'N'\]"):
        fb.zeros(2, 3, names=("N", "N"))
    with pytest.raises(RuntimeError, match=r"Number of names \(1\) and number of dimensions in tensor \(2\) do not match"):
        fb.zeros(2, 3, names=("N",))
    assert fb.zeros(2, 3, names=(None, None)).names == (None, None)
    assert type(fb.zeros(2, 3, names=(None, None))) is fb.Tensor
