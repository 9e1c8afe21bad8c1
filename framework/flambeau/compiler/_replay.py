"""``mode="reduce-overhead"``: a program that was the same in several calls runs without the Python that recorded it.

What is assumed then, and by `verify_every` looked at, is in docs/compile.md. What can be seen is checked: a call is replayed only if

- its arguments are tensors and plain values that look as before, and the same ones are the same object;
- gradients are recorded as before, in the same modes, and the module is in the same mode of training;
- the function was one recording, from its beginning to its end, and read the same tensors besides its arguments, in the calls before;
- what else it reads is what it was, before and after each of these calls, and nothing it calls has other effects: `_surroundings`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import _state, dtypes
from .._arrays import ndarray
from ..dtypes import uint8
from ..func.batch_rules import draws
from ..nn import Module
from ..nn.parameter import Parameter
from ..ops._dispatch import public_function
from ..optim.lr_scheduler import LRScheduler
from ..random import default_generator
from ..tensor import Tensor, wrap
from ..utils import _pytree as pytree
from ._array_runs import ArrayRun
from ._formulas import Number
from ._graphs import is_default
from ._memory import Plan
from ._recorder import Recorder, Segment
from ._refs import decoded, tensors_in
from ._scheduled import ArrayStep, ScheduledBackward
from ._steps import Constant, Step
from ._surroundings import Witness, looks_of

STABLE_AFTER = 3                                      # calls that have been alike
_PLAIN = {int, float, bool, str, type(None), dtypes.dtype}
_local = _state.local


class Run(NamedTuple):
    """A program of the call; `sources` has for each input what it is: an `Argument`, a `Value` of an earlier run, or a tensor itself."""

    program: Any
    sources: list[Any]

    def draws(self) -> bool:
        """Whether operations draw random numbers, which are others in each call."""
        return any(draws(step.op, step.looks) for step in self.program.steps)


class Act(NamedTuple):
    """What is done between programs, see `_recorder.Event`; the subject of a backward is a `Value`."""

    name: str
    subject: Any


class Replay:
    """The programs of a call and what is done between them, and where what they read comes from and what they compute goes.

    `results` has for each part of the result a `Value` for what was computed, an `Argument`, or the plain value itself.
    """

    def __init__(self, parts: list[Run | Act], results: list[Any], spec: Any) -> None:
        self.parts, self.results, self.spec = parts, results, spec
        tensors = {id(x): x for part in parts if isinstance(part, Run) for x in part.sources if isinstance(x, Tensor)}
        self.held = [(x, x._array, x._node, looks_of(x)) for x in tensors.values()]
        self._surroundings: Any = None
        self.is_one = spec.is_leaf()
        self.has_effects = any(isinstance(part, Act) for part in parts)
        self.seen = 1                                 # calls that were alike
        self.replayed = 0
        self.freezes = False                          # whether what follows from `held` alone is computed once
        self.run: Any = None
        self.on_arrays: dict[int, ArrayStep | ArrayRun] = {}  # what runs a part as one native call, when it is known how
        self._guarded: Any = False

    @property
    def surroundings(self) -> Any:
        """What else the call read: `Surroundings`."""
        return self._surroundings

    @surroundings.setter
    def surroundings(self, found: Any) -> None:
        found.tensors.leave_out([x for x, *_ in self.held])
        self._surroundings = found

    def of_program(self, at: int, found: ArrayStep | ArrayRun) -> ArrayStep | ArrayRun:
        """`found`, which is to run the program `at` of the call as a table."""
        self.on_arrays[at] = found
        return found

    def is_as(self, other: Replay) -> bool:
        """Whether the other call was like the one before."""
        return (
            self.spec == other.spec and self.results == other.results and len(self.parts) == len(other.parts)
            and all(_alike(a, b) for a, b in zip(self.parts, other.parts, strict=True))
        )  # fmt: skip

    def still_holds(self) -> bool:
        """Whether the tensors that are no arguments look as they did, and all else that the function reads is what it was."""
        return self.surroundings.same() and all(
            x._array is array and x._node is node or looks_of(x) == looks for x, array, node, looks in self.held
        )

    def guarded(self, fn: Any, args: tuple[Any, ...]) -> Any:
        """The replay after its guard, see `guard_of`; None without one."""
        if self._guarded is False:
            guard = guard_of(self, fn, args)
            self._guarded = None if guard is None else (guard, self)
        return self._guarded

    def ready(self) -> bool:
        """Whether its kernels are compiled; they are going to be."""
        return not [part for part in self.parts if isinstance(part, Run) and not part.program.ready()]

    def draws(self) -> bool:
        """Whether operations draw random numbers."""
        return any(part.draws() for part in self.parts if isinstance(part, Run))

    def written(self) -> tuple[list[Tensor], list[Tensor]]:
        """The tensors whose gradients the call adds to, and those that it writes to: parameters, and the state of optimizers."""
        if not self.has_effects:
            return [], []
        subjects = [part.subject for part in self.parts if isinstance(part, Act) and part.name != "backward"]
        schedulers = [x for x in subjects if isinstance(x, LRScheduler)]
        optimizers = [x for x in subjects if not isinstance(x, (Module, LRScheduler))] + [x.optimizer for x in schedulers]
        found = {id(x): x for x, *_ in self.held if x.requires_grad}
        found |= {id(p): p for module in subjects if isinstance(module, Module) for p in module.parameters()}
        found |= {id(p): p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
        entries = [entry for optimizer in optimizers for entry in optimizer.state.values()]
        if schedulers:                                # rates may be tensors, which are written to
            entries += [group for optimizer in optimizers for group in optimizer.param_groups]
        states = {id(x): x for entry in entries for x in entry.values() if isinstance(x, Tensor)}
        return list(found.values()), [*found.values(), *states.values()]

    def schedules(self) -> list[dict[str, Any]]:
        """The attributes of schedulers that take a step, and the options of their optimizers' groups."""
        schedulers = [part.subject for part in self.parts if isinstance(part, Act) and isinstance(part.subject, LRScheduler)]
        for one in schedulers:
            schedulers += getattr(one, "_schedulers", ())
        return [*[vars(one) for one in schedulers], *[group for one in schedulers for group in one.optimizer.param_groups]]

    def state(self) -> list[Any]:
        """What `written` names, and the rates that schedulers set, as they are now."""
        parameters, tensors = self.written()
        return [*[p.grad for p in parameters], *tensors, *[x["lr"] for x in self.schedules() if "lr" in x]]

    def __call__(self, leaves: list[Any]) -> Any:
        """The result for the parts of the arguments."""
        if self.run is None:
            self.run = _written(self)
        self.replayed += 1
        made = self.run(leaves)
        return made[0] if self.is_one else pytree.tree_unflatten(made, self.spec)


