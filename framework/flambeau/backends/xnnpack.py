"""Not here: XNNPACK."""

from __future__ import annotations

enabled = False
