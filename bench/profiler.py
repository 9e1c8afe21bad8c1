"""What a profile costs: microseconds a call of ``a + b`` on 4x4, by what is recorded.

    PYTHONPATH=framework:kernels python bench/profiler.py
"""

from __future__ import annotations

import time

import flambeau as fb
from flambeau.profiler import profile

CALLS, ROUNDS = 1000, 45


def microseconds(a: fb.Tensor, b: fb.Tensor) -> float:
    """The least time a call took, of so many rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(CALLS):
            a + b  # its time is the result
        best = min(best, time.perf_counter() - began)
    return best / CALLS * 1e6


def main() -> None:
    a, b = fb.rand(4, 4), fb.rand(4, 4)
    nothing = microseconds(a, b)
    print(f"{'nothing':<16}{nothing:8.2f}")
    for name in ("", "with_modules", "record_shapes", "profile_memory", "with_stack"):
        with profile(**{name: True} if name else {}):
            recorded = microseconds(a, b)
        print(f"{name or 'times':<16}{recorded:8.2f}, {recorded - nothing:.2f} more")
    print(f"{'nothing again':<16}{microseconds(a, b):8.2f}")


if __name__ == "__main__":
    main()
