"""A pass that goes on in another loader yields what the first one would have yielded, to the bit."""

from __future__ import annotations

import gc
import io
import random
import sys

import numpy as np
import pytest

import flambeau as fb
from flambeau.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)
from flambeau.utils.data._utils import random_states

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks")


@pytest.fixture(autouse=True)
def no_workers_left():
    yield
    # A loader with persistent workers and its iterator hold each other.
    gc.collect()


def noise():
    """Something of each of the three generators."""
    return fb.rand(1).item() + random.random() * 10 + np.random.randn() * 100


class Noisy(Dataset):
    def __len__(self):
        return 23

    def __getitem__(self, index):
        return index, noise()


class Stream(IterableDataset):
    """Shuffled as it is read, with another length for each worker."""

    def __iter__(self):
        worker = get_worker_info()
        first = 0 if worker is None else worker.id * 100
        numbers = list(range(first, first + 11 + first // 100 * 6))
        random.shuffle(numbers)
        for number in numbers:
            yield number, noise()


class Counted(IterableDataset):
    """A stream that can tell its place: it is not read again."""

    def __init__(self):
        self.next = 0
        self.reads = []

    def __iter__(self):
        while self.next < 17:
            self.next += 1
            self.reads.append(self.next)
            yield self.next, noise()
        self.next = 0

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state):
        self.next = state["next"]


SETTINGS = {
    "in order": lambda: (Noisy(), {}),
    "shuffled": lambda: (Noisy(), {"shuffle": True}),
    "own generator": lambda: (Noisy(), {"shuffle": True, "generator": fb.Generator().manual_seed(3)}),
    "sampler's generator": lambda: (
        Noisy(), {"sampler": SubsetRandomSampler(range(5, 20), generator=fb.Generator().manual_seed(4))},
    ),
    "weighted": lambda: (Noisy(), {"sampler": WeightedRandomSampler([1.0, 2.0] * 11 + [0.0], 30)}),
    "with replacement": lambda: (
        Noisy(), {"sampler": RandomSampler(Noisy(), True, 80, generator=fb.Generator().manual_seed(5)), "drop_last": True},
    ),
    "batch sampler": lambda: (
        Noisy(),
        {"batch_size": 1, "batch_sampler": BatchSampler(RandomSampler(Noisy(), generator=fb.Generator().manual_seed(6)), 3, False)},
    ),
    "stream": lambda: (Stream(), {}),
    "single samples": lambda: (Stream(), {"batch_size": None}),
    "stream with a state": lambda: (Counted(), {}),
}  # fmt: skip


def make_loader(name, workers, **settings):
    dataset, more = SETTINGS[name]()
    return DataLoader(dataset, **{"batch_size": 2, **more}, num_workers=workers, **settings)


def plain(batch):
    return [part.tolist() if isinstance(part, fb.Tensor) else part for part in batch]


def start_over(seed=11):
    fb.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def through_a_file(state):
    file = io.BytesIO()
    fb.save(state, file)
    file.seek(0)
    return fb.load(file)


def check(make, passes_before, yielded, follow_up=True):
    """Both the rest of the pass and the next pass are the same."""
    start_over()
    first = make()
    for _ in range(passes_before):
        list(first)
    batches = iter(first)
    for _ in range(yielded):
        next(batches)
    state, generators = through_a_file(first.state_dict()), random_states.snapshot()
    expected = [plain(batch) for batch in batches]
    expected_next = [plain(batch) for batch in first] if follow_up else None
    del batches, first

    start_over(99)
    second = make()
    random_states.restore(generators)
    second.load_state_dict(state)
    got = [plain(batch) for batch in second]
    got_next = [plain(batch) for batch in second] if follow_up else None

    assert got == expected
    assert got_next == expected_next
    assert expected or yielded > 5


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_rest_of_the_pass_and_the_next_one_are_the_same(name, workers):
    check(lambda: make_loader(name, workers), 0, 3)


@pytest.mark.parametrize("yielded", [0, 1, 7, 12])
@pytest.mark.parametrize("name", ["shuffled", "stream"])
def test_wherever_it_stops(name, yielded):
    check(lambda: make_loader(name, 2, prefetch_factor=3), 0, yielded)


@pytest.mark.parametrize("name", ["shuffled", "stream", "own generator"])
def test_persistent_workers_go_on_in_a_later_pass(name):
    check(lambda: make_loader(name, 2, persistent_workers=True), 1, 4)


def test_a_pass_can_be_resumed_twice():
    def make():
        return make_loader("own generator", 2)

    start_over()
    expected = [plain(batch) for batch in make()]
    start_over()
    loader, got = make(), []
    for _ in range(3):
        state = None
        for batch in loader:
            got.append(plain(batch))
            if len(got) in (3, 7):
                state = through_a_file(loader.state_dict())
                break
        if state is not None:
            loader = make()
            loader.load_state_dict(state)

    assert got == expected


def test_asking_does_not_disturb_the_pass():
    start_over()
    expected = [plain(batch) for batch in make_loader("stream", 2)]
    start_over()
    loader, got = make_loader("stream", 2), []
    for batch in loader:
        got.append(plain(batch))
        loader.state_dict()

    assert got == expected


def test_streams_with_a_state_are_not_read_again():
    loader = DataLoader(Counted(), 2)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    again = DataLoader(Counted(), 2)
    again.load_state_dict(loader.state_dict())
    list(again)

    assert again.dataset.reads == list(range(7, 18))


@pytest.mark.parametrize("name", ["own generator", "stream"])
def test_threads_go_on_too(name):
    class Quiet(IterableDataset):
        def __iter__(self):
            return iter(range(get_worker_info().id * 100, get_worker_info().id * 100 + 9))

    def make():
        if name == "stream":
            return DataLoader(Quiet(), 2, num_workers=2, worker_type="thread")
        generator = fb.Generator().manual_seed(3)
        return DataLoader(range(21), 2, shuffle=True, generator=generator, num_workers=2, worker_type="thread")

    first = make()
    batches = iter(first)
    for _ in range(4):
        next(batches)
    state = through_a_file(first.state_dict())
    second = make()
    second.load_state_dict(state)

    assert [batch.tolist() for batch in second] == [batch.tolist() for batch in batches]


def test_states_out_of_order_request_what_is_missing():
    loader = DataLoader(range(20), 2, num_workers=2, in_order=False)
    batches = iter(loader)
    seen = [tuple(next(batches).tolist()) for _ in range(4)]
    again = DataLoader(range(20), 2, num_workers=2, in_order=False)
    again.load_state_dict(loader.state_dict())

    rest = [tuple(batch.tolist()) for batch in again]
    assert sorted(seen + rest) == [(i, i + 1) for i in range(0, 20, 2)]


def test_states_of_other_loaders_are_refused():
    state = DataLoader(range(10), 2).state_dict()
    for other, said in [
        (DataLoader(range(12), 2), "length=5, this loader 6"),
        (DataLoader(range(10), 2, num_workers=1), "num_workers=0, this loader 1"),
        (DataLoader(range(10), 2, shuffle=True, generator=fb.Generator()), "0 generators, this loader 1"),
    ]:
        with pytest.raises(ValueError, match=said):
            other.load_state_dict(state)
    with pytest.raises(ValueError, match="version=None"):
        DataLoader(range(10), 2).load_state_dict({})


def test_without_a_pass_the_next_one_is_described():
    def make():
        return DataLoader(range(10), 5, shuffle=True, generator=fb.Generator().manual_seed(1))

    loader = make()
    list(loader)
    state = loader.state_dict()
    again = make()
    again.load_state_dict(state)

    assert state["pass"] is None
    assert [batch.tolist() for batch in again] == [batch.tolist() for batch in loader]
