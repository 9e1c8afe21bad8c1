"""Recorded operations: a tree of steps, each found by an operation, its operands' places and looks, and constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau_kernels.engine.calls import follow

from ..autograd import tape
from ..devices import Size, device, layout, memory_format
from ..dtypes import dtype
from ..tensor import Tensor

PLAIN = {int, bool, str, type(None), dtype, device, memory_format, layout, Size, complex, type(...)}
_IDENTIFIED = PLAIN | {float, slice}                 # constants that are what they were as long as they are the same object
NODE = follow.LIKELY.index("node")


class Step:
    """One recorded operation, and those that have followed it.

    `refs` are its arguments: ints for tensors, the value of that number or, below zero, input ``-1 - ref``; other arguments are in
    a `Constant`, lists in a list. `looks` are the arguments with meta tensors for tensors, and `metas` its results on the meta device.
    A step whose `same` is a ref returned that operand. One that `stores` writes to its first operand, and has no results. `node` is
    what `flambeau_kernels.engine.calls.follow` calls a node, and the step.
    """

    __slots__ = (
        "op", "refs", "looks", "parent", "first", "results", "several", "same", "stores", "after", "programs", "where", "node", "numbered",
        "ambient",
    )  # fmt: skip

    def __init__(self, op: Any, refs: Any, looks: tuple[Any, ...], parent: Step | None) -> None:
        self.op, self.refs, self.looks, self.parent = op, refs, looks, parent
        self.first = 0 if parent is None else parent.first + len(parent.results)
        self.results: tuple[Any, ...] = ()
        self.numbered: tuple[tuple[int, Any], ...] = ()  # the numbers of results, and these
        self.several: Any = None
        self.same: int | None = None
        self.stores = False
        self.after: dict[Any, Step | None] = {}       # None: an operation that is not recorded
        self.programs: dict[Any, Any] = {}            # by the values that are asked for
        self.where = tape.users_place()               # of the call that was recorded
        self.node: list[Any] = [None, self, None]     # the last: what `flambeau_kernels.engine.calls.settle` calls ready
        self.ambient: Any = None                      # of the first step of a tree: see `ambient_now`, of what is expected after it

    def expect(self, after: Step, known: int, op: Any, refs: Any, instead: bool = False, several: Any = None) -> None:
        """Let a call of `op` on `refs` be what is looked at first when this step has been followed, with `known` inputs.

        `several` makes what the call gives of a tuple of results.

        That is the call as it was written, for which `after` may have another operation: constants and looks of operands, which are
        compared, decide which one. Where `after` is expected already it stays so, by the call that came first, or by this one `instead`.
        """
        likely = self.node[0]
        if likely is not None and likely[NODE] is after.node and not instead or after.same is not None:
            return
        numbered = [ref for ref in after.refs if ref.__class__ is int]
        looks = dict(zip(numbered, [look for look in after.looks if isinstance(look, Tensor)], strict=True))
        pattern: list[Any] = []
        for ref in refs:
            if ref.__class__ is int:
                is_new = -ref > known
                known += is_new
                if is_new and ref not in looks:
                    return
                pattern += (looks_of(looks[ref]), -1 - ref) if is_new else (True, ref) if ref >= 0 else (False, -1 - ref)
            elif is_constant(ref):
                pattern += (None, constant_of(ref))
            else:
                return                                # lists of tensors, and what may be changed
        if after.several is None:
            self.node[0] = (op, tuple(pattern), after.first, after.results[0], after.node, None)
        else:
            numbers = tuple(range(after.first, after.first + len(after.results)))
            self.node[0] = (op, tuple(pattern), numbers, after.results, after.node, several or after.several)

    def path(self) -> list[Step]:
        """The steps from the first one to this one."""
        found, step = [], self
        while step.parent is not None:
            found.append(step)
            step = step.parent
        return found[::-1]


    def count_programs(self) -> int:
        """Of this step and of all that have followed it."""
        count, waiting = 0, [self]                    # paths may be longer than Python's stack is deep
        while waiting:
            step = waiting.pop()
            count += len(step.programs)
            waiting += [after for after in step.after.values() if after is not None]
        return count


def is_constant(ref: Any) -> bool:
    if ref.__class__ is Constant:
        return ref.value.__class__ in _IDENTIFIED
    return (ref.__class__ is list or ref.__class__ is tuple) and all(map(is_constant, ref))


def constant_of(ref: Any) -> Any:
    """The value of a constant, or of a list or tuple of such."""
    return ref.value if ref.__class__ is Constant else type(ref)(map(constant_of, ref))


def looks_of(look: Tensor) -> Any:
    """What `flambeau_kernels.engine.calls.follow` compares a new input with, where that is to look as the tensor does."""
    array = look._array
    return np.array([*array.shape, *array.strides], np.int64).tobytes(), np.dtype(look.dtype.numpy), look.requires_grad


class Constant:
    """An argument that is no tensor."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def is_view(op: Any) -> bool:
    """Whether results of `op` are in the memory of its operand."""
    return op.kind == "view" or op.shares_memory


def owner_of(number: int, step: Any) -> int:
    """The value whose memory one of the path to `step` is in, or the input, as refs have it."""
    while number >= 0 and step.parent is not None:
        if step.first <= number < step.first + len(step.results):
            if not is_view(step.op) or step.refs[0].__class__ is not int:
                return number
            number = step.refs[0]
        step = step.parent
    return number


def are_equal(refs: Any, others: Any) -> bool:
    """Whether steps have the same arguments."""
    if refs.__class__ is Constant is others.__class__:
        return refs.value.__class__ is others.value.__class__ and refs.value == others.value
    if refs.__class__ is int or refs.__class__ is not others.__class__:
        return refs.__class__ is others.__class__ and refs == others
    return len(refs) == len(others) and all(map(are_equal, refs, others))
