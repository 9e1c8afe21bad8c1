"""The step that all elementwise optimizers share: collect, make state, apply the update rule."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flambeau as fb

from .. import _arrays
from .._state import local as _local
from ..ops._dispatch import is_seen
from ..tensor import bump
from ._bucket import Bucket, fits_bucket, is_large, ndarray, overlapping, same, state_fits
from ._rule import on_arrays, on_rows, on_tensors
from .optimizer import Optimizer

Tensor = fb.Tensor
_PLAIN = (Tensor, fb.nn.Parameter)


class Update(NamedTuple):
    """What one step does to parameters whose scalar state is equal."""

    formula: Any  # of an UpdateRule
    numbers: tuple[Any, ...]  # the arguments of the rule after the state tensors
    scalars: tuple[Any, ...] = ()  # the new scalar state


class Plan(NamedTuple):
    """How the parameters of a group that have gradients are stepped, until something about them changes."""

    params: list[Any]
    keys: list[Any]  # of optimizer.state, and its values, when the plan was made
    entries: list[Any]
    buckets: list[
        tuple[Bucket, list[int], bool]
    ]  # the bucket, positions of its parameters, whether state was new
    singles: list[int]


class ElementwiseOptimizer(Optimizer):
    """An optimizer whose step is an update rule.

    A subclass names its scalar state (`_scalar_state`) and state tensors (`_tensor_state`), and says in
    `_update` which formula a step applies with which numbers.
    """

    _scalar_state: tuple[str, ...] = ("step",)
    _accepts_sparse = False
    _sparse_advice = ""

    def _tensor_state(self, group: dict[str, Any]) -> tuple[str, ...]:
        raise NotImplementedError

    def _update(self, group: dict[str, Any], scalars: tuple[Any, ...], fresh: bool) -> Update:
        """The update of parameters with this scalar state; `fresh` when their state tensors were made just now.

        `scalars` are numpy scalars of their tensors' dtypes, so arithmetic with them rounds as those tensors would.
        """
        raise NotImplementedError

    def _first_tensor(self, name: str, param: Any, group: dict[str, Any]) -> Any:
        return fb.zeros_like(param, memory_format=fb.preserve_format, requires_grad=False)

    def _first_scalar(self, name: str, group: dict[str, Any]) -> float:
        return 0.0

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.pop("_plans", None)
        for group in self.param_groups:
            for name, default in self._later_options().items():
                group.setdefault(name, default)
            for param in group["params"]:
                self._wrap_scalars(param)

    def _later_options(self) -> dict[str, Any]:
        """Options that checkpoints of older releases lack, and the values that mean what those did."""
        switches = (
            "maximize",
            "differentiable",
            "capturable",
            "amsgrad",
            "nesterov",
            "centered",
            "decoupled_weight_decay",
        )
        later = {name: False for name in switches if name in self.defaults}
        return {**later, **{name: None for name in ("foreach", "fused") if name in self.defaults}}

    def _wrap_scalars(self, param: Any) -> None:
        state = self.state.get(param, {})
        for name in self._scalar_state:
            if isinstance(state.get(name), (int, float)):
                state[name] = _scalar(float(state[name]))

    # -- the step ------------------------------------------------------------------------------------------

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters by their gradients.

        Args:
            closure: recomputes the loss and its gradients, and returns the loss.
        Returns: what `closure` returned, or None.
        Raises: RuntimeError for sparse gradients, unless the optimizer takes them.
        """
        loss = None
        if closure is not None:
            with fb.enable_grad():
                loss = closure()
        for index, group in enumerate(self.param_groups):
            self._check_group(group)
            if not self._step_as_before(index, group):
                with fb.set_grad_enabled(bool(self.defaults.get("differentiable"))):
                    self._step_group(index, group)
        return loss

    def _step_as_before(self, index: int, group: dict[str, Any]) -> bool:
        """Whether the last plan holds and is all buckets, which then are stepped: arrays only, nothing that could be recorded."""
        plans = self.__dict__.get("_plans")
        plan = None if plans is None else plans.get(index)
        if plan is None or plan.singles:
            return False
        params, arrays = [], []
        try:
            for param in group["params"]:
                grad = param._gradient  # of a parameter with a plan it is what `grad` says
                if grad is None:
                    continue
                array = grad._array
                if array.__class__ is not ndarray:
                    return False
                params.append(param)
                arrays.append(array)
        except AttributeError:  # something without a gradient, or no tensor
            return False
        if not (same(params, plan.params) and self._is_current(plan, group)):
            return False
        self._step_buckets(plan, group, arrays)
        return True

    def _step_group(self, index: int, group: dict[str, Any]) -> None:
        params, grads, strided = [], [], fb.strided
        for param in group["params"]:
            grad = param.grad
            if grad is None:
                continue
            if grad.layout is strided:
                params.append(param)
                grads.append(grad)
            else:
                self._step_sparse(group, param, grad)
        plan = self._plan(index, group, params)
        self._step_buckets(plan, group, [grad._array for grad in grads])
        for i in plan.singles:
            self._step_single(group, params[i], grads[i])

    def _step_buckets(self, plan: Plan, group: dict[str, Any], grads: list[Any]) -> None:
        """Step the parameters of buckets; `grads` are arrays, in the order of the parameters."""
        for n, (bucket, where, fresh) in enumerate(plan.buckets):
            update = self._update(group, bucket.values(), fresh)
            numbers = [x if x.__class__ is float else _number(x) for x in update.numbers]
            chosen = grads if len(where) == len(grads) else [grads[i] for i in where]
            bucket.step(update.formula, numbers, update.scalars, chosen)
            if fresh:
                plan.buckets[n] = (bucket, where, False)

    def _plan(self, index: int, group: dict[str, Any], params: list[Any]) -> Plan:
        plans: dict[int, Plan] = self.__dict__.setdefault("_plans", {})
        plan = plans.get(index)
        if plan is None or not (same(params, plan.params) and self._is_current(plan, group)):
            plan = plans[index] = self._new_plan(group, params)
        return plan

    def _is_current(self, plan: Plan, group: dict[str, Any]) -> bool:
        if not plan.buckets:
            return True  # stepping one at a time reads everything anew
        state = self.state
        if self._one_by_one(group) or len(state) != len(plan.keys):
            return False
        if state and not (same(list(state), plan.keys) and same(list(state.values()), plan.entries)):
            return False
        names = (*self._tensor_state(group), *self._scalar_state)
        return not [1 for bucket, _, _ in plan.buckets if bucket.names != names or not bucket.is_current()]

    @staticmethod
    def _one_by_one(group: dict[str, Any]) -> bool:
        """Whether parameters are stepped one at a time: on request, or because the step is differentiated or seen by interpreters."""
        return group.get("foreach") is False or bool(group.get("differentiable")) or bool(_local.calls.interpreters) and is_seen()

    def _new_plan(self, group: dict[str, Any], params: list[Any]) -> Plan:
        alike: defaultdict[Any, list[int]] = defaultdict(list)
        singles: list[int] = []
        tensors = self._tensor_state(group)
        many, together = len(params) > 1, not self._one_by_one(group)
        fitting = [i for i, p in enumerate(params) if together and type(p) in _PLAIN and fits_bucket(p)]
        # Parameters over the same memory, or listed twice, are stepped one after the other.
        chosen = set(fitting) - overlapping({i: params[i]._array for i in fitting})
        for i, param in enumerate(params):
            if i not in chosen or not many and not is_large(param):
                singles.append(i)
                continue
            fresh = self._make_state(param, group)
            state = self.state[param] if tensors or self._scalar_state else {}
            scalars = [state[name] for name in self._scalar_state]
            if state_fits(param, [state[name] for name in tensors], scalars):
                values = tuple((s._array.dtype, s.item()) for s in scalars)
                alike[param._array.dtype, values, fresh].append(i)
            else:
                singles.append(i)
        buckets = []
        for (_, _, fresh), where in alike.items():
            alike_ones = [params[i] for i in where]
            states = [self.state[p] for p in alike_ones] if tensors or self._scalar_state else []
            buckets.append((Bucket(alike_ones, states, tensors, self._scalar_state), where, fresh))
        return Plan(params, list(self.state), list(self.state.values()), buckets, sorted(singles))

    def _make_state(self, param: Any, group: dict[str, Any]) -> bool:
        """Make what state `param` lacks; whether any state tensor was among it."""
        tensors = self._tensor_state(group)
        if not (tensors or self._scalar_state):
            return False
        state = self.state[param]
        for name in self._scalar_state:
            if name not in state:
                state[name] = _scalar(self._first_scalar(name, group))
        missing = [name for name in tensors if state.get(name) is None]
        for name in missing:
            state[name] = self._first_tensor(name, param, group)
        return bool(missing)

    def _step_single(self, group: dict[str, Any], param: Any, grad: Any) -> None:
        fresh = self._make_state(param, group)
        names = self._tensor_state(group)
        state = self.state[param] if names or self._scalar_state else {}
        tensors = [state[name] for name in names]
        scalars = [state[name] for name in self._scalar_state]
        update = self._update(group, tuple(_value(s) for s in scalars), fresh)
        plain = None if is_seen() or group.get("differentiable") else _plain((param, grad, *tensors))
        if plain is None:
            on_tensors(update.formula, param, grad, tensors, update.numbers)
        else:
            target, slope, *states = plain
            if type(target._array) is not _arrays.MetaArray:
                numbers = tuple(_number(x) for x in update.numbers)
                on_arrays(update.formula, target._array, slope._array, [t._array for t in states], numbers)
            for tensor in {id(t): t for t in (param, *tensors, target, *states)}.values():
                bump(tensor)
        for scalar, value in zip(scalars, update.scalars, strict=True):
            _store(scalar, value)

    def _step_sparse(self, group: dict[str, Any], param: Any, grad: Any) -> None:
        """Update only the elements that a sparse gradient names."""
        if not self._accepts_sparse:
            raise RuntimeError(
                f"{type(self).__name__} does not support sparse gradients (parameter of shape "
                f"{tuple(param.shape)})"
                f"{self._sparse_advice}"
            )
        if param.layout is not fb.strided:
            raise NotImplementedError(
                f"{type(self).__name__}: a step of a sparse parameter (layout {param.layout}) is not built; SGD makes one"
            )
        if group.get("weight_decay", 0) != 0:
            raise RuntimeError(
                f"{type(self).__name__}: weight_decay={group['weight_decay']} is not compatible with sparse "
                "gradients, "
                "it would have to change every element"
            )
        self._make_state(param, group)
        names = self._tensor_state(group)
        state = self.state[param] if names or self._scalar_state else {}
        tensors, scalars = [state[name] for name in names], [state[name] for name in self._scalar_state]
        update = self._update(group, tuple(_value(s) for s in scalars), False)
        grad = grad.coalesce()
        numbers = tuple(_number(x) for x in update.numbers)
        rows = tuple(grad.indices()._array)
        on_rows(update.formula, param._array, rows, grad.values()._array, [t._array for t in tensors], numbers)
        for tensor in (param, *tensors):
            bump(tensor)
        for scalar, value in zip(scalars, update.scalars, strict=True):
            _store(scalar, value)

    def _check_group(self, group: dict[str, Any]) -> None:
        if group.get("capturable") and any(p.grad is not None and not p.is_cuda for p in group["params"]):
            raise AssertionError(
                f"{type(self).__name__}: capturable=True needs every parameter on a CUDA device, "
                "because it is about CUDA graphs; use capturable=False"
            )
        if group.get("differentiable") and group.get("foreach"):
            raise AssertionError(f"{type(self).__name__}: foreach=True does not support autograd; use foreach=False")


