"""Stages of several pipes: one of many, and many of one."""

from __future__ import annotations

import copy as copying
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from flambeau.utils.data.datapipes.datapipe import IterDataPipe, functional_datapipe, warn_of_lambda

__all__ = [
    "ConcaterIterDataPipe",
    "DemultiplexerIterDataPipe",
    "ForkerIterDataPipe",
    "MultiplexerIterDataPipe",
    "ZipperIterDataPipe",
]


def _check_pipes(name: str, datapipes: tuple[Any, ...]) -> None:
    if not datapipes:
        raise ValueError(f"{name}: at least one pipe is needed")
    for pipe in datapipes:
        if not isinstance(pipe, IterDataPipe):
            raise TypeError(f"{name}: all inputs must be IterDataPipes, got {type(pipe).__name__}")


@functional_datapipe("concat")
class ConcaterIterDataPipe(IterDataPipe[Any]):
    """The samples of several pipes, one pipe after another. Raises: ValueError without pipes; TypeError for anything else."""

    def __init__(self, *datapipes: IterDataPipe[Any]) -> None:
        _check_pipes("concat", datapipes)
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        for pipe in self.datapipes:
            yield from pipe

    def __len__(self) -> int:
        return sum(len(pipe) for pipe in self.datapipes)  # type: ignore[arg-type]


@functional_datapipe("zip")
class ZipperIterDataPipe(IterDataPipe[tuple[Any, ...]]):
    """Tuples of a sample of each pipe, until the shortest ends. Raises: TypeError for anything else than pipes."""

    def __init__(self, *datapipes: IterDataPipe[Any]) -> None:
        for pipe in datapipes:
            if not isinstance(pipe, IterDataPipe):
                raise TypeError(f"zip: all inputs must be IterDataPipes, got {type(pipe).__name__}")
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        yield from zip(*self.datapipes, strict=False)

    def __len__(self) -> int:
        return min(len(pipe) for pipe in self.datapipes)  # type: ignore[arg-type]


@functional_datapipe("mux")
class MultiplexerIterDataPipe(IterDataPipe[Any]):
    """A sample of each pipe in turn, until one cannot give its sample of a round."""

    def __init__(self, *datapipes: IterDataPipe[Any]) -> None:
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        for round_ in zip(*self.datapipes, strict=False):
            yield from round_

    def __len__(self) -> int:
        return min(len(pipe) for pipe in self.datapipes) * len(self.datapipes)  # type: ignore[arg-type]


class _ChildDataPipe(IterDataPipe[Any]):
    """One of the pipes that a pipe was divided into."""

    def __init__(self, main_datapipe: _Divided, instance_id: int) -> None:
        self.main_datapipe, self.instance_id = main_datapipe, instance_id

    def reset(self) -> None:
        self.main_datapipe.begin(self.instance_id)

    def __iter__(self) -> Iterator[Any]:
        yield from self.main_datapipe.read(self.instance_id, self.main_datapipe.passes)

    def __len__(self) -> int:
        return self.main_datapipe.length()


class _Divided:
    """A pipe that several children read, each at its own pace: what one has not read yet waits in its buffer.

    When a child begins anew, the pass begins anew for all of them.
    """

    name = ""

    def __init__(self, datapipe: IterDataPipe[Any], num_instances: int, buffer_size: int) -> None:
        self.main_datapipe, self.num_instances, self.buffer_size = datapipe, num_instances, buffer_size
        self.passes = 0
        self._samples: Iterator[Any] | None = None
        self._ended = False
        self._clear()

    def _clear(self) -> None:
        self._waiting: list[deque[Any]] = [deque() for _ in range(self.num_instances)]
        self._begun, self._done = [False] * self.num_instances, [False] * self.num_instances
        self._samples, self._ended = None, False

    def __getstate__(self) -> dict[str, Any]:
        # A pass that goes on stays in its process.
        return {**self.__dict__, "_samples": None, "_ended": False, "_waiting": [deque() for _ in range(self.num_instances)],
                "_begun": [False] * self.num_instances, "_done": [False] * self.num_instances}  # fmt: skip

    def begin(self, child: int) -> None:
        """Begin the pass of `child`: that of all of them, if it has begun before."""
        if self._begun[child]:
            if not all(self._done):
                warnings.warn(f"{self.name}: a child pipe begins anew, which ends the pass of the others too", stacklevel=2)
            self._clear()
            self.passes += 1
        self._begun[child] = True

    def read(self, child: int, pass_: int) -> Iterator[Any]:
        while pass_ == self.passes:
            if self._waiting[child]:
                yield self._waiting[child].popleft()
            elif self._ended or not self._advance():
                self._done[child] = True
                return
        raise RuntimeError(
            f"{self.name}: this iterator has been invalidated, because another child pipe of the same {self.name}() has begun a new pass"
        )

    def _advance(self) -> bool:
        """Read a sample for whom it may concern. Returns False at the end."""
        if self._samples is None:
            self._samples = iter(self.main_datapipe)
        try:
            sample = next(self._samples)
        except StopIteration:
            self._ended = True
            return False
        self._give(sample)
        return True

    def _give(self, sample: Any) -> None:
        raise NotImplementedError

    def _check_room(self, waiting: int) -> None:
        if self.buffer_size >= 0 and waiting > self.buffer_size:
            self._clear()
            self.passes += 1
            raise BufferError(
                f"{self.name}: more than buffer_size={self.buffer_size} samples wait for a child that is behind; read the children at the "
                f"same pace, or make the buffer larger (-1 for no limit)"
            )

    def length(self) -> int:
        raise TypeError(f"{self.name}: how many samples a child has is not known beforehand")


