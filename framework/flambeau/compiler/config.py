"""Settings of PyTorch's compiler as a whole: kept as set. Nothing reads them, for nothing is learned of dynamic sizes here."""

from __future__ import annotations

from .._setting_modules import settings_of

job_id: str | None = None  # names a job whose processes share what they learn of dynamic sizes
pgo_extra_read_key: str | None = None
pgo_extra_write_key: str | None = None
cache_key_tag = ""
force_disable_caches = False
dynamic_sources = ""
dynamic_values = ""
unbacked_sources = ""
force_cudagraph_gc = False

patch = settings_of(__name__, ("annotations", "settings_of")).patch
