"""Copies: to other dtypes, devices and memory layouts."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels.cpu.shapes import move

from ... import _arrays, _state, devices, dtypes
from ..._arrays import MetaArray, ndarray
from ..._names import names_by
from ..._warn import warn_once
from ...devices import device, memory_format
from ...dtypes import FLOATING, dtype, from_numpy_dtype
from ...tensor import Tensor, bump, channels_last_order, without_history, wrap
from .. import _dispatch
from .._batching import run
from .._promote import NUMBERS
from .._spec import FOREACH, FUNCTION, INPLACE, METHOD, OPS, composite, describe, primitive
from .._spec.names import keep
from .._spec.nodes import recorded_as
from .._spec.pieces import everywhere


def _arranged(a: Any, target: np.dtype, format: memory_format | None) -> Any:
    """A copy of `a` as `target`, its dimensions in the memory order `format` asks for."""
    out = empty_arranged(a, target, format)
    kernels.store(out, a)
    return out


def empty_arranged(a: Any, target: np.dtype, format: memory_format | None) -> Any:
    """Uninitialised memory shaped like `a`, and beside it."""
    if type(a) is not np.ndarray and not isinstance(a, (np.ndarray, MetaArray)):
        from ..._cuda import kernels as cuda_kernels

        return cuda_kernels.empty_arranged(a, target, format)
    order = _order_of(a, format)
    made = np.empty(a.shape, target) if order is None else _arrays.strided_empty(a.shape, target, order)
    if 1 in a.shape and (strides := arranged_strides(a, made.itemsize, format)) != made.strides:
        made = _arrays.restrided(made, made.shape, strides)
    return made


def arranged_strides(a: Any, itemsize: int, format: memory_format | None) -> tuple[int, ...]:
    """The byte strides of `empty_arranged`, nothing allocated.

    Dimensions of size 1 have those of `a` where its order is kept, unless it may be read as rows: builtins make rows of it.
    """
    found = _arrays.strides_in(tuple(a.shape), itemsize, _order_of(a, format))
    if 1 not in a.shape or format not in (None, devices.preserve_format) or _arrays.is_c_contiguous(a) or not _arrays.is_dense(a):
        return found
    return tuple([s if n != 1 else own // a.itemsize * itemsize for n, s, own in zip(a.shape, found, a.strides, strict=True)])


def _order_of(a: Any, format: memory_format | None) -> list[int] | None:
    """The order of dimensions in the memory of a copy of `a`, the slowest first; None for rows."""
    if format is None or format is devices.preserve_format:
        if a.ndim < 2 or _arrays.is_c_contiguous(a):
            return None
        if _arrays.is_dense(a):
            return sorted(range(a.ndim), key=lambda d: -a.strides[d])
        return _arrays.permutation(a.shape, [a])
    if format is devices.contiguous_format:
        return None
    order = channels_last_order(format, a.ndim)
    if order is None:
        raise RuntimeError(f"required rank {4 if format is devices.channels_last else 5} tensor to use {format.name} format")
    return list(reversed(order))


@primitive(surface=FUNCTION | METHOD | FOREACH, samples="x(2, 3)", cuda="moves.clone", elements="mapped", names=keep, deferrable=True)
def clone(input, *, memory_format=None):
    """A copy in new memory, through which gradients pass.

    Args:
        memory_format: order of dimensions in memory; that of `input` if it is dense, by default.
    """


@clone.in_pieces
def _clone_pieces(asked):
    return [*everywhere(asked), asked.way({0: "sum"}, "sum")]


@clone.kernel
def _clone(a, format):
    return _arranged(a, a.dtype, format)


@clone.plan
def _clone_planned(a, format):
    if format is devices.contiguous_format:
        return move.in_rows(a)
    if format is not None and format is not devices.preserve_format:
        return None
    if a.flags.c_contiguous or a.size >= move.FROM:
        return move.like(a)
    if a.ndim == 1 or _fall(a.strides):
        return a.copy()
    return a.copy("F") if a.flags.f_contiguous and a.ndim == 2 else None


def _fall(strides: tuple[int, ...]) -> bool:
    """Whether each of `strides` is smaller than the one before, so that dimensions are in order whatever their sizes."""
    before = strides[0] + 1
    for s in strides:
        if not 0 < s < before:
            return False
        before = s
    return True


@clone.shape
def _clone_shape(input, format):
    return input.shape, input.dtype, arranged_strides(input._array, input._array.itemsize, format)


@clone.vjp
def _clone_vjp(grad):
    return (grad,)


@clone.vjp_on_arrays
def _clone_vjp_on_arrays(grad):
    return (grad,)


@primitive(
    surface=0, operator="_to_copy(input, dtype=dtype, device=place, memory_format=memory_format)",
    samples="of type_as",
    public_name="to",
    cuda="moves.to_copy",
    deferrable=True,
)
def to_copy(input, dtype, place, memory_format):
    """`input` copied to another dtype, device or memory layout."""


to_copy.shown_as(hides="input_dtype input_device")


@to_copy.in_pieces
def _to_copy_pieces(asked):
    # A sum of numbers that have lost their fractions is not the sum without its fraction.
    before, after = asked["input"].dtype, asked.results[0].dtype
    sums = before.category <= after.category >= FLOATING
    return [*everywhere(asked), *([asked.way({0: "sum"}, "sum")] if sums else [])]


@to_copy.kernel
def _to_copy(a, dtype, place, format):
    target = a.dtype if dtype is None else dtype.numpy
    if a.dtype.kind == "c" and target.kind in "fiu":
        warn_once("Casting complex values to real discards the imaginary part")
    if place is not None and place.type == "meta":
        return MetaArray(a.shape, target, arranged_strides(a, target.itemsize, format))
    if place is not None and place.type != "cpu":
        from ..._cuda.device import to_device

        return to_device(kernels.cast(a, target), place)
    if type(a) is not np.ndarray and hasattr(a, "get"):
        a = a.get()
    return _arranged(a, target, format)


@to_copy.plan
def _to_copy_planned(a, dtype, place, format):
    """In host memory."""
    if place is not None and place is not devices.CPU:
        return None
    if dtype is None or dtype.numpy is a.dtype:
        return _clone_planned(a, format)
    if a.dtype.kind == "c":
        return None
    if format is not None and format is not devices.preserve_format:
        return _arranged(a, dtype.numpy, format)
    made = kernels.converted(a, dtype.numpy)
    if made is None:
        made = _arranged(a, dtype.numpy, None)
        kernels.note_conversion(a, made)
    return made


@to_copy.shape
def _to_copy_shape(input, dtype, place, format):
    if place is not None and place.type != "meta":
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    target = dtype or input.dtype
    return input.shape, target, arranged_strides(input._array, target.itemsize, format)


@to_copy.vjp
def _to_copy_vjp(grad, input_dtype, input_device):
    if grad.dtype.is_complex and not input_dtype.is_complex:
        grad = grad.real
    # A fake tensor was on meta while the operation was answered, whatever device it says; those that were moved say where from.
    stays = input_device.type == "meta" and grad.device.type != "meta"
    return (grad.to(input_dtype) if stays else grad.to(input_device, input_dtype),)


@to_copy.vjp_on_arrays
def _to_copy_vjp_on_arrays(grad, input_dtype, input_device):
    if input_device is not devices.CPU:
        return (_to_copy(grad, input_dtype, input_device, None),)
    wanted = input_dtype.numpy
    if grad.dtype == wanted:
        return (grad,)
    # Of complex numbers the real part is left, which is not a conversion.
    return (kernels.cast(grad, wanted) if grad.dtype.kind == "c" else kernels.recast(grad, wanted),)


@clone.batch
@to_copy.batch
def _clone_batch(level: Any, op: Any, args: Any) -> Any:
    x, *rest = args
    if rest[-1] is not None and rest[-1].name not in ("preserve_format", "contiguous_format"):
        return NotImplemented
    return level.wrap(run(op, level.front(x), *rest))


def _shown(value: Any) -> str:
    return type(value).__name__ if isinstance(value, Tensor) else repr(value)


def _to_device(device=None, dtype=None, non_blocking=False, copy=False, *, memory_format=None):
    return dtype, device, non_blocking, copy, memory_format


def _to_dtype(dtype, non_blocking=False, copy=False, *, memory_format=None):
    return dtype, None, non_blocking, copy, memory_format


def _as_other(other, non_blocking=False, copy=False, *, memory_format=None):
    return other.dtype, other.device, non_blocking, copy, memory_format


def _parse_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, bool, Any]:
    """The dtype, device, copy flag and memory format of a call of ``to``."""
    first = args[0] if args else None
    taken: Any = _as_other if isinstance(first, Tensor) else _to_dtype if isinstance(first, (dtype, type)) else _to_device
    try:
        d, place, non_blocking, copy, format = taken(*args, **kwargs)
    except TypeError:
        takes = [n for n in taken.__code__.co_varnames if n != "memory_format"]
        got = [*map(_shown, args), *(f"{name}={_shown(value)}" for name, value in kwargs.items())]
        raise TypeError(
            f"to() takes {', '.join(takes)} and, by name, memory_format here, each once, got ({', '.join(got)})"
        ) from None
    if (copy is not True and copy is not False) or (non_blocking is not True and non_blocking is not False):
        name, wrong = ("non_blocking", non_blocking) if copy is True or copy is False else ("copy", copy)
        raise TypeError(f"to(): argument '{name}' must be bool, not {type(wrong).__name__}")
    if d is not None and not isinstance(d, (dtype, type)):
        raise TypeError(f"to(): argument 'dtype' must be torch.dtype, not {type(d).__name__}")
    if place is not None and place.__class__ is not device:
        place = devices.CPU if place.__class__ is str and place == "cpu" else device(place)
    return None if d is None else dtypes.as_dtype(d), place, copy, format


@names_by("keep")
def to(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """`input` with another dtype or on another device; `input` itself when nothing changes and `copy` is not set."""
    wanted: Any = args[0] if args else kwargs.get("dtype")
    if len(args) + len(kwargs) == 1 and not (_state.IN_FORCE and _state.interpreted()):
        if wanted.__class__ is dtype:
            return _converted(input, wanted)
        if args and input._array.__class__ is np.ndarray:
            if wanted == "cpu" if wanted.__class__ is str else wanted is devices.CPU:
                return input
            if wanted.__class__ is Tensor and wanted._array.__class__ is np.ndarray:
                return _converted(input, wanted.dtype)
    return _copied_if_other(input, *_parse_to(args, kwargs))


def _copied_if_other(input: Tensor, d: dtype | None, place: Any, copy: bool, format: Any) -> Tensor:
    """`to` with all that is asked for: `input` itself if it is so already, unless a `copy` is wanted."""
    if d is input.dtype:
        d = None
    if place is not None and _same_place(place, input.device):
        place = None
    if not copy and d is None and place is None and (format is None or _in_format(input, format)):
        return input
    return to_copy(input, d, place, format)


def _converted(input: Tensor, d: dtype) -> Tensor:
    """`input` as `d`: what `to` does most often, in a third of the time."""
    a = input._array
    target = d.numpy
    if a.dtype == target:
        return input
    if a.__class__ is not np.ndarray or a.dtype.kind == "c":
        return to_copy(input, d, None, None)
    made = kernels.converted(a, target)
    if made is None:
        made = _arranged(a, target, None)
        kernels.note_conversion(a, made)
    if input._node is None:
        return wrap(made)
    if d.category < dtypes.FLOATING or from_numpy_dtype(a.dtype).category < dtypes.FLOATING:
        return to_copy(input, d, None, None)
    return recorded_as(to_copy, made, (input._node,), (from_numpy_dtype(a.dtype), devices.CPU))


def _same_place(wanted: device, have: device) -> bool:
    return wanted.type == have.type and (wanted.index is None or have.index is None or wanted.index == have.index)


def _in_format(input: Tensor, format: memory_format) -> bool:
    """Whether `to` leaves the memory of `input` as it is: channels are last by the order of strides, all else counts as row-major."""
    if format is devices.preserve_format:
        return True
    last = _are_channels_last(input._array)
    return not last if format is devices.contiguous_format else last and channels_last_order(format, input.ndim) is not None


def _are_channels_last(a: Any) -> bool:
    """Whether the strides of ``(N, C, *)`` rise from those of channels on; that decides for dimensions of size 1, too."""
    if a.ndim not in (4, 5) or 0 in a.shape:
        return False
    reach = 1                                         # bytes that the dimensions so far take
    for d in (1, *range(a.ndim - 1, 1, -1), 0):
        if a.strides[d] < reach or d == 0 and reach == a.strides[1]:  # the latter of N numbers, which are as well in rows
            return False
        reach = a.strides[d] * a.shape[d]
    return True


def _cast_method(d: dtype, doc: str) -> Any:
    @names_by("keep")
    def cast(self: Tensor, memory_format: Any = None) -> Tensor:
        if memory_format is None and not (_state.IN_FORCE and _state.interpreted()):
            return _converted(self, d)
        return _copied_if_other(self, d, None, False, memory_format)

    cast.__name__, cast.__doc__ = d.name, doc
    return cast


@names_by("keep")
def type_(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The name of the tensor type, or the tensor converted to `dtype`.

    `non_blocking` is as for `to`: do not wait for a copy to a GPU.
    """
    if non_blocking is not False and non_blocking is not True:
        raise TypeError(f"type(): argument 'non_blocking' must be bool, not {type(non_blocking).__name__}")
    if dtype is None:
        return type_name(self)
    if isinstance(dtype, (str, type)):
        name = dtype if isinstance(dtype, str) else dtype.__name__
        dtype = _TYPE_NAMES.get(name.rpartition(".")[2])
        if dtype is None:
            raise ValueError(f"invalid type: {name!r}")
    if not isinstance(dtype, dtypes.dtype):
        raise TypeError(f"type(): dtype must be a type, str, or dtype object, got {type(dtype).__name__}")
    return to(self, dtype)


