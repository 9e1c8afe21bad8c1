"""The messages of TensorBoard's files. Their classes are made at run time, so that a type checker sees none of them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["proto"]


def proto(module: str) -> Any:
    """A module of generated messages, such as ``'compat.proto.summary_pb2'``."""
    return import_module(f"tensorboard.{module}")
