"""Schedules: in which order the stages of each rank take the microbatches, and the step that runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fb

from . import _orders
from ._channel import ElsewhereError
from ._orders import Action, Kind
from .microbatch import merge_chunks, split_args_kwargs_into_chunks
from .stage import PipelineStage

__all__ = [
    "PipelineScheduleMulti", "PipelineScheduleSingle", "Schedule1F1B", "ScheduleDualPipeV", "ScheduleGPipe",
    "ScheduleInterleaved1F1B", "ScheduleInterleavedZeroBubble", "ScheduleLoopedBFS", "ScheduleZBVZeroBubble",
    "get_schedule_class",
]  # fmt: skip

FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT = Kind.FORWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT
FULL_BACKWARD, OVERLAP_F_B = Kind.FULL_BACKWARD, Kind.OVERLAP_F_B
F, I, W, B = FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FULL_BACKWARD  # the papers' letters
# Names of messages have room for so many.
_MOST_MICROBATCHES = 1 << 16


class _Schedule:
    """What all schedules do: cut a batch, run the actions of this rank, and put the results together."""

    def __init__(
        self,
        stages: list[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Any] | None,
        args_chunk_spec: Any,
        kwargs_chunk_spec: Any,
        output_merge_spec: Any,
        scale_grads: bool,
    ) -> None:
        name = type(self).__name__
        if not stages:
            raise ValueError(f"{name}: a rank needs at least one stage")
        if not 0 < n_microbatches < _MOST_MICROBATCHES:
            raise ValueError(f"{name}: n_microbatches must be from 1 to {_MOST_MICROBATCHES - 1}, got {n_microbatches}")
        first = stages[0]
        if any(s.group is not first.group or s.num_stages != first.num_stages for s in stages):
            raise ValueError(f"{name}: all stages must be of one group and one pipeline")
        self._stages = {stage.stage_index: stage for stage in stages}
        if len(self._stages) < len(stages):
            raise ValueError(f"{name}: stages {[stage.stage_index for stage in stages]} name one more than once")
        self._n_microbatches, self._num_stages = n_microbatches, first.num_stages
        self._rank, self._ranks = first.group_rank, first.group_size
        self._channel = first._channel
        self._loss_fn = loss_fn
        self._args_chunk_spec, self._kwargs_chunk_spec = args_chunk_spec, kwargs_chunk_spec
        self._output_merge_spec = output_merge_spec
        self.scale_grads = scale_grads
        self._has_backward = loss_fn is not None
        self.pipeline_order: dict[int, list[Action]] = {}

    def _set_places(self, places: dict[int, int]) -> None:
        """Tell the stages which rank has which stage.

        Raises: ValueError for stages that this rank does not have in this schedule.
        """
        mine = sorted(stage for stage, rank in places.items() if rank == self._rank)
        if mine != sorted(self._stages):
            raise ValueError(
                f"{type(self).__name__}: rank {self._rank} of {self._ranks} has the stages {mine} of {self._num_stages}, "
                f"got {sorted(self._stages)}"
            )
        for stage in self._stages.values():
            stage.stage_index_to_group_rank = places

    # A step

    def step(
        self,
        *args: Any,
        target: Any = None,
        losses: list[Any] | None = None,
        return_outputs: bool = True,
        loss_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Take one whole batch through the pipeline, and back if there is a `loss_fn`. All ranks call it.

        Args:
            *args: for the rank that has the first stage; cut into microbatches.
            target: what `loss_fn` compares outputs with, for the rank that has the last stage; cut along dimension 0.
            losses: a list; what was in it is replaced by the loss of each microbatch.
            return_outputs: False does without the outputs.
            loss_kwargs: further arguments of `loss_fn`.
            **kwargs: for the stages of this rank; cut into microbatches.
        Returns: the outputs of the whole batch on the rank that has the last stage, None elsewhere.
        Raises: what a stage raises; RuntimeError that says which stage of which rank failed, on all other ranks.
        """
        return self._step(args, kwargs, target, losses, return_outputs, loss_kwargs or {}, self._has_backward)

    def eval(self, *args: Any, target: Any = None, losses: list[Any] | None = None, **kwargs: Any) -> Any:
        """Take one whole batch through the pipeline without gradients; arguments and result are those of `step`."""
        with fb.no_grad():
            return self._step(args, kwargs, target, losses, True, {}, False)

    def _step(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        target: Any,
        losses: list[Any] | None,
        return_outputs: bool,
        loss_kwargs: dict[str, Any],
        backward: bool,
    ) -> Any:
        self._channel.begin_step()
        self._doing = "the beginning of a step"
        self._loss_kwargs, self._losses, self._backward_now = loss_kwargs, {}, backward
        try:
            arg_mbs, kwarg_mbs, target_mbs = self._cut(args, kwargs, target)
            self._losses_wanted = target_mbs is not None and self._loss_fn is not None
            if self._has_last and backward and target_mbs is None:
                raise RuntimeError(f"{type(self).__name__}.step: loss_fn and target required for last stage; target is None")
            for stage in self._stages.values():
                stage._begin_step(self._stages, self._n_microbatches, backward, return_outputs)
            self._step_microbatches(arg_mbs, kwarg_mbs, target_mbs)
        except BaseException as error:
            for stage in self._stages.values():
                stage.clear_runtime_states()
            if not isinstance(error, ElsewhereError):
                self._channel.tell(f"pipelining: rank {self._rank} failed in {self._doing}: {type(error).__name__}: {error}")
            raise
        return self._results(losses, return_outputs)

    @property
    def _has_last(self) -> bool:
        return self._num_stages - 1 in self._stages

    def _results(self, losses: list[Any] | None, return_outputs: bool) -> Any:
        if losses is not None and self._has_last and self._losses:
            losses[:] = [self._losses[at] for at in range(self._n_microbatches)]
        last = self._stages.get(self._num_stages - 1)
        chunks = last.output_chunks if last is not None else []
        for stage in self._stages.values():
            stage.clear_runtime_states()
        if last is None or not return_outputs:
            return None
        return merge_chunks(chunks, self._output_merge_spec)

    def _cut(self, args: tuple[Any, ...], kwargs: dict[str, Any], target: Any) -> tuple[list[Any], list[Any], list[Any] | None]:
        count = self._n_microbatches
        given = args if 0 in self._stages else ()
        spec = self._args_chunk_spec if given else None
        arg_mbs, kwarg_mbs = split_args_kwargs_into_chunks(given, kwargs, count, spec, self._kwargs_chunk_spec)
        target_mbs = None
        if target is not None and self._has_last:
            target_mbs = [chunk for (chunk,) in split_args_kwargs_into_chunks((target,), None, count)[0]]
        for what, chunks in (("arguments", arg_mbs), ("target", target_mbs)):
            if chunks is not None and len(chunks) != count:
                raise RuntimeError(
                    f"{type(self).__name__}.step: {what} can be cut into {len(chunks)} microbatches, n_microbatches is {count}"
                )
        return arg_mbs, kwarg_mbs, target_mbs

    def _step_microbatches(self, arg_mbs: list[Any], kwarg_mbs: list[Any], target_mbs: list[Any] | None = None, losses: Any = None) -> None:
        """Run all microbatches; a schedule of one's own may define it, by `_run` or by the methods of the stages.

        Args:
            arg_mbs, kwarg_mbs: positional and keyword arguments of each microbatch.
            target_mbs: targets of each, on the rank that has the last stage.
            losses: not used.
        """
        for action in self._order_of_step():
            for part in action.flat():
                self._run(part, arg_mbs, kwarg_mbs, target_mbs)

    def _order_of_step(self) -> list[Action]:
        """The actions of this rank; without backward the forwards among them."""
        order = self.pipeline_order[self._rank]
        if self._backward_now:
            return order
        return [part for action in order for part in action.flat() if part.computation_type is F]

    def _run(self, action: Action, arg_mbs: list[Any], kwarg_mbs: list[Any], target_mbs: list[Any] | None) -> None:
        """Run one action of this rank."""
        at, kind = action.microbatch_index, action.computation_type
        if at is None:
            raise ValueError(f"{type(self).__name__}: the action {action} names no microbatch")
        stage = self._stages[action.stage_index]
        what = {F: "forward", W: "backward to the weights"}.get(kind, "backward")
        self._doing = f"stage {action.stage_index} ({type(stage.submod).__name__}), {what} of microbatch {at}"
        if kind is F:
            output = stage.forward_one_chunk(at, arg_mbs[at], kwarg_mbs[at])
            if stage.is_last and self._losses_wanted and target_mbs is not None and self._loss_fn is not None:
                self._doing = f"the loss of microbatch {at}"
                self._losses[at] = self._loss_fn(output, target_mbs[at], **self._loss_kwargs)
        elif kind is W:
            stage.backward_weight_one_chunk(at)
        else:
            # Seeding backward with 1/n scales this step's gradients alone, not what was there before it.
            scale = 1 / self._n_microbatches if self.scale_grads else 1.0
            stage.backward_one_chunk(at, self._losses.get(at) if stage.is_last else None, kind is B, scale)


