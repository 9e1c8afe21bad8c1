"""Random functions with views and writes in place, under transforms inside each other; what comes of them is compared with PyTorch.

``python tests/func/random_functions.py --seed 0 --count 2000`` looks for functions that come out otherwise.
"""

from __future__ import annotations

import argparse
import random
import warnings
from typing import Any

import numpy as np

X = [[1.0, -2.0, 3.0], [-0.5, 2.0, 0.75]]
STARTS = ("x.clone()", "x * 1", "x.t().clone()", "torch.zeros_like(x)", "torch.zeros(2, 3, dtype=x.dtype)", "x.reshape(-1) * 2", "x.sin()")
VIEWS = {
    0: ("{a}.unsqueeze(0)", "{a}.view(1)"),
    1: (
        "{a}[1:]", "{a}[::2]", "{a}[0]", "{a}.unsqueeze(-1)", "{a}.view(-1)", "{a}.as_strided((2,), (1,), {a}.storage_offset())",
        "{a}.flip(0)",
    ),
    2: (
        "{a}.t()", "{a}[0]", "{a}[:, 1]", "{a}[1:]", "{a}.view(-1)", "{a}.reshape(-1)", "{a}.transpose(0, 1)", "{a}[:, ::2]",
        "{a}.diagonal()", "{a}.unbind(1)[0]", "{a}.select(1, 0)", "{a}.narrow(0, 0, 1)", "{a}.unsqueeze(1)", "{a}.split(1)[0]",
        "{a}.permute(1, 0)", "{a}.movedim(0, 1)",
    ),
    3: ("{a}.squeeze(1)", "{a}[0]", "{a}.flatten()", "{a}.transpose(0, 2)", "{a}.sum(1)"),
}  # fmt: skip
VALUES = (
    "{a}.sin()", "{a} * {b}", "{a} + {b}.sum()", "{a} * 2", "{a}.exp()", "{a} - {b}", "{a}.detach()", "{a}.sum()",
    "torch.where({a} > 0, {a}, {a} * 3)",
)  # fmt: skip
WRITES = (
    "{a}.mul_(2)", "{a}.exp_()", "{a}.sin_()", "{a}.clamp_(0.2)", "{a}.zero_()", "{a}.add_({b})", "{a}.mul_({b})", "{a}.copy_({b})",
    "{a}.sub_({b}.sum())", "{a}.tanh_()", "{a}.neg_()", "{a}.pow_(2)", "{a}.addcmul_({b}, {b})", "{a}.masked_fill_({a} > 0.5, 2.0)",
    "{a}.lerp_({b}, 0.25)", "{a}.sigmoid_()", "{a}.div_({b}.abs() + 1)", "{a}.clamp_(-1.0, 1.0)", "{a}.relu_()", "{a}.square_()",
    "{a}.fill_(0.5)", "{a}.add_({a}.sum())",
)  # fmt: skip
STORES = {
    0: ("{a}.fill_(3.0)",),
    1: ("{a}[0] = {b}.sum()", "{a}[1:] = {a}[:-1].clone()", "{a}[torch.tensor([0, 0])] = 2.0", "{a}[[0]] = {b}.sum() * 2"),
    2: (
        "{a}[0] = {b}.sum()", "{a}[:, 0] = {a}[:, 1] * 2", "{a}[0, 1] = {b}.mean()", "{a}[:, [0, 1]] = {a}[:, [1, 0]]",
        "{a}[-1:] = {a}[:1] + 1", "{a}.index_add_(0, torch.tensor([0]), {a}[:1].clone())", "{a}.fill_diagonal_(0.5)",
        "{a}[torch.tensor([True] * {a}.shape[0])] = 1.5", "{a}.index_fill_(1, torch.tensor([1]), 0.0)", "{a}.tril_()", "{a}.t_()",
        "{a}.scatter_(1, torch.zeros({a}.shape[0], 1, dtype=torch.int64), 4.0)",
    ),
    3: ("{a}[0] = 1.0",),
}  # fmt: skip

