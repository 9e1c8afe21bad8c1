"""Rules of names: what a declaration says by ``names=`` of the names of its results' dimensions.

A rule is a function of a `NamedCall`. It raises where names do not go together, and gives the names of each result, or None for results
without names. Dimensions that were given by name have been counted before; a rule may put other arguments in the place of those given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import _names
from ..._names import Names
from ...tensor import Tensor, wrap_dim

Rule = Callable[["NamedCall"], Names | None]
# Parameters that are dimensions of the first operand, so that they may be given by name.
DIMS = ("dim", "dim0", "dim1")


class NamedCall:
    """A call of the function `name` with `args` by their parameters, of which some are tensors with named dimensions."""

    def __init__(self, name: str, args: dict[str, Any]) -> None:
        self.name, self.args = name, args
        found = [a for given in args.values() for a in (given if isinstance(given, (list, tuple)) else (given,)) if isinstance(a, Tensor)]
        self.operands: list[Tensor] = found

    def __getitem__(self, param: str) -> Any:
        return self.args[param]

    def __setitem__(self, param: str, value: Any) -> None:
        self.args[param] = value

    def names(self, param: str) -> Names:
        """Those of the tensor given for `param`; none of a number."""
        given = self.args[param]
        return given.names if isinstance(given, Tensor) else ()

    @property
    def own(self) -> Names:
        """Those of the first operand."""
        return self.operands[0].names

    def counted(self, dim: Any) -> Any:
        """`dim` of the first operand, or several, as integers where they are names."""
        if isinstance(dim, str):
            return _names.place(dim, self.own)
        if isinstance(dim, (list, tuple)) and any(isinstance(d, str) for d in dim):
            return tuple([self.counted(d) for d in dim])
        return dim

    def dims(self, param: str) -> tuple[int, ...]:
        """The dimensions given for `param`, counted from the front; all for None."""
        dim, ndim = self.args[param], len(self.own)
        if dim is None:
            return tuple(range(ndim))
        return tuple([wrap_dim(d, ndim) for d in (dim if isinstance(dim, (list, tuple)) else (dim,))])


def without(names: Names, dims: tuple[int, ...]) -> Names:
    """`names` but those of `dims`."""
    return tuple([name for at, name in enumerate(names) if at not in dims])


def keep(call: NamedCall) -> Names:
    """Those of the first operand."""
    return call.own


def unnamed(call: NamedCall) -> None:
    """None: results say nothing about the operands' dimensions."""


def unify(call: NamedCall) -> Names:
    """Those of all operands, unified as they broadcast."""
    found: Names = ()
    for x in call.operands:
        found = _names.unify(found, x.names)
    return found


def refused(call: NamedCall) -> Names:
    """Raise RuntimeError: the function writes, or makes what cannot be told, and is not for tensors with names."""
    raise no_names(call.name, *call.operands)


def no_names(function: str, *tensors: Tensor) -> RuntimeError:
    """The error for a `function` that is not for tensors with names, as some of `tensors` are."""
    named = " and ".join([_names.shown(x.names) for x in tensors if x.has_names()])
    return RuntimeError(f"{function} is not yet supported with named tensors, got {named}. {_names.DROP}")


def refuse_name_of_dim(params: tuple[str, ...], args: tuple[Any, ...]) -> None:
    """Raise RuntimeError where a dimension was given by name, and no operand has names; what was not given is ``...``."""
    if any(a is ... for a in args):
        return
    call = NamedCall("", dict(zip(params, args, strict=False)))
    for param in DIMS if call.operands else ():
        call.counted(call.args.get(param))


def reduces(call: NamedCall) -> Names:
    """Those of the first operand without those of `dim`, unless `keepdim` leaves them there; no dimension is all."""
    args = call.args
    if args.get("keepdim"):
        return call.own
    dim = args["dim"]
    return without(call.own, call.dims("dim")) if not isinstance(dim, (list, tuple)) or dim else ()


def takes_out(call: NamedCall) -> Names:
    """Those of the first operand without that of `dim`."""
    return without(call.own, call.dims("dim"))


