"""Which of PyTorch's engines for quantized operators a program asks for. Kernels here are Flambeau's own, the same for each."""

from __future__ import annotations

import sys
from types import ModuleType

_ENGINES = ["qnnpack", "onednn", "x86", "fbgemm"]


class QuantizedEngine(ModuleType):
    """The module, whose `engine` is checked when it is set."""

    _engine = "x86"

    @property
    def engine(self) -> str:
        """The engine that was asked for; "x86" by default. Raises: RuntimeError when set to none of `supported_engines`."""
        return self._engine

    @engine.setter
    def engine(self, name: str) -> None:
        if name == "none":
            raise RuntimeError("quantized engine NoQEngine is not supported")
        if name not in _ENGINES:
            raise RuntimeError(f"{name} is not a valid value for quantized engine")
        self._engine = name

    @property
    def supported_engines(self) -> list[str]:
        """The engines that can be asked for."""
        return list(_ENGINES)

    @supported_engines.setter
    def supported_engines(self, _: object) -> None:
        raise RuntimeError("Assignment not supported")


sys.modules[__name__].__class__ = QuantizedEngine