TRANSFORMS = {
    "grad": "F.grad(total)(x)",
    "jvp": "F.jvp(f, (x,), (t,))",
    "vjp": "F.vjp(total, x)[1](torch.tensor(2.0, dtype=x.dtype))",
    "jacfwd": "F.jacfwd(f)(x)",
    "jacrev": "F.jacrev(f)(x)",
    "jacrev in chunks": "F.jacrev(f, chunk_size=2)(x)",
    "hessian": "F.hessian(total)(x)",
    "jacrev of jacrev": "F.jacrev(F.jacrev(total))(x)",
    "jacrev of jacfwd": "F.jacrev(F.jacfwd(total))(x)",
    "jacfwd of jacfwd": "F.jacfwd(F.jacfwd(total))(x)",
    "vmap": "F.vmap(f)(xs)",
    "vmap along 2": "F.vmap(f, 2, -1)(xs.movedim(0, 2))",
    "vmap of grad": "F.vmap(F.grad(total))(xs)",
    "vmap of jacfwd": "F.vmap(F.jacfwd(f))(xs)",
    "vmap of jacrev": "F.vmap(F.jacrev(f))(xs)",
    "vmap of hessian": "F.vmap(F.hessian(total))(xs)",
    "grad of vmap": "F.grad(lambda v: F.vmap(total)(v).sum())(xs)",
    "jvp of vmap": "F.jvp(F.vmap(f), (xs,), (xs * 0.5,))",
    "grad of jvp": "F.grad(lambda v: F.jvp(total, (v,), (t,))[1])(x)",
    "jvp of grad": "F.jvp(F.grad(total), (x,), (t,))",
    "vmap of jvp of grad": "F.vmap(lambda v: F.jvp(F.grad(total), (v,), (t,)))(xs)",
    "vmap of tangents": "F.vmap(lambda v: F.jvp(F.grad(total), (x,), (v,))[1])(xs)",
    "vmap of grad of jvp": "F.vmap(F.grad(lambda v: F.jvp(total, (v,), (v * 2,))[1]))(xs)",
    "grad of grad": "F.grad(lambda v: F.grad(total)(v).pow(2).sum())(x)",
    "vmap of vmap": "F.vmap(F.vmap(f))(torch.stack([xs, xs + 1]))",
    "backward": "torch.autograd.grad(total(w), w)",
    "backward of backward": "torch.autograd.grad(torch.autograd.grad(total(w), w, create_graph=True)[0].sin().sum(), w, allow_unused=True)",
}  # fmt: skip


def function(seed: int) -> str:
    """The text of a function ``f`` of a tensor with the shape of `X`, and of the scalar ``total`` made of it."""
    choose = random.Random(seed)
    lines = [f"a0 = {choose.choice(STARTS)}"]
    ndims = {"x": 2, "a0": 1 if "reshape" in lines[0] else 2}
    bases = {"x": "x", "a0": "a0"}                    # PyTorch's forward mode is wrong about what is written to itself
    for k in range(1, choose.randint(3, 8)):
        own = [name for name in ndims if name != "x"]
        a = choose.choice(own)
        b = choose.choice([name for name in ndims if ndims[name] == ndims[a] and bases[name] != bases[a]] or ["x"])
        kind = choose.random()
        if kind < 0.35:
            views = VIEWS[ndims[a]]
            text = choose.choice(views)
            lines.append(f"a{k} = {text.format(a=a, b=b)}")
            lines.append(f"assert a{k}.ndim < 4")
            ndims[f"a{k}"], bases[f"a{k}"] = _ndim_after(text, ndims[a]), bases[a]
        elif kind < 0.5:
            text = choose.choice(VALUES)
            lines.append(f"a{k} = {text.format(a=a, b=b)}")
            ndims[f"a{k}"], bases[f"a{k}"] = 0 if text == "{a}.sum()" else ndims[a], bases[a] if "detach" in text else f"a{k}"
        elif kind < 0.8:
            lines.append(choose.choice(WRITES).format(a=a, b=b))
        else:
            lines.append(choose.choice(STORES[ndims[a]]).format(a=a, b=b))
    results = [name for name in ndims if name != "x"]
    results = choose.sample(results, min(len(results), 2))
    body = "\n    ".join(lines)
    total = " + ".join(f"({name} * torch.linspace(0.5, 1.5, {name}.numel(), dtype=x.dtype).view({name}.shape)).sum()" for name in results)
    return f"def f(x):\n    {body}\n    return {', '.join(f'{r} * 1' for r in results)}\ndef total(x):\n    {body}\n    return {total}\n"


