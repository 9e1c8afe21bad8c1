"""How usual calls of an op are answered: the plan that its declaration gives, written out as one function.

``op.answer(*args)`` is the result of a usual call, or None having done nothing: entry points ask it first, and go on with `Op.run`, which
has the checks and the errors. ``@op.plan`` declares what is on arrays: the decorated function computes (`by` is None), or finds for
each kind of operands a `Plan` that does. The text around it brings tensors down to arrays, tests what the declaration says of them,
looks the plan up, makes the results and their history, and stores where the op says so. ``@op.forwards`` declares that a call comes to
another op, with other arguments.

A function that raises is one that does not answer, so everything wrong is said in one place; with FLAMBEAU_STRICT=1 it has to be wrong
there too (`strict.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau_kernels as kernels
from flambeau_kernels.quiet import ignore_fp_flags, restore_fp_flags

from ...devices import Size
from ...dtypes import FLOAT32, FLOAT64, dtype
from ...tensor import bump, one_memory, wrap
from .memory import in_memory_order
from .nodes import indented, record, tensor_names, written
from .strict import STRICT, NotPlain, check_refused, store_refused

__all__ = [
    "MOST_BY_NUMPY", "REFUSED", "Plan", "Planned", "answer", "answer_in_place", "copying", "first_of", "guarded", "moves", "named",
]

MOST_PLANS = 1024  # of an op that are kept
MOST_BY_NUMPY = 1024  # elements that a few passes of numpy's are soon done with
MOST_MOVED = 2048  # elements, beyond which copying runs of them is faster than one by one

# What a plan may raise on arguments it was not made for.
REFUSED = (AttributeError, TypeError, ValueError, IndexError, KeyError, OverflowError, RuntimeWarning)


class Plan:
    """How calls with arrays of certain shapes are answered.

    Results with a history get the node of `records`, which so says what is saved: `saves`, of which a node does without what no gradient
    that is asked for reads.
    """

    __slots__ = ("run", "records", "arguments", "taped", "writes", "of_first")

    def __init__(
        self,
        run: Callable[..., Any],  # of the arrays: the array of the result, several of them, or None for the fallback
        records: Any = None,  # the primitive that such a call comes to, for its history; None: calls with one are left to the fallback
        arguments: Callable[..., tuple[Any, ...]] | None = None,  # of the residual and the Tensors: those of `records`, in order
        taped: Callable[..., Any] | None = None,  # of the arrays, for results with history: what `run` gives, and the residual; else None
        writes: tuple[str, ...] = (),  # the parameters whose memory `run` and `taped` have written, where they are given
        of_first: bool = False,  # whether of several results the first alone has the history, `records` being a primitive of one
    ) -> None:
        self.run, self.records, self.arguments, self.taped, self.writes = run, records, arguments, taped, writes
        self.of_first = of_first

    @property
    def saves(self) -> tuple[str, ...]:
        """What the node of a result saves, by the names of `records`."""
        return () if self.records is None else self.records.saved_names


class Planned:
    """What a declaration says of the plans of an op; see `Op.plan`. Fields that were not given are those of the class."""

    rule: Callable[..., Any]
    by: str | None = None
    tensors: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    optional: frozenset[str] = frozenset()
    wraps: str | None = None
    dims: str | None = None
    dtypes: str = ""
    most: int | None = None
    rows: bool = False
    constant: tuple[str, ...] = ()
    quiet: bool = False
    discrete: bool = False
    lists: bool = False
    returns: Any = None
    record: Any = None
    builtin: str = ""
    native: Any = None
    names: Any = {}  # what these texts refer to, by name; nobody writes there

    def __init__(
        self, rule: Any, by: str | None, tensors: tuple[str, ...], beside: tuple[str, ...], optional: frozenset[str], **conditions: Any
    ) -> None:
        unknown = conditions.keys() - Planned.__annotations__.keys()
        if unknown:
            raise TypeError(f"plans have no {', '.join(sorted(unknown))}")
        self.rule, self.by, self.tensors, self.beside, self.optional = rule, by, tensors, beside, optional
        self.__dict__.update(conditions)

    def with_rule(self, rule: Any) -> Planned:
        """The same with another `rule`."""
        made = object.__new__(Planned)
        made.__dict__.update(self.__dict__, rule=rule)
        return made

    @property
    def is_of_arrays(self) -> bool:
        """Whether `rule` answers whatever arrays it is given: nothing beside them is asked for."""
        free = ("rule", "tensors", "optional", "native")
        return all(value == getattr(Planned, name) for name, value in self.__dict__.items() if name not in free)

    @property
    def every(self) -> tuple[str, ...]:
        """The parameters that are Tensors."""
        return (*self.tensors, *self.beside)


def answer(op: Any, planned: Planned) -> Any:
    """``fn(*args)``: the result of usual arguments, or None."""
    return _looked_up(op, planned) if planned.by is not None else _computed(op, planned)


# -- one way to compute ------------------------------------------------------------------------------------------------------


def _computed(op: Any, planned: Planned) -> Any:
    """`answer` of a plan that is one for all calls: ``rule(*args with arrays)``."""
    rule, every = planned.rule, planned.every
    several = planned.returns is not None or bool(getattr(op, "returns", None))
    recorded = _has_parameter(rule, "recorded")
    lines, given, kept = _unpack(op, planned, "None")
    lines += _conditions(planned)
    for name in planned.constant:
        lines += [f"if {name} is not None and {name}._node is not None:", "    return None"]
    if recorded:
        lines.append(f"_recorded = ({_noded(planned)}) and (GRAD or local.grad)")
        given.append("_recorded")
    elif op.kind == "composite" and not planned.discrete:
        lines += [f"if ({_noded(planned)}) and (GRAD or local.grad):", "    return None"]
    lines += _run(op, planned, f"rule({', '.join(given)})", several)
    compute = ["try:", *indented(lines), *refused(op, every), *(_several(op) if several else _made("_o"))]
    body = compute if planned.native is None else _native(op, planned, compute, several)
    if op.kind == "reduction":
        body += op.history_lines()
    elif getattr(op, "vjp_rule", None) is not None:
        kept = [f"wrap_dims({op.name!r}, {n}, {planned.tensors[0]}._array.ndim)" if n == planned.dims else k
                for n, k in zip(op.params, kept, strict=True)]  # fmt: skip
        body += record(op, kept, 2, several, planned.lists)
    elif planned.record is not None:
        body += ["if _recorded:", f"    RECORD(made, _kept, {', '.join(every)})"]
    body.append(f"return {_result(planned, several)}")
    from .reduction import wrap_dims

    return written(
        op, "answer", [f"def answer({', '.join(op.params)}):", *indented(body)], rule=rule, NATIVE=planned.native,
        MEMORY=getattr(op, "memory", None), in_memory_order=in_memory_order,
        ignore_fp_flags=ignore_fp_flags, restore_fp_flags=restore_fp_flags, _wrap=wrap, wrap_dims=wrap_dims,
        RECORD=planned.record, RETURNS=planned.returns, NAMED=named(op), new_tuple=tuple.__new__, FLOAT32=FLOAT32,
        FLOAT64=FLOAT64, REFUSED=REFUSED,
        check_refused=check_refused, **planned.names,
    )  # fmt: skip


def _run(op: Any, planned: Planned, call: str, several: bool) -> list[str]:
    """Lines that compute the result ``_o`` by `call`, and what is kept of the work, or return what is no array."""
    lines = [f"_o = {call}"]
    if planned.builtin:
        lines = [f"_o = {planned.builtin}", "if _o is None:", *indented(lines)]
    if planned.quiet:
        lines = ["_token = ignore_fp_flags()", "try:", *indented(lines), "finally:", "    restore_fp_flags(_token)"]
    if getattr(op, "keeps", False) or planned.record is not None:
        lines += ["if _o is None:", "    return None", "_o, _kept = _o"]
    if several:
        return [*lines, "if _o.__class__ is not tuple:", "    return None"]
    return [
        *lines,
        "if _o.__class__ is not ndarray:",
        "    if _o is None or _o is True or _o is False:",
        "        return _o",
        "    if _o.__class__ is tuple:",
        "        return (*map(_wrap, _o),)",
        "    _o = asarray(_o)",
        *([] if planned.lists else _ordered(op)),
    ]


def _result(planned: Planned, several: bool) -> str:
    """Text of the result."""
    return "made" if not several else "RETURNS(outs)" if planned.returns is not None else "new_tuple(NAMED, outs)"


def named(op: Any) -> Any:
    """The class of the named tuple of several results."""
    if not getattr(op, "returns", None):
        return None
    from .. import _results

    return _results.return_type(op.name, op.returns)


def _native(op: Any, planned: Planned, compute: list[str], several: bool) -> list[str]:
    """Lines that ask a builtin first, which takes and makes Tensors: None for what it does not take, True where a node should be."""
    made = "outs" if several else "made"
    call = [f"{made} = NATIVE.enter({', '.join(op.params)})"]
    if planned.native.__class__ is str:
        call = guarded(op, f"{made} = {planned.native}", made)
    first = "outs[0]" if several else "made"
    recorded = ["for _each in outs:", "    _each._node = None"] if several else ["made._node = None"]
    if op.kind == "composite" and not planned.discrete:
        recorded = ["return None"]                    # its parts record
    elif planned.wraps is not None:
        recorded.append(f"_front = {planned.wraps} % {planned.tensors[0]}._array.ndim")
    return [
        *call,
        f"if {made} is None:",
        *indented(compute),
        f"elif {first}._node is None:",
        f"    return {_result(planned, several)}",
        "else:",
        *indented(recorded),
    ]


def _several(op: Any) -> list[str]:
    """Lines that make the Tensors `outs` of several arrays."""
    count = len(op.returns) if getattr(op, "returns", None) else 0
    return [f"outs = ({''.join(f'_wrap(_o[{i}]), ' for i in range(count))})" if count else "outs = (*map(_wrap, _o),)"]


def _made(array: str) -> list[str]:
    """Lines that make the Tensor `made` of an array."""
    return [f"made = hot_calls.over({array})"]


def _noded(planned: Planned) -> str:
    """Text that tests whether one of the Tensors has a history."""
    if planned.lists:
        return "_noded"
    return " or ".join(
        f"{n} is not None and {n}._node is not None" if n in planned.optional else f"{n}._node is not None" for n in planned.every
    )


def guarded(op: Any, call: str, made: str = "made") -> list[str]:
    """Lines that make a `call` which may raise for arguments it was not made for: then `made` is None."""
    if not STRICT:
        return ["try:", f"    {call}", "except REFUSED:", f"    {made} = None"]
    given = ", ".join(op.params)
    return ["try:", f"    {call}", "except REFUSED as _error:", f"    check_refused(OP, (), ({given},), _error)", f"    {made} = None"]


def first_of(answers: tuple[Any, ...]) -> Any:
    """The function that asks all of `answers` in turn."""

    def answer(*args: Any) -> Any:
        for fn in answers:
            made = fn(*args)
            if made is not None:
                return made
        return None

    return answer


def refused(op: Any, operands: tuple[str, ...], errors: str = "REFUSED") -> list[str]:
    """Lines that leave a call whose plan raised to the fallback, which says what is wrong."""
    if not STRICT:
        return [f"except {errors}:", "    return None"]
    given = ", ".join(op.params)
    return [f"except {errors} as _error:", f"    check_refused(OP, {operands}, ({given},), _error)", "    return None"]


def _unpack(op: Any, planned: Planned, otherwise: str) -> tuple[list[str], list[str], list[str]]:
    """Lines that bring tensors down to arrays and count the dimension ``wraps`` from the front, or go on `otherwise`.

    Then the arguments of a rule, and those of the history.
    """
    lines: list[str] = []
    given: list[str] = []
    kept = list(op.params)
    if planned.lists:
        lines += _fetched_list(planned.tensors[0])
    for i, name in enumerate(op.params):
        if name in planned.every:
            lines += [] if planned.lists else _fetched(name, name in planned.optional, otherwise)
            given.append(f"a_{name}")
        elif name == planned.wraps and planned.lists:
            kept[i] = f"{name} % made._array.ndim"
            given.append(name)
        elif name == planned.wraps:
            kept[i] = "_front"
            given.append("_front")
        else:
            given.append(name)
    if planned.wraps is not None and not planned.lists:
        ndim, dim = f"a_{planned.tensors[0]}.ndim", planned.wraps
        wrong = f"if {dim}.__class__ is not int or not 0 <= _front < {ndim}:"
        lines += [f"_front = {dim} + {ndim} if {dim} < 0 else {dim}", wrong, f"    return {otherwise}"]
    return lines, given, kept


def _has_parameter(rule: Any, name: str) -> bool:
    """Whether `rule` has a parameter of the name."""
    code = getattr(rule, "__code__", None)
    return code is not None and name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _fetched(name: str, optional: bool, otherwise: str, contiguous: bool = False) -> list[str]:
    """Lines that bring one Tensor down to its array."""
    array = f"a_{name}"
    rows = f" or not {array}.flags.c_contiguous" if contiguous else ""
    fetch = [f"{array} = {name}._array", f"if {array}.__class__ is not ndarray{rows}:", f"    return {otherwise}"]
    return [f"{array} = None", f"if {name} is not None:", *indented(fetch)] if optional else fetch


def _fetched_list(name: str) -> list[str]:
    """Lines that bring a list of Tensors down to a list of arrays, and say whether one has a history."""
    return [
        f"if {name}.__class__ is Tensor:",
        "    return None",
        f"a_{name}, _noded = [], False",
        f"for _x in {name}:",
        "    if _x.__class__ is not Tensor and (not isinstance(_x, Tensor) or OVERRIDING and overriding_classes((_x,))):",
        "        return None",
        "    if _x._node is not None:",
        "        _noded = True",
        f"    a_{name}.append(_x._array)",              # whose classes the rule looks at
    ]


def _conditions(planned: Planned) -> list[str]:
    """Lines that test what the declaration says of the arrays, and otherwise return None."""
    first, *others = [f"a_{n}" for n in planned.tensors]
    missing = {f"a_{n}": f"{f'a_{n}'} is not None and " for n in planned.optional}
    tests: list[str] = []
    lines: list[str] = []
    if planned.dtypes:
        lines.append(f"_d = {first}.dtype")
        tests.append("_d is not FLOAT32 and _d is not FLOAT64" if planned.dtypes == "fd" else f"_d.char not in {planned.dtypes!r}")
        tests += [f"{missing.get(a, '')}{a}.dtype is not _d" for a in others]
    if planned.most is not None:
        tests.append(f"not 0 < {first}.size <= {planned.most}")
        tests += [f"{missing.get(a, '')}{a}.size > {planned.most}" for a in others]
    if planned.rows:
        tests += [f"{missing.get(a, '')}not {a}.flags.c_contiguous" for a in (f"a_{n}" for n in planned.every)]
    return [*lines, f"if {' or '.join(tests)}:", "    return None"] if tests else []


def _ordered(op: Any) -> list[str]:
    """Lines that give the result the order of memory which the declaration says, where an operand is not row-major."""
    if getattr(op, "memory", None) is None:
        return []
    arrays = [f"a_{name}" for name in op.ordering]
    rows = [f"{a}.flags.c_contiguous" if name not in op.defaults else f"({a} is None or {a}.flags.c_contiguous)"
            for a, name in zip(arrays, op.ordering, strict=True)]  # fmt: skip
    return [
        f"if not ({' and '.join(rows)}):",
        f"    _o = in_memory_order(_o, MEMORY, [_a for _a in ({', '.join(arrays)},) if _a is not None])",
    ]


# -- in place ----------------------------------------------------------------------------------------------------------------


def copying(op: Any, store: Any) -> Any:
    """The rule of an op whose result is its first argument with other values in some places, which `store` puts there."""
    from .memory import LIKE

    order = "K" if op.memory is LIKE else "C"

    def rule(a: Any, *args: Any) -> Any:
        made = a.copy(order)
        return made if store(made, *args) else None

    return rule


def answer_in_place(op: Any, planned: Planned, general: Any) -> Any:
    """``run_inplace`` of `op` by the store ``rule(array, *args with arrays) -> whether it stored``, else by `general`."""
    target, *others = tensor_names(op)
    lines, given, _ = _unpack(op, planned, f"general({', '.join(op.params)})")
    free = "".join(
        f" and ({name} is None or {name}._node is None and not one_memory({name}, {target}))"
        if name in op.defaults
        else f" and {name}._node is None and not one_memory({name}, {target})"
        for name in others
    )
    refusal = ["except REFUSED:", "    pass"]
    if STRICT:
        given_all = ", ".join(op.params)
        refusal = ["except REFUSED as _error:", f"    return store_refused(OP, {planned.every}, ({given_all},), _error, general)"]
    body = [
        f"def run_inplace({', '.join(op.params)}):",
        "    try:",
        *(f"        {line}" for line in lines),
        f"        base = {target}._view_of",
        f"        marked = MARKED and {target}._storage[0].__class__ is not int",
        f"        if not marked and {target}._node is None and (base is None or base[0]._node is None){free} and a_{target}.flags.carray:",
        f"            if store({', '.join(given)}):",
        f"                v = {target}._storage",
        "                v[0] += 1",
        "                v[1] = next_seq()",
        f"                return {target}",
        *(f"    {line}" for line in refusal),
        f"    return general({', '.join(op.params)})",
    ]
    return written(
        op, "run_inplace", body, store=planned.rule, general=general, one_memory=one_memory, store_refused=store_refused, REFUSED=REFUSED
    )


# -- a plan for each kind of operands ------------------------------------------------------------------------------------------


def _looked_up(op: Any, planned: Planned) -> Any:
    """`answer` by plans that ``rule(*args) -> Plan or None`` finds, and the text finds again by shapes, dtypes and plain arguments."""
    plans: dict[Any, Plan | None] = op.plans
    rule, tensors, optional = planned.rule, planned.every, planned.optional
    kernels.plans_kept_elsewhere.append(plans.clear)

    def learn(key: Any, *args: Any) -> Plan | None:
        try:
            made = rule(*args)
        except Exception as error:  # the fallback meets it too, and says what is wrong
            if STRICT:
                check_refused(op, tensors, args, error)
            return None
        if len(plans) >= MOST_PLANS:
            plans.clear()
        plans[key] = made
        return made

    # Names of its own begin with an underscore, because arguments have any others.
    lines = [f"def answer({', '.join(op.params)}):", "    try:"]
    for name in tensors:
        lines += indented(indented(_fetched(name, name in optional, "None", planned.by == "shape")))
    arrays = ", ".join(f"a_{name}" for name in tensors)
    lines += [
        f"        _key = ({', '.join(_key(op, name, planned) for name in op.params)},)",
        "        _plan = plans[_key]",
        "    except KeyError:",
        f"        _plan = learn(_key, {', '.join(op.params)})",
        *indented(refused(op, tensors, "(AttributeError, TypeError)")),
        "    if _plan is None:",
        "        return None",
        f"    if ({_noded(planned)}) and (GRAD or local.grad):",
        "        _records = _plan.records",
        "        if _records is None:",
        "            return None",
        "        _taped = _plan.taped",
        f"        _o, _kept = (_plan.run({arrays}), None) if _taped is None else _taped({arrays})",
        "    else:",
        f"        _o = _plan.run({arrays})",
        "        _records = None",
        "    if _o is None:",
        "        return None",
        "    if _plan.writes:",
        *(line for name in tensors for line in (
            f"        if {name!r} in _plan.writes{f' and {name} is not None' if name in optional else ''}:", f"            bump({name})",
        )),
        "    if _o.__class__ is not ndarray:",
        "        outs = (*map(hot_calls.over, _o),)",
        "        if _records is not None:",
        "            _history = _records.history if _plan.of_first else _records.histories",
        f"            _history(outs[0] if _plan.of_first else outs, _kept, *_plan.arguments({', '.join(('_kept', *tensors))}))",
        "        return outs",
        *indented(_made("_o")),
        "    if _records is not None:",
        f"        _records.history(made, _kept, *_plan.arguments({', '.join(('_kept', *tensors))}))",
        "    return made",
    ]
    return written(
        op, "answer", lines, plans=plans, learn=learn, typed=_typed, _wrap=wrap, REFUSED=REFUSED, check_refused=check_refused, bump=bump,
    )  # fmt: skip


def _key(op: Any, name: str, planned: Planned) -> str:
    """Text of what tells a plan, of the parameter `name`."""
    if name in planned.every:
        text = f"a_{name}.shape, a_{name}.dtype{f', a_{name}.strides' if planned.by == 'strides' else ''}"
        return f"None if a_{name} is None else ({text})" if name in planned.optional else text
    if name in op.defaults:
        kind = type(op.defaults[name]).__name__
    else:
        kind = op.declared_types.get(name)
        kind = kind if kind in ("bool", "float") else "int"
    if kind == "NoneType":
        return f"{name} if {name} is None or {name}.__class__ is int else typed({name})"
    return f"{name} if {name}.__class__ is {kind} else typed({name})"


_PLAIN = frozenset((int, float, bool, str, type(None), dtype))
_INTS = frozenset((int,) * n for n in range(1, 7))  # classes of the items of the tuples that are most frequent


def _typed(value: Any) -> Any:
    """What tells `value` from others that are equal to it but of another kind, such as 2.0 from 2.

    Raises: NotPlain for what is no number, text, dtype, None, or a tuple, list or Size of those.
    """
    kind = value.__class__
    if kind in _PLAIN:
        return kind, value
    if not isinstance(value, (tuple, list)):
        raise NotPlain(f"no plain argument: {kind.__name__}")
    kinds = (*map(type, value),)
    if kind is tuple and kinds in _INTS:
        return value
    if kind is not tuple and kind is not list and kind is not Size:
        kind = list if isinstance(value, list) else tuple if isinstance(value, tuple) else None  # graphs have lists that nobody may change
    if kind is None or not _PLAIN.issuperset(kinds):
        raise NotPlain(f"no plain argument: {kinds}")
    return (kind, *value, *kinds)


# -- elements in other places ------------------------------------------------------------------------------------------------


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
