"""Tests of compile see kernels at the call that needs them first and in all later ones, unless they are about just that."""

from __future__ import annotations

import pytest

from flambeau._inductor import config
from flambeau_kernels.engine.runtime import allocator


@pytest.fixture(autouse=True)
def _calls_wait_for_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "compile_threads", 1)


@pytest.fixture
def counted_memory() -> None:
    """For tests that read `memory.statistics`: the bytes in use are counted."""
    if allocator.why_off() is not None:
        pytest.skip(f"nothing counts the bytes in use: {allocator.why_off()}")
