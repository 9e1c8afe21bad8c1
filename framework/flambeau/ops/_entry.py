"""Entry points: the text of functions, methods, in-place forms and operators, written for each operation.

An entry point first lets modes, interpreters and classes of operands have their say, if there are any (`_dispatch.py`). Then it
asks what the operation has been specialised for: a builtin that takes the arguments as they are, computes and makes the
result. What that refuses goes to `Op.run`, which checks, computes, and specialises. Texts are made the first time a name is used
and registered with `linecache`, so tracebacks and debuggers show them.
"""

from __future__ import annotations

import linecache
import numbers
import sys
from typing import Any

import numpy as np

from flambeau_kernels import hot_calls

from .. import _inference, _state
from .._arrays import ndarray
from .._errors import NotRecorded
from .._kinds import NoStrides, lacks_kernel
from .._symbolic import SymInt
from .._warn import warn_once
from ..autograd import tape
from ..tensor import Tensor, wrap
from . import _dispatch, _parameters, _spec
from ._parameters import declared_signature, read_names, read_older, refuse_missing, signature
from ._spec import FUNCTION, METHOD, OPS, OUT, ElementwiseOp, Op, plans, strict, writing
from ._spec.names import refuse_name_of_dim
from ._spec.nodes import indented
from ._spec.view import ViewOp

_scope: dict[str, Any] = {
    "__name__": "flambeau.ops._generated", "Tensor": Tensor, "ndarray": ndarray, "asarray": np.asarray, "wrap": wrap,
    "ONE_NUMBER": (int, Tensor, np.integer, SymInt),
    "new": object.__new__, "next_seq": _state.next_seq, "local": _state.local, "hot_calls": hot_calls,
    "getframe": sys._getframe, "OWN_FILES": tape.OWN_FILES, "users_place": tape.users_place,
    "new_record": _inference.new_record, "refuse_saving": _inference.refuse_saving,
}  # fmt: skip
_scope["Parameter"] = Tensor  # until nn.parameter brings the real one
_state.share(_scope, "OVERRIDING", "IN_FORCE", "FOLLOWED", "PASSED", "GRAD", "MARKED")


def accept_on_fast_path(parameter_class: type) -> None:
    """Let the generated entry points treat `parameter_class` as they treat Tensor."""
    _scope["Parameter"] = parameter_class
    hot_calls.take_as_object(parameter_class)
    _dispatch.take_for_plain(parameter_class)


def _asked(op: Op, args: tuple[Any, ...], out: Any, func: Any, otherwise: Any = None) -> Any:
    """Give operands' classes their say about `func`; if none wants it, `otherwise`, or the error that is being handled."""
    if _dispatch.overriding_classes(args):
        return _dispatch.call_inplace(op, args, func) if out is not None and out is args[0] else _dispatch.call(op, args, out, func)
    if otherwise is not None:
        return otherwise(*args)
    raise  # noqa: PLE0704  # the caller handles one


def _failed(op: Op, args: tuple[Any, ...], error: Exception, target: Any = None, inplace: bool = False) -> Any:
    """Say what is wrong with `args` if the error that is being handled does not; else let it go on.

    Where a text fell over an operand whose array is no memory, what answers for that array does.
    """
    from ._refusal import fell, integers_of_bools, integers_of_objects, refusal, types_of

    if isinstance(error, NotRecorded):
        raise error
    if _dispatch.overriding_classes(args):
        raise  # noqa: PLE0704  # from the class of an operand, which may have any reason
    if isinstance(error, NoStrides) or op.kind == "composite" and op.by_kind and lacks_kernel(error):
        answer = _spec.elsewhere(op, args, target, inplace)
        if answer is not NotImplemented:
            return answer
    if op.names is not None and isinstance(error, TypeError):
        refuse_name_of_dim(op.params, args)
    if isinstance(error, TypeError) and (plain := integers_of_objects(args)) is not None:
        return _dispatch.interpret(op, plain, target, inplace)
    found = None
    if op.surface or fell(error):                     # what is wrong with arguments of ours is for the op to say that a program called
        numbers = isinstance(op, ElementwiseOp) or op.numbers_alone
        found = refusal(op.public_name, op.params, args, op.defaults, numbers, error, types_of(op))
    if found is None and isinstance(error, TypeError):
        plain = integers_of_bools(op.params, args, types_of(op))
        if plain is not None:
            return _dispatch.interpret(op, plain, target, inplace)
    if found is None:
        raise  # noqa: PLE0704  # the caller handles one
    raise found from error


def _refuse_types(op: Op, args: tuple[Any, ...]) -> None:
    """Raise TypeError where one of `args`, which are not of the usual classes, is of a type that PyTorch does not take."""
    from ._refusal import refuse_types

    refuse_types(op, args)


