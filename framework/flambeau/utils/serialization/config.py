"""Settings of `flambeau.save` and `flambeau.load` for this thread: ``config.load.mmap = True``, or ``config.patch(...)`` for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ... import _missing
from ... import serialization as _files

__all__ = ["load", "patch", "save"]


class _Section:
    """Some of the settings; others cannot be set."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not isinstance(getattr(type(self), name, None), property):
            raise AttributeError(f"utils.serialization.config.{type(self).__name__.lower()}.{name} does not exist")
        super().__setattr__(name, value)


class Load(_Section):
    """How files are read."""

    @property
    def mmap(self) -> bool:
        """Whether files are mapped where `load` is not told."""
        return _files._options.mmap

    @mmap.setter
    def mmap(self, value: bool) -> None:
        _files._options.mmap = bool(value)

    @property
    def mmap_flags(self) -> int:
        """How they are mapped: see `serialization.set_default_mmap_options`."""
        return _files.get_default_mmap_options()

    @mmap_flags.setter
    def mmap_flags(self, value: int) -> None:
        _files.set_default_mmap_options(value)

    @property
    def endianness(self) -> Any:
        """The byte order of files that do not record theirs: see `serialization.set_default_load_endianness`."""
        return _files.get_default_load_endianness()

    @endianness.setter
    def endianness(self, value: Any) -> None:
        _files.set_default_load_endianness(value)

    @property
    def calculate_storage_offsets(self) -> bool:
        """Whether places in the file are computed rather than looked up. They are looked up: only False can be set."""
        return False

    @calculate_storage_offsets.setter
    def calculate_storage_offsets(self, value: bool) -> None:
        if value:
            raise _missing.not_built("utils.serialization.config.load.calculate_storage_offsets", "leave it False")


class Save(_Section):
    """How files are written."""

    @property
    def compute_crc32(self) -> bool:
        """Whether checksums are written: see `serialization.set_crc32_options`."""
        return _files.get_crc32_options()

    @compute_crc32.setter
    def compute_crc32(self, value: bool) -> None:
        _files.set_crc32_options(value)

    @property
    def storage_alignment(self) -> int:
        """The bytes of a file that a storage begins at are a multiple of this: 64, and nothing else can be set."""
        from ..._files.archive import ALIGNMENT

        return ALIGNMENT

    @storage_alignment.setter
    def storage_alignment(self, value: int) -> None:
        if value != self.storage_alignment:
            raise _missing.not_built("utils.serialization.config.save.storage_alignment", "leave it at 64")

    @property
    def use_pinned_memory_for_d2h(self) -> bool:
        """Whether tensors of CUDA devices go to the file over pinned memory. They do not: only False can be set."""
        return False

    @use_pinned_memory_for_d2h.setter
    def use_pinned_memory_for_d2h(self, value: bool) -> None:
        if value:
            raise _missing.not_built("utils.serialization.config.save.use_pinned_memory_for_d2h", "leave it False")


load, save = Load(), Save()


@contextlib.contextmanager
def patch(arg1: Any = None, arg2: Any = None, **changes: Any) -> Iterator[None]:
    """A context or decorator with other settings: ``patch("load.mmap", True)`` or ``patch({"save.compute_crc32": False})``.

    Raises: AttributeError for a name that is no setting.
    """
    given: dict[str, Any] = dict(arg1) if isinstance(arg1, dict) else {} if arg1 is None else {arg1: arg2}
    before: list[tuple[Any, str, Any]] = []
    try:
        for path, value in {**given, **changes}.items():
            section, _, name = path.partition(".")
            holder = {"load": load, "save": save}.get(section)
            if holder is None or not hasattr(holder, name):
                raise AttributeError(f"utils.serialization.config.{path} does not exist")
            before.append((holder, name, getattr(holder, name)))
            setattr(holder, name, value)
        yield
    finally:
        for holder, name, value in reversed(before):
            setattr(holder, name, value)
