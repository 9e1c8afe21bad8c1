"""Hooks on saved tensors, edges, hooks on several gradients, anomaly mode, and errors that name both lines."""

from __future__ import annotations

import pathlib
import re

import numpy as np
import pytest

import flambeau as fb
from flambeau.autograd import graph, tape

F = fb.nn.functional


def leaf(*values):
    return fb.tensor(values, dtype=fb.float64, requires_grad=True)


def gradient(f, *values):
    x = leaf(*values)
    f(x).sum().backward()
    return x.grad.numpy()


FUNCTIONS = {
    "exp": lambda x: x.exp() * x,
    "product": lambda x: x.reshape(1, -1) @ x.reshape(-1, 1),
    "softmax": lambda x: F.softmax(x, 0) ** 2,
    "prod": lambda x: x.prod(),
    "sort": lambda x: x.sort()[0] * x,
    "cat": lambda x: fb.cat([x, x * x]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_saved_tensors_may_be_kept_elsewhere(name):
    f = FUNCTIONS[name]
    store = []

    def pack(t):
        store.append(t.numpy().copy())
        return len(store) - 1

    def hooked(x):
        with graph.saved_tensors_hooks(pack, lambda i: fb.from_numpy(store[i])):
            return f(x)

    np.testing.assert_allclose(gradient(hooked, 0.5, 1.5, -1.0), gradient(f, 0.5, 1.5, -1.0))
    assert store or name == "cat"


def test_hooks_apply_at_each_backward():
    unpacked = []
    x = leaf(1.0, 2.0)
    with graph.saved_tensors_hooks(lambda t: t, lambda t: unpacked.append(1) or t):
        y = (x.sin() * 2).sum()

    y.backward(retain_graph=True), y.backward()

    assert len(unpacked) == 2
    np.testing.assert_allclose(x.grad.numpy(), 4 * np.cos([1.0, 2.0]))


def test_higher_derivatives_pass_through_hooks():
    x = leaf(2.0)
    with graph.save_on_cpu():
        (g,) = fb.autograd.grad((x**3).sum(), x, create_graph=True)
        (h,) = fb.autograd.grad(g.sum(), x)

    assert h.item() == 12.0


def test_hooks_can_be_forbidden():
    with graph.disable_saved_tensors_hooks("not here"), pytest.raises(RuntimeError, match="not here"):  # noqa: SIM117
        with graph.save_on_cpu():
            pass


def test_saved_tensors_may_be_overwritten_where_allowed():
    x = leaf(0.3, 0.7)
    with graph.allow_mutation_on_saved_tensors():
        a = x.clone()
        b = a.sin()
        a.mul_(3).cos_()
        (a.sum() + b.sum()).backward()

    np.testing.assert_allclose(x.grad.numpy(), np.cos([0.3, 0.7]) - 3 * np.sin(3 * np.array([0.3, 0.7])))


def test_edges_stand_for_tensors():
    x = leaf(1.0, 2.0)
    y = x * 3
    edge = graph.get_gradient_edge(y)

    (g,) = fb.autograd.grad(y.sum() * 2, edge, retain_graph=True)
    (h,) = fb.autograd.grad(edge, x, grad_outputs=fb.ones(2, dtype=fb.float64))

    assert (g.tolist(), h.tolist()) == ([2.0, 2.0], [3.0, 3.0])
    assert isinstance(edge.node, graph.Node)
    with pytest.raises(RuntimeError, match="require"):
        graph.get_gradient_edge(fb.ones(1))


def test_a_hook_on_several_gradients():
    a, b, unused = leaf(1.0), leaf(2.0), leaf(3.0)
    seen, first = [], []
    handles = [
        graph.register_multi_grad_hook([a, b, unused], lambda gs: seen.append([None if g is None else g.item() for g in gs])),
        graph.register_multi_grad_hook([a, b], lambda g: first.append(g.item()), mode="any"),
    ]
    for _ in range(2):
        (a * b).sum().backward()
    for handle in handles:
        handle.remove()
    (a * b).sum().backward()

    assert seen == [[2.0, 1.0, None]] * 2
    assert len(first) == 2


def test_a_version_raised_by_hand_is_noticed():
    x = leaf(1.0)
    y = x.exp()
    graph.increment_version(y)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


# -- anomaly mode and errors ---------------------------------------------------------------------------------------------


def test_an_overwriting_line_is_always_named():
    x = leaf(1.0, 2.0)
    y = x.exp()
    y.add_(1)  # the guilty line

    with pytest.raises(RuntimeError, match=r"ExpBackward0 saved its result.*y\.add_\(1\)  # the guilty line"):
        y.sum().backward()


def test_both_lines_are_named_in_anomaly_mode():
    x = leaf(1.0, 2.0)
    with fb.autograd.set_detect_anomaly(True):
        y = x.exp()  # the saving line
        with fb.no_grad():
            y.detach().mul_(2)  # the guilty line
        both = r"x\.exp\(\)  # the saving line, and mul_ at .*# the guilty line"
        with pytest.warns(UserWarning, match="Error detected in ExpBackward0"), pytest.raises(RuntimeError, match=both):
            y.sum().backward()


def test_a_used_up_graph_names_the_line_that_recorded_it():
    x = leaf(1.0)
    with fb.autograd.set_detect_anomaly(True):
        y = x.exp()  # recorded here
    y.backward()

    with pytest.raises(RuntimeError, match=r"second time: what ExpBackward0 saved at .*# recorded here.*retain_graph=True"):
        y.backward()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's division by zero, which pytest.warns lets through
def test_the_operation_that_made_nan_is_named_with_its_line():
    x = leaf(0.0, 1.0)
    with fb.autograd.set_detect_anomaly(True):
        y = x.sqrt() * 0  # nan here
        with pytest.warns(UserWarning, match="# nan here"), pytest.raises(RuntimeError, match="'SqrtBackward0' returned nan"):
            y.sum().backward()

    assert not fb._state.local.calls.interpreters


def test_nan_passes_when_it_is_not_looked_for():
    x = leaf(0.0)
    with fb.autograd.set_detect_anomaly(True, check_nan=False):
        (x.sqrt() * 0).sum().backward()

    assert np.isnan(x.grad.item())


def test_variable_is_the_tensor_of_old():
    made = fb.autograd.Variable(fb.ones(1), requires_grad=True)

    assert made.requires_grad
    assert isinstance(made, fb.autograd.Variable)


def test_overwriting_what_was_saved_names_both_lines():
    x = fb.ones(3, requires_grad=True)
    y = x * 2
    product = (y * y).sum()  # saves y
    y.add_(1)  # overwrites y

    with pytest.raises(RuntimeError, match=r"(?s)MulBackward0 saved.*# saves y.*AddBackward0 at.*# overwrites y"):
        product.backward()


def test_the_line_that_saved_is_the_users_own_also_through_modules():
    x = fb.ones(3, 3)
    net = fb.nn.Sequential(fb.nn.Linear(3, 3), fb.nn.Tanh())
    hidden = net(x)  # saves its result
    hidden.mul_(2)

    with pytest.raises(RuntimeError, match=r"TanhBackward0 saved its result.*# saves its result"):
        hidden.sum().backward()


def test_a_second_backward_names_what_was_freed_and_where_it_was_saved():
    x = fb.ones(3, requires_grad=True)
    total = (x * x).sum()  # the line
    total.backward()

    with pytest.raises(RuntimeError, match=r"what MulBackward0 saved at .*# the line was freed"):
        total.backward()


def test_a_graph_that_saved_no_tensor_runs_any_number_of_times():
    x = fb.ones(3, requires_grad=True)
    total = (x + 1).view(3, 1).mean()
    total.backward()
    total.backward()

    assert x.grad.tolist() == pytest.approx([2 / 3] * 3)


def test_a_function_of_ones_own_names_both_lines():
    class Square(fb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 2 * x * grad

    x = fb.ones(3, requires_grad=True) * 1
    y = Square.apply(x)  # saves x
    x.add_(1)  # overwrites x

    with pytest.raises(RuntimeError, match=r"SquareBackward.* at .*# saves x saved .*# overwrites x overwrote"):
        y.sum().backward()


def test_of_hooks_inside_hooks_the_innermost_packs():
    outer, inner = [], []
    x = leaf(1.0, 2.0)
    with graph.saved_tensors_hooks(lambda t: (outer.append(t), t)[1], lambda t: t):
        y = x.exp()
        with graph.saved_tensors_hooks(lambda t: (inner.append(t), t)[1], lambda t: t):
            y = y.sin()
    y.sum().backward()

    assert (len(outer), len(inner)) == (1, 1)


def test_hooks_leave_alone_what_was_recorded_before():
    packed = []
    y = leaf(1.0, 2.0).exp()
    with graph.saved_tensors_hooks(lambda t: packed.append(t), lambda t: t):
        assert y.contiguous() is y

    assert not packed


def test_a_graph_with_hooks_is_freed_by_backward():
    x = leaf(1.0)
    with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        y = x.exp()
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_custom_operations_under_hooks_can_be_differentiated_twice():
    class Square(fb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, None)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * ctx.saved_tensors[0] * grad

    x = leaf(3.0)
    with graph.saved_tensors_hooks(lambda t: t.numpy(), fb.from_numpy):
        y = Square.apply(x)
    (first,) = fb.autograd.grad(y, x, create_graph=True)

    assert fb.autograd.grad(first, x)[0].item() == 2.0


def test_one_text_makes_all_nodes_but_leaves():
    making = re.compile(r"\.hooks = None|new\(Node\)|node_class\(\)|__\(\w*\.?node_class")
    root = pathlib.Path(fb.__file__).parent
    found = {str(path.relative_to(root)): len(made) for path in root.rglob("*.py") if (made := making.findall(path.read_text()))}

    assert found == {"autograd/tape.py": 2}  # leaves; `autograd/making.py` writes the slots one by one


def test_nodes_lead_to_the_line_of_the_program_that_made_them():
    x = fb.ones(2, 2, requires_grad=True)
    for made in (x.exp(), x.amax(), x @ x, x.softmax(0), x.max(0).values, fb.cumprod(x, 0)):
        node = made.grad_fn if made.grad_fn.saved else made.grad_fn.parents[0]
        assert __file__ in tape.shown_line(node.where)


def test_tensors_of_the_host_are_not_page_locked_to_wait_for_backward():
    x = fb.ones(2, requires_grad=True)
    with graph.save_on_cpu(pin_memory=True):
        y = x.exp()
    y.sum().backward()

    assert fb.equal(x.grad, x.detach().exp())


def test_reading_a_node_did_not_become_slower_by_what_it_shows_of_what_it_has_saved():
    """A class with `__getattr__` reads its slots ten times slower, and backward reads a dozen of each node."""
    x = fb.ones(3, requires_grad=True)
    y = (x * x).sum()

    assert not hasattr(type(y._node), "__getattr__")
    assert y.grad_fn is y._node
    assert y.grad_fn._saved_self_sym_sizes == (3,)
    product = y.grad_fn.next_functions[0][0]
    assert product is y._node.parents[0]
    assert product._saved_self.equal(x)
    assert type(product).__name__ == product.name() == "MulBackward0"
    assert type(product) is type((x * x).grad_fn)
    with pytest.raises(AttributeError, match="nothing"):
        product._saved_nothing  # noqa: B018
    y.backward()
    assert x.grad.equal(2 * x)
    with pytest.raises(RuntimeError, match="second time"):
        product._saved_self  # noqa: B018


def test_hooks_meet_nodes_in_the_order_of_their_gradients_when_two_ways_lead_to_one():
    """The next node is mostly the first parent of the last; a newer one on another way comes before it."""
    order = []
    x = fb.ones(2, requires_grad=True)
    old = x * 2.0
    young = x.exp()
    younger = young.sin()
    out = old * younger                               # the first parent is older than the second, and than that one's parent
    for name, t in (("old", old), ("young", young), ("younger", younger)):
        t.grad_fn.register_prehook(lambda grads, name=name: order.append(name))
    out.sum().backward()
    assert order == ["younger", "young", "old"]


@pytest.mark.parametrize(("name", "call"), [
    ("StackBackward0", lambda x, y: fb.stack([x, y])), ("RepeatBackward0", lambda x, y: x.repeat(2)),
    ("AddmmBackward0", lambda x, y: fb.addmm(x, x[None], y[:, None] * x)), ("RenormBackward0", lambda x, y: x[None].renorm(2, 0, 1.0)),
    ("DistBackward0", lambda x, y: fb.dist(x, y)), ("MseLossBackward0", lambda x, y: F.mse_loss(x, y, reduction="sum")),
    ("SmoothL1LossBackward0", F.smooth_l1_loss), ("HuberLossBackward0", F.huber_loss),
    ("BinaryCrossEntropyWithLogitsBackward0", lambda x, y: F.binary_cross_entropy_with_logits(x, y.detach())),
    ("VarMeanBackward0", lambda x, y: fb.var_mean(x)[1]), ("AminmaxBackward0", lambda x, y: fb.aminmax(x).min),
    ("PixelShuffleBackward0", lambda x, y: F.pixel_shuffle(fb.stack([x] * 4)[None, :, None], 2)),
    ("ComplexBackward0", fb.complex), ("DiagEmbedBackward0", lambda x, y: fb.diag_embed(x)),
    ("GluBackward0", lambda x, y: F.glu(x.repeat(2))),
    ("BernoulliBackward0", lambda x, y: fb.bernoulli(x)), ("NormalBackward3", fb.normal), ("PoissonBackward0", lambda x, y: fb.poisson(x)),
])  # fmt: skip
def test_nodes_are_named_as_in_pytorch(name, call):
    x, y = leaf(0.2, 0.5, 0.9), leaf(0.1, 0.4, 1.0)
    made = call(x, y)

    assert type(made.grad_fn).__name__ == made.grad_fn.name() == name
    assert f"grad_fn=<{name}>" in repr(made)
    made.abs().sum().backward()
    assert x.grad.shape == x.shape


def test_a_composition_that_gives_its_operand_leaves_its_node_alone():
    x = leaf(0.2, 0.5, 0.9)
    y = x * 2

    assert fb.stack([y[0]]).grad_fn.name() == "StackBackward0"
    assert y.grad_fn.name() == "MulBackward0"
    with fb.no_grad():
        assert fb.stack([y, y]).grad_fn is None
