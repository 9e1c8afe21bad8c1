"""Symbolic numbers: arithmetic, what is known of them, guards, and the functions that ask."""

from __future__ import annotations

import math
import operator
from typing import Any

import pytest

import flambeau as fb
from comparing import disagreements
from flambeau._subclasses import FakeTensorMode
from flambeau.fx.experimental.proxy_tensor import make_fx

pytest.importorskip("sympy")
S = pytest.importorskip("flambeau.fx.experimental.symbolic_shapes")
from flambeau.fx.experimental._sources import ConstantSource, LocalSource  # noqa: E402  # they are looked for behind sympy
from flambeau.utils._sympy.value_ranges import ValueRanges  # noqa: E402


def sizes(*numbers: int, positive: bool | None = True, env: Any = None) -> Any:
    env = env or S.ShapeEnv()
    made = []
    for i, n in enumerate(numbers):
        symbol = env.create_symbol(n, ConstantSource(f"x{i}"), positive=positive)
        made.append(env.create_symintnode(symbol, hint=n))
    return env, *made


ARITHMETIC = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv, "floordiv": operator.floordiv,
    "mod": operator.mod, "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
    "ge": operator.ge, "max": fb.sym_max, "min": fb.sym_min, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "lshift": operator.lshift, "rshift": operator.rshift, "pow": operator.pow,
}  # fmt: skip


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_of_symbols_is_that_of_their_numbers(name: str) -> None:
    f = ARITHMETIC[name]
    for a in (-7, -2, 3, 5):
        for b in (-3, 2, 4) if name not in ("lshift", "rshift", "pow") else (2, 4):
            _, x, y = sizes(a, b, positive=None)
            for left, right in ((x, y), (x, b), (a, y)):
                made = f(left, right)
                kind = {fb.SymInt: int, fb.SymFloat: float, fb.SymBool: bool}.get(type(made), type(made))
                assert kind(made) == f(a, b), (a, b)
                assert kind is type(f(a, b))


def test_functions_of_numbers_take_symbols() -> None:
    _, x = sizes(-6, positive=None)

    assert int(abs(x)) == 6
    assert int(-x) == 6
    assert float(fb.sym_float(x)) == -6.0
    assert int(fb.sym_int(fb.sym_float(x) / 4)) == -1
    assert math.floor(x / 4) == -2
    assert math.ceil(x / 4) == -1
    assert float(fb.sym_sqrt(x * x)) == 6.0
    assert int(fb.sym_ite(x > 0, x, -x)) == 6
    assert bool(fb.sym_not(x > 0)) is True
    assert int(fb.sym_sum([x, 2, x])) == -10
    assert x.as_integer_ratio() == (x, 1)


