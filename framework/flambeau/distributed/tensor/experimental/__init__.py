"""Functions of plain tensors used on spread ones, rules of a program's own, and sequences divided among ranks."""

from __future__ import annotations

from .._rules import implicit_replication
from ._context_parallel import context_parallel
from ._local_map import local_map
from ._register import register_sharding

__all__ = ["context_parallel", "implicit_replication", "local_map", "register_sharding"]
