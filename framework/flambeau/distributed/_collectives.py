"""Collectives on tensors, and barriers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import flambeau as fb

from ._engine import ProcessGroup, Work
from ._errors import DistBackendError
from ._groups import _default, _group, _world, get_group_rank
from ._reduce import ReduceOp


def _tensor(name: str, argument: str, value: Any) -> Any:
    if not isinstance(value, fb.Tensor):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{argument}` of type torch.Tensor, but got {type(value)} instead ({name})."
        )
    return value


def _tensors(name: str, argument: str, values: Any) -> list[Any]:
    if not isinstance(values, list | tuple) or not all(isinstance(value, fb.Tensor) for value in values):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{argument}` of type List[torch.Tensor] ({name}), got {type(values).__name__}."
        )
    return list(values)


def _peer(name: str, found: ProcessGroup, rank: int | None, group_rank: int | None, what: str, default: int | None = None) -> int:
    """The rank within `found` that `rank` of the job or `group_rank` says."""
    if rank is not None and group_rank is not None:
        raise ValueError(f"{name}: Can't specify both {what} and group_{what}")
    if group_rank is not None:
        if not 0 <= group_rank < found.size():
            raise ValueError(f"{name}: group_{what} {group_rank} is not in a group of {found.size()} ranks")
        return group_rank
    if rank is None:
        if default is None:
            raise ValueError(f"{name}: Must specify {what} or group_{what}")
        rank = default
    return get_group_rank(found, rank)


def _out(work: Work, async_op: bool) -> Work | None:
    if async_op:
        return work
    work.wait()
    return None


class _Works(list[Any]):
    """Several `Work` that are waited for together."""

    def wait(self) -> bool:
        return all(work.wait() for work in self)

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self)


def all_reduce(tensor: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """Combine the `tensor` of all ranks, in place; all get the same bits.

    Args:
        tensor: same dtype and shape on all ranks.
        op: a `ReduceOp`.
        group: the ranks that take part; None for all.
        async_op: return a `Work` at once.
    Raises: DistBackendError, on all ranks, when ranks called different things; ValueError or RuntimeError for an `op` that
        the dtype does not have.
    """
    _tensor("all_reduce", "tensor", tensor)
    found = _group("all_reduce", group)
    return None if found is None else _out(found.all_reduce([tensor], op, async_op), async_op)


def all_reduce_coalesced(tensors: Sequence[Any], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """`all_reduce` of several `tensors` of one dtype in one call; see `all_reduce`."""
    tensors = _tensors("all_reduce_coalesced", "tensors", [tensors] if isinstance(tensors, fb.Tensor) else tensors)
    found = _group("all_reduce_coalesced", group)
    return None if found is None or not tensors else _out(found.all_reduce(tensors, op, async_op), async_op)


def broadcast(tensor: Any, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None) -> Work | None:
    """Give all ranks the `tensor` of one.

    Args:
        tensor: what is sent on that rank, and written on the others; same dtype and number of elements.
        src: that rank, in the job; `group_src` is it in the group.
        group, async_op: as for `all_reduce`.
        group_src: see `src`.
    """
    _tensor("broadcast", "tensor", tensor)
    found = _group("broadcast", group)
    if found is None:
        return None
    return _out(found.broadcast([tensor], _peer("broadcast", found, src, group_src, "src"), async_op), async_op)


def reduce(
    tensor: Any,
    dst: int | None = None,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Combine the `tensor` of all ranks on one of them; the others keep theirs.

    Args:
        tensor: same dtype and shape on all ranks.
        dst: the rank that gets the result, in the job; `group_dst` is it in the group.
        op, group, async_op: as for `all_reduce`.
        group_dst: see `dst`.
    """
    _tensor("reduce", "tensor", tensor)
    found = _group("reduce", group)
    if found is None:
        return None
    return _out(found.reduce(tensor, _peer("reduce", found, dst, group_dst, "dst"), op, async_op), async_op)


def all_gather(tensor_list: Sequence[Any], tensor: Any, group: Any = None, async_op: bool = False) -> Work | None:
    """Give all ranks the `tensor` of each.

    Args:
        tensor_list: written; one for each rank, with as many elements as that rank's tensor.
        tensor: of one dtype on all ranks; sizes may differ.
        group, async_op: as for `all_reduce`.
    """
    outputs = _tensors("all_gather", "tensor_list", tensor_list)
    _tensor("all_gather", "tensor", tensor)
    found = _group("all_gather", group)
    return None if found is None else _out(found.all_gather(outputs, tensor, async_op), async_op)


