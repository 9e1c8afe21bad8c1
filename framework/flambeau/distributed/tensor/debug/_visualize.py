"""A table of which rank has which rows and columns of a spread tensor."""

from __future__ import annotations

from typing import Any

from .._utils import compute_local_shape_and_global_offset

__all__ = ["visualize_sharding"]


def visualize_sharding(dtensor: Any, header: str = "", use_rich: bool = False) -> None:
    """Print which ranks have which part of a DTensor of one or two dimensions, on the first rank of its mesh.

    Args:
        dtensor: on all ranks of its mesh; one without elements prints nothing.
        header: a line above the table.
        use_rich: taken for compatibility: the table is plain text.
    Raises: RuntimeError for more dimensions.
    """
    if dtensor.numel() == 0:
        return
    if dtensor.ndim > 2:
        raise RuntimeError("visualize sharding supports only 1D or 2D DTensor")
    mesh = dtensor.device_mesh
    here = mesh.get_coordinate()
    if here is None or any(here):
        return
    cells: dict[tuple[tuple[int, int], tuple[int, int]], list[str]] = {}
    for rank, place in _places(mesh):
        shape, offset = compute_local_shape_and_global_offset(tuple(dtensor.shape), _MeshOfRank(mesh, place), dtensor.placements)
        if not all(shape):
            continue
        spans = [(begin, begin + length - 1) for begin, length in zip(offset, shape, strict=True)]
        row, column = (spans[0], spans[1]) if len(spans) == 2 else ((0, 0), spans[0])
        cells.setdefault((row, column), []).append(f"{mesh.device_type}:{rank}")
    rows, columns = sorted({r for r, _ in cells}), sorted({c for _, c in cells})
    table = [["", *(f"Col {a}-{b}" for a, b in columns)]]
    table += [[f"Row {row[0]}-{row[1]}", *(", ".join(cells.get((row, column), [])) for column in columns)] for row in rows]
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in table]
    lines.insert(1, "  ".join("-" * width for width in widths))
    print("\n".join(([header] if header else []) + lines))


class _MeshOfRank:
    """A mesh as another of its ranks sees it."""

    def __init__(self, mesh: Any, place: list[int]) -> None:
        self.mesh, self.place = mesh, place

    def size(self, dim: int) -> int:
        return self.mesh.size(dim)

    def get_coordinate(self) -> list[int]:
        return self.place


def _places(mesh: Any) -> list[tuple[int, list[int]]]:
    ranks = mesh.mesh.reshape(-1).tolist()
    found = []
    for at, rank in enumerate(ranks):
        place = []
        for size in reversed(mesh.shape):
            at, here = divmod(at, size)
            place.append(here)
        found.append((rank, place[::-1]))
    return found
