"""How a call is answered: by modes, operands' classes and interpreters, the innermost first, and in the end by the op itself.

An entry point of an op comes here when this thread has modes or interpreters in force, or an operand of the call may override
functions; all others answer at once, whatever other threads and tensors do. Modes and classes are asked first, then the
interpreters of this thread: autocast, dispatch modes, function transforms, anomaly mode and others. Each either answers or
passes on, and while one answers only those outside it are in force, so that what it calls goes to the next. When nobody has
answered, `Op.enter` does: the same text that a plain call runs.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .. import _state
from .._arrays import HeldArray, NoValues
from .._errors import NeedsValues
from .._interpreters import DECOMPOSE, NOTED, UNTOUCHED, ask, below, pop, push
from ..devices import Size, device
from ..dtypes import dtype
from ..tensor import Tensor, TensorMeta, bump, no_torch_dispatch, wrap
from ._spec import OPS, Op, check_inplace, check_writable, rebase
from ._spec.writing import check_view, forget_overwritten, keep_for_histories, refresh_saved_output
from ._written import written

_local = _state.local
_new = object.__new__

# Classes of arguments that leave operations to us; those of single ones, and of lists too.
SINGLE: set[type] = {Tensor, int, float, bool, complex, str, type(None), Size, dtype, device, slice, type(...)}
PLAIN = SINGLE | {list, tuple}
# Classes that override nothing: those and others, whose instances interpreters answer for.
SILENT = set(SINGLE)
TENSORS: set[type] = {Tensor}                         # Tensor, and subclasses whose objects are treated as Tensors


def take_for_plain(cls: type) -> None:
    """Treat operands of the class `cls` as Tensors: it overrides nothing."""
    SINGLE.add(cls)
    SILENT.add(cls)
    PLAIN.add(cls)
    TENSORS.add(cls)


def take_for_silent(cls: type) -> None:
    """Ask interpreters alone about operands of the class `cls`: it overrides nothing, but is no Tensor that an op could run on."""
    SILENT.add(cls)


def call(op: Op, args: tuple[Any, ...], out: Any = None, func: Any = None) -> Any:
    """Run `op`, which users called by `func` (its function by default), with every mode, class and interpreter given its say."""
    if out is None:
        result = of_one_class(op, args)
        if result is not NotImplemented:
            return result
    overriding = overriding_classes(args if out is None else (*args, out))
    if overriding or _local.calls.modes:
        if (answer := _answer_to_ops(overriding)) is not None:
            return answer(op, args, out, False)
        kwargs = {} if out is None else {"out": out}
        return dispatch_op(func or public_function(op), overriding, op, args, kwargs)
    for name, a in zip(op.params, args, strict=False):
        if isinstance(a, (np.ndarray, np.generic)) and getattr(op, "declared_types", {}).get(name, "").startswith("Tensor"):
            from ._refusal import refuse_types

            refuse_types(op, args)                    # arrays pass for tensors in much of what compositions do
    return interpret(op, args, out)


def of_one_class(op: Op, args: tuple[Any, ...]) -> Any:
    """The result of `op` where just one subclass of Tensor wants a say, and leaves it to Tensor's handlers; else NotImplemented."""
    calls = _local.calls
    if calls.modes or calls.interpreters or calls.classes_off:
        return NotImplemented
    cls: Any = None
    for a in args:
        own = a.__class__
        if own in SILENT or own is cls:
            continue
        if cls is not None or type(own) is not TensorMeta:
            return NotImplemented
        cls = own
    if cls is None or cls._plain_operand or cls.__torch_dispatch__ is not no_torch_dispatch:
        return NotImplemented
    if getattr(cls.__torch_function__, "__func__", None) is not _torch_function:
        return NotImplemented
    given = args
    if op.kind in _OF_VALUES:                         # builtins take no others than plain Tensors; nothing writes or views these
        given = []
        for a in args:
            if a.__class__ is cls:
                plain = _new(Tensor)
                plain._array, plain._storage, plain._node, plain._view_of = a._array, a._storage, a._node, a._view_of
                a = plain
            given.append(a)
    calls.classes_off += 1
    try:
        result = op.enter(*given)
    finally:
        calls.classes_off -= 1
    if result.__class__ is not Tensor:
        return _converted(result, cls)
    # As `as_subclass` does; that there are operands which override functions has been noted with the first.
    made = _new(cls)
    made._array, made._storage, made._node, made._view_of = result._array, result._storage, result._node, result._view_of
    return made


