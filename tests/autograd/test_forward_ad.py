"""Tangents in forward mode: what in-place operations, draws and custom Functions do to them."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fb
from flambeau.autograd import forward_ad

# PyTorch's forward mode scripts some of its formulas, and warns of that.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
STARTS, TANGENT = [1.0, 2.0, 3.0], [1.0, 10.0, 100.0]


def modules(oracle: Any) -> Any:
    """Both libraries, with their forward modes; PyTorch first."""
    import torch.autograd.forward_ad as theirs

    return (oracle, theirs), (fb, forward_ad)


def assign(x: Any, key: Any, value: Any) -> Any:
    x[key] = value
    return x


def test_assigning_to_a_clone_leaves_the_tangent_of_the_caller_alone() -> None:
    tangent = fb.tensor(TANGENT)
    out, found = fb.func.jvp(lambda x: assign(x.clone(), 0, x[1] * 3), (fb.tensor(STARTS),), (tangent,))

    assert out.tolist() == [6.0, 2.0, 3.0]
    assert found.tolist() == [30.0, 10.0, 100.0]
    assert tangent.tolist() == TANGENT


BODIES: dict[str, Any] = {
    "mul_": lambda x: x.mul_(2), "zero_": lambda x: x.zero_(), "fill_": lambda x: x.fill_(2), "set an element": lambda x: assign(x, 0, 5.0),
    "set from itself": lambda x: assign(x, 0, x[1] * 3), "copy_": lambda x: x.copy_(x.new_ones(3)),
    "copy_ twice": lambda x: x.copy_(x.clone() * 2),
    "part": lambda x: x[1:].mul_(3), "view": lambda x: x.view_as(x).mul_(2), "clone": lambda x: x.clone().mul_(2),
    "sum": lambda x: x.sum().mul_(2),
    "plus 0": lambda x: (x + 0).mul_(2), "plus 1": lambda x: (x + 1).mul_(2), "contiguous": lambda x: x.contiguous().mul_(2),
    "positive": lambda x: (+x).mul_(2), "reshape": lambda x: x.reshape(1, 3).mul_(2), "flatten": lambda x: x.flatten().mul_(2),
    "to": lambda x: x.to(x.dtype).mul_(2), "double": lambda x: x.double().mul_(2), "clamp": lambda x: x.clamp(-1e3, 1e3).mul_(2),
    "unsqueeze_": lambda x: x.unsqueeze_(0), "stack": lambda x: x.new_zeros(3).add_(x).mul_(2), "real": lambda x: x.real.mul_(2),
    "normal_": lambda x: x.normal_().zero_(), "drawn": lambda x: (x.uniform_(), x.mul_(0))[1],
    "drawn part": lambda x: (x[1:].exponential_(), x)[1] * 0,
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_in_place_operations_write_tangents_where_pytorch_does(oracle: Any, name: str) -> None:
    seen = []
    for lib, mode in modules(oracle):
        x, tangent = lib.tensor(STARTS), lib.tensor(TANGENT)
        with mode.dual_level():
            dual = mode.make_dual(x, tangent)
            made = mode.unpack_dual(BODIES[name](dual))
            own = mode.unpack_dual(dual).tangent
            seen.append((made.primal.tolist(), made.tangent.tolist(), own.tolist(), own is tangent, tangent.tolist()))

    assert seen[1] == seen[0]


@pytest.mark.parametrize("draw", ["uniform_", "normal_", "exponential_", "cauchy_", "log_normal_", "geometric_", "random_", "bernoulli_"])
def test_numbers_drawn_in_place_have_a_tangent_of_zero(draw: str) -> None:
    with forward_ad.dual_level():
        x = forward_ad.make_dual(fb.tensor([0.3, 0.4]), fb.ones(2))
        getattr(x, draw)(*([0.5] if draw == "geometric_" else []))

        assert forward_ad.unpack_dual(x).tangent.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("shape", "lay"), [((2,), lambda t: t(1).expand(2)), ((2, 3), lambda t: t(3, 2).t()), ((2,), lambda t: t(4)[::2])])
def test_a_tangent_that_lies_in_memory_otherwise_than_its_tensor_is_copied(oracle: Any, shape: Any, lay: Any) -> None:
    for lib, mode in modules(oracle):
        tangent = lay(lib.ones)
        with mode.dual_level():
            dual = mode.make_dual(lib.ones(shape), tangent)
            dual.mul_(3)
            found = mode.unpack_dual(dual).tangent
        assert found is not tangent
        assert (found.unique().tolist(), tangent.unique().tolist()) == ([3.0], [1.0])


def functions(lib: Any, got: list[Any]) -> dict[str, Any]:
    class Product(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, k: int = 2) -> Any:
            ctx.save_for_forward(x, y)
            ctx.k = k
            return x * y * k

        @staticmethod
        def jvp(ctx: Any, tx: Any, ty: Any, *rest: Any) -> Any:
            got.append([None if t is None else t.tolist() for t in (tx, ty, *rest)])
            x, y = ctx.saved_tensors
            return (0 if tx is None else tx * y * ctx.k) + (0 if ty is None else x * ty * ctx.k)

    class Plain(Product):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, k: int = 2) -> Any:
            ctx.set_materialize_grads(False)
            return Product.forward(ctx, x, y, k)

    class Doubling(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            return t.mul_(2)

    class Wrong(Doubling):
        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            return t * 2

    return {"product": Product, "plain": Plain, "doubling": Doubling, "wrong": Wrong}


@pytest.mark.parametrize("name", ["product", "plain"])
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("rest", [(), (3,)])
def test_jvp_of_a_custom_function_gets_zeros_for_missing_tangents_and_what_was_saved(oracle: Any, name: str, at: int, rest: Any) -> None:
    seen = []
    for lib, mode in modules(oracle):
        got: list[Any] = []
        made = functions(lib, got)[name]
        with mode.dual_level():
            pair = [lib.tensor([1.0, 2.0]), lib.tensor([3.0, 4.0])]
            pair[at] = mode.make_dual(pair[at], lib.tensor([1.0, 10.0]))
            result = mode.unpack_dual(made.apply(*pair, *rest))
            seen.append((got, result.primal.tolist(), result.tangent.tolist()))

    assert seen[1] == seen[0]


def test_a_custom_function_that_writes_its_input_writes_the_tangent_once(oracle: Any) -> None:
    for lib, mode in modules(oracle):
        x, tangent = lib.tensor(STARTS), lib.tensor(TANGENT)
        with mode.dual_level():
            dual = mode.make_dual(x, tangent)
            result = functions(lib, [])["doubling"].apply(dual)
            assert result is dual
            assert mode.unpack_dual(result).tangent is tangent
        assert tangent.tolist() == [2.0, 20.0, 200.0]
        assert x.tolist() == [2.0, 4.0, 6.0]


def test_a_custom_function_that_writes_its_input_but_not_the_tangent_is_refused(oracle: Any) -> None:
    for lib, mode in modules(oracle):
        with mode.dual_level(), pytest.raises(RuntimeError, match="not modifying the forward mode gradients inplace"):
            functions(lib, [])["wrong"].apply(mode.make_dual(lib.ones(2), lib.ones(2)))


def test_tangents_stay_as_they_are_while_forward_mode_is_switched_off() -> None:
    with forward_ad.dual_level():
        x = forward_ad.make_dual(fb.ones(2), fb.ones(2))
        with forward_ad._set_fwd_grad_enabled(False):
            y = x * 2
        assert forward_ad.unpack_dual(y).tangent is None


def test_narrow_remembers_a_start_that_is_a_tensor_as_the_number_it_was(oracle: Any) -> None:
    for lib in (oracle, fb):
        x, start = lib.arange(4.0).requires_grad_(), lib.tensor(1)
        base = x * 1
        part = base.narrow(0, start, 2)
        start.fill_(0)
        part.mul_(3)
        (base.sum() + part.sum()).backward()

        assert x.grad.tolist() == [1.0, 6.0, 6.0, 1.0]


CONSTANTS: dict[str, Any] = {
    "detach": lambda x: x.detach() * 2, "data": lambda x: x.data * 2, "times itself": lambda x: x * x.detach(),
    "straight through": lambda x: x.round().detach() - x.detach() + x,
}  # fmt: skip


@pytest.mark.parametrize("name", CONSTANTS)
def test_what_is_detached_is_constant_in_forward_mode_too(oracle: Any, name: str) -> None:
    seen = []
    for lib, mode in modules(oracle):
        with mode.dual_level():
            made = mode.unpack_dual(CONSTANTS[name](mode.make_dual(lib.tensor(STARTS), lib.tensor(TANGENT)))).tangent
        _, found = lib.func.jvp(CONSTANTS[name], (lib.tensor(STARTS),), (lib.tensor(TANGENT),))
        seen.append((None if made is None else made.tolist(), found.tolist()))

    assert seen[1] == seen[0]


def test_second_derivatives_go_through_starts_that_are_fresh_leaves(oracle: Any) -> None:
    seen = []
    for lib in (oracle, fb):
        f = lambda x: (x**3 * x.detach()).sum()  # noqa: E731
        x, v = lib.tensor(STARTS), lib.tensor(TANGENT)
        forward_over_reverse = lib.func.jvp(lib.func.grad(f), (x,), (v,))[1]
        seen.append([forward_over_reverse.tolist(), lib.func.hessian(f)(x).tolist(), lib.func.jacfwd(lib.func.jacfwd(f))(x).tolist()])

    assert seen[1] == seen[0]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: fb.histogram(x, 3), lambda x: fb.histogram(fb.ones(3), x), lambda x: fb.histogram(fb.ones(3), 3, weight=x),
        lambda x: fb.histogramdd(x[:, None], 3), lambda x: fb.histogramdd(fb.ones(3, 1), [x]),
        lambda x: fb.heaviside(x, fb.ones(3)), lambda x: fb.heaviside(fb.ones(3), x),
        lambda x: fb.unique(x), lambda x: fb.unique(x, dim=0), lambda x: fb.unique_consecutive(x),
    ],
)  # fmt: skip
def test_a_tangent_that_no_rule_carries_on_is_refused(call: Any) -> None:
    x = fb.tensor([0.2, 0.5, 0.9])
    call(x)
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match=r"forward AD with .* does not support it"):
        call(forward_ad.make_dual(x, fb.ones(3)))
    with pytest.raises(NotImplementedError, match=r"forward AD with .* does not support it"):
        fb.func.jvp(call, (x,), (fb.ones(3),))


@pytest.mark.parametrize("name", ["max", "min"])
def test_the_extreme_of_a_whole_tensor_has_a_tangent(name):
    x, t = fb.tensor([1.0, 3.0, 3.0, 2.0]), fb.tensor([1.0, 2.0, 4.0, 8.0])

    value, tangent = fb.func.jvp(getattr(fb, name), (x,), (t,))

    assert (value.item(), tangent.item()) == {"max": (3.0, 3.0), "min": (1.0, 1.0)}[name]


@pytest.mark.parametrize(
    "fn", [lambda x: fb.logsumexp(x, 0, True), lambda x: x.softmax(0), lambda x: x.log_softmax(0), lambda x: x.logcumsumexp(0)]
)
def test_sums_of_exponentials_of_one_number_have_no_dimensions(fn) -> None:
    x = fb.tensor(1.5, dtype=fb.float64)
    with forward_ad.dual_level():
        made = forward_ad.unpack_dual(fn(forward_ad.make_dual(x, fb.tensor(2.0, dtype=fb.float64))))
    assert made.primal.shape == made.tangent.shape == ()
