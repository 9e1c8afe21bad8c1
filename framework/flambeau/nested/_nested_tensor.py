"""A batch of tensors whose sizes differ along one dimension, the ragged one.

`values` has the parts one after the other: it lacks the batch dimension, and its ragged dimension is as long as all parts
together. `offsets` says where parts begin. What operations do stands in `_operations.py`.
"""

from __future__ import annotations

import itertools
from typing import Any

import flambeau as fb

from .._over_tensor import OverTensor
from ..tensor import Tensor

_numbers = itertools.count(1)


class NestedInt(fb.SymInt):
    """The size of a ragged dimension: one symbol for each tensor of offsets, perhaps multiplied by an int.

    It equals itself and is at least 2 to those who ask; it has no other value, so `int` raises.
    """

    __slots__ = ("number", "factor")

    def __init__(self, number: int, factor: int = 1) -> None:
        self.number, self.factor = number, factor

    def __repr__(self) -> str:
        return f"j{self.number}" if self.factor == 1 else f"{self.factor}*j{self.number}"

    __str__ = __repr__

    def __eq__(self, other: Any) -> Any:
        return isinstance(other, NestedInt) and (self.number, self.factor) == (other.number, other.factor)

    def __ne__(self, other: Any) -> Any:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.number, self.factor))

    def __mul__(self, other: Any) -> Any:
        return NestedInt(self.number, self.factor * int(other)) if other != 1 else self

    __rmul__ = __mul__

    def __ge__(self, other: Any) -> Any:
        return True if not isinstance(other, NestedInt) and other <= 2 else self._refuse()

    def __gt__(self, other: Any) -> Any:
        return True if not isinstance(other, NestedInt) and other < 2 else self._refuse()

    def __lt__(self, other: Any) -> Any:
        return False if not isinstance(other, NestedInt) and other <= 2 else self._refuse()

    def __le__(self, other: Any) -> Any:
        return False if not isinstance(other, NestedInt) and other < 2 else self._refuse()

    def __bool__(self) -> bool:
        return True

    def _refuse(self, *_: Any) -> Any:
        raise ValueError(f"nested int {self} is indeterminate: parts of a nested tensor differ in size; ask offsets() for them")

    __index__ = __int__ = __float__ = __add__ = __radd__ = __sub__ = __rsub__ = __floordiv__ = __mod__ = __truediv__ = _refuse


def _symbol_of(offsets: Tensor, lengths: Tensor | None) -> NestedInt:
    """The size of ragged dimensions that `offsets`, and `lengths` where parts leave holes, divide."""
    owner = offsets if lengths is None else lengths
    number = owner.__dict__.get("_ragged_symbol")
    if number is None:
        number = owner.__dict__["_ragged_symbol"] = next(_numbers)  # pyright: ignore[reportIndexIssue]  # an instance's
    return NestedInt(number)


