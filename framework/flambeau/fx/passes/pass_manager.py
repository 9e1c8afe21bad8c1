"""Runs passes one after the other: the older manager, whose passes return modules."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

__all__ = [
    "PassManager", "inplace_wrapper", "log_hook", "loop_pass", "these_before_those_pass_constraint",
    "this_before_that_pass_constraint",
]  # fmt: skip

logger = logging.getLogger(__name__)
Pass = Callable[..., Any]


def inplace_wrapper(fn: Pass) -> Pass:
    """A pass that changes its first argument, as one that returns it."""

    @wraps(fn)
    def wrapped(gm: Any, *args: Any, **kwargs: Any) -> Any:
        fn(gm, *args, **kwargs)
        return gm

    return wrapped


def log_hook(fn: Pass, level: int = logging.INFO) -> Pass:
    """A pass that logs what it is given."""

    @wraps(fn)
    def wrapped(gm: Any) -> Any:
        result = fn(gm)
        logger.log(level, "Ran pass %s\t Return value: %s", fn, result)
        return result

    return wrapped


def loop_pass(base_pass: Pass, n_iter: int | None = None, predicate: Callable[[Any], bool] | None = None) -> Pass:
    """A pass done several times: `n_iter` times, or while `predicate` holds of its result.

    Raises: AssertionError unless exactly one of them is given.
    """
    if (n_iter is None) == (predicate is None):
        raise AssertionError("Exactly one of `n_iter`or `predicate` must be specified.")

    @wraps(base_pass)
    def looped(source: Any) -> Any:
        output = source
        if n_iter is not None:
            for _ in range(n_iter):
                output = base_pass(output)
        elif predicate is not None:
            while predicate(output):
                output = base_pass(output)
        return output

    return looped


def this_before_that_pass_constraint(this: Pass, that: Pass) -> Callable[[Pass, Pass], bool]:
    """A constraint: `this` comes before `that`."""

    def depends_on(a: Pass, b: Pass) -> bool:
        return a is not that or b is not this

    return depends_on


def these_before_those_pass_constraint(these: Pass, those: Pass) -> Callable[[Pass, Pass], bool]:
    """A constraint on passes that were wrapped: those named as `these` come before those named as `those`."""

    def depends_on(a: Pass, b: Pass) -> bool:
        return unwrapped(a) is not unwrapped(those) or unwrapped(b) is not unwrapped(these)

    return depends_on


def unwrapped(fn: Pass) -> Pass:
    """The function that decorators were put around."""
    return inspect.unwrap(fn)


class PassManager:
    """Calls passes in order, each with what the one before returned.

    Args:
        passes: the passes.
        constraints: each is called with an earlier and a later pass and says whether that order is right.
    """

    def __init__(self, passes: list[Pass] | None = None, constraints: list[Callable[..., bool]] | None = None) -> None:
        self.passes, self.constraints = passes or [], constraints or []
        self._validated = False

    @classmethod
    def build_from_passlist(cls, passes: list[Pass]) -> PassManager:
        """A manager of `passes`."""
        return cls(passes)

    def add_pass(self, _pass: Pass) -> None:
        """Put a pass at the end."""
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint: Callable[..., bool]) -> None:
        """Have `constraint` kept."""
        self.constraints.append(constraint)
        self._validated = False

    def remove_pass(self, _passes: list[str]) -> None:
        """Take out the passes of these names."""
        self.passes = [p for p in self.passes if p.__name__ not in _passes]
        self._validated = False

    def replace_pass(self, _target: Pass, _replacement: Pass) -> None:
        """Put another pass in the place of those of the name of `_target`."""
        self.passes = [_replacement if p.__name__ == _target.__name__ else p for p in self.passes]
        self._validated = False

    def validate(self) -> None:
        """Raises: RuntimeError if the order of the passes breaks a constraint."""
        if self._validated:
            return
        for constraint in self.constraints:
            for i, first in enumerate(self.passes):
                for j, second in enumerate(self.passes[i + 1 :], i + 1):
                    if not constraint(first, second):
                        raise RuntimeError(
                            f"pass schedule constraint violated. Expected {second} before {first} but found {first} at index {i} "
                            f"and {second} at index {j} in pass list."
                        )
        self._validated = True

    def __call__(self, source: Any) -> Any:
        self.validate()
        for fn in self.passes:
            source = fn(source)
        return source
