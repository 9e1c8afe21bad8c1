"""Distinct elements, places in sorted sequences, and histograms."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from flambeau_kernels import hot_calls
from flambeau_kernels.cpu.indexing import scatter
from flambeau_kernels.cpu.reductions.along import ALL, Along
from flambeau_kernels.cpu.reductions.softmax import widen
from flambeau_kernels.cpu.sorting import counting
from flambeau_kernels.cpu.sorting import sort as kernel

from ... import _state, dtypes
from ..._arrays import MetaArray
from ..._errors import ShapeCannotBeKnown
from ..._symbolic import fresh, sym_max
from ...tensor import Tensor, wrap, wrap_dim
from .._batching import run
from .._results import return_type
from .._spec import (
    FUNCTION,
    METHOD,
    OUT,
    check_room,
    composite,
    host_only,
    need_int,
    primitive,
    without_derivative,
)
from ..creation.from_values import tensor

Histogram = return_type("histogram", ("hist", "bin_edges"))
HistogramOfPoints = return_type("histogramdd", ("hist", "bin_edges"))


def _needs_values(name: str, *tensors: Any) -> None:
    if any(isinstance(t, Tensor) and type(t._array) is MetaArray for t in tensors):
        raise ShapeCannotBeKnown(f"{name}: the shape of the result depends on values, which a meta tensor has none of")


# -- distinct elements -------------------------------------------------------------------------------------------------------


def _check_unique(input, consecutive, dim):
    if fresh.size is None:
        _needs_values("unique", input)
    if input.is_complex():
        raise NotImplementedError(f'"unique" not implemented for {input.dtype}: complex values have no order')
    if dim is None:
        return input, consecutive, None
    d = wrap_dim(dim, input.ndim)
    others = [n for k, n in enumerate(input.shape) if k != d]
    if input.ndim and 0 in others:
        raise RuntimeError(
            f"unique: There are 0 sized dimensions other than dim {d} in shape {tuple(input.shape)}, so unique cannot be applied"
        )
    return input, consecutive, d


@primitive(surface=0, check=_check_unique, samples="of unique", dynamic_shape=True)
def distinct(input, consecutive, dim):
    """The distinct elements (or slices along `dim`), the place of each element among them, and how often each occurs.

    With `consecutive` only equal neighbours are merged; otherwise the distinct ones come in ascending order.
    """


distinct.not_differentiable = "which elements are distinct jumps"


@distinct.shape
def _distinct_shape(input, consecutive, dim):
    if fresh.size is None:
        return _needs_values("unique", input)             # raises, or None: values tell
    flat = dim is None or not input.ndim
    at: Any = dim
    most = input.numel() if flat else input.shape[at]
    count = fresh.size(most)
    places = (tuple(input.shape) if flat else (most,)), dtypes.int64
    counts = (count,), dtypes.int64
    if flat:
        return [((count,), input.dtype), places, counts]
    # Slices lie one after the other.
    shape = (*input.shape[:at], count, *input.shape[at + 1 :])
    steps, step = {}, input.dtype.itemsize
    for d in (*(d for d in reversed(range(input.ndim)) if d != at), at):
        steps[d], step = step, step * sym_max(shape[d], 1)
    return [(shape, input.dtype, tuple(steps[d] for d in range(input.ndim))), places, counts]


@distinct.kernel
def _distinct(a, consecutive, dim):
    flat = dim is None or not a.ndim
    lines = a.reshape(-1) if flat else np.moveaxis(a, dim, 0)  # pyright: ignore[reportArgumentType]  # the arguments rule the other types out
    rows = lines if flat else np.ascontiguousarray(lines).reshape(lines.shape[0], math.prod(lines.shape[1:]))
    if flat and not consecutive:
        values, inverse, counts = kernel.distinct(lines)
        return values, inverse.reshape(a.shape), counts.astype(np.int64, copy=False)
    if consecutive:
        first, run, counts = kernel.runs(rows)
        inverse = run
        picked = first
    else:
        order = kernel.order_rows(rows)
        first, run, counts = kernel.runs(rows[order])
        inverse = np.empty(len(order), np.int64)
        inverse[order] = run
        picked = order[first]
    # Slices are gathered in C order and put in their place as a view, as PyTorch does.
    values = lines[picked] if flat else np.moveaxis(np.ascontiguousarray(lines[picked]), 0, dim)  # pyright: ignore[reportArgumentType]  # the arguments rule the other types out
    return values, inverse.reshape(a.shape if flat else -1), counts.astype(np.int64)


def _distinct_results(input: Tensor, consecutive: bool, return_inverse: bool, return_counts: bool, dim: Any) -> Any:
    found = distinct.function(input.detach(), consecutive, dim)
    without_derivative("unique_consecutive" if consecutive else "_unique2" if dim is None else "unique_dim", found[0], input)
    kept = tuple(x for x, wanted in zip(found, (True, return_inverse, return_counts), strict=True) if wanted)
    return kept if len(kept) > 1 else kept[0]  # pyright: ignore[reportGeneralTypeIssues]  # the arguments rule the other types out


@composite(
    surface=FUNCTION | METHOD, numpy_names=False,
    samples="i(4, 2, 5); i(4, 6), True, True, True; i(2, 4, 2), dim=0",
    dynamic_shape=True,
)
def unique(input, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None):
    """The distinct elements in ascending order; with `dim`, the distinct slices along it.

    They are `sorted` whether that is set or not. Every nan is distinct.
    Returns: the elements; with `return_inverse` also the place of each element of `input` among them, with
        `return_counts` also how often each occurs.

    >>> fb.unique(fb.tensor([3, 1, 3]), return_inverse=True, return_counts=True)
    (tensor([1, 3]), tensor([1, 0, 1]), tensor([1, 2]))
    """
    return _distinct_results(input, False, return_inverse, return_counts, dim)


_SORTED = Along("ordered", False, True, True, most_along=96)


def _first_of_runs(a: np.ndarray, with_counts: bool) -> Any:
    """The first of each run of equal neighbours in a vector, and how long the runs are."""
    if not with_counts:
        return kernel.first_of_runs(a, True)
    first = kernel.first_of_runs(a, False)
    counts = np.empty(first.size, np.int64)
    np.subtract(first[1:], first[:-1], counts[:-1])
    counts[-1] = a.size - first[-1]
    return a[first], counts


@unique.plan(rows=True)
def _planned_unique(a, sorted, return_inverse, return_counts, dim):
    if dim is not None or return_counts.__class__ is not bool:
        return None
    found = _SORTED(a.reshape(-1), 0)
    if found is None:
        return None
    if return_inverse is False:
        return _first_of_runs(found[0], return_counts)
    values, order = found
    first = kernel.first_of_runs(values, False)
    run, inverse = np.zeros(a.size, np.int64), np.empty(a.size, np.int64)
    run[first[1:]] = 1
    inverse[order] = np.add.accumulate(run)
    made = values[first], inverse.reshape(a.shape)
    return (*made, np.diff(first, append=a.size)) if return_counts else made


@composite(  # the operator of this name gives three tensors in any case
    surface=FUNCTION | METHOD, numpy_names=False, operator="",
    samples="i(2, 7); i(2, 7), True, True; i(2, 4, 2), dim=0", dynamic_shape=True,
)  # fmt: skip
def unique_consecutive(input, return_inverse=False, return_counts=False, dim: int | None = None):
    """`input` with each run of equal neighbours replaced by one of them; results as of `unique`."""
    return _distinct_results(input, True, return_inverse, return_counts, dim)


@unique_consecutive.plan(rows=True, dtypes="fdlib")
def _runs(a, return_inverse, return_counts, dim):
    if dim is not None or return_inverse is not False or return_counts.__class__ is not bool or not a.size:
        return None
    return _first_of_runs(a.reshape(-1), return_counts)


# -- places in sorted sequences ------------------------------------------------------------------------------------------------


def _check_search(name: str, sequence: Tensor, values: Any, sorter: Any) -> None:
    for t in (sequence, values):
        if isinstance(t, Tensor) and t.is_complex():
            raise NotImplementedError(f'"{name}" not implemented for {t.dtype}')
    if sequence.dtype is dtypes.bool and (isinstance(values, bool) or isinstance(values, Tensor) and values.dtype is dtypes.bool):
        raise NotImplementedError(f'"{name}" not implemented for {sequence.dtype}; convert one of the tensors with .to(torch.uint8)')
    if sequence.ndim == 0:
        raise RuntimeError(f"{name}(): boundaries tensor should have positive dimension, but got 0 dimension")
    shape = tuple(values.shape) if isinstance(values, Tensor) else ()
    if not shape and sequence.ndim != 1:
        raise RuntimeError(
            f"{name}(): input value can be a scalar only when boundaries tensor dimension is 1, but it has {sequence.ndim} dimensions"
        )
    if sequence.ndim != 1 and (len(shape) != sequence.ndim or shape[:-1] != tuple(sequence.shape[:-1])):
        raise RuntimeError(
            f"{name}(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and input value "
            f"tensor must match, but got boundaries {tuple(sequence.shape)} and input value {shape}"
        )
    if sorter is not None:
        if sorter.shape != sequence.shape:
            raise RuntimeError(
                f"{name}(): boundary and sorter must have the same size, but got {tuple(sequence.shape)} and {tuple(sorter.shape)}"
            )
        if sorter.dtype is not dtypes.int64:
            raise RuntimeError(f"{name}(): sorter must be a tensor of long dtype but got dtype {sorter.dtype}")


@primitive(surface=0, tensors=("sequence", "values", "sorter"), samples="of searchsorted", public_name="searchsorted")
def places_in_sorted(sequence, values, out_int32, right, sorter=None):
    """Where each of `values` belongs in the sorted last dimension of `sequence`."""


@places_in_sorted.in_pieces
def _places_in_sorted_pieces(asked):
    return "_,...,_->..." if asked["sequence"].ndim == 1 else "..._,...v,..._->...v"


places_in_sorted.not_differentiable = "its result is places"


@places_in_sorted.kernel
def _places(sequence, values, out_int32, right, sorter):
    if sorter is not None and sorter.size and (sorter.min() < 0 or sorter.max() >= sequence.shape[-1]):
        raise RuntimeError(f"searchsorted(): sorter index out of range for a sequence of {sequence.shape[-1]}")
    ordered = sequence if sorter is None else np.take_along_axis(sequence, sorter, -1)
    found = kernel.bisect(ordered, values, right)
    return np.asarray(found, np.int32 if out_int32 else np.int64)


@places_in_sorted.shape
def _places_shape(sequence, values, out_int32, right, sorter):
    return values.shape, dtypes.int32 if out_int32 else dtypes.int64


@places_in_sorted.batch
def _places_in_sorted_batch(level: Any, op: Any, args: Any) -> Any:
    sequence, values, out_int32, right, sorter = args
    if sorter is not None or sequence.ndim != 1:
        return NotImplemented
    if not level.has(sequence):
        return level.wrap(run(op, sequence, level.front(values), out_int32, right, None))
    found = run(op, level.front(sequence), level.full(values).reshape(level.size, -1), out_int32, right, None)
    return level.wrap(found.reshape(level.size, *values.shape))


def _value_tensor(value: Any, like: Tensor) -> Any:
    if isinstance(value, Tensor):
        return value.detach()
    kind = like.dtype if isinstance(value, int) or like.dtype.is_floating_point else dtypes.float32
    wide = dtypes.float64 if kind.is_floating_point else dtypes.int64
    return tensor(value, dtype=wide, device="meta" if like._lacks_values else like.device)


def _in_one_order(sequence: Tensor, values: Any) -> tuple[Tensor, Tensor]:
    """Both without history, as tensors; of truths and numbers the truths as numbers of the other's dtype."""
    made = _value_tensor(values, sequence)
    sequence = sequence.detach()
    if sequence.dtype is dtypes.bool:
        return sequence.to(made.dtype), made
    return sequence, made.to(sequence.dtype) if made.dtype is dtypes.bool else made


