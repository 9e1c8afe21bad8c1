"""Neural networks: modules, parameters, initial values, functions, and tools for all of them."""

from __future__ import annotations

from . import functional, init, modules, parameter, utils
from .modules import *  # noqa: F403  # the list of layers is in `modules`, and type checkers follow this form
from .parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter

__all__ = [
    "Buffer",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "functional",
    "init",
    "modules",
    "parameter",
    "utils",
]
__all__ += modules.__all__
