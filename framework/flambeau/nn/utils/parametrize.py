"""Parametrizations: a parameter that is computed from others whenever it is read.

Registering one moves the parameter to ``module.parametrizations.<name>.original`` and gives the module a
class of its own, with a property in the parameter's place.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import flambeau as fb

from ..modules.container import ModuleDict, ModuleList
from ..modules.module import Module
from ..parameter import Parameter

__all__ = [
    "cached",
    "ParametrizationList",
    "register_parametrization",
    "is_parametrized",
    "remove_parametrizations",
    "type_before_parametrizations",
    "transfer_parametrizations_and_params",
]

Tensor = fb.Tensor

_cache_enabled = 0
_cache: dict[tuple[int, str], Any] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Inside, every parametrized tensor is computed once, when first read, and kept until the end."""
    global _cache_enabled
    _cache_enabled += 1
    try:
        yield
    finally:
        _cache_enabled -= 1
        if not _cache_enabled:
            _cache.clear()


def _register(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _set_in_place(dest: Tensor, src: Tensor) -> None:
    """Give `dest` the memory of `src`, so that optimizers that hold `dest` keep up."""
    if dest is not src:
        dest.data = src.data


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, applied in order, and the tensor(s) they start from.

    Attributes:
        original: the tensor; or, where `right_inverse` of the first returns several, `original0`,
            `original1`, ...

    Args:
        modules: the parametrizations.
        original: the tensor to parametrize.
        unsafe: whether to skip the checks that shape and dtype stay.
    Raises: ValueError if a check fails; TypeError or RuntimeError if `right_inverse` returns something unfit.
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if len(modules) == 0:
            raise ValueError("ParametrizationList needs at least one parametrization")
        super().__init__(modules)
        self.unsafe = unsafe
        with fb.no_grad():
            new = self._invert_where_possible(original)
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            if original.dtype != new.dtype:
                raise ValueError(
                    f"right_inverse must keep the dtype while unsafe=False: got {new.dtype} from "
                    f"{original.dtype}"
                )
            with fb.no_grad():
                _set_in_place(original, new)
            _register(self, "original", original)
        else:
            for i, tensor in enumerate(new):
                if not isinstance(tensor, Tensor):
                    raise TypeError(f"right_inverse must return tensors, got {type(tensor).__name__} at {i}")
                if isinstance(original, Parameter):
                    tensor = Parameter(tensor, tensor.requires_grad)
                tensor.requires_grad_(original.requires_grad)
                _register(self, f"original{i}", tensor)
        if not unsafe:
            self._check(original)

    def _invert(self, value: Any) -> Any:
        """`value` through all `right_inverse`, last parametrization first.

        Raises: RuntimeError if one has none.
        """
        for module in reversed(self):
            if not hasattr(module, "right_inverse"):
                raise RuntimeError(
                    f"parametrization {type(module).__name__} does not implement right_inverse.\n"
                    "Without it the parametrized tensor cannot be assigned"
                )
            value = module.right_inverse(value)
        return value

    def _invert_where_possible(self, value: Any) -> Any:
        """As `_invert`, but parametrizations without an inverse leave the value as it is."""
        for module in reversed(self):
            if hasattr(module, "right_inverse"):
                with suppress(NotImplementedError):
                    value = module.right_inverse(value)
        if not isinstance(value, (Tensor, Sequence)):
            raise ValueError(f"right_inverse must return a tensor or a sequence of tensors, got {type(value).__name__}")
        return value

    def _check(self, original: Tensor) -> None:
        result = self()
        if not isinstance(result, Tensor):
            raise ValueError(f"a parametrization must return a tensor, got {type(result).__name__}")
        if result.dtype != original.dtype or result.shape != original.shape:
            raise ValueError(
                f"a parametrization must keep dtype and shape while unsafe=False: got {result.dtype} "
                f"{tuple(result.shape)} from {original.dtype} {tuple(original.shape)}"
            )

    def right_inverse(self, value: Tensor) -> None:
        """Set the originals so that the parametrized tensor becomes `value`, as far as the parametrizations can."""
        with fb.no_grad():
            new = self._invert(value)
            if self.is_tensor:
                if not isinstance(new, Tensor):
                    raise ValueError(f"right_inverse must return a tensor here, got {type(new).__name__}")
                if new.dtype != self.original.dtype:
                    raise ValueError(f"right_inverse must return {self.original.dtype}, got {new.dtype}")
                _set_in_place(self.original, new)
                return
            if not isinstance(new, Sequence) or len(new) != self.ntensors:
                raise ValueError(f"right_inverse must return {self.ntensors} tensors here")
            for i, tensor in enumerate(new):
                kept = getattr(self, f"original{i}")
                if not isinstance(tensor, Tensor) or tensor.dtype != kept.dtype:
                    raise ValueError(f"right_inverse must return a {kept.dtype} tensor at {i}, got {tensor!r}")
                _set_in_place(kept, tensor)

    def forward(self) -> Tensor:
        """The parametrized tensor."""
        if self.is_tensor:
            value = self[0](self.original)
        else:
            value = self[0](*(getattr(self, f"original{i}") for i in range(self.ntensors)))
        for module in list(self)[1:]:
            value = module(value)
        return value


def _give_own_class(module: Module) -> None:
    """Make `module` the only instance of a class, so that a property can be put on it."""
    cls = type(module)

    def deepcopy_method(self: Module, memo: dict[int, Any]) -> Module:
        if id(self) in memo:
            return memo[id(self)]
        copied = self.__new__(type(self))
        memo[id(self)] = copied
        copied.__dict__ = copy.deepcopy(self.__dict__, memo)
        return copied

    def refuse_state(self: Module) -> Any:
        raise RuntimeError(
            "a parametrized module cannot be pickled whole; save its state_dict(), or remove the "
            "parametrizations"
        )

    members: dict[str, Any] = {"__getstate__": refuse_state}
    if not hasattr(cls, "__deepcopy__"):
        members["__deepcopy__"] = deepcopy_method
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), members)


