"""Curves, histograms, images and more for TensorBoard, whose package (the extra ``tensorboard``) writes the files."""

from __future__ import annotations

try:
    import tensorboard as _tensorboard  # noqa: F401 - everything below needs it
except ImportError as error:
    raise ImportError(
        "flambeau.utils.tensorboard needs the package tensorboard: pip install 'flambeau[tensorboard]'"
    ) from error

from tensorboard.summary.writer.record_writer import RecordWriter

from .writer import FileWriter, SummaryWriter

__all__ = ["FileWriter", "RecordWriter", "SummaryWriter"]
