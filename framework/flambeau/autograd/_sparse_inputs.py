"""Sparse inputs of gradient checks: functions of dense elements that make them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fb

from ..tensor import Tensor
from .function import Function

__all__ = ["of_dense_inputs"]

_BY_COLUMNS = (fb.sparse_csc, fb.sparse_bsc)


def of_dense_inputs(func: Callable[..., Any], inputs: tuple[Any, ...], masked: bool) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """`func` and `inputs` with dense tensors in place of the sparse ones that require grad.

    Args:
        masked: whether only specified elements move: a dense tensor then has these alone, else all elements of the sparse tensor.
    Raises: ValueError, when the function is called, for a sparse result.
    """
    made = tuple([_Elements(x, masked) if _is_checked(x) else None for x in inputs])
    if not any(made):
        return func, inputs

    def of_elements(*given: Any) -> Any:
        results = func(*[x if of is None else _AsSparse.apply(x, of) for x, of in zip(given, made, strict=True)])
        for y in results if isinstance(results, (tuple, list)) else (results,):
            if isinstance(y, Tensor) and y.layout is not fb.strided:
                raise ValueError(
                    "Sparse output is not supported at gradcheck yet. Please call to_dense(masked_grad=...) on the output of fn for "
                    "gradcheck."
                )
        return results

    return of_elements, tuple([x if of is None else of.dense() for x, of in zip(inputs, made, strict=True)])


def _is_checked(x: Any) -> bool:
    return isinstance(x, Tensor) and x.requires_grad and x.layout is not fb.strided


class _Elements:
    """The elements of a sparse tensor that a check moves."""

    def __init__(self, like: Tensor, masked: bool) -> None:
        like = like.detach()
        self.like = like.coalesce() if like.layout is fb.sparse_coo else like
        self.masked = masked
        # Where each specified element is in the dense tensor, counted from 1.
        values = self.like.values()
        numbers = fb.arange(1, values.numel() + 1, dtype=fb.float64).reshape(values.shape)
        self.numbers = self.with_values(numbers).to_dense().long()

    def dense(self) -> Tensor:
        """The elements as they are, a leaf."""
        return (self.like.values() if self.masked else self.like.to_dense()).clone().requires_grad_()

    def with_values(self, values: Tensor) -> Tensor:
        """A sparse tensor with these values where the checked one has its own."""
        like = self.like
        if like.layout is fb.sparse_coo:
            return fb.sparse_coo_tensor(like.indices(), values, like.shape, is_coalesced=True)
        places = (like.ccol_indices(), like.row_indices()) if like.layout in _BY_COLUMNS else (like.crow_indices(), like.col_indices())
        return fb.sparse_compressed_tensor(*places, values, like.shape, layout=like.layout)

    def made(self, elements: Tensor) -> Tensor:
        """The sparse tensor of `elements`; of all elements those are specified that were, and those that are not 0."""
        if self.masked:
            return self.with_values(elements)
        like, specified = self.like, (self.numbers > 0) | (elements != 0)
        if like.layout is fb.sparse_coo and like.dense_dim():
            specified = specified.flatten(like.sparse_dim()).any(-1)
        places = specified.nonzero().t()
        made = fb.sparse_coo_tensor(places, elements[tuple(places)], like.shape, is_coalesced=True)
        if like.layout is fb.sparse_coo:
            return made
        blocks = tuple(like.values().shape[-2:]) if like.layout in (fb.sparse_bsr, fb.sparse_bsc) else None
        return made.to_sparse(layout=like.layout, blocksize=blocks)

    def gradient(self, grad: Tensor) -> Tensor:
        """The gradient by the elements, of one by the sparse tensor."""
        grad = grad if grad.layout is fb.strided else grad.to_dense()
        if not self.masked:
            return grad
        there = self.numbers > 0
        values = self.like.values()
        return grad.new_zeros(values.numel()).index_put((self.numbers[there] - 1,), grad[there]).reshape(values.shape)


class _AsSparse(Function):
    """A sparse tensor of its elements."""

    @staticmethod
    def forward(ctx: Any, elements: Tensor, of: _Elements) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.of = of
        return of.made(elements.detach())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return ctx.of.gradient(grad), None
