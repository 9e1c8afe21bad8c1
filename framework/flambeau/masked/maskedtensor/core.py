"""A tensor with a mask that says which of its elements count.

The elements and the mask are ordinary Tensors. Operations run on both, so derivatives of every order, and those of all dtypes and
devices, come from the operations themselves.
"""

from __future__ import annotations

from typing import Any

import flambeau as fb

from ..._over_tensor import OverTensor
from ...tensor import Tensor

_WIDTH = 8  # of a number, at least


class MaskedTensor(OverTensor):
    """Elements and the mask that says which of them count; see `masked_tensor`.

    Elementwise operations run on the elements and keep the mask, which two operands must share. Reductions leave out what does
    not count. Operations on shapes, and selections, run on elements and mask. All others raise TypeError.

    Args:
        data: the elements, ``(*)``; kept as they are, with their history.
        mask: bool, of the same shape; True where an element counts.
        requires_grad: whether this tensor is to have a gradient.
    Raises: TypeError, ValueError for a mask that does not fit.
    """

    _masked_mask: Tensor

    @staticmethod
    def __new__(cls: Any, data: Any, mask: Any, requires_grad: bool = False) -> Any:
        _check(data, mask)
        made = Tensor._make_wrapper_subclass(cls, data.shape, strides=data.stride(), dtype=data.dtype, device=data.device)
        made._elements, made._masked_mask = data, mask
        if requires_grad and not data.requires_grad:
            made._elements = data.detach().requires_grad_(True)
        return made

    def __init__(self, data: Any, mask: Any, requires_grad: bool = False) -> None:
        pass

    # -- its parts

    @property
    def _masked_data(self) -> Tensor:
        return self._elements

    def get_data(self) -> Tensor:
        """The elements, counted or not, with their history."""
        return self._elements.view_as(self._elements)

    def get_mask(self) -> Tensor:
        """The mask: bool, of the same shape."""
        return self._masked_mask

    def to_tensor(self, value: Any) -> Tensor:
        """The elements with `value` in the place of those that do not count."""
        return self._elements.masked_fill(~self._masked_mask, value)

    def is_sparse_coo(self) -> bool:
        """Whether the elements are stored in coordinate format."""
        return self._elements.layout == fb.sparse_coo

    def is_sparse_csr(self) -> bool:
        """Whether the elements are stored by compressed rows."""
        return self._elements.layout == fb.sparse_csr

    def _made_of(self) -> tuple[Any, ...]:
        return self._elements, self._masked_mask

    def _alike(self, elements: Tensor) -> MaskedTensor:
        return MaskedTensor(elements, self._masked_mask)

    def __len__(self) -> int:
        return len(self._elements)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        if not self._elements.ndim:
            text = _row(self._elements.reshape(1), self._masked_mask.reshape(1), 0)[0]
            return f"MaskedTensor({text}, {bool(self._masked_mask)})"
        return f"MaskedTensor(\n{_shown(self._elements, self._masked_mask, 2)}\n)"

    __str__ = __repr__

    # -- operations

    @staticmethod
    def _answer_of(func: Any) -> Any:
        from . import _operations

        return _operations.answer_of(func)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise TypeError(
            f"no implementation found for '{func}' on MaskedTensor; call it with get_data(), or with to_tensor(value), where value is "
            "what elements that do not count are to be"
        )


def _check(data: Any, mask: Any) -> None:
    """Raise TypeError or ValueError unless `mask` says of each element of `data` whether it counts."""
    for name, given in (("data", data), ("mask", mask)):
        if not isinstance(given, Tensor) or isinstance(given, MaskedTensor):
            raise TypeError(f"{name} must be a Tensor, got {type(given).__name__}")
    if mask.dtype is not fb.bool:
        raise TypeError(f"mask must have dtype bool. Got {mask.dtype}")
    if data.dtype.is_complex:
        raise TypeError(f"{data.dtype} is not supported in MaskedTensor.")
    if data.layout != mask.layout:
        raise TypeError(f"data and mask must have the same layout, got {data.layout} and {mask.layout}")
    if data.ndim != mask.ndim:
        raise ValueError(f"data.dim() must equal mask.dim(), got {data.ndim} and {mask.ndim}")
    if data.shape != mask.shape:
        raise ValueError(f"data.size() must equal mask.size(), got {tuple(data.shape)} and {tuple(mask.shape)}")


def masked_tensor(data: Any, mask: Any, requires_grad: bool = False) -> MaskedTensor:
    """A MaskedTensor of copies of `data` and `mask`, without their history.

    Args:
        data: the elements, ``(*)``.
        mask: bool, ``(*)``: True where an element counts.
        requires_grad: whether it is to have a gradient.
    Raises: TypeError, ValueError for a mask that does not fit.

    >>> fb.masked.masked_tensor(fb.tensor([1.0, 2.0]), fb.tensor([True, False])) * 2
    MaskedTensor(
      [  2.0000,       --]
    )
    """
    _check(data, mask)
    made = MaskedTensor(data.detach().clone(), mask.clone())
    return made.requires_grad_(True) if requires_grad else made


def as_masked_tensor(data: Any, mask: Any) -> MaskedTensor:
    """A MaskedTensor over `data` and `mask` themselves; `data` receives gradients, 0 where `mask` is False.

    Args:
        data: the elements, ``(*)``.
        mask: bool, ``(*)``: True where an element counts.
    Raises: TypeError, ValueError for a mask that does not fit.
    """
    _check(data, mask)
    return MaskedTensor(fb.where(mask, data, data.detach()) if data.requires_grad else data, mask)


def is_masked_tensor(obj: Any, /) -> bool:
    """Whether `obj` is a MaskedTensor."""
    return isinstance(obj, MaskedTensor)


# -- as text -----------------------------------------------------------------------------------------------------------------


def _row(data: Tensor, mask: Tensor, width: int = _WIDTH) -> list[str]:
    values = [f"{x:8.4f}" if isinstance(x, float) else str(x) for x in data.detach().tolist()]
    width = max([width, *map(len, values)]) if width else 0
    return [value if counts else "--".rjust(width) for value, counts in zip(values, mask.tolist(), strict=True)]


def _shown(data: Tensor, mask: Tensor, indent: int) -> str:
    lead = " " * indent
    if data.ndim == 1:
        return f"{lead}[{', '.join(_row(data, mask))}]"
    rows = ",\n".join(_shown(d, m, indent + 2) for d, m in zip(data.detach(), mask, strict=True))
    return f"{lead}[\n{rows}\n{lead}]"


__all__ = ["MaskedTensor", "as_masked_tensor", "is_masked_tensor", "masked_tensor"]
