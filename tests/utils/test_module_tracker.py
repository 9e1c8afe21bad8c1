"""Which modules are running, on the way forward and back."""

from __future__ import annotations

import contextlib

import flambeau as fb
from flambeau.utils.module_tracker import ModuleTracker


class Probe(fb.nn.Module):
    """Writes down who is running, forward and backward."""

    def __init__(self, seen, tracker):
        super().__init__()
        self.seen, self.tracker = seen, tracker

    def forward(self, x):
        self.seen.append(("forward", frozenset(self.tracker().parents), self.tracker().is_bw))
        x = x * 1
        x.register_hook(lambda grad: self.seen.append(("backward", frozenset(self.tracker().parents), self.tracker().is_bw)))
        return x * 1


def test_names_are_there_while_modules_run():
    seen = []
    model = fb.nn.Sequential(fb.nn.Linear(2, 2), fb.nn.Sequential(Probe(seen, lambda: tracker)))
    with ModuleTracker() as tracker:
        model(fb.ones(1, 2, requires_grad=True)).sum().backward()
        left = set(tracker.parents)

    names = frozenset({"Global", "Sequential", "Sequential.1", "Sequential.1.0"})
    assert seen == [("forward", names, False), ("backward", names, True)]
    assert left == {"Global"}


def test_nothing_is_left_after_an_error():
    class Broken(fb.nn.Module):
        def forward(self, x):
            raise KeyError("x")

    with ModuleTracker() as tracker:
        with contextlib.suppress(KeyError):
            Broken()(fb.ones(1))

        assert tracker.parents == {"Global"}