def _alike(a: Any, b: Any) -> bool:
    if a.__class__ is not b.__class__:
        return False
    if a.__class__ is Act:
        return a.name == b.name and (a.subject is b.subject or a.subject.__class__ is Value and a.subject == b.subject)
    return a.program is b.program and len(a.sources) == len(b.sources) and all(
        x is y or x.__class__ in (Argument, Value) and x == y for x, y in zip(a.sources, b.sources, strict=True)
    )


class Value(NamedTuple):
    """What program `run` of a call has computed as number `number`."""

    run: int
    number: int


class Argument(NamedTuple):
    """A part of the arguments."""

    place: int


def _written(replay: Replay) -> Any:
    """The call as a function of the parts of the arguments, which gives the parts of the result: calls of the public functions."""
    scope: dict[str, Any] = {}

    def held(value: Any) -> str:
        name = f"h{len(scope)}"
        scope[name] = value
        return name

    def source(x: Any) -> str:
        return f"leaves[{x.place}]" if x.__class__ is Argument else f"t{x.run}_{x.number}" if x.__class__ is Value else held(x)

    lines: list[str] = []
    roots = _roots_alone(replay)
    for at, part in enumerate(replay.parts):
        if isinstance(part, Run):
            inputs = [source(x) for x in part.sources]
            fixed = {-1 - k: x for k, x in enumerate(part.sources) if isinstance(x, Tensor)} if replay.freezes else {}
            here = _lines_of(part.program, f"t{at}_", inputs, held, fixed)
            if at in roots:
                name = source(roots[at])
                changing = [k for k, x in enumerate(part.sources) if not isinstance(x, Tensor)]
                step = held(replay.of_program(at, ArrayStep(part.program.steps, roots[at].number, changing)))
                lines.append(f"    {name} = {step}({', '.join(inputs)})")
                here = [f"    if {name} is None:", *[f"    {line}" for line in here], f"        {held(ScheduledBackward())}({name})"]
            elif _records_nothing(part.program) and not replay.freezes and not part.draws():
                wanted = sorted(part.program.wanted)
                step = held(replay.of_program(at, ArrayRun(Plan(part.program.fused or part.program.steps, part.program.wanted), wanted)))
                lines.append(f"    found = {step}({', '.join(inputs)})")
                into = "".join([f"t{at}_{number}, " for number in wanted])
                here = ["    if found is None:", *[f"    {line}" for line in here], "    else:", f"        {into}= found"]
                here.append("    found = None")
            lines += here
        elif part.name == "backward":
            if at - 1 not in roots:
                lines.append(f"    {held(ScheduledBackward())}({source(part.subject)})")
        else:
            lines.append(f"    {held(getattr(part.subject, part.name))}()")
    parts = [source(r) if r.__class__ in (Value, Argument) else held(r) for r in replay.results]
    text = "\n".join(["def replay(leaves):", *lines, f"    return [{', '.join(parts)}]"])
    exec(compile(text, "<flambeau replay>", "exec"), scope)  # the text is made of names of this function's own
    return scope["replay"]


