"""Embeddings: rows of a table by index, bags of them, and one-hot vectors."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from flambeau_kernels.cpu.indexing import rows as kernels
from flambeau_kernels.cpu.indexing import scatter
from flambeau_kernels.cpu.reductions.softmax import widen

from ... import _state, dtypes
from ..._errors import ShapeDependsOnValues
from ...tensor import Tensor, wrap
from .. import _derive, _dispatch
from .._batching import leading, numbers, run
from .._spec import (
    FUNCTION,
    NUMPY_NAMES,
    OPS,
    composite,
    describe,
    gradients_of,
    host_only,
    need_bools,
    need_int,
    need_number,
    primitive,
)
from ..creation.ranges import arange
from ..indexing.select import INT64, has_negative

F = "nn.functional"


# -- reading rows, and adding rows up ------------------------------------------------------------------------------------


@primitive(
    surface=0, tensors=("weight", "indices"), operator="embedding(weight, indices, padding_idx, scale_grad_by_freq)",
    samples="of nn.functional.embedding",
    cuda="moves.rows_at", costly=True,
)
def rows_at(weight, indices, padding_idx, scale_grad_by_freq):
    """``weight[indices]``; the gradient leaves out `padding_idx` and may be divided by how often an index occurs."""


rows_at.shown_as(
    "EmbeddingBackward0", hides="weight_shape", sparse=lambda saved: False, weight_sym_argsize_0=lambda saved: saved["weight_shape"][0]
)


rows_at.in_pieces("_k,...->...k")


@rows_at.put_off_within("indices")
def _are_rows(weight, indices, padding_idx, scale_grad_by_freq):
    return [(0, weight.shape[0])]


@rows_at.kernel
def _rows_at(table, indices, padding_idx, scale_grad_by_freq):
    return kernels.take_rows(table, indices)


@rows_at.shape
def _rows_at_shape(weight, indices, padding_idx, scale_grad_by_freq):
    return (*indices.shape, *weight.shape[1:]), weight.dtype


@rows_at.vjp(indices=None)
def _rows_at_vjp(grad, indices, padding_idx, scale_grad_by_freq, weight_shape):
    return rows_added.function(grad, indices, weight_shape[0], padding_idx, scale_grad_by_freq), None


@rows_at.vjp_on_arrays
def _rows_at_vjp_on_arrays(grad, indices, padding_idx, scale_grad_by_freq, weight_shape):
    return _added(grad, indices, weight_shape[0], padding_idx, scale_grad_by_freq), None


@rows_at.batch
def _rows_at_batch(level: Any, op: Any, args: Any) -> Any:
    weight, indices, padding, scaled = args
    if scaled or (level.has(weight) and padding is not None and padding >= 0):
        return NotImplemented
    if not level.has(weight):
        return level.wrap(run(op, weight, level.front(indices), padding, scaled))
    # The tables of all examples are one, in which those of an example begin at its number times their rows.
    table, rows = level.front(weight), level.full(indices)
    first = numbers(level, indices.ndim) * table.shape[1]
    return level.wrap(run(op, table.reshape(-1, table.shape[2]), rows + first, padding, scaled))


def _added(grad: Any, indices: Any, rows: int, padding_idx: int, by_freq: bool) -> Any:
    flat, values = indices.reshape(-1), grad.reshape(indices.size, *grad.shape[indices.ndim :])
    made = kernels.add_rows(values, flat, rows, by_freq)
    if 0 <= padding_idx < rows:
        made[padding_idx] = 0
    return made


@primitive(
    surface=0, tensors=("weight", "indices"), operator="embedding(weight, indices, padding_idx, scale_grad_by_freq, True)",
    samples="of nn.functional.embedding", costly=True,
)
def rows_at_sparsely(weight, indices, padding_idx, scale_grad_by_freq):
    """`rows_at` whose gradient is sparse: a row for each index, in their order."""


rows_at_sparsely.in_pieces("_k,...->...k")


rows_at_sparsely.shown_as(
    "EmbeddingBackward0", hides="weight_shape", sparse=lambda saved: True, weight_sym_argsize_0=lambda saved: saved["weight_shape"][0]
)
rows_at_sparsely.kernel(_rows_at)
rows_at_sparsely.shape(_rows_at_shape)


@rows_at_sparsely.vjp(indices=None)
def _rows_at_sparsely_vjp(grad, indices, padding_idx, scale_grad_by_freq, weight_shape):
    from .._sparse.arrays import coo

    host_only("embedding with sparse gradients", grad, indices)
    flat, rows = indices.reshape(-1), grad.reshape(-1, *weight_shape[1:])
    if padding_idx >= 0:
        kept = flat != padding_idx
        flat, rows = flat[kept], rows[kept]
    if scale_grad_by_freq and flat.numel():
        times = OPS["bincount"].function(flat)[flat].to(grad.dtype)
        rows = rows / times.reshape(-1, *[1] * (rows.ndim - 1))
    return coo(flat.long().reshape(1, -1), rows, weight_shape), None


@primitive(surface=0, tensors=("values", "indices"), samples="of nn.functional.embedding", public_name="index_add", cuda="moves.rows_added")
def rows_added(values, indices, rows, padding_idx, scale_grad_by_freq):
    """The transpose of `rows_at`: a table of `rows` rows in which the `values` of each index are added up."""


@rows_added.in_pieces
def _rows_added_pieces(asked):
    return "*k,*->_k" if asked["scale_grad_by_freq"] else "...k,...->_k"


@rows_added.kernel
def _rows_added(values, indices, rows, padding_idx, scale_grad_by_freq):
    return _added(values, indices, rows, padding_idx, scale_grad_by_freq)


@rows_added.shape
def _rows_added_shape(values, indices, rows, padding_idx, scale_grad_by_freq):
    return (rows, *values.shape[indices.ndim :]), values.dtype


@rows_added.vjp(indices=None)
def _rows_added_vjp(grad, indices, padding_idx, scale_grad_by_freq):
    back = rows_at.function(grad, indices, -1, False)
    factor = back.new_ones(indices.shape)
    if scale_grad_by_freq:
        factor = (1 / OPS["bincount"].function(indices.reshape(-1)).double()[indices]).to(back.dtype)
    if padding_idx >= 0:
        factor = factor.masked_fill(indices == padding_idx, 0)
    return back * factor.reshape(*indices.shape, *[1] * (back.ndim - indices.ndim)), None


@primitive(surface=0, tensors=("weight", "indices", "starts"), samples="of nn.functional.embedding_bag", public_name="embedding_bag")
def bags_of_rows(weight, indices, starts, scale_grad_by_freq):
    """The sum of the rows of `weight` that each bag ``indices[starts[i] : starts[i + 1]]`` names."""


bags_of_rows.in_pieces("_k,_,_->_k")


bags_of_rows.shown_as("EmbeddingBagBackward0")


@bags_of_rows.kernel
def _bags_of_rows(table, indices, starts, scale_grad_by_freq):
    return kernels.add_bags(table, indices, starts)


@bags_of_rows.shape
def _bags_of_rows_shape(weight, indices, starts, scale_grad_by_freq):
    return (starts.shape[0] - 1, weight.shape[1]), weight.dtype


@bags_of_rows.vjp(indices=None, starts=None)
def _bags_of_rows_vjp(grad, indices, starts, scale_grad_by_freq, weight_shape):
    each = rows_at.function(grad, bag_of_each.function(starts, indices.shape[0]), -1, False)
    return rows_added.function(each, indices, weight_shape[0], -1, scale_grad_by_freq), None, None


def _check_indices(name: str, input: Any) -> None:
    if not isinstance(input, Tensor) or input.dtype.name not in ("int64", "int32"):
        kind = f"torch.{dtypes.scalar_type(input.dtype)}Tensor" if isinstance(input, Tensor) else type(input).__name__
        raise RuntimeError(
            f"{name}: Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got {kind} "
            "instead; use .long()"
        )


def _of_one_dtype(input: Any, offsets: Any) -> tuple[Any, Any]:
    """Indices and offsets, of whose dtypes one may be too small: PyTorch promotes both, and looks at the dtype of that."""
    if not isinstance(input, Tensor) or not isinstance(offsets, Tensor) or input.dtype is offsets.dtype:
        return input, offsets
    together = dtypes.promote_types(input.dtype, offsets.dtype)
    return input.to(together), offsets.to(together)


def padding_from_front(name: str, padding_idx: Any, rows: int, error: type[Exception]) -> int:
    """`padding_idx` counted from the front, -1 for none. Raises: `error`, which PyTorch raises, outside the table."""
    if padding_idx is None:
        return -1
    padding_idx = need_int(name, "padding_idx", padding_idx)
    if padding_idx and not -rows <= padding_idx < rows:
        raise error(f"{name}: Padding_idx must be within num_embeddings, got {padding_idx} for {rows} rows")
    return padding_idx + rows if padding_idx < 0 else padding_idx


@primitive(
    surface=0, tensors=("weight", "indices"), samples="of nn.functional.embedding", public_name="embedding",
    cuda="moves.rows_within_norm",
)  # fmt: skip
def rows_within_norm(weight, indices, max_norm, norm_type):
    """The rows that `indices` name, ``(V, D), (n) -> (n, D)``; those whose norm exceeds `max_norm` are scaled down to it."""


rows_within_norm.not_differentiable = "tables are changed before they are read, without a history"
rows_within_norm.in_pieces("__,n->n_")
rows_within_norm.shape(lambda weight, indices, *_: ((indices.shape[0], weight.shape[1]), weight.dtype))


@rows_within_norm.kernel
def _rows_within_norm(table, at, max_norm, norm_type):
    kernels.check_indices(at, table.shape[0])
    rows = table[at]
    wide = widen(rows)
    norms = np.linalg.norm(wide, ord=norm_type, axis=1)  # powers of a large order are infinite, or 0
    large = norms > max_norm
    # The slack is PyTorch's, and keeps a row that was scaled from being scaled again.
    rows[large] = (wide[large] * (max_norm / (norms[large] + 1e-7))[:, None]).astype(table.dtype)
    return rows


def _renormalize(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale the rows of `weight` that `indices` name and whose norm exceeds `max_norm` down to it, in place."""
    for name, value in (("max_norm", max_norm), ("norm_type", norm_type)):
        if isinstance(value, Tensor):
            raise TypeError(f"embedding_renorm_(): argument '{name}' must be float, not Tensor")
        need_number("embedding_renorm_", name, value)
    at, table = indices.reshape(-1), weight.detach()
    if at.numel():
        # A row that is named twice is written twice, with the same numbers. Limits may be integers of more than 64 bits.
        table[at] = rows_within_norm.function(table, at, float(max_norm), float(norm_type))


