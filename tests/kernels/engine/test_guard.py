"""FLAMBEAU_GUARD_MEMORY: writes beside an array end the process when it is freed, and nothing else changes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from flambeau_kernels.engine.runtime import allocator

pytestmark = pytest.mark.skipif(allocator.why_none() is not None, reason="arrays cannot be given an allocator here")

PROGRAM = """
import ctypes, sys
import numpy as np
import flambeau as fb

kept = [fb.ones(n) + 1 for n in (0, 1, 5, 100, 20000, 300000)]
grown = np.arange(10.0)
grown.resize(5000, refcheck=False)
assert grown[9] == 9 and not grown[10:].any() and not np.zeros((3, 5)).any()
assert [t.sum().item() for t in kept] == [0, 2, 10, 200, 40000, 600000]
a = fb.ones(SIZE).numpy().copy()
ctypes.memset(a.ctypes.data + AT, 1, 1)
del a
print("done")
"""


def run(size, at):
    program = PROGRAM.replace("SIZE", str(size)).replace("AT", str(at))
    # Without a core file, which the system may be slow to write.
    program = "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n" + program
    env = {**os.environ, "FLAMBEAU_GUARD_MEMORY": "1"}
    return subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("size", "at"), [(5, 0), (5, 19), (100000, 399999)])
def test_writes_inside_an_array_are_fine(size, at):
    done = run(size, at)

    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.parametrize(("size", "at", "said"), [
    (5, 20, "behind an array of 20 bytes"), (0, 0, "behind an array of 1 bytes"), (5, 83, "behind an array of 20 bytes"),
    (100000, 400000, "behind an array of 400000 bytes"), (5, -1, "in front of an array"), (5, -56, "in front of an array"),
])  # fmt: skip
def test_writes_beside_it_end_the_process_and_say_so(size, at, said):
    done = run(size, at + (size == 0))

    assert done.returncode < 0
    assert said in done.stderr
    assert "done" not in done.stdout
