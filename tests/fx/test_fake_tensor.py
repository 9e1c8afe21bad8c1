"""Fake tensors are as PyTorch's: shapes, strides, dtypes and devices without values; graphs are recorded with them."""

from __future__ import annotations

import contextlib
import copy
import importlib
import os
from typing import Any

import numpy as np
import pytest

import flambeau as fb
from comparing import disagreements
from flambeau._subclasses import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from flambeau._subclasses.fake_tensor import unset_fake_temporarily
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.fx.passes.fake_tensor_prop import FakeTensorProp
from flambeau.ops import _derive, _spec
from fx.programs import PROGRAMS
from fx.test_make_fx import PROGRAMS_OF_OPS, same
from ops.test_registry import arguments

_derive.load_all()
# FLAMBEAU_TEST_EVERY_OP=1 records the samples of the whole registry, else of a tenth of it.
EVERY = sorted((op for op in {*_spec.OPS.values()} if op.surface & _spec.FUNCTION), key=lambda op: op.qualified)
OPS = EVERY if os.environ.get("FLAMBEAU_TEST_EVERY_OP") else EVERY[::10]
TENSORS = {
    "input", "other", "A", "B", "mat1", "mat2", "vec", "vec1", "vec2", "tensor", "target", "weight", "end", "count", "prob", "x", "y",
}  # fmt: skip


def sample_of(op: Any) -> tuple[Any, ...] | None:
    """Arguments of a call of `op`; None where it takes others than tensors of float32 and defaults."""
    if op.kind in ("elementwise", "reduction"):
        return arguments(op, fb.float32)
    if not TENSORS.issuperset(name for name in op.positional if name not in op.defaults):
        return None
    args = tuple(op.defaults.get(name, numbers(3, 3, seed=i)) for i, name in enumerate(op.positional))
    try:
        op.function(*[a.clone() if isinstance(a, fb.Tensor) else a for a in args])
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, UserWarning):
        return None
    return args


def numbers(*shape: int, seed: int = 0) -> Any:
    return fb.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def test_operations_on_fake_tensors_are_as_pytorchs(oracle: Any) -> None:
    setting = "FakeTensorMode = torch._subclasses.FakeTensorMode; m = FakeTensorMode(); x = m.from_tensor(torch.ones(2, 3)); "
    lines = """
    x
    x + 1
    x.T.stride(), (x[:, 1:] @ x[:, 1:].T).stride()
    x.sum(0), x.max(1).values, x.argmax()
    x.device, x.is_meta, x.dtype, x.to(torch.float64)
    x.double().sum(), x > 0
    m.from_tensor(torch.ones(4, 4)[1]).storage_offset(), m.from_tensor(torch.ones(4, 4).t()).stride()
    x.to('meta'), x.cpu() is x
    m.from_tensor(torch.nn.Parameter(torch.ones(3))), isinstance(m.from_tensor(torch.nn.Parameter(torch.ones(3))), torch.nn.Parameter)
    m.from_tensor(torch.ones(3, requires_grad=True)).sum().requires_grad
    x.add_(1) is x, x.zero_(), x[0].fill_(2), x.clone()
    x.new_zeros(4), torch.zeros_like(x), torch.cat([x, x]), x.split(2, 1)
    x.item()
    x.sum().item()
    bool(x[0, 0] > 0)
    float(x.sum())
    x.numpy()
    x.tolist()
    x.nonzero()
    x[x > 0]
    x.masked_select(x > 0)
    torch.unique(x)
    torch.equal(x, x)
    x.allclose(x)
    x + torch.ones(2, 3)
    x + FakeTensorMode().from_tensor(torch.ones(3))
    x + m.from_tensor(torch.ones(3, device='meta'))
    x @ x
    """

    assert not disagreements(oracle, "\n".join(f"{setting}repr(({line.strip()}))" for line in lines.strip().splitlines()))


def test_tensors_made_in_the_mode_are_fake_as_pytorchs(oracle: Any) -> None:
    setting = "FakeTensorMode = torch._subclasses.FakeTensorMode; m = FakeTensorMode(); real = torch.ones(3); m.__enter__(); "
    lines = """
    torch.ones(3), torch.rand(2), torch.arange(4), torch.eye(2), torch.randperm(5)
    torch.ones(3, device='cuda'), torch.ones(3, device='meta')
    torch.ones(3, device='cuda') + torch.tensor(1.)
    torch.ones(3, device='cuda') + torch.ones(3)
    torch.tensor(3.0).item()
    torch.tensor([1., 2.]).sum().item()
    torch.rand(1).item()
    real + 1
    real + torch.ones(3)
    torch.nn.Linear(3, 4).weight
    torch.nn.Linear(3, 4)(torch.ones(2, 3)).shape
    torch.tensor([1., 2.]), torch.tensor([1, 2])
    """

    assert not disagreements(oracle, _guarded(setting, lines))