@composite(
    surface=FUNCTION | OUT,
    operator="searchsorted(sorted_sequence, input, out_int32=out_int32, right=right, side=side, sorter=sorter)",
    samples="d(2, 6).sort().values, x(2, 3); d(6).sort().values, x(2, 3), right=True, out_int32=True",
)
def searchsorted(sorted_sequence, input, *, out_int32=False, right=False, side=None, sorter=None):
    """Where each of `input` would be inserted in the last dimension of `sorted_sequence` so that it stays sorted.

    Args:
        sorted_sequence: a vector, or of the shape of `input` apart from the last dimension; ascending.
        right: among equals the last place rather than the first, as does ``side='right'``.
        sorter: the order that sorts an unsorted `sorted_sequence`.
    Returns: int64, or int32 with `out_int32`; the shape of `input`.

    >>> fb.searchsorted(fb.tensor([1, 3, 5]), fb.tensor([3, 4]))
    tensor([1, 2])
    """
    if side not in (None, "left", "right"):
        raise RuntimeError(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side!r}")
    if side == "left" and right:
        raise RuntimeError("torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True")
    _check_search("searchsorted", sorted_sequence, input, sorter)
    sequence, values = _in_one_order(sorted_sequence, input)
    return places_in_sorted.function(sequence, values, out_int32, bool(right or side == "right"), sorter)