_TYPE_NAMES = {f"{name}Tensor": kind for kind, name in dtypes.SCALAR_TYPES.items()}


class TypedTensorMeta(type):
    """A tensor type of old, ``FloatTensor`` and the like: calling it makes tensors, and tensors of its dtype are its instances."""

    dtype: dtype
    home = "torch"

    def __call__(cls, *args: Any, **kwargs: Any) -> Tensor:
        from .new import legacy_tensor

        return legacy_tensor(*args, dtype=cls.dtype, **kwargs)

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Tensor) and value.dtype is cls.dtype and value.is_cpu and not value.is_sparse


class CudaTensorMeta(TypedTensorMeta):
    """The same of CUDA's tensors, ``cuda.FloatTensor`` and the like."""

    home = "torch.cuda"

    def __call__(cls, *args: Any, **kwargs: Any) -> Tensor:
        from ..._cuda.device import is_available

        if not is_available():
            raise TypeError(f"type torch.cuda.{cls.__name__} not available: there is no CUDA device")
        return super().__call__(*args, device="cuda", **kwargs)

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Tensor) and value.dtype is cls.dtype and value.is_cuda


class SparseTensorMeta(TypedTensorMeta):
    """The same of tensors in coordinates, ``sparse.FloatTensor`` and the like: called with indices and values, or a shape."""

    home = "torch.sparse"

    def __call__(cls, *args: Any, **kwargs: Any) -> Tensor:
        from ..kinds.sparse import sparse_coo_tensor

        warn_once(
            f"{cls.home}.{cls.__name__}(indices, values, shape, *, device=) is deprecated. "
            "Please use torch.sparse_coo_tensor(indices, values, shape, dtype=, device=)."
        )
        if args and isinstance(args[0], Tensor):
            return sparse_coo_tensor(*args, dtype=cls.dtype, **kwargs)
        shape = args[0] if len(args) == 1 and not isinstance(args[0], int) else args or (0,)
        return sparse_coo_tensor(size=shape, dtype=cls.dtype, **kwargs)

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Tensor) and value.dtype is cls.dtype and value.is_sparse and not value.is_cuda


