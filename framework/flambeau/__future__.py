"""Settings of how modules convert and load parameters, which a later version may make the default."""

from __future__ import annotations

__all__ = [
    "get_overwrite_module_params_on_conversion", "get_swap_module_params_on_conversion", "set_overwrite_module_params_on_conversion",
    "set_swap_module_params_on_conversion",
]  # fmt: skip

_overwrite = False
_swap = False


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Whether ``Module.to``, ``float``, ``cuda`` and ``to_empty`` put new parameters in place of those there, whose data they change else.

    Args:
        value: True for new parameters.
    """
    global _overwrite
    _overwrite = value


def get_overwrite_module_params_on_conversion() -> bool:
    """What `set_overwrite_module_params_on_conversion` has set; False at first."""
    return _overwrite


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Whether conversions, and ``Module.load_state_dict``, swap parameters with converted ones by `utils.swap_tensors`.

    The parameter stays the same object whatever changes, its device and class too. This setting goes before the other.

    Args:
        value: True to swap.
    """
    global _swap
    _swap = value


def get_swap_module_params_on_conversion() -> bool:
    """What `set_swap_module_params_on_conversion` has set; False at first."""
    return _swap
