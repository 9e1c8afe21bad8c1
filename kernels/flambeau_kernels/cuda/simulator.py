"""A device that is not there: cupy's interface over host memory, for tests on machines without a GPU.

With FLAMBEAU_CUDA_SIMULATOR=1 this module stands for cupy. Its `ndarray` is no numpy array, refuses to be made one
(``.get()`` copies), and refuses to meet one in an operation, as cupy's does; so every place that mixes host and device memory
is found. It has the functions that cupy has, under the same names (`FUNCTIONS`), and nothing else. Our own kernels run on its
memory by `launch.py`. It says nothing about speed, nor about races that a wrong barrier would let through.
"""

from __future__ import annotations

import contextlib
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["module", "ndarray"]

# What cupy 14 offers of numpy's namespace, of that which a framework may want.
_FUNCTIONS = """abs absolute add all allclose amax amin angle any append arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax
    argmin argpartition argsort argwhere array array_equal array_split ascontiguousarray asfortranarray atleast_1d atleast_2d
    atleast_3d average bincount bitwise_and bitwise_or bitwise_xor bitwise_not broadcast_arrays broadcast_to cbrt ceil choose clip
    column_stack compress concatenate conj conjugate convolve copy copysign copyto corrcoef correlate cos cosh count_nonzero cov
    cross cumprod cumsum deg2rad degrees delete diag diagflat diagonal diff digitize divide divmod dot dsplit dstack einsum empty
    empty_like equal exp exp2 expand_dims expm1 extract eye fabs fill_diagonal fix flatnonzero flip fliplr flipud float_power floor
    floor_divide fmax fmin fmod frexp full full_like gcd greater greater_equal heaviside histogram hsplit hstack hypot i0 identity
    imag indices inner interp invert isclose isfinite isin isinf isnan isneginf isposinf isreal kron lcm ldexp left_shift less
    less_equal lexsort linspace log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or logical_xor matmul
    max maximum may_share_memory mean median meshgrid min minimum mod modf moveaxis multiply nan_to_num nancumprod nancumsum nanmax
    nanmean nanmedian nanmin nanprod nanstd nansum nanvar negative nextafter nonzero not_equal ones ones_like outer pad partition
    percentile permute_dims piecewise place positive power prod put put_along_axis putmask quantile rad2deg radians ravel real
    reciprocal remainder repeat reshape resize right_shift rint roll rollaxis rot90 round searchsorted select shares_memory sign
    signbit sin sinc sinh sort split sqrt square squeeze stack std subtract sum swapaxes take take_along_axis tan tanh tensordot
    tile trace transpose tri tril tril_indices triu triu_indices true_divide trunc unique unravel_index vander var vdot vsplit
    vstack where zeros zeros_like"""
FUNCTIONS = frozenset(_FUNCTIONS.split())
_METHOD_NAMES = """
    all any argmax argmin argpartition argsort astype choose clip compress conj conjugate copy cumprod cumsum diagonal dot fill
    flatten max mean min nonzero partition prod put ravel repeat reshape round searchsorted sort squeeze std sum swapaxes take trace
    transpose var view item tobytes"""
_METHODS = frozenset(_METHOD_NAMES.split())
_OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
_COMPARISONS = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")


def _refuse(a: np.ndarray) -> TypeError:
    return TypeError(f"Unsupported type {type(a)}: an array of shape {a.shape} on the host meets one on the device")


def _down(x: Any) -> Any:
    """What numpy is to be given for `x`. Raises: TypeError for an array of the host."""
    if isinstance(x, ndarray):
        return x._host
    if isinstance(x, np.ndarray):
        raise _refuse(x)
    if isinstance(x, (list, tuple)) and any(isinstance(i, (ndarray, np.ndarray, list, tuple)) for i in x):
        return type(x)(_down(i) for i in x)
    return x


def _as_on_device(x: Any) -> Any:
    """A result of numpy as the device has it: numbers are arrays without dimensions."""
    if isinstance(x, (np.ndarray, np.generic)):
        return _over(np.asarray(x))
    if isinstance(x, (list, tuple)):
        made = [_as_on_device(i) for i in x]
        return made if isinstance(x, list) else tuple(made)
    return x


def _over(host: np.ndarray, base: ndarray | None = None) -> ndarray:
    made = object.__new__(ndarray)
    made._host, made.base = host, base
    return made


def _result(x: Any, of: ndarray) -> Any:
    """`x`, a part of `of` or a new array; parts keep what they are parts of."""
    if isinstance(x, np.ndarray) and np.may_share_memory(x, of._host) and x.size and not x.flags.owndata:
        return _over(x, of if of.base is None else of.base)
    return _as_on_device(x)


