"""Autocast: ops that gain from a lower precision run in it, ops that need float32 run in that.

Which is which each op's declaration says (`Op.autocast`), by device: PyTorch's list for the CPU is another than that for CUDA. The
state is per thread; while any device has autocast enabled, an interpreter casts operands.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import flambeau_kernels as kernels

from .. import _state
from .._arrays import ndarray
from .._interpreters import Interpreter, pop, push
from ..autograd.tape import Leaf
from ..devices import device
from ..dtypes import FLOAT32, FLOATING, bfloat16, dtype, float16, float32, float64
from ..ops import _dispatch
from ..ops._spec import INPLACE, OUT
from ..tensor import Tensor

__all__ = ["autocast", "autocast_decorator", "custom_bwd", "custom_fwd", "is_autocast_available"]

_local = _state.local
_AVAILABLE = ("cpu", "cuda")


class _State:
    """What autocast does in one thread."""

    def __init__(self) -> None:
        self.enabled = {"cpu": False, "cuda": False}
        self.dtype = {"cpu": bfloat16, "cuda": float16}
        self.cache_enabled = True
        self.cache: dict[Any, tuple[Tensor, Tensor]] = {}
        self.conversions: dict[Any, Any] = {}         # by op, what float32 operands are converted by; None where a call takes a closer look
        self.known: dict[Any, dict[Any, Any]] = {}    # `conversions` of each lower precision of the CPU, and of none
        self.nesting = 0
        self.interpreter: Any = None                  # the caster, while it is in force
        self.caster = _Caster(self)


def _thread_state() -> _State:
    try:
        return _local.autocast
    except AttributeError:
        _local.autocast = found = _State()
        return found


class _Caster(Interpreter):
    """The interpreter that casts operands."""

    kind = "autocast"
    takes_names = True
    declines: set[Any] = set()                        # ops that neither device casts for

    def __init__(self, state: _State) -> None:
        self.state = state

    def quick(self, op: Any, *args: Any) -> Any:
        """The answer to a call of float32 operands without history, and perhaps None and numbers, where nobody else has a say."""
        state, calls = self.state, _local.calls
        try:
            convert = state.conversions[op]
        except KeyError:
            convert = state.conversions[op] = self._conversion_for(op)
        before = calls.interpreters
        if convert is None or len(before) > 1:
            return None
        made, enter = [], convert.enter
        for x in args:
            if x.__class__ is Tensor:
                if x._node is not None or x._array.dtype is not FLOAT32 or (x := enter(x)) is None:
                    return None
            elif x is not None and x.__class__ is not int and x.__class__ is not float:
                return None
            made.append(x)
        calls.interpreters = ()
        try:
            return op.enter(*made)
        finally:
            calls.interpreters = before

    def _conversion_for(self, op: Any) -> Any:
        """What converts operands of `op` to the lower precision on the CPU; None for an op that is cast for in other ways."""
        if op.autocast["cpu"] != "lower" or op.dtype_at is not None or not self.state.enabled["cpu"]:
            return None
        return kernels.conversion(self.state.dtype["cpu"].numpy)

    def run(self, op: Any, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
        if out is not None:  # in-place forms and out= keep the dtypes they are given
            return _dispatch.interpret(op, args, out, inplace) if op.kind == "composite" else NotImplemented
        classes, at = op.autocast, op.dtype_at
        if classes["cpu"] is classes["cuda"] is None:
            if op.kind != "composite" or not op.surface & (INPLACE | OUT):
                self.declines.add(op)
            return NotImplemented
        if at is not None and args[at] is not None:
            return NotImplemented
        first = args[0]
        if first.__class__ is Tensor and first._array.__class__ is ndarray:
            place = "cpu"
        else:
            first = next(iter(_tensors(args)), None)
            place = None if first is None else _place_of(first)
        wanted = classes["cpu" if place == "cpu" else "cuda"]
        state = self.state
        if wanted == "own" and state.enabled.get(place):  # pyright: ignore[reportArgumentType]  # None is no device
            with _dispatch.below(self):
                return _dispatch.interpret(op, args)
        if wanted is None or not state.enabled.get(place):  # pyright: ignore[reportArgumentType]  # None is no device
            return NotImplemented
        target = state.dtype[place] if wanted == "lower" else float32  # pyright: ignore[reportArgumentType]
        if wanted == "widest" and not any(t.dtype is float32 for t in _tensors(args)):
            return NotImplemented
        if place != "cpu" or _local.calls.interpreters:
            return _dispatch.interpret(op, tuple([self._cast_in(x, target, place) for x in args]))
        made: list[Any] = []
        plain = True
        cast = kernels.conversion(target.numpy).enter
        for x in args:
            if x.__class__ is Tensor:
                given = cast(x) if x._node is None and x._array.dtype is FLOAT32 else None
                made.append(self._cast(x, target, place) if given is None else given)
            else:
                plain = plain and x.__class__ in _dispatch.SINGLE
                made.append(self._cast_in(x, target, place))
        return op.enter(*made) if plain else _dispatch.interpret(op, tuple(made))

    def run_operator(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for place, on in self.state.enabled.items():
            if not on or not any(_place_of(t) == place for t in _tensors((*args, *kwargs.values()))):
                continue
            kernel = operator.kernel("Autocast", place)
            if kernel is not None and kernel.function is not None:
                return operator.schema.check_result(operator.run_kernel(kernel, args, kwargs, operator.below_autocast))
            target = operator.autocast.get(place)
            if target is not None:
                args = tuple([self._cast_in(x, target, place) for x in args])
                kwargs = {name: self._cast_in(x, target, place) for name, x in kwargs.items()}
                return operator.interpret(args, kwargs)
        return NotImplemented

    def lowered(self, t: Tensor) -> Tensor:
        """`t` as an op of the lower precision is given it."""
        place = t.device.type
        return self._cast(t, self.state.dtype[place], place) if self.state.enabled.get(place) else t

    def _cast_in(self, x: Any, target: dtype, place: Any) -> Any:
        """The argument `x` with its tensors cast."""
        if x.__class__ is Tensor or isinstance(x, Tensor):
            return self._cast(x, target, place)
        if type(x) is list or type(x) is tuple:
            return type(x)([self._cast(y, target, place) if isinstance(y, Tensor) else y for y in x])
        return x

    def _cast(self, t: Tensor, target: dtype, place: Any) -> Tensor:
        a = t._array
        if a.dtype is target.numpy or _place_of(t) != place:
            return t
        own = t.dtype
        if own is not float32 and not _is_cast(own):
            return t
        state = self.state
        if own is not float32 or type(t._node) is not Leaf or t._view_of is not None or not state.cache_enabled:
            return t.to(target)
        # A weight is cast once in an autocast region, however often it is used.
        key = (id(t), target, _state.grad_enabled(), len(_local.calls.interpreters))
        found = state.cache.get(key)
        if found is None:
            found = state.cache[key] = (t, t.to(target))
        return found[1]


def _is_cast(d: dtype) -> bool:
    return d.category == FLOATING and d is not float64


def _place_of(t: Tensor) -> str:
    return "cpu" if t._array.__class__ is ndarray else t.device.type


def _tensors(args: Any) -> list[Tensor]:
    found: list[Tensor] = []
    for x in args:
        if isinstance(x, Tensor):
            found.append(x)
        elif isinstance(x, (list, tuple)):
            found += [y for y in x if isinstance(y, Tensor)]
    return found


# -- state ---------------------------------------------------------------------------------------------------------------


def is_autocast_available(device_type: str) -> bool:
    """Whether there is autocast for `device_type`."""
    return device_type in _AVAILABLE


def cuda_available() -> bool:
    """Whether there is a CUDA device to run on."""
    from importlib.util import find_spec

    if find_spec("flambeau.cuda") is None:
        return False
    from importlib import import_module

    return import_module("flambeau.cuda").is_available()


def _checked(device_type: str) -> str:
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if device_type not in _AVAILABLE:
        raise RuntimeError(f"unsupported autocast device_type '{device_type}'; autocast is available for cpu and cuda")
    return device_type


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether autocast is on for `device_type` in this thread; False for devices without autocast.

    Raises: RuntimeError for what is no kind of device.
    """
    if isinstance(device_type, str) and device_type not in _AVAILABLE:
        device(device_type)  # refuses other words
        return False
    return _thread_state().enabled[_checked(device_type)]


