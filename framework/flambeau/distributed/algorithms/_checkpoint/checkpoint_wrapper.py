"""Wrappers of modules that keep less for backward; names of parameters and keys of state dicts are those of the modules alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Any

from ....autograd.graph import save_on_cpu
from ....nn.modules.module import Module
from ....utils.checkpoint import checkpoint
from ...fsdp.wrap import _recursive_wrap, lambda_auto_wrap_policy

__all__ = ["ActivationWrapper", "CheckpointImpl", "CheckpointWrapper", "OffloadWrapper", "apply_activation_checkpointing",
           "checkpoint_wrapper", "offload_wrapper"]  # fmt: skip

_NAME = "_checkpoint_wrapped_module"


class CheckpointImpl(Enum):
    """Which kind of `utils.checkpoint.checkpoint` runs a module."""

    REENTRANT = auto()
    NO_REENTRANT = auto()


class ActivationWrapper(Module):
    """What wrappers have in common: attributes, items, parameters and states of the module inside."""

    def __init__(self, mod: Module) -> None:
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self.register_state_dict_post_hook(_without_name)
        self.register_load_state_dict_pre_hook(_with_name)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == _NAME:
                raise
            return getattr(self._checkpoint_wrapped_module, name)

    def __getitem__(self, key: Any) -> Any:
        return self._checkpoint_wrapped_module.__getitem__(key)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """As of a module, with the names that the module inside gives."""
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace(f"{_NAME}.", ""), parameter


def _without_name(module: Module, state_dict: dict[str, Any], prefix: str, local_metadata: Any) -> None:
    _renamed(state_dict, f"{prefix}{_NAME}.", prefix)


def _with_name(module: Module, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
    _renamed(state_dict, prefix, f"{prefix}{_NAME}.")


def _renamed(state_dict: dict[str, Any], old: str, new: str) -> None:
    """Give the keys of `state_dict` that begin with `old` the beginning `new`, in the order they are in."""
    entries = [(new + key.removeprefix(old) if key.startswith(old) else key, value) for key, value in state_dict.items()]
    state_dict.clear()
    state_dict.update(entries)


class CheckpointWrapper(ActivationWrapper):
    """`mod`, whose intermediate tensors are computed again in backward.

    Args:
        checkpoint_fn: called with the module and its arguments in the place of `utils.checkpoint.checkpoint`.
        checkpoint_fn_kwargs: further keyword arguments of that function.
    """

    def __init__(
        self,
        mod: Module,
        checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Callable[..., Any] | None = None,
        **checkpoint_fn_kwargs: Any,
    ) -> None:
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        if checkpoint_fn is None:
            checkpoint_fn = functools.partial(checkpoint, use_reentrant=checkpoint_impl is CheckpointImpl.REENTRANT)
        self.checkpoint_fn = functools.partial(checkpoint_fn, **checkpoint_fn_kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        module = self._checkpoint_wrapped_module
        if self.checkpoint_impl is not CheckpointImpl.REENTRANT or not kwargs:
            return self.checkpoint_fn(module, *args, **kwargs)
        # That kind takes no keyword arguments, and differentiates tensors that it is given one by one.
        names, count = list(kwargs), len(args)

        def positional(*values: Any) -> Any:
            return module(*values[:count], **dict(zip(names, values[count:], strict=True)))

        return self.checkpoint_fn(positional, *args, *kwargs.values())


class OffloadWrapper(ActivationWrapper):
    """`mod`, whose intermediate tensors wait for backward in the memory of the host."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with save_on_cpu(pin_memory=True):
            return self._checkpoint_wrapped_module(*args, **kwargs)


def checkpoint_wrapper(
    module: Module,
    checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Callable[..., Any] | None = None,
    **checkpoint_fn_kwargs: Any,
) -> Module:
    """`module` in a `CheckpointWrapper`, which has the arguments.

    >>> layer = checkpoint_wrapper(fb.nn.Linear(2, 3))
    >>> [name for name, _ in layer.named_parameters()]
    ['weight', 'bias']
    """
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def offload_wrapper(module: Module) -> Module:
    """`module` in an `OffloadWrapper`."""
    return OffloadWrapper(module)


def apply_activation_checkpointing(
    model: Module,
    checkpoint_wrapper_fn: Callable[[Module], Module] = checkpoint_wrapper,
    check_fn: Callable[[Module], bool] = lambda _: True,
    auto_wrap_policy: Callable[..., bool] | None = None,
) -> None:
    """Replace modules inside of `model` by what `checkpoint_wrapper_fn` makes of them.

    Args:
        check_fn: says which modules.
        auto_wrap_policy: says it in the place of `check_fn`, as for `FullyShardedDataParallel`.
    """
    policy = auto_wrap_policy or functools.partial(lambda_auto_wrap_policy, lambda_fn=check_fn)
    _recursive_wrap(model, policy, checkpoint_wrapper_fn, set(), set(), only_wrap_children=True)
