"""Which modules inside of a model are wrapped on their own: policies, and regions in which `wrap` wraps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import flambeau as fb

from ...nn.modules.module import Module

__all__ = [
    "CustomPolicy", "ModuleWrapPolicy", "always_wrap_policy", "enable_wrap", "lambda_auto_wrap_policy", "size_based_auto_wrap_policy",
    "transformer_auto_wrap_policy", "wrap",
]  # fmt: skip


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Every module is wrapped."""
    return True


def lambda_auto_wrap_policy(module: Module, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[[Module], bool]) -> bool:
    """Modules that ``lambda_fn(module)`` says are wrapped.

    Args:
        module, recurse, nonwrapped_numel: what policies are asked with: whether to look into the module, or to wrap it.
    """
    return recurse or lambda_fn(module)


def transformer_auto_wrap_policy(module: Module, recurse: bool, nonwrapped_numel: int, transformer_layer_cls: Iterable[type]) -> bool:
    """Modules of the classes `transformer_layer_cls` are wrapped; other arguments as for `lambda_auto_wrap_policy`."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    min_num_params: int = int(1e8),
    force_leaf_modules: set[type] | None = None,
    exclude_wrap_modules: set[type] | None = None,
) -> bool:
    """Modules with at least `min_num_params` elements that nothing inside has taken are wrapped.

    Args:
        module, recurse, nonwrapped_numel: as for `lambda_auto_wrap_policy`.
        force_leaf_modules: classes that are not looked into; MultiheadAttention by default.
        exclude_wrap_modules: classes that are not wrapped; ModuleList and ModuleDict by default.
    """
    leaves = {fb.nn.MultiheadAttention} if force_leaf_modules is None else force_leaf_modules
    excluded = {fb.nn.ModuleList, fb.nn.ModuleDict} if exclude_wrap_modules is None else exclude_wrap_modules
    if recurse:
        return nonwrapped_numel >= min_num_params and not isinstance(module, tuple(leaves))
    return nonwrapped_numel >= min_num_params and not isinstance(module, tuple(excluded))


class ModuleWrapPolicy:
    """Modules of the classes given are wrapped."""

    def __init__(self, module_classes: Iterable[type]) -> None:
        self._module_classes = set(module_classes)

    def __call__(self, module: Module, recurse: bool, *args: Any, **kwargs: Any) -> bool:
        return recurse or isinstance(module, tuple(self._module_classes))

    def __repr__(self) -> str:
        return f"{super().__repr__()}({self._module_classes})"


class CustomPolicy:
    """``fn(module)`` says whether a module is wrapped, or with which arguments of its own, a dict."""

    def __init__(self, lambda_fn: Callable[[Module], bool | dict[str, Any]]) -> None:
        self._lambda_fn = lambda_fn

    def __call__(self, module: Module, recurse: bool, *args: Any, **kwargs: Any) -> Any:
        if recurse:
            return True
        found = self._lambda_fn(module)
        if not isinstance(found, (dict, bool)):
            raise ValueError(f"The lambda_fn passed to CustomPolicy should return False/True or a kwarg dict, but it returned {found}")
        return found


def wrap_inside(root: Module, policy: Any, ignored: set[int], wrap_one: Callable[[Module, dict[str, Any]], Module]) -> int:
    """Replace modules inside of `root` as `policy` says, the innermost first; returns how many elements of parameters are taken."""
    return _wrapped(root, policy, ignored, wrap_one, itself=False)[1]


def _wrapped(
    module: Module, policy: Any, ignored: set[int], wrap_one: Callable[[Module, dict[str, Any]], Module], itself: bool
) -> tuple[Module, int]:
    """What comes in the place of `module`, and how many elements of its parameters are in wrapped modules then."""
    total = sum(p.numel() for p in module.parameters() if id(p) not in ignored)
    if not policy(module, True, total):
        return module, 0
    taken = 0
    for name, child in module.named_children():
        if id(child) not in ignored:
            new, count = _wrapped(child, policy, ignored, wrap_one, itself=True)
            setattr(module, name, new)
            taken += count
    found = policy(module, False, total - taken) if itself else False
    if found is False or found is None:
        return module, taken
    return wrap_one(module, found if isinstance(found, dict) else {}), total


def _recursive_wrap(
    module: Module,
    auto_wrap_policy: Callable[..., Any],
    wrapper_cls: Callable[..., Module],
    ignored_modules: set[Module],
    ignored_params: set[Any],
    only_wrap_children: bool = False,
    **kwargs: Any,
) -> tuple[Module, int]:
    """`module` and those inside of it, each as ``wrapper_cls(module, **kwargs)`` where the policy says so.

    Args:
        only_wrap_children: leave `module` itself as it is.
    Returns: what comes in the place of `module`, and how many elements of its parameters are in wrapped modules then.
    """
    ignored = {id(x) for x in (*ignored_modules, *ignored_params)}
    return _wrapped(module, auto_wrap_policy, ignored, lambda child, more: wrapper_cls(child, **{**kwargs, **more}), not only_wrap_children)


_open: list[tuple[Any, dict[str, Any]]] = []


@contextlib.contextmanager
def enable_wrap(*, wrapper_cls: Any, **wrapper_kwargs: Any) -> Iterator[None]:
    """A region in which `wrap` makes ``wrapper_cls(module, **wrapper_kwargs)``."""
    _open.append((wrapper_cls, wrapper_kwargs))
    try:
        yield
    finally:
        _open.pop()


def wrap(module: Module, **wrap_overrides: Any) -> Module:
    """`module`, wrapped inside of `enable_wrap`; `wrap_overrides` go before the arguments given there."""
    if not _open:
        return module
    cls, kwargs = _open[-1]
    return cls(module, **{**kwargs, **wrap_overrides})