def set_autocast_enabled(*args: Any, device_type: str = "cuda", enabled: bool | None = None) -> None:
    """``set_autocast_enabled(device_type, enabled)``: switch autocast on or off in this thread."""
    values = list(args)
    if values and isinstance(values[0], str):
        device_type = values.pop(0)
    state, place = _thread_state(), _checked(device_type)
    _switch(state, place, bool(values[0] if values else enabled), state.dtype[place])


def _switch(state: _State, place: str, on: bool, lower: dtype) -> None:
    """Switch autocast for `place` on or off, with `lower` as its lower precision."""
    enabled = state.enabled
    enabled[place], state.dtype[place] = on, lower
    key = state.dtype["cpu"] if enabled["cpu"] else None
    try:
        state.conversions = state.known[key]
    except KeyError:
        state.conversions = state.known[key] = {}
    caster = state.interpreter
    if on:
        if caster is None:
            state.interpreter = caster = state.caster
            push(caster)
    elif caster is not None and True not in enabled.values():
        pop(caster)
        state.interpreter = None


def get_autocast_dtype(device_type: str) -> dtype:
    """The lower precision of autocast on `device_type`."""
    return _thread_state().dtype[_checked(device_type)]


def set_autocast_dtype(device_type: str, dtype: dtype) -> None:
    state, place = _thread_state(), _checked(device_type)
    _switch(state, place, state.enabled[place], dtype)


def is_autocast_cache_enabled() -> bool:
    """Whether weights are cast once in a region."""
    return _thread_state().cache_enabled


def set_autocast_cache_enabled(enabled: bool) -> None:
    _thread_state().cache_enabled = bool(enabled)


def clear_autocast_cache() -> None:
    """Forget the casts of weights."""
    _thread_state().cache.clear()


