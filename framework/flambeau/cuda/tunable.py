"""TunableOp: measuring which library computes a product fastest. There is one library here, so nothing is tuned."""

from __future__ import annotations

from ._unbuilt import unbuilt

_NAMES = [
    "enable", "get_filename", "get_max_tuning_duration", "get_max_tuning_iterations", "get_results", "get_rotating_buffer_size",
    "get_validators", "is_enabled", "mgpu_tune_gemm_in_file", "read_file", "record_untuned_enable", "record_untuned_is_enabled",
    "set_filename", "set_max_tuning_duration", "set_max_tuning_iterations", "set_numerical_check_tolerances", "set_rotating_buffer_size",
    "tune_gemm_in_file",
    "tuning_enable", "tuning_is_enabled", "write_file", "write_file_on_exit",
]  # fmt: skip

_QUESTIONS = {"is_enabled", "tuning_is_enabled", "record_untuned_is_enabled"}


def is_enabled() -> bool:
    """False: nothing is tuned."""
    return False


def tuning_is_enabled() -> bool:
    """False: nothing is tuned."""
    return False


def record_untuned_is_enabled() -> bool:
    """False: nothing is tuned."""
    return False


globals().update(unbuilt("cuda.tunable", sorted({*_NAMES} - _QUESTIONS), "products are computed by cuBLAS, leave it out"))
