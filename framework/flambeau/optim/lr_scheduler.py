"""Learning-rate schedules.

Most schedules exist in two forms. `get_lr` goes from the present rate to the next one, so that several
schedulers can change the rate of one optimizer; `_get_closed_form_lr` computes the rate of any epoch from the
base rates, and serves ``step(epoch)``.
"""

from __future__ import annotations

import functools
import math
import types
import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, Literal

from flambeau import Tensor

from .. import _state
from .optimizer import Optimizer

__all__ = [
    "LambdaLR", "MultiplicativeLR", "StepLR", "MultiStepLR", "ConstantLR", "LinearLR", "ExponentialLR",
    "SequentialLR", "CosineAnnealingLR", "ChainedScheduler", "ReduceLROnPlateau", "CyclicLR",
    "CosineAnnealingWarmRestarts", "OneCycleLR", "PolynomialLR", "LRScheduler",
]

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. "
    "Please use "
    "`scheduler.step()` to step the scheduler."
)


def _copied(value: Any) -> Any:
    """A Tensor is cloned, since rates held in Tensors are changed in place."""
    return value.clone() if isinstance(value, Tensor) else value


def _set(group: dict[str, Any], key: str, value: Any) -> None:
    """Set an option; one held in a Tensor keeps its Tensor."""
    if isinstance(group[key], Tensor):
        group[key].fill_(float(value))
    else:
        group[key] = value


def _per_group(name: str, value: Any, optimizer: Optimizer) -> list[Any]:
    """`value` once per parameter group. Raises: ValueError for a list of another length."""
    count = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups: {name} has {len(value)} values, "
            f"param_groups has {count}"
        )
    return list(value)


def _check_optimizer(optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def _as_event(step: Callable[..., Any]) -> Callable[..., Any]:
    """`step`, of which who repeats a program is told; what it does besides is its own."""

    @functools.wraps(step)
    def replacement(self: LRScheduler, *args: Any, **kwargs: Any) -> Any:
        if not _state.IN_FORCE or args or kwargs:
            return step(self, *args, **kwargs)
        return _state.event("step", self, lambda: step(self))

    return replacement


class LRScheduler:
    """Sets the learning rates of an optimizer, once per epoch. Subclasses define `get_lr`.

    Args:
        optimizer: whose `param_groups` are changed.
        last_epoch: epochs already done; -1 starts anew and takes the present rates as base.
    Raises: KeyError when resuming groups that lack 'initial_lr'.
    """

    _get_lr_called_within_step = False
    _is_initial = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _as_event(cls.step)  # type: ignore[method-assign]

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        _check_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", _copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming with "
                    f"last_epoch={last_epoch}; load the optimizer's state_dict first, or set "
                    "group['initial_lr']"
                )
        self.base_lrs: list[Any] = [_copied(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._get_lr_called_within_step = False
        self._initial_step()

    def _initial_step(self) -> None:
        """Set the rates of the first epoch; when resuming, these are the present ones."""
        self._step_count = 0
        self._is_initial = True
        self.step()
        self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[Any]:
        """The rates that this scheduler set last, one per group."""
        return self._last_lr

    def get_lr(self) -> list[Any]:
        """The rates of epoch `last_epoch`, computed from the present ones."""
        raise NotImplementedError(f"{type(self).__name__}.get_lr: a scheduler has to define get_lr()")

    @_as_event
    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch, or to `epoch`."""
        if self._step_count == 1 and not self.optimizer._opt_called:
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. Call them in the opposite "
                "order: "
                "otherwise the first value of the learning rate schedule is skipped.",
                stacklevel=2,
            )
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, stacklevel=2)
        self._go_to(epoch)

    def _go_to(self, epoch: int | None) -> None:
        self._get_lr_called_within_step = True
        try:
            if epoch is None:
                self.last_epoch += 1
                rates = self.get_lr()
            else:
                self.last_epoch = epoch
                closed = getattr(self, "_get_closed_form_lr", None)
                rates = self.get_lr() if closed is None else closed()
        finally:
            self._get_lr_called_within_step = False
        self._set_rates(rates)

    def _set_rates(self, rates: Iterable[Any]) -> None:
        _state.settle()                               # no operation shows that rates are others now: who repeats a program must know
        for group, rate in zip(self.optimizer.param_groups, rates, strict=False):
            _set(group, "lr", rate)
        self._remember()

    def _remember(self) -> None:
        self._last_lr = [_copied(group["lr"]) for group in self.optimizer.param_groups]

    def _present(self) -> list[Any]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def _scaled(self, factor: Any) -> list[Any]:
        """The present rates times `factor`."""
        return [rate * factor for rate in self._present()]

    def _from_base(self, factor: Any) -> list[Any]:
        """The base rates times `factor`."""
        return [rate * factor for rate in self.base_lrs]

    def _warn_outside_step(self) -> None:
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use `get_last_lr()`.",
                stacklevel=3,
            )


_LRScheduler = LRScheduler  # its name before PyTorch 2.0


class _ByFunction(LRScheduler):
    """Schedules by user functions of the epoch."""

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Callable[[int], float] | list[Callable[[int], float]], last_epoch: int = -1
    ) -> None:
        _check_optimizer(optimizer)
        count = len(optimizer.param_groups)
        functions = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * count
        if len(functions) != count:
            raise ValueError(f"Expected {count} lr_lambdas, one per parameter group, but got {len(functions)}")
        self.lr_lambdas = functions
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer. Functions are saved only as the attributes of callable objects."""
        state = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "lr_lambdas")}
        state["lr_lambdas"] = [
            None if isinstance(fn, types.FunctionType) else dict(fn.__dict__) for fn in self.lr_lambdas
        ]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "lr_lambdas"})
        for function, saved in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=True):
            if saved is not None:
                function.__dict__.update(saved)


