"""The Tensor: an array, its tape node, and the storage record it shares with its views. No mathematics.

Methods that compute come from the op registry, which the first unknown name loads; each is made when it is first used and
kept on the class.
"""

from __future__ import annotations

import functools
import sys
from operator import index as as_index
from typing import TYPE_CHECKING, Any

import numpy as np

from flambeau_kernels import hot_calls

from . import _arrays, _inference, _state, _warn, devices, dtypes
from ._arrays import HeldArray, MetaArray
from ._errors import ValuesAreMissing, ValuesCannotBeRead
from ._kinds import KindArray
from ._names import names_by
from .autograd import engine, tape
from .autograd.tape import COUNT, STAMP
from .devices import CPU, META, Size, device, layout, strided
from .dtypes import dtype, from_numpy_dtype

ndarray = np.ndarray
_new = object.__new__


def _registry_attribute(name: str) -> Any:
    """The method `name` as declared by an op, or None."""
    if name.startswith("__"):
        return None
    from .ops import _derive

    first = not _derive._loaded
    found = _derive.method(name)
    # Loading the op modules may have put it on the class directly.
    return Tensor.__dict__.get(name) if found is None and first and not _derive.is_unbuilt(name) else found


def _no_attribute(name: str, owner: Any) -> AttributeError:
    """The error for an attribute that tensors lack; names PyTorch documents are noted for `swap.report()`."""
    from . import _missing

    if name.startswith("_") and (name.endswith("_") or not _missing.is_public(f"torch.Tensor.{name}")):
        # Probes of protocols, Python's and notebooks', are no questions about PyTorch.
        return AttributeError(f"torch.Tensor has no attribute {name!r}", name=name, obj=owner)
    return _missing.attribute_error("torch.Tensor", name, owner)


def _instance(cls: type) -> Any:
    """A new `cls`, whose slots are to be filled; noted if its class wants a say in operations."""
    made = _new(cls)
    if cls._overrides_ops:  # pyright: ignore[reportAttributeAccessIssue]  # a class of tensors
        _state.note_overriding()
    return made


class TensorMeta(type):
    """Finds derived methods on first use, and keeps calls of `Tensor(...)` off the way results are made."""

    def __getattr__(cls, name: str) -> Any:
        found = _registry_attribute(name)
        if found is None:
            raise _no_attribute(name, cls)
        if name not in Tensor.__dict__:
            setattr(Tensor, name, found)
        return found

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is Tensor:
            from .ops.creation.new import legacy_tensor

            return legacy_tensor(*args, **kwargs)
        made = cls.__new__(cls, *args, **kwargs)  # pyright: ignore[reportArgumentType, reportCallIssue]  # the arguments rule the other types out
        if issubclass(type(made), cls):  # what only counts as one, such as a marked parameter, was made by its own class
            made.__init__(*args, **kwargs)
        return made

    def __dir__(cls) -> list[str]:
        from .ops import _derive

        return sorted(name for name in {*type.__dir__(cls), *_derive.method_names()} if not _derive.is_unbuilt(name))


