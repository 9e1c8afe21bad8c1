"""What the engine hands to hooks, to `autograd.grad` and to leaves: in which order, dtype and layout; and deep nesting."""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

import pytest

import flambeau as fb


def noting(log, name, result=None):
    """A hook that notes its name in `log`, and what `result` makes of the gradient it returns."""

    def hook(grad):
        log.append(name)
        return None if result is None else result(grad)

    return hook


def hooked(log):
    """A leaf and its double, with hooks of every kind on both that note in `log` when they are called."""
    x = fb.ones(2, requires_grad=True)
    y = x * 2
    y.grad_fn.register_prehook(noting(log, "pre of y"))
    y.register_hook(noting(log, "y"))
    y.grad_fn.register_hook(lambda grads, arrived: log.append("post of y"))
    x.register_hook(noting(log, "x"))
    accumulate = y.grad_fn.next_functions[0][0]
    accumulate.register_hook(lambda grads, arrived: log.append(("post of x", grads, len(arrived))))
    accumulate.register_prehook(noting(log, "pre of x"))
    x.register_post_accumulate_grad_hook(lambda p: log.append(("added", p.grad.tolist())))
    return x, y


OF_X = ["x", "pre of x", ("added", [2.0, 2.0]), ("post of x", (), 1)]


def test_hooks_run_in_the_order_of_pytorch():
    log = []
    _, y = hooked(log)

    y.sum().backward()

    assert log == ["y", "pre of y", "post of y", *OF_X]


def test_grad_runs_no_hooks_of_the_node_that_accumulates():
    log = []
    x, y = hooked(log)

    fb.autograd.grad(y.sum(), x)

    assert log == ["y", "pre of y", "post of y", "x"]


def test_backward_to_some_inputs_runs_all_their_hooks():
    log = []
    x, y = hooked(log)

    y.sum().backward(inputs=[x])

    assert log[3:] == OF_X


def test_grad_of_a_result_runs_the_hooks_of_the_tensor_but_not_of_its_node():
    log = []
    _, y = hooked(log)

    fb.autograd.grad(y.sum(), y)

    assert log == ["y"]


def test_backward_to_a_result_runs_its_node():
    log = []
    _, y = hooked(log)

    y.sum().backward(inputs=[y])

    assert log == ["y", "pre of y", "post of y"]


def test_a_retained_gradient_is_added_once_by_backward_to_that_tensor():
    x = fb.ones(2, requires_grad=True)
    y = x * 2
    y.retain_grad()

    (y * 3).sum().backward(inputs=[y, x])

    assert (y.grad.tolist(), x.grad.tolist()) == ([3.0, 3.0], [6.0, 6.0])


@pytest.mark.parametrize(
    ("with_x", "expected"),
    [(False, [[6.0, 6.0]]), (True, [[3.0, 3.0], [12.0, 12.0]])],  # PyTorch's: looked at early where the node runs
    ids=["alone", "with what it was made of"],
)
def test_grad_of_a_result_whose_hook_doubles(with_x, expected):
    x = fb.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda grad: grad * 2)

    grads = fb.autograd.grad((y * 3).sum(), [y, x] if with_x else [y])

    assert [g.tolist() for g in grads] == expected


def test_a_hook_before_a_node_must_return_a_tuple_of_as_many():
    x = fb.ones(2, requires_grad=True)
    for wrong, error in ((lambda grads: grads[0], TypeError), (lambda grads: grads * 2, RuntimeError)):
        y = x * 2
        y.grad_fn.register_prehook(wrong)
        with pytest.raises(error):
            y.sum().backward()


class Both(fb.autograd.Function):
    """Twice and three times the argument."""

    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, double, triple):
        return double * 2 + triple * 3


def test_hooks_of_several_results_run_together_in_order_of_the_results():
    log = []
    double, triple = Both.apply(fb.tensor(1.0, requires_grad=True))
    triple.register_hook(noting(log, "triple", lambda grad: grad * 10))
    double.register_hook(noting(log, "double"))
    double.grad_fn.register_prehook(lambda grads: log.append([g.item() for g in grads]))

    (triple * 2 + double).backward()

    assert log == ["double", "triple", [1.0, 20.0]]


def test_a_hook_of_a_result_that_takes_no_part_sees_none():
    seen = []
    double, triple = Both.apply(fb.ones(2, requires_grad=True))
    triple.register_hook(seen.append)

    double.sum().backward()

    assert seen == [None]