def test_what_follows_from_what_is_known_is_no_guard() -> None:
    env, a, b = sizes(4, 6)

    assert a > 1
    assert a * b >= a + b - 1 or True
    assert (a * b) // b is not None
    assert ((a * b) // b) == a
    assert (4 * a) % 2 == 0
    assert a // 2 <= a
    assert fb.sym_max(a, 1) is not None
    assert str(fb.sym_max(a, 1)) == "s0"
    assert not env.guards


def test_a_guard_decides_what_follows_from_it() -> None:
    env, a, b = sizes(4, 6)
    assert b > a
    assert b >= a
    assert b + 1 > a
    assert b != a
    assert not b <= a
    assert len(env.guards) == 1


def test_an_equation_takes_the_place_of_a_symbol() -> None:
    env, a, b = sizes(4, 8)
    assert a * 2 == b
    assert str(b) == "2*s0"
    assert str(b // a) == "2"
    assert len(env.guards) == 1


def test_rules_may_be_told_what_values_decide() -> None:
    env = S.ShapeEnv()
    u = env.create_unbacked_symint()

    with pytest.raises(S.GuardOnDataDependentSymNode, match="Could not guard on data-dependent expression"):
        bool(u > 3)
    fb._check(u > 3)
    assert u > 3
    assert u >= 2
    assert not S.guard_or_false(u == 9)
    assert S.guard_or_true(u == 9)
    S.constrain_range(u, min=0, max=20)
    assert u < 21
    assert env.bound_sympy(u.node.expr) == ValueRanges(4, 20)


def test_graphs_assert_what_was_claimed_of_values() -> None:
    def f(x: Any) -> Any:
        n = x.sum().item()
        fb._check(n >= 2)
        return fb.zeros(n) if n >= 2 else x

    gm = make_fx(f, tracing_mode="symbolic")(fb.tensor([1, 2]))
    gm.graph.eliminate_dead_code()
    gm.recompile()

    assert gm(fb.tensor([3, 1])).shape == (4,)
    with pytest.raises(RuntimeError, match="Expected cond to be True"):
        gm(fb.tensor([1, 0]))


def test_functions_on_symbols_are_as_pytorchs(oracle: Any) -> None:
    import importlib

    for name in ("torch.fx.experimental.symbolic_shapes", "torch._dynamo.source", "flambeau._dynamo.source"):
        importlib.import_module(name)
    setting = (
        "S = torch.fx.experimental.symbolic_shapes; CS = torch._dynamo.source.ConstantSource; env = S.ShapeEnv(); "
        "mk = lambda n, v, **k: env.create_symintnode(env.create_symbol(v, CS(n), **k), hint=v); "
        "a, b, c = mk('a', 4), mk('b', 6), mk('c', 4); "
    )
    lines = """
    S.is_concrete_int(a), S.is_concrete_int(3), S.is_concrete_int(a - a + 2), S.is_concrete_bool(a > 3)
    S.is_concrete_float(2.0), S.is_symbolic(a), S.is_symbolic(3)
    bool(S.sym_eq([a, b], [c, b])), S.sym_eq((a, 2), (a, 2)), bool(S.sym_eq(a, b)), S.sym_eq([1], [1, 2])
    S.sym_eq('a', 'a')
    S.statically_known_true(a > 1), S.statically_known_true(a > 3), S.statically_known_true(True), S.statically_known_false(a < 2)
    S.has_free_symbols(a), S.has_free_symbols(3), S.has_free_symbols([1, a]), len(S.free_symbols([a, b, c]))
    S.has_free_unbacked_symbols(env.create_unbacked_symint()), S.has_free_unbacked_symbols(a)
    S.guard_bool(a < b), S.guard_int(b), S.guard_scalar(b), S.guard_scalar(2.5), len(env.guards)
    S.guard_or_false(a < b), S.guard_or_true(a > b)
    S.constrain_range(3, min=4)
    S.constrain_range(3, min=2, max=5)
    S.check_consistent(a, 4), S.check_consistent(torch.ones(2, 3), torch.zeros(2, 3))
    S.check_consistent(torch.ones(2, 3), torch.zeros(2, 4))
    bool(S.sym_and(a > 2, b > 3)), bool(S.sym_or(a > 2, b > 30))
    hash(a)
    int(a + b), int(a * b // 5), float(a / b), bool(a == c), str(a) == str(c)
    env.evaluate_guards_expression("L['t0'] > 3", [4]), env.allow_scalar_outputs, env.specialize_zero_one, env.duck_shape
    isinstance(mk('d', 1), int), isinstance(mk('e', 0), int), isinstance(mk('f', 1, do_not_specialize_zero_one=True), int)
    isinstance(mk('g', 9, dynamic_dim=S.DimDynamic.STATIC), int), [d.name for d in S.DimDynamic if d.value < 3]
    S.StatelessSymbolicContext([S.DimDynamic.DUCK]).dynamic_strides[0].name
    torch.sym_max(a, 2) is a, torch.sym_min(3, 2), torch.sym_not(True), torch.sym_sum([1, 2, 3]), torch.sym_float(2), torch.sym_int(2.5)
    S.ConvertIntKey().get(True), S.CallMethodKey('size').get(torch.ones(2)), S.DivideByKey(3).get(9), str(S.CallMethodKey('size'))
    """

    assert not disagreements(oracle, "\n".join(setting + line.strip() for line in lines.strip().splitlines()))


def test_propositions_have_one_form() -> None:
    import sympy

    a, b = sympy.symbols("a b", integer=True, positive=True)
    forms = {a > 4: "4 < a", a - b >= 2: "b + 2 <= a", 2 * a - 4 * b > 6: "2*b + 3 < a", a <= 4: "a <= 4", sympy.Ne(a, 3): "Ne(a, 3)",
             sympy.And(a > 4, b < 3): "(4 < a) & (b < 3)", sympy.Eq(a, b + 2): "Eq(a, b + 2)"}  # fmt: skip

    assert {e: str(S.canonicalize_bool_expr(e)) for e in forms} == forms


def test_a_context_says_which_sizes_are_symbols() -> None:
    env = S.ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    context = S.StatelessSymbolicContext(
        [S.DimDynamic.STATIC, S.DimDynamic.DYNAMIC, S.DimDynamic.DYNAMIC],
        constraint_sizes=[None, S.StrictMinMaxConstraint(False, ValueRanges(2, 9)), S.RelaxedUnspecConstraint(False)],
    )
    x = mode.from_tensor(fb.ones(5, 5, 5), symbolic_context=context, source=LocalSource("x"))
    assert str(x.shape) == "torch.Size([5, s0, s1])"
    assert x.shape[1] < 10
    assert not env.guards
    conditions = env.produce_guards([x], [LocalSource("x")], input_contexts=[context])
    assert conditions[-2:] == ["2 <= L['x'].size()[1] <= 9", "2 <= L['x'].size()[2]"]
    int(x.shape[2])
    with pytest.raises(S.ConstraintViolationError, match="specialised it to 5"):
        env.produce_guards([x], [LocalSource("x")], input_contexts=[context])


def test_a_context_keeps_the_symbols_of_its_sources() -> None:
    context = S.StatefulSymbolicContext([S.DimDynamic.DYNAMIC], tensor_source=LocalSource("x"))
    env = S.ShapeEnv()
    (size,), _, _ = env.create_symbolic_sizes_strides_storage_offset(fb.ones(5), LocalSource("x"), symbolic_context=context)
    env.source_to_var.clear()
    (again,), _, _ = env.create_symbolic_sizes_strides_storage_offset(fb.ones(5), LocalSource("x"), symbolic_context=context)

    assert str(size) == str(again) == "s0"


def test_guards_are_programs() -> None:
    env = S.ShapeEnv()
    x = FakeTensorMode(shape_env=env).from_tensor(fb.ones(4, 6), source=LocalSource("x"))
    assert x.shape[0] * x.shape[1] % 3 == 0
    code = env.produce_guards_expression([x])

    assert env.evaluate_guards_expression(code, [fb.ones(5, 9)])
    assert not env.evaluate_guards_expression(code, [fb.ones(5, 8)])
    assert not env.evaluate_guards_expression(code, [fb.ones(4, 9).T])
    assert env.bind_symbols([x], [fb.ones(5, 9)]) == dict(zip(sorted(env.var_to_val, key=str), (5, 9), strict=True))
    assert "Mod" in env.format_guards()


def test_what_values_decide_is_bound_to_its_place_and_again() -> None:
    gm = make_fx(lambda x: x.nonzero() * 2, tracing_mode="symbolic")(fb.tensor([0.0, 1.0, 2.0]))
    (node,) = [n for n in gm.graph.nodes if "unbacked_bindings" in n.meta]
    (path,) = node.meta["unbacked_bindings"].values()
    assert "".join(map(str, path)) == ".size()[0]"

    env = gm.shape_env
    with FakeTensorMode(shape_env=env) as mode:
        result = S.PropagateUnbackedSymInts(gm).run(mode.from_tensor(fb.ones(3)))
    assert str(env.replace(result.shape[0].node._expr)) == "u0"


def test_constraints_of_sizes_are_solved() -> None:
    import sympy

    a, b = sympy.symbols("a b", integer=True, positive=True)
    solver = S.DimConstraints({a: [LocalSource("a")], b: [LocalSource("b")]}, {a: sympy.Integer(8), b: sympy.Integer(5)}, {a, b}, {})
    for guard in (a >= 4, a < 100, S.sym_and(sympy.Eq(b, 5)), sympy.Eq(S.SymNode and sympy.Mod(a, 1), 0)):
        solver.add(guard)
    solver.solve()

    assert list(solver.forced_specializations().values()) == [5]
    assert "4 <= L['a'] <= 99" in solver.prettify_results(None, {}, None, solver.forced_specializations())
    with pytest.raises(S.ConstraintViolationError, match="does not hold"):
        solver.add(a > 9)


@pytest.mark.parametrize("name", ["and", "or", "xor", "lshift", "rshift"])
def test_bits_of_floats_are_refused(name: str) -> None:
    _, x = sizes(5)
    for a, b in ((x, 2.5), (2.5, x), (fb.sym_float(x), 2), (2, fb.sym_float(x))):
        with pytest.raises(TypeError, match="unsupported operand"):
            ARITHMETIC[name](a, b)


def test_a_power_of_a_symbolic_exponent_is_an_int_without_a_guard() -> None:
    env, x = sizes(5)
    made = 2 ** (x - 1) * (x + 1)

    assert type(made) is type(x**x) is fb.SymInt
    assert not env.guards
    assert int(made) == 96
    assert made > 90
    guards = env.produce_guards_expression([x])
    assert env.evaluate_guards_expression(guards, [5])
    assert not env.evaluate_guards_expression(guards, [4])
    assert 2 ** (2 - sizes(5)[1]) == 0.125             # of an exponent that may be negative the kind of number is unknown


def test_guards_of_bits_and_shifts_are_evaluated() -> None:
    env, x = sizes(5)
    assert (x & 4) + (x << 1) + (x >> 1) > 15
    guards = env.produce_guards_expression([x])

    assert env.evaluate_guards_expression(guards, [5])
    assert not env.evaluate_guards_expression(guards, [3])


def test_rounding_a_symbolic_float_is_symbolic() -> None:
    env, x = sizes(5)
    made = round(x / 2)

    assert type(made) is fb.SymInt
    assert not env.guards
    assert int(made) == 2
    assert env.evaluate_guards_expression(env.produce_guards_expression([x]), [4])   # 2.0 is 2 too
    assert not env.evaluate_guards_expression(env.produce_guards_expression([x]), [7])
    assert round(x / 2, 1) == 2.5


def test_symbolic_floats_and_bools_are_found_by_their_values() -> None:
    env, x = sizes(5)

    assert {2.5: "half"}[x / 2] == "half"
    assert {True: "more"}[x > 3] == "more"
    assert len(env.guards) == 2
    assert fb.sym_int(x > 2) == 1


def test_nodes_that_ask_for_sizes_are_accessors() -> None:
    graph = fb.fx.Graph()
    x = graph.placeholder("x")
    asked = [graph.call_function(f, args) for f, args in (
        (fb.ops.aten.sym_size.int, (x, 0)), (fb.ops.aten.sym_size, (x,)), (fb.ops.aten.sym_numel.default, (x,)),
    )]  # fmt: skip

    assert all(S.is_accessor_node(node) for node in asked)
    assert not S.is_accessor_node(graph.call_function(fb.relu, (x,)))
    assert not sizes(5)[1].node.is_nested_int()


def test_fake_tensors_of_tensors_that_are_gone_lend_no_shape_to_later_ones():
    env = fb.fx.experimental.symbolic_shapes.ShapeEnv()
    mode, other = FakeTensorMode(shape_env=env), FakeTensorMode(shape_env=env)

    shapes = [[int(s) for s in mode.from_tensor(fb.zeros(i + 2, 3)).shape] for i in range(4)]
    assert shapes == [[2, 3], [3, 3], [4, 3], [5, 3]]
    assert [int(s) for s in other.from_tensor(fb.zeros(7, 2)).shape] == [7, 2]


def test_numbers_and_bounds_are_taken_and_named_as_they_are_given():
    shapes = fb.fx.experimental.symbolic_shapes
    env = shapes.ShapeEnv()

    assert env.create_symintnode(7, hint=7) == 7
    with pytest.raises(ValueError, match="min=5 and max=2"):
        shapes.constrain_range(env.create_unbacked_symint(), min=5, max=2)
    assert fb.sym_float("1.5") == 1.5
    assert (fb.sym_int("3"), fb.sym_int(-3.7)) == (3, -3)
    with pytest.raises(AssertionError, match="sym_ite takes a bool"):
        fb.sym_ite(3, 1, 2)
