"""Pruning: multiplying a parameter by a mask of zeros and ones.

A pruned parameter `name` is kept as ``{name}_orig``, its mask as the buffer ``{name}_mask``, and their
product is put at `name` before every forward by a pre-hook, which is the pruning method itself.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import flambeau as fb

Tensor = fb.Tensor

__all__ = [
    "BasePruningMethod",
    "PruningContainer",
    "Identity",
    "RandomUnstructured",
    "L1Unstructured",
    "RandomStructured",
    "LnStructured",
    "CustomFromMask",
    "identity",
    "random_unstructured",
    "l1_unstructured",
    "random_structured",
    "ln_structured",
    "global_unstructured",
    "custom_from_mask",
    "remove",
    "is_pruned",
]


class BasePruningMethod(ABC):
    """A way of choosing what to prune. A subclass sets `PRUNING_TYPE` and defines `compute_mask`.

    `PRUNING_TYPE` is ``'unstructured'`` (single elements), ``'structured'`` (whole channels) or ``'global'``.
    """

    PRUNING_TYPE: str
    _tensor_name: str

    def __call__(self, module: Any, inputs: Any) -> None:
        """The pre-hook."""
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask for importance scores `t`, within `default_mask`: 0 where pruned, of the same shape."""

    def apply_mask(self, module: Any) -> Tensor:
        """The original parameter times its mask."""
        if self._tensor_name is None:
            raise AssertionError(f"{type(self).__name__} is not applied to a parameter yet")
        mask = getattr(module, self._tensor_name + "_mask")
        original = getattr(module, self._tensor_name + "_orig")
        return mask.to(dtype=original.dtype) * original

    @classmethod
    def apply(cls, module: Any, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any) -> BasePruningMethod:
        """Prune the parameter `name`, further if it is pruned already.

        Args:
            importance_scores: of the parameter's shape; the parameter itself by default.
            *args, **kwargs: of the class.
        Returns: the pre-hook: the method, or the container of all methods applied.
        """
        method = cls(*args, **kwargs)
        method._tensor_name = name
        earlier = _take_hook(module, name)
        if earlier is not None:
            container = PruningContainer(earlier)
            container.add_pruning_method(method)
            method = container
        original = getattr(module, name)
        scores = original if importance_scores is None else importance_scores
        if scores.shape != original.shape:
            raise AssertionError(f"prune: importance_scores have shape {tuple(scores.shape)}, {name!r} {tuple(original.shape)}")
        if earlier is None:
            module.register_parameter(name + "_orig", module._parameters.pop(name))
            mask = fb.ones_like(original)
        else:
            mask = getattr(module, name + "_mask").detach().clone()
        try:
            mask = method.compute_mask(scores, default_mask=mask)
        except Exception:
            if earlier is None:
                module.register_parameter(name, module._parameters.pop(name + "_orig"))
            else:
                module.register_forward_pre_hook(earlier)
            raise
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """A pruned copy of `t`, within `default_mask`."""
        scores = t if importance_scores is None else importance_scores
        if scores.shape != t.shape:
            raise AssertionError(f"prune: importance_scores have shape {tuple(scores.shape)}, the tensor {tuple(t.shape)}")
        return t * self.compute_mask(scores, fb.ones_like(t) if default_mask is None else default_mask)

    def remove(self, module: Any) -> None:
        """Make the pruned values the parameter; what was pruned is lost."""
        name = self._tensor_name
        if name is None:
            raise AssertionError(f"{type(self).__name__} is not applied to a parameter")
        pruned = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        original = module._parameters.pop(name + "_orig")
        original.data = pruned.data
        del module._buffers[name + "_mask"]
        setattr(module, name, original)


def _take_hook(module: Any, name: str) -> BasePruningMethod | None:
    """The pruning pre-hook of the parameter `name`, taken out of the module."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            del module._forward_pre_hooks[key]
            return hook
    return None


class PruningContainer(BasePruningMethod):
    """Several pruning methods on one parameter: each prunes what those before it left."""

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        for method in args:
            # A container's methods rather than the container, so that the last one is the last applied.
            for single in method if isinstance(method, PruningContainer) else (method,):
                self.add_pruning_method(single)

    def add_pruning_method(self, method: Any) -> None:
        """Add `method` at the end.

        Raises: TypeError if it is none, ValueError if it prunes another parameter.
        """
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method).__name__} is not a pruning method")
        if not self._pruning_methods:
            self._tensor_name = method._tensor_name
        elif method._tensor_name != self._tensor_name:
            raise ValueError(
                f"a container of methods for {self._tensor_name!r} cannot take one for "
                f"{method._tensor_name!r}"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: int) -> BasePruningMethod:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask after the last method, which only sees what `default_mask` has left."""
        method: Any = self._pruning_methods[-1]
        mask = default_mask.clone().to(dtype=t.dtype)
        kind = method.PRUNING_TYPE
        if kind == "unstructured":
            chosen: Any = default_mask == 1
        elif kind == "structured":
            if not hasattr(method, "dim"):
                raise AttributeError(f"{type(method).__name__} is structured, so it needs an attribute dim")
            # Channels that are left, in whole or in part.
            alive = default_mask.movedim(method.dim, 0).flatten(1).sum(1) != 0
            chosen = [slice(None)] * t.dim()
            chosen[method.dim] = alive
            chosen = tuple(chosen)
        elif kind == "global":
            chosen = tuple(slice(None) for _ in range(t.dim()))
        else:
            raise ValueError(f"{type(method).__name__} has unknown PRUNING_TYPE {kind!r}")
        mask[chosen] = method.compute_mask(t[chosen], default_mask=default_mask[chosen]).to(dtype=mask.dtype)
        return mask


