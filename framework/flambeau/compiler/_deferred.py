"""Tensors that are recorded and not computed yet: what they know of themselves, and what they settle for."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from .._arrays import ndarray
from .._subclass import _OPERATORS, _is_plain_method
from ..autograd import tape
from ..devices import CPU
from ..nn.parameter import Parameter
from ..ops import _dispatch
from ..ops._derive import is_loaded_later
from ..ops._spec import OPS
from ..ops._spec.composite import entitle, entitled_later
from ..ops.creation._options import scalar_of_dtype
from ..tensor import Tensor, wrap
from ._background import stand_in

_SLOTS = {name: Tensor.__dict__[name] for name in ("_array", "_node", "_storage", "_view_of", "_gradient")}
_set_array, _set_node, _set_storage, _set_view_of, set_pending = (slot.__set__ for slot in _SLOTS.values())
_get_view_of = _SLOTS["_view_of"].__get__


class Deferred(Tensor):
    """A result that is recorded and not computed yet. It becomes a Tensor, the same object, when more than its looks is asked for."""

    __slots__ = ()
    _plain_operand = True


# Of a Deferred: the recorder, the number of its value, a meta tensor of its looks, and perhaps the title of the node it will have. They are
# where its gradient will be.
pending_of: Callable[[Any], Any] = _SLOTS["_gradient"].__get__
_UNTITLED = 3                                         # items of one that has no title


def settle(self: Deferred) -> None:
    """Make the Deferred the tensor it stands for."""
    pending: Any = pending_of(self)
    if pending.__class__ is tuple:                    # another thread may have been faster
        pending[0].flush_for(self)
        if self.__class__ is Deferred:
            raise RuntimeError("compile: a finalizer asks for a result that was garbage when what was pending with it was computed")


def _slot(name: str) -> property:
    slot = _SLOTS[name]

    def read(self: Any) -> Any:
        settle(self)
        return slot.__get__(self)

    def write(self: Any, value: Any) -> None:
        settle(self)
        slot.__set__(self, value)

    return property(read, write)


def _by_meta(name: str) -> Any:
    """A property or method of Tensor, answered by the meta tensor of the same looks."""
    attribute = Tensor.__dict__[name]
    if isinstance(attribute, property):
        return property(lambda self: getattr(pending_of(self)[2], name), doc=attribute.__doc__)
    return lambda self, *args, **kwargs: attribute(pending_of(self)[2], *args, **kwargs)


def _settling(name: str, attribute: Any) -> Any:
    """A property or method of Tensor that is no operation: it meets the tensor itself."""
    if isinstance(attribute, property):

        def read(self: Any) -> Any:
            settle(self)
            return getattr(self, name)

        def write(self: Any, value: Any) -> None:
            settle(self)
            setattr(self, name, value)

        return property(read, write, doc=attribute.__doc__)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        settle(self)
        return getattr(self, name)(*args, **kwargs)

    return method


_LOOKS = (
    "shape", "dtype", "ndim", "itemsize", "nbytes", "requires_grad", "dim", "ndimension", "size", "stride", "numel", "nelement",
    "element_size", "is_contiguous", "is_floating_point", "is_complex", "is_signed",
)  # fmt: skip
_ALWAYS = {"device": CPU, "is_cpu": True, "is_cuda": False, "is_meta": False, "_lacks_values": False}
# Functions of operations; what they read of a tensor beside its looks, they find by its slots.
_BY_OPERATIONS = (
    "__getitem__", "__iter__", "__div__", "__rdiv__", "T", "H", "mT", "mH", "real", "imag", "view", "where", "to", "bfloat16", "bool",
    "byte", "cdouble", "cfloat", "chalf", "char", "double", "float", "half", "int", "long", "short", "new_zeros", "new_ones", "new_full",
    "new_empty", "detach", "backward", "uniform_", "normal_", "exponential_", "geometric_", "bernoulli_", "random_", "cauchy_",
    "log_normal_",
)  # fmt: skip
_KEPT = frozenset((
    "__new__", "__init__", "__init_subclass__", "__class__", "__torch_function__", "__getattr__", "__dict__", "__weakref__", "__slots__",
    "__module__", "__doc__", "__annotations__", "__hash__", "__getattribute__", "__setattr__", "__delattr__", "__qualname__",
    "__array_priority__", "__static_attributes__", "__firstlineno__", "_plain_operand", "_overrides_ops", "__torch_dispatch__",
    *_SLOTS, *_BY_OPERATIONS, *_OPERATORS,
))  # fmt: skip


class _Later:
    """A member of Tensor that its family of operations has not defined yet; what Deferred has for it takes its place when asked for."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def _found(self) -> Any:
        getattr(Tensor, self.name)                    # which loads the family
        made = _settling(self.name, Tensor.__dict__[self.name])
        setattr(Deferred, self.name, made)
        return made

    def __get__(self, tensor: Any, cls: type) -> Any:
        return self._found().__get__(tensor, cls)

    def __set__(self, tensor: Any, value: Any) -> None:
        self._found()
        setattr(tensor, self.name, value)