def _records_nothing(program: Any) -> bool:
    """Whether no result of the program has a history, and there is something to compute."""
    return bool(program.wanted) and not any(result.requires_grad for step in program.steps for result in step.results)


def _roots_alone(replay: Replay) -> dict[int, Value]:
    """Of programs that are followed by a backward from a value of theirs, and of which nothing else is asked for: that value."""
    found: dict[int, Value] = {}
    for at, part in enumerate(replay.parts[1:], 1):
        if not isinstance(part, Act) or part.name != "backward" or part.subject.run != at - 1:
            continue
        run: Any = replay.parts[at - 1]
        if not run.program.fused and not run.draws(): # operations draw in each call; tables hold what they computed in one
            found[at - 1] = part.subject
    asked = [x for part in replay.parts for x in (part.sources if isinstance(part, Run) else [part.subject])] + replay.results
    others = {x.run for x in asked if x.__class__ is Value and found.get(x.run, x) != x}
    return {at: root for at, root in found.items() if at not in others}


def _lines_of(program: Any, made: str, inputs: list[str], held: Any, fixed: dict[int, Tensor]) -> list[str]:
    """Calls of the public functions; values are named by their numbers after `made`.

    What follows from the inputs `fixed`, tensors by their refs, is computed now.
    """

    def name_of(ref: Any) -> str:
        if ref.__class__ is int:
            return inputs[-1 - ref] if ref < 0 else f"{made}{ref}"
        if ref.__class__ is Constant or ref.__class__ is Number:
            return held(ref.value)
        within = ", ".join([name_of(r) for r in ref])
        return f"[{within}]" if isinstance(ref, list) else f"({within},)" if within else "()"

    lines = []
    for part, _, ends, spare in Plan(program.fused or program.steps, program.wanted).parts:
        drop = [f"    {made}{number} = None" for number in ends]
        results = _fixed_results(part, fixed)
        if results is not None:
            lines += [f"    {made}{number} = {held(one)}" for number, one in results.items() if number not in ends]
            fixed.update(results)
            continue
        if not isinstance(part, Step):
            results = "".join(f"{made}{v}, " for v in part.values)
            given = f"[{', '.join(map(name_of, part.operands))}]"
            if spare:                                 # nothing but the list is to hold what may be written over
                lines += [f"    given = {given}", *drop, f"    {results} = {held(part.run)}(given, {spare})", "    given = None"]
            else:
                lines.append(f"    {results} = {held(part.run)}({given})")
            lines += drop
            continue
        op, refs = part.op, list(part.refs)
        count = len(op.positional)
        named = [
            f"{name}={name_of(ref)}" for name, ref in zip(op.keyword_only, refs[count:], strict=True) if not _is_default(op, name, ref)
        ]  # fmt: skip
        refs = refs[:count]
        while refs and op.positional[len(refs) - 1] in op.defaults and _is_default(op, op.positional[len(refs) - 1], refs[-1]):
            refs.pop()
        results = f"{made}{part.first}" if part.several is None else "".join(f"{made}{part.first + i}, " for i in range(len(part.results)))
        lines += [f"    {results} = {held(public_function(op))}({', '.join([*map(name_of, refs), *named])})", *drop]
    return lines


