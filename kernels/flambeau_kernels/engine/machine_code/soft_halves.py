"""float16 for processors that have no instructions to convert it (x86-64 before AVX2).

LLVM calls functions of its run-time library there, which no Python process has. These are the same functions, with the
results of the instructions: rounding to nearest even, gradual underflow, quiet nans with their payload. There is a form of them for
vectors too, see `soft_vectors.py`.

Source: Giesen 2012, "Half-to-float conversions" (a multiplication makes normal numbers of subnormal ones, an addition rounds
those that become subnormal).
"""

from __future__ import annotations

import re

__all__ = ["SYMBOLS", "TEXT", "narrowing", "widening"]

SYMBOLS = ("__extendhfsf2", "__truncsfhf2")

# In braces stand types and constants, which in functions of vectors are vectors.
_WIDENING = """
define {float} @NAME({half} %half) {
  %short = bitcast {half} %half to {i16}
  %bits = zext {i16} %short to {i32}
  %magnitude = and {i32} %bits, {i32 32767}
  %negative = and {i32} %bits, {i32 32768}
  %sign = shl {i32} %negative, {i32 16}
  %moved = shl {i32} %magnitude, {i32 13}
  %small = bitcast {i32} %moved to {float}
  %number = fmul {float} %small, {float 0x46F0000000000000}
  %finite = bitcast {float} %number to {i32}
  %infinite = or {i32} %moved, {i32 2139095040}
  %quiet = or {i32} %infinite, {i32 4194304}
  %isnan = icmp ugt {i32} %magnitude, {i32 31744}
  %isfinite = icmp ult {i32} %magnitude, {i32 31744}
  %special = select {i1} %isnan, {i32} %quiet, {i32} %infinite
  %made = select {i1} %isfinite, {i32} %finite, {i32} %special
  %signed = or {i32} %made, %sign
  %result = bitcast {i32} %signed to {float}
  ret {float} %result
}
"""

_NARROWING = """
define {half} @NAME({float} %x) {
  %bits = bitcast {float} %x to {i32}
  %magnitude = and {i32} %bits, {i32 2147483647}
  %negative = lshr {i32} %bits, {i32 16}
  %sign = and {i32} %negative, {i32 32768}
  %upper = lshr {i32} %magnitude, {i32 13}
  %last = and {i32} %upper, {i32 1}
  %moved = add {i32} %magnitude, {i32 3355447295}
  %rounding = add {i32} %moved, %last
  %normal = lshr {i32} %rounding, {i32 13}
  %absolute = bitcast {i32} %magnitude to {float}
  %aligned = fadd {float} %absolute, {float 5.000000e-01}
  %alignedbits = bitcast {float} %aligned to {i32}
  %subnormal = sub {i32} %alignedbits, {i32 1056964608}
  %issubnormal = icmp ult {i32} %magnitude, {i32 947912704}
  %finite = select {i1} %issubnormal, {i32} %subnormal, {i32} %normal
  %payload = and {i32} %upper, {i32 1023}
  %nan = or {i32} %payload, {i32 32256}
  %isnan = icmp ugt {i32} %magnitude, {i32 2139095040}
  %special = select {i1} %isnan, {i32} %nan, {i32} {i32 31744}
  %isfinite = icmp ult {i32} %magnitude, {i32 1199570944}
  %made = select {i1} %isfinite, {i32} %finite, {i32} %special
  %signed = or {i32} %made, %sign
  %short = trunc {i32} %signed to {i16}
  %result = bitcast {i16} %short to {half}
  ret {half} %result
}
"""


def widening(name: str, lanes: int = 0) -> str:
    """The text of the function `name` that makes a float of a half, or a vector of as many `lanes` of one of halves."""
    return _written(_WIDENING, name, lanes)


def narrowing(name: str, lanes: int = 0) -> str:
    """As `widening`, of floats to halves."""
    return _written(_NARROWING, name, lanes)


def _written(text: str, name: str, lanes: int) -> str:
    def part(match: re.Match[str]) -> str:
        kind, constant = match.groups()
        if constant is not None:
            return f"splat ({kind} {constant})" if lanes else constant
        return f"<{lanes} x {kind}>" if lanes else kind

    return re.sub(r"\{(\w+)(?: ([^}]+))?\}", part, text).replace("@NAME", f"@{name}")


TEXT = widening(SYMBOLS[0]) + narrowing(SYMBOLS[1])
