"""Copies of state dicts that training cannot change, for `async_save`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import flambeau as fb

from .metadata import STATE_DICT_TYPE

__all__ = ["AsyncStager", "BlockingAsyncStager"]


@runtime_checkable
class AsyncStager(Protocol):
    """Copies a state dict before `async_save` returns.

    `stage` is called first. If `should_synchronize_after_execute`, `synchronize_staging` is called before `async_save` returns;
    else the program calls it before it changes what is being copied.
    """

    _synchronize_after_execute: bool = True

    @property
    def should_synchronize_after_execute(self) -> bool:
        """Whether `async_save` waits until the copy is complete."""
        return self._synchronize_after_execute

    def stage(self, state_dict: STATE_DICT_TYPE) -> STATE_DICT_TYPE:
        """A copy of `state_dict` that later changes of it do not reach."""
        raise NotImplementedError(f"{type(self).__name__}: define stage(self, state_dict)")

    def synchronize_staging(self) -> None:
        """Wait until the copy is complete."""


class BlockingAsyncStager(AsyncStager):
    """Copies to the CPU's memory, and returns when that is done.

    Args:
        cache_staged_state_dict: keep the copy, and copy into its tensors the next time.
        type_check: taken for compatibility.
    """

    _synchronize_after_execute: bool = False

    def __init__(self, cache_staged_state_dict: bool = False, type_check: bool = False) -> None:
        self.cache_staged_state_dict = cache_staged_state_dict
        self.type_check = type_check
        self.state_dict_cache: STATE_DICT_TYPE | None = None

    def stage(self, state_dict: STATE_DICT_TYPE) -> STATE_DICT_TYPE:
        made = copied(state_dict, self.state_dict_cache if self.cache_staged_state_dict else None)
        if self.cache_staged_state_dict:
            self.state_dict_cache = made
        return made

    def synchronize_staging(self) -> None:
        pass


def copied(value: Any, into: Any = None) -> Any:
    """`value` with copies on the CPU of all tensors in it; those of `into`, a copy made before, where they fit."""
    if isinstance(value, fb.Tensor):
        fits = isinstance(into, fb.Tensor) and into.shape == value.shape and into.dtype == value.dtype and type(into) is fb.Tensor
        if fits and not hasattr(value, "__create_write_items__"):
            return into.copy_(value.detach())
        return value.detach().cpu().clone() if value.is_cpu else value.detach().cpu()
    if isinstance(value, Mapping):
        old = into if isinstance(into, Mapping) else {}
        made = {key: copied(v, old.get(key)) for key, v in value.items()}
        return made if type(value) is dict else _same_kind(value, made)
    if isinstance(value, (list, tuple)):
        old = into if isinstance(into, (list, tuple)) and len(into) == len(value) else [None] * len(value)
        items = [copied(v, o) for v, o in zip(value, old, strict=True)]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    import copy

    return copy.deepcopy(value)


def _same_kind(value: Any, made: dict[Any, Any]) -> Any:
    from collections import OrderedDict

    return OrderedDict(made) if isinstance(value, OrderedDict) else made
