"""How a traced model is prepared and converted; the functions that programs call are in `quantize_fx`."""

from __future__ import annotations

import importlib
from typing import Any

from .... import _missing

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    if name == "custom_config":
        return importlib.import_module("." + name, __name__)
    raise _missing.attribute_error(__name__, name)
