"""Tensors that are spread over a device mesh, and used as if they were whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flambeau as fb

from ..._interpreters import pop, push
from ...autograd import Function
from ...ops._dispatch import _disabled
from ...tensor import Tensor
from .. import distributed_c10d as c10d
from ..device_mesh import DeviceMesh
from . import _rules
from ._redistribute import local_part, normalized, redistributed
from ._utils import compute_local_shape_and_global_offset
from .placement_types import Partial, Placement, Replicate, Shard

__all__ = [
    "DTensor", "DTensorSpec", "TensorMeta", "distribute_module", "distribute_tensor", "empty", "full", "ones", "rand", "randn", "zeros",
]  # fmt: skip


class TensorMeta(NamedTuple):
    """What the whole tensor looks like."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: Any


class DTensorSpec(NamedTuple):
    """Where a tensor is, and what it looks like."""

    mesh: DeviceMesh
    placements: tuple[Placement, ...]
    tensor_meta: TensorMeta


class DTensor(Tensor):
    """A tensor that is spread over a device mesh; every rank has a piece. Use `from_local` or `distribute_tensor` to make one."""

    _local_tensor: Any
    _spec: DTensorSpec
    __torch_function__ = _disabled

    @staticmethod
    def __new__(cls: Any, local_tensor: Any, spec: DTensorSpec, *, requires_grad: bool = False) -> Any:
        meta = spec.tensor_meta
        return Tensor._make_wrapper_subclass(
            cls, meta.shape, strides=meta.stride, dtype=meta.dtype, device=local_tensor.device, requires_grad=requires_grad
        )

    def __init__(self, local_tensor: Any, spec: DTensorSpec, *, requires_grad: bool = False) -> None:
        self._local_tensor, self._spec = local_tensor, spec

    @classmethod
    def _of(cls, local: Any, mesh: Any, placements: Any, shape: Any, stride: Any) -> DTensor:
        return cls(local, DTensorSpec(mesh, tuple(placements), TensorMeta(tuple(shape), tuple(stride), local.dtype)))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._opname == "_local_scalar_dense":
            return func(args[0].full_tensor())
        spread = _rules.Spread(DTensor)
        push(spread)
        try:
            return func(*args, **(kwargs or {}))
        finally:
            pop(spread)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__torch_dispatch__" in cls.__dict__:  # which is asked for operators, and may go on to ours
            cls._answerer = None

    def __repr__(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]  # nothing else to show
        return f"DTensor(local_tensor={self._local_tensor}, device_mesh={self.device_mesh}, placements={self.placements})"

    def _local_as(self, placements: Sequence[Placement]) -> Any:
        """The piece that this rank has under `placements`, without history."""
        return redistributed(self._local_tensor, tuple(self.shape), self.device_mesh, self.placements, placements)

    @staticmethod
    def _pieces_of(tensors: Sequence[Any]) -> list[Any] | None:
        """The pieces of this rank of tensors that are spread alike: elementwise operations may work on them; None if they are not."""
        first = tensors[0]
        for t in tensors:
            alike = isinstance(t, DTensor) and t.placements == first.placements and t.device_mesh == first.device_mesh
            if not alike or any(p.is_partial() for p in t.placements):
                return None
        return [t._local_tensor for t in tensors]

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh that it is spread over."""
        return self._spec.mesh

    @property
    def placements(self) -> tuple[Placement, ...]:
        """A placement for each dimension of the mesh."""
        return self._spec.placements

    def __create_chunk_list__(self) -> list[Any]:
        """Place and shape of the piece of this rank, for checkpoints."""
        from ..checkpoint.metadata import ChunkStorageMetadata

        sizes, offsets = compute_local_shape_and_global_offset(tuple(self.shape), self.device_mesh, self.placements)
        return [ChunkStorageMetadata(fb.Size(offsets), fb.Size(sizes))]

    def __create_write_items__(self, fqn: str, value: Any) -> list[Any]:
        """What checkpoints may write of it: the piece of this rank, if it is not empty."""
        from ..checkpoint.metadata import MetadataIndex, TensorProperties
        from ..checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

        chunk = self.__create_chunk_list__()[0]
        if not all(chunk.sizes):
            return []
        about = TensorWriteData(chunk, TensorProperties.create_from_tensor(self._local_tensor), self.size())
        return [WriteItem(MetadataIndex(fqn, chunk.offsets), WriteItemType.SHARD, tensor_data=about)]

    def __get_tensor_shard__(self, index: Any) -> Any:
        """The piece of this rank, for checkpoints."""
        return self._local_tensor.detach()

    @staticmethod
    def from_local(
        local_tensor: Any,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        run_check: bool = False,
        shape: Any = None,
        stride: Any = None,
    ) -> Any:
        """The spread tensor whose piece on each rank is `local_tensor`; differentiable.

        Args:
            device_mesh: by default the one whose context this is in.
            placements: one for each dimension of the mesh; whole by default.
            run_check: compare the pieces of all ranks, and send those that are whole from the first rank.
            shape, stride: of the whole tensor; by default as if all pieces had the shape of this one.
        Raises: ValueError if pieces differ in shape or dtype under `run_check`, or only one of `shape` and `stride` is given.
        """
        mesh = _mesh(device_mesh)
        if (shape is None) != (stride is None):
            raise ValueError(f"from_local: found shape:{shape}, stride:{stride}; pass both of them, or neither")
        return _FromLocal.apply(local_tensor, mesh, normalized(placements, mesh, local_tensor.ndim, "from_local"), run_check, shape, stride)

    def to_local(self, *, grad_placements: Sequence[Placement] | None = None) -> Any:
        """The piece of this rank; differentiable.

        Args:
            grad_placements: how its gradient will lie; as the tensor itself by default, whole where that is a part of a sum.
        """
        return _ToLocal.apply(self, grad_placements)

    def redistribute(
        self, device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None, *, async_op: bool = False
    ) -> Any:
        """The same tensor under other `placements`, whole everywhere by default; differentiable.

        Raises: RuntimeError if a placement is Partial where the tensor is not; NotImplementedError for another mesh.
        """
        if device_mesh is not None and device_mesh != self.device_mesh:
            raise NotImplementedError("redistribute: Cross device mesh comm not supported yet!")
        wanted = normalized(placements, self.device_mesh, self.ndim, "redistribute")
        for old, new in zip(self.placements, wanted, strict=True):
            if isinstance(new, Partial) and old != new:
                raise RuntimeError("redistribute: Can not redistribute to Partial, redistributing to Partial is for internal use only!")
        return _Redistribute.apply(self, wanted)

    def full_tensor(self, *, grad_placements: Sequence[Placement] | None = None) -> Any:
        """The whole tensor, on every rank; differentiable. `grad_placements` as for `to_local`."""
        return self.redistribute().to_local(grad_placements=grad_placements)


def _mesh(given: DeviceMesh | None) -> DeviceMesh:
    from ..device_mesh import current

    found = given or current()
    if found is None:
        raise RuntimeError("no device mesh is active: give one, or call this inside of ``with device_mesh:``")
    return found


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    step, made = 1, []
    for n in reversed(shape):
        made.append(step)
        step *= n
    return tuple(reversed(made))


DTensor._answerer = _rules.Spread(DTensor)


class _FromLocal(Function):
    @staticmethod
    def forward(ctx: Any, local: Any, mesh: Any, placements: Any, run_check: bool, shape: Any, stride: Any) -> Any:
        ctx.layout = mesh, placements
        local = local.detach()
        if run_check:
            local = _checked(local, mesh, placements)
        if shape is None:
            global_shape = list(local.shape)
            for at, placement in enumerate(placements):
                if isinstance(placement, Shard):
                    global_shape[placement.dim] *= mesh.size(at)
            shape, stride = global_shape, _strides(global_shape)
        return DTensor._of(local.view(local.shape), mesh, placements, tuple(shape), tuple(stride))

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        _, placements = ctx.layout
        wanted = [Replicate() if isinstance(p, Partial) else p for p in placements]
        return grad._local_as(wanted), None, None, None, None, None


def _checked(local: Any, mesh: Any, placements: Any) -> Any:
    for at, placement in enumerate(placements):
        group = mesh.get_group(at)
        facts: list[Any] = [None] * mesh.size(at)
        c10d.all_gather_object(facts, (tuple(local.shape), str(local.dtype)), group=group)
        if len(set(facts)) > 1:
            raise ValueError(f"from_local: pieces along dimension {at} of the mesh differ in shape or dtype: {facts}")
        if isinstance(placement, Replicate):
            local = local.clone()
            c10d.broadcast(local, src=c10d.get_global_rank(group, 0), group=group)
    return local


class _ToLocal(Function):
    @staticmethod
    def forward(ctx: Any, spread: Any, grad_placements: Any) -> Any:
        ctx.spread = spread._spec, grad_placements
        return spread._local_tensor.view(spread._local_tensor.shape)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        spec, given = ctx.spread
        placements = given or [Replicate() if isinstance(p, Partial) else p for p in spec.placements]
        return DTensor._of(grad, spec.mesh, placements, spec.tensor_meta.shape, spec.tensor_meta.stride), None


class _Redistribute(Function):
    @staticmethod
    def forward(ctx: Any, spread: Any, placements: Any) -> Any:
        ctx.before = spread.placements
        return DTensor._of(spread._local_as(placements), spread.device_mesh, placements, spread.shape, spread.stride())

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        wanted = tuple(Replicate() if isinstance(p, Partial) else p for p in ctx.before)
        return DTensor._of(grad._local_as(wanted), grad.device_mesh, wanted, grad.shape, grad.stride()), None


# -- making them ---------------------------------------------------------------------------------------------------------


def distribute_tensor(
    tensor: Any, device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None, *, src_data_rank: int | None = 0
) -> Any:
    """A leaf: the pieces of `tensor` under `placements`, of the rank `src_data_rank` of each group.

    Args:
        tensor: the whole tensor; the same shape on every rank.
        device_mesh: by default the one whose context this is in.
        placements: one for each dimension of the mesh: Shard or Replicate; whole by default.
        src_data_rank: whose values count; None: everyone's own.
    Raises: RuntimeError if `tensor` is no leaf, or for Partial placements; ValueError if it is spread already in another way.
    """
    mesh = _mesh(device_mesh)
    if not tensor.is_leaf:
        raise RuntimeError("`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf tensor!")
    if tensor.layout != fb.strided or tensor.is_quantized:
        what = "quantized tensors" if tensor.is_quantized else f"tensors of the layout {tensor.layout}"
        raise NotImplementedError(f"distribute_tensor: no DTensor of {what} is built")
    wanted = normalized(placements, mesh, tensor.ndim, "distribute_tensor")
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != mesh or tensor.placements != wanted:
            raise ValueError(f"distribute_tensor: cannot distribute a DTensor with {tensor.placements} to {wanted}; use redistribute")
        return tensor
    if any(isinstance(p, Partial) for p in wanted):
        raise RuntimeError(f"Trying to distribute tensor with unsupported placements {wanted} on device mesh {mesh}!")
    local = tensor.detach().contiguous()
    where = mesh.get_coordinate()
    if src_data_rank is not None:
        local = local.clone()
        for at in range(mesh.ndim):
            group = mesh.get_group(at)
            c10d.broadcast(local, src=c10d.get_global_rank(group, src_data_rank), group=group)
    for at, placement in enumerate(wanted):
        if isinstance(placement, Shard):
            local = local_part(local, placement.dim, mesh.size(at), where[at])  # type: ignore[index]
    made = DTensor._of(local, mesh, wanted, tuple(tensor.shape), _strides(tensor.shape))
    return made.requires_grad_(tensor.requires_grad)


def distribute_module(
    module: Any,
    device_mesh: DeviceMesh | None = None,
    partition_fn: Callable[[str, Any, DeviceMesh], None] | None = None,
    input_fn: Callable[..., Any] | None = None,
    output_fn: Callable[..., Any] | None = None,
) -> Any:
    """Spread the parameters of `module`: as `partition_fn` does to each of its modules, the others whole on every rank.

    Args:
        device_mesh: by default the one whose context this is in.
        partition_fn: ``fn(name, module, mesh)``, called for the module and those in it.
        input_fn, output_fn: ``fn(module, inputs, mesh)`` and ``fn(module, outputs, mesh)``, around each call of the module.
    Returns: `module`.
    """
    mesh = _mesh(device_mesh)
    for name, part in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, part, mesh)
        for key, parameter in list(part._parameters.items()):
            if parameter is not None and not isinstance(parameter, DTensor):
                spread = distribute_tensor(parameter.detach(), mesh)
                part.register_parameter(key, fb.nn.Parameter(spread, parameter.requires_grad))
        for key, buffer in list(part._buffers.items()):
            if buffer is not None and not isinstance(buffer, DTensor):
                part._buffers[key] = distribute_tensor(buffer, mesh)
    if input_fn is not None:
        module.register_forward_pre_hook(lambda mod, inputs: input_fn(mod, inputs, mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda mod, inputs, outputs: output_fn(mod, outputs, mesh))
    return module


def _made(name: str, size: Any, make: Any, dtype: Any, requires_grad: bool, mesh: Any, placements: Any, draws: bool = False) -> Any:
    mesh = _mesh(mesh)
    shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else tuple(size)
    wanted = normalized(placements, mesh, len(shape), name)
    if any(isinstance(p, Partial) for p in wanted):
        raise ValueError(f"distributed.tensor.{name}: placements must be Shard or Replicate, got {wanted}")
    if draws:                                         # as one process draws
        local, where = make(shape, dtype=dtype), mesh.get_coordinate()
        for at, placement in enumerate(wanted):
            if isinstance(placement, Shard):
                local = local_part(local, placement.dim, mesh.size(at), where[at])
    else:
        local = make(compute_local_shape_and_global_offset(shape, mesh, wanted, True)[0], dtype=dtype)
    return DTensor._of(local, mesh, wanted, shape, _strides(shape)).requires_grad_(requires_grad)


def _maker(name: str, make: Any, what: str, draws: bool = False) -> Any:
    def maker(
        *size: Any, dtype: Any = None, layout: Any = None, requires_grad: bool = False, device_mesh: Any = None, placements: Any = None
    ) -> Any:
        return _made(name, size, make, dtype, requires_grad, device_mesh, placements, draws)

    maker.__name__ = maker.__qualname__ = name
    maker.__doc__ = f"A spread tensor of `size` {what}; `device_mesh` and `placements` as for `distribute_tensor`."
    return maker


zeros, ones = _maker("zeros", fb.zeros, "filled with 0"), _maker("ones", fb.ones, "filled with 1")
empty = _maker("empty", fb.empty, "with whatever was in memory")
rand = _maker("rand", fb.rand, "of numbers evenly spread over [0, 1), those of one process", True)
randn = _maker("randn", fb.randn, "of normal numbers, those of one process", True)


def full(
    size: Any, fill_value: Any, *, dtype: Any = None, layout: Any = None, requires_grad: bool = False, device_mesh: Any = None,
    placements: Any = None,
) -> Any:  # fmt: skip
    """A spread tensor of `size` filled with `fill_value`; `device_mesh` and `placements` as for `distribute_tensor`."""

    def make(shape: Any, dtype: Any) -> Any:
        return fb.full(shape, fill_value, dtype=dtype)

    return _made("full", (size,), make, dtype, requires_grad, device_mesh, placements)
