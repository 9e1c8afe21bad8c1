"""Machines tell each other something through a store."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

from ..._errors import DistStoreError
from ..._stores import Store

__all__ = ["barrier", "get_all", "store_timeout", "synchronize"]


@contextlib.contextmanager
def store_timeout(store: Store, timeout: float) -> Iterator[None]:
    """Inside of it `store` waits for keys for `timeout` seconds."""
    before = store.timeout
    store.set_timeout(timedelta(seconds=timeout))
    try:
        yield
    finally:
        store.set_timeout(before)


def get_all(store: Store, rank: int, prefix: str, world_size: int) -> list[bytes]:
    """What all ranks have set under ``prefix`` and their rank, once all have.

    Rank 0 returns last, so that it may end the store afterwards.

    Args:
        store: it has the keys.
        rank: of the caller.
        prefix: what keys begin with.
        world_size: how many ranks there are.
    """
    found = store.multi_get([f"{prefix}{other}" for other in range(world_size)])
    done = f"{prefix}.read"
    if store.add(done, 1) == world_size:
        store.set(f"{done}.all", "1")
    if rank == 0:
        store.wait([f"{done}.all"])
    return found


def synchronize(store: Store, data: bytes, rank: int, world_size: int, key_prefix: str, timeout: float = 300) -> list[bytes]:
    """Give all ranks the `data` of all; each call needs a prefix of its own.

    Args:
        store: shared by all ranks.
        data: of this rank.
        rank, world_size: which rank this is, of how many.
        key_prefix: what keys begin with.
        timeout: seconds to wait for the others.
    Raises: DistStoreError when they do not come.
    """
    with store_timeout(store, timeout):
        store.set(f"{key_prefix}{rank}", data)
        return get_all(store, rank, key_prefix, world_size)


def barrier(
    store: Store,
    world_size: int,
    key_prefix: str,
    barrier_timeout: float = 300,
    rank: int | None = None,
    rank_tracing_decoder: Callable[[int], str] | None = None,
    trace_timeout: float = 10,
) -> None:
    """Wait until all ranks are here; each call needs a prefix of its own.

    Args:
        store: shared by all ranks.
        world_size: how many ranks there are.
        key_prefix: what keys begin with.
        barrier_timeout: seconds to wait.
        rank: of the caller; with it an error names the ranks that are missing.
        rank_tracing_decoder: what to call a rank in errors, its number if None.
        trace_timeout: seconds to wait for ranks that come a little later, before those that are missing are named.
    Raises: DistStoreError when ranks do not come.
    """
    if rank is not None:
        store.set(f"{key_prefix}.rank{rank}", "1")
    if store.add(f"{key_prefix}.count", 1) == world_size:
        store.set(f"{key_prefix}.all", "1")
    try:
        store.wait([f"{key_prefix}.all"], timedelta(seconds=barrier_timeout))
    except DistStoreError as error:
        if rank is None:
            raise
        end = time.monotonic() + trace_timeout
        missing = list(range(world_size))
        while missing and time.monotonic() < end:
            missing = [other for other in missing if not store.check([f"{key_prefix}.rank{other}"])]
            time.sleep(0.05)
        if missing:
            name = rank_tracing_decoder or str
            raise DistStoreError(
                f"barrier {key_prefix!r}: ranks {', '.join(map(name, missing))} of {world_size} did not come in "
                f"{barrier_timeout:g} s"
            ) from error
        raise
