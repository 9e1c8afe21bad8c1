"""Every declared op, from the registry: what follows from a declaration holds for each of them.

Adding a declaration adds its tests. Elementwise ops and reductions are fed from their declared sample domain; ops with
kernels of their own are checked here for completeness and, with real arguments, by conformance and by their family's tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as fb
from flambeau.autograd import forward_ad, grad
from flambeau.ops import _derive, _spec
from flambeau_kernels import reference_launch

_derive.load_all()
OPS = list(dict.fromkeys(_spec.OPS.values()))
ELEMENTWISE = [op for op in OPS if op.kind == "elementwise"]
REDUCTIONS = [op for op in OPS if op.kind == "reduction"]
SHAPES = [(), (3,), (2, 3), (0, 2)]


def name_of(op: Any) -> str:
    return op.qualified


def sample(op: Any, dtype: Any, shape: tuple[int, ...] = (2, 3), seed: int = 0) -> list[fb.Tensor]:
    """One tensor per parameter, values inside the declared domain."""
    rng = np.random.default_rng(seed)
    low, high = op.samples if isinstance(op.samples, tuple) else (-3.0, 3.0)
    made = []
    for _ in op.positional:
        if dtype is fb.bool:
            values: Any = rng.integers(0, 2, shape).astype(bool)
        elif dtype.is_floating_point:
            values = rng.uniform(low, high, shape)
        elif dtype.is_complex:
            values = rng.uniform(low, high, shape) + 1j * rng.uniform(low, high, shape)
        else:
            values = rng.integers(1, 5, shape)
        made.append(fb.tensor(values).to(dtype))
    return made


def arguments(op: Any, dtype: Any, shape: tuple[int, ...] = (2, 3), seed: int = 0) -> tuple[Any, ...] | None:
    """All arguments of a run, or None where the op refuses `dtype`."""
    args = (*sample(op, dtype, shape, seed), *(op.defaults[n] for n in op.keyword_only))
    if op.qualified in ("choose", "where"):
        args = (args[0] > 0, *args[1:])
    try:
        op.run(*args)
    except (RuntimeError, NotImplementedError, TypeError):
        return None
    return args


def close(a: Any, b: Any, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance, equal_nan=True)


def test_there_are_ops_of_every_kind() -> None:
    kinds = {op.kind for op in OPS}

    assert kinds == {"elementwise", "reduction", "primitive", "view", "composite"}


@pytest.mark.parametrize("op", OPS, ids=name_of)
def test_an_op_is_documented_and_its_function_has_the_declared_parameters(op: Any) -> None:
    import inspect

    names = [p for p in inspect.signature(op.function).parameters if p != "out" and not p.endswith("_")]

    assert op.doc.strip()
    assert [n for n in op.params if n != op.variadic] == [n for n in names if n != op.variadic]


@pytest.mark.parametrize("op", ELEMENTWISE, ids=name_of)
def test_kernel_equals_reference(op: Any) -> None:
    for dtype in (fb.float32, fb.float64, fb.int64, fb.bool, fb.bfloat16):
        args = arguments(op, dtype, (40, 50))
        if args is None:
            continue
        result = op.run(*args)
        compute, kind = op.dtype_rule(op, args[: len(op.positional)])
        expected = np.empty(result.shape, kind.numpy)
        reference_launch(op.formula, tuple(getattr(a, "_array", a) for a in args), (expected,), compute.numpy)

        wide = np.float64 if result.dtype.is_floating_point else result._array.dtype
        bound = {fb.float64: 1e-12, fb.bfloat16: 1e-2}.get(dtype, 5e-6)
        close(result._array.astype(wide), expected.astype(wide), bound)


@pytest.mark.parametrize("op", ELEMENTWISE, ids=name_of)
def test_meta_predicts_shape_and_dtype(op: Any) -> None:
    for dtype in (fb.float32, fb.int64, fb.bool):
        for shape in SHAPES:
            args = arguments(op, dtype, shape)
            if args is None:
                continue
            real = op.run(*args)
            meta = op.run(*(a.to("meta") if isinstance(a, fb.Tensor) else a for a in args))

            assert meta.is_meta
            assert (meta.shape, meta.dtype, meta.stride()) == (real.shape, real.dtype, real.stride())


@pytest.mark.parametrize("op", [op for op in ELEMENTWISE if op.surface & _spec.OUT], ids=name_of)
def test_method_in_place_and_out_agree_with_the_function(op: Any) -> None:
    args = arguments(op, fb.float64) or arguments(op, fb.int64)
    assert args is not None
    positional = args[: len(op.positional)]
    expected = op.function(*positional)
    out = fb.empty(0, dtype=expected.dtype)

    assert op.function(*positional, out=out) is out
    close(out._array, expected._array)
    if op.surface & _spec.METHOD:
        close(getattr(positional[0], op.name)(*positional[1:])._array, expected._array)
    if op.surface & _spec.INPLACE and fb.can_cast(expected.dtype, positional[0].dtype):
        target = positional[0].clone()
        assert getattr(target, f"{op.name}_")(*positional[1:]) is target
        close(target._array, expected._array)


@pytest.mark.parametrize("op", ELEMENTWISE, ids=name_of)
def test_strided_and_broadcast_operands(op: Any) -> None:
    args = arguments(op, fb.float64, (3, 4))
    if args is None:
        args = arguments(op, fb.int64, (3, 4))
    if args is None:
        pytest.skip("takes neither float64 nor int64 in every place")
    expected = op.run(*args)
    strided = [a.t().contiguous().t() if isinstance(a, fb.Tensor) else a for a in args]
    row = [a[:1] if isinstance(a, fb.Tensor) and i else a for i, a in enumerate(args)]
    full = [a[:1].expand(3, 4) if isinstance(a, fb.Tensor) and i else a for i, a in enumerate(args)]

    close(op.run(*strided)._array, expected._array)
    close(op.run(*row)._array, op.run(*full)._array)


def differentiable(ops: list[Any]) -> list[Any]:
    return [op for op in ops if op.differentiable]


def scalar_of(op: Any, args: tuple[Any, ...], weights: Any) -> fb.Tensor:
    return (op.run(*args) * weights).sum()


@pytest.mark.parametrize("op", differentiable(ELEMENTWISE), ids=name_of)
def test_gradients_match_finite_differences_to_second_order(op: Any) -> None:
    args = arguments(op, fb.float64)
    if args is None:
        pytest.skip("does not take float64 in every place")
    for i, name in enumerate(op.positional):
        if not op.has_gradient(name) or args[i].dtype is not fb.float64:
            continue
        point = args[i].clone().requires_grad_(True)
        given = (*args[:i], point, *args[i + 1 :])
        weights = fb.tensor(np.random.default_rng(1).uniform(0.5, 1.5, (2, 3)))
        (first,) = grad(scalar_of(op, given, weights), point, create_graph=True)
        close(first._array, numeric(lambda x, i=i, w=weights: scalar_of(op, (*args[:i], x, *args[i + 1 :]), w), args[i]), 2e-5)
        if first.requires_grad:
            (second,) = grad((first * weights).sum(), point, allow_unused=True, materialize_grads=True)

            def slope(x: fb.Tensor, i: int = i, weights: fb.Tensor = weights) -> fb.Tensor:
                x = x.clone().requires_grad_(True)
                (g,) = grad(scalar_of(op, (*args[:i], x, *args[i + 1 :]), weights), x)
                return (g * weights).sum()

            close(second._array, numeric(slope, args[i]), 2e-4)


def numeric(f: Any, x: fb.Tensor, step: float = 1e-6) -> np.ndarray:
    """Central differences of the scalar function `f`."""
    made = np.zeros(x.shape)
    for at in np.ndindex(*x.shape):
        up, down = x._array.copy(), x._array.copy()
        up[at] += step
        down[at] -= step
        made[at] = (float(f(fb.tensor(up))) - float(f(fb.tensor(down)))) / (2 * step)
    return made


@pytest.mark.parametrize("op", differentiable(ELEMENTWISE + REDUCTIONS), ids=name_of)
def test_forward_and_reverse_mode_are_transposes(op: Any) -> None:
    args = arguments(op, fb.float64) if op.kind == "elementwise" else (sample_reduction(op), None, False, None)
    if args is None or args[0].dtype is not fb.float64:
        pytest.skip("does not take float64 in its first place")
    if op.kind == "elementwise" and not op.has_gradient(op.positional[0]):
        pytest.skip("PyTorch defines no derivative with respect to its first argument")
    rng = np.random.default_rng(2)
    x = args[0].clone().requires_grad_(True)
    out = op.run(x, *args[1:])
    if not out.requires_grad:
        pytest.skip("not differentiable in its first argument")
    v, w = fb.tensor(rng.normal(size=x.shape)), fb.tensor(rng.normal(size=tuple(out.shape)))
    (back,) = grad(out, x, w)
    with forward_ad.dual_level():
        ahead = forward_ad.unpack_dual(op.function(forward_ad.make_dual(args[0], v), *positional_rest(op, args))).tangent

    close(float((w * ahead).sum()), float((back * v).sum()), 1e-9)


def positional_rest(op: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return args[1 : len(op.positional)]


def sample_reduction(op: Any) -> fb.Tensor:
    return fb.tensor(np.random.default_rng(3).uniform(0.5, 2.0, (3, 4)))


@pytest.mark.parametrize("op", REDUCTIONS, ids=name_of)
def test_a_reduction_over_dims_equals_one_over_the_flattened_dims(op: Any) -> None:
    x = fb.tensor(np.random.default_rng(4).uniform(0.5, 2.0, (2, 3, 4)))

    both = op.function(x, (0, 2))
    flat = op.function(x.permute(1, 0, 2).reshape(3, 8), 1)

    close(both._array, flat._array, 1e-12)


@pytest.mark.parametrize("op", REDUCTIONS, ids=name_of)
def test_meta_predicts_reductions(op: Any) -> None:
    for dtype in (fb.float32, fb.int64, fb.bool):
        x = fb.ones(2, 3, 4).to(dtype)
        try:
            real = op.function(x, (0, 2))
        except RuntimeError:
            continue
        meta = op.function(x.to("meta"), (0, 2))

        assert (meta.shape, meta.dtype) == (real.shape, real.dtype)


@pytest.mark.parametrize("op", [op for op in OPS if op.kind in ("primitive", "view")], ids=name_of)
def test_a_primitive_has_a_kernel_and_a_derivative_or_no_floating_result(op: Any) -> None:
    assert op.kernel_rule is not None or "run" in vars(op)
    assert op.has_history or op.not_differentiable, (
        f"{op.qualified} has no vjp: declare one, or say why there is none with not_differentiable='...'"
    )


def test_errors_name_the_function_the_user_called():
    _derive.load_all()
    homes = (fb.nn.functional, fb.Tensor)
    for op in _spec.OPS.values():
        name = op.public_name
        assert name == op.name or _derive.find(name) or any(hasattr(home, n) for home in homes for n in (name, name + "1d")), op


def test_a_declaration_with_an_unknown_fact_is_refused():
    with pytest.raises(TypeError, match="clone: a declaration has no keyword 'fast_out'; it has public_name, "):
        _spec.OPS["clone"].state({"fast_out": True})


@pytest.mark.filterwarnings("ignore:mse_loss. Using a target size")
@pytest.mark.parametrize(("call", "words"), [
    (lambda: fb.nn.functional.gelu(fb.ones(3, dtype=fb.int64)), "gelu"),
    (lambda: fb.nn.functional.mse_loss(fb.ones(3), fb.ones(2)), "mse_loss"),
    (lambda: fb.logaddexp(fb.ones(3), fb.ones(2)), "logaddexp"),
    (lambda: fb.clamp(fb.ones(3), fb.ones(2), fb.ones(2)), "clamp"),
])  # fmt: skip
def test_errors_inside_say_the_public_name(call, words):
    with pytest.raises(RuntimeError) as caught:
        call()

    named = str(caught.value)
    assert words in named
    assert not any(private in named for private in ("gelu_exact", "squared_error", "logaddexp_real", "clamp_both"))


def test_kernels_for_cuda_that_declarations_name_are_there():
    from flambeau._cuda.kernels import find

    _derive.load_all()
    named = [op for op in _spec.OPS.values() if op.cuda]

    assert len(named) > 60
    assert all(callable(find(op)) for op in named)


@pytest.mark.parametrize(("name", "rest"), [("expand_shape", ((2, 3),)), ("view_shape", ((3, 1),)), ("transpose", (0, 1))])
def test_a_view_that_is_recorded_saves_the_shape_of_its_source(name: str, rest: Any) -> None:
    op: Any = _spec.OPS[name]
    source = fb.ones(1, 3, requires_grad=True) * 1
    made = op.function(source.detach(), *rest)
    op.record_view(made, source, rest)
    (gradient,) = fb.autograd.grad(made.sum(), source)

    assert gradient.shape == (1, 3)
