"""Functions of scipy in compiled loops: scipy offers their addresses to Cython, and loops call them on all threads.

The result has the bits of scipy's ufunc, which calls the same function, with float32 by way of float64. Where a scipy lacks
such an address, or has it for another signature, the numpy tier calls the ufunc.
"""
from __future__ import annotations

import ctypes
import functools

from flambeau_kernels.loading import scipy_module
from flambeau_kernels.scalar.symbols import F64, Symbol, Unsupported

# By the name that machine code calls: see `llvm.Machine.load`. Filled when a formula is first compiled.
ADDRESSES: dict[str, int] = {}


def call(name: str, cost: int, *args: Symbol) -> Symbol:
    """``scipy.special.<name>`` of real arguments. Raises: Unsupported where scipy does not offer it."""
    kind, block = args[0].kind, args[0].block
    if kind.family != "f":
        raise Unsupported(f"{name} of {kind.name}")
    if block.careful:                                 # the only form there is on a device
        raise Unsupported(f"{name} of the host's library")
    block.alone = True
    symbol = f"flambeau_scipy_{name}"
    ADDRESSES[symbol] = _address(name, len(args))
    block.needs.add(f"declare double @{symbol}({'double, ' * len(args)}i32)")
    values = ", ".join(f"double {a.to(F64).name}" for a in args)
    return block.emit(F64, f"call double @{symbol}({values}, i32 0)", cost).to(kind)


@functools.cache
def _address(name: str, arguments: int) -> int:
    try:
        cython_special = scipy_module("special.cython_special")
    except ImportError as error:
        raise Unsupported(f"{name} without scipy") from error
    capsule = getattr(cython_special, "__pyx_capi__", {}).get(name)
    # Cython's functions that Python may call too have a last argument for it, of which 0 says that C calls.
    signature = f"double ({'double, ' * arguments}int __pyx_skip_dispatch)".encode()
    if capsule is None or not _is_valid(capsule, signature):
        raise Unsupported(f"{name}, whose address this scipy does not offer")
    return _pointer(capsule, signature)


_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes, _is_valid.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_int
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes, _pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
