"""Recorded operations: a tree of steps, each found by an operation, its operands' places and looks, and constants."""

from __future__ import annotations

import weakref
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
    A step whose `same` is a ref returned that operand. One that `stores` writes to its first operand, and has no results. In the graph of a
    backend, `written` are the operands that it writes to, each with its looks afterwards where these are others. `node` is what
    `flambeau_kernels.engine.calls.follow` calls a node, and the step.
    """

    __slots__ = (
        "op", "refs", "looks", "parent", "first", "results", "several", "same", "stores", "written", "after", "programs", "where", "node",
        "numbered", "ambient",
    )  # fmt: skip

    def __init__(self, op: Any, refs: Any, looks: tuple[Any, ...], parent: Step | None) -> None:
        self.op, self.refs, self.looks, self.parent = op, refs, looks, parent
        self.first = 0 if parent is None else parent.first + len(parent.results)
        self.results: tuple[Any, ...] = ()
        self.numbered: tuple[tuple[int, Any], ...] = ()  # the numbers of results, and these
        self.several: Any = None
        self.same: int | None = None
        self.stores = False
        self.written: tuple[tuple[int, Any], ...] = ()
        self.after: dict[Any, Step | None] = {}       # None: an operation that is not recorded
        self.programs: dict[Any, Any] = {}            # by the values that are asked for
        self.where = tape.users_place()               # of the call that was recorded
        self.node: list[Any] = [None, self, None]     # the last: what `flambeau_kernels.engine.calls.settle` calls ready
        self.ambient: Any = None                      # of the first step of a tree: see `ambient_now`, of what is expected after it

    def expect(
        self, after: Step, known: int, count: int, op: Any, refs: Any, reads: bool, instead: bool = False, several: Any = None
    ) -> None:
        """Let a call of `op` on `refs` be what is looked at first when this step has been followed, with `known` inputs, `count` behind it.

        `several` makes what the call gives of a tuple of results, or of one with the result. If it `reads`, elements that decide whether a
        step fails are looked at.

        That is the call as it was written, for which `after` may have another operation, or be the last of several: constants and looks of
        operands, which are compared, decide which ones. Where the way to `after` is expected already it stays so, by the call that came
        first, or by this one `instead`.
        """
        likely = self.node[0]
        if likely is not None and likely[NODE] is after.node and not instead or after.same is not None:
            return
        looks: dict[int, Tensor] = {}
        bounds: dict[int, Any] = {}
        step, values = after, -len(after.results)
        while step is not self:
            if step.stores and step is not after:
                return
            values += len(step.results)
            looks.update(zip(numbers_in(step.refs), tensors_in(step.looks), strict=True))
            if reads and step.op.bounds_of_elements is not None:
                read = numbers_in([step.refs[k] for k in step.op.read_before])
                within = step.op.bounds_of_elements(*step.looks)
                if within is None:                    # elements do not decide alone
                    return
                for n, (low, high) in zip(read, within, strict=True):
                    known_low, known_high = bounds.get(n, (low, high))
                    bounds[n] = max(low, known_low), min(high, known_high)
            assert step.parent is not None
            step = step.parent
        given = _Given(known, looks, bounds)
        pattern = given.pattern(refs)
        if pattern is None or given.new != set(range(known, count)) or not given.bounded >= bounds.keys():
            return                                    # it has operands that are not among the arguments
        before = [_NOTHING] * values if values else None
        if after.several is None and several is None:
            self.node[0] = (op, pattern, after.first, after.results[0], after.node, None, before)
        else:
            numbers = tuple(range(after.first, after.first + len(after.results)))
            self.node[0] = (op, pattern, numbers, after.results, after.node, several or after.several, before)

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


class _Given:
    """What a pattern of `follow` says of arguments, tensors in them by number.

    Args:
        known: how many inputs there are before them; others are `new`.
        looks, bounds: of tensors, by number; `bounded` are those whose elements are looked at.
    """

    def __init__(self, known: int, looks: dict[int, Tensor], bounds: dict[int, Any]) -> None:
        self.known, self.looks, self.bounds = known, looks, bounds
        self.new: set[int] = set()
        self.bounded: set[int] = set()

    def pattern(self, refs: Any) -> tuple[Any, ...] | None:
        """None where native code does not compare such arguments."""
        pattern: list[Any] = []
        for ref in refs:
            if is_constant(ref):
                pattern += (None, constant_of(ref), None)
            elif ref.__class__ is list or ref.__class__ is tuple:
                within = None if any(one.__class__ in (list, tuple) and numbers_in(one) for one in ref) else self.pattern(ref)
                if within is None:
                    return None
                pattern += (ref.__class__, within, None)
            elif ref.__class__ is not int:
                return None                           # what may be changed
            elif ref >= 0:
                pattern += (True, ref, None)
            else:
                number, within = -1 - ref, self._within(ref)
                if number < self.known or number in self.new:
                    pattern += (False, number, within)
                elif ref not in self.looks:
                    return None
                else:
                    self.new.add(number)
                    pattern += (looks_of(self.looks[ref]), number, within)
        return tuple(pattern) if len(self.new) <= follow.MOST_NEW else None

    def _within(self, ref: int) -> Any:
        if ref not in self.bounds:
            return None
        self.bounded.add(ref)
        low, high = self.bounds[ref]
        dtype = np.dtype(self.looks[ref].dtype.numpy)
        return np.array([low, high - low, dtype.itemsize], np.int64).tobytes(), dtype


class _Thing:
    """What may be referred to."""


_NOTHING = weakref.ref(_Thing())                      # to which nothing is referred any more


def numbers_in(refs: Any) -> list[int]:
    """Numbers of tensors among arguments, also in lists, one after the other."""
    return [n for ref in refs for n in ([ref] if ref.__class__ is int else numbers_in(ref) if ref.__class__ in (list, tuple) else ())]


def tensors_in(looks: Any) -> list[Tensor]:
    """Tensors among arguments, also in lists, one after the other."""
    return [x for a in looks for x in ([a] if isinstance(a, Tensor) else tensors_in(a) if a.__class__ in (list, tuple) else ())]


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
