"""Plans and metadata as bytes, and back.

The bytes are a pickle under PyTorch's names, so that checkpoints go both ways. Reading one imports nothing and calls nothing: it
makes the classes below, sizes, dtypes and plain values, and refuses all else.
"""

from __future__ import annotations

import copyreg
import dataclasses
import functools
import io
import pathlib
from enum import Enum
from typing import Any

import flambeau as fb

from ..._files.pickle_machine import Policy, UnpicklingError, run
from ..._files.torch_pickler import _name, _TorchPickler
from . import metadata, planner, storage

__all__ = ["StorageInfo", "StoragePrefix", "read", "written"]


@dataclasses.dataclass
class StorageInfo:
    """Where a piece lies: the file, beside the metadata, and the bytes of it."""

    relative_path: str
    offset: int
    length: int
    transform_descriptors: Any = None


@dataclasses.dataclass
class StoragePrefix:
    """What the names of the files of one rank begin with."""

    prefix: str


@functools.cache
def _classes() -> dict[str, Any]:
    """The classes a record may hold, by PyTorch's names."""
    package = "torch.distributed.checkpoint"
    found = {f"{package}.filesystem._StorageInfo": StorageInfo, f"{package}.filesystem._StoragePrefix": StoragePrefix}
    for module in (metadata, planner, storage):
        for name, value in vars(module).items():
            if isinstance(value, type) and value.__module__ == module.__name__ and (
                dataclasses.is_dataclass(value) or issubclass(value, Enum)
            ):  # fmt: skip
                found[f"{package}.{module.__name__.rpartition('.')[2]}.{name}"] = value
    return found


@functools.cache
def _names() -> dict[Any, Any]:
    return {cls: _name(*full.rsplit(".", 1)) for full, cls in _classes().items()}


class _Writer(_TorchPickler):
    def __init__(self, file: Any) -> None:
        super().__init__(file, 4, str, False)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, pathlib.PurePath):
            return _name("pathlib", "PosixPath"), obj.parts
        if isinstance(obj, Enum) and type(obj) in _names():
            return type(obj), (obj.value,)
        if type(obj) in _names():
            state = obj.__getstate__() if isinstance(obj, metadata.TensorProperties) else dict(vars(obj))
            return copyreg.__newobj__, (type(obj),), state  # type: ignore[attr-defined]
        return super().reducer_override(obj)

    def name_of(self, obj: Any) -> Any:
        known = _names().get(obj) if isinstance(obj, type) else None
        return super().name_of(obj) if known is None else known


def written(record: Any) -> bytes:
    """`record` as bytes. Raises: what pickling what the record holds raises."""
    out = io.BytesIO()
    _Writer(out).dump(record)
    return out.getvalue()


def _size(values: Any) -> fb.Size:
    if not isinstance(values, (tuple, list)) or not all(type(v) is int and v >= 0 for v in values):
        raise UnpicklingError(f"checkpoint: a size must be a tuple of numbers that are not negative, got {values!r}")
    return fb.Size(values)


def _path(*parts: Any) -> str:
    return str(pathlib.PurePosixPath(*map(str, parts)))


def _layout(name: Any) -> Any:
    found = getattr(fb, str(name).removeprefix("torch."), None)
    if not isinstance(found, fb.layout):
        raise UnpicklingError(f"checkpoint: {name!r} is no layout")
    return found


def _member(cls: Any, name: Any) -> Any:
    """The member of an enumeration that the first releases of Python 3.11 name, where others call the class."""
    if not isinstance(cls, type) or not issubclass(cls, Enum) or not isinstance(name, str) or name not in cls.__members__:
        raise UnpicklingError(f"checkpoint: getattr({cls!r}, {name!r}) is not allowed")
    return cls.__members__[name]


class _Reader(Policy):
    def find_global(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full in _classes():
            return _classes()[full]
        if full in _CALLED:
            return _CALLED[full]
        known = getattr(fb, name, None) if module == "torch" and not name.startswith("_") else None
        if isinstance(known, (fb.dtype, fb.memory_format)):
            return known
        raise UnpicklingError(
            f"checkpoint: the metadata names {full}, which is not known to be plain data, so nothing of it was read; "
            "a planner's own data may hold numbers, text, tuples, lists and dicts"
        )

    def call(self, function: Any, args: tuple[Any, ...]) -> Any:
        if isinstance(function, type) and issubclass(function, Enum):
            return function(*args)
        if any(function is known for known in _CALLED.values()):
            return function(*args)
        raise UnpicklingError(f"checkpoint: calling {function!r} is not allowed")

    def new(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args or kwargs or not dataclasses.is_dataclass(cls) or not any(cls is known for known in _classes().values()):
            raise UnpicklingError(f"checkpoint: making {cls!r} is not allowed")
        return object.__new__(cls)  # type: ignore[arg-type]

    def set_state(self, obj: Any, state: Any) -> None:
        if isinstance(obj, metadata.TensorProperties):
            if not isinstance(state, tuple) or len(state) != 5:
                raise UnpicklingError("checkpoint: the properties of a tensor are no tuple of five")
            obj.__setstate__(state)
            return
        if type(obj) not in _names() or not isinstance(state, dict):
            raise UnpicklingError(f"checkpoint: changing a {type(obj).__name__} is not allowed")
        for each in dataclasses.fields(obj):
            # Other versions have further fields, which are left out, and lack some, which get their default.
            if each.name in state:
                object.__setattr__(obj, each.name, state[each.name])
            elif each.default is not dataclasses.MISSING:
                object.__setattr__(obj, each.name, each.default)
            elif each.default_factory is not dataclasses.MISSING:
                object.__setattr__(obj, each.name, each.default_factory())
            else:
                raise UnpicklingError(f"checkpoint: a {type(obj).__name__} lacks its {each.name}")


_CALLED = {
    "torch.Size": _size, "torch.serialization._get_layout": _layout, "pathlib.PosixPath": _path, "pathlib.WindowsPath": _path,
    "pathlib.PurePosixPath": _path, "pathlib.PureWindowsPath": _path, "pathlib._local.PosixPath": _path,
    "pathlib._local.WindowsPath": _path, "builtins.getattr": _member,
}  # fmt: skip


def read(data: bytes) -> Any:
    """What `written` made, or PyTorch.

    Raises: UnpicklingError, EOFError or another error of a damaged pickle.
    """
    return run(data, _Reader())[0]
