"""What `Module.to` and its like do with a parameter, a gradient or a buffer, and what the arguments of `to` mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fb
from flambeau.__future__ import get_overwrite_module_params_on_conversion, get_swap_module_params_on_conversion

from ..parameter import Parameter, is_lazy, raise_uninitialized

Tensor = fb.Tensor


def apply_to_parameter(param: Parameter, fn: Callable[[Tensor], Tensor]) -> Parameter:
    """`param` with its data and gradient replaced by `fn` of them; a new one where the data cannot be swapped."""
    if is_lazy(param):
        return apply_to_lazy(param, fn)
    with fb.no_grad():
        new = fn(param)
    grad = param.grad
    if get_swap_module_params_on_conversion():
        return _swapped(param, new, grad, fn)
    fits = new.device.type == param.device.type or "meta" not in (new.device.type, param.device.type)
    if fits and not get_overwrite_module_params_on_conversion():
        param.data = new
        result = param
    else:
        result = Parameter(new, param.requires_grad)
    if grad is not None:
        with fb.no_grad():
            new_grad = fn(grad)
        if result is param and fits and new_grad is not grad and new_grad.device.type == grad.device.type:
            grad.data = new_grad
        elif result is not param or new_grad is not grad:
            result.grad = new_grad.requires_grad_(grad.requires_grad)
    return result


class NotSwapped(Exception):
    """A parameter could not be swapped with its converted form."""


def _swapped(param: Parameter, new: Tensor, grad: Tensor | None, fn: Callable[[Tensor], Tensor]) -> Parameter:
    """`param` itself, swapped with `new`, and its gradient with the gradient that `fn` makes."""
    if new is param:
        return param
    with fb.no_grad():
        new_grad = None if grad is None else fn(grad)
    try:
        fb.utils.swap_tensors(param, Parameter(new, param.requires_grad))
        if grad is not None and new_grad is not None:
            if new_grad is not grad:
                fb.utils.swap_tensors(grad, new_grad.requires_grad_(grad.requires_grad))
            param.grad = grad
    except RuntimeError as error:
        raise NotSwapped(str(error)) from error
    return param


def empty_like(t: Tensor, device: Any) -> Tensor:
    if is_lazy(t):
        raise_uninitialized(type(t), "empty_like")
    return fb.empty_like(t, device=device)


def apply_to_lazy(tensor: Any, fn: Callable[[Tensor], Tensor]) -> Any:
    """A tensor without a shape keeps its dtype and device in empty data, which `fn` changes; most functions refuse it."""
    with fb.no_grad():
        tensor.data = fn(tensor)
    return tensor


def parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """The device, dtype, non_blocking and memory_format that the arguments of `to` mean."""
    options = {
        "device": None,
        "dtype": None,
        "non_blocking": False,
        "memory_format": None,
        "tensor": None,
        "copy": False,
    }
    unknown = sorted(kwargs.keys() - options.keys())
    if unknown:
        raise TypeError(f"to() got an unexpected keyword argument {unknown[0]!r}")
    names = ["device", "dtype", "non_blocking", "copy"]
    if args and isinstance(args[0], Tensor):
        names = ["tensor", "non_blocking", "copy"]
    elif args and isinstance(args[0], (fb.dtype, type)):
        names = ["dtype", "non_blocking", "copy"]
    if len(args) > len(names):
        raise TypeError(f"to() takes at most {len(names)} positional arguments here, got {len(args)}")
    options.update(zip(names, args))  # noqa: B905 - trailing names keep their defaults
    options.update(kwargs)
    if options["tensor"] is not None:
        options.update(device=options["tensor"].device, dtype=options["tensor"].dtype)
    if options["dtype"] is not None:
        options["dtype"] = fb.dtypes.as_dtype(options["dtype"], "to")
    device = options["device"]
    return (
        None if device is None else fb.device(device),
        options["dtype"],
        bool(options["non_blocking"]),
        options["memory_format"],
    )


def accelerator_named(kind: str, device: Any) -> str:
    return kind if device is None else str(device) if not isinstance(device, int) else f"{kind}:{device}"
