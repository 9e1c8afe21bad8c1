"""Shuffling channels between groups."""

from __future__ import annotations

import flambeau as fb

from .. import functional as F
from .module import Module

__all__ = ["ChannelShuffle"]


class ChannelShuffle(Module):
    """Deal the channels of `groups` groups out in turn: ``(N, C, *) -> (N, C, *)``; `groups` divides C.

    Source: Zhang et al. 2017, "ShuffleNet".
    """

    __constants__ = ["groups"]

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: fb.Tensor) -> fb.Tensor:
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"
