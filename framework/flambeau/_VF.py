"""Functions in the form PyTorch's operators have, as its modules call them: ``_VF.lstm``. The same as at the top level."""

from __future__ import annotations

from typing import Any

import flambeau as fb


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(fb, name)
