"""New tensors made of a tensor's class or methods: ``torch.Tensor(...)``, `new_zeros` and their like."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import _state, devices, dtypes
from ..._arrays import HeldArray, ndarray
from ..._kinds import KindArray
from ..._names import names_by
from ..._state import interpreted
from ...tensor import Tensor, wrap
from .. import _dispatch
from ._options import _quickly, _sizes
from .create import _filled_quickly, _new_empty, _ones, empty, empty_strided, full, ones, zeros
from .from_values import tensor


def _new_method(fn: Any, name: str, make: Any) -> Any:
    @names_by("unnamed")
    def new(self: Tensor, *size: Any, dtype: Any = None, device: Any = None, **options: Any) -> Tensor:
        self = self._looks
        if "out" in options:
            raise TypeError(f"{name}() got an unexpected keyword argument 'out'")
        alone = not (_state.IN_FORCE and interpreted())
        if device is None and not options and make is not None and alone and self._array.__class__ is ndarray:
            made = _quickly(make, size, dtype, self._array.dtype)
            if made is not None:
                return made
        if isinstance(self._array, KindArray) and make in (np.zeros, _new_empty):
            options.setdefault("layout", self.layout)
        if "size" in options:
            size = (options.pop("size"), *size)
        held = self._array.__class__ is HeldArray
        if (_state.IN_FORCE and interpreted() or held) and make is not None or held and len(size) == 2:
            sizes = {"size": _sizes(size)} if make is not None else {"size": list(size[0]), "stride": list(size[1])}
            given = {"self": self, **sizes, "dtype": dtype, "layout": options.get("layout"), "device": device, "pin_memory": False}
            if (seen := _dispatch.made(name, given, options.get("requires_grad", False))) is not None:
                return seen
        return fn(*size, dtype=dtype or self.dtype, device=self.device if device is None else device, **options)

    new.__name__ = name
    new.__doc__ = f"`{fn.__name__}` with this tensor's dtype and device by default."
    return new


@names_by("unnamed")
def new_full(self: Tensor, size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Tensor:
    """A tensor of `size` filled with `fill_value`, with this tensor's dtype and device by default. See `full`."""
    self = self._looks
    if "out" in options:
        raise TypeError("new_full() got an unexpected keyword argument 'out'")
    if _state.IN_FORCE and interpreted() or self._array.__class__ is HeldArray:
        given = {"self": self, "size": size, "fill_value": fill_value, "dtype": dtype, "device": device, "pin_memory": False}
        if (seen := _dispatch.made("new_full", given, options.get("requires_grad", False))) is not None:
            return seen
    if device is None and not options and not (_state.IN_FORCE and interpreted()) and self._array.__class__ is ndarray:
        made = _filled_quickly(size, fill_value, self.dtype if dtype is None else dtype)
        if made is not None:
            return made
    return full(size, fill_value, dtype=dtype or self.dtype, device=self.device if device is None else device, **options)


@names_by("unnamed")
def new_tensor(self: Tensor, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A copy of `data` with this tensor's dtype and device by default."""
    if device is None and self._array.__class__ is ndarray:
        device = "cpu"
    return tensor(data, dtype=dtype or self.dtype, device=self.device if device is None else device, requires_grad=requires_grad)


def legacy_tensor(*args: Any, dtype: Any = None, device: Any = None, data: Any = None) -> Tensor:
    """What ``torch.Tensor(...)`` makes: the default dtype from sizes, a copy of a sequence, another view of a Tensor or storage.

    It is made on the CPU where no `device` is named, whatever the default device is.
    Raises: TypeError for a storage, or where a dtype is asked for a Tensor, of another dtype.
    """
    from ...storage import TypedStorage, UntypedStorage

    if data is not None:
        args = (data, *args)
    d = dtype or dtypes.get_default_dtype()
    device = "cpu" if device is None else device
    if not args:
        return wrap(np.empty((0,), d.numpy))
    first = args[0]
    if isinstance(first, (TypedStorage, UntypedStorage)):
        if isinstance(first, TypedStorage) and first.dtype is not d:
            raise TypeError(f"expected a storage of {d.name}, got one of {first.dtype.name}")
        return empty(0, dtype=d).set_(first)
    if isinstance(first, Tensor) and len(args) == 1:
        if dtype is not None and first.dtype is not dtype:
            raise TypeError(f"expected a Tensor of {dtype.name} (got {first.dtype.name}); convert it with .to(dtype)")
        if first._node is None:
            return first.detach()
        from ..shapes.restride import alias

        return alias.function(first)                  # gradients pass
    if isinstance(first, devices.Size) or (isinstance(first, int) and not isinstance(first, bool)):
        return empty(*args, dtype=d, device=device)
    if isinstance(first, (list, tuple, range, ndarray)):
        return tensor(first, dtype=d, device=device)
    raise TypeError(f"new(): data must be a sequence (got {type(first).__name__})")


@names_by("unnamed")
def new(self: Tensor, *args: Any, device: Any = None) -> Tensor:
    """As ``torch.Tensor(...)`` with this tensor's dtype; older programs make new tensors so."""
    return legacy_tensor(*args, dtype=self.dtype, device=self.device if device is None else device)


for _fn, _name, _make in ((empty, "new_empty", _new_empty), (zeros, "new_zeros", np.zeros), (ones, "new_ones", _ones),
                          (empty_strided, "new_empty_strided", None)):  # fmt: skip
    setattr(Tensor, _name, _new_method(_fn, _name, _make))
Tensor.new = new  # type: ignore[attr-defined]
Tensor.new_tensor, Tensor.new_full = new_tensor, new_full  # type: ignore[attr-defined]