_scope["refuse_types"] = _refuse_types
_scope.update(call=_dispatch.call, call_inplace=_dispatch.call_inplace, interpret=_dispatch.interpret, asked=_asked, failed=_failed,
              ask_interpreters=_dispatch.ask_interpreters, of_one_class=_dispatch.of_one_class,
              overriding_classes=_dispatch.overriding_classes, override_themselves=_dispatch.override_themselves,
              dispatched=_dispatch.dispatch_torch_function)
_scope.update(renamed=_parameters.renamed, missing=_parameters.missing, spread_by_name=_parameters.spread_by_name)
_scope.update(PLAIN=_dispatch.PLAIN, SINGLE=_dispatch.SINGLE, SILENT=_dispatch.SILENT, warn_once=warn_once,
              all_silent=_dispatch.SILENT.issuperset, TENSORS=_dispatch.TENSORS)
_scope["NUMBERS"] = frozenset((int, float))
_scope.update(store_plainly=writing.store_plainly, REFUSED=plans.REFUSED, check_refused=strict.check_refused)


def _by_older_signature(op: Op, values: tuple[Any, ...], options: dict[str, Any], in_place: bool) -> Any:
    """The call of `op` whose positional arguments `values` are in one of the orders ``op.older``; warns once.

    Args:
        options: keyword-only arguments. The first may hold one more positional argument.
    """
    name = f"{op.name}_" if in_place else op.name
    first, takes_numbers = op.keyword_only[0], isinstance(op, ElementwiseOp) and op.scalar_first
    if options[first] is not op.defaults[first]:      # given twice, if it is no position further
        values = (*values, options.pop(first))
    for order in op.older:
        if len(order) != len(values):
            continue
        if all(
            isinstance(v, Tensor) is not (n in op.keyword_only) or takes_numbers and isinstance(v, numbers.Number)
            for n, v in zip(order, values, strict=True)
        ):
            usual = ", ".join((*op.positional, "*", *op.keyword_only))
            warn_once(
                f"This overload of {name} is deprecated:\n\t{name}({', '.join(order)})\n"
                f"Consider using one of the following signatures instead:\n\t{name}({usual})",
                about="older signatures",
            )
            options.update(zip(order, values, strict=True))
            operands = [options.pop(n) for n in op.positional]
            return getattr(Tensor, name)(*operands, **options) if in_place else op.function(*operands, **options)
    raise TypeError(f"{name}() takes {len(op.positional)} positional arguments but {len(values)} were given")


_scope["older_signature"] = _by_older_signature


def compile_text(text: str, name: str, constants: dict[str, Any], namespace: dict[str, Any] = _scope) -> Any:
    """Run generated `text`, which defines ``make(**constants)``, and return what that returns; its globals are `namespace`."""
    filename = f"<flambeau {name}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    scope: dict[str, Any] = {}
    exec(compile(text, filename, "exec"), namespace, scope)  # our own text, from the op registry
    return scope["make"](**constants)


# -- functions -----------------------------------------------------------------------------------------------------------


def make_function(op: Op, form: int = FUNCTION) -> Any:
    """The public function of `op`, or its method."""
    fn = compile_text(*_function_text(op, op.name, form))
    fn.__doc__, fn.__name__, fn.__qualname__ = op.doc, op.name, op.name if form == FUNCTION else f"Tensor.{op.name}"
    fn.__module__ = f"flambeau.{op.namespace}" if op.namespace else "flambeau"
    fn.flambeau_op = op
    fn.__signature__ = declared_signature(op, form == FUNCTION and bool(op.surface & OUT))
    return fn


def _function_text(op: Op, name: str, form: int) -> tuple[str, str, dict[str, Any]]:
    with_out = form == FUNCTION and bool(op.surface & OUT)
    params, constants = signature(op, with_out, form)
    args = _tuple_of(op.params)
    # Where a parameter has the function's name, as in `pad`, the op says which function it is.
    out = f"{'out' if with_out else None}, {None if name in op.params else name}"
    aged = ["warn_once(OP.deprecation)"] if op.deprecation else []
    body = [*aged, *read_older(op, form, with_out), *read_names(op, form), *_look_at_flags(op, args)]
    refuse = refuse_missing(op, form)
    call = f"return call(OP, {args}, {out})"
    body += _stored_in_out(op, call, refuse) if with_out else []
    body += _followed(op.params) + _ask_who_is_in_force(op, call, _interpreted(op.params), refuse)
    answered = _answered(op, _is_tensor)
    if not isinstance(op, ElementwiseOp) and answered and refuse:
        # Most of the time nothing is missing, and a `try` costs nothing; but a flag that is missing looks as if it were set.
        if any(name not in op.defaults for name in op.keyword_only):
            answered = [*refuse, *answered]
        answered = ["try:", *indented(answered), "except TypeError:", *indented(refuse), "    raise"]
    asks, asks_of_sizes = _ask_classes(op, call, refuse, with_sizes=False), _ask_classes(op, call, refuse)
    has_asked = not op.answers_plain_tensors_alone
    body += [*asks, *answered] if has_asked else answered
    if not (has_asked and asks == asks_of_sizes or isinstance(op, _spec.CompositeOp) and not op.variadic):
        body += asks_of_sizes
    body += [*refuse, *_look_at_plain_arguments(op, args, call)]
    if isinstance(op, _spec.CompositeOp):
        # What is no Tensor may want a say too; of a composition, before it is taken apart.
        strange = " or ".join(f"{n}.__class__ not in PLAIN" for n in _operands(op))
        in_lists = " or ".join(f"{n}.__class__ not in SILENT and {_unknown(n)}" for n in _operands(op))
        if strange:
            strange = f"{strange} or OVERRIDING and ({in_lists})"
            body += [f"if {strange}:", f"    return asked(OP, {args}, {out}, run)"]
    # Operands that are refused, in lists too, may be of classes that want a say, which nobody has asked yet.
    run = "fn" if isinstance(op, _spec.CompositeOp) else "run"
    body += ["try:", f"    return {run}({_given(op)})", "except (TypeError, AttributeError):", f"    return asked(OP, {args}, {out})"]
    return _entry_text(op, name, params, _explained(body, args, "out" if with_out else "None"), constants), name, constants


