"""`cond`, `while_loop`, `map`, `scan` and `associative_scan` compute what PyTorch's compute."""

from __future__ import annotations

import importlib

import pytest

import flambeau as fb
from flambeau._higher_order_ops import associative_scan, cond, map, scan, while_loop
from flambeau.fx.experimental.proxy_tensor import make_fx

torch = pytest.importorskip("torch")


def test_cond_runs_the_function_that_is_chosen():
    ran = []

    def chosen(name):
        return lambda x: ran.append(name) or x + len(name)

    x = fb.ones(2, requires_grad=True)
    for pred, value in ((True, 4), (fb.tensor([False]), 5), (fb.tensor(2.0), 4), (0, 5)):
        assert fb.cond(pred, chosen("yes"), chosen("no!!"), (x,)).tolist() == [1.0 + (3 if value == 4 else 4)] * 2
    assert ran == ["yes", "no!!", "yes", "no!!"]
    (grad,) = fb.autograd.grad(fb.cond(True, lambda x: (x * 3).sum(), lambda x: x.sum(), (x,)), x)
    assert grad.tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda t: (t.ones(2), abs, abs, (t.ones(1),)), "Expected pred to be bool or single-element tensor"),
        (lambda t: ("a", abs, abs, (t.ones(1),)), "Expected pred to be bool or tensor, but got a."),
        (lambda t: (t.tensor(True), abs, 3, (t.ones(1),)), "Expect both branches to be callable."),
        (lambda t: (t.tensor(True), abs, abs, (3,)), "Expect operands to be a tuple of possibly nested dict/list/tuple"),
    ],
)
def test_cond_refuses_what_pytorch_refuses(arguments, message):
    for package in (fb, torch):
        with pytest.raises(RuntimeError) as error:
            package.cond(*arguments(package))
        assert message in str(error.value)


def test_while_loop_repeats_while_the_condition_holds():
    i, x = fb.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (fb.tensor(0), fb.ones(2)))

    assert (i.item(), x.tolist()) == (3, [8.0, 8.0])
    assert while_loop(lambda i: i < 3, lambda i: i + 1, (0,)) == (3,)
    assert while_loop(lambda i: i < 3, lambda i: i + 1, (5,)) == (5,)
    with pytest.raises(RuntimeError, match="must keep its structure, shapes and dtypes"):
        while_loop(lambda x: x.sum() < 3, lambda x: (x.sum(),), (fb.ones(2),))
    with pytest.raises(RuntimeError, match="cond_fn must return a bool or a tensor of one element"):
        while_loop(lambda x: x < 3, lambda x: (x,), (fb.ones(2),))
    with pytest.raises(RuntimeError, match="Expect cond_fn and body_fn to be callable"):
        while_loop(3, lambda x: (x,), (fb.ones(2),))


def test_map_and_scans_agree_with_loops():
    xs = fb.arange(6.0).view(3, 2)

    assert map(lambda x, y: x + y, xs, fb.ones(2)).tolist() == (xs + 1).tolist()
    first, second = map(lambda x: (x * 2, {"sum": x.sum()}), xs)
    assert (first.tolist(), second["sum"].tolist()) == ((xs * 2).tolist(), [1.0, 5.0, 9.0])
    carry, ys = scan(lambda c, x: (c + x, c * x), fb.zeros(2), xs)
    assert (carry.tolist(), ys.tolist()) == ([6.0, 9.0], [[0.0, 0.0], [0.0, 3.0], [8.0, 20.0]])
    carry, ys = scan(lambda c, x: (c + x, c * x), fb.zeros(3), xs, dim=1)
    assert (carry.tolist(), ys.tolist()) == ([1.0, 5.0, 9.0], [[0.0, 0.0], [0.0, 6.0], [0.0, 20.0]])
    assert scan(lambda c, x: (c + x, x.sum()), fb.zeros(3), xs, dim=-1)[1].tolist() == [6.0, 9.0]
    carry, ys = scan(lambda c, x: (c + x, c * x), fb.zeros(2), xs, reverse=True)
    assert (carry.tolist(), ys.tolist()) == ([6.0, 9.0], [[0.0, 8.0], [8.0, 15.0], [0.0, 0.0]])
    for dim in (0, 1, -1):
        made = associative_scan(lambda a, b: a + b, xs, dim, combine_mode="generic")
        assert made.tolist() == xs.cumsum(dim).tolist()
    back = associative_scan(lambda a, b: a + b, xs, 0, reverse=True, combine_mode="generic")
    assert back.tolist() == xs.flip(0).cumsum(0).flip(0).tolist()
    nested = associative_scan(lambda a, b: {"p": a["p"] * b["p"]}, {"p": xs + 1}, 0, combine_mode="generic")
    assert nested["p"].tolist() == (xs + 1).cumprod(0).tolist()


