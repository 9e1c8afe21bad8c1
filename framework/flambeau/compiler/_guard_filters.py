"""Filters of guards, for ``compile(..., options={"guard_filter_fn": ...})``: which conditions of a compiled program to keep.

Nothing is guarded here, for Python runs in every call, so no filter is ever asked; programs that name these run, and filters of their own
may call them. An entry has the attributes of PyTorch's: `name`, `guard_type`, `is_global`, `has_value`, `value` and `orig_guard`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..nn.parameter import Parameter

__all__ = [
    "keep_portable_guards_unsafe", "keep_tensor_guards_unsafe", "skip_all_guards_unsafe", "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe", "skip_guard_on_inbuilt_nn_modules_unsafe",
]  # fmt: skip

_PORTABLE = ("GLOBAL_STATE", "SHAPE_ENV")


def skip_all_guards_unsafe(guard_entries: Iterable[Any]) -> list[bool]:
    """Keep none of `guard_entries`. Returns: for each whether it is kept."""
    return [False for _ in guard_entries]


def keep_tensor_guards_unsafe(guard_entries: Iterable[Any], keep_parameters: bool = False) -> list[bool]:
    """Keep those of `guard_entries` that are about tensors; about parameters only with `keep_parameters`.

    Returns: for each whether it is kept.
    """

    def kept(entry: Any) -> bool:
        return entry.guard_type == "TENSOR_MATCH" and (keep_parameters or not isinstance(entry.value, Parameter))

    return [kept(entry) for entry in guard_entries]


def keep_portable_guards_unsafe(guard_entries: Iterable[Any]) -> list[bool]:
    """Keep those of `guard_entries` about shapes, global settings and tensors that are no global variables: they mean the same elsewhere.

    Returns: for each whether it is kept.
    """
    return [entry.guard_type in _PORTABLE or entry.guard_type == "TENSOR_MATCH" and not entry.is_global for entry in guard_entries]


def skip_guard_on_globals_unsafe(guard_entries: Iterable[Any]) -> list[bool]:
    """Keep those of `guard_entries` that are not about global variables. Returns: for each whether it is kept."""
    return [not entry.is_global for entry in guard_entries]


def skip_guard_on_inbuilt_nn_modules_unsafe(guard_entries: Iterable[Any]) -> list[bool]:
    """Keep those of `guard_entries` that are not about modules of `nn`. Returns: for each whether it is kept."""
    return [not entry.orig_guard.source.is_unspecialized_builtin_nn_module() for entry in guard_entries]


def skip_guard_on_all_nn_modules_unsafe(guard_entries: Iterable[Any]) -> list[bool]:
    """Keep those of `guard_entries` that are not about modules. Returns: for each whether it is kept."""
    return [not entry.orig_guard.source.is_unspecialized_nn_module() for entry in guard_entries]
