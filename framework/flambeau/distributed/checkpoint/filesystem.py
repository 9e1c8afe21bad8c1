"""Checkpoints in folders: files of tensors, and one, ``.metadata``, that makes a checkpoint of them.

Files of a save get names that no file has, and ``.metadata`` takes its place in one step when all of them are written. So a save
that is killed leaves the checkpoint that was there; what no metadata names is removed by the next save.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import flambeau as fb

from ..._warn import warn_once
from ...futures import Future
from . import _records
from ._extension import ExtensionRegistry, Outputs, StreamTransformExtension, changed_back
from ._records import StorageInfo as _StorageInfo
from ._records import StoragePrefix as _StoragePrefix
from .default_planner import narrowed
from .metadata import Metadata, MetadataIndex, StorageMeta, without_hint
from .planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from .staging import BlockingAsyncStager
from .storage import CheckpointId, StorageReader, StorageWriter, WriteResult

__all__ = ["FileSystem", "FileSystemReader", "FileSystemWriter", "SerializationFormat"]

_METADATA = ".metadata"
_SUFFIX = ".distcp"


class SerializationFormat(Enum):
    """How tensors are written."""

    TORCH_SAVE = "torch_save"
    SAFETENSORS = "safetensors"


class FileSystem:
    """Files and folders of this machine."""

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[io.IOBase]:
        """The open file `path`."""
        with open(path, mode) as file:
            yield file  # pyright: ignore[reportReturnType]  # opened for bytes

    def concat_path(self, path: str | os.PathLike[str], suffix: str) -> str | os.PathLike[str]:
        return Path(path) / suffix

    def init_path(self, path: str | os.PathLike[str]) -> str | os.PathLike[str]:
        return Path(path)

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        os.replace(path, new_path)

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        os.makedirs(path, exist_ok=True)

    def exists(self, path: str | os.PathLike[str]) -> bool:
        return os.path.exists(path)

    def rm_file(self, path: str | os.PathLike[str]) -> None:
        os.unlink(path)

    def ls(self, path: str | os.PathLike[str]) -> list[str]:
        return [os.path.join(path, name) for name in os.listdir(path)]

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether `checkpoint_id` is a path; ``scheme://...`` is none."""
        return isinstance(checkpoint_id, os.PathLike) or "://" not in str(checkpoint_id)


