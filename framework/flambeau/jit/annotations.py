"""Types that annotations of scripts are written with."""

from __future__ import annotations

from typing import Any, Dict, Final, List, Optional, Tuple, Union  # noqa: UP035  # the names that programs import here

from .._jit_internal import BroadcastingList1, BroadcastingList2, BroadcastingList3
from ..futures import Future

__all__ = [
    "Any", "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "Dict", "Final", "Future", "List", "Optional",
    "Tuple", "Union",
]  # fmt: skip
