"""Networks trained by several processes end where one process and PyTorch end."""

from __future__ import annotations

import numpy as np


def test_training_on_two_processes_equals_that_of_one_process_and_of_pytorch(ranks, tmp_path, oracle):
    ranks("training_programs.everything", 2, limit=300)
    ranks("training_programs.oracle", 2, limit=300)

    ours, theirs = np.load(tmp_path / "ours.npy"), np.load(tmp_path / "theirs.npy")

    assert np.abs(ours - theirs).max() < 1e-6
    for what in ("averages0", "averages1", "stages0", "stages1"):
        ours, theirs = np.load(tmp_path / f"ours_{what}.npy"), np.load(tmp_path / f"theirs_{what}.npy")
        assert np.abs(ours - theirs).max() < 1e-6, what


def test_compiled_networks_on_two_processes_have_the_bits_of_those_that_are_not_compiled(ranks, tmp_path, oracle):
    ranks("training_programs.compiled", 2, limit=300)
    ranks("training_programs.oracle_wide", 2, limit=300)

    assert np.abs(np.load(tmp_path / "ours_compiled.npy") - np.load(tmp_path / "theirs_wide.npy")).max() < 1e-6
