"""Subclasses of Tensor, and what makes all of a tensor's interface overridable by `__torch_function__`.

Ops look at their operands' classes themselves, once there has been an instance of such a class. The rest
of the interface - properties, methods that are no ops, functions that create tensors - does not look at classes, so that
plain tensors pay nothing; here it is wrapped where somebody wants a say: methods and properties on the subclass, functions
in the package's namespace.
"""

from __future__ import annotations

import functools
from typing import Any

from . import _state
from .tensor import Tensor

_local = _state.local
INTERPRETED, IN_FORCE = _state.INTERPRETED, _state.IN_FORCE
_state.share(globals(), "INTERPRETED", "IN_FORCE")  # keeps them as they are there

# What makes instances, or belongs to the class and not to the values.
_NOT_OVERRIDABLE = frozenset(
    [
        "__new__", "__init__", "__init_subclass__", "__class__", "__torch_function__", "__getattr__", "__setattr__",
        "__getattribute__", "__delattr__", "__dict__", "__weakref__", "__slots__", "__module__", "__doc__",
        "__annotations__", "__hash__", "__dir__", "__class_getitem__", "__array_priority__", "__qualname__",
        "__static_attributes__", "__firstlineno__", "_make_subclass", "as_subclass", "__reduce__", "__sizeof__",
        "__subclasshook__", "__copy__", "_plain_operand", "__torch_dispatch__",
    ]
)  # fmt: skip
# Properties whose value is a tensor: the only ones a subclass with the default `__torch_function__` cares about.
_TENSOR_PROPERTIES = frozenset(("data", "T", "mT", "H", "mH", "real", "imag"))


def make_overridable(cls: type) -> None:
    """Give `cls` versions of inherited methods and properties that ask `__torch_function__` first."""
    from .ops import _derive, _dispatch

    _derive.load_all()
    handler = getattr(cls, "__torch_function__", None)
    if handler is _dispatch._disabled or getattr(cls, "_plain_operand", False):
        return
    install_functions()
    default = getattr(handler, "__func__", None) is Tensor.__dict__["__torch_function__"].__func__
    for name, attribute in list(Tensor.__dict__.items()):
        if name in _NOT_OVERRIDABLE or _resolved(cls, name) is not attribute:
            continue
        if isinstance(attribute, property):
            if not default or name in _TENSOR_PROPERTIES:
                setattr(cls, name, _property(attribute))
        elif _is_plain_method(attribute) and not (name.startswith("__") and (default or name in _OPERATORS)):
            setattr(cls, name, overridable(attribute))


def _is_plain_method(attribute: Any) -> bool:
    """Whether a member of Tensor is a method that does not ask operands' classes itself, as those of ops do."""
    return callable(attribute) and not hasattr(attribute, "flambeau_op") and not isinstance(attribute, type)


_OPERATORS = frozenset(
    f"__{prefix}{name}__"
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift",
                 "eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert", "getitem", "setitem")
    for prefix in ("", "r", "i")
)  # fmt: skip


def _resolved(cls: type, name: str) -> Any:
    """What instances of `cls` find under `name`."""
    return next((c.__dict__[name] for c in cls.__mro__ if name in c.__dict__), None)


def overridable(fn: Any) -> Any:
    """The method `fn`, asking modes and the classes of its arguments first; handlers are given `fn` itself, as Tensor has it."""
    return _asking(fn, fn)


# Functions that ask although they are no ops, by their names below the package.
OVERRIDABLE: dict[str, Any] = {}


def overridable_function(fn: Any) -> Any:
    """A decorator for public functions that are no ops: modes and the classes of arguments are asked first, of what is returned here."""
    asking = _asking(fn)
    home = fn.__module__.removeprefix("flambeau.")
    OVERRIDABLE[f"{home}.{fn.__name__}" if home in _WITH_FUNCTIONS else fn.__name__] = asking
    return asking


_WITH_FUNCTIONS = ("nn.init",)                        # modules whose functions have their names there, not in the package


def _asking(fn: Any, shown: Any = None) -> Any:
    """`fn`, asking modes and the classes of its arguments first; handlers are given `shown`, or what is returned."""

    from .ops import _dispatch

    plain = _dispatch.SINGLE.issuperset

    @functools.wraps(fn)
    def asking(*args: Any, **kwargs: Any) -> Any:
        if not IN_FORCE and plain(map(type, args)) and plain(map(type, kwargs.values())):
            return fn(*args, **kwargs)
        classes = _dispatch.overriding_classes((*args, *kwargs.values()))
        if classes or _local.calls.modes:
            return _dispatch.dispatch_torch_function(shown or asking, classes, args, kwargs)
        return fn(*args, **kwargs)

    return asking


def _property(attribute: property) -> property:
    get = overridable(attribute.__get__)
    put = None if attribute.fset is None else overridable(attribute.__set__)
    drop = None if attribute.fdel is None else overridable(attribute.__delete__)
    return property(lambda self: get(self), put, drop, attribute.__doc__)


# -- functions -----------------------------------------------------------------------------------------------------------

_installed = False
# Functions of the package that answer about a tensor, or check one.
_QUESTIONS = (
    "_assert", "is_complex", "is_conj", "is_floating_point", "is_inference", "is_neg", "is_nonzero", "is_signed", "numel",
    "result_type",
)  # fmt: skip


def creation_functions() -> dict[str, Any]:
    """The public functions of the package that are no ops, by name."""
    from . import _settings
    from .ops.creation import create, ranges
    from .ops.sampling import random
    from .ops.shapes import misc

    questions = {name: getattr(_settings, name) for name in _QUESTIONS}
    return {**create.FUNCTIONS, **ranges.FUNCTIONS, **random.FUNCTIONS, **misc.FUNCTIONS, **questions}


def install_functions() -> None:
    """Put functions that ask modes and classes first in the place of those that create tensors."""
    global _installed
    if _installed:
        return
    _installed = True
    import flambeau

    for name, fn in creation_functions().items():
        setattr(flambeau, name, _asking_function(fn, name not in _QUESTIONS))


def _asking_function(fn: Any, creates: bool) -> Any:
    """`fn`, asking first; one that `creates` is also shown to the profiler, if it looks on."""
    from .ops import _dispatch

    plain = _dispatch.SINGLE.issuperset

    @functools.wraps(fn)
    def asking(*args: Any, **kwargs: Any) -> Any:
        if not INTERPRETED or not IN_FORCE and not kwargs and plain(map(type, args)):
            try:
                return fn(*args, **kwargs)
            except (TypeError, AttributeError):
                # What is refused may be of a class that wants a say, which nobody has asked yet.
                if not _dispatch.overriding_classes((*args, *kwargs.values())):
                    raise
        if _local.calls.modes or not (plain(map(type, args)) and plain(map(type, kwargs.values()))):
            classes = _dispatch.overriding_classes((*args, *kwargs.values()))
            if classes or _local.calls.modes:
                # Handlers know the function by its public name, which now means this one.
                return _dispatch.dispatch_torch_function(asking, classes, args, kwargs)
        observer = _state.observer() if creates else None
        return fn(*args, **kwargs) if observer is None else observer.observe_function(fn.__name__, fn, args, kwargs)

    asking.__module__, asking.__qualname__ = "flambeau", fn.__name__  # where it is found from here on
    return asking