@composite(namespace=F, samples="i(5, 2, 3), x(5, 4); i(5, 2, 3), k(5, 4), 1, scale_grad_by_freq=True")
def embedding(
    input, weight, padding_idx: int | None = None, max_norm: float | None = None, norm_type=2.0, scale_grad_by_freq=False,
    sparse=False
):
    """The rows of `weight` that `input` names: ``(*) , (V, D) -> (*, D)``.

    Args:
        input: int32 or int64 indices into the rows.
        padding_idx: a row whose gradient stays zero; counts from the back when negative.
        max_norm: rows of a larger norm of order `norm_type` are first scaled down to it, in place.
        scale_grad_by_freq: divide a row's gradient by the number of times it is named.
        sparse: whether the gradient of the table is a sparse tensor, which has the named rows alone.
    Raises: IndexError for an index outside the table; RuntimeError for indices of another dtype.
    """
    if not isinstance(input, Tensor):
        raise TypeError(f"embedding(): argument 'indices' (position 2) must be Tensor, not {type(input).__name__}")
    if weight.ndim != 2:
        raise RuntimeError(f"embedding: 'weight' must be 2-D\n{describe(weight=weight)}")
    padding = padding_from_front("embedding", padding_idx, weight.shape[0], AssertionError)
    need_bools("embedding", scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)
    _check_indices("embedding", input)
    if max_norm is not None:
        _renormalize(weight, input, max_norm, norm_type)
    return (rows_at_sparsely if sparse else rows_at).function(weight, input, padding, scale_grad_by_freq)


