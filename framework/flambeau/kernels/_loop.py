"""`loop`: a function of the kernel language over the memory of tensors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

import numpy as np

from flambeau_kernels import engines
from flambeau_kernels.cpu import tier
from flambeau_kernels.engine.language import Kernel

from ..tensor import Tensor, bump
from ._memory import lack_values, memory_of

__all__ = ["Loop", "loop"]


class Loop:
    """A kernel over the memory of tensors; see `loop`."""

    def __init__(self, function: FunctionType, mutates_args: tuple[str, ...], aliased: bool) -> None:
        parameters = inspect.signature(function).parameters
        self.__doc__, self.__name__, self.__module__ = function.__doc__, function.__name__, function.__module__
        self.names = [name for name, p in parameters.items() if p.kind != p.KEYWORD_ONLY][1:]
        self.constants = [name for name, p in parameters.items() if p.kind == p.KEYWORD_ONLY]
        self.defaults = dict(function.__kwdefaults__ or {})
        self.written = frozenset(mutates_args)
        if self.written - set(self.names):
            raise ValueError(
                f"kernels.loop: mutates_args has {sorted(self.written - set(self.names))}, which are no parameters of {self.__name__}, "
                f"whose tensors and numbers are {self.names}"
            )
        self.kernel = Kernel(function, aliased, written=self.written)

    def __repr__(self) -> str:
        return f"<kernels.loop {self.__name__}({', '.join(self.names)})>"

    def __call__(self, chunks: int, *args: Any, **constants: Any) -> None:
        """Run chunks ``0 ... chunks - 1`` on the threads, in any order, and wait for them.

        Args:
            chunks: how many; each is told its number.
            args: a tensor, int or float for each parameter but the first, by place or by name. Tensors that are read may lie in any
                way and are copied where they are not contiguous.
            constants: what the kernel takes by keyword.
        Raises: TypeError for other arguments, for what the kernel language does not have, and where it stores to what `mutates_args`
            does not name; RuntimeError for tensors that require grad while gradients are recorded, that are written and not
            contiguous, or that share memory with one that is written; NotImplementedError for tensors of other devices than the CPU;
            those of CUDA it takes with ``FLAMBEAU_BACKEND=numba``, all of one device, a thread for each chunk.
        """
        given, constants = self._bound(args, constants)
        chunks = _counted(self.__name__, chunks)
        if lack_values(given.values()):
            return                                    # shapes without values: there is nothing to write
        arrays = {name: self._array(name, a) for name, a in given.items()}
        self._check_no_overlap(arrays)
        if chunks:
            if any(_is_of_a_device(a) for a in arrays.values()):
                self._run_on_device(chunks, arrays, constants)
            elif tier.compiles():
                self.kernel.run(chunks, *arrays.values(), release=True, **constants)
            else:
                from flambeau_kernels.engine.language import interpret

                arrays = {name: a if name in self.written else _only_read(a) for name, a in arrays.items()}
                interpret.run(self.kernel.function, chunks, arrays, constants)
        for name in self.written:
            bump(given[name])

    def _bound(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """What parameters are given, in their order, and constants."""
        by_place = dict(zip(self.names, args, strict=False))
        for name in keywords:
            if name in by_place or name not in self.names and name not in self.constants:
                what = "is given twice" if name in by_place else f"is no parameter; these are {[*self.names, *self.constants]}"
                raise TypeError(f"{self.__name__}: {name!r} {what}")
        named = by_place | {name: a for name, a in keywords.items() if name in self.names}
        lacking = [name for name in self.names if name not in named]
        if lacking or len(args) > len(self.names):
            got = f"got {max(len(named), len(args))} of these" + f", {', '.join(lacking)} not" * bool(lacking)
            raise TypeError(f"{self.__name__}: takes the number of chunks and {', '.join(self.names)}; {got}")
        constants = self.defaults | {name: a for name, a in keywords.items() if name in self.constants}
        unset = [name for name in self.constants if name not in constants]
        if unset:
            raise TypeError(f"{self.__name__}: the constant {unset[0]!r} is not given, as in {self.__name__}(..., {unset[0]}=...)")
        return {name: named[name] for name in self.names}, constants

    def _array(self, name: str, a: Any) -> Any:
        """The argument of parameter `name` as the kernel takes it."""
        if isinstance(a, Tensor):
            array = memory_of(self.__name__, name, a, devices=engines.chosen().jits_for_devices)
            if a.is_complex() or a.is_floating_point() and a.dtype.itemsize == 1:
                instead = "view_as_real(x)" if a.is_complex() else "x.float()"
                raise TypeError(f"{self.__name__}: argument {name!r} is {a.dtype}, of which loops have no numbers; give {instead}")
            if array.flags.c_contiguous:
                return array
            if name in self.written:
                raise RuntimeError(
                    f"{self.__name__}: argument {name!r} is written and not contiguous: shape {tuple(a.shape)}, strides {a.stride()}; "
                    "write a contiguous tensor and copy it"
                )
            return a.contiguous()._array if _is_of_a_device(array) else np.ascontiguousarray(array)
        if name in self.written:
            raise TypeError(f"{self.__name__}: argument {name!r} is written, so it must be Tensor, not {type(a).__name__}")
        if isinstance(a, (bool, int, np.integer, np.bool_)):
            return int(a)
        if isinstance(a, (float, np.floating)):
            return float(a)
        raise TypeError(f"{self.__name__}: argument {name!r} must be Tensor, int or float, not {type(a).__name__}")

    def _check_no_overlap(self, arrays: dict[str, Any]) -> None:
        if self.kernel.aliased:
            return
        for name in self.written:
            for other, a in arrays.items():
                if other != name and _share_memory(a, arrays[name]):
                    raise RuntimeError(
                        f"{self.__name__}: {name!r}, which is written, shares memory with {other!r}; give a clone, or declare the loop "
                        "with aliased=True"
                    )


    def _run_on_device(self, chunks: int, arrays: dict[str, Any], constants: dict[str, Any]) -> None:
        from flambeau_kernels.numba_engine import device

        hosted = [name for name, a in arrays.items() if isinstance(a, np.ndarray)]
        if hosted:
            raise RuntimeError(f"{self.__name__}: {hosted[0]!r} is on the CPU beside tensors of CUDA; move it with .to('cuda')")
        if device.why_none():
            raise NotImplementedError(f"{self.__name__}: loops run on CUDA by numba.cuda alone, and {device.why_none()}")
        from flambeau_kernels.numba_engine import device_kernels

        device_kernels.run(self.kernel.function, chunks, arrays, constants, self.written)


def _only_read(a: Any) -> Any:
    """`a`; an array as one that nothing can be stored to."""
    if isinstance(a, np.ndarray):
        a = a.view()
        a.flags.writeable = False
    return a


def _is_of_a_device(a: Any) -> bool:
    return not isinstance(a, np.ndarray) and hasattr(a, "strides")


def _share_memory(a: Any, b: Any) -> bool:
    """Whether two contiguous arrays, of the host or of a device, lie over each other in part."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.may_share_memory(a, b)
    if not _is_of_a_device(a) or not _is_of_a_device(b):
        return False
    first, second = (getattr(x, "__cuda_array_interface__")["data"][0] for x in (a, b))  # noqa: B009  # the host's arrays have none
    return first < second + b.nbytes and second < first + a.nbytes


