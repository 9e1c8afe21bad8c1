"""In which order each rank computes: the schedules as lists of actions, without anything that runs them.

Sources: Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters" (interleaved 1F1B);
Lamy-Poirier 2023, "Breadth-First Pipeline Parallelism" (looped BFS); Qi et al. 2024, "Zero Bubble Pipeline Parallelism"
(ZB1P and ZB-V); DeepSeek-AI 2025, "DualPipe" and its V-shaped form (DualPipeV).
"""

from __future__ import annotations

from collections import defaultdict
from enum import Enum
from typing import Any, NamedTuple

__all__ = [
    "Action", "Kind", "breadth_first", "dual_pipe_v", "fill_drain", "interleaved_1f1b", "interleaved_zero_bubble", "one_f_one_b",
    "v_zero_bubble",
]  # fmt: skip


class Kind(Enum):
    """What is computed of a microbatch: its forward, or backward as a whole, to inputs, to weights."""

    FORWARD = "F"
    BACKWARD_INPUT = "I"
    BACKWARD_WEIGHT = "W"
    FULL_BACKWARD = "B"
    OVERLAP_F_B = "OVERLAP_F_B"

    def __str__(self) -> str:
        return self.value


class Action(NamedTuple):
    """One step of a rank: a stage computes something of a microbatch.

    `sub_actions` has the two steps of an OVERLAP_F_B, which may run at the same time.
    """

    stage_index: int
    computation_type: Kind
    microbatch_index: int | None = None
    sub_actions: tuple[Any, ...] | None = None

    def __str__(self) -> str:
        if self.sub_actions is not None:
            return f"({';'.join(map(str, self.sub_actions))}){self.computation_type}"
        return f"{self.stage_index}{self.computation_type}{'' if self.microbatch_index is None else self.microbatch_index}"

    def flat(self) -> tuple[Any, ...]:
        """The steps that it consists of."""
        return (self,) if self.sub_actions is None else self.sub_actions


F, I, W, B = Kind.FORWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT, Kind.FULL_BACKWARD  # the papers' letters


class _Counting:
    """A list of actions that numbers the microbatches of each stage and kind as they come."""

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.count: dict[tuple[int, Kind], int] = defaultdict(int)
        self.waiting: list[Action] = []

    def made(self, stage: int, kind: Kind) -> Action:
        # The backward of a microbatch has one number, whether it is done as a whole or in halves.
        key = stage, (B if kind is I else kind)
        action = Action(stage, kind, self.count[key])
        self.count[key] += 1
        if kind is I:
            self.waiting.append(Action(stage, W, action.microbatch_index))
        return action

    def add(self, stage: int, kind: Kind) -> None:
        self.actions.append(self.made(stage, kind))

    def weight(self) -> None:
        """The weights of the backward that has waited longest."""
        self.actions.append(self.waiting.pop(0))

    def overlap(self, forward: int, backward: int) -> None:
        pair = self.made(forward, F), self.made(backward, B)
        self.actions.append(Action(-1, Kind.OVERLAP_F_B, None, pair))


def fill_drain(stage: int, microbatches: int, backward: bool) -> list[Action]:
    """GPipe: all forwards, then all backwards."""
    order = [Action(stage, F, at) for at in range(microbatches)]
    return order + [Action(stage, B, at) for at in range(microbatches) if backward]


def one_f_one_b(stage: int, stages: int, microbatches: int, backward: bool) -> list[Action]:
    """1F1B: as many forwards as there are stages from here on, then one backward for each forward."""
    if not backward:
        return fill_drain(stage, microbatches, False)
    ahead = min(microbatches, stages - stage)
    order = [Action(stage, F, at) for at in range(ahead)]
    for at in range(microbatches):
        order.append(Action(stage, B, at))
        if ahead + at < microbatches:
            order.append(Action(stage, F, ahead + at))
    return order


def breadth_first(rank: int, ranks: int, local: int, microbatches: int) -> list[Action]:
    """Looped BFS: each stage takes all microbatches before the next one does; backward in the opposite order."""
    mine = [rank + ranks * at for at in range(local)]
    order = [Action(stage, F, at) for stage in mine for at in range(microbatches)]
    return order + [Action(stage, B, at) for stage in reversed(mine) for at in reversed(range(microbatches))]


