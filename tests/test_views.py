"""Views and in-place operations: random small programs give PyTorch's values, versions, leaves and gradients."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import flambeau as fb

hypothesis = pytest.importorskip("hypothesis")
given, settings, st = hypothesis.given, hypothesis.settings, hypothesis.strategies



def apart(x: Any) -> Any:
    """`x` if each of its elements has a place of its own; PyTorch only warns of index_put_ where not."""
    if any(s == 0 and n > 1 for s, n in zip(x.stride(), x.shape, strict=True)):
        raise ValueError("expanded")
    return x


# Each step of a program is a function of the library, the tensor it works on, another tensor, and two small ints.
VIEWS = {
    "select": lambda lib, x, y, i, j: x.select(i, j),
    "index": lambda lib, x, y, i, j: x[i],
    "slice": lambda lib, x, y, i, j: x[i:],
    "step": lambda lib, x, y, i, j: x[..., :: j + 1],
    "none": lambda lib, x, y, i, j: x[None],
    "narrow": lambda lib, x, y, i, j: x.narrow(i, 0, j),
    "transpose": lambda lib, x, y, i, j: x.transpose(i, j),
    "permute": lambda lib, x, y, i, j: x.permute(tuple(range(x.dim() - 1, -1, -1))),
    "view": lambda lib, x, y, i, j: x.view(-1),
    "reshape": lambda lib, x, y, i, j: x.reshape(2, -1),
    "flatten": lambda lib, x, y, i, j: x.flatten(),
    "unsqueeze": lambda lib, x, y, i, j: x.unsqueeze(i),
    "squeeze": lambda lib, x, y, i, j: x.squeeze(),
    "expand": lambda lib, x, y, i, j: x.unsqueeze(0).expand(2, *x.shape),
    "diagonal": lambda lib, x, y, i, j: x.diagonal(j - 1),
    "unfold": lambda lib, x, y, i, j: x.unfold(i, 2, j + 2),
    "as_strided": lambda lib, x, y, i, j: x.as_strided((2, 2), (i + 2, 1)),
    "detach": lambda lib, x, y, i, j: x.detach(),
    "unbind": lambda lib, x, y, i, j: x.unbind(i)[j],
    "chunk": lambda lib, x, y, i, j: x.chunk(2, i)[j],
    "split": lambda lib, x, y, i, j: x.split(2)[j],
    "swap": lambda lib, x, y, i, j: x.swapaxes(i, j),
    "movedim": lambda lib, x, y, i, j: x.movedim(i, j),
    "identity": lambda lib, x, y, i, j: x.view_as(x),
}
WRITES = {
    "mul_": lambda lib, x, y, i, j: x.mul_(j + 2),
    "mul_y": lambda lib, x, y, i, j: x.mul_(y.clone()),
    "add_": lambda lib, x, y, i, j: x.add_(1),
    "add_y": lambda lib, x, y, i, j: x.add_(y.clone()),
    "sin_": lambda lib, x, y, i, j: x.sin_(),
    "tanh_": lambda lib, x, y, i, j: x.tanh_(),
    "zero_": lambda lib, x, y, i, j: x.zero_(),
    "fill_": lambda lib, x, y, i, j: x.fill_(j),
    "copy_": lambda lib, x, y, i, j: x.copy_(y.clone()),
    "set_item": lambda lib, x, y, i, j: x.__setitem__(i, 3.0),
    "set_item_y": lambda lib, x, y, i, j: x.__setitem__(slice(j, None), y.clone()),
    "set_mask": lambda lib, x, y, i, j: apart(x).__setitem__(x.detach() > 0.5, 2.0),
    "set_list": lambda lib, x, y, i, j: apart(x).__setitem__([0, 0], 2.0),
    "clamp_": lambda lib, x, y, i, j: x.clamp_(-1, 1),
    "addcmul_": lambda lib, x, y, i, j: x.addcmul_(y.clone(), y.clone()),
    "masked_fill_": lambda lib, x, y, i, j: apart(x).masked_fill_(x.detach() > 0, 0.5),
    "t_": lambda lib, x, y, i, j: x.t_(),
    "unsqueeze_": lambda lib, x, y, i, j: x.unsqueeze_(i),
    "squeeze_": lambda lib, x, y, i, j: x.squeeze_(),
    "transpose_": lambda lib, x, y, i, j: x.transpose_(i, j),
    "detach_": lambda lib, x, y, i, j: x.detach_(),
    "out": lambda lib, x, y, i, j: lib.add(x.detach(), 1, out=x),
}
RESHAPED = {"t_", "unsqueeze_", "squeeze_", "transpose_"}
FRESH = {
    "times": lambda lib, x, y, i, j: x * 2,
    "square": lambda lib, x, y, i, j: x * x,
    "plus": lambda lib, x, y, i, j: x + y,
    "product": lambda lib, x, y, i, j: x * y,
    "sine": lambda lib, x, y, i, j: x.sin(),
    "exp": lambda lib, x, y, i, j: (x * 0.1).exp(),
    "clone": lambda lib, x, y, i, j: x.clone(),
    "sum": lambda lib, x, y, i, j: x.sum(i, keepdim=True).contiguous(),
    "take": lambda lib, x, y, i, j: x[[0, 0]].contiguous(),
    "cat": lambda lib, x, y, i, j: lib.cat([x, x], i),
}
STEPS = {**VIEWS, **WRITES, **FRESH}
START = np.array([[0.5, -1.0, 2.0, 0.25], [1.5, 0.75, -0.5, 1.0], [-0.25, 0.3, 0.9, -2.0]])

step = st.tuples(
    st.sampled_from(sorted([*VIEWS, *WRITES, *WRITES, *FRESH])), st.integers(0, 9), st.integers(0, 9),
    st.integers(0, 1), st.integers(0, 2), st.sampled_from(["on", "on", "on", "off"]),
)  # fmt: skip


def run(lib: Any, leaves: int, program: Any) -> tuple[list[Any], list[Any], list[str]]:
    """The leaves, every tensor the program made, and the type of error of each step."""
    made = [lib.tensor(START, requires_grad=bool(leaves & 1)), lib.tensor(START[0] + 1, requires_grad=bool(leaves & 2))]
    start = list(made)
    errors = []
    for name, a, b, i, j, grad in program:
        x, y = made[a % len(made)], made[b % len(made)]
        if grad == "off" and (name in VIEWS or name in RESHAPED):
            continue  # views made without recording are tested below
        try:
            with lib.set_grad_enabled(grad == "on"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = STEPS[name](lib, x, y, i, j)
            if name not in WRITES:
                made.append(result)
            errors.append("")
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            errors.append(type(error).__name__)
    return start, made, errors


def state(tensors: list[Any]) -> list[Any]:
    """What must agree about each tensor apart from its values."""
    return [
        (tuple(t.shape), steps(t), t._version, t.is_leaf, t.grad_fn is None, t._is_view())
        for t in tensors
    ]


def steps(t: Any) -> Any:
    """The strides that say where elements are."""
    return None if not t.numel() else [s for s, n in zip(t.stride(), t.shape, strict=True) if n != 1]


def values(tensors: list[Any]) -> list[Any]:
    return [t.detach().tolist() for t in tensors]


def gradients(lib: Any, start: list[Any], made: list[Any]) -> Any:
    """The gradient of a weighted sum of everything for the leaves, or the type of error."""
    total = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k, t in enumerate(made):
            if t.requires_grad:
                total = total + (t * (k + 1.0)).cos().sum()
        leaves = [t for t in start if t.requires_grad and t.is_leaf]
        if not leaves or not isinstance(total, lib.Tensor):
            return None
        try:
            found = lib.autograd.grad(total, leaves, allow_unused=True)
        except (RuntimeError, ValueError):
            return "error"
    return [None if g is None else np.array(g.tolist()) for g in found]


def compare(oracle: Any, leaves: int, program: Any) -> None:
    ours, theirs = run(fb, leaves, program), run(oracle, leaves, program)
    try:
        wanted_state = state(theirs[1])
    except RuntimeError as error:
        # PyTorch gives up on pieces whose whole was written to; here they have the history they should have.
        if "multiple views" in str(error):
            return
        raise

    assert ours[2] == theirs[2]
    assert state(ours[1]) == wanted_state
    wanted_values = values(theirs[1])
    for k, mine in enumerate(values(ours[1])):
        np.testing.assert_allclose(mine, wanted_values[k], rtol=1e-9, atol=1e-12)
    mine, wanted = gradients(fb, *ours[:2]), gradients(oracle, *theirs[:2])
    if isinstance(wanted, list):
        assert isinstance(mine, list)
        for g, w in zip(mine, wanted, strict=True):
            assert (g is None) == (w is None)
            if w is not None:
                np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-12)
    else:
        assert mine == wanted


@settings(max_examples=300)
@given(leaves=st.integers(0, 3), program=st.lists(step, min_size=1, max_size=7))
def test_programs_of_views_and_writes_agree_with_pytorch(leaves: int, program: Any) -> None:
    compare(pytest.importorskip("torch"), leaves, program)