@embedding.forwards
def _embedding_of_rows(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse):
    """A table that stays as it is."""
    if max_norm is not None or sparse or scale_grad_by_freq.__class__ is not bool or weight._array.ndim != 2:
        return None
    padding = -1 if padding_idx is None else padding_from_front("embedding", padding_idx, weight._array.shape[0], ValueError)
    return rows_at.answer(weight, input, padding, scale_grad_by_freq)


@rows_at.plan
def _rows_of_table(table, at, padding_idx, scale_grad_by_freq):
    return kernels.take_rows(table, at) if at.dtype is INT64 else None


def _package_embedding() -> None:
    def embedding(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
        """The rows of `weight` that `indices` name: ``(V, D), (*) -> (*, D)``.

        Arguments as for `nn.functional.embedding`, here with the table first; a `padding_idx` of -1 means none.
        """
        if weight.ndim != 2:
            raise RuntimeError(f"embedding: 'weight' must be 2-D\n{describe(weight=weight)}")
        need_bools("embedding", scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)
        _check_indices("embedding", indices)
        padding_idx = need_int("embedding", "padding_idx", padding_idx)
        return (rows_at_sparsely if sparse else rows_at).function(weight, indices, padding_idx, scale_grad_by_freq)

    composite(surface=FUNCTION, samples="x(5, 4), i(5, 2, 3); k(5, 4), i(5, 2, 3), 1")(embedding)


_package_embedding()


# -- bags ----------------------------------------------------------------------------------------------------------------


def _check_bags(input: Tensor, offsets: Any, include_last_offset: bool) -> None:
    """Raise ValueError or RuntimeError for indices and offsets whose shapes or dtypes do not go together."""
    if input.ndim == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length "
                f"sequences. However, found offsets of type {type(offsets)}"
            )
        return
    if input.ndim != 1:
        raise ValueError(f"embedding_bag: input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}")
    if offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None: embedding_bag of one-dimensional input")
    if offsets.ndim != 1:
        raise ValueError(f"offsets has to be a 1D Tensor: embedding_bag's, but it has shape {tuple(offsets.shape)}")
    _check_indices("embedding_bag offsets", offsets)
    if include_last_offset and not offsets.shape[0]:
        raise RuntimeError("embedding_bag: include_last_offset: number of offset should be at least 1")


@primitive(surface=0, tensors=("input", "offsets"), samples="of nn.functional.embedding_bag", public_name="embedding_bag")
def starts_of_bags(input, offsets=None, rows=0, include_last_offset=False):
    """Where each bag of the indices `input` into `rows` rows begins and the last one ends, ``(B + 1)``.

    Raises: RuntimeError for offsets that do not rise from 0, and for an index outside the table.
    """


starts_of_bags.not_differentiable = "its result is places"
starts_of_bags.in_pieces(lambda asked: [])


@starts_of_bags.shape
def _starts_of_bags_shape(input, offsets, rows, include_last_offset):
    return (_count_bags(input, offsets, include_last_offset) + 1,), dtypes.int64