def _explained(body: list[str], arguments: str, target: str = "None", inplace: bool = False) -> list[str]:
    """Lines of `body` that say what is wrong with `arguments` where they fall over; nothing is looked at unless they do."""
    return ["try:", *indented(body), "except Exception as error:", f"    return failed(OP, {arguments}, error, {target}, {inplace})"]


def make_enter(op: Op) -> Any:
    """``enter(*args)``: how the function of `op` answers when modes, classes and interpreters have left the call to it."""
    constants: dict[str, Any] = {}
    last = f"return {'fn' if isinstance(op, _spec.CompositeOp) else 'run'}({_given(op)})"
    body = [*_answered(op, lambda name: f"isinstance({name}, Tensor)"), last]
    return compile_text(_entry_text(op, "enter", ", ".join(op.params), body, constants), f"{op.qualified} enter", constants)


def make_enter_inplace(op: Op) -> Any:
    """``enter_inplace(*args)``: as `make_enter`, for the in-place form."""
    body = _fast_inplace(op)
    if not body:
        return op.run_inplace
    constants: dict[str, Any] = {"run": op.run_inplace}
    body.append(f"return run({', '.join(op.params)})")
    return compile_text(_entry_text(op, "enter", ", ".join(op.params), body, constants), f"{op.qualified}_ enter", constants)


def _entry_text(op: Op, name: str, params: str, body: list[str], constants: dict[str, Any]) -> str:
    """The text of an entry point, and the `constants` it refers to."""
    constants.setdefault("run", op.run)
    constants["run_out"] = op.run_out
    constants.update(OP=op, fn=op.fn, Node=op.node_class)
    constants.update(_answers(op))
    constants.update(_of=getattr(op, "of", None), _kernel=getattr(op, "kernel_rule", None))
    if isinstance(op, ViewOp) and op.cut_along:
        constants.update(cut_up=op.cut_up)
    if isinstance(op, ViewOp) and op.builtin:
        constants.update(with_history=op.with_history)
    constants.update(_of_elementwise(op), forwards_to=op.forwards_to)
    return f"def make({', '.join(constants)}):\n    def {name}({params}):\n{_text(body)}    return {name}\n"


def _answers(op: Op) -> dict[str, Any]:
    """What the text of `Op.asking` refers to."""
    return {f"answer{i}": fn for i, fn in enumerate(op.answers)}


def _given(op: Op) -> str:
    """The arguments of `op` for its definition or its `run`."""
    if isinstance(op, _spec.CompositeOp):
        return ", ".join((*op.positional, *(f"{n}={n}" for n in op.keyword_only)))
    return ", ".join(op.params)


def _answered(op: Op, is_tensor: Any) -> list[str]:
    """Lines that return the result of a usual call, or go on."""
    return _enter(op) if isinstance(op, ElementwiseOp) else op.answering(is_tensor)


def _operands(op: Op) -> tuple[str, ...]:
    """Parameters whose arguments may be Tensors."""
    if isinstance(op, ElementwiseOp):
        return op.positional
    if op.kind == "reduction":
        return op.params[:1]
    if isinstance(op, _spec.PrimitiveOp):
        return tuple(n for n in op.params if n in op.tensor_params)
    return tuple(n for n in op.positional if op.defaults.get(n) is None and n != op.variadic and _may_be_tensor(op, n))


def _may_be_tensor(op: Op, name: str) -> bool:
    """Whether the declaration lets the argument for `name` be a Tensor: says so, or says nothing."""
    declared = op.declared_types.get(name, "Any")
    return "Tensor" in declared or declared == "Any"


def _lists(op: Op) -> tuple[str, ...]:
    """Parameters that a plan of `op` takes lists of Tensors for."""
    return op.planned.tensors if op.planned is not None and op.planned.lists else ()


