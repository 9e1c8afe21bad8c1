"""Limited-memory BFGS, with an optional strong Wolfe line search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import flambeau as fb
from flambeau import Tensor

from ._elementwise import check_rate
from .optimizer import Optimizer, ParamsT

__all__ = ["LBFGS"]

class Point(NamedTuple):
    t: Any
    loss: float
    grad: Any
    slope: Any
Objective = Callable[[Any], Point]  # step length -> loss, gradient and slope along the direction there

# A pair whose curvature is below this would make the inverse Hessian estimate explode.
LEAST_CURVATURE = 1e-10


class LBFGS(Optimizer):
    """Quasi-Newton steps from the last `history_size` changes of the gradient.

    One parameter group only. `step` needs a closure, and calls it several times.

    Args:
        lr: step length, or the first one tried by the line search.
        max_iter: iterations per step. max_eval: calls of the closure per step, ``max_iter * 5 // 4`` by default.
        tolerance_grad: stop when no element of the gradient is larger. tolerance_change: stop when parameters
            or loss change by less.
        line_search_fn: None or 'strong_wolfe'.
    Source: Nocedal & Wright 2006, "Numerical Optimization", algorithm 7.4; stopping rules as in Schmidt's minFunc.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check_rate(lr)
        super().__init__(params, {
            "lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change,
            "history_size": history_size, "line_search_fn": line_search_fn,
        })
        if len(self.param_groups) != 1:
            raise ValueError(
                f"LBFGS doesn't support per-parameter options (parameter groups), got "
                f"{len(self.param_groups)} groups"
            )

    @property
    def _params(self) -> list[Any]:
        return self.param_groups[0]["params"]

    @fb.no_grad()
    def step(self, closure: Callable[[], Any]) -> Any:
        """Up to `max_iter` iterations. Returns: the loss that `closure` computed first."""
        closure = fb.enable_grad()(closure)
        group, state = self.param_groups[0], self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first_loss = closure()
        loss, grad, evaluations = float(first_loss), self._flat_grad(), 1
        state["func_evals"] += 1
        for iteration in range(1, group["max_iter"] + 1):
            if _largest(grad) <= group["tolerance_grad"]:
                break
            state["n_iter"] += 1
            self._set_direction(state, grad, group["history_size"])
            state["prev_flat_grad"], state["prev_loss"] = grad.clone(), loss
            slope = grad.dot(state["d"])
            state["t"] = self._first_length(state, grad, group["lr"])
            if slope > -group["tolerance_change"]:
                break
            last = iteration == group["max_iter"]
            calls_left = group["max_eval"] - evaluations
            loss, grad, used = self._move(closure, state, Point(0.0, loss, grad, slope), last, calls_left)
            evaluations += used
            state["func_evals"] += used
            if evaluations >= group["max_eval"] or self._stalled(state, loss, group["tolerance_change"]):
                break
        return first_loss

    def _stalled(self, state: dict[str, Any], loss: float, tolerance: float) -> bool:
        return _largest(state["d"] * state["t"]) <= tolerance or abs(loss - state["prev_loss"]) < tolerance

    def _first_length(self, state: dict[str, Any], grad: Any, lr: Any) -> Any:
        """Before there is curvature to scale by, the first step is at most `lr` long in the 1-norm."""
        return min(1.0, 1.0 / grad.abs().sum()) * lr if state["n_iter"] == 1 else lr

    def _set_direction(self, state: dict[str, Any], grad: Any, history_size: int) -> None:
        if state["n_iter"] == 1:
            state.update(d=grad.neg(), old_dirs=[], old_stps=[], ro=[], H_diag=1)
            return
        change, step = grad.sub(state["prev_flat_grad"]), state["d"].mul(state["t"])
        curvature = change.dot(step)
        if curvature > LEAST_CURVATURE:
            if len(state["old_dirs"]) == history_size:
                for name in ("old_dirs", "old_stps", "ro"):
                    state[name].pop(0)
            state["old_dirs"].append(change)
            state["old_stps"].append(step)
            state["ro"].append(1.0 / curvature)
            state["H_diag"] = curvature / change.dot(change)
        state.setdefault("al", [None] * history_size)
        state["d"] = _two_loops(grad, state)

    def _move(self, closure: Any, state: dict[str, Any], here: Point, last: bool, calls_left: int) -> tuple[float, Any, int]:
        """Walk along the direction. Returns: loss and gradient there, and calls of the closure."""
        name = self.param_groups[0]["line_search_fn"]
        if name is None:
            self._add(state["t"], state["d"])
            if last:  # nobody will look at the gradient
                return here.loss, here.grad, 0
            loss = float(closure())
            return loss, self._flat_grad(), 1
        if name != "strong_wolfe":
            raise RuntimeError(f"LBFGS: line_search_fn={name!r}, only 'strong_wolfe' is supported")
        start = [p.clone() for p in self._params]

        def evaluate(t: Any) -> Point:
            self._add(t, state["d"])
            loss = float(closure())
            grad = self._flat_grad()
            for p, value in zip(self._params, start, strict=True):
                p.copy_(value)
            return Point(t, loss, grad, grad.dot(state["d"]))

        most = min(MOST_TRIES, calls_left)
        tolerance = self.param_groups[0]["tolerance_change"]
        found, calls = strong_wolfe(evaluate, here, state["t"], _largest(state["d"]), tolerance, most)
        state["t"] = found.t
        self._add(found.t, state["d"])
        return found.loss, found.grad, calls

    def _flat_grad(self) -> Any:
        """All gradients in one vector; zero where there is none, two parts per complex number."""
        return fb.cat([_flat(fb.zeros_like(p) if p.grad is None else p.grad) for p in self._params])

    def _add(self, t: Any, direction: Any) -> None:
        at = 0
        for p in self._params:
            real = fb.view_as_real(p) if p.is_complex() else p
            n = real.numel()
            real.add_(direction[at : at + n].view_as(real), alpha=float(t))
            at += n


