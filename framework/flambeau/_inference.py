"""Inference tensors: what is made in `inference_mode` is not tracked, so it may be neither saved for backward nor written outside.

The mark is the first field of the storage record, the count of writes, which is an `Untracked` one. `_state.MARKING` is true while
a thread is in the mode, so that makers of tensors ask for a record here; `_state.MARKED` once there may be marked storage.
"""

from __future__ import annotations

from typing import Any

from . import _state

__all__ = ["Untracked", "is_inference", "new_record", "record_beside", "refuse_grad", "refuse_saved", "refuse_saving", "refuse_write"]


class Untracked(int):
    """The count of writes of storage that nobody counts them for; to count one outside of the mode is an error."""

    def __add__(self, more: int) -> Untracked:
        _refuse_write_here()
        return self


_COUNT = Untracked()


def new_record() -> list[Any]:
    """The record of storage that this thread makes."""
    return [_COUNT if _state.local.recording.inference else 0, 0, None, None]


def record_beside(tensor: Any) -> list[Any]:
    """A record of its own for a tensor over the memory of `tensor`, which is an inference tensor if that is one."""
    return [_COUNT if is_inference(tensor) else 0, 0, None, None]


def is_inference(tensor: Any) -> bool:
    """Whether `tensor` was made in inference mode, or is a view of one that was."""
    return tensor._storage[0].__class__ is Untracked


def _refuse_write_here() -> None:
    if not _state.local.recording.inference:
        raise RuntimeError(
            "Inplace update to inference tensor outside InferenceMode is not allowed."
            "You can make a clone to get a normal tensor before doing inplace update."
        )


def refuse_write(tensor: Any) -> None:
    """Raise RuntimeError if `tensor` is an inference tensor and this thread is not in the mode."""
    if tensor._storage[0].__class__ is Untracked:
        _refuse_write_here()


def refuse_saving(node: Any) -> None:
    """Raise RuntimeError if `node` has saved an inference tensor, other than for a transform of `flambeau.func`."""
    if _state.local.transforms:
        return
    for record in node.versions:
        for one in record if record.__class__ is tuple else (record,):
            refuse_saved(one)


def refuse_saved(record: Any) -> None:
    """Raise RuntimeError if `record`, or None, is that of an inference tensor that is to be saved for backward."""
    if record is not None and record[0].__class__ is Untracked:
        raise RuntimeError(
            "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in "
            "computation tracked by autograd. To work around this, you can make a clone to get a normal tensor and use it "
            "in autograd, or use `torch.no_grad()` instead of `torch.inference_mode()`."
        )


def refuse_grad(tensor: Any) -> None:
    """Raise RuntimeError if `tensor` is an inference tensor that is to require grad outside of the mode."""
    if is_inference(tensor) and not _state.local.recording.inference and not _state.local.transforms:
        raise RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.")
