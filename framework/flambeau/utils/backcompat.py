"""Switches of warnings that programs written for PyTorch before 0.2 asked for. They are kept; nothing here behaves as it did then."""

from __future__ import annotations


class Warning:  # PyTorch's name
    """The switch of one warning: `enabled`, a bool.

    Args:
        name: how errors call it.
    """

    def __init__(self, name: str) -> None:
        self._name, self._enabled = name, False

    @property
    def enabled(self) -> bool:
        """Whether the warning is asked for. Raises: RuntimeError when set to what is no bool."""
        return self._enabled

    @enabled.setter
    def enabled(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise RuntimeError(f"set_backcompat_{self._name}_warn expects a bool, but got {type(value).__name__}")
        self._enabled = value


broadcast_warning = Warning("broadcast")              # where tensors of as many elements would not have been stretched
keepdim_warning = Warning("keepdim")                  # where a reduction would have kept its dimension
