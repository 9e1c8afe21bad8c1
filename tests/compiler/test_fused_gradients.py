"""Chains whose gradients are one kernel: results, gradients and histories are those of the operations one after the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.compiler import _backward, _programs, _recorder
from fused_programs import same

UNARY = [
    "rsqrt", "log1p",
    "sin", "exp", "tanh", "abs", "neg", "sigmoid", "square", "relu", "floor", "erf", "expm1", "atan", "softplus", "silu", "gelu", "detach",
]  # fmt: skip
BINARY = ["add", "sub", "mul", "div", "maximum", "minimum", "atan2", "lerp", "hypot", "pow"]
SHAPE = (16, 256)


@pytest.fixture(autouse=True, scope="module")
def _small_chains_fuse() -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(_recorder, "RECORDED_FROM", 1024)
        patch.setattr(_programs, "FUSED_FROM", 1024)
        patch.setattr(_programs, "WORTH", 0)
        yield


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What each `Group.run` gave."""
    found: list[bool] = []
    run = _backward.Group.run

    def noted(*args: Any) -> bool:
        found.append(run(*args))
        return found[-1]

    monkeypatch.setattr(_backward.Group, "run", noted)
    return found


def leaves(dtype: Any = fb.float32) -> list[fb.Tensor]:
    fb.manual_seed(3)
    shapes = [SHAPE, SHAPE, (256,), (16, 1), ()]
    return [fb.randn(shape, dtype=dtype, requires_grad=k != 1) for k, shape in enumerate(shapes)]


step = st.tuples(
    st.sampled_from(UNARY), st.sampled_from(BINARY), st.integers(0, 9), st.integers(0, 9),
    st.sampled_from([None, None, 0.1, 2, 3, -0.3, 0.85, -2]),
)  # fmt: skip


def chain(plan: list[Any], inputs: list[fb.Tensor], kept: list[int]) -> list[fb.Tensor]:
    values = [x * 1 if k == 0 else x for k, x in enumerate(inputs)]
    for unary, binary, a, b, number in plan:
        x, y = values[a % len(values)], values[b % len(values)]
        if x.ndim < 2:
            x, y = values[0], x
        if binary == "lerp":
            made = fb.lerp(x.expand(SHAPE), y.expand(SHAPE), 0.85 if number is None else number)
        else:
            made = getattr(fb, binary)(x, number if number is not None and binary in ("add", "sub", "mul", "div", "pow") else y)
        values.append(getattr(fb.nn.functional, unary)(made) if unary in ("softplus", "silu", "gelu") else getattr(made, unary)())
    return [values[-1], *[values[k % len(values)] for k in kept]]


@settings(max_examples=25, deadline=None)
@given(
    plan=st.lists(step, min_size=2, max_size=9), kept=st.lists(st.integers(0, 20), max_size=2),
    what=st.sampled_from(["backward", "grad of some", "twice", "hook", "hook in the middle", "second derivative", "used outside"]),
    dtype=st.sampled_from([fb.float32, fb.float64]),
)  # fmt: skip
def test_random_chains_have_the_gradients_of_their_operations(plan: Any, kept: list[int], what: str, dtype: Any) -> None:
    def run(f: Any) -> list[Any]:
        inputs = leaves(dtype)
        seen: list[Any] = []
        before = inputs[0].cos() if what == "used outside" else None
        if what == "hook":
            inputs[0].register_hook(lambda g: seen.append(g.clone()))
        results = [r for r in f(plan, inputs, kept) if r.requires_grad]
        if what == "hook in the middle" and len(results) > 1:
            results[1].register_hook(lambda g: seen.append(g.clone()) or g * 2)
            results[1].retain_grad()
        fb.manual_seed(5)
        total = sum((r * fb.randn(r.shape, dtype=dtype)).sum() for r in results)
        if not isinstance(total, fb.Tensor):
            return results
        if before is not None:
            total = total + before.sum() + (inputs[0] * inputs[0]).sum()
        names = [r.grad_fn.name() if r.grad_fn is not None else None for r in results]
        sources = [x for x in inputs if x.requires_grad]
        if what == "grad of some":
            return [*results, names, *fb.autograd.grad(total, sources[1:3], allow_unused=True)]
        if what == "second derivative":
            found = [g for g in fb.autograd.grad(total, sources, create_graph=True, allow_unused=True) if g is not None]
            again = sum((g * g).sum() for g in found)
            second = fb.autograd.grad(again, sources, allow_unused=True) if isinstance(again, fb.Tensor) and again.requires_grad else ()
            return [*results, names, *found, *second]
        total.backward(retain_graph=what == "twice")
        if what == "twice":
            total.backward()
        return [*results, names, *seen, *[x.grad for x in inputs], *[r.grad for r in results if r.retains_grad]]

    expected = run(chain)
    compiled = fb.compile(chain)
    for _ in range(_programs.FUSED_AFTER + 2):
        found = run(compiled)
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert a == b if isinstance(a, list) else same(a, b)


