"""Other ways of computing attention that programs bring along, by name: nothing but their function runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import _missing, _warn

__all__ = [
    "activate_flash_attention_impl", "current_flash_attention_impl", "list_flash_attention_impls", "register_flash_attention_impl",
    "restore_flash_attention_impl",
]  # fmt: skip

# Those of PyTorch are for CUDA devices, and come with other packages.
_KNOWN: dict[str, Callable[..., Any] | None] = {"FA3": None, "FA4": None}
_active: list[tuple[str, Any]] = []


def register_flash_attention_impl(impl: str, *, register_fn: Callable[..., Any]) -> None:
    """Let `activate_flash_attention_impl` know `impl`.

    Args:
        impl: the name.
        register_fn: called to put it in force; what it returns may have a method ``remove``, which takes it out.
    """
    _KNOWN[impl] = register_fn


def list_flash_attention_impls() -> list[str]:
    """The names that are known."""
    return sorted(_KNOWN)


def activate_flash_attention_impl(impl: str) -> None:
    """Put `impl` in force.

    Raises: ValueError for a name that is not known; NotImplementedError for PyTorch's own.
    """
    if impl not in _KNOWN:
        raise ValueError(f"Unknown flash attention impl '{impl}'. Available implementations: {list_flash_attention_impls()}")
    register = _KNOWN[impl]
    if register is None:
        raise _missing.not_built(f"nn.attention.activate_flash_attention_impl('{impl}')", "attention has kernels of its own here")
    if _active:
        restore_flash_attention_impl(False)
    _active.append((impl, register()))


def current_flash_attention_impl() -> str | None:
    """The name of what is in force; None for what is built in."""
    return _active[-1][0] if _active else None


def restore_flash_attention_impl(_raise_warn: bool = True) -> None:
    """Take what is in force out. Warns: UserWarning where nothing was put in force."""
    if not _active:
        if _raise_warn:
            _warn.warn("Trying to restore default FA2 impl when no custom impl was activated", UserWarning)
        return
    _, handle = _active.pop()
    if handle is not None and hasattr(handle, "remove"):
        handle.remove()
