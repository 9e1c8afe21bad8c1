"""The builtin that says whether two small arrays hold the same numbers."""
from __future__ import annotations

from flambeau_kernels.engine.builtins.fastcall import REALS, Module, Part, Real, entry


def same(module: Module, name: str) -> None:
    """Add the builtin ``(array, array) -> 1 or 0``, of one dtype and shape: nan is no equal of anything, and -0.0 one of 0.0."""
    module.functions += [*(_part(name, real) for real in REALS), entry(name, 2)]


def _part(name: str, real: Real) -> str:
    code = Part(name, real)
    a, b = code.argument(0), code.argument(1)
    code.require_array(a)
    code.require_array(b)
    code.require(code.let(f"call i1 @same_shape(ptr {a}, ptr {b})"))
    n = code.count(a)
    ours, theirs = code.data(a), code.data(b)
    code.do("br label %start")
    code.label("start")
    code.do("br label %next")
    code.label("next")
    code.do("%i = phi i64 [0, %start], [%i.next, %compare]")
    code.branch(code.let(f"icmp slt i64 %i, {n}"), "compare", "equal")
    code.label("compare")
    x, y = (code.element(data, "%i", real.llvm) for data in (ours, theirs))
    code.do("%i.next = add nuw nsw i64 %i, 1")
    code.branch(code.let(f"fcmp oeq {real.llvm} {x}, {y}"), "next", "equal")
    code.label("equal")
    code.do("%answer = phi i64 [1, %next], [0, %compare]")
    made = code.let(f"call ptr {code.slot('new_int')}(i64 %answer)")
    code.do(f"ret ptr {made}")
    return code.text()