def activation(x: fb.Tensor, w: fb.Tensor, b: fb.Tensor) -> fb.Tensor:
    y = x * w + b
    return (0.5 * y * (1 + (0.79788456 * (y + 0.044715 * y * y * y)).tanh())).sigmoid() * x


def warm(f: Any, *args: Any) -> Any:
    for _ in range(_programs.FUSED_AFTER):
        f(*args)
    return f(*args)


def three() -> list[fb.Tensor]:
    fb.manual_seed(0)
    return [fb.randn(SHAPE, requires_grad=True), fb.randn(256, requires_grad=True), fb.randn(SHAPE, requires_grad=True)]


def test_the_gradients_of_a_chain_are_one_kernel(groups: list[bool]) -> None:
    inputs, compiled = three(), fb.compile(activation)
    expected = fb.autograd.grad(activation(*inputs).sum(), inputs)
    found = fb.autograd.grad(warm(compiled, *inputs).sum(), inputs)

    assert groups == [True]
    assert all(same(a, b) for a, b in zip(found, expected, strict=True))


def test_the_history_of_a_chain_is_that_of_its_operations() -> None:
    def nodes(node: Any) -> list[Any]:
        return [node.name(), *[nodes(n) if n is not None else None for n, _ in node.next_functions]]

    inputs, compiled = three(), fb.compile(activation)

    assert nodes(warm(compiled, *inputs).grad_fn) == nodes(activation(*inputs).grad_fn)


def test_nodes_of_a_chain_show_what_operations_save() -> None:
    inputs, compiled = three(), fb.compile(lambda x, w, b: (x * w + b).exp())
    node, expected = warm(compiled, *inputs).grad_fn, (inputs[0] * inputs[1] + inputs[2]).exp().grad_fn
    assert same(node._saved_result, expected._saved_result)
    product = node.next_functions[0][0].next_functions[0][0]
    assert product._saved_self.data_ptr() == inputs[0].data_ptr()


def test_a_chain_is_freed_by_its_first_backward_and_kept_on_demand() -> None:
    inputs, compiled = three(), fb.compile(activation)
    loss = warm(compiled, *inputs).sum()
    first = fb.autograd.grad(loss, inputs, retain_graph=True)
    second = fb.autograd.grad(loss, inputs)

    assert all(same(a, b) for a, b in zip(first, second, strict=True))
    with pytest.raises(RuntimeError, match="a second time"):
        fb.autograd.grad(loss, inputs)


def test_what_a_chain_saves_may_not_be_overwritten() -> None:
    inputs, compiled = three(), fb.compile(activation)
    loss = warm(compiled, *inputs).sum()
    with fb.no_grad():
        inputs[0].add_(1)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_what_no_operation_of_a_chain_saves_may_be_overwritten(groups: list[bool]) -> None:
    def f(x: fb.Tensor, b: fb.Tensor) -> fb.Tensor:
        y = x + b
        return y * y.exp() + y

    x, b, compiled = fb.randn(SHAPE, requires_grad=True), fb.randn(SHAPE), fb.compile(f)
    (expected,) = fb.autograd.grad(f(x, b).sum(), x)
    loss = warm(compiled, x, b).sum()
    with fb.no_grad():
        x.zero_()
        b.zero_()
    (found,) = fb.autograd.grad(loss, x)

    assert groups == [True]
    assert same(found, expected)


def test_a_chain_may_not_save_what_inference_mode_has_made() -> None:
    inputs, compiled = three(), fb.compile(activation)
    warm(compiled, *inputs)
    with fb.inference_mode():
        inputs[0] = fb.randn(SHAPE)

    with pytest.raises(RuntimeError, match="cannot be saved for backward"):
        compiled(*inputs)


def test_results_that_are_overwritten_are_noticed() -> None:
    x = fb.randn(SHAPE, requires_grad=True)
    compiled = fb.compile(lambda x: (x * 2).exp())
    y = warm(compiled, x)
    loss = y.sum()
    y.detach().zero_()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_hooks_between_the_operations_of_a_chain_meet_their_gradients() -> None:
    def f(x: fb.Tensor) -> Any:
        y = x.sin()
        z = y * 3
        return y, (z.exp() + y) * z

    def run(f: Any) -> list[Any]:
        x = fb.linspace(-1, 1, SHAPE[0] * SHAPE[1]).view(SHAPE).requires_grad_()
        y, z = f(x)
        seen: list[Any] = []
        y.register_hook(lambda g: seen.append(g))
        z.grad_fn.next_functions[0][0].register_hook(lambda given, arrived: seen.extend(given))
        z.sum().backward()
        return [*seen, x.grad]

    compiled = fb.compile(f)
    found = warm(run, compiled)

    assert all(same(a, b) for a, b in zip(found, run(f), strict=True))


def test_gradients_that_go_to_one_leaf_in_turns_are_added_in_their_order(groups: list[bool]) -> None:
    def f(x: fb.Tensor, s: fb.Tensor) -> fb.Tensor:
        a = x.sin() * 1.1
        b = a + x.cos() * x[0] * s
        return (b * x).tanh() + x

    def run(f: Any) -> list[Any]:
        fb.manual_seed(1)
        x, s = fb.randn(SHAPE, requires_grad=True), fb.randn((), requires_grad=True)
        first = x.exp() * 0.3
        (f(x, s) * first + x * x).sum().backward()
        return [x.grad, s.grad]

    compiled = fb.compile(f)
    found = warm(run, compiled)

    assert True in groups
    assert all(same(a, b) for a, b in zip(found, run(f), strict=True))