class _Memory:
    """Where an array's elements are, as cupy's ``MemoryPointer``: an address, and the block of memory it lies in."""

    __slots__ = ("mem", "ptr")

    def __init__(self, ptr: int, mem: Any) -> None:
        self.ptr, self.mem = ptr, mem

    def __add__(self, offset: int) -> _Memory:
        return _Memory(self.ptr + offset, self.mem)


class ndarray:  # cupy's name
    """An array of the simulated device."""

    __slots__ = ("__weakref__", "_host", "base")
    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]
    _host: np.ndarray
    base: ndarray | None

    def __init__(self, shape: Any, dtype: Any = float, memptr: _Memory | None = None, strides: Any = None) -> None:
        if memptr is None:
            self._host, self.base = np.empty(shape, dtype), None
            return
        root: ndarray = memptr.mem.array
        at = memptr.ptr - root._host.__array_interface__["data"][0]
        memory = root._host.reshape(-1, order="A").view(np.uint8)
        dtype = np.dtype(dtype)
        if memory.size == 0 or 0 in np.atleast_1d(shape):
            self._host = np.lib.stride_tricks.as_strided(np.empty(0, dtype), shape, strides)
        else:
            self._host = np.ndarray(shape, dtype, memory, at, strides)
        self.base = root

    @property
    def data(self) -> _Memory:
        root = self if self.base is None else self.base
        block = SimpleNamespace(ptr=root._host.__array_interface__["data"][0], size=root._host.nbytes, array=root)
        return _Memory(self._host.__array_interface__["data"][0], block)

    @property
    def device(self) -> Any:
        return _Device(0)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        own = self._host.__array_interface__
        return {**{name: own[name] for name in ("shape", "typestr", "data", "strides")}, "version": 3, "stream": None}

    # As cupy's, these run no Python.
    shape = property(attrgetter("_host.shape"))
    dtype = property(attrgetter("_host.dtype"))
    strides = property(attrgetter("_host.strides"))
    ndim = property(attrgetter("_host.ndim"))
    size = property(attrgetter("_host.size"))
    itemsize = property(attrgetter("_host.itemsize"))
    nbytes = property(attrgetter("_host.nbytes"))
    flags = property(attrgetter("_host.flags"))
    T = property(lambda self: _result(self._host.T, self))
    mT = property(lambda self: _result(self._host.mT, self))
    real = property(lambda self: _result(self._host.real, self))
    imag = property(lambda self: _result(self._host.imag, self))

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array explicitly.")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or ufunc.__name__ not in FUNCTIONS:
            return NotImplemented
        out = options.pop("out", None)
        options.pop("casting", None)
        if out is not None:
            made = ufunc(*_down(inputs), out=_down(out), casting="unsafe", **options)
            return out[0] if len(out) == 1 else out if made is not None else None
        return _as_on_device(ufunc(*_down(inputs), **options))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function.__module__ != "numpy" or function.__name__ not in FUNCTIONS:
            return NotImplemented
        return getattr(module(), function.__name__)(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name not in _METHODS:
            raise AttributeError(f"'cupy.ndarray' object has no attribute {name!r}")
        method = getattr(self._host, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            made = method(*_down(args), **{k: _down(v) for k, v in kwargs.items()})
            if name == "astype" and made is self._host:
                return self
            return made if name in ("item", "tobytes") else _result(made, self)

        return call

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> np.ndarray:
        """A copy on the host."""
        if out is not None:
            out[...] = self._host
            return out
        return self._host.copy(order="C")

    def set(self, arr: np.ndarray, stream: Any = None) -> None:
        """Copy `arr`, an array of the host of this shape and dtype, to the device."""
        if arr.shape != self.shape or arr.dtype != self.dtype:
            raise ValueError("Shape or dtype mismatch")
        self._host[...] = arr

    def tolist(self) -> Any:
        return self._host.tolist()

    def __len__(self) -> int:
        return len(self._host)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, at: Any) -> ndarray:
        found = self._host[_down(at)]
        key = at if isinstance(at, tuple) else (at,)
        if not isinstance(found, np.ndarray) and all(isinstance(k, int) for k in key):
            found = self._host[(*key, ...)]  # a part without dimensions, not a copy of its number
        return _result(found, self)

    def __setitem__(self, at: Any, value: Any) -> None:
        self._host[_down(at)] = _down(value)

    def __bool__(self) -> bool:
        return bool(self._host)

    def __int__(self) -> int:
        return int(self._host)

    def __float__(self) -> float:
        return float(self._host)

    def __complex__(self) -> complex:
        return complex(self._host)

    def __repr__(self) -> str:
        return repr(self._host)

    def __neg__(self) -> Any:
        return _as_on_device(-self._host)

    def __pos__(self) -> Any:
        return _as_on_device(+self._host)

    def __abs__(self) -> Any:
        return _as_on_device(abs(self._host))

    def __invert__(self) -> Any:
        return _as_on_device(~self._host)


def _operator(name: str) -> Any:
    def apply(self: ndarray, other: Any) -> Any:
        return _as_on_device(getattr(self._host, name)(_down(other)))

    return apply


for _name in (*(f"__{n}__" for n in _OPERATORS), *(f"__r{n}__" for n in _OPERATORS), *_COMPARISONS):
    setattr(ndarray, _name, _operator(_name))


def _in_place(name: str) -> Any:
    def apply(self: ndarray, other: Any) -> ndarray:
        getattr(self._host, name)(_down(other))
        return self

    return apply


for _name in _OPERATORS:
    setattr(ndarray, f"__i{_name}__", _in_place(f"__i{_name}__"))


# -- the module ----------------------------------------------------------------------------------------------------------


class _Device:
    """The one device there is."""

    def __init__(self, device: int | None = None) -> None:
        self.id = 0 if device is None else int(device)
        if self.id != 0:
            raise RuntimeError(f"cudaErrorInvalidDevice: invalid device ordinal {self.id}")

    def use(self) -> None: ...

    def synchronize(self) -> None: ...

    def __enter__(self) -> _Device:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Device) and self.id == other.id

    def __hash__(self) -> int:
        return self.id


