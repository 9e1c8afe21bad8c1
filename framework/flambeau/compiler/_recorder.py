"""What `compile` records while a function runs, and when it computes that.

Python runs in every call. A `Recorder`, an interpreter (see `_interpreters`), answers operations without computing them: their
results are `Deferred` tensors (`_deferred.py`), whose shape and dtype are known. What has been recorded is a path in a tree
(`_steps.py`), in which each step is found by the operation, its operands' places, their shapes and dtypes, and constants. So
following the tree is what checks that a program of an earlier call is right for this one, and there is nothing else to check.

Whatever asks for more of a Deferred than its shape and dtype, every operation that is not recorded, and the end of the function
`flush` what is pending: the program of the path computes those results that are still alive, and the Deferreds become the tensors
they stand for, the same objects. Side effects, branches on values, exceptions and globals are right because Python does them.

A program that writes to the memory of an operand without any operation, through an array of numpy that it made earlier, is not seen.
"""

from __future__ import annotations

import functools
import gc
import threading
import weakref
from collections.abc import Callable
from time import perf_counter
from types import MethodType
from typing import Any, NamedTuple

import numpy as np

from flambeau_kernels import hot_calls
from flambeau_kernels.engine.calls import follow
from flambeau_kernels.engine.calls import settle as native_settle

from .. import _state, dtypes
from .._arrays import MetaArray, ndarray
from .._interpreters import NOTED, Interpreter, below
from ..autograd import tape
from ..devices import device
from ..nn.parameter import Parameter
from ..tensor import Tensor
from . import _explain
from ._deferred import Deferred, become, is_entitled, is_no_view, pending_of, set_pending
from ._handlers import would_be_caught
from ._operations import is_sound, is_the_same_apart, looking, maker_of, may_wait, meta_of, meta_of_argument, no_draws
from ._steps import PLAIN, Constant, Step, are_equal, is_view, owner_of

_local = _state.local
_new = object.__new__
_ref = weakref.ref
_MISSING: Any = object()
MOST_BRANCHES = 64                                    # of one step: constants that change in every call must not pile up
RECORDED_FROM = 1 << 15                                       # elements; with fewer, computing at once costs less than recording
TIMED = 64                                            # calls of a program whose seconds are taken, which takes as long as a step


_TOKEN, _CALLS = map(follow.PATH.index, ("token", "calls"))
follow.who_is_in_force(follow.Stacks(_state.Calls, "thread", "interpreters", "modes"))


def ambient_now() -> tuple[Any, ...]:
    """What decides, beside its arguments, what an operation gives."""
    own = _local.recording
    return own.asked, own.inference, dtypes._default, _state.WAYS[0]


class _as_before:  # a context manager
    """What decides over results is `ambient`."""

    def __init__(self, ambient: Any) -> None:
        self.ambient = ambient

    def __enter__(self) -> None:
        self.now = ambient_now()
        if self.now != self.ambient:
            self._set(self.ambient)

    def __exit__(self, *_: object) -> None:
        if self.now != self.ambient:
            self._set(self.now)

    def _set(self, ambient: tuple[Any, ...]) -> None:
        _state.set_grad(ambient[0])
        _state.set_inference(ambient[1])
        dtypes.set_default_dtype(ambient[2])


class Segment(NamedTuple):
    """A program that ran: its inputs, and the numbers of its values with weak references to their tensors."""

    program: Any
    inputs: list[Tensor]
    made: list[tuple[int, Any]]


class Event(NamedTuple):
    """What was done to `subject`: 'backward' of a tensor, 'step' of an optimizer or scheduler, 'zero_grad' of an optimizer or module."""

    name: str
    subject: Any


