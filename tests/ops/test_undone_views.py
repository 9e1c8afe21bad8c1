"""Declarations of views say what a tensor is once a view of it has been written to."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fb
from flambeau.ops import _derive
from flambeau.ops._spec import OPS
from flambeau.ops._spec.samples import function_of, reached_by, samples_of

_derive.load_all()
# Views that show an element several times, parts that operators have no name for, and those that make several.
WITHOUT = {"unfold", "real_part", "imag_part", "basic_index"}
UNDONE = [op for op in dict.fromkeys(OPS.values()) if op.undo_rule is not None]
CALLED = [op for op in UNDONE if op.samples and not reached_by(op)]


@pytest.mark.parametrize("op", CALLED, ids=lambda op: op.qualified)
def test_what_a_write_through_a_view_makes_of_its_source(op: Any) -> None:
    for sample in samples_of(op):
        source, *rest = sample.args
        given = {**op.defaults, **dict(zip(op.params, sample.args, strict=False)), **sample.kwargs}
        view = function_of(op)(source, *rest, **sample.kwargs)
        new = fb.arange(view.numel()).reshape(view.shape).to(view.dtype) + 10 if view.dtype is not fb.complex64 else view * 2
        expected = source.clone()
        seen = function_of(op)(expected, *rest, **sample.kwargs)
        if any(s == 0 and n > 1 for s, n in zip(seen.stride(), seen.shape, strict=True)):
            assert op.undo_rule(new, source, *[given[n] for n in op.params[1:]]) is None
            continue
        seen.copy_(new)

        found = op.undo_rule(new, source, *[given[n] for n in op.params[1:]])

        assert found.dtype is expected.dtype
        assert fb.equal(found, expected)


def test_every_view_says_so() -> None:
    silent = {op.name for op in OPS.values() if op.kind == "view" and not op.several and op.undo_rule is None}
    assert silent == WITHOUT
    assert len(CALLED) >= 15
