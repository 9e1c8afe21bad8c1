"""Kernels that move elements: copies, joins, places picked and written."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.cuda import launch, scatter
from flambeau_kernels.formula import Formula
from flambeau_kernels.vocabulary import where

from ..._arrays import MetaArray
from ...ops._spec import OPS
from ...ops.indexing.select import as_element
from ...tensor import wrap, wrap_dim
from .. import arrays
from ..arrays import bits, contiguous, is_on_device
from . import empty_arranged


def clone(a: Any, format: Any) -> Any:
    made = empty_arranged(a, a.dtype, format)
    launch.copy(made, a)
    return made


def to_copy(a: Any, dtype: Any, place: Any, format: Any) -> Any:
    from ...ops.creation.convert import _to_copy

    target = a.dtype if dtype is None else dtype.numpy
    if place is not None and place.type == "meta":
        return MetaArray(a.shape, target, None if a.ndim < 2 else empty_arranged(a, target, format).strides)
    if place is not None and place.type == "cpu":
        return _to_copy(a.get(), dtype, None, format)
    made = empty_arranged(a, target, format)
    launch.copy(made, a)
    if place is None or place.index in (None, a.device.id):
        return made
    from ..device import to_device

    return to_device(made, place)


def cat(parts: Any, dim: int) -> Any:
    for a in parts:
        if not is_on_device(a):
            raise RuntimeError("cat: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!")
    kept = [a for a in parts if a.shape != (0,)]
    if not kept:
        return parts[0].__class__((0,), parts[0].dtype)
    d = wrap_dim(dim, kept[0].ndim)
    shape = list(kept[0].shape)
    shape[d] = sum(a.shape[d] for a in kept)
    made = kept[0].__class__(tuple(shape), np.result_type(*(a.dtype for a in kept)) if len({a.dtype for a in kept}) > 1 else kept[0].dtype)
    at = 0
    for a in kept:
        here = (slice(None),) * d + (slice(at, at + a.shape[d]),)
        launch.copy(made[here], a)
        at += a.shape[d]
    return made


def _copied(a: Any) -> Any:
    made = a.__class__(a.shape, a.dtype)
    launch.copy(made, a)
    return made


def flip(a: Any, dims: Any) -> Any:
    made = a.__class__(a.shape, a.dtype)
    axes = {wrap_dim(d, a.ndim) for d in dims}
    # Read forwards, written backwards: our views have no negative strides, a launch may.
    launch.copy(made[tuple(slice(None, None, -1) if d in axes else slice(None) for d in range(a.ndim))] if axes else made, a)
    return made


def roll(a: Any, shifts: Any, dims: Any) -> Any:
    moves = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    if dims is None or dims == ():
        return roll(contiguous(a).reshape(-1), moves[0], 0).reshape(a.shape)
    axes = (dims,) if isinstance(dims, int) else tuple(dims)
    for shift, dim in zip(moves, axes, strict=True):
        d = wrap_dim(dim, a.ndim)
        n = a.shape[d]
        made = a.__class__(a.shape, a.dtype)
        if n:
            by = shift % n
            before = (slice(None),) * d
            launch.copy(made[(*before, slice(by, n))], a[(*before, slice(0, n - by))])
            launch.copy(made[(*before, slice(0, by))], a[(*before, slice(n - by, n))])
        a = made
    return a


def pad_constant(x: Any, pairs: Any, value: Any) -> Any:
    lead = x.ndim - len(pairs)
    shape = (*x.shape[:lead], *(n + a + b for n, (a, b) in zip(x.shape[lead:], pairs, strict=True)))
    made = x.__class__(shape, x.dtype)
    launch.copy(made, np.asarray(as_element(value, x.dtype)))
    inside = [slice(None)] * lead
    source = [slice(None)] * lead
    for n, (a, b) in zip(x.shape[lead:], pairs, strict=True):
        inside.append(slice(max(a, 0), max(a, 0) + max(n + min(a, 0) + min(b, 0), 0)))
        source.append(slice(max(-a, 0), max(max(-a, 0), n - max(-b, 0))))
    launch.copy(made[tuple(inside)], x[tuple(source)])
    return made


def _triangle(upper: bool) -> Any:
    def kernel(a: Any, diagonal: int) -> Any:
        rows, columns = a.shape[-2:]
        xp = arrays.library()
        distance = wrap(xp.arange(columns)) - wrap(xp.arange(rows)).unsqueeze(1)
        kept = distance >= diagonal if upper else distance <= diagonal
        return wrap(a).masked_fill(~kept, 0)._array

    return kernel


tril, triu = _triangle(False), _triangle(True)


# -- picking ---------------------------------------------------------------------------------------------------------------


def _index(k: Any) -> Any:
    """An index tensor or array, of the host perhaps, on the device."""
    a = getattr(k, "_array", k)
    return a if is_on_device(a) else arrays.from_host(np.asarray(a))


def _taken(a: Any, key: Any) -> Any:
    made = bits(a)[key]
    return made if made.dtype == a.dtype else made.view(a.dtype)


def index(a: Any, indices: Any) -> Any:
    return _taken(a, tuple(slice(None) if k is None else _index(k) for k in indices))


def index_put(a: Any, indices: Any, values: Any, accumulate: Any) -> Any:
    made = _copied(a)
    places = [None if k is None else _index(k) for k in indices]
    put_at(made, places, values, accumulate)
    return made


def put_at(made: Any, places: list[Any], values: Any, accumulate: bool) -> None:
    """``made[places] = values``, or += counting repeated places; `made` may be any view."""
    if not accumulate:
        value = values if is_on_device(values) else np.asarray(values)
        if is_on_device(value) and value.dtype != made.dtype:
            value = launch.cast(value, made.dtype)
        key = tuple(slice(None) if k is None else k for k in places)
        bits(made)[key] = bits(value) if is_on_device(value) else value.astype(made.dtype).view(bits(made).dtype)[()]
        return
    xp = arrays.library()
    # Number the elements; the key then picks the numbers of those that are added to.
    numbers = xp.arange(made.size).reshape(made.shape)
    at = numbers[tuple(slice(None) if k is None else k for k in places)]
    contiguous_copy = contiguous(made)
    source = wrap(values).to(wrap(made).dtype).expand(at.shape).contiguous()._array
    total = scatter.along(contiguous_copy.reshape(1, -1, 1), contiguous(at).reshape(1, -1, 1), source.reshape(1, -1, 1), "sum")
    launch.copy(made, total.reshape(made.shape))


def put_in_place(target: Any, indices: Any, values: Any, accumulate: bool) -> None:
    """`index_put` into `target` itself."""
    put_at(target, [None if k is None else _index(k) for k in indices], values, accumulate)


def index_select(a: Any, dim: int, at: Any) -> Any:
    if not a.ndim:
        return _copied(a)
    return _taken(a, (slice(None),) * wrap_dim(dim, a.ndim) + (_index(at).reshape(-1),))


def rows_at(table: Any, indices: Any, padding_idx: Any, scale_grad_by_freq: Any) -> Any:
    return _taken(table, _index(indices))


def rows_within_norm(table: Any, indices: Any, max_norm: float, norm_type: float) -> Any:
    rows = wrap(_taken(table, _index(indices)))
    norms = OPS["linalg.vector_norm"].function(rows, norm_type, 1, True)
    return (rows * OPS["where"].function(norms > max_norm, max_norm / (norms + 1e-7), 1.0))._array


def rows_added(values: Any, indices: Any, rows: int, padding_idx: Any, scale_grad_by_freq: Any) -> Any:
    if scale_grad_by_freq:
        raise NotImplementedError("embedding(scale_grad_by_freq=True): its gradient is not built for device cuda yet")
    tail = values.shape[indices.ndim :]
    each, count = values.size // max(indices.size, 1), indices.size
    at = contiguous(indices).reshape(1, count, 1)
    made = arrays.filled((1, rows, each), values.dtype, 0)
    if count:
        made = scatter.along(made, _spread(at, (1, count, each)), contiguous(values).reshape(1, count, each), "sum")
    made = made.reshape(rows, *tail)
    if padding_idx is not None and 0 <= padding_idx < rows:
        launch.copy(made[padding_idx], np.zeros((), made.dtype))
    return made


def _spread(at: Any, shape: tuple[int, ...]) -> Any:
    """`at` stretched to `shape`, as a view."""
    return wrap(at).expand(shape)._array


def _along(a: Any, dim: int, at: Any) -> Any:
    """``take_along_axis`` where `at` may be smaller than `a` in other dimensions too."""
    d = wrap_dim(dim, a.ndim)
    corner = a[tuple(slice(None) if e == d else slice(0, n) for e, n in enumerate(at.shape))]
    xp = arrays.library()
    key = tuple(
        at if e == d else xp.arange(n).reshape([-1 if f == e else 1 for f in range(a.ndim)]) for e, n in enumerate(at.shape)
    )
    return _taken(corner, key)


def gather(a: Any, dim: int, at: Any, sparse_grad: Any) -> Any:
    if not at.size or not a.ndim:
        return a.__class__(at.shape, a.dtype) if not at.size else wrap(a).expand(at.shape).clone()._array
    return _along(a, dim, at)


def _scattered(a: Any, dim: int, at: Any, src: Any, how: str) -> Any:
    if not at.size:
        return _copied(a)
    if not a.ndim:
        return _scattered(a.reshape(1), 0, at.reshape(1), src.reshape(1) if is_on_device(src) else src, how).reshape(())
    d = wrap_dim(dim, a.ndim)
    if not is_on_device(src):
        made = arrays.filled(at.shape, a.dtype, src)
        src = made
    source = src[tuple(slice(0, n) for n in at.shape)]
    corner = tuple(slice(None) if e == d else slice(0, n) for e, n in enumerate(at.shape))
    made = _copied(a)
    part = contiguous(made[corner])
    before = int(np.prod(at.shape[:d], dtype=np.int64))
    after = int(np.prod(at.shape[d + 1 :], dtype=np.int64))
    total = scatter.along(
        part.reshape(before, part.shape[d], after), contiguous(at).reshape(before, at.shape[d], after),
        contiguous(source).reshape(before, at.shape[d], after), how,
    )  # fmt: skip
    launch.copy(made[corner], total.reshape(part.shape))
    return made


def scatter_src(a: Any, dim: int, at: Any, src: Any) -> Any:
    return _scattered(a, dim, at, src, "last")


def scatter_value(a: Any, dim: int, at: Any, value: Any) -> Any:
    return _scattered(a, dim, at, as_element(value, a.dtype), "last")


def scatter_add(a: Any, dim: int, at: Any, src: Any) -> Any:
    return _scattered(a, dim, at, src, "sum")


def scatter_combine(a: Any, dim: int, at: Any, src: Any, reduce: str, include_self: bool) -> Any:
    if reduce == "mean" or not include_self:
        raise NotImplementedError(f"scatter_reduce({reduce!r}, include_self={include_self}): not built for device cuda yet")
    return _scattered(a, dim, at, src, reduce)


def _as_rows(a: Any, dim: int, at: Any, source: Any) -> Any:
    """The index of `index_add` and the like as that of `scatter_add`."""
    d = wrap_dim(dim, a.ndim)
    shape = tuple(at.size if e == d else n for e, n in enumerate(a.shape))
    return _spread(_index(at).reshape([-1 if e == d else 1 for e in range(a.ndim)]), shape), source


def index_add(a: Any, dim: int, at: Any, source: Any, alpha: Any) -> Any:
    if not a.ndim or not at.size:
        return (wrap(a) + wrap(source).reshape(()) * alpha)._array if at.size else _copied(a)
    if alpha != 1:
        source = (wrap(source) * alpha).to(wrap(source).dtype)._array
    rows, source = _as_rows(a, dim, at, source)
    return _scattered(a, dim, rows, source, "sum")


def index_copy(a: Any, dim: int, at: Any, source: Any) -> Any:
    if not at.size:
        return _copied(a)
    if not a.ndim:
        return _copied(source.reshape(()))
    rows, source = _as_rows(a, dim, at, source)
    return _scattered(a, dim, rows, source, "last")


def index_fill(a: Any, dim: int, at: Any, value: Any) -> Any:
    value = value if is_on_device(value) else as_element(value, a.dtype)
    if not at.size:
        return _copied(a)
    made = _copied(a).reshape(a.shape or (1,))
    rows, _ = _as_rows(made, dim, at, None)
    filled = arrays.filled(rows.shape, a.dtype, None)
    launch.copy(filled, value)
    return _scattered(made, dim, rows, filled, "last").reshape(a.shape)


def take(a: Any, at: Any) -> Any:
    return _taken(contiguous(a).reshape(-1), _index(at))


def put(a: Any, at: Any, source: Any, accumulate: bool) -> Any:
    if not at.size:
        return _copied(a)
    made = _copied(a)
    put_at(made.reshape(-1), [contiguous(at).reshape(-1)], contiguous(source).reshape(-1), accumulate)
    return made


# -- masks -----------------------------------------------------------------------------------------------------------------


def masked_fill(a: Any, mask: Any, value: Any) -> Any:
    shape = np.broadcast_shapes(a.shape, mask.shape)
    made = arrays.empty_like_layout(shape, a.dtype, [a])
    value = launch.cast(value, a.dtype) if is_on_device(value) else np.asarray(as_element(value, a.dtype))
    launch.launch(_CHOOSE, (a, mask, value), (made,), a.dtype)
    return made


def _choose(a, mask, value):
    return where(mask != 0, value, a)


_CHOOSE = Formula(_choose, "masked_fill")


def nonzero_rows(a: Any) -> Any:
    xp = arrays.library()
    found = xp.nonzero(wrap(a).ne(0)._array.reshape(a.shape or (1,)))
    return xp.stack(found[: a.ndim], 1) if a.ndim else xp.zeros((len(found[0]), 0), np.int64)


def masked_select(a: Any, mask: Any) -> Any:
    shape = np.broadcast_shapes(a.shape, mask.shape)
    return _taken(contiguous(_spread(a, shape)).reshape(-1), contiguous(_spread(mask, shape)).reshape(-1))


def masked_scatter(a: Any, mask: Any, source: Any) -> Any:
    shape = np.broadcast_shapes(a.shape, mask.shape)
    made = _copied(_spread(a, shape)).reshape(-1)
    at = arrays.library().nonzero(contiguous(_spread(mask, shape)).reshape(-1))[0]
    put_at(made, [at], contiguous(source).reshape(-1)[: at.size], False)
    return made.reshape(shape)


def _into_view(a: Any, src: Any, view: Any) -> Any:
    made = wrap(_copied(a))
    launch.copy(view(made)._array, src)
    return made._array


def select_scatter(a: Any, src: Any, dim: int, at: int) -> Any:
    return _into_view(a, src, lambda x: x.select(dim, at))


def slice_scatter(a: Any, src: Any, dim: int, start: Any, end: Any, step: int) -> Any:
    from ...ops.indexing.put import _sliced

    return _into_view(a, src, lambda x: _sliced(x, dim, start, end, step))


def diagonal_scatter(a: Any, src: Any, offset: int, dim1: int, dim2: int) -> Any:
    return _into_view(a, src, lambda x: x.diagonal(offset, dim1, dim2))
