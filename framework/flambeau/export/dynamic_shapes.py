"""Which sizes of inputs an exported program leaves open: names, ranges and relations."""

from __future__ import annotations

import inspect
import re
from enum import Enum, auto
from typing import Any

from .._dynamo.exc import UserError
from ..fx.experimental._dim_constraints import ConstraintViolationError
from ..tensor import Tensor
from ..utils import _pytree as pytree

__all__ = ["AdditionalInputs", "Constraint", "Dim", "ShapesCollection", "dims", "refine_dynamic_shapes_from_suggested_fixes"]

_UNBOUNDED = (1 << 63) - 1


class _DimHintType(Enum):
    AUTO = auto()
    STATIC = auto()
    DYNAMIC = auto()


class _DimHint:
    """A wish for a size without a name: open if it can be, closed, or open."""

    def __init__(self, type: _DimHintType, min: int | None = None, max: int | None = None) -> None:
        self.type, self.min, self.max = type, min, max

    def __call__(self, min: int | None = None, max: int | None = None) -> _DimHint:
        return _DimHint(self.type, min, max)

    def __repr__(self) -> str:
        bounds = [f"{name}={value}" for name, value in (("min", self.min), ("max", self.max)) if value is not None]
        return f"DimHint({', '.join((self.type.name, *bounds))})"


class Dim:
    """A size that is left open, with a name and a range; ``2 * dim + 1`` is one that follows from it.

    Args:
        name: an identifier, for messages.
        min, max: the range, both inclusive.
    Raises: AssertionError for a name that is none, and a range without numbers.

    `Dim.AUTO` leaves a size open where the program does, `Dim.DYNAMIC` wants it open, `Dim.STATIC` closes it.
    """

    AUTO = _DimHint(_DimHintType.AUTO)
    DYNAMIC = _DimHint(_DimHintType.DYNAMIC)
    STATIC = _DimHint(_DimHintType.STATIC)

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        if not name.isidentifier():
            raise AssertionError(f"Dim name must be a valid identifier, got {name}")
        self.min, self.max = 0 if min is None else min, _UNBOUNDED if max is None else max
        if self.max < self.min:
            raise AssertionError(f"Cannot create Dim with inconsistent min={min}, max={max}")
        self.__name__ = name

    root: Any = None                                  # of one that follows: the Dim it follows from, and ``factor * root + offset``
    factor, offset = 1, 0

    def _derived(self, factor: int, offset: int) -> Dim:
        base = self.root or self
        factor, offset = self.factor * factor, self.offset * factor + offset
        text = base.__name__ if factor == 1 else f"{factor}*{base.__name__}"
        made = object.__new__(Dim)
        made.__name__ = f"{text} {'+' if offset > 0 else '-'} {abs(offset)}" if offset else text
        made.root, made.factor, made.offset = base, factor, offset
        made.min = base.min * factor + offset
        made.max = _UNBOUNDED if base.max == _UNBOUNDED else base.max * factor + offset
        return made

    def __add__(self, other: int) -> Dim:
        return self._derived(1, _integer(other, "+"))

    __radd__ = __add__

    def __sub__(self, other: int) -> Dim:
        return self._derived(1, -_integer(other, "-"))

    def __mul__(self, other: int) -> Dim:
        if _integer(other, "*") <= 0:
            raise NotImplementedError(
                f"Attempted to multiply {other} with {self.__name__}, where a positive integer was expected. "
                "(Only increasing linear operations with integer coefficients are supported.)"
            )
        return self._derived(other, 0)

    __rmul__ = __mul__

    def __repr__(self) -> str:
        if self.root is not None:
            return self.__name__
        bounds = [f"min={self.min}", *([] if self.max == _UNBOUNDED else [f"max={self.max}"])]
        return f"Dim('{self.__name__}', {', '.join(bounds)})"


def _integer(other: Any, sign: str) -> int:
    if type(other) is not int:
        raise NotImplementedError(f"Attempted to {sign} a Dim with {other!r}; only ints make sizes that follow from it")
    return other


Constraint = Dim | _DimHint


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """A `Dim` for each of `names`, with one range."""
    return tuple(Dim(name, min=min, max=max) for name in names)


# -- what is given for inputs ----------------------------------------------------------------------------------------------


