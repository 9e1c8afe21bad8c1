"""What runs passes: partitioning by capability, and managers of passes."""

from __future__ import annotations

from . import partitioner, pass_base, pass_manager

__all__ = ["partitioner", "pass_base", "pass_manager"]
