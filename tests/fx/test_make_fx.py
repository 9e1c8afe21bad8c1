"""`make_fx` records the ops that run, derivatives among them; what it records gives the same for other inputs."""

from __future__ import annotations

import importlib
import pickle

import numpy as np
import pytest

import flambeau as fb
from comparing import disagreements
from flambeau import fx
from flambeau.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from flambeau.ops import _derive, _spec
from flambeau.tensor import wrap
from fx.programs import PROGRAMS
from ops.test_registry import arguments

F = fb.nn.functional
_derive.load_all()
OPS = [op for op in dict.fromkeys(_spec.OPS.values()) if op.kind in ("elementwise", "reduction") and op.surface & _spec.FUNCTION][::9]


def same(found, expected, exactly=True):
    """Equal to the bit; or nearly, where plain calls are answered by one kernel for what is recorded as several ops."""
    found, expected = fb.utils._pytree.tree_leaves(found), fb.utils._pytree.tree_leaves(expected)
    assert len(found) == len(expected)
    for f, e in zip(found, expected, strict=True):
        if isinstance(e, fb.Tensor):
            assert (f.dtype, tuple(f.shape)) == (e.dtype, tuple(e.shape))
            if exactly:
                assert f.detach().numpy().tobytes() == e.detach().numpy().tobytes()
            else:
                np.testing.assert_allclose(f.detach().numpy(), e.detach().numpy(), rtol=1e-5, atol=1e-6)
        else:
            assert f == e


def grad_of_tanh(x):
    x = x.detach().requires_grad_()
    return fb.autograd.grad((fb.tanh(x) * x).sum(), x)


def in_place(x):
    y = x + 1
    part = y[0]
    part.mul_(3)
    y[:, 1] = 7.0
    y.view(-1)[0] = x.sum()
    out = x.new_zeros(x.shape)
    out.add_(y)
    out[x > 0] = -1.0
    return out, y, part


def made_inside(x):
    grid = fb.arange(3.0) + fb.ones(3) * fb.tensor([1.0, 2.0, 3.0])
    scratch = fb.zeros_like(x)
    scratch += x
    scratch.fill_(2.0)
    counter = fb.tensor([0.0])
    counter.add_(x.sum())
    return x * grid + fb.eye(2, 3), scratch + fb.full((3,), 2.0), counter, fb.empty(2).copy_(x[:, 0])


def wide(x):
    q, r = fb.linalg.qr(x @ x.T + fb.eye(2))
    return (fb.softmax(x, -1), F.layer_norm(x, (3,)), fb.topk(x, 2), x.sort(descending=True), fb.einsum("ij,kj->ik", x, x), q @ r,
            F.pad(x, (1, 1)), x.std(), fb.cat([x, x]), x.chunk(3, dim=1), F.gelu(x), fb.where(x > 0, x, -x), x.cumsum(0),
            fb.cdist(x, x), x.to(fb.float64), x.T, x.unsqueeze(0).expand(2, 2, 3), F.one_hot(fb.argmax(x, 1), 3))  # fmt: skip


def second_derivative(x):
    return fb.func.grad(lambda x: fb.func.grad(lambda y: (y**3).sum())(x).sum())(x)


def batched(x):
    return fb.vmap(lambda row: fb.dot(row, row) + row.sum())(x)


captured = fb.tensor([1.0, 2.0, 3.0])


def captures(x):
    return x * captured, captured + 1


PROGRAMS_OF_OPS = [grad_of_tanh, in_place, made_inside, wide, second_derivative, batched, captures]


@pytest.mark.parametrize("program", PROGRAMS_OF_OPS, ids=lambda f: f.__name__)
def test_what_is_recorded_gives_the_same_for_other_inputs(program):
    first, second = (fb.from_numpy(np.random.default_rng(i).normal(size=(2, 3)).astype(np.float32)) for i in range(2))
    gm = make_fx(program)(first)
    gm.graph.lint()

    for x in (first, second, first):
        same(gm(x.clone()), program(x.clone()))
    same(pickle.loads(pickle.dumps(gm))(second.clone()), program(second.clone()))
    assert get_proxy_mode() is None