def _counted(name: str, chunks: Any) -> int:
    if not isinstance(chunks, (int, np.integer)) or isinstance(chunks, bool):
        raise TypeError(f"{name}: the number of chunks must be int, not {type(chunks).__name__}")
    if chunks < 0:
        raise ValueError(f"{name}: the number of chunks is at least 0, got {chunks}")
    return int(chunks)


def loop(fn: Callable[..., None] | None = None, /, *, mutates_args: str | Iterable[str], aliased: bool = False) -> Any:
    """Make a function of loops a compiled kernel over the memory of tensors, which runs in chunks on all threads.

    The first parameter is the number of the chunk. Tensors arrive as pointers to their first element, in the order of their
    memory: ``x[i]`` is element `i` of the flat tensor, ``x + n`` the pointer `n` elements on; ints and floats arrive as they are, and
    parameters after ``*`` are constants, for each of whose values the kernel is compiled. **No index is checked** when compiled:
    with ``FLAMBEAU_BACKEND=numpy`` Python runs the kernel and says where an index leaves its tensor.

    Args:
        fn: a function of arithmetic, comparisons, ``if``, ``while`` and ``for`` over ranges, without a result; a decorator where it is
            left out. Half types are float32 inside. It may call the words of `flambeau.kernels.words` and functions like itself.
        mutates_args: the parameters whose tensors it writes. No two chunks may write one element.
        aliased: whether tensors that it writes may share memory with others, which costs speed.
    Returns: a `Loop`, called with the number of chunks and the arguments.
    Raises: ValueError for names in `mutates_args` that are no parameters; TypeError for what is no function defined by def; OSError for
        one whose source is not to be found.

    >>> @fb.kernels.loop(mutates_args=("out",))
    ... def running_maximum(row, x, out, n):
    ...     best = x[row * n]
    ...     for i in range(row * n, row * n + n):
    ...         best = max(best, x[i])
    ...         out[i] = best
    >>> x = fb.tensor([[1.0, 3.0, 2.0], [5.0, 4.0, 6.0]])
    >>> out = fb.empty_like(x)
    >>> running_maximum(2, x, out, 3)
    >>> out.tolist()
    [[1.0, 3.0, 3.0], [5.0, 5.0, 6.0]]
    """

    def make(function: Any) -> Loop:
        if not isinstance(function, FunctionType) or not function.__name__.isidentifier():
            raise TypeError(f"kernels.loop: a kernel is a function defined by def, got {function!r}")
        if not function.__code__.co_argcount:
            raise TypeError(f"kernels.loop: {function.__name__} has no parameters; the first one is the number of the chunk")
        try:
            inspect.getsource(function)
        except OSError:
            raise OSError(
                f"kernels.loop: {function.__name__} has no source to compile; write it in a file or a notebook, not in exec or python -c"
            ) from None
        return Loop(function, (mutates_args,) if isinstance(mutates_args, str) else tuple(mutates_args), aliased)

    return make if fn is None else make(fn)
