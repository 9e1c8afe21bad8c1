"""The two kinds of pipes, and how their stages are offered as methods."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, TypeVar, get_origin, get_type_hints

from flambeau.utils.data.dataset import Dataset, IterableDataset

__all__ = [
    "DFIterDataPipe",
    "DataChunk",
    "IterDataPipe",
    "MapDataPipe",
    "argument_validation",
    "functional_datapipe",
    "guaranteed_datapipes_determinism",
    "non_deterministic",
    "runtime_validation",
    "runtime_validation_disabled",
]

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class _Pipe:
    """What both kinds share: stages by name, and hooks of pickling."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}
    reduce_ex_hook: ClassVar[Callable[[Any], Any] | None] = None
    getstate_hook: ClassVar[Callable[[Any], Any] | None] = None

    def __getattr__(self, name: str) -> Any:
        stage = type(self).functions.get(name)
        if stage is None:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}, and no stage of that name is registered")
        made = functools.partial(stage, self)
        functools.update_wrapper(made, stage, assigned=("__doc__",))
        return made

    @classmethod
    def register_function(cls, function_name: str, function: Callable[..., Any]) -> None:
        """Offer ``pipe.function_name(...)`` for ``function(pipe, ...)``."""
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(cls, function_name: str, cls_to_register: type, enable_df_api_tracing: bool = False) -> None:
        """Offer ``pipe.function_name(...)`` for ``cls_to_register(pipe, ...)``. Raises: Exception if the name is taken."""
        if function_name in cls.functions:
            raise Exception(  # PyTorch's type
                f"functional_datapipe: {function_name!r} is registered already, for {cls.functions[function_name]}"
            )

        def stage(source: Any, *args: Any, **kwargs: Any) -> Any:
            return cls_to_register(source, *args, **kwargs)

        stage.__doc__ = cls_to_register.__doc__
        cls.functions[function_name] = stage

    def __getstate__(self) -> Any:
        return self.__dict__ if type(self).getstate_hook is None else type(self).getstate_hook(self)  # type: ignore[misc]

    def __reduce_ex__(self, protocol: Any) -> Any:
        hook = type(self).reduce_ex_hook
        if hook is not None:
            with _not_implemented_means_no():
                return hook(self)
        return object.__reduce_ex__(self, protocol)

    @classmethod
    def set_reduce_ex_hook(cls, hook_fn: Callable[[Any], Any] | None) -> None:
        """Pickle pipes by `hook_fn`. Raises: RuntimeError if there is a hook already."""
        if cls.reduce_ex_hook is not None and hook_fn is not None:
            raise RuntimeError(f"{cls.__name__}: there is a hook of __reduce_ex__ already; take it away with None first")
        cls.reduce_ex_hook = None if hook_fn is None else staticmethod(hook_fn)

    @classmethod
    def set_getstate_hook(cls, hook_fn: Callable[[Any], Any] | None) -> None:
        """Read the state of pipes by `hook_fn`. Raises: RuntimeError if there is a hook already."""
        if cls.getstate_hook is not None and hook_fn is not None:
            raise RuntimeError(f"{cls.__name__}: there is a hook of __getstate__ already; take it away with None first")
        cls.getstate_hook = None if hook_fn is None else staticmethod(hook_fn)

    def __repr__(self) -> str:
        return type(self).__qualname__

    __str__ = __repr__

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *type(self).functions]


@contextmanager
def _not_implemented_means_no() -> Iterator[None]:
    """A hook that raises NotImplementedError leaves the pipe to ordinary pickling."""
    try:
        yield
    except NotImplementedError:
        return


class IterDataPipe(_Pipe, IterableDataset[_T_co]):
    """A stream of samples. Subclasses define `__iter__`, and may define `reset`, which every new iteration calls.

    A pipe is read by one iterator at a time: the next one ends those before it.
    """

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}
    _valid_iterator_id: int = 0
    _number_of_samples_yielded: int = 0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__iter__" in cls.__dict__:
            cls.__iter__ = _one_at_a_time(cls.__dict__["__iter__"])  # type: ignore[method-assign]

    def reset(self) -> None:
        """Begin anew; called by each `iter(pipe)`."""


