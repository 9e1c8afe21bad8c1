"""Functions and methods that the compiler of scripts knows itself: Python's builtins, and those that take types."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import flambeau as fb

from .._schema import Type
from ._emit import ScriptError
from ._ir import Block, Value
from ._names import Counted, Plain, Several, Special, Thing
from ._types import BOOL, COMPLEX, FLOAT, INT, STR, TENSOR, ClassType, dict_of, text_of

if TYPE_CHECKING:
    from ._compile import Emitter

__all__ = ["METHODS", "OF_CONTAINERS", "OF_TREES", "SPECIALS", "GradMode", "NoEffect", "PythonContext", "Slice", "python_context", "waited"]


def _tolist(emit: Emitter, value: Value, args: list[Thing], kwargs: Any) -> Thing:
    raise emit.error("Expected type hint for result of tolist(): annotate the variable it is assigned to")


METHODS: dict[str, Any] = {
    "float": lambda emit, v, a, k: _cast(emit, v, fb.float32), "double": lambda emit, v, a, k: _cast(emit, v, fb.float64),
    "half": lambda emit, v, a, k: _cast(emit, v, fb.float16), "bfloat16": lambda emit, v, a, k: _cast(emit, v, fb.bfloat16),
    "long": lambda emit, v, a, k: _cast(emit, v, fb.int64), "int": lambda emit, v, a, k: _cast(emit, v, fb.int32),
    "short": lambda emit, v, a, k: _cast(emit, v, fb.int16), "char": lambda emit, v, a, k: _cast(emit, v, fb.int8),
    "byte": lambda emit, v, a, k: _cast(emit, v, fb.uint8), "bool": lambda emit, v, a, k: _cast(emit, v, fb.bool),
    "ndimension": lambda emit, v, a, k: Plain(emit.operator("aten::dim", [v])),
    "nelement": lambda emit, v, a, k: Plain(emit.operator("aten::numel", [v])),
    "tolist": _tolist,
    "where": lambda emit, v, a, k: _where(emit, v, *a, **k),
}  # fmt: skip


def _where(emit: Emitter, value: Value, condition: Thing, other: Thing) -> Thing:
    return Plain(emit.operator("aten::where", [condition.value(emit), value, other.value(emit)]))


def _cast(emit: Emitter, value: Value, dtype: Any) -> Thing:
    return Plain(emit.operator("aten::to", [value, emit.constant(dtype), emit.constant(False), emit.constant(False), emit.constant(None)]))


class GradMode(Thing):
    """``no_grad()`` or ``enable_grad()`` in a ``with`` statement."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled


class NoEffect(Thing):
    """A context that asks nothing of a script here, such as ``jit.strict_fusion()``."""


class PythonContext(Thing):
    """A context of ours: the class that makes it, and what it is given."""

    def __init__(self, cls: Any, inputs: list[Value], names: tuple[str, ...]) -> None:
        self.cls, self.inputs, self.names = cls, inputs, names


def python_context(cls: Any, names: tuple[str, ...]) -> Any:
    """What compiles a call of the class, whose parameters are `names`."""
    def apply(emit: Emitter, args: list[Thing], kwargs: dict[str, Thing]) -> Thing:
        given = dict(zip(names, args, strict=False)) | kwargs
        unknown = [n for n in given if n not in names]
        if unknown:
            raise emit.error(f"Keyword argument {unknown[0]} unknown.")
        return PythonContext(cls, [g.value(emit) for g in given.values()], tuple(given))

    return apply


# -- functions that the compiler knows itself ----------------------------------------------------------------------------


def _range(emit: Emitter, args: list[Thing], kwargs: Any) -> Thing:
    given = [emit.as_type(a.value(emit), INT, "an argument of range()") for a in args]
    if len(given) == 1:
        end = given[0]
        return Counted(lambda e: end, lambda e, i: Plain(i))
    low, high = given[:2]
    step = given[2] if len(given) == 3 else emit.constant(1)
    return Counted(
        lambda e: e.operator("aten::__range_length", [low, high, step]),
        lambda e, i: Plain(e.operator("aten::__derive_index", [i, low, step])),
    )


