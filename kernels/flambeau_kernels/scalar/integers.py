"""Integer functions: greatest common divisor, least common multiple, and powers, which wrap around like products.

Narrow integers are computed in 32 bits.
"""
from __future__ import annotations

from flambeau_kernels.scalar.routines import Lanes, Routine
from flambeau_kernels.scalar.symbols import UINT, Symbol, Unsupported, select


def _gcd_of_lanes(lanes: Lanes) -> tuple[str, set[str]]:
    """Stein 1967, "Computational problems associated with Racah algebra": %x stays odd, the larger loses the smaller."""
    t, c, all_, bits = lanes.t, lanes.c, lanes.all, lanes.kind.bits
    count, smaller, larger = (f"{t} @llvm.{name}.{lanes.intrinsic}" for name in ("cttz", "umin", "umax"))
    anywhere, reduction = lanes.any("%more", "%some")
    text = f"""entry:
  %both = or {t} %a0, %a1
  %twos = call {count}({t} %both, i1 false)
  %none = icmp eq {t} %a0, {all_(0)}
  %first = select {c} %none, {t} %a1, {t} %a0
  %zeros = call {count}({t} %first, i1 false)
  %by = and {t} %zeros, {all_(bits - 1)}
  %odd = lshr {t} %first, %by
  br label %head
head:
  %x = phi {t} [%odd, %entry], [%x.next, %step]
  %y = phi {t} [%a1, %entry], [%y.next, %step]
  %some = icmp ne {t} %y, {all_(0)}
{anywhere}
  br i1 %more, label %step, label %done
step:
  %y.zeros = call {count}({t} %y, i1 false)
  %y.by = and {t} %y.zeros, {all_(bits - 1)}
  %y.shifted = lshr {t} %y, %y.by
  %y.odd = select {c} %some, {t} %y.shifted, {t} %x
  %x.next = call {smaller}({t} %x, {t} %y.odd)
  %most = call {larger}({t} %x, {t} %y.odd)
  %y.next = sub {t} %most, %x.next
  br label %head
done:
  %up = and {t} %twos, {all_(bits - 1)}
  %made = shl {t} %x, %up
  ret {t} %made
"""
    return text, {reduction, f"declare {count}({t}, i1)", f"declare {smaller}({t}, {t})", f"declare {larger}({t}, {t})"}


def _power_of_lanes(lanes: Lanes) -> tuple[str, set[str]]:
    """Squares of the base, multiplied where the exponent has a bit."""
    t, c, all_ = lanes.t, lanes.c, lanes.all
    anywhere, reduction = lanes.any("%more", "%some")
    text = f"""entry:
  br label %head
head:
  %made = phi {t} [{all_(1)}, %entry], [%made.next, %step]
  %x = phi {t} [%a0, %entry], [%x.next, %step]
  %n = phi {t} [%a1, %entry], [%n.next, %step]
  %some = icmp ne {t} %n, {all_(0)}
{anywhere}
  br i1 %more, label %step, label %done
step:
  %bit = and {t} %n, {all_(1)}
  %odd = icmp ne {t} %bit, {all_(0)}
  %product = mul {t} %made, %x
  %made.next = select {c} %odd, {t} %product, {t} %made
  %x.next = mul {t} %x, %x
  %n.next = lshr {t} %n, {all_(1)}
  br label %head
done:
  ret {t} %made
"""
    return text, {reduction}


_gcd = Routine("gcd", 2, _gcd_of_lanes, 100)
_power = Routine("power", 2, _power_of_lanes, 40)


def _sizes(a: Symbol, b: Symbol) -> tuple[Symbol, Symbol]:
    """|a| and |b| as unsigned numbers of at least 32 bits."""
    if a.kind.family not in "iu":
        raise Unsupported(f"divisors of {a.kind.name}")
    wide = UINT[max(a.kind.bits, 32)]
    return abs(a).to(UINT[a.kind.bits]).to(wide), abs(b).to(UINT[b.kind.bits]).to(wide)


def gcd(a: Symbol, b: Symbol) -> Symbol:
    return _gcd(*_sizes(a, b)).to(a.kind)


def lcm(a: Symbol, b: Symbol) -> Symbol:
    x, y = _sizes(a, b)
    divisor = _gcd(x, y)
    zeros = x.block.call("llvm.cttz", x.kind, divisor, extra=", i1 false") & (x.kind.bits - 1)
    odd, rest = _shift_right_with_zeros(divisor, zeros), _shift_right_with_zeros(x, zeros)
    # The division leaves no rest, so it is a product with the inverse modulo 2**bits, by Newton's method: 3 odd ^ 2 is right
    # to five bits (Granlund and Montgomery 1994, "Division by invariant integers using multiplication", section 9).
    inverse = (odd * 3) ^ 2
    for _ in range(3 if x.kind.bits == 32 else 4):
        inverse = inverse * (2 - odd * inverse)
    made = (rest * inverse * y).to(a.kind)
    return made if a.kind.bits < 32 else abs(made)    # as PyTorch has it where the multiple does not fit


def _shift_right_with_zeros(x: Symbol, count: Symbol) -> Symbol:
    """Also of signed numbers."""
    return x.block.emit(x.kind, f"lshr {x.kind.llvm} {x.name}, {count.name}")


def power(a: Symbol, b: Symbol) -> Symbol:
    """a ** b modulo 2**bits; of a negative exponent the inverse cut to an integer: 1, -1 or 0, and 0 for a = 0."""
    if a.kind.family not in "iu":
        raise Unsupported(f"power of {a.kind.name}")
    wide = UINT[max(a.kind.bits, 32)]
    if a.kind.family == "u":
        return _power(a.to(wide), b.to(wide)).to(a.kind)
    positive = _power(a.to(wide), select(b < 0, 0, b).to(wide)).to(a.kind)
    inverse = select(a == 1, 1, select(a == -1, select(b & 1 == 0, a.const(1), -1), 0))
    return select(b < 0, inverse, positive)


