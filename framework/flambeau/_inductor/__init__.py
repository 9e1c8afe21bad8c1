"""Private names of PyTorch's code generator that programs use; nothing is compiled by it here."""

from __future__ import annotations

from typing import Any, NoReturn

from .. import _missing
from . import config

__all__ = ["aoti_compile_and_package", "aoti_load_package", "config", "list_mode_options", "list_options"]


def aoti_compile_and_package(exported_program: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Not built: raises NotImplementedError."""
    raise _missing.not_built("_inductor.aoti_compile_and_package", "modules run eagerly")


def aoti_load_package(path: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Not built: raises NotImplementedError."""
    raise _missing.not_built("_inductor.aoti_load_package", "build the module in Python and load its parameters")


def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> Any:
    """The settings that modes of `compile` stand for, by mode; those of `mode` alone, where it is given.

    Args:
        dynamic: accepted; kernels do not depend on sizes, so it makes no difference.
    Raises: RuntimeError for an unknown mode.

    >>> fb._inductor.list_mode_options("reduce-overhead")
    {'triton.cudagraphs': True}
    """
    if mode is None:
        return {name: dict(settings) for name, settings in _SETTINGS_OF_MODES.items()}
    if mode not in _SETTINGS_OF_MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(_SETTINGS_OF_MODES)}")
    return dict(_SETTINGS_OF_MODES[mode])


_SETTINGS_OF_MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "reduce-overhead": {"triton.cudagraphs": True},
    "max-autotune-no-cudagraphs": {"max_autotune": True, "coordinate_descent_tuning": True},
    "max-autotune": {"max_autotune": True, "triton.cudagraphs": True, "coordinate_descent_tuning": True},
}


def list_options() -> list[str]:
    """The names of settings that ``compile(options=...)`` takes, those of a group with its name before a dot."""
    return config.names()


def __getattr__(name: str) -> Any:
    raise _missing.attribute_error(__name__, name)
