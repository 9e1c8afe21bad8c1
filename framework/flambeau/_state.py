"""Flags that every op consults, and the thread-local state behind them.

Generated entry points read plain globals, which only spare a look at the thread and the operands: `IN_FORCE` (some thread has
interpreters or modes in force: look at this thread), `OVERRIDING` (there has been an operand whose class overrides functions: look at the
classes of these operands) and `GRAD` (no thread has switched recording off). Beside the first stands `PASSED`: operations in which nobody
in force has a say, in whichever thread, and `FOLLOWED`, None unless some thread has an interpreter that is `following` calls: then what is
asked before all else, as ``FOLLOWED(op, *args)``. `INTERPRETED` is one of the first two. Functions that make tensors also read `PLACED`
(some thread has a default device) and `MARKING` (some thread is in inference mode); those that save or overwrite tensors read `MARKED`
(some thread has been). `share` gives a namespace its copies.
"""

from __future__ import annotations

import threading
import weakref
from itertools import count
from typing import Any

next_seq = count(1).__next__

INTERPRETED = False
IN_FORCE = False
OVERRIDING = False
FOLLOWED: Any = None
GRAD = True
PLACED = False
MARKING = False
MARKED = False
# One object, another one whenever a thread has changed what decides, beside its arguments, what an operation gives: whether gradients are
# recorded, inference mode, hooks of saved tensors, the default dtype, `WAYS`. It is kept while `INTERPRETED`.
AMBIENT: list[object] = [object()]
WAYS: list[Any] = [None]  # which ways of computing attention the process allows, something that can be compared
NO_OPS: Any = frozenset()
FOLLOWS: Any = type("Follows", (frozenset,), {})()  # what interpreters decline that are `following` calls: nothing
_following: list[Any] = []                            # the `following_here` of all of these
NAMESAKES: weakref.WeakSet[Any] = weakref.WeakSet()  # modules that are the package under another name, and have its functions too
PASSED: Any = NO_OPS
# What tensors, parameters and typed storages are pickled as, in the place of what they say themselves; None where they do.
reducer: Any = None
_in_force: dict[int, list[Any]] = {}  # sets of what other interpreters and modes, in all threads, decline, by id, and how many do
_grad_off = 0
_lock = threading.RLock()
# Who has copies of which flag. Regions without recording, and compiled calls, write theirs twice, so few have those of the latter,
# `IN_FORCE`, `PASSED` and `FOLLOWED`, which share a list: others read them here.
_FLAGS = ("IN_FORCE", "GRAD", "PLACED", "MARKING", "MARKED", "OVERRIDING")
_readers: dict[str, list[dict[str, Any]]] = {name: [globals()] for name in _FLAGS}
_readers_of_in_force, _readers_of_grad = (_readers[name] for name in _FLAGS[:2])
_readers["PASSED"] = _readers["FOLLOWED"] = _readers_of_in_force


class Calls:
    """How calls of one thread are answered; see `ops/_dispatch.py`. Both stacks have the outermost first."""

    __slots__ = ("classes_off", "compiling", "composing", "interpreters", "modes", "recording", "saved_hooks", "thread")

    def __init__(self) -> None:
        self.interpreters: tuple[Any, ...] = ()
        self.modes: tuple[Any, ...] = ()              # of functions: `overrides.TorchFunctionMode`
        self.classes_off = 0                          # regions in which operands' classes are not asked
        self.composing = 0                            # compositions around a call whose operands' class answers ops
        self.compiling = False                        # whether this thread is in a compiled function
        self.recording = Recording()
        self.thread = threading.get_ident()
        self.saved_hooks: list[Any] = []              # of tensors that nodes save, the outermost first


class Recording:
    """Whether this thread records operations, in one object for the same reason as in `Backward`."""

    __slots__ = ("asked", "grad", "held", "inference")

    def __init__(self) -> None:
        self.asked = True                             # what was asked for
        self.grad = True                              # as `local.grad`
        self.inference = False                        # whether the thread is in inference mode
        self.held = False                             # whether nothing is recorded whatever is asked for


class Backward:
    """What a thread carries back now, in one object: what is the thread's own takes ten times as long to read as one's fields."""

    __slots__ = ("at_end", "nested", "roots", "wanted")

    def __init__(self) -> None:
        self.nested = 0                               # backwards that run inside each other
        self.roots: Any = None                        # where the innermost began, pairs of node and gradient
        self.wanted: Any = None                       # nodes that lead to what autograd.grad() asks for, while it runs
        self.at_end: Any = ()                         # what is called when the outermost ends


class _Local(threading.local):
    grad = True                                       # whether operations are recorded: asked for, and not in inference mode
    checks_sparse = False  # whether the parts of new sparse tensors are checked
    transforms = 0                                    # of `flambeau.func` that record a run of their own now
    forward_off = False
    exporting = False                                 # whether it records a module for `flambeau.export`
    keeps_tangents = False                            # whether `detach` forgets history only; see `autograd.forward_ad.unrecorded`

    def __init__(self) -> None:
        self.calls = Calls()
        self.backward = Backward()
        self.recording = self.calls.recording
        self.devices: list[Any] = []
        self.stand_in: Any = None                     # where tensors are made whatever device was asked for
        self.kept_copies: Any = None                  # told of what a history copies before it is overwritten, and of the copy


