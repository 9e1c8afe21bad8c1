"""Subclasses of Tensor, and what makes all of a tensor's interface overridable by `__torch_function__`.

Ops look at their operands' classes themselves, once there has been an instance of such a class. The rest
of the interface - properties, methods that are no ops, functions that create tensors - does not look at classes, so that
plain tensors pay nothing; here it is wrapped where somebody wants a say: methods and properties on the subclass. Functions that
create tensors are in `ops/_makers.py`.
"""

from __future__ import annotations

import functools
from typing import Any

from . import _state
from .tensor import Tensor

_local = _state.local

# What makes instances, or belongs to the class and not to the values.
_NOT_OVERRIDABLE = frozenset(
    [
        "__new__", "__init__", "__init_subclass__", "__class__", "__torch_function__", "__getattr__", "__setattr__",
        "__getattribute__", "__delattr__", "__dict__", "__weakref__", "__slots__", "__module__", "__doc__",
        "__annotations__", "__hash__", "__dir__", "__class_getitem__", "__array_priority__", "__qualname__",
        "__static_attributes__", "__firstlineno__", "_make_subclass", "as_subclass", "__reduce__", "__sizeof__",
        "__subclasshook__", "__copy__", "__iter__", "_plain_operand", "__torch_dispatch__",
    ]
)  # fmt: skip
# Properties whose value is a tensor: the only ones a subclass with the default `__torch_function__` cares about.
_TENSOR_PROPERTIES = frozenset(("data", "T", "mT", "H", "mH", "real", "imag"))


def make_overridable(cls: type) -> None:
    """Give `cls` versions of inherited methods and properties that ask `__torch_function__` first."""
    from .ops import _derive, _dispatch, _makers

    _derive.load_all()
    handler = getattr(cls, "__torch_function__", None)
    if handler is _dispatch._disabled or getattr(cls, "_plain_operand", False):
        return
    _makers.install_functions()
    _derive.make_operators()
    let_modes_see_methods()
    default = getattr(handler, "__func__", None) is Tensor.__dict__["__torch_function__"].__func__
    for name, attribute in list(Tensor.__dict__.items()):
        if name in _NOT_OVERRIDABLE or _resolved(cls, name) is not attribute:
            continue
        if isinstance(attribute, property):
            if not default or name in _TENSOR_PROPERTIES:
                setattr(cls, name, _property(attribute))
        elif _is_plain_method(attribute) and not (name.startswith("__") and (default or name in _OPERATORS)):
            setattr(cls, name, overridable(attribute))


# Methods of Tensor that are no ops and that modes see, once a program has those; others, such as getters, they do not.
_SEEN_BY_MODES = (
    "__repr__", "backward", "numpy", "register_hook", "register_post_accumulate_grad_hook", "requires_grad_", "retain_grad",
    "share_memory_", "tolist",
)  # fmt: skip


@functools.cache
def let_modes_see_methods() -> None:
    """Put methods on Tensor that ask the modes of the thread first. Those who override functions are given these."""
    for name in _SEEN_BY_MODES:
        setattr(Tensor, name, _seen_by_modes(Tensor.__dict__[name]))


def _seen_by_modes(fn: Any) -> Any:
    from .ops import _dispatch

    # `backward` is seen with all its arguments by name, as PyTorch's is.
    names = ("gradient", "retain_graph", "create_graph", "inputs") if fn.__name__ == "backward" else ()
    defaults = dict(zip(names, (None, None, False, None), strict=False))

    @functools.wraps(fn)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _state.IN_FORCE and _local.calls.modes:
            if names:
                args, kwargs = (), {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
            return _dispatch.dispatch_torch_function(method, _dispatch.overriding_classes((self, *args)), (self, *args), kwargs)
        return fn(self, *args, **kwargs)

    return method


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
        if not _state.IN_FORCE and plain(map(type, args)) and plain(map(type, kwargs.values())):
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
