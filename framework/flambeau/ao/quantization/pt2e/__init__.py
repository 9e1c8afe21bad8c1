"""How an annotated program is prepared and converted; the functions that programs call are in `quantize_pt2e`."""

from __future__ import annotations

from ...._on_demand import names_on_demand

__all__: list[str] = []


__getattr__, __dir__ = names_on_demand(__name__, modules=("export_utils",))
