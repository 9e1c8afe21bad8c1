"""Signal processing: ``flambeau.signal``, which holds `windows`."""

from __future__ import annotations

from . import windows

__all__ = ["windows"]
