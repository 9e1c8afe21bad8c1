"""Loading the state of an optimizer whose parameters are spread over processes."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from ._nested import unflatten_state_dict
from .metadata import STATE_DICT_TYPE, BytesStorageMetadata
from .planner import LoadPlanner
from .state_dict_loader import load
from .storage import StorageReader

__all__ = ["load_sharded_optimizer_state_dict"]


def load_sharded_optimizer_state_dict(
    model_state_dict: STATE_DICT_TYPE, optimizer_key: str, storage_reader: StorageReader, planner: LoadPlanner | None = None
) -> STATE_DICT_TYPE:
    """The part `optimizer_key` of a checkpoint, a dict with that key. States of a parameter are spread as the parameter is.

    Args:
        model_state_dict: parameters by name; a state of the shape of a DTensor among them is one, every other a full tensor.
        storage_reader, planner: as for `load`.
    Raises: CheckpointException if the checkpoint cannot be read.
    """
    from ..tensor import DTensor

    metadata = storage_reader.read_metadata()
    paths = metadata.planner_data or {}
    parts: dict[str, Any] = {}
    for name, about in metadata.state_dict_metadata.items():
        path = paths.get(name, (name,))
        if path[0] != optimizer_key:
            continue
        if isinstance(about, BytesStorageMetadata):
            parts[name] = None
            continue
        like = next((model_state_dict[key] for key in path if isinstance(key, str) and key in model_state_dict), None)
        if isinstance(like, DTensor) and like.shape == about.size:
            parts[name] = fb.empty_like(like, dtype=about.properties.dtype)
        else:
            parts[name] = fb.empty(about.size, dtype=about.properties.dtype)
    load(parts, storage_reader=storage_reader, planner=planner)
    return unflatten_state_dict(parts, {name: paths.get(name, (name,)) for name in parts})