def test_training_steps_of_a_network_give_the_same_parameters(groups: list[bool]) -> None:
    def train(compile: Any) -> list[fb.Tensor]:
        fb.manual_seed(0)
        net = fb.nn.Sequential(fb.nn.Linear(64, 128), fb.nn.GELU(), fb.nn.Linear(128, 64))
        scale = fb.nn.Parameter(fb.randn(64))

        def gate(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
            return (x * scale).sigmoid() * y + (y - x) * 0.1

        gate = compile(gate)
        optimizer = fb.optim.AdamW([*net.parameters(), scale], 1e-2)
        for _ in range(6):
            x = fb.randn(64, 64)
            loss = (gate(net(x), x) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return [*net.parameters(), scale]

    expected, found = train(lambda f: f), train(fb.compile)

    assert True in groups
    assert all(same(a, b) for a, b in zip(found, expected, strict=True))


def test_results_have_no_history_where_none_is_recorded() -> None:
    def f(x: fb.Tensor, w: fb.Tensor) -> Any:
        y = x * w + 1
        return y.requires_grad, y.sin()

    compiled, x, w = fb.compile(f), fb.randn(SHAPE), fb.randn(SHAPE, requires_grad=True)
    for _ in range(2):
        assert [(a, b.requires_grad) for a, b in [warm(compiled, x, w)]] == [(True, True)]
        with fb.no_grad():
            assert [(a, b.requires_grad) for a, b in [warm(compiled, x, w)]] == [(False, False)]


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64])
def test_gradients_of_fused_chains_have_the_dtype_of_other_tensors(dtype: Any) -> None:
    x = fb.randn(80, 70, dtype=dtype, requires_grad=True)
    compiled = fb.compile(lambda x: x.sin() * 0.7)
    for _ in range(_programs.FUSED_AFTER + 2):
        (grad,) = fb.autograd.grad(compiled(x).sum(), x)

        assert grad.numpy().dtype.isbuiltin
        assert same(grad @ grad.t(), fb.tensor(grad.tolist(), dtype=dtype) @ fb.tensor(grad.tolist(), dtype=dtype).t())


def test_zeros_keep_the_signs_that_sums_of_gradients_give_them() -> None:
    fb.manual_seed(5)
    x, y = fb.randn(16, 256, requires_grad=True), fb.randn(16, 128, requires_grad=True)

    def f(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        part = x[:, 128:]                             # whose gradient comes after that of the whole
        made = x.tanh() * fb.cat([y, part], 1)
        return made[:, 128:]                          # so gradients of the rest are zeros of both signs

    def step(call: Any) -> list[fb.Tensor]:
        return list(fb.autograd.grad(call(x, y).sum(), (x, y)))

    expected, compiled = step(f), fb.compile(f)
    for _ in range(_programs.FUSED_AFTER + 2):
        found = step(compiled)
    assert all(same(a, b) for a, b in zip(found, expected, strict=True))


turn = st.tuples(
    st.sampled_from(["tanh", "sigmoid", "abs", "square", "neg"]), st.sampled_from(["add", "mul", "sub"]), st.integers(0, 9),
    st.integers(0, 9), st.sampled_from(["wide", "wide", "narrow", "narrow", "cut", "join", "fold"]),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(turn, min_size=4, max_size=12))
def test_chains_of_two_shapes_that_take_turns_have_the_gradients_of_their_operations(plan: list[Any]) -> None:
    fb.manual_seed(5)
    inputs = [fb.randn(16, 256, requires_grad=True), fb.randn(16, 128, requires_grad=True)]

    def f(x: fb.Tensor, y: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
        wide, narrow = [x], [y, x[:, :128]]
        for unary, binary, i, j, what in plan:
            if what == "cut":
                narrow.append(wide[i % len(wide)][:, 128:])
            elif what == "join":
                wide.append(fb.cat([narrow[i % len(narrow)], narrow[j % len(narrow)]], 1))
            elif what == "fold":
                narrow.append(narrow[i % len(narrow)] * wide[j % len(wide)].sum(1, keepdim=True))
            else:
                values = wide if what == "wide" else narrow
                values.append(getattr(fb, binary)(getattr(fb, unary)(values[i % len(values)]), values[j % len(values)]))
        return wide[-1], narrow[-1]

    def step(call: Any) -> list[fb.Tensor]:
        made = call(*inputs)
        return [*made, *fb.autograd.grad((made[0] * 0.5).sum() + made[1].sum(), inputs, allow_unused=True)]

    expected, compiled = step(f), fb.compile(f)
    for _ in range(_programs.FUSED_AFTER + 2):
        found = step(compiled)
    assert all(same(a, b) for a, b in zip(found, expected, strict=True))