class CudaSparseTensorMeta(SparseTensorMeta):
    """The same of CUDA's tensors in coordinates, ``cuda.sparse.FloatTensor`` and the like."""

    home = "torch.cuda.sparse"

    def __call__(cls, *args: Any, **kwargs: Any) -> Tensor:
        from ..._cuda.device import is_available

        if not is_available():
            raise TypeError(f"type {cls.home}.{cls.__name__} not available: there is no CUDA device")
        return super().__call__(*args, device="cuda", **kwargs)

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Tensor) and value.dtype is cls.dtype and value.is_sparse and value.is_cuda


def typed_tensor(name: str, kind: type[TypedTensorMeta] = TypedTensorMeta) -> Any:
    """The class `name` of a `kind`, such as ``FloatTensor``, or None."""
    d = _TYPE_NAMES.get(name)
    if d is None:
        return None
    return kind(name, (), {"dtype": d, "__module__": kind.home, "__doc__": f"Tensors of {d.name}, {kind.home}'s."})


def typed_tensors() -> list[str]:
    """The names that `typed_tensor` knows."""
    return [*_TYPE_NAMES]


def type_name(self: Tensor) -> str:
    place = ("cuda." if self.is_cuda else "") + ("sparse." if self.is_sparse else "quantized." if self.is_quantized else "")
    return f"torch.{place}{dtypes.scalar_type(self.dtype)}Tensor"


