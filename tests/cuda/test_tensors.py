"""Tensors on device cuda: made, moved, viewed, indexed, computed with and differentiated, beside the same on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from beside import alike

import flambeau as fb

pytestmark = pytest.mark.usefixtures("xp")


@pytest.fixture
def x() -> fb.Tensor:
    return fb.arange(24.0).reshape(2, 3, 4) / 7 - 1


# -- memory ------------------------------------------------------------------------------------------------------------------


def test_there_is_a_device() -> None:
    assert fb.cuda.is_available()
    assert fb.cuda.device_count() >= 1
    assert fb.accelerator.current_accelerator() == fb.device("cuda")


@pytest.mark.parametrize(
    "dtype", [fb.float16, fb.bfloat16, fb.float32, fb.float64, fb.int8, fb.int64, fb.bool, fb.complex64]
)
def test_there_and_back(dtype: fb.dtype) -> None:
    x = fb.tensor([[0, 1, 2], [3, 4, 5]]).to(dtype)

    there = x.cuda()

    assert (there.device.type, there.dtype, there.is_cuda, x.is_cuda) == ("cuda", dtype, True, False)
    assert fb.equal(there.cpu(), x)
    assert there.cpu().device.type == "cpu"
    assert there.to("cuda") is there


def test_layouts_are_kept_on_the_way() -> None:
    x = fb.rand(2, 3, 4, 5).to(memory_format=fb.channels_last)

    assert x.cuda().stride() == x.stride() == x.cuda().clone().stride() == (x.cuda() + 1).stride()


@pytest.mark.parametrize(
    "make",
    [
        lambda d: fb.zeros(2, 3, device=d),
        lambda d: fb.ones(2, 3, dtype=fb.int32, device=d),
        lambda d: fb.full((2, 3), 2.5, device=d),
        lambda d: fb.arange(6, device=d),
        lambda d: fb.eye(3, device=d),
        lambda d: fb.tensor([[1, 2], [3, 4]], device=d),
        lambda d: fb.linspace(0, 1, 5, device=d),
        lambda d: fb.zeros(2, 3, device=d).new_ones(4),
        lambda d: fb.ones_like(fb.zeros(2, device=d)),
        lambda d: fb.full_like(fb.zeros(2, 2, device=d), 7),
        lambda d: fb.zeros(0, 3, device=d),
        lambda d: fb.ones(3, dtype=fb.bfloat16, device=d),
    ],
)
def test_creation(make: Any) -> None:
    made = make("cuda")

    assert made.device.type == "cuda"
    assert fb.equal(made.cpu(), make("cpu"))


def test_copy_crosses_devices(x: fb.Tensor) -> None:
    there, back = fb.zeros(2, 3, 4, device="cuda"), fb.zeros(2, 3, 4)

    there.copy_(x)
    back.copy_(there)
    back[0] = there[1]

    assert fb.equal(back[1], x[1])
    assert fb.equal(back[0], x[1])


def test_devices_do_not_mix(x: fb.Tensor) -> None:
    with pytest.raises(RuntimeError, match=r"same device.*cuda:0 and cpu"):
        x.cuda() + x
    with pytest.raises(RuntimeError, match="same device"):
        fb.cat([x.cuda(), x])
    with pytest.raises(TypeError, match=r"cuda:0 device type tensor to numpy"):
        x.cuda().numpy()

    assert fb.equal((x.cuda() + fb.tensor(2.0)).cpu(), x + 2)


def test_items_lists_and_text(x: fb.Tensor) -> None:
    there = x.cuda()

    assert there[1, 2, 3].item() == x[1, 2, 3].item()
    assert there.tolist() == x.tolist()
    assert float(there[0, 0, 0]) == float(x[0, 0, 0])
    assert repr(there) == repr(x)[:-1] + ", device='cuda:0')"


def test_what_is_not_built_says_so(x: fb.Tensor) -> None:
    with pytest.raises(NotImplementedError, match=r"linalg.svd: not built for device cuda yet.*\.cpu\(\)"):
        fb.linalg.svd(x.cuda())


# -- views -------------------------------------------------------------------------------------------------------------------

VIEWS = {
    "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "view": lambda x: x.view(6, 4),
    "slice": lambda x: x[:, 1:, ::2],
    "select": lambda x: x[1, 0],
    "none": lambda x: x[:, None],
    "unfold": lambda x: x.unfold(2, 2, 1),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "expand": lambda x: x[:, :1].expand(2, 5, 4),
    "squeeze": lambda x: x[:1].squeeze(0),
    "as_strided": lambda x: x.as_strided((3, 2), (4, 1), 2),
    "view_dtype": lambda x: x.view(fb.int32),
    "real": lambda x: fb.complex(x, x).real,
    "reshape": lambda x: x.transpose(0, 1).reshape(3, 8),
    "flatten": lambda x: x.flatten(1),
    "unbind": lambda x: x.unbind(1),
    "split": lambda x: x.split([1, 2], 1),
    "chunk": lambda x: x.chunk(2, 2),
    "movedim": lambda x: x.movedim(0, -1),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str, x: fb.Tensor) -> None:
    alike(VIEWS[name], x)


@pytest.mark.parametrize("name", ["transpose", "slice", "select", "diagonal", "as_strided", "view", "unfold"])
def test_writes_to_views_reach_the_base(name: str, x: fb.Tensor) -> None:
    def write(x: fb.Tensor) -> fb.Tensor:
        x = x.clone()
        part = VIEWS[name](x) if name != "unfold" else x.unfold(2, 2, 2)
        part.mul_(2).add_(1)
        return x

    alike(write, x)


def test_views_share_memory_and_storage(x: fb.Tensor) -> None:
    there = x.cuda()
    part = there[1, 1:]

    assert part.data_ptr() == there.data_ptr() + part.storage_offset() * 4
    assert part.storage_offset() == 16
    assert part._base is there


# -- indexing ----------------------------------------------------------------------------------------------------------------

PICKS = {
    "tensor": lambda x: x[:, fb.tensor([2, 0, 0], device=x.device)],
    "negative": lambda x: x[fb.tensor([-1], device=x.device)],
    "host index": lambda x: x[fb.tensor([1, 0])],
    "list": lambda x: x[[1, 0], [0, 2]],
    "mask": lambda x: x[x > 0.5],
    "row mask": lambda x: x[:, fb.tensor([True, False, True], device=x.device)],
    "mixed": lambda x: x[0, :, fb.tensor([3, 1], device=x.device)],
    "index_select": lambda x: x.index_select(1, fb.tensor([2, 2], device=x.device)),
    "nonzero": lambda x: (x > 0).nonzero(),
    "gather": lambda x: x.gather(2, (x.abs() * 1.5).long()),
    "masked_select": lambda x: x.masked_select(x < 0),
    "take": lambda x: x.take(fb.tensor([5, 23], device=x.device)),
}


@pytest.mark.parametrize("name", PICKS)
def test_picking(name: str, x: fb.Tensor) -> None:
    alike(PICKS[name], x)


PUTS = {
    "number": lambda x: x.__setitem__((0, slice(1, 3)), 5),
    "row": lambda x: x.__setitem__(1, x[0] * 2),
    "mask": lambda x: x.__setitem__(x > 1, -1),
    "index": lambda x: x.__setitem__((slice(None), fb.tensor([0, 2], device=x.device)), x[:, :2] * 10),
    "accumulate": lambda x: x.index_put_(
        (fb.tensor([0, 0], device=x.device),), fb.ones(2, 3, 4, device=x.device), accumulate=True
    ),
    "index_add": lambda x: x.index_add_(2, fb.tensor([1, 1, 0], device=x.device), x[..., :3] + 1),
    "index_copy": lambda x: x.index_copy_(1, fb.tensor([2, 0], device=x.device), x[:, :2] + 1),
    "index_fill": lambda x: x.index_fill_(2, fb.tensor([0, 3], device=x.device), 9),
    "masked_fill": lambda x: x.masked_fill_(x < 0, 0.25),
    "scatter": lambda x: x.scatter_(1, fb.zeros(2, 1, 4, dtype=fb.int64, device=x.device), 3.0),
    "scatter_add": lambda x: x.scatter_add_(2, fb.full((2, 3, 3), 1, device=x.device), x + 2),
    "amax": lambda x: x.scatter_reduce_(0, fb.zeros(2, 3, 4, dtype=fb.int64, device=x.device), x * 3, "amax"),
    "zero": lambda x: x.zero_(),
}


@pytest.mark.parametrize("name", PUTS)
def test_putting(name: str, x: fb.Tensor) -> None:
    def put(x: fb.Tensor) -> fb.Tensor:
        x = x.clone()
        PUTS[name](x)
        return x

    alike(put, x)


# -- operations --------------------------------------------------------------------------------------------------------------

OPERATIONS = {
    "arithmetic": lambda x: (x * 2 + 1) / (x - 3) - x**2,
    "compare": lambda x: x > x.flip(0),
    "where": lambda x: fb.where(x > 0, x, -1.0),
    "exp": lambda x: x.exp() + x.sin() * x.tanh(),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "half": lambda x: x.half() * 3,
    "bfloat16": lambda x: x.bfloat16() + 1,
    "round": lambda x: x.round() + x.floor() % 3,
    "integers": lambda x: (x * 9).long() // 2,
    "complex": lambda x: fb.complex(x, x) * 2j,
    "sum": lambda x: x.sum(),
    "sum dim": lambda x: x.sum(1),
    "mean": lambda x: x.mean((0, 2), True),
    "var": lambda x: x.var(2),
    "std": lambda x: x.std(),
    "max": lambda x: x.max(1),
    "min": lambda x: x.min(2, keepdim=True),
    "argmax": lambda x: x.argmax(),
    "amax": lambda x: x.amax((0, 1)),
    "any": lambda x: (x > 1).any(1),
    "prod": lambda x: x.prod(2),
    "norm": lambda x: x.norm(),
    "norm 3": lambda x: fb.linalg.vector_norm(x, 3, 1),
    "logsumexp": lambda x: x.logsumexp(1),
    "count": lambda x: (x > 0).count_nonzero(),
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(2),
    "nansum": lambda x: x.log().nansum(),
    "mm": lambda x: x[0] @ x[1].T,
    "bmm": lambda x: x @ x.mT,
    "mv": lambda x: x[0] @ x[0, 0],
    "dot": lambda x: x[0, 0].dot(x[1, 1]),
    "addmm": lambda x: fb.addmm(x[0, :, :3], x[0], x[1].T),
    "einsum": lambda x: fb.einsum("bij,bkj->bik", x, x),
    "half mm": lambda x: (x[0].bfloat16() @ x[1].bfloat16().T).float(),
    "cat": lambda x: fb.cat([x, x * 2], 1),
    "stack": lambda x: fb.stack([x, -x], -1),
    "flip": lambda x: x.flip(0, 2),
    "roll": lambda x: x.roll((1, -1), (0, 2)),
    "pad": lambda x: fb.nn.functional.pad(x, (1, 2, 0, 1), value=3.0),
    "tril": lambda x: x.tril(),
    "triu": lambda x: x.triu(1),
    "repeat": lambda x: x.repeat(1, 2, 1),
    "sort": lambda x: (x * x).sort(2, descending=True),
    "topk": lambda x: x.topk(2, 1),
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(2),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name: str, x: fb.Tensor) -> None:
    alike(OPERATIONS[name], x, tolerance=1e-5)


def test_an_out_argument_and_in_place_forms(x: fb.Tensor) -> None:
    there, out = x.cuda(), fb.empty(2, 3, 4, device="cuda")

    fb.add(there, 1, out=out)
    there.mul_(2).sub_(out)

    assert fb.allclose(out.cpu(), x + 1)
    assert fb.allclose(there.cpu(), x - 1)


# -- gradients ---------------------------------------------------------------------------------------------------------------

F = fb.nn.functional
LOSSES = {
    "elementwise": lambda x, w: ((x * w).sigmoid() + x.relu() ** 2 / (1 + w.exp())).sum(),
    "broadcast": lambda x, w: (x * w[0, 0]).sum() + (x + w[:, :1]).sum(),
    "views": lambda x, w: (x.transpose(0, 1)[1:] * w[:, 0, None].reshape(1, 2, 4)).sum(),
    "mm": lambda x, w: (x @ w.mT).pow(2).sum(),
    "index": lambda x, w: (x[:, fb.tensor([0, 0, 2], device=x.device)] * w[x > 0].sum()).sum(),
    "softmax": lambda x, w: (x.softmax(1) * w.log_softmax(2)).sum(),
    "max": lambda x, w: (x.max(1).values * w.amax(1)).sum(),
    "cat": lambda x, w: (fb.cat([x, w], 2) ** 2).mean(),
    "norm": lambda x, w: x.norm() * w.std(),
    "layer_norm": lambda x, w: (F.layer_norm(x, (4,), w[0, 0], w[0, 1]) ** 3).sum(),
    "batch_norm": lambda x, w: (F.batch_norm(x, None, None, w[0, :, 0], w[1, :, 0], True) ** 3).sum(),
    "group_norm": lambda x, w: (F.group_norm(x, 3, w[0, :, 0]) ** 3).sum(),
    "conv1d": lambda x, w: (F.conv1d(x, w, padding=1, stride=2) ** 2).sum(),
    "conv2d": lambda x, w: (F.conv2d(x[None], w.reshape(3, 2, 2, 2), w[0, :, 0], padding=1) ** 2).sum(),
    "transposed": lambda x, w: (F.conv_transpose2d(x[None], w.reshape(2, 3, 2, 2), stride=2) ** 2).sum(),
    "max_pool": lambda x, w: (F.max_pool2d(x[None] * w, 2, 1) ** 2).sum(),
    "avg_pool": lambda x, w: (F.avg_pool2d(x[None] * w, (3, 2), 1, (1, 1)) ** 2).sum(),
    "adaptive": lambda x, w: (F.adaptive_avg_pool2d(x[None] * w, (1, 2)) ** 2).sum(),
    "embedding": lambda x, w: (
        F.embedding(fb.tensor([[0, 1], [1, 1]], device=x.device), x[0] * w[0]) ** 2
    ).sum(),
    "cross_entropy": lambda x, w: F.cross_entropy(
        x.reshape(6, 4) * w.reshape(6, 4),
        fb.tensor([0, 1, 2, 3, -100, 1], device=x.device),
        w[0, 0].exp().detach(),
    ),
    "mse": lambda x, w: F.mse_loss(x, w) + F.l1_loss(x, w) + F.smooth_l1_loss(x, w),
    "prod": lambda x, w: (x * w).prod(2).sum(),
    "cumsum": lambda x, w: (x.cumsum(1) * w).sum(),
    "gather": lambda x, w: (x.gather(1, fb.zeros(2, 1, 4, dtype=fb.int64, device=x.device)) * w).sum(),
    "bce": lambda x, w: F.binary_cross_entropy_with_logits(x, w.sigmoid()),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients(name: str, x: fb.Tensor) -> None:
    def slopes(x: fb.Tensor, w: fb.Tensor) -> list[fb.Tensor]:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        LOSSES[name](x, w).backward()
        return [x.grad, w.grad]  # type: ignore[list-item]

    alike(slopes, x, (x * 1.7).cos(), tolerance=2e-5)


def test_gradients_of_gradients(x: fb.Tensor) -> None:
    def curvature(x: fb.Tensor) -> fb.Tensor:
        x = x.detach().requires_grad_()
        (first,) = fb.autograd.grad((x.sin() * x.softmax(1)).sum(), x, create_graph=True)
        return fb.autograd.grad((first**2).sum(), x)[0]

    alike(curvature, x, tolerance=1e-5)


def test_gradients_cross_devices(x: fb.Tensor) -> None:
    leaf = x.clone().requires_grad_()
    (leaf.cuda() ** 2).cpu().sum().backward()

    assert leaf.grad is not None
    assert leaf.grad.device.type == "cpu"
    assert fb.allclose(leaf.grad, 2 * x)


# -- training ----------------------------------------------------------------------------------------------------------------


def mlp() -> tuple[fb.nn.Module, fb.Tensor, fb.Tensor]:
    nn = fb.nn
    layers = (
        nn.Linear(8, 16),
        nn.LayerNorm(16),
        nn.GELU(),
        nn.Linear(16, 16),
        nn.BatchNorm1d(16),
        nn.Tanh(),
        nn.Linear(16, 4),
    )
    return nn.Sequential(*layers), fb.randn(32, 8), fb.randint(0, 4, (32,))


def cnn() -> tuple[fb.nn.Module, fb.Tensor, fb.Tensor]:
    nn = fb.nn
    layers = (
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 8, 3, stride=2, groups=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip
    return nn.Sequential(*layers), fb.randn(6, 1, 12, 12), fb.randint(0, 4, (6,))


OPTIMIZERS = {
    "sgd": lambda p: fb.optim.SGD(p, lr=0.1),
    "momentum": lambda p: fb.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adam": lambda p: fb.optim.Adam(p, lr=1e-2),
    "adamw": lambda p: fb.optim.AdamW(p, lr=1e-2, weight_decay=0.1),
    "rmsprop": lambda p: fb.optim.RMSprop(p, lr=1e-3),
}


def losses(device: str, network: Any, optimizer: Any, steps: int = 5) -> list[float]:
    fb.manual_seed(0)
    model, inputs, classes = network()
    model, inputs, classes = model.to(device), inputs.to(device), classes.to(device)
    optimizer = optimizer(model.parameters())
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), classes)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    assert all(p.device.type == device and p.grad.device.type == device for p in model.parameters())
    return found


@pytest.mark.parametrize("network", [mlp, cnn])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_as_on_the_cpu(network: Any, name: str) -> None:
    expected = losses("cpu", network, OPTIMIZERS[name])
    made = losses("cuda", network, OPTIMIZERS[name])

    assert np.allclose(made, expected, rtol=1e-5)
    assert made[-1] < made[0]


def test_a_model_goes_there_and_back_with_its_state() -> None:
    model = mlp()[0].cuda()
    state = {name: value.cpu() for name, value in model.state_dict().items()}
    fresh = mlp()[0]
    fresh.load_state_dict(state)

    assert all(fb.equal(a, b.cpu()) for a, b in zip(fresh.parameters(), model.parameters(), strict=True))


# -- calls that were met before ------------------------------------------------------------------------------------------------


def test_operands_that_were_met_before_are_not_checked_again(x: fb.Tensor, monkeypatch: Any) -> None:
    add = fb.add.flambeau_op  # pyright: ignore[reportFunctionMemberAccess]  # generated functions have it
    there = x.cuda()
    expected = there + there
    with monkeypatch.context() as patch:
        patch.setattr(add, "prepare", lambda args: pytest.fail("checked again"))

        again = there + there

    assert fb.equal(again.cpu(), expected.cpu())
    for _ in range(2):
        assert (there + there[0]).shape == (2, 3, 4)
        assert (there + 1).dtype is fb.float32
        assert (there.long() + 1).dtype is fb.int64
        assert (there.long() + 1.5).dtype is fb.float32
        assert fb.equal(fb.add(there, there, alpha=2).cpu(), x * 3)
        assert fb.equal(fb.add(there, there, alpha=3).cpu(), x * 4)
        with pytest.raises(RuntimeError, match="floating point number"):
            fb.add(there.long(), there.long(), alpha=0.5)
        with pytest.raises(RuntimeError, match=r"size|shape|broadcast"):
            _ = there + there[:, :2]
        with pytest.raises(RuntimeError, match="same device"):
            _ = there + x
    leaf = there.clone().requires_grad_()
    (leaf + there).sum().backward()
    assert fb.equal(leaf.grad.cpu(), fb.ones(2, 3, 4))  # pyright: ignore[reportOptionalMemberAccess]  # it has one
    with fb.no_grad():
        assert (leaf + there).grad_fn is None
    assert (leaf + there).grad_fn is not None
