"""Importable for packages that register translations of their operators; translating to opset 11 of ONNX is not built."""

from __future__ import annotations

from typing import NoReturn

from .. import _missing


def __getattr__(name: str) -> NoReturn:
    raise _missing.attribute_error(__name__, name)
