"""Pipes of samples: streams (`iter`) and indexed ones (`map`), put together by calls such as ``pipe.map(f).batch(4)``."""

from flambeau.utils.data.datapipes import iter, map
from flambeau.utils.data.datapipes.datapipe import DataChunk, DFIterDataPipe, IterDataPipe, MapDataPipe

__all__ = ["DFIterDataPipe", "DataChunk", "IterDataPipe", "MapDataPipe", "iter", "map"]
