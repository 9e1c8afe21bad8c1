"""Processes whose inputs end at different times: those that are done go along with the collectives of the others."""

from __future__ import annotations

import warnings
from typing import Any

import flambeau as fb

from .. import distributed_c10d as c10d

__all__ = ["Join", "JoinHook", "Joinable"]


class JoinHook:
    """What a process without inputs does: `main_hook` in each iteration of the others, `post_hook` at the end."""

    def main_hook(self) -> None:
        """Go along with the collectives of one iteration."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called once all processes are done.

        Args:
            is_last_joiner: whether this process was among the last.
        """


class Joinable:
    """What `Join` takes: something with collectives in each iteration."""

    def __init__(self) -> None:
        self._join_config: dict[str, Any] = {"enable": False, "throw": False, "first": False}

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """A `JoinHook` for one context; keywords come from `Join`."""
        raise NotImplementedError(f"{type(self).__name__} does not define join_hook")

    @property
    def join_device(self) -> Any:
        """The device of its collectives."""
        raise NotImplementedError(f"{type(self).__name__} does not define join_device")

    @property
    def join_process_group(self) -> Any:
        """The ranks it runs on."""
        raise NotImplementedError(f"{type(self).__name__} does not define join_process_group")


class Join:
    """A context in which processes may run out of inputs at different times.

    Args:
        joinables: `Joinable` objects, in the order of their collectives.
        enable: False where all processes have equally many inputs.
        throw_on_early_termination: raise on all processes as soon as one has run out.
        **kwargs: given to each `join_hook`.
    Raises: ValueError for no joinables, or for different groups.
    """

    def __init__(self, joinables: list[Joinable], enable: bool = True, throw_on_early_termination: bool = False, **kwargs: Any) -> None:
        if not joinables:
            raise ValueError("The join context manager requires at least one joinable")
        groups = {id(joinable.join_process_group): joinable.join_process_group for joinable in joinables}
        if len(groups) > 1:
            raise ValueError("Using join context manager with multiple process groups")
        self._group = next(iter(groups.values()))
        self._joinables = joinables
        self._enable = enable
        self._throw = throw_on_early_termination
        self._hooks = [joinable.join_hook(**kwargs) for joinable in joinables]

    def __enter__(self) -> None:
        for at, joinable in enumerate(self._joinables):
            joinable._join_config = {"enable": self._enable, "throw": self._throw, "first": at == 0}

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        for joinable in self._joinables:
            joinable._join_config = {"enable": False, "throw": False, "first": False}
        if not self._enable or kind is not None:
            return
        last = True
        rounds = 0
        while active := self._active():
            last = False
            for joinable in self._joinables:
                joinable._join_config["active"] = active
            if self._throw:
                self._tell_to_throw()
            for hook in self._hooks:
                hook.main_hook()
            rounds += 1
            if rounds == 1000:
                warnings.warn("Join: this process has run out of inputs 1000 iterations before another one.", stacklevel=2)
        for hook in self._hooks:
            hook.post_hook(last)

    def _active(self) -> int:
        count = fb.zeros(1)
        self._group.all_reduce([count], c10d.ReduceOp.SUM, False)
        return int(count)

    def _tell_to_throw(self) -> None:
        self._group.all_reduce([fb.ones(1)], c10d.ReduceOp.SUM, False)
        raise RuntimeError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")

    @staticmethod
    def notify_join_context(joinable: Joinable) -> Any:
        """Tell processes that have run out that this one has not; a joinable calls it before its collectives.

        Args:
            joinable: the caller.
        Returns: the `Work` of that, or None outside of a context.
        Raises: RuntimeError if the context throws and a process has run out.
        """
        config = joinable._join_config
        if not config["enable"] or not config["first"]:
            return None
        group = joinable.join_process_group
        work = group.all_reduce([fb.ones(1)], c10d.ReduceOp.SUM, True)
        if config["throw"]:
            done = fb.zeros(1)
            work.wait()
            if int(work.result()[0]) < group.size():
                group.all_reduce([done], c10d.ReduceOp.SUM, False)
                raise RuntimeError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")
        return work