class NestedTensor(OverTensor):
    """A batch of tensors whose sizes differ along one dimension; `nested_tensor` makes it.

    Operations of elements run on all parts at once, and so does what stays within the other dimensions: linear layers, norms,
    softmax along the last dimension. Reductions along the ragged dimension give a Tensor with a row for each part. Two nested
    tensors go together if they have the same offsets, as the same Tensor. What is not built raises NotImplementedError.

    Args:
        values: the parts one after the other, without the batch dimension.
        offsets: where parts begin and the last one ends, int64 (B + 1).
        lengths: how long parts are, (B), where they leave holes between them.
        ragged_idx: which dimension is ragged, counted with the batch.
    """

    _offsets: Tensor
    _lengths: Tensor | None
    _ragged_idx: int

    @staticmethod
    def __new__(cls: Any, values: Tensor, offsets: Tensor, lengths: Tensor | None = None, ragged_idx: int = 1) -> Any:
        batch = len(offsets) - 1
        sizes = list(values.shape)
        made = Tensor._make_wrapper_subclass(cls, (batch, *sizes), dtype=values.dtype, device=values.device)
        made._elements, made._offsets, made._lengths, made._ragged_idx = values, offsets, lengths, ragged_idx
        return made

    def __init__(self, values: Tensor, offsets: Tensor, lengths: Tensor | None = None, ragged_idx: int = 1) -> None:
        pass

    def _alike(self, elements: Tensor, ragged_idx: int | None = None) -> NestedTensor:
        return NestedTensor(elements, self._offsets, self._lengths, self._ragged_idx if ragged_idx is None else ragged_idx)

    def _made_of(self) -> tuple[Any, ...]:
        return self._elements, self._offsets, self._lengths, self._ragged_idx

    # -- its parts

    @property
    def _values(self) -> Tensor:
        return self._elements

    def values(self) -> Tensor:
        """The parts one after the other: a view without the batch dimension."""
        return self._elements.view_as(self._elements)

    def offsets(self) -> Tensor:
        """Where parts begin, and the last one ends: int64, (B + 1)."""
        return self._offsets

    def lengths(self) -> Tensor | None:
        """How long parts are, (B), where they leave holes; else None."""
        return self._lengths

    def _starts(self) -> list[int]:
        return self._offsets.tolist()[:-1]

    def _sizes(self) -> list[int]:
        """How long each part is."""
        if self._lengths is not None:
            return self._lengths.tolist()
        ends = self._offsets.tolist()
        return [b - a for a, b in itertools.pairwise(ends)]

    def _parts(self) -> tuple[Tensor, ...]:
        """The parts, views of the values."""
        d = self._ragged_idx - 1
        return tuple(self._elements.narrow(d, start, n) for start, n in zip(self._starts(), self._sizes(), strict=True))

    # -- geometry

    @property
    def shape(self) -> Any:  # type: ignore[override]
        sizes: list[Any] = list(self._elements.shape)
        sizes[self._ragged_idx - 1] = _symbol_of(self._offsets, self._lengths)
        return tuple.__new__(fb.Size, (len(self._offsets) - 1, *sizes))

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of the dimension `dim`."""
        if dim is None:
            return self.shape
        if not -self.ndim <= dim < self.ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-self.ndim}, {self.ndim - 1}], but got {dim})")
        return self.shape[dim]

    @property
    def ndim(self) -> int:  # type: ignore[override]
        return self._elements.ndim + 1

    def dim(self) -> int:
        """The number of dimensions, with that of the batch."""
        return self.ndim

    def numel(self) -> int:
        """The number of elements of all parts."""
        if self._lengths is None:
            return self._elements.numel()
        return sum(part.numel() for part in self._parts())

    def stride(self, dim: int | None = None) -> Any:
        """Steps in elements; that of the batch is a multiple of the ragged size."""
        steps = self._elements.stride()
        found = (_symbol_of(self._offsets, self._lengths) * steps[self._ragged_idx - 1], *steps)
        return found if dim is None else found[dim]

    def is_contiguous(self, memory_format: Any = fb.contiguous_format) -> bool:
        """Whether parts lie one after the other, without holes, and the ragged dimension is the slowest."""
        return self._ragged_idx == 1 and self._lengths is None and self._elements.is_contiguous()

    @property
    def layout(self) -> Any:  # type: ignore[override]
        return fb.jagged

    is_nested = True

    def to_padded_tensor(self, padding: float, output_size: Any = None, out: Any = None) -> Tensor:
        """See `nested.to_padded_tensor`."""
        from ._construction import to_padded_tensor

        return to_padded_tensor(self, padding, output_size, out)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        history = f", grad_fn={self.grad_fn}" if self.grad_fn is not None else ", requires_grad=True" if self.requires_grad else ""
        shape = f"({', '.join(map(str, self.shape))})"
        return f"NestedTensor(size={shape}, offsets={self._offsets}{history}, contiguous={self.is_contiguous()})"

    __str__ = __repr__

    # -- operations

    @staticmethod
    def _answer_of(func: Any) -> Any:
        from . import _operations

        return _operations.answer_of(func)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(
            f"{func} is not built for nested tensors; run it on the parts, ``[f(x) for x in nt.unbind()]``, on nt.values(), or on "
            "nested.to_padded_tensor(nt, padding)"
        )
