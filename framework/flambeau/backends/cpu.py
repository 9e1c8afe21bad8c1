"""The processor that kernels are compiled for."""

from __future__ import annotations


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