_SEARCHES = {right: Along("places_in_sorted", right, dims=ALL, takes_array=True) for right in (False, True)}


def _planned_places(s, values, out_int32, right):
    """Places of a few values, or one number, in a sorted vector."""
    if out_int32.__class__ is not bool or right.__class__ is not bool or s.ndim != 1:
        return None
    if isinstance(values, Tensor):
        a = values._array
    elif values.__class__ is float and s.dtype.kind == "f":
        a, s = np.array(values), s.astype(np.float64)  # as numbers are compared with
    elif values.__class__ is int and s.dtype.char == "l":
        a = np.array(values)
    else:
        return None
    found = _SEARCHES[right](a, None, False, s)
    return found.astype(np.int32) if out_int32 and found is not None else found


@searchsorted.plan(discrete=True)
def _plan_of_searchsorted(s, input, out_int32, right, side, sorter):
    if sorter is not None or side == "left" and right or side not in (None, "left", "right"):
        return None
    return _planned_places(s, input, out_int32, True if side == "right" else right)


_general_search = searchsorted.run_out


def _search_out(out: Any, *args: Any) -> Any:
    wanted = dtypes.int32 if args[searchsorted.params.index("out_int32")] else dtypes.int64
    if isinstance(out, Tensor) and out.dtype is not wanted:
        raise RuntimeError(f"torch.searchsorted(): output tensor's dtype is wrong, it must be {wanted}, but we got {out.dtype}")
    return _general_search(out, *args)


