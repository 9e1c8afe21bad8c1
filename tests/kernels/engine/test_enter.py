"""Formulas called with objects: what `Formula.enter` answers, what it refuses, and that no reference is lost."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

import flambeau as fb
import flambeau_kernels as kernels
from flambeau.tensor import wrap
from flambeau_kernels import takeover
from flambeau_kernels.cpu.tier import compiles
from flambeau_kernels.engine.builtins import pyabi
from flambeau_kernels.formula import Formula

pytestmark = pytest.mark.skipif(not compiles() or pyabi.problem() is not None, reason="there are no builtins here")


def array(*shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def specialised(fn, *inputs):
    """A formula that knows operands like `inputs`, arrays of one dtype and numbers."""
    formula = Formula(fn)
    first = next(a for a in inputs if isinstance(a, np.ndarray))
    out = np.empty(np.broadcast_shapes(*(np.shape(a) for a in inputs)), first.dtype)
    kernels.launch(formula, inputs, (out,), first.dtype)
    kernels.specialise(formula, inputs, out, first.dtype)
    return formula


def difference():
    return specialised(lambda a, b: a - b, array(3, 4), array(3, 4))


@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 3, 4), (3, 4)), ((300, 400), (300, 400))], ids=str)
def test_the_new_tensor_has_a_record_of_its_own_and_the_bits_of_the_builtin_of_arrays(shapes):
    formula = specialised(lambda a, b: a - b, array(3, 4), array(4))
    a, b = (array(*shape, seed=i) for i, shape in enumerate(shapes))
    made = formula.enter(wrap(a), wrap(b))

    assert type(made) is fb.Tensor
    assert made._array.tobytes() == formula.direct(a, b).tobytes()
    assert (made._storage, made._node, made._view_of, made._gradient) == ([0, 0, None, None], None, None, None)


def test_a_node_of_any_operand_is_marked_for_the_caller():
    formula = difference()
    plain, leaf, parameter = wrap(array(3, 4)), wrap(array(3, 4)).requires_grad_(), fb.nn.Parameter(wrap(array(3, 4)))

    assert [formula.enter(*pair)._node for pair in ((plain, plain), (leaf, plain), (plain, parameter))] == [None, True, True]


class Sub(fb.Tensor):
    pass


def test_operands_of_a_subclass_are_left_to_their_class():
    formula, t = difference(), wrap(array(3, 4))

    assert formula.enter(t.as_subclass(Sub), t) is None
    assert formula.enter(t, t.as_subclass(Sub)) is None
    assert type(t.as_subclass(Sub) - t) is Sub


def test_what_it_was_not_taught_or_what_is_no_tensor_is_refused():
    formula = difference()
    t, a = wrap(array(3, 4)), array(3, 4)
    refused = [(), (t,), (t, t, t), (t,) * 9, (t, a), (a, t), (t, "2"), (t, None), (t, 2.0), (t, wrap(array(3, 4, dtype="float64"))),
               (t, wrap(array(3, 5))), (t, fb.empty(3, 4, device="meta"))]  # fmt: skip

    assert [args for args in refused if formula.enter(*args) is not None] == []
    assert formula.enter(t, t) is not None


def test_in_place_the_first_tensor_is_written_where_nothing_is_to_be_recorded():
    formula = difference()
    t, u, whole = wrap(array(3, 4)), wrap(array(3, 4, seed=1)), wrap(array(2, 3, 4))
    expected, of_view = t._array - u._array, whole._array[1] - u._array
    leaf = wrap(array(3, 4)).requires_grad_()
    with fb.no_grad():
        view_of_leaf = leaf[:]
    history = [(leaf, t), (t, leaf), (t, fb.nn.Parameter(t)), ((leaf * 2)[:], t), (view_of_leaf, t)]
    never = [(), (t,), (t, t, t), (t._array, t), (t, t._array), (2.0, t), (t, "2"), (t, None), (t.as_subclass(Sub), t),
             (t, t.as_subclass(Sub)), (t, wrap(array(3, 5))), (t, wrap(array(3, 4, dtype="float64"))),
             (fb.empty(3, 4, device="meta"), t)]  # fmt: skip
    before = t._array.copy()

    assert [args for args in (*history, *never) if formula.enter_(*args) is not None] == []
    assert [args for args in never if formula.enter_unrecorded_(*args) is not None or formula.enter_untracked_(*args) is not None] == []
    assert (t._array == before).all()
    assert formula.enter_(t, u) is not None
    assert formula.enter_(whole[1], u) is not None
    assert t._array.tobytes() == expected.tobytes()
    assert whole._array[1].tobytes() == of_view.tobytes()
    assert all(formula.enter_unrecorded_(*args) is not None for args in history)


def test_inference_tensors_are_written_in_inference_mode_alone():
    formula, t = difference(), wrap(array(3, 4))
    with fb.inference_mode():
        marked = fb.zeros(3, 4)
        assert formula.enter_(marked, t) is formula.enter_unrecorded_(marked, t) is None
        for _ in range(300):
            marked.sub_(t)
        assert marked.is_inference()
    assert formula.enter_untracked_(marked, t) is not None
    for turned_off in (fb.enable_grad(), fb.no_grad()):
        with turned_off, pytest.raises(RuntimeError, match="outside InferenceMode"):
            marked.sub_(t)
    np.testing.assert_allclose(marked._array, -301 * t._array, rtol=1e-5)


def test_in_inference_mode_tensors_are_made_by_the_framework_which_marks_them():
    formula, t = difference(), wrap(array(3, 4))
    with fb.inference_mode():
        assert formula.enter(t, t) is None
        assert (t - t).is_inference()

    assert formula.enter(t, t) is not None


def test_a_result_of_recorded_operands_is_not_left_with_the_mark():
    x = fb.ones(3, 4, requires_grad=True)
    for _ in range(round(takeover.LIBRARY / takeover.CALL) + 2):
        recorded = x - x
    with fb.no_grad():
        assert (x - x)._node is None
    assert (x > x)._node is None
    assert recorded.grad_fn is not None


def test_no_reference_is_lost_or_leaked():
    formula = difference()
    a, b = wrap(array(3, 4)), fb.nn.Parameter(wrap(array(3, 4)))
    objects = [a, b, a._array, b._array, a._array.dtype, fb.Tensor, True, 0]
    before = [sys.getrefcount(item) for item in objects]
    for _ in range(20_000):
        formula.enter(a, b)
        formula.enter(a, "no operand")
        formula.enter(b, a._array)
        formula.enter(b, 3)
        formula.enter_(a, a)
        formula.enter_(a, b)
        formula.enter_(a, "no operand")
        formula.enter_unrecorded_(a, b)
        formula.enter_unrecorded_(b, 3)
    after = [sys.getrefcount(item) for item in objects]

    assert all(abs(m - n) < 50 for m, n in zip(after, before, strict=True)), (before, after)


def test_results_are_freed():
    import tracemalloc

    formula, t = difference(), wrap(array(64, 64))
    tracemalloc.start()
    for _ in range(3000):
        formula.enter(t, t)
    current, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert current < 1_000_000                           # 49 MB were allocated


def test_an_operand_that_gets_another_array_meanwhile_keeps_the_one_it_had_until_the_end():
    formula = specialised(lambda a, b: a - b, array(1000, 1000), array(1000, 1000))
    big, ones = wrap(array(1000, 1000)), wrap(np.ones((1000, 1000), np.float32))
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            ones._array = np.ones((1000, 1000), np.float32)

    other = threading.Thread(target=swap)
    other.start()
    try:
        for _ in range(100):
            np.testing.assert_array_equal(formula.enter(big, ones)._array, big._array - 1)
    finally:
        stop.set()
        other.join()
