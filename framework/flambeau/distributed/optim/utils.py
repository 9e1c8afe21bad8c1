"""Optimizers that are given gradients instead of finding them at parameters."""

from __future__ import annotations

from typing import Any

from ... import optim as optimizers

__all__ = ["as_functional_optim", "register_functional_optim"]


class FunctionalOptimizer:
    """An optimizer that is called with gradients, for all parameters or for one as soon as it has its gradient.

    Args:
        optimizer_class: a class of optimizers.
        params: its parameters; they may be left out where only `step_param` is called.
        args, kwargs: of the optimizer.
    """

    def __init__(self, optimizer_class: type, params: list[Any], *args: Any, **kwargs: Any) -> None:
        self._make = lambda members: optimizer_class(members, *args, **kwargs)
        self.param_group = {"params": list(params)}
        self._of: dict[Any, Any] = {}

    @property
    def state(self) -> dict[Any, Any]:
        """What is remembered of each parameter."""
        return {param: optimizer.state.get(param, {}) for param, optimizer in self._of.items()}

    def step_param(self, param: Any, grad: Any) -> None:
        """Update one parameter.

        Args:
            param: the parameter; each has a state of its own.
            grad: its gradient; None leaves it as it is.
        """
        if grad is None:
            return
        optimizer = self._of.get(param)
        if optimizer is None:
            optimizer = self._of[param] = self._make([param])
        before = param.grad
        param.grad = grad
        try:
            optimizer.step()
        finally:
            param.grad = before

    def step(self, gradients: list[Any]) -> None:
        """Update all parameters.

        Args:
            gradients: one for each parameter, or None.
        Raises: ValueError for another number of gradients.
        """
        params = self.param_group["params"]
        if len(gradients) != len(params):
            raise ValueError(
                f"the gradients passed in does not equal to the size of the parameters! Params length: {len(params)}. "
                f"Gradients length: {len(gradients)}"
            )
        for param, grad in zip(params, gradients, strict=True):
            self.step_param(param, grad)


functional_optim_map: dict[type, Any] = {}


def _functional(optimizer_class: type) -> Any:
    def make(params: list[Any], *args: Any, **kwargs: Any) -> FunctionalOptimizer:
        kwargs.pop("_allow_empty_param_list", None)
        return FunctionalOptimizer(optimizer_class, params, *args, **kwargs)

    return make


for _class in (
    optimizers.Adagrad, optimizers.Adam, optimizers.AdamW, optimizers.SGD, optimizers.Adadelta, optimizers.RMSprop,
    optimizers.Rprop, optimizers.Adamax,
):  # fmt: skip
    functional_optim_map[_class] = _functional(_class)


def register_functional_optim(key: Any, optim: Any) -> None:
    """Let `as_functional_optim` answer `key` with `optim`, unless it has an answer.

    Args:
        key: a class of optimizers.
        optim: called as ``optim([], *args, _allow_empty_param_list=True, **kwargs)``.
    """
    functional_optim_map.setdefault(key, optim)


def as_functional_optim(optim_cls: type, *args: Any, **kwargs: Any) -> Any:
    """The form of an optimizer that is given gradients: `step(gradients)`, `step_param(param, grad)`.

    Args:
        optim_cls: a class of optimizers.
        args, kwargs: of the optimizer.
    Raises: ValueError for a class without such a form.
    """
    if optim_cls not in functional_optim_map:
        raise ValueError(f"Optimizer {optim_cls} does not have a functional counterpart!")
    return functional_optim_map[optim_cls]([], *args, _allow_empty_param_list=True, **kwargs)
