"""What `load` makes of the names that PyTorch's files use.

`_known()` lists every name `load` understands, with what it stands for and, where a file may call it, the
function that answers the call. Those functions check their arguments, since a file can give any.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import math
import pickle
import re
import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any, NamedTuple

import numpy as np

import flambeau as fb
from flambeau import _arrays, devices, dtypes
from flambeau._files.pickle_machine import Policy
from flambeau._files.storages import STORAGE_NAMES, LoadedStorage
from flambeau.nn.parameter import Parameter
from flambeau.tensor import wrap

__all__ = ["TorchPolicy", "UnsafeUnpickler", "attribute", "is_known", "plain_data", "run_unsafe"]

Tensor = fb.Tensor


# -- reading: answers to calls
# -----------------------------------------------------------------------------------------


def _storage(value: Any) -> LoadedStorage:
    if not isinstance(value, LoadedStorage):
        raise UnpicklingError(f"load: a tensor must be made of a storage, got {type(value).__name__}")
    return value


def _rebuild_tensor(storage: Any, offset: Any, size: Any, stride: Any, metadata: Any = None) -> Any:
    storage = _storage(storage)
    if storage.kind is None:
        raise UnpicklingError("load: a tensor of an untyped storage comes without its dtype")
    return _taken(storage, storage.kind, metadata).tensor(storage.kind, offset, size, stride)


def _rebuild_tensor_v2(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, metadata: Any = None,
) -> Any:
    return _requiring(_rebuild_tensor(storage, offset, size, stride, metadata), requires_grad)


def _rebuild_tensor_v3(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, dtype: Any,
    metadata: Any = None,
) -> Any:
    dtype = _checked(dtype, dtypes.dtype)
    return _requiring(_taken(_storage(storage), dtype, metadata).tensor(dtype, offset, size, stride), requires_grad)


def _taken(storage: LoadedStorage, dtype: Any, metadata: Any) -> LoadedStorage:
    """`storage` with what PyTorch left to be taken of it: a tensor may be marked as conjugate or negative there."""
    for name, value in _checked({} if metadata is None else metadata, dict).items():
        if value and name in ("conj", "neg"):
            storage = storage.taken(name, dtype)
    return storage


def _requiring(tensor: Any, requires_grad: Any) -> Any:
    return tensor.requires_grad_() if requires_grad else tensor


def _rebuild_parameter(data: Any, requires_grad: Any, hooks: Any) -> Any:
    return Parameter(_checked(data, Tensor), bool(requires_grad))


def _rebuild_parameter_with_state(data: Any, requires_grad: Any, hooks: Any, state: Any) -> Any:
    return _with_attributes(_rebuild_parameter(data, requires_grad, hooks), state)


def _rebuild_meta_tensor_no_storage(dtype: Any, size: Any, stride: Any, requires_grad: Any) -> Any:
    dtype = _checked(dtype, dtypes.dtype)
    size, stride = tuple(size), tuple(stride)
    if len(size) != len(stride) or any(type(n) is not int or n < 0 for n in size + stride):
        raise UnpicklingError(f"load: a meta tensor of size {size} and stride {stride} is malformed")
    made = wrap(_arrays.MetaArray(size, dtype.numpy, tuple(step * dtype.itemsize for step in stride)))
    return _requiring(made, requires_grad)


def _rebuild_sparse_tensor(layout: Any, data: Any) -> Any:
    if not hasattr(fb, "sparse_coo_tensor"):
        raise NotImplementedError(f"load: the file holds a tensor of the layout {layout}; sparse tensors are not supported yet")
    for part in _checked(data, tuple):
        if isinstance(part, Tensor) and part.numel() * part.element_size() > part.untyped_storage().nbytes():
            raise UnpicklingError("load: parts of a sparse tensor are larger than what the file holds of them")
    # The indices come from the file, so they are checked against the size.
    if layout is fb.sparse_coo:
        indices, values, size = data[:3]
        made = fb.sparse_coo_tensor(indices, values, size, check_invariants=True)
        return made._coalesced_(True) if len(data) > 3 and data[3] else made
    compressed, plain, values, size = data
    return fb.sparse_compressed_tensor(compressed, plain, values, size, layout=layout, check_invariants=True)


def _rebuild_qtensor(
    storage: Any, offset: Any, size: Any, stride: Any, quantizer: Any, requires_grad: Any, hooks: Any,
) -> Any:
    from flambeau.ops._quantized.arrays import from_file

    storage = _storage(storage)
    if storage.kind is None or storage.kind.category != dtypes.QUANTIZED:
        raise UnpicklingError(f"load: a quantized tensor must be made of a storage of a quantized dtype, got {storage.kind or 'bytes'}")
    integers = storage.tensor(storage.kind, offset, size, stride)
    try:
        return from_file(integers, storage.kind, *_checked(quantizer, tuple))
    except (TypeError, ValueError, IndexError) as error:
        raise UnpicklingError(f"load: the quantizer {quantizer!r} of a tensor of {storage.kind} is malformed: {error}") from None


def _rebuild_nested_tensor(buffer: Any, sizes: Any, strides: Any, offsets: Any) -> Any:
    from flambeau._files.nested_tensors import strided_of

    return strided_of(buffer, sizes, strides, offsets)


def _rebuild_njt(parts: Any) -> Any:
    from flambeau._files.nested_tensors import jagged_of

    return jagged_of(parts)


def _beside_parts(made: Any, state: Any) -> dict[str, Any]:
    """The attributes in `state` that do not say once more of what parts the nested tensor `made` is."""
    state = _checked({} if state is None else state, dict)
    return {name: value for name, value in state.items() if name not in made.__dict__ and not hasattr(type(made), str(name))}


class _DimRange:
    """The range that PyTorch's compiler was told of a size, which it keeps as an attribute of tensors. Nothing here reads it."""


