"""How batches are made: collation, fetching, worker processes and their transport."""

from flambeau.utils.data._utils import collate, fetch, pin_memory, worker
from flambeau.utils.data._utils.worker import _PARENT_CHECK_INTERVAL

__all__ = ["collate", "fetch", "pin_memory", "worker"]

MP_STATUS_CHECK_INTERVAL = _PARENT_CHECK_INTERVAL     # PyTorch's name
