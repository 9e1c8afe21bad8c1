"""Calls kernels of all families, chooses another backend, and prints which kernels are kept by whom: what `test_kept.py` runs.

    python tests/kernels/backends/kept_sample.py
"""

from __future__ import annotations

import gc
import sys
import types
import warnings
from typing import Any

import processor_sample
from processor_sample import usual

import flambeau as fb
import flambeau_kernels
from flambeau_kernels.engine import language

F = fb.nn.functional


def decompositions() -> None:
    for shape in ((130,), (40,), (100, 6), (100, 20)):
        n = shape[-1]
        a = usual(*shape, n)
        a = a @ a.mT + n * fb.eye(n)
        fb.linalg.cholesky(a)
        fb.linalg.solve(a, a[..., :3])
        fb.linalg.solve_triangular(a, a[..., :3], upper=True)
        fb.linalg.lu_factor(a)
        fb.linalg.det(a)
        fb.linalg.inv(a)
        fb.linalg.qr(a)
        fb.linalg.eigh(a)
        fb.linalg.svd(a)


def layers() -> None:
    for x_shape, w_shape, named in (
        ((2, 16, 20, 20), (16, 16, 3, 3), {}),
        ((2, 16, 20, 20), (16, 1, 3, 3), {"groups": 16}),
        ((2, 16, 40, 40), (40, 16, 1, 1), {}),
        ((2, 3, 40, 40), (16, 3, 7, 7), {"stride": 2}),
    ):
        x, w = usual(*x_shape).requires_grad_(), usual(*w_shape).requires_grad_()
        F.conv2d(x, w, **named).sum().backward()
        F.conv2d(x.detach().to(memory_format=fb.channels_last), w.detach(), **named)
    x = usual(2, 16, 40, 40).requires_grad_()
    for made in (
        F.max_pool2d(x, 2), F.avg_pool2d(x, 3, 2), F.adaptive_avg_pool2d(x, 7), F.interpolate(x, scale_factor=2, mode="bilinear"),
        F.pad(x, (1, 1, 1, 1), mode="reflect"), F.batch_norm(x, fb.zeros(16), fb.ones(16), training=True), F.group_norm(x, 4),
        F.layer_norm(x, (40,)), F.softmax(x, -1), F.log_softmax(x, 1), F.grid_sample(x, usual(2, 10, 10, 2), align_corners=False),
        F.dropout(x), F.cross_entropy(x[0, 0], fb.arange(40)), F.mse_loss(x, -x), F.embedding(fb.arange(20), x[0, 0]),
        F.embedding_bag(fb.arange(40).reshape(4, 10), x[0, 0]), F.scaled_dot_product_attention(x, x, x, is_causal=True),
        F.ctc_loss(x[0].log_softmax(-1), fb.ones(40, 4, dtype=fb.int64), (16,) * 40, (4,) * 40), fb.cdist(x[0], x[1]),
        fb.nn.LSTM(40, 32)(x[0])[0], fb.nn.GRU(40, 32)(x[0])[0],
    ):  # fmt: skip
        made.sum().backward()


def along() -> None:
    x = usual(2, 16, 40, 40).requires_grad_()
    for made in (
        x.cumsum(-1), x.sort(-1)[0], x.topk(3)[0], x.logsumexp(-1), x.var(-1), x.norm(dim=-1), x.prod(-1), x.tril(), x.median(-1)[0],
        x.kthvalue(3, -1)[0], x.max(-1)[0], x.cummax(-1)[0], x.flip(1) * x.roll(3, 1), fb.cat([x, x], 1), fb.stack([x, x]),
    ):  # fmt: skip
        made.sum().backward()


def places() -> None:
    x = usual(2, 16, 40, 40)
    index = (x * 10).abs().long() % 16
    x.gather(-1, index)
    fb.zeros(2, 16, 40, 40).scatter_add_(-1, index, x)
    fb.take_along_dim(x, index, -1)
    x[:, index[0, 0, 0]]
    x.index_select(1, fb.arange(5))
    x.clone().index_add_(1, fb.arange(5), x[:, :5])
    x[x > 0]
    x.clone().masked_scatter_(x > 0, x)
    x.masked_fill(x > 0, 1.0)
    fb.where(x > 0, x, -x)
    x.nonzero()
    x.unique()
    fb.histc(x, 10)
    fb.bincount(index.reshape(-1))
    fb.searchsorted(fb.arange(100.0), x)
    F.one_hot(index[0, 0], 40)
    fb.randperm(1000)
    fb.multinomial(fb.rand(10, 100), 5)
    fb.bernoulli(fb.rand(1000))


def who(holder: Any) -> str:
    """A name for what refers to a kernel."""
    inside: Any = [f for f in gc.get_referrers(*gc.get_referrers(holder)) if isinstance(f, types.FunctionType)]
    names = sorted({f"{f.__module__}.{f.__qualname__}" for f in inside})
    return getattr(holder, "__qualname__", "") or ", ".join(names) or str(type(holder))


def main() -> int:
    """How many families were called."""
    warnings.simplefilter("ignore")
    for part in (processor_sample.elementwise, processor_sample.conversions, processor_sample.along, processor_sample.products,
                 processor_sample.spectra, processor_sample.draws):  # fmt: skip
        list(part())
    for part in (decompositions, layers, along, places):
        part()
    forms = [(one.name, form) for one in list(language._kernels) for form in one._forms.values()]
    pairs = {id(pair) for pair in forms}
    flambeau_kernels.set_backend("numpy")
    gc.collect()
    for name, form in forms:
        holders = [h for h in gc.get_referrers(form) if id(h) not in pairs and not isinstance(h, types.FrameType)]
        if holders:
            sys.stdout.write(f"{name} is kept by {'; '.join(map(who, holders))}\n")
    return len({name for name, _ in forms})


if __name__ == "__main__":
    sys.stderr.write(f"{main()}\n")
