"""Kernels of operations for sparse operands, and the rules for those that have none of their own.

A kernel takes all arguments of its operation, in order, and composes others over values. Elementwise operations need none: what
their formula makes of zeros says whether the pattern stays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import _state, dtypes
from ..._kinds import no_kernel
from ...tensor import Tensor, bump, wrap, wrap_dim
from .. import _dispatch
from .._spec import OPS
from .arrays import (
    COMPRESSED,
    CompressedArray,
    CooArray,
    SparseArray,
    compressed,
    coo,
    host,
    index_tensors,
    is_sparse,
    pattern_of,
    places,
    values_of,
    with_values,
)  # fmt: skip
from .layouts import (
    added_up,
    coalesce,
    flat_places,
    like,
    one_of_batch,
    starts_of,
    to_coo,
    to_dense,
    to_layout,
    values_at,
)  # fmt: skip

# -- elementwise operations -----------------------------------------------------------------------------------------------


def kernel_for(op: Any) -> Any:
    """The rule for an operation without a kernel of its own, or None."""
    if op.kind == "elementwise":
        return lambda *args: _elementwise(op, args)
    return None


def _call(op: Any, args: tuple[Any, ...]) -> Any:
    return _dispatch.interpret(op, args)


def _elementwise(op: Any, args: tuple[Any, ...]) -> Tensor:
    """`op` where values are; its formula has to keep zeros."""
    operands = [a for a in args if isinstance(a, Tensor) and a.ndim]
    sparse = [a for a in operands if is_sparse(a)]
    if len(sparse) == 1 and len(operands) == 1:
        (x,) = sparse
        _check_zero(op, args, x)
        x = _settled(x)
        return with_values(x, _call(op, tuple([values_of(x) if is_sparse(a) else a for a in args])))
    if len(sparse) == len(operands):
        first = sparse[0]
        for x in sparse[1:]:
            _check_shapes(op, first, x)
        _check_zero(op, args, first)
        return _over_union(op, args, sparse)
    raise no_kernel(
        f"{op.public_name}: not built for a sparse and a dense tensor (shapes {[tuple(x.shape) for x in operands]}); use to_dense() first"
    )


def _check_shapes(op: Any, x: Tensor, y: Tensor) -> None:
    if tuple(x.shape) != tuple(y.shape):
        raise RuntimeError(
            f"{op.public_name}: expected sparse tensors of equal sizes, but got {tuple(x.shape)} and {tuple(y.shape)}; they do not "
            "broadcast"
        )


def _check_zero(op: Any, args: tuple[Any, ...], x: Tensor) -> None:
    """Raise NotImplementedError unless `op` makes zeros of zeros, for other operands as they are."""
    with _unrecorded():
        zero = wrap(np.zeros((1,), x._array.values._array.dtype))
        made = _call(op, tuple([zero if isinstance(a, Tensor) and a.ndim else a for a in args]))
    if bool((made != 0).any()):
        raise no_kernel(
            f"{op.public_name}: does not keep zeros, so its result is not sparse, of an operand of the layout {x._array.layout}; "
            "use to_dense() first"
        )


class _unrecorded:  # a context manager
    def __enter__(self) -> None:
        self.before = _state.set_grad(False)

    def __exit__(self, *_: object) -> None:
        _state.set_grad(self.before)


def _settled(x: Tensor) -> Tensor:
    """`x` with each place at most once, so that a formula may be applied to its values."""
    return coalesce(x) if isinstance(x._array, CooArray) else x


def _over_union(op: Any, args: tuple[Any, ...], sparse: list[Tensor]) -> Tensor:
    """`op` at all places where one of the `sparse` operands has a value."""
    first = sparse[0]
    settled = [_settled(to_coo(x)) for x in sparse]
    together = union(settled)
    given = iter(settled)
    values = tuple([values_at(next(given), together._array) if isinstance(a, Tensor) and a.ndim else a for a in args])
    return like(with_values(together, _call(op, values)), first)


def union(tensors: list[Tensor]) -> Tensor:
    """A tensor whose pattern has the places of all `tensors`, which are coalesced; its values mean nothing."""
    first = pattern_of(tensors[0])
    same = all(t._array.parts[0]._array is first.parts[0]._array for t in tensors)
    if same:
        return wrap(first)
    indices = wrap(np.concatenate([host("union", t._array.indices)[0] for t in tensors], axis=1))
    count = indices.shape[1]
    values = wrap(np.zeros((count, *first.shape[first.sparse_dim :]), np.bool_))
    return coalesce(coo(indices, values, first.shape))


# -- arithmetic -----------------------------------------------------------------------------------------------------------


def _number(x: Any) -> bool:
    """Whether `x` is a number, or a dense tensor of one without dimensions."""
    return not isinstance(x, Tensor) or x.ndim == 0 and not is_sparse(x)


def _scaled(values: Tensor, alpha: Any) -> Tensor:
    return values if isinstance(alpha, (int, float)) and alpha == 1 else values * alpha


@OPS["add"].kernel_of("sparse")
def _add(input, other, alpha):
    if _number(input) or _number(other):
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead, with a tensor of the sparse one's shape")
    if is_sparse(input) and is_sparse(other):
        _check_shapes(OPS["add"], input, other)
        d = dtypes.promote_types(input.dtype, other.dtype)
        if isinstance(input._array, CooArray) and isinstance(other._array, CooArray):
            return _coo_sum(input.to(d), other.to(d), alpha)
        left, right = _settled(to_coo(input)).to(d), _settled(to_coo(other)).to(d)
        return like(_coo_sum(left, right, alpha), input if isinstance(input._array, CompressedArray) else other)
    # The gradient of the sum is that of both operands, so it is dense.
    if is_sparse(input):
        return _recorded(OPS["add"], (input, other, alpha), lambda: _onto(_scaled(other, alpha), input, 1))
    return _recorded(OPS["add"], (input, other, alpha), lambda: _onto(input, other, alpha))


def _coo_sum(x: Tensor, y: Tensor, alpha: Any) -> Tensor:
    a, b = pattern_of(x), pattern_of(y)
    if a.sparse_dim != b.sparse_dim:
        raise RuntimeError(f"add: expected sparse dimensions to agree, but got {a.sparse_dim} and {b.sparse_dim}")
    right = _scaled(values_of(y), alpha)
    if a.parts[0]._array is b.parts[0]._array and a.coalesced:
        return with_values(x, values_of(x) + right)
    where = host("add", a.indices)[0], host("add", b.indices)[0]
    made = coo(wrap(np.concatenate(where, axis=1)), _cat((values_of(x), right)), a.shape)
    return coalesce(made) if a.coalesced and b.coalesced else _merged(made, where)


def _merged(x: Tensor, where: Any) -> Tensor:
    """`x`, whose places are those of two tensors, one after the other, in their joint order if each has one of its own.

    A place that one has p times and the other q times is there max(p, q) times: the first of the one is added to the first of the other,
    and so on.
    """
    shape = x._array.shape
    flat = [flat_places("add", indices, shape[: len(indices)]) for indices in where]
    if not all(map(_in_order, flat)):
        return x
    place = np.concatenate(flat)
    nth = np.concatenate([np.arange(len(f)) - np.searchsorted(f, f) for f in flat])
    order = np.lexsort((nth, place))
    place, nth = place[order], nth[order]
    first = np.ones(len(order), bool)
    first[1:] = (place[1:] != place[:-1]) | (nth[1:] != nth[:-1])
    values = values_of(x).index_select(0, wrap(order))
    if not first.all():
        values = added_up(values, np.cumsum(first) - 1, int(first.sum()))
    return coo(wrap(np.concatenate(where, axis=1)[:, order[first]]), values, shape)


def _in_order(flat: Any) -> bool:
    return bool((flat[1:] >= flat[:-1]).all())


def _cat(tensors: Any, dim: int = 0) -> Tensor:
    return OPS["cat"].function(tensors, dim)


def _onto(dense: Tensor, x: Tensor, alpha: Any) -> Tensor:
    """The sum of a dense tensor and a sparse one, dense."""
    d = dtypes.promote_types(dense.dtype, x.dtype)
    if tuple(dense.shape) != tuple(x.shape):
        try:
            dense = dense.expand(x.shape)
        except RuntimeError:
            raise RuntimeError(
                f"add: expected 'other' to have the shape of 'self' {tuple(dense.shape)}, but it is sparse of shape {tuple(x.shape)}"
            ) from None
    where = places(pattern_of(x))
    values = _scaled(values_of(x).to(d), alpha)
    if not where:
        return dense.to(d) + values.sum(0)
    return dense.to(d).index_put(index_tensors(where), values, True)


@OPS["add"].kernel_of("sparse_")
def _add_(input, other, alpha):
    from .answer import store

    if is_sparse(input) or _state.grad_enabled() and (input._node is not None or other._node is not None):
        return store("add", input, _add(input, other, alpha))
    if tuple(input.shape) != tuple(other.shape):
        raise RuntimeError(f"add_: a sparse tensor of shape {tuple(other.shape)} is to be added to one of shape {tuple(input.shape)}")
    where = places(pattern_of(other))
    values = _scaled(values_of(other).to(input.dtype), alpha)
    if not where:
        return input.add_(values.sum(0))
    return input.index_put_(index_tensors(where), values, True)


@OPS["sub"].kernel_of("sparse")
def _sub(input, other, alpha):
    return _add(input, other, -alpha)


@OPS["sub"].kernel_of("sparse_")
def _sub_(input, other, alpha):
    return _add_(input, other, -alpha)


@OPS["mul"].kernel_of("sparse")
def _mul(input, other):
    if not is_sparse(input):
        input, other = other, input
    if _number(other):
        return with_values(input, values_of(input) * other)
    if is_sparse(other):
        return _common(OPS["mul"], input, other)
    return with_values(input, values_of(input) * _dense_at(OPS["mul"], input, other))


def _dense_at(op: Any, x: Tensor, dense: Tensor) -> Tensor:
    """The elements of `dense`, which broadcasts to `x`, where `x` has values."""
    if tuple(dense.shape) != tuple(x.shape):
        try:
            dense = dense.expand(x.shape)
        except RuntimeError:
            raise RuntimeError(
                f"{op.public_name}: a dense tensor of shape {tuple(dense.shape)} does not broadcast to the sparse one's, {tuple(x.shape)}"
            ) from None
    return values_at(dense, pattern_of(x))


def _common(op: Any, x: Tensor, y: Tensor) -> Tensor:
    """`op` at the places that both tensors have."""
    _check_shapes(op, x, y)
    form = x if isinstance(x._array, CompressedArray) else y
    if isinstance(x._array, CompressedArray) and x._array.layout is y._array.layout and _same_pattern(x, y):
        return with_values(x, _call(op, (values_of(x), values_of(y))))
    a, b = _settled(to_coo(x)), _settled(to_coo(y))
    if a._array.parts[0]._array is b._array.parts[0]._array:
        return like(with_values(a, _call(op, (values_of(a), values_of(b)))), form)
    left = host(op.public_name, a._array.indices)[0]
    where = values_at(wrap_flags(b), wrap_flags(a)._array)
    kept = wrap(np.flatnonzero(where._array.reshape(len(where), -1).any(1)) if where.ndim > 1 else np.flatnonzero(where._array))
    made = coo(wrap(np.ascontiguousarray(left[:, kept._array])), values_of(a).index_select(0, kept), a.shape, True)
    return like(with_values(made, _call(op, (values_of(made), values_at(b, made._array)))), form)


def wrap_flags(x: Tensor) -> Tensor:
    """The pattern of `x` with True for every value."""
    return wrap(x._array.over(wrap(np.ones(x._array.values.shape, np.bool_))))


def _same_pattern(x: Tensor, y: Tensor) -> bool:
    return all(np.array_equal(*host("sparse", a, b)) for a, b in zip(x._array.parts[:-1], y._array.parts[:-1], strict=True))


@OPS["true_divide"].kernel_of("sparse")
def _true_divide(input, other):
    return _quotient(OPS["true_divide"], input, (other,))


def _quotient(op: Any, input: Any, rest: tuple[Any, ...]) -> Tensor:
    other = rest[0]
    if not is_sparse(input) or not _number(other):
        raise RuntimeError(
            "Sparse division requires a scalar or zero-dim dense tensor divisor (got shape "
            f"{list(other.shape) if isinstance(other, Tensor) else []} for divisor)"
        )
    settled = input if op.name == "true_divide" else _settled(input)
    return with_values(settled, _call(op, (values_of(settled), *rest)))


@OPS["pow"].kernel_of("sparse")
def _pow(input, exponent):
    if not is_sparse(input) or not _number(exponent):
        raise RuntimeError("pow: a sparse tensor is raised to a number only; use to_dense() first")
    if not isinstance(exponent, Tensor) and exponent == 0:
        raise RuntimeError("pow: cannot raise to zeroth power on sparse tensor; it would make the result tensor dense")
    return _elementwise(OPS["pow"], (input, exponent))


@OPS["neg"].kernel_of("sparse")
def _neg(input):
    return with_values(input, -values_of(input))


# -- copies ---------------------------------------------------------------------------------------------------------------


@OPS["clone"].kernel_of("sparse")
def _clone(input, memory_format):
    made = wrap(input._array.copy())
    return with_values(made, values_of(input).clone())


@OPS["to_copy"].kernel_of("sparse")
def _to_copy(input, dtype, place, memory_format):
    if place is not None and place.type == "meta":
        raise no_kernel(f"to: a tensor of the layout {input.layout} on the meta device is not built; make a dense one there")
    values = OPS["to_copy"].function(values_of(input), dtype, place, None)
    array = input._array
    if place is None:
        return with_values(input, values)
    parts = [part.to(place) for part in array.parts[:-1]]
    if isinstance(array, CooArray):
        return coo(parts[0], values, array.shape, array.coalesced)
    return compressed(array.form, (*parts, values), array.shape)


@OPS["contiguous"].kernel_of("sparse")
def _contiguous(self, memory_format):
    return self


@OPS["Tensor.overwrite"].kernel_of("sparse_")
def _copy_(input, src):
    from .answer import store

    if not (is_sparse(input) and is_sparse(src)):
        raise RuntimeError(
            "copy_() between dense and sparse Tensors is not implemented! Found self type = "
            f"{input.layout} and src type = {src.layout}; use to_dense() or to_sparse()"
        )
    return store("copy", input, _clone(src, None))


# -- shapes ---------------------------------------------------------------------------------------------------------------


def _transposed(x: Tensor, first: int, second: int) -> Tensor:
    array = pattern_of(x)
    first, second = (wrap_dim(d, array.ndim) for d in (first, second))
    if first == second:
        return x
    shape = list(array.shape)
    shape[first], shape[second] = shape[second], shape[first]
    if isinstance(array, CompressedArray):
        return _transposed_compressed(x, first, second, shape)
    n = array.sparse_dim
    if first < n and second < n:
        order = list(range(n))
        order[first], order[second] = second, first
        indices = wrap(host("transpose", array.indices)[0][order])
        return coo(indices, values_of(x), shape)
    if first >= n and second >= n:
        return coo(array.indices, values_of(x).transpose(first - n + 1, second - n + 1), shape, array.coalesced)
    raise RuntimeError(
        f"transpose: dimensions {first} and {second} must be both sparse or both dense; the first {n} of {array.ndim} are sparse"
    )


_TURNED = dict(zip(COMPRESSED, (COMPRESSED[1], COMPRESSED[0], COMPRESSED[3], COMPRESSED[2]), strict=True))


def _transposed_compressed(x: Tensor, first: int, second: int, shape: list[int]) -> Tensor:
    array = pattern_of(x)
    batch = len(array.batch)
    if {first, second} == {batch, batch + 1}:
        values = values_of(x)
        if array.block:
            values = values.transpose(batch + 1, batch + 2)
        return compressed(_TURNED[array.form], (*array.parts[:2], values), shape)
    if max(first, second) < batch:
        return compressed(array.form, tuple(p.transpose(first, second) for p in (*array.parts[:2], values_of(x))), shape)
    raise RuntimeError(
        f"transpose(): can only transpose the two matrix dimensions or batch dimensions of a compressed tensor, got {first} and {second} "
        f"for batch dimensions {batch}"
    )


@OPS["transpose"].kernel_of("sparse")
def _transpose(input, dim0, dim1):
    return _transposed(input, dim0, dim1)


@OPS["t"].kernel_of("sparse")
def _t(input):
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 sparse dimensions, but self is {input.ndim}D")
    return input if input.ndim < 2 else _transposed(input, 0, 1)


@OPS["permute"].kernel_of("sparse")
def _permute(input, dims):
    array = pattern_of(input)
    order = [wrap_dim(d, array.ndim) for d in (dims if isinstance(dims, (tuple, list)) else (dims,))]
    if sorted(order) != list(range(array.ndim)):
        raise RuntimeError(f"permute: number of dimensions in the tensor input does not match the ordering {tuple(dims)}")
    if isinstance(array, CompressedArray):
        return like(_permute(to_coo(input), order), input)
    n = array.sparse_dim
    if sorted(order[:n]) != list(range(n)):
        raise RuntimeError(
            f"permute: sparse and dense dimensions cannot change places; the first {n} of {array.ndim} are sparse, got {tuple(order)}"
        )
    indices = wrap(host("permute", array.indices)[0][order[:n]])
    values = values_of(input).permute(0, *(d - n + 1 for d in order[n:]))
    return coo(indices, values, [array.shape[d] for d in order], array.coalesced and order[:n] == list(range(n)))


@OPS["unsqueeze"].kernel_of("sparse")
def _unsqueeze(input, dim):
    x = to_coo(input)
    array = pattern_of(x)
    dim = wrap_dim(dim, array.ndim + 1)
    shape = [*array.shape[:dim], 1, *array.shape[dim:]]
    if dim > array.sparse_dim:
        return coo(array.indices, values_of(x).unsqueeze(dim - array.sparse_dim + 1), shape, array.coalesced)
    indices = np.insert(host("unsqueeze", array.indices)[0], dim, 0, axis=0)
    return coo(wrap(indices), values_of(x), shape, array.coalesced)


@OPS["squeeze"].kernel_of("sparse")
def _squeeze(input, dim=None):
    x = to_coo(input)
    dims = range(x.ndim) if dim is None else [wrap_dim(d, x.ndim) for d in (dim if isinstance(dim, (tuple, list)) else (dim,))]
    for d in sorted((d for d in dims if x.shape[d] == 1), reverse=True):
        x = _select(x, d, 0)
    return x


@OPS["reshape"].kernel_of("sparse")
def _reshape(input, shape):
    raise RuntimeError("reshape is not implemented for sparse tensors; use to_dense() first")


@OPS["select"].kernel_of("sparse")
def _select(input, dim, index):
    x = to_coo(input)
    array = pattern_of(x)
    dim = wrap_dim(dim, array.ndim)
    index = int(index)
    n = array.shape[dim]
    if not -n <= index < n:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(array.shape)} at dimension {dim}")
    index %= n
    shape = [*array.shape[:dim], *array.shape[dim + 1 :]]
    if dim >= array.sparse_dim:
        return coo(array.indices, values_of(x).select(dim - array.sparse_dim + 1, index), shape, array.coalesced)
    indices = host("select", array.indices)[0]
    kept = np.flatnonzero(indices[dim] == index)
    values = values_of(x).index_select(0, wrap(kept))
    if array.sparse_dim == 1:
        return values.sum(0, dtype=values.dtype)
    return coo(wrap(np.delete(indices[:, kept], dim, axis=0)), values, shape, array.coalesced)


@OPS["basic_index"].kernel_of("sparse")
def _basic_index(input, key):
    keys: tuple[Any, ...] = key if isinstance(key, tuple) else (key,)
    taken = sum(k is not None and k is not Ellipsis for k in keys)
    if taken > input.ndim:
        raise IndexError(f"too many indices for tensor of dimension {input.ndim}")
    made, dim = input, 0
    for k in keys:
        if k is Ellipsis:
            dim += input.ndim - taken
        elif k is None:
            made, dim = _unsqueeze(made, dim), dim + 1
        elif isinstance(k, slice):
            if k != slice(None):
                made = _sliced(made, dim, *k.indices(made.shape[dim]))
            dim += 1
        else:
            made = _select(made, dim, k) if is_sparse(made) else made.select(dim, int(k))
    return made


@OPS["index"].kernel_of("sparse")
def _index(input, indices):
    there = [(d, at) for d, at in enumerate(indices) if at is not None]
    if not is_sparse(input) or len(there) != 1 or there[0][1].ndim > 1:
        raise no_kernel(f"index: a sparse tensor is indexed by one vector of indices only, got {len(there)}; use to_dense() first")
    return _index_select(input, *there[0])


@OPS["narrow"].kernel_of("sparse")
def _narrow(input, dim, start, length):
    dim = wrap_dim(dim, input.ndim)
    start = int(start)
    start = start + input.shape[dim] if start < 0 else start
    return _sliced(input, dim, start, start + int(length), 1)


@OPS["narrow_copy"].kernel_of("sparse")
def _narrow_copy(input, dim, start, length):
    return _narrow(input, dim, start, length)


def _sliced(input: Tensor, dim: int, start: int, stop: int, step: int) -> Tensor:
    """``input[..., start:stop:step]`` along `dim`; the bounds are in range."""
    x = to_coo(input)
    array = pattern_of(x)
    if not 0 <= start <= stop <= array.shape[dim]:
        raise RuntimeError(f"narrow(): start ({start}) + length ({stop - start}) exceeds dimension size ({array.shape[dim]}).")
    shape = list(array.shape)
    shape[dim] = len(range(start, stop, step))
    if dim >= array.sparse_dim:
        key = (slice(None),) * (dim - array.sparse_dim + 1)
        return like(coo(array.indices, values_of(x)[(*key, slice(start, stop, step))], shape, array.coalesced), input)
    indices = host("narrow", array.indices)[0]
    at = indices[dim]
    kept = np.flatnonzero((at >= start) & (at < stop) & ((at - start) % step == 0))
    chosen = indices[:, kept]
    chosen[dim] = (chosen[dim] - start) // step
    return like(coo(wrap(chosen), values_of(x).index_select(0, wrap(kept)), shape, array.coalesced), input)


@OPS["slice_dim"].kernel_of("sparse")
def _slice_dim(input, dim, start, stop, step):
    return _sliced(input, dim, *slice(start, stop, step).indices(input.shape[dim]))


@OPS["index_select"].kernel_of("sparse")
def _index_select(input, dim, index):
    if not is_sparse(input) or is_sparse(index):
        raise no_kernel("index_select: not built for sparse indices; use to_dense() first")
    x = to_coo(input)
    array = pattern_of(x)
    dim = wrap_dim(dim, array.ndim)
    if index.ndim > 1:
        raise IndexError(f"index_select(): Index is supposed to be a vector, got {index.ndim} dimensions")
    wanted = host("index_select", index)[0].reshape(-1)
    n = array.shape[dim]
    if wanted.size and (wanted.min() < -n or wanted.max() >= n):
        raise IndexError(f"index_select(): index out of range: expected {-n} <= index < {n} for dimension {dim}, got {wanted.tolist()}")
    wanted = wanted % n if n else wanted
    shape = list(array.shape)
    shape[dim] = len(wanted)
    if dim >= array.sparse_dim:
        return coo(array.indices, values_of(x).index_select(dim - array.sparse_dim + 1, wrap(wanted)), shape, array.coalesced)
    indices = host("index_select", array.indices)[0]
    order = np.argsort(indices[dim], kind="stable")
    low, high = (np.searchsorted(indices[dim][order], wanted, side) for side in ("left", "right"))
    counts = high - low
    new = np.repeat(np.arange(len(wanted)), counts)
    kept = order[np.repeat(low - np.concatenate(([0], np.cumsum(counts)[:-1])), counts) + np.arange(len(new))] if len(new) else new
    chosen = indices[:, kept]
    chosen[dim] = new
    return coo(wrap(chosen), values_of(x).index_select(0, wrap(kept)), shape)


@OPS["cat"].kernel_of("sparse")
def _cat_sparse(tensors, dim=0):
    for i, t in enumerate(tensors):
        if not is_sparse(t):
            raise RuntimeError(f"Concatenating sparse tensors, but a dense tensor was found at position {i}.")
    all_coo = [to_coo(t) for t in tensors]
    arrays = [pattern_of(t) for t in all_coo]
    first = arrays[0]
    dim = wrap_dim(dim, first.ndim)
    for i, a in enumerate(arrays):
        if a.ndim != first.ndim or a.sparse_dim != first.sparse_dim:
            raise RuntimeError(
                "All tensors must have the same number of sparse and dense dimensions: "
                f"{first.sparse_dim} and {first.ndim - first.sparse_dim} "
                f"at position 0, {a.sparse_dim} and {a.ndim - a.sparse_dim} at position {i}"
            )
        if any(m != n for d, (m, n) in enumerate(zip(a.shape, first.shape, strict=True)) if d != dim):
            raise RuntimeError(
                f"Sizes of tensors must match except in dimension {dim}. "
                f"Expected {list(first.shape)} in position {i} but found {list(a.shape)}"
            )
    shape = list(first.shape)
    shape[dim] = sum(a.shape[dim] for a in arrays)
    indices = [host("cat", a.indices)[0].copy() for a in arrays]
    if dim < first.sparse_dim:
        begin = 0
        for a, at in zip(arrays, indices, strict=True):
            at[dim] += begin
            begin += a.shape[dim]
        values = _cat([values_of(t) for t in all_coo])
    else:
        # Along a dense dimension each has its own rows, with zeros beside its values.
        pieces, begin = [], 0
        for t, a in zip(all_coo, arrays, strict=True):
            at = dim - first.sparse_dim + 1
            value = values_of(t)
            before, after = list(value.shape), list(value.shape)
            before[at], after[at] = begin, shape[dim] - begin - a.shape[dim]
            pieces.append(_cat((value.new_zeros(before), value, value.new_zeros(after)), at))
            begin += a.shape[dim]
        values = _cat(pieces)
    sorted_ = dim == 0 and all(a.coalesced for a in arrays)
    made = coo(wrap(np.concatenate(indices, axis=1)), values, shape, sorted_ and first.sparse_dim > 0)
    return like(made, tensors[0])


@OPS["stack"].kernel_of("sparse")
def _stack(tensors, dim=0):
    return _cat_sparse([_unsqueeze(t, dim) for t in tensors], dim)


@OPS["unbind"].kernel_of("sparse")
def _unbind(input, dim=0):
    return tuple([_select(input, dim, i) for i in range(input.shape[dim])])


@OPS["conj_physical"].kernel_of("sparse")
def _conj_physical(input):
    return with_values(input, values_of(input).conj_physical())


@OPS["real_part"].kernel_of("sparse")
def _real(input):
    return with_values(input, values_of(input).real)


@OPS["imag_part"].kernel_of("sparse")
def _imag(input):
    return with_values(input, values_of(input).imag)


# -- reductions -----------------------------------------------------------------------------------------------------------


@OPS["sum"].kernel_of("sparse")
def _sum(input, dim=None, keepdim=False, dtype=None):
    return sum_of(input, dim, keepdim, dtype)


def sum_of(x: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The sum over `dim`: sparse, as long as a sparse dimension is left; dense else."""
    form = x
    d = dtype or (dtypes.int64 if x.dtype.category < dtypes.FLOATING else x.dtype)
    if dim is None or isinstance(dim, (tuple, list)) and not dim:
        total = values_of(x).sum(dtype=d)
        return total.reshape((1,) * x.ndim) if keepdim else total
    x = to_coo(x)
    array = pattern_of(x)
    dims = sorted({wrap_dim(d, array.ndim) for d in (dim if isinstance(dim, (tuple, list)) else (dim,))})
    n = array.sparse_dim
    values = values_of(x).to(d)
    dense = [e - n + 1 for e in dims if e >= n]
    if dense:
        values = values.sum(dense, keepdim=keepdim)
    gone = [e for e in dims if e < n]
    shape = [1 if keepdim and d in dims else s for d, s in enumerate(array.shape) if keepdim or d not in dims]
    if len(gone) == n and not keepdim:
        return values.sum(0)
    indices = host("sum", array.indices)[0]
    if keepdim:
        indices = indices.copy()
        indices[gone] = 0
    else:
        indices = np.delete(indices, gone, axis=0)
    made = coo(wrap(np.ascontiguousarray(indices)), values, shape, array.coalesced and not gone)
    if not gone:
        return made
    made = coalesce(made)
    return like(made, form) if isinstance(form._array, CompressedArray) and keepdim else made