def _enumerate(emit: Emitter, args: list[Thing], kwargs: dict[str, Thing]) -> Thing:
    start = args[1] if len(args) > 1 else kwargs.get("start")
    first = emit.constant(0) if start is None else start.value(emit)
    parts = args[0].elements(emit)
    if parts is not None and isinstance(first.fact, int):
        return Several([Several([Plain(emit.constant(i + first.fact)), p]) for i, p in enumerate(parts)])
    over = emit.counted(args[0])

    def item(e: Emitter, i: Value) -> Thing:
        return Several([Plain(i if first.fact == 0 else e.operator("aten::add", [i, first])), over.item(e, i)])

    return Counted(over.length, item)


def _zip(emit: Emitter, args: list[Thing], kwargs: Any) -> Thing:
    parts = [a.elements(emit) for a in args]
    if all(p is not None for p in parts):
        return Several([Several(list(row)) for row in zip(*[p or [] for p in parts], strict=False)])
    if any(p is not None for p in parts):                # as many elements as are known: the others are asked at these indices
        count = min(len(p) for p in parts if p is not None)
        rows = []
        others = [None if p is not None else emit.counted(a) for a, p in zip(args, parts, strict=True)]
        for i in range(count):
            at = emit.constant(i)
            rows.append(Several([p[i] if p is not None else o.item(emit, at) for p, o in zip(parts, others, strict=True)]))  # type: ignore[union-attr]
        return Several(rows)
    over = [emit.counted(a) for a in args]

    def length(e: Emitter) -> Value:
        lengths = [o.length(e) for o in over]
        return e.operator("prim::min", [e.list(lengths, INT)]) if len(lengths) > 1 else lengths[0]

    return Counted(length, lambda e, i: Several([o.item(e, i) for o in over]))


def _reversed(emit: Emitter, args: list[Thing], kwargs: Any) -> Thing:
    parts = args[0].elements(emit)
    if parts is not None:
        return Several(parts[::-1])
    over = emit.counted(args[0])
    count = over.length(emit)

    def item(e: Emitter, i: Value) -> Thing:
        last = e.operator("aten::sub", [count, e.constant(1)])
        return over.item(e, e.operator("aten::sub", [last, i]))

    return Counted(lambda e: count, item)


def _len(emit: Emitter, args: list[Thing], kwargs: Any) -> Thing:
    parts = args[0].elements(emit)
    if parts is not None:
        return Plain(emit.constant(len(parts)))
    if isinstance(args[0], Counted):
        return Plain(args[0].length(emit))
    value = args[0].value(emit)
    if isinstance(value.type(), ClassType):
        return emit.attribute_of(value, "__len__").call(emit, [], {})
    return Plain(emit.operator("aten::len", [value]))


def _converted(name: str, kind: Type) -> Any:
    def apply(emit: Emitter, args: list[Thing], kwargs: Any) -> Thing:
        if not args:
            return Plain(emit.constant({INT: 0, FLOAT: 0.0, BOOL: False, STR: "", COMPLEX: 0j}[kind]))
        values = [a.value(emit) for a in args]
        if len(values) == 1 and values[0].type() == kind:
            return Plain(values[0])
        if kind == BOOL:
            return Plain(emit._truth(values[0]))
        return Plain(emit.operator(name, values))

    return apply


def _smallest(name: str) -> Any:
    def apply(emit: Emitter, args: list[Thing], kwargs: Any) -> Thing:
        values = [a.value(emit) for a in args]
        if TENSOR in [v.type() for v in values]:
            return Plain(emit.operator(f"aten::{name}", values))
        if len(values) == 1 and values[0].type().kind == "Tuple":
            values = emit.unpacked(values[0])
        if len(values) == 1:
            return Plain(emit.operator(f"prim::{name}", values))
        made = values[0]
        for v in values[1:]:
            made = emit.operator(f"prim::{name}", [made, v])
        return Plain(made)

    return apply