_OF_VALUES = frozenset(("elementwise", "reduction", "primitive"))  # kinds of ops whose results are no views of their operands


def call_inplace(op: Op, args: tuple[Any, ...], func: Any = None) -> Any:
    """Run the in-place form of `op`, which users know as `func`."""
    overriding = overriding_classes(args)
    if overriding or _local.calls.modes:
        if (answer := _answer_to_ops(overriding)) is not None:
            return answer(op, args, args[0], True)
        if func is None:
            func = getattr(Tensor, f"{op.name}_")
        return dispatch_op(func, overriding, op, args, {})
    return interpret(op, args, args[0], True)


def interpret(op: Op, args: tuple[Any, ...], out: Any = None, inplace: bool = False) -> Any:
    """Ask the interpreters, the innermost first, then run `op` itself."""
    stack = _local.calls.interpreters
    if stack and out is None and (quick := stack[-1].quick) is not None:
        result = quick(op, *args)
        if result is not None:
            return result
    return ask_interpreters(op, args, out, inplace)


def ask_interpreters(op: Op, args: tuple[Any, ...], out: Any = None, inplace: bool = False) -> Any:
    """As `interpret`, where the innermost has no quick answer."""
    calls = _local.calls
    stack = calls.interpreters
    depth = len(stack)
    lowest = depth and stack[0].observes              # the profiler, if there is one, looks on below all others
    untouched = depth > lowest
    noting = None
    while depth > lowest:
        depth -= 1
        interpreter = stack[depth]
        if (
            interpreter.answers_wrapped and args and args[0].__class__ in SINGLE and out is None
            and not op.random and SINGLE.issuperset(map(type, args))
        ):  # fmt: skip
            continue
        if op in interpreter.declines:
            untouched = False
            continue
        if out is None and depth + 1 < len(stack) and interpreter.quick is not None and op.kind != "composite":
            result = interpreter.quick(op, *args)     # of compositions, whose parts those inside it may want, it has noted none
            if result is not None:
                return result
        if interpreter.runs_compositions and not untouched and op.kind == "composite":
            continue
        calls.interpreters = stack[:depth]
        try:
            result = interpreter.run(op, args, out, inplace)
        finally:
            calls.interpreters = stack
        if result is UNTOUCHED:
            continue
        untouched = False
        if result is NOTED:
            noting = interpreter if depth + 1 == len(stack) else None
            continue
        if result is DECOMPOSE:
            if op.in_parts is not None:
                return op.in_parts(*args)
            break
        if result is not NotImplemented:
            return result
    for a in args:
        if a.__class__ not in SILENT:
            classes = answering_classes(args if out is None else (*args, out))
            if classes:
                return _by_class(classes, op, args, out, inplace)
            break
    run = _enter
    if op.kind == "composite" and len(stack) > lowest:
        run = _untouched if untouched else _composed
    if noting is not None and not lowest:
        mark = noting.mark()
        result = run(op, args, out, inplace)
        noting.note_composition(op, args, result, mark)
        return result
    return stack[0].observe(op, args, out, inplace, run) if lowest else run(op, args, out, inplace)


