"""Calls that `make_fx` records though they are no operators: functions that make tensors, and methods; those that ask for values."""

from __future__ import annotations

import functools
import sys
import threading
from typing import TYPE_CHECKING, Any

from ... import _ops
from ..._subclasses.fake_tensor import DataDependentOutputException, FakeTensor
from ...autograd import grad_mode
from ...ops import _makers
from ...overrides import TorchFunctionMode
from ...tensor import Tensor
from .._symbolic_trace import _Patcher

if TYPE_CHECKING:
    from .proxy_tensor import _Recorder

# Methods of Tensor that are no ops: those that are recorded as calls, and those that need values.
RECORDED_METHODS = (
    "apply_", "bernoulli_", "cauchy_", "copy_", "exponential_", "fill_", "geometric_", "log_normal_", "map2_", "map_", "normal_",
    "random_", "resize_", "resize_as_", "set_", "uniform_", "zero_", "new", "new_empty", "new_empty_strided", "new_full",
    "new_ones", "new_tensor", "new_zeros",
)  # fmt: skip
METHODS_OF_VALUES = (
    "item", "tolist", "numpy", "storage", "untyped_storage", "data_ptr", "__bool__", "__int__", "__float__", "__complex__",
    "__index__", "__array__",
)  # fmt: skip
_OF_NUMBERS: dict[str, Any] = {"item": lambda x: x, "__bool__": bool, "__int__": int, "__float__": float, "__index__": int}


class ReadsValue(RuntimeError):
    """The program asks for a value of a recorded tensor."""


class _Active(threading.local):
    recorder: Any = None


active = _Active()


def recording() -> Any:
    """What records this thread's operations now."""
    return active.recorder


class Makers(TorchFunctionMode):
    """Records functions that make tensors."""

    def __init__(self, recorder: _Recorder) -> None:
        import flambeau

        self.recorder = recorder
        # Those that write to a tensor call its method, which is recorded.
        names = [name for name in _makers.creation_functions() if name not in _makers.QUESTIONS and not name.endswith("_")]
        self.makers = {getattr(flambeau, name): name for name in names}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = self.makers.get(func)
        return func(*args, **(kwargs or {})) if name is None else self.recorder.make(name, func, func, args, kwargs or {})


def _recording_maker(name: str, public: Any, maker: Any) -> Any:
    """`maker`, as our own modules call it, recorded as a call of the public function."""

    @functools.wraps(maker)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        recorder = active.recorder
        return maker(*args, **kwargs) if recorder is None else recorder.make(name, public, maker, args, kwargs)

    return recorded


def patch_makers(patcher: _Patcher, makers: dict[Any, str]) -> None:
    """Have functions that make tensors recorded where our modules call them."""
    public = {name: fn for fn, name in makers.items()}
    made = {}
    for name, maker in _makers.creation_functions().items():
        if name in public:
            made[id(maker)] = _recording_maker(name, public[name], maker)
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] == "flambeau" and module is not None:
            for key, value in list(vars(module).items()):
                if id(value) in made:
                    patcher.patch_entry(vars(module), key, made[id(value)])


def _switching(method: Any) -> Any:
    """`method`, which switches the recording of histories on or off, and the recorder of this thread is told."""

    @functools.wraps(method)
    def switch(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        if active.recorder is not None:
            active.recorder.record_grad_mode()
        return result

    return switch


def patch_grad_modes(patcher: _Patcher) -> None:
    """Have it recorded where the program enters and leaves `no_grad` and the like; what operations do inside is not."""
    for cls in (grad_mode.no_grad, grad_mode.enable_grad, grad_mode.set_grad_enabled):
        for name in ("__init__", "__call__", "__enter__", "__exit__"):
            if name in cls.__dict__:
                patcher.patch_method(cls, name, _switching(cls.__dict__[name]))


def is_batched(x: Any) -> bool:
    """Whether `x` is a tensor of vmap."""
    return hasattr(x, "_bdim")


def one_example(x: Any) -> Any:
    """A tensor of vmap as one of its examples: of the same shape, dtype and device. What else is given is returned."""
    while is_batched(x):
        x = x._value.select(x._bdim, 0)
    return x


def recorded_method(name: str, method: Any) -> Any:
    @functools.wraps(method)
    def recorded(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        recorder = active.recorder
        if recorder is not None and not recorder.quiet and is_batched(self):
            return method(one_example(self) if name.startswith("new") else self, *args, **kwargs)
        if recorder is None or recorder.quiet or not recorder.knows((self, args, kwargs)) and not name.startswith("new"):
            return method(self, *args, **kwargs)
        nodes, by_name = recorder.argument((self, *args)), recorder.argument(kwargs)
        result, call = recorder.showing(name, method, (self, *args), kwargs)
        if call is None and name == "copy_":          # which is an operator, and no function of its own
            call = _ops.ops.aten.copy_.default, (self, *args), kwargs
        if call is not None:
            return recorder.record_call(call, result)
        return recorder.record("call_method", name, tuple(nodes), by_name, result)

    return recorded


def refusal(asked: Any) -> str:
    """What the error says where the program asks a recorded tensor for a value by `asked`."""
    return (
        f"It appears that you're trying to get value out of a tracing tensor with {asked} - erroring out! It's likely that this is "
        "caused by data-dependent control flow or similar."
    )


def refusing_method(name: str, method: Any) -> Any:
    @functools.wraps(method)
    def refusing(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        recorder = active.recorder
        if recorder is not None and not recorder.quiet and recorder.knows(self):
            if recorder.keeps_values:
                with recorder.quietly():
                    return method(self, *args, **kwargs)
            if isinstance(self, FakeTensor):
                number = recorder.item(self) if name in _OF_NUMBERS and self.fake_mode.shape_env is not None else None
                if number is not None:
                    return _OF_NUMBERS[name](number)
                raise DataDependentOutputException("aten._local_scalar_dense.default")
            raise ReadsValue(refusal(f"Tensor.{name}"))
        return method(self, *args, **kwargs)

    return refusing
