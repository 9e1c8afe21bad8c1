"""Collectives that return new tensors and have gradients; backward is a collective too, so all ranks have to call it."""

from __future__ import annotations

from typing import Any

import flambeau as fb

from .. import distributed_c10d as c10d
from .._groups import _default, _GroupMember

__all__ = [
    "all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather", "reduce", "reduce_scatter", "scatter",
]  # fmt: skip


def _resolve(group: Any) -> Any:
    return _default() if group is None or isinstance(group, _GroupMember) else group


class _AllReduce(fb.autograd.Function):
    @staticmethod
    def forward(ctx: Any, group: Any, op: Any, tensor: Any) -> Any:
        ctx.group, ctx.op = group, op
        out = tensor.detach().clone(memory_format=fb.contiguous_format)
        group.all_reduce([out], op, False)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return None, None, _AllReduce.apply(ctx.group, ctx.op, grad)


class _Broadcast(fb.autograd.Function):
    @staticmethod
    def forward(ctx: Any, group: Any, root: int, tensor: Any) -> Any:
        ctx.group, ctx.root = group, root
        out = tensor.detach().clone(memory_format=fb.contiguous_format)
        group.broadcast([out], root, False)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return None, None, _Reduce.apply(ctx.group, ctx.root, c10d.ReduceOp.SUM, grad) * (ctx.group.rank() == ctx.root)


class _Reduce(fb.autograd.Function):
    @staticmethod
    def forward(ctx: Any, group: Any, root: int, op: Any, tensor: Any) -> Any:
        ctx.group, ctx.root = group, root
        out = tensor.detach().clone(memory_format=fb.contiguous_format)
        group.reduce(out, root, op, False)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return None, None, None, _Broadcast.apply(ctx.group, ctx.root, grad)


class _AllToAll(fb.autograd.Function):
    @staticmethod
    def forward(ctx: Any, group: Any, shapes: list[Any], *tensors: Any) -> Any:
        ctx.group, ctx.shapes = group, [tensor.shape for tensor in tensors]
        outputs = [fb.empty(shape, dtype=tensors[0].dtype) for shape in shapes]
        group.all_to_all(outputs, [tensor.detach().contiguous() for tensor in tensors], False)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, None, *_AllToAll.apply(ctx.group, ctx.shapes, *grads)


class _ReduceScatter(fb.autograd.Function):
    @staticmethod
    def forward(ctx: Any, group: Any, op: Any, shape: Any, *tensors: Any) -> Any:
        ctx.group = group
        out = fb.empty(shape, dtype=tensors[0].dtype)
        group.reduce_scatter(out, [tensor.detach().contiguous() for tensor in tensors], op, False)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        size = ctx.group.size()
        return None, None, None, *_AllToAll.apply(ctx.group, [grad.shape] * size, *[grad] * size)


def all_reduce(tensor: Any, op: Any = c10d.ReduceOp.SUM, group: Any = None) -> Any:
    """The `tensor` of all ranks combined; the gradient is combined in the same way.

    Args:
        tensor, op, group: as for `flambeau.distributed.all_reduce`.
    """
    return _AllReduce.apply(_resolve(group), op, tensor)


def broadcast(tensor: Any, src: int, group: Any = None) -> Any:
    """The `tensor` of rank `src`, which gets the sum of all gradients.

    Args:
        tensor, src, group: as for `flambeau.distributed.broadcast`.
    """
    found = _resolve(group)
    return _Broadcast.apply(found, c10d.get_group_rank(found, src), tensor)


def reduce(tensor: Any, dst: int, op: Any = c10d.ReduceOp.SUM, group: Any = None) -> Any:
    """The `tensor` of all ranks combined on rank `dst`, whose gradient all get.

    Args:
        tensor, dst, op, group: as for `flambeau.distributed.reduce`.
    """
    found = _resolve(group)
    return _Reduce.apply(found, c10d.get_group_rank(found, dst), op, tensor)


def all_gather(tensor: Any, group: Any = None) -> Any:
    """A tuple of the `tensor` of each rank, which gets the sum of the gradients for it.

    Args:
        tensor: of one shape on all ranks.
        group: as for `flambeau.distributed.all_gather`.
    """
    found = _resolve(group)
    return _AllToAll.apply(found, [tensor.shape] * found.size(), *([tensor] * found.size()))


def gather(tensor: Any, dst: int = 0, group: Any = None) -> Any:
    """A tuple of the `tensor` of each rank on rank `dst`, zeros elsewhere.

    Args:
        tensor, dst, group: as for `flambeau.distributed.gather`.
    """
    found = _resolve(group)
    here = c10d.get_group_rank(found, dst) == found.rank()
    outputs = all_gather(tensor, found)
    return tuple(outputs) if here else tuple(output * 0 for output in outputs)


def scatter(tensors: Any, src: int = 0, group: Any = None) -> Any:
    """This rank's tensor of the list on rank `src`.

    Args:
        tensors: a list of tensors of one shape on each rank; that of `src` counts.
        src, group: as for `flambeau.distributed.scatter`.
    """
    found = _resolve(group)
    return _AllToAll.apply(found, [tensors[0].shape] * found.size(), *tensors)[c10d.get_group_rank(found, src)]


def reduce_scatter(output: Any, input_list: Any, op: Any = c10d.ReduceOp.SUM, group: Any = None) -> Any:
    """The items for this rank in the lists of all ranks, combined.

    Args:
        output: a tensor of the shape of the result.
        input_list, op, group: as for `flambeau.distributed.reduce_scatter`.

    Each item gets the gradient of the result that it went into, as for a sum, whatever `op` is; PyTorch does the same.
    """
    found = _resolve(group)
    return _ReduceScatter.apply(found, op, output.shape, *input_list)


def all_to_all(output_tensor_list: Any, input_tensor_list: Any, group: Any = None) -> Any:
    """A tuple of what each rank has for this one.

    Args:
        output_tensor_list: tensors of the shapes of the results.
        input_tensor_list, group: as for `flambeau.distributed.all_to_all`.
    """
    return _AllToAll.apply(_resolve(group), [output.shape for output in output_tensor_list], *input_tensor_list)


def all_to_all_single(output: Any, input: Any, output_split_sizes: Any = None, input_split_sizes: Any = None, group: Any = None) -> Any:
    """The parts that each rank's `input` has for this one, concatenated.

    Args:
        output: a tensor of the shape of the result.
        input, output_split_sizes, input_split_sizes, group: as for `flambeau.distributed.all_to_all_single`.
    """
    found = _resolve(group)
    outputs = c10d._split("output", output, output_split_sizes, found.size())
    sizes = input_split_sizes or [input.shape[0] // found.size()] * found.size()
    c10d._split("input", input, input_split_sizes, found.size())
    return fb.cat(_AllToAll.apply(found, [part.shape for part in outputs], *input.split(list(sizes))))
