"""Modules whose weights have oneDNN's layout, which is not built: kernels here take tensors as they are."""

from __future__ import annotations

from typing import Any, NoReturn

import flambeau as fb

from .. import _missing
from ..nn import Module

__all__ = ["MkldnnBatchNorm", "MkldnnConv1d", "MkldnnConv2d", "MkldnnConv3d", "MkldnnLinear", "MkldnnPrelu", "to_mkldnn"]

_ADVICE = "the layout of oneDNN is not built; use the module as it is"


class _Refused(Module):
    def __init__(self, dense_module: Any, dtype: Any = None) -> None:
        raise _missing.not_built(f"utils.mkldnn.{type(self).__name__}", _ADVICE)


class MkldnnLinear(_Refused):
    """Not built: raises NotImplementedError when made."""


class MkldnnConv1d(_Refused):
    """Not built: raises NotImplementedError when made."""


class MkldnnConv2d(_Refused):
    """Not built: raises NotImplementedError when made."""


class MkldnnConv3d(_Refused):
    """Not built: raises NotImplementedError when made."""


class MkldnnBatchNorm(_Refused):
    """Not built: raises NotImplementedError when made."""


class MkldnnPrelu(_Refused):
    """Not built: raises NotImplementedError when made."""


def to_mkldnn(module: Module, dtype: Any = fb.float) -> NoReturn:
    """Not built: raises NotImplementedError."""
    raise _missing.not_built("utils.mkldnn.to_mkldnn", _ADVICE)
