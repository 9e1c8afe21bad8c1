"""CUDA: whether it can be used, and which ways of computing attention are allowed, on the CPU as well."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from typing import Any, NamedTuple

from .. import _warn
from ..ops.layers import attention as _attention
from ..tensor import Tensor


def is_built() -> bool:
    """Whether cupy, which drives CUDA here, is installed."""
    from importlib.util import find_spec

    return find_spec("cupy") is not None


class _MatmulSettings:
    """Shortcuts that products on CUDA may take; none are taken."""

    allow_tf32 = False
    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True


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


def sdp_kernel(
    enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True, enable_cudnn: bool = True
) -> contextlib.AbstractContextManager[dict[Any, Any]]:
    """The older form of `nn.attention.sdpa_kernel`: a region with these ways of computing attention.

    Args:
        enable_flash, enable_math, enable_mem_efficient, enable_cudnn: as the functions of these names.
    """
    _warn.warn(
        "`torch.backends.cuda.sdp_kernel()` is deprecated. In the future, this context manager will be removed. Please see "
        "`torch.nn.attention.sdpa_kernel()` for the new context manager, with updated signature.",
        FutureWarning,
    )
    return _ways(flash=enable_flash, math=enable_math, efficient=enable_mem_efficient, cudnn=enable_cudnn)


@contextlib.contextmanager
def _ways(**allowed: bool) -> Iterator[dict[Any, Any]]:
    before = {way: _attention.allowed(way) for way in allowed}
    try:
        _attention.allow(**allowed)
        yield {}
    finally:
        _attention.allow(**before)


# -- libraries: none of these is chosen between, so the choice is remembered and changes nothing -----------------------------


class _BlasBackend(enum.Enum):
    Default = 0
    Cublas = 1
    Cublaslt = 2
    Ck = 3


class _LinalgBackend(enum.Enum):
    Default = 0
    Cusolver = 1
    Magma = 2


class _ROCmFABackend(enum.Enum):
    Default = 0
    AOTriton = 1
    Ck = 2


_preferred: dict[str, enum.Enum] = {
    "blas": _BlasBackend.Cublas, "linalg": _LinalgBackend.Default, "rocm_fa": _ROCmFABackend.Default,
}  # fmt: skip


def _prefer(what: str, backend: Any, known: dict[str, enum.Enum], here: tuple[str, ...]) -> Any:
    if backend is None:
        return _preferred[what]
    name = backend.name.lower() if isinstance(backend, type(_preferred[what])) else backend
    if not isinstance(name, str):
        raise RuntimeError(f"preferred_{what}_library: unknown input value type {type(backend).__name__}; give a str")
    if name not in known:
        raise RuntimeError(f"preferred_{what}_library: unknown input value {name!r}. Choose from: {', '.join(known)}")
    if name not in here:
        raise RuntimeError(f"preferred_{what}_library: cannot prefer {name!r}, which is not used here; {', '.join(here)} can be named")
    _preferred[what] = known[name]
    return known[name]


def preferred_blas_library(backend: Any = None) -> Any:
    """The library of products on CUDA: cupy's cuBLAS, the one there is.

    Args:
        backend: None asks; 'default' and 'cublas' are accepted.
    Raises: RuntimeError for another library.
    """
    blas = _BlasBackend
    known: dict[str, enum.Enum] = {
        "default": blas.Cublas, "cublas": blas.Cublas, "hipblas": blas.Cublas, "cublaslt": blas.Cublaslt, "hipblaslt": blas.Cublaslt,
        "ck": blas.Ck,
    }  # fmt: skip
    return _prefer("blas", backend, known, ("default", "cublas"))


def preferred_linalg_library(backend: Any = None) -> Any:
    """The library of linear algebra on CUDA: there is no choice.

    Args:
        backend: None asks; 'default' is accepted.
    Raises: RuntimeError for another library.
    """
    known: dict[str, enum.Enum] = {
        "default": _LinalgBackend.Default, "cusolver": _LinalgBackend.Cusolver, "magma": _LinalgBackend.Magma
    }
    return _prefer("linalg", backend, known, ("default",))


def preferred_rocm_fa_library(backend: Any = None) -> Any:
    """The library of attention on ROCm devices, which are not supported: the choice is remembered.

    Args:
        backend: None asks; 'default', 'aotriton' or 'ck'.
    Raises: RuntimeError for anything else.
    """
    known: dict[str, enum.Enum] = {
        "default": _ROCmFABackend.Default, "aotriton": _ROCmFABackend.AOTriton, "ck": _ROCmFABackend.Ck
    }
    return _prefer("rocm_fa", backend, known, tuple(known))


class _PlanCache:
    """The plans of Fourier transforms kept for one device: cupy's."""

    def __init__(self, index: int) -> None:
        from .. import cuda

        self._index, self._cupy = index, cuda.require("backends.cuda.cufft_plan_cache")

    def _cache(self) -> Any:
        with self._cupy.cuda.Device(self._index):
            return self._cupy.fft.config.get_plan_cache()

    @property
    def size(self) -> int:
        """How many plans it holds."""
        return self._cache().get_curr_size()

    @property
    def max_size(self) -> int:
        """How many it may hold."""
        return self._cache().get_size()

    @max_size.setter
    def max_size(self, value: int) -> None:
        self._cache().set_size(value)

    def clear(self) -> None:
        """Forget all plans."""
        self._cache().clear()


class _PlanCaches:
    """The plan caches of all devices, by device; without an index that of the current one."""

    def __getitem__(self, device: Any) -> _PlanCache:
        from .. import cuda
        from ..devices import device as place

        if isinstance(device, (str, place)):
            found = place(device)
            if found.type != "cuda":
                raise ValueError(f"Expected a cuda device, but got: {device}")
            device = cuda.current_device() if found.index is None else found.index
        if not 0 <= device < cuda.device_count():
            raise RuntimeError(f"cufft_plan_cache: expected 0 <= device index < {cuda.device_count()}, but got device with index {device}")
        return _PlanCache(device)

    def _current(self) -> _PlanCache:
        from .. import cuda

        return _PlanCache(cuda.index_of(None, "backends.cuda.cufft_plan_cache"))

    @property
    def size(self) -> int:
        """How many plans the current device's cache holds."""
        return self._current().size

    @property
    def max_size(self) -> int:
        """How many it may hold."""
        return self._current().max_size

    @max_size.setter
    def max_size(self, value: int) -> None:
        self._current().max_size = value

    def clear(self) -> None:
        """Forget the plans of the current device."""
        self._current().clear()


cufft_plan_cache = _PlanCaches()
