"""The fastest register tiles of a kernel: ``python bench/search_tiles.py [--of products] [--dtype float32] [--rounds 5]``.

A tile is so many sums that stay in registers. Every tile whose sums, a row of the right side and an element of the left one
fit the registers, and which fills a third of them at least, computes two cases on one thread, in a process of its own; by
turns, so that what else the machine does meets all of them. Prints GFLOP/s of each, the fastest first: the first row belongs
into the table of that name in `flambeau_kernels/cpu/register_tiles.py`, which says what the two numbers of a tile are.
``FLAMBEAU_CPU=x86-64-v3`` searches for a processor with shorter vectors.
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
# Two cases of each: of products n, of convolutions shapes of x and w and the step, of recurrent layers steps, batch, inputs and states,
# of attention heads, queries and the width of a head.
CASES = {
    "products": [256, 512],
    "convolutions": [[[4, 256, 28, 28], [128, 256, 1, 1], 1], [[2, 3, 112, 112], [64, 3, 7, 7], 2]],
    "winograd": [[[4, 64, 56, 56], [64, 64, 3, 3], 1], [[2, 128, 28, 28], [128, 128, 3, 3], 1]],
    "weights": [[[4, 256, 28, 28], [128, 256, 1, 1], 1], [[8, 32, 64], [48, 32, 5], 1]],
    "recurrent": [[32, 32, 256, 256], [32, 8, 64, 128]],
    "attention": [[8, 256, 64], [4, 512, 32]],
}
WORKER = """
import json, sys, time
import numpy as np
from flambeau_kernels import engine
from flambeau_kernels.cpu import register_tiles

name, tile, dtype, cases = json.loads(sys.argv[1])
if tile is None:
    print(json.dumps(register_tiles.registers()))
    raise SystemExit
engine.set_num_threads(1)
register_tiles.TILES[name][register_tiles.registers()] = tuple(tile)
draw = np.random.default_rng(0).standard_normal


def work(case):
    if name == "products":
        from flambeau_kernels.cpu.products import matmul
        matmul.set_invariant(True)                    # every product by our own kernels
        a, b = (draw((case, case)).astype(dtype) for _ in range(2))
        return lambda: matmul.matmul(a, b), case**3
    if name == "recurrent":
        from flambeau_kernels.cpu import recurrent
        steps, batch, inputs, hidden = case
        x, h, c = (draw(s).astype(dtype) for s in ((steps, batch, inputs), (batch, hidden), (batch, hidden)))
        w, u = (0.1 * draw((4 * hidden, n)).astype(dtype) for n in (inputs, hidden))
        return lambda: recurrent.run(x, h, c, w, u, None, None, None, "LSTM", False, False), steps * batch * (w.size + u.size)
    if name == "attention":
        from flambeau_kernels.cpu import attention
        heads, length, width = case
        q, k, v = (draw((1, heads, length, width)).astype(dtype) for _ in range(3))
        return lambda: attention.attend(q, k, v, None, width**-0.5, False), 2 * heads * length * length * width
    from flambeau_kernels.cpu import conv
    shape, kernel, step = case
    x, w = (draw(s).astype(dtype) for s in (shape, kernel))
    stride, padding, ones = ((n,) * (len(shape) - 2) for n in (step, kernel[-1] // 2, 1))
    y = conv.convolve(x, w, stride, padding, ones, 1)
    work = y.size * w.size // len(w)
    if name == "weights":
        return lambda: conv.convolve_weight(x, y, tuple(kernel[2:]), stride, padding, ones, 1), work
    return lambda: conv.convolve(x, w, stride, padding, ones, 1), work


best = []
for case in cases:
    run, multiplications = work(case)
    times = []
    for _ in range(12):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    best.append(2e-9 * multiplications / min(times))
print(json.dumps(best))
"""


def measured(*what: object) -> list[float]:
    """What the worker says of a kernel's tile, a dtype and cases: GFLOP/s; without a tile, the registers of this processor."""
    env = {**os.environ, "PYTHONPATH": PATHS}
    made = subprocess.run([sys.executable, "-c", WORKER, json.dumps(what)], env=env, capture_output=True, text=True, check=False)
    if made.returncode:
        raise SystemExit(f"tile {what[1]} of {what[0]}: {made.stderr.strip().splitlines()[-1]}")
    return json.loads(made.stdout)


def candidates(registers: int, name: str) -> list[tuple[int, int]]:
    """Tiles that fit so many registers and fill a third of them."""
    if name == "recurrent":                           # panels of two vectors
        return [(rows, 2) for rows in (8, 6, 4, 2)]
    if name == "attention":                           # strips of two vectors, and rows that divide a block of keys and one of queries
        return [(rows, 2) for rows in (8, 4, 2) if 2 * rows + 3 <= registers]
    return [
        (rows, vectors) for vectors in range(1, 7) for rows in range(2, 31)
        if registers // 3 <= rows * vectors and rows * vectors + min(rows, vectors) + 1 <= registers
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", default="products", choices=CASES)
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64"))
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    name, cases = options.of, CASES[options.of]
    width, count = (int(n) for n in measured(name, None, options.dtype, cases))
    found: dict[tuple[int, int], list[float]] = {}
    tiles = candidates(count, name)
    for _ in range(options.rounds):
        for tile in tiles:
            speed = measured(name, tile, options.dtype, cases)
            found[tile] = [max(pair) for pair in zip(speed, found.get(tile, speed), strict=True)]
        tiles = sorted(tiles, key=lambda t: -sum(found[t]))[: max(8, len(tiles) // 2)]   # the slow half is not worth another round
    print(f"{name}: {count} registers of {width} bytes, {options.dtype}; GFLOP/s of {' and '.join(map(str, cases))}")
    for tile in tiles:
        print(f"({tile[0]:2d}, {tile[1]})  {'  '.join(f'{x:8.1f}' for x in found[tile])}")


if __name__ == "__main__":
    main()