def bound_inputs(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The inputs by name of parameter, in the order in which they are given."""
    signature = inspect.signature(f)
    named: dict[str, Any] = {}
    try:
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise TypeError(f"export: the example inputs do not fit the forward of the module: {error}") from None
    for name, value in bound.items():
        if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        else:
            named[name] = value
    return named


def sizes_of_inputs(named: dict[str, Any], given: Any) -> dict[int, dict[int, Any]]:
    """By identity of Tensors among the inputs: what `given` says of each dimension.

    Raises: UserError where `given` has not the structure of the inputs.
    """
    found: dict[int, dict[int, Any]] = {}
    if given is None or isinstance(given, (dict, tuple, list)) and not given:
        return found
    if isinstance(given, ShapesCollection):
        if not set(given._shapes) <= {id(x) for x in pytree.tree_leaves(named)}:
            raise ValueError(_NOT_AMONG_INPUTS)
        return {key: _of_tensor(f"input {key}", given._tensors[key], spec) for key, spec in given._shapes.items()}
    if isinstance(given, dict):
        if set(given) != set(named):
            raise UserError(
                f"When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg names {list(named)} of `inputs`, but "
                f"here they are {list(given)}. Alternatively, you could also ignore arg names entirely and specify `dynamic_shapes` as "
                "a list/tuple matching `inputs`"
            )
        pairs = [(name, named[name], given[name]) for name in given]
    elif isinstance(given, (tuple, list)):
        if len(given) != len(named):
            raise UserError(
                f"Detected mismatch between the structure of `inputs` and `dynamic_shapes`: `inputs` has {len(named)} elements, but "
                f"`dynamic_shapes` has {len(given)} elements"
            )
        pairs = [(name, value, spec) for (name, value), spec in zip(named.items(), given, strict=True)]
    else:
        raise AssertionError(f"expected dynamic_shapes to be dict, tuple, or list, got {type(given)}")
    for name, value, spec in pairs:
        _walk(name, value, spec, found)
    return found


def _walk(path: str, value: Any, spec: Any, found: dict[int, dict[int, Any]]) -> None:
    if spec is None:
        return
    if isinstance(value, Tensor):
        found[id(value)] = _of_tensor(path, value, spec)
    elif isinstance(value, dict) and isinstance(spec, dict) and set(spec) <= set(value):
        for key in spec:
            _walk(f"{path}[{key!r}]", value[key], spec[key], found)
    elif isinstance(value, (list, tuple)) and isinstance(spec, (list, tuple)) and len(spec) == len(value):
        for i, (x, s) in enumerate(zip(value, spec, strict=True)):
            _walk(f"{path}[{i}]", x, s, found)
    else:
        raise UserError(
            f"Detected mismatch between the structure of `inputs` and `dynamic_shapes`: `{path}` is a {type(value).__name__}, but "
            f"dynamic_shapes has {spec!r}"
        )


def _of_tensor(path: str, x: Tensor, spec: Any) -> dict[int, Any]:
    if isinstance(spec, dict):
        declared = spec
    elif isinstance(spec, (list, tuple)) and len(spec) == x.ndim:
        declared = dict(enumerate(spec))
    elif isinstance(spec, (list, tuple)):
        raise UserError(
            f"Expected dynamic shape spec {spec} specified at `dynamic_shapes[{path!r}]` to have the same length as the actual tensor "
            f"shape {x.shape} (expected {x.ndim}, but got {len(spec)} instead)"
        )
    else:
        raise UserError(
            f"dynamic_shapes of `{path}`, a Tensor of {x.ndim} dimensions, must be a dict by dimension or a list of {x.ndim}, got {spec!r}"
        )
    made = {}
    for d, what in declared.items():
        if not isinstance(d, int) or not -x.ndim <= d < x.ndim:
            raise UserError(f"dynamic_shapes of `{path}`: {d!r} is no dimension of a Tensor of {x.ndim}")
        if what is None or isinstance(what, (Dim, _DimHint)):
            made[d % x.ndim] = what
        elif isinstance(what, int) and what == x.shape[d]:
            made[d % x.ndim] = None
        elif isinstance(what, int):
            raise ConstraintViolationError(
                f"Static shape constraint of {what} does not match input size of {x.shape[d]}, for L[{path!r}].size()[{d}]"
            )
        else:
            raise UserError(
                f"Unexpected dimension mapped to index {d} in input tensor shape {spec} specified at `dynamic_shapes[{path!r}]` (expected "
                f"None, an int, a Dim, Dim.AUTO, Dim.STATIC, or Dim.DYNAMIC,  but got {what!r} instead)"
            )
    return made


_NOT_AMONG_INPUTS = (
    "Some tensors that were assigned shapes were not found in args. Maybe such tensors were copied when passing them as args? Maybe such "
    "tensors are contained in classes that were not registered with pytree?"
)


class ShapesCollection:
    """What to leave open, said of Tensors themselves: ``shapes[tensor] = {0: dim}``, for inputs with much structure."""

    def __init__(self) -> None:
        self._shapes: dict[int, Any] = {}
        self._tensors: dict[int, Tensor] = {}

    def __setitem__(self, tensor: Tensor, shape: Any) -> None:
        if not isinstance(tensor, Tensor):
            raise AssertionError(f"Cannot assign shape to non-tensor type {type(tensor)}")
        if id(tensor) in self._shapes and self._shapes[id(tensor)] != shape:
            known = self._shapes[id(tensor)]
            raise AssertionError(f"Shapes assigned to input do not match: expected {known}, got {shape}")
        self._shapes[id(tensor)], self._tensors[id(tensor)] = shape, tensor

    def __getitem__(self, tensor: Tensor) -> Any:
        return self._shapes[id(tensor)]

    def __len__(self) -> int:
        return len(self._shapes)

    def dynamic_shapes(self, m: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        """The same as a structure like the inputs of the module `m`: a dict by name of parameter.

        Args:
            args, kwargs: example inputs.
        Raises: ValueError for a Tensor that is none of them.
        """
        seen = set()

        def described(x: Any) -> Any:
            if isinstance(x, Tensor):
                seen.add(id(x))
                return self._shapes.get(id(x))
            return None

        named = bound_inputs(getattr(m, "forward", m), args, kwargs or {})
        made = pytree.tree_map(described, named)
        left = set(self._shapes) - seen
        if left:
            raise ValueError(_NOT_AMONG_INPUTS)
        return made


class AdditionalInputs:
    """More example inputs: sizes in which they differ are left open."""

    def __init__(self) -> None:
        self._examples: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def add(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        """Add example inputs."""
        if not isinstance(args, tuple):
            raise AssertionError(f"Representative args {args} must be a tuple")
        self._examples.append((args, kwargs or {}))

    def dynamic_shapes(self, m: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        """The sizes that differ from those of `args` and `kwargs` in an example as `Dim.DYNAMIC`, by name of parameter."""
        f = getattr(m, "forward", m)
        first = bound_inputs(f, args, kwargs or {})
        others = [bound_inputs(f, a, k) for a, k in self._examples]

        def described(x: Any, *more: Any) -> Any:
            if not isinstance(x, Tensor):
                return None
            return tuple(Dim.DYNAMIC if any(y.shape[d] != n for y in more) else None for d, n in enumerate(x.shape))

        return pytree.tree_map(described, first, *others)

    def verify(self, ep: Any) -> None:
        """Run the program `ep` on each example."""
        module = ep.module()
        for args, kwargs in self._examples:
            module(*args, **kwargs)


def refine_dynamic_shapes_from_suggested_fixes(msg: str, dynamic_shapes: Any) -> Any:
    """`dynamic_shapes` with the fixes that the message `msg` of a failed export suggests.

    Raises: RuntimeError for a message without suggestions.
    """
    if "Suggested fixes:" not in msg:
        raise RuntimeError("refine_dynamic_shapes_from_suggested_fixes: the message has no 'Suggested fixes:'")
    fixes: dict[str, Any] = {}
    for line in msg.split("Suggested fixes:")[1].splitlines():
        if found := re.match(r"\s*(\w+) = (\d+)$", line):
            fixes[found[1]] = int(found[2])
        elif found := re.match(r"\s*(\w+) = Dim\('\w+'(?:, min=(\d+))?(?:, max=(\d+))?\)", line):
            least, most = (int(text) if text else None for text in found.groups()[1:])
            fixes[found[1]] = Dim(found[1], min=least, max=most)
        elif found := re.match(r"\s*(\w+) = (\w+)(?: ([+-]) (\d+))?$", line):
            fixes[found[1]] = (found[2], int(found[4] or 0) * (-1 if found[3] == "-" else 1))

    def refined(d: Any) -> Any:
        if not isinstance(d, Dim):
            return d
        base = d.root or d
        fix = fixes.get(base.__name__)
        if fix is None:
            return d
        if isinstance(fix, int):
            return fix * d.factor + d.offset
        dim = Dim(fix[0]) + fix[1] if isinstance(fix, tuple) and fix[1] else Dim(fix[0]) if isinstance(fix, tuple) else fix
        return dim._derived(d.factor, d.offset) if d.root is not None else dim

    return pytree.tree_map(refined, dynamic_shapes, is_leaf=lambda x: isinstance(x, (Dim, _DimHint)))