class LambdaLR(_ByFunction):
    """The base rate times a function of the epoch.

    Args:
        lr_lambda: ``epoch -> factor``, or one such function per group.
    """

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        return [base * fn(self.last_epoch) for base, fn in zip(self.base_lrs, self.lr_lambdas, strict=False)]


class MultiplicativeLR(_ByFunction):
    """The rate times a function of the epoch, each epoch after the first.

    Args:
        lr_lambda: ``epoch -> factor``, or one such function per group.
    """

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        if self._is_initial:
            return self._present()
        return [
            rate * fn(self.last_epoch) for rate, fn in zip(self._present(), self.lr_lambdas, strict=False)
        ]


class StepLR(LRScheduler):
    """Multiplies the rate by `gamma` every `step_size` epochs.

    >>> optimizer = fb.optim.SGD([nn.Parameter(fb.zeros(1))], lr=1.0)
    >>> scheduler = fb.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)
    >>> rates = []
    >>> for epoch in range(4):
    ...     rates += scheduler.get_last_lr()
    ...     optimizer.step()
    ...     scheduler.step()
    >>> rates
    [1.0, 1.0, 0.1, 0.1]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        falls = self.last_epoch > 0 and self.last_epoch % self.step_size == 0
        return self._scaled(self.gamma) if falls else self._present()

    def _get_closed_form_lr(self) -> list[Any]:
        return self._from_base(self.gamma ** (self.last_epoch // self.step_size))


class MultiStepLR(LRScheduler):
    """Multiplies the rate by `gamma` at each of the `milestones`, as often as it is listed."""

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        times = self.milestones.get(self.last_epoch, 0)
        return self._scaled(self.gamma**times) if times else self._present()

    def _get_closed_form_lr(self) -> list[Any]:
        return self._from_base(self.gamma ** bisect_right(sorted(self.milestones.elements()), self.last_epoch))


class ConstantLR(LRScheduler):
    """The base rate times `factor` for `total_iters` epochs, then the base rate.

    Raises: ValueError unless `factor` is in ``[0, 1]``.
    """

    def __init__(self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        if not 0 <= factor <= 1.0:
            raise ValueError(f"Constant multiplicative factor expected to be between 0 and 1, got {factor}")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        if self.last_epoch == 0:
            return self._scaled(self.factor)
        return self._scaled(1.0 / self.factor) if self.last_epoch == self.total_iters else self._present()

    def _get_closed_form_lr(self) -> list[Any]:
        return self._from_base(self.factor if self.last_epoch < self.total_iters else 1.0)


class LinearLR(LRScheduler):
    """The base rate times a factor that goes from `start_factor` to `end_factor` in `total_iters` epochs.

    Raises: ValueError unless ``0 < start_factor <= 1`` and ``0 <= end_factor <= 1``.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1.0:
            raise ValueError(
                f"Starting multiplicative factor expected to be greater than 0 and at most 1, got "
                f"{start_factor}"
            )
        if not 0 <= end_factor <= 1.0:
            raise ValueError(f"Ending multiplicative factor expected to be between 0 and 1, got {end_factor}")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: int) -> float:
        done = min(epoch, self.total_iters)
        return self.start_factor + (self.end_factor - self.start_factor) * done / self.total_iters

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        if self.last_epoch == 0:
            return self._scaled(self.start_factor)
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._present()
        span = self.end_factor - self.start_factor
        # What `_factor` says of this epoch by what it says of the last, rounded as PyTorch rounds it.
        return self._scaled(1.0 + span / (self.total_iters * self.start_factor + (self.last_epoch - 1) * span))

    def _get_closed_form_lr(self) -> list[Any]:
        return self._from_base(self._factor(self.last_epoch))


