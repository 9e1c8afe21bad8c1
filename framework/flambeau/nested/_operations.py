"""How a nested tensor answers operations: on the values where parts do not matter, else on each part."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flambeau as fb

from .._aten import is_pointwise
from .._over_tensor import Answers, elements_of, name_called
from ..tensor import Tensor
from ..utils import _pytree as pytree
from ._construction import to_padded_tensor
from ._nested_tensor import NestedInt, NestedTensor

Answer = Callable[[Any, Any, Any], Any]

# Methods and functions that are no operations, which treat every element alike.
_ELEMENTS = frozenset(
    """
    bfloat16 bool double empty_like fill float full_like half int long masked_fill ones_like rand_like randn_like short to type zero
    zeros_like
    """.split()  # noqa: SIM905  # a list of words reads better
)


_answers = Answers()


@functools.cache
def answer_of(func: Any) -> Answer | None:
    """How the public function or method `func` is answered; None for what is no operation, or not one of those."""
    op = getattr(func, "flambeau_op", None)
    bare = name_called(func)
    if bare in _answers:
        return _answers[bare]
    if bare in _ELEMENTS or op is not None and is_pointwise(op):
        return functools.partial(_elementwise, bare)
    return functools.partial(_BY_ELEMENTS[op.elements], bare) if op is not None and op.elements in _BY_ELEMENTS else None


def _nested(args: Any, kwargs: Any) -> list[NestedTensor]:
    return [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, NestedTensor)]


def _bound(names: str, args: Any, kwargs: Any, *defaults: Any) -> list[Any]:
    """The arguments of these names, given by position or by name; `defaults` are those of the last ones."""
    listed = names.split()
    found = list(args[: len(listed)])
    for i in range(len(found), len(listed)):
        left = len(listed) - i
        if listed[i] not in kwargs and left > len(defaults):
            raise TypeError(f"missing a required argument: '{listed[i]}'")
        found.append(kwargs.get(listed[i], defaults[-left] if left <= len(defaults) else None))
    return found


def _shape(x: Any) -> str:
    return f"({', '.join(map(str, x.shape))})"


def _dim(nt: NestedTensor, dim: int, name: str) -> int:
    """The dimension of the values that is `dim` of `nt`. Raises: RuntimeError for that of the batch; IndexError out of range."""
    if not -nt.ndim <= dim < nt.ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-nt.ndim}, {nt.ndim - 1}], but got {dim})")
    dim %= nt.ndim
    if dim == 0:
        raise RuntimeError(f"{name}(): not supported for NestedTensor on dim=0")
    return dim - 1


def _not_ragged(nt: NestedTensor, dim: int, name: str) -> int:
    at = _dim(nt, dim, name)
    if at == nt._ragged_idx - 1:
        raise RuntimeError(f"{name}(): not supported for NestedTensor on ragged dim")
    return at


def _wrapped(nt: NestedTensor, made: Any, ragged_idx: int | None = None) -> Any:
    if isinstance(made, Tensor):
        return nt._alike(made, ragged_idx)
    return tuple([_wrapped(nt, x, ragged_idx) for x in made]) if isinstance(made, (list, tuple)) else made


# -- elements --------------------------------------------------------------------------------------------------------------


def _elementwise(name: str, func: Any, args: Any, kwargs: Any) -> Any:
    """An operation of the elements; Tensors beside nested ones broadcast to them."""
    first, made = _of_elements(name, func, args, kwargs)
    if made is first._elements:
        return first                                  # stored in place, or nothing to do
    return _wrapped(first, made)


def _of_elements(name: str, func: Any, args: Any, kwargs: Any) -> tuple[NestedTensor, Any]:
    """The first nested tensor, and what an operation gives of the elements of all."""
    first, *others = _nested(args, kwargs)
    for other in others:
        if other.shape != first.shape and (other.ndim != first.ndim or other.shape[other._ragged_idx] != first.shape[first._ragged_idx]):
            raise RuntimeError(
                f"cannot call binary pointwise function {name} with inputs of shapes {_shape(first)} and {_shape(other)}: nested tensors "
                "go together if they have the same offsets; make one by nested_tensor_from_jagged(values, other.offsets())"
            )

    def lined_up(x: Any) -> Any:
        if isinstance(x, NestedTensor) or not isinstance(x, Tensor) or not x.ndim:
            return elements_of(x)
        return _beside(first, x, name)

    return first, func(*pytree.tree_map(lined_up, args), **pytree.tree_map(lined_up, kwargs))


def _beside(nt: NestedTensor, x: Tensor, name: str) -> Tensor:
    """A Tensor that broadcasts to the shape of `nt`, as one that broadcasts to its values."""
    if x.ndim > nt.ndim:
        raise RuntimeError(f"cannot call binary pointwise function {name} with inputs of shapes {_shape(nt)} and {_shape(x)}")
    at, padded = nt._ragged_idx, x.reshape((1,) * (nt.ndim - x.ndim) + tuple(x.shape))
    batch = len(nt)
    if padded.shape[at] == 1:
        if padded.shape[0] == 1:
            return padded.squeeze(0)
        if padded.shape[0] == batch and nt._lengths is None:
            rows = fb.repeat_interleave(padded.squeeze(at), fb.tensor(nt._sizes()), 0)
            return rows.movedim(0, at - 1)
    elif padded.shape[0] in (1, batch) and nt._lengths is None and padded.shape[at] == max(nt._sizes(), default=0):
        expanded = padded.expand(batch, *padded.shape[1:])
        return fb.cat([part.narrow(at - 1, 0, n) for part, n in zip(expanded.unbind(0), nt._sizes(), strict=True)], at - 1)
    raise RuntimeError(
        f"cannot call binary pointwise function {name} with inputs of shapes {_shape(nt)} and {_shape(x)}: a Tensor beside a nested one "
        "has size 1, or that of the longest part, in the ragged dimension"
    )


# -- reductions --------------------------------------------------------------------------------------------------------------


def _reduced(name: str, func: Any, args: Any, kwargs: Any) -> Any:
    nt, *rest = args
    if not isinstance(nt, NestedTensor) or rest and isinstance(rest[0], Tensor):
        return _elementwise(name, func, args, kwargs)  # maximum of two, say
    given = dict(kwargs)
    dim = given.pop("dim", None) if name != "norm" or "dim" in given else None
    if name != "norm" and rest and not isinstance(rest[0], bool):
        dim, rest = rest[0], rest[1:]
    keepdim = given.pop("keepdim", rest.pop(0) if rest and isinstance(rest[0], bool) else False)
    if dim is None or dim == ():
        values = nt._elements if nt._lengths is None else nt.contiguous()._elements
        return func(values, *rest, **given)
    if keepdim:
        given["keepdim"] = True                       # which not every reduction takes
    several = isinstance(dim, (tuple, list))
    dims = sorted({d % nt.ndim if -nt.ndim <= d < nt.ndim else _dim(nt, d, name) for d in (dim if several else (dim,))})
    at = nt._ragged_idx
    if 0 in dims:
        if at not in dims:
            raise RuntimeError(
                f"{name}(): reducing along the batch dimension but not the ragged dimension is not supported for nested "
                "tensors"
            )
        values = nt._elements if nt._lengths is None else nt.contiguous()._elements
        made = func(values, dim=tuple(d - 1 for d in dims if d), **given)
        return made.unsqueeze(0) if keepdim else made
    if at in dims:
        if len(dims) > 1:
            raise RuntimeError(f"{name}(): reducing along a ragged and non-batch dimension is not supported for nested tensors")
        made = [func(part, *rest, dim=at - 1, **given) for part in nt._parts()]
        if isinstance(made[0], tuple):
            return type(made[0])([fb.stack(column) for column in zip(*made, strict=True)])
        return fb.stack(made)
    inner = [d - 1 for d in dims]
    made = func(nt._elements, *rest, dim=tuple(inner) if several else inner[0], **given)
    ragged = at if keepdim else at - sum(d < at for d in dims)
    if isinstance(made, tuple):
        return type(made)([_wrapped(nt, x, ragged) for x in made])
    return _wrapped(nt, made, ragged)


def _along_one(name: str, func: Any, args: Any, kwargs: Any) -> Any:
    """An operation along one dimension that keeps sizes; along the ragged one, part by part."""
    nt, *rest = args
    given = dict(kwargs)
    dim = given.pop("dim", None)
    if dim is None:
        if not rest:
            raise TypeError(f"{name}(): dim must be given for a nested tensor")
        dim, *rest = rest
    at = _dim(nt, dim, name)
    if at != nt._ragged_idx - 1:
        return _wrapped(nt, func(nt._elements, at, *rest, **given))
    contiguous = nt if nt._lengths is None else _contiguous(None, (nt,), {})
    return _wrapped(contiguous, fb.cat([func(part, at, *rest, **given) for part in contiguous._parts()], at))


@_answers("layer_norm", named=True)
@_answers("rms_norm", named=True)
def _over_last(name: str, func: Any, args: Any, kwargs: Any) -> Any:
    nt, shape, *rest = args
    if len(shape) > nt.ndim - 1 - nt._ragged_idx:
        raise RuntimeError(
            f"{name}(): normalizing over the ragged dimension is not supported for nested tensors, got {tuple(shape)} of "
            f"{_shape(nt)}"
        )
    return _wrapped(nt, func(nt._elements, shape, *rest, **kwargs))


@_answers("binary_cross_entropy", named=True)
@_answers("binary_cross_entropy_with_logits", named=True)
@_answers("gaussian_nll_loss", named=True)
@_answers("hinge_embedding_loss", named=True)
@_answers("huber_loss", named=True)
@_answers("kl_div", named=True)
@_answers("l1_loss", named=True)
@_answers("mse_loss", named=True)
@_answers("poisson_nll_loss", named=True)
@_answers("smooth_l1_loss", named=True)
@_answers("soft_margin_loss", named=True)
def _loss(name: str, func: Any, args: Any, kwargs: Any) -> Any:
    """A loss for each element, or their mean or sum, of all parts."""
    if any(x._lengths is not None for x in _nested(args, kwargs)) or kwargs.get("reduction") == "batchmean":
        raise RuntimeError(f"{name}(): not supported for nested tensors with holes between their parts, nor reduction='batchmean'")
    first, made = _of_elements(name, func, args, kwargs)
    return _wrapped(first, made) if made.ndim else made


# -- products ----------------------------------------------------------------------------------------------------------------


@_answers("linear")
def _linear(func: Any, args: Any, kwargs: Any) -> Any:
    nt, *rest = args
    if not isinstance(nt, NestedTensor) or _nested(rest, kwargs):
        raise RuntimeError("linear(): the input alone may be a nested tensor")
    _not_ragged(nt, -1, "linear")
    return _wrapped(nt, func(nt._elements, *rest, **kwargs))


@_answers("bmm")
@_answers("matmul")
@_answers("__matmul__")
def _matmul(func: Any, args: Any, kwargs: Any) -> Any:
    """A nested tensor times a matrix, or part by part times the matrices of a batch or of another nested tensor."""
    a, b = args
    if isinstance(a, NestedTensor) and not isinstance(b, NestedTensor) and b.ndim == 2 and a._ragged_idx != a.ndim - 1:
        return _wrapped(a, func(a._elements, b))
    nt = a if isinstance(a, NestedTensor) else b
    if nt._lengths is None and a.ndim == b.ndim == 3:
        if isinstance(a, NestedTensor) and not isinstance(b, NestedTensor) and a._ragged_idx == 1 and len(b) == len(a):
            return _wrapped(a, fb.cat([x @ y for x, y in zip(a._parts(), b, strict=True)], 0), 1)
        same = isinstance(a, NestedTensor) and isinstance(b, NestedTensor) and a.shape[a._ragged_idx] == b.shape[b._ragged_idx]
        if same and a._ragged_idx == 2 and b._ragged_idx == 1:
            return fb.stack([x @ y for x, y in zip(a._parts(), b._parts(), strict=True)])
    raise RuntimeError(f"matmul(): not supported between inputs of shapes {_shape(a)} and {_shape(b)}")


@_answers("scaled_dot_product_attention")
def _attention(func: Any, args: Any, kwargs: Any) -> Any:
    """Attention of each sequence to itself: queries, keys and values ``(B, heads, ragged, width)``."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given = dict(zip(names, args, strict=False)) | kwargs
    q, k, v = (given.pop(name) for name in names[:3])
    if not all(isinstance(x, NestedTensor) and x.ndim == 4 and x._ragged_idx == 2 for x in (q, k, v)):
        raise RuntimeError(
            f"scaled_dot_product_attention(): nested query, key and value must be (B, heads, ragged, width), got {_shape(q)}, "
            f"{_shape(k)} and {_shape(v)}"
        )
    if k.shape[2] != v.shape[2] or len(q) != len(k):
        raise RuntimeError(f"scaled_dot_product_attention(): keys {_shape(k)} and values {_shape(v)} must have the same offsets")
    if given.get("attn_mask") is not None:
        raise RuntimeError("scaled_dot_product_attention(): attn_mask must not be given for nested tensors")
    parts = zip(q._parts(), k._parts(), v._parts(), strict=True)
    made = [func(x.unsqueeze(0), y.unsqueeze(0), z.unsqueeze(0), **given).squeeze(0) for x, y, z in parts]
    contiguous = q if q._lengths is None else _contiguous(None, (q,), {})
    return _wrapped(contiguous, fb.cat(made, 1), 2)


