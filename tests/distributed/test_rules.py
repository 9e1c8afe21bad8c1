"""Ways to run ops on pieces: each gives what the op gives of whole tensors, for every op that its samples reach."""

from __future__ import annotations

import math

import pytest

import flambeau as fb
from flambeau import _aten
from flambeau._interpreters import Interpreter, pop, push
from flambeau.ops import _derive, _dispatch
from flambeau.ops._spec import OPS
from flambeau.ops._spec.pieces import DividedCall, everywhere, of_text
from flambeau.ops._spec.samples import function_of, reached_by, samples_of
from flambeau.utils import _pytree as pytree

# What runs on whole tensors: places anywhere in the memory of an operand, or results whose shape depends on values.
WHOLE = {
    "as_strided_scatter", "bags_of_rows", "base_points", "bincount", "diagonal_scatter", "distinct", "masked_scatter", "masked_select",
    "median_whole", "nanmedian_whole", "nonzero_rows", "products_at", "put", "sparse_dense_product", "trace", "ctc", "ctc_gradient",
    "cross_entropy_rows",
}  # fmt: skip


def every_op():
    _derive.load_all()
    return list({id(op): op for op in OPS.values()}.values())


class Noted(Interpreter):
    """Notes the calls of ops that are no compositions, or whose composition has a rule."""

    def __init__(self):
        self.calls = []

    def run(self, op, args, out, inplace):
        if out is None and (op.kind != "composite" or op.pieces_rule is not None):
            copied = pytree.tree_map(lambda x: x.detach().clone() if isinstance(x, fb.Tensor) else x, list(args))
            self.calls.append((op, tuple(copied)))
        return NotImplemented


def calls_of(op):
    """The calls of ops that the samples of `op` come to."""
    noted = Noted()
    for sample in samples_of(op):
        push(noted)
        try:
            function_of(op)(*sample.args, **sample.kwargs)
        except (NotImplementedError, RuntimeError, TypeError):  # what takes no interpreters
            continue
        finally:
            pop(noted)
    return noted.calls


def ways_of(op, asked):
    found = op.ways(asked)
    return everywhere(asked) if found is None and _aten.is_pointwise(op) else found


def piece_of(x, place, count, at):
    if isinstance(place, int):
        step = math.ceil(x.shape[place] / count)
        begin = min(step * at, x.shape[place])
        return x.narrow(place, begin, min(step, x.shape[place] - begin)).contiguous()
    if place in (None, "any"):
        return x
    assert place == "sum", place
    part = x // count if not x.is_floating_point() and not x.is_complex() else x * 0.25
    return part if at else x - part * (count - 1)


def together(parts, place):
    if place is None:
        return parts[0]
    if isinstance(place, int):
        return fb.cat(parts, place)
    stack = fb.stack(parts)
    if place in ("min", "max") and stack.dtype is fb.bool:
        return stack.all(0) if place == "min" else stack.any(0)
    if place == "sum":
        return stack.sum(0, dtype=stack.dtype)
    return {"avg": stack.mean, "min": stack.amin, "max": stack.amax, "product": stack.prod}[place](0)


def tensors_in(made):
    return [x for x in pytree.tree_leaves(made) if isinstance(x, fb.Tensor)]


def check_ways(op, args, count):
    meta = pytree.tree_map(lambda x: x.to("meta") if isinstance(x, fb.Tensor) else x, list(args))
    try:
        results = tensors_in(_dispatch.interpret(op, tuple(meta)))
    except NotImplementedError:
        return
    ways = ways_of(op, DividedCall(op, args, results, count))
    if ways is None:
        assert op.qualified in WHOLE, f"{op} has no rule; say how it runs on pieces (`in_pieces`), or list it here"
        return
    whole = tensors_in(_dispatch.interpret(op, args))
    for way in ways:
        operands = DividedCall(op, args, results, count).operands
        assert (len(way.operands), len(way.results)) == (len(operands), len(results)), way
        if any(p == "sum" and x.dtype is fb.bool for p, x in zip(way.operands, operands, strict=True)):
            continue                                  # which have no sums
        pieces = [[piece_of(x, p, count, at) for x, p in zip(operands, way.operands, strict=True)] for at in range(count)]
        if any(not x.numel() for each in pieces for x in each):
            continue                                  # ranks without a piece: in the programs of several processes
        made = [tensors_in(run_on(op, args, results, way, each, at, count)) for at, each in enumerate(pieces)]
        for i, (place, expected) in enumerate(zip(way.results, whole, strict=True)):
            found = together([parts[i] for parts in made], place)
            fb.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8, equal_nan=True, msg=lambda m, way=way: f"{op} {way}: {m}")


def run_on(op, args, results, way, piece, at, count):
    args = args if op.for_pieces is None else op.for_pieces(*args)
    given = iter(piece)
    local = [pytree.tree_map(lambda x: next(given) if isinstance(x, fb.Tensor) else x, a) for a in args]
    sized = getattr(op, "sized_by", "")
    if sized:
        shape, place = list(results[0].shape), way.results[0]
        if isinstance(place, int):
            step = math.ceil(shape[place] / count)
            shape[place] = min(step, shape[place] - step * at)
        local[op.params.index(sized)] = shape
    return _dispatch.interpret(op, tuple(local))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", [op for op in every_op() if op.public and not reached_by(op) and op.samples], ids=lambda op: op.qualified)
def test_each_way_on_pieces_gives_the_whole_result(op):
    if "generator" in op.params or op.qualified.startswith(("sparse.", "quantize")):
        pytest.skip("draws numbers, or is of another kind of arrays")
    for called, args in calls_of(op):
        tensors = tensors_in(args)
        if "generator" in called.params or not tensors or any(x.layout != fb.strided or x.is_quantized for x in tensors):
            continue
        for count in (2, 3):
            check_ways(called, args, count)


def test_ops_are_linear_in_what_their_formulas_add_up_in():
    _derive.load_all()
    found = {name: OPS[name].linear_together((..., ..., 1)[: len(OPS[name].params)]) for name in ("add", "mul", "neg", "relu", "floor")}
    assert found == {"add": [("input", "other")], "mul": [("input",), ("other",)], "neg": [("input",)], "relu": [], "floor": []}
    for number in (1.0, 1e-8, 1e-30):
        assert OPS["add"].linear_together((..., number, 1)) == [] != OPS["mul"].linear_together((..., 3.0))


def test_texts_say_which_dimensions_are_divided():
    _derive.load_all()
    x, y = fb.empty(4, 3, device="meta"), fb.empty(3, 6, device="meta")
    asked = DividedCall(OPS["mm"], (x, y), [fb.empty(4, 6, device="meta")], 2)
    ways = {(w.operands, w.results) for w in OPS["mm"].ways(asked)}
    assert {((0, None), (0,)), ((None, 1), (1,)), ((1, 0), ("sum",)), ((None, None), (None,)), (("sum", None), ("sum",))} <= ways
    with pytest.raises(ValueError, match="other signs"):
        of_text("iK,kj->ij")
