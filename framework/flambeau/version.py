"""What this installation is made of; None for what it does not have."""

from __future__ import annotations

from . import __version__

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "rocm", "xpu"]

debug = False
git_version: str | None = None
cuda: str | None = (
    None  # nothing is compiled against CUDA; `backends.cuda.is_built()` says whether cupy is installed
)
hip: str | None = None
rocm: str | None = None
xpu: str | None = None
