"""Ranks laid out as an array of devices, with a process group along each dimension."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence
from typing import Any

import flambeau as fb

from . import distributed_c10d as c10d

__all__ = ["DeviceMesh", "init_device_mesh"]

_open = threading.local()


def _kind(name: str, device_type: str) -> str:
    if not isinstance(device_type, str) or not device_type.isalpha():
        raise RuntimeError(f"{name}: device_type must be a kind of device without an index, such as 'cpu', got {device_type!r}")
    if device_type != "cpu":
        raise NotImplementedError(f"{name}: a mesh of {device_type} devices is not built yet; engines work on the CPU")
    return device_type


class DeviceMesh:
    """Ranks of the job as an array; calls along one of its dimensions go through a group of their own.

    Args:
        device_type: "cpu".
        mesh: an array, nested list or integer tensor of ranks, the same on all ranks.
        mesh_dim_names: a name for each dimension.
        _init_backend: whether to make the groups.
    Raises: RuntimeError or ValueError for ranks that the job does not have, or that come twice.
    """

    def __init__(self, device_type: str, mesh: Any, *, mesh_dim_names: Sequence[str] | None = None, _init_backend: bool = True) -> None:
        self.device_type = _kind("DeviceMesh", device_type)
        self.mesh = fb.as_tensor(mesh).to(fb.int64).detach()
        self.mesh_dim_names = _names(mesh_dim_names, self.mesh.dim())
        self._parent: DeviceMesh | None = None
        self._groups: list[Any] = []
        if not _init_backend:
            return
        if not c10d.is_initialized():
            c10d.init_process_group()
        ranks = self.mesh.reshape(-1).tolist()
        if len(set(ranks)) != len(ranks) or not all(0 <= rank < c10d.get_world_size() for rank in ranks):
            raise RuntimeError(f"DeviceMesh: mesh must hold different ranks in [0, {c10d.get_world_size()}), got {ranks}")
        self._groups = [self._make_group(dim) for dim in range(self.mesh.dim())]

    def _make_group(self, dim: int) -> Any:
        size = self.mesh.shape[dim]
        lines = self.mesh.movedim(dim, -1).reshape(-1, size).tolist()
        mine, _ = c10d.new_subgroups_by_enumeration(lines)
        return mine

    def _dim(self, name: str, mesh_dim: int | str | None) -> int:
        if mesh_dim is None:
            if self.mesh.dim() != 1:
                raise RuntimeError(f"{name}: the mesh has {self.mesh.dim()} dimensions, so mesh_dim must say which")
            return 0
        if isinstance(mesh_dim, str):
            if mesh_dim not in (self.mesh_dim_names or ()):
                raise KeyError(f"{name}: there is no dimension {mesh_dim!r}; the mesh has {self.mesh_dim_names}")
            return (self.mesh_dim_names or ()).index(mesh_dim)
        if not -self.mesh.dim() <= mesh_dim < self.mesh.dim():
            raise IndexError(f"{name}: mesh_dim {mesh_dim} of a mesh with {self.mesh.dim()} dimensions")
        return mesh_dim % self.mesh.dim()

    @property
    def ndim(self) -> int:
        """How many dimensions there are."""
        return self.mesh.dim()

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions."""
        return tuple(self.mesh.shape)

    def size(self, mesh_dim: int | None = None) -> int:
        """How many ranks there are, in all or along `mesh_dim`."""
        return self.mesh.numel() if mesh_dim is None else self.mesh.shape[mesh_dim]

    def get_group(self, mesh_dim: int | str | None = None) -> Any:
        """The group of this rank along a dimension.

        Args:
            mesh_dim: the dimension's number or name; may be None where there is one.
        Raises: RuntimeError if it is not said which; KeyError or IndexError if it is not there.
        """
        at = self._dim("get_group", mesh_dim)
        if not self._groups:
            raise RuntimeError("get_group: DeviceMesh process groups not initialized!")
        return self._groups[at]

    def get_all_groups(self) -> list[Any]:
        """The groups of this rank along all dimensions."""
        return [self.get_group(dim) for dim in range(self.ndim)]

    def get_rank(self) -> int:
        """The rank of this process in the job."""
        return c10d.get_rank()

    def get_coordinate(self) -> list[int] | None:
        """Where this rank lies; None outside of the mesh."""
        found = (self.mesh == c10d.get_rank()).nonzero().tolist()
        return found[0] if found else None

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """Where this rank lies along a dimension; `mesh_dim` as for `get_group`."""
        at = self._dim("get_local_rank", mesh_dim)
        coordinate = self.get_coordinate()
        if coordinate is None:
            raise RuntimeError(f"get_local_rank: rank {c10d.get_rank()} is not in the mesh")
        return coordinate[at]

    @staticmethod
    def from_group(group: Any, device_type: str, mesh: Any = None, *, mesh_dim_names: Sequence[str] | None = None) -> DeviceMesh:
        """A mesh over groups that there are.

        Args:
            group: one group, or one for each dimension.
            device_type: as for the class.
            mesh: the ranks; those of the group if there is one.
            mesh_dim_names: as for the class.
        Raises: ValueError for several groups without `mesh`, or with one of other dimensions.
        """
        groups = list(group) if isinstance(group, list | tuple) else [group]
        if mesh is None:
            if len(groups) != 1:
                raise ValueError("from_group: several groups need mesh, the array of their ranks")
            mesh = c10d.get_process_group_ranks(groups[0])
        made = DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names, _init_backend=False)
        if made.ndim != len(groups):
            raise ValueError(f"from_group: {len(groups)} groups for a mesh of {made.ndim} dimensions")
        made._groups = groups
        return made

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """The part of the mesh along the dimensions `names` that this rank is in."""
        wanted = (names,) if isinstance(names, str) else tuple(names)
        dims = [self._dim("DeviceMesh", name) for name in wanted]
        if dims == list(range(self.ndim)):
            return self
        coordinate = self.get_coordinate()
        if coordinate is None:
            raise RuntimeError(f"DeviceMesh: rank {c10d.get_rank()} is not in the mesh")
        index = tuple(slice(None) if dim in dims else at for dim, at in enumerate(coordinate))
        made = DeviceMesh(self.device_type, self.mesh[index].clone(), mesh_dim_names=wanted, _init_backend=False)
        made._groups = [self._groups[dim] for dim in dims]
        made._parent = self._root()
        return made

    def _root(self) -> DeviceMesh:
        """The mesh that this one is a part of; itself if it is none."""
        return self if self._parent is None else self._parent

    def __enter__(self) -> DeviceMesh:
        _open.__dict__.setdefault("meshes", []).append(self)
        return self

    def __exit__(self, *_: Any) -> None:
        _open.meshes.pop()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeviceMesh):
            return NotImplemented
        return self.shape == other.shape and self.mesh_dim_names == other.mesh_dim_names and fb.equal(self.mesh, other.mesh)

    def __hash__(self) -> int:
        return hash((self.shape, self.mesh_dim_names, tuple(self.mesh.reshape(-1).tolist())))

    def __repr__(self) -> str:
        if self.mesh_dim_names:
            return f"DeviceMesh(({', '.join(f'{n}={s}' for n, s in zip(self.mesh_dim_names, self.shape, strict=True))}))"
        return f"DeviceMesh('{self.device_type}', {self.mesh.tolist()})"


