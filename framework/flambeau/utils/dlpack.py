"""Memory shared with other array libraries through DLPack."""

from __future__ import annotations

from typing import Any

from flambeau.ops.creation.shared_memory import from_dlpack, to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]


def __getattr__(name: str) -> Any:
    from flambeau import _missing

    raise _missing.attribute_error(__name__, name)