class PipelineScheduleSingle(_Schedule):
    """Base of schedules with one stage on each rank.

    Args:
        stage: the stage of this rank.
        n_microbatches: into how many microbatches a batch is cut.
        loss_fn: called with the output and the target of a microbatch; returns a scalar. Without it there is no backward.
        args_chunk_spec, kwargs_chunk_spec: how arguments are cut; see `split_args_kwargs_into_chunks`.
        output_merge_spec: how outputs are put together; see `merge_chunks`.
        scale_grads: divide gradients by the number of microbatches, for a loss that is a mean.
    Raises: ValueError for another number of stages than ranks.
    """

    def __init__(
        self,
        stage: PipelineStage,
        n_microbatches: int,
        loss_fn: Callable[..., Any] | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ) -> None:
        super().__init__([stage], n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads)
        self._stage = stage
        if stage.num_stages != stage.group_size:
            raise ValueError(
                f"{type(self).__name__}: one stage on each rank makes {stage.group_size} stages, the pipeline has "
                f"{stage.num_stages}; take a schedule with several stages on a rank"
            )
        self._set_places({at: at for at in range(stage.num_stages)})


class ScheduleGPipe(PipelineScheduleSingle):
    """GPipe: all microbatches forward, then all backward. Arguments are those of `PipelineScheduleSingle`."""

    def _order_of_step(self) -> list[Action]:
        return _orders.fill_drain(self._stage.stage_index, self._n_microbatches, self._backward_now)