def _names(names: Sequence[str] | None, count: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    if len(set(names)) != len(names) or len(names) != count:
        raise RuntimeError(f"mesh_dim_names must be {count} different names, one for each dimension, got {tuple(names)}")
    return tuple(names)


def init_device_mesh(device_type: str, mesh_shape: tuple[int, ...], *, mesh_dim_names: Sequence[str] | None = None) -> DeviceMesh:
    """All ranks in order, as an array of a shape; makes the process group too if there is none.

    Args:
        device_type: "cpu".
        mesh_shape: the sizes of the dimensions, the same on all ranks.
        mesh_dim_names: a name for each dimension.
    Raises: RuntimeError for names that do not fit, or for a shape with another number of ranks than the job has.
    """
    _kind("init_device_mesh", device_type)
    _names(mesh_dim_names, len(mesh_shape))
    size = c10d.get_world_size() if c10d.is_initialized() else int(os.environ.get("WORLD_SIZE", "1"))
    if math.prod(mesh_shape) > size:
        raise RuntimeError(f"init_device_mesh: mesh_shape {tuple(mesh_shape)} has {math.prod(mesh_shape)} ranks, and the job {size}")
    ranks = fb.arange(math.prod(mesh_shape)).reshape(mesh_shape)
    return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names)


def current() -> DeviceMesh | None:
    """The innermost mesh whose context this thread is in."""
    meshes = _open.__dict__.get("meshes")
    return meshes[-1] if meshes else None


class _MeshResources:
    """What PyTorch asks for the meshes of this process: the one whose context a thread is in, and what a part is of."""

    @property
    def mesh_stack(self) -> list[DeviceMesh]:
        """The meshes whose contexts this thread is in, the innermost last."""
        return _open.__dict__.setdefault("meshes", [])

    def get_current_mesh(self) -> DeviceMesh:
        """The innermost of `mesh_stack`. Raises: RuntimeError if there is none."""
        found = current()
        if found is None:
            raise RuntimeError("No device mesh is currently active! Enter one: with mesh:")
        return found

    def get_root_mesh(self, device_mesh: DeviceMesh) -> DeviceMesh:
        """The mesh that `device_mesh` is a part of; itself if it is none."""
        return device_mesh._root()

    def num_devices_per_host(self, device_type: str) -> int:
        """How many devices of the kind this machine has; of CPUs it is one."""
        _kind("num_devices_per_host", device_type)
        return 1

    def num_hosts(self, device_type: str) -> int:
        """How many machines the job has, if all have as many devices."""
        return c10d.get_world_size() // self.num_devices_per_host(device_type)


_mesh_resources = _MeshResources()
