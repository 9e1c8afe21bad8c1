"""float16 for processors that have no instructions to convert it (x86-64 before AVX2).

LLVM calls functions of its run-time library there, which no Python process has. These are the same functions, with the
results of the instructions: rounding to nearest even, gradual underflow, quiet nans with their payload.

Source: Giesen 2012, "Half-to-float conversions" (a multiplication makes normal numbers of subnormal ones, an addition rounds
those that become subnormal).
"""

from __future__ import annotations

__all__ = ["SYMBOLS", "TEXT"]

SYMBOLS = ("__extendhfsf2", "__truncsfhf2")

TEXT = """
define float @__extendhfsf2(half %half) {
  %short = bitcast half %half to i16
  %bits = zext i16 %short to i32
  %magnitude = and i32 %bits, 32767
  %negative = and i32 %bits, 32768
  %sign = shl i32 %negative, 16
  %moved = shl i32 %magnitude, 13
  %small = bitcast i32 %moved to float
  %number = fmul float %small, 0x46F0000000000000
  %finite = bitcast float %number to i32
  %infinite = or i32 %moved, 2139095040
  %quiet = or i32 %infinite, 4194304
  %isnan = icmp ugt i32 %magnitude, 31744
  %isfinite = icmp ult i32 %magnitude, 31744
  %special = select i1 %isnan, i32 %quiet, i32 %infinite
  %made = select i1 %isfinite, i32 %finite, i32 %special
  %signed = or i32 %made, %sign
  %result = bitcast i32 %signed to float
  ret float %result
}
define half @__truncsfhf2(float %x) {
  %bits = bitcast float %x to i32
  %magnitude = and i32 %bits, 2147483647
  %negative = lshr i32 %bits, 16
  %sign = and i32 %negative, 32768
  %upper = lshr i32 %magnitude, 13
  %last = and i32 %upper, 1
  %moved = add i32 %magnitude, 3355447295
  %rounding = add i32 %moved, %last
  %normal = lshr i32 %rounding, 13
  %absolute = bitcast i32 %magnitude to float
  %aligned = fadd float %absolute, 5.000000e-01
  %alignedbits = bitcast float %aligned to i32
  %subnormal = sub i32 %alignedbits, 1056964608
  %issubnormal = icmp ult i32 %magnitude, 947912704
  %finite = select i1 %issubnormal, i32 %subnormal, i32 %normal
  %payload = and i32 %upper, 1023
  %nan = or i32 %payload, 32256
  %isnan = icmp ugt i32 %magnitude, 2139095040
  %special = select i1 %isnan, i32 %nan, i32 31744
  %isfinite = icmp ult i32 %magnitude, 1199570944
  %made = select i1 %isfinite, i32 %finite, i32 %special
  %signed = or i32 %made, %sign
  %short = trunc i32 %signed to i16
  %result = bitcast i16 %short to half
  ret half %result
}
"""
