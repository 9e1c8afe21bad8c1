"""Results written to an ``out`` that shares memory with an operand, or with itself."""

from __future__ import annotations

import pytest

import flambeau as fb

SHARED = "single memory location"


@pytest.fixture
def memory():
    return fb.arange(40.0)


def test_elementwise_out_may_be_an_operand_but_not_overlap_one(memory):
    assert fb.exp(memory[:4], out=memory[:4]) is not None

    with pytest.raises(RuntimeError, match=f"(?s){SHARED}.*exp.*'input'"):
        fb.exp(memory[:10], out=memory[5:15])
    with pytest.raises(RuntimeError, match=f"(?s){SHARED}.*add.*'other'"):
        fb.add(memory[:10], memory[20:30], out=memory[25:35])
    with pytest.raises(RuntimeError, match=SHARED):
        fb.neg(memory[:16].view(4, 4), out=memory[:16].view(4, 4).t())
    with pytest.raises(RuntimeError, match=SHARED):
        fb.add(memory[:16].view(4, 4), memory[:4], out=memory[:16].view(4, 4))


def test_interleaved_memory_is_apart(memory):
    assert fb.neg(memory[:10:2], out=memory[1:10:2]).tolist() == [0.0, -2.0, -4.0, -6.0, -8.0]


def test_the_memory_compared_is_that_of_the_resized_out():
    index, rows = fb.tensor([0, 1, 1]), fb.ones(4, 6)

    with pytest.raises(RuntimeError, match=f"(?s){SHARED}.*gather.*'index'"):
        fb.gather(index.clone(), 0, index[1:], out=index[:1])
    with pytest.raises(RuntimeError, match=f"(?s){SHARED}.*cat"):
        fb.cat([fb.ones(4, 6), rows], out=rows[:2])  # which has to grow beyond the storage
    empty = fb.empty(0)
    with pytest.raises(RuntimeError, match=f"(?s){SHARED}.*cat"):
        fb.cat([empty, rows], out=empty)


@pytest.mark.parametrize("name", ["take", "index_select", "gather", "masked_select"])
def test_selections_refuse_an_out_they_read_from(name, memory):
    values, index = memory[:4], fb.tensor([3, 2, 1, 0])
    args = {"take": (index,), "index_select": (0, index), "gather": (0, index), "masked_select": (values > -1,)}[name]

    with pytest.raises(RuntimeError, match=SHARED):
        getattr(fb, name)(values, *args, out=values)


def test_joining_refuses_an_out_that_holds_a_part(memory):
    with pytest.raises(RuntimeError, match=SHARED):
        fb.cat([memory[:5], memory[5:10]], out=memory[:10])
    with pytest.raises(RuntimeError, match=SHARED):
        fb.stack([memory[:5], memory[20:25]], out=memory[3:13].view(2, 5))


def test_sorting_and_scans_take_out_exactly_or_apart(memory):
    assert fb.cumsum(memory[:4], 0, out=memory[:4]).tolist() == [0.0, 1.0, 3.0, 6.0]

    with pytest.raises(RuntimeError, match=SHARED):
        fb.cumsum(memory[:4], 0, out=memory[1:5])
    with pytest.raises(RuntimeError, match=SHARED):
        fb.sort(memory[:4], out=(memory[1:5], fb.empty(4, dtype=fb.int64)))


def test_products_and_sums_may_overwrite_their_operands(memory):
    square = memory[:4].view(2, 2)

    assert fb.mm(square, square, out=square).tolist() == [[2.0, 3.0], [6.0, 11.0]]
    assert fb.sum(square, 0, out=square[0]).tolist() == [8.0, 14.0]


@pytest.mark.parametrize("name", ["exp", "cumsum", "softmax", "sort"])
def test_out_must_not_overlap_itself(name):
    out = fb.zeros(1).expand(4)

    with pytest.raises(RuntimeError, match=SHARED):
        getattr(fb, name)(
            fb.ones(4), *([0] if name in ("cumsum", "softmax") else []), out=(out, fb.empty(4, dtype=fb.int64)) if name == "sort" else out
        )


@pytest.mark.parametrize("name", ["abs", "sign", "round", "trunc", "neg", "clamp", "nan_to_num", "signbit"])
def test_an_out_of_another_dtype_is_refused_where_there_is_nothing_to_promote(name):
    args = (fb.ones(3), 0, 1) if name == "clamp" else (fb.ones(3),)

    with pytest.raises(RuntimeError, match=f"{name}.*Expected out tensor to have dtype"):
        getattr(fb, name)(*args, out=fb.empty(3, dtype=fb.float64))
    assert fb.abs(fb.ones(3, dtype=fb.complex64), out=fb.empty(3)).tolist() == [1, 1, 1]
