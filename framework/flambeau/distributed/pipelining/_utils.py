"""What stages agree on: shapes and dtypes of what goes from one to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import flambeau as fb

__all__ = ["PipeInfo", "PipeliningShapeError", "TensorMeta", "check_metas", "metas_of"]


class PipeliningShapeError(RuntimeError):
    """A tensor between stages has another shape or dtype than what was agreed on."""


@dataclass
class PipeInfo:
    """What a stage needs to know of the pipeline that it belongs to.

    Args:
        graph: the graph that calls the stages one after the other.
        num_stages: how many there are.
        has_loss_and_backward: whether the last one computes a loss.
    """

    graph: Any
    num_stages: int
    has_loss_and_backward: bool = False


class TensorMeta(NamedTuple):
    """What is agreed on about one tensor."""

    shape: tuple[int, ...]
    dtype: str
    requires_grad: bool

    def __str__(self) -> str:
        return f"{self.shape} {self.dtype}{', requires grad' if self.requires_grad else ''}"


def metas_of(where: str, values: Any) -> list[TensorMeta]:
    """The metas of `values`, which must be tensors; `where` names them in errors."""
    metas = []
    for at, value in enumerate(values):
        if not isinstance(value, fb.Tensor):
            raise TypeError(f"{where} {at} is of type {type(value).__name__}; only tensors travel between stages, so compute it on each")
        metas.append(TensorMeta(tuple(value.shape), str(value.dtype), value.requires_grad))
    return metas


def check_metas(where: str, expected: list[TensorMeta], found: list[TensorMeta], source: str, grads: bool = True) -> None:
    """Compare what is there with what was agreed on.

    Args:
        where: names the values, such as "stage 1: output".
        expected, found: the two.
        source: where `expected` comes from.
        grads: whether it counts which require grad.
    Raises: PipeliningShapeError that names stage and argument.
    """
    if len(expected) != len(found):
        raise PipeliningShapeError(
            f"{where}: there are {len(found)} ({'; '.join(map(str, found))}), {source} {len(expected)} "
            f"({'; '.join(map(str, expected))})"
        )
    for at, (wanted, have) in enumerate(zip(expected, found, strict=True)):
        differs = wanted[:2] != have[:2] or grads and wanted.requires_grad != have.requires_grad
        if differs:
            raise PipeliningShapeError(f"{where} {at} has {have}, {source} {wanted}. Shapes and dtypes must stay the same.")