@pytest.mark.parametrize("name", PROGRAMS)
def test_models_are_recorded_with_their_parameters(name):
    make, shape = PROGRAMS[name]
    model = make(fb)
    if isinstance(model, fb.nn.Module):
        model.eval()
    first, second = (fb.from_numpy(np.random.default_rng(i).normal(size=shape).astype(np.float32)) for i in range(2))
    gm = make_fx(model)(first)

    same(gm(second), model(second), exactly=name != "recurrent")
    assert not [n for n in gm.graph.nodes if n.op == "call_module"]
    if isinstance(model, fb.nn.Module) and list(model.parameters()):
        parameter = next(model.parameters())
        assert any(parameter is p for p in gm.parameters())


def test_random_draws_are_drawn_anew():
    def program(x):
        return x + fb.rand(3) + F.dropout(x, 0.5) + fb.randn_like(x) + x.clone().uniform_()

    x = fb.ones(2, 3)
    gm = make_fx(program)(x)
    fb.manual_seed(5)
    found = gm(x)
    fb.manual_seed(5)

    same(found, program(x))


def test_a_training_step_is_recorded():
    def step(w, x, y):
        w = w.detach().requires_grad_()
        loss = F.mse_loss(fb.relu(x @ w), y)
        (grad,) = fb.autograd.grad(loss, w)
        return loss.detach(), w.detach() - 0.1 * grad

    rng = np.random.default_rng(0)
    w, x, y = (fb.from_numpy(rng.normal(size=s).astype(np.float32)) for s in ((3, 2), (4, 3), (4, 2)))
    gm = make_fx(step)(w, x, y)
    ours, plain = w, w
    for _ in range(5):
        (loss, ours), (expected, plain) = gm(ours, x, y), step(plain, x, y)
        same((loss, ours), (expected, plain), exactly=False)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.qualified)
def test_ops_of_the_registry_are_recorded(op):
    args = arguments(op, fb.float32)
    if args is None:
        pytest.skip("not defined for float32")
    tensors = [a for a in args if isinstance(a, fb.Tensor)]

    def program(*given):
        given = iter(given)
        return op.function(*(next(given) if isinstance(a, fb.Tensor) else a for a in args[: len(op.positional)]))

    gm = make_fx(program)(*tensors)
    others = [a for a in arguments(op, fb.float32, seed=1) if isinstance(a, fb.Tensor)]

    same(gm(*others), program(*others))


def test_containers_numbers_and_modules_are_taken():
    gm = make_fx(lambda d, n: {"out": d["a"] * n + d["b"][0]})({"a": fb.ones(2), "b": [fb.ones(2)]}, 3)

    same(gm({"a": fb.ones(2) * 2, "b": [fb.ones(2)]}, 3), {"out": fb.ones(2) * 7})
    assert "tree_flatten_spec" in gm.code


def test_values_that_are_asked_for_are_refused():
    for program in (lambda x: x if x.sum() > 0 else -x, lambda x: x.sum().item(), lambda x: float(x.sum()), lambda x: x.tolist(),
                    lambda x: x.numpy(), lambda x: range(int(x.sum()))):  # fmt: skip
        with pytest.raises(RuntimeError, match="trying to get value out of a tracing tensor"):
            make_fx(program)(fb.ones(2))
    assert fb.ones(1).item() == 1


@pytest.mark.parametrize("write", [lambda x: fb.zero_(x.clone()), lambda x: fb.fill_(x.clone(), 2), lambda x: fb.fill_(x.clone(), x.sum())])
def test_functions_that_fill_a_tensor_are_recorded(write):
    recorded = make_fx(write)(fb.ones(2, 3))
    x = fb.randn(2, 3)

    same(recorded(x), write(x))


def test_what_cannot_be_recorded_is_refused():
    def out_of_sight(x):
        return x + wrap(np.array([1.0, 2.0], np.float32))

    with pytest.raises(NotImplementedError, match="made by what cannot be recorded"):
        make_fx(out_of_sight)(fb.ones(2))
    with pytest.raises(AssertionError, match="tracing_mode must be real/fake/symbolic, got bad"):
        make_fx(lambda x: x, tracing_mode="bad")


