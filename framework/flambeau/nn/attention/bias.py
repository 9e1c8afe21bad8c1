"""Masks with a name, for `scaled_dot_product_attention`: a causal mask whose corner is said, and which is not held in memory."""

from __future__ import annotations

import enum
from typing import Any

import flambeau as fb

from ... import _warn
from ...tensor import Tensor

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(enum.IntEnum):
    """Where the diagonal of a causal mask that is no square begins.

    UPPER_LEFT: query i sees keys 0 to i. LOWER_RIGHT: the last query sees all keys, the one before all but the last, and so
    on. For as many queries as keys both are the same.
    """

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(Tensor):
    """A causal mask by its name, to be given as `attn_mask` of `scaled_dot_product_attention`.

    Args:
        variant: where the diagonal begins.
        seq_len_q, seq_len_kv: how many queries and keys there are.
    Raises: AssertionError for a variant of another type.
    """

    variant: CausalVariant
    seq_len_q: int
    seq_len_kv: int

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> CausalBias:
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"CausalBias: variant must be a CausalVariant, got {type(variant).__name__}")
        # One element stands for all: nobody reads them. The shape is the one PyTorch's class has.
        stand_in = fb.empty(()).expand(int(variant), seq_len_q, seq_len_kv)
        return stand_in.as_subclass(cls)

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        self.variant = variant
        self.seq_len_q = seq_len_q
        self.seq_len_kv = seq_len_kv
        if seq_len_q > seq_len_kv and variant == CausalVariant.LOWER_RIGHT:
            _warn.warn("Lower right causal bias will produce NaNs in the output when seq_len_q > seq_len_kv!")

    def _upper_left(self, device: Any) -> Tensor:
        return fb.ones(self.seq_len_q, self.seq_len_kv, device=device, dtype=fb.bool).tril()

    def _lower_right(self, device: Any) -> Tensor:
        offset = self.seq_len_kv - self.seq_len_q
        return fb.ones(self.seq_len_q, self.seq_len_kv, device=device, dtype=fb.bool).tril(offset)

    def _materialize(self, device: Any = None) -> Tensor:
        """The mask as bool ``(seq_len_q, seq_len_kv)``, True where a query sees a key."""
        device = "cpu" if device is None else device
        return self._upper_left(device) if self.variant == CausalVariant.UPPER_LEFT else self._lower_right(device)

    @staticmethod
    def _dispatch(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: CausalBias, dropout_p: float = 0.0, is_causal: bool = False,
        *, scale: float | None = None, enable_gqa: bool = False,
    ) -> Tensor:  # fmt: skip
        """`scaled_dot_product_attention` with this mask. Raises: ValueError if `is_causal` says the same again."""
        if is_causal:
            raise ValueError("scaled_dot_product_attention: CausalBias should not be used with causal=True")
        square = attn_mask.seq_len_q == attn_mask.seq_len_kv
        upper = attn_mask.variant == CausalVariant.UPPER_LEFT or square
        mask = None if upper else attn_mask._materialize(query.device)
        return fb.nn.functional.scaled_dot_product_attention(query, key, value, mask, dropout_p, upper, scale=scale, enable_gqa=enable_gqa)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is fb.nn.functional.scaled_dot_product_attention:
            mask = kwargs.get("attn_mask", args[3] if len(args) > 3 else None)
            if isinstance(mask, CausalBias):
                return cls._dispatch(*args, **kwargs)
        return super().__torch_function__(func, types, args, kwargs)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return self._materialize().__repr__()


def _sizes(name: str, size: tuple[Any, ...]) -> tuple[int, int]:
    if len(size) != 2:
        raise AssertionError(f"{name}: {name} only supports 2D tensors, got sizes {size}")
    return size[0], size[1]


def causal_upper_left(*size: int) -> CausalBias:
    """The causal mask in which query i sees keys 0 to i.

    Args:
        size: how many queries, and how many keys.
    Raises: AssertionError for another number of sizes.

    >>> from flambeau.nn.attention.bias import causal_upper_left
    >>> causal_upper_left(2, 3)
    tensor([[ True, False, False],
            [ True,  True, False]])
    """
    return CausalBias(CausalVariant.UPPER_LEFT, *_sizes("causal_upper_left", size))


def causal_lower_right(*size: int) -> CausalBias:
    """The causal mask in which the last query sees all keys, and each query before it one less.

    Args:
        size: how many queries, and how many keys. With more queries than keys the first see none, and get zeros.
    Raises: AssertionError for another number of sizes.

    >>> from flambeau.nn.attention.bias import causal_lower_right
    >>> causal_lower_right(2, 3)
    tensor([[ True,  True, False],
            [ True,  True,  True]])
    """
    return CausalBias(CausalVariant.LOWER_RIGHT, *_sizes("causal_lower_right", size))
