"""The slow path: everything unusual about a call, decided once and in order.

Entry points come here when `SLOW` is set: a mode is active, an operand's class overrides ``__torch_function__``, autocast
is on, or a function transform (forward mode, vmap, tracing) is running. Modes and classes are asked first, then the
interpreters of this thread, the innermost first. Each either answers or passes on; the last is the op's own general path.
While one answers, only those outside it are in force, so that what it calls goes to the next.
"""

from __future__ import annotations

from typing import Any

from .. import _state
from ..tensor import Tensor, wrap
from ._spec import OPS, Op, check_inplace

_local = _state.local
APART = object()  # an interpreter's answer: not as a whole, but what the composition is made of is its business


def call(op: Op, args: tuple[Any, ...], out: Any = None, func: Any = None) -> Any:
    """Run `op`, which users called by `func` (its function by default), with every mode, class and interpreter given its say."""
    overriding = overriding_classes(args if out is None else (*args, out))
    if overriding or _local.modes:
        kwargs = {} if out is None else {"out": out}
        return dispatch_op(func or public_function(op), overriding, op, args, kwargs)
    return interpret(op, args, out)


def call_inplace(op: Op, args: tuple[Any, ...], func: Any = None) -> Any:
    """Run the in-place form of `op`, which users know as `func`."""
    overriding = overriding_classes(args)
    if overriding or _local.modes:
        if func is None:
            func = getattr(Tensor, f"{op.name}_")
        return dispatch_op(func, overriding, op, args, {})
    return interpret(op, args, args[0], True)


def interpret(op: Op, args: tuple[Any, ...], out: Any = None, inplace: bool = False) -> Any:
    """Ask the interpreters, the innermost first, then run `op` itself."""
    stack = _local.interpreters
    for depth in range(len(stack) - 1, -1, -1):
        _local.interpreters = stack[:depth]
        try:
            result = stack[depth].run(op, args, out, inplace)
        finally:
            _local.interpreters = stack
        if result is APART:
            break
        if result is not NotImplemented:
            return result
    if stack and op.kind == "composite":
        return _composed(op, args, out, inplace)
    if inplace:
        return op.run_inplace(*args)
    return op.run(*args) if out is None else op.run_out(out, *args)


