"""Neural networks: modules, parameters, initial values, functions, and tools for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._on_demand import in_dict_too, names_on_demand
from . import functional, modules, parameter
from .parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter

if TYPE_CHECKING:
    from . import init, utils
    from .modules import *  # noqa: F403  # checkers follow this form; the list of layers is in `modules`


def factory_kwargs(kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """The arguments `device`, `dtype` and `memory_format` for functions that make tensors, from those of a module.

    Args:
        kwargs: may hold them as they are or in a dict under "factory_kwargs", each once; None holds none.
    Raises: TypeError for any other name, or one that is given twice.
    """
    if kwargs is None:
        return {}
    allowed = ("device", "dtype", "memory_format")
    unexpected = [name for name in kwargs if name not in (*allowed, "factory_kwargs")]
    if unexpected:
        raise TypeError(f"factory_kwargs: unexpected argument {unexpected[0]!r}, known are {', '.join(allowed)}")
    found = dict(kwargs.get("factory_kwargs", {}))
    for name in allowed:
        if name in kwargs and name in found:
            raise TypeError(f"factory_kwargs: {name} is given twice, once under 'factory_kwargs'")
        if name in kwargs:
            found[name] = kwargs[name]
    return found


_MODULES = ("attention", "common_types", "grad", "init", "parallel", "quantized", "quantizable", "qat", "intrinsic", "utils")
_HOMES = {".parallel": ("DataParallel",), ".modules": modules.__all__}


__getattr__, __dir__ = names_on_demand(__name__, _HOMES, modules=_MODULES)
in_dict_too(__name__)


__all__ = [
    "Buffer",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "factory_kwargs",
    "functional",
    "init",
    "modules",
    "parameter",
    "utils",
]
__all__ += modules.__all__
