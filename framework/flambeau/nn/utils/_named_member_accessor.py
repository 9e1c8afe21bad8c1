"""Parameters, buffers and other tensors of a module that are taken out of it and put in by name, whatever they are."""

from __future__ import annotations

from typing import Any

import flambeau as fb
from flambeau.nn.modules.module import Module

__all__ = ["swap_tensor"]


def swap_tensor(module: Module, name: str, tensor: fb.Tensor | None, allow_missing: bool = False) -> Any:
    """Put `tensor` in the place of the parameter, buffer or attribute `name` of `module`, and give what was there.

    Args:
        allow_missing: whether there need not be such a name yet; None was there then.
    Raises: TypeError for what is no module or tensor; KeyError for a name that is empty or has dots; AttributeError for an unknown one.
    """
    if not isinstance(module, Module):
        raise TypeError(f"{module} is not an instance of torch.nn.Module")
    if tensor is not None and not isinstance(tensor, fb.Tensor):
        raise TypeError(f"{tensor} is not an instance of torch.Tensor")
    if "." in name:
        raise KeyError('tensor name can\'t contain "."')
    if not name:
        raise KeyError('tensor name can\'t be empty string ""')
    for table in (module._parameters, module._buffers):
        if name in table:
            before, table[name] = table[name], tensor  # type: ignore[assignment]
            return before
    if not hasattr(module, name):
        if not allow_missing:
            raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
        before = None
    else:
        before = getattr(module, name)
        if before is not None and not isinstance(before, fb.Tensor):
            raise TypeError(f"attribute `{name}`: {before} is not an instance of torch.Tensor")
    setattr(module, name, tensor)
    return before
