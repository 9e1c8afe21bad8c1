"""Where PyTorch places the class of custom operators, which `flambeau.library` makes, and fake kernels after profiles."""

from __future__ import annotations

from . import custom_ops, fake_profile

__all__ = ["custom_ops", "fake_profile"]