searchsorted.run_out = _search_out


@composite(surface=FUNCTION | OUT, samples="x(2, 3), d(5).sort().values; x(4), d(5).sort().values, right=True", exact_out=True)
def bucketize(input, boundaries, *, out_int32=False, right=False):
    """The number of the bucket between ascending `boundaries` (a vector) that each of `input` falls into.

    Args:
        right: a value equal to a boundary goes above it, otherwise below.
        out_int32: return int32 in place of int64.

    >>> fb.bucketize(fb.tensor([0, 3, 9]), fb.tensor([1, 3, 5]))
    tensor([0, 1, 3])
    """
    if boundaries.ndim != 1:
        raise RuntimeError(f"bucketize: boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})")
    _check_search("bucketize", boundaries, input, None)
    return places_in_sorted.function(*_in_one_order(boundaries, input), out_int32, bool(right), None)


@bucketize.plan(tensors=("boundaries",), discrete=True)
def _plan_of_bucketize(input, s, out_int32, right):
    return _planned_places(s, input, out_int32, right)


# -- histograms ----------------------------------------------------------------------------------------------------------------


def _check_bincount(input, weights, minlength):
    _needs_values("bincount", input)
    if input.dtype.category != dtypes.INTEGER:
        raise NotImplementedError(f'"bincount" not implemented for {input.dtype}; it counts integers')
    if input.ndim != 1 or (input.numel() and input._array.min() < 0):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    minlength = need_int("bincount", "minlength", minlength)
    if minlength < 0:
        raise RuntimeError(f"bincount: minlength should be >= 0, got {minlength}")
    largest = int(input._array.max()) if input.numel() else 0
    if largest >= _LARGEST:
        raise RuntimeError(f"bincount: maximum value of input overflowed, it should be < {_LARGEST} but got {largest}")
    check_room("bincount", (max(largest + 1, minlength),), 8)
    if weights is not None and weights.shape != input.shape:
        raise RuntimeError(
            f"bincount: weights should be 1-d and have the same length as input, got {tuple(weights.shape)} and {tuple(input.shape)}"
        )
    return input, weights, minlength


_LARGEST = (1 << 63) - 1


@primitive(
    surface=FUNCTION | METHOD, tensors=("input", "weights"), check=_check_bincount,
    samples="i(5, 9); i(5, 9), k(9), 8",
    dynamic_shape=True,
)
def bincount(input, weights=None, minlength=0):
    """How often each of 0, 1, 2, ... occurs in the integers `input`, or the total of the `weights` where it does.

    Args:
        input: a vector of integers, none negative.
        minlength: least length of the result, which otherwise ends with the largest.

    >>> fb.bincount(fb.tensor([0, 1, 1]), minlength=4)
    tensor([1, 2, 0, 0])
    """


