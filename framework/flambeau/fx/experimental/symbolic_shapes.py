"""Symbolic shapes: sizes that stand for any value, and what is asked of them."""

from __future__ import annotations

from ._shape_env import ShapeEnv

__all__ = ["ShapeEnv"]
