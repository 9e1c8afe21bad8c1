"""Every op on the simulated device: it gives what it gives on the CPU, or says that it is not built there.

`works.txt` holds the ops that work. The list only grows: an op that stops working fails, and so does one that works and is not
listed. ``python tests/cuda/test_registry.py`` writes it anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import registry

import flambeau as fb
from flambeau.ops._spec import OPS, primitive

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


def test_a_kernel_is_declared_for_one_device_or_any(xp: Any) -> None:
    @primitive(surface=0)
    def half_of(input):
        """Half of `input`."""

    try:
        half_of.kernel(lambda a: np.divide(a, 2))
        with pytest.raises(NotImplementedError, match=r"half_of: not built for device cuda yet"):
            half_of.function(fb.ones(3, device="cuda"))

        @half_of.kernel(device="cuda")
        def _(a: Any) -> Any:
            return a * 0.5

        assert half_of.function(fb.ones(3, device="cuda")).tolist() == [0.5] * 3

        @half_of.kernel(device="any")
        def _(a: Any) -> Any:
            return a / 2

        assert half_of.function(fb.ones(3)).tolist() == half_of.function(fb.ones(3, device="cuda")).tolist() == [0.5] * 3
    finally:
        del OPS["half_of"]


if __name__ == "__main__":
    import os

    os.environ["FLAMBEAU_CUDA_SIMULATOR"] = "1"
    RATCHET.write_text("\n".join(name for name, outcome in outcomes().items() if outcome == "works") + "\n")
    print(f"{RATCHET} written")