def _scalar(value: float) -> Any:
    """A 0-d state tensor on the CPU: float32 unless float64 is the default dtype."""
    double = fb.get_default_dtype() is fb.float64
    return fb.full((), value, dtype=fb.float64 if double else fb.float32, device="cpu")


def _value(scalar: Any) -> Any:
    """A 0-d state tensor as a numpy scalar of its dtype; itself while it is being differentiated, and where it has no value."""
    if scalar.requires_grad or scalar._lacks_values:
        return scalar
    array = scalar._array
    return array[()] if type(array) is ndarray else array.get()[()]


def _store(scalar: Any, value: Any) -> None:
    """Write a new value of the scalar state into its tensor."""
    if isinstance(value, Tensor):
        scalar.copy_(value.reshape(()))
    elif is_seen() or scalar._lacks_values:
        scalar.fill_(float(value))
    else:
        scalar._array[...] = value
        bump(scalar)


def _plain(tensors: tuple[Any, ...]) -> Sequence[Any] | None:
    """Plain tensors that the update of `tensors` (parameter, gradient, states) may be made on; None where it needs their own operations."""
    if type(tensors[0]) in _PLAIN:
        return tensors
    pieces_of = getattr(type(tensors[0]), "_pieces_of", None)
    return None if pieces_of is None else pieces_of(tensors)