class Recorder(Interpreter):
    """Records the operations of one call.

    Args:
        root: the tree to follow, a step without operation.
        program: ``(step, wanted, inputs) -> program`` makes what computes the values `wanted` of a path; ``program(inputs, made)``
            is given the Deferreds of these, and makes them tensors by `become`.
        whole: record every operation that has no side effect; else only those that fuse, none of which can fail.
        on_ask: called with the reason when Python asks for a value.
        title: what the function is called, for messages.
        is_transparent: code that has kernels of its own for arrays may use them; else it goes by operations, which are recorded.
        tells: keep a `story` of the call, a `Segment` for each program that ran and an `Event` for each backward and step of an optimizer.
    """

    kind = "compile"
    declines = _state.FOLLOWS
    runs_compositions = True

    def __init__(
        self, root: Step, program: Callable[[Step, tuple[int, ...], list[Tensor]], Any], records_all: bool, on_ask: Any = None,
        title: str = "", tells: bool = False, is_transparent: bool = True,
    ) -> None:  # fmt: skip
        self.is_transparent = is_transparent
        self.root, self.title = root, title
        self.notes_events = tells
        self.witness: Any = None                      # of the call, see `_surroundings`; a replay runs events itself
        self.program, self.records_all, self.on_ask = program, records_all, on_ask
        self._lock = threading.RLock()
        self._left: dict[tuple[int, int], Any] = {}               # see `_rescue`
        # What `flambeau_kernels.engine.calls.follow` calls a path.
        self._path: list[Any] = [None] * len(follow.PATH)
        self._path[_CALLS] = _local.calls             # of the thread of the call
        self.shared: list[Any] = []                   # arrays over memory that the program has in its hands, since the call began
        self.story: list[Segment | Event] = []
        self.is_full_story = self.notes_events        # nothing but programs and events was in the call
        self._restart()
        native, here = follow.builtin(), follow.builtin_here()
        self.quick = self.following = None if native is None else MethodType(native, self._path)
        self.following_here = None if here is None else MethodType(here, self._path)
        settles = None if native is None or records_all else native_settle.builtin()
        self._settles = None if settles is None else MethodType(settles, self._path)
        self.alone = (self,)                          # the stack of interpreters where it is the only one
        self.begin()

    def begin(self, is_told: bool = False) -> None:
        """Be ready for a call of this thread, the first one or another. `is_told`: what there is to say of its recordings has been said."""
        self._path[_CALLS] = _local.calls
        self.is_told = is_told
        self.breaks: list[str] = []                   # why each flush was
        self.ran: list[Any] = []                      # the programs of all of them
        # Operations that came here and were not recorded; those among them that were taken apart; draws, and writes that are no operations.
        self.passed = self.apart = self.effects = 0
        self.shared = []
        self._expect_first()

    def _restart(self) -> None:
        """Begin a path."""
        self.inputs: list[Tensor] = []
        self._counts: list[int] = []                  # of writes to inputs
        self._numbers: dict[int, int] = {}            # id of an input -> its number
        self._made: list[Any] = []                    # weak references to the Deferreds, by value
        self._writes: dict[int, int] = {}             # by value: how often what has it would have been written to
        first = self.root.node
        self._path[:_CALLS] = (first, self, self._made, self.inputs, self._counts, Deferred, Parameter, None, _state.AMBIENT, first)
        self._expect_first()

    def _expect_first(self) -> None:
        """Let the first operation be followed too, where what decides over results is as it was at the first one of the tree."""
        ambient, path = self.root.ambient, self._path
        calls = path[_CALLS]
        own = calls.recording
        now = own.asked, own.inference, dtypes._default, _state.WAYS[0]     # as `ambient_now`
        if ambient == now and not calls.saved_hooks and not self.shared:
            path[_TOKEN], self._ambient = _state.AMBIENT[0], ambient
        else:
            path[_TOKEN] = self._ambient = None

    def close(self) -> None:
        """Let go of what refers to the recorder, once nothing more is recorded."""
        self.quick = self.following = self.following_here = self._settles = None
        self._path[1] = None
        self.alone = ()

    @property
    def step(self) -> Step:
        """The last one that was recorded, or followed."""
        return self._path[0][1]

    # -- operations

    def run(self, op: Any, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
        if out is None and not _local.calls.saved_hooks:    # hooks of what is saved are told of one operation after the other
            written = op, args
            if op.forwards_to is not None and (self.notes_events or not self.records_all):
                called = op.forwards_to(*args)
                if called is not None:                # which may be the operation that came here last time
                    op, args = called
                    found = None if self.quick is None else self.quick(op, *args)
                    if found is not None:
                        return found
            kind = op.kind
            if kind == "elementwise" or kind == "view" or self.records_all or may_wait(op) or is_sound(op, args):
                # What is recorded for a replay fails where it is called, if its elements are there to say so.
                fails = self.notes_events and is_sound(op, args) is False
                found = NotImplemented if fails else self._deferred(op, args, written)
                if found is not NotImplemented:
                    return found
                if not self.records_all and not (self._is_ordered() and _has_history(args) or any(a.__class__ is Deferred for a in args)):
                    self.passed += 1
                    # It reads tensors that are there, and writes to none. A composition, or what answers in its place, runs whole: its
                    # parts may round otherwise.
                    return op.enter(*args) if kind == "composite" or op is not written[0] else NotImplemented
            elif kind == "composite" and (self._draws_apart(op) or is_the_same_apart(op, args)):
                self.passed += 1
                self.apart += 1
                return NOTED                          # its parts come here in turn
        elif inplace and out.__class__ is Deferred and not self.records_all and not _local.calls.saved_hooks:
            found = self._overwritten(op, args)
            if found is NotImplemented and out.__class__ is Deferred:
                found = self._stored(op, args)
            if found is not NotImplemented:
                return found
            if op.kind == "composite" and op.inplace_view is None and not _has_history(args) and is_the_same_apart(op, args):
                self.passed += 1
                self.apart += 1
                return NOTED                          # its parts, and the storing of what they give
        self.passed += 1
        if out is None or not self._is_beside(out, args):
            self.flush(op.public_name)
        # Compositions run as they do without a recorder.
        if inplace:
            return op.enter_inplace(*args)
        return op.enter(*args) if out is None else op.run_out(out, *args)

    def settle(self) -> None:
        self.effects += 1
        self.flush("memory or random numbers were used by something else than an operation")

    def settle_draws(self) -> None:
        self.effects += 1
        if self.records_all:                          # else nothing that draws is put off
            self.settle()

    def settle_write(self, target: Tensor) -> None:
        self.effects += 1
        if not self._is_beside(target, ()):
            self.settle()

    def settle_shared(self, array: Any) -> None:
        self.effects += 1
        if any(np.may_share_memory(x._array, array) for x in self.inputs):
            self.settle()
        self.shared.append(array)
        self._path[_TOKEN] = None

    def _is_beside(self, target: Any, args: tuple[Any, ...]) -> bool:
        """Whether an operation on what is there may write to the tensor `target` at once: nothing that is pending reads its memory."""
        if self.records_all or target.__class__ is not Tensor and target.__class__ is not Parameter or _is_pending(args):
            return False
        if self._is_ordered() and (target._node is not None or _has_history(args)):
            return False
        array = target._array
        if array.__class__ is not ndarray:
            return False
        return not any(x._storage is target._storage or np.may_share_memory(x._array, array) for x in self.inputs)

    def _draws_apart(self, op: Any) -> bool:
        """Whether `op` is made of a draw, which needs no values, and operations that join chains, as dropout is."""
        return op.random and op.elements == "mapped" and not self.records_all

    def note_python(self) -> None:
        self.is_full_story = False

    def run_event(self, name: str, subject: Any, run: Any) -> Any:
        self.flush(name, ends=True)
        seen = self.witness
        with below(self):
            if seen is not None:
                seen.is_paused = True
            try:
                result = run()
            finally:
                if seen is not None:
                    seen.is_paused = False
        self.story.append(Event(name, subject))
        return result

    def run_operator(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.flush(str(operator))
        return NotImplemented

    def run_branches(self, pred: Any, branches: tuple[Any, Any], operands: Any) -> Any:
        self.flush("cond")
        return NotImplemented

    def run_each(self, op: Any, args: tuple[Any, ...]) -> Any:
        self.flush(op.public_name)
        return NotImplemented

    def _overwritten(self, op: Any, args: tuple[Any, ...]) -> Any:
        """The Deferred ``args[0]``, which stands for the result of `op` from now on, as if it had been written to; or NotImplemented.

        So it is recorded as an operation that writes to nothing.
        """
        target = args[0]
        if not self._holds(target):
            return NotImplemented
        marker = _in_place(op)
        made = None if self.quick is None else self.quick(marker, *args)
        if made is None:
            called = None if op.forwards_to is None else op.forwards_to(*args)
            own, given = (op, args) if called is None else called
            if own.kind != "elementwise" or given[0] is not target:
                return NotImplemented
            made = self._deferred(own, given, (marker, args))
            if made is NotImplemented:
                return NotImplemented
        before, after = pending_of(target)[1], pending_of(made)
        self._made[-1] = _ref(target)
        set_pending(target, after)
        self._writes[after[1]] = self._writes.pop(before, 0) + 1
        return target

    def _stored(self, op: Any, args: tuple[Any, ...]) -> Any:
        """The Deferred ``args[0]``, where a step of the path is to write to it and what shares its memory; or NotImplemented."""
        target = args[0]
        if not self._holds(target) or op.random:
            return NotImplemented
        called = None if op.forwards_to is None else op.forwards_to(*args)
        own, given = (op, args) if called is None else called
        if given[0] is not target or own.kind != "elementwise" and not own.deferrable and not is_sound(own, given):
            return NotImplemented
        made = self._deferred(own, given, (_store_in(own), given))
        return made if made is NotImplemented else target

    def _recorded_store(self, op: Any, refs: list[Any], args: tuple[Any, ...]) -> Step | None:
        """A new step that writes to its first operand; None if `op` shall not be recorded so."""
        numbers = _read_by(refs)
        owner = owner_of(refs[0], self.step)
        if owner < 0 or any(owner_of(ref, self.step) == owner and not self._is_same_part(ref, refs[0]) for ref in numbers if ref >= 0):
            return None                               # it writes to an input, or reads other parts of what it writes
        operands = tuple([meta_of_argument(a) for a in args])
        if op.kind == "elementwise" and op.fails_by_elements(operands):
            return None
        target = operands[0]
        looks = target._array.shape, target._array.strides, target.dtype
        if _has_history(args) or args[0].__class__ is not Deferred:
            return None
        try:
            with looking(no_draws):
                op.enter_inplace(*operands)
        except Exception:  # whatever is wrong is said by the operation itself, which now runs at once
            return None
        if (target._array.shape, target._array.strides, target.dtype) != looks or target.requires_grad:
            return None
        step = Step(op, refs, operands, self.step)
        step.stores, step.several = True, tuple
        return step

    def _is_same_part(self, number: int, other: int) -> bool:
        """Whether two pending values in one memory are all of it, or the same part."""
        if number == other:
            return True
        steps = [next((s for s in self.step.path() if s.first <= n < s.first + len(s.results)), None) for n in (number, other)]
        if None in steps or not all(is_view(s.op) for s in steps):
            return False
        a, b = steps
        return a.op is b.op and number - a.first == other - b.first and are_equal(a.refs, b.refs)

    def _may_be_replaced(self, number: int) -> bool:
        """Whether a pending value is in no memory but its own, and saved for no gradient, so that nobody would see it written to."""
        step: Any = self.step
        while step is not self.root:
            op = step.op
            if step.first <= number < step.first + len(step.results):
                return op.kind == "elementwise" or op.in_rows is not None or op.deferrable or op.finished_by is not None
            if number in _read_by(step.refs) and (is_view(op) or any(result.requires_grad for result in step.results)):
                return False
            step = step.parent
        return False

    def _deferred(self, op: Any, args: tuple[Any, ...], written: tuple[Any, tuple[Any, ...]]) -> Any:
        """The result of `op` as a Deferred, or several; NotImplemented if it is not recorded. `written` is the call as it came here."""
        token = _state.AMBIENT[0]
        ambient = (_local.recording.asked, _local.recording.inference, dtypes._default, _state.WAYS[0])
        if ambient != self._ambient:
            self._meet(ambient)
        step = self.step
        # The first step of a path is for what decides over all results.
        writes = written[0].__class__ is _InPlace
        key: list[Any] = [written[0] if writes or written[0].__class__ is _Store else op]
        if step is self.root:
            key.append(ambient)
        mark = len(self.inputs)
        self._number_inputs()
        if not self._named(args, key):
            self._forget(mark)
            return NotImplemented
        name = tuple(key)
        try:
            found = step.after.get(name, _MISSING)
        except TypeError:                             # a constant without a hash
            found = None
        if found is _MISSING:
            if self._is_worth(args) and len(step.after) < MOST_BRANCHES:
                with _no_collection():
                    if self.step is step:
                        stores = written[0].__class__ is _Store
                        found = (self._recorded_store if stores else self._recorded)(op, self._refs(args), args)
                        if writes and found is not None and not self._may_write(found, args):
                            found = None
                        step.after[name] = found
            else:
                found = None
        if found is None:
            self._forget(mark)
            return NotImplemented
        path = self._path
        made: list[Any] = []
        refs: list[Any] = []
        if found is not _MISSING and found.same is None:
            made = [self._pending_at(number, result) for number, result in found.numbered]
            refs = [_ref(one) for one in made]
        if path[0] is not step.node:
            # The garbage collector may have run, and with it a finalizer, which has asked for values or computed with them.
            self.flush("something else ran in the midst of an operation")
            return self._deferred(op, args, written)
        if found.same is not None and not found.written:
            # The path stays where it is, so its inputs have to: the next new operand is told from this one by its number alone.
            value = self._value(found.same)
            self._forget(mark)
            return value
        if found.written and not self._writes_to(found):
            self._forget(mark)
            return NotImplemented
        path[0], path[_TOKEN] = found.node, None if self.shared else token  # native code would not look at what is shared
        self._made += refs
        if found.written:
            return self._value(found.same) if found.same is not None else made[0] if found.several is None else found.several(made)
        if step is not self.root:
            self._expect(step, found, mark, written)
        elif step.ambient is None:                    # the first of several segments stays the likely one
            self._expect(step, found, mark, written)
            step.ambient = ambient
        return made[0] if found.several is None else found.several(made)

    def _meet(self, ambient: tuple[Any, ...]) -> None:
        """Let what is recorded next have another `ambient` than what came before."""
        if self._ambient is not None:
            self.flush("the mode of recording gradients, or another setting, has changed")
        self._ambient = ambient

    def _writes_to(self, step: Step) -> bool:
        """Let the step write to its operands when the path is computed; False if it may not."""
        return False

    def _expect(
        self, step: Step, found: Step, known: int, written: tuple[Any, tuple[Any, ...]], instead: bool = False, several: Any = None
    ) -> None:
        op, args = written
        self._number_inputs()
        try:
            refs = self._refs(args)
        except KeyError:                              # an operand that the operation in its place does not have
            return
        looks = not self.records_all or self.notes_events
        step.expect(found, known, len(self.inputs), op, refs, looks, instead, several)

    def mark(self) -> Any:
        return self.step, len(self.inputs), self.passed - self.apart + self.effects, len(self.breaks), dict(self._writes)

    def note_composition(self, op: Any, args: tuple[Any, ...], result: Any, mark: Any) -> None:
        """Expect the composition itself from now on, if it was nothing but operations that were recorded, the last of which it gives."""
        before, known, passed, breaks, writes = mark
        step = self.step
        if step is before or self.passed - self.apart + self.effects != passed or len(self.breaks) != breaks or self._writes != writes:
            return
        first = before.first + len(before.results)    # values on the way that anybody still has are to be made in every call
        if any(one() is not None for one in self._made[first : step.first]):
            return
        several = isinstance(result, (tuple, list))
        results = result if several else (result,)
        if several is (step.several is None) or len(results) != len(step.results):
            return
        for number, one in enumerate(results, step.first):
            # It has a title where the composition has one for its node, which is for the composition to give in each call.
            if one.__class__ is not Deferred or pending_of(one)[:2] != (self, number) or is_entitled(one):
                return
        made = maker_of(result.__class__) if several else _of_no_base if is_no_view(result) else None
        if not several or not any(map(is_no_view, results)):
            self._expect(before, step, known, (op, args), True, made)

    def _may_write(self, step: Step, args: tuple[Any, ...]) -> bool:
        """Whether the result of `step` may take the place of ``args[0]``."""
        if step.several is not None or step.same is not None or _has_history(args) or step.results[0].requires_grad:
            return False
        if args[0].__class__ is not Deferred:         # it has been computed meanwhile
            return False
        number, look = pending_of(args[0])[1:3]
        made = step.results[0]
        alike = made.dtype is look.dtype and made._array.shape == look._array.shape and made._array.strides == look._array.strides
        return alike and self._may_be_replaced(number)

    def _holds(self, a: Deferred) -> bool:
        """Whether a Deferred stands for a value of this path; what is left of earlier ones is garbage in a finalizer's hands."""
        recorder, number = pending_of(a)[:2]
        return recorder is self and number < len(self._made) and self._made[number]() is a

    def _takes(self, a: Deferred, key: list[Any]) -> bool:
        """Whether a Deferred of another recorder is taken for an input; then what tells it from others is put into `key`."""
        return False

    def _number_of(self, a: Deferred) -> int:
        """The number of a Deferred that was named."""
        return pending_of(a)[1]

    def _pending_at(self, number: int, result: Tensor) -> Any:
        one = _new(Deferred)
        set_pending(one, (self, number, result))
        return one

    def _is_worth(self, args: Any) -> bool:
        """Whether an operation that has not been met here is to be recorded.

        What reads pending results would end them here, while the function still holds what it has computed on the way.
        """
        return self.records_all or _is_pending(args) or _largest(args) >= RECORDED_FROM or self._is_ordered() and _has_history(args)

    def _is_ordered(self) -> bool:
        """Whether what has a history must not run before what is pending: the order of nodes is the order in which gradients are added."""
        return self.step is not self.root and _local.grad

    def _forget(self, mark: int) -> None:
        """Drop the inputs from number `mark` on."""
        for tensor in self.inputs[mark:]:
            del self._numbers[id(tensor)]
        del self.inputs[mark:], self._counts[mark:]

    def _number_inputs(self) -> None:
        if len(self._numbers) != len(self.inputs):    # what followed has listed some
            self._numbers = {id(x): number for number, x in enumerate(self.inputs)}

    def _named(self, args: Any, key: list[Any]) -> bool:
        """Put into `key` what tells `args` from others. Returns whether they can be recorded."""
        put = key.append
        for a in args:
            kind = a.__class__
            if kind is Deferred:
                if self._holds(a):
                    put(pending_of(a)[1])
                elif not self._takes(a, key):
                    return False
            elif kind is Tensor or kind is Parameter:
                number = self._numbers.get(id(a))
                if number is not None:
                    put(-1 - number)
                    continue
                array = a._array
                if array.__class__ is not ndarray or self.shared and any(np.may_share_memory(array, one) for one in self.shared):
                    return False
                self._numbers[id(a)] = len(self.inputs)
                self.inputs.append(a)
                self._counts.append(a._storage[tape.COUNT])
                put((array.shape, array.strides, array.dtype, a._node is not None))
            elif kind is float:
                put(kind)
                put(a if a else str(a))               # zeros of both signs are equal
            elif kind in PLAIN:
                put(kind)
                put(a)
            elif kind is slice:
                bounds = (a.start, a.stop, a.step)
                if not all(n is None or n.__class__ is int for n in bounds):
                    return False
                put(kind)
                put(bounds)
            elif kind is list or kind is tuple:
                put(kind)
                put(len(a))
                if not self._named(a, key):
                    return False
            else:
                return False
        return True

    def _refs(self, args: Any) -> list[Any]:
        """What a step keeps for `args`."""
        refs: list[Any] = []
        for a in args:
            kind = a.__class__
            if kind is Deferred:
                refs.append(self._number_of(a))
            elif isinstance(a, Tensor):
                refs.append(-1 - self._numbers[id(a)])
            elif kind is list or kind is tuple:
                refs.append(kind(self._refs(a)))
            else:
                refs.append(Constant(a))
        return refs

    def _value(self, ref: int) -> Any:
        return self.inputs[-1 - ref] if ref < 0 else self._made[ref]()

    def _recorded(self, op: Any, refs: list[Any], args: tuple[Any, ...]) -> Step | None:
        """A new step of the tree; None if `op` shall not be recorded on these operands."""
        if any(a.__class__ is device and a.type != "cpu" for a in args):
            return None                               # a Deferred is on the CPU
        # What may fail by its values is recorded for a replay too, but a program that would catch that runs it at once.
        if self.records_all and self.notes_events and op.kind not in ("elementwise", "view") and not may_wait(op) and would_be_caught():
            return None
        operands, metas = without_memory(args, refs)
        if (not self.records_all or self.notes_events) and op.kind == "elementwise" and op.fails_by_elements(operands):
            return None                               # nobody looks at elements again when the path is followed
        counts = {ref: found._storage[tape.COUNT] for ref, found in metas.items()}
        try:
            with looking(no_draws):
                result = op.enter(*operands)
        except Exception:  # whatever is wrong, or needs values, is said or done by the operation itself, which now runs at once
            return None
        if any(found._storage[tape.COUNT] != counts[ref] for ref, found in metas.items()):
            return None                               # it writes to an operand
        step = Step(op, refs, operands, self.step)
        several = isinstance(result, (tuple, list))
        results = tuple(result) if several else (result,)
        if not all(r.__class__ is Tensor and r._array.__class__ is MetaArray for r in results):
            return None
        if not several:
            step.same = next((ref for ref, found in metas.items() if found is result), None)
        elif any(r is found for r in results for found in metas.values()):
            return None
        step.results = results
        step.numbered = ((step.first, results[0]),) if len(results) == 1 else tuple(enumerate(results, step.first))
        if several:
            step.several = maker_of(result.__class__)
        return step

    # -- computing

    def flush(self, why: str, asked: bool = False, ends: bool = False) -> None:
        """Compute what is pending. Args: why; whether Python `asked` for a value, or an event or the call `ends` a segment."""
        lock = self._lock
        lock.acquire()                                # `with` would take twice as long
        try:
            if not ends:
                self.is_full_story = False
            elif self._left:
                self._left = {}
            node = self._path[0]
            if node is self.root.node:
                if self.inputs:
                    self._restart()
                return
            self.breaks.append(why)
            ready = node[2]
            if ready is not None and self._settled_natively(ready[-1]):
                pass
            elif self._path[0] is node:                # else a finalizer, which the collector ran meanwhile, has asked for a value
                # One that runs from here on would find neither the path nor weak references to what it asks for.
                with _no_collection():
                    self._run_program(node[1], why)
        finally:
            lock.release()
        if asked and self.on_ask is not None:
            self.on_ask(why)

    def flush_for(self, asker: Deferred) -> None:
        """Compute what is pending, and with it `asker`."""
        with self._lock:
            pending: Any = pending_of(asker)
            if pending.__class__ is not tuple:
                return
            number, made = pending[1], self._made
            if number < len(made) and made[number]() is None:
                self._rescue()
            found = self._left.get((number, id(pending[2])))
            if found is not None:
                become(asker, found[1])
                return
            self.flush("a value was asked for", asked=True)

    def _rescue(self) -> None:
        """Compute all that is pending, for finalizers: there are no weak references to garbage any more when they run.

        So the tensors of what nothing seems to refer to are kept, with their looks, until the call, or a part of it, ends.
        """
        node, step, kept = self._path[0], self.step, {}
        looks = dict(found for one in step.path() for found in one.numbered)
        for number, ref in enumerate(self._made):
            if ref() is None:
                kept[number] = looks[number], self._pending_at(number, looks[number])
                self._made[number] = _ref(kept[number][1])
        if node is not self.root.node:
            self.is_full_story = False
            self.breaks.append("a finalizer asked for a value")
            with _no_collection():
                self._run_program(step, self.breaks[-1])
        self._left |= {(number, id(look)): (look, one) for number, (look, one) in kept.items()}

    def _settled_natively(self, program: Any) -> bool:
        """Whether one native call has done all that is to be done, as it was last time by `program`."""
        settles = self._settles
        if settles is None or _state.MARKING or program.generation != hot_calls.generation:
            return False
        interpreters = _local.calls.interpreters
        if interpreters and interpreters[0] is not self:  # others are told of operations
            return False
        if self._numbers:
            self._numbers = {}
        writes = self._writes
        written = [(self._made[number](), count) for number, count in writes.items()] if writes else ()
        timed = program.calls < TIMED
        began = perf_counter() if timed else 0.0
        if settles() is None:
            return False
        if timed:
            program.seconds = perf_counter() - began
        program.calls += 1
        self.ran.append(program)
        if writes:
            self._writes = {}
            for one, count in written:
                if one is not None:
                    one._storage[tape.COUNT] += count
        if self._ambient is not self.root.ambient:
            self._expect_first()
        return True

    def _run_program(self, step: Step, why: str) -> None:
        """Compute what is pending by the program of the path, which is made if there is none."""
        alive = {}
        for ref in self._made:
            one = ref()
            if one is not None:
                alive[pending_of(one)[1]] = one
        one = None
        inputs, counts, writes, ambient, token = self.inputs, self._counts, self._writes, self._ambient, self._path[_TOKEN]
        self._restart()
        for x, count in zip(inputs, counts, strict=True):
            if x._storage[tape.COUNT] != count:
                raise RuntimeError(
                    f"compile: a tensor of shape {tuple(x.shape)} was written to by no operation while results that read it "
                    "were pending; call torch._dynamo.graph_break() before that"
                )
        wanted = tuple(alive)
        program = step.programs.get(wanted)
        if program is None or _local.calls.interpreters or token is not _state.AMBIENT[0] and ambient_now() != ambient:
            with below(self), _as_before(ambient):
                if program is None:
                    program = step.programs[wanted] = self.program(step, wanted, inputs)
                    _explain.note(self, step, program, why)
                _compute(program, inputs, alive)
        else:
            _compute(program, inputs, alive)
        if self._settles is not None:
            walk = program.natively(inputs)
            if walk is not None:
                numbers = range(step.first + len(step.results))
                step.node[2] = (bytes([number in alive for number in numbers]), walk, program)
        if writes:
            for number, count in writes.items():
                held = next((one for n, one in alive.items() if n == number or n > number and owner_of(n, step) == number), None)
                if held is not None:                  # else nobody has the memory any more
                    held._storage[tape.COUNT] += count
        self.ran.append(program)
        if self.notes_events:
            self.story.append(Segment(program, inputs, [(number, _ref(one)) for number, one in alive.items()]))


def _compute(program: Any, inputs: list[Tensor], alive: dict[int, Any]) -> None:
    began = perf_counter()
    program(inputs, alive)
    program.seconds = perf_counter() - began


def without_memory(args: tuple[Any, ...], refs: list[Any]) -> tuple[tuple[Any, ...], dict[int, Tensor]]:
    """Arguments with meta tensors in the place of tensors, and these by the number of what they stand for."""
    metas: dict[int, Tensor] = {}

    def meta(a: Any, ref: Any) -> Any:
        if isinstance(ref, Constant):
            return ref.value
        if isinstance(ref, (list, tuple)):
            return type(ref)([meta(x, r) for x, r in zip(a, ref, strict=True)])
        if ref not in metas:
            metas[ref] = meta_of(pending_of(a)[2] if a.__class__ is Deferred else a)
        return metas[ref]

    return tuple([meta(a, ref) for a, ref in zip(args, refs, strict=True)]), metas


class _InPlace:
    """What the in-place form of an operation is found by."""

    __slots__ = ("name",)

    def __init__(self, op: Any) -> None:
        self.name = f"{op.name}_"


class _Store:
    """What an operation that writes to memory which others may see is found by."""

    __slots__ = ("name",)

    def __init__(self, op: Any) -> None:
        self.name = f"{op.name}_"


_in_place, _store_in = functools.cache(_InPlace), functools.cache(_Store)


def _of_no_base(made: tuple[Any]) -> Any:
    """The only result of a call, which is a view of nothing, though the operation in its place gives one."""
    made[0]._view_of = None
    return made[0]


def _read_by(refs: Any) -> list[int]:
    """The numbers of values and inputs among arguments."""
    return [number for ref in refs for number in ([ref] if ref.__class__ is int else [] if ref.__class__ is Constant else _read_by(ref))]


def _is_pending(args: Any) -> bool:
    """Whether some tensor among arguments, and in lists of them, is not computed yet."""
    return any(a.__class__ is Deferred or a.__class__ in (list, tuple) and _is_pending(a) for a in args)


def _largest(args: Any) -> int:
    """Elements of the largest tensor among arguments."""
    sizes = [0]
    for a in args:
        if isinstance(a, Tensor):
            sizes.append((pending_of(a)[2] if a.__class__ is Deferred else a)._array.size)
        elif a.__class__ in (list, tuple):
            sizes.append(_largest(a))
    return max(sizes)


def _has_history(args: Any) -> bool:
    """Whether some tensor among arguments, and in lists of them, requires grad."""
    for a in args:
        if isinstance(a, Tensor):
            if a.requires_grad:
                return True
        elif a.__class__ in (list, tuple) and _has_history(a):
            return True
    return False


class _no_collection:  # a context manager
    """The garbage collector does not run."""

    def __enter__(self) -> None:
        self.ran = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self.ran:
            gc.enable()


