"""Which elementary functions exist for which kind of float."""
from __future__ import annotations

from collections.abc import Callable

from flambeau_kernels.scalar.symbols import Kind, Symbol


def table(kind: Kind) -> dict[str, Callable[..., Symbol]]:
    """The elementary functions of `kind`, by their word."""
    return {}
