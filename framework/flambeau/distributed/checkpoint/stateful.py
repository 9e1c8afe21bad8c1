"""The protocol of objects that know how to be checkpointed."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, runtime_checkable

__all__ = ["Stateful", "StatefulT"]


@runtime_checkable
class Stateful(Protocol):
    """An object that gives its state as a dict, and takes it back."""

    def state_dict(self) -> dict[str, Any]:
        """The state; `load` asks for it too, to load in place."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over `state_dict`."""
        ...


StatefulT = TypeVar("StatefulT", bound=Stateful)
