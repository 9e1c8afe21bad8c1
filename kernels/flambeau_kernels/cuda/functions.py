"""Functions that CPUs' C libraries have and PTX has no instruction for, as LLVM IR: fmod, and sin, cos, tan of huge numbers.

The scalar formulas call LLVM's intrinsics for these; `complete` has the calls go to the definitions here, on the device and
in the simulator alike.
"""

from __future__ import annotations

import functools
import re
import struct

from flambeau_kernels.scalar import trigonometric
from flambeau_kernels.scalar.symbols import F64, UINT, Block, Symbol, select

__all__ = ["complete"]

_FREM = re.compile(r"= frem (float|double) (\S+), (\S+)")
_CIRCULAR = re.compile(r"@llvm\.(sin|cos|tan)\.f(32|64)\(")


def complete(lines: list[str]) -> tuple[list[str], list[str]]:
    """`lines` with calls of what PTX lacks led to definitions, and the names of these definitions."""
    text = "\n".join(lines)
    if "frem" not in text and "@llvm." not in text:
        return lines, []
    wanted = [f"fmod.{kind}" for kind in ("float", "double") if f"= frem {kind}" in text]
    wanted += sorted({f"{name}.f{bits}" for name, bits in _CIRCULAR.findall(text)})
    text = _FREM.sub(r"= call \1 @flambeau.fmod.\1(\1 \2, \1 \3)", text)
    return _CIRCULAR.sub(r"@flambeau.\1.f\2(", text).split("\n"), wanted


def definitions(names: set[str]) -> tuple[str, set[str]]:
    """The text of the functions `names`, with what they call, and the intrinsics they need declared."""
    needs: set[str] = set()
    parts = []
    for name in sorted(names):
        if name.startswith("fmod"):
            parts.append(_fmod(name.removeprefix("fmod.")))
            needs |= {"declare double @llvm.fabs.f64(double)", "declare double @llvm.copysign.f64(double, double)",
                      "declare double @llvm.trunc.f64(double)", "declare double @llvm.fma.f64(double, double, double)"}
        else:
            text, more = _circular(*name.split(".f"))
            parts.append(text)
            needs |= more
    if any(not name.startswith("fmod") for name in names):
        parts.insert(0, _reduction())
        needs |= {"declare i64 @llvm.ctlz.i64(i64, i1)", "declare i128 @llvm.abs.i128(i128, i1)",
                  "declare double @llvm.fma.f64(double, double, double)"}
    return "\n".join(parts), needs


def _fmod(kind: str) -> str:
    """Long division: each step takes away a multiple of the divisor by a power of two, exactly, until less than it is left."""
    widen = ["  %x = fpext float %x0 to double", "  %y = fpext float %y0 to double"]
    same = ["  %x = fadd double %x0, -0.0", "  %y = fadd double %y0, -0.0"]
    narrow = ["  %back = fptrunc double %signed to float", "  ret float %back"]
    return "\n".join([
        f"define internal {kind} @flambeau.fmod.{kind}({kind} %x0, {kind} %y0) noinline {{",
        "entry:", *(widen if kind == "float" else same),
        "  %a = call double @llvm.fabs.f64(double %x)", "  %b = call double @llvm.fabs.f64(double %y)",
        "  %finite = fcmp olt double %a, 0x7FF0000000000000", "  %divides = fcmp ogt double %b, 0.0",
        "  %fits = and i1 %finite, %divides", "  br i1 %fits, label %loop, label %none",
        "none:", "  %nan = fmul double %x, %y", "  %never = fdiv double %nan, 0.0", "  %gone = fsub double %never, %never",
        f"  %wrong = {'fptrunc double %gone to float' if kind == 'float' else 'fadd double %gone, 0.0'}", f"  ret {kind} %wrong",
        "loop:", "  %r = phi double [%a, %entry], [%next, %step]", "  %more = fcmp oge double %r, %b",
        "  br i1 %more, label %step, label %done",
        "step:",
        "  %rbits = bitcast double %r to i64", "  %bbits = bitcast double %b to i64",
        "  %rexp = lshr i64 %rbits, 52", "  %bexp = lshr i64 %bbits, 52", "  %apart = sub i64 %rexp, %bexp",
        # Quotients below 2**24 are found by one division, whose error the next two lines see.
        "  %far = icmp sgt i64 %apart, 22", "  %down = sub i64 %apart, 22", "  %shift = select i1 %far, i64 %down, i64 0",
        # A power of two is multiplied with in two halves, because the whole could overflow.
        "  %half = lshr i64 %shift, 1", "  %other = sub i64 %shift, %half",
        "  %e0 = add i64 %half, 1023", "  %e1 = add i64 %other, 1023", "  %m0 = shl i64 %e0, 52", "  %m1 = shl i64 %e1, 52",
        "  %f0 = bitcast i64 %m0 to double", "  %f1 = bitcast i64 %m1 to double",
        "  %s0 = fmul double %b, %f0", "  %s = fmul double %s0, %f1",
        "  %ratio = fdiv double %r, %s", "  %q = call double @llvm.trunc.f64(double %ratio)", "  %minus = fneg double %q",
        "  %left = call double @llvm.fma.f64(double %minus, double %s, double %r)",
        "  %under = fcmp olt double %left, 0.0", "  %again = fadd double %left, %s",
        "  %next = select i1 %under, double %again, double %left", "  br label %loop",
        "done:", "  %signed = call double @llvm.copysign.f64(double %r, double %x)",
        *(narrow if kind == "float" else ["  ret double %signed"]), "}",
    ])  # fmt: skip


