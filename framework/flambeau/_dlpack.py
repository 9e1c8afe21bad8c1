"""Memory shared with other libraries through DLPack, for all dtypes that it has.

numpy reads and writes DLPack's capsules, keeps what they refer to alive and gives it back; but it has neither bfloat16 nor
float8. Their arrays are handed to numpy as integers of the same width, and the two bytes of the capsule that say what the
elements are hold the other name while the capsule is on its way. Source: DLPack 1.1, ``dlpack.h``.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from . import dtypes
from ._arrays import MetaArray, ndarray

__all__ = ["array_from", "capsule_of", "device_of", "is_capsule"]

# DLPack's kinds of elements, by number.
_UNSIGNED, _COMPLEX = 1, 5
_CODES = {
    dtypes.bfloat16: 4, dtypes.complex32: _COMPLEX, dtypes.float8_e4m3fn: 10, dtypes.float8_e4m3fnuz: 11,
    dtypes.float8_e5m2: 12, dtypes.float8_e5m2fnuz: 13, dtypes.float8_e8m0fnu: 14,
}  # fmt: skip
_BY_CODE = {(code, d.itemsize * 8): d for d, code in _CODES.items()}

# Its kinds of devices that are memory of the host: plain, pinned for CUDA, managed by CUDA.
_CPU, _CUDA = 1, 2
_HOST = (_CPU, 3, 13)

_PLAIN, _VERSIONED = b"dltensor", b"dltensor_versioned"
# Bytes before the tensor in what a capsule points to, and in the tensor before the kind and width of its elements.
_BEFORE_TENSOR = {_PLAIN: 0, _VERSIONED: 32}
_BEFORE_KIND = 20
_BEFORE_FLAGS = 24  # of a versioned one
_READ_ONLY = 1


class _Exported:
    """A capsule as the object that exports it, which is what numpy takes."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU, 0


class _Writable:
    """The memory of `array`, which it keeps alive, as memory that may be written."""

    def __init__(self, array: ndarray) -> None:
        self.array = array
        there = array.__array_interface__
        self.__array_interface__ = {**there, "data": (there["data"][0], False)}


# -- capsules ------------------------------------------------------------------------------------------------------------


def is_capsule(value: Any) -> bool:
    """Whether `value` is a capsule, of DLPack or of something else."""
    return type(value).__name__ == "PyCapsule"


@functools.cache
def _capsule_functions() -> tuple[Any, Any]:
    """The interpreter's functions for the name of a capsule, and for the address in one of that name."""
    import ctypes

    # Prototypes of our own: those of ctypes.pythonapi belong to whoever sets them last.
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
    address_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    return name_of, address_of


def _name_and_address(capsule: Any) -> tuple[bytes | None, int]:
    name_of, address_of = _capsule_functions()
    name = name_of(capsule)
    return name, address_of(capsule, name) if name in _BEFORE_TENSOR else 0


def _kind_of(name: bytes, address: int) -> Any:
    """The bytes that hold the kind, the width in bits and (two of them) the number of lanes of the elements, to be read or written."""
    import ctypes

    return (ctypes.c_uint8 * 4).from_address(address + _BEFORE_TENSOR[name] + _BEFORE_KIND)


# -- to others -----------------------------------------------------------------------------------------------------------


def device_of(array: Any) -> tuple[int, int]:
    """Kind and number of the device of `array`. Raises: ValueError for the meta device."""
    if type(array) is MetaArray:
        raise ValueError("Unknown device type meta for Dlpack")
    return array.__dlpack_device__()


def capsule_of(array: Any, **options: Any) -> Any:
    """A capsule of `array`, in memory of the host or of a device; `options` are those of its ``__dlpack__``."""
    d = dtypes.from_numpy_dtype(array.dtype)
    code = _CODES.get(d)
    if code is None:
        return array.__dlpack__(**options)
    capsule = array.view(f"u{d.itemsize}").__dlpack__(**options)
    name, address = _name_and_address(capsule)
    assert name is not None
    _kind_of(name, address)[0] = code
    return capsule


def moved(tensor: Any, place: Any) -> Any:
    """`tensor` on the device that DLPack calls `place`. Raises: BufferError for a kind of device that there is not here."""
    kind, index = place
    if kind not in (_CPU, _CUDA):
        raise BufferError(f"DLPack's device type {int(kind)} is not known here")
    return tensor.to("cpu" if kind == _CPU else f"cuda:{index}")


# -- from others ---------------------------------------------------------------------------------------------------------


def array_from(source: Any, copies: bool = True) -> Any:
    """The array over the memory that `source`, a capsule or an object that exports one, stands for.

    Args:
        copies: whether the one who exports it may give a copy.
    Raises: RuntimeError for what is neither, or a capsule that has been used; BufferError, ValueError or TypeError for memory that
        cannot be a tensor's.
    """
    if is_capsule(source):
        return _of_capsule(source)
    if not hasattr(source, "__dlpack__"):
        raise RuntimeError(
            f"from_dlpack received an invalid capsule: a {type(source).__name__}, which neither is one nor has a method __dlpack__"
        )
    kind = source.__dlpack_device__()[0]
    if kind == _CUDA:
        return _from_device(source)
    if kind not in _HOST:
        raise BufferError(f"from_dlpack: memory of DLPack's device type {int(kind)} cannot be read here")
    return _of_capsule(_asked(source, {} if copies else {"copy": False}))


def _asked(source: Any, wanted: dict[str, Any]) -> Any:
    """The capsule that `source` gives, by the newest of DLPack's ways of asking that it knows."""
    try:
        return source.__dlpack__(max_version=(1, 0), **wanted)
    except TypeError:
        # Before DLPack 1.0 nothing could be asked.
        return source.__dlpack__()


def _from_device(source: Any) -> Any:
    from flambeau_kernels.cuda import device as cuda

    library = cuda.library()
    if library is None:
        raise RuntimeError(f"from_dlpack: the memory is on a CUDA device, and there is none here: {cuda.why_none()}")
    return library.from_dlpack(source)


def _of_capsule(capsule: Any) -> ndarray:
    name, address = _name_and_address(capsule)
    if name not in _BEFORE_TENSOR:
        raise RuntimeError(
            "from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed only once, so you might have "
            f"already constructed a tensor from it once. (Its name is {(name or b'').decode(errors='replace')!r})"
        )
    kind = _kind_of(name, address)
    code = kind[0]
    d = _BY_CODE.get((code, kind[1]))
    if d is not None:
        kind[0] = _UNSIGNED
    writable = name == _PLAIN or not _flags(address) & _READ_ONLY
    made = np.from_dlpack(_Exported(capsule))
    if d is not None:
        kind[0] = code  # those who made it find it as it was
    # numpy takes memory as read only where the capsule does not say; PyTorch takes it as writable.
    if writable and not made.flags.writeable:
        made = np.asarray(_Writable(made))
    if d is not None:
        made = made.view(d.numpy)
    _check_layout(made)
    return made


def _flags(address: int) -> int:
    import ctypes

    return ctypes.c_uint64.from_address(address + _BEFORE_FLAGS).value


def _check_layout(array: ndarray) -> None:
    dtypes.from_numpy_dtype(array.dtype)
    if any(step < 0 for step in array.strides):
        raise ValueError(
            f"from_dlpack: the strides of the memory, {array.strides} bytes, are negative along some dimension, which tensors cannot "
            "be; copy it where it comes from"
        )
