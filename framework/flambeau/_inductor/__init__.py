"""Private names of PyTorch's code generator that programs use; nothing is compiled by it here."""

from __future__ import annotations

from typing import Any, NoReturn

from .. import _missing
from . import config

__all__ = ["aoti_compile_and_package", "aoti_load_package", "config"]


def aoti_compile_and_package(exported_program: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Not built: raises NotImplementedError."""
    raise _missing.not_built("_inductor.aoti_compile_and_package", "modules run eagerly")


def aoti_load_package(path: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Not built: raises NotImplementedError."""
    raise _missing.not_built("_inductor.aoti_load_package", "build the module in Python and load its parameters")


def __getattr__(name: str) -> Any:
    raise _missing.attribute_error(__name__, name)
