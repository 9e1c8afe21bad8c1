"""What programs of spread tensors do: collectives counted by module, and pieces drawn as a table."""

from __future__ import annotations

from ._comm_mode import CommDebugMode
from ._visualize import visualize_sharding

__all__ = ["CommDebugMode", "visualize_sharding"]
