"""Sequences of different lengths: padded to one tensor, or packed without padding."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import flambeau as fb

from ..._subclass import overridable_function

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpad_sequence",
    "pack_sequence",
    "unpack_sequence",
]

Tensor = fb.Tensor

PackedSequence_ = namedtuple("PackedSequence_", ["data", "batch_sizes", "sorted_indices", "unsorted_indices"])


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes `permutation`; None for None."""
    if permutation is None:
        return None
    inverse = fb.empty_like(permutation)
    return inverse.scatter_(0, permutation, fb.arange(permutation.numel(), device=permutation.device))


class PackedSequence(PackedSequence_):
    """Sequences sorted by falling length and stored step by step, without padding.

    Made by `pack_padded_sequence` and `pack_sequence`; the recurrent modules take and return it.

    Attributes:
        data: (sum of lengths, *): all first steps, then all second steps, and so on.
        batch_sizes: int64 on the CPU: how many sequences have each step.
        sorted_indices: which input each sequence was, or None if they came sorted.
        unsorted_indices: the inverse.
    """

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if batch_sizes is None:
            # The older form: data is a pair.
            if not (isinstance(data, (list, tuple)) and len(data) == 2):
                raise AssertionError("PackedSequence needs batch_sizes")
            data, batch_sizes = data
        elif batch_sizes.device.type != "cpu":
            raise ValueError(f"PackedSequence: batch_sizes must be on the CPU, is on {batch_sizes.device}")
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """With `data` converted as by `Tensor.to`; the indices follow to its device."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self

        def move(t: Tensor | None) -> Tensor | None:
            return None if t is None else t.to(data.device)

        return type(self)(data, self.batch_sizes, move(self.sorted_indices), move(self.unsorted_indices))

    def pin_memory(self) -> PackedSequence:
        """With everything in page-locked memory."""

        def pin(t: Tensor | None) -> Tensor | None:
            return None if t is None else t.pin_memory()

        return type(self)(self.data.pin_memory(), self.batch_sizes, pin(self.sorted_indices), pin(self.unsorted_indices))

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """On a CUDA device."""
        return type(self)(
            self.data.cuda(*args, **kwargs), self.batch_sizes, self.sorted_indices, self.unsorted_indices
        ).to(self.data.cuda(*args, **kwargs).device)

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """On the CPU."""
        return self.to("cpu", *args, **kwargs)

    def double(self) -> PackedSequence:
        """As float64."""
        return self.to(fb.double)

    def float(self) -> PackedSequence:
        """As float32."""
        return self.to(fb.float)

    def half(self) -> PackedSequence:
        """As float16."""
        return self.to(fb.half)

    def long(self) -> PackedSequence:
        """As int64."""
        return self.to(fb.long)

    def int(self) -> PackedSequence:
        """As int32."""
        return self.to(fb.int)

    def short(self) -> PackedSequence:
        """As int16."""
        return self.to(fb.short)

    def char(self) -> PackedSequence:
        """As int8."""
        return self.to(fb.int8)

    def byte(self) -> PackedSequence:
        """As uint8."""
        return self.to(fb.uint8)

    @property
    def is_cuda(self) -> bool:
        """Whether the data is on a CUDA device."""
        return self.data.is_cuda

    def is_pinned(self) -> bool:
        """Whether the data is in page-locked memory."""
        return self.data.is_pinned()


def _checked_lengths(lengths: Any, batch: int, longest: int) -> list[int]:
    lengths = lengths.tolist() if isinstance(lengths, Tensor) else [int(n) for n in lengths]
    if len(lengths) != batch:
        raise RuntimeError(f"Expected `len(lengths)` to be equal to batch_size, but got {len(lengths)} (batch_size={batch})")
    if any(n <= 0 for n in lengths):
        raise RuntimeError(f"Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0: {lengths}")
    if max(lengths) > longest:
        raise RuntimeError(f"pack_padded_sequence: length {max(lengths)} exceeds the {longest} steps of the input")
    return lengths


def pack_padded_sequence(input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True) -> PackedSequence:
    """Pack padded sequences.

    Args:
        input: (T, N, *), or with `batch_first` (N, T, *).
        lengths: N lengths, a list or a CPU tensor.
        enforce_sorted: whether they must be falling already; otherwise they are sorted here.
    Raises: RuntimeError for lengths that are not positive, too long, too few, or not falling.
    """
    if isinstance(lengths, Tensor) and lengths.device.type != "cpu":
        raise RuntimeError(f"pack_padded_sequence: lengths must be on the CPU, are on {lengths.device}")
    if not isinstance(input, Tensor):
        raise TypeError(f"pack_padded_sequence(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    if batch_first:
        input = input.transpose(0, 1)
    if input.dim() < 2 or input.numel() == 0:
        raise RuntimeError(f"pack_padded_sequence: cannot pack an input of shape {tuple(input.shape)}")
    lengths = _checked_lengths(lengths, input.shape[1], input.shape[0])
    sorted_indices = None
    if enforce_sorted:
        if any(a < b for a, b in pairwise(lengths)):
            raise RuntimeError(
                "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass `enforce_sorted=False` to "
                f"pack_padded_sequence and/or pack_sequence to have them sorted; got {lengths}"
            )
    else:
        order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
        sorted_indices = fb.tensor(order, dtype=fb.int64).to(input.device)
        input = input.index_select(1, sorted_indices)
        lengths = [lengths[i] for i in order]
    sizes = [sum(n > step for n in lengths) for step in range(lengths[0])]
    data = fb.cat([input[step, :size] for step, size in enumerate(sizes)])
    return PackedSequence(data, fb.tensor(sizes, dtype=fb.int64), sorted_indices, None)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Undo `pack_padded_sequence`.

    Args:
        padding_value: what fills the ends of shorter sequences.
        total_length: number of steps of the result; by default that of the longest sequence.
    Returns: (T, N, *), or with `batch_first` (N, T, *), and the lengths.
    Raises: ValueError if `total_length` is too short.
    """
    sizes = sequence.batch_sizes.tolist()
    steps = len(sizes)
    if total_length is not None:
        if total_length < steps:
            raise ValueError(
                f"pad_packed_sequence: total_length={total_length} is shorter than the longest sequence, "
                f"{steps}"
            )
        steps = total_length
    if not sizes:
        raise RuntimeError("pad_packed_sequence: batch_sizes of a PackedSequence can not be empty")
    parts = sequence.data.split(sizes)                # also sees to it that no size exceeds the rows there are
    batch, trailing = sizes[0], tuple(sequence.data.shape[1:])
    lengths = fb.tensor([sum(size > i for size in sizes) for i in range(batch)], dtype=fb.int64)

    def filled(*shape: int) -> Tensor:
        return sequence.data.new_full((*shape, *trailing), padding_value)

    rows = [
        fb.cat((part, filled(batch - part.shape[0]))) if part.shape[0] < batch else part
        for part in parts
    ]
    padded = fb.stack(rows)  # (T, N, *)
    if steps > len(sizes):
        padded = fb.cat((padded, filled(steps - len(sizes), batch)))
    order = sequence.unsorted_indices
    if order is not None:
        padded = padded.index_select(1, order)
        lengths = lengths[order.cpu()]
    return (padded.transpose(0, 1) if batch_first else padded), lengths


