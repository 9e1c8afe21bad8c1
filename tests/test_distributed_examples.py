"""`examples/digits_distributed.py` by each launcher: the losses of one process."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "digits_distributed.py"

pytestmark = [
    pytest.mark.skipif(not importlib.util.find_spec("sklearn"), reason="scikit-learn is not installed"),
    pytest.mark.slow,
]


def losses(folder: Path, *command: object) -> list[float]:
    paths = os.pathsep.join([str(ROOT / "framework"), str(ROOT / "kernels")])
    environment = {**os.environ, "PYTHONPATH": paths, "FLAMBEAU_NUM_THREADS": "1"}
    environment = {name: value for name, value in environment.items() if name not in ("RANK", "WORLD_SIZE")}
    # mpiexec wants to be told that a container's user, or fewer cores than processes, are meant.
    environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    done = subprocess.run([str(part) for part in command], env=environment, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return [float(text) for text in re.findall(r"(?:loss|epochs:) +([\d.]+)", done.stdout)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> list[float]:
    return losses(tmp_path_factory.mktemp("alone"), sys.executable, EXAMPLE, "--epochs", 1)


@pytest.mark.parametrize("way", ["ddp", "fsdp"])
def test_the_launcher_trains_as_one_process_does(way, alone, tmp_path):
    launcher = ("-m", "flambeau.distributed.run", "--standalone", "--nproc-per-node", 2)

    found = losses(tmp_path, sys.executable, *launcher, EXAMPLE, "--epochs", 1, "--way", way)

    assert found == pytest.approx(alone, abs=1e-4)


def test_mpiexec_trains_as_one_process_does(alone, tmp_path):
    if shutil.which("mpiexec") is None or importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpiexec or mpi4py is not installed")

    found = losses(tmp_path, "mpiexec", "-n", 2, sys.executable, EXAMPLE, "--epochs", 1, "--backend", "mpi", "--way", "fsdp")

    assert found == pytest.approx(alone, abs=1e-4)


def test_ray_trains_as_one_process_does(alone, tmp_path):
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed")

    found = losses(tmp_path, sys.executable, EXAMPLE, "--epochs", 1, "--ray", 2)

    # What Ray passes on of the workers' lines comes before, if at all.
    assert found[-1:] == pytest.approx(alone, abs=1e-4)
