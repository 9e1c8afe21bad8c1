"""Texts that are written for ops name what is theirs so that no parameter of an op can stand in its place."""

from __future__ import annotations

import ast
import collections
import re

import pytest

from flambeau.ops import _derive, _entry
from flambeau.ops._spec import OPS, composite, nodes, primitive
from flambeau.ops._spec.base import NAMES_IN_TEXTS
from flambeau.ops._spec.primitive import PrimitiveOp

NUMBERED = re.compile(r"[a-z]\d+")
OF_A_PARAMETER = re.compile(r"(a|d|default)_\w+|answer\d")  # made of its name: its array, its default


def every_op():
    _derive.load_all()
    return list({id(op): op for op in OPS.values()}.values())


@pytest.fixture(scope="module")
def texts():
    """The texts of all ops, and the parameters of all that may stand in one."""
    found, ops = [], every_op()
    written = _entry.compile_text

    def note(text, name, *rest):
        found.append((name, text))
        return written(text, name, *rest)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_entry, "compile_text", note)
        for op in ops:
            for make in (_entry.make_function, _entry.make_enter, _entry.make_inplace):
                make(op)
            type(op).answers.func(op)
            if isinstance(op, PrimitiveOp) and op.vjp_rule is not None:
                nodes.history(op)
                nodes.histories(op)
                if op.array_vjp_rule is not None:
                    nodes.vjp_on_arrays(op, None)
    assert len(found) > 2000
    return found


def given_under_other_names(assigned):
    """The parameters that an assignment reads from numpy's names for them, or of which several arguments are one."""
    source = ast.unparse(assigned.value)
    names = {x.id for target in assigned.targets for x in ast.walk(target) if isinstance(x, ast.Name)}
    return {n for n in names if source.startswith(("renamed(", "spread_by_name(", f"{n}_[0] if"))}


def test_names_of_texts_are_no_parameters(texts):
    missing, params_of = set(), collections.defaultdict(set)
    for op in every_op():
        params_of[op.name].update(op.params)
        params_of[op.qualified].update(op.params)
    for name, text in texts:
        make = ast.parse(text).body[0]
        own = {a.arg for a in make.args.args}
        for fn in make.body:
            if not isinstance(fn, ast.FunctionDef):
                continue
            params = {a.arg for a in (*fn.args.args, *fn.args.kwonlyargs)}
            stored = {x.id for x in ast.walk(fn) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
            given_anew = {n for x in ast.walk(fn) if isinstance(x, ast.Assign) for n in given_under_other_names(x)}
            assert not params & own, name
            assert not (params & stored) - given_anew, name
            own |= stored - params
        free = {n for n in own if n[0] != "_" and not n[0].isupper() and not NUMBERED.fullmatch(n) and not OF_A_PARAMETER.fullmatch(n)}
        of_op = name.split()[0]
        missing |= free - NAMES_IN_TEXTS - params_of[of_op] - params_of[of_op.rstrip("_")]
    assert not missing


def test_parameters_have_no_names_of_texts():
    underscored = {"_o", "_kept", "_recorded", "_front", "_noded", "_plan", "_key", "_records", "_wrap", "_of", "_kernel"}
    for op in every_op():
        assert not underscored & set(op.params), op

    def of_ours(fn):
        fn.__module__ = "flambeau.ops.declared"
        return fn

    with pytest.raises(TypeError, match="made"):
        composite(surface=0)(of_ours(lambda input, made: input))
    with pytest.raises(TypeError, match="node"):
        primitive(surface=0)(of_ours(lambda node: None))


def test_draws_with_an_out_have_no_plan():
    op = OPS["bernoulli"]
    for declare in (op.plan, op.forwards):
        with pytest.raises(TypeError, match="draws numbers"):
            declare(lambda input, p, generator: None)