class ExponentialLR(LRScheduler):
    """Multiplies the rate by `gamma` every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        return self._present() if self._is_initial else self._scaled(self.gamma)

    def _get_closed_form_lr(self) -> list[Any]:
        return self._from_base(self.gamma**self.last_epoch)


class PolynomialLR(LRScheduler):
    """The base rate times ``(1 - epoch / total_iters) ** power``, zero from `total_iters` on."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def _left(self, epoch: int) -> float:
        return 1.0 - min(epoch, self.total_iters) / self.total_iters

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._present()
        return self._scaled((self._left(self.last_epoch) / self._left(self.last_epoch - 1)) ** self.power)

    def _get_closed_form_lr(self) -> list[Any]:
        return self._from_base(self._left(self.last_epoch) ** self.power)


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the base rate to `eta_min` in `T_max` epochs, and back again, and so on.

    Source: Loshchilov & Hutter 2017, "SGDR: Stochastic Gradient Descent with Warm Restarts", without the restarts.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def _height(self, epoch: float) -> float:
        """1 at the base rate, 0 at `eta_min`."""
        return (1 + math.cos(math.pi * epoch / self.T_max)) / 2

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        if self._is_initial:
            return self._present()
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            # From the bottom, where the ratio below would divide by zero.
            rise = self._height(self.T_max - 1)
            return [
                rate + (base - self.eta_min) * rise
                for base, rate in zip(self.base_lrs, self._present(), strict=False)
            ]
        ratio = self._height(self.last_epoch) / self._height(self.last_epoch - 1)
        return [self.eta_min + (rate - self.eta_min) * ratio for rate in self._present()]

    def _get_closed_form_lr(self) -> list[Any]:
        return [
            self.eta_min + (base - self.eta_min) * self._height(self.last_epoch) for base in self.base_lrs
        ]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine from the base rate to `eta_min`, restarted again and again.

    Args:
        T_0: epochs to the first restart.
        T_mult: each run is so many times as long as the one before.
    Raises: ValueError unless `T_0` is a positive int and `T_mult` an int >= 1.
    Source: Loshchilov & Hutter 2017, "SGDR: Stochastic Gradient Descent with Warm Restarts".
    """

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min).__name__}")
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Go to the next epoch, or to `epoch`, maybe a fraction such as ``epoch + batch / batches``."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        else:
            if epoch < 0:
                raise ValueError(f"Expected non-negative epoch, but got {epoch}")
            self._find_cycle(epoch)
        self.last_epoch = math.floor(epoch)
        self._get_lr_called_within_step = True
        try:
            rates = self.get_lr()
        finally:
            self._get_lr_called_within_step = False
        self._set_rates(rates)

    def _find_cycle(self, epoch: float) -> None:
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_i, self.T_cur = self.T_0, epoch % self.T_0
        else:
            # Cycle n starts after T_0 * (1 + T_mult + ... + T_mult**(n - 1)) epochs.
            n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**n


# -- schedulers of schedulers ------------------------------------------------------------------------------


def _check_members(kind: str, schedulers: Sequence[Any], optimizer: Optimizer | None) -> Optimizer:
    """The optimizer that all schedulers share. Raises: ValueError if they do not, or one needs a metric."""
    if len(schedulers) < 1:
        raise ValueError(f"{kind} expects at least one scheduler, but got no scheduler")
    shared: Optimizer = optimizer or schedulers[0].optimizer
    for i, scheduler in enumerate(schedulers):
        if not hasattr(scheduler, "optimizer"):
            raise TypeError(f"{kind}: schedulers[{i}] is a {type(scheduler).__name__}, which has no optimizer")
        if isinstance(scheduler, ReduceLROnPlateau):
            raise ValueError(
                f"{kind} does not support ReduceLROnPlateau (schedulers[{i}]), whose step needs a metric; "
                "step it by itself"
            )
        if scheduler.optimizer is not shared:
            raise ValueError(
                f"{kind} expects all schedulers to belong to the same optimizer, but schedulers[{i}] "
                f"({type(scheduler).__name__}) belongs to another"
            )
    return shared


class _OfSchedulers(LRScheduler):
    _schedulers: list[Any]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer, with the state of the schedulers under '_schedulers'."""
        state = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "_schedulers")}
        state["_schedulers"] = [scheduler.state_dict() for scheduler in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "_schedulers"})
        for scheduler, saved in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(saved)


