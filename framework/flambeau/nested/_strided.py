"""A batch of tensors whose sizes may differ along any dimension: nested tensors of the layout `strided`.

`_elements` has the elements of all parts one after the other, as a vector. What treats every element alike runs on that vector, all
else on each part.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import flambeau as fb

from .._aten import is_pointwise
from .._over_tensor import Answers, OverTensor, elements_of, name_called
from ..tensor import Tensor
from ..utils import _pytree as pytree

__all__ = ["StridedNestedTensor", "as_strided_nested", "padded"]

Sizes = tuple[tuple[int, ...], ...]


class StridedNestedTensor(OverTensor):
    """A batch of tensors of one number of dimensions and any sizes; `nested_tensor` makes it.

    Operations of elements run on all parts at once; so do linear layers. Others run on each part. It has no shape: `size(d)`
    answers where all parts agree. What is not built raises NotImplementedError.

    Args:
        elements: of all parts, one after the other: a vector.
        sizes: the shape of each part.
        ndim: the number of dimensions, with that of the batch.
    """

    _sizes: Sizes
    _ndim: int

    @staticmethod
    def __new__(cls: Any, elements: Tensor, sizes: Sizes, ndim: int) -> Any:
        made = Tensor._make_wrapper_subclass(cls, tuple(elements.shape), dtype=elements.dtype, device=elements.device)
        made._elements, made._sizes, made._ndim = elements, sizes, ndim
        return made

    def __init__(self, elements: Tensor, sizes: Sizes, ndim: int) -> None:
        pass

    def _alike(self, elements: Tensor) -> StridedNestedTensor:
        return StridedNestedTensor(elements, self._sizes, self._ndim)

    def _made_of(self) -> tuple[Any, ...]:
        return self._elements, self._sizes, self._ndim

    def _starts(self) -> list[int]:
        starts = [0]
        for size in self._sizes:
            starts.append(starts[-1] + math.prod(size))
        return starts[:-1]

    def _parts(self) -> tuple[Tensor, ...]:
        """The parts, views of the elements."""
        places = zip(self._starts(), self._sizes, strict=True)
        return tuple([self._elements.narrow(0, start, math.prod(size)).view(size) for start, size in places])

    def values(self) -> Tensor:
        """The elements of all parts, one after the other: a view."""
        return self._elements.view_as(self._elements)

    # -- geometry

    @property
    def shape(self) -> Any:  # type: ignore[override]
        raise RuntimeError("a nested tensor of the layout strided has no shape: ask size(d) for one dimension, or its parts")

    def size(self, dim: int | None = None) -> Any:
        """The size of the dimension `dim`. Raises: RuntimeError where parts differ in it, and for all dimensions at once."""
        if dim is None:
            return self.shape
        if not -self._ndim <= dim < self._ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-self._ndim}, {self._ndim - 1}], but got {dim})")
        at = dim % self._ndim
        if at == 0:
            return len(self._sizes)
        found = {size[at - 1] for size in self._sizes}
        if len(found) != 1:
            raise RuntimeError(f"Given dimension {at} is irregular and does not have a size.")
        return found.pop()

    @property
    def ndim(self) -> int:  # type: ignore[override]
        return self._ndim

    def dim(self) -> int:
        """The number of dimensions, with that of the batch."""
        return self._ndim

    def numel(self) -> int:
        """The number of elements of all parts."""
        return self._elements.numel()

    nelement = numel

    def stride(self, dim: int | None = None) -> Any:
        """Raises: RuntimeError: parts have strides of their own."""
        raise RuntimeError("a nested tensor of the layout strided has no strides: ask its parts")

    def is_contiguous(self, memory_format: Any = fb.contiguous_format) -> bool:
        """True: parts lie one after the other."""
        return True

    @property
    def layout(self) -> Any:  # type: ignore[override]
        return fb.strided

    is_nested = True

    def _nested_tensor_size(self) -> Tensor:
        """The shape of each part, int64 (B, dimensions of a part)."""
        return fb.tensor(self._sizes, dtype=fb.int64).reshape(len(self._sizes), self._ndim - 1)

    def _nested_tensor_strides(self) -> Tensor:
        """The steps of each part, int64 (B, dimensions of a part)."""
        return fb.tensor([part.stride() for part in self._parts()], dtype=fb.int64).reshape(len(self._sizes), self._ndim - 1)

    def _nested_tensor_storage_offsets(self) -> Tensor:
        """Where each part begins, int64 (B)."""
        return fb.tensor(self._starts(), dtype=fb.int64)

    def to_padded_tensor(self, padding: float, output_size: Any = None, out: Any = None) -> Tensor:
        """See `nested.to_padded_tensor`."""
        from ._construction import to_padded_tensor

        return to_padded_tensor(self, padding, output_size, out)

    def __len__(self) -> int:
        return len(self._sizes)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        shown = [part.detach().requires_grad_(self.requires_grad) for part in self._parts()]
        parts = [repr(part).replace("\n", "\n  ") for part in shown]
        history = f", grad_fn=<{self.grad_fn.name()}>" if self.grad_fn is not None else ", requires_grad=True" if self.requires_grad else ""
        return f"nested_tensor([\n  {f',{chr(10)}  '.join(parts)}\n]{history})" if parts else f"nested_tensor([\n\n]{history})"

    __str__ = __repr__

    # -- operations

    @staticmethod
    def _answer_of(func: Any) -> Any:
        return _answer_of(func)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(
            f"{func} is not built for nested tensors of the layout strided; run it on the parts, ``[f(x) for x in nt.unbind()]``, or on "
            "nested.to_padded_tensor(nt, padding)"
        )


def as_strided_nested(parts: list[Tensor], dtype: Any = None, device: Any = None) -> StridedNestedTensor:
    """A nested tensor of `parts`, which gradients reach. Raises: RuntimeError where they differ in their number of dimensions."""
    for i, part in enumerate(parts):
        if part.ndim != parts[0].ndim:
            raise RuntimeError(
                "All Tensors given to nested_tensor must have the same dimension. "
                f"Found dimension {part.ndim} for Tensor at index {i} and dimension {parts[0].ndim} for Tensor at index 0."
            )
    if not parts:
        return StridedNestedTensor(fb.empty(0, dtype=dtype, device=device), (), 1)
    dtype, device = dtype or parts[0].dtype, device or parts[0].device
    flat = [part.to(device=device, dtype=dtype).reshape(-1) for part in parts]
    return StridedNestedTensor(fb.cat(flat), tuple([tuple(part.shape) for part in parts]), parts[0].ndim + 1)


def padded(nt: StridedNestedTensor, padding: float, output_size: Any) -> Tensor:
    """The parts as one Tensor, with `padding` where they are smaller than the largest, or than `output_size`."""
    shape = [len(nt), *(max(column) for column in zip(*nt._sizes, strict=True))]
    if output_size is not None:
        given = list(output_size)
        if len(given) != len(shape) or any(a < b for a, b in zip(given, shape, strict=True)):
            raise RuntimeError(
                "Value in output_size is less than NestedTensor padded size. Truncation is not supported."
                if len(given) == len(shape) else f"to_padded_tensor(): output_size {tuple(given)} has other dimensions than {tuple(shape)}"
            )  # fmt: skip
        shape = given
    made = []
    for part in nt._parts():
        around = [n for have, want in zip(reversed(part.shape), reversed(shape[1:]), strict=True) for n in (0, want - have)]
        made.append(fb.nn.functional.pad(part, around, value=padding))
    missing = shape[0] - len(made)
    if missing:
        made += [nt._elements.new_full(shape[1:], padding)] * missing
    return fb.stack(made)


# -- how operations are answered ---------------------------------------------------------------------------------------------

_answers = Answers()
# Methods and functions that are no operations, which treat every element alike.
_ELEMENTS = frozenset(
    """
    bfloat16 bool clone contiguous cpu cuda detach double empty_like fill float full_like half int long masked_fill ones_like rand_like
    randn_like requires_grad short to type zero zeros_like
    """.split()  # noqa: SIM905  # a list of words reads better
)


@functools.cache
def _answer_of(func: Any) -> Callable[[Any, Any, Any], Any] | None:
    op = getattr(func, "flambeau_op", None)
    bare = name_called(func)
    if bare in _answers:
        return _answers[bare]
    if bare in _ELEMENTS or op is not None and is_pointwise(op):
        return functools.partial(_elementwise, bare)
    if op is not None and op.elements == "reduced":
        return functools.partial(_reduced, bare)
    return functools.partial(_along_one, bare) if op is not None and op.elements == "along" else None


def _by_parts(nt: StridedNestedTensor, run: Callable[[Tensor], Tensor]) -> StridedNestedTensor:
    """What `run` makes of each part, nested again. A batch of none stays as it is."""
    return as_strided_nested([run(part) for part in nt._parts()]) if len(nt) else nt


def _inner(nt: StridedNestedTensor, dim: int, refusal: str) -> int:
    """The dimension of parts that is `dim` of `nt`. Raises: RuntimeError for that of the batch; IndexError out of range."""
    if not -nt.ndim <= dim < nt.ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-nt.ndim}, {nt.ndim - 1}], but got {dim})")
    if dim % nt.ndim == 0:
        raise RuntimeError(refusal)
    return dim % nt.ndim - 1


def _elementwise(name: str, func: Any, args: Any, kwargs: Any) -> Any:
    """An operation of the elements, of nested tensors of the same sizes and numbers."""
    tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    first = next(x for x in tensors if isinstance(x, StridedNestedTensor))
    for x in tensors:
        if isinstance(x, StridedNestedTensor):
            if x._sizes != first._sizes:
                raise RuntimeError(
                    f"{name} does not support broadcasting when given a NestedTensor: parts have sizes {first._sizes} and "
                    f"{x._sizes}"
                )
        elif x.is_nested or x.ndim:
            raise RuntimeError(f"{name}: Expected both self and other to be nested, but got a nested self and non-nested other")
    made = func(*pytree.tree_map(elements_of, args), **pytree.tree_map(elements_of, kwargs))
    if made is first._elements:
        return first                                  # stored in place, or nothing to do
    return first._alike(made) if isinstance(made, Tensor) else made


def _reduced(name: str, func: Any, args: Any, kwargs: Any) -> Any:
    """A reduction of all elements, or of the last dimension of each part, which it keeps."""
    nt, *rest = args
    if rest and isinstance(rest[0], Tensor):
        return _elementwise(name, func, args, kwargs)  # maximum of two, say
    dim = kwargs.get("dim", rest[0] if rest and name != "norm" and not isinstance(rest[0], bool) else None)
    if dim is None:
        return func(nt._elements, *rest, **kwargs)
    dims = [dim] if isinstance(dim, int) else list(dim)
    last = _inner(nt, dims[0], f"{name}(): a nested tensor is reduced across its last dimension alone, got dimension 0")
    if len(dims) > 1 or last != nt.ndim - 2:
        raise RuntimeError(f"{name}(): a nested tensor is reduced across its last dimension alone, got dimension {dim}")
    if not kwargs.get("keepdim", rest[1] if len(rest) > 1 else False):
        raise RuntimeError(f"{name}(): a nested tensor is reduced with keepdim=True alone")
    given = {key: value for key, value in kwargs.items() if key not in ("dim", "keepdim")}
    return _by_parts(nt, lambda part: func(part, dim=-1, keepdim=True, **given))


def _along_one(name: str, func: Any, args: Any, kwargs: Any) -> Any:
    """An operation along one dimension of each part, which keeps sizes."""
    nt, *rest = args
    given = dict(kwargs)
    if "dim" not in given and not rest:
        raise TypeError(f"{name}(): dim must be given for a nested tensor")
    at = _inner(nt, given.pop("dim") if "dim" in given else rest.pop(0), f"Cannot apply {name} across nested dimension 0")
    return _by_parts(nt, lambda part: func(part, at, *rest, **given))


@_answers("linear")
def _linear(func: Any, args: Any, kwargs: Any) -> Any:
    """On the rows of all parts at once."""
    nt, weight, *rest = args
    widths = {size[-1] for size in nt._sizes}
    if nt.ndim < 2 or len(widths) > 1:
        raise RuntimeError(f"Expected all tensors in nested tensor to have the same trailing dimension, got parts of sizes {nt._sizes}")
    if not widths:
        return nt
    made = func(nt._elements.view(-1, widths.pop()), weight, *rest, **kwargs)
    return StridedNestedTensor(made.reshape(-1), tuple([(*size[:-1], made.shape[-1]) for size in nt._sizes]), nt.ndim)


@_answers("layer_norm", named=True)
@_answers("rms_norm", named=True)
@_answers("embedding", named=True)
def _each_part(name: str, func: Any, args: Any, kwargs: Any) -> Any:
    nt, *rest = args
    if not isinstance(nt, StridedNestedTensor):
        raise RuntimeError(f"{name}(): the input alone may be a nested tensor")
    return _by_parts(nt, lambda part: func(part, *rest, **kwargs))


@_answers("dropout")
def _dropout(func: Any, args: Any, kwargs: Any) -> Any:
    return args[0]._alike(func(args[0]._elements, *args[1:], **kwargs))


@_answers("bmm")
@_answers("matmul")
@_answers("__matmul__")
@_answers("scaled_dot_product_attention")
def _together(func: Any, args: Any, kwargs: Any) -> Any:
    """Of nested tensors alone, which have the same number of parts: part by part."""
    tensors = [x for x in args if isinstance(x, Tensor)]
    if not all(isinstance(x, StridedNestedTensor) for x in tensors):
        raise RuntimeError("Expected both to be nested, but got a nested self and non-nested other")
    if len({len(x) for x in tensors}) > 1:
        raise RuntimeError(f"Expected size for the 1st dimension of all to be the same, got {[len(x) for x in tensors]}")
    name = name_called(func)
    of_parts = fb.matmul if name in ("bmm", "__matmul__") else func
    rest = args[len(tensors) :]
    return as_strided_nested([of_parts(*parts, *rest, **kwargs) for parts in zip(*[x._parts() for x in tensors], strict=True)])


# -- shapes ------------------------------------------------------------------------------------------------------------------


@_answers("unbind")
def _unbind(func: Any, args: Any, kwargs: Any) -> Any:
    nt = args[0]
    dim = kwargs.get("dim", args[1] if len(args) > 1 else 0)
    if dim % nt.ndim:
        raise RuntimeError(f"NestedTensor can only be unbound along dimension 0 got dimension {dim} instead.")
    return nt._parts()


@_answers("__iter__")
def _iterated(func: Any, args: Any, kwargs: Any) -> Any:
    return iter(args[0]._parts())


@_answers("__getitem__")
def _item(func: Any, args: Any, kwargs: Any) -> Any:
    nt, key = args
    keys = list(key) if isinstance(key, tuple) else [key]
    places = [i for i, k in enumerate(keys) if k is Ellipsis]
    if places:
        used = sum(k is not None and k is not Ellipsis for k in keys)
        keys[places[0] : places[0] + 1] = [slice(None)] * (nt.ndim - used)
    if isinstance(keys[0], int) and not isinstance(keys[0], bool):
        if not -len(nt) <= keys[0] < len(nt):
            raise IndexError(f"index {keys[0]} is out of bounds for dimension 0 with size {len(nt)}")
        part = nt._parts()[keys[0]]
        return part[tuple(keys[1:])] if keys[1:] else part
    if not isinstance(keys[0], slice):
        raise RuntimeError("a nested tensor of the layout strided takes an int or a slice for its first dimension")
    inner = tuple(keys[1:])
    return as_strided_nested([part[inner] if inner else part for part in nt._parts()[keys[0]]])


@_answers("select")
def _select(func: Any, args: Any, kwargs: Any) -> Any:
    nt, dim, index = (*args, *(kwargs[key] for key in ("dim", "index") if key in kwargs))
    if dim % nt.ndim == 0:
        return nt[index]
    at = _inner(nt, dim, "")
    return _by_parts(nt, lambda part: part.select(at, index))


@_answers("transpose")
@_answers("swapaxes")
@_answers("swapdims")
def _transpose(func: Any, args: Any, kwargs: Any) -> Any:
    nt, *dims = (*args, *kwargs.values())
    one, two = (_inner(nt, d, "Nested tensor dimension 0 cannot be transposed") for d in dims)
    return _by_parts(nt, lambda part: part.transpose(one, two))


@_answers("mT")
def _turned(func: Any, args: Any, kwargs: Any) -> Any:
    return args[0].transpose(-1, -2)


@_answers("unsqueeze")
def _unsqueeze(func: Any, args: Any, kwargs: Any) -> Any:
    nt, dim = (*args, *kwargs.values())
    at = dim % (nt.ndim + 1)
    if at == 0:
        raise RuntimeError("unsqueeze(): For nested tensors, unsqueezing dimension 0 is not supported")
    return _by_parts(nt, lambda part: part.unsqueeze(at - 1))


@_answers("squeeze")
def _squeeze(func: Any, args: Any, kwargs: Any) -> Any:
    nt, *dims = (*args, *kwargs.values())
    if not dims or not isinstance(dims[0], int):
        raise RuntimeError("squeeze(): one dimension must be given for a nested tensor")
    at = _inner(nt, dims[0], "squeeze(): For nested tensors, squeezing dimension 0 is not supported")
    if any(size[at] != 1 for size in nt._sizes):
        return nt
    return _by_parts(nt, lambda part: part.squeeze(at))


@_answers("reshape")
@_answers("view")
def _view(func: Any, args: Any, kwargs: Any) -> Any:
    """Sizes are those of parts; -1 leaves each part the size it has in this dimension."""
    nt, *sizes = args
    if len(sizes) == 1 and isinstance(sizes[0], fb.dtype):
        return nt._alike(nt._elements.view(sizes[0]))
    wanted = list(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else list(sizes)
    if not wanted or wanted[0] not in (len(nt), -1):
        raise RuntimeError(f"view: For now nested view cannot change or infer the implicit batch dimension, got {tuple(wanted)}")

    def of_part(part: Tensor) -> Tensor:
        inner = [part.shape[d] if n == -1 and d < part.ndim else n for d, n in enumerate(wanted[1:])]
        return part.view(inner)

    return _by_parts(nt, of_part)


@_answers("cat")
def _cat(func: Any, args: Any, kwargs: Any) -> Any:
    given: Any = (*args, *kwargs.values(), 0)
    tensors, dim = given[:2]
    first = next(x for x in tensors if isinstance(x, StridedNestedTensor))
    if dim not in (0, -first.ndim):
        at = _inner(first, dim, "")
        if not all(isinstance(x, StridedNestedTensor) for x in tensors):
            raise RuntimeError("cat(): expected each tensor in given list to be nested")
        around = [[(*size[:at], *size[at + 1 :]) for size in x._sizes] for x in tensors]
        if any(sizes != around[0] for sizes in around):
            raise RuntimeError(f"cat(): parts of nested tensors have to agree but for dimension {dim}, got {[x._sizes for x in tensors]}")
        return as_strided_nested([fb.cat(parts, at) for parts in zip(*[x._parts() for x in tensors], strict=True)])
    return as_strided_nested([part for x in tensors for part in (x._parts() if isinstance(x, StridedNestedTensor) else [x])])


@_answers("chunk")
def _chunk(func: Any, args: Any, kwargs: Any) -> Any:
    given: Any = (*args, *(kwargs[key] for key in ("chunks", "dim") if key in kwargs), 0)
    nt, chunks, dim = given[:3]
    at = _inner(nt, dim, "Chunk for nested tensors is currently only supported for the last dimension.")
    if at != nt.ndim - 2 or any(size[at] % chunks for size in nt._sizes):
        raise RuntimeError("Chunk for nested tensors is currently only supported for the last dimension, of a multiple of `chunks`.")
    columns = zip(*[part.chunk(chunks, at) for part in nt._parts()], strict=True)
    return tuple([as_strided_nested(list(column)) for column in columns])


@_answers("split")
@_answers("split_with_sizes")
def _split(func: Any, args: Any, kwargs: Any) -> Any:
    """Along the last dimension, which is as long in all parts as `sizes` are together."""
    given: Any = (*args, *(kwargs[key] for key in ("split_size", "split_size_or_sections", "split_sizes", "dim") if key in kwargs), 0)
    nt, sizes, dim = given[:3]
    if not isinstance(sizes, (list, tuple)) or dim % nt.ndim != nt.ndim - 1 or nt.ndim < 2:
        raise RuntimeError("split: nested tensors of the layout strided are split along their last dimension, into a list of sizes")
    at = nt.ndim - 2
    if any(size[at] != sum(sizes) for size in nt._sizes):
        raise RuntimeError(f"split: the sizes {list(sizes)} have to sum to the last size of each part, got parts of sizes {nt._sizes}")
    columns = zip(*[part.split(list(sizes), at) for part in nt._parts()], strict=True)
    return tuple([as_strided_nested(list(column)) for column in columns])


@_answers("narrow")
def _narrow(func: Any, args: Any, kwargs: Any) -> Any:
    nt, dim, start, length = (*args, *(kwargs[key] for key in ("dim", "start", "length") if key in kwargs))
    if dim % nt.ndim:
        raise RuntimeError("narrow(): only dim=0 supported for nested tensors, but got dim=" + str(dim))
    return as_strided_nested(list(nt._parts()[start : start + length]))


@_answers("to_padded_tensor")
def _padded(func: Any, args: Any, kwargs: Any) -> Any:
    return StridedNestedTensor.to_padded_tensor(*args, **kwargs)


@_answers("copy")
def _copy(func: Any, args: Any, kwargs: Any) -> Any:
    target, source = args[:2]
    if not isinstance(target, StridedNestedTensor) or not isinstance(source, StridedNestedTensor) or target._sizes != source._sizes:
        raise RuntimeError("copy_ only supports tensors that are the same size for Nested implementations")
    target._elements.copy_(source._elements)
    return target