_IN_FORCE = "(calls := local.calls).interpreters or calls.modes"
# Whether interpreters have a say in OP. An only one that has declined OP has none, as autocast in what it never casts for.
# Names in these texts are no op's: a function knows itself by its own.
_HAVE_A_SAY = "(in_force := calls.interpreters) and (len(in_force) > 1 or OP not in in_force[0].declines)"


def _look_at_flags(op: Op, args: str) -> list[str]:
    """Lines that refuse what is neither True nor False for a flag: it would be taken for one of them wherever it is read."""
    tests = []
    for name in op.params if op.surface else ():
        default = op.defaults.get(name)
        if default is False or default is True:
            tests.append(f"{name} is not {default} and {name} is not {not default}")
        elif op.declared_types.get(name) == "bool | None":
            tests.append(f"{name} is not None and {name} is not True and {name} is not False")
        elif op.declared_types.get(name) == "bool" and default is None:
            tests.append(f"{name} is not True and {name} is not False and {name} is not ...")      # what is missing is said in its turn
    return [f"if {' or '.join(tests)}:", f"    refuse_types(OP, {args})"] if tests else []


def _look_at_plain_arguments(op: Op, args: str, call: str) -> list[str]:
    """Lines that refuse arguments of types that PyTorch does not take, of those with a default or a declared type that are of another.

    They go on with `call` if the class of one wants a say, which it has wherever it stands.
    """
    if isinstance(op, ElementwiseOp) or not op.surface:
        return []                                     # which look at all their arguments, and whose callers are ours
    tests = []
    for name in op.params:
        kind = type(op.defaults.get(name))
        if kind is float:                             # of None ops say what to give instead
            tests.append(f"{name}.__class__ not in NUMBERS and {name} is not None")
        elif kind is int or kind is str:
            tests.append(f"{name}.__class__ is not {kind.__name__}")
        elif name in op.declared_types:
            tests += _UNLIKE.get(op.declared_types[name], "").format(name).splitlines()
    asks = [f"    if overriding_classes({args}):", f"        {call}"]
    return [f"if {' or '.join(tests)}:", *asks, f"    refuse_types(OP, {args})"] if tests else []


# Text that tests whether an argument may be of another type than the declaration has for its parameter; flags are tested before.
_UNLIKE = {
    "int": "{0}.__class__ is not int",
    "int | None": "{0}.__class__ is not int and {0} is not None",
    "float | None": "{0}.__class__ not in NUMBERS and {0} is not None",
    "Tensor": "{0}.__class__ is not Tensor and {0}.__class__ is not Parameter",
    "Tensor | None": "{0}.__class__ is not Tensor and {0} is not None",
}


def _unknown(name: str) -> str:
    """Text that tests whether an operand, whose class is not in SILENT, is something else than a list or tuple of such."""
    return f"({name}.__class__ not in PLAIN or not all_silent(map(type, {name})))"


def _interpreted(params: tuple[str, ...]) -> str:
    """The line that returns what the interpreters ``in_force`` make of the op: the innermost may have a quick answer."""
    quick = f"(quick := in_force[-1].quick) is None or (made := quick(OP, {', '.join(params)})) is None"
    return f"return ask_interpreters(OP, {_tuple_of(params)}) if {quick} else made"


def _followed(params: tuple[str, ...]) -> list[str]:
    """The lines that return the answer of an interpreter which is `following` calls, and has looked at one like this before."""
    asks = f"(follow := FOLLOWED) is not None and (made := follow(OP, {', '.join(params)})) is not None"
    return [f"if {asks}:", "    return made"]


def _tuple_of(params: tuple[str, ...]) -> str:
    return f"({', '.join(params)}{',' if len(params) == 1 else ''})"


def _ask_who_is_in_force(op: Op, call: str, interpret: str, refuse: list[str]) -> list[str]:
    """Lines that go on with `call` if this thread has modes in force, with `interpret` if it has interpreters with a say in `op`."""
    # What a composition is made of is asked for in turn, whoever has declined the whole.
    passed, say = ("", "(in_force := calls.interpreters)") if op.kind == "composite" else (" and OP not in PASSED", _HAVE_A_SAY)
    unknown = _of_unknown_classes(op)
    return [
        f"if IN_FORCE{passed}:",
        *indented(refuse),
        f"    if (calls := local.calls).modes{f' or {unknown}' if unknown else ''}:",
        f"        {call}",
        f"    if {say}:",
        f"        {interpret}",
    ]


def _ask_classes(op: Op, call: str, refuse: list[str], with_sizes: bool = True) -> list[str]:
    """Lines that go on with `call` if classes of operands may have a say.

    They come after those that answer usual calls where these answer plain Tensors alone.
    """
    unknown = _of_unknown_classes(op, with_sizes)
    return [f"if OVERRIDING and ({unknown}):", *indented(refuse), f"    {call}"] if unknown else []


