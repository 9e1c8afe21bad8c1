"""Modules called side by side, one in each thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import Any

import flambeau as fb

from ...utils._pytree import tree_leaves
from ..modules.module import Module

__all__ = ["parallel_apply"]


def parallel_apply(
    modules: Sequence[Module], inputs: Sequence[Any], kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:  # fmt: skip
    """What each of `modules` gives for its inputs, computed in a thread each.

    Args:
        modules: one for each device.
        inputs: for each its positional arguments: a tuple or list, or the only one.
        kwargs_tup: for each its arguments by name.
        devices: CUDA devices to compute on; by default those of the inputs, which may be on the CPU.
    Raises: AssertionError for other numbers of inputs, arguments by name or devices; whatever a module raises, of the first one.
    """
    count = len(modules)
    if count != len(inputs):
        raise AssertionError(f"The number of modules {count} is not equal to the number of inputs {len(inputs)}")
    named = kwargs_tup if kwargs_tup is not None else [{}] * count
    places = devices if devices is not None else [None] * count
    if count != len(named) or count != len(places):
        raise AssertionError(f"parallel_apply: {count} modules with {len(named)} dicts of arguments and {len(places)} devices")
    results: list[Any] = [None] * count
    errors: list[BaseException | None] = [None] * count
    grad, autocast = fb.is_grad_enabled(), {kind: fb.is_autocast_enabled(kind) for kind in ("cpu", "cuda")}

    def run(i: int) -> None:
        given = inputs[i] if isinstance(inputs[i], (list, tuple)) else (inputs[i],)
        try:
            with contextlib.ExitStack() as regions:
                regions.enter_context(fb.set_grad_enabled(grad))
                for kind, enabled in autocast.items():
                    regions.enter_context(fb.autocast(kind, enabled=enabled))
                regions.enter_context(_region_of_device(places[i], given))
                results[i] = modules[i](*given, **named[i])
        except BaseException as error:  # raised again in the caller's thread
            errors[i] = error

    if count == 1:
        run(0)
    else:
        threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for i, error in enumerate(errors):
        if error is not None:
            error.add_note(f"in replica {i} on device {places[i]}")
            raise error
    return results


def _region_of_device(place: Any, given: Any) -> Any:
    """The region in which `place` is the current CUDA device; of inputs on the CPU, nothing changes."""
    if place is None:
        first = next((x for x in tree_leaves(given) if isinstance(x, fb.Tensor)), None)
        place = None if first is None or first.device.type == "cpu" else first.device
    return contextlib.nullcontext() if place is None else fb.cuda.device(place)