def _install() -> None:
    Tensor.to = to  # type: ignore[attr-defined]
    type_.__name__ = "type"                           # what programs call it
    Tensor.type = type_  # type: ignore[attr-defined]
    for name in ("bool", "short", "int", "long", "half", "float", "double", "bfloat16", "chalf", "cfloat", "cdouble"):
        d = getattr(dtypes, name)
        setattr(Tensor, name, _cast_method(d, f"`self` converted to {d}."))
    Tensor.byte = _cast_method(dtypes.uint8, "`self` converted to torch.uint8.")  # type: ignore[attr-defined]
    Tensor.char = _cast_method(dtypes.int8, "`self` converted to torch.int8.")  # type: ignore[attr-defined]


_install()


@composite(surface=METHOD, samples="x(2, 3), i(4, 2)", elements="mapped", names=keep)
def type_as(self, other):
    """`self` with the dtype of `other`."""
    return self.to(other.dtype)


@composite(surface=METHOD, samples="x(2, 3)", elements="mapped", names=keep)
def cpu(self, *, memory_format=None):
    """`self` in host memory."""
    if memory_format is not None:
        _check_format("cpu", memory_format)
    return self.to("cpu", memory_format=memory_format)


@cpu.forwards
def _is_in_host_memory(self, memory_format):
    return self if memory_format is None and self._array.__class__ is ndarray else None