def no_torch_dispatch(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """The `__torch_dispatch__` of classes that do not answer operations: runs `func`."""
    return func(*args, **(kwargs or {}))


no_torch_dispatch.__name__ = no_torch_dispatch.__qualname__ = "_disabled_torch_dispatch_impl"


if TYPE_CHECKING:
    from ._tensor_methods import TensorMethods  # generated: what the registry derives
else:
    TensorMethods = object


class Tensor(TensorMethods, metaclass=TensorMeta):
    """A multi-dimensional array of one element type, with PyTorch's semantics."""

    __slots__ = ("_array", "_node", "_storage", "_gradient", "_view_of", "__dict__", "__weakref__")
    _array: Any
    _node: Any
    _storage: list[Any]
    _gradient: Tensor | None
    _view_of: Any  # for a view: (base, op, args, link of the view it was taken from)

    __array_priority__ = 1000
    _plain_operand = False  # whether operations take instances of a subclass for Tensors, whatever it inherits
    _overrides_ops = False  # whether instances of a subclass want a say in every operation, by `__torch_function__`
    _leaf: Any = None  # the node of a leaf that requires no gradient for now
    __torch_dispatch__ = staticmethod(no_torch_dispatch)
    _answer_op: Any = None  # what answers ops for a subclass, in place of `__torch_function__`: ``fn(op, args, out, inplace)``
    _answerer: Any = None  # what answers ops themselves for a wrapper's class, in place of operators; see `_dispatch.answered_by`
    is_nested = False
    is_mkldnn = False
    is_xla = is_mps = is_xpu = is_ipu = is_vulkan = is_hpu = is_mtia = is_maia = False

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Subclasses: ``Sub(data)`` and the legacy forms of ``Tensor(...)``."""
        from .ops.creation.new import legacy_tensor

        base = legacy_tensor(*args, **kwargs)
        if not base.is_leaf:
            return base.as_subclass(cls)
        return Tensor._make_subclass(cls, base, base.requires_grad)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__dict__.get("__module__", "").partition(".")[0] != "flambeau" or "__torch_function__" in cls.__dict__:
            cls._overrides_ops = not cls._plain_operand
            from ._subclass import make_overridable

            make_overridable(cls)
            # The room is complete, or not yet asked for: then it looks for the subclasses that there are.
            room = sys.modules.get("flambeau.multiprocessing")
            if room is not None and hasattr(room, "reductions"):
                room.reductions.register_subclass(cls)

    # A class with `__getattr__` reads even its slots ten times slower, so `_derive` takes this away once it knows every op.
    def __getattr__(self, name: str) -> Any:
        if name in _LATE:
            return None
        found = _registry_attribute(name)
        if found is None:
            raise _no_attribute(name, self)
        if name not in Tensor.__dict__:
            setattr(Tensor, name, found)
        return getattr(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*dir(type(self)), *self.__dict__})

    @staticmethod
    def _make_subclass(cls: Any, data: Tensor, require_grad: bool = False) -> Any:  # PyTorch's signature
        """A `cls` over the memory of `data`, without its history."""
        made = _instance(cls)
        made._array, made._storage, made._gradient, made._view_of = data._array, data._storage, None, None
        made._node = None
        if require_grad:
            made.requires_grad = True
        return made

    @staticmethod
    def _make_wrapper_subclass(cls: Any, size: Any, *args: Any, **kwargs: Any) -> Any:  # PyTorch's signature
        """A `cls` of `size` without memory, whose operations its `__torch_dispatch__` answers; see `_wrappers.make_wrapper_subclass`."""
        from ._wrappers import make_wrapper_subclass

        return make_wrapper_subclass(cls, size, *args, **kwargs)

    def as_subclass(self, cls: Any) -> Any:
        """The same values, memory and history as an instance of `cls`."""
        made = _instance(cls)
        made._array, made._storage, made._node, made._view_of, made._gradient = self._array, self._storage, self._node, self._view_of, None
        return made

    # -- what it is ------------------------------------------------------------------------------------------------------

    if TYPE_CHECKING:
        # The op registry makes these; type checkers are told that they exist.
        __eq__: Any
        __ne__: Any
        __add__: Any
        __radd__: Any
        __iadd__: Any
        __sub__: Any
        __rsub__: Any
        __isub__: Any
        __mul__: Any
        __rmul__: Any
        __imul__: Any
        __truediv__: Any
        __rtruediv__: Any
        __itruediv__: Any
        __floordiv__: Any
        __rfloordiv__: Any
        __mod__: Any
        __rmod__: Any
        __pow__: Any
        __rpow__: Any
        __matmul__: Any
        __rmatmul__: Any
        __and__: Any
        __rand__: Any
        __or__: Any
        __ror__: Any
        __xor__: Any
        __rxor__: Any
        __lshift__: Any
        __rshift__: Any
        __lt__: Any
        __le__: Any
        __gt__: Any
        __ge__: Any
        __neg__: Any
        __pos__: Any
        __abs__: Any
        __invert__: Any
        __getitem__: Any
        __setitem__: Any
        __torch_function__: Any

    if TYPE_CHECKING:

        @property
        def shape(self) -> Size:
            """The sizes of the dimensions; `_bind` makes it."""
            ...

    @property
    def dtype(self) -> dtype:
        """The type of the elements."""
        return _DTYPE_OF.get(self._array.dtype) or from_numpy_dtype(self._array.dtype)

    @property
    def device(self) -> device:
        """Where the memory is: ``cpu``, ``meta`` or ``cuda:0`` and so on."""
        return CPU if type(self._array) is ndarray else device_of(self._array)

    @property
    def _looks(self) -> Tensor:
        """Itself; of a result that is not computed yet a tensor that looks as it does, whose elements are not to be read."""
        return self

    @property
    def layout(self) -> layout:
        """How elements are arranged: `strided`, or the layout of a sparse tensor."""
        a = self._array
        return strided if a.__class__ is ndarray or not isinstance(a, KindArray) else a.layout

    @property
    def is_sparse(self) -> bool:
        """Whether elements are given by coordinates."""
        return self.layout is devices.sparse_coo

    @property
    def is_quantized(self) -> bool:
        """Whether elements are integers that stand for numbers."""
        return self.dtype.category == dtypes.QUANTIZED

    @property
    def is_sparse_csr(self) -> bool:
        """Whether rows are compressed."""
        return self.layout is devices.sparse_csr

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self._array.ndim

    def dim(self) -> int:
        """Number of dimensions."""
        return self._array.ndim

    ndimension = dim

    def size(self, dim: int | None = None, axis: int | None = None) -> Any:
        """The shape, or the extent of dimension `dim`, also called `axis`. Raises: IndexError when there is no such dimension."""
        if dim is None:
            if axis is None:
                return self.shape
            dim = axis
        elif axis is not None:
            raise TypeError("size() takes one dimension, but both dim and axis were given")
        shape = self._array.shape
        if dim.__class__ is int and -len(shape) <= dim < len(shape):
            return shape[dim]
        return shape[wrap_dim(dim, len(shape))] if shape else shape[wrap_dim(dim, 0)]

    def stride(self, dim: int | None = None, axis: int | None = None) -> Any:
        """Steps in memory between neighbours along each dimension, or along `dim`, also called `axis`; in elements."""
        if axis is not None:
            if dim is not None:
                raise TypeError("stride() takes one dimension, but both dim and axis were given")
            dim = axis
        a = self._array
        strides = hot_calls.steps(a)
        if strides is None and isinstance(a, KindArray):
            strides = a.stride()
        if strides is None:
            step = a.itemsize
            # Arrays that numpy has made without elements have no strides.
            there = type(a) is MetaArray or a.size or any(a.strides)
            strides = tuple([s // step for s in (a.strides if there else _arrays.contiguous_strides(a.shape, step))])
        return strides if dim is None else strides[wrap_dim(dim, len(strides))]

    def storage_offset(self) -> int:
        """Where the first element lies in the storage, in elements."""
        a = self._array
        if isinstance(a, MetaArray):
            return a.offset // a.itemsize
        if isinstance(a, KindArray):
            return a.storage_offset()
        if type(a) is not ndarray:
            return (a.data.ptr - a.data.mem.ptr) // a.itemsize
        buffer = self._storage[tape.BUFFER]
        if not a.size and not len(storage_buffer(self)):
            return 0
        return (hot_calls.address(a) - hot_calls.address(buffer if buffer.__class__ is ndarray else storage_buffer(self))) // a.itemsize

    def data_ptr(self) -> int:
        """Address of the first element, in bytes."""
        if _state.IN_FORCE:
            _state.settle()
        a = self._array
        if isinstance(a, KindArray):
            raise RuntimeError(f"data_ptr(): Cannot access data pointer of Tensor that doesn't have storage; it is {a.shown}")
        return (hot_calls.address(a) if a.__class__ is ndarray else _arrays.address(a)) if a.size else 0

    def numel(self) -> int:
        """Number of elements."""
        return self._array.size

    nelement = numel

    def element_size(self) -> int:
        """Bytes per element."""
        return self._array.itemsize

    @property
    def itemsize(self) -> int:
        """Size of an element, in bytes."""
        return self._array.itemsize

    @property
    def nbytes(self) -> int:
        """Size of all elements, in bytes; a view of a larger storage counts its own."""
        return int(self._array.size) * self._array.itemsize

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether elements lie in memory in the order of `memory_format` (row-major by default) without gaps."""
        a = self._array
        if isinstance(a, KindArray):
            return a.is_contiguous(memory_format)
        if memory_format is None or memory_format is devices.contiguous_format:
            return a.flags.c_contiguous if a.__class__ is ndarray else _arrays.is_c_contiguous(a)
        order = channels_last_order(memory_format, a.ndim)
        return order is not None and _arrays.strides_follow(a.shape, a.strides, a.itemsize, order)

    def is_floating_point(self) -> bool:
        """Whether the dtype is floating: float64, float32, or one of the halves and smaller."""
        return (_DTYPE_OF.get(self._array.dtype) or self.dtype).is_floating_point

    def is_complex(self) -> bool:
        """Whether the dtype is complex."""
        return (_DTYPE_OF.get(self._array.dtype) or self.dtype).is_complex

    def is_signed(self) -> bool:
        """Whether the dtype has negative values."""
        return self.dtype.is_signed

    def is_nonzero(self) -> bool:
        """Whether the single element is not zero. Raises: RuntimeError unless there is exactly one."""
        if self._array.size != 1:
            what = "no values" if self._array.size == 0 else "more than one value"
            raise RuntimeError(f"Boolean value of Tensor with {what} is ambiguous")
        return bool(self)

    def is_inference(self) -> bool:
        """Whether it was made in `inference_mode`, or is a view of a tensor that was."""
        return _inference.is_inference(self)

    def is_conj(self) -> bool:
        """False: conjugation is never deferred here."""
        return False

    def is_neg(self) -> bool:
        """False: negation is never deferred here."""
        return False

    def is_pinned(self, device: Any = None) -> bool:
        """Whether the memory is page-locked; without a GPU it never is."""
        return False

    def is_shared(self) -> bool:
        """Whether other processes may see the memory: after `share_memory_`, and always on a GPU."""
        if isinstance(self._array, KindArray):
            return all(part.is_shared() for part in self._array.parts)
        return self.untyped_storage().is_shared()

    def get_device(self) -> int:
        """Index of the device; -1 on the CPU and of meta tensors."""
        place = self.device
        return -1 if place.type in ("cpu", "meta") else (place.index or 0)

    @property
    def is_cuda(self) -> bool:
        """Whether the memory is on a CUDA device."""
        return type(self._array) is not ndarray and self.device.type == "cuda"

    @property
    def is_cpu(self) -> bool:
        """Whether the memory is the processor's."""
        return type(self._array) is ndarray or self.device.type == "cpu"

    @property
    def is_meta(self) -> bool:
        """Whether there is a shape and a dtype but no memory."""
        return type(self._array) is MetaArray

    @property
    def _lacks_values(self) -> bool:
        """Whether there is a shape and a dtype but no memory: on the meta device, or where a fake tensor stands for another."""
        return type(self._array) is MetaArray

    # -- autograd --------------------------------------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether operations on this tensor are recorded; may be set on leaves."""
        node = self._node
        if node is None or self._view_of is None or not (tape.is_of_nobody(node) or node.__class__ is tape.EarlierView):
            return node is not None
        return self._view_of[0]._node is not None         # a view that was made without recording goes by its base

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise RuntimeError(f"requires_grad must be a bool, got {type(value).__name__}")
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Record operations on this tensor from now on, or stop. Raises: RuntimeError for non-leaf or integer tensors."""
        if not isinstance(requires_grad, bool):
            raise TypeError(f"requires_grad_(): argument 'requires_grad' must be bool, not {type(requires_grad).__name__}")
        if _state.IN_FORCE:
            _state.settle()
        node = self._node
        if not self.is_leaf:
            if not requires_grad:
                raise RuntimeError(
                    "you can only change requires_grad flags of leaf variables. If you want to use a computed variable "
                    "in a subgraph that doesn't require differentiation use var_no_grad = var.detach()."
                )
            return self
        if not requires_grad:
            self._rest()
        elif node is None or tape.is_of_nobody(node):
            _inference.refuse_grad(self)
            if from_numpy_dtype(self._array.dtype).category < dtypes.FLOATING:
                raise RuntimeError(f"only Tensors of floating point dtype can require gradients, got {self.dtype}")
            self._node = tape.leaf_node(self) if self._leaf is None else self._leaf
            self._gradient = getattr(self, "_gradient", None)
            for ref in self._storage[tape.VIEWS] or ():
                from .ops import _derive

                view = ref()
                if view is not None and view._view_of is not None and view._view_of[0] is self and view._node is None:
                    view._node = _derive.earlier_view(view, self)
        return self

    def _joined(self) -> Any:
        """The node, of a view that has joined its base's history since that of its place there."""
        node = self._node
        if node.__class__ is tape.EarlierView and node.joined:
            node = self._node = node.place
        return node

    def _rest(self) -> None:
        """Require no gradient from now on; the node of a leaf waits, with its hooks, until one is required again."""
        node = self._node
        if node is not None:
            self._node = None
            if type(node) is tape.Leaf and not tape.is_of_nobody(node):
                self._leaf = node

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded operation made this tensor; leaves that require grad are where `.grad` arrives."""
        node = self._node
        kind = node.__class__
        return node is None or kind is tape.Leaf or kind is tape.EarlierView and not node.joined

    @property
    def grad_fn(self) -> Any:
        """The recorded operation that made this tensor, a `Node`; None for a leaf."""
        node = self._node
        if node.__class__ is tape.EarlierView:
            node = self._joined() if node.joined else None
        if node is None or type(node) is tape.Leaf:
            return None
        if "_retains_grad" in self.__dict__:
            self.__dict__["_retains_grad"].settle(True)
        return tape.shown(node.parents[0] if type(node) is tape.OutputNode else node)

    @property
    def output_nr(self) -> int:
        """Which result of `grad_fn` this tensor is, from 0."""
        return self._node.index if type(self._node) is tape.OutputNode else 0

    @property
    @names_by("unnamed")
    def grad(self) -> Tensor | None:
        """The gradient that `backward` has added up, or None; of a leaf, or after `retain_grad`."""
        try:
            grad = self._gradient
        except AttributeError:  # what operations make has no gradient, and may save storing that
            grad = self._gradient = None
        node = self._node
        if grad is None and node is not None and type(node) is not tape.Leaf and not self.retains_grad and not self.is_leaf:
            _warn.warn(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
                "populated during autograd.backward(); call .retain_grad() on it before, or use the leaf"
            )
        return grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            _check_grad(self, value)
        if _state.IN_FORCE:
            _state.settle()                           # a recording does not show it
        self._gradient = value

    @grad.deleter
    def grad(self) -> None:
        if _state.IN_FORCE:
            _state.settle()
        self._gradient = None

    _grad = grad

    @property
    @names_by("unnamed")
    def _base(self) -> Tensor | None:
        return None if self._view_of is None else self._view_of[0]

    def _is_view(self) -> bool:
        return self._view_of is not None

    @property
    def _version(self) -> int:
        if _inference.is_inference(self):
            raise RuntimeError("Inference tensors do not track version counter.")
        return self._storage[COUNT]

    @property
    @names_by("keep")
    def data(self) -> Tensor:
        """A tensor over the same memory without history; assigning puts other memory in the place of this tensor's."""
        made = wrap(self._array)
        if MARKED:
            made._storage = _inference.record_beside(self)
        buffer = self._storage[tape.BUFFER]
        if not isinstance(self._array, KindArray):
            made._storage[tape.BUFFER] = storage_buffer(self) if buffer is None else buffer
        if type(self) is not Tensor and not getattr(type(self), "_plain_operand", False):
            made = made.as_subclass(type(self))
        return made

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
        if self._node is not None and value.dtype.category < dtypes.FLOATING:
            raise RuntimeError("data set to a tensor that requires gradients must be floating point or complex dtype")
        if _state.IN_FORCE:
            _state.settle()
        # The memory is that of `value`, but how often it was written is counted for this tensor and its views.
        self._array, self._storage = value._array, [self._storage[COUNT], self._storage[STAMP], value._storage[tape.BUFFER], None]

    @data.deleter
    def data(self) -> None:
        raise RuntimeError("Deleting tensor data is not allowed. Delete tensor instead.")

    def backward(self, gradient: Any = None, retain_graph: Any = None, create_graph: bool = False, inputs: Any = None) -> None:
        """Add the gradient of this tensor to the `.grad` of the leaves it was computed from.

        Args:
            gradient: what arrives here, of this shape; 1 for a single element by default.
            retain_graph, create_graph, inputs: as for `autograd.backward`.
        Raises: RuntimeError when nothing requires grad, or without `gradient` for more than one element.
        """
        interpreted = _state.IN_FORCE and _state.interpreted()
        if gradient is None and inputs is None and not create_graph and not interpreted and self._array.size == 1:
            node = self._node
            if node is not None and type(self._array) is ndarray and self._array.dtype.kind == "f":
                one = np.empty(self._array.shape, self._array.dtype)
                one[...] = 1
                engine.run_backward([(node, one)], bool(retain_graph), False)
                return
        from .autograd import backward

        backward(self, gradient, retain_graph, create_graph, inputs=inputs)

    @names_by("keep")
    def detach(self) -> Tensor:
        """The same memory, without history; in-place changes are seen on both sides."""
        if _state.IN_FORCE and _state.interpreted():
            from .ops import _dispatch

            return _dispatch.detach(self)
        return without_history(self)

    def detach_(self) -> Tensor:
        """Forget the history of this tensor itself. Raises: RuntimeError for a view."""
        if self._view_of is not None:
            raise RuntimeError("Can't detach views in-place. Use detach() instead, which gives a tensor without history.")
        if _state.IN_FORCE:
            _state.settle()
        if not self.is_leaf:
            tape.note_detached(self)
        self._rest()
        return self

    def retain_grad(self) -> None:
        """Keep the gradient of this non-leaf tensor in `.grad`. Raises: RuntimeError if it does not require grad."""
        node = self._joined()
        if node is None:
            raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
        if self.is_leaf or self.retains_grad:
            return
        self.__dict__["_retains_grad"] = tape.Retained(self)  # pyright: ignore[reportIndexIssue]  # an instance's

    @property
    def retains_grad(self) -> bool:
        """Whether `retain_grad` was called, so that `.grad` arrives though this is no leaf."""
        return "_retains_grad" in self.__dict__

    def register_hook(self, hook: Any) -> tape.RemovableHandle:
        """Call ``hook(grad)`` when the gradient of this tensor is computed; a returned Tensor replaces it.

        Raises: RuntimeError if the tensor does not require grad.
        """
        node = self._joined()
        if node is None:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        return tape.add_hook(node, "tensor", hook)

    def register_post_accumulate_grad_hook(self, hook: Any) -> tape.RemovableHandle:
        """Call ``hook(param)`` after `.grad` of this leaf has been added to. Raises: RuntimeError for a non-leaf."""
        if self._node is None:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        if type(self._node) is not tape.Leaf:
            raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
        return tape.add_hook(self._node, "accumulated", hook)

    @property
    def _backward_hooks(self) -> Any:
        """The hooks of `register_hook` by their number, an OrderedDict, or None; may be set."""
        node = self._leaf if self._node is None else self._node
        return None if node is None or not node.hooks else node.hooks.get("tensor")

    @_backward_hooks.setter
    def _backward_hooks(self, value: Any) -> None:
        node = self._leaf if self._node is None else self._node
        if node is None:
            if not value:
                return
            node = self._leaf = tape.leaf_node(self)
        tape.set_hooks(node, "tensor", value)

    # -- leaving for Python and other libraries --------------------------------------------------------------------------

    def item(self) -> Any:
        """The only element, as a Python number. Raises: RuntimeError unless there is exactly one."""
        if _state.IN_FORCE:
            _state.note_python()
        a = self._array
        if a.__class__ is ndarray and a.size == 1:
            value = a.item()
            if value.__class__ in _PYTHONS:
                return value
        if a.size != 1:
            raise RuntimeError(f"a Tensor with {a.size} elements cannot be converted to Scalar")
        if type(a) is MetaArray:
            raise ValuesAreMissing("Tensor.item() cannot be called on meta tensors")
        if type(a) is HeldArray:
            from ._wrappers import item

            return item(self)
        if isinstance(a, KindArray):
            return a.plain("item").item()
        return _plain(a).item()

    def tolist(self) -> Any:
        """Nested lists of Python numbers; a plain number for a 0-d tensor."""
        if _state.IN_FORCE:
            _state.note_python()
        if type(self._array) is MetaArray:
            raise ValuesCannotBeRead("Cannot copy out of meta tensor; no data!")
        if isinstance(self._array, KindArray):
            raise RuntimeError(f"tolist(): {self._array.shown} has no storage to read; use {self._array.dense}.tolist()")
        return _plain(self._array).tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """The values as a numpy array over the same memory.

        `force=True` detaches and copies from other devices first.
        Raises: RuntimeError if it requires grad and operations are recorded; TypeError if not on the CPU or numpy has no such dtype.
        """
        if force:
            return self.detach().cpu().numpy()
        if self._node is not None and _state.grad_enabled():
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        if isinstance(self._array, KindArray):
            raise TypeError(f"can't convert {self._array.shown} to numpy. Use {self._array.dense} first.")
        if type(self._array) is not ndarray:
            raise TypeError(
                f"can't convert {self.device} device type tensor to numpy. "
                "Use Tensor.cpu() to copy the tensor to host memory first."
            )
        if self._array.dtype.isbuiltin != 1:
            raise TypeError(f"Got unsupported ScalarType {self.dtype}: convert it with .float() or .to(torch.complex64)")
        if _state.IN_FORCE:
            _state.settle_shared(self._array)
        # A view, because a caller may set the shape or the flags of what is his.
        return self._array.view()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Where the memory is on a CUDA device, for cupy, numba.cuda and others to use without a copy.

        Raises: AttributeError for a tensor that is not on one; RuntimeError for one that requires grad.
        """
        if not hasattr(self._array, "__cuda_array_interface__"):
            raise AttributeError(
                f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {self.type()} Use tensor.cuda() to move it to a device first"
            )
        if self._node is not None:
            raise RuntimeError("Can't get __cuda_array_interface__ on a tensor that requires grad; use tensor.detach() first")
        return self._array.__cuda_array_interface__

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        array = np.asarray(array)
        return wrap(array.astype(np.uint8) if array.dtype.char == "?" else array)  # as PyTorch, which answered so before it had bools

    def __buffer__(self, flags: int) -> memoryview:
        return memoryview(self.numpy())

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None) -> Any:
        from . import _dlpack

        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        if type(self._array) is MetaArray:
            raise BufferError("Cannot pack tensors on meta: they have no data")
        if self.layout is not devices.strided:
            raise BufferError(f"Can't export tensors with layout other than torch.strided, and this one's is {self.layout}")
        if _state.IN_FORCE:
            _state.settle()
        here = _dlpack.device_of(self._array)
        if here[0] == 1 and stream is not None and stream != -1:
            raise AssertionError(f"stream should be None on cpu, got {stream!r}")
        if dl_device is not None and tuple(dl_device) != here:
            if copy is False:
                raise ValueError(f"cannot move DLPack device {here} to {tuple(dl_device)} without copying, and copy=False was given")
            return _dlpack.moved(self, dl_device).__dlpack__(max_version=max_version)
        options = {"stream": None if here[0] == 1 else stream, "max_version": max_version, "copy": copy}
        return _dlpack.capsule_of(self._array, **{k: v for k, v in options.items() if v is not None})

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The namespace of the array API standard, in the version of 2024.12, which has the earlier ones' names too.

        Raises: ValueError for a version that is not known here.
        """
        import importlib

        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise ValueError(f"__array_namespace__: version {api_version!r} of the array API is not known here, 2024.12 is the newest")
        return importlib.import_module("flambeau.array_api")

    @names_by("keep")
    def to_device(self, device: Any, /, *, stream: Any = None) -> Tensor:
        """The tensor on `device`, as the array API says it; see `to`. Raises: ValueError for a stream, which PyTorch's streams set."""
        if stream is not None:
            raise ValueError("to_device: streams are chosen by cuda.stream(...), not by an argument")
        return self.to(device)

    def __dlpack_device__(self) -> Any:
        from . import _dlpack

        return _dlpack.device_of(self._array)

    def __bool__(self) -> bool:
        if _state.IN_FORCE:
            _state.note_python()
        a = self._array
        if a.__class__ is ndarray and a.size == 1 and a.dtype.isbuiltin == 1:
            return bool(a.item())
        if a.size == 1:
            return bool(self.item())
        if a.size == 0:
            raise RuntimeError("Boolean value of Tensor with no values is ambiguous")
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous; use any() or all()")

    def __int__(self) -> int:
        if _state.IN_FORCE:
            _state.note_python()
        a = self._array
        if a.__class__ is ndarray and a.size == 1:
            value = a.item()
            if value.__class__ in _REALS:
                return int(value)
        return int(self._real_number("int"))

    def __float__(self) -> float:
        if _state.IN_FORCE:
            _state.note_python()
        if self._node is not None:
            warn_of_recorded()
        a = self._array
        if a.__class__ is ndarray and a.size == 1:
            value = a.item()
            if value.__class__ in _REALS:
                return float(value)
        return float(self._real_number("float"))

    def __complex__(self) -> complex:
        if self._node is not None:
            warn_of_recorded()
        return complex(_single(self).item())

    def _real_number(self, kind: str) -> Any:
        value = _single(self).item()
        if isinstance(value, complex):
            if value.imag:
                raise RuntimeError(f"value cannot be converted to type {kind} without overflow: {value} is not real")
            return value.real
        return value

    def __index__(self) -> int:
        if self._array.size != 1 or self.dtype.category > dtypes.INTEGER:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __reversed__(self) -> Tensor:
        """The tensor with its first dimension in reverse order."""
        return self if self._array.ndim == 0 else self.flip(0)

    def __len__(self) -> int:
        if self._array.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return self._array.shape[0]

    def __delitem__(self, key: Any) -> None:
        raise TypeError("a Tensor cannot lose elements: make a smaller one by indexing or with cat(), as x[:2] or x[mask]")

    def __iter__(self) -> Any:
        if self._array.ndim == 0:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))

    def __contains__(self, element: Any) -> bool:
        if isinstance(element, (Tensor, int, float, complex, bool, np.number)):
            return bool((self == element).any().item())
        raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")

    __hash__ = object.__hash__

    def __format__(self, spec: str) -> str:
        if self._array.ndim == 0 and type(self._array) is not MetaArray and type(self) is Tensor:
            return format(self.item(), spec)
        return object.__format__(self, spec)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        from ._printing import tensor_repr

        return tensor_repr(self)

    def _repr_html_(self) -> str:
        """What notebooks show: facts, a histogram and the numbers."""
        from ._html import tensor_html

        return tensor_html(self)

    def __reduce_ex__(self, protocol: int) -> Any:
        reduced = None if _state.reducer is None else _state.reducer(self)
        if reduced is not None:
            return reduced
        tape.warn_if_has_hooks(self)
        if isinstance(self._array, KindArray):
            return rebuild_kind, (type(self), *self._array.rebuilding(), self.requires_grad, self._attributes() or None)
        return rebuild, (
            type(self),
            None if type(self._array) is MetaArray else np.ascontiguousarray(_on_host(self._array)).tobytes(),
            self.dtype,
            tuple(self._array.shape),
            self._array.dtype.itemsize and self.stride() if _arrays.is_dense(self._array) else None,
            str(self.device),
            self.requires_grad,
            self._attributes() or None,
        )

    def __copy__(self) -> Any:
        if type(self).__reduce_ex__ is Tensor.__reduce_ex__:
            tape.warn_if_has_hooks(self)
        made = _instance(type(self))
        made._array, made._storage, made._view_of, made._gradient, made._node = self._array, self._storage, None, None, None
        if self.requires_grad:
            made.requires_grad_(True)
        made.__dict__.update(self._attributes())  # pyright: ignore[reportAttributeAccessIssue]  # an instance's
        return made

    def _attributes(self) -> dict[str, Any]:
        """What copies take over of the instance's attributes: those that say nothing about its own history."""
        return {name: value for name, value in self.__dict__.items() if name not in _OF_HISTORY}

    @names_by("keep")
    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment."
            )
        from copy import deepcopy

        made = _instance(type(self))
        memo[id(self)] = made
        made._array, made._storage = _copy_storage(self, memo)
        made._view_of = None
        made._node = None
        made._gradient = None if self.grad is None else deepcopy(self._gradient, memo)
        if self.requires_grad:
            made.requires_grad_(True)
        made.__dict__.update(deepcopy(self._attributes(), memo))  # pyright: ignore[reportAttributeAccessIssue]  # an instance's
        return made

    # -- memory ----------------------------------------------------------------------------------------------------------

    def untyped_storage(self) -> Any:
        """The bytes this tensor and its views share. Raises: NotImplementedError where there are none, as for sparse tensors."""
        if isinstance(self._array, KindArray):
            return self._array.memory().untyped_storage()
        if _state.IN_FORCE:
            _state.settle()
        return _storages().storage_of(self)

    def storage(self) -> Any:
        """The shared memory seen as elements of this tensor's dtype; deprecated in PyTorch."""
        _warn.warn_once(
            "TypedStorage is deprecated, and UntypedStorage will be the only storage class; use tensor.untyped_storage() instead of "
            "tensor.storage()"
        )
        return self._typed_storage()

    def _typed_storage(self) -> Any:
        """`storage`, under the name that warns nobody."""
        from .storage import TypedStorage

        if isinstance(self._array, KindArray):
            return TypedStorage._wrap(self._array.memory().untyped_storage(), self.dtype)
        if _state.IN_FORCE:
            _state.settle()
        return TypedStorage._of(self)


    def storage_type(self) -> Any:
        """The class of storages of this dtype, ``FloatStorage`` and the like."""
        from .storage import storage_class

        return storage_class(self.dtype)

    def dim_order(self, *, ambiguity_check: bool = False) -> tuple[int, ...]:
        """Dimensions from the slowest to the fastest in memory. Raises: RuntimeError if asked to refuse an ambiguous order."""
        steps = self.stride()
        order = tuple(sorted(range(self._array.ndim), key=lambda d: -steps[d]))
        if ambiguity_check and len({s for s, n in zip(steps, self._array.shape, strict=True) if n != 1}) < self._array.ndim:
            raise RuntimeError(f"The tensor does not have unique dim order: shape {tuple(self.shape)}, stride {steps}")
        return order

    def is_set_to(self, tensor: Tensor) -> bool:
        """Whether both look at the same elements of the same storage."""
        if not isinstance(tensor, Tensor):
            raise TypeError(f"is_set_to(): argument 'tensor' (position 1) must be Tensor, not {type(tensor).__name__}")
        return (
            storage_buffer(self) is storage_buffer(tensor)
            and self.shape == tensor.shape
            and self.stride() == tensor.stride()
            and self.storage_offset() == tensor.storage_offset()
        )

    def share_memory_(self) -> Tensor:
        """Move the storage to memory that other processes can map. Raises: RuntimeError for meta tensors."""
        if isinstance(self._array, KindArray):
            for part in self._array.parts:
                part.share_memory_()
            return self
        self.untyped_storage().share_memory_()
        return self

    def pin_memory(self, device: Any = None) -> Tensor:
        """Page-locked copy for fast transfers. Raises: RuntimeError when there is no GPU to transfer to."""
        raise RuntimeError("pin_memory: cannot pin memory, no CUDA device is available")

    def record_stream(self, s: Any) -> None:
        """Keep this tensor's memory, once it is let go of, from other tensors until the work of the stream `s` is done.

        Raises: NotImplementedError on the CPU and meta devices, which have no streams; RuntimeError for what is no stream.
        """
        from ._streams import record_stream

        record_stream(self, s)

    def xpu(self, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Tensor:
        """A copy on an XPU, which `non_blocking` need not wait for. Raises: AssertionError: there is no such device."""
        from ._no_device import refusal

        raise refusal("Tensor.xpu", "xpu", AssertionError)

    def to_mkldnn(self, dtype: Any = None) -> Tensor:
        """Raises: NotImplementedError: tensors have one layout, which all kernels here take."""
        raise NotImplementedError("Tensor.to_mkldnn: the layout of oneDNN is not built; use the tensor as it is")

    def set_(self, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
        """Look at the memory of `source` (a Tensor or storage) instead.

        Args:
            storage_offset, size, stride: in elements; those of `source`, or one dimension over a whole
                storage, by default.
        """
        from .storage import set_storage

        if _state.IN_FORCE:
            _state.settle()
        return set_storage(self, source, storage_offset, size, stride)

    def resize_(self, *sizes: Any, size: Any = None, memory_format: Any = None) -> Tensor:
        """Change the shape to `sizes` (or `size`) in place, growing the storage when needed; new elements are uninitialised."""
        from .storage import resize

        if _state.IN_FORCE:
            _state.settle()
        if (size is None) is not bool(sizes) or sizes and isinstance(sizes[0], bool):
            given = sizes if size is None else (*sizes, size)
            raise TypeError(f"resize_(): argument 'size' (position 1) must be tuple of ints, and be given once, got {given}")
        if size is None:
            size = sizes if len(sizes) != 1 or isinstance(sizes[0], (int, np.integer, Tensor)) else sizes[0]
        return resize(self, size, memory_format)

    def resize_as_(self, the_template: Tensor, memory_format: Any = None) -> Tensor:
        """`resize_` to the shape of `the_template`; of sparse tensors, `sparse_resize_`."""
        if isinstance(self._array, KindArray):
            return self.sparse_resize_(tuple(the_template.shape), the_template.sparse_dim(), the_template.dense_dim())  # pyright: ignore[reportAttributeAccessIssue]  # made on first use
        return self.resize_(tuple(the_template.shape), memory_format=memory_format)


_LATE = frozenset(("_gradient", "_view_of", "_node"))
_OF_HISTORY = frozenset(("_leaf", "_retains_grad"))   # attributes that belong to this tensor alone
_DTYPE_OF = dtypes._OF_NUMPY
_REALS = frozenset((float, int, bool))
_PYTHONS = _REALS | {complex}                         # what an array of a dtype of numpy's own has for items
Tensor.__module__ = "flambeau"


MARKING = MARKED = False                              # kept by `_state.share`


def wrap(array: Any, node: Any = None) -> Tensor:
    """A Tensor over `array`, with history `node`."""
    if array.__class__ is HeldArray:
        from ._wrappers import restored

        return restored(array, node)
    made = _new(Tensor)
    made._array = array
    made._node = node
    made._storage = _inference.new_record() if MARKING else [0, 0, None, None]
    made._view_of = None
    return made


_state.share(globals(), "MARKING", "MARKED")
_state.on_marking = hot_calls.objects_by_caller
engine._wrap = wrap


def _shape(tensor: Tensor) -> Size:
    """The sizes of the dimensions, a `Size`, which is a tuple."""
    return tuple.__new__(Size, tensor._array.shape)


def _bind() -> None:
    """Let `Tensor.shape` be what reads it soonest: the launcher, while there is one.

    Those who override functions know properties by themselves, so once they are about, it stays the one it is.
    """
    if "flambeau._subclass" in sys.modules or "flambeau.overrides" in sys.modules:
        return
    Tensor.shape = property(hot_calls.sizes_of, doc=_shape.__doc__)  # pyright: ignore[reportAttributeAccessIssue]  # made here


hot_calls.of_class(
    hot_calls.Objects(
        Tensor,
        {"array": "_array", "record": "_storage", "node": "_node", "link": "_view_of", "grad": "_gradient"},
        Size, _shape, _bind, (tape.Leaf, "tensor", tape.nobody),
    ),
    wrap,
)


def without_history(tensor: Tensor) -> Tensor:
    """A plain Tensor over the same memory that nothing is recorded for."""
    if tensor._array.__class__ is HeldArray:
        return wrap(tensor._array)
    made = _new(Tensor)
    made._array, made._node, made._storage, made._view_of = tensor._array, None, tensor._storage, None
    return made


def warn_of_recorded() -> None:
    _warn.warn_once(
        "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior: gradients do not go through numbers. "
        "Call detach() first, or item()"
    )


def bump(tensor: Tensor) -> None:
    """Note that the memory of `tensor` has been written."""
    record = tensor._storage
    record[COUNT] += 1
    record[STAMP] = _state.next_seq()


def _single(tensor: Tensor) -> Tensor:
    """`tensor` if it has one element. Raises: ValueError."""
    if tensor._array.size != 1:
        raise ValueError(f"only one element tensors can be converted to Python scalars; this one has shape {tuple(tensor.shape)}")
    return tensor


def _on_host(array: Any) -> Any:
    """`array`, copied from its device if it has one."""
    return array if isinstance(array, ndarray) else array.get()


def _plain(array: Any) -> Any:
    """`array` on the host in a dtype whose items are Python numbers."""
    if type(array) is not ndarray:
        array = _on_host(array)
    if array.dtype.isbuiltin == 1:
        return array
    return array.astype(np.complex64 if from_numpy_dtype(array.dtype).is_complex else np.float32)


def wrap_dim(dim: int, ndim: int) -> int:
    """`dim` counted from the front. Raises: IndexError outside ``[-ndim, ndim - 1]`` (a 0-d tensor counts as 1-d)."""
    span = ndim or 1
    if dim.__class__ is not int:
        try:
            given, dim = dim, as_index(dim)
        except TypeError:
            raise TypeError(f"argument 'dim' must be int, not {type(dim).__name__}") from None
        if isinstance(given, bool) or isinstance(given, Tensor) and given.dtype.category == dtypes.BOOL:
            raise TypeError(f"argument 'dim' must be int, not {'Tensor of ' * isinstance(given, Tensor)}bool")
    if not -span <= dim < span:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-span}, {span - 1}], but got {dim})")
    return dim + span if dim < 0 else dim


