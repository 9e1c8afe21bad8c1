"""What a profile is recorded by: an interpreter that looks on while ops, rules of backward and named regions run.

It answers nothing, so a program computes the same bits and takes the same kernels as without it. Each call is one tuple with two
readings of the clock; names, nesting, memory and counts of operations are worked out when somebody asks for the events.
"""

from __future__ import annotations

import bisect
import functools
import math
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from .. import _aten, _state
from .._arrays import ndarray
from .._interpreters import Interpreter, pop, push
from ..dtypes import from_numpy_dtype
from ..ops import _makers
from ..tensor import Tensor
from .profiler_util import MEMORY_EVENT_NAME, EventList, FunctionEvent, _rewrite_name
from .tape import Leaf, OutputNode, is_own_file

FUNCTION, BACKWARD, USER = 0, 1, 7  # scopes, as PyTorch counts them
_now = time.perf_counter_ns
_local = _state.local


class Wanted(NamedTuple):
    """What is recorded of each call besides its times."""

    shapes: bool = False
    memory: bool = False
    stack: bool = False
    flops: bool = False
    modules: bool = False


class Call(NamedTuple):
    """One call, as it was recorded; times are in nanoseconds."""

    what: Any  # an op, an operator or a name
    scope: int
    inplace: bool
    began: int
    ended: int
    sequence: int
    details: Details | None = None


class Details(NamedTuple):
    """What a call was given, and where in the program it is."""

    given: tuple[Any, ...]  # as `_noted` tells arguments
    stack: tuple[str, ...]
    modules: tuple[str, ...]
    made: tuple[int, ...] = ()  # the shape of the result, for counts of operations

    def descriptions(self) -> list[tuple[Any, Any, str, str]]:
        """Shape, strides in elements, type and value of each argument."""
        return [_described(noted) for noted in self.given]


class Block(NamedTuple):
    """Memory that was taken (`size` > 0), given back (< 0), overwritten (0), or there already when first seen (`preexisting`).

    `role` says what it holds as far as can be told at once: "parameter", "state", "input", "activation", "temporary", "backward" or
    "gradient".
    """

    at: int
    size: int
    key: int
    role: str
    preexisting: bool = False


