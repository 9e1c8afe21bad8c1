"""A node saves only what the gradients that are asked for read: what is overwritten, freed, or made in inference mode tells."""

from __future__ import annotations

import gc
import itertools
import weakref
from typing import Any

import pytest

import flambeau as fb
from flambeau.autograd.tape import Unread
from flambeau.ops._spec import OPS


def _numbers(lib: Any, *shape: int) -> Any:
    return (lib.arange(float(max(1, int(fb.tensor(shape).prod())))).reshape(shape) * 0.37).sin()


def _places(lib: Any, *values: int) -> Any:
    return lib.tensor(values)


# Operands that are floating, those that are not, and the operation.
CASES: dict[str, tuple[list[tuple[int, ...]], Any]] = {
    "mm": ([(3, 4), (4, 5)], lambda t, a, b: t.mm(a, b)),
    "bmm": ([(2, 3, 4), (2, 4, 5)], lambda t, a, b: t.bmm(a, b)),
    "matmul": ([(2, 3, 4), (4, 5)], lambda t, a, b: t.matmul(a, b)),
    "products": ([(2, 2, 3, 4), (2, 2, 4, 5)], lambda t, a, b: t.matmul(a, b)),
    "mv": ([(3, 4), (4,)], lambda t, a, b: t.mv(a, b)),
    "dot": ([(4,), (4,)], lambda t, a, b: t.dot(a, b)),
    "vdot": ([(4,), (4,)], lambda t, a, b: t.vdot(a, b)),
    "outer": ([(4,), (3,)], lambda t, a, b: t.outer(a, b)),
    "addmm": ([(3, 5), (3, 4), (4, 5)], lambda t, a, b, c: t.addmm(a, b, c)),
    "addmv": ([(3,), (3, 4), (4,)], lambda t, a, b, c: t.addmv(a, b, c)),
    "addbmm": ([(3, 5), (2, 3, 4), (2, 4, 5)], lambda t, a, b, c: t.addbmm(a, b, c)),
    "baddbmm": ([(2, 3, 5), (2, 3, 4), (2, 4, 5)], lambda t, a, b, c: t.baddbmm(a, b, c)),
    "linear": ([(3, 4), (5, 4), (5,)], lambda t, x, w, b: t.nn.functional.linear(x, w, b)),
    "linear of batches": ([(2, 3, 4), (5, 4), (5,)], lambda t, x, w, b: t.nn.functional.linear(x, w, b)),
    "linear without bias": ([(3, 4), (5, 4)], lambda t, x, w: t.nn.functional.linear(x, w)),
    "einsum": ([(3, 4), (4, 5)], lambda t, a, b: t.einsum("ij,jk->ik", a, b)),
    "tensordot": ([(3, 4), (4, 5)], lambda t, a, b: t.tensordot(a, b, 1)),
    "inner": ([(3, 4), (2, 4)], lambda t, a, b: t.inner(a, b)),
    "cross": ([(2, 3), (2, 3)], lambda t, a, b: t.linalg.cross(a, b)),
    "conv1d": ([(1, 2, 5), (3, 2, 3), (3,)], lambda t, x, w, b: t.nn.functional.conv1d(x, w, b)),
    "conv_transpose1d": ([(1, 2, 5), (2, 3, 3), (3,)], lambda t, x, w, b: t.nn.functional.conv_transpose1d(x, w, b)),
    "layer_norm": ([(3, 4), (4,), (4,)], lambda t, x, w, b: t.nn.functional.layer_norm(x, (4,), w, b)),
    "group_norm": ([(2, 4, 3), (4,), (4,)], lambda t, x, w, b: t.nn.functional.group_norm(x, 2, w, b)),
    "batch_norm": ([(3, 4), (4,), (4,)], lambda t, x, w, b: t.nn.functional.batch_norm(x, None, None, w, b, True)),
    "mul": ([(3,), (3,)], lambda t, a, b: a * b),
    "add": ([(3,), (3,)], lambda t, a, b: a + b),
    "pow": ([(3,), (3,)], lambda t, a, b: (a + 2) ** b),
    "where": ([(3,), (3,)], lambda t, a, b: t.where(t.tensor([True, False, True]), a, b)),
    "atan2": ([(3,), (3,)], lambda t, a, b: t.atan2(a, b)),
    "addcmul": ([(3,), (3,), (3,)], lambda t, a, b, c: t.addcmul(a, b, c)),
    "scatter_add": ([(3, 4), (1, 2)], lambda t, a, b: t.scatter_add(a, 1, t.tensor([[0, 2]]), b)),
    "scatter": ([(3, 4), (1, 2)], lambda t, a, b: t.scatter(a, 1, t.tensor([[0, 2]]), b)),
    "index_put": ([(3, 4), (2, 4)], lambda t, a, b: t.index_put(a, (t.tensor([0, 2]),), b)),
    "mse_loss": ([(3,), (3,)], lambda t, a, b: t.nn.functional.mse_loss(a, b)),
    "solve": ([(3, 3), (3, 2)], lambda t, a, b: t.linalg.solve(a + 3 * t.eye(3), b)),
    "attention": ([(1, 2, 3, 4)] * 3, lambda t, q, k, v: t.nn.functional.scaled_dot_product_attention(q, k, v)),
    "cat": ([(3,), (3,)], lambda t, a, b: t.cat([a, b])),
}