def _composed(op: Op, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
    """A composition under interpreters: the ops it is made of come here in turn; the in-place form stores the result."""
    from ..func.batching import NeedsValues

    if out is not None and not inplace:
        return op.run_out(out, *args)
    try:
        result = op.run(*args)
    except NeedsValues:
        stack = _local.interpreters
        for depth in range(len(stack) - 1, -1, -1):
            _local.interpreters = stack[:depth]
            try:
                result = stack[depth].whole(op, args)
            finally:
                _local.interpreters = stack
            if result is not NotImplemented:
                break
        else:
            raise
    if not inplace:
        return result
    check_inplace(op, args[0], result)
    return interpret(OPS["Tensor.overwrite"], (args[0], result), args[0], True)


def interpret_with(interpreter: Any, op: Op, args: tuple[Any, ...]) -> Any:
    """`interpret` with `interpreter` in force inside those that are."""
    before = _local.interpreters
    _local.interpreters = [*before, interpreter]
    try:
        return interpret(op, args)
    finally:
        _local.interpreters = before


def push(interpreter: Any) -> None:
    """Put `interpreter` in force in this thread, inside those that are."""
    _local.interpreters = [*_local.interpreters, interpreter]
    _state.add_slow(1)


def pop(interpreter: Any) -> None:
    """End what `push` began."""
    _local.interpreters = [x for x in _local.interpreters if x is not interpreter]
    _state.add_slow(-1)


class below:  # a context manager
    """Only interpreters outside `interpreter` are in force."""

    def __init__(self, interpreter: Any) -> None:
        self.interpreter = interpreter

    def __enter__(self) -> None:
        self.before = stack = _local.interpreters
        if self.interpreter in stack:
            _local.interpreters = stack[: stack.index(self.interpreter)]

    def __exit__(self, *_: object) -> None:
        _local.interpreters = self.before


def detach(tensor: Tensor) -> Tensor:
    return OPS["detach"].function(tensor)


def call_setitem(self: Tensor, key: Any, value: Any) -> None:
    """``self[key] = value`` on the slow path."""
    from . import index

    overriding = overriding_classes((self, *_operands_of(key), value))
    if overriding or _local.modes:
        dispatch_torch_function(Tensor.__setitem__, overriding, (self, key, value), {})  # type: ignore[attr-defined]
    elif _local.interpreters:
        _setitem_by_ops(self, key, value)
    else:
        index._setitem(self, key, value)


def _operands_of(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _setitem_by_ops(self: Tensor, key: Any, value: Any) -> None:
    """Assignment made of operations that interpreters know: a view and `copy_`, `masked_fill_`, or `index_put_`."""
    from . import create, index

    key = index.normalize(key)
    if not isinstance(value, Tensor):
        value = create.tensor(value, dtype=self.dtype, device=self.device)
    if all(isinstance(k, index._BASIC) for k in key):
        index._check_slices(key)
        part = index._view_at(self, key)
        part.copy_(index._fit(value, part.shape))
    elif len(key) == 1 and key[0].dtype.name == "bool" and value.ndim == 0:
        mask = key[0]
        self.masked_fill_(mask.reshape(*mask.shape, *(1,) * (self.ndim - mask.ndim)), value.to(self.dtype))
    else:
        part, indices = index.split_key(self, key)
        value = index._fit(value.to(self.dtype), index._index_shape(part, indices)[0])
        part.index_put_(tuple(indices), value, False)


# -- __torch_function__ --------------------------------------------------------------------------------------------------


def public_function(op: Op) -> Any:
    """What users know the function of `op` as."""
    return Tensor.__getitem__ if op.name == "getitem_op" else op.function  # type: ignore[attr-defined]


def overriding_classes(args: Any) -> list[type]:
    """Classes of operands that want a say, subclasses before the classes they derive from."""
    if _local.torch_function_off:
        return []
    found: list[type] = []
    for a in args:
        for x in a if isinstance(a, (list, tuple)) else (a,):
            cls = type(x)
            if cls is Tensor or cls in found or not hasattr(cls, "__torch_function__"):
                continue
            if getattr(cls, "_plain_operand", False) or cls.__torch_function__ is _disabled:
                continue
            if hasattr(cls, "__dlpack__") and not issubclass(cls, Tensor):
                continue  # an array of another library, PyTorch itself perhaps: data to convert, not an operand of ours
            at = next((i for i, c in enumerate(found) if issubclass(cls, c)), len(found))
            found.insert(at, cls)
    return found


def dispatch_op(func: Any, classes: list[type], op: Op, args: Any, kwargs: Any) -> Any:
    """`dispatch_torch_function` with the arguments of `op` as a user would have given them."""
    positional = list(args[: len(op.positional)])
    named = dict(zip(op.keyword_only, args[len(op.positional) :], strict=True))
    named = {n: v for n, v in named.items() if v is not op.defaults.get(n, named)}
    while positional and op.positional[len(positional) - 1] in op.defaults:
        if positional[-1] is not op.defaults[op.positional[len(positional) - 1]]:
            break
        positional.pop()
    return dispatch_torch_function(func, classes, tuple(positional), {**named, **kwargs}, op.qualified)


def dispatch_torch_function(func: Any, classes: Any, args: Any, kwargs: Any, name: str | None = None) -> Any:
    """Ask the active mode, then each overriding class, until one answers.

    Raises: TypeError when all return NotImplemented.
    """
    types = tuple(classes)
    modes = _local.modes
    if modes:
        mode = modes.pop()
        try:
            result = mode.__torch_function__(func, types, args, kwargs)
        finally:
            modes.append(mode)
        if result is not NotImplemented:
            return result
    for cls in classes:
        result = cls.__torch_function__(func, types, args, kwargs)
        if result is not NotImplemented:
            return result
    who = [type(modes[-1]).__name__] if modes else []
    names = ", ".join((*who, *(c.__name__ for c in classes)))
    name = name or getattr(func, "__name__", repr(func))
    raise TypeError(f"no implementation found for '{name}' on types that implement __torch_function__: [{names}]")


def default_torch_function(cls: type, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Run `func` as if the operands were plain Tensors and hand out results as `cls`."""
    if not all(issubclass(cls, t) for t in types):
        return NotImplemented
    _local.torch_function_off += 1
    try:
        result = func(*args, **kwargs)
    finally:
        _local.torch_function_off -= 1
    return result if getattr(func, "__self__", None) in _PLAIN_RESULTS else _converted(result, cls)


# Properties whose result stays what it is, by the property itself (`__get__` is what handlers are given).
_PLAIN_RESULTS = tuple(Tensor.__dict__[n] for n in ("grad", "_base", "_grad"))


def _disabled(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """A `__torch_function__` that runs `func` and leaves results plain: assigned to a class, it switches overriding off."""
    _local.torch_function_off += 1
    try:
        return func(*args, **(kwargs or {}))
    finally:
        _local.torch_function_off -= 1


def _converted(value: Any, cls: type) -> Any:
    if isinstance(value, Tensor) and not isinstance(value, cls):
        return value.as_subclass(cls)
    if isinstance(value, (tuple, list)):
        made = [_converted(v, cls) for v in value]
        return made if isinstance(value, list) else type(value)(made)
    return value


__all__ = ["call", "call_inplace", "interpret", "wrap"]