def test_hooks_of_nodes_see_the_results_that_can_have_gradients():
    seen = []
    values, _ = fb.arange(3.0, requires_grad=True).sort()
    values.grad_fn.register_prehook(lambda grads: seen.append(len(grads)))

    values.sum().backward()

    assert seen == [1]


def test_hooks_survive_switching_requires_grad_off_and_on():
    log = []
    x = fb.ones(2, requires_grad=True)
    before = x * 2
    x.register_hook(noting(log, "hook"))
    x.register_post_accumulate_grad_hook(noting(log, "added"))

    x.requires_grad_(False).requires_grad_(True)
    (x * 3).sum().backward()

    assert log == ["hook", "added"]
    assert fb.autograd.grad(before.sum(), x)[0].tolist() == [2.0, 2.0]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.filterwarnings("ignore:backward hook .* will not be serialized")
@pytest.mark.parametrize("kind", [fb.Tensor, fb.nn.Parameter])
def test_copies_have_none_of_the_history_of_what_they_copy(copied, kind):
    x = fb.ones(2) if kind is fb.Tensor else fb.nn.Parameter(fb.ones(2))
    x.requires_grad_(True).register_hook(lambda grad: grad * 7)
    y = copied(x.requires_grad_(False)).requires_grad_(True)

    (y * 1).sum().backward()

    assert type(y) is kind
    assert y.grad.tolist() == [1.0, 1.0]
    assert x.grad is None


def test_a_leaf_that_requires_no_grad_any_more_gets_none():
    x = fb.ones(2, requires_grad=True)
    y = (x * x).sum()
    x.requires_grad_(False)

    y.backward()

    assert x.grad is None


def hooks_of(x):
    return x._backward_hooks


def test_hooks_of_a_tensor_can_be_set_and_read():
    log = []
    x = fb.ones(2, requires_grad=True)
    x._backward_hooks = {0: noting(log, "set")}
    (x * 2).sum().backward()
    x._backward_hooks = None
    (x * 2).sum().backward()
    assert not hooks_of(x)
    handle = x.register_hook(noting(log, "registered"))

    assert log == ["set"]
    assert len(hooks_of(x)) == 1
    handle.remove()
    assert len(hooks_of(x)) == 0


def test_hooks_can_be_set_before_a_tensor_requires_grad():
    log = []
    x = fb.ones(2)
    x._backward_hooks = {0: noting(log, "set")}

    (x.requires_grad_() * 2).sum().backward()

    assert log == ["set"]


def test_grad_can_be_set_by_its_other_name():
    x = fb.ones(2, requires_grad=True)
    x._grad = fb.ones(2)

    assert x.grad is x._grad
    with pytest.raises(RuntimeError, match="size"):
        x._grad = fb.ones(3)
    del x._grad
    assert x.grad is None


# -- dtype -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("made", [lambda x: x, lambda x: x.view(2)[:2], lambda x: fb.cat([x, x])[2:]])
@pytest.mark.parametrize("given", [fb.float64, fb.float16])
def test_gradients_have_the_dtype_of_their_tensor_whatever_is_given(made, given, create_graph):
    x = fb.ones(2, requires_grad=True)

    (grad,) = fb.autograd.grad(made(x), x, fb.ones(2, dtype=given), create_graph=create_graph)
    made(x).backward(fb.ones(2, dtype=given), create_graph=create_graph)

    assert grad.dtype is x.grad.dtype is fb.float32


# -- layout ----------------------------------------------------------------------------------------------------------------


