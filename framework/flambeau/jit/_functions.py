"""Functions of the package, beside those of `nn.functional`, as scripts have them.

The functions here are never called: their source is compiled. Source of what they compute: the documentation of each function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch

from .._jit_internal import BroadcastingList1
from ..tensor import Tensor
from ._functional import ByType, Choice, enter_form, form_of

__all__ = ["ByType", "Choice", "form_of"]

aten = torch.ops.aten


def _of_the_package(fn: Callable[..., Any]) -> Callable[..., Any]:
    fn.__module__ = "torch.functional"
    return fn


@_of_the_package
def _tensordot_of_last(a: Tensor, b: Tensor, dims: int = 2) -> Tensor:
    of_a: list[int] = []
    of_b: list[int] = []
    for i in range(dims):
        of_a.append(a.dim() - dims + i)
        of_b.append(i)
    return aten.tensordot(a, b, of_a, of_b)


@_of_the_package
def _tensordot_of_lists(a: Tensor, b: Tensor, dims: list[list[int]]) -> Tensor:
    return aten.tensordot(a, b, dims[0], dims[1])


@_of_the_package
def _tensordot_of_pair(a: Tensor, b: Tensor, dims: tuple[list[int], list[int]]) -> Tensor:
    return aten.tensordot(a, b, dims[0], dims[1])


enter_form(torch.tensordot, ByType("dims", 2, {"int": _tensordot_of_last, "List": _tensordot_of_lists, "Tuple": _tensordot_of_pair}))


# -- distinct elements: as many results as are asked for ----------------------------------------------------------------


@_of_the_package
def _distinct(
    input: Tensor, sorted: bool, return_inverse: bool, return_counts: bool, dim: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    if dim is None:
        return aten._unique2(input, sorted, return_inverse, return_counts)
    return aten.unique_dim(input, dim, sorted, return_inverse, return_counts)


@_of_the_package
def _unique(
    input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Tensor:
    return _distinct(input, sorted, False, False, dim)[0]


@_of_the_package
def _unique_with_places(
    input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, Tensor]:
    values, places, _ = _distinct(input, sorted, True, False, dim)
    return values, places


@_of_the_package
def _unique_with_counts(
    input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, Tensor]:
    values, _, counts = _distinct(input, sorted, False, True, dim)
    return values, counts


@_of_the_package
def _unique_with_both(
    input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    return _distinct(input, sorted, True, True, dim)


enter_form(torch.unique, Choice(
    "return_inverse", 2,
    Choice("return_counts", 3, _unique_with_both, _unique_with_places), Choice("return_counts", 3, _unique_with_counts, _unique),
))  # fmt: skip


@_of_the_package
def _runs(input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Tensor:
    return aten.unique_consecutive(input, False, False, dim)[0]


@_of_the_package
def _runs_with_places(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, Tensor]:
    values, places, _ = aten.unique_consecutive(input, True, False, dim)
    return values, places


@_of_the_package
def _runs_with_counts(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, Tensor]:
    values, _, counts = aten.unique_consecutive(input, False, True, dim)
    return values, counts


@_of_the_package
def _runs_with_both(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    return aten.unique_consecutive(input, True, True, dim)


enter_form(torch.unique_consecutive, Choice(
    "return_inverse", 1,
    Choice("return_counts", 2, _runs_with_both, _runs_with_places), Choice("return_counts", 2, _runs_with_counts, _runs),
))  # fmt: skip


# -- norms: by a name or a number ---------------------------------------------------------------------------------------


@_of_the_package
def _norm_of_number(
    input: Tensor, p: float | None = None, dim: BroadcastingList1[int] | None = None, keepdim: bool = False, out: Tensor | None = None,
    dtype: int | None = None,
) -> Tensor:  # fmt: skip
    dims = list(range(input.dim())) if dim is None else dim
    made = aten.norm(input, p, dims, keepdim) if dtype is None else aten.norm(input, p, dims, keepdim, dtype=dtype)
    return made if out is None else out.resize_(made.size()).copy_(made)


@_of_the_package
def _norm_of_integer(
    input: Tensor, p: int = 2, dim: BroadcastingList1[int] | None = None, keepdim: bool = False, out: Tensor | None = None,
    dtype: int | None = None,
) -> Tensor:  # fmt: skip
    return _norm_of_number(input, float(p), dim, keepdim, out, dtype)


@_of_the_package
def _norm_of_name(
    input: Tensor, p: str = "fro", dim: BroadcastingList1[int] | None = None, keepdim: bool = False, out: Tensor | None = None,
    dtype: int | None = None,
) -> Tensor:  # fmt: skip
    if p == "nuc":
        cast = input if dtype is None else input.to(dtype)
        made = aten.nuclear_norm(cast, keepdim) if dim is None else aten.nuclear_norm(cast, dim, keepdim)
        return made if out is None else out.resize_(made.size()).copy_(made)
    if p != "fro":
        raise RuntimeError(f"only valid string values are 'fro' and 'nuc', found {p}")
    return _norm_of_number(input, 2.0, dim, keepdim, out, dtype)


enter_form(torch.norm, ByType("p", 1, {
    "str": _norm_of_name, "float": _norm_of_number, "int": _norm_of_integer, "NoneType": _norm_of_number, "Optional": _norm_of_number,
}))  # fmt: skip
