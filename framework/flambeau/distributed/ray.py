"""Ray as the launcher: workers on the machines of a Ray cluster, as ranks of one job (the extra ``ray``)."""

from __future__ import annotations

import os
import secrets
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["launch"]


def _ray() -> Any:
    try:
        import ray  # pyright: ignore[reportMissingImports]  # an extra
    except ImportError as error:
        raise ImportError('flambeau.distributed.ray needs the package ray: pip install "flambeau[ray]"') from error
    return ray


class _Worker:
    """One process; an actor of Ray."""

    def place(self) -> tuple[str, str, int]:
        """The machine, its address, and a port that is free there."""
        ray = _ray()
        with socket.socket() as found:
            found.bind(("", 0))
            return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address(), found.getsockname()[1]

    def run(self, environment: dict[str, str], function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Call `function` with the environment of a rank."""
        os.environ.update(environment)
        return function(*args)


def launch(
    function: Callable[..., Any],
    *args: Any,
    workers: int,
    cpus_per_worker: float = 1,
    address: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[Any]:
    """Run ``function(*args)`` in processes of a Ray cluster, which are the ranks of one job.

    `init_process_group()` needs no arguments in them: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT are
    set, and they share a key that is made for the job. Ranks of a machine have consecutive numbers. On one machine they listen on
    loopback, on several at the address that Ray knows a machine by. Function, arguments and results travel by Ray, which pickles them.

    Args:
        function: what each rank runs.
        workers: how many there are.
        cpus_per_worker: what Ray sets aside for each of them.
        address: of a cluster, as for ``ray.init``; by default the one that the program has joined, or one of this machine for the time.
        environment: more variables for all of them.
    Returns: what the ranks returned, by rank.
    Raises: ImportError without the package; ValueError for no workers; RuntimeError that names the first rank that failed, with
        its error as the cause. The other ranks are ended then.
    """
    if workers < 1:
        raise ValueError(f"flambeau.distributed.ray.launch: workers must be at least 1, got {workers}")
    ray = _ray()
    starts = not ray.is_initialized()
    if starts:
        ray.init(address=address, include_dashboard=False)
    made: list[Any] = []
    try:
        kind = ray.remote(_Worker).options(num_cpus=cpus_per_worker, max_restarts=0)
        made = [kind.remote() for _ in range(workers)]
        places = ray.get([worker.place.remote() for worker in made])
        order = sorted(range(workers), key=lambda at: (places[at][0] != places[0][0], places[at][0]))
        on_one = len({machine for machine, _, _ in places}) == 1
        count, seen = Counter(machine for machine, _, _ in places), Counter[str]()
        common = {
            **(environment or {}), "WORLD_SIZE": str(workers), "FLAMBEAU_JOB_KEY": secrets.token_hex(32),
            "MASTER_ADDR": "127.0.0.1" if on_one else places[order[0]][1], "MASTER_PORT": str(places[order[0]][2]),
        }  # fmt: skip
        running = {}
        for rank, at in enumerate(order):
            machine, host, _ = places[at]
            own = {"RANK": str(rank), "LOCAL_RANK": str(seen[machine]), "LOCAL_WORLD_SIZE": str(count[machine])}
            own["FLAMBEAU_BIND"] = "127.0.0.1" if on_one else host
            seen[machine] += 1
            running[made[at].run.remote({**common, **own}, function, args)] = rank
        return _results(ray, running)
    finally:
        for worker in made:
            ray.kill(worker)
        if starts:
            ray.shutdown()


def _results(ray: Any, running: dict[Any, int]) -> list[Any]:
    found: dict[int, Any] = {}
    left = list(running)
    while left:
        done, left = ray.wait(left)
        for one in done:
            rank = running[one]
            try:
                found[rank] = ray.get(one)
            except ray.exceptions.RayError as error:
                cause = getattr(error, "cause", None) or error
                raise RuntimeError(f"rank {rank} of {len(running)} failed: {type(cause).__name__}: {cause}") from error
    return [found[rank] for rank in sorted(found)]
