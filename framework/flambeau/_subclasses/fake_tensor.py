"""`FakeTensor`: a tensor with a shape, a dtype, strides and the device it would be on, and no memory; `FakeTensorMode` makes them.

A fake tensor lies on the meta device and remembers another one. While the mode answers an op, its operands say that they are on
meta, so ops do with them what they do with meta tensors; the results are made fake again, on the device that the operands share.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from .. import _arrays, _aten, _state
from .._arrays import MetaArray
from .._errors import ShapeDependsOnValues, ValuesAreMissing
from .._symbolic import fresh
from ..autograd.tape import COUNT
from ..devices import CPU, META
from ..devices import device as Device
from ..dtypes import get_default_dtype
from ..nn.parameter import Parameter
from ..ops import _dispatch, _makers
from ..ops._spec import Op
from ..ops.creation import convert
from ..overrides import TorchFunctionMode
from ..tensor import Tensor, wrap
from ..utils import _pytree as pytree
from ..utils._python_dispatch import TorchDispatchMode, seen_as

__all__ = [
    "DataDependentOutputException", "DynamicOutputShapeException", "FakeTensor", "FakeTensorConverter",
    "FakeTensorDeviceMismatchError", "FakeTensorMode", "MetadataMismatchError", "UnsupportedFakeTensorException",
    "UnsupportedOperatorException", "unset_fake_temporarily",
]  # fmt: skip

_local = _state.local


class UnsupportedFakeTensorException(RuntimeError):
    """A tensor that no fake tensor can stand for."""


class DynamicOutputShapeException(RuntimeError):
    """Values, which fake tensors have not, decide the shape of the result of the operator `func`."""

    def __init__(self, func: Any) -> None:
        super().__init__(str(func))
        self.func = func


class DataDependentOutputException(RuntimeError):
    """The result of the operator `func` is a value, which fake tensors have not."""

    def __init__(self, func: Any) -> None:
        super().__init__(str(func))
        self.func = func


class UnsupportedOperatorException(RuntimeError):
    """The operator `func` has nothing that says the shape of its result."""

    def __init__(self, func: Any) -> None:
        super().__init__(str(func))
        self.func = func


class MetadataMismatchError(RuntimeError):
    """A fake tensor and the tensor it stands for differ in more than values."""


class FakeTensorDeviceMismatchError(RuntimeError):
    """Operands are on several devices."""


class _Answering(threading.local):
    depth = 0                                         # modes of this thread that answer an op: fake tensors say that they are on meta
    asked = False                                     # whether anybody else asked a fake tensor whether it lacks values


_answering = _Answering()


@contextlib.contextmanager
def _as_meta() -> Iterator[None]:
    """A region in which fake tensors are plain tensors of the meta device, and new tensors are made there."""
    calls = _local.calls
    _answering.depth += 1
    calls.classes_off += 1
    modes, calls.modes = calls.modes, ()
    before = _state.set_stand_in(META)
    try:
        yield
    finally:
        _state.set_stand_in(before)
        calls.modes = modes
        calls.classes_off -= 1
        _answering.depth -= 1


@contextlib.contextmanager
def unset_fake_temporarily() -> Iterator[Any]:
    """A region in which no FakeTensorMode is in force; gives the innermost one that was, or None."""
    calls = _local.calls
    stack, modes = calls.interpreters, calls.modes
    found = next((m for m in reversed(stack) if isinstance(m, FakeTensorMode)), None)
    calls.interpreters = tuple([m for m in stack if not isinstance(m, FakeTensorMode)])
    calls.modes = tuple([m for m in modes if not isinstance(m, _Makers)])
    before = _state.set_stand_in(None)
    try:
        yield found
    finally:
        _state.set_stand_in(before)
        calls.interpreters, calls.modes = stack, modes


class lack_of_values:  # a context manager
    """Tells whether a region has `mattered` to: whether it asked fake tensors if they lack values, and did something else for that."""

    mattered = False

    def __enter__(self) -> lack_of_values:
        self.before, _answering.asked = _answering.asked, False
        return self

    def __exit__(self, *_: object) -> None:
        self.mattered = _answering.asked
        _answering.asked = self.before


class FakeTensor(Tensor):
    """A tensor without values, of a `FakeTensorMode`. Its device is the one its values would be on.

    Operations on it give fake tensors, whether the mode is in force or not. What asks for values raises
    `DataDependentOutputException`, and what has a shape that values decide `DynamicOutputShapeException`.
    """

    fake_device: Device
    fake_mode: FakeTensorMode
    constant: Tensor | None = None                    # the values, where a program gave them as data
    _constant_version = 0

    def __new__(cls, fake_mode: FakeTensorMode, elem: Tensor, device: Any, constant: Tensor | None = None) -> FakeTensor:
        """A fake tensor of `fake_mode` with the shape, dtype and strides of `elem`, which is on meta, for one on `device`."""
        if not elem.is_meta:
            raise AssertionError(f"FakeTensor: elem must be a tensor of the meta device, it is on {elem.device}")
        return _become(elem.detach(), fake_mode, _full(device), constant)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    @staticmethod
    def from_tensor(t: Tensor, fake_mode: FakeTensorMode) -> FakeTensor:
        """What stands for `t` in `fake_mode`."""
        return fake_mode.from_tensor(t)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        fakes = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, FakeTensor)]
        if not fakes:
            return _dispatch._disabled(func, types, args, kwargs)
        mode = fakes[0].fake_mode
        with contextlib.nullcontext() if _in_force(mode) else mode:
            result = _dispatch._disabled(func, types, args, kwargs)
        return mode.adopt(result, fakes[0].fake_device)

    def _aliased(self) -> FakeTensor:
        """Another one over the same memory and history, which forward mode puts a tangent on."""
        made = wrap(self._array, self._node)
        made._storage, made._view_of = self._storage, self._view_of
        return _become(made, self.fake_mode, self.fake_device)

    # -- where it is

    @property
    def device(self) -> Device:  # type: ignore[override]
        """Where the values would be."""
        return META if _answering.depth else self.fake_device

    @property
    def is_meta(self) -> bool:  # type: ignore[override]
        """Whether it stands for a tensor of the meta device."""
        return self.device.type == "meta"

    @property
    def is_cpu(self) -> bool:  # type: ignore[override]
        """Whether the values would be in the processor's memory."""
        return self.device.type == "cpu"

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        """Whether the values would be on a CUDA device."""
        return self.device.type == "cuda"

    def get_device(self) -> int:
        """Index of the CUDA device; -1 on the CPU."""
        return -1 if self.device.type == "cpu" else self.device.index or 0

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """As `Tensor.to`; no device is needed to be there."""
        dtype, place, copy, memory_format = convert._parse_to(args, kwargs)
        settings = {name: v for name, v in (("dtype", dtype), ("memory_format", memory_format)) if v is not None}
        wanted = self.fake_device if place is None else _full(place)
        mode = self.fake_mode
        with contextlib.nullcontext() if _in_force(mode) else mode:
            moved = wanted != self.fake_device
            made: Any = _dispatch._disabled(Tensor.to, (), (self,), {**settings, "copy": copy or moved})
        if made is not self:
            made.fake_device = wanted
        if moved and made._node is not None:
            made._node.saved = (made._node.saved[0], self.fake_device)  # where its gradient goes
        return made

    def cpu(self, memory_format: Any = None) -> Any:
        """As `Tensor.cpu`."""
        return self.to(CPU, memory_format=memory_format)

    def cuda(self, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
        """As `Tensor.cuda`; no such device is needed."""
        return self.to(Device("cuda") if device is None else device, memory_format=memory_format)

    def copy_(self, other: Any, non_blocking: bool = False) -> Any:  # type: ignore[override]
        """As `Tensor.copy_`, from a fake tensor on any device."""
        mode = self.fake_mode
        with contextlib.nullcontext() if _in_force(mode) else mode:
            (other,) = mode._faked(lambda: "aten.copy_.default", (other,))
            with _as_meta():
                Tensor.copy_(self, other, non_blocking)  # type: ignore[attr-defined]
        return self

    def fill_(self, value: Any) -> Any:  # type: ignore[override]
        """As `Tensor.fill_`; a tensor without dimensions is known to be the number it was filled with."""
        mode = self.fake_mode
        with contextlib.nullcontext() if _in_force(mode) else mode:
            _dispatch._disabled(Tensor.fill_, (), (self, value))  # type: ignore[attr-defined]
        if not self._array.ndim and not isinstance(value, Tensor):
            self.constant, self._constant_version = _number(value, self.dtype), self._storage[COUNT]
        return self

    # -- what it is

    @property
    def data(self) -> Any:  # type: ignore[override]
        """As `Tensor.data`."""
        with _as_meta():
            return _become(Tensor.data.__get__(self), self.fake_mode, self.fake_device, None)  # type: ignore[attr-defined]

    @data.setter
    def data(self, value: Tensor) -> None:
        Tensor.data.__set__(self, value)  # type: ignore[attr-defined]

    @property
    def _lacks_values(self) -> bool:  # type: ignore[override]
        _answering.asked = _answering.asked or not _answering.depth
        return True

    def data_ptr(self) -> int:
        """0: there is no memory."""
        return 0

    def item(self) -> Any:
        """The value, where a program gave it; a new symbolic number where the mode's environment allows that.

        Raises: DataDependentOutputException for all others.
        """
        if self._array.size != 1:
            raise RuntimeError(f"a Tensor with {self._array.size} elements cannot be converted to Scalar")
        if self.constant is None or self._storage[COUNT] != self._constant_version:
            env = self.fake_mode.shape_env
            if env is not None and env.allow_scalar_outputs and not self.dtype.is_complex:
                return _new_number(env, self.dtype)
            raise DataDependentOutputException("aten._local_scalar_dense.default")
        return self.constant.item()

    def tolist(self) -> Any:
        """The values, where a program gave them. Raises: DataDependentOutputException for all others."""
        if self.constant is None or self._storage[COUNT] != self._constant_version:
            raise DataDependentOutputException("aten._local_scalar_dense.default")
        return self.constant.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """Raises RuntimeError: there are no values."""
        raise RuntimeError(".numpy() is not supported for tensor subclasses.")

    def __deepcopy__(self, memo: dict[int, Any]) -> FakeTensor:
        if id(self) not in memo:
            with self.fake_mode, _unrecorded():
                copied = self.detach().clone().requires_grad_(self.requires_grad)
            if getattr(self, "_is_param", False):
                copied._is_param = True
            memo[id(self)] = copied
        return memo[id(self)]

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        facts = ["..."]
        if self.fake_device.type != "cpu":
            facts.append(f"device='{self.fake_device}'")
        facts.append(f"size={tuple(self._array.shape)}")
        if self.dtype is not get_default_dtype():
            facts.append(f"dtype={self.dtype}")
        if self.grad_fn is not None:
            facts.append(f"grad_fn=<{self.grad_fn.name().rpartition('::')[2]}>")
        elif self.requires_grad:
            facts.append("requires_grad=True")
        text = f"FakeTensor({', '.join(facts)})"
        return f"Parameter({text})" if getattr(self, "_is_param", False) else text


def is_fake(x: object) -> bool:
    """Whether `x` is a fake tensor, or a tensor that stands for one: a subclass around one, or what a transform hands on."""
    from ..utils._python_dispatch import is_traceable_wrapper_subclass

    if isinstance(x, FakeTensor):
        return True
    if is_traceable_wrapper_subclass(x):
        return any(is_fake(getattr(x, name)) for name in x.__tensor_flatten__()[0])  # type: ignore[attr-defined]
    return False


def _new_number(env: Any, dtype: Any) -> Any:
    """A number of which nothing is known but what the dtype says."""
    if dtype.is_floating_point:
        return env.create_unbacked_symfloat()
    if dtype.name == "bool":
        return env.create_unbacked_symbool()
    return env.create_unbacked_symint()


def _unrecorded() -> Any:
    import flambeau

    return flambeau.no_grad()


def _number(value: Any, dtype: Any) -> Tensor:
    """A real tensor of a number."""
    import flambeau

    with unset_fake_temporarily():
        return flambeau.full((), value, dtype=dtype)


def _in_force(mode: FakeTensorMode) -> bool:
    return mode in _local.calls.interpreters


def _making(name: str) -> Any:
    """The method `name` of Tensors, which makes another like them, of fake ones."""
    method = getattr(Tensor, name)

    @functools.wraps(method)
    def make(self: FakeTensor, *args: Any, **kwargs: Any) -> Any:
        if _answering.depth:
            return method(self, *args, **kwargs)
        asked = kwargs.get("device")
        if asked is not None and _full(asked).type not in ("cpu", "meta"):
            kwargs.pop("device")                      # there need be none such
        with contextlib.nullcontext() if _in_force(self.fake_mode) else self.fake_mode:
            made = method(self, *args, **kwargs)
        return self.fake_mode.adopt(made, self.fake_device if asked is None else _full(asked))

    return make


for _maker in ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros"):
    setattr(FakeTensor, _maker, _making(_maker))


def _full(place: Any) -> Device:
    """`place` with the index that it has when none was given."""
    place = Device(place)
    return Device(place.type, 0) if place.index is None and place.type not in ("cpu", "meta") else place


def _become(tensor: Any, mode: FakeTensorMode, place: Device, constant: Tensor | None = None) -> Any:
    """`tensor` itself, of the meta device, as a fake tensor."""
    is_parameter = isinstance(tensor, Parameter)
    made: Any = tensor
    made.__class__ = FakeTensor
    made.fake_mode, made.fake_device = mode, place
    if is_parameter:
        made._is_param = True                         # how other classes say that they are parameters
    if constant is not None:
        made.constant, made._constant_version = constant, made._storage[COUNT]
    _state.note_overriding()
    return made


class FakeTensorConverter:
    """What stands for which tensor: the same fake one each time, and views share what their bases share."""

    def __init__(self) -> None:
        self.tensors: dict[int, tuple[Any, Any]] = {}                  # by identity: a weak reference to it, and to what stands for it
        self.roots: dict[int, tuple[Any, MetaArray]] = {}              # by identity of the array that owns the memory

    def from_real_tensor(
        self, fake_mode: FakeTensorMode, t: Tensor, shape_env: Any = None, source: Any = None, symbolic_context: Any = None
    ) -> FakeTensor:
        """What stands for `t`, which is made if there is none yet.

        Args:
            shape_env: makes symbols of sizes; None leaves them numbers.
            source: what guards call the tensor.
            symbolic_context: which sizes are symbols.
        Raises: UnsupportedFakeTensorException for tensors without strides.
        """
        known = self.tensors.get(id(t))
        if known is not None and known[0]() is t:
            return known[1]
        if t.is_quantized or t.is_sparse or t.is_sparse_csr or t.is_nested:
            raise UnsupportedFakeTensorException(f"from_tensor: a tensor of layout {t.layout} has no fake one; give one that is strided")
        array = self._array(t._array)
        if shape_env is not None:
            if source is None:
                source = shape_env.unnamed_source()
            shape, steps, offset = shape_env.create_symbolic_sizes_strides_storage_offset(t, source, symbolic_context=symbolic_context)
            step = array.itemsize
            symbolic = MetaArray(shape, _arrays.plain_dtype(array.dtype), tuple([s * step for s in steps]), offset * step)
            symbolic.base = array.base
            if array.base.size == array.nbytes:       # no more memory than the tensor has, whatever its size
                symbolic.base.shape = (symbolic.nbytes,)
            array = symbolic
        made = _become(wrap(array), fake_mode, t.device)
        if t.requires_grad:
            made.requires_grad_(True)
            if not t.is_leaf:
                import flambeau

                with fake_mode, flambeau.enable_grad():
                    made = made.clone(memory_format=flambeau.preserve_format)
        if isinstance(t, Parameter):
            made._is_param = True
        self.tensors[id(t)] = (weakref.ref(t), made)
        weakref.finalize(t, self.tensors.pop, id(t), None).atexit = False
        return made

    def _array(self, a: Any) -> MetaArray:
        root = _arrays.root_of(a)
        known = self.roots.get(id(root))
        if known is None or known[0]() is not root:
            base = MetaArray((root.nbytes,), _bytes())
            known = self.roots[id(root)] = (weakref.ref(root), base)
            weakref.finalize(root, self.roots.pop, id(root), None).atexit = False
        offset = a.offset if isinstance(a, MetaArray) else _arrays.address(a) - _arrays.address(root)
        made = MetaArray(a.shape, _arrays.plain_dtype(a.dtype), a.strides, offset)
        made.base = known[1]
        return made


def _bytes() -> Any:
    import numpy as np

    return np.dtype(np.uint8)


class FakeTensorMode(TorchDispatchMode):
    """A context in which tensors are fake: what is created has no values, and operations compute shapes only.

    Args:
        allow_fallback_kernels: accepted; every operator says the shape of its result here.
        allow_non_fake_inputs: stand in for real tensors that meet fake ones, instead of refusing them.
        shape_env: a `ShapeEnv`, which makes symbols of the sizes of tensors that are stood in for.
        static_shapes: whether sizes are numbers; by default unless there is a `shape_env`.
        export: accepted; it asks for nothing else here.

    >>> from flambeau._subclasses import FakeTensorMode
    >>> with FakeTensorMode():
    ...     fb.ones(10**6, 10**6) @ fb.ones(10**6, 3)
    FakeTensor(..., size=(1000000, 3))
    """

    kind = "fake"
    sees_makers = False                               # a mode of functions sees them, by their public names

    def __init__(
        self, *, allow_fallback_kernels: bool = True, allow_non_fake_inputs: bool = False, shape_env: Any = None,
        static_shapes: bool | None = None, export: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.allow_fallback_kernels, self.allow_non_fake_inputs = allow_fallback_kernels, allow_non_fake_inputs
        self.shape_env, self.export = shape_env, export
        self.static_shapes = shape_env is None if static_shapes is None else static_shapes
        self.fake_tensor_converter = FakeTensorConverter()
        self._entered: list[Any] = []

    def __enter__(self) -> FakeTensorMode:
        makers = _Makers(self)
        makers.__enter__()
        self._entered.append((makers, _state.set_stand_in(META)))
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        makers, before = self._entered.pop()
        _state.set_stand_in(before)
        makers.__exit__(*error)

    def from_tensor(
        self, tensor: Tensor, *, static_shapes: bool | None = None, source: Any = None, symbolic_context: Any = None, trace: bool = True
    ) -> FakeTensor:
        """What stands for `tensor`, the same each time.

        Args:
            static_shapes: whether its sizes are numbers; as the mode says by default.
            source: what guards call it.
            symbolic_context: which of its sizes are symbols.
            trace: accepted; it makes no difference here.
        Raises: AssertionError for a fake tensor of another mode; UnsupportedFakeTensorException for tensors without strides.
        """
        if isinstance(tensor, FakeTensor):
            self._check_mode(tensor)
            return tensor
        static = self.static_shapes if static_shapes is None else static_shapes
        with unset_fake_temporarily():
            env = None if static else self.shape_env
            return self.fake_tensor_converter.from_real_tensor(self, tensor, env, source, symbolic_context)

    def is_our_fake(self, t: Any) -> bool:
        """Whether `t` is a fake tensor of this mode."""
        return isinstance(t, FakeTensor) and t.fake_mode is self

    def _check_mode(self, tensor: FakeTensor) -> None:
        if tensor.fake_mode is not self:
            raise AssertionError(f"Mixing fake modes NYI x.fake_mode={tensor.fake_mode} vs self={self}")

    def adopt(self, result: Any, place: Device) -> Any:
        """`result`, whose plain tensors of the meta device have become fake ones on `place`."""
        for x in pytree.tree_leaves(result):
            if isinstance(x, Tensor) and not isinstance(x, FakeTensor) and type(x._array) is MetaArray:
                _become(x, self, place)
        return result

    # -- as an interpreter

    def run(self, op: Op, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
        if _answering.depth:
            return NotImplemented
        call = functools.partial(_dispatch.interpret, op)
        return self._answer(lambda: _name(op, args, out, inplace), call, args, out, inplace, self._asked_place(op, args))

    def run_operator(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if _answering.depth or operator.is_composition:
            return NotImplemented
        return self._answer(lambda: operator.overload, lambda given, *_: operator.overload(*given[0], **given[1]), (args, kwargs))

    def run_branches(self, pred: Any, branches: tuple[Any, Any], operands: Any) -> Any:
        """What either branch gives. Raises: RuntimeError if they give tensors of other shapes or dtypes."""
        if not isinstance(pred, FakeTensor):
            return NotImplemented
        results = [f(*operands) for f in branches]
        shapes = [[(tuple(x.shape), x.dtype) for x in pytree.tree_leaves(r)] for r in results]
        if shapes[0] != shapes[1]:
            raise RuntimeError(f"cond: both branches must give the same structure, shapes and dtypes, got {shapes[0]} and {shapes[1]}")
        return results[0]

    @staticmethod
    def _asked_place(op: Op, args: tuple[Any, ...]) -> tuple[int, Device] | None:
        """Where among `args` a device is, and which."""
        for at, name in enumerate(op.params):
            if name in ("device", "place") and args[at] is not None:
                return at, _full(args[at])
        return None

    def _answer(self, name: Any, call: Any, args: tuple[Any, ...], out: Any = None, inplace: bool = False, asked: Any = None) -> Any:
        given = self._faked(name, (args, None if inplace else out))
        place = _common_device([x for x in pytree.tree_leaves(given) if isinstance(x, FakeTensor)])
        args, written = given
        if asked is not None:
            at, place = asked
            args = (*args[:at], META, *args[at + 1 :])
        before = fresh.size
        env = self.shape_env
        fresh.size = self._new_size if env is not None and env.allow_dynamic_output_shape_ops else None
        try:
            with _as_meta(), self.shape_env.rules() if self.shape_env is not None else contextlib.nullcontext():
                result = call(args, args[0] if inplace else written, inplace)
        except ShapeDependsOnValues as error:
            raise DynamicOutputShapeException(name()) from error
        except ValuesAreMissing as error:
            raise DataDependentOutputException(name()) from error
        finally:
            fresh.size = before
        return self.adopt(result, place)

    def _new_size(self, most: Any, least: int = 0) -> Any:
        """A symbolic size that values decide, from `least` to `most`; without an end if that is None."""
        made = self.shape_env.create_unbacked_symint()
        if most is None:
            self.shape_env.constrain_size(made.node._expr, least)
        else:
            upper = most if isinstance(most, int) else self.shape_env.bound_sympy(most.node.expr).upper
            self.shape_env.constrain_size(made.node._expr, least, upper)
        return made

    def _faked(self, name: Any, given: Any) -> Any:
        """`given` with what stands for its tensors."""

        def faked(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            if isinstance(x, FakeTensor):
                self._check_mode(x)
                return x
            if type(x._array) is MetaArray:               # made inside a function, where the mode does not see it
                return _become(x, self, CPU)
            if not self.allow_non_fake_inputs:
                described = ", ".join([_described(a) for a in pytree.tree_leaves(given) if a is not None])
                raise AssertionError(
                    "Please convert all Tensors to FakeTensors first or instantiate FakeTensorMode with 'allow_non_fake_inputs'. "
                    f"Found in {name()}({described})"
                )
            return self.from_tensor(x, static_shapes=True)

        return pytree.tree_map(faked, given)

    # -- what makes tensors

    def make(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """What a function that makes tensors makes; data are kept as what the fake tensor is known to have."""
        name = func.__name__
        operands = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if name in _OF_DATA and not operands:
            with unset_fake_temporarily():
                real = func(*args, **{k: v for k, v in kwargs.items() if k != "device"})
                values = real.detach()
            asked = kwargs.get("device") or _state.default_device() or CPU
            made = _become(wrap(MetaArray(real._array.shape, _arrays.plain_dtype(real._array.dtype))), self, _full(asked), values)
            return made.requires_grad_(True) if real.requires_grad else made
        fakes = [x for x in operands if isinstance(x, FakeTensor)]
        place = kwargs.get("device")
        if place is None:
            place = fakes[0].fake_device if fakes else _state.default_device() or CPU
        if place is not None and "device" in _parameters(func):
            kwargs = {**kwargs, "device": None}
        made = self.adopt(func(*args, **kwargs), _full(place))
        if name == "full" and isinstance(made, FakeTensor) and not made._array.ndim and not operands:
            made.fill_(args[1] if len(args) > 1 else kwargs["fill_value"])
        return made


class _Makers(TorchFunctionMode):
    """Shows functions that make tensors to a FakeTensorMode."""

    def __init__(self, mode: FakeTensorMode) -> None:
        import flambeau

        self.mode = mode
        self.makers = {getattr(flambeau, name) for name in _makers.creation_functions() if name not in _makers.QUESTIONS}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.mode.make(func, args, kwargs or {}) if func in self.makers else func(*args, **(kwargs or {}))


# Functions that make tensors of data.
_OF_DATA = ("tensor", "as_tensor", "asarray", "from_numpy", "frombuffer", "from_dlpack", "scalar_tensor")


@functools.cache
def _parameters(func: Any) -> frozenset[str]:
    return frozenset(inspect.signature(func).parameters)


def _common_device(fakes: list[FakeTensor]) -> Device:
    """Where the result is: where the operands are; numbers on the CPU, tensors without dimensions, go along with all.

    Raises: FakeTensorDeviceMismatchError for several devices.
    """
    place, is_number = CPU, True
    for x in fakes:
        this, number = x.fake_device, x._array.ndim == 0
        if this == place or number and this == CPU:
            is_number = is_number and number
        elif is_number and place == CPU:
            place, is_number = this, number
        else:
            raise FakeTensorDeviceMismatchError(
                f"Expected all tensors to be on the same device, but found at least two devices, {place} and {this}!"
            )
    return place


def _name(op: Op, args: tuple[Any, ...], out: Any, inplace: bool) -> Any:
    """The operator that a call is, for messages."""
    func = seen_as(op, args, out, inplace)[0]
    return func if func is not None else f"aten.{_aten.name_of(op, inplace) or op.name}.default"


def _described(x: Any) -> str:
    if not isinstance(x, Tensor) or isinstance(x, FakeTensor):
        return repr(x)
    return f"tensor([...], size={tuple(x.shape)})"
