"""Kinds of arrays beside strided memory: what a Tensor may wrap whose elements do not lie in one block of memory.

A tensor's array is numpy's, cupy's, of the meta device, or a `KindArray`: a record of a shape, a dtype and parts that are tensors
themselves, such as the indices and values of a sparse tensor. It has no strides, so nothing takes it for memory by mistake: whoever
asks for strides, or for anything else of an array, gets `NoStrides`. Operations go to `KindArray.answer`, which finds the kernel that
the operation has for that kind (`Op.by_kind`), and raises NotImplementedError where it has none. Nobody looks at kinds in a plain call:
the paths of strided memory refuse other arrays, and what they refuse is looked at here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._arrays import Shaped, _meta_dtype

__all__ = ["KindArray", "NoStrides", "lacks_kernel", "no_kernel"]


class NoStrides(AttributeError, ValueError):
    """Raised where the memory of an array is asked for that has none of its own.

    A ValueError too, for what is tried on memory first is given up at one.
    """


def no_kernel(text: str) -> NotImplementedError:
    """The error of an operation that has no kernel for the kind of an operand's array.

    A composition whose parts raise it may have a kernel as a whole, which is asked then: see `lacks_kernel`.
    """
    made = NotImplementedError(text)
    made.__dict__["of_kind"] = True
    return made


def lacks_kernel(error: Exception) -> bool:
    """Whether `error` is a `no_kernel`."""
    return "of_kind" in error.__dict__


class KindArray(Shaped):
    """An array of another kind than strided memory: its shape, its dtype, and `parts`, which are tensors without history.

    Subclasses say which `kind` they are, by which operations find their kernels, and answer operations. An array is never changed
    in its structure: what is done in place gives the tensor another one. Its parts may be written, as memory is.
    """

    __slots__ = ("shape", "dtype", "parts", "__weakref__")
    kind = ""
    dense = "x.to_dense()"  # what makes a tensor of strided memory of one with this array

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, parts: tuple[Any, ...]) -> None:
        self.shape = tuple(shape)
        # Equal to numpy's and another object, so that fast paths which test ``dtype is float32`` pass these by.
        self.dtype = _meta_dtype(dtype)
        self.parts = parts

    @property
    def layout(self) -> Any:
        """How elements are arranged, a `flambeau.layout`."""
        raise NotImplementedError

    @property
    def place(self) -> Any:
        """The device, that of the parts."""
        return self.parts[-1].device

    def answer(self, op: Any, args: tuple[Any, ...], target: Any = None, inplace: bool = False) -> Any:
        """The result of `op`, one of whose operands has this array; stored in `target` if there is one.

        Args:
            inplace: whether `target` is the first of `args`, else it is an ``out``.
        Raises: NotImplementedError if `op` has no kernel for this kind.
        """
        raise NotImplementedError

    def stride(self) -> tuple[int, ...]:
        """Steps in memory, in elements. Raises: RuntimeError where elements do not lie there."""
        raise RuntimeError(f"stride(): {self.shown} has no strides")

    def storage_offset(self) -> int:
        """Where the first element lies. Raises: RuntimeError as `stride`."""
        raise RuntimeError(f"storage_offset(): {self.shown} has no storage")

    def memory(self) -> Any:
        """The tensor whose storage holds the elements. Raises: NotImplementedError where no single one does."""
        raise NotImplementedError(f"Cannot access storage of {self.shown}; its parts have one")

    def is_contiguous(self, memory_format: Any) -> bool:
        """Whether elements lie in memory in the order of `memory_format`."""
        return False

    def store(self, caller: str, target: Any, result: Any) -> Any:
        """Let `target`, which has this array, be what the tensor `result` is; returns `target`. Raises: RuntimeError if it cannot be."""
        raise NotImplementedError

    def plain(self, caller: str) -> Any:
        """A tensor of strided memory with the same elements, for `caller` to read."""
        raise NotImplementedError

    def zeros(self, dtype: Any, place: Any) -> Any:
        """A tensor of zeros that looks like one with this array, of another dtype or device unless these are None."""
        raise NotImplementedError

    def empty(self, dtype: Any, place: Any) -> Any:
        """As `zeros`, with any values: what `ones_like` and `full_like` fill."""
        return self.zeros(dtype, place)

    def copy(self) -> Any:
        """The same with parts of its own."""
        raise NotImplementedError

    def rebuilding(self) -> tuple[Any, tuple[Any, ...]]:
        """A function and its arguments that make a tensor with this array, for pickling."""
        raise NotImplementedError

    def text(self, tensor: Any) -> str:
        """What `repr` shows of `tensor`, which has this array."""
        raise NotImplementedError

    @property
    def shown(self) -> str:
        """What errors call a tensor with this array."""
        return f"a tensor of the layout {self.layout}"

    def refuse(self, what: str) -> Any:
        """Raise NoStrides: `what` was asked for."""
        raise NoStrides(f"{what}: {self.shown} has no strided memory; use {self.dense} where that is meant")

    def __getattr__(self, name: str) -> Any:
        self.refuse(name)

    def __getitem__(self, key: Any) -> Any:
        self.refuse("indexing")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        self.refuse("numpy")
