"""Checkpointed regions: same gradients and random numbers, less memory, and errors when a region changes its mind."""

from __future__ import annotations

import contextlib
import functools
import importlib

import pytest

import flambeau as fb
from flambeau.utils.checkpoint import (
    CheckpointError,
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)

nn = fb.nn
BOTH = pytest.mark.parametrize("use_reentrant", [True, False])


def block(x, w):
    return fb.tanh(x @ w).sigmoid() * x


def leaves(seed=0):
    made = fb.Generator().manual_seed(seed)
    return [fb.randn(5, 5, generator=made, dtype=fb.float64).requires_grad_() for _ in range(2)]


def gradients(f):
    x, w = leaves()
    f(x, w).sum().backward()
    return x.grad, w.grad


class Counting:
    """A function that counts its calls."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        return self.function(*args, **kwargs)


@BOTH
def test_gradients_are_those_without_checkpoints(use_reentrant):
    run = Counting(block)

    found = gradients(lambda x, w: checkpoint(run, x, w, use_reentrant=use_reentrant))

    assert run.calls == 2
    for a, b in zip(found, gradients(block), strict=True):
        assert fb.equal(a, b)


@BOTH
def test_checkpoints_may_stand_inside_checkpoints(use_reentrant):
    def inner(x, w):
        return checkpoint(block, x.sin(), w, use_reentrant=use_reentrant).cos()

    def outer(x, w):
        x = checkpoint(inner, x * 2, w, use_reentrant=use_reentrant)
        return checkpoint(inner, x * 3, w, use_reentrant=use_reentrant)

    def plain(x, w):
        for factor in (2, 3):
            x = block((x * factor).sin(), w).cos()
        return x

    for a, b in zip(
        gradients(lambda x, w: checkpoint(outer, x, w, use_reentrant=use_reentrant)), gradients(plain), strict=True
    ):
        assert fb.allclose(a, b, rtol=1e-14)


@BOTH
def test_random_numbers_are_drawn_again(use_reentrant):
    def noisy(x, w):
        return block(fb.nn.functional.dropout(x, 0.5) * fb.rand(5, 5, dtype=x.dtype), w)

    def seeded(f):
        fb.manual_seed(3)
        return *gradients(f), fb.rand(3)

    found = seeded(lambda x, w: checkpoint(noisy, x, w, use_reentrant=use_reentrant))

    for a, b in zip(found, seeded(noisy), strict=True):
        assert fb.equal(a, b)


@BOTH
def test_random_numbers_may_differ_where_that_is_allowed(use_reentrant):
    factors = []

    def noisy(x):
        factors.append(fb.rand(1, dtype=x.dtype))
        return (x * factors[-1]).exp()

    x = leaves()[0]
    checkpoint(noisy, x, use_reentrant=use_reentrant, preserve_rng_state=False).sum().backward()

    assert len(factors) == 2
    assert not fb.equal(*factors)


@BOTH
def test_arguments_and_results_may_be_anything(use_reentrant):
    def f(x, factor, name, parts):
        return x.exp() * factor, name, [parts["y"]], None

    x, y = leaves()
    a, name, (same,), nothing = checkpoint(f, x, 3, "n", {"y": y}, use_reentrant=use_reentrant)
    a.sum().backward()

    assert (name, nothing) == ("n", None)
    assert same is y
    assert fb.allclose(x.grad, 3 * x.detach().exp())


def test_keywords_reach_the_function_and_carry_gradients():
    x, w = leaves()

    checkpoint(block, x, w=w, use_reentrant=False).sum().backward()

    assert fb.equal(w.grad, gradients(block)[1])


def test_every_way_of_asking_for_gradients_works_without_reentry():
    x, w = leaves()

    y = checkpoint(block, x, w, use_reentrant=False).sum()
    (first,) = fb.autograd.grad(y, x, create_graph=True)
    (second,) = fb.autograd.grad(first.square().sum(), w)

    plain = block(x, w).sum()
    (want,) = fb.autograd.grad(plain, x, create_graph=True)
    assert fb.allclose(first, want, rtol=1e-14)
    assert fb.allclose(second, fb.autograd.grad(want.square().sum(), w)[0], rtol=1e-13)


def test_a_graph_that_is_kept_is_recomputed_for_each_backward():
    x, w = leaves()
    run = Counting(block)
    y = checkpoint(run, x, w, use_reentrant=False).sum()

    y.backward(retain_graph=True)
    y.backward()

    assert run.calls == 3
    assert fb.allclose(x.grad, 2 * gradients(block)[0], rtol=1e-14)
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


@pytest.mark.parametrize("early_stop", [True, False])
@pytest.mark.parametrize("nested", [False, True])
def test_backward_may_run_inside_a_checkpointed_region(nested, early_stop):
    def f(x, w):
        y = block(x, w)
        (slope,) = fb.autograd.grad(y.sum(), x, create_graph=True)
        return y * slope

    def region(x, w):
        return checkpoint(f, x.sin(), w, use_reentrant=False) if nested else f(x.sin(), w)

    with set_checkpoint_early_stop(early_stop):
        found = gradients(lambda x, w: checkpoint(region, x, w, use_reentrant=False))

    for a, b in zip(found, gradients(lambda x, w: f(x.sin(), w)), strict=True):
        assert fb.allclose(a, b, rtol=1e-13)


class Cube(fb.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        return 3 * ctx.saved_tensors[0] * ctx.saved_tensors[0] * grad


def test_custom_operations_may_read_what_they_saved_more_than_once():
    x = leaves()[0]
    y = checkpoint(lambda x: Cube.apply(x.sin()), x, use_reentrant=False).sum()
    (first,) = fb.autograd.grad(y, x, create_graph=True)
    (second,) = fb.autograd.grad(first.sum(), x)

    s, c = x.detach().sin(), x.detach().cos()
    assert fb.allclose(first, 3 * s**2 * c)
    assert fb.allclose(second, 6 * s * c**2 - 3 * s**3)


def test_recomputation_stops_where_the_last_saved_tensor_is_there():
    seen = []

    def f(x):
        y = x.exp()
        seen.append("exp")
        y = y * y
        seen.append("product")
        return y + 1

    def run(*managers):
        seen.clear()
        with contextlib.ExitStack() as stack:
            for m in managers:
                stack.enter_context(m)
            checkpoint(f, leaves()[0], use_reentrant=False).sum().backward()
        return seen.copy()

    assert run() == ["exp", "product", "exp"]
    assert run(set_checkpoint_early_stop(False)) == ["exp", "product", "exp", "product"]
    assert run(set_checkpoint_early_stop(False), set_checkpoint_early_stop(True)) == ["exp", "product", "exp"]


def test_both_runs_have_their_context():
    seen = []

    @contextlib.contextmanager
    def noting(name):
        seen.append(name)
        yield
        seen.append(f"end of {name}")

    y = checkpoint(fb.exp, leaves()[0], use_reentrant=False, context_fn=lambda: (noting("forward"), noting("again")))
    assert seen == ["forward", "end of forward"]
    y.sum().backward()
    assert seen[2] == "again"


@BOTH
def test_autocast_is_as_it_was(use_reentrant):
    dtypes = []

    def f(x, w):
        y = x @ w
        dtypes.append(y.dtype)
        return y.float().exp()

    x, w = (t.detach().float().requires_grad_() for t in leaves())
    with fb.autocast("cpu", dtype=fb.bfloat16):
        y = checkpoint(f, x, w, use_reentrant=use_reentrant)
    y.sum().backward()
    plain = checkpoint(f, x, w, use_reentrant=use_reentrant)
    with fb.autocast("cpu", dtype=fb.bfloat16):
        plain.sum().backward()

    assert dtypes == [fb.bfloat16] * 2 + [fb.float32] * 2


def test_nothing_runs_again_where_nothing_is_recorded():
    run = Counting(block)
    with fb.no_grad():
        y = checkpoint(run, *leaves(), use_reentrant=False)

    assert run.calls == 1
    assert not y.requires_grad


def changing(*functions):
    """A function that is another one each time it is called."""
    rest = iter(functions)
    return lambda x: next(rest)(x)


def test_a_region_that_saves_fewer_tensors_is_refused():
    y = checkpoint(changing(lambda x: x.exp().sin(), fb.exp), leaves()[0], use_reentrant=False)
    with pytest.raises(CheckpointError, match="saved 2 tensors for backward, but 1 when"):
        y.sum().backward()


def test_a_region_that_saves_more_tensors_is_refused_when_it_runs_to_the_end():
    with set_checkpoint_early_stop(False):
        y = checkpoint(changing(fb.exp, lambda x: x.exp().sin()), leaves()[0], use_reentrant=False)
    with pytest.raises(CheckpointError, match="saved 1 tensors for backward, and more when"):
        y.sum().backward()


def test_other_shapes_are_refused_and_debug_lists_the_operations():
    def run(**kwargs):
        function = changing(lambda x: x.exp().sum(), lambda x: fb.cat([x, x]).exp().sum())
        checkpoint(function, leaves()[0], use_reentrant=False, **kwargs).backward()

    with pytest.raises(CheckpointError, match=r"saved tensor 0: \(5, 5\) torch.float64 cpu, then \(10, 5\)") as plain:
        run()
    with pytest.raises(CheckpointError, match=r"exp\[\(10, 5\)\] at .*test_checkpoint.py"):
        run(debug=True)
    with pytest.raises(CheckpointError, match=r"exp\[\(10, 5\)\]"), set_checkpoint_debug_enabled(True):
        run()
    assert "operations the first time" not in str(plain.value)


def test_other_shapes_are_not_looked_at_without_the_check():
    function = changing(lambda x: x.double().exp(), lambda x: (x.double() + 1).exp())
    x = fb.zeros(2, requires_grad=True)
    checkpoint(function, x, use_reentrant=False, determinism_check="none").sum().backward()
    assert fb.allclose(x.grad, fb.ones(2).exp())


@BOTH
def test_an_argument_that_was_overwritten_is_noticed(use_reentrant):
    y = leaves()[0] * 1
    z = checkpoint(lambda x: x.exp().sin(), y, use_reentrant=use_reentrant)
    y.add_(1)
    with pytest.raises(RuntimeError, match=r"inplace operation.*test_checkpoint.py"):
        z.sum().backward()


def test_reentry_takes_neither_grad_nor_inputs_nor_keywords():
    x = leaves()[0]
    with pytest.raises(RuntimeError, match="use_reentrant=False"):
        fb.autograd.grad(checkpoint(fb.exp, x, use_reentrant=True).sum(), x)
    with pytest.raises(RuntimeError, match="use_reentrant=False"):
        checkpoint(fb.exp, x, use_reentrant=True).sum().backward(inputs=[x])
    with pytest.raises(ValueError, match="keyword arguments w"):
        checkpoint(block, x, w=x, use_reentrant=True)
    with pytest.raises(ValueError, match="context_fn"):
        checkpoint(block, x, x, use_reentrant=True, debug=True)
    with pytest.raises(RuntimeError, match="no result"):
        checkpoint(lambda x: x.detach(), x, use_reentrant=True).sum().backward()
    with pytest.warns(UserWarning, match="None of the inputs"):
        assert not checkpoint(fb.exp, fb.ones(2), use_reentrant=True).requires_grad


def test_reentry_is_assumed_with_a_warning():
    with pytest.warns(UserWarning, match="use_reentrant"):
        y = checkpoint(fb.exp, leaves()[0])
    assert type(y.grad_fn).__name__ == "FunctionNode"


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="'default' or 'none', but got 'all'"):
        checkpoint(fb.exp, leaves()[0], use_reentrant=False, determinism_check="all")


@BOTH
def test_sequences_are_cut_and_the_last_part_is_kept(use_reentrant):
    steps = [Counting(fb.sin) for _ in range(7)]
    x = leaves()[0]
    checkpoint_sequential(steps, 3, x, use_reentrant=use_reentrant).sum().backward()

    assert [s.calls for s in steps] == [2, 2, 2, 2, 1, 1, 1]
    with pytest.raises(ValueError, match=r"segments=8.*7 functions"):
        checkpoint_sequential(steps, 8, x, use_reentrant=use_reentrant)
    with pytest.raises(ValueError, match="nonsense"):
        checkpoint_sequential(steps, 3, x, use_reentrant=use_reentrant, nonsense=1)


@BOTH
def test_a_sequential_model_gets_the_same_gradients(use_reentrant):
    fb.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.Dropout(0.3), nn.Linear(8, 2))
    x = fb.randn(3, 4, requires_grad=True)

    def run(f):
        model.zero_grad()
        fb.manual_seed(1)
        f(x).sum().backward()
        return [p.grad for p in model.parameters()]

    found = run(lambda x: checkpoint_sequential(model, 3, x, use_reentrant=use_reentrant))

    for a, b in zip(found, run(model), strict=True):
        assert fb.equal(a, b)


@BOTH
@pytest.mark.skipif(fb.kernels.backend() == "numpy", reason="memory is counted by the compiled backend")
def test_peak_memory_falls(use_reentrant):
    layers = [lambda x: x.sin().exp().tanh().sigmoid() for _ in range(8)]

    def peak(f):
        x = fb.ones(1 << 18, requires_grad=True)
        fb.cpu.reset_peak_memory_stats()
        before = fb.cpu.memory_allocated()
        f(x).sum().backward()
        return fb.cpu.max_memory_allocated() - before

    def whole(x):
        for f in layers:
            x = f(x)
        return x

    peak(whole)
    assert peak(lambda x: checkpoint_sequential(layers, 8, x, use_reentrant=use_reentrant)) < 0.6 * peak(whole)


# Selective


def _selective(lib, function, chosen, *args, **options):
    module = importlib.import_module(f"{lib.__name__}.utils.checkpoint")
    contexts = functools.partial(module.create_selective_checkpoint_contexts, chosen, **options)
    return module.checkpoint(function, *args, use_reentrant=False, context_fn=contexts)


def _network():
    fb.manual_seed(0)
    return fb.nn.Sequential(
        fb.nn.Linear(4, 8), fb.nn.LayerNorm(8), fb.nn.GELU(), fb.nn.Dropout(0.5), fb.nn.Linear(8, 4), fb.nn.Softmax(-1)
    )


ATEN = fb.ops.aten
CHOICES = {
    "products": [ATEN.linear.default, ATEN.mm.default],
    "one of two random operations": lambda ctx, op, *args, **kwargs: "dropout" in str(op) or "bernoulli" in str(op) or "rand" in str(op),
    "several results": [ATEN.native_layer_norm.default, ATEN.max.dim],
    "what PyTorch has no name for": lambda ctx, op, *args, **kwargs: str(op).startswith("prims."),
    "everything": lambda ctx, op, *args, **kwargs: CheckpointPolicy.PREFER_SAVE,
    "nothing": lambda ctx, op, *args, **kwargs: CheckpointPolicy.MUST_RECOMPUTE,
}


@pytest.mark.parametrize("choice", CHOICES)
def test_gradients_are_those_without_checkpoints_whatever_is_kept(choice):
    net, x = _network(), fb.randn(3, 4, requires_grad=True)

    def region(x):
        y = (net(x) @ x.T).sin()
        return fb.nn.functional.dropout(y, 0.3).max(1).values + y.sum(1)

    found = []
    for run in (region, functools.partial(_selective, fb, region, CHOICES[choice])):
        fb.manual_seed(3)
        found.append(fb.autograd.grad(run(x).sum(), [x, *net.parameters()]))

    assert all(fb.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("is_kept", [True, False])
def test_kept_operations_run_once(is_kept):
    calls = []

    @fb.library.custom_op(f"selective_checkpoint::counted_{is_kept}".lower(), mutates_args=())
    def counted(x: fb.Tensor) -> fb.Tensor:
        calls.append(1)
        return x.sin()

    counted.register_autograd(lambda ctx, grad: grad * ctx.saved_tensors[0].cos(), setup_context=lambda ctx, inputs, output: (
        ctx.save_for_backward(*inputs)
    ))  # fmt: skip
    asked = []

    def policy(ctx, op, *args, **kwargs):
        asked.append((op, ctx.is_recompute))
        return CheckpointPolicy.MUST_SAVE if op is counted._opoverload and is_kept else CheckpointPolicy.PREFER_RECOMPUTE

    x = fb.rand(5, requires_grad=True)
    y = _selective(fb, lambda x: counted(x).exp() * 2, policy, x)
    (slope,) = fb.autograd.grad(y.sum(), x)

    assert len(calls) == (1 if is_kept else 2)
    assert fb.allclose(slope, 2 * x.sin().exp() * x.cos())
    assert [op for op, again in asked if not again][:2] == [counted._opoverload, fb.ops.aten.exp.default]
    assert (counted._opoverload, True) in asked


def test_kept_results_are_gone_after_one_backward_and_must_not_be_written(oracle):
    for lib in (oracle, fb):
        sin = lib.ops.aten.sin.default
        x = lib.ones(3, requires_grad=True)
        y = _selective(lib, lambda x: x.sin().cos(), [sin], x)
        y.sum().backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="backward an extra time"):
            y.sum().backward()
        for allowed in (False, True):
            x = lib.ones(3, requires_grad=True)
            y = _selective(lib, lambda x: x.sin().mul_(2).cos(), [sin], x, allow_cache_entry_mutation=allowed)
            if allowed:
                y.sum().backward()
            else:
                with pytest.raises(RuntimeError, match=r"mutated|overwritten"):
                    y.sum().backward()


def test_policies_are_functions_or_lists_of_operators(oracle):
    for lib in (oracle, fb):
        make = importlib.import_module(f"{lib.__name__}.utils.checkpoint").create_selective_checkpoint_contexts
        for wrong, kind in ((3, TypeError), ("mm", TypeError), ([3], ValueError), ([lib.ops.aten.mm], ValueError)):
            with pytest.raises(kind):
                make(wrong)
    flips = iter([False, True])
    x = fb.ones(3, requires_grad=True)
    y = _selective(fb, lambda x: x.sin().cos(), lambda ctx, op, *a: op is ATEN.sin.default and next(flips), x)
    with pytest.raises(RuntimeError, match=r"aten\.sin\.default encountered during backward, but not found in storage"):
        y.sum().backward()


def test_kept_results_stand_inside_autocast_and_profiles():
    net, x = fb.nn.Linear(4, 4), fb.rand(2, 4)
    found = []
    for run in (net, functools.partial(_selective, fb, net, [ATEN.linear.default])):
        net.zero_grad()
        with fb.profiler.profile() as prof, fb.autocast("cpu", dtype=fb.bfloat16):
            run(x).sin().sum().backward()
        found.append(net.weight.grad)

    assert fb.equal(*found)
    assert "aten::linear" in {event.name for event in prof.events()}