# -- sine, cosine, tangent of |x| > 2**24 --------------------------------------------------------------------------------


@functools.cache
def _two_over_pi(words: int) -> list[int]:
    """The first 64 * `words` bits of 2/pi after the point, by Machin's formula in integers."""
    bits = 64 * words + 64
    one = 1 << (bits + 64)

    def arctan_of_inverse(n: int) -> int:
        term = total = one // n
        k = 1
        while term:
            term //= n * n
            k += 2
            total += term // k if k % 4 == 1 else -(term // k)
        return total

    pi = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
    inverse = (2 * one << bits) // pi >> (bits - 64 * words)
    return [inverse >> 64 * (words - 1 - k) & (1 << 64) - 1 for k in range(words)]


def _reduction() -> str:
    """``{i64 k, double r, double low}`` with x = k pi/2 + r + low, |r| <= pi/4 (Payne and Hanek 1983, SIGNUM Newsletter 18).

    x = m 2**e for an integer m of 53 bits. Bits of 2/pi that make multiples of 4 with m 2**e are left out; the next 192 give
    x 2/pi modulo 4 with an error below 2**-136, and no x comes nearer to a multiple of pi/2 than 2**-62.
    """
    table = [0, *_two_over_pi(20)]
    shown = ", ".join(f"i64 {word}" for word in table)
    high = _hex(1.5707963267948966)
    low = _hex(6.123233995736766e-17)
    return f"""
@flambeau.bits = internal unnamed_addr constant [{len(table)} x i64] [{shown}], align 8
define internal {{i64, double, double}} @flambeau.rest(double %x) noinline {{
  %bits = bitcast double %x to i64
  %fraction = and i64 %bits, {(1 << 52) - 1}
  %m = or i64 %fraction, {1 << 52}
  %twice = shl i64 %bits, 1
  %exp = lshr i64 %twice, 53
  %at = sub i64 %exp, {1075 + 2 - 64}
  %word = lshr i64 %at, 6
  %by = and i64 %at, 63
  %p0 = getelementptr [{len(table)} x i64], ptr @flambeau.bits, i64 0, i64 %word
  %t0 = load i64, ptr %p0
  %p1 = getelementptr i64, ptr %p0, i64 1
  %t1 = load i64, ptr %p1
  %p2 = getelementptr i64, ptr %p0, i64 2
  %t2 = load i64, ptr %p2
  %p3 = getelementptr i64, ptr %p0, i64 3
  %t3 = load i64, ptr %p3
  %w0 = call i64 @llvm.fshl.i64(i64 %t0, i64 %t1, i64 %by)
  %w1 = call i64 @llvm.fshl.i64(i64 %t1, i64 %t2, i64 %by)
  %w2 = call i64 @llvm.fshl.i64(i64 %t2, i64 %t3, i64 %by)
  %ml = zext i64 %m to i128
  %l0 = zext i64 %w0 to i128
  %l1 = zext i64 %w1 to i128
  %l2 = zext i64 %w2 to i128
  %q1 = mul i128 %ml, %l1
  %q2 = mul i128 %ml, %l2
  %q2h = lshr i128 %q2, 64
  %mid = add i128 %q1, %q2h
  %q0 = mul i128 %ml, %l0
  %q0s = shl i128 %q0, 64
  %n = add i128 %q0s, %mid
  %quarter = lshr i128 %n, 126
  %k0 = trunc i128 %quarter to i64
  %q2l = trunc i128 %q2 to i64
  %rest = lshr i64 %q2l, 62
  %restl = zext i64 %rest to i128
  %up = shl i128 %n, 2
  %f = or i128 %up, %restl
  %below = icmp slt i128 %f, 0
  %carry = zext i1 %below to i64
  %k1 = add i64 %k0, %carry
  %size = call i128 @llvm.abs.i128(i128 %f, i1 false)
  %sizeh = lshr i128 %size, 64
  %top0 = trunc i128 %sizeh to i64
  %lz = call i64 @llvm.ctlz.i64(i64 %top0, i1 false)
  %lzl = zext i64 %lz to i128
  %normal = shl i128 %size, %lzl
  %normalh = lshr i128 %normal, 64
  %a = trunc i128 %normalh to i64
  %b = trunc i128 %normal to i64
  %a1 = and i64 %a, -2048
  %a2 = and i64 %a, 2047
  %a2s = shl i64 %a2, 53
  %bs = lshr i64 %b, 11
  %a2b = or i64 %a2s, %bs
  %d1 = uitofp i64 %a1 to double
  %d2 = uitofp i64 %a2b to double
  %scale0 = sub i64 {1023 - 64}, %lz
  %scale1 = shl i64 %scale0, 52
  %scale = bitcast i64 %scale1 to double
  %h = fmul double %d1, %scale
  %small = fmul double %scale, {_hex(2.0**-53)}
  %t = fmul double %d2, %small
  %p = fmul double %h, {high}
  %minus = fneg double %p
  %e0 = call double @llvm.fma.f64(double %h, double {high}, double %minus)
  %e1 = call double @llvm.fma.f64(double %h, double {low}, double %e0)
  %e = call double @llvm.fma.f64(double %t, double {high}, double %e1)
  %r0 = fadd double %p, %e
  %gone = fsub double %r0, %p
  %low0 = fsub double %e, %gone
  %negative = icmp slt i64 %bits, 0
  %turn = xor i1 %negative, %below
  %r1 = fneg double %r0
  %low1 = fneg double %low0
  %r = select i1 %turn, double %r1, double %r0
  %low = select i1 %turn, double %low1, double %low0
  %k2 = sub i64 0, %k1
  %k = select i1 %negative, i64 %k2, i64 %k1
  %o0 = insertvalue {{i64, double, double}} undef, i64 %k, 0
  %o1 = insertvalue {{i64, double, double}} %o0, double %r, 1
  %o2 = insertvalue {{i64, double, double}} %o1, double %low, 2
  ret {{i64, double, double}} %o2
}}
declare i64 @llvm.fshl.i64(i64, i64, i64)"""


