"""Collation: for every kind of sample what PyTorch makes of it."""

from __future__ import annotations

import importlib
from collections import OrderedDict, defaultdict, namedtuple

import numpy as np
import pytest

import flambeau as fb
from flambeau.utils.data import default_collate, default_convert
from flambeau.utils.data._utils.collate import collate, default_collate_fn_map

Point = namedtuple("Point", "x y")

BATCHES = {
    "int": [1, 2],
    "float": [1.5, 2],
    "int first": [1, 2.5],
    "bool": [True, False],
    "str": ["a", "b"],
    "bytes": [b"a", b"b"],
    "numpy scalar": [np.float32(1), np.float32(2)],
    "numpy bool": [np.bool_(True)],
    "numpy array": [np.array([1, 2]), np.array([3, 4])],
    "numpy 0-d": [np.array(1.0), np.array(2.0)],
    "numpy text scalar": [np.str_("a")],
    "dict": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}],
    "ordered dict": [OrderedDict(a=1)],
    "default dict": [defaultdict(int, a=1)],
    "tuple": [(1, "a"), (3, "b")],
    "list": [[1, 2.0], [3, 4.0]],
    "range": [range(3), range(3)],
    "namedtuple": [Point(1, 2), Point(3, 4)],
    "nested": [{"a": [(1, np.array([2.0]))]}, {"a": [(3, np.array([4.0]))]}],
    "empty tuples": [(), ()],
}


def plain(value):
    """`value` with tensors of either framework as (dtype, nested lists), to be compared."""
    if hasattr(value, "tolist") and not isinstance(value, (np.ndarray, np.generic)):
        return (str(value.dtype).replace("flambeau", "torch"), value.tolist())
    if isinstance(value, dict):
        return type(value), {key: plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value), [plain(each) for each in value]
    return type(value), repr(value)


@pytest.mark.oracle
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_batches_are_collated_as_pytorch_does(oracle, batch):
    assert plain(default_collate(batch)) == plain(oracle.utils.data.default_collate(batch))


@pytest.mark.oracle
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_samples_are_converted_as_pytorch_does(oracle, batch):
    assert plain(default_convert(batch[0])) == plain(oracle.utils.data.default_convert(batch[0]))
    assert plain(default_convert(batch)) == plain(oracle.utils.data.default_convert(batch))


def test_tensors_are_stacked():
    batch = default_collate([fb.tensor([1.0, 2.0]), fb.tensor([3.0, 4.0])])

    assert batch.tolist() == [[1, 2], [3, 4]]


def test_conversion_shares_memory_and_leaves_what_has_no_tensor():
    numbers, texts = np.arange(3), np.array(["a"])

    converted = default_convert({"n": numbers, "t": texts, "s": {1}})
    numbers[0] = 7

    assert converted["n"].tolist() == [7, 1, 2]
    assert converted["t"] is texts
    assert converted["s"] == {1}


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        ([None], TypeError, "NoneType"),
        ([{1}], TypeError, "set"),
        ([1j], TypeError, "complex"),
        ([np.array(["a"])], TypeError, "<U1"),
        ([np.datetime64("2020")], TypeError, "datetime64"),
        ([(1, 2), (3,)], RuntimeError, r"\[1, 2\]"),
        ([fb.zeros(2), fb.zeros(3)], RuntimeError, "stack"),
        ([{"a": 1}, {"b": 2}], KeyError, "a"),
    ],
    ids=str,
)
def test_what_cannot_be_batched_is_named(batch, error, message):
    with pytest.raises(error, match=message):
        default_collate(batch)


def test_rules_can_be_given_and_added():
    def count(batch, *, collate_fn_map=None):
        return len(batch)

    assert collate([1, 2], collate_fn_map={int: count}) == 2
    assert collate([{"a": True}], collate_fn_map={int: count}) == {"a": 1}
    with pytest.raises(TypeError, match="int"):
        collate([1, 2])
    default_collate_fn_map[set] = count
    try:
        assert default_collate([{1}, {2}, {3}]) == 3
    finally:
        del default_collate_fn_map[set]


def _pairs(lib, kind):
    x, y = lib.arange(24.0).reshape(12, 2), lib.arange(12)
    if kind == "columns":
        x = lib.arange(24.0).reshape(2, 12).T
    if kind == "requires grad":
        x = x.requires_grad_()
    pairs = lib.utils.data.TensorDataset(x, y)
    if kind == "subset":
        pairs = lib.utils.data.Subset(lib.utils.data.Subset(pairs, range(11, -1, -1)), [0, 3, 5, 1, 1])
    if kind == "own samples":

        class Doubled(lib.utils.data.TensorDataset):
            def __getitem__(self, index):
                return tuple(2 * part for part in super().__getitem__(index))

        pairs = Doubled(x, y)
    if kind == "own subset":

        class Backwards(lib.utils.data.Subset):
            def __getitems__(self, indices):
                return [self.dataset[self.indices[-1 - i]] for i in indices]

        pairs = Backwards(pairs, [1, 4, 5])
    return pairs


@pytest.mark.oracle
@pytest.mark.parametrize("kind", ["rows", "columns", "requires grad", "subset", "own samples", "own subset"])
def test_batches_of_stacked_tensors_are_those_of_their_samples(oracle, kind):
    found = []
    for lib in (oracle, fb):
        for options in ({"batch_size": 5}, {"batch_sampler": [[0], [-1, 2, 2], [1]]}):
            batches = list(lib.utils.data.DataLoader(_pairs(lib, kind), **options))
            found.append([(type(b).__name__, b[0].tolist(), b[1].tolist(), b[0].stride(), b[0].requires_grad) for b in batches])

    assert found[2:] == found[:2]


@pytest.mark.oracle
def test_stacked_tensors_are_collated_by_the_rule_of_the_program(oracle):
    for lib in (oracle, fb):
        rules = importlib.import_module(f"{lib.__name__}.utils.data._utils.collate").default_collate_fn_map
        before = rules[lib.Tensor]
        rules[lib.Tensor] = lambda batch, *, collate_fn_map=None: "stacked"
        try:
            assert next(iter(lib.utils.data.DataLoader(_pairs(lib, "rows"), 3))) == ["stacked", "stacked"]
        finally:
            rules[lib.Tensor] = before
        with pytest.raises(IndexError):
            list(lib.utils.data.DataLoader(_pairs(lib, "rows"), batch_sampler=[[12]]))
