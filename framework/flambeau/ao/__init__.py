"""`torch.ao` as far as models name it; see `quantization`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .. import _missing

__all__ = ["quantization"]


def __getattr__(name: str) -> Any:
    if name in __all__:                               # on first use, as in PyTorch
        return import_module(f".{name}", __name__)
    raise _missing.attribute_error(__name__, name)