LAYOUTS = {
    "rows": fb.ones(2, 3, 4, 5),
    "channels_last": fb.ones(2, 3, 4, 5).contiguous(memory_format=fb.channels_last),
    "permuted": fb.ones(3, 5, 2, 4).permute(2, 0, 3, 1),
    "with gaps": fb.ones(4, 3, 8, 5)[::2, :, ::2],
    "expanded": fb.ones(1, 3, 1, 5).expand(2, 3, 4, 5),
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize(
    "f",
    [lambda x: x.sum(), lambda x: (x * fb.ones(2, 3, 4, 5)).sum(), lambda x: (x.permute(3, 2, 1, 0) * fb.ones(5, 4, 3, 2)).sum()],
    ids=["broadcast", "rows", "turned"],
)
@pytest.mark.parametrize("name", LAYOUTS)
def test_grad_lies_in_memory_as_its_leaf_does(name, f, create_graph):
    x = LAYOUTS[name].detach().requires_grad_()
    expected = (60, 20, 5, 1) if name in ("rows", "with gaps", "expanded") else x.stride()

    for _ in range(2):
        f(x).backward(create_graph=create_graph)

        assert x.grad.stride() == expected
    assert x.grad.eq(2).all()


def test_the_gradient_of_a_channels_last_convolution_is_channels_last():
    conv = fb.nn.Conv2d(3, 4, 3).to(memory_format=fb.channels_last)
    conv(fb.ones(2, 3, 8, 8)).sum().backward()

    assert conv.weight.grad.stride() == conv.weight.stride() == (27, 1, 9, 3)


def test_a_gradient_with_a_graph_shares_no_memory_with_what_was_given():
    x, given = fb.ones(2, requires_grad=True), fb.ones(2)
    x.view(2).backward(given, create_graph=True)
    x.grad.zero_()

    assert given.tolist() == [1.0, 1.0]


def test_backward_works_on_the_meta_device():
    x = fb.ones(2, 3, device="meta").t().requires_grad_()
    (x * fb.ones(3, 2, device="meta")).sum().backward()

    assert x.grad.stride() == (1, 3)


# -- tensors detached in place ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("use", [lambda y, x: y * y, lambda y, x: y.cos(), lambda y, x: y[:] * y], ids=["mul", "cos", "view"])
def test_a_saved_tensor_that_was_detached_in_place_is_noticed(use):
    x = fb.ones(2, requires_grad=True)
    y = x * 2
    z = use(y, x)
    y.detach_()

    with pytest.raises(RuntimeError, match=r"(?s)detached in-place.*instead\n.*saved it at .*test_engine"):
        z.sum().backward()


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda y, x: y + x, 3.0),  # saves nothing
        (lambda y, x: y[:] * y[:], 8.0),  # saves views, which stay attached
        (lambda y, x: y.detach() * x, 2.0),
        (lambda y, x: y * fb.ones(2), 2.0),
    ],
    ids=["add", "views", "detached", "constant"],
)
def test_detaching_in_place_does_no_harm_to_what_was_not_saved(f, expected):
    x = fb.ones(2, requires_grad=True)
    y = x * 2
    z = f(y, x)
    y.detach_()
    y.detach_()

    z.sum().backward()

    assert x.grad.tolist() == [expected, expected]


def test_a_result_saved_by_its_own_operation_may_be_detached_in_place():
    x = fb.zeros(2, requires_grad=True)
    y = x.exp()
    z = y.sum()
    y.detach_()

    z.backward()

    assert x.grad.tolist() == [1.0, 1.0]


def test_writes_before_and_after_detaching_in_place_are_still_noticed():
    x = fb.ones(2, requires_grad=True)
    for first in (lambda y: y.add_(1), lambda y: y.detach_()):
        y = x * 2
        z = y.detach() * x
        first(y)
        y.detach_()
        if y.tolist() == [2.0, 2.0]:
            y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()


def test_tensors_detached_again_and_again_take_no_more_memory():
    x = fb.ones(2, requires_grad=True)
    y = x * 2
    for _ in range(100):
        y.mul_(x)
        y.detach_()

    assert len(y._storage[-1].tensors) < 100


# -- backward inside backward ----------------------------------------------------------------------------------------------


class Deep(fb.autograd.Function):
    """Runs a backward inside its backward, `depth` times."""

    @staticmethod
    def forward(ctx, x, depth):
        ctx.depth = depth
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        if ctx.depth:
            with fb.enable_grad():
                x = fb.ones(2, requires_grad=True)
                Deep.apply(x, ctx.depth - 1).sum().backward()
            grad = grad + x.grad
        return grad, None


def test_backward_may_be_nested_2000_deep():
    x = fb.ones(2, requires_grad=True)
    Deep.apply(x, 2000).sum().backward()

    assert x.grad.tolist() == [2001.0, 2001.0]