class Schedule1F1B(PipelineScheduleSingle):
    """One forward, one backward in steady state, so fewer microbatches are held than by GPipe.

    Arguments are those of `PipelineScheduleSingle`; it needs as many microbatches as stages, or more.
    """

    def __init__(
        self,
        stage: PipelineStage,
        n_microbatches: int,
        loss_fn: Callable[..., Any] | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ) -> None:
        super().__init__(stage, n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads)
        if n_microbatches < stage.num_stages:
            raise ValueError(
                f"Number of microbatches ({n_microbatches}) must be greater than or equal to the number of stages "
                f"({stage.num_stages})."
            )

    def _order_of_step(self) -> list[Action]:
        return _orders.one_f_one_b(self._stage.stage_index, self._num_stages, self._n_microbatches, self._backward_now)


class PipelineScheduleMulti(_Schedule):
    """Base of schedules with several stages on each rank.

    A schedule of one's own fills `pipeline_order`, the actions of each rank, and calls `_set_places` for another layout than
    stage ``i`` on rank ``i % ranks``.

    Args:
        stages: the stages of this rank.
        n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads: as for
            `PipelineScheduleSingle`.
        use_full_backward: taken for compatibility; the order says it.
        backward_requires_autograd: must be True.
    Raises: ValueError for stages that do not belong on this rank.
    """

    def __init__(
        self,
        stages: list[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Any] | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        use_full_backward: bool | None = None,
        scale_grads: bool = True,
        backward_requires_autograd: bool = True,
    ) -> None:
        if not isinstance(stages, list | tuple):
            raise TypeError(f"{type(self).__name__}: stages must be a list, got {type(stages).__name__}")
        if not backward_requires_autograd:
            raise NotImplementedError(f"{type(self).__name__}: backward_requires_autograd=False is not built yet")
        super().__init__(list(stages), n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads)
        self._local = len(stages)
        if self._num_stages != self._local * self._ranks:
            raise ValueError(
                f"{type(self).__name__}: {self._ranks} ranks with {self._local} stages each make "
                f"{self._ranks * self._local} stages, the pipeline has {self._num_stages}"
            )
        self._set_places(self._layout())

    def _layout(self) -> dict[int, int]:
        return {stage: stage % self._ranks for stage in range(self._num_stages)}


class _ByOrder(PipelineScheduleMulti):
    """A schedule whose actions are a function of rank, ranks, stages of a rank and microbatches."""

    def __init__(
        self,
        stages: list[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Any] | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
        backward_requires_autograd: bool = True,
        defer_pp_recv: bool = False,
    ) -> None:
        super().__init__(
            stages, n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, None, scale_grads,
            backward_requires_autograd,
        )  # fmt: skip
        self.pipeline_order = {rank: self._order(rank) for rank in range(self._ranks)}

    def _order(self, rank: int) -> list[Action]:
        raise NotImplementedError(f"{type(self).__name__}: no order is defined")