def device_of(array: Any) -> device:
    if isinstance(array, ndarray):
        return CPU
    if type(array) is MetaArray:
        return META
    if hasattr(array, "place"):
        return array.place
    return device("cuda", array.device.id)


def channels_last_order(memory_format: Any, ndim: int) -> tuple[int, ...] | None:
    """Dimensions from the fastest to the slowest, or None if `memory_format` has another number of dimensions."""
    if not isinstance(memory_format, devices.memory_format):
        raise TypeError(f"argument 'memory_format' must be torch.memory_format, not {type(memory_format).__name__}")
    if memory_format.name == "channels_last":
        return (1, 3, 2, 0) if ndim == 4 else None
    if memory_format.name == "channels_last_3d":
        return (1, 4, 3, 2, 0) if ndim == 5 else None
    raise RuntimeError(f"unsupported memory format {memory_format}")


@functools.cache
def _storages() -> Any:
    """The module `storage`: files ask for the storage of every tensor, and an import within a function takes longer than that."""
    from . import storage

    return storage


def storage_buffer(tensor: Tensor) -> Any:
    """The whole memory behind `tensor` as a uint8 array, made once per storage."""
    record = tensor._storage
    buffer = record[tape.BUFFER]
    if buffer is None or buffer.__class__ is tuple:
        # A tuple begins with a view of the array that was given to `from_numpy`: the storage begins where it does, not where its base does.
        buffer = record[tape.BUFFER] = _arrays.bytes_of(_arrays.root_of(tensor._array) if buffer is None else buffer[0])
    return buffer