def test_settings_of_the_thread_hold_in_nested_backwards():
    seen = []

    class Looks(fb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            seen.append((fb.is_grad_enabled(), fb.is_autocast_enabled("cpu")))
            return grad

    class Nests(fb.autograd.Function):
        @staticmethod
        def forward(ctx, x, depth):
            ctx.depth = depth
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            with fb.enable_grad():
                x = fb.ones(2, requires_grad=True)
                (Nests.apply(x, ctx.depth - 1) if ctx.depth else Looks.apply(x)).sum().backward()
            return grad, None

    with fb.autocast("cpu"):
        Nests.apply(fb.ones(2, requires_grad=True), 50).sum().backward()

    assert seen == [(False, True)]
    assert fb.is_grad_enabled()


def test_errors_come_out_of_nested_backwards():
    class Fails(fb.autograd.Function):
        @staticmethod
        def forward(ctx, x, depth):
            ctx.depth = depth
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            if not ctx.depth:
                raise ValueError("the innermost")
            with fb.enable_grad():
                Fails.apply(fb.ones(2, requires_grad=True), ctx.depth - 1).sum().backward()
            return grad, None

    with pytest.raises(ValueError, match="the innermost"):
        Fails.apply(fb.ones(2, requires_grad=True), 70).sum().backward()
    assert fb.is_grad_enabled()


# -- the order in which leaves get their gradients ---------------------------------------------------------------------------


def calls_of_hooks(lib: Any, seed: int) -> list[Any]:
    """The hooks called by the backward of a random program, each with the leaves that have a gradient by then."""
    choose = random.Random(seed)
    log: list[Any] = []
    leaves = [lib.ones(3, 3, requires_grad=True) for _ in range(5)]

    def noted(name: Any) -> Any:
        def hook(arrived: Any) -> None:
            log.append((name, [i for i, leaf in enumerate(leaves) if leaf.grad is not None]))

        return hook

    for i, leaf in enumerate(leaves):                 # every one, for among leaves without hooks PyTorch's order is not told
        choose.choice([leaf.register_hook, leaf.register_post_accumulate_grad_hook])(noted(("leaf", i)))
    values = list(leaves)
    for k in range(choose.randint(3, 12)):
        a, b = choose.choice(values), choose.choice(values)
        made = eval(choose.choice(["a + b", "a * b", "a @ b", "a.t()", "lib.stack(a.unbind())"]), {"a": a, "b": b, "lib": lib})
        if choose.random() < 0.2:
            made.register_hook(noted(("result", k)))
        values.append(made)
    (values[-1] + values[-2]).sum().backward()
    return log


def test_leaves_get_their_gradients_as_soon_as_these_are_complete_as_in_pytorch(oracle):
    wrong = [seed for seed in range(150) if calls_of_hooks(fb, seed) != calls_of_hooks(oracle, seed)]

    assert not wrong


def test_hooks_of_parameters_are_called_in_the_order_of_pytorch(oracle):
    def order(lib: Any) -> list[str]:
        log: list[str] = []
        net = lib.nn.Sequential(
            lib.nn.Conv2d(1, 2, 3), lib.nn.BatchNorm2d(2), lib.nn.ReLU(), lib.nn.Flatten(), lib.nn.Linear(8, 4), lib.nn.LayerNorm(4),
            lib.nn.Linear(4, 2),
        )  # fmt: skip
        for name, p in net.named_parameters():
            p.register_post_accumulate_grad_hook(lambda p, name=name: log.append(name))
        net(lib.ones(2, 1, 4, 4)).sum().backward()
        return log

    assert order(fb) == order(oracle) == [
        "6.bias", "6.weight", "5.weight", "5.bias", "4.bias", "4.weight", "1.weight", "1.bias", "0.weight", "0.bias",
    ]  # fmt: skip


def test_a_leaf_with_a_hook_that_is_used_twice_is_called_once_with_the_sum():
    log = []
    x = fb.ones(2, requires_grad=True)
    x.register_hook(lambda grad: log.append(grad.tolist()))
    y = (x * 2).exp().log()

    (y + x).sum().backward(retain_graph=True)
    (y + x).sum().backward(inputs=[x], retain_graph=True)

    assert log == [[3.0, 3.0], [3.0, 3.0]]
    assert x.grad.tolist() == [6.0, 6.0]
    assert fb.autograd.grad((y + x).sum(), x)[0].tolist() == [3.0, 3.0]


def test_metadata_is_a_method_of_the_class_and_a_dict_on_nodes(oracle):
    for lib in (fb, oracle):
        node = lib.ones(1, requires_grad=True).exp().grad_fn
        node.metadata["name"] = 1

        assert callable(lib.autograd.graph.Node.metadata)
        assert node.metadata == {"name": 1}
