"""PyTorch's names for errors of its reader of scripts. `jit.script` itself raises RuntimeError, with the place in the source."""

from __future__ import annotations

from typing import Any, NoReturn

from .. import _missing

__all__ = ["FrontendError", "FrontendTypeError", "NotSupportedError", "UnsupportedNodeError"]


class FrontendError(Exception):
    """Source that cannot be a script's: `msg`, and where it stands."""

    def __init__(self, source_range: Any, msg: str) -> None:
        super().__init__(source_range, msg)
        self.source_range, self.msg = source_range, msg

    def __str__(self) -> str:
        return f"{self.msg}\n{self.source_range}"


class FrontendTypeError(FrontendError):
    """Source whose types cannot be a script's."""


class NotSupportedError(FrontendError):
    """Source in a part of Python that scripts lack."""


class UnsupportedNodeError(NotSupportedError):
    """A statement or expression that scripts lack."""


def _unbuilt(name: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise _missing.not_built(f"jit.frontend.{name}", "use `jit.script`, which reads functions and modules by itself")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "Not built: raises NotImplementedError."
    return refuse


get_jit_def = _unbuilt("get_jit_def")
get_jit_class_def = _unbuilt("get_jit_class_def")
