"""Where operators of programs were before `library`; packages such as torchvision still import this module for `get_ctx`."""

from __future__ import annotations

from .library import get_ctx, infer_schema

__all__ = ["get_ctx", "infer_schema"]
