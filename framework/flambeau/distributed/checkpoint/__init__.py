"""Checkpoints of programs of several processes: each writes what it has, and any number of others reads it again.

A checkpoint is a folder; reading one runs nothing of it.
"""

from __future__ import annotations

from ..._on_demand import names_on_demand
from . import (
    api,
    default_planner,
    filesystem,
    metadata,
    planner,
    staging,
    state_dict_loader,
    state_dict_saver,
    stateful,
    storage,
)
from .api import CheckpointException
from .default_planner import DefaultLoadPlanner, DefaultSavePlanner
from .filesystem import FileSystemReader, FileSystemWriter
from .metadata import BytesStorageMetadata, ChunkStorageMetadata, Metadata, TensorStorageMetadata
from .planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner, WriteItem
from .state_dict_loader import load, load_state_dict
from .state_dict_saver import async_save, save, save_state_dict
from .storage import StorageReader, StorageWriter

__all__ = [
    "BytesStorageMetadata", "CheckpointException", "ChunkStorageMetadata", "DefaultLoadPlanner", "DefaultSavePlanner",
    "FileSystemReader", "FileSystemWriter", "LoadPlan", "LoadPlanner", "Metadata", "ReadItem", "SavePlan", "SavePlanner",
    "StorageReader", "StorageWriter", "TensorStorageMetadata", "WriteItem", "api", "async_save", "default_planner", "filesystem",
    "load", "load_state_dict", "metadata", "planner", "save", "save_state_dict", "staging",
    "state_dict_loader", "state_dict_saver", "stateful", "storage",
]  # fmt: skip


__getattr__, __dir__ = names_on_demand(__name__, modules=("resharding", "state_dict"))
