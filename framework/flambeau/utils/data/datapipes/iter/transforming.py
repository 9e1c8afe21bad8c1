"""Stages that look at one sample at a time, and the source of most pipes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from flambeau.utils.data._utils.collate import default_collate
from flambeau.utils.data.datapipes.datapipe import IterDataPipe, functional_datapipe, warn_of_lambda

__all__ = ["CollatorIterDataPipe", "FilterIterDataPipe", "IterableWrapperIterDataPipe", "MapperIterDataPipe"]


class IterableWrapperIterDataPipe(IterDataPipe[Any]):
    """The samples of `iterable`, of a copy of it each time unless `deepcopy` is False or it cannot be copied."""

    def __init__(self, iterable: Iterable[Any], deepcopy: bool = True) -> None:
        self.iterable, self.deepcopy = iterable, deepcopy

    def __iter__(self) -> Iterator[Any]:
        source = self.iterable
        if self.deepcopy:
            try:
                source = copy.deepcopy(self.iterable)
            except TypeError:
                import warnings

                warnings.warn(
                    "IterableWrapper: the iterable cannot be copied; it is read itself, so another pass may begin where this one ends",
                    stacklevel=2,
                )
        yield from source

    def __len__(self) -> int:
        return len(self.iterable)  # type: ignore[arg-type]


@functional_datapipe("map")
class MapperIterDataPipe(IterDataPipe[Any]):
    """``fn(sample)`` for each sample.

    Args:
        input_col: which part of a sample (an index or key, or several) is given to `fn`; all of it if None.
        output_col: where the result goes in the sample: the place of the input if None, its end for -1.
    Raises: ValueError for an output_col without input_col, or of several places.
    """

    def __init__(self, datapipe: IterDataPipe[Any], fn: Callable[..., Any], input_col: Any = None, output_col: Any = None) -> None:
        warn_of_lambda(fn)
        if input_col is None and output_col is not None:
            raise ValueError("map: output_col needs input_col")
        if isinstance(output_col, (list, tuple)):
            if len(output_col) != 1:
                raise ValueError(f"map: output_col must be one place, got {output_col}")
            (output_col,) = output_col
        self.datapipe, self.fn, self.input_col, self.output_col = datapipe, fn, input_col, output_col

    def _apply(self, sample: Any) -> Any:
        if self.input_col is None:
            return self.fn(sample)
        columns = self.input_col if isinstance(self.input_col, (list, tuple)) else [self.input_col]
        result = self.fn(*(sample[column] for column in columns))
        was_tuple = isinstance(sample, tuple)
        made = list(sample) if was_tuple else sample
        if self.output_col == -1:
            made.append(result)
        elif self.output_col is not None:
            made[self.output_col] = result
        else:
            made[columns[0]] = result
            # What several parts became takes the place of the first; the others go.
            for at in sorted(columns[1:], reverse=True):
                del made[at]
        return tuple(made) if was_tuple else made

    def __iter__(self) -> Iterator[Any]:
        for sample in self.datapipe:
            yield self._apply(sample)

    def __len__(self) -> int:
        return len(self.datapipe)  # type: ignore[arg-type]


@functional_datapipe("collate")
class CollatorIterDataPipe(MapperIterDataPipe):
    """A batch of tensors of each chunk, by `collate_fn`."""

    def __init__(
        self, datapipe: IterDataPipe[Any], conversion: Any = default_collate, collate_fn: Callable[..., Any] | None = None,
    ) -> None:
        chosen = conversion if collate_fn is None else collate_fn
        if not callable(chosen):
            raise NotImplementedError("collate: conversions by column of a data frame are not built; pass a function")
        super().__init__(datapipe, fn=chosen)


@functional_datapipe("filter")
class FilterIterDataPipe(IterDataPipe[Any]):
    """The samples for which ``filter_fn(sample)`` is True.

    Args:
        input_col: which part of a sample (an index or key, or several) is looked at; all of it if None.
    Raises: ValueError, when read, if `filter_fn` returns anything but a bool.
    """

    def __init__(self, datapipe: IterDataPipe[Any], filter_fn: Callable[..., Any], input_col: Any = None) -> None:
        warn_of_lambda(filter_fn)
        self.datapipe, self.filter_fn, self.input_col = datapipe, filter_fn, input_col

    def _says(self, sample: Any) -> bool:
        if self.input_col is None:
            answer = self.filter_fn(sample)
        elif isinstance(self.input_col, (list, tuple)):
            answer = self.filter_fn(*(sample[column] for column in self.input_col))
        else:
            answer = self.filter_fn(sample[self.input_col])
        if not isinstance(answer, bool):
            raise ValueError(f"filter: filter_fn must return a bool, got {type(answer)}")
        return answer

    def __iter__(self) -> Iterator[Any]:
        for sample in self.datapipe:
            if self._says(sample):
                yield sample