def _count_bags(input: Any, offsets: Any, include_last_offset: bool) -> int:
    return input.shape[0] if input.ndim == 2 else offsets.shape[0] - bool(include_last_offset)


@starts_of_bags.kernel
def _starts_of_bags(at, offsets, rows, include_last_offset):
    count = _count_bags(at, offsets, include_last_offset)
    if offsets is None:
        starts = _equal_bags(*at.shape) if at.shape[1] else np.zeros(count + 1, np.int64)
    elif len(offsets):
        starts = _looked_at(offsets, at.shape[0], include_last_offset)
    else:
        starts = np.zeros(1, np.int64)
    at = at.reshape(-1)[: starts[-1]]
    if at.size and not scatter.in_range(at, 0, rows):
        wrong = int(np.argmax((at < 0) | (at >= rows)))
        raise RuntimeError(
            f"Index {wrong} of input takes value {at[wrong]} which is not in the valid range [0, {rows}) of embedding_bag"
        )
    return starts


def _looked_at(offsets: np.ndarray, length: int, include_last_offset: bool) -> np.ndarray:
    """Starts from `offsets` into so many indices. Raises: RuntimeError."""
    if offsets[0] != 0:
        raise RuntimeError(
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. "
            f"However, got {offsets[0]}"
        )
    if offsets[-1] > length:
        raise RuntimeError(
            f"embedding_bag: offsets[-1] can not be greater than input's length {length} but got offsets[-1] of {offsets[-1]}"
        )
    falls = offsets[1:] < offsets[:-1]
    if falls.any():
        at = int(np.flatnonzero(falls)[0]) + 1
        raise RuntimeError(
            f"embedding_bag: offsets must not decrease, got offsets[{at}] of {offsets[at]} after offsets[{at - 1}] of {offsets[at - 1]}"
        )
    return (offsets if include_last_offset else np.append(offsets, length)).astype(np.int64, copy=False)


@primitive(
    surface=0, tensors=("weight", "indices", "starts"), samples="of nn.functional.embedding_bag", public_name="embedding_bag",
)  # fmt: skip
def largest_in_bags(weight, indices, starts):
    """The row of the largest of each column in each bag, ``(V, D), (n), (B + 1) -> (B, D)``; -1 of an empty bag."""


largest_in_bags.not_differentiable = "its result is places"
largest_in_bags.in_pieces("_k,_,_->_k")
largest_in_bags.kernel(kernels.largest_of_bags)
largest_in_bags.shape(lambda weight, indices, starts: ((starts.shape[0] - 1, weight.shape[1]), dtypes.int64))


@primitive(surface=0, samples="of nn.functional.embedding_bag", public_name="embedding_bag")
def bag_of_each(starts, length):
    """The number of the bag of each of `length` indices."""


bag_of_each.not_differentiable = "its result is places"
bag_of_each.in_pieces(lambda asked: [])
bag_of_each.kernel(lambda starts, length: np.repeat(np.arange(len(starts) - 1), np.diff(starts)))
bag_of_each.shape(lambda starts, length: ((length,), dtypes.int64))


@primitive(surface=0, samples="of nn.functional.embedding_bag", public_name="embedding_bag")
def sizes_of_bags(starts, dtype):
    """What the sums of bags are divided by for their means, ``(B + 1) -> (B, 1)``: at least 1."""


sizes_of_bags.not_differentiable = "they are numbers of indices"
sizes_of_bags.in_pieces(lambda asked: [])
sizes_of_bags.kernel(lambda starts, dtype: np.maximum(np.diff(starts), 1).astype(dtype.numpy)[:, None])
sizes_of_bags.shape(lambda starts, dtype: ((starts.shape[0] - 1, 1), dtype))


