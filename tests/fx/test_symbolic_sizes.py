"""Graphs recorded with symbols for sizes run at other sizes, and say for which."""

from __future__ import annotations

import operator
import os
from typing import Any

import numpy as np
import pytest

import flambeau as fb
import flambeau.nn.functional as F
from flambeau._subclasses import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from flambeau._symbolic import SymInt
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.ops._spec.samples import function_of
from flambeau.utils import _pytree as pytree
from fx.programs import PROGRAMS
from fx.test_make_fx import same
from properties.cases import cases

sympy = pytest.importorskip("sympy")
from flambeau.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode  # noqa: E402  # behind sympy, which it needs

# FLAMBEAU_TEST_EVERY_OP=1 records every sample of the registry, else one in twelve.
EVERY = cases(draws=False)
CASES = EVERY if os.environ.get("FLAMBEAU_TEST_EVERY_OP") else EVERY[::12]


def numbers(*shape: int, seed: int = 0) -> Any:
    return fb.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def symbolic(f: Any, *args: Any) -> Any:
    return make_fx(f, tracing_mode="symbolic")(*args)


def inputs_of(gm: Any) -> list[Any]:
    return [n.meta["val"] for n in gm.graph.nodes if n.op == "placeholder"]


# -- the registry ----------------------------------------------------------------------------------------------------------


def at_other_sizes(gm: Any, tensors: list[Any]) -> list[Any] | None:
    """Tensors like `tensors`, of other sizes for which the guards of `gm` hold; None if there are none within reach."""
    env, fakes = gm.shape_env, inputs_of(gm)
    for step in (1, 2, 3, 4, 6, 12):
        sizes = {s: n if env.replace(s).is_number else n + step for s, n in env.var_to_val.items()}
        sizes |= {s: env.replace(s).xreplace(sizes) for s in sizes}
        if sizes == env.var_to_val or not all(g.expr.xreplace(sizes) is sympy.true for g in env.guards):
            continue
        made = [like(t, [at(n, sizes) for n in f.shape], [at(n, sizes) for n in f.stride()]) for t, f in zip(tensors, fakes, strict=True)]
        if env.evaluate_guards_for_args(fakes, made):
            return made
    return None


def at(n: Any, sizes: Any) -> int:
    return int(n.node._expr.xreplace(sizes)) if isinstance(n, SymInt) else n


def like(t: Any, shape: list[int], stride: list[int]) -> Any:
    """Numbers of the dtype of `t` and between its least and greatest, in another shape."""
    if 0 in stride:
        return like(t, [1 if s == 0 else n for n, s in zip(shape, stride, strict=True)], [s or 1 for s in stride]).expand(shape)
    made = fb.empty_strided(shape, stride, dtype=t.dtype)
    if t.is_complex():
        return made.copy_(fb.randn(shape, dtype=t.dtype))
    low, high = (t.min().item(), t.max().item()) if t.numel() else (0, 1)
    if t.dtype is fb.bool:
        return made.copy_(fb.rand(shape) > 0.5)
    if not t.is_floating_point():
        return made.copy_(fb.randint(int(low), int(high) + 1, shape))
    return made.copy_(fb.rand(shape, dtype=fb.float64) * (high - low) + low)


def result_of(f: Any, tensors: list[Any]) -> Any:
    fb.manual_seed(3)
    try:
        return f(*[t.clone() for t in tensors])
    except Exception as error:  # of values that an op refuses: both have to raise it
        return error


@pytest.mark.filterwarnings("ignore")                # of old arguments and broadcast targets: the program itself warns as well
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_samples_of_the_registry_recorded_with_symbols_run_at_other_sizes(case: Any) -> None:
    sample = case.sample()
    leaves, spec = pytree.tree_flatten((tuple(sample.args), sample.kwargs))
    tensors = [a for a in leaves if isinstance(a, fb.Tensor)]
    fn = function_of(case.op)

    def program(*given: Any) -> Any:
        rest = iter(given)
        args, kwargs = pytree.tree_unflatten([next(rest) if isinstance(a, fb.Tensor) else a for a in leaves], spec)
        return fn(*args, **kwargs)

    expected = result_of(program, tensors)
    if isinstance(expected, Exception) or not tensors:
        pytest.skip("takes no tensors, or refuses copies of its operands")
    try:
        gm = symbolic(program, *tensors)
    except (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode):
        return                                        # what depends on values cannot be recorded without them, and says so
    same(result_of(gm, tensors), expected)
    others = at_other_sizes(gm, tensors)
    if others is None:                                # the graph is for these sizes, and its guards say so
        return
    expected, found = result_of(program, others), result_of(gm, others)
    if isinstance(expected, Exception):
        assert isinstance(found, Exception)
        return
    same(found, expected)


