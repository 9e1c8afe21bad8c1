"""How a MaskedTensor answers operations: by their kind where that says it, else by name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flambeau as fb

from ..._aten import is_pointwise
from ..._over_tensor import Answers, elements_of, name_called
from ...tensor import Tensor
from ...utils import _pytree as pytree
from .core import MaskedTensor

Answer = Callable[[Any, Any, Any], Any]

# Functions and methods that are no operations, which run on the elements and on the mask alike.
_ON_BOTH = frozenset(("atleast_1d", "atleast_2d", "atleast_3d", "view", "__getitem__", "T", "mT", "H", "mH"))
# Those which run on the elements and leave the mask as it is.
_ON_ELEMENTS = frozenset(
    """
    to type float double half bfloat16 int long short bool ones_like zeros_like full_like empty_like rand_like randn_like
    """.split()  # noqa: SIM905  # a list of words reads better
)


_answers = Answers()


@functools.cache
def answer_of(func: Any) -> Answer | None:
    """How the public function or method `func` is answered; None for what is no operation, or not one of those."""
    from .. import _ops

    op = getattr(func, "flambeau_op", None)
    bare = name_called(func)
    if bare in _answers:
        return _answers[bare]
    if bare in _ON_BOTH:
        return _on_both
    if bare in _ON_ELEMENTS:
        return _on_elements
    if op is None:
        return None
    if op.elements == "moved":
        return _on_both
    if op.elements in ("reduced", "along"):
        known = hasattr(_ops, bare)
        return functools.partial(_reduced if op.elements == "reduced" else _along, bare) if known else None
    return _elementwise if is_pointwise(op) else None


def _mask(x: Any) -> Any:
    return x._masked_mask if isinstance(x, MaskedTensor) else x


def _masked(args: Any, kwargs: Any) -> list[MaskedTensor]:
    return [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, MaskedTensor)]


def _wrapped(data: Any, mask: Any) -> Any:
    """Tensors of a result, each with its mask."""
    if isinstance(data, Tensor):
        return MaskedTensor(data, mask)
    return type(data)(map(_wrapped, data, mask)) if isinstance(data, (list, tuple)) and not hasattr(data, "_fields") else data


@_answers("kron")
def _on_both(func: Any, args: Any, kwargs: Any) -> Any:
    """The operation on the elements, and on the masks; every tensor among the operands' lists has a mask.

    Raises: TypeError for lists that mix MaskedTensors with others.
    """
    for x in args:
        if isinstance(x, (list, tuple)) and any(isinstance(y, MaskedTensor) for y in x):
            for y in x:
                if isinstance(y, Tensor) and not isinstance(y, MaskedTensor):
                    raise TypeError(f"{func.__name__}: mask must have dtype bool, but a {type(y).__name__} among the tensors has no mask")
    data = func(*pytree.tree_map(elements_of, args), **pytree.tree_map(elements_of, kwargs))
    return _wrapped(data, func(*pytree.tree_map(_mask, args), **pytree.tree_map(_mask, kwargs)))


def _on_elements(func: Any, args: Any, kwargs: Any) -> Any:
    first = _masked(args, kwargs)[0]
    data = func(*pytree.tree_map(elements_of, args), **pytree.tree_map(elements_of, kwargs))
    return MaskedTensor(data, first._masked_mask)


def _elementwise(func: Any, args: Any, kwargs: Any) -> Any:
    """An operation of the elements. Raises: ValueError for two masks that differ."""
    operands = _masked(args, kwargs)
    mask = operands[0]._masked_mask
    for other in operands[1:]:
        same = other._masked_mask is mask or other._masked_mask.shape == mask.shape and bool((other._masked_mask == mask).all())
        if not same:
            raise ValueError(
                f"{func.__name__}: Input masks must match. If you need support for this, combine them first: masked_tensor(x.get_data(), "
                "x.get_mask() & y.get_mask())"
            )
    data = func(*pytree.tree_map(elements_of, args), **pytree.tree_map(elements_of, kwargs))
    target = args[0] if args else None
    if isinstance(target, MaskedTensor) and data is target._elements:
        return target                                 # stored in place
    return pytree.tree_map(lambda x: MaskedTensor(x, mask if mask.shape == x.shape else mask.expand(x.shape)), data)


def _reduced(name: str, func: Any, args: Any, kwargs: Any) -> Any:
    from .. import _ops

    op = getattr(_ops, name)
    first, *rest = args
    given = dict(kwargs)
    if name == "norm" and "p" in given:
        order = given.pop("p")
        given.setdefault("ord", 2.0 if order in (None, "fro") else order)
    if rest and name != "norm" and len(rest) > 1 and name not in ("var", "std"):  # keepdim by position
        given["keepdim"] = rest.pop()
    data = op(first._elements, *rest, mask=first._masked_mask, **given)
    return MaskedTensor(data, _ops._output_mask(op, first._elements, *rest, mask=first._masked_mask, **given))


def _along(name: str, func: Any, args: Any, kwargs: Any) -> Any:
    from .. import _ops

    first, *rest = args
    given = {key: value for key, value in kwargs.items() if not (key == "dtype" and value is None)}
    return MaskedTensor(getattr(_ops, name)(first._elements, *rest, mask=first._masked_mask, **given), first._masked_mask)


@_answers("all")
def _all(func: Any, args: Any, kwargs: Any) -> Any:
    return _truth(func, args, kwargs, True)


@_answers("any")
def _any(func: Any, args: Any, kwargs: Any) -> Any:
    return _truth(func, args, kwargs, False)


def _truth(func: Any, args: Any, kwargs: Any, neutral: bool) -> Any:
    first, *rest = args
    filled = fb.where(first._masked_mask, first._elements.bool(), neutral)
    return MaskedTensor(func(filled, *rest, **kwargs), fb.any(first._masked_mask, *rest, **kwargs))


@_answers("where")
def _where(func: Any, args: Any, kwargs: Any) -> Any:
    """``where(condition, input, other)``: elements and masks of both are chosen from alike; without a mask all count."""
    condition, *chosen = args
    if isinstance(condition, MaskedTensor) or len(chosen) != 2 or kwargs:
        raise TypeError("where: a MaskedTensor is chosen from; condition must be a Tensor of bool, input and other be given")
    masks = [x._masked_mask if isinstance(x, MaskedTensor) else True for x in chosen]
    data = func(condition, *map(elements_of, chosen))
    return MaskedTensor(data, func(condition, *masks).expand(data.shape))


@_answers("copy")
def _copy(func: Any, args: Any, kwargs: Any) -> Any:
    target, source, *rest = args
    func(elements_of(target), elements_of(source), *rest, **kwargs)
    if isinstance(target, MaskedTensor) and isinstance(source, MaskedTensor):
        target._masked_mask.copy_(source._masked_mask)
    return target


@_answers("__iter__")
def _iterated(func: Any, args: Any, kwargs: Any) -> Any:
    (x,) = args
    return iter([MaskedTensor(d, m) for d, m in zip(x._elements, x._masked_mask, strict=True)])


@_answers("__setitem__")
def _set(func: Any, args: Any, kwargs: Any) -> Any:
    target, key, value = args
    if not isinstance(target, MaskedTensor):
        raise TypeError("a MaskedTensor cannot be stored in a Tensor, which has no mask; use to_tensor(value)")
    target._elements[elements_of(key)] = elements_of(value)
    target._masked_mask[elements_of(key)] = value._masked_mask if isinstance(value, MaskedTensor) else True