class Identity(BasePruningMethod):
    """Prunes nothing, but makes the mask."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask

    @classmethod
    def apply(cls, module: Any, name: str) -> BasePruningMethod:  # type: ignore[override]
        """Make the mask of the parameter `name`."""
        return super().apply(module, name)


def _check_amount(amount: Any) -> None:
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"prune: amount must be a number, got {amount!r}")
    integral = isinstance(amount, numbers.Integral)
    if integral and amount < 0 or not integral and not 0.0 <= float(amount) <= 1.0:
        raise ValueError(f"prune: amount must be an int >= 0 or a fraction from 0.0 to 1.0, got {amount}")


def _count(amount: Any, size: int) -> int:
    """How many of `size` elements `amount` means. Raises ValueError if there are not as many."""
    if not isinstance(amount, numbers.Integral):
        return round(amount * size)
    count: Any = amount
    if count > size:
        raise ValueError(f"prune: cannot prune {amount} of {size}")
    return count


class _ByAmount(BasePruningMethod):
    """Args: amount: how many elements, an int, or which fraction of them, a float."""

    def __init__(self, amount: Any) -> None:
        _check_amount(amount)
        self.amount = amount


class RandomUnstructured(_ByAmount):
    """Prunes elements at random."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        size = t.nelement()
        count = _count(self.amount, size)
        mask = default_mask.clone(memory_format=fb.contiguous_format)
        if count:
            chance = fb.rand_like(t)
            mask.view(-1)[fb.topk(chance.view(-1), k=count).indices] = 0
        return mask

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any) -> BasePruningMethod:  # type: ignore[override]
        """Prune the parameter `name`."""
        return super().apply(module, name, amount=amount)


class L1Unstructured(_ByAmount):
    """Prunes the elements of least magnitude."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _count(self.amount, t.nelement())
        mask = default_mask.clone(memory_format=fb.contiguous_format)
        if count:
            mask.view(-1)[fb.topk(fb.abs(t).view(-1), k=count, largest=False).indices] = 0
        return mask

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Any, name: str, amount: Any, importance_scores: Tensor | None = None
    ) -> BasePruningMethod:
        """Prune the parameter `name`."""
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


def _check_structured(t: Tensor, dim: int) -> None:
    if t.dim() <= 1:
        raise ValueError(f"prune: structured pruning needs at least 2 dimensions, got shape {tuple(t.shape)}")
    if dim >= t.dim():
        raise IndexError(f"prune: dim={dim} is out of range for shape {tuple(t.shape)}")


def _channel_mask(t: Tensor, dim: int, pruned: Tensor) -> Tensor:
    """Ones of the shape of `t`, but zeros at the indices `pruned` of `dim`."""
    mask = fb.ones_like(t)
    where: list[Any] = [slice(None)] * t.dim()
    where[dim] = pruned
    mask[tuple(where)] = 0
    return mask


class RandomStructured(BasePruningMethod):
    """Prunes whole channels along `dim` at random."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, dim: int = -1) -> None:
        _check_amount(amount)
        self.amount = amount
        self.dim = dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        _check_structured(t, self.dim)
        size = t.shape[self.dim]
        count = _count(self.amount, size)
        if count == 0:
            return default_mask
        kept = fb.topk(fb.rand(size), k=size - count).indices
        pruned = fb.ones(size, dtype=fb.bool)
        pruned[kept] = False
        return _channel_mask(t, self.dim, pruned.to(t.device)).to(dtype=default_mask.dtype) * default_mask

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Any, name: str, amount: Any, dim: int = -1
    ) -> BasePruningMethod:
        """Prune the parameter `name`."""
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(BasePruningMethod):
    """Prunes the whole channels along `dim` of least n-norm.

    Args:
        amount: a number of channels, or a fraction between 0 and 1.
        n: anything `linalg.norm` takes.
    """

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, n: Any, dim: int = -1) -> None:
        _check_amount(amount)
        self.amount = amount
        self.n = n
        self.dim = dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        _check_structured(t, self.dim)
        size = t.shape[self.dim]
        count = _count(self.amount, size)
        if count == 0:
            return default_mask
        others = tuple(d for d in range(t.dim()) if d != self.dim % t.dim())
        norms = fb.norm(t, p=self.n, dim=others)
        kept = fb.topk(norms, k=size - count, largest=True).indices
        pruned = fb.ones(size, dtype=fb.bool, device=t.device)
        pruned[kept] = False
        return _channel_mask(t, self.dim, pruned).to(dtype=default_mask.dtype) * default_mask

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Any, name: str, amount: Any, n: Any, dim: int, importance_scores: Tensor | None = None
    ) -> BasePruningMethod:
        """Prune the parameter `name`."""
        return super().apply(module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores)


