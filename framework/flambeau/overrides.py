"""Overriding by `__torch_function__`: classes that stand in for Tensors, and modes that see every call."""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from . import _state, _subclass
from .ops import _derive, _dispatch, _makers
from .ops._spec import FUNCTION, INPLACE, METHOD, OPS, OUT
from .tensor import Tensor

__all__ = [
    "BaseTorchFunctionMode", "DisableTorchFunction", "DisableTorchFunctionSubclass", "TorchFunctionMode",
    "enable_reentrant_dispatch", "get_default_nowrap_functions", "get_ignored_functions", "get_overridable_functions",
    "get_testing_overrides", "handle_torch_function", "has_torch_function", "is_tensor_like", "is_tensor_method_or_property",
    "resolve_name", "wrap_torch_function",
]  # fmt: skip

_local = _state.local
_makers.install_functions()
_derive.make_operators()
_subclass.let_modes_see_methods()


# -- switching it off ----------------------------------------------------------------------------------------------------


class DisableTorchFunctionSubclass:
    """A region in which operands' classes are not asked; modes still are."""

    def __enter__(self) -> None:
        _local.calls.classes_off += 1

    def __exit__(self, *_: object) -> None:
        _local.calls.classes_off -= 1


class DisableTorchFunction(DisableTorchFunctionSubclass):
    """A region in which neither classes nor modes are asked."""

    def __enter__(self) -> None:
        super().__enter__()
        self.modes = _local.calls.modes
        _local.calls.modes = ()

    def __exit__(self, *_: object) -> None:
        _local.calls.modes = self.modes
        super().__exit__()


@contextlib.contextmanager
def enable_reentrant_dispatch() -> Iterator[None]:
    """A region inside a handler in which overriding is on again."""
    before, _local.calls.classes_off = _local.calls.classes_off, 0
    try:
        yield
    finally:
        _local.calls.classes_off = before


# -- modes ---------------------------------------------------------------------------------------------------------------


class TorchFunctionMode:
    """A context in which `__torch_function__` of this object answers every public call of the thread.

    Inside the handler the mode itself is off, so calling ``func(*args, **kwargs)`` goes to the next mode, or runs.
    """

    inner: TorchFunctionMode

    def __init__(self) -> None:
        pass

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__}: define __torch_function__(self, func, types, args=(), kwargs=None)"
        )

    def __enter__(self) -> Any:
        _local.calls.modes = (*_local.calls.modes, self)
        _state.begin_interpreting()
        return self

    def __exit__(self, *_: object) -> None:
        _local.calls.modes = _local.calls.modes[:-1]
        _state.end_interpreting()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        warnings.warn("`Mode.push()` is no longer necessary and can be replaced with just `with Mode()`", stacklevel=2)
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _get_current_function_mode() -> TorchFunctionMode | None:
    return _local.calls.modes[-1] if _local.calls.modes else None


def _get_current_function_mode_stack() -> list[TorchFunctionMode]:
    return list(_local.calls.modes)