def test_scans_are_differentiable():
    x = fb.tensor([1.0, 2.0, 3.0], requires_grad=True)
    associative_scan(lambda a, b: a * b, x, 0, combine_mode="generic")[-1].backward()

    assert x.grad.tolist() == [6.0, 3.0, 2.0]


def test_mistakes_are_refused():
    with pytest.raises(RuntimeError, match="Leading dimensions of mapped xs cannot be 0"):
        map(abs, fb.zeros(0, 2))
    with pytest.raises(RuntimeError, match="Leading dimensions of mapped xs must be consistent"):
        map(abs, [fb.zeros(3), fb.zeros(2)])
    with pytest.raises(IndexError):
        map(abs, fb.tensor(3.0))
    with pytest.raises(RuntimeError, match="scan dimension > 0"):
        scan(lambda c, x: (c, x), fb.zeros(2), fb.zeros(0, 2))
    with pytest.raises(IndexError, match="but got 5"):
        scan(lambda c, x: (c, x), fb.zeros(2), fb.zeros(3, 2), dim=5)
    with pytest.raises(RuntimeError, match="requires init leaves"):
        scan(lambda c, x: (c, x), [], fb.zeros(3, 2))
    with pytest.raises(RuntimeError, match="must keep its structure, shapes and dtypes"):
        scan(lambda c, x: (c.sum(), x), fb.zeros(2), fb.zeros(3, 2))
    with pytest.raises(ValueError, match="need to be on CUDA or XPU"):
        associative_scan(lambda a, b: a + b, fb.zeros(3), 0)
    with pytest.raises(IndexError, match="Dimension out of range"):
        associative_scan(lambda a, b: a + b, fb.zeros(3), 5, combine_mode="generic")
    assert cond is fb.cond
    assert while_loop is fb.while_loop


def test_repetitions_are_recorded_as_one_node_that_runs_at_other_lengths():
    weight = fb.tensor([2.0, 3.0])
    loop = make_fx(lambda i, x: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * weight), (i, x)))
    summed = make_fx(lambda x: scan(lambda c, y: (c + y, c * y.sin()), fb.zeros(2), x))
    mapped = make_fx(lambda x: map(lambda y, z: y.sin() + z * weight, x, x[0]))

    gm = loop(fb.tensor(0), fb.ones(2))
    for start in (0, 2, 5):
        found = gm(fb.tensor(start), fb.ones(2))
        assert [x.tolist() for x in found] == [max(3, start), (weight ** max(3 - start, 0)).tolist()]
    assert [n.target.__name__ for n in gm.graph.nodes if n.op == "call_function"][:1] == ["while_loop"]
    for record, program in ((summed, lambda x: scan(lambda c, y: (c + y, c * y.sin()), fb.zeros(2), x)),
                            (mapped, lambda x: map(lambda y, z: y.sin() + z * weight, x, x[0]))):  # fmt: skip
        gm = record(fb.ones(3, 2))
        for length in (3, 5):
            x = fb.arange(2.0 * length).view(length, 2)
            leaves = fb.utils._pytree.tree_leaves
            assert [a.tolist() for a in leaves(gm(x))] == [a.tolist() for a in leaves(program(x))]
    with pytest.raises(RuntimeError, match="modifying the input"):
        make_fx(lambda x: while_loop(lambda x: x.sum() < 3, lambda x: (x.add_(1),), (x,)))(fb.zeros(2))


