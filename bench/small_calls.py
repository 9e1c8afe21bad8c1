"""Microseconds of calls on small tensors, beside PyTorch's in the same process: ``python bench/small_calls.py [--size 4,4] [words]``.

Calls of a family, one family a section, each in PyTorch's words; those that contain one of the words, if some are given. The
last lines are the geometric mean of the ratios (PyTorch's time over Flambeau's) and how many are below 1.
"""

from __future__ import annotations

import argparse
import math
import re
import timeit
import warnings
from types import ModuleType
from typing import Any

CALLS = {
    "elementwise": """
        abs(x); sigmoid(x); erf(x); rsqrt(x); reciprocal(x); sign(x); isnan(x); x**2; x**3; x**0.5; pow(x, y); 2**x; x + y; x + 1
        1 - x; 2 / x; x * v; x.t() * y; where(b, x, y); where(b, x, 0.0); remainder(x, y); fmod(x, y); x % 0.3; x // 0.3; exp(x)
        log(x); tanh(x); sin(x); tan(x); atan2(x, y); floor(x); round(x); frac(x); clamp(x, 0.2, 0.6); clamp(x, min=0.2)
        maximum(x, y); x > y; x == y; x > 0.5; b & b; ~b; i + j; i + 1; i * 2; i // 2; i % j; i == 3; i & j; i << 1; -i; abs(i)
        d + d; h + h; h * 2; z * z; z + 1; abs(z); exp(z); lerp(x, y, 0.3); addcmul(x, x, y); addcdiv(x, x, y, value=0.5)
        F.relu(x); F.gelu(x); F.silu(x); F.softplus(x); F.elu(x); F.leaky_relu(x); F.mish(x); F.hardswish(x); F.logsigmoid(x)
        x.add_(y, alpha=0); x.mul_(1.0); x.clamp_(0, 1); x.copy_(y); x.double(); b.float(); x.to(m.int64); x.bool()
    """,
    "reductions": """
        x.sum(); x.sum(0); x.sum(-1); x.mean(); x.mean(-1, keepdim=True); x.max(); x.max(-1); x.argmax(-1); x.amax(0); x.var(-1)
        x.std(); x.prod(); x.norm(); x.any(); b.all(); i.sum(); x.cumsum(0); x.sort(); x.topk(2); logsumexp(x, -1)
        F.softmax(x, -1); F.log_softmax(x, -1); x.median(); x.unique()
    """,
    "views": """
        x.t(); x[0]; x[:, 1]; x[1:, ::2]; x.view(-1); x.reshape(2, -1); x.permute(1, 0); x.unsqueeze(0); x.squeeze(); x.detach()
        x.expand(3, *x.shape); x.flatten(); x.chunk(2); x.split(2); x.unbind(); x.diagonal(); x.shape; x.size(0); x.numel()
    """,
    "creation": """
        zeros(4, 4); ones(4, 4); empty(4, 4); full((4, 4), 1.0); arange(10); linspace(0, 1, 10); tensor([1.0, 2.0]); tensor(3.0)
        eye(4); rand(4, 4); randn(4, 4); randint(0, 5, (4,)); zeros_like(x); cat([x, y]); stack([x, y]); x.clone(); x.fill_(0.5)
        x.repeat(2, 2); x.roll(1, 0); x.flip(0); tril(x); x[0, 0].item(); x.tolist()
    """,
    "indexing": """
        x[b]; x[k]; x[k, k]; x.gather(0, k2); x.scatter(0, k2, y); x.index_select(0, k); x.masked_fill(b, 0.0); F.embedding(k, x)
        F.one_hot(k, 64); x.take(k); nonzero(b); w.__setitem__(0, 1.0); w.__setitem__(b, 0.0)
    """,
    "products": """
        x.T @ y; x @ v; outer(v, v); v.dot(v); bmm(x[None], y[None]); einsum('ij,jk->ik', x, y); F.linear(x, y); addmm(x, x.T, y)
        linalg.inv(s); linalg.norm(x); det(s); linalg.solve(s, s); cdist(x, y)
    """,
    "layers": """
        F.mse_loss(x, y); F.cross_entropy(x, t); F.nll_loss(x, t); F.binary_cross_entropy_with_logits(x, y); F.smooth_l1_loss(x, y)
        F.layer_norm(x, x.shape[1:]); F.dropout(x, 0.5); F.normalize(x); F.cosine_similarity(x, y); F.max_pool2d(p, 2)
        F.avg_pool2d(p, 2); F.conv2d(p, c); F.pad(x, (1, 1)); F.interpolate(p, scale_factor=2); allclose(x, x); isclose(x, y)
    """,
    "gradients": """
        (r * 2).sum().backward(); r.sigmoid().sum().backward(); r.exp().mean().backward(); (r**2).sum().backward()
        F.gelu(r).sum().backward(); where(b, r, y).sum().backward(); F.softmax(r, -1).sum().backward(); F.mse_loss(r, y).backward()
        F.cross_entropy(r, t).backward(); F.layer_norm(r, r.shape[1:]).sum().backward(); (r.abs() + 1).log().sum().backward()
        r[0].sum().backward(); r.max(-1)[0].sum().backward(); r.t().reshape(-1).sum().backward(); r.norm().backward()
        cat([r, r]).sum().backward()
    """,
}