def all_gather_coalesced(
    output_tensor_lists: Sequence[Sequence[Any]], input_tensor_list: Sequence[Any], group: Any = None, async_op: bool = False
) -> Any:
    """`all_gather` of several tensors.

    Args:
        output_tensor_lists: for each rank, a list like `input_tensor_list`.
        input_tensor_list: the tensors of this rank.
        group, async_op: as for `all_reduce`.
    """
    inputs = _tensors("all_gather_coalesced", "input_tensor_list", input_tensor_list)
    found = _group("all_gather_coalesced", group)
    if found is None:
        return None
    works = [
        found.all_gather([outputs[at] for outputs in output_tensor_lists], tensor, async_op)
        for at, tensor in enumerate(inputs)
    ]
    return _Works(works) if async_op else None


def all_gather_into_tensor(output_tensor: Any, input_tensor: Any, group: Any = None, async_op: bool = False) -> Work | None:
    """Give all ranks the `input_tensor` of each, in one tensor.

    Args:
        output_tensor: written; the inputs concatenated or stacked along the first dimension.
        input_tensor: same shape on all ranks.
        group, async_op: as for `all_reduce`.
    Raises: ValueError for an output of another size.
    """
    name = "all_gather_into_tensor"
    _tensor(name, "output_tensor", output_tensor)
    _tensor(name, "input_tensor", input_tensor)
    found = _group(name, group)
    if found is None:
        return None
    _check_parts(name, "output_tensor", output_tensor, found.size(), input_tensor.numel())
    return _out(found.all_gather_into_tensor(output_tensor, input_tensor, async_op), async_op)


def _check_parts(name: str, argument: str, tensor: Any, count: int, numel: int) -> None:
    """Raise ValueError if `tensor` is not `count` parts of `numel` elements, one after the other."""
    if tensor.numel() != count * numel:
        raise ValueError(
            f"{name}: {argument} must hold {count} times {numel} elements, got shape {tuple(tensor.shape)} with {tensor.numel()}"
        )
    if not tensor.is_contiguous():
        raise ValueError(f"{name}: {argument} must be contiguous, got strides {tensor.stride()}")