def _subsets(count: int) -> list[tuple[int, ...]]:
    return [want for k in range(1, count + 1) for want in itertools.combinations(range(count), k)]


def _overwritten(lib: Any, name: str) -> list[tuple[Any, int, bool]]:
    """For each set of operands with gradients, and each operand: whether backward refuses that it was overwritten."""
    shapes, fn = CASES[name]
    found = []
    for want in _subsets(len(shapes)):
        for at in range(len(shapes)):
            operands = [_numbers(lib, *shape).requires_grad_(i in want) for i, shape in enumerate(shapes)]
            result = fn(lib, *operands).sum()
            with lib.no_grad():
                operands[at].add_(1)
            try:
                result.backward()
                refused = False
            except RuntimeError as error:
                if "modified by an inplace operation" not in str(error):
                    raise
                refused = True
            found.append((want, at, refused))
    return found


@pytest.mark.parametrize("name", CASES)
def test_an_operand_that_no_gradient_reads_may_be_overwritten(name: str, oracle: Any) -> None:
    assert _overwritten(fb, name) == _overwritten(oracle, name)


def _inferred(lib: Any, name: str) -> list[tuple[Any, int, bool]]:
    """For each set of operands with gradients, and each other operand: whether one made in inference mode is refused."""
    shapes, fn = CASES[name]
    found = []
    for want in _subsets(len(shapes)):
        for at in range(len(shapes)):
            if at in want:
                continue
            with lib.inference_mode():
                inferred = _numbers(lib, *shapes[at])
            operands = [inferred if i == at else _numbers(lib, *shape).requires_grad_(i in want) for i, shape in enumerate(shapes)]
            try:
                fn(lib, *operands).sum().backward()
                refused = False
            except RuntimeError as error:
                if "Inference tensors cannot be saved" not in str(error):
                    raise
                refused = True
            found.append((want, at, refused))
    return found


@pytest.mark.parametrize("name", CASES)
def test_an_inference_tensor_that_no_gradient_reads_is_taken(name: str, oracle: Any) -> None:
    assert _inferred(fb, name) == _inferred(oracle, name)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_the_same_whichever_are_asked_for(name: str) -> None:
    shapes, fn = CASES[name]
    grads: dict[Any, Any] = {}
    for want in reversed(_subsets(len(shapes))):
        for again in (False, True):
            operands = [_numbers(fb, *shape).requires_grad_(i in want) for i, shape in enumerate(shapes)]
            result = (fn(fb, *operands) ** 2).sum()
            for i, grad in zip(want, fb.autograd.grad(result, [operands[i] for i in want], create_graph=again), strict=True):
                expected = grads.setdefault((i, again), grad)  # when all are asked for
                assert grad.stride() == expected.stride()
                assert fb.allclose(grad, expected, rtol=1e-5, atol=1e-6)