def test_derivatives_of_repetitions_are_recorded_step_by_step():
    def program(x):
        return fb.func.grad(lambda x: scan(lambda c, y: (c + y, c * y.sin()), fb.zeros(2), x)[1].sum())(x)

    x = fb.arange(6.0).view(3, 2)
    gm = make_fx(program)(fb.ones(3, 2))
    assert fb.allclose(gm(x), program(x))


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_associative_scans_are_recorded_as_one_node_that_runs_at_other_lengths(mode):
    weight = fb.tensor([0.5, 1.5])

    def program(x):
        made = associative_scan(lambda a, b: {"p": a["p"] * b["p"] * weight}, {"p": x}, 1, reverse=True, combine_mode="generic")
        return made["p"].sin()

    gm = make_fx(program, tracing_mode=mode, _allow_non_fake_inputs=True)(fb.ones(2, 3, 2))

    assert [n.target.__name__ for n in gm.graph.nodes if n.op == "call_function"][:1] == ["associative_scan_op"]
    for length in (2, 3, 6):
        x = fb.linspace(-1, 2, 4 * length).view(2, length, 2)
        assert fb.equal(gm(x), program(x))


def test_repetitions_are_recorded_with_symbols_for_their_lengths():
    def summed(x):
        return scan(lambda c, y: (c + y, c * y.sin()), fb.zeros(2), x)

    def mapped(x):
        return map(lambda y: y.sin(), x)

    for program in (summed, mapped):
        gm = make_fx(program, tracing_mode="symbolic", _allow_non_fake_inputs=True)(fb.ones(3, 2))
        for length in (3, 5):
            x = fb.arange(2.0 * length).view(length, 2)
            for found, expected in zip(*[fb.utils._pytree.tree_leaves(f(x)) for f in (gm, program)], strict=True):
                assert fb.equal(found, expected)


def test_a_recorded_associative_scan_of_a_function_that_changes_shapes_is_refused():
    with pytest.raises(RuntimeError, match="must keep its structure, shapes and dtypes"):
        make_fx(lambda x: associative_scan(lambda a, b: (a + b).sum(), x, 0, combine_mode="generic"))(fb.ones(3, 2))


def repetitions(package):
    ops = importlib.import_module(f"{package.__name__}._higher_order_ops")
    start = package.tensor(1.0)
    return {
        "while_loop": lambda x: ops.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * x.sin()), (package.tensor(0), x))[1],
        "associative_scan": lambda x: ops.associative_scan(lambda a, b: a * b, x, 0, combine_mode="generic"),
        "scan": lambda x: ops.scan(lambda c, v: (c * v, c + v.sin()), start.clone().requires_grad_(), x)[1],
    }


# PyTorch's scan warns of its own use of TorchScript.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["while_loop", "associative_scan", "scan"])
def test_gradients_through_repetitions_are_those_of_pytorch(name):
    torch = pytest.importorskip("torch")
    seen = []
    for package in (fb, torch):
        x = package.tensor([0.5, -1.5, 2.0, 3.0], requires_grad=True)
        y = repetitions(package)[name](x)
        (y * package.arange(4.0)).sum().backward()
        seen.append((y.tolist(), x.grad.tolist()))

    assert seen[0][0] == pytest.approx(seen[1][0])
    assert seen[0][1] == pytest.approx(seen[1][1])


@pytest.mark.parametrize("name", ["while_loop", "associative_scan", "scan"])
def test_repetitions_have_derivatives_of_both_orders_and_modes(name):
    program = repetitions(fb)[name]
    x = fb.tensor([0.5, -1.5, 0.7], dtype=fb.float64, requires_grad=True)
    if name == "scan":
        program = lambda x: scan(lambda c, v: (c * v, c + v.sin()), fb.ones((), dtype=fb.float64), x)[1]  # noqa: E731

    assert fb.autograd.gradcheck(program, (x,), check_forward_ad=True)
    assert fb.autograd.gradgradcheck(program, (x,))


