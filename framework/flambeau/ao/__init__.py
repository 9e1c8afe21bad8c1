"""`torch.ao` as far as models name it; see `quantization`."""

from __future__ import annotations

from typing import NoReturn

from .. import _missing

__all__: list[str] = []


def __getattr__(name: str) -> NoReturn:
    raise _missing.attribute_error(__name__, name)
