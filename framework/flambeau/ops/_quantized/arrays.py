"""The array of a quantized tensor: integers, and how numbers follow from them.

A number is ``(integer - zero_point) * scale``; scale and zero point are one for all, or one for each index of a dimension. The
integers are a dense tensor, so views of a quantized tensor are views of that.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np

from ... import devices, dtypes
from ..._kinds import KindArray, no_kernel
from ...tensor import Tensor, without_history, wrap

__all__ = ["INTEGERS", "QuantizedArray", "Quantizer", "is_quantized", "quantize"]

# The dtypes of the integers.
INTEGERS = {dtypes.quint8: dtypes.uint8, dtypes.qint8: dtypes.int8, dtypes.qint32: dtypes.int32}


class Quantizer(NamedTuple):
    """How numbers follow from integers: one `scale` and `zero_point`, or with an `axis`, arrays of one for each of its indices."""

    scale: Any                                        # a Python float, or an array of float64
    zero_point: Any                                   # an int, or an array of int64, or of float32 for zeros between integers
    axis: int | None = None

    @property
    def scheme(self) -> Any:
        if self.axis is None:
            return devices.per_tensor_affine
        return devices.per_channel_affine if self.zero_point.dtype.kind == "i" else devices.per_channel_affine_float_qparams

    def along(self, ndim: int) -> tuple[Any, Any]:
        """Scale in float32 and zero point, of shapes that broadcast to a tensor of `ndim` dimensions."""
        if self.axis is None:
            return np.float32(self.scale), self.zero_point
        shape = [-1 if d == self.axis else 1 for d in range(ndim)]
        return self.scale.astype(np.float32).reshape(shape), self.zero_point.reshape(shape)

    def integers(self, numbers: Any, kind: Any) -> Any:
        """`numbers`, an array of float32, as integers of the dtype `kind`: rounded to even, and kept in its range."""
        scale, zero = self.along(numbers.ndim)
        limits = np.iinfo(kind.numpy)
        # The zero point is added before rounding, as PyTorch does: halves go to the even integer of the sum.
        wide = np.rint(numbers * (np.float32(1) / scale) + np.asarray(zero, np.float32)).astype(np.float64)
        return np.where(np.isnan(wide), limits.max, np.clip(wide, limits.min, limits.max)).astype(kind.numpy)

    def numbers(self, integers: Any) -> Any:
        """What `integers` stand for, in float32."""
        scale, zero = self.along(integers.ndim)
        difference = integers.astype(np.int64 if np.asarray(zero).dtype.kind == "i" else np.float32) - zero
        return (difference.astype(np.float32) * scale).astype(np.float32, copy=False)


class QuantizedArray(KindArray):
    """`parts` are the integers alone; `type` is the quantized dtype."""

    __slots__ = ("quantizer", "type")
    kind = "quantized"
    dense = "x.dequantize()"
    shown = "a quantized tensor"  # pyright: ignore[reportAssignmentType]  # the same for all
    layout = devices.strided  # pyright: ignore[reportAssignmentType]  # the same for all

    def __init__(self, integers: Tensor, type: Any, quantizer: Quantizer) -> None:
        super().__init__(integers._array.shape, type.mark, (without_history(integers),))
        self.type, self.quantizer = type, quantizer

    @property
    def integers(self) -> Tensor:
        return self.parts[0]

    def over(self, integers: Tensor) -> Tensor:
        """A tensor of other `integers`, which stand for numbers in the same way."""
        return wrap(QuantizedArray(integers, self.type, self.quantizer))

    def numbers(self) -> Tensor:
        """The numbers, a dense tensor of float32."""
        from .._spec.shapes import host_only

        host_only("dequantize", self.integers)
        return wrap(np.asarray(self.quantizer.numbers(self.integers._array)))

    def answer(self, op: Any, args: tuple[Any, ...], target: Any = None, inplace: bool = False) -> Any:
        from .rules import answer

        return answer(op, args, target, inplace)

    def stride(self) -> tuple[int, ...]:
        return self.integers.stride()

    def storage_offset(self) -> int:
        return self.integers.storage_offset()

    def memory(self) -> Tensor:
        return self.integers

    def is_contiguous(self, memory_format: Any) -> bool:
        return self.integers.is_contiguous() if memory_format is None else self.integers.is_contiguous(memory_format)

    def store(self, name: str, target: Tensor, result: Tensor) -> Tensor:
        from .rules import store

        return store(name, target, result)

    def zeros(self, dtype: Any, place: Any) -> Tensor:
        from ..._kinds import no_kernel

        if dtype not in (None, self.type) or place is not None and devices.device(place) != self.place:
            raise no_kernel("zeros_like: of a quantized tensor with another dtype or device is not built; use x.dequantize()")
        zero = self.quantizer.integers(np.zeros(self.shape, np.float32), self.integers.dtype)
        return self.over(wrap(np.asarray(zero)))

    def plain(self, name: str) -> Tensor:
        return self.numbers()

    def copy(self) -> QuantizedArray:
        return QuantizedArray(self.integers.clone(), self.type, self.quantizer)

    def rebuilding(self) -> tuple[Any, tuple[Any, ...]]:
        return rebuilt, (self.integers, self.type, self.quantizer)

    def text(self, tensor: Any) -> str:
        from ... import _printing

        q = self.quantizer
        suffixes = [f"size={tuple(self.shape)}", f"dtype={self.type}", f"quantization_scheme={q.scheme}"]
        if q.axis is None:
            suffixes += [f"scale={q.scale}", f"zero_point={q.zero_point}"]
        else:
            suffixes += [f"scale={wrap(q.scale)}", f"zero_point={wrap(q.zero_point)}", f"axis={q.axis}"]
        return _printing.tensor_text(self.numbers()._array, suffixes)


def rebuilt(integers: Tensor, type: Any, quantizer: Any) -> Tensor:
    """A tensor of what `QuantizedArray.rebuilding` gave."""
    return wrap(QuantizedArray(integers, type, Quantizer(*quantizer)))


def quantizer_in_files(x: Tensor) -> tuple[Any, ...]:
    """The scheme of the quantized tensor `x` and its numbers, as files keep them."""
    q = x._array.quantizer
    if q.axis is None:
        return q.scheme, float(q.scale), int(q.zero_point)
    return q.scheme, wrap(q.scale), wrap(q.zero_point), int(q.axis)


def from_file(integers: Tensor, type: Any, scheme: Any, scale: Any, zero_point: Any, axis: Any = None) -> Tensor:
    """What `quantizer_in_files` gave, as a tensor again. Raises: ValueError or TypeError for what fits no tensor."""
    if scheme is devices.per_tensor_affine and axis is None:
        return wrap(QuantizedArray(integers, type, Quantizer(float(scale), int(zero_point))))
    if scheme not in (devices.per_channel_affine, devices.per_channel_affine_float_qparams):
        raise no_kernel(f"quantized tensors of the scheme {scheme} are not built")
    if not 0 <= operator.index(axis) < integers.ndim:
        raise ValueError(f"there is no dimension {axis} in a tensor of shape {tuple(integers.shape)}")
    count = integers.shape[axis]
    if not all(isinstance(t, Tensor) and tuple(t.shape) == (count,) for t in (scale, zero_point)):
        raise ValueError(f"scales and zero points must be vectors of {count} numbers")
    zeros = np.int64 if scheme is devices.per_channel_affine else np.float32
    quantizer = Quantizer(np.array(scale._array, np.float64), np.array(zero_point._array, zeros), axis)
    return wrap(QuantizedArray(integers, type, quantizer))


def is_quantized(x: Any) -> bool:
    return isinstance(x, Tensor) and isinstance(x._array, QuantizedArray)


def parts_of(x: Tensor) -> QuantizedArray:
    """What the quantized tensor `x` is made of: integers, which are a Tensor, and their quantizer."""
    return x._array


def quantize(numbers: Tensor, type: Any, quantizer: Quantizer) -> Tensor:
    """The float32 tensor `numbers` as a quantized one."""
    from .._spec.shapes import host_only

    host_only("quantize", numbers)
    if type not in INTEGERS:
        raise no_kernel(f"quantize: {type} packs several integers in a byte, which is not built; use quint8, qint8 or qint32")
    kind = INTEGERS[type]
    return wrap(QuantizedArray(wrap(np.asarray(quantizer.integers(numbers._array, kind))), type, quantizer))