def _fixed_results(part: Any, fixed: dict[int, Tensor]) -> dict[int, Tensor] | None:
    """The results of a part that reads `fixed` tensors alone, by number; None for others."""
    is_step = isinstance(part, Step)
    refs = tensors_in(part.refs if is_step else [ref for ref in part.operands if ref.__class__ is int])
    if not refs or not fixed.keys() >= set(refs):
        return None
    if is_step and draws(part.op, part.looks):
        return None
    inputs = {-1 - ref: x for ref, x in fixed.items() if ref < 0}
    if not is_step:
        return dict(zip(part.values, part.run([decoded(ref, fixed, inputs) for ref in part.operands]), strict=True))
    result = part.op.enter(*[decoded(ref, fixed, inputs) for ref in part.refs])
    return dict(enumerate((result,) if part.several is None else result, part.first))


def _is_default(op: Any, name: str, ref: Any) -> bool:
    return ref.__class__ is Constant and is_default(op, name, ref.value)


def parts_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """The parts of arguments, and their structure; None for that of tensors alone."""
    if not kwargs and all(a.__class__ is Tensor for a in args):
        return args, None
    return pytree.tree_flatten((args, kwargs))


def are_same(leaves: Any, spec: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the arguments still have these parts."""
    now, structure = parts_of(args, kwargs)
    return structure == spec and all(a is b for a, b in zip(leaves, now, strict=True))


def signature_of(fn: Any, leaves: Any, spec: Any) -> Any:
    """What calls of `fn` have to have in common; None for arguments whose looks do not say enough."""
    if _local.calls.saved_hooks:
        return None
    own = _local.recording
    key: list[Any] = [own.asked, own.inference, dtypes._default, spec and str(spec), fn.training if isinstance(fn, Module) else None]
    first: dict[int, int] = {}
    for place, a in enumerate(leaves):
        kind = a.__class__
        if kind is Tensor or kind is Parameter:
            if a._array.__class__ is not ndarray or a.__dict__:
                return None                           # attributes that it has been given are not compared
            array = a._array
            key += (first.setdefault(id(a), place), array.shape, array.strides, array.dtype, a._node is not None)
            key += (a.is_leaf, getattr(a, "_gradient", None) is None)  # what operations have made may lack the slot
        elif kind in _PLAIN:
            key += (kind, repr(a))
        else:
            return None
    return tuple(key)


_MOST_GUARDED = 8                                     # arguments of a call that has a guard of its own


def guard_of(replay: Replay, fn: Any, args: tuple[Any, ...]) -> Any:
    """``guard(args)``: whether `signature_of` says of tensors what it says of `args`, and `replay` still holds; None for other arguments.

    It is the two of them written out for one call, which takes a fifth of the time.
    """
    if len(args) > _MOST_GUARDED or not all(a.__class__ is Tensor for a in args):
        return None
    scope: dict[str, Any] = {
        "Tensor": Tensor, "ndarray": ndarray, "local": _local, "same": replay.surroundings.same, "dtypes": dtypes, "fn": fn,
        "looks": looks_of, "modes": (_local.recording.asked, _local.recording.inference), "default": dtypes._default,
    }  # fmt: skip
    names = [f"a{k}" for k in range(len(args))]
    tests = [
        "(local.recording.asked, local.recording.inference) == modes", "not local.calls.saved_hooks", "dtypes._default is default",
        "same()",
    ]  # fmt: skip
    if isinstance(fn, Module):
        tests.append(f"fn.training is {fn.training}")
    lines = [f"    {', '.join(names)}, = args"] if names else []
    for k, (name, a) in enumerate(zip(names, args, strict=True)):
        scope |= {f"shape{k}": a._array.shape, f"strides{k}": a._array.strides, f"dtype{k}": a._array.dtype}
        lines += [f"    if {name}.__class__ is not Tensor: return False", f"    x{k} = {name}._array"]
        tests += [f"x{k}.__class__ is ndarray", f"x{k}.shape == shape{k}", f"x{k}.strides == strides{k}", f"x{k}.dtype == dtype{k}"]
        tests += [f"{name}._node is None" if a._node is None else f"{name}._node is not None and {name}.is_leaf is {a.is_leaf}"]
        tests.append(f"not {name}.__dict__")
        if replay.surroundings.asks_gradients:
            tests.append(f"(getattr({name}, '_gradient', None) is None) is {getattr(a, '_gradient', None) is None}")
        tests += [f"{name} is {'' if a is args[j] else 'not '}{names[j]}" for j in range(k)]
    for k, (x, array, node, looks) in enumerate(replay.held):
        scope |= {f"held{k}": x, f"array{k}": array, f"node{k}": node, f"looks{k}": looks}
        # Other memory, as `data` and loaded checkpoints give it, may look the same.
        one = f"held{k}"
        tests.append(f"({one}._array is array{k} and {one}._node is {None if node is None else f'node{k}'} or looks({one}) == looks{k})")
    text = "\n".join(["def guard(args):", f"    if len(args) != {len(args)}: return False", *lines, f"    return {' and '.join(tests)}"])
    exec(compile(text, "<flambeau guard>", "exec"), scope)  # the text is made of names of this function's own
    return scope["guard"]


def _asks_arguments(seen: Witness, places: dict[int, int]) -> bool:
    """Whether the call went by the gradient or history of an argument; that it has none is in its signature."""
    asked = [(x, name) for ref, name in seen.asked if (x := ref()) is not None and id(x) in places]
    return any(getattr(x, "_gradient" if name == "grad" else name, None) is not None for x, name in asked)


def replay_of(recorder: Recorder, leaves: list[Any], result: Any) -> Replay | None:
    """How the call that `recorder` has seen could be replayed; None if its story is not all that it did."""
    story = recorder.story
    if not recorder.is_full_story or not any(isinstance(one, Segment) for one in story):
        return None
    places = {id(a): place for place, a in reversed([*enumerate(leaves)]) if isinstance(a, Tensor)}
    if recorder.witness is not None and _asks_arguments(recorder.witness, places):
        return None
    known: dict[int, Value] = {}                      # tensors that were made and are still there
    parts: list[Run | Act] = []
    read: set[int] = set()                            # tensors that the story itself keeps
    for at, one in enumerate(story):
        if isinstance(one, Segment):
            read.update(id(x) for x in one.inputs)
            parts.append(Run(one.program, [
                Argument(places[id(x)]) if id(x) in places else known.get(id(x), x) for x in one.inputs
            ]))  # fmt: skip
            known.update({id(tensor): Value(at, number) for number, ref in one.made if (tensor := ref()) is not None})
            continue
        subject = one.subject
        if one.name == "backward":
            read.add(id(subject))
            subject = known.get(id(subject))
            if subject is None:
                return None
        parts.append(Act(one.name, subject))
    flat, spec = pytree.tree_flatten(result)
    results: list[Any] = []
    for part in flat:
        if id(part) in known:
            results.append(known[id(part)])
        elif id(part) in places:
            results.append(Argument(places[id(part)]))
        elif part.__class__ in _PLAIN:
            results.append(part)
        else:
            return None
    if not known.keys() <= read | {id(part) for part in flat}:
        return None                                   # somebody else keeps a result
    return Replay(parts, results, spec)


def tried(replay: Replay, leaves: list[Any]) -> list[Any]:
    """The result of a replay, and what it leaves in `Replay.state`; what it has written to is as before again."""
    parameters, tensors = replay.written()
    before = [x._array.copy() for x in tensors]
    grads = [(p, p._gradient, None if p._gradient is None else p._gradient._array.copy()) for p in parameters]
    schedules = [(x, dict(x), [(v, v[:]) for v in x.values() if v.__class__ is list]) for x in replay.schedules()]
    state = default_generator.get_state() if replay.draws() else None
    result = replay(leaves)
    if state is not None:
        default_generator.set_state(state)
    after = [wrap(x._array.copy()) if isinstance(x, Tensor) else x for x in replay.state()]
    for options, was, lists in schedules:
        options.clear()
        options.update(was)
        for values, content in lists:
            values[:] = content
    for x, array in zip(tensors, before, strict=True):
        x._array[...] = array
    for p, grad, array in grads:
        if grad is not None:
            grad._array[...] = array
        p._gradient = grad
    return [result, after]


def check(replayed: Any, recorded: Any, title: str) -> None:
    """Raise RuntimeError unless what replaying gives is, to the bit, what the function gives."""
    for at, (a, b) in enumerate(zip(pytree.tree_leaves(replayed), pytree.tree_leaves(recorded), strict=True)):
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            x, y = (t.detach().contiguous().view(-1).view(uint8) if t.ndim and t.numel() else t.detach() for t in (a, b))
            same = a.shape == b.shape and a.dtype is b.dtype and x.equal(y)
        else:
            same = a == b
        if not same:
            raise RuntimeError(
                f"compile(mode='reduce-overhead'): result {at} of {title} is another than its recording gives: the function depends on "
                "something that its arguments do not show, see docs/compile.md; compile it without the mode, or call "
                "torch.compiler.reset() when that changes"
            )
