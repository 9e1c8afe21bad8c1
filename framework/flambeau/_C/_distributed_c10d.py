"""The flight recorder: the last calls of collectives, as programs and tools ask PyTorch's compiled module for them."""

from __future__ import annotations

from typing import NoReturn

from .. import _missing

__all__ = ["_dump_fr_trace", "_dump_fr_trace_json"]


def _dump_fr_trace(
    includeCollectives: bool | None = None, includeStackTraces: bool | None = None, onlyActive: bool | None = None
) -> bytes:
    """The last calls of this process, pickled: a dict of plain values.

    Args:
        includeCollectives: the calls, not only how far each group has come; True if None.
        includeStackTraces: the line of the program that made each call; True if None.
        onlyActive: only calls that have not ended; False if None.
    """
    import pickle

    from ..distributed._ledger import flight_record

    return pickle.dumps(flight_record(includeCollectives is not False, includeStackTraces is not False, bool(onlyActive)))


def _dump_fr_trace_json(includeCollectives: bool | None = None, onlyActive: bool | None = None) -> bytes:
    """As `_dump_fr_trace`, as JSON and without lines of the program."""
    import json

    from ..distributed._ledger import flight_record

    return json.dumps(flight_record(includeCollectives is not False, False, bool(onlyActive))).encode()


def __getattr__(name: str) -> NoReturn:
    raise _missing.attribute_error(__name__, name)