# -- graphs ----------------------------------------------------------------------------------------------------------------


def test_sizes_are_nodes_of_the_graph() -> None:
    gm = symbolic(lambda x, y: (fb.cat([x, y]).view(-1, 2).sum(0), x.shape[0] * 3), numbers(4, 6), numbers(5, 6))

    assert "torch.ops.aten.sym_size.int(x_1, 0)" in gm.code
    made, size = gm(numbers(7, 2), numbers(3, 2))
    assert size == 21
    same(made, fb.cat([numbers(7, 2), numbers(3, 2)]).view(-1, 2).sum(0))


def test_a_choice_by_a_size_is_a_guard() -> None:
    gm = symbolic(lambda x: x + 1 if x.shape[0] > 3 else x, numbers(12, 5))

    assert [str(g.expr) for g in gm.shape_env.guards] == ["s0 > 3"]
    assert gm.shape_env.evaluate_guards_for_args(inputs_of(gm), [numbers(4, 9)])
    assert not gm.shape_env.evaluate_guards_for_args(inputs_of(gm), [numbers(3, 9)])


def test_equal_sizes_are_one_symbol_and_the_guards_say_so() -> None:
    gm = symbolic(lambda x: x.sin(), numbers(4, 4))

    assert gm.shape_env.evaluate_guards_for_args(inputs_of(gm), [numbers(7, 7)])
    assert not gm.shape_env.evaluate_guards_for_args(inputs_of(gm), [numbers(7, 6)])


def test_sizes_0_and_1_are_numbers() -> None:
    fake = inputs_of(symbolic(lambda x: x.sin(), numbers(1, 5, 0)))[0]

    assert [isinstance(n, SymInt) for n in fake.shape] == [False, True, False]


