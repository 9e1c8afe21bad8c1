"""Datasets: what they hold, how they combine, and what they refuse."""

from __future__ import annotations

import pytest

import flambeau as fb
from flambeau.utils.data import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)


class Stream(IterableDataset):
    def __init__(self, *values):
        self.values = values

    def __iter__(self):
        return iter(self.values)


class MeasuredStream(Stream):
    def __len__(self):
        return len(self.values)


class Batched(Dataset):
    """Notes which batches were asked for at once."""

    def __init__(self):
        self.asked = []

    def __getitem__(self, index):
        return index * 10

    def __getitems__(self, indices):
        self.asked.append(list(indices))
        return [index * 10 for index in indices]

    def __len__(self):
        return 5


def test_a_sample_of_tensors_is_a_tuple_of_rows():
    dataset = TensorDataset(fb.tensor([[1, 2], [3, 4]]), fb.tensor([5, 6]))

    row, label = dataset[1]

    assert len(dataset) == 2
    assert row.tolist() == [3, 4]
    assert label.item() == 6


def test_stacked_datasets_give_tuples_or_dicts():
    by_place, by_name = StackDataset([1, 2], ["a", "b"]), StackDataset(x=[1, 2], y=["a", "b"])

    assert by_place[1] == (2, "b")
    assert by_name[1] == {"x": 2, "y": "b"}
    assert by_place.__getitems__([1, 0]) == [(2, "b"), (1, "a")]
    assert by_name.__getitems__([0]) == [{"x": 1, "y": "a"}]
    assert len(by_place) == len(by_name) == 2


def test_stacks_and_subsets_read_batches_at_once_where_they_can():
    first, second = Batched(), Batched()

    assert StackDataset(first, second).__getitems__([3, 1]) == [(30, 30), (10, 10)]
    assert Subset(second, [4, 3, 2]).__getitems__([0, 2]) == [40, 20]
    assert first.asked == [[3, 1]]
    assert second.asked == [[3, 1], [4, 2]]


def test_concatenated_datasets_count_through():
    both = ConcatDataset([[1, 2], [], [3]])

    assert [both[i] for i in (0, 1, 2, -1, -3)] == [1, 2, 3, 3, 1]
    assert len(both) == 3
    assert both.cumulative_sizes == [2, 2, 3]
    with pytest.raises(IndexError, match=r"3.*length 3"):
        both[3]
    with pytest.raises(ValueError, match=r"-4.*length 3"):
        both[-4]


def test_adding_datasets_concatenates_and_adding_streams_chains():
    dataset = TensorDataset(fb.tensor([1, 2]))

    assert type(dataset + dataset) is ConcatDataset
    assert list(Stream(1, 2) + Stream(3)) == [1, 2, 3]
    assert len(ChainDataset([MeasuredStream(1, 2), MeasuredStream(3)])) == 3


def test_a_subset_follows_its_indices():
    subset = Subset(["a", "b", "c"], [2, 0])

    assert (subset[0], subset[1], len(subset)) == ("c", "a", 2)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: TensorDataset(fb.zeros(2), fb.zeros(3)), AssertionError, r"\[2, 3\]"),
        (lambda: StackDataset(), ValueError, "at least one"),
        (lambda: StackDataset([1], x=[1]), ValueError, "not both"),
        (lambda: StackDataset([1], [1, 2]), ValueError, r"\[1, 2\]"),
        (lambda: ConcatDataset([]), AssertionError, "at least one"),
        (lambda: ConcatDataset([Stream(1)]), AssertionError, "ChainDataset"),
        (lambda: list(ChainDataset([[1]])), AssertionError, "list"),
        (lambda: Dataset()[0], NotImplementedError, "__getitem__"),
        (lambda: IterableDataset(), TypeError, "abstract"),
        (lambda: len(ChainDataset([Stream(1)])), TypeError, "len"),
        (lambda: random_split(range(10), [3, 3]), ValueError, "sum to 6.*10 samples"),
        (lambda: random_split(range(10), [1.5, -0.5]), ValueError, r"1\.5 at position 0"),
    ],
)
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.oracle
@pytest.mark.parametrize(("size", "lengths"), [(10, [3, 7]), (31, [0.3, 0.3, 0.4]), (2, [1.0]), (1, [1])])
def test_splits_are_the_ones_pytorch_draws(oracle, size, lengths):
    ours = random_split(range(size), lengths, generator=fb.Generator().manual_seed(7))
    theirs = oracle.utils.data.random_split(range(size), lengths, generator=oracle.Generator().manual_seed(7))

    assert [subset.indices for subset in ours] == [subset.indices for subset in theirs]


@pytest.mark.oracle
def test_a_split_leaves_the_default_generator_where_pytorch_does(oracle):
    fb.manual_seed(3)
    oracle.manual_seed(3)

    ours, theirs = random_split(range(9), [4, 5]), oracle.utils.data.random_split(range(9), [4, 5])

    assert [subset.indices for subset in ours] == [subset.indices for subset in theirs]
    assert fb.rand(3).tolist() == oracle.rand(3).tolist()


def test_an_empty_part_of_a_split_is_pointed_out():
    with pytest.warns(UserWarning, match="subset 1 is empty"):
        parts = random_split(range(2), [0.9, 0.1])

    assert [len(part) for part in parts] == [2, 0]


def test_a_dataset_may_return_whole_columns_for_a_batch():
    class Columns(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return index

        def __getitems__(self, indices):
            return fb.tensor(indices), fb.tensor(indices) * 2

    batches = list(fb.utils.data.DataLoader(Columns(), batch_size=2, collate_fn=lambda columns: columns))

    assert [[column.tolist() for column in batch] for batch in batches] == [[[0, 1], [0, 2]], [[2, 3], [4, 6]]]
