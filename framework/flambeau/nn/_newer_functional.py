"""Functions that PyTorch has in `nn.functional` since 2.7: other names of what is there, and compositions of it."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import flambeau as fb

from .. import _missing
from ..tensor import Tensor

__all__ = [
    "LinearCrossEntropyOptions", "ScalingType", "SwizzleType", "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d_with_indices", "assert_int_or_pair", "linear_cross_entropy", "scaled_grouped_mm", "scaled_mm",
]  # fmt: skip


def adaptive_max_pool1d_with_indices(input: Tensor, output_size: Any, return_indices: bool = False) -> tuple[Tensor, Tensor]:
    """`adaptive_max_pool1d` with the places of the largest numbers; `return_indices` changes nothing."""
    return fb.nn.functional.adaptive_max_pool1d(input, output_size, return_indices=True)


def adaptive_max_pool2d_with_indices(input: Tensor, output_size: Any, return_indices: bool = False) -> tuple[Tensor, Tensor]:
    """`adaptive_max_pool2d` with the places of the largest numbers; `return_indices` changes nothing."""
    return fb.nn.functional.adaptive_max_pool2d(input, output_size, return_indices=True)


def adaptive_max_pool3d_with_indices(input: Tensor, output_size: Any, return_indices: bool = False) -> tuple[Tensor, Tensor]:
    """`adaptive_max_pool3d` with the places of the largest numbers; `return_indices` changes nothing."""
    return fb.nn.functional.adaptive_max_pool3d(input, output_size, return_indices=True)


def assert_int_or_pair(arg: Any, arg_name: str, message: str) -> None:
    """Raise AssertionError with `message` unless `arg` is an int or has two elements."""
    if not (isinstance(arg, int) or len(arg) == 2):
        raise AssertionError(message.format(arg_name))


# -- a linear layer and its loss ---------------------------------------------------------------------------------------------


class LinearCrossEntropyOptions(NamedTuple):
    """How PyTorch computes `linear_cross_entropy` in parts; here it is computed whole, so these change nothing.

    Args:
        allow_retain_graph: whether a graph may be kept for another backward.
        batch_chunk_size: how many rows a part has.
        chunking_method: "auto" or None.
        acc_policy: "accurate", "balanced", "compact" or "auto".
        acc_dtype: what parts are added in.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None


def linear_cross_entropy(
    input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Tensor | None = None, weight: Tensor | None = None,
    reduction: str = "mean", ignore_index: int | None = None, label_smoothing: float = 0.0,
    options: LinearCrossEntropyOptions | None = None,
) -> Tensor:  # fmt: skip
    """`cross_entropy` of what a linear layer gives.

    Args:
        input: (..., in_features).
        linear_weight, linear_bias: of the layer: (classes, in_features) and (classes,).
        target, weight, reduction, label_smoothing: as for `cross_entropy`.
        ignore_index: a class that does not count, -100 by default.
        options: change nothing.
    """
    logits = fb.nn.functional.linear(input, linear_weight, linear_bias)
    ignored = -100 if ignore_index is None else ignore_index
    return fb.nn.functional.cross_entropy(
        logits, target, weight=weight, ignore_index=ignored, reduction=reduction, label_smoothing=label_smoothing
    )


# -- products of numbers with scales -----------------------------------------------------------------------------------------


class ScalingType(enum.IntEnum):
    """Which elements of a matrix share a scale: all, those of a row, or those of a block."""

    TensorWise = 0
    RowWise = 1
    BlockWise1x16 = 2
    BlockWise1x32 = 3
    BlockWise1x128 = 4
    BlockWise128x128 = 5


class SwizzleType(enum.IntEnum):
    """In which order scales lie."""

    NO_SWIZZLE = 0
    SWIZZLE_32_4_4 = 1


def scaled_mm(
    mat_a: Tensor, mat_b: Tensor, scale_a: Any, scale_recipe_a: Any, scale_b: Any, scale_recipe_b: Any, swizzle_a: Any = None,
    swizzle_b: Any = None, bias: Tensor | None = None, output_dtype: Any = fb.bfloat16, contraction_dim: Any = (),
    use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    """The product of two matrices of 8-bit floating numbers, which stand for as many times a scale.

    Args:
        mat_a, mat_b: (n, k) and (k, m), float8.
        scale_a, scale_b: float32 tensors, or lists of one.
        scale_recipe_a, scale_recipe_b: `ScalingType.TensorWise`, with scales of one element, or `RowWise`, with (n, 1) and (1, m).
        swizzle_a, swizzle_b: None, or `SwizzleType.NO_SWIZZLE`.
        bias: added to each row.
        output_dtype: of the result.
        contraction_dim, use_fast_accum: change nothing.
    Raises: NotImplementedError for scales of blocks and other orders; ValueError for shapes that do not fit.
    """
    (scale_a, recipe_a), (scale_b, recipe_b) = _only(scale_a, scale_recipe_a), _only(scale_b, scale_recipe_b)
    for recipe in (recipe_a, recipe_b):
        if recipe not in (ScalingType.TensorWise, ScalingType.RowWise):
            raise _missing.not_built(f"nn.functional.scaled_mm with {ScalingType(recipe).name}", "take scales of rows, or of the tensor")
    for swizzle in (swizzle_a, swizzle_b):
        held = swizzle[0] if isinstance(swizzle, (list, tuple)) and swizzle else swizzle
        if held not in (None, [], (), SwizzleType.NO_SWIZZLE):
            raise _missing.not_built("nn.functional.scaled_mm with SWIZZLE_32_4_4", "leave the scales in their order")
    for scale, recipe, rows in ((scale_a, recipe_a, (mat_a.shape[0], 1)), (scale_b, recipe_b, (1, mat_b.shape[1]))):
        wanted = "one element" if recipe == ScalingType.TensorWise else f"the shape {rows}"
        if scale.numel() != 1 if recipe == ScalingType.TensorWise else tuple(scale.shape) != rows:
            raise ValueError(f"Invalid scaling configuration: scales of {ScalingType(recipe).name} have {wanted}, got {tuple(scale.shape)}")
    return fb._scaled_mm(mat_a, mat_b, scale_a, scale_b, bias, None, output_dtype, use_fast_accum)


def _only(scale: Any, recipe: Any) -> tuple[Any, Any]:
    """A scale and how it is meant, out of lists of one each."""
    scales = list(scale) if isinstance(scale, (list, tuple)) else [scale]
    recipes = list(recipe) if isinstance(recipe, (list, tuple)) else [recipe]
    if len(scales) != 1 or len(recipes) != 1:
        raise _missing.not_built("nn.functional.scaled_mm with scales of two levels", "multiply them")
    return scales[0], recipes[0]


def scaled_grouped_mm(*args: Any, **kwargs: Any) -> Tensor:
    """Not built: raises NotImplementedError."""
    raise _missing.not_built("nn.functional.scaled_grouped_mm", "call scaled_mm for each group")