bincount.shape(lambda input, weights, minlength: _needs_values("bincount", input))


@bincount.plan(dtypes="l", discrete=True)
def _planned_counts(a, weights, minlength):
    if minlength.__class__ is not int or minlength < 0 or a.ndim != 1 or not a.size:
        return None
    made = counting.counts_at_once(a, minlength) if weights is None and a.size < counting.SHARED and a.flags.c_contiguous else None
    if made is not None:
        return made
    if weights is not None or a.size >= kernel.COMPILED_FROM:
        return _counted_many(a, weights, minlength)
    # numpy counts up to the largest plus 1, which may wrap around.
    if np.maximum.reduce(a) >= _MANY:
        return None
    try:
        return np.bincount(a, None, minlength)
    except ValueError:  # a negative number, which the fallback explains better
        return None


_MANY = 1 << 24                                       # of which the fallback sees whether memory holds the counts


def _counted_many(a: np.ndarray, weights: Any, minlength: int) -> Any:
    """`bincount` of a vector in one look at its range, and one at its elements; None for unusual ones."""
    if not a.flags.c_contiguous:
        return None
    low, high = kernel.extent(a)
    if low < 0 or high >= _MANY:
        return None
    count = max(minlength, high + 1)
    if weights is None:
        return wrap(kernel.count_values(a, 0, count)) if count <= a.size else None
    w: Any = weights._array if isinstance(weights, Tensor) and weights._node is None else None
    if w.__class__ is not np.ndarray or w.shape != a.shape or w.dtype.char not in "fd":
        return None
    made = np.zeros(count, w.dtype)
    return wrap(made) if hot_calls.add_along(made, 0, a, w) is not None or scatter.combine_along(made, 0, a, w, "sum") else None


@bincount.vjp
def _bincount_vjp(grad):
    raise NotImplementedError("the derivative for 'bincount' is not implemented.")  # PyTorch defines none either


@bincount.kernel
def _bincount(a, weights, minlength):
    if weights is None or not a.size:
        return kernel.count_values(a, 0, max(minlength, int(a.max()) + 1 if a.size else 0))
    a = a.astype(np.int64, copy=False)
    if weights.dtype != np.float32:
        weights = weights.astype(np.float64)
    made = np.zeros(max(minlength, int(a.max()) + 1 if a.size else 0), weights.dtype)
    scatter.add_at(made, a, weights)
    return made


def _edges(low: float, high: float, bins: int, dtype: np.dtype) -> np.ndarray:
    from ..creation.ranges import linspace

    return widen(linspace(low, high, bins + 1, dtype=dtypes.from_numpy_dtype(dtype))._array)


_kept_edges = functools.lru_cache(64)(_edges)
_MOST_KEPT = 1 << 12


def _known_edges(low: float, high: float, bins: int, dtype: np.dtype) -> np.ndarray:
    """`_edges` for those who neither write to them nor hand them out."""
    return (_kept_edges if bins <= _MOST_KEPT else _edges)(low, high, bins, dtype)


def _bounds(name: str, x: np.ndarray, low: float, high: float, given: bool) -> tuple[float, float]:
    """The range to count in: as given, or that of the elements. Raises: RuntimeError for one that is not finite."""
    if not given and x.size:
        low, high = float(x.min()), float(x.max())
    if not np.isfinite([low, high]).all():
        raise RuntimeError(f"{name}: range of [{low}, {high}] is not finite")
    if low > high:
        raise RuntimeError(f"{name}: min should not exceed max, but got min {low} max {high}")
    return (low - 1, high + 1) if low == high and name == "torch.histc" else (low, high)


def _check_bins(name: str, bins: Any, dim: int = 0, itemsize: int = 8) -> None:
    if bins >= 1 << 63:
        raise ValueError(f"{name}(): Overflow when unpacking long long: bins is 2**63 or more, got {bins} for dimension {dim}")
    if bins <= 0:
        raise RuntimeError(f"{name}(): bins must be > 0, but got {bins} for dimension {dim}")
    check_room(name, (bins + 1,), itemsize)


def _check_histc(input, bins, min, max):
    if isinstance(bins, Tensor) and not bins.ndim:
        bins = bins.item()
    if not isinstance(bins, (int, np.integer)) or isinstance(bins, bool):
        raise TypeError(f"histc(): argument 'bins' (position 2) must be int, not {type(bins).__name__}")
    if not input.is_floating_point():
        raise NotImplementedError(f'"histc" not implemented for {input.dtype}; convert it with .float()')
    _check_bins("torch.histc", bins, itemsize=input._array.itemsize)
    low, high = (float(v) for v in (min, max))
    if not np.isfinite([low, high]).all():
        raise RuntimeError(f"torch.histc: range of [{low}, {high}] is not finite")
    if low > high:
        raise RuntimeError(f"torch.histc: max must be larger than min, got min {low} and max {high}")
    return input, int(bins), low, high


