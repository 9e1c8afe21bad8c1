"""Quantization of TorchScript modules, which is not built: each function says so."""

from __future__ import annotations

from typing import Any

from ... import _missing

__all__ = [
    "convert_dynamic_jit", "convert_jit", "fuse_conv_bn_jit", "prepare_dynamic_jit", "prepare_jit", "quantize_dynamic_jit", "quantize_jit",
    "script_qconfig", "script_qconfig_dict",
]  # fmt: skip


def _refused(name: str) -> Any:
    advice = "quantize the module before it is scripted, by quantize_fx.prepare_fx and convert_fx or by prepare and convert"

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise _missing.not_built(f"ao.quantization.{name}", advice)

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "Not built: raises NotImplementedError."
    return refuse


convert_dynamic_jit = _refused("convert_dynamic_jit")
convert_jit = _refused("convert_jit")
fuse_conv_bn_jit = _refused("fuse_conv_bn_jit")
prepare_dynamic_jit = _refused("prepare_dynamic_jit")
prepare_jit = _refused("prepare_jit")
quantize_dynamic_jit = _refused("quantize_dynamic_jit")
quantize_jit = _refused("quantize_jit")
script_qconfig = _refused("script_qconfig")
script_qconfig_dict = _refused("script_qconfig_dict")