@OPS["any"].kernel_of("sparse")
def _any(input, dim=None, keepdim=False, dtype=None):
    if dim is None:
        return values_of(_settled(input)).any()
    x = _settled(to_coo(input))
    return sum_of(with_values(x, (values_of(x) != 0).to(dtypes.int64)), dim, keepdim) != 0


@OPS["norm"].kernel_of("sparse")
def _norm(input, p="fro", dim=None, keepdim=False, dtype=None):
    if dim is not None and len(dim if isinstance(dim, (tuple, list)) else (dim,)) != input.ndim:
        raise RuntimeError(f"norm: only full reductions are supported for sparse tensors, got dim={dim}")
    order: Any = 2 if p in ("fro", None) else p
    if isinstance(order, str) or order < 0:
        raise no_kernel(f"norm: p={p!r} is not built for sparse tensors; use to_dense() first")
    return OPS["norm"].function(values_of(_settled(input)).reshape(-1), order, dtype=dtype)


# -- products -------------------------------------------------------------------------------------------------------------


def _elements(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Values, rows and columns of the matrix `x`, one for each element."""
    array = pattern_of(x)
    if isinstance(array, CooArray) and array.sparse_dim != 2 or values_of(x).ndim != 1 + 2 * bool(getattr(array, "block", ())):
        raise no_kernel(f"a product of a hybrid sparse matrix is not built: {array.layout} {tuple(array.shape)}; use to_dense() first")
    if isinstance(array, CooArray):
        rows, columns = places(array)
        return values_of(x), wrap(np.ascontiguousarray(rows)), wrap(np.ascontiguousarray(columns))
    rows, columns = (np.ascontiguousarray(p).reshape(-1) for p in np.broadcast_arrays(*places(array)))
    return values_of(x).reshape(-1), wrap(rows), wrap(columns)


def _check_matrices(name: str, a: Tensor, b: Tensor) -> None:
    if a.ndim != 2 or b.ndim != 2:
        raise RuntimeError(f"{name}: matrices expected, got {a.ndim}D and {b.ndim}D tensors")
    if a.shape[1] != b.shape[0]:
        raise RuntimeError(
            f"{name}: mat1 and mat2 shapes cannot be multiplied ({a.shape[0]}x{a.shape[1]} and {b.shape[0]}x{b.shape[1]})"
        )
    if a.dtype is not b.dtype:
        raise RuntimeError(f"{name}: expected both matrices to have the same dtype, but got: {a.dtype} != {b.dtype}")


def matrix_product(a: Tensor, b: Tensor) -> Tensor:
    """``a @ b`` of matrices, one of them sparse at least; the gradient of a sparse one is sparse."""
    _check_matrices("mm", a, b)
    if is_sparse(a) and is_sparse(b):
        return _sparse_product(a, b)
    if is_sparse(a):
        values, rows, columns = _elements(a)
        return OPS["sparse_dense_product"].function(values, rows, columns, b, a.shape[0])
    values, rows, columns = _elements(b)
    return OPS["sparse_dense_product"].function(values, columns, rows, a.t(), b.shape[1]).t()


def _sparse_product(a: Tensor, b: Tensor) -> Tensor:
    """The product of two sparse matrices: for each element of `a`, those of `b` in the row of its column."""
    x, y = _settled(to_coo(a)), _settled(to_coo(b))
    rows, inner = host("mm", x._array.indices)[0]
    other, columns = host("mm", y._array.indices)[0]
    starts = starts_of(other, y.shape[0])
    counts = np.diff(starts)[inner]
    left = np.repeat(np.arange(len(rows)), counts)
    right = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(starts[inner], counts)
    values = values_of(x).index_select(0, wrap(left)) * values_of(y).index_select(0, wrap(right))
    made = coo(wrap(np.stack((rows[left], columns[right]))), values, (a.shape[0], b.shape[1]))
    made = coalesce(made)
    form = a._array.layout
    return like(made, a) if form in COMPRESSED[:2] else to_layout("mm", made, COMPRESSED[0]) if form in COMPRESSED else made


def _recorded(op: Any, args: tuple[Any, ...], compute: Any) -> Tensor:
    """What ``compute()`` gives, with the history of `op` itself: gradients of sparse operands are what its own rule says."""
    with _unrecorded():
        made = compute()
    return _dispatch._recorded(op, args, made)


@OPS["mm"].kernel_of("sparse")
def _mm(input, mat2):
    if is_sparse(input) and is_sparse(mat2):
        return matrix_product(input, mat2)
    return _recorded(OPS["mm"], (input, mat2), lambda: matrix_product(input, mat2))


@OPS["mv"].kernel_of("sparse")
def _mv(input, vec):
    if input.ndim != 2 or vec.ndim != 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got {input.ndim}, {input.ndim}, {vec.ndim}")
    if input.shape[1] != vec.shape[0]:
        rows, columns = input.shape
        raise RuntimeError(f"mv: size mismatch, got input ({rows}), mat ({rows}x{columns}), vec ({vec.shape[0]})")
    if not is_sparse(input) or is_sparse(vec):
        raise no_kernel("mv: not built for a sparse vector; use to_dense() first")
    return OPS["mm"].function(input, vec.unsqueeze(1)).squeeze(1)


@OPS["bmm"].kernel_of("sparse")
def _bmm(input, mat2):
    if input.ndim != 3 or mat2.ndim != 3 or input.shape[0] != mat2.shape[0] or input.shape[2] != mat2.shape[1]:
        raise RuntimeError(f"bmm: batches of matrices expected, got shapes {tuple(input.shape)} and {tuple(mat2.shape)}")
    if is_sparse(mat2) and not is_sparse(input):
        return _bmm(_transposed(mat2, 1, 2), input.transpose(1, 2)).transpose(1, 2)
    if is_sparse(mat2):
        raise no_kernel("bmm: not built for two sparse batches; use to_dense() for one of them")
    each = [one_of_batch(input, i) if isinstance(input._array, CompressedArray) else _select(input, 0, i) for i in range(input.shape[0])]
    if not each:
        return mat2.new_zeros((0, input.shape[1], mat2.shape[2]))
    return OPS["stack"].function([matrix_product(a, b) for a, b in zip(each, mat2.unbind(0), strict=True)])


@OPS["matmul"].kernel_of("sparse")
def _matmul(input, other):
    n, m = input.ndim, other.ndim
    if n == 2 and m == 2:
        return OPS["mm"].function(input, other)
    if n == 2 and m == 1:
        return _mv(input, other)
    if n == 1 and m == 2:
        return _mv(other.t(), input)
    if n == 1 and m == 1:
        return sum_of(_mul(input, other))
    if n == 3 and m == 3:
        return OPS["bmm"].function(input, other)
    if is_sparse(other) and m == 2 and not is_sparse(input):
        return OPS["mm"].function(input.reshape(-1, input.shape[-1]), other).reshape(*input.shape[:-1], other.shape[1])
    if is_sparse(input) and n == 2 and not is_sparse(other):
        return _matmul(other.mT, input.t()).mT
    raise no_kernel(f"matmul: not built for sparse tensors of shapes {tuple(input.shape)} and {tuple(other.shape)}; use to_dense() first")


@OPS["nn.functional.linear"].kernel_of("sparse")
def _linear(input, weight, bias=None):
    made = _matmul(input, weight.t())
    return made if bias is None else made + bias


@OPS["addmm"].kernel_of("sparse")
def _addmm(input, mat1, mat2, beta=1, alpha=1):
    return _added(input, OPS["mm"].function(mat1, mat2), beta, alpha)


@OPS["addmv"].kernel_of("sparse")
def _addmv(input, mat, vec, beta=1, alpha=1):
    return _added(input, _mv(mat, vec), beta, alpha)


def _added(input: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    """``beta * input + alpha * product``; nothing of `input` counts where `beta` is 0."""
    scaled = product if alpha == 1 else product * alpha
    if beta == 0:
        return scaled
    input = input if beta == 1 else input * beta
    return scaled + input if is_sparse(scaled) and is_sparse(input) else input + scaled


@OPS["pca_lowrank"].kernel_of("sparse")
def _pca_lowrank(A, q=None, center=True, niter=2):
    m, n = A.shape[-2:]
    q = min(6, m, n) if q is None else q
    means = to_dense(sum_of(A, 0)) / m if center else None
    return OPS["svd_lowrank"].function(A, q, niter, None if means is None else means.expand(m, n))


@OPS["lobpcg"].kernel_of("sparse")
def _lobpcg(A, k=None, B=None, *rest):
    # All eigenvalues are computed, of dense matrices, whatever the layout.
    given: Any = (A, k, B, *rest)
    return OPS["lobpcg"].function(*[to_dense(x) if is_sparse(x) else x for x in given])


# -- in place -------------------------------------------------------------------------------------------------------------


@OPS["zero"].kernel_of("sparse_")
def _zero_(input):
    array = pattern_of(input)
    if isinstance(array, CompressedArray):
        array.values.zero_()
    else:
        empty = wrap(np.zeros((array.sparse_dim, 0), np.int64))
        input._array = CooArray(empty, array.values.new_zeros((0, *array.values.shape[1:])), array.shape, True)
    bump(input)
    return input


@OPS["fill"].kernel_of("sparse_")
def _fill_(input, value):
    array = pattern_of(input)
    if not isinstance(array, CompressedArray):
        raise no_kernel("fill_: not built for tensors of the layout torch.sparse_coo; fill values(), or use to_dense() first")
    array.values.fill_(value)
    bump(input)
    return input


def scale_in_place(op: Any) -> Any:
    def scale(input: Tensor, *rest: Any) -> Tensor:
        from .answer import store

        if not is_sparse(input):
            return store(op.public_name, input, op.by_kind["sparse"](input, *rest))
        if _number(rest[0]) and not _state.grad_enabled() and op.name != "floor_divide":
            getattr(input._array.values, f"{op.name}_")(*rest)
            bump(input)
            return input
        return store(op.public_name, input, op.by_kind["sparse"](input, *rest))

    return scale


OPS["mul"].kernel_of("sparse_")(scale_in_place(OPS["mul"]))


__all__ = ["SparseArray", "added_up", "kernel_for", "matrix_product", "sum_of", "to_dense", "union"]