def _absolute(emit: Emitter, args: list[Thing], kwargs: Any) -> Thing:
    value = args[0].value(emit)
    return Plain(emit.operator("aten::abs" if value.type() == TENSOR else "prim::abs", [value]))


def _print(emit: Emitter, args: list[Thing], kwargs: Any) -> Thing:
    if kwargs:
        raise emit.error("print doesn't accept any keyword arguments")
    emit.node("prim::Print", [a.value(emit) for a in args], [])
    return Plain(emit.constant(None))


def _listed(emit: Emitter, args: list[Thing], kwargs: Any) -> Thing:
    if not args:
        return Plain(emit.list([], TENSOR))
    parts = args[0].elements(emit)
    if parts is not None:
        values = [p.value(emit) for p in parts]
        return Plain(emit.list(values, values[0].type() if values else TENSOR))
    if isinstance(args[0], Counted):
        return Plain(emit.list_of_all(args[0]))
    value = args[0].value(emit)
    if value.type().kind == "Dict":
        return Plain(emit.operator("aten::keys", [value]))
    return Plain(emit.operator("aten::list", [value]))


def _tupled(emit: Emitter, args: list[Thing], kwargs: Any) -> Thing:
    parts = args[0].elements(emit) if args else []
    if parts is None:
        raise emit.error("cannot convert a list to a tuple in a script, whose number of elements is part of its type")
    return Plain(emit.tuple([p.value(emit) for p in parts]))


def _dicted(emit: Emitter, args: list[Thing], kwargs: dict[str, Thing]) -> Thing:
    if not args:
        flat: list[Value] = []
        for k, v in kwargs.items():
            flat += [emit.constant(k), v.value(emit)]
        kind = dict_of(STR, flat[1].type() if flat else TENSOR)
        return Plain(emit.node("prim::DictConstruct", flat, [kind])[0])
    value = args[0].value(emit)
    return Plain(emit.operator("aten::copy" if value.type().kind == "Dict" else "aten::dict", [value]))


def _getattr(emit: Emitter, args: list[Thing], kwargs: Any) -> Thing:
    name = args[1].value(emit).fact
    if not isinstance(name, str):
        raise emit.error("getattr's second argument must be a string literal")
    try:
        return args[0].attribute(emit, name)
    except ScriptError:
        if len(args) < 3:
            raise
        return args[2]


def _hasattr(emit: Emitter, args: list[Thing], kwargs: Any) -> Thing:
    name = args[1].value(emit).fact
    try:
        with emit.into(Block()):
            args[0].attribute(emit, name)
    except ScriptError:
        return Plain(emit.constant(False))
    return Plain(emit.constant(True))


def _slice(emit: Emitter, args: list[Thing], kwargs: Any) -> Thing:
    return Slice([a.value(emit) for a in args])


class Slice(Thing):
    """``slice(...)`` in an index."""

    def __init__(self, bounds: list[Value]) -> None:
        given: list[Value | None] = [None, *bounds] if len(bounds) == 1 else [*bounds]
        self.bounds = [*given, *[None] * (3 - len(given))]


def _annotate(emit: Emitter, node: ast.Call) -> Thing:
    kind = emit.resolver.annotation(emit, node.args[0])
    value = emit.value(node.args[1], kind)
    emit.at = node
    value = emit.as_type(value, kind, "annotate()")
    return Plain(emit._wider(value, kind) if value.type() != kind and kind.kind == "Optional" else value)


def _unchecked_cast(emit: Emitter, node: ast.Call) -> Thing:
    kind = emit.resolver.annotation(emit, node.args[0])
    return Plain(emit.node("prim::unchecked_cast", [emit.value(node.args[1])], [kind])[0])


def _uninitialized(emit: Emitter, node: ast.Call) -> Thing:
    return Plain(emit.uninitialized(emit.resolver.annotation(emit, node.args[0])))


def _isinstance(emit: Emitter, node: ast.Call) -> Thing:
    found = emit._isinstance(node)
    assert found is not None
    return Plain(found[0])


