"""Modules that learn the sizes of their parameters from the first input they see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...tensor import Tensor
from ..parameter import is_lazy

if TYPE_CHECKING:
    from .module import Module as _Module  # what the class after the mixin is
else:
    _Module = object

__all__ = ["LazyModuleMixin"]


class LazyModuleMixin(_Module):
    """Put before a module class, whose `__init__` then makes uninitialised parameters.

    The subclass defines `initialize_parameters(*args)`, called with the first inputs, which materialises
    them. After that the module becomes an instance of `cls_to_become`, if the class names one, and is lazy no
    more. A lazy module must see a sample batch, or load a state_dict, before its parameters are used.
    """

    cls_to_become: type | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self.register_load_state_dict_pre_hook(_materialize_for)
        self._initialize_hook = self.register_forward_pre_hook(_infer_parameters, with_kwargs=True)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        # Tensors without a shape are saved as they are: there is nothing to detach.
        for name, tensor in self._own_state().items():
            if tensor is not None:
                destination[prefix + name] = tensor if keep_vars or is_lazy(tensor) else tensor.detach()

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Materialise the parameters from the first inputs. The subclass defines it."""
        raise NotImplementedError(f"{type(self).__name__} must define initialize_parameters()")

    def _need_tensor(self, input: Any) -> None:
        if not isinstance(input, Tensor):
            raise TypeError(f"{type(self).__name__}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Whether any parameter or buffer of this module itself still has no shape."""
        return any(is_lazy(t) for t in (*self._parameters.values(), *self._buffers.values()))


def _materialize_for(module: Any, state_dict: Any, prefix: str, *rest: Any) -> None:
    """The hook before loading of a lazy module: parameters without a shape take that of the values to come."""
    for name, tensor in module._own_state().items():
        given = state_dict.get(prefix + name)
        if tensor is not None and given is not None and is_lazy(tensor) and not is_lazy(given):
            tensor.materialize(given.shape)


def _infer_parameters(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """The forward pre-hook of a lazy module: initialise, then take the hooks out and change class."""
    module.initialize_parameters(*args, **kwargs)
    if module.has_uninitialized_params():
        raise RuntimeError(
            f"{type(module).__name__}.initialize_parameters() left parameters uninitialised; "
            "it must materialise all of them"
        )
    module._initialize_hook.remove()
    module._load_hook.remove()
    del module._initialize_hook, module._load_hook
    if module.cls_to_become is not None:
        module.__class__ = module.cls_to_become
