"""Averages of a model's weights over training: stochastic weight averaging, exponential moving averages."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any, Literal

import flambeau as fb
from flambeau import Tensor
from flambeau.nn import Module

from .lr_scheduler import LRScheduler, _per_group
from .optimizer import Optimizer

__all__ = [
    "AveragedModel", "update_bn", "SWALR", "get_ema_multi_avg_fn", "get_swa_multi_avg_fn", "get_ema_avg_fn",
    "get_swa_avg_fn",
]


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def get_ema_avg_fn(decay: float = 0.999) -> Callable[..., Any]:
    """``fn(average, current, num_averaged)``: the moving average that keeps `decay` of itself."""
    _check_decay(decay)

    @fb.no_grad()
    def ema_update(ema_param: Any, current_param: Any, num_averaged: Any) -> Any:
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> Callable[..., Any]:
    """``fn(average, current, num_averaged)``: the mean of all models so far."""

    @fb.no_grad()
    def swa_update(averaged_param: Any, current_param: Any, num_averaged: Any) -> Any:
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[..., Any]:
    """`get_ema_avg_fn` for lists of parameters, in place."""
    _check_decay(decay)

    @fb.no_grad()
    def ema_update(ema_param_list: Any, current_param_list: Any, _: Any) -> None:
        _blend_all(ema_param_list, current_param_list, 1 - decay)

    return ema_update


def get_swa_multi_avg_fn() -> Callable[..., Any]:
    """`get_swa_avg_fn` for lists of parameters, in place."""

    @fb.no_grad()
    def swa_update(averaged_param_list: Any, current_param_list: Any, num_averaged: Any) -> None:
        _blend_all(averaged_param_list, current_param_list, 1 / (float(num_averaged) + 1))

    return swa_update


def _blend_all(averages: Any, currents: Any, weight: float) -> None:
    for average, current in zip(averages, currents, strict=True):
        if average.is_floating_point() or average.is_complex():
            average.lerp_(current.to(average.dtype), weight)
        else:  # counters among the buffers
            average.copy_(average + (current - average) * weight)


class AveragedModel(Module):
    """A copy of a model whose parameters are an average of those the model has had.

    Args:
        model: the model to copy. device: where the copy goes.
        avg_fn: ``(average, current, num_averaged) -> new average``; the plain mean by default.
        multi_avg_fn: the same for lists of parameters, in place; give one of the two.
        use_buffers: average buffers too, instead of copying them.
    Raises: AssertionError if both functions are given.
    Source: Izmailov et al. 2018, "Averaging Weights Leads to Wider Optima and Better Generalization".
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Callable[..., Any] | None = None,
        multi_avg_fn: Callable[..., Any] | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("AveragedModel: only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", fb.tensor(0, dtype=fb.long, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _averaged(self, model: Module) -> list[Any]:
        buffers = model.buffers() if self.use_buffers else ()
        return [t.detach() for t in itertools.chain(model.parameters(), buffers)]

    def update_parameters(self, model: Module) -> None:
        """Add the present parameters of `model` to the average. The first call copies them."""
        averages = self._averaged(self.module)
        currents = [c.to(a.device) for a, c in zip(averages, self._averaged(model), strict=True)]
        count = int(self.n_averaged)
        if count == 0:
            for average, current in zip(averages, currents, strict=True):
                average.copy_(current)
        elif self.avg_fn is not None:
            for average, current in zip(averages, currents, strict=True):
                average.copy_(self.avg_fn(average, current, self.n_averaged.to(average.device)))
        else:
            (self.multi_avg_fn or get_swa_multi_avg_fn())(averages, currents, self.n_averaged)
        if not self.use_buffers:
            for kept, current in zip(self.module.buffers(), model.buffers(), strict=True):
                kept.detach().copy_(current.detach().to(kept.device))
        self.n_averaged += 1


@fb.no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Recompute the running statistics of the batch-norm layers of `model` as plain means over `loader`.

    Args:
        loader: batches; of a tuple or list, the first element is the input.
        device: where batches are moved to.
    """
    layers = [m for m in model.modules() if isinstance(m, fb.nn.modules.batchnorm._BatchNorm)]
    if not layers:
        return
    momenta = [layer.momentum for layer in layers]
    was_training = model.training
    model.train()
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # which means: a cumulative mean
    try:
        for batch in loader:
            batch = batch[0] if isinstance(batch, (list, tuple)) else batch
            model(batch if device is None else batch.to(device))
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        model.train(was_training)


class SWALR(LRScheduler):
    """Anneals the rate of every group to `swa_lr` and keeps it there.

    Args:
        swa_lr: final rate, one number or one per group.
        anneal_epochs: steps that the annealing takes, an int >= 0. anneal_strategy: 'cos' or 'linear'.
    Raises: ValueError for other values.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        last_epoch: int = -1,
    ) -> None:
        for group, rate in zip(optimizer.param_groups, _per_group("swa_lr", swa_lr, optimizer), strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be an integer, equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _progress(self, step: int) -> float:
        """Share of the way to `swa_lr` after `step` steps."""
        done = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return done if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * done)) / 2

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._progress(step - 1), self._progress(step)
        rates = []
        for group in self.optimizer.param_groups:
            # Where the annealing began, if the present rate is `before` of the way.
            start = group["swa_lr"] if before == 1 else (group["lr"] - group["swa_lr"] * before) / (1 - before)
            rates.append(group["swa_lr"] * now + start * (1 - now))
        return rates
