"""The processor that kernels are compiled for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# PyTorch's names of instructions, and LLVM's where they differ.
_INSTRUCTIONS = {
    "fma3": "fma", "sse4_1": "sse4.1", "sse4_2": "sse4.2", "amx_tile": "amx-tile", "amx_int8": "amx-int8", "amx_bf16": "amx-bf16",
    "amx_fp16": "amx-fp16", "avx10_1": "avx10.1", "avx10_2": "avx10.2", "avx_vnni": "avxvnni", "avx_vnni_int8": "avxvnniint8",
    "avx_vnni_int16": "avxvnniint16", "avx_ne_convert": "avxneconvert",
    **{
        f"avx512_{part}": f"avx512{part}"
        for part in (
            "f", "cd", "bw", "dq", "vl", "ifma", "vbmi", "vbmi2", "bitalg", "vpopcntdq", "vp2intersect", "vnni", "bf16", "fp16",
        )
    },
    **{
        name: name
        for name in (
            "aes", "avx", "avx2", "bmi", "bmi2", "clflushopt", "clwb", "f16c", "fma4", "lzcnt", "popcnt", "sha", "sse", "sse2", "sse3",
            "sse4a", "ssse3",
        )
    },
}  # fmt: skip


def get_cpu_capability() -> str:
    """The widest vector instructions of this processor: 'AVX512', 'AVX2', or 'DEFAULT' for all others."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    if (
        features.get("avx512f")
        and features.get("avx512vl")
        and features.get("avx512bw")
        and features.get("avx512dq")
    ):
        return "AVX512"
    return "AVX2" if features.get("avx2") and features.get("fma") else "DEFAULT"


def capabilities() -> Mapping[str, Any]:
    """What this processor has: its name and architecture, how many logical cores there are, and a bool for each kind of instructions."""
    import os
    import platform
    from types import MappingProxyType

    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    architecture = platform.machine()
    facts: dict[str, Any] = {"architecture": architecture, "cpu_name": llvm.get_host_cpu_name(), "num_logical_cores": os.cpu_count() or 1}
    if architecture.lower() in ("x86_64", "amd64"):
        facts |= {name: bool(features.get(known)) for name, known in _INSTRUCTIONS.items()}
    return MappingProxyType(facts)