@composite(
    namespace=F,
    samples=(
        "i(5, 2, 3), x(5, 4); i(5, 6), x(5, 4), fb.tensor([0, 2, 5]), mode='sum', per_sample_weights=x(6); "
        "i(5, 2, 3), x(5, 4), mode='max'"
    ),
)
def embedding_bag(
    input, weight, offsets=None, max_norm: float | None = None, norm_type: float = 2, scale_grad_by_freq=False, mode="mean", sparse=False,
    per_sample_weights=None, include_last_offset=False, padding_idx: int | None = None,
):  # fmt: skip
    """The sum, mean or largest of the rows of `weight` in each bag of indices: ``(B, N), (V, D) -> (B, D)``.

    Args:
        input: indices ``(B, N)``, a bag a row; or ``(N)``, where bags begin at `offsets`.
        offsets: ``(B)``, where each bag begins in a vector `input`, the first at 0.
        mode: 'sum', 'mean' or 'max'; an empty bag gives zeros.
        per_sample_weights: of the shape of `input`, with mode 'sum': what each row is multiplied by.
        include_last_offset: `offsets` ends with where the last bag ends.
        padding_idx: indices that do not count.
        max_norm, norm_type, scale_grad_by_freq, sparse: as for `nn.functional.embedding`.
    Raises: ValueError, RuntimeError for operands that do not go together, and for an index outside the table.

    >>> F.embedding_bag(fb.tensor([0, 1, 2]), fb.eye(3), fb.tensor([0, 2]), mode="sum")
    tensor([[1., 1., 0.],
            [0., 0., 1.]])
    """
    if not isinstance(input, Tensor) or not isinstance(weight, Tensor):
        raise TypeError("embedding_bag(): arguments 'input' and 'weight' must be Tensors")
    # The order of the first two arguments was once the other way round.
    if weight.dtype.category < dtypes.FLOATING and input.dtype.is_floating_point:
        input, weight = weight, input
    host_only("embedding_bag", input, weight)
    _check_bag_weights(input, per_sample_weights, mode)
    if mode not in _ALONG:
        raise ValueError(f"embedding_bag: mode has to be one of sum, mean or max, got {mode!r}")
    input, offsets = _of_one_dtype(input, offsets)
    _check_indices("embedding_bag", input)
    if weight.ndim != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}\n{describe(weight=weight)}")
    if not weight.dtype.is_floating_point:
        kind = f"torch.{dtypes.scalar_type(weight.dtype)}Tensor"
        raise RuntimeError(
            "Expected tensor for argument #1 'weight' to have one of the following scalar types: Half, BFloat16, Float, Double; but got "
            f"{kind} instead (while checking arguments for embedding_bag)\n{describe(weight=weight)}"
        )
    if mode == "max" and scale_grad_by_freq:
        raise ValueError("embedding_bag: max mode does not support scaling the gradient by the frequency")
    if mode == "max" and sparse:
        raise ValueError("embedding_bag: max mode does not support sparse weights")
    if max_norm is None and not sparse and _dispatch.records_history(weight, per_sample_weights):
        given = weight, input, offsets, per_sample_weights
        return bags_of_tensors.function(*given, scale_grad_by_freq, mode, include_last_offset, padding_idx)
    _check_bags(input, offsets, include_last_offset)
    rows = weight.shape[0]
    if weight._lacks_values or input._lacks_values:
        given = weight, input, offsets, per_sample_weights
        return bags_of_tensors.function(*given, scale_grad_by_freq, mode, include_last_offset, padding_idx)
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise RuntimeError(
            f"embedding_bag: padding_idx must be within the number of embeddings, {-rows} through {rows - 1}, but got {padding_idx}"
        )
    starts = starts_of_bags.function(input, offsets, rows, include_last_offset)
    padding = padding_from_front("embedding_bag", padding_idx, rows, RuntimeError)
    if per_sample_weights is not None and per_sample_weights.dtype is not weight.dtype:
        kinds = [f"torch.{dtypes.scalar_type(x.dtype)}Tensor" for x in (weight, per_sample_weights)]
        raise RuntimeError(
            "embedding_bag: Expected tensor for argument #1 'weight' to have the same type as tensor for argument #1 "
            f"'per_sample_weights'; but type {kinds[0]} does not equal {kinds[1]}"
        )
    indices = input.reshape(-1) if input.ndim == 2 else input[: int(starts[-1])]
    samples = None if per_sample_weights is None else per_sample_weights.reshape(-1)[: indices.shape[0]]
    if padding >= 0:
        kept = (indices != padding).nonzero().squeeze(1)
        indices, starts = indices[kept], OPS["searchsorted"].function(kept, starts)
        samples = None if samples is None else samples[kept]
    if max_norm is not None:
        _renormalize(weight, indices, max_norm, norm_type)
    if mode == "max" and indices.shape[0]:
        found = largest_in_bags.function(weight.detach(), indices, starts)
        return weight.gather(0, found) if starts.diff().all() else weight.gather(0, found.clamp(min=0)).where(found >= 0, 0)
    if samples is None and not (sparse and weight.requires_grad):
        made = bags_of_rows.function(weight, indices, starts, scale_grad_by_freq)
    else:
        picked = (rows_at_sparsely if sparse else rows_at).function(weight, indices, -1, scale_grad_by_freq)
        picked = picked if samples is None else picked * samples.unsqueeze(1)
        made = rows_added.function(picked, bag_of_each.function(starts, indices.shape[0]), starts.shape[0] - 1, -1, False)
    return made / sizes_of_bags.function(starts, made.dtype) if mode == "mean" else made


@embedding_bag.exported
def _embedding_bag_by_number(
    run, input, weight, offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx
):
    if max_norm is not None or mode not in _ALONG:
        return NotImplemented
    _check_bags(input, offsets, include_last_offset)
    if input.ndim == 2:
        offsets = _derive.public("", "arange")(0, input.numel(), input.shape[1], dtype=input.dtype, device=input.device)
        input = input.reshape(-1)
        per_sample_weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)
    number = BAG_MODES.index(mode)
    given = scale_grad_by_freq, number, sparse, per_sample_weights, include_last_offset, padding_idx
    return run("embedding_bag.padding_idx", weight, input, offsets, *given)[0]


