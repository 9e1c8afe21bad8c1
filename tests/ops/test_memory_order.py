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


@pytest.mark.parametrize("op", ["x + y", "x * y", "x > y", "torch.atan2(x, y)", "torch.where(x > 0, x, y)", "torch.lerp(x, y, 0.5)"])
def test_results_lie_in_memory_as_the_first_operand_that_tells_two_dimensions_apart_even_if_it_is_broadcast(oracle: Any, op: str) -> None:
    operands = [
        ("arange(12.).as_strided((1, 2, 2, 3), (12, 0, 3, 1))", "arange(24.).as_strided((2, 1, 3), (2, 6, 6))"),
        ("arange(24.).as_strided((2, 1, 4), (1, 2, 2))", "arange(3.).reshape(1, 3, 1)"),
        ("arange(24.).as_strided((2, 1, 4), (1, 2, 2))", "arange(24.).as_strided((1, 3, 1), (1, 2, 1))"),
        ("arange(24.).as_strided((3, 2, 2), (1, 0, 6))", "arange(24.).as_strided((3, 1, 2), (2, 12, 1))"),
        ("arange(24.).as_strided((3, 1, 1), (1, 3, 3))", "arange(24.).as_strided((1, 2, 3), (1, 3, 1))"),
    ]
    programs = [f"x, y = torch.{x}, torch.{y}; {op}" for x, y in operands]

    assert not disagreements(oracle, "\n".join(programs))


@pytest.mark.parametrize("op", ["x.exp()", "x.sin()", "x / 2", "x + 1", "-x", "x.abs()", "x > 0", "x.clone()", "x.double()"])
def test_results_of_expanded_tensors_lie_in_memory_as_their_other_dimensions_do(oracle: Any, op: str) -> None:
    programs = [f"x = torch.arange(24.).as_strided({shape}); ({op}).stride()" for shape in (
        "(3, 2, 2), (1, 0, 6)", "(2, 3, 2), (0, 1, 6)", "(2, 2, 3, 2), (0, 1, 0, 6)", "(3, 2), (1, 0)", "(2, 3), (0, 1)"
    )]  # fmt: skip

    assert not disagreements(oracle, "\n".join(programs))
