"""Parts of images whose channels are last in memory, with gaps between their rows: results have their channels last too."""

from __future__ import annotations

from typing import Any

import pytest

from comparing import disagreements

WHOLE = "torch.arange(2 * 4 * 8 * 8.).reshape(2, 4, 8, 8).to(memory_format=torch.channels_last)"


PARTS = ["[:, :, 1:7, 2:7]", "[:, 1:3]", "[:1, :, 1:7, 2:7]", "[1, :, 1:7, 2:7]", "[:, :, ::2, ::2]", "[:, :1, 1:]"]


@pytest.mark.parametrize("part", PARTS)
def test_results_of_cropped_channels_last_images_are_channels_last(oracle: Any, part: str) -> None:
    programs = """
    F.interpolate(x, scale_factor=2)
    F.interpolate(x, scale_factor=2, mode='bilinear')
    F.max_pool2d(x, 2)
    F.avg_pool2d(x, 2)
    F.adaptive_avg_pool2d(x, 2)
    F.adaptive_max_pool2d(x, 2)
    F.conv2d(x, torch.ones(3, x.shape[-3], 3, 3))
    F.conv_transpose2d(x, torch.ones(x.shape[-3], 3, 3, 3))
    F.pad(x, (1, 1))
    """
    setting = f"x = {WHOLE}{part}; "

    assert not disagreements(oracle, "\n".join(setting + line.strip() for line in programs.splitlines() if line.strip()))