@composite(
    surface=0, reads_parts=True,
    samples="x(5, 4), i(5, 6), fb.tensor([0, 2, 5]); x(5, 4), i(5, 6), fb.tensor([0, 2, 5]), False, 2", costly=True,
)
def _embedding_bag(
    weight, indices, offsets, scale_grad_by_freq=False, mode: int = 0, sparse=False, per_sample_weights=None, include_last_offset=False,
    padding_idx: int = -1,
):  # fmt: skip
    """`nn.functional.embedding_bag`, where `mode` is 0, 1 or 2 for "sum", "mean" or "max", and -1 no `padding_idx`.

    Returns: the bags; the bag of each index; how many indices that count each bag has; and for "max" the row that each element
        comes from, else the same as the third. Sums need no sizes, which are 0, and without `padding_idx` those that are not of
        float64 no bags, of which there are none.
    """
    if mode not in (0, 1, 2):
        raise RuntimeError(f"embedding_bag: mode must be 0 (sum), 1 (mean) or 2 (max), got {mode!r}")
    padding = None if padding_idx < 0 else padding_idx
    given = scale_grad_by_freq, BAG_MODES[mode], sparse, per_sample_weights, include_last_offset, padding
    bags = embedding_bag.function(indices, weight, offsets, None, 2.0, *given)
    starts = offsets[:-1] if include_last_offset else offsets
    arange, ones_like, zeros_like = (_derive.public("", name) for name in ("arange", "ones_like", "zeros_like"))
    none = zeros_like(starts, dtype=indices.dtype)
    if mode == 0 and padding is None and weight.dtype is not dtypes.float64:
        return bags, indices.new_empty(0), none, none.clone()
    places = arange(indices.numel(), dtype=indices.dtype, device=indices.device)
    bag_of = OPS["searchsorted"].function(starts.contiguous(), places, right=True).to(indices.dtype) - 1
    if mode == 0:
        return bags, bag_of, none, none.clone()
    counted = ones_like(indices) if padding is None else (indices != padding).to(indices.dtype)
    sizes = none.index_add_(0, bag_of, counted)
    if mode != 2:
        return bags, bag_of, sizes, sizes
    return bags, bag_of, sizes, _rows_of_maxima(bags.detach(), weight.detach(), indices, bag_of, padding)


@composite(
    surface=0, reads_parts=True,
    samples="x(5, 4), i(5, 6), fb.tensor([0, 2, 5]); x(5, 4), i(5, 6), fb.tensor([0, 2, 5]), False, 2", costly=True,
)
def _embedding_bag_forward_only(
    weight, indices, offsets, scale_grad_by_freq=False, mode: int = 0, sparse=False, per_sample_weights=None, include_last_offset=False,
    padding_idx: int = -1,
):  # fmt: skip
    """`_embedding_bag` for what is not differentiated. Sums give a size of 0 for each of `offsets`, the end among them."""
    given = scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx
    bags, bag_of, sizes, rows = _embedding_bag.function(weight, indices, offsets, *given)
    if mode == 0 and include_last_offset:
        sizes, rows = (_derive.public("", "zeros_like")(offsets, dtype=indices.dtype) for _ in range(2))
    return bags, bag_of, sizes, rows


def _rows_of_maxima(bags: Tensor, weight: Tensor, indices: Tensor, bag_of: Tensor, padding: int | None) -> Tensor:
    """For each element of `bags` the row of `weight` that it comes from: the first in its bag, 0 for empty bags."""
    rows = _derive.public("", "zeros_like")(bags, dtype=indices.dtype)
    if bags._lacks_values:
        return rows
    for place in range(indices.numel() - 1, -1, -1):
        row, bag = int(indices[place]), int(bag_of[place])
        if row != padding:
            rows[bag] = OPS["where"].function(weight[row] == bags[bag], row, rows[bag])
    return rows


# Graphs are for other indices and offsets than those that they were recorded with: there kernels look at them.


@primitive(
    surface=0, tensors=("weight", "input", "offsets", "samples"), samples="of nn.functional.embedding_bag", public_name="embedding_bag",
)  # fmt: skip
def bags_of_tensors(
    weight, input, offsets=None, samples=None, scale_grad_by_freq=False, mode="mean", include_last_offset=False,
    padding_idx: int | None = None,
):  # fmt: skip
    """`embedding_bag` as one node, whichever indices there are."""


@bags_of_tensors.kernel
def _bags_of_tensors(table, at, offsets, samples, scale_grad_by_freq, mode, include_last_offset, padding_idx):
    others = None if offsets is None else wrap(offsets), None if samples is None else wrap(samples)
    before = _state.set_grad(False)
    try:
        return _bags_of(wrap(table), wrap(at), *others, scale_grad_by_freq, mode, include_last_offset, padding_idx)._array
    finally:
        _state.set_grad(before)


def _bags_of(table: Tensor, at: Any, offsets: Any, samples: Any, by_freq: bool, mode: str, last: bool, padding_idx: Any) -> Tensor:
    return embedding_bag.run(at, table, offsets, None, 2, by_freq, mode, False, samples, last, padding_idx)


@bags_of_tensors.shape
def _bags_of_tensors_shape(weight, input, offsets, samples, scale_grad_by_freq, mode, include_last_offset, padding_idx):
    return (_count_bags(input, offsets, include_last_offset), weight.shape[1]), weight.dtype