def test_nodes_say_what_they_compute():
    gm = make_fx(lambda x: fb.relu(x).sum())(fb.ones(2, 3))

    assert [n.name for n in gm.graph.nodes] == ["x_1", "relu", "sum_1", "output"]
    assert "torch.ops.aten.relu.default" in str(gm.graph)
    assert 'relu: "f32[2, 3]"' in gm.print_readable(print_output=False)
    assert fx.Interpreter(gm).run(fb.ones(2, 3)) == 6


def test_resampling_and_padding_are_recorded_as_pytorchs_operators(oracle):
    importlib.import_module("torch.fx.experimental.proxy_tensor")
    setting = (
        "make_fx = torch.fx.experimental.proxy_tensor.make_fx; F = torch.nn.functional; x = torch.rand(2, 3, 6, 5); "
        "seen = lambda f, x: [(str(n.target), list(n.args[1:])) for n in make_fx(f)(x).graph.nodes if n.op == 'call_function']; "
    )
    lines = """
    seen(lambda x: F.interpolate(x, scale_factor=2), x), seen(lambda x: F.interpolate(x[0], scale_factor=3), x)
    seen(lambda x: F.interpolate(x, size=(7, 8), mode='bilinear', antialias=True), x)
    seen(lambda x: F.interpolate(x, size=7, mode='bicubic', align_corners=True), x)
    seen(lambda x: F.interpolate(x, scale_factor=(1.5, 2.5), recompute_scale_factor=True, mode='nearest-exact'), x)
    seen(lambda x: F.interpolate(x, scale_factor=2.5, mode='linear'), x[0]), seen(lambda x: F.interpolate(x, 3, mode='trilinear'), x[None])
    seen(lambda x: F.pad(x, (1, 1, 2, 1), mode='reflect'), x), seen(lambda x: F.pad(x, (1, 2), mode='replicate'), x[0])
    torch.ops.aten.upsample_bilinear2d.vec(x, None, False, [2.0, 2.0]).shape, torch.ops.aten.upsample_nearest1d.default(x[0], [7]).shape
    """

    assert not disagreements(oracle, "\n".join(setting + line.strip() for line in lines.strip().splitlines()))


def test_repetitions_by_a_tensor_are_recorded_as_pytorchs_operators(oracle):
    importlib.import_module("torch.fx.experimental.proxy_tensor")
    setting = (
        "make_fx = torch.fx.experimental.proxy_tensor.make_fx; x, r = torch.ones(3), torch.tensor([1, 2, 0]); "
        "seen = lambda f: [n.name for n in make_fx(f)(x, r).graph.nodes if 'repeat' in n.name or 'index' in n.name]; "
    )
    lines = """
    seen(lambda x, r: torch.repeat_interleave(r)), seen(lambda x, r: x.repeat_interleave(r)), seen(lambda x, r: x.repeat_interleave(r, 0))
    """

    assert not disagreements(oracle, setting + lines.strip())


@pytest.mark.parametrize("tracing", ["real", "fake", "symbolic"])
def test_functions_that_make_and_fill_tensors_are_recorded_as_pytorchs_operators(oracle, tracing):
    importlib.import_module("torch.fx.experimental.proxy_tensor")
    setting = (
        "make_fx = torch.fx.experimental.proxy_tensor.make_fx; x = torch.ones(2, 3); "
        f"seen = lambda f: make_fx(f, tracing_mode={tracing!r})(x).code.strip(); "
    )
    lines = """
    seen(lambda x: x + torch.ones_like(x) + torch.zeros(3) + torch.full((3,), 2.) + torch.arange(3))
    seen(lambda x: x + torch.arange(1, 7, 2) + torch.eye(3)[0])
    seen(lambda x: x + torch.linspace(0, 1, 3) + torch.empty(3).fill_(1) + torch.eye(2, 3) + torch.scalar_tensor(3.))
    seen(lambda x: x.new_zeros(3) + x.new_ones(2, 3, device='cpu'))
    seen(lambda x: x.new_full((3,), 1, dtype=torch.float64) + x.new_empty((3,)))
    seen(lambda x: torch.rand(3) + torch.randn_like(x) + torch.randint(0, 3, (3,)) + torch.randint(5, (3,)) + torch.rand_like(x))
    seen(lambda x: torch.randperm(3) + x + torch.normal(0., 1., (3,)) + torch.full_like(x, 2) + torch.zeros_like(x, dtype=torch.int32))
    seen(lambda x: torch.zeros(2, 3, dtype=torch.float64, device='cpu').fill_(3).zero_().normal_().uniform_().bernoulli_(0.3).copy_(x))
    seen(lambda x: torch.empty(2, 3).random_().exponential_().log_normal_().cauchy_().geometric_(0.5))
    seen(lambda x: x + torch.tensor([1., 2., 3.]))
    """

    assert not disagreements(oracle, "\n".join(setting + line.strip() for line in lines.strip().splitlines()))


