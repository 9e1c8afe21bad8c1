"""Names of dimensions: which may be given, and how those of several tensors go together. Tuples of str or None."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Names = tuple[str | None, ...]

EXPERIMENTAL = (
    "Named tensors and all their associated APIs are an experimental feature and subject to change. "
    "Please do not use them for anything important until they are released as stable."
)
DROP = (
    "Please drop names via `tensor = tensor.rename(None)`, call the op with an unnamed tensor, and set names on the result of the "
    "operation."
)


def of(tensor: Any) -> Names | None:
    """What the dimensions of `tensor` are called; None where none has a name."""
    return tensor.__dict__.get("_names")


def listed(names: Sequence[str | None]) -> str:
    """`names` as messages show them: ``['N', None]``."""
    return f"[{', '.join(map(repr, names))}]"


def shown(names: Sequence[str | None]) -> str:
    """A tensor of these `names` as messages show it: ``Tensor['N', None]``."""
    return f"Tensor{listed(names)}"


def checked(names: Any, ndim: int) -> Names:
    """`names`, given for the dimensions of a tensor of `ndim`, as a tuple.

    Raises: TypeError for what is no sequence of str and None; RuntimeError for a name that is no identifier, one that is there twice,
        or another number of names.
    """
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise TypeError(f"names must be a sequence of str and None, one for each dimension, not {names!r}")
    made = tuple(names)
    for name in made:
        check_name(name)
    if len(made) != ndim:
        raise RuntimeError(
            f"Number of names ({len(made)}) and number of dimensions in tensor ({ndim}) do not match. Attempted to give it the names "
            f"{listed(made)}"
        )
    check_distinct(made)
    return made


def check_name(name: Any) -> None:
    """Raise unless `name` may be that of a dimension: None, or an identifier of ASCII characters that does not start with an underscore."""
    if name is None:
        return
    if not isinstance(name, str):
        raise TypeError(f"a dimension's name must be a str or None, not {type(name).__name__}: {name!r}")
    if not (name.isascii() and name.isidentifier()) or name.startswith("_"):
        raise RuntimeError(
            "Invalid name: a valid identifier contains only digits, alphabets, and/or underscore and starts with an alphabet. "
            f"got: {name!r}"
        )


def check_distinct(names: Names) -> None:
    """Raise RuntimeError where a name is there twice."""
    given = [name for name in names if name is not None]
    if len(set(given)) != len(given):
        raise RuntimeError(f"Cannot construct a tensor with duplicate names. Got names: {listed(names)}.")


def match(a: str | None, b: str | None) -> bool:
    """Whether two names go together: they are equal, or one of them is None."""
    return a is None or b is None or a == b


def unify(a: Names, b: Names) -> Names:
    """The names of what two tensors with the names `a` and `b` give as they broadcast: from the right, the more specific of each two.

    Raises: RuntimeError where two do not match, or a name stands against None and elsewhere in the other's names.
    """
    action = "broadcast"
    found: list[str | None] = []
    for at in range(1, max(len(a), len(b)) + 1):
        x = a[-at] if at <= len(a) else None
        y = b[-at] if at <= len(b) else None
        if not match(x, y):
            raise RuntimeError(
                f"Error when attempting to {action} dims {listed(a)} and dims {listed(b)}: dim {x!r} and dim {y!r} are at the same "
                "position from the right but do not match."
            )
        for name, other, own, others in ((x, y, a, b), (y, x, b, a)):
            if name is not None and other is None and name in others:
                raise RuntimeError(
                    f"Misaligned dims when attempting to {action} dims {listed(own)} and dims {listed(others)}: dim {name!r} appears in "
                    "a different position from the right across both lists."
                )
        found.append(y if x is None else x)
    return tuple(reversed(found))


def place(name: str, names: Names) -> int:
    """Which dimension of a tensor with these `names` the one called `name` is. Raises: RuntimeError where there is none."""
    if name not in names:
        raise RuntimeError(f"Name {name!r} not found in {shown(names)}.")
    return names.index(name)


def is_rest(name: Any) -> bool:
    """Whether `name` stands for all that are not mentioned: ``...``, also as text."""
    return name is ... or isinstance(name, str) and name == "..."


def expanded(names: Sequence[Any], rest: Any, function: str) -> tuple[Any, ...]:
    """`names`, the ``...`` among them replaced by ``rest(before, after)``: the counts of those in front of it and behind it.

    Raises: RuntimeError where there are several.
    """
    at = [i for i, name in enumerate(names) if is_rest(name)]
    if len(at) > 1:
        raise RuntimeError(f"{function}: More than one Ellipsis ('...') found in names ({', '.join(map(repr, names))}). This function "
                           "supports up to one Ellipsis.")  # fmt: skip
    if not at:
        return tuple(names)
    return (*names[: at[0]], *rest(at[0], len(names) - at[0] - 1), *names[at[0] + 1 :])


def filled(names: Sequence[Any], own: Names, function: str) -> Names:
    """`names`, the ``...`` among them expanded to those of `own` in its place."""
    return checked(expanded(names, lambda before, after: own[before : len(own) - after], function), len(own))


def refined(own: Names, names: Names) -> Names:
    """`names`, to which those of a tensor may be refined whose names are `own`. Raises: RuntimeError where one would change."""
    for at, (old, new) in enumerate(zip(own, names, strict=True)):
        if old is not None and old != new:
            lost = f"{old!r} is more specific than None" if new is None else f"{old!r} is different from {new!r}"
            raise RuntimeError(f"refine_names: cannot coerce {shown(own)} to {shown(names)} because {lost} at index {at}")
    return names


def aligned(own: Names, names: Sequence[Any], function: str) -> dict[str, int | None]:
    """For each of `names`, to which a tensor with the names `own` is aligned, its dimension of that name, or None for a new one.

    Raises: RuntimeError for a tensor with unnamed dimensions, and for names of `own` that are not among `names`.
    """
    if None in own:
        raise RuntimeError(
            f"{function}: All input dims must be named. Found unnamed dim at index {own.index(None)} of {shown(own)}; use refine_names to "
            "name it"
        )
    wanted = expanded(names, lambda *_: [name for name in own if name not in names], function)
    if None in wanted:
        raise RuntimeError(f"{function}: names must not be None, got {listed(wanted)}")
    checked(wanted, len(wanted))
    lacking = [name for name in own if name not in wanted]
    if lacking:
        raise RuntimeError(f"{function}: Cannot find dim {lacking[0]!r} of {shown(own)} in the names to align to, {listed(wanted)}.")
    return {name: own.index(name) if name in own else None for name in wanted}


def renamed(own: Names, names: Sequence[Any], by_name: dict[str, Any], function: str) -> Names:
    """The names of a tensor, `own`, after ``rename(*names, **by_name)``.

    Raises: RuntimeError where both kinds of arguments are given or none, or a name in `by_name` is not there.
    """
    if bool(names) is bool(by_name):
        raise RuntimeError(
            f"{function}: give either positional names, one for each dimension or None alone to drop all, or names to rename by keyword, "
            f"not {'both' if names else 'none of them'}"
        )
    if by_name:
        for old, new in by_name.items():
            if old not in own:
                raise RuntimeError(f"{function}: Tried to rename dim {old!r} to dim {new!r} in {shown(own)} but dim {old!r} does not exist")
        return checked([by_name.get(name, name) if name is not None else None for name in own], len(own))
    if len(names) == 1 and names[0] is None:
        return (None,) * len(own)
    return filled(names, own, function)


def names_by(rule: str) -> Any:
    """A decorator for functions and methods that are no ops: their results are called as the rule of this name says.

    Rules are in `ops/_spec/names.py`; "by_itself" is a function that names its result itself. Without one, a function that makes a tensor
    is not for tensors with names.
    """

    def note(fn: Any) -> Any:
        fn.names_rule = rule
        return fn

    return note
