"""Nested tensors in ``.pt`` files, PyTorch's and ours read by both, and files whose parts do not belong together."""

from __future__ import annotations

import io
import pickle
import warnings

import pytest

import flambeau as fb
from flambeau._files.torch_globals import _rebuild_nested_tensor, _rebuild_njt

STRIDED = {
    "parts of two sizes": lambda t: t.nested.nested_tensor([t.arange(6.0).view(2, 3), t.ones(1, 4)]),
    "transposed": lambda t: t.nested.nested_tensor([t.arange(6.0).view(2, 3), t.ones(2, 2)]).transpose(1, 2),
    "numbers": lambda t: t.nested.nested_tensor([t.tensor(1.0), t.tensor(2.0)]),
    "an empty part": lambda t: t.nested.nested_tensor([t.ones(0, 3, dtype=t.float64), t.ones(2, 3, dtype=t.float64)]),
    "no parts": lambda t: t.nested.nested_tensor([]),
}
JAGGED = {
    "one after the other": lambda t: t.nested.nested_tensor([t.arange(6.0).view(2, 3), t.ones(1, 3)], layout=t.jagged),
    "holes": lambda t: t.nested.narrow(t.arange(12.0).view(2, 6), 1, t.tensor([0, 1]), t.tensor([2, 3]), layout=t.jagged),
    "transposed": lambda t: t.nested.nested_tensor([t.arange(6.0).view(2, 3), t.ones(1, 3)], layout=t.jagged).transpose(1, 2),
    "integers": lambda t: t.nested.nested_tensor([t.arange(3), t.arange(1)], layout=t.jagged),
}
BOTH = [(f"{layout}, {name}", make) for layout, all_of in (("strided", STRIDED), ("jagged", JAGGED)) for name, make in all_of.items()]


def saved(lib, obj):
    out = io.BytesIO()
    lib.save(obj, out)
    return out.getvalue()


def shown(nested):
    return str(nested.layout), str(nested.dtype), nested.requires_grad, [part.tolist() for part in nested.unbind()]


@pytest.mark.oracle
@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("make", [make for _, make in BOTH], ids=[name for name, _ in BOTH])
def test_files_of_pytorch_are_read(oracle, make, weights_only):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = make(oracle)
        data = saved(oracle, {"x": theirs})

    ours = fb.load(io.BytesIO(data), weights_only=weights_only)["x"]

    assert shown(ours) == shown(theirs)


@pytest.mark.oracle
@pytest.mark.parametrize("make", [make for _, make in BOTH], ids=[name for name, _ in BOTH])
def test_pytorch_reads_files_of_ours(oracle, make):
    ours = make(fb)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = oracle.load(io.BytesIO(saved(fb, {"x": ours})), weights_only=False)["x"]

    assert shown(theirs) == shown(ours)
    if ours.layout is fb.jagged:
        assert shown(theirs * 2) == shown(ours * 2)


@pytest.mark.parametrize("make", [make for _, make in BOTH], ids=[name for name, _ in BOTH])
def test_what_is_saved_is_loaded_again(make):
    ours = make(fb)

    again = fb.load(io.BytesIO(saved(fb, ours)))

    assert type(again) is type(ours)
    assert shown(again) == shown(ours)


@pytest.mark.parametrize("layout", [fb.strided, fb.jagged])
def test_a_nested_tensor_that_requires_grad_is_a_leaf_again(layout):
    ours = fb.nested.nested_tensor([fb.ones(2, 3), fb.ones(1, 3)], layout=layout, requires_grad=True)
    ours.purpose = "test"

    again = fb.load(io.BytesIO(saved(fb, ours)))
    (again * 3).values().sum().backward()

    assert again.is_leaf
    assert again.grad is not None
    assert again.grad.values().eq(3).all()
    assert layout is fb.strided or again.purpose == "test"


def test_tensors_that_share_memory_with_a_nested_one_share_it_again():
    values, offsets = fb.arange(6.0).view(3, 2), fb.tensor([0, 1, 3])
    nested = fb.nested.nested_tensor_from_jagged(values, offsets)

    again = fb.load(io.BytesIO(saved(fb, {"values": values, "nested": nested})))
    again["values"][0, 0] = 7.0

    assert again["nested"].unbind()[0].tolist() == [[7.0, 1.0]]


def ints(values):
    return fb.tensor(values, dtype=fb.int64)


MALFORMED = {
    "not a vector": (fb.ones(2, 2), ints([[2]]), ints([[1]]), ints([0])),
    "beyond the end": (fb.ones(4), ints([[3]]), ints([[1]]), ints([2])),
    "a negative start": (fb.ones(4), ints([[3]]), ints([[1]]), ints([-1])),
    "a negative size": (fb.ones(4), ints([[-3]]), ints([[1]]), ints([0])),
    "more than there is": (fb.ones(4), ints([[1 << 40]]), ints([[0]]), ints([0])),
    "too few strides": (fb.ones(4), ints([[2], [2]]), ints([[1]]), ints([0, 2])),
    "dimensions that differ": (fb.ones(4), ints([[2, 2]]), ints([[1]]), ints([0])),
    "sizes that are no integers": (fb.ones(4), fb.ones(1, 1), ints([[1]]), ints([0])),
    "no tensor": (fb.ones(4), [[2]], ints([[1]]), ints([0])),
    "sizes that repeat themselves": (fb.ones(4), ints([[1]]).expand(1 << 20, 1), ints([[1]]), ints([0])),
}


@pytest.mark.parametrize("parts", MALFORMED.values(), ids=MALFORMED)
def test_malformed_parts_of_strided_ones_are_refused(parts):
    with pytest.raises(pickle.UnpicklingError, match="nested tensor"):
        _rebuild_nested_tensor(*parts)


@pytest.mark.parametrize(
    "changes",
    [{"offsets": None}, {"values": 3}, {"_ragged_idx": 0}, {"_ragged_idx": 3}, {"offsets": ints([0, 9])}, {"offsets": ints([2, 0])},
     {"lengths": ints([1, 1])}, {"lengths": ints([7])}, {"offsets": fb.tensor([0.0, 1.0])}, {"offsets": ints([])}],
    ids=str,
)  # fmt: skip
def test_malformed_parts_of_jagged_ones_are_refused(changes):
    parts = {"values": fb.ones(4, 2), "offsets": ints([0, 4]), "lengths": None, "_ragged_idx": 1}
    assert _rebuild_njt(parts).numel() == 8

    with pytest.raises(pickle.UnpicklingError, match="nested tensor"):
        _rebuild_njt(parts | changes)
