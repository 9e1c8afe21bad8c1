"""CUDA: whether it can be used, and which attention kernels there are (one, written with plain operations)."""

from __future__ import annotations


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
    """False: there is no such kernel."""
    return False


def mem_efficient_sdp_enabled() -> bool:
    """False: there is no such kernel."""
    return False


def cudnn_sdp_enabled() -> bool:
    """False: there is no such kernel."""
    return False


def math_sdp_enabled() -> bool:
    """True: attention is made of plain operations."""
    return True


def is_flash_attention_available() -> bool:
    """False."""
    return False