def _hex(number: float) -> str:
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


@functools.cache
def _circular(name: str, bits: str) -> tuple[str, frozenset[str]]:
    """The function `name` for finite |x| > 2**24; anything smaller gives 0, which its caller does not look at."""
    block = Block(F64)
    sine, cosine = trigonometric._sin_and_cos(Symbol(block, "%r", F64), Symbol(block, "%low", F64))
    k = Symbol(block, "%k", UINT[64])
    swap, minus = (k & 1) != 0, (k & 2) != 0
    if name == "tan":
        value = select(swap, -cosine, sine) / select(swap, sine, cosine)
    elif name == "sin":
        value = select(minus, -select(swap, cosine, sine), select(swap, cosine, sine))
    else:
        value = select(minus ^ swap, -select(swap, sine, cosine), select(swap, sine, cosine))
    kind = "float" if bits == "32" else "double"
    body = "\n".join(block.lines)
    return f"""
define internal {kind} @flambeau.{name}.f{bits}({kind} %x0) noinline {{
  %x = {"fpext float %x0 to double" if bits == "32" else "fadd double %x0, -0.0"}
  %size = call double @llvm.fabs.f64(double %x)
  %large = fcmp ogt double %size, {_hex(2.0**24)}
  %finite = fcmp olt double %size, 0x7FF0000000000000
  %meant = and i1 %large, %finite
  br i1 %meant, label %reduce, label %none
none:
  ret {kind} 0.0
reduce:
  %parts = call {{i64, double, double}} @flambeau.rest(double %x)
  %k = extractvalue {{i64, double, double}} %parts, 0
  %r = extractvalue {{i64, double, double}} %parts, 1
  %low = extractvalue {{i64, double, double}} %parts, 2
{body}
  {f"%back = fptrunc double {value.name} to float" if bits == "32" else f"%back = fadd double {value.name}, -0.0"}
  ret {kind} %back
}}""", frozenset(block.needs | {"declare double @llvm.fabs.f64(double)"})