class _NestedTensor:
    """Stands for the class of jagged tensors, whose module is imported with the first of them."""


def _torch_size(sizes: Any) -> Any:
    return fb.Size(_checked(sizes, tuple))


def _device(kind: Any, index: Any = None) -> Any:
    return fb.device(_checked(kind, str), index)


def _layout(name: Any) -> Any:
    return _layouts()[_checked(name, str)]


@functools.cache
def _layouts() -> dict[str, Any]:
    return {str(value): value for value in vars(devices).values() if isinstance(value, devices.layout)}


def _ordered_dict(policy: Policy, pairs: Any = ()) -> Any:
    return OrderedDict((policy.check_key(key), value) for key, value in _checked(pairs, (list, tuple)))


def _counter(counts: Any = None) -> Any:
    return Counter(_checked(counts if counts is not None else {}, dict))


def _default_dict(factory: Any = None, items: Any = None) -> Any:
    if factory is not None and factory not in (list, dict, set, tuple, int, float, str, bool):
        raise UnpicklingError(f"load: a defaultdict may not call {factory!r}")
    return defaultdict(factory, _checked(items if items is not None else {}, dict))


def _set_of(kind: Any) -> Callable[..., Any]:
    return lambda policy, items=(): kind(map(policy.check_key, _checked(items, (list, tuple, set))))


def _bytearray(data: Any = b"", encoding: Any = "latin-1") -> Any:
    # Not bytearray(n): a number would allocate as much as it says.
    return bytearray(_encode(data, encoding) if isinstance(data, str) else _checked(data, (bytes, bytearray)))


def _encode(text: Any, encoding: Any) -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise UnpicklingError(f"load: bytes written in the encoding {encoding!r} are not supported")
    return _checked(text, str).encode("latin-1")


def _of_numbers(kind: Any) -> Callable[..., Any]:
    return lambda *args: kind(*(None if arg is None else _checked(arg, (int, float)) for arg in args))


