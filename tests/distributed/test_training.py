"""Networks trained by several processes end where one process and PyTorch end."""

from __future__ import annotations

import numpy as np


def test_data_parallel_training_equals_that_of_one_process_and_of_pytorch(ranks, tmp_path, oracle):
    ranks("training_programs.everything", 2)
    ranks("training_programs.oracle", 2)

    ours, theirs = np.load(tmp_path / "ours.npy"), np.load(tmp_path / "theirs.npy")

    assert np.abs(ours - theirs).max() < 1e-6
