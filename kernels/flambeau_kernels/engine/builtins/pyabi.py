"""What generated code must know about CPython and numpy: field offsets, addresses to call, and proof of them.

Generated code never contains an address of this process. It reads them from a table, an array of integers
that every builtin gets as its `self`; so the code is the same everywhere and can be cached as an object file.
"""
from __future__ import annotations

import ctypes
import functools
import sys
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from flambeau_kernels.engine.runtime.never_freed import never_freed

# Byte offsets in CPython's objects, without debug builds and free threading, and in numpy 2's PyArrayObject.
TYPE = 8
FLOAT_VALUE = 16
LENGTH, LIST_ITEMS, TUPLE_ITEMS, BYTES_ITEMS = 16, 24, 24, 32  # a list has the address of its items there, a tuple the items
START, STOP, STEP = 16, 24, 32                        # of a slice
REFERENT = 16                                         # of a weak reference; None once that is gone
DATA, NDIM, SHAPE, STRIDES, DTYPE, FLAGS = 16, 24, 32, 40, 56, 64
ITEM_SIZE = 40                                        # in a dtype

# numpy's array flags
C_CONTIGUOUS, F_CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x2, 0x100, 0x400
MOST_DIMS = 64                                        # NPY_MAXDIMS

# Positions in numpy's table of C functions; they are part of numpy's stable interface.
_C_VERSION, _NDARRAY, _NEW_FROM_DESCR, _SET_BASE = 0, 2, 94, 282
_LAST_FUNCTION = 305                                  # used here; the table is longer
_NUMPY_2 = 0x02000000

# A routine of BLAS with 64-bit integers, as it is named in numpy's wheels, by OpenBLAS itself, and by Apple.
_BLAS_NAMES = ("scipy_cblas_{}64_", "cblas_{}64_", "cblas_{}$NEWLAPACK$ILP64")
_BLAS = ("sgemm", "dgemm", "sgemv", "dgemv", "sdot", "ddot")

SLOTS = ("ndarray", "float", "int", "None", "float32", "float64", "new_array", "incref", "decref",
         "int_value", "new_tuple", "set_item", "sgemm", "dgemm", "list", "tuple", "int64", "set_base",
         "new_int", "bfloat16", "slice", "Ellipsis", "sgemv", "dgemv", "sdot", "ddot", "float16", "int32", "int16", "int8", "uint8", "bool")


def slot(name: str) -> int:
    """The position of an address in the table."""
    return SLOTS.index(name)


@functools.cache
def table() -> np.ndarray:
    """The addresses of `SLOTS` in this process; 0 for a BLAS routine that was not found."""
    python = ctypes.pythonapi
    addresses = {
        "ndarray": id(np.ndarray), "float": id(float), "int": id(int), "None": id(None),
        "float32": id(np.dtype(np.float32)), "float64": id(np.dtype(np.float64)),
        "new_array": _numpy_functions()[_NEW_FROM_DESCR],
        "incref": address_of(python.Py_IncRef), "decref": address_of(python.Py_DecRef),
        "int_value": address_of(python.PyLong_AsLongLongAndOverflow),
        "new_tuple": address_of(python.PyTuple_New), "set_item": address_of(python.PyTuple_SetItem),
        **{name: _blas(name) for name in _BLAS},
        "list": id(list), "tuple": id(tuple), "int64": id(np.dtype(np.int64)), "set_base": _numpy_functions()[_SET_BASE],
        "new_int": address_of(python.PyLong_FromSsize_t), "bfloat16": id(np.dtype(ml_dtypes.bfloat16)),
        "slice": id(slice), "Ellipsis": id(...),
        **{name: id(np.dtype(name)) for name in ("float16", "int32", "int16", "int8", "uint8", "bool")},
    }
    return np.array([addresses[name] for name in SLOTS], np.uint64)


# Behind these, for builtins that make objects of a class of the framework's: offsets of its slots, then addresses.
OBJECT_SLOTS = ("array", "record", "node", "link", "grad", "class", "sizes", "other_sizes", "call", "zero", "True", "new_object",
                "new_list", "append", "new_reference", "is_subclass", "reference", "unlisted_class", "unlisted_slot", "unlisted_value",
                "bytes", "set_attribute", "its_class", "set_items", "vectorcall", "collector_off", "collector_on", "thread_number")


