"""Settings for all stages of a pipe at once: shuffling, seeds, and which part a worker reads."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import flambeau as fb
from flambeau.utils.data.datapipes.iter.sharding import SHARDING_PRIORITIES
from flambeau.utils.data.graph import traverse_dps

__all__ = ["apply_random_seed", "apply_sharding", "apply_shuffle_seed", "apply_shuffle_settings", "get_all_graph_pipes"]


def get_all_graph_pipes(graph: dict[int, tuple[Any, Any]]) -> list[Any]:
    """All pipes of a graph of `traverse_dps`, each once."""
    found: dict[int, Any] = {}

    def visit(level: dict[int, tuple[Any, Any]]) -> None:
        for key, (pipe, inner) in level.items():
            found.setdefault(key, pipe)
            visit(inner)

    visit(graph)
    return list(found.values())


def _stages(datapipe: Any) -> list[Any]:
    return get_all_graph_pipes(traverse_dps(datapipe))


def apply_sharding(
    datapipe: Any, num_of_instances: int, instance_id: int, sharding_group: Any = SHARDING_PRIORITIES.DEFAULT,
) -> Any:
    """Tell every `sharding_filter` to read part `instance_id` of `num_of_instances`. Returns the pipe.

    Raises: RuntimeError for a filter behind another one.
    """

    def apply(graph: dict[int, tuple[Any, Any]], above: Any) -> None:
        for pipe, inner in graph.values():
            shards = getattr(type(pipe), "apply_sharding", None) is not None
            if shards:
                if above is not None:
                    raise RuntimeError(f"apply_sharding: {above} comes after {pipe}, which divides the samples already; one is enough")
                if len(inspect.signature(pipe.apply_sharding).parameters) < 3:
                    pipe.apply_sharding(num_of_instances, instance_id)
                else:
                    pipe.apply_sharding(num_of_instances, instance_id, sharding_group=sharding_group)
            apply(inner, pipe if shards else above)

    apply(traverse_dps(datapipe), None)
    return datapipe


def _shuffles(pipe: Any) -> bool:
    return all(callable(getattr(type(pipe), name, None)) for name in ("set_shuffle", "set_seed"))


def apply_shuffle_settings(datapipe: Any, shuffle: bool | None = None) -> Any:
    """Turn every `shuffle` stage on or off; None leaves them. Returns the pipe, with one added if there is none to turn on."""
    if shuffle is None:
        return datapipe
    shufflers = [pipe for pipe in _stages(datapipe) if _shuffles(pipe)]
    if not shufflers and shuffle:
        warnings.warn("shuffle=True, but the pipe has no shuffle stage; one is added at its end", stacklevel=2)
        datapipe = datapipe.shuffle()
        shufflers = [datapipe]
    for shuffler in shufflers:
        shuffler.set_shuffle(shuffle)
    return datapipe


def apply_shuffle_seed(datapipe: Any, rng: Any) -> Any:
    """See `apply_random_seed`; an older name."""
    return apply_random_seed(datapipe, rng)


def apply_random_seed(datapipe: Any, rng: Any) -> Any:
    """Give every stage that draws a seed from the generator `rng`. Returns the pipe."""
    for pipe in _stages(datapipe):
        if callable(getattr(type(pipe), "set_seed", None)):
            pipe.set_seed(int(fb.empty((), dtype=fb.int64).random_(generator=rng).item()))
    return datapipe