def test_ints_among_the_arguments_are_symbols() -> None:
    gm = symbolic(lambda x, n: x.view(n, x.shape[0] // n), numbers(12), 4)

    assert gm(numbers(30), 5).shape == (5, 6)


def test_a_size_that_a_program_asks_for_as_a_number_is_a_guard() -> None:
    gm = symbolic(lambda x: x * [1, 2, 3, 4, 5][x.shape[0]], numbers(3))

    assert not gm.shape_env.evaluate_guards_for_args(inputs_of(gm), [numbers(4)])


def test_numbers_that_values_decide_are_symbols_without_a_hint() -> None:
    x = fb.tensor([0.0, 2.0, 0.0, 3.0])
    gm = symbolic(lambda x: fb.zeros(x.nonzero().shape[0]) + x.sum().item(), x)

    assert gm(fb.tensor([1.0, 2.0, 3.0])).tolist() == [6.0] * 3
    with pytest.raises(RuntimeError, match="Could not guard on data-dependent expression"):
        symbolic(lambda x: x if x.nonzero().shape[0] > 3 else x + 1, x)


def test_derivatives_are_recorded_with_symbols() -> None:
    def step(x: Any, w: Any) -> Any:
        loss = (x @ w).relu().softmax(-1).pow(2).mean()
        return fb.autograd.grad(loss, [w])[0]

    gm = symbolic(step, numbers(4, 5), numbers(5, 3, seed=1).requires_grad_())
    x, w = numbers(7, 6), numbers(6, 4, seed=1).requires_grad_()
    same(gm(x, w), step(x, w))


def test_convolutions_run_at_other_sizes() -> None:
    def net(x: Any, w: Any) -> Any:
        return fb.nn.functional.max_pool2d(fb.nn.functional.conv2d(x, w, padding=1).relu(), 2).flatten(1)

    gm = symbolic(net, numbers(2, 5, 8, 10), numbers(4, 5, 3, 3, seed=1))
    x, w = numbers(3, 7, 12, 6), numbers(2, 7, 3, 3, seed=1)
    assert gm.shape_env.evaluate_guards_for_args(inputs_of(gm), [x, w]), gm.shape_env.format_guards()
    same(gm(x, w), net(x, w))


def test_the_mode_makes_symbols_of_sizes() -> None:
    from flambeau.fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(shape_env=ShapeEnv())
    x = mode.from_tensor(numbers(3, 4))
    assert str((x @ x.mT).shape) == "torch.Size([s0, s0])"
    assert not mode.shape_env.guards


# -- export ----------------------------------------------------------------------------------------------------------------


def test_a_module_is_exported_with_symbols_and_guards() -> None:
    layer = fb.nn.Linear(4, 2)
    made = fb._dynamo.export(lambda x, scale=2.0: {"y": layer(x).relu() * scale}, aten_graph=True)(numbers(3, 4))

    same(made.graph_module(numbers(7, 4), 2.0)["y"], layer(numbers(7, 4)).relu() * 2)
    assert [str(g.expr) for g in made.guards] == ["Eq(s1, 4)"]


def test_sizes_are_numbers_unless_marked_where_that_is_wished() -> None:
    x = numbers(3, 4)
    fb._dynamo.mark_dynamic(x, 0)
    export = fb._dynamo.export(lambda x: x.sin(), aten_graph=True, assume_static_by_default=True)
    assert [isinstance(n, SymInt) for n in inputs_of(export(x).graph_module)[0].shape] == [True, False]

    with pytest.raises(RuntimeError, match="marked as dynamic, but the graph is for size 3 alone"):
        fb._dynamo.export(lambda x: x * int(x.shape[0]), aten_graph=True)(x)


def test_the_functions_that_a_program_calls_are_exported() -> None:
    def f(x: fb.Tensor, y: fb.Tensor, *, k: int = 2) -> dict[str, object]:
        return {"a": fb.sin(x) * k, "b": (y, x + y, 5)}

    x, y = numbers(3), numbers(3)
    made = fb._dynamo.export(f)(x, y, k=3).graph_module
    found, expected = made(y, x, k=3), f(y, x, k=3)
    assert fb.equal(found["a"], expected["a"])
    assert found["b"][0] is x
    assert found["b"][2] == 5
    assert [n.target for n in made.graph.nodes if n.op == "call_function"] == [fb.sin, operator.mul, operator.add]

    net = fb.nn.Sequential(fb.nn.Linear(3, 2), fb.nn.ReLU())
    made = fb._dynamo.export(net, numbers(4, 3)).graph_module
    assert [n for n, _ in made.named_parameters()] == ["L__fn___0___weight", "L__fn___0___bias"]
    assert fb.equal(made(numbers(4, 3)), net(numbers(4, 3)))
    made(numbers(4, 3)).sum().backward()
    assert net[0].weight.grad is not None


@pytest.mark.parametrize("f", [lambda x: x + 1 if x.sum() > 0 else x, lambda x: (x + 1).add_(2), lambda x: x + fb.rand(3)])
def test_a_function_that_is_not_one_graph_is_not_exported(f: object) -> None:
    with pytest.raises(fb._dynamo.exc.Unsupported):
        fb._dynamo.export(f)(numbers(3))


def test_what_export_has_not_is_refused_by_name() -> None:
    x = numbers(3)
    fb._dynamo.mark_dynamic(x, 0)
    with pytest.raises(NotImplementedError, match="aten_graph=True"):
        fb._dynamo.export(lambda x: x)(x)
    with pytest.raises(NotImplementedError, match="dynamic_shapes"):
        fb._dynamo.export(lambda x: x, dynamic_shapes=({0: fb.export.Dim("n")},))(numbers(3))


@pytest.mark.parametrize("name", sorted({*PROGRAMS} - {"documented", "functions", "operators"}))
def test_models_recorded_at_one_batch_size_run_at_another(name: str) -> None:
    make, (batch, *rest) = PROGRAMS[name]
    model = make(fb)
    if isinstance(model, fb.nn.Module):
        model.eval()
    gm = make_fx(model, tracing_mode="symbolic", _allow_non_fake_inputs=True)(numbers(batch, *rest))

    x = numbers(batch + 3, *rest, seed=1)
    assert gm.shape_env.evaluate_guards_for_args(inputs_of(gm), [x]), gm.shape_env.format_guards()
    same(gm(x), model(x), exactly=name != "recurrent")


DECIDED_BY_VALUES = {
    "index": lambda x: x[x > 0.5] * 2,
    "masked_select": lambda x: fb.masked_select(x, x > 0.5) + 1,
    "nonzero": lambda x: (x > 0.5).nonzero().sum(0),
    "argwhere": lambda x: fb.argwhere(x > 0.5) + 1,
}
MADE_OF_SIZES = {
    "arange": lambda x: fb.arange(x.shape[0]) * x[:, 0],
    "arange of several": lambda x: fb.arange(1, 2 * x.shape[0] + 1, 2) * x[:, 0],
    "linspace": lambda x: fb.linspace(0, 1, x.shape[0]) * x[:, 0],
    "full": lambda x: fb.full((x.shape[0], 3), 2.0) + x.new_ones(x.shape[0], 1),
    "eye": lambda x: fb.eye(x.shape[0]) @ x,
    "tril": lambda x: fb.tril(fb.ones(x.shape[0], x.shape[0])) @ x,
    "interpolate": lambda x: fb.nn.functional.interpolate(x[None, None], size=(x.shape[0] * 2, x.shape[1] + 1), mode="bilinear"),
    "power": lambda x: x * x.shape[0] ** 0.5 / (x.shape[1] + 1),
    "slices": lambda x: x[1:, : x.shape[1] - 1] + x[-1, 0],
}


@pytest.mark.parametrize("name", [*DECIDED_BY_VALUES, *MADE_OF_SIZES])
def test_sizes_of_values_and_of_sizes_are_computed_by_the_graph(name: str) -> None:
    f = {**DECIDED_BY_VALUES, **MADE_OF_SIZES}[name]
    gm = symbolic(f, numbers(4, 5))
    x = numbers(7, 3, seed=1)

    assert gm.shape_env.evaluate_guards_for_args(inputs_of(gm), [x]), gm.shape_env.format_guards()
    same(gm(x), f(x))


def open_sizes(made: object) -> list[list[bool]]:
    return [[isinstance(n, SymInt) for n in x.shape] for x in inputs_of(made.graph_module)]  # type: ignore[attr-defined]


def test_sizes_that_dynamic_shapes_name_are_symbols_with_their_relations() -> None:
    n = fb.export.Dim("n")

    def f(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        return x.sin().sum(1) * 2 + y.cos().sum(1)

    shapes = {"x": {0: n}, "y": {0: n}}
    made = fb._dynamo.export(f, aten_graph=True, dynamic_shapes=shapes, assume_static_by_default=True)(numbers(3, 4), numbers(3, 5))
    assert open_sizes(made) == [[True, False], [True, False]]
    assert inputs_of(made.graph_module)[0].shape[0] == inputs_of(made.graph_module)[1].shape[0]
    x, y = numbers(6, 4), numbers(6, 5)
    assert fb.equal(made.graph_module(x, y), f(x, y))

    usual = fb._dynamo.export(f, aten_graph=True, dynamic_shapes=({0: n}, {0: n}))(numbers(3, 4), numbers(3, 5))
    assert open_sizes(usual) == [[True, True], [True, True]]
    fake = fb._dynamo.export(f, aten_graph=True, tracing_mode="fake", dynamic_shapes=shapes)(numbers(3, 4), numbers(3, 5))
    assert open_sizes(fake) == [[True, False], [True, False]]
    twice = fb._dynamo.export(lambda x, y: y[::2] + x, aten_graph=True, dynamic_shapes=({0: n}, {0: 2 * n}))(numbers(3), numbers(6))
    assert fb.equal(twice.graph_module(numbers(5), numbers(10)), numbers(10)[::2] + numbers(5))


def test_dynamic_shapes_that_a_program_does_not_hold_for_are_refused() -> None:
    n, m = fb.export.dims("n", "m")

    def refused(message: str, f: object, *args: fb.Tensor, shapes: object) -> None:
        with pytest.raises(RuntimeError, match=message) as error:
            fb._dynamo.export(f, aten_graph=True, dynamic_shapes=shapes)(*args)
        assert isinstance(error.value, (fb.fx.experimental.symbolic_shapes.ConstraintViolationError, fb._dynamo.exc.UserError))

    refused("n = 3", lambda x: x * int(x.shape[0]), numbers(3), shapes=({0: n},))
    refused("m = n", lambda x, y: x + y, numbers(3), numbers(3), shapes=({0: n}, {0: m}))
    refused(r"n = Dim\('n', min=3\)", lambda x: x.sin() if x.shape[0] > 2 else x, numbers(3), shapes=({0: n},))
    refused(r"^3 not in range \[4, int_oo\]", lambda x: x.sin(), numbers(3), shapes=({0: fb.export.Dim("k", min=4)},))
    refused(r"= 4 is not equal to L\['x'\].size\(\)\[0\] = 3", lambda x, y: x.sum() + y, numbers(3), numbers(4), shapes=({0: n}, {0: n}))
    refused("arg names", lambda x: x.sin(), numbers(3), shapes={"z": {0: n}})


def test_a_size_as_an_exponent_is_recorded() -> None:
    def program(x):
        return x * 2 ** (x.shape[0] - 1)

    graph = make_fx(program, tracing_mode="symbolic")(fb.ones(3, dtype=fb.int64))

    assert graph(fb.ones(5, dtype=fb.int64)).tolist() == [16] * 5


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.sum().expand(x.shape[0]), lambda x: x.sum().broadcast_to(x.shape[0]), lambda x: x[0].repeat(x.shape[0]),
        lambda x: x[0].tile(x.shape[0]), lambda x: x.reshape(x.numel()), lambda x: fb.func.vmap(fb.func.grad(lambda r: (r**2).sum()))(x),
    ],
)  # fmt: skip
def test_one_symbol_is_taken_for_a_list_of_sizes(fn):
    gm = make_fx(fn, tracing_mode="symbolic")(fb.ones(6, 4))

    x = fb.arange(35.0).view(5, 7)
    assert fb.equal(gm(x), fn(x))


def holds_elsewhere(f: Any, given: tuple[Any, ...], others: tuple[Any, ...]) -> Any:
    """The graph of `f` for `given`, which gives at `others` what `f` gives."""
    graph = symbolic(f, *given)

    fb.testing.assert_close(graph(*others), f(*others))
    return graph


@pytest.mark.parametrize("repeats", [lambda x: x.repeat_interleave(2), lambda x: x.repeat_interleave(2, 0),
                                     lambda x: x.repeat_interleave(x.shape[0], -1)])  # fmt: skip
def test_repeated_elements_are_not_places_of_the_traced_sizes(repeats):
    graph = holds_elsewhere(repeats, (numbers(4, 6),), (numbers(6, 8),))

    assert not graph.shape_env.guards
    assert not [n for n in graph.graph.nodes if n.op == "get_attr"]
    holds_elsewhere(fb.func.grad(lambda x: repeats(x).pow(2).sum()), (numbers(4, 6),), (numbers(6, 8),))


@pytest.mark.parametrize("align", [False, True])
def test_affine_grids_are_made_for_the_sizes_that_a_graph_gets(align):
    def grid(theta, x):
        return F.affine_grid(theta, [1, 1, x.shape[0], 3], align_corners=align)

    given, others = (numbers(1, 2, 3), numbers(4, 6)), (numbers(1, 2, 3, seed=1), numbers(6, 8))
    holds_elsewhere(grid, given, others)
    holds_elsewhere(fb.func.grad(lambda theta, x: grid(theta, x).pow(2).sum()), given, others)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "area", "linear"])