_ITS_CLASS = "__class__"                              # the attribute that makes an object one of another class


def object_table(of: Any) -> np.ndarray:
    """`table` and the addresses of `OBJECT_SLOTS`, for what `hot_calls.of_class` was given. Raises: LookupError."""
    python = ctypes.pythonapi
    addresses = {
        **{name: slot_offset(of.cls, slot) for name, slot in of.slots.items()},
        "class": id(of.cls), "sizes": id(of.sizes), "other_sizes": id(of.other_sizes), "zero": id(0), "True": id(True),
        "call": address_of(python.PyObject_CallOneArg), "new_object": address_of(python.PyType_GenericAlloc),
        "new_list": address_of(python.PyList_New), "append": address_of(python.PyList_Append),
        "new_reference": address_of(python.PyWeakref_NewRef), "is_subclass": address_of(python.PyType_IsSubtype),
        "reference": id(weakref.ref), "unlisted_class": 0, "unlisted_slot": 0, "unlisted_value": 0,
        "bytes": id(bytes), "set_attribute": address_of(python.PyObject_SetAttr), "its_class": id(_ITS_CLASS),
        "set_items": address_of(python.PyList_SetSlice), "vectorcall": address_of(python.PyObject_Vectorcall),
        "collector_off": address_of(python.PyGC_Disable), "collector_on": address_of(python.PyGC_Enable),
        "thread_number": address_of(python.PyThread_get_thread_ident),
    }
    if of.unlisted is not None:
        cls, name, value = of.unlisted
        addresses.update(unlisted_class=id(cls), unlisted_slot=slot_offset(cls, name), unlisted_value=id(value))
    return np.concatenate([table(), np.array([addresses[name] for name in OBJECT_SLOTS], np.uint64)])


def slot_offset(cls: type, name: str) -> int:
    """How many bytes into an object of `cls` its slot `name` is."""
    made, mark = object.__new__(cls), object()
    setattr(made, name, mark)
    for offset in range(TYPE + 8, cls.__basicsize__, 8):
        if ctypes.c_void_p.from_address(id(made) + offset).value == id(mark):
            return offset
    raise LookupError(f"{cls.__name__}.{name} is not in the object itself")


def address_of(function: Any) -> int:
    """Where a ctypes function lies."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def has_blas() -> bool:
    """Whether numpy's own BLAS can be called directly."""
    return all(table()[slot(name)] for name in _BLAS)


def keep_forever(item: object) -> None:
    """Take a reference to `item` that is never given back, not even when the interpreter ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(item))


class _MethodDef(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int),
                ("doc", ctypes.c_char_p)]


def new_builtins(functions: Mapping[str, int], self_object: Any) -> dict[str, Callable[..., Any]]:
    """Python builtins, by name, around C functions ``ptr f(ptr self, ptr *args, i64 nargs)``."""
    fastcall = 0x80
    found = (_MethodDef * len(functions))(
        *(_MethodDef(name.encode(), address, fastcall, None) for name, address in functions.items()))
    never_freed(found)                                    # builtins point into it for as long as they live
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
        address_of(ctypes.pythonapi.PyCFunction_NewEx))
    size = ctypes.sizeof(_MethodDef)
    start = ctypes.addressof(found)
    return {name: new(start + k * size, self_object, None) for k, name in enumerate(functions)}


# --- proof --------------------------------------------------------------------------------------------------

@functools.cache
def problem() -> str | None:
    """Why generated code cannot read this interpreter's objects; None when every offset was found right."""
    if sys.implementation.name != "cpython":
        return f"{sys.implementation.name} is not CPython"
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return "a CPython without the global interpreter lock"
    if ctypes.sizeof(ctypes.c_void_p) != 8 or sys.byteorder != "little":
        return "not a 64-bit little-endian machine"
    try:
        version = ctypes.CFUNCTYPE(ctypes.c_uint)(_numpy_functions()[_C_VERSION])()
    except AttributeError as missing:
        return f"numpy's table of C functions is not where numpy 2 has it ({missing})"
    if version != _NUMPY_2 or _numpy_functions()[_NDARRAY] != id(np.ndarray):
        return f"numpy's C interface has version {version:#x}, not {_NUMPY_2:#x}"
    return _wrong_offset()


