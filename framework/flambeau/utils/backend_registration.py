"""A kind of device that a third party adds, under a name of its own: ``privateuseone`` until it is renamed."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from .. import devices

__all__ = ["generate_methods_for_privateuse1_backend", "rename_privateuse1_backend"]


def rename_privateuse1_backend(backend_name: str) -> None:
    """Give the kind of device ``privateuseone`` another name, once in a process.

    Args:
        backend_name: the name.
    Raises: RuntimeError for what is no string, the name of another kind of device, or a second name.
    """
    if not isinstance(backend_name, str):
        raise RuntimeError(f"_rename_privateuse1_backend expects a str, but got {type(backend_name).__name__}")
    devices.rename_private(backend_name)


def generate_methods_for_privateuse1_backend(
    for_tensor: bool = True,
    for_module: bool = True,
    for_packed_sequence: bool = True,
    for_storage: bool = False,
    unsupported_dtype: list[Any] | None = None,
) -> None:
    """Give tensors, modules, packed sequences and storages ``.name()`` and ``.is_name`` for the renamed kind of device.

    Args:
        for_tensor, for_module, for_packed_sequence, for_storage: which of them.
        unsupported_dtype: dtypes whose typed storages refuse to be moved.
    Raises: RuntimeError if one of them has such a member already.
    """
    from ..nn.utils.rnn import PackedSequence

    name = devices.private_name()
    homes = [(for_tensor, fb.Tensor), (for_module, fb.nn.Module), (for_packed_sequence, PackedSequence)]
    homes += [(for_storage, fb.UntypedStorage), (for_storage, fb.TypedStorage)]
    chosen = [home for wanted, home in homes if wanted]
    for home in chosen:
        for member in (f"is_{name}", name):
            if member in vars(home):
                raise RuntimeError(f"The custom device module of {home} has already been registered with {member}")
    for home in chosen:
        if home is not fb.nn.Module:
            setattr(home, f"is_{name}", property(_is_there(name)))
        setattr(home, name, _mover(name, home, frozenset(unsupported_dtype or ())))


def _is_there(name: str) -> Any:
    def is_there(self: Any) -> bool:
        """Whether it is on the device that a third party has added."""
        place = self.data.device if hasattr(self, "batch_sizes") else self.device
        return fb.device(place).type == name

    return is_there


def _mover(name: str, home: Any, refused: frozenset[Any]) -> Any:
    def move(self: Any, device: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        """Move to the device that a third party has added."""
        if getattr(self, "dtype", None) in refused:
            raise RuntimeError(f"Cannot move a storage of {self.dtype} to {name}: its library does not support that dtype")
        place = fb.device(name) if device is None else fb.device(name, device) if isinstance(device, int) else fb.device(device)
        if place.type != name:
            raise RuntimeError(f"Invalid device, must be {name} device, but got {place}")
        if home is fb.nn.Module:
            return self._apply(lambda t: t.to(place, non_blocking=non_blocking))
        return self.to(place, non_blocking=non_blocking, **kwargs)

    move.__name__, move.__qualname__ = name, f"{home.__name__}.{name}"
    return move


def _register_device_module(device_type: str, module: Any) -> None:
    """Make `module` what ``torch.<device_type>`` and `get_device_module` give: `torch._register_device_module`.

    Args:
        device_type: a kind of device, such as the name given by `rename_privateuse1_backend`.
        module: has `device_count`, `is_available` and what else programs ask of it.
    Raises: RuntimeError for what is no kind of device, or one that has a module.
    """
    import sys

    kind = fb.device(device_type).type
    registered = vars(fb).get(kind)
    if registered is not None:
        raise RuntimeError(f"The runtime module of '{kind}' has already been registered with '{registered}'")
    setattr(fb, kind, module)
    sys.modules[f"flambeau.{kind}"] = module