@pytest.mark.parametrize("power", [1, 2])
def test_gradients_of_resampled_images_hold_holds_elsewhere(mode, power):
    def loss(x):
        return F.interpolate(x, scale_factor=2, mode=mode).pow(power).sum()

    small, large = ((4,), (6,)) if mode == "linear" else ((4, 6), (6, 8))
    holds_elsewhere(fb.func.grad(loss), (numbers(1, 2, *small),), (numbers(1, 2, *large),))


def test_columns_and_the_largest_elements_hold_holds_elsewhere():
    def folded(x):
        return F.fold(F.unfold(x[None, None], 2), (x.shape[0], x.shape[1]), 2)

    def largest(x):
        return x.topk(x.shape[1] // 2, 1)[0].pow(2).sum()

    given, others = (numbers(4, 6),), (numbers(6, 8),)
    holds_elsewhere(folded, given, others)
    holds_elsewhere(fb.func.grad(lambda x: folded(x).pow(2).sum()), given, others)
    holds_elsewhere(fb.func.grad(largest), given, others)


@pytest.mark.parametrize("layer", [fb.nn.GRU, fb.nn.LSTM])
def test_a_recurrent_network_taken_apart_is_guarded_by_its_length(layer):
    network = layer(3, 4, batch_first=True)
    graph = make_fx(lambda x: network(x)[0], tracing_mode="symbolic", _allow_non_fake_inputs=True)(numbers(2, 5, 3))

    length = inputs_of(graph)[0].shape[1]
    assert not isinstance(length, SymInt) or length.node.maybe_as_int() == 5


def doubled(x):
    y = x.clone()
    y[y > 0] *= 2
    return y


def moved(x):
    y = fb.zeros_like(x)
    y[x > 0] = x[x > 0]
    return y


def increased(x):
    y = x.clone()
    y[y > 0] = y[y > 0] + 1
    return y


def cleared(x):
    y = x.clone()
    y[y > 0] = 0.0
    return y


def columns(x):
    y = x.clone()
    y[:, y[0] > 0] = x[:, x[0] > 0] * 3
    return y


@pytest.mark.parametrize("update", [doubled, moved, increased, cleared, columns])
@pytest.mark.parametrize("mode", ["real", "symbolic"])
def test_updates_through_masks_hold_for_other_values(update, mode):
    graph = make_fx(update, tracing_mode=mode)(numbers(2, 3))

    for other in [numbers(2, 3, seed=1), -numbers(2, 3).abs()] + ([numbers(4, 5)] if mode == "symbolic" or update is cleared else []):
        assert fb.equal(graph(other), update(other))
    if mode == "symbolic":
        sizes = {0: fb.export.Dim("a"), 1: fb.export.Dim("b")}
        module = type("Update", (fb.nn.Module,), {"forward": lambda self, x: update(x)})()
        assert fb.equal(fb.export.export(module, (numbers(2, 3),), dynamic_shapes=(sizes,)).module()(numbers(4, 5)), update(numbers(4, 5)))


@pytest.mark.parametrize("update", [doubled, moved, increased, cleared, columns])
def test_gradients_of_updates_through_masks_are_recorded(update):
    gradient = fb.func.grad(lambda x: update(x).pow(2).sum())

    assert fb.equal(make_fx(gradient)(numbers(2, 3))(numbers(2, 3, seed=1)), gradient(numbers(2, 3, seed=1)))


@pytest.mark.parametrize("make", [lambda x: fb.zeros(x.sum().item()), lambda x: fb.ones(x.sum().item(), 2)])
def test_a_value_that_is_a_size_is_taken_to_be_one(make):
    graph = symbolic(make, fb.tensor([1, 2]))

    assert graph(fb.tensor([3, 4])).shape[0] == 7
    with pytest.raises(RuntimeError, match=r"negative dimension|Expected cond"):
        graph(fb.tensor([-3, 1]))
    module = type("Make", (fb.nn.Module,), {"forward": lambda self, x: make(x)})()
    assert fb.export.export(module, (fb.tensor([1, 2]),)).module()(fb.tensor([3, 4])).shape[0] == 7
