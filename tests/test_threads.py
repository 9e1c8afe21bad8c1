"""Training does not depend on the number of threads, and many threads, or a forked child, may train at once."""

from __future__ import annotations

import hashlib
import os
import threading

import pytest

import flambeau as fb
from flambeau import nn

F = nn.functional


def mlp():
    net = nn.Sequential(nn.Linear(200, 300), nn.ReLU(), nn.LayerNorm(300), nn.Linear(300, 300), nn.GELU(), nn.Linear(300, 10))
    return net, lambda: (fb.randn(96, 200), fb.randint(0, 10, (96,)))


def cnn():
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.GroupNorm(4, 32), nn.SiLU(), nn.Conv2d(32, 32, 3, padding=1, groups=32), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(32, 10),
    )  # fmt: skip
    return net, lambda: (fb.randn(16, 3, 24, 24), fb.randint(0, 10, (16,)))


class Words(nn.Module):
    """Next-word prediction by two transformer layers."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(64, 50)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.head(self.layers(self.words(x), mask=mask, is_causal=True)).flatten(0, 1)


def words():
    return Words(), lambda: (x := fb.randint(0, 50, (8, 48)), x.roll(-1, 1).flatten())


MODELS = {"mlp": (mlp, 100), "cnn": (cnn, 100), "transformer": (words, 100)}


def train(model, steps, seed=0):
    """A digest of all parameters after `steps` of training."""
    fb.manual_seed(seed)
    net, batch = model()
    optimizer = fb.optim.AdamW(net.parameters(), 1e-3)
    for _ in range(steps):
        x, y = batch()
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    assert loss.isfinite()
    digest = hashlib.sha256()
    for p in net.state_dict().values():
        digest.update(p.numpy().tobytes())
    return digest.hexdigest()


@pytest.fixture
def threads():
    before = fb.get_num_threads()
    yield fb.set_num_threads
    fb.set_num_threads(before)


@pytest.mark.parametrize("name", MODELS)
def test_the_same_bits_with_one_two_and_four_threads(name, threads):
    model, steps = MODELS[name]
    digests = []
    for number in (1, 2, 4):
        threads(number)
        digests.append(train(model, steps))

    assert digests == digests[:1] * 3


def small():
    net = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64))
    x = fb.arange(64 * 64, dtype=fb.float32).reshape(64, 64) / 4096

    return net, x


def train_small(seed, steps=30):
    """Losses of a model whose start is a function of `seed` alone: the generator is shared by all threads."""
    net, x = small()
    generator = fb.Generator().manual_seed(seed)
    with fb.no_grad():
        for p in net.parameters():
            p.copy_(fb.randn(p.shape, generator=generator) * 0.1)
    optimizer = fb.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    losses = []
    for _ in range(steps):
        loss = F.mse_loss(net(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_eight_threads_train_eight_models():
    alone = [train_small(k) for k in range(8)]
    together: list = [None] * 8

    def work(k):
        together[k] = train_small(k)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for w in workers:
        w.start()
    for w in workers:
        w.join(timeout=120)

    assert together == alone
    assert all(losses[-1] < losses[0] for losses in alone)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_trains_as_its_parent_does():
    here = train_small(3)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        same = train_small(3) == here
        os.write(writing, b"y" if same else b"n")
        os._exit(0)
    os.close(writing)
    answer = os.read(reading, 1)
    os.close(reading)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert answer == b"y"
    assert train_small(3) == here


SPAWNED = """
import multiprocessing
import flambeau as fb

def product():
    x = fb.arange(300 * 300, dtype=fb.float32).reshape(300, 300) / 1e5
    return ((x @ x).tanh().sum(0) * x.sin()).sum(1).tolist()

def work(number):
    fb.set_num_threads(number)
    return product()

if __name__ == "__main__":
    here = product()
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(work, [1, 3]) == [here, here]
    assert product() == here
"""


def test_spawned_processes_compute_the_same(tmp_path, fresh_python):
    program = tmp_path / "program.py"
    program.write_text(SPAWNED)

    fresh_python(str(program))


INTERRUPTED = """
import os, signal, threading, time
import flambeau as fb

signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start what runs in the background without it

x = fb.rand(1200, 1200)
expected = (x @ x).tanh().sum(1)
for k in range(8):
    end, caught = time.monotonic() + 30, False
    try:
        threading.Timer(0.03 + 0.011 * k, os.kill, (os.getpid(), signal.SIGINT)).start()
        while time.monotonic() < end:
            (x @ x).tanh().sum(1)
            x.sort(1).values.cumsum(0).softmax(1)
    except KeyboardInterrupt:
        caught = True
    assert caught
    assert fb.equal((x @ x).tanh().sum(1), expected)
"""


# As Ctrl-C does, a declaration in the middle of a module fails, in one that another module imports.
LOADING = """
import sys
import flambeau as fb
from flambeau.ops._spec import base

def register(op):
    global left
    whole(op)
    left -= 1
    if not left:
        raise KeyboardInterrupt

whole, base.register, left = base.register, register, STOP
try:
    fb.tensor([3.0, 1.0, 2.0]).cumsum(0)
except KeyboardInterrupt:
    pass
assert left <= 0, "nothing was interrupted"
assert all(op.fn.__module__ in sys.modules for op in base.OPS.values()), "what was declared by halves is there"
base.register = whole
x = fb.tensor([3.0, 1.0, 2.0])
assert x.cumsum(0).tolist() == [3.0, 4.0, 6.0]
assert fb.cat([x, x])[1:5:2].tolist() == [1.0, 3.0]
assert x.view(3, 1).squeeze().unsqueeze(0).shape == (1, 3)
y = x.clone().requires_grad_()
y.reshape(1, 3).cumsum(1).sum().backward()
assert y.grad.tolist() == [3.0, 2.0, 1.0]
"""


@pytest.mark.parametrize("stop", [1, 2, 7, 20])
def test_ctrl_c_while_operations_are_loaded_is_an_exception_and_nothing_more(fresh_python, stop):
    fresh_python("-c", LOADING.replace("STOP", str(stop)))


def test_ctrl_c_during_kernels_is_an_exception_and_nothing_more(fresh_python):
    fresh_python("-c", INTERRUPTED)
