"""Compile kernels before they are needed: ``python -m flambeau.warmup``.

A kernel costs 20 to 60 ms the first time a machine runs it and about half a millisecond from the cache after that. The
command compiles, for the dtypes it is given, the formulas of all elementwise ops and of their gradients, and what small
training steps of the usual layers, losses and optimizers run. The cache is the folder `FLAMBEAU_CACHE` names.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fb
from flambeau import nn
from flambeau_kernels.formula import Formula

F = nn.functional

DTYPES = ("float32",)


def formulas() -> list[Formula]:
    """The formulas of all declared elementwise ops and of their gradients."""
    from .ops import load_families
    from .ops._spec.base import OPS
    from .ops._spec.elementwise import ElementwiseOp

    load_families()
    found = []
    for op in OPS.values():
        if isinstance(op, ElementwiseOp):
            found.append(op.short or op.formula)
            found += [op.gradient(i)[0] for i, name in enumerate(op.positional) if op.has_gradient(name)]
    return found


# -- training steps ------------------------------------------------------------------------------------------------------


def _perceptron() -> tuple[nn.Module, tuple[int, ...]]:
    return nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.LayerNorm(256), nn.Dropout(0.1), nn.Linear(256, 10)), (64, 256)


def _convolutional() -> tuple[nn.Module, tuple[int, ...]]:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.GroupNorm(4, 64), nn.SiLU(), nn.Conv2d(64, 64, 1),
        nn.AvgPool2d(2), nn.Conv2d(64, 64, 3, padding=1, groups=64), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    ), (8, 3, 32, 32)  # fmt: skip


class _Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 64)
        self.layer = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True, activation="gelu")
        self.head = nn.Linear(64, 10)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.head(self.layer(self.words(x), src_mask=mask, is_causal=True)).mean(1)


def _transformer() -> tuple[nn.Module, tuple[int, ...]]:
    return _Transformer(), (8, 64)


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTM(64, 64, batch_first=True), nn.GRU(64, 64, batch_first=True)
        self.head = nn.Linear(64, 10)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return self.head(self.gru(self.lstm(x)[0])[0][:, -1])


def _recurrent() -> tuple[nn.Module, tuple[int, ...]]:
    return _Recurrent(), (16, 24, 64)


MODELS = {"perceptron": _perceptron, "convolutional": _convolutional, "transformer": _transformer, "recurrent": _recurrent}
OPTIMIZERS: tuple[Callable[..., Any], ...] = (
    lambda p: fb.optim.SGD(p, 0.01, momentum=0.9, weight_decay=1e-4),
    lambda p: fb.optim.Adam(p, 1e-3),
    lambda p: fb.optim.AdamW(p, 1e-3),
)


def _step(make: Callable[[], tuple[nn.Module, tuple[int, ...]]], dtype: fb.dtype) -> None:
    """Train a model by a step of each optimizer, and evaluate it."""
    net, shape = make()
    net.to(dtype)
    generator = fb.Generator().manual_seed(0)  # the program's own stream is left as it was
    x = (
        fb.randint(0, 10, shape, generator=generator)
        if isinstance(net, _Transformer)
        else fb.randn(shape, generator=generator).to(dtype)
    )
    y = fb.randint(0, 10, shape[:1], generator=generator)
    for make_optimizer in OPTIMIZERS:
        optimizer = make_optimizer(net.parameters())
        F.cross_entropy(net(x), y).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    net.eval()
    with fb.inference_mode():
        net(x).softmax(-1).argmax(-1)


# -- the command ---------------------------------------------------------------------------------------------------------


def fill(dtypes: Sequence[str] = DTYPES, with_formulas: bool = True) -> tuple[int, int]:
    """Put the kernels of usual programs that compute in `dtypes` into the cache.

    Returns: how many were compiled, and how many were there. Raises: Unavailable where nothing can be compiled.
    """
    from flambeau_kernels import warmup
    from flambeau_kernels.engine.machine_code import llvm

    llvm.machine()
    before = dict(llvm.counts)
    if with_formulas:
        warmup.warm(formulas(), dtypes)
    state = fb.get_rng_state()
    for name in dtypes:
        dtype = getattr(fb, name)
        if dtype.is_floating_point:
            for make in MODELS.values():
                _step(make, dtype)
    fb.set_rng_state(state)
    compiled = llvm.counts["compiled"] - before["compiled"]
    return compiled, llvm.counts["loaded"] - before["loaded"] - compiled


def main(arguments: list[str] | None = None) -> None:
    """Fill the cache, and say what was compiled."""
    parser = argparse.ArgumentParser(prog="python -m flambeau.warmup", description="Compile kernels before they are needed.")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="dtypes to compute in, by commas (default: %(default)s)")
    parser.add_argument("--no-formulas", action="store_true", help="only what the small training steps run")
    options = parser.parse_args(arguments)
    dtypes = options.dtypes.split(",")
    for name in dtypes:
        if not isinstance(getattr(fb, name, None), fb.dtype):
            parser.error(f"--dtypes: {name!r} is no dtype of Flambeau")
    from flambeau_kernels.engine.machine_code import llvm

    reason = llvm.available()
    if reason is not None:
        parser.error(f"nothing can be compiled here: {reason}")
    start = time.perf_counter()
    compiled, found = fill(dtypes, not options.no_formulas)
    place = fb.kernels.cache_folder() or "in memory only"
    print(f"{compiled} kernels compiled, {found} found in the cache; {time.perf_counter() - start:.1f} s; {place}")


if __name__ == "__main__":
    main()
