"""Batches split over devices. One device may be named twice, so the simulated one is enough."""

from __future__ import annotations

import threading
from collections import namedtuple

import pytest

import flambeau as fb
from flambeau import nn
from flambeau.nn import parallel
from flambeau_kernels.cuda import device
from flambeau_kernels.engine.machine_code import llvm

Pair = namedtuple("Pair", "x n")


@pytest.fixture
def cuda(monkeypatch):
    if fb.kernels.backend() == "numpy" or llvm.available() is not None:
        pytest.skip("nothing is compiled under this backend")
    monkeypatch.setenv("FLAMBEAU_CUDA_SIMULATOR", "1")
    device.find.cache_clear()
    yield "cuda"
    device.find.cache_clear()


def test_tensors_are_cut_and_other_objects_handed_out(cuda):
    x = fb.arange(10.0).reshape(5, 2)

    first, second = parallel.scatter((x, [x, 3], {"k": x, "s": "text"}, Pair(x, None), ()), [0, 0])

    assert [part[0].shape for part in (first, second)] == [(3, 2), (2, 2)]
    assert first[0].device.type == "cuda"
    assert fb.equal(fb.cat([first[0], second[0]]).cpu(), x)
    assert (first[1][1], second[2]["s"], type(first[3]), first[3].n, second[4]) == (3, "text", Pair, None, ())
    assert fb.equal(second[3].x.cpu(), x[3:])
    assert [part.shape for part in parallel.scatter(x, [0, 0], dim=1)] == [(5, 1), (5, 1)]
    assert len(parallel.scatter(x[:1], [0, 0])) == 1
    assert parallel.scatter(3, [0, 0]) == [3, 3]


def test_results_are_joined(cuda):
    parts = [{"a": (fb.ones(2, 3, device=cuda) * k, None), "b": Pair(fb.tensor([k], device=cuda), fb.ones(1, device=cuda))} for k in (1, 2)]

    made = parallel.gather(parts, 0)

    assert made["a"][0].tolist() == [[1.0] * 3] * 2 + [[2.0] * 3] * 2
    assert made["a"][1] is None
    assert (type(made["b"]), made["b"].x.tolist()) == (Pair, [1, 2])
    assert parallel.gather([part["a"][0] for part in parts], "cpu", dim=1).shape == (2, 6)
    with pytest.warns(UserWarning, match="all input tensors were scalars"):
        assert parallel.gather([fb.tensor(1.0, device=cuda), fb.tensor(2.0, device=cuda)], 0).tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="same number of keys"):
        parallel.gather([{"a": None}, {}], 0)


def test_the_cpu_is_no_target(cuda):
    layer = nn.Linear(2, 3)

    with pytest.raises(ValueError, match="Expected a non cpu device, but got: cpu"):
        parallel.scatter(fb.ones(2), ["cpu"])
    with pytest.raises(ValueError, match="Expected a non cpu device"):
        parallel.replicate(layer, ["cpu"])
    with pytest.raises(AssertionError, match="Broadcast function not implemented for CPU"):
        parallel.replicate(layer, [0])
    with pytest.raises(AssertionError, match="Gather function not implemented for CPU"):
        parallel.gather([fb.ones(2)], 0)
    assert parallel.replicate(layer, []) == []


def test_gradients_reach_the_module_through_its_copies(cuda):
    layer = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).to(cuda)
    layer[0].again = layer[0].weight                      # shared, so one copy
    first, second = parallel.replicate(layer, [0, 0])

    assert list(first.parameters()) == []
    assert first[0].again is first[0].weight is not layer[0].weight
    assert first[1].running_mean is not layer[1].running_mean
    (first[0](fb.ones(1, 2, device=cuda)).sum() + 2 * second[0](fb.ones(1, 2, device=cuda)).sum()).backward()
    assert layer[0].weight.grad.tolist() == [[3.0, 3.0]] * 3
    assert not parallel.replicate(layer, [0], detach=True)[0][0].weight.requires_grad


def test_modules_run_in_threads_and_their_errors_come_back():
    class Noted(nn.Module):
        def forward(self, x, factor=1):
            seen.append(threading.current_thread())
            if factor is None:
                raise ValueError("no factor")
            return x * factor

    seen: list[threading.Thread] = []
    modules, inputs = [Noted(), Noted()], [fb.ones(2), (fb.ones(2),)]
    assert [made.tolist() for made in parallel.parallel_apply(modules, inputs, [{}, {"factor": 2}])] == [[1.0, 1.0], [2.0, 2.0]]
    assert threading.main_thread() not in seen
    with fb.no_grad():
        made = parallel.parallel_apply(modules, [fb.ones(2, requires_grad=True)] * 2)
    assert not made[0].requires_grad
    with pytest.raises(ValueError, match="no factor") as caught:
        parallel.parallel_apply(modules, inputs, [{}, {"factor": None}])
    assert any("replica 1" in note for note in caught.value.__notes__)
    with pytest.raises(AssertionError, match="modules 2 is not equal to the number of inputs 1"):
        parallel.parallel_apply(modules, inputs[:1])


def test_a_batch_over_two_devices_has_the_gradients_of_the_whole(cuda):
    fb.manual_seed(0)
    layer, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).to(cuda), fb.randn(5, 4)
    want = layer(x.to(cuda))
    want.square().sum().backward()
    grads = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()

    wrapped = nn.DataParallel(layer, device_ids=[0, 0])
    made = wrapped(x)
    made.square().sum().backward()

    assert fb.allclose(made, want, atol=1e-6)
    assert all(fb.allclose(p.grad, g, atol=1e-5) for p, g in zip(layer.parameters(), grads, strict=True))
    assert fb.allclose(parallel.data_parallel(layer, x, [0, 0]), want, atol=1e-6)
    assert fb.allclose(parallel.data_parallel(layer, (), [0, 0], module_kwargs={"input": x}), want, atol=1e-6)


def test_a_module_elsewhere_is_refused(cuda):
    with pytest.raises(RuntimeError, match=r"parameters and buffers on device cuda:0.*found one of them on device: cpu"):
        nn.DataParallel(nn.Linear(2, 2), device_ids=[0, 0])(fb.ones(2, 2))
