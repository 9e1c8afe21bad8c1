"""Exceptions of `flambeau.distributed`; all of them are RuntimeErrors."""

from __future__ import annotations

__all__ = ["DistBackendError", "DistError", "DistNetworkError", "DistStoreError", "QueueEmptyError"]


class DistError(RuntimeError):
    """Something went wrong between the processes of a job."""


class DistBackendError(DistError):
    """An engine could not do what was asked: a rank died, came late, or called something else."""


class DistNetworkError(DistError):
    """A connection broke, was refused, or was not to be trusted."""


class DistStoreError(DistError):
    """A store could not answer, most often because a key did not come in time."""


class QueueEmptyError(DistStoreError):
    """A queue of a store has nothing to pop."""


for _class in (DistBackendError, DistError, DistNetworkError, DistStoreError, QueueEmptyError):
    _class.__module__ = "flambeau.distributed"
