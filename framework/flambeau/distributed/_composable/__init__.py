"""The older place of functions that change a module in place."""

from __future__ import annotations

from ..fsdp import fully_shard

__all__ = ["fully_shard"]