@overridable_function
def pad_sequence(
    sequences: Tensor | Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Stack sequences of different lengths.

    Args:
        sequences: tensors ``(length, *)``, alike but for their lengths.
        padding_value: what fills the ends of shorter sequences.
        padding_side: ``'right'`` or ``'left'``.
    Returns: (T, N, *), or with `batch_first` (N, T, *), with T the longest length.

    >>> nn.utils.rnn.pad_sequence([fb.ones(1), fb.ones(3)], batch_first=True)
    tensor([[1., 0., 0.],
            [1., 1., 1.]])
    """
    if isinstance(sequences, Tensor):
        sequences = sequences.unbind(0)
    elif not isinstance(sequences, (list, tuple)) and not hasattr(sequences, "__iter__"):
        raise RuntimeError(f"pad_sequence expects sequences of tensors, got {type(sequences).__name__}")
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"pad_sequence: padding_side must be 'left' or 'right', got {padding_side!r}")
    sequences = tuple(sequences)
    for at, each in enumerate(sequences):
        if not isinstance(each, Tensor):
            raise TypeError(f"pad_sequence(): expected Tensor as element {at} in argument 0, but got {type(each).__name__}")
    if not sequences:
        raise RuntimeError("pad_sequence: expected at least one sequence, got none")
    longest = max(s.shape[0] for s in sequences)

    def padded(s: Tensor) -> Tensor:
        if s.shape[0] == longest:
            return s
        filler = s.new_full((longest - s.shape[0], *s.shape[1:]), padding_value)
        return fb.cat((s, filler) if padding_side == "right" else (filler, s))

    return fb.stack([padded(s) for s in sequences], dim=0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """Undo `pad_sequence`: the list of sequences, cut to their lengths.

    Args:
        padded_sequences: (T, N, *), or with `batch_first` (N, T, *).
        lengths: (N,).
    """
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [s[: max(int(n), 0)] for s, n in zip(padded_sequences, lengths, strict=True)]


def pack_sequence(sequences: list[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack tensors ``(length, *)``, alike but for their lengths. Arguments as `pack_padded_sequence`."""
    lengths = fb.as_tensor([s.size(0) for s in sequences])
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Undo `pack_sequence`: the list of sequences."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