local = _Local()


def share(namespace: dict[str, Any], *names: str) -> None:
    """Keep the flags `names`, which are those that `namespace` reads, equal there to what they are here."""
    for name in names:
        if not any(one is namespace for one in _readers[name]):
            _readers[name].append(namespace)
        namespace[name] = globals()[name]


def _publish(name: str, value: Any) -> None:
    for namespace in _readers[name]:
        namespace[name] = value


def begin_interpreting(declines: Any = NO_OPS, following_here: Any = None) -> None:
    """Note that a thread has one interpreter or mode more in force, which has no say in the operations of the set `declines`.

    `following_here` is that of the interpreter, see `Interpreter`.
    """
    _lock.acquire()                                   # `with` would take as long again
    try:
        if declines is FOLLOWS:
            _following.append(following_here)
        else:
            _in_force.setdefault(id(declines), [declines, 0])[1] += 1
        _note_in_force()
    finally:
        _lock.release()


def end_interpreting(declines: Any = NO_OPS, following_here: Any = None) -> None:
    """Note that what `begin_interpreting` was told of is in force no longer."""
    _lock.acquire()
    try:
        if declines is FOLLOWS:
            _following.remove(following_here)
        else:
            entry = _in_force[id(declines)]
            entry[1] -= 1
            if not entry[1]:
                del _in_force[id(declines)]
        _note_in_force()
    finally:
        _lock.release()


def _note_in_force() -> None:
    global INTERPRETED
    in_force, passed, follow = True, NO_OPS, None
    if _following:
        follow = _following[0] if len(_following) == 1 and _following[0] is not None else followed
    elif _in_force:
        if len(_in_force) == 1:
            passed = next(iter(_in_force.values()))[0]
    else:
        in_force = False
    for namespace in _readers_of_in_force:
        namespace["IN_FORCE"], namespace["FOLLOWED"] = in_force, follow
    if passed is not PASSED:
        for namespace in _readers_of_in_force:
            namespace["PASSED"] = passed
    INTERPRETED = in_force or OVERRIDING


def followed(op: Any, *args: Any) -> Any:
    """What the innermost interpreter of this thread has for a call that it is `following`; else None."""
    calls = local.calls
    stack = calls.interpreters
    if not stack or calls.modes or (follow := stack[-1].following) is None:
        return None
    return follow(op, *args)


def note_overriding() -> None:
    """Note that there is an operand whose class overrides functions: from now on calls look at the classes of theirs."""
    global INTERPRETED
    if not OVERRIDING:
        with _lock:
            _publish("OVERRIDING", True)
            INTERPRETED = True


def interpreted() -> bool:
    """Whether this thread has interpreters or modes in force."""
    if not IN_FORCE:
        return False
    calls = local.calls
    return bool(calls.interpreters or calls.modes)


def transformed() -> bool:
    """Whether this thread has interpreters or modes in force that may answer calls; the profiler only looks on."""
    if not IN_FORCE:
        return False
    calls = local.calls
    stack = calls.interpreters
    return bool(calls.modes) or len(stack) > (bool(stack) and stack[0].observes)


def are_seen() -> bool:
    """Whether somebody in force is to see operations one by one; those who change nothing need not."""
    if not IN_FORCE:
        return False
    calls = local.calls
    return bool(calls.modes) or not all(interpreter.is_transparent for interpreter in _acting(calls.interpreters))


def _acting(stack: tuple[Any, ...]) -> tuple[Any, ...]:
    """Interpreters but for one that only looks on."""
    return stack[bool(stack) and stack[0].observes :]


def left_alone() -> bool:
    """Whether kernels may be run on arrays here, for nobody answers calls. Interpreters that change nothing do what they have put off."""
    if not IN_FORCE:
        return True
    if are_seen():
        return False
    for interpreter in _acting(local.calls.interpreters):
        interpreter.settle()
    return True


def settle() -> None:
    """Let this thread's interpreters do what they have put off: what no operation shows is about to be read, written or drawn."""
    if IN_FORCE:
        for interpreter in local.calls.interpreters:
            interpreter.settle()


def settle_draws() -> None:
    """Let this thread's interpreters do what they have put off and draws random numbers, or may: numbers are about to be drawn."""
    if IN_FORCE:
        for interpreter in local.calls.interpreters:
            interpreter.settle_draws()


def settle_write(target: Any) -> None:
    """Let this thread's interpreters do what they have put off and reads the memory of the tensor `target`, which is about to be filled."""
    if IN_FORCE:
        for interpreter in local.calls.interpreters:
            interpreter.settle_write(target)


