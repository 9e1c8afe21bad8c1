"""The functions of `onnx` under the name of the module that PyTorch keeps them in."""

from __future__ import annotations

from . import (
    export,
    is_in_onnx_export,
    register_custom_op_symbolic,
    select_model_mode_for_export,
    unregister_custom_op_symbolic,
)

__all__ = [
    "export", "is_in_onnx_export", "register_custom_op_symbolic", "select_model_mode_for_export", "unregister_custom_op_symbolic",
]  # fmt: skip
