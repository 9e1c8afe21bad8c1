"""Calls of every declared op, on pending results and on ones with parts that were written to, are what they are without `compile`."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fb
from flambeau.compiler import _programs, _recorder
from flambeau.ops._spec.samples import function_of
from flambeau.utils._pytree import tree_leaves
from properties.cases import EVERYTHING, Case, bits, cases, looks, tensors_in

CASES = cases()
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


def is_real(t: Any) -> bool:
    return isinstance(t, fb.Tensor) and t.layout is fb.strided and t.is_floating_point()


def pending(t: Any) -> Any:
    """A result of the function like `t`."""
    if not isinstance(t, fb.Tensor) or t.layout is not fb.strided:
        return t
    return t | t if t.dtype is fb.bool else t * 1


def written(t: Any) -> Any:
    """The same, two parts of which the function has stored something in."""
    if not is_real(t) or not t.ndim:
        return t
    a = t.detach() * 1
    if len(a):
        a[0] *= 2
    a[1:] = a[1:] + 0.125
    return a


def outcomes(case: Case, compiling: Any, before: Any) -> list[Any]:
    """What three calls give, and the gradients of their operands."""
    f = compiling(lambda *args, **kwargs: function_of(case.op)(*map(before, args), **{name: before(x) for name, x in kwargs.items()}))
    found: list[Any] = []
    for _ in range(3):
        sample = case.sample()
        leaves = [t for t in tree_leaves((sample.args, sample.kwargs)) if is_real(t) and t.is_leaf]
        for t in leaves:
            t.requires_grad_(True)
        fb.manual_seed(0)
        try:
            made = tensors_in(f(*sample.args, **sample.kwargs))
            back = [(t * t).sum() for t in made if t.requires_grad and t.is_floating_point()]
            if back:
                fb.autograd.backward(back)
        except (RuntimeError, ValueError, TypeError, LookupError, NotImplementedError) as error:
            found.append(type(error))
            continue
        found.append([(looks(t), t.requires_grad, shown(t)) for t in made])
        found.append([None if t.grad is None else (t.grad.stride(), bits(t.grad)) for t in leaves])
    return found


def shown(t: fb.Tensor) -> Any:
    return bits(t) if t.layout is fb.strided and not t.is_meta and not t.is_quantized else t.layout


@pytest.mark.parametrize("case", CASES if EVERYTHING else CASES[::4], ids=lambda case: case.name)
def test_a_call_is_what_it_is_without(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_recorder, "RECORDED_FROM", 0)
    monkeypatch.setattr(_programs, "WORTH", 1)
    for before in (pending, written):
        expected = outcomes(case, lambda f: f, before)
        for mode in ("default", "reduce-overhead"):
            assert outcomes(case, lambda f, mode=mode: fb.compile(f, mode=mode), before) == expected