class SequentialLR(_OfSchedulers):
    """One scheduler after the other; the next takes over at each of the `milestones`.

    Args:
        schedulers: of one optimizer; they are rewound to their start.
        milestones: epochs at which the next one starts, one fewer than schedulers.
    Raises: ValueError if the numbers do not fit, or the optimizers differ.
    """

    def __init__(self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1) -> None:
        _check_members("SequentialLR", schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "SequentialLR expects one scheduler more than milestones, "
                f"got {len(schedulers)} schedulers and {len(milestones)} milestones"
            )
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        # Each scheduler has set its first rate when it was made; undo that, and let only the first one start.
        for group in optimizer.param_groups:
            _set(group, "lr", group["initial_lr"])
        self.recursive_undo()
        _restart(self._schedulers[0])
        self._last_lr = schedulers[0].get_last_lr()

    def recursive_undo(self, sched: Any = None) -> None:
        """Take back the first step of every scheduler below `sched` (this one by default)."""
        scheduler = self if sched is None else sched
        if hasattr(scheduler, "_schedulers"):
            for member in scheduler._schedulers:
                self.recursive_undo(member)
        elif hasattr(scheduler, "last_epoch"):
            scheduler.last_epoch -= 1

    def step(self) -> None:
        """Go to the next epoch."""
        self.last_epoch += 1
        index = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[index]
        if index > 0 and self._milestones[index - 1] == self.last_epoch:
            _begin(scheduler)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


def _restart(scheduler: Any) -> None:
    """Make the first step of `scheduler`, or of the schedulers it consists of, again."""
    if isinstance(scheduler, SequentialLR):
        scheduler.last_epoch = 0
        _restart(scheduler._schedulers[0])
        scheduler._last_lr = scheduler._schedulers[0].get_last_lr()
    elif isinstance(scheduler, ChainedScheduler):
        for member in scheduler._schedulers:
            _restart(member)
        scheduler._remember()
    else:
        scheduler.last_epoch = -1
        scheduler._initial_step()


