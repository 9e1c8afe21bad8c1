"""PowerSGD: gradients sent as products of two thin matrices, with what that loses added to the next gradients.

Source: Vogels, Karimireddy and Jaggi 2019, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization".
"""

from __future__ import annotations

import logging
import math
from typing import Any, NamedTuple

import numpy as np

import flambeau as fb

from ....futures import Future
from ... import distributed_c10d as c10d
from .default_hooks import allreduce_hook

__all__ = ["PowerSGDState", "batched_powerSGD_hook", "powerSGD_hook"]

logger = logging.getLogger(__name__)


class PowerSGDState:
    """What PowerSGD is told, and what it remembers of each bucket.

    Args:
        process_group: the ranks; None for all.
        matrix_approximation_rank: columns of the thin matrices.
        start_powerSGD_iter: iterations before it begins, in which gradients are sent as they are.
        min_compression_rate: a matrix is compressed if its elements are more than so many times those of the thin ones.
        use_error_feedback: add what an iteration loses to the gradients of the next.
        warm_start: begin with the thin matrix of the last iteration rather than with a random one.
        orthogonalization_epsilon: added to the length of a column before the division by it, against columns of zeros; 0 takes
            a QR factorization.
        random_seed: of the random matrices, the same on all ranks.
        compression_stats_logging_frequency: iterations between two lines of statistics in the log.
        batch_tensors_with_same_shape: compress matrices of one shape in one operation.
    Raises: ValueError for `start_powerSGD_iter` below 2 with error feedback or warm start.
    """

    __slots__ = [
        "batch_tensors_with_same_shape", "compression_stats_logging_frequency", "error_dict", "iter",
        "matrix_approximation_rank", "min_compression_rate", "next_stats_report", "orthogonalization_epsilon", "p_memory_dict",
        "process_group", "q_memory_dict", "rng", "start_powerSGD_iter", "total_numel_after_compression",
        "total_numel_before_compression", "use_error_feedback", "warm_start",
    ]  # fmt: skip

    def __init__(
        self,
        process_group: Any,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1000,
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        orthogonalization_epsilon: float = 0,
        random_seed: int = 0,
        compression_stats_logging_frequency: int = 10000,
        batch_tensors_with_same_shape: bool = False,
    ) -> None:
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError(
                f"PowerSGDState: start_powerSGD_iter must be 2 or more with use_error_feedback or warm_start, got "
                f"{start_powerSGD_iter}"
            )
        if matrix_approximation_rank < 1:
            raise ValueError(f"PowerSGDState: matrix_approximation_rank must be 1 or more, got {matrix_approximation_rank}")
        self.process_group = process_group
        self.matrix_approximation_rank = matrix_approximation_rank
        self.start_powerSGD_iter = start_powerSGD_iter
        self.min_compression_rate = min_compression_rate
        self.use_error_feedback = use_error_feedback
        self.warm_start = warm_start
        self.orthogonalization_epsilon = orthogonalization_epsilon
        self.rng = np.random.RandomState(random_seed)
        self.batch_tensors_with_same_shape = batch_tensors_with_same_shape
        self.error_dict: dict[int, Any] = {}
        self.p_memory_dict: dict[int, Any] = {}
        self.q_memory_dict: dict[int, Any] = {}
        self.iter = 0
        self.total_numel_before_compression = self.total_numel_after_compression = 0
        self.compression_stats_logging_frequency = max(1, compression_stats_logging_frequency)
        self.next_stats_report = 0

    def __getstate__(self) -> dict[str, Any]:
        logger.warning("PowerSGDState: the process group is not saved.")
        return {name: getattr(self, name) for name in self.__slots__ if name != "process_group"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.process_group = c10d._default()
        logger.warning("PowerSGDState: the process group is the default one; set process_group for another.")
        for name, value in state.items():
            setattr(self, name, value)

    def maybe_increase_iter(self, bucket: Any) -> None:
        """Count an iteration after its last bucket.

        Args:
            bucket: the `GradBucket` that was sent.
        """
        if bucket.is_last():
            self.iter += 1
            if self.iter == self.start_powerSGD_iter:
                logger.info("PowerSGD begins after %s iterations", self.iter)

    def compression_stats(self) -> tuple[float, int, int]:
        """How many times fewer elements were sent, how many there were, and how many were sent, since it began."""
        before, after = self.total_numel_before_compression, self.total_numel_after_compression
        return (before / after if after else 0), before, after


class _Group(NamedTuple):
    """Matrices of one shape, and where they are in the bucket."""

    places: list[int]
    shape: tuple[int, int]


def _low_rank(state: PowerSGDState, shape: Any) -> int:
    return min(state.matrix_approximation_rank, *shape)


def _is_worth(state: PowerSGDState, shape: tuple[int, int]) -> bool:
    rows, columns = shape
    return (rows + columns) * state.matrix_approximation_rank * state.min_compression_rate < rows * columns


def _orthogonal(matrices: Any, epsilon: float) -> Any:
    """`matrices` (count, rows, rank) with orthonormal columns of the same span; half types are computed in float32."""
    wide = matrices if matrices.dtype in (fb.float32, fb.float64) else matrices.float()
    if epsilon == 0:
        return fb.linalg.qr(wide)[0].to(matrices.dtype)
    columns: list[Any] = []
    for at in range(wide.shape[2]):
        column = wide[:, :, at]
        for other in columns:
            column = column - (other * column).sum(1, keepdim=True) * other
        columns.append(column / (column.norm(dim=1, keepdim=True) + epsilon))
    return fb.stack(columns, 2).to(matrices.dtype)


def _random(state: PowerSGDState, sizes: list[tuple[int, int, int]], dtype: Any) -> list[Any]:
    """Random matrices, the same on all ranks, drawn without a trace in the program's own numbers."""
    generator = fb.Generator()
    generator.manual_seed(int(state.rng.randint(1_000_000_000)))
    return [fb.randn(*size, generator=generator, dtype=dtype) for size in sizes]


def _report(state: PowerSGDState, bucket: Any) -> None:
    if bucket.is_last() and state.iter >= state.next_stats_report:
        rate, before, after = state.compression_stats()
        logger.info("PowerSGD iteration %s: %s elements sent as %s, %.3g times fewer", state.iter, before, after, rate)
        state.next_stats_report = state.iter + state.compression_stats_logging_frequency


def _sum(group: Any, tensors: list[Any]) -> None:
    if tensors:
        group.all_reduce(tensors, c10d.ReduceOp.SUM, False)


def _done(value: Any) -> Any:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def _compressed(state: PowerSGDState, group: Any, index: int, stacks: list[Any]) -> list[Any]:
    """The mean of `stacks` (count, rows, columns) over all ranks, each matrix approximated by a product of two thin ones."""
    remembered = state.q_memory_dict.get(index) if state.warm_start else None
    if remembered is None:
        sizes = [(stack.shape[0], stack.shape[2], _low_rank(state, stack.shape[1:])) for stack in stacks]
        qs = _random(state, sizes, stacks[0].dtype)
    else:
        qs = remembered
    qs = [_orthogonal(q, state.orthogonalization_epsilon) for q in qs]
    ps = [stack @ q for stack, q in zip(stacks, qs, strict=True)]
    _sum(group, ps)
    ps = [_orthogonal(p, state.orthogonalization_epsilon) for p in ps]
    qs = [stack.transpose(1, 2) @ p for stack, p in zip(stacks, ps, strict=True)]
    _sum(group, qs)
    for q in qs:
        q.div_(group.size())
    if state.warm_start:
        state.p_memory_dict[index], state.q_memory_dict[index] = ps, qs
    state.total_numel_after_compression += sum(x.numel() for x in (*ps, *qs))
    return [p @ q.transpose(1, 2) for p, q in zip(ps, qs, strict=True)]


def _groups(state: PowerSGDState, shapes: list[tuple[int, int] | None]) -> list[_Group]:
    """Which matrices are compressed together."""
    if not state.batch_tensors_with_same_shape:
        return [_Group([at], shape) for at, shape in enumerate(shapes) if shape is not None]
    together: dict[tuple[int, int], list[int]] = {}
    for at, shape in enumerate(shapes):
        if shape is not None:
            together.setdefault(shape, []).append(at)
    return [_Group(places, shape) for shape, places in together.items()]


def powerSGD_hook(state: PowerSGDState, bucket: Any) -> Any:
    """The mean over all ranks, with large matrices approximated by products of thin ones.

    The calls that exchange them are made in the order of buckets on all ranks, so they do not go on beside backward.

    Args:
        state: a `PowerSGDState`.
        bucket: a `GradBucket`.
    """
    group = c10d._default() if state.process_group is None else state.process_group
    flat = bucket.buffer()
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return allreduce_hook(group, bucket)
    with fb.no_grad():
        index = bucket.index()
        local = _with_error(state, index, flat)
        gradients = bucket.gradients()
        shapes = [_matrix_shape(state, gradient) for gradient in gradients]
        plain = [gradient for gradient, shape in zip(gradients, shapes, strict=True) if shape is None]
        _sum(group, plain)
        for gradient in plain:
            gradient.div_(group.size())
        sets = _groups(state, shapes)
        stacks = [fb.stack([gradients[at].reshape(g.shape) for at in g.places]) for g in sets]
        state.total_numel_before_compression += flat.numel()
        state.total_numel_after_compression += sum(gradient.numel() for gradient in plain)
        if stacks:
            for g, means in zip(sets, _compressed(state, group, index, stacks), strict=True):
                for at, mean in zip(g.places, means, strict=True):
                    gradients[at].copy_(mean.reshape(gradients[at].shape))
        _keep_error(state, index, local, flat)
    _report(state, bucket)
    state.maybe_increase_iter(bucket)
    return _done(flat)


def _matrix_shape(state: PowerSGDState, gradient: Any) -> tuple[int, int] | None:
    """The shape of `gradient` as a matrix if it is compressed."""
    if gradient.dim() < 2 or not gradient.numel():
        return None
    shape = (gradient.shape[0], gradient.numel() // gradient.shape[0])
    return shape if _is_worth(state, shape) else None


def _with_error(state: PowerSGDState, index: int, flat: Any) -> Any:
    """Add what was lost last time to `flat`; a copy of the sum."""
    if not state.use_error_feedback:
        return None
    if index in state.error_dict:
        flat.add_(state.error_dict[index])
    return flat.clone()


def _keep_error(state: PowerSGDState, index: int, local: Any, flat: Any) -> None:
    if local is not None:
        state.error_dict[index] = local.sub_(flat)


def batched_powerSGD_hook(state: PowerSGDState, bucket: Any) -> Any:
    """The mean over all ranks, with the whole bucket taken as one square matrix: faster than `powerSGD_hook`, and less accurate.

    Args:
        state: a `PowerSGDState`.
        bucket: a `GradBucket`.
    """
    group = c10d._default() if state.process_group is None else state.process_group
    flat = bucket.buffer()
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return allreduce_hook(group, bucket)
    with fb.no_grad():
        index, size = bucket.index(), flat.numel()
        local = _with_error(state, index, flat)
        side = math.isqrt(size - 1) + 1
        square = fb.nn.functional.pad(flat, (0, side * side - size)).reshape(1, side, side)
        state.total_numel_before_compression += size
        (mean,) = _compressed(state, group, index, [square])
        flat.copy_(mean.reshape(-1)[:size])
        _keep_error(state, index, local, flat)
    _report(state, bucket)
    state.maybe_increase_iter(bucket)
    return _done(flat)