def _guarded(setting: str, lines: str) -> str:
    """The programs, each leaving the mode whatever happens."""
    one = "exec('''{}\\ntry: made = repr(({}))\\nfinally: m.__exit__(None, None, None)'''); made"
    return "\n".join(one.format(setting.replace("; ", "\\n").strip(), line.strip()) for line in lines.strip().splitlines())


def test_nothing_is_allocated_or_computed() -> None:
    with FakeTensorMode():
        model = fb.nn.Sequential(fb.nn.Linear(10**6, 10**6), fb.nn.ReLU(), fb.nn.Linear(10**6, 10))
        loss = fb.nn.functional.cross_entropy(model(fb.randn(10**5, 10**6)), fb.zeros(10**5, dtype=fb.int64))
        loss.backward()

    assert [tuple(p.grad.shape) for p in model.parameters()] == [tuple(p.shape) for p in model.parameters()]
    assert all(isinstance(p, FakeTensor) and isinstance(p, fb.nn.Parameter) for p in model.parameters())


def test_an_optimizer_steps_on_fake_parameters() -> None:
    with FakeTensorMode():
        model = fb.nn.Linear(3, 4)
        optimizer = fb.optim.Adam(model.parameters())
        model(fb.ones(2, 3)).sum().backward()
        optimizer.step()
        copied = copy.deepcopy(model)

    assert isinstance(optimizer.state[model.weight]["exp_avg"], fb.Tensor)
    assert isinstance(copied.weight, FakeTensor)
    assert copied.weight is not model.weight


def test_after_the_mode_tensors_are_real_again() -> None:
    with FakeTensorMode() as mode:
        with unset_fake_temporarily() as found:
            inside = fb.ones(2)
        assert found is mode
        assert type(fb.ones(2)) is FakeTensor
    with pytest.raises(ZeroDivisionError), FakeTensorMode():
        1 / 0  # noqa: B018  # leaving by an error is the test

    assert inside.tolist() == fb.ones(2).tolist() == [1.0, 1.0]


def test_written_data_are_known_no_more() -> None:
    with FakeTensorMode():
        x = fb.tensor(3.0)
        assert x.item() == 3.0
        x.add_(1)
        with pytest.raises(RuntimeError, match="_local_scalar_dense"):
            x.item()


@pytest.mark.parametrize("program", PROGRAMS_OF_OPS, ids=lambda f: f.__name__)
def test_graphs_recorded_with_fake_tensors_give_what_the_program_gives(program: Any) -> None:
    first, second = numbers(2, 3), numbers(2, 3, seed=1)
    gm = make_fx(program, tracing_mode="fake", _allow_non_fake_inputs=True)(first)

    for x in (first, second):
        same(gm(x.clone()), program(x.clone()))
    assert str(gm.graph) == str(make_fx(program)(first).graph)


@pytest.mark.parametrize("name", PROGRAMS)
def test_models_are_recorded_with_fake_tensors(name: str) -> None:
    make, shape = PROGRAMS[name]
    model = make(fb)
    if isinstance(model, fb.nn.Module):
        model.eval()
    gm = make_fx(model, tracing_mode="fake", _allow_non_fake_inputs=True)(numbers(*shape))

    same(gm(numbers(*shape, seed=1)), model(numbers(*shape, seed=1)), exactly=name != "recurrent")


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.qualified)
def test_samples_of_the_registry_recorded_with_fake_tensors_give_the_same(op: Any) -> None:
    args = sample_of(op)
    if args is None:
        pytest.skip("takes no tensors of float32 alone")
    tensors = [a for a in args if isinstance(a, fb.Tensor)]

    def program(*given: Any) -> Any:
        tensors = iter(given)
        return op.function(*(next(tensors) if isinstance(a, fb.Tensor) else a for a in args[: len(op.positional)]))

    fb.manual_seed(3)
    expected = program(*[t.clone() for t in tensors])
    try:
        gm = make_fx(program, tracing_mode="fake")(*tensors)
    except (DataDependentOutputException, DynamicOutputShapeException):
        return                                        # what depends on values cannot be recorded without them, and says so
    fb.manual_seed(3)
    same(gm(*[t.clone() for t in tensors]), expected)


def test_compositions_of_operators_with_several_results_are_recorded() -> None:
    a = numbers(3, 3) + 3 * fb.eye(3)
    for mode in ("real", "fake"):
        same(make_fx(lambda x: fb.inverse(x), tracing_mode=mode)(a)(a), fb.inverse(a))