def _of_unknown_classes(op: Op, with_sizes: bool = True) -> str:
    """Text that tests whether the class of an operand, or of one in a list, may have a say; "" where there are no operands.

    Most operands are Tensors, or None where that is the default; to find others in a set takes longer.

    Args:
        with_sizes: whether to look at sizes that are given as several arguments, which usual calls need not: they take ints alone.
    """
    tests = []
    for n in (*_operands(op), *([op.variadic] if op.variadic and (with_sizes or not op.surface & METHOD) else ())):
        usual = f"{n} is not None and " if op.defaults.get(n, op) is None else ""
        usual += f"{n}.__class__ is not Tensor and " if n != op.variadic and n not in _lists(op) else ""
        tests.append(f"{usual}{n}.__class__ not in SILENT and {_unknown(n)}")
    return " or ".join(tests)


def _stored_in_out(op: Op, call: str, refuse: list[str]) -> list[str]:
    """Lines for a call with an `out`, which go on with `call` if somebody may have a say."""
    lists = _lists(op)
    operands = (*_operands(op), *([op.variadic] if op.variadic else ()), "out")
    usual = {n: f"{n} is not None and " if op.defaults.get(n, op) is None else f"{n}.__class__ is not Tensor and " for n in operands}
    strange = " or ".join(f"{usual[n]}{n}.__class__ not in SINGLE{f' and {_unknown(n)}' if n in lists else ''}" for n in operands)
    into = [*refuse, f"if IN_FORCE or {strange}:", f"    {call}", *_stored(op), f"return run_out(out, {', '.join(op.params)})"]
    return ["if out is not None:", *indented(into)]


def _stored(op: Op) -> list[str]:
    """Lines that compute a usual call and store its result in `out`, or go on; nothing was written then."""
    operands = ", ".join([f"*{n}" if n in _lists(op) else n for n in _operands(op)])
    of_elements = isinstance(op, ElementwiseOp)
    written = ["v = out._storage", "v[0] += 1", "v[1] = next_seq()", "return out"]
    store = [
        "if made is not None:",
        f"    if not MARKED and hot_calls.store_in(out, made, {operands}):",
        *indented(indented(written)),
        f"    if store_plainly(out, made, ({operands},), {of_elements}):",
        "        return out",
    ]
    if not of_elements and op.forwards_to is None:
        lines = op.asking(op.params)                  # each answer ends by being returned
        return [*lines[:-2], *store] if len(op.answers) == 1 else []
    before: list[str] = []
    if of_elements:
        made, at_once = _entered(op, {}), _entered(op, {}, "enter_before", "out")
        if made is None:
            return []
    else:
        before = [f"found = forwards_to({', '.join(op.params)})"]
        made = "None if found is None else found[0].enter(*found[1])"
        at_once = "None if found is None else found[0].store_at_once(out, *found[1])"
    directly = [] if at_once is None else [f"if _o.size >= {LEAST_STORED_AT_ONCE} and ({at_once}) is not None:", *indented(written)]
    copied = [f"if _o.size <= {MOST_STORED}:", *indented([f"made = {made}", *store])]
    return ["if out.__class__ is Tensor and (_o := out._array).__class__ is ndarray:", *indented([*before, *directly, *copied])]


def _enter(op: ElementwiseOp, fixed: dict[str, str] | None = None) -> list[str]:
    """Lines that answer what the formula has been specialised for.

    The builtin `Formula.enter` checks, computes and makes the new Tensor; where an operand has a history, that is recorded here.

    Args:
        fixed: text of keyword-only arguments that the entry point has no parameter for.
    """
    fixed = fixed or {}
    made = _entered(op, fixed)
    if made is None:
        return []
    record = op.recording(tuple([fixed.get(n, n) for n in op.params]))
    return [f"made = {made}", "if made is not None:", "    if made._node is None:", "        return made", *indented(record)]


def _entered(op: ElementwiseOp, fixed: dict[str, str], builtin: str = "enter", *before: str) -> str | None:
    """Text of the call of a builtin, with what comes `before` the operands; None where these are too many."""
    params = [*before, *[fixed.get(n, n) for n in op.params]]
    if not op.keyword_only:
        made = f"FORMULA.{builtin}({', '.join(params)})" if len(params) <= _MOST_OPERANDS else None
    else:
        made = f"FULL_FORMULA.{builtin}({', '.join(params)})" if len(params) <= _MOST_OPERANDS and not fixed else None
        if op.short is not None and len(before) + len(op.positional) <= _MOST_OPERANDS:
            usual = " and ".join(_usual(op, n) for n in op.keyword_only if n not in fixed)
            plain = f"FORMULA.{builtin}({', '.join([*before, *op.positional])})"
            made = f"{plain} if {usual} else {made}" if usual else plain
    return _accepted(op, made) if made else None


def _accepted(op: ElementwiseOp, made: str) -> str:
    """Text that enters the builtin where the check of a number has nothing against it."""
    return f"({made}) if {op.check.text} else None" if op.check_looks_at == "number" else made


def _text(lines: list[str]) -> str:
    return "".join(f"        {line}\n" for line in lines)


