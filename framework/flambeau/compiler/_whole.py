"""What records graphs for backends of a program's own: whole functions, with what they write, draw and make.

Fused kernels stand for what has no side effect, and need no more than that to be recorded. A backend is promised the function. So its
graphs write to memory, make tensors, set the mode of recording gradients, and call operators that the program has defined.

A tensor that a graph is going to write to is a Deferred until that has run, so whoever reads it has the graph run first. It is one only
while nobody else has its memory, of which a view or an array of numpy would tell nobody: else the write ends the graph, and runs at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from sys import getrefcount
from typing import Any

import numpy as np

from .. import _state
from .._arrays import MetaArray
from .._interpreters import below
from ..autograd import tape
from ..devices import device
from ..tensor import Tensor, wrap
from ..utils._pytree import tree_flatten, tree_unflatten
from . import _calls
from ._asking import refuse
from ._deferred import Deferred, pending_of, set_pending
from ._marked import DISALLOWED
from ._operations import looking, maker_of, meta_of, no_draws
from ._recorder import _TOKEN, Recorder, ambient_now, without_memory
from ._refs import tensors_in
from ._steps import Constant, Step, owner_of

_local = _state.local


class WholeRecorder(Recorder):
    """Records all that a graph can say; see `Recorder`. `bodies` is the tree of what is a graph within a graph, see `_bodies`."""

    sees_makers = True

    def __init__(
        self, root: Step, program: Callable[[Step, tuple[int, ...], list[Tensor]], Any], on_ask: Any, title: str,
        bodies: dict[Any, Step],
    ) -> None:  # fmt: skip
        self.bodies = bodies
        self.entered = ambient_now()                  # graphs are called as the function was
        super().__init__(root, program, True, on_ask, title, is_transparent=False)

    def _restart(self) -> None:
        super()._restart()
        self._held: dict[int, Any] = {}               # by number, the gradients of inputs that are Deferred until the path is computed
        self._begun: Any = None                       # what decided over the first step, where later ones have another mode

    # -- operations

    def run(self, op: Any, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
        if op in DISALLOWED:
            self._end_at(f"{op.public_name} is not allowed in graphs")
        elif not _local.calls.saved_hooks:            # hooks of what is saved are told of one operation after the other
            called, given = op, args
            if inplace:
                called = _calls.in_place(op)
            elif out is not None:
                called, given = _calls.into(op), (*args, out)
            found = self._deferred(called, given, (called, given))
            if found is not NotImplemented:
                return found
        self.passed += 1
        self.flush(op.public_name)
        # Compositions run as they do without a recorder.
        if inplace:
            return op.enter_inplace(*args)
        return op.enter(*args) if out is None else op.run_out(out, *args)

    def _end_at(self, why: str) -> None:
        if self.on_ask is not None:
            refuse(why)
        self.flush(why)

    def run_setitem(self, target: Tensor, key: Any, value: Any) -> Any:
        given = target, key, value
        return self._deferred(_calls.STORED, given, (_calls.STORED, given))

    def run_maker(self, call: Any) -> Any:
        overload, args, kwargs = call
        given = *args, *kwargs.values()
        called = _calls.made_by(overload, len(args), tuple(kwargs))
        return self._deferred(called, given, (called, given))

    def run_whole(self, operator: Any, args: tuple[Any, ...]) -> Any:
        with below(self):
            return self.run_maker((operator, args, {}))

    def run_function(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves, spec = tree_flatten((args, kwargs))
        called = _calls.allowed(fn, spec)
        return self._deferred(called, tuple(leaves), (called, tuple(leaves)))

    def run_operator(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if operator.is_composition:
            return NotImplemented                     # its parts come in turn
        given = *args, *kwargs.values()
        called = _calls.defined(operator, len(args), tuple(kwargs))
        found = self._deferred(called, given, (called, given))
        if found is NotImplemented:
            self.flush(str(operator))
        return found

    def run_branches(self, pred: Any, branches: tuple[Any, Any], operands: Any) -> Any:
        from ._bodies import Body, Choice

        is_recorded = isinstance(pred, Tensor) and self._is_innermost()
        bodies: list[Any] = [Body.of(self, functools.partial(branch, *operands)) for branch in branches] if is_recorded else [None]
        if None in bodies or not bodies[0].gives_as(bodies[1]):
            return super().run_branches(pred, branches, operands)
        given = list({id(x): x for body in bodies for x in body.inputs}.values())
        places = tuple([tuple([next(k for k, y in enumerate(given) if y is x) for x in body.inputs]) for body in bodies])
        key = Choice, bodies[0].wanted, bodies[1].step, bodies[1].wanted, places
        called = bodies[0].step.programs.get(key)
        if called is None:
            called = bodies[0].step.programs[key] = Choice((bodies[0], bodies[1]), places, len(given))
        return self._of_body(called, (pred, *given), bodies[0], lambda: super(WholeRecorder, self).run_branches(pred, branches, operands))

    def run_checkpoint(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], settings: dict[str, Any]) -> Any:
        from ._bodies import Body, Checkpointed

        is_recorded = _local.grad and not _local.calls.saved_hooks and self._is_innermost()
        body = Body.of(self, lambda: function(*args, **kwargs)) if is_recorded else None
        if body is None:
            return NotImplemented
        key = Checkpointed, body.wanted, tuple(settings.items())
        called = body.step.programs.get(key)
        if called is None:
            called = body.step.programs[key] = Checkpointed(body, tuple(settings.items()))
        return self._of_body(called, tuple(body.inputs), body, lambda: NotImplemented)

    def _is_innermost(self) -> bool:
        """Whether no other interpreter sees operations first, as it would have to in a body too."""
        return _local.calls.interpreters[-1] is self

    def _of_body(self, called: Any, given: tuple[Any, ...], body: Any, otherwise: Any) -> Any:
        """What a step with a body gives, in the structure of the body's result."""
        with below(self):
            made = self._deferred(called, given, (called, given))
        if made is NotImplemented:
            return otherwise()
        results = iter(made)
        return tree_unflatten([next(results) if isinstance(one, Tensor) else one for one in body.leaves], body.spec)

    # -- what is recorded

    def _expect_first(self) -> None:
        super()._expect_first()
        if self._ambient is not None and self._ambient != self.entered:
            self._path[_TOKEN] = self._ambient = None

    def _meet(self, ambient: tuple[Any, ...]) -> None:
        is_first = self.step is self.root
        before = self.entered if is_first else self._ambient
        if before is None or ambient[1:] != before[1:] or ambient == before:
            super()._meet(ambient)
            return
        if self._begun is None:
            self._begun = before
        step, key = self.step, (_calls.GRAD_MODE, ambient[0], before if is_first else None)
        found = step.after.get(key)
        if found is None:
            found = step.after[key] = Step(_calls.GRAD_MODE, [Constant(ambient[0])], (ambient[0],), step)
            found.several = tuple
        self._path[0] = found.node
        self._ambient = ambient

    def _recorded(self, op: Any, refs: list[Any], args: tuple[Any, ...]) -> Step | None:
        if any(a.__class__ is device and a.type != "cpu" for a in args):
            return None                               # a Deferred is on the CPU
        operands, metas = without_memory(args, refs)
        own = isinstance(op, _calls.Called)
        before = {ref: (x._storage[tape.COUNT], _looks(x), x.requires_grad) for ref, x in metas.items()}
        try:
            with looking(no_draws):
                result = op.look(*operands) if own else op.enter(*operands)
        except Exception:  # whatever is wrong, or needs values, is said or done by the operation itself, which now runs at once
            return None
        written = {ref for ref, x in metas.items() if x._storage[tape.COUNT] != before[ref][0]}
        written.update(tensors_in(op.writes(refs)) if own else ())
        if any(_looks(metas[ref]) != before[ref][1] for ref in written):
            return None
        step = Step(op, refs, operands, self.step)
        several = isinstance(result, (tuple, list))
        results = tuple(result) if several else () if result is None else (result,)
        if not all(r.__class__ is Tensor and r._array.__class__ is MetaArray for r in results):
            return None
        if several:
            if any(r is found for r in results for found in metas.values()):
                return None
        elif results:
            step.same = next((ref for ref, found in metas.items() if found is result), None)
            if step.same is not None and written:
                results = ()
        step.results = results
        step.numbered = tuple(enumerate(results, step.first))
        step.several = maker_of(result.__class__) if several else _nothing if not results else None
        changed = []
        for ref in sorted(written):
            changes = metas[ref].requires_grad is not before[ref][2]
            if not self._may_be_written(ref, metas[ref], changes):
                return None
            changed.append((ref, meta_of(metas[ref]) if changes else None))
        step.written = tuple(changed)
        return step

    def _may_be_written(self, number: int, look: Tensor, changes: bool) -> bool:
        """Whether a value or input may be written to by the graph, after which it has the `look`; it `changes` what requires grad."""
        owner = owner_of(number, self.step)
        if owner < 0 and _local.grad and self.inputs[-1 - owner].requires_grad:
            return False                              # a leaf or a view of one may not, which the operation itself says
        if number != owner and look.requires_grad and self._step_of(number).several is not None:
            return False                              # nor one of several views
        # Views of what requires grad from now on do so too.
        return not changes or number == owner and all(owner_of(n, self.step) != owner for n in range(len(self._made)) if n != number)

    def _step_of(self, number: int) -> Step:
        return next(one for one in self.step.path() if one.first <= number < one.first + len(one.results))

    # -- inputs that are written to

    def _writes_to(self, step: Step) -> bool:
        owners = {-1 - owner for ref, _ in step.written if (owner := owner_of(ref, step)) < 0} - self._held.keys()
        if not all(_is_alone(self.inputs[at]) for at in owners):
            return False
        for at in owners:
            x = self.inputs[at]
            look = meta_of(x)
            self._held[at] = getattr(x, "_gradient", None)
            set_pending(x, (self, -1 - at, look))
            x.__class__ = Deferred
        for ref, look in step.written:
            if look is not None:
                one = self._value(ref)
                set_pending(one, (self, ref, look))
        return True

    def _holds(self, a: Deferred) -> bool:
        recorder, number = pending_of(a)[:2]
        if number < 0:
            return recorder is self and -1 - number in self._held and self.inputs[-1 - number] is a
        return super()._holds(a)

    def flush_for(self, asker: Deferred) -> None:
        with self._lock:
            pending: Any = pending_of(asker)
            if pending.__class__ is tuple and pending[1] < 0:
                self.flush("a value was asked for", asked=True)
            else:
                super().flush_for(asker)

    def _run_program(self, step: Step, why: str) -> None:
        for at, gradient in self._held.items():
            x = self.inputs[at]
            set_pending(x, gradient)
            x.__class__ = Tensor
        self._held = {}
        if self._begun is not None:
            self._ambient = self._begun
            self._path[_TOKEN] = None                 # which is what says whether a mode has to be set for the program
        super()._run_program(step, why)


def _looks(x: Tensor) -> tuple[Any, ...]:
    return x._array.shape, x._array.strides, x.dtype


def _nothing(_: Any) -> None:
    """What an assignment gives."""


def _is_alone(x: Any) -> bool:
    """Whether nobody but the tensor `x` has its memory, so that all that reads it asks `x`."""
    return x.__class__ is Tensor and x._view_of is None and x._array.base is None and _references(x) == _OF_ONE


def _references(x: Tensor) -> tuple[int, int]:
    """To the memory of a tensor and to the array over it."""
    return getrefcount(x._storage), getrefcount(x._array)


_one = wrap(np.zeros(1))
_OF_ONE = _references(_one)
