"""Compiled models beside `torch.compile` and beside their own eager runs: ``python bench/compiled.py [--seconds 2] [words]``.

Each model trains (forward, backward and the optimizer's step) and predicts: small ones, of which the function of the loss is compiled, on
one thread, and those of `models.py`, compiled by ``compile(model)``, on two (``--threads``). The four sides, both frameworks eager and
compiled, run by turns in one process, and the quickest of the turns counts: in CPU seconds on one thread, else by the clock. A row has
PyTorch's compiled time and Flambeau's eager time over Flambeau's compiled one. `first` is the time to the first result of a block of a
transformer in a new process, with empty caches and with those of the process before, `shapes` what a batch size not met before costs more
than one that was. `step` is a training step of an 8-16-4 network in the mode "reduce-overhead", beside PyTorch's eager one; `chain` is ten
elementwise operations on a million numbers beside a copy of them; `calls` is what recording an operation takes.

`torch.compile` needs a C++ compiler; without one its column is PyTorch's eager time, and the last line says so. Without PyTorch there are
Flambeau's own columns alone.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from models import block

ROOT = Path(__file__).resolve().parents[1]


def mlp(T: Any) -> tuple[Any, Any, Any]:
    """Three layers over rows of 784 numbers."""
    nn = T.nn
    net = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return net, T.randn(128, 784), T.arange(128) % 10


def resnet(T: Any) -> tuple[Any, Any, Any]:
    """Convolutions with batch normalization, around which their input goes."""
    nn = T.nn

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            layers = [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
            self.body = nn.Sequential(*layers, nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width))

        def forward(self, x: Any) -> Any:
            return T.relu(self.body(x) + x)

    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)]
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), Block(32), Block(32), *head), T.randn(8, 3, 32, 32), T.arange(8) % 10


def gpt(T: Any) -> tuple[Any, Any, Any]:
    """Two blocks over 256 bytes."""
    nn = T.nn

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.symbols, self.places = nn.Embedding(256, 128), nn.Embedding(64, 128)
            self.blocks = nn.Sequential(block(T, 128, 4), block(T, 128, 4))
            self.head = nn.Linear(128, 256)

        def forward(self, x: Any) -> Any:
            return self.head(self.blocks(self.symbols(x) + self.places(T.arange(x.shape[1])))).flatten(0, 1)

    symbols = (T.arange(8 * 64) * 7 % 256).reshape(8, 64)
    return GPT(), symbols, (symbols + 1).flatten() % 256


def lstm(T: Any) -> tuple[Any, Any, Any]:
    """A recurrent layer over embedded bytes."""
    nn = T.nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.symbols, self.cells, self.head = nn.Embedding(256, 64), nn.LSTM(64, 128, batch_first=True), nn.Linear(128, 256)

        def forward(self, x: Any) -> Any:
            return self.head(self.cells(self.symbols(x))[0]).flatten(0, 1)

    symbols = (T.arange(16 * 32) * 7 % 256).reshape(16, 32)
    return Model(), symbols, (symbols + 1).flatten() % 256


def gated(T: Any) -> tuple[Any, Any, Any]:
    """Elementwise operations on large tensors between small products."""
    nn = T.nn

    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.scale = nn.Linear(16, 512), nn.Linear(16, 512), nn.Parameter(T.ones(512))

        def forward(self, x: Any) -> Any:
            a, b = self.one(x), self.two(x)
            y = T.sigmoid(a) * T.tanh(b) * self.scale + T.relu(a - b) * 0.5
            return (y * y + 1).sqrt().mean(1, keepdim=True).expand(-1, 10)

    return Gated(), T.randn(1024, 16), T.arange(1024) % 10


MODELS: dict[str, Callable[[Any], tuple[Any, Any, Any]]] = {"mlp": mlp, "resnet": resnet, "gpt": gpt, "lstm": lstm, "gated": gated}


def sides(T: Any, make: Any, trains: bool, compiles: bool) -> Callable[[], Any]:
    """What is timed: a training step, or a prediction."""
    T.manual_seed(0)
    net, x, y = make(T)
    if not trains:
        net.eval()
        predict = T.compile(net) if compiles else net

        def run() -> Any:
            with T.no_grad():
                return predict(x)

        return run
    optimizer = T.optim.AdamW(net.parameters(), 1e-3)

    def loss_of(x: Any, y: Any) -> Any:
        return T.nn.functional.cross_entropy(net(x), y)

    found = T.compile(loss_of) if compiles else loss_of

    def step() -> Any:
        optimizer.zero_grad()
        loss = found(x, y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def large_sides(T: Any, make: Any, trains: bool, compiles: bool) -> Callable[[], Any]:
    """`sides` of a `Task` of `models.py`: the model is compiled, and its loss is not."""
    T.manual_seed(0)
    task = make(T)
    net = task.net.train(trains)
    call = T.compile(net) if compiles else net
    if not trains:

        def run() -> Any:
            with T.no_grad():
                return call(*task.inputs)

        return run
    optimizer = getattr(T.optim, task.optimizer)(net.parameters(), task.rate)

    def step() -> Any:
        optimizer.zero_grad()
        loss = task.loss(call(*task.inputs))
        loss.backward()
        optimizer.step()
        return loss

    return step


def quickest(runs: list[Callable[[], Any]], seconds: float, clock: Callable[[], float] = time.process_time) -> list[float]:
    """The least seconds of each by `clock`, by turns."""
    best = [math.inf] * len(runs)
    for run in runs:
        for _ in range(6):                            # until kernels are there
            run()
    settle()
    for run in runs:
        run()
    end = time.perf_counter() + seconds * len(runs)
    while time.perf_counter() < end:
        for k, run in enumerate(runs):
            began, count = clock(), 0
            while clock() - began < 0.02:
                run()
                count += 1
            best[k] = min(best[k], (clock() - began) / count)
    return best


def settle() -> None:
    """Wait for kernels that are compiled in the background."""
    from flambeau.compiler import _background

    _background.wait()


def models(words: list[str], seconds: float, threads: int) -> list[tuple[float, float]]:
    """Print a row for each model; the two ratios of each, of which the first is nan without PyTorch."""
    import models as large

    import flambeau as fb

    torch = reference()
    found = []
    small = {name: (make, sides, 1, time.process_time) for name, make in MODELS.items()}
    clock = time.perf_counter if threads > 1 else time.process_time
    all_of_them = small | {f"{name}_large": (make, large_sides, threads, clock) for name, make in large.MODELS.items()}
    for name, (make, side, count, by) in all_of_them.items():
        for trains in (True, False):
            title = f"{name}.{'train' if trains else 'infer'}"
            if words and not any(word in title for word in words):
                continue
            for T in filter(None, (torch, fb)):
                T.set_num_threads(count)
            theirs = [] if torch is None else [(torch, False), (torch, True)] if can_compile() else [(torch, False)]
            times = quickest([side(T, make, trains, c) for T, c in (*theirs, (fb, False), (fb, True))], seconds, by)
            eager, ours = times[-2:]
            best = times[-3] if theirs else math.nan
            found.append((best / ours, eager / ours))
            shown = " ".join(f"{t * 1e3:9.3f}" for t in (times[0] if theirs else math.nan, best, eager, ours))
            print(f"{title:18s} {shown} ms   over torch.compile {best / ours:5.2f}   over our eager {eager / ours:5.2f}", flush=True)
    return found


def reference() -> Any:
    """PyTorch, or None where it is not installed."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    return torch