def settle_shared(array: Any) -> None:
    """Tell this thread's interpreters that the program has an array of numpy over the memory of tensors, which it may write to."""
    if IN_FORCE:
        for interpreter in local.calls.interpreters:
            interpreter.settle_shared(array)


def note_python() -> None:
    """Tell this thread's interpreters of what no operation shows: Python reads a value that is there, runs a hook, writes a file."""
    for interpreter in local.calls.interpreters:
        interpreter.note_python()


def event(name: str, subject: Any, run: Any) -> Any:
    """What ``run()`` gives: what is done to `subject` by no operation that interpreters see. One that `notes_events` is told."""
    if IN_FORCE:
        for interpreter in reversed(local.calls.interpreters):
            if interpreter.notes_events:
                return interpreter.run_event(name, subject, run)
    return run()


def observer() -> Any:
    """The interpreter of this thread that looks on (`Interpreter.observes`), or None."""
    stack = local.calls.interpreters if IN_FORCE else ()
    return stack[0] if stack and stack[0].observes else None


def grad_enabled() -> bool:
    """Whether operations of this thread are recorded."""
    return GRAD or local.grad


def note_ambient() -> None:
    """Note that something has changed that `AMBIENT` stands for."""
    if INTERPRETED:
        AMBIENT[0] = object()


def set_ways(ways: Any) -> None:
    """Set what `WAYS` has."""
    WAYS[0] = ways
    note_ambient()


def set_grad(mode: bool) -> bool:
    """Switch recording for this thread; returns the previous setting. Inference mode keeps it off."""
    own = local.recording
    before = own.asked
    if before is not mode:
        own.asked = mode
        if not (own.inference or own.held):
            _settle_grad(own, mode)
        if INTERPRETED:
            AMBIENT[0] = object()
    return before


def hold_history(mode: bool) -> bool:
    """Record nothing in this thread, whatever the program asks for and is told that it has; returns whether it was so."""
    own = local.recording
    before, own.held = own.held, mode
    _settle_grad(own, own.asked and not (own.inference or mode))
    if INTERPRETED:
        AMBIENT[0] = object()
    return before


def _settle_grad(own: Recording, recording: bool) -> None:
    global _grad_off
    if own.grad is recording:
        return
    own.grad = local.grad = recording
    _lock.acquire()
    try:
        _grad_off += -1 if recording else 1
        everywhere = _grad_off == 0
        if everywhere is not GRAD:
            for namespace in _readers_of_grad:
                namespace["GRAD"] = everywhere
    finally:
        _lock.release()


# -- inference mode ------------------------------------------------------------------------------------------------------


_inferring = 0                                        # threads in inference mode
on_marking: Any = None  # called with whether some thread is in the mode, when that changes


def set_inference(mode: bool) -> bool:
    """Enter inference mode in this thread, or leave it; returns whether it was in it."""
    global _inferring
    own = local.recording
    before = own.inference
    if before is not mode:
        own.inference = mode
        _settle_grad(own, own.asked and not (mode or own.held))
        note_ambient()
        with _lock:
            _inferring += 1 if mode else -1
            if (_inferring > 0) is not MARKING:
                _publish("MARKING", _inferring > 0)
                if not MARKED:
                    _publish("MARKED", True)
                on_marking(_inferring > 0)
    return before


# -- default device ------------------------------------------------------------------------------------------------------


_pushed = 0                                           # default devices and stand-ins of threads


def push_default_device(device: Any) -> None:
    local.devices.append(device)
    _note_devices(1)


def pop_default_device() -> None:
    local.devices.pop()
    _note_devices(-1)


def set_stand_in(device: Any) -> Any:
    """Make all tensors of this thread on `device`, whatever is asked for, until it is None; returns what it was."""
    before, local.stand_in = local.stand_in, device
    _note_devices((device is not None) - (before is not None))
    return before


def _note_devices(change: int) -> None:
    global _pushed
    with _lock:
        _pushed += change
        _publish("PLACED", _pushed > 0 or _global_device is not None)


def default_device() -> Any:
    """The device new tensors go to when none is given, or None for the CPU."""
    return local.devices[-1] if local.devices else _global_device


_global_device: Any = None


def set_default_device(device: Any) -> None:
    global _global_device
    _global_device = device
    _note_devices(0)


# -- uninitialised memory -----------------------------------------------------------------------------------------------

DETERMINISTIC = False  # whether deterministic algorithms were asked for
FILL_EMPTY = False  # whether new memory is filled, so that a program that reads it does the same in every run
_fill_reasons = {"deterministic": False, "wanted": True}


def fill_empty(**reasons: bool) -> None:
    """Note whether algorithms are `deterministic` and whether filling is `wanted` then; both together switch it on."""
    global FILL_EMPTY, DETERMINISTIC
    _fill_reasons.update(reasons)
    DETERMINISTIC = _fill_reasons["deterministic"]
    FILL_EMPTY = all(_fill_reasons.values())


def fill_wanted() -> bool:
    """Whether memory is filled once algorithms are deterministic."""
    return _fill_reasons["wanted"]
