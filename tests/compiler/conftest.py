"""Tests of compile see kernels at the call that needs them first and in all later ones, unless they are about just that."""

from __future__ import annotations

import pytest

from flambeau._inductor import config


@pytest.fixture(autouse=True)
def _calls_wait_for_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "compile_threads", 1)