_MOST_OPERANDS = 4                                    # that `Formula.enter` takes
# Elements of an `out` that are computed as a new array and copied, both in the second cache, rather than by the general way, which costs
# more than the copy. What cannot be stored is computed again there.
MOST_STORED = 1 << 17
# From so many on the builtin stores in `out` itself; those of fewer are not worth another builtin.
LEAST_STORED_AT_ONCE = 4096


_scope["ONE"], _scope["ZERO"] = 1, 0


def _usual(op: Op, name: str) -> str:
    """Text that tests for the default value of a keyword-only parameter; True and 1.0 are not 1."""
    value = op.defaults[name]
    if value is None or isinstance(value, bool):
        return f"{name} is {value!r}"
    if isinstance(value, int) and value in (0, 1):
        return f"{name} is {'ONE' if value else 'ZERO'}"
    return f"{name} == {value!r}"


def _is_tensor(name: str) -> str:
    return f"({name}.__class__ is Tensor or {name}.__class__ is Parameter)"


def _of_elementwise(op: Op) -> dict[str, Any]:
    """What the text of `_enter` refers to: the formula of positional arguments alone, which stands when keyword-only ones have
    their defaults, the whole formula, and what records a result."""
    if not isinstance(op, ElementwiseOp):
        return {}
    return {"FORMULA": op.short if op.keyword_only else op.formula, "FULL_FORMULA": op.formula, "record": op.record,
            **op.named_node_classes}


def make_array_vjp(op: ElementwiseOp, general: Any) -> Any:
    """The gradient rule of `op` on arrays of one dtype whose formulas were specialised for it; `general` answers everything else."""
    names = ("out", *op.params)
    constants: dict[str, Any] = {"general": general, "sum_to": _spec.sum_to, "zeros": np.zeros, "zeros_like": np.zeros_like}
    lines = [
        "d = grad.dtype",
        "if grad.__class__ is not ndarray:",
        "    return general(self, grad)",
        "seq = self.seq",
        "for record in self.versions:",
        "    if record is not None and record[1] > seq:",
        "        return general(self, grad)",
        f"{', '.join(f'v{i}' for i in range(len(names)))}, = self.saved",
        f"{', '.join(f'p{i}' for i in range(len(op.params)))}, = self.parents",
        "shapes = self.shape",
        "kinds = self.dtype",
    ]
    for i, name in enumerate(op.params):
        lines += _raw_of(op, i, name, names, constants)
    lines.append(f"return ({', '.join(f'g{i}' for i in range(len(op.params)))},)")
    text = f"def make({', '.join(constants)}):\n    def vjp_on_arrays(self, grad):\n{_text(lines)}    return vjp_on_arrays\n"
    return compile_text(text, f"{op.name}_backward", constants)


def _raw_of(op: ElementwiseOp, i: int, name: str, names: tuple[str, ...], constants: dict[str, Any]) -> list[str]:
    """Lines that make ``g<i>``, the gradient of parameter `name`."""
    if not op.has_gradient(name):
        return [f"if p{i} is not None:", "    return general(self, grad)", f"g{i} = None"]
    formula, _, constant = op.gradient(i)
    lines = [f"if p{i} is None:", f"    g{i} = None", "else:", f"    if kinds[{i}] is not d:", "        return general(self, grad)"]
    if constant is not None and constant == 1:
        lines += [f"    g{i} = grad"]
    elif constant is not None and constant == 0:
        lines += [f"    g{i} = zeros_like(grad, d) if grad.shape == shapes[{i}] else zeros(shapes[{i}], d)"]
    else:
        constants[f"F{i}"] = formula
        given = ", ".join(("grad", *(f"v{names.index(r)}" for r in op.reads_of(name))))
        lines += [f"    g{i} = F{i}.direct({given})", f"    if g{i} is None:", "        return general(self, grad)"]
    return [
        *lines,
        f"    if g{i}.shape != shapes[{i}]:",
        f"        g{i} = sum_to(g{i}, shapes[{i}])",
        f"    if g{i}.dtype is not d:",
        "        return general(self, grad)",
    ]


def make_inplace(op: Op, form: int = METHOD) -> Any:
    """The in-place method ``name_``, or the function of that name."""
    params, constants = signature(op, False, form)
    args = ", ".join(op.params)
    given = f"({args}{',' if len(op.params) == 1 else ''})"
    refuse = refuse_missing(op, form)
    call, interpreted = f"return call_inplace(OP, {given}, {op.name}_)", f"return interpret(OP, {given}, {op.params[0]}, True)"
    body = [
        *read_older(op, form, in_place=True),
        *read_names(op, form),
        *_look_at_flags(op, given),
        *_ask_who_is_in_force(op, call, interpreted, refuse),
        *_fast_inplace(op),
        *_ask_classes(op, call, refuse),
        *refuse,
        *_look_at_plain_arguments(op, given, call),
        "try:", f"    return run({args})",
        "except (TypeError, AttributeError):", f"    return asked(OP, {given}, {op.params[0]}, {op.name}_)",
    ]  # fmt: skip
    constants["run"] = op.run_inplace
    body = _explained(body, given, op.params[0], True)
    fn = compile_text(_entry_text(op, f"{op.name}_", params, body, constants), f"{op.name}_", constants)
    fn.__doc__ = f"In-place form of `{op.name}`: stores the result in this tensor and returns it."
    fn.__qualname__ = fn.__name__ if form == FUNCTION else f"Tensor.{fn.__name__}"
    fn.__module__ = f"flambeau.{op.namespace}" if op.namespace and form == FUNCTION else "flambeau"
    fn.flambeau_op = op
    fn.__signature__ = declared_signature(op, False)
    return fn


