"""Runs passes one after the other, in an order that keeps to constraints."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from ....nn import Module
from ...graph_module import GraphModule
from .pass_base import PassResult, checked

__all__ = ["PassManager", "pass_result_wrapper", "this_before_that_pass_constraint"]

Pass = Callable[..., Any]
Constraint = Callable[[Pass, Pass], bool]


def pass_result_wrapper(fn: Pass) -> Pass:
    """A pass that changes its module and returns None, as one that returns a PassResult."""

    @wraps(fn)
    def wrapped(gm: Module) -> PassResult:
        result = fn(gm)
        if result is None:
            return PassResult(gm, True)
        return result if isinstance(result, PassResult) else PassResult(result, True)

    if not inspect.isfunction(fn):
        wrapped.__name__ = type(fn).__name__
    return wrapped


def this_before_that_pass_constraint(this: Pass, that: Pass) -> Constraint:
    """A constraint: `this` comes before `that`."""

    def depends_on(a: Pass, b: Pass) -> bool:
        return a is not that or b is not this

    return depends_on


def _name(fn: Any) -> str:
    return fn.__name__ if inspect.isfunction(fn) else type(fn).__name__


class PassManager:
    """Runs passes over a module.

    Args:
        passes: in the order in which they run, unless a constraint moves them.
        constraints: each is called with an earlier and a later pass and says whether that order is right.
        steps: how often all of them run; less often where nothing changes any more.
        run_checks_after_each_pass: run the checks of `add_checks` after each.
        suppress_check_failures: go on though a constraint does not hold.
    """

    def __init__(
        self,
        passes: list[Pass] | None = None,
        constraints: list[Constraint] | None = None,
        steps: int | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
    ) -> None:
        self.passes = passes or []
        self.constraints = constraints or []
        self.steps = 1 if steps is None else steps
        self.run_checks_after_each_pass = run_checks_after_each_pass
        self.suppress_check_failures = suppress_check_failures
        self._validated = False

    def add_pass(self, _pass: Pass) -> None:
        """Put a pass at the end."""
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint: Constraint) -> None:
        """Have `constraint` kept."""
        self.constraints.append(constraint)
        self._validated = False

    def validate_constraints(self) -> None:
        """Raises: RuntimeError if the order of the passes breaks a constraint."""
        if self._validated:
            return
        for constraint in self.constraints:
            for i, first in enumerate(self.passes):
                for j, second in enumerate(self.passes[i + 1 :], i + 1):
                    if not constraint(first, second) and not self.suppress_check_failures:
                        raise RuntimeError(
                            f"pass schedule constraint violated. Expected {second} before {first} but found {first} at index {i} "
                            f"and {second} at index {j} in pass list."
                        )
        self._validated = True

    def solve_constraints(self) -> None:
        """Put the passes in an order that keeps the constraints, changing as little as possible.

        Raises: RuntimeError if there is none.
        """
        left, done = list(self.passes), []
        while left:
            ready = next((p for p in left if all(self._may_precede(p, q) for q in left if q is not p)), None)
            if ready is None:
                raise RuntimeError(f"Circular dependency detected within the following passes: {left}")
            left.remove(ready)
            done.append(ready)
        self.passes = done
        self._validated = True

    def _may_precede(self, first: Pass, second: Pass) -> bool:
        return all(constraint(first, second) for constraint in self.constraints)

    def add_checks(self, check: Callable[..., Any]) -> None:
        """Have ``check(module)`` called before and after. Raises: TypeError if it does not take one argument."""
        if len(inspect.signature(check).parameters) != 1:
            raise TypeError("PassManager check function should only take in one variable, a module")
        self.check = check  # type: ignore[method-assign]

    def check(self, module: Module) -> None:
        """What is checked; nothing unless `add_checks` or a subclass says so."""

    def __call__(self, module: Module) -> PassResult:
        if not self._validated:
            self.solve_constraints()
        self.check(module)
        changed_at_all = False
        for _ in range(self.steps):
            changed = False
            for i, fn in enumerate(self.passes):
                try:
                    result = checked(fn(module), _name(fn))
                    if result.modified and isinstance(result.graph_module, GraphModule):
                        result.graph_module.recompile()
                    if self.run_checks_after_each_pass:
                        self.check(result.graph_module)
                except Exception as error:
                    before = [_name(p) for p in self.passes[:i]]
                    raise Exception(  # PyTorch's type
                        f"An error occurred when running the '{_name(fn)}' pass after the following passes: {before}"
                    ) from error
                module, changed = result.graph_module, changed or result.modified
            changed_at_all = changed_at_all or changed
            if not changed:
                break
        return PassResult(module, changed_at_all)