@bags_of_tensors.vjp(input=None, offsets=None)
def _bags_of_tensors_vjp(grad, weight, input, offsets, samples, scale_grad_by_freq, mode, include_last_offset, padding_idx):
    given = grad, weight, input, offsets, samples, scale_grad_by_freq, mode, include_last_offset, padding_idx
    return lambda: gradient_of_bags(*given, False), None, None, lambda: gradient_of_bags(*given, True)


@primitive(surface=0, tensors=("grad_bags", "weight", "input", "offsets", "samples"), samples="of nn.functional.embedding_bag")
def gradient_of_bags(
    grad_bags, weight, input, offsets=None, samples=None, scale_grad_by_freq=False, mode="mean", include_last_offset=False,
    padding_idx: int | None = None, by_samples=False,
):  # fmt: skip
    """The gradient of `bags_of_tensors` by its table, or by what each row is multiplied by."""


@gradient_of_bags.kernel
def _gradient_of_bags(grad_bags, table, at, offsets, samples, scale_grad_by_freq, mode, include_last_offset, padding_idx, by_samples):
    def bags(rows: Tensor, factors: Any) -> Tensor:
        starts = None if offsets is None else wrap(offsets)
        return _bags_of(rows, wrap(at), starts, factors, scale_grad_by_freq, mode, include_last_offset, padding_idx)

    given = wrap(table), None if samples is None else wrap(samples)
    before = _state.set_grad(False)                   # of what is computed here nothing is differentiated again
    try:
        found = gradients_of(bags, wrap(grad_bags), given, (not by_samples, by_samples))[int(by_samples)]
    finally:
        _state.set_grad(before)
    return found._array


@gradient_of_bags.shape
def _gradient_of_bags_shape(grad_bags, weight, input, offsets, samples, *rest):
    by_samples = rest[-1]
    return (samples.shape, samples.dtype) if by_samples else (weight.shape, weight.dtype)


@gradient_of_bags.vjp(input=None, offsets=None)
def _gradient_of_bags_vjp(
    grad, grad_bags, weight, input, offsets, samples, scale_grad_by_freq, mode, include_last_offset, padding_idx, by_samples
):  # fmt: skip
    if mode == "max" or scale_grad_by_freq:
        what = "of mode='max'" if mode == "max" else "with scale_grad_by_freq=True"
        raise NotImplementedError(f"embedding_bag: its second derivative {what} is not recorded as a graph; index the table instead")
    # Bags are linear in the table and in what each row is multiplied by, so what is differentiated is linear in all but these places.
    of_bags = (scale_grad_by_freq, mode, include_last_offset, padding_idx)
    if by_samples:
        return (
            lambda: bags_of_tensors(weight, input, offsets, grad, *of_bags),
            lambda: gradient_of_bags(grad_bags, weight, input, offsets, grad, *of_bags, False), None, None, None,
        )  # fmt: skip
    return (
        lambda: bags_of_tensors(grad, input, offsets, samples, *of_bags), None, None, None,
        lambda: gradient_of_bags(grad_bags, grad, input, offsets, samples, *of_bags, True),
    )  # fmt: skip


@embedding_bag.in_pieces
def _embedding_bag_pieces(asked):
    # Rows whose norm is bounded are changed first, as a whole.
    return [asked.way({asked.names.index("weight"): 1}, 1)] if asked["max_norm"] is None else []


@embedding_bag.plan(tensors=("weight",), beside=("input",), dtypes="fd")
def _planned_bags(
    at, table, offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx
):  # fmt: skip
    """The bags of a few indices, if none is empty: a row each, or from one offset to the next."""
    if max_norm is not None or per_sample_weights is not None or padding_idx is not None:
        return None
    if sparse or include_last_offset or scale_grad_by_freq:
        return None
    if at.dtype is not INT64 or table.ndim != 2 or not at.size:
        return None
    if mode not in _ALONG:
        return None
    if at.size > 64:
        return _many_bags(table, at, offsets, mode)
    if has_negative(at):
        return None
    picked = table.take(at, 0)
    if at.ndim == 2 and offsets is None:
        made = _ALONG[mode].reduce(picked, 1)
        count: Any = at.shape[1]
    else:
        starts = offsets._array
        bounds = [*starts.tolist(), at.size]
        if at.ndim != 1 or starts.dtype is not INT64 or starts.ndim != 1 or bounds[0] or mode == "max":
            return None
        sizes = [b - a for a, b in itertools.pairwise(bounds)]
        if min(sizes) < 1:
            return None
        made = np.add.reduceat(picked, starts, 0)
        count = np.array(sizes, table.dtype)[:, None] if mode == "mean" else 1
    return np.divide(made, count, made) if mode == "mean" else made


def _many_bags(table, at, offsets, mode):
    """The sums or means of bags, of which offsets may make some empty; None where something is out of range."""
    if at.ndim == 2 and offsets is None:
        starts = _equal_bags(*at.shape)
    elif at.ndim == 1 and offsets is not None:
        starts = np.append(offsets._array, at.size)
        if offsets._array.ndim != 1 or starts.dtype is not INT64 or starts.size < 2 or starts[0] or np.diff(starts).min() < 0:
            return None
    else:
        return None
    at = at.reshape(-1)
    if mode == "max" or not scatter.in_range(at, 0, len(table)):
        return None
    made = kernels.add_bags(table, at, starts)
    return np.divide(made, np.maximum(np.diff(starts), 1).astype(made.dtype)[:, None], made) if mode == "mean" else made