@primitive(surface=FUNCTION | METHOD | OUT, check=_check_histc, samples="x(20), 5, -2, 2; x(20), 7", exact_out=True)
def histc(input, bins=100, min=0, max=0):  # PyTorch's names
    """How many elements fall into each of `bins` equal bins between `min` and `max`, in the dtype of `input`.

    Without a range, that of the elements is taken. Elements outside it, and nan, are not counted.
    """


@histc.in_pieces
def _histc_pieces(asked):
    # Without bounds these are found among the elements.
    return [] if asked["min"] == asked["max"] else [asked.way({0: d}, "sum") for d in range(asked.operands[0].ndim)]


@histc.plan(dtypes="fd")
def _planned_bins(a, bins, min, max):
    if bins.__class__ is not int or not (min.__class__ in _PLAIN and max.__class__ in _PLAIN):
        return None
    if not (0 < bins <= _MOST_KEPT and -math.inf < min <= max < math.inf) or _state.default_device() is not None:
        return None
    if 0 < a.size <= counting.MOST_AT_ONCE and a.flags.c_contiguous:
        found = counting.histogram_at_once[a.dtype](a, bins, float(min), float(max))
        if found is not None:
            return found[0]
    low, high = (float(a.min()), float(a.max())) if min == max and a.size else (float(min), float(max))
    if not -math.inf < low < high < math.inf:         # or of a nan
        return None
    return kernel.count_bins(a, _known_edges(low, high, bins, a.dtype)).astype(a.dtype)


_PLAIN = (int, float)
histc.not_differentiable = "counts are constant almost everywhere"


@histc.kernel
def _histc(a, bins, low, high):
    low, high = _bounds("torch.histc", widen(a), low, high, low != high)
    wide = widen(a[:0] if a.ndim else a).dtype
    if bins > max(_MOST_KEPT, _SPARSE * a.size):
        return _histc_in_little_memory(widen(a).reshape(-1), bins, low, high, a.dtype)
    edges = (_known_edges if _state.default_device() is None else _edges)(low, high, bins, wide)
    return kernel.count_bins(a, edges).astype(a.dtype)


_SPARSE = 8                                           # bins for each element, from which on most of them stay 0


def _histc_in_little_memory(x: np.ndarray, bins: int, low: float, high: float, dtype: np.dtype) -> np.ndarray:
    """`histc` in no more memory than that of its result: edges are computed at the elements alone."""
    from ..creation.ranges import spaced_at

    def edges(at: np.ndarray) -> np.ndarray:
        return spaced_at(at.astype(np.float64), low, high, bins + 1, dtypes.from_numpy_dtype(x.dtype))

    made = np.zeros(bins, dtype)
    places, counts = np.unique(kernel.places_in_bins(x, edges, bins), return_counts=True)
    made[places] = counts
    return made


@histc.shape
def _histc_shape(input, bins, low, high):
    return (bins,), input.dtype


def _check_histogram(input: Tensor, edges: Any, weight: Any) -> None:
    name = "torch.histogramdd"
    if input.dtype not in (dtypes.float32, dtypes.float64):
        raise NotImplementedError(f'"histogramdd" not implemented for {input.dtype}; convert it with .float()')
    for d, e in enumerate(edges):
        if isinstance(e, Tensor):
            if e.ndim != 1:
                raise RuntimeError(f"{name}: bins tensor should have one dimension, but got {e.ndim} dimensions for dimension {d}")
            if e.dtype is not input.dtype:
                raise RuntimeError(
                    f"{name}: input tensor and bins tensors should have the same dtype, but got {input.dtype} and bins[{d}] {e.dtype}"
                )
            if not e.numel():
                raise RuntimeError(f"{name}: bins tensor should have at least 1 element for dimension {d}")
        else:
            _check_bins("torch.histogram", e, d)
    if weight is not None:
        if weight.dtype is not input.dtype:
            raise RuntimeError(f"{name}: input and weight tensor should have the same dtype, but got {input.dtype} and {weight.dtype}")
        if weight.shape != input.shape[:-1]:
            raise RuntimeError(
                f"{name}: if weight tensor is provided it should have the same shape as the input tensor excluding its innermost "
                f"dimension, but got weight {tuple(weight.shape)} for input {tuple(input.shape)}"
            )


