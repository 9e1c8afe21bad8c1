"""Operators that programs define: the same definitions and calls under PyTorch and here."""

from __future__ import annotations

import pytest

import flambeau as fb
from comparing import described
from library.programs import PROGRAMS


@pytest.mark.oracle
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_operators_behave_as_in_pytorch(program, oracle):
    ours, theirs = (described(lib, program(lib)) for lib in (fb, oracle))

    assert ours == theirs


def test_a_loop_compiled_by_numba_is_a_kernel():
    numba = pytest.importorskip("numba")

    @numba.njit
    def recurrence(x, decay, out):
        state = 0.0
        for i in range(x.size):
            state = decay * state + x[i]
            out[i] = state

    def smooth(x, decay):
        out = fb.empty_like(x)
        recurrence(x.numpy(), decay, out.numpy())
        return out

    op = fb.library.custom_op("numba::smooth", smooth, mutates_args=(), schema="(Tensor x, float decay) -> Tensor")

    assert op(fb.ones(3), 0.5).tolist() == [1.0, 1.5, 1.75]


def test_forward_mode_through_an_operator_is_refused():
    op = fb.library.custom_op("forward::f", lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor")
    with pytest.raises(NotImplementedError, match="forward::f: forward mode"):
        fb.func.jvp(op, (fb.ones(2),), (fb.ones(2),))


def test_operators_of_pytorch_keep_their_kernels():
    lib = fb.library.Library("aten", "IMPL")
    for register in (
        lambda: lib.impl("add.Tensor", lambda x, y: x, "CPU"),
        lambda: fb.library.register_fake("aten::add.Tensor", lambda x, y: x),
        lambda: fb.library.Library("other", "IMPL").impl("f", lambda x: x, "Functionalize"),
    ):
        with pytest.raises(NotImplementedError):
            register()


def test_a_fallback_answers_where_an_operator_has_no_kernel():
    everything = fb.library.Library("_", "IMPL")
    everything.fallback(lambda op, *args: (str(op), len(args))[1], "CPU")
    fb.library.define("falling::f", "(Tensor x, int n) -> int")
    try:
        assert fb.ops.falling.f(fb.ones(1), 3) == 2
    finally:
        everything._destroy()
    with pytest.raises(NotImplementedError, match="falling::f"):
        fb.ops.falling.f(fb.ones(1), 3)


def test_a_batch_cannot_be_written_into_an_argument_that_is_none():
    def add(x, y):
        x.add_(y)

    op = fb.library.custom_op("unbatched::add", add, mutates_args={"x"}, schema="(Tensor(a!) x, Tensor y) -> ()")
    x = fb.zeros(3)
    with pytest.warns(UserWarning, match="batching rule"), pytest.raises(RuntimeError, match="an argument that it writes is not batched"):
        fb.vmap(lambda y: op(x, y))(fb.ones(2, 3))


def test_the_names_of_the_package_are_reached_as_in_pytorch():
    assert fb.ops.aten is __import__("flambeau._ops", fromlist=["ops"]).ops.aten
    with pytest.raises(AttributeError, match="no_such_namespace"):
        fb.ops.no_such_namespace  # noqa: B018  # asking is the test


def test_the_namespace_of_primitives_is_reserved(oracle):
    for lib in (oracle, fb):
        for kind in ("DEF", "FRAGMENT"):
            with pytest.raises(ValueError, match="prim is a reserved namespace"):
                lib.library.Library("prim", kind)
        assert lib.library.Library("prim", "IMPL").kind == "IMPL"


def test_losses_called_as_operators_take_the_mean_where_no_reduction_is_given():
    x, target = fb.randn(2, 3).sigmoid(), fb.rand(2, 3)
    for name in ("binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "hinge_embedding_loss", "mse_loss"):
        operator = getattr(fb.ops.aten, name)
        assert operator(x, target).equal(operator(x, target, reduction=0).mean()), name
    assert fb.ops.aten.margin_ranking_loss(x, target, target).ndim == 0
    assert fb.ops.aten.poisson_nll_loss(x, target, True, False, 1e-8, 2).ndim == 0


def _selects(lib, name, **bounds):
    """An operator that keeps the positive numbers, with a size that values decide."""

    @lib.library.custom_op(f"dynamic_sizes::{name}", mutates_args=(), schema="(Tensor x) -> Tensor")
    def kept(x):
        return x[x > 0].clone()

    @kept.register_fake
    def _(x):
        return x.new_empty([lib.library.get_ctx().new_dynamic_size(**bounds)])

    return kept


@pytest.mark.oracle
def test_fake_kernels_make_sizes_that_values_decide(oracle):
    def programs(lib):
        from importlib import import_module

        make_fx = import_module(f"{lib.__name__}.fx.experimental.proxy_tensor").make_fx
        kept = _selects(lib, "kept", max=5)
        x = lib.tensor([1.0, -1.0, 2.0])
        recorded = make_fx(lambda x: kept(x) * 2, tracing_mode="symbolic")(x)
        text = recorded.print_readable(print_output=False)
        again = [recorded(lib.tensor(values)).tolist() for values in ([1.0, -1.0, 2.0], [-3.0], [1.0, 2.0, 3.0, 4.0])]
        return text.replace("s75", "s0").replace("s77", "s0"), again, lib.library.opcheck(kept, (x,))

    assert programs(fb) == programs(oracle)


@pytest.mark.oracle
def test_bounds_of_sizes_that_values_decide_are_checked(oracle):
    def refusals(lib):
        from importlib import import_module

        fake = import_module(f"{lib.__name__}._subclasses.fake_tensor").FakeTensorMode
        env = import_module(f"{lib.__name__}.fx.experimental.symbolic_shapes").ShapeEnv
        made = []
        for name, bounds, settings in (
            ("below", {"min": -1}, {"shape_env": env()}),
            ("numbers", {}, {}),
            ("refused", {}, {"shape_env": env(allow_dynamic_output_shape_ops=False)}),
        ):
            with pytest.raises((ValueError, RuntimeError)) as error, fake(**settings):
                _selects(lib, name, **bounds)(lib.ones(3))
            made.append((type(error.value).__name__, str(error.value)))
        with pytest.raises(RuntimeError, match="trying to run this operator with meta Tensors"):
            _selects(lib, "meta")(lib.ones(3, device="meta"))
        return made

    assert refusals(fb) == refusals(oracle)