@embedding_bag.forwards
def _bags_of_equal_length(
    input, weight, offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx
):  # fmt: skip
    """Sums of the bags that are the rows of a matrix, of a table that stays as it is."""
    if max_norm is not None or per_sample_weights is not None or padding_idx is not None or mode != "sum" or offsets is not None or sparse:
        return None
    at = input._array
    if weight._node is None or at.dtype is not INT64 or at.ndim != 2 or not at.size:
        return None
    return bags_of_rows.answer(weight, input.reshape(-1), wrap(_equal_bags(*at.shape)), scale_grad_by_freq)


@bags_of_rows.plan
def _added_bags(table, at, starts, scale_grad_by_freq):
    return kernels.add_bags(table, at, starts) if table.ndim == 2 and table.dtype.char in "fd" else None


_ALONG = {"sum": np.add, "mean": np.add, "max": np.maximum}
BAG_MODES = tuple(_ALONG)                             # as operators number them


@functools.lru_cache(maxsize=64)
def _equal_bags(count: int, length: int) -> Any:
    """Where `count` bags of `length` > 0 begin, and the last one ends."""
    return np.arange(0, count * length + 1, length)


def _check_bag_weights(input: Tensor, weights: Any, mode: str) -> None:
    if weights is None:
        return
    if weights.shape != input.shape:
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({weights.shape}) is not None, then it must have the same shape as the input "
            f"({input.shape})"
        )
    if mode != "sum":
        raise NotImplementedError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' "
            f"(got mode={mode!r})."
        )


# -- one-hot -------------------------------------------------------------------------------------------------------------


@composite(namespace=F, samples="i(4, 2, 3), 4; i(4, 5), 6", named_too={"tensor": ("input", *NUMPY_NAMES["input"])}, scripted_as="one_hot")
def one_hot(tensor, num_classes=-1):
    """Zeros with a one at each class: ``(*) -> (*, num_classes)``, int64; by default one more class than the largest.

    Raises: RuntimeError for another dtype than int64 and for a class outside ``[0, num_classes)``.

    >>> F.one_hot(fb.tensor([0, 2]))
    tensor([[1, 0, 0],
            [0, 0, 1]])
    """
    if tensor.dtype is not dtypes.int64:
        raise RuntimeError(f"one_hot is only applicable to index tensor of type LongTensor, got {tensor.dtype}")
    if need_int("one_hot", "num_classes", num_classes) >= 1 << 63:
        raise ValueError(f"one_hot(): argument 'num_classes' is {num_classes}: Overflow when unpacking long long")
    if tensor.is_cuda:
        if num_classes == -1:
            num_classes = int(tensor.max().item()) + 1
        return tensor.new_zeros((*tensor.shape, num_classes)).scatter(-1, tensor.unsqueeze(-1), 1)
    if tensor._lacks_values and num_classes > 0:      # a graph may be recorded of it
        classes = _derive.public("", "arange")(num_classes, device=tensor.device)
        return (tensor.contiguous().unsqueeze(-1) == classes).to(dtypes.int64)
    if tensor._lacks_values:
        raise ShapeDependsOnValues("one_hot: the values of the classes decide the shape, and a meta tensor has none; give num_classes")
    if not tensor.numel():
        if num_classes <= 0:
            raise RuntimeError(f"one_hot: Can not infer total number of classes from empty tensor; give num_classes > 0, got {num_classes}")
        return tensor.new_zeros((*tensor.shape, num_classes))
    least, most = (int(x) for x in OPS["aminmax"].function(tensor))
    if least < 0:
        raise RuntimeError(f"one_hot: Class values must be non-negative, got {least}")
    if num_classes == -1:
        num_classes = most + 1
    elif num_classes < 1:
        raise RuntimeError(f"one_hot: num_classes should be positive, got {num_classes}")
    elif most >= num_classes:
        raise RuntimeError(f"one_hot: Class values must be smaller than num_classes, got {most} for {num_classes} classes")
    return (tensor.contiguous().unsqueeze(-1) == arange(num_classes)).to(dtypes.int64)


one_hot.in_pieces("...->..._")


@one_hot.plan(discrete=True)
def _planned_one_hot(at, num_classes):
    """A few classes of which none is negative."""
    if at.dtype is not INT64 or at.size > 64 or has_negative(at):
        return None
    if num_classes == -1:
        num_classes = max(at.reshape(-1).tolist()) + 1
    rows = _hot_rows(num_classes) if num_classes.__class__ is int and 0 < num_classes <= 64 else None
    return None if rows is None else rows.take(at, 0)


@one_hot.batch
def _one_hot_batch(level: Any, op: Any, args: Any) -> Any:
    return leading(level, op, args) if args[1] > 0 else NotImplemented


@functools.lru_cache(maxsize=64)
def _hot_rows(count: int) -> Any:
    """The row of each of `count` classes."""
    return np.eye(count, dtype=np.int64)
