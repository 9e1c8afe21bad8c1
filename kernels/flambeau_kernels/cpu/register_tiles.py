"""Register tiles: how many sums a kernel keeps in vector registers, by what registers the processor has.

Every table is what ``python bench/search_tiles.py --of NAME`` found fastest. A tile is two numbers, which say:

================  ===========================================================================================================
products          rows of A, and vectors of columns of B
convolutions      output channels, and vectors of positions (`conv/product.py`)
winograd          output channels, and vectors of tiles of results (`conv/winograd.py`)
weights           output channels, and taps, of the gradient of the weight (`conv/weight.py`)
recurrent         rows of the batch, and vectors of columns (`recurrent/steps.py`)
attention         queries or keys, and vectors of the other ones or of a head (`attention/tiles.py`)
================  ===========================================================================================================

How many units multiply and add is no part of the key, for no tile depends on it. A unit begins an instruction in each cycle and takes four
for one, so it is busy with four sums. Of the widest registers x86-64 has two such units at most, AArch64 four: 8 and 16 sums, which all
tiles have. Beyond that the largest tile that registers hold is the fastest, for it loads the fewest operands for a sum; that is what
the search finds, and where there are fewer units, loads have the more time.
"""

from __future__ import annotations

from flambeau_kernels.engine.machine_code import llvm

# Bytes of a vector register, and how many of them there are.
Registers = tuple[int, int]
Tile = tuple[int, int]

TILES: dict[str, dict[Registers, Tile]] = {
    "products": {(64, 32): (14, 2), (32, 16): (6, 2), (16, 32): (6, 4)},
    "convolutions": {(64, 32): (8, 3), (32, 16): (6, 2), (16, 32): (8, 3), (16, 16): (4, 3)},
    "winograd": {(64, 32): (8, 3), (32, 16): (4, 3), (16, 32): (8, 3), (16, 16): (4, 3)},
    "weights": {(64, 32): (4, 6), (32, 16): (3, 4), (16, 32): (4, 6), (16, 16): (3, 4)},
    "recurrent": {(64, 32): (8, 2), (32, 16): (6, 2), (16, 32): (8, 2), (16, 16): (8, 2)},
    "attention": {(64, 32): (8, 2), (32, 16): (4, 2), (16, 32): (8, 2), (16, 16): (4, 2)},
}


def registers() -> Registers:
    """Those of the processor that is compiled for."""
    machine = llvm.machine()
    return machine.register_bits // 8, machine.registers


def tile(name: str) -> Tile:
    """The register tile of a kind of kernel, a key of `TILES`."""
    return TILES[name][registers()]
