"""Files of the embedding projector: vectors, their labels and a sprite of their images."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from ._arrays import as_array, encode_png, grid_of
from ._proto import proto

__all__ = ["add_to_config", "write_labels", "write_sprite", "write_vectors"]


def write_vectors(vectors: np.ndarray, folder: Path) -> None:
    """``tensors.tsv``: a row for each vector."""
    with (folder / "tensors.tsv").open("w", encoding="utf-8") as file:
        for row in vectors:
            file.write("\t".join(str(x) for x in row.tolist()) + "\n")


def write_labels(metadata: Any, header: Any, folder: Path) -> None:
    """``metadata.tsv``: a label for each vector, or a row of them under `header`."""
    rows = ["\t".join(str(x) for x in row) for row in [header, *metadata]] if header else [str(x) for x in metadata]
    with (folder / "metadata.tsv").open("w", encoding="utf-8") as file:
        file.writelines(row + "\n" for row in rows)


def write_sprite(images: Any, folder: Path) -> None:
    """``sprite.png``: the images ``(N, C, H, W)`` in a square grid."""
    images = as_array(images)
    images = images if images.dtype == np.uint8 else np.clip(images * 255.0, 0, 255).astype(np.uint8)
    side = int(np.ceil(len(images) ** 0.5))
    padding = np.zeros((side * side - len(images), *images.shape[1:]), np.uint8)
    pixels = grid_of(np.concatenate([images, padding]), side).transpose(1, 2, 0)
    (folder / "sprite.png").write_bytes(encode_png(np.ascontiguousarray(pixels)))


def add_to_config(log_dir: str, name: str, subfolder: str, images: Any, has_labels: bool) -> None:
    """``projector_config.pbtxt`` with one more embedding."""
    from google.protobuf import text_format

    messages = proto("plugins.projector.projector_config_pb2")
    path = Path(log_dir) / "projector_config.pbtxt"
    config = messages.ProjectorConfig()
    if path.exists():
        text_format.Parse(path.read_text(encoding="utf-8"), config)
    info = messages.EmbeddingInfo(tensor_name=name, tensor_path=os.path.join(subfolder, "tensors.tsv"))
    if has_labels:
        info.metadata_path = os.path.join(subfolder, "metadata.tsv")
    if images is not None:
        info.sprite.image_path = os.path.join(subfolder, "sprite.png")
        info.sprite.single_image_dim.extend([images.shape[3], images.shape[2]])
    config.embeddings.append(info)
    path.write_text(text_format.MessageToString(config), encoding="utf-8")