def _wrong_offset() -> str | None:
    for value in (1.5, -2.25):
        if _pointer(value, TYPE) != id(float) or _read(ctypes.c_double, value, FLOAT_VALUE) != value:
            return "Python floats are laid out differently"
    if _pointer(7, TYPE) != id(int):
        return "Python integers are laid out differently"
    listed, held = [1.5, None, "a"], (None, 2.5)
    if not _holds(listed, _pointer(listed, LIST_ITEMS)) or not _holds(held, id(held) + TUPLE_ITEMS):
        return "Python lists and tuples are laid out differently"
    text = b"ab\0c"
    if ctypes.string_at(id(text) + BYTES_ITEMS, len(text) + 1) != text + b"\0":
        return "Python bytes are laid out differently"
    part = slice(listed, held, text)
    if any(_pointer(part, offset) != id(item) for offset, item in ((START, listed), (STOP, held), (STEP, text))):
        return "Python slices are laid out differently"
    base = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    reference = weakref.ref(base)
    if _pointer(reference, REFERENT) != id(base):
        return "weak references are laid out differently"
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    for array in (base, base[:, ::2], base.T, base[1, 1, 1:], np.array(2.5), np.empty((0, 4)), frozen):
        field = _wrong_array_field(array)
        if field:
            return f"numpy arrays keep their {field} elsewhere"
    gone = weakref.ref(np.empty(1))
    return None if _pointer(gone, REFERENT) == id(None) else "weak references to what is gone are laid out differently"


def _wrong_array_field(array: np.ndarray) -> str | None:
    fields = {
        "type": _pointer(array, TYPE) == id(np.ndarray),
        "data": _pointer(array, DATA) == array.ctypes.data,
        "number of dimensions": _read(ctypes.c_int, array, NDIM) == array.ndim,
        "shape": _integers(array, SHAPE, array.ndim) == array.shape,
        "strides": _integers(array, STRIDES, array.ndim) == array.strides,
        "dtype": _pointer(array, DTYPE) == id(array.dtype),
        "flags": _read(ctypes.c_int, array, FLAGS) == array.flags.num,
        "size of an element": _read(ctypes.c_ssize_t, array.dtype, ITEM_SIZE) == array.itemsize,
    }
    return next((name for name, right in fields.items() if not right), None)


def _holds(items: list[Any] | tuple[Any, ...], place: int) -> bool:
    """Whether these are the items at `place`, and their number is where it is looked for."""
    if _read(ctypes.c_ssize_t, items, LENGTH) != len(items) or _pointer(items, TYPE) != id(type(items)):
        return False
    if place < 1 << 16:                               # a number, not an address
        return False
    return tuple((ctypes.c_void_p * len(items)).from_address(place)) == tuple(map(id, items))


def _read(kind: type, item: object, offset: int) -> Any:
    return kind.from_address(id(item) + offset).value


def _pointer(item: object, offset: int) -> int:
    return _read(ctypes.c_void_p, item, offset) or 0


def _integers(array: np.ndarray, offset: int, count: int) -> tuple[int, ...]:
    start = _pointer(array, offset)
    return tuple((ctypes.c_ssize_t * count).from_address(start)) if count and start else ()


# --- where things are ---------------------------------------------------------------------------------------

def _numpy_extension() -> Any:
    return np._core._multiarray_umath  # pyright: ignore[reportAttributeAccessIssue]  # where its C functions are


@functools.cache
def _numpy_functions() -> ctypes.Array:
    capsule = _numpy_extension()._ARRAY_API
    read = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        address_of(ctypes.pythonapi.PyCapsule_GetPointer))
    return (ctypes.c_void_p * (_LAST_FUNCTION + 1)).from_address(read(capsule, None))


def numpy_function(index: int) -> int:
    """Address of entry `index` of numpy's table of C functions. Raises: AttributeError if it is not numpy 2's table."""
    if ctypes.CFUNCTYPE(ctypes.c_uint)(_numpy_functions()[_C_VERSION])() != _NUMPY_2:
        raise AttributeError("numpy's C functions have another layout")
    return _numpy_functions()[index]


@functools.cache
def _blas(routine: str) -> int:
    # Looking a name up in an extension module also searches the libraries it was linked with.
    library = ctypes.CDLL(_numpy_extension().__file__)
    for name in _BLAS_NAMES:
        function = getattr(library, name.format(routine), None)
        if function is not None:
            return address_of(function)
    return 0