def _one_at_a_time(iterate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`iterate`, an `__iter__`, whose iterators end those made before."""

    @functools.wraps(iterate)
    def __iter__(self: Any) -> Any:
        # A class that calls the `__iter__` of its base is begun once.
        if getattr(self, "_beginning", False):
            return iterate(self)
        self._valid_iterator_id = self._valid_iterator_id + 1
        self._number_of_samples_yielded = 0
        self._beginning = True
        try:
            self.reset()
            samples = iterate(self)
        finally:
            del self._beginning
        return samples if samples is self else _PipeIterator(self, iter(samples), self._valid_iterator_id)

    return __iter__


class _PipeIterator:
    """The samples of a pipe, until another iterator of it is made."""

    def __init__(self, pipe: Any, samples: Iterator[Any], number: int) -> None:
        self._pipe, self._samples, self._number = pipe, samples, number

    def __iter__(self) -> _PipeIterator:
        return self

    def __next__(self) -> Any:
        pipe = self._pipe
        if self._number != pipe._valid_iterator_id:
            raise RuntimeError(
                f"{pipe}: this iterator has been invalidated because another iterator has been created from the same IterDataPipe; "
                f"for two readers use pipe.fork(num_instances=2)"
            )
        sample = next(self._samples)
        pipe._number_of_samples_yielded += 1
        return sample

    def __getattr__(self, name: str) -> Any:
        return getattr(self._samples, name)


class DFIterDataPipe(IterDataPipe[_T_co]):
    """A stream of data frames."""


class MapDataPipe(_Pipe, Dataset[_T_co]):
    """Samples found by key. Subclasses define `__getitem__` and `__len__`."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}


class DataChunk(list[_T], Generic[_T]):
    """A batch of samples that is not collated yet: a list."""

    def __init__(self, items: Iterable[_T]) -> None:
        items = list(items)
        super().__init__(items)
        self.items = items

    def as_str(self, indent: str = "") -> str:
        """The samples, one after another."""
        return indent + "[" + ", ".join(str(item) for item in iter(self)) + "]"

    def raw_iterator(self) -> Iterator[_T]:
        """The samples as they were given."""
        yield from self.items


# -- registration --------------------------------------------------------------------------------------------------------


class functional_datapipe:  # PyTorch's name
    """A decorator of pipes: ``pipe.name(...)`` makes the decorated class over `pipe`."""

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name, self.enable_df_api_tracing = name, enable_df_api_tracing

    def __call__(self, cls: Any) -> Any:
        for kind in (IterDataPipe, MapDataPipe):
            if isinstance(cls, type) and issubclass(cls, kind):
                kind.register_datapipe_as_function(self.name, cls, enable_df_api_tracing=self.enable_df_api_tracing)
        return cls


_determinism_wanted = False


class guaranteed_datapipes_determinism:  # PyTorch's name
    """Inside, pipes that are marked `non_deterministic` cannot be made."""

    def __init__(self) -> None:
        global _determinism_wanted
        self._before = _determinism_wanted
        _determinism_wanted = True

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        global _determinism_wanted
        _determinism_wanted = self._before


class non_deterministic:  # PyTorch's name
    """Marks a pipe whose order may differ between runs; given a function, one for which it says so of the arguments."""

    def __init__(self, arg: Any) -> None:
        self._cls = arg if isinstance(arg, type) else None
        if self._cls is not None and not issubclass(self._cls, IterDataPipe):
            raise TypeError(f"non_deterministic: it decorates an IterDataPipe, got {arg.__name__}")
        if self._cls is None and not callable(arg):
            raise TypeError(f"non_deterministic: it takes a pipe or a function, got {arg}")
        self._says = None if self._cls is not None else arg

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._cls is None:
            if not (len(args) == 1 and isinstance(args[0], type) and issubclass(args[0], IterDataPipe)):
                raise TypeError(f"non_deterministic: it decorates an IterDataPipe, got {args[0] if args else None}")
            decorated = args[0]
            says = self._says

            def make(*args: Any, **kwargs: Any) -> Any:
                answer = says(*args, **kwargs)  # type: ignore[misc]
                if not isinstance(answer, bool):
                    raise TypeError(f"non_deterministic: the function must return a bool, got {type(answer)}")
                _refuse(decorated, answer)
                return decorated(*args, **kwargs)

            return make
        _refuse(self._cls, True)
        return self._cls(*args, **kwargs)


def _refuse(cls: type, varies: bool) -> None:
    if _determinism_wanted and varies:
        raise TypeError(f"{cls.__name__} is non-deterministic, and guaranteed_datapipes_determinism is on")


# -- validation ----------------------------------------------------------------------------------------------------------


def argument_validation(f: Callable[..., Any]) -> Callable[..., Any]:
    """Check at each call that what is annotated as a pipe is one. Raises: TypeError, when called."""
    signature = inspect.signature(f)

    @functools.wraps(f)
    def checked(*args: Any, **kwargs: Any) -> Any:
        hints, bound = get_type_hints(f), signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            wanted = get_origin(hints.get(name)) or hints.get(name)
            if isinstance(wanted, type) and issubclass(wanted, (IterDataPipe, MapDataPipe)) and not isinstance(value, wanted):
                raise TypeError(f"{f.__qualname__}: {name} must be a {wanted.__name__}, got {type(value).__name__}")
        return f(*args, **kwargs)

    return checked


_validates = True


class runtime_validation_disabled:  # PyTorch's name
    """Inside, `runtime_validation` does not look."""

    def __init__(self) -> None:
        global _validates
        self._before = _validates
        _validates = False

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        global _validates
        _validates = self._before


def runtime_validation(f: Callable[..., Any]) -> Callable[..., Any]:
    """Check that an `__iter__` annotated as ``-> Iterator[T]`` yields instances of T, a class.

    Raises: TypeError if it decorates another method; RuntimeError, when read, for another type.
    """
    if f.__name__ != "__iter__":
        raise TypeError(f"runtime_validation: it decorates __iter__, got {f.__name__}")

    @functools.wraps(f)
    def checked(self: Any) -> Iterator[Any]:
        hint = get_type_hints(f).get("return")
        wanted = next(iter(getattr(hint, "__args__", ())), object)
        wanted = get_origin(wanted) or wanted
        for sample in f(self):
            if _validates and isinstance(wanted, type) and not isinstance(sample, wanted):
                raise RuntimeError(f"{self}: expected samples of type {wanted.__name__}, got {type(sample).__name__}")
            yield sample

    return checked


def warn_of_lambda(fn: Any) -> None:
    """Say early that `fn` cannot reach a worker that is spawned."""
    name = getattr(fn, "__name__", "")
    if name == "<lambda>":
        warnings.warn(
            "a lambda cannot be pickled, which workers that are not forked ask for: use a function of a module, or functools.partial",
            stacklevel=4,
        )
