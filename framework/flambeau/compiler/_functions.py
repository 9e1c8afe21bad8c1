"""Compiled functions: what a call does, and what is kept between calls."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import weakref
from collections.abc import Callable, Iterator
from time import perf_counter
from types import MethodType
from typing import Any

from flambeau_kernels.engine.calls import follow

from .. import _state
from .._arrays import ndarray
from .._interpreters import pop, push
from ..tensor import Tensor
from . import _explain, _programs, set_stance
from ._asking import may_ask, refuse
from ._backends import Backend
from ._deferred import Deferred
from ._programs import Program
from ._recorder import MOST_BRANCHES, Recorder, ambient_now
from ._steps import Step, looks_of

_local = _state.local
_MOST_SIGNATURES = 256                                # of calls, that a function remembers
_MOST_PASSED = 1 << 10                                # calls that are not recorded after some that could not be replayed
PLAIN, RECORDED, SHOWN = range(3)                     # what is known of calls of a signature: `Function.known`
TRIALS = 3                                            # calls that are timed with and without fused kernels, where a backend tunes


class Trial:
    """Seconds of calls with fused kernels and as they are without `compile`, which give the same bits: the faster one stays."""

    __slots__ = ("fused", "plain")

    def __init__(self) -> None:
        self.fused: list[float] = []
        self.plain: list[float] = []

    def is_plain_next(self) -> bool:
        """Whether the next call is to be timed as it is."""
        return len(self.plain) < min(TRIALS, len(self.fused))

    def is_lost(self) -> bool:
        """Whether fused kernels have been found to be no faster."""
        return len(self.plain) == TRIALS and min(self.plain) <= min(self.fused)


class Wait:
    """How many calls run as they are after some that went by something else each time: twice as many after each."""

    __slots__ = ("failures", "left")

    def __init__(self) -> None:
        self.failures = self.left = 0

    def note_failure(self) -> None:
        self.failures += 1
        if self.failures > 1:
            self.left = min(1 << self.failures, _MOST_PASSED)


class Usual:
    """A call whose kernels are there, and worth what it takes to record it; so are calls that look alike and run the same programs.

    Args:
        asked: whether gradients were recorded, as they are in calls like it.
        ran, passed: of the recorder of the call.
    """

    __slots__ = ("function", "asked", "is_told", "ran", "passed")

    def __init__(self, function: Function, recorder: Recorder) -> None:
        self.function, self.asked = function, _local.recording.asked
        self.is_told, self.ran, self.passed = recorder.is_told, recorder.ran, recorder.passed

    @staticmethod
    def of(function: Any, args: tuple[Any, ...], recorder: Recorder) -> Any:
        """The guard of calls and what runs them, see `Function.usual`; None without a guard."""
        alike = follow.alike()
        pattern: list[Any] = []
        for a in args:
            kind = a.__class__
            if kind is Tensor and a._array.__class__ is ndarray:
                pattern += (looks_of(a), 0, None)
            elif kind in (bool, int, str, type(None)):
                pattern += (None, a, None)
            else:
                return None
        if alike is None:
            return None
        return MethodType(alike, tuple(pattern)), Usual(function, recorder).run

    def run(self, args: tuple[Any, ...]) -> Any:
        """The result of the function, recorded."""
        function = self.function
        recorder = function.recorder()
        recorder.begin(self.is_told)
        # As `_recorded`, of which this is the frequent case: no others are in force.
        calls, here, alone = _local.calls, recorder.following_here, recorder.alone
        calls.interpreters = alone
        _state.begin_interpreting(_state.FOLLOWS, here)
        try:
            result = function.fn(*args)
        finally:
            if calls.interpreters is alone:
                calls.interpreters = ()
                _state.end_interpreting(_state.FOLLOWS, here)
            else:
                pop(recorder)
            recorder.flush("the end of the function", ends=True)
        if recorder.root is function.root:
            function.idle.append(recorder)
        if recorder.ran != self.ran or recorder.passed != self.passed:
            function.usual[self.asked] = None         # so the next call is judged
        return result


class Function:
    """A function or module that `compile` was given, and its recordings.

    Args:
        fn: what is called.
        backend: a `Backend`; where it has no function, chains of elementwise operations are fused here.
        fullgraph: raise Unsupported when Python asks for a value.
    """

    def __init__(self, fn: Any, backend: Backend, fullgraph: bool = False) -> None:
        self.fn, self.backend, self.fullgraph = fn, backend, fullgraph
        self.number = next(_numbers)
        self.reset()
        _functions.add(self)

    def reset(self) -> None:
        """Forget all recordings."""
        self.root = Step(None, [], (), None)
        self.bodies: dict[Any, Step] = {}             # of graphs within graphs, by the mode in which they are recorded
        self.idle: list[Recorder] = []                # for calls to come: one after another may have the same
        # By signature: RECORDED calls, those that were SHOWN to who reads the log, and PLAIN ones, which nothing is gained for.
        self.known: dict[Any, int] = {}
        self.shown = Step(None, [], (), None)         # the recordings that were made for people to read
        self.says_plain = True                        # unless it has been said that calls are PLAIN
        self.trials: dict[Any, Trial] = {}            # by signature
        self.replays: dict[Any, Any] = {}             # by signature: a `Replay`, or None for calls that cannot be replayed
        self.waits: dict[Any, Wait] = {}              # by signature
        # Of the last call that was replayed or is fused, without gradients being recorded and with: a guard, and what runs such calls.
        self.usual: list[Any] = [None, None]
        self.compiled = 0
        self.compiled_at: dict[int, int] = {}         # how often, by the number of the segment in its call
        self.many: dict[Any, list[Any]] = {}          # what was compiled, by that number and the form of paths
        self.varied: dict[int, Any] = {}              # by that number, sizes that have changed
        self.paths: dict[int, int] = {}               # and how many paths the tree has there
        self.is_met = False                           # whether a call has been given to a backend of the program's own
        self.breaks: list[str] = []                   # why the graphs of the last call end
        self.ran: list[Any] = []                      # and what was made of each of these

    def explain(self) -> Any:
        """What was recorded, why each recording ends, and what it is computed by: an `Explanation`."""
        from ._explain import Explanation

        return Explanation(self)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of ``fn(*args, **kwargs)``."""
        calls = _local.calls
        stance, forced = set_stance.now
        if calls.interpreters or calls.modes or stance == "force_eager" or (_settings or _config())["disable"]:
            return self.fn(*args, **kwargs)
        before, calls.compiling = calls.compiling, True
        try:
            usual = self.usual[calls.recording.asked]
            if usual is not None and not kwargs and forced is None and usual[0](args):
                return usual[1](args)
            backend = forced or self.backend
            if backend.maker is not None:
                return self._through(backend, stance, args, kwargs)
            if backend.replays:
                return self._replayed(backend, args, kwargs)
            signature = _signature(args, kwargs)
            known = self.known.get(signature)
            if known == PLAIN:
                return self.fn(*args, **kwargs)
            if known is None and (self.fullgraph or _whole is not None or _explain.is_watched()):
                return self._shown(signature, args, kwargs)
            return self._fused(signature, args, kwargs, backend.tunes)
        finally:
            calls.compiling = before

    def _on_ask(self) -> Callable[[str], None] | None:
        """What recorders of calls are told to do where Python asks for a value."""
        return _refuse_branches if (self.fullgraph if _whole is None else _whole) else None

    def _shown(self, signature: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result, with all that is no write recorded: what is one graph must be one, and who reads the log sees it, however small."""
        program = _program(True, True, _Names(self.fn, args, kwargs))
        recorder = Recorder(self.shown, program, True, self._on_ask(), _title(self.fn))
        result = _recorded(recorder, self.fn, args, kwargs)
        self.fullgraph = False                        # of the first call; the next ones fuse
        self._know(signature, SHOWN)
        if self.says_plain and not [program for program in recorder.ran if program.chains]:
            self._say_plain()
        return result

    def _fused(self, signature: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tunes: bool) -> Any:
        """The result with chains of elementwise operations fused. Calls without one are plain later; if it `tunes`, slower ones too."""
        known = self.known.get(signature)
        trial = self.trials.get(signature) if tunes else None
        if trial is not None and trial.is_plain_next():
            began = perf_counter()
            result = self.fn(*args, **kwargs)
            trial.plain.append(perf_counter() - began)
            if trial.is_lost():
                self._leave(signature)
            return result
        recorder = self.recorder()
        recorder.begin(known == SHOWN)
        began = perf_counter()
        result = _recorded(recorder, self.fn, args, kwargs)
        seconds = perf_counter() - began
        if recorder.root is self.root:
            self.idle.append(recorder)
        if known is None:
            self._know(signature, RECORDED)
        spared = loose = 0
        fused = []
        for program in recorder.ran:
            if program.calls == 1 and program.may_fuse():
                return result                         # of a shape that is met once, what fuses need not be known
            spared += program.spared
            loose += program.loose
            if program.chains:
                fused.append(program)
        if not fused or spared < recorder.passed * (_programs.WORTH // 4) + loose * (_programs.WORTH // 8):
            # An operation that is looked at and not recorded costs some 20 us, one that is recorded and joins nothing some 3.
            self._leave(signature)
        elif not tunes:
            if not kwargs and all(program.is_final() for program in fused):
                self.usual[_local.recording.asked] = Usual.of(self, args, recorder)
        elif (trial is None or len(trial.fused) < TRIALS) and all(program.is_final() for program in fused):
            # Of what backward will take, a call says nothing.
            if trial is None and not any(chain.histories for program in fused for chain in program.chains):
                if len(self.trials) >= _MOST_SIGNATURES:
                    self.trials.clear()
                trial = self.trials[signature] = Trial()
            if trial is not None:
                trial.fused.append(seconds)
        return result

    def recorder(self) -> Recorder:
        """One for a call, which has to `begin`."""
        try:
            return self.idle.pop()
        except IndexError:
            return Recorder(self.root, _FUSED, False, title=_title(self.fn))

    def _leave(self, signature: Any) -> None:
        """Run calls like this one as they are."""
        if self.says_plain and self.known.get(signature) == SHOWN:
            self._say_plain()
        self._know(signature, PLAIN)
        self.usual[_local.recording.asked] = None

    def _know(self, signature: Any, what: int) -> None:
        if len(self.known) >= _MOST_SIGNATURES:
            self.known.clear()
        self.known[signature] = what

    def _say_plain(self) -> None:
        self.says_plain = False
        _explain.tell(
            "%s: calls like this one run as they do without compile, for no kernel for several operations is worth it: chains of "
            "operations are fused from %d elements on, where that spares writing %d bytes or more",
            _title(self.fn), _programs.FUSED_FROM, _programs.WORTH,
        )  # fmt: skip

    def _replayed(self, backend: Backend, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result by the program of earlier calls that were alike, or of this one, recorded as a whole."""
        from . import _replay, _surroundings

        leaves, spec = _replay.parts_of(args, kwargs)
        signature = _replay.signature_of(self.fn, leaves, spec)
        if signature is None:
            plainly = (_local.recording.asked, *map(_looks, args))
            return self._shown(plainly, args, kwargs) if self.fullgraph else self.fn(*args, **kwargs)
        replay = self.replays.get(signature)
        verifies = False
        holds = replay is not None and replay.still_holds()
        is_stable = holds and replay is not None and replay.seen >= _replay.STABLE_AFTER
        if replay is not None and is_stable and replay.ready():
            verifies = backend.verify_every > 0 and replay.replayed % backend.verify_every == backend.verify_every - 1
            if not verifies:
                if spec is None and not backend.verify_every:
                    self.usual[_local.recording.asked] = replay.guarded(self.fn, args)
                return replay(leaves)
        if replay is None and signature in self.replays:
            return self.fn(*args, **kwargs)
        wait = self.waits.get(signature)
        if wait is not None and wait.left and not holds:
            wait.left -= 1
            return self.fn(*args, **kwargs)
        replayed = _replay.tried(replay, leaves) if verifies and replay is not None else None
        program = _program(True, True, _Names(self.fn, args, kwargs))
        recorder = Recorder(self.root, program, True, self._on_ask(), _title(self.fn), tells=True)
        ambient = ambient_now()
        seen = recorder.witness = None if is_stable else _surroundings.Witness()
        result = _recorded(recorder, self.fn, args, kwargs)
        self.fullgraph = False                        # of the first call
        if replayed is not None:
            _replay.check(replayed, [result, replay.state()], _title(self.fn))
            return result
        found = _replay.replay_of(recorder, leaves, result)
        if ambient_now() != ambient or spec is not None and not _replay.are_same(leaves, spec, args, kwargs):
            found = None                              # it sets a mode, or writes to lists or dicts that it is given
        if found is not None and replay is not None and found.is_as(replay) and holds and replay.surroundings.is_after(seen):
            replay.seen += 1
            if replay.seen == _replay.STABLE_AFTER:
                self.waits.pop(signature, None)
        elif found is None or seen is None:
            self._keep(signature, found)
        else:
            found.surroundings = _surroundings.Surroundings(self.fn, seen)
            found.freezes = backend.freezes and not _local.recording.asked
            self._keep(signature, found)
            if replay is not None or found.surroundings.refused is not None:
                self._pass(signature, found.surroundings.refused)
        return result

    def _keep(self, signature: Any, replay: Any) -> None:
        if len(self.replays) >= _MOST_SIGNATURES:
            self.replays.clear()
            self.waits.clear()
        self.replays[signature] = replay

    def _pass(self, signature: Any, why: str | None) -> None:
        """Record no more calls for some time: those before went by something else each time, or could not be replayed for the reason."""
        wait = self.waits.setdefault(signature, Wait())
        wait.note_failure()
        if wait.left:
            del self.replays[signature]               # and what it holds
        if why is not None:
            _explain.tell("%s: calls like this one are not replayed: %s", _title(self.fn), why)

    def _through(self, backend: Backend, stance: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result computed by what `backend` makes of the recorded graphs."""
        from . import _graphs, _sizes
        from ._whole import WholeRecorder

        if max(self.paths.values(), default=0) > MOST_BRANCHES - 4:  # soon a step would have too many behind it for more to be recorded
            self.root, self.bodies, self.paths = Step(None, [], (), None), {}, {}
        if stance in ("eager_then_compile", "aot_eager_then_compile") and not self.is_met:
            self.is_met = True
            return self.fn(*args, **kwargs)
        self.is_met = True
        names = _Names(self.fn, args, kwargs)
        left: list[tuple[Step, tuple[int, ...]]] = []  # what the backend is to be given when the stance is another one

        def program(step: Step, wanted: tuple[int, ...], inputs: list[Tensor]) -> Any:
            from .._dynamo import config, exc

            place = len(recorder.breaks)
            self.paths[place] = self.paths.get(place, 0) + 1
            form = _sizes.form_of(step, wanted, inputs, ambient_now())
            known = self.many.setdefault((place, form.key), [])
            for one in known:
                found = one.of(form)
                if found is not None:
                    return found
            before = self.compiled_at.get(place, 0)
            if stance == "eager_on_recompile":
                left.append((step, wanted))
                return _graphs.as_it_is(step, wanted, inputs, form)
            limit = self.backend.recompile_limit
            if before >= (config.recompile_limit if limit is None else limit) or self.compiled >= config.accumulated_recompile_limit:
                self._refuse_more()
                return _graphs.as_it_is(step, wanted, inputs, form)
            if stance == "fail_on_recompile":
                raise RuntimeError(f"Detected recompile when torch.compile stance is 'fail_on_recompile': {_title(self.fn)}")
            if before and config.error_on_recompile:
                raise exc.RecompileError(f"Recompiling function {_title(self.fn)}, and torch._dynamo.config.error_on_recompile is set")
            self.compiled += 1
            self.compiled_at[place] = before + 1
            try:
                varied = self.varied.setdefault(place, _sizes.Varied()).note(inputs, names)
                symbols = _sizes.symbols_of(form, [one.form for one in known], inputs, varied, self.backend.dynamic)
                with _told_of(self, before):
                    known.append(_graphs.compiled(step, wanted, inputs, names, backend, form, symbols))
                return known[-1].of(form)
            except exc.BackendCompilerFailed as error:
                if not config.suppress_errors:
                    raise
                _explain.warn("%s runs as it is: %s", _title(self.fn), error)
                return _graphs.as_it_is(step, wanted, inputs, form)

        recorder = WholeRecorder(self.root, program, self._on_ask(), _title(self.fn), self.bodies)
        self.breaks, self.ran = recorder.breaks, recorder.ran
        before = self.compiled
        try:
            result = _recorded(recorder, self.fn, args, kwargs)
        finally:
            for step, wanted in left:
                step.programs.pop(wanted, None)
                step.node[2] = None
        if self.compiled > before:
            self._count(recorder.breaks[:-1])
        return result

    def _refuse_more(self) -> None:
        """Raise where settings say that it is an error to go on without the backend because graphs are too many."""
        from .._dynamo import config, exc

        why = "torch._dynamo.config.fail_on_recompile_limit_hit" if config.fail_on_recompile_limit_hit else "fullgraph=True"
        if config.fail_on_recompile_limit_hit or self.fullgraph:
            raise exc.FailOnRecompileLimitHit(
                f"{_title(self.fn)} was compiled {self.compiled} times, torch._dynamo.config.recompile_limit, and {why} says that it is an "
                "error to run it without the backend; raise the limit, or compile with dynamic=True where it is called with many sizes"
            )

    def _count(self, breaks: list[str]) -> None:
        """Note in `_dynamo.utils.counters` a call that graphs were compiled for."""
        from .._dynamo.utils import counters

        counters["frames"]["total"] += 1
        counters["frames"]["ok"] += 1
        counters["graph_break"].update(breaks)


@contextlib.contextmanager
def _told_of(function: Function, number: int) -> Iterator[None]:
    """Tell callbacks that a graph is compiled for `function`, which has `number` of them in this place, and note how long that takes."""
    from .._dynamo import callback, utils

    name = f"{function.number}/{number}"
    with callback.callback_handler.install_callbacks(callback.CallbackTrigger.DYNAMO, name), utils.dynamo_timed("_compile.compile_inner"):
        yield


_numbers = itertools.count()                          # of functions that graphs are compiled for
_functions: weakref.WeakSet[Function] = weakref.WeakSet()


def reset_all() -> None:
    """Forget the recordings of all compiled functions."""
    for function in list(_functions):
        function.reset()


def break_here(why: str) -> None:
    """Compute what is pending in this thread.

    Raises: Unsupported where the function has to be one graph.
    """
    for interpreter in _local.calls.interpreters:
        if isinstance(interpreter, Recorder):
            if interpreter.on_ask is not None:
                refuse(why)
            interpreter.flush(why)


_whole: bool | None = None                            # whether functions are to be one graph, in the place of their `fullgraph`


def refuse_breaks(whole: bool | None, on_ask: Any = None) -> tuple[bool | None, Any]:
    """Let functions be one graph or not; None as they say. What is recorded now takes it too. Returns: arguments that put it back."""
    global _whole
    before, _whole = _whole, whole
    found = None
    for interpreter in _local.calls.interpreters:
        if isinstance(interpreter, Recorder):
            found, interpreter.on_ask = interpreter.on_ask, on_ask if whole is None else _refuse_branches if whole else None
    return before, found


class not_recorded:  # a context manager
    """Nothing is recorded by the compiled function around; what is pending is computed first, because of `why`."""

    def __init__(self, why: str) -> None:
        self.why = why

    def __enter__(self) -> None:
        break_here(self.why)
        calls = _local.calls
        self.before, self.compiling = calls.interpreters, calls.compiling
        calls.interpreters = tuple([x for x in self.before if not isinstance(x, Recorder)])
        calls.compiling = False

    def __exit__(self, *_: object) -> None:
        calls = _local.calls
        calls.interpreters, calls.compiling = self.before, self.compiling


_settings: dict[str, Any] = {}


def _config() -> dict[str, Any]:
    """The names of the module `_dynamo.config`, which imports this one."""
    global _settings
    if not _settings:
        from .._dynamo import config

        _settings = config.__dict__
    return _settings


def _program(fuse: bool, records_all: bool = False, names: Any = None) -> Callable[[Step, tuple[int, ...], list[Tensor]], Program]:
    """What makes programs; with `names` of inputs their graphs are shown to who reads the log."""

    def program(step: Step, wanted: tuple[int, ...], inputs: list[Tensor]) -> Program:
        if names is not None and _explain.shows_graphs():
            from . import _graphs

            graph = _graphs.graph_of(step, wanted, inputs, names)[0]
            _explain.tell_graph(names.title, graph)
            _explain.tell_operators(names.title, graph)
        return Program(step, wanted, fuse, records_all)

    return program


_FUSED = _program(True)


def _recorded(recorder: Recorder, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    push(recorder)
    try:
        if recorder.witness is None:
            result = fn(*args, **kwargs)
        else:
            with recorder.witness:
                result = fn(*args, **kwargs)
    finally:
        pop(recorder)
        recorder.flush("the end of the function", ends=True)
        if recorder.program is not _FUSED:            # which is there for the next call
            recorder.close()
    return result


def _refuse_branches(why: str) -> None:
    if not may_ask():
        refuse(why)


def _signature(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What decides whether a call is like an earlier one: a matter of speed alone."""
    return (_local.recording.asked, *map(_looks, args), *[(k, _looks(v)) for k, v in kwargs.items()])


def _looks(a: Any) -> Any:
    """Of an argument, what is compared."""
    if isinstance(a, Tensor):
        array = a._array
        return array.shape, array.dtype, a._node is not None
    return a if a.__class__ in (bool, int, str, type(None)) else a.__class__


def _title(fn: Any) -> str:
    return getattr(fn, "__qualname__", type(fn).__name__)


class _Names:
    """Names of a graph's inputs, for people: parameters of the function, and of its module."""

    def __init__(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.fn, self.args, self.kwargs = fn, args, kwargs
        self.title = _title(fn)
        self.known: dict[int, str] | None = None

    def of(self, tensor: Tensor) -> str | None:
        """The name of `tensor`, or None."""
        if self.known is None:
            self.known = {id(value): name for name, value in self._all()}
        return self.known.get(id(tensor))

    def _all(self) -> list[tuple[str, Any]]:
        from ..nn import Module

        target = self.fn.forward if isinstance(self.fn, Module) else self.fn
        owner = getattr(target, "__self__", None)
        try:
            given = inspect.signature(target).bind(*self.args, **self.kwargs).arguments
        except (TypeError, ValueError):               # a builtin without a signature
            given = dict(enumerate(self.args)) | self.kwargs
        found = [(f"l_{name}_", value) for name, value in given.items()]
        for name, value in given.items():
            if isinstance(value, (list, tuple)):
                found += [(f"l_{name}_{i}_", one) for i, one in enumerate(value)]
        if isinstance(owner, Module):
            found += [(f"l_self_parameters_{name.replace('.', '_')}_", value) for name, value in owner.named_parameters()]
            found += [(f"l_self_buffers_{name.replace('.', '_')}_", value) for name, value in owner.named_buffers()]
        return found


__all__ = ["Deferred", "Function", "break_here", "not_recorded", "refuse_breaks", "reset_all"]
