"""Ways to divide a training end where one process does, and go on from each other's checkpoints: a sample of `equality.py`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.fixture
def equality(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    spec = importlib.util.spec_from_file_location("equality", HERE / "equality.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "equality", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("size", "ways", "count"), [(2, "FSDP1,PP", 6), (4, "FSDP2 x TP x PP", 2)])
def test_ways_to_divide_a_training_resume_from_each_other(equality, tmp_path, size, ways, count):
    worst = equality.run(tmp_path, [size], ways, limit=300)

    assert len(worst) == count
    assert max(worst.values()) < equality.ROOM, equality.table(worst)