def test_repetitions_are_recorded_for_other_numbers():
    graph = make_fx(lambda x, r: x.repeat_interleave(r))(fb.tensor([1.0, 2.0]), fb.tensor([1, 2]))

    assert graph(fb.tensor([5.0, 6.0]), fb.tensor([2, 1])).tolist() == [5.0, 5.0, 6.0]


def test_gradients_of_views_that_share_elements_are_recorded():
    def slope(x, weights):
        return fb.autograd.grad((x.as_strided((3, 4), (1, 2)) * weights).sum(), x)

    x, weights = fb.randn(30, requires_grad=True), fb.arange(12.0).reshape(3, 4)

    same(make_fx(slope)(x, weights)(x, weights), slope(x, weights))


def test_running_statistics_that_an_operator_writes_are_recorded():
    def f(x, mean, var):
        fb.batch_norm(x, None, None, mean, var, True, 0.1, 1e-5, False)
        return fb.native_batch_norm(x, None, None, mean, var, True, 0.1, 1e-5)[0]

    x = fb.randn(5, 4, requires_grad=True)
    gm = make_fx(f)(x, fb.zeros(4), fb.ones(4))
    mean, var, expected_mean, expected_var = fb.zeros(4), fb.ones(4), fb.zeros(4), fb.ones(4)

    gm(x, mean, var)
    f(x, expected_mean, expected_var)

    assert mean.equal(expected_mean)
    assert var.equal(expected_var)


def test_sparse_tensors_are_recorded_as_they_are():
    x = fb.eye(3).to_sparse_csr()
    a, b = fb.arange(6.0).reshape(3, 2), fb.arange(6.0).reshape(2, 3)
    recorded = make_fx(lambda x, a, b: fb.sparse.sampled_addmm(x, a, b))(x, a, b)
    assert fb.equal(recorded(x, b.t(), a.t()).to_dense(), fb.sparse.sampled_addmm(x, b.t(), a.t()).to_dense())
    there_and_back = make_fx(lambda x: (x.to_sparse() * 2).to_dense())(fb.eye(3))
    assert fb.equal(there_and_back(a), 2 * a)
    sparse = next(n for n in there_and_back.graph.nodes if "to_sparse" in n.name)
    assert sparse.meta["tensor_meta"].stride == ()    # there are none


def test_quantized_values_are_described():
    scales, zeros = fb.tensor([0.5, 0.25]), fb.tensor([0, 1])

    class Both(fb.nn.Module):
        def forward(self, x):
            return fb.quantize_per_tensor(x, 0.5, 3, fb.quint8), fb.quantize_per_channel(x, scales, zeros, 0, fb.qint8)

    module = fb.fx.symbolic_trace(Both())
    fb.fx.passes.shape_prop.ShapeProp(module).propagate(fb.ones(2, 3))
    one, many = (n.meta["tensor_meta"] for n in module.graph.nodes if n.op == "call_function")
    assert one.is_quantized
    assert one.qparams == {"qscheme": fb.per_tensor_affine, "scale": 0.5, "zero_point": 3}
    assert many.qparams == {"qscheme": fb.per_channel_affine, "scale": [0.5, 0.25], "zero_point": [0, 1], "axis": 0}


@pytest.mark.parametrize("f", [lambda x: fb.nn.functional.max_pool2d(x, 2), lambda x: fb.nn.functional.interpolate(x, scale_factor=2.0)])
def test_recorded_arguments_are_plain_tuples(f):
    x = fb.randn(1, 2, 6, 6, requires_grad=True)
    gm = make_fx(f)(x)

    assert fb.equal(gm(x), f(x))
    assert not [a for n in gm.graph.nodes for a in n.args if isinstance(a, tuple) and type(a) is not tuple and not hasattr(a, "_fields")]
    assert fb.equal(make_fx(f, tracing_mode="symbolic")(x)(x), f(x))