def rebuild_kind(cls: Any, make: Any, parts: Any, grad: bool, attributes: Any) -> Any:
    """Unpickle a tensor whose array is no strided memory: what ``make(*parts)`` gives, as `cls`."""
    made = _instance(cls)
    made._array, made._node, made._storage = make(*parts)._array, None, _inference.new_record()
    made._gradient = made._view_of = None
    if grad:
        made.requires_grad_(True)
    if attributes:
        made.__dict__.update(attributes)
    return made


def rebuild(cls: Any, data: Any, dtype: Any, shape: Any, stride: Any, place: str, grad: bool, attributes: Any) -> Any:
    """Unpickle a tensor from its bytes in row-major order."""
    if data is None:
        array: Any = MetaArray(shape, dtype.numpy)
    else:
        values = np.frombuffer(bytearray(data), dtype.numpy).reshape(shape)
        array = values
        if stride is not None and not (values.size and tuple(s // values.itemsize for s in values.strides) == stride):
            order = sorted(range(len(shape)), key=lambda d: -stride[d])
            array = _arrays.strided_empty(tuple(shape), dtype.numpy, order)
            array[...] = values
    made = _instance(cls)
    made._array, made._node, made._storage, made._gradient, made._view_of = array, None, _inference.new_record(), None, None
    if place.startswith("cuda"):
        made = made.to(place)
    if grad:
        made.requires_grad_(True)
    if attributes:
        made.__dict__.update(attributes)
    return made


def one_memory(x: Tensor, y: Tensor) -> bool:
    """Whether both look at one storage, as far as their records tell."""
    v, w = x._storage, y._storage
    return v is w or v[tape.BUFFER] is not None and v[tape.BUFFER] is w[tape.BUFFER]


def _copy_storage(tensor: Tensor, memo: dict[int, Any]) -> Any:
    """Copy the whole storage once per deepcopy, so that tensors that shared memory still do."""
    array = tensor._array
    if isinstance(array, KindArray):
        return array.copy(), _inference.new_record()
    if type(array) is not ndarray:
        made = MetaArray(array.shape, _arrays.plain_dtype(array.dtype), array.strides) if tensor._lacks_values else array.copy()
        return made, _inference.new_record()
    memory = storage_buffer(tensor)
    key = ("flambeau storage", id(memory))
    if key not in memo:  # type: ignore[comparison-overlap]
        buffer = memory.copy()
        memo[key] = (buffer, [*_inference.new_record()[:2], buffer, None], memory)  # type: ignore[index]
    buffer, record, _ = memo[key]  # type: ignore[index]
    return _arrays.restride(array, array.shape, array.strides, tensor.storage_offset() * array.itemsize, buffer), record


def _check_grad(tensor: Tensor, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"assigned grad expected to be a Tensor or None but got grad of type {type(value).__name__}")
    if value is tensor:
        raise RuntimeError("can't assign Variable as its own grad")
    if value._array.dtype != tensor._array.dtype:
        raise RuntimeError(f"assigned grad has data of a different type: tensor {tensor.dtype}, grad {value.dtype}")
    if value._array.shape != tensor._array.shape:
        raise RuntimeError(
            f"assigned grad has data of a different size: tensor {tuple(tensor.shape)}, grad {tuple(value.shape)}"
        )
    if value.device != tensor.device:
        raise RuntimeError(f"assigned grad has data located on a different device: {tensor.device} and {value.device}")