class _Stream:
    """A queue whose work is done as soon as it is asked for."""

    ptr = 0
    done = True
    null: Any = None

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False) -> None: ...

    def synchronize(self) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def use(self) -> _Stream:
        return self

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None: ...


_Stream.null = _Stream(null=True)


class _Event:
    done = True

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        import time

        self._clock = time.perf_counter
        self._at = 0.0

    def record(self, stream: Any = None) -> None:
        self._at = self._clock()

    def synchronize(self) -> None: ...


class _Pool:
    def free_all_blocks(self) -> None: ...

    def used_bytes(self) -> int:
        return 0

    def total_bytes(self) -> int:
        return 0


_FACTS = {
    "name": b"simulated device", "major": 8, "minor": 0, "totalGlobalMem": 16 << 30, "multiProcessorCount": 1, "warpSize": 32,
    "maxThreadsPerMultiProcessor": 2048,
}  # fmt: skip


def _asarray(a: Any, dtype: Any = None, order: Any = None) -> ndarray:
    """`a` on the device; an array of the host is copied."""
    if isinstance(a, ndarray):
        return a if dtype is None or a.dtype == dtype else a.astype(dtype)
    return _over(np.array(a, dtype, order="K" if order is None else order))


def _function(name: str) -> Any:
    numpys = getattr(np, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        made = numpys(*_down(args), **{k: _down(v) for k, v in kwargs.items()})
        first = args[0] if args and isinstance(args[0], ndarray) else None
        return made if isinstance(made, (bool, int)) else _result(made, first) if first is not None else _as_on_device(made)

    call.__name__ = name
    return call


_module: Any = None


def module() -> Any:
    """What stands for the module cupy."""
    global _module
    if _module is None:
        stream = _Stream.null
        runtime = SimpleNamespace(
            getDeviceCount=lambda: 1, getDevice=lambda: 0, getDeviceProperties=lambda at: dict(_FACTS),
            deviceCanAccessPeer=lambda a, b: 0, memGetInfo=lambda: (16 << 30, 16 << 30), CUDARuntimeError=RuntimeError,
        )  # fmt: skip
        cuda = SimpleNamespace(
            Device=_Device, Stream=_Stream, ExternalStream=lambda ptr: stream, Event=_Event, runtime=runtime,
            get_current_stream=lambda: stream, get_elapsed_time=lambda a, b: (b._at - a._at) * 1e3,
        )  # fmt: skip
        names = {name: _function(name) for name in FUNCTIONS if hasattr(np, name)}
        pool = _Pool()
        _module = SimpleNamespace(
            **(names | {"asarray": _asarray, "array": lambda a, dtype=None, **_: _asarray(a, dtype).copy()}),
            ndarray=ndarray, asnumpy=lambda a: a.get() if isinstance(a, ndarray) else np.asarray(a), cuda=cuda,
            get_default_memory_pool=lambda: pool, errstate=contextlib.nullcontext, random=SimpleNamespace(seed=lambda seed: None),
        )  # fmt: skip
    return _module