def _forget_base(self: Deferred, base: Any) -> None:
    """Set the slot of what a tensor is a view of; that it is one of nothing need not be known before it is there."""
    if base is None:
        _set_view_of(self, None)
    else:
        settle(self)
        self._view_of = base


def _copy_into(self: Any, other: Any = None, non_blocking: bool = False, x2: Any = None) -> Any:
    """`Tensor.copy_` of a Deferred: an operation like others where what is copied is an array of the host, and fits."""
    plain = x2 is None and (non_blocking is False or non_blocking is True)
    if plain and (other.__class__ is Deferred or is_there(other) and other is not None) and _fits_in(other.shape, self.shape):
        return _dispatch.call_inplace(_OVERWRITE(), (self, other), Tensor.copy_)  # type: ignore[attr-defined]
    settle(self)
    return self.copy_(other, non_blocking, x2)


def _fill(self: Any, value: Any) -> Any:
    """`Tensor.fill_` of a Deferred with a number, as an operation like others."""
    made = _dispatch.made("fill_", {"self": self, "value": value}) if _dispatch.is_seen() else None
    if made is not None:
        return made
    look = pending_of(self)[2]
    if value.__class__ in (int, float, bool) and 0 not in look._array.strides:
        kind = look.dtype.numpy
        return _copy_into(self, wrap(np.full((), scalar_of_dtype(value, kind, look._array.size), kind)))
    settle(self)
    return self.fill_(value)


def _fits_in(shape: Any, wanted: Any) -> bool:
    """Whether `shape` broadcasts to `wanted`."""
    return len(shape) <= len(wanted) and all(n in (1, m) for n, m in zip(reversed(shape), reversed(wanted), strict=False))


@functools.cache
def _OVERWRITE() -> Any:
    return OPS["Tensor.overwrite"]


def _complete() -> None:
    """Give `Deferred` all that Tensor has beside operations."""
    for name, attribute in list(Tensor.__dict__.items()):
        if name in _KEPT:
            continue
        if is_loaded_later(attribute):
            made: Any = _Later(name)
        elif name in _LOOKS:
            made = _by_meta(name)
        elif name in _ALWAYS:
            made = property(lambda self, value=_ALWAYS[name]: value)
        elif isinstance(attribute, property) or _is_plain_method(attribute):
            made = _settling(name, attribute)
        else:
            continue                                  # operations, which come to the recorder, and plain values
        setattr(Deferred, name, made)
    for name in _SLOTS:
        setattr(Deferred, name, _slot(name))
    Deferred._view_of = property(Deferred._view_of.fget, _forget_base)  # type: ignore[attr-defined, method-assign, assignment]
    Deferred.copy_, Deferred.fill_, Deferred.zero_ = _copy_into, _fill, lambda self: _fill(self, 0)  # type: ignore[attr-defined]
    Deferred._looks = property(lambda self: wrap(stand_in(pending_of(self)[2])))  # type: ignore[assignment, method-assign]
    Deferred.__len__ = lambda self: len(pending_of(self)[2])  # type: ignore[method-assign]
    _dispatch.take_for_plain(Deferred)


_complete()


def is_no_view(made: Any) -> bool:
    """Whether a Deferred has been told that it is a view of nothing, though an operation makes it so."""
    try:
        return _get_view_of(made) is None
    except AttributeError:
        return False


def become(made: Any, result: Tensor) -> None:
    """Make the Deferred `made` what `result` is, whose place it takes wherever the tape knows it."""
    if is_entitled(made):
        entitle(result, pending_of(made)[_UNTITLED])
    _set_array(made, result._array)
    _set_node(made, result._node)
    storage = result._storage
    _set_storage(made, storage)
    view_of = getattr(result, "_view_of", None)
    _set_view_of(made, None if view_of is None or is_no_view(made) else view_of)
    set_pending(made, getattr(result, "_gradient", None))
    made.__class__ = Tensor
    views = storage[tape.VIEWS]
    if views:
        for at, ref in enumerate(views):
            if ref() is result:
                views[at] = weakref.ref(made)


def is_entitled(made: Any) -> bool:
    """Whether a Deferred has a title for its node."""
    return len(pending_of(made)) > _UNTITLED


def _entitle_later(made: Any, title: str) -> None:
    set_pending(made, (*pending_of(made)[:_UNTITLED], title))


entitled_later[Deferred] = _entitle_later


def is_there(a: Any) -> bool:
    """Whether an argument, a tensor, None or a tuple of these, is in host memory now."""
    if a.__class__ is tuple or a.__class__ is list:
        return all(map(is_there, a))
    return a is None or (a.__class__ is Tensor or a.__class__ is Parameter) and a._array.__class__ is ndarray
