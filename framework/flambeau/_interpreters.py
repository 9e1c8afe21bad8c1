"""What may answer ops in the place of their kernels: autocast, dispatch modes, function transforms, anomaly mode and others.

Each thread has a stack of interpreters, `_state.local.calls.interpreters`, the outermost first. `ops/_dispatch.py` asks them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _state

_local = _state.local

# What interpreters answer beside results and NotImplemented.
DECOMPOSE = object()  # not as a whole, but what the composition is made of is its business
UNTOUCHED = object()  # neither the call nor anything that it is made of is its business
NOTED = object()  # not as a whole, but it is told by `note_composition` what its parts, which come in turn, have given


class Interpreter:
    """What may answer ops. `declines` has ops that it has said it never answers.

    While one that `sees_backward` is in force, what backward computes are ops on Tensors; else they are kernels.
    One that `observes` answers nothing: it is the outermost, and is told what in the end runs (`observe`).
    """

    kind = ""
    declines: Any = _state.NO_OPS
    sees_backward = False
    observes = False
    keeps_results = False  # whether kernels of operators that programs have defined are run through `run_backend`
    takes_names = False  # whether operands may be tensors with named dimensions: it looks at what they are, and not at the names
    notes_events = False  # whether it is told of backwards and steps of optimizers, through `run_event`
    answers_wrapped = False  # whether, save for ops that draw random numbers, it answers for operands of a class of its own alone
    is_transparent = False  # whether operations give just what they do without it: code may go the way it goes then, once it has settled
    runs_compositions = False  # whether it runs compositions itself, and so is not asked for those that one inside it wants taken apart
    sees_makers = False  # whether it is asked by functions that make tensors, or fill them with numbers, through `run_maker`
    follows_results = False  # whether it follows results of ops alone: rules read nothing that a kernel computed on the side then

    # ``fn(op, *args)``: the result of a usual call, or None having done nothing. It is asked before `run`, while all are in force still.
    quick: Any = None
    # `quick`, where that answers calls alone whose arguments are those of one that was looked at before, each of them: it is asked before
    # anything is looked at. Its class `declines` `_state.FOLLOWS`.
    following: Any = None
    # `following`, where that itself looks whether it is asked in its thread, and is the innermost there, without modes; or None.
    following_here: Any = None

    def run(self, op: Any, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
        """The result of `op`, NotImplemented, DECOMPOSE, UNTOUCHED or NOTED; a call in place has its target in `out` too."""
        return NotImplemented

    def mark(self) -> Any:
        """Where it is, before the parts of a composition that is `NOTED` come."""

    def note_composition(self, op: Any, args: tuple[Any, ...], result: Any, mark: Any) -> None:
        """The parts of the composition `op` have come since `mark`, to it alone, and gave `result`."""

    def run_maker(self, call: Any) -> Any:
        """The result of a call, see `_aten.Call`, that makes a tensor or fills one; or NotImplemented."""
        return NotImplemented

    def run_setitem(self, target: Any, key: Any, value: Any) -> Any:
        """None once ``target[key] = value`` is answered; or NotImplemented: the operations that it is made of come in turn."""
        return NotImplemented

    def run_function(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a function of the program that graphs have as one node, see `compiler.allow_in_graph`; or NotImplemented."""
        return NotImplemented

    def run_operator(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of an operator that a program has defined (`flambeau.library`), or NotImplemented; arguments are bound."""
        return NotImplemented

    def run_whole(self, operator: Any, args: tuple[Any, ...]) -> Any:
        """The result of an operator of PyTorch's that a function here is, which others have as its parts; or NotImplemented."""
        return NotImplemented

    def run_backend(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], run: Any) -> Any:
        """The result of ``run()``, the kernel of an operator that a program has defined, below autograd; for one that `keeps_results`."""
        return run()

    @property
    def records(self) -> bool:
        """Whether what runs now becomes part of a recorded program."""
        return False

    def run_branches(self, pred: Any, branches: tuple[Any, Any], operands: Any) -> Any:
        """The result of a choice between two functions of `operands`, see `cond`; or NotImplemented."""
        return NotImplemented

    def run_checkpoint(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], settings: dict[str, Any]) -> Any:
        """The result of a function of which backward computes what it needs again, see `utils.checkpoint`; or NotImplemented."""
        return NotImplemented

    def run_repeated(self, op: Any, functions: tuple[Any, ...], example: Callable[[], Any], operands: tuple[Any, ...]) -> Any:
        """What ``op(*functions, *operands, ())`` gives, a list of tensors, and the structure of what the last function gives.

        `op` repeats the functions, whose arguments are like ``example()``. Or NotImplemented.
        """
        return NotImplemented

    def run_functional(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], views: bool) -> Any:
        """What `f` gives, without operations that write, see `func.functionalize`; or NotImplemented."""
        return NotImplemented

    def run_event(self, name: str, subject: Any, run: Any) -> Any:
        """What ``run()`` gives, for one that `notes_events`; see `_state.event`."""
        return run()

    def settle(self) -> None:
        """Do what was put off; see `_state.settle`."""

    def settle_draws(self) -> None:
        """Do what was put off and draws random numbers; see `_state.settle_draws`."""
        self.settle()

    def settle_write(self, target: Any) -> None:
        """Do what was put off and reads the memory of `target`; see `_state.settle_write`."""
        self.settle()

    def settle_shared(self, array: Any) -> None:
        """Do what was put off and reads the memory of `array`, which the program may write to from now on; see `_state.settle_shared`."""
        self.settle()

    def note_python(self) -> None:
        """Python does more than call operations; see `_state.note_python`."""

    def observe(self, op: Any, args: tuple[Any, ...], out: Any, inplace: bool, run: Any) -> Any:
        """The result of ``run(op, args, out, inplace)``, for one that `observes`."""
        return run(op, args, out, inplace)

    def observe_operator(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of ``operator.enter(args, kwargs)``, for one that `observes`."""
        return operator.enter(args, kwargs)

    def run_each(self, op: Any, args: tuple[Any, ...]) -> Any:
        """The result of a composition that reads values, which a batch does not have; or NotImplemented."""
        return NotImplemented


def push(interpreter: Interpreter, outermost: bool = False) -> None:
    """Put `interpreter` in force in this thread, inside those that are; around them if `outermost`, or if it `observes`."""
    calls = _local.calls
    before = calls.interpreters
    if interpreter.observes or outermost:
        at = 0 if interpreter.observes or not before or not before[0].observes else 1
        calls.interpreters = (*before[:at], interpreter, *before[at:])
    else:
        calls.interpreters = (*before, interpreter)
    _state.begin_interpreting(interpreter.declines, interpreter.following_here)


def pop(interpreter: Interpreter) -> None:
    """End what `push` began."""
    calls = _local.calls
    stack = calls.interpreters
    calls.interpreters = stack[:-1] if stack and stack[-1] is interpreter else tuple([x for x in stack if x is not interpreter])
    _state.end_interpreting(interpreter.declines, interpreter.following_here)


def ask(question: str, *args: Any) -> Any:
    """What the innermost interpreter that answers the `question`, the name of one of its methods, gives; or NotImplemented.

    Each is asked with those around it in force.
    """
    calls = _local.calls
    stack = calls.interpreters
    for depth in range(len(stack) - 1, -1, -1):
        calls.interpreters = stack[:depth]
        try:
            result = getattr(stack[depth], question)(*args)
        finally:
            calls.interpreters = stack
        if result is not NotImplemented:
            return result
    return NotImplemented


class below:  # a context manager
    """Only interpreters outside `interpreter` are in force."""

    def __init__(self, interpreter: Interpreter) -> None:
        self.interpreter = interpreter

    def __enter__(self) -> None:
        self.before = stack = _local.calls.interpreters
        if self.interpreter in stack:
            _local.calls.interpreters = stack[: stack.index(self.interpreter)]

    def __exit__(self, *_: object) -> None:
        _local.calls.interpreters = self.before


def has_tangent(x: Any) -> bool:
    """Whether the tensor `x` has a tangent of a level of forward mode in force in this thread."""
    return any(level.kind == "jvp" and level.tangent_of(x) is not None for level in _local.calls.interpreters)


def unrecorded(x: Any) -> Any:
    """The tensor `x` without its history, but with the tangents it carries, which `detach` leaves behind as well."""
    before, _local.keeps_tangents = _local.keeps_tangents, True
    try:
        return x.detach()
    finally:
        _local.keeps_tangents = before


def innermost_batch() -> Any:
    """The innermost `vmap` in force in this thread, or None."""
    return next((x for x in reversed(_local.calls.interpreters) if x.kind == "vmap"), None)