class CustomFromMask(BasePruningMethod):
    """Prunes where `mask` is 0."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if default_mask.shape != self.mask.shape:
            raise AssertionError(f"prune: the mask has shape {tuple(self.mask.shape)}, the tensor {tuple(default_mask.shape)}")
        return default_mask * self.mask.to(dtype=default_mask.dtype)

    @classmethod
    def apply(cls, module: Any, name: str, mask: Tensor) -> BasePruningMethod:  # type: ignore[override]
        """Prune the parameter `name`."""
        return super().apply(module, name, mask=mask)


def identity(module: Any, name: str) -> Any:
    """Make a mask of ones for the parameter `name`. Returns `module`."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Any, name: str, amount: Any) -> Any:
    """Prune elements of the parameter `name` at random: `amount` of them, or a fraction. Returns `module`."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Any, name: str, amount: Any, importance_scores: Tensor | None = None) -> Any:
    """Prune the elements of the parameter `name` of least magnitude (or score). Returns: `module`.

    Args:
        amount: a number of elements, or a fraction between 0 and 1.
        importance_scores: of the shape of the parameter, in place of the magnitudes.
    """
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Any, name: str, amount: Any, dim: int) -> Any:
    """Prune channels of the parameter `name` along `dim` at random. Returns: `module`.

    Args:
        amount: a number of channels, or a fraction between 0 and 1.
    """
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: Any, name: str, amount: Any, n: Any, dim: int, importance_scores: Tensor | None = None) -> Any:
    """Prune the channels of the parameter `name` along `dim` of least n-norm. Returns: `module`.

    Args:
        amount: a number of channels, or a fraction between 0 and 1.
        importance_scores: of the shape of the parameter, whose norms count in place of its own.
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Any, str]],
    pruning_method: type,
    importance_scores: dict[Any, Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prune single elements of several parameters as if they were one.

    Args:
        parameters: pairs of module and name.
        pruning_method: an unstructured method's class.
        importance_scores: by such pairs; the parameters themselves where missing.
        **kwargs: of the class, such as `amount`.
    Raises: TypeError if `parameters` cannot be iterated or the method is not unstructured.
    """
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured expects pairs of module and name")
    parameters = list(parameters)
    importance_scores = {} if importance_scores is None else importance_scores
    if not isinstance(importance_scores, dict):
        raise TypeError("global_unstructured: importance_scores must be a dict keyed by pairs of module and name")
    scores: list[Any] = [importance_scores.get((module, name), getattr(module, name)) for module, name in parameters]
    present = [getattr(module, name + "_mask", None) for module, name in parameters]
    masks = [
        fb.ones_like(getattr(module, name)) if mask is None else mask
        for (module, name), mask in zip(parameters, present, strict=True)
    ]
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            f"global_unstructured needs an unstructured method, {pruning_method.__name__} is "
            f"{method.PRUNING_TYPE}"
        )
    method._tensor_name = "temp"
    container = PruningContainer(method)
    mask_of_all = container.compute_mask(
        fb.cat([s.reshape(-1) for s in scores]), fb.cat([m.reshape(-1) for m in masks])
    )
    start = 0
    for module, name in parameters:
        param = getattr(module, name)
        custom_from_mask(module, name, mask=mask_of_all[start : start + param.numel()].view_as(param))
        start += param.numel()


def custom_from_mask(module: Any, name: str, mask: Tensor) -> Any:
    """Prune the parameter `name` where `mask` is 0. Returns `module`."""
    CustomFromMask.apply(module, name, mask)
    return module


def remove(module: Any, name: str) -> Any:
    """Make the pruned values of the parameter `name` permanent. Raises ValueError if it is not pruned.

    Returns: `module`.
    """
    hook = _take_hook(module, name)
    if hook is None:
        raise ValueError(f"prune.remove: {name!r} of {type(module).__name__} is not pruned")
    hook.remove(module)
    return module


def is_pruned(module: Any) -> bool:
    """Whether a parameter of `module`, or of a module below, is pruned."""
    return any(
        isinstance(hook, BasePruningMethod)
        for m in module.modules()
        for hook in m._hooks("_forward_pre_hooks").values()
    )