class Recorder(Interpreter):
    """Records what its thread runs from `start` to `stop`.

    Attributes: `blocks`, changes of memory in the order in which they were noted; `began` and `ended` in nanoseconds.
    """

    kind = "profiler"
    takes_names = True
    observes = True

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        # The fields of one call after the other: a tuple for each would be one more object that the garbage collector visits.
        self._fields: list[Any] = []
        self.blocks: list[Block] = []
        self.began = self.ended = 0
        self.thread, self.pid = threading.get_native_id(), os.getpid()
        self.modules: tuple[str, ...] = ()
        self.paused = False
        self._nodes: list[int] = []
        self._alive: dict[int, Any] = {}
        self._handles: list[Any] = []
        self._around: Any = None
        self._module_names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._module_counts: dict[str, int] = {}
        # Without details a call costs two readings of the clock and a tuple.
        self.observe = self._observe_in_detail if any(wanted) else self._observe

    @property
    def calls(self) -> list[Call]:
        """The calls, in the order in which they ended."""
        fields, width = self._fields, len(Call._fields)
        found = (Call(*fields[at : at + width]) for at in range(0, len(fields), width))
        return [call if call.details is None else call._replace(details=Details(*call.details)) for call in found]

    # -- from start to stop

    def start(self) -> None:
        """Begin to look on in this thread; what a recorder around this one misses is handed to it in the end."""
        self._around = _state.observer()
        if self._around is not None:
            pop(self._around)
        push(self)
        _makers.install_functions()  # functions that make tensors are no ops; they ask who is looking on from here
        if self.wanted.modules or self.wanted.stack:
            self._watch_modules()
        self.began = _now()

    def stop(self) -> None:
        """Stop looking on."""
        self.ended = _now()
        for handle in self._handles:
            handle.remove()
        self._handles, self._alive = [], {}
        self.pause(True)
        if self._around is not None:
            self._around._fields += self._fields
            self._around.blocks += self.blocks
            push(self._around)
            self._around = None

    def pause(self, paused: bool) -> None:
        """Look away until this is called with False."""
        if paused is not self.paused:
            self.paused = paused
            (pop if paused else push)(self)

    # -- what runs

    def _observe(self, op: Any, args: tuple[Any, ...], out: Any, inplace: bool, run: Any) -> Any:
        began, result = _now(), None
        try:
            result = run(op, args, out, inplace)
        finally:
            self._fields += (op, FUNCTION, inplace, began, _now(), _sequence(result), None)
        return result

    def _observe_in_detail(self, op: Any, args: tuple[Any, ...], out: Any, inplace: bool, run: Any) -> Any:
        details, result = self._details(args), None
        began = _now()
        try:
            result = run(op, args, out, inplace)
        finally:
            ended = _now()
            if self.wanted.memory:
                self._take(result, "temporary", ended)
                if inplace:
                    self._note_overwritten(args[0], ended)
            if self.wanted.flops and isinstance(result, Tensor):
                details = *details[:3], tuple(result.shape)
            self._fields += (op, FUNCTION, inplace, began, ended, _sequence(result), details)
        return result

    def observe_operator(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.observe_function(operator.overload.name().partition(".")[0], operator.enter, args, kwargs, plain=True)

    def observe_function(self, name: str, run: Any, args: tuple[Any, ...], kwargs: dict[str, Any], plain: bool = False) -> Any:
        """The result of ``run(*args, **kwargs)`` (of ``run(args, kwargs)`` if `plain`), recorded as a call of `name`."""
        details = self._details((*args, *kwargs.values())) if any(self.wanted) else None
        began, result = _now(), None
        try:
            result = run(args, kwargs) if plain else run(*args, **kwargs)
        finally:
            ended = _now()
            if self.wanted.memory:
                self._take(result, "temporary", ended)
            self._fields += (_function_name(name), FUNCTION, False, began, ended, _sequence(result), details)
        return result

    def begins_node(self, node: Any) -> None:
        """The engine comes to `node`."""
        self._nodes.append(_now())

    def ends_node(self, node: Any, grad: Any, grads: Any) -> None:
        """The rule of `node` has made `grads` of `grad`."""
        ended, began = _now(), self._nodes.pop()
        given = grad if isinstance(grad, list) else (grad,)
        if self.wanted.memory:
            # Sums of gradients are the engine's own; what is first seen here was made by this backward.
            self._take(given, "backward", began)
        details = self._details(given) if any(self.wanted) else None
        if self.wanted.memory and grads is not None:
            self._take(grads, "backward", ended)
        self._backward_call(node, began, ended, node.seq, details)

    def ends_leaf(self, node: Any) -> None:
        """The gradient of a leaf has been added to its tensor."""
        ended, began = _now(), self._nodes.pop()
        tensor = node.tensor()
        if self.wanted.memory and tensor is not None:
            self._note_gradient(tensor, ended)
        details = self._details((tensor,)) if any(self.wanted) else None
        self._backward_call(node, began, ended, -1, details)

    def _backward_call(self, node: Any, began: int, ended: int, sequence: int, details: tuple[Any, ...] | None) -> None:
        name = node.name()
        around = details and ((), *details[1:])
        self._fields += (f"autograd::engine::evaluate_function: {name}", FUNCTION, False, began, ended, sequence, around)
        self._fields += (name, BACKWARD, False, began, ended, sequence, details)

    def region(self, name: str, began: int, args: str | None = None) -> None:
        """The region `name`, which began at that reading of the clock, ends now."""
        details = self._details(() if args is None else (args,)) if any(self.wanted) or args is not None else None
        self._fields += (name, USER, False, began, _now(), -1, details)

    def holds_state(self, state: Any, preexisting: bool) -> None:
        """An optimizer keeps the tensors in `state`, dicts by parameter; `preexisting` if its step is still to come."""
        if self.wanted.memory:
            at = _now()
            for values in state.values():
                for value in values.values() if isinstance(values, dict) else ():
                    if isinstance(value, Tensor):
                        self._note(value, "state", preexisting, at)

    # -- details

    def _details(self, args: Any) -> tuple[Any, ...]:
        """The fields of `Details`; a plain tuple, which the garbage collector need not visit again."""
        wanted = self.wanted
        if wanted.memory:
            for a in args:
                self._see(a)
        given = tuple([_noted(a) for a in args]) if wanted.shapes or wanted.flops else ()
        return given, _users_stack() if wanted.stack else (), self.modules, ()

    def _see(self, given: Any) -> None:
        if isinstance(given, (list, tuple)):
            for part in given:
                self._see(part)
        else:
            self._note(given, "input", True, _now())

    def _take(self, made: Any, role: str, at: int) -> None:
        """Note memory of the result `made` that has not been seen before: it was taken before `at`."""
        if isinstance(made, (list, tuple)):
            for part in made:
                self._take(part, role, at)
        else:
            self._note(made, role, False, at)

    def _note(self, value: Any, role: str, preexisting: bool, at: int) -> None:
        array = _memory_of(value)
        if array is None or id(array) in self._alive:
            return
        key, size = id(array), array.nbytes
        node = getattr(value, "_node", None)
        if isinstance(node, Leaf):
            role = "parameter"
        elif role == "temporary" and node is not None:
            role = "activation"
        self._alive[key] = weakref.ref(array, functools.partial(self._freed, key, size)), len(self.blocks)
        self.blocks.append(Block(at, size, key, role, preexisting))

    def _note_gradient(self, tensor: Any, at: int) -> None:
        """The gradient of `tensor` has arrived: the memory it is in, taken by backward, is for keeping."""
        self._note(tensor._gradient, "gradient", False, at)
        array = _memory_of(tensor._gradient)
        if array is not None:
            place = self._alive[id(array)][1]
            self.blocks[place] = self.blocks[place]._replace(role="gradient")

    def _note_overwritten(self, value: Any, at: int) -> None:
        array = _memory_of(value)
        if array is not None:
            self.blocks.append(Block(at, 0, id(array), ""))

    def _freed(self, key: int, size: int, _: Any) -> None:
        if self._alive.pop(key, None) is not None:
            self.blocks.append(Block(_now(), -size, key, ""))

    # -- modules

    def _watch_modules(self) -> None:
        from ..nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

        entered: list[tuple[tuple[str, ...], int]] = []

        def begins(module: Any, args: Any) -> None:
            if _state.observer() is self:
                entered.append((self.modules, _now()))
                self.modules = (*self.modules, self._name_of(module))

        def ends(module: Any, args: Any, result: Any) -> None:
            if _state.observer() is self and entered:
                name = self.modules[-1]
                self.modules, began = entered.pop()
                self.region(f"nn.Module: {name}", began)

        self._handles = [register_module_forward_pre_hook(begins), register_module_forward_hook(ends, always_call=True)]

    def _name_of(self, module: Any) -> str:
        """The class of `module`, and which of that class it is by the order of first calls."""
        name = self._module_names.get(module)
        if name is None:
            kind = type(module).__name__
            count = self._module_counts[kind] = self._module_counts.get(kind, -1) + 1
            name = self._module_names[module] = f"{kind}_{count}"
        return name

    # -- events

    def events(self) -> EventList:
        """What was recorded, in the order in which it began."""
        calls = sorted(self.calls, key=lambda call: (call.began, -call.ended))
        memory = sorted((b for b in self.blocks if b.size and not b.preexisting), key=lambda b: b.at)
        times, sums = [b.at for b in memory], [0]
        for block in memory:
            sums.append(sums[-1] + block.size)
        inside = [False] * len(memory)
        found = []
        for number, call in enumerate(calls, 1):
            event = self._event(number, call)
            first, last = bisect.bisect_left(times, call.began), bisect.bisect_right(times, call.ended)
            event.cpu_memory_usage = sums[last] - sums[first]
            inside[first:last] = [True] * (last - first)
            found.append(event)
        found += [
            FunctionEvent(len(found) + at, MEMORY_EVENT_NAME, 1, self.microseconds(b.at), self.microseconds(b.at), fwd_thread=0,
                          cpu_memory_usage=b.size, stack=[], input_shapes=[])
            for at, b in enumerate((b for b, known in zip(memory, inside, strict=True) if not known), 1)
        ]  # fmt: skip
        found.sort(key=lambda e: e.time_range.start)
        events = EventList(found, profile_memory=self.wanted.memory, with_flops=self.wanted.flops)
        events._build_tree()
        if self.wanted.flops:
            _count_flops(events)
        if not self.wanted.shapes:
            for event in events:
                event.input_shapes = []
        return events

    def microseconds(self, at: int) -> float:
        """The reading `at` of the clock, in microseconds from the start."""
        return (at - self.began) / 1000

    def _event(self, number: int, call: Call) -> FunctionEvent:
        name, details = name_of(call), call.details
        operands = details.descriptions() if details else []
        event = FunctionEvent(
            number, _rewrite_name(name, with_wildcard=True), 1, self.microseconds(call.began), self.microseconds(call.ended),
            overload_name="", trace_name=name, fwd_thread=1 if call.scope == BACKWARD or call.sequence >= 0 and _is_engine(call) else 0,
            input_shapes=[list(shape) for shape, _, _, _ in operands], stack=list(details.stack) if details else [],
            scope=call.scope, sequence_nr=call.sequence, is_user_annotation=call.scope == USER, flops=0,
            concrete_inputs=[value for _, _, _, value in operands],
        )  # fmt: skip
        event.result_shape = details.made if details else ()  # type: ignore[attr-defined]
        event.modules = details.modules if details else ()  # type: ignore[attr-defined]
        event.input_strides = [list(strides) for _, strides, _, _ in operands]  # type: ignore[attr-defined]
        event.input_types = [kind for _, _, kind, _ in operands]  # type: ignore[attr-defined]
        return event


def _memory_of(value: Any) -> Any:
    """The array that owns the memory of a tensor or an array of the host; None for what is neither."""
    array = value._array if isinstance(value, Tensor) else value
    if array.__class__ is not ndarray:
        return None
    while array.base.__class__ is ndarray:
        array = array.base
    return array


def _is_engine(call: Call) -> bool:
    return isinstance(call.what, str) and call.what.startswith("autograd::engine::")


def _sequence(result: Any) -> int:
    """The number of the node that recorded a call by its result, or -1."""
    if result.__class__ is Tensor and result._node is None:
        return -1
    node = getattr(result, "_node", None)
    if node is None and isinstance(result, tuple) and result:
        node = getattr(result[0], "_node", None)
    if node is None or not node.parents:
        return -1
    return node.parents[0].seq if node.__class__ is OutputNode else node.seq


def _noted(value: Any) -> Any:
    """What is kept of an argument: shape, strides in bytes and dtype of arrays, numbers themselves, of anything else the class's name."""
    array = value._array if isinstance(value, Tensor) else value
    if array is not value or array.__class__ is ndarray:
        return array.shape, array.strides, array.dtype
    return value if value is None or value.__class__ in (bool, int, float, complex) else type(value).__name__


def _described(noted: Any) -> tuple[Any, Any, str, str]:
    """Shape, strides in elements, type and value of what `_noted` kept; tensors have the first three, numbers the last two."""
    if noted.__class__ is tuple:
        shape, strides, dtype = noted
        kind = str(from_numpy_dtype(dtype))
        return shape, tuple([step // dtype.itemsize for step in strides]), _TYPES.get(kind, kind), ""
    if noted is None or isinstance(noted, str):
        return (), (), noted or "", ""
    return (), (), "Scalar", str(noted)


def described(value: Any) -> tuple[Any, Any, str, str]:
    """Shape, strides in elements, type and value of an argument."""
    return _described(_noted(value))


_TYPES = {
    "torch.float32": "float", "torch.float64": "double", "torch.float16": "c10::Half", "torch.bfloat16": "c10::BFloat16",
    "torch.int64": "long int", "torch.int32": "int", "torch.int16": "short int", "torch.int8": "signed char",
    "torch.uint8": "unsigned char", "torch.bool": "bool",
}  # fmt: skip


def _users_stack() -> tuple[str, ...]:
    """The program's lines that led here, without those inside Flambeau, the innermost first."""
    import sys

    found = []
    frame: Any = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if not is_own_file(code.co_filename):
            found.append(f"{code.co_filename}({frame.f_lineno}): {code.co_name}")
        frame = frame.f_back
    return tuple(found)


# -- names ---------------------------------------------------------------------------------------------------------------


def name_of(call: Call) -> str:
    """The name that PyTorch's profiler shows for `call`."""
    return call.what if isinstance(call.what, str) else aten_name(call.what, call.inplace)


@functools.cache
def aten_name(op: Any, inplace: bool = False) -> str:
    """ATen's name of an op, or ``prims::`` and its own where ATen has none."""
    name = _aten.name_of(op, inplace)
    return f"prims::{op.name}{'_' if inplace else ''}" if name is None else f"aten::{name}"


@functools.cache
def _function_name(name: str) -> str:
    """The name of a function that is no op, such as one that makes tensors; names of operators have their namespace already."""
    return name if "::" in name else f"{'aten' if name in _aten.index() else 'prims'}::{name}"


# -- operations ----------------------------------------------------------------------------------------------------------


def _product(shapes: Any, made: Any) -> int:
    return 2 * math.prod(made) * shapes[0][-1]


def _product_with_weight(shapes: Any, made: Any) -> int:
    return 2 * math.prod(made) * shapes[1][-1]


def _convolution(shapes: Any, made: Any) -> int:
    return 2 * math.prod(made) * math.prod(shapes[1][1:])


def _transposed_convolution(shapes: Any, made: Any) -> int:
    return 2 * math.prod(shapes[0]) * math.prod(shapes[1][1:])


# By the shapes of the arguments and that of the result.
_FORMULAS: dict[str, Callable[[Any, Any], int]] = {
    "aten::mm": _product, "aten::bmm": _product, "aten::addmm": lambda shapes, made: _product(shapes[1:], made),
    "aten::baddbmm": lambda shapes, made: _product(shapes[1:], made), "aten::linear": _product_with_weight,
    "aten::matmul": _product, "aten::mul": lambda shapes, made: math.prod(made), "aten::add": lambda shapes, made: math.prod(made),
    **{f"aten::conv{n}d": _convolution for n in (1, 2, 3)}, **{f"aten::conv_transpose{n}d": _transposed_convolution for n in (1, 2, 3)},
}  # fmt: skip


def _count_flops(events: EventList) -> None:
    """Count operations of products and sums by their shapes: once, by the outermost event that has a formula."""
    for event in events:
        around = event.cpu_parent
        if around is not None and around.flops:
            event.flops = 0
            continue
        formula = _FORMULAS.get(event.name)
        if formula is not None:
            event.flops = formula(event.input_shapes, event.result_shape)  # type: ignore[attr-defined]
