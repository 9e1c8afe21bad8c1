"""Half types: float32 rounded to one, to nearest even, and read again. Nothing is computed in them."""
from __future__ import annotations

from flambeau_kernels.scalar import symbols as sy
from flambeau_kernels.scalar.symbols import F32, I32, UINT, Kind, Symbol, Unsupported, select

# What is stored of each.
TYPES = {"float16": Kind("float16", "half", 16, "f"), "bfloat16": UINT[16]}


def widened(raw: Symbol, dtype: str) -> Symbol:
    """What is stored as `dtype`, as float32."""
    block = raw.block
    if dtype == "float16":
        return block.emit(F32, f"fpext half {raw.name} to float")
    return sy.shift_left(block.emit(I32, f"zext i16 {raw.name} to i32"), 16).float_of_bits()


def is_widened(x: Symbol) -> bool:
    """Whether `x` is an element of float16 as it was stored."""
    return any(line.startswith(f"  {x.name} = fpext half ") for line in x.block.lines)


def stored(x: Symbol, dtype: str) -> Symbol:
    """A float32 as it is stored as `dtype`."""
    if dtype == "float16":
        return x.block.emit(TYPES[dtype], f"fptrunc float {x.name} to half")
    return sy.shift_right(_upper(x), 16).to(UINT[16])


def rounded(x: Symbol, dtype: str) -> Symbol:
    """The float32 that `x` is when it has been stored as `dtype`."""
    if x.kind is not F32:                             # of float64 it would be rounded twice
        raise Unsupported(f"rounding {x.kind.name} to {dtype}")
    if dtype == "float16":
        return widened(stored(x, dtype), dtype)
    return (_upper(x) & 0xFFFF0000).float_of_bits()


def _upper(x: Symbol) -> Symbol:
    """The bits of a float32, of which the upper half is the bfloat16 next to it."""
    bits = Symbol(x.block, x.bits().name, UINT[32])
    last = sy.shift_right(bits, 16) & 1
    # Rounding could carry a nan's payload away; bfloat16's quiet nan keeps the sign.
    return select(x == x, bits + (last + 0x7FFF), bits | 0x7FC00000)
