"""Programs of several real processes: each rank runs one function of a file beside the tests."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


class Ended(NamedTuple):
    """What the ranks of a program left: exit statuses and what they printed, by rank."""

    codes: list[int]
    out: list[str]
    seconds: float


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def environment(**more: str) -> dict[str, str]:
    paths = os.pathsep.join([str(ROOT / "framework"), str(ROOT / "kernels"), str(HERE)])
    given = {**os.environ, "PYTHONPATH": paths, "FLAMBEAU_JOB_KEY": secrets.token_hex(16), "MASTER_ADDR": "127.0.0.1"}
    # Threads of PyTorch's and of BLAS's wait for each other in loops where there are more ranks than cores.
    return {**given, "MASTER_PORT": str(free_port()), "FLAMBEAU_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **more}


@pytest.fixture
def ranks(tmp_path: Path) -> Callable[..., Ended]:
    """Run ``file.function()`` in `size` processes with RANK and WORLD_SIZE set; all have ended when it returns."""

    def run(program: str, size: int, limit: float = 60.0, check: bool = True, **more: Any) -> Ended:
        home, _, function = program.partition(".")
        begin = time.monotonic()
        common = environment(WORLD_SIZE=str(size), FOLDER=str(tmp_path), **more)
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", f"import {home}; {home}.{function}()"],
                env={**common, "RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=tmp_path,
            )
            for rank in range(size)
        ]
        try:
            out = [process.communicate(timeout=max(1.0, begin + limit - time.monotonic()))[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
        ended = Ended([process.returncode for process in processes], out, time.monotonic() - begin)
        if check:
            assert ended.codes == [0] * size, "\n".join(f"rank {rank}: {text}" for rank, text in enumerate(out))
        return ended

    return run
