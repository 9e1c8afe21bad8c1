"""Tensors that a module recognises: `Parameter`, `Buffer`, and the two kinds whose shape is not known yet."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NoReturn, cast

import flambeau as fb

from .. import _state
from ..ops import _entry
from ..ops._dispatch import _disabled

Tensor = fb.Tensor

__all__ = [
    "Parameter",
    "UninitializedParameter",
    "is_lazy",
    "Buffer",
    "UninitializedBuffer",
    "UninitializedTensorMixin",
]


class _ParameterMeta(type(Tensor)):
    """Also counts as Parameters the tensors of other classes that were made into one, known by `_is_param`."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) or (
            cls is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False)
        )


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that registers itself as a parameter when assigned to an attribute of a `Module`.

    Args:
        data: the values, shared; an empty tensor by default.
        requires_grad: whether autograd records operations on it, also under `no_grad`.
    """

    # An operand like any Tensor: results of operations are Tensors, and no operation asks the class.
    _plain_operand = True

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        if data is None:
            data = fb.empty(0)
        if type(data) is not Tensor:
            _state.settle()                           # a result that was put off is a Tensor once it is there
        if type(data) is Tensor or type(data) is Parameter:
            return Tensor._make_subclass(cls, data, requires_grad)
        # A tensor of a class of its own keeps that class, and is marked as a parameter instead.
        if not isinstance(data, Tensor):
            # PyTorch's type for this: it asks anything for its detach().
            raise AttributeError(f"Parameter(data): expected a Tensor, got {type(data).__name__}")
        detached = data.detach().requires_grad_(requires_grad)
        if type(detached) is not type(data):
            raise RuntimeError(
                f"Parameter: detach() of a {type(data).__name__} gave a {type(detached).__name__}; a tensor class "
                "whose instances become parameters must return its own class from detach()"
            )
        marked: Any = detached
        marked._is_param = True
        return marked

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) in memo:
            return memo[id(self)]
        copied = type(self)(self.data.clone(memory_format=fb.preserve_format), self.requires_grad)
        memo[id(self)] = copied
        return copied

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()

    def __reduce_ex__(self, proto: int) -> Any:
        reduced = None if _state.reducer is None else _state.reducer(self)
        if reduced is not None:
            return reduced
        # The third place is PyTorch's for hooks, which are never saved.
        arguments = (self.data, self.requires_grad, OrderedDict())
        state = self._attributes()
        if state:
            return _rebuild_parameter_with_state, (*arguments, state)
        return _rebuild_parameter, arguments


def _rebuild_parameter(data: Tensor, requires_grad: bool, backward_hooks: Any = None) -> Parameter:
    return Parameter(data, requires_grad)


def _rebuild_parameter_with_state(data: Tensor, requires_grad: bool, backward_hooks: Any, state: dict[str, Any]) -> Parameter:
    param = Parameter(data, requires_grad)
    param.__dict__.update(state)
    return param


class _BufferMeta(type(Tensor)):
    """Makes ``isinstance(tensor, Buffer)`` true of what `Buffer` returns, which is an ordinary tensor, marked."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is not Buffer:
            return super().__instancecheck__(instance)
        return isinstance(instance, Tensor) and getattr(instance, "_is_buffer", False)


class Buffer(Tensor, metaclass=_BufferMeta):
    """Marks a tensor so that it registers as a buffer when assigned to an attribute of a `Module`.

    Args:
        data: the values, shared; an empty tensor by default.
        persistent: whether the buffer is part of the module's state_dict.
    """

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Tensor:
        given: Any = fb.empty(0) if data is None else data
        marked = given.detach().requires_grad_(given.requires_grad)
        marked.persistent = persistent
        marked._is_buffer = True
        return marked


# What a tensor without a shape can do: be looked at, moved, and filled by loading.
_ALLOWED_UNINITIALIZED = frozenset(
    {
        "__hash__",
        "size",
        "copy_",
        "is_complex",
        "is_floating_point",
        "half",
        "float",
        "double",
        "char",
        "short",
        "int",
        "long",
        "cuda",
        "cpu",
        "to",
        "to_copy",                                    # which the others come to
        "get_device",
        "_has_compatible_shallow_copy_type",
        "__get__",
        "__set__",
    }
)


