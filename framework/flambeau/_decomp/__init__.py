"""What operators are made of: functions by operator, for ``make_fx(decomposition_table=...)``."""

from __future__ import annotations

from .table import (
    core_aten_decompositions,
    decomposition_table,
    get_decompositions,
    global_decomposition_table,
    load,
    register_decomposition,
    remove_decompositions,
)

__all__ = [
    "core_aten_decompositions", "decomposition_table", "get_decompositions", "global_decomposition_table", "register_decomposition",
    "remove_decompositions",
]  # fmt: skip

load()
