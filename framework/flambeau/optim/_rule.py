"""Update rules: one optimizer step as one elementwise formula, and the three ways to apply it.

A rule is written once, over the scalar vocabulary::

    @update_rule(state=("momentum_buffer",))
    def sgd_momentum(param, grad, momentum_buffer, lr, momentum, keep, weight_decay):
        grad = decay(direction(grad), param, weight_decay)
        velocity = momentum * momentum_buffer + keep * grad
        return param - lr * velocity, velocity

Its parameters are `param`, `grad`, the state tensors by name, then numbers that the optimizer computes once
per step; it returns the new `param` and the new state. The words `direction`, `decay` and `blend` are choices
that a parameter group makes for good (maximize or not, ...): they are filled in before the formula is made,
so an option that is off costs nothing and cannot turn an infinite parameter into ``0 * inf``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fb
import flambeau_kernels as kernels
from flambeau_kernels.formula import Formula, rebind

__all__ = ["UpdateRule", "blend", "decay", "direction", "on_arrays", "on_rows", "on_tensors", "update_rule"]


class Choice:
    """A word of update rules whose meaning each parameter group chooses."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any) -> Any:
        raise TypeError(f"{self.name} is chosen by UpdateRule.formula; it cannot be called before")


direction = Choice("direction")  # direction(grad): uphill or downhill
decay = Choice("decay")  # decay(grad, param, weight_decay): whether decay enters the gradient
blend = Choice("blend")  # blend(start, end, weight): the point at `weight` between start and end


def _downhill(grad: Any) -> Any:
    return grad


def _uphill(grad: Any) -> Any:
    return -grad


def _without_decay(grad: Any, param: Any, weight_decay: Any) -> Any:
    return grad


def _with_decay(grad: Any, param: Any, weight_decay: Any) -> Any:
    return grad + weight_decay * param


# Measured from the nearer end, as PyTorch's lerp does, so that a weight of 0 or 1 gives that end exactly.
def _from_start(start: Any, end: Any, weight: Any) -> Any:
    return start + weight * (end - start)


def _from_end(start: Any, end: Any, weight: Any) -> Any:
    return end - (end - start) * (1 - weight)


class UpdateRule:
    """An optimizer step as a function of single elements.

    Attributes: `fn`, the function; `state`, the names of the state tensors it reads and returns.
    """

    __slots__ = ("fn", "state", "_formulas")

    def __init__(self, fn: Callable[..., Any], state: tuple[str, ...]) -> None:
        self.fn = fn
        self.state = state
        self._formulas: dict[tuple[bool, bool, bool], Formula] = {}

    def formula(self, maximize: bool = False, weight_decay: Any = 0, weight: Any = 0.0) -> Formula:
        """The formula for a group's options; `weight` is the one that `blend` will be given."""
        if weight.__class__ is float:
            near_end = weight >= 0.5
        else:
            near_end = not isinstance(weight, fb.Tensor) and weight >= 0.5
        decays = weight_decay != 0 if weight_decay.__class__ in (int, float) else isinstance(weight_decay, fb.Tensor) or weight_decay != 0
        key = (bool(maximize), decays, near_end)
        found = self._formulas.get(key)
        if found is None:
            chosen = {
                "direction": _uphill if key[0] else _downhill,
                "decay": _with_decay if key[1] else _without_decay,
                "blend": _from_end if key[2] else _from_start,
            }
            found = self._formulas[key] = Formula(rebind(self.fn, chosen, {}), self.fn.__name__)
        return found


def update_rule(state: tuple[str, ...] = ()) -> Callable[[Callable[..., Any]], UpdateRule]:
    """Declare a function to be an update rule that keeps the named state tensors."""
    return lambda fn: UpdateRule(fn, state)


# -- applying a rule ---------------------------------------------------------------------------------------


def on_arrays(formula: Formula, param: Any, grad: Any, state: Sequence[Any], numbers: Sequence[Any]) -> None:
    """Update the arrays `param` and `state` in place. Complex numbers are updated as their two parts."""
    if param.dtype.kind == "c":
        on_arrays(formula, param.real, grad.real, [s.real for s in state], numbers)
        on_arrays(formula, param.imag, grad.imag, [s.imag for s in state], numbers)
        return
    kernels.launch(formula, (param, grad, *state, *numbers), (param, *state), param.dtype)


def on_rows(formula: Formula, param: Any, rows: Any, grad: Any, state: Sequence[Any], numbers: Sequence[Any]) -> None:
    """`on_arrays` for the elements of `param` and `state` that `rows` selects, each at most once."""
    picked = [array[rows] for array in (param, *state)]
    on_arrays(formula, picked[0], grad, picked[1:], numbers)
    for array, values in zip((param, *state), picked, strict=True):
        array[rows] = values


def on_tensors(formula: Formula, param: Any, grad: Any, state: Sequence[Any], numbers: Sequence[Any]) -> None:
    """Update Tensors by recorded operations, so that the step itself can be differentiated."""
    if param.is_complex():
        param, grad, *state = (fb.view_as_real(t) for t in (param, grad, *state))
    # The rule reads copies: what autograd saves must survive the in-place copies below.
    results = formula.bind(_tensor_words())(param.clone(), grad, *(s.clone() for s in state), *numbers)
    for target, value in zip((param, *state), results if state else (results,), strict=True):
        target.copy_(value)


_words: dict[str, Any] = {}


def _tensor_words() -> dict[str, Any]:
    """The words that update rules use, as operations on Tensors."""
    if not _words:
        _words.update(sqrt=fb.sqrt, abs=fb.abs, sign=fb.sign, where=fb.where, maximum=_maximum, minimum=_minimum)
    return _words


def _maximum(a: Any, b: Any) -> Any:
    return fb.maximum(a, b) if isinstance(b, fb.Tensor) else a.clamp(min=b)


def _minimum(a: Any, b: Any) -> Any:
    return fb.minimum(a, b) if isinstance(b, fb.Tensor) else a.clamp(max=b)
