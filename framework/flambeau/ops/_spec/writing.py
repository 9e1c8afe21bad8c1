"""Writing results into tensors that exist: what is allowed, and what the tape must forget or be told."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

import flambeau_kernels as kernels

from ... import _state, devices, dtypes
from ..._arrays import MetaArray, like_strides, ndarray
from ..._inference import refuse_write
from ..._kinds import KindArray
from ..._warn import warn, warn_once
from ...autograd import tape
from ...autograd.tape import Leaf, Node, Overwritten, is_of_nobody
from ...tensor import Tensor, bump, device_of, wrap
from .overlap import refuse_shared


def check_writable(op: Any, target: Any, resized: bool = False) -> None:
    """Raise as PyTorch does for in-place writes that autograd or the memory layout forbids; the latter unless it is `resized` first."""
    if not isinstance(target, Tensor):
        raise TypeError(f"{op.public_name}_(): argument 'input' must be Tensor, not {type(target).__name__}")
    if _state.MARKED:
        refuse_write(target)
    unrecorded = target._node is None or is_of_nobody(target._node)
    if target._view_of is not None and unrecorded and target._view_of[0]._node is not None and _state.grad_enabled():
        raise_ambiguous(op, target)
    check_recorded(target)
    refuse_read_only(f"{op.public_name}_", target._array)
    if not resized:
        check_no_overlap(op, target)


def refuse_read_only(name: str, a: Any) -> None:
    """Raise RuntimeError for the operation `name` if the array `a` may not be written to."""
    if type(a) is ndarray and not a.flags.writeable:
        raise RuntimeError(f"{name}: the memory of this tensor is read-only; clone() it before writing")


def check_no_overlap(op: Any, target: Tensor) -> None:
    """Raise RuntimeError if elements of `target` share a place because a dimension has steps of 0, unless `op` may write there."""
    a = target._array
    if a.size < 2 or isinstance(a, KindArray):
        return
    if 0 in a.strides and any(s == 0 and n > 1 for s, n in zip(a.strides, a.shape, strict=True)):
        if op.may_write_expanded:
            warn_once(
                f"Use of {op.public_name}_ on expanded tensors is deprecated. Please clone() the tensor before performing this operation. "
                "This also applies to advanced indexing e.g. "
                f"tensor[{'mask] = scalar' if 'fill' in op.public_name else 'indices] = tensor'}",
                about=op.public_name,
            )
            return
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
            "Please clone() the tensor before performing the operation."
        )


def check_recorded(target: Tensor) -> None:
    """Raise RuntimeError if recording would lose a leaf: `target` or its base is one."""
    if target._node is not None and _state.grad_enabled():
        if type(target._node) is Leaf:
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        if target._view_of is not None and (target._view_of[0]._node is None or type(target._view_of[0]._node) is Leaf):
            raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation.")


class NamedOnly:
    """Stands for an op in checks that read its name alone."""

    may_write_expanded = False

    def __init__(self, name: str) -> None:
        self.public_name = name


def check_moved(name: str, target: Tensor) -> None:
    """Raise RuntimeError if recording that `target` gets other memory is refused; `name` is the name of the operation."""
    check_recorded(target)
    check_view(NamedOnly(name), target)


def raise_ambiguous(op: Any, target: Tensor) -> None:
    inference = getattr(target._node, "made_in", None) == "inference"
    mode, where = ("inference mode", "in normal mode") if inference else ("no_grad mode", "with grad mode enabled")
    raise RuntimeError(
        f"A view was created in {mode} and is being modified inplace {where}, by {op.public_name}_, while its base requires grad, so it is "
        f"unclear whether to record it. Put both inside the {'inference_mode' if inference else 'no_grad'} block, or both outside"
    )


def check_view(op: Any, target: Tensor) -> None:
    """Raise RuntimeError if recording a write to `target` is refused: one of several views, or a view made without recording."""
    link = target._view_of
    if link is None:
        return
    while link is not None:
        refusal = getattr(link[1], "refusal", None)
        if refusal is not None:
            raise RuntimeError(
                f"Output {link[1].index} of {link[1].maker} is a view and is being modified inplace. {refusal} (here {op.public_name}_)"
            )
        link = link[3]
    if not any(ref() is target for ref in reversed(target._storage[tape.VIEWS] or ())):
        raise_ambiguous(op, target)


def cannot_be_cast(result: Any, wanted: Any) -> str:
    """What errors say of a result of one dtype that is to be stored in another."""
    kinds = (dtypes.scalar_type(result), dtypes.scalar_type(wanted))
    return f"result type {kinds[0]} can't be cast to the desired output type {kinds[1]} ({result} to {wanted})"


def check_inplace(op: Any, target: Tensor, result: Tensor) -> None:
    if result.shape != target.shape:
        raise RuntimeError(
            f"{op.public_name}_: output with shape {list(target.shape)} doesn't match the broadcast shape {list(result.shape)}"
        )
    if not dtypes.can_cast(result.dtype, target.dtype):
        raise RuntimeError(
            f"{op.public_name}_: {cannot_be_cast(result.dtype, target.dtype)}"
        )


def raise_other_dtype(op: Any, expected: Any, out: Tensor) -> None:
    if op.other_dtype:
        raise RuntimeError(op.other_dtype.format(dtypes.scalar_type(out.dtype)))
    raise RuntimeError(f"{op.qualified}(): Expected out tensor to have dtype {expected}, but got {out.dtype} instead")


def store_plainly(out: Any, result: Any, args: Any, may_be_operand: bool = False) -> bool:
    """Store `result` of `args` in `out` where nothing speaks against it, and say whether that was done; `write_out` has the checks.

    Both are contiguous arrays of one shape and dtype without a history, and no operand has memory in common with `out`, unless it is
    `out` itself and `may_be_operand`.
    """
    if out.__class__ is not Tensor or result.__class__ is not Tensor or out._node is not None or result._node is not None:
        return False
    a, made = out._array, result._array
    if a.__class__ is not ndarray or made.__class__ is not ndarray or a.dtype is not made.dtype or a.shape != made.shape:
        return False
    if out._view_of is not None and out._view_of[0]._node is not None or _state.MARKED or not a.flags.carray:
        return False
    for x in args:
        for y in x if x.__class__ is list or x.__class__ is tuple else (x,):
            if isinstance(y, Tensor):
                if y is out and may_be_operand:
                    continue
                b = y._array
                if b is a or y._storage is out._storage or (b.base is not None or a.base is not None) and np.may_share_memory(b, a):
                    return False
            elif y.__class__ is list or y.__class__ is tuple:
                return False
    a[...] = made
    bump(out)
    return True


def write_out(op: Any, out: Any, result: Tensor, args: Any = ()) -> Tensor:
    """Store `result` of `args` in `out`.

    Raises: TypeError, RuntimeError as PyTorch for a wrong dtype or device, a grad-requiring out, or memory shared with `args`.
    """
    if not isinstance(out, Tensor):
        raise TypeError(f"{op.public_name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    check_out(op, out, result.dtype, device_of(result._array), result._node is not None and _state.grad_enabled())
    check_writable(op, out, out._array.shape != result._array.shape and not op.refuses_expanded_out)
    if out.dtype is not result.dtype and op.exact_out:
        raise_other_dtype(op, result.dtype, out)
    if args:
        refuse_shared(op, out, result._array.shape, args)
    if isinstance(out._array, KindArray):
        return out._array.store(op.public_name, out, result)
    if out._array.shape != result._array.shape:
        resize_out(op, out, result._array.shape)
    if type(out._array) is not MetaArray:
        kernels.store(out._array, result._array)
    bump(out)
    return out


def with_dtype_of(op: Any, out: Tensor, args: Any) -> Any:
    """`args` with the dtype of `out` as `dtype`. Raises: RuntimeError if they have another."""
    at = op.params.index("dtype")
    if args[at] is None and isinstance(args[0], Tensor) and args[0].dtype is out.dtype and out.dtype.category >= dtypes.FLOATING:
        return args                                   # it is that anyway
    if args[at] is not None and dtypes.as_dtype(args[at]) is not out.dtype:
        raise_other_dtype(op, dtypes.as_dtype(args[at]), out)
    return (*args[:at], out.dtype, *args[at + 1 :])


def check_out(op: Any, out: Tensor, result: Any, place: Any, with_grad: bool) -> None:
    if with_grad:
        raise_unrecorded(op.public_name)
    check_unrecorded(op.public_name, out)
    if not dtypes.can_cast(result, out.dtype):
        raise op.cast_error(f"{op.public_name}: {cannot_be_cast(result, out.dtype)}")
    if device_of(out._array) != place:
        raise RuntimeError(f"{op.public_name}: Expected out on device {place}, but it is on {out.device}")


def check_unrecorded(name: str, out: Tensor) -> None:
    """Raise RuntimeError if `out` has a history, which functions that write it do not continue."""
    if out._node is not None and _state.grad_enabled():
        raise_unrecorded(name)


def raise_unrecorded(name: str) -> None:
    raise RuntimeError(
        f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad."
    )


def out_of_shape(name: str, out: Any, shape: tuple[int, ...], dtype: Any = None, device: Any = None, fit: str = "shape") -> Tensor:
    """`out`, which a function without tensor operands is about to write, with `shape`.

    Args:
        dtype, device: what was asked for, if anything; `out` has to have it.
        fit: "shape": any other shape is changed without a word, as PyTorch's factories do. "count": any shape of as many elements
            stays. "range": that too, and other counts are warned of.
    Raises: TypeError, RuntimeError before anything has changed.
    """
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if dtype is not None and dtypes.as_dtype(dtype) is not out.dtype:
        wanted, given = dtypes.scalar_type(dtypes.as_dtype(dtype)), dtypes.scalar_type(out.dtype)
        raise RuntimeError(f"{name}: dtype {wanted} does not match dtype of out parameter ({given})")
    if device is not None and devices.device(device).type != out.device.type:
        raise RuntimeError(f"{name}: device type {devices.device(device).type} does not match device type of out parameter ({out.device})")
    check_unrecorded(name, out)
    from ...storage import give_shape

    count = math.prod(shape)
    fits = out._array.shape == shape if fit == "shape" else out._array.size == count
    check_writable(NamedOnly(name), out, True)
    if not fits:
        if fit == "range" and out._array.size:
            warn(
                f"The number of elements in the out tensor of shape {list(out.shape)} is {out._array.size} which does not match the "
                f"computed number of elements {count}. {name} resizes it to one dimension. Rounding may be "
                "why; give an out of that size, or an empty one."
            )
        give_shape(out, shape)
    return out


def refuse_other_dtype_out(op: Any, wanted: Any = None) -> None:
    """Let `op` refuse an ``out`` of another dtype than its input, or than ``wanted(input)``."""
    general = op.run_out

    def run_out(out: Any, *args: Any) -> Any:
        for x in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(x, Tensor) and isinstance(args[0], Tensor):
                expected = args[0].dtype if wanted is None else wanted(args[0])
                if x.dtype is not expected:
                    raise_other_dtype(op, expected, x)
        return general(out, *args)

    op.run_out = run_out


def resize_out(op: Any, out: Tensor, shape: tuple[int, ...]) -> None:
    from ...storage import give_shape

    if out._array.size:
        warnings.warn(
            f"An output with one or more elements was resized since it had shape {list(out.shape)}, which does not match "
            f"the required output shape {list(shape)}. Give {op.public_name} an out of that shape, or an empty one.",
            stacklevel=4,
        )
    give_shape(out, shape)


def kept_copy(array: Any) -> Tensor:
    """A copy of `array`, which a history has saved and which is about to be overwritten."""
    if type(array) is ndarray:
        kept = wrap(np.array(array))
    elif type(array) is MetaArray:
        kept = wrap(MetaArray(array.shape, array.dtype, like_strides(array.shape, array.itemsize, (array,))))
    else:
        kept = wrap(array.copy() if hasattr(array, "get") else array)
    keep = _state.local.kept_copies
    if keep is not None:
        keep(wrap(array), kept)
    return kept


def forget_overwritten(node: Node, target: Tensor) -> None:
    """Copy what `node` saved of its target, which its own in-place operation is about to overwrite; mark what else it loses."""
    if type(node.saved) is tuple and node.versions:
        for at, saved in enumerate(node.saved):
            if saved is target._array and node.versions[at] is target._storage:
                kept = kept_copy(saved)
                node.saved = (*node.saved[:at], kept._array, *node.saved[at + 1 :])
                node.versions = (*node.versions[:at], kept._storage, *node.versions[at + 1 :])
        node.saved = tuple(
            Overwritten(node.name()) if v is target._storage else s
            for s, v in zip(node.saved, node.versions, strict=True)
        )


def nodes_since(begin: int, nodes: list[Any]) -> list[Node]:
    """`nodes` and those that lead to them, as far as they were recorded since `begin`."""
    found: dict[Node, None] = {}
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node is not None and node.parents and node.seq > begin and node not in found:
            found[node] = None
            stack += node.parents
    return list(found)


def keep_for_histories(begin: int, target: Tensor, results: list[Any]) -> None:
    """Copy what the histories of `results`, recorded since `begin`, have saved of the memory of `target`, which is about to be written.

    Interpreters compute what is stored in place first, and then store it, so that what was there has been an operand as others are.
    """
    there = [x for x in results if isinstance(x, Tensor) and (x.requires_grad or x._looks is x)]
    histories = [node for x in there for node in _histories(x)]
    record = target._storage if histories else None
    for node in nodes_since(begin, histories) if histories else ():
        if type(node.saved) is not tuple or not any(v is record for v in node.versions):
            continue
        saved, versions = list(node.saved), list(node.versions)
        for at, version in enumerate(versions):
            if version is record and (type(saved[at]) is MetaArray or hasattr(saved[at], "copy")):
                kept = kept_copy(saved[at])
                saved[at], versions[at] = kept._array, kept._storage
        node.saved, node.versions = tuple(saved), tuple(versions)


def _histories(x: Tensor) -> list[Node]:
    """The nodes of `x` and of its tangents, whatever levels they are of."""
    found = [] if x._node is None else [x._node]
    inside: Any = x
    while inside is not None:
        tangents = inside.__dict__.get("_tangents", {})
        found += [node for t in tangents.values() if t is not None for node in _histories(t)]
        inside = inside._value if hasattr(inside, "_bdim") else None
    return found


def refresh_saved_output(node: Node, result: Tensor, target: Tensor) -> None:
    """A node that saved its output saved a temporary; let it keep the memory that now holds the value."""
    if type(node.saved) is tuple and target._array.dtype == result._array.dtype:
        for at, value in enumerate(node.saved):
            if value is result._array:
                versions = list(node.versions)
                versions[at] = target._storage
                node.saved = (*node.saved[:at], target._array, *node.saved[at + 1 :])
                node.versions = tuple(versions)
