"""Operators that programs define: `custom_op` and the rules registered for it, `Library`, and `opcheck` that tests them."""

from __future__ import annotations

from ._custom import CustomOpDef, custom_op, triton_op, wrap_triton
from ._infer import infer_schema
from ._library import Library, define, fallthrough_kernel, impl
from ._numba import numba_op, wrap_numba
from ._opcheck import opcheck
from ._register import (
    get_ctx,
    impl_abstract,
    register_autocast,
    register_autograd,
    register_fake,
    register_kernel,
    register_torch_dispatch,
    register_vmap,
)

__all__ = [
    "CustomOpDef", "Library", "custom_op", "define", "fallthrough_kernel", "get_ctx", "impl", "impl_abstract", "infer_schema", "numba_op",
    "opcheck", "register_autocast", "register_autograd", "register_fake", "register_kernel", "register_torch_dispatch", "register_vmap",
    "triton_op", "wrap_numba", "wrap_triton",
]  # fmt: skip