class FileSystemWriter(BlockingAsyncStager, StorageWriter):
    """Writes a checkpoint into a folder.

    Args:
        path: the folder; made if it is not there. A checkpoint in it is replaced when the new one is complete.
        single_file_per_rank: write one file a thread; False writes one for each tensor and value.
        sync_files: wait until the disk has the data.
        thread_count: threads that write.
        per_thread_copy_ahead: taken for compatibility; tensors of the CPU are written from where they lie.
        cache_staged_state_dict: see `BlockingAsyncStager`.
        overwrite: False raises instead of replacing a checkpoint.
        _extensions: what the bytes of each tensor and value pass through, the last first: `_extension.StreamTransformExtension`.
        serialization_format: only TORCH_SAVE.
    Raises: NotImplementedError for other formats.
    """

    def __init__(
        self, path: str | os.PathLike[str], single_file_per_rank: bool = True, sync_files: bool = True, thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000, cache_staged_state_dict: bool = False, overwrite: bool = True,
        _extensions: Sequence[StreamTransformExtension] | None = None,
        serialization_format: SerializationFormat = SerializationFormat.TORCH_SAVE,
    ) -> None:  # fmt: skip
        super().__init__(cache_staged_state_dict=cache_staged_state_dict)
        if serialization_format is not SerializationFormat.TORCH_SAVE:
            raise NotImplementedError("FileSystemWriter: only TORCH_SAVE is built; flambeau.safetensors writes single files")
        self.extensions: list[StreamTransformExtension] = list(_extensions or ())
        self.fs = FileSystem()
        self.path = self.fs.init_path(path)
        self.single_file_per_rank = single_file_per_rank
        self.sync_files = sync_files
        self.thread_count = thread_count
        self.per_thread_copy_ahead = per_thread_copy_ahead
        self.overwrite = overwrite
        self.save_id = str(uuid.uuid4())
        self._written: list[str] = []                  # the files of the save that is going on
        self._rank: int | None = None                  # this one, where ranks save apart

    def reset(self, checkpoint_id: CheckpointId = None) -> None:
        if checkpoint_id:
            self.path = self.fs.init_path(checkpoint_id)
        self.save_id = str(uuid.uuid4())
        self._written.clear()

    @property
    def checkpoint_id(self) -> str | os.PathLike[str]:
        """The folder that is written to."""
        return self.path

    @property
    def metadata_path(self) -> str | os.PathLike[str]:
        """The file that makes a checkpoint of the folder."""
        return self.fs.concat_path(self.path, _METADATA if self._rank is None else _metadata_of(self._rank))

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self.is_coordinator = is_coordinator
        self._rank = None if kwargs.get("use_collectives", True) else kwargs["rank"]

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        self.fs.mkdir(self.path)
        if self._rank is not None and self.fs.exists(self.fs.concat_path(self.path, _METADATA)):
            raise RuntimeError(
                f"{self.path} holds a checkpoint that all ranks saved together, which loads would find first: with use_collectives=False "
                "save into another folder"
            )
        if self.fs.exists(self.metadata_path):
            if not self.overwrite:
                raise RuntimeError(f"Checkpoint already exists in {self.path} and overwrite=False: save into another folder")
            warn_once(f"Detected an existing checkpoint in {self.metadata_path}, overwriting since overwrite=True.")
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        # Where files of an earlier save are, those of this one get other names, until its metadata stands.
        mark = f"{self.save_id[:8]}_" if self._files_before() else ""
        first = self._rank or 0
        return [replace(plan, storage_data=_StoragePrefix(f"__{rank}_{mark}")) for rank, plan in enumerate(plans, first)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        prefix = plan.storage_data.prefix
        if self.single_file_per_rank:
            files = _shared_out(plan.items, self.thread_count)
        else:
            files = [[item] for item in plan.items]
        jobs = [(f"{prefix}{at}{_SUFFIX}", items) for at, items in enumerate(files)]
        results: list[WriteResult] = []
        errors: list[BaseException] = []
        lock = threading.Lock()

        def work() -> None:
            while True:
                with lock:
                    if not jobs or errors:
                        return
                    name, items = jobs.pop(0)
                try:
                    found = self._write_file(name, items, planner)
                except Exception as error:  # raised below, where the caller waits
                    with lock:
                        errors.append(error)
                    return
                with lock:
                    results.extend(found)

        threads = [threading.Thread(target=work) for _ in range(min(self.thread_count, len(jobs)) - 1)]
        for thread in threads:
            thread.start()
        work()
        for thread in threads:
            thread.join()
        done: Future[list[WriteResult]] = Future()
        if errors:
            done.set_exception(errors[0])  # type: ignore[arg-type]
        else:
            done.set_result(results)
        return done

    def _write_file(self, name: str, items: list[WriteItem], planner: SavePlanner) -> list[WriteResult]:
        results = []
        self._written.append(name)
        with self.fs.create_stream(self.fs.concat_path(self.path, name), "wb") as file:
            for item in sorted(items, key=lambda item: item.type is not WriteItemType.BYTE_IO):
                begin = file.tell()
                data = planner.resolve_data(item)
                through = Outputs(file, self.extensions)
                if item.type is WriteItemType.BYTE_IO:
                    through.stream.write(data.getbuffer())  # type: ignore[union-attr]
                else:
                    _save_piece(data, through.stream)  # type: ignore[arg-type]
                through.close()
                length = file.tell() - begin
                # In the order that data went through them.
                names = [extension.get_descriptor() for extension in reversed(self.extensions)] or None
                results.append(WriteResult(item.index, length, _StorageInfo(name, begin, length, names)))
            if self.sync_files:
                file.flush()
                with contextlib.suppress(AttributeError, io.UnsupportedOperation):
                    os.fsync(file.fileno())
        return results

    def discard(self) -> None:
        """Remove the files of this save: a rank could not write its own."""
        for name in self._written:
            path = self.fs.concat_path(self.path, name)
            if self.fs.exists(path):
                self.fs.rm_file(path)
        self._written.clear()

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        before = self._files_before()
        places = {result.index: result.storage_data for of_rank in results for result in of_rank}
        data = _records.written(replace(metadata, storage_data=places, storage_meta=self.storage_meta()))
        temporary = f"{self.metadata_path}.tmp"
        with self.fs.create_stream(temporary, "wb") as file:
            file.write(data)  # type: ignore[attr-defined]
            if self.sync_files:
                file.flush()
                with contextlib.suppress(AttributeError, io.UnsupportedOperation):
                    os.fsync(file.fileno())
        self.fs.rename(temporary, self.metadata_path)
        used = {place.relative_path for place in places.values()}
        for path in before:
            if os.path.basename(path) not in used:
                self.fs.rm_file(path)
        if self._rank is None:                         # what ranks had saved apart is no checkpoint any more
            for path in self.fs.ls(self.path):
                if os.path.basename(path).startswith("__") and str(path).endswith(_METADATA):
                    self.fs.rm_file(path)

    def _files_before(self) -> list[str]:
        """The files of earlier saves; where ranks save apart, those of this rank."""
        found = [path for path in self.fs.ls(self.path) if str(path).endswith(_SUFFIX)]
        return found if self._rank is None else [path for path in found if os.path.basename(path).startswith(f"__{self._rank}_")]

    def storage_meta(self) -> StorageMeta | None:
        return StorageMeta(checkpoint_id=os.fspath(self.checkpoint_id), save_id=self.save_id)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return FileSystem.validate_checkpoint_id(checkpoint_id)


def _metadata_of(rank: int) -> str:
    """The name of the metadata of a rank that saved apart."""
    return f"__{rank}{_METADATA}"


def _save_piece(data: Any, file: Any) -> None:
    """Write a tensor of the CPU that shares its storage with nothing, so that no more than it is written."""
    tensor = data.detach().cpu()
    if tensor.numel() * tensor.element_size() != tensor.untyped_storage().nbytes():
        tensor = tensor.clone()
    fb.save(tensor, file)


def _shared_out(items: list[WriteItem], count: int) -> list[list[WriteItem]]:
    """`items` in `count` lists of about the same size in bytes."""
    if count <= 1 or len(items) <= 1:
        return [items] if items else []
    lists: list[list[WriteItem]] = [[] for _ in range(count)]
    sizes = [0] * count
    for item in sorted(items, key=lambda item: -(item.tensor_storage_size() or 0)):
        at = sizes.index(min(sizes))
        lists[at].append(item)
        sizes[at] += item.tensor_storage_size() or 1
    return [chosen for chosen in lists if chosen]


class FileSystemReader(StorageReader):
    """Reads a checkpoint from a folder. Nothing in it is run: values are read as `flambeau.load` reads them.

    Args:
        path: the folder.
        _extension_registry: the `_extension.ExtensionRegistry` with the classes of extensions that it was written with.
    Raises: ValueError, in a CheckpointException, for a checkpoint that was written with an extension that is not registered.
    """

    def __init__(self, path: str | os.PathLike[str], _extension_registry: ExtensionRegistry | None = None) -> None:
        self.extension_registry = ExtensionRegistry() if _extension_registry is None else _extension_registry
        self.fs = FileSystem()
        self.path = self.fs.init_path(path)
        self.storage_data: dict[Any, Any] = {}
        self.load_id = str(uuid.uuid4())

    @property
    def checkpoint_id(self) -> str | os.PathLike[str]:
        """The folder that is read."""
        return self.path

    def reset(self, checkpoint_id: CheckpointId = None) -> None:
        self.storage_data = {}
        if checkpoint_id:
            self.path = self.fs.init_path(checkpoint_id)
        self.load_id = str(uuid.uuid4())

    def _metadata_for(self, rank: int) -> Metadata:
        own = self.fs.concat_path(self.path, _metadata_of(rank))
        separate = not self.fs.exists(self.fs.concat_path(self.path, _METADATA)) and self.fs.exists(own)
        return self.read_metadata(rank=rank) if separate else self.read_metadata()

    def read_metadata(self, *args: Any, rank: int | None = None, **kwargs: Any) -> Metadata:
        """What the checkpoint says about itself.

        Args:
            rank: the rank whose metadata is read, of ranks that saved with ``use_collectives=False``.
        Raises: FileNotFoundError if there is none; UnpicklingError and the like if it is damaged.
        """
        path = self.fs.concat_path(self.path, _METADATA if rank is None else _metadata_of(rank))
        with self.fs.create_stream(path, "rb") as file:
            found = _records.read(file.read())  # type: ignore[attr-defined]
        if not isinstance(found, Metadata) or not isinstance(found.state_dict_metadata, dict):
            raise RuntimeError(f"{path}: this is not the metadata of a checkpoint")
        if found.storage_meta is None:
            found.storage_meta = StorageMeta()
        found.storage_meta.load_id = self.load_id
        return found

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool) -> None:
        places = metadata.storage_data
        if not isinstance(places, dict):
            raise AssertionError(f"{self.path}: the metadata does not say where data lies")
        self.storage_data = {without_hint(index): place for index, place in places.items()}

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        by_file: dict[str, list[ReadItem]] = defaultdict(list)
        for item in plan.items:
            by_file[self._place(item.storage_index).relative_path].append(item)
        for name, items in by_file.items():
            self._read_file(name, items, planner)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _place(self, index: MetadataIndex) -> Any:
        place = self.storage_data.get(without_hint(index))
        if place is None:
            raise RuntimeError(f"{self.path}: the metadata does not say where {index.fqn} lies; the checkpoint is damaged")
        name = place.relative_path
        if not isinstance(name, str) or os.path.isabs(name) or ".." in Path(name).parts:
            raise RuntimeError(f"{self.path}: {index.fqn} lies in {name!r}, outside the checkpoint; nothing of it was read")
        return place

    def _read_file(self, name: str, items: list[ReadItem], planner: LoadPlanner) -> None:
        path = self.fs.concat_path(self.path, name)
        with self.fs.create_stream(path, "rb") as file:
            # Several items may be parts of one stored piece, which is read once.
            for item in sorted(items, key=lambda item: self._place(item.storage_index).offset):
                place = self._place(item.storage_index)
                file.seek(place.offset)
                data = file.read(place.length)  # type: ignore[attr-defined]
                if len(data) != place.length:
                    raise RuntimeError(
                        f"{path}: {item.dest_index.fqn} should be {place.length} bytes at {place.offset}, and the file ends after "
                        f"{len(data)} of them; it is damaged or was not fully written"
                    )
                if place.transform_descriptors:
                    data = changed_back(data, place.transform_descriptors, self.extension_registry)
                if item.type is LoadItemType.BYTE_IO:
                    planner.load_bytes(item, io.BytesIO(data))
                else:
                    _fill(planner, item, fb.load(io.BytesIO(data), map_location="cpu"))

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return FileSystem.validate_checkpoint_id(checkpoint_id)


def _fill(planner: LoadPlanner, item: ReadItem, saved: Any) -> None:
    """Copy the part of the stored piece `saved` that `item` names to where `planner` wants it."""
    name = item.dest_index.fqn
    if not isinstance(saved, fb.Tensor):
        raise RuntimeError(f"checkpoint: {name} should be a tensor, and the file holds a {type(saved).__name__}")
    part = narrowed(saved, item.storage_offsets, item.lengths)
    target = planner.resolve_tensor(item).detach()
    if target.size() != part.size():
        raise AssertionError(f"req {name} mismatch sizes {target.size()} vs {part.size()}")
    target.copy_(part)
    planner.commit_tensor(item, target)