def _flat(grad: Any) -> Any:
    if grad.layout is not fb.strided:
        grad = grad.to_dense()
    return (fb.view_as_real(grad) if grad.is_complex() else grad).reshape(-1)


def _largest(vector: Any) -> float:
    return vector.abs().max().item()


def _two_loops(grad: Any, state: dict[str, Any]) -> Any:
    """Minus the inverse Hessian estimate times `grad`."""
    changes, steps, inverse, al = state["old_dirs"], state["old_stps"], state["ro"], state["al"]
    q = grad.neg()
    for i in reversed(range(len(changes))):
        al[i] = steps[i].dot(q) * inverse[i]
        q.add_(changes[i], alpha=-al[i].item())
    d = q * state["H_diag"]
    for i in range(len(changes)):
        d.add_(steps[i], alpha=(al[i] - changes[i].dot(d) * inverse[i]).item())
    return d


# -- line search -------------------------------------------------------------------------------------------

SUFFICIENT_DECREASE, CURVATURE = 1e-4, 0.9  # c1 and c2 of the Wolfe conditions, Nocedal & Wright section 3.1
MOST_TRIES = 25


def strong_wolfe(evaluate: Objective, start: Point, t: Any, size: float, tolerance: float, most: int = MOST_TRIES) -> tuple[Point, int]:
    """A step that decreases the loss enough and flattens its slope.

    Args:
        start: loss, gradient and slope at length 0. t: first length tried. size: largest element of the direction.
        tolerance: give up when the bracket is shorter, in units of the parameters.
        most: lengths tried after the first.
    Returns: the point found, and how often `evaluate` was called.
    Source: Nocedal & Wright 2006, algorithms 3.5 and 3.6, with the safeguards of Schmidt's minFunc.
    """
    low, high, calls = _bracket(evaluate, start, t, most)
    if high is None:
        return low, calls
    low, high = (low, high) if low.loss <= high.loss else (high, low)
    slow = False
    while calls <= most:
        left, right = min(low.t, high.t), max(low.t, high.t)
        if (right - left) * size < tolerance:
            break
        t, slow = _kept_off_ends(cubic_minimum(low, high), left, right, slow)
        here = evaluate(t)
        calls += 1
        if not _decreases_enough(here, start) or here.loss >= low.loss:
            low, high = (low, here) if low.loss <= here.loss else (here, low)
            continue
        if _is_flat(here, start):
            return here, calls
        low, high = here, (low if here.slope * (high.t - low.t) >= 0 else high)
    return low, calls


def _decreases_enough(point: Point, start: Point) -> bool:
    return point.loss <= start.loss + SUFFICIENT_DECREASE * point.t * start.slope


def _is_flat(point: Point, start: Point) -> bool:
    return abs(point.slope) <= -CURVATURE * start.slope


def _bracket(evaluate: Objective, start: Point, t: Any, most: int) -> tuple[Point, Point | None, int]:
    """Lengthen the step until two points enclose a minimum, or one is good enough: then the other is None."""
    before, here = start, evaluate(t)
    for tries in range(most):
        calls = tries + 1
        if not _decreases_enough(here, start) or (tries > 1 and here.loss >= before.loss):
            return before, here, calls
        if _is_flat(here, start):
            return here, None, calls
        if here.slope >= 0:
            return before, here, calls
        # Between a little further and ten times as far.
        t = cubic_minimum(before, here, here.t + 0.01 * (here.t - before.t), here.t * 10)
        before, here = here, evaluate(t)
    return start, here, most + 1


def _kept_off_ends(t: Any, left: Any, right: Any, slow: bool) -> tuple[Any, bool]:
    """`t`, moved a tenth into the bracket when it hugs an end twice in a row; and whether it hugs one now."""
    if min(right - t, t - left) / (right - left) >= 0.1:
        return t, False
    if not slow and left < t < right:
        return t, True
    tenth = 0.1 * (right - left)
    return (right - tenth if abs(t - right) < abs(t - left) else left + tenth), False


def cubic_minimum(a: Point, b: Point, lowest: Any = None, highest: Any = None) -> Any:
    """Where the cubic through two points and their slopes is least, within bounds; the middle if it has no minimum.

    Source: Nocedal & Wright 2006, equation 3.59.
    """
    if a.t > b.t:
        a, b = b, a
    lowest, highest = (a.t, b.t) if lowest is None else (lowest, highest)
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if square < 0:
        return (lowest + highest) / 2.0
    d2 = square**0.5
    t = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
    return min(max(t, lowest), highest)
