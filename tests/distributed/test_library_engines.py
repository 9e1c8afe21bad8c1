"""Engines whose elements a library moves: NCCL, with a stand-in on the simulated device, and the collectives of MPI."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau.distributed as dist
from flambeau_kernels.cuda import device


def test_nccl_gives_what_the_definitions_of_calls_say_with_the_bits_of_gloo(ranks):
    ranks("library_programs.nccl", 2, FLAMBEAU_CUDA_SIMULATOR="1")


def test_ranks_of_nccl_that_call_different_things_are_told_so_and_one_that_dies_is_named(ranks):
    ended = ranks("library_programs.nccl_differs", 2, check=False, FLAMBEAU_CUDA_SIMULATOR="1")

    assert ended.codes == [0, -9], ended.out


def test_nccl_says_what_it_lacks(monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CUDA_SIMULATOR", "1")
    device.find.cache_clear()
    try:
        with pytest.raises(RuntimeError, match=r"cupy finds no NCCL.*install_library"):
            dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
        monkeypatch.setattr(device, "find", lambda: (None, "cupy is not installed; the extra brings it: pip install 'flambeau[cuda]'"))
        with pytest.raises(RuntimeError, match=r"engine nccl: no CUDA device.*flambeau\[cuda\]"):
            dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
        assert not dist.is_nccl_available()
    finally:
        monkeypatch.undo()
        device.find.cache_clear()


def test_ucc_says_what_it_lacks(monkeypatch):
    from flambeau.distributed import _ucc

    monkeypatch.setattr(_ucc, "find_spec", lambda name: object())
    monkeypatch.setattr(_ucc.shutil, "which", lambda name: None)
    _ucc.why_not.cache_clear()
    try:
        assert not dist.is_ucc_available()
        with pytest.raises(RuntimeError, match=r"Open MPI that was built with UCC"):
            dist.init_process_group("ucc")
        _ucc.why_not.cache_clear()
        monkeypatch.setattr(_ucc, "find_spec", lambda name: None)
        with pytest.raises(ImportError, match=r"mpi4py.*flambeau\[mpi\]"):
            dist.init_process_group("ucc")
    finally:
        _ucc.why_not.cache_clear()


def test_collectives_of_mpi_give_what_the_definitions_say():
    if shutil.which("mpiexec") is None or importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpiexec or mpi4py is not installed")
    # mpiexec wants to be told that a container's user, or fewer cores than processes, are meant.
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    program = Path(__file__).with_name("library_programs.py")
    paths = os.pathsep.join(str(program.parents[2] / part) for part in ("framework", "kernels", "tests/distributed"))

    ended = subprocess.run(
        ["mpiexec", "-n", "2", sys.executable, program, "ucc"],
        env={**os.environ, "PYTHONPATH": paths, **allowed},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert ended.returncode == 0, ended.stdout + ended.stderr