def _counted(points: np.ndarray, edges: list[np.ndarray], weight: Any, density: bool, equal: bool) -> np.ndarray:
    """The histogram of `points`, one a row, over the grid of `edges`; `equal` says that all bins of a dimension are alike."""
    shape = [len(e) - 1 for e in edges]
    if weight is None:
        made = kernel.count_in_grid(points, edges, equal).astype(points.dtype)
    else:
        flat = np.zeros(points.shape[0], np.int64)
        inside = np.ones(points.shape[0], np.bool_)
        for d, e in enumerate(edges):
            at = kernel.bin_of(points[:, d], e, equal)
            inside &= at >= 0
            flat = flat * shape[d] + at
        made = np.zeros(math.prod(shape), points.dtype)
        scatter.add_at(made, flat[inside], weight.reshape(-1)[inside])
        made = made.reshape(shape)
    if density:
        made = made / made.sum()
        for d, e in enumerate(edges):
            made = made / np.diff(e).reshape([-1 if k == d else 1 for k in range(len(edges))])
    return made.astype(points.dtype, copy=False)


@primitive(surface=0, samples="of histogram", public_name="histogram")
def edges_of_bins(input, d, bins, low, high):
    """The edges of equal `bins` from `low` to `high`; where these are None, of the extremes of coordinate `d` of points `input`."""


edges_of_bins.in_pieces(lambda asked: [])
edges_of_bins.not_differentiable = "the extremes of all elements are bounds"
edges_of_bins.shape(lambda input, d, bins, low, high: ((bins + 1,), input.dtype))


@edges_of_bins.kernel
def _edges_of_bins(points, d, bins, low, high):
    given = low is not None
    low, high = _bounds(f"torch.histogramdd: dimension {d}", points[:, d], low if given else 0.0, high if given else 1.0, given)
    # A single value is given a bin of width 1 around it.
    low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
    return _edges(low, high, bins, points.dtype)


@primitive(surface=0, tensors=("points", "edges", "weight"), samples="of histogram", public_name="histogram")
def counted_in_grid(points, edges, weight=None, density=False, equal=False):
    """How many of `points`, one a row, or how much of their `weight`, lie in each cell of the grid of `edges`, which may be those of
    `equal` bins; see `histogramdd`."""


counted_in_grid.in_pieces(lambda asked: [])
counted_in_grid.not_differentiable = "counts are constant almost everywhere"
counted_in_grid.kernel(_counted)


@counted_in_grid.shape
def _counted_in_grid_shape(points, edges, weight, density, equal):
    return tuple(e.shape[0] - 1 for e in edges), points.dtype


def _histogram(input: Tensor, bins: list[Any], span: Any, weight: Any, density: bool) -> tuple[Tensor, list[Tensor]]:
    _check_histogram(input, bins, weight)
    _needs_values("histogram", input)
    count = input.shape[-1]
    if span is not None and len(span) != 2 * count:
        raise RuntimeError(
            f"torch.histogramdd: for a {count}-dimensional histogram range should have {2 * count} elements, but got {len(span)}"
        )
    points = input.reshape(math.prod(input.shape[:-1]), count)
    edges = []
    for d, b in enumerate(bins):
        if isinstance(b, Tensor):
            edges.append(b.detach().clone())
        else:
            low, high = (None, None) if span is None else (float(span[2 * d]), float(span[2 * d + 1]))
            edges.append(edges_of_bins.function(points, d, b, low, high))
    equal = not any(isinstance(b, Tensor) for b in bins)
    return counted_in_grid.function(points, edges, None if weight is None else weight.detach(), density, equal), edges


@composite(surface=FUNCTION | METHOD | OUT, samples="x(20), 5; x(20), 4, range=(-1.0, 1.0), weight=k(20), density=True")
def histogram(input, bins=100, *, range=None, weight=None, density=False):
    """``(hist, bin_edges)``: how many elements, or how much `weight`, each bin holds, and where bins begin and end.

    Args:
        bins: a number of equal bins, or a vector of their ascending edges; a bin has its lower edge, the last both.
        range: ``(low, high)`` for equal bins; that of the elements by default.
        density: whether to divide by the total and the widths, so that the area is 1.

    >>> fb.histogram(fb.tensor([1.0, 2.0]), fb.tensor([0.0, 2.0, 4.0])).hist
    tensor([1., 1.])
    """
    host_only("histogram", input)
    if isinstance(bins, Tensor) and range is not None:
        raise TypeError("histogram() received an invalid combination of arguments: 'range' goes with a number of bins only")
    weights = None if weight is None else weight.reshape(-1) if weight.shape == input.shape else weight
    hist, edges = _histogram(input.detach().reshape(-1, 1), [bins], range, weights, density)
    for x in (hist, *edges):
        without_derivative("histogram", x, input, weight, bins)
    return Histogram((hist, edges[0]))


