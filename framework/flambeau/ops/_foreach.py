"""``_foreach_<op>`` and ``_foreach_<op>_``: an op on each tensor of a list."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from . import _derive
from ._spec import FOREACH, OPS

_PREFIX = "_foreach_"
# List forms of what is no op that programs call.
_OTHERS = ("copy", "zero", "powsum")


def function(name: str) -> Any:
    """The function `name`, such as ``_foreach_add_``, or None when there is no such op."""
    bare = name.removeprefix(_PREFIX)
    inplace = bare.endswith("_")
    bare = bare.rstrip("_")
    _derive.load_all()
    op = OPS.get(bare)
    if bare not in _OTHERS and (op is None or not op.surface & FOREACH):
        return None
    each = _in_place(bare) if inplace else _fresh(bare)
    if each is None:
        return None

    def foreach(self: Any, *args: Any, **kwargs: Any) -> Any:
        if bare in _OF_A_FACTOR:
            args, kwargs = tuple([_listed(x) for x in args]), {key: _listed(x) for key, x in kwargs.items()}
        made = [each(*one, **named) for one, named in _spread(name, self, args, kwargs)]
        return self if inplace else tuple(made)

    foreach.__name__ = foreach.__qualname__ = name
    foreach.__doc__ = f"`{bare}` of each tensor of a list{', in place' if inplace else ''}; list arguments go with it one by one."
    return foreach


def names() -> list[str]:
    """Of all functions that `function` knows."""
    _derive.load_all()
    bare = [*_OTHERS, *(key for key, op in OPS.items() if op.surface & FOREACH)]
    found = [f"{_PREFIX}{name}{end}" for name in bare for end in ("", "_")]
    return [name for name in found if function(name) is not None]


def _larger(tensor: Tensor, other: Any) -> Tensor:
    """`maximum`, which a number may limit too."""
    return tensor.maximum(other) if isinstance(other, Tensor) else tensor.clamp_min(other)


def _smaller(tensor: Tensor, other: Any) -> Tensor:
    """`minimum`, which a number may limit too."""
    return tensor.minimum(other) if isinstance(other, Tensor) else tensor.clamp_max(other)


def _sum_of_powers(tensor: Tensor, ord: Any = 2, dtype: Any = None) -> Tensor:
    return (tensor if dtype is None else tensor.to(dtype)).abs().pow(ord).sum()


def _norm(tensor: Tensor, ord: Any = 2, dtype: Any = None) -> Tensor:
    return _derive.public("linalg", "vector_norm")(tensor, ord, dtype=dtype)


# Lists take what the op of the name does not, or no op has it.
_FORMS = {"maximum": _larger, "minimum": _smaller, "norm": _norm, "powsum": _sum_of_powers}


def _with_factor(each: Any) -> Any:
    """`addcmul` or `addcdiv`, whose factor lists take by its place too, and for each tensor one as `scalars`."""

    def one(tensor: Tensor, tensor1: Tensor, tensor2: Tensor, value: Any = 1, scalars: Any = None) -> Tensor:
        return each(tensor, tensor1, tensor2, value=value if scalars is None else scalars)

    return one


def _listed(x: Any) -> Any:
    """A vector of factors as the list of them, one for each tensor."""
    return x.tolist() if isinstance(x, Tensor) and x.ndim == 1 else x


_OF_A_FACTOR = ("addcmul", "addcdiv")


def _fresh(bare: str) -> Any:
    if bare in _OF_A_FACTOR:
        return _with_factor(_derive.public("", bare))
    return _FORMS.get(bare) or _derive.public("", bare) or _derive.public("linalg", bare)


def _in_place(bare: str) -> Any:
    if bare in ("maximum", "minimum"):
        return lambda tensor, other: tensor.copy_(_FORMS[bare](tensor, other))
    if bare in ("clone", "mm", "powsum"):
        return None
    method = getattr(Tensor, f"{bare}_", None)
    if bare in _OF_A_FACTOR:
        return _with_factor(method)
    return None if method is None else lambda tensor, *args, **kwargs: method(tensor, *args, **kwargs)


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