@functools.cache
def can_compile() -> bool:
    """Whether `torch.compile` works here."""
    import torch

    try:
        torch.compile(lambda x: x.sin() + 1)(torch.ones(64))
    except Exception:  # torch's own kinds of errors, for want of a compiler
        return False
    return True


FIRST = """
import sys, time
sys.path.insert(0, {here!r})
import {module} as T
import models
module = models.block(T, 256, 8).eval()
x = T.ones(8, 128, 256)
with T.no_grad():
    began, worked = time.perf_counter(), time.process_time()
    T.compile(module)(x)
    print(time.perf_counter() - began, time.process_time() - worked)
"""


def first() -> None:
    """Print the seconds to a first result in a new process: with empty caches, and with those of the process before."""
    for module in ("torch", "flambeau") if reference() is not None else ("flambeau",):
        with tempfile.TemporaryDirectory() as folder:
            path = os.pathsep.join([str(ROOT / "framework"), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", "")])
            # An installed package has bytecode, so Python keeps it here, and a first process, whose kernels are let go, makes it.
            environment = os.environ | {"PYTHONPATH": path, "PYTHONPYCACHEPREFIX": os.path.join(folder, "bytecode")}
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
            found = []
            for kernels in ("thrown away", "kept", "kept"):
                caches = dict.fromkeys(("FLAMBEAU_CACHE", "TORCHINDUCTOR_CACHE_DIR"), os.path.join(folder, kernels))
                text = FIRST.format(here=str(ROOT / "bench"), module=module)
                done = subprocess.run([sys.executable, "-c", text], env=environment | caches, capture_output=True, text=True)
                found.append(done.stdout.split() if done.returncode == 0 else ["nan", "nan"])
            (_, _), (cold, cpu_cold), (warm, cpu_warm) = found
            print(
                f"first result, {module}: {float(cold):.3f} s with empty caches, {float(warm):.3f} s with warm ones; "
                f"of one processor {float(cpu_cold):.3f} s and {float(cpu_warm):.3f} s", flush=True,
            )  # fmt: skip


def shapes() -> None:
    """Print what a call with a new batch size costs more than one with a known size."""
    import flambeau as fb

    net = fb.compile(block(fb, 256, 8).eval())
    more = []
    with fb.no_grad():
        for n in range(1, 25):
            x = fb.randn(n, 16, 256)
            times = []
            for _ in range(5):
                began = time.thread_time()
                net(x)
                times.append(time.thread_time() - began)
            more.append(times[0] - times[-1])
    more = sorted(more[4:])
    print(f"a new batch size: {more[len(more) // 2] * 1e3:.2f} ms more in the median, {more[-1] * 1e3:.2f} at most", flush=True)


def step(seconds: float) -> None:
    """Print the times of a step of an 8-16-4 network."""
    import flambeau as fb

    torch = reference()

    def make(T: Any, optimizer: str, compiles: bool) -> Callable[[], Any]:
        T.manual_seed(0)
        nn = T.nn
        net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
        steps = getattr(T.optim, optimizer)(net.parameters(), 0.01)
        x, y = T.randn(32, 8), T.randn(32, 4)

        def step(x: Any, y: Any) -> Any:
            steps.zero_grad()
            loss = nn.functional.mse_loss(net(x), y)
            loss.backward()
            steps.step()
            return loss

        run = T.compile(step, mode="reduce-overhead") if compiles else step
        for _ in range(400):
            run(x, y)
        return lambda: run(x, y)

    for optimizer in ("SGD", "Adam", "AdamW"):
        sides = [(fb, False), (fb, True)] if torch is None else [(torch, False), (fb, False), (fb, True)]
        times = quickest([make(T, optimizer, compiles) for T, compiles in sides], seconds)
        eager, ours = times[-2:]
        shown = f"eager {eager * 1e6:7.1f} us, compiled {ours * 1e6:7.1f} us"
        if torch is not None:
            shown += f", of PyTorch's {times[0] * 1e6:7.1f} us: {times[0] / eager:.2f}x, {times[0] / ours:.2f}x"
        print(f"step 8-16-4 {optimizer:5s} {shown}", flush=True)


def chain(threads: int) -> None:
    """Print what ten elementwise operations on a million float32 take, compiled, beside one pass over them: a copy."""
    import flambeau as fb

    def ten(x: Any) -> Any:
        y = x * 1.5 + 0.25
        y = (y - x) * y
        y = y.abs() + x
        y = y * 0.5 - 1
        return y.relu() + x

    fb.set_num_threads(threads)
    x = fb.randn(1_000_000)
    out = fb.empty(1_000_000)
    compiled, replayed = fb.compile(ten), fb.compile(ten, mode="reduce-overhead")
    for _ in range(12):
        compiled(x)
        replayed(x)
    settle()
    runs: list[Callable[[], Any]] = [lambda: out.copy_(x), lambda: x.clone(), lambda: ten(x), lambda: compiled(x), lambda: replayed(x)]
    copy, clone, eager, ours, replay = quickest(runs, 1.0, time.perf_counter)
    print(
        f"ten operations, 1 M float32, {threads} threads: copy {copy * 1e6:.0f} us, clone {clone * 1e6:.0f}, eager {eager * 1e6:.0f}, "
        f"compiled {ours * 1e6:.0f} ({clone / ours:.2f} of a pass), replayed {replay * 1e6:.0f} ({clone / replay:.2f})", flush=True,
    )  # fmt: skip


CALLS = (
    "a + y", "a * 1.5", "a.exp()", "F.relu(a)", "F.gelu(a)", "a.clamp(-1, 1)", "a ** 2", "a ** 0.5", "a / y", "fb.where(m, a, y)",
    "a.masked_fill(m, 0.0)", "fb.max(a, y)", "fb.lerp(a, y, 0.5)", "F.softmax(a, -1)", "F.layer_norm(a, (512,))", "a.sum(-1)", "a.var(-1)",
    "a[0]", "a[1:, ::2]", "a.view(-1)", "a.reshape(-1)", "a.t()", "a.permute(1, 0)", "a.unsqueeze(0)", "a.chunk(2)",
    "fb.cat([a, y])", "fb.stack([a, y])", "a[i]", "fb.index_select(a, 0, i)", "F.embedding(i, y)", "fb.addmm(y, a, y)",
)  # fmt: skip


def calls() -> None:
    """Print the nanoseconds that a call in a compiled function takes to be recorded, once it has been recorded before."""
    import flambeau as fb
    from flambeau.compiler import _functions

    fb.set_num_threads(1)
    _functions.Function._leave = lambda self, signature: None  # type: ignore[method-assign]  # functions that gain nothing are recorded too
    count = 60
    for text in CALLS:
        times: list[int] = []
        scope = {"fb": fb, "i": fb.arange(512), "F": fb.nn.functional, "now": time.perf_counter_ns, "times": times}
        body = "\n".join([f"    b = {text}"] * count)
        exec(f"def f(a, y, m):\n    a = a * 2\n    began = now()\n{body}\n    times.append(now() - began)\n    return a", scope)
        f, a = fb.compile(scope["f"]), fb.rand(512, 512)
        for _ in range(40):
            f(a, a + 1, a > 0.5)
        print(f"recorded {text:26s} {min(times[8:]) / count:8.0f} ns", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="parts of names: of models, 'first', 'shapes', 'step', 'chain', 'calls'")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each side of a model")
    parser.add_argument("--threads", type=int, default=2, help="of the large models and of the chain")
    asked = parser.parse_args()
    for module in ("framework", "kernels"):
        sys.path.insert(0, str(ROOT / module))
    import flambeau as fb

    torch = reference()
    extras: dict[str, Callable[[], None]] = {
        "first": first, "shapes": shapes, "step": lambda: step(asked.seconds), "chain": lambda: chain(asked.threads), "calls": calls,
    }  # fmt: skip
    for name, run in extras.items():
        for T in filter(None, (torch, fb)):
            T.set_num_threads(1)
        if name in asked.words or not asked.words and name != "calls":
            run()
    words = [word for word in asked.words if word not in extras]
    found = models(words, asked.seconds, asked.threads) if words or not asked.words else []
    if found:
        slower = sum(own < 0.98 for _, own in found)
        if torch is not None:
            mean = math.exp(sum(math.log(theirs) for theirs, _ in found) / len(found))
            beside = "torch.compile" if can_compile() else "eager PyTorch, for there is no compiler for torch.compile"
            print(f"compiled models: geometric mean {mean:.2f}x of {beside} over {len(found)}")
        print(f"compiled models: {slower} of {len(found)} slower than their own eager run")


if __name__ == "__main__":
    main()