def calls(family: str) -> list[str]:
    return [call.strip() for line in CALLS[family].splitlines() for call in line.split(";") if call.strip()]


def operands(m: ModuleType, size: tuple[int, int]) -> dict[str, Any]:
    """The names that calls use, for the framework `m`."""
    m.manual_seed(0)
    x, y = m.rand(size) * 0.8 + 0.1, m.rand(size) + 0.5
    i, k = (x * 10).to(m.int64), m.arange(size[0]) % min(size)
    words = set(re.findall(r"(?<![.\w])[a-z]\w+(?=\()", " ".join(CALLS.values())))
    return {
        **{name: getattr(m, name) for name in words},
        "m": m, "F": m.nn.functional, "linalg": m.linalg, "x": x, "y": y, "w": x.clone(), "v": y[0].clone(), "b": x > 0.5,
        "i": i, "j": (y * 3 + 1).to(m.int64), "k": k, "k2": k[:, None].repeat(1, size[1]), "t": k % size[1], "d": x.double(),
        "h": x.bfloat16(), "z": m.complex(x, y), "r": x.clone().requires_grad_(), "s": x[:, : size[0]] + m.eye(*size)[:, : size[0]],
        "p": m.rand(1, 3, 8, 8), "c": m.rand(4, 3, 3, 3),
    }  # fmt: skip


def microseconds(call: str, names: dict[str, Any]) -> float:
    """The least of several loops, after a warm-up in which kernels are compiled and launchers loaded."""
    timer = timeit.Timer(call, globals=names)
    timer.timeit(400)
    count = max(20, int(0.004 * 50 / timer.timeit(50)))
    return min(timer.repeat(7, count)) / count * 1e6


def main() -> None:
    import torch

    import flambeau

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", default="4,4", help="rows and columns of the tensors, equal ones for factorizations")
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    size = tuple(int(n) for n in options.size.split(","))
    torch.set_num_threads(flambeau.get_num_threads())
    warnings.simplefilter("ignore")
    names = {m: operands(m, size) for m in (torch, flambeau)}
    everything: list[float] = []
    for family in CALLS:
        ratios = []
        for call in calls(family):
            if options.words and not any(word in call for word in options.words):
                continue
            theirs, ours = (microseconds(call, names[m]) for m in (torch, flambeau))
            ratios.append(theirs / ours)
            print(f"  {theirs / ours:6.2f}x  {ours:8.2f} us  PyTorch {theirs:8.2f} us  {call}", flush=True)
        if ratios:
            print(summary(family, ratios), flush=True)
        everything += ratios
    print(summary("small calls", everything))


def summary(name: str, ratios: list[float]) -> str:
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return f"{name}: geomean {mean:.2f}x over {len(ratios)} calls, {sum(r < 1 for r in ratios)} behind, least {min(ratios):.2f}x"


if __name__ == "__main__":
    main()