def test_a_layer_whose_weight_is_frozen_does_not_keep_its_input() -> None:
    layer = fb.nn.Linear(4, 4).requires_grad_(False)
    x = fb.ones(2, 4, requires_grad=True)
    inner = x * 1
    alive = weakref.ref(inner._array)
    y = layer(inner)
    del inner
    gc.collect()

    assert alive() is None
    y.sum().backward()
    assert fb.equal(x.grad, layer.weight.sum(0).expand(2, 4))


def test_the_first_layer_does_not_keep_its_weight() -> None:
    x, leaf = fb.ones(2, 4), fb.ones(4, 3, requires_grad=True)
    weight = leaf * 1
    alive = weakref.ref(weight._array)
    y = x @ weight
    del weight
    gc.collect()

    assert alive() is None
    y.sum().backward()
    assert fb.equal(leaf.grad, fb.full((4, 3), 2.0))


def test_hooks_of_saved_tensors_see_only_what_gradients_read(oracle: Any) -> None:
    def packed(lib: Any) -> list[int]:
        seen: list[int] = []

        def pack(x: Any) -> Any:
            seen.append(x.numel())
            return x

        x, w, b = lib.ones(2, 3, requires_grad=True), lib.ones(4, 3), lib.ones(4, requires_grad=True)
        with lib.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            lib.nn.functional.linear(x, w, b).sum().backward()
            lib.mm(lib.ones(2, 3), w.t().requires_grad_()).sum().backward()
        return seen

    assert packed(fb) == packed(oracle)


def test_what_is_not_saved_shows_as_none_and_its_sizes_stay() -> None:
    f = fb.mm(fb.ones(2, 3, requires_grad=True), fb.ones(3, 4)).grad_fn

    assert f._saved_self is None
    assert f._saved_mat2.shape == (3, 4)
    assert f._saved_self_sym_sizes == (2, 3)
    assert f._saved_self_sym_strides == (3, 1)


def test_the_gradient_of_a_column_major_matrix_is_column_major_though_it_was_not_saved() -> None:
    x = fb.ones(3, 2).t().requires_grad_()
    fb.mm(x, fb.ones(3, 4)).sum().backward()

    assert x.grad.stride() == (1, 2)


def test_weights_made_in_inference_mode_train_what_lies_before_them_only_where_they_need_not_be_saved() -> None:
    with fb.inference_mode():
        bias = fb.ones(4)
    x, w = fb.ones(2, 3, requires_grad=True), fb.ones(4, 3)

    fb.nn.functional.linear(x, w, bias).sum().backward()

    assert fb.equal(x.grad, fb.full((2, 3), 4.0))


def test_a_node_says_of_what_it_did_not_save_how_it_lay() -> None:
    node = fb.mm(fb.ones(2, 3, requires_grad=True), fb.ones(3, 4)).grad_fn
    kept = node.saved[0]

    assert isinstance(kept, Unread)
    assert (kept.shape, kept.strides, kept.ndim, kept.itemsize) == ((2, 3), (12, 4), 2, 4)


def test_what_declarations_say_that_gradients_read_is_saved() -> None:
    from flambeau.ops import _derive

    _derive.load_all()
    for op in {id(op): op for op in OPS.values()}.values():
        for name, reads in getattr(op, "gradient_reads", {}).items():
            assert name in op.tensor_params, op
            assert set(reads) <= set(op.saved_names), op
            assert all(op.is_withheld(read) for read in reads), op