def _rounds(ranks: int, microbatches: int, name: str) -> int:
    """How many microbatches a stage takes before the next stage of the rank has its turn."""
    rounds = max(1, microbatches // ranks)
    if microbatches % rounds:
        raise ValueError(
            f"{name} requires the number of microbatches to be a multiple of the number of rounds ({rounds}), "
            f"but got {microbatches}."
        )
    return microbatches // rounds


def interleaved_1f1b(rank: int, ranks: int, local: int, microbatches: int) -> list[Action]:
    """Interleaved 1F1B: stages of a rank take turns, each for a round of microbatches."""
    each = _rounds(ranks, microbatches, "Interleaved 1F1B")
    total = local * microbatches
    ahead = min(total, (local - 1) * each + 2 * (ranks - 1 - rank))
    steps = _Counting()
    for at in range(ahead):
        steps.add(rank + ranks * (at // each % local), F)
    for at in range(total):
        if ahead + at < total:
            steps.add(rank + ranks * ((ahead + at) // each % local), F)
        steps.add(rank + ranks * (local - 1 - at // each % local), B)
    return steps.actions


def interleaved_zero_bubble(rank: int, ranks: int, local: int, microbatches: int) -> list[Action]:
    """Interleaved ZB1P: weights wait, on rank r until r more gradients of inputs are done."""
    each = _rounds(ranks, microbatches, "Zero bubble")
    total = local * microbatches
    ahead = min(total, (local - 1) * each + ranks - 1 - rank)
    steps = _Counting()
    for at in range(ahead):
        steps.add(rank + ranks * (at // each % local), F)
    for at in range(total):
        if ahead + at < total:
            steps.add(rank + ranks * ((ahead + at) // each % local), F)
        steps.add(rank + ranks * (local - 1 - at // each % local), I)
        if at >= rank:
            steps.weight()
    while steps.waiting:
        steps.weight()
    return steps.actions


def v_zero_bubble(rank: int, ranks: int, microbatches: int) -> list[Action]:
    """ZB-V: a rank has one stage of the way down and one of the way up, and weights fill what would be idle."""
    down, up = rank, 2 * ranks - 1 - rank
    # With fewer microbatches the order is that of enough of them, without those that are not there.
    enough = max(microbatches, 2 * ranks - 1)
    order: list[Action] = []
    count: dict[tuple[int, Kind], int] = defaultdict(int)

    def add(stage: int, *kinds: Kind) -> None:
        for kind in kinds:
            at = count[stage, kind]
            count[stage, kind] += 1
            if at < microbatches:
                order.append(Action(stage, kind, at))

    for _ in range(2 * (ranks - rank) - 1):
        add(down, F)
    for _ in range(rank):
        add(up, F)
        add(down, F)
    for _ in range(ranks - rank):
        add(up, F, I, W)
    while count[up, F] < count[down, F] or count[down, F] < enough:
        if count[down, F] < enough:
            add(down, F)
        add(down, I, W)
        add(up, F, I, W)
    for _ in range(rank):
        add(down, I)
        add(up, I)
    for _ in range(ranks - rank):
        add(down, I, W)
    for stage in (up, down):
        while count[stage, W] < count[stage, I]:
            add(stage, W)
    return order


def dual_pipe_v(rank: int, ranks: int, microbatches: int) -> list[Action]:
    """DualPipeV: ZB-V in whose steady state a forward and a backward make a pair."""
    if microbatches < 2 * ranks:
        raise ValueError(
            f"DualPipeV requires at least as many microbatches as stages, but got {microbatches} microbatches and "
            f"{2 * ranks} stages."
        )
    down, up = rank, 2 * ranks - 1 - rank
    after = ranks - 1 - rank
    steps = _Counting()
    for _ in range(2 * after):
        steps.add(down, F)
    for _ in range(rank + 1):
        steps.add(down, F)
        steps.add(up, F)
    for _ in range(after):
        steps.add(up, I)
        steps.weight()
        steps.add(up, F)
    for at in range(microbatches - 2 * ranks + rank + 1):
        if at == 0 and after == 0:
            # The last rank has nothing else in flight, so its first backward needs this forward's sibling first.
            steps.add(down, F)
            steps.add(up, B)
        else:
            steps.overlap(down, up)
        steps.overlap(up, down)
    for _ in range(after):
        steps.add(up, B)
        steps.overlap(up, down)
    split = False
    for at in range(rank + 1):
        # Half of the last backwards leave their weights for the end.
        split = split or at == (rank + 1) // 2 and rank % 2 == 1
        steps.add(up, I if split else B)
        split = split or at == (rank + 1) // 2
        steps.add(down, I if split else B)
    for _ in range(after):
        steps.weight()
        steps.add(down, I)
    while steps.waiting:
        steps.weight()
    return steps.actions