@histogram.plan(dtypes="fd", rows=True, returns=Histogram)
def _planned_histogram(a, bins, range, weight, density):
    if weight is not None or not a.size:
        return None
    if bins.__class__ is Tensor:
        edges = _given_edges(bins, a)
        return None if edges is None or range is not None else (_counted(a.reshape(-1, 1), [edges], None, density, False), edges)
    if not density and a.size <= counting.MOST_AT_ONCE and bins.__class__ is int and 0 < bins <= _MOST_KEPT:
        low, high = (0.0, 0.0) if range is None else map(float, range)
        found = counting.histogram_at_once[a.dtype](a, bins, low, high) if range is None or low < high else None
        if found is not None:
            return found
    edges = _equal_edges(a.reshape(-1, 1), (bins,), range)
    return None if edges is None else (_counted(a.reshape(-1, 1), edges, None, density, True), *edges)


def _given_edges(edges: Tensor, a: np.ndarray) -> Any:
    """A copy of an edge vector without a history, of the dtype of `a`; or None."""
    given = edges._array
    usual = given.__class__ is np.ndarray and given.ndim == 1 and given.size > 1 and given.dtype is a.dtype and edges._node is None
    return given.copy() if usual else None


def _equal_edges(points: np.ndarray, bins: Any, span: Any) -> Any:
    """The edges of so many equal `bins` for each coordinate of `points`, between their extremes or those of `span`; or None."""
    if _state.default_device() is not None or span is not None and len(span) != 2 * len(bins):
        return None
    if any(b.__class__ is not int or not 0 < b <= _MOST_KEPT for b in bins):
        return None
    return [
        _edges_of_bins(points, d, b, *((None, None) if span is None else map(float, span[2 * d : 2 * d + 2]))) for d, b in enumerate(bins)
    ]


@composite(surface=FUNCTION, samples="x(9, 2), (3, 2)")
def histogramdd(input, bins, range: Sequence[float] | None = None, weight=None, density=False):
    """``(hist, bin_edges)`` of points, the last dimension of `input`; edges are a tuple with one vector each.

    Args:
        bins: a number of bins, or one per coordinate, or a vector of edges per coordinate.
        range: ``(low, high)`` of each coordinate, one after the other.
        weight, density: as for `histogram`.
    """
    if isinstance(bins, Tensor):
        raise TypeError("histogramdd(): argument 'bins' must be int, tuple of ints or tuple of Tensors, not Tensor")
    host_only("histogramdd", input)
    if input.ndim < 2:
        raise RuntimeError(f"torch.histogramdd: input tensor should have at least 2 dimensions, got {input.ndim}")
    each = [int(bins)] * input.shape[-1] if isinstance(bins, (int, np.integer)) else list(bins)
    if len(each) != input.shape[-1]:
        raise RuntimeError("histogramdd: The size of bins must be equal to the innermost dimension of the input.")
    hist, edges = _histogram(input.detach(), each, range, weight, density)
    for x in (hist, *(e for b, e in zip(each, edges, strict=True) if not isinstance(b, Tensor))):
        without_derivative("histogramdd", x, input, weight, *each)
    return HistogramOfPoints((hist, tuple(b if isinstance(b, Tensor) else e for b, e in zip(each, edges, strict=True))))


@histogramdd.plan(dtypes="fd", rows=True, returns=lambda outs: HistogramOfPoints((outs[0], outs[1:])))
def _planned_histogramdd(a, bins, range, weight, density):
    if weight is not None or a.ndim < 2 or not a.size:
        return None
    each = (bins,) * a.shape[-1] if bins.__class__ is int else tuple(bins)
    points = a.reshape(-1, a.shape[-1])
    edges = _equal_edges(points, each, range) if len(each) == a.shape[-1] else None
    return None if edges is None else (_counted(points, edges, None, density, True), *edges)
