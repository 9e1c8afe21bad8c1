"""Short ways of ops whose work follows from the shapes of their tensors: checked and planned once for each of them.

``@planned(op)`` decorates a function of the op's arguments that makes the checks of the general way and returns a `Plan`.
The text around it finds the plan again by shapes, dtypes and plain arguments, all of contiguous arrays; whatever cannot be
planned (a list, another device, an error to be raised) goes the general way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels.quiet import hush, unhush

from ..devices import Size
from ..dtypes import F4, F8
from ..tensor import wrap
from ._spec.short import compiled, refused
from ._spec.strict import STRICT, check_refused

__all__ = ["Plan", "few", "moves", "planned"]

MOST = 1024  # plans of an op that are kept
MOST_FEW = 1024  # elements that a few passes of numpy's are soon done with
MOST_MOVED = 2048  # elements, beyond which copying runs of them is faster than one by one


class Plan(NamedTuple):
    """How calls with arrays of certain shapes are answered."""

    run: Callable[..., Any]  # of the arrays: the array of the result, several of them, or None for the general way
    taped: Callable[..., Any] | None = None  # of the arrays, for one result with history: it, and what `record` is to keep
    record: Callable[..., None] | None = None  # of the result, what is kept and the Tensors, for that history
    after: Callable[..., None] | None = None  # of the Tensors, once `run` or `taped` have written to some of them


def planned(
    op: Any, tensors: tuple[str, ...] = ("input",), optional: tuple[str, ...] = (), strided: bool = False
) -> Callable[[Any], Any]:
    """Make ``fn(*args) -> Plan or None`` the short way of `op`, for plain arguments beside the Tensors of the names `tensors`.

    Args:
        optional: those that may be None, beside those that are it by default.
        strided: whether there are plans for each order of strides; otherwise all arrays are contiguous.
    """

    def declare(plan: Any) -> Any:
        op.fast_rule = _short_way(op, tensors, {*optional, *op.defaults}, strided, plan)
        return plan

    return declare


def few(op: Any, *tensors: str, beside: tuple[str, ...] = (), most: int = MOST_FEW) -> Callable[[Any], Any]:
    """Plan calls of `op` on few elements that nothing is recorded of, by a handful of numpy's functions.

    ``rule(*args)`` gets arrays in place of the Tensors of the names `tensors`, of one floating dtype, and of those `beside` them;
    it returns an array, or None for the general way.

    Args:
        most: elements of a tensor up to which it is taken.
    """
    every = (*tensors, *beside)

    def declare(rule: Any) -> Any:
        def plan(*args: Any) -> Plan | None:
            given = dict(zip(op.params, args, strict=True))
            arrays = [given[name]._array for name in tensors]
            dtype = arrays[0].dtype
            if dtype is not F4 and dtype is not F8 or not arrays[0].size or any(a.dtype is not dtype or a.size > most for a in arrays):
                return None

            plain = given | dict.fromkeys(every)          # without the Tensors, which the plan should not keep

            def run(*arrays: Any) -> Any:
                token = hush()
                try:
                    return rule(*{**plain, **dict(zip(every, arrays, strict=True))}.values())
                finally:
                    unhush(token)

            return Plan(run)

        planned(op, every)(plan)
        return rule

    return declare


def moves(op: Any, *args: Any) -> Plan | None:
    """The plan of `op`, whose result has elements of its first argument in other places, and beside them zeros.

    Where they come from is found out by moving their numbers, counted from 1.
    """
    a, general = args[0]._array, op.run
    if not 0 < a.size <= MOST_MOVED:
        return None
    expected = general(*args)._array
    if not expected.flags.c_contiguous or not 0 < expected.size <= MOST_MOVED:
        return None
    numbers = np.arange(1, a.size + 1, dtype=np.float64).reshape(a.shape)
    places = general(wrap(numbers), *args[1:])._array.astype(np.int64) - 1
    beside = places < 0

    def run(a: Any) -> Any:
        return a.take(places, None, None, "clip")  # which checks no places, and copies nothing first

    def run_beside(a: Any) -> Any:
        out = a.take(places, None, None, "clip")
        out[beside] = 0
        return out

    if beside.any():
        run = run_beside
    made = run(a)
    same = made.strides == expected.strides and made.dtype == expected.dtype and made.tobytes() == expected.tobytes()
    return Plan(run) if same else None


def _short_way(op: Any, tensors: tuple[str, ...], optional: set[str], strided: bool, plan: Any) -> Any:
    plans: dict[Any, Plan | None] = {}
    plan.forget = plans.clear                            # for a setting that the plans depend on
    kernels.plans_kept_elsewhere.append(plans.clear)

    def learn(key: Any, *args: Any) -> Plan | None:
        try:
            made = plan(*args)
        except Exception as error:  # the general way meets it too, and says what is wrong
            if STRICT:
                check_refused(op, tensors, args, error)
            return None
        if len(plans) >= MOST:
            plans.clear()
        plans[key] = made
        return made

    # Names of its own begin with an underscore, because arguments have any others.
    lines = [f"def short({', '.join(op.params)}):", "    try:"]
    for name in tensors:
        fetch = [
            f"a_{name} = {name}._array",
            f"if a_{name}.__class__ is not ndarray{'' if strided else f' or not a_{name}.flags.c_contiguous'}:",
            "    return None",
        ]
        if name in optional:
            fetch = [f"a_{name} = None", f"if {name} is not None:", *(f"    {line}" for line in fetch)]
        lines += [f"        {line}" for line in fetch]
    arrays = ", ".join(f"a_{name}" for name in tensors)
    nodes = " or ".join(
        f"{name} is not None and {name}._node is not None" if name in optional else f"{name}._node is not None" for name in tensors
    )
    lines += [
        f"        _key = ({', '.join(_key(op, name, tensors, optional, strided) for name in op.params)},)",
        "        _plan = plans[_key]",
        "    except KeyError:",
        f"        _plan = learn(_key, {', '.join(op.params)})",
        *(f"    {line}" for line in refused(op, tensors, "(AttributeError, TypeError)")),
        "    if _plan is None:",
        "        return None",
        f"    if ({nodes}) and (GRAD or local.grad):",
        "        _taped = _plan.taped",
        "        if _taped is None:",
        "            return None",
        f"        _o, _kept = _taped({arrays})",
        "    else:",
        f"        _o, _kept = _plan.run({arrays}), None",
        "        _taped = None",
        "    if _o.__class__ is not ndarray:",
        "        return None if _o is None else tuple(map(wrap, _o))",
        "    if _plan.after is not None:",
        f"        _plan.after({', '.join(tensors)})",
        "    _made = new(Tensor)",
        "    _made._array = _o",
        "    _made._storage = new_record() if MARKING else [0, 0, None, None]",
        "    _made._view_of = _made._node = None",
        "    if _taped is not None:",
        f"        _plan.record(_made, _kept, {', '.join(tensors)})",
        "    return _made",
    ]
    return compiled(op, "short", lines, plans=plans, learn=learn, typed=_typed, wrap=wrap)


def _key(op: Any, name: str, tensors: tuple[str, ...], optional: set[str], strided: bool) -> str:
    """Text of what tells a plan, of the parameter `name`."""
    if name in tensors:
        text = f"a_{name}.shape, a_{name}.dtype{f', a_{name}.strides' if strided else ''}"
        return f"None if a_{name} is None else ({text})" if name in optional else text
    default = op.defaults.get(name, 0)
    kind = type(default)
    if default is None or kind is bool:
        return f"{name} if {name} is {default} or {name}.__class__ is int else typed({name})"
    return f"{name} if {name}.__class__ is {kind.__name__} else typed({name})"


_PLAIN = frozenset((int, float, bool, str, type(None)))
_PAIR, _TRIPLE = (int, int), (int, int, int)  # classes of the tuples that are most frequent


def _typed(value: Any) -> Any:
    """What tells `value` from others that are equal to it but of another kind, such as 2.0 from 2.

    Raises: TypeError for what is no number, text, None, or a tuple, list or Size of those.
    """
    kind = value.__class__
    if kind in _PLAIN:
        return kind, value
    kinds = (*map(type, value),)
    if kind is tuple and kinds in (_PAIR, _TRIPLE):
        return value
    if kind is not tuple and kind is not list and kind is not Size or not _PLAIN.issuperset(kinds):
        raise TypeError("no plain argument")
    return (kind, *value, *kinds)
