"""How all_reduce and a DDP step scale with processes: ``python tests/distributed/scaling.py [--engine gloo,mpi] [--processes 1,2,4,8]``.

Times are the median and the smallest of many, of the slowest rank. Engines are measured one after the other; mpi needs ``mpiexec`` and
mpi4py. It prints a table for docs/distributed.md.
"""

from __future__ import annotations

import argparse
import os
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
SIZES = {"1 element": (1, 300), "4 MB": (1_000_000, 40), "64 MB": (16_000_000, 9)}


def timed(step, count, fb, dist):
    """The median and the smallest time of `step`, in microseconds, of the slowest rank."""
    times = []
    for turn in range(count + 3):
        begin = time.perf_counter()
        step()
        if turn >= 3:
            times.append(time.perf_counter() - begin)
    times.sort()
    found = fb.tensor([times[len(times) // 2], times[0]], dtype=fb.float64) * 1e6
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return found.tolist()


def rank_program(engine):
    import flambeau as fb
    import flambeau.distributed as dist

    fb.set_num_threads(1)
    dist.init_process_group(engine)
    rows = {}
    for name, (count, turns) in SIZES.items():
        x = fb.zeros(count)
        rows[f"all_reduce, {name}"] = timed(lambda x=x: dist.all_reduce(x), turns, fb, dist)
    net = fb.nn.Sequential(fb.nn.Linear(784, 512), fb.nn.ReLU(), fb.nn.Linear(512, 512), fb.nn.ReLU(), fb.nn.Linear(512, 10))
    model = fb.nn.parallel.DistributedDataParallel(net)
    optimizer = fb.optim.SGD(model.parameters(), lr=1e-3)
    x, y = fb.randn(128, 784), fb.randint(0, 10, (128,))

    def step():
        optimizer.zero_grad()
        fb.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    rows["DDP step, 128 rows a rank"] = timed(step, 25, fb, dist)
    if dist.get_rank() == 0:
        for name, (median, least) in rows.items():
            print(f"ROW|{name}|{median:.0f}|{least:.0f}", flush=True)
    dist.destroy_process_group()


def measure(engine, size, limit):
    """The rows that `size` processes print, or the words of the failure."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    common = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "framework"), str(ROOT / "kernels")])}
    common |= {"FLAMBEAU_JOB_KEY": secrets.token_hex(16), "FLAMBEAU_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
    common |= {"MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    program = [sys.executable, str(HERE), "--rank-of", engine]
    if engine == "mpi":
        commands = [(["mpiexec", "--allow-run-as-root", "--oversubscribe", "-n", str(size), *program], common)]
    else:
        commands = [(program, {**common, "RANK": str(rank)}) for rank in range(size)]
    running = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for command, env in commands]
    try:
        out = "".join(process.communicate(timeout=limit)[0] for process in running)
    finally:
        for process in running:
            process.kill()
    if any(process.returncode for process in running):
        raise SystemExit(f"{engine} with {size} processes ended with {[process.returncode for process in running]}")
    rows = [line.split("|")[1:] for line in out.splitlines() if line.startswith("ROW|")]
    return {name: (float(median), float(least)) for name, median, least in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="gloo")
    parser.add_argument("--processes", default="1,2,4,8")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one engine at one number of processes")
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank_of:
        rank_program(given.rank_of)
        return
    sizes = [int(size) for size in given.processes.split(",")]
    found = {
        (engine, size): measure(engine, size, given.limit) for engine in given.engine.split(",") for size in sizes
    }
    print(f"| engine | call | {' | '.join(map(str, sizes))} |\n|---|---|{'---|' * len(sizes)}")
    for engine in given.engine.split(","):
        for name in found[engine, sizes[0]]:
            cells = [" / ".join(f"{value / 1000:.3g}" for value in found[engine, size][name]) for size in sizes]
            print(f"| {engine} | {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