def _enter(op: Op, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
    """Run `op` itself."""
    if inplace:
        return op.enter_inplace(*args)
    return op.enter(*args) if out is None else op.run_out(out, *args)


def _untouched(op: Op, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
    """A composition whose parts are no interpreter's business either: they run without asking."""
    calls = _local.calls
    before = calls.interpreters
    calls.interpreters = before[: before[0].observes]
    try:
        return _enter(op, args, out, inplace)
    finally:
        calls.interpreters = before


def _composed(op: Op, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
    """A composition under interpreters: the ops it is made of come here in turn; the in-place form stores the result."""
    if out is not None and not inplace:
        return op.run_out(out, *args)
    if inplace and op.inplace_view is not None:
        return op.inplace_view(*args)
    begin = _state.next_seq() if inplace else 0
    try:
        result = op.run(*args)
    except NeedsValues:
        calls = _local.calls
        stack = calls.interpreters
        for depth in range(len(stack) - 1, -1, -1):
            calls.interpreters = stack[:depth]
            try:
                result = stack[depth].run_each(op, args)
            finally:
                calls.interpreters = stack
            if result is not NotImplemented:
                break
        else:
            raise
    return store_composed(op, args[0], result, begin) if inplace else result


def store_composed(op: Op, target: Tensor, result: Tensor, begin: int) -> Any:
    """Store in `target`, which is returned, what a composition under interpreters has made since `begin` for its in-place form."""
    check_inplace(op, target, result)
    keep_for_histories(begin, target, [result])
    return interpret(OPS["Tensor.overwrite"], (target, result), target, True)


def made(name: str, given: dict[str, Any], requires_grad: bool = False) -> Any:
    """The tensor that dispatch modes give for a function that makes or fills one; None if none of them answers.

    Args:
        name: of the operator.
        given: its arguments by name; None for those that were not given.
    """
    from .._aten import call_of  # schemas, which plain programs do not need

    calls = _local.calls
    stack = calls.interpreters
    for depth in range(len(stack) - 1, -1, -1):
        if not stack[depth].sees_makers:
            continue
        call = call_of(name, given)
        if call is None:
            return None
        calls.interpreters = stack[:depth]
        try:
            result = stack[depth].run_maker(call)
        finally:
            calls.interpreters = stack
        if result is not NotImplemented:
            return result.requires_grad_(True) if requires_grad else result
    classes = answering_classes(given.values())
    call = call_of(name, given) if classes else None
    if call is None:
        return None
    result = ask_classes(classes, *call)
    return result.requires_grad_(True) if requires_grad else result


def is_seen(*operands: Any) -> bool:
    """Whether dispatch modes or recorders look at this thread, or one of `operands` is a wrapper: rules read only results of ops then."""
    watched = any(x.sees_makers or x.follows_results for x in _local.calls.interpreters)
    return watched or any(getattr(x, "_array", x).__class__ is HeldArray for x in operands)


def stands_for_others() -> bool:
    """Whether what runs now is to hold for other values than there are: a graph is recorded, or fake tensors are answered."""
    return _local.stand_in is not None or any(x.follows_results for x in _local.calls.interpreters)


def may_be_checked(x: Tensor) -> bool:
    """Whether the values of `x` may be looked at for those that an op refuses: those are meant, and there are some."""
    return not stands_for_others() and not x._lacks_values


def records_history(*operands: Any) -> bool:
    """Whether a graph is recorded of ops that get a history, for one of `operands` has one: what becomes one node of it is one op."""
    if not _state.grad_enabled() or not any(x is not None and x._node is not None for x in operands):
        return False
    stack = [x for x in _local.calls.interpreters if x.kind not in ("autocast", "profiler", "fake") and not x.is_transparent]
    return bool(stack) and all(x.follows_results for x in stack)


def takes_gradients_whole() -> bool:
    """Whether a rule is to answer by one op that gives all gradients, as the kernel of a plain backward does: a graph is recorded of it."""
    return not _state.grad_enabled() and any(x.follows_results for x in _local.calls.interpreters)


def made_there(name: str, given: dict[str, Any], requires_grad: bool = False) -> Any:
    """`made`, for functions that make tensors on the default device."""
    if not is_seen():
        return None
    place = given["device"]
    if given.get("out") is None:
        given["device"] = device(place) if place is not None else _state.default_device() or device("cpu")
        given["pin_memory"] = bool(given.get("pin_memory"))
    else:
        given = {key: value for key, value in given.items() if key not in ("device", "dtype", "layout", "pin_memory")}
    return made(name, given, requires_grad)


# -- __torch_dispatch__ of classes ----------------------------------------------------------------------------------------


def answering_classes(args: Any) -> list[type]:
    """Classes of operands that answer ops by `__torch_dispatch__`, subclasses before the classes they derive from."""
    found: list[type] = []
    for a in args:
        for x in a if isinstance(a, (list, tuple)) else (a,):
            cls = type(x)
            if cls in SINGLE or cls in found or not isinstance(cls, TensorMeta):
                continue
            if (handler := cls.__torch_dispatch__) is no_torch_dispatch or handler is None:  # type: ignore[attr-defined]  # Tensor has it
                continue
            at = next((i for i, c in enumerate(found) if issubclass(cls, c)), len(found))
            found.insert(at, cls)
    return found


def _by_class(classes: list[type], op: Op, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
    """The answer of an operand's class to `op`, with its history. Compositions that are recorded, or no operators, are taken apart."""
    from ..utils._python_dispatch import seen_as

    answerer = classes[0]._answerer  # type: ignore[attr-defined]  # Tensor has it
    if answerer is not None:
        return answered_by(answerer, op, args, out, inplace)
    if op.in_parts is not None and out is None:
        return op.in_parts(*args)
    recorded = _state.grad_enabled() and any(isinstance(x, Tensor) and x._node is not None for x in _flat(args))
    func, given, kwargs = (None, args, {}) if recorded and op.kind == "composite" else seen_as(op, args, out, inplace)
    if func is None:
        return _composed(op, args, out, inplace)
    if recorded and (inplace or out is not None):
        what = "in place" if inplace else "into an out"
        raise NotImplementedError(f"{op.public_name}: storing {what} is not built for recorded operands of {classes[0].__name__}")
    check = getattr(op, "check", None)
    if recorded and check is not None and op.kind != "elementwise":
        args = check(*args) or args
    result = ask_classes(classes, func, given, kwargs)
    if inplace:
        bump(args[0])
        return args[0]
    if recorded and out is None:
        result = _recorded(op, args, result)
    return result


def answered_by(answerer: Any, op: Op, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
    """The answer to `op` of a class that answers ops themselves, not operators, with its history.

    Its `answerer` has these methods: ``taken(op, args, within)`` gives the arguments that it works with, also what compositions
    (`within`) have made on their way; ``composed(op, args)`` the result of a composition as a whole, or NotImplemented; ``answer(op, args,
    inplace)`` that of any other op, without history; ``whole(op, args)`` that of an op that reads elements on its way, with its history;
    ``store(target, value)`` puts values into an operand.
    """
    calls = _local.calls
    args = answerer.taken(op, args, calls.composing > 0)
    recorded = _state.grad_enabled() and any(isinstance(x, Tensor) and x._node is not None for x in _flat(args))
    if inplace and (recorded or op.kind == "composite") or out is not None and not inplace:
        return _answered_into(answerer, op, args, args[0] if inplace else out)
    if op.kind == "composite" or op.in_parts is not None:
        result = answerer.composed(op, args) if op.kind == "composite" else NotImplemented
        if result is NotImplemented:
            calls.composing += 1
            try:
                result = op.in_parts(*args) if op.in_parts is not None else op.run(*args)
            except NoValues:
                result = answerer.on_replicas(op, args)
            finally:
                calls.composing -= 1
        return result
    check = getattr(op, "check", None)
    if recorded and check is not None and op.kind != "elementwise":
        try:
            args = check(*args) or args
        except NoValues:
            return answerer.on_replicas(op, args)
    before = _state.set_grad(False)
    try:
        result = answerer.answer(op, args, inplace)
    finally:
        _state.set_grad(before)
    if inplace:
        bump(args[0])
        return args[0]
    return _recorded(op, args, result) if recorded else result


def _answered_into(answerer: Any, op: Op, args: tuple[Any, ...], targets: Any) -> Any:
    """The answer to `op`, stored in operands of the class, which take over its history."""
    result = answered_by(answerer, op, args, None, False)
    several = isinstance(targets, (list, tuple))
    for target, made in zip(targets if several else (targets,), result if several else (result,), strict=True):
        if not isinstance(target, Tensor) or target._array.__class__ is not HeldArray:
            raise RuntimeError(f"{op.public_name}: `out` is a plain tensor, and an operand is none; give an `out` of its class, or none")
        if target is made:
            continue
        if tuple(target.shape) != tuple(made.shape):
            shapes = f"{tuple(made.shape)}, and the tensor that takes it {tuple(target.shape)}"
            raise RuntimeError(f"{op.public_name}: the result has shape {shapes}")
        check_writable(op, target)
        node = made._node
        if node is not None and _state.grad_enabled():
            check_view(op, target)
            forget_overwritten(node, target)
        answerer.store(target, made)
        bump(target)
        if node is not None:
            node.seq = _state.next_seq()
            refresh_saved_output(node, made, target)
            rebase(target, node)
    return targets


def ask_classes(classes: list[type], func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the first of `classes` that answers gives for the operator `func`; nothing is recorded meanwhile.

    Raises: TypeError when all return NotImplemented.
    """
    before = _state.set_grad(False)
    try:
        for cls in classes:
            result = cls.__torch_dispatch__(func, tuple(classes), args, kwargs)  # type: ignore[attr-defined]
            if result is not NotImplemented:
                return result
    finally:
        _state.set_grad(before)
    names = ", ".join(c.__name__ for c in classes)
    raise TypeError(
        f"Multiple dispatch failed for '{func}'; all __torch_dispatch__ handlers returned NotImplemented: {names}; answer it there, or "
        "call it with the tensors that are wrapped"
    )


def _flat(args: Any) -> list[Any]:
    return [x for a in args for x in (a if isinstance(a, (list, tuple)) else (a,))]


def answered(op: Any, args: tuple[Any, ...], outs: tuple[Tensor, ...], recorded: bool) -> Any:
    """`outs`, which are what `op` gives for `args`, as its result; with its history if `recorded`."""
    first, several = outs[0], len(outs) > 1
    if recorded:
        check = getattr(op, "check", None)
        if check is not None and op.kind != "elementwise":
            args = check(*args) or args
        return _recorded(op, args, outs if several else first)
    if not several:
        return first
    return op.named(outs) if getattr(op, "returns", None) else outs


def _recorded(op: Any, args: tuple[Any, ...], result: Any) -> Any:
    """`result` of a class with the history of `op`: nodes as for any other result, whose rules run on Tensors."""
    several = isinstance(result, (tuple, list))
    operands = [x for x in _flat(args) if isinstance(x, Tensor)]
    outs = tuple([_as_another_object(r, operands) for r in (result if several else (result,))])
    if op.kind == "elementwise":
        if op.differentiable and (outs[0].is_floating_point() or outs[0].is_complex()):
            op.record(outs[0], *args)
    elif op.kind == "reduction":
        op.record(outs[0], args[0], op.axes_of(args[1], args[0].ndim), bool(args[2]), args[1] is None)
    elif op.kind == "view" and several:
        for i, made in enumerate(outs):
            op.part(i).record(made, args)
    elif op.kind == "view":
        op.record_view(outs[0], args[0], args[1:])
    elif op.has_history:
        op.record(outs, args, several)
    if not several:
        return outs[0]
    return op.named(outs) if getattr(op, "returns", None) else outs


def _as_another_object(made: Any, operands: list[Any]) -> Any:
    """`made`, as another object if it is one of the operands, whose history is theirs."""
    return wrap(made._array) if any(made is x for x in operands) else made


def interpret_with(interpreter: Any, op: Op, args: tuple[Any, ...]) -> Any:
    """`interpret` with `interpreter` in force inside those that are."""
    calls = _local.calls
    before = calls.interpreters
    calls.interpreters = (*before, interpreter)
    try:
        return interpret(op, args)
    finally:
        calls.interpreters = before


def detach(given: Tensor) -> Tensor:
    return OPS["detach"].function(given)


def call_setitem(self: Tensor, key: Any, value: Any) -> None:
    """``self[key] = value`` with every mode, class and interpreter given its say."""
    from .indexing import setitem

    overriding = overriding_classes((self, *_operands_of(key), value))
    if overriding or _local.calls.modes:
        dispatch_torch_function(Tensor.__setitem__, overriding, (self, key, value), {})  # type: ignore[attr-defined]
    elif _local.calls.interpreters:
        if ask("run_setitem", self, key, value) is NotImplemented:
            setitem.store_by_ops(self, key, value)
    else:
        setitem.store(self, key, value)


def _operands_of(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


# -- __torch_function__ --------------------------------------------------------------------------------------------------


def public_function(op: Op) -> Any:
    """What users know the function of `op` as."""
    return Tensor.__getitem__ if op.name == "getitem_op" else op.function  # type: ignore[attr-defined]


def overriding_classes(args: Any) -> tuple[type, ...] | list[type]:
    """Classes of operands that want a say, subclasses before the classes they derive from."""
    found: tuple[type, ...] | list[type] = ()
    if _local.calls.classes_off:
        return found
    for a in args:
        if a.__class__ in SILENT:
            continue
        for x in a if isinstance(a, (list, tuple)) else (a,):
            cls = type(x)
            if cls in PLAIN or cls in found or not overrides(cls):
                continue
            if not found:
                found = [cls]
                continue
            found = list(found)
            at = next((i for i, c in enumerate(found) if issubclass(cls, c)), len(found))
            found.insert(at, cls)
    return found


def overrides(cls: Any) -> bool:
    """Whether operands of class `cls` want a say in functions."""
    if isinstance(cls, TensorMeta):
        return not cls._plain_operand and cls.__torch_function__ is not _disabled
    # An array of another library, PyTorch itself perhaps, is data to convert, not an operand of ours.
    return hasattr(cls, "__torch_function__") and cls.__torch_function__ is not _disabled and not hasattr(cls, "__dlpack__")


def may_override(*args: Any) -> bool:
    """Whether modes or interpreters are in force in this thread, or one of `args` (or of a list among them) may override functions."""
    calls = _local.calls
    return bool(calls.interpreters or calls.modes) or bool(overriding_classes(args))


def dispatch_op(func: Any, classes: Any, op: Op, args: Any, kwargs: Any) -> Any:
    """`dispatch_torch_function` with the arguments of `op` as the program gave them, or as one would, where that cannot be told."""
    given = written(func, op, args)
    if given is not None:
        return dispatch_torch_function(func, classes, given[0], {**given[1], **kwargs}, op)
    positional, defaults = op.positional, op.defaults
    at = count = len(positional)
    for name in op.keyword_only:
        if args[at] is not defaults.get(name, op):
            kwargs[name] = args[at]
        at += 1
    while count and positional[count - 1] in defaults and args[count - 1] is defaults[positional[count - 1]]:
        count -= 1
    return dispatch_torch_function(func, classes, args[:count], kwargs, op)


def dispatch_torch_function(func: Any, classes: Any, args: Any, kwargs: Any, op: Op | None = None) -> Any:
    """Ask the active mode, then each overriding class, until one answers.

    Raises: TypeError when all return NotImplemented.
    """
    types = tuple(classes)
    calls = _local.calls
    modes = calls.modes
    if modes:
        calls.modes = modes[:-1]
        try:
            result = modes[-1].__torch_function__(func, types, args, kwargs)
        finally:
            calls.modes = modes
        if result is not NotImplemented:
            return result
    for cls in classes:
        result = cls.__torch_function__(func, types, args, kwargs)
        if result is not NotImplemented:
            return result
    who = [type(modes[-1]).__name__] if modes else []
    names = ", ".join((*who, *(c.__name__ for c in classes)))
    name = getattr(func, "__name__", repr(func)) if op is None else op.qualified
    raise TypeError(f"no implementation found for '{name}' on types that implement __torch_function__: [{names}]")


def override_themselves(args: Any) -> bool:
    """Whether the classes of operands want to see functions as the program calls them, and not ops alone."""
    classes = overriding_classes(args)
    return bool(classes) and _answer_to_ops(classes) is None


def _answer_to_ops(classes: Any) -> Any:
    """``fn(op, args, out, inplace)``, what answers ops without arguments as written; or None.

    That is where the only one with a say is one class that answers ops by itself, or leaves them to `Tensor.__torch_function__`.
    """
    if len(classes) != 1 or _local.calls.modes:
        return None
    cls = classes[0]
    if getattr(cls.__torch_function__, "__func__", None) is _torch_function:
        return functools.partial(_as_class, cls)
    return getattr(cls, "_answer_op", None)           # other libraries' classes have none


def _as_class(cls: type, op: Op, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
    """What `default_torch_function` gives for `op`."""
    calls = _local.calls
    calls.classes_off += 1
    try:
        result = interpret(op, args, out, inplace)
    finally:
        calls.classes_off -= 1
    return _converted(result, cls)


def default_torch_function(cls: type, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Run `func` as if the operands were plain Tensors and hand out results as `cls`."""
    for t in types:
        if t is not cls and not issubclass(cls, t):
            return NotImplemented
    calls = _local.calls
    calls.classes_off += 1
    try:
        result = func(*args, **kwargs)
    finally:
        calls.classes_off -= 1
    return result if func in _PLAIN_RESULTS else _converted(result, cls)


def _torch_function(cls: type, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """What happens when an operand is a subclass: run `func`, and return `cls` where it returned a Tensor."""
    return default_torch_function(cls, func, types, args, kwargs or {})


_torch_function.__name__ = "__torch_function__"
Tensor.__torch_function__ = classmethod(_torch_function)
# Properties whose result stays what it is, by the property itself (`__get__` is what handlers are given).
_PLAIN_RESULTS = frozenset(Tensor.__dict__[n].__get__ for n in ("grad", "_base", "_grad"))


def _disabled(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """A `__torch_function__` that runs `func` and leaves results plain: assigned to a class, it switches overriding off."""
    _local.calls.classes_off += 1
    try:
        return func(*args, **(kwargs or {}))
    finally:
        _local.calls.classes_off -= 1


def _converted(value: Any, cls: type) -> Any:
    if isinstance(value, Tensor) and not isinstance(value, cls):
        return value.as_subclass(cls)
    if isinstance(value, (tuple, list)):
        made = [_converted(v, cls) for v in value]
        return made if isinstance(value, list) else type(value)(made)
    return value


__all__ = ["DECOMPOSE", "below", "call", "call_inplace", "interpret", "pop", "push"]
