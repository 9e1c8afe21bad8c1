"""Layers, losses and whole programs on device cuda, beside the same on the CPU."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
from beside import alike

import flambeau as fb

pytestmark = pytest.mark.usefixtures("xp")
F, nn = fb.nn.functional, fb.nn


@pytest.fixture
def x() -> fb.Tensor:
    return ((fb.arange(16.0) * 7 % 16 + 1.5) / 18).reshape(4, 4)


def places(x: fb.Tensor, *values: int) -> fb.Tensor:
    return fb.tensor(values, device=x.device)


CALLS = {
    "clamp tensor": lambda x: x.clamp(min=x.T),
    "addmv": lambda x: fb.addmv(x[0], x, x[1]),
    "batch_norm eval": lambda x: F.batch_norm(x, x[0], x[1], x[2], x[3]),
    "instance_norm": lambda x: F.instance_norm(x.reshape(1, 2, 8)),
    "rms_norm": lambda x: F.rms_norm(x, (4,)),
    "conv_transpose1d": lambda x: F.conv_transpose1d(x[None], x.reshape(4, 2, 2), stride=2),
    "conv3d": lambda x: F.conv3d(x.reshape(1, 1, 2, 2, 4), x[:1].reshape(1, 1, 1, 2, 2)),
    "fold": lambda x: F.fold(F.unfold(x[None, None], 2), (4, 4), 2),
    "affine_grid": lambda x: F.affine_grid(x[:2, :3][None], (1, 1, 4, 4), align_corners=False),
    "repeat_interleave": lambda x: x.repeat_interleave(2),
    "view_as_complex": lambda x: fb.view_as_complex(x.reshape(8, 2)),
    "select_scatter": lambda x: x.select_scatter(x[0] * 2, 0, 1),
    "meshgrid": lambda x: fb.meshgrid(x[0], x[1], indexing="ij"),
    "nll": lambda x: F.nll_loss(x, places(x, 0, 1, 2, 3)),
    "label smoothing": lambda x: F.cross_entropy(x, places(x, 0, 1, 2, 3), label_smoothing=0.1),
    "class probabilities": lambda x: F.cross_entropy(x, x.softmax(1)),
    "attention": lambda x: F.scaled_dot_product_attention(
        x[None, None], x.T[None, None], x[None, None], is_causal=True
    ),
    "attention mask": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], attn_mask=x > 0.3),
    "quantile": lambda x: x.quantile(0.5),
    "cov": lambda x: x.cov(),
    "cdist": lambda x: fb.cdist(x, x.T),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x.T),
    "embedding renormalized": lambda x: F.embedding(places(x, 0, 0, 2), x.clone(), max_norm=0.5),
    "one_hot": lambda x: F.one_hot(places(x, 0, 2, 1)),
    "bilinear": lambda x: F.bilinear(x, x, x[None].expand(2, 4, 4)),
    "prelu": lambda x: F.prelu(x - 0.5, x[0]),
    "kl_div": lambda x: F.kl_div(x.log_softmax(1), x.softmax(1), reduction="batchmean"),
    "local_response_norm": lambda x: F.local_response_norm(x[None], 2),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x.reshape(1, 4, 2, 2), 2),
    "matrix_power": lambda x: fb.linalg.matrix_power(x, 3),
    "multi_dot": lambda x: fb.linalg.multi_dot([x, x, x]),
    "renorm": lambda x: x.renorm(2, 0, 0.5),
    "vmap": lambda x: fb.vmap(lambda row: (row * 2).sum())(x),
    "func.grad": lambda x: fb.func.grad(lambda y: (y**2).sum())(x),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str, x: fb.Tensor) -> None:
    alike(CALLS[name], x, tolerance=2e-5)


@pytest.mark.parametrize(
    "make",
    [lambda: nn.LSTM(4, 3), lambda: nn.GRU(4, 3), lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0)],
)
def test_modules(make: Any, x: fb.Tensor) -> None:
    fb.manual_seed(0)
    module = make()
    there = copy.deepcopy(module).cuda()

    def run(x: fb.Tensor) -> fb.Tensor:
        made = (there if x.is_cuda else module)(x)
        return made[0] if isinstance(made, tuple) else made

    alike(run, x, tolerance=2e-5)
    assert all(p.is_cuda for p in there.parameters())


def test_autocast_and_the_gradient_scaler(x: fb.Tensor) -> None:
    layer = nn.Linear(4, 4).cuda()
    optimizer, scaler = fb.optim.SGD(layer.parameters(), lr=0.1), fb.amp.GradScaler("cuda")
    before = layer.weight.detach().clone()

    with fb.autocast("cuda", dtype=fb.float16):
        made = layer(x.cuda())
        loss = made.softmax(1)[:, 0].sum()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()

    assert (made.dtype, loss.dtype, layer.weight.grad.dtype) == (fb.float16, fb.float32, fb.float32)
    assert not fb.equal(layer.weight, before)


@pytest.mark.parametrize(
    "name", ["Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop", "LBFGS"]
)
def test_optimizers_go_as_on_the_cpu(name: str, x: fb.Tensor) -> None:
    def train(x: fb.Tensor) -> fb.Tensor:
        weight = nn.Parameter(x.clone())
        optimizer = getattr(fb.optim, name)([weight])

        def closure() -> fb.Tensor:
            optimizer.zero_grad()
            loss = ((weight - 1) ** 2).sum()
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
        return weight.detach()

    alike(train, x, tolerance=1e-5)


def test_saving_pickling_and_copying(x: fb.Tensor) -> None:
    there, file = x.cuda(), io.BytesIO()
    fb.save({"whole": there, "turned": there.T}, file)

    for place, device in ((None, "cuda"), ("cpu", "cpu")):
        file.seek(0)
        found = fb.load(file, map_location=place)
        assert found["turned"].device.type == device
        assert fb.equal(found["turned"].cpu(), x.T)
    for copied in (pickle.loads(pickle.dumps(there)), copy.deepcopy(there)):
        assert copied.is_cuda
        assert fb.equal(copied, there)


def test_a_large_tensor_prints_its_edges() -> None:
    x = fb.arange(4000.0).reshape(40, 100)

    assert repr(x.cuda()) == repr(x)[:-1] + ", device='cuda:0')"
    assert repr(x.bfloat16().cuda()).startswith(repr(x.bfloat16())[:100])


def test_the_default_device() -> None:
    fb.set_default_device("cuda")
    try:
        assert fb.zeros(2).is_cuda
        assert nn.Linear(2, 2).weight.is_cuda
    finally:
        fb.set_default_device("cpu")


def test_streams_events_and_facts() -> None:
    start, end = fb.cuda.Event(enable_timing=True), fb.cuda.Event(enable_timing=True)
    start.record()
    with fb.cuda.stream(fb.cuda.Stream()):
        fb.ones(3, device="cuda").add_(1)
    end.record()
    fb.cuda.synchronize()

    assert start.elapsed_time(end) >= 0
    assert fb.cuda.get_device_capability() >= (7, 5)
    assert min(fb.cuda.mem_get_info()) > 0