def autocast_increment_nesting() -> int:
    state = _thread_state()
    state.nesting += 1
    return state.nesting


def autocast_decrement_nesting() -> int:
    state = _thread_state()
    state.nesting -= 1
    return state.nesting


def is_autocast_cpu_enabled() -> bool:
    return is_autocast_enabled("cpu")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    set_autocast_enabled("cpu", enabled)


def get_autocast_cpu_dtype() -> dtype:
    return get_autocast_dtype("cpu")


def set_autocast_cpu_dtype(dtype: dtype) -> None:
    set_autocast_dtype("cpu", dtype)


def get_autocast_gpu_dtype() -> dtype:
    return get_autocast_dtype("cuda")


def set_autocast_gpu_dtype(dtype: dtype) -> None:
    set_autocast_dtype("cuda", dtype)


# -- the context manager -------------------------------------------------------------------------------------------------


def autocast_decorator(autocast_instance: Any, func: Any) -> Any:
    """`func` run within `autocast_instance`."""

    @functools.wraps(func)
    def decorate_autocast(*args: Any, **kwargs: Any) -> Any:
        with autocast_instance:
            return func(*args, **kwargs)

    return decorate_autocast


class autocast:  # PyTorch's name
    """A region, or a decorated function, whose ops run in the precision that suits them.

    Args:
        device_type: 'cpu' or 'cuda'.
        dtype: the lower precision; bfloat16 on the CPU and float16 on CUDA by default.
        enabled: False makes a region without autocast inside one with it.
        cache_enabled: whether weights are cast once in the outermost region.
    Raises: ValueError for a `device_type` that is no string, RuntimeError for one without autocast.
    """

    def __init__(self, device_type: str, dtype: dtype | None = None, enabled: bool = True, cache_enabled: bool | None = None) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        if device_type not in _AVAILABLE:
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        self.device = device_type
        state = _thread_state()
        self.fast_dtype = state.dtype[device_type] if dtype is None else dtype
        self._cache_enabled = state.cache_enabled if cache_enabled is None else cache_enabled
        usual = device_type == "cpu" and (self.fast_dtype is bfloat16 or self.fast_dtype is float16)
        self._enabled = bool(enabled) and (usual or self._possible())

    def _possible(self) -> bool:
        if self.device == "cuda":
            if not cuda_available():
                warnings.warn("User provided device_type of 'cuda', but CUDA is not available. Disabling", stacklevel=3)
                return False
        elif self.fast_dtype not in (bfloat16, float16):
            warnings.warn(
                "In CPU autocast, but the target dtype is not supported. Disabling autocast.\n"
                "CPU Autocast only supports dtype of torch.bfloat16, torch.float16 currently.",
                stacklevel=3,
            )
            return False
        return True

    def __enter__(self) -> autocast:
        try:
            state, place = _local.autocast, self.device
        except AttributeError:                        # the thread's first region
            state, place = _thread_state(), self.device
        self.prev, self.prev_fastdtype, self.prev_cache_enabled = state.enabled[place], state.dtype[place], state.cache_enabled
        _switch(state, place, self._enabled, self.fast_dtype)
        state.cache_enabled = self._cache_enabled
        state.nesting += 1
        return self

    def __exit__(self, *_: object) -> None:
        try:
            state, place = _local.autocast, self.device
        except AttributeError:
            state, place = _thread_state(), self.device
        state.nesting -= 1
        if not state.nesting and state.cache:
            state.cache.clear()
        _switch(state, place, self.prev, self.prev_fastdtype)
        state.cache_enabled = self.prev_cache_enabled

    def __call__(self, func: Any) -> Any:
        return autocast_decorator(self, func)


# -- custom functions ----------------------------------------------------------------------------------------------------


def _cast(value: Any, device_type: str, target: dtype) -> Any:
    if isinstance(value, Tensor):
        return value.to(target) if _is_cast(value.dtype) and _place_of(value) == device_type else value
    if isinstance(value, dict):
        return {_cast(k, device_type, target): _cast(v, device_type, target) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_cast(v, device_type, target) for v in value])
    return value


def custom_fwd(fwd: Any = None, *, device_type: str, cast_inputs: dtype | None = None) -> Any:
    """A decorator for `forward` of an `autograd.Function`.

    Args:
        fwd: the function; without it the result is a decorator.
        device_type: whose autocast it looks at: 'cpu' or 'cuda'.
        cast_inputs: within autocast, the dtype floating arguments are cast to before `forward` runs without autocast;
            None runs it as it is.
    """
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorate_fwd(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        ctx._dtype = get_autocast_dtype(device_type)
        enabled = is_autocast_enabled(device_type)
        ctx._fwd_used_autocast = enabled and cast_inputs is None
        if cast_inputs is None or not enabled:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(*_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))

    return decorate_fwd


def custom_bwd(bwd: Any = None, *, device_type: str) -> Any:
    """A decorator for `backward` of an `autograd.Function`: it runs with the autocast state of `forward`."""
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorate_bwd(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        with autocast(device_type, enabled=ctx._fwd_used_autocast, dtype=ctx._dtype):
            return bwd(*args, **kwargs)

    return decorate_bwd
