"""Exceptions that programs name in `except` clauses."""

from __future__ import annotations

__all__ = [
    "AcceleratorError", "LibraryCannotBeLoaded", "NeedsValues", "NoCudaDevice", "NotRecorded", "OutOfMemoryError", "RefusedForBatches",
    "ShapeCannotBeKnown", "ShapeDependsOnValues", "ValuesAreMissing", "ValuesCannotBeRead",
]  # fmt: skip


class OutOfMemoryError(RuntimeError):
    """A device has not as much memory as a tensor needs."""


class AcceleratorError(RuntimeError):
    """A device failed."""


class NoCudaDevice(RuntimeError, AssertionError):
    """A call needs a CUDA device. PyTorch without CUDA raises an AssertionError, and with CUDA but no device a RuntimeError."""


class LibraryCannotBeLoaded(OSError, NotImplementedError):
    """A library of operators in C++ is there and cannot be loaded: to programs that go on without it an OSError, as in PyTorch."""


class RefusedForBatches(RuntimeError):
    """An operation is refused on a batched tensor, which would answer for the one example that it stands for."""


class NeedsValues(RefusedForBatches):
    """Somebody asked a batched tensor for the values of its one example, of which there are many."""


class NotRecorded(NotImplementedError):
    """A recorder of graphs met a tensor that nothing it saw has made: nothing is wrong with the arguments of the call that it met it in."""


class ValuesAreMissing(RuntimeError):
    """Values were asked of a tensor that has none, as those of the meta device."""


class ValuesCannotBeRead(ValuesAreMissing, NotImplementedError):
    """`ValuesAreMissing`, where PyTorch says that this is not implemented."""


class ShapeDependsOnValues(ValuesAreMissing):
    """Values that a tensor has not decide the shape of a result."""


class ShapeCannotBeKnown(ShapeDependsOnValues, NotImplementedError):
    """`ShapeDependsOnValues`, where PyTorch says that this is not implemented."""
