"""CUDA: whether it can be used, and which ways of computing attention are allowed, on the CPU as well."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from .. import _warn
from ..ops import attention as _attention
from ..tensor import Tensor


def is_built() -> bool:
    """Whether cupy, which drives CUDA here, is installed."""
    from importlib.util import find_spec

    return find_spec("cupy") is not None


class _MatmulSettings:
    """Shortcuts that products on CUDA may take; none are taken."""

    allow_tf32 = False
    allow_fp16_reduced_precision_reduction = False
    allow_bf16_reduced_precision_reduction = False


matmul = _MatmulSettings()


def flash_sdp_enabled() -> bool:
    """Whether `scaled_dot_product_attention` may be computed by the compiled kernel that never holds all scores."""
    return _attention.allowed("flash")


def enable_flash_sdp(enabled: bool) -> None:
    """Allow or forbid, in the whole process, what `flash_sdp_enabled` tells."""
    _attention.allow(flash=enabled)


def mem_efficient_sdp_enabled() -> bool:
    """Whether `scaled_dot_product_attention` may be computed by a kernel of CUDA libraries that is not used here."""
    return _attention.allowed("efficient")


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Allow or forbid, in the whole process, what `mem_efficient_sdp_enabled` tells."""
    _attention.allow(efficient=enabled)


def math_sdp_enabled() -> bool:
    """Whether `scaled_dot_product_attention` may be computed by a composition of plain ops."""
    return _attention.allowed("math")


def enable_math_sdp(enabled: bool) -> None:
    """Allow or forbid, in the whole process, what `math_sdp_enabled` tells."""
    _attention.allow(math=enabled)


def cudnn_sdp_enabled() -> bool:
    """Whether `scaled_dot_product_attention` may be computed by a kernel of CUDA libraries that is not used here."""
    return _attention.allowed("cudnn")


def enable_cudnn_sdp(enabled: bool) -> None:
    """Allow or forbid, in the whole process, what `cudnn_sdp_enabled` tells."""
    _attention.allow(cudnn=enabled)


_half_reductions = False


def fp16_bf16_reduction_math_sdp_allowed() -> bool:
    """What `allow_fp16_bf16_reduction_math_sdp` was told; sums are float32 either way."""
    return _half_reductions


def allow_fp16_bf16_reduction_math_sdp(enabled: bool) -> None:
    """Allow sums of half types in the composition of plain ops; it makes no use of that."""
    global _half_reductions
    _half_reductions = bool(enabled)


def is_flash_attention_available() -> bool:
    """False: PyTorch's means its CUDA kernel. On the CPU the compiled kernel needs no build option."""
    return False


class SDPAParams(NamedTuple):
    """Arguments of `scaled_dot_product_attention`, for the questions below; `dropout` is its `dropout_p`."""

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None
    dropout: float
    is_causal: bool
    enable_gqa: bool


def _refused(name: str, params: Any, debug: bool, reason: str) -> bool:
    if not isinstance(params, SDPAParams):
        raise TypeError(f"{name}: params must be SDPAParams, got {type(params).__name__}")
    if debug:
        _warn.warn(f"{name}: {reason}")
    return False


def can_use_flash_attention(params: SDPAParams, debug: bool = False) -> bool:
    """False: the question is about a CUDA library.

    Args:
        params: what attention would be called with.
        debug: warn with the reason.
    Raises: TypeError for anything but SDPAParams.
    """
    return _refused("can_use_flash_attention", params, debug, "FlashAttention's CUDA kernels are not used here")


def can_use_efficient_attention(params: SDPAParams, debug: bool = False) -> bool:
    """False, as `can_use_flash_attention`, which see."""
    return _refused("can_use_efficient_attention", params, debug, "memory-efficient CUDA kernels are not used here")


def can_use_cudnn_attention(params: SDPAParams, debug: bool = False) -> bool:
    """False, as `can_use_flash_attention`, which see."""
    return _refused("can_use_cudnn_attention", params, debug, "cuDNN is not used here")


@contextlib.contextmanager
def sdp_kernel(
    enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True, enable_cudnn: bool = True
) -> Iterator[dict[Any, Any]]:
    """The older form of `nn.attention.sdpa_kernel`: a region with these ways of computing attention.

    Args:
        enable_flash, enable_math, enable_mem_efficient, enable_cudnn: as the functions of these names.
    """
    _warn.warn(
        "`torch.backends.cuda.sdp_kernel()` is deprecated. In the future, this context manager will be removed. Please see "
        "`torch.nn.attention.sdpa_kernel()` for the new context manager, with updated signature.",
        FutureWarning,
    )
    before = {way: _attention.allowed(way) for way in ("flash", "math", "efficient", "cudnn")}
    try:
        _attention.allow(flash=enable_flash, math=enable_math, efficient=enable_mem_efficient, cudnn=enable_cudnn)
        yield {}
    finally:
        _attention.allow(**before)
