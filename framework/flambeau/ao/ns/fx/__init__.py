"""How far two tensors are apart; see `utils`."""

from __future__ import annotations

from ...._on_demand import names_on_demand

__all__: list[str] = []


__getattr__, __dir__ = names_on_demand(__name__, modules=("utils",))