# -- for functions that want to be overridable ---------------------------------------------------------------------------


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether a mode is on or a class of the arguments overrides. Plain Tensors and Parameters do not count."""
    return bool(_local.calls.modes) or bool(_dispatch.overriding_classes(tuple(relevant_args)))


def has_torch_function_unary(obj: Any) -> bool:
    return has_torch_function((obj,))


def has_torch_function_variadic(*args: Any) -> bool:
    return has_torch_function(args)


def handle_torch_function(public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
    """The answer of the mode or class that overrides `public_api`. Raises: TypeError when none answers."""
    return _dispatch.dispatch_torch_function(public_api, _dispatch.overriding_classes(tuple(relevant_args)), args, kwargs)


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that makes a function overridable; `dispatcher` gives the arguments whose classes count."""

    def inner(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return func(*args, **kwargs)

        return wrapped

    return inner


def is_tensor_like(inp: Any) -> bool:
    """Whether `inp` is a Tensor, or of a class that stands in for one."""
    return type(inp) is Tensor or hasattr(inp, "__torch_function__")


# -- what can be overridden ----------------------------------------------------------------------------------------------

_NAMESPACES = ("", "nn.functional", "linalg", "fft", "special")


@functools.cache
def get_overridable_functions() -> dict[Any, list[Callable[..., Any]]]:
    """The overridable functions by the namespace (module or class) that has them."""
    from importlib import import_module

    _derive.load_all()
    found: dict[Any, list[Any]] = {}
    for name in _NAMESPACES:
        home = import_module(f"flambeau.{name}" if name else "flambeau")
        names = {*_derive.function_names(name), *(() if name else _makers.creation_functions())}
        found[home] = [fn for n in sorted(names) if callable(fn := getattr(home, n, None)) and fn not in get_ignored_functions()]
    for name, fn in _overridable_functions().items():
        home = import_module(f"flambeau.{name.rpartition('.')[0]}".rstrip("."))
        found.setdefault(home, []).append(fn)
    found[Tensor] = [*_tensor_methods().values()]
    import flambeau

    swapped = sys.modules.get("torch")
    if getattr(swapped, "__file__", None) == flambeau.__file__:  # another module object where this package is imported as `torch`
        found[swapped] = found[flambeau]
    return found


def _overridable_functions() -> dict[str, Any]:
    """Functions that ask although they are no ops, by their names below the package."""
    from importlib import import_module

    _derive.load_all()
    for name in ("_native_functions", "nn.init"):     # what else has some
        import_module(f"flambeau.{name}")
    return _subclass.OVERRIDABLE


def _tensor_methods() -> dict[str, Any]:
    """Methods and property getters of Tensor, by name."""
    names = {*_derive.method_names(), *Tensor.__dict__} - _subclass._NOT_OVERRIDABLE
    found = {}
    for name in sorted(names, key=lambda name: (name[0] == "_", name)):  # a public name goes before a private one of the same
        attribute = Tensor.__dict__.get(name)
        if not isinstance(attribute, property) and not callable(attribute):  # made when it is first asked for
            attribute = getattr(Tensor, name, None)
        if isinstance(attribute, property):
            found[f"{name}.__get__"] = attribute.__get__
        elif callable(attribute) and not isinstance(attribute, type):
            found[name] = attribute
    return found


# Functions that PyTorch says cannot be overridden; those that make tensors are seen by modes nevertheless.
_IGNORED = (
    "arange", "are_deterministic_algorithms_enabled", "as_strided", "as_tensor", "asarray", "autocast_decrement_nesting",
    "autocast_increment_nesting", "bartlett_window", "blackman_window", "broadcast_shapes", "can_cast", "clear_autocast_cache",
    "compile", "cond", "cudnn_is_acceptable", "empty", "empty_permuted", "empty_strided", "enable_grad", "eye", "fill", "from_dlpack",
    "from_file", "from_numpy", "frombuffer", "full", "get_autocast_cpu_dtype", "get_autocast_dtype", "get_autocast_gpu_dtype",
    "get_default_device", "get_default_dtype", "get_deterministic_debug_mode", "get_device_module", "get_float32_matmul_precision",
    "get_num_interop_threads", "get_num_threads", "get_rng_state", "hamming_window", "hann_window", "inference_mode", "initial_seed",
    "is_autocast_cache_enabled", "is_autocast_cpu_enabled", "is_autocast_enabled", "is_deterministic_algorithms_warn_only_enabled",
    "is_grad_enabled", "is_inference_mode_enabled", "is_storage", "is_tensor", "is_vulkan_available", "is_warn_always_enabled",
    "kaiser_window", "linspace", "load", "logspace", "manual_seed", "no_grad", "normal", "ones", "promote_types", "rand", "rand_like",
    "randint", "randint_like", "randn", "randn_like", "randperm", "range", "result_type", "save", "scalar_tensor", "seed",
    "set_autocast_cache_enabled", "set_autocast_cpu_dtype", "set_autocast_cpu_enabled", "set_autocast_dtype", "set_autocast_enabled",
    "set_autocast_gpu_dtype", "set_default_device", "set_default_dtype", "set_default_tensor_type", "set_deterministic_debug_mode",
    "set_float32_matmul_precision", "set_flush_denormal", "set_grad_enabled", "set_num_interop_threads", "set_num_threads",
    "set_printoptions", "set_rng_state", "set_warn_always", "tensor", "tril_indices", "triu_indices", "typename",
    "use_deterministic_algorithms", "vander", "vmap", "zeros", "compiled_with_cxx11_abi", "finfo", "iinfo", "sym_fresh_size",
    "fork", "get_autocast_ipu_dtype", "get_autocast_xla_dtype", "init_num_threads", "is_anomaly_check_nan_enabled", "is_anomaly_enabled",
    "is_autocast_ipu_enabled", "is_autocast_xla_enabled", "parse_schema", "set_anomaly_enabled", "thread_safe_generator", "unify_type_list",
    "wait", "sparse_bsc_tensor", "sparse_bsr_tensor",
    "sparse_compressed_tensor", "sparse_coo_tensor", "sparse_csc_tensor", "sparse_csr_tensor",
)  # fmt: skip


@functools.cache
def get_ignored_functions() -> set[Callable[..., Any]]:
    """Public functions that take no operands whose class could be asked."""
    import flambeau

    found = {getattr(flambeau, n) for n in _IGNORED}
    return found | {Tensor.as_subclass, Tensor._make_subclass, Tensor.__new__, Tensor.__init__}  # type: ignore[misc]


@functools.cache
def get_default_nowrap_functions() -> set[Callable[..., Any]]:
    """Functions whose results stay plain Tensors even for operands of a subclass."""
    return set(_dispatch._PLAIN_RESULTS)


@functools.cache
def get_testing_overrides() -> dict[Callable[..., Any], Callable[..., Any]]:
    """For each overridable function a function of the same signature that returns -1."""
    import inspect

    found: dict[Any, Any] = {}
    for functions in get_overridable_functions().values():
        for fn in functions:
            op = getattr(fn, "flambeau_op", None)
            if op is not None:
                text, constants = _parameters(op)
                found[fn] = eval(f"lambda {text}: -1", constants)  # our own text
            else:
                made: Any = lambda *args, **kwargs: -1  # noqa: E731
                with contextlib.suppress(ValueError, TypeError):
                    made.__signature__ = _unannotated(inspect.signature(fn), fn)
                found[fn] = made
    return found


def _unannotated(signature: Any, fn: Any) -> Any:
    """`signature` as a plain function has it: of names and defaults. The getter of an attribute takes its tensor alone."""
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    if getattr(fn, "__name__", "") == "__get__":
        parameters = [parameters[0].replace(name="self", kind=parameters[0].POSITIONAL_OR_KEYWORD)]
    return signature.replace(parameters=parameters, return_annotation=signature.empty)


def _parameters(op: Any) -> tuple[str, dict[str, Any]]:
    """The parameters of `op` as text, with the values of defaults by the names that stand for them."""
    constants = {f"_{name}": value for name, value in op.defaults.items()}

    def listed(names: Iterable[str]) -> list[str]:
        return [f"{name}=_{name}" if name in op.defaults else name for name in names]

    positional, keyword_only = [*op.positional], [*op.keyword_only]
    if op.variadic is not None:                        # it may be given as several arguments; what follows is given by keyword
        at = positional.index(op.variadic)
        keyword_only = positional[at + 1 :] + keyword_only
        parts = [*listed(positional[:at]), f"*{op.variadic}", *listed(keyword_only)]
    else:
        parts = [*listed(positional), *(["*"] if keyword_only else ()), *listed(keyword_only)]
    if op.surface & OUT:
        parts.append("out=None")
    return ", ".join(parts), constants


@functools.cache
def _names() -> dict[Any, str]:
    found: dict[Any, str] = {}
    for name, attribute in _tensor_methods().items():
        found.setdefault(attribute, f"torch.Tensor.{name}")
    for key, op in OPS.items():
        if op.surface & FUNCTION and key == op.qualified:
            found[op.function] = f"torch.{key}"
        elif op.surface & (METHOD | INPLACE) and not op.surface & FUNCTION:
            found[op.function] = f"torch.Tensor.{op.name}"
    import flambeau

    found |= {fn: f"torch.{name}" for name, fn in _overridable_functions().items()}
    for name in (*_makers.creation_functions(), *_IGNORED):
        found.setdefault(getattr(flambeau, name), f"torch.{name}")
    return found


def resolve_name(f: Callable[..., Any]) -> str | None:
    """The dotted name of a function given to `__torch_function__`; None for one that is not overridable."""
    _derive.load_all()
    found = _names().get(f)
    if found is None and hasattr(f, "flambeau_op"):
        op = f.flambeau_op  # pyright: ignore[reportFunctionMemberAccess]  # on purpose
        found = f"torch.Tensor.{f.__name__}" if f.__name__ != op.name else f"torch.{op.qualified}"
    return found


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether `func` belongs to Tensor."""
    if getattr(func, "__name__", None) == "__get__":
        return True
    name = resolve_name(func)
    return name is not None and name.startswith("torch.Tensor.")
