"""Every op on the simulated device: it gives what it gives on the CPU, or says that it is not built there.

`works.txt` holds the ops that work. The list only grows: an op that stops working fails, and so does one that works and is not
listed. ``python tests/cuda/test_registry.py`` writes it anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import registry

RATCHET = Path(__file__).parent / "works.txt"


def outcomes() -> dict[str, str]:
    return {name: registry.outcome(op) for name, op in sorted(registry.ops().items())}


def test_every_op_works_on_cuda_or_says_that_it_does_not(xp: Any) -> None:
    found = outcomes()
    working = {name for name, outcome in found.items() if outcome == "works"}
    listed = set(RATCHET.read_text().split())

    assert {n: o for n, o in found.items() if o not in ("works", "refused", "unknown")} == {}
    assert sorted(listed - working) == [], "these worked on device cuda"
    assert sorted(working - listed) == [], "these work now: add them by python tests/cuda/test_registry.py"


def test_most_ops_are_asked(xp: Any) -> None:
    found = outcomes()

    assert sum(o == "unknown" for o in found.values()) < len(found) / 6


if __name__ == "__main__":
    import os

    os.environ["FLAMBEAU_CUDA_SIMULATOR"] = "1"
    RATCHET.write_text("\n".join(name for name, outcome in outcomes().items() if outcome == "works") + "\n")
    print(f"{RATCHET} written")
