"""Ways to divide a training end where one process does, and go on from each other's checkpoints: a sample of `equality.py`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def test_flat_pieces_and_three_dimensions_resume_from_each_other(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    spec = importlib.util.spec_from_file_location("equality", HERE / "equality.py")
    assert spec is not None
    assert spec.loader is not None
    equality = importlib.util.module_from_spec(spec)
    sys.modules["equality"] = equality
    spec.loader.exec_module(equality)

    worst = equality.run(tmp_path, [4], "FSDP1,FSDP2 x TP x PP", limit=300)

    assert len(worst) == 2 + 4
    assert max(worst.values()) < equality.ROOM, equality.table(worst)