class ScheduleInterleaved1F1B(_ByOrder):
    """1F1B with several stages on each rank, which take turns after each round of microbatches.

    Arguments are those of `PipelineScheduleMulti`; the number of microbatches must be a multiple of the number of rounds,
    ``max(1, n_microbatches // ranks)``. `defer_pp_recv` is taken for compatibility, for a receive never holds up what was
    begun before it. Source: Narayanan et al. 2021, arXiv 2104.04473.
    """

    def _order(self, rank: int) -> list[Action]:
        return _orders.interleaved_1f1b(rank, self._ranks, self._local, self._n_microbatches)


class ScheduleLoopedBFS(_ByOrder):
    """Several stages on each rank, the earlier one taking all microbatches first.

    Arguments are those of `PipelineScheduleMulti` without chunk specs; `defer_pp_recv` as for
    `ScheduleInterleaved1F1B`. Source: Lamy-Poirier 2023, arXiv 2211.05953.
    """

    def __init__(
        self,
        stages: list[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Any] | None = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
        backward_requires_autograd: bool = True,
        defer_pp_recv: bool = False,
    ) -> None:
        super().__init__(
            stages, n_microbatches, loss_fn, None, None, output_merge_spec, scale_grads, backward_requires_autograd,
            defer_pp_recv,
        )  # fmt: skip

    def _order(self, rank: int) -> list[Action]:
        return _orders.breadth_first(rank, self._ranks, self._local, self._n_microbatches)


class ScheduleInterleavedZeroBubble(_ByOrder):
    """Interleaved 1F1B that computes gradients of weights where a rank would wait (ZB1P).

    Arguments, `defer_pp_recv` among them, are those of `ScheduleInterleaved1F1B`. Source: Qi et al. 2024, arXiv 2401.10241.
    """

    def _order(self, rank: int) -> list[Action]:
        return _orders.interleaved_zero_bubble(rank, self._ranks, self._local, self._n_microbatches)


class _InV(_ByOrder):
    """Two stages on each rank: rank r has the stages r and ``2 * ranks - 1 - r``."""

    _short = ""

    def _layout(self) -> dict[int, int]:
        if self._local != 2:
            raise ValueError(f"{self._short} requires exactly 2 stages per rank, but got {self._local}.")
        return {stage: min(stage, self._num_stages - 1 - stage) for stage in range(self._num_stages)}


class ScheduleZBVZeroBubble(_InV):
    """Zero bubble with two stages on each rank, in the form of a V: the first rank has the first and the last stage.

    Arguments are those of `PipelineScheduleMulti`; `defer_pp_recv` as for `ScheduleInterleaved1F1B`.
    Source: Qi et al. 2024, arXiv 2401.10241, section 6.
    """

    _short = "ZBV"

    def _order(self, rank: int) -> list[Action]:
        return _orders.v_zero_bubble(rank, self._ranks, self._n_microbatches)


class ScheduleDualPipeV(_InV):
    """The form of a V with pairs of one forward and one backward in steady state.

    Arguments are those of `PipelineScheduleMulti`; it needs as many microbatches as stages, or more. `defer_pp_recv` as for
    `ScheduleInterleaved1F1B`. Source: DeepSeek-AI 2025, DualPipe.
    """

    _short = "DualPipeV"

    def _order(self, rank: int) -> list[Action]:
        return _orders.dual_pipe_v(rank, self._ranks, self._n_microbatches)


_BY_NAME: dict[str, type] = {
    "1F1B": Schedule1F1B,
    "Interleaved1F1B": ScheduleInterleaved1F1B,
    "GPipe": ScheduleGPipe,
    "LoopedBFS": ScheduleLoopedBFS,
    "InterleavedZeroBubble": ScheduleInterleavedZeroBubble,
    "PipelineScheduleSingle": PipelineScheduleSingle,
    "PipelineScheduleMulti": PipelineScheduleMulti,
    "ZBVZeroBubble": ScheduleZBVZeroBubble,
    "DualPipeV": ScheduleDualPipeV,
}


def get_schedule_class(schedule_name: str) -> type:
    """The class of a schedule by its name, such as "1F1B"; capitals do not matter.

    Raises: ValueError for an unknown name.
    """
    for name, found in _BY_NAME.items():
        if name.lower() == schedule_name.lower():
            return found
    raise ValueError(f"Unknown schedule name '{schedule_name}'. The valid options are {list(_BY_NAME)}")