def _check_format(name: str, format: Any) -> None:
    """Raise TypeError unless `format` is a memory format."""
    if not isinstance(format, devices.memory_format):
        raise TypeError(f"{name}(): argument 'memory_format' must be torch.memory_format, not {type(format).__name__}")


@composite(surface=METHOD, samples="x(2, 3)", elements="mapped", names=keep)
def cuda(self, device=None, non_blocking=False, memory_format=None):
    """`self` on a CUDA device.

    Args:
        device: its index or name; the current one by default.
        non_blocking: do not wait for the copy, where the host memory is page-locked.
    Raises: RuntimeError where there is no such device.
    """
    return self.to("cuda" if device is None else device, memory_format=memory_format)


@composite(surface=METHOD, samples="x(2, 3); x(2, 3, 4, 5), memory_format=fb.channels_last", elements="mapped", names=keep)
def contiguous(self, memory_format=devices.contiguous_format):
    """`self` if its elements already lie in the order of `memory_format`, else a copy that does."""
    _check_format("contiguous", memory_format)
    if memory_format is devices.preserve_format:
        if not self.is_contiguous():
            raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
        return self
    return self if self.is_contiguous(memory_format=memory_format) else clone(self, memory_format=memory_format)


@contiguous.forwards
def _contiguous_rows(self, memory_format):
    if memory_format is not _ROWS or self._array.__class__ is not ndarray:
        return None
    return self if self._array.flags.c_contiguous else clone.answer(self, _ROWS)


_ROWS = devices.contiguous_format


