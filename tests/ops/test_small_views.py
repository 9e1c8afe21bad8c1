"""Short ways of views, joins and copies: what the fallback makes, its memory, history and errors included."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import flambeau as fb
from flambeau.ops._spec import OPS

DTYPES = ("float32", "float64", "bfloat16", "complex64", "int64", "bool")


def sources(dtype: str) -> list[fb.Tensor]:
    """Tensors of many shapes and layouts, each with memory of its own."""
    whole = fb.arange(24).to(getattr(fb, dtype))
    return [
        whole.clone().view(4, 6), whole.clone().view(2, 3, 4), whole.clone(), whole.clone().view(4, 6).t(), whole.clone().view(1, 24, 1),
        whole.clone().view(4, 6)[:, ::2], whole[:1].clone().view(()), whole[:0].clone(), whole.clone().view(4, 6)[1:, 2:],
        whole[:0].clone().view(0, 3), whole[:1].clone().view(1, 1), whole.clone().view(4, 6)[:1].expand(3, 6),
        whole.clone().view(2, 1, 12).transpose(0, 2),
    ]  # fmt: skip


DIMS = (0, 1, -1, -2, 2, 3, -4)
CALLS = {
    "unsqueeze": [(d,) for d in DIMS],
    "squeeze": [(None,), *((d,) for d in DIMS), ((0, 1),), ((0, -1),)],
    "expand": [((2, 4, 6),), ((-1, 6),), ((4, -1),), ([3, 1, 1],), ((-1, -1, -1),), ((24,),), ((5,),), ((0, 4, 6),), ((-1, 24, 7),)],
    "broadcast_to": [((2, 4, 6),), ((4, 6),), ((3, 1),)],
    "permute": [((1, 0),), ((0, 1),), ((-1, -2),), ((2, 0, 1),), ([1, 2, 0],), ((0, 0),), ((),), ((0,),), ((0, 1, 3),)],
    "transpose": list(itertools.product(DIMS[:5], repeat=2)),
    "t": [()],
    "movedim": [(0, 1), (1, 0), (-1, 0), (0, 5), ((0, 1), (1, 0)), (2, 0)],
    "select": list(itertools.product(DIMS, (0, 1, -1, 7, -9))),
    "narrow": [(d, s, n) for d in DIMS for s, n in ((0, 1), (1, 2), (-1, 1), (0, 0), (2, 40), (0, -1))],
    "reshape": [((-1,),), ((24,),), ((4, 6),), ((2, -1),), ((5, -1),), ((0, -1),), ((-1, -1),), ((-2, 12),), ((1,),), ((),), ((0,),),
                ([3, 8],), ((6, 4),)],
    "flatten": [(0, -1), (1, -1), (0, 1), (1, 2), (-2, -1), (1, 0), (0, 4)],
    "unflatten": [(0, (2, 2)), (-1, (2, -1)), (1, (3, 1)), (0, ()), (1, (-1, -1)), (0, [4, 1])],
    "ravel": [()],
    "diagonal": [(o, *d) for o in (0, 1, -2, 9) for d in ((0, 1), (1, 0), (-1, -2), (0, 0), (0, 2))],
    "unfold": [(0, 2, 1), (-1, 3, 2), (1, 1, 1), (0, 9, 1), (0, 2, 0)],
    "chunk": [(n, d) for n in (1, 2, 3, 7, 0) for d in (0, 1, -1, 4)],
    "split": [(n, d) for n in (1, 2, 5, 0, -1, [1, 3], [2, 2], [4], (0, 4), [5, -1]) for d in (0, 1, -1)],
    "unbind": [(0,), (1,), (-1,), (2,)],
    "as_strided": [((2, 2), (1, 2), None), ((2,), (3,), 1), ((2, 2), (0, 1), 0), ((9, 9), (9, 9), 0), ((2,), (1, 1), 0), ((1,), (-1,), 0),
                   ((), (), 3), ((2,), (1,), -1)],
    "flip": [((0,),), ((0, 1),), ((-1,),), ((),), ((0, 0),), ((4,),)],
    "roll": [(1, 0), (-2, -1), (3, None), ((1, 2), (0, 1)), (1, 4), (30, 0), (0, 0)],
    "repeat": [((2, 2),), ((2, 1, 3),), ((1,),), ((0, 2),), ((-1, 2),), ((2, 3, 1),)],
    "tile": [((2, 2),), ((2,),), ((1, 1, 2),)],
    "tril": [(0,), (1,), (-2,), (9,)],
    "triu": [(0,), (1,), (-2,), (-9,)],
    "repeat_interleave": [(2,), (2, 0), (3, -1), (0, 0), (-1, 0), (2, 5)],
    "diag": [(0,), (1,)],
    "tensor_split": [(2, 0), (3, 1), (7, -1), (0, 0), ((1, 3), 0), (2, 4)],
    "clone": [(None,), (fb.preserve_format,), (fb.contiguous_format,), (fb.channels_last,)],
}  # fmt: skip


def short(op, x, args):
    """The public call."""
    given = dict(zip(op.params[1:], args, strict=False))
    if op.variadic:
        (sizes,) = args
        return op.function(x, **{op.variadic: sizes})
    return op.function(x, **given)


def general(op, x, args):
    """The fallback, which every argument can take."""
    return op.run(x, *args, *[op.defaults[n] for n in op.params[1 + len(args) :]])


def outcome(way, op, x, args) -> Any:
    try:
        return way(op, x, args)
    except Exception as error:  # whatever it is, the two ways must agree
        return type(error), str(error)


def facts(made, x):
    if made is x:
        return "itself"
    bits = made.view(fb.int16) if made.dtype is fb.bfloat16 else made
    return (
        bits.tolist(), made.dtype, tuple(made.shape), made.stride(), made.storage_offset(), made.device, type(made), made.requires_grad,
        made._storage is x._storage, made._view_of is None,
        made._view_of is None or made._view_of[0] is (x if x._view_of is None else x._view_of[0]),
        None if made.grad_fn is None else made.grad_fn.name(), made._version,
    )  # fmt: skip


def pieces(made: Any) -> Any:
    return made if isinstance(made, tuple) else (made,)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CALLS)
def test_short_and_general_ways_agree(name, dtype):
    op = OPS[name]
    for x, args in itertools.product(sources(dtype), CALLS[name]):
        found, expected = outcome(short, op, x, args), outcome(general, op, x, args)
        case = (name, tuple(x.shape), x.stride(), args)
        if isinstance(expected, tuple) and expected and isinstance(expected[0], type):
            assert found == expected, case
            continue
        assert len(pieces(found)) == len(pieces(expected)), case
        for one, other in zip(pieces(found), pieces(expected), strict=True):
            assert facts(one, x) == facts(other, x), case


@pytest.mark.parametrize("name", CALLS)
def test_their_gradients_agree(name):
    op = OPS[name]
    for x, args in itertools.product(sources("float64"), CALLS[name]):
        grads = []
        for way in (short, general):
            leaf = x.detach().requires_grad_()
            made = outcome(way, op, leaf, args)
            if isinstance(made, tuple) and made and isinstance(made[0], type):
                break
            total = sum((part * (fb.arange(part.numel()).reshape(part.shape) + 2.0)).sum() for part in pieces(made))
            if not isinstance(total, fb.Tensor) or total.grad_fn is None:
                break
            (first,) = fb.autograd.grad(total, leaf, retain_graph=True)
            (again,) = fb.autograd.grad(total, leaf, create_graph=True)
            grads += [first, again]
        for grad in grads[1:]:
            assert grad.tolist() == grads[0].tolist(), (name, tuple(x.shape), args)


@pytest.mark.parametrize("name", [n for n in CALLS if n not in ("flip", "roll", "repeat", "tile", "tril", "triu", "clone", "ravel", "diag",
                                                                  "repeat_interleave")])
def test_writing_to_such_a_view_reaches_the_history_of_its_base(name):
    op = OPS[name]
    x, args = sources("float64")[0], CALLS[name][0]
    weight = fb.tensor(3.0, dtype=fb.float64, requires_grad=True)
    base = x.clone()
    made = pieces(short(op, base, args))[0]
    if any(n > 1 and s == 0 for n, s in zip(made.shape, made.stride(), strict=True)):
        pytest.skip("elements share memory")
    if op.kind == "view" and isinstance(short(op, base, args), tuple) or name in ("chunk", "split", "tensor_split"):
        pytest.skip("several views of one call refuse it")
    made.mul_(weight)

    assert base.grad_fn is not None
    assert base._version == made._version == 1
    (grad,) = fb.autograd.grad(base.sum(), weight)
    assert grad.item() == pytest.approx((made.detach() / 3).sum().item())


def test_views_made_without_recording_require_grad_as_their_base_does_but_no_gradient_passes_them():
    x = fb.ones(2, 3, requires_grad=True)
    with fb.no_grad():
        made = (x.t(), x.unsqueeze(0), x.expand(4, 2, 3), x.reshape(6), x.flatten(), x.squeeze(), x[0], x.select(0, 1))
        pieces = (*x.unbind(), *x.split(1))
        assert not fb.cat([x, x]).requires_grad
    for view in (*made, *pieces):
        assert view._base is x
        assert view.requires_grad
        assert view.is_leaf
        assert view.grad_fn is None
        (view * 2).sum().backward()
        assert view.grad is x.grad is None


@pytest.mark.parametrize("join", ["cat", "stack", "hstack", "vstack", "column_stack"])
def test_joins_with_a_history_agree_with_the_general_way(join):
    op = OPS[join]
    rest = (1,) if join in ("cat", "stack") else ()
    for dtype in ("float32", "complex64"):
        kind = getattr(fb, dtype)
        grads = []
        for way in (op.function, op.run):
            a, b = fb.ones(2, 3, dtype=kind, requires_grad=True), fb.full((2, 3), 2.0, dtype=kind, requires_grad=True)
            made = way([a, fb.zeros(2, 3, dtype=kind), b], *rest)
            weights = fb.arange(made.numel()).reshape(made.shape).to(kind)
            (made * weights).sum().abs().backward()
            grads.append((made.tolist(), a.grad.tolist(), b.grad.tolist(), made.grad_fn.name(), made.requires_grad))
        assert grads[0] == grads[1]
    mixed = fb.cat([fb.ones(2, requires_grad=True), fb.ones(0), fb.zeros(1)])
    mixed.sum().backward()
    assert mixed.tolist() == [1, 1, 0]
