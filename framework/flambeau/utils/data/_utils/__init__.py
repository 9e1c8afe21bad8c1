"""How batches are made: collation, fetching, worker processes and their transport."""

from flambeau.utils.data._utils import collate, fetch, pin_memory, worker

__all__ = ["collate", "fetch", "pin_memory", "worker"]