def _give_property(module: Module, tensor_name: str) -> None:
    """Read `tensor_name` through its parametrizations, and write it through their inverses."""

    def get(self: Module) -> Tensor:
        if not _cache_enabled:
            return self.parametrizations[tensor_name]()
        key = (id(self), tensor_name)
        if key not in _cache:
            _cache[key] = self.parametrizations[tensor_name]()
        return _cache[key]

    def put(self: Module, value: Tensor) -> None:
        self.parametrizations[tensor_name].right_inverse(value)

    setattr(type(module), tensor_name, property(get, put))


def register_parametrization(module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> Module:
    """Compute ``module.<tensor_name>`` as `parametrization` of the tensor that is there now.

    Args:
        parametrization: a module from the original to the new tensor. Its `right_inverse`, if it has one, is
            applied to the present value and to those assigned later. Several may be registered; the last is
            applied last, and leaves the originals as they are.
        unsafe: whether to skip the checks that shape and dtype stay; see `ParametrizationList`.
    Returns: `module`.
    Raises: ValueError if there is no such parameter or buffer, or a check fails.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        _append(module, tensor_name, parametrization, unsafe)
        return module
    if tensor_name not in module._parameters and tensor_name not in module._buffers:
        raise ValueError(f"{type(module).__name__} has no parameter, buffer or parametrized tensor named {tensor_name!r}")
    original = getattr(module, tensor_name)
    parametrizations = ParametrizationList([parametrization], original, unsafe=unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        _give_own_class(module)
        module.parametrizations = ModuleDict()
    _give_property(module, tensor_name)
    module.parametrizations[tensor_name] = parametrizations
    return module


def _append(module: Module, tensor_name: str, parametrization: Module, unsafe: bool) -> None:
    """One more parametrization for a tensor that has some."""
    present = module.parametrizations[tensor_name]
    if not unsafe:
        _check_appended(getattr(module, tensor_name), parametrization)
    present.append(parametrization)
    present.unsafe |= unsafe


def _check_appended(value: Tensor, parametrization: Module) -> None:
    result = parametrization(value)
    if not isinstance(result, Tensor):
        raise ValueError(f"a parametrization must return a tensor, got {type(result).__name__}")
    if result.dtype != value.dtype or result.shape != value.shape:
        raise ValueError(
            f"a parametrization must keep dtype and shape while unsafe=False: got {result.dtype} "
            f"{tuple(result.shape)} from {value.dtype} {tuple(value.shape)}"
        )
    if hasattr(parametrization, "right_inverse"):
        try:
            inverse = parametrization.right_inverse(value)
        except NotImplementedError:
            return
        if not isinstance(inverse, Tensor):
            raise ValueError(
                "a further parametrization's right_inverse must return one tensor, "
                f"got {type(inverse).__name__}"
            )
        if inverse.dtype != value.dtype or inverse.shape != value.shape:
            raise ValueError(
                f"right_inverse must keep dtype and shape while unsafe=False: got {inverse.dtype} "
                f"{tuple(inverse.shape)} from {value.dtype} {tuple(value.shape)}"
            )


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether `module` has a parametrization, of `tensor_name` if given."""
    parametrizations = module.__dict__.get("_modules", {}).get("parametrizations")
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make ``module.<tensor_name>`` an ordinary parameter or buffer again.

    Args:
        leave_parametrized: whether it keeps its present value, rather than the original one.
    Returns: `module`.
    Raises: ValueError if it is not parametrized, or if there are several originals and one is to be left.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"{type(module).__name__} has no parametrization of {tensor_name!r}")
    parametrizations = module.parametrizations[tensor_name]
    if parametrizations.is_tensor:
        original = parametrizations.original
        if leave_parametrized:
            with fb.no_grad():
                value = getattr(module, tensor_name)
            # The same object, so that optimizers keep it.
            with fb.no_grad():
                _set_in_place(original, value)
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value) if value.requires_grad else value
    else:
        raise ValueError(
            f"{tensor_name!r} has {parametrizations.ntensors} original tensors, so there is none to go back "
            "to; "
            "use leave_parametrized=True"
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class `module` had before its parametrizations gave it one of its own."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(from_module: Module, to_module: Module, tensor_name: str | None = None) -> Module:
    """Copy the parametrizations of `from_module`, and their originals, to `to_module`.

    Args:
        tensor_name: of the one tensor whose are copied; those of all by default.
    Returns: `to_module`.
    """
    if not is_parametrized(from_module):
        return to_module
    if not isinstance(from_module.parametrizations, ModuleDict):
        raise AssertionError("from_module.parametrizations must be a ModuleDict")
    names = [tensor_name] if tensor_name is not None else list(from_module.parametrizations)
    for name in names:
        _transfer(from_module, to_module, name)
    return to_module


def _transfer(from_module: Module, to_module: Module, name: str) -> None:
    source = from_module.parametrizations[name]
    if not hasattr(to_module, name):
        value = source.original if source.is_tensor else getattr(from_module, name)
        setattr(to_module, name, Parameter(value.detach().clone(), value.requires_grad))
    for parametrization in source:
        register_parametrization(to_module, name, copy.deepcopy(parametrization), unsafe=source.unsafe)
    target = to_module.parametrizations[name]
    originals = ["original"] if source.is_tensor else [f"original{i}" for i in range(source.ntensors)]
    for original in originals:
        value = getattr(source, original)
        setattr(
            target,
            original,
            Parameter(value.detach().clone(), value.requires_grad)
            if isinstance(value, Parameter)
            else value.clone(),
        )
