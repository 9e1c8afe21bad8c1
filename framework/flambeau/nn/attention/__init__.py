"""Attention: which ways of computing `scaled_dot_product_attention` are allowed, masks with a name, and `flex_attention`."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from typing import Any

from ..._on_demand import names_on_demand
from ...ops.layers import attention as _attention

__all__ = ["SDPBackend", "WARN_FOR_UNFUSED_KERNELS", "sdpa_kernel"]

# Kept for programs that set it: `fb.kernels.explain` says which kernel ran.
WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(enum.Enum):
    """A way of computing `scaled_dot_product_attention`.

    On the CPU FLASH_ATTENTION is the compiled kernel that never holds all scores, and MATH a composition of plain ops. The
    others are kernels of CUDA libraries that are not used here.
    """

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    @property
    def name(self) -> str:
        """How the way is called."""
        return self._name_

    def __int__(self) -> int:
        return self.value

    __index__ = __int__


_WAYS = {
    SDPBackend.FLASH_ATTENTION: "flash",
    SDPBackend.EFFICIENT_ATTENTION: "efficient",
    SDPBackend.MATH: "math",
    SDPBackend.CUDNN_ATTENTION: "cudnn",
}
_priority: list[SDPBackend] = [
    SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH, SDPBackend.CUDNN_ATTENTION,
]  # fmt: skip


def _cur_sdpa_kernel_backends(with_priority: bool = False) -> list[SDPBackend]:
    """The ways that are allowed now; in the order of preference if `with_priority`."""
    order = _priority if with_priority else _WAYS
    return [backend for backend in order if _attention.allowed(_WAYS[backend])]


@contextlib.contextmanager
def sdpa_kernel(backends: list[SDPBackend] | SDPBackend, set_priority: bool = False) -> Iterator[dict[Any, Any]]:
    """A region, or a decorated function, in which only `backends` compute `scaled_dot_product_attention`.

    Args:
        backends: one, or a list. The setting is the whole process's, as in PyTorch.
        set_priority: prefer them in the order of the list. On the CPU two ways exist, and the compiled one is preferred
            wherever it is allowed, so the order is kept and changes nothing.
    Raises: AssertionError for anything else. In the region attention raises RuntimeError where no allowed way can answer.

    >>> from flambeau.nn.attention import SDPBackend, sdpa_kernel
    >>> x = fb.eye(2)
    >>> with sdpa_kernel(SDPBackend.MATH):
    ...     fb.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
    tensor([[1.0000, 0.0000],
            [0.3302, 0.6698]])
    """
    global _priority
    if not isinstance(backends, (list, SDPBackend)):
        raise AssertionError(
            f"sdpa_kernel: Backend must be an instance of SDPBackend or a list of SDPBackend instances, got {type(backends).__name__}"
        )
    chosen = dict.fromkeys([backends] if isinstance(backends, SDPBackend) else backends)
    before = {way: _attention.allowed(way) for way in _WAYS.values()}
    order = _priority
    try:
        _attention.allow(**{way: backend in chosen for backend, way in _WAYS.items()})
        if set_priority:
            named = [backend for backend in chosen if backend in _WAYS]
            _priority = [*named, *(backend for backend in order if backend not in chosen)]
        yield {}
    finally:
        _priority = order
        _attention.allow(**before)


__getattr__, __dir__ = names_on_demand(
    __name__,
    {
        "._registry": (
            "activate_flash_attention_impl", "current_flash_attention_impl", "list_flash_attention_impls", "register_flash_attention_impl",
            "restore_flash_attention_impl",
        )
    },
    modules=("bias", "experimental", "flex_attention", "varlen"),
)  # fmt: skip
