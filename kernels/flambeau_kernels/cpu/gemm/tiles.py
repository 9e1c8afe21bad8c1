"""What a product computes in, and how large its register tiles are on this processor."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from flambeau_kernels.cpu import tier
from flambeau_kernels.cpu.register_tiles import tile
from flambeau_kernels.engine.machine_code import llvm

# How elements of the operands are stored in LLVM's types; halves and small integers are widened when they are packed.
_STORED = {"float32": "float", "float64": "double", "float16": "half", "bfloat16": "i16", "int8": "i8", "uint8": "i8",
           "int16": "i16", "uint16": "i16", "int32": "i32", "uint32": "i32", "int64": "i64", "uint64": "i64"}  # fmt: skip
_BYTES = {"float": 4, "double": 8, "half": 2, "i8": 1, "i16": 2, "i32": 4, "i64": 8}


@dataclass(frozen=True)
class Machine:
    """A processor's vectors: their bytes, and register tiles of `rows` by `vectors` (GEBP of Goto and van de Geijn
    2008, "Anatomy of High-Performance Matrix Multiplication"), sized so that the sums, a row of B and an element of A
    fill the registers.
    """

    vector: int
    rows: int
    vectors: int
    pairs: bool = False                               # multiplies pairs of bfloat16 (AVX512_BF16)

    def heights(self, vectors: int) -> tuple[int, ...]:
        """Tile heights that there are kernels for; fewer rows than a height are computed with the next.

        Four sums and fewer wait for each other as long, so there is no tile of less.
        """
        return (self.rows, *(h for h in ((4,) if vectors == 1 else (8, 4, 2)) if h < self.rows))

    def wide(self) -> tuple[tuple[int, int], ...]:
        """Tiles of few rows and more vectors, widest first, for products that have no other rows: sums that nobody waits for, and
        longer runs of B. They leave a third of the sums of a full tile free, for the vectors of B.
        """
        most = self.rows * self.vectors * 2 // 3
        tiles = ((h, 1 << (most // h).bit_length() - 1) for h in (2, 4))
        return tuple((h, v) for h, v in tiles if v > self.vectors)


@dataclass(frozen=True)
class Kind:
    """How products of one dtype are computed: stored, packed, summed and written in LLVM's types.

    A lane is what one element of a packed vector holds: an element converted to the type of the sums, or with `pairs` two
    bfloat16 that follow each other along k.
    """

    dtype: str
    out: str
    machine: Machine

    @property
    def name(self) -> str:
        return f"gemm_{self.dtype}_{self.out}"

    @property
    def stored(self) -> str:
        return _STORED[self.dtype]

    @property
    def written(self) -> str:
        return _STORED[self.out]

    @property
    def sum(self) -> str:
        wide = {"double": "double", "i64": "i64", "i32": "i32", "i16": "i32", "i8": "i32"}
        return "float" if self.dtype == "bfloat16" else wide.get(self.stored, "float")

    @property
    def pairs(self) -> bool:
        return self.dtype == "bfloat16" and self.machine.pairs

    @property
    def lane(self) -> str:
        return "i32" if self.pairs else self.sum

    @property
    def size(self) -> int:
        """Bytes of a stored element."""
        return _BYTES[self.stored]

    @property
    def lane_size(self) -> int:
        return _BYTES[self.lane]

    @property
    def sum_size(self) -> int:
        return _BYTES[self.sum]

    @property
    def written_size(self) -> int:
        return _BYTES[self.written]

    @property
    def copies(self) -> bool:
        """Whether a tile may write the rows of B that it reads as they are packed: they are not converted."""
        return self.stored == self.lane and self.sum in ("float", "double")

    @property
    def step(self) -> int:
        """How many elements along k a lane holds."""
        return 2 if self.pairs else 1

    @property
    def lanes(self) -> int:
        """Lanes of a vector register."""
        return self.machine.vector // self.lane_size

    @property
    def width(self) -> int:
        """Columns of a full tile."""
        return self.lanes * self.machine.vectors

    @property
    def packed_rows(self) -> int:
        """Rows of a packed panel of A: those of a tile, rounded up to whole vectors."""
        return -(-self.machine.rows // self.lanes) * self.lanes


@functools.cache
def machine() -> Machine | None:
    """This processor, or None if its instructions are not known to multiply and add fast enough to compete with BLAS."""
    if not tier.works():
        return None
    target = llvm.machine()
    features = set(target.features.split(","))
    if "+avx512f" in features and "+avx512bw" in features and "+avx512dq" in features and "+avx512vl" in features:
        return Machine(64, *tile("products"), pairs="+avx512bf16" in features)
    if "+avx2" in features and "+fma" in features and "+f16c" in features:
        return Machine(32, *tile("products"))
    if target.triple.startswith(("aarch64", "arm64")):
        return Machine(16, *tile("products"))
    return None


def kind(dtype: str, out: str | None = None) -> Kind | None:
    """How products of `dtype` that are written as `out` are computed; None if they are not."""
    here = machine()
    out = out or dtype
    if here is None or dtype not in _STORED or (out != dtype and (dtype not in ("float16", "bfloat16") or out != "float32")):
        return None
    return Kind(dtype, out, here)
