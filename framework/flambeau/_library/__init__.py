"""Where PyTorch's documentation places the class of custom operators; `flambeau.library` makes them."""

from __future__ import annotations

from . import custom_ops

__all__ = ["custom_ops"]