def gather(
    tensor: Any,
    gather_list: Any = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Give one rank the `tensor` of each.

    Args:
        tensor: same dtype and shape on all ranks.
        gather_list: written on that rank, one tensor for each rank; None on the others.
        dst: that rank, in the job; 0 if None. `group_dst` is it in the group.
        group, async_op: as for `all_reduce`.
        group_dst: see `dst`.
    Raises: ValueError for a list where none belongs, or none where one does.
    """
    _tensor("gather", "tensor", tensor)
    found = _group("gather", group)
    if found is None:
        return None
    root = _peer("gather", found, dst, group_dst, "dst", 0)
    outputs = _root_list("gather", "gather_list", gather_list, found.rank() == root)
    return _out(found.gather(outputs, tensor, root, async_op), async_op)


def _root_list(name: str, argument: str, given: Any, here: bool) -> list[Any]:
    if here and not given:
        raise ValueError(f"Argument ``{argument}`` must be specified on {'destination' if name == 'gather' else 'source'} rank.")
    if not here and given:
        raise ValueError(f"Argument ``{argument}`` must NOT be specified on non-{'destination' if name == 'gather' else 'source'} ranks.")
    return _tensors(name, argument, given) if given else []


def scatter(
    tensor: Any,
    scatter_list: Any = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Give each rank its tensor of a list that one rank has.

    Args:
        tensor: written; same dtype and shape on all ranks.
        scatter_list: the list, on that rank; None on the others.
        src: that rank, in the job; 0 if None. `group_src` is it in the group.
        group, async_op: as for `all_reduce`.
        group_src: see `src`.
    Raises: ValueError for a list where none belongs, or none where one does.
    """
    _tensor("scatter", "tensor", tensor)
    found = _group("scatter", group)
    if found is None:
        return None
    root = _peer("scatter", found, src, group_src, "src", 0)
    inputs = _root_list("scatter", "scatter_list", scatter_list, found.rank() == root)
    return _out(found.scatter(tensor, inputs, root, async_op), async_op)


def reduce_scatter(
    output: Any, input_list: Sequence[Any], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Combine lists of all ranks, and give each rank its item.

    Args:
        output: written.
        input_list: one tensor for each rank, of the size of that rank's output.
        op, group, async_op: as for `all_reduce`.
    """
    _tensor("reduce_scatter", "output", output)
    inputs = _tensors("reduce_scatter", "input_list", input_list)
    found = _group("reduce_scatter", group)
    return None if found is None else _out(found.reduce_scatter(output, inputs, op, async_op), async_op)


def reduce_scatter_tensor(output: Any, input: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """Combine tensors of all ranks, and give each rank its part.

    Args:
        output: written; same shape on all ranks.
        input: what all outputs make, concatenated or stacked along the first dimension.
        op, group, async_op: as for `all_reduce`.
    Raises: ValueError for an input of another size.
    """
    name = "reduce_scatter_tensor"
    _tensor(name, "output", output)
    _tensor(name, "input", input)
    found = _group(name, group)
    if found is None:
        return None
    input = input.contiguous()
    _check_parts(name, "input", input, found.size(), output.numel())
    return _out(found.reduce_scatter_tensor(output, input, op, async_op), async_op)


def all_to_all(
    output_tensor_list: Sequence[Any], input_tensor_list: Sequence[Any], group: Any = None, async_op: bool = False
) -> Work | None:
    """Give each rank one tensor of each rank's list.

    Args:
        output_tensor_list: written; one for each rank it comes from.
        input_tensor_list: one for each rank it goes to; sizes may differ.
        group, async_op: as for `all_reduce`.
    """
    outputs = _tensors("all_to_all", "output_tensor_list", output_tensor_list)
    inputs = _tensors("all_to_all", "input_tensor_list", input_tensor_list)
    found = _group("all_to_all", group)
    return None if found is None else _out(found.all_to_all(outputs, inputs, async_op), async_op)


def all_to_all_single(
    output: Any,
    input: Any,
    output_split_sizes: Any = None,
    input_split_sizes: Any = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Give each rank one part of each rank's `input`.

    Args:
        output: written; the parts that arrive, concatenated along the first dimension.
        input: the parts that go, concatenated along the first dimension.
        output_split_sizes, input_split_sizes: rows of each part; None or empty for equal parts.
        group, async_op: as for `all_reduce`.
    Raises: RuntimeError for sizes that do not add up.
    """
    _tensor("all_to_all_single", "output", output)
    _tensor("all_to_all_single", "input", input)
    found = _group("all_to_all_single", group)
    if found is None:
        return None
    outputs = _split("output", output, output_split_sizes, found.size())
    inputs = _split("input", input.contiguous(), input_split_sizes, found.size())
    return _out(found.all_to_all(outputs, inputs, async_op, "all_to_all_single"), async_op)


def _split(argument: str, tensor: Any, sizes: Any, count: int) -> list[Any]:
    rows = tensor.shape[0] if tensor.dim() else 0
    if not sizes:
        if rows % count:
            raise RuntimeError(
                f"all_to_all_single: the first dimension of {argument} ({rows}) does not divide equally across {count} ranks"
            )
        sizes = [rows // count] * count
    if len(sizes) != count:
        raise RuntimeError(f"all_to_all_single: {argument}_split_sizes has {len(sizes)} sizes for {count} ranks")
    if sum(sizes) != rows:
        raise RuntimeError(f"all_to_all_single: {argument}_split_sizes {list(sizes)} do not add up to the first dimension {rows}")
    parts, at = [], 0
    for size in sizes:
        parts.append(tensor.detach()[at : at + size])
        at += size
    return parts


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Wait until all ranks of `group` have called it.

    Args:
        group, async_op: as for `all_reduce`.
        device_ids: taken for compatibility.
    """
    found = _group("barrier", group)
    return None if found is None else _out(found.barrier(None, async_op), async_op)


def monitored_barrier(group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
    """A barrier with a timeout of its own, which names the ranks that do not come.

    Args:
        group: as for `all_reduce`.
        timeout: how long to wait; that of the group if None.
        wait_all_ranks: taken for compatibility; all missing ranks are always named.
    Raises: DistBackendError, a RuntimeError.
    """
    found = _group("monitored_barrier", group)
    if found is None:
        return
    try:
        found.barrier(timeout, False, "monitored_barrier")
    except DistBackendError as error:
        raise DistBackendError(f"monitoredBarrier failed: {error}") from None


_breakpoints = 0


def breakpoint(rank: int = 0, skip: int = 0, timeout_s: int = 3600) -> None:  # PyTorch's name
    """Stop rank `rank` in the debugger; the other ranks wait until it goes on. All ranks must call it.

    Args:
        rank: of the job.
        skip: how many calls do nothing first.
        timeout_s: seconds that the others wait.
    Raises: RuntimeError without a process group; DistStoreError if the others have waited for too long.
    """
    import pdb

    global _breakpoints
    default = _default()
    _breakpoints += 1
    if _breakpoints <= skip:
        return
    key = f"breakpoint/{_breakpoints}"
    assert _world.store is not None
    if default.rank() == rank:
        print(f"rank {rank} is in the debugger; type 'up' to get to the frame that called distributed.breakpoint(rank={rank})", flush=True)
        # Processes that a launcher has started have no terminal for their standard input, but may open it anew.
        anew = open("/dev/stdin", encoding="utf-8") if os.path.exists("/dev/stdin") else None  # noqa: SIM115  # the debugger reads on
        pdb.Pdb(stdin=anew, nosigint=True).set_trace()
        _world.store.set(key, "on")
    else:
        _world.store.wait([key], timedelta(seconds=timeout_s))