class UninitializedTensorMixin:
    """What the two kinds of tensor without a shape have in common."""

    __slots__ = ()
    cls_to_become: type = Tensor
    _plain_operand = False
    _overrides_ops = True  # all operations ask, so that one that needs values can say that there are none
    # Of the Tensor that the class is mixed with:
    device: Any
    dtype: Any

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Become an ordinary parameter or buffer of `shape`, with uninitialised values, in place."""
        data = fb.empty(
            shape,
            device=self.device if device is None else device,
            dtype=self.dtype if dtype is None else dtype,
        )
        self.data = data
        self.__class__ = self.cls_to_become

    def __len__(self) -> int:  # noqa: PLE0303  # there is no length yet
        raise_uninitialized(type(self), "__len__")

    @property
    def shape(self) -> Any:
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in `load_state_dict` when "
            "trying to load an uninitialized parameter into an initialized one. Call `forward` to initialize the parameters before "
            "accessing their attributes: the lazy module needs a sample batch first."
        )

    @property
    def data(self) -> Tensor:
        """An ordinary tensor without elements, of the dtype and on the device; assigning gives the parameter memory."""
        return fb.empty(0, dtype=self.dtype, device=self.device)

    @data.setter
    def data(self, value: Tensor) -> None:
        Tensor.data.__set__(cast(Tensor, self), value)

    @property
    def requires_grad(self) -> bool:
        """Whether the parameter is to be trained; may be set, though `requires_grad_` is refused."""
        return cast(Tensor, super()).requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise RuntimeError(f"requires_grad must be a bool, got {type(value).__name__}")
        Tensor.requires_grad_(cast(Tensor, self), value)

    def share_memory_(self) -> Any:
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters before calling "
            "`module.share_memory()`."
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, proto: int) -> Any:
        return type(self), (self.requires_grad,)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") not in _ALLOWED_UNINITIALIZED:
            raise_uninitialized(cls, getattr(func, "__name__", func))
        return _disabled(func, types, args, kwargs)


def raise_uninitialized(cls: type, name: Any) -> NoReturn:
    raise ValueError(
        f"Attempted to use an uninitialized parameter in {name}. This error happens when you are using a `LazyModule` or explicitly "
        f"manipulating `torch.nn.parameter.{cls.__name__}` objects. When using LazyModules Call `forward` with a dummy batch to "
        "initialize the parameters before calling torch functions"
    )


def _refused(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise_uninitialized(type(self), name)

    method.__name__, method.__doc__ = name, "Raises ValueError: there are no elements yet, and PyTorch's method of this name says so too."
    return method


# Methods that are no operations, and so do not ask the class of their operand.
for _name in (
    "bfloat16", "bool", "byte", "cdouble", "cfloat", "chalf", "type",
    "requires_grad_", "detach", "detach_", "retain_grad", "register_hook", "register_post_accumulate_grad_hook",
    "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_", "geometric_", "cauchy_", "log_normal_",
    "numel", "nelement", "item", "tolist", "numpy", "new_tensor", "dim", "view",
):  # fmt: skip
    setattr(UninitializedTensorMixin, _name, _refused(_name))


def is_lazy(param: Any) -> bool:
    """Whether `param` is a parameter or buffer whose shape is not known yet."""
    return isinstance(param, UninitializedTensorMixin)


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter whose shape the first call of its lazy module decides."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> UninitializedParameter:
        return Tensor._make_subclass(cls, fb.empty(0, device=device, dtype=dtype), requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> UninitializedParameter:
        if id(self) in memo:
            return memo[id(self)]
        copied = type(self)(self.requires_grad, self.device, self.dtype)
        memo[id(self)] = copied
        return copied


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer whose shape the first call of its lazy module decides."""

    cls_to_become = Tensor

    def __new__(cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True) -> UninitializedBuffer:
        made = Tensor._make_subclass(cls, fb.empty(0, device=device, dtype=dtype), requires_grad)
        made.persistent = persistent
        made._is_buffer = True
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> UninitializedBuffer:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, self.device, self.dtype, self.persistent)
        return memo[id(self)]


_entry.accept_on_fast_path(Parameter)