@pytest.mark.parametrize("name", ["while_loop", "associative_scan", "scan"])
def test_vmap_over_repetitions_is_a_stack_of_single_ones(name):
    program = repetitions(fb)[name]
    xs = fb.linspace(-1, 2, 12).view(3, 4)

    assert fb.equal(fb.vmap(program)(xs), fb.stack([program(x) for x in xs]))
    assert fb.allclose(
        fb.vmap(fb.func.grad(lambda x: program(x).sum()))(xs), fb.stack([fb.func.grad(lambda x: program(x).sum())(x) for x in xs])
    )


def test_gradients_flow_through_recorded_repetitions():
    gm = make_fx(lambda x: associative_scan(lambda a, b: a * b, x, 0, combine_mode="generic"))(fb.ones(3))
    x = fb.tensor([1.0, 2.0, 3.0], requires_grad=True)
    gm(x)[-1].backward()

    assert x.grad.tolist() == [6.0, 3.0, 2.0]


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_a_recorded_repetition_that_is_recorded_again_repeats(mode):
    programs = {
        "while_loop": lambda x: while_loop(lambda y: y.sum() < 50, lambda y: (y * 2,), (x,))[0],
        "scan": lambda x: scan(lambda c, y: (c + y, c * y.sin()), fb.zeros(2), x)[1],
        "map": lambda x: map(lambda y: y.sin(), x),
        "associative_scan": lambda x: associative_scan(lambda a, b: a * b, x, 0, combine_mode="generic"),
    }
    for name, program in programs.items():
        once = make_fx(program, tracing_mode=mode, _allow_non_fake_inputs=True)(fb.ones(3, 2))
        twice = make_fx(once, tracing_mode=mode, _allow_non_fake_inputs=True)(fb.ones(3, 2))
        called = [getattr(n.target, "__name__", "") for n in twice.graph.nodes if n.op == "call_function"]
        assert [target for target in called if target in (name, f"{name}_op")] == [name if name == "while_loop" else f"{name}_op"]
        for length in (3, 5):
            x = fb.arange(1.0, 2 * length + 1).view(length, 2)
            assert fb.equal(twice(x), program(x))


def test_an_exported_loop_that_is_decomposed_repeats():
    class Program(fb.nn.Module):
        def forward(self, i, x):
            return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (i, x))

    program = fb.export.export(Program(), (fb.tensor(0), fb.ones(3))).run_decompositions().module()

    assert [x.tolist() for x in program(fb.tensor(1), fb.ones(3))] == [3, [4.0, 4.0, 4.0]]


def test_examples_of_a_batch_choose_their_branches():
    def program(x):
        return cond(x[0] > 1, lambda x: cond(x[1] > 4, lambda x: x * 10, lambda x: x.sin(), (x,)), lambda x: (x * x * x), (x,))

    xs = fb.arange(8.0).view(4, 2)

    assert fb.equal(fb.func.vmap(program)(xs), fb.stack([program(x) for x in xs]))
    slopes = fb.func.vmap(fb.func.grad(lambda x: program(x).sum()))(xs)
    assert fb.equal(slopes, fb.stack([fb.func.grad(lambda x: program(x).sum())(x) for x in xs]))
    first, second = fb.func.vmap(lambda x: cond(x.sum() > 5, lambda x: (x, x.sum()), lambda x: (-x, x.max()), (x,)))(xs)
    assert (first[:, 0].tolist(), second.tolist()) == ([0.0, -2.0, 4.0, 6.0], [1.0, 3.0, 9.0, 13.0])
    with pytest.raises(RuntimeError, match="both branches must give the same structure"):
        fb.func.vmap(lambda x: cond(x.sum() > 5, lambda x: x, lambda x: x[0], (x,)))(xs)
    with pytest.raises(RuntimeError, match="Reverse must be a bool"):
        scan(lambda c, x: (c, x), fb.zeros(2), xs, reverse=1)


def test_a_choice_by_a_size_is_recorded_for_all_sizes() -> None:
    def f(x: fb.Tensor) -> fb.Tensor:
        return fb.cond(x.shape[0] > 4, lambda x: x.cos(), lambda x: x.sin(), (x,))

    graph = make_fx(f, tracing_mode="symbolic")(fb.randn(4, 3))

    for n in (3, 4, 5, 9):
        x = fb.randn(n, 3)
        assert fb.equal(graph(x), f(x))