def squeezes(call: NamedCall) -> Names:
    """Those of the first operand without those of `dim` whose size is 1."""
    shape = call.operands[0].shape
    return without(call.own, tuple([d for d in call.dims("dim") if not len(shape) or shape[d] == 1]))


def swaps(call: NamedCall) -> Names:
    """Those of the first operand, in which `dim0` and `dim1` have changed places."""
    names = list(call.own)
    (i,), (j,) = call.dims("dim0"), call.dims("dim1")
    if names:
        names[i], names[j] = names[j], names[i]
    return tuple(names)


def reverses(call: NamedCall) -> Names:
    """Those of the first operand, the last first."""
    return call.own[::-1]


def expands(call: NamedCall) -> Names:
    """Those of the first operand, behind as many new dimensions as `size` has in front."""
    return (None,) * (len(call["size"]) - len(call.own)) + call.own


def contracts(first: str, second: str) -> Rule:
    """What a matrix product leaves of the names of the operands `first` and `second`: those of leading dimensions unify."""

    def rule(call: NamedCall) -> Names:
        a, b = call.names(first), call.names(second)
        leading = _names.unify(a[:-2], b[:-2])
        found = (*leading, *a[:-1][-1:], *(b[-1:] if len(b) > 1 else ()))
        named = [name for name in found if name is not None]
        if len(set(named)) != len(named):
            raise RuntimeError(
                f"{call.name}: Matrix multiplying {_names.shown(a)} and {_names.shown(b)} would produce output tensor with duplicate names "
                f"{_names.listed(found)}. Please rename the input tensors with `Tensor.rename` to prevent this."
            )
        return found

    return rule


def adds_product(first: str, second: str) -> Rule:
    """Those of the product of `first` and `second`, unified with those of `input`, which is added."""
    product = contracts(first, second)
    return lambda call: _names.unify(product(call) or (), call.names("input"))


def picks(call: NamedCall) -> None:
    """None: what a mask picks, whose names have to go together with those of the first operand, stands in a row."""
    unify(call)


def flattens(call: NamedCall) -> Names:
    """Those of the first operand, where one new name takes the place of those of the dimensions that are merged.

    ``flatten(dims, out_dim)``: `dims` stand one after the other.
    """
    dims, name = call["start_dim"], call["end_dim"]
    if not isinstance(dims, (list, tuple)) or not isinstance(name, str):
        raise RuntimeError(f"{call.name}: named tensors are flattened by flatten(dims, out_dim), a list of dims and the new one's name")
    if not dims:
        raise RuntimeError(f"{call.name}: Flattening an empty list of dims is not supported")
    call["start_dim"] = call.counted(tuple(dims))
    places = call.dims("start_dim")
    if places != tuple(range(places[0], places[0] + len(places))):
        raise RuntimeError(f"{call.name}: dims {_names.listed(dims)} must be consecutive and in order in {_names.shown(call.own)}")
    call["start_dim"], call["end_dim"] = places[0], places[-1]
    found = (*call.own[: places[0]], name, *call.own[places[-1] + 1 :])
    return _names.checked(found, len(found))


def unflattens(call: NamedCall) -> Names:
    """Those of the first operand, where those given with `sizes` take the place of that of `dim`.

    ``unflatten(dim, ((name, size), ...))``, or with an OrderedDict.
    """
    sizes = call["sizes"]
    pairs = list(sizes.items()) if isinstance(sizes, dict) else sizes
    if not isinstance(pairs, (list, tuple)) or not pairs or not all(isinstance(p, (list, tuple)) and len(p) == 2 for p in pairs):
        raise RuntimeError(
            f"{call.name}: the input has named dims, so sizes must be pairs of a name and a size, as (('C', 3), ('H', 4)), got {sizes!r}"
        )
    (at,) = call.dims("dim")
    call["sizes"] = tuple([size for _, size in pairs])
    found = (*call.own[:at], *[name for name, _ in pairs], *call.own[at + 1 :])
    return _names.checked(found, len(found))
