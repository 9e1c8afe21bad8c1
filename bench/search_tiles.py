"""The fastest register tiles of matrix products: ``python bench/search_tiles.py [--dtype float32] [--sizes 256 512] [--rounds 5]``.

A tile is some rows of A by some vectors of B, whose sums stay in registers. Every tile whose sums, a row of B and an element of A
fit the registers, and which fills at least half of them, multiplies square matrices on one thread, in a process of its own; by
turns, so that what else the machine does meets all of them. Prints GFLOP/s of each, the fastest first: the first row belongs into
`TILES` of `flambeau_kernels/cpu/gemm/tiles.py`. ``FLAMBEAU_CPU=x86-64-v3`` searches for a processor with shorter vectors.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATHS = os.pathsep.join([str(ROOT / "framework"), str(ROOT / "kernels")])
REGISTERS = {64: 32, 32: 16, 16: 32}                  # by the bytes of one
WORKER = """
import json, sys, time
import numpy as np
from flambeau_kernels import engine
from flambeau_kernels.cpu import matmul
from flambeau_kernels.cpu.gemm import tiles

engine.set_num_threads(1)
tile, dtype, sizes = json.loads(sys.argv[1])
if tile is None:
    print(json.dumps(tiles.machine().vector if tiles.machine() else 0))
    raise SystemExit
tiles.TILES[tiles.machine().vector] = tuple(tile)
tiles.machine.cache_clear()
matmul.set_invariant(True)                            # every product by our own kernels
best = []
for n in sizes:
    a, b = (np.random.default_rng(i).standard_normal((n, n)).astype(dtype) for i in (0, 1))
    times = []
    for _ in range(12):
        start = time.perf_counter()
        matmul.matmul(a, b)
        times.append(time.perf_counter() - start)
    best.append(2e-9 * n**3 / min(times))
print(json.dumps(best))
"""


def measured(*what: object) -> list[float] | int:
    """What the worker says of a tile, or of the vectors of this processor."""
    env = {**os.environ, "PYTHONPATH": PATHS}
    made = subprocess.run([sys.executable, "-c", WORKER, json.dumps(what)], env=env, capture_output=True, text=True, check=False)
    if made.returncode:
        raise SystemExit(f"tile {what[0]}: {made.stderr.strip().splitlines()[-1]}")
    return json.loads(made.stdout)


def candidates(registers: int) -> list[tuple[int, int]]:
    """Tiles of `rows` by `vectors` that fit so many registers and fill half of them."""
    return [
        (rows, vectors) for vectors in range(1, 7) for rows in range(2, 31)
        if registers // 2 <= rows * vectors and rows * vectors + vectors + 1 <= registers
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64"))
    parser.add_argument("--sizes", type=int, nargs="+", default=(256, 512))
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    vector = measured(None, options.dtype, options.sizes)
    if vector not in REGISTERS:
        raise SystemExit("there are no matrix products of our own for this processor")
    found: dict[tuple[int, int], list[float]] = {}
    tiles = candidates(REGISTERS[vector])
    for _ in range(options.rounds):
        for tile in tiles:
            speed = measured(tile, options.dtype, options.sizes)
            assert isinstance(speed, list)
            found[tile] = [max(pair) for pair in zip(speed, found.get(tile, speed), strict=True)]
        tiles = sorted(tiles, key=lambda t: -sum(found[t]))[: max(8, len(tiles) // 2)]   # the slow half is not worth another round
    print(f"vectors of {vector} bytes, {options.dtype}; GFLOP/s for n of {', '.join(map(str, options.sizes))}")
    for tile in tiles:
        print(f"{tile[0]:3d} rows x {tile[1]} vectors  {'  '.join(f'{x:8.1f}' for x in found[tile])}")


if __name__ == "__main__":
    main()
