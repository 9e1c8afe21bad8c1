"""Functions that numba has compiled, over tensors: `wrap_numba`, and `numba_op` that makes them operators."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, get_type_hints

import numpy as np

from .._tags import Tag
from ..kernels._memory import lack_values, memory_of
from ..tensor import Tensor, bump, wrap
from ._custom import CustomOpDef, custom_op

__all__ = ["NumbaKernel", "numba_op", "wrap_numba"]


class NumbaKernel:
    """What numba has compiled, called with tensors; see `wrap_numba`."""

    def __init__(self, kernel: Any, mutates_args: str | Iterable[str]) -> None:
        self.kernel = kernel
        self.__name__, self.__doc__ = kernel.__name__, kernel.__doc__
        self.py_func = getattr(kernel, "py_func", None) or inspect.unwrap(kernel)
        # A ufunc of numpy does not tell how numba's function calls them.
        of_numpy = isinstance(kernel, np.ufunc)
        self.names = tuple(f"x{k + 1}" for k in range(kernel.nin)) if of_numpy else tuple(inspect.signature(self.py_func).parameters)
        self.by_elements = _is_ufunc(kernel)
        # A kernel of a device is started by kernel[grid, block](...), and numba copies all arrays of the host back.
        self.on_device = ".cuda." in type(kernel).__module__
        self.all_written = mutates_args == "unknown"
        self.written = frozenset(self.names if self.all_written else mutates_args)
        if isinstance(mutates_args, str) and not self.all_written:
            raise ValueError(f"wrap_numba: mutates_args is a sequence of names or 'unknown', got {mutates_args!r}")
        unknown = sorted(self.written - set(self.names))
        if unknown:
            raise ValueError(f"wrap_numba: mutates_args has {unknown}, which are no parameters of {self.__name__}{self.names}")

    def __repr__(self) -> str:
        return f"<wrap_numba({self.__name__}({', '.join(self.names)}))>"

    def __getitem__(self, launch: Any) -> Callable[..., Any]:
        """The kernel of a device for a grid: ``kernel[blocks, threads](...)``."""
        if not self.on_device:
            raise TypeError(f"{self.__name__}: only kernels of numba.cuda.jit are given a grid; call it")
        return functools.partial(self._call, self.kernel, launch)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.on_device:
            raise TypeError(f"{self.__name__}: a kernel of numba.cuda.jit is started by {self.__name__}[blocks, threads](...)")
        return self._call(self.kernel, None, *args, **kwargs)

    def _call(self, kernel: Any, launch: Any, *args: Any, **kwargs: Any) -> Any:
        named = {**dict(zip(self.names, args, strict=False)), **kwargs}
        if lack_values(named.values()):
            return self._without_values(named)
        start = kernel if launch is None else kernel[launch]
        given = [self._given(self.names[at] if at < len(self.names) else f"argument {at + 1}", a) for at, a in enumerate(args)]
        result = start(*given, **{name: self._given(name, a) for name, a in kwargs.items()})
        for name in {*self.written, "out"}:
            if isinstance(named.get(name), Tensor) and (name in self.written or self.by_elements):
                bump(named[name])
        return self._returned(result, given)

    def _given(self, name: str, a: Any) -> Any:
        """An argument as the kernel takes it: the memory of a tensor, read only unless it is named in `mutates_args`."""
        if not isinstance(a, Tensor):
            return a
        array = memory_of(self.__name__, name, a, devices=self.on_device)
        if array.dtype.kind == "V" or array.dtype.type.__module__.startswith("ml_dtypes"):
            raise TypeError(f"{self.__name__}: argument {name!r} is {a.dtype}, which numba does not have; convert it with .float() first")
        if array.dtype.kind == "f" and array.itemsize == 2 and not self.on_device and not self.by_elements:
            raise TypeError(
                f"{self.__name__}: argument {name!r} is torch.float16, of which numba reads no element on the CPU; convert it with "
                ".float() first"
            )
        if self.on_device or self.by_elements or name in self.written:
            return array
        array = array.view()
        array.flags.writeable = False
        return array

    def _returned(self, result: Any, given: list[Any]) -> Any:
        if isinstance(result, tuple):
            return tuple(self._returned(r, given) for r in result)
        if not isinstance(result, (np.ndarray, np.generic)):
            return result
        array = np.asarray(result)
        if not array.flags.writeable or any(isinstance(a, np.ndarray) and np.may_share_memory(a, array) for a in given):
            array = array.copy()                      # what a kernel returns is new
        return wrap(array)

    def _without_values(self, named: dict[str, Any]) -> Any:
        """The result for tensors that have shapes alone."""
        if self.by_elements:
            # numba chooses the kernel by dtypes; of no elements it computes nothing.
            shape = np.broadcast_shapes(*(tuple(a.shape) for a in named.values() if isinstance(a, Tensor)))
            result = self.kernel(*(np.empty(0, a.dtype.numpy) if isinstance(a, Tensor) else a for a in named.values()))
            return wrap(np.empty(0, result.dtype)).new_empty(shape, device="meta")
        if self.written or self.on_device:
            return None
        raise NotImplementedError(
            f"{self.__name__}: what a function of numba returns for meta tensors is not known without values; write its result in a tensor "
            "named in mutates_args, or give the operator a rule by register_fake"
        )


def _is_numba(kernel: Any) -> bool:
    """Whether numba has made `kernel`, which is told by its class without an import of numba; for all threads it makes ufuncs of numpy."""
    return isinstance(kernel, np.ufunc) or type(kernel).__module__.partition(".")[0] == "numba" and callable(kernel)


def _is_ufunc(kernel: Any) -> bool:
    return isinstance(getattr(kernel, "nin", None), int) and getattr(kernel, "signature", None) is None  # which those of arrays have


def wrap_numba(kernel: Any, /, *, mutates_args: str | Iterable[str] = ()) -> Any:
    """A function that `numba.njit`, `numba.vectorize` or `numba.cuda.jit` has compiled, called with tensors.

    The kernel has the memory of the tensors themselves. Tensors that it does not write are read only to it: numba refuses to compile
    a store in them. What it returns are tensors. Nothing happens for tensors of the meta device but that shapes follow, as far as they
    do.

    Args:
        kernel: what numba has compiled. A kernel of `numba.cuda.jit` is started by ``wrapped[blocks, threads](...)`` and takes tensors of
            CUDA devices by their ``__cuda_array_interface__``; those of the CPU numba copies there and back.
        mutates_args: names of the parameters whose tensors it writes, or "unknown" for all; functions compiled for given signatures
            need "unknown", where these say nothing of arrays that are read only.
    Returns: the function of tensors.
    Raises: TypeError for what numba has not compiled, and in calls for dtypes that numba lacks; ValueError for names that are no
        parameters; in calls RuntimeError for tensors that require grad, and NotImplementedError for tensors without memory.
    """
    if not _is_numba(kernel) or not hasattr(kernel, "__name__"):
        raise TypeError(f"wrap_numba: a function that numba has compiled, such as by numba.njit, is wanted; got {kernel!r}")
    return NumbaKernel(kernel, mutates_args)


def numba_op(
    name: str,
    fn: Any = None,
    /,
    *,
    mutates_args: str | Iterable[str] = (),
    schema: str | None = None,
    tags: Iterable[Tag] | None = None,
) -> Any:
    """Make a function of numba, or one that calls kernels wrapped by `wrap_numba`, an operator: the counterpart of `triton_op`.

    Derivatives, autocast and rules for batches are registered on what it returns, as for `custom_op`. Shapes need no rule where they
    follow: a function of public operations and wrapped kernels runs on meta tensors itself, kernels doing nothing; one of
    `numba.vectorize` broadcasts, and has its rule for batches too. Graphs show the operator as one node.

    Args:
        name: ``namespace::name``.
        fn: the function, with annotations; a decorator where it is left out. Parameters of one of `numba.vectorize` are tensors but for
            those annotated as numbers: float, int or bool.
        mutates_args: names of the arguments that it writes.
        schema: in place of annotations.
        tags: what is known of the operator.
    Returns: a `CustomOpDef`.
    Raises: as `custom_op`, and TypeError for a kernel of `numba.cuda.jit` alone, which a function has to give a grid.
    """

    def make(function: Any) -> CustomOpDef:
        if not _is_numba(function):
            made = custom_op(name, mutates_args=mutates_args, schema=schema, tags=list(tags or ()))(function)
            made.register_fake(function)
            return made
        kernel = NumbaKernel(function, mutates_args)
        if kernel.on_device:
            raise TypeError(
                f"numba_op: {kernel.__name__} needs a grid; make a function an operator that calls wrap_numba(kernel)[blocks, threads](...)"
            )
        text = schema
        if text is None and kernel.by_elements:
            text = f"({', '.join(f'{_elementwise_type(kernel, n)} {n}' for n in kernel.names)}) -> Tensor"
        typed = getattr(function, "py_func", function)

        @functools.wraps(typed)
        def call(*args: Any, **kwargs: Any) -> Any:
            return kernel(*args, **kwargs)

        made = custom_op(name, mutates_args=mutates_args, schema=text, tags=list(tags or ()))(call)
        if kernel.by_elements:
            made.register_vmap(functools.partial(_batched, made))
        if kernel.by_elements or kernel.written:
            made.register_fake(call)
        return made

    return make if fn is None else make(fn)


def _elementwise_type(kernel: NumbaKernel, name: str) -> str:
    """The type of a parameter of a function of `numba.vectorize` in its schema: a number's where it is annotated as one."""
    annotation = None if isinstance(kernel.kernel, np.ufunc) else get_type_hints(kernel.py_func).get(name)
    return annotation.__name__ if annotation in (float, int, bool) else "Tensor"


def _batched(op: CustomOpDef, info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, int]:
    """An elementwise operator on batches: the dimension of the batch goes first, and dimensions of size one behind it."""
    most = max((a.ndim - (d is not None) for a, d in zip(args, in_dims, strict=True) if isinstance(a, Tensor)), default=0)
    given = []
    for a, d in zip(args, in_dims, strict=True):
        if d is not None:
            a = a.movedim(d, 0)
            a = a.reshape(a.shape[0], *(1,) * (most - a.ndim + 1), *a.shape[1:])
        given.append(a)
    return op(*given), 0
