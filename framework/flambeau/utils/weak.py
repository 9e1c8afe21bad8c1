"""Dicts whose keys are compared by what they are, not by what they hold, and are not kept alive; references that notice new owners."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

from ..tensor import Tensor

__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary"]


class WeakIdRef(weakref.ref):  # type: ignore[type-arg]
    """A weak reference that is equal to those to the very same object, also after this has gone; its hash is the object's id."""

    __slots__ = ("_id",)

    def __init__(self, key: Any, callback: Callable[..., Any] | None = None) -> None:
        super().__init__(key, callback)  # type: ignore[call-arg]
        self._id = id(key)

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        mine, theirs = self(), other() if isinstance(other, weakref.ref) else None
        if mine is not None and theirs is not None:
            return mine is theirs
        return self is other


class WeakIdKeyDictionary(MutableMapping[Any, Any]):
    """A dict that finds keys by identity and forgets entries whose key is gone.

    Args:
        dict: entries to begin with.
        ref_type: makes the references to keys.
    """

    def __init__(self, dict: Any = None, ref_type: Any = WeakIdRef) -> None:
        self.data: Any = {}
        self.ref_type = ref_type
        gone = weakref.ref(self)

        def forget(reference: Any) -> None:
            itself = gone()
            if itself is not None:
                itself.data.pop(reference, None)

        self._forget = forget
        if dict is not None:
            self.update(dict)

    def __delitem__(self, key: Any) -> None:
        del self.data[self.ref_type(key)]

    def __getitem__(self, key: Any) -> Any:
        return self.data[self.ref_type(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self.ref_type(key, self._forget)] = value

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x}>"

    def __contains__(self, key: object) -> bool:
        try:
            return self.ref_type(key) in self.data
        except TypeError:                             # what no weak reference can be made to
            return False

    def __iter__(self) -> Iterator[Any]:
        # Over a copy, as keys may go meanwhile.
        for reference in list(self.data):
            key = reference()
            if key is not None:
                yield key

    def items(self) -> Iterator[tuple[Any, Any]]:  # type: ignore[override]
        """The entries whose key is alive."""
        for reference, value in list(self.data.items()):
            key = reference()
            if key is not None:
                yield key, value

    def keys(self) -> Iterator[Any]:  # type: ignore[override]
        """The keys that are alive."""
        return iter(self)

    def values(self) -> Iterator[Any]:  # type: ignore[override]
        """The values whose key is alive."""
        for reference, value in list(self.data.items()):
            if reference() is not None:
                yield value

    def keyrefs(self) -> list[Any]:
        """References to the keys, some of which may be gone."""
        return list(self.data)

    def popitem(self) -> tuple[Any, Any]:
        """Take an entry out, the last whose key is alive. Raises: KeyError where there is none."""
        while True:
            reference, value = self.data.popitem()
            key = reference()
            if key is not None:
                return key, value

    def pop(self, key: Any, *args: Any) -> Any:
        """Take the entry of `key` out; a second argument is what to give where there is none. Raises: KeyError without it."""
        return self.data.pop(self.ref_type(key), *args)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """The value of `key`, which is made `default` where there is none."""
        return self.data.setdefault(self.ref_type(key, self._forget), default)

    def update(self, dict: Any = None, **kwargs: Any) -> None:  # type: ignore[override]
        """Take over the entries of `dict`. Raises: TypeError for names, to which no weak reference can be made."""
        for key, value in dict.items() if hasattr(dict, "items") else dict or ():
            self[key] = value
        for name, value in kwargs.items():
            self[name] = value

    def copy(self) -> WeakIdKeyDictionary:
        """A dict of the same keys and values."""
        return WeakIdKeyDictionary(self, self.ref_type)

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> WeakIdKeyDictionary:
        from copy import deepcopy

        made = type(self)(ref_type=self.ref_type)
        for key, value in self.items():
            made[key] = deepcopy(value, memo)
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return {id(key): value for key, value in self.items()} == {id(key): value for key, value in other.items()}

    __hash__ = None  # type: ignore[assignment]

    def __or__(self, other: Any) -> Any:
        if not isinstance(other, Mapping):
            return NotImplemented
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other: Any) -> Any:
        if not isinstance(other, Mapping):
            return NotImplemented
        made = type(self)(other, self.ref_type)
        made.update(self)
        return made

    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self


WeakTensorKeyDictionary = WeakIdKeyDictionary


class TensorWeakRef:
    """A weak reference to a tensor; calling it gives the tensor, or None once it has gone. Raises: AssertionError for another object."""

    ref: WeakIdRef

    def __init__(self, tensor: Tensor) -> None:
        if not isinstance(tensor, Tensor):
            raise AssertionError(f"expected torch.Tensor, got {type(tensor)}.")
        self.ref = WeakIdRef(tensor)

    def __call__(self) -> Tensor | None:
        return self.ref()
