"""Where PyTorch keeps `trace` and its classes."""

from __future__ import annotations

from . import TracerWarning, is_tracing, script_if_tracing, trace, trace_module
from ._modules import TopLevelTracedModule

__all__ = ["TopLevelTracedModule", "TracerWarning", "is_tracing", "script_if_tracing", "trace", "trace_module"]
