"""The loader in one process: settings, batches, orders and what the generator has drawn."""

from __future__ import annotations

import pickle

import pytest

import flambeau as fb
from flambeau.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, TensorDataset

DATASET = TensorDataset(fb.arange(10))


class Stream(IterableDataset):
    def __init__(self, count, promised=None):
        self.count = count
        self.promised = promised

    def __iter__(self):
        return iter(range(self.count))

    def __len__(self):
        if self.promised is None:
            raise TypeError("no length")
        return self.promised


class Squares:
    """A map-style dataset that is no `Dataset`."""

    def __getitem__(self, key):
        return key**2

    def __len__(self):
        return 5


def lists(loader):
    return [batch.tolist() if isinstance(batch, fb.Tensor) else batch for batch in loader]


def test_batches_in_order():
    assert lists(DataLoader(Squares(), 2)) == [[0, 1], [4, 9], [16]]
    assert lists(DataLoader(Squares(), 2, drop_last=True)) == [[0, 1], [4, 9]]
    assert lists(DataLoader(Squares(), None)) == [0, 1, 4, 9, 16]
    assert lists(DataLoader(Squares(), 2, collate_fn=sum)) == [1, 13, 16]
    assert lists(DataLoader(Squares(), sampler=[4, 2])) == [[16], [4]]
    assert lists(DataLoader(Squares(), batch_sampler=[[4, 2], [0]])) == [[16, 4], [0]]


def test_streams():
    assert lists(DataLoader(Stream(5), 2)) == [[0, 1], [2, 3], [4]]
    assert lists(DataLoader(Stream(5), 2, drop_last=True)) == [[0, 1], [2, 3]]
    assert lists(DataLoader(Stream(4), 2)) == [[0, 1], [2, 3]]
    assert lists(DataLoader(Stream(3), None)) == [0, 1, 2]
    assert lists(DataLoader(Stream(0), 2)) == []


def test_lengths():
    assert len(DataLoader(DATASET, 3)) == 4
    assert len(DataLoader(DATASET, 3, drop_last=True)) == 3
    assert len(DataLoader(DATASET, None)) == 10
    assert len(iter(DataLoader(DATASET, 3))) == 4
    assert len(DataLoader(Stream(9, 5), 2)) == 3
    assert len(DataLoader(Stream(9, 5), 2, drop_last=True)) == 2
    with pytest.raises(TypeError):
        len(DataLoader(Stream(9)))


def test_a_stream_longer_than_it_said_is_pointed_out_once_its_length_was_asked():
    loader = DataLoader(Stream(5, 2), 2)
    assert len(lists(loader)) == 3
    assert len(loader) == 1

    with pytest.warns(UserWarning, match="is 2, which is 1 batches, but this is batch"):
        assert len(lists(loader)) == 3


@pytest.mark.oracle
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("own_generator", [False, True], ids=["default", "generator"])
def test_orders_and_generators_agree_with_pytorch(oracle, shuffle, own_generator):
    outcomes = []
    for framework in (fb, oracle):
        framework.manual_seed(5)
        generator = framework.Generator().manual_seed(6) if own_generator else None
        dataset = framework.utils.data.TensorDataset(framework.arange(10))
        loader = framework.utils.data.DataLoader(dataset, 4, shuffle, generator=generator)
        orders = [[batch[0].tolist() for batch in loader] for _ in range(2)]
        after = framework.rand(2).tolist(), framework.rand(2, generator=generator).tolist()
        outcomes.append((orders, after))

    assert outcomes[0] == outcomes[1]


@pytest.mark.oracle
def test_making_an_iterator_draws_one_seed_as_in_pytorch(oracle):
    outcomes = []
    for framework in (fb, oracle):
        framework.manual_seed(5)
        iterator = iter(framework.utils.data.DataLoader([1, 2, 3], shuffle=True))
        before = framework.rand(1).item()
        next(iterator)
        outcomes.append((before, framework.rand(1).item()))

    assert outcomes[0] == outcomes[1]