@_answers("embedding")
def _embedding(func: Any, args: Any, kwargs: Any) -> Any:
    nt, *rest = args
    if not isinstance(nt, NestedTensor):
        raise RuntimeError("embedding(): the indices alone may be a nested tensor")
    return _wrapped(nt, func(nt._elements, *rest, **kwargs))


# -- shapes ------------------------------------------------------------------------------------------------------------------


@_answers("unbind")
def _unbind(func: Any, args: Any, kwargs: Any) -> Any:
    nt, dim = _bound("input dim", args, kwargs, 0)
    if dim % nt.ndim:
        raise RuntimeError("unbind(): only supported for NestedTensor on dim=0")
    return nt._parts()


@_answers("__iter__")
def _iterated(func: Any, args: Any, kwargs: Any) -> Any:
    return iter(args[0]._parts())


@_answers("__getitem__")
def _item(func: Any, args: Any, kwargs: Any) -> Any:
    nt, key = args
    keys = list(key) if isinstance(key, tuple) else [key]
    if Ellipsis in [k for k in keys if not isinstance(k, Tensor)]:
        at = next(i for i, k in enumerate(keys) if k is Ellipsis)
        used = sum(k is not None and k is not Ellipsis for k in keys)
        keys[at : at + 1] = [slice(None)] * (nt.ndim - used)
    if not keys:
        return nt
    if isinstance(keys[0], int) and not isinstance(keys[0], bool):
        if not -len(nt) <= keys[0] < len(nt):
            raise IndexError(f"index {keys[0]} is out of bounds for dimension 0 with size {len(nt)}")
        part = nt._parts()[keys[0]]
        return part[tuple(keys[1:])] if keys[1:] else part
    if keys[0] != slice(None) if isinstance(keys[0], slice) else True:
        raise RuntimeError("slice(): not supported for NestedTensor on dim=0")
    ragged = nt._ragged_idx
    before = keys[1:ragged]
    if any(not isinstance(k, (int, slice)) for k in keys[1:]) or ragged < len(keys) and keys[ragged] != slice(None):
        raise RuntimeError("slice(): not supported for NestedTensor on ragged dim; index its parts")
    return _wrapped(nt, nt._elements[tuple(keys[1:])], ragged - sum(isinstance(k, int) for k in before))