def test_binomial_draws_of_meta_tensors_are_meta_tensors() -> None:
    made = fb.binomial(fb.ones(2, 1, device="meta"), fb.ones(3, device="meta"))

    assert (tuple(made.shape), made.dtype, made.is_meta) == ((2, 3), fb.float32, True)


def test_captured_tensors_are_refused_as_in_pytorch(oracle: Any) -> None:
    importlib.import_module("torch.fx.experimental.proxy_tensor")
    setting = "make_fx = torch.fx.experimental.proxy_tensor.make_fx; w = torch.ones(3); x = torch.arange(3.); "
    programs = """
    make_fx(lambda x: x * w, tracing_mode='fake')(x)
    make_fx(lambda x: x * w, tracing_mode='fake', _allow_non_fake_inputs=True)(x)(x)
    make_fx(lambda x: x * torch.tensor([1., 2., 3.]), tracing_mode='fake')(x)(x)
    [type(n.meta['val']).__name__ for n in make_fx(lambda x: x.sin(), tracing_mode='fake')(x).graph.nodes if n.op != 'output']
    """

    assert not disagreements(oracle, "\n".join(setting + line.strip() for line in programs.strip().splitlines()))


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_nodes_compute_is_told_without_computing(name: str) -> None:
    make, shape = PROGRAMS[name]
    model = make(fb)
    traced = fb.fx.symbolic_trace(model.eval() if isinstance(model, fb.nn.Module) else model)
    x = numbers(*shape)

    found = fb.utils._pytree.tree_leaves(FakeTensorProp(traced).propagate(x))
    expected = fb.utils._pytree.tree_leaves(traced(x))

    assert [(type(f), tuple(f.shape), f.stride(), f.dtype) for f in found] == [
        (FakeTensor, tuple(e.shape), e.stride(), e.dtype) for e in expected
    ]
    assert all("val" in n.meta for n in traced.graph.nodes)


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize(("name", "args"), [
    ("new_ones", ((2,),)), ("new_zeros", ((),)), ("new_full", ((2,), 1)), ("new_empty", ((2, 3),)), ("new_empty_strided", ((2,), (1,))),
    ("new_tensor", ([1.0, 2.0],)),
])  # fmt: skip
def test_methods_that_make_tensors_make_fake_ones(name, args, inside):
    mode = FakeTensorMode()
    x = mode.from_tensor(fb.ones(2, 3))

    with mode if inside else contextlib.nullcontext():
        made, real = getattr(x, name)(*args), getattr(fb.ones(2, 3), name)(*args)
        elsewhere = getattr(x, name)(*args, device="cuda:1")
    assert isinstance(made, FakeTensor)
    assert (made.device, made.dtype, made.shape) == (fb.device("cpu"), real.dtype, real.shape)
    assert (type(elsewhere), elsewhere.device) == (FakeTensor, fb.device("cuda:1"))


@pytest.mark.parametrize(
    "call",
    [lambda x: fb.unique(x), lambda x: fb.unique(x, return_inverse=True, return_counts=True),
     lambda x: fb.unique(x, dim=1, return_counts=True), lambda x: fb.unique_consecutive(x, return_inverse=True),
     lambda x: fb.unique_consecutive(x, dim=0)],
)  # fmt: skip
def test_distinct_elements_have_a_size_that_values_decide(call):
    class Net(fb.nn.Module):
        def forward(self, x):
            return call(x)

    def laid_out(made):
        return [(tuple(t.shape), t.stride(), t.dtype) for t in (made if isinstance(made, tuple) else (made,))]

    x = fb.tensor([[1.0, 1, 2], [1, 1, 2]])
    program = fb.export.export(Net(), (x,))

    for values in (x, fb.tensor([[3.0, 3, 3], [4, 5, 3]])):
        made, expected = program.module()(values), call(values)
        assert laid_out(made) == laid_out(expected)
        pairs = zip(made, expected, strict=True) if isinstance(made, tuple) else [(made, expected)]
        assert all(fb.equal(a, b) for a, b in pairs)
    shown = [n.meta["val"] for n in program.graph.nodes if "getitem" in n.name]
    assert any(isinstance(size, fb.SymInt) for t in shown for size in t.shape)


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_inside_transforms_tensors_are_where_their_values_would_be(mode):
    from flambeau.func import hessian, jvp, vmap

    where = []

    def noted(v):
        where.append(v.device.type)
        return v * fb.ones((), device=v.device)

    x = fb.arange(1.0, 5.0)
    make_fx(lambda x: (vmap(noted)(x), jvp(noted, (x,), (x,))), tracing_mode=mode)(x)
    gm = make_fx(hessian(lambda x: (x**3).sum()), tracing_mode=mode)(x)

    assert where == ["cpu", "cpu"]
    assert fb.equal(gm(x), (6 * x).diag())
