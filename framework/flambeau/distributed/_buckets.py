"""What a communication hook of DistributedDataParallel is given."""

from __future__ import annotations

from typing import Any

__all__ = ["GradBucket"]


class GradBucket:
    """Gradients that are sent together: a flat tensor, and views into it.

    Args:
        index: the bucket's number.
        buffer: the flat tensor.
        parameters: whose gradients it holds, in this order.
        last: whether it is the last one.
    """

    def __init__(self, index: int, buffer: Any, parameters: list[Any], last: bool) -> None:
        self._index, self._buffer, self._parameters, self._last = index, buffer, parameters, last

    def index(self) -> int:
        """The bucket's number; buckets are sent in this order."""
        return self._index

    def buffer(self) -> Any:
        """The flat tensor."""
        return self._buffer

    def set_buffer(self, buffer: Any) -> None:
        """Take `buffer`, of the same size, as the flat tensor."""
        if buffer.numel() != self._buffer.numel():
            raise RuntimeError(f"GradBucket.set_buffer: {buffer.numel()} elements for a bucket of {self._buffer.numel()}")
        self._buffer = buffer

    def gradients(self) -> list[Any]:
        """Views into the flat tensor, in the shapes of the parameters."""
        views, at = [], 0
        for parameter in self._parameters:
            views.append(self._buffer[at : at + parameter.numel()].view(parameter.shape))
            at += parameter.numel()
        return views

    def parameters(self) -> list[Any]:
        """The parameters whose gradients these are."""
        return list(self._parameters)

    def is_last(self) -> bool:
        """Whether no other bucket follows in this backward."""
        return self._last
