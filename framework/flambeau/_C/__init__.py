"""What programs ask of PyTorch's compiled module, where it has a meaning here. Every other name raises AttributeError."""

from __future__ import annotations

import functools
import sys
from enum import Enum
from typing import Any

import flambeau as _top

from .. import _VF as _VariableFunctions
from .. import _missing, _state
from .._on_demand import names_on_demand
from .._tags import Tag
from ..autograd.grad_mode import is_grad_enabled
from ..autograd.grad_mode import set_grad_enabled as _set_grad
from ..devices import Size, device, layout, memory_format, private_name
from ..dtypes import dtype
from ..ops._dispatch import _disabled as _disabled_torch_function_impl
from ..overrides import DisableTorchFunction, DisableTorchFunctionSubclass
from ..random import Generator
from ..storage import UntypedStorage
from ..tensor import Tensor
from ..tensor import no_torch_dispatch as _disabled_torch_dispatch_impl
from . import _nn

__all__ = [
    "DisableTorchFunction", "DisableTorchFunctionSubclass", "DispatchKey", "DispatchKeySet", "Generator", "Size",
    "StorageBase", "Tag", "TensorBase", "TracingState", "_VariableFunctions",
    "_disabled_torch_dispatch_impl", "_disabled_torch_function_impl", "_nn",
    "device", "dtype", "is_grad_enabled", "layout", "memory_format",
]  # fmt: skip

TensorBase = _TensorBase = Tensor
StorageBase = UntypedStorage
_TensorMeta = type(Tensor)
_GLIBCXX_USE_CXX11_ABI = True
has_cuda = has_mps = has_xpu = False


class _Never(type):
    """The metaclass of classes that exist for `isinstance`, which nothing is an instance of."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise _missing.not_built(f"_C.{cls.__name__}", "graphs of scripts are not recorded")


class TracingState:
    """A trace under way."""


class ScriptObject(metaclass=_Never):
    """An object of a class written as a script or in C++."""


class DispatchKey(Enum):
    """The kinds of tensors that kernels are written for, as far as tensors here can be of them, and regions of autocast."""

    Undefined = 0
    CPU = 1
    CUDA = 2
    Meta = 3
    AutogradCPU = 4
    AutogradCUDA = 5
    AutogradMeta = 6
    ADInplaceOrView = 7
    AutocastCPU = 8
    AutocastCUDA = 9
    AutocastXPU = 10


class DispatchKeySet:
    """A set of dispatch keys: ``a | b``, ``a & b``, ``a - b`` and ``has(key)``."""

    def __init__(self, *keys: Any) -> None:
        self._keys = frozenset(keys)

    def has(self, key: DispatchKey) -> bool:
        """Whether `key` is in the set."""
        return key in self._keys

    def add(self, key: DispatchKey) -> DispatchKeySet:
        """The set with `key`."""
        return DispatchKeySet(*self._keys, key)

    def remove(self, key: DispatchKey) -> DispatchKeySet:
        """The set without `key`."""
        return DispatchKeySet(*(self._keys - {key}))

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*(self._keys | other._keys))

    def __and__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*(self._keys & other._keys))

    def __sub__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*(self._keys - other._keys))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DispatchKeySet) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(self._keys)

    def __repr__(self) -> str:
        names = [key.name for key in DispatchKey if key in self._keys]
        return f"DispatchKeySet({', '.join(names)})"


def _dispatch_keys(tensor: Tensor) -> DispatchKeySet:
    """The keys of `tensor`: its device, and autograd on that device."""
    kind = {"cpu": "CPU", "cuda": "CUDA", "meta": "Meta"}[tensor.device.type]
    return DispatchKeySet(DispatchKey[kind], DispatchKey.ADInplaceOrView, DispatchKey["Autograd" + kind])


class _DisableFuncTorch:
    """A region in which programs set random numbers within vmap and grad. They may do so anywhere here, so it changes nothing."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class ScriptModule:
    """The compiled half of PyTorch's scripted modules, for `isinstance`; scripts here run as Python and have none.

    Raises: NotImplementedError when one is made.
    """

    def __init__(self, *args: Any) -> None:
        raise _missing.not_built("ScriptModule", "use jit.ScriptModule, a module")


def _log_api_usage_once(event: str) -> None:
    """Count a use of `event`: nothing is counted."""


def _get_tracing_state() -> Any:
    """The trace under way, or None."""
    trace = sys.modules.get("flambeau.jit._trace")
    return None if trace is None else trace.state()


def _get_accelerator() -> Any:
    """The device besides the CPU, the CPU where there is none."""
    from .. import accelerator

    return accelerator.current_accelerator() or device("cpu")


def _get_default_device() -> str:
    """The name of the device that new tensors are made on."""
    from .._settings import get_default_device

    return str(get_default_device())


def _get_privateuse1_backend_name() -> str:
    """The name of a device kind that a third party adds."""
    return private_name()


def _set_grad_enabled(mode: bool) -> None:
    """Switch recording of gradients on or off for this thread."""
    _set_grad(mode)


def _is_torch_function_enabled() -> bool:
    """Whether operands' `__torch_function__` is asked."""
    from ..overrides import _local

    return not _local.calls.classes_off


def _len_torch_function_stack() -> int:
    """How many modes of `__torch_function__` are in force on this thread."""
    from ..overrides import _local

    return len(_local.calls.modes)


def _len_torch_dispatch_stack() -> int:
    """How many modes of `__torch_dispatch__` are in force on this thread."""
    from ..utils._python_dispatch import _get_current_dispatch_mode_stack

    return len(_get_current_dispatch_mode_stack())


def _are_functorch_transforms_active() -> bool:
    """Whether this runs inside of `vmap`, `grad` or another function transform."""
    from ..func.transforms import _levels  # a room above this one

    return bool(_state.local.transforms or _levels())


def _jit_can_fuse_on_cpu() -> bool:
    """Whether scripts are fused: they are not compiled."""
    return False


_jit_can_fuse_on_gpu = _jit_can_fuse_on_cpu


# What programs switch of the compiler of scripts, and its value at the start. No script is compiled, so nothing reads it.
_jit_settings: dict[str, Any] = {
    "_jit_set_profiling_executor": True,
    "_jit_set_profiling_mode": True,
    "_jit_set_texpr_fuser_enabled": True,
    "_jit_set_nvfuser_enabled": False,
    "_jit_set_nvfuser_guard_mode": True,
    "_jit_override_can_fuse_on_cpu": None,
    "_jit_override_can_fuse_on_gpu": None,
    "_jit_set_num_profiled_runs": 1,
    "_jit_set_bailout_depth": 20,
    "_jit_set_te_must_use_llvm_cpu": None,
    "_jit_set_autocast_mode": True,
}


def _change_jit_setting(name: str, value: Any) -> Any:
    before, _jit_settings[name] = _jit_settings[name], value
    return before


# Modules whose names PyTorch has both at the top level and here.
_AT_BOTH = ("_schema", "futures", "jit", "jit._ir", "jit._run", "jit._type_names", "jit._types")


def _at_both() -> list[str]:
    return [name for name, home in _top._HOME.items() if home in _AT_BOTH]


def _make(name: str) -> Any:
    if name in _jit_settings:
        return functools.partial(_change_jit_setting, name)
    return getattr(_top, name) if _top._HOME.get(name) in _AT_BOTH else None


__getattr__, __dir__ = names_on_demand(
    __name__,
    {".._files.archive_files": ("PyTorchFileReader", "PyTorchFileWriter")},
    modules=("_distributed_c10d", "_functorch"),
    make=_make,
    listed=lambda: [*_jit_settings, *_at_both()],
)