@pytest.mark.parametrize("f", [
    lambda x, y: x * (1 / y), lambda x, y: x * (2 - y), lambda x, y: fb.where(x > 0, y, 1), lambda x, y: fb.lerp(x, y, 0.5),
    lambda x, y: fb.nn.functional.pad(y, (1, 1)),
], ids=["reflected division", "reflected difference", "where", "lerp", "composition"])  # fmt: skip
def test_a_tensor_that_nothing_recorded_has_made_is_not_called_a_wrong_argument(f):
    with pytest.raises(NotImplementedError, match=r"a tensor, of shape \(2,\), was made by what cannot be recorded"):
        make_fx(lambda x: f(x, wrap(np.full(2, 4.0))))(fb.ones(2, dtype=fb.float64))


@pytest.mark.parametrize("asks", [
    lambda x: fb.allclose(x, x * 2), lambda x: x.allclose(x * 2), lambda x: fb.equal(x, x), lambda x: x.equal(x[:2]),
    lambda x: fb.ops.aten.equal.default(x, x), lambda x: fb.is_nonzero(x.sum()), lambda x: x.sum().is_nonzero(),
], ids=["allclose", "method allclose", "equal", "method equal", "operator", "is_nonzero", "method is_nonzero"])  # fmt: skip
def test_python_answers_about_elements_are_refused(asks):
    def f(x):
        return x + 1 if asks(x) else x

    with pytest.raises(RuntimeError, match="trying to get value out of a tracing tensor"):
        make_fx(f)(fb.rand(3, 4))
    for mode in ("fake", "symbolic"):
        with pytest.raises(RuntimeError, match=r"aten\.|Could not guard on data-dependent expression"):
            make_fx(f, tracing_mode=mode)(fb.rand(3, 4))


def test_a_composition_that_compares_elements_inside_is_recorded():
    x = fb.tensor([0.0, 1.0, 2.0])

    assert make_fx(lambda x: x + 1 if x.is_same_size(x * 2) else x)(x)(x).tolist() == [1.0, 2.0, 3.0]


def _within_no_grad(x):
    with fb.no_grad():
        y = x * 2
    return y * x


def _within_enable_grad(x):
    with fb.no_grad():
        y = x * 2
        with fb.enable_grad():
            z = x * 3
    return y * z


def _after_a_call(x):
    fb.set_grad_enabled(False)
    y = x * 2
    fb._C._set_grad_enabled(True)
    return y * x


@fb.no_grad()
def _decorated(x):
    return x * 2


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize(("f", "modes", "grad"), [
    (_within_no_grad, [False, True], [2.0, 2.0]), (_within_enable_grad, [False, True, False, True], [6.0, 6.0]),
    (_after_a_call, [False, True], [2.0, 2.0]), (lambda x: _decorated(x) + x, [False, True], [1.0, 1.0]),
], ids=["no_grad", "enable_grad", "set_grad_enabled", "decorated"])  # fmt: skip
def test_before_dispatch_the_graph_records_histories_where_the_program_does(f, modes, grad, mode):
    gm = make_fx(f, tracing_mode=mode, pre_dispatch=True)(fb.ones(2, requires_grad=True))
    gm.graph.eliminate_dead_code()
    gm.recompile()

    assert [n.args[0] for n in gm.graph.nodes if n.target is fb._C._set_grad_enabled] == modes
    x = fb.ones(2, requires_grad=True)
    assert fb.autograd.grad(gm(x).sum(), x)[0].tolist() == grad
    assert fb.is_grad_enabled()
    assert "_set_grad_enabled" not in make_fx(f, tracing_mode=mode)(fb.ones(2)).code


def test_before_dispatch_no_grad_inside_an_operation_is_no_node():
    gm = make_fx(lambda x: fb.nn.functional.batch_norm(x, None, None, training=True), pre_dispatch=True)(fb.rand(4, 2))

    assert not [n for n in gm.graph.nodes if n.target is fb._C._set_grad_enabled]