def _begin(scheduler: Any) -> None:
    """Put `scheduler` at epoch 0, from the base rates where it can be computed from them."""
    if isinstance(scheduler, _OfSchedulers):
        for group in scheduler.optimizer.param_groups:
            _set(group, "lr", group["initial_lr"])
        _restart(scheduler)
    elif isinstance(scheduler, CosineAnnealingWarmRestarts):
        scheduler.step(0)
    else:
        scheduler._step_count += 1
        scheduler._go_to(0)


class ChainedScheduler(_OfSchedulers):
    """Several schedulers on one optimizer, all stepped at once.

    Each changes the rate that the one before it left.
    Raises: ValueError without schedulers, or if their optimizers differ.
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        self.optimizer = _check_members("ChainedScheduler", schedulers, optimizer)
        self._schedulers = list(schedulers)
        self._remember()

    def step(self) -> None:
        """Step all schedulers."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._remember()


# -- schedules with a shape of their own -------------------------------------------------------------------


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the rate by `factor` when a metric has not improved for more than `patience` epochs.

    Args:
        mode: 'min' or 'max', what an improvement is.
        threshold: how much better than the best a value must be: a share of it for `threshold_mode` 'rel', a
            difference for 'abs'.
        cooldown: epochs after a reduction in which nothing is counted.
        min_lr: lower bound, one number or one per group. eps: smaller reductions are not made.
    Raises: ValueError for `factor` >= 1, unknown modes, or a `min_lr` list of the wrong length.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: Literal["min", "max"] = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: Literal["rel", "abs"] = "rel",
        cooldown: int = 0,
        min_lr: list[float] | float = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueError(f"Factor should be < 1.0, got {factor}")
        _check_optimizer(optimizer)
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown! Use 'min' or 'max'")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown! Use 'rel' or 'abs'")
        self.factor = factor
        self.optimizer = optimizer
        many = isinstance(min_lr, (list, tuple))
        self.default_min_lr = None if many else min_lr
        self.min_lrs = _per_group("min_lr", min_lr, optimizer)
        self.patience = patience
        self.cooldown = cooldown
        self.eps = eps
        self.last_epoch = 0
        self._remember()
        self.mode = mode
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.mode_worse = inf if mode == "min" else -inf
        self._reset()

    def _reset(self) -> None:
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    def step(self, metrics: Any, epoch: int | None = None) -> None:
        """Take note of `metrics`, a number, and reduce the rates when it is time."""
        _state.settle()
        current = float(metrics)
        if epoch is None:
            epoch = self.last_epoch + 1
        else:
            warnings.warn(EPOCH_DEPRECATION_WARNING, stacklevel=2)
        self.last_epoch = epoch
        if self._is_better(current, self.best):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._remember()

    def _reduce(self) -> None:
        groups = self.optimizer.param_groups
        if len(self.min_lrs) != len(groups):
            if self.default_min_lr is None:
                raise RuntimeError(
                    f"ReduceLROnPlateau: the optimizer has {len(groups)} parameter groups, min_lr was given "
                    "for "
                    f"{len(self.min_lrs)}; append the bounds of the new groups to `min_lrs`"
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, lowest in zip(groups, self.min_lrs, strict=True):
            before = float(group["lr"])
            after = max(before * self.factor, lowest)
            if before - after > self.eps:
                _set(group, "lr", after)

    @property
    def in_cooldown(self) -> bool:
        """Whether epochs are not counted at the moment."""
        return self.cooldown_counter > 0

    def _is_better(self, value: float, best: float) -> bool:
        sign = 1 if self.mode == "min" else -1
        margin = self.threshold * (best if self.threshold_mode == "rel" else 1)
        if self.threshold_mode == "rel" and math.isinf(best):
            margin = 0.0  # infinity less a share of itself is no number
        return value < best - margin if sign > 0 else value > best + margin


class _WithMomentum(LRScheduler):
    """Schedules that also cycle the momentum, or Adam's first beta."""

    use_beta1 = False
    cycle_momentum = False

    def _find_momentum(self) -> None:
        """Raises: ValueError if the optimizer has neither 'momentum' nor 'betas'."""
        defaults = self.optimizer.defaults
        if "momentum" not in defaults and "betas" not in defaults:
            raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        self.use_beta1 = "betas" in defaults

    def _set_momentum(self, group: dict[str, Any], momentum: Any) -> None:
        if self.use_beta1:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum


class CyclicLR(_WithMomentum):
    """The rate rises from `base_lr` to `max_lr` and falls back, again and again; momentum does the opposite.

    Args:
        step_size_up, step_size_down: batches of the rise and of the fall (the same by default).
        mode: 'triangular', 'triangular2' (half as high each cycle) or 'exp_range' (times ``gamma ** batch``).
        scale_fn: height of a cycle, in place of `mode`; a function of the cycle, counted from 1, or of the
            batch, as `scale_mode` 'cycle' or 'iterations' says.
        cycle_momentum: whether momentum goes from `max_momentum` down to `base_momentum` meanwhile.
    Raises: ValueError for an unknown mode without `scale_fn`, or an optimizer without momentum to cycle.
    Source: Smith 2017, "Cyclical Learning Rates for Training Neural Networks".
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: Literal["triangular", "triangular2", "exp_range"] = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: Literal["cycle", "iterations"] = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float = 0.8,
        max_momentum: float = 0.9,
        last_epoch: int = -1,
    ) -> None:
        _check_optimizer(optimizer)
        self.optimizer = optimizer
        base_lrs = _per_group("base_lr", base_lr, optimizer)
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, base_lrs, strict=True):
                _set(group, "lr", rate)
        self.max_lrs = _per_group("max_lr", max_lr, optimizer)
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError(
                f"mode {mode!r} is invalid and scale_fn is None; use 'triangular', 'triangular2' or "
                "'exp_range'"
            )
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None or mode != "exp_range" else "iterations"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._find_momentum()
            self._start_momentum(base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def _start_momentum(self, base: Any, highest: Any, last_epoch: int) -> None:
        self.base_momentums = _per_group("base_momentum", base, self.optimizer)
        self.max_momentums = _per_group("max_momentum", highest, self.optimizer)
        if last_epoch != -1:
            return
        groups = self.optimizer.param_groups
        for group, low, high in zip(groups, self.base_momentums, self.max_momentums, strict=True):
            self._set_momentum(group, high)
            group["max_momentum"], group["base_momentum"] = high, low

    def scale_fn(self, x: float) -> float:
        """Height of cycle `x`, or at batch `x`, as `scale_mode` says; 1 is the full height."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular":
            return 1.0
        return 1 / 2.0 ** (x - 1) if self.mode == "triangular2" else self.gamma**x

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        rise = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        height = rise * self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            groups = self.optimizer.param_groups
            for group, low, high in zip(groups, self.base_momentums, self.max_momentums, strict=False):
                self._set_momentum(group, high - (high - low) * height)
        return [low + (high - low) * height for low, high in zip(self.base_lrs, self.max_lrs, strict=False)]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer. A `scale_fn` is saved only as the attributes of a callable object."""
        state = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "_scale_fn_custom")}
        fn = self._scale_fn_custom
        if fn is not None and not isinstance(fn, types.FunctionType):
            state["_scale_fn_custom"] = dict(fn.__dict__)
        else:                                         # which PyTorch asks for
            state["_scale_fn_custom"] = None
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        saved = state_dict.get("_scale_fn_custom")
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "_scale_fn_custom"})
        if saved is not None:
            self._scale_fn_custom.__dict__.update(saved)


class OneCycleLR(_WithMomentum):
    """The rate rises from ``max_lr / div_factor`` to `max_lr` and falls far below where it began, in one run.

    Args:
        total_steps: batches of the run, or give `epochs` and `steps_per_epoch`.
        pct_start: share of the run that the rise takes. anneal_strategy: 'cos' or 'linear'.
        cycle_momentum: whether momentum goes from `max_momentum` to `base_momentum` and back meanwhile.
        div_factor: `max_lr` over the first rate. final_div_factor: first rate over the last.
        three_phase: fall to the first rate as long as the rise took, then to the last.
    Raises: ValueError for a length that is missing or not a positive int, `pct_start` outside ``[0, 1]``, an
        unknown strategy, an optimizer without momentum to cycle, or a step beyond the end.
    Source: Smith & Topin 2019, "Super-Convergence: Very Fast Training of Neural Networks Using Large Learning Rates".
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        _check_optimizer(optimizer)
        self.optimizer = optimizer
        self.total_steps = _run_length(total_steps, epochs, steps_per_epoch)
        if not (0 <= pct_start <= 1 and isinstance(pct_start, float)):
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._schedule_phases = _phases(self.total_steps, pct_start, three_phase)
        self._anneal_func_type = anneal_strategy
        highest = _per_group("max_lr", max_lr, optimizer)
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._find_momentum()
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, highest, strict=True):
                group["initial_lr"] = rate / div_factor
                group["max_lr"] = rate
                group["min_lr"] = group["initial_lr"] / final_div_factor
            if cycle_momentum:
                self._start_momentum(base_momentum, max_momentum)
        super().__init__(optimizer, last_epoch)

    def _start_momentum(self, base: Any, highest: Any) -> None:
        bases = _per_group("base_momentum", base, self.optimizer)
        highs = _per_group("max_momentum", highest, self.optimizer)
        for group, low, high in zip(self.optimizer.param_groups, bases, highs, strict=True):
            self._set_momentum(group, high)
            group["max_momentum"], group["base_momentum"] = high, low

    def _anneal(self, start: Any, end: Any, share: float) -> Any:
        if self._anneal_func_type == "linear":
            return start + (end - start) * share
        return end + (start - end) / 2.0 * (1 + math.cos(math.pi * share))

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(
                f"Tried to step {step} times. The specified number of total steps is {self.total_steps}; "
                "give OneCycleLR the number of batches of the whole run"
            )
        phases = self._schedule_phases
        i = next((i for i, phase in enumerate(phases) if step <= phase["end_step"]), len(phases) - 1)
        phase, start = phases[i], phases[i - 1]["end_step"] if i else 0.0
        share = (step - start) / (phase["end_step"] - start)
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(self._anneal(group[phase["start_lr"]], group[phase["end_lr"]], share))
            if self.cycle_momentum:
                ends = group[phase["start_momentum"]], group[phase["end_momentum"]]
                self._set_momentum(group, self._anneal(*ends, share))
        return rates