@_answers("transpose")
@_answers("swapaxes")
@_answers("swapdims")
def _transpose(func: Any, args: Any, kwargs: Any) -> Any:
    nt, one, two = _bound("input dim0 dim1", args, kwargs)
    a, b = _dim(nt, one, "transpose") + 1, _dim(nt, two, "transpose") + 1
    at = nt._ragged_idx
    return _wrapped(nt, nt._elements.transpose(a - 1, b - 1), b if at == a else a if at == b else at)


@_answers("mT")
def _matrix_transpose(func: Any, args: Any, kwargs: Any) -> Any:
    return _transpose(func, (args[0], -2, -1), {})


@_answers("permute")
def _permute(func: Any, args: Any, kwargs: Any) -> Any:
    nt, *dims = args
    order = [d % nt.ndim for d in (dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims or kwargs["dims"])]
    if order[:1] != [0]:
        raise RuntimeError("permute(): not supported for NestedTensor on dim=0")
    return _wrapped(nt, nt._elements.permute([d - 1 for d in order[1:]]), order.index(nt._ragged_idx))


@_answers("unsqueeze")
def _unsqueeze(func: Any, args: Any, kwargs: Any) -> Any:
    nt, dim = _bound("input dim", args, kwargs)
    at = dim % (nt.ndim + 1)
    if at == 0:
        raise RuntimeError("unsqueeze(): not supported for NestedTensor on dim=0")
    return _wrapped(nt, nt._elements.unsqueeze(at - 1), nt._ragged_idx + (at <= nt._ragged_idx))