def _fast_inplace(op: Op) -> list[str]:
    """Lines that answer what the formula has been specialised for, where nothing is recorded."""
    if not isinstance(op, ElementwiseOp) or op.dtype_rule.__name__ == "to_bool" or len(op.params) > _MOST_OPERANDS:
        return []
    first, given = op.positional[0], ", ".join(op.positional)

    def entered(builtin: str) -> str:
        if not op.keyword_only:
            return _accepted(op, f"FORMULA.{builtin}({given})")
        by_numbers = f"FULL_FORMULA.{builtin}({', '.join(op.params)})"
        usual = " and ".join(_usual(op, n) for n in op.keyword_only)
        return f"FORMULA.{builtin}({given}) if {usual} else {by_numbers}" if op.short is not None else by_numbers

    return [
        "if GRAD or local.grad:",
        f"    stored = {entered('enter_')}",
        "elif MARKED and local.recording.inference:",
        f"    stored = {entered('enter_untracked_')}",
        "else:",
        f"    stored = {entered('enter_unrecorded_')}",
        "if stored is not None:",
        f"    v = {first}._storage",
        "    v[0] += 1",
        "    v[1] = next_seq()",
        f"    return {first}",
    ]


# -- operators ------------------------------------------------------------------------------------------------------------


def make_operator(name: str, op_name: str, swapped: bool, inplace: bool) -> Any:
    """The operator method `name` of Tensor. It knows its op, and whether the Tensor whose operator it is comes second there."""
    made = _operator(name, op_name, swapped, inplace)
    if name in _SEEN_AS_CALLED:
        made.flambeau_op, made.is_reflected = OPS[op_name], swapped
    return made


def _operator(name: str, op_name: str, swapped: bool, inplace: bool) -> Any:
    op = OPS[op_name]
    fn = make_inplace(op) if inplace else op.method
    if not swapped and not inplace:
        return _operator_with_fast_path(op, name, fn)
    divides = swapped and op_name == "div"  # by which PyTorch multiplies
    constants: dict[str, Any] = {"fn": fn, "operand": _is_operand, "Tensor": Tensor, "no_tensor": _refusal(name, divides)}
    first, second = ("self", "other")
    fast = between = ""
    if swapped:
        first, second = "other", "self"
        if divides:                                   # which takes a rounding mode too
            op = OPS["true_divide"]
            # Two tensors come here by name alone; the dtypes are then those of PyTorch's reciprocal and product.
            quotient = ["if isinstance(input, Tensor):", "    return other.reciprocal() * input"]
            between = "".join(f"        {line}\n" for line in (_refuse_unbound("other"), *quotient))
        if isinstance(op, ElementwiseOp):
            first, second = op.positional
            constants.update(OP=op, **_of_elementwise(op))
            fast = _enter_swapped(op)
    text = (
        f"def make({', '.join(constants)}):\n"
        f"    def {name}({', '.join((second, first) if swapped else (first, second))}):\n"
        f"{between}{fast}"
        f"{_asking_others(name, second, first) if name in _SEEN_AS_CALLED else ''}"
        "        try:\n"
        f"            return fn({first}, {second})\n"
        "        except TypeError:\n"
        f"            if not isinstance({second if swapped else first}, Tensor):\n"
        "                raise\n"
        f"            if isinstance({first if swapped else second}, ndarray):\n"
        f"                return {f'{second}.reciprocal() * {first}' if divides else 'NotImplemented'}\n"
        f"            if operand({first if swapped else second}):\n"
        "                raise\n"
        "            return NotImplemented\n"
        f"    return {name}\n"
    )
    return compile_text(text, name, constants)


def _asking_others(name: str, own: str, other: str) -> str:
    """The lines by which modes and classes see an operator as it was called, with the Tensor whose operator it is first."""
    return (
        f"        if IN_FORCE and local.calls.modes or OVERRIDING and override_themselves(({own}, {other})):\n"
        f"            return dispatched({name}, overriding_classes(({own}, {other})), ({own}, {other}), {{}})\n"
    )