def _ndim_after(text: str, ndim: int) -> int:
    if "unsqueeze" in text or text.endswith(".view(1)") or ".expand" in text:
        return ndim + 1
    if ".view(-1)" in text or "reshape(-1)" in text or "flatten" in text or ".as_strided" in text:
        return 1
    if text.endswith(("[0]", "[:, 1]", ".diagonal()", "select(1, 0)", ".squeeze(1)", ".sum(1)")) and "split" not in text:
        return ndim - 1
    return ndim


def outcome(torch: Any, text: str, transform: str) -> Any:
    """The numbers that come of it, or the error."""
    scope: dict[str, Any] = {"torch": torch, "F": torch.func, "x": torch.tensor(X, dtype=torch.float64)}
    scope["t"] = scope["x"].flip(0) * 0.5 + 1
    scope["xs"] = torch.stack([scope["x"], scope["x"] * 2, scope["x"] - 1])
    scope["w"] = scope["x"].clone().requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(text, scope)
            return _numbers(eval(TRANSFORMS[transform], scope))
        except Exception as error:
            return error


def _numbers(made: Any) -> Any:
    if isinstance(made, (tuple, list)):
        return [_numbers(x) for x in made]
    if made is None:
        return None
    # PyTorch may return zeros without memory, whose elements it does not show.
    return np.array((made.detach() + 0.0).tolist()).reshape(tuple(made.shape))


def agrees(ours: Any, theirs: Any) -> bool:
    """Whether `ours` is as PyTorch's; where that refuses, in-place operations mostly, an answer may be given."""
    if isinstance(theirs, Exception):
        return True
    if isinstance(ours, Exception):
        return False
    if isinstance(theirs, list):
        return isinstance(ours, list) and len(ours) == len(theirs) and all(map(agrees, ours, theirs))
    if theirs is None or ours is None:
        return ours is theirs
    return ours.shape == theirs.shape and np.allclose(ours, theirs, rtol=1e-9, atol=1e-9, equal_nan=True)


def found(ours: Any, theirs: Any, seed: int, transforms: Any) -> list[str]:
    """What comes out otherwise of the function `seed` under `transforms`."""
    text = function(seed)
    if not agrees(outcome(theirs, text, "jacfwd"), outcome(theirs, text, "jacrev")):
        return []                                     # PyTorch disagrees with itself: forward mode of what is written to itself, say
    said = []
    for name in transforms:
        expected = outcome(theirs, text, name)
        if isinstance(expected, Exception):
            continue
        made = outcome(ours, text, name)
        if not agrees(made, expected):
            said.append(f"# seed {seed}, {name}\n{text}\n  Flambeau: {repr(made)[:500]}\n  PyTorch:  {repr(expected)[:500]}")
    return said


def main() -> None:
    import torch

    import flambeau as fb

    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--count", type=int, default=200)
    given = made.parse_args()
    bad = 0
    for seed in range(given.seed, given.seed + given.count):
        for text in found(fb, torch, seed, TRANSFORMS)[:1]:
            bad += 1
            print(text, flush=True)
    print(f"{bad} of {given.count} functions come out otherwise")


if __name__ == "__main__":
    main()
