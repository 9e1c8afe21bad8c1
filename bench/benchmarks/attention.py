"""flex_attention beside attention that holds all scores: masks that hide blocks, and functions of scores.

    cd bench && asv run --python=same --quick --bench attention
"""

from __future__ import annotations

from typing import Any, ClassVar

import flambeau as fb
from flambeau.nn.attention.flex_attention import create_block_mask, create_mask, flex_attention

HEADS, LENGTH, WIDTH = 8, 1024, 64
DOCUMENT = fb.arange(LENGTH) // 300
MASKS: dict[str, Any] = {
    "causal": lambda b, h, i, j: i >= j,
    "window of 256": lambda b, h, i, j: (i >= j) & (i - j < 256),
    "documents of 300": lambda b, h, i, j: (DOCUMENT[i] == DOCUMENT[j]) & (i >= j),
}
# As a function of one score, and of all of them.
SCORES: dict[str, tuple[Any, Any]] = {
    "as they are": (None, lambda s, i, j: s),
    "distance": (lambda s, b, h, i, j: s - 0.1 * (i - j), lambda s, i, j: s - 0.1 * (i - j)),
    "soft cap": (lambda s, b, h, i, j: 20 * fb.tanh(s / 20), lambda s, i, j: 20 * fb.tanh(s / 20)),
}


class FlexAttention:
    """Seconds of one call with the gradients of query, key and value: 8 heads, 1024 positions of 64 features, float32."""

    params: ClassVar[Any] = [["one kernel", "all scores"], list(MASKS), list(SCORES)]
    param_names: ClassVar[Any] = ["way", "mask", "scores"]

    def setup(self, way: str, mask: str, scores: str) -> None:
        fb.manual_seed(0)
        self.leaves = [fb.randn(1, HEADS, LENGTH, WIDTH, requires_grad=True) for _ in range(3)]
        block_mask = create_block_mask(MASKS[mask], None, None, LENGTH, LENGTH)
        seen = create_mask(MASKS[mask], None, None, LENGTH, LENGTH)
        one, every = SCORES[scores]
        i, j = fb.arange(LENGTH).reshape(-1, 1), fb.arange(LENGTH)

        def materialised(q: Any, k: Any, v: Any) -> Any:
            return every(q @ k.mT * WIDTH**-0.5, i, j).masked_fill(~seen, -fb.inf).softmax(-1) @ v

        self.call = materialised if way == "all scores" else lambda q, k, v: flex_attention(q, k, v, one, block_mask)
        self.time_step(way, mask, scores)

    def time_step(self, way: str, mask: str, scores: str) -> None:
        for leaf in self.leaves:
            leaf.grad = None
        self.call(*self.leaves).sum().backward()