@_answers("squeeze")
def _squeeze(func: Any, args: Any, kwargs: Any) -> Any:
    nt, dim = _bound("input dim", args, kwargs, None)
    if not isinstance(dim, int):
        raise RuntimeError("squeeze(): one dimension must be given for a nested tensor")
    at = _not_ragged(nt, dim, "squeeze")
    gone = nt._elements.shape[at] == 1 and at + 1 < nt._ragged_idx
    return _wrapped(nt, nt._elements.squeeze(at), nt._ragged_idx - gone)


@_answers("reshape")
@_answers("view")
def _view(func: Any, args: Any, kwargs: Any) -> Any:
    nt, *sizes = args
    if len(sizes) == 1 and isinstance(sizes[0], fb.dtype):
        return _wrapped(nt, nt._elements.view(sizes[0]))
    wanted = list(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else list(sizes)
    named = [i for i, n in enumerate(wanted) if isinstance(n, NestedInt)]
    free = named or [i for i, n in enumerate(wanted) if not isinstance(n, NestedInt) and n == -1]
    if not free or free[0] == 0 or wanted[0] not in (len(nt), -1):
        raise RuntimeError(
            f"view(): cannot view shape {_shape(nt)} as {tuple(map(str, wanted))}: the batch stays, and -1 or its symbol is the "
            "ragged size"
        )
    at = free[0]
    inner = wanted[1:]
    inner[at - 1] = nt._elements.shape[nt._ragged_idx - 1]
    return _wrapped(nt, getattr(nt._elements, "reshape" if func.__name__ == "reshape" else "view")(inner), at)


@_answers("flatten")
def _flatten(func: Any, args: Any, kwargs: Any) -> Any:
    nt, start, end = _bound("input start_dim end_dim", args, kwargs, 0, -1)
    a, b = _dim(nt, start, "flatten"), _dim(nt, end, "flatten")
    at = nt._ragged_idx - 1
    if a <= at <= b and a != b:
        raise RuntimeError("flatten(): not supported for NestedTensor on ragged dim")
    return _wrapped(nt, nt._elements.flatten(a, b), at + 1 - (b - a if b < at else 0))


@_answers("unflatten")
def _unflatten(func: Any, args: Any, kwargs: Any) -> Any:
    nt, dim, sizes = _bound("input dim sizes", args, kwargs)
    at = _not_ragged(nt, dim, "unflatten")
    return _wrapped(nt, nt._elements.unflatten(at, sizes), nt._ragged_idx + (len(sizes) - 1 if at < nt._ragged_idx - 1 else 0))


@_answers("cat", named=True)
@_answers("stack", named=True)
def _joined(name: str, func: Any, args: Any, kwargs: Any) -> Any:
    tensors, dim = _bound("tensors dim", args, kwargs, 0)
    first = next(x for x in tensors if isinstance(x, NestedTensor))
    for x in tensors:
        if not isinstance(x, NestedTensor) or x.shape[x._ragged_idx] != first.shape[first._ragged_idx]:
            raise RuntimeError(f"{name}(): expects nested tensors with the same offsets, got {_shape(first)} and {_shape(x)}")
    ndim = first.ndim + (name == "stack")
    at = dim % ndim
    if at == 0:
        raise RuntimeError(f"{name}(): not supported for NestedTensor on dim=0")
    if name == "cat" and at == first._ragged_idx:
        raise RuntimeError("cat(): not supported for NestedTensor on ragged dim")
    ragged = first._ragged_idx + (name == "stack" and at <= first._ragged_idx)
    return _wrapped(first, func([x._elements for x in tensors], at - 1), ragged)


@_answers("chunk")
def _chunk(func: Any, args: Any, kwargs: Any) -> Any:
    nt, chunks, dim = _bound("input chunks dim", args, kwargs, 0)
    if dim % nt.ndim == 0:
        from ._construction import _packed

        parts, size = nt._parts(), -(-len(nt) // chunks)
        return tuple([_packed(list(parts[i : i + size])) for i in range(0, len(parts), size)])
    return _wrapped(nt, func(nt._elements, chunks, _not_ragged(nt, dim, "chunk")))


@_answers("narrow", named=True)
@_answers("select", named=True)
@_answers("split", named=True)
@_answers("split_with_sizes", named=True)
def _within(name: str, func: Any, args: Any, kwargs: Any) -> Any:
    """`split`, `select`, `narrow` and the like, within a dimension that is neither batch nor ragged."""
    nt, *rest = args
    given = dict(kwargs)
    where = 1 if name in ("split", "split_with_sizes") else 0
    dim = given.pop("dim", rest.pop(where) if len(rest) > where else 0)
    if name == "select" and dim in (0, -nt.ndim):
        return _item(func, (nt, *rest, *given.values()), {})
    at = _not_ragged(nt, dim, name)
    rest.insert(where, at)
    gone = name == "select" and at < nt._ragged_idx - 1
    return _wrapped(nt, func(nt._elements, *rest, **given), nt._ragged_idx - gone)


@_answers("expand")
def _expand(func: Any, args: Any, kwargs: Any) -> Any:
    nt, *sizes = args
    wanted = list(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else list(sizes)
    if len(wanted) != nt.ndim or wanted[0] not in (len(nt), -1):
        raise RuntimeError(f"expand(): cannot expand {_shape(nt)} to {tuple(map(str, wanted))}: the batch stays as it is")
    inner = [-1 if isinstance(n, NestedInt) else n for n in wanted[1:]]
    return _wrapped(nt, nt._elements.expand(inner))


@_answers("broadcast_tensors")
def _broadcast(func: Any, args: Any, kwargs: Any) -> Any:
    first = _nested(args, kwargs)[0]
    for x in args:
        if not isinstance(x, NestedTensor) or x.shape != first.shape:
            raise RuntimeError(f"broadcast_tensors(): expects nested tensors of one shape, got {_shape(first)} and {_shape(x)}")
    return tuple(args)


@_answers("contiguous")
def _contiguous(func: Any, args: Any, kwargs: Any) -> Any:
    nt = args[0]
    if nt.is_contiguous():
        return nt
    if nt._lengths is None:
        return _wrapped(nt, nt._elements.contiguous())
    from ._construction import _offsets_of

    return NestedTensor(fb.cat(nt._parts(), nt._ragged_idx - 1), _offsets_of(nt._lengths), None, nt._ragged_idx)


@_answers("to_padded_tensor")
def _padded(func: Any, args: Any, kwargs: Any) -> Any:
    return to_padded_tensor(*args, **kwargs)


@_answers("copy")
def _copy(func: Any, args: Any, kwargs: Any) -> Any:
    target, source = args[:2]
    if not isinstance(target, NestedTensor) or not isinstance(source, NestedTensor) or target._sizes() != source._sizes():
        raise RuntimeError("copy_(): expected nested tensors with parts of the same sizes")
    target._elements.copy_(source._elements)
    return target


# By what a declaration says of elements.
_BY_ELEMENTS = {"reduced": _reduced, "along": _along_one}