def _checked(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise UnpicklingError(f"load: expected {_kind_name(kind)} in the file, got {type(value).__name__}")
    return value


def _kind_name(kind: Any) -> str:
    return " or ".join(each.__name__ for each in kind) if isinstance(kind, tuple) else kind.__name__


def _with_attributes(obj: Any, state: Any) -> Any:
    """`obj` with the attributes in `state`, none of which may stand in front of what its class defines."""
    for name, value in _checked(state, dict).items():
        if type(name) is not str or hasattr(type(obj), name):
            raise UnpicklingError(f"load: the file may not set the attribute {name!r} of a {type(obj).__name__}")
        obj.__dict__[name] = value
    return obj


# numpy

# Numbers, truth values and fixed-size text: nothing that points elsewhere.
_SIMPLE_DTYPE = re.compile(r"[<>|=]?([biufc][0-9]{1,2}|b1|[SUV][0-9]{1,6}|[?bBhHiIlLqQefdgFD])")


def _numpy_dtype(name: Any, align: Any = False, copy: Any = True) -> np.dtype:
    if not _SIMPLE_DTYPE.fullmatch(_checked(name, str)):
        raise UnpicklingError(f"load: numpy arrays of dtype {name!r} are not supported")
    # Each file gets its own, because its byte order is set afterwards.
    return np.dtype(name, False, True)


def _numpy_array(cls: Any, shape: Any, kind: Any) -> np.ndarray:
    if cls is not np.ndarray:
        raise UnpicklingError(f"load: expected numpy.ndarray, got {cls!r}")
    return np.empty((0,), np.int8)


def _numpy_scalar(dtype: Any, data: Any) -> Any:
    dtype = _simple(dtype)
    data = data.encode("latin-1") if isinstance(data, str) else _checked(data, bytes)
    if len(data) != dtype.itemsize:
        raise UnpicklingError(f"load: a numpy {dtype} has {dtype.itemsize} bytes, the file has {len(data)}")
    return np.frombuffer(_check_text(dtype, data), dtype)[0]


def _numpy_from_buffer(data: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    dtype = _simple(dtype)
    made = np.frombuffer(_check_text(dtype, bytearray(_checked(data, (bytes, bytearray)))), dtype)
    return made.reshape(_checked(shape, tuple), order="F" if order == "F" else "C")


def _check_text(dtype: np.dtype, data: Any) -> Any:
    """`data`, the bytes of numpy values of `dtype`. Raises: UnpicklingError for text of what are no characters."""
    if dtype.kind == "U" and len(data):
        last = np.frombuffer(data, np.dtype(np.uint32).newbyteorder(dtype.byteorder)).max()
        if last > sys.maxunicode:
            raise UnpicklingError(f"load: a numpy array of text holds the number {last}, which is no character")
    return data


def _simple(dtype: Any) -> np.dtype:
    if _checked(dtype, np.dtype).hasobject or dtype.fields is not None:
        raise UnpicklingError(f"load: numpy values of dtype {dtype} are not supported")
    return dtype


def _set_state(obj: Any, state: tuple[Any, ...]) -> None:
    obj.__setstate__(state)


def _set_dtype_state(dtype: np.dtype, state: Any) -> None:
    # (version, byte order, subarray, names, fields, size, alignment, flags)
    if not isinstance(state, tuple) or len(state) != 8 or state[1] not in ("<", ">", "|", "="):
        raise UnpicklingError(f"load: the state {state!r} of a numpy dtype is not supported")
    if state[2:5] != (None, None, None):
        raise UnpicklingError("load: structured numpy dtypes are not supported")
    # Only the byte order is taken from the file; the rest is what numpy says of the dtype itself.
    version, _, *rest = dtype.__reduce__()[2]
    _set_state(dtype, (version, state[1], *rest))


def _set_array_state(array: np.ndarray, state: Any) -> None:
    # (version, shape, dtype, whether in Fortran order, bytes)
    if not isinstance(state, tuple) or len(state) != 5 or not isinstance(state[1], tuple):
        raise UnpicklingError("load: the state of a numpy array is malformed")
    shape, dtype, data = state[1], _simple(state[2]), state[4]
    data = data.encode("latin-1") if isinstance(data, str) else _checked(data, bytes)
    total = dtype.itemsize
    for n in shape:
        if type(n) is not int or n < 0:
            raise UnpicklingError(f"load: a numpy array cannot have the shape {shape}")
        total *= n
    if total != len(data):
        raise UnpicklingError(f"load: a numpy array of shape {shape} and dtype {dtype} has not {len(data)} bytes")
    _set_state(array, (1, shape, dtype, bool(state[3]), _check_text(dtype, data)))


# -- reading: the names
# ------------------------------------------------------------------------------------------------


class Known(NamedTuple):
    """What a name stands for, and the answer to calls of it (None where a file may not call it).

    The answer gets the policy of the load before the arguments where `with_policy`.
    """

    value: Any
    call: Callable[..., Any] | None = None
    with_policy: bool = False


class StorageType(NamedTuple):
    """``torch.FloatStorage`` and its like, as they occur in references to storages; bytes if `dtype` is None."""

    dtype: Any


@functools.cache
def _known() -> dict[str, Known]:
    known = {f"torch.{dtype.name}": Known(dtype) for dtype in (*dtypes.ALL, *dtypes.OF_QUANTIZED)}
    known.update({f"torch.{name}": Known(StorageType(dtype)) for dtype, name in STORAGE_NAMES.items()})
    known.update({f"torch.{value.name}": Known(value) for value in vars(devices).values() if isinstance(value, devices.qscheme)})
    known["torch.UntypedStorage"] = known["torch.storage.UntypedStorage"] = Known(StorageType(None))
    known.update(_known_torch())
    known.update(_known_python())
    known.update(_known_numpy())
    return known


def _known_torch() -> dict[str, Known]:
    parameter = Known(Parameter)
    functions: dict[str, Callable[..., Any]] = {
        "_rebuild_tensor": _rebuild_tensor,
        "_rebuild_tensor_v2": _rebuild_tensor_v2,
        "_rebuild_tensor_v3": _rebuild_tensor_v3,
        "_rebuild_parameter": _rebuild_parameter,
        "_rebuild_parameter_with_state": _rebuild_parameter_with_state,
        "_rebuild_meta_tensor_no_storage": _rebuild_meta_tensor_no_storage,
        "_rebuild_sparse_tensor": _rebuild_sparse_tensor,
        "_rebuild_sparse_csr_tensor": _rebuild_sparse_tensor,
        "_rebuild_nested_tensor": _rebuild_nested_tensor,
        "_rebuild_qtensor": _rebuild_qtensor,
    }
    return {
        **{f"torch._utils.{name}": Known(function, function) for name, function in functions.items()},
        "torch._tensor._rebuild_from_type_v2": Known(_rebuild_from_type_v2, _rebuild_from_type_v2, True),
        "torch.nested._internal.nested_tensor._rebuild_njt": Known(_rebuild_njt, _rebuild_njt),
        "torch.nested._internal.nested_tensor.NestedTensor": Known(_NestedTensor),
        "torch._dynamo.decorators._DimRange": Known(_DimRange),
        "torch.serialization._get_layout": Known(_layout, _layout),
        "torch.Size": Known(fb.Size, _torch_size),
        "torch.device": Known(fb.device, _device),
        "torch.Tensor": Known(Tensor),
        "torch.nn.parameter.Parameter": parameter,
        "torch.nn.Parameter": parameter,
    }


def _rebuild_from_type_v2(policy: TorchPolicy, function: Any, cls: Any, args: Any, state: Any) -> Any:
    return policy.rebuild_from_type(function, cls, args, state)


def _known_python() -> dict[str, Known]:
    builtins = {
        "set": Known(set, _set_of(set), True),
        "frozenset": Known(frozenset, _set_of(frozenset), True),
        "bytearray": Known(bytearray, _bytearray),
        "complex": Known(complex, _of_numbers(complex)),
        "slice": Known(slice, _of_numbers(slice)),
        "range": Known(range, _of_numbers(range)),
        "xrange": Known(range, _of_numbers(range)),
        **{kind.__name__: Known(kind) for kind in (list, dict, tuple, int, float, str, bool, bytes)},
    }
    return {
        **{f"builtins.{name}": known for name, known in builtins.items()},
        "collections.OrderedDict": Known(OrderedDict, _ordered_dict, True),
        "collections.Counter": Known(Counter, _counter),
        "collections.defaultdict": Known(defaultdict, _default_dict),
        "_codecs.encode": Known(_encode, _encode),
    }


def _known_numpy() -> dict[str, Known]:
    core = {
        "multiarray._reconstruct": Known(_numpy_array, _numpy_array),
        "multiarray.scalar": Known(_numpy_scalar, _numpy_scalar),
        "numeric._frombuffer": Known(_numpy_from_buffer, _numpy_from_buffer),
    }
    return {
        "numpy.ndarray": Known(np.ndarray),
        "numpy.dtype": Known(np.dtype, _numpy_dtype),
        # numpy 2 moved its core.
        **{f"numpy.{place}.{name}": known for place in ("core", "_core") for name, known in core.items()},
    }


def is_known(name: str) -> bool:
    """Whether `load` understands ``module.name`` by itself."""
    return name in _known()


@functools.cache
def plain_data() -> dict[str, Any]:
    """Classes of Python that checkpoints keep settings, paths, dates and numbers in, by full name. Making one does nothing else."""
    import argparse
    import datetime
    import decimal
    import pathlib
    import types

    kinds = (
        argparse.Namespace, types.SimpleNamespace, pathlib.PurePath, pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.Path,
        pathlib.PosixPath, pathlib.WindowsPath, datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone,
        decimal.Decimal,
    )  # fmt: skip
    names = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in kinds}
    moved = {f"{home}.{kind.__qualname__}": kind for kind in kinds if issubclass(kind, pathlib.PurePath) for home in _HOMES_OF_PATHS}
    return names | moved


_HOMES_OF_PATHS = ("pathlib", "pathlib._local")  # of Python 3.12 and before, and of 3.13


class TorchPolicy(Policy):
    """Finds and calls what is in the list above or among `allowed`, and nothing else.

    Args:
        storages: has ``get(kind, key, location, numel)``.
        allowed: the user's safe globals, by full name. Their classes may be made, called and given attributes.
    """

    def __init__(self, storages: Any, allowed: dict[str, Any]) -> None:
        self._storages = storages
        self._allowed = allowed
        self._loaded: dict[int, tuple[Any, LoadedStorage]] = {}
        # Nothing here refers to this object, so that what was loaded is freed as soon as its last user lets go of it.
        self._calls = {id(known.value): known for known in _known().values() if known.call is not None}

    def find_global(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full in self._allowed:
            return self._allowed[full]
        known = _known().get(full)
        if known is not None:
            return known.value
        raise UnpicklingError(
            f"load: the file names {full}, which is not known to be plain data, so nothing of it was run. If you trust it, "
            f"import it and allow it: flambeau.serialization.add_safe_globals([{name}]); "
            "flambeau.serialization.get_unsafe_globals_in_checkpoint(path) lists all such names of a file. Or run the whole file "
            "as a program: load(..., weights_only=False) inside `with flambeau.serialization.allow_unsafe_pickle():`, or "
            "anywhere where TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1 is set"
        )

    def call(self, function: Any, args: tuple[Any, ...]) -> Any:
        self.spend(_size(args))
        known = self._calls.get(id(function))
        if known is not None and known.call is not None:
            behind = map(self._behind, args)
            return known.call(self, *behind) if known.with_policy else known.call(*behind)
        if self._is_allowed(function):
            return function(*args)
        raise UnpicklingError(f"load: the file calls {_describe(function)}, which is not allowed")

    def new(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.spend(_size(args))
        if not args and not kwargs and (cls is OrderedDict or cls is _DimRange):
            return OrderedDict() if cls is OrderedDict else _DimRange()
        if isinstance(cls, type) and self._is_allowed(cls):
            return cls.__new__(cls, *args, **kwargs)
        raise UnpicklingError(f"load: the file makes a {_describe(cls)}, which is not allowed")

    def set_state(self, obj: Any, state: Any) -> None:
        self.spend(_size(state))
        if self._is_allowed(type(obj)):
            _set_user_state(obj, state)
        elif type(obj) is _DimRange:
            obj.__dict__["range"] = _checked(state, list)
        elif type(obj) in (OrderedDict, Counter, defaultdict):
            if hasattr(obj, "__dict__"):
                _with_attributes(obj, state)
        elif isinstance(obj, np.dtype):
            _set_dtype_state(obj, state)
        elif type(obj) is np.ndarray:
            _set_array_state(obj, state)
        else:
            raise UnpicklingError(f"load: the file changes a {_describe(type(obj))}, which is not allowed")

    def fill(self, obj: Any, items: list[Any]) -> bool:
        if not self._is_allowed(type(obj)) or not hasattr(obj, "extend"):
            return False
        obj.extend(items)
        return True

    def persistent(self, key: Any) -> Any:
        if not isinstance(key, tuple) or len(key) not in (5, 6) or key[0] != "storage":
            raise UnpicklingError("load: a reference to something outside the pickle is no reference to a storage")
        _, kind, name, location, numel, *view = key
        if not isinstance(kind, StorageType):
            raise UnpicklingError(f"load: storage {name!r} has the type {_describe(kind)}, which is no storage type")
        if view and view[0] is not None:
            raise NotImplementedError("load: views of storages, as PyTorch before 0.4 wrote them, are not supported")
        loaded = self._storages.get(kind.dtype, name, location, numel)
        # Usually only made into tensors, but a file may also hold the storage itself.
        public = loaded.public()
        self._loaded[id(public)] = public, loaded
        return public

    def _behind(self, value: Any) -> Any:
        """What was loaded, for a storage that `persistent` returned; any other value as it is."""
        known = self._loaded.get(id(value))
        return value if known is None else known[1]

    def _is_allowed(self, obj: Any) -> bool:
        return any(obj is allowed for allowed in self._allowed.values())

    def rebuild_from_type(self, function: Any, cls: Any, args: Any, state: Any) -> Any:
        """A tensor with a class or attributes of its own."""
        made = _checked(self.call(function, _checked(args, tuple)), Tensor)
        if made.is_nested:
            return _with_attributes(made, _beside_parts(made, state))
        if cls is not Tensor and type(made) is not cls:
            if not self._is_allowed(cls) or not issubclass(cls, Tensor):
                raise UnpicklingError(f"load: the file makes a {_describe(cls)}, which is not allowed")
            made = made.as_subclass(cls)
        if state is None:
            return made
        if self._is_allowed(type(made)):
            _set_user_state(made, state)
            return made
        return _with_attributes(made, state)


_SIZED = (str, bytes, bytearray, list, tuple, dict, set, frozenset)


def _size(value: Any) -> int:
    """How much there is in `value` to copy: its length, and that of each item of a tuple."""
    if not isinstance(value, _SIZED):
        return 1
    inner = sum(len(item) for item in value if isinstance(item, _SIZED)) if isinstance(value, tuple) else 0
    return len(value) + inner


def _describe(obj: Any) -> str:
    if hasattr(obj, "__qualname__"):
        return f"{obj.__module__}.{obj.__qualname__}"
    return f"a {type(obj).__name__}"


def _set_user_state(obj: Any, state: Any) -> None:
    """What pickle does for a class the user trusts: its `__setstate__`, or its attributes and slots."""
    own = getattr(obj, "__setstate__", None)
    if own is not None:
        own(state)
        return
    attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    obj.__dict__.update(attributes or {})
    for name, value in (slots or {}).items():
        setattr(obj, name, value)


# -- reading without the list --------------------------------------------------------------------------------


class UnsafeUnpickler(pickle.Unpickler):
    """Python's own unpickler: imports what the file names, `flambeau` where it names `torch`, and calls it."""

    def __init__(self, data: bytes, storages: Any) -> None:
        super().__init__(io.BytesIO(data))
        self._policy = TorchPolicy(storages, {})
        self._policy.left = math.inf  # what runs code can take what it likes

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch._tensor", "_rebuild_from_type_v2"):
            return _rebuild_any_type
        known = _known().get(f"{module}.{name}")
        if known is not None and module.partition(".")[0] == "torch":
            if known.call is None or isinstance(known.value, type):
                return known.value
            return lambda *args: self._policy.call(known.value, args)
        if module.partition(".")[0] == "torch":
            return attribute(_torch_home(module, name), name)
        return super().find_class(module, name)

    def persistent_load(self, pid: Any) -> Any:
        return self._policy.persistent(pid)


def _rebuild_any_type(function: Any, cls: Any, args: Any, state: Any) -> Any:
    made = function(*args)
    if made.is_nested:
        return _with_attributes(made, _beside_parts(made, state))
    if type(made) is not cls:
        made = made.as_subclass(cls)
    if state is not None:
        _set_user_state(made, state)
    return made


def _torch_home(module: str, name: str) -> Any:
    """The module of ours that has what PyTorch keeps in `module`: the one of the same name, or one above it."""
    parts = ["flambeau", *module.split(".")[1:]]
    while parts:
        with contextlib.suppress(ImportError):
            found = importlib.import_module(".".join(parts))
            if hasattr(found, name.partition(".")[0]):
                return found
        parts.pop()
    raise UnpicklingError(f"load: the file names {module}.{name}, which flambeau does not have")


def attribute(module: Any, name: str) -> Any:
    return functools.reduce(getattr, name.split("."), module)


def run_unsafe(data: bytes, storages: Any) -> Any:
    """Run the pickle `data` as Python does."""
    return UnsafeUnpickler(data, storages).load()
