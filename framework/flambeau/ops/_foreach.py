"""``_foreach_<op>`` and ``_foreach_<op>_``: an op on each tensor of a list."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from . import _derive
from ._spec import FOREACH, OPS, Op

_PREFIX = "_foreach_"


def function(name: str) -> Any:
    """The function `name`, such as ``_foreach_add_``, or None when there is no such op."""
    bare = name.removeprefix(_PREFIX)
    inplace = bare.endswith("_")
    bare = bare.rstrip("_")
    _derive.load_all()
    op = OPS.get(bare)
    each = None if op is None or op.name != bare else _in_place(op) if inplace else _fresh(op)
    if each is None:
        return None
    vectors = op.list_form.vectors

    def foreach(self: Any, *args: Any, **kwargs: Any) -> Any:
        if vectors:
            args, kwargs = tuple([_listed(x) for x in args]), {key: _listed(x) for key, x in kwargs.items()}
        made = [each(*one, **named) for one, named in _spread(name, self, args, kwargs)]
        return self if inplace else tuple(made)

    foreach.__name__ = foreach.__qualname__ = name
    foreach.__doc__ = f"`{bare}` of each tensor of a list{', in place' if inplace else ''}; list arguments go with it one by one."
    return foreach


def names() -> list[str]:
    """Of all functions that `function` knows."""
    _derive.load_all()
    found = [f"{_PREFIX}{key}{end}" for key in OPS for end in ("", "_")]
    return [name for name in found if function(name) is not None]


def _fresh(op: Op) -> Any:
    return op.list_form.run or (_derive.public("", op.name) if op.surface & FOREACH else None)


def _in_place(op: Op) -> Any:
    if op.list_form.store is not None or not op.surface & FOREACH:
        return op.list_form.store
    method = getattr(Tensor, f"{op.name}_", None)
    return None if method is None else lambda tensor, *args, **kwargs: method(tensor, *args, **kwargs)


def _listed(x: Any) -> Any:
    """A vector of factors as the list of them, one for each tensor."""
    return x.tolist() if isinstance(x, Tensor) and x.ndim == 1 else x


def _spread(name: str, tensors: Any, args: Any, kwargs: Any) -> Any:
    """The arguments of each call. Raises: TypeError for what is no list, RuntimeError for lists of different lengths."""
    if not isinstance(tensors, (list, tuple)):
        if not args or not isinstance(args[0], (list, tuple)):
            raise TypeError(
                f"{name}(): argument 'self' (position 1) must be tuple of Tensors, not {type(tensors).__name__}"
            )
        tensors = [tensors] * len(args[0])  # a number raised to the powers of a list
    if not tensors:
        raise RuntimeError(f"{name}: Tensor list must have at least one tensor.")
    for value in (*args, *kwargs.values()):
        if isinstance(value, (list, tuple)) and len(value) != len(tensors):
            raise RuntimeError(
                f"{name}: Tensor lists must have the same number of tensors, got {len(tensors)} and {len(value)}"
            )
    for at, tensor in enumerate(tensors):
        yield (
            (tensor, *(v[at] if isinstance(v, (list, tuple)) else v for v in args)),
            {k: v[at] if isinstance(v, (list, tuple)) else v for k, v in kwargs.items()},
        )