# Operators that those who override functions see as such; others they see as the method of the name (`__add__` and `__radd__` as `add`).
_SEEN_AS_CALLED = frozenset((
    "__eq__", "__floordiv__", "__pow__", "__and__", "__or__", "__xor__", "__lshift__", "__rshift__", "__rsub__", "__rtruediv__",
    "__rfloordiv__", "__rmod__", "__rpow__", "__rmatmul__", "__rand__", "__ror__", "__rxor__", "__rlshift__", "__rrshift__",
))  # fmt: skip


def _refuse_unbound(first: str) -> str:
    """The line by which an operator looks whether `first`, whose operator it is, is a Tensor: ``Tensor.__radd__(2, x)`` is none."""
    known = f"{first}.__class__ is Tensor or {first}.__class__ in TENSORS"  # of other classes `isinstance` takes long
    return f"if not ({known} or isinstance({first}, Tensor)): no_tensor({first})"


def _refusal(name: str, divides: bool = False) -> Any:
    """What raises for the operator `name` of something that is no Tensor."""

    def no_tensor(value: Any) -> None:
        # PyTorch's reflected division asks its operand for the reciprocal, and programs see that one's error.
        kind, lacks = (AttributeError, "has no reciprocal") if divides else (TypeError, "is no Tensor")
        raise kind(f"Tensor.{name}: its first operand, the one whose operator it is, {lacks}: {type(value).__name__}")

    return no_tensor


def _enter_swapped(op: ElementwiseOp) -> str:
    """The common case of a number before a Tensor."""
    fixed = {n: repr(op.defaults[n]) for n in op.keyword_only}
    # What this answers is of the classes that the builtin takes; who is in force is asked by the function.
    lines = [f"if not IN_FORCE or OP in PASSED or not ({_IN_FORCE}):", *indented(_tried(_enter(op, fixed)))]
    return "".join(f"        {line}\n" for line in lines)


def _operator_with_fast_path(op: Op, name: str, fn: Any) -> Any:
    params = op.positional[:2]
    args = ", ".join(params)
    asked_first: list[str] = []                       # what follows a call compares the operands anyway
    fast: list[str] = []
    constants = {"fn": fn, "operand": _is_operand, "OP": op, "Tensor": Tensor, "no_tensor": _refusal(name), **_of_elementwise(op)}
    by_formula = not (op.answers and len(op.params) == 2)  # whose builtin takes plain Tensors alone
    if not by_formula:
        constants.update(_answers(op))
        fast = op.asking(params)
    elif isinstance(op, ElementwiseOp) and len(op.positional) == 2:
        fast = _enter(op, {n: repr(op.defaults[n]) for n in op.keyword_only})
    if fast:
        given = (*params, *[repr(op.defaults[n]) for n in op.keyword_only])
        known = " and ".join(f"{n}.__class__ in SILENT" for n in params)
        passed, say = ("", "(in_force := calls.interpreters)") if op.kind == "composite" else (" and OP not in PASSED", _HAVE_A_SAY)
        one_class = [f"made = of_one_class(OP, {_tuple_of(given)})", "if made is not NotImplemented:", "    return made"]
        tried = _tried(fast)
        if by_formula:
            others = [*tried, f"if OVERRIDING and not ({known}):", *indented(one_class)]
        else:
            usual = " and ".join(f"{n}.__class__ is Tensor" for n in params)
            others = [f"if OVERRIDING and not ({usual} or {known}):", *indented(one_class), "else:", *indented(tried)]
        asked_first = _followed(given)
        fast = [
            f"if IN_FORCE{passed} and ((calls := local.calls).modes or {say}):",
            f"    if {known}:",
            "        if calls.modes:",
            f"            return dispatched({name if name in _SEEN_AS_CALLED else 'fn'}, (), ({args}), {{}}, OP)",
            f"        {_interpreted(given)}",
            "else:",
            *indented(others),
        ]
    # numpy answers or refuses for its arrays; not equality, which Python would decide by identity.
    theirs = f"fn({params[0]}, wrap({params[1]}))" if name in ("__eq__", "__ne__") else "NotImplemented"
    others = _asking_others(name, *params).splitlines() if name in _SEEN_AS_CALLED else []
    lines = [*asked_first, _refuse_unbound(params[0]), *fast, *[line[8:] for line in others],
             "try:", f"    return fn({args})", "except TypeError:",
             f"    if isinstance({params[1]}, ndarray):", f"        return {theirs}", f"    if operand({params[1]}):", "        raise",
             "    return NotImplemented"]  # fmt: skip
    text = f"def make({', '.join(constants)}):\n    def {name}({args}):\n{_text(lines)}    return {name}\n"
    return compile_text(text, name, constants)


def _tried(fast: list[str]) -> list[str]:
    """The lines `fast`, after which others go on where memory lacks or numbers are too large: the function says so."""
    return ["try:", *indented(fast), "except (ValueError, ArithmeticError, MemoryError):", "    pass"]


def _is_operand(value: Any) -> bool:
    from ._promote import NUMBERS

    return isinstance(value, (Tensor, ndarray, *NUMBERS))