def test_attributes_are_pytorchs():
    plain, by_batch = DataLoader(DATASET, 3), DataLoader(DATASET, batch_sampler=[[1]])
    stream = DataLoader(Stream(3))

    assert (plain.batch_size, plain.drop_last) == (3, False)
    assert (plain.num_workers, plain.prefetch_factor) == (0, None)
    assert type(plain.sampler) is SequentialSampler
    assert type(plain.batch_sampler) is BatchSampler
    assert (by_batch.batch_size, by_batch.batch_sampler) == (None, [[1]])
    assert next(iter(stream.sampler)) is None
    assert DataLoader(DATASET, num_workers=1).prefetch_factor == 2


@pytest.mark.parametrize(
    "name", ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"]
)
def test_what_shapes_the_batches_is_fixed(name):
    with pytest.raises(ValueError, match=f"{name} is fixed"):
        setattr(DataLoader(DATASET), name, None)


def test_the_number_of_workers_and_their_context_may_change():
    loader = DataLoader(DATASET)
    loader.num_workers = 1
    loader.multiprocessing_context = "spawn"

    assert loader.multiprocessing_context.get_start_method() == "spawn"


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"num_workers": -1}, ValueError, "got -1"),
        ({"timeout": -1}, ValueError, "got -1"),
        ({"prefetch_factor": 3}, ValueError, "num_workers > 0"),
        ({"prefetch_factor": -1, "num_workers": 1}, ValueError, "got -1"),
        ({"persistent_workers": True}, ValueError, "num_workers > 0"),
        ({"sampler": [1], "shuffle": True}, ValueError, "exclude each other"),
        ({"batch_sampler": [[1]], "batch_size": 2}, ValueError, "batch_sampler excludes"),
        ({"batch_sampler": [[1]], "drop_last": True}, ValueError, "batch_sampler excludes"),
        ({"batch_size": None, "drop_last": True}, ValueError, "drop_last must be False"),
        ({"batch_size": 0}, ValueError, "batch_size=0"),
        ({"batch_size": 1.5}, ValueError, r"batch_size=1\.5"),
        ({"num_workers": 1, "multiprocessing_context": "thread"}, ValueError, "'thread'"),
        ({"num_workers": 1, "multiprocessing_context": 3}, TypeError, "got 3"),
        ({"multiprocessing_context": "fork"}, ValueError, "num_workers=0"),
        ({"dataset": Stream(3), "shuffle": True}, ValueError, "shuffle=True"),
        ({"dataset": Stream(3), "sampler": [1]}, ValueError, r"sampler=\[1\]"),
        ({"dataset": Stream(3), "batch_sampler": [[1]]}, ValueError, "batch_sampler"),
        ({"dataset": [], "shuffle": True}, ValueError, "num_samples=0"),
    ],
)
def test_mistakes_are_named(settings, error, message):
    with pytest.raises(error, match=message):
        DataLoader(**{"dataset": DATASET, **settings})


def test_pinning_without_a_gpu_warns_as_pytorch_and_does_nothing():
    cuda = getattr(fb, "cuda", None)
    if cuda is not None and cuda.is_available():
        pytest.skip("there is a GPU")

    with pytest.warns(UserWarning, match="no GPU to copy to"):
        batches = lists(DataLoader(Squares(), 5, pin_memory=True))

    assert batches == [[0, 1, 4, 9, 16]]


def test_processes_are_only_thought_of_when_there_are_workers(fresh_python):
    program = (
        "import sys, flambeau as fb\n"
        "from flambeau.utils.data import DataLoader\n"
        "list(DataLoader([1, 2, 3], 2, shuffle=True))\n"
        "print('multiprocessing' in sys.modules)"
    )

    assert fresh_python("-c", program).strip() == "False"


def test_a_loader_is_pickled_after_a_pass():
    loader = DataLoader(list(range(6)), batch_size=2)
    going_on = iter(loader)
    next(going_on)

    assert [b.tolist() for b in pickle.loads(pickle.dumps(loader))] == [[0, 1], [2, 3], [4, 5]]
    assert loader.state_dict()["pass"] is not None
