"""Optimizers over several workers: `DistributedOptimizer`."""

from __future__ import annotations

from .optimizer import DistributedOptimizer

__all__ = ["DistributedOptimizer"]
