"""Orthogonal polynomials of any degree by their three-term recurrence: `p` is of degree k, `q` of degree k - 1.

In float64 the leading product of float32 values is exact, so a step rounds as a fused one does.
"""
from __future__ import annotations

import functools

from flambeau_kernels.scalar.routines import Lanes, Routine
from flambeau_kernels.scalar.symbols import F64, Symbol, Unsupported, pair, select


def _step(family: str, w: str, one: str, two: str) -> list[str]:
    """What makes %new of the float64s %x, %k, %p.wide and %less, which is `q` times its factor."""
    if family in ("chebyshev", "hermite"):
        return [f"%x.twice = fadd {w} %x, %x", f"%lead = fmul {w} %x.twice, %p.wide", f"%new = fsub {w} %lead, %less"]
    if family == "hermite_e":
        return [f"%lead = fmul {w} %x, %p.wide", f"%new = fsub {w} %lead, %less"]
    slope = [f"%k.twice = fmul {w} %k, {two}", f"%odd = fadd {w} %k.twice, {one}"]
    slope += [f"%s = fsub {w} %odd, %x"] if family == "laguerre" else [f"%s = fmul {w} %odd, %x"]
    return [*slope, f"%lead = fmul {w} %s, %p.wide", f"%both = fsub {w} %lead, %less", f"%new = fdiv {w} %both, %k.next"]


def _of_lanes(family: str, slope: int, shift: int, lanes: Lanes) -> tuple[str, set[str]]:
    t, c, kind = lanes.t, lanes.c, lanes.kind
    wide = Lanes(F64, lanes.count)
    w, same = wide.t, kind is F64

    def widened(name: str, of: str) -> str:
        return f"{name} = fadd {w} {of}, {wide.real(-0.0)}" if same else f"{name} = fpext {t} {of} to {w}"

    def narrowed(name: str, of: str) -> str:
        return f"{name} = fadd {w} {of}, {wide.real(-0.0)}" if same else f"{name} = fptrunc {w} {of} to {t}"

    anywhere, reduction = lanes.any("%more", "%some")
    factor = {"chebyshev": [f"%q.times = fadd {t} %q, {lanes.real(-0.0)}"],
              "hermite": [f"%k.double = fmul {w} %k, {wide.real(2.0)}", narrowed("%factor", "%k.double"),
                          f"%q.times = fmul {t} %factor, %q"]}.get(
        family, [narrowed("%factor", "%k"), f"%q.times = fmul {t} %factor, %q"])
    lines = [
        "entry:", widened("%x", "%a0"), widened("%n", "%a1"), f"%sloped = fmul {t} %a0, {lanes.real(slope)}",
        f"%first = fadd {t} %sloped, {lanes.real(shift)}", "br label %head",
        "head:", f"%k = phi {w} [{wide.real(1.0)}, %entry], [%k.next, %step]", f"%p = phi {t} [%first, %entry], [%p.next, %step]",
        f"%q = phi {t} [{lanes.real(1.0)}, %entry], [%q.next, %step]",
        # Once nan, always nan.
        f"%below = fcmp olt {w} %k, %n", f"%known = fcmp oeq {t} %p, %p", f"%some = and {c} %below, %known",
        anywhere.strip(), "br i1 %more, label %step, label %done",
        "step:", f"%k.next = fadd {w} %k, {wide.real(1.0)}", widened("%p.wide", "%p"), *factor, widened("%less", "%q.times"),
        *_step(family, w, wide.real(1.0), wide.real(2.0)), narrowed("%made", "%new"),
        f"%p.next = select {c} %some, {t} %made, {t} %p", f"%q.next = select {c} %some, {t} %p, {t} %q", "br label %head",
        "done:", f"%positive = fcmp ogt {w} %n, {wide.real(0.0)}", f"%zero = fcmp oeq {w} %n, {wide.real(0.0)}",
        f"%least = select {c} %zero, {t} {lanes.real(1.0)}, {t} {lanes.real(0.0)}",
        f"%result = select {c} %positive, {t} %p, {t} %least", f"ret {t} %result",
    ]  # fmt: skip
    return "\n".join(lines) + "\n", {reduction}


@functools.cache
def _routine(family: str, slope: int, shift: int) -> Routine:
    name = f"{family}_{slope}_{shift}".replace("-", "m")
    return Routine(name, 2, lambda lanes: _of_lanes(family, slope, shift, lanes), 60)


def recurrence(family: str, slope: int, shift: int, x: Symbol, n: Symbol) -> Symbol:
    """The polynomial of degree `n`, a whole number, of the family whose first is ``slope * x + shift``; 0 for n < 0."""
    x, n = pair(x, n)
    if x.kind.family != "f":
        raise Unsupported(f"polynomials of {x.kind.name}")
    return _routine(family, slope, shift)(x, select(n == n, n, -1.0))
