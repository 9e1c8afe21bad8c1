"""Import Flambeau in this process, which must be fresh, and say what that cost.

    PYTHONPATH=framework:kernels python .ci/import_check.py

Exit status 1 when something heavy was loaded that a first program may not need.
"""

from __future__ import annotations

import resource
import sys
import time

HEAVY = {"asyncio", "cupy", "llvmlite", "matplotlib", "multiprocessing", "numba", "scipy", "torch"}


def resident_megabytes() -> float:
    # ru_maxrss is kilobytes on Linux, bytes on macOS.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 1024**2)


def main() -> int:
    # A start-up file may have loaded some before us; only what our import adds counts.
    before = set(sys.modules)
    start = time.perf_counter()
    import flambeau

    seconds = time.perf_counter() - start
    loaded = set(sys.modules) - before
    cost = f"{seconds:.3f} s, {resident_megabytes():.0f} MB, {len(loaded)} modules"
    print(f"import {flambeau.__name__}: {cost}")
    heavy = sorted(HEAVY & loaded)
    if heavy:
        print(f"it loads {', '.join(heavy)}: import inside the function that needs it", file=sys.stderr)
    return bool(heavy)


if __name__ == "__main__":
    sys.exit(main())
