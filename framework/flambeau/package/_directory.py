"""The files of a package as a tree."""

from __future__ import annotations

from collections.abc import Iterable

from ._glob import GlobGroup, GlobPattern

__all__ = ["Directory", "file_tree"]


class Directory:
    """A folder of a package, or a file in it; printed, it is drawn as a tree.

    Args:
        name: its name without the folders above it.
        is_dir: whether it is a folder.
    Attributes:
        children: what it holds, by name.
    """

    def __init__(self, name: str, is_dir: bool) -> None:
        self.name, self.is_dir = name, is_dir
        self.children: dict[str, Directory] = {}

    def has_file(self, filename: str) -> bool:
        """Whether there is a file or folder `filename`, a path such as ``"model/weights.pkl"`` counted from here."""
        at: Directory | None = self
        for part in filename.split("/"):
            at = None if at is None else at.children.get(part)
        return at is not None

    def _add(self, path: str) -> None:
        *folders, file = path.split("/")
        at = self
        for folder in folders:
            at = at.children.setdefault(folder, Directory(folder, True))
            at.is_dir = True
        at.children.setdefault(file, Directory(file, False))

    def _lines(self, indent: str) -> Iterable[str]:
        below = sorted(self.children.values(), key=lambda child: (not child.is_dir, child.name))
        for child in below:
            last = child is below[-1]
            yield f"{indent}{'└' if last else '├'}── {child.name}"
            yield from child._lines(indent + ("    " if last else "│   "))

    def __str__(self) -> str:
        return "".join(f"{line}\n" for line in (f"─── {self.name}", *self._lines("    ")))


def file_tree(name: str, files: Iterable[str], include: GlobPattern, exclude: GlobPattern) -> Directory:
    """Those of `files`, paths with slashes, that match, below a folder called `name`."""
    group = GlobGroup(include, exclude=exclude, separator="/")
    root = Directory(name, True)
    for file in files:
        if group.matches(file):
            root._add(file)
    return root
