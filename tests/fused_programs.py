"""What tests of fused programs share: which parts are fused, and whether results have the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fb
from flambeau.compiler import _programs
from flambeau.compiler._functions import Function

__all__ = ["parts_of", "same", "same_at_every_number_of_threads"]


def parts_of(compiled: Any) -> list[Any]:
    """What the programs of a compiled function fuse."""
    function: Function = compiled.explain.__self__
    found, steps = [], [function.root]
    while steps:
        step = steps.pop()
        found += [part for program in step.programs.values() for part in program.chains]
        steps += [after for after in step.after.values() if after is not None]
    return found


def same(a: Any, b: Any) -> bool:
    """Whether two tensors are laid out alike and have the same bits; what is no number has any sign."""
    if a is None or b is None:
        return a is b
    assert a.stride() == b.stride()
    assert a.dtype is b.dtype
    a, b = (x.detach().float() if x.dtype.itemsize == 2 else x.detach() for x in (a, b))
    a, b = (x.nan_to_num(nan=12345.0, posinf=fb.inf, neginf=-fb.inf) for x in (a, b))
    return a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()


def same_at_every_number_of_threads(f: Callable[[fb.Tensor], fb.Tensor], x: fb.Tensor) -> bool:
    """Whether `f`, compiled and fused, makes the same bits of `x` on one, two and three threads."""
    compiled = fb.compile(f)
    for _ in range(_programs.FUSED_AFTER + 1):
        compiled(x)
    assert parts_of(compiled)
    before = fb.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            fb.set_num_threads(threads)
            results.append(compiled(x))
    finally:
        fb.set_num_threads(before)
    return all(same(results[0], result) for result in results[1:])