def _super(emit: Emitter, node: ast.Call) -> Thing:
    of = emit.scope.get("self")
    if not isinstance(of, Plain) or emit.function.owner is None:
        raise emit.error("super() stands in methods alone")
    return emit.resolver.super(emit, of.value(emit))  # type: ignore[attr-defined]


def _fork(emit: Emitter, node: ast.Call) -> Thing:
    called = emit.expression(node.args[0])
    args = emit._all(node.args[1:])
    kwargs = {k.arg or "": emit.expression(k.value) for k in node.keywords}
    emit.at = node
    inner = Block()
    with emit.into(inner):
        result = called.call(emit, args, kwargs).value(emit)
    inner._outputs.append(result)
    made = emit.node("prim::fork", [], [Type("Future", (result.type(),))])[0]
    assert made.node is not None
    made.node._blocks.append(inner)
    return Plain(made)


def waited(emit: Emitter, args: list[Thing], kwargs: Any) -> Thing:
    future = args[0].value(emit)
    if future.type().kind != "Future":
        raise emit.error(f"wait() takes a Future, got {text_of(future.type())}")
    return Plain(emit.node("aten::wait", [future], [future.type().inner[0]])[0])


OF_TREES: dict[str, Callable[[Any, ast.Call], Thing]] = {
    "annotate": _annotate, "unchecked_cast": _unchecked_cast, "uninitialized": _uninitialized, "isinstance": _isinstance, "super": _super,
    "fork": _fork,
}  # fmt: skip


def _all_parts(emit: Emitter, value: Value, kind: ClassType) -> list[tuple[str, Thing]]:
    return [(n, emit.attribute_of(value, n)) for n in emit.parts_of(kind)]


OF_CONTAINERS: dict[str, Any] = {
    "__len__": lambda emit, v, k: Plain(emit.constant(len(emit.parts_of(k)))),
    "values": lambda emit, v, k: Several([p for _, p in _all_parts(emit, v, k)]),
    "keys": lambda emit, v, k: Several([Plain(emit.constant(n)) for n in emit.parts_of(k)]),
    "items": lambda emit, v, k: Several([Several([Plain(emit.constant(n)), p]) for n, p in _all_parts(emit, v, k)]),
    "children": lambda emit, v, k: Several([p for _, p in _all_parts(emit, v, k)]),
    "named_children": lambda emit, v, k: Several([Several([Plain(emit.constant(n)), p]) for n, p in _all_parts(emit, v, k)]),
}  # fmt: skip


def _one_operator(name: str) -> Any:
    def apply(emit: Emitter, args: list[Thing], kwargs: dict[str, Thing]) -> Thing:
        return Plain(emit.operator(name, [a.value(emit) for a in args], {k: v.value(emit) for k, v in kwargs.items()}))

    return apply


SPECIALS: dict[str, Thing] = {
    name: Special(name, apply)
    for name, apply in {
        "range": _range, "enumerate": _enumerate, "zip": _zip, "reversed": _reversed, "len": _len, "int": _converted("aten::Int", INT),
        "float": _converted("aten::Float", FLOAT), "bool": _converted("aten::Bool", BOOL), "str": _converted("aten::str", STR),
        "complex": _converted("aten::Complex", COMPLEX), "min": _smallest("min"), "max": _smallest("max"), "abs": _absolute,
        "print": _print, "list": _listed, "tuple": _tupled, "dict": _dicted, "getattr": _getattr, "hasattr": _hasattr,
        "isinstance": None, "super": None, "round": _one_operator("aten::round"), "sum": _one_operator("aten::sum"),
        "any": _one_operator("aten::any"), "all": _one_operator("aten::all"), "sorted": _one_operator("aten::sorted"),
        "ord": _one_operator("aten::ord"), "chr": _one_operator("aten::chr"), "hex": _one_operator("aten::hex"),
        "oct": _one_operator("aten::oct"), "bin": _one_operator("aten::bin"), "hash": _one_operator("aten::hash"),
        "pow": _one_operator("aten::pow"), "slice": _slice, "divmod": _one_operator("aten::divmod"),
    }.items()
}  # fmt: skip
