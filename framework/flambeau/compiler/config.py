"""Settings of PyTorch's compiler as a whole: kept as set. Nothing reads them, for nothing is learned of dynamic sizes here."""

from __future__ import annotations

job_id: str | None = None  # names a job whose processes share what they learn of dynamic sizes
dynamic_sources: str = ""
unbacked_sources: str = ""
force_disable_caches: bool = False

__all__ = ["dynamic_sources", "force_disable_caches", "job_id", "unbacked_sources"]