@names_by("unify")
def _copy_into(target: Tensor, other: Any = None, non_blocking: bool = False, x2: Any = None) -> Tensor:
    """Store `other`, broadcast and converted, in `target`; gradients flow to both. Returns `target`.

    `non_blocking` has no effect between arrays of one device. `x2` is numpy's name for `other`.
    """
    marked = _state.MARKED and target._storage[0].__class__ is not int
    if other.__class__ is Tensor and non_blocking is False and x2 is None and not marked and not (_state.IN_FORCE and _state.interpreted()):
        base = target if target._view_of is None else target._view_of[0]
        recorded = target._node is not None or other._node is not None or base._node is not None
        formula = OPS["Tensor.overwrite"].formula
        if not (recorded and _state.grad_enabled()) and formula.direct_(target._array, other._array) is not None:
            bump(target)
            return target
    if _state.INTERPRETED and other.__class__ is not Tensor:
        classes = _dispatch.overriding_classes((target, other))
        if classes:
            return _dispatch.dispatch_torch_function(Tensor.copy_, classes, (target, other, non_blocking), {})
    if non_blocking is not False and non_blocking is not True:
        raise TypeError(f"copy_(): argument 'non_blocking' (position 2) must be bool, not {type(non_blocking).__name__}")
    if x2 is not None:
        if other is not None:
            raise TypeError("copy_() got an unexpected keyword argument 'x2': it is numpy's name for 'other', which is given as well")
        return _copy_into(target, x2, non_blocking)
    if isinstance(other, NUMBERS):
        other = wrap(np.array(other))
    if not isinstance(other, Tensor):
        raise TypeError(f"copy_(): argument 'other' (position 1) must be Tensor, not {type(other).__name__}")
    array = other._looks._array
    if other._lacks_values is not target._lacks_values and _broadcasts(array.shape, target._array.shape):
        if other._lacks_values:
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        bump(target)
        return target
    if type(array) is not type(target._array) and not target._lacks_values:
        other = to_copy(other, None, target.device, None)
    if _broadcasts(array.shape, target._array.shape) is False:
        _raise_uncopied(target, other)
    if _state.IN_FORCE and _state.interpreted():
        return _dispatch.call_inplace(OPS["Tensor.overwrite"], (target, other), Tensor.copy_)
    return OPS["Tensor.overwrite"].run_inplace(target, other)


def _raise_uncopied(target: Tensor, source: Tensor) -> None:
    """Say why `source` cannot be broadcast to `target`."""
    shape, wanted = source._array.shape, target._array.shape
    for at in range(1, min(len(shape), len(wanted)) + 1):
        if shape[-at] not in (1, wanted[-at]) and wanted[-at] != 1:
            raise RuntimeError(
                f"copy_: The size of tensor a ({wanted[-at]}) must match the size of tensor b ({shape[-at]}) at non-singleton "
                f"dimension {max(len(shape), len(wanted)) - at}\n{describe(target=target, source=source)}"
            )
    raise RuntimeError(
        f"copy_: output with shape {list(wanted)} doesn't match the broadcast shape {list(np.broadcast_shapes(shape, wanted))}"
    )


def _broadcasts(shape: Any, target: Any) -> bool:
    if len(shape) > len(target):
        return False
    return all(n in (1, m) for n, m in zip(reversed(shape), reversed(target), strict=False))


_copy_into.__name__, _copy_into.__qualname__ = "copy_", "Tensor.copy_"
Tensor.copy_ = _copy_into  # type: ignore[attr-defined]


@composite(surface=FUNCTION, samples="x(2, 3)")
def detach_copy(input):
    """A copy without history."""
    return input.detach().clone()


@composite(surface=FUNCTION, namespace="", samples="x(2, 3)", elements="mapped", names=keep, shares_memory=True)
def detach(input):
    """`input` without history, over the same memory: changes in place are seen by both."""
    return without_history(input)


@detach.undone
def _as_it_is(new, source):
    return new


@detach.batch
def _detach_batch(level: Any, op: Any, args: Any) -> Any:
    return level.wrap(args[0]._value.detach(), args[0]._bdim)


@composite(surface=FUNCTION | INPLACE, namespace="", samples="c(2, 3).conj(); x(2, 3)")
def resolve_conj(input: Tensor):
    """`input`; conjugation is never deferred here."""
    return input


__all__ = ["to", "type_name"]