def _check_division(name: str, num_instances: int, buffer_size: int) -> None:
    if num_instances < 1:
        raise ValueError(f"{name}: num_instances must be 1 or more, got {num_instances}")
    if buffer_size < 0:
        warnings.warn(f"{name}: a buffer without limit may take all memory; set buffer_size to bound it", stacklevel=4)


class _Fork(_Divided):
    name = "fork"

    def __init__(self, datapipe: IterDataPipe[Any], num_instances: int, buffer_size: int, copy: str | None) -> None:
        super().__init__(datapipe, num_instances, buffer_size)
        self._copied = {None: None, "shallow": copying.copy, "deep": copying.deepcopy}[copy]

    def _give(self, sample: Any) -> None:
        for waiting in self._waiting:
            waiting.append(sample if self._copied is None else self._copied(sample))
        self._check_room(max(len(waiting) for waiting in self._waiting))

    def length(self) -> int:
        return len(self.main_datapipe)  # type: ignore[arg-type]


@functional_datapipe("fork")
class ForkerIterDataPipe(IterDataPipe[Any]):
    """`num_instances` pipes with all samples of one.

    Args:
        buffer_size: how far one may be ahead of the others; -1 for no limit.
        copy: None for the same sample in all, 'shallow' or 'deep' for a copy each.
    Raises: ValueError for a number, size or kind of copy that does not make sense; BufferError, when read, if one is too far ahead.
    """

    def __new__(cls, datapipe: IterDataPipe[Any], num_instances: int, buffer_size: int = 1000, copy: str | None = None) -> Any:
        _check_division("fork", num_instances, buffer_size)
        if copy not in (None, "shallow", "deep"):
            raise ValueError(f"fork: copy must be None, 'shallow' or 'deep', got {copy!r}")
        if num_instances == 1:
            return datapipe
        main = _Fork(datapipe, num_instances, buffer_size, copy)
        return [_ChildDataPipe(main, at) for at in range(num_instances)]


class _Demux(_Divided):
    name = "demux"

    def __init__(
        self, datapipe: IterDataPipe[Any], num_instances: int, classifier_fn: Callable[[Any], int | None], drop_none: bool,
        buffer_size: int,
    ) -> None:
        super().__init__(datapipe, num_instances, buffer_size)
        self.classifier_fn, self.drop_none = classifier_fn, drop_none

    def _give(self, sample: Any) -> None:
        child = self.classifier_fn(sample)
        if child is None and self.drop_none:
            return
        if child is None or not isinstance(child, int) or not 0 <= child < self.num_instances:
            allowed = f"an int in [0, {self.num_instances - 1}]" + (" or None" if self.drop_none else "")
            raise ValueError(f"demux: classifier_fn must return {allowed}, got {child!r}; set drop_none=True to leave out None")
        self._waiting[child].append(sample)
        self._check_room(sum(map(len, self._waiting)) - 1)


@functional_datapipe("demux")
class DemultiplexerIterDataPipe(IterDataPipe[Any]):
    """`num_instances` pipes, each sample going to the one that ``classifier_fn(sample)`` names.

    Args:
        drop_none: leave out samples that it says None of, instead of raising.
        buffer_size: how many samples may wait for their pipe to be read; -1 for no limit.
    Raises: ValueError for numbers that do not make sense, also from `classifier_fn`; BufferError, when read, if too many wait.
    """

    def __new__(
        cls, datapipe: IterDataPipe[Any], num_instances: int, classifier_fn: Callable[[Any], int | None], drop_none: bool = False,
        buffer_size: int = 1000,
    ) -> Any:
        _check_division("demux", num_instances, buffer_size)
        warn_of_lambda(classifier_fn)
        main = _Demux(datapipe, num_instances, classifier_fn, drop_none, buffer_size)
        return [_ChildDataPipe(main, at) for at in range(num_instances)]
