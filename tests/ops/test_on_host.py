"""Primitives on the host run by a text written for each (`_spec/on_host.py`), which answers as `run_on` does for all operands."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import flambeau as fb
from flambeau.ops import _derive
from flambeau.ops._spec import OPS, on_host
from flambeau.ops._spec.primitive import PrimitiveOp

F = fb.nn.functional


def _calls() -> dict[str, Any]:
    x, m = fb.arange(12.0).reshape(3, 4) - 5.0, fb.arange(9.0).reshape(3, 3) + 3 * fb.eye(3)
    c = fb.arange(32.0).reshape(1, 2, 4, 4)
    return {
        "frexp": (x,), "transform": (x.to(fb.complex64), (1,), 1.0, False), "real_transform": (x, (1,), 1.0),
        "inverse_of": (m,), "det_of": (m,), "svd_of": (m, True), "qr_of": (m, "reduced"), "eigh_of": (m, "L"),
        "pad_constant": (x, ((1, 2),), 3.0), "fold_columns": (fb.ones(1, 8, 9), (4, 4), (2, 2), (1, 1), (0, 0), (1, 1)),
        "to_copy": (x, fb.float64, None, None), "unpool": (c[..., ::2, ::2], fb.arange(4).reshape(1, 1, 2, 2).expand(1, 2, 2, 2), (4, 4)),
    }  # fmt: skip


@pytest.mark.parametrize("name", _calls())
def test_the_text_gives_what_the_general_way_gives(name):
    op, args = OPS[name], _calls()[name]
    found, expected = op.run(*args), op.run_on(*args)

    found, expected = (x if isinstance(x, tuple) else (x,) for x in (found, expected))
    for a, b in zip(found, expected, strict=True):
        assert (a.dtype, a.stride(), a._array.tobytes()) == (b.dtype, b.stride(), b._array.tobytes())


@pytest.mark.parametrize("name", ["frexp", "transform", "inverse_of", "pad_constant", "to_copy"])
def test_the_text_records_what_the_general_way_records(name):
    op, args = OPS[name], _calls()[name]
    ways = []
    for run in (op.run, op.run_on):
        x = args[0].clone().requires_grad_()
        made = run(x, *args[1:])
        made = made[0] if isinstance(made, tuple) else made
        made.abs().sum().backward()
        ways.append((made.grad_fn.name(), x.grad._array.tobytes()))

    assert ways[0] == ways[1]


def test_what_is_no_single_tensor_of_the_host_is_left_to_the_general_way():
    meta = fb.frexp(fb.ones(2, 3, device="meta"))

    assert (meta.mantissa.device.type, meta.exponent.dtype) == ("meta", fb.int32)
    with pytest.raises(TypeError, match="must be Tensor"):
        OPS["frexp"].run(np.ones(2))
    with pytest.raises(OverflowError, match="64 bits"):
        OPS["pad_constant"].run(fb.ones(2), ((1, 1),), 1 << 70)


def test_all_primitives_of_the_host_have_such_a_text():
    _derive.load_all()
    for op in {id(op): op for op in list(OPS.values())}.values():
        if isinstance(op, PrimitiveOp) and not op.is_view and op.kernel_rule is not None and op.index_tensors is None:
            assert on_host.run(op) is not op.run_on


def test_an_operator_that_was_kept_before_its_first_use_is_made_once():
    code = """if True:
        import flambeau as fb
        kept, neg = fb.Tensor.__rmod__, fb.Tensor.__neg__
        x = fb.tensor([3.0, 4.0])
        assert kept(x, 7.0).tolist() == [1.0, 3.0] and neg(x).tolist() == [-3.0, -4.0]
        made = fb.Tensor.__rmod__
        assert made is not kept
        assert kept(x, 7.0).tolist() == [1.0, 3.0] and fb.Tensor.__rmod__ is made
        fb.Tensor.__rmod__ = lambda self, other: "another"
        assert kept(x, 7.0).tolist() == [1.0, 3.0] and 7.0 % x == "another"
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_padded_transform_is_that_of_the_padded_operand():
    x = fb.arange(30.0).reshape(5, 6) ** 2

    for n, dim in ((9, 0), (3, 0), (8, 1), (4, 1)):
        whole = fb.zeros(*(n if d == dim else x.shape[d] for d in range(2)))
        kept = tuple(slice(min(a, b)) for a, b in zip(whole.shape, x.shape, strict=True))
        whole[kept] = x[kept]
        for name in ("fft", "rfft", "ifft"):
            found, expected = getattr(fb.fft, name)(x, n, dim), getattr(fb.fft, name)(whole, dim=dim)
            assert (found.stride(), found._array.tobytes()) == (expected.stride(), expected._array.tobytes())


def test_maxima_go_back_to_their_planes_alone():
    values, at = fb.tensor([[[5.0, 4.0]], [[1.0, 2.0]]]), fb.tensor([[[1, 3]], [[0, 0]]])

    assert F.max_unpool1d(values, at, 2).tolist() == [[[0.0, 5.0, 0.0, 4.0]], [[2.0, 0.0, 0.0, 0.0]]]
    for wrong in (4, -1):
        with pytest.raises(RuntimeError, match="invalid max index"):
            F.max_unpool1d(values, fb.tensor([[[1, wrong]], [[0, 1]]]), 2)
