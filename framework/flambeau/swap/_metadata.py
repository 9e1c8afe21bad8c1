"""The installed-package record that `importlib.metadata` finds for the swapped-in name."""

from __future__ import annotations

import os
import pathlib
from importlib.metadata import Distribution

__all__ = ["SwappedDistribution"]


class SwappedDistribution(Distribution):
    """Metadata of `name` at `version`, offered by the package in `folder`."""

    def __init__(self, name: str, version: str, folder: str) -> None:
        self._folder = pathlib.Path(folder)
        self._files = {
            "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            "top_level.txt": f"{name}\n",
            "INSTALLER": "flambeau.swap\n",
        }

    def read_text(self, filename: str | os.PathLike[str]) -> str | None:
        return self._files.get(os.fspath(filename))

    def locate_file(self, path: str | os.PathLike[str]) -> pathlib.Path:
        return self._folder / path