def _number(value: Any) -> Any:
    """A hyperparameter as a Python number."""
    return value.item() if isinstance(value, Tensor) else value


# -- checks of hyperparameters, shared by the constructors -------------------------------------------------


def check_rate(lr: Any) -> None:
    """Raises: ValueError unless `lr` is a Tensor of one element or a number >= 0."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError(f"Tensor lr must be 1-element, got shape {tuple(lr.shape)}")
    if not lr >= 0.0:
        raise ValueError(f"Invalid learning rate: {lr}, it must be >= 0")


def check_at_least_zero(**values: Any) -> None:
    """Raises: ValueError naming the first value below 0."""
    for name, value in values.items():
        if not value >= 0.0:
            raise ValueError(f"Invalid {name} value: {value}, it must be >= 0")


def check_betas(betas: Any) -> None:
    """Raises: ValueError unless both are in ``[0, 1)``."""
    for i in range(2):
        if not 0.0 <= betas[i] < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {betas[i]}, it must be in [0, 1)")


def check_flags(foreach: bool | None, fused: bool | None, differentiable: bool) -> None:
    """Raises: RuntimeError for implementation flags that exclude each other."""
    if fused and differentiable:
        raise RuntimeError("`fused` does not support `differentiable`; give one of them")
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together; give one of them")


__all__ = [
    "ElementwiseOptimizer", "Update", "check_at_least_zero", "check_betas", "check_flags", "check_rate",
]