def _run_length(total_steps: int | None, epochs: int | None, steps_per_epoch: int | None) -> int:
    if total_steps is not None:
        lengths = {"total_steps": total_steps}
    elif epochs is not None and steps_per_epoch is not None:
        lengths = {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
    else:
        raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
    for name, value in lengths.items():
        if value <= 0 or not isinstance(value, int):
            raise ValueError(f"Expected positive integer {name}, but got {value}")
    return math.prod(lengths.values())


def _phases(total: int, rise: float, three: bool) -> list[dict[str, Any]]:
    """Where each phase ends, and between which options of a group rate and momentum go."""
    up = {"start_momentum": "max_momentum", "end_momentum": "base_momentum"}
    down = {"start_momentum": "base_momentum", "end_momentum": "max_momentum"}
    first = {"end_step": float(rise * total) - 1, "start_lr": "initial_lr", "end_lr": "max_lr", **up}
    if not three:
        return [first, {"end_step": total - 1, "start_lr": "max_lr", "end_lr": "min_lr", **down}]
    rest = {"start_momentum": "max_momentum", "end_momentum": "max_momentum"}
    return [
        first,
        {"end_step": float(2 * rise * total) - 2, "start_lr": "max_lr", "end_lr": "initial_lr", **down},
        {"end_step": total - 1, "start_lr": "initial_lr", "end_lr": "min_lr", **rest},
    ]
